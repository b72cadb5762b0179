package ids_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/ids"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that the test sets; waiting on it moves it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(ids.Epoch + 1_000_000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.step(d)
	return ctx.Err()
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

var errDown = errors.New("the directory is down")

// store is the interface under another name than that of one of its methods.
type store interface{ shardmap.Records }

// records is a directory's records that can be made to fail.
type records struct {
	store
	mu sync.Mutex
	// down: every call fails. lost: writes happen and are reported as failed.
	down, lost bool
	puts       int
}

func newRecords(t testing.TB) *records {
	t.Helper()
	d := memory.New()
	t.Cleanup(func() { _ = d.Close() })
	return &records{store: d}
}

func (r *records) state() (down, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down, r.lost
}

func (r *records) set(down, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down, r.lost = down, lost
}

func (r *records) Record(ctx context.Context, key string) (shardmap.Record, error) {
	if down, _ := r.state(); down {
		return shardmap.Record{}, errDown
	}
	return r.store.Record(ctx, key)
}

func (r *records) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	down, lost := r.state()
	if down {
		return 0, errDown
	}
	r.mu.Lock()
	r.puts++
	r.mu.Unlock()
	rev, err := r.store.PutRecord(ctx, key, value, expect)
	if lost && err == nil {
		return 0, errDown
	}
	return rev, err
}

func node(n uint16) func() uint16 { return func() uint16 { return n } }

// seen collects values, and tells of one that came twice.
type seen struct {
	mu sync.Mutex
	at map[int64]bool
}

func (s *seen) add(t testing.TB, list ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[int64]bool{}
	}
	for _, id := range list {
		if s.at[id] {
			t.Errorf("%d was given twice", id)
		}
		s.at[id] = true
	}
}
