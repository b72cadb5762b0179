package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// This file is how a session goes over to a conversation with several shards
// (docs/design/several.md). To the rest of the session that is a shard with the
// name several.Name.

// onSeveral reports whether c is a conversation with several shards.
func onSeveral(c *executor.Conn) bool { return c != nil && c.Shard() == several.Name }

// host is the session as package several sees it.
type host struct{ x *unitRun }

// Snapshot is the map for the next statement.
func (h host) Snapshot() *shardmap.Snapshot {
	if tx := h.x.tx.schema; tx != nil {
		return tx.Snapshot()
	}
	return h.x.srv.ex.Snapshot()
}

// Settings are the session's.
func (h host) Settings() *executor.Settings { return h.x.gucs.OnShards() }

// Timeout is the session's statement_timeout, of which earlier tries have used a part.
func (h host) Timeout() time.Duration {
	d := settings.StatementTimeout(h.x.gucs.Settings)
	if d > 0 && h.x.unit.tries > 0 {
		d = max(d-time.Since(h.x.stats.Began), time.Millisecond)
	}
	return d
}

// yieldsMax bounds how often a read is run again because it gave way to a schema change.
const yieldsMax = 100

// Repeats reports whether the unit can be run again.
func (h host) Repeats() bool { return !h.x.pipe.wrote && h.x.repeatable(yieldsMax) }

// Holds refuses a commit that the lease does not cover.
func (h host) Holds() error {
	if h.x.turn.Holds() {
		return nil
	}
	e := h.x.srv.ex.NotServing()
	e.Retry = sqlstate.RetryTransaction
	return e
}

// Values makes ids and the values of sequences.
func (h host) Values(list []plan.FillValue) ([][]byte, error) {
	return h.x.values(&plan.Fill{Values: list}, nil)
}

// Reader borrows a conversation with a replica, where the session's read policy wants one.
func (h host) Reader(ctx context.Context, shard string, s *executor.Settings) (*executor.Conn, error) {
	x := h.x
	if !x.shards.mayRead() {
		return nil, nil
	}
	r := x.shards.rule()
	return x.srv.ex.AcquireRead(ctx, shard, s, r.Policy, r.LagMax, &x.shards.writes)
}

// Spreads reports whether reads outside of transactions may be on replicas.
func (h host) Spreads() bool {
	return h.x.shards.mayRead() && slices.ContainsFunc(h.Snapshot().Shards(), func(s shardmap.Shard) bool { return len(s.Replicas) > 0 })
}

// Wrote notes that the session writes on a shard.
func (h host) Wrote(c *executor.Conn) {
	h.x.shards.writes.Note(c)
	h.x.turn.Wrote(c.Shard(), h.x.unit.version)
}

// Joined notes that the transaction, or the unit, is open on a shard.
func (h host) Joined(shard string) { h.x.tx.uses(shard, h.x.unit.version) }

// Kept is the conversation that the session keeps with the shard.
func (h host) Kept(shard string) *executor.Conn {
	if c := h.x.shards.pin; c != nil && c.Shard() == shard && !c.Broken() {
		return c
	}
	return nil
}

// Counter is the session's, of the default shard's own sequences.
func (h host) Counter() *executor.Counter { return h.x.shards.counter }

// Holder is the session's.
func (h host) Holder() *executor.Holder { return &h.x.shards.holder }

// Planned is the statement of a text that the session has made of its client's.
func (h host) Planned(text string) *plan.Statement {
	for _, st := range h.x.unit.shown {
		if st.Text == text {
			return st
		}
	}
	return nil
}

// Held are the session's WITH HOLD cursors.
func (h host) Held() *several.Held { return &h.x.held }

// onHeld reports whether a statement is about WITH HOLD cursors, which are not a shard's.
func (x *prepared) onHeld(st *plan.Statement) bool {
	k := st.Cursor
	return k != nil && (k.Hold || x.held.Has(k.Name) || k.Op == "close" && k.Name == "" && x.held.Len() > 0)
}

// reachSeveral makes pipe.Conn a conversation with several shards: the
// transaction's, or one for the messages up to Sync. A transaction that is bound
// to one shard takes its conversation along.
func (x *unitRun) reachSeveral(u use) error {
	if x.shards.nowait {
		return errWait
	}
	if x.tx.state == txNone {
		return x.unitSeveral(u)
	}
	if x.pipe.Conn != nil && x.pipe.Conn != x.tx.conn {
		if err := x.leave(); err != nil {
			return err
		}
	}
	switch {
	case x.tx.lost:
		return inFailed()
	case onSeveral(x.tx.conn):
		x.pipe.Conn = x.tx.conn
		x.used(u)
		return nil
	}
	if x.tx.schema != nil {
		return x.severalInSchema(u)
	}
	if n := x.tx.open.Saves.Len(); n > 0 && len(x.tx.open.ModesAt(n-1)) < len(x.tx.open.Modes) {
		return sqlstate.Refusal("CLV-1019", "SET TRANSACTION or SET CONSTRAINTS after a savepoint is not supported in a transaction over several shards: ROLLBACK TO SAVEPOINT would undo it").
			WithHint("Give the options with BEGIN.")
	}
	was := x.tx.conn
	if was != nil {
		if err := x.drain(); err != nil {
			return err
		}
		if onSeveral(x.tx.conn) { // a statement that waited to be parsed has brought it there
			x.pipe.Conn = x.tx.conn
			x.used(u)
			return nil
		}
		if x.tx.weak {
			x.unbind()
			was = nil
		} else {
			if x.pipe.dirty {
				if _, err := x.converse(executor.Sync); err != nil {
					return err
				}
			}
			x.pipe.Reset()
			x.pipe.dirty = false
			was = x.tx.conn
		}
	}
	c := x.spread(x.tx.open, x.gucs.Keep, was)
	x.tx.conn, x.tx.weak = c, false
	x.unit.bound = was == nil
	x.pipe.wrote = x.pipe.wrote || !u.readOnly
	x.pipe.sending(u.reroutable)
	return nil
}

// snapshots reports whether a conversation is with one shard that takes a snapshot before the first statement is run.
func (s *Server) snapshots(c *executor.Conn) bool {
	sh, ok := s.ex.Snapshot().Shard(c.Shard())
	return ok && sh.Can().Snapshots
}

// unitSeveral is reachSeveral outside of a transaction block. What was written
// before in the same unit is part of it: the shard's conversation, which has an
// implicit transaction open, is taken along in a block.
func (x *unitRun) unitSeveral(u use) error {
	var tx *txn.Transaction
	var was *executor.Conn
	// Of what was parsed or asked there, but not run, some shards have no snapshot.
	unread := func(c *executor.Conn) bool { return !x.unit.executed && !x.srv.snapshots(c) }
	switch c := x.pipe.Conn; {
	case c == nil:
	case onSeveral(c):
		x.used(u)
		return nil
	case x.pipe.virtual() || !x.pipe.wrote && (!(x.gucs.OneSnapshot() && x.pipe.dirty) || unread(c)):
		if err := x.leave(); err != nil {
			return err
		}
	default:
		if !x.srv.snapshots(c) {
			return elsewhere(several.Name, c.Shard(), "the messages before Sync are one transaction, which")
		}
		if err := x.drain(); err != nil {
			return err
		}
		if x.pipe.Conn != c { // a statement that waited to be parsed has brought it elsewhere
			return x.unitSeveral(u)
		}
		if _, err := x.shards.exec(c, "BEGIN"); err != nil {
			c.Break()
			x.pipe.release()
			return x.shards.shardSaid(c, err)
		}
		x.tx.uses(c.Shard(), x.unit.version)
		wrote := x.pipe.wrote
		tx, was = x.srv.several.Transaction(host{x}), c
		tx.BegunOn(c, nil, nil).Wrote = wrote
		x.pipe.Reset()
		x.pipe.dirty, x.pipe.wrote = false, wrote
	}
	x.spread(tx, x.gucs.Settings, was)
	x.used(u)
	return nil
}

// spread makes pipe.Conn a conversation with several shards that runs the statements of tx, those of messages up to Sync if
// it is nil, and gives it the portals of was. keep are the settings that COMMIT leaves so far.
func (x *unitRun) spread(tx *txn.Transaction, keep *executor.Settings, was *executor.Conn) *executor.Conn {
	if tx != nil {
		tx.Spread(keep)
	}
	sev := several.New(x.srv.several, host{x}, tx)
	x.progress.Store(sev.Progress())
	c := executor.NewConn(several.Name, sev)
	x.shards.at.Store(c.ShardName())
	for _, p := range x.portals.All() {
		if p.conn != nil && (p.conn == was || x.tx.schema != nil) { // else the router answers it
			p.conn = c
		}
	}
	c.SetSettings(x.gucs.OnShards())
	x.pipe.Conn = c
	return c
}

// goesSeveral reports whether a statement is the business of a conversation with
// several shards: by itself, or because the transaction has come to one.
func (x *prepared) goesSeveral(st *plan.Statement) bool {
	if st.Kind == plan.Several || onSeveral(x.tx.conn) || x.onHeld(st) {
		return true
	}
	if x.tx.state == txOpen && (x.tx.conn == nil || x.tx.weak) && x.tx.schema == nil && txn.Insists(x.gucs.Settings) && x.tx.oneSnapshot() && !x.tx.serializable() {
		// All shards' snapshots are taken with its first statement.
		return st.Kind == plan.OneShard || st.Kind == plan.DefaultShard || st.Kind == plan.AnyShard
	}
	return x.pipe.inSeveral()
}

// onReplica reports whether a conversation, or one of those with several shards, is with a replica.
func onReplica(c *executor.Conn) bool {
	sev, ok := c.Conn.(*several.Conn)
	return c.OnReplica() || ok && sev.OnReplicas()
}

// validatorOf stands for a statement over several shards where one has to describe
// it: every shard has its tables, but for those of the default shard alone.
func validatorOf(st *plan.Statement) *plan.Statement {
	if slices.ContainsFunc(st.Tables, func(t *shardmap.Table) bool { return t.Kind == shardmap.Whole }) {
		return &defaultShard
	}
	return &anyShard
}

// exportSnapshot is pg_export_snapshot(): the name of what the block sees on all shards.
func exportSnapshot(x *unitRun) ([]byte, error) {
	switch {
	case x.tx.state != txOpen:
		return nil, outsideOfBlock("pg_export_snapshot()")
	case len(x.tx.saved) > 0:
		return nil, sqlstate.New(sqlstate.ActiveTransaction, "cannot export a snapshot from a subtransaction")
	}
	if err := x.drain(); err != nil {
		return nil, err
	}
	if err := x.reach(several.Name, use{readOnly: true}); err != nil {
		return nil, err
	}
	x.shards.setRunning(x.pipe.Conn)
	defer x.shards.setRunning(nil)
	name, err := x.pipe.Conn.Conn.(*several.Conn).Export()
	x.interrupts.exported.Store(err == nil)
	return []byte(name), err
}

// importSnapshot runs SET TRANSACTION SNAPSHOT, with the checks of PostgreSQL's ImportSnapshot (snapmgr.c) in their order.
func (x *commands) importSnapshot(st *plan.Statement) error {
	t := &x.tx
	isolation := settings.DefaultModes(x.gucs.Settings).Isolation
	if t.state == txNone {
		x.w.warning(sqlstate.NoActiveTransaction, "SET TRANSACTION can only be used in transaction blocks")
	} else {
		isolation = t.modesNow(t.open.Modes).Isolation
	}
	switch {
	case t.failed:
		return inFailed()
	case t.snapped || len(t.saved) > 0 || t.schema != nil:
		return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION SNAPSHOT must be called before any query")
	case isolation != "repeatable read" && isolation != "serializable":
		return sqlstate.New(sqlstate.FeatureNotSupported, "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ")
	case t.state == txNone:
		return outsideOfBlock("SET TRANSACTION SNAPSHOT")
	}
	if err := x.mapOf(st.Tx.Name); err != nil {
		return err
	}
	if err := x.reach(several.Name, use{readOnly: true}); err != nil {
		return err
	}
	x.tx.snapped = true
	x.pipe.Query(st.Text)
	_, err := x.converse(executor.None)
	return err
}

// mapWait bounds the wait for the map by which a snapshot was exported, which another router has.
const mapWait = 2 * time.Second

// mapOf waits for the map of a snapshot's name.
func (x *commands) mapOf(name string) error {
	ctx, done := x.interrupts.waiting()
	defer done()
	limit, stop := context.WithTimeout(ctx, mapWait)
	defer stop()
	e, err := x.srv.several.Transactions().Exported(limit, name)
	if err != nil || e.Version <= x.srv.ex.Snapshot().Version() {
		return nil // the import says what is wrong with it
	}
	x.turn.Pause()
	_ = x.srv.ex.AwaitVersion(limit, e.Version) // without it the import says which map there is
	x.turn.Resume()
	if x.tx.conn == nil {
		x.unit.routedBy(x.srv.ex.Snapshot().Version())
	}
	if ctx.Err() != nil {
		return userCancel(ctx.Err())
	}
	return nil
}

func outsideOfBlock(what string) error {
	return sqlstate.Refusal("CLV-1034", "%s outside of a transaction block is not supported: the snapshot would end with the statement", what).
		WithHint("Run BEGIN ISOLATION LEVEL REPEATABLE READ before it.")
}
