package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/complexity"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A statement is bound once. Binding notes what each table stands for. If one shard is not enough, the reason is
// noted, and binding goes on. The functions named plan... look at what was bound and return a Plan; nil without
// error means that the statement is none of theirs, an error that it cannot be run by anybody.

// boundStatement is what binding notes of a statement.
type boundStatement struct {
	// top is the query or the statement that changes rows: inside EXPLAIN, DECLARE
	// and COPY it is theirs.
	top *pg.Node
	// root is what was proved about top; nil for statements that change rows.
	root *query
	// uses are the tables named, in the order of the text, WITH queries left out.
	uses []*use
	// selects are the SELECTs, each of a set operation's arms as well. Of one that was read several times the last
	// counts.
	selects []*query
	// proofs are the queries whose shard keys were looked for, each by itself, in order.
	proofs []*query
	// bounds are facts whose constants are not read yet, see settleBounds.
	bounds []*fact
	// repeated: a recursive WITH query is read once more.
	repeated int
	byRef    map[*pg.RangeVar]*use     // of uses, once asked for
	queries  map[*pg.SelectStmt]*query // of selects
}

// oneShard says whether one shard may run the statement.
type oneShard struct {
	st *plan.Statement

	// several: one shard is not enough, or several are asked for; first says why, nil if they are asked for.
	several bool
	first   *sqlstate.Error
	final   bool // what is refused now is the reason to tell
}

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

// useAt is the use of a table's place, nil if there is none.
func (bs *boundStatement) useAt(v *pg.RangeVar) *use {
	if bs.byRef == nil {
		bs.byRef = make(map[*pg.RangeVar]*use, len(bs.uses))
		for _, u := range bs.uses {
			bs.byRef[u.ref] = u
		}
	}
	return bs.byRef[v]
}

// queryOf is a SELECT as it was bound, nil if it was not.
func (bs *boundStatement) queryOf(s *pg.SelectStmt) *query {
	if bs.queries == nil {
		bs.queries = make(map[*pg.SelectStmt]*query, len(bs.selects))
		for _, q := range bs.selects {
			bs.queries[q.sel] = q
		}
	}
	return bs.queries[s]
}

// use is one place where a statement names a table.
type use struct {
	ref *pg.RangeVar
	rel relation
	// node is its leaf in the join tree, sc the scope of its query level.
	node *jnode
	item *item
	// facts hold for the rows of it that can matter; nil if it was not looked at.
	facts *facts
}

// sharded reports whether rows of the table are on several shards.
func (u *use) sharded() bool { return u.rel.table != nil && u.rel.table.Kind == shardmap.Sharded }

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
	a.one.several = true
	st, err := a.run(tree)
	if len(a.viewRefs) > 0 {
		return a.expanded(0)
	}
	return a.one.judged(st, err)
}

// judged is what an analysis says, after the reason why one shard is not enough.
func (one *oneShard) judged(st *plan.Statement, err error) (*plan.Statement, error) {
	switch {
	case !one.several:
		return st, err
	case err != nil && sqlstate.CodeOf(err) == sqlstate.UndefinedTable:
		return nil, err // PostgreSQL says so too, unless it is a temporary table: see the session
	case err != nil && one.first != nil && !one.final && !strings.HasPrefix(string(sqlstate.CodeOf(err)), "22"):
		return nil, one.first
	case err != nil:
		return nil, err
	case st.Kind == plan.Several && st.Plan == nil || st.Kind == plan.OneShard:
		return nil, one.reason()
	}
	return st, nil
}

// reason is why one shard is not enough, for a statement that is not carried out otherwise.
func (one *oneShard) reason() error {
	if one.first != nil {
		return one.first
	}
	return sqlstate.Refusal("CLV-0228", "the statement needs rows of several shards, in a way that the router does not know how to carry out").
		WithHint("Send one statement for each shard key.")
}

// sooner is an error, or that of a bound: bounds are read later than what stands behind them.
func (co *restrictions) sooner(err error) (out error) {
	if !co.one.several && sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			out = b.Err
		}
	}()
	co.settleBounds()
	return err
}

// prove looks for the shard keys of a query that stands by itself.
func (a *binder) prove(q *query) *facts {
	a.bound.proofs = append(a.bound.proofs, q)
	return a.visitQuery(q, noFacts())
}

// place looks for the facts of each table's place.
func (rt *routing) place() {
	rt.worked, rt.placing = 0, true
	for _, q := range rt.bound.proofs {
		rt.visitQuery(q, noFacts())
	}
}

// dispatch plans a statement that needs several shards.
func (a *analyzer) dispatch() {
	st := a.st
	if len(a.viewRefs) > 0 {
		fail(a.one.reason()) // they are written out first
	}
	st.Reusable = false
	a.settleBounds()
	a.place()
	a.checkNow()
	a.one.final = true
	if len(st.Sets) > 0 {
		fail(sqlstate.Refusal("CLV-0229", "set_config() in a statement over several shards is not supported").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	}
	if err := ownNames(a.SQL); err != nil {
		fail(err)
	}
	complexity.CheckChains(a.bound.top)
	a.timedCall(a.bound.top)
	a.readInputs(a.bound.top)
	a.texts.guard = a.guarding()
	var err error
	switch a.bound.top.GetNode().(type) {
	case *pg.Node_SelectStmt:
		if a.lockedCopies.every {
			st.Plan, err = a.planLock(a.bound.top)
			break
		}
		if a.changes && a.bound.top.GetSelectStmt().WithClause != nil {
			st.Plan, err = a.writePlans().planChanging(a.bound.top)
		}
		if st.Plan == nil && err == nil {
			st.Plan, err = a.readPlans().planRead(a.bound.top)
		}
	case *pg.Node_InsertStmt:
		a.onlyCopies()
		st.Plan, err = a.writePlans().planInsert(a.bound.top)
	case *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		a.onlyCopies()
		st.Plan, err = a.writePlans().planModify(a.bound.top)
	case *pg.Node_CopyStmt:
		st.Plan, err = a.writePlans().planCopy(a.bound.top)
	}
	if err != nil {
		fail(err)
	}
	a.one.final = false
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
	*sourceText
	*touched
	*effects
	*parameters
	shardTexts

	p     *Planner
	st    *plan.Statement
	bound *boundStatement
	one   *oneShard
	texts *severalTexts
	into  *pg.IntoClause
}

// writePlans plans statements over several shards that change rows.
type writePlans struct {
	*readPlans

	made *madeValues
}

func (a *analyzer) readPlans() *readPlans {
	return &readPlans{pushdown: &pushdown{typer: &a.typer, equivalence: &a.equivalence, routing: &a.routing, bound: a.bound}, sourceText: &a.sourceText, touched: &a.touched, effects: &a.effects, parameters: &a.parameters, shardTexts: a, p: a.p, st: a.st, bound: a.bound, one: a.one, texts: a.texts, into: a.into}
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

// refuseOne notes that one shard cannot do it. The first reason is the one to tell.
func (one *oneShard) refuseOne(e *sqlstate.Error) {
	if one.several {
		return
	}
	one.several, one.first = true, e
	one.st.Keys, one.st.TimeKeys, one.st.ArrayKeys = nil, nil, false
}

// refuseBoth refuses what no number of shards can do: the reason to tell, also where one shard was refused for another.
func (one *oneShard) refuseBoth(e *sqlstate.Error) {
	one.final = true
	fail(e)
}

// onOne does what only one shard needs. What it refuses is refused for one shard.
func (one *oneShard) onOne(do func()) {
	if one.several {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok || sqlstate.CodeOf(b.Err) != sqlstate.FeatureNotSupported {
				panic(r)
			}
			one.refuseOne(sqlstate.As(b.Err))
		}
	}()
	do()
}

// note records a table's place.
func (bs *boundStatement) note(v *pg.RangeVar, r relation, j *jnode, it *item) {
	if bs.repeated > 0 {
		for _, u := range bs.uses {
			if u.ref == v {
				u.rel, u.node, u.item = r, j, it
				return
			}
		}
	}
	bs.uses = append(bs.uses, &use{ref: v, rel: r, node: j, item: it})
}

// seen records the facts of a sharded table's place.
func (rt *routing) seen(j *jnode, f *facts) {
	for _, u := range rt.bound.uses {
		if u.node == j && u.facts == nil {
			u.facts = f.clone()
		}
	}
	rt.checkAnchor(j, f)
}
