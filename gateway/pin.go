package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Temporary tables and session advisory locks live in a session of the default
// shard. From the statement on that makes the first of them, the client's session
// keeps a conversation with the default shard (it is pinned), and all its statements
// there run on it, until the session ends or DISCARD ALL. If that conversation is lost, the
// session ends, as it would with PostgreSQL.

// reachPinned is reach for a statement that leaves something in the shard's session.
func (x *session) reachPinned(shard string, u use) error {
	if x.nowait {
		return errWait
	}
	function, typ := u.on != nil && u.on.Tag == "CREATE FUNCTION", ""
	if function {
		if err := x.tempFunctions.room(u.on.Text); err != nil {
			return err
		}
	} else if u.on != nil && u.on.TempType != "" {
		typ = u.on.TempType
		if err := x.freeTypeName(typ); err != nil {
			return err
		}
	}
	first := x.pin == nil
	if first && x.srv.pins.Add(1) > int64(x.srv.limits.PinnedMax) {
		x.srv.pins.Add(-1)
		return sqlstate.New(sqlstate.TooManyConnections, "%d sessions keep a connection of their own already, for temporary tables or advisory locks", x.srv.limits.PinnedMax).
			WithHint("nothing was done: end such sessions, or use DISCARD ALL in them; pg_advisory_xact_lock() needs no connection of its own")
	}
	u.pin, u.kept = false, true
	x.fleeting = (function || typ != "") && (first || x.fleeting)
	err := x.reach(shard, u)
	var kept *executor.Conn
	if err == nil {
		if onSeveral(x.pipe.Conn) {
			shard = x.srv.ex.Snapshot().State().DefaultShard
		}
		kept, err = toKeep(x.pipe.Conn, shard)
	}
	if err != nil {
		if first {
			x.srv.pins.Add(-1)
		}
		return err
	}
	if first {
		kept.Pin()
		x.pin = kept
	}
	x.remembersTemp(u.temp, tempRelation)
	if kind := tempType; typ != "" {
		for _, renamed := range u.on.Types {
			kind |= x.temps[renamed] & tempRelation
		}
		x.remembersTemp(typ, kind)
	}
	if function {
		x.tempFunctions.add(u.on.Text)
	}
	if function || typ != "" {
		x.dropped = true // if it fails, or is rolled back
		x.tx.temporary = x.tx.state != txNone
	}
	return nil
}

// toKeep is the conversation with the shard that a session is to keep: c, or its part where c is the one with several shards.
func toKeep(c *executor.Conn, shard string) (*executor.Conn, error) {
	if sev, ok := c.Conn.(*several.Conn); ok {
		var err error
		if c, err = several.Keep(sev, shard); err != nil {
			return nil, err
		}
	}
	if c == nil || c.Shard() != shard || c.OnReplica() {
		return nil, sqlstate.Refuse("a temporary table or a session's advisory lock in this transaction is not supported", "make it before the transaction, or use pg_advisory_xact_lock()")
	}
	return c, nil
}

// The texts that are kept, and read again, are bounded in number and in bytes.
const (
	tempFunctionsMax  = 200
	tempFunctionBytes = 1 << 20
)

// tempFunctions are the texts of the functions that a session has made in pg_temp, also of those that were replaced
// or dropped since: ROLLBACK TO brings them back.
type tempFunctions struct {
	texts []string
	bytes int // of all texts
	// read of them were read with this map and these settings.
	read     int
	snap     *shardmap.Snapshot
	settings *executor.Settings
}

// room refuses a function that would be one too many, or too long.
func (f *tempFunctions) room(text string) error {
	const since = "were made in pg_temp since the session has kept its connection, or in this transaction"
	const hint = "DISCARD ALL, or DROP FUNCTION of all of them and the end of the transaction, makes room"
	switch {
	case len(f.texts) >= tempFunctionsMax:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "%d functions "+since, tempFunctionsMax).WithHint(hint)
	case len(text) > tempFunctionBytes:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a function in pg_temp has %d bytes, more than %d", len(text), tempFunctionBytes).WithHint("make it in another schema, or make it shorter")
	case f.bytes+len(text) > tempFunctionBytes:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "functions of %d bytes "+since+", and this one would make them more than %d", f.bytes, tempFunctionBytes).WithHint(hint)
	}
	return nil
}

func (f *tempFunctions) add(text string) {
	f.texts, f.bytes = append(f.texts, strings.Clone(text)), f.bytes+len(text)
}

// mayCallTemp reads the functions in pg_temp again, before a statement calls one. A table that a body names may be a
// sharded one by now, or in another schema's place under another search path.
func (x *session) mayCallTemp() error {
	x.tx.temporary = x.tx.temporary || x.tx.state != txNone && x.pin != nil
	f := &x.tempFunctions
	snap, private := x.snapshot()
	if f.snap != snap || f.settings != x.settings {
		f.snap, f.settings, f.read = snap, x.settings, 0
	}
	for ; f.read < len(f.texts); f.read++ {
		if _, err := x.srv.ex.Plan(x, []byte(f.texts[f.read]), x.settings, snap, private); err != nil {
			if sqlstate.CodeOf(err) == sqlstate.QueryCanceled {
				return err
			}
			return sqlstate.Refuse("a function that this session made in pg_temp cannot be called any more: "+sqlstate.As(err).Message, "DISCARD ALL, and make the functions again")
		}
	}
	return nil
}

// loosens gives the kept conversation back when functions and types were all that it was kept for, and there are none.
func (x *session) loosens() {
	c := x.pin
	if !x.dropped || c == nil || c.Broken() {
		return
	}
	x.dropped = false
	if !x.fleeting {
		return
	}
	res, err := x.exec(c, "SELECT FROM pg_catalog.pg_proc WHERE pronamespace = pg_catalog.pg_my_temp_schema() UNION ALL SELECT FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema() LIMIT 1")
	if err != nil || len(res.Rows) > 0 {
		return
	}
	x.pin, x.temps, x.tempFunctions = nil, nil, tempFunctions{}
	x.srv.pins.Add(-1)
	if x.pipe.Conn == c {
		x.pipe.Reset()
	}
	c.Loosen()
	c.Release()
}

func (x *session) remembersTemp(name string, kind tempKind) {
	if name == "" {
		return
	}
	if x.temps == nil {
		x.temps = map[string]tempKind{}
		for _, s := range x.statements.All() {
			s.unread = true // the schema of temporary tables is the first of the path now
		}
	}
	x.temps[name] |= kind
	if kind&tempType != 0 {
		x.temps[multirangeOf(name)] |= tempType
	}
	x.tx.temporary = x.tx.state != txNone
}

// usesTemporary reports whether the open transaction has used temporary objects, so that the default shard cannot prepare it.
func (x *session) usesTemporary() bool {
	if x.tx.temporary || x.pin == nil || x.pin.Broken() {
		return x.tx.temporary
	}
	if def, ok := x.srv.ex.Snapshot().Shard(x.pin.Shard()); !ok || !def.Can().Waits {
		return false
	}
	res, err := x.exec(x.pin, "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_class AS c ON c.oid = l.relation WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND c.relpersistence = 't')")
	return err == nil && len(res.Rows) == 1 && res.Rows[0][0].String == "t"
}

// keepPin puts the settings of the kept conversation back after a schema change has talked on it.
func (x *session) keepPin() {
	if x.pin == nil || x.pin.Broken() {
		return
	}
	if x.pin.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) != nil || x.pin.Reset() != nil || x.pin.SetDeadline(time.Time{}) != nil {
		x.pin.Break()
	}
}

// pinned is the kept conversation, with the settings.
func (x *session) pinned(s *executor.Settings) (*executor.Conn, error) {
	if x.nowait {
		return nil, errWait
	}
	if x.pin.Broken() {
		return nil, x.lostPin()
	}
	if err := x.pin.Apply(s); err != nil {
		return nil, x.shardSaid(x.pin, err)
	}
	return x.pin, nil
}

func (x *session) lostPin() *sqlstate.Error {
	return sqlstate.New(sqlstate.AdminShutdown, "the connection to shard %s that had this session's temporary tables and advisory locks is gone", x.pin.Shard()).
		OnShard(x.pin.Shard()).WithHint("connect again")
}

// keepsUnit rolls the messages since the last Sync back on the kept conversation, so that what the session keeps there outlives
// an error of the router's own; false if that cannot be done. No SET is among them: it makes a transaction of them (txImplicit).
func (x *session) keepsUnit() bool {
	c := x.pipe.Conn
	if x.pin == nil || !several.TakesPart(c, x.pin) || c.Broken() || x.pipe.Waiting() || c.SetDeadline(time.Now().Add(x.srv.limits.CancelMax)) != nil {
		return false
	}
	// ROLLBACK ends such a transaction as well, with a warning: PostgreSQL, UserAbortTransactionBlock.
	if _, err := x.exec(c, "ROLLBACK"); err != nil {
		return false
	}
	return c.SetDeadline(time.Time{}) == nil
}

// keepsPin ends the session if what it kept is lost.
func (x *session) keepsPin() error {
	if x.pin != nil && x.pin.Broken() && x.tx.state == txNone {
		return x.lostPin()
	}
	return nil
}

// unpin gives up the kept conversation, with all that is in it.
func (x *session) unpin() {
	if x.pin == nil {
		return
	}
	c := x.pin
	x.pin, x.temps, x.tempFunctions = nil, nil, tempFunctions{}
	x.srv.pins.Add(-1)
	if c.Broken() {
		return // it was released when it broke
	}
	if x.pipe.Conn == c {
		x.pipe.Reset()
	}
	c.Unpin()
	c.Release()
}

// hidden refuses a statement that names a table of the map which a temporary table
// of the session hides, or a type in pg_temp where that is not.
func (x *session) hidden(st *planner.Statement) error {
	if st.Notifies {
		x.listener.Notifies()
	}
	if len(x.temps) == 0 {
		return nil
	}
	if st.Cursor != nil && st.Cursor.Hold && st.Kind != planner.Several && st.Kind != planner.OneShard {
		return sqlstate.Refuse("a WITH HOLD cursor over what may be a temporary table is not supported", "declare it without HOLD and read it inside the transaction")
	}
	for _, t := range st.Tables {
		if x.isTemp(t.Name) {
			return sqlstate.Refuse("table "+t.QualifiedName()+" has the name of a temporary table of this session", "drop the temporary table, or give it another name")
		}
	}
	return x.tempTyped(st)
}

// planBeside is plan for a session with temporary tables.
func (x *session) planBeside(sql []byte, snap *shardmap.Snapshot, private bool) (*planner.Statement, []byte, error) {
	st, err := x.srv.ex.Plan(x, sql, x.settings, snap, private)
	st, text, err := x.planKeyed(st, err, sql, snap, private)
	if err == nil {
		err = x.hidden(st)
	}
	if err != nil {
		return nil, nil, x.unplanned(x.besideTemps(err), sql, private)
	}
	return st, text, nil
}

// besideTemps makes the planner's "no such table" a refusal if it is one of the
// session's temporary tables.
func (x *session) besideTemps(err error) error {
	if sqlstate.CodeOf(err) != sqlstate.UndefinedTable || !x.namesTemp(sqlstate.As(err).Message) {
		return err
	}
	return sqlstate.Refuse("temporary tables cannot be used in one statement with sharded tables ("+sqlstate.As(err).Message+")",
		"use WITH, or two statements; a temporary table can be joined with whole and reference tables")
}

// namesTemp reports whether an error that something does not exist is about one of the session's temporary tables.
func (x *session) namesTemp(message string) bool {
	_, name, quoted := strings.Cut(message, `"`)
	if !quoted { // a parameter's type: "type x does not exist"
		name = strings.TrimSuffix(strings.TrimPrefix(message, "type "), " does not exist")
	}
	name, _, _ = strings.Cut(name, `"`)
	name = name[strings.LastIndexByte(name, '.')+1:]
	return x.namesType(strings.TrimSuffix(name, "[]"))
}

// temporary reports whether a schema change is about temporary tables, or types in pg_temp, alone.
func (x *session) temporary(st *planner.Statement) bool {
	d := st.DDL
	if d.Op == "create view" {
		return slices.ContainsFunc(d.Unknown, x.isTemp)
	}
	if len(d.OfTypes) > 0 {
		return !slices.ContainsFunc(d.OfTypes, func(n string) bool { return !x.namesType(n) })
	}
	return len(x.temps) > 0 && len(d.Unknown) > 0 && !d.Mixed && len(d.Dropped)+len(d.Altered)+len(d.Truncated) == 0 &&
		!slices.ContainsFunc(d.Unknown, func(n string) bool { return !x.isTemp(n) })
}

// temporaryDDL runs it on the kept conversation, where it is a statement like others.
func (x *session) temporaryDDL(st *planner.Statement) error {
	if st.DDL.Spread {
		return sqlstate.Refuse("a view over a temporary table and sharded tables is not supported", "use WITH, or two statements")
	}
	if st.DDL.Hides != nil {
		return st.DDL.Hides
	}
	if err := x.drain(); err != nil {
		return err
	}
	if err := x.reach(x.pin.Shard(), use{}); err != nil {
		return err
	}
	if !x.onPin() {
		return sqlstate.Refuse("a change of a temporary object in a transaction over several shards is not supported", "make it before the transaction")
	}
	if err := x.mayChangeTypes(st); err != nil {
		return err
	}
	x.tx.temporary = x.tx.state != txNone
	text := st.Text
	if len(st.DDL.OfTypes) > 0 {
		text = st.DDL.Plain
	}
	x.pipe.Query(text)
	_, err := x.converse(executor.None)
	if err == nil && st.DDL.Index != nil {
		x.remembersTemp(st.DDL.Index.Name, tempRelation) // for DROP INDEX
	}
	if err == nil {
		x.remembersTemp(st.Temp, tempRelation)
	}
	x.dropped = x.dropped || len(st.DDL.OfTypes) > 0
	if err == nil && x.tx.state == txNone {
		if strings.HasPrefix(st.DDL.Op, "drop ") {
			for _, n := range slices.Concat(st.DDL.Unknown, st.DDL.OfTypes) {
				delete(x.temps, n)
			}
		}
		if x.outside() {
			x.release()
		}
	}
	return err
}
