package move

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestTheTargetIsLost: the server of a move's target is lost for ever, whatever the move is doing. It owned nothing:
// the move can be cancelled and the shard removed, nothing is left of either, and everything works that needs all shards.
func TestTheTargetIsLost(t *testing.T) {
	testrun.Long(t, "servers of its own are lost at two steps, and waited for; TestCrash of test/crash has a sample of kills")
	ctx := context.Background()
	for _, when := range []string{"copying", "opened"} {
		t.Run(when, func(t *testing.T) {
			c := start(t, "postgres", "server")
			c.bank(500)
			lost := c.servers[0]
			// The shard that is lost is the one that has rows which nobody uses: the target of a move, or its source once it is opened.
			from, to, keep := "s0", "s1", "0"
			if when == "opened" {
				from, to, keep = "s1", "s0", "1h"
			}
			w, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{ID: "before", Shard: to, To: from, MoveOptions: admin.MoveOptions{Keep: "0"}})
			if err != nil {
				t.Fatal(err)
			}
			c.await(w.Workflow.ID, "done")
			how := admin.MoveOptions{Keep: keep}
			if when == "copying" {
				how.RowsPerSecond = 1
			}
			c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: ":", To: to, MoveOptions: how})
			c.noted("m", when, "")
			lost.Kill()
			remove := func() error {
				_, err := c.rooms.Ops.RemoveShard(ctx, admin.RemoveShardRequest{Name: "s1"})
				return err
			}
			if err := remove(); sqlstate.CodeOf(err) != sqlstate.ObjectInUse || !strings.Contains(sqlstate.As(err).Hint, "run this command again") {
				t.Errorf("the shard is removed although the move is at work: %v", err)
			}
			ask := c.rooms.Ops.Cancel
			if when == "opened" {
				ask = c.rooms.Ops.Complete
			}
			if _, err := ask(ctx, admin.WorkflowRequest{ID: "m"}); err != nil {
				t.Fatal(err)
			}
			// It says what it waits for, and takes nobody's place.
			for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				list, err := c.rooms.Ops.Moves(ctx, "m")
				if err != nil {
					t.Fatal(err)
				}
				if w := list[0]; w.WaitsForShard == "s1" && strings.Contains(w.Note, "cleave shard remove s1") {
					break
				} else if w.Ended || time.Now().After(end) {
					t.Fatalf("%+v", w)
				}
			}
			c.exec(`UPDATE bulk SET body = 'x' WHERE tenant = 1`) // nobody waits
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			c.await("m", map[string]string{"copying": "cancelled", "opened": "done"}[when])
			c.exec(`CREATE TABLE after (k bigint PRIMARY KEY)`, `INSERT INTO after SELECT generate_series(1, 100)`)
			for _, q := range []string{`SELECT count(*) - 400 FROM bulk`, `SELECT count(*) FROM after`} {
				if n := c.number(q); n != 100 {
					t.Errorf("%s: %d", q, n)
				}
			}
			c.clean()
		})
	}
}
