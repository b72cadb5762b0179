package workflow_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// world is a simulated cluster: the load of positions changes, figures are smoothed as the
// routers smooth them, and the policy acts on them.
type world struct {
	t      *testing.T
	snap   *shardmap.Snapshot
	r      *rand.Rand
	policy workflow.Policy
	state  workflow.PolicyState
	now    int64 // milliseconds
	// at is the load at a time of each of 256 slices of the positions.
	at    func(slice int, now int64) float64
	rates []float64 // smoothed, by slice
	// running is a plan that is carried out until ends.
	running *workflow.BalancePlan
	ends    int64
	plans   int
	moves   []string
	bytes   int64
	skew    float64
}

const slices256 = 256

func (w *world) sizes() []workflow.Size {
	ix, _ := w.snap.Keyspace("k")
	out := make([]workflow.Size, ix.UnitCount())
	for i, u := range ix.Def().PlacementUnits() {
		// Slices are of equal width, ranges are unions of slices or parts of one.
		from := (float64(u.Position) + 1<<63) / (1 << 64) * slices256
		to := from + u.Size*slices256
		for s := int(from); s < slices256 && float64(s) < to; s++ {
			part := min(to, float64(s+1)) - max(from, float64(s))
			out[i].Load += w.rates[s] * part
			out[i].Bytes += int64(part * 1e9)
			out[i].Rows += int64(part * 1e6)
		}
	}
	return out
}

func (w *world) step(seconds int64) {
	w.now += seconds * 1000
	keep := math.Exp2(-float64(seconds) / 120)
	for s := range w.rates {
		noisy := w.at(s, w.now) * (0.7 + 0.6*w.r.Float64())
		w.rates[s] = w.rates[s]*keep + noisy*(1-keep)
	}
	if w.running != nil && w.now >= w.ends {
		w.snap = applied(w.t, w.snap, w.running)
		w.state.Ended, w.state.Moved = w.now, w.state.Moved+w.running.Bytes
		w.running = nil
	}
	sizes := map[string][]workflow.Size{"k": w.sizes()}
	w.state = w.state.Roll(w.now)
	p, err := workflow.Balance(w.snap, workflow.Found{Sizes: sizes}, w.policy.Options(w.state.Moved))
	if err != nil {
		w.t.Fatal(err)
	}
	w.skew = p.SkewBefore
	busy := ""
	if w.running != nil {
		busy = "a rebalance is under way"
	}
	next, begin := w.policy.Decide(w.state, workflow.Look{Plan: p, Busy: busy}, w.now)
	w.state = next
	if !begin {
		return
	}
	w.state.Plan, w.state.Since = fmt.Sprint("p", w.plans), 0
	w.plans++
	w.running, w.ends = p, w.now+int64(1000*p.Seconds)
	w.bytes += p.Bytes
	for _, s := range p.Steps {
		if s.Kind == workflow.Move {
			w.moves = append(w.moves, s.Part.Text())
		}
	}
}

func newWorld(t *testing.T, at func(slice int, now int64) float64) *world {
	p := workflow.DefaultPolicy()
	p.Mode, p.By, p.SplitLoad = workflow.Auto, workflow.ByLoad, 600
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, snap: cluster(t, 4, 4, 32), r: rand.New(rand.NewPCG(3, 4)), policy: p, at: at, rates: make([]float64, slices256), now: 1}
	for s := range w.rates {
		w.rates[s] = at(s, 0)
	}
	return w
}

func (w *world) hours(n int) {
	for range n * 6 {
		w.step(600)
	}
}

// TestPolicyConverges: a hot spot is spread, and then the cluster rests although figures are
// noisy; when the hot spot goes elsewhere it is spread again.
func TestPolicyConverges(t *testing.T) {
	spot := 10
	w := newWorld(t, func(s int, _ int64) float64 {
		if s >= spot && s < spot+16 {
			return 100
		}
		return 5
	})
	w.hours(12)
	if w.plans == 0 || w.skew > 1.25 {
		t.Fatalf("%d plans, skew %v", w.plans, w.skew)
	}
	plans, moves := w.plans, len(w.moves)
	w.hours(72)
	if w.plans != plans {
		t.Errorf("%d more plans in three days in which nothing changed: %v", w.plans-plans, w.moves[moves:])
	}
	spot = 200
	w.hours(24)
	if w.skew > 1.25 || w.plans == plans {
		t.Errorf("after the hot spot has moved: %d plans, skew %v", w.plans-plans, w.skew)
	}
	if w.plans-plans > 6 {
		t.Errorf("%d plans for one change", w.plans-plans)
	}
	// The ranges that were cut for the first spot have become one again.
	ix, _ := w.snap.Keyspace("k")
	if n := len(ix.Def().Ranges); n > 70 {
		t.Errorf("%d ranges are left", n)
	}
	plans = w.plans
	w.hours(72)
	if w.plans != plans {
		t.Errorf("%d more plans afterwards", w.plans-plans)
	}
}

// TestPolicyDoesNotFlap: load that goes back and forth faster than the policy holds and rests
// does not make data follow it.
func TestPolicyDoesNotFlap(t *testing.T) {
	w := newWorld(t, func(s int, now int64) float64 {
		if (now/1000/420)%2 == int64(s)/128 { // seven minutes here, seven there
			return 60
		}
		return 20
	})
	w.policy.HoldSeconds = 1800
	w.hours(72)
	if w.plans > 3 {
		t.Errorf("%d plans: %v", w.plans, w.moves)
	}
}

func TestPolicyLimits(t *testing.T) {
	hot := func(s int, _ int64) float64 {
		if s < 32 {
			return 50
		}
		return 5
	}
	w := newWorld(t, hot)
	w.policy.BytesPerDay = 20e9
	for day := range int64(7) {
		w.bytes = 0
		for w.now/86_400_000 == day {
			w.step(900)
		}
		if w.bytes > 20e9 {
			t.Errorf("%d bytes on day %d", w.bytes, day)
		}
	}
	if w.skew > 1.25 || w.plans < 2 {
		t.Errorf("skew %v after %d plans within the limit", w.skew, w.plans)
	}
	w = newWorld(t, hot)
	w.policy.Window = "02:00-03:00 UTC"
	for range 12 * 24 {
		before := w.plans
		if w.step(300); w.plans > before && (w.now/1000%86400 < 7200 || w.now/1000%86400 >= 10800) {
			t.Errorf("a plan was begun at %d", w.now/1000%86400)
		}
	}
	if w.plans == 0 {
		t.Error("no plan in the window")
	}
	for _, mode := range []workflow.Mode{workflow.Manual, workflow.Propose} {
		w = newWorld(t, hot)
		w.policy.Mode = mode
		w.hours(6)
		if (w.plans > 0) != (mode == workflow.Propose) {
			t.Errorf("%d plans in %s", w.plans, mode)
		}
	}
}

func TestPoliciesThatMakeNoSense(t *testing.T) {
	for name, edit := range map[string]func(*workflow.Policy){
		"mode":      func(p *workflow.Policy) { p.Mode = "often" },
		"measure":   func(p *workflow.Policy) { p.By = "colour" },
		"flapping":  func(p *workflow.Policy) { p.MinSkew = 1.1 },
		"nothing":   func(p *workflow.Policy) { p.Tolerance = 0 },
		"window":    func(p *workflow.Policy) { p.Window = "at night" },
		"below 0":   func(p *workflow.Policy) { p.BytesPerDay = -1 },
		"too often": func(p *workflow.Policy) { p.EverySeconds = 0 },
	} {
		p := workflow.DefaultPolicy()
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		if edit(&p); p.Check() == nil {
			t.Errorf("%s: %+v is accepted", name, p)
		}
	}
	var all workflow.Policies
	if all.Now().Mode != workflow.Manual {
		t.Error("something is done by itself before anybody has said so")
	}
	for range 80 {
		all.Add(workflow.PolicyChange{Policy: workflow.DefaultPolicy()})
	}
	if len(all.History) != 50 {
		t.Errorf("%d lines of history", len(all.History))
	}
}

// labelled is cluster with a label region=eu on the first shards.
func labelled(t *testing.T, shards, eu int, constraints ...shardmap.Constraint) *shardmap.Snapshot {
	t.Helper()
	s := cluster(t, shards, shards, 2*shards).State().Clone()
	for i := range s.Shards {
		s.Shards[i].Labels = map[string]string{"region": "us"}
		if i < eu {
			s.Shards[i].Labels = map[string]string{"region": "eu"}
		}
	}
	for _, c := range constraints {
		s.PutConstraint(c)
	}
	snap, err := shardmap.NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// carried applies a plan as the coordinator does, each step a change of the map that must not
// break a constraint.
func carried(t *testing.T, snap *shardmap.Snapshot, p *workflow.BalancePlan) *shardmap.Snapshot {
	t.Helper()
	for i := range p.Steps {
		one := &workflow.BalancePlan{Steps: p.Steps[i : i+1]}
		next, err := shardmap.Advance(snap, shardmap.Change{Expect: snap.Version(), By: "t", Op: "test"}, *applied(t, snap, one).State())
		if err != nil {
			t.Fatalf("step %d, %+v: %v", i, p.Steps[i], err)
		}
		snap = next
	}
	return snap
}

func TestBalanceRepairsConstraints(t *testing.T) {
	for name, c := range map[string]shardmap.Constraint{
		"everything in eu": {Name: "c", Kind: placement.Residency, Shards: map[string]string{"region": "eu"}},
		"a key in eu":      {Name: "c", Kind: placement.Residency, Keyspace: "k", Keys: [][]string{{"1"}, {"2"}, {"3"}}, Shards: map[string]string{"region": "eu"}},
		"a range in eu":    {Name: "c", Kind: placement.Residency, Keyspace: "k", Low: []string{"5000000000000000000"}, High: []string{"6000000000000000000"}, Shards: map[string]string{"region": "eu"}},
		"a tenant alone":   {Name: "c", Kind: placement.Isolation, Keyspace: "k", Keys: [][]string{{"42"}}},
		"a range alone":    {Name: "c", Kind: placement.Isolation, Keyspace: "k", Low: []string{"0"}, High: []string{"1000000000000000000"}},
		"three apart":      {Name: "c", Kind: placement.AntiAffinity, Keyspace: "k", Keys: [][]string{{"1"}, {"2"}, {"3"}, {"4"}}},
	} {
		t.Run(name, func(t *testing.T) {
			snap := labelled(t, 4, 2, c)
			sizes := make([]workflow.Size, 8)
			for i := range sizes {
				sizes[i] = workflow.Size{Rows: 100, Bytes: 10_000, Load: 10}
			}
			broken := len(snap.Violations()) > 0
			p, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{Tolerance: 0.1})
			if err != nil {
				t.Fatal(err)
			}
			if broken != (p.Broken > 0) || !broken && name != "three apart" {
				t.Errorf("broken %v, the plan says %d", broken, p.Broken)
			}
			after := carried(t, snap, p)
			if v := after.Violations(); len(v) > 0 {
				t.Fatalf("after %+v: %+v", p.Steps, v)
			}
			// The rest is measured anew, and nothing is left to do.
			ix, _ := after.Keyspace("k")
			fresh := make([]workflow.Size, ix.UnitCount())
			for i := range fresh {
				if u := ix.Def().PlacementUnits()[i]; u.Size > 0 {
					fresh[i].Bytes = int64(u.Size * 80_000)
				}
			}
			again, err := workflow.Balance(after, workflow.Found{Sizes: map[string][]workflow.Size{"k": fresh}}, workflow.BalanceOptions{Tolerance: 0.6})
			if err != nil || again.Broken != 0 {
				t.Fatalf("%v, %+v", err, again)
			}
			for _, s := range again.Steps {
				if s.Repairs != "" || s.Kind == workflow.Pin {
					t.Errorf("the next plan has %+v", s)
				}
			}
		})
	}
	impossible := labelled(t, 2, 0, shardmap.Constraint{Name: "c", Kind: placement.Residency, Shards: map[string]string{"region": "eu"}})
	if _, err := workflow.Balance(impossible, workflow.Found{Sizes: map[string][]workflow.Size{"k": make([]workflow.Size, 4)}}, workflow.BalanceOptions{}); err == nil || !strings.Contains(err.Error(), `"c"`) && !strings.Contains(err.Error(), "c") {
		t.Errorf("%v", err)
	}
}

// TestBalanceHotKey: a key with more load than a shard should have is placed by itself.
func TestBalanceHotKey(t *testing.T) {
	snap := cluster(t, 3, 3, 6)
	sizes := make([]workflow.Size, 6)
	for i := range sizes {
		sizes[i] = workflow.Size{Bytes: 1000, Rows: 10, Load: 10}
	}
	ix, _ := snap.Keyspace("k")
	key := keyIn(t, ix, 2)
	sizes[2].Load = 70
	p, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}, Hot: []workflow.HotKey{{Keyspace: "k", Key: []string{key}, Load: 60}}},
		workflow.BalanceOptions{By: workflow.ByLoad, Tolerance: 0.1, AloneLoad: 30})
	if err != nil {
		t.Fatal(err)
	}
	if p.Steps[0].Kind != workflow.Pin || p.Steps[0].Part.Key[0] != key || p.Steps[0].To != ix.Def().Ranges[2].Shard {
		t.Errorf("%+v", p.Steps)
	}
	if len(p.Skews) != 3 || p.SkewAfter >= p.SkewBefore {
		t.Errorf("%v -> %v, %+v", p.SkewBefore, p.SkewAfter, p.Skews)
	}
	after := carried(t, snap, p)
	there, _ := after.Keyspace("k")
	if len(there.Def().Pins) != 1 {
		t.Errorf("%+v", there.Def().Pins)
	}
	// Where it is not placed by itself its range is not cut for ever.
	p, err = workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}, Hot: []workflow.HotKey{{Keyspace: "k", Key: []string{key}, Load: 60}}},
		workflow.BalanceOptions{By: workflow.ByLoad, Tolerance: 10, SplitLoad: 30})
	if err != nil || len(p.Steps) != 0 {
		t.Errorf("%v, %+v", err, p.Steps)
	}
	if _, err := workflow.Balance(snap, workflow.Found{Sizes: map[string][]workflow.Size{"k": sizes}}, workflow.BalanceOptions{By: workflow.ByBoth, MovedBytesMax: 1}); err != nil {
		t.Error(err)
	}
}

// keyIn finds a key that lies in a range.
func keyIn(t *testing.T, ix *shardmap.Index, at int) string {
	t.Helper()
	for n := range int64(10_000) {
		if ix.LocateRange(keyspace.Key{keyspace.Int(keyspace.Int8, n)}) == at {
			return strconv.FormatInt(n, 10)
		}
	}
	t.Fatal("no key is there")
	return ""
}
