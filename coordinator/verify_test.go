package coordinator

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
)

// TestUnitsCoverTheSet: each key of a set is in one of the pieces that are compared.
func TestUnitsCoverTheSet(t *testing.T) {
	key := func(n int64) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, n)} }
	for name, ivs := range map[string][]keyspace.Interval{
		"all":       {keyspace.WholeHash()},
		"upper":     {{Low: 0, Last: true}},
		"lower":     {{Low: math.MinInt64, High: 0}},
		"several":   {{Low: -5000, High: 1 << 40}, {Low: 1 << 61, High: 1 << 62}},
		"tiny":      {{Low: 7, High: 9}},
		"almost":    {{Low: math.MinInt64, High: math.MaxInt64}},
		"one of it": {{Low: math.MaxInt64, Last: true}},
	} {
		set := engine.Set{Tables: make([]engine.MoveTable, 2), Keys: keyspace.Ownership{Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8},
			Intervals: ivs, Pinned: []keyspace.Key{key(1)}, PinnedElsewhere: []keyspace.Key{key(2)}}}
		for _, pieces := range []int{0, 1, 2, 3, 8} {
			units := unitsOf(set, pieces)
			if want := max(2*pieces, 1); len(units) != want {
				t.Fatalf("%s: %d units, not %d", name, len(units), want)
			}
			parts := units[:max(pieces, 1)] // of the first table
			check := func(what any, owns func(*keyspace.Ownership) bool) {
				t.Helper()
				want, got := 0, 0
				if owns(&set.Keys) {
					want = 1
				}
				for i := range parts {
					if owns(&parts[i].Keys) {
						got++
					}
				}
				if got != want {
					t.Errorf("%s in %d pieces: %v is in %d of them, not %d", name, pieces, what, got, want)
				}
			}
			for n := range int64(500) {
				check(n, func(o *keyspace.Ownership) bool { return o.Owns(key(n)) })
			}
			positions := []int64{math.MinInt64, -1, 0, 1, 6, 7, 8, 9, math.MaxInt64 - 1, math.MaxInt64}
			for range 200 {
				positions = append(positions, int64(rand.Uint64()))
			}
			for _, p := range positions {
				check(p, func(o *keyspace.Ownership) bool { return o.OwnsHash(p) })
			}
		}
	}
}
