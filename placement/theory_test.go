package placement

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

func count(l Locator, n int) []int {
	c := make([]int, len(l.Shards()))
	for p := range keys(n) {
		c[l.Locate(p)]++
	}
	return c
}

// chiSquare is the distance of counts from shares, in standard deviations of
// what chance gives; shares of 0 must have nothing.
func chiSquare(t *testing.T, counts []int, shares []float64) float64 {
	t.Helper()
	n, sum, free := 0, 0.0, -1
	for _, c := range counts {
		n += c
	}
	for i, c := range counts {
		if shares[i] == 0 {
			if c > 0 {
				t.Errorf("%d keys where none may be", c)
			}
			continue
		}
		want := float64(n) * shares[i]
		sum += (float64(c) - want) * (float64(c) - want) / want
		free++
	}
	if free == 0 {
		return 0
	}
	return (sum - float64(free)) / math.Sqrt(2*float64(free))
}

func sharesOf(shards []Shard) []float64 {
	sum := 0.0
	for _, s := range shards {
		sum += s.Weight
	}
	out := make([]float64, len(shards))
	for i, s := range shards {
		out[i] = s.Weight / sum
	}
	return out
}

var weightCases = [][]float64{
	{1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 3, 4}, {0.5, 1, 0, 2.5, 1}, {10, 1}, {0, 0, 1}, {1},
	{3, 3, 3, 1, 1, 1, 1, 1, 7, 7, 0.5, 0.5},
}

// TestWeightsAreHonoured: to what chance allows for all but ring, whose virtual
// nodes are as many as its memory allows.
func TestWeightsAreHonoured(t *testing.T) {
	for _, a := range Algorithms() {
		for _, w := range weightCases {
			t.Run(fmt.Sprint(a, w), func(t *testing.T) {
				t.Parallel()
				o := Options{Buckets: 2, VirtualNodes: 4096}
				shards := weighted(w...)
				got, want := count(locator(t, a, shards, o), manyKeys), sharesOf(shards)
				for i := range got {
					if want[i] == 0 && got[i] != 0 {
						t.Errorf("shard %d of weight 0 got %d keys", i, got[i])
					}
					near(t, shards[i].Name, float64(got[i])/manyKeys, want[i], spread(a, want[i], o))
				}
				if x := chiSquare(t, got, want); a != Ring && x > 5 {
					t.Errorf("%.1f standard deviations from the weights: %v", x, got)
				}
			})
		}
	}
	t.Run("1024 shards", func(t *testing.T) {
		for _, a := range []Algorithm{Jump, Rendezvous, Balanced} {
			shards := equal(1024)
			if x := chiSquare(t, count(locator(t, a, shards, Options{}), manyKeys), sharesOf(shards)); math.Abs(x) > 5 {
				t.Errorf("%s: %.1f standard deviations from equal shares", a, x)
			}
		}
	})
}

// TestTheHeirsAreEven: the keys of a removed shard go to the others in
// proportion to their weights, so the hashes of shards are independent.
func TestTheHeirsAreEven(t *testing.T) {
	for _, shards := range [][]Shard{equal(8), equal(64), weighted(1, 2, 3, 1, 2, 3, 1), weighted(1, 1, 1, 1, 4)} {
		for gone := range min(4, len(shards)) {
			before := locator(t, Rendezvous, shards, Options{Seed: int64(gone)})
			rest := slices.Delete(slices.Clone(shards), gone, gone+1)
			after := resize(t, before, rest)
			heirs := make([]int, len(rest))
			for p := range keys(manyKeys) {
				if before.Locate(p) == gone {
					heirs[after.Locate(p)]++
				}
			}
			if x := chiSquare(t, heirs, sharesOf(rest)); x > 5 {
				t.Errorf("%d shards without %d: %.1f standard deviations: %v", len(shards), gone, x, heirs)
			}
		}
	}
}

// TestWeightsMoveOnlyWhatTheyMust: a shard that gets heavier takes, one that gets lighter
// gives, and nothing moves between others, where names decide.
func TestWeightsMoveOnlyWhatTheyMust(t *testing.T) {
	for _, a := range []Algorithm{Ring, Rendezvous, Balanced} {
		for _, w := range []float64{0, 0.5, 2, 5} {
			before := locator(t, a, equal(8), Options{})
			shards := equal(8)
			shards[3].Weight = w
			m := Compare(before, resize(t, before, shards), keys(manyKeys))
			want := math.Abs(w/(7+w) - 1.0/8)
			near(t, fmt.Sprintf("%s: moved for weight %v", a, w), m.Share(), want, 0.15)
			if m.Between != 0 || m.Arrived["shard-3"]+m.Left["shard-3"] != m.Moved {
				t.Errorf("%s, weight %v: %d of %d moved between others", a, w, m.Between, m.Moved)
			}
		}
	}
}

// TestOrderOfShardsDoesNotMatter, but for the algorithms that number them.
func TestOrderOfShardsDoesNotMatter(t *testing.T) {
	for _, a := range []Algorithm{Ring, Rendezvous} {
		shards := weighted(1, 2, 1, 3, 1, 2)
		turned := slices.Clone(shards)
		slices.Reverse(turned)
		x, y := locator(t, a, shards, Options{}), locator(t, a, turned, Options{})
		for p := range keys(10_000) {
			if shards[x.Locate(p)].Name != turned[y.Locate(p)].Name {
				t.Fatalf("%s: position %d has another owner", a, p)
			}
		}
	}
}

// TestSeedMakesAnotherAssignment of the same shares.
func TestSeedMakesAnotherAssignment(t *testing.T) {
	for _, a := range []Algorithm{Ring, Rendezvous} {
		m := Compare(locator(t, a, equal(8), Options{}), locator(t, a, equal(8), Options{Seed: 1}), keys(manyKeys))
		near(t, string(a)+" with another seed", m.Share(), 7.0/8, 0.05)
	}
}

// TestSpansSayWhatLocateSays, at and around every bound.
func TestSpansSayWhatLocateSays(t *testing.T) {
	for _, a := range Algorithms() {
		l := locator(t, a, weighted(1, 2, 0, 3, 0.5), Options{VirtualNodes: 300, Buckets: 2})
		for range 4 {
			spans, ok := Spans(l)
			if ok != (a == Ring || a == Balanced) {
				t.Fatalf("%s: spans %v", a, ok)
			}
			for i, s := range spans {
				iv := s.Interval
				last := iv.High - 1
				if iv.Last {
					last = math.MaxInt64
				}
				if l.Locate(iv.Low) != s.Shard || l.Locate(last) != s.Shard || !iv.ContainsHash(iv.Low) || !iv.ContainsHash(last) {
					t.Fatalf("%s: span %d %+v", a, i, s)
				}
				switch {
				case i == 0 && iv.Low != math.MinInt64, i > 0 && spans[i-1].Interval.High != iv.Low,
					iv.Last != (i == len(spans)-1), i > 0 && spans[i-1].Shard == s.Shard:
					t.Fatalf("%s: span %d of %d after %+v: %+v", a, i, len(spans), spans[max(0, i-1)], s)
				}
			}
			more := append(slices.Clone(l.Shards()), Shard{Name: fmt.Sprint("more-", len(l.Shards())), Weight: 1})
			l = resize(t, l, more)
		}
	}
}

// TestCrowdedSpans: a look-up among spans that are all in one slice.
func TestCrowdedSpans(t *testing.T) {
	starts, owners := []uint64{0}, []uint16{0}
	for i := range uint64(1000) {
		starts, owners = append(starts, 1<<60+i*3), append(owners, uint16(i+1))
	}
	s := newSpanned(starts, owners)
	for u := uint64(1<<60 - 10); u < 1<<60+3100; u++ {
		want := 0
		if u >= 1<<60 {
			want = int(min(1000, (u-1<<60)/3+1))
		}
		if got := s.locate(u); got != want {
			t.Fatalf("%d: span %d, want %d", u, got, want)
		}
	}
}

// TestExtremeWeights: nothing but the weights decides, and nothing overflows.
func TestExtremeWeights(t *testing.T) {
	for _, w := range [][]float64{{1e308, 1e308, 1e-308}, {1e-308, 2e-308}, {math.MaxFloat64, math.SmallestNonzeroFloat64}} {
		for _, a := range []Algorithm{Balanced, Rendezvous} {
			if got := count(locator(t, a, weighted(w...), Options{}), 1000); got[0] < 200 {
				t.Errorf("%s: %v gives %v", a, w, got)
			}
			p := propose(t, Request{Units: units(100, func(int) string { return "" }), Shards: weighted(w...), Algorithm: a})
			if len(p.Owners) != 100 {
				t.Errorf("%s: %v", a, p)
			}
		}
	}
}

func TestBucketsFor(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		want    int
		ok      bool
	}{{[]float64{1, 2, 0}, 1, true}, {[]float64{1, 1.5}, 2, true}, {[]float64{0.25, 1.0 / 3}, 12, true}, {[]float64{1e-6, 1}, 0, false}} {
		if got, ok := BucketsFor(equal(3), weighted(c.weights...)); got != c.want || ok != c.ok {
			t.Errorf("%v: %d, %v", c.weights, got, ok)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	twice := equal(2)
	twice[1].Name = twice[0].Name
	for name, c := range map[string]struct {
		a      Algorithm
		shards []Shard
		o      Options
	}{
		"no shard":             {Ring, nil, Options{}},
		"too many":             {Ring, equal(MaxShards + 1), Options{}},
		"no name":              {Ring, []Shard{{Weight: 1}}, Options{}},
		"a name twice":         {Ring, twice, Options{}},
		"a negative weight":    {Rendezvous, weighted(1, -1), Options{}},
		"not a number":         {Rendezvous, weighted(1, math.NaN()), Options{}},
		"infinity":             {Balanced, weighted(1, math.Inf(1)), Options{}},
		"all drained":          {Balanced, weighted(0, 0), Options{}},
		"a fraction":           {Jump, weighted(1, 1.5), Options{}},
		"a fraction, modulo":   {Modulo, weighted(1, 1.5), Options{}},
		"too many buckets":     {Jump, weighted(1, 1<<21), Options{}},
		"buckets below 0":      {Jump, equal(1), Options{Buckets: -1}},
		"points below 0":       {Ring, equal(1), Options{VirtualNodes: -1}},
		"too many points":      {Ring, equal(4096), Options{VirtualNodes: 2000}},
		"an algorithm unheard": {"hash", equal(1), Options{}},
		"packed":               {Packed, equal(1), Options{}},
	} {
		_, err := New(c.a, c.shards, c.o)
		if e := sqlstate.As(err); err == nil || e.Code != sqlstate.InvalidParameterValue {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, r := range map[string]Request{
		"a unit without name":      {Units: []Unit{{}}},
		"a unit twice":             {Units: []Unit{{Name: "a"}, {Name: "a"}}},
		"a size below 0":           {Units: []Unit{{Name: "a", Size: -1}}},
		"a rule without name":      {Constraints: []Constraint{{Kind: Isolation}}},
		"a rule twice":             {Constraints: []Constraint{{Name: "a", Kind: Isolation}, {Name: "a", Kind: Isolation}}},
		"a rule of no kind":        {Constraints: []Constraint{{Name: "a"}}},
		"a residency of nowhere":   {Constraints: []Constraint{{Name: "a", Kind: Residency}}},
		"a residency by a label":   {Constraints: []Constraint{{Name: "a", Kind: Residency, By: "x", Shards: map[string]string{"a": "b"}}}},
		"labels for an isolation":  {Constraints: []Constraint{{Name: "a", Kind: Isolation, Shards: map[string]string{"a": "b"}}}},
		"a tolerance below 0":      {Tolerance: -1},
		"packing without capacity": {Algorithm: Packed},
		"no algorithm":             {Algorithm: "x"},
	} {
		r.Shards = equal(2)
		if r.Algorithm == "" {
			r.Algorithm = Balanced
		}
		_, err := Propose(r)
		if e := sqlstate.As(err); err == nil || e.Code != sqlstate.InvalidParameterValue {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLocateIsShared between goroutines, and takes no memory.
func TestLocateIsShared(t *testing.T) {
	for _, a := range Algorithms() {
		l := locator(t, a, weighted(1, 2, 3), Options{})
		want := count(l, 10_000)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if got := count(l, 10_000); !slices.Equal(got, want) {
					t.Errorf("%s: %v, then %v", a, want, got)
				}
			})
		}
		wg.Wait()
		p := int64(1)
		if n := testing.AllocsPerRun(1000, func() { p = p*31 + int64(l.Locate(p)) }); n != 0 {
			t.Errorf("%s allocates", a)
		}
	}
}

func TestApportion(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		n       int
		want    []int
	}{
		{[]float64{1, 1, 1}, 4, []int{2, 1, 1}},
		{[]float64{1, 1, 1, 1}, 2, []int{1, 1, 0, 0}},
		{[]float64{1, 100, 1}, 4, []int{1, 2, 1}},
		{[]float64{1, 0, 3}, 8, []int{2, 0, 6}},
		{[]float64{1e308, 1e308}, 3, []int{2, 1}},
		{[]float64{1, 2}, 0, []int{0, 0}},
	} {
		if got := Apportion(weighted(c.weights...), c.n); !slices.Equal(got, c.want) {
			t.Errorf("%d by %v: %v, want %v", c.n, c.weights, got, c.want)
		}
	}
}

func TestRunsAndTurns(t *testing.T) {
	for _, c := range []struct {
		weights     []float64
		n           int
		runs, turns []int
	}{
		{[]float64{1, 1, 1}, 7, []int{0, 0, 0, 1, 1, 2, 2}, []int{0, 1, 2, 0, 1, 2, 0}},
		{[]float64{3, 3, 3, 3}, 2, []int{0, 2}, []int{0, 1}},
		{[]float64{1, 2, 0}, 6, []int{0, 0, 1, 1, 1, 1}, []int{1, 0, 1, 1, 0, 1}},
		{[]float64{0.1, 100}, 4, []int{0, 1, 1, 1}, []int{1, 1, 1, 1}},
		{[]float64{2, 1}, 0, []int{}, []int{}},
	} {
		if got := Runs(weighted(c.weights...), c.n); !slices.Equal(got, c.runs) {
			t.Errorf("runs of %d by %v: %v, want %v", c.n, c.weights, got, c.runs)
		}
		if got := Turns(weighted(c.weights...), c.n); !slices.Equal(got, c.turns) {
			t.Errorf("turns of %d by %v: %v, want %v", c.n, c.weights, got, c.turns)
		}
	}
}
