package txn

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// A Proof shows that the snapshots of one read over several shards fit each other: each transaction over several shards is
// in all of them or in none. It is made while the read runs, from looks in the messages that carry the statement.
// docs/design/atomicreads.md has the proof of the proof.

// Point is one shard's part of a cut.
type point struct {
	snapshot string
	server   string // the run of the server that the snapshot is one of
}

// cut has a snapshot of each shard that could be reached, which fit each other.
type cut struct {
	points map[string]point // not changed once it is there
	number uint64           // of the change that made it
	// dense: so many transactions are newer that a look tells too much.
	dense bool
}

// base keeps the newest cut that was proved.
type base struct {
	mu  sync.Mutex
	now cut
	// looked is when a look found something new last: both sides of a statement are looked at for a while.
	looked time.Time
	// making is closed when a new cut is there, or could not be made; nil: nobody makes one.
	making chan struct{}
}

// looksFor is how long both sides are looked at after something new was seen.
const looksFor = time.Second

// Proof is of one attempt to run a read. One goroutine uses it.
type Proof struct {
	t      *Transactions
	in     *Transaction
	base   cut
	both   bool
	began  time.Time
	reopen func()
	seen   []*sight
	// unknown: the base has nothing to compare a shard's look with.
	unknown bool
}

// sight is what one shard was seen to have around a statement.
type sight struct {
	shard         string
	before, after look
	span          Span
}

// Span says which snapshots lie between the looks at a shard.
type Span uint8

const (
	// OneBind: that of one statement.
	OneBind Span = iota
	// SomeBinds: those of several statements that are to have one.
	SomeBinds
	// Lasting: the transaction has one for all its statements.
	Lasting
)

// look is the answer to one look.
type look struct {
	done  bool
	point point
	newer string // as txnrecord.Records.Look tells it
}

// NewProof begins the proof of a read that is about to run in c; try counts the attempts before. Each fourth one starts from a cut that is
// made anew; from the third one on the process's own commits over several shards wait for it, a moment at the longest. End has to follow.
// Errors: as Snapshots.
func NewProof(ctx context.Context, c *Transaction, try int) (*Proof, error) {
	pr, err := c.txns.newProof(ctx, try%4 == 3)
	if err != nil {
		return nil, err
	}
	if pr.in = c; try >= 2 {
		pr.reopen = c.txns.gate.shut()
	}
	return pr, nil
}

func (t *Transactions) newProof(ctx context.Context, fresh bool) (*Proof, error) {
	c, both, err := t.cut(ctx, fresh)
	if err != nil {
		return nil, err
	}
	return &Proof{t: t, base: c, both: both, began: time.Now(), reopen: func() {}}, nil
}

// End lets commits go on.
func (pr *Proof) End() { pr.reopen() }

// Undo ends, outside of a block, what lasts longer than a statement and has only read, so that the next attempt has new snapshots.
func (pr *Proof) Undo() error {
	for _, p := range pr.in.Joined {
		if pr.in.Block || !p.Begun || p.Begin == "" || p.Wrote || p.Busy != nil || p.Conn.Broken() {
			continue
		}
		if _, err := p.Conn.Exec("ROLLBACK"); err != nil {
			return pr.in.Failure(p, err)
		}
		p.ended(false)
	}
	return nil
}

// Around adds the looks around the Binds of statements on a participant: bind adds those. answered reports whether the looks were.
func (pr *Proof) Around(p *Participant, span Span, bind func()) (answered func() bool) {
	at, ok := pr.base.points[p.Shard]
	if !ok {
		pr.unknown = true
		bind()
		return func() bool { return true }
	}
	prep := pr.t.ex.Prepare(pr.t.records(p.Shard).Look(), nil, 0, nil)
	body := lookAt(at.snapshot)
	s := &sight{shard: p.Shard, span: span}
	pr.seen = append(pr.seen, s)
	if span == SomeBinds || pr.both && span == OneBind {
		p.Pipe.Prepare(prep, nil, false)
		p.Pipe.Bind("", prep.Name(), body, false)
		p.Pipe.ExecuteAside("", s.before.take)
	}
	bind()
	p.Pipe.Prepare(prep, nil, false)
	p.Pipe.Bind(lookPortal, prep.Name(), body, false)
	p.Pipe.ExecuteAside(lookPortal, s.after.take)
	p.Pipe.Close(lookPortal, false)
	return func() bool { return s.after.done }
}

// Forget drops the look at a shard: what was sent there is asked for again.
func (pr *Proof) Forget(shard string) {
	pr.seen = slices.DeleteFunc(pr.seen, func(s *sight) bool { return s.shard == shard })
}

// Shards are those that were looked at.
func (pr *Proof) Shards() (names []string) {
	for _, s := range pr.seen {
		names = append(names, s.shard)
	}
	return names
}

// lookPortal is the portal of a look, beside the statement's.
const lookPortal = "cleave_look"

// lookAt is the rest of a Bind with one parameter, in text.
func lookAt(snapshot string) []byte {
	b := wire.AppendInt16(nil, 0)
	b = wire.AppendInt16(b, 1)
	b = wire.AppendValue(b, []byte(snapshot))
	return wire.AppendInt16(b, 0)
}

func (l *look) take(body []byte) error {
	v, err := wire.SplitRow(body, nil)
	if err != nil || len(v) != 3 {
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	l.done, l.point, l.newer = true, point{string(v[0]), string(v[1])}, string(v[2])
	return nil
}

// Fits reports whether the snapshots fit each other. All looks have to be answered.
func (pr *Proof) Fits() bool {
	if pr.unknown || time.Since(pr.began) > snapshotsMax {
		return false
	}
	news := false
	for _, s := range pr.seen {
		if !s.after.done || s.after.point.server != pr.base.points[s.shard].server || s.span == SomeBinds && s.before.point != s.after.point {
			return false
		}
		news = news || s.after.newer != ""
	}
	if !news {
		return true
	}
	pr.t.base.sees()
	if len(pr.seen) < 2 {
		return true
	}
	newer, ok := pr.newer()
	if ok {
		pr.moveBase(newer)
	}
	return ok
}

// newer are the transactions that are seen and not by the base, with their shards. ok: each is surely seen on all
// shards of the read that it wrote on.
func (pr *Proof) newer() (newer map[string][]string, ok bool) {
	newer = map[string][]string{}
	surely := make([]map[string]bool, len(pr.seen))
	ok = true
	for i, s := range pr.seen {
		surely[i] = map[string]bool{}
		told := each(s.after.newer, func(id string, shards []string) {
			newer[id] = shards
			surely[i][id] = s.span == Lasting
		})
		if s.span != Lasting {
			each(s.before.newer, func(id string, _ []string) { surely[i][id] = true })
			ok = ok && s.before.done
		}
		if told > txnrecord.LookMax {
			pr.t.base.crowded(pr.base)
			ok = false
		}
	}
	for id, shards := range newer {
		for i, s := range pr.seen {
			if slices.Contains(shards, s.shard) && !surely[i][id] {
				return newer, false
			}
		}
	}
	return newer, ok
}

// each calls f for each transaction that a look told, and returns how many there are.
func each(told string, f func(id string, shards []string)) (n int) {
	for one := range strings.FieldsSeq(told) {
		id, shards, _ := strings.Cut(one, ":")
		f(id, strings.Split(shards, ","))
		n++
	}
	return n
}

// moveBase makes the read's snapshots those of its shards in the base, where that leaves the base a cut: nothing that is newer wrote
// on a shard of the base beside.
func (pr *Proof) moveBase(newer map[string][]string) {
	read := map[string]bool{}
	for _, s := range pr.seen {
		read[s.shard] = true
	}
	for _, shards := range newer {
		for _, shard := range shards {
			if _, known := pr.base.points[shard]; known && !read[shard] {
				if len(newer) > txnrecord.LookMax/4 {
					pr.t.base.crowded(pr.base)
				}
				return
			}
		}
	}
	points := maps.Clone(pr.base.points)
	for _, s := range pr.seen {
		points[s.shard] = s.after.point
	}
	pr.t.base.moves(pr.base, points)
}

// sees notes that something new was seen.
func (b *base) sees() {
	b.mu.Lock()
	b.looked = time.Now()
	b.mu.Unlock()
}

// crowded notes that much is newer than the cut.
func (b *base) crowded(was cut) {
	b.mu.Lock()
	if b.now.number == was.number {
		b.now.dense = true
	}
	b.mu.Unlock()
}

// moves takes the points in place of those of was, unless somebody else has moved it meanwhile.
func (b *base) moves(was cut, points map[string]point) {
	b.mu.Lock()
	if b.now.number == was.number {
		b.now = cut{points: points, number: was.number + 1}
	}
	b.mu.Unlock()
}

// cut returns the base, and whether both sides of a statement are to be looked at. It makes one where there is none, or
// fresh asks for one.
func (t *Transactions) cut(ctx context.Context, fresh bool) (cut, bool, error) {
	b := &t.base
	for {
		b.mu.Lock()
		known := b.now.points != nil
		if making := b.making; making != nil && (fresh || !known) {
			b.mu.Unlock()
			select {
			case <-making:
				fresh = false // that one is
				continue
			case <-ctx.Done():
				return cut{}, false, sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
			}
		}
		if c := b.now; b.making != nil || known && !fresh && !c.dense {
			both := fresh || time.Since(b.looked) < looksFor
			b.mu.Unlock()
			return c, both, nil
		}
		made := make(chan struct{})
		b.making = made
		b.mu.Unlock()
		points, err := t.cutNow(ctx)
		b.mu.Lock()
		if err == nil {
			b.now = cut{points: points, number: b.now.number + 1}
		}
		b.making = nil
		close(made)
		b.mu.Unlock()
		if err != nil {
			return cut{}, false, err
		}
		fresh = false
	}
}

// cutNow takes snapshots of all shards that can be reached, which fit each other. Its conversations are beside the pools: those of
// the read are in them.
func (t *Transactions) cutNow(ctx context.Context) (map[string]point, error) {
	parts := t.aside(ctx)
	defer func() {
		for _, p := range parts {
			p.Conn.Release()
		}
	}()
	for {
		err := t.Snapshots(ctx, parts, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		if err == nil {
			break
		}
		at := slices.IndexFunc(parts, func(p *Participant) bool { return p.Shard == sqlstate.As(err).Shard })
		if at < 0 || ctx.Err() != nil {
			return nil, err
		}
		parts[at].Conn.Release() // the others are to be had without it
		parts = slices.Delete(parts, at, at+1)
	}
	points := map[string]point{}
	for _, p := range parts {
		res, err := p.Conn.Exec("SELECT pg_catalog.pg_current_snapshot(), EXTRACT(EPOCH FROM pg_catalog.pg_postmaster_start_time())")
		if err != nil {
			return nil, onShard(err, p.Shard)
		}
		row, err := res.OneRow(2, p.Shard)
		if err != nil {
			return nil, err
		}
		points[p.Shard] = point{row[0].String, row[1].String}
	}
	return points, nil
}

// aside opens conversations beside the pools with all shards that can be reached and that can be looked at.
func (t *Transactions) aside(ctx context.Context) (parts []*Participant) {
	ctx, stop := context.WithTimeout(ctx, resolveMax)
	defer stop()
	shards := t.ex.Snapshot().Shards()
	conns := make([]*executor.Conn, len(shards))
	var all sync.WaitGroup
	slots := make(chan struct{}, openAtOnce)
	for i := range shards {
		if !shards[i].Can().BoundSnapshots || t.ex.Refusal(shards[i].Name, false) != nil {
			continue
		}
		handle, err := t.ex.Shard(shards[i].Name)
		if err != nil {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if c, err := handle.Connect(ctx, housekeeping); err == nil {
				conns[i] = executor.NewConn(shards[i].Name, c)
			}
		})
	}
	all.Wait()
	for _, c := range conns {
		if c == nil {
			continue
		}
		if c.SetDeadline(time.Now().Add(resolveMax)) != nil {
			c.Break()
		}
		parts = append(parts, &Participant{Shard: c.Shard(), Conn: c})
	}
	return parts
}
