package shardmaptest

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

var sharedCases = []struct {
	name string
	test func(*testing.T, Store)
}{
	{"TwoHandles", testTwoHandles},
	{"ConcurrentHandles", testConcurrentHandles},
	{"ConcurrentCreation", testConcurrentCreation},
	{"WatchOtherHandle", testWatchOther},
	{"OpenAgain", testOpenAgain},
	{"RecordsShared", testRecordsShared},
	{"Abandoned", testAbandoned},
}

func testTwoHandles(t *testing.T, open Store) {
	a, b := open(), open()
	defer closing(t, a)
	defer closing(t, b)
	v1 := create(t, a)
	if got := mustLoad(t, b); !reflect.DeepEqual(got.State(), v1.State()) {
		t.Fatalf("the other handle loads\n%+v", got.State())
	}
	_, err := b.Update(t.Context(), change(0, "again"), State(t))
	wantErr(t, "a second creation by the other handle", err, shardmap.ErrConflict)
	v2 := mustRelabel(t, b, mustLoad(t, b), "b")
	if got := mustLoad(t, a); got.Version() != v2.Version() {
		t.Fatalf("Load gives version %d after the other handle made %d", got.Version(), v2.Version())
	}
	_, err = relabel(t.Context(), a, v1, "late")
	wantErr(t, "an Update from before the other handle's", err, shardmap.ErrConflict)
	c := change(v2.Version(), "with ID")
	c.ID = "once"
	if _, err = a.Update(t.Context(), c, v2.State().Clone()); err != nil {
		t.Fatalf("Update: %v", err)
	}
	if e, err := b.Find(t.Context(), "once"); err != nil || e.Version != 3 {
		t.Fatalf("the other handle finds %+v, %v", e, err)
	}
	for v := uint64(1); v <= 3; v++ {
		x, errA := a.At(t.Context(), v)
		y, errB := b.At(t.Context(), v)
		if errA != nil || errB != nil || !reflect.DeepEqual(x.State(), y.State()) {
			t.Fatalf("the handles give different versions %d (%v, %v)", v, errA, errB)
		}
	}
}

func testConcurrentHandles(t *testing.T, open Store) {
	handles := make([]shardmap.Directory, 4)
	for i := range handles {
		handles[i] = open()
		defer closing(t, handles[i])
	}
	create(t, handles[0])
	race(t, 8, 6, func(worker int) shardmap.Directory { return handles[worker%len(handles)] })
}

func testConcurrentCreation(t *testing.T, open Store) {
	const n = 6
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			d := open()
			defer closing(t, d)
			_, errs[i] = d.Update(t.Context(), change(0, "by "+strconv.Itoa(i)), State(t))
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, shardmap.ErrConflict):
			t.Errorf("creation: %v", err)
		}
	}
	if won != 1 {
		t.Fatalf("%d of %d creations succeeded, want 1", won, n)
	}
}

func testWatchOther(t *testing.T, open Store) {
	a, b := open(), open()
	defer closing(t, a)
	defer closing(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := b.Watch(ctx)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	snap := create(t, a)
	if got := next(t, ch); got.Version() != 1 {
		t.Fatalf("the other handle's watch began with version %d", got.Version())
	}
	var slowest time.Duration
	for n := range 10 {
		snap = mustRelabel(t, a, snap, strconv.Itoa(n))
		begin := time.Now()
		for {
			got := next(t, ch)
			if got.Version() > snap.Version() {
				t.Fatalf("the watch sent version %d before it was made", got.Version())
			}
			if got.Version() == snap.Version() {
				if !reflect.DeepEqual(got.State(), snap.State()) {
					t.Fatalf("the watch sent another version %d", got.Version())
				}
				break
			}
		}
		slowest = max(slowest, time.Since(begin))
	}
	t.Logf("a change reached the other handle after at most %v", slowest)
	// Changes by both handles arrive in order.
	for n := range 20 {
		d := a
		if n%2 == 0 {
			d = b
		}
		snap = mustRelabel(t, d, snap, "both "+strconv.Itoa(n))
	}
	for last := uint64(0); last < snap.Version(); {
		got := next(t, ch)
		if got.Version() <= last {
			t.Fatalf("the watch sent version %d after %d", got.Version(), last)
		}
		last = got.Version()
	}
	cancel()
	awaitEnd(t, ch)
}

func testOpenAgain(t *testing.T, open Store) {
	d := open()
	snap := create(t, d)
	for n := range 5 {
		snap = mustRelabel(t, d, snap, strconv.Itoa(n))
		closing(t, d)
		d = open()
		got := mustLoad(t, d)
		if !reflect.DeepEqual(got.State(), snap.State()) {
			t.Fatalf("opened again, the map is\n%+v\nstored was\n%+v", got.State(), snap.State())
		}
	}
	list, err := d.History(t.Context(), 0, 100)
	if err != nil || len(list) != 6 {
		t.Fatalf("opened again, the history has %d lines, want 6 (%v)", len(list), err)
	}
	closing(t, d)
}
