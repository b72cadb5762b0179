package planner

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/outputname"
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
func unknownKey(i int, t keyspace.Type) constant { return constant{typ: t, unknown: i + 1} }

// pushdown says which queries fall apart by shard.
type pushdown struct {
	*typer
	*equivalence
	*routing

	bound *boundStatement
}

// local looks for an anchor of query q and returns its use, nil if there is none.
func (pd *pushdown) local(q *query) *use {
	for _, j := range anchors(q, nil) {
		if pd.colocatedWith(q, j) && pd.safeToPushdown(q, j) {
			return pd.bound.useOf(j)
		}
	}
	return nil
}

func (bs *boundStatement) useOf(j *jnode) *use {
	for _, u := range bs.uses {
		if u.node == j {
			return u
		}
	}
	return nil
}

// anchors are the sharded tables of which every row of FROM has one row.
func anchors(q *query, out []*jnode) []*jnode {
	if q.root == nil || q.sel != nil && q.sel.ValuesLists != nil {
		return out
	}
	var down func(j *jnode)
	down = func(j *jnode) {
		switch j.op {
		case jLeaf:
			if j.key != nil {
				out = append(out, j)
			}
		case jInner:
			for _, k := range j.kids {
				down(k)
			}
		case jLeft:
			down(j.kids[0])
		case jSub:
			out = anchors(j.q, out)
		}
	}
	down(q.root)
	return out
}

// colocatedWith reports whether every other sharded table of q, in subqueries too, is
// bound to the shard key of the anchor.
func (pd *pushdown) colocatedWith(q *query, anchor *jnode) bool {
	r := pd.routing
	before := anchor.facts
	defer func() { anchor.facts, r.anchor = before, nil }()
	for i, t := range anchor.key {
		if t == noTerm {
			return false
		}
		anchor.facts = append(anchor.facts[:len(anchor.facts):len(anchor.facts)], oneOf(t, []constant{unknownKey(i, pd.types[i])}))
	}
	r.anchor, r.outside = anchor, false
	pd.visitQuery(q, noFacts())
	return !r.outside && pd.oneKeyspace()
}

// checkAnchor checks one sharded table while colocatedWith runs.
func (rt *routing) checkAnchor(j *jnode, f *facts) {
	if rt.anchor == nil || rt.outside {
		return
	}
	for i, t := range j.key {
		if t == noTerm || !f.isUnknown(f.class(t), i) {
			rt.outside = true
			return
		}
	}
}

// isUnknown reports whether a class of terms is column i of the anchor's key.
func (f *facts) isUnknown(class []term, i int) bool {
	in := asSet(class)
	for _, x := range f.list {
		for c, t := range x.terms {
			if in[t] && len(x.rows) == 1 && x.rows[0][c].unknown == i+1 {
				return true
			}
		}
	}
	return false
}

// safeToPushdown reports whether the answer of q for two sets of the anchor's rows is the answer for the one and the
// answer for the other. What the whole statement's ORDER BY, LIMIT and DISTINCT do is left to the caller: they
// are not looked at in q itself.
func (pd *pushdown) safeToPushdown(q *query, anchor *jnode) bool {
	return q.arms == nil && pd.keepsKeys(q, anchor) && pd.safeBelow(q, anchor)
}

// safeBelow is safeToPushdown for the FROM clause of q alone.
func (pd *pushdown) safeBelow(q *query, anchor *jnode) bool {
	for _, sub := range pathTo(q.root, anchor) {
		s := sub.q.sel
		if s.LimitCount != nil || s.LimitOffset != nil || len(s.LockingClause) > 0 || !pd.keepsKeys(sub.q, anchor) {
			return false
		}
		if len(s.DistinctClause) > 0 && !pd.distinctByKey(sub.q, anchor) {
			return false
		}
	}
	return true
}

// pathTo returns the subqueries in FROM that the anchor is in, outermost first.
func pathTo(j *jnode, anchor *jnode) []*jnode {
	var out []*jnode
	var find func(j *jnode) bool
	find = func(j *jnode) bool {
		if j == anchor {
			return true
		}
		if j.op == jSub && j.q.root != nil {
			at := len(out)
			out = append(out, j)
			if find(j.q.root) {
				return true
			}
			out = out[:at]
			return false
		}
		for _, k := range j.kids {
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
func (pd *pushdown) keepsKeys(q *query, anchor *jnode) bool {
	s := q.sel
	if s == nil || q.root == nil {
		return false
	}
	if len(s.GroupClause) > 0 {
		if !pd.coversKey(q, anchor, groupExprs(s)) {
			return false
		}
	} else if calls, sure := pd.ownAggregates(q); len(calls) > 0 || !sure || s.HavingClause != nil {
		return false
	}
	if !q.windows {
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
func (pd *pushdown) coversKey(q *query, anchor *jnode, exprs []*pg.Node) bool {
	if len(exprs) == 0 {
		return false
	}
	f := noFacts()
	pd.gather(q.root, f)
	pd.gather(q.root, f)
	for i := range anchor.key {
		in := asSet(pd.keyClass(f, q, anchor, i))
		ok := false
		for _, e := range exprs {
			c, isCol := pd.columnOf(e, q.sc)
			ok = ok || isCol && in[c.term]
		}
		if !ok {
			return false
		}
	}
	return true
}

// keyClass returns the terms of q's level that are column i of the anchor's key:
// through subqueries, by the output columns that carry it.
func (eq *equivalence) keyClass(f *facts, q *query, anchor *jnode, i int) []term {
	t := anchor.key[i]
	path := pathTo(q.root, anchor)
	for n := len(path) - 1; n >= 0; n-- {
		sub := path[n].q
		g := noFacts()
		eq.gather(sub.root, g)
		in := asSet(g.class(t))
		next := noTerm
		for c, inner := range sub.inner {
			if inner != noTerm && in[inner] && sub.cols[c].term != noTerm {
				next = sub.cols[c].term
				break
			}
		}
		if next == noTerm {
			return nil
		}
		t = next
	}
	return f.class(t)
}

// distinctByKey reports whether DISTINCT of q compares rows of equal keys only:
// its columns, or its ON list, contain the shard key of the anchor.
func (pd *pushdown) distinctByKey(q *query, anchor *jnode) bool {
	if on := q.sel.DistinctClause; on[0].GetNode() != nil {
		return pd.coversKey(q, anchor, outputsFirst(positions(on, q.sel.TargetList), q.sel.TargetList))
	}
	return pd.keyColumns(q, anchor) != nil
}

// keyColumns returns the output columns of q that are the shard key of the
// anchor, nil if one is missing.
func (eq *equivalence) keyColumns(q *query, anchor *jnode) []int {
	if q.open {
		return nil
	}
	f := noFacts()
	eq.gather(q.root, f)
	eq.gather(q.root, f)
	var at []int
	for i := range anchor.key {
		in := asSet(eq.keyClass(f, q, anchor, i))
		found := -1
		for c, inner := range q.inner {
			if found < 0 && inner != noTerm && in[inner] {
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

// keyTypes are the types of a keyspace's shard key.
func (ns *namespace) keyTypes(name string) []keyspace.Type {
	ks, ok := ns.snap.Keyspace(name)
	if !ok {
		return nil
	}
	return ks.Def().Types
}

// ownAggregates returns the aggregate calls of a query level. sure is false if a
// call in a subquery could be one of this level, because its arguments name none
// of the subquery's columns for sure.
func (pd *pushdown) ownAggregates(q *query) (calls []*pg.FuncCall, sure bool) {
	sure = true
	s := q.sel
	var level func(m proto.Message, inner *query) func(m proto.Message) bool
	level = func(top proto.Message, inner *query) func(m proto.Message) bool {
		return func(m proto.Message) bool {
			switch v := m.(type) {
			case *pg.SelectStmt:
				if m == top {
					return true
				}
				sub := pd.bound.queryOf(v)
				sqltree.Inspect(v, level(v, sub))
				return false
			case *pg.JsonArrayAgg, *pg.JsonObjectAgg, *pg.GroupingFunc:
				sure = false
			case *pg.FuncCall:
				if !pd.isAggregate(v) {
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
func aggregatesInside(f *pg.FuncCall, q *query) bool {
	if q == nil || q.sc == nil {
		return false
	}
	none, own := true, false
	sqltree.Inspect(f, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			none = false
			if names := sqltree.FieldNames(c); names != nil {
				only := &scope{items: q.sc.items}
				own = own || only.has(names)
			}
		}
		return true
	})
	return none || own
}

// has reports whether one of the scope's own items surely has a column.
func (s *scope) has(names []string) bool {
	for _, it := range s.items {
		if len(names) > 1 && (!it.rel || it.name != names[len(names)-2]) || len(names) == 1 && !it.bare {
			continue
		}
		if len(names) > 1 && it.open {
			return true
		}
		for _, c := range it.cols {
			if c.name == names[len(names)-1] {
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
func (pd *pushdown) perRun(s *pg.SelectStmt, anchors ...*use) bool {
	if s == nil {
		return false
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		return pd.perRun(s.Larg, anchors...) || pd.perRun(s.Rarg, anchors...)
	}
	own := map[*pg.RangeVar]bool{}
	for _, w := range anchors {
		own[w.ref] = true
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
				found = found || pd.isVolatile(v) || pd.loose(v)
			}
			return false
		case *pg.RangeFunction:
			found = found || pd.isVolatile(v)
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
		found = found || is && (pd.isVolatile(s) || pd.loose(s))
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
	return open && tables && !pd.bound.correlated(s)
}

// byOrder reports whether an aggregate call depends on the order of its rows, which no
// ORDER BY in it says: a list, or a sum of what may be floating-point numbers.
func (pd *pushdown) byOrder(f *pg.FuncCall, s *pg.SelectStmt) bool {
	if len(f.AggOrder) > 0 || !pd.isAggregate(f) {
		return false
	}
	switch sqltree.CallName(f) {
	case "count", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "mode", "rank", "dense_rank", "percentile_disc":
		return false
	case "sum", "avg", "variance", "var_pop", "var_samp", "stddev", "stddev_pop", "stddev_samp":
		if q := pd.bound.queryOf(s); q != nil && len(f.Args) == 1 {
			switch pd.typeOf(f.Args[0], q.sc) {
			case oidInt2, oidInt4, oidInt8, oidNumeric, oidInterval, oidMoney:
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
func (pd *pushdown) sortedBelow(q *query, anchor *jnode) (sub *jnode, depth int) {
	for {
		if q.sel == nil || len(q.sel.FromClause) != 1 || q.sel.FromClause[0].GetRangeSubselect() == nil {
			return nil, 0
		}
		path := pathTo(q.root, anchor)
		if len(path) == 0 || path[0].q.sel == nil {
			return nil, 0
		}
		inner := path[0].q
		if len(inner.sel.SortClause) > 0 {
			return path[0], depth
		}
		if len(inner.sel.GroupClause) > 0 || len(inner.sel.DistinctClause) > 0 || inner.windows {
			return nil, 0
		}
		q, depth = inner, depth+1
	}
}

// inherit gives a query without ORDER BY the one of its only subquery. false: it has
// to be gathered to keep that order.
func (b *scatter) inherit(anchor *jnode) bool {
	s := b.s
	if len(s.SortClause) > 0 || len(s.DistinctClause) > 0 || len(s.GroupClause) > 0 || b.q.windows {
		return true
	}
	sub, depth := b.a.sortedBelow(b.q, anchor)
	if sub == nil {
		return true
	}
	from := s.FromClause[0].GetRangeSubselect()
	if depth > 0 || from.Alias == nil || len(from.Alias.Colnames) > 0 || sub.q.open {
		return false
	}
	inner := from.Subquery.GetSelectStmt()
	var sorts []*pg.Node
	for _, n := range inner.SortClause {
		sort := sqltree.Clone(n)
		name, ok := b.outputOf(sort.GetSortBy().GetNode(), inner.TargetList, sub.q.cols)
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
func (b *scatter) outputOf(n *pg.Node, targets []*pg.Node, cols []column) (string, bool) {
	name := ""
	switch c := n.GetColumnRef(); {
	case n.GetAConst().GetIval() != nil:
		if p := int(n.GetAConst().GetIval().GetIval()); p >= 1 && p <= len(cols) {
			name = cols[p-1].name
		}
	case c != nil && len(sqltree.FieldNames(c)) == 1:
		name = sqltree.FieldNames(c)[0]
	case !sqltree.AnyStar(targets):
		for i, t := range targets {
			if i < len(cols) && sqltree.SameNode(t.GetResTarget().GetVal(), n) {
				name = cols[i].name
			}
		}
	}
	found := 0
	for _, c := range cols {
		if c.name == name {
			found++
		}
	}
	return name, found == 1 && name != "?column?"
}
