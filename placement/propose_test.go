package placement

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
	"pgregory.net/rapid"
)

// cluster draws small requests whose constraints often collide.
func cluster(rt *rapid.T) Request {
	var r Request
	labels := func(name string) map[string]string {
		m := map[string]string{}
		for _, k := range []string{"region", "tier"} {
			if v := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, name+k); v != "" {
				m[k] = v
			}
		}
		return m
	}
	capped := rapid.Bool().Draw(rt, "capped")
	for i := range rapid.IntRange(1, 4).Draw(rt, "shards") {
		s := Shard{Name: fmt.Sprintf("s%d", i), Weight: rapid.SampledFrom([]float64{0, 1, 1, 2}).Draw(rt, "weight"), Labels: labels("shard ")}
		if capped && rapid.IntRange(0, 3).Draw(rt, "limit") > 0 {
			s.Capacity = float64(rapid.IntRange(1, 12).Draw(rt, "capacity"))
		}
		r.Shards = append(r.Shards, s)
	}
	if !slices.ContainsFunc(r.Shards, func(s Shard) bool { return s.Weight > 0 }) {
		r.Shards[0].Weight = 1
	}
	for i := range rapid.IntRange(1, 6).Draw(rt, "units") {
		u := Unit{Name: fmt.Sprintf("u%d", i), Size: float64(rapid.IntRange(0, 5).Draw(rt, "size")), Position: int64(i), Labels: labels("unit ")}
		if at := rapid.IntRange(-1, len(r.Shards)).Draw(rt, "owner"); at == len(r.Shards) {
			u.Owner = "gone"
		} else if at >= 0 {
			u.Owner = r.Shards[at].Name
		}
		r.Units = append(r.Units, u)
	}
	for i := range rapid.IntRange(0, 4).Draw(rt, "constraints") {
		c := Constraint{Name: fmt.Sprintf("c%d", i), Kind: rapid.SampledFrom([]Kind{Residency, Isolation, AntiAffinity}).Draw(rt, "kind"), Units: labels("means ")}
		if rapid.IntRange(0, 3).Draw(rt, "named") == 0 {
			c.Names = []string{"u0", "u1"}
		}
		if c.Kind == Residency {
			if c.Shards = labels("asks "); len(c.Shards) == 0 {
				c.Shards["region"] = "a"
			}
		} else if rapid.Bool().Draw(rt, "by") {
			c.By = rapid.SampledFrom([]string{"region", "tier"}).Draw(rt, "by what")
		}
		r.Constraints = append(r.Constraints, c)
	}
	r.Algorithm = rapid.SampledFrom([]Algorithm{Balanced, Ring, Jump, Rendezvous, Modulo}).Draw(rt, "algorithm")
	r.Options.VirtualNodes = 8
	return r
}

// exists tries every assignment.
func exists(r Request, constraints []Constraint, shards []Shard, capacities bool) bool {
	if !capacities {
		shards = slices.Clone(shards)
		for i := range shards {
			shards[i].Capacity = 0
		}
	}
	units := slices.Clone(r.Units)
	for i := range units {
		units[i].Owner = ""
	}
	var try func(i int) bool
	try = func(i int) bool {
		if Check(units, shards, constraints) != nil {
			return false // no constraint is mended by more units
		}
		if i == len(units) {
			return true
		}
		for _, s := range shards {
			if s.Weight > 0 {
				units[i].Owner = s.Name
				if try(i + 1) {
					return true
				}
			}
		}
		units[i].Owner = ""
		return false
	}
	return try(0)
}

// TestConstraintsAreNeverBroken compares with every assignment there is: a way
// is found exactly if there is one, it keeps everything, and an error tells the
// truth about what collides and what would help.
func TestConstraintsAreNeverBroken(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { checkProposal(rt, cluster(rt)) })
}

func checkProposal(rt *rapid.T, r Request) {
	if r.Algorithm == Balanced && rapid.Bool().Draw(rt, "pack") && !slices.ContainsFunc(r.Shards, func(s Shard) bool { return s.Capacity == 0 }) {
		r.Algorithm = Packed
	}
	p, err := Propose(r)
	possible := exists(r, r.Constraints, r.Shards, true)
	if possible != (err == nil) {
		rt.Fatalf("an assignment exists: %v; Propose: %v", possible, err)
	}
	if err != nil {
		checkInfeasible(rt, r, err)
		return
	}
	after := slices.Clone(r.Units)
	moves := 0
	for i, o := range p.Owners {
		if after[i].Owner != o {
			if m := p.Moves[moves]; m.Unit != i || m.From != after[i].Owner || m.To != o {
				rt.Fatalf("move %d is %+v", moves, m)
			}
			moves++
		}
		after[i].Owner = o
		if at := slices.IndexFunc(r.Shards, func(s Shard) bool { return s.Name == o }); at < 0 || r.Shards[at].Weight == 0 {
			rt.Fatalf("%s would get %s", o, after[i].Name)
		}
	}
	if moves != len(p.Moves) {
		rt.Fatalf("%d moves, %d owners change", len(p.Moves), moves)
	}
	if err := Check(after, r.Shards, r.Constraints); err != nil {
		rt.Fatal(err)
	}
	again, err := Propose(r)
	if err != nil || !slices.Equal(again.Owners, p.Owners) {
		rt.Fatalf("the second answer is another: %v", err)
	}
}

func checkInfeasible(rt *rapid.T, r Request, err error) {
	var e *InfeasibleError
	if !errors.As(err, &e) || sqlstate.As(err).Code != sqlstate.ObjectNotInState || sqlstate.As(err).Hint == "" {
		rt.Fatalf("not the error that is promised: %#v", err)
	}
	var core []Constraint
	for _, c := range r.Constraints {
		if slices.Contains(e.Constraints, c.Name) {
			core = append(core, c)
		}
	}
	if len(core) != len(e.Constraints) || exists(r, core, r.Shards, e.Capacity) {
		rt.Fatalf("%v with capacity %v do not collide", e.Constraints, e.Capacity)
	}
	for i := range core {
		if !exists(r, slices.Delete(slices.Clone(core), i, i+1), r.Shards, e.Capacity) {
			rt.Fatalf("%v collide without %s", e.Constraints, core[i].Name)
		}
	}
	if e.Capacity && exists(r, r.Constraints, r.Shards, false) == false {
		rt.Fatalf("capacity is blamed, but without it there is no way either")
	}
	if len(e.Missing) > 0 {
		more := slices.Clone(r.Shards)
		for i, m := range e.Missing {
			m.Name = fmt.Sprintf("more%d", i)
			more = append(more, m)
		}
		r.Shards = more
		if r.Algorithm == Packed {
			r.Algorithm = Balanced
		}
		if _, err := Propose(r); err != nil {
			rt.Fatalf("the missing shards %v do not help: %v", e.Missing, err)
		}
	}
}

func units(n int, owner func(i int) string) []Unit {
	out := make([]Unit, n)
	for i := range out {
		out[i] = Unit{Name: fmt.Sprintf("range-%d", i), Owner: owner(i), Position: int64(i) << 50}
	}
	return out
}

func propose(t *testing.T, r Request) *Proposal {
	t.Helper()
	p, err := Propose(r)
	if err != nil {
		t.Fatalf("%v: %+v", err, sqlstate.As(err))
	}
	return p
}

func held(p *Proposal) map[string]int {
	m := map[string]int{}
	for _, o := range p.Owners {
		m[o]++
	}
	return m
}

// TestBalancedMovesTheLeast: adding, removing, weighing and draining shards.
func TestBalancedMovesTheLeast(t *testing.T) {
	even := units(64, func(i int) string { return fmt.Sprintf("shard-%d", i%8) })
	cases := map[string]struct {
		shards []Shard
		moves  int
		want   map[string]int
	}{
		"nothing to do":     {equal(8), 0, nil},
		"one more":          {equal(9), 7, map[string]int{"shard-8": 7}},
		"twice as many":     {equal(16), 32, map[string]int{"shard-0": 4, "shard-15": 4}},
		"one less":          {equal(8)[:7], 8, map[string]int{"shard-7": 0}},
		"one in the middle": {slices.Delete(equal(8), 3, 4), 8, map[string]int{"shard-3": 0}},
		"one drained":       {weighted(1, 1, 0, 1, 1, 1, 1, 1), 8, map[string]int{"shard-2": 0}},
		"one heavier":       {weighted(9, 1, 1, 1, 1, 1, 1, 1), 28, map[string]int{"shard-0": 36, "shard-1": 4}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := propose(t, Request{Units: even, Shards: c.shards, Algorithm: Balanced})
			if len(p.Moves) != c.moves || p.Moved != float64(c.moves) || p.Total != 64 {
				t.Errorf("%d moves, moved %v of %v, want %d", len(p.Moves), p.Moved, p.Total, c.moves)
			}
			got := held(p)
			for s, n := range c.want {
				if got[s] != n {
					t.Errorf("%s holds %d, want %d: %v", s, got[s], n, got)
				}
			}
		})
	}
}

// TestProposalsFollowTheirLocators: adding a shard moves units only to it, by
// every algorithm that promises it, and loads are near the weights.
func TestProposalsFollowTheirLocators(t *testing.T) {
	const n = 20_000
	for _, a := range []Algorithm{Balanced, Ring, Jump, Rendezvous} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			r := Request{Units: units(n, func(int) string { return "" }), Shards: weighted(1, 2, 1, 1, 2, 1, 1, 1), Algorithm: a}
			p := propose(t, r)
			for s, k := range held(p) {
				w := 0.1
				if s == "shard-1" || s == "shard-4" {
					w = 0.2
				}
				near(t, s, float64(k)/n, w, 0.15)
			}
			for i := range r.Units {
				r.Units[i].Owner = p.Owners[i]
			}
			r.Shards = append(r.Shards, Shard{Name: "new", Weight: 2})
			p = propose(t, r)
			near(t, "moved", p.Moved/p.Total, 2.0/12, 0.15)
			for _, m := range p.Moves {
				if m.To != "new" {
					t.Fatalf("%+v", m)
				}
			}
		})
	}
}

func TestIsolationTakesTheCheapestShard(t *testing.T) {
	us := units(30, func(i int) string { return fmt.Sprintf("shard-%d", i%3) })
	us[0].Labels = map[string]string{"tenant": "42"}
	us[3].Labels = map[string]string{"tenant": "42"}
	alone := []Constraint{{Name: "alone", Kind: Isolation, Units: map[string]string{"tenant": "42"}}}
	p := propose(t, Request{Units: us, Shards: equal(4), Constraints: alone, Algorithm: Balanced})
	if p.Owners[0] != "shard-3" || p.Owners[3] != "shard-3" || held(p)["shard-3"] != 2 {
		t.Errorf("%v", p.Owners)
	}
	// What is alone already stays, whatever the loads are.
	for i := range us {
		us[i].Owner = p.Owners[i]
	}
	if p = propose(t, Request{Units: us, Shards: equal(4), Constraints: alone, Algorithm: Balanced}); len(p.Moves) != 0 {
		t.Errorf("%+v", p.Moves)
	}
}

// TestIsolationMovesFewUnits: where nothing is measured, a key that is to be alone goes to an empty shard; the ranges
// beside it stay.
func TestIsolationMovesFewUnits(t *testing.T) {
	us := units(33, func(i int) string { return fmt.Sprintf("shard-%d", i%2) })
	for i := range us {
		us[i].Size = 0
	}
	us[0].Labels = map[string]string{"tenant": "42"}
	alone := []Constraint{{Name: "alone", Kind: Isolation, Units: map[string]string{"tenant": "42"}}}
	p := propose(t, Request{Units: us, Shards: equal(3), Constraints: alone, Algorithm: Balanced})
	if p.Owners[0] != "shard-2" || len(p.Moves) != 1 {
		t.Errorf("%d moves, the key is on %s", len(p.Moves), p.Owners[0])
	}
}

func TestPackingUsesFewShards(t *testing.T) {
	us := make([]Unit, 200)
	total := 0.0
	for i := range us {
		us[i] = Unit{Name: fmt.Sprintf("tenant-%d", i), Size: float64(1 + i*7%13), Position: int64(i)}
		total += us[i].Size
	}
	shards := equal(40)
	for i := range shards {
		shards[i].Capacity = 100
	}
	r := Request{Units: us, Shards: shards, Algorithm: Packed}
	p := propose(t, r)
	// First fit by decreasing size needs at most 11/9 of the least, and 6/9 more.
	if got, least := len(held(p)), math.Ceil(total/100); float64(got) > least*11/9+1 {
		t.Errorf("%d shards for %v", got, total)
	}
	// New tenants fill what there is before another shard is begun.
	before := slices.Sorted(maps.Keys(held(p)))
	for i := range us {
		us[i].Owner = p.Owners[i]
	}
	room := 100*float64(len(before)) - total
	for i := range int(room) / 2 {
		us = append(us, Unit{Name: fmt.Sprintf("new-%d", i), Size: 1})
	}
	r.Units = us
	p = propose(t, r)
	if after := slices.Sorted(maps.Keys(held(p))); !slices.Equal(before, after) || p.Moved != 0 {
		t.Errorf("%v, then %v, moved %v", before, after, p.Moved)
	}
}

// TestManyTenantsAlone: a thousand rules are found out about in no time, and an
// error does not name them all.
func TestManyTenantsAlone(t *testing.T) {
	us := units(20_000, func(i int) string { return fmt.Sprintf("shard-%d", i%200) })
	var rules []Constraint
	for i := range 150 {
		us[i].Labels = map[string]string{"tenant": fmt.Sprint(i)}
		rules = append(rules, Constraint{Name: fmt.Sprint("alone-", i), Kind: Isolation, Units: us[i].Labels})
	}
	r := Request{Units: us, Shards: equal(200), Constraints: rules, Algorithm: Balanced}
	p := propose(t, r)
	if n := held(p); n[p.Owners[0]] != 1 || n[p.Owners[149]] != 1 {
		t.Errorf("%v", n)
	}
	r.Shards = equal(147)
	_, err := Propose(r)
	var e *InfeasibleError
	if !errors.As(err, &e) || len(e.Constraints) != 147 || len(e.Missing) != 4 || len(err.Error()) > 1000 {
		t.Errorf("%+v", err)
	}
}

func TestInfeasibleSaysWhatHelps(t *testing.T) {
	eu := map[string]string{"region": "eu"}
	us := units(4, func(int) string { return "" })
	for i := range us {
		us[i].Labels = eu
	}
	labelled := equal(3)
	labelled[0].Labels = eu
	labelled[0].Weight = 0
	small := equal(2)
	small[0].Capacity, small[1].Capacity = 1, 2
	cases := []struct {
		name          string
		shards        []Shard
		constraints   []Constraint
		message, hint string
	}{
		{"no shard has the label", equal(3), []Constraint{{Name: "eu-only", Kind: Residency, Units: eu, Shards: eu}, {Name: "idle", Kind: Isolation, Units: eu}},
			`constraint "eu-only" cannot be kept with these shards`,
			"add 1 shard with region=eu, or relax a constraint: cleave shard add NAME URL --label region=eu"},
		{"the shard is drained", labelled, []Constraint{{Name: "eu-only", Kind: Residency, Units: eu, Shards: eu}},
			`constraint "eu-only" cannot be kept with these shards`, "shard shard-0 has the labels but weight 0: give it a weight"},
		{"too few to keep apart", equal(2), []Constraint{{Name: "apart", Kind: AntiAffinity}},
			`constraint "apart" cannot be kept with these shards`, "add 2 shards, or relax a constraint: cleave shard add NAME URL"},
		{"no room", small, nil, "the units do not fit into the capacity of the shards", "add 1 shard that can hold 1, or relax a constraint: cleave shard add NAME URL"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Propose(Request{Units: us, Shards: c.shards, Constraints: c.constraints, Algorithm: Balanced})
			got := sqlstate.As(err)
			if got == nil || got.Message != c.message || got.Hint != c.hint {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestToleranceLeavesSmallDifferences alone.
func TestToleranceLeavesSmallDifferences(t *testing.T) {
	us := units(400, func(i int) string { return fmt.Sprintf("shard-%d", i%4) })
	for i := range 6 {
		us[4*i].Owner = "shard-1" // 94, 106, 100, 100
	}
	for tolerance, want := range map[float64]int{0: 6, 0.05: 6, 0.1: 0} {
		p := propose(t, Request{Units: us, Shards: equal(4), Algorithm: Balanced, Tolerance: tolerance})
		if len(p.Moves) != want {
			t.Errorf("tolerance %v: %d moves, want %d", tolerance, len(p.Moves), want)
		}
	}
}
