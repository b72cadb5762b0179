package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestSchemaChangeBesideAtomicReaders: clients of two routers read a table all the time, with one snapshot over all shards.
// A schema change has the lock of one shard and waits for another's, the readers the other way round. Each change goes
// through, and each read that finds the table gives the rows that there are.
func TestSchemaChangeBesideAtomicReaders(t *testing.T) {
	testrun.Long(t, "changes and readers meet again and again on two routers; TestMigration has the changes")
	t.Parallel()
	c := start(t, config{shards: 3})
	routers := []*cluster{c, start(t, config{dir: c.dir, urls: c.shards})}
	conn := c.connect(t)
	const rows = 300
	create := "CREATE TABLE busy (k bigint PRIMARY KEY, v int) WITH (cleave.shard_key = 'k')"
	fill := fmt.Sprintf("INSERT INTO busy SELECT i, i FROM generate_series(1, %d) AS i", rows)
	exec(t, conn, create)
	exec(t, conn, fill)

	reads := []string{
		"SELECT count(*) FROM busy",
		"SELECT count(*) FROM (SELECT k FROM busy ORDER BY k) AS x",
		"SELECT count(*) FROM busy AS a JOIN busy AS b ON a.v = b.k",
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	var done [6]atomic.Int64
	for i := range done {
		reader := routers[i%2].connect(t)
		sql := reads[i%len(reads)]
		all.Go(func() {
			for ctx.Err() == nil {
				var n int64
				err := reader.QueryRow(context.Background(), sql).Scan(&n)
				missing, ok := errors.AsType[*pgconn.PgError](err)
				switch {
				case ok && missing.Code == "42P01":
				case err == nil && n != rows && n != 0: // 0 after TRUNCATE
					t.Errorf("%s: %d rows", sql, n)
				case err != nil:
					t.Errorf("%s: %v", sql, err)
				}
				done[i].Add(1)
			}
		})
	}
	for round := range 3 {
		for _, sql := range []string{
			"ALTER TABLE busy ADD COLUMN extra int", "CREATE INDEX busy_v ON busy (v)", "ALTER TABLE busy DROP COLUMN extra", "TRUNCATE busy", fill, "DROP INDEX busy_v", "DROP TABLE busy", create, fill,
		} {
			if _, err := conn.Exec(context.Background(), sql); err != nil {
				t.Fatalf("round %d: %s: %v", round, sql, err)
			}
			for i := range done { // all read again before the next change
				was := done[i].Load()
				waitfor.True(t, "the reader goes on", func() bool { return done[i].Load() > was })
			}
		}
	}
}

// TestSchemaChangeInARing: a transaction has changed a row of one shard, and a schema change has the table of the other; each
// waits for the other's. The transaction gives way.
func TestSchemaChangeInARing(t *testing.T) {
	t.Parallel()
	c, conn, keys := orders(t, config{shards: 2})
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x'), ($2, 1, 'x')", keys[0][0], keys[1][0])
	writer := c.connect(t)
	exec(t, writer, "SET cleave.deadlock_timeout = '100ms'")
	exec(t, writer, "BEGIN")
	exec(t, writer, "UPDATE orders SET note = 'y' WHERE tenant_id = $1", keys[1][0])
	changed := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SET lock_timeout = '1min'; ALTER TABLE orders ADD COLUMN extra int")
		changed <- err
	}()
	waitfor.True(t, "the schema change waits", func() bool {
		return c.direct(t, 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'") == "1"
	})
	wantCode(t, writer, "40P01", "UPDATE orders SET note = 'y' WHERE tenant_id = $1", keys[0][0])
	exec(t, writer, "ROLLBACK")
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE note = 'x' AND extra IS NULL"); n != 2 {
		t.Errorf("%d rows", n)
	}
}
