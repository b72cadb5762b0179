package workflow_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// cluster is a map of a hash keyspace k of so many ranges on some of its shards.
func cluster(t testing.TB, shards, with, ranges int) *shardmap.Snapshot {
	t.Helper()
	s := shardmap.State{Format: shardmap.Format, Cluster: "8a4e7f7c-3c44-4f0e-9a80-0c8f3b8e2a11", DefaultShard: "s0"}
	for i := range shards {
		s.Shards = append(s.Shards, shardmap.Shard{Name: "s" + strconv.Itoa(i), Engine: "sqlite", URL: fmt.Sprint("file:", i), Weight: 1})
	}
	k, err := shardmap.NewHashKeyspace("k", []keyspace.Type{keyspace.Int8}, s.Shards[:with], ranges)
	if err != nil {
		t.Fatal(err)
	}
	s.PutKeyspace(k)
	snap, err := shardmap.Advance(nil, shardmap.Change{By: "test", Op: "test"}, s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// applied is the map after a plan, made by the map's own editing.
func applied(t testing.TB, snap *shardmap.Snapshot, p *workflow.BalancePlan) *shardmap.Snapshot {
	t.Helper()
	s := snap.State().Clone()
	for _, step := range p.Steps {
		var err error
		switch step.Kind {
		case workflow.Split:
			err = s.Split(step.Keyspace, step.At)
		case workflow.Pin:
			err = s.PutPin(step.Keyspace, step.Part.Key, step.To)
		case workflow.Move:
			err = s.SetOwner(step.Keyspace, step.Part, step.To)
		case workflow.Merge:
			err = s.Merge(step.Keyspace, step.At)
		}
		if err != nil {
			t.Fatalf("%+v: %v", step, err)
		}
	}
	after, err := shardmap.NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func TestBalanceSplitsMovesAndMerges(t *testing.T) {
	snap := cluster(t, 3, 2, 8) // s2 is new and empty
	sizes := []workflow.Size{{Bytes: 4000, Rows: 400}, {Bytes: 100, Rows: 10}, {Bytes: 100, Rows: 10}, {Bytes: 100, Rows: 10},
		{Bytes: 100, Rows: 10}, {Bytes: 100, Rows: 10}, {Bytes: 100, Rows: 10}, {Bytes: 1400, Rows: 140}}
	p, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{Tolerance: 0.1, SplitBytes: 1000, MergeBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	if p.SkewBefore < 2 || p.SkewAfter > 1.3 || p.Bytes == 0 || p.Seconds <= 0 || p.Version != snap.Version() {
		t.Fatalf("skew %v -> %v, %d bytes, %v s", p.SkewBefore, p.SkewAfter, p.Bytes, p.Seconds)
	}
	kinds := map[workflow.Kind]int{}
	order := ""
	for _, s := range p.Steps {
		kinds[s.Kind]++
		order += string(s.Kind[:1])
		if s.Kind == workflow.Merge && s.Bytes >= 300 {
			t.Errorf("merges to %d bytes", s.Bytes)
		}
	}
	// 4000 is cut into four, 1400 into two.
	if kinds[workflow.Split] != 4 || kinds[workflow.Move] == 0 || kinds[workflow.Merge] == 0 {
		t.Fatalf("steps %v (%s)", kinds, order)
	}
	after := applied(t, snap, p)
	ix, _ := after.Keyspace("k")
	if got, want := len(ix.Def().Ranges), 8+kinds[workflow.Split]-kinds[workflow.Merge]; got != want {
		t.Errorf("%d ranges afterwards, not %d", got, want)
	}
	// A second plan, with what there is then, has nothing to do.
	again, err := workflow.Balance(after, workflow.Found{Sizes: map[string][]workflow.Size{"k": resized(snap, after, sizes)}}, p.Options)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Steps) != 0 {
		t.Errorf("the next plan has steps: %+v", again.Steps)
	}
}

// resized is what the ranges of another map of the same rows hold, spread evenly.
func resized(before, after *shardmap.Snapshot, sizes []workflow.Size) []workflow.Size {
	a, _ := before.Keyspace("k")
	b, _ := after.Keyspace("k")
	units, old := b.Def().PlacementUnits(), a.Def().PlacementUnits()
	out := make([]workflow.Size, len(units))
	for i, u := range units {
		high := u.Position + int64(u.Size*(1<<63)*2) - 1
		if i == len(units)-1 {
			high = 1<<63 - 1
		}
		for n := range old {
			oldHigh := int64(1<<63 - 1)
			if n+1 < len(old) {
				oldHigh = old[n+1].Position - 1
			}
			low, top := max(u.Position, old[n].Position), min(high, oldHigh)
			if low > top {
				continue
			}
			share := (float64(top) - float64(low)) / (float64(oldHigh) - float64(old[n].Position))
			out[i].Bytes += int64(share*float64(sizes[n].Bytes) + 0.5)
			out[i].Rows += int64(share*float64(sizes[n].Rows) + 0.5)
		}
	}
	return out
}

func TestBalanceKeepsWhatStays(t *testing.T) {
	snap := cluster(t, 3, 1, 6) // everything on s0
	s := snap.State().Clone()
	if err := s.SetOwner("k", shardmap.Part{Key: []string{"7"}}, "s0"); err != nil {
		t.Fatal(err)
	}
	r := s.Keyspaces[0].Ranges[2]
	s.PutTransit("k", shardmap.Transit{ID: "m", Part: shardmap.Part{Low: r.Low, High: r.High}, From: "s0", To: "s1"})
	snap, err := shardmap.Advance(snap, shardmap.Change{Expect: 1, By: "test", Op: "test"}, s)
	if err != nil {
		t.Fatal(err)
	}
	sizes := make([]workflow.Size, 7)
	for i := range sizes {
		sizes[i].Bytes = 100
	}
	p, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{SplitBytes: 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range p.Steps {
		if step.Part.Key != nil || step.Part.Equal(shardmap.Part{Low: r.Low, High: r.High}) {
			t.Errorf("%+v", step)
		}
	}
	if p.SkewAfter > 1.2 {
		t.Errorf("skew %v", p.SkewAfter)
	}
	// Residency wins over evenness.
	s = snap.State().Clone()
	s.Shards[0].Labels = map[string]string{"disk": "fast"}
	s.PutConstraint(shardmap.Constraint{Name: "fast", Kind: placement.Residency, Keyspace: "k", Shards: s.Shards[0].Labels})
	if snap, err = shardmap.NewSnapshot(s); err != nil {
		t.Fatal(err)
	}
	if p, err = workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{}); err != nil || len(p.Steps) != 0 {
		t.Errorf("%v, %+v", err, p)
	}
}

func TestBalanceOptionsThatMakeNoSense(t *testing.T) {
	snap := cluster(t, 2, 2, 2)
	for _, o := range []workflow.BalanceOptions{{By: "colour"}, {Tolerance: -1}, {SplitBytes: -1}, {MergeBytes: -1}, {SplitBytes: 100, MergeBytes: 60}} {
		if _, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": make([]workflow.Size, 2)}}, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": nil}}, workflow.BalanceOptions{}); err == nil {
		t.Error("sizes of other units were accepted")
	}
}

// TestBalanceLarge: a plan for 1,000 shards, of which 20 are new, and 100,000 ranges of
// uneven sizes moves at most 5 per cent more bytes than the least that is possible.
func TestBalanceLarge(t *testing.T) {
	snap := cluster(t, 1000, 980, 100_000)
	r := rand.New(rand.NewPCG(1, 2))
	ix, _ := snap.Keyspace("k")
	sizes := make([]workflow.Size, 100_000)
	load, total := map[string]float64{}, 0.0
	for i := range sizes {
		sizes[i].Bytes = int64(r.ExpFloat64() * 1e8)
		load[ix.Def().Ranges[i].Shard] += float64(sizes[i].Bytes)
		total += float64(sizes[i].Bytes)
	}
	share := total / 1000
	for _, tolerance := range []float64{0, 0.05} {
		began := time.Now()
		p, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{Tolerance: tolerance})
		if err != nil {
			t.Fatal(err)
		}
		surplus := 0.0 // what has to leave the shards above the tolerance, if they are to hold their share
		for _, have := range load {
			if have > share*(1+tolerance) {
				surplus += have - share
			}
		}
		t.Logf("tolerance %v: made in %s: %d steps, %.1f GB, least %.1f GB, skew %.3f -> %.3f", tolerance, time.Since(began).Round(time.Millisecond),
			len(p.Steps), float64(p.Bytes)/1e9, surplus/1e9, p.SkewBefore, p.SkewAfter)
		if float64(p.Bytes) > 1.05*surplus || p.SkewAfter > 1+tolerance+0.01 {
			t.Errorf("%d bytes are moved, the least is %.0f; skew %v", p.Bytes, surplus, p.SkewAfter)
		}
	}
}
