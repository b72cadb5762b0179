package schema

import (
	"context"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// columnsSQL are the definitions of a table's columns, as CREATE TABLE has them.
const columnsSQL = `SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname) || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod) ||
 CASE WHEN a.attcollation <> t.typcollation THEN ' COLLATE ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname) ELSE '' END, ', ' ORDER BY a.attnum)
 FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
 LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = a.attcollation LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.collnamespace
 WHERE a.attnum > 0 AND a.attrelid = `

// columnsSave is the savepoint that takes back the table that Columns makes.
const columnsSave = `"cleave columns"`

// Columns are the columns that a table would have which a CREATE TABLE AS makes, as CREATE TABLE has
// them. The default shard says it: it makes the table, and takes that back.
func (t *Tx) Columns(ctx context.Context, as *planner.CreateAs) (string, error) {
	if err := t.usable(); err != nil {
		return "", err
	}
	p, err := t.open(ctx, t.base.State().DefaultShard)
	if err != nil {
		return "", t.fail(err)
	}
	if !p.can.Catalogue {
		return "", t.fail(sqlstate.Refuse("CREATE TABLE AS of a sharded or reference table is not supported where the default shard is no PostgreSQL", "create the table, then INSERT ... SELECT"))
	}
	for _, sql := range []string{"SAVEPOINT " + columnsSave, as.Probe} {
		if _, err := t.run(ctx, p, sql); err != nil {
			return "", t.fail(err)
		}
	}
	res, err := t.run(ctx, p, columnsSQL+quote(qualified(as.Table.Schema, as.Table.Name))+"::pg_catalog.regclass")
	if err != nil {
		return "", t.fail(err)
	}
	for _, sql := range []string{"ROLLBACK TO SAVEPOINT " + columnsSave, "RELEASE SAVEPOINT " + columnsSave} {
		if _, err := t.run(ctx, p, sql); err != nil {
			return "", t.fail(err)
		}
	}
	return res.Rows[0][0].String, nil
}
