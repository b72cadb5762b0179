package placement

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// resizing draws a cluster and what becomes of it, and looks at what any change
// must keep.
func resizing(rt *rapid.T) {
	a := rapid.SampledFrom([]Algorithm{Balanced, Ring, Rendezvous}).Draw(rt, "algorithm")
	draw := func(from []Shard) []Shard {
		var shards []Shard
		for _, s := range from {
			if rapid.IntRange(0, 3).Draw(rt, "keep") > 0 {
				if rapid.IntRange(0, 5).Draw(rt, "weigh") == 0 {
					s.Weight = float64(rapid.IntRange(0, 9).Draw(rt, "weight")) / 2
				}
				shards = append(shards, s)
			}
		}
		for range rapid.IntRange(0, 4).Draw(rt, "more") {
			name := fmt.Sprintf("s%d", rapid.IntRange(0, 30).Draw(rt, "name"))
			if !slices.ContainsFunc(shards, func(s Shard) bool { return s.Name == name }) {
				shards = append(shards, Shard{Name: name, Weight: float64(rapid.IntRange(0, 9).Draw(rt, "weight")) / 2})
			}
		}
		if !slices.ContainsFunc(shards, func(s Shard) bool { return s.Weight > 0 }) {
			return []Shard{{Name: "last", Weight: 1}}
		}
		return shards
	}
	l, err := New(a, draw(nil), Options{VirtualNodes: 20})
	if err != nil {
		rt.Fatal(err)
	}
	for range rapid.IntRange(1, 5).Draw(rt, "changes") {
		next, err := l.Resize(draw(l.Shards()))
		if err != nil {
			rt.Fatal(err)
		}
		// A shard with less weight than before gets nothing from one whose weight is not
		// less; that is "nothing moves between old shards" for any change of weights.
		m := Compare(l, next, keys(2000))
		if a != Balanced && m.Between != 0 {
			rt.Fatalf("%s: %d keys moved between shards that did not change", a, m.Between)
		}
		if a == Balanced {
			checkExact(rt, l, next)
		}
		l = next
	}
}

// checkExact: every share is right to a unit, and what each shard lost or got is
// the difference of its shares, so that no less could have moved.
func checkExact(rt *rapid.T, before, after Locator) {
	have, want := holdings(before), holdings(after)
	target := apportion(after.Shards(), allUnits)
	for i, s := range after.Shards() {
		if want[s.Name] != target[i] {
			rt.Fatalf("%s has %d units of %d", s.Name, want[s.Name], target[i])
		}
	}
	gained, moved := int64(0), int64(0)
	for name, n := range want {
		gained += max(0, n-have[name])
	}
	x, _ := Spans(before)
	y, _ := Spans(after)
	for i, j := 0, 0; i < len(x) && j < len(y); {
		low := max(flip(x[i].Interval.Low), flip(y[j].Interval.Low))
		endX, endY := end(x[i]), end(y[j])
		if before.Shards()[x[i].Shard].Name != after.Shards()[y[j].Shard].Name {
			moved += min(endX, endY) - int64(low>>unitBits)
		}
		if endX <= endY {
			i++
		}
		if endY <= endX {
			j++
		}
	}
	if moved != gained {
		rt.Fatalf("%d units moved, %d would do", moved, gained)
	}
}

func end(s Span) int64 {
	if s.Interval.Last {
		return allUnits
	}
	return int64(flip(s.Interval.High) >> unitBits)
}

func holdings(l Locator) map[string]int64 {
	out := map[string]int64{}
	spans, _ := Spans(l)
	for _, s := range spans {
		out[l.Shards()[s.Shard].Name] += end(s) - int64(flip(s.Interval.Low)>>unitBits)
	}
	return out
}

func TestResizingMovesTheLeast(t *testing.T) { rapid.Check(t, resizing) }

func FuzzResize(f *testing.F) { f.Fuzz(rapid.MakeFuzz(resizing)) }

func FuzzPropose(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(rt *rapid.T) { checkProposal(rt, cluster(rt)) }))
}

// FuzzLocate: any position has an owner that has a weight, in all algorithms.
func FuzzLocate(f *testing.F) {
	var all []Locator
	for _, a := range Algorithms() {
		all = append(all, locator(f, a, weighted(1, 0, 2, 3.5), Options{VirtualNodes: 50, Buckets: 2}), locator(f, a, equal(300), Options{VirtualNodes: 50}))
	}
	f.Add(int64(0))
	f.Add(int64(-1 << 63))
	f.Add(int64(1<<63 - 1))
	f.Fuzz(func(t *testing.T, position int64) {
		for i, l := range all {
			if at := l.Locate(position); l.Shards()[at].Weight == 0 {
				t.Errorf("%T %d: %d", l, i, at)
			}
		}
	})
}
