package translate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// query is a translated SELECT, VALUES or set operation. Its targets may still
// be converted until sql is called.
type query struct {
	with     string
	targets  []target
	body     string // FROM ... HAVING ...
	distinct bool
	order    string
	limit    string
	single   bool // at most one row
	values   [][]expr
	op       string // set operation
	all      bool
	left     *query
	right    *query
	noTarget bool // EXISTS (SELECT ...)
	volatile bool
}

type target struct {
	e    expr
	name string
}

type queryOptions struct {
	resolve bool // untyped columns become text
	exists  bool
}

// query translates a SELECT statement in a scope of its own.
func (t *Translator) query(n *pg.Node, o queryOptions) *query {
	t.enter()
	defer t.leave()
	s := n.GetSelectStmt()
	if s == nil {
		fault.Refuse("CLV-2139", "a statement that changes data inside another")
	}
	return t.selectStmt(s, o)
}

func (t *Translator) selectStmt(s *pg.SelectStmt, o queryOptions) *query {
	v := t.volatile
	t.push()
	defer t.pop()
	if s.IntoClause != nil {
		fault.Refuse("CLV-2140", "SELECT INTO")
	}
	with := t.withClause(s.WithClause)
	var q *query
	switch {
	case s.Op != pg.SetOperation_SETOP_NONE && s.Op != pg.SetOperation_SET_OPERATION_UNDEFINED:
		q = t.setOperation(s, o)
	case len(s.ValuesLists) > 0:
		q = t.valuesQuery(s, o)
	default:
		q = plainSelect{t, setReturning(s)}.translate(o)
	}
	q.with = with + q.with
	q.volatile = t.volatile != v
	if len(s.LockingClause) > 0 {
		for _, l := range s.LockingClause {
			if l.GetLockingClause().WaitPolicy != pg.LockWaitPolicy_LockWaitBlock {
				fault.Refuse("CLV-2141", "NOWAIT or SKIP LOCKED")
			}
			t.lockedRelations(l.GetLockingClause(), s)
		}
		t.locks = true
	}
	return q
}

// lockedRelations checks the names after FOR UPDATE OF.
func (t *place) lockedRelations(l *pg.LockingClause, s *pg.SelectStmt) {
	names := map[string]bool{}
	var from func(n *pg.Node)
	from = func(n *pg.Node) {
		alias := func(a *pg.Alias, name string) {
			if a != nil {
				name = a.Aliasname
			}
			names[name] = true
		}
		switch x := n.GetNode().(type) {
		case *pg.Node_RangeVar:
			alias(x.RangeVar.Alias, x.RangeVar.Relname)
		case *pg.Node_RangeSubselect:
			alias(x.RangeSubselect.Alias, "")
		case *pg.Node_RangeFunction:
			alias(x.RangeFunction.Alias, "")
		case *pg.Node_JoinExpr:
			from(x.JoinExpr.Larg)
			from(x.JoinExpr.Rarg)
		}
	}
	for _, n := range s.FromClause {
		from(n)
	}
	for _, n := range l.LockedRels {
		if r := n.GetRangeVar(); !names[r.Relname] {
			t.failAt(r.Location, sqlstate.UndefinedTable, "relation \"%s\" in FOR UPDATE clause not found in FROM clause", r.Relname)
		}
	}
}

func (t *Translator) withClause(w *pg.WithClause) string {
	if w == nil {
		return ""
	}
	s := t.scope
	s.ctes = map[string]*cte{}
	var parts []string
	for _, n := range w.Ctes {
		c := n.GetCommonTableExpr()
		if s.ctes[c.Ctename] != nil {
			t.failAt(c.Location, "42712", "WITH query name \"%s\" specified more than once", c.Ctename)
		}
		parts = append(parts, t.withQuery(c, w.Recursive))
	}
	word := "WITH "
	if w.Recursive {
		word = "WITH RECURSIVE "
	}
	return word + strings.Join(parts, ", ") + " "
}

// withQuery translates a query of WITH, which those after it see.
func (t *Translator) withQuery(c *pg.CommonTableExpr, recursive bool) string {
	if c.SearchClause != nil || c.CycleClause != nil {
		fault.Refuse("CLV-2142", "SEARCH or CYCLE")
	}
	t.aliases++
	x := &cte{name: c.Ctename, sql: "w" + strconv.Itoa(t.aliases)}
	var q *query
	sel := c.Ctequery.GetSelectStmt()
	if sel == nil {
		fault.Refuse("CLV-2143", "WITH ... that changes data")
	}
	if recursive && sel.Op == pg.SetOperation_SETOP_UNION && mentions(sel.Rarg, c.Ctename) {
		q = t.recursiveCTE(x, c, sel)
	} else {
		// Without RECURSIVE the query cannot see itself.
		q = t.query(c.Ctequery, queryOptions{resolve: true})
		x.cols = t.cteColumns(q, c)
	}
	t.scope.ctes[c.Ctename] = x
	mat := ""
	switch {
	case q.volatile || c.Ctematerialized == pg.CTEMaterialize_CTEMaterializeAlways:
		mat = " MATERIALIZED"
	case !x.recursive && c.Ctematerialized == pg.CTEMaterialize_CTEMaterializeNever:
		mat = " NOT MATERIALIZED"
	}
	names := make([]string, len(x.cols))
	for i := range names {
		names[i] = "c" + strconv.Itoa(i+1)
	}
	return x.sql + "(" + strings.Join(names, ", ") + ") AS" + mat + " (" + q.sql() + ")"
}

func (t *place) cteColumns(q *query, c *pg.CommonTableExpr) []rteCol {
	if len(c.Aliascolnames) > len(q.targets) {
		t.failAt(c.Location, "42P10", "WITH query \"%s\" has %d columns available but %d columns specified", c.Ctename, len(q.targets), len(c.Aliascolnames))
	}
	cols := make([]rteCol, len(q.targets))
	for i, tg := range q.targets {
		cols[i] = rteCol{name: tg.name, typ: tg.e.typ, mod: tg.e.mod, table: tg.e.table, attnum: tg.e.attnum}
		if i < len(c.Aliascolnames) {
			cols[i].name = c.Aliascolnames[i].GetString_().GetSval()
		}
	}
	return cols
}

// mentions reports whether a query names a relation (a CTE's reference to itself).
func mentions(s *pg.SelectStmt, name string) bool {
	if s == nil {
		return false
	}
	if s.Larg != nil {
		return mentions(s.Larg, name) || mentions(s.Rarg, name)
	}
	var in func(n *pg.Node) bool
	in = func(n *pg.Node) bool {
		switch x := n.GetNode().(type) {
		case *pg.Node_RangeVar:
			return x.RangeVar.Schemaname == "" && x.RangeVar.Relname == name
		case *pg.Node_JoinExpr:
			return in(x.JoinExpr.Larg) || in(x.JoinExpr.Rarg)
		case *pg.Node_RangeSubselect:
			return mentions(x.RangeSubselect.Subquery.GetSelectStmt(), name)
		}
		return false
	}
	for _, f := range s.FromClause {
		if in(f) {
			return true
		}
	}
	return false
}

func (t *Translator) recursiveCTE(x *cte, c *pg.CommonTableExpr, s *pg.SelectStmt) *query {
	x.recursive = true
	if ordered(s) {
		fault.Refuse("CLV-2144", "ORDER BY or LIMIT of a recursive query")
	}
	if s.WithClause != nil || s.Rarg.Larg != nil || s.Rarg.WithClause != nil || s.Rarg.DistinctClause != nil || ordered(s.Rarg) {
		fault.Refuse("CLV-2145", "this form of recursive query")
	}
	left := t.selectStmt(s.Larg, queryOptions{resolve: true})
	x.cols = t.cteColumns(left, c)
	t.scope.ctes[c.Ctename] = x
	right := t.selectStmt(s.Rarg, queryOptions{})
	if len(right.targets) != len(left.targets) {
		t.failAt(c.Location, sqlstate.SyntaxError, "each UNION query must have the same number of columns")
	}
	for i := range left.targets {
		l, r := left.targets[i].e, right.targets[i].e
		pair := []expr{l, r}
		typ := t.commonType(pair, "UNION")
		if typ != l.typ {
			t.failAt(c.Location, sqlstate.DatatypeMismatch, "recursive query \"%s\" column %d has type %s in non-recursive term but type %s overall",
				c.Ctename, i+1, value.TypeName(l.typ), value.TypeName(typ))
		}
		right.targets[i].e = t.coerce(r, typ, -1, pgcatalog.Implicit)
		if !s.All && !value.Comparable(typ) {
			fault.Refuse("CLV-2146", "UNION of %s", value.TypeName(typ))
		}
	}
	if left.volatile || right.volatile {
		fault.Refuse("CLV-2147", "a volatile function in a recursive query")
	}
	return &query{op: "UNION", all: s.All, left: left, right: right, targets: left.targets}
}

// ordered reports whether a query has ORDER BY or a limit.
func ordered(s *pg.SelectStmt) bool {
	return len(s.SortClause) > 0 || s.LimitCount != nil || s.LimitOffset != nil
}

func (q *query) addLimit2() {
	if q.limit == "" {
		q.limit = " LIMIT 2"
		return
	}
	inner := *q
	*q = query{targets: q.targets, body: " FROM (" + inner.sql() + ") AS z", limit: " LIMIT 2"}
	q.targets = make([]target, len(inner.targets))
	for i, tg := range inner.targets {
		q.targets[i] = tg
		q.targets[i].e.sql = "z.c" + strconv.Itoa(i+1)
	}
}

// sql prints the query; its columns are named c1, c2, ...
func (q *query) sql() string {
	var b strings.Builder
	q.write(&b)
	return b.String()
}

func (q *query) write(b *strings.Builder) {
	b.WriteString(q.with)
	switch {
	case q.op != "":
		if l := q.left; l.op == q.op && l.all == q.all && !l.wrapped() {
			l.write(b)
		} else {
			l.writeBranch(b)
		}
		b.WriteString(" " + q.op)
		if q.all {
			b.WriteString(" ALL")
		}
		b.WriteString(" ")
		q.right.writeBranch(b)
	case q.values != nil:
		// SELECT names the columns, which VALUES would not.
		b.WriteString("SELECT ")
		for i := range q.targets {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, "column%d AS c%d", i+1, i+1)
		}
		b.WriteString(" FROM (VALUES ")
		writeValues(b, q.values)
		b.WriteString(")")
	default:
		q.writeSelect(b)
	}
	b.WriteString(q.order)
	b.WriteString(q.limit)
}

// wrapped reports whether a query has clauses before or after it.
func (q *query) wrapped() bool { return q.with != "" || q.order != "" || q.limit != "" }

// writeBranch writes one side of UNION and its like, where SQLite takes only a plain SELECT.
func (q *query) writeBranch(b *strings.Builder) {
	if q.op == "" && !q.wrapped() {
		q.write(b)
		return
	}
	b.WriteString("SELECT * FROM (")
	q.write(b)
	b.WriteString(")")
}

func (q *query) writeSelect(b *strings.Builder) {
	b.WriteString("SELECT ")
	if q.distinct {
		b.WriteString("DISTINCT ")
	}
	if q.noTarget {
		b.WriteString("1")
	} else {
		for i, tg := range q.targets {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(targetSQL(tg.e))
			b.WriteString(" AS c" + strconv.Itoa(i+1))
		}
	}
	b.WriteString(q.body)
}

func targetSQL(e expr) string {
	if value.ClassOf(e.typ) == value.ClassNumeric && !strings.HasSuffix(e.sql, "COLLATE cleave_numeric)") {
		return "(" + e.sql + " COLLATE cleave_numeric)"
	}
	return e.sql
}

func writeValues(b *strings.Builder, rows [][]expr) {
	for i, row := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for k, e := range row {
			if k > 0 {
				b.WriteString(", ")
			}
			b.WriteString(e.sql)
		}
		b.WriteByte(')')
	}
}

func (t *Translator) valuesQuery(s *pg.SelectStmt, o queryOptions) *query {
	q := &query{}
	width := -1
	for _, l := range s.ValuesLists {
		row := t.exprs(l.GetList().GetItems())
		if width >= 0 && len(row) != width {
			fault.Raisef(sqlstate.SyntaxError, "VALUES lists must all be the same length")
		}
		width = len(row)
		q.values = append(q.values, row)
	}
	q.single = len(q.values) == 1
	for c := range width {
		col := make([]expr, len(q.values))
		for r := range q.values {
			col[r] = q.values[r][c]
			if col[r].row != nil {
				fault.Refuse("CLV-2148", "a row as a value")
			}
		}
		typ, mod := t.toCommon(col, "VALUES")
		notNull := true
		for r := range q.values {
			q.values[r][c] = col[r]
			notNull = notNull && col[r].notNull
		}
		name := "column" + strconv.Itoa(c+1)
		q.targets = append(q.targets, target{name: name, e: expr{sql: name, typ: typ, mod: mod, name: name, notNull: notNull}})
	}
	t.orderAndLimit(q, s, true)
	return q
}

var setOps = map[pg.SetOperation]string{
	pg.SetOperation_SETOP_UNION: "UNION", pg.SetOperation_SETOP_INTERSECT: "INTERSECT", pg.SetOperation_SETOP_EXCEPT: "EXCEPT",
}

func (t *Translator) setOperation(s *pg.SelectStmt, o queryOptions) *query {
	op := setOps[s.Op]
	if s.All && op != "UNION" {
		fault.Refuse("CLV-2149", "%s ALL", op)
	}
	l := t.selectStmt(s.Larg, queryOptions{})
	r := t.selectStmt(s.Rarg, queryOptions{})
	if len(l.targets) != len(r.targets) {
		fault.Raisef(sqlstate.SyntaxError, "each %s query must have the same number of columns", op)
	}
	q := &query{op: op, all: s.All, left: l, right: r}
	for i := range l.targets {
		pair := []expr{l.targets[i].e, r.targets[i].e}
		typ, mod := t.toCommon(pair, op)
		if !s.All && !value.Comparable(typ) {
			fault.Raise(sqlstate.Refusal("CLV-2150", "a SQLite shard cannot compare %s for %s exactly", value.TypeName(typ), op).
				WithHint("Use UNION ALL, or cast to a type that it compares."))
		}
		name := l.targets[i].name
		t.retarget(l, i, pair[0])
		t.retarget(r, i, pair[1])
		q.targets = append(q.targets, target{name: name, e: expr{sql: "c" + strconv.Itoa(i+1), typ: typ, mod: mod, name: name}})
	}
	t.orderAndLimit(q, s, true)
	return q
}

// retarget replaces a target of a query that may be a set operation or VALUES
// itself: then the conversion goes around it.
func (t *converter) retarget(q *query, i int, e expr) {
	if q.op == "" && q.values == nil && !q.distinct {
		q.targets[i].e = e
		return
	}
	if q.targets[i].e.sql == e.sql {
		q.targets[i].e = e
		return
	}
	if q.op == "" && q.values == nil && q.distinct {
		// Untyped literals may change; a real conversion may not merge rows.
		if q.targets[i].e.typ == pgoid.Unknown {
			q.targets[i].e = e
			return
		}
	}
	inner := *q
	from := inner.targets[i].e
	outer := make([]target, len(inner.targets))
	for k, tg := range inner.targets {
		outer[k] = tg
		outer[k].e.sql = "z.c" + strconv.Itoa(k+1)
	}
	*q = query{targets: outer, body: " FROM (" + inner.sql() + ") AS z", single: inner.single, volatile: inner.volatile}
	q.targets[i].e = t.coerce(expr{sql: "z.c" + strconv.Itoa(i+1), typ: from.typ, mod: from.mod}, e.typ, e.mod, pgcatalog.Implicit)
}

// plainSelect is a SELECT without UNION and its like, and without VALUES.
type plainSelect struct {
	*Translator
	s *pg.SelectStmt
}

func (t plainSelect) translate(o queryOptions) *query {
	s := t.s
	q := &query{}
	sc := t.scope
	sel := sc.sel
	var body strings.Builder
	t.fromClause(&body)
	if s.WhereClause != nil {
		body.WriteString(" WHERE " + t.where(s.WhereClause))
	}
	t.windowClause()
	// The group expressions come first, so that each column that a target uses can
	// be checked against them.
	group := t.groupBy()
	sel.ungrouped = sel.ungrouped[:0]
	q.targets = t.targetList(s.TargetList, o)
	if len(q.targets) == 0 && !o.exists {
		fault.Refuse("CLV-2151", "SELECT without columns")
	}
	having := t.having(len(group) > 0)
	if len(group) > 0 {
		body.WriteString(" GROUP BY " + strings.Join(group, ", "))
	}
	body.WriteString(having)
	q.body = body.String()
	if len(s.DistinctClause) > 0 {
		if s.DistinctClause[0].GetNode() != nil {
			t.distinctOn(q)
			t.checkGrouping(sel, len(group) > 0)
			return q
		}
		t.distinct(q)
	}
	t.orderAndLimit(q, s, false)
	t.checkGrouping(sel, len(group) > 0)
	q.single = q.single || len(group) == 0 && sel.hasAgg || len(s.FromClause) == 0 // LIMIT 1 may have said so
	if o.exists && !sel.hasAgg && len(group) == 0 && !q.distinct {
		q.noTarget, q.order = true, ""
	}
	if o.resolve {
		t.resolveTargets(q)
	}
	return q
}

// having translates HAVING. SQLite looks for the aggregate in the select list, not in HAVING.
func (t plainSelect) having(grouped bool) string {
	n := t.s.HavingClause
	if n == nil {
		return ""
	}
	hasAgg := t.scope.sel.hasAgg
	sql := " HAVING " + t.boolean(n, "HAVING").sql
	if !grouped && !hasAgg {
		fault.Refuse("CLV-2152", "HAVING without GROUP BY and aggregates in the select list")
	}
	return sql
}

func (t plainSelect) fromClause(body *strings.Builder) {
	list := t.s.FromClause
	for i, f := range list {
		if i > 0 {
			body.WriteString(", ")
		} else {
			body.WriteString(" FROM ")
		}
		sql, rtes := t.fromItem(f)
		for _, r := range rtes {
			t.addRTE(t.scope, r, -1)
		}
		if f.GetJoinExpr() != nil && len(list) > 1 {
			sql = "(" + sql + ")"
		}
		body.WriteString(sql)
	}
}

// windowClause translates the windows that have a name.
func (t plainSelect) windowClause() {
	sel := t.scope.sel
	for _, w := range t.s.WindowClause {
		d := w.GetWindowDef()
		sel.inWindow++
		sel.windows[d.Name] = ""
		sel.windows[d.Name] = t.windowSpec(&pg.WindowDef{Refname: d.Refname, PartitionClause: d.PartitionClause, OrderClause: d.OrderClause,
			FrameOptions: d.FrameOptions, StartOffset: d.StartOffset, EndOffset: d.EndOffset, Location: d.Location})
		sel.inWindow--
	}
}

// distinct makes a query's rows distinct, which SQLite does for what it compares exactly.
func (t *converter) distinct(q *query) {
	q.distinct = true
	t.resolveTargets(q)
	for _, tg := range q.targets {
		if typ := tg.e.typ; !value.Comparable(typ) {
			fault.Raise(sqlstate.Refusal("CLV-2153", "a SQLite shard cannot compare %s for DISTINCT exactly", value.TypeName(typ)).
				WithHint("Cast it to a type that it compares: see docs/sql-sqlite.md."))
		}
	}
}

// resolveTargets gives output columns without a type that of text.
func (t *converter) resolveTargets(q *query) {
	for i := range q.targets {
		q.targets[i].e = t.resolveText(q.targets[i].e)
	}
}

// setReturning moves a set-returning function that is the whole SELECT into FROM,
// which gives the same rows.
func setReturning(s *pg.SelectStmt) *pg.SelectStmt {
	if len(s.FromClause) > 0 || len(s.TargetList) != 1 || s.WhereClause != nil || len(s.GroupClause) > 0 {
		return s
	}
	rt := s.TargetList[0].GetResTarget()
	f := rt.Val.GetFuncCall()
	if f == nil || f.Over != nil {
		return s
	}
	name := f.Funcname[len(f.Funcname)-1].GetString_().GetSval()
	set := false
	for p := range value.Builtin.Functions(name) {
		set = set || p.Set
	}
	if !set {
		return s
	}
	column := rt.Name
	if column == "" {
		column = name
	}
	str := func(v string) *pg.Node { return &pg.Node{Node: &pg.Node_String_{String_: &pg.String{Sval: v}}} }
	list := &pg.Node{Node: &pg.Node_List{List: &pg.List{Items: []*pg.Node{rt.Val}}}}
	return &pg.SelectStmt{
		TargetList: []*pg.Node{{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Name: column, Location: rt.Location,
			Val: &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{str("s"), str("v")}, Location: f.Location}}}}}}},
		FromClause: []*pg.Node{{Node: &pg.Node_RangeFunction{RangeFunction: &pg.RangeFunction{Functions: []*pg.Node{list},
			Alias: &pg.Alias{Aliasname: "s", Colnames: []*pg.Node{str("v")}}}}}},
		DistinctClause: s.DistinctClause, SortClause: s.SortClause, LimitCount: s.LimitCount, LimitOffset: s.LimitOffset, LimitOption: s.LimitOption, Op: s.Op,
	}
}

// outerUse marks a column that a subquery uses.
const outerUse = "\x00"

func (t *place) checkGrouping(sel *selectState, grouped bool) {
	if !grouped && !sel.hasAgg {
		return
	}
	if len(sel.ungrouped) > 0 {
		if strings.HasPrefix(sel.ungrouped[0].name, outerUse) {
			// The whole subquery may be what is grouped by.
			fault.Refuse("CLV-2154", "a subquery that refers to a grouped query")
		}
		t.failAt(sel.ungrouped[0].loc, "42803", "column \"%s\" must appear in the GROUP BY clause or be used in an aggregate function", sel.ungrouped[0].name)
	}
}

// where translates a WHERE condition; NULL and false are alike there.
func (t *Translator) where(n *pg.Node) string {
	sel := t.scope.sel
	sel.clause, t.nullIsFalse = "WHERE", true
	u := len(sel.ungrouped)
	e := t.boolean(n, "WHERE")
	sel.ungrouped = sel.ungrouped[:u]
	sel.clause, t.nullIsFalse = "", false
	return e.sql
}

// notPlace makes sure that SQLite does not take a term of GROUP BY or ORDER BY for
// the place of a column: it does for a number, in brackets or with a sign too.
func notPlace(key string) string {
	if bare := strings.Trim(key, "()+- "); bare != "" && strings.Trim(bare, "0123456789") == "" {
		return "(" + key + " + 0)"
	}
	return key
}

// groupBy translates GROUP BY and registers what is grouped.
func (t plainSelect) groupBy() []string {
	s := t.s
	sel := t.scope.sel
	if s.GroupDistinct {
		fault.Refuse("CLV-2155", "GROUP BY DISTINCT")
	}
	var out []string
	var exprs []expr
	for _, n := range s.GroupClause {
		if n.GetGroupingSet() != nil {
			fault.Refuse("CLV-2156", "GROUPING SETS, CUBE and ROLLUP")
		}
		sel.clause = "GROUP BY"
		e := t.groupExpr(n)
		sel.clause = ""
		if e.row != nil {
			fault.Refuse("CLV-2158", "GROUP BY a row")
		}
		e = t.resolveText(e)
		if !value.Comparable(e.typ) && value.ClassOf(e.typ) != value.ClassBpchar && e.typ != pgoid.Int2Vector && e.typ != pgoid.OIDVector {
			fault.Raise(sqlstate.Refusal("CLV-2159", "a SQLite shard cannot group by %s exactly", value.TypeName(e.typ)).
				WithHint("Group by a cast of it: see docs/sql-sqlite.md."))
		}
		exprs = append(exprs, e)
		out = append(out, notPlace(comparand(e)))
	}
	for _, e := range exprs {
		sel.groupSQL[e.sql] = true
	}
	// A whole primary key determines the other columns of its table.
	for _, r := range t.scope.rtes {
		if groupsByPrimaryKey(r, sel.groupSQL) {
			sel.groupTables[r.sql] = true
		}
	}
	return out
}

// groupExpr is what an item of GROUP BY names: an output column by its position, a column, or an expression.
func (t plainSelect) groupExpr(n *pg.Node) expr {
	s := t.s
	if i, ok := syntax.Int(n); ok {
		if i < 1 || int(i) > len(s.TargetList) {
			t.failAt(nodeLocation(n), "42P10", "GROUP BY position %d is not in select list", i)
		}
		rt := s.TargetList[i-1].GetResTarget()
		if c := rt.Val.GetColumnRef(); c != nil && c.Fields[len(c.Fields)-1].GetAStar() != nil {
			fault.Refuse("CLV-2157", "GROUP BY a position after *")
		}
		return t.expr(rt.Val)
	}
	if c := n.GetColumnRef(); c != nil && len(c.Fields) == 1 {
		// An input column wins over an output column of that name.
		name := c.Fields[0].GetString_().GetSval()
		if tg := findTarget(s, name); tg != nil && !t.hasColumn(name) {
			return t.expr(tg)
		}
	}
	return t.expr(n)
}

// groupsByPrimaryKey reports whether the whole primary key of a table is among what is grouped by.
func groupsByPrimaryKey(r *rte, grouped map[string]bool) bool {
	if r.table == nil || r.table.System != nil {
		return false
	}
	pk := r.table.PrimaryKey()
	if pk == nil {
		return false
	}
	for _, num := range pk.Columns {
		if !slices.ContainsFunc(r.cols, func(c rteCol) bool { return c.attnum == num && grouped[c.sql] }) {
			return false
		}
	}
	return true
}

// hasColumn reports whether the innermost scope has an input column of the name:
// only those win over output columns.
func (t *scopes) hasColumn(name string) bool {
	for _, r := range t.scope.rtes {
		for i := range r.cols {
			if r.cols[i].name == name && !r.cols[i].hidden {
				return true
			}
		}
	}
	return false
}

func findTarget(s *pg.SelectStmt, name string) *pg.Node {
	for _, n := range s.TargetList {
		rt := n.GetResTarget()
		if rt.Name == name {
			return rt.Val
		}
	}
	return nil
}

func (t *Translator) targetList(list []*pg.Node, o queryOptions) []target {
	var out []target
	for _, n := range list {
		rt := n.GetResTarget()
		if c := rt.Val.GetColumnRef(); c != nil && c.Fields[len(c.Fields)-1].GetAStar() != nil {
			var schema, table string
			switch len(c.Fields) {
			case 2:
				table = c.Fields[0].GetString_().GetSval()
			case 3:
				schema, table = c.Fields[0].GetString_().GetSval(), c.Fields[1].GetString_().GetSval()
			}
			for _, e := range t.star(table, schema, c.Location) {
				out = append(out, target{e: e, name: e.name})
			}
			continue
		}
		e := t.expr(rt.Val)
		if e.row != nil {
			fault.Refuse("CLV-2160", "a row as a result column")
		}
		name := rt.Name
		if name == "" {
			name = e.name
		}
		if name == "" {
			name = "?column?"
		}
		out = append(out, target{e: e, name: name})
		if len(out) > 1664 {
			fault.Raisef("54011", "target lists can have at most 1664 entries")
		}
	}
	return out
}
