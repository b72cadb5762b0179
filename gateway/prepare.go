package gateway

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// prepareSQL runs PREPARE: the same names as the protocol's prepared statements. Errors tell places in the text of PREPARE,
// now and later: so it stands for the text before the statement, as blanks.
func (x *commands) prepareSQL(st *plan.Statement) error {
	if err := x.drain(); err != nil {
		return err
	}
	p := st.Prepared
	s := &statement{name: p.Name, text: blanks(st.Text[:max(strings.LastIndex(st.Text, p.Text), 0)]) + p.Text, oids: p.OIDs, made: x.stats.Began, source: st.Text, parsed: x.gucs.Settings}
	if x.message != nil {
		s.source = string(x.message)
	}
	if len(s.oids) < len(p.Types) || slices.Contains(s.oids, 0) {
		oids, err := x.shards.typeOIDs(st)
		if err != nil {
			return err
		}
		for i, oid := range p.OIDs {
			if oid != 0 {
				oids[i] = oid
			}
		}
		s.oids = oids
	}
	if err := x.prepareWords(s); err != nil {
		return err
	}
	if err := x.replan(s); err != nil {
		return err
	}
	if !routed(s.plan) && !settings.OnlySets(s.plan) {
		return sqlstate.Refusal("CLV-1109", "PREPARE takes only SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES").
			WithHint("Run the statement without PREPARE.")
	}
	if err := x.statements.Room(len(s.text)); err != nil {
		return err
	}
	// A shard judges it now, as PostgreSQL would.
	if err := x.reachFor(s.plan, s.oids); err != nil {
		return err
	}
	on, err := x.prepare(s, false)
	if err != nil {
		return err
	}
	x.pipe.CheckColumns(on, s) // the types of parameters, and the columns, which must not change
	if _, err := x.converse(executor.Sync); err != nil {
		return err
	}
	s.params = slices.Clone(s.types)
	x.unit.effects = true
	if x.pipe.outside() {
		x.pipe.release()
	}
	if err := x.statements.Taken(s.name); err != nil { // PostgreSQL looks last
		return err
	}
	if x.before != "" {
		s.text, s.plan, s.prep = blanks(x.before)+s.text, nil, nil
		if s.written != "" {
			s.written = blanks(x.before) + s.written
		}
	}
	x.statements.Put(s.name, s, len(s.text))
	return nil
}

// duplicate is the error of a second Parse of a name. PostgreSQL looks for the name last: a shard judges the text first.
func (x *prepared) duplicate(s *statement) error {
	if !shardBorne(s.plan) {
		return x.statements.Taken(s.name)
	}
	if x.shards.nowait {
		return errWait
	}
	if err := x.reachFor(s.plan, s.oids); err != nil {
		return err
	}
	if _, err := x.prepare(s, false); err != nil {
		return err
	}
	if _, err := x.converse(executor.Flush); err != nil {
		return err
	}
	return x.statements.Taken(s.name)
}

// blanks are as many as a text has characters.
func blanks(text string) string { return strings.Repeat(" ", utf8.RuneCountInString(text)) }

// catalogue is a conversation with the default shard that knows the types which a statement names.
func (b *shardConns) catalogue(st *plan.Statement) (*executor.Conn, error) {
	if b.pin != nil && b.temps.typeOf(st) != "" {
		return b.pinned(b.gucs.Settings)
	}
	return b.acquire(b.ex.Snapshot().State().DefaultShard, b.gucs.Settings)
}

// typeOIDs asks a shard for the OIDs of the types of a PREPARE.
func (b *shardConns) typeOIDs(st *plan.Statement) ([]uint32, error) {
	p := st.Prepared
	names := p.Types
	c, err := b.catalogue(st)
	if err != nil {
		return nil, err
	}
	if c != b.pin {
		defer c.Release()
	}
	var sql strings.Builder
	for i, n := range names {
		if i > 0 {
			sql.WriteString(", ")
		}
		sql.WriteString(executor.QuoteLiteral(n) + "::pg_catalog.regtype::pg_catalog.oid")
	}
	res, err := b.exec(c, "SELECT "+sql.String())
	if err != nil {
		err = b.shardSaid(c, err)
		var said *sqlstate.Error
		if errors.As(err, &said) && said.Position > 0 && len(p.At) == len(names) {
			e, at := *said, len("SELECT ")
			for i, n := range names {
				if at += utf8.RuneCountInString(executor.QuoteLiteral(n)+"::pg_catalog.regtype::pg_catalog.oid") + len(", "); said.Position <= at {
					e.Position = p.At[i]
					break
				}
			}
			err = &e
		}
		return nil, err
	}
	oids := make([]uint32, len(names))
	for i := range names {
		if len(res.Rows) == 1 && i < len(res.Rows[0]) {
			n, err := strconv.ParseUint(res.Rows[0][i].String, 10, 32)
			if err != nil {
				return nil, sqlstate.New(sqlstate.UndefinedObject, "type %q does not exist", names[i])
			}
			oids[i] = uint32(n)
		}
	}
	return oids, nil
}

func (x *commands) deallocateSQL(st *plan.Statement) error {
	if err := x.drain(); err != nil {
		return err
	}
	x.unit.effects = true
	name := st.Prepared.Name
	if name == "" {
		for n := range x.statements.Names() {
			if n != "" {
				x.statements.Drop(n)
			}
		}
		return nil
	}
	_, err := x.statements.Get([]byte(name))
	x.statements.Drop(name)
	return err
}

// executeSQL runs EXECUTE of a simple query, as Bind, Describe and Execute.
func (x *commands) executeSQL(st *plan.Statement) error {
	err := x.runExecute(st)
	if c := x.pipe.Conn; err != nil && err != errWait && err != errAgain && c != nil && x.pipe.dirty && !c.Broken() {
		// An error of the router's own: the shard waits for more.
		if _, failed := x.converse(executor.Sync); failed != nil && c.Broken() {
			return failed
		}
	}
	return err
}

func (x *commands) runExecute(st *plan.Statement) error {
	s, rest, err := x.executeArgs(st, nil)
	if err != nil {
		return err
	}
	if err := x.readArgs(s.oids, rest); err != nil {
		return err
	}
	if rest, err = x.keyParams(s.plan, rest); err != nil {
		return err
	}
	if !shardBorne(s.plan) { // EXPLAIN (ROUTE)
		return x.runLocally(s.plan, &x.args)
	}
	if s.plan.Fill != nil {
		if rest, err = x.fillArgs(s, rest); err != nil {
			return err
		}
	}
	calls, rest, err := x.boundCalls(s.plan, rest)
	if err != nil {
		return err
	}
	if err := x.reachPrepared(st, s); err != nil {
		return err
	}
	on, err := x.prepare(s, false)
	if err != nil {
		return ofPrepared(err)
	}
	x.pipe.Bind("", on, rest, false)
	x.pipe.DescribePortal("", false, s, nil)
	x.pipe.Execute("", 0, nil)
	if _, err := x.converse(executor.Sync); err != nil {
		return ofArgument(ofPrepared(placed(err, s.plan.Text, s.client())), st)
	}
	if len(calls) > 0 {
		if err := x.took(s.plan, calls); err != nil {
			return err
		}
	}
	if x.tx.state == txNone {
		x.pipe.release()
	}
	return nil
}

// reachPrepared makes pipe.Conn the conversation of the prepared statement s of an EXECUTE, whose arguments are x.args.
func (x *commands) reachPrepared(st *plan.Statement, s *statement) error {
	if settings.OnlySets(s.plan) {
		return x.reachForSet()
	}
	if err := x.admit(s.plan, &x.args); err != nil {
		return err
	}
	shard, err := x.chooseRun(s.plan, &x.args)
	if err != nil {
		return x.computedError(st, s, err)
	}
	return x.reach(shard, useOf(s.plan))
}

// computedError is an error of the shard key's value in the words of a shard, and with the argument's place.
func (x *prepared) computedError(st *plan.Statement, s *statement, err error) error {
	code := sqlstate.CodeOf(err)
	if !strings.HasPrefix(string(code), "22") {
		return err
	}
	types, other := x.paramTypes(s)
	if other == nil {
		_, other = x.computedArgs(st, s, types)
	}
	if sqlstate.CodeOf(other) == code || other == errWait {
		return other
	}
	return err
}

// executeArgs finds the statement of an EXECUTE and makes the body of a Bind
// (after its names) from the arguments. formats is the tail of that body, nil
// for text results.
func (x *prepared) executeArgs(st *plan.Statement, formats []byte) (*statement, []byte, error) {
	p := st.Prepared
	s, err := x.statements.Get([]byte(p.Name))
	if err != nil {
		return nil, nil, err
	}
	if err := x.replan(s); err != nil {
		return nil, nil, ofPrepared(err)
	}
	if !routed(s.plan) && !settings.OnlySets(s.plan) {
		return nil, nil, sqlstate.Refusal("CLV-1110", "EXECUTE of this kind of statement is not supported").
			WithHint("Run the statement without PREPARE.")
	}
	if err := x.allowed(s.plan); err != nil {
		return nil, nil, err
	}
	want := max(s.plan.Params, len(s.oids))
	if formats == nil {
		formats = []byte{0, 0}
	}
	rest := wire.AppendInt16(nil, 0)
	if len(p.Args) != want && st.ReturnsRows || len(p.Args) != want {
		return nil, nil, sqlstate.New(sqlstate.SyntaxError, "wrong number of parameters for prepared statement %q", p.Name).
			WithDetail("Expected %d parameters but got %d.", want, len(p.Args))
	}
	values, plain := make([][]byte, want), true
	for i := 0; i < len(p.Args) && plain; i++ {
		v, kind, err := literal(p.Args[i])
		if err != nil {
			plain = false
			break
		}
		if kind != nullLiteral && kind != stringLiteral {
			types, err := x.paramTypes(s)
			if err != nil {
				return nil, nil, err
			}
			plain = i < len(types) && coerced(kind, types[i])
		}
		values[i] = v
	}
	if !plain {
		types, err := x.paramTypes(s)
		if err != nil {
			return nil, nil, err
		}
		if values, err = x.computedArgs(st, s, types); err != nil {
			return nil, nil, err
		}
	}
	rest = wire.AppendInt16(rest, int16(want))
	for _, v := range values {
		rest = wire.AppendValue(rest, v)
	}
	if p.Explain != "" {
		s = &statement{text: p.Explain + s.text, oids: s.oids, parsed: s.parsed}
		if err := x.replan(s); err != nil {
			return nil, nil, err
		}
	}
	return s, append(rest, formats...), nil
}

// literalKind is what an argument of EXECUTE is written as.
type literalKind uint8

const (
	nullLiteral literalKind = iota
	boolLiteral
	stringLiteral
	integerLiteral
	decimalLiteral
)

// literal reads a number, a string, true, false or NULL (nil). A number's text is that of
// its value, as PostgreSQL prints it, since a parameter of type text gets that.
func literal(text string) ([]byte, literalKind, error) {
	t := strings.TrimSpace(text)
	switch strings.ToLower(t) {
	case "null":
		return nil, nullLiteral, nil
	case "true", "false":
		return []byte(strings.ToLower(t)), boolLiteral, nil
	}
	if len(t) >= 2 && t[0] == '\'' && t[len(t)-1] == '\'' {
		in := t[1 : len(t)-1]
		if strings.Contains(strings.ReplaceAll(in, "''", ""), "'") {
			return nil, 0, strconv.ErrSyntax
		}
		return textOf(strings.ReplaceAll(in, "''", "'")), stringLiteral, nil
	}
	digits := strings.TrimSpace(strings.TrimLeft(t, "+-"))
	if len(t)-len(strings.TrimLeft(t, "+-")) > 1 || digits == "" || strings.Trim(digits, "0123456789.") != "" || strings.Count(digits, ".") > 1 || digits == "." {
		return nil, 0, strconv.ErrSyntax
	}
	whole, fraction, decimal := strings.Cut(digits, ".")
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	number, kind := whole, integerLiteral
	if decimal {
		kind = decimalLiteral
		if fraction != "" {
			number += "." + fraction
		}
	}
	if t[0] == '-' && strings.Trim(number, "0.") != "" {
		number = "-" + number
	}
	return textOf(number), kind, nil
}

// The types that numbers and booleans are read as from their text.
var (
	integerTypes = map[uint32]bool{20: true, 21: true, 23: true}
	numberTypes  = map[uint32]bool{700: true, 701: true, 1700: true}
)

// coerced reports whether a literal's text is what a parameter of a type gets: else PostgreSQL casts it, or refuses it
// (EvaluateParams in src/backend/commands/prepare.c).
func coerced(kind literalKind, oid uint32) bool {
	switch {
	case oid == 25:
		return true
	case kind == boolLiteral:
		return oid == 16
	case kind == integerLiteral:
		return integerTypes[oid] || numberTypes[oid]
	}
	return numberTypes[oid]
}

// shardBorne reports whether a shard (or the virtual database) parses and runs
// the statement.
func shardBorne(st *plan.Statement) bool {
	return routed(st) || st.Kind == plan.Virtual || st.Kind == plan.Empty || relayedSet(st)
}

// forgetUnnamed is what a simple Query does to what has no name.
func (x *session) forgetUnnamed() {
	x.statements.Replace("")
	x.portals.Drop("")
}

var columnSeed = maphash.MakeSeed()

// Described compares the columns with those that the client knows
// (executor.Watch): PostgreSQL refuses to change them under a prepared statement.
func (s *statement) Described(body []byte) *sqlstate.Error {
	if s.columns != 0 && !s.replanned {
		return nil
	}
	digest := columnDigest(body)
	if s.columns != 0 && s.columns != digest && s.replanned {
		return sqlstate.ChangedResult()
	}
	s.columns, s.replanned, s.oidColumns = digest, false, oidColumns(body)
	return nil
}

// columnCheck is a statement that is told its columns, and keeps the error: the conversation goes on.
type columnCheck struct {
	s      *statement
	failed *sqlstate.Error
}

// Described compares the columns (executor.Watch).
func (c *columnCheck) Described(body []byte) *sqlstate.Error {
	c.failed = c.s.Described(body)
	return nil
}

// Typed notes the types of the parameters (executor.TypeWatch).
func (c *columnCheck) Typed(oids []uint32) { c.s.Typed(oids) }

// Typed notes the types of the parameters (executor.TypeWatch).
func (s *statement) Typed(oids []uint32) { s.types = oids }

// columnDigest digests names and types. Table OIDs differ between shards.
func columnDigest(body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(columnSeed)
	if len(body) >= 2 {
		n := int(binary.BigEndian.Uint16(body))
		body = body[2:]
		for range n {
			name, rest, ok := cut(body)
			if !ok || len(rest) < 18 {
				break
			}
			_, _ = h.Write(name)       // never fails
			_, _ = h.Write(rest[6:10]) // never fails
			_ = h.WriteByte(0)         // never fails
			body = rest[18:]
		}
	}
	return h.Sum64() | 1
}

// cut splits a zero-terminated string off b without copying it.
func cut(b []byte) (s, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return b[:i], b[i+1:], true
		}
	}
	return nil, b, false
}

// portal finds a portal whose conversation is still at hand.
func (x *prepared) portal(name []byte) (*portal, error) {
	p, ok := x.portals.Named(name)
	if !ok {
		return x.cursorPortal(string(name))
	}
	if p.conn != nil && p.conn != x.pipe.Conn {
		if p.conn != x.tx.conn {
			return nil, sqlstate.Refusal("CLV-1020", "the portal is on a shard that other messages have left since").
				WithHint("Fetch all its rows before going to another shard, or use one transaction per shard.")
		}
		if err := x.leave(); err != nil {
			return nil, err
		}
		x.pipe.Conn = p.conn
	}
	return p, nil
}

// cursorPortal finds what a Describe or Execute names that no Bind has made: a cursor of DECLARE, which is a
// portal as well. The conversation that would run its FETCH says whether there is one.
func (x *prepared) cursorPortal(name string) (*portal, error) {
	none := pgbackend.NoPortal(name)
	if name == "" || x.tx.state == txNone && !x.held.Has(name) {
		return nil, none
	}
	if x.tx.state != txNone && x.tx.conn == nil && x.tx.schema == nil && !x.held.Has(name) {
		return nil, none // nothing has run that could have declared it
	}
	st, err := x.fetchOf(name)
	if err != nil {
		return nil, err
	}
	// Its rows come as text, even if it was declared BINARY: no OID is inside of them.
	return &portal{st: st, stmt: &statement{text: st.Text, plan: st}, ran: true, conn: x.pipe.Conn}, nil
}

// fetchOf goes where a FETCH of the cursor is run.
func (x *prepared) fetchOf(name string) (*plan.Statement, error) {
	st, err := x.plan([]byte("FETCH ALL FROM " + quoteName(name)))
	if err != nil {
		return nil, err
	}
	shard, err := x.chooseRun(st, &plan.Args{})
	if err != nil {
		return nil, err
	}
	return st, x.reach(shard, useOf(st))
}

// closeCursorPortal is Close of what no Bind has made: a cursor of DECLARE, or nothing, which is no error.
func (x *session) closeCursorPortal(name string) error {
	if x.tx.state == txOpen && !x.tx.failed && (x.tx.conn != nil || x.tx.schema != nil) || x.held.Has(name) {
		if _, err := x.fetchOf(name); err != nil {
			return err
		}
		x.pipe.dirty = true
		x.pipe.Close(name, true)
		return nil
	}
	x.answer(wire.CloseComplete)
	return nil
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
