package shardmaptest

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

// next receives one snapshot from a watch.
func next(t *testing.T, ch <-chan *shardmap.Snapshot) *shardmap.Snapshot {
	t.Helper()
	select {
	case s, ok := <-ch:
		if !ok {
			t.Fatal("the watch ended")
		}
		return s
	case <-time.After(patience):
		t.Fatal("the watch sent nothing")
	}
	return nil
}

// awaitEnd waits until a watch's channel is closed.
func awaitEnd(t *testing.T, ch <-chan *shardmap.Snapshot) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the watch did not end")
		}
	}
}

func testWatch(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := d.Watch(ctx)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	if got := next(t, ch); got.Version() != 1 {
		t.Fatalf("the watch began with version %d, want the current one", got.Version())
	}
	for n := range 5 {
		snap = mustRelabel(t, d, snap, strconv.Itoa(n))
		if got := next(t, ch); got.Version() != snap.Version() || !reflect.DeepEqual(got.State(), snap.State()) {
			t.Fatalf("the watch sent version %d, want %d", got.Version(), snap.Version())
		}
	}
	cancel()
	awaitEnd(t, ch)
	if _, err := d.Watch(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Watch with an ended context: %v", err)
	}
	// The directory goes on without watchers, and with new ones.
	snap = mustRelabel(t, d, snap, "unseen")
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if ch, err = d.Watch(ctx); err != nil {
		t.Fatalf("Watch: %v", err)
	}
	if got := next(t, ch); got.Version() != snap.Version() {
		t.Fatalf("a new watch began with version %d, want %d", got.Version(), snap.Version())
	}
	cancel()
	awaitEnd(t, ch)
}

func testWatchBeforeFirst(t *testing.T, d shardmap.Directory) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := d.Watch(ctx)
	if err != nil {
		t.Fatalf("Watch of an empty directory: %v", err)
	}
	select {
	case s, ok := <-ch:
		t.Fatalf("a watch of an empty directory sent %v, %v", s, ok)
	case <-time.After(20 * time.Millisecond):
	}
	create(t, d)
	if got := next(t, ch); got.Version() != 1 {
		t.Fatalf("the watch sent version %d, want 1", got.Version())
	}
	cancel()
	awaitEnd(t, ch)
}

func testWatchSlow(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := d.Watch(ctx)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	// Nobody reads, and no Update waits for it.
	const changes = 20
	for n := range changes {
		snap = mustRelabel(t, d, snap, strconv.Itoa(n))
	}
	// What is read then rises, ends with the newest, and skips what was missed.
	last, received := uint64(0), 0
	for last < snap.Version() {
		got := next(t, ch)
		if got.Version() <= last {
			t.Fatalf("the watch sent version %d after %d", got.Version(), last)
		}
		last, received = got.Version(), received+1
	}
	if received > 3 {
		t.Fatalf("a reader that slept through %d changes received %d snapshots", changes, received)
	}
	cancel()
	awaitEnd(t, ch)
}

func testWatchMany(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	var ends []context.CancelFunc
	var chans []<-chan *shardmap.Snapshot
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch, err := d.Watch(ctx)
		if err != nil {
			t.Fatalf("Watch: %v", err)
		}
		next(t, ch)
		ends, chans = append(ends, cancel), append(chans, ch)
	}
	for n, ch := range chans {
		// One ends after the other; those that remain hear of each change.
		snap = mustRelabel(t, d, snap, strconv.Itoa(n))
		for _, live := range chans[n:] {
			if got := next(t, live); got.Version() != snap.Version() {
				t.Fatalf("a watch sent version %d, want %d", got.Version(), snap.Version())
			}
		}
		ends[n]()
		awaitEnd(t, ch)
	}
}
