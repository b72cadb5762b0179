package planner

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Objects besides tables: functions, triggers, extensions, privileges. All shards
// have the same ones, except what hangs on an unsharded table.

// guardTrigger begins the names of the guards' triggers. PostgreSQL fires row
// triggers by name, and the guard has to see the row as the last one left it.
const guardTrigger = "~"

// object analyses the statements about other objects than tables. It reports
// whether it knows the statement.
func (ch *schemaChange) object(n *pg.Node) bool {
	st := ch.st
	switch v := n.GetNode().(type) {
	case *pg.Node_ViewStmt:
		ch.createView(v.ViewStmt)
	case *pg.Node_CreateFunctionStmt:
		ch.createFunction(v.CreateFunctionStmt)
	case *pg.Node_AlterFunctionStmt:
		inSchema(sqltree.Strings(v.AlterFunctionStmt.Func.GetObjname()))
		for _, o := range v.AlterFunctionStmt.Actions {
			checkFunctionSetting(o.GetDefElem())
		}
		ch.everywhere("alter function", "ALTER "+kindOfRoutine(v.AlterFunctionStmt.Objtype))
		st.DDL.Objects = true
	case *pg.Node_CreateTrigStmt:
		ch.createTrigger(v.CreateTrigStmt)
	case *pg.Node_CreateExtensionStmt:
		ch.everywhere("create extension", "CREATE EXTENSION")
		st.DDL.Objects = true
	case *pg.Node_AlterExtensionStmt:
		ch.everywhere("alter extension", "ALTER EXTENSION")
		st.DDL.Objects = true
	case *pg.Node_DefineStmt:
		return ch.defineObject(v.DefineStmt)
	case *pg.Node_AlterTypeStmt:
		fail(ErrUntrusted("ALTER TYPE ... SET")) // the functions of a base type
	case *pg.Node_AlterEnumStmt:
		ch.everywhere("alter type", "ALTER TYPE")
	case *pg.Node_GrantStmt:
		ch.grant(v.GrantStmt)
	case *pg.Node_AlterDefaultPrivilegesStmt:
		ch.everywhere("alter default privileges", "ALTER DEFAULT PRIVILEGES")
	case *pg.Node_AlterOwnerStmt:
		return ch.owner(v.AlterOwnerStmt)
	case *pg.Node_CreateStatsStmt:
		return ch.statistics(v.CreateStatsStmt)
	case *pg.Node_ReindexStmt:
		return ch.reindex(v.ReindexStmt)
	case *pg.Node_RefreshMatViewStmt:
		st.Kind, st.Tag = plan.DefaultShard, "REFRESH MATERIALIZED VIEW"
		st.DDL = nil
	default:
		return false
	}
	return true
}

func kindOfRoutine(t pg.ObjectType) string {
	switch t {
	case pg.ObjectType_OBJECT_PROCEDURE:
		return "PROCEDURE"
	case pg.ObjectType_OBJECT_ROUTINE:
		return "ROUTINE"
	case pg.ObjectType_OBJECT_AGGREGATE:
		return "AGGREGATE"
	}
	return "FUNCTION"
}

// createFunction reads CREATE FUNCTION. Every shard gets every function; which of
// them statements may call is decided by what they do, see pure.go.
func (ch *schemaChange) createFunction(f *pg.CreateFunctionStmt) {
	names := sqltree.Strings(f.Funcname)
	if semantics.InTemp(names) {
		ch.createTempFunction(f)
		return
	}
	inSchema(names)
	name := names[len(names)-1]
	immutable := false
	for _, o := range f.Options {
		d := o.GetDefElem()
		if d.GetDefname() == "volatility" {
			immutable = sqltree.DefText(d.Arg) == "immutable"
		}
		if d.GetDefname() == "language" {
			ch.st.DDL.Language = sqltree.DefText(d.Arg)
			checkLanguage(ch.st.DDL.Language)
		}
		checkFunctionSetting(d)
	}
	for _, n := range f.Parameters {
		if p := n.GetFunctionParameter(); p.GetDefexpr() != nil && datetime.HasSpecialIn(p.Defexpr) && datetime.ReadingOfType(p.ArgType, ch.Typer.Hidden()) != datetime.AsText {
			fail(sqlstate.Refusal("CLV-0628", "the default of a parameter has a word for the time, which each shard would read once, when it makes the function").
				WithHint("Write now(), or the time itself."))
		}
	}
	kind := builtin.Kind(name)
	own := kind != ""
	if strings.ContainsAny(kind, "aw") && !returnsTrigger(f) {
		fail(sqlstate.Refusal("CLV-0701", "a function with the name of one of PostgreSQL's own aggregates or window functions (%s) is not supported: the router could not tell their calls apart", name).
			WithHint("Give it another name."))
	}
	if own && !immutable && sqltree.Strings(f.ReturnType.GetNames()) != nil && !returnsTrigger(f) {
		fail(sqlstate.Refusal("CLV-0702", "a function with the name of one of PostgreSQL's own (%s) is not supported unless it is IMMUTABLE: the router could not tell their calls apart", name).
			WithHint("Give it another name."))
	}
	what := "FUNCTION"
	if f.IsProcedure {
		what = "PROCEDURE"
	}
	ch.everywhere("create "+strings.ToLower(what), "CREATE "+what)
	ch.st.DDL.Objects = true
}

// checkLanguage refuses the languages whose functions are the server's own code. The shard itself says which of the
// others it trusts, see schema/code.go; these two are refused before a library would be loaded.
func checkLanguage(language string) {
	if strings.EqualFold(language, "internal") || strings.EqualFold(language, "c") {
		fail(ErrUntrusted("language " + strings.ToLower(language)))
	}
}

// ErrUntrusted is the error of a statement that would make code which the server does not confine.
func ErrUntrusted(what string) *sqlstate.Error {
	return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for %s: it is not trusted", what).
		WithDetail("Such code does on the shards' servers what their administrators may do, for every caller.").
		WithHint("write the function in SQL or PL/pgSQL, or have the servers' administrator make it on each shard directly")
}

// checkFunctionSetting looks at SET in CREATE and ALTER FUNCTION: what a session may not set, a function may not either.
func checkFunctionSetting(d *pg.DefElem) {
	if d.GetDefname() == "support" {
		fail(ErrUntrusted("SUPPORT")) // PostgreSQL takes it from superusers only
	}
	v := d.GetArg().GetVariableSetStmt()
	if d.GetDefname() != "set" || v.GetKind() != pg.VariableSetKind_VAR_SET_VALUE || len(v.Args) == 0 {
		return
	}
	if err := utility.CheckSetting(v.Name, sqltree.DefText(v.Args[0])); err != nil {
		fail(err)
	}
}

func returnsTrigger(f *pg.CreateFunctionStmt) bool {
	names := sqltree.Strings(f.ReturnType.GetNames())
	return len(names) > 0 && names[len(names)-1] == "trigger"
}

// createTrigger lets triggers through whose functions read no table: what they do
// to a row depends on the row alone.
func (ch *schemaChange) createTrigger(t *pg.CreateTrigStmt) {
	st := ch.st
	_, names := ch.targets([]*pg.RangeVar{t.Relation})
	fn := sqltree.Strings(t.Funcname)
	call := fn
	own := ch.UserFunction(call)
	native := builtin.Has(fn[len(fn)-1]) && (len(fn) == 1 || fn[0] == "pg_catalog") // tsvector_update_trigger, suppress_redundant_updates_trigger
	temporary := semantics.InTemp(call) && ch.Unknown != ""                         // of a temporary table
	if !native && !temporary && (own == nil || own.Kind != "t") {
		fail(sqlstate.Refusal("CLV-0703", "a trigger that calls %s() is not supported: the function is not known to read or write no table, so it could reach rows that other shards have", strings.Join(fn, ".")).
			WithHint("Create the function through the router, in SQL or PL/pgSQL, without naming tables in it."))
	}
	if t.Trigname >= guardTrigger {
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "trigger name %q is reserved: the shards' guards have to fire last", t.Trigname).WithHint("choose a name that begins with a letter"))
	}
	if viewOf(&ch.Namespace, t.Relation) != nil {
		fail(sqlstate.Refusal("CLV-0704", "triggers on views are not supported").WithHint("Write to the table itself."))
	}
	if ch.Unknown != "" { // a temporary table of the session has triggers as well
		st.DDL.Refused = sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", ch.Unknown).At(ch.Position(ch.UnknownAt))
	}
	ch.expressions([]*pg.Node{t.WhenClause})
	const before = 1 << 1 // TRIGGER_TYPE_BEFORE
	if r := ch.Relation(t.Relation); r.Table != nil && r.Table.Kind == shardmap.Reference && t.Row && t.Timing&before != 0 && own != nil && own.Clocked {
		fail(sqlstate.Refusal("CLV-0629", "a trigger before the rows of a reference table that uses the time at which the transaction began is not supported: %s() would give each copy another time", own.QualifiedName()).
			WithHint("Let the column have DEFAULT now() for new rows, and write SET column = now() (or DEFAULT) in an UPDATE."))
	}
	if t.TransitionRels != nil && spreadTables(ch.Touched) {
		fail(sqlstate.Refusal("CLV-0705", "transition tables of a trigger on a sharded or reference table hold one shard's rows only").
			WithHint("Use FOR EACH ROW."))
	}
	st.Kind, st.Tag = plan.DDLKind, "CREATE TRIGGER"
	st.DDL.Op, st.DDL.AllShards, st.DDL.Altered = "create trigger", spreadTables(ch.Touched), names
}

// defineObject reads CREATE COLLATION and CREATE TEXT SEARCH ...; CREATE TYPE without a body.
func (ch *schemaChange) defineObject(d *pg.DefineStmt) bool {
	switch d.Kind {
	case pg.ObjectType_OBJECT_COLLATION:
		ch.everywhere("create collation", "CREATE COLLATION")
	case pg.ObjectType_OBJECT_TSCONFIGURATION:
		ch.everywhere("create text search configuration", "CREATE TEXT SEARCH CONFIGURATION")
	case pg.ObjectType_OBJECT_TSDICTIONARY:
		ch.everywhere("create text search dictionary", "CREATE TEXT SEARCH DICTIONARY")
	default:
		return false
	}
	inSchema(sqltree.Strings(d.Defnames))
	return true
}

// grant reads GRANT and REVOKE.
func (ch *schemaChange) grant(g *pg.GrantStmt) {
	st := ch.st
	tag := "REVOKE"
	if g.IsGrant {
		tag = "GRANT"
	}
	ch.everywhere(strings.ToLower(tag), tag)
	if g.Targtype == pg.GrantTargetType_ACL_TARGET_ALL_IN_SCHEMA {
		for _, o := range g.Objects {
			ownSchema(o.GetString_().GetSval())
		}
		return
	}
	switch g.Objtype {
	case pg.ObjectType_OBJECT_TABLE:
		ch.grantTables(g)
	case pg.ObjectType_OBJECT_SEQUENCE:
		for _, o := range g.Objects {
			v := o.GetRangeVar()
			if q := ch.ClusterSequence(v); q == nil {
				st.DDL.AllShards = false // of the default shard's own
				return
			}
		}
		// Its shadow keeps it; the router itself asks for no privileges of sequences.
		st.DDL.AllShards, st.DDL.MapOnly = false, ch.Lonely()
	case pg.ObjectType_OBJECT_SCHEMA:
		for _, o := range g.Objects {
			ownSchema(o.GetString_().GetSval())
		}
	case pg.ObjectType_OBJECT_LARGEOBJECT:
		ch.administersLargeObject(tag)
	case pg.ObjectType_OBJECT_DATABASE, pg.ObjectType_OBJECT_TABLESPACE, pg.ObjectType_OBJECT_FOREIGN_SERVER, pg.ObjectType_OBJECT_FDW, pg.ObjectType_OBJECT_PARAMETER_ACL:
		fail(sqlstate.Refusal("CLV-0706", "%s on this kind of object is not supported: each shard has its own", tag).
			WithHint("Run it on each shard directly."))
	}
}

// grantTables: views and sequences may be named like tables.
func (ch *schemaChange) grantTables(g *pg.GrantStmt) {
	st := ch.st
	var tables []*pg.RangeVar
	spread := false
	for _, o := range g.Objects {
		v := o.GetRangeVar()
		if w := viewOf(&ch.Namespace, v); w != nil {
			spread = everywhereView(ch.Touched, w) || spread
			continue
		}
		tables = append(tables, v)
	}
	ch.Mixed = true
	ch.targets(tables)
	st.DDL.AllShards = spread || spreadTables(ch.Touched)
	ch.others(&pg.Node{Node: &pg.Node_GrantStmt{GrantStmt: g}}, &g.Objects, (*pg.Node).GetRangeVar)
}

// administersLargeObject is a statement that says who may do what with large objects. They are no schema, but rows of the default shard.
func (ch *schemaChange) administersLargeObject(tag string) {
	ch.onDefault(tag)
	ch.Secret(tag + " of large objects")
}

// owner reads ALTER ... OWNER TO of other objects than tables.
func (ch *schemaChange) owner(o *pg.AlterOwnerStmt) bool {
	if o.ObjectType == pg.ObjectType_OBJECT_LARGEOBJECT {
		ch.administersLargeObject("ALTER LARGE OBJECT")
		return true
	}
	what := map[pg.ObjectType]string{
		pg.ObjectType_OBJECT_SCHEMA: "SCHEMA", pg.ObjectType_OBJECT_TYPE: "TYPE", pg.ObjectType_OBJECT_DOMAIN: "DOMAIN",
		pg.ObjectType_OBJECT_FUNCTION: "FUNCTION", pg.ObjectType_OBJECT_PROCEDURE: "PROCEDURE", pg.ObjectType_OBJECT_ROUTINE: "ROUTINE",
		pg.ObjectType_OBJECT_AGGREGATE: "AGGREGATE", pg.ObjectType_OBJECT_COLLATION: "COLLATION", pg.ObjectType_OBJECT_TSCONFIGURATION: "TEXT SEARCH CONFIGURATION",
		pg.ObjectType_OBJECT_TSDICTIONARY: "TEXT SEARCH DICTIONARY",
	}[o.ObjectType]
	if what == "" {
		return false
	}
	if o.ObjectType == pg.ObjectType_OBJECT_SCHEMA {
		ownSchema(o.Object.GetString_().GetSval())
	}
	ch.everywhere("alter "+strings.ToLower(what), "ALTER "+what)
	return true
}

func (ch *schemaChange) statistics(s *pg.CreateStatsStmt) bool {
	var list []*pg.RangeVar
	for _, n := range s.Relations {
		if n.GetRangeVar() == nil {
			return false
		}
		list = append(list, n.GetRangeVar())
	}
	ch.targets(list)
	ch.expressions(s.Exprs)
	ch.st.Kind, ch.st.Tag = plan.DDLKind, "CREATE STATISTICS"
	ch.st.DDL.Op, ch.st.DDL.AllShards = "create statistics", spreadTables(ch.Touched)
	return true
}

// reindex runs REINDEX on all shards that have the index or table.
func (ch *schemaChange) reindex(r *pg.ReindexStmt) bool {
	st := ch.st
	for _, o := range r.Params {
		if o.GetDefElem().GetDefname() == "concurrently" && sqltree.OptionOn(o.GetDefElem()) {
			st.DDL.Concurrent = true
		}
	}
	switch r.Kind {
	case pg.ReindexObjectType_REINDEX_OBJECT_TABLE:
		ch.targets([]*pg.RangeVar{r.Relation})
		ch.everywhere("reindex", "REINDEX")
		st.DDL.AllShards = spreadTables(ch.Touched)
	case pg.ReindexObjectType_REINDEX_OBJECT_INDEX:
		ownSchema(r.Relation.GetSchemaname())
		ch.everywhere("reindex", "REINDEX")
		if !st.DDL.Concurrent {
			ch.missingElsewhere()
		}
	default:
		fail(sqlstate.Refusal("CLV-0707", "REINDEX of a schema, a database or the system catalogs is not supported").
			WithHint("Name a table or an index."))
	}
	st.DDL.Passing = true
	return true
}

// missingElsewhere makes the text for shards that need not have the object, for
// statements without IF EXISTS.
func (ch *schemaChange) missingElsewhere() {
	if ch.Lonely() {
		return // a cluster of SQLite files: there is no such block
	}
	tag := "$cleave$"
	for i := 0; strings.Contains(ch.st.Text, tag); i++ {
		tag = "$cleave" + strconv.Itoa(i) + "$"
	}
	end := ";"
	if strings.Contains(ch.st.Text, "--") {
		end = "\n;" // it may end with a comment
	}
	ch.st.DDL.Elsewhere = "DO " + tag + " BEGIN " + strings.TrimRight(ch.st.Text, "; \t\r\n") + end +
		" EXCEPTION WHEN undefined_table OR undefined_object OR undefined_function OR undefined_column OR invalid_schema_name THEN NULL; END " + tag
}

// commentObject is COMMENT ON what is no table, schema or type.
func (ch *schemaChange) commentObject(c *pg.CommentStmt, names []string) bool {
	d := ch.st.DDL
	switch c.Objtype {
	case pg.ObjectType_OBJECT_VIEW:
		v := viewOf(&ch.Namespace, semantics.RangeVar(names))
		d.AllShards = v != nil && everywhereView(ch.Touched, v)
	case pg.ObjectType_OBJECT_SEQUENCE:
		if ch.ClusterSequence(semantics.RangeVar(names)) != nil {
			d.MapOnly = ch.Lonely() // else its shadow keeps it
		}
	case pg.ObjectType_OBJECT_TRIGGER:
		ch.targets([]*pg.RangeVar{semantics.RangeVar(names[:len(names)-1])})
		d.AllShards = spreadTables(ch.Touched)
	case pg.ObjectType_OBJECT_INDEX, pg.ObjectType_OBJECT_STATISTIC_EXT:
		d.AllShards = true
		ch.missingElsewhere()
	case pg.ObjectType_OBJECT_FUNCTION, pg.ObjectType_OBJECT_PROCEDURE, pg.ObjectType_OBJECT_ROUTINE, pg.ObjectType_OBJECT_AGGREGATE,
		pg.ObjectType_OBJECT_EXTENSION, pg.ObjectType_OBJECT_COLLATION, pg.ObjectType_OBJECT_TSCONFIGURATION, pg.ObjectType_OBJECT_TSDICTIONARY,
		pg.ObjectType_OBJECT_DOMCONSTRAINT, pg.ObjectType_OBJECT_CAST, pg.ObjectType_OBJECT_LANGUAGE:
		d.AllShards = true
	case pg.ObjectType_OBJECT_MATVIEW:
	default:
		return false
	}
	return true
}

// dropObject is DROP of what is no table, index, sequence, type or schema.
func (ch *schemaChange) dropObject(d *pg.DropStmt) bool {
	st := ch.st
	everywhere := func(what string, after ...string) {
		ch.everywhere("drop "+strings.ToLower(what), "DROP "+what)
		st.DDL.Objects = true
		if !d.MissingOk && len(after) > 0 {
			ch.ifExistsElsewhere(after...)
		}
	}
	switch d.RemoveType {
	case pg.ObjectType_OBJECT_VIEW:
		for _, o := range d.Objects {
			names := sqltree.Strings(o.GetList().GetItems())
			inSchema(names)
			if viewOf(&ch.Namespace, semantics.RangeVar(names)) == nil {
				st.DDL.Unknown = append(st.DDL.Unknown, names[len(names)-1])
			}
		}
		if len(st.DDL.Unknown) < len(d.Objects) {
			st.DDL.Unknown = nil
		}
		everywhere("VIEW", "view")
	case pg.ObjectType_OBJECT_MATVIEW:
		st.Kind, st.Tag = plan.DDLKind, "DROP MATERIALIZED VIEW"
		st.DDL.Op, st.DDL.Objects = "drop materialized view", true
	case pg.ObjectType_OBJECT_FUNCTION, pg.ObjectType_OBJECT_PROCEDURE, pg.ObjectType_OBJECT_ROUTINE, pg.ObjectType_OBJECT_AGGREGATE:
		what := kindOfRoutine(d.RemoveType)
		if d.RemoveType == pg.ObjectType_OBJECT_FUNCTION && ch.dropTemp(d, "DROP FUNCTION") {
			break
		}
		for _, o := range d.Objects {
			inSchema(sqltree.Strings(o.GetObjectWithArgs().GetObjname()))
		}
		st.DDL.DropsParts = d.Behavior == pg.DropBehavior_DROP_CASCADE
		everywhere(what, strings.ToLower(what))
	case pg.ObjectType_OBJECT_EXTENSION:
		st.DDL.DropsParts = d.Behavior == pg.DropBehavior_DROP_CASCADE
		everywhere("EXTENSION", "extension")
	case pg.ObjectType_OBJECT_COLLATION, pg.ObjectType_OBJECT_TSCONFIGURATION, pg.ObjectType_OBJECT_TSDICTIONARY, pg.ObjectType_OBJECT_STATISTIC_EXT:
		what := map[pg.ObjectType]string{pg.ObjectType_OBJECT_COLLATION: "COLLATION", pg.ObjectType_OBJECT_TSCONFIGURATION: "TEXT SEARCH CONFIGURATION",
			pg.ObjectType_OBJECT_TSDICTIONARY: "TEXT SEARCH DICTIONARY", pg.ObjectType_OBJECT_STATISTIC_EXT: "STATISTICS"}[d.RemoveType]
		words := strings.Fields(strings.ToLower(what))
		everywhere(what, words[len(words)-1])
	case pg.ObjectType_OBJECT_TRIGGER:
		for _, o := range d.Objects {
			names := sqltree.Strings(o.GetList().GetItems())
			if names[len(names)-1] >= guardTrigger {
				fail(sqlstate.New(sqlstate.InsufficientPrivilege, "trigger %q belongs to the router: it is the table's guard", names[len(names)-1]))
			}
			_, altered := ch.targets([]*pg.RangeVar{semantics.RangeVar(names[:len(names)-1])})
			st.DDL.Altered = altered
		}
		st.Kind, st.Tag = plan.DDLKind, "DROP TRIGGER"
		st.DDL.Op, st.DDL.AllShards = "drop trigger", spreadTables(ch.Touched)
	default:
		return false
	}
	return true
}

// renameObject is RENAME of views, functions, triggers and the like.
func (ch *schemaChange) renameObject(r *pg.RenameStmt) bool {
	st := ch.st
	switch r.RenameType {
	case pg.ObjectType_OBJECT_VIEW:
		ch.changeView(r.Relation, r.MissingOk)
		if viewOf(&ch.Namespace, r.Relation) == nil {
			ch.renamesTemp(r.Newname)
		}
	case pg.ObjectType_OBJECT_TABLE:
		if viewOf(&ch.Namespace, r.Relation) == nil {
			return false
		}
		ch.changeView(r.Relation, r.MissingOk)
	case pg.ObjectType_OBJECT_COLUMN:
		if r.RelationType != pg.ObjectType_OBJECT_VIEW && viewOf(&ch.Namespace, r.Relation) == nil {
			return false
		}
		ch.changeView(r.Relation, r.MissingOk)
	case pg.ObjectType_OBJECT_FUNCTION, pg.ObjectType_OBJECT_PROCEDURE, pg.ObjectType_OBJECT_ROUTINE:
		if own := builtin.Has(r.Newname); own {
			fail(sqlstate.Refusal("CLV-0708", "a function with the name of one of PostgreSQL's own (%s) is not supported", r.Newname).
				WithHint("Give it another name."))
		}
		ch.everywhere("alter function", "ALTER "+kindOfRoutine(r.RenameType))
		st.DDL.Objects = true
	case pg.ObjectType_OBJECT_TRIGGER:
		if r.Subname >= guardTrigger || r.Newname >= guardTrigger {
			fail(sqlstate.New(sqlstate.InsufficientPrivilege, "trigger names that sort after the guards' are reserved"))
		}
		_, names := ch.targets([]*pg.RangeVar{r.Relation})
		st.Kind, st.Tag = plan.DDLKind, "ALTER TRIGGER"
		st.DDL.Op, st.DDL.AllShards, st.DDL.Altered = "alter trigger", spreadTables(ch.Touched), names
	case pg.ObjectType_OBJECT_COLLATION, pg.ObjectType_OBJECT_TSCONFIGURATION, pg.ObjectType_OBJECT_TSDICTIONARY, pg.ObjectType_OBJECT_ATTRIBUTE:
		if r.RenameType == pg.ObjectType_OBJECT_ATTRIBUTE && ch.renamesColumn(r) {
			return true
		}
		ch.everywhere("rename", "ALTER "+map[pg.ObjectType]string{pg.ObjectType_OBJECT_COLLATION: "COLLATION", pg.ObjectType_OBJECT_ATTRIBUTE: "TYPE",
			pg.ObjectType_OBJECT_TSCONFIGURATION: "TEXT SEARCH CONFIGURATION", pg.ObjectType_OBJECT_TSDICTIONARY: "TEXT SEARCH DICTIONARY"}[r.RenameType])
		st.DDL.Objects = true
	default:
		return false
	}
	return true
}

// renamesColumn reports whether ALTER TYPE ... RENAME ATTRIBUTE is about a table's row type: PostgreSQL renames the column then.
func (ch *schemaChange) renamesColumn(r *pg.RenameStmt) bool {
	rel := ch.Relation(r.Relation)
	if rel.View != nil {
		fail(sqlstate.Refusal("CLV-0709", "RENAME ATTRIBUTE of a view's row type is not supported").
			WithHint("Run ALTER VIEW ... RENAME COLUMN."))
	}
	if rel.Table == nil {
		return false
	}
	column := sqltree.Clone(r)
	column.RenameType, column.RelationType = pg.ObjectType_OBJECT_COLUMN, pg.ObjectType_OBJECT_TABLE
	ch.rename(column)
	ch.st.Tag = "ALTER TYPE"
	return true
}

// moveObject is SET SCHEMA of views, functions and extensions.
func (ch *schemaChange) moveObject(s *pg.AlterObjectSchemaStmt) bool {
	switch s.ObjectType {
	case pg.ObjectType_OBJECT_VIEW:
		ch.changeView(s.Relation, s.MissingOk)
	case pg.ObjectType_OBJECT_TABLE:
		if viewOf(&ch.Namespace, s.Relation) == nil {
			return false
		}
		ch.changeView(s.Relation, s.MissingOk)
	case pg.ObjectType_OBJECT_FUNCTION, pg.ObjectType_OBJECT_PROCEDURE, pg.ObjectType_OBJECT_ROUTINE:
		ch.everywhere("alter function", "ALTER "+kindOfRoutine(s.ObjectType))
		ch.st.DDL.Objects = true
	case pg.ObjectType_OBJECT_EXTENSION:
		ch.everywhere("alter extension", "ALTER EXTENSION")
		ch.st.DDL.Objects = true
	default:
		return false
	}
	return true
}

// rangeType checks the functions that a range type is made with: a shard calls them when rows and indexes are made.
func rangeType(ns *semantics.Namespace, r *pg.CreateRangeStmt) {
	for _, n := range r.Params {
		d := n.GetDefElem()
		if d.GetDefname() != "subtype_diff" && d.GetDefname() != "canonical" {
			continue
		}
		names := strings.Split(sqltree.DefText(d.Arg), ".")
		if own := ns.UserFunction(names); ns.Hides(names) == nil && builtin.Has(names[len(names)-1]) && (len(names) == 1 || names[0] == "pg_catalog") || own != nil && own.Kind == "f" {
			continue
		}
		fail(sqlstate.Refusal("CLV-0710", "a range type with the function %s() is not supported: it is not known to read no table", strings.Join(names, ".")).
			WithHint("Create the function through the router, with a body that names no table, and without EXECUTE, set_config() and the like."))
	}
}
