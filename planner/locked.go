package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// planLock plans a query that locks rows of reference tables on every copy: it runs
// on the default shard, where all who lock or write them meet, and tells which rows these are.
func (a *analyzer) planLock(n *pg.Node) (*plan.Plan, error) {
	l := &a.LockedCopies
	s := n.GetSelectStmt()
	if l.By != s || l.Hidden || a.Changes || a.Into != nil || a.Catalog != "" {
		a.OnlyCopies()
	}
	m := &plan.ModifyPlan{Table: l.Rows[0].Table, Returning: true}
	tree := a.clocked(sqltree.Clone(n))
	for _, r := range l.Rows {
		s := tree.GetSelectStmt()
		s.TargetList = append(s.TargetList, sqltree.TargetNode(sqltree.CastNode(sqltree.ColumnNode(r.Name, "ctid"), "text", nil), ""))
		clause := semantics.LockText(r.Lock)
		switch r.Lock.WaitPolicy {
		case pg.LockWaitPolicy_LockWaitError:
			clause += " NOWAIT"
		case pg.LockWaitPolicy_LockWaitSkip:
			// A row may be free here and locked on another copy.
			a.OneShard.RefuseLocks(sqlstate.Refusal("CLV-1030", "SKIP LOCKED of rows of the reference table %s, of which each shard has a copy, is not supported", l.Table).
				WithHint("Use NOWAIT, or keep the rows in a table that is not a reference table."))
		}
		m.Locks = append(m.Locks, plan.CopiesLock{Table: r.Table, Clause: clause})
	}
	m.Write = plan.NewTemplate(a.written(tree))
	return &plan.Plan{Op: plan.Modify, Modify: m, Target: plan.Target{Where: plan.Every}, Why: "rows of " + l.Table + " are locked on every shard"}, nil
}
