package translate

import (
	"fmt"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// expr translates an expression. Grouping is checked on the way: an expression
// that equals a GROUP BY expression takes back the columns it used.
func (t *Translator) expr(n *pg.Node) expr {
	t.enter()
	defer t.leave()
	var sel *selectState
	mark := 0
	if t.scope != nil {
		sel = t.scope.sel
		mark = len(sel.ungrouped)
	}
	e := t.exprNode(n)
	if sel != nil && len(sel.ungrouped) > mark && sel.groupSQL[e.sql] {
		sel.ungrouped = sel.ungrouped[:mark]
	}
	return e
}

func (t *Translator) exprNode(n *pg.Node) expr {
	switch x := n.GetNode().(type) {
	case *pg.Node_AConst:
		return constant(x.AConst)
	case *pg.Node_ColumnRef:
		return t.columnRef(x.ColumnRef)
	case *pg.Node_ParamRef:
		return t.param(x.ParamRef)
	case *pg.Node_AExpr:
		e := t.operatorExpr(x.AExpr)
		if e.name == "" {
			e.name = "?column?"
		}
		return e
	case *pg.Node_BoolExpr:
		return t.boolExpr(x.BoolExpr)
	case *pg.Node_NullTest:
		a := t.expr(x.NullTest.Arg)
		if a.row != nil {
			fault.Refuse("CLV-2058", "IS NULL of a row")
		}
		if a.lit {
			a = t.resolveText(a)
		}
		op := " IS NULL)"
		if x.NullTest.Nulltesttype == pg.NullTestType_IS_NOT_NULL {
			op = " IS NOT NULL)"
		}
		return expr{sql: "(" + a.sql + op, typ: pgoid.Bool, mod: -1, name: "?column?", notNull: true}
	case *pg.Node_BooleanTest:
		a := t.boolean(x.BooleanTest.Arg, "IS TRUE")
		op := map[pg.BoolTestType]string{
			pg.BoolTestType_IS_TRUE: " IS TRUE)", pg.BoolTestType_IS_NOT_TRUE: " IS NOT TRUE)",
			pg.BoolTestType_IS_FALSE: " IS FALSE)", pg.BoolTestType_IS_NOT_FALSE: " IS NOT FALSE)",
			pg.BoolTestType_IS_UNKNOWN: " IS NULL)", pg.BoolTestType_IS_NOT_UNKNOWN: " IS NOT NULL)",
		}[x.BooleanTest.Booltesttype]
		return expr{sql: "(" + a.sql + op, typ: pgoid.Bool, mod: -1, name: "?column?", notNull: true}
	case *pg.Node_TypeCast:
		return t.typeCast(x.TypeCast)
	case *pg.Node_FuncCall:
		return t.funcCall(x.FuncCall)
	case *pg.Node_CaseExpr:
		return t.caseExpr(x.CaseExpr)
	case *pg.Node_CoalesceExpr:
		list := t.exprs(x.CoalesceExpr.Args)
		typ, mod := t.toCommon(list, "COALESCE")
		parts := make([]string, len(list))
		for i, e := range list {
			parts[i] = e.sql
		}
		sql := parts[0]
		if len(parts) > 1 {
			sql = "coalesce(" + strings.Join(parts, ", ") + ")"
		}
		return expr{sql: sql, typ: typ, mod: mod, name: "coalesce"}
	case *pg.Node_MinMaxExpr:
		name := "greatest"
		if x.MinMaxExpr.Op == pg.MinMaxOp_IS_LEAST {
			name = "least"
		}
		list := t.exprs(x.MinMaxExpr.Args)
		typ, mod := t.toCommon(list, strings.ToUpper(name))
		if !value.Comparable(typ) {
			fault.Refuse("CLV-2059", "%s of %s", strings.ToUpper(name), value.TypeName(typ))
		}
		args := []any{int(value.ClassOf(typ))}
		for _, e := range list {
			args = append(args, e.sql)
		}
		return expr{sql: call("cleave_"+name, args...), typ: typ, mod: mod, name: name}
	case *pg.Node_SubLink:
		return t.subLink(x.SubLink)
	case *pg.Node_SqlvalueFunction:
		return t.sqlValue(x.SqlvalueFunction)
	case *pg.Node_CollateClause:
		return t.collateClause(x.CollateClause)
	case *pg.Node_AArrayExpr:
		return t.arrayExpr(x.AArrayExpr, 0, -1)
	case *pg.Node_AIndirection:
		return t.indirection(x.AIndirection)
	case *pg.Node_RowExpr:
		list := t.exprs(x.RowExpr.Args)
		return expr{row: list, typ: pgoid.Record, mod: -1, name: "row", sql: "row"}
	case *pg.Node_SetToDefault:
		t.failAt(x.SetToDefault.Location, sqlstate.SyntaxError, "DEFAULT is not allowed in this context")
	case *pg.Node_NamedArgExpr:
		fault.Refuse("CLV-2060", "a function call with named arguments")
	case *pg.Node_GroupingFunc:
		fault.Refuse("CLV-2061", "GROUPING")
	}
	fault.Refuse("CLV-2062", "this expression (%s)", strings.TrimPrefix(fmt.Sprintf("%T", n.GetNode()), "*pg_query.Node_"))
	return expr{}
}

func (t *Translator) exprs(list []*pg.Node) []expr {
	out := make([]expr, len(list))
	for i, n := range list {
		out[i] = t.expr(n)
	}
	return out
}

func constant(c *pg.A_Const) expr {
	if c.Isnull {
		return nullExpr()
	}
	switch v := c.Val.(type) {
	case *pg.A_Const_Ival:
		i := int64(v.Ival.GetIval())
		return expr{sql: strconv.FormatInt(i, 10), typ: pgoid.Int4, mod: -1, name: "?column?", constant: true, notNull: true, integer: true, intValue: i}
	case *pg.A_Const_Fval:
		s := v.Fval.GetFval()
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			// The grammar folds the sign of -2147483648, which then fits again.
			if i == int64(int32(i)) {
				return expr{sql: "(" + s + ")", typ: pgoid.Int4, mod: -1, name: "?column?", constant: true, notNull: true}
			}
			return expr{sql: s, typ: pgoid.Int8, mod: -1, name: "?column?", constant: true, notNull: true, intValue: i}
		}
		n, err := value.ParseNumeric(s)
		if err != nil {
			fault.Raise(err)
		}
		return expr{sql: quote.Text(n.String()), typ: pgoid.Numeric, mod: -1, name: "?column?", constant: true, notNull: true}
	case *pg.A_Const_Boolval:
		return expr{sql: value.Bool(v.Boolval.GetBoolval()).Literal(), typ: pgoid.Bool, mod: -1, name: "?column?", constant: true, notNull: true}
	case *pg.A_Const_Sval:
		if err := value.CheckText(v.Sval.GetSval()); err != nil {
			fault.Raise(err)
		}
		e := untyped(v.Sval.GetSval())
		e.place = c.Location + 1
		return e
	}
	fault.Refuse("CLV-2063", "a bit string")
	return expr{}
}

func (t *scopes) columnRef(c *pg.ColumnRef) expr {
	var parts []string
	for _, f := range c.Fields {
		if f.GetAStar() != nil {
			if len(c.Fields) > 1 {
				fault.Refuse("CLV-2064", "a reference to a whole row")
			}
			t.failAt(c.Location, sqlstate.SyntaxError, "row expansion via \"*\" is not supported here")
		}
		parts = append(parts, f.GetString_().GetSval())
	}
	if t.scope == nil {
		t.failAt(c.Location, sqlstate.UndefinedColumn, "column \"%s\" does not exist", parts[len(parts)-1])
	}
	// A function or single-column entry can be named as a whole.
	if len(parts) == 1 {
		for s := t.scope; s != nil; s = s.parent {
			whole := false
			for _, r := range s.rtes {
				for i := range r.cols {
					if r.cols[i].name == parts[0] && !r.cols[i].hidden {
						return t.column(parts, c.Location)
					}
				}
				whole = whole || r.alias == parts[0] && !s.hidden
			}
			if whole {
				fault.Refuse("CLV-2064", "a reference to a whole row")
			}
		}
	}
	return t.column(parts, c.Location)
}

func (t *converter) param(p *pg.ParamRef) expr {
	n := int(p.Number)
	if t.inCheck || t.fixed || n < 1 || n > 32766 {
		if n > 32766 {
			fault.Raisef("54023", "a SQLite shard takes at most 32766 parameters")
		}
		t.failAt(p.Location, sqlstate.UndefinedParameter, "there is no parameter $%d", n)
	}
	for len(t.params) < n {
		t.params = append(t.params, 0)
	}
	typ := t.params[n-1]
	e := expr{sql: "?" + strconv.Itoa(n), typ: typ, mod: -1, param: n, name: "?column?", constant: true}
	if typ == 0 {
		e.typ = pgoid.Unknown
	} else if value.ClassOf(typ) == value.ClassNone {
		fault.Raise(noValues(typ))
	}
	return e
}

func (t *Translator) boolean(n *pg.Node, where string) expr {
	e := t.expr(n)
	return t.toBoolean(e, where, nodeLocation(n))
}

func (t *converter) toBoolean(e expr, where string, loc int32) expr {
	if e.typ == pgoid.Bool {
		return e
	}
	r, ok := t.tryCoerce(e, pgoid.Bool, -1, pgcatalog.Implicit)
	if !ok {
		t.failAt(loc, sqlstate.DatatypeMismatch, "argument of %s must be type boolean, not type %s", where, value.TypeName(e.typ))
	}
	return r
}

func (t *Translator) boolExpr(b *pg.BoolExpr) expr {
	nif := t.nullIsFalse
	defer func() { t.nullIsFalse = nif }()
	switch b.Boolop {
	case pg.BoolExprType_NOT_EXPR:
		t.nullIsFalse = false
		a := t.boolean(b.Args[0], "NOT")
		return expr{sql: "(NOT " + a.sql + ")", typ: pgoid.Bool, mod: -1, name: "?column?", notNull: a.notNull}
	}
	op, where := " AND ", "AND"
	if b.Boolop == pg.BoolExprType_OR_EXPR {
		op, where = " OR ", "OR"
	}
	parts := make([]string, len(b.Args))
	notNull := true
	for i, n := range b.Args {
		a := t.boolean(n, where)
		parts[i] = a.sql
		notNull = notNull && a.notNull
	}
	return expr{sql: balanced(parts, op), typ: pgoid.Bool, mod: -1, name: "?column?", notNull: notNull}
}

// balanced joins operands so that SQLite's tree stays shallow.
func balanced(parts []string, op string) string {
	if len(parts) <= 32 {
		return "(" + strings.Join(parts, op) + ")"
	}
	mid := len(parts) / 2
	return "(" + balanced(parts[:mid], op) + op + balanced(parts[mid:], op) + ")"
}

func (t *Translator) typeCast(c *pg.TypeCast) expr {
	if whole, mod, ok := intervalOfUnit(c); ok {
		e := t.typeCast(whole)
		e.mod = mod
		return e
	}
	oid, mod := t.TypeOf(c.TypeName)
	if a := c.Arg.GetAArrayExpr(); a != nil && value.Builtin.Element(oid) != 0 {
		e := t.arrayExpr(a, value.Builtin.Element(oid), mod)
		e = t.coerce(e, oid, mod, pgcatalog.Explicit)
		e.name = "array"
		return e
	}
	a := t.expr(c.Arg)
	name := a.name
	weak := name == "" || name == "?column?" || a.lit || a.weakName
	if weak {
		// A cast names its column after the type unless the operand has a name.
		name = syntax.LastName(c.TypeName)
	}
	if a.row != nil {
		fault.Refuse("CLV-2066", "a cast of a row")
	}
	from := a.typ
	r, ok := t.tryCoerce(a, oid, mod, pgcatalog.Explicit)
	if !ok {
		t.failAt(c.Location, sqlstate.CannotCoerce, "cannot cast type %s to %s", value.TypeName(from), value.TypeName(oid))
	}
	r.name, r.weakName = name, weak
	r.table, r.attnum = 0, 0
	r.integer = false
	if from == oid && (mod < 0 && a.mod < 0 || mod == a.mod) {
		r.table, r.attnum = a.table, a.attnum
	}
	if mod < 0 {
		r.mod = -1 // a cast to the bare type forgets the modifier
	}
	return r
}

func (t *Translator) caseExpr(c *pg.CaseExpr) expr {
	nif := t.nullIsFalse
	t.nullIsFalse = false
	defer func() { t.nullIsFalse = nif }()
	var arg *expr
	if c.Arg != nil {
		v := t.volatile
		a := t.expr(c.Arg)
		if a.lit {
			a = t.resolveText(a)
		}
		if t.volatile != v {
			fault.Refuse("CLV-2067", "CASE with a volatile operand")
		}
		arg = &a
	}
	var conds []string
	var results []expr
	for _, w := range c.Args {
		when := w.GetCaseWhen()
		if arg != nil {
			v := t.expr(when.Expr)
			conds = append(conds, t.binary("=", *arg, v, when.Location).sql)
		} else {
			conds = append(conds, t.boolean(when.Expr, "CASE/WHEN").sql)
		}
		results = append(results, t.expr(when.Result))
	}
	name, weak := "case", true
	var all []expr
	if c.Defresult != nil {
		d := t.expr(c.Defresult)
		if d.name != "" && d.name != "?column?" && !d.weakName {
			name, weak = d.name, false
		}
		all = append([]expr{d}, results...)
	} else {
		all = append([]expr{nullExpr()}, results...)
	}
	typ, mod := t.toCommon(all, "CASE")
	var b strings.Builder
	b.WriteString("(CASE")
	for i := range conds {
		b.WriteString(" WHEN " + conds[i] + " THEN " + all[i+1].sql)
	}
	if c.Defresult != nil {
		b.WriteString(" ELSE " + all[0].sql)
	}
	b.WriteString(" END)")
	return expr{sql: b.String(), typ: typ, mod: mod, name: name, weakName: weak}
}

func (t *Translator) collateClause(c *pg.CollateClause) expr {
	e := t.expr(c.Arg)
	name := c.Collname[len(c.Collname)-1].GetString_().GetSval()
	e = t.resolveText(e)
	switch value.ClassOf(e.typ) {
	case value.ClassText, value.ClassBpchar:
	default:
		t.failAt(c.Location, sqlstate.DatatypeMismatch, "collations are not supported by type %s", value.TypeName(e.typ))
	}
	switch name {
	case "C", "POSIX", "default", "ucs_basic":
		return e
	}
	fault.Raise(sqlstate.Refusal("CLV-2035", `a SQLite shard orders text by bytes (COLLATE "C") only`).
		WithHint("Leave the COLLATE clause out, or use a PostgreSQL shard."))
	return e
}

func (t *Translator) sqlValue(f *pg.SQLValueFunction) expr {
	mk := func(sql string, typ uint32, name string) expr {
		return expr{sql: sql, typ: typ, mod: -1, name: name, constant: true, notNull: true}
	}
	var e expr
	switch f.Op {
	case pg.SQLValueFunctionOp_SVFOP_CURRENT_DATE:
		e = mk("cleave_ts_date(cleave_tstz_ts(cleave_now()))", pgoid.Date, "current_date")
	case pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP, pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP_N:
		e = mk("cleave_now()", pgoid.Timestamptz, "current_timestamp")
	case pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP, pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP_N:
		e = mk("cleave_tstz_ts(cleave_now())", pgoid.Timestamp, "localtimestamp")
	case pg.SQLValueFunctionOp_SVFOP_LOCALTIME, pg.SQLValueFunctionOp_SVFOP_LOCALTIME_N:
		e = mk("cleave_ts_time(cleave_tstz_ts(cleave_now()))", pgoid.Time, "localtime")
	case pg.SQLValueFunctionOp_SVFOP_CURRENT_USER, pg.SQLValueFunctionOp_SVFOP_CURRENT_ROLE, pg.SQLValueFunctionOp_SVFOP_USER, pg.SQLValueFunctionOp_SVFOP_SESSION_USER:
		name := map[pg.SQLValueFunctionOp]string{pg.SQLValueFunctionOp_SVFOP_CURRENT_USER: "current_user", pg.SQLValueFunctionOp_SVFOP_CURRENT_ROLE: "current_role",
			pg.SQLValueFunctionOp_SVFOP_USER: "user", pg.SQLValueFunctionOp_SVFOP_SESSION_USER: "session_user"}[f.Op]
		e = mk(quote.Text(t.Names.User), pgoid.Name, name)
	case pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG:
		e = mk(quote.Text(t.Names.Database), pgoid.Name, "current_catalog")
	case pg.SQLValueFunctionOp_SVFOP_CURRENT_SCHEMA:
		e = mk(t.currentSchema(), pgoid.Name, "current_schema")
	default:
		fault.Refuse("CLV-2068", "this function")
	}
	if f.Typmod >= 0 {
		e = t.applyTypmod(e, f.Typmod, pgcatalog.Explicit)
	}
	return e
}

func (t *resolver) currentSchema() string {
	schemas := t.Names.Schemas()
	if len(schemas) == 0 {
		return "NULL"
	}
	return quote.Text(schemas[0])
}

// arrayExpr is ARRAY[...]; elem and elemMod are the element type that a cast asks for, or 0, and its modifier.
func (t *Translator) arrayExpr(a *pg.A_ArrayExpr, elem uint32, elemMod int32) expr {
	list := t.exprs(a.Elements)
	if len(list) == 0 {
		if elem == 0 {
			t.failAt(a.Location, sqlstate.IndeterminateDatatype, "cannot determine type of empty array")
		}
		return expr{sql: "'{}'", typ: value.Builtin.Array(elem), mod: elemMod, name: "array", constant: true}
	}
	if elem != 0 {
		for i := range list {
			list[i] = t.coerce(list[i], elem, elemMod, pgcatalog.Explicit)
		}
	} else {
		elem, _ = t.toCommon(list, "ARRAY")
	}
	at := value.Builtin.Array(elem)
	if at == 0 || value.ClassOf(at) != value.ClassArray {
		fault.Refuse("CLV-2057", "an array of %s", value.TypeName(elem))
	}
	args := []any{elem}
	mod := list[0].mod // the array has a modifier if all elements have it
	for _, e := range list {
		args = append(args, e.sql)
		if e.mod != mod {
			mod = -1
		}
	}
	return expr{sql: call("cleave_array", args...), typ: at, mod: mod, name: "array"}
}

func (t *Translator) indirection(x *pg.A_Indirection) expr {
	e := t.expr(x.Arg)
	for _, n := range x.Indirection {
		ix := n.GetAIndices()
		if ix == nil {
			fault.Refuse("CLV-2069", "a field of a composite value")
		}
		if ix.IsSlice {
			fault.Refuse("CLV-2070", "an array slice")
		}
		elem := value.Builtin.Element(e.typ)
		if elem == 0 {
			fault.Raisef(sqlstate.DatatypeMismatch, "cannot subscript type %s because it does not support subscripting", value.TypeName(e.typ))
		}
		i := t.coerce(t.expr(ix.Uidx), pgoid.Int4, -1, pgcatalog.Assignment)
		e = expr{sql: call("cleave_array_get", e.typ, e.sql, i.sql), typ: elem, mod: e.mod, name: e.name}
	}
	return e
}

func (t *Translator) subLink(s *pg.SubLink) expr {
	if t.inCheck {
		t.failAt(s.Location, sqlstate.FeatureNotSupported, "cannot use subquery in check constraint")
	}
	nif := t.nullIsFalse
	t.nullIsFalse = false
	defer func() { t.nullIsFalse = nif }()
	switch s.SubLinkType {
	case pg.SubLinkType_EXISTS_SUBLINK:
		q := t.query(s.Subselect, queryOptions{exists: true})
		return expr{sql: "EXISTS (" + q.sql() + ")", typ: pgoid.Bool, mod: -1, name: "exists", notNull: true}
	case pg.SubLinkType_EXPR_SUBLINK:
		q := t.query(s.Subselect, queryOptions{resolve: true})
		if len(q.targets) != 1 {
			t.failAt(s.Location, sqlstate.SyntaxError, "subquery must return only one column")
		}
		tg := q.targets[0]
		e := expr{typ: tg.e.typ, mod: tg.e.mod, name: tg.name}
		if q.single {
			e.sql = "(" + q.sql() + ")"
			return e
		}
		// SQLite takes the first row silently; PostgreSQL fails on a second.
		q.addLimit2()
		a := t.alias()
		e.sql = "(SELECT CASE WHEN count(*) > 1 THEN cleave_one_row() ELSE max(" + a + ".c1) END FROM (" + q.sql() + ") AS " + a + ")"
		return e
	case pg.SubLinkType_ARRAY_SUBLINK:
		q := t.query(s.Subselect, queryOptions{resolve: true})
		if len(q.targets) != 1 {
			t.failAt(s.Location, sqlstate.SyntaxError, "subquery must return only one column")
		}
		typ := q.targets[0].e.typ
		at := value.Builtin.Array(typ)
		if at == 0 || value.ClassOf(at) != value.ClassArray {
			fault.Refuse("CLV-2057", "an array of %s", value.TypeName(typ))
		}
		a := t.alias()
		return expr{sql: fmt.Sprintf("(SELECT coalesce(cleave_array_agg(%d, %s.c1), '{}') FROM (%s) AS %s)", typ, a, q.sql(), a), typ: at, mod: -1, name: "array"}
	case pg.SubLinkType_ANY_SUBLINK, pg.SubLinkType_ALL_SUBLINK:
		return t.inSubquery(s)
	}
	fault.Refuse("CLV-2072", "this kind of subquery")
	return expr{}
}

// inSubquery translates = ANY and <> ALL of a subquery, which are IN and NOT IN.
func (t *Translator) inSubquery(s *pg.SubLink) expr {
	op := "="
	if len(s.OperName) > 0 {
		op = s.OperName[len(s.OperName)-1].GetString_().GetSval()
	}
	all := s.SubLinkType == pg.SubLinkType_ALL_SUBLINK
	if !(op == "=" && !all || op == "<>" && all) {
		fault.Refuse("CLV-2071", "%s ANY or ALL of a subquery", op)
	}
	lhs := t.expr(s.Testexpr)
	q := t.query(s.Subselect, queryOptions{})
	left := lhs.row
	if left == nil {
		left = []expr{lhs}
	}
	if len(left) != len(q.targets) {
		word := "few"
		if len(q.targets) > len(left) {
			word = "many"
		}
		t.failAt(s.Location, sqlstate.SyntaxError, "subquery has too %s columns", word)
	}
	parts := make([]string, len(left))
	for i := range left {
		l, r := t.unifyComparison(op, left[i], t.resolveText(q.targets[i].e), s.Location)
		q.targets[i].e = expr{sql: comparand(r), typ: r.typ, mod: r.mod}
		parts[i] = comparand(l)
	}
	sql := parts[0]
	if len(parts) > 1 {
		sql = "(" + strings.Join(parts, ", ") + ")"
	}
	word := " IN ("
	if all {
		word = " NOT IN ("
	}
	return expr{sql: "(" + sql + word + q.sql() + "))", typ: pgoid.Bool, mod: -1, name: "?column?"}
}

// nodeLocation returns the byte offset of an expression, -1 if unknown.
func nodeLocation(n *pg.Node) int32 {
	switch x := n.GetNode().(type) {
	case *pg.Node_AConst:
		return x.AConst.Location
	case *pg.Node_ColumnRef:
		return x.ColumnRef.Location
	case *pg.Node_ParamRef:
		return x.ParamRef.Location
	case *pg.Node_AExpr:
		if x.AExpr.Lexpr != nil {
			if l := nodeLocation(x.AExpr.Lexpr); l >= 0 {
				return l
			}
		}
		return x.AExpr.Location
	case *pg.Node_FuncCall:
		return x.FuncCall.Location
	case *pg.Node_TypeCast:
		if l := nodeLocation(x.TypeCast.Arg); l >= 0 {
			return l
		}
		return x.TypeCast.Location
	case *pg.Node_CaseExpr:
		return x.CaseExpr.Location
	case *pg.Node_SubLink:
		return x.SubLink.Location
	case *pg.Node_CoalesceExpr:
		return x.CoalesceExpr.Location
	}
	return -1
}

// unitOfMask names the fields of INTERVAL '1' DAY by PostgreSQL's masks.
var unitOfMask = map[int32]string{4: "year", 2: "month", 8: "day", 1024: "hour", 2048: "minute"}

// intervalOfUnit makes INTERVAL '90' DAY into INTERVAL '90 day', with the type
// modifier that the first has; false for everything else.
func intervalOfUnit(c *pg.TypeCast) (*pg.TypeCast, int32, bool) {
	n := c.TypeName
	if n == nil || len(n.Typmods) != 1 || len(n.Names) == 0 || n.Names[len(n.Names)-1].GetString_().GetSval() != "interval" {
		return nil, 0, false
	}
	mask := n.Typmods[0].GetAConst().GetIval().GetIval()
	text := c.Arg.GetAConst().GetSval()
	unit, ok := unitOfMask[mask]
	if !ok || text == nil {
		return nil, 0, false
	}
	if _, err := strconv.ParseInt(text.Sval, 10, 32); err != nil {
		return nil, 0, false
	}
	literal := pg.MakeAConstStrNode(text.Sval+" "+unit, c.Arg.GetAConst().GetLocation())
	return &pg.TypeCast{Arg: literal, TypeName: &pg.TypeName{Names: n.Names, Typemod: -1, Location: n.Location}, Location: c.Location}, mask<<16 | 0xffff, true
}
