package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/gateway/notify"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/gateway/stats"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// unitRun runs a unit's statements on shards: it reaches the shard of each, sends, relays the answers, ends transactions, and
// says what is known after a loss. It knows nothing of the client's messages.
//
//	admit ─▶ choose ─▶ reach ─▶ (sent on pipe) ─▶ converse ─▶ conversed ─▶ the next one, or endUnit
//	  │                  │                                       │
//	  │ a move holds     ├─ in the transaction: reachInTx        ├─ notOwner, lost, a replica's error: undo, errAgain
//	  ▼                  ├─ in a schema change: reachInSchema    └─ what is known (docs/design/gateway.md)
//	await                ├─ leaves something: reachPinned
//	                     └─ several shards: reachSeveral
type unitRun struct {
	planning
	srv   *Server
	nc    net.Conn
	pid   uint32
	start arrival.Startup
	id    arrival.Identity // who the client is

	r *wire.Reader
	w writer
	// ahead is how many bytes of the client's frames at hand come after the one
	// that is handled; a COPY takes them back to the reader.
	ahead int
	// urgent: an error goes to the client at once.
	urgent bool

	interrupts interrupts
	gucs       *settings.Session
	tx         transaction
	pipe       link
	shards     shardConns
	// stats is what is noted of the statement that runs.
	stats stats.Session
	// turn is the part in the router's lease; see leased.
	turn *leaseuse.Turn
	unit unit

	statements pgbackend.Statements[*statement]
	portals    pgbackend.Portals[*portal]
	listener   notify.Listener
	sequences  sessionSequences
	// held are its WITH HOLD cursors.
	held several.Held
	// progress is what cleave.sessions shows of a statement over several shards.
	progress atomic.Pointer[explain.Progress]

	// resolve sends what was parsed and waits; values makes ids and the values of sequences.
	resolve func() error
	values  func(f *plan.Fill, args *plan.Args) ([][]byte, error)
}

// wire gives the parts what they need of each other.
func (x *unitRun) wire() {
	s := x.srv
	x.w.onParameter, x.w.guard = x.gucs.Note, x.pipe.guardAnswer
	x.w.least = func() string {
		return strings.Trim(x.gucs.Settings.Value("client_min_messages"), "'")
	}
	x.stats = s.sinks.Session(stats.Who{User: x.start.User, Application: x.gucs.ApplicationName}, x.gucs.Parent)
	x.tx = transaction{gucs: x.gucs, turn: x.turn, deferredMax: s.limits.DeferredMax}
	x.tx.opens = func() *txn.Transaction { return s.several.Transaction(host{x}) }
	x.pipe.tx = &x.tx
	b := &x.shards
	b.gucs, b.interrupts, b.stats, b.tx, b.pipe = x.gucs, &x.interrupts, &x.stats, &x.tx, &x.pipe
	x.planning = planning{ex: s.ex, turn: x.turn, id: &x.id, gucs: x.gucs, tx: &x.tx, shards: b, listener: &x.listener}
	x.turn.OnEnd(x.interrupts.askEnd)
	x.interrupts.since.Store(time.Now().UnixNano())
}

// unit is what is answered by one ReadyForQuery: a simple query, or the messages
// up to a Sync. It can be run again as long as nothing irrevocable was done.
type unit struct {
	open    bool
	replay  []byte // its frames of earlier batches
	long    bool   // they were too many to be kept
	mark    mark
	version uint64 // of the map when it began
	// on is the only statement that was sent; several: there is more than one, see runs.
	on      *plan.Statement
	several bool
	// shown are those of which the shards get another text, see host.Planned.
	shown []*plan.Statement
	// effects: something happened that cannot be repeated.
	effects bool
	// executed: messages of the extended protocol have run statements that a later one before the Sync shares its transaction with.
	executed bool
	// snapped: a statement has been judged, outside of a transaction, for which PostgreSQL takes a snapshot.
	snapped bool
	// executes is the EXECUTE that was bound, if nothing else was.
	executes *plan.Statement
	binds    int
	// reuses: a statement of it was prepared before.
	reuses bool
	// bound: the transaction was bound to its shard in this unit.
	bound    bool
	tries    int
	newer    int // how many of the tries were by a newer map
	replaced []replacedStatement
	// asking: a statement has begun whose Execute has not come; asked is when the client was first awaited for it, see late.
	asking bool
	asked  time.Time
}

// routedBy begins it again by another version of the map.
func (u *unit) routedBy(version uint64) { u.version, u.on, u.several = version, nil, false }

type replacedStatement struct {
	name string
	was  *statement
}

// shardError is an error as a shard reported it; its frame goes to the client unchanged.
type shardError struct {
	said  *sqlstate.Error
	frame []byte
}

// Error is the report's text.
func (e *shardError) Error() string { return e.said.Error() }

// Unwrap gives the report, for errors.As.
func (e *shardError) Unwrap() error { return e.said }

// fail sends an error to the client; inside a transaction it fails that. It
// returns an error only if the session, or the unit, has to end with it.
func (x *unitRun) fail(err error) error {
	if isGone(err) || errors.Is(err, errAgain) || errors.Is(err, errEnd) {
		return err
	}
	if x.interrupts.endsHere() {
		return terminated()
	}
	if x.startsOver(err) {
		return errAgain
	}
	err = x.insteadOf(err)
	if x.unit.executes != nil {
		err = ofArgument(err, x.unit.executes)
	}
	err = x.tx.waited(err)
	var sh *shardError
	code := sqlstate.InternalError
	if errors.As(err, &sh) {
		code = sh.said.Code
		if err := x.w.put(sh.frame); err != nil {
			return err
		}
	} else {
		e := *sqlstate.As(userCancel(err))
		e.Severity = ""
		code = e.Code
		x.w.failure(&e)
		x.stats.Refused(&e)
	}
	if code == sqlstate.QueryCanceled {
		x.interrupts.pendingCancel.Store(false) // told: it is not for what the client has sent behind
	}
	x.srv.metrics.Error(string(code))
	if x.tx.state != txNone {
		x.tx.fail()
	}
	return x.w.err
}

// choose finds the shard of a routed statement. readOnly and weak say what
// running it there means for the transaction, see reach.
func (x *prepared) choose(st *plan.Statement, args *plan.Args) (string, error) {
	return x.chosen(st, args, false)
}

// chooseRun is choose for a statement that is run next: it counts for the load of its range.
func (x *prepared) chooseRun(st *plan.Statement, args *plan.Args) (string, error) {
	return x.chosen(st, args, true)
}

func (x *prepared) chosen(st *plan.Statement, args *plan.Args, runs bool) (string, error) {
	if err := x.hidden(st); err != nil {
		return "", err
	}
	if x.goesSeveral(st) {
		return several.Name, nil
	}
	snap, _ := x.snapshot()
	switch st.Kind {
	case plan.OneShard:
		r, err := st.Route(snap, args)
		if err != nil {
			return "", err
		}
		if r.Several {
			return several.Name, nil
		}
		if r.Shard != "" {
			if runs {
				var named bool
				if x.stats.Cell, named = x.srv.ex.Count(snap, &r); named {
					x.srv.ex.Named(st.Keyspace, st.KeyTexts(args))
				}
			}
			return r.Shard, nil
		}
	case plan.AnyShard:
		if x.shards.temps.typeOf(st) != "" {
			return snap.State().DefaultShard, nil
		}
		if st != &anyShard && len(st.Tables) == 0 && args != nil && ownTypes(args.OIDs) && (x.tx.conn == nil || x.tx.loose()) {
			return snap.State().DefaultShard, nil // it has all of them
		}
	default:
		if !st.ReadOnly {
			x.sequences.elsewhere = true
		}
		return snap.State().DefaultShard, nil
	}
	switch {
	case x.tx.conn != nil:
		return x.tx.conn.Shard(), nil
	case x.tx.schema != nil:
		if x.tx.shard != "" {
			return x.tx.shard, nil
		}
		return snap.State().DefaultShard, nil
	case x.tx.state == txNone && x.pipe.Conn != nil && !x.pipe.virtual():
		return x.pipe.Conn.Shard(), nil
	case x.shards.pin != nil:
		return x.shards.pin.Shard(), nil
	case x.tx.state == txOpen && st.Kind == plan.AnyShard && len(st.Tables) == 0 && !useOf(st).weak:
		return snap.State().DefaultShard, nil // the transaction stays there: what the catalogue is asked next is there too
	}
	return x.srv.ex.Any(), nil
}

// countText counts a statement that goes as its text came for the load of its range.
func (x *session) countText(snap *shardmap.Snapshot, st *plan.Statement, r *plan.Route, sql []byte) {
	var named bool
	if x.stats.Cell, named = x.srv.ex.Count(snap, r); named {
		if key := x.srv.ex.TextKey(&x.shaper, st, sql); key != nil {
			x.srv.ex.Named(st.Keyspace, key)
		}
	}
}

// ownTypes reports whether user-defined types are among those that a client gives its parameters.
func ownTypes(oids []uint32) bool {
	return slices.ContainsFunc(oids, func(t uint32) bool { return t >= executor.FirstUserOID })
}

// use is what a statement does to the conversation that it runs in.
type use struct {
	on       *plan.Statement // that is sent; nil: others
	readOnly bool
	// weak: running it does not tie a transaction to the shard, because nothing
	// that the client sees would differ on another one.
	weak bool
	// blind: it takes no snapshot, so that a stricter isolation is none of its business (SHOW, SET).
	blind bool
	// reroutable: it was sent to a shard that another one could stand in for.
	reroutable reroutability
	// replica: a replica could answer it.
	replica bool
	// batched: what follows can be sent together with the BEGIN, see bindTx.
	batched bool
	// several: it names more than one key.
	several bool
	// pin: it leaves something in the shard's session, see pin.go.
	pin  bool
	kept bool   // reachPinned has seen to it
	temp string // the temporary table that it makes
}

// shownMax bounds the statements of unit.shown.
const shownMax = 100

// reroutesMax is how often a unit is run again because shards that others can stand in for failed.
const reroutesMax = 3

// answerMax bounds the wait for a brief answer.
const answerMax = 2 * time.Second

// reach makes pipe.Conn a conversation with the shard: the transaction's own, or
// a borrowed one. A transaction is bound to the first shard that it touches. The
// messages up to a Sync are one transaction in PostgreSQL; here they may go to
// one shard after the other as long as nothing was written before the change of
// shards: then each statement's result is what it would have been (READ
// COMMITTED), and there is nothing to roll back. Otherwise the session goes over to
// a conversation with several shards.
func (x *unitRun) reach(shard string, u use) error {
	if u.on != nil && u.on.Shown && len(x.unit.shown) < shownMax {
		x.unit.shown = append(x.unit.shown, u.on)
	}
	typed := x.shards.pin != nil && u.on != nil && x.shards.temps.typeOf(u.on) != ""
	u.weak = u.weak && !typed // the transaction has to stay where its types are
	err := x.reached(shard, u)
	if err == nil && typed {
		err = x.reachedTemp(u.on)
	}
	return err
}

// reached is reach, but for where types in pg_temp are.
func (x *unitRun) reached(shard string, u use) error {
	if !u.readOnly {
		if err := x.srv.ex.Refusal(shard, true); err != nil {
			return err
		}
	}
	if u.on != nil && u.on.TempCall {
		if err := x.mayCallTemp(); err != nil {
			return err
		}
	}
	if u.pin || x.shards.pin != nil && u.on != nil && u.on.Unlocks && !u.kept {
		return x.reachPinned(shard, u)
	}
	if err := x.leased(); err != nil {
		return err
	}
	if x.pipe.inSeveral() {
		shard = several.Name
	}
	if c := x.pipe.Conn; c != nil && c.Shard() == shard && (!c.OnReplica() || c == x.tx.conn || u.replica && x.shards.mayRead()) && (x.tx.state == txNone || c == x.tx.conn || x.tx.schema != nil) {
		x.used(u)
		return x.shards.localSettings(c)
	}
	if shard == several.Name {
		return x.reachSeveral(u)
	}
	if x.tx.state != txNone {
		return x.reachInTx(shard, u)
	}
	if x.pipe.Conn != nil {
		if !x.pipe.virtual() && (x.pipe.wrote || x.gucs.OneSnapshot() && x.pipe.dirty) {
			return x.reachSeveral(u) // the messages before Sync are one transaction
		}
		if err := x.leave(); err != nil {
			return err
		}
	}
	c, err := x.shards.obtain(shard, u, x.gucs.Settings)
	if err != nil {
		return err
	}
	x.pipe.Conn = c
	x.used(u)
	return nil
}

// runs notes which statement of the unit is about to be sent. Of several, which may be under way at once, it notes none.
func (x *unitRun) runs(st *plan.Statement) {
	u := &x.unit
	if u.several = u.several || st == nil || u.on != nil && u.on != st; u.several {
		st = nil
	}
	u.on = st
	x.turn.On(st)
}

func (x *unitRun) used(u use) {
	x.runs(u.on)
	x.shards.counts(u)
	x.shards.dropped = x.shards.dropped || u.on != nil && (u.on.Tag == "DROP FUNCTION" || u.on.Tag == "DROP TYPE" || u.on.Tag == "DROP DOMAIN")
	if c := x.pipe.Conn; x.tx.schema == nil && !onSeveral(c) {
		x.turn.At(c.ShardName())
	}
	if u.on != nil && u.on.Traces {
		x.pipe.Conn.Soil()
	}
	x.pipe.sending(u.reroutable)
	if x.tx.weak && (!u.weak || x.tx.oneSnapshot() && !u.blind) {
		x.tx.weak = false
		if c := x.tx.conn; c != nil {
			x.tx.uses(c.Shard(), x.unit.version)
		}
	}
	if !u.readOnly {
		c := x.tx.conn
		if c == nil && x.tx.schema != nil {
			c = x.pipe.Conn
		}
		if c != nil && !onSeveral(c) { // which says so itself
			if p := x.tx.open.Find(c.Shard()); p != nil && !p.Wrote {
				p.Wrote = true
				x.turn.Wrote(c.Shard(), x.unit.version)
			}
		}
		x.pipe.wrote = true
		x.pipe.several = x.pipe.several || u.several
		x.shards.writes.Note(x.pipe.Conn)
	}
}

func elsewhere(shard, bound, what string) error {
	e := sqlstate.Refusal("CLV-1018", "%s is on shard %s, but this statement belongs to shard %s", what, bound, shard).
		WithHint("End the transaction first, or keep each transaction to keys of one shard; EXPLAIN (ROUTE) shows where a statement goes.")
	e.Shard = shard
	return e
}

// leave ends the use of pipe.Conn: what was sent is answered, and the
// conversation goes back, unless it is the transaction's.
func (x *unitRun) leave() error {
	c := x.pipe.Conn
	if c == nil {
		return nil
	}
	if x.shards.nowait {
		return errWait
	}
	switch {
	case x.pipe.dirty && !x.pipe.wrote && !x.pipe.Waiting() && !x.pipe.Skipping() && x.pipe.outside():
		// The client has all its answers: what becomes of the shard is no matter.
		_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
		if o, err := x.pipe.Run(executor.Sync, &x.w); err != nil || o.Err != nil || c.SetDeadline(time.Time{}) != nil {
			c.Break()
			x.srv.ex.Shun(c.Shard())
		}
	case x.pipe.dirty || x.pipe.Waiting() || x.pipe.Skipping():
		if _, err := x.converse(executor.Sync); err != nil {
			return err
		}
	}
	x.pipe.release()
	return nil
}

// drain makes the client's answers so far complete. Inside a transaction block a
// Sync changes nothing for the shard; outside it would commit, so that Flush is used.
func (x *unitRun) drain() error {
	if err := x.resolve(); err != nil {
		return err
	}
	if x.pipe.Conn == nil {
		return x.locals()
	}
	if !x.pipe.Waiting() {
		return nil
	}
	_, err := x.converse(executor.Flush)
	return err
}

// changed is drain behind set_config(): a shard says with the answer to a Sync what a parameter is now, which adopt has to know.
func (x *unitRun) changed() error {
	if err := x.resolve(); err != nil {
		return err
	}
	if c := x.pipe.Conn; c == nil || c != x.tx.conn || onSeveral(c) || !x.pipe.Waiting() {
		return x.drain()
	}
	_, err := x.converse(executor.Sync)
	return err
}

// flight is a message on its way to a shard, or its answers on their way back.
type flight struct {
	end        byte // executor.Sync, Flush or None
	reroutable reroutability
}

// converse sends what is pending and relays the answers. An error that the
// shard reported is returned, not relayed; the loss of the shard is an error that
// says what is known of the outcome. errAgain: the unit is to be run again.
func (x *unitRun) converse(end byte) (executor.Outcome, error) {
	if x.shards.nowait {
		return executor.Outcome{}, errWait
	}
	c := x.pipe.Conn
	f := flight{end: end, reroutable: x.pipe.sent()}
	if f.reroutable == brief {
		_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
	}
	x.shards.setRunning(c)
	o, err := x.pipe.Run(end, &x.w)
	if f.reroutable == brief && err == nil && c.SetDeadline(time.Time{}) != nil {
		c.Break()
	}
	return x.concluded(f, o, err)
}

// concluded is conversed after a COPY FROM STDIN, if there is one.
func (x *unitRun) concluded(f flight, o executor.Outcome, err error) (executor.Outcome, error) {
	for err == nil && o.CopyIn {
		o, err = x.copyIn()
	}
	return x.conversed(f, o, err)
}

// conversed judges the answers of a flight; converse and the lane come here.
func (x *unitRun) conversed(f flight, o executor.Outcome, err error) (executor.Outcome, error) {
	c := x.pipe.Conn
	x.shards.setRunning(nil)
	if f.end == executor.Sync && !x.pipe.syncIgnored {
		x.pipe.dirty, x.pipe.several, x.pipe.flights = false, false, 0
	}
	var rejected *statement
	for _, owner := range x.pipe.Rejected() {
		if s, ok := owner.(*statement); ok {
			rejected = s
			x.statements.DropOnly(s.name, s)
		}
	}
	if isGone(err) {
		x.stats.Gone()
		return o, err
	}
	x.stats.Done(&x.pipe.Pipeline, c, x.pipe.virtual() || onSeveral(c), o, err)
	switch {
	case err != nil:
		return o, x.lost(err, o.Err, f.end, f.reroutable)
	case o.Err == nil:
		if o.Ready && x.tx.state != txNone && c == x.tx.conn {
			x.tx.failed = x.tx.failed || o.Status == 'E'
			if o.Status == 'I' {
				c.Break()
				x.loseTx()
				return o, sqlstate.New(sqlstate.InternalError, "shard %s ended the transaction by itself", c.Shard()).OnShard(c.Shard())
			}
		}
		return o, nil
	case o.Err.Severity == "FATAL" || o.Err.Severity == "PANIC":
		c.Break()
		return o, x.lost(&engine.LostError{Shard: c.Shard(), Sent: true, Err: errors.New(o.Err.Message)}, o.Err, f.end, f.reroutable)
	case o.Err.Code == sqlstate.NotOwner:
		return o, x.notOwner(o.Err)
	case onReplica(c) && stale(o.Err.Code):
		if again := x.onPrimary(); again != nil {
			x.stats.Retried(c.Shard())
			return o, again
		}
	case onSeveral(c) && o.Err.Code == sqlstate.CannotConnectNow && !x.pipe.wrote && x.repeatable(1):
		// A shard was lost, and nothing is left of what was read.
		if shard := x.pipe.culprit(); x.undo() == nil {
			x.stats.Retried(shard)
			return o, errAgain
		}
	case onSeveral(c) && o.Err.Code == sqlstate.DeadlockDetected && !x.pipe.wrote && x.repeatable(yieldsMax) && x.interrupts.stopped() == nil:
		// It gave way before anything of it was passed on.
		if x.undo() == nil {
			x.stats.Retried(several.Name)
			return o, errAgain
		}
	case x.unit.reuses && executor.Outlived(o.Err):
		// What it names was dropped since it was prepared.
		x.srv.ex.Outlive()
		if again := x.repeatable(1); x.undo() == nil && again {
			x.stats.Retried(c.Shard())
			return o, errAgain
		}
	case executor.Roleless(o.Err.Code):
		c.Doubt()
	}
	if onSeveral(c) && (o.Err.Code == sqlstate.UndefinedTable && x.shards.temps.named(o.Err.Message) || strings.HasPrefix(o.Err.Message, "function pg_temp.")) {
		return o, sqlstate.Refusal("CLV-0812", "a temporary object in a transaction over several shards is not supported").
			WithHint("Read it before the transaction, or in one whose first statement reads it.")
	}
	if x.shards.forgotten(o.Err) {
		return o, errForgotten()
	}
	said := &shardError{said: o.Err, frame: withoutGuard(o.Err, append([]byte(nil), x.pipe.ErrorFrame()...))}
	if rejected != nil {
		return o, placed(said, rejected.plan.Text, rejected.client())
	}
	return o, said
}

// repeatable reports whether the unit can be run again from its beginning, as
// far as the client and the session are concerned.
func (x *unitRun) repeatable(tries int) bool {
	u := &x.unit
	return u.open && !u.effects && !u.long && u.tries < tries && x.w.rewindable(u.mark) &&
		(x.tx.state == txNone || u.bound || x.tx.loose())
}

// undo takes back what the failed statement left on the shard, where the
// transaction began with it.
func (x *unitRun) undo() error {
	c := x.pipe.Conn
	if c == nil {
		return nil
	}
	if x.pipe.Skipping() {
		if o, err := x.pipe.Run(executor.Sync, &x.w); err != nil || o.Err != nil {
			c.Break()
		}
	}
	if x.pipe.outside() {
		x.pipe.release()
		return nil
	}
	if x.unit.bound && c == x.tx.conn && x.tx.schema == nil {
		x.unbind()
	}
	return nil
}

// lost deals with a shard's connection that broke, and says what is known about
// the outcome.
func (x *unitRun) lost(cause error, said *sqlstate.Error, end byte, reroutable reroutability) error {
	if err := x.leaseLost(cause, end); err != nil {
		return err
	}
	c := x.pipe.Conn
	c.Break()
	stopped := x.interrupts.stopped()
	cancelled := stopped != nil
	sent := true
	if l := engine.Lost(cause); l != nil {
		sent = l.Sent
	}
	inTx := x.tx.state != txNone && !x.pipe.outside()
	tries := 1
	if c.OnReplica() {
		tries = reroutesMax
		x.shards.primary = x.unit.tries > 0
	}
	if reroutable != anchored {
		tries = reroutesMax
		if !cancelled {
			x.srv.ex.Shun(c.Shard())
		}
	}
	again := x.repeatable(tries) && !cancelled && (inTx || !x.pipe.wrote || !sent)
	wrote := x.pipe.wrote
	shard := c.Shard()
	reason := ""
	if said != nil {
		reason = said.Message
	}
	switch {
	case x.pipe.virtual():
		x.pipe.release()
		return sqlstate.Wrap(cause, sqlstate.InternalError, "the virtual schema could not be read")
	case inTx && again:
		x.unbind()
	case inTx:
		x.loseTx()
	default:
		x.pipe.release()
	}
	switch {
	case again:
		x.stats.Retried(shard)
		return errAgain
	case cancelled && (inTx || !wrote || end == executor.Flush):
		// What the shard did is rolled back with its connection.
		return stopped.OnShard(shard).WithDetail("The shard did not stop the statement in time: its connection was closed.")
	case inTx:
		return &sqlstate.Error{
			Code: sqlstate.SerializationFailure, Shard: shard, Err: cause, Detail: reason, Retry: sqlstate.RetryTransaction,
			Message: fmt.Sprintf("the connection to shard %s was lost: the transaction was rolled back", shard),
			Hint:    "nothing was committed: run the transaction again",
		}
	case wrote && end == executor.Flush:
		return &sqlstate.Error{
			Code: sqlstate.SerializationFailure, Shard: shard, Err: cause, Detail: reason, Retry: sqlstate.RetryTransaction,
			Message: fmt.Sprintf("the connection to shard %s was lost before Sync: what was sent was rolled back", shard),
			Hint:    "nothing was committed: run it again",
		}
	}
	e := c.Lost(cause, wrote && sent)
	e.Detail = reason
	return e
}

// timeLeft bounds what the session does for itself when it ends.
func timeLeft() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}
