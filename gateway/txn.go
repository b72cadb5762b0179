package gateway

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// reachInTx makes pipe.Conn the transaction's conversation.
func (x *unitRun) reachInTx(shard string, u use) error {
	if x.pipe.Conn != nil && x.pipe.Conn != x.tx.conn {
		if err := x.leave(); err != nil {
			return err
		}
	}
	if x.tx.lost {
		return inFailed()
	}
	if x.tx.schema != nil {
		return x.reachInSchema(shard, u)
	}
	if c := x.tx.conn; c != nil {
		if c.Shard() == shard {
			x.pipe.Conn = c
			x.used(u)
			return nil
		}
		if !x.tx.weak {
			return x.reachSeveral(u)
		}
		if err := x.drain(); err != nil {
			return err
		}
		x.unbind()
	}
	return x.bindTx(shard, u)
}

// bindTx begins the transaction on a shard, with what it did so far.
func (x *unitRun) bindTx(shard string, u use) error {
	since := x.srv.ex.Snapshot()
	c, err := x.shards.obtain(shard, u, x.gucs.Before)
	if err != nil {
		return err
	}
	batched := u.batched && len(x.tx.log) == 0 && !settings.HasModes(x.tx.begin())
	if !batched {
		if c, err = x.beginOn(c, u); err != nil {
			return err
		}
	}
	c.SetSettings(x.gucs.Settings)
	p := x.tx.enters(c, since)
	x.pipe.Conn = c
	if batched {
		// An error of the BEGIN would make the shard skip the statement too: it
		// never runs outside the transaction.
		x.pipe.dirty = true
		x.pipe.Begin(x.srv.ex.Prepare("BEGIN", nil, 0, nil))
	}
	x.tx.weak = u.weak && (u.blind || !x.tx.oneSnapshot())
	if !x.tx.weak {
		x.tx.uses(c.Shard(), x.unit.version)
	}
	x.runs(u.on)
	if u.on != nil && u.on.Traces {
		c.Soil()
	}
	x.shards.counts(u)
	x.turn.At(c.ShardName())
	x.unit.bound = true
	x.pipe.wrote = !u.readOnly
	x.pipe.sending(u.reroutable)
	if !u.readOnly {
		p.Wrote = true
		x.turn.Wrote(c.Shard(), x.unit.version)
		x.shards.writes.Note(c)
	}
	return nil
}

// beginOn runs BEGIN and what the transaction did so far on c. Where another
// shard would do as well and c is lost, that is used. After an error there is no
// conversation left.
func (x *unitRun) beginOn(c *executor.Conn, u use) (*executor.Conn, error) {
	sql := x.tx.begin()
	if len(x.tx.log) > 0 {
		sql += ";" + strings.Join(x.tx.log, ";")
	}
	for tries := 1; ; tries++ {
		if u.reroutable != anchored {
			_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
		}
		_, err := x.shards.exec(c, sql)
		if err == nil && u.reroutable != anchored {
			err = c.SetDeadline(time.Time{})
		}
		if err == nil {
			return c, nil
		}
		shard, replica := c.Shard(), c.OnReplica()
		c.Break()
		c.Release()
		var se *sqlstate.Error
		if errors.As(err, &se) {
			e := *se
			e.Shard, e.Position = shard, 0
			return nil, &e
		}
		if stopped := x.interrupts.stopped(); stopped != nil {
			return nil, stopped.OnShard(shard)
		}
		switch {
		case tries == reroutesMax || u.reroutable == anchored && !replica:
			return nil, c.Lost(err, false)
		case replica:
			x.shards.primary = tries > 1
		default:
			x.srv.ex.Shun(shard)
		}
		if c, err = x.shards.obtain(shard, u, x.gucs.Before); err != nil {
			return nil, err
		}
	}
}

// unbind rolls the transaction back on its shard and forgets the shard: it can
// be bound again.
func (x *unitRun) unbind() {
	c := x.tx.leaves()
	x.tx.first = 0
	x.unused()
	if x.pipe.Conn == c {
		x.pipe.Reset()
	}
	x.pipe.forget()
	if c == nil {
		return
	}
	x.shards.endOn(c, x.gucs.Before)
}

// loseTx is for a transaction whose conversation broke.
func (x *unitRun) loseTx() {
	x.pipe.yield()
	c := x.tx.leaves()
	x.tx.lost, x.tx.failed = true, true
	if h := x.interrupts.ending.Load(); h != nil {
		x.tx.ended = endedFor(h)
	}
	x.unused()
	x.pipe.Reset()
	x.pipe.forget()
	if x.tx.schema != nil {
		x.tx.schema.Fail()
	}
	if c != nil {
		c.Break()
		c.Release()
	}
}

// finishTx forgets the transaction; committed says which settings stay.
func (x *unitRun) finishTx(committed bool) {
	x.pipe.yield()
	t := x.tx.ends()
	x.unused()
	x.listener.EndTransaction(committed)
	if x.pipe.Conn != nil && !x.pipe.virtual() {
		x.pipe.Reset()
	}
	x.pipe.forget()
	x.portals.Ended(nil)
	x.interrupts.exported.Store(false)
	x.gucs.End(committed)
	if t.conn != nil {
		t.conn.SetSettings(x.gucs.Settings)
		t.conn.Release()
	}
	if t.schema != nil {
		t.open.Release()
		x.shards.keepPin()
	}
}

// abandonTx rolls back whatever is open, when the session or the unit ends.
func (x *unitRun) abandonTx() {
	if x.tx.state == txNone {
		return
	}
	if x.pipe.outside() {
		x.pipe.Conn.Break()
		x.pipe.release()
	}
	if x.tx.schema != nil {
		x.rests()
		ctx, stop := timeLeft()
		x.tx.schema.Rollback(ctx)
		stop()
	} else if c := x.tx.conn; c != nil && !c.Broken() {
		// Nobody waits for it: a shard that does not answer loses the connection.
		_ = c.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) // a Conn that fails here fails below
		if x.pipe.Conn == c && (x.pipe.dirty || x.pipe.Waiting()) {
			c.Break()
		} else if _, err := x.shards.exec(c, "ROLLBACK"); err != nil || c.SetDeadline(time.Time{}) != nil {
			c.Break()
		}
	}
	x.finishTx(false)
}

func inFailed() error {
	return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
}

// control runs transaction control. Answers are CommandComplete and notices.
func (x *commands) control(st *plan.Statement) error {
	x.unit.effects = true
	if x.tx.state != txNone && x.pipe.outside() {
		if err := x.leave(); err != nil {
			return err
		}
	}
	t := st.Tx
	switch t.Op {
	case "begin":
		return x.begin(st)
	case "commit", "rollback":
		return x.finish(st)
	case "savepoint", "release", "rollback to":
		return x.savepoint(st)
	case "set":
		return x.setTransaction(st)
	case "snapshot":
		return x.importSnapshot(st)
	case "constraints":
		return x.setConstraints(st)
	}
	return sqlstate.Refusal("CLV-1012", "%s is not supported", st.Tag).WithHint("Use BEGIN, COMMIT, ROLLBACK and SAVEPOINT.")
}

func (x *commands) begin(st *plan.Statement) error {
	if x.unit.executed {
		if err := x.implicitly(0); err != nil {
			return err
		}
	}
	switch {
	case x.tx.failed && x.tx.state != txNone:
		return inFailed()
	case x.tx.state == txOpen:
		x.w.warning(sqlstate.ActiveTransaction, "there is already a transaction in progress")
		if err := x.beginModes(st); err != nil {
			return err
		}
	case x.tx.state == txImplicit:
		// What ran before it in the message belongs to the block.
		if err := x.beginModes(st); err != nil {
			return err
		}
		x.tx.state = txOpen
	default:
		if err := x.leave(); err != nil {
			return err
		}
		x.tx.begins(txOpen, st.Text)
		x.tx.open.ReadOnly = st.Tx.ReadOnly
	}
	x.w.complete(st.Tag)
	return nil
}

// beginModes makes the characteristics that a BEGIN names those of the transaction that is open already, if they come before its
// first query.
func (x *commands) beginModes(st *plan.Statement) error {
	m := settings.ReadModes(st.Text)
	switch {
	case m == (settings.Modes{}):
		return nil
	case x.tx.bindable() && len(x.tx.log) == 0 && !x.tx.snapped && !settings.HasModes(x.tx.begin()):
		x.tx.open.BeginText, x.tx.open.ReadOnly = st.Text, st.Tx.ReadOnly
		return nil
	case x.tx.bindable():
		return x.tx.remember("SET TRANSACTION " + m.List())
	}
	return x.relayModes("SET TRANSACTION "+m.List(), true)
}

// finishNone is COMMIT or ROLLBACK where there is no transaction block.
func (x *commands) finishNone(st *plan.Statement, commit bool) error {
	if st.Tx.Chain {
		return sqlstate.New(sqlstate.NoActiveTransaction, "%s AND CHAIN can only be used in transaction blocks", strings.ToUpper(st.Tx.Op))
	}
	x.w.warning(sqlstate.NoActiveTransaction, "there is no transaction in progress")
	switch {
	case x.tx.state == txImplicit:
		if err := x.endImplicit(commit && !x.tx.failed); err != nil {
			return err
		}
	case x.pipe.Conn != nil && x.pipe.wrote && !commit:
		// The writes before it in the unit are rolled back: the shard does it when the connection closes.
		if !x.shards.keepsUnit() {
			x.pipe.Conn.Break()
		}
		x.pipe.release()
	default:
		if err := x.leave(); err != nil {
			return err
		}
	}
	x.w.complete(st.Tag)
	return nil
}

// finish runs COMMIT and ROLLBACK.
func (x *commands) finish(st *plan.Statement) error {
	commit := st.Tx.Op == "commit"
	if x.tx.state != txOpen {
		return x.finishNone(st, commit)
	}
	if x.giveWay(); commit && x.tx.ended != nil {
		e := x.tx.ended
		x.finishTx(false)
		return e // COMMIT of what was rolled back behind the client's back is no ROLLBACK
	}
	var undone, kept settings.Modes
	if st.Tx.Chain {
		undone, kept = x.tx.chained(false), x.tx.chained(true)
	}
	committed, err := x.commitTx(commit)
	if err != nil {
		return err
	}
	if st.Tx.Chain {
		m := undone
		if committed {
			m = kept
		}
		m = spelled(m, x.gucs.Settings)
		x.tx.begins(txOpen, strings.TrimSpace("BEGIN "+m.List()))
		x.tx.base, x.tx.open.ReadOnly = m, m.Access == "read only"
	}
	if commit && !committed {
		x.w.complete("ROLLBACK")
	} else {
		x.w.complete(st.Tag)
	}
	return nil
}

// commitTx ends the open transaction. committed is false if it was rolled back,
// because it had failed or because that was asked for. After an error it has
// ended as well.
func (x *unitRun) commitTx(commit bool) (committed bool, err error) {
	commit = commit && !x.tx.failed
	switch {
	case x.tx.schema != nil:
		return commit, x.commitSchema(commit)
	case x.tx.conn == nil:
		x.finishTx(commit)
		return commit, nil
	}
	c := x.tx.conn
	if x.pipe.Conn != c {
		x.pipe.Conn = c
	}
	sql := "ROLLBACK"
	if commit {
		sql = "COMMIT"
	}
	out := capture{max: 1 << 20, par: x.w.onParameter}
	if onSeveral(c) {
		out.par = nil // its shards have the session's settings until the end of the transaction only: finishTx tells what changes
	}
	x.pipe.Query(sql)
	loose := x.tx.loose()
	if loose || !commit {
		// Nothing hangs on the answer: a lost connection has the same effect.
		_ = c.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) // a Conn that fails here fails below
	}
	x.interrupts.setCommitting(c, x.gucs.Settings, x.pipe.Statements())
	o, err := x.pipe.Run(executor.None, &out)
	x.shards.setRunning(nil)
	x.stats.Last, x.stats.Ran = x.srv.ending, 1
	x.stats.Done(&x.pipe.Pipeline, c, onSeveral(c), o, err)
	if err == nil && (loose || !commit) && c.SetDeadline(time.Time{}) != nil {
		c.Break()
	}
	if err != nil {
		return x.endLost(c, commit, loose, err)
	}
	tag := x.w.ended(out.buf)
	committed = o.Err == nil && tag == "COMMIT"
	if o.Status != 'I' {
		c.Break()
	}
	frame := append([]byte(nil), x.pipe.ErrorFrame()...)
	x.finishTx(committed)
	if o.Err == nil {
		return committed, nil
	}
	return false, endRefused(c, commit, o.Err, frame)
}

// endLost is for an end whose conversation broke. loose: nothing was read or written there that a commit concerns.
func (x *unitRun) endLost(c *executor.Conn, commit, loose bool, err error) (committed bool, told error) {
	c.Break()
	switch {
	case !commit:
		x.finishTx(false)
		return false, nil // the shard rolls back what it lost
	case loose:
		x.srv.ex.Shun(c.Shard())
		x.finishTx(true)
		return true, nil
	}
	x.finishTx(false)
	return false, c.Lost(err, true)
}

// endRefused is the client's error of what a shard said to an end.
func endRefused(c *executor.Conn, commit bool, said *sqlstate.Error, frame []byte) error {
	switch {
	case said.Severity == "FATAL" || said.Severity == "PANIC":
		return c.Lost(errors.New(said.Message), commit)
	case said.Code == sqlstate.NotOwner:
		return &sqlstate.Error{Code: sqlstate.SerializationFailure, Shard: c.Shard(), Err: said, Retry: sqlstate.RetryTransaction,
			Message: "shard " + c.Shard() + " no longer owns a key of this transaction", Hint: "nothing was committed: run the transaction again"}
	}
	return &shardError{said: said, frame: frame}
}

// endImplicit ends the implicit transaction of a message.
func (x *unitRun) endImplicit(commit bool) error {
	if x.tx.state != txImplicit {
		return nil
	}
	_, err := x.commitTx(commit)
	return err
}

// savepoint runs SAVEPOINT, RELEASE and ROLLBACK TO.
func (x *commands) savepoint(st *plan.Statement) error {
	t, op := &x.tx, st.Tx.Op
	if t.state != txOpen {
		return sqlstate.New(sqlstate.NoActiveTransaction, "%s can only be used in transaction blocks", map[string]string{"savepoint": "SAVEPOINT", "release": "RELEASE SAVEPOINT", "rollback to": "ROLLBACK TO SAVEPOINT"}[op])
	}
	if err := x.setSavepoint(st); err != nil {
		return err
	}
	x.w.complete(st.Tag)
	return nil
}

// setSavepoint is savepoint without the answer, in any transaction.
func (x *commands) setSavepoint(st *plan.Statement) error {
	t, op := &x.tx, st.Tx.Op
	switch {
	case t.failed && op != "rollback to" || t.lost:
		return inFailed()
	case t.bindable() && len(t.log) >= x.srv.limits.DeferredMax:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has run %d statements without touching a shard", len(t.log))
	case t.schema != nil: // a statement that waits to be parsed may bring it to several shards
		if err := x.drain(); err != nil {
			return err
		}
	}
	at, err := t.open.Saves.Find(st.Tx.Name)
	if op != "savepoint" && err != nil {
		return err
	}
	if err := x.runSavepoint(st); err != nil {
		return err
	}
	if t.deferring() {
		t.log = append(t.log, st.Text)
	}
	if !onSeveral(t.conn) { // which has noted it
		t.open.NoteSavepoint(op, st.Tx.Name, at)
	}
	return x.noteSavepoint(op, at)
}

// runSavepoint runs it on the shards, if the transaction is on some.
func (x *commands) runSavepoint(st *plan.Statement) error {
	switch {
	case x.tx.schema != nil && !onSeveral(x.tx.conn):
		return x.schemaSavepoint(st)
	case x.tx.conn == nil:
		return nil
	}
	x.pipe.Conn = x.tx.conn
	x.pipe.Query(st.Text)
	out := capture{max: 1 << 16, par: x.w.onParameter}
	x.shards.setRunning(x.tx.conn)
	o, err := x.pipe.Run(executor.None, &out)
	x.shards.setRunning(nil)
	if err != nil {
		return x.lost(err, nil, executor.None, anchored)
	}
	if o.Err != nil {
		return &shardError{said: o.Err, frame: append([]byte(nil), x.pipe.ErrorFrame()...)}
	}
	x.w.ended(out.buf)
	return nil
}

// noteSavepoint is what it does to the session's settings and portals.
func (x *commands) noteSavepoint(op string, at int) error {
	t := &x.tx
	switch op {
	case "savepoint":
		t.saved = append(t.saved, x.gucs.Save())
		if len(t.saved) > x.srv.limits.DeferredMax*10 {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has %d savepoints", len(t.saved))
		}
	case "release":
		t.saved = slices.Delete(t.saved, at, len(t.saved))
		x.portals.Released(at)
	case "rollback to":
		x.gucs.RollBack(t.saved[at])
		t.saved = slices.Delete(t.saved, at+1, len(t.saved))
		x.portals.RolledBack(at)
		t.failed = false
		if t.conn != nil {
			t.conn.SetSettings(x.gucs.OnShards())
		}
	}
	return nil
}

// ended passes the notices of an answer on that is not passed on itself, and returns its tag.
func (w *writer) ended(answer []byte) (tag string) {
	frames(answer, func(typ byte, body []byte) {
		switch typ {
		case wire.CommandComplete:
			tag, _, _ = wire.CutString(body)
		case wire.NoticeResponse:
			w.buf = append(wire.AppendInt32(append(w.buf, typ), int32(len(body)+4)), body...)
		}
	})
	return tag
}

// setConstraints runs SET CONSTRAINTS.
func (x *commands) setConstraints(st *plan.Statement) error {
	t := &x.tx
	switch {
	case t.state == txNone:
		x.w.warning(sqlstate.NoActiveTransaction, "SET CONSTRAINTS can only be used in transaction blocks")
		x.w.complete(st.Tag)
		return nil
	case t.failed:
		return inFailed()
	case t.schema != nil:
		return sqlstate.Refusal("CLV-1021", "SET CONSTRAINTS is not supported after a schema change").
			WithHint("Commit the schema change first.")
	case len(t.open.Modes) >= x.srv.limits.DeferredMax:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has %d SET TRANSACTION and SET CONSTRAINTS", len(t.open.Modes))
	}
	if t.conn == nil && st.Tx.Name == "" {
		t.log, t.open.Modes = append(t.log, st.Text), append(t.open.Modes, st.Text)
		x.w.complete(st.Tag)
		return nil
	}
	// A shard says whether there are such constraints: the default shard, which has all tables.
	if st.Tx.Name != "" && !onSeveral(t.conn) && x.constraintsElsewhere() {
		if err := x.reachSeveral(use{readOnly: true}); err != nil {
			return err
		}
	} else if err := x.reachForSet(); err != nil {
		return err
	}
	x.pipe.Query(st.Text)
	if _, err := x.converse(executor.None); err != nil {
		return err
	}
	if t.weak {
		t.log = append(t.log, st.Text)
	}
	if !onSeveral(t.conn) {
		t.open.Modes = append(t.open.Modes, st.Text)
	}
	return nil
}

// constraintsElsewhere reports whether constraints of unsharded tables are not to be found where the transaction is.
func (x *commands) constraintsElsewhere() bool {
	snap := x.srv.ex.Snapshot()
	name := snap.State().DefaultShard
	sh, ok := snap.Shard(name)
	return ok && sh.Can().Catalogue && len(snap.Shards()) > 1 && !txn.Single(x.gucs.Settings) && (x.tx.conn == nil || x.tx.weak || x.tx.conn.Shard() != name)
}

// Messages of the extended protocol up to a Sync are one transaction. A shard knows of that by itself. What the router carries out is
// taken back with it as well, where an error comes behind: SET, RESET, DISCARD TEMP, set_config(), SET TRANSACTION and LISTEN.

// undoable reports whether a statement of the router's own ends with its transaction, if that is rolled back.
func undoable(st *plan.Statement) bool {
	return st.Kind == plan.ListenKind || st.Kind == plan.TxKind && st.Tx.Op == "set" || st.Kind == plan.SetKind && st.Set.Op != "show" && (st.Set.Op != "discard" || st.Set.What == "temp")
}

// implicitly makes the messages up to the next Sync an implicit transaction, unless the statement at hand is the only one among them.
// executes says how many Execute messages of it are still to come.
func (x *commands) implicitly(executes int) error {
	if x.tx.state != txNone || x.message != nil || !x.unit.executed && x.lastOfUnit(executes) {
		return nil
	}
	return x.inTransaction()
}

// inTransaction makes the messages up to the next Sync an implicit transaction, if there is none.
func (x *unitRun) inTransaction() error {
	if x.tx.state != txNone {
		return nil
	}
	if err := x.joinUnit(); err != nil || x.tx.state != txNone {
		return err
	}
	x.tx.begins(txImplicit, "BEGIN")
	x.tx.snapped = x.unit.snapped
	return nil
}

// lastOfUnit reports whether the client's messages up to Sync are known, and begin no other statement.
func (x *commands) lastOfUnit(executes int) bool {
	for b := x.coming; len(b) > 0; {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return false
		}
		switch b = rest; f.Type() {
		case wire.Sync:
			return true
		case wire.Execute:
			if executes--; executes < 0 {
				return false
			}
		case wire.Describe, wire.Close:
		default:
			return false
		}
	}
	return false
}

// joinUnit leaves the conversation of the messages since the last Sync. If they wrote, or share a snapshot, their transaction becomes an
// implicit one of the session.
func (x *unitRun) joinUnit() error {
	if x.shards.nowait {
		return errWait
	}
	c := x.pipe.Conn
	if c == nil || x.pipe.virtual() || !x.pipe.wrote && !(x.gucs.OneSnapshot() && x.pipe.dirty) {
		return x.leave()
	}
	if err := x.drain(); err != nil {
		return err
	}
	if x.pipe.Conn != c { // a statement that waited to be parsed has brought it elsewhere
		return x.joinUnit()
	}
	wrote, since := x.pipe.wrote, x.srv.ex.Snapshot()
	if _, err := x.shards.exec(c, "BEGIN"); err != nil {
		c.Break()
		x.pipe.release()
		return x.shards.shardSaid(c, err)
	}
	if sev, ok := c.Conn.(*several.Conn); ok {
		x.tx.beginsWith(sev.Transaction, txImplicit, "BEGIN")
	} else {
		x.tx.begins(txImplicit, "BEGIN")
	}
	x.tx.conn, x.tx.weak, x.tx.snapped = c, false, true
	x.pipe.dirty = false
	if !onSeveral(c) { // which says so itself
		x.tx.enters(c, since).Wrote = wrote
		x.tx.uses(c.Shard(), x.unit.version)
	}
	return nil
}
