package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// schemaChange reads one statement that changes the schema, or an object of it.
type schemaChange struct {
	*semantics.Typer
	*sourcetext.Text
	*semantics.Touched
	*semantics.Effects
	definer
	sequenceChange

	p  *Planner
	st *plan.Statement
}

// definer is what a schema change needs of the rest of the analysis: it may have expressions and queries.
type definer interface {
	// Walk reads an expression.
	Walk(n *pg.Node, w *semantics.Walker)
	// Define counts what the query of a view reads.
	Define(q *pg.SelectStmt) error
	createTableAs(c *pg.CreateTableAsStmt)
	// freeze puts marks in the place of times.
	freeze(d *declaration)
	// written prints a statement.
	written(n *pg.Node) string
}

func (a *analyzer) change() *schemaChange {
	return &schemaChange{
		Typer:          &a.Typer,
		Text:           &a.Text,
		Touched:        &a.Touched,
		Effects:        &a.Effects,
		definer:        a,
		sequenceChange: sequenceChange{Typer: &a.Typer, Text: &a.Text, st: a.Statement},
		p:              a.p,
		st:             a.Statement,
	}
}

// ddl analyses schema changes and refuses everything that is left.
func (ch *schemaChange) ddl(n *pg.Node) {
	st := ch.st
	st.DDL = &plan.DDL{}
	ch.Changes = true
	namesNothingInternal(n)
	if ch.createsTempType(n) || ch.changesTempTypes(n) {
		return
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_CreateStmt:
		ch.createTable(v.CreateStmt)
	case *pg.Node_CreateTableAsStmt:
		ch.createTableAs(v.CreateTableAsStmt)
	case *pg.Node_AlterTableStmt:
		ch.alterTable(v.AlterTableStmt)
	case *pg.Node_RenameStmt:
		ch.rename(v.RenameStmt)
	case *pg.Node_AlterObjectSchemaStmt:
		ch.setSchema(v.AlterObjectSchemaStmt)
	case *pg.Node_DropStmt:
		ch.drop(v.DropStmt)
	case *pg.Node_IndexStmt:
		ch.createIndex(v.IndexStmt)
	case *pg.Node_TruncateStmt:
		ch.truncate(v.TruncateStmt)
	case *pg.Node_CreateSchemaStmt:
		c := v.CreateSchemaStmt
		if len(c.SchemaElts) > 0 {
			fail(sqlstate.Refusal("CLV-0945", "CREATE SCHEMA with objects in it is not supported").
				WithHint("Create the schema first, then each object in a statement of its own."))
		}
		if c.Schemaname == "" {
			fail(sqlstate.Refusal("CLV-0946", "CREATE SCHEMA without a name is not supported").WithHint("Name the schema."))
		}
		reservedSchema(c.Schemaname)
		ownSchema(c.Schemaname)
		ch.everywhere("create schema", "CREATE SCHEMA")
	case *pg.Node_CreateEnumStmt:
		inSchema(sqltree.Strings(v.CreateEnumStmt.TypeName))
		ch.everywhere("create type", "CREATE TYPE")
	case *pg.Node_CompositeTypeStmt:
		ownSchema(v.CompositeTypeStmt.Typevar.GetSchemaname())
		ch.everywhere("create type", "CREATE TYPE")
	case *pg.Node_CreateRangeStmt:
		ch.expressions(v.CreateRangeStmt.Params)
		rangeType(&ch.Namespace, v.CreateRangeStmt)
		inSchema(sqltree.Strings(v.CreateRangeStmt.TypeName))
		ch.everywhere("create type", "CREATE TYPE")
	case *pg.Node_CreateDomainStmt:
		ch.expressions(v.CreateDomainStmt.Constraints)
		inSchema(sqltree.Strings(v.CreateDomainStmt.Domainname))
		ch.everywhere("create domain", "CREATE DOMAIN")
	case *pg.Node_AlterDomainStmt:
		inSchema(sqltree.Strings(v.AlterDomainStmt.TypeName))
		ch.expressions([]*pg.Node{v.AlterDomainStmt.Def})
		ch.everywhere("alter domain", "ALTER DOMAIN")
		if v.AlterDomainStmt.Subtype == "T" {
			ch.domainDefault()
		}
	case *pg.Node_AlterEnumStmt:
		inSchema(sqltree.Strings(v.AlterEnumStmt.TypeName))
		ch.everywhere("alter type", "ALTER TYPE")
	case *pg.Node_CreateSeqStmt:
		ch.createSequence(v.CreateSeqStmt)
	case *pg.Node_AlterSeqStmt:
		if ch.alterSequence(v.AlterSeqStmt) {
			break
		}
		checkSequenceOptions(v.AlterSeqStmt.Options)
		ownSchema(v.AlterSeqStmt.Sequence.Schemaname)
		ch.everywhere("alter sequence", "ALTER SEQUENCE")
		if !v.AlterSeqStmt.MissingOk {
			ch.ifExistsElsewhere("sequence")
		}
	case *pg.Node_CommentStmt:
		ch.comment(v.CommentStmt)
	default:
		if !ch.object(n) {
			ch.refuseStatement(n)
		}
	}
	switch n.GetNode().(type) {
	case *pg.Node_CreateDomainStmt, *pg.Node_AlterDomainStmt, *pg.Node_IndexStmt, *pg.Node_CreateTrigStmt:
		ch.freeze(nil)
	}
}

// domainDefault notes the tables whose columns may get another default: those with user-defined types.
func (ch *schemaChange) domainDefault() {
	tables := ch.Snapshot.State().Tables
	for i := range tables {
		if slices.ContainsFunc(tables[i].Columns, func(c shardmap.Column) bool { return c.OID >= pgoid.FirstNormal }) && tables[i].Kind != shardmap.Whole {
			ch.st.DDL.Altered = append(ch.st.DDL.Altered, plan.TableName{Schema: tables[i].Schema, Name: tables[i].Name})
		}
	}
}

func (ch *schemaChange) everywhere(op, tag string) {
	ch.st.Kind, ch.st.Tag = plan.DDLKind, tag
	ch.st.DDL.Op, ch.st.DDL.AllShards = op, true
}

// ownSchema refuses changes inside schemas that belong to the router or the server.
func ownSchema(name string) {
	switch {
	case strings.HasPrefix(name, "pg_temp"):
		fail(sqlstate.Refusal("CLV-0817", "this kind of object in schema pg_temp, or the schema by another name, is not supported").
			WithHint("Make the object in another schema; pg_temp is the name of the session's own."))
	case name == semantics.InternalSchema:
		fail(semantics.InternalSchemaError())
	case name == semantics.VirtualSchema:
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "schema %q belongs to the router", name).
			WithHint("create your objects in another schema"))
	case name == "pg_catalog" || name == "information_schema" || strings.HasPrefix(name, "pg_"):
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied: schema %q is a system schema", name))
	}
}

// reservedSchema refuses PostgreSQL's names for a schema that is made.
func reservedSchema(name string) {
	if strings.HasPrefix(name, "pg_") {
		fail(sqlstate.New("42939", "unacceptable schema name %q", name).WithDetail("The prefix \"pg_\" is reserved for system schemas."))
	}
}

func inSchema(names []string) {
	if len(names) > 1 {
		ownSchema(names[len(names)-2])
	}
}

// createdName is the schema in which an unqualified new object comes to be.
func createdName(ns *semantics.Namespace, v *pg.RangeVar) plan.TableName {
	if v.Relpersistence == "t" {
		refuseTemporary()
	}
	t := plan.TableName{Schema: v.Schemaname, Name: v.Relname}
	if t.Schema == "" {
		for _, s := range ns.Path {
			if s != "pg_catalog" {
				t.Schema = s
				break
			}
		}
		if t.Schema == "" {
			fail(sqlstate.New(sqlstate.InvalidSchemaName, "no schema has been selected to create in"))
		}
	}
	if strings.HasPrefix(t.Schema, "pg_temp") {
		refuseTemporary()
	}
	ownSchema(t.Schema)
	return t
}

func refuseTemporary() {
	fail(sqlstate.Refusal("CLV-0818", "temporary objects other than tables and views are not supported: they live in one session of one shard").
		WithHint("Make one that lasts, and drop it afterwards."))
}

// expressions checks the functions in the expressions of a definition.
func (ch *schemaChange) expressions(list []*pg.Node) {
	var subs []*semantics.Query
	w := &semantics.Walker{Scope: &semantics.Scope{}, Subqueries: &subs}
	for _, n := range list {
		ch.Walk(n, w)
	}
	if len(subs) > 0 && (ch.Sharded != "" || ch.Whole != "" || ch.Unknown != "") {
		fail(sqlstate.Refusal("CLV-0947", "a subquery in a definition is not supported"))
	}
}

func checkSequenceOptions(list []*pg.Node) {
	for _, n := range list {
		d := n.GetDefElem()
		if names := sqltree.Strings(d.GetArg().GetList().GetItems()); d.GetDefname() == "owned_by" && !(len(names) == 1 && names[0] == "none") {
			fail(sqlstate.Refusal("CLV-0507", "OWNED BY ties a sequence to a table of one shard").WithHint("Leave OWNED BY out."))
		}
	}
}

// targets resolves the tables of a DDL statement, which must all be of one kind.
func (ch *schemaChange) targets(list []*pg.RangeVar) (known []*shardmap.Table, names []plan.TableName) {
	for _, v := range list {
		if v.Schemaname != "" {
			ownSchema(v.Schemaname)
		}
		r := ch.Relation(v)
		if r.Catalog || r.Virtual {
			ownSchema(r.Schema)
		}
		ch.Touch(r, v)
		if r.Table == nil && !r.Catalog && !r.Virtual && ch.st.DDL != nil {
			ch.st.DDL.Unknown = append(ch.st.DDL.Unknown, r.Name)
		}
		if r.Table != nil {
			known = append(known, r.Table)
			names = append(names, plan.TableName{Schema: r.Table.Schema, Name: r.Table.Name})
		}
	}
	spread, single := ch.Sharded, ch.Whole
	if spread == "" {
		spread = ch.Reference
	}
	if single == "" {
		single = ch.Unknown
	}
	if spread != "" && single != "" && !ch.Mixed {
		fail(sqlstate.Refusal("CLV-0948", "table %s is on every shard and %s on the default shard only", spread, single).
			WithHint("Use one statement for each."))
	}
	return known, names
}

// others makes the text for shards other than the default shard of a statement that names tables
// of every shard beside others: all is a list of n, the statement, with what each of it stands for.
func (ch *schemaChange) others(n *pg.Node, all *[]*pg.Node, named func(*pg.Node) *pg.RangeVar) {
	kept := slices.DeleteFunc(slices.Clone(*all), func(o *pg.Node) bool {
		r := ch.Relation(named(o))
		return (r.Table == nil || r.Table.Kind == shardmap.Whole) && (r.View == nil || !everywhereView(ch.Touched, r.View))
	})
	if len(kept) < len(*all) && ch.st.DDL.AllShards {
		*all = kept
		ch.st.DDL.Elsewhere, ch.st.DDL.Mixed = ch.written(n), true
	}
}

// altered is the table of an ALTER, nil if the map does not know the name: what there is of it then, if anything, is
// the default shard's, but for indexes of tables on every shard. tag is the command's for that.
func (ch *schemaChange) altered(v *pg.RangeVar, tag string) (table *shardmap.Table, names []plan.TableName) {
	known, names := ch.targets([]*pg.RangeVar{v})
	ch.st.Kind, ch.st.Tag = plan.DDLKind, tag
	ch.st.DDL.Op = "alter table"
	if len(known) == 0 {
		ch.st.DDL.Loose, ch.st.DDL.Objects = &plan.TableName{Schema: v.Schemaname, Name: v.Relname}, true
		return nil, nil
	}
	return known[0], names
}

// alterOther is ALTER of what only the default shard has: materialized views, foreign tables, sequences that are not the
// cluster's. Of a table or view the shard says that it is none of these.
func (ch *schemaChange) alterOther(v *pg.RangeVar, kind pg.ObjectType) {
	tag := map[pg.ObjectType]string{pg.ObjectType_OBJECT_MATVIEW: "ALTER MATERIALIZED VIEW", pg.ObjectType_OBJECT_FOREIGN_TABLE: "ALTER FOREIGN TABLE",
		pg.ObjectType_OBJECT_SEQUENCE: "ALTER SEQUENCE"}[kind]
	if tag == "" {
		fail(sqlstate.Refusal("CLV-0949", "ALTER of this kind of object is not supported yet"))
	}
	ownSchema(v.Schemaname)
	ch.st.Kind, ch.st.Tag = plan.DDLKind, tag
	ch.st.DDL.Op, ch.st.DDL.Objects, ch.st.DDL.Unknown = strings.ToLower(tag), true, []string{v.Relname}
	ch.st.DDL.Loose = &plan.TableName{Schema: v.Schemaname, Name: v.Relname}
}

// spreadTables reports whether the statement's tables are on every shard.
func spreadTables(to *semantics.Touched) bool { return to.Sharded != "" || to.Reference != "" }

func (ch *schemaChange) drop(d *pg.DropStmt) {
	st := ch.st
	switch d.RemoveType {
	case pg.ObjectType_OBJECT_POLICY:
		refuseRowSecurity()
	case pg.ObjectType_OBJECT_TABLE:
		var list []*pg.RangeVar
		for _, o := range d.Objects {
			list = append(list, semantics.RangeVar(sqltree.Strings(o.GetList().GetItems())))
		}
		ch.Mixed = true
		_, names := ch.targets(list)
		st.Kind, st.Tag = plan.DDLKind, "DROP TABLE"
		st.DDL.Op, st.DDL.Dropped, st.DDL.AllShards = "drop table", names, spreadTables(ch.Touched)
		ch.others(&pg.Node{Node: &pg.Node_DropStmt{DropStmt: d}}, &d.Objects, func(o *pg.Node) *pg.RangeVar { return semantics.RangeVar(sqltree.Strings(o.GetList().GetItems())) })
	case pg.ObjectType_OBJECT_INDEX:
		for _, o := range d.Objects {
			names := sqltree.Strings(o.GetList().GetItems())
			inSchema(names)
			st.DDL.Unknown = append(st.DDL.Unknown, names[len(names)-1])
		}
		ch.everywhere("drop index", "DROP INDEX")
		st.DDL.Concurrent = d.Concurrent
		if !d.MissingOk {
			ch.ifExistsElsewhere("index")
		}
	case pg.ObjectType_OBJECT_SEQUENCE:
		if ch.dropSequences(d) {
			return
		}
		for _, o := range d.Objects {
			inSchema(sqltree.Strings(o.GetList().GetItems()))
		}
		if d.Behavior == pg.DropBehavior_DROP_CASCADE {
			fail(sqlstate.Refusal("CLV-0950", "DROP SEQUENCE ... CASCADE changes the defaults of tables").
				WithHint("Drop the defaults first."))
		}
		ch.everywhere("drop sequence", "DROP SEQUENCE")
		if !d.MissingOk {
			ch.ifExistsElsewhere("sequence")
		}
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN:
		for _, o := range d.Objects {
			inSchema(sqltree.Strings(o.GetTypeName().GetNames()))
		}
		st.DDL.DropsParts = d.Behavior == pg.DropBehavior_DROP_CASCADE
		st.DDL.Objects = st.DDL.DropsParts
		if d.RemoveType == pg.ObjectType_OBJECT_TYPE {
			ch.everywhere("drop type", "DROP TYPE")
		} else {
			ch.everywhere("drop domain", "DROP DOMAIN")
		}
	case pg.ObjectType_OBJECT_SCHEMA:
		for _, o := range d.Objects {
			name := o.GetString_().GetSval()
			ownSchema(name)
			ch.schemaSequences(name, d.Behavior == pg.DropBehavior_DROP_CASCADE)
			if d.Behavior == pg.DropBehavior_DROP_CASCADE {
				st.DDL.DropsParts = true // of other tables, which use types and functions of the schema
				st.DDL.DropsSchema = append(st.DDL.DropsSchema, name)
				tables := ch.Snapshot.State().Tables
				for i := range tables {
					if tables[i].Schema == name {
						st.DDL.Dropped = append(st.DDL.Dropped, plan.TableName{Schema: name, Name: tables[i].Name})
						semantics.AddTable(&st.Tables, &tables[i])
					}
				}
			}
		}
		ch.everywhere("drop schema", "DROP SCHEMA")
		st.DDL.Objects = true
	default:
		if !ch.dropObject(d) {
			fail(sqlstate.Refusal("CLV-0951", "DROP of this kind of object is not supported yet").
				WithHint("Run it on each shard directly."))
		}
	}
}

// ifExistsElsewhere makes the text for shards that need not have the object.
func (ch *schemaChange) ifExistsElsewhere(after ...string) {
	ts, _ := ch.Top()
	for i, t := range ts {
		for _, word := range after {
			if t.Is(ch.SQL, word) {
				at := t.End
				if i+1 < len(ts) && ts[i+1].Is(ch.SQL, "concurrently") {
					at = ts[i+1].End
				}
				ch.st.DDL.Elsewhere = ch.st.Text[:at] + " IF EXISTS" + ch.st.Text[at:]
				return
			}
		}
	}
}

func (ch *schemaChange) truncate(t *pg.TruncateStmt) {
	st := ch.st
	var list []*pg.RangeVar
	for _, n := range t.Relations {
		if viewOf(&ch.Namespace, n.GetRangeVar()) != nil {
			fail(sqlstate.New(sqlstate.WrongObjectType, "%q is not a table", n.GetRangeVar().Relname))
		}
		list = append(list, n.GetRangeVar())
	}
	ch.Mixed = true
	known, names := ch.targets(list)
	for _, k := range known {
		semantics.AddTable(&st.Writes, k)
	}
	if t.Behavior == pg.DropBehavior_DROP_CASCADE {
		st.DDL.Cascades, st.DDL.Restarts = names, t.RestartSeqs
	}
	if spreadTables(ch.Touched) {
		st.DDL.Truncated = names
	}
	st.Kind, st.Tag = plan.DDLKind, "TRUNCATE TABLE"
	st.DDL.Op, st.DDL.AllShards = "truncate", spreadTables(ch.Touched)
	if t.RestartSeqs {
		st.DDL.Sequences = Restarts(ch.Snapshot, names)
	}
	ch.others(&pg.Node{Node: &pg.Node_TruncateStmt{TruncateStmt: t}}, &t.Relations, (*pg.Node).GetRangeVar)
}

func (ch *schemaChange) rename(r *pg.RenameStmt) {
	st := ch.st
	if ch.renameObject(r) {
		return
	}
	switch r.RenameType {
	case pg.ObjectType_OBJECT_POLICY:
		refuseRowSecurity()
	case pg.ObjectType_OBJECT_TABLE, pg.ObjectType_OBJECT_COLUMN, pg.ObjectType_OBJECT_TABCONSTRAINT:
		if r.RenameType == pg.ObjectType_OBJECT_TABLE && ch.Relation(r.Relation).Table == nil && ch.renameSequence(r.Relation, "", r.Newname) {
			st.Tag = "ALTER TABLE"
			return
		}
		if r.RenameType == pg.ObjectType_OBJECT_COLUMN && r.RelationType != pg.ObjectType_OBJECT_TABLE {
			ch.alterOther(r.Relation, r.RelationType)
			return
		}
		table, names := ch.altered(r.Relation, "ALTER TABLE")
		if table == nil {
			if r.RenameType == pg.ObjectType_OBJECT_TABLE {
				ch.renamesTemp(r.Newname)
			}
			return
		}
		st.DDL.AllShards, st.DDL.Altered = spreadTables(ch.Touched), names
		switch r.RenameType {
		case pg.ObjectType_OBJECT_TABLE:
			old := names[0]
			st.DDL.Renamed = &old
			st.DDL.Altered = []plan.TableName{{Schema: old.Schema, Name: r.Newname}}
		case pg.ObjectType_OBJECT_COLUMN:
			st.DDL.RenamedColumn = [2]string{r.Subname, r.Newname}
		}
	case pg.ObjectType_OBJECT_MATVIEW, pg.ObjectType_OBJECT_FOREIGN_TABLE:
		ch.alterOther(r.Relation, r.RenameType)
	case pg.ObjectType_OBJECT_INDEX:
		ownSchema(r.Relation.GetSchemaname())
		if ch.renamesOther(r) {
			st.Tag = "ALTER INDEX"
			return
		}
		ch.everywhere("alter index", "ALTER INDEX")
		if !r.MissingOk {
			ch.ifExistsElsewhere("index")
		}
	case pg.ObjectType_OBJECT_SEQUENCE:
		if ch.renameSequence(r.Relation, "", r.Newname) {
			return
		}
		ownSchema(r.Relation.GetSchemaname())
		ch.everywhere("alter sequence", "ALTER SEQUENCE")
		if !r.MissingOk {
			ch.ifExistsElsewhere("sequence")
		}
	case pg.ObjectType_OBJECT_SCHEMA:
		ownSchema(r.Subname)
		reservedSchema(r.Newname)
		ownSchema(r.Newname)
		for i := range ch.Snapshot.State().Sequences {
			if q := &ch.Snapshot.State().Sequences[i]; q.Schema == r.Subname {
				fail(sqlstate.Refusal("CLV-0508", "the schema holds the sequence %s, which defaults of columns may name", q.QualifiedName()).
					WithHint("Move its tables to another schema, or drop the sequence."))
			}
		}
		ch.everywhere("alter schema", "ALTER SCHEMA")
		st.DDL.RenamedSchema, st.DDL.Objects = [2]string{r.Subname, r.Newname}, true
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN, pg.ObjectType_OBJECT_DOMCONSTRAINT:
		ch.everywhere("alter type", "ALTER TYPE")
		st.DDL.Objects = true
		if r.RenameType != pg.ObjectType_OBJECT_TYPE {
			st.DDL.Op, st.Tag = "alter domain", "ALTER DOMAIN"
		}
	default:
		fail(sqlstate.Refusal("CLV-0952", "renaming this kind of object is not supported yet").
			WithHint("Run it on each shard directly."))
	}
}

// renamesOther reports whether ALTER INDEX ... RENAME names a table, a view or a sequence, which PostgreSQL renames then.
func (ch *schemaChange) renamesOther(r *pg.RenameStmt) bool {
	if rel := ch.Relation(r.Relation); rel.Table == nil && rel.View == nil && ch.ClusterSequence(r.Relation) == nil {
		return false
	}
	table := sqltree.Clone(r)
	table.RenameType = pg.ObjectType_OBJECT_TABLE
	ch.rename(table)
	return true
}

func (ch *schemaChange) setSchema(s *pg.AlterObjectSchemaStmt) {
	ownSchema(s.Newschema)
	if ch.moveObject(s) {
		return
	}
	switch s.ObjectType {
	case pg.ObjectType_OBJECT_TABLE:
		if ch.Relation(s.Relation).Table == nil && ch.renameSequence(s.Relation, s.Newschema, "") {
			ch.st.Tag = "ALTER TABLE"
			return
		}
		table, names := ch.altered(s.Relation, "ALTER TABLE")
		if table == nil {
			return
		}
		ch.st.DDL.AllShards = spreadTables(ch.Touched)
		old := names[0]
		ch.st.DDL.Renamed = &old
		ch.st.DDL.Altered = []plan.TableName{{Schema: s.Newschema, Name: old.Name}}
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN:
		ch.everywhere("alter type", "ALTER TYPE")
	case pg.ObjectType_OBJECT_SEQUENCE:
		if ch.renameSequence(s.Relation, s.Newschema, "") {
			return
		}
		ch.everywhere("alter sequence", "ALTER SEQUENCE")
		if !s.MissingOk {
			ch.ifExistsElsewhere("sequence")
		}
	case pg.ObjectType_OBJECT_MATVIEW, pg.ObjectType_OBJECT_FOREIGN_TABLE:
		ch.alterOther(s.Relation, s.ObjectType)
	default:
		fail(sqlstate.Refusal("CLV-0953", "SET SCHEMA of this kind of object is not supported yet").
			WithHint("Run it on each shard directly."))
	}
}

func (ch *schemaChange) comment(c *pg.CommentStmt) {
	ch.st.Kind, ch.st.Tag = plan.DDLKind, "COMMENT"
	ch.st.DDL.Op = "comment"
	names := sqltree.Strings(c.Object.GetList().GetItems())
	switch c.Objtype {
	case pg.ObjectType_OBJECT_TABLE:
		ch.targets([]*pg.RangeVar{semantics.RangeVar(names)})
		ch.st.DDL.AllShards = spreadTables(ch.Touched)
	case pg.ObjectType_OBJECT_COLUMN, pg.ObjectType_OBJECT_TABCONSTRAINT:
		if len(names) < 2 {
			return
		}
		if v := viewOf(&ch.Namespace, semantics.RangeVar(names[:len(names)-1])); v != nil {
			ch.st.DDL.AllShards = everywhereView(ch.Touched, v)
			break
		}
		ch.targets([]*pg.RangeVar{semantics.RangeVar(names[:len(names)-1])})
		ch.st.DDL.AllShards = spreadTables(ch.Touched)
	case pg.ObjectType_OBJECT_SCHEMA:
		ownSchema(c.Object.GetString_().GetSval())
		ch.st.DDL.AllShards = true
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN:
		inSchema(sqltree.Strings(c.Object.GetTypeName().GetNames()))
		ch.st.DDL.AllShards = true
	case pg.ObjectType_OBJECT_LARGEOBJECT:
		ch.onDefault("COMMENT") // it is no schema: a large object comes and goes as rows do
	default:
		if !ch.commentObject(c, names) {
			fail(sqlstate.Refusal("CLV-0954", "COMMENT ON this kind of object is not supported yet").
				WithHint("Run it on each shard directly."))
		}
	}
}

// refuseStatement names what is not supported, with what to do instead.
func (ch *schemaChange) refuseStatement(n *pg.Node) {
	direct := "Run it on each shard directly."
	switch n.GetNode().(type) {
	case *pg.Node_RuleStmt:
		fail(sqlstate.Refusal("CLV-0955", "CREATE RULE is not supported yet").WithHint("A rule could write to rows of other shards."))
	case *pg.Node_AlterOwnerStmt:
		fail(sqlstate.Refusal("CLV-0956", "OWNER TO of this kind of object is not supported yet").WithHint("%s", direct))
	case *pg.Node_CreatedbStmt, *pg.Node_DropdbStmt, *pg.Node_AlterDatabaseStmt, *pg.Node_AlterDatabaseSetStmt:
		fail(sqlstate.Refusal("CLV-0957", "creating or changing databases is not supported yet").
			WithHint("The cluster is one database; cleave shard add brings another shard."))
	case *pg.Node_DoStmt:
		ch.do(n.GetDoStmt())
		return
	case *pg.Node_CallStmt:
		if ch.callProcedure(n.GetCallStmt()) {
			return
		}
		fail(sqlstate.Refusal("CLV-0958", "CALL of a procedure that is not known to read and write no table is not supported yet").
			WithHint("Run its statements one by one."))
	case *pg.Node_CreatePolicyStmt, *pg.Node_AlterPolicyStmt:
		refuseRowSecurity()
	case *pg.Node_ClusterStmt:
		fail(sqlstate.Refusal("CLV-0959", "CLUSTER is not supported yet").WithHint("%s", direct))
	case *pg.Node_DefineStmt, *pg.Node_CreateCastStmt, *pg.Node_CreateOpClassStmt, *pg.Node_CreateOpFamilyStmt, *pg.Node_AlterOpFamilyStmt, *pg.Node_AlterOperatorStmt, *pg.Node_CreateTransformStmt, *pg.Node_CreateAmStmt:
		// Made on the shards, it would change what a statement means behind the router's back.
		fail(sqlstate.Refusal("CLV-0960", "making operators, aggregates, casts and the like is not supported yet").
			WithHint("Write a function, and call it by its name."))
	case *pg.Node_CheckPointStmt, *pg.Node_LoadStmt, *pg.Node_AlterSystemStmt:
		fail(sqlstate.Refusal("CLV-0961", "changing a server is not supported yet").WithHint("%s", direct))
	case *pg.Node_CreatePublicationStmt, *pg.Node_CreateSubscriptionStmt, *pg.Node_AlterPublicationStmt, *pg.Node_AlterSubscriptionStmt:
		fail(sqlstate.Refusal("CLV-0962", "publications and subscriptions are not supported yet").WithHint("%s", direct))
	}
	fail(sqlstate.Refusal("CLV-0963", "this statement is not supported yet").WithHint("%s", direct))
}

// namesNothingInternal refuses a schema change that names the router's schema on a shard, in whatever place of whatever
// statement of the grammar. Literals are no names. Calls are left to function, since dumps of a shard have some in defaults.
func namesNothingInternal(n *pg.Node) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.A_Const:
			return false
		case *pg.FuncCall:
			for _, arg := range v.Args {
				namesNothingInternal(arg)
			}
			return false
		}
		prototree.EachField(m.ProtoReflect(), func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.Kind() == protoreflect.StringKind && fd.Name() != "comment" && v.String() == semantics.InternalSchema {
				fail(semantics.InternalSchemaError())
			}
			return true
		})
		return true
	})
}

func (ch *schemaChange) vacuum(v *pg.VacuumStmt) {
	ch.st.Tag = "ANALYZE"
	if v.IsVacuumcmd {
		ch.st.Tag = "VACUUM"
	}
	for _, n := range v.Rels {
		if rel := n.GetVacuumRelation().GetRelation(); rel != nil {
			ch.Touch(ch.Relation(rel), rel)
		}
	}
	switch {
	case (ch.Whole != "" || ch.Catalog != "" || ch.Unknown != "") && !spreadTables(ch.Touched):
		ch.st.Kind = plan.DefaultShard
	default:
		// No table named is every table of every shard.
		ch.st.DDL = &plan.DDL{}
		tag := ch.st.Tag
		ch.everywhere(strings.ToLower(tag), tag)
		// ANALYZE of everything reads what the databases of a server share: in two
		// transactions at once it would wait for itself.
		ch.st.DDL.Passing, ch.st.DDL.Concurrent = true, v.IsVacuumcmd || len(v.Rels) == 0
		ch.others(&pg.Node{Node: &pg.Node_VacuumStmt{VacuumStmt: v}}, &v.Rels, func(n *pg.Node) *pg.RangeVar { return n.GetVacuumRelation().GetRelation() })
	}
}
