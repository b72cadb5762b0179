package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// analyzer is the state of one Analyze.
type analyzer struct {
	typer
	sourceText
	equivalence
	constants
	parameters
	touched
	effects
	restrictions
	routing
	madeValues
	inputWords
	binder

	p  *Planner
	st *plan.Statement

	bound *boundStatement
	one   *oneShard
	texts *severalTexts
}

// touched is what the statement touches.
type touched struct {
	typer *typer
	p     *Planner
	st    *plan.Statement
	one   *oneShard

	// The first name of each sort, for messages.
	sharded, whole, catalog, unknown, reference, virtual string
	unknownAt                                            int32

	types []keyspace.Type // of the keyspace of the sharded tables
	mixed bool            // it may name tables of every shard beside others, see others

	// viewRefs are the views that the statement names; defining: it is the query of
	// a view, whose tables are only counted, in has. See view.go.
	viewRefs    []viewRef
	defining    bool
	has         viewReach
	definitions *definitions
	weight      int // see weighView

	catalogRefs []clustercatalog.Ref // what the catalogue is asked for, see clustercatalog
}

// touch notes that the statement uses a table.
func (to *touched) touch(r relation, v *pg.RangeVar) {
	name := sqltext.QuoteName(r.schema, r.name)
	if r.view != nil {
		to.weighView(r.view)
	}
	if to.defining {
		to.has.count(to, r)
		return
	}
	if r.view != nil {
		to.whole = name // if it is one of unsharded tables; else the text is expanded
		to.viewRefs = append(to.viewRefs, viewRef{rel: v, view: r.view})
		return
	}
	switch {
	case r.virtual:
		to.virtual = name
	case r.catalog:
		to.catalog = name
		if r.schema == "pg_catalog" {
			clustercatalog.RefuseShared(r.name)
		}
		to.catalogRefs = append(to.catalogRefs, clustercatalog.Ref{Rel: v, Name: r.schema + "." + r.name})
	case r.table == nil:
		if to.st.DDL == nil && to.typer.clusterSequence(v) != nil {
			fail(sqlstate.Refusal("CLV-0505", "reading the sequence %s as a table is not supported: the routers have its values", name).
				WithHint("Run SELECT * FROM cleave.sequences."))
		}
		to.unknown, to.unknownAt, to.st.Strange = name, v.GetLocation(), true
	default:
		addTable(&to.st.Tables, r.table)
		switch r.table.Kind {
		case shardmap.Sharded:
			to.touchSharded(r.table, name)
		case shardmap.Reference:
			to.reference = name
		default:
			to.whole = name
		}
	}
}

// touchSharded notes a sharded table. Those of one statement are of one keyspace, if one shard is to run it.
func (to *touched) touchSharded(t *shardmap.Table, name string) {
	if to.sharded != "" && to.st.Keyspace != t.Keyspace {
		to.one.refuseOne(sqlstate.Refusal("CLV-0218", "tables %s and %s are in different keyspaces (%s and %s), so their rows are placed independently", to.sharded, name, to.st.Keyspace, t.Keyspace).
			WithHint("Declare them with the same cleave.keyspace to have them colocated, or use them in two statements."))
	}
	if to.sharded == "" {
		ks, ok := to.typer.snap.Keyspace(t.Keyspace)
		if !ok {
			fail(sqlstate.New(sqlstate.DataCorrupted, "table %s is in keyspace %q, which the shard map does not have", name, t.Keyspace).
				WithHint("cleave doctor"))
		}
		to.sharded, to.st.Keyspace, to.types = name, t.Keyspace, ks.Def().Types
	}
}

// oneKeyspace reports whether the sharded tables are all of one keyspace.
func (to *touched) oneKeyspace() bool {
	name := ""
	for _, t := range to.st.Tables {
		if t.Kind == shardmap.Sharded {
			if name != "" && t.Keyspace != name {
				return false
			}
			name = t.Keyspace
		}
	}
	return name != ""
}

func addTable(list *[]*shardmap.Table, t *shardmap.Table) {
	for _, have := range *list {
		if have == t {
			return
		}
	}
	*list = append(*list, t)
}

// statement classifies one statement.
func (a *analyzer) statement(n *pg.Node) {
	st := a.st
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		st.Tag = "SELECT"
		if utility.MaySpecial(v.SelectStmt) && a.session().SelectSpecial(v.SelectStmt) {
			return
		}
		a.sessionCalls(n)
		a.fillSelect(v.SelectStmt)
		a.maySet = true
		a.query(n)
		a.finish()
		st.Stable = st.ReadOnly && !a.volatile && a.catalog == "" && a.unknown == "" && a.sequence == ""
		st.ReplicaSafe = st.Stable && !a.preferDefault &&
			(st.Kind == plan.OneShard || st.Kind == plan.DefaultShard && a.whole != "")
		a.shape()
	case *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		a.sessionCalls(n)
		a.maySet = true
		a.query(n)
		a.finish()
		a.shape()
	case *pg.Node_ExplainStmt:
		a.explain(v.ExplainStmt)
	case *pg.Node_DeclareCursorStmt:
		a.pids = true
		a.declare(v.DeclareCursorStmt)
	case *pg.Node_CopyStmt:
		a.pids = true
		a.copy(v.CopyStmt)
	case *pg.Node_LockStmt:
		a.lockTable(v.LockStmt)
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

func (to *touched) lockTable(l *pg.LockStmt) {
	to.st.Tag = "LOCK TABLE"
	for _, r := range l.Relations {
		if rel := r.GetRangeVar(); rel != nil {
			to.touch(to.typer.relation(rel), rel)
		}
	}
	const accessShare = 1
	// Every schema change takes its locks on the default shard first, and ACCESS
	// SHARE conflicts with nothing else.
	if (to.sharded != "" || to.reference != "") && l.Mode != accessShare {
		fail(sqlstate.Refusal("CLV-1022", "LOCK TABLE on a sharded or reference table would lock it on one shard only").
			WithHint("Lock the rows that you need with SELECT ... FOR UPDATE."))
	}
	to.st.Kind = plan.DefaultShard
}

// shape records the fingerprint and whether other literals may be put in.
func (a *analyzer) shape() {
	shape, lits, exact := sqltext.Normalize(a.st.Text)
	a.st.Shape = shape
	reusable := exact
	at := map[int32]int32{}
	for i, l := range lits {
		at[l.Start] = int32(i + 1)
	}
	for _, key := range a.st.Keys {
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
	switch a.st.Kind {
	case plan.OneShard:
		// No key at all came from a literal that matches nothing.
		a.st.Reusable = reusable && len(a.st.Keys) > 0 && !a.dropped && !a.objects
	case plan.DefaultShard, plan.AnyShard:
		a.st.Reusable = exact
	}
}

// query analyses a SELECT, INSERT, UPDATE, DELETE or MERGE and proves it.
func (a *analyzer) query(n *pg.Node) {
	st := a.st
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		st.Tag, st.ReturnsRows = "SELECT", true
		q := a.selectQuery(v.SelectStmt, nil)
		a.bound.top, a.bound.root = n, q
		a.prove(q)
	default:
		a.bound.top = n
		a.modify(n, nil, true)
	}
	if a.one.several {
		a.settleBounds()
	}
	st.ReadOnly = !a.locks && !a.changes && a.sequence != "nextval" && a.sequence != "setval"
	st.Sequenced = a.sequence != ""
	if a.objects {
		a.number = serverdependent.TakesOID(n)
		a.preferDefault = a.preferDefault || a.number != ""
	}
	switch {
	case a.into != nil && isTemp(a.into.GetRel()):
		a.tempAs(a.into)
	case a.into != nil:
		a.createAs(a.into, shardmap.Whole)
	}
}

// finish decides where a statement without DDL goes.
func (a *analyzer) finish() {
	st := a.st
	for _, k := range st.Keys {
		for i := range k {
			a.strict(&k[i])
		}
	}
	if st.Kind == plan.DDLKind {
		if a.virtual != "" {
			fail(sqlstate.Refusal("CLV-0219", "a table cannot be created from %s, which is answered by the router", a.virtual).
				WithHint("Read it in a statement of its own."))
		}
		if a.sharded != "" {
			a.createFrom()
		}
		return
	}
	st.Numbers = a.numbers || a.preferDefault
	a.ofDefault()
	switch {
	case a.virtual != "":
		a.ofRouter()
	case a.sharded != "":
		a.ofShards()
	default:
		a.ofNone()
	}
	a.lockCopies()
	for _, t := range st.Writes {
		if t.Kind == shardmap.Reference {
			a.one.refuseOne(sqlstate.Refusal("CLV-0225", "writes to the reference table %s are not supported yet", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Its rows would have to change on every shard at once."))
			st.Kind = plan.Several
		}
	}
	if st.Kind == plan.Several && a.bound.top != nil {
		a.dispatch()
	}
}

// ofDefault refuses calls that only the default shard answers in a statement that runs elsewhere.
func (fx *effects) ofDefault() {
	to := fx.touched
	elsewhere := to.sharded != "" || to.virtual != ""
	spread := elsewhere || to.reference != "" && fx.changes
	if fx.number != "" && (to.sharded != "" || to.reference != "" && fx.changes) {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0220", "%s in a statement on the table %s%s: the OIDs of tables and types differ between shards", fx.number, to.sharded, to.reference).
			WithHint("Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own."))
	}
	if fx.advisory != "" && elsewhere {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-1023", "%s() in a statement on the table %s%s would run on its shards: all advisory locks and notifications are the default shard's", fx.advisory, to.sharded, to.virtual).
			WithHint("Call it in a statement of its own."))
	}
	if fx.largeObject != "" && spread {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0221", "%s() in a statement on the table %s%s%s: large objects are on the default shard", fx.largeObject, to.sharded, to.virtual, to.reference).
			WithHint("Call it in a statement of its own, with the OID of the object."))
	}
	if fx.temporaryCall != "" && spread {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0815", "%s() in a statement on the table %s%s%s: functions in pg_temp are in a session of the default shard", fx.temporaryCall, to.sharded, to.virtual, to.reference).
			WithHint("Call it in a statement of its own."))
	}
}

// ofRouter is for a statement about tables of the schema cleave.
func (fx *effects) ofRouter() {
	to := fx.touched
	for _, other := range []string{to.sharded, to.whole, to.catalog, to.unknown, to.reference} {
		if other != "" {
			fail(sqlstate.Refusal("CLV-0222", "table %s is answered by the router and cannot be joined with %s", to.virtual, other).
				WithHint("Read it in a statement of its own."))
		}
	}
	if fx.changes || fx.locks {
		fail(virtualWrite(to.virtual))
	}
	fx.st.Kind = plan.Virtual
}

// ofShards is for a statement about sharded tables.
func (fx *effects) ofShards() {
	to := fx.touched
	if to.unknown != "" {
		fail(undefinedTable(to.unknown, fx.src.Position(to.unknownAt)))
	}
	for _, other := range []string{to.whole, to.catalog} {
		if other != "" {
			fx.one.refuseOne(sqlstate.Refusal("CLV-0223", "table %s is sharded and %s is on the default shard only", to.sharded, other).
				WithHint("Use them in two statements, or declare %s as a reference table.", other))
		}
	}
	if fx.sequence != "" {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0224", "%s() in a statement on the sharded table %s would count on each shard by itself", fx.sequence, to.sharded).
			WithHint("Get the value in a statement of its own: SELECT %s(...).", fx.sequence))
	}
	fx.st.Kind = plan.OneShard
	if fx.one.several {
		fx.st.Kind = plan.Several
	}
}

// ofNone is for a statement about no sharded table.
func (fx *effects) ofNone() {
	to := fx.touched
	switch {
	case to.whole != "" || to.catalog != "" || to.unknown != "" || fx.sequence != "" || fx.preferDefault || fx.locks && to.reference != "":
		// Who locks rows of a reference table FOR SHARE meets all others on any copy, and need not go where they are not.
		fx.st.Kind = plan.DefaultShard
	case fx.mayType && len(fx.st.Tables) == 0:
		fx.st.Kind = plan.DefaultShard
	default:
		fx.st.Kind = plan.AnyShard
	}
}

// strict marks a parameter that the statement uses where PostgreSQL could take
// another type for it.
func (pa *parameters) strict(e *plan.KeyExpr) {
	if e.Param == 0 {
		return
	}
	u := pa.params[e.Param]
	mark := keytype.Family(e.As)
	if e.Array {
		mark += arrayMark
		pa.st.ArrayKeys = true
	}
	e.Strict = u == nil || u.agree[mark] < u.total
	if keytype.IsTime(e.ReadAs()) {
		pa.st.TimeKeys = append(pa.st.TimeKeys, *e)
	}
}

func virtualWrite(name string) error {
	hint := "the functions of the schema change it: cleave.create_keyspace, cleave.distribute, cleave.pin"
	return sqlstate.New(sqlstate.InsufficientPrivilege, "%s is read-only", name).WithHint("%s", hint)
}

// withClause reads WITH queries into the scope.
func (a *binder) withClause(w *pg.WithClause, sc *scope) []*withQuery {
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
			var q *query
			if w.Recursive && s.Op == pg.SetOperation_SETOP_UNION {
				q = a.recursive(s, sc, entry, names)
			} else {
				q = a.selectQuery(s, sc)
				a.fixCTE(entry, q, names)
			}
			out = append(out, &withQuery{q: q, c: entry})
		} else {
			r := a.modify(c.Ctequery, sc, false)
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
			c.cols[i].name = n
		}
	}
}

// fixCTE gives a WITH query its columns and what fixes them.
func (eq *equivalence) fixCTE(c *cte, q *query, names []string) {
	c.cols, c.sets, c.open = nil, nil, q.open
	for i, col := range q.cols {
		c.cols = append(c.cols, column{name: col.name, term: noTerm, typ: col.typ, oid: col.oid, late: col.late})
		set, ok := eq.exported(q, i, &facts{learned: map[*jnode]bool{}})
		if !ok {
			set = nil
		} else if set == nil {
			set = []constant{}
		}
		c.sets = append(c.sets, set)
	}
	c.rename(names)
}

// recursive reads WITH RECURSIVE by induction: suppose that the rows so far have
// the constants of the first arm in a column; if the second arm then gives no
// others, all rows have them.
func (a *binder) recursive(s *pg.SelectStmt, sc *scope, entry *cte, names []string) *query {
	inner := &scope{parent: sc, ctes: map[string]*cte{}}
	with := a.withClause(s.WithClause, inner)
	base := a.selectQuery(s.Larg, inner)
	a.fixCTE(entry, base, names)
	inner.ctes[entry.name] = entry
	if inner.ctes == nil {
		inner.ctes = map[string]*cte{}
	}
	defer func(n int) { a.bound.repeated = n }(a.bound.repeated)
	for {
		aggregates, windows := a.aggregates, a.windows
		step := a.selectQuery(s.Rarg, inner)
		a.bound.repeated++
		changed := false
		for i, set := range entry.sets {
			if set == nil {
				continue
			}
			got, ok := a.exported(step, i, &facts{learned: map[*jnode]bool{}})
			if !ok || !subset(got, set) || i >= len(step.cols) || !keytype.SameFamily(step.cols[i].typ, entry.cols[i].typ) {
				entry.sets[i] = nil
				changed = true
			}
		}
		a.aggregates, a.windows = aggregates, windows
		if !changed {
			q := &query{arms: []*query{base, step}, with: with, open: base.open || step.open}
			w := &walker{sc: inner, subs: &q.subs}
			a.walkList(s.SortClause, w)
			a.walk(s.LimitCount, w)
			a.walk(s.LimitOffset, w)
			return q
		}
	}
}

// subset reports whether every constant of got is one of set, by its place in
// the text: equal values at two places may differ in another text.
func subset(got, set []constant) bool {
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
		a.st.Prepared.Explain = prefix
		return
	}
	if route {
		a.st.Kind, a.st.Tag, a.st.ReturnsRows, a.st.Analyze = plan.ExplainRoute, "EXPLAIN", true, analyze
		inner, err := a.p.Analyze(text, a.snap, a.path)
		if err == nil && inner.Kind == plan.OneShard && !inner.UsesParams() {
			if r, wrong := inner.Route(a.snap, nil); wrong == nil && r.Several {
				inner, err = a.p.Several(text, a.snap, a.path)
			}
		}
		if err != nil {
			a.st.ReadOnly = true
			a.st.Refused = sqlstate.As(err)
			a.st.Unread = a.st.Refused.Unread
			return
		}
		a.st.Unread = inner.Unread
		a.st.Inner, a.st.Params, a.st.Shape = inner, inner.Params, inner.Shape
		a.st.ReadOnly = !analyze || inner.ReadOnly
		return
	}
	a.st.Explained = utility.ExplainOf(e, prefix)
	a.st.Explained.Query = text
	switch e.Query.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
	default:
		fail(sqlstate.Refusal("CLV-0226", "EXPLAIN of this statement is not supported").
			WithHint("Explain the query itself, or use EXPLAIN (ROUTE)."))
	}
	a.query(e.Query)
	a.finish()
	if a.st.Kind == plan.DDLKind || a.st.Kind == plan.Virtual {
		fail(sqlstate.Refusal("CLV-0227", "EXPLAIN of this statement is not supported").WithHint("Use EXPLAIN (ROUTE)."))
	}
	a.st.Explained.Tag, a.st.Explained.ReturnsRows = a.st.Tag, a.st.ReturnsRows
	a.st.Tag, a.st.ReturnsRows = "EXPLAIN", true
	a.st.ReadOnly = !analyze || a.st.ReadOnly
}

func (a *analyzer) copy(c *pg.CopyStmt) {
	plainHeader(c.Options)
	st := a.st
	st.Tag, st.Copy = "COPY", true
	if c.IsProgram || c.Filename != "" {
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "COPY with a file or program of the server is not supported").
			WithHint(`use COPY ... FROM STDIN or TO STDOUT, or psql's \copy`))
	}
	if c.Query != nil {
		a.copyQuery(c)
		return
	}
	a.bound.top = &pg.Node{Node: &pg.Node_CopyStmt{CopyStmt: c}}
	if v := a.viewOf(c.Relation); v != nil {
		fail(copiesView(c, v))
	}
	a.touch(a.relation(c.Relation), c.Relation)
	if c.WhereClause != nil {
		var subs []*query
		a.walk(c.WhereClause, &walker{sc: &scope{}, subs: &subs})
	}
	a.copiesSharded(c)
	if c.IsFrom {
		a.changes = true
		for _, t := range st.Tables {
			addTable(&st.Writes, t)
		}
		a.copyGenerated(c)
	}
	st.ReadOnly = !c.IsFrom
	a.finish()
	if st.Kind == plan.DefaultShard && c.IsFrom && a.copyMakes(c) {
		st.Kind = plan.Several
		a.dispatch()
	}
	if st.Kind == plan.Virtual {
		fail(sqlstate.Refusal("CLV-0409", "COPY of %s is not supported", a.virtual).WithHint("Read it with SELECT."))
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
	st := a.st
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
func (to *touched) copiesSharded(c *pg.CopyStmt) {
	if to.sharded == "" {
		return
	}
	hint := "Insert the rows with INSERT."
	if !c.IsFrom {
		hint = "Use COPY (SELECT ... WHERE shard key = ...) TO STDOUT."
	}
	to.one.refuseOne(sqlstate.Refusal("CLV-0408", "COPY of the sharded table %s is not supported yet", to.sharded).WithHint("%s", hint))
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
	if a.st.Kind == plan.Virtual || a.st.Kind == plan.DDLKind {
		fail(sqlstate.Refusal("CLV-1025", "a cursor over this statement is not supported").WithHint("Run it without DECLARE."))
	}
	a.st.Tag, a.st.ReturnsRows = "DECLARE CURSOR", false
	a.st.Cursor = &plan.Cursor{Op: "declare", Name: d.Portalname, Scroll: has(scroll), NoScroll: has(noScroll), Hold: has(withHold), Binary: has(binary),
		Backward: backward && len(a.viewRefs) == 0}
	ts, depth := a.Top()
	for i, t := range ts {
		if i >= 3 && depth[i] == 0 && t.Is(a.SQL, "for") {
			a.st.Cursor.Query = a.After(ts, i+1)
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
