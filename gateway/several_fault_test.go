package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/waitfor"
)

// runs waits until the shard runs a statement that has the text in it, and
// returns its process number.
func (c *cluster) runs(t testing.TB, shard int, text string) string {
	t.Helper()
	sql := "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' AND query LIKE '%" + text + "%'"
	for end := time.Now().Add(waitfor.Max); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if pid := c.direct(t, shard, sql); pid != "0" {
			return pid
		}
	}
	t.Fatalf("shard %d does not run %q", shard, text)
	return ""
}

func TestErrorOnOneOfSeveralShards(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 3)
	bad := fmt.Sprintf("SELECT 10 / (tenant_id - %d) FROM orders", keys[2][0])
	for name, mode := range modes {
		if got := code(conn, bad, mode); got != "22012" {
			t.Errorf("%s: SQLSTATE %q", name, got)
		}
		if n := one[int](t, conn, "SELECT count(*) FROM orders", mode); n != total {
			t.Errorf("%s: %d rows after the error", name, n)
		}
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "SAVEPOINT a")
	wantCode(t, conn, "22012", bad)
	wantCode(t, conn, "25P02", "SELECT 1")
	exec(t, conn, "ROLLBACK TO a")
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != total {
		t.Errorf("%d rows after ROLLBACK TO", n)
	}
	exec(t, conn, "COMMIT")
}

func TestCancelReachesAllShards(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	fill(t, conn, keys, 1)
	for _, block := range []bool{false, true} {
		if block {
			exec(t, conn, "BEGIN")
		}
		done := make(chan string, 1)
		go func() { done <- code(conn, "SELECT pg_sleep(60), id FROM orders") }()
		for i := range keys {
			cl.runs(t, i, "pg_sleep(60)")
		}
		if err := conn.PgConn().CancelRequest(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != "57014" {
			t.Errorf("SQLSTATE %q", got)
		}
		for i := range keys {
			if n := cl.direct(t, i, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()"); n != "0" {
				t.Errorf("%s statements still run on shard %d", n, i)
			}
		}
		if block {
			wantCode(t, conn, "25P02", "SELECT 1")
			exec(t, conn, "ROLLBACK")
		}
	}
	exec(t, conn, "SET statement_timeout = '200ms'")
	wantCode(t, conn, "57014", "SELECT pg_sleep(60), id FROM orders")
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != 6 {
		t.Errorf("%d rows", n)
	}
}

func TestShardLostHalfWay(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 3)
	ctx := context.Background()
	// Rows were sent already: an error, never fewer rows.
	sql := fmt.Sprintf("SELECT id, repeat('x', 10000), CASE WHEN tenant_id = %d THEN pg_sleep(60) END FROM orders, generate_series(1, 100)", keys[2][0])
	type result struct {
		rows int
		err  error
	}
	got := make(chan result, 1)
	go func() {
		rows, err := conn.Query(ctx, sql, pgx.QueryExecModeExec)
		n := 0
		for err == nil && rows.Next() {
			n++
		}
		if err == nil {
			err = rows.Err()
		}
		got <- result{n, err}
	}()
	pid := cl.runs(t, 2, "pg_sleep(60)")
	cl.direct(t, 2, "SELECT pg_terminate_backend("+pid+")")
	select {
	case r := <-got:
		var pe *pgconn.PgError
		if !errors.As(r.err, &pe) || pe.Code != "57P03" && pe.Code != "40001" {
			t.Errorf("%d rows, error %v", r.rows, r.err)
		}
	case <-time.After(waitfor.Max):
		t.Fatal("no answer")
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != total {
		t.Errorf("%d rows, want %d", n, total)
	}

	// Nothing was sent: it is run again.
	done := make(chan error, 1)
	go func() {
		var n int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM orders WHERE note <> 'again' AND pg_sleep(0.2) IS NOT NULL").Scan(&n)
		if err == nil && n != total {
			err = fmt.Errorf("%d rows, want %d", n, total)
		}
		done <- err
	}()
	pid = cl.runs(t, 1, "again")
	cl.direct(t, 1, "SELECT pg_terminate_backend("+pid+")")
	if err := <-done; err != nil {
		t.Error(err)
	}

	// In a transaction that has written: all of it is gone.
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 500, 'x')", keys[0][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 500, 'x')", keys[1][0])
	go func() {
		done <- func() error {
			_, err := conn.Exec(ctx, "SELECT CASE WHEN tenant_id = $1 THEN pg_sleep(60) END FROM orders", keys[1][0])
			return err
		}()
	}()
	pid = cl.runs(t, 1, "pg_sleep(60)")
	cl.direct(t, 1, "SELECT pg_terminate_backend("+pid+")")
	if err := <-done; codeOf(err) != "40001" || !strings.Contains(err.Error(), "shard-1") {
		t.Errorf("error %v", err)
	}
	wantCode(t, conn, "25P02", "SELECT 1")
	exec(t, conn, "ROLLBACK")
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id = 500"); n != 0 {
		t.Errorf("%d rows of a lost transaction", n)
	}
}

func TestSuspendedPortalsInterleave(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 5)
	exec(t, conn, "BEGIN")
	fe := conn.PgConn().Frontend()
	w := &wired{t: t, fe: fe}
	w.parse("", "SELECT tenant_id, id FROM orders ORDER BY tenant_id, id")
	w.bind("p1", "")
	w.bind("p2", "")
	n1, n2 := 0, 0
	for done1, done2 := false, false; !done1 || !done2; {
		if !done1 {
			rows, more := w.execute("p1", 7)
			n1, done1 = n1+rows, !more
		}
		if !done2 {
			rows, more := w.execute("p2", 4)
			n2, done2 = n2+rows, !more
		}
	}
	if n1 != total || n2 != total {
		t.Errorf("%d and %d rows of %d", n1, n2, total)
	}
	w.sync()
	exec(t, conn, "COMMIT")
}

func TestUnitOverSeveralShards(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	ctx := context.Background()
	a, b := keys[0][0], keys[1][0]
	send := func(last string) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO orders VALUES ($1, 1, 'x')", a)
		batch.Queue("INSERT INTO orders VALUES ($1, 1, 'x')", b)
		batch.Queue("SELECT count(*) FROM orders")
		batch.Queue(last)
		return conn.SendBatch(ctx, batch).Close()
	}
	if err := send("SELECT 1/0"); codeOf(err) != "22012" {
		t.Errorf("error %v", err)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != 0 {
		t.Errorf("%d rows of a unit that failed", n)
	}
	if err := send("SELECT 1"); err != nil {
		t.Error(err)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != 2 {
		t.Errorf("%d rows", n)
	}
}
