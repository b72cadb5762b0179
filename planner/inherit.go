package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"
)

// A query without an order of its own over one subquery with ORDER BY gives rows in
// that order on PostgreSQL: SELECT * FROM (SELECT ... ORDER BY x) s LIMIT 10. SQL does
// not promise it, but people rely on it, and a LIMIT around it chooses rows by it.

// sortedBelow finds the subquery whose ORDER BY the rows of q's FROM come in, on the
// way to the witness: nil if there is none. depth is how many subqueries are around it.
func (a *analyzer) sortedBelow(q *query, witness *jnode) (sub *jnode, depth int) {
	for {
		if q.sel == nil || len(q.sel.FromClause) != 1 || q.sel.FromClause[0].GetRangeSubselect() == nil {
			return nil, 0
		}
		path := pathTo(q.root, witness)
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
func (b *scatter) inherit(witness *jnode) bool {
	s := b.s
	if len(s.SortClause) > 0 || len(s.DistinctClause) > 0 || len(s.GroupClause) > 0 || b.q.windows {
		return true
	}
	sub, depth := b.a.sortedBelow(b.q, witness)
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
		sort := clone(n)
		name, ok := b.outputOf(sort.GetSortBy().GetNode(), inner.TargetList, sub.q.cols)
		if !ok {
			return false
		}
		sort.GetSortBy().Node = columnNode(from.Alias.Aliasname, name)
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
	case c != nil && len(fieldNames(c)) == 1:
		name = fieldNames(c)[0]
	case !anyStar(targets):
		for i, t := range targets {
			if i < len(cols) && sameNode(t.GetResTarget().GetVal(), n) {
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
