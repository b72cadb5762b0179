package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/crashpoint"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Tx is one schema change over several shards: one statement, or all of a
// transaction block. It is used by one goroutine. It ends with Commit or Rollback.
type Tx struct {
	opts Options
	id   string
	base *shardmap.Snapshot // the stored map that the change is made from
	over *shardmap.Snapshot // under with the change
	// under is base, or a newer stored map that says where rows are now: see Follow.
	under *shardmap.Snapshot
	stale error // why the change cannot go on top of the newer map
	// group is that of its conversations once it runs a statement; 0 for what has patience and gives locks back by itself.
	group uint64
	// rows: rows were written on several shards in its transaction.
	rows bool
	// unprepared: see Unprepared.
	unprepared bool
	// waited: every member went by the change before the shards committed it.
	waited bool

	parts  []*part // in the order of opening
	closed bool
	failed bool

	// intent is that of the statement outside of transactions that was run, until the history has it.
	intent *intent

	changes
	saves   []save
	notices []*sqlstate.Error
}

type save struct {
	name string
	was  changes
}

// Begin starts a change made from snap. Nothing is sent to a shard yet.
func Begin(_ context.Context, opts Options, snap *shardmap.Snapshot) (*Tx, error) {
	if opts.Directory == nil || opts.Connect == nil {
		return nil, errors.New("schema: Directory and Connect are needed")
	}
	t := &Tx{opts: opts.withDefaults(), id: uuid.NewString(), base: snap, under: snap, over: snap}
	t.changes = changes{
		state: snap.State().Clone(), touched: map[string]bool{}, keyspaces: map[string]bool{},
		made: map[string]bool{}, marked: map[string]bool{}, sequences: map[string]bool{},
	}
	for _, name := range opts.Saves {
		t.saves = append(t.saves, save{name: name, was: t.changes.clone()})
	}
	for _, shard := range slices.Sorted(maps.Keys(opts.Open)) {
		def, ok := snap.Shard(shard)
		if !ok {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "shard %s is not in the map", shard).WithHint("see: cleave shard list")
		}
		t.parts = append(t.parts, &part{shard: shard, can: def.Can(), conn: opts.Open[shard], adopted: true, lockTimeout: opts.LockTimeout, waits: t.waits})
	}
	return t, nil
}

// ID returns the change's id, under which the map's history has it once it is decided.
func (t *Tx) ID() string { return t.id }

// Snapshot returns the map as this transaction sees it, with its own changes. Its
// versions are unlike any stored one's, so plans made from it are never mistaken
// for others.
func (t *Tx) Snapshot() *shardmap.Snapshot { return t.over }

// Status is 'T' while the transaction can go on, 'E' when it has failed and only
// Rollback or RollbackTo are left, 'I' when it has ended.
func (t *Tx) Status() byte {
	switch {
	case t.closed:
		return 'I'
	case t.failed:
		return 'E'
	}
	return 'T'
}

// Fail marks the transaction as failed: for errors of statements that were run
// on a conversation from Conn.
func (t *Tx) Fail() { t.failed = true }

// Notices returns what Commit has to say besides its result, once.
func (t *Tx) Notices() []*sqlstate.Error {
	n := t.notices
	t.notices = nil
	return n
}

func (t *Tx) usable() error {
	if t.closed {
		return sqlstate.New(sqlstate.NoActiveTransaction, "the schema change has ended already")
	}
	if t.failed {
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	return nil
}

// Conn returns the transaction's conversation with a shard, with the transaction
// open in it, so that other statements can run in the same transaction. The
// caller tells errors of those with Fail and ends nothing itself.
func (t *Tx) Conn(ctx context.Context, shard string) (engine.Conn, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	p, err := t.open(ctx, shard)
	if err != nil {
		return nil, t.fail(err)
	}
	return p.conn, nil
}

// fail marks the transaction as failed and returns the error.
func (t *Tx) fail(err error) error {
	t.failed = true
	return err
}

func (t *Tx) part(shard string) *part {
	for _, p := range t.parts {
		if p.shard == shard {
			return p
		}
	}
	return nil
}

// open starts the transaction on a shard, if that has not been done.
func (t *Tx) open(ctx context.Context, shard string) (*part, error) {
	if p := t.part(shard); p != nil {
		if p.broken {
			return nil, sqlstate.New(sqlstate.CannotConnectNow, "the conversation with shard %s broke", shard).OnShard(shard)
		}
		if p.adopted {
			p.adopted = false
			return p, t.prelude(ctx, p, false)
		}
		return p, nil
	}
	def, ok := t.base.Shard(shard)
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "shard %s is not in the map", shard).WithHint("see: cleave shard list")
	}
	p := &part{shard: shard, can: def.Can(), lockTimeout: t.opts.LockTimeout, waits: t.waits}
	conn, release, err := t.opts.Connect(ctx, shard)
	if err != nil {
		return nil, onShard(err, shard)
	}
	if t.group != 0 && group(conn, t.group) {
		// It is a conversation like any other again when it is given back.
		p.release = func(broken bool) { group(conn, 0); release(broken) }
	} else {
		p.release = release
	}
	p.conn = conn
	t.parts = append(t.parts, p)
	if err := t.step("open", shard); err != nil {
		return nil, err
	}
	return p, t.prelude(ctx, p, true)
}

// groups numbers the schema changes of this process, apart from its transactions over several shards.
var groups atomic.Uint64

// group says which transaction over several shards a conversation takes part in, if its engine looks for rings among them: see
// engine.Grouped. It reports whether that is so.
func group(conn engine.Conn, id uint64) bool {
	switch c := conn.(type) {
	case engine.Grouped:
		c.SetGroup(id)
	case interface{ Group(id uint64) }: // a pool's
		c.Group(id)
	default:
		return false
	}
	return true
}

// prelude begins the transaction and brings the session's settings into it.
func (t *Tx) prelude(ctx context.Context, p *part, begin bool) error {
	if begin {
		text := "BEGIN"
		if t.opts.Begin != "" {
			text = t.opts.Begin
		}
		if _, err := p.run(ctx, text); err != nil {
			return err
		}
		for _, set := range t.opts.Prelude {
			if _, err := p.run(ctx, local(set)); err != nil {
				return err
			}
		}
	}
	if p.can.Locks {
		if _, err := p.run(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", t.opts.LockTimeout.Milliseconds())); err != nil {
			return err
		}
	}
	if begin {
		for _, s := range t.saves {
			if _, err := p.run(ctx, "SAVEPOINT "+ident(s.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// setConfig begins the statement of a prelude that makes a setting which SET cannot make.
const setConfig = "SELECT pg_catalog.set_config('"

// local turns SET, SET SESSION and set_config(..., false) into those of the transaction.
func local(set string) string {
	text := strings.TrimSpace(set)
	if strings.HasPrefix(text, setConfig) {
		return strings.TrimSuffix(text, ", false)") + ", true)"
	}
	word, rest, ok := strings.Cut(text, " ")
	if !ok || !strings.EqualFold(word, "SET") {
		return text
	}
	rest = strings.TrimSpace(rest)
	switch next, after, _ := strings.Cut(rest, " "); strings.ToUpper(next) {
	case "LOCAL", "TRANSACTION":
		return text
	case "SESSION":
		switch what, _, _ := strings.Cut(strings.TrimSpace(after), " "); strings.ToUpper(what) {
		case "CHARACTERISTICS", "AUTHORIZATION":
			return text
		}
		return "SET LOCAL " + after
	}
	return "SET LOCAL " + rest
}

func (t *Tx) step(name, shard string) error {
	crashpoint.Step(t.opts.Actor)
	if t.opts.step == nil {
		return nil
	}
	if err := t.opts.step(name, shard); err != nil {
		return fmt.Errorf("%w: %w", errCrash, err)
	}
	return nil
}

// The advisory lock that serialises schema changes on a PostgreSQL default
// shard: "clea", "ddl" in ASCII.
const lockSQL = "SELECT pg_catalog.pg_advisory_xact_lock(1668048225, 6579308)"

// lock opens the default shard, keeps other schema changes out, and reads the
// map again: nobody changes tables from here on.
func (t *Tx) lock(ctx context.Context) error {
	if t.locked {
		return nil
	}
	name := t.base.State().DefaultShard
	retry := t.part(name) == nil
	for {
		p, err := t.open(ctx, name)
		if err != nil {
			return err
		}
		if err = p.lock(ctx); err == nil {
			// On SQLite this write is what takes the lock.
			err = t.mark(ctx, p)
		}
		if err == nil {
			break
		}
		if sqlstate.CodeOf(err) != sqlstate.LockNotAvailable || !retry || p.release == nil {
			return waiting(err)
		}
		retry = false
		// Perhaps a prepared transaction of a router that died holds the lock.
		if _, err := p.run(ctx, "ROLLBACK"); err != nil {
			return err
		}
		p.done = true
		p.end()
		t.parts = slices.DeleteFunc(t.parts, func(o *part) bool { return o == p })
		if !settled(ctx, RecoverOptions{Directory: t.opts.Directory, Connect: t.opts.Connect, Age: t.opts.PrepareAge}, t.base) {
			return waiting(err)
		}
	}
	now, err := t.opts.Directory.Load(ctx)
	if err != nil {
		return directoryError(err)
	}
	if now.Version() != t.base.Version() {
		if now.State().DefaultShard != name {
			return again("the default shard is another one now")
		}
		t.base, t.under, t.over = now, now, now
		t.state = now.State().Clone()
		for i := range t.saves {
			t.saves[i].was.state = now.State().Clone()
		}
	}
	t.locked = true
	return nil
}

// lock keeps other schema changes out of a shard, where that takes a statement.
func (p *part) lock(ctx context.Context) error {
	if !p.can.Locks {
		return nil
	}
	_, err := p.run(ctx, lockSQL)
	return err
}

// waiting explains why the lock was not to be had.
func waiting(err error) error {
	if sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		return err
	}
	e := sqlstate.As(err)
	e.Detail = "Another schema change is at work, or one was left behind by a router that died."
	e.Hint = "run the statement again; if it stays so: cleave doctor"
	return e
}

// again is the error of a change that has to be made anew from the current map.
func again(why string) error {
	e := sqlstate.New(sqlstate.SerializationFailure, "could not change the schema: %s", why).
		WithHint("nothing was changed: run the transaction again")
	e.Retry = sqlstate.RetryTransaction
	return e
}

func directoryError(err error) error {
	if _, ok := errors.AsType[*sqlstate.Error](err); ok {
		return err
	}
	e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the directory cannot be reached").
		WithHint("nothing was changed: run the statement again when cleave doctor finds the directory")
	e.Retry = sqlstate.RetryTransaction
	return e
}

// overlaySeq makes the versions of private maps distinct.
var overlaySeq atomic.Uint64

// Follow says that a newer map is stored: where rows are is as it says from now on, with the change on top of it. It returns
// Snapshot. What cannot be on top of it is told by Stale.
func (t *Tx) Follow(now *shardmap.Snapshot) *shardmap.Snapshot {
	if now.Version() <= t.under.Version() || t.closed {
		return t.over
	}
	if !slices.Equal(shardSet(t.base), shardSet(now)) || t.base.State().DefaultShard != now.State().DefaultShard {
		t.stale = again("the shards are others now")
		return t.over
	}
	t.under = now
	if err := t.refresh(); err != nil {
		t.stale = again("the shard map was changed meanwhile: " + err.Error())
	}
	return t.over
}

// Stale is the error of a statement that would be routed by a map which is too old, nil if it is not: 40001.
func (t *Tx) Stale() error { return t.stale }

// Rows says that rows were written on several shards in the transaction: it is committed by the same protocol, all or
// nothing, also if nothing of the schema has changed; and each shard notes it for atomic reads. Call it before Commit.
func (t *Tx) Rows() { t.rows = true }

// Unprepared says that the transaction has used what keeps a shard from preparing it (temporary tables): Commit does what it
// does where shards cannot prepare.
func (t *Tx) Unprepared() { t.unprepared = true }

// Changed reports whether Commit has anything to write into the map.
func (t *Tx) Changed() bool { return t.ran }

// Shards are those on which the transaction is open, in the order in which it began on them.
func (t *Tx) Shards() []string {
	var names []string
	for _, p := range t.parts {
		names = append(names, p.shard)
	}
	return names
}

// Ended says that others have ended the transaction on all shards: its conversations are given back.
func (t *Tx) Ended() {
	for _, p := range t.parts {
		p.done = true
	}
	t.finish()
}

// refresh makes the private map from the edited state.
func (t *Tx) refresh() error {
	s := t.state
	if t.under != t.base {
		s = t.after(t.base, t.under, true)
	}
	// Far above every stored version, so that plans made from this map and
	// from stored ones are never taken for each other.
	s.Version = 1<<62 | overlaySeq.Add(1)
	s.SchemaVersion = s.Version
	over, err := shardmap.NewSnapshot(s)
	if err != nil {
		return err
	}
	t.over = over
	return nil
}

// Savepoint sets a savepoint on all shards.
func (t *Tx) Savepoint(ctx context.Context, name string) error {
	if err := t.usable(); err != nil {
		return err
	}
	for _, p := range t.parts {
		if _, err := p.run(ctx, "SAVEPOINT "+ident(name)); err != nil {
			return t.fail(err)
		}
	}
	t.saves = append(t.saves, save{name: name, was: t.changes.clone()})
	return nil
}

func (t *Tx) save(name string) int {
	for i := len(t.saves) - 1; i >= 0; i-- {
		if t.saves[i].name == name {
			return i
		}
	}
	return -1
}

func noSavepoint(name string) error {
	return sqlstate.New(sqlstate.InvalidSavepoint, "savepoint \"%s\" does not exist", name)
}

// RollbackTo goes back to a savepoint on all shards, in the private map as well,
// and makes a failed transaction usable again.
func (t *Tx) RollbackTo(ctx context.Context, name string) error {
	if t.closed {
		return t.usable()
	}
	i := t.save(name)
	if i < 0 {
		t.failed = true
		return noSavepoint(name)
	}
	for _, p := range t.parts {
		if p.broken {
			return t.fail(sqlstate.New(sqlstate.InFailedTransaction, "the conversation with shard %s broke: the transaction can only be rolled back", p.shard).OnShard(p.shard))
		}
		if _, err := p.run(ctx, "ROLLBACK TO SAVEPOINT "+ident(name)); err != nil {
			return t.fail(err)
		}
		p.adopted = p.adopted || p.release == nil // the savepoint may be older than its prelude
	}
	t.saves = t.saves[:i+1]
	t.changes = t.saves[i].was.clone()
	if err := t.refresh(); err != nil {
		return t.fail(err)
	}
	t.failed = false
	return nil
}

// Release forgets a savepoint, and those set after it, on all shards.
func (t *Tx) Release(ctx context.Context, name string) error {
	if err := t.usable(); err != nil {
		return err
	}
	i := t.save(name)
	if i < 0 {
		return t.fail(noSavepoint(name))
	}
	for _, p := range t.parts {
		if _, err := p.run(ctx, "RELEASE SAVEPOINT "+ident(name)); err != nil {
			return t.fail(err)
		}
	}
	t.saves = t.saves[:i]
	return nil
}

// Rollback undoes everything. It never fails: where a shard does not answer, its
// conversation is cut, which undoes its side as well, and what was prepared is
// left to [Recover].
func (t *Tx) Rollback(ctx context.Context) {
	if t.closed {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.LockTimeout+graceMax)
	defer cancel()
	t.rollback(ctx)
}

func (t *Tx) rollback(ctx context.Context) {
	t.intent.abandon(ctx, t.opts.Directory)
	t.intent = nil
	for _, p := range t.parts {
		if p.done {
			continue
		}
		switch {
		case p.prepared:
			t.unprepare(ctx, p)
		case !p.broken:
			_, _ = p.run(ctx, "ROLLBACK") // a failure marks the part as broken
		}
		p.done = true
	}
	t.finish()
}

// finish gives the conversations back.
func (t *Tx) finish() {
	t.closed = true
	for _, p := range t.parts {
		p.end()
	}
}
