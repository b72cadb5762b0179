package gateway_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/executor/moment/momenttest"
)

// TestMomentsOfClients: clients write on one shard after the other, each time when they have the answer. What REPEATABLE READ
// blocks see is a moment: no transaction without one that its client knew of.
func TestMomentsOfClients(t *testing.T) {
	t.Parallel()
	c, _, keys := mirrored(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	h := momenttest.New()
	writers := make(chan error, 2)
	for w, table := range []string{"orders", "mirror"} {
		conn := c.connect(t)
		go func() {
			writers <- func() error {
				for i := 0; ctx.Err() == nil; i++ {
					key := keys[(i+w)%len(keys)][0]
					if err := h.Write(table+strconv.FormatInt(key, 10), func(n int) error {
						_, err := conn.Exec(context.Background(), "UPDATE "+table+" SET id = $1 WHERE tenant_id = $2", 1000+n, key)
						return err
					}); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	const readers, rounds = 3, 15
	done := make(chan error, readers)
	for range readers {
		conn := c.connect(t)
		exec(t, conn, "SET cleave.read_consistency = 'atomic'")
		go func() {
			done <- func() error {
				for i := range rounds {
					if err := h.Read(func() (map[string]int, error) { return momentOf(conn, keys, i) }); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range readers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	stop()
	for range 2 {
		if err := <-writers; err != nil {
			t.Error(err)
		}
	}
	if wrong := h.Check(); len(wrong) > 0 || h.Reads() != readers*rounds {
		t.Errorf("of %d snapshots these are not strict: %q", h.Reads(), wrong)
	}
}

// momentOf reads what TestMomentsOfClients writes in one block, from all shards with one statement or one after the other.
func momentOf(conn *pgx.Conn, keys [][]int64, i int) (saw map[string]int, err error) {
	ctx := context.Background()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // it only read
	saw = map[string]int{}
	for k := range keys {
		key := keys[(i+k)%len(keys)][0]
		for _, table := range []string{"orders", "mirror"} {
			where := ""
			if i%2 == 0 {
				where = " AND tenant_id = " + strconv.FormatInt(key, 10)
			}
			var n int
			if err := tx.QueryRow(ctx, "SELECT id - 1000 FROM "+table+" WHERE tenant_id + 0 = $1"+where, key).Scan(&n); err != nil {
				return nil, err
			}
			saw[table+strconv.FormatInt(key, 10)] = n
		}
	}
	return saw, nil
}

// TestNoMoment: without 'atomic' each shard has a snapshot of its own, so the test above can fail.
func TestNoMoment(t *testing.T) {
	t.Parallel()
	c, conn, keys := mirrored(t)
	writer := c.connect(t)
	h := momenttest.New()
	exec(t, conn, "SET cleave.read_consistency = 'shard'")
	exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	saw := map[string]int{}
	see := func(key int64) {
		saw[strconv.FormatInt(key, 10)] = int(one[int64](t, conn, "SELECT id - 1000 FROM orders WHERE tenant_id = $1", key))
	}
	err := h.Read(func() (map[string]int, error) {
		see(keys[0][0])
		for _, ks := range keys[:2] {
			if err := h.Write(strconv.FormatInt(ks[0], 10), func(n int) error {
				exec(t, writer, "UPDATE orders SET id = $1 WHERE tenant_id = $2", 1000+n, ks[0])
				return nil
			}); err != nil {
				return nil, err
			}
		}
		see(keys[1][0])
		return saw, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Check()) != 1 {
		t.Errorf("%v is a strict snapshot", saw)
	}
}
