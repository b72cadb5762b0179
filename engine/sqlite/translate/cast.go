package translate

import (
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// castRule says how values of some types become values of others.
type castRule struct {
	from, to func(oid uint32) bool
	sql      func(x string, from, to uint32) string
	// session: the conversation says what the value is, so that constraints and defaults cannot have it.
	session bool
}

// only matches the types that are given.
func only(oids ...uint32) func(uint32) bool {
	return func(oid uint32) bool {
		for _, o := range oids {
			if o == oid {
				return true
			}
		}
		return false
	}
}

var (
	isInt     = only(pgoid.Int2, pgoid.Int4, pgoid.Int8)
	isText    = only(pgoid.Text, pgoid.Varchar)
	isOIDLike = only(pgoid.OID, pgoid.Regclass, pgoid.Regtype, pgoid.Regproc, pgoid.Regprocedure, pgoid.Regnamespace, pgoid.Regrole, pgoid.Regoper,
		pgoid.Regoperator, pgoid.Regcollation)
	isTextual = only(pgoid.Text, pgoid.Varchar, pgoid.Name, pgoid.Char, pgoid.Bpchar, pgoid.PgNodeTree)
	isAny     = func(uint32) bool { return true }
)

func same(x string, _, _ uint32) string { return x }

// around puts the value between two texts.
func around(before, after string) func(string, uint32, uint32) string {
	return func(x string, _, _ uint32) string { return before + x + after }
}

// by calls functions, the first of them last.
func by(fns ...string) func(string, uint32, uint32) string {
	return func(x string, _, _ uint32) string {
		for i := len(fns) - 1; i >= 0; i-- {
			x = call(fns[i], x)
		}
		return x
	}
}

// byTo calls a function with the value and the new type.
func byTo(fn string) func(string, uint32, uint32) string {
	return func(x string, _, to uint32) string { return call(fn, x, to) }
}

// input reads the value's text as a type does.
func input(x string, _, to uint32) string { return call("cleave_in", to, x) }

func trimmed(x string) string { return "rtrim(" + x + ", ' ')" }

// castRules are tried in their order.
var castRules = []castRule{
	{from: isInt, to: isInt, sql: func(x string, from, to uint32) string {
		if to == pgoid.Int2 || to == pgoid.Int4 && from == pgoid.Int8 {
			return call("cleave_int", x, to)
		}
		return x
	}},
	{from: isInt, to: only(pgoid.Numeric), sql: around("CAST(", " AS TEXT)")},
	{from: isInt, to: only(pgoid.Float8), sql: around("CAST(", " AS REAL)")},
	{from: only(pgoid.Int4), to: only(pgoid.Bool), sql: around("(", " <> 0)")},
	{from: only(pgoid.Bool), to: only(pgoid.Int4), sql: same},
	{from: isInt, to: isOIDLike, sql: func(x string, from, _ uint32) string { return call("cleave_oid", x, from) }},
	{from: isOIDLike, to: isOIDLike, sql: same},
	{from: isOIDLike, to: only(pgoid.Int8), sql: same},
	{from: isOIDLike, to: only(pgoid.Int4), sql: by("cleave_oid_int4")},
	{from: only(pgoid.Numeric), to: isInt, sql: byTo("cleave_num_int")},
	{from: only(pgoid.Numeric), to: only(pgoid.Float8), sql: by("cleave_num_float")},
	{from: only(pgoid.Float8), to: isInt, sql: byTo("cleave_float_int")},
	{from: only(pgoid.Float8), to: only(pgoid.Numeric), sql: by("cleave_float_num")},
	{from: only(pgoid.Bpchar), to: isText, sql: func(x string, _, _ uint32) string { return trimmed(x) }},
	{from: only(pgoid.Bpchar), to: only(pgoid.Name), sql: func(x string, from, to uint32) string { return input(trimmed(x), from, to) }},
	{from: isTextual, to: only(pgoid.Name, pgoid.Char), sql: input},
	{from: isTextual, to: isTextual, sql: same},
	{from: isTextual, to: isOIDLike, session: true, sql: func(x string, _, to uint32) string { return call("cleave_reg_in", to, x) }},
	{from: IsReg, to: isTextual, session: true, sql: func(x string, from, _ uint32) string { return call("cleave_reg_out", from, x) }},
	{from: only(pgoid.Bool), to: isTextual, sql: around("(CASE ", " WHEN 1 THEN 'true' WHEN 0 THEN 'false' END)")},
	{from: isInt, to: isTextual, sql: around("CAST(", " AS TEXT)")},
	// Not the column itself: that is ordered and compared as a number.
	{from: only(pgoid.Numeric), to: isTextual, sql: around("(", " || '')")},
	{from: only(pgoid.JSON, pgoid.JSONB), to: isTextual, sql: same},
	{from: only(pgoid.Timestamptz), to: isTextual, sql: by("cleave_tstz_text")},
	{from: isAny, to: isTextual, sql: func(x string, from, _ uint32) string { return call("cleave_out", from, x) }},
	{from: isTextual, to: only(pgoid.Timestamptz), sql: by("cleave_tstz_in")},
	{from: only(pgoid.Bpchar), to: isAny, sql: func(x string, from, to uint32) string { return input(trimmed(x), from, to) }},
	{from: isTextual, to: isAny, sql: input},
	{from: only(pgoid.Date), to: only(pgoid.Timestamp), sql: by("cleave_date_ts")},
	{from: only(pgoid.Date), to: only(pgoid.Timestamptz), sql: by("cleave_ts_tstz", "cleave_date_ts")},
	{from: only(pgoid.Timestamp), to: only(pgoid.Date), sql: by("cleave_ts_date")},
	{from: only(pgoid.Timestamptz), to: only(pgoid.Date), sql: by("cleave_ts_date", "cleave_tstz_ts")},
	{from: only(pgoid.Timestamp), to: only(pgoid.Timestamptz), sql: by("cleave_ts_tstz")},
	{from: only(pgoid.Timestamptz), to: only(pgoid.Timestamp), sql: by("cleave_tstz_ts")},
	{from: only(pgoid.Timestamp), to: only(pgoid.Time), sql: by("cleave_ts_time")},
	{from: only(pgoid.Timestamptz), to: only(pgoid.Time), sql: by("cleave_ts_time", "cleave_tstz_ts")},
	{from: only(pgoid.JSONB), to: only(pgoid.JSON), sql: same},
	{from: only(pgoid.JSON), to: only(pgoid.JSONB), sql: input},
}

// cast converts between two types that PostgreSQL's catalogue says convert.
func (t *converter) cast(e expr, to uint32) expr {
	from := e.typ
	if value.ClassOf(to) == value.ClassNone && !pgcatalog.IsPolymorphic(to) || value.ClassOf(from) == value.ClassNone {
		cannotCast(from, to)
	}
	if pgcatalog.IsPolymorphic(to) {
		return e
	}
	r := expr{typ: to, mod: -1, constant: e.constant, notNull: e.notNull}
	for i := range castRules {
		k := &castRules[i]
		if !k.from(from) || !k.to(to) {
			continue
		}
		if k.session {
			t.noCheck("regclass and the like")
		}
		r.sql = k.sql(e.sql, from, to)
		return r
	}
	if value.ClassOf(from) != value.ClassArray || value.ClassOf(to) != value.ClassArray {
		cannotCast(from, to)
	}
	// Elements whose text stays need no cast; the vectors are written in another way.
	element := t.cast(expr{sql: "value", typ: value.Builtin.Element(from)}, value.Builtin.Element(to))
	r.sql = e.sql
	if element.sql != "value" || from == pgoid.Int2Vector || from == pgoid.OIDVector {
		r.sql = call("cleave_array_cast", e.sql, from, to)
	}
	return r
}

func cannotCast(from, to uint32) {
	fault.Raise(sqlstate.Refusal("CLV-2016", "a SQLite shard cannot cast %s to %s exactly", value.TypeName(from), value.TypeName(to)).
		WithHint("See docs/sql-sqlite.md for the casts it has."))
}

// IsReg reports whether a type is regclass or one like it, whose values print as names.
func IsReg(oid uint32) bool { return isOIDLike(oid) && oid != pgoid.OID }
