package keyspace_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	. "github.com/cleavedb/cleave/keyspace"
)

// ownsSlowly is the definition, without any search.
func ownsSlowly(o Ownership, k Key) bool {
	has := func(keys []Key) bool { return slices.ContainsFunc(keys, k.Equal) }
	if has(o.Pinned) {
		return true
	}
	if has(o.PinnedElsewhere) {
		return false
	}
	for _, iv := range o.Intervals {
		switch o.Strategy {
		case Hash:
			h := HashKey(o.Seed, k)
			if iv.Low <= h && (iv.Last || h < iv.High) {
				return true
			}
		case Range:
			if CompareKeys(iv.LowValues, k) <= 0 && (iv.Last || CompareKeys(k, iv.HighValues) < 0) {
				return true
			}
		}
	}
	return o.Strategy == List && has(o.Listed)
}

func TestOwns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		keys := make([]Key, rapid.IntRange(1, 12).Draw(t, "keys"))
		for i := range keys {
			keys[i] = drawKey(t, types)
		}
		some := func(name string) []Key {
			return rapid.SliceOfN(rapid.SampledFrom(keys), 0, 3).Draw(t, name)
		}
		o := Ownership{Strategy: rapid.SampledFrom([]Strategy{Hash, Range, List}).Draw(t, "strategy"), Types: types, Seed: rapid.Int64().Draw(t, "seed"),
			Pinned: some("pinned"), PinnedElsewhere: some("elsewhere"), Listed: some("listed")}
		bounds := slices.Clone(keys)
		slices.SortFunc(bounds, CompareKeys)
		bounds = slices.CompactFunc(bounds, Key.Equal)
		switch o.Strategy {
		case Hash:
			at := []int64{}
			for _, k := range bounds {
				at = append(at, HashKey(o.Seed, k))
			}
			slices.Sort(at)
			at = slices.Compact(at)
			for i := 0; i+1 < len(at); i += 2 {
				o.Intervals = append(o.Intervals, Interval{Low: at[i], High: at[i+1]})
			}
			if len(at)%2 == 1 && rapid.Bool().Draw(t, "to the end") {
				o.Intervals = append(o.Intervals, Interval{Low: at[len(at)-1], Last: true})
			}
		case Range:
			for i := 0; i+1 < len(bounds); i += 2 {
				low, high := bounds[i], bounds[i+1]
				if p := high[:rapid.IntRange(1, len(high)).Draw(t, "prefix")]; CompareKeys(low, p) < 0 {
					high = p
				}
				o.Intervals = append(o.Intervals, NewKeyInterval(low, high))
			}
			if len(bounds)%2 == 1 && rapid.Bool().Draw(t, "to the end") {
				o.Intervals = append(o.Intervals, NewKeyInterval(bounds[len(bounds)-1], nil))
			}
		}
		w := NewOwner(o)
		for _, k := range append(keys, drawKey(t, types)) {
			want := ownsSlowly(o, k)
			if o.Owns(k) != want || w.Owns(k) != want {
				t.Fatalf("%v: Ownership says %t, Owner %t, want %t", k, o.Owns(k), w.Owns(k), want)
			}
		}
	})
}

func TestOwnershipRoundTripsThroughJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		o := Ownership{Keyspace: "k", Strategy: Range, Types: types, Seed: rapid.Int64().Draw(t, "seed"), Epoch: rapid.Uint64().Draw(t, "epoch"),
			Intervals: []Interval{NewKeyInterval(nil, drawKey(t, types)), NewKeyInterval(drawKey(t, types), nil), {Low: math.MinInt64, High: math.MaxInt64}},
			Listed:    []Key{drawKey(t, types)}, Pinned: []Key{drawKey(t, types)}, PinnedElsewhere: []Key{drawKey(t, types)}}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var back Ownership
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, o) {
			t.Fatalf("%s comes back as %+v, %v", b, back, err)
		}
	})
}

func TestWholeSpaces(t *testing.T) {
	for _, h := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		if !WholeHash().ContainsHash(h) {
			t.Errorf("%d is outside", h)
		}
	}
	if !WholeRange().ContainsKey(nil) || !WholeRange().ContainsKey([]byte("\xff\xff")) {
		t.Error("a key is outside")
	}
	if (&Ownership{Strategy: "other", Intervals: []Interval{WholeHash()}}).Owns(Key{Int(Int8, 1)}) {
		t.Error("an unknown strategy owns a key")
	}
	if (&Ownership{Strategy: Hash}).Owns(Key{Int(Int8, 1)}) {
		t.Error("no interval owns a key")
	}
}

func TestMergeIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A small space, so that every position can be looked at.
		n := rapid.IntRange(0, 8).Draw(t, "n")
		hash := make([]Interval, n)
		keys := make([]Interval, n)
		inside := map[int64]bool{}
		for i := range n {
			low := rapid.Int64Range(0, 20).Draw(t, "low")
			high := low + rapid.Int64Range(1, 6).Draw(t, "length")
			last := rapid.IntRange(0, 9).Draw(t, "last") == 0
			hash[i] = Interval{Low: low, High: high, Last: last}
			keys[i] = NewKeyInterval(Key{Int(Int8, low)}, Key{Int(Int8, high)})
			keys[i].Last = last
			for p := low; p < 40 && (last || p < high); p++ {
				inside[p] = true
			}
		}
		hash, keys = MergeIntervals(Hash, hash), MergeIntervals(Range, keys)
		oh, ok := Ownership{Strategy: Hash, Intervals: hash}, Ownership{Strategy: Range, Intervals: keys}
		for p := range int64(40) {
			if oh.OwnsHash(p) != inside[p] || ok.Owns(Key{Int(Int8, p)}) != inside[p] {
				t.Fatalf("%d is inside: %t; merged %v", p, inside[p], hash)
			}
		}
		for i := 1; i < len(hash); i++ {
			if hash[i-1].Last || hash[i-1].High >= hash[i].Low {
				t.Fatalf("not merged: %v", hash)
			}
		}
		if len(hash) != len(keys) {
			t.Fatalf("%d hash intervals, %d key intervals", len(hash), len(keys))
		}
	})
}

func benchKey() Key {
	return Key{Int(Int8, 123456789), Str(Text, "tenant-0000012345"), Str(UUID, "0123456789abcdef")}
}

func manyIntervals(n int) Ownership {
	o := Ownership{Strategy: Hash, Types: []Type{Int8}}
	b := append([]int64{math.MinInt64}, EvenRanges(n)...)
	for i := 0; i+1 < n; i += 2 {
		o.Intervals = append(o.Intervals, Interval{Low: b[i], High: b[i+1]})
	}
	return o
}

func TestNoAllocation(t *testing.T) {
	k := benchKey()
	hash := manyIntervals(1000)
	rng := Ownership{Strategy: Range, Intervals: []Interval{NewKeyInterval(k[:1], Key{Int(Int8, 123456790)})}}
	pinned := Ownership{Strategy: Hash, Intervals: hash.Intervals, Pinned: []Key{{Int(Int8, 1), Str(Text, "x"), k[2]}}}
	owner := NewOwner(pinned)
	buf := make([]byte, 0, 256)
	text, bin := []byte("1234567890123"), []byte("\x00\x00\x00\x00\x00\x00\x00\x07")
	moment := []byte("2000-01-31 12:00:00.5+00")
	for name, f := range map[string]func(){
		"HashKey":           func() { sink += HashKey(7, k) },
		"AppendOrdered":     func() { buf = AppendOrdered(buf[:0], k) },
		"Owns hash":         func() { sinkBool = hash.Owns(k) },
		"Owns range":        func() { sinkBool = rng.Owns(k) },
		"Owns pinned":       func() { sinkBool = pinned.Owns(k) },
		"Owner":             func() { sinkBool = owner.Owns(k) },
		"CompareKeys":       func() { sinkBool = CompareKeys(k, k) == 0 },
		"ParseText bigint":  func() { sinkValue, _ = ParseText(Int8, text) },
		"ParseBinary":       func() { sinkValue, _ = ParseBinary(Int8, bin) },
		"ParseText instant": func() { sinkValue, _ = ParseText(Timestamptz, moment) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

var (
	sink      int64
	sinkBool  bool
	sinkValue Value
)

func BenchmarkHashKey(b *testing.B) {
	k := benchKey()
	for i, name := range []string{"bigint", "text17", "uuid"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += HashKey(0, k[i:i+1])
			}
		})
	}
	b.Run("three", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink += HashKey(0, k)
		}
	})
}

func BenchmarkOwns(b *testing.B) {
	for _, n := range []int{2, 64, 10000} {
		o := manyIntervals(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			k := Key{Int(Int8, 0)}
			for i := int64(0); b.Loop(); i++ {
				k[0] = Int(Int8, i)
				sinkBool = o.Owns(k)
			}
		})
	}
}

func BenchmarkParseText(b *testing.B) {
	for _, c := range []struct {
		t Type
		s string
	}{{Int8, "1234567890"}, {UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, {Timestamptz, "2000-01-31 12:00:00.5+00"}, {Text, "tenant-0000012345"}} {
		b.Run(c.t.ShortName(), func(b *testing.B) {
			b.ReportAllocs()
			s := []byte(c.s)
			for b.Loop() {
				sinkValue, _ = ParseText(c.t, s)
			}
		})
	}
}
