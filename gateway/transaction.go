package gateway

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner/plan"
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

// transaction is the client's transaction, as its statements made it: what it is, and which conversation has it. The session
// runs the statements; what it is on shards is open (docs/design/transaction.md).
//
//	            begins                          a statement's shard (bindTx)
//	txNone ───────────────▶ open, no conn ─────────────────────────────▶ open on conn ──▶ ends
//	                        │ log                   ◀──unbind── weak: nothing there shows │
//	                        │                                                             │ reachSeveral: conn is several.Conn
//	                        └──a schema change (beginSchema)──▶ schema, shard ◀───────────┘
//
//	failed: 25P02 until ROLLBACK, or ROLLBACK TO (saves). lost: conn broke, ROLLBACK alone is left.
type transaction struct {
	gucs        *settings.Session // the client's settings, which the transaction's end and savepoints take back
	turn        *leaseuse.Turn
	deferredMax int // of log
	// opens makes what is open nowhere yet.
	opens func() *txn.Transaction

	state  txState
	failed bool
	// temporary: a temporary table was made or changed in it.
	temporary bool
	// open has its participants, and what shards that it comes to have to begin; nil if there is no transaction.
	open *txn.Transaction
	// base are the characteristics that it began with, before its statements named others: an error takes it back to them.
	base settings.Modes
	// log is what it did before it was bound: SAVEPOINT, SET, ...; run on the
	// shard after begin. It goes on while the binding is weak.
	log []string
	// conn is what its statements go to: its only participant's conversation, or the view of several; nil while it is on
	// no shard, and where a schema change says on which conversation.
	conn *executor.Conn
	// snapped: a statement has been judged in it, for which PostgreSQL takes a snapshot.
	snapped bool
	// apart: its shard does not know of one of them.
	apart bool
	// weak: conn ran only what does not tie it to the shard.
	weak bool
	// lost: conn broke; nothing but ROLLBACK is left.
	lost bool
	// schema is the schema change that it has become part of, shard the one
	// that other statements of it run on.
	schema *schema.Tx
	shard  string
	// opened are the settings that the schema change's own conversations begin with.
	opened *executor.Settings
	// undone: a ROLLBACK TO may have taken settings back on some of them.
	undone bool
	// saved are the settings that its savepoints, which open has, bring back.
	saved []settings.Saved
	// first is the version of the map when it was first tied to a shard, 0 before.
	first uint64
	// term is that of the lease then.
	term uint64
	// ended is why the router has ended it, until the client has been told.
	ended *sqlstate.Error
}

// begins is for BEGIN, and for what begins one by itself.
func (t *transaction) begins(state txState, text string) { t.beginsWith(t.opens(), state, text) }

// beginsWith is begins for what is open on shards already.
func (t *transaction) beginsWith(open *txn.Transaction, state txState, text string) {
	t.ends()
	t.open, t.state, t.base, t.weak = open, state, settings.DefaultModes(t.gucs.Settings), true
	t.gucs.Begin()
	open.BeginBlock(text, t.gucs.Before)
}

// begin is the text that begins it on a shard, "" if there is no transaction.
func (t *transaction) begin() string {
	if t.open == nil {
		return ""
	}
	return t.open.BeginText
}

// readOnly reports whether the client has made it READ ONLY.
func (t *transaction) readOnly() bool { return t.open != nil && t.open.ReadOnly }

// fail marks the transaction as failed.
func (t *transaction) fail() {
	if !t.failed && t.state == txOpen {
		var last *settings.Saved
		if n := len(t.saved); n > 0 {
			s := t.saved[n-1]
			last = &s
		}
		t.gucs.Fail(last)
	}
	t.failed = true
	if t.schema != nil {
		t.schema.Fail()
	}
}

// status is that of ReadyForQuery.
func (t *transaction) status() byte {
	switch {
	case t.state == txNone || t.state == txImplicit:
		return 'I'
	case t.failed:
		return 'E'
	}
	return 'T'
}

// loose reports whether the transaction can leave its shard, if it has one:
// nothing that it did there shows.
func (t *transaction) loose() bool { return t.weak && !t.lost && t.schema == nil }

// OneSnapshot reports whether the transaction has one snapshot for all statements.
func (t *transaction) oneSnapshot() bool {
	if t.gucs.OneSnapshot() && !strings.Contains(strings.ToUpper(t.begin()), "ISOLATION") {
		return true
	}
	for _, t := range append([]string{t.begin()}, t.log...) {
		t = strings.ToUpper(t)
		if strings.Contains(t, "REPEATABLE") || strings.Contains(t, "SERIALIZABLE") {
			return true
		}
	}
	return false
}

// serializable reports whether the transaction is to be SERIALIZABLE.
func (t *transaction) serializable() bool {
	if v, ok := t.gucs.Settings.Get("default_transaction_isolation"); ok && strings.Contains(strings.ToLower(v), "serial") {
		return true
	}
	for _, t := range append([]string{t.begin()}, t.log...) {
		if strings.Contains(strings.ToUpper(t), "SERIALIZABLE") {
			return true
		}
	}
	return false
}

// tied reports whether a transaction sees no other keys on its shards than when it
// began: nothing has changed, or each statement has a snapshot of its own.
func (t *transaction) tied(snap *shardmap.Snapshot) bool {
	return t.first == 0 || t.outlived() == nil && (t.first == snap.Version() || !t.oneSnapshot())
}

// outlived is the error of a transaction that is older than the router's lease: while
// there was none nobody waited for it, and what it used may be another shard's by now.
func (t *transaction) outlived() *sqlstate.Error {
	if t.first == 0 || t.turn.Term() == t.term {
		return nil
	}
	return &sqlstate.Error{Code: sqlstate.SerializationFailure, Retry: sqlstate.RetryTransaction,
		Message: "the router lost its lease on the directory while the transaction was open: keys that it used may have moved since",
		Hint:    "nothing was committed: run the transaction again"}
}

// uses notes that the transaction is open on a shard.
func (t *transaction) uses(shard string, version uint64) {
	t.turn.Use(shard, version)
	if t.state != txNone && t.first == 0 {
		t.first, t.term = version, t.turn.Term()
	}
}

// waited tells the bound of a lock that the client did not set: in a transaction with a schema change.
func (t *transaction) waited(err error) error {
	var said *sqlstate.Error
	if t.schema == nil || settings.LockTimeout(t.gucs.Settings) > 0 || !errors.As(err, &said) || said.Code != sqlstate.LockNotAvailable || said.Hint != "" || !strings.Contains(said.Message, "lock timeout") {
		return err
	}
	e := *said
	e.Detail = fmt.Sprintf("A transaction with a schema change waits %v for a lock where lock_timeout is 0: it holds locks that others wait for on every shard.", schema.DefaultLockTimeout)
	e.Hint = "run the transaction again; for a longer wait SET lock_timeout = '1min' before it"
	return &e
}

// ends forgets the transaction, and returns what it was.
func (t *transaction) ends() transaction {
	was := *t
	*t = transaction{gucs: t.gucs, turn: t.turn, deferredMax: t.deferredMax, opens: t.opens}
	return was
}

// modesNow are the characteristics that the transaction has, with those of the texts.
func (t *transaction) modesNow(texts []string) settings.Modes {
	m := settings.ReadModes(t.begin()).Over(t.base)
	for _, text := range texts {
		m = settings.ReadModes(text).Over(m)
	}
	return m
}

// late is PostgreSQL's error about modes that come after a transaction's first snapshot, for one that has no shard to
// say so (check_XactIsoLevel and check_transaction_read_only in src/backend/commands/variable.c).
func (t *transaction) late(m settings.Modes) error {
	inside := len(t.saved) > 0
	if !t.snapped && !inside {
		return nil
	}
	now := t.modesNow(t.open.Modes)
	if now.Isolation == "" {
		now.Isolation = "read committed"
	}
	switch {
	case m.Isolation != "" && m.Isolation != now.Isolation && t.snapped:
		return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION ISOLATION LEVEL must be called before any query")
	case m.Isolation != "" && m.Isolation != now.Isolation:
		return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction")
	case m.Access == "read write" && now.Access == "read only" && inside:
		return sqlstate.New(sqlstate.ActiveTransaction, "cannot set transaction read-write mode inside a read-only transaction")
	case m.Access == "read write" && now.Access == "read only":
		return sqlstate.New(sqlstate.ActiveTransaction, "transaction read-write mode must be set before any query")
	}
	return nil
}

// sightless are the tags of statements that shards run and that take no snapshot.
var sightless = map[string]bool{"LOCK TABLE": true, "NOTIFY": true}

// snaps reports whether PostgreSQL takes a snapshot to parse or run the statement (PlannedStmtRequiresSnapshot in
// src/backend/tcop/pquery.c).
func snaps(st *plan.Statement) bool {
	switch st.Kind {
	case plan.TxKind, plan.ListenKind, plan.Empty:
		return false
	case plan.SetKind:
		return st.Set.Op == "set_config" || st.Set.Op == "discard"
	}
	return !sightless[st.Tag] && (st.Cursor == nil || st.Cursor.Op == "declare" || st.Cursor.Op == "close")
}

// chained are the characteristics of the transaction that follows one with AND CHAIN: those of the one that ends, or, where an
// error has ended it, those that it began with. Where savepoints are rolled back with it, those before the first of them
// (TBLOCK_ABORT_END, TBLOCK_SUBABORT_PENDING in src/backend/access/transam/xact.c).
func (t *transaction) chained(committed bool) settings.Modes {
	switch {
	case !committed && t.open.Saves.Len() > 0:
		return t.modesNow(t.open.ModesAt(0))
	case !committed && t.failed && t.ended == nil: // ended: it was the router that ended it, of which the client has not been told
		return t.base
	}
	return t.modesNow(t.open.Modes)
}

// spelled are characteristics where what nothing has named is PostgreSQL's default, whatever the session has made the default
// meanwhile.
func spelled(m settings.Modes, now *executor.Settings) settings.Modes {
	changed := settings.DefaultModes(now)
	if m.Isolation == "" && changed.Isolation != "" {
		m.Isolation = "read committed"
	}
	if m.Access == "" && changed.Access != "" {
		m.Access = "read write"
	}
	if m.Deferrable == "" && changed.Deferrable != "" {
		m.Deferrable = "not deferrable"
	}
	return m
}

// enters makes c, on which it begins, its only participant.
func (t *transaction) enters(c *executor.Conn, since *shardmap.Snapshot) *txn.Participant {
	var was []*executor.Settings
	for _, s := range t.saved {
		was = append(was, s.Settings)
	}
	t.conn = c
	return t.open.BegunOn(c, since, was)
}

// leaves forgets the participants: nothing of it shows there, or they are lost.
func (t *transaction) leaves() *executor.Conn {
	c := t.conn
	if t.conn = nil; t.schema == nil {
		t.open = t.open.Anew()
	}
	return c
}

// bindable reports whether the transaction is on no shard yet.
func (t *transaction) bindable() bool { return t.conn == nil && t.schema == nil }

// deferring reports whether the shard that it comes to has yet to be told what is set.
func (t *transaction) deferring() bool { return t.bindable() || t.weak }

// rememberModes keeps a SET TRANSACTION for the shard that the transaction will come to.
func (t *transaction) remember(text string) error {
	if len(t.log) >= t.deferredMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has run %d statements without touching a shard", len(t.log))
	}
	if err := t.late(settings.ReadModes(text)); err != nil {
		return err
	}
	t.log = append(t.log, text)
	t.noteModes(text)
	return nil
}

// noteModes keeps a SET TRANSACTION that its shard has, or will have.
func (t *transaction) noteModes(text string) {
	t.open.Modes = append(t.open.Modes, text)
	if access := settings.ReadModes(text).Access; access != "" {
		t.open.SetAccess(access == "read only", len(t.open.Wrote()) > 0)
	}
}
