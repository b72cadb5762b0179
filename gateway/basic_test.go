package gateway_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// modes are the ways in which pgx can send a statement.
var modes = map[string]pgx.QueryExecMode{
	"prepared": pgx.QueryExecModeCacheStatement, "describe": pgx.QueryExecModeCacheDescribe, "describe each": pgx.QueryExecModeDescribeExec,
	"exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol,
}

func TestRowsLandOnTheirShards(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			exec(t, conn, "DELETE FROM orders WHERE tenant_id = 0", mode)
			for shard, ks := range keys {
				for _, k := range ks[:3] {
					if tag := exec(t, conn, "INSERT INTO orders VALUES ($1, $2, $3)", mode, k, int64(1), fmt.Sprint("note ", k)); tag.String() != "INSERT 0 1" {
						t.Errorf("tag %q", tag)
					}
					var note string
					if err := conn.QueryRow(context.Background(), "SELECT note FROM orders WHERE tenant_id = $1 AND id = $2", mode, k, int64(1)).Scan(&note); err != nil || note != fmt.Sprint("note ", k) {
						t.Errorf("key %d: %q, %v", k, note, err)
					}
					if n := cl.direct(t, shard, fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", k)); n != "1" {
						t.Errorf("key %d is not on shard %d", k, shard)
					}
					if tag := exec(t, conn, "UPDATE orders SET note = 'x' WHERE tenant_id = $1", mode, k); tag.RowsAffected() != 1 {
						t.Errorf("update: %v", tag)
					}
					exec(t, conn, "DELETE FROM orders WHERE tenant_id = $1", mode, k)
				}
			}
		})
	}
}

func TestRefusedStatements(t *testing.T) {
	_, conn, _ := orders(t, config{})
	for _, sql := range []string{"LOCK TABLE orders", "CREATE TEMP TABLE IF NOT EXISTS other AS SELECT * FROM orders", "UPDATE orders SET tenant_id = random() * 10"} {
		for name, mode := range modes {
			if got := code(conn, sql, mode); got != "0A000" {
				t.Errorf("%s (%s): %q", sql, name, got)
			}
		}
	}
	if n := one[int](t, conn, "SELECT 1"); n != 1 {
		t.Error("the session is not usable after refusals")
	}
	wantCode(t, conn, "42601", "SELEC 1")
	wantCode(t, conn, "42P01", "SELECT * FROM nowhere")
	wantCode(t, conn, "22012", "SELECT 1/0")
}

func TestWholeTables(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	exec(t, conn, "CREATE TABLE settings (name text PRIMARY KEY, value text)")
	exec(t, conn, "INSERT INTO settings VALUES ('a', 'b')")
	if v := one[string](t, conn, "SELECT value FROM settings WHERE name = $1", "a"); v != "b" {
		t.Errorf("value %q", v)
	}
	if n := cl.direct(t, 0, "SELECT count(*) FROM settings"); n != "1" {
		t.Errorf("%s rows on the default shard", n)
	}
	if n := cl.direct(t, 1, "SELECT count(*) FROM pg_class WHERE relname = 'settings'"); n != "0" {
		t.Error("an unsharded table is on another shard")
	}
	if n := cl.direct(t, 2, "SELECT count(*) FROM pg_class WHERE relname = 'orders'"); n != "1" {
		t.Error("a sharded table is missing on a shard")
	}
}

func TestLargeResults(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := keys[1][0]
	cl.direct(t, 1, fmt.Sprintf("INSERT INTO orders SELECT %d, g, repeat('x', 1000) FROM generate_series(1, 5000) g", k))
	for name, mode := range modes {
		rows, err := conn.Query(context.Background(), "SELECT id, note FROM orders WHERE tenant_id = $1 ORDER BY id", mode, k)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for rows.Next() {
			var id int64
			var note string
			if err := rows.Scan(&id, &note); err != nil || id != n+1 || len(note) != 1000 {
				t.Fatalf("%s: row %d: %d, %d bytes, %v", name, n, id, len(note), err)
			}
			n++
		}
		if rows.Err() != nil || n != 5000 {
			t.Errorf("%s: %d rows, %v", name, n, rows.Err())
		}
	}
}
