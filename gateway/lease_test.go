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
	"github.com/cleavedb/cleave/shardmap"
)

func sqlCode(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestLease ends the lease before, during and after statements: without it none
// is begun, and no answer that came after its end is passed on but that of a
// write outside of a transaction.
func TestLease(t *testing.T) {
	lease := shardmap.NewLease(nil)
	live := func() { lease.Extend(time.Now(), time.Hour) }
	live()
	cl := start(t, config{lease: lease})
	ctx := t.Context()
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(ctx, "postgres://app@"+cl.addr+"/cleave?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	c := connect()
	must := func(sql string) {
		t.Helper()
		if _, err := c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	must("CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')")
	must("INSERT INTO orders VALUES (42, 1, 'here')")
	const slowRead = "SELECT note, pg_sleep(1.5) FROM orders WHERE tenant_id = 42"
	const slowWrite = "UPDATE orders SET note = 'written' FROM (SELECT pg_sleep(1.5)) s WHERE tenant_id = 42 RETURNING note"
	during := func(sql string, mode pgx.QueryExecMode) error {
		live()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer lease.End()
			waitfor.True(t, "a shard runs the statement", func() bool {
				for i := range cl.shards {
					if cl.direct(t, i, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()") != "0" {
						return true
					}
				}
				return false
			})
		}()
		_, err := c.Exec(ctx, sql, mode)
		<-done
		return err
	}
	for name, mode := range map[string]pgx.QueryExecMode{"simple": pgx.QueryExecModeSimpleProtocol, "extended": pgx.QueryExecModeExec} {
		t.Run(name, func(t *testing.T) {
			lease.End()
			_, err := c.Exec(ctx, "SELECT note FROM orders WHERE tenant_id = 42", mode)
			if sqlCode(err) != "57P03" || !strings.Contains(err.Error(), "lease") {
				t.Errorf("a read without a lease: %v", err)
			}
			if _, err := c.Exec(ctx, "UPDATE orders SET note = 'x' WHERE tenant_id = 42", mode); sqlCode(err) != "57P03" {
				t.Errorf("a write without a lease: %v", err)
			}
			live()
			must("UPDATE orders SET note = 'here' WHERE tenant_id = 42")
			if err := during(slowRead, mode); sqlCode(err) != "57P03" {
				t.Errorf("a read during which the lease ended: %v", err)
			}
			if err := during(slowWrite, mode); err != nil {
				t.Errorf("a write during which the lease ended: %v", err)
			}
			live()
			var note string
			if err := c.QueryRow(ctx, "SELECT note FROM orders WHERE tenant_id = 42").Scan(&note); err != nil || note != "written" {
				t.Errorf("the write that was acknowledged: %q, %v", note, err)
			}
			// In a transaction nothing is passed on, and nothing stays.
			must("BEGIN")
			must("UPDATE orders SET note = 'never' WHERE tenant_id = 42")
			if err := during(slowRead, mode); sqlCode(err) != "57P03" {
				t.Errorf("a read in a transaction during which the lease ended: %v", err)
			}
			if tag, err := c.Exec(ctx, "COMMIT", mode); err != nil || tag.String() != "ROLLBACK" {
				t.Errorf("COMMIT after it: %v, %v", tag, err)
			}
			live()
			if err := c.QueryRow(ctx, "SELECT note FROM orders WHERE tenant_id = 42").Scan(&note); err != nil || note != "written" {
				t.Errorf("after the transaction: %q, %v", note, err)
			}
		})
	}
	// Many rows: what was passed on before the lease ended cannot be taken back,
	// the rest does not come.
	live()
	rows, err := c.Query(ctx, "SELECT n, repeat('x', 1000) FROM orders, generate_series(1, 1000000) n WHERE tenant_id = 42")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for rows.Next() {
		if count++; count == 1000 {
			lease.End()
		}
	}
	if sqlCode(rows.Err()) != "57P03" || count >= 1000000 {
		t.Errorf("a long answer during which the lease ended: %d rows, %v", count, rows.Err())
	}
	// What no guard has vouched for: a write that found no row, one of several keys
	// (one of them may have moved), rows that were read by something like a write.
	keys := cl.keys(t)[0]
	live()
	must(fmt.Sprintf("INSERT INTO orders VALUES (%d, 2, 'here')", keys[0]))
	for _, sql := range []string{
		"UPDATE orders SET note = 'x' WHERE tenant_id = 42 AND (SELECT pg_sleep(1.5)::text) = 'no'",
		"DELETE FROM orders WHERE tenant_id = 42 AND (SELECT pg_sleep(1.5)::text) = 'no' RETURNING id",
		fmt.Sprintf("UPDATE orders SET note = 'x' WHERE tenant_id IN (%d, %d) AND (SELECT pg_sleep(1.5)::text) = ''", keys[0], keys[1]),
		"SELECT note FROM orders WHERE tenant_id = 42 AND (SELECT pg_sleep(1.5)::text) = '' FOR UPDATE",
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
			if err := during(sql, mode); sqlCode(err) != "08007" {
				t.Errorf("%s, during which the lease ended: %v", sql, err)
			}
		}
	}
	live()
	var n int
	if err := c.QueryRow(ctx, "SELECT count(*) FROM orders WHERE tenant_id = 42").Scan(&n); err != nil || n != 1 {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}

// TestAcknowledged has a long statement hold up the acknowledgement of a newer map.
func TestAcknowledged(t *testing.T) {
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	cl := start(t, config{lease: lease})
	ctx := t.Context()
	c, err := pgx.Connect(ctx, "postgres://app@"+cl.addr+"/cleave?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	version := func() uint64 {
		snap, err := cl.dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return snap.Version()
	}
	await := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(waitfor.Max); !cond(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it did not come to this: %s; acknowledged is %d of %d", what, lease.Acknowledged(), version())
			}
		}
	}
	await("the first map is acknowledged", func() bool { return lease.Acknowledged() == version() })
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(ctx, "SELECT pg_sleep(0.5)")
		done <- err
	}()
	time.Sleep(100 * time.Millisecond)
	before := version()
	snap, err := cl.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := snap.State().Clone()
	next.Shards[0].Labels = map[string]string{"n": "1"}
	if _, err := cl.dir.Update(ctx, shardmap.Change{Expect: before, By: "t", Op: "test"}, next); err != nil {
		t.Fatal(err)
	}
	await("the newer map is installed", func() bool { return cl.ex.Snapshot().Version() == before+1 })
	select {
	case err := <-done:
		t.Fatalf("the statement has ended already: %v", err)
	default:
	}
	if got := lease.Acknowledged(); got != before {
		t.Fatalf("version %d is acknowledged while a statement runs by version %d", got, before)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	await("the newer map is acknowledged", func() bool { return lease.Acknowledged() == before+1 })
}

// TestParseIsForgotten: a Parse to which the client got an error, because the lease ended before the
// shard's answer was passed on, has left no statement: the client may prepare it again.
func TestParseIsForgotten(t *testing.T) {
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	cl := start(t, config{lease: lease, shards: 1})
	ctx := t.Context()
	c, direct := cl.connect(t), cl.shards[0]
	if _, err := c.Exec(ctx, "CREATE TABLE orders (tenant_id bigint PRIMARY KEY, note text) WITH (cleave.shard_key = 'tenant_id')"); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(ctx, direct)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	const text = "SELECT note FROM orders WHERE tenant_id = $1"
	if _, err := other.Exec(ctx, "BEGIN; LOCK TABLE orders"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := c.Prepare(ctx, "s", text)
		answer <- err
	}()
	for waiting := false; !waiting; { // the shard parses, and waits for the lock
		if err := other.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	lease.End()
	if _, err := other.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; sqlCode(err) != "57P03" {
		t.Fatalf("a Parse during which the lease ended: %v", err)
	}
	lease.Extend(time.Now(), time.Hour)
	if _, err := c.Prepare(ctx, "s", text); err != nil {
		t.Errorf("the same once more: %v", err)
	}
}
