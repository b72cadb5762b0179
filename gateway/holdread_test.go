package gateway_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
)

// TestHoldAllRunsReadsAgain: a read over several shards that is no transaction of its client's is not ended by a move that it is in the way
// of: it makes way, waits, and gives its rows.
func TestHoldAllRunsReadsAgain(t *testing.T) {
	m, _ := movable(t)
	ctx := context.Background()
	lock, err := pgx.Connect(ctx, m.shards[1])
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close(ctx)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		exec(t, lock, "BEGIN")
		exec(t, lock, "LOCK TABLE things")
		c := m.connect(t)
		var rows int
		reads := later(func() error {
			return c.QueryRow(ctx, "SELECT count(*) FROM things a JOIN things b ON a.n = b.n", mode).Scan(&rows)
		})
		waitfor.True(t, "the read waits for the lock", func() bool {
			return m.direct(t, 1, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'things'::regclass") != "0"
		})
		m.acked(t, m.put(t, shardmap.HoldAll))
		m.held(t, 1)
		exec(t, lock, "COMMIT")
		m.drop(t)
		if err := ends(t, "a read", reads); err != nil || rows != 81 {
			t.Errorf("%v: %d rows, %v", mode, rows, err)
		}
	}
}
