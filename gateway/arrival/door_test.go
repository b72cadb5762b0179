package arrival

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// slowPort takes its time over a deadline that is not the zero one.
type slowPort struct {
	begun, goOn chan struct{}
	last        time.Time
}

func (p *slowPort) SetDeadline(at time.Time) error {
	if !at.IsZero() {
		close(p.begun)
		<-p.goOn
	}
	p.last = at
	return nil
}

// TestAcceptUntilLeavesNoDeadline: the deadline that ends Accept is set while the next server takes the port over. It must not outlive that:
// the server's Accept would fail for ever.
func TestAcceptUntilLeavesNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowPort{begun: make(chan struct{}), goOn: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		done := AcceptUntil(ctx, p)
		cancel()
		<-p.begun
		go done()
		synctest.Wait()
		close(p.goOn)
		synctest.Wait()
		if !p.last.IsZero() {
			t.Error("the port is left with a deadline")
		}
	})
}
