package planner

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// The proof that a query falls apart by shard. One sharded table of it is the
// anchor. If the rows of the anchor with shard key K, for every K, can be
// combined with rows of shard key K only (the proof of one shard, with the
// unknown K in place of a constant), and the query is safe to push down in the anchor
// (its answer for two sets of rows is the answer for the one and the answer for
// the other), then its answer is all the shards' answers together, for each
// shard has all rows of its keys. docs/design/planner.md has the rules.

// unknown is the constant that stands for column i of the anchor's shard key.
func unknownKey(i int, t keyspace.Type) semantics.Constant {
	return semantics.Constant{Type: t, Unknown: i + 1}
}

// pushdown says which queries fall apart by shard.
type pushdown struct {
	*semantics.Typer
	*semantics.Equivalence
	*semantics.Routing

	bound *semantics.BoundStatement
}

// local looks for an anchor of query q and returns its use, nil if there is none.
func (pd *pushdown) local(q *semantics.Query) *semantics.Use {
	for _, j := range anchors(q, nil) {
		if pd.colocatedWith(q, j) && pd.safeToPushdown(q, j) {
			return pd.bound.UseOf(j)
		}
	}
	return nil
}

// anchors are the sharded tables of which every row of FROM has one row.
func anchors(q *semantics.Query, out []*semantics.JoinNode) []*semantics.JoinNode {
	if q.Root == nil || q.Select != nil && q.Select.ValuesLists != nil {
		return out
	}
	var down func(j *semantics.JoinNode)
	down = func(j *semantics.JoinNode) {
		switch j.Op {
		case semantics.JLeaf:
			if j.Key != nil {
				out = append(out, j)
			}
		case semantics.InnerJoin:
			for _, k := range j.Kids {
				down(k)
			}
		case semantics.LeftJoin:
			down(j.Kids[0])
		case semantics.JSub:
			out = anchors(j.Query, out)
		}
	}
	down(q.Root)
	return out
}

// colocatedWith reports whether every other sharded table of q, in subqueries too, is
// bound to the shard key of the anchor.
func (pd *pushdown) colocatedWith(q *semantics.Query, anchor *semantics.JoinNode) bool {
	r := pd.Routing
	before := anchor.Facts
	defer func() { anchor.Facts, r.Anchor = before, nil }()
	for i, t := range anchor.Key {
		if t == semantics.NoTerm {
			return false
		}
		anchor.Facts = append(anchor.Facts[:len(anchor.Facts):len(anchor.Facts)], semantics.OneOf(t, []semantics.Constant{unknownKey(i, pd.Types[i])}))
	}
	r.Anchor, r.Outside = anchor, false
	pd.VisitQuery(q, semantics.NoFacts())
	return !r.Outside && pd.OneKeyspace()
}

// safeToPushdown reports whether the answer of q for two sets of the anchor's rows is the answer for the one and the
// answer for the other. What the whole statement's ORDER BY, LIMIT and DISTINCT do is left to the caller: they
// are not looked at in q itself.
func (pd *pushdown) safeToPushdown(q *semantics.Query, anchor *semantics.JoinNode) bool {
	return q.Arms == nil && pd.keepsKeys(q, anchor) && pd.safeBelow(q, anchor)
}

// safeBelow is safeToPushdown for the FROM clause of q alone.
func (pd *pushdown) safeBelow(q *semantics.Query, anchor *semantics.JoinNode) bool {
	for _, sub := range pathTo(q.Root, anchor) {
		s := sub.Query.Select
		if s.LimitCount != nil || s.LimitOffset != nil || len(s.LockingClause) > 0 || !pd.keepsKeys(sub.Query, anchor) {
			return false
		}
		if len(s.DistinctClause) > 0 && !pd.distinctByKey(sub.Query, anchor) {
			return false
		}
	}
	return true
}

// pathTo returns the subqueries in FROM that the anchor is in, outermost first.
func pathTo(j *semantics.JoinNode, anchor *semantics.JoinNode) []*semantics.JoinNode {
	var out []*semantics.JoinNode
	var find func(j *semantics.JoinNode) bool
	find = func(j *semantics.JoinNode) bool {
		if j == anchor {
			return true
		}
		if j.Op == semantics.JSub && j.Query.Root != nil {
			at := len(out)
			out = append(out, j)
			if find(j.Query.Root) {
				return true
			}
			out = out[:at]
			return false
		}
		for _, k := range j.Kids {
			if find(k) {
				return true
			}
		}
		return false
	}
	find(j)
	return out
}

// keepsKeys reports whether no row of q's output is made of rows with different
// shard keys of the anchor: it does not aggregate, or by groups of the key, and
// its windows are partitioned by it.
func (pd *pushdown) keepsKeys(q *semantics.Query, anchor *semantics.JoinNode) bool {
	s := q.Select
	if s == nil || q.Root == nil {
		return false
	}
	if len(s.GroupClause) > 0 {
		if !pd.coversKey(q, anchor, groupExprs(s)) {
			return false
		}
	} else if calls, sure := pd.ownAggregates(q); len(calls) > 0 || !sure || s.HavingClause != nil {
		return false
	}
	if !q.Windows {
		return true
	}
	ok := true
	named := map[string]*pg.WindowDef{}
	for _, n := range s.WindowClause {
		w := n.GetWindowDef()
		named[w.GetName()] = w
	}
	part := func(w *pg.WindowDef) []*pg.Node {
		for range len(named) + 2 {
			switch {
			case w == nil:
				return nil
			case len(w.PartitionClause) > 0:
				return w.PartitionClause
			case w.Refname != "":
				w = named[w.Refname]
			case w.Name != "" && named[w.Name] != nil && named[w.Name] != w:
				w = named[w.Name]
			default:
				return nil
			}
		}
		return nil
	}
	sqltree.EachCall(s, func(f *pg.FuncCall) {
		if f.Over != nil {
			ok = ok && pd.coversKey(q, anchor, part(f.Over))
		}
	})
	return ok
}

// coversKey reports whether the expressions contain every shard key column of the
// anchor. nil: they do not.
func (pd *pushdown) coversKey(q *semantics.Query, anchor *semantics.JoinNode, exprs []*pg.Node) bool {
	if len(exprs) == 0 {
		return false
	}
	f := semantics.NoFacts()
	pd.Gather(q.Root, f)
	pd.Gather(q.Root, f)
	for i := range anchor.Key {
		in := semantics.AsSet(keyClass(pd.Equivalence, f, q, anchor, i))
		ok := false
		for _, e := range exprs {
			c, isCol := pd.ColumnOf(e, q.Scope)
			ok = ok || isCol && in[c.Term]
		}
		if !ok {
			return false
		}
	}
	return true
}

// keyClass returns the terms of q's level that are column i of the anchor's key:
// through subqueries, by the output columns that carry it.
func keyClass(eq *semantics.Equivalence, f *semantics.Facts, q *semantics.Query, anchor *semantics.JoinNode, i int) []semantics.Term {
	t := anchor.Key[i]
	path := pathTo(q.Root, anchor)
	for n := len(path) - 1; n >= 0; n-- {
		sub := path[n].Query
		g := semantics.NoFacts()
		eq.Gather(sub.Root, g)
		in := semantics.AsSet(g.Class(t))
		next := semantics.NoTerm
		for c, inner := range sub.Inner {
			if inner != semantics.NoTerm && in[inner] && sub.Columns[c].Term != semantics.NoTerm {
				next = sub.Columns[c].Term
				break
			}
		}
		if next == semantics.NoTerm {
			return nil
		}
		t = next
	}
	return f.Class(t)
}

// distinctByKey reports whether DISTINCT of q compares rows of equal keys only:
// its columns, or its ON list, contain the shard key of the anchor.
func (pd *pushdown) distinctByKey(q *semantics.Query, anchor *semantics.JoinNode) bool {
	if on := q.Select.DistinctClause; on[0].GetNode() != nil {
		return pd.coversKey(q, anchor, outputsFirst(positions(on, q.Select.TargetList), q.Select.TargetList))
	}
	return keyColumns(pd.Equivalence, q, anchor) != nil
}

// keyColumns returns the output columns of q that are the shard key of the
// anchor, nil if one is missing.
func keyColumns(eq *semantics.Equivalence, q *semantics.Query, anchor *semantics.JoinNode) []int {
	if q.Open {
		return nil
	}
	f := semantics.NoFacts()
	eq.Gather(q.Root, f)
	eq.Gather(q.Root, f)
	var at []int
	for i := range anchor.Key {
		in := semantics.AsSet(keyClass(eq, f, q, anchor, i))
		found := -1
		for c, inner := range q.Inner {
			if found < 0 && inner != semantics.NoTerm && in[inner] {
				found = c
			}
		}
		if found < 0 {
			return nil
		}
		at = append(at, found)
	}
	return at
}

// groupExprs returns what GROUP BY groups by, with positions and names of output
// columns replaced; nil with grouping sets.
func groupExprs(s *pg.SelectStmt) []*pg.Node {
	for _, g := range s.GroupClause {
		if g.GetGroupingSet() != nil {
			return nil
		}
	}
	return positions(s.GroupClause, s.TargetList)
}

// positions replaces output positions in GROUP BY, ORDER BY or DISTINCT ON by the
// expressions that stand there. With a star in the list a position says nothing.
func positions(list, targets []*pg.Node) []*pg.Node {
	out := make([]*pg.Node, 0, len(list))
	for _, n := range list {
		if c := n.GetAConst(); c != nil && c.GetIval() != nil {
			p := int(c.GetIval().GetIval())
			if p >= 1 && p <= len(targets) && !sqltree.AnyStar(targets[:p]) {
				n = targets[p-1].GetResTarget().GetVal()
			}
		}
		out = append(out, n)
	}
	return out
}

// outputsFirst replaces what is the name of an output column by its expression, as
// DISTINCT ON and ORDER BY read a name alone; nil if it is not certain which is meant.
func outputsFirst(list, targets []*pg.Node) []*pg.Node {
	out := slices.Clone(list)
	for i, n := range out {
		names := sqltree.FieldNames(n.GetColumnRef())
		if len(names) != 1 {
			continue
		}
		for _, t := range targets {
			r := t.GetResTarget()
			if sqltree.IsStar(t) || r == nil {
				continue // its columns are those that the name alone means
			}
			name := r.Name
			if name == "" {
				if name = outputname.Of(r.Val); outputname.Unsure(r.Val) {
					return nil
				}
			}
			if name == names[0] {
				if out[i] != n && !sqltree.SameNode(out[i], r.Val) {
					return nil
				}
				out[i] = r.Val
			}
		}
	}
	return out
}

// ownAggregates returns the aggregate calls of a query level. sure is false if a
// call in a subquery could be one of this level, because its arguments name none
// of the subquery's columns for sure.
func (pd *pushdown) ownAggregates(q *semantics.Query) (calls []*pg.FuncCall, sure bool) {
	sure = true
	s := q.Select
	var level func(m proto.Message, inner *semantics.Query) func(m proto.Message) bool
	level = func(top proto.Message, inner *semantics.Query) func(m proto.Message) bool {
		return func(m proto.Message) bool {
			switch v := m.(type) {
			case *pg.SelectStmt:
				if m == top {
					return true
				}
				sub := pd.bound.QueryOf(v)
				sqltree.Inspect(v, level(v, sub))
				return false
			case *pg.JsonArrayAgg, *pg.JsonObjectAgg, *pg.GroupingFunc:
				sure = false
			case *pg.FuncCall:
				if !pd.IsAggregate(v) {
					return true
				}
				if inner == nil && top == nil {
					calls = append(calls, v)
					return true
				}
				sure = sure && aggregatesInside(v, inner)
			}
			return true
		}
	}
	for _, list := range [][]*pg.Node{s.DistinctClause, s.TargetList, {s.HavingClause}, s.SortClause} {
		for _, n := range list {
			if n != nil {
				sqltree.Inspect(n, level(nil, nil))
			}
		}
	}
	return calls, sure
}

// aggregatesInside reports whether an aggregate call surely belongs to the query
// that it stands in: it has no column, or one of that query's own tables.
func aggregatesInside(f *pg.FuncCall, q *semantics.Query) bool {
	if q == nil || q.Scope == nil {
		return false
	}
	none, own := true, false
	sqltree.Inspect(f, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			none = false
			if names := sqltree.FieldNames(c); names != nil {
				only := &semantics.Scope{Items: q.Scope.Items}
				own = own || inScope(only, names)
			}
		}
		return true
	})
	return none || own
}

// inScope reports whether one of the scope's own items surely has a column.
func inScope(s *semantics.Scope, names []string) bool {
	for _, it := range s.Items {
		if len(names) > 1 && (!it.Qualified || it.Name != names[len(names)-2]) || len(names) == 1 && !it.Bare {
			continue
		}
		if len(names) > 1 && it.Open {
			return true
		}
		for _, c := range it.Columns {
			if c.Name == names[len(names)-1] {
				return true
			}
		}
	}
	return false
}

// perRun reports whether a query that falls apart by shard has a part that PostgreSQL
// may run once for all rows and that may answer otherwise each time: a subquery or a
// function in FROM that is volatile, or rows of a reference table that no order
// chooses. Each shard would have an answer of its own. What stands beside the rows of a
// anchor is run for each of them, on one server as well.
func (pd *pushdown) perRun(s *pg.SelectStmt, anchors ...*semantics.Use) bool {
	if s == nil {
		return false
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		return pd.perRun(s.Larg, anchors...) || pd.perRun(s.Rarg, anchors...)
	}
	own := map[*pg.RangeVar]bool{}
	for _, w := range anchors {
		own[w.Ref] = true
	}
	found := false
	sqltree.Descend(s.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			if v == s {
				return true
			}
			around := false
			sqltree.EachRangeVar(m, func(r *pg.RangeVar) { around = around || own[r] })
			if around {
				found = found || pd.perRun(v, anchors...)
			} else {
				found = found || pd.IsVolatile(v) || pd.loose(v)
			}
			return false
		case *pg.RangeFunction:
			found = found || pd.IsVolatile(v)
		case *pg.RangeTableSample:
			found = found || !own[v.Relation.GetRangeVar()]
		}
		return !found
	})
	return found
}

// answersOnce reports whether a statement has a subquery as perRun means it.
func (pd *pushdown) answersOnce(m protoreflect.Message) bool {
	found := false
	sqltree.Descend(m, func(m protoreflect.Message) bool {
		s, is := m.Interface().(*pg.SelectStmt)
		found = found || is && (pd.IsVolatile(s) || pd.loose(s))
		return !is && !found
	})
	return found
}

// loose reports whether a query that stands for itself leaves open which rows of a
// table it takes, or in what order it counts or adds them.
func (pd *pushdown) loose(s *pg.SelectStmt) bool {
	open, tables := false, false
	sqltree.Descend(s.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			open = open || v.LimitCount != nil || v.LimitOffset != nil || len(v.DistinctClause) > 0 && v.DistinctClause[0].GetNode() != nil
		case *pg.FuncCall:
			open = open || v.Over != nil || pd.byOrder(v, s)
		case *pg.RangeTableSample, *pg.JsonArrayAgg, *pg.JsonObjectAgg:
			open = true
		case *pg.RangeVar:
			tables = true
		}
		return true
	})
	return open && tables && !correlated(pd.bound, s)
}

// byOrder reports whether an aggregate call depends on the order of its rows, which no
// ORDER BY in it says: a list, or a sum of what may be floating-point numbers.
func (pd *pushdown) byOrder(f *pg.FuncCall, s *pg.SelectStmt) bool {
	if len(f.AggOrder) > 0 || !pd.IsAggregate(f) {
		return false
	}
	switch sqltree.CallName(f) {
	case "count", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "mode", "rank", "dense_rank", "percentile_disc":
		return false
	case "sum", "avg", "variance", "var_pop", "var_samp", "stddev", "stddev_pop", "stddev_samp":
		if q := pd.bound.QueryOf(s); q != nil && len(f.Args) == 1 {
			switch pd.TypeOf(f.Args[0], q.Scope) {
			case pgoid.Int2, pgoid.Int4, pgoid.Int8, pgoid.Numeric, pgoid.Interval, pgoid.Money:
				return false
			}
		}
	}
	return true
}

// A query without an order of its own over one subquery with ORDER BY gives rows in
// that order on PostgreSQL: SELECT * FROM (SELECT ... ORDER BY x) s LIMIT 10. SQL does
// not promise it, but people rely on it, and a LIMIT around it chooses rows by it.

// sortedBelow finds the subquery whose ORDER BY the rows of q's FROM come in, on the
// way to the anchor: nil if there is none. depth is how many subqueries are around it.
func (pd *pushdown) sortedBelow(q *semantics.Query, anchor *semantics.JoinNode) (sub *semantics.JoinNode, depth int) {
	for {
		if q.Select == nil || len(q.Select.FromClause) != 1 || q.Select.FromClause[0].GetRangeSubselect() == nil {
			return nil, 0
		}
		path := pathTo(q.Root, anchor)
		if len(path) == 0 || path[0].Query.Select == nil {
			return nil, 0
		}
		inner := path[0].Query
		if len(inner.Select.SortClause) > 0 {
			return path[0], depth
		}
		if len(inner.Select.GroupClause) > 0 || len(inner.Select.DistinctClause) > 0 || inner.Windows {
			return nil, 0
		}
		q, depth = inner, depth+1
	}
}

// inherit gives a query without ORDER BY the one of its only subquery. false: it has
// to be gathered to keep that order.
func (b *scatter) inherit(anchor *semantics.JoinNode) bool {
	s := b.s
	if len(s.SortClause) > 0 || len(s.DistinctClause) > 0 || len(s.GroupClause) > 0 || b.q.Windows {
		return true
	}
	sub, depth := b.a.sortedBelow(b.q, anchor)
	if sub == nil {
		return true
	}
	from := s.FromClause[0].GetRangeSubselect()
	if depth > 0 || from.Alias == nil || len(from.Alias.Colnames) > 0 || sub.Query.Open {
		return false
	}
	inner := from.Subquery.GetSelectStmt()
	var sorts []*pg.Node
	for _, n := range inner.SortClause {
		sort := sqltree.Clone(n)
		name, ok := b.outputOf(sort.GetSortBy().GetNode(), inner.TargetList, sub.Query.Columns)
		if !ok {
			return false
		}
		sort.GetSortBy().Node = sqltree.ColumnNode(from.Alias.Aliasname, name)
		sorts = append(sorts, sort)
	}
	s.SortClause = sorts
	if len(inner.DistinctClause) == 0 {
		inner.SortClause = nil
	}
	return true
}

// outputOf is the name of the output column that an element of ORDER BY sorts by.
func (b *scatter) outputOf(n *pg.Node, targets []*pg.Node, cols []semantics.Column) (string, bool) {
	name := ""
	switch c := n.GetColumnRef(); {
	case n.GetAConst().GetIval() != nil:
		if p := int(n.GetAConst().GetIval().GetIval()); p >= 1 && p <= len(cols) {
			name = cols[p-1].Name
		}
	case c != nil && len(sqltree.FieldNames(c)) == 1:
		name = sqltree.FieldNames(c)[0]
	case !sqltree.AnyStar(targets):
		for i, t := range targets {
			if i < len(cols) && sqltree.SameNode(t.GetResTarget().GetVal(), n) {
				name = cols[i].Name
			}
		}
	}
	found := 0
	for _, c := range cols {
		if c.Name == name {
			found++
		}
	}
	return name, found == 1 && name != "?column?"
}
