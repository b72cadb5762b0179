package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
)

// TestViews: a view over sharded tables is planned as its query, follows what
// happens to its tables, and goes with them.
func TestViews(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	exec(t, conn, `CREATE TABLE plain (id bigint, note text)`)
	exec(t, conn, `CREATE TABLE kinds (id bigint PRIMARY KEY, label text) WITH (cleave.reference = true)`)
	exec(t, conn, `CREATE VIEW noted AS SELECT tenant_id AS tenant, id, upper(note) AS note FROM orders WHERE note IS NOT NULL`)
	exec(t, conn, `CREATE VIEW loud (t, n) AS SELECT tenant, note FROM noted`)
	exec(t, conn, `CREATE VIEW plains AS SELECT * FROM plain`)
	exec(t, conn, `CREATE VIEW labels AS SELECT label FROM kinds`)
	for shard, ks := range keys {
		exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a'), ($1, 2, NULL), ($1, 3, $2)`, ks[0], string(rune('x'+shard)))
	}
	exec(t, conn, `INSERT INTO plain VALUES (1, 'p')`)
	for shard := range keys {
		if n := cl.direct(t, shard, `SELECT count(*) FROM pg_views WHERE schemaname = 'public' AND viewname IN ('noted', 'loud', 'labels')`); n != "3" {
			t.Errorf("shard %d has %s of the views", shard, n)
		}
	}
	if got := one[string](t, conn, `SELECT string_agg(note, ',' ORDER BY id) FROM noted WHERE tenant = $1`, keys[1][0]); got != "A,Y" {
		t.Errorf("noted gives %q", got)
	}
	if got := one[int64](t, conn, `SELECT count(*) FROM noted AS n JOIN loud ON loud.t = n.tenant WHERE n.tenant = $1`, keys[0][0]); got != 4 {
		t.Errorf("the join of two views gives %d rows", got)
	}
	if got := one[string](t, conn, `SELECT string_agg(n, ',' ORDER BY n) FROM loud WHERE t = $1 AND n <> 'A'`, keys[2][0]); got != "Z" {
		t.Errorf("loud gives %q", got)
	}
	if got := one[int64](t, conn, `SELECT count(*) FROM plains, labels`); got != 0 {
		t.Errorf("a view of the default shard joined with one of a reference table gives %d rows", got)
	}
	hidesInternals(t, conn)
	exec(t, conn, `CREATE TABLE parent (id int PRIMARY KEY)`)
	exec(t, conn, `CREATE TABLE child (x int) INHERITS (parent)`)
	exec(t, conn, `CREATE TABLE beside (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')`)
	exec(t, conn, `DROP TABLE beside, parent CASCADE`)
	if n := one[int64](t, conn, `SELECT count(*) FROM cleave.tables WHERE name IN ('beside', 'parent', 'child')`); n != 0 {
		t.Errorf("%d dropped tables are in the map", n)
	}
	// Writes through a view would reach one shard only.
	wantCode(t, conn, "0A000", `UPDATE noted SET note = 'x' WHERE tenant = 5`)
	wantCode(t, conn, "", `INSERT INTO plains VALUES (2, 'q')`)
	if got := one[int64](t, conn, `SELECT count(*) FROM plain`); got != 2 {
		t.Errorf("plain has %d rows", got)
	}
	// The definition follows.
	exec(t, conn, `ALTER TABLE orders RENAME COLUMN note TO remark`)
	exec(t, conn, `ALTER VIEW loud RENAME TO louder`)
	if got := one[string](t, conn, `SELECT string_agg(n, ',' ORDER BY n) FROM louder WHERE t = $1`, keys[0][0]); got != "A,X" {
		t.Errorf("louder gives %q", got)
	}
	wantCode(t, conn, "42P01", `SELECT * FROM loud WHERE t = 5`)
	exec(t, conn, `CREATE OR REPLACE VIEW noted AS SELECT tenant_id AS tenant, id, lower(remark) AS note FROM orders`)
	if got := one[int64](t, conn, `SELECT count(*) FROM noted WHERE tenant = $1`, keys[0][0]); got != 3 {
		t.Errorf("noted has %d rows", got)
	}
	// In a transaction, rolled back.
	tx, err := conn.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `CREATE VIEW brief AS SELECT id FROM orders`)
	exec(t, conn, `DROP VIEW louder`)
	wantCode(t, conn, "42P01", `SELECT * FROM louder WHERE t = 5`)
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, conn, "", `SELECT * FROM louder WHERE t = 5`)
	wantCode(t, conn, "42P01", `SELECT * FROM brief`)
	wantCode(t, conn, "2BP01", `DROP TABLE orders`)
	exec(t, conn, `DROP TABLE orders CASCADE`)
	snap := cl.ex.Snapshot().State()
	var names []string
	for _, v := range snap.Views {
		names = append(names, v.Name)
	}
	if !slices.Equal(names, []string{"labels", "plains"}) {
		t.Errorf("the map has the views %v", names)
	}
}

// TestFunctions: functions that read no table may be called everywhere.
func TestFunctions(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	exec(t, conn, `CREATE FUNCTION shout(t text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT upper(t) || '!' $$`)
	exec(t, conn, `CREATE FUNCTION twice(n bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE r bigint;
BEGIN
  IF n IS NULL THEN RAISE EXCEPTION 'no number: %', n; END IF;
  r := n * 2;
  RETURN r;
END $$`)
	exec(t, conn, `CREATE FUNCTION four(n bigint) RETURNS bigint LANGUAGE sql AS 'SELECT twice(twice(n))'`)
	exec(t, conn, `CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders'`)
	exec(t, conn, `CREATE FUNCTION hidden(t text) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint; BEGIN EXECUTE 'SELECT count(*) FROM ' || t INTO n; RETURN n; END $$`)
	exec(t, conn, `CREATE FUNCTION indirect() RETURNS bigint LANGUAGE sql AS 'SELECT counted()'`)
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a')`, keys[1][0])
	if got := one[string](t, conn, `SELECT shout(note) || four(id) FROM orders WHERE tenant_id = $1`, keys[1][0]); got != "A!4" {
		t.Errorf("the functions give %q", got)
	}
	if got := one[int64](t, conn, `SELECT public.four(2)`); got != 8 {
		t.Errorf("four(2) is %d", got)
	}
	for _, sql := range []string{`SELECT counted()`, `SELECT hidden('orders')`, `SELECT indirect()`, `SELECT hidden(note) FROM orders WHERE tenant_id = 5`} {
		wantCode(t, conn, "0A000", sql)
	}
	// A function that others rely on stays what it is.
	wantCode(t, conn, "0A000", `CREATE OR REPLACE FUNCTION twice(n bigint) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders'`)
	wantCode(t, conn, "", `SELECT four(1)`)
	// Triggers whose functions read nothing.
	exec(t, conn, `CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := 'marked ' || NEW.note; RETURN NEW; END $$`)
	exec(t, conn, `CREATE FUNCTION copied() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO orders VALUES (NEW.*); RETURN NEW; END $$`)
	exec(t, conn, `CREATE TRIGGER marks BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION mark()`)
	wantCode(t, conn, "0A000", `CREATE TRIGGER copies BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION copied()`)
	for _, ks := range keys {
		exec(t, conn, `INSERT INTO orders VALUES ($1, 7, 'x')`, ks[1])
		if got := one[string](t, conn, `SELECT note FROM orders WHERE tenant_id = $1`, ks[1]); got != "marked x" {
			t.Errorf("the trigger left %q", got)
		}
	}
	exec(t, conn, `COMMENT ON TRIGGER marks ON orders IS 'a comment'`)
	exec(t, conn, `COMMENT ON FUNCTION shout(text) IS 'a comment'`)
	exec(t, conn, `COMMENT ON INDEX orders_pkey IS 'a comment'`)
	exec(t, conn, `DROP TRIGGER marks ON orders`)
	exec(t, conn, `DROP FUNCTION mark()`)
	exec(t, conn, `GRANT SELECT ON orders TO PUBLIC`)
	exec(t, conn, `REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC`)
	exec(t, conn, `CREATE EXTENSION IF NOT EXISTS plpgsql`)
	for shard := range keys {
		if n := cl.direct(t, shard, `SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'public'`); n != "7" {
			t.Errorf("shard %d has %s functions", shard, n)
		}
	}
	// A new shard has all of it.
	found, err := cl.ops.Doctor(context.Background(), admin.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Level == "error" {
			t.Errorf("%+v", f)
		}
	}
}

// TestMaintenance: what runs on every shard outside of transactions has one result.
func TestMaintenance(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	for _, ks := range keys {
		exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a'), ($1, 2, 'b')`, ks[0])
	}
	count := func(sql string) string {
		t.Helper()
		all := ""
		for shard := range keys {
			all += cl.direct(t, shard, sql)
		}
		return all
	}
	for _, sql := range []string{`VACUUM orders`, `ANALYZE orders`, `VACUUM (ANALYZE) orders`, `ANALYZE`, `REINDEX TABLE orders`, `REINDEX TABLE CONCURRENTLY orders`} {
		wantCode(t, conn, "", sql)
	}
	if got := count(`SELECT last_analyze IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'orders'`); got != "ttt" {
		t.Errorf("analyzed: %s", got)
	}
	indexes := `SELECT count(*) FROM pg_indexes WHERE tablename = 'orders'`
	exec(t, conn, `CREATE INDEX CONCURRENTLY orders_note ON orders (note)`)
	if got := count(indexes); got != "222" {
		t.Errorf("the shards have %s indexes", got)
	}
	// It fails on the last shard: none keeps it.
	exec(t, conn, `INSERT INTO orders VALUES ($1, 3, 'b')`, keys[2][0])
	wantCode(t, conn, "23505", `CREATE UNIQUE INDEX CONCURRENTLY orders_unique ON orders (tenant_id, note)`)
	if got := count(indexes); got != "222" {
		t.Errorf("after a failure the shards have %s indexes", got)
	}
	wantCode(t, conn, "42P07", `CREATE INDEX CONCURRENTLY orders_note ON orders (id)`)
	if got := count(indexes); got != "222" {
		t.Errorf("after another failure the shards have %s indexes", got)
	}
	wantCode(t, conn, "0A000", `CREATE INDEX CONCURRENTLY ON orders (id)`)
	pipelines(t, conn)
	exec(t, conn, `CREATE TABLE alone (id int)`)
	exec(t, conn, `CREATE INDEX CONCURRENTLY alone_id ON alone (id)`)
	exec(t, conn, `DROP INDEX CONCURRENTLY alone_id`)
	exec(t, conn, `DROP INDEX CONCURRENTLY orders_note`)
	if got := count(indexes); got != "111" {
		t.Errorf("at the end the shards have %s indexes", got)
	}
	// What only the default shard has, in one statement with what all have.
	for _, sql := range []string{`CREATE TABLE plain (id bigint)`, `CREATE INDEX plain_id ON plain (id)`, `CREATE TABLE kinds (id bigint PRIMARY KEY) WITH (cleave.reference = true)`,
		`CREATE VIEW noted AS SELECT note FROM orders`, `CREATE VIEW plains AS SELECT id FROM plain`, `INSERT INTO plain VALUES (1)`,
		`DROP INDEX CONCURRENTLY plain_id`, `VACUUM plain, orders`, `ANALYZE orders (note), plain (id)`,
		`GRANT SELECT ON orders, plain, kinds, noted, plains TO pg_monitor`, `REVOKE SELECT ON plain, noted FROM pg_monitor`} {
		wantCode(t, conn, "", sql)
	}
	if got := count(`SELECT string_agg(relname, ',' ORDER BY relname) || ' ' FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') AND has_table_privilege('pg_monitor', oid, 'SELECT')`); got != "kinds,orders,plains kinds,orders kinds,orders " {
		t.Errorf("may be read: %s", got)
	}
	wantCode(t, conn, "0A000", `CREATE TEMP TABLE short (id int)`+`; DROP TABLE short, orders`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `TRUNCATE plain, orders RESTART IDENTITY`)
	if n := one[int](t, conn, `SELECT count(*)::int FROM orders WHERE tenant_id = $1`, keys[1][0]); n != 0 {
		t.Errorf("after TRUNCATE there are %d rows", n)
	}
	exec(t, conn, `ROLLBACK`)
	if got := count(`SELECT count(*) FROM orders`) + cl.direct(t, 0, `SELECT count(*) FROM plain`); got != "2231" {
		t.Errorf("after ROLLBACK there are %s rows", got)
	}
	exec(t, conn, `TRUNCATE orders, plain`)
	if got := count(`SELECT count(*) FROM orders`) + cl.direct(t, 0, `SELECT count(*) FROM plain`); got != "0000" {
		t.Errorf("after TRUNCATE there are %s rows", got)
	}
	truncatesAll(t, cl, conn)
	wantCode(t, conn, "42P01", `DROP TABLE kinds, plain, nope CASCADE`)
	exec(t, conn, `DROP TABLE IF EXISTS kinds, plain, nope CASCADE`)
	exec(t, conn, `DROP VIEW noted`)
	if got := count(`SELECT count(*) FROM pg_class WHERE relname IN ('kinds', 'plain', 'plains')`); got != "000" {
		t.Errorf("after DROP TABLE there are %s", got)
	}
	// A dropped table leaves nothing behind.
	functions := `SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'cleave_internal' AND proname LIKE 'guard%'`
	if got := count(functions); got != "222" {
		t.Errorf("the guards have %s functions", got)
	}
	exec(t, conn, `DROP TABLE orders`)
	if got := count(functions); got != "000" {
		t.Errorf("after DROP TABLE the guards have %s functions", got)
	}
}

// pipelines: what ends its transaction itself may be the first of several messages before a Sync, and no later one; it is
// committed then, whatever comes after it.
func pipelines(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run := func(list ...string) (got string) {
		t.Helper()
		p := conn.PgConn().StartPipeline(t.Context())
		for _, sql := range list {
			p.SendQueryParams(sql, nil, nil, nil, nil)
		}
		if err := p.Sync(); err != nil {
			t.Fatal(err)
		}
		for {
			r, err := p.GetResults()
			if rr, ok := r.(*pgconn.ResultReader); ok {
				res := rr.Read()
				if err = res.Err; err == nil {
					got += res.CommandTag.String() + ";"
				}
			}
			var said *pgconn.PgError
			switch _, end := r.(*pgconn.PipelineSync); {
			case errors.As(err, &said):
				got += said.Code + " " + said.Message
			case err != nil:
				t.Fatal(err)
			case end:
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				return got
			}
		}
	}
	const made, gone = `CREATE INDEX CONCURRENTLY orders_piped ON orders (note)`, `DROP INDEX CONCURRENTLY orders_piped`
	for _, c := range []struct {
		list []string
		want string
	}{
		{[]string{made, `SELECT 1`}, "CREATE INDEX;SELECT 1;"},
		{[]string{gone, `SELECT nosuch`}, `DROP INDEX;42703 column "nosuch" does not exist`},
		{[]string{made, `REINDEX TABLE CONCURRENTLY orders`, gone}, "CREATE INDEX;REINDEX;DROP INDEX;"},
		{[]string{`SELECT 1`, made}, "SELECT 1;25001 CREATE INDEX CONCURRENTLY cannot be executed within a pipeline"},
		{[]string{`SELECT 1`, `VACUUM orders`}, "SELECT 1;25001 VACUUM cannot be executed within a pipeline"},
		{[]string{`SELECT 1`, `DISCARD ALL`}, "SELECT 1;25001 DISCARD ALL cannot be executed within a pipeline"},
		{[]string{`BEGIN`, `COMMIT`, made, gone}, "BEGIN;COMMIT;CREATE INDEX;DROP INDEX;"},
		{[]string{`BEGIN`, gone}, "BEGIN;25001 DROP INDEX CONCURRENTLY cannot run inside a transaction block"},
	} {
		if got := run(c.list...); got != c.want {
			t.Errorf("%q: %s, want %s", c.list, got, c.want)
		}
	}
	exec(t, conn, `ROLLBACK`)
}

// truncatesAll: one TRUNCATE of tables of several keyspaces and kinds, as tools send it that clean a test's database. The
// cluster has the reference table kinds.
func truncatesAll(t *testing.T, cl *cluster, conn *pgx.Conn) {
	t.Helper()
	for _, sql := range []string{`CREATE TABLE bills (tenant_id bigint, id bigserial, kind bigint REFERENCES kinds (id), PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`,
		`CREATE TABLE lines (tenant_id bigint, bill bigint, n bigserial, FOREIGN KEY (tenant_id, bill) REFERENCES bills (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`,
		`CREATE TABLE places (name text PRIMARY KEY, kind bigint REFERENCES kinds (id)) WITH (cleave.shard_key = 'name')`,
		`CREATE TABLE shelves (id serial PRIMARY KEY, kind bigint REFERENCES kinds (id))`, `CREATE TABLE loose (a int)`} {
		exec(t, conn, sql)
	}
	count := func() (rows string) {
		for _, table := range []string{"kinds", "bills", "lines", "places", "shelves", "loose"} {
			rows += one[string](t, conn, `SELECT count(*)::text FROM `+table) + " "
		}
		return rows
	}
	fill := func() {
		exec(t, conn, `INSERT INTO kinds VALUES (1), (2)`)
		exec(t, conn, `INSERT INTO bills (tenant_id, kind) SELECT g, 1 FROM generate_series(1, 20) AS g`)
		exec(t, conn, `INSERT INTO lines (tenant_id, bill) SELECT tenant_id, id FROM bills`)
		exec(t, conn, `INSERT INTO places SELECT 'place ' || g, 2 FROM generate_series(1, 20) AS g`)
		exec(t, conn, `INSERT INTO shelves (kind) VALUES (1), (2), (1)`)
		exec(t, conn, `INSERT INTO loose VALUES (1)`)
	}
	const full = "2 20 20 20 3 1 "
	for _, test := range []struct{ sql, left, next string }{
		{`TRUNCATE kinds, bills, lines, places, shelves, loose RESTART IDENTITY`, "0 0 0 0 0 0 ", "1 1 1"},
		{`TRUNCATE bills, loose, places RESTART IDENTITY CASCADE`, "2 0 0 0 3 0 ", "1 1 4"},
		{`TRUNCATE kinds RESTART IDENTITY CASCADE`, "0 0 0 0 0 1 ", "1 1 1"},
		{`TRUNCATE kinds CASCADE`, "0 0 0 0 0 1 ", "21 21 4"},
		{`TRUNCATE lines, shelves`, "2 20 0 20 0 1 ", "21 21 4"},
	} {
		fill()
		exec(t, conn, `BEGIN`)
		exec(t, conn, test.sql)
		exec(t, conn, `ROLLBACK`)
		if got := count(); got != full {
			t.Errorf("%s, rolled back, left %s", test.sql, got)
		}
		exec(t, conn, test.sql)
		if got := count(); got != test.left {
			t.Errorf("%s left %s, want %s", test.sql, got, test.left)
		}
		exec(t, conn, `INSERT INTO kinds VALUES (1) ON CONFLICT (id) DO NOTHING`)
		exec(t, conn, `TRUNCATE loose`)
		bill := one[int](t, conn, `INSERT INTO bills (tenant_id, kind) VALUES (99, 1) RETURNING id`)
		line := one[int](t, conn, `INSERT INTO lines (tenant_id, bill) VALUES (99, $1) RETURNING n`, bill)
		shelf := one[int](t, conn, `INSERT INTO shelves (kind) VALUES (1) RETURNING id`)
		if got := fmt.Sprint(bill, line, shelf); got != test.next {
			t.Errorf("after %s the ids are %s, want %s", test.sql, got, test.next)
		}
		exec(t, conn, `TRUNCATE kinds, bills, lines, places, shelves, loose RESTART IDENTITY`)
	}
	for sql, code := range map[string]string{`TRUNCATE kinds`: "0A000", `TRUNCATE kinds, bills, places`: "0A000", `TRUNCATE kinds, nope CASCADE`: "42P01"} {
		wantCode(t, conn, code, sql)
	}
	// A shard whose guard has another epoch than the map, of whichever part, refuses.
	fill()
	guard := func(table, from, to string) {
		cl.direct(t, 1, `DO $$ BEGIN EXECUTE (SELECT regexp_replace(pg_get_functiondef(tgfoid), '(IN \(''|:)(\d+)`+from+`(''|;)', '\1\2`+to+`\3', 'g')
			FROM pg_trigger WHERE tgrelid = '`+table+`'::regclass AND tgname = '~cleave_guard_truncate'); END $$`)
	}
	for _, table := range []string{"lines", "places", "kinds"} {
		guard(table, "", "9")
		wantCode(t, conn, "ZC001", `TRUNCATE kinds, bills, lines, places, shelves`)
		wantCode(t, conn, "ZC001", `TRUNCATE kinds CASCADE`)
		guard(table, "9", "")
	}
	if got := count(); got != full {
		t.Errorf("refused, and left %s", got)
	}
	exec(t, conn, `TRUNCATE kinds, bills, lines, places, shelves`)
	exec(t, conn, `DROP TABLE lines, bills, places, shelves, loose`)
}

// hidesInternals: no relation of the catalogue shows the schema that the router keeps for itself, but what tells of a server's processes.
func hidesInternals(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname IN ('pg_catalog', 'information_schema') AND relkind IN ('r', 'v') AND has_table_privilege(c.oid, 'SELECT') AND relname NOT IN ('pg_prepared_statements', 'pg_cursors', 'pg_largeobject', 'pg_stat_activity', 'pg_backend_memory_contexts') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 130 {
		t.Fatalf("%d relations: %v", len(names), err)
	}
	for _, name := range names {
		var n int64
		var first *string
		switch err := conn.QueryRow(context.Background(), `SELECT count(*), min(left(x::text, 200)) FROM `+name+` AS x WHERE x::text LIKE '%cleave_internal%' OR x::text LIKE '%~cleave_guard%'`).Scan(&n, &first); {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case n > 0:
			t.Errorf("%s shows %d rows of the router's own: %s", name, n, *first)
		}
	}
}
