package ids_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/ids"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func sequence(change func(q *shardmap.Sequence)) *shardmap.Sequence {
	q := &shardmap.Sequence{ID: "s", Schema: "public", Name: "s", Type: "bigint", First: 1, Start: 1, Increment: 1, Min: 1, Max: math.MaxInt64}
	if change != nil {
		change(q)
	}
	return q
}

func take(t *testing.T, s *ids.Sequences, q *shardmap.Sequence, n int) []int64 {
	t.Helper()
	list, err := s.Next(context.Background(), q, nil, n)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSequenceValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		def   func(q *shardmap.Sequence)
		n     int
		want  []int64
		error sqlstate.Code
	}{
		{"plain", nil, 3, []int64{1, 2, 3}, ""},
		{"cached", func(q *shardmap.Sequence) { q.Cache = 1 }, 3, []int64{1, 2, 3}, ""},
		{"by ten", func(q *shardmap.Sequence) { q.Increment, q.First = 10, 5 }, 3, []int64{5, 15, 25}, ""},
		{"to the end", func(q *shardmap.Sequence) { q.Max = 3 }, 4, []int64{1, 2, 3}, sqlstate.SequenceLimitExceeded},
		{"short of the end", func(q *shardmap.Sequence) { q.Max, q.Increment = 10, 4 }, 4, []int64{1, 5, 9}, sqlstate.SequenceLimitExceeded},
		{"cycle", func(q *shardmap.Sequence) { q.Max, q.Cycle, q.First = 3, true, 2 }, 6, []int64{2, 3, 1, 2, 3, 1}, ""},
		{"down", func(q *shardmap.Sequence) { q.Increment, q.Min, q.Max, q.First = -2, -5, -1, -1 }, 4, []int64{-1, -3, -5}, sqlstate.SequenceLimitExceeded},
		{"down and around", func(q *shardmap.Sequence) { q.Increment, q.Min, q.Max, q.First, q.Cycle = -2, -5, -1, -1, true }, 5, []int64{-1, -3, -5, -1, -3}, ""},
		{"the greatest", func(q *shardmap.Sequence) { q.First = math.MaxInt64 - 1 }, 3, []int64{math.MaxInt64 - 1, math.MaxInt64}, sqlstate.SequenceLimitExceeded},
		{"the least", func(q *shardmap.Sequence) {
			q.Increment, q.Min, q.Max, q.First = math.MinInt64, math.MinInt64, math.MaxInt64, math.MaxInt64
		}, 3, []int64{math.MaxInt64, -1}, sqlstate.SequenceLimitExceeded},
		{"great steps", func(q *shardmap.Sequence) { q.Increment, q.Min, q.First = math.MaxInt64, math.MinInt64, math.MinInt64 }, 4, []int64{math.MinInt64, -1, math.MaxInt64 - 1}, sqlstate.SequenceLimitExceeded},
	} {
		q := sequence(c.def)
		s := ids.NewSequences(newRecords(t))
		var got []int64
		var err error
		for range c.n {
			if got, err = s.Next(context.Background(), q, got, 1); err != nil {
				break
			}
		}
		if !slices.Equal(got, c.want) || sqlstate.CodeOf(err) != c.error {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestSequenceBlocks(t *testing.T) {
	t.Parallel()
	r := newRecords(t)
	q := sequence(nil)
	a, b := ids.NewSequences(r), ids.NewSequences(r)
	if got := take(t, a, q, 2); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("a: %v", got)
	}
	if got := take(t, b, q, 2); !slices.Equal(got, []int64{101, 102}) {
		t.Errorf("b: %v", got)
	}
	if got := take(t, a, q, 1); got[0] != 3 {
		t.Errorf("a again: %v", got)
	}
	// Many at once are one block.
	puts := r.puts
	if got := take(t, b, q, 5000); got[97] != 200 || got[98] != 201 || got[4999] != 5102 || r.puts != puts+1 {
		t.Errorf("b, many: %d...%d in %d writes", got[98], got[4999], r.puts-puts)
	}
	// Another definition ends the block; another name does not.
	renamed := *q
	renamed.Name = "other"
	if got := take(t, a, &renamed, 1); got[0] != 4 {
		t.Errorf("renamed: %v", got)
	}
	wider := *q
	wider.Increment = 10
	if got := take(t, a, &wider, 2); got[0] != 5112 || got[1] != 5122 {
		t.Errorf("by ten: %v", got)
	}
	at, err := a.Where(context.Background(), &wider)
	if err != nil || !at.Called || at.Last != 5112+99*10 {
		t.Errorf("where: %+v, %v", at, err)
	}
	// An orderly end leaves no gap, unless somebody else has taken values since.
	a.Release(context.Background())
	if got := take(t, b, &wider, 1); got[0] != 5132 {
		t.Errorf("after Release: %v", got)
	}
	if err := a.Forget(context.Background(), q); err != nil {
		t.Error(err)
	}
	if got := take(t, b, q, 1); got[0] != 1 {
		t.Errorf("after Forget: %v", got)
	}
}

func TestSetval(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := ids.NewSequences(newRecords(t))
	q := sequence(func(q *shardmap.Sequence) { q.Max = 1000 })
	take(t, s, q, 1)
	if err := s.Set(ctx, q, 42, true); err != nil {
		t.Fatal(err)
	}
	if got := take(t, s, q, 1); got[0] != 43 {
		t.Errorf("after setval(42): %v", got)
	}
	if err := s.Set(ctx, q, 42, false); err != nil {
		t.Fatal(err)
	}
	if got := take(t, s, q, 1); got[0] != 42 {
		t.Errorf("after setval(42, false): %v", got)
	}
	if err := s.Set(ctx, q, 1001, true); sqlstate.CodeOf(err) != sqlstate.NumericOutOfRange {
		t.Errorf("out of bounds: %v", err)
	}
	if err := s.Set(ctx, q, 1000, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(ctx, q, nil, 1); sqlstate.CodeOf(err) != sqlstate.SequenceLimitExceeded {
		t.Errorf("at the end: %v", err)
	}
}

// Many processes and sessions, lost answers included: no value twice.
func TestSequenceOfManyProcesses(t *testing.T) {
	t.Parallel()
	r := newRecords(t)
	q := sequence(nil)
	var s seen
	var wg sync.WaitGroup
	for range 4 {
		p := ids.NewSequences(r)
		for i := range 8 {
			wg.Go(func() {
				for n := range 100 {
					list, err := p.Next(context.Background(), q, nil, 1+n%3)
					if err != nil && sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
						t.Error(err)
						return
					}
					s.add(t, list...)
					if i == 0 {
						r.set(n%10 == 3, n%10 == 5)
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestUUID(t *testing.T) {
	t.Parallel()
	last := ""
	for range 10_000 {
		u, err := ids.UUIDv7()
		if err != nil || len(u) != 36 || u[14] != '7' || u <= last {
			t.Fatalf("%s after %s, %v", u, last, err)
		}
		last = u
	}
	if u, err := ids.UUIDv4(); err != nil || u[14] != '4' {
		t.Errorf("%s, %v", u, err)
	}
}
