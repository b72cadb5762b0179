package gateway_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// fill inserts two rows for each of the first keys of each shard.
func fill(t testing.TB, conn *pgx.Conn, keys [][]int64, each int) (rows int) {
	t.Helper()
	for _, ks := range keys {
		for _, k := range ks[:each] {
			for id := range 2 {
				exec(t, conn, "INSERT INTO orders VALUES ($1, $2, $3)", k, id, fmt.Sprintf("%d/%d", k, id))
				rows++
			}
		}
	}
	return rows
}

func TestScatterReads(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	want := fill(t, conn, keys, 5)
	ctx := context.Background()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec} {
		for _, sql := range []string{"SELECT tenant_id, id, note FROM orders", "SELECT tenant_id, id, note FROM orders WHERE id >= $1"} {
			args := []any{mode}
			if sql[len(sql)-1] == '1' {
				args = append(args, int64(0))
			}
			rows, err := conn.Query(ctx, sql, args...)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				var k, id int64
				var note string
				if err := rows.Scan(&k, &id, &note); err != nil {
					t.Fatal(err)
				}
				if note != fmt.Sprintf("%d/%d", k, id) {
					t.Fatalf("row %d %d %q", k, id, note)
				}
				n++
			}
			if err := rows.Err(); err != nil {
				t.Fatalf("%v: %s: %v", mode, sql, err)
			}
			if n != want || rows.CommandTag().String() != fmt.Sprintf("SELECT %d", want) {
				t.Errorf("%v: %s: %d rows, %s, want %d", mode, sql, n, rows.CommandTag(), want)
			}
		}
	}
}

func TestTransactionOverSeveralShardsIsAdopted(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	fill(t, conn, keys, 2)
	a, b := keys[0][0], keys[1][0]
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 100, 'new')", a)
	exec(t, conn, "SAVEPOINT s1")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", b); n != 2 {
		t.Errorf("%d rows of the other shard", n)
	}
	exec(t, conn, "INSERT INTO orders VALUES ($1, 101, 'new')", a)
	exec(t, conn, "ROLLBACK TO s1")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", a); n != 3 {
		t.Errorf("%d rows of the first shard", n)
	}
	wantCode(t, conn, "22012", "SELECT 1/0 FROM orders WHERE tenant_id = $1", b)
	wantCode(t, conn, "25P02", "SELECT 1")
	exec(t, conn, "ROLLBACK TO s1")
	exec(t, conn, "COMMIT")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", a); n != 3 {
		t.Errorf("%d rows after the commit", n)
	}
	if got := one[string](t, conn, "SHOW application_name"); got != "" {
		t.Errorf("application_name %q", got)
	}
}
