package planner

import (
	"slices"
	"sort"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A view of the map is, for a statement that reads it, its query in brackets. The
// text is expanded, not the tree, so that everything after it (facts, positions,
// what shards receive) has one text to speak of. PostgreSQL's own rewriter does the
// same to the tree. A view over unsharded tables alone stays: the default shard has it.

// viewRef is a place where a statement names a view.
type viewRef struct {
	rel     *pg.RangeVar
	view    *shardmap.View
	sampled bool // by TABLESAMPLE
}

// expandMax bounds how often a text is expanded: views over views.
const expandMax = 64

// viewReach is what a view's query reads, through other views too.
type viewReach struct {
	sharded, reference, whole bool
	catalog                   bool     // one of PostgreSQL's own
	unknown                   []string // names that the map does not know
	unread                    error    // why the definition cannot be read
	depth                     int
}

// spread reports whether some of the rows are not on the default shard alone.
func (r viewReach) spread() bool { return r.sharded || r.reference }

func (r *viewReach) count(to *touched, rel relation) {
	switch {
	case rel.view != nil:
		in := to.reachOf(rel.view)
		r.sharded, r.reference, r.whole = r.sharded || in.sharded, r.reference || in.reference, r.whole || in.whole
		r.catalog = r.catalog || in.catalog
	case rel.virtual:
		fail(sqlstate.Refusal("CLV-0712", "table %s is answered by the router and cannot be in a view", sqltext.QuoteName(rel.schema, rel.name)).
			WithHint("read it in a statement of its own"))
	case rel.table == nil:
		r.whole = true // the catalogue, or a table that the map does not know
		r.catalog = r.catalog || rel.catalog
		if !rel.catalog {
			r.unknown = append(r.unknown, rel.name)
		}
	case rel.table.Kind == shardmap.Sharded:
		r.sharded = true
	case rel.table.Kind == shardmap.Reference:
		r.reference = true
	default:
		r.whole = true
	}
}

// reachOf says what a view reads. A definition that cannot be read may read anything.
func (to *touched) reachOf(v *shardmap.View) viewReach {
	if to.has.depth >= expandMax {
		return viewReach{sharded: true, reference: true, whole: true}
	}
	if r, ok := to.views().reaches[v]; ok {
		return r
	}
	b := to.p.analyzer(v.Definition, to.typer.snap, nil)
	b.has.depth, b.definitions = to.has.depth+1, to.views()
	if err := b.define(nil); err != nil {
		b.has = viewReach{sharded: true, reference: true, whole: true, unread: err}
	}
	to.views().reaches[v] = b.has
	return b.has
}

// everywhereView reports whether a view that is to be changed is on every shard, and not on the default shard alone.
func (to *touched) everywhereView(v *shardmap.View) bool {
	r := to.reachOf(v)
	if r.unread != nil {
		fail(sqlstate.Refusal("CLV-0713", "the router cannot tell which shards have the view %s: %s", v.QualifiedName(), sqlstate.As(r.unread).Message).
			WithHint("drop the view, and create it with a definition that the router can read"))
	}
	return !r.whole
}

// define counts what a query reads: that of a CREATE VIEW, or, with nil, the text itself.
func (a *analyzer) define(q *pg.SelectStmt) (err error) {
	if q == nil {
		tree, err := a.p.parse(a.sql)
		if err != nil {
			return err
		}
		if len(tree.Stmts) != 1 || tree.Stmts[0].Stmt.GetSelectStmt() == nil {
			return sqlstate.New(sqlstate.DataCorrupted, "the definition of a view is not a query")
		}
		q = tree.Stmts[0].Stmt.GetSelectStmt()
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			err = b.err
		}
	}()
	a.defining = true
	a.selectQuery(q, nil)
	a.defining = false
	return nil
}

// expanded is the analysis of a statement with the views that it was found to name
// written out.
func (a *analyzer) expanded(depth int) (*Statement, error) {
	if depth >= expandMax {
		return nil, sqlstate.New(sqlstate.StatementTooComplex, "the statement's views nest deeper than %d", expandMax)
	}
	text, err := a.expandText()
	if err != nil {
		return nil, err
	}
	st, err := a.p.analyze(text, a.snap, a.path, depth+1)
	if err != nil {
		e := *sqlstate.As(err)
		e.Position = 0 // of another text
		return nil, &e
	}
	st.Views = true
	st.Reusable = false // the client's text has other literals
	st.Shape, _, _ = sqltext.Normalize(a.sql)
	return st, nil
}

// takesQuery reports whether a query may stand where the statement names a relation.
func takesQuery(tree *pg.ParseResult) bool {
	switch tree.Stmts[0].GetStmt().GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt, *pg.Node_CopyStmt, *pg.Node_ExplainStmt,
		*pg.Node_DeclareCursorStmt, *pg.Node_PrepareStmt, *pg.Node_CreateTableAsStmt, *pg.Node_ViewStmt:
		return true
	}
	return false
}

// names is the analysis of a statement that names views where no query may stand.
func (to *touched) names(tree *pg.ParseResult, st *Statement, err error) (*Statement, error) {
	if err != nil {
		return nil, err
	}
	switch tree.Stmts[0].GetStmt().GetNode().(type) {
	case *pg.Node_DropStmt, *pg.Node_IndexStmt:
		return st, nil // the default shard has the view, and says that it is no table
	}
	return nil, sqlstate.Refusal("CLV-0714", "this statement is not supported for the view %s, which is over a sharded or reference table", to.viewRefs[0].view.QualifiedName()).
		WithHint("name the tables that it reads")
}

// keeps reports whether a statement that was analysed goes to the default shard
// with its views as they are.
func (to *touched) keeps(st *Statement) bool {
	switch st.Kind {
	case DefaultShard, DDLKind:
	case ExplainRoute:
		return true // its statement is analysed by itself
	default:
		return false
	}
	for _, r := range to.viewRefs {
		if to.reachOf(r.view).spread() {
			return false
		}
	}
	return true
}

// expandText writes the views' queries in the place of their names.
func (a *analyzer) expandText() (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			err = b.err
		}
	}()
	refs := map[int32]viewRef{}
	for _, r := range a.viewRefs {
		refs[r.rel.Location] = r
	}
	ts := a.tokens()
	var edits []sqltext.Edit
	var starts []int32
	for at := range refs {
		starts = append(starts, at)
	}
	sort.Slice(starts, func(i, j int) bool { return starts[i] < starts[j] })
	for _, at := range starts {
		r := refs[at]
		i := a.tokenAt(at)
		if i < 0 {
			lostPlace()
		}
		from, last := ts[i].Start, i
		for last+2 < len(ts) && a.punct(last+1, '.') && ts[last+2].Start >= 0 {
			last += 2
		}
		if last+1 < len(ts) && a.sql[ts[last+1].Start:ts[last+1].End] == "*" {
			last++ // of old: with the children, as without it
		}
		to := ts[last].End
		if r.sampled { // transformRangeTableSample of parse_clause.c
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "TABLESAMPLE clause can only be applied to tables and materialized views").At(a.position(at)))
		}
		before := ""
		switch {
		case a.word(i-1, "only"):
			fail(sqlstate.Refusal("CLV-0715", "ONLY before the view %s is not supported", r.view.QualifiedName()).
				WithHint("leave ONLY out: a view has no children"))
		case a.word(i-1, "table") && r.rel.Alias == nil:
			from, before = ts[i-1].Start, "SELECT * FROM "
		}
		body := before + "(" + strings.TrimRight(strings.TrimSpace(r.view.Definition), ";") + ")"
		if r.rel.Alias == nil {
			body += " AS " + sqltext.QuoteAlways(r.view.Name)
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: body})
	}
	tree, err := a.p.parse(a.sql)
	if err != nil {
		return "", err
	}
	edits = append(edits, a.unqualified(tree)...)
	edits = append(edits, a.rowsOfViews(tree)...)
	return sqltext.Splice(a.sql, append(edits, a.typesOfViews(tree)...)), nil
}

// typesOfViews writes pg_typeof(v) of a view's row as that of the view's type: its query
// gives rows without one.
func (a *analyzer) typesOfViews(tree *pg.ParseResult) (edits []sqltext.Edit) {
	views := map[string]*shardmap.View{}
	for _, r := range a.viewRefs {
		name := r.view.Name
		if r.rel.Alias != nil {
			name = r.rel.Alias.Aliasname
		}
		if views[name] != nil && views[name] != r.view {
			fail(sqlstate.Refusal("CLV-0716", "pg_typeof beside two views named %s is not supported", name).
				WithHint("give them other names"))
		}
		views[name] = r.view
	}
	sqltree.Inspect(tree, func(m proto.Message) bool {
		f, ok := m.(*pg.FuncCall)
		if !ok || sqltree.CallName(f) != "pg_typeof" || len(f.Args) != 1 {
			return true
		}
		names := sqltree.FieldNames(f.Args[0].GetColumnRef())
		if len(names) != 1 || views[names[0]] == nil {
			return true
		}
		view := views[names[0]]
		column := slices.ContainsFunc(a.snap.State().Tables, func(t shardmap.Table) bool {
			return slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return c.Name == names[0] })
		})
		for _, v := range views {
			column = column || strings.Contains(v.Definition, names[0])
		}
		i := a.tokenAt(f.Args[0].GetColumnRef().GetLocation())
		if column || i < 0 {
			fail(sqlstate.Refusal("CLV-0717", "pg_typeof of %s, which may be a view or a column, is not supported", names[0]).
				WithHint("name the column with its table"))
		}
		edits = append(edits, sqltext.Edit{From: a.tokens()[i].Start, To: a.tokens()[i].End, Text: "NULL::" + sqltext.QuoteAlways(view.Schema) + "." + sqltext.QuoteAlways(view.Name)})
		return true
	})
	return edits
}

// unqualified takes the schema off columns that are named with that of a view,
// public.v.c: the query in its place has a name alone.
func (a *analyzer) unqualified(tree *pg.ParseResult) (edits []sqltext.Edit) {
	type name struct{ schema, name string }
	views, taken := map[name]bool{}, map[string]bool{}
	for _, r := range a.viewRefs {
		if r.rel.Alias == nil {
			views[name{r.view.Schema, r.view.Name}] = true
		}
	}
	var long []*pg.ColumnRef
	sqltree.Inspect(tree, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.Alias:
			taken[v.Aliasname] = true
		case *pg.CommonTableExpr:
			taken[v.Ctename] = true
		case *pg.ColumnRef:
			if len(v.Fields) == 3 && views[name{v.Fields[0].GetString_().GetSval(), v.Fields[1].GetString_().GetSval()}] {
				long = append(long, v)
			}
		}
		return true
	})
	for _, v := range long {
		view := v.Fields[1].GetString_().GetSval()
		i := a.tokenAt(v.Location)
		if i < 0 || i+2 >= len(a.tokens()) || !a.punct(i+1, '.') || taken[view] {
			fail(sqlstate.Refusal("CLV-0718", "a column named with the schema of the view %s cannot be told apart here", view).
				WithHint("name it with the view alone: %s.column", sqltext.QuoteIdent(view)))
		}
		edits = append(edits, sqltext.Edit{From: a.tokens()[i].Start, To: a.tokens()[i+2].Start})
	}
	return edits
}

// createView reads CREATE VIEW. A view is on every shard if all that it reads is,
// else on the default shard alone.
func (ch *schemaChange) createView(v *pg.ViewStmt) {
	st := ch.st
	if isTemp(v.View) {
		ch.tempView(v)
		return
	}
	name := ch.created(v.View)
	if v.Query.GetSelectStmt() == nil {
		fail(sqlstate.Refusal("CLV-0822", "this kind of view is not supported"))
	}
	ch.readsNoSettings(v.Query)
	if err := ch.define(v.Query.GetSelectStmt()); err != nil {
		fail(err)
	}
	if ch.sequence != "" {
		fail(sqlstate.Refusal("CLV-0719", "a view that calls %s() is not supported", ch.sequence).WithHint("call it in the statement"))
	}
	ch.everywhere("create view", "CREATE VIEW")
	st.DDL.Objects, st.DDL.Unknown, st.DDL.Spread, st.Temp = true, ch.has.unknown, ch.has.sharded, v.View.Relname
	if _, taken := ch.snap.Table(name.Schema, name.Name); taken {
		fail(sqlstate.New(sqlstate.DuplicateTable, "relation %q already exists", name.Name))
	}
	if !ch.has.whole {
		return
	}
	if _, replaced := ch.snap.View(name.Schema, name.Name); replaced && v.Replace {
		st.DDL.Elsewhere = "DROP VIEW IF EXISTS " + sqltext.QuoteAlways(name.Schema) + "." + sqltext.QuoteAlways(name.Name)
		return
	}
	st.DDL.AllShards = false
}

// readsNoSettings refuses a view of pg_settings. An UPDATE through it is a SET of any setting (the rule pg_settings_u of
// system_views.sql), in a session of the shard's that other clients get next.
func (ns *namespace) readsNoSettings(query *pg.Node) {
	sqltree.Inspect(query, func(m proto.Message) bool {
		if v, ok := m.(*pg.RangeVar); ok && v.Relname == "pg_settings" && ns.relation(v).catalog {
			fail(sqlstate.Refusal("CLV-0720", "a view of pg_settings is not supported").
				WithHint("read pg_settings itself, or use SHOW and current_setting()"))
		}
		return true
	})
}

// viewOf returns the view that a statement of ALTER TABLE names, if it is one.
func (ns *namespace) viewOf(v *pg.RangeVar) *shardmap.View {
	if v == nil {
		return nil
	}
	return ns.relation(v).view
}

// changeView is ALTER VIEW of any sort.
func (ch *schemaChange) changeView(v *pg.RangeVar, missingOK bool) {
	ownSchema(v.GetSchemaname())
	ch.everywhere("alter view", "ALTER VIEW")
	ch.st.DDL.Objects = true
	if ch.word(1, "table") {
		ch.st.Tag = "ALTER TABLE"
	}
	if view := ch.viewOf(v); view != nil {
		ch.st.DDL.AllShards = ch.everywhereView(view)
		return
	}
	ch.st.DDL.Unknown = []string{v.GetRelname()}
	if !missingOK {
		ch.ifExistsElsewhere("view")
	}
}

// materialized reads CREATE MATERIALIZED VIEW: of what is on the default shard, it
// is there itself, like an unsharded table that the map does not know.
func (ch *schemaChange) materialized(c *pg.CreateTableAsStmt) {
	ch.created(c.Into.GetRel())
	q := c.Query.GetSelectStmt()
	if q == nil {
		fail(sqlstate.Refusal("CLV-1116", "CREATE MATERIALIZED VIEW from EXECUTE is not supported").WithHint("write the query out"))
	}
	if err := ch.define(q); err != nil {
		fail(err)
	}
	if ch.has.spread() {
		fail(sqlstate.Refusal("CLV-0721", "a materialized view over sharded or reference tables is not supported").
			WithHint("use a view, or create a table and INSERT ... SELECT into it"))
	}
	ch.st.Kind, ch.st.Tag = DDLKind, "SELECT"
	ch.st.DDL.Op = "create materialized view"
}
