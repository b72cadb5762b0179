package postgres

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestWithdrawBesideWriters: no client's write fails because a publication of its table is dropped.
func TestWithdrawBesideWriters(t *testing.T) {
	ctx := t.Context()
	url := pgtest.Database(t)
	shard, err := Driver{}.Open(engine.Config{Cluster: "c", Name: "s", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer shard.Close()
	if err := shard.Install(ctx); err != nil {
		t.Fatal(err)
	}
	v := shard.(engine.Movable).Mover(1).(*mover)
	c, err := v.housekeeping(ctx, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer v.done(c)
	do := func(sql string) {
		t.Helper()
		if _, err := c.exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	const writers = 8
	stop, failed := make(chan struct{}), make(chan error, writers)
	var all sync.WaitGroup
	for k := range writers {
		w, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			if _, err := w.Exec(ctx, "CREATE TABLE other AS SELECT k, 0 AS v FROM generate_series(1, 8) AS k; ALTER TABLE other ADD PRIMARY KEY (k)"); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			defer w.Close(context.Background())
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := w.Exec(ctx, "UPDATE other SET v = v + 1 WHERE k = $1", k+1); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	const name = "cleave_test"
	for range 300 {
		if len(failed) > 0 {
			break
		}
		do("CREATE PUBLICATION " + name + " FOR TABLE ONLY public.other")
		if err := v.withdraw(ctx, c, name); err != nil {
			t.Error(err)
			break
		}
		do("DROP PUBLICATION " + name)
	}
	close(stop)
	all.Wait()
	close(failed)
	for err := range failed {
		t.Errorf("an UPDATE: %v", err)
	}
}
