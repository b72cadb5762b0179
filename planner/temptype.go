package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

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
		if k := len(list); k == 1 || k > 1 && strings.HasPrefix(list[k-2], tempSchema) {
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
		if inTemp(names) {
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
			WithHint("use one statement for each"))
	}
	if d := n.GetAlterDomainStmt(); d != nil {
		ch.expressions([]*pg.Node{d.Def})
	}
	if renamed != "" {
		ch.leavesTempType(renamed, tag)
		return true
	}
	ch.onDefault(tag)
	ch.preferDefault = true
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
		if !inTemp(names) {
			return false
		}
		ch.expressions(v.CreateRangeStmt.Params)
		ch.rangeType(v.CreateRangeStmt)
		for _, p := range v.CreateRangeStmt.Params {
			if p.GetDefElem().GetDefname() == "multirange_type_name" {
				fail(sqlstate.Refusal("CLV-0831", "MULTIRANGE_TYPE_NAME of a type in pg_temp is not supported").
					WithHint("leave it out: the multirange gets a name of its own"))
			}
		}
		return ch.tempType(names, "CREATE TYPE")
	case *pg.Node_CreateDomainStmt:
		names := sqltree.Strings(v.CreateDomainStmt.Domainname)
		if !inTemp(names) {
			return false
		}
		ch.expressions(v.CreateDomainStmt.Constraints)
		return ch.tempType(names, "CREATE DOMAIN")
	}
	return false
}

// tempType reports whether a type that is made is in pg_temp.
func (ch *schemaChange) tempType(names []string, tag string) bool {
	if !inTemp(names) {
		return false
	}
	ch.leavesTempType(names[1], tag)
	return true
}

// leavesTempType makes the statement one that gives a type in pg_temp a name.
func (ch *schemaChange) leavesTempType(name, tag string) {
	if sh, ok := ch.snap.Shard(ch.snap.State().DefaultShard); ok && !sh.Can().Types {
		fail(sqlstate.Refusal("CLV-0832", "a type in pg_temp is not supported on a SQLite shard").WithHint("use a PostgreSQL shard"))
	}
	if r := ch.relation(&pg.RangeVar{Relname: name}); r.table != nil || r.view != nil {
		fail(sqlstate.Refusal("CLV-0833", "a type in pg_temp cannot have the name of %s, whose row type it would hide", sqltext.QuoteName(r.schema, r.name)).
			WithHint("give it another name"))
	}
	ch.leavesTemp(tag)
	ch.st.TempType = name
}
