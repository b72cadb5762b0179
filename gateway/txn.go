package gateway

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

type txState uint8

const (
	txNone txState = iota
	// txImplicit: several statements of one message, or a schema change and
	// what follows it before Sync; ends with the unit.
	txImplicit
	// txOpen: between BEGIN and COMMIT.
	txOpen
)

// transaction is the session's transaction. See docs/design/gateway.md for its states.
type transaction struct {
	state  txState
	failed bool
	// temporary: a temporary table was made or changed in it.
	temporary bool
	// begin is the text that begins it on a shard.
	begin string
	// base are the characteristics that it began with, before its statements named others: an error takes it back to them.
	base modes
	// log is what it did before it was bound: SAVEPOINT, SET, ...; run on the
	// shard after begin. It goes on while the binding is weak.
	log []string
	// modes are the SET TRANSACTION statements.
	modes []string
	// conn is the shard conversation that it is bound to; nil while it is not.
	conn *executor.Conn
	// since is the map by which it began there.
	since *shardmap.Snapshot
	// snapped: a statement has been judged in it, for which PostgreSQL takes a snapshot.
	snapped bool
	// apart: its shard does not know of one of them.
	apart bool
	// readOnly: it was begun READ ONLY.
	readOnly bool
	// weak: conn ran only what does not tie it to the shard.
	weak bool
	// lost: conn broke; nothing but ROLLBACK is left.
	lost bool
	// schema is the schema change that it has become part of, shard the one
	// that other statements of it run on.
	schema *schema.Tx
	shard  string
	// bound are the conversations that it had before it became that.
	bound []*executor.Conn
	// opened are the settings that the schema change's own conversations begin with.
	opened *executor.Settings
	// undone: a ROLLBACK TO may have taken settings back on some of them.
	undone bool
	// before are the settings at BEGIN, keep those that COMMIT leaves (all but
	// SET LOCAL's).
	before, keep *executor.Settings
	// told are the ParameterStatus values at BEGIN, stay those of the settings that COMMIT leaves, where they are others.
	told  map[string]string
	stay  map[string]string
	saves pgbackend.Savepoints[savepoint]
	// ran counts the statements on a shard that may have written.
	ran int
	// first is the version of the map when it was first tied to a shard, 0 before.
	first uint64
	// term is that of the lease then.
	term uint64
	// ended is why the router has ended it, until the client has been told.
	ended *sqlstate.Error
}

type savepoint struct {
	settings, keep *executor.Settings
	told           map[string]string // the ParameterStatus values at the time
	stay           map[string]string // transaction.stay at the time
	ran            int               // transaction.ran at the time, as modes and readOnly are
	modes          int
	readOnly       bool
}

func (x *session) beginTx(state txState, text string) {
	x.tx = transaction{state: state, begin: text, base: defaultModes(x.settings), before: x.settings, keep: x.settings, told: maps.Clone(x.reported), weak: true}
}

// strictIsolation reports whether the settings ask for more than READ COMMITTED.
func (x *session) strictIsolation() bool {
	v, _ := x.settings.Get("default_transaction_isolation")
	v = strings.ToLower(v)
	return strings.Contains(v, "repeatable") || strings.Contains(v, "serializable")
}

// strict reports whether the transaction has one snapshot for all statements.
func (x *session) strict() bool {
	if x.strictIsolation() && !strings.Contains(strings.ToUpper(x.tx.begin), "ISOLATION") {
		return true
	}
	for _, t := range append([]string{x.tx.begin}, x.tx.log...) {
		t = strings.ToUpper(t)
		if strings.Contains(t, "REPEATABLE") || strings.Contains(t, "SERIALIZABLE") {
			return true
		}
	}
	return false
}

// reachInTx makes pipe.Conn the transaction's conversation.
func (x *session) reachInTx(shard string, u use) error {
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
func (x *session) bindTx(shard string, u use) error {
	x.tx.since = x.srv.ex.Snapshot()
	c, err := x.obtain(shard, u, x.tx.before)
	if err != nil {
		return err
	}
	batched := u.batched && len(x.tx.log) == 0 && !hasModes(x.tx.begin)
	if !batched {
		if c, err = x.beginOn(c, u); err != nil {
			return err
		}
	}
	c.SetSettings(x.settings)
	x.tx.conn, x.pipe.Conn = c, c
	if batched {
		// An error of the BEGIN would make the shard skip the statement too: it
		// never runs outside the transaction.
		x.dirty = true
		x.pipe.Begin(x.srv.ex.Prepare("BEGIN", nil, 0, nil))
	}
	x.tx.weak = u.weak && (u.blind || !x.strict())
	if !x.tx.weak {
		x.uses(c.Shard())
	}
	x.runs(u.on)
	if u.on != nil && u.on.Traces {
		c.Soil()
	}
	x.counts(u)
	x.turn.At(c.ShardName())
	x.unit.bound = true
	x.wrote = !u.readOnly
	x.sending(u.roam)
	if !u.readOnly {
		x.tx.ran++
		x.turn.Wrote(c.Shard(), x.unit.version)
		x.writes.Note(c)
	}
	return nil
}

// beginOn runs BEGIN and what the transaction did so far on c. Where another
// shard would do as well and c is lost, that is used. After an error there is no
// conversation left.
func (x *session) beginOn(c *executor.Conn, u use) (*executor.Conn, error) {
	sql := x.tx.begin
	if len(x.tx.log) > 0 {
		sql += ";" + strings.Join(x.tx.log, ";")
	}
	for tries := 1; ; tries++ {
		if u.roam != anchored {
			_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
		}
		_, err := x.exec(c, sql)
		if err == nil && u.roam != anchored {
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
		case tries == roamMax || u.roam == anchored && !replica:
			return nil, c.Lost(err, false)
		case replica:
			x.unit.primary = tries > 1
		default:
			x.srv.ex.Shun(shard)
		}
		if c, err = x.obtain(shard, u, x.tx.before); err != nil {
			return nil, err
		}
	}
}

// unbind rolls the transaction back on its shard and forgets the shard: it can
// be bound again.
func (x *session) unbind() {
	c := x.tx.conn
	x.tx.conn, x.tx.first = nil, 0
	x.unused()
	if x.pipe.Conn == c {
		x.pipe.Reset()
	}
	x.dirty, x.wrote, x.sends = false, false, 0
	if c == nil {
		return
	}
	x.endOn(c, x.tx.before)
}

// endOn rolls back on c and gives it back with the settings that it had before.
func (x *session) endOn(c *executor.Conn, before *executor.Settings) {
	if !c.Broken() {
		if _, err := x.exec(c, "ROLLBACK"); err != nil {
			c.Break()
		}
	}
	c.SetSettings(before)
	c.Release()
}

// failTx marks the transaction as failed.
func (x *session) failTx() {
	if t := &x.tx; !t.failed && t.state == txOpen {
		// What it had set ends with the error.
		told, settings := t.told, t.before
		if n := t.saves.Len(); n > 0 {
			told, settings = t.saves.At(n-1).told, t.saves.At(n-1).settings
		}
		x.retold(told, settings, settings)
	}
	x.tx.failed = true
	if x.tx.schema != nil {
		x.tx.schema.Fail()
	}
}

// loseTx is for a transaction whose conversation broke.
func (x *session) loseTx() {
	x.yield()
	c := x.tx.conn
	x.tx.conn, x.tx.lost, x.tx.failed = nil, true, true
	if h := x.interrupts.ending.Load(); h != nil {
		x.tx.ended = endedFor(h)
	}
	x.unused()
	x.pipe.Reset()
	x.dirty, x.wrote, x.sends = false, false, 0
	if x.tx.schema != nil {
		x.tx.schema.Fail()
	}
	if c != nil {
		c.Break()
		c.Release()
	}
}

// yield gives back the conversation that the session has beside its transaction,
// if it has one. Code that forgets pipe.Conn while a transaction ends calls it before.
func (x *session) yield() {
	if !x.outside() || x.virtual() {
		return
	}
	if x.dirty || x.pipe.Waiting() || x.pipe.Skipping() {
		x.pipe.Conn.Break()
	}
	x.release()
}

// finishTx forgets the transaction; committed says which settings stay.
func (x *session) finishTx(committed bool) {
	x.yield()
	t := x.tx
	x.tx = transaction{}
	x.unused()
	x.listener.EndTransaction(committed)
	if x.pipe.Conn != nil && !x.virtual() {
		x.pipe.Reset()
	}
	x.dirty, x.wrote, x.sends = false, false, 0
	x.portals.Ended(nil)
	settings := t.before
	if committed {
		settings = t.keep
	}
	x.settings = settings
	for _, c := range t.bound {
		// The schema change talked on it, and so did SETs whose end nobody followed.
		c.Soil()
		if !c.Broken() {
			c.Settle()
		}
		c.Release()
	}
	if t.conn != nil {
		t.conn.SetSettings(settings)
		t.conn.Release()
	}
	if t.schema != nil {
		x.keepPin()
	}
	x.retold(t.told, t.before, settings)
	if committed {
		for _, name := range slices.Sorted(maps.Keys(t.stay)) { // SET LOCAL's values have ended
			if x.reported[name] != t.stay[name] {
				x.w.Parameter(name, t.stay[name])
			}
		}
	}
}

// retold tells the client of settings that are as they were when it was told of them, where no shard has said so. now are the
// settings, then were those at that time.
func (x *session) retold(told map[string]string, then, now *executor.Settings) {
	var changed []string
	for name, was := range told {
		if x.reported[name] != was {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		a, set := then.Get(strings.ToLower(name))
		if b, still := now.Get(strings.ToLower(name)); a == b && set == still {
			x.w.Parameter(name, told[name])
		}
	}
}

// abandonTx rolls back whatever is open, when the session or the unit ends.
func (x *session) abandonTx() {
	if x.tx.state == txNone {
		return
	}
	if x.outside() {
		x.pipe.Conn.Break()
		x.release()
	}
	if x.tx.schema != nil {
		x.detach()
		ctx, stop := timeLeft()
		x.tx.schema.Rollback(ctx)
		stop()
	} else if c := x.tx.conn; c != nil && !c.Broken() {
		// Nobody waits for it: a shard that does not answer loses the connection.
		_ = c.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) // a Conn that fails here fails below
		if x.pipe.Conn == c && (x.dirty || x.pipe.Waiting()) {
			c.Break()
		} else if _, err := x.exec(c, "ROLLBACK"); err != nil || c.SetDeadline(time.Time{}) != nil {
			c.Break()
		}
	}
	x.finishTx(false)
}

func inFailed() error {
	return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
}

// control runs transaction control. Answers are CommandComplete and notices.
func (x *session) control(st *planner.Statement) error {
	x.unit.effects = true
	if x.tx.state != txNone && x.outside() {
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
	case "constraints":
		return x.setConstraints(st)
	}
	return sqlstate.Refuse(st.Tag+" is not supported", "use BEGIN, COMMIT, ROLLBACK and SAVEPOINT")
}

func (x *session) begin(st *planner.Statement) error {
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
		x.beginTx(txOpen, st.Text)
		x.tx.readOnly = st.Tx.ReadOnly
	}
	x.w.complete(st.Tag)
	return nil
}

// beginModes makes the characteristics that a BEGIN names those of the transaction that is open already, if they come before its
// first query.
func (x *session) beginModes(st *planner.Statement) error {
	m := readModes(st.Text)
	switch {
	case m == (modes{}):
		return nil
	case x.tx.bindable() && len(x.tx.log) == 0 && !x.tx.snapped && !hasModes(x.tx.begin):
		x.tx.begin, x.tx.readOnly = st.Text, st.Tx.ReadOnly
		return nil
	case x.tx.bindable():
		return x.rememberModes("SET TRANSACTION " + m.list())
	}
	return x.relayModes("SET TRANSACTION "+m.list(), true)
}

// hasModes reports whether a BEGIN has options.
func hasModes(text string) bool {
	t := strings.ToUpper(text)
	return strings.Contains(t, "ISOLATION") || strings.Contains(t, "READ") || strings.Contains(t, "DEFERRABLE")
}

// finish runs COMMIT and ROLLBACK.
func (x *session) finish(st *planner.Statement) error {
	commit := st.Tx.Op == "commit"
	if x.tx.state != txOpen {
		if st.Tx.Chain {
			return sqlstate.New(sqlstate.NoActiveTransaction, "%s AND CHAIN can only be used in transaction blocks", strings.ToUpper(st.Tx.Op))
		}
		x.w.warning(sqlstate.NoActiveTransaction, "there is no transaction in progress")
		switch {
		case x.tx.state == txImplicit:
			if err := x.endImplicit(commit && !x.tx.failed); err != nil {
				return err
			}
		case x.pipe.Conn != nil && x.wrote && !commit:
			// The writes before it in the unit are rolled back: the shard does it when the connection closes.
			if !x.keepsUnit() {
				x.pipe.Conn.Break()
			}
			x.release()
		default:
			if err := x.leave(); err != nil {
				return err
			}
		}
		x.w.complete(st.Tag)
		return nil
	}
	if x.giveWay(); commit && x.tx.ended != nil {
		e := x.tx.ended
		x.finishTx(false)
		return e // COMMIT of what was rolled back behind the client's back is no ROLLBACK
	}
	ended := x.tx
	committed, err := x.commitTx(commit)
	if err != nil {
		return err
	}
	if st.Tx.Chain {
		m := ended.chained(x.settings, committed)
		x.beginTx(txOpen, strings.TrimSpace("BEGIN "+m.list()))
		x.tx.base, x.tx.readOnly = m, m.access == "read only"
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
func (x *session) commitTx(commit bool) (committed bool, err error) {
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
	loose := x.loose()
	if loose || !commit {
		// Nothing hangs on the answer: a lost connection has the same effect.
		_ = c.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) // a Conn that fails here fails below
	}
	x.interrupts.setCommitting(c, x.settings, x.pipe.Statements())
	o, err := x.pipe.Run(executor.None, &out)
	x.setRunning(nil)
	x.m.st, x.m.ran = x.srv.ending, 1
	x.measured(c, o, err)
	if err == nil && (loose || !commit) && c.SetDeadline(time.Time{}) != nil {
		c.Break()
	}
	if err != nil {
		c.Break()
		switch {
		case !commit:
			x.finishTx(false)
			return false, nil // the shard rolls back what it lost
		case loose:
			x.srv.ex.Shun(c.Shard())
			x.finishTx(true)
			return true, nil // nothing was read or written there that a commit concerns
		}
		x.finishTx(false)
		return false, c.Lost(err, true)
	}
	tag := ""
	frames(out.buf, func(typ byte, body []byte) {
		switch typ {
		case wire.CommandComplete:
			tag, _, _ = wire.CutString(body)
		case wire.NoticeResponse:
			x.w.buf = append(wire.AppendInt32(append(x.w.buf, typ), int32(len(body)+4)), body...)
		}
	})
	committed = o.Err == nil && tag == "COMMIT"
	if o.Status != 'I' {
		c.Break()
	}
	frame := append([]byte(nil), x.pipe.ErrorFrame()...)
	x.finishTx(committed)
	switch {
	case o.Err == nil:
		return committed, nil
	case o.Err.Severity == "FATAL" || o.Err.Severity == "PANIC":
		return false, c.Lost(errors.New(o.Err.Message), commit)
	case o.Err.Code == sqlstate.NotOwner:
		return false, &sqlstate.Error{Code: sqlstate.SerializationFailure, Shard: c.Shard(), Err: o.Err, Retry: sqlstate.RetryTransaction,
			Message: "shard " + c.Shard() + " no longer owns a key of this transaction", Hint: "nothing was committed: run the transaction again"}
	}
	return false, &shardError{said: o.Err, frame: frame}
}

// endImplicit ends the implicit transaction of a message.
func (x *session) endImplicit(commit bool) error {
	if x.tx.state != txImplicit {
		return nil
	}
	_, err := x.commitTx(commit)
	return err
}

// savepoint runs SAVEPOINT, RELEASE and ROLLBACK TO.
func (x *session) savepoint(st *planner.Statement) error {
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
func (x *session) setSavepoint(st *planner.Statement) error {
	t, op := &x.tx, st.Tx.Op
	if (t.failed && op != "rollback to") || t.lost {
		return inFailed()
	}
	if t.schema == nil && t.conn == nil && len(t.log) >= x.srv.limits.DeferredMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has run %d statements without touching a shard", len(t.log))
	}
	at, err := t.saves.Find(st.Tx.Name)
	if op != "savepoint" && err != nil {
		return err
	}
	switch {
	case t.schema != nil && !onSeveral(t.conn):
		if err := x.schemaSavepoint(st); err != nil {
			return err
		}
	case t.conn != nil:
		x.pipe.Conn = t.conn
		x.pipe.Query(st.Text)
		out := capture{max: 1 << 16, par: x.w.onParameter}
		x.setRunning(t.conn)
		o, err := x.pipe.Run(executor.None, &out)
		x.setRunning(nil)
		if err != nil {
			return x.lost(err, nil, executor.None, anchored)
		}
		if o.Err != nil {
			return &shardError{said: o.Err, frame: append([]byte(nil), x.pipe.ErrorFrame()...)}
		}
		frames(out.buf, func(typ byte, body []byte) {
			if typ == wire.NoticeResponse {
				x.w.buf = append(wire.AppendInt32(append(x.w.buf, typ), int32(len(body)+4)), body...)
			}
		})
	}
	if t.conn == nil && t.schema == nil || t.weak {
		t.log = append(t.log, st.Text)
	}
	switch op {
	case "savepoint":
		t.saves.Set(st.Tx.Name, savepoint{settings: x.settings, keep: t.keep, told: maps.Clone(x.reported), stay: maps.Clone(t.stay), ran: t.ran, modes: len(t.modes), readOnly: t.readOnly})
		if t.saves.Len() > x.srv.limits.DeferredMax*10 {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has %d savepoints", t.saves.Len())
		}
	case "release":
		// SET TRANSACTION ends with the savepoint, SET CONSTRAINTS does not.
		was := t.saves.At(at)
		modes := t.modes[:was.modes]
		for _, m := range t.modes[was.modes:] {
			if strings.HasPrefix(m, "SET CONSTRAINTS ") {
				modes = append(modes, m)
			}
		}
		t.modes, t.readOnly = modes, was.readOnly
		t.saves.Release(at)
		x.portals.Released(at)
	case "rollback to":
		was := t.saves.At(at)
		x.settings, t.keep, t.stay = was.settings, was.keep, maps.Clone(was.stay)
		x.retold(was.told, x.settings, x.settings)
		t.modes, t.readOnly = t.modes[:was.modes], was.readOnly
		t.saves.RollBack(at)
		x.portals.RolledBack(at)
		t.failed = false
		if t.conn != nil {
			t.conn.SetSettings(x.onShards())
		}
	}
	return nil
}

// setConstraints runs SET CONSTRAINTS.
func (x *session) setConstraints(st *planner.Statement) error {
	t := &x.tx
	switch {
	case t.state == txNone:
		x.w.warning(sqlstate.NoActiveTransaction, "SET CONSTRAINTS can only be used in transaction blocks")
		x.w.complete(st.Tag)
		return nil
	case t.failed:
		return inFailed()
	case t.schema != nil:
		return sqlstate.Refuse("SET CONSTRAINTS is not supported after a schema change", "commit the schema change first")
	case len(t.modes) >= x.srv.limits.DeferredMax:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has %d SET TRANSACTION and SET CONSTRAINTS", len(t.modes))
	}
	if t.conn == nil && st.Tx.Name == "" {
		t.log, t.modes = append(t.log, st.Text), append(t.modes, st.Text)
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
	t.modes = append(t.modes, st.Text)
	return nil
}

// constraintsElsewhere reports whether constraints of whole tables are not to be found where the transaction is.
func (x *session) constraintsElsewhere() bool {
	snap := x.srv.ex.Snapshot()
	name := snap.State().DefaultShard
	sh, ok := snap.Shard(name)
	return ok && sh.Can().Catalogue && len(snap.Shards()) > 1 && !txn.Single(x.settings) && (x.tx.conn == nil || x.tx.weak || x.tx.conn.Shard() != name)
}
