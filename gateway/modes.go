package gateway

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// modes are the characteristics of a transaction that its statements have named, "" where they have not
// (manual, SET TRANSACTION).
type modes struct {
	isolation  string // "read committed", ...
	access     string // "read only" or "read write"
	deferrable string // "deferrable" or "not deferrable"
}

// readModes reads what BEGIN, SET TRANSACTION or SET transaction_... says.
func readModes(text string) (m modes) {
	words := strings.Fields(strings.NewReplacer(",", " ", ";", " ", "=", " = ", "'", " ").Replace(strings.ToLower(text)))
	at := func(i int) string {
		if i >= 0 && i < len(words) {
			return words[i]
		}
		return ""
	}
	for i, w := range words {
		switch {
		case w == "serializable":
			m.isolation = w
		case w == "repeatable" && at(i+1) == "read", w == "read" && (at(i+1) == "committed" || at(i+1) == "uncommitted"):
			m.isolation = w + " " + at(i+1)
		case w == "read" && (at(i+1) == "only" || at(i+1) == "write"):
			m.access = w + " " + at(i+1)
		case w == "deferrable":
			m.deferrable = w
			if at(i-1) == "not" {
				m.deferrable = "not deferrable"
			}
		case w == "transaction_read_only":
			if on, ok := planner.ParseBool(at(i + 2)); ok {
				m.access = map[bool]string{true: "read only", false: "read write"}[on]
			}
		case w == "transaction_deferrable":
			if on, ok := planner.ParseBool(at(i + 2)); ok {
				m.deferrable = map[bool]string{true: "deferrable", false: "not deferrable"}[on]
			}
		}
	}
	return m
}

// over is m where it says something, else o.
func (m modes) over(o modes) modes {
	if m.isolation == "" {
		m.isolation = o.isolation
	}
	if m.access == "" {
		m.access = o.access
	}
	if m.deferrable == "" {
		m.deferrable = o.deferrable
	}
	return m
}

// defaultModes are those that the settings give to a transaction which does not say; "" where they are the server's.
func defaultModes(s *executor.Settings) (m modes) {
	if v, ok := s.Get("default_transaction_isolation"); ok {
		m.isolation = readModes(v).isolation
	}
	if v, ok := s.Get("default_transaction_read_only"); ok {
		m.access = readModes("transaction_read_only = " + v).access
	}
	if v := s.Value("default_transaction_deferrable"); v != "" {
		m.deferrable = readModes("transaction_deferrable = " + v).deferrable
	}
	return m
}

// modesNow are the characteristics that the transaction has.
func (t *transaction) modesNow() modes {
	m := readModes(t.begin).over(t.base)
	for _, text := range t.modes {
		m = readModes(text).over(m)
	}
	return m
}

// late is PostgreSQL's error about modes that come after a transaction's first snapshot, for one that has no shard to
// say so (check_XactIsoLevel and check_transaction_read_only in src/backend/commands/variable.c).
func (t *transaction) late(m modes) error {
	inside := t.saves.Len() > 0
	if !t.snapped && !inside {
		return nil
	}
	now := t.modesNow()
	if now.isolation == "" {
		now.isolation = "read committed"
	}
	switch {
	case m.isolation != "" && m.isolation != now.isolation && t.snapped:
		return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION ISOLATION LEVEL must be called before any query")
	case m.isolation != "" && m.isolation != now.isolation:
		return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction")
	case m.access == "read write" && now.access == "read only" && inside:
		return sqlstate.New(sqlstate.ActiveTransaction, "cannot set transaction read-write mode inside a read-only transaction")
	case m.access == "read write" && now.access == "read only":
		return sqlstate.New(sqlstate.ActiveTransaction, "transaction read-write mode must be set before any query")
	}
	return nil
}

// sightless are the tags of statements that shards run and that take no snapshot.
var sightless = map[string]bool{"LOCK TABLE": true, "NOTIFY": true}

// snaps reports whether PostgreSQL takes a snapshot to parse or run the statement (PlannedStmtRequiresSnapshot in
// src/backend/tcop/pquery.c).
func snaps(st *planner.Statement) bool {
	switch st.Kind {
	case planner.TxKind, planner.ListenKind, planner.Empty:
		return false
	case planner.SetKind:
		return st.Set.Op == "set_config" || st.Set.Op == "discard"
	}
	return !sightless[st.Tag] && (st.Cursor == nil || st.Cursor.Op == "declare" || st.Cursor.Op == "close")
}

// list is the modes as BEGIN and SET TRANSACTION take them.
func (m modes) list() string {
	var l []string
	if m.isolation != "" {
		l = append(l, "ISOLATION LEVEL "+strings.ToUpper(m.isolation))
	}
	for _, w := range []string{m.access, m.deferrable} {
		if w != "" {
			l = append(l, strings.ToUpper(w))
		}
	}
	return strings.Join(l, ", ")
}

// chained are the characteristics of the transaction that follows one with AND CHAIN: those of the one that ends, or, where an
// error has ended it, those that it began with. Where savepoints are rolled back with it, those before the first of them. What nothing
// has named is PostgreSQL's default, whatever the session has made the default meanwhile (TBLOCK_ABORT_END,
// TBLOCK_SUBABORT_PENDING in src/backend/access/transam/xact.c).
func (t *transaction) chained(now *executor.Settings, committed bool) modes {
	var m modes
	switch {
	case committed:
		m = t.modesNow()
	case t.saves.Len() > 0:
		before := *t
		before.modes = t.modes[:t.saves.At(0).modes]
		m = before.modesNow()
	case t.failed:
		m = t.base
	default:
		m = t.modesNow()
	}
	changed := defaultModes(now)
	if m.isolation == "" && changed.isolation != "" {
		m.isolation = "read committed"
	}
	if m.access == "" && changed.access != "" {
		m.access = "read write"
	}
	if m.deferrable == "" && changed.deferrable != "" {
		m.deferrable = "not deferrable"
	}
	return m
}

// setTransaction runs SET TRANSACTION inside a block.
func (x *commands) setTransaction(st *planner.Statement) error {
	if st.Tx.Session {
		return x.setCharacteristics(st)
	}
	if x.tx.state == txNone {
		if what := "SET TRANSACTION"; !st.Tx.Setting || st.Tx.Local {
			if st.Tx.Local {
				what = "SET LOCAL"
			}
			x.w.warning(sqlstate.NoActiveTransaction, what+" can only be used in transaction blocks")
		}
		x.w.complete(st.Tag)
		return nil
	}
	if x.tx.failed {
		return inFailed()
	}
	if !x.tx.bindable() {
		return x.relayModes(st.Text, false)
	}
	if err := x.tx.remember(st.Text); err != nil {
		return err
	}
	x.w.complete(st.Tag)
	return nil
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
	if err := t.late(readModes(text)); err != nil {
		return err
	}
	t.log, t.modes = append(t.log, text), append(t.modes, text)
	t.noteAccess(text)
	return nil
}

// noteAccess takes up whether a SET TRANSACTION says READ ONLY or READ WRITE.
func (t *transaction) noteAccess(text string) {
	if access := readModes(text).access; access != "" {
		t.readOnly = access == "read only"
	}
}

// relayModes runs a SET TRANSACTION on the transaction's shard. Its answer goes to the client, unless it is the router's own.
func (x *commands) relayModes(text string, own bool) error {
	if x.tx.schema != nil {
		return sqlstate.Refusal("CLV-1017", "SET TRANSACTION after a schema change is not supported").
			WithHint("give the options with BEGIN")
	}
	if x.tx.lost {
		return inFailed()
	}
	if x.tx.weak || x.tx.apart || onSeveral(x.tx.conn) { // one of several has not begun everywhere, or nowhere yet
		if err := x.tx.late(readModes(text)); err != nil {
			return err
		}
	}
	x.pipe.Conn = x.tx.conn
	if x.tx.weak {
		x.tx.weak = false
		x.tx.uses(x.tx.conn.Shard(), x.unit.version)
	}
	x.pipe.sending(anchored)
	var err error
	if own {
		if err = x.drain(); err == nil {
			if _, err = x.shards.exec(x.tx.conn, text); err != nil {
				err = x.shards.shardSaid(x.tx.conn, err)
			}
		}
	} else {
		x.pipe.Query(text)
		_, err = x.converse(executor.None)
	}
	if err == nil && len(x.tx.modes) < x.srv.limits.DeferredMax {
		x.tx.modes = append(x.tx.modes, text)
		x.tx.noteAccess(text)
	}
	return err
}
