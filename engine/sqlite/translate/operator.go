package translate

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// operation is a use of an operator, or of what is written like one.
type operation struct {
	*Translator
	a  *pg.A_Expr
	op string // the operator's name
}

func (t *Translator) operatorExpr(a *pg.A_Expr) expr {
	nif := t.nullIsFalse
	if a.Kind != pg.A_Expr_Kind_AEXPR_OP_ANY && a.Kind != pg.A_Expr_Kind_AEXPR_OP_ALL {
		t.nullIsFalse = false
		defer func() { t.nullIsFalse = nif }()
	}
	o := operation{t, a, t.operatorName(a)}
	switch a.Kind {
	case pg.A_Expr_Kind_AEXPR_OP:
		return o.ordinary()
	case pg.A_Expr_Kind_AEXPR_DISTINCT, pg.A_Expr_Kind_AEXPR_NOT_DISTINCT:
		return o.distinctFrom()
	case pg.A_Expr_Kind_AEXPR_NULLIF:
		return o.nullIf()
	case pg.A_Expr_Kind_AEXPR_IN:
		return o.inList()
	case pg.A_Expr_Kind_AEXPR_LIKE, pg.A_Expr_Kind_AEXPR_ILIKE:
		l := t.expr(a.Lexpr)
		if f := a.Rexpr.GetFuncCall(); f != nil && len(f.Funcname) == 2 && f.Funcname[1].GetString_().GetSval() == "like_escape" {
			p, esc := t.expr(f.Args[0]), t.expr(f.Args[1])
			p, esc = t.coerce(p, pgoid.Text, -1, pgcatalog.Implicit), t.coerce(esc, pgoid.Text, -1, pgcatalog.Implicit)
			return t.binary(o.op, l, expr{sql: call("cleave_like_escape", p.sql, esc.sql), typ: pgoid.Text, mod: -1}, a.Location)
		}
		return t.binary(o.op, l, t.expr(a.Rexpr), a.Location)
	case pg.A_Expr_Kind_AEXPR_SIMILAR:
		fault.Refuse("CLV-2117", "SIMILAR TO")
	case pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN, pg.A_Expr_Kind_AEXPR_BETWEEN_SYM, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
		return o.between()
	case pg.A_Expr_Kind_AEXPR_OP_ANY, pg.A_Expr_Kind_AEXPR_OP_ALL:
		return o.arrayCompare(a.Kind == pg.A_Expr_Kind_AEXPR_OP_ALL)
	}
	fault.Refuse("CLV-2119", "this operator")
	return expr{}
}

// operatorName is the name of an operator of pg_catalog.
func (t *place) operatorName(a *pg.A_Expr) string {
	if len(a.Name) == 0 {
		return ""
	}
	op := a.Name[len(a.Name)-1].GetString_().GetSval()
	if schema := a.Name[0].GetString_().GetSval(); len(a.Name) == 2 && schema != catalog.SchemaPgCatalog {
		t.failAt(a.Location, sqlstate.UndefinedFunction, "operator does not exist: %s.%s", schema, op)
	}
	return op
}

// operation is an operator before or between operands.
func (t operation) ordinary() expr {
	a, op := t.a, t.op
	if a.Lexpr == nil {
		return t.prefix()
	}
	if a.Lexpr.GetRowExpr() != nil && a.Rexpr.GetSubLink().GetSubLinkType() == pg.SubLinkType_EXPR_SUBLINK {
		fault.Refuse("CLV-2114", "a comparison of a row with a subquery")
	}
	// x = NULL and the like are ordinary comparisons.
	l, r := t.expr(a.Lexpr), t.expr(a.Rexpr)
	if l.row != nil || r.row != nil {
		return t.rowCompare(op, l, r, a.Location)
	}
	return t.binary(op, l, r, a.Location)
}

func (t operation) distinctFrom() expr {
	a := t.a
	l, r := t.expr(a.Lexpr), t.expr(a.Rexpr)
	if l.row != nil || r.row != nil {
		fault.Refuse("CLV-2115", "IS DISTINCT FROM of rows")
	}
	l, r = t.unifyComparison("=", l, r, a.Location)
	word := " IS NOT "
	if a.Kind == pg.A_Expr_Kind_AEXPR_NOT_DISTINCT {
		word = " IS "
	}
	return expr{sql: "(" + comparand(l) + word + comparand(r) + ")", typ: pgoid.Bool, mod: -1, notNull: true}
}

func (t operation) nullIf() expr {
	a := t.a
	l, r := t.expr(a.Lexpr), t.expr(a.Rexpr)
	if l.lit {
		l = t.resolveText(l)
	}
	v := t.volatile
	cl, cr := t.unifyComparison("=", l, r, a.Location)
	if t.volatile != v {
		fault.Refuse("CLV-2116", "NULLIF of a volatile function")
	}
	typ := cl
	if l.typ == pgoid.Unknown || l.typ != cl.typ {
		l = typ
	}
	return expr{sql: "(CASE WHEN " + comparand(cl) + " = " + comparand(cr) + " THEN NULL ELSE " + l.sql + " END)", typ: l.typ, mod: l.mod, name: "nullif"}
}

func (t operation) between() expr {
	a := t.a
	v := t.volatile
	x := t.expr(a.Lexpr)
	if t.volatile != v {
		fault.Refuse("CLV-2118", "BETWEEN with a volatile operand")
	}
	b := a.Rexpr.GetList().GetItems()
	lo, hi := t.expr(b[0]), t.expr(b[1])
	and := func(lo, hi expr) string {
		return "(" + t.binary(">=", x, lo, a.Location).sql + " AND " + t.binary("<=", x, hi, a.Location).sql + ")"
	}
	nor := func(lo, hi expr) string {
		return "(" + t.binary("<", x, lo, a.Location).sql + " OR " + t.binary(">", x, hi, a.Location).sql + ")"
	}
	var sql string
	switch a.Kind {
	case pg.A_Expr_Kind_AEXPR_BETWEEN:
		sql = and(lo, hi)
	case pg.A_Expr_Kind_AEXPR_NOT_BETWEEN:
		sql = nor(lo, hi)
	case pg.A_Expr_Kind_AEXPR_BETWEEN_SYM:
		sql = "(" + and(lo, hi) + " OR " + and(hi, lo) + ")"
	default:
		sql = "(" + nor(lo, hi) + " AND " + nor(hi, lo) + ")"
	}
	return expr{sql: sql, typ: pgoid.Bool, mod: -1}
}

func (t operation) prefix() expr {
	a, op := t.a, t.op
	// -2147483648 and its like are one literal in meaning.
	if c := a.Rexpr.GetAConst(); c != nil && op == "-" {
		switch v := c.Val.(type) {
		case *pg.A_Const_Ival:
			i := -int64(v.Ival.GetIval())
			return expr{sql: value.Int(i).Literal(), typ: pgoid.Int4, mod: -1, constant: true, notNull: true}
		case *pg.A_Const_Fval:
			// PostgreSQL reads the number first: 9223372036854775808 is numeric.
			e := constant(c)
			if e.typ == pgoid.Int8 {
				return expr{sql: value.Int(-e.intValue).Literal(), typ: pgoid.Int8, mod: -1, constant: true, notNull: true}
			}
		}
	}
	r := t.expr(a.Rexpr)
	if r.row != nil {
		fault.Refuse("CLV-2120", "an operator on a row")
	}
	o, ambiguous := value.Builtin.Prefix(op, r.typ)
	if o == nil {
		t.noOperator(op, 0, r.typ, ambiguous, a.Location)
	}
	return t.emitOperator(o, nil, r, a.Location)
}

func (t *place) noOperator(op string, l, r uint32, ambiguous bool, loc int32) {
	name := op + " " + value.TypeName(r)
	if l != 0 {
		name = value.TypeName(l) + " " + name
	}
	if ambiguous {
		fault.Raise(t.at(loc, sqlstate.New("42725", "operator is not unique: %s", name).
			WithHint("Could not choose a best candidate operator. You might need to add explicit type casts.")))
	}
	fault.Raise(t.at(loc, sqlstate.New(sqlstate.UndefinedFunction, "operator does not exist: %s", name).
		WithHint("No operator matches the given name and argument types. You might need to add explicit type casts.")))
}

// binary translates an infix operator.
func (t *Translator) binary(op string, l, r expr, loc int32) expr {
	if l.row != nil || r.row != nil {
		return t.rowCompare(op, l, r, loc)
	}
	o, ambiguous := value.Builtin.Infix(op, l.typ, r.typ)
	if o == nil {
		t.noOperator(op, l.typ, r.typ, ambiguous, loc)
	}
	return t.emitOperator(o, &l, r, loc)
}

var comparisons = map[string]string{"=": "=", "<>": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">="}

// SameRepresentation reports whether SQLite compares values of the two types as
// PostgreSQL's cross-type operator does.
func SameRepresentation(a, b uint32) bool {
	if a == b {
		return true
	}
	ints := func(o uint32) bool { return o == pgoid.Int2 || o == pgoid.Int4 || o == pgoid.Int8 }
	texts := func(o uint32) bool { return o == pgoid.Text || o == pgoid.Varchar || o == pgoid.Name }
	return ints(a) && ints(b) || texts(a) && texts(b)
}

func (t *Translator) emitOperator(o *pgcatalog.Operator, l *expr, r expr, loc int32) expr {
	proc := value.Builtin.Function(o.Function)
	if proc == nil {
		fault.Refuse("CLV-2121", "the operator %s", o.Name)
	}
	args := []expr{r}
	in := []uint32{o.Right}
	if l != nil {
		args, in = []expr{*l, r}, []uint32{o.Left, o.Right}
	}
	want := polymorphic(in, args, o.Result)
	for i := range args {
		args[i] = t.coerce(args[i], want.args[i], -1, pgcatalog.Implicit)
	}
	e := expr{typ: want.result, mod: -1, constant: true}
	e.notNull = true
	for _, a := range args {
		e.constant = e.constant && a.constant
		e.notNull = e.notNull && a.notNull
	}
	if cmp, ok := comparisons[o.Name]; ok && l != nil && o.Result == pgoid.Bool && len(args) == 2 {
		e.sql = t.comparison(o, cmp, args[0], args[1])
		return e
	}
	em := emitters[proc.Signature()]
	if em == nil {
		fault.Raise(sqlstate.Refusal("CLV-2123", "the operator %s of %s is not supported on a SQLite shard", o.Name, proc.Signature()).
			WithHint("See docs/sql-sqlite.md, or use a PostgreSQL shard."))
	}
	if proc.Volatile == 'v' {
		t.volatile++
	}
	e.sql = em(t, args)
	return e
}

// comparison compares two values whose stored forms are ordered as PostgreSQL orders them.
func (t *converter) comparison(o *pgcatalog.Operator, cmp string, a, b expr) string {
	if mixed, ok := t.mixedDates(a, b); ok {
		a, b = mixed[0], mixed[1]
	}
	switch {
	case SameRepresentation(a.typ, b.typ) && (value.Comparable(a.typ) || value.ClassOf(a.typ) == value.ClassBpchar):
		return "(" + comparand(a) + " " + cmp + " " + comparand(b) + ")"
	case o.Left == pgoid.AnyArray && a.typ == b.typ && (cmp == "=" || cmp == "<>") && exactArray(a.typ):
		return "(" + a.sql + " " + cmp + " " + b.sql + ")"
	}
	fault.Raise(sqlstate.Refusal("CLV-2122", "a SQLite shard cannot compare %s with %s exactly", value.TypeName(a.typ), value.TypeName(b.typ)).
		WithHint("Cast both to a type that it compares: see docs/sql-sqlite.md."))
	return ""
}

// exactArray: equal arrays have equal texts.
func exactArray(oid uint32) bool {
	switch value.ClassOf(value.Builtin.Element(oid)) {
	case value.ClassInt, value.ClassText, value.ClassBlob:
		return true
	}
	return false
}

// mixedDates brings date, timestamp and timestamptz to one of them, as their
// cross-type operators do.
func (t *converter) mixedDates(a, b expr) ([2]expr, bool) {
	order := func(o uint32) int {
		switch o {
		case pgoid.Date:
			return 1
		case pgoid.Timestamp:
			return 2
		case pgoid.Timestamptz:
			return 3
		}
		return 0
	}
	x, y := order(a.typ), order(b.typ)
	if x == 0 || y == 0 || x == y {
		return [2]expr{}, false
	}
	to := a.typ
	if y > x {
		to = b.typ
	}
	conv := func(e expr) expr {
		if e.typ == to {
			return e
		}
		return t.cast(e, to)
	}
	return [2]expr{conv(a), conv(b)}, true
}

// unifyComparison converts two operands to what the comparison operator takes.
func (t *Translator) unifyComparison(op string, l, r expr, loc int32) (expr, expr) {
	o, ambiguous := value.Builtin.Infix(op, l.typ, r.typ)
	if o == nil {
		t.noOperator(op, l.typ, r.typ, ambiguous, loc)
	}
	l, r = t.coerce(l, o.Left, -1, pgcatalog.Implicit), t.coerce(r, o.Right, -1, pgcatalog.Implicit)
	if m, ok := t.mixedDates(l, r); ok {
		l, r = m[0], m[1]
	}
	if !SameRepresentation(l.typ, r.typ) || !value.Comparable(l.typ) && value.ClassOf(l.typ) != value.ClassBpchar {
		fault.Raise(sqlstate.Refusal("CLV-2122", "a SQLite shard cannot compare %s with %s exactly", value.TypeName(l.typ), value.TypeName(r.typ)).
			WithHint("Cast both to a type that it compares: see docs/sql-sqlite.md."))
	}
	return l, r
}

func (t *Translator) rowCompare(op string, l, r expr, loc int32) expr {
	if l.row == nil || r.row == nil {
		fault.Refuse("CLV-2124", "a comparison of a row with another kind of value")
	}
	if len(l.row) != len(r.row) {
		t.failAt(loc, sqlstate.SyntaxError, "unequal number of entries in row expressions")
	}
	if len(l.row) == 0 {
		t.failAt(loc, sqlstate.FeatureNotSupported, "cannot compare rows of zero length")
	}
	switch op {
	case "=", "<>":
		parts := make([]string, len(l.row))
		for i := range l.row {
			parts[i] = t.binary(op, l.row[i], r.row[i], loc).sql
		}
		word := " AND "
		if op == "<>" {
			word = " OR "
		}
		return expr{sql: balanced(parts, word), typ: pgoid.Bool, mod: -1}
	case "<", ">", "<=", ">=":
		a, b := make([]string, len(l.row)), make([]string, len(l.row))
		for i := range l.row {
			x, y := t.unifyComparison(op, l.row[i], r.row[i], loc)
			a[i], b[i] = comparand(x), comparand(y)
		}
		if len(a) == 1 {
			return expr{sql: "(" + a[0] + " " + op + " " + b[0] + ")", typ: pgoid.Bool, mod: -1}
		}
		return expr{sql: "((" + strings.Join(a, ", ") + ") " + op + " (" + strings.Join(b, ", ") + "))", typ: pgoid.Bool, mod: -1}
	}
	fault.Refuse("CLV-2125", "the operator %s on rows", op)
	return expr{}
}

func (t operation) inList() expr {
	a, op := t.a, t.op
	v := t.volatile
	x := t.expr(a.Lexpr)
	if t.volatile != v {
		fault.Refuse("CLV-2126", "IN with a volatile operand")
	}
	items := t.exprs(a.Rexpr.GetList().GetItems())
	not := op == "<>"
	if x.row != nil {
		return t.rowInList(x, items, not, a.Location)
	}
	if x.typ == pgoid.Unknown && x.lit && !slices.ContainsFunc(items, func(it expr) bool { return it.typ != pgoid.Unknown }) {
		x = t.resolveText(x)
	}
	// One common type if there is one; else comparison by comparison.
	all := append([]expr{x}, items...)
	if typ, ok := t.tryCommon(all); ok && len(items) > 1 || ok && items[0].typ == pgoid.Unknown {
		if value.Comparable(typ) || value.ClassOf(typ) == value.ClassBpchar {
			return t.inListOf(typ, x, items, not)
		}
	}
	parts := make([]string, len(items))
	word := " OR "
	if not {
		word = " AND "
	}
	for i, it := range items {
		parts[i] = t.binary(op, x, it, a.Location).sql
	}
	return expr{sql: balanced(parts, word), typ: pgoid.Bool, mod: -1}
}

// rowInList compares a row with each of a list.
func (t operation) rowInList(x expr, items []expr, not bool, location int32) expr {
	parts := make([]string, len(items))
	for i, it := range items {
		parts[i] = t.rowCompare("=", x, it, location).sql
	}
	sql := balanced(parts, " OR ")
	if not {
		sql = "(NOT " + sql + ")"
	}
	return expr{sql: sql, typ: pgoid.Bool, mod: -1}
}

// inListOf is SQLite's IN of values of one type.
func (t *converter) inListOf(typ uint32, x expr, items []expr, not bool) expr {
	parts := make([]string, len(items))
	x = t.coerce(x, typ, -1, pgcatalog.Implicit)
	for i := range items {
		parts[i] = comparand(t.coerce(items[i], typ, -1, pgcatalog.Implicit))
	}
	word := " IN ("
	if not {
		word = " NOT IN ("
	}
	return expr{sql: "(" + comparand(x) + word + strings.Join(parts, ", ") + "))", typ: pgoid.Bool, mod: -1}
}

// tryCommon returns the common type of a list, if all convert to it implicitly.
func (t *converter) tryCommon(list []expr) (typ uint32, ok bool) {
	typ, other := value.Builtin.Common(typesOf(list))
	if other != 0 {
		return 0, false
	}
	for _, e := range list {
		if !value.Builtin.CanCoerce(e.typ, typ, pgcatalog.Implicit) {
			return 0, false
		}
	}
	return typ, true
}

// arrayCompare is x op ANY (array) and x op ALL (array).
func (t operation) arrayCompare(all bool) expr {
	a, op := t.a, t.op
	nif := t.nullIsFalse
	t.nullIsFalse = false
	x, arr := t.expr(a.Lexpr), t.expr(a.Rexpr)
	t.nullIsFalse = nif
	if !(op == "=" && !all || op == "<>" && all) {
		fault.Refuse("CLV-2127", "the operator %s with ANY or ALL of an array", op)
	}
	if arr.typ == pgoid.Unknown {
		if x.typ == pgoid.Unknown {
			x = t.resolveText(x)
		}
		at := value.Builtin.Array(x.typ)
		if x.typ == pgoid.Varchar {
			at = pgoid.TextArray
		}
		if at == 0 {
			fault.Refuse("CLV-2057", "an array of %s", value.TypeName(x.typ))
		}
		arr = t.coerce(arr, at, -1, pgcatalog.Implicit)
	}
	elem := value.Builtin.Element(arr.typ)
	if elem == 0 {
		t.failAt(a.Location, sqlstate.WrongObjectType, "op ANY/ALL (array) requires array on right side")
	}
	el := expr{sql: value.ElemFromJSON(elem, "value"), typ: elem, mod: -1}
	l, r := t.unifyComparison(op, x, el, a.Location)
	word := " IN "
	if all {
		word = " NOT IN "
	}
	sql := "(" + comparand(l) + word + "(SELECT " + comparand(r) + " FROM json_each(" + call("cleave_array_json", arr.typ, arr.sql) + ")))"
	if !(nif && !all) && !arr.notNull {
		sql = "(CASE WHEN " + arr.sql + " IS NULL THEN NULL ELSE " + sql + " END)"
	}
	return expr{sql: sql, typ: pgoid.Bool, mod: -1}
}

// resolved is a signature with its polymorphic types replaced.
type resolved struct {
	args   []uint32
	result uint32
}

// polymorphic replaces anyelement and its family (PostgreSQL manual, section
// "Polymorphic Types").
func polymorphic(params []uint32, args []expr, result uint32) resolved {
	types, returns, ok := value.Builtin.Bind(params, typesOf(args), result)
	if !ok {
		fault.Raisef(sqlstate.DatatypeMismatch, "could not determine polymorphic type because input has type unknown")
	}
	return resolved{args: types, result: returns}
}
