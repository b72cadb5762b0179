package gateway_test

import (
	"context"
	"fmt"
	"strings"
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

func TestCursorsOverSeveralShards(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 5)
	ctx := context.Background()
	count := func(sql string) int {
		t.Helper()
		rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return n
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "DECLARE c CURSOR FOR SELECT tenant_id, id FROM orders")
	if n := count("FETCH 7 FROM c"); n != 7 {
		t.Errorf("FETCH 7 gave %d rows", n)
	}
	exec(t, conn, "SAVEPOINT a")
	exec(t, conn, "DECLARE d CURSOR FOR SELECT * FROM orders")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", keys[1][0]); n != 2 {
		t.Errorf("%d rows between two portions", n)
	}
	if n := count("FETCH d"); n != 1 {
		t.Errorf("FETCH gave %d rows", n)
	}
	exec(t, conn, "ROLLBACK TO a")
	wantCode(t, conn, "34000", "FETCH d")
	exec(t, conn, "ROLLBACK TO a")
	if tag := exec(t, conn, "MOVE 3 FROM c"); tag.String() != "MOVE 3" {
		t.Errorf("tag %s", tag)
	}
	if n := count("FETCH ALL FROM c"); n != total-10 {
		t.Errorf("FETCH ALL gave %d rows of %d", n, total-10)
	}
	if n := count("FETCH ALL FROM c"); n != 0 {
		t.Errorf("%d rows after the end", n)
	}
	exec(t, conn, "CLOSE c")
	exec(t, conn, "DECLARE b CURSOR FOR SELECT tenant_id FROM orders")
	rows, err := conn.Query(ctx, "FETCH ALL FROM b")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(got) != total {
		t.Errorf("%d rows in binary, %v", len(got), err)
	}
	// The formats are those of the first FETCH; what is written between is not seen.
	exec(t, conn, "DECLARE e CURSOR FOR SELECT tenant_id FROM orders ORDER BY tenant_id")
	exec(t, conn, "UPDATE orders SET id = id + 100 WHERE tenant_id = $1", keys[0][0])
	exec(t, conn, "DELETE FROM orders WHERE tenant_id = $1", keys[0][0])
	rows, err = conn.Query(ctx, "FETCH ALL FROM e", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(got) != total {
		t.Errorf("%d rows, %v", len(got), err)
	}
	exec(t, conn, "COMMIT")
	wantCode(t, conn, "25P01", "DECLARE c CURSOR FOR SELECT * FROM orders")
}

func TestGuardRails(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 5)
	all := "SELECT * FROM orders"
	for _, rail := range []struct{ set, code string }{
		{"cleave.scatter = off", "53400"}, {"cleave.scatter = on", ""},
		{"cleave.shards_max = 2", "53400"}, {"cleave.shards_max = 3", ""},
		{fmt.Sprintf("cleave.rows_max = %d", total-1), "53400"}, {fmt.Sprintf("cleave.rows_max = %d", total), ""},
		{"cleave.bytes_max = '100B'", "53400"}, {"cleave.bytes_max = '1MB'", ""},
		{"cleave.several_timeout = '50ms'", ""},
	} {
		exec(t, conn, "SET "+rail.set)
		wantCode(t, conn, rail.code, all)
		name, _, _ := strings.Cut(rail.set, " ")
		if rail.code != "" {
			exec(t, conn, "RESET "+name)
		}
	}
	wantCode(t, conn, "57014", "SELECT *, pg_sleep(5) FROM orders")
	wantCode(t, conn, "22023", "SET cleave.rows_max = 'many'")
	exec(t, conn, "SET cleave.scatter = off")
	wantCode(t, conn, "", "SELECT * FROM orders WHERE tenant_id = $1", keys[0][0])
}

func TestExplainOverSeveralShards(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	fill(t, conn, keys, 5)
	text := func(sql string) string {
		t.Helper()
		rows, err := conn.Query(context.Background(), sql)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(lines, "\n")
	}
	for sql, want := range map[string][]string{
		"EXPLAIN SELECT * FROM orders":                                   {"shard shard-0", "shard shard-2", "Seq Scan on orders"},
		"EXPLAIN (ROUTE) SELECT * FROM orders":                           {"operation: scatter", "shard-0, shard-1, shard-2"},
		"EXPLAIN (ROUTE, ANALYZE) SELECT * FROM orders":                  {"Ran on: shard-0, shard-1, shard-2", "rows on shard shard-1: 10 rows", "Result: SELECT 30 (30 rows"},
		"EXPLAIN (ROUTE, ANALYZE) SELECT count(*) FROM orders":           {"Ran on: shard-0, shard-1, shard-2", "(1 rows"},
		"EXPLAIN SELECT count(*) FROM orders a JOIN orders b USING (id)": {"relation", "on the relations"},
	} {
		got := text(sql)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in\n%s", sql, w, got)
			}
		}
	}
}
