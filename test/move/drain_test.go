package move

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// keyIn returns the n-th key of the bank whose position is at or above low and below high.
func keyIn(low, high int64, n int) string {
	for k := int64(0); ; k++ {
		if p := keyspace.HashKey(keyspace.DefaultSeed, keyspace.Key{keyspace.Int(keyspace.Int8, k)}); p >= low && p < high {
			if n--; n < 0 {
				return keyspace.Int(keyspace.Int8, k).String()
			}
		}
	}
}

// TestNothingIsPlacedOnADrainedShard: every operation that places something refuses a shard that is being drained, with the drain's name,
// or chooses another one; and when the drain has ended it does not.
func TestNothingIsPlacedOnADrainedShard(t *testing.T) {
	testrun.Long(t, "each operation of the admin API is tried on a cluster with moves, drains and plans")
	ctx := context.Background()
	c := start(t, "sqlite", "sqlite", "sqlite")
	ops := c.rooms.Ops
	c.bank(100)
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const quarter = "-4611686018427387904"
	keep := admin.MoveOptions{Keep: "0"}
	c.await(c.move(admin.MoveRequest{ID: "half", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: keep}), "done")
	c.await(c.move(admin.MoveRequest{ID: "away", Keyspace: "bank", Range: ":" + quarter, To: "s2"}), "opened")
	c.await(c.move(admin.MoveRequest{ID: "kept", Keyspace: "bank", Range: "0:1000000", To: "s1"}), "opened")
	c.exec(`SELECT cleave.create_keyspace('two', 'hash', 'bigint', ranges => 2, shards => ARRAY['s1', 's0'])`)
	// Keys of the drained shard's range that live elsewhere: with rows, and without.
	inhabited, empty := keyIn(-4611686018427387904, 0, 0), keyIn(-4611686018427387904, 0, 400)
	for _, key := range []string{inhabited, empty} {
		_, err := ops.Pin(ctx, admin.PinRequest{Keyspace: "bank", Key: []string{key}, Shard: "s0"})
		done(err)
	}
	c.eventually("the keys are pinned", func() bool {
		pins, err := ops.Pins(ctx, "bank")
		return err == nil && len(pins) == 2
	})
	for _, key := range []string{inhabited, empty} {
		owner, err := ops.ShardOf(ctx, admin.ShardOfRequest{Keyspace: "bank", Key: []string{key}})
		done(err)
		if owner.Shard != "s0" {
			t.Fatalf("key %s is on %s", key, owner.Shard)
		}
	}
	_, err := ops.Plan(ctx, admin.PlanRequest{ID: "plan", Keyspace: "bank", SplitBytes: 1000})
	done(err)
	c.await("plan", "proposed")
	_, err = ops.Drain(ctx, admin.DrainRequest{ID: "empty", Shard: "s1", MoveOptions: keep})
	done(err)
	c.eventually("the map says so", func() bool {
		snap, err := c.dir.Load(ctx)
		done(err)
		return snap.Drained("s1") != nil
	})
	if list, err := ops.Shards(ctx); err != nil || list[1].StateWhy != "drained by empty" {
		t.Errorf("%+v, %v", list, err)
	}
	away := admin.WorkflowRequest{ID: "away"}
	text := func(_ any, err error) error { return err }
	none := func() []error { return nil }
	// What each operation does to a shard that gets nothing. An operation that is not in the list is a mistake: somebody has to
	// say whether it places something.
	ways := map[string]func() []error{
		"Move": func() (out []error) {
			for _, dry := range []bool{true, false} {
				m := admin.Meta{By: "test", DryRun: dry}
				out = append(out, text(ops.Move(ctx, admin.MoveRequest{Meta: m, Keyspace: "bank", Range: "2000000:", To: "s1"})),
					text(ops.Move(ctx, admin.MoveRequest{Meta: m, Keyspace: "bank", Key: []string{inhabited}, To: "s1"})),
					text(ops.Move(ctx, admin.MoveRequest{Meta: m, Keyspace: "two", Range: "0:", To: "s1"})))
			}
			return out
		},
		"Pin": func() (out []error) {
			for _, key := range []string{keyIn(2000000, 1<<62, 0), keyIn(2000000, 1<<62, 400), inhabited} {
				out = append(out, text(ops.Pin(ctx, admin.PinRequest{Keyspace: "bank", Key: []string{key}, Shard: "s1"})),
					text(ops.Pin(ctx, admin.PinRequest{Meta: admin.Meta{DryRun: true}, Keyspace: "bank", Key: []string{key}, Shard: "s1"})))
			}
			return out
		},
		"Unpin": func() []error {
			return []error{text(ops.Unpin(ctx, admin.UnpinRequest{Keyspace: "bank", Key: []string{inhabited}})), text(ops.Unpin(ctx, admin.UnpinRequest{Keyspace: "bank", Key: []string{empty}}))}
		},
		"Merge": func() []error {
			// Without a shard it chooses the one that is not being drained.
			res, err := ops.Merge(ctx, admin.MergeRequest{Meta: admin.Meta{DryRun: true}, Keyspace: "two", At: []string{"0"}})
			if err != nil || !strings.Contains(strings.Join(res.Plan, "\n"), "from s1 to s0") {
				t.Errorf("%+v, %v", res, err)
			}
			return []error{text(ops.Merge(ctx, admin.MergeRequest{Keyspace: "two", At: []string{"0"}, To: "s1"}))}
		},
		"Reverse": func() []error { return []error{text(ops.Reverse(ctx, away))} },
		"MoveDefault": func() []error {
			return []error{text(ops.MoveDefault(ctx, admin.MoveDefaultRequest{To: "s1"})), text(ops.MoveDefault(ctx, admin.MoveDefaultRequest{Meta: admin.Meta{DryRun: true}, To: "s1"}))}
		},
		"Spread": func() []error {
			return []error{text(ops.Spread(ctx, admin.SpreadRequest{})), text(ops.Spread(ctx, admin.SpreadRequest{Shards: []string{"s1"}}))}
		},
		"Drain":   func() []error { return []error{text(ops.Drain(ctx, admin.DrainRequest{Shard: "s0", To: "s1"}))} },
		"Plan":    func() []error { return []error{text(ops.Plan(ctx, admin.PlanRequest{Approve: true}))} },
		"Approve": func() []error { return []error{text(ops.Approve(ctx, admin.WorkflowRequest{ID: "plan"}))} },
		"CreateKeyspace": func() []error {
			for name, req := range map[string]admin.CreateKeyspaceRequest{
				"hashed": {Strategy: "hash", KeyTypes: []string{"uuid"}}, "ranged": {Strategy: "range", KeyTypes: []string{"bigint"}, Bounds: [][]string{{"1"}, {"2"}, {"3"}}},
				"listed": {Strategy: "list", KeyTypes: []string{"text"}, Values: []admin.ListedValue{{Key: []string{"a"}}, {Key: []string{"b"}}, {Key: []string{"c"}}}},
			} {
				req.Name = name
				if res, err := ops.CreateKeyspace(ctx, req); err != nil || strings.Contains(strings.Join(res.Plan, "\n"), "s1") {
					t.Errorf("%+v, %v", res, err)
				}
			}
			c.exec(`CREATE TABLE item (id text PRIMARY KEY) WITH (cleave.shard_key = 'id')`)
			if ranges, err := ops.Ranges(ctx, "hash_text"); err != nil || len(ranges) == 0 {
				t.Error(ranges, err)
			} else {
				for _, r := range ranges {
					if r.Shard == "s1" {
						t.Errorf("%+v", r)
					}
				}
			}
			return []error{text(ops.CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: "named", Strategy: "hash", KeyTypes: []string{"date"}, Shards: []string{"s0", "s1"}})),
				text(ops.CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: "valued", Strategy: "list", KeyTypes: []string{"text"}, Values: []admin.ListedValue{{Key: []string{"a"}, Shard: "s1"}}}))}
		},
		"Distribute": none, // it places rows on the default shard: below
		"Split": func() []error { // both halves stay where they are
			_, err := ops.Split(ctx, admin.SplitRequest{ID: "cut", Keyspace: "two", At: []string{"-1000"}})
			done(err)
			c.await("cut", "done")
			return nil
		},
		"DropKeyspace": none, "AddConstraint": none, "RemoveConstraint": none, "SetPolicy": none, "AddShard": none, "RemoveShard": none, "AddReplica": none, "RemoveReplica": none, "SetShard": none,
		"Declare": none, "Bootstrap": none, "Cancel": none, "Complete": none, "Pause": none, "Resume": none, "Doctor": none, "Recover": none, "SettleChanges": none, "FinishIntents": none,
		"Verify": none, "VerifyPieces": none, "AddUser": none, "ChangeUser": none, "RemoveUser": none, "Users": none, "Close": none,
		"Status": none, "Shards": none, "Keyspaces": none, "Tables": none, "Routers": none, "Ranges": none, "Pins": none, "Map": none, "History": none, "Diff": none, "ShardOf": none,
		"Constraints": none, "Policy": none, "Heat": none, "ShowPlan": none, "Moves": none, "Sessions": none, "CancelSession": none, "TerminateSession": none,
	}
	of := reflect.TypeOf(ops)
	for i := range of.NumMethod() {
		name := of.Method(i).Name
		way, ok := ways[name]
		if !ok {
			t.Errorf("nobody says whether %s places something on a shard", name)
			continue
		}
		for n, err := range way() {
			own := sqlstate.As(err)
			if err == nil || own.Code != sqlstate.ObjectNotInState || !strings.Contains(own.Message, "empty") || !strings.Contains(own.Hint, "cleave cancel empty") {
				t.Errorf("%s %d: %v, hint %q", name, n, err, own.Hint)
			}
		}
	}
	c.unowned("s1")
	_, err = ops.Cancel(ctx, admin.WorkflowRequest{ID: "empty"})
	done(err)
	c.await("empty", "cancelled")
	_, err = ops.Unpin(ctx, admin.UnpinRequest{Keyspace: "bank", Key: []string{empty}})
	done(err)
	_, err = ops.Reverse(ctx, away)
	done(err)
	c.await("away", "rolled back")

	// The default shard is emptied: tables that become sharded would have their rows on it.
	c.exec(`CREATE TABLE plain (id date PRIMARY KEY)`)
	c.move(admin.MoveRequest{ID: "wait", Keyspace: "bank", Range: "2000000:", To: "s2"})
	c.await("wait", "opened")
	_, err = ops.Drain(ctx, admin.DrainRequest{ID: "all", Shard: "s0", MoveOptions: keep})
	done(err)
	c.eventually("the map says so", func() bool {
		snap, err := c.dir.Load(ctx)
		done(err)
		return snap.Drained("s0") != nil
	})
	res, err := ops.Distribute(ctx, admin.DistributeRequest{Table: "plain", ShardKey: []string{"id"}})
	for sqlstate.CodeOf(err) == sqlstate.SerializationFailure { // the drain changes the map
		res, err = ops.Distribute(ctx, admin.DistributeRequest{Table: "plain", ShardKey: []string{"id"}})
	}
	if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "drained by all") {
		t.Errorf("%+v, %v", res, err)
	}
	for _, id := range []string{"wait", "kept"} {
		_, err = ops.Complete(ctx, admin.WorkflowRequest{ID: id})
		done(err)
	}
	c.await("all", "done")
	snap, err := c.dir.Load(ctx)
	done(err)
	if snap.Draining() {
		t.Error("a drain that is done is still in the map")
	}
	c.clean()
}

// unowned fails if a shard has got more than it had.
func (c *target) unowned(shard string) {
	c.t.Helper()
	ctx := context.Background()
	snap, err := c.dir.Load(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	began := uint64(0)
	entries, err := c.rooms.Ops.History(ctx, admin.HistoryRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Op == "drain_begin" {
			began = max(began, e.Version)
		}
	}
	state, err := c.rooms.Ops.Map(ctx, began)
	if err != nil || began == 0 {
		c.t.Fatal(began, err)
	}
	was, err := shardmap.NewSnapshot(*state)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range shardmap.Diff(was, snap) {
		if d.To == shard {
			c.t.Errorf("while it was drained: %s", d)
		}
	}
}

// TestADrainIsOutrun: a move of a drain whose part another move has taken away meanwhile is not done, and the drain goes on with
// what is left on the shard.
func TestADrainIsOutrun(t *testing.T) {
	testrun.Long(t, "several moves and drains one after the other; TestDrainPlansPartsInTransit of the coordinator has the choice")
	ctx := context.Background()
	c := start(t, "sqlite", "sqlite", "sqlite")
	ops := c.rooms.Ops
	c.bank(200)
	keep := admin.MoveOptions{Keep: "0"}
	c.await(c.move(admin.MoveRequest{ID: "all", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: keep}), "done")
	c.await(c.move(admin.MoveRequest{ID: "both", Keyspace: "bank", Range: "0:", To: "s1", MoveOptions: keep}), "done")
	for id, at := range map[string]string{"low": "-4611686018427387904", "high": "4611686018427387904"} {
		if _, err := ops.Split(ctx, admin.SplitRequest{ID: id, Keyspace: "bank", At: []string{at}}); err != nil {
			t.Fatal(err)
		}
		c.await(id, "done")
	}
	slow := keep
	slow.RowsPerSecond = 1
	if _, err := ops.Drain(ctx, admin.DrainRequest{ID: "drain", Shard: "s1", MoveOptions: slow}); err != nil {
		t.Fatal(err)
	}
	c.eventually("its moves are begun", func() bool {
		_, err := ops.Moves(ctx, "drain-4")
		return err == nil
	})
	// The first two are at work, and the others wait until one of them has ended.
	c.noted("drain-1", "copying", "")
	c.noted("drain-2", "copying", "")
	last := c.noted("drain-4", "planned", "")
	if _, err := ops.Pause(ctx, admin.WorkflowRequest{ID: "drain-4"}); err != nil {
		t.Fatal(err)
	}
	to := map[string]string{"s0": "s2", "s2": "s0"}[last.To]
	c.move(admin.MoveRequest{ID: "faster", Keyspace: "bank", Range: strings.NewReplacer("[", "", "(", "", ")", "", ",", ":").Replace(last.Part), To: to, MoveOptions: keep})
	none := int64(0)
	for _, id := range []string{"drain-1", "drain-2", "drain-3"} {
		if _, err := ops.Resume(ctx, admin.WorkflowRequest{ID: id, Bounds: &admin.MoveBounds{RowsPerSecond: &none}}); err != nil {
			t.Fatal(err)
		}
	}
	c.await("faster", "done")
	if _, err := ops.Resume(ctx, admin.WorkflowRequest{ID: "drain-4"}); err != nil {
		t.Fatal(err)
	}
	c.await("drain-4", "failed")
	c.await("drain", "done")
	c.unowned("s1")
	c.clean()
}
