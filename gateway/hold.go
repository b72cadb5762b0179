package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// This file is what sessions do while a part of a keyspace moves to another shard
// (docs/design/moving.md). A statement that needs a held key waits for a newer map,
// unless its transaction used the owner before the hold; such transactions hold up the
// acknowledgement of the map (leaseuse.Turn), and are ended if the map says so.

// holdTimeout is the session's bound; 0: it does not wait.
func (b *shardConns) holdTimeout() time.Duration {
	if v, ok := b.gucs.Settings.Get(settings.HoldTimeout); ok {
		if d, ok := limits.Duration(settings.Unquoted(v)); ok {
			return d
		}
	}
	return b.ex.HoldTimeout()
}

// admit is asked before a statement is routed. It returns when the statement may go
// where the map says; it may have waited for a newer one.
func (x *prepared) admit(st *plan.Statement, args *plan.Args) error {
	snap, private := x.snapshot()
	if private {
		// It waits for no move: that may wait for the tables which the schema change has locked.
		if err := x.tx.schema.Stale(); err != nil {
			return err
		}
		return x.snapshotHolds(st, args, snap)
	}
	if err := x.snapshotHolds(st, args, snap); err != nil {
		return err
	}
	if !snap.Holding() {
		return nil
	}
	if err := x.await(st, args, snap); err != nil {
		return err
	}
	// What it has waited for came to its shard after the transaction's snapshot was taken.
	snap, _ = x.snapshot()
	return x.snapshotHolds(st, args, snap)
}

// snapshotHolds refuses a statement of a transaction with one snapshot if it needs
// keys that were given to a shard after the transaction began: the snapshot on that
// shard may be older than their arrival.
func (x *prepared) snapshotHolds(st *plan.Statement, args *plan.Args, snap *shardmap.Snapshot) error {
	if x.tx.first == 0 || x.tx.first == snap.Version() || x.tx.conn == nil && x.tx.schema == nil || !x.tx.oneSnapshot() {
		return nil
	}
	epoch := st.Epoch(snap, args)
	if epoch <= x.tx.first || x.tx.schema != nil && epoch > x.srv.ex.Snapshot().Version() { // the transaction's own
		return nil
	}
	e := sqlstate.New(sqlstate.SerializationFailure, "rows that this statement may need have moved to another shard since the transaction began (map version %d, they moved with version %d)", x.tx.first, epoch).
		WithHint("nothing was committed: run the transaction again")
	e.Keyspace, e.Epoch, e.Retry = st.Keyspace, epoch, sqlstate.RetryTransaction
	return e
}

// passes reports whether the statement goes on although its keys are held, because
// its transaction used their owner before. gone: they are held no more.
func (x *prepared) passes(t *shardmap.Transit) (passes, gone bool, err error) {
	h, ok := x.srv.ex.HoldOf(t)
	if !ok {
		return false, true, nil
	}
	before := x.turn.Before(&h)
	if c := x.pipe.Conn; !before && x.tx.state == txNone && c != nil && c.Shard() == h.Owner && (x.pipe.wrote || x.pipe.dirty) {
		before = x.unit.version < h.Since // the messages before Sync are one transaction
	}
	if !before {
		return false, false, nil
	}
	if h.Transit.Hold == shardmap.HoldAll {
		if x.tx.state == txNone {
			x.interrupts.ending.Store(&h)
		}
		return false, false, endedFor(&h)
	}
	return true, false, nil
}

// waitsFor returns the transit for which the statement has to wait, nil if there is none: one
// that holds its keys, or a cutover that has to write to a file to which its transaction
// would write first. Such a one could wait for the part next, with the file's lock in its hand.
func (x *prepared) waitsFor(st *plan.Statement, args *plan.Args, snap *shardmap.Snapshot) (*shardmap.Transit, error) {
	if t := st.Held(snap, args); t != nil {
		if ok, _, err := x.passes(t); ok || err != nil {
			return nil, err
		}
		return t, nil
	}
	if x.tx.state == txNone || st.ReadOnly || !snap.Holding() {
		return nil, nil
	}
	r, err := st.Route(snap, args)
	if err != nil || r.Several {
		r.Shard = "" // any; an error is told by who routes it
	}
	if h := x.srv.ex.Crowded(r.Shard, x.turn); h != nil {
		return h.Transit, nil
	}
	return nil, nil
}

// await makes the statement wait while a key that it needs is held.
func (x *prepared) await(st *plan.Statement, args *plan.Args, snap *shardmap.Snapshot) error {
	t, err := x.waitsFor(st, args, snap)
	if t == nil {
		return err
	}
	if x.shards.nowait {
		return errWait
	}
	if x.pipe.Conn != nil && x.pipe.Waiting() {
		if _, err := x.converse(executor.Flush); err != nil {
			return err
		}
	}
	if err := x.leased(); err != nil {
		return err
	}
	if c := x.pipe.Conn; c != nil && x.tx.state == txNone && !onSeveral(c) && (x.pipe.wrote || x.pipe.dirty) {
		x.turn.Use(c.Shard(), x.unit.version) // it stays open while the session waits
	}
	schema, began := snap.SchemaVersion(), time.Now()
	ks, _ := snap.Transit(t.ID)
	waiting := x.srv.metrics.HoldBegan(ks)
	x.turn.Pause()
	err = x.awaitRelease(st, args, snap, t, began)
	x.turn.Resume()
	waiting.Ended(time.Since(began))
	x.unit.version = x.srv.ex.Snapshot().Version()
	if err != nil {
		return err
	}
	if now, _ := x.snapshot(); now.SchemaVersion() != schema {
		return &sqlstate.Error{Code: sqlstate.SerializationFailure, Retry: sqlstate.RetryTransaction,
			Message: "the schema changed while the statement waited for a part of keyspace \"" + ks + "\" that is being moved",
			Hint:    "nothing was done: run it again"}
	}
	return x.leased()
}

// awaitRelease waits until no key of the statement is held any more, or the
// transaction may pass.
func (x *prepared) awaitRelease(st *plan.Statement, args *plan.Args, snap *shardmap.Snapshot, t *shardmap.Transit, began time.Time) error {
	ctx, done := x.interrupts.waiting()
	defer done()
	hold := x.shards.holdTimeout()
	limit, timedOut := hold, false
	if own := settings.StatementTimeout(x.gucs.Settings); own > 0 && own < limit {
		limit, timedOut = own, true
	}
	bound, stop := context.WithDeadline(ctx, began.Add(limit))
	defer stop()
	if h, ok := x.srv.ex.HoldOf(t); ok && len(h.Files) > 0 {
		if has := x.writeLocks(); len(has) > 0 {
			x.srv.wg.Go(func() { x.srv.several.Transactions().AwaitsCutover(bound, has, h.Files) })
		}
	}
	for {
		err := x.srv.ex.AwaitNewer(bound, snap.Version())
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return userCancel(ctx.Err())
		case !errors.Is(err, context.DeadlineExceeded):
			return sqlstate.New(sqlstate.AdminShutdown, "the router is shutting down")
		case timedOut:
			return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to statement timeout")
		default:
			ks, _ := snap.Transit(t.ID)
			return heldError(ks, t, hold, x.tx.state != txNone)
		}
		snap = x.srv.ex.Snapshot()
		if t, err = x.waitsFor(st, args, snap); t == nil {
			return err
		}
	}
}

// writeLocks are the SQLite shards whose writer the session's transaction is: others may wait for these, and the
// cutover for them.
func (x *prepared) writeLocks() []string {
	c := x.tx.conn
	if c == nil {
		c = x.pipe.Conn
	}
	if c == nil {
		return nil
	}
	if s, ok := c.Conn.(*several.Conn); ok {
		return s.WriteLocks()
	}
	if has, _ := c.WriteLock(); has {
		return []string{c.Shard()}
	}
	return nil
}

// heldError is the answer to a statement that has waited for too long.
func heldError(ks string, t *shardmap.Transit, waited time.Duration, inTx bool) *sqlstate.Error {
	e := sqlstate.New(sqlstate.SerializationFailure, "%s of keyspace %q is moving from shard %s to shard %s (move %s), and was not released within %s",
		t.Text(), ks, t.From, t.To, t.ID, waited)
	e.Keyspace, e.Range, e.Epoch, e.Retry = ks, t.Text(), t.Epoch, sqlstate.RetrySafe
	what := "nothing was done: run it again"
	if inTx {
		what, e.Retry = "nothing was committed: run the transaction again", sqlstate.RetryTransaction
	}
	return e.WithHint("%s; `cleave moves %s` shows the move, %s is how long statements wait", what, t.ID, settings.HoldTimeout)
}

// endedFor is the answer to a transaction that has to make way for a move.
func endedFor(h *leaseuse.Hold) *sqlstate.Error {
	if h.Table != "" {
		e := sqlstate.New(sqlstate.SerializationFailure, "table %s became another kind of table, or was made again, while a statement used it", h.Table).
			WithHint("nothing was committed: run the statement or its transaction again")
		e.Retry = sqlstate.RetryTransaction
		return e
	}
	e := sqlstate.New(sqlstate.SerializationFailure, "the transaction was rolled back: it used shard %s, from which %s of keyspace %q is moving away (move %s), and did not end in time",
		h.Owner, h.Transit.Text(), h.Keyspace, h.Transit.ID).OnShard(h.Owner).
		WithHint("nothing was committed: run the transaction again; `cleave moves %s` shows the move", h.Transit.ID)
	e.Keyspace, e.Range, e.Epoch, e.Retry = h.Keyspace, h.Transit.Text(), h.Transit.Epoch, sqlstate.RetryTransaction
	return e
}

// unused notes that nothing is open on a shard any more: nobody asks for its end now.
func (x *unitRun) unused() {
	x.turn.Unuse()
	if x.interrupts.ending.Load() != nil {
		x.interrupts.ending.Store(nil)
	}
}

// startsOver reports whether what failed outside of a transaction block is run again, because it failed only to make way for a move: nothing
// of it has reached the client, nothing is committed, and nobody else has asked for its end. It is rolled back first, so that it waits for the
// part as one does that comes now. One whose table becomes another one is not: by the new map it could come before the shards have it.
func (x *unitRun) startsOver(err error) bool {
	if h := x.interrupts.ending.Load(); h == nil || h.Table != "" || x.tx.state != txNone || x.tx.schema != nil || inDoubt(err) || !x.repeatable(yieldsMax) || x.interrupts.calledOff() {
		return false
	}
	if c := x.pipe.Conn; c != nil {
		if !x.pipe.Skipping() && (x.pipe.dirty || x.pipe.Waiting()) { // its implicit transaction is open
			if x.shards.keepsPart(c) {
				return false
			}
			c.Break()
		}
		x.stats.Retried(c.Shard())
	}
	if x.undo() != nil {
		return false
	}
	x.interrupts.forget()
	x.unused()
	x.turn.Begin()
	x.unit.routedBy(x.srv.ex.Snapshot().Version())
	return true
}

// inDoubt reports whether an error leaves open if something was committed.
func inDoubt(err error) bool { return sqlstate.CodeOf(err) == sqlstate.TransactionUnknown }

// giveWay rolls the transaction back if it has been asked for. The client is told at
// its next statement.
func (x *unitRun) giveWay() {
	h := x.interrupts.ending.Load()
	if h == nil || x.tx.state == txNone || x.tx.lost || x.tx.schema != nil {
		return
	}
	if x.pipe.outside() {
		x.pipe.Conn.Break()
		x.pipe.release()
	}
	c := x.tx.leaves()
	x.tx.lost, x.tx.failed, x.tx.ended = true, true, endedFor(h)
	if c != nil {
		if x.pipe.Conn == c && (x.pipe.dirty || x.pipe.Waiting() || x.pipe.Skipping()) || c.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) != nil {
			c.Break()
		}
		x.pipe.Reset()
		if !c.Broken() {
			// Nobody may cancel this: it is short, and it has to be done.
			if _, err := c.Exec("ROLLBACK"); err != nil || c.SetDeadline(time.Time{}) != nil {
				c.Break()
			}
		}
		c.SetSettings(x.gucs.Before)
		c.Release()
	}
	x.pipe.forget()
	x.portals.Ended(nil)
	x.unused()
	if h.Table != "" {
		x.srv.log.Info("a transaction was rolled back because a table of it became another one", "session", x.pid, "table", h.Table)
		return
	}
	x.srv.log.Info("a transaction was rolled back because a part of its keyspace moves",
		"session", x.pid, "move", h.Transit.ID, "keyspace", h.Keyspace, "shard", h.Owner)
}

// insteadOf is the error that the client gets instead of another one: the first
// after its transaction was ended says why.
func (x *unitRun) insteadOf(err error) error {
	if h := x.interrupts.ending.Load(); h != nil && !inDoubt(err) {
		if x.tx.state == txNone || x.tx.schema != nil {
			return endedFor(h)
		}
		x.giveWay()
	}
	if e := x.tx.ended; e != nil {
		x.tx.ended = nil
		return e
	}
	return err
}
