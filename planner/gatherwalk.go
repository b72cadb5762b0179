package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// gatherScope knows the WITH queries that a place can name, and the names of
// their columns (nil: not known).
type gatherScope struct {
	parent *gatherScope
	ctes   map[string][]string
}

func (s *gatherScope) find(name string) (cols []string, ok bool) {
	for ; s != nil; s = s.parent {
		if cols, ok = s.ctes[name]; ok {
			return cols, true
		}
	}
	return nil, false
}

// gatherLevel is one SELECT: what stands in its FROM.
type gatherLevel struct {
	occ   []*occurrence
	count map[string]int // how many items have a column of a name
	open  bool           // an item has columns that are not known
	at    map[*pg.RangeVar]*occurrence
}

// place is where an expression stands.
type place struct {
	sc *gatherScope
	lv *gatherLevel
}

// node walks whatever may hold tables and columns.
func (g *gatherer) node(n *pg.Node, sc *gatherScope) {
	g.walk(n, place{sc: sc})
}

func (g *gatherer) list(ns []*pg.Node, p place) {
	for _, n := range ns {
		g.walk(n, p)
	}
}

func (g *gatherer) walk(n *pg.Node, p place) {
	switch v := n.GetNode().(type) {
	case nil, *pg.Node_AConst, *pg.Node_ParamRef, *pg.Node_String_, *pg.Node_Integer:
	case *pg.Node_SelectStmt:
		g.selectStmt(v.SelectStmt, p.sc)
	case *pg.Node_ColumnRef:
		g.column(v.ColumnRef, p)
	case *pg.Node_SubLink:
		g.walk(v.SubLink.Testexpr, p)
		g.depth++
		if !g.give(v.SubLink.Subselect.GetSelectStmt(), p.sc) {
			g.walk(v.SubLink.Subselect, p)
		}
		g.depth--
	case *pg.Node_FuncCall:
		g.function(v.FuncCall)
		g.children(v.FuncCall.ProtoReflect(), p)
	case *pg.Node_AExpr:
		g.children(v.AExpr.ProtoReflect(), p)
	case *pg.Node_SqlvalueFunction:
		if v.SqlvalueFunction.Op == pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG {
			g.home = plan.Default
		}
	case *pg.Node_CurrentOfExpr:
		fail(sqlstate.Refusal("CLV-0230", "WHERE CURRENT OF is not supported").WithHint("Name the row by its key."))
	case *pg.Node_InsertStmt:
		g.insertStmt(v.InsertStmt, p.sc)
	case *pg.Node_UpdateStmt:
		u := v.UpdateStmt
		g.changes(u.Relation, u.WithClause, u.FromClause, u.WhereClause, p.sc, u.TargetList, u.ReturningList)
	case *pg.Node_DeleteStmt:
		d := v.DeleteStmt
		g.changes(d.Relation, d.WithClause, d.UsingClause, d.WhereClause, p.sc, nil, d.ReturningList)
	case *pg.Node_MergeStmt:
		fail(sqlstate.Refusal("CLV-0259", "MERGE over several shards is not supported").WithHint("Fix the shard key in its condition."))
	case *pg.Node_RangeVar, *pg.Node_RangeSubselect, *pg.Node_JoinExpr, *pg.Node_RangeFunction, *pg.Node_RangeTableFunc, *pg.Node_JsonTable, *pg.Node_RangeTableSample:
		fail(sqlstate.Refusal("CLV-0260", "this kind of statement is not read over several shards").WithHint("Give the shard key."))
	default:
		if n != nil {
			g.children(n.ProtoReflect(), p)
		}
	}
}

// children walks the expressions below a message.
func (g *gatherer) children(m protoreflect.Message, p place) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		one := func(v protoreflect.Value) {
			switch child := v.Message().Interface().(type) {
			case *pg.Node:
				g.walk(child, p)
			case *pg.SelectStmt:
				g.selectStmt(child, p.sc)
			case *pg.TypeName:
				g.plans.CatalogType(child)
			case *pg.RangeVar:
				fail(sqlstate.Refusal("CLV-0260", "this kind of statement is not read over several shards").WithHint("Give the shard key."))
			default:
				g.children(v.Message(), p)
			}
		}
		if fd.IsList() {
			for i := range v.List().Len() {
				one(v.List().Get(i))
			}
		} else {
			one(v)
		}
		return true
	})
}

func (g *gatherer) column(c *pg.ColumnRef, p place) {
	names := sqltree.Strings(c.Fields)
	star := len(names) < len(c.Fields)
	if star && len(names) == 0 {
		if p.lv != nil {
			for _, o := range p.lv.occ {
				o.all = true
			}
		}
		return
	}
	g.refs = append(g.refs, fieldRef{names: names, star: star})
	if len(c.Fields) > 2 {
		g.long = append(g.long, c)
	}
}

// function lets a call through or refuses it.
func (g *gatherer) function(f *pg.FuncCall) {
	names := sqltree.Strings(f.Funcname)
	switch names[len(names)-1] {
	case "current_database", "format_type":
		g.home = plan.Default
		return
	case "pg_typeof":
		g.typeof = true
	}
	g.plans.CheckCall(f)
}

func (g *gatherer) with(w *pg.WithClause, sc *gatherScope) {
	if w == nil {
		return
	}
	sc.ctes = map[string][]string{}
	columns := func(c *pg.CommonTableExpr) []string {
		cols := outputname.OfQuery(c.Ctequery.GetSelectStmt())
		if cols == nil || c.SearchClause != nil || c.CycleClause != nil {
			return nil
		}
		return renamed(cols, sqltree.Strings(c.Aliascolnames))
	}
	if w.Recursive {
		for _, n := range w.Ctes {
			sc.ctes[n.GetCommonTableExpr().GetCtename()] = nil
		}
	}
	for _, n := range w.Ctes {
		c := n.GetCommonTableExpr()
		if c == nil {
			continue
		}
		if c.Ctequery.GetSelectStmt() == nil {
			fail(sqlstate.Refusal("CLV-0261", "a WITH query that changes rows is not supported over several shards").
				WithHint("Fix the shard key, or run it as a statement of its own with RETURNING."))
		}
		if w.Recursive {
			sc.ctes[c.Ctename] = columns(c)
		}
		if !g.give(c.Ctequery.GetSelectStmt(), sc) {
			g.selectStmt(c.Ctequery.GetSelectStmt(), sc)
		}
		sc.ctes[c.Ctename] = columns(c)
	}
}

func renamed(cols, names []string) []string {
	cols = slices.Clone(cols)
	for i, n := range names {
		if i < len(cols) {
			cols[i] = n
		}
	}
	return cols
}

// selectStmt reads one SELECT and what is below it.
func (g *gatherer) selectStmt(s *pg.SelectStmt, outer *gatherScope) {
	if s == nil {
		return
	}
	g.plans.Work(nil)
	if len(s.LockingClause) > 0 {
		g.plans.one.RefuseLocks(sqlstate.Refusal("CLV-1026", "SELECT ... FOR UPDATE or SHARE of rows on several shards would not lock all that it should").
			WithHint("Lock the rows of one table in a statement of its own: SELECT ... FROM table WHERE ... FOR UPDATE; then read what belongs to them."))
	}
	if s.IntoClause != nil {
		fail(sqlstate.Refusal("CLV-0262", "SELECT INTO from rows of several shards is not supported").
			WithHint("Create the table first, then INSERT ... SELECT."))
	}
	sc := &gatherScope{parent: outer}
	g.with(s.WithClause, sc)
	p := place{sc: sc}
	if s.Op != pg.SetOperation_SETOP_NONE {
		for _, arm := range []*pg.SelectStmt{s.Larg, s.Rarg} {
			if !g.give(arm, sc) {
				g.selectStmt(arm, sc)
			}
		}
	} else {
		g.idle = g.unread(s)
		p.lv = g.level(s.FromClause, s.WhereClause, sc)
	}
	for _, t := range s.TargetList {
		if c := t.GetResTarget().GetVal().GetColumnRef(); c != nil && sqltree.IsStar(t) && len(c.Fields) > 1 {
			g.refs = append(g.refs, fieldRef{names: sqltree.Strings(c.Fields), star: true, list: true})
			if len(c.Fields) > 2 {
				g.long = append(g.long, c)
			}
			continue
		}
		g.walk(t, p)
	}
	for _, l := range [][]*pg.Node{s.DistinctClause, s.GroupClause, s.WindowClause, s.ValuesLists, s.SortClause} {
		g.list(l, p)
	}
	g.walk(s.HavingClause, p)
	g.walk(s.LimitCount, p)
	g.walk(s.LimitOffset, p)
	if len(s.GroupClause) > 0 && len(p.lv.occ) > 0 && dependent(s) {
		for _, o := range p.lv.occ {
			o.keyed = true
		}
	}
}

// unread reports whether PostgreSQL reads no row of a query's tables: it has HAVING,
// and neither GROUP BY nor aggregates. Its WHERE, which may fail, is never run.
func (g *gatherer) unread(s *pg.SelectStmt) bool {
	if s.HavingClause == nil || len(s.GroupClause) > 0 {
		return false
	}
	q := g.plans.bound.QueryOf(g.selects[s])
	if q == nil || q.Select == nil {
		return false
	}
	calls, sure := g.plans.ownAggregates(q)
	return sure && len(calls) == 0
}

// level reads FROM and WHERE.
func (g *gatherer) level(from []*pg.Node, where *pg.Node, sc *gatherScope) *gatherLevel {
	lv := &gatherLevel{count: map[string]int{}, at: map[*pg.RangeVar]*occurrence{}}
	p := place{sc: sc, lv: lv}
	idle := g.idle
	g.idle = false
	for _, n := range from {
		g.from(n, p)
	}
	g.walk(where, p)
	if idle {
		return lv
	}
	conds := sqltree.SplitAnd(where, nil)
	for _, n := range from {
		g.push(n, conds, lv)
	}
	return lv
}

// from reads an element of FROM.
func (g *gatherer) from(n *pg.Node, p place) {
	switch v := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		g.rangeVar(v.RangeVar, p)
	case *pg.Node_RangeSubselect:
		s := v.RangeSubselect
		if s.Lateral {
			g.depth++
		}
		if s.Lateral || !g.give(s.Subquery.GetSelectStmt(), p.sc) {
			g.walk(s.Subquery, place{sc: p.sc})
		}
		if s.Lateral {
			g.depth--
		}
		cols := outputname.OfQuery(s.Subquery.GetSelectStmt())
		p.lv.add(renamed(cols, sqltree.Strings(s.Alias.GetColnames())), cols == nil)
		g.other[s.Alias.GetAliasname()] = true
	case *pg.Node_JoinExpr:
		j := v.JoinExpr
		before := len(g.occ)
		g.from(j.Larg, p)
		g.from(j.Rarg, p)
		g.walk(j.Quals, p)
		for _, name := range sqltree.Strings(j.UsingClause) {
			g.refs = append(g.refs, fieldRef{names: []string{name}})
		}
		for _, o := range g.occ[before:] {
			if !slices.Contains(p.lv.occ, o) {
				continue // of a subquery
			}
			o.all = o.all || j.IsNatural || len(j.Alias.GetColnames()) > 0
			for _, al := range []*pg.Alias{j.Alias, j.JoinUsingAlias} {
				if al != nil {
					g.called(o, al.Aliasname)
				}
			}
		}
		if len(j.Alias.GetColnames()) > 0 {
			p.lv.open = true
		}
		for _, al := range []*pg.Alias{j.Alias, j.JoinUsingAlias} {
			if al != nil {
				g.other[al.Aliasname] = true
			}
		}
	case *pg.Node_RangeTableSample:
		fail(sqlstate.Refusal("CLV-0263", "TABLESAMPLE of rows on several shards is not supported").
			WithHint("Take the sample with ORDER BY random() LIMIT ..., or read one shard key."))
	case *pg.Node_RangeFunction:
		for _, f := range v.RangeFunction.Functions {
			g.walk(f, p)
		}
		for _, d := range v.RangeFunction.Coldeflist {
			g.walk(d, p)
		}
		p.lv.open = true
		g.other[v.RangeFunction.Alias.GetAliasname()] = true
		for _, f := range v.RangeFunction.Functions {
			if items := f.GetList().GetItems(); len(items) > 0 {
				g.other[outputname.Of(items[0])] = true
			}
		}
	case *pg.Node_RangeTableFunc:
		g.children(v.RangeTableFunc.ProtoReflect(), p)
		p.lv.open = true
		g.other[v.RangeTableFunc.Alias.GetAliasname()] = true
	case *pg.Node_JsonTable:
		g.children(v.JsonTable.ProtoReflect(), p)
		p.lv.open = true
		g.other[v.JsonTable.Alias.GetAliasname()] = true
	default:
		fail(sqlstate.Refusal("CLV-0246", "this kind of table expression is not known to the router").
			WithHint("Write it as a subquery or a join."))
	}
}

func (lv *gatherLevel) add(cols []string, open bool) {
	lv.open = lv.open || open
	seen := map[string]bool{}
	for _, c := range cols {
		lv.count[c]++
		if seen[c] {
			lv.count[c]++
		}
		seen[c] = true
	}
}

func (g *gatherer) called(o *occurrence, name string) {
	if !slices.Contains(o.names, name) {
		o.names = append(o.names, name)
		g.names[name] = append(g.names[name], o)
	}
}

func (g *gatherer) rangeVar(v *pg.RangeVar, p place) {
	name := v.Relname
	if v.Alias != nil {
		name = v.Alias.Aliasname
	}
	if v.Schemaname == "" {
		if cols, ok := p.sc.find(v.Relname); ok {
			g.other[name] = true
			p.lv.add(renamed(cols, sqltree.Strings(v.Alias.GetColnames())), cols == nil)
			return
		}
	}
	o := &occurrence{v: v, table: g.table(v), lone: v.Alias == nil, only: !v.Inh, need: map[string]bool{}, all: len(v.Alias.GetColnames()) > 0}
	g.occ = append(g.occ, o)
	g.called(o, name)
	p.lv.occ = append(p.lv.occ, o)
	p.lv.at[v] = o
	p.lv.add(renamed(semantics.ColumnNames(o.table), sqltree.Strings(v.Alias.GetColnames())), false)
}

// changes reads UPDATE and DELETE: the other tables, not the one that they change.
func (g *gatherer) changes(target *pg.RangeVar, w *pg.WithClause, from []*pg.Node, where *pg.Node, outer *gatherScope, lists ...[]*pg.Node) {
	if target != g.keep {
		fail(sqlstate.Refusal("CLV-0261", "a WITH query that changes rows is not supported over several shards").
			WithHint("Fix the shard key, or run it as a statement of its own with RETURNING."))
	}
	sc := &gatherScope{parent: outer}
	g.with(w, sc)
	g.keepName(target)
	lv := g.level(from, where, sc)
	// What the conditions say of the target's columns is not looked at.
	lv.open = true
	for _, l := range lists {
		g.list(l, place{sc: sc, lv: lv})
	}
}

func (g *gatherer) keepName(target *pg.RangeVar) {
	name := target.Relname
	if target.Alias != nil {
		name = target.Alias.Aliasname
	}
	g.other[name] = true
}

func (g *gatherer) insertStmt(s *pg.InsertStmt, outer *gatherScope) {
	if s.Relation != g.keep {
		fail(sqlstate.Refusal("CLV-0261", "a WITH query that changes rows is not supported over several shards").
			WithHint("Fix the shard key, or run it as a statement of its own with RETURNING."))
	}
	sc := &gatherScope{parent: outer}
	g.with(s.WithClause, sc)
	g.keepName(s.Relation)
	p := place{sc: sc}
	g.walk(s.SelectStmt, p)
	if c := s.OnConflictClause; c != nil {
		g.children(c.ProtoReflect(), p)
	}
	g.list(s.ReturningList, p)
}

// dependent reports whether a grouped SELECT may use a column that is not
// grouped by, because the primary key is.
func dependent(s *pg.SelectStmt) bool {
	grouped := map[string]bool{}
	for _, n := range s.GroupClause {
		if i := n.GetAConst().GetIval(); i != nil && int(i.Ival) <= len(s.TargetList) && i.Ival > 0 {
			n = s.TargetList[i.Ival-1].GetResTarget().GetVal()
		}
		sqltree.EachMessage(n.ProtoReflect(), func(m protoreflect.Message) {
			if c, ok := m.Interface().(*pg.ColumnRef); ok {
				if names := sqltree.FieldNames(c); len(names) > 0 {
					grouped[names[len(names)-1]] = true
				}
			}
		})
	}
	for _, t := range s.TargetList {
		r := t.GetResTarget()
		if r.GetName() == "" || !grouped[r.GetName()] {
			continue
		}
		// GROUP BY names an output.
		for _, c := range bareColumns(r.Val) {
			grouped[c] = true
		}
	}
	for _, l := range [][]*pg.Node{s.TargetList, {s.HavingClause}, s.SortClause, s.DistinctClause} {
		for _, n := range l {
			for _, c := range bareColumns(n) {
				if !grouped[c] {
					return true
				}
			}
		}
	}
	return false
}

// bareColumns are the columns that an expression uses outside of aggregates.
func bareColumns(n *pg.Node) (out []string) {
	var walk func(m protoreflect.Message)
	walk = func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *pg.FuncCall:
			names := sqltree.Strings(v.Funcname)
			if kind := builtin.Kind(names[len(names)-1]); strings.Contains(kind, "a") && v.Over == nil {
				return
			}
		case *pg.ColumnRef:
			names := sqltree.Strings(v.Fields)
			if len(names) < len(v.Fields) {
				out = append(out, "*")
			} else if len(names) > 0 {
				out = append(out, names[len(names)-1])
			}
			return
		}
		sqltree.Below(m, walk)
	}
	if n != nil {
		walk(n.ProtoReflect())
	}
	return out
}
