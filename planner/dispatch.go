package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/complexity"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// severalTexts is what the texts of a plan over several shards have in common.
type severalTexts struct {
	// names counts the relations that were named, see fresh.
	names int
	// edits are those of the texts that split an INSERT.
	edits []sqltext.Edit
	// clock is set once a text uses the parameter Plan.Clock.
	clock bool
	guard bool // texts look at what they cast to times, see guarded
}

// Several is Analyze without the proof that one shard is enough: for a statement
// of kind OneShard whose keys are on several shards when it is run (Route.Several).
// The result is of kind Several.
//
// Errors: those of Analyze.
func (p *Planner) Several(sql string, snap *shardmap.Snapshot, searchPath []string) (*plan.Statement, error) {
	tree, err := p.parse(sql)
	if err != nil {
		return nil, err
	}
	if len(tree.Stmts) != 1 {
		return nil, sqlstate.New(sqlstate.SyntaxError, "cannot insert multiple commands into a prepared statement")
	}
	a := p.analyzer(sql, snap, searchPath)
	a.OneShard.Several = true
	st, err := a.run(tree)
	if len(a.ViewRefs) > 0 {
		return a.expanded(0)
	}
	return a.OneShard.Judged(st, err)
}

// dispatch plans a statement that needs several shards.
func (a *analyzer) dispatch() {
	st := a.Statement
	if len(a.ViewRefs) > 0 {
		fail(a.OneShard.Reason()) // they are written out first
	}
	st.Reusable = false
	a.SettleBounds()
	a.Place()
	a.CheckNow()
	a.OneShard.Final = true
	if len(st.Sets) > 0 {
		fail(sqlstate.Refusal("CLV-0229", "set_config() in a statement over several shards is not supported").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	}
	if err := ownNames(a.SQL); err != nil {
		fail(err)
	}
	complexity.CheckChains(a.Bound.Top)
	timedCall(&a.Namespace, a.Bound.Top)
	a.readInputs(a.Bound.Top)
	a.texts.guard = a.guarding()
	var err error
	switch a.Bound.Top.GetNode().(type) {
	case *pg.Node_SelectStmt:
		if a.LockedCopies.Every {
			st.Plan, err = a.planLock(a.Bound.Top)
			break
		}
		if a.Changes && a.Bound.Top.GetSelectStmt().WithClause != nil {
			st.Plan, err = a.writePlans().planChanging(a.Bound.Top)
		}
		if st.Plan == nil && err == nil {
			st.Plan, err = a.readPlans().planRead(a.Bound.Top)
		}
	case *pg.Node_InsertStmt:
		a.OnlyCopies()
		st.Plan, err = a.writePlans().planInsert(a.Bound.Top)
	case *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		a.OnlyCopies()
		st.Plan, err = a.writePlans().planModify(a.Bound.Top)
	case *pg.Node_CopyStmt:
		st.Plan, err = a.writePlans().planCopy(a.Bound.Top)
	}
	if err != nil {
		fail(err)
	}
	a.OneShard.Final = false
	if st.Plan != nil {
		st.Plan.Clock = st.Plan.Clock || a.texts.clock
	}
}

// shardTexts prints what shards are sent.
type shardTexts interface {
	// text prints a statement, written too: it ends the analysis with an error of it.
	text(n *pg.Node) (string, error)
	written(n *pg.Node) string
	// clocked replaces now() and its like by the parameter of Plan.Clock.
	clocked(n *pg.Node) *pg.Node
	// guards reports whether casts of a node look for special date/time words.
	guards(n *pg.Node) bool
}

// readPlans plans queries over several shards.
type readPlans struct {
	*pushdown
	*sourcetext.Text
	*semantics.Touched
	*semantics.Effects
	*semantics.Parameters
	shardTexts

	p     *Planner
	st    *plan.Statement
	bound *semantics.BoundStatement
	one   *semantics.OneShard
	texts *severalTexts
	into  *pg.IntoClause
}

// writePlans plans statements over several shards that change rows.
type writePlans struct {
	*readPlans

	made *madeValues
}

func (a *analyzer) readPlans() *readPlans {
	return &readPlans{pushdown: &pushdown{Typer: &a.Typer, Equivalence: &a.Equivalence, Routing: &a.Routing, bound: a.Bound}, Text: &a.Text, Touched: &a.Touched, Effects: &a.Effects, Parameters: &a.Parameters, shardTexts: a, p: a.p, st: a.Statement, bound: a.Bound, one: a.OneShard, texts: a.texts, into: a.Into}
}

func (a *analyzer) writePlans() *writePlans {
	return &writePlans{readPlans: a.readPlans(), made: &a.madeValues}
}

// planRead plans a query: a SELECT, also that of DECLARE CURSOR, EXPLAIN and COPY.
func (rp *readPlans) planRead(n *pg.Node) (*plan.Plan, error) {
	for _, plan := range []func(*pg.Node) (*plan.Plan, error){rp.planScatter, rp.planAggregate, rp.planGather} {
		if p, err := plan(n); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

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
