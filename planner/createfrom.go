package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/sqlstate"
)

// createFrom makes a CREATE TABLE AS, or SELECT INTO, of sharded tables two things: a
// statement that makes the table without rows, which the default shard can run since
// it has all tables, and the query, whose rows are put in by the same transaction.
func (a *analyzer) createFrom() {
	d := a.st.DDL
	if d.Op != "create table as" {
		refuse("this cannot be made from the rows of sharded tables", "use a view, or create a table and INSERT ... SELECT into it")
	}
	tree, err := a.p.parse(a.sql)
	if err != nil || len(tree.Stmts) != 1 {
		a.lost()
	}
	n := tree.Stmts[0].Stmt
	c := n.GetCreateTableAsStmt()
	if c == nil {
		first := n.GetSelectStmt()
		for first != nil && first.Op != pg.SetOperation_SETOP_NONE {
			first = first.Larg
		}
		if first == nil || first.IntoClause == nil {
			refuse("EXPLAIN and cursors of a statement that makes a table of rows of several shards are not supported", "use them with its query")
		}
		c = &pg.CreateTableAsStmt{Into: first.IntoClause, Objtype: pg.ObjectType_OBJECT_TABLE, Query: n}
		first.IntoClause = nil
	}
	if len(a.params) > 0 {
		fail(sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $1"))
	}
	if c.IfNotExists {
		refuse("CREATE TABLE IF NOT EXISTS ... AS with rows of sharded tables is not supported", "leave IF NOT EXISTS out")
	}
	if !c.Into.SkipData {
		d.Source = a.written(c.Query)
	}
	c.Into.SkipData = true
	a.st.Text = a.written(&pg.Node{Node: &pg.Node_CreateTableAsStmt{CreateTableAsStmt: c}})
}
