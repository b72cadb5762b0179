package shardmap_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
)

func TestLease(t *testing.T) {
	var none *shardmap.Lease
	none.Acknowledge(3)
	none.Install(3)
	if !none.Live() || !none.Holds(0) || none.Left() <= 0 {
		t.Fatal("nil needs no lease, and is live")
	}
	var told []uint64
	l := shardmap.NewLease(func(v uint64) { told = append(told, v) })
	if l.Live() || l.Left() != 0 {
		t.Fatal("a new lease is live")
	}
	l.Extend(time.Now(), time.Hour)
	if !l.Live() || l.Left() <= 0 || l.Left() > time.Hour {
		t.Fatalf("%v left of an hour", l.Left())
	}
	l.Extend(time.Now(), time.Minute)
	if l.Left() < time.Minute*2 {
		t.Fatal("a renewal made it shorter")
	}
	l.End()
	if l.Live() {
		t.Fatal("an ended lease is live")
	}
	// From counts, not the moment of the answer.
	l.Extend(time.Now().Add(-time.Minute), time.Minute)
	if l.Live() {
		t.Fatal("a lease that was asked for a minute ago and runs a minute is live")
	}
	for _, v := range []uint64{4, 2, 4, 7} {
		l.Acknowledge(v)
	}
	if len(told) != 2 || told[0] != 4 || told[1] != 7 || l.Acknowledged() != 7 {
		t.Fatalf("acknowledged %d, told %v", l.Acknowledged(), told)
	}
}

// seat is a Seat that a test can make fail or lose the lease.
type seat struct {
	mu      sync.Mutex
	lost    bool
	away    bool
	node    uint16
	version uint64
	acked   uint64
	took    int
}

var errAway = errors.New("away")

func (s *seat) Take(_ context.Context, prefer uint16, acked uint64) (uint16, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return 0, 0, errAway
	}
	s.lost, s.acked = false, acked
	s.took++
	if s.took > 1 && s.node == 0 {
		s.node = prefer + 1
	}
	return s.node, s.version, nil
}

func (s *seat) Renew(_ context.Context, acked uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away:
		return errAway
	case s.lost:
		return shardmap.ErrLeaseLost
	}
	s.acked = acked
	return nil
}

func (s *seat) Leave(context.Context) error { return nil }

func (s *seat) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// TestKeep has the directory fail, come back, and give the lease up: the lease
// ends, and is live again only with a map that is new enough.
func TestKeep(t *testing.T) {
	s := &seat{}
	const ttl = 400 * time.Millisecond
	l, leave, err := shardmap.Keep(t.Context(), context.Background(), ttl, s)
	if err != nil {
		t.Fatal(err)
	}
	term := l.Term()
	l.Install(5)
	l.Acknowledge(5)
	waitfor.True(t, "5 is acknowledged", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.acked == 5 })

	// A directory that cannot be reached for a while: the same term.
	s.set(func() { s.away = true })
	waitfor.True(t, "the lease ends", func() bool { return !l.Live() })
	if l.Holds(term) {
		t.Fatal("it holds, and is not live")
	}
	s.set(func() { s.away = false })
	waitfor.True(t, "the lease is live again", l.Live)
	if !l.Holds(term) {
		t.Fatal("the directory has kept the lease, but the term is another")
	}

	// One that gives it up, while the map changes: what was begun is not used.
	s.set(func() { s.away = true })
	waitfor.True(t, "the lease ends", func() bool { return !l.Live() })
	s.set(func() { s.away, s.lost, s.version = false, true, 8 })
	waitfor.True(t, "the process joins anew", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.took == 2 })
	waitfor.True(t, "it has the other node", func() bool { return l.Node() == 1 })
	time.Sleep(ttl / 2) // some renewals
	if l.Live() {
		t.Fatal("the lease is live with version 5 installed, and the directory has version 8")
	}
	l.Install(7)
	if l.Live() {
		t.Fatal("the lease is live with version 7 installed, and the directory has version 8")
	}
	l.Install(8)
	waitfor.True(t, "the lease is live again", l.Live)
	if l.Holds(term) {
		t.Fatal("what was begun before the lease was lost holds")
	}
	if node, held := l.HeldNode(); node != 1 || !held {
		t.Fatalf("node %d, held %v", node, held)
	}
	if err := leave(t.Context()); err != nil || l.Live() {
		t.Fatalf("leave: %v", err)
	}

	s.away = true
	if _, _, err := shardmap.Keep(t.Context(), context.Background(), ttl, s); !errors.Is(err, errAway) {
		t.Fatalf("the first attempt failed, Keep says %v", err)
	}
}

func TestFreeNode(t *testing.T) {
	taken := map[uint16]bool{0: true, 1: true, 3: true}
	for _, c := range [][2]uint16{{0, 2}, {2, 2}, {3, 2}, {9, 9}, {shardmap.MaxNodes, 2}} {
		if n, err := shardmap.FreeNode(c[0], taken); err != nil || n != c[1] {
			t.Errorf("FreeNode(%d) = %d, %v; want %d", c[0], n, err, c[1])
		}
	}
	for n := range uint16(shardmap.MaxNodes) {
		taken[n] = true
	}
	if n, err := shardmap.FreeNode(0, taken); err == nil {
		t.Errorf("node %d was given; all are taken", n)
	}
}

func BenchmarkLeaseHolds(b *testing.B) {
	l := shardmap.NewLease(nil)
	l.Extend(time.Now(), time.Hour)
	term := l.Term()
	for b.Loop() {
		if !l.Holds(term) {
			b.Fatal("not live")
		}
	}
}
