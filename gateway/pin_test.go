package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestTemporaryTables: they are the session's, joined with whole and reference
// tables, and gone with it.
func TestTemporaryTables(t *testing.T) {
	cl, conn, keys := orders(t, config{limits: gateway.Limits{PinnedMax: 2}, executor: limitsOf(4)})
	exec(t, conn, `CREATE TABLE plain (id bigint, note text)`)
	exec(t, conn, `CREATE TABLE kinds (id bigint PRIMARY KEY, label text) WITH (cleave.reference = true)`)
	exec(t, conn, `INSERT INTO plain VALUES (1, 'p'), (2, 'q')`)
	exec(t, conn, `CREATE TEMP TABLE mine (id bigserial PRIMARY KEY, note text)`)
	exec(t, conn, `INSERT INTO mine (note) VALUES ('a'), ('b')`)
	if got := one[string](t, conn, `SELECT string_agg(m.note || p.note, ',' ORDER BY id) FROM mine m JOIN plain p USING (id)`); got != "ap,bq" {
		t.Errorf("the join gives %q", got)
	}
	if got := one[int64](t, conn, `SELECT count(*) FROM mine LEFT JOIN kinds USING (id)`); got != 2 {
		t.Errorf("the join with a reference table gives %d rows", got)
	}
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'x')`, keys[2][0])
	wantCode(t, conn, "0A000", `SELECT * FROM orders JOIN mine USING (id) WHERE tenant_id = 5`)
	wantCode(t, conn, "0A000", `CREATE TEMP TABLE orders (id bigint)`)
	wantCode(t, conn, "0A000", `CREATE FUNCTION takes(m mine) RETURNS int LANGUAGE sql AS 'SELECT 1'`)
	wantCode(t, conn, "0A000", `CREATE FUNCTION gives() RETURNS SETOF mine LANGUAGE plpgsql AS 'BEGIN END'`)
	exec(t, conn, `CREATE INDEX ON mine (note)`)
	exec(t, conn, `CREATE INDEX mine_note ON mine (note)`)
	exec(t, conn, `DROP INDEX mine_note`)
	exec(t, conn, `CREATE INDEX mine_note ON mine (note)`)
	exec(t, conn, `ALTER TABLE mine ADD COLUMN n int DEFAULT 3`)
	if got := one[int64](t, conn, `SELECT sum(n) FROM mine`); got != 6 {
		t.Errorf("the new column sums up to %d", got)
	}
	exec(t, conn, `TRUNCATE mine`)
	exec(t, conn, `SELECT id, note INTO TEMP copied FROM plain`)
	exec(t, conn, `CREATE TEMP TABLE again AS SELECT * FROM copied WHERE id = 1`)
	if got := one[int64](t, conn, `SELECT (SELECT count(*) FROM copied) * 10 + (SELECT count(*) FROM again)`); got != 21 {
		t.Errorf("the copies have %d rows", got)
	}
	// Of rows of several shards.
	for _, ks := range keys {
		exec(t, conn, `INSERT INTO orders VALUES ($1, 7, 'it''s \')`, ks[0])
	}
	if tag, err := conn.Exec(context.Background(), `CREATE TEMP TABLE gathered ON COMMIT PRESERVE ROWS AS SELECT o.*, now() AS at FROM orders o WHERE id = 7`); err != nil || tag.String() != fmt.Sprintf("SELECT %d", len(keys)) {
		t.Errorf("CREATE TEMP TABLE AS: %v, %v", tag, err)
	}
	exec(t, conn, `SELECT count(*) AS n INTO TEMP counted FROM orders WHERE id = 7`)
	exec(t, conn, `CREATE TEMP TABLE empty (k, l) AS SELECT id, note FROM orders WITH NO DATA`)
	exec(t, conn, `CREATE TEMP TABLE bare AS SELECT FROM orders WHERE id = 7`)
	if got := one[string](t, conn, `SELECT count(*) || note || (SELECT n FROM counted) || (SELECT count(k) FROM empty) || (SELECT count(*) FROM bare) FROM gathered WHERE at <= now() GROUP BY note`); got != `3it's \303` {
		t.Errorf("the copies give %q", got)
	}
	wantCode(t, conn, "42P07", `CREATE TEMP TABLE gathered AS SELECT id FROM orders`)
	wantCode(t, conn, "22012", `CREATE TEMP TABLE wrong AS SELECT 1 / (id - 7) AS x FROM orders`)
	wantCode(t, conn, "42P01", `SELECT * FROM wrong`)
	// In a transaction, with a rollback, and with ON COMMIT DROP.
	tx, err := conn.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `CREATE TEMP TABLE passing (id int) ON COMMIT DROP`)
	exec(t, conn, `INSERT INTO passing VALUES (1)`)
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, conn, "42P01", `SELECT * FROM passing`)
	// Another session has none of it, and may make its own.
	other := cl.connect(t)
	wantCode(t, other, "42P01", `SELECT * FROM mine`)
	exec(t, other, `CREATE TEMP TABLE mine (id int)`)
	if got := one[int64](t, other, `SELECT count(*) FROM mine`); got != 0 {
		t.Errorf("the other session sees %d rows", got)
	}
	// A third may not: the bound.
	third := cl.connect(t)
	wantCode(t, third, "53300", `CREATE TEMP TABLE mine (id int)`)
	exec(t, other, `DISCARD ALL`)
	wantCode(t, other, "42P01", `SELECT * FROM mine`)
	exec(t, third, `CREATE TEMP TABLE mine (id int)`)
	exec(t, conn, `DISCARD TEMP`)
	wantCode(t, conn, "42P01", `SELECT * FROM copied`)
	exec(t, conn, `DROP TABLE plain`)
}

// TestAdvisoryLocks: they are the default shard's, whatever else a transaction does.
func TestAdvisoryLocks(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	other := cl.connect(t)
	exec(t, conn, `SELECT pg_advisory_lock(42)`)
	if one[bool](t, other, `SELECT pg_try_advisory_lock(42)`) {
		t.Error("both have the lock")
	}
	if !one[bool](t, conn, `SELECT pg_try_advisory_lock(42)`) {
		t.Error("the session does not have its own lock")
	}
	exec(t, conn, `SELECT pg_advisory_unlock(42)`)
	if !one[bool](t, conn, `SELECT pg_advisory_unlock(42)`) || one[bool](t, conn, `SELECT pg_advisory_unlock(42)`) {
		t.Error("the lock was not held twice")
	}
	if !one[bool](t, other, `SELECT pg_try_advisory_lock(42)`) {
		t.Error("the lock was not given up")
	}
	exec(t, other, `DISCARD ALL`)
	awaitLock(t, conn, 42)
	tx, err := other.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, other, `SELECT pg_advisory_xact_lock(7)`)
	if one[bool](t, conn, `SELECT pg_try_advisory_xact_lock(7)`) {
		t.Error("both have the transaction's lock")
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	awaitLock(t, conn, 7)
	wantCode(t, conn, "0A000", `SELECT pg_advisory_xact_lock(id) FROM orders WHERE tenant_id = 5`)
	// The end of a session gives its locks up.
	_ = conn.Close(context.Background())
	awaitLock(t, other, 42)
}

// awaitLock takes a lock that somebody is about to give up.
func awaitLock(t *testing.T, conn *pgx.Conn, key int64) {
	t.Helper()
	for end := time.Now().Add(waitfor.Max); ; time.Sleep(20 * time.Millisecond) {
		if one[bool](t, conn, `SELECT pg_try_advisory_lock($1)`, key) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("lock %d was not given up", key)
		}
	}
}

// TestNotifications: they go from any session of any router to all that listen.
// TestListenAgain: the conversation that listens ends with the last channel, and the next LISTEN has another one.
func TestListenAgain(t *testing.T) {
	cl := start(t, config{shards: 1})
	conn := cl.connect(t)
	for range 30 {
		for _, sql := range []string{"LISTEN a", "UNLISTEN *", "LISTEN b", "UNLISTEN b"} {
			if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	exec(t, conn, "LISTEN b")
	exec(t, conn, "NOTIFY b, 'heard'")
	n, err := conn.WaitForNotification(t.Context())
	if err != nil || n.Payload != "heard" {
		t.Fatalf("%v, %v", n, err)
	}
}

func TestNotifications(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	second := start(t, config{dir: cl.dir, urls: cl.shards})
	far := second.connect(t)
	ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
	defer stop()
	exec(t, conn, `LISTEN news`)
	exec(t, far, `LISTEN "News"; LISTEN news`)
	want := func(c *pgx.Conn, channel, payload string) {
		t.Helper()
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n.Channel != channel || n.Payload != payload {
			t.Errorf("got %q on %q, want %q on %q", n.Payload, n.Channel, payload, channel)
		}
	}
	exec(t, conn, `NOTIFY news, 'one'`)
	want(conn, "news", "one")
	want(far, "news", "one")
	exec(t, conn, `SELECT pg_notify('News', 'two')`)
	want(far, "News", "two")
	// At the commit, and not after a rollback.
	tx, err := far.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, far, `NOTIFY news, 'gone'`)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if tx, err = far.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	exec(t, far, `NOTIFY news, 'three'`)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	want(conn, "news", "three")
	want(far, "news", "three")
	// Inside a transaction it is kept.
	if tx, err = conn.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'x')`, keys[2][0])
	exec(t, conn, `LISTEN later`)
	exec(t, far, `NOTIFY news, 'four'`)
	want(far, "news", "four")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	want(conn, "news", "four")
	exec(t, far, `NOTIFY later, 'never'`)
	exec(t, conn, `UNLISTEN *`)
	exec(t, far, `NOTIFY news, 'five'`)
	want(far, "news", "five")
	exec(t, conn, `LISTEN other`)
	exec(t, far, `NOTIFY other, 'six'`)
	want(conn, "other", "six")
	// The connection that they come by is lost: the session ends.
	cl.direct(t, 0, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' OR query LIKE 'UNLISTEN %'`)
	if _, err := conn.WaitForNotification(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the session went on: %v", err)
	}
	if !conn.IsClosed() {
		t.Error("the connection is not closed")
	}
}

// TestRefusedPipelineKeepsSession: an error of the router's own ends what the messages before it did, and not the session, which
// has a temporary table and an advisory lock.
func TestRefusedPipelineKeepsSession(t *testing.T) {
	ctx := t.Context()
	_, conn, keys := orders(t, config{executor: limitsOf(4)})
	exec(t, conn, `CREATE TABLE plain (id bigint)`)
	exec(t, conn, `CREATE TEMP TABLE mine (id bigint)`)
	exec(t, conn, `SELECT pg_advisory_lock(4711)`)
	exec(t, conn, `SET work_mem = '5MB'`)
	exec(t, conn, `INSERT INTO mine VALUES (1)`)
	for _, refused := range []string{
		`CREATE TEMP TABLE orders (id bigint)`,
		`SELECT * FROM orders FOR UPDATE OF nothing`,
		`SELECT count(*) FROM orders, `,
		`SELECT set_config('cleave.read_consistency', 'x', false)`,
	} {
		for _, before := range []string{`INSERT INTO mine VALUES (2)`, `INSERT INTO plain VALUES (2)`, fmt.Sprintf(`INSERT INTO orders VALUES (%d, 99, 'x')`, keys[0][0])} {
			p := conn.PgConn().StartPipeline(ctx)
			p.SendQueryParams(`SELECT count(*) FROM mine`, nil, nil, nil, nil)
			p.SendQueryParams(before, nil, nil, nil, nil)
			p.SendQueryParams(refused, nil, nil, nil, nil)
			p.SendQueryParams(`INSERT INTO mine VALUES (3)`, nil, nil, nil, nil)
			if err := p.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); codeOf(err) == "" || codeOf(err) == "57P01" {
				t.Errorf("%s; %s: %v", before, refused, err)
			}
			if got := one[string](t, conn, `SELECT current_setting('work_mem') || (SELECT count(*) FROM mine) || (SELECT count(*) FROM plain)`); got != "5MB10" {
				t.Fatalf("%s; %s leave %s", before, refused, got)
			}
			if n := one[int](t, conn, `SELECT count(*) FROM orders WHERE id = 99`); n != 0 {
				t.Errorf("%s; %s leave %d rows", before, refused, n)
			}
			if !one[bool](t, conn, `SELECT pg_advisory_unlock(4711) AND pg_try_advisory_lock(4711)`) {
				t.Errorf("%s; %s: the lock is gone", before, refused)
			}
		}
	}
}

// TestTemporaryFunctions: functions in pg_temp are the session's. A function there does what a DO block may, by the map at each call.
func TestTemporaryFunctions(t *testing.T) {
	cl, conn, keys := orders(t, config{limits: gateway.Limits{PinnedMax: 1}, executor: limitsOf(4)})
	other := cl.connect(t)
	exec(t, conn, "CREATE TABLE users (id serial PRIMARY KEY, name text UNIQUE)")
	// As Sequelize's findOrCreate does it, again and again: no connection stays kept.
	for i := range 20 {
		for _, c := range []*pgx.Conn{conn, other} {
			exec(t, c, "BEGIN")
			sql := fmt.Sprintf(`CREATE OR REPLACE FUNCTION pg_temp.testfunc(OUT response "users", OUT caught text) RETURNS RECORD AS $x$ BEGIN INSERT INTO users (name) VALUES ('n%d') RETURNING * INTO response;
				EXCEPTION WHEN unique_violation THEN GET STACKED DIAGNOSTICS caught = PG_EXCEPTION_DETAIL; END $x$ LANGUAGE plpgsql;
				SELECT (testfunc.response).name || COALESCE(testfunc.caught, '') FROM pg_temp.testfunc(); DROP FUNCTION IF EXISTS pg_temp.testfunc()`, i)
			exec(t, c, sql)
			exec(t, c, "COMMIT")
		}
	}
	// Neither does it for a function that was rolled back, or not made.
	for _, sqls := range [][]string{
		{"BEGIN", "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "ROLLBACK"},
		{"BEGIN", "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "SELECT 1/0", "COMMIT"},
		{"BEGIN", "SAVEPOINT s", "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "SELECT pg_temp.f()", "ROLLBACK TO s", "COMMIT"},
		{"CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; SELECT 1/0"},
		{"CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT nothing'"},
	} {
		for _, c := range []*pgx.Conn{conn, other} {
			for _, sql := range sqls {
				if _, err := c.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); codeOf(err) == "53300" {
					t.Errorf("%q: %v", sqls, err)
				}
			}
		}
	}
	if got := one[int](t, other, "SELECT count(*) FROM users"); got != 20 {
		t.Errorf("%d users", got)
	}
	exec(t, conn, "CREATE FUNCTION pg_temp.counted(more int) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) + more FROM users'")
	for range 3 {
		if got := one[int](t, conn, "SELECT pg_temp.counted($1)", 2); got != 22 {
			t.Errorf("it counts %d", got)
		}
	}
	if got := one[int](t, conn, "SELECT max(c) FROM users, pg_temp.counted(id) c WHERE id < 3"); got != 21 {
		t.Errorf("it counts %d", got)
	}
	wantCode(t, other, "53300", "CREATE FUNCTION pg_temp.one() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	gone := func(c *pgx.Conn) {
		t.Helper() // the connection may have had temporary objects before
		if _, err := c.Exec(context.Background(), "SELECT pg_temp.counted(1)"); codeOf(err) != "3F000" && codeOf(err) != "42883" {
			t.Errorf("another session's function: %v", err)
		}
	}
	gone(other)
	wantCode(t, conn, "0A000", "SELECT pg_temp.counted(1) FROM orders")
	wantCode(t, conn, "0A000", fmt.Sprintf("SELECT pg_temp.counted(1) FROM orders WHERE tenant_id = %d", keys[0][0]))
	wantCode(t, conn, "0A000", "CREATE TABLE t (n bigint DEFAULT pg_temp.counted(1))")
	wantCode(t, conn, "0A000", "CREATE VIEW v AS SELECT pg_temp.counted(1)")
	wantCode(t, conn, "0A000", "CREATE TEMP VIEW v AS SELECT pg_temp.counted(1)")
	wantCode(t, conn, "0A000", "CREATE INDEX ON users (pg_temp.counted(id))")
	exec(t, conn, "BEGIN")
	exec(t, conn, "UPDATE orders SET note = 'x'")
	exec(t, conn, "SELECT pg_temp.counted(1)")
	exec(t, conn, "COMMIT")
	exec(t, conn, "DO $$ BEGIN PERFORM pg_temp.counted(1); END $$")
	exec(t, conn, "CREATE TEMP TABLE moods (f int)")
	exec(t, conn, "CREATE FUNCTION pg_temp.loud() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN new.f := new.f + 1; RETURN new; END'")
	exec(t, conn, "CREATE TRIGGER loud BEFORE INSERT ON moods FOR EACH ROW EXECUTE FUNCTION pg_temp.loud()")
	if got := one[int](t, conn, "INSERT INTO moods (f) VALUES (4) RETURNING f"); got != 5 {
		t.Errorf("the trigger gives %d", got)
	}
	wantCode(t, conn, "0A000", "CREATE TRIGGER loud BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION pg_temp.loud()")
	// The table that the body names becomes a sharded one.
	exec(t, other, "DROP TABLE users")
	exec(t, other, "CREATE TABLE users (id bigint PRIMARY KEY) WITH (cleave.shard_key = 'id')")
	waitfor.True(t, "the function to be refused", func() bool {
		_, err := conn.Exec(context.Background(), "SELECT pg_temp.counted(1)")
		return codeOf(err) == "0A000"
	})
	wantCode(t, conn, "0A000", "DO $$ BEGIN PERFORM pg_temp.counted(1); END $$")
	exec(t, conn, "DISCARD ALL")
	gone(conn)
	exec(t, other, "CREATE FUNCTION pg_temp.one() RETURNS int LANGUAGE sql AS 'SELECT 1'")
}

// TestTemporaryFunctionsAreBounded: their texts are kept, and are not kept without end.
func TestTemporaryFunctionsAreBounded(t *testing.T) {
	cl, conn, _ := orders(t, config{limits: gateway.Limits{PinnedMax: 1}})
	made := func(name string, bytes int) string {
		return "CREATE OR REPLACE FUNCTION pg_temp." + name + "() RETURNS int LANGUAGE sql AS 'SELECT 1 /*" + strings.Repeat("x", bytes) + "*/'"
	}
	wantCode(t, conn, "54000", made("f", 1<<20))
	other := cl.connect(t)
	exec(t, other, made("f", 10)) // what was refused keeps no connection
	exec(t, other, "DISCARD ALL")
	for range 2 {
		exec(t, conn, made("f", 400<<10))
		exec(t, conn, made("f", 400<<10)) // ROLLBACK TO could bring the first one back
		wantCode(t, conn, "54000", made("f", 400<<10))
		if got := one[int](t, conn, "SELECT pg_temp.f()", pgx.QueryExecModeExec); got != 1 {
			t.Errorf("it is %d", got)
		}
		exec(t, conn, "DISCARD ALL")
	}
}
