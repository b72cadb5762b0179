package sqlite

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/engine"
)

var _ engine.Watchable = (*mover)(nil)

// watcher is a mover's engine.Watcher.
type watcher struct{ m *mover }

// Watch implements engine.Watchable.
func (m *mover) Watch(context.Context) (engine.Watcher, error) { return watcher{m}, nil }

// Delay takes the file's write lock and gives it back: that is what writes wait for.
func (w watcher) Delay(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := w.m.with(ctx, true, func(*Conn) error { return nil })
	return time.Since(began), err
}

// Vitals implements engine.Watcher: a file has no replicas and does not count transactions.
func (watcher) Vitals(context.Context) (engine.Vitals, error) {
	return engine.Vitals{Transactions: -1}, nil
}

// Close implements engine.Watcher.
func (watcher) Close() error { return nil }
