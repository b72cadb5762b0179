package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// both is a row of the first tenant of two shards each.
const both = "SELECT count(*) FROM orders WHERE id = $1 AND tenant_id = ANY (ARRAY[%d, %d])"

func TestCommitOnSeveralShards(t *testing.T) {
	t.Parallel()
	c, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	count := func(id int) int64 { return one[int64](t, conn, fmt.Sprintf(both, a, b), id) }
	for id, end := range []string{"COMMIT", "ROLLBACK"} {
		exec(t, conn, "BEGIN")
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'x')", a, id)
		exec(t, conn, "SAVEPOINT s")
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'x')", b, id)
		exec(t, conn, "ROLLBACK TO s")
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'y')", b, id)
		if n := count(id); n != 2 {
			t.Errorf("%d rows inside", n)
		}
		exec(t, conn, end)
		if n, want := count(id), int64(2-2*id); n != want {
			t.Errorf("%d rows after %s, want %d", n, end, want)
		}
	}
	// Outside of a block: the messages up to Sync are one transaction.
	batch := &pgx.Batch{}
	batch.Queue("UPDATE orders SET note = 'z' WHERE id = 0")
	batch.Queue("INSERT INTO orders VALUES ($1, 10, 'x')", a)
	if err := conn.SendBatch(context.Background(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE note = 'z'"); n != 2 {
		t.Errorf("%d rows changed", n)
	}
	for i := range c.shards {
		if n := c.direct(t, i, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"); n != "0" {
			t.Errorf("%s are prepared on shard %d", n, i)
		}
	}
}

func TestTransactionMode(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	exec(t, conn, "SET cleave.transaction_mode = 'single'")
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", a)
	_, err := conn.Exec(context.Background(), "INSERT INTO orders VALUES ($1, 1, 'x')", b)
	if codeOf(err) != "0A000" || !strings.Contains(err.Error(), "shard-0") || !strings.Contains(err.Error(), "shard-1") {
		t.Error(err)
	}
	exec(t, conn, "ROLLBACK")
	wantCode(t, conn, "0A000", "UPDATE orders SET note = 'z'")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders"); n != 0 { // a read outside of a block is free
		t.Errorf("%d rows", n)
	}
	exec(t, conn, "SET cleave.transaction_mode = 'multi'")
	exec(t, conn, "BEGIN ISOLATION LEVEL SERIALIZABLE")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", a)
	wantCode(t, conn, "0A000", "INSERT INTO orders VALUES ($1, 1, 'x')", b)
	exec(t, conn, "ROLLBACK")
}
