package planner

import (
	"errors"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/plpgsql"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// do lets a DO block run on the default shard if its code can be read (PL/pgSQL
// without EXECUTE, transaction control and changes of the schema), calls nothing but
// functions that read no table, and names tables of the default shard only. Others are
// carried out by the router, see block.go, or refused.
func (ch *schemaChange) do(d *pg.DoStmt) {
	code, language := "", "plpgsql"
	for _, n := range d.Args {
		switch o := n.GetDefElem(); o.GetDefname() {
		case "as":
			code = sqltree.DefText(o.Arg)
		case "language":
			language = sqltree.DefText(o.Arg)
		}
	}
	if language == "plpgsql" && ch.doDefault(code) {
		return
	}
	e := sqlstate.Refusal("CLV-1307", "DO with this code is not supported: it could read or write rows that other shards have").
		WithHint("Code in plain statements without variables and loops, or that names no sharded or reference table, is taken; run the statements one by one.")
	if language != "plpgsql" {
		fail(e)
	}
	block, err := plpgsql.Read(ch.p.parser(), code)
	var u *plpgsql.Unread
	switch {
	case errors.As(err, &u):
		fail(e.WithDetail("The router itself cannot carry it out: line %d: %s.", u.Line, u.What))
	case err != nil:
		fail(err)
	}
	if first, ok := ch.Snapshot.Shard(ch.Snapshot.State().DefaultShard); ok && !first.Can().Code {
		fail(sqlstate.Refusal("CLV-1308", "DO is not supported where the default shard is no PostgreSQL").
			WithHint("Run its statements one by one."))
	}
	ch.st.Kind, ch.st.Tag, ch.st.DDL, ch.st.Block = plan.BlockKind, "DO", nil, block
}

// doDefault is do for code that the default shard runs.
func (ch *schemaChange) doDefault(code string) bool {
	b := functions.NewBody()
	b.Reads = true
	if !b.ReadPLpgSQL("CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS " + sqltext.QuoteString(code)) {
		return false
	}
	if !ch.onlyDefault(b, code) {
		return false
	}
	ch.onDefault("DO")
	return true
}

// onlyDefault reports whether what was read of code calls nothing but functions that read no table, and
// names tables of the default shard only.
func (ch *schemaChange) onlyDefault(b *functions.Body, code string) bool {
	for name := range b.Calls {
		if own := builtin.Has(name); !own && ch.UserFunction([]string{name}) == nil {
			return false
		}
	}
	for name := range b.Fields {
		if ch.Snapshot.Unpromised(name) {
			return false
		}
	}
	for _, v := range b.Tables {
		r := ch.Relation(v)
		if r.Virtual || r.Schema == semantics.InternalSchema || r.View != nil && ch.ReachOf(r.View).Spread() || r.Table != nil && r.Table.Kind != shardmap.Whole {
			return false
		}
		if (r.Catalog || r.View != nil && ch.ReachOf(r.View).Catalog) && changesRows(code) {
			return false // it may write to it
		}
		if r.Table != nil {
			semantics.AddTable(&ch.st.Tables, r.Table)
		}
	}
	return true
}

// changesRows reports whether code has a word of a statement that changes rows.
func changesRows(code string) bool {
	return slices.ContainsFunc(sqlguard.Tokens(code), func(t sqlguard.Token) bool {
		return t.Is(code, "insert") || t.Is(code, "update") || t.Is(code, "delete") || t.Is(code, "merge")
	})
}

// callProcedure lets a procedure that is known to read no table run on the default shard.
func (ch *schemaChange) callProcedure(c *pg.CallStmt) bool {
	f := ch.UserFunction(sqltree.Strings(c.Funccall.GetFuncname()))
	if f == nil || f.Kind != "p" {
		return false
	}
	ch.expressions(c.Funccall.Args)
	if ch.Sharded != "" || ch.Reference != "" || ch.Virtual != "" {
		return false
	}
	ch.onDefault("CALL")
	ch.st.ReturnsRows = true // of procedures with OUT parameters
	return true
}

func (ch *schemaChange) onDefault(tag string) {
	ch.st.Kind, ch.st.Tag, ch.st.DDL, ch.st.ReadOnly = plan.DefaultShard, tag, nil, false
}
