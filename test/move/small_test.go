package move

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
)

// smallChanges are the changes of the map that a move makes, each of which every router acknowledges: the transit comes, members are asked,
// statements are held, the owner changes, the transit goes. againChanges are those of a cutover that is taken back and tried again.
const smallChanges, againChanges = 5, 3

// TestSmallMove: a part of some hundred rows goes to another shard while nobody is at work. Each wait in it is
// for something. Rows are read once, and the map changes no more often than it has to. -v shows the steps, and with CLEAVE_TEST_LOG each effect.
func TestSmallMove(t *testing.T) {
	forKinds(t, "sqlite", func(t *testing.T, c *target) {
		c.bank(400)
		before, err := c.dir.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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
		after, err := c.dir.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		again := strings.Count(told(w), "takes writes again")
		if n := int(after.Version() - before.Version()); n > smallChanges+again*againChanges {
			t.Errorf("the map has changed %d times, and the cutover was taken back %d times", n, again)
		}
		if there := c.onShard("s1", `SELECT (SELECT count(*) FROM account) + (SELECT count(*) FROM bulk)`); there != fmt.Sprint(w.Copied) || w.Copied == 0 {
			t.Errorf("%d rows were copied, %s have moved", w.Copied, there)
		}
		c.clean()
	})
}
