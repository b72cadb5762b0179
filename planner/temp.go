package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// Temporary objects are in a conversation with the default shard that the session
// keeps. The planner sees names that the map does not know, which are the default
// shard's; the session, which knows its temporary tables, refuses what would mean a
// table of the map that one of them hides.

func isTemp(v *pg.RangeVar) bool {
	return v.GetRelpersistence() == "t" || strings.HasPrefix(v.GetSchemaname(), "pg_temp")
}

// renamesTemp notes the new name of what the map does not know, which may be a temporary table or view of the session.
func (ch *schemaChange) renamesTemp(name string) {
	ch.st.Temp = name
	if r := ch.Relation(&pg.RangeVar{Relname: name}); r.Table != nil || r.View != nil {
		ch.st.DDL.Hides = hidesNamed(r)
	}
}

// hidesNamed refuses the name of a table or view of the map for a temporary one.
func hidesNamed(r semantics.Relation) error {
	return sqlstate.Refusal("CLV-0819", "a temporary table cannot have the name of %s, which it would hide", sqltext.QuoteName(r.Schema, r.Name)).
		WithHint("Give it another name.")
}

// pins makes the statement one that makes a temporary table or view.
func (ch *schemaChange) pins(v *pg.RangeVar, tag string) {
	if v.Schemaname != "" && !strings.HasPrefix(v.Schemaname, "pg_temp") {
		return // an error, which PostgreSQL words
	}
	if r := ch.Relation(&pg.RangeVar{Relname: v.Relname}); r.Table != nil || r.View != nil {
		fail(hidesNamed(r))
	}
	st := ch.st
	st.Kind, st.Tag, st.DDL, st.ReturnsRows, st.ReadOnly = plan.DefaultShard, tag, nil, false, false
	st.Pins, st.Temp = true, v.Relname
	ch.PreferDefault = true
}

func (ch *schemaChange) createTemp(c *pg.CreateStmt) {
	if len(tableOptions(c.Options).at) > 0 {
		fail(sqlstate.Refusal("CLV-0816", "a temporary table cannot be sharded").WithHint("Leave the options cleave.* out."))
	}
	for _, n := range append(append([]*pg.Node(nil), c.TableElts...), c.Constraints...) {
		if col := n.GetColumnDef(); col != nil {
			for _, k := range col.Constraints {
				ch.expressions([]*pg.Node{k.GetConstraint().GetRawExpr()})
			}
		}
		ch.expressions([]*pg.Node{n.GetConstraint().GetRawExpr(), n.GetConstraint().GetWhereClause()})
	}
	for _, n := range c.InhRelations {
		if r := ch.Relation(n.GetRangeVar()); r.Table != nil {
			fail(sqlstate.Refusal("CLV-0820", "a temporary table that inherits from %s is not supported", sqltext.QuoteName(r.Schema, r.Name)).
				WithHint("Use LIKE."))
		}
	}
	ch.pins(c.Relation, "CREATE TABLE")
}

// tempAs is CREATE TEMP TABLE AS and SELECT INTO TEMP. Of rows of sharded tables it is
// two things, see createFrom, which the session runs.
func (a *analyzer) tempAs(into *pg.IntoClause) {
	a.Into = nil
	a.OneShard.Final = true // what is refused is refused for good
	if a.Virtual != "" {
		fail(sqlstate.Refusal("CLV-0821", "a temporary table cannot be created from the rows of %s", a.Virtual).
			WithHint("Create the table first, then insert what a query of its own gave."))
	}
	a.change().pins(into.Rel, "SELECT")
	if a.Sharded == "" {
		return
	}
	if !a.Statement.Pins {
		fail(sqlstate.New(sqlstate.InvalidTableDefinition, "cannot create temporary relation in non-temporary schema"))
	}
	a.Statement.Kind, a.Statement.DDL = plan.DDLKind, &plan.DDL{Op: "create table as"}
	a.finish()
}

func (ch *schemaChange) tempView(v *pg.ViewStmt) {
	if v.Query.GetSelectStmt() == nil {
		fail(sqlstate.Refusal("CLV-0822", "this kind of view is not supported"))
	}
	readsNoSettings(&ch.Namespace, v.Query)
	if err := ch.Define(v.Query.GetSelectStmt()); err != nil {
		fail(err)
	}
	if ch.Has.Catalog {
		// The router does not know temporary views, so it could not refuse to write through it.
		fail(sqlstate.Refusal("CLV-0823", "a temporary view of system catalogs is not supported").
			WithHint("Create a view that lasts, or use WITH."))
	}
	if ch.Has.Sharded {
		fail(sqlstate.Refusal("CLV-0824", "a temporary view over sharded tables is not supported").
			WithHint("Create a view that lasts, or use WITH."))
	}
	ch.pins(v.View, "CREATE VIEW")
}

// leavesTemp makes the statement one after which the session has temporary objects that are no tables.
func (ch *schemaChange) leavesTemp(tag string) {
	ch.onDefault(tag)
	ch.st.Pins, ch.PreferDefault = true, true
}

// createTempFunction reads CREATE FUNCTION pg_temp.f. It may do what a DO block on the default shard may, so that
// its calls need not be looked at.
func (ch *schemaChange) createTempFunction(f *pg.CreateFunctionStmt) {
	language, code := "", ""
	for _, o := range f.Options {
		d := o.GetDefElem()
		switch d.GetDefname() {
		case "language":
			language = sqltree.DefText(d.Arg)
			checkLanguage(language)
		case "as":
			if list := d.Arg.GetList().GetItems(); len(list) == 1 {
				code = list[0].GetString_().GetSval()
			}
		case "set", "support":
			fail(sqlstate.Refusal("CLV-0825", "SET and SUPPORT of a function in pg_temp are not supported").
				WithHint("Make the function in another schema."))
		}
	}
	name := sqltree.Strings(f.Funcname)[1]
	if own := builtin.Has(name); own {
		fail(sqlstate.Refusal("CLV-0826", "a function in pg_temp with the name of one of PostgreSQL's own (%s) is not supported", name).
			WithHint("Give it another name."))
	}
	if f.IsProcedure || f.SqlBody != nil || !functions.Readable(language) {
		fail(sqlstate.Refusal("CLV-0827", "of functions in pg_temp only those in SQL and PL/pgSQL are supported, with the body as a text, and no procedures").
			WithHint("Make it in another schema."))
	}
	for _, p := range f.Parameters {
		ch.expressions([]*pg.Node{p.GetFunctionParameter().GetDefexpr()})
	}
	b := functions.NewBody()
	b.Reads = !returnsTrigger(f) // it is called where no statement names it
	read := language == "sql" && b.ReadSQL(code) || language == "plpgsql" && b.ReadPLpgSQL(ch.SQL)
	if !read || !ch.onlyDefault(b, code) {
		fail(sqlstate.Refusal("CLV-0828", "a function in pg_temp with this body is not supported: it could read or write rows that other shards have, or act on its session").
			WithHint("Without EXECUTE, set_config() and the like, and sharded and reference tables, it is taken."))
	}
	ch.leavesTemp("CREATE FUNCTION")
}

// dropTemp is DROP of functions, if all of them are in pg_temp.
func (ch *schemaChange) dropTemp(d *pg.DropStmt, tag string) bool {
	for _, o := range d.Objects {
		if !semantics.InTemp(sqltree.Strings(o.GetObjectWithArgs().GetObjname())) {
			return false
		}
	}
	ch.onDefault(tag)
	ch.PreferDefault = true
	return true
}

// Types of pg_temp, row types of temporary tables among them, come first where a name of a type is looked up, before those of
// pg_catalog even: in the session that has them, on the default shard. The planner does not know which there are. It notes the
// names of types that a statement has (Statement.Types), and the session has such a statement run where its types are, or refuses it.

// AnyType is in Statement.Types if a value may be read as the name of a type.
const AnyType = "*"

// typesOf returns the names of types that a statement has, without a schema or with pg_temp. A type with another schema is the same everywhere.
func typesOf(n *pg.Node) []string {
	var out []string
	note := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	names := func(list []string) {
		if k := len(list); k == 1 || k > 1 && strings.HasPrefix(list[k-2], semantics.TempSchema) {
			note(list[k-1])
		}
	}
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.Node: // of the many rows of an INSERT most are these
			switch v.Node.(type) {
			case *pg.Node_AConst, *pg.Node_ParamRef, *pg.Node_ColumnRef, *pg.Node_String_:
				return false
			}
		case *pg.TypeName:
			list := sqltree.Strings(v.Names)
			if v.PctType && len(list) > 0 { // t.column%TYPE
				list = list[:len(list)-1]
			}
			names(list)
			if len(v.Names) > 0 && sqltree.Strings(v.Names)[len(v.Names)-1] == "regtype" {
				note(AnyType)
			}
		case *pg.FuncCall:
			if name := sqltree.CallName(v); name == "to_regtype" || name == "regtype" {
				note(AnyType)
			}
		case *pg.DoStmt:
			note(AnyType) // its code is a text
		}
		return true
	})
	changed, _ := changedTypes(n)
	for _, list := range changed {
		names(list)
	}
	return out
}

// changedTypes returns the names of the types and domains that a schema change alters or drops, and its command tag; nil if it is about
// something else.
func changedTypes(n *pg.Node) (changed [][]string, tag string) {
	ofType := func(k pg.ObjectType) bool {
		return k == pg.ObjectType_OBJECT_TYPE || k == pg.ObjectType_OBJECT_DOMAIN
	}
	word := func(k pg.ObjectType) string { return strings.TrimPrefix(k.String(), "OBJECT_") }
	list := func(n *pg.Node) []string { return sqltree.Strings(n.GetList().GetItems()) }
	row := func(v *pg.RangeVar) []string {
		if v.GetSchemaname() == "" {
			return []string{v.GetRelname()}
		}
		return []string{v.GetSchemaname(), v.GetRelname()}
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_AlterDomainStmt:
		return [][]string{sqltree.Strings(v.AlterDomainStmt.TypeName)}, "ALTER DOMAIN"
	case *pg.Node_AlterEnumStmt:
		return [][]string{sqltree.Strings(v.AlterEnumStmt.TypeName)}, "ALTER TYPE"
	case *pg.Node_AlterTableStmt:
		if v.AlterTableStmt.Objtype == pg.ObjectType_OBJECT_TYPE {
			return [][]string{row(v.AlterTableStmt.Relation)}, "ALTER TYPE"
		}
	case *pg.Node_RenameStmt:
		switch r := v.RenameStmt; {
		case r.RenameType == pg.ObjectType_OBJECT_ATTRIBUTE:
			return [][]string{row(r.Relation)}, "ALTER TYPE"
		case r.RenameType == pg.ObjectType_OBJECT_DOMCONSTRAINT:
			return [][]string{list(r.Object)}, "ALTER DOMAIN"
		case ofType(r.RenameType):
			return [][]string{list(r.Object)}, "ALTER " + word(r.RenameType)
		}
	case *pg.Node_AlterObjectSchemaStmt:
		if s := v.AlterObjectSchemaStmt; ofType(s.ObjectType) {
			return [][]string{list(s.Object)}, "ALTER " + word(s.ObjectType)
		}
	case *pg.Node_AlterOwnerStmt:
		if o := v.AlterOwnerStmt; ofType(o.ObjectType) {
			return [][]string{list(o.Object)}, "ALTER " + word(o.ObjectType)
		}
	case *pg.Node_DropStmt:
		if d := v.DropStmt; ofType(d.RemoveType) {
			for _, o := range d.Objects {
				changed = append(changed, sqltree.Strings(o.GetTypeName().GetNames()))
			}
			return changed, "DROP " + word(d.RemoveType)
		}
	case *pg.Node_CommentStmt:
		switch c := v.CommentStmt; {
		case ofType(c.Objtype):
			return [][]string{sqltree.Strings(c.Object.GetTypeName().GetNames())}, "COMMENT"
		case c.Objtype == pg.ObjectType_OBJECT_DOMCONSTRAINT && len(c.Object.GetList().GetItems()) > 0:
			return [][]string{sqltree.Strings(c.Object.GetList().Items[0].GetTypeName().GetNames())}, "COMMENT"
		}
	case *pg.Node_GrantStmt:
		if g := v.GrantStmt; ofType(g.Objtype) && g.Targtype == pg.GrantTargetType_ACL_TARGET_OBJECT {
			for _, o := range g.Objects {
				changed = append(changed, list(o))
			}
			return changed, map[bool]string{true: "GRANT", false: "REVOKE"}[g.IsGrant]
		}
	}
	return nil, ""
}

// changesTempTypes reports whether a schema change is about types of pg_temp: then it is a statement of the session's kept
// conversation. Names without schema are noted, for they may be of such types.
func (ch *schemaChange) changesTempTypes(n *pg.Node) bool {
	changed, tag := changedTypes(n)
	temporary := 0
	for _, names := range changed {
		if semantics.InTemp(names) {
			temporary++
		}
		if len(names) == 1 {
			ch.st.DDL.OfTypes = append(ch.st.DDL.OfTypes, names[0])
		}
	}
	if ch.st.DDL.Plain = ch.st.Text; len(ch.st.DDL.OfTypes) < len(changed) {
		ch.st.DDL.OfTypes = nil
	}
	renamed := ""
	if r := n.GetRenameStmt(); r != nil && (r.RenameType == pg.ObjectType_OBJECT_TYPE || r.RenameType == pg.ObjectType_OBJECT_DOMAIN) {
		renamed = r.Newname
	}
	if temporary == 0 {
		if len(changed) > 0 {
			ch.st.TempType = renamed
		}
		return false
	}
	if temporary < len(changed) {
		fail(sqlstate.Refusal("CLV-0830", "types in pg_temp and others in one statement are not supported").
			WithHint("Use one statement for each."))
	}
	if d := n.GetAlterDomainStmt(); d != nil {
		ch.expressions([]*pg.Node{d.Def})
	}
	if renamed != "" {
		ch.leavesTempType(renamed, tag)
		return true
	}
	ch.onDefault(tag)
	ch.PreferDefault = true
	return true
}

// createsTempType reports whether a statement makes a type in pg_temp.
func (ch *schemaChange) createsTempType(n *pg.Node) bool {
	switch v := n.GetNode().(type) {
	case *pg.Node_CreateEnumStmt:
		return ch.tempType(sqltree.Strings(v.CreateEnumStmt.TypeName), "CREATE TYPE")
	case *pg.Node_CompositeTypeStmt:
		r := v.CompositeTypeStmt.Typevar
		if !ch.tempType([]string{r.GetSchemaname(), r.GetRelname()}, "CREATE TYPE") {
			return false
		}
		ch.st.Temp = r.Relname // it is a relation as well
		return true
	case *pg.Node_CreateRangeStmt:
		names := sqltree.Strings(v.CreateRangeStmt.TypeName)
		if !semantics.InTemp(names) {
			return false
		}
		ch.expressions(v.CreateRangeStmt.Params)
		rangeType(&ch.Namespace, v.CreateRangeStmt)
		for _, p := range v.CreateRangeStmt.Params {
			if p.GetDefElem().GetDefname() == "multirange_type_name" {
				fail(sqlstate.Refusal("CLV-0831", "MULTIRANGE_TYPE_NAME of a type in pg_temp is not supported").
					WithHint("Leave it out: the multirange gets a name of its own."))
			}
		}
		return ch.tempType(names, "CREATE TYPE")
	case *pg.Node_CreateDomainStmt:
		names := sqltree.Strings(v.CreateDomainStmt.Domainname)
		if !semantics.InTemp(names) {
			return false
		}
		ch.expressions(v.CreateDomainStmt.Constraints)
		return ch.tempType(names, "CREATE DOMAIN")
	}
	return false
}

// tempType reports whether a type that is made is in pg_temp.
func (ch *schemaChange) tempType(names []string, tag string) bool {
	if !semantics.InTemp(names) {
		return false
	}
	ch.leavesTempType(names[1], tag)
	return true
}

// leavesTempType makes the statement one that gives a type in pg_temp a name.
func (ch *schemaChange) leavesTempType(name, tag string) {
	if sh, ok := ch.Snapshot.Shard(ch.Snapshot.State().DefaultShard); ok && !sh.Can().Types {
		fail(sqlstate.Refusal("CLV-0832", "a type in pg_temp is not supported on a SQLite shard").WithHint("Use a PostgreSQL shard."))
	}
	if r := ch.Relation(&pg.RangeVar{Relname: name}); r.Table != nil || r.View != nil {
		fail(sqlstate.Refusal("CLV-0833", "a type in pg_temp cannot have the name of %s, whose row type it would hide", sqltext.QuoteName(r.Schema, r.Name)).
			WithHint("Give it another name."))
	}
	ch.leavesTemp(tag)
	ch.st.TempType = name
}
