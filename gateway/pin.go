package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Temporary tables and session advisory locks live in a session of the default
// shard. From the statement on that makes the first of them, the client's session
// keeps a conversation with the default shard (it is pinned), and all its statements
// there run on it, until the session ends or DISCARD ALL. If that conversation is lost, the
// session ends, as it would with PostgreSQL.

// reachPinned is reach for a statement that leaves something in the shard's session.
func (x *unitRun) reachPinned(shard string, u use) error {
	if x.shards.nowait {
		return errWait
	}
	function, typ := u.on != nil && u.on.Tag == "CREATE FUNCTION", ""
	if function {
		if err := x.shards.tempFunctions.room(u.on.Text); err != nil {
			return err
		}
	} else if u.on != nil && u.on.TempType != "" {
		typ = u.on.TempType
		if err := x.shards.freeTypeName(typ); err != nil {
			return err
		}
	}
	first := x.shards.pin == nil
	if first && x.srv.pins.Add(1) > int64(x.srv.limits.PinnedMax) {
		x.srv.pins.Add(-1)
		return sqlstate.New(sqlstate.TooManyConnections, "%d sessions keep a connection of their own already, for temporary tables or advisory locks", x.srv.limits.PinnedMax).
			WithHint("nothing was done: end such sessions, or use DISCARD ALL in them; pg_advisory_xact_lock() needs no connection of its own")
	}
	u.pin, u.kept = false, true
	x.shards.fleeting = (function || typ != "") && (first || x.shards.fleeting)
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
		x.shards.pin = kept
	}
	x.remembersTemp(u.temp, tempRelation)
	if kind := tempType; typ != "" {
		for _, renamed := range u.on.Types {
			kind |= x.shards.temps[renamed] & tempRelation
		}
		x.remembersTemp(typ, kind)
	}
	if function {
		x.shards.tempFunctions.add(u.on.Text)
	}
	if function || typ != "" {
		x.shards.dropped = true // if it fails, or is rolled back
		x.tx.temporary = x.tx.state != txNone
	}
	return nil
}

// toKeep is the conversation with the shard that a session is to keep: c, or its part where c is the one with several shards.
func toKeep(c *executor.Conn, shard string) (*executor.Conn, error) {
	if sev, ok := c.Conn.(*several.Conn); ok {
		var err error
		if c, err = sev.Keep(shard); err != nil {
			return nil, err
		}
	}
	if c == nil || c.Shard() != shard || c.OnReplica() {
		return nil, sqlstate.Refusal("CLV-0805", "a temporary table or a session's advisory lock in this transaction is not supported").
			WithHint("Make it before the transaction, or use pg_advisory_xact_lock().")
	}
	return c, nil
}

// keepsPart reports whether c is the conversation that the session keeps, or has it as a part: breaking c would end the session.
func (b *shardConns) keepsPart(c *executor.Conn) bool {
	if sev, ok := c.Conn.(*several.Conn); ok && b.pin != nil {
		return sev.Holds(b.pin)
	}
	return c == b.pin
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

// loosens gives the kept conversation back when functions and types were all that it was kept for, and there are none.
func (b *shardConns) loosens() {
	c := b.pin
	if !b.dropped || c == nil || c.Broken() {
		return
	}
	b.dropped = false
	if !b.fleeting {
		return
	}
	res, err := b.exec(c, "SELECT FROM pg_catalog.pg_proc WHERE pronamespace = pg_catalog.pg_my_temp_schema() UNION ALL SELECT FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema() LIMIT 1")
	if err != nil || len(res.Rows) > 0 {
		return
	}
	b.pin, b.temps, b.tempFunctions = nil, nil, tempFunctions{}
	b.pins.Add(-1)
	if b.pipe.Conn == c {
		b.pipe.Reset()
	}
	c.Loosen()
	c.Release()
}

func (x *unitRun) remembersTemp(name string, kind tempKind) {
	if name == "" {
		return
	}
	if x.shards.temps == nil {
		x.shards.temps = tempNames{}
		for _, s := range x.statements.All() {
			s.unread = true // the schema of temporary tables is the first of the path now
		}
	}
	x.shards.temps[name] |= kind
	if kind&tempType != 0 {
		x.shards.temps[multirangeOf(name)] |= tempType
	}
	x.tx.temporary = x.tx.state != txNone
}

// usesTemporary reports whether the open transaction has used temporary objects, so that the default shard cannot prepare it.
func (b *shardConns) usesTemporary() bool {
	if b.tx.temporary || b.pin == nil || b.pin.Broken() {
		return b.tx.temporary
	}
	if def, ok := b.ex.Snapshot().Shard(b.pin.Shard()); !ok || !def.Can().Waits {
		return false
	}
	res, err := b.exec(b.pin, "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_class AS c ON c.oid = l.relation WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND c.relpersistence = 't')")
	return err == nil && len(res.Rows) == 1 && res.Rows[0][0].String == "t"
}

// keepPin puts the settings of the kept conversation back after a schema change has talked on it.
func (b *shardConns) keepPin() {
	if b.pin == nil || b.pin.Broken() {
		return
	}
	if b.pin.SetDeadline(time.Now().Add(b.grace)) != nil || b.pin.Reset() != nil || b.pin.SetDeadline(time.Time{}) != nil {
		b.pin.Break()
	}
}

// keepsUnit rolls the messages since the last Sync back on the kept conversation, so that what the session keeps there outlives
// an error of the router's own; false if that cannot be done. No SET is among them: it makes a transaction of them (txImplicit).
func (b *shardConns) keepsUnit() bool {
	c := b.pipe.Conn
	if b.pin == nil || !several.TakesPart(c, b.pin) || c.Broken() || b.pipe.Waiting() || c.SetDeadline(time.Now().Add(b.grace)) != nil {
		return false
	}
	// ROLLBACK ends such a transaction as well, with a warning: PostgreSQL, UserAbortTransactionBlock.
	if _, err := b.exec(c, "ROLLBACK"); err != nil {
		return false
	}
	return c.SetDeadline(time.Time{}) == nil
}

// keepsPin ends the session if what it kept is lost.
func (b *shardConns) keepsPin() error {
	if b.pin != nil && b.pin.Broken() && b.tx.state == txNone {
		return b.lostPin()
	}
	return nil
}

// unpin gives up the kept conversation, with all that is in it.
func (b *shardConns) unpin() {
	if b.pin == nil {
		return
	}
	c := b.pin
	b.pin, b.temps, b.tempFunctions = nil, nil, tempFunctions{}
	b.pins.Add(-1)
	if c.Broken() {
		return // it was released when it broke
	}
	if b.pipe.Conn == c {
		b.pipe.Reset()
	}
	c.Unpin()
	c.Release()
}

// besideTemps makes the planner's "no such table" a refusal if it is one of the
// session's temporary tables.
func (t tempNames) missing(err error) error {
	if sqlstate.CodeOf(err) != sqlstate.UndefinedTable || !t.named(sqlstate.As(err).Message) {
		return err
	}
	return sqlstate.Refusal("CLV-0806", "temporary tables cannot be used in one statement with sharded tables (%s)", sqlstate.As(err).Message).
		WithHint("Use WITH, or two statements; a temporary table can be joined with unsharded and reference tables.")
}

// namesTemp reports whether an error that something does not exist is about one of the session's temporary tables.
func (t tempNames) named(message string) bool {
	_, name, quoted := strings.Cut(message, `"`)
	if !quoted { // a parameter's type: "type x does not exist"
		name = strings.TrimSuffix(strings.TrimPrefix(message, "type "), " does not exist")
	}
	name, _, _ = strings.Cut(name, `"`)
	name = name[strings.LastIndexByte(name, '.')+1:]
	return t.namesType(strings.TrimSuffix(name, "[]"))
}

// temporary reports whether a schema change is about temporary tables, or types in pg_temp, alone.
func (t tempNames) only(st *plan.Statement) bool {
	d := st.DDL
	if d.Op == "create view" {
		return slices.ContainsFunc(d.Unknown, t.isRelation)
	}
	if len(d.OfTypes) > 0 {
		return !slices.ContainsFunc(d.OfTypes, func(n string) bool { return !t.namesType(n) })
	}
	return len(t) > 0 && len(d.Unknown) > 0 && !d.Mixed && len(d.Dropped)+len(d.Altered)+len(d.Truncated) == 0 &&
		!slices.ContainsFunc(d.Unknown, func(n string) bool { return !t.isRelation(n) })
}

// temporaryDDL runs it on the kept conversation, where it is a statement like others.
func (x *commands) temporaryDDL(st *plan.Statement) error {
	if st.DDL.Spread {
		return sqlstate.Refusal("CLV-0807", "a view over a temporary table and sharded tables is not supported").
			WithHint("Use WITH, or two statements.")
	}
	if st.DDL.Hides != nil {
		return st.DDL.Hides
	}
	if err := x.drain(); err != nil {
		return err
	}
	if err := x.reach(x.shards.pin.Shard(), use{}); err != nil {
		return err
	}
	if !x.shards.onPin() {
		return sqlstate.Refusal("CLV-0808", "a change of a temporary object in a transaction over several shards is not supported").
			WithHint("Make it before the transaction.")
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
	x.shards.dropped = x.shards.dropped || len(st.DDL.OfTypes) > 0
	if err == nil && x.tx.state == txNone {
		if strings.HasPrefix(st.DDL.Op, "drop ") {
			for _, n := range slices.Concat(st.DDL.Unknown, st.DDL.OfTypes) {
				delete(x.shards.temps, n)
			}
		}
		if x.pipe.outside() {
			x.pipe.release()
		}
	}
	return err
}

// A name without schema means a type of pg_temp before all others. The session's are in its kept conversation alone: elsewhere the name
// means another type, or none. So a statement that names one runs on that conversation, or is refused.

// tempNames are the names that may be in the pg_temp of a session.
type tempNames map[string]tempKind

// tempKind says what a name in pg_temp may be.
type tempKind uint8

const (
	tempRelation tempKind = 1 << iota // its row type is a type as well
	tempType
)

// isTemp reports whether a name may be of a temporary table, view or index of the session.
func (t tempNames) isRelation(name string) bool { return t[name]&tempRelation != 0 }

// namesType reports whether a name may be of a type in pg_temp of the session. PostgreSQL puts underscores before the name of an array type.
func (t tempNames) namesType(name string) bool {
	if t[name] != 0 || name == "" || name[0] != '_' {
		return t[name] != 0
	}
	for own := range t {
		if strings.TrimLeft(own, "_") == strings.TrimLeft(name, "_") {
			return true
		}
	}
	return false
}

// tempTypeOf is a name in the statement that may be of a type in pg_temp of the session, "" if there is none.
func (t tempNames) typeOf(st *plan.Statement) string {
	if len(t) == 0 {
		return ""
	}
	for _, name := range st.Types {
		if name == planner.AnyType {
			for own, kind := range t {
				if kind&tempType != 0 {
					return own
				}
			}
		}
		if t.namesType(name) {
			return name
		}
	}
	return ""
}

// refuseTempType is the error of a statement that names a type in pg_temp, and does not run where that is.
func refuseTempType(name string) error {
	return sqlstate.Refusal("CLV-0813", "the type %s may be one in pg_temp of this session, which is in a session of the default shard: a statement that runs elsewhere cannot name it", name).
		WithHint("Write the schema of another type of that name; or use two statements, of which the one that names the type reads unsharded and reference tables only.")
}

// tempTyped refuses a statement that names a type in pg_temp, if it does not run where that is.
func (t tempNames) refuseTyped(st *plan.Statement) error {
	name := t.typeOf(st)
	if name == "" || st.Pins {
		return nil
	}
	switch st.Kind {
	case plan.OneShard, plan.Several, plan.Virtual, plan.Call:
		return refuseTempType(name)
	case plan.DDLKind:
		if !t.only(st) {
			return refuseTempType(name)
		}
	}
	return nil
}

// reachedTemp refuses a statement that names a type in pg_temp, if the conversation at hand is not the kept one.
func (x *unitRun) reachedTemp(st *plan.Statement) error {
	if !x.shards.onPin() {
		return refuseTempType(x.shards.temps.typeOf(st))
	}
	x.tx.temporary = x.tx.temporary || x.tx.state != txNone
	return nil
}

// onPin reports whether what is sent to the default shard now goes to the kept conversation.
func (b *shardConns) onPin() bool {
	if b.tx.schema != nil && b.tx.open.With(b.pin) {
		return true
	}
	return b.pipe.Conn != nil && several.TakesPart(b.pipe.Conn, b.pin)
}

// freeTypeName refuses the name of another type for one in pg_temp. Statements that name it could be refused, but there is more that
// looks names up: the bodies of functions, and what shows a name with its schema or without.
func (b *shardConns) freeTypeName(name string) error {
	shard := b.ex.Snapshot().State().DefaultShard
	c, err := b.acquire(shard, b.gucs.Settings)
	if err != nil {
		return err
	}
	defer c.Release()
	names := executor.QuoteLiteral(name) + ", " + executor.QuoteLiteral(multirangeOf(name))
	res, err := b.exec(c, "SELECT t.typname FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace WHERE t.typname IN ("+names+`) AND n.nspname NOT LIKE 'pg\_temp\_%' LIMIT 1`)
	if err != nil {
		return b.shardSaid(c, err)
	}
	if len(res.Rows) > 0 {
		return sqlstate.Refusal("CLV-0814", "a type in pg_temp cannot have the name of the type %s, which it would hide", res.Rows[0][0].String).
			WithHint("Give it another name.")
	}
	return nil
}

// multirangeOf is the name that PostgreSQL gives the multirange type of a range type (makeMultirangeTypeName).
func multirangeOf(name string) string {
	const most, suffix = 63, "_multirange"
	if i := strings.Index(name, "range"); i >= 0 {
		return clipped(name[:i]+"multi"+name[i:], most)
	}
	return clipped(name, most-len(suffix)) + suffix
}

// clipped is a name of at most so many bytes, as pg_mbcliplen cuts it.
func clipped(name string, most int) string {
	if len(name) <= most {
		return name
	}
	for most > 0 && name[most]&0xc0 == 0x80 {
		most--
	}
	return name[:most]
}

// hasTempTypes reports whether the types are in pg_temp now, and not only made there in what was rolled back.
func (b *shardConns) hasTempTypes(names []string) (bool, error) {
	for _, name := range names {
		res, err := b.exec(b.pin, "SELECT FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema() AND typname = "+executor.QuoteLiteral(name))
		if err != nil {
			return false, b.shardSaid(b.pin, err)
		}
		if len(res.Rows) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// mayChangeTypes looks at a change of types of the session that has no schema in it: such a type may have been rolled back, and the new name
// may be another's.
func (x *commands) mayChangeTypes(st *plan.Statement) error {
	if len(st.DDL.OfTypes) == 0 {
		return nil
	}
	if has, err := x.shards.hasTempTypes(st.DDL.OfTypes); err != nil || !has {
		if err == nil {
			err = refuseTempType(st.DDL.OfTypes[0])
		}
		return err
	}
	if st.TempType == "" {
		return nil
	}
	if err := x.shards.freeTypeName(st.TempType); err != nil {
		return err
	}
	x.remembersTemp(st.TempType, tempType|x.shards.temps[st.DDL.OfTypes[0]])
	return nil
}
