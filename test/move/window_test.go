package move

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/workflow"
)

// coordinate runs a coordinator with options of the test's own, until the test ends.
func (c *target) coordinate(o coordinator.Options) {
	c.t.Helper()
	o.Directory, o.Shard, o.Candidate = c.dir, c.rooms.Executor.Shard, "test"
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		coordinator.New(o).Run(ctx)
	}()
	c.t.Cleanup(func() { stop(); <-done })
}

// noted waits until a workflow says so of itself, and returns it.
func (c *target) noted(id, step, note string) admin.WorkflowInfo {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		list, err := c.rooms.Ops.Moves(context.Background(), id)
		if err != nil {
			c.t.Fatal(err)
		}
		if w := list[0]; w.Step == step && strings.Contains(w.Note, note) {
			return w
		} else if w.Ended || time.Now().After(end) {
			c.history(w)
			c.t.Fatalf("%s is %s: %q, %s", id, w.Step, w.Note, w.Error)
		}
	}
}

// TestTimeWindow: outside of its windows a move neither begins, nor changes the owner, nor
// deletes rows; what was copied follows the source all the time.
func TestTimeWindow(t *testing.T) {
	testrun.Long(t, "moves have to wait, on each engine, to show that they do")
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) { timeWindow(t, startAs(t, "", engines...)) })
	}
}

func timeWindow(t *testing.T, c *target) {
	ctx := context.Background()
	c.bank(400)
	// The window is twelve hours from now, and the coordinator's clock comes to it by steps.
	inside := time.Now().UTC().Truncate(time.Minute).Add(12 * time.Hour)
	window := inside.Add(-2*time.Minute).Format("15:04") + "-" + inside.Add(2*time.Minute).Format("15:04")
	const (
		closed = iota
		copies // open until the rows are copied
		open
	)
	var phase atomic.Int64
	c.coordinate(coordinator.Options{Now: func() time.Time {
		switch phase.Load() {
		case open:
			return inside
		case copies:
			r, err := c.dir.Record(ctx, workflow.RecordPrefix+"night")
			if err != nil {
				break
			}
			if s, err := workflow.Decode(r.Value); err == nil && (s.Step == workflow.Planned || s.Step == workflow.Preparing || s.Step == workflow.Copying) {
				return inside
			}
		}
		return time.Now()
	}})
	c.exec(fmt.Sprintf(`SELECT cleave.move(keyspace => 'bank', range => ':0', to_shard => 's1', id => 'night', time_window => '%s')`, window))
	c.noted("night", "planned", "waits for the window that begins at "+inside.Add(-2*time.Minute).Format("2006-01-02 15:04"))
	// It begins in its window, and copies; before it compares it waits for the next.
	phase.Store(copies)
	if err := coordinator.Kick(ctx, c.dir); err != nil {
		t.Fatal(err)
	}
	c.noted("night", "verifying", "waits for the window")
	c.exec(`UPDATE bulk SET body = 'while it waits'`)
	c.eventually("the copy follows", func() bool { return c.onShard("s1", `SELECT count(*) FROM bulk WHERE body <> 'while it waits'`) == "0" })
	phase.Store(open)
	c.await("night", "opened")
	phase.Store(closed)
	if _, err := c.rooms.Ops.Complete(ctx, admin.WorkflowRequest{ID: "night"}); err != nil {
		t.Fatal(err)
	}
	c.noted("night", "cleaning", "waits for the window")
	if c.onShard("s0", `SELECT count(*) FROM bulk`) != "400" {
		t.Error("rows were deleted outside of the window")
	}
	phase.Store(open)
	c.await("night", "done")
	c.clean()
}

// eventually waits until something is so.
func (c *target) eventually(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("it does not come true that %s", what)
		}
	}
}
