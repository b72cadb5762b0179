package planner

import (
	"slices"
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// planAggregate plans a query that groups or aggregates, whose FROM and WHERE fall
// apart by shard. Each shard gives partial groups, which are fetched into a
// relation; the statement, with aggregates of partial aggregates in place of its
// own, runs on that. Where an aggregate cannot be made of partial ones, the
// relation has a row for each input row, with the columns that are needed.
func (rp *readPlans) planAggregate(n *pg.Node) (*plan.Plan, error) {
	s, q := n.GetSelectStmt(), rp.bound.Root
	if s == nil || q == nil || !rp.spreads(n) || s.Op != pg.SetOperation_SETOP_NONE || s.ValuesLists != nil || len(s.LockingClause) > 0 {
		return nil, nil
	}
	calls, sure := rp.ownAggregates(q)
	if len(calls) == 0 && len(s.GroupClause) == 0 {
		return nil, nil // HAVING alone: PostgreSQL reads no rows
	}
	if !sure && !onlyGrouping(q) || rp.IsVolatile(n) || sqltree.MakesAnonymousRows(n) {
		return nil, nil
	}
	var u *semantics.Use
	for _, j := range anchors(q, nil) {
		if rp.colocatedWith(q, j) && rp.safeBelow(q, j) {
			u = rp.bound.UseOf(j)
			break
		}
	}
	if u == nil || rp.perRun(s, u) {
		return nil, nil
	}
	sorted, _ := rp.sortedBelow(q, u.Node)
	name := plan.RelationPrefix + strconv.Itoa(rp.texts.names+1)
	for _, partial := range []bool{true, false} {
		if !partial && sorted != nil {
			break // array_agg and its kin get the rows in the subquery's order
		}
		b := &aggregation{a: rp, q: q, name: name, partial: partial}
		final, ok := b.final(s)
		if !ok {
			continue
		}
		rp.texts.fresh()
		tree := rp.clocked(sqltree.SelectNode(b.relation(s)))
		text, err := rp.text(tree)
		if err != nil {
			return nil, err
		}
		p := &plan.Plan{Op: plan.Gather, Relations: []plan.Relation{{Name: b.name, Text: text, Target: rp.targetOf(u), Ownership: ownershipOf(tree, text, u), Exact: sqltree.CallsNamed(s, "pg_typeof")}}, Why: "its groups have rows of several shards"}
		if p.Text, err = rp.text(rp.clocked(sqltree.SelectNode(final))); err != nil {
			return nil, err
		}
		return p, nil
	}
	return nil, nil
}

// onlyGrouping reports whether what made the aggregates unsure is GROUPING().
func onlyGrouping(q *semantics.Query) bool {
	only := true
	for _, list := range [][]*pg.Node{q.Select.TargetList, {q.Select.HavingClause}, q.Select.SortClause, q.Select.DistinctClause} {
		sqltree.InspectAll(list, func(m proto.Message) bool {
			switch m.(type) {
			case *pg.SelectStmt, *pg.JsonArrayAgg, *pg.JsonObjectAgg:
				only = false
			}
			return only
		})
	}
	return only
}

// aggregation rewrites one query.
type aggregation struct {
	a       *readPlans
	q       *semantics.Query
	name    string // of the relation
	partial bool   // it has partial groups; else a row for each input row

	columns []aggColumn
	sets    bool // there are grouping sets
	failed  bool
}

// aggColumn is one column of the relation: a key, by which partial groups are
// made, or a partial aggregate.
type aggColumn struct {
	expr *pg.Node
	key  bool
}

// column returns the relation's column for an expression.
func (b *aggregation) column(n *pg.Node, key bool) *pg.Node {
	at := -1
	for i, c := range b.columns {
		if c.key == key && b.same(c.expr, n) {
			at = i
		}
	}
	if at < 0 {
		at = len(b.columns)
		b.columns = append(b.columns, aggColumn{expr: sqltree.Clone(n), key: key})
	}
	return sqltree.ColumnNode(b.name, "c"+strconv.Itoa(at+1))
}

// same reports whether two expressions are one to PostgreSQL: t.a is a if no other
// table has an a.
func (b *aggregation) same(x, y *pg.Node) bool {
	return sqltree.SameNode(x, y) || sqltree.SameNode(b.qualified(x), b.qualified(y))
}

// qualified puts the table's name before columns whose table is certain.
func (b *aggregation) qualified(n *pg.Node) *pg.Node {
	return sqltree.Replace(sqltree.Clone(n), func(n *pg.Node) *pg.Node {
		names := sqltree.FieldNames(n.GetColumnRef())
		if n.GetColumnRef() == nil || len(names) != 1 {
			return n
		}
		of, found := "", 0
		for _, it := range b.q.Scope.Items {
			if it.Open {
				return n
			}
			if it.Bare && slices.ContainsFunc(it.Columns, func(c semantics.Column) bool { return c.Name == names[0] }) {
				of = it.Name
				if found++; !it.Qualified {
					return n
				}
			}
		}
		if found != 1 || of == "" {
			return n
		}
		return sqltree.ColumnNode(of, names[0])
	})
}

// relation is the query of each shard.
func (b *aggregation) relation(s *pg.SelectStmt) *pg.SelectStmt {
	r := sqltree.EmptySelect()
	r.WithClause, r.FromClause, r.WhereClause = sqltree.Clone(s.WithClause), nil, sqltree.Clone(s.WhereClause)
	for _, f := range s.FromClause {
		r.FromClause = append(r.FromClause, sqltree.Clone(f))
	}
	for i, c := range b.columns {
		r.TargetList = append(r.TargetList, sqltree.TargetNode(sqltree.Clone(c.expr), "c"+strconv.Itoa(i+1)))
		if c.key && b.partial {
			r.GroupClause = append(r.GroupClause, sqltree.IntNode(int64(i+1)))
		}
	}
	if len(b.columns) == 0 {
		r.TargetList = []*pg.Node{sqltree.TargetNode(sqltree.IntNode(1), "c1")}
	}
	return r
}

// final is the query on the relation. false: it cannot be made in this way.
func (b *aggregation) final(s *pg.SelectStmt) (*pg.SelectStmt, bool) {
	f := sqltree.Clone(s)
	names := make([]string, len(s.TargetList))
	for i, t := range s.TargetList {
		r := t.GetResTarget()
		if sqltree.IsStar(t) {
			return nil, false
		}
		if names[i] = r.GetName(); names[i] == "" {
			names[i] = outputname.Of(r.GetVal())
		}
	}
	// GROUP BY first: its expressions are keys.
	var groups []*pg.Node
	group := func(n *pg.Node) (*pg.Node, bool) {
		e, ok := b.groupExpr(n, s.TargetList, names)
		if !ok || hasQuery(e) || !hasColumn(e) {
			return nil, false
		}
		groups = append(groups, e)
		return b.column(e, true), true
	}
	var sets func(n *pg.Node) (*pg.Node, bool)
	sets = func(n *pg.Node) (*pg.Node, bool) {
		switch v := n.GetNode().(type) {
		case *pg.Node_GroupingSet:
			b.sets = true
			for i, c := range v.GroupingSet.Content {
				r, ok := sets(c)
				if !ok {
					return nil, false
				}
				v.GroupingSet.Content[i] = r
			}
			return n, true
		case *pg.Node_RowExpr:
			for i, c := range v.RowExpr.Args {
				r, ok := sets(c)
				if !ok {
					return nil, false
				}
				v.RowExpr.Args[i] = r
			}
			return n, true
		case *pg.Node_List:
			for i, c := range v.List.Items {
				r, ok := sets(c)
				if !ok {
					return nil, false
				}
				v.List.Items[i] = r
			}
			return n, true
		}
		return group(n)
	}
	for i, n := range f.GroupClause {
		r, ok := sets(n)
		if !ok {
			return nil, false
		}
		f.GroupClause[i] = r
	}
	grouped := len(s.GroupClause) > 0
	var extra []*pg.Node
	rewrite := func(n *pg.Node) *pg.Node {
		for _, g := range groups {
			if b.same(g, n) {
				return b.column(g, true)
			}
		}
		switch v := n.GetNode().(type) {
		case *pg.Node_SubLink, *pg.Node_SelectStmt, *pg.Node_JsonArrayAgg, *pg.Node_JsonObjectAgg:
			b.failed = true
		case *pg.Node_ColumnRef:
			// Not grouped by, so it depends on the groups' columns by a primary key.
			// An expression among the groups could be this one spelt otherwise (o.k % 3, k % 3).
			if !grouped || b.sets || sqltree.FieldNames(v.ColumnRef) == nil || !onlyColumns(groups) {
				b.failed = true
				return n
			}
			c := b.column(n, true)
			known := false
			for _, e := range extra {
				known = known || sqltree.SameNode(e, c)
			}
			if !known {
				extra = append(extra, c)
			}
			return c
		case *pg.Node_FuncCall:
			if b.a.IsAggregate(v.FuncCall) {
				r, ok := b.aggregate(v.FuncCall)
				if !ok {
					b.failed = true
					return n
				}
				return r
			}
		}
		return n
	}
	for i, t := range f.TargetList {
		r := t.GetResTarget()
		r.Name = names[i]
		r.Val = sqltree.Replace(r.Val, rewrite)
	}
	outputs := func(list []*pg.Node, val func(n *pg.Node) *pg.Node, set func(n, val *pg.Node)) {
		for _, n := range list {
			e := val(n)
			if e.GetAConst() != nil {
				continue // a position
			}
			if c := e.GetColumnRef(); c != nil {
				if p := sqltree.FieldNames(c); len(p) == 1 && countString(names, p[0]) > 0 {
					continue // an output's name
				}
			}
			set(n, sqltree.Replace(e, rewrite))
		}
	}
	outputs(f.SortClause, func(n *pg.Node) *pg.Node { return n.GetSortBy().GetNode() }, func(n, val *pg.Node) { n.GetSortBy().Node = val })
	if len(f.DistinctClause) > 0 && f.DistinctClause[0].GetNode() != nil {
		for i, n := range f.DistinctClause {
			outputs([]*pg.Node{n}, func(n *pg.Node) *pg.Node { return n }, func(_, val *pg.Node) { f.DistinctClause[i] = val })
		}
	}
	f.HavingClause = sqltree.Replace(f.HavingClause, rewrite)
	for i, n := range f.WindowClause {
		f.WindowClause[i] = sqltree.Replace(n, rewrite)
	}
	if b.failed || hasQuery(f.LimitCount) || hasQuery(f.LimitOffset) {
		return nil, false
	}
	f.GroupClause = append(f.GroupClause, extra...)
	f.WithClause, f.WhereClause = nil, nil
	f.FromClause = []*pg.Node{sqltree.TableNode(b.name, "")}
	return f, true
}

func onlyColumns(list []*pg.Node) bool {
	for _, n := range list {
		if n.GetColumnRef() == nil {
			return false
		}
	}
	return true
}

func countString(list []string, s string) (n int) {
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

// groupExpr finds what an element of GROUP BY means: a position in the output, a
// column of FROM, else an output's name, else an expression.
func (b *aggregation) groupExpr(n *pg.Node, targets []*pg.Node, names []string) (*pg.Node, bool) {
	if c := n.GetAConst(); c != nil {
		v, isInt := c.Val.(*pg.A_Const_Ival)
		if !isInt || v.Ival.GetIval() < 1 || int(v.Ival.GetIval()) > len(targets) {
			return nil, false
		}
		return targets[v.Ival.GetIval()-1].GetResTarget().GetVal(), true
	}
	if p := sqltree.FieldNames(n.GetColumnRef()); n.GetColumnRef() != nil && len(p) == 1 && countString(names, p[0]) > 0 {
		for _, it := range b.q.Scope.Items {
			if !it.Bare {
				continue
			}
			for _, c := range it.Columns {
				if c.Name == p[0] {
					return n, true
				}
			}
		}
		for _, it := range b.q.Scope.Items {
			if it.Open {
				return nil, false
			}
		}
		for i, name := range names {
			if name == p[0] {
				return targets[i].GetResTarget().GetVal(), true
			}
		}
	}
	return n, true
}

func hasQuery(m *pg.Node) bool {
	found := false
	if m != nil {
		sqltree.Inspect(m, func(m proto.Message) bool {
			if _, is := m.(*pg.SelectStmt); is {
				found = true
			}
			return !found
		})
	}
	return found
}

func hasColumn(m *pg.Node) bool {
	found := false
	sqltree.Inspect(m, func(m proto.Message) bool {
		if _, is := m.(*pg.ColumnRef); is {
			found = true
		}
		return !found
	})
	return found
}

// aggregate returns the final form of an aggregate call.
func (b *aggregation) aggregate(f *pg.FuncCall) (*pg.Node, bool) {
	if hasAggregateInside(&b.a.Namespace, f) {
		return nil, false // PostgreSQL refuses it
	}
	if !b.partial || f.AggDistinct {
		return b.whole(f)
	}
	if len(f.AggOrder) > 0 || f.AggWithinGroup || f.FuncVariadic || len(f.Args) > 1 {
		return nil, false
	}
	if names := sqltree.Strings(f.Funcname); len(names) > 1 && names[0] != "pg_catalog" {
		return nil, false
	}
	name := sqltree.CallName(f)
	partial := func(name string, cast string) *pg.Node {
		p := sqltree.Clone(f)
		if name != "" {
			p.Funcname = []*pg.Node{sqltree.StringNode("pg_catalog"), sqltree.StringNode(name)}
		}
		if cast != "" {
			p.Args = []*pg.Node{sqltree.CastNode(p.Args[0], cast, nil)}
		}
		return b.column(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: p}}, false)
	}
	if name == "count" {
		sum := sqltree.CastNode(sqltree.CallNode("sum", partial("", "")), "int8", nil)
		return &pg.Node{Node: &pg.Node_CoalesceExpr{CoalesceExpr: &pg.CoalesceExpr{Args: []*pg.Node{sum, sqltree.IntNode(0)}}}}, true
	}
	if len(f.Args) != 1 {
		return nil, false
	}
	arg := f.Args[0]
	switch name {
	case "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "any_value":
		if !b.a.OwnTypes(arg, b.q.Scope) {
			return nil, false
		}
		return sqltree.CallNode(name, partial("", "")), true
	case "sum":
		switch b.a.TypeOf(arg, b.q.Scope) {
		case pgoid.Int2, pgoid.Int4:
			return sqltree.CastNode(sqltree.CallNode("sum", partial("", "")), "int8", nil), true
		case pgoid.Int8, pgoid.Numeric, pgoid.Float4, pgoid.Float8, pgoid.Money, pgoid.Interval:
			return sqltree.CallNode("sum", partial("", "")), true
		}
	case "avg":
		switch b.a.TypeOf(arg, b.q.Scope) {
		case pgoid.Int2, pgoid.Int4, pgoid.Int8, pgoid.Numeric:
			return sqltree.OpNode("/", sqltree.CallNode("sum", partial("sum", "")), sqltree.CallNode("sum", partial("count", ""))), true
		case pgoid.Float4, pgoid.Float8:
			// It adds to 0, so that -0 is 0, and fails where the squares of the differences are too large: on each shard,
			// and of their averages. No value is left out of these that is not NULL.
			sum := sqltree.OpNode("+", sqltree.CallNode("sum", partial("sum", "float8")), sqltree.IntNode(0))
			mean := sqltree.OpNode("/", sum, sqltree.CastNode(sqltree.CallNode("sum", partial("count", "")), "float8", nil))
			if !anyClock(&b.a.Namespace) {
				return mean, true
			}
			none := &pg.Node{Node: &pg.Node_NullTest{NullTest: &pg.NullTest{Arg: sqltree.CallNode("var_pop", partial("avg", "")), Nulltesttype: pg.NullTestType_IS_NULL}}}
			return caseNode(none, &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Isnull: true}}}, mean), true
		case pgoid.Interval:
			return sqltree.OpNode("/", sqltree.CallNode("sum", partial("sum", "")), sqltree.CastNode(sqltree.CallNode("sum", partial("count", "")), "float8", nil)), true
		}
	}
	return nil, false
}

// whole keeps the call as it is, on columns of the relation: with DISTINCT it does
// not matter how often a value is there, else there is a row for each input row.
func (b *aggregation) whole(f *pg.FuncCall) (*pg.Node, bool) {
	if b.partial {
		// Without a column among its arguments a row has to stand for each input row.
		any := false
		for _, arg := range f.Args {
			any = any || hasColumn(arg)
		}
		if !any {
			return nil, false
		}
	}
	c := sqltree.Clone(f)
	sub := func(n *pg.Node) *pg.Node {
		if n == nil || !hasColumn(n) && !hasQuery(n) {
			return n
		}
		if sort := n.GetSortBy(); sort != nil {
			if hasColumn(sort.Node) || hasQuery(sort.Node) {
				sort.Node = b.column(sort.Node, true)
			}
			return n
		}
		return b.column(n, true)
	}
	for i, arg := range c.Args {
		c.Args[i] = sub(arg)
	}
	for i, o := range c.AggOrder {
		c.AggOrder[i] = sub(o)
	}
	c.AggFilter = sub(c.AggFilter)
	return &pg.Node{Node: &pg.Node_FuncCall{FuncCall: c}}, true
}

func hasAggregateInside(ns *semantics.Namespace, f *pg.FuncCall) bool {
	found := false
	sqltree.Inspect(f, func(m proto.Message) bool {
		if c, ok := m.(*pg.FuncCall); ok && c != f && (ns.IsAggregate(c) || c.Over != nil) {
			found = true
		}
		_, query := m.(*pg.SelectStmt)
		return !found && !query
	})
	return found
}
