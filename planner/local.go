package planner

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/keyspace"
)

// The proof that a query falls apart by shard. One sharded table of it is the
// witness. If the rows of the witness with shard key K, for every K, can be
// combined with rows of shard key K only (the proof of one shard, with the
// unknown K in place of a constant), and the query is additive in the witness
// (its answer for two sets of rows is the answer for the one and the answer for
// the other), then its answer is all the shards' answers together, for each
// shard has all rows of its keys. docs/design/planner.md has the rules.

// unknown is the constant that stands for column i of the witness's shard key.
func unknownKey(i int, t keyspace.Type) konst { return konst{typ: t, unknown: i + 1} }

// local looks for a witness of query q and returns its use, nil if there is none.
func (a *analyzer) local(q *query) *use {
	for _, j := range witnesses(q, nil) {
		if a.follows(q, j) && a.additive(q, j) {
			return a.second.useOf(j)
		}
	}
	return nil
}

func (rd *reading) useOf(j *jnode) *use {
	for _, u := range rd.uses {
		if u.node == j {
			return u
		}
	}
	return nil
}

// witnesses are the sharded tables of which every row of FROM has one row.
func witnesses(q *query, out []*jnode) []*jnode {
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
			out = witnesses(j.q, out)
		}
	}
	down(q.root)
	return out
}

// follows reports whether every other sharded table of q, in subqueries too, is
// bound to the shard key of the witness.
func (a *analyzer) follows(q *query, witness *jnode) bool {
	r := a.second
	before := witness.facts
	defer func() { witness.facts, r.witness = before, nil }()
	for i, t := range witness.key {
		if t == noTerm {
			return false
		}
		witness.facts = append(witness.facts[:len(witness.facts):len(witness.facts)], oneOf(t, []konst{unknownKey(i, a.types[i])}))
	}
	r.witness, r.outside = witness, false
	a.visitQuery(q, noFacts())
	return !r.outside && len(r.keyspaces) == 1
}

// bound checks one sharded table while follows runs.
func (rd *reading) bound(j *jnode, f *facts) {
	r := rd
	if r.witness == nil || r.outside {
		return
	}
	for i, t := range j.key {
		if t == noTerm || !f.isUnknown(f.class(t), i) {
			r.outside = true
			return
		}
	}
}

// isUnknown reports whether a class of terms is column i of the witness's key.
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

// additive reports whether q is additive in the rows of the witness. What the
// whole statement's ORDER BY, LIMIT and DISTINCT do is left to the caller: they
// are not looked at in q itself.
func (a *analyzer) additive(q *query, witness *jnode) bool {
	return q.arms == nil && a.keepsKeys(q, witness) && a.additiveBelow(q, witness)
}

// additiveBelow is additive for the FROM clause of q alone.
func (a *analyzer) additiveBelow(q *query, witness *jnode) bool {
	for _, sub := range pathTo(q.root, witness) {
		s := sub.q.sel
		if s.LimitCount != nil || s.LimitOffset != nil || len(s.LockingClause) > 0 || !a.keepsKeys(sub.q, witness) {
			return false
		}
		if len(s.DistinctClause) > 0 && !a.distinctByKey(sub.q, witness) {
			return false
		}
	}
	return true
}

// pathTo returns the subqueries in FROM that the witness is in, outermost first.
func pathTo(j *jnode, witness *jnode) []*jnode {
	var out []*jnode
	var find func(j *jnode) bool
	find = func(j *jnode) bool {
		if j == witness {
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
// shard keys of the witness: it does not aggregate, or by groups of the key, and
// its windows are partitioned by it.
func (a *analyzer) keepsKeys(q *query, witness *jnode) bool {
	s := q.sel
	if s == nil || q.root == nil {
		return false
	}
	if len(s.GroupClause) > 0 {
		if !a.coversKey(q, witness, groupExprs(s)) {
			return false
		}
	} else if calls, sure := a.ownAggregates(q); len(calls) > 0 || !sure || s.HavingClause != nil {
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
	eachCall(s, func(f *pg.FuncCall) {
		if f.Over != nil {
			ok = ok && a.coversKey(q, witness, part(f.Over))
		}
	})
	return ok
}

// coversKey reports whether the expressions contain every shard key column of the
// witness. nil: they do not.
func (a *analyzer) coversKey(q *query, witness *jnode, exprs []*pg.Node) bool {
	if len(exprs) == 0 {
		return false
	}
	f := noFacts()
	a.gather(q.root, f)
	a.gather(q.root, f)
	for i := range witness.key {
		in := asSet(a.keyClass(f, q, witness, i))
		ok := false
		for _, e := range exprs {
			c, isCol := a.columnOf(e, q.sc)
			ok = ok || isCol && in[c.term]
		}
		if !ok {
			return false
		}
	}
	return true
}

// keyClass returns the terms of q's level that are column i of the witness's key:
// through subqueries, by the output columns that carry it.
func (eq *equivalence) keyClass(f *facts, q *query, witness *jnode, i int) []term {
	t := witness.key[i]
	path := pathTo(q.root, witness)
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
// its columns, or its ON list, contain the shard key of the witness.
func (a *analyzer) distinctByKey(q *query, witness *jnode) bool {
	if on := q.sel.DistinctClause; on[0].GetNode() != nil {
		return a.coversKey(q, witness, outputsFirst(positions(on, q.sel.TargetList), q.sel.TargetList))
	}
	return a.keyColumns(q, witness) != nil
}

// keyColumns returns the output columns of q that are the shard key of the
// witness, nil if one is missing.
func (eq *equivalence) keyColumns(q *query, witness *jnode) []int {
	if q.open {
		return nil
	}
	f := noFacts()
	eq.gather(q.root, f)
	eq.gather(q.root, f)
	var at []int
	for i := range witness.key {
		in := asSet(eq.keyClass(f, q, witness, i))
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
			if p >= 1 && p <= len(targets) && !anyStar(targets[:p]) {
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
		names := fieldNames(n.GetColumnRef())
		if len(names) != 1 {
			continue
		}
		for _, t := range targets {
			r := t.GetResTarget()
			if isStar(t) || r == nil {
				continue // its columns are those that the name alone means
			}
			name := r.Name
			if name == "" {
				if name = figureName(r.Val); unnamed(r.Val) {
					return nil
				}
			}
			if name == names[0] {
				if out[i] != n && !sameNode(out[i], r.Val) {
					return nil
				}
				out[i] = r.Val
			}
		}
	}
	return out
}

// anyStar reports whether one of the targets is * or name.*.
func anyStar(targets []*pg.Node) bool {
	for _, t := range targets {
		if isStar(t) {
			return true
		}
	}
	return false
}

func isStar(t *pg.Node) bool {
	val := t.GetResTarget().GetVal()
	if c := val.GetColumnRef(); c != nil {
		return len(strs(c.Fields)) != len(c.Fields)
	}
	if ind := val.GetAIndirection(); ind != nil && len(ind.Indirection) > 0 {
		return ind.Indirection[len(ind.Indirection)-1].GetAStar() != nil
	}
	return false
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
func (a *analyzer) ownAggregates(q *query) (calls []*pg.FuncCall, sure bool) {
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
				sub := a.second.queries[v]
				inspect(v, level(v, sub))
				return false
			case *pg.JsonArrayAgg, *pg.JsonObjectAgg, *pg.GroupingFunc:
				sure = false
			case *pg.FuncCall:
				if !a.isAggregate(v) {
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
				inspect(n, level(nil, nil))
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
	inspect(f, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			none = false
			if names := fieldNames(c); names != nil {
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
