package cleave_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// keysApart are two keys of orders on different shards.
func keysApart(t *testing.T, pool *pgxpool.Pool) (a, b int64) {
	t.Helper()
	first := ""
	for k := int64(1); k < 100; k++ {
		var shard string
		if err := pool.QueryRow(context.Background(), "SELECT cleave.shard_of('hash_bigint', $1)", strconv.FormatInt(k, 10)).Scan(&shard); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first, a = shard, k
		} else if shard != first {
			return a, k
		}
	}
	t.Fatal("all keys are on one shard")
	return 0, 0
}

// TestErrorBehindLimit: a shard fails on a row that a LIMIT of a block's statement did not need any more.
func TestErrorBehindLimit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := open(t, postgresURL(t, 2))
	run(t, c.DB(), createOrders)
	a, b := keysApart(t, c.Pool())
	for _, k := range []int64{a, b} {
		run(t, c.DB(), "INSERT INTO orders VALUES ($1, 1, '0')", k)
	}
	for _, fails := range []int64{a, b} {
		run(t, c.DB(), "UPDATE orders SET note = '1'")
		conn, err := c.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		do := func(sql string, args ...any) error {
			rows, err := conn.Query(ctx, sql, args...)
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		}
		for _, sql := range []string{"BEGIN", "UPDATE orders SET note = '0' WHERE tenant_id = $1"} {
			var args []any
			if sql != "BEGIN" {
				args = []any{fails}
			}
			if err := do(sql, args...); err != nil {
				t.Fatal(err)
			}
		}
		// One PostgreSQL gives the row or the error, by the order in which it reads.
		err = do("SELECT 10 / note::int FROM orders LIMIT 1")
		if err != nil && codeOf(err) != "22012" {
			t.Errorf("key %d: %v", fails, err)
		}
		tag, end := conn.Exec(ctx, "COMMIT")
		want := "COMMIT"
		if err != nil {
			want = "ROLLBACK"
		}
		if end != nil || tag.String() != want {
			t.Errorf("key %d: SELECT gave %v, COMMIT %s, %v", fails, err, tag, end)
		}
		var note string
		if e := c.DB().QueryRow("SELECT note FROM orders WHERE tenant_id = $1", fails).Scan(&note); e != nil || (note == "0") != (err == nil) {
			t.Errorf("key %d: SELECT gave %v, and the row has %q, %v", fails, err, note, e)
		}
	}
}
