package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/waitfor"
)

const bigTable = `CREATE TABLE big (id bigint, v int, t text, PRIMARY KEY (id)) WITH (cleave.shard_key = 'id')`

// bigRows starts a cluster with a sharded table of n rows: id from 1, v = id % 97.
func bigRows(t testing.TB, n int) (*cluster, *pgx.Conn) {
	t.Helper()
	cl := start(t, config{})
	conn := cl.connect(t)
	exec(t, conn, bigTable)
	exec(t, conn, fmt.Sprintf("INSERT INTO big SELECT g, g %% 97, 'row ' || g FROM generate_series(1, %d) g", n))
	return cl, conn
}

// direct connects to a shard, past the router.
func direct(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// on runs a query on every shard directly and returns the first column of all rows.
func (c *cluster) on(t testing.TB, sql string, args ...any) (out []string) {
	t.Helper()
	for _, url := range c.shards {
		conn := direct(t, url)
		rows, err := conn.Query(context.Background(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			out = append(out, s)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close(context.Background()) // a connection of the test's own
	}
	return out
}

// leftovers are the temporary relations that are visible on any shard.
func (c *cluster) leftovers(t testing.TB) []string {
	return c.on(t, `SELECT relname::text FROM pg_class WHERE relname LIKE 'cleave\_rel\_%'`)
}

// TestGather goes through what a gather has to bring together in a form of its own.
func TestGather(t *testing.T) {
	t.Parallel()
	const rows = 5000
	cl, conn := bigRows(t, rows)
	ctx := context.Background()

	t.Run("many rows", func(t *testing.T) {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
			var n, sum int64
			if err := conn.QueryRow(ctx, "SELECT count(*), sum(c.v) FROM big b JOIN big c ON c.id = b.v WHERE b.id <= $1", mode, int64(4000)).Scan(&n, &sum); err != nil {
				t.Fatal(err)
			}
			want, wantSum := int64(0), int64(0)
			for id := range int64(4001) {
				if v := id % 97; id > 0 && v > 0 {
					want++
					wantSum += v
				}
			}
			if n != want || sum != wantSum {
				t.Errorf("%v: %d, %d, want %d, %d", mode, n, sum, want, wantSum)
			}
		}
	})
	t.Run("group by the primary key", func(t *testing.T) {
		if got := one[string](t, conn, "SELECT string_agg(x, ',' ORDER BY x) FROM (SELECT b.t || count(*) AS x FROM big b JOIN big c ON c.v = b.id WHERE b.id < 3 GROUP BY b.id) s"); got != "row 152,row 252" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("rows as such", func(t *testing.T) {
		if got := one[string](t, conn, "SELECT max(row_to_json(b)::text) FROM big b JOIN big c ON c.v + 10 = b.id WHERE b.id = 12"); got != `{"id":12,"v":12,"t":"row 12"}` {
			t.Errorf("got %s", got)
		}
	})
	t.Run("types of the user's", func(t *testing.T) {
		// Shards made the type with other numbers.
		for i, url := range cl.shards {
			c := direct(t, url)
			for n := range i {
				exec(t, c, fmt.Sprintf("CREATE TYPE extra%d AS ENUM ('x')", n))
			}
			_ = c.Close(ctx) // a connection of the test's own
		}
		exec(t, conn, "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
		exec(t, conn, "CREATE TABLE people (id int PRIMARY KEY, m mood, note text) WITH (cleave.shard_key = 'id')")
		exec(t, conn, `INSERT INTO people SELECT g, (ARRAY['happy', 'sad', 'ok'])[g % 3 + 1]::mood, E'a\tb\nc\\' || g FROM generate_series(1, 300) g`)
		got := one[string](t, conn, "SELECT string_agg(a.m || ' ' || b.note, ';' ORDER BY a.m, a.id) FROM people a JOIN people b ON b.id = a.id + 1 WHERE a.id < 4")
		if want := "sad a\tb\nc\\2;ok a\tb\nc\\3;happy a\tb\nc\\4"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("own writes", func(t *testing.T) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "UPDATE big SET v = -1 WHERE id = 7"); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM big b LEFT JOIN big c ON c.id = b.v WHERE c.id IS NULL AND b.v <> 0").Scan(&n); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the time of the transaction", func(t *testing.T) {
		var same, today bool
		if err := conn.QueryRow(ctx, "SELECT count(DISTINCT now()) = 1 AND min(now()) = max(now()), bool_and(now()::date = current_date) FROM big b JOIN big c ON c.id = b.v WHERE b.id < 10").Scan(&same, &today); err != nil || !same || !today {
			t.Errorf("%v %v %v", same, today, err)
		}
	})
	t.Run("bounds", func(t *testing.T) {
		sql := "SELECT count(*) FROM big b JOIN big c ON c.v = b.id"
		exec(t, conn, "SET cleave.gather_rows_max = 1000")
		wantCode(t, conn, "53400", sql)
		exec(t, conn, "SET cleave.gather_rows_max = 0")
		exec(t, conn, "SET cleave.gather_bytes_max = '20kB'")
		wantCode(t, conn, "53400", sql)
		exec(t, conn, "RESET cleave.gather_bytes_max")
		if n := one[int](t, conn, sql); n == 0 {
			t.Error("no rows")
		}
	})
	t.Run("in portions", func(t *testing.T) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "DECLARE c CURSOR FOR SELECT b.id FROM big b JOIN big c ON c.id = b.v WHERE b.id <= 500 ORDER BY 1"); err != nil {
			t.Fatal(err)
		}
		next := int64(0)
		for range 5 {
			rows, err := tx.Query(ctx, "FETCH 100 FROM c", pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var id int64
				if err := rows.Scan(&id); err != nil {
					t.Fatal(err)
				}
				for next++; next%97 == 0; next++ {
				}
				if id != next {
					t.Fatalf("%d after %d", id, next-1)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			var n int64
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM big WHERE id < 10").Scan(&n); err != nil || n != 9 {
				t.Fatal(n, err)
			}
		}
	})
	t.Run("an error behind rows that are asked for again", func(t *testing.T) {
		exec(t, conn, "CREATE TYPE pair AS (a text, b int)") // it has another number on each shard: rows come as text
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		exec(t, conn, "SELECT count(*) FROM big")
		if got := code(conn, "SELECT count(DISTINCT ROW(repeat('x', 1000), 1 / (id - 4900))::pair) FROM big"); got != "22012" {
			t.Error(got)
		}
	})
	if left := cl.leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := one[int](t, conn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'cleave\\_rel%'"); got != 0 {
		t.Errorf("%d relations seen by a later user", got)
	}
}

// TestGatherInterrupted cancels gathers and takes shards' conversations away in
// the middle: the client gets an error, never fewer rows, and nothing is left over.
func TestGatherInterrupted(t *testing.T) {
	t.Parallel()
	cl, conn := bigRows(t, 5000)
	ctx := context.Background()
	final := "SELECT count(*), (SELECT 1 FROM pg_sleep(120)) FROM big b JOIN big c ON c.v = b.id"
	asleep := `SELECT pid::text FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%cleave\_rel\_1%' AND datname = current_database()`
	fetching := `SELECT pid::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%public.big%' AND datname = current_database()`

	// run runs a statement and does something once all is as it should be.
	run := func(t *testing.T, sql, state, then string) error {
		t.Helper()
		done := make(chan error, 1)
		limit, cancel := context.WithCancel(ctx)
		defer cancel()
		c := cl.connect(t)
		go func() {
			_, err := c.Exec(limit, sql)
			done <- err
		}()
		waitfor.True(t, sql, func() bool { return len(cl.on(t, state)) > 0 })
		switch then {
		case "cancel":
			cl.on(t, "SELECT 1::text")
			if err := c.PgConn().CancelRequest(ctx); err != nil {
				t.Fatal(err)
			}
		default:
			cl.on(t, "SELECT pg_terminate_backend(pid::int)::text FROM ("+state+") s")
		}
		for limit := time.Now().Add(waitfor.Max); ; {
			select {
			case err := <-done:
				return err
			case <-time.After(50 * time.Millisecond):
			}
			if time.Now().After(limit) {
				t.Fatal("it goes on")
			}
			if then != "cancel" {
				// A read of which nothing was told yet is run again.
				cl.on(t, "SELECT pg_terminate_backend(pid::int)::text FROM ("+state+") s")
			}
		}
	}
	t.Run("cancel, running", func(t *testing.T) {
		if err := run(t, final, asleep, "cancel"); codeOf(err) != "57014" {
			t.Errorf("%v", err)
		}
	})
	t.Run("lost, running", func(t *testing.T) {
		if err := run(t, final, asleep, "kill"); err == nil || strings.HasPrefix(codeOf(err), "08") {
			t.Errorf("%v", err)
		}
	})
	lock := func(t *testing.T) func() {
		c := direct(t, cl.shards[1])
		exec(t, c, "BEGIN")
		exec(t, c, "LOCK TABLE big IN ACCESS EXCLUSIVE MODE")
		return func() { _ = c.Close(ctx) }
	}
	for _, then := range []string{"cancel", "kill"} {
		t.Run(then+", fetching", func(t *testing.T) {
			unlock := lock(t)
			defer unlock()
			err := run(t, "SELECT count(*) FROM big b JOIN big c ON c.v = b.id", fetching, then)
			if code := codeOf(err); then == "cancel" && code != "57014" || code == "" {
				t.Errorf("%v", err)
			}
		})
	}
	waitfor.True(t, "nothing is left over", func() bool { return len(cl.leftovers(t)) == 0 })
	if n := one[int](t, conn, "SELECT count(*) FROM big b JOIN big c ON c.id = b.id"); n != 5000 {
		t.Errorf("%d rows afterwards", n)
	}
}
