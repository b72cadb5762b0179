package move

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/workflow"
)

// writeSlowly has transactions that write on a server, one after the other, until end is called. A snapshot of the server's log waits for each.
func (c *target) writeSlowly(url string) (end func()) {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close(context.Background())
		for ctx.Err() == nil {
			if _, err := conn.Exec(ctx, `BEGIN; SELECT txid_current(); SELECT pg_sleep(0.4); COMMIT`); err != nil && ctx.Err() == nil {
				c.t.Error(err)
				return
			}
		}
	}()
	return func() {
		stop()
		<-done
	}
}

// TestProgressAfterTheCopy: a move tells how far it has come, and what time is left, also while both copies are compared and while old rows
// are deleted. Other transactions slow the comparison down, a bound the deletion.
func TestProgressAfterTheCopy(t *testing.T) {
	testrun.Long(t, "comparison and deletion are slowed down so that their progress is seen")
	c := start(t, "postgres", "postgres")
	c.bank(4000)
	ctx := context.Background()
	end := c.writeSlowly(pgtest.Database(t))
	defer end()
	tells := func(step string, all func(admin.WorkflowInfo) bool, over ...string) {
		t.Helper()
		for wait := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			list, err := c.rooms.Ops.Moves(ctx, "m")
			if err != nil {
				t.Fatal(err)
			}
			w := list[0]
			if w.Step == step && w.ETA >= 0 && all(w) {
				return
			}
			for _, s := range over {
				if w.Step == s {
					t.Fatalf("%s has told no progress: %+v", step, w)
				}
			}
			if time.Now().After(wait) {
				t.Fatalf("%+v", w)
			}
		}
	}
	c.moveAs("m", workflow.Options{VerifyBytes: 40_000})
	tells("verifying", func(w admin.WorkflowInfo) bool { return w.Bytes > 0 && w.BytesAll > 0 }, "opened")
	end()
	c.await("m", "opened")
	bound := func(rows int64) {
		t.Helper()
		if _, err := c.rooms.Ops.Resume(ctx, admin.WorkflowRequest{ID: "m", Bounds: &admin.MoveBounds{RowsPerSecond: &rows}}); err != nil {
			t.Fatal(err)
		}
	}
	bound(300)
	if _, err := c.rooms.Ops.Complete(ctx, admin.WorkflowRequest{ID: "m"}); err != nil {
		t.Fatal(err)
	}
	tells("cleaning", func(w admin.WorkflowInfo) bool { return w.Rows > 0 && w.Copied >= w.Rows }, "done")
	bound(0)
	c.await("m", "done")
	c.clean()
}
