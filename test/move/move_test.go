package move

import (
	"context"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
)

// kinds are the pairs of engines that rows go between.
var kinds = map[string][]string{
	"postgres": {"postgres", "postgres"},
	"sqlite":   {"sqlite", "sqlite"},
}

func forKinds(t *testing.T, test func(t *testing.T, c *target)) {
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) { test(t, start(t, engines...)) })
	}
}

func (c *target) move(req admin.MoveRequest) string {
	c.t.Helper()
	req.By = "test"
	res, err := c.rooms.Ops.Move(context.Background(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.Workflow.ID
}

func (c *target) history(w admin.WorkflowInfo) {
	c.t.Helper()
	for _, l := range w.History {
		c.t.Log(l.At.Format("15:04:05.000"), l.Step, "|", l.What)
	}
}

// TestMoveUnderLoad: half of the keys go to the other shard while clients are at work, are
// the other's, come back by a rollback, go again and stay.
func TestMoveUnderLoad(t *testing.T) {
	forKinds(t, func(t *testing.T, c *target) {
		c.bank(4000)
		l := c.work(4)
		id := c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: ":0", To: "s1"})
		w := c.await(id, "opened")
		c.history(w)
		t.Logf("statements were held for %d ms", w.HeldMS)
		time.Sleep(300 * time.Millisecond)
		if _, err := c.rooms.Ops.Rollback(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		c.history(c.await(id, "rolled back"))
		id = c.move(admin.MoveRequest{ID: "second", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
		c.history(c.await(id, "done"))
		l.end()
		if l.failed.Load() > 0 {
			t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
		}
		if n := c.number(`SELECT count(*) FROM bulk`); n != 4000 {
			t.Errorf("%d rows", n)
		}
		for _, s := range []string{"s0", "s1"} {
			if n := c.onShard(s, `SELECT count(*) FROM bulk`); n == "0" || n == "4000" {
				t.Errorf("%s has %s rows", s, n)
			}
		}
		c.clean()
	})
}
