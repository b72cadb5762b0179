package translate

import (
	"fmt"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// ViewColumns are the columns of a view's query, under the names given.
func (t *Translator) ViewColumns(query *pg.Node, names []*pg.Node) []catalog.Column {
	s := t.scope
	t.scope = nil
	q := t.query(query, queryOptions{resolve: true})
	t.scope = s
	if len(names) > len(q.targets) {
		fault.Raisef(sqlstate.SyntaxError, "CREATE VIEW specifies more column names than columns")
	}
	if len(t.params) > 0 {
		fault.Raisef(sqlstate.UndefinedParameter, "there is no parameter $1")
	}
	var cols []catalog.Column
	for i, target := range q.targets {
		name := target.name
		if i < len(names) {
			name = names[i].GetString_().GetSval()
		}
		for _, o := range cols {
			if o.Name == name {
				fault.Raisef(sqlstate.DuplicateColumn, "column \"%s\" specified more than once", name)
			}
		}
		if value.ClassOf(target.e.typ) == value.ClassNone {
			fault.Refuse("CLV-2195", "a view with a column of type %s", value.TypeName(target.e.typ))
		}
		cols = append(cols, catalog.Column{Num: int16(i + 1), Name: name, Type: target.e.typ, Mod: target.e.mod})
	}
	return cols
}

// viewItem translates a view in FROM: it sees nothing of the statement around it.
func (t *Translator) viewItem(v *pg.RangeVar, d *catalog.Table) (string, *rte) {
	tree, err := syntax.Tree(d.Viewed.Query)
	if err != nil || len(tree.Stmts) != 1 {
		fault.Raisef(sqlstate.DataCorrupted, "the definition of the view \"%s\" cannot be read", d.Name)
	}
	scope, text := t.scope, t.text
	t.scope, t.text = nil, ""
	q := t.query(tree.Stmts[0].Stmt, queryOptions{resolve: true})
	t.scope, t.text = scope, text
	if q.volatile {
		fault.Refuse("CLV-2204", "a volatile function in a view")
	}
	if len(q.targets) < len(d.Columns) {
		fault.Raisef(sqlstate.DataCorrupted, "the definition of the view \"%s\" has other columns now", d.Name)
	}
	alias := t.alias()
	r := &rte{alias: v.Relname, schema: d.Schema, sql: alias}
	if v.Alias != nil {
		r.alias, r.schema = v.Alias.Aliasname, ""
	}
	for i, col := range d.Columns {
		e := q.targets[i].e
		if e.typ != col.Type {
			fault.Raisef(sqlstate.DataCorrupted, "column \"%s\" of the view \"%s\" has another type now", col.Name, d.Name)
		}
		r.cols = append(r.cols, rteCol{name: col.Name, sql: alias + ".c" + fmt.Sprint(i+1), typ: e.typ, mod: e.mod, notNull: e.notNull, table: d.OID, attnum: col.Num})
	}
	renameColumns(r, v.Alias)
	return "(" + q.sql() + ") AS " + alias, r
}

// notView refuses what is for tables only.
func notView(d *catalog.Table) {
	if d.Viewed != nil {
		fault.Raise(sqlstate.Refusal("CLV-2205", `the relation "%s" is a view: on a SQLite shard it can only be read`, d.Name).
			WithHint("Name the table."))
	}
}
