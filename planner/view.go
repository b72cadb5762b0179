package planner

import (
	"maps"
	"slices"
	"sort"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/complexity"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// everywhereView reports whether a view that is to be changed is on every shard, and not on the default shard alone.
func everywhereView(to *semantics.Touched, v *shardmap.View) bool {
	r := to.ReachOf(v)
	if r.Unread != nil {
		fail(sqlstate.Refusal("CLV-0713", "the router cannot tell which shards have the view %s: %s", v.QualifiedName(), sqlstate.As(r.Unread).Message).
			WithHint("Drop the view, and create it with a definition that the router can read."))
	}
	return !r.Whole
}

// expanded is the analysis of a statement with the views that it was found to name
// written out.
func (a *analyzer) expanded(depth int) (*plan.Statement, error) {
	if depth >= semantics.ExpandMax {
		return nil, sqlstate.New(sqlstate.StatementTooComplex, "the statement's views nest deeper than %d", semantics.ExpandMax)
	}
	text, err := a.expandText()
	if err != nil {
		return nil, err
	}
	st, err := a.p.analyze(text, a.Snapshot, a.Path, depth+1)
	if err != nil {
		e := *sqlstate.As(err)
		e.Position = 0 // of another text
		return nil, &e
	}
	st.Views = true
	st.Reusable = false // the client's text has other literals
	st.Shape, _, _ = sqltext.Normalize(a.SQL)
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

// namesViews is the analysis of a statement that names views where no query may stand.
func namesViews(to *semantics.Touched, tree *pg.ParseResult, st *plan.Statement, err error) (*plan.Statement, error) {
	if err != nil {
		return nil, err
	}
	switch tree.Stmts[0].GetStmt().GetNode().(type) {
	case *pg.Node_DropStmt, *pg.Node_IndexStmt:
		return st, nil // the default shard has the view, and says that it is no table
	}
	return nil, sqlstate.Refusal("CLV-0714", "this statement is not supported for the view %s, which is over a sharded or reference table", to.ViewRefs[0].View.QualifiedName()).
		WithHint("Name the tables that it reads.")
}

// keepsViews reports whether a statement that was analysed goes to the default shard
// with its views as they are.
func keepsViews(to *semantics.Touched, st *plan.Statement) bool {
	switch st.Kind {
	case plan.DefaultShard, plan.DDLKind:
	case plan.ExplainRoute:
		return true // its statement is analysed by itself
	default:
		return false
	}
	for _, r := range to.ViewRefs {
		if to.ReachOf(r.View).Spread() {
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
			err = b.Err
		}
	}()
	refs := map[int32]semantics.ViewRef{}
	for _, r := range a.ViewRefs {
		refs[r.Ref.Location] = r
	}
	ts := a.Tokens()
	var edits []sqltext.Edit
	var starts []int32
	for at := range refs {
		starts = append(starts, at)
	}
	sort.Slice(starts, func(i, j int) bool { return starts[i] < starts[j] })
	for _, at := range starts {
		r := refs[at]
		i := a.TokenAt(at)
		if i < 0 {
			sourcetext.LostPlace()
		}
		from, last := ts[i].Start, i
		for last+2 < len(ts) && a.Punct(last+1, '.') && ts[last+2].Start >= 0 {
			last += 2
		}
		if last+1 < len(ts) && a.SQL[ts[last+1].Start:ts[last+1].End] == "*" {
			last++ // of old: with the children, as without it
		}
		to := ts[last].End
		if r.Sampled { // transformRangeTableSample of parse_clause.c
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "TABLESAMPLE clause can only be applied to tables and materialized views").At(a.Position(at)))
		}
		before := ""
		switch {
		case a.Word(i-1, "only"):
			fail(sqlstate.Refusal("CLV-0715", "ONLY before the view %s is not supported", r.View.QualifiedName()).
				WithHint("Leave ONLY out: a view has no children."))
		case a.Word(i-1, "table") && r.Ref.Alias == nil:
			from, before = ts[i-1].Start, "SELECT * FROM "
		}
		body := before + "(" + strings.TrimRight(strings.TrimSpace(r.View.Definition), ";") + ")"
		if r.Ref.Alias == nil {
			body += " AS " + sqltext.QuoteAlways(r.View.Name)
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: body})
	}
	tree, err := a.p.parse(a.SQL)
	if err != nil {
		return "", err
	}
	edits = append(edits, a.unqualified(tree)...)
	edits = append(edits, a.rowsOfViews(tree)...)
	return sqltext.Splice(a.SQL, append(edits, a.typesOfViews(tree)...)), nil
}

// typesOfViews writes pg_typeof(v) of a view's row as that of the view's type: its query
// gives rows without one.
func (a *analyzer) typesOfViews(tree *pg.ParseResult) (edits []sqltext.Edit) {
	views := map[string]*shardmap.View{}
	for _, r := range a.ViewRefs {
		name := r.View.Name
		if r.Ref.Alias != nil {
			name = r.Ref.Alias.Aliasname
		}
		if views[name] != nil && views[name] != r.View {
			fail(sqlstate.Refusal("CLV-0716", "pg_typeof beside two views named %s is not supported", name).
				WithHint("Give them other names."))
		}
		views[name] = r.View
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
		column := slices.ContainsFunc(a.Snapshot.State().Tables, func(t shardmap.Table) bool {
			return slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return c.Name == names[0] })
		})
		for _, v := range views {
			column = column || strings.Contains(v.Definition, names[0])
		}
		i := a.TokenAt(f.Args[0].GetColumnRef().GetLocation())
		if column || i < 0 {
			fail(sqlstate.Refusal("CLV-0717", "pg_typeof of %s, which may be a view or a column, is not supported", names[0]).
				WithHint("Name the column with its table."))
		}
		edits = append(edits, sqltext.Edit{From: a.Tokens()[i].Start, To: a.Tokens()[i].End, Text: "NULL::" + sqltext.QuoteAlways(view.Schema) + "." + sqltext.QuoteAlways(view.Name)})
		return true
	})
	return edits
}

// unqualified takes the schema off columns that are named with that of a view,
// public.v.c: the query in its place has a name alone.
func (a *analyzer) unqualified(tree *pg.ParseResult) (edits []sqltext.Edit) {
	type name struct{ schema, name string }
	views, taken := map[name]bool{}, map[string]bool{}
	for _, r := range a.ViewRefs {
		if r.Ref.Alias == nil {
			views[name{r.View.Schema, r.View.Name}] = true
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
		i := a.TokenAt(v.Location)
		if i < 0 || i+2 >= len(a.Tokens()) || !a.Punct(i+1, '.') || taken[view] {
			fail(sqlstate.Refusal("CLV-0718", "a column named with the schema of the view %s cannot be told apart here", view).
				WithHint("Name it with the view alone: %s.column.", sqltext.QuoteIdent(view)))
		}
		edits = append(edits, sqltext.Edit{From: a.Tokens()[i].Start, To: a.Tokens()[i+2].Start})
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
	name := createdName(&ch.Namespace, v.View)
	if v.Query.GetSelectStmt() == nil {
		fail(sqlstate.Refusal("CLV-0822", "this kind of view is not supported"))
	}
	readsNoSettings(&ch.Namespace, v.Query)
	if err := ch.Define(v.Query.GetSelectStmt()); err != nil {
		fail(err)
	}
	if ch.Sequence != "" {
		fail(sqlstate.Refusal("CLV-0719", "a view that calls %s() is not supported", ch.Sequence).WithHint("Call it in the statement."))
	}
	ch.everywhere("create view", "CREATE VIEW")
	st.DDL.Objects, st.DDL.Unknown, st.DDL.Spread, st.Temp = true, ch.Has.Unknown, ch.Has.Sharded, v.View.Relname
	if _, taken := ch.Snapshot.Table(name.Schema, name.Name); taken {
		fail(sqlstate.New(sqlstate.DuplicateTable, "relation %q already exists", name.Name))
	}
	if !ch.Has.Whole {
		return
	}
	if _, replaced := ch.Snapshot.View(name.Schema, name.Name); replaced && v.Replace {
		st.DDL.Elsewhere = "DROP VIEW IF EXISTS " + sqltext.QuoteAlways(name.Schema) + "." + sqltext.QuoteAlways(name.Name)
		return
	}
	st.DDL.AllShards = false
}

// readsNoSettings refuses a view of pg_settings. An UPDATE through it is a SET of any setting (the rule pg_settings_u of
// system_views.sql), in a session of the shard's that other clients get next.
func readsNoSettings(ns *semantics.Namespace, query *pg.Node) {
	sqltree.Inspect(query, func(m proto.Message) bool {
		if v, ok := m.(*pg.RangeVar); ok && v.Relname == "pg_settings" && ns.Relation(v).Catalog {
			fail(sqlstate.Refusal("CLV-0720", "a view of pg_settings is not supported").
				WithHint("Read pg_settings itself, or use SHOW and current_setting()."))
		}
		return true
	})
}

// viewOf returns the view that a statement of ALTER TABLE names, if it is one.
func viewOf(ns *semantics.Namespace, v *pg.RangeVar) *shardmap.View {
	if v == nil {
		return nil
	}
	return ns.Relation(v).View
}

// changeView is ALTER VIEW of any sort.
func (ch *schemaChange) changeView(v *pg.RangeVar, missingOK bool) {
	ownSchema(v.GetSchemaname())
	ch.everywhere("alter view", "ALTER VIEW")
	ch.st.DDL.Objects = true
	if ch.Word(1, "table") {
		ch.st.Tag = "ALTER TABLE"
	}
	if view := viewOf(&ch.Namespace, v); view != nil {
		ch.st.DDL.AllShards = everywhereView(ch.Touched, view)
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
	createdName(&ch.Namespace, c.Into.GetRel())
	q := c.Query.GetSelectStmt()
	if q == nil {
		fail(sqlstate.Refusal("CLV-1116", "CREATE MATERIALIZED VIEW from EXECUTE is not supported").WithHint("Write the query out."))
	}
	if err := ch.Define(q); err != nil {
		fail(err)
	}
	if ch.Has.Spread() {
		fail(sqlstate.Refusal("CLV-0721", "a materialized view over sharded or reference tables is not supported").
			WithHint("Use a view, or create a table and INSERT ... SELECT into it."))
	}
	ch.st.Kind, ch.st.Tag = plan.DDLKind, "SELECT"
	ch.st.DDL.Op = "create materialized view"
}

// SELECT v FROM v gives rows of the view's type. Its query in its place gives rows without a type, which the client
// would see as record, and array_agg(v) as record[]. So the name of a view that stands for its row is written as that
// row with the view's type, where it is certain that it is no column, and where every shard has the view.

// rowsOfViews are the edits.
func (a *analyzer) rowsOfViews(tree *pg.ParseResult) (edits []sqltext.Edit) {
	if slices.ContainsFunc(a.Snapshot.State().Shards, func(s shardmap.Shard) bool { return !s.Can().Types }) {
		return nil // it has no types of rows
	}
	w := &viewRows{analyzer: a, views: map[string]*shardmap.View{}}
	for _, r := range a.ViewRefs {
		name := r.View.Name
		if r.Ref.Alias != nil {
			name = r.Ref.Alias.Aliasname
		}
		_, twice := w.views[name]
		w.views[name] = r.View
		if reach := a.ReachOf(r.View); twice || reach.Whole || reach.Unread != nil {
			w.views[name] = nil
		}
	}
	if !w.named(tree) {
		return nil
	}
	w.stars = maps.Clone(w.views)
	w.columns(tree)
	for _, s := range tree.Stmts {
		w.node(s.ProtoReflect(), nil)
	}
	for name, list := range w.edits {
		if w.views[name] != nil {
			edits = append(edits, list...)
		}
	}
	edits = append(edits, w.casts...)
	slices.SortFunc(edits, func(a, b sqltext.Edit) int { return a.From - b.From })
	return edits
}

// rowMark is in what rowsOfViews writes, so that it is known again wherever the text is read.
const rowMark = "cleave_view_row"

type viewRows struct {
	*analyzer
	views map[string]*shardmap.View // by the name that they have in the statement; nil: not certain
	edits map[string][]sqltext.Edit
	// stars are those of them that no other relation has: v.*::v of a view's definition is a row whatever columns are called.
	stars map[string]*shardmap.View
	casts []sqltext.Edit
}

// named reports whether one of the names stands alone somewhere, or with a star.
func (w *viewRows) named(tree *pg.ParseResult) bool {
	found := false
	sqltree.Inspect(tree, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok && w.views[rowName(c)] != nil {
			found = true
		}
		return !found
	})
	return found
}

// rowName is the relation of which a reference may be the whole row: v, v.*; "" if of none.
func rowName(c *pg.ColumnRef) string {
	if len(c.Fields) == 1 || len(c.Fields) == 2 && c.Fields[1].GetAStar() != nil {
		return c.Fields[0].GetString_().GetSval()
	}
	return ""
}

// columns leaves out the names that columns, or other relations, of the statement have.
func (w *viewRows) columns(tree *pg.ParseResult) {
	taken := func(name string) {
		if w.views[name] != nil {
			w.views[name] = nil
		}
	}
	relation := func(name string) {
		delete(w.stars, name)
		taken(name)
	}
	queries := map[string]bool{}
	sqltree.Inspect(tree, func(m proto.Message) bool {
		if c, ok := m.(*pg.CommonTableExpr); ok {
			queries[c.Ctename] = true
		}
		return true
	})
	sqltree.Inspect(tree, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ResTarget:
			taken(v.Name)
		case *pg.ColumnDef:
			taken(v.Colname)
		case *pg.CommonTableExpr:
			relation(v.Ctename)
			for _, n := range sqltree.Strings(v.Aliascolnames) {
				taken(n)
			}
		case *pg.Alias:
			for _, n := range sqltree.Strings(v.Colnames) {
				taken(n)
			}
		case *pg.RangeSubselect:
			relation(v.Alias.GetAliasname())
		case *pg.RangeFunction:
			relation(v.Alias.GetAliasname())
			for _, f := range v.Functions { // its column is called like it
				for _, item := range f.GetList().GetItems() {
					taken(sqltree.CallName(item.GetFuncCall()))
				}
			}
		case *pg.JoinExpr:
			relation(v.Alias.GetAliasname())
		case *pg.JsonTable, *pg.RangeTableFunc, *pg.RangeTableSample:
			clear(w.views)
		case *pg.RangeVar:
			r := w.Relation(v)
			switch {
			case r.View != nil:
				names, ok := viewColumns(w.p, r.View)
				if !ok {
					clear(w.views)
				}
				for _, n := range names {
					taken(n)
				}
			case r.Table != nil:
				for i := range r.Table.Columns {
					taken(r.Table.Columns[i].Name)
				}
			case !queries[v.Relname] || v.Schemaname != "":
				clear(w.views)
			}
			if r.View == nil {
				taken(v.Relname)
				relation(v.Alias.GetAliasname())
			}
		}
		return true
	})
}

// viewColumns are the columns of a view, as its definition has them.
func viewColumns(p *Planner, v *shardmap.View) (names []string, ok bool) {
	tree, err := p.parse(v.Definition)
	if err != nil || len(tree.Stmts) != 1 {
		return nil, false
	}
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	for s.GetOp() != pg.SetOperation_SETOP_NONE {
		s = s.Larg
	}
	if s == nil || len(s.TargetList) == 0 || sqltree.AnyStar(s.TargetList) {
		return nil, false
	}
	for _, n := range s.TargetList {
		r := n.GetResTarget()
		if names = append(names, r.Name); r.Name == "" {
			names[len(names)-1] = outputname.Of(r.Val)
		}
	}
	return names, true
}

// node notes the references below a message, of which holder is the one around it.
func (w *viewRows) node(m protoreflect.Message, holder proto.Message) {
	switch v := m.Interface().(type) {
	case *pg.ResTarget:
		if name := labelOf(v.Val); v.Name == "" && w.views[name] != nil && !(v.Val.GetColumnRef() != nil && len(v.Val.GetColumnRef().Fields) == 2) {
			if end := w.outputEnd(v.Location); end > 0 {
				w.edit(name, sqltext.Edit{From: end, To: end, Text: " AS " + sqltext.QuoteAlways(name)})
			} else {
				w.views[name] = nil // the output would be called otherwise
			}
		}
	case *pg.ColumnRef:
		w.row(v, holder)
		return
	case *pg.SelectStmt:
		if v.Op != pg.SetOperation_SETOP_NONE {
			w.node(v.Larg.ProtoReflect(), v)
			w.node(v.Rarg.ProtoReflect(), v)
			if v.WithClause != nil {
				w.node(v.WithClause.ProtoReflect(), v)
			}
			return // its ORDER BY has names of outputs
		}
	case *pg.FuncCall:
		if sqltree.CallName(v) == "pg_typeof" && len(v.Args) == 1 && len(sqltree.FieldNames(v.Args[0].GetColumnRef())) == 1 {
			return // see typesOfViews
		}
	}
	if _, wrapper := m.Interface().(*pg.Node); !wrapper {
		holder = m.Interface()
	}
	sqltree.Below(m, func(m protoreflect.Message) { w.node(m, holder) })
}

// viewRow is the cast in what rowsOfViews writes, which casts no value; nil for anything else.
func viewRow(c *pg.CaseExpr) *pg.TypeCast {
	if len(c.Args) != 1 {
		return nil
	}
	w := c.Args[0].GetCaseWhen()
	for _, n := range w.GetExpr().GetBoolExpr().GetArgs() {
		if n.GetNullTest().GetArg().GetAConst().GetSval().GetSval() == rowMark {
			return w.Result.GetTypeCast()
		}
	}
	return nil
}

func (w *viewRows) row(c *pg.ColumnRef, holder proto.Message) {
	name := rowName(c)
	view := w.views[name]
	if _, cast := holder.(*pg.TypeCast); cast && len(c.Fields) == 2 && view == nil {
		w.cast(c, name)
		return
	}
	if view == nil {
		return
	}
	if _, field := holder.(*pg.A_Indirection); field {
		return // (v).column is told by the query as well
	}
	if len(c.Fields) == 2 {
		switch holder.(type) {
		case *pg.ResTarget, *pg.RowExpr, *pg.List: // all columns
			return
		}
	}
	ts, i := w.Tokens(), w.TokenAt(c.Location)
	last := i + 2*(len(c.Fields)-1)
	if i < 0 || last >= len(ts) {
		w.views[name] = nil
		return
	}
	own := sqltext.QuoteAlways(name)
	w.edit(name, sqltext.Edit{From: ts[i].Start, To: ts[last].End, Text: rowOf(own, own, view)})
}

// rowOf is the row of a relation, with the view's type; is stands for it.
func rowOf(own, is string, view *shardmap.View) string {
	return "(CASE WHEN " + is + " IS DISTINCT FROM NULL AND '" + rowMark + "' IS NOT NULL THEN ROW(" + own + ".*)::" + sqltext.QuoteAlways(view.Schema) + "." + sqltext.QuoteAlways(view.Name) + " END)"
}

// cast writes v.*::v.
func (w *viewRows) cast(c *pg.ColumnRef, name string) {
	view := w.stars[name]
	ts, i := w.Tokens(), w.TokenAt(c.Location)
	if view == nil || i < 0 || i+2 >= len(ts) {
		return
	}
	own := sqltext.QuoteAlways(name)
	w.casts = append(w.casts, sqltext.Edit{From: ts[i].Start, To: ts[i+2].End, Text: rowOf(own, own+".*", view)})
}

func (w *viewRows) edit(name string, e sqltext.Edit) {
	if w.edits == nil {
		w.edits = map[string][]sqltext.Edit{}
	}
	w.edits[name] = append(w.edits[name], e)
}

// labelOf is the relation whose name an output without one of its own gets, as that of a row: v, v::text.
func labelOf(n *pg.Node) string {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		return rowName(v.ColumnRef)
	case *pg.Node_TypeCast:
		return labelOf(v.TypeCast.Arg)
	case *pg.Node_CollateClause:
		return labelOf(v.CollateClause.Arg)
	case *pg.Node_CaseExpr:
		return labelOf(v.CaseExpr.Defresult)
	}
	return ""
}

// outputEnd is where an output of a query ends, 0 if that is not found.
func (w *viewRows) outputEnd(at int32) int {
	i := w.TokenAt(at)
	if i < 0 {
		return 0
	}
	depth, ts := 0, w.Tokens()
	for ; i < len(ts); i++ {
		switch {
		case w.Punct(i, '(') || w.Punct(i, '['):
			depth++
		case depth > 0 && (w.Punct(i, ')') || w.Punct(i, ']')):
			depth--
		case depth == 0 && (w.Punct(i, ',') || w.Punct(i, ')') || w.Punct(i, ']') || w.Punct(i, ';') || w.Word(i, "from") && !w.Word(i-1, "distinct") ||
			slices.ContainsFunc(afterOutputs, func(word string) bool { return w.Word(i, word) })):
			return ts[i-1].End
		}
	}
	return ts[len(ts)-1].End
}

// afterOutputs may follow the list of outputs of a query without FROM.
var afterOutputs = []string{"where", "group", "having", "window", "union", "intersect", "except", "order", "limit", "offset", "fetch", "for", "into"}

// tooHeavy reports whether WITH queries NOT MATERIALIZED make a statement read too many tables.
func (p *Planner) tooHeavy(sql string, tree *pg.ParseResult) bool {
	return strings.Contains(strings.ToLower(sql), "materialized") && complexity.Tables(tree, func(*pg.RangeVar) int { return 1 }) > complexity.TablesMax
}
