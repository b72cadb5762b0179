package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/builtin"
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
	if r := ch.relation(&pg.RangeVar{Relname: name}); r.table != nil || r.view != nil {
		ch.st.DDL.Hides = hidesNamed(r)
	}
}

// hidesNamed refuses the name of a table or view of the map for a temporary one.
func hidesNamed(r relation) error {
	return sqlstate.Refusal("CLV-0819", "a temporary table cannot have the name of %s, which it would hide", sqltext.QuoteName(r.schema, r.name)).
		WithHint("give it another name")
}

// pins makes the statement one that makes a temporary table or view.
func (ch *schemaChange) pins(v *pg.RangeVar, tag string) {
	if v.Schemaname != "" && !strings.HasPrefix(v.Schemaname, "pg_temp") {
		return // an error, which PostgreSQL words
	}
	if r := ch.relation(&pg.RangeVar{Relname: v.Relname}); r.table != nil || r.view != nil {
		fail(hidesNamed(r))
	}
	st := ch.st
	st.Kind, st.Tag, st.DDL, st.ReturnsRows, st.ReadOnly = DefaultShard, tag, nil, false, false
	st.Pins, st.Temp = true, v.Relname
	ch.preferDefault = true
}

func (ch *schemaChange) createTemp(c *pg.CreateStmt) {
	if len(tableOptions(c.Options).at) > 0 {
		fail(sqlstate.Refusal("CLV-0816", "a temporary table cannot be sharded").WithHint("leave the options cleave.* out"))
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
		if r := ch.relation(n.GetRangeVar()); r.table != nil {
			fail(sqlstate.Refusal("CLV-0820", "a temporary table that inherits from %s is not supported", sqltext.QuoteName(r.schema, r.name)).
				WithHint("use LIKE"))
		}
	}
	ch.pins(c.Relation, "CREATE TABLE")
}

// tempAs is CREATE TEMP TABLE AS and SELECT INTO TEMP. Of rows of sharded tables it is
// two things, see createFrom, which the session runs.
func (a *analyzer) tempAs(into *pg.IntoClause) {
	a.into = nil
	if a.second != nil {
		a.second.planning = true // what is refused is refused for good
	}
	if a.virtual != "" {
		fail(sqlstate.Refusal("CLV-0821", "a temporary table cannot be created from the rows of %s", a.virtual).
			WithHint("create the table first, then insert what a query of its own gave"))
	}
	a.change().pins(into.Rel, "SELECT")
	if a.sharded == "" {
		return
	}
	if !a.st.Pins {
		fail(sqlstate.New(sqlstate.InvalidTableDefinition, "cannot create temporary relation in non-temporary schema"))
	}
	a.st.Kind, a.st.DDL = DDLKind, &DDL{Op: "create table as"}
	a.finish()
}

func (ch *schemaChange) tempView(v *pg.ViewStmt) {
	if v.Query.GetSelectStmt() == nil {
		fail(sqlstate.Refusal("CLV-0822", "this kind of view is not supported"))
	}
	ch.readsNoSettings(v.Query)
	if err := ch.define(v.Query.GetSelectStmt()); err != nil {
		fail(err)
	}
	if ch.has.catalog {
		// The router does not know temporary views, so it could not refuse to write through it.
		fail(sqlstate.Refusal("CLV-0823", "a temporary view of system catalogs is not supported").
			WithHint("create a view that lasts, or use WITH"))
	}
	if ch.has.sharded {
		fail(sqlstate.Refusal("CLV-0824", "a temporary view over sharded tables is not supported").
			WithHint("create a view that lasts, or use WITH"))
	}
	ch.pins(v.View, "CREATE VIEW")
}

// tempSchema is the name by which a session's own temporary schema is meant. Others (pg_temp_3) may be another session's.
const tempSchema = "pg_temp"

// inTemp reports whether a name is of an object in the session's temporary schema.
func inTemp(names []string) bool { return len(names) == 2 && names[0] == tempSchema }

// leavesTemp makes the statement one after which the session has temporary objects that are no tables.
func (ch *schemaChange) leavesTemp(tag string) {
	ch.onDefault(tag)
	ch.st.Pins, ch.preferDefault = true, true
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
				WithHint("make the function in another schema"))
		}
	}
	name := sqltree.Strings(f.Funcname)[1]
	if own := builtin.Has(name); own {
		fail(sqlstate.Refusal("CLV-0826", "a function in pg_temp with the name of one of PostgreSQL's own (%s) is not supported", name).
			WithHint("give it another name"))
	}
	if f.IsProcedure || f.SqlBody != nil || !readable(language) {
		fail(sqlstate.Refusal("CLV-0827", "of functions in pg_temp only those in SQL and PL/pgSQL are supported, with the body as a text, and no procedures").
			WithHint("make it in another schema"))
	}
	for _, p := range f.Parameters {
		ch.expressions([]*pg.Node{p.GetFunctionParameter().GetDefexpr()})
	}
	b := newBody()
	b.reads = !returnsTrigger(f) // it is called where no statement names it
	read := language == "sql" && b.sql(code) || language == "plpgsql" && b.plpgsql(ch.sql)
	if !read || !ch.onlyDefault(b, code) {
		fail(sqlstate.Refusal("CLV-0828", "a function in pg_temp with this body is not supported: it could read or write rows that other shards have, or act on its session").
			WithHint("without EXECUTE, set_config() and the like, and sharded and reference tables, it is taken"))
	}
	ch.leavesTemp("CREATE FUNCTION")
}

// tempCall notes the call of a function in pg_temp, which is what createTempFunction lets through. It may write.
func (fx *effects) tempCall(names []string) {
	if fx.st.DDL != nil || fx.touched.defining {
		fail(sqlstate.Refusal("CLV-0829", "a function in pg_temp cannot be called in a definition").
			WithHint("make the function in another schema"))
	}
	fx.st.TempCall = true
	fx.temporaryCall, fx.preferDefault, fx.locks, fx.volatile = strings.Join(names, "."), true, true, true
}

// dropTemp is DROP of functions, if all of them are in pg_temp.
func (ch *schemaChange) dropTemp(d *pg.DropStmt, tag string) bool {
	for _, o := range d.Objects {
		if !inTemp(sqltree.Strings(o.GetObjectWithArgs().GetObjname())) {
			return false
		}
	}
	ch.onDefault(tag)
	ch.preferDefault = true
	return true
}
