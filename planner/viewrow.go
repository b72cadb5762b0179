package planner

import (
	"maps"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// SELECT v FROM v gives rows of the view's type. Its query in its place gives rows without a type, which the client
// would see as record, and array_agg(v) as record[]. So the name of a view that stands for its row is written as that
// row with the view's type, where it is certain that it is no column, and where every shard has the view.

// rowsOfViews are the edits.
func (a *analyzer) rowsOfViews(tree *pg.ParseResult) (edits []sqltext.Edit) {
	if slices.ContainsFunc(a.snap.State().Shards, func(s shardmap.Shard) bool { return !s.Can().Types }) {
		return nil // it has no types of rows
	}
	w := &viewRows{analyzer: a, views: map[string]*shardmap.View{}}
	for _, r := range a.viewRefs {
		name := r.view.Name
		if r.rel.Alias != nil {
			name = r.rel.Alias.Aliasname
		}
		_, twice := w.views[name]
		w.views[name] = r.view
		if reach := a.reachOf(r.view); twice || reach.whole || reach.unread != nil {
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
			r := w.relation(v)
			switch {
			case r.view != nil:
				names, ok := viewColumns(w.p, r.view)
				if !ok {
					clear(w.views)
				}
				for _, n := range names {
					taken(n)
				}
			case r.table != nil:
				for i := range r.table.Columns {
					taken(r.table.Columns[i].Name)
				}
			case !queries[v.Relname] || v.Schemaname != "":
				clear(w.views)
			}
			if r.view == nil {
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
	ts, i := w.tokens(), w.tokenAt(c.Location)
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
	ts, i := w.tokens(), w.tokenAt(c.Location)
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
	i := w.tokenAt(at)
	if i < 0 {
		return 0
	}
	depth, ts := 0, w.tokens()
	for ; i < len(ts); i++ {
		switch {
		case w.punct(i, '(') || w.punct(i, '['):
			depth++
		case depth > 0 && (w.punct(i, ')') || w.punct(i, ']')):
			depth--
		case depth == 0 && (w.punct(i, ',') || w.punct(i, ')') || w.punct(i, ']') || w.punct(i, ';') || w.word(i, "from") && !w.word(i-1, "distinct") ||
			slices.ContainsFunc(afterOutputs, func(word string) bool { return w.word(i, word) })):
			return ts[i-1].End
		}
	}
	return ts[len(ts)-1].End
}

// afterOutputs may follow the list of outputs of a query without FROM.
var afterOutputs = []string{"where", "group", "having", "window", "union", "intersect", "except", "order", "limit", "offset", "fetch", "for", "into"}
