package repository

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// bounded runs an operation and gives up when nothing has moved for stall: a call to a hung mount cannot be ended. What
// the operation has of memory is its own, since it may go on. It calls tick when something has moved.
func bounded(ctx context.Context, stall time.Duration, op func(tick func()) error) error {
	var moved atomic.Uint64
	done := make(chan error, 1)
	go func() { done <- op(func() { moved.Add(1) }) }()
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for seen := uint64(0); ; {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			now := moved.Load()
			if now == seen {
				return fmt.Errorf("nothing has moved for %v: %w", stall, os.ErrDeadlineExceeded)
			}
			seen = now
			timer.Reset(stall)
		}
	}
}
