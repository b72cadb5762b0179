package txn

import (
	"context"
	"maps"
	"slices"
	"strconv"
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

// point is one shard's part of a cut.
type point struct {
	snapshot string
	server   string // the run of the server that the snapshot is one of: another one may give numbers of transactions anew
}

// cut has a snapshot of each shard that could be reached, which fit each other.
type cut struct {
	points map[string]point // not changed once it is there
	number uint64           // of the change that made it; 0: it is of one read alone
}

// base keeps the newest cut that was proved.
type base struct {
	mu  sync.Mutex
	now cut
	// dense: so many transactions are newer that a look tells too much.
	dense bool
	// news is when a look found something new last, fitted when a read fitted.
	news, fitted time.Time
	making       *making       // nil: no new cut is made
	failed       time.Time     // when it could not be made
	own          chan struct{} // has one for each read that makes a cut for itself
}

// making is the making of a cut for all.
type making struct {
	done chan struct{} // closed when it is there, or could not be made
	err  error         // of one that could not
}

// ownCuts bounds the reads that make a cut for themselves at the same time.
const ownCuts = 8

const (
	// looksFor is how long both sides of a statement are looked at after something new was seen, and how long after a read
	// nothing new is expected.
	looksFor = time.Second
	// cutMax bounds the making of a cut of all shards, dialMax the opening of a conversation for it. A read that has nothing else
	// gets a cut of its own, or begins inside of its conversations, in ownMax, in which all before is included.
	cutMax  = 3 * time.Second
	dialMax = time.Second
	ownMax  = 10 * time.Second
	// cutAgain is for how long a cut of all shards is not tried again after it could not be made.
	cutAgain = 5 * time.Second
)

// Proof is of one attempt to run a read. One goroutine uses it.
type Proof struct {
	t      *Transactions
	in     *Transaction
	base   cut
	both   bool
	began  time.Time
	reopen func()
	seen   []*sight
	own    []*Participant // whose transactions were begun for the attempt
	// stale: the base has nothing to compare a shard's look with; lacks are the shards that it does not have.
	stale bool
	lacks []string
	stuck string // see Stuck
}

// sight is what one shard was seen to have around a statement.
type sight struct {
	shard         string
	before, after look
	span          Span
	own           bool // its transaction was begun for the attempt
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
	done     bool
	snapshot string
	server   string
	newer    string // as txnrecord.Records.Look tells it
	writes   bool   // the transaction has written, so that the snapshot's text says that it is committed
}

// Attempt says what is known of an attempt to run a read.
type Attempt struct {
	Try   int  // how many there were before
	Stale bool // the base of the last one was good for nothing
	// Shards are those that are read: a base that lacks one of them is of no use.
	Shards func() ([]string, error)
	// Also are others that turned out to be read.
	Also []string
}

// shards are all that are known to be read.
func (a Attempt) shards() ([]string, error) {
	shards, err := a.Shards()
	shards = append(slices.Clone(shards), a.Also...)
	slices.Sort(shards)
	return slices.Compact(shards), err
}

// NewProof begins the proof of a read that is about to run in c. Each fourth attempt starts from a cut that is made anew;
// from the third one on the process's own commits over several shards wait for it, a moment at the longest. Where no shard has a
// connection more for that cut, the conversations of the read do. End has to follow. Errors: as Snapshots.
func NewProof(ctx context.Context, c *Transaction, a Attempt) (*Proof, error) {
	until := time.Now().Add(ownMax)
	pr, err := c.txns.newProof(ctx, a, until)
	if unconnected(err) {
		pr, err = proofInside(ctx, c, a, until, err)
	}
	if err != nil {
		return nil, err
	}
	if pr.in = c; a.Try >= 2 {
		pr.reopen = c.txns.gate.shut()
	}
	return pr, nil
}

func (t *Transactions) newProof(ctx context.Context, a Attempt, until time.Time) (*Proof, error) {
	c, both, err := t.cut(ctx, a.Stale || a.Try%4 == 3)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil || a.Try > 0 {
		shards, e := a.shards()
		if e != nil {
			return nil, e
		}
		if err != nil || slices.ContainsFunc(shards, func(s string) bool { _, ok := c.points[s]; return !ok }) {
			// Those that it reads are enough for it alone.
			if c.points, err = t.ownCut(ctx, shards, until); err != nil {
				return nil, err
			}
			c.number = 0
		}
	}
	return t.proofFrom(c, both || a.Try > 0), nil
}

func (t *Transactions) proofFrom(c cut, both bool) *Proof {
	return &Proof{t: t, base: c, both: both, began: time.Now(), reopen: func() {}}
}

// End lets commits go on.
func (pr *Proof) End() {
	pr.reopen()
	pr.reopen = func() {}
}

// Own notes that a participant's transaction begins with the attempt, with one snapshot for all its statements.
func (pr *Proof) Own(p *Participant) { pr.own = append(pr.own, p) }

// Undo ends what the attempt began and that lasts longer than a statement, so that the next one has new snapshots.
func (pr *Proof) Undo() error {
	for _, p := range pr.own {
		if !p.Begun || p.Wrote || p.Busy != nil || p.Conn.Broken() {
			continue
		}
		if _, err := p.Conn.Exec("ROLLBACK"); err != nil {
			return pr.in.Failure(p, err)
		}
		p.ended(false)
	}
	return nil
}

// Renew ends what a unit outside of a block has begun on a shard, if it only read there, so that the next statement has a new
// snapshot. done: it has.
func Renew(c *Transaction, shard string) (done bool, err error) {
	p := c.Find(shard)
	if c.Block || p == nil || !p.Begun || p.Wrote || p.Stale || p.Direct || p.Busy != nil || p.Conn.Broken() {
		return false, nil
	}
	if _, err := p.Conn.Exec("ROLLBACK"); err != nil {
		return false, c.Failure(p, err)
	}
	p.ended(false)
	return true, nil
}

// Knows reports whether the base has something to compare a participant's snapshot with.
func (pr *Proof) Knows(p *Participant) bool {
	_, known := pr.base.points[p.Shard]
	if !known {
		pr.stale, pr.lacks = true, append(pr.lacks, p.Shard)
	}
	return known
}

// Stale reports whether another base is needed.
func (pr *Proof) Stale() bool { return pr.stale }

// Lacks are the shards that were read and that the base does not have.
func (pr *Proof) Lacks() []string { return pr.lacks }

// Stuck is a shard whose participant has a snapshot that is older than the attempt and does not fit, which no other attempt
// can change; "" for none.
func (pr *Proof) Stuck() string { return pr.stuck }

// Around adds the looks around the Binds of statements on a participant that the base knows: bind adds those. answered
// reports whether the looks were.
func (pr *Proof) Around(p *Participant, span Span, bind func()) (answered func() bool) {
	prep := pr.t.ex.Prepare(pr.t.records(p.Shard).Look(), nil, 0, nil)
	body := lookAt(pr.base.points[p.Shard].snapshot)
	s := &sight{shard: p.Shard, span: span, own: span != Lasting || slices.Contains(pr.own, p)}
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
	if err != nil || len(v) != 4 {
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	l.done, l.snapshot, l.server, l.newer = true, string(v[0]), string(v[1]), string(v[2])
	l.writes = string(v[3]) == "t"
	return nil
}

// Fits reports whether the snapshots fit each other. All looks have to be answered.
func (pr *Proof) Fits() bool {
	if time.Since(pr.began) > snapshotsMax || pr.stale {
		return false
	}
	news := false
	for _, s := range pr.seen {
		at := pr.base.points[s.shard]
		pr.stale = pr.stale || s.after.server != at.server
		if pr.stale || !s.after.done || s.span == SomeBinds && s.before.snapshot != s.after.snapshot {
			return false
		}
		if !reaches(s.after.snapshot, at.snapshot) {
			pr.misfits(s)
			return false
		}
		news = news || s.after.newer != ""
	}
	if !news || len(pr.seen) < 2 {
		pr.t.base.sees(false)
		return true
	}
	pr.t.base.sees(true)
	newer, ok := pr.newer()
	if ok {
		pr.moveBase(newer)
	}
	return ok
}

// misfits notes a shard whose snapshot does not fit.
func (pr *Proof) misfits(s *sight) {
	if !s.own {
		pr.stuck = s.shard
	}
}

// reaches reports whether a snapshot sees all that an earlier one saw. Both are texts of pg_snapshot, xmin:xmax:xip_list, or numbers
// that count what was committed.
func reaches(snapshot, earlier string) bool {
	if snapshot == earlier {
		return true
	}
	seen, err := strconv.ParseUint(snapshot, 10, 64)
	seenThen, errThen := strconv.ParseUint(earlier, 10, 64)
	if err == nil && errThen == nil {
		return seen >= seenThen
	}
	xmax, running, ok := readSnapshot(snapshot)
	xmaxThen, runningThen, okThen := readSnapshot(earlier)
	if !ok || !okThen || xmax < xmaxThen {
		return false
	}
	return !slices.ContainsFunc(running, func(x uint64) bool { return x < xmaxThen && !slices.Contains(runningThen, x) })
}

func readSnapshot(s string) (xmax uint64, running []uint64, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return 0, nil, false
	}
	xmax, err := strconv.ParseUint(parts[1], 10, 64)
	for one := range strings.SplitSeq(parts[2], ",") {
		if one == "" || err != nil {
			continue
		}
		var x uint64
		x, err = strconv.ParseUint(one, 10, 64)
		running = append(running, x)
	}
	return xmax, running, err == nil
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
			pr.t.base.crowded(pr.base.number)
			ok = false
		}
	}
	for id, shards := range newer {
		for i, s := range pr.seen {
			if slices.Contains(shards, s.shard) && !surely[i][id] {
				pr.misfits(s)
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

// moveBase makes the read's snapshots those of its shards in the base, where that leaves the base a cut: nothing that is
// newer wrote on a shard of the base beside. The snapshot of a transaction that has written is none for others.
func (pr *Proof) moveBase(newer map[string][]string) {
	read := map[string]bool{}
	for _, s := range pr.seen {
		if s.after.writes {
			return
		}
		read[s.shard] = true
	}
	for _, shards := range newer {
		for _, shard := range shards {
			if _, known := pr.base.points[shard]; known && !read[shard] {
				if len(newer) > txnrecord.LookMax/4 {
					pr.t.base.crowded(pr.base.number)
				}
				return
			}
		}
	}
	points := maps.Clone(pr.base.points)
	for _, s := range pr.seen {
		points[s.shard] = point{s.after.snapshot, s.after.server}
	}
	pr.t.base.moves(pr.base.number, points)
}

// sees notes that a read fits, or whether something new was seen.
func (b *base) sees(news bool) {
	now := time.Now()
	b.mu.Lock()
	if b.fitted = now; news {
		b.news = now
	}
	b.mu.Unlock()
}

// crowded notes that much is newer than the cut.
func (b *base) crowded(number uint64) {
	b.mu.Lock()
	b.dense = b.dense || b.now.number == number
	b.mu.Unlock()
}

// moves takes the points in place of those of a cut, unless somebody else has moved it meanwhile.
func (b *base) moves(number uint64, points map[string]point) {
	b.mu.Lock()
	if number > 0 && b.now.number == number {
		b.now = cut{points, number + 1}
	}
	b.mu.Unlock()
}

// cut returns the base, and whether both sides of a statement are to be looked at. It waits for one that is made where there is
// none, or fresh asks for one. Errors: as Snapshots; the last one's while it is not tried again.
func (t *Transactions) cut(ctx context.Context, fresh bool) (cut, bool, error) {
	b := &t.base
	for {
		b.mu.Lock()
		has := b.now.number > 0
		if has && !fresh && (b.making != nil || !b.dense) {
			c, both := b.now, time.Since(b.news) < looksFor || time.Since(b.fitted) > looksFor
			b.mu.Unlock()
			return c, both, nil
		}
		if b.making == nil && time.Since(b.failed) < cutAgain {
			b.mu.Unlock()
			return cut{}, true, sqlstate.New(sqlstate.CannotConnectNow, "no snapshots of all shards that fit each other could be had a moment ago")
		}
		if b.making == nil {
			b.making = &making{done: make(chan struct{})}
			go t.makeBase(context.WithoutCancel(ctx), b.making)
		}
		m := b.making
		b.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return cut{}, false, context.Cause(ctx)
		}
		if m.err != nil {
			return cut{}, true, m.err
		}
		fresh = false // that one is
	}
}

// makeBase makes a new cut and lets those go on who wait for it. It is bound by cutMax and not by their times: each of them would
// begin anew what none of them has the time to end.
func (t *Transactions) makeBase(ctx context.Context, m *making) {
	points, err := t.cutNow(ctx, true, nil, time.Now().Add(cutMax))
	b := &t.base
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.err = err; err == nil {
		b.now, b.dense, b.failed = cut{points, b.now.number + 1}, false, time.Time{}
	} else {
		b.failed = time.Now()
	}
	b.making = nil
	close(m.done)
}

// ownCut makes a cut for one read alone, when it is its turn.
func (t *Transactions) ownCut(ctx context.Context, shards []string, until time.Time) (map[string]point, error) {
	select {
	case t.base.own <- struct{}{}:
		defer func() { <-t.base.own }()
		return t.cutNow(ctx, false, shards, until)
	case <-time.After(time.Until(until)):
		return nil, tooLong(nil, len(shards), ownMax)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func tooLong(err error, shards int, most time.Duration) error {
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "no snapshots of the %d shards that fit each other were found in %v", shards, most).
		WithHint("run it again; `cleave doctor` says which shards answer, and what is in doubt")
}

// cutNow takes snapshots that fit each other, of some shards or of all that can be reached. Its conversations are beside
// the pools: those of the read are in them. Errors: as Snapshots; 57P03 if it took too long.
func (t *Transactions) cutNow(ctx context.Context, all bool, shards []string, until time.Time) (map[string]point, error) {
	if all {
		for _, s := range t.ex.Snapshot().Shards() {
			if t.ex.Refusal(s.Name, false) == nil {
				shards = append(shards, s.Name)
			}
		}
	}
	most, dial := ownMax, ownMax
	if all {
		most, dial = cutMax, dialMax
	}
	limit, stop := context.WithDeadline(ctx, until)
	defer stop()
	parts, err := t.aside(limit, shards, dial)
	defer func() {
		for _, p := range parts {
			p.Conn.Release()
		}
	}()
	if err != nil && !all || len(parts) == 0 && len(shards) > 0 {
		return nil, err
	}
	var points map[string]point
	if err = t.Snapshots(limit, parts, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err == nil {
		points, err = t.points(parts)
	}
	if err != nil {
		if ctx.Err() == nil && (limit.Err() != nil || bounded(err)) {
			err = tooLong(err, len(parts), most)
		}
		return nil, err
	}
	return points, nil
}

// points are the snapshots of participants whose transactions have one each.
func (t *Transactions) points(parts []*Participant) (map[string]point, error) {
	points := map[string]point{}
	for _, p := range parts {
		res, err := p.Conn.Exec(t.records(p.Shard).Point())
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

// aside opens conversations beside the pools with shards. The error is the first one's that could not be reached.
func (t *Transactions) aside(ctx context.Context, shards []string, most time.Duration) (parts []*Participant, first error) {
	conns, errs := make([]*executor.Conn, len(shards)), make([]error, len(shards))
	var all sync.WaitGroup
	slots := make(chan struct{}, openAtOnce)
	for i, name := range shards {
		handle, err := t.ex.Shard(name)
		if err != nil {
			errs[i] = err
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			dial, stop := context.WithTimeout(ctx, most)
			defer stop()
			c, err := handle.Connect(dial, housekeeping)
			if err != nil {
				errs[i] = onShard(err, name)
				return
			}
			conns[i] = executor.NewConn(name, c)
			if deadline, ok := ctx.Deadline(); ok && conns[i].SetDeadline(deadline.Add(cancelGrace)) != nil {
				conns[i].Break()
			}
		})
	}
	all.Wait()
	for i, c := range conns {
		if first == nil {
			first = errs[i]
		}
		if c != nil {
			parts = append(parts, &Participant{Shard: c.Shard(), Conn: c})
		}
	}
	return parts, first
}
