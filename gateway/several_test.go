package gateway_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/executor/several/limits"
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

// TestGuardRailsOfWrites: the bounds hold for everything that writes, and nothing
// of what they stop is kept. Here they are the router's; a session may set others.
func TestGuardRailsOfWrites(t *testing.T) {
	t.Parallel()
	// The bound of time is one that a busy machine keeps, but for those that sleep.
	cl, conn, keys := orders(t, config{several: limits.Defaults{ShardsMax: 2, RowsMax: 3, BytesMax: 1000, Timeout: 3 * time.Second}})
	for _, ks := range keys {
		for id := range 2 {
			exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'x')", ks[0], id)
		}
	}
	var rows, moves []string
	for i, ks := range keys {
		rows = append(rows, fmt.Sprintf("(%d, 10, 'new')", ks[1]))
		moves = append(moves, fmt.Sprintf("WHEN %d THEN %d", ks[0], keys[(i+1)%len(keys)][0]))
	}
	all := strings.Join(rows, ", ")
	state := func() string {
		return one[string](t, conn, "SELECT count(*) || ' ' || count(*) FILTER (WHERE note = 'x') || ' ' || sum(tenant_id * id) FROM orders")
	}
	exec(t, conn, "SET cleave.shards_max = 0")
	want := state()
	exec(t, conn, "RESET cleave.shards_max")
	for _, test := range []struct{ set, code, sql string }{
		{"", "53400", "INSERT INTO orders VALUES " + all},
		{"", "53400", "INSERT INTO orders SELECT tenant_id, id + 50, note FROM orders"},
		{"", "53400", "UPDATE orders SET note = 'y'"},
		{"", "53400", "DELETE FROM orders"},
		{"", "53400", "UPDATE orders SET tenant_id = CASE tenant_id " + strings.Join(moves, " ") + " ELSE tenant_id END"},
		// Two shards are read, and a third one gets their rows.
		{"", "53400", fmt.Sprintf("UPDATE orders SET tenant_id = %d, id = id + tenant_id * 100 WHERE tenant_id IN (%d, %d)", keys[2][0], keys[0][0], keys[1][0])},
		{"", "53400", "COPY"},
		{"cleave.shards_max = 0", "53400", "UPDATE orders SET note = 'y' RETURNING *"},
		{"cleave.shards_max = 0; SET cleave.rows_max = 0", "53400", "UPDATE orders SET note = 'y' RETURNING repeat('x', 400)"},
		{"cleave.shards_max = 0", "53400", "DELETE FROM orders RETURNING id"},
		{"cleave.shards_max = 0", "57014", "UPDATE orders SET note = 'y' WHERE pg_sleep(60) IS NOT NULL"},
		{"cleave.shards_max = 0", "57014", "DELETE FROM orders WHERE pg_sleep(60) IS NOT NULL"},
		{"cleave.shards_max = 0", "53400", "COPY orders TO STDOUT"},
	} {
		if test.set != "" {
			for _, set := range strings.Split("SET "+test.set, ";") {
				exec(t, conn, set)
			}
		}
		switch {
		case test.sql == "COPY":
			var lines strings.Builder
			for _, ks := range keys {
				fmt.Fprintf(&lines, "%d\t10\tnew\n", ks[1])
			}
			_, err := conn.PgConn().CopyFrom(context.Background(), strings.NewReader(lines.String()), "COPY orders FROM STDIN")
			if codeOf(err) != test.code {
				t.Errorf("COPY FROM: %v", err)
			}
		case strings.HasPrefix(test.sql, "COPY"):
			_, err := conn.PgConn().CopyTo(context.Background(), io.Discard, test.sql)
			if codeOf(err) != test.code {
				t.Errorf("%s: %v", test.sql, err)
			}
		default:
			wantCode(t, conn, test.code, test.sql)
		}
		exec(t, conn, "SET cleave.shards_max = 0")
		if got := state(); got != want {
			t.Fatalf("%s: the rows are %q, and were %q", test.sql, got, want)
		}
		exec(t, conn, "RESET cleave.shards_max")
		exec(t, conn, "RESET cleave.rows_max")
	}
	for name, want := range map[string]string{"cleave.scatter": "on", "cleave.shards_max": "2", "cleave.rows_max": "3", "cleave.bytes_max": "1000", "cleave.several_timeout": "3000ms", "cleave.gather_rows_max": "0"} {
		if got := one[string](t, conn, "SHOW "+name); got != want {
			t.Errorf("SHOW %s: %q, want %q", name, got, want)
		}
	}
	other := cl.connect(t, "&cleave.shards_max=0", "&cleave.several_timeout=0")
	exec(t, other, "UPDATE orders SET note = 'y' WHERE pg_sleep(0.2) IS NOT NULL")
	wantCode(t, other, "53400", "SELECT * FROM orders")
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
