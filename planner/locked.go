package planner

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/shardmap"
)

// noteLocked notes a reference table whose rows a query locks: those of all tables in
// its FROM, of subqueries there too, or of those that OF names.
func (a *analyzer) noteLocked(s *pg.SelectStmt, sc *scope) {
	var of []string
	for _, n := range s.LockingClause {
		rels := n.GetLockingClause().GetLockedRels()
		if len(rels) == 0 {
			of = nil
			break
		}
		for _, r := range rels {
			of = append(of, r.GetRangeVar().GetRelname())
		}
	}
	var from func(n *pg.Node, all bool)
	from = func(n *pg.Node, all bool) {
		switch v := n.GetNode().(type) {
		case *pg.Node_JoinExpr:
			from(v.JoinExpr.Larg, all)
			from(v.JoinExpr.Rarg, all)
		case *pg.Node_RangeTableSample:
			from(v.RangeTableSample.Relation, all)
		case *pg.Node_RangeSubselect:
			if !all && !slices.Contains(of, v.RangeSubselect.Alias.GetAliasname()) {
				return
			}
			for sub := []*pg.SelectStmt{v.RangeSubselect.Subquery.GetSelectStmt()}; len(sub) > 0; sub = sub[1:] {
				if q := sub[0]; q.GetOp() != pg.SetOperation_SETOP_NONE {
					sub = append(sub, q.Larg, q.Rarg)
				}
				for _, n := range sub[0].GetFromClause() {
					from(n, true)
				}
			}
		case *pg.Node_RangeVar:
			r := v.RangeVar
			name := r.Relname
			if r.Alias != nil {
				name = r.Alias.Aliasname
			}
			if !all && !slices.Contains(of, name) || r.Schemaname == "" && sc.cte(r.Relname) != nil {
				return
			}
			if t := a.relation(r).table; t != nil && t.Kind == shardmap.Reference {
				a.lockedCopy = quoteName(t.Schema, t.Name)
			}
		}
	}
	for _, n := range s.FromClause {
		from(n, len(of) == 0)
	}
}
