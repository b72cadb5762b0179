package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// readsSequence is the query of cleave.sequences for a query of a sequence of the cluster as a table, which pg_dump makes; "" for
// any other statement. The routers take values in blocks, so that last_value is the last one of the newest block: what
// PostgreSQL has for a sequence with that CACHE (sequence.c).
func (ns *namespace) readsSequence(tree *pg.ParseResult) string {
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	if s == nil || len(s.FromClause) != 1 || s.Op != pg.SetOperation_SETOP_NONE || s.WhereClause != nil || s.WithClause != nil || s.IntoClause != nil || s.DistinctClause != nil || s.GroupClause != nil ||
		s.HavingClause != nil || s.WindowClause != nil || s.SortClause != nil || s.LimitCount != nil || s.LimitOffset != nil || s.LockingClause != nil {
		return ""
	}
	from := s.FromClause[0].GetRangeVar()
	if from == nil || from.Alias != nil || from.Catalogname != "" {
		return ""
	}
	q := ns.clusterSequence(from)
	if q == nil {
		return ""
	}
	texts := map[string]string{"last_value": "COALESCE(taken, start)", "log_cnt": "CAST(0 AS bigint)", "is_called": "taken IS NOT NULL"}
	var out []string
	add := func(name string) { out = append(out, texts[name]+" AS "+name) }
	for _, n := range s.TargetList {
		t := n.GetResTarget()
		c := t.GetVal().GetColumnRef()
		switch {
		case c == nil || t.Name != "" || len(c.Fields) != 1:
			return ""
		case c.Fields[0].GetAStar() != nil:
			add("last_value")
			add("log_cnt")
			add("is_called")
		case texts[c.Fields[0].GetString_().GetSval()] != "":
			add(c.Fields[0].GetString_().GetSval())
		default:
			return ""
		}
	}
	return "SELECT " + strings.Join(out, ", ") + " FROM cleave.sequences WHERE schema = " + quoteString(q.Schema) + " AND name = " + quoteString(q.Name)
}
