package cleave_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/cleavedb/cleave"
)

// TestNoTornReads: by default each read over several shards has each transaction wholly or not at all, on every engine, outside of
// blocks and in READ COMMITTED blocks, while others transfer between shards.
func TestNoTornReads(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *cleave.Cluster) {
		const keys, each, rounds = 8, 1000, 60
		ctx := context.Background()
		db := c.DB()
		run(t, db, createOrders)
		run(t, db, "CREATE TABLE mirror (tenant_id bigint PRIMARY KEY, id bigint) WITH (cleave.shard_key = 'tenant_id')")
		for k := range keys {
			run(t, db, "INSERT INTO orders VALUES ($1, $2, 'x')", k, each)
			run(t, db, "INSERT INTO mirror VALUES ($1, $2)", k, each)
		}
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if err := transfer(ctx, db, i%keys, (i+1+i/keys%(keys-1))%keys); err != nil {
					done <- err
					return
				}
			}
		}()
		reads := []string{
			"SELECT sum(id)::bigint FROM orders",
			"SELECT sum(id)::bigint FROM orders WHERE note = 'x'",
			// Two tables of each shard, which have to have one snapshot.
			"SELECT (sum(a.id) + sum((a.id - b.id) * (a.id - b.id)) * 1000000)::bigint FROM orders a JOIN mirror b ON a.tenant_id + 0 = b.tenant_id",
		}
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range rounds {
			for _, around := range [][2]string{{"SELECT 1", "SELECT 1"}, {"BEGIN", "COMMIT"}} {
				run(t, conn, around[0])
				for _, read := range reads {
					var n int64
					if err := conn.QueryRowContext(ctx, read).Scan(&n); err != nil || n != keys*each {
						t.Errorf("%s; %s: %d, want %d: %#v", around[0], read, n, keys*each, err)
					}
				}
				run(t, conn, around[1])
			}
		}
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// transfer moves one from a key's rows to another's, in both tables.
func transfer(ctx context.Context, db *sql.DB, from, to int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, table := range []string{"orders", "mirror"} {
		for key, by := range map[int]int{from: -1, to: 1} {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET id = id + %d WHERE tenant_id = %d", table, by, key)); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
	}
	return tx.Commit()
}
