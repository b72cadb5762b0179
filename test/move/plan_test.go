package move

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// TestPlan: everything is in one range on one shard; a plan to cut and spread it is made,
// waits for approval, and is carried out under load. Another one has nothing to do.
func TestPlan(t *testing.T) {
	forKinds(t, "sqlite", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(4000)
		c.analyze()
		l := c.work(2)
		tolerance := 0.05
		res, err := c.rooms.Ops.Plan(ctx, admin.PlanRequest{ID: "even", Keyspace: "bank", Measure: "rows", Tolerance: &tolerance, SplitBytes: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		c.await(res.Workflow.ID, "proposed")
		p, err := c.rooms.Ops.ShowPlan(ctx, "even")
		if err != nil || p.Plan == nil || len(p.Plan.Steps) == 0 || p.Plan.SkewBefore < 1.9 || p.Plan.SkewAfter > 1.3 || p.Begun != 0 {
			t.Fatalf("%v, %+v", err, p)
		}
		kinds := map[workflow.Kind]int{}
		for _, s := range p.Plan.Steps {
			if kinds[s.Kind]++; s.Kind == workflow.Move && (s.From != "s0" || s.To != "s1") {
				t.Errorf("%+v", s)
			}
		}
		if kinds[workflow.Split] == 0 || kinds[workflow.Move] == 0 {
			t.Errorf("steps %v", kinds)
		}
		if n := c.onShard("s1", `SELECT count(*) FROM bulk`); n != "0" {
			t.Errorf("%s rows were moved by a plan that nobody approved", n)
		}
		// Another one of the same can be made, but not carried out beside it, nor after it.
		if _, err := c.rooms.Ops.Plan(ctx, admin.PlanRequest{ID: "other", Keyspace: "bank", Measure: "rows", Tolerance: &tolerance, SplitBytes: 100_000}); err != nil {
			t.Fatal(err)
		}
		c.await("other", "proposed")
		_, err = c.rooms.Ops.Plan(ctx, admin.PlanRequest{ID: "other", Keyspace: "bank", Measure: "load", Tolerance: &tolerance})
		if sqlstate.CodeOf(err) != sqlstate.DuplicateObject || !strings.Contains(err.Error(), "by was rows, is load now") || !strings.Contains(err.Error(), "split_bytes was 100000, is not given now") {
			t.Errorf("other arguments: %v", err)
		}
		late := func() {
			t.Helper()
			_, err := c.rooms.Ops.Approve(ctx, admin.WorkflowRequest{ID: "other"})
			if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Hint == "" {
				t.Errorf("the other plan is approved: %v", err)
			}
		}
		if w, err := c.rooms.Ops.Approve(ctx, admin.WorkflowRequest{Meta: admin.Meta{DryRun: true}, ID: "even"}); err != nil || w.Step != "proposed" || len(w.Plan) == 0 {
			t.Errorf("%+v, %v", w, err)
		}
		version := c.rooms.Executor.Snapshot().Version()
		if _, err := c.rooms.Ops.Approve(ctx, admin.WorkflowRequest{ID: "even"}); err != nil {
			t.Fatal(err)
		}
		late()
		c.history(c.await("even", "done"))
		late()
		if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: "other"}); err != nil {
			t.Error(err)
		}
		// All splits are one change of the map.
		splits := 0
		changes, err := c.dir.History(ctx, version, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range changes {
			if v.Op == "split" {
				splits++
			}
		}
		if splits != 1 {
			t.Errorf("%d changes of the map for %d splits", splits, kinds[workflow.Split])
		}
		if l.end(); l.failed.Load() > 0 {
			t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
		}
		if n := c.number(`SELECT count(*) FROM bulk`); n != 4000 {
			t.Errorf("%d rows", n)
		}
		if n := c.onShard("s1", `SELECT count(*) FROM bulk`); n == "0" {
			t.Error("nothing was moved")
		}
		if _, err := c.rooms.Ops.Approve(ctx, admin.WorkflowRequest{ID: "even"}); err != nil {
			t.Errorf("approving twice: %v", err)
		}
		c.analyze()
		loose := 0.5 // the clients have written more to some tenants than to others
		if _, err := c.rooms.Ops.Plan(ctx, admin.PlanRequest{ID: "again", Keyspace: "bank", Measure: "rows", Tolerance: &loose}); err != nil {
			t.Fatal(err)
		}
		if w := c.await("again", "done"); w.Steps != 0 {
			t.Errorf("the next plan has %d steps", w.Steps)
		}
		c.clean()
	})
}

// analyze lets PostgreSQL count its rows: plans go by its estimates.
func (c *target) analyze() {
	c.t.Helper()
	for _, name := range []string{"s0", "s1"} {
		if s, err := c.rooms.Executor.Shard(name); err != nil {
			c.t.Fatal(err)
		} else if s.Engine() == "postgres" {
			c.onShard(name, `ANALYZE; SELECT 1`)
		}
	}
}
