package executor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestFaultsWhileConnecting: a fault of the router's own while a connection is made takes no place of the pool away, neither for the first
// connection, which learns what the shard's settings are, nor for a later one.
func TestFaultsWhileConnecting(t *testing.T) {
	t.Parallel()
	_, dir := startWith(t, executor.Limits{}, installed(t, 1)...)
	var faults atomic.Int64
	ex := followBy(t, dir, executor.Limits{PoolMax: 1}, func(map[string]string) {
		if faults.Add(-1) >= 0 {
			panic("a fault")
		}
	})
	for _, which := range []string{"the first connection", "a later one"} {
		faults.Store(1)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: there was no fault", which)
				}
			}()
			_, _ = ex.Acquire(t.Context(), "shard-0", nil)
		}()
		ctx, stop := context.WithTimeout(t.Context(), waitfor.Max/6)
		c, err := ex.Acquire(ctx, "shard-0", nil)
		stop()
		if err != nil {
			t.Fatalf("after a fault of %s: %v", which, err)
		}
		c.Break()
		c.Release()
	}
}

// TestUnreadAnswers: a connection whose answer nobody read is not for the next one, who would take it for its own.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	ex, _ := startWith(t, executor.Limits{PoolMax: 1}, installed(t, 1)...)
	c, err := ex.Acquire(t.Context(), "shard-0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ask("SELECT pg_sleep(1), 'of another'"); err != nil {
		t.Fatal(err)
	}
	c.Release() // as after a fault between the two
	if c, err = ex.Acquire(t.Context(), "shard-0", nil); err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if res, err := c.Exec("SELECT 'mine'"); err != nil || len(res.Rows) != 1 || res.Rows[0][0].String != "mine" {
		t.Fatal(res, err)
	}
}
