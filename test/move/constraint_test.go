package move

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// TestConstraintsAreAskedFirst: nothing is moved to where a constraint does not let it be, in whatever way it is asked
// for. A constraint that comes while a move is under way ends that before it holds any statement.
func TestConstraintsAreAskedFirst(t *testing.T) {
	testrun.Long(t, "slow copies are begun and broken off; TestPlansKeepConstraints of the coordinator has the rules")
	forKinds(t, "", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(500)
		alone := admin.ConstraintRequest{Name: "alone", Kind: "isolation", Keyspace: "bank", Keys: [][]string{{"5"}}}
		c.await(c.move(admin.MoveRequest{ID: "pinned", Keyspace: "bank", Key: []string{"5"}, To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
		if _, err := c.rooms.Ops.AddConstraint(ctx, alone); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			t.Helper()
			if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Hint == "" {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, dry := range []bool{true, false} {
			meta := admin.Meta{DryRun: dry}
			_, err := c.rooms.Ops.Move(ctx, admin.MoveRequest{Meta: meta, Keyspace: "bank", Key: []string{"6"}, To: "s1"})
			refused("a key", err)
			_, err = c.rooms.Ops.Move(ctx, admin.MoveRequest{Meta: meta, Keyspace: "bank", Range: ":0", To: "s1"})
			refused("a range", err)
			_, err = c.rooms.Ops.Move(ctx, admin.MoveRequest{Meta: meta, Keyspace: "bank", Key: []string{"5"}, To: "s0"})
			refused("the key itself", err)
			_, err = c.rooms.Ops.Drain(ctx, admin.DrainRequest{Meta: meta, Shard: "s0", To: "s1"})
			refused("a drain to a shard", err)
			_, err = c.rooms.Ops.Drain(ctx, admin.DrainRequest{Meta: meta, Shard: "s0"})
			refused("a drain", err)
		}
		// A spread has nothing that it may move. (With only two shards.)
		if res, err := c.rooms.Ops.Spread(ctx, admin.SpreadRequest{Meta: admin.Meta{DryRun: true}}); err != nil || !strings.Contains(strings.Join(res.Plan, "; "), "nothing has to be moved") {
			t.Errorf("a spread: %+v, %v", res, err)
		}
		// What is stored all the same is refused before its first row.
		put := func(id string) {
			c.moveAs(id, workflow.Options{KeepMS: -1, RowsPerSecond: 100})
		}
		put("stored")
		w := c.await("stored", "failed")
		if !strings.Contains(w.Error, "constraint alone would be broken") || w.Copied != 0 {
			t.Errorf("%+v", w)
		}
		// The rule comes while rows are copied.
		if _, err := c.rooms.Ops.RemoveConstraint(ctx, admin.ConstraintRequest{Name: "alone"}); err != nil {
			t.Fatal(err)
		}
		put("late")
		c.await("late", "copying")
		if _, err := c.rooms.Ops.AddConstraint(ctx, alone); err != nil {
			t.Fatal(err)
		}
		w = c.await("late", "failed")
		if !strings.Contains(w.Error, "constraint alone would be broken") {
			t.Errorf("%+v", w)
		}
		c.exec(`UPDATE account SET note = 'y'`)
		for _, h := range w.History {
			if h.Step == string(workflow.Opening) {
				t.Errorf("statements were held for nothing: %+v", w.History)
			}
		}
		if n := c.number(`SELECT count(*) FROM bulk`); n != 500 {
			t.Errorf("%d rows", n)
		}
		if _, tr := c.rooms.Executor.Snapshot().Transit("late"); tr != nil && tr.Hold != shardmap.NoHold {
			t.Errorf("%+v", tr)
		}
		c.clean()
	})
}
