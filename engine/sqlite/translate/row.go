package translate

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/sqlstate"
)

// Check translates a CHECK or index predicate of a table.
func (t *Translator) Check(d *catalog.Table, text string) string {
	n, err := syntax.Expr(text)
	if err != nil {
		fault.Raise(err)
	}
	row := t.rowOf(d, "check constraints")
	e := row.boolean(n, "CHECK")
	if row.volatile > 0 {
		fault.Refuse("CLV-2042", "a volatile function in a constraint or index")
	}
	return e.sql
}

// rowOf translates expressions over one row of a table.
func (t *Translator) rowOf(d *catalog.Table, clause string) *Translator {
	row := New(t.Names, t.loc, "")
	row.inCheck, row.fixed = true, true
	row.push()
	row.scope.sel.clause = clause
	r := &rte{alias: d.Name, sql: "", table: d}
	for _, col := range d.Live() {
		r.cols = append(r.cols, rteCol{name: col.Name, sql: quote.Ident(col.Name), typ: col.Type, mod: col.Mod})
	}
	row.scope.rtes = []*rte{r}
	return row
}

// Conversion is what a column of the table holds after its type has changed: USING's expression, nil for the value it has.
func (t *Translator) Conversion(d *catalog.Table, col *catalog.Column, using *pg.Node, typ uint32, mod int32) string {
	row := t.rowOf(d, "transform expressions")
	val := expr{sql: quote.Ident(col.Name), typ: col.Type, mod: col.Mod}
	if using != nil {
		val = row.expr(using)
	}
	from := val.typ
	val, ok := row.tryCoerce(val, typ, mod, pgcatalog.Assignment)
	if !ok {
		fault.Raisef(sqlstate.DatatypeMismatch, "result of USING clause for column \"%s\" cannot be cast automatically to type %s from %s", col.Name, value.TypeName(typ), value.TypeName(from))
	}
	return val.sql
}

// DefaultSQL is the SQL of a column's default, converted for storing.
func (t *Translator) DefaultSQL(d *catalog.Table, c *catalog.Column) string {
	return t.defaultOf(d, c).sql
}

// CheckDefault looks whether a column's default can be evaluated.
func (t *Translator) CheckDefault(d *catalog.Table, c *catalog.Column) {
	sub := New(t.Names, t.loc, c.Default)
	sub.fixed = true
	sub.defaultOf(d, c)
	if sub.aliases > 0 {
		fault.Raisef(sqlstate.FeatureNotSupported, "cannot use subquery in DEFAULT expression")
	}
}
