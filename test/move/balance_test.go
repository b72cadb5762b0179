package move

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

func ptr[T any](v T) *T { return &v }

// until waits for what must come.
func (c *target) until(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not so: %s", what)
		}
	}
}

// hammer reads accounts of tenants until end is called: the first of them five times as often
// as all others.
func (c *target) hammer(hot int) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	conn := c.connect()
	go func() {
		done <- func() error {
			for n := 0; ctx.Err() == nil; n++ {
				tenant := hot
				if n%6 == 0 {
					tenant = n / 6 % tenants
				}
				sql := `SELECT sum(balance) FROM account WHERE tenant = $1`
				args := []any{tenant}
				if n%2 == 0 {
					sql, args = fmt.Sprintf(`SELECT sum(balance) FROM account WHERE tenant = %d`, tenant), nil
				}
				if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
			return nil
		}()
	}()
	return func() {
		c.t.Helper()
		stop()
		if err := <-done; err != nil {
			c.t.Errorf("a read failed: %v", err)
		}
	}
}

// TestPolicyByLoad: a range gets nearly all of the load. In manual nothing happens, in propose a
// plan waits, in auto the range is split, its hottest key placed by itself and parts of it
// moved, while clients go on; and then it stays as it is.
func TestPolicyByLoad(t *testing.T) {
	testrun.Long(t, "the load of some seconds has to be measured; TestPlan carries a plan out")
	c := start(t, "sqlite", "postgres")
	ctx := context.Background()
	c.bank(200)
	c.analyze()
	end := c.hammer(7)
	var h *admin.HeatInfo
	c.until("the load is known, and the hot key", func() bool {
		var err error
		if h, err = c.rooms.Ops.Heat(ctx, admin.HeatRequest{Keyspace: "bank"}); err != nil {
			t.Fatal(err)
		}
		return len(h.Ranges) == 1 && h.Ranges[0].Statements > 50 && len(h.Keys) > 0 && h.Keys[0].Key[0] == "7" && h.Keys[0].Share > 0.5 && h.Shards[0].Over > 1.9
	})
	if n := c.number(`SELECT count(*) FROM cleave.heat WHERE keyspace = 'bank' AND shard = 's0' AND statements > 10`); n != 1 {
		t.Errorf("cleave.heat has %d rows", n)
	}
	c.until("cleave.hot_keys has it", func() bool { return c.number(`SELECT count(*) FROM cleave.hot_keys WHERE key = '7'`) == 1 })
	if list, err := c.rooms.Ops.Ranges(ctx, "bank"); err != nil || list[0].Load < 10 {
		t.Errorf("%v, %+v", err, list)
	}
	plans := func(steps ...string) (out []admin.WorkflowInfo) {
		list, err := c.rooms.Ops.Moves(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.Kind == string(workflow.Rebalance) && (len(steps) == 0 || strings.Contains(strings.Join(steps, ","), w.Step)) {
				out = append(out, w)
			}
		}
		return out
	}
	set := func(r admin.PolicyRequest) {
		t.Helper()
		if _, err := c.rooms.Ops.SetPolicy(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	looked := func() time.Time {
		p, err := c.rooms.Ops.Policy(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if p.At == nil {
			return time.Time{}
		}
		return *p.At
	}
	half := h.Ranges[0].Statements / 2
	set(admin.PolicyRequest{Mode: ptr("manual"), Keyspace: ptr("bank"), Measure: ptr("load"), Every: ptr("1s"), Hold: ptr("1s"), Cool: ptr("1s"), SplitLoad: &half, AloneLoad: &half})
	time.Sleep(2500 * time.Millisecond)
	if len(plans()) > 0 || !looked().IsZero() {
		t.Errorf("in manual: %+v", plans())
	}
	c.exec(`SELECT cleave.set_policy(mode => 'propose')`)
	c.until("a plan is proposed", func() bool { return len(plans("proposed")) == 1 })
	p := plans("proposed")[0]
	before := looked()
	c.until("two more looks", func() bool { return looked().Sub(before) > 2*time.Second })
	if list := plans(); len(list) != 1 || list[0].Begun != 0 {
		t.Errorf("in propose: %+v", list)
	}
	if is, err := c.rooms.Ops.Policy(ctx); err != nil || !strings.Contains(is.Note, "cleave plan approve "+p.ID) {
		t.Errorf("it does not say what it waits for: %v, %v", is, err)
	}
	if n := c.onShard("s1", `SELECT count(*) FROM account`); n != "0" {
		t.Error("something was moved that nobody approved")
	}
	if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: p.ID}); err != nil {
		t.Fatal(err)
	}
	set(admin.PolicyRequest{Mode: ptr("auto")})
	c.until("the load is spread", func() bool {
		snap := c.rooms.Executor.Snapshot()
		ix, _ := snap.Keyspace("bank")
		return len(plans("done")) > 0 && len(ix.Owners()) == 2 && len(ix.Def().Pins) == 1 && len(plans("planning", "choosing", "working")) == 0
	})
	ix, _ := c.rooms.Executor.Snapshot().Keyspace("bank")
	if ix.Def().Pins[0].Key[0] != "7" {
		t.Errorf("pinned: %+v", ix.Def().Pins)
	}
	end()
	// Sums are what they were, on whichever shard the rows are.
	if n := c.number(`SELECT sum(balance) FROM account`); n != tenants*accounts*balance {
		t.Errorf("the sum is %d", n)
	}
	set(admin.PolicyRequest{Mode: ptr("manual")})
	if n := c.number(`SELECT count(*) FROM cleave.policy`); n != 4 {
		t.Errorf("the history of the policy has %d lines", n)
	}
	c.until("no work is left", func() bool { return len(plans("planning", "choosing", "working", "proposed")) == 0 })
	c.clean()
}

// TestConstraintsOnShards: residency and isolation hold against everything that would move rows, and
// a plan makes them true.
func TestConstraintsOnShards(t *testing.T) {
	testrun.Long(t, "everything is tried that would move rows, then a plan moves them; TestPlansKeepConstraints of the coordinator has the choice")
	c := start(t, "sqlite", "sqlite", "sqlite")
	ctx := context.Background()
	c.bank(200)
	refused := func(what string, err error) {
		t.Helper()
		if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "constraint here") || sqlstate.As(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	snap, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := snap.State().Clone()
	for i, name := range []string{"eu", "eu", "us"} {
		next.Shards[i].Labels = map[string]string{"region": name}
	}
	if _, err := c.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "labels"}, next); err != nil {
		t.Fatal(err)
	}
	c.exec(`SELECT cleave.add_constraint('here', 'residency', keyspace => 'bank', labels => '{"region": "eu"}')`)
	_, err = c.rooms.Ops.Move(ctx, admin.MoveRequest{Keyspace: "bank", Range: ":", To: "s2"})
	refused("move", err)
	_, err = c.rooms.Ops.Pin(ctx, admin.PinRequest{Keyspace: "bank", Key: []string{"5"}, Shard: "s2"})
	refused("pin", err)
	if _, err = c.rooms.Ops.AddConstraint(ctx, admin.ConstraintRequest{Name: "nowhere", Kind: "residency", Keyspace: "bank", Labels: map[string]string{"region": "mars"}}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Errorf("a rule that no shard keeps: %v", err)
	}
	// A drain goes where it may; away from both shards it cannot.
	res, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{Shard: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	c.await(res.Workflow.ID, "done")
	if ix, _ := c.rooms.Executor.Snapshot().Keyspace("bank"); strings.Join(ix.Owners(), ",") != "s1" {
		t.Errorf("drained to %v", ix.Owners())
	}
	// A tenant alone on a shard: broken at first, said by the doctor, repaired by a plan.
	r, err := c.rooms.Ops.AddConstraint(ctx, admin.ConstraintRequest{Name: "alone", Kind: "isolation", Keyspace: "bank", Keys: [][]string{{"7"}}})
	if err != nil || len(r.Warnings) == 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	if n := c.number(`SELECT count(*) FROM cleave.constraints WHERE NOT kept AND name = 'alone'`); n != 1 {
		t.Error("cleave.constraints does not say that it is broken")
	}
	found, err := c.rooms.Ops.Doctor(ctx, admin.DoctorRequest{})
	if err != nil || !strings.Contains(fmt.Sprintf("%+v", found), "constraint alone is broken") {
		t.Errorf("%v, %+v", err, found)
	}
	if _, err := c.rooms.Ops.Plan(ctx, admin.PlanRequest{ID: "repair", Keyspace: "bank", Measure: "rows", Approve: true}); err != nil {
		t.Fatal(err)
	}
	c.await("repair", "done")
	ix, _ := c.rooms.Executor.Snapshot().Keyspace("bank")
	own := ix.Def().Pins[0].Shard
	if len(ix.Def().Pins) != 1 || own == "s2" || own == ix.Def().Ranges[0].Shard || len(c.rooms.Executor.Snapshot().Violations()) != 0 {
		t.Errorf("%+v, %+v", ix.Def().Pins, c.rooms.Executor.Snapshot().Violations())
	}
	if n := c.onShard(own, `SELECT count(*) FROM account`); n != fmt.Sprint(accounts) {
		t.Errorf("%s rows are on the shard of one tenant", n)
	}
	// A new keyspace leaves that shard alone.
	// A pinned key goes between two shards that do not have its range: the third one's guards say so.
	c.exec(`SELECT cleave.remove_constraint('here')`)
	c.await(c.move(admin.MoveRequest{Keyspace: "bank", Key: []string{"7"}, To: "s2", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
	own = "s2"
	c.exec(`CREATE TABLE other (id int PRIMARY KEY) WITH (cleave.shard_key = 'id')`)
	if ix, _ := c.rooms.Executor.Snapshot().Keyspace("hash_integer"); strings.Contains(strings.Join(ix.Owners(), ","), own) {
		t.Errorf("a new keyspace is on %v", ix.Owners())
	}
	c.clean()
}
