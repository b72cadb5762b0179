package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/cleavedb/cleave/workflow"
)

// windowLook bounds for how long a closed window is not looked at: clocks are set.
const windowLook = time.Second

// opening holds work up while none of a move's windows is open. nil does not.
type opening struct {
	j  *job
	ws workflow.Windows

	mu    sync.Mutex
	until time.Time // until then it is open
}

// windows returns what holds a workflow up outside of its windows.
func (j *job) windows(s *workflow.State) (*opening, error) {
	ws, err := workflow.ParseWindows(s.Spec.Window)
	if err != nil || len(ws) == 0 {
		return nil, err
	}
	return &opening{j: j, ws: ws}, nil
}

// wait returns when a window is open. Errors: that of ctx.
func (o *opening) wait(ctx context.Context) error {
	if o == nil {
		return ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock() // the others of the copy wait for the same
	waited := false
	for ctx.Err() == nil {
		now := o.j.t.c.opts.Now()
		if now.Before(o.until) {
			break
		}
		open, next := o.ws.Open(now)
		if open {
			if o.until = next; next.IsZero() || next.Sub(now) > windowLook {
				o.until = now.Add(windowLook)
			}
			break
		}
		if !waited {
			waited = true
			o.j.log.Info("workflow waits for its window", "next", next)
		}
		o.j.prog.say(o.ws.Wait(now))
		d := windowLook
		if !next.IsZero() {
			d = min(d, next.Sub(now))
		}
		pause(ctx, d)
	}
	if waited {
		o.j.prog.say("")
	}
	return ctx.Err()
}

// awaitWindow is workflow.AwaitWindow.
func (j *job) awaitWindow(ctx context.Context, s *workflow.State) error {
	o, err := j.windows(s)
	if err != nil {
		return err
	}
	st := j.stream
	if st == nil {
		return o.wait(ctx)
	}
	// A stream that breaks meanwhile has to be begun again, or the source's log would grow.
	bound, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-st.done:
			cancel()
		case <-bound.Done():
		}
	})
	err = o.wait(bound)
	cancel()
	watch.Wait()
	if err == nil || ctx.Err() != nil {
		return err
	}
	return st.failed()
}
