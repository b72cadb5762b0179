package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Every write to a row of a reference table goes to every copy, and so do FOR UPDATE
// and FOR NO KEY UPDATE. So FOR SHARE and FOR KEY SHARE, and the locks of foreign
// keys, meet all of them on whichever copy they are, and need not meet each other.

// lockedCopies are the rows of reference tables that a statement locks.
type lockedCopies struct {
	table  string   // a table of which rows are locked FOR UPDATE or FOR NO KEY UPDATE; "": none
	clause string   // FOR UPDATE or FOR NO KEY UPDATE
	beside []string // what the query calls the sharded tables in its FROM
	by     *pg.SelectStmt
	rows   []lockedRows
	hidden bool // some are in a subquery
	every  bool // the statement is on the default shard otherwise, see planLock
}

// lockedRows is a place in FROM whose rows are locked on every copy.
type lockedRows struct {
	name  string
	table *shardmap.Table
	lock  *pg.LockingClause
}

func strong(c *pg.LockingClause) bool { return c.Strength >= pg.LockClauseStrength_LCS_FORNOKEYUPDATE }

func lockText(c *pg.LockingClause) string {
	switch c.Strength {
	case pg.LockClauseStrength_LCS_FORKEYSHARE:
		return "FOR KEY SHARE"
	case pg.LockClauseStrength_LCS_FORSHARE:
		return "FOR SHARE"
	case pg.LockClauseStrength_LCS_FORNOKEYUPDATE:
		return "FOR NO KEY UPDATE"
	}
	return "FOR UPDATE"
}

// noteLocked notes the reference tables whose rows a query locks on every copy: of
// the tables in its FROM, of subqueries there too, those that OF names, or all.
func (a *binder) noteLocked(s *pg.SelectStmt, sc *scope) {
	var from func(n *pg.Node, lock *pg.LockingClause, inside bool)
	l := &a.lockedCopies
	from = func(n *pg.Node, lock *pg.LockingClause, inside bool) {
		named := func(name string) bool {
			return inside || len(lock.LockedRels) == 0 ||
				slices.ContainsFunc(lock.LockedRels, func(r *pg.Node) bool { return r.GetRangeVar().GetRelname() == name })
		}
		switch v := n.GetNode().(type) {
		case *pg.Node_JoinExpr:
			if v.JoinExpr.Alias != nil {
				inside = true // names in it are hidden
			}
			from(v.JoinExpr.Larg, lock, inside)
			from(v.JoinExpr.Rarg, lock, inside)
		case *pg.Node_RangeTableSample:
			from(v.RangeTableSample.Relation, lock, inside)
		case *pg.Node_RangeSubselect:
			if !named(v.RangeSubselect.Alias.GetAliasname()) {
				return
			}
			for sub := []*pg.SelectStmt{v.RangeSubselect.Subquery.GetSelectStmt()}; len(sub) > 0; sub = sub[1:] {
				if q := sub[0]; q.GetOp() != pg.SetOperation_SETOP_NONE {
					sub = append(sub, q.Larg, q.Rarg)
				}
				for _, n := range sub[0].GetFromClause() {
					from(n, lock, true)
				}
			}
		case *pg.Node_RangeVar:
			r := v.RangeVar
			name := r.Relname
			if r.Alias != nil {
				name = r.Alias.Aliasname
			}
			if r.Schemaname == "" && sc.cte(r.Relname) != nil {
				return
			}
			t := a.relation(r).table
			if t != nil && t.Kind == shardmap.Sharded && !inside && named(name) && !slices.Contains(l.beside, name) {
				l.beside = append(l.beside, name)
			}
			if t == nil || t.Kind != shardmap.Reference || !strong(lock) || !named(name) {
				return
			}
			l.table, l.clause = sqltext.QuoteName(t.Schema, t.Name), lockText(lock)
			l.hidden = l.hidden || inside || l.by != nil && l.by != s
			l.by = s
			for i := range l.rows {
				if l.rows[i].name == name { // by several clauses: the strongest counts
					if lock.Strength > l.rows[i].lock.Strength {
						l.rows[i].lock = lock
					}
					return
				}
			}
			l.rows = append(l.rows, lockedRows{name: name, table: t, lock: lock})
		}
	}
	for _, n := range s.LockingClause {
		for _, f := range s.FromClause {
			from(f, n.GetLockingClause(), false)
		}
	}
}

// lockCopies decides about a statement that locks rows of reference tables on every copy.
func (a *binder) lockCopies() {
	l := &a.lockedCopies
	switch {
	case l.table == "" || a.unknown != "" || a.virtual != "":
		return
	case a.sharded != "":
		hint := "Lock the rows of " + l.table + " in a statement of its own; here FOR SHARE and FOR KEY SHARE of them are taken."
		if len(l.beside) > 0 {
			quoted := make([]string, len(l.beside))
			for i, n := range l.beside {
				quoted[i] = sqltext.QuoteIdent(n)
			}
			hint = "Lock those of the sharded table alone: " + l.clause + " OF " + strings.Join(quoted, ", ") + "; if rows of " + l.table + " have to be locked as well, then in a statement of its own before."
		}
		a.one.refuseLocks(sqlstate.Refusal("CLV-1027", "rows of the reference table %s are locked %s on every shard, which a statement on sharded tables cannot do", l.table, l.clause).
			WithHint("%s", hint))
	}
	for _, t := range a.st.Writes {
		if t.Kind == shardmap.Reference {
			return // every shard runs the statement
		}
	}
	a.one.refuseOne(sqlstate.Refusal("CLV-1028", "rows of the reference table %s are locked on every shard", l.table).
		WithHint("Lock them in a statement of its own."))
	a.st.Kind, l.every = plan.Several, true
}

// onlyCopies refuses a statement that writes elsewhere and locks rows of reference tables inside.
func (a *binder) onlyCopies() {
	if l := &a.lockedCopies; l.every {
		a.one.refuseLocks(sqlstate.Refusal("CLV-1029", "rows of the reference table %s would be locked %s on every shard, which is not supported in a subquery, view or writing statement", l.table, l.clause).
			WithHint("Lock them in a statement of its own: SELECT ... FROM %s ... %s.", l.table, l.clause))
	}
}

// refuseLocks refuses in a way that tells more than why one shard is not enough. Unsure: PostgreSQL may not take
// the statement either.
func (one *oneShard) refuseLocks(e *sqlstate.Error) {
	one.final = true
	e.Unsure = true
	fail(e)
}

// planLock plans a query that locks rows of reference tables on every copy: it runs
// on the default shard, where all who lock or write them meet, and tells which rows these are.
func (a *analyzer) planLock(n *pg.Node) (*plan.Plan, error) {
	l := &a.lockedCopies
	s := n.GetSelectStmt()
	if l.by != s || l.hidden || a.changes || a.into != nil || a.catalog != "" {
		a.onlyCopies()
	}
	m := &plan.ModifyPlan{Table: l.rows[0].table, Returning: true}
	tree := a.clocked(sqltree.Clone(n))
	for _, r := range l.rows {
		s := tree.GetSelectStmt()
		s.TargetList = append(s.TargetList, sqltree.TargetNode(sqltree.CastNode(sqltree.ColumnNode(r.name, "ctid"), "text", nil), ""))
		clause := lockText(r.lock)
		switch r.lock.WaitPolicy {
		case pg.LockWaitPolicy_LockWaitError:
			clause += " NOWAIT"
		case pg.LockWaitPolicy_LockWaitSkip:
			// A row may be free here and locked on another copy.
			a.one.refuseLocks(sqlstate.Refusal("CLV-1030", "SKIP LOCKED of rows of the reference table %s, of which each shard has a copy, is not supported", l.table).
				WithHint("Use NOWAIT, or keep the rows in a table that is not a reference table."))
		}
		m.Locks = append(m.Locks, plan.CopiesLock{Table: r.table, Clause: clause})
	}
	m.Write = plan.NewTemplate(a.written(tree))
	return &plan.Plan{Op: plan.Modify, Modify: m, Target: plan.Target{Where: plan.Every}, Why: "rows of " + l.table + " are locked on every shard"}, nil
}
