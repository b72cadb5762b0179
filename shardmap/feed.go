package shardmap

import (
	"context"
	"errors"
	"sync"
)

// Feed hands the newest snapshot to any number of watchers: the part of
// [Directory.Watch] that every directory shares. It starts no goroutine. The
// zero Feed is ready; it must not be copied.
type Feed struct {
	mu       sync.Mutex
	newest   *Snapshot
	watchers map[*watcher]struct{}
	closed   bool
}

// watcher is one channel. Its buffer of one always holds the newest snapshot
// that was not read yet; only the Feed sends, under its lock, so the send after
// taking an older one out never blocks.
type watcher struct {
	ch   chan *Snapshot
	stop func() bool
}

// Publish sends a snapshot to all watchers, unless it is not newer than the
// last one.
func (f *Feed) Publish(s *Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.newest != nil && f.newest.Version() >= s.Version() {
		return
	}
	f.newest = s
	for w := range f.watchers {
		w.drain()
		w.ch <- s
	}
}

func (w *watcher) drain() {
	select {
	case <-w.ch:
	default:
	}
}

// Watch returns a channel that receives the newest snapshot, if one was
// published, and then each newer one; a slow reader gets only the newest. It is
// closed when ctx ends or the Feed is closed; what was not read by then is
// dropped. Errors: ctx's own, ErrClosed.
func (f *Feed) Watch(ctx context.Context) (<-chan *Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, Closed()
	}
	w := &watcher{ch: make(chan *Snapshot, 1)}
	if f.newest != nil {
		w.ch <- f.newest
	}
	if f.watchers == nil {
		f.watchers = map[*watcher]struct{}{}
	}
	f.watchers[w] = struct{}{}
	// The callback waits for the lock held here, so stop is set before it runs.
	w.stop = context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.end(w)
	})
	return w.ch, nil
}

func (f *Feed) end(w *watcher) {
	if _, ok := f.watchers[w]; !ok {
		return
	}
	delete(f.watchers, w)
	w.drain()
	close(w.ch)
}

// Watching reports whether anybody watches.
func (f *Feed) Watching() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers) > 0
}

// Close ends all watches. A second call changes nothing.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.watchers {
		w.stop()
		f.end(w)
	}
}

// FollowedFeed is a Feed of a directory that others change too: while somebody watches, a goroutine of the directory
// publishes what they change. The zero value is ready.
type FollowedFeed struct {
	Feed

	mu        sync.Mutex
	following bool
	stopped   bool
	running   sync.WaitGroup
}

// WatchAndFollow is Watch from what load finds, since the Feed may be behind while nobody watched. It starts follow
// unless that runs; follow returns when Idle says so, or its directory closes.
func (f *FollowedFeed) WatchAndFollow(ctx context.Context, load func(context.Context) (*Snapshot, error), follow func()) (<-chan *Snapshot, error) {
	snap, err := load(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if snap != nil {
		f.Publish(snap)
	}
	ch, err := f.Watch(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.following && !f.stopped {
		f.following = true
		f.running.Go(follow)
	}
	return ch, nil
}

// Idle reports whether nobody watches, so that following ends. A watcher that comes at the same time either is seen
// here or finds it ended and starts it again: so the goroutine must not use what it follows with after it.
func (f *FollowedFeed) Idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Watching() {
		return false
	}
	f.following = false
	return true
}

// Stop ends all watches and waits for the goroutine, which the directory has told to end.
func (f *FollowedFeed) Stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.Close()
	f.running.Wait()
}
