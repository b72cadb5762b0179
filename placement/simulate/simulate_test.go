package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/sqlstate"
)

func bigint(n uint64) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, int64(n))} }

// simulate runs both passes over keys.
func simulateKeys(t *testing.T, s Spec, types []keyspace.Type, keys func(yield func(keyspace.Key) bool)) (*Report, *Profile) {
	t.Helper()
	tallies, err := s.Tallies()
	if err != nil {
		t.Fatal(err)
	}
	p := NewProfile(types)
	for k := range keys {
		pos := p.Locate(k)
		p.Add(k, pos)
		for _, x := range tallies {
			x.Add(pos)
		}
	}
	ranges, err := p.Ranges(&s)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != nil {
		for k := range keys {
			ranges.Add(p.Locate(k))
		}
		tallies = append(tallies, ranges)
	}
	r := NewReport(&s, p, tallies, 5)
	r.Columns = []string{"k"}
	r.Advice = Advise(r, nil)
	return r, p
}

func zipf(seed uint64, exponent float64, rows int, keys uint64) func(yield func(keyspace.Key) bool) {
	return func(yield func(keyspace.Key) bool) {
		z := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), exponent, 1, keys-1)
		for range rows {
			if !yield(bigint(z.Uint64())) {
				return
			}
		}
	}
}

func uniform(seed uint64, rows int, keys uint64) func(yield func(keyspace.Key) bool) {
	return func(yield func(keyspace.Key) bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range rows {
			if !yield(bigint(r.Uint64N(keys))) {
				return
			}
		}
	}
}

// TestHeavyBounds holds the space-saving sketch to its promises on Zipf and
// uniform keys: counts add up, no count is below the truth or above it by more than its
// error, no error is above rows/capacity, and no key that is heavier than that is missing.
func TestHeavyBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 300).Draw(t, "capacity")
		rows := rapid.IntRange(1, 20_000).Draw(t, "rows")
		keys := rapid.Uint64Range(1, 5000).Draw(t, "keys")
		seed := rapid.Uint64().Draw(t, "seed")
		source := uniform(seed, rows, keys)
		if exponent := rapid.Float64Range(1, 3).Draw(t, "exponent"); exponent > 1.01 {
			source = zipf(seed, exponent, rows, keys)
		}
		h, truth := newHeavy(capacity), map[uint64]uint64{}
		for k := range source {
			id := uint64(k[0].Int())
			truth[id]++
			h.add(id, k)
		}
		sum := uint64(0)
		for i, c := range h.heap {
			sum += c.count
			if c.at != i || h.byID[c.id] != c {
				t.Fatalf("counter %d is lost", c.id)
			}
			if got := truth[c.id]; got > c.count || got < c.count-c.over {
				t.Fatalf("key %d has %d rows, the sketch says %d less at most %d", c.id, got, c.count, c.over)
			}
			if c.over > uint64(rows/capacity) {
				t.Fatalf("key %d: error %d is above %d/%d", c.id, c.over, rows, capacity)
			}
			if i > 0 && h.heap[(i-1)/2].count > c.count {
				t.Fatal("the heap is out of order")
			}
		}
		if sum != uint64(rows) {
			t.Fatalf("counts add up to %d of %d rows", sum, rows)
		}
		for id, n := range truth {
			if n > uint64(rows/capacity) && h.byID[id] == nil {
				t.Fatalf("key %d with %d of %d rows is missing among %d counters", id, n, rows, capacity)
			}
		}
		if top := h.top(1); len(truth) <= capacity {
			most := uint64(0)
			for _, n := range truth {
				most = max(most, n)
			}
			if top[0].count != most || top[0].over != 0 {
				t.Fatalf("the heaviest key has %d rows, the sketch says %d±%d", most, top[0].count, top[0].over)
			}
		}
	})
}

func TestDistinct(t *testing.T) {
	for _, n := range []int{0, 1, exactMax - 1, exactMax, exactMax + 1, 100_000, 1_000_000} {
		for _, precision := range []uint8{14, 16} {
			d := newDistinct(precision)
			for round := range 2 {
				for i := range n {
					d.add(mix(uint64(i)))
				}
				got, e := d.count()
				off := math.Abs(float64(got)-float64(n)) / max(float64(n), 1)
				if off > 4*e || (n <= exactMax) != (e == 0) {
					t.Errorf("round %d: %d of %d keys, off by %.4f, standard error %.4f", round, got, n, off, e)
				}
			}
		}
	}
}

// TestSample: each tenth of the rows has about a tenth of the sample.
func TestSample(t *testing.T) {
	s := &sample{}
	const rows = 1_000_000
	for i := range rows {
		s.add(keyspace.AppendOrdered(nil, bigint(uint64(i))))
	}
	slices.Sort(s.keys)
	if len(s.keys) != sampleRows {
		t.Fatalf("%d rows", len(s.keys))
	}
	for i := 1; i < 10; i++ {
		bound := string(keyspace.AppendOrdered(nil, bigint(uint64(rows*i/10))))
		at, _ := slices.BinarySearch(s.keys, bound)
		if off := math.Abs(float64(at)/sampleRows - float64(i)/10); off > 0.015 {
			t.Errorf("%d0 %% of the rows have %.3f of the sample", i, float64(at)/sampleRows)
		}
	}
}

// TestArrival tells rising keys from others, also when writers overtake each other.
func TestArrival(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		key  func(i int) uint64
		want string
		rows int
	}{
		"serial":       {func(i int) uint64 { return uint64(i) }, "rising", 5000},
		"few":          {func(i int) uint64 { return uint64(i) }, "rising", 150},
		"too few":      {func(i int) uint64 { return uint64(i) }, "", 90},
		"with jitter":  {func(i int) uint64 { return uint64(i) + r.Uint64N(100) }, "rising", 5000},
		"in runs":      {func(i int) uint64 { return uint64(i / 50) }, "rising", 5000},
		"falling":      {func(i int) uint64 { return uint64(1e9 - i) }, "falling", 5000},
		"random":       {func(i int) uint64 { return r.Uint64N(1e9) }, "", 5000},
		"to and fro":   {func(i int) uint64 { return uint64(i % 300) }, "", 6000},
		"always equal": {func(i int) uint64 { return 7 }, "", 5000},
	} {
		rep, _ := simulateKeys(t, Spec{Shards: 4, Strategies: []string{Range}}, []keyspace.Type{keyspace.Int8}, func(yield func(keyspace.Key) bool) {
			for i := range c.rows {
				if !yield(bigint(c.key(i))) {
					return
				}
			}
		})
		got := ""
		for _, a := range rep.Advice {
			if a.Code == "rising" || a.Code == "falling" {
				got = a.Code
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, rising %.3f at lag %d", name, got, rep.Key.Rising, rep.Key.RisingLag)
		}
		// One shard at a time takes all the writes.
		if w := rep.Strategies[0].WriteSkew; (name == "serial") != (w > 2.5) && (name == "serial" || name == "random") {
			t.Errorf("%s: write skew %.2f", name, w)
		}
	}
}

// TestMovement states the theory on even keys: consistent strategies move what
// has to move, nothing moves for nothing, and modulo moves nearly all.
func TestMovement(t *testing.T) {
	for _, weights := range [][]float64{nil, {1, 1, 2, 1, 1, 2, 1, 1}} {
		s := Spec{Shards: 8, Weights: weights, Add: 1, Remove: 2, Strategies: Strategies(), VirtualNodes: 1024}
		r, p := simulateKeys(t, s, []keyspace.Type{keyspace.Int8}, uniform(5, 200_000, 1<<40))
		if len(r.Strategies) != 6 || p.Rows() != 200_000 {
			t.Fatalf("%d strategies, %d rows", len(r.Strategies), p.Rows())
		}
		for _, x := range r.Strategies {
			sum := uint64(0)
			for _, n := range x.PerShard {
				sum += n
			}
			if sum != 200_000 || x.Rows != sum {
				t.Errorf("%s: %d rows on shards", x.Strategy, sum)
			}
			if x.Skew > 1.12 || x.Deviation > 0.06 || x.WriteSkew > 1.3 || x.WriteSkew < 1 {
				t.Errorf("%s, weights %v: skew %.3f, deviation %.3f, write skew %.3f", x.Strategy, weights, x.Skew, x.Deviation, x.WriteSkew)
			}
			for _, m := range x.Changes {
				switch {
				case x.Strategy == "modulo":
					if m.RowShare < 0.6 || m.Between == 0 {
						t.Errorf("modulo, %s: only %.3f move", m.Change, m.RowShare)
					}
				case math.Abs(m.RowShare-m.Minimum) > 0.02 || m.Between != 0:
					t.Errorf("%s, %s: %.4f of the rows move, %.4f have to, %d for nothing", x.Strategy, m.Change, m.RowShare, m.Minimum, m.Between)
				}
				// Nearly all keys are distinct: keys move as rows do.
				if math.Abs(m.KeyShare-m.RowShare) > 0.05*m.RowShare {
					t.Errorf("%s, %s: %.4f of keys, %.4f of rows", x.Strategy, m.Change, m.KeyShare, m.RowShare)
				}
			}
		}
	}
}

// TestAgreesWithPlacement: a tally is what placement.Compare counts.
func TestAgreesWithPlacement(t *testing.T) {
	s := Spec{Shards: 5, Add: 2, Strategies: []string{"ring", "jump", "rendezvous", "balanced", "modulo"}}
	keys := zipf(9, 1.2, 20_000, 3000)
	r, _ := simulateKeys(t, s, []keyspace.Type{keyspace.Int8}, keys)
	for _, x := range r.Strategies {
		l, err := s.locators(placement.Algorithm(x.Strategy))
		if err != nil {
			t.Fatal(err)
		}
		m := placement.Compare(l[0], l[1], func(yield func(int64) bool) {
			for k := range keys {
				if !yield(keyspace.HashKey(keyspace.DefaultSeed, k)) {
					return
				}
			}
		})
		if uint64(m.Moved) != x.Changes[0].Rows || uint64(m.Between) != x.Changes[0].Between {
			t.Errorf("%s: %+v, want %+v", x.Strategy, x.Changes[0], m)
		}
	}
}

// TestKeysNeeded: so many keys are even enough in the mean, and a quarter of them not.
func TestKeysNeeded(t *testing.T) {
	mean := func(keys uint64, shards int) float64 {
		const rounds = 60
		sum := 0.0
		for round := range uint64(rounds) {
			count := make([]int, shards)
			for k := range keys {
				count[mix(k+round<<32)%uint64(shards)]++
			}
			sum += float64(slices.Max(count)) * float64(shards) / float64(keys)
		}
		return sum / rounds
	}
	for _, shards := range []int{2, 4, 8, 32, 128} {
		n := KeysNeeded(shards)
		if enough, few := mean(n, shards), mean(n/4, shards); enough > evenEnough+0.01 || few < evenEnough {
			t.Errorf("%d shards: %d keys give skew %.3f, a quarter of them %.3f", shards, n, enough, few)
		}
	}
	if KeysNeeded(1) != 1 {
		t.Error("one shard needs one key")
	}
}

// TestMemory reads three million distinct keys: the heap stays where it was.
func TestMemory(t *testing.T) {
	s := Spec{Shards: 16, Add: 1, Remove: 1, Strategies: Strategies()}
	tallies, err := s.Tallies()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := NewProfile([]keyspace.Type{keyspace.Text})
	const rows = 3_000_000
	for i := range rows {
		key := keyspace.Key{keyspace.Str(keyspace.Text, fmt.Sprintf("tenant-%d-%s", mix(uint64(i)), strings.Repeat("x", i%64)))}
		pos := p.Locate(key)
		p.Add(key, pos)
		for _, x := range tallies {
			x.Add(pos)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 24<<20 {
		t.Errorf("%d MiB are held after %d keys", n>>20, rows)
	}
	if k := p.Key(1); math.Abs(float64(k.Distinct)-rows)/rows > 0.02 {
		t.Errorf("%d keys", k.Distinct)
	}
	runtime.KeepAlive(tallies)
}

// TestLongKeys: a key of megabytes is counted, but not held.
func TestLongKeys(t *testing.T) {
	p := NewProfile([]keyspace.Type{keyspace.Text})
	for i := range 40 {
		k := keyspace.Key{keyspace.Str(keyspace.Text, strings.Repeat("é", 1<<20)+fmt.Sprint(i))}
		p.Add(k, p.Locate(k))
	}
	k := p.Key(40)
	if k.Distinct != 40 || len(k.Top) != 40 {
		t.Fatalf("%d distinct, %d top", k.Distinct, len(k.Top))
	}
	for _, top := range k.Top {
		if s := top.Key[0]; len(s) > labelMax+4 || !strings.HasSuffix(s, "é…") {
			t.Errorf("label of %d bytes", len(s))
		}
	}
}

func TestBadSpecs(t *testing.T) {
	for want, s := range map[string]Spec{
		"not a number of shards":    {Shards: 0, Strategies: Strategies()},
		"cannot be removed":         {Shards: 2, Remove: 2, Strategies: Strategies()},
		"cannot be added":           {Shards: 4096, Add: 1, Strategies: Strategies()},
		"too few":                   {Shards: 4, Weights: []float64{1, 2}, Strategies: Strategies()},
		"are more than":             {Shards: 2, Weights: []float64{1, 2, 3}, Strategies: Strategies()},
		`no strategy "best"`:        {Shards: 2, Strategies: []string{"best"}},
		"named twice":               {Shards: 2, Strategies: []string{"ring", "ring"}},
		"no strategy is named":      {Shards: 2},
		"weight 0":                  {Shards: 2, Weights: []float64{0, 0}, Strategies: []string{"ring"}},
		"buckets for weight 1":      {Shards: 2, Weights: []float64{1, math.Pi * 1e-4}, Strategies: []string{"jump"}},
		"virtual nodes":             {Shards: 2, VirtualNodes: -1, Strategies: []string{"ring"}},
		"the weight of shard":       {Shards: 2, Weights: []float64{1, -1}, Strategies: []string{"range"}},
		"100000 is not a number of": {Shards: 100000, Strategies: []string{"range"}},
	} {
		if _, err := s.Tallies(); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// TestJSON: the report's JSON has these fields and no others; scripts read them.
func TestJSON(t *testing.T) {
	r, _ := simulateKeys(t, Spec{Shards: 2, Add: 1, Strategies: []string{"ring"}}, []keyspace.Type{keyspace.Int8}, uniform(1, 10, 3))
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	got := paths(v, "")
	want := strings.Fields(`advice advice[].code advice[].do advice[].level advice[].measured advice[].what advice[].why columns columns[] interrupted key
		key.distinct key.distinct_error key.empty key.nulls key.rising key.rising_lag key.rows key.top key.top[].error key.top[].key key.top[].key[]
		key.top[].rows key.top[].share shards source strategies strategies[].changes strategies[].changes[].between strategies[].changes[].change
		strategies[].changes[].key_share strategies[].changes[].keys strategies[].changes[].keys_error strategies[].changes[].minimum
		strategies[].changes[].per_shard strategies[].changes[].per_shard[] strategies[].changes[].row_share strategies[].changes[].rows
		strategies[].changes[].shards strategies[].changes[].skew strategies[].deviation strategies[].fullest strategies[].fullest_share
		strategies[].per_shard strategies[].per_shard[] strategies[].rows strategies[].skew strategies[].strategy strategies[].write_skew
		types types[] types_guessed weights weights[]`)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// Nothing to say is [] and not null.
	empty, err := json.Marshal(NewReport(&Spec{Shards: 1}, NewProfile(nil), nil, 0))
	if err != nil || strings.Contains(string(empty), "null,") || strings.Contains(string(empty), "null}") {
		t.Errorf("%s, %v", empty, err)
	}
}

func paths(v any, at string) []string {
	seen := map[string]bool{}
	var walk func(v any, at string)
	walk = func(v any, at string) {
		if at != "" {
			seen[strings.TrimPrefix(at, ".")] = true
		}
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				walk(x, at+"."+k)
			}
		case []any:
			for _, x := range v {
				if m, ok := x.(map[string]any); ok {
					for k, y := range m {
						walk(y, at+"[]."+k)
					}
				} else {
					walk(x, at+"[]")
				}
			}
		}
	}
	walk(v, at)
	out := make([]string, 0, len(seen))
	for p := range seen {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func BenchmarkKey(b *testing.B) {
	for _, name := range []string{"profile", "all"} {
		b.Run(name, func(b *testing.B) {
			s := Spec{Shards: 8, Add: 1, Remove: 1, Strategies: []string{"ring", "jump", "rendezvous", "balanced", "modulo"}}
			tallies, err := s.Tallies()
			if err != nil {
				b.Fatal(err)
			}
			p := NewProfile([]keyspace.Type{keyspace.Int8})
			k := bigint(0)
			i := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				i++
				k[0] = keyspace.Int(keyspace.Int8, int64(mix(i)>>24))
				pos := p.Locate(k)
				p.Add(k, pos)
				if name == "all" {
					for _, t := range tallies {
						t.Add(pos)
					}
				}
			}
		})
	}
}
