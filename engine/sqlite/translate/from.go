package translate

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// fromItem translates one item of FROM and returns the entries that it adds.
func (t *Translator) fromItem(n *pg.Node) (string, []*rte) {
	t.enter()
	defer t.leave()
	switch x := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		sql, r := t.rangeVar(x.RangeVar)
		return sql, []*rte{r}
	case *pg.Node_RangeSubselect:
		return t.rangeSubselect(x.RangeSubselect)
	case *pg.Node_RangeFunction:
		sql, r := t.rangeFunction(x.RangeFunction)
		return sql, []*rte{r}
	case *pg.Node_JoinExpr:
		return t.join(x.JoinExpr)
	case *pg.Node_RangeTableSample:
		fault.Refuse("CLV-2073", "TABLESAMPLE")
	}
	fault.Refuse("CLV-2074", "this item of FROM")
	return "", nil
}

// FindTable resolves a table name by the search path.
// FindTable finds a table.
func (t *resolver) FindTable(r *pg.RangeVar) *catalog.Table {
	d := t.FindRelation(r)
	notView(d)
	return d
}

// FindRelation finds a table or a view.
func (t *resolver) FindRelation(r *pg.RangeVar) *catalog.Table {
	if r.Catalogname != "" && r.Catalogname != t.Names.Database {
		t.failAt(r.Location, sqlstate.FeatureNotSupported, "cross-database references are not implemented: \"%s.%s.%s\"", r.Catalogname, r.Schemaname, r.Relname)
	}
	if r.Schemaname != "" {
		if d := t.Names.Lookup(r.Schemaname, r.Relname); d != nil {
			return d
		}
		if t.Names.Catalog.Schemas[r.Schemaname] == nil {
			t.failAt(r.Location, sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", r.Schemaname, r.Relname)
		}
		if r.Schemaname == catalog.SchemaPgCatalog || r.Schemaname == catalog.SchemaInformation {
			refuseSystem(r.Schemaname, r.Relname)
		}
		t.failAt(r.Location, sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", r.Schemaname, r.Relname)
	}
	if d := t.Names.Relations[r.Relname]; d != nil {
		return d
	}
	if d := t.Names.Lookup(catalog.SchemaPgCatalog, r.Relname); d != nil {
		return d
	}
	for _, s := range t.Names.Path {
		if d := t.Names.Lookup(s, r.Relname); d != nil {
			return d
		}
	}
	if strings.HasPrefix(r.Relname, "pg_") {
		refuseSystem(catalog.SchemaPgCatalog, r.Relname)
	}
	t.failAt(r.Location, sqlstate.UndefinedTable, "relation \"%s\" does not exist", r.Relname)
	return nil
}

// refuseSystem refuses relations of PostgreSQL's catalogue that are not emulated.
func refuseSystem(schema, name string) {
	if value.Builtin.Relation(schema, name) != nil {
		fault.Raise(sqlstate.Refusal("CLV-2075", "the catalogue relation %s.%s is not there on a SQLite shard", schema, name).
			WithHint("See docs/sql-sqlite.md for those that are."))
	}
}

func (t *Translator) rangeVar(v *pg.RangeVar) (string, *rte) {
	alias := t.alias()
	r := &rte{alias: v.Relname, schema: v.Schemaname, sql: alias}
	if v.Alias != nil {
		r.alias, r.schema = v.Alias.Aliasname, ""
	}
	if v.Schemaname == "" {
		if c := t.findCTE(v.Relname); c != nil {
			r.schema = ""
			for i, col := range c.cols {
				col.sql = alias + ".c" + strconv.Itoa(i+1)
				r.cols = append(r.cols, col)
			}
			renameColumns(r, v.Alias)
			return c.sql + " AS " + alias, r
		}
	}
	d := t.FindRelation(v)
	if d.Viewed != nil {
		return t.viewItem(v, d)
	}
	if v.Alias == nil {
		r.schema = d.Schema
	}
	fillRTE(r, d)
	renameColumns(r, v.Alias)
	t.reads[d.OID] = true
	return t.tableSQL(d) + " AS " + alias, r
}

// tableSQL is the table's name in SQLite; catalogue relations are temporary
// tables that are filled before the statement runs.
func (t *Translator) tableSQL(d *catalog.Table) string {
	if d.System != nil {
		t.systems[d.System] = true
		return "temp." + quote.Ident(d.SQLName())
	}
	if d.Relation {
		return "temp." + quote.Ident(d.Name)
	}
	return "main." + quote.Ident(d.SQLName())
}

func fillRTE(r *rte, d *catalog.Table) {
	r.table = d
	for _, c := range d.Live() {
		r.cols = append(r.cols, rteCol{name: c.Name, sql: r.sql + "." + quote.Ident(c.Name), typ: c.Type, mod: c.Mod, table: d.OID, attnum: c.Num, notNull: c.NotNull})
	}
}

// nullable marks the columns of the nullable side of an outer join.
func nullable(rtes []*rte) {
	for _, r := range rtes {
		for i := range r.cols {
			r.cols[i].notNull = false
		}
	}
}

func renameColumns(r *rte, a *pg.Alias) {
	if a == nil {
		return
	}
	if len(a.Colnames) > len(r.cols) {
		fault.Raisef("42P10", "table \"%s\" has %d columns available but %d columns specified", r.alias, len(r.cols), len(a.Colnames))
	}
	for i, n := range a.Colnames {
		r.cols[i].name = n.GetString_().GetSval()
	}
}

func (t *Translator) rangeSubselect(s *pg.RangeSubselect) (string, []*rte) {
	if s.Lateral {
		fault.Refuse("CLV-2076", "LATERAL")
	}
	if s.Alias == nil {
		what := "subquery in FROM must have an alias"
		if sel := s.Subquery.GetSelectStmt(); sel != nil && len(sel.ValuesLists) > 0 {
			what = "VALUES in FROM must have an alias"
		}
		fault.Raise(sqlstate.New(sqlstate.SyntaxError, "%s", what).WithHint("For example, FROM (SELECT ...) [AS] foo."))
	}
	q := t.fromQuery(s.Subquery)
	if q.volatile {
		// SQLite may run a subquery's expression once for each use of the column.
		fault.Refuse("CLV-2077", "a volatile function in a subquery of FROM")
	}
	alias := t.alias()
	r := &rte{alias: s.Alias.Aliasname, sql: alias}
	for i, tg := range q.targets {
		r.cols = append(r.cols, rteCol{name: tg.name, sql: alias + ".c" + strconv.Itoa(i+1), typ: tg.e.typ, mod: tg.e.mod, notNull: tg.e.notNull, table: tg.e.table, attnum: tg.e.attnum})
	}
	renameColumns(r, s.Alias)
	return "(" + q.sql() + ") AS " + alias, []*rte{r}
}

// fromQuery translates a subquery of FROM, which does not see its siblings.
func (t *Translator) fromQuery(n *pg.Node) *query {
	s := t.scope
	old := s.hidden
	s.hidden = true
	defer func() { s.hidden = old }()
	return t.query(n, queryOptions{resolve: true})
}

func (t *Translator) join(j *pg.JoinExpr) (string, []*rte) {
	if j.Alias != nil || j.JoinUsingAlias != nil {
		fault.Refuse("CLV-2078", "an alias of a join")
	}
	lsql, left := t.fromItem(j.Larg)
	beside := t.scope.left
	t.scope.left = append(append([]*rte{}, beside...), left...)
	rsql, right := t.fromItem(j.Rarg)
	t.scope.left = beside
	if j.Rarg.GetJoinExpr() != nil {
		rsql = "(" + rsql + ")"
	}
	word := map[pg.JoinType]string{
		pg.JoinType_JOIN_INNER: "JOIN", pg.JoinType_JOIN_LEFT: "LEFT JOIN", pg.JoinType_JOIN_RIGHT: "RIGHT JOIN", pg.JoinType_JOIN_FULL: "FULL JOIN",
	}[j.Jointype]
	if word == "" {
		fault.Refuse("CLV-2079", "this join")
	}
	all := append(append([]*rte{}, left...), right...)
	refuseSameNames(all)
	on := ""
	var merged *rte
	if using := usingNames(j, left, right); len(using) > 0 {
		merged, on = t.joinUsing(j.Jointype, using, left, right)
	}
	// The condition sees both sides, and nothing of the other items of FROM.
	if j.Quals != nil {
		s := t.scope
		saved := s.rtes
		s.rtes = all
		s.sel.clause, t.nullIsFalse = "JOIN conditions", true
		u := len(s.sel.ungrouped)
		on = " ON " + t.boolean(j.Quals, "JOIN/ON").sql
		s.sel.ungrouped = s.sel.ungrouped[:u]
		s.sel.clause, t.nullIsFalse = "", false
		s.rtes = saved
	}
	if on == "" {
		// Not CROSS JOIN, which fixes the order of SQLite's loops.
		on = " ON 1"
	}
	switch j.Jointype {
	case pg.JoinType_JOIN_LEFT:
		nullable(right)
	case pg.JoinType_JOIN_RIGHT:
		nullable(left)
	case pg.JoinType_JOIN_FULL:
		nullable(all)
	}
	if merged != nil {
		all = append([]*rte{merged}, all...)
	}
	return lsql + " " + word + " " + rsql + on, all
}

// refuseSameNames refuses two tables of a join with one name.
func refuseSameNames(all []*rte) {
	seen := map[string]bool{}
	for _, r := range all {
		if r.alias == "" {
			continue
		}
		key := r.schema + "\x00" + r.alias
		if seen[key] {
			fault.Raisef("42712", "table name \"%s\" specified more than once", r.alias)
		}
		seen[key] = true
	}
}

// usingNames are the columns of USING, for NATURAL those that both sides have.
func usingNames(j *pg.JoinExpr, left, right []*rte) (using []string) {
	for _, u := range j.UsingClause {
		using = append(using, u.GetString_().GetSval())
	}
	if !j.IsNatural {
		return using
	}
	for _, l := range left {
		for _, c := range l.cols {
			if c.hidden {
				continue
			}
			for _, r := range right {
				for _, k := range r.cols {
					if k.name == c.name && !k.hidden {
						using = append(using, c.name)
					}
				}
			}
		}
	}
	return using
}

// joinUsing makes the columns that USING merges, and the condition. The columns of both sides are hidden from then on.
func (t *Translator) joinUsing(kind pg.JoinType, using []string, left, right []*rte) (merged *rte, on string) {
	merged = &rte{merged: true}
	var conds []string
	for _, name := range using {
		l := usingColumn(left, name, "left")
		r := usingColumn(right, name, "right")
		le := expr{sql: l.sql, typ: l.typ, mod: l.mod, notNull: l.notNull}
		re := expr{sql: r.sql, typ: r.typ, mod: r.mod, notNull: r.notNull}
		conds = append(conds, t.binary("=", le, re, -1).sql)
		pair := []expr{le, re}
		typ, mod := t.toCommon(pair, "JOIN/USING")
		c := rteCol{name: name, typ: typ, mod: mod}
		switch {
		case kind == pg.JoinType_JOIN_FULL:
			c.sql = "coalesce(" + pair[0].sql + ", " + pair[1].sql + ")"
		// PostgreSQL prefers the side that needs no cast: 1.0 prints otherwise than 1.
		case kind == pg.JoinType_JOIN_RIGHT, kind == pg.JoinType_JOIN_INNER && l.typ != typ && r.typ == typ:
			c.sql, c.notNull = pair[1].sql, r.notNull
			c.table, c.attnum = r.table, r.attnum
		default:
			c.sql, c.notNull = pair[0].sql, l.notNull
			c.table, c.attnum = l.table, l.attnum
		}
		l.hidden, r.hidden = true, true
		merged.cols = append(merged.cols, c)
	}
	return merged, " ON " + balanced(conds, " AND ")
}

func usingColumn(side []*rte, name, which string) *rteCol {
	var found *rteCol
	for _, r := range side {
		for i := range r.cols {
			if r.cols[i].name == name && !r.cols[i].hidden {
				if found != nil {
					fault.Raisef(sqlstate.AmbiguousColumn, "common column name \"%s\" appears more than once in %s table", name, which)
				}
				found = &r.cols[i]
			}
		}
	}
	if found == nil {
		fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" specified in USING clause does not exist in %s table", name, which)
	}
	return found
}

// rangeFunction translates generate_series and unnest.
func (t *Translator) rangeFunction(f *pg.RangeFunction) (string, *rte) {
	if f.IsRowsfrom && !f.Ordinality && len(f.Coldeflist) == 0 {
		return t.rowsFrom(f)
	}
	fc, ancestors := calledInFrom(f)
	name := fc.Funcname[len(fc.Funcname)-1].GetString_().GetSval()
	if name == "unnest" && len(fc.Args) > 1 {
		fault.Refuse("CLV-2082", "unnest of several arrays")
	}
	if sessionFunction[name] && len(fc.Args) == 0 {
		return t.sessionRow(f, fc, name)
	}
	s := t.scope
	old := s.hidden
	calls := s.calls
	s.hidden, s.calls = old || !ancestors, true
	args := t.exprs(fc.Args)
	s.hidden, s.calls = old, calls
	alias := t.alias()
	r := &rte{alias: name, sql: alias, scalar: true}
	colName := name
	if f.Alias != nil {
		r.alias, colName = f.Alias.Aliasname, f.Alias.Aliasname
	}
	cand, typ := t.setFunction(name, args, fc.Location)
	var sql string
	switch cand.Function.Signature() {
	case "generate_series(int4,int4)", "generate_series(int8,int8)", "generate_series(int4,int4,int4)", "generate_series(int8,int8,int8)":
		sql = series(args, t.alias()) + " AS " + alias
		r.cols = []rteCol{{name: colName, sql: alias + ".c1", typ: typ, mod: -1, notNull: true}}
	case "pg_partition_ancestors(regclass)":
		// No table is a partition here.
		sql = "(SELECT NULL AS c1, NULL AS c2 WHERE 0) AS " + alias
		r.cols = []rteCol{{name: colName, sql: alias + ".c1", typ: typ, mod: -1}}
		if f.Ordinality {
			r.cols = append(r.cols, rteCol{name: "ordinality", sql: alias + ".c2", typ: pgoid.Int8, mod: -1})
		}
	case "unnest(anyarray)":
		sql = "(SELECT " + value.ElemFromJSON(typ, "value") + " AS c1, key + 1 AS c2 FROM json_each(" + call("cleave_array_json", args[0].typ, args[0].sql) + ")) AS " + alias
		r.cols = []rteCol{{name: colName, sql: alias + ".c1", typ: typ, mod: -1}}
		if f.Ordinality {
			r.scalar = false
			r.cols = append(r.cols, rteCol{name: "ordinality", sql: alias + ".c2", typ: pgoid.Int8, mod: -1, notNull: true})
		}
	default:
		fault.Refuse("CLV-2083", "the function %s in FROM", cand.Function.Signature())
	}
	renameColumns(r, f.Alias)
	return sql, r
}

// setFunction finds the set-returning function of a name and arguments, which it makes of the function's types, and what its rows are.
func (t *converter) setFunction(name string, args []expr, location int32) (*pgcatalog.Match, uint32) {
	types := typesOf(args)
	cand, ambiguous := value.Builtin.Call(name, types, false)
	if cand == nil {
		t.noFunction(name, types, ambiguous, location)
	}
	if cand.Function == nil || !cand.Function.Set {
		fault.Refuse("CLV-2083", "the function %s in FROM", name)
	}
	p := polymorphic(cand.Args, args, cand.Function.Result)
	for i := range args {
		args[i] = t.coerce(args[i], p.args[i], -1, pgcatalog.Implicit)
	}
	return cand, p.result
}

// calledInFrom is the function that stands in FROM. ancestors: it is pg_partition_ancestors.
func calledInFrom(f *pg.RangeFunction) (fc *pg.FuncCall, ancestors bool) {
	ancestors = len(f.Functions) == 1 && isAncestors(f.Functions[0].GetList().GetItems()[0].GetFuncCall())
	if f.IsRowsfrom || f.Ordinality && !ancestors && !isUnnest(f.Functions[0]) || len(f.Functions) != 1 || len(f.Coldeflist) > 0 {
		fault.Refuse("CLV-2080", "this form of a function in FROM")
	}
	fc = f.Functions[0].GetList().GetItems()[0].GetFuncCall()
	if fc == nil {
		fault.Refuse("CLV-2081", "this function in FROM")
	}
	return fc, ancestors
}

// series is generate_series of integers, by a query of that name. The first row and the step are computed once, in p; the end is tested before adding, so that
// nothing overflows.
func series(args []expr, n string) string {
	step := "1"
	if len(args) == 3 {
		step = call("cleave_step", args[2].sql)
	}
	return "(WITH RECURSIVE p" + n + "(a, b, s) AS MATERIALIZED (SELECT " + args[0].sql + ", " + args[1].sql + ", " + step + "), " +
		n + "(v) AS (SELECT a FROM p" + n + " WHERE (s > 0 AND a <= b) OR (s < 0 AND a >= b) UNION ALL SELECT cleave_series(v, s, b) FROM " + n + ", p" + n +
		" WHERE cleave_series(v, s, b) IS NOT NULL) SELECT v AS c1 FROM " + n + ")"
}

// sessionFunction are functions of one value, the same for all of a statement, that clients read as a table when they connect.
var sessionFunction = map[string]bool{"current_schema": true, "current_database": true, "version": true}

// sessionRow translates such a function in FROM.
func (t *Translator) sessionRow(f *pg.RangeFunction, fc *pg.FuncCall, name string) (string, *rte) {
	e := t.expr(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: fc}})
	alias := t.alias()
	r := &rte{alias: name, sql: alias, scalar: true}
	column := name
	if f.Alias != nil {
		r.alias, column = f.Alias.Aliasname, f.Alias.Aliasname
	}
	r.cols = []rteCol{{name: column, sql: alias + ".c1", typ: e.typ, mod: e.mod}}
	renameColumns(r, f.Alias)
	return "(SELECT " + e.sql + " AS c1) AS " + alias, r
}

// rowsFrom translates ROWS FROM (unnest(...), unnest(...), ...): the arrays become
// rows together, the shorter ones followed by NULLs.
func (t *Translator) rowsFrom(f *pg.RangeFunction) (string, *rte) {
	alias := t.alias()
	r := &rte{alias: "unnest", sql: alias}
	if f.Alias != nil {
		r.alias = f.Alias.Aliasname
	}
	var types, arrays, cols []string
	s := t.scope
	old, calls := s.hidden, s.calls
	s.hidden, s.calls = true, true
	if len(f.Functions) > 100 {
		fault.Refuse("CLV-2084", "ROWS FROM of more than 100 functions")
	}
	for i, n := range f.Functions {
		fc := n.GetList().GetItems()[0].GetFuncCall()
		if fc == nil || fc.Funcname[len(fc.Funcname)-1].GetString_().GetSval() != "unnest" || len(fc.Args) != 1 || n.GetList().GetItems()[1].GetList() != nil {
			fault.Refuse("CLV-2085", "ROWS FROM of other functions than unnest")
		}
		arr := t.expr(fc.Args[0])
		elem := value.Builtin.Element(arr.typ)
		if elem == 0 {
			t.noFunction("unnest", []uint32{arr.typ}, false, fc.Location)
		}
		types, arrays = append(types, itoa(int64(arr.typ))), append(arrays, arr.sql)
		cols = append(cols, value.ElemFromJSON(elem, "json_extract(value, '$["+itoa(int64(i))+"]')")+" AS c"+itoa(int64(i+1)))
		r.cols = append(r.cols, rteCol{name: "unnest", sql: alias + ".c" + itoa(int64(i+1)), typ: elem, mod: -1})
	}
	s.hidden, s.calls = old, calls
	renameColumns(r, f.Alias)
	return "(SELECT " + strings.Join(cols, ", ") + " FROM json_each(cleave_array_zip(" + quote.Text(strings.Join(types, ",")) + ", " + strings.Join(arrays, ", ") + "))) AS " + alias, r
}

func isUnnest(n *pg.Node) bool {
	f := n.GetList().GetItems()[0].GetFuncCall()
	return f != nil && f.Funcname[len(f.Funcname)-1].GetString_().GetSval() == "unnest"
}

// isAncestors recognises pg_partition_ancestors, which has no rows whatever its
// argument is, so that it may refer to its siblings in FROM.
func isAncestors(f *pg.FuncCall) bool {
	return f != nil && f.Funcname[len(f.Funcname)-1].GetString_().GetSval() == "pg_partition_ancestors"
}
