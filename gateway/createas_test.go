package gateway_test

import (
	"testing"
)

// TestCreateTableAsSharded: the rows of a query make a sharded or a reference table.
func TestCreateTableAsSharded(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	for i, k := range keys {
		exec(t, conn, "INSERT INTO orders SELECT $1, n, 'n' || n FROM generate_series(1, $2::bigint) AS n", k[0], i+1)
	}
	exec(t, conn, "CREATE TYPE mood AS ENUM ('sad')")
	exec(t, conn, "CREATE TABLE whole AS SELECT 7 AS a")
	if tag := exec(t, conn, `CREATE TABLE copied WITH (fillfactor = 70, cleave.shard_key = 'tenant_id') AS SELECT *, note COLLATE "C" AS "No te", 1.5::numeric(5,2) AS price, 'x'::varchar(3) AS v FROM orders`); tag.String() != "SELECT 6" {
		t.Errorf("tag %s", tag)
	}
	if got := one[string](t, conn, "SELECT string_agg(n::text || m::text, ',') FROM (SELECT count(*) AS n, min(price) AS m FROM copied) x"); got != "61.50" {
		t.Error(got)
	}
	for i, k := range keys { // each row on its owner, guarded
		if got := cl.direct(t, i, "SELECT count(*) FROM copied"); got != string(rune('1'+i)) {
			t.Errorf("shard %d has %s rows", i, got)
		}
		if got := cl.direct(t, i, `SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'copied'::regclass AND attnum > 0`); got != "tenant_id bigint,id bigint,note text,No te text,price numeric(5,2),v character varying(3)" {
			t.Errorf("shard %d: %s", i, got)
		}
		if got := one[int](t, conn, "SELECT count(*) FROM copied WHERE tenant_id = $1", k[0]); got != i+1 {
			t.Errorf("key %d has %d rows", k[0], got)
		}
	}
	if tag := exec(t, conn, "CREATE TABLE few (t, n) WITH (cleave.shard_key = 't') AS SELECT id, count(*) FROM orders JOIN whole ON true GROUP BY id ORDER BY id LIMIT 2"); tag.String() != "SELECT 2" {
		t.Errorf("tag %s", tag)
	}
	if got := one[string](t, conn, "SELECT string_agg(t || ' ' || n, ',' ORDER BY t) FROM few"); got != "1 3,2 2" {
		t.Error(got)
	}
	exec(t, conn, "CREATE TABLE codes WITH (cleave.reference = true) AS SELECT id, 'c' || id AS code FROM few JOIN orders ON t = tenant_id OR true GROUP BY id")
	for i := range keys {
		if got := cl.direct(t, i, "SELECT count(*) FROM codes"); got != "3" {
			t.Errorf("shard %d has %s codes", i, got)
		}
	}
	if tag := exec(t, conn, "CREATE UNLOGGED TABLE empty WITH (cleave.shard_key = 'id') AS SELECT id, 'sad'::mood AS mood FROM orders WITH NO DATA"); tag.String() != "CREATE TABLE AS" {
		t.Errorf("tag %s", tag)
	}
	exec(t, conn, "INSERT INTO empty VALUES (1, 'sad')")
	exec(t, conn, "SELECT cleave.declare('said', shard_key => 'id')")
	exec(t, conn, "CREATE TABLE said AS SELECT i AS id FROM generate_series(1, 50) AS i")
	if got := cl.direct(t, 0, "SELECT count(*) FROM said"); got == "50" || got == "0" {
		t.Errorf("the first shard has %s of 50 rows", got)
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 100, 'x')", keys[0][0])
	exec(t, conn, "CREATE TABLE inside WITH (cleave.shard_key = 'tenant_id') AS SELECT * FROM orders")
	if got := one[int](t, conn, "SELECT count(*) FROM inside"); got != 7 {
		t.Error(got)
	}
	exec(t, conn, "ROLLBACK")
	exec(t, conn, "DO $$ BEGIN CREATE TABLE coded WITH (cleave.shard_key = 'tenant_id') AS SELECT * FROM orders; END $$")
	if got := one[int](t, conn, "SELECT count(*) FROM coded"); got != 6 {
		t.Error(got)
	}
	for sql, want := range map[string]string{
		"CREATE TABLE inside WITH (cleave.shard_key = 'tenant_id') AS SELECT * FROM inside":        "42P01",
		"CREATE TABLE copied WITH (cleave.shard_key = 'tenant_id') AS SELECT * FROM orders":        "42P07",
		"CREATE TABLE x1 WITH (cleave.shard_key = 'nosuch') AS SELECT * FROM orders":               "42703",
		"CREATE TABLE x2 WITH (cleave.shard_key = 'id') AS SELECT nosuch FROM orders":              "42703",
		"CREATE TABLE x3 WITH (cleave.shard_key = 'id') AS SELECT NULL::bigint AS id FROM orders":  "23502",
		"CREATE TABLE x4 WITH (cleave.shard_key = 'id') AS SELECT id, id FROM orders":              "42701",
		"CREATE TABLE x5 WITH (cleave.shard_key = 'id') AS SELECT 1 / (id - id) AS id FROM orders": "22012",
		"CREATE TEMP TABLE x6 WITH (cleave.shard_key = 'id') AS SELECT id FROM orders":             "0A000",
		"CREATE TABLE IF NOT EXISTS x7 WITH (cleave.shard_key = 'id') AS SELECT id FROM orders":    "0A000",
		"CREATE TABLE x8 WITH (cleave.shard_key = 'id') AS SELECT * FROM cleave.shards":            "0A000",
	} {
		wantCode(t, conn, want, sql)
	}
	for i := range keys {
		if got := cl.direct(t, i, `SELECT count(*) FROM pg_class WHERE relname ~ '^x\d$' OR relname = 'inside'`); got != "0" {
			t.Errorf("shard %d has %s tables of statements that failed", i, got)
		}
	}
}
