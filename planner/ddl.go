package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// ddl analyses schema changes and refuses everything that is left.
func (a *analyzer) ddl(n *pg.Node) {
	st := a.st
	st.DDL = &DDL{}
	a.changes = true
	namesNothingInternal(n)
	if a.createsTempType(n) || a.changesTempTypes(n) {
		return
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_CreateStmt:
		a.createTable(v.CreateStmt)
	case *pg.Node_CreateTableAsStmt:
		a.createTableAs(v.CreateTableAsStmt)
	case *pg.Node_AlterTableStmt:
		a.alterTable(v.AlterTableStmt)
	case *pg.Node_RenameStmt:
		a.rename(v.RenameStmt)
	case *pg.Node_AlterObjectSchemaStmt:
		a.setSchema(v.AlterObjectSchemaStmt)
	case *pg.Node_DropStmt:
		a.drop(v.DropStmt)
	case *pg.Node_IndexStmt:
		a.createIndex(v.IndexStmt)
	case *pg.Node_TruncateStmt:
		a.truncate(v.TruncateStmt)
	case *pg.Node_CreateSchemaStmt:
		c := v.CreateSchemaStmt
		if len(c.SchemaElts) > 0 {
			refuse("CREATE SCHEMA with objects in it is not supported", "create the schema first, then each object in a statement of its own")
		}
		if c.Schemaname == "" {
			refuse("CREATE SCHEMA without a name is not supported", "name the schema")
		}
		reservedSchema(c.Schemaname)
		ownSchema(c.Schemaname)
		a.everywhere("create schema", "CREATE SCHEMA")
	case *pg.Node_CreateEnumStmt:
		inSchema(strs(v.CreateEnumStmt.TypeName))
		a.everywhere("create type", "CREATE TYPE")
	case *pg.Node_CompositeTypeStmt:
		ownSchema(v.CompositeTypeStmt.Typevar.GetSchemaname())
		a.everywhere("create type", "CREATE TYPE")
	case *pg.Node_CreateRangeStmt:
		a.expressions(v.CreateRangeStmt.Params)
		a.rangeType(v.CreateRangeStmt)
		inSchema(strs(v.CreateRangeStmt.TypeName))
		a.everywhere("create type", "CREATE TYPE")
	case *pg.Node_CreateDomainStmt:
		a.expressions(v.CreateDomainStmt.Constraints)
		inSchema(strs(v.CreateDomainStmt.Domainname))
		a.everywhere("create domain", "CREATE DOMAIN")
	case *pg.Node_AlterDomainStmt:
		inSchema(strs(v.AlterDomainStmt.TypeName))
		a.expressions([]*pg.Node{v.AlterDomainStmt.Def})
		a.everywhere("alter domain", "ALTER DOMAIN")
		if v.AlterDomainStmt.Subtype == "T" {
			a.domainDefault()
		}
	case *pg.Node_AlterEnumStmt:
		inSchema(strs(v.AlterEnumStmt.TypeName))
		a.everywhere("alter type", "ALTER TYPE")
	case *pg.Node_CreateSeqStmt:
		a.createSequence(v.CreateSeqStmt)
	case *pg.Node_AlterSeqStmt:
		if a.alterSequence(v.AlterSeqStmt) {
			break
		}
		checkSequenceOptions(v.AlterSeqStmt.Options)
		ownSchema(v.AlterSeqStmt.Sequence.Schemaname)
		a.everywhere("alter sequence", "ALTER SEQUENCE")
		if !v.AlterSeqStmt.MissingOk {
			a.ifExistsElsewhere("sequence")
		}
	case *pg.Node_CommentStmt:
		a.comment(v.CommentStmt)
	default:
		if !a.object(n) {
			a.refuseStatement(n)
		}
	}
	switch n.GetNode().(type) {
	case *pg.Node_CreateDomainStmt, *pg.Node_AlterDomainStmt, *pg.Node_IndexStmt, *pg.Node_CreateTrigStmt:
		a.freeze(nil)
	}
}

// domainDefault notes the tables whose columns may get another default: those with types of one's own.
func (a *analyzer) domainDefault() {
	tables := a.snap.State().Tables
	for i := range tables {
		if slices.ContainsFunc(tables[i].Columns, func(c shardmap.Column) bool { return c.OID >= firstUserOID }) && tables[i].Kind != shardmap.Whole {
			a.st.DDL.Altered = append(a.st.DDL.Altered, TableName{tables[i].Schema, tables[i].Name})
		}
	}
}

func (a *analyzer) everywhere(op, tag string) {
	a.st.Kind, a.st.Tag = DDLKind, tag
	a.st.DDL.Op, a.st.DDL.AllShards = op, true
}

// ownSchema refuses changes inside schemas that belong to the router or the server.
func ownSchema(name string) {
	switch {
	case strings.HasPrefix(name, "pg_temp"):
		refuse("this kind of object in schema pg_temp, or the schema by another name, is not supported", "make the object in another schema; pg_temp is the name of the session's own")
	case name == InternalSchema:
		fail(internalSchemaError())
	case name == VirtualSchema:
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

// created is the schema in which an unqualified new object comes to be.
func (ns *namespace) created(v *pg.RangeVar) TableName {
	if v.Relpersistence == "t" {
		refuseTemporary()
	}
	t := TableName{Schema: v.Schemaname, Name: v.Relname}
	if t.Schema == "" {
		for _, s := range ns.path {
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
	refuse("temporary objects other than tables and views are not supported: they live in one session of one shard", "make one that lasts, and drop it afterwards")
}

// expressions checks the functions in the expressions of a definition.
func (a *analyzer) expressions(list []*pg.Node) {
	var subs []*query
	w := &walker{sc: &scope{}, subs: &subs}
	for _, n := range list {
		a.walk(n, w)
	}
	if len(subs) > 0 && (a.sharded != "" || a.whole != "" || a.unknown != "") {
		refuse("a subquery in a definition is not supported", "")
	}
}

func checkSequenceOptions(list []*pg.Node) {
	for _, n := range list {
		d := n.GetDefElem()
		if names := strs(d.GetArg().GetList().GetItems()); d.GetDefname() == "owned_by" && !(len(names) == 1 && names[0] == "none") {
			refuse("OWNED BY ties a sequence to a table of one shard", "leave OWNED BY out")
		}
	}
}

// targets resolves the tables of a DDL statement, which must all be of one kind.
func (a *analyzer) targets(list []*pg.RangeVar) (known []*shardmap.Table, names []TableName) {
	for _, v := range list {
		if v.Schemaname != "" {
			ownSchema(v.Schemaname)
		}
		r := a.relation(v)
		if r.catalog || r.virtual {
			ownSchema(r.schema)
		}
		a.touch(r, v)
		if r.table == nil && !r.catalog && !r.virtual && a.st.DDL != nil {
			a.st.DDL.Unknown = append(a.st.DDL.Unknown, r.name)
		}
		if r.table != nil {
			known = append(known, r.table)
			names = append(names, TableName{r.table.Schema, r.table.Name})
		}
	}
	spread, single := a.sharded, a.whole
	if spread == "" {
		spread = a.reference
	}
	if single == "" {
		single = a.unknown
	}
	if spread != "" && single != "" && !a.mixed {
		refuse("table "+spread+" is on every shard and "+single+" on the default shard only", "use one statement for each")
	}
	return known, names
}

// others makes the text for shards other than the default shard of a statement that names tables
// of every shard beside others: all is a list of n, the statement, with what each of it stands for.
func (a *analyzer) others(n *pg.Node, all *[]*pg.Node, named func(*pg.Node) *pg.RangeVar) {
	kept := slices.DeleteFunc(slices.Clone(*all), func(o *pg.Node) bool {
		r := a.relation(named(o))
		return (r.table == nil || r.table.Kind == shardmap.Whole) && (r.view == nil || !a.everywhereView(r.view))
	})
	if len(kept) < len(*all) && a.st.DDL.AllShards {
		*all = kept
		a.st.DDL.Elsewhere, a.st.DDL.Mixed = a.written(n), true
	}
}

// altered is the table of an ALTER, nil if the map does not know the name: what there is of it then, if anything, is
// the default shard's, but for indexes of tables on every shard. tag is the command's for that.
func (a *analyzer) altered(v *pg.RangeVar, tag string) (table *shardmap.Table, names []TableName) {
	known, names := a.targets([]*pg.RangeVar{v})
	a.st.Kind, a.st.Tag = DDLKind, tag
	a.st.DDL.Op = "alter table"
	if len(known) == 0 {
		a.st.DDL.Loose, a.st.DDL.Objects = &TableName{v.Schemaname, v.Relname}, true
		return nil, nil
	}
	return known[0], names
}

// alterOther is ALTER of what only the default shard has: materialized views, foreign tables, sequences that are not the
// cluster's. Of a table or view the shard says that it is none of these.
func (a *analyzer) alterOther(v *pg.RangeVar, kind pg.ObjectType) {
	tag := map[pg.ObjectType]string{pg.ObjectType_OBJECT_MATVIEW: "ALTER MATERIALIZED VIEW", pg.ObjectType_OBJECT_FOREIGN_TABLE: "ALTER FOREIGN TABLE",
		pg.ObjectType_OBJECT_SEQUENCE: "ALTER SEQUENCE"}[kind]
	if tag == "" {
		refuse("ALTER of this kind of object is not supported yet", "")
	}
	ownSchema(v.Schemaname)
	a.st.Kind, a.st.Tag = DDLKind, tag
	a.st.DDL.Op, a.st.DDL.Objects, a.st.DDL.Unknown = strings.ToLower(tag), true, []string{v.Relname}
	a.st.DDL.Loose = &TableName{v.Schemaname, v.Relname}
}

// spread reports whether the statement's tables are on every shard.
func (to *touched) spread() bool { return to.sharded != "" || to.reference != "" }

func (a *analyzer) drop(d *pg.DropStmt) {
	st := a.st
	switch d.RemoveType {
	case pg.ObjectType_OBJECT_POLICY:
		refuseRowSecurity()
	case pg.ObjectType_OBJECT_TABLE:
		var list []*pg.RangeVar
		for _, o := range d.Objects {
			list = append(list, rangeVar(strs(o.GetList().GetItems())))
		}
		a.mixed = true
		_, names := a.targets(list)
		st.Kind, st.Tag = DDLKind, "DROP TABLE"
		st.DDL.Op, st.DDL.Dropped, st.DDL.AllShards = "drop table", names, a.spread()
		a.others(&pg.Node{Node: &pg.Node_DropStmt{DropStmt: d}}, &d.Objects, func(o *pg.Node) *pg.RangeVar { return rangeVar(strs(o.GetList().GetItems())) })
	case pg.ObjectType_OBJECT_INDEX:
		for _, o := range d.Objects {
			names := strs(o.GetList().GetItems())
			inSchema(names)
			st.DDL.Unknown = append(st.DDL.Unknown, names[len(names)-1])
		}
		a.everywhere("drop index", "DROP INDEX")
		st.DDL.Concurrent = d.Concurrent
		if !d.MissingOk {
			a.ifExistsElsewhere("index")
		}
	case pg.ObjectType_OBJECT_SEQUENCE:
		if a.dropSequences(d) {
			return
		}
		for _, o := range d.Objects {
			inSchema(strs(o.GetList().GetItems()))
		}
		if d.Behavior == pg.DropBehavior_DROP_CASCADE {
			refuse("DROP SEQUENCE ... CASCADE changes the defaults of tables", "drop the defaults first")
		}
		a.everywhere("drop sequence", "DROP SEQUENCE")
		if !d.MissingOk {
			a.ifExistsElsewhere("sequence")
		}
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN:
		for _, o := range d.Objects {
			inSchema(strs(o.GetTypeName().GetNames()))
		}
		st.DDL.DropsParts = d.Behavior == pg.DropBehavior_DROP_CASCADE
		st.DDL.Objects = st.DDL.DropsParts
		if d.RemoveType == pg.ObjectType_OBJECT_TYPE {
			a.everywhere("drop type", "DROP TYPE")
		} else {
			a.everywhere("drop domain", "DROP DOMAIN")
		}
	case pg.ObjectType_OBJECT_SCHEMA:
		for _, o := range d.Objects {
			name := o.GetString_().GetSval()
			ownSchema(name)
			a.schemaSequences(name, d.Behavior == pg.DropBehavior_DROP_CASCADE)
			if d.Behavior == pg.DropBehavior_DROP_CASCADE {
				st.DDL.DropsParts = true // of other tables, which use types and functions of the schema
				st.DDL.DropsSchema = append(st.DDL.DropsSchema, name)
				tables := a.snap.State().Tables
				for i := range tables {
					if tables[i].Schema == name {
						st.DDL.Dropped = append(st.DDL.Dropped, TableName{name, tables[i].Name})
						addTable(&st.Tables, &tables[i])
					}
				}
			}
		}
		a.everywhere("drop schema", "DROP SCHEMA")
		st.DDL.Objects = true
	default:
		if !a.dropObject(d) {
			refuse("DROP of this kind of object is not supported yet", "run it on each shard directly")
		}
	}
}

func rangeVar(names []string) *pg.RangeVar {
	v := &pg.RangeVar{Inh: true}
	if len(names) > 0 {
		v.Relname = names[len(names)-1]
	}
	if len(names) > 1 {
		v.Schemaname = names[len(names)-2]
	}
	return v
}

// ifExistsElsewhere makes the text for shards that need not have the object.
func (a *analyzer) ifExistsElsewhere(after ...string) {
	ts, _ := a.top()
	for i, t := range ts {
		for _, word := range after {
			if t.Is(a.sql, word) {
				at := t.End
				if i+1 < len(ts) && ts[i+1].Is(a.sql, "concurrently") {
					at = ts[i+1].End
				}
				a.st.DDL.Elsewhere = a.st.Text[:at] + " IF EXISTS" + a.st.Text[at:]
				return
			}
		}
	}
}

func (a *analyzer) truncate(t *pg.TruncateStmt) {
	st := a.st
	var list []*pg.RangeVar
	for _, n := range t.Relations {
		if a.viewOf(n.GetRangeVar()) != nil {
			fail(sqlstate.New(sqlstate.WrongObjectType, "%q is not a table", n.GetRangeVar().Relname))
		}
		list = append(list, n.GetRangeVar())
	}
	a.mixed = true
	known, names := a.targets(list)
	for _, k := range known {
		addTable(&st.Writes, k)
	}
	if t.Behavior == pg.DropBehavior_DROP_CASCADE {
		st.DDL.Cascades, st.DDL.Restarts = names, t.RestartSeqs
	}
	if a.spread() {
		st.DDL.Truncated = names
	}
	st.Kind, st.Tag = DDLKind, "TRUNCATE TABLE"
	st.DDL.Op, st.DDL.AllShards = "truncate", a.spread()
	if t.RestartSeqs {
		st.DDL.Sequences = Restarts(a.snap, names)
	}
	a.others(&pg.Node{Node: &pg.Node_TruncateStmt{TruncateStmt: t}}, &t.Relations, (*pg.Node).GetRangeVar)
}

func (a *analyzer) rename(r *pg.RenameStmt) {
	st := a.st
	if a.renameObject(r) {
		return
	}
	switch r.RenameType {
	case pg.ObjectType_OBJECT_POLICY:
		refuseRowSecurity()
	case pg.ObjectType_OBJECT_TABLE, pg.ObjectType_OBJECT_COLUMN, pg.ObjectType_OBJECT_TABCONSTRAINT:
		if r.RenameType == pg.ObjectType_OBJECT_TABLE && a.relation(r.Relation).table == nil && a.renameSequence(r.Relation, "", r.Newname) {
			st.Tag = "ALTER TABLE"
			return
		}
		if r.RenameType == pg.ObjectType_OBJECT_COLUMN && r.RelationType != pg.ObjectType_OBJECT_TABLE {
			a.alterOther(r.Relation, r.RelationType)
			return
		}
		table, names := a.altered(r.Relation, "ALTER TABLE")
		if table == nil {
			if r.RenameType == pg.ObjectType_OBJECT_TABLE {
				a.renamesTemp(r.Newname)
			}
			return
		}
		st.DDL.AllShards, st.DDL.Altered = a.spread(), names
		switch r.RenameType {
		case pg.ObjectType_OBJECT_TABLE:
			old := names[0]
			st.DDL.Renamed = &old
			st.DDL.Altered = []TableName{{old.Schema, r.Newname}}
		case pg.ObjectType_OBJECT_COLUMN:
			st.DDL.RenamedColumn = [2]string{r.Subname, r.Newname}
		}
	case pg.ObjectType_OBJECT_MATVIEW, pg.ObjectType_OBJECT_FOREIGN_TABLE:
		a.alterOther(r.Relation, r.RenameType)
	case pg.ObjectType_OBJECT_INDEX:
		ownSchema(r.Relation.GetSchemaname())
		if a.renamesOther(r) {
			st.Tag = "ALTER INDEX"
			return
		}
		a.everywhere("alter index", "ALTER INDEX")
		if !r.MissingOk {
			a.ifExistsElsewhere("index")
		}
	case pg.ObjectType_OBJECT_SEQUENCE:
		if a.renameSequence(r.Relation, "", r.Newname) {
			return
		}
		ownSchema(r.Relation.GetSchemaname())
		a.everywhere("alter sequence", "ALTER SEQUENCE")
		if !r.MissingOk {
			a.ifExistsElsewhere("sequence")
		}
	case pg.ObjectType_OBJECT_SCHEMA:
		ownSchema(r.Subname)
		reservedSchema(r.Newname)
		ownSchema(r.Newname)
		for i := range a.snap.State().Sequences {
			if q := &a.snap.State().Sequences[i]; q.Schema == r.Subname {
				refuse("the schema holds the sequence "+q.QualifiedName()+", which defaults of columns may name", "move its tables to another schema, or drop the sequence")
			}
		}
		a.everywhere("alter schema", "ALTER SCHEMA")
		st.DDL.RenamedSchema, st.DDL.Objects = [2]string{r.Subname, r.Newname}, true
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN, pg.ObjectType_OBJECT_DOMCONSTRAINT:
		a.everywhere("alter type", "ALTER TYPE")
		st.DDL.Objects = true
		if r.RenameType != pg.ObjectType_OBJECT_TYPE {
			st.DDL.Op, st.Tag = "alter domain", "ALTER DOMAIN"
		}
	default:
		refuse("renaming this kind of object is not supported yet", "run it on each shard directly")
	}
}

// renamesOther reports whether ALTER INDEX ... RENAME names a table, a view or a sequence, which PostgreSQL renames then.
func (a *analyzer) renamesOther(r *pg.RenameStmt) bool {
	if rel := a.relation(r.Relation); rel.table == nil && rel.view == nil && a.clusterSequence(r.Relation) == nil {
		return false
	}
	table := clone(r)
	table.RenameType = pg.ObjectType_OBJECT_TABLE
	a.rename(table)
	return true
}

func (a *analyzer) setSchema(s *pg.AlterObjectSchemaStmt) {
	ownSchema(s.Newschema)
	if a.moveObject(s) {
		return
	}
	switch s.ObjectType {
	case pg.ObjectType_OBJECT_TABLE:
		if a.relation(s.Relation).table == nil && a.renameSequence(s.Relation, s.Newschema, "") {
			a.st.Tag = "ALTER TABLE"
			return
		}
		table, names := a.altered(s.Relation, "ALTER TABLE")
		if table == nil {
			return
		}
		a.st.DDL.AllShards = a.spread()
		old := names[0]
		a.st.DDL.Renamed = &old
		a.st.DDL.Altered = []TableName{{s.Newschema, old.Name}}
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN:
		a.everywhere("alter type", "ALTER TYPE")
	case pg.ObjectType_OBJECT_SEQUENCE:
		if a.renameSequence(s.Relation, s.Newschema, "") {
			return
		}
		a.everywhere("alter sequence", "ALTER SEQUENCE")
		if !s.MissingOk {
			a.ifExistsElsewhere("sequence")
		}
	case pg.ObjectType_OBJECT_MATVIEW, pg.ObjectType_OBJECT_FOREIGN_TABLE:
		a.alterOther(s.Relation, s.ObjectType)
	default:
		refuse("SET SCHEMA of this kind of object is not supported yet", "run it on each shard directly")
	}
}

func (a *analyzer) comment(c *pg.CommentStmt) {
	a.st.Kind, a.st.Tag = DDLKind, "COMMENT"
	a.st.DDL.Op = "comment"
	names := strs(c.Object.GetList().GetItems())
	switch c.Objtype {
	case pg.ObjectType_OBJECT_TABLE:
		a.targets([]*pg.RangeVar{rangeVar(names)})
		a.st.DDL.AllShards = a.spread()
	case pg.ObjectType_OBJECT_COLUMN, pg.ObjectType_OBJECT_TABCONSTRAINT:
		if len(names) < 2 {
			return
		}
		if v := a.viewOf(rangeVar(names[:len(names)-1])); v != nil {
			a.st.DDL.AllShards = a.everywhereView(v)
			break
		}
		a.targets([]*pg.RangeVar{rangeVar(names[:len(names)-1])})
		a.st.DDL.AllShards = a.spread()
	case pg.ObjectType_OBJECT_SCHEMA:
		ownSchema(c.Object.GetString_().GetSval())
		a.st.DDL.AllShards = true
	case pg.ObjectType_OBJECT_TYPE, pg.ObjectType_OBJECT_DOMAIN:
		inSchema(strs(c.Object.GetTypeName().GetNames()))
		a.st.DDL.AllShards = true
	case pg.ObjectType_OBJECT_LARGEOBJECT:
		a.onDefault("COMMENT") // it is no schema: a large object comes and goes as rows do
	default:
		if !a.commentObject(c, names) {
			refuse("COMMENT ON this kind of object is not supported yet", "run it on each shard directly")
		}
	}
}

// refuseStatement names what is not supported, with what to do instead.
func (a *analyzer) refuseStatement(n *pg.Node) {
	direct := "run it on each shard directly"
	what, hint := "this statement", direct
	switch n.GetNode().(type) {
	case *pg.Node_RuleStmt:
		what, hint = "CREATE RULE", "a rule could write to rows of other shards"
	case *pg.Node_AlterOwnerStmt:
		what = "OWNER TO of this kind of object"
	case *pg.Node_CreatedbStmt, *pg.Node_DropdbStmt, *pg.Node_AlterDatabaseStmt, *pg.Node_AlterDatabaseSetStmt:
		what, hint = "creating or changing databases", "the cluster is one database; cleave shard add brings another shard"
	case *pg.Node_DoStmt:
		a.do(n.GetDoStmt())
		return
	case *pg.Node_CallStmt:
		if a.callProcedure(n.GetCallStmt()) {
			return
		}
		what, hint = "CALL of a procedure that is not known to read and write no table", "run its statements one by one"
	case *pg.Node_CreatePolicyStmt, *pg.Node_AlterPolicyStmt:
		refuseRowSecurity()
	case *pg.Node_ClusterStmt:
		what = "CLUSTER"
	case *pg.Node_DefineStmt, *pg.Node_CreateCastStmt, *pg.Node_CreateOpClassStmt, *pg.Node_CreateOpFamilyStmt, *pg.Node_AlterOpFamilyStmt, *pg.Node_AlterOperatorStmt, *pg.Node_CreateTransformStmt, *pg.Node_CreateAmStmt:
		// Made on the shards, it would change what a statement means behind the router's back.
		what, hint = "making operators, aggregates, casts and the like", "write a function, and call it by its name"
	case *pg.Node_CheckPointStmt, *pg.Node_LoadStmt, *pg.Node_AlterSystemStmt:
		what = "changing a server"
	case *pg.Node_CreatePublicationStmt, *pg.Node_CreateSubscriptionStmt, *pg.Node_AlterPublicationStmt, *pg.Node_AlterSubscriptionStmt:
		what = "publications and subscriptions"
	}
	verb := " is not supported yet"
	if strings.HasSuffix(what, "subscriptions") {
		verb = " are not supported yet"
	}
	refuse(what+verb, hint)
}
