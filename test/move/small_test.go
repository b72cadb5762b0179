package move

import (
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
)

// TestSmallMove: a part of some hundred rows goes to another shard while nobody is at work. Each wait in it is
// for something: -v shows the steps, and with CLEAVE_TEST_LOG each effect.
func TestSmallMove(t *testing.T) {
	forKinds(t, "sqlite", func(t *testing.T, c *target) {
		c.bank(400)
		began := time.Now()
		req := admin.MoveRequest{ID: "small", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}
		req.By = "test"
		res, err := c.rooms.Ops.Move(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		w := c.await(res.Workflow.ID, "done")
		t.Logf("done after %v, statements held for %d ms", time.Since(began).Round(time.Millisecond), w.HeldMS)
		c.history(w)
		c.clean()
	})
}
