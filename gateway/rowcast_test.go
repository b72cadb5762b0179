package gateway_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestCharsAndRowsOverShards: "char" is sorted over several shards as PostgreSQL sorts it, whatever extra_float_digits is, and rows
// with an interval and money are compared with their own columns made a row. Where a column could read words for the time, that
// is refused.
func TestCharsAndRowsOverShards(t *testing.T) {
	_, conn, keys := orders(t, config{shards: 2})
	plain, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(context.Background())
	exec(t, plain, "CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id))")
	for _, c := range []*pgx.Conn{conn, plain} {
		exec(t, c, `ALTER TABLE orders ADD k "char", ADD i interval, ADD m money`)
		for n, k := range []int64{keys[0][0], keys[1][0], keys[0][1], keys[1][1]} {
			exec(t, c, "INSERT INTO orders VALUES ($1, 1, 'a', $2::text::\"char\", '1 day', 5)", k, []string{`\200`, "b", "", "~"}[n])
		}
	}
	answer := func(c *pgx.Conn, sql string) (out string) {
		t.Helper()
		results, err := c.PgConn().Exec(context.Background(), sql).ReadAll()
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		for _, r := range results {
			for _, row := range r.Rows {
				for _, v := range row {
					out += string(v) + "|"
				}
			}
		}
		return out
	}
	for _, set := range []string{"RESET extra_float_digits", "SET extra_float_digits = 0", "SET extra_float_digits = -5", "RESET extra_float_digits; SET intervalstyle = 'sql_standard'"} {
		for _, sql := range []string{
			"SELECT k FROM orders ORDER BY k, tenant_id", "SELECT max(k), min(k) FROM orders", "SELECT DISTINCT k FROM orders ORDER BY 1", "SELECT k, count(*) FROM orders GROUP BY k ORDER BY k DESC",
			"SELECT count(*) FROM orders t WHERE t = ROW(t.*)::orders", "SELECT count(*) FROM orders t, orders u WHERE t = ROW(u.*)::orders",
			"SELECT t = ROW(t.*)::orders FROM orders t JOIN orders u ON t.id = u.id ORDER BY t.tenant_id LIMIT 3",
		} {
			if got, want := answer(conn, set+"; "+sql), answer(plain, set+"; "+sql); got != want {
				t.Errorf("%s; %s: router %s, PostgreSQL %s", set, sql, got, want)
			}
		}
	}
	exec(t, conn, "ALTER TABLE orders ADD z timetz DEFAULT '01:02+03'")
	wantCode(t, conn, "0A000", "SELECT count(*) FROM orders t WHERE t = ROW(t.*)::orders")
}
