package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A statement that is not proved to be of one shard is read a second time, with
// a tree of its own: then nothing is refused for its shard keys, and instead it
// is noted what each table stands for and which facts hold there. The functions
// named plan... look at that and return a Plan; nil without error means that the
// statement is none of theirs, an error that it cannot be run by anybody.

// reading is what the second reading notes.
type reading struct {
	// top is the query or the statement that changes rows: inside EXPLAIN, DECLARE
	// and COPY it is theirs.
	top *pg.Node
	// root is what was proved about top; nil for statements that change rows.
	root *query
	// uses are the tables named, in the order of the text, WITH queries left out.
	uses  []*use
	byRef map[*pg.RangeVar]*use
	// queries are the SELECTs, each of a set operation's arms as well.
	queries map[*pg.SelectStmt]*query
	// keyspaces are those of the sharded tables.
	keyspaces map[string]bool
	// names counts the relations that were named, see fresh.
	names int
	// edits are those of the texts that split an INSERT.
	edits []sqltext.Edit
	// clock is set once a text uses the parameter Plan.Clock.
	clock bool
	// anchor is the table whose shard key the proof of locality follows, see local.
	anchor   *jnode
	plain    map[*pg.A_Const]bool // see plainWords
	planning bool                 // the statement was read
	outside  bool                 // a sharded table was not bound to the anchor
	guard    bool                 // texts look at what they cast to times, see guarded
}

func newReading() *reading {
	return &reading{byRef: map[*pg.RangeVar]*use{}, queries: map[*pg.SelectStmt]*query{}, keyspaces: map[string]bool{}}
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
func (p *Planner) Several(sql string, snap *shardmap.Snapshot, searchPath []string) (*Statement, error) {
	tree, err := p.parse(sql)
	if err != nil {
		return nil, err
	}
	if len(tree.Stmts) != 1 {
		return nil, sqlstate.New(sqlstate.SyntaxError, "cannot insert multiple commands into a prepared statement")
	}
	return p.again(tree, sql, snap, searchPath, nil, 0)
}

// again is the second reading. first is what the first one said.
func (p *Planner) again(tree *pg.ParseResult, sql string, snap *shardmap.Snapshot, path []string, first error, depth int) (*Statement, error) {
	a := p.analyzer(sql, snap, path)
	a.reads(newReading())
	st, err := a.run(tree)
	if len(a.viewRefs) > 0 {
		return a.expanded(depth) // the first reading did not come as far as to them
	}
	switch {
	case err != nil && sqlstate.CodeOf(err) == sqlstate.UndefinedTable:
		return nil, err // PostgreSQL says so too, unless it is a temporary table: see the session
	case err != nil && first != nil && !a.second.planning && !strings.HasPrefix(string(sqlstate.CodeOf(err)), "22"):
		return nil, first
	case err != nil:
		return nil, err
	case st.Kind == Several && st.Plan == nil || st.Kind == OneShard:
		if first == nil {
			first = sqlstate.Refusal("CLV-0228", "the statement needs rows of several shards, in a way that the router does not know how to carry out").
				WithHint("Send one statement for each shard key.")
		}
		return nil, first
	}
	return st, nil
}

// dispatch plans a statement that needs several shards.
func (a *analyzer) dispatch() {
	st := a.st
	st.Keys, st.Reusable = nil, false
	a.second.planning = true
	if len(st.Sets) > 0 {
		fail(sqlstate.Refusal("CLV-0229", "set_config() in a statement over several shards is not supported").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	}
	if err := ownNames(a.sql); err != nil {
		fail(err)
	}
	unchained(a.second.top)
	a.timedCall(a.second.top)
	a.looseWords(a.second.top)
	a.second.guard = a.guarding()
	var err error
	switch a.second.top.GetNode().(type) {
	case *pg.Node_SelectStmt:
		if a.lockedCopies.every {
			st.Plan, err = a.planLock(a.second.top)
			break
		}
		if a.changes && a.second.top.GetSelectStmt().WithClause != nil {
			st.Plan, err = a.writePlans().planChanging(a.second.top)
		}
		if st.Plan == nil && err == nil {
			st.Plan, err = a.readPlans().planRead(a.second.top)
		}
	case *pg.Node_InsertStmt:
		a.onlyCopies()
		st.Plan, err = a.writePlans().planInsert(a.second.top)
	case *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		a.onlyCopies()
		st.Plan, err = a.writePlans().planModify(a.second.top)
	case *pg.Node_CopyStmt:
		st.Plan, err = a.writePlans().planCopy(a.second.top)
	}
	if err != nil {
		fail(err)
	}
	a.second.planning = false
	if st.Plan != nil {
		st.Plan.Clock = st.Plan.Clock || a.second.clock
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

	p      *Planner
	st     *Statement
	second *reading
	into   *pg.IntoClause
}

// writePlans plans statements over several shards that change rows.
type writePlans struct {
	*readPlans

	made *madeValues
}

func (a *analyzer) readPlans() *readPlans {
	return &readPlans{pushdown: a.pushdown, sourceText: &a.sourceText, touched: &a.touched, effects: &a.effects, parameters: &a.parameters, shardTexts: a, p: a.p, st: a.st, second: a.second, into: a.into}
}

func (a *analyzer) writePlans() *writePlans {
	return &writePlans{readPlans: a.readPlans(), made: &a.madeValues}
}

// planRead plans a query: a SELECT, also that of DECLARE CURSOR, EXPLAIN and COPY.
func (rp *readPlans) planRead(n *pg.Node) (*Plan, error) {
	for _, plan := range []func(*pg.Node) (*Plan, error){rp.planScatter, rp.planAggregate, rp.planGather} {
		if p, err := plan(n); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// refuseOne refuses what one shard cannot do; the second reading goes on.
func (rd *reading) refuseOne(e *sqlstate.Error) {
	if rd == nil {
		fail(e)
	}
}

// refuseBoth refuses what no number of shards can do: the reason to tell, also where the first reading had another.
func (rd *reading) refuseBoth(e *sqlstate.Error) {
	if rd != nil {
		rd.planning = true
	}
	fail(e)
}

// note records a table's place.
func (rd *reading) note(v *pg.RangeVar, r relation, j *jnode, it *item) {
	if rd == nil {
		return
	}
	if rd.byRef[v] != nil {
		// Recursive WITH queries are read several times.
		u := rd.byRef[v]
		u.rel, u.node, u.item = r, j, it
		return
	}
	u := &use{ref: v, rel: r, node: j, item: it}
	rd.uses = append(rd.uses, u)
	rd.byRef[v] = u
}

// seen records the facts of a sharded table's place.
func (rd *reading) seen(j *jnode, f *facts) {
	for _, u := range rd.uses {
		if u.node == j && u.facts == nil {
			u.facts = f.clone()
		}
	}
	rd.bound(j, f)
}
