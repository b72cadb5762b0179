package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/sqlstate"
)

// Temporary tables are in a conversation with the default shard that the session
// keeps. The planner sees names that the map does not know, which are the default
// shard's; the session, which knows its temporary tables, refuses what would mean a
// table of the map that one of them hides.

func isTemp(v *pg.RangeVar) bool {
	return v.GetRelpersistence() == "t" || strings.HasPrefix(v.GetSchemaname(), "pg_temp")
}

// pins makes the statement one that makes a temporary table or view.
func (a *analyzer) pins(v *pg.RangeVar, tag string) {
	if v.Schemaname != "" && !strings.HasPrefix(v.Schemaname, "pg_temp") {
		return // an error, which PostgreSQL words
	}
	if r := a.relation(&pg.RangeVar{Relname: v.Relname}); r.table != nil || r.view != nil {
		refuse("a temporary table cannot have the name of "+quoteName(r.schema, r.name)+", which it would hide", "give it another name")
	}
	st := a.st
	st.Kind, st.Tag, st.DDL, st.ReturnsRows, st.ReadOnly = DefaultShard, tag, nil, false, false
	st.Pins, st.Temp = true, v.Relname
	a.preferDefault = true
}

func (a *analyzer) createTemp(c *pg.CreateStmt) {
	if len(a.tableOptions(c.Options).at) > 0 {
		refuse("a temporary table cannot be sharded", "leave the options cleave.* out")
	}
	for _, n := range append(append([]*pg.Node(nil), c.TableElts...), c.Constraints...) {
		if col := n.GetColumnDef(); col != nil {
			for _, k := range col.Constraints {
				a.expressions([]*pg.Node{k.GetConstraint().GetRawExpr()})
			}
		}
		a.expressions([]*pg.Node{n.GetConstraint().GetRawExpr(), n.GetConstraint().GetWhereClause()})
	}
	for _, n := range c.InhRelations {
		if r := a.relation(n.GetRangeVar()); r.table != nil {
			refuse("a temporary table that inherits from "+quoteName(r.schema, r.name)+" is not supported", "use LIKE")
		}
	}
	a.pins(c.Relation, "CREATE TABLE")
}

// tempAs is CREATE TEMP TABLE AS and SELECT INTO TEMP. Of rows of sharded tables it is
// two things, see createFrom, which the session runs.
func (a *analyzer) tempAs(into *pg.IntoClause) {
	a.into = nil
	if a.second != nil {
		a.second.planning = true // what is refused is refused for good
	}
	if a.virtual != "" {
		refuse("a temporary table cannot be created from the rows of "+a.virtual, "create the table first, then insert what a query of its own gave")
	}
	a.pins(into.Rel, "SELECT")
	if a.sharded == "" {
		return
	}
	if !a.st.Pins {
		fail(sqlstate.New(sqlstate.InvalidTableDefinition, "cannot create temporary relation in non-temporary schema"))
	}
	a.st.Kind, a.st.DDL = DDLKind, &DDL{Op: "create table as"}
	a.finish()
}

func (a *analyzer) tempView(v *pg.ViewStmt) {
	if v.Query.GetSelectStmt() == nil {
		refuse("this kind of view is not supported", "")
	}
	a.readsNoSettings(v.Query)
	if err := a.define(v.Query.GetSelectStmt()); err != nil {
		fail(err)
	}
	if a.has.catalog {
		// The router does not know temporary views, so it could not refuse to write through it.
		refuse("a temporary view of system catalogs is not supported", "create a view that lasts, or use WITH")
	}
	if a.has.sharded {
		refuse("a temporary view over sharded tables is not supported", "create a view that lasts, or use WITH")
	}
	a.pins(v.View, "CREATE VIEW")
}
