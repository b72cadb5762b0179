package enginetest

import (
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

// runView is about views that are read.
func runView(t *testing.T, h Harness) {
	s := h.Open(t)
	c, other := connect(t, s), connect(t, s)
	c.do(`CREATE TABLE item (id bigint PRIMARY KEY, name text, price numeric(10,2))`, `INSERT INTO item VALUES (1, 'a', 1.5), (2, 'b', NULL), (3, 'a', 2)`, `CREATE SCHEMA shop`)
	same(t, "tag", c.do(`CREATE VIEW cheap AS SELECT * FROM item WHERE price < 2`).tags(), []string{"CREATE VIEW"})
	c.do(`CREATE VIEW shop.names (name, n) AS SELECT i.name, count(*) FROM item i GROUP BY i.name`, `CREATE VIEW nested AS SELECT n.name AS label, n.n * 2 AS twice FROM shop.names n`,
		`CREATE VIEW cte AS WITH x AS (SELECT id FROM item) SELECT x.id FROM x UNION ALL SELECT 0`)

	t.Run("read", func(t *testing.T) {
		for _, q := range []struct {
			sql  string
			want []string
		}{
			{`SELECT * FROM cheap`, []string{"1|a|1.50"}},
			{`SELECT c.id FROM cheap AS c WHERE c.name = 'a'`, []string{"1"}},
			{`SELECT * FROM shop.names ORDER BY name`, []string{"a|2", "b|1"}},
			{`SELECT label, twice FROM nested ORDER BY label DESC`, []string{"b|2", "a|4"}},
			{`SELECT * FROM cte ORDER BY 1`, []string{"0", "1", "2", "3"}},
			{`SELECT i.id, v.n FROM item i JOIN shop.names v ON v.name = i.name ORDER BY i.id`, []string{"1|2", "2|1", "3|2"}},
			{`SELECT (SELECT max(n) FROM shop.names WHERE name = i.name) FROM item i ORDER BY i.id`, []string{"2", "1", "2"}},
			{`SELECT name FROM item WHERE id IN (SELECT id FROM cheap)`, []string{"a"}},
			{`SELECT l.x FROM nested AS l(x, y) ORDER BY 1`, []string{"a", "b"}},
		} {
			same(t, q.sql, other.do(q.sql).rows(), q.want)
			same(t, q.sql, other.prepared(q.sql, nil).rows(), q.want)
		}
		c.do(`INSERT INTO item VALUES (4, 'c', 0.5)`)
		same(t, "new rows", other.do(`SELECT count(*) FROM cheap`).rows(), []string{"2"})
		c.do(`ALTER TABLE item ADD COLUMN extra text`)
		same(t, "columns", other.do(`SELECT * FROM cheap WHERE id = 4`).rows(), []string{"4|c|0.50"})
		other.do(`BEGIN`, `SET LOCAL search_path TO shop`)
		same(t, "another search_path", other.do(`SELECT count(*) FROM public.nested`).rows(), []string{"3"})
		other.do(`ROLLBACK`)
	})
	t.Run("catalogue", func(t *testing.T) {
		same(t, "pg_class", c.do(`SELECT relname, relkind FROM pg_class WHERE relname IN ('cheap', 'names', 'item') ORDER BY 1`).rows(), []string{"cheap|v", "item|r", "names|v"})
		same(t, "columns", c.do(`SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'cheap' ORDER BY ordinal_position`).rows(), []string{"id|bigint", "name|text", "price|numeric"})
		same(t, "tables", c.do(`SELECT table_schema, table_type FROM information_schema.tables WHERE table_name = 'names'`).rows(), []string{"shop|VIEW"})
		same(t, "visible", c.do(`SELECT relname FROM pg_class WHERE relkind = 'v' AND pg_table_is_visible(oid) AND relnamespace = 'public'::regnamespace ORDER BY 1`).rows(), []string{"cheap", "cte", "nested"})
		same(t, "pg_views", c.do(`SELECT viewname FROM pg_views WHERE schemaname = 'shop'`).rows(), []string{"names"})
		same(t, "text", c.do(`SELECT pg_get_viewdef('cheap'::regclass) IS NOT NULL`).rows(), []string{"t"})
	})
	t.Run("errors", func(t *testing.T) {
		for sql, code := range map[string]sqlstate.Code{
			`CREATE VIEW cheap AS SELECT 1`:                                          sqlstate.DuplicateTable,
			`CREATE TABLE cheap (id bigint)`:                                         sqlstate.DuplicateTable,
			`CREATE VIEW w AS SELECT 1 AS a, 2 AS a`:                                 sqlstate.DuplicateColumn,
			`CREATE VIEW w AS SELECT * FROM nothing`:                                 sqlstate.UndefinedTable,
			`CREATE OR REPLACE VIEW cheap AS SELECT id FROM item`:                    "42P16",
			`CREATE OR REPLACE VIEW cheap AS SELECT name, id, price FROM item`:       "42P16",
			`CREATE OR REPLACE VIEW cheap AS SELECT id::text, name, price FROM item`: "42P16",
			`DROP TABLE item`:      sqlstate.DependentObjects,
			`DROP VIEW shop.names`: sqlstate.DependentObjects,
			`DROP TABLE cheap`:     sqlstate.WrongObjectType,
			`DROP VIEW item`:       sqlstate.WrongObjectType,
			`DROP VIEW nothing`:    sqlstate.UndefinedTable,
			`DROP SCHEMA shop`:     sqlstate.DependentObjects,
		} {
			same(t, sql, c.query(sql).code(), code)
		}
	})
	t.Run("replace and drop", func(t *testing.T) {
		c.do(`CREATE OR REPLACE VIEW cheap AS SELECT id, name, price, id + 1 AS next FROM item WHERE price < 1`)
		same(t, "replaced", other.do(`SELECT next FROM cheap`).rows(), []string{"5"})
		c.do(`BEGIN`, `DROP VIEW cheap`, `ROLLBACK`)
		same(t, "rolled back", other.do(`SELECT next FROM cheap`).rows(), []string{"5"})
		same(t, "tag", c.do(`DROP VIEW cheap`).tags(), []string{"DROP VIEW"})
		same(t, "dropped", other.query(`SELECT next FROM cheap`).code(), sqlstate.UndefinedTable)
		c.do(`DROP VIEW IF EXISTS cheap`, `DROP TABLE item CASCADE`)
		same(t, "all are gone", c.do(`SELECT count(*) FROM pg_class WHERE relkind = 'v' AND relname IN ('cheap', 'names', 'nested', 'cte')`).rows(), []string{"0"})
	})
}
