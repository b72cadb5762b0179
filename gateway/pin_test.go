package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/gateway"
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
	wantCode(t, conn, "0A000", `CREATE FUNCTION gives() RETURNS SETOF mine LANGUAGE sql AS 'SELECT NULL'`)
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
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
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
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
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
