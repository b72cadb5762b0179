package semantics

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Every write to a row of a reference table goes to every copy, and so do FOR UPDATE
// and FOR NO KEY UPDATE. So FOR SHARE and FOR KEY SHARE, and the locks of foreign
// keys, meet all of them on whichever copy they are, and need not meet each other.

// LockedCopies are the rows of reference tables that a statement locks.
type lockedCopies struct {
	Table  string   // a table of which rows are locked FOR UPDATE or FOR NO KEY UPDATE; "": none
	clause string   // FOR UPDATE or FOR NO KEY UPDATE
	beside []string // what the query calls the sharded tables in its FROM
	By     *pg.SelectStmt
	Rows   []lockedRows
	Hidden bool // some are in a subquery
	Every  bool // the statement is on the default shard otherwise, see planLock
}

// lockedRows is a place in FROM whose rows are locked on every copy.
type lockedRows struct {
	Name  string
	Table *shardmap.Table
	Lock  *pg.LockingClause
}

func strong(c *pg.LockingClause) bool { return c.Strength >= pg.LockClauseStrength_LCS_FORNOKEYUPDATE }

// LockText is a locking clause as SQL.
func LockText(c *pg.LockingClause) string {
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
func (a *binder) noteLocked(s *pg.SelectStmt, sc *Scope) {
	var from func(n *pg.Node, lock *pg.LockingClause, inside bool)
	l := &a.LockedCopies
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
			t := a.Relation(r).Table
			if t != nil && t.Kind == shardmap.Sharded && !inside && named(name) && !slices.Contains(l.beside, name) {
				l.beside = append(l.beside, name)
			}
			if t == nil || t.Kind != shardmap.Reference || !strong(lock) || !named(name) {
				return
			}
			l.Table, l.clause = sqltext.QuoteName(t.Schema, t.Name), LockText(lock)
			l.Hidden = l.Hidden || inside || l.By != nil && l.By != s
			l.By = s
			for i := range l.Rows {
				if l.Rows[i].Name == name { // by several clauses: the strongest counts
					if lock.Strength > l.Rows[i].Lock.Strength {
						l.Rows[i].Lock = lock
					}
					return
				}
			}
			l.Rows = append(l.Rows, lockedRows{Name: name, Table: t, Lock: lock})
		}
	}
	for _, n := range s.LockingClause {
		for _, f := range s.FromClause {
			from(f, n.GetLockingClause(), false)
		}
	}
}

// LockCopies decides about a statement that locks rows of reference tables on every copy.
func (a *binder) LockCopies() {
	l := &a.LockedCopies
	switch {
	case l.Table == "" || a.Unknown != "" || a.Virtual != "":
		return
	case a.Sharded != "":
		hint := "Lock the rows of " + l.Table + " in a statement of its own; here FOR SHARE and FOR KEY SHARE of them are taken."
		if len(l.beside) > 0 {
			quoted := make([]string, len(l.beside))
			for i, n := range l.beside {
				quoted[i] = sqltext.QuoteIdent(n)
			}
			hint = "Lock those of the sharded table alone: " + l.clause + " OF " + strings.Join(quoted, ", ") + "; if rows of " + l.Table + " have to be locked as well, then in a statement of its own before."
		}
		a.one.RefuseLocks(sqlstate.Refusal("CLV-1027", "rows of the reference table %s are locked %s on every shard, which a statement on sharded tables cannot do", l.Table, l.clause).
			WithHint("%s", hint))
	}
	for _, t := range a.st.Writes {
		if t.Kind == shardmap.Reference {
			return // every shard runs the statement
		}
	}
	a.one.RefuseOne(sqlstate.Refusal("CLV-1028", "rows of the reference table %s are locked on every shard", l.Table).
		WithHint("Lock them in a statement of its own."))
	a.st.Kind, l.Every = plan.Several, true
}

// OnlyCopies refuses a statement that writes elsewhere and locks rows of reference tables inside.
func (a *binder) OnlyCopies() {
	if l := &a.LockedCopies; l.Every {
		a.one.RefuseLocks(sqlstate.Refusal("CLV-1029", "rows of the reference table %s would be locked %s on every shard, which is not supported in a subquery, view or writing statement", l.Table, l.clause).
			WithHint("Lock them in a statement of its own: SELECT ... FROM %s ... %s.", l.Table, l.clause))
	}
}
