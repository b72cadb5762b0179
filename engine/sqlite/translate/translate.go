package translate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// place is the text of a statement, for the positions of errors in it.
type place struct{ text string }

// resolver finds tables and types by their names.
type resolver struct {
	place
	Names *catalog.Namespace
}

// scopes finds columns, among the tables of the SELECT and of those around it.
type scopes struct {
	resolver
	scope *scope
}

// converter gives expressions other types, and parameters their first one.
type converter struct {
	scopes
	loc     *time.Location
	params  []uint32 // by number; 0 is not determined yet
	fixed   bool     // no parameters at all (simple protocol)
	inCheck bool     // a CHECK, index predicate or default: no subqueries, no parameters
}

// Translator turns one statement's syntax tree into SQLite SQL. It stops by package fault at the first error.
type Translator struct {
	converter
	aliases  int
	depth    int
	systems  map[*catalog.System]bool // catalogue relations that must be filled
	volatile int                      // calls of volatile functions met so far
	writes   bool                     // nextval and its like
	locks    bool                     // FOR UPDATE
	reads    map[uint32]bool          // tables read in FROM
	// nullIsFalse is set where NULL and false have the same effect.
	nullIsFalse bool
}

// New translates a statement, or a part of one, for a conversation to which the names mean something.
func New(names *catalog.Namespace, zone *time.Location, text string) *Translator {
	return &Translator{converter: converter{scopes: scopes{resolver: resolver{place: place{text}, Names: names}}, loc: zone},
		systems: map[*catalog.System]bool{}, reads: map[uint32]bool{}}
}

// at adds the position of a node to an error that has none.
func (t *place) at(loc int32, err error) error {
	e := sqlstate.As(err)
	if e.Position == 0 && loc >= 0 && int(loc) <= len(t.text) {
		c := *e
		c.Position = 1 + len([]rune(t.text[:loc]))
		return &c
	}
	return err
}

func (t *place) failAt(loc int32, code sqlstate.Code, format string, args ...any) {
	fault.Raise(t.at(loc, sqlstate.New(code, format, args...)))
}

// expr is a typed SQLite expression. sql is atomic: a name, literal, call or
// parenthesised.
type expr struct {
	sql   string
	typ   uint32
	mod   int32
	param int   // > 0: parameter whose type is still open (typ is unknown)
	lit   bool  // untyped literal (typ is unknown); text holds it
	place int32 // 1 + where the literal is in the statement; 0 if that is not known
	null  bool  // the literal NULL
	text  string
	name  string // the column name that PostgreSQL would give it

	table     uint32 // where the column comes from, for RowDescription
	attnum    int16
	notNull   bool
	constant  bool
	row       []expr // ROW(...)
	integer   bool   // an integer literal, for ORDER BY 1
	intValue  int64
	aggregate bool
	weakName  bool // the name is a cast's or CASE's: an outer cast replaces it
}

func (t *Translator) alias() string {
	t.aliases++
	return "r" + strconv.Itoa(t.aliases)
}

func (t *converter) literal(oid uint32, mod int32, d value.Datum) expr {
	return expr{sql: d.Literal(), typ: oid, mod: mod, constant: true, notNull: d.Kind != 0}
}

func untyped(s string) expr {
	return expr{sql: quote.Text(s), typ: pgoid.Unknown, mod: -1, lit: true, text: s, name: "?column?", constant: true}
}

func nullExpr() expr {
	return expr{sql: "NULL", typ: pgoid.Unknown, mod: -1, lit: true, null: true, name: "?column?", constant: true}
}

// maxDepth bounds the nesting of the tree that is walked; SQLite's own bound on
// expression depth is 1000.
const maxDepth = 400

func (t *Translator) enter() {
	if t.depth++; t.depth > maxDepth {
		fault.Raisef(sqlstate.StatementTooComplex, "statement is nested more than %d levels deep", maxDepth)
	}
}

func (t *Translator) leave() { t.depth-- }

// resolveText gives an expression that is still untyped the type text.
func (t *converter) resolveText(e expr) expr {
	if e.typ == pgoid.Unknown {
		name := e.name
		e = t.coerce(e, pgoid.Text, -1, pgcatalog.Implicit)
		e.name = name
	}
	return e
}

// coerce converts to a type, or fails with PostgreSQL's error.
func (t *converter) coerce(e expr, oid uint32, mod int32, ctx pgcatalog.CastContext) expr {
	r, ok := t.tryCoerce(e, oid, mod, ctx)
	if !ok {
		fault.Raisef(sqlstate.CannotCoerce, "cannot cast type %s to %s", value.TypeName(e.typ), value.TypeName(oid))
	}
	return r
}

func (t *converter) tryCoerce(e expr, oid uint32, mod int32, ctx pgcatalog.CastContext) (expr, bool) {
	if e.row != nil {
		return e, false
	}
	name := e.name
	if e.param > 0 && e.typ == pgoid.Unknown {
		return t.coerceParam(e, oid, mod, ctx), true
	}
	if e.lit && e.typ == pgoid.Unknown {
		return t.coerceLiteral(e, oid, mod, ctx), true
	}
	if e.typ == oid {
		e.name = name
		if mod >= 0 && mod != e.mod {
			return t.applyTypmod(e, mod, ctx), true
		}
		return e, true
	}
	if !value.Builtin.CanCoerce(e.typ, oid, ctx) {
		return e, false
	}
	r := t.cast(e, oid)
	r.name = name
	return t.applyTypmod(r, mod, ctx), true
}

// coerceParam gives a parameter without a type the one that is wanted.
func (t *converter) coerceParam(e expr, oid uint32, mod int32, ctx pgcatalog.CastContext) expr {
	have := t.params[e.param-1]
	if have != 0 && have != oid {
		fault.Raise(sqlstate.New("42P08", "inconsistent types deduced for parameter $%d", e.param).
			WithDetail("%s versus %s", value.TypeName(have), value.TypeName(oid)))
	}
	if oid == pgoid.Unknown {
		return e
	}
	t.params[e.param-1] = oid
	if value.ClassOf(oid) == value.ClassNone {
		fault.Raise(noValues(oid))
	}
	return t.applyTypmod(expr{sql: e.sql, typ: oid, mod: -1, name: e.name}, mod, ctx)
}

// coerceLiteral reads a literal without a type as the one that is wanted.
func (t *converter) coerceLiteral(e expr, oid uint32, mod int32, ctx pgcatalog.CastContext) expr {
	if oid == pgoid.Unknown {
		return e
	}
	if value.ClassOf(oid) == value.ClassNone && !pgcatalog.IsPolymorphic(oid) {
		fault.Raise(noValues(oid))
	}
	if e.null {
		return expr{sql: "NULL", typ: oid, mod: mod, name: e.name, constant: true}
	}
	d, err := t.input(oid, e.text)
	if err != nil {
		fault.Raise(t.at(e.place-1, err))
	}
	r := t.literal(oid, -1, d)
	r.name, r.text = e.name, e.text
	return t.applyTypmod(r, mod, explicitOrAssign(ctx))
}

// noValues is the error of a type whose values no column and no expression of a file has.
func noValues(oid uint32) *sqlstate.Error {
	return sqlstate.Refusal("CLV-2065", "a SQLite shard has no values of type %s", value.TypeName(oid)).
		WithHint("See docs/sql-sqlite.md for the types it has.")
}

// explicitOrAssign: a literal's length is enforced as in an assignment unless
// the cast is explicit.
func explicitOrAssign(ctx pgcatalog.CastContext) pgcatalog.CastContext {
	if ctx == pgcatalog.Explicit {
		return pgcatalog.Explicit
	}
	return pgcatalog.Assignment
}

// input reads a literal of a type while the statement is translated.
func (t *converter) input(oid uint32, text string) (value.Datum, error) {
	switch oid {
	case pgoid.Regclass, pgoid.Regtype, pgoid.Regnamespace, pgoid.Regproc, pgoid.Regprocedure, pgoid.Regrole, pgoid.Regcollation, pgoid.Regoper, pgoid.Regoperator:
		i, err := t.Names.RegIn(oid, text)
		return value.Int(i), err
	}
	if err := value.CheckText(text); err != nil {
		return value.Datum{}, err
	}
	return value.In(oid, text, t.loc)
}

// ApplyTypmod enforces a length, precision or scale.
func (t *converter) applyTypmod(e expr, mod int32, ctx pgcatalog.CastContext) expr {
	if mod < 0 {
		return e
	}
	explicit := ctx == pgcatalog.Explicit
	switch e.typ {
	case pgoid.Varchar:
		if explicit {
			e.sql = fmt.Sprintf("substr(%s, 1, %d)", e.sql, mod-4)
		} else {
			e.sql = fmt.Sprintf("cleave_varchar(%s, %d)", e.sql, mod-4)
		}
	case pgoid.Bpchar:
		e.sql = fmt.Sprintf("cleave_bpchar(%s, %d, %d)", e.sql, mod-4, value.Bool(explicit).Int)
	case pgoid.Numeric:
		e.sql = fmt.Sprintf("cleave_num_typmod(%s, %d)", e.sql, mod)
	case pgoid.Timestamp, pgoid.Timestamptz, pgoid.Time:
		e.sql = fmt.Sprintf("cleave_ts_round(%s, %d)", e.sql, mod)
	case pgoid.Interval:
		fault.Refuse("CLV-2179", "interval with a precision")
	default:
		if value.ClassOf(e.typ) != value.ClassArray {
			return e
		}
		e.sql = call("cleave_array_fit", e.typ, e.sql, mod)
	}
	e.mod = mod
	return e
}

func call(fn string, args ...any) string {
	var b strings.Builder
	b.WriteString(fn)
	b.WriteByte('(')
	for i, a := range args {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, a)
	}
	b.WriteByte(')')
	return b.String()
}

func (t *converter) noCheck(what string) {
	if t.inCheck {
		fault.Refuse("CLV-2180", "%s in a constraint or default", what)
	}
}

// commonType is the type that UNION, CASE, VALUES and their
// like give their columns.
func (t *converter) commonType(list []expr, what string) uint32 {
	typ, other := value.Builtin.Common(typesOf(list))
	if other != 0 {
		fault.Raisef(sqlstate.DatatypeMismatch, "%s types %s and %s cannot be matched", what, value.TypeName(typ), value.TypeName(other))
	}
	return typ
}

func typesOf(list []expr) []uint32 {
	types := make([]uint32, len(list))
	for i, e := range list {
		types[i] = e.typ
	}
	return types
}

// toCommon converts a list to its common type.
func (t *converter) toCommon(list []expr, what string) (uint32, int32) {
	typ := t.commonType(list, what)
	mod, first := int32(-1), true
	for i := range list {
		if list[i].typ == typ {
			if first {
				mod, first = list[i].mod, false
			} else if list[i].mod != mod {
				mod = -1
			}
		} else {
			mod, first = -1, false
		}
		list[i] = t.coerce(list[i], typ, -1, pgcatalog.Implicit)
	}
	return typ, mod
}

// collate appends the collation that makes SQLite compare the type as
// PostgreSQL does, and strips what does not count.
func comparand(e expr) string {
	switch value.ClassOf(e.typ) {
	case value.ClassNumeric:
		return "(" + e.sql + " COLLATE cleave_numeric)"
	case value.ClassBpchar:
		return "rtrim(" + e.sql + ", ' ')"
	}
	return e.sql
}

// typmod is the modifier that a type's name gives, -1 for none.
func (t *resolver) typmod(n *pg.TypeName, name string, ty *pgcatalog.Type) int32 {
	mods := make([]int64, 0, 2)
	for _, m := range n.Typmods {
		v, ok := syntax.Int(m)
		if !ok {
			t.failAt(n.Location, sqlstate.SyntaxError, "type modifiers must be simple constants or identifiers")
		}
		mods = append(mods, v)
	}
	if len(mods) == 0 {
		return -1
	}
	bound := func(lo, hi int64) {
		if len(mods) != 1 {
			t.failAt(n.Location, sqlstate.InvalidParameterValue, "invalid type modifier")
		}
		if mods[0] < lo {
			t.failAt(n.Location, sqlstate.InvalidParameterValue, "length for type %s must be at least %d", map[bool]string{true: "char", false: name}[name == "bpchar"], lo)
		}
		if mods[0] > hi {
			t.failAt(n.Location, sqlstate.InvalidParameterValue, "length for type %s cannot exceed %d", map[bool]string{true: "char", false: name}[name == "bpchar"], hi)
		}
	}
	switch ty.OID {
	case pgoid.Varchar, pgoid.Bpchar:
		bound(1, 10485760)
		return int32(mods[0]) + 4
	case pgoid.Numeric:
		return t.numericTypmod(n, mods)
	case pgoid.Timestamp, pgoid.Timestamptz, pgoid.Time:
		if mods[0] < 0 {
			t.failAt(n.Location, sqlstate.InvalidParameterValue, "%s precision must not be negative", strings.ToUpper(name))
		}
		return int32(min(mods[0], 6))
	case pgoid.Interval:
		fault.Refuse("CLV-2184", "interval with fields or a precision")
	default:
		if ty.OID == 1560 || ty.OID == 1562 || ty.OID == pgoid.Timetz {
			fault.Refuse("CLV-2185", "the type %s", value.TypeName(ty.OID))
		}
		t.failAt(n.Location, sqlstate.SyntaxError, "type modifier is not allowed for type \"%s\"", name)
	}
	return -1
}

// numericTypmod is the modifier of numeric(precision, scale).
func (t *resolver) numericTypmod(n *pg.TypeName, mods []int64) int32 {
	p, s := mods[0], int64(0)
	if len(mods) == 2 {
		s = mods[1]
	}
	if len(mods) > 2 {
		t.failAt(n.Location, sqlstate.InvalidParameterValue, "invalid NUMERIC type modifier")
	}
	if p < 1 || p > 1000 {
		t.failAt(n.Location, sqlstate.InvalidParameterValue, "NUMERIC precision %d must be between 1 and 1000", p)
	}
	if s < -1000 || s > 1000 {
		t.failAt(n.Location, sqlstate.InvalidParameterValue, "NUMERIC scale %d must be between -1000 and 1000", s)
	}
	return value.MakeNumericTypmod(int(p), int(s))
}

// TypeOf resolves a type name.
func (t *resolver) TypeOf(n *pg.TypeName) (uint32, int32) {
	if n == nil {
		fault.Raisef(sqlstate.SyntaxError, "a type name is missing")
	}
	if n.PctType {
		fault.Refuse("CLV-2181", "%%TYPE")
	}
	if n.Setof {
		fault.Refuse("CLV-2182", "SETOF")
	}
	var parts []string
	for _, p := range n.Names {
		parts = append(parts, p.GetString_().GetSval())
	}
	name := parts[len(parts)-1]
	if len(parts) == 2 {
		t.checkSchema(parts[0], n.Location)
	}
	ty := value.Builtin.TypeNamed(name)
	if ty == nil || len(parts) > 2 || len(parts) == 2 && parts[0] != catalog.SchemaPgCatalog {
		if strings.HasSuffix(name, "serial") {
			fault.Refuse("CLV-2183", "the type %s here", name)
		}
		t.failAt(n.Location, sqlstate.UndefinedObject, "type \"%s\" does not exist", strings.Join(parts, "."))
	}
	mod := t.typmod(n, name, ty)
	if len(n.ArrayBounds) > 0 {
		if ty.Array == 0 {
			t.failAt(n.Location, sqlstate.UndefinedObject, "type \"%s[]\" does not exist", name)
		}
		return ty.Array, mod
	}
	return ty.OID, mod
}

// checkSchema wants a schema that exists.
func (t *resolver) checkSchema(name string, location int32) {
	if name == catalog.SchemaPgCatalog || name == catalog.SchemaPublic {
		return
	}
	if _, ok := t.Names.Catalog.Schemas[name]; !ok {
		t.failAt(location, sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", name)
	}
}
