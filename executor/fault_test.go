package executor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/planner"
)

// faulty is PostgreSQL's driver, of which the next connections panic.
type faulty struct {
	postgres.Driver
	faults atomic.Int64
}

type faultyShard struct {
	engine.Shard
	by *faulty
}

func (f *faulty) Open(c engine.Config) (engine.Shard, error) {
	s, err := f.Driver.Open(c)
	return &faultyShard{s, f}, err
}

func (s *faultyShard) Connect(ctx context.Context, start map[string]string) (engine.Conn, error) {
	if s.by.faults.Add(-1) >= 0 {
		panic("a fault")
	}
	return s.Shard.Connect(ctx, start)
}

// TestFaultsWhileConnecting: a fault of the router's own while a connection is made takes no place of the pool away, neither for the first
// connection, which learns what the shard's settings are, nor for a later one.
func TestFaultsWhileConnecting(t *testing.T) {
	t.Parallel()
	_, dir := startWith(t, executor.Limits{}, installed(t, 1)...)
	driver := &faulty{}
	ex := executor.New(executor.Options{Directory: dir, Drivers: map[string]engine.Driver{"postgres": driver}, Planner: planner.New(planner.Limits{}), Limits: executor.Limits{PoolMax: 1}})
	if err := ex.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	for _, which := range []string{"the first connection", "a later one"} {
		driver.faults.Store(1)
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
