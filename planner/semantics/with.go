package semantics

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// withClause reads WITH queries into the scope.
func (a *binder) withClause(w *pg.WithClause, sc *Scope) []*withQuery {
	if w == nil {
		return nil
	}
	sc.ctes = map[string]*cte{}
	if w.Recursive {
		// A query may name one that comes later.
		for _, n := range w.Ctes {
			if c := n.GetCommonTableExpr(); c != nil {
				sc.ctes[c.Ctename] = &cte{name: c.Ctename, open: true}
			}
		}
	}
	var out []*withQuery
	for _, n := range w.Ctes {
		c := n.GetCommonTableExpr()
		if c == nil {
			continue
		}
		names := sqltree.Strings(c.Aliascolnames)
		entry := &cte{name: c.Ctename}
		if s := c.Ctequery.GetSelectStmt(); s != nil {
			var q *Query
			if w.Recursive && s.Op == pg.SetOperation_SETOP_UNION {
				q = a.recursive(s, sc, entry, names)
			} else {
				q = a.SelectQuery(s, sc)
				a.fixCTE(entry, q, names)
			}
			out = append(out, &withQuery{q: q, c: entry})
		} else {
			r := a.Modify(c.Ctequery, sc, false)
			entry.cols, entry.sets, entry.open = r.cols, r.sets, r.open
			entry.rename(names)
		}
		if c.SearchClause != nil || c.CycleClause != nil {
			entry.open = true
		}
		sc.ctes[c.Ctename] = entry
	}
	return out
}

func (c *cte) rename(names []string) {
	for i, n := range names {
		if i < len(c.cols) {
			c.cols[i].Name = n
		}
	}
}

// fixCTE gives a WITH query its columns and what fixes them.
func (eq *Equivalence) fixCTE(c *cte, q *Query, names []string) {
	c.cols, c.sets, c.open = nil, nil, q.Open
	for i, col := range q.Columns {
		c.cols = append(c.cols, Column{Name: col.Name, Term: NoTerm, typ: col.typ, oid: col.oid, late: col.late})
		set, ok := eq.exported(q, i, &Facts{learned: map[*JoinNode]bool{}})
		if !ok {
			set = nil
		} else if set == nil {
			set = []Constant{}
		}
		c.sets = append(c.sets, set)
	}
	c.rename(names)
}

// recursive reads WITH RECURSIVE by induction: suppose that the rows so far have
// the constants of the first arm in a column; if the second arm then gives no
// others, all rows have them.
func (a *binder) recursive(s *pg.SelectStmt, sc *Scope, entry *cte, names []string) *Query {
	inner := &Scope{parent: sc, ctes: map[string]*cte{}}
	with := a.withClause(s.WithClause, inner)
	base := a.SelectQuery(s.Larg, inner)
	a.fixCTE(entry, base, names)
	inner.ctes[entry.name] = entry
	if inner.ctes == nil {
		inner.ctes = map[string]*cte{}
	}
	defer func(n int) { a.bound.repeated = n }(a.bound.repeated)
	for {
		aggregates, windows := a.aggregates, a.windows
		step := a.SelectQuery(s.Rarg, inner)
		a.bound.repeated++
		changed := false
		for i, set := range entry.sets {
			if set == nil {
				continue
			}
			got, ok := a.exported(step, i, &Facts{learned: map[*JoinNode]bool{}})
			if !ok || !subset(got, set) || i >= len(step.Columns) || !keytype.SameFamily(step.Columns[i].typ, entry.cols[i].typ) {
				entry.sets[i] = nil
				changed = true
			}
		}
		a.aggregates, a.windows = aggregates, windows
		if !changed {
			q := &Query{Arms: []*Query{base, step}, With: with, Open: base.Open || step.Open}
			w := &Walker{Scope: inner, Subqueries: &q.Subqueries}
			a.walkList(s.SortClause, w)
			a.Walk(s.LimitCount, w)
			a.Walk(s.LimitOffset, w)
			return q
		}
	}
}

// subset reports whether every constant of got is one of set, by its place in
// the text: equal values at two places may differ in another text.
func subset(got, set []Constant) bool {
	for _, g := range got {
		found := false
		for _, s := range set {
			found = found || g == s
		}
		if !found {
			return false
		}
	}
	return true
}
