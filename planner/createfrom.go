package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// createFrom makes a CREATE TABLE AS, or SELECT INTO, of sharded tables two things: a
// statement that makes the table without rows, which the default shard can run since
// it has all tables, and the query, whose rows are put in by the same transaction.
func (a *analyzer) createFrom() {
	d := a.Statement.DDL
	if d.Op != "create table as" {
		fail(sqlstate.Refusal("CLV-0942", "this cannot be made from the rows of sharded tables").
			WithHint("Use a view, or create a table and INSERT ... SELECT into it."))
	}
	tree, err := a.p.parse(a.SQL)
	if err != nil || len(tree.Stmts) != 1 {
		sourcetext.LostPlace()
	}
	n := tree.Stmts[0].Stmt
	c := n.GetCreateTableAsStmt()
	if c == nil {
		first := n.GetSelectStmt()
		for first != nil && first.Op != pg.SetOperation_SETOP_NONE {
			first = first.Larg
		}
		if first == nil || first.IntoClause == nil {
			fail(sqlstate.Refusal("CLV-1024", "EXPLAIN and cursors of a statement that makes a table of rows of several shards are not supported").
				WithHint("Use them with its query."))
		}
		c = &pg.CreateTableAsStmt{Into: first.IntoClause, Objtype: pg.ObjectType_OBJECT_TABLE, Query: n}
		first.IntoClause = nil
	}
	if len(a.Params) > 0 {
		fail(sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $1"))
	}
	if c.IfNotExists {
		fail(sqlstate.Refusal("CLV-0943", "CREATE TABLE IF NOT EXISTS ... AS with rows of sharded tables is not supported").
			WithHint("Leave IF NOT EXISTS out."))
	}
	if !c.Into.SkipData {
		d.Source = a.written(c.Query)
	}
	c.Into.SkipData = true
	a.Statement.Text = a.written(&pg.Node{Node: &pg.Node_CreateTableAsStmt{CreateTableAsStmt: c}})
}

// columnMark stands for the columns in a statement that is written.
const columnMark = "cleave columns"

// createSpread takes a CREATE TABLE AS with options of Cleave's, or of a table that is declared.
func (a *analyzer) createSpread(c *pg.CreateTableAsStmt) bool {
	options, rel := tableOptions(c.Into.GetOptions()), c.Into.GetRel()
	switch {
	case isTemp(rel) && len(options.at) > 0:
		fail(sqlstate.Refusal("CLV-0816", "a temporary table cannot be sharded").WithHint("Leave the options cleave.* out."))
	case isTemp(rel):
		return false
	}
	name := createdName(&a.Namespace, rel)
	if len(options.at) == 0 && a.Snapshot.Declaration(name.Schema, name.Name) == nil {
		return false
	}
	if c.IfNotExists {
		fail(sqlstate.Refusal("CLV-0944", "CREATE TABLE IF NOT EXISTS ... AS of a sharded or reference table is not supported").
			WithHint("Leave IF NOT EXISTS out."))
	}
	as := &plan.CreateAs{Table: name}
	mark := &pg.Node{Node: &pg.Node_ColumnDef{ColumnDef: &pg.ColumnDef{Colname: columnMark, IsLocal: true, TypeName: &pg.TypeName{Names: []*pg.Node{pg.MakeStrNode("date")}, Typemod: -1}}}}
	text := a.written(&pg.Node{Node: &pg.Node_CreateStmt{CreateStmt: &pg.CreateStmt{Relation: rel, TableElts: []*pg.Node{mark}, Options: c.Into.Options, AccessMethod: c.Into.AccessMethod,
		Tablespacename: c.Into.TableSpaceName, Oncommit: c.Into.OnCommit}}})
	word := `"` + columnMark + `" date`
	if strings.Count(text, word) != 1 {
		sourcetext.LostPlace()
	}
	as.Head, as.Tail, _ = strings.Cut(text, word)
	if !c.Into.SkipData {
		as.Query = a.written(c.Query)
		as.Insert = "INSERT INTO " + sqltext.QuoteIdent(name.Schema) + "." + sqltext.QuoteIdent(name.Name) + " " + as.Query
	}
	probe := sqltree.Clone(c)
	probe.Into.SkipData, probe.Into.Options = true, nil
	as.Probe = a.written(&pg.Node{Node: &pg.Node_CreateTableAsStmt{CreateTableAsStmt: probe}})
	a.Statement.Kind, a.Statement.Tag, a.Statement.DDL.Op, a.Statement.DDL.As, a.Statement.DDL.AllShards = plan.DDLKind, "SELECT", "create table as", as, true
	return true
}
