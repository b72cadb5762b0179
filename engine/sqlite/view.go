package sqlite

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// A view is a definition and nothing in SQLite: a statement that reads it is
// translated with its query in its place. The query is kept with the schemas of its
// tables, so that it means the same whatever the search_path.

func (c *schemaChange) createView(s *pg.ViewStmt) {
	switch {
	case s.View.Relpersistence == "t":
		fault.Refuse("CLV-2196", "a temporary view")
	case s.WithCheckOption != pg.ViewCheckOption_NO_CHECK_OPTION && s.WithCheckOption != pg.ViewCheckOption_VIEW_CHECK_OPTION_UNDEFINED:
		fault.Refuse("CLV-2197", "WITH CHECK OPTION")
	case len(s.Options) > 0:
		fault.Refuse("CLV-2198", "an option of a view")
	case s.Query.GetSelectStmt() == nil:
		fault.Refuse("CLV-2199", "this query of a view")
	}
	schema, name := c.creationSchema(s.View), s.View.Relname
	old := c.names.Catalog.Views[catalog.Key(schema, name)]
	if old == nil || !s.Replace {
		c.checkNewName(schema, name)
	}
	d := &catalog.Table{Schema: schema, Name: name, Columns: c.t.ViewColumns(s.Query, s.Aliases), Viewed: &catalog.View{}}
	if len(d.Columns) == 0 {
		fault.Refuse("CLV-2200", "a view without columns")
	}
	query := proto.Clone(s.Query).(*pg.Node)
	named := (len(s.Aliases) == 0 || !starred(query)) && nameColumns(query, d.Columns)
	c.qualify(query, d.Viewed)
	tree, err := syntax.Tree("SELECT 1") // for its version
	must(err)
	tree.Stmts[0].Stmt = query
	text, err := pg.Deparse(tree)
	if err != nil {
		fault.Refuse("CLV-2199", "this query of a view")
	}
	if !named {
		names := make([]string, len(d.Columns))
		for i := range d.Columns {
			names[i] = quote.Ident(d.Columns[i].Name)
		}
		text = "SELECT v." + strings.Join(names, ", v.") + " FROM (" + text + ") AS v (" + strings.Join(names, ", ") + ")"
	}
	d.Viewed.Query = text
	if old == nil {
		d.OID = c.mustOID()
	} else {
		replaces(old, d)
		d.OID, d.Comment = old.OID, old.Comment
	}
	d.View = d.Viewed
	must(c.saveObject(d.OID, "view", d))
}

// starred reports whether the columns of a query are not listed.
func starred(query *pg.Node) bool {
	s := query.GetSelectStmt()
	for s.GetLarg() != nil {
		s = s.Larg
	}
	return slices.ContainsFunc(s.TargetList, func(n *pg.Node) bool {
		ref := n.GetResTarget().GetVal().GetColumnRef()
		return ref != nil && ref.Fields[len(ref.Fields)-1].GetAStar() != nil
	})
}

// nameColumns gives the columns of a query their names; it returns false if that
// cannot be done in its list of columns. The star of one table is written out.
func nameColumns(query *pg.Node, cols []catalog.Column) bool {
	s := query.GetSelectStmt()
	for s.GetLarg() != nil {
		s = s.Larg
	}
	if len(s.TargetList) == 1 && len(s.FromClause) == 1 && s.FromClause[0].GetRangeVar() != nil {
		if ref := s.TargetList[0].GetResTarget().GetVal().GetColumnRef(); ref != nil && len(ref.Fields) == 1 && ref.Fields[0].GetAStar() != nil {
			from := s.FromClause[0].GetRangeVar()
			if from.Alias != nil && len(from.Alias.Colnames) > 0 {
				return false
			}
			name := from.Relname
			if from.Alias != nil {
				name = from.Alias.Aliasname
			}
			s.TargetList = nil
			for _, col := range cols {
				s.TargetList = append(s.TargetList, &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Name: col.Name, Val: &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{
					Fields: []*pg.Node{{Node: &pg.Node_String_{String_: &pg.String{Sval: name}}}, {Node: &pg.Node_String_{String_: &pg.String{Sval: col.Name}}}}}}}}}})
			}
			return true
		}
	}
	if len(s.TargetList) != len(cols) {
		return false
	}
	if starred(query) {
		return false
	}
	for i, n := range s.TargetList {
		n.GetResTarget().Name = cols[i].Name
	}
	return true
}

// replaces checks that a new view can stand for an old one.
func replaces(old, d *catalog.Table) {
	if len(d.Columns) < len(old.Columns) {
		fault.Raisef("42P16", "cannot drop columns from view")
	}
	for i, was := range old.Columns {
		is := d.Columns[i]
		if is.Name != was.Name {
			fault.Raise(sqlstate.New("42P16", "cannot change name of view column \"%s\" to \"%s\"", was.Name, is.Name).
				WithHint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead."))
		}
		if is.Type != was.Type || is.Mod != was.Mod {
			fault.Raisef("42P16", "cannot change data type of view column \"%s\" from %s to %s", was.Name, value.FormatType(was.Type, was.Mod), value.FormatType(is.Type, is.Mod))
		}
	}
}

// qualify names the schemas of the tables in a view's query, and notes them.
func (c *schemaChange) qualify(query *pg.Node, v *catalog.View) {
	ctes := map[string]bool{}
	syntax.Each(query.ProtoReflect(), func(m protoreflect.Message) {
		switch x := m.Interface().(type) {
		case *pg.CommonTableExpr:
			ctes[x.Ctename] = true
		case *pg.A_Star:
			v.Star = true
		case *pg.LockingClause:
			fault.Refuse("CLV-2201", "FOR UPDATE in a view")
		}
	})
	syntax.Each(query.ProtoReflect(), func(m protoreflect.Message) {
		r, ok := m.Interface().(*pg.RangeVar)
		if !ok {
			return
		}
		if r.Schemaname == "" && ctes[r.Relname] {
			if slices.ContainsFunc(c.names.Path, func(s string) bool { return c.names.Lookup(s, r.Relname) != nil }) {
				fault.Refuse("CLV-2202", "a view with a WITH query that is named like a table")
			}
			return
		}
		d := c.t.FindRelation(r)
		if d.Relation {
			fault.Refuse("CLV-2203", "a view of a temporary relation")
		}
		r.Schemaname = d.Schema
		if !slices.Contains(v.Refs, d.OID) {
			v.Refs = append(v.Refs, d.OID)
		}
	})
}

// usedByViews refuses to change columns and names that views rely on.
func (c *schemaChange) usedByViews(d *catalog.Table, onlyStar bool) {
	for _, v := range c.names.Catalog.SortedViews() {
		if slices.Contains(v.Viewed.Refs, d.OID) && (!onlyStar || v.Viewed.Star) {
			fault.Raise(sqlstate.Refusal("CLV-2206", `the view "%s" reads the table "%s", and would have to follow its change`, v.Name, d.Name).
				WithHint("Drop the view first, and make it again afterwards."))
		}
	}
}

// dropViews drops views, and with cascade those that read them.
func (c *schemaChange) dropViews(list []*catalog.Table, cascade bool) {
	going := map[uint32]bool{}
	for _, d := range list {
		going[d.OID] = true
	}
	c.dependentViews(list, going, "view", cascade)
	for _, d := range c.names.Catalog.SortedViews() {
		if going[d.OID] {
			must(c.dropObject(d.OID))
		}
	}
}

// dependentViews adds the views that read what goes, or refuses.
func (c *schemaChange) dependentViews(list []*catalog.Table, going map[uint32]bool, what string, cascade bool) {
	var more []string
	defer func() {
		e := sqlstate.New("00000", "drop cascades to %d other objects", len(more))
		switch len(more) {
		case 0:
			return
		case 1:
			e.Message = "drop cascades to " + more[0]
		default:
			e.Detail = "drop cascades to " + strings.Join(more, "\ndrop cascades to ")
		}
		c.out = wire.AppendNotice(c.out, e)
	}()
	for again := true; again; {
		again = false
		for _, v := range c.names.Catalog.SortedViews() {
			if going[v.OID] || !slices.ContainsFunc(v.Viewed.Refs, func(oid uint32) bool { return going[oid] }) {
				continue
			}
			if !cascade {
				d := list[slices.IndexFunc(list, func(d *catalog.Table) bool { return slices.Contains(v.Viewed.Refs, d.OID) })]
				fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop %s %s because other objects depend on it", what, d.Name).
					WithDetail("view %s depends on %s %s", v.Name, what, d.Name).
					WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
			}
			more = append(more, "view "+v.Name)
			going[v.OID], again = true, true
		}
	}
}

// dropView is DROP VIEW.
func (c *schemaChange) dropView(s *pg.DropStmt) {
	var list []*catalog.Table
	for _, o := range s.Objects {
		r := rangeVarOf(o)
		d := c.findForDrop(r, s.MissingOk, "view")
		if d == nil {
			continue
		}
		if d.Viewed == nil {
			fault.Raise(sqlstate.New(sqlstate.WrongObjectType, "\"%s\" is not a view", d.Name).WithHint("Use DROP TABLE to remove a table."))
		}
		list = append(list, d)
	}
	c.dropViews(list, s.Behavior == pg.DropBehavior_DROP_CASCADE)
}
