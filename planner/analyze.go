package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// analyzer is the state of one Analyze.
type analyzer struct {
	semantics.Analysis
	madeValues
	inputWords

	p     *Planner
	texts *severalTexts
}

// statement classifies one statement.
func (a *analyzer) statement(n *pg.Node) {
	st := a.Statement
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		st.Tag = "SELECT"
		if utility.MaySpecial(v.SelectStmt) && a.session().SelectSpecial(v.SelectStmt) {
			return
		}
		a.sessionCalls(n)
		a.fillSelect(v.SelectStmt)
		a.MaySet = true
		a.query(n)
		a.finish()
		st.Stable = st.ReadOnly && !a.Volatile && a.Catalog == "" && a.Unknown == "" && a.Sequence == ""
		st.ReplicaSafe = st.Stable && !a.PreferDefault &&
			(st.Kind == plan.OneShard || st.Kind == plan.DefaultShard && a.Whole != "")
		a.shape()
	case *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		a.sessionCalls(n)
		a.MaySet = true
		a.query(n)
		a.finish()
		a.shape()
	case *pg.Node_ExplainStmt:
		a.explain(v.ExplainStmt)
	case *pg.Node_DeclareCursorStmt:
		a.OwnSession = true
		a.declare(v.DeclareCursorStmt)
	case *pg.Node_CopyStmt:
		a.OwnSession = true
		a.copy(v.CopyStmt)
	case *pg.Node_LockStmt:
		lockTable(&a.Touched, v.LockStmt)
	case *pg.Node_VacuumStmt:
		a.change().vacuum(v.VacuumStmt)
	case *pg.Node_ConstraintsSetStmt:
		setConstraints(st, v.ConstraintsSetStmt)
		if st.Tx.Name != "" {
			st.Text = a.written(n)
		}
	default:
		if !a.session().Read(n) {
			a.change().ddl(n)
		}
	}
}

func setConstraints(st *plan.Statement, c *pg.ConstraintsSetStmt) {
	st.Kind, st.Tag, st.ReadOnly = plan.TxKind, "SET CONSTRAINTS", true
	st.Tx = &plan.Tx{Op: "constraints"}
	if st.Text = "SET CONSTRAINTS ALL IMMEDIATE"; c.Deferred {
		st.Text = "SET CONSTRAINTS ALL DEFERRED"
	}
	if len(c.Constraints) > 0 {
		st.Tx.Name = c.Constraints[0].GetRangeVar().GetRelname()
	}
}

func lockTable(to *semantics.Touched, l *pg.LockStmt) {
	to.Statement.Tag = "LOCK TABLE"
	for _, r := range l.Relations {
		if rel := r.GetRangeVar(); rel != nil {
			to.Touch(to.Typer.Relation(rel), rel)
		}
	}
	const accessShare = 1
	// Every schema change takes its locks on the default shard first, and ACCESS
	// SHARE conflicts with nothing else.
	if (to.Sharded != "" || to.Reference != "") && l.Mode != accessShare {
		fail(sqlstate.Refusal("CLV-1022", "LOCK TABLE on a sharded or reference table would lock it on one shard only").
			WithHint("Lock the rows that you need with SELECT ... FOR UPDATE."))
	}
	to.Statement.Kind = plan.DefaultShard
}

// shape records the fingerprint and whether other literals may be put in.
func (a *analyzer) shape() {
	shape, lits, exact := sqltext.Normalize(a.Statement.Text)
	a.Statement.Shape = shape
	reusable := exact
	at := map[int32]int32{}
	for i, l := range lits {
		at[l.Start] = int32(i + 1)
	}
	for _, key := range a.Statement.Keys {
		for i := range key {
			e := &key[i]
			if e.Param != 0 {
				continue
			}
			if e.Location == 0 {
				reusable = false
				continue
			}
			// The parser puts a sign into the constant; its position is the sign's.
			off := e.Location - 1
			if int(off) < len(a.SQL) && a.SQL[off] == '-' {
				reusable = false
			}
			e.Literal = at[off]
			if e.Literal == 0 {
				reusable = false
			}
		}
	}
	switch a.Statement.Kind {
	case plan.OneShard:
		// No key at all came from a literal that matches nothing.
		a.Statement.Reusable = reusable && len(a.Statement.Keys) > 0 && !a.Dropped && !a.Objects
	case plan.DefaultShard, plan.AnyShard:
		a.Statement.Reusable = exact
	}
}

// query analyses a SELECT, INSERT, UPDATE, DELETE or MERGE and proves it.
func (a *analyzer) query(n *pg.Node) {
	st := a.Statement
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		st.Tag, st.ReturnsRows = "SELECT", true
		q := a.SelectQuery(v.SelectStmt, nil)
		a.Bound.Top, a.Bound.Root = n, q
		a.Prove(q)
	default:
		a.Bound.Top = n
		a.Modify(n, nil, true)
	}
	if a.OneShard.Several {
		a.SettleBounds()
	}
	st.ReadOnly = !a.Locks && !a.Changes && a.Sequence != "nextval" && a.Sequence != "setval"
	st.Sequenced = a.Sequence != ""
	if a.Objects {
		a.Number = serverdependent.TakesOID(n)
		a.PreferDefault = a.PreferDefault || a.Number != ""
	}
	switch {
	case a.Into != nil && isTemp(a.Into.GetRel()):
		a.tempAs(a.Into)
	case a.Into != nil:
		a.createAs(a.Into, shardmap.Whole)
	}
}

// finish decides where a statement without DDL goes.
func (a *analyzer) finish() {
	st := a.Statement
	for _, k := range st.Keys {
		for i := range k {
			a.Strict(&k[i])
		}
	}
	if st.Kind == plan.DDLKind {
		if a.Virtual != "" {
			fail(sqlstate.Refusal("CLV-0219", "a table cannot be created from %s, which is answered by the router", a.Virtual).
				WithHint("Read it in a statement of its own."))
		}
		if a.Sharded != "" {
			a.createFrom()
		}
		return
	}
	st.Numbers = a.Numbers || a.PreferDefault
	a.OfDefault()
	switch {
	case a.Virtual != "":
		a.OfRouter()
	case a.Sharded != "":
		a.OfShards()
	default:
		a.OfNone()
	}
	a.LockCopies()
	for _, t := range st.Writes {
		if t.Kind == shardmap.Reference {
			a.OneShard.RefuseOne(sqlstate.Refusal("CLV-0225", "writes to the reference table %s are not supported yet", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Its rows would have to change on every shard at once."))
			st.Kind = plan.Several
		}
	}
	if st.Kind == plan.Several && a.Bound.Top != nil {
		a.dispatch()
	}
}

func explainOptions(e *pg.ExplainStmt) (route, analyze bool) {
	for _, n := range e.Options {
		d := n.GetDefElem()
		switch strings.ToLower(d.GetDefname()) {
		case "route":
			route = sqltree.OptionOn(d)
		case "analyze":
			analyze = sqltree.OptionOn(d)
		}
	}
	return route, analyze
}

// explain reads EXPLAIN; EXPLAIN (ROUTE) is the router's own.
func (a *analyzer) explain(e *pg.ExplainStmt) {
	route, analyze := explainOptions(e)
	text := a.AfterExplain()
	prefix := a.SQL[:strings.LastIndex(a.SQL, text)]
	if x := e.Query.GetExecuteStmt(); x != nil {
		a.session().Execute(x)
		a.Statement.Prepared.Explain = prefix
		return
	}
	if route {
		a.Statement.Kind, a.Statement.Tag, a.Statement.ReturnsRows, a.Statement.Analyze = plan.ExplainRoute, "EXPLAIN", true, analyze
		inner, err := a.p.Analyze(text, a.Snapshot, a.Path)
		if err == nil && inner.Kind == plan.OneShard && !inner.UsesParams() {
			if r, wrong := inner.Route(a.Snapshot, nil); wrong == nil && r.Several {
				inner, err = a.p.Several(text, a.Snapshot, a.Path)
			}
		}
		if err != nil {
			a.Statement.ReadOnly = true
			a.Statement.Refused = sqlstate.As(err)
			a.Statement.Unread = a.Statement.Refused.Unread
			return
		}
		a.Statement.Unread = inner.Unread
		a.Statement.Inner, a.Statement.Params, a.Statement.Shape = inner, inner.Params, inner.Shape
		a.Statement.ReadOnly = !analyze || inner.ReadOnly
		return
	}
	a.Statement.Explained = utility.ExplainOf(e, prefix)
	a.Statement.Explained.Query = text
	switch e.Query.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
	default:
		fail(sqlstate.Refusal("CLV-0226", "EXPLAIN of this statement is not supported").
			WithHint("Explain the query itself, or use EXPLAIN (ROUTE)."))
	}
	a.query(e.Query)
	a.finish()
	if a.Statement.Kind == plan.DDLKind || a.Statement.Kind == plan.Virtual {
		fail(sqlstate.Refusal("CLV-0227", "EXPLAIN of this statement is not supported").WithHint("Use EXPLAIN (ROUTE)."))
	}
	a.Statement.Explained.Tag, a.Statement.Explained.ReturnsRows = a.Statement.Tag, a.Statement.ReturnsRows
	a.Statement.Tag, a.Statement.ReturnsRows = "EXPLAIN", true
	a.Statement.ReadOnly = !analyze || a.Statement.ReadOnly
}

func (a *analyzer) copy(c *pg.CopyStmt) {
	plainHeader(c.Options)
	st := a.Statement
	st.Tag, st.Copy = "COPY", true
	if c.IsProgram || c.Filename != "" {
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "COPY with a file or program of the server is not supported").
			WithHint(`use COPY ... FROM STDIN or TO STDOUT, or psql's \copy`))
	}
	if c.Query != nil {
		a.copyQuery(c)
		return
	}
	a.Bound.Top = &pg.Node{Node: &pg.Node_CopyStmt{CopyStmt: c}}
	if v := viewOf(&a.Namespace, c.Relation); v != nil {
		fail(copiesView(c, v))
	}
	a.Touch(a.Relation(c.Relation), c.Relation)
	if c.WhereClause != nil {
		var subs []*semantics.Query
		a.Walk(c.WhereClause, &semantics.Walker{Scope: &semantics.Scope{}, Subqueries: &subs})
	}
	copiesSharded(&a.Touched, c)
	if c.IsFrom {
		a.Changes = true
		for _, t := range st.Tables {
			semantics.AddTable(&st.Writes, t)
		}
		copyGenerated(&a.Touched, c)
	}
	st.ReadOnly = !c.IsFrom
	a.finish()
	if st.Kind == plan.DefaultShard && c.IsFrom && copyMakes(&a.Namespace, c) {
		st.Kind = plan.Several
		a.dispatch()
	}
	if st.Kind == plan.Virtual {
		fail(sqlstate.Refusal("CLV-0409", "COPY of %s is not supported", a.Virtual).WithHint("Read it with SELECT."))
	}
	if st.Kind != plan.Several {
		st.Kind = plan.DefaultShard
	}
}

// plainHeader leaves out the argument of HEADER in the old syntax, the Boolean true, which the new one, in which the
// statement may be written to the shards, does not have. Without an argument it is the same.
func plainHeader(options []*pg.Node) {
	for _, o := range options {
		if d := o.GetDefElem(); d.GetDefname() == "header" && d.GetArg().GetBoolean().GetBoolval() {
			d.Arg = nil
		}
	}
}

// copyQuery reads COPY (SELECT ...) TO STDOUT.
func (a *analyzer) copyQuery(c *pg.CopyStmt) {
	st := a.Statement
	a.query(c.Query)
	st.Tag, st.ReturnsRows = "COPY", false
	a.finish()
	if st.Kind == plan.Virtual || st.Kind == plan.DDLKind {
		fail(sqlstate.Refusal("CLV-0407", "COPY of this query is not supported").WithHint("Run the query by itself."))
	}
	if st.Kind == plan.Several && st.Plan != nil {
		a.writePlans().planCopyQuery(c)
		return
	}
	for _, o := range c.Options {
		if d := o.GetDefElem(); d.GetDefname() == "format" && d.GetArg().GetString_().GetSval() == "binary" {
			st.CopyRows = a.written(c.Query)
		}
	}
}

func copiesView(c *pg.CopyStmt, v *shardmap.View) error {
	way, hint := "from", "Try the COPY (SELECT ...) TO variant."
	if c.IsFrom {
		way, hint = "to", "insert into the view's table"
	}
	return sqlstate.New(sqlstate.WrongObjectType, "cannot copy %s view %q", way, v.Name).WithHint("%s", hint)
}

// copiesSharded refuses COPY of a sharded table on one shard.
func copiesSharded(to *semantics.Touched, c *pg.CopyStmt) {
	if to.Sharded == "" {
		return
	}
	hint := "Insert the rows with INSERT."
	if !c.IsFrom {
		hint = "Use COPY (SELECT ... WHERE shard key = ...) TO STDOUT."
	}
	to.OneShard.RefuseOne(sqlstate.Refusal("CLV-0408", "COPY of the sharded table %s is not supported yet", to.Sharded).WithHint("%s", hint))
}

func (a *analyzer) declare(d *pg.DeclareCursorStmt) {
	const ( // CURSOR_OPT_... of parsenodes.h
		binary      = 0x0001
		scroll      = 0x0002
		noScroll    = 0x0004
		insensitive = 0x0008
		asensitive  = 0x0010
		withHold    = 0x0020
	)
	has := func(o int32) bool { return d.Options&o != 0 }
	switch {
	case has(scroll) && has(noScroll):
		fail(sqlstate.New("42P11", "cannot specify both %s and %s", "SCROLL", "NO SCROLL"))
	case has(asensitive) && has(insensitive):
		fail(sqlstate.New("42P11", "cannot specify both %s and %s", "ASENSITIVE", "INSENSITIVE"))
	}
	s := d.Query.GetSelectStmt()
	if len(s.GetLockingClause()) > 0 {
		lock := map[pg.LockClauseStrength]string{pg.LockClauseStrength_LCS_FORUPDATE: "FOR UPDATE", pg.LockClauseStrength_LCS_FORNOKEYUPDATE: "FOR NO KEY UPDATE",
			pg.LockClauseStrength_LCS_FORSHARE: "FOR SHARE", pg.LockClauseStrength_LCS_FORKEYSHARE: "FOR KEY SHARE"}[s.LockingClause[0].GetLockingClause().GetStrength()]
		switch {
		case has(withHold):
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "DECLARE CURSOR WITH HOLD ... %s is not supported", lock).WithDetail("Holdable cursors must be READ ONLY."))
		case has(scroll):
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "DECLARE SCROLL CURSOR ... %s is not supported", lock).WithDetail("Scrollable cursors must be READ ONLY."))
		case has(insensitive):
			fail(sqlstate.New("42P11", "DECLARE INSENSITIVE CURSOR ... %s is not valid", lock).WithDetail("Insensitive cursors must be READ ONLY."))
		}
	}
	backward := readsBackward(s)
	a.query(d.Query)
	a.finish()
	if a.Statement.Kind == plan.Virtual || a.Statement.Kind == plan.DDLKind {
		fail(sqlstate.Refusal("CLV-1025", "a cursor over this statement is not supported").WithHint("Run it without DECLARE."))
	}
	a.Statement.Tag, a.Statement.ReturnsRows = "DECLARE CURSOR", false
	a.Statement.Cursor = &plan.Cursor{Op: "declare", Name: d.Portalname, Scroll: has(scroll), NoScroll: has(noScroll), Hold: has(withHold), Binary: has(binary),
		Backward: backward && len(a.ViewRefs) == 0}
	ts, depth := a.Top()
	for i, t := range ts {
		if i >= 3 && depth[i] == 0 && t.Is(a.SQL, "for") {
			a.Statement.Cursor.Query = a.After(ts, i+1)
			return
		}
	}
}

// readsBackward reports whether a query's plan is a scan of one table, perhaps with a Sort and a Limit above it
// (ExecSupportsBackwardScan of PostgreSQL's execAmi.c).
func readsBackward(s *pg.SelectStmt) bool {
	if s == nil || s.Op != pg.SetOperation_SETOP_NONE || len(s.FromClause) != 1 || s.FromClause[0].GetRangeVar() == nil || s.WithClause != nil ||
		s.DistinctClause != nil || s.GroupClause != nil || s.HavingClause != nil || s.WindowClause != nil || len(s.LockingClause) > 0 {
		return false
	}
	calls := false
	sqltree.InspectAll(s.TargetList, func(m proto.Message) bool { // aggregates, functions that return sets
		_, call := m.(*pg.FuncCall)
		calls = calls || call
		return !calls
	})
	return !calls
}
