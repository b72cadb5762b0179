package gateway_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
)

// TestTemporaryTableAndSchemaChange: in one transaction, in either order, committed and rolled back. What the session keeps stays with it, and its
// settings are what they were.
func TestTemporaryTableAndSchemaChange(t *testing.T) {
	t.Parallel()
	c := start(t, config{shards: 2})
	conn := c.connect(t)
	must := func(conn *pgx.Conn, texts ...string) {
		t.Helper()
		for _, sql := range texts {
			if _, err := conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	must(conn, "CREATE TABLE s (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')", "CREATE TABLE w (id int PRIMARY KEY)", "INSERT INTO s SELECT generate_series(1, 20)", "INSERT INTO w VALUES (1), (2)")
	columns := func(table string) int64 {
		return one[int64](t, conn, "SELECT count(*) FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid = $1::text::regclass", table)
	}
	// One message, as pgx's tests send it.
	a := c.connect(t)
	must(a, "DROP TABLE IF EXISTS nothing; CREATE TEMP TABLE x (a int, UNIQUE (a)); INSERT INTO x VALUES (1)", "SELECT a FROM x")

	// The change first.
	b := c.connect(t)
	must(b, "SET work_mem = '7MB'", "BEGIN", "CREATE TYPE color AS ENUM ('red', 'blue')", "ALTER TABLE s ADD COLUMN c color", "SET LOCAL search_path = pg_catalog, public", "CREATE TEMP TABLE y (c color)", "INSERT INTO y VALUES ('blue')",
		"INSERT INTO w VALUES (3)", "COMMIT")
	if got := one[string](t, b, "SELECT c::text FROM y"); got != "blue" {
		t.Errorf("the temporary table has %q", got)
	}
	if n := columns("s"); n != 2 {
		t.Errorf("s has %d columns", n)
	}
	for shard := range c.shards {
		if n := c.direct(t, shard, "SELECT count(*) FROM pg_attribute WHERE attrelid = 's'::regclass AND attname = 'c'"); n != "1" {
			t.Errorf("shard %d: %s columns", shard, n)
		}
	}
	if got := one[string](t, b, "SELECT concat_ws(' ', current_setting('work_mem'), current_setting('search_path'), current_setting('lock_timeout')) FROM y"); got != `7MB "$user", public 0` {
		t.Errorf("the kept session has the settings %s", got)
	}

	// The temporary table first, long before; it is filled from the tables that change.
	must(a, "BEGIN", "ALTER TABLE w ADD COLUMN v int DEFAULT 4", "INSERT INTO x SELECT v FROM w WHERE id = 1", "SAVEPOINT p", "DROP TABLE w", "ROLLBACK TO p", "COMMIT")
	if n := one[int64](t, a, "SELECT sum(a) FROM x"); n != 5 {
		t.Errorf("the sum is %d", n)
	}
	// ON COMMIT DROP, and a rollback.
	must(a, "BEGIN", "CREATE TEMP TABLE z (a int) ON COMMIT DROP", "INSERT INTO z SELECT id FROM w", "CREATE TABLE made (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')", "INSERT INTO made SELECT 1", "COMMIT")
	wantCode(t, a, "42P01", "SELECT FROM z")
	if n := one[int64](t, conn, "SELECT count(*) FROM made"); n != 1 {
		t.Errorf("%d rows", n)
	}
	must(a, "BEGIN", "DROP TABLE made; CREATE TEMP TABLE gone (a int)", "ROLLBACK")
	wantCode(t, a, "42P01", "SELECT FROM gone")
	if n := columns("s"); n != 2 {
		t.Errorf("s has %d columns", n)
	}
	// A statement that no transaction can hold, in a session with temporary tables.
	must(a, "CREATE INDEX CONCURRENTLY w_v ON w (v)", "SELECT a FROM x")
	// A change alone is prepared as ever: a deferred constraint is found before anything is decided.
	must(a, "ALTER TABLE s ADD COLUMN d int", "SELECT a FROM x")
	found, err := c.ops.Doctor(context.Background(), admin.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Level == "error" {
			t.Errorf("%+v", f)
		}
	}
}
