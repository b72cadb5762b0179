package workflow_test

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// ranged is a map of a range keyspace k on shards, cut at some keys, all on s0.
func ranged(t testing.TB, shards int, at ...string) *shardmap.Snapshot {
	t.Helper()
	s := shardmap.State{Format: shardmap.Format, Cluster: "8a4e7f7c-3c44-4f0e-9a80-0c8f3b8e2a11", DefaultShard: "s0"}
	for i := range shards {
		s.Shards = append(s.Shards, shardmap.Shard{Name: "s" + strconv.Itoa(i), Engine: "sqlite", URL: "file:" + strconv.Itoa(i), Weight: 1})
	}
	s.PutKeyspace(shardmap.Keyspace{Name: "k", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Ranges: []shardmap.Range{{Shard: "s0"}}})
	for _, at := range at {
		if err := s.Split("k", []string{at}); err != nil {
			t.Fatal(err)
		}
	}
	snap, err := shardmap.Advance(nil, shardmap.Change{By: "test", Op: "test"}, s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// rowsAt is a simulated table of a range keyspace: so many rows of each key, in order.
type rowsAt []struct{ key, rows int64 }

// measured are sizes and cuts of the ranges, as a shard would tell them: 10 bytes a row.
func (r rowsAt) measured(snap *shardmap.Snapshot, pieces int) workflow.Found {
	ix, _ := snap.Keyspace("k")
	f := workflow.Found{Sizes: map[string][]workflow.Size{"k": make([]workflow.Size, ix.UnitCount())}, Cuts: map[string]map[int][]workflow.Cut{"k": {}}}
	for n, rng := range ix.Def().Ranges {
		var in []int64 // the key of each row
		for _, k := range r {
			if (rng.Low == nil || k.key >= number(rng.Low)) && (rng.High == nil || k.key < number(rng.High)) {
				in = append(in, slices.Repeat([]int64{k.key}, int(k.rows))...)
			}
		}
		f.Sizes["k"][n] = workflow.Size{Rows: int64(len(in)), Bytes: 10 * int64(len(in))}
		last := int64(math.MinInt64)
		for i := 0; i < len(in); i += max(1, len(in)/pieces) {
			if i > 0 && in[i] != last {
				f.Cuts["k"][n] = append(f.Cuts["k"][n], workflow.Cut{At: []string{strconv.FormatInt(in[i], 10)}, Below: float64(i) / float64(len(in))})
			}
			last = in[i]
		}
	}
	return f
}

func number(bound []string) int64 {
	n, err := strconv.ParseInt(bound[0], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// TestBalanceCutsRangesAtKeys: ranges of a range keyspace that are too large are cut where their rows are,
// moved, and merged again when they are small. A key with most of the rows is no reason to cut for ever.
func TestBalanceCutsRangesAtKeys(t *testing.T) {
	var rows rowsAt
	for k := range int64(1000) {
		rows = append(rows, struct{ key, rows int64 }{k * k, 1})
	}
	o := workflow.BalanceOptions{By: workflow.ByBytes, Tolerance: 0.1, SplitBytes: 1000}
	snap := ranged(t, 3, "100", "1000000") // 10 rows below, none above
	const pieces = 64
	p, err := workflow.Balance(snap, rows.measured(snap, pieces), o)
	if err != nil {
		t.Fatal(err)
	}
	after := applied(t, snap, p)
	found := rows.measured(after, pieces)
	for n, s := range found.Sizes["k"] {
		ix, _ := after.Keyspace("k")
		if r := ix.Def().Ranges[n]; s.Bytes > 1000 || s.Bytes < 400 && s.Bytes != 100 && s.Bytes != 0 {
			t.Errorf("range %v has %d bytes", shardmap.Part{Low: r.Low, High: r.High}.Text(), s.Bytes)
		}
	}
	if p.SkewBefore < 2.9 || p.SkewAfter > 1.2 {
		t.Errorf("skew %v -> %v", p.SkewBefore, p.SkewAfter)
	}
	if again, err := workflow.Balance(after, found, o); err != nil || len(again.Steps) != 0 {
		t.Errorf("the next plan: %v, %+v", err, again)
	}
	// Small cold neighbours become one, on each shard, up to half of what is cut.
	for n := range found.Sizes["k"] {
		found.Sizes["k"][n].Load = 0.1
	}
	o.SplitBytes, o.MergeBytes, o.MergeLoad, o.Tolerance = 0, 1<<40, 10, 5
	if p, err = workflow.Balance(after, found, o); err != nil {
		t.Fatal(err)
	}
	merged := applied(t, after, p)
	was, _ := after.Keyspace("k")
	is, _ := merged.Keyspace("k")
	for n, r := range is.Def().Ranges {
		if n > 0 && r.Shard == is.Def().Ranges[n-1].Shard {
			t.Errorf("neighbours of %s are left: %+v", r.Shard, is.Def().Ranges)
		}
	}
	if len(is.Def().Ranges) >= len(was.Def().Ranges) {
		t.Errorf("%d ranges, before %d", len(is.Def().Ranges), len(was.Def().Ranges))
	}

	heavy := rowsAt{{1, 5}, {2, 990}, {3, 5}}
	snap = ranged(t, 2)
	o = workflow.BalanceOptions{Tolerance: 5, SplitBytes: 1000}
	if p, err = workflow.Balance(snap, heavy.measured(snap, 64), o); err != nil || len(p.Steps) != 0 {
		t.Errorf("%v, %+v", err, p.Steps)
	}
	heavy = rowsAt{{1, 300}, {2, 400}, {3, 300}}
	if p, err = workflow.Balance(snap, heavy.measured(snap, 64), o); err != nil || len(p.Steps) != 2 {
		t.Errorf("%v, %+v", err, p.Steps)
	}
	// What is in transit, what a move wants, and what is on a shard out of service stays whole.
	found = heavy.measured(snap, 64)
	found.Moving = map[string][]shardmap.Part{"k": {{Key: []string{"2"}}}}
	if p, err = workflow.Balance(snap, found, o); err != nil || len(p.Steps) != 0 {
		t.Errorf("%v, %+v", err, p.Steps)
	}
	s := snap.State().Clone()
	s.Shards[0].Service = shardmap.ReadOnly
	resting, err := shardmap.NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = workflow.Balance(resting, heavy.measured(snap, 64), workflow.BalanceOptions{SplitBytes: 1000}); err != nil || len(p.Steps) != 0 {
		t.Errorf("%v, %+v", err, p.Steps)
	}
}

// TestBalanceCutsRangesByLoad: a range that is hot is cut beside its hot keys, although these have few rows.
func TestBalanceCutsRangesByLoad(t *testing.T) {
	var rows rowsAt
	for k := range int64(1000) {
		rows = append(rows, struct{ key, rows int64 }{k, 1})
	}
	snap := ranged(t, 2)
	found := rows.measured(snap, 16)
	found.Sizes["k"][0].Load = 1000
	for _, key := range []string{"801", "803", "807"} {
		found.Hot = append(found.Hot, workflow.HotKey{Keyspace: "k", Key: []string{key}, Load: 300})
	}
	p, err := workflow.Balance(snap, found, workflow.BalanceOptions{By: workflow.ByLoad, Tolerance: 0.3, SplitLoad: 500})
	if err != nil {
		t.Fatal(err)
	}
	after := applied(t, snap, p)
	ix, _ := after.Keyspace("k")
	owners := map[string]bool{}
	for _, key := range []int64{801, 803, 807} {
		a, err := ix.Locate(keyspace.Key{keyspace.Int(keyspace.Int8, key)})
		if err != nil {
			t.Fatal(err)
		}
		owners[a.Shard] = true
	}
	if p.SkewAfter > 1.4 || len(owners) != 2 {
		t.Errorf("skew %v, the hot keys are on %v: %+v", p.SkewAfter, owners, p.Steps)
	}
	// Of one hot key nothing is gained.
	found.Hot = []workflow.HotKey{{Keyspace: "k", Key: []string{"801"}, Load: 950}}
	if p, err = workflow.Balance(snap, found, workflow.BalanceOptions{By: workflow.ByLoad, Tolerance: 5, SplitLoad: 500}); err != nil || len(p.Steps) != 0 {
		t.Errorf("%v, %+v", err, p.Steps)
	}
}

// TestPlanFits: a plan of an older map is carried out as long as what it moves is where it was.
func TestPlanFits(t *testing.T) {
	snap := cluster(t, 3, 2, 8)
	sizes := make([]workflow.Size, 8)
	for i := range sizes {
		sizes[i] = workflow.Size{Bytes: 100, Rows: 1}
	}
	p, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{SplitBytes: 60})
	if err != nil || len(p.Steps) == 0 {
		t.Fatal(err, p)
	}
	at := slices.IndexFunc(p.Steps, func(s workflow.PlanStep) bool { return s.Kind == workflow.Move })
	next := func(from *shardmap.Snapshot, change func(*shardmap.State) error) *shardmap.Snapshot {
		t.Helper()
		s := from.State().Clone()
		if err := change(&s); err != nil {
			t.Fatal(err)
		}
		after, err := shardmap.Advance(from, shardmap.Change{Expect: from.Version(), By: "test", Op: "test"}, s)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	step := p.Steps[at]
	cut := next(snap, func(s *shardmap.State) error { return s.Split("k", []string{"12345"}) })
	if err := p.Fits("p", cut); err != nil {
		t.Error(err)
	}
	gone := next(cut, func(s *shardmap.State) error { return s.SetOwner("k", step.Part, step.To) })
	if err := p.Fits("p", gone); err == nil {
		t.Error("its part has another owner")
	}
	moving := next(cut, func(s *shardmap.State) error {
		if err := s.SetOwner("k", step.Part, step.From); err != nil {
			return err
		}
		s.PutTransit("k", shardmap.Transit{ID: "m", Part: step.Part, From: step.From, To: step.To})
		return nil
	})
	if err := p.Fits("p", moving); err == nil {
		t.Error("its part is being moved")
	}
	resting := next(cut, func(s *shardmap.State) error {
		for i := range s.Shards {
			if s.Shards[i].Name == step.To {
				s.Shards[i].Service = shardmap.OutOfService
			}
		}
		return nil
	})
	if err := p.Fits("p", resting); err == nil {
		t.Error("its target is out of service")
	}
}
