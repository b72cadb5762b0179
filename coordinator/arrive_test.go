package coordinator

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// TestOpeningWithoutTarget: a cutover whose target is lost is taken back, also by a leader that has not begun it:
// statements do not wait for a shard that does not own what they want.
func TestOpeningWithoutTarget(t *testing.T) {
	dir := cluster(t)
	cur, err := dir.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ix, _ := cur.Keyspace("k")
	r := ix.Def().Ranges[0]
	part := shardmap.Part{Low: r.Low, High: r.High}
	next := cur.State().Clone()
	next.PutTransit("k", shardmap.Transit{ID: "m", Part: part, From: r.Shard, To: "c", Hold: shardmap.HoldNew})
	if _, err := dir.Update(t.Context(), shardmap.Change{Expect: cur.Version(), By: "test", Op: "move_hold", Transit: "m"}, next); err != nil {
		t.Fatal(err)
	}
	spec := workflow.Spec{ID: "m", Kind: workflow.Move, Keyspace: "k", Part: part, From: r.Shard, To: "c", By: "test"}
	spec.Options = spec.WithDefaults()
	s := workflow.New(spec, 1)
	s.Step = workflow.Opening
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.PutRecord(t.Context(), workflow.RecordPrefix+"m", b, 0); err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil)
	s = await(t, dir, "m", func(s *workflow.State) bool { return s.Step == workflow.Reopening })
	if !s.MayBeOpen || s.Attempt != 1 {
		t.Errorf("%+v", s)
	}
}

// TestPlansKeepConstraints: what drains, spreads and merges move keeps the rules of the map, in each order in which it
// can arrive.
func TestPlansKeepConstraints(t *testing.T) {
	ruled := func(c shardmap.Constraint, edit func(*shardmap.State)) *shardmap.Snapshot {
		t.Helper()
		st := state(t)
		if err := st.PutPin("k", []string{"5"}, "c"); err != nil {
			t.Fatal(err)
		}
		st.PutConstraint(c)
		if edit != nil {
			edit(&st)
		}
		snap, err := shardmap.NewSnapshot(st)
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	alone := shardmap.Constraint{Name: "alone", Kind: placement.Isolation, Keyspace: "k", Keys: [][]string{{"5"}}}
	other := func(st *shardmap.State) { // of another keyspace
		k := st.Keyspaces[0].Clone()
		k.Name, k.Pins = "other", nil
		st.PutKeyspace(k)
	}
	for what, snap := range map[string]*shardmap.Snapshot{"one keyspace": ruled(alone, nil), "two": ruled(alone, other)} {
		for _, spec := range []workflow.Spec{{Kind: workflow.Drain, From: "a"}, {Kind: workflow.Spread}, {Kind: workflow.Spread, Shards: []string{"a", "b"}}} {
			all, err := Plan(snap, &spec)
			if err != nil {
				t.Fatalf("%s, %+v: %v", what, spec, err)
			}
			if spec.Kind == workflow.Drain && len(all) == 0 {
				t.Errorf("%s: a drain of nothing", what)
			}
			for _, m := range all {
				if m.To == "c" {
					t.Errorf("%s, %+v: %+v", what, spec.Kind, m)
				}
			}
		}
		for _, spec := range []workflow.Spec{{Kind: workflow.Drain, From: "a", To: "c"}, {Kind: workflow.Drain, From: "c", To: "a"}} {
			_, err := Plan(snap, &spec)
			if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || classOf(err) != workflow.Refused || !strings.Contains(err.Error(), "alone") {
				t.Errorf("%s, %+v: %v", what, spec, err)
			}
		}
	}
}

// TestDrainPlansPartsInTransit: a part that is on its way from the drained shard to another one is planned as well; that move is
// waited for before the plan is carried out.
func TestDrainPlansPartsInTransit(t *testing.T) {
	st := state(t)
	var part shardmap.Part
	for _, k := range st.Keyspaces {
		for _, r := range k.Ranges {
			if k.Name == "k" && r.Shard == "a" {
				part = shardmap.Part{Low: r.Low, High: r.High}
			}
		}
	}
	for _, to := range []string{"b", "c"} {
		next := st.Clone()
		next.PutTransit("k", shardmap.Transit{ID: "m", Part: part, From: "a", To: to})
		next.SetDrain("a", "d")
		snap, err := shardmap.NewSnapshot(next)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Plan(snap, &workflow.Spec{ID: "d", Kind: workflow.Drain, From: "a"})
		if err != nil {
			t.Fatalf("while it moves to %s: %v", to, err)
		}
		found := false
		for _, c := range all {
			found = found || c.Keyspace == "k" && snap.Overlap("k", c.Part, part)
		}
		if !found {
			t.Errorf("while it moves to %s, the part is not planned: %+v", to, all)
		}
	}
}
