package shardmap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestBoundsModel compares the counting with a linear one, for strings that
// nest: few letters, zero bytes among them, long common beginnings.
func TestBoundsModel(t *testing.T) {
	piece := rapid.SampledFrom([]string{"", "a", "b", "\x00", "\xff", "aaaaaaaa", "aaaaaaab", "\x00\x00\x00\x00\x00\x00\x00\x00", "customer", "bbbbbbbbbbbbbbbb"})
	text := rapid.Map(rapid.SliceOfN(piece, 0, 6), func(parts []string) string {
		s := ""
		for _, p := range parts {
			s += p
		}
		return s
	})
	rapid.Check(t, func(rt *rapid.T) {
		sorted := rapid.SliceOfNDistinct(text, 0, 300, rapid.ID[string]).Draw(rt, "bounds")
		slices.Sort(sorted)
		b := newBounds(sorted)
		for i, s := range sorted {
			if b.key(i) != s {
				rt.Fatalf("bound %d is %q, want %q", i, b.key(i), s)
			}
		}
		asked := rapid.SliceOf(text).Draw(rt, "keys")
		for _, s := range sorted {
			asked = append(asked, s, s+"\x00")
			if s != "" {
				asked = append(asked, s[:len(s)-1])
			}
		}
		for _, s := range asked {
			want := 0
			for _, low := range sorted {
				if low <= s {
					want++
				}
			}
			if got := b.atMost([]byte(s)); got != want {
				rt.Fatalf("%d of %q are <= %q, counted %d", want, sorted, s, got)
			}
		}
	})
}

// TestBoundsNest makes sure that the test above meets what it is for.
func TestBoundsNest(t *testing.T) {
	var sorted []string
	for _, group := range []string{"acme-corporation/", "customer-of-acme/"} {
		for c := 'a'; c <= 'z'; c++ {
			for d := 'a'; d <= 'z'; d++ {
				sorted = append(sorted, group+"same-again"+string(c)+"-and-again-"+string(d))
			}
		}
	}
	b := newBounds(sorted)
	depth := 0
	for n := b; n != nil; depth++ {
		i := slices.IndexFunc(n.nested, func(c *bounds) bool { return c != nil })
		if i < 0 {
			break
		}
		n = n.nested[i]
	}
	if depth != 2 {
		t.Fatalf("the bounds nest %d deep, want 2", depth)
	}
	for i, s := range sorted {
		if got := b.atMost([]byte(s)); got != i+1 {
			t.Fatalf("%d are <= bound %d", got, i)
		}
	}
}

func TestLadderModel(t *testing.T) {
	number := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 20), rapid.Uint64Range(1<<63-5, 1<<63+5), rapid.Uint64Range(1<<64-5, 1<<64-1))
	rapid.Check(t, func(rt *rapid.T) {
		sorted := rapid.SliceOfN(number, 0, 200).Draw(rt, "numbers")
		slices.Sort(sorted)
		l := newLadder(sorted)
		if len(l.starts) > 2*len(sorted)+1 {
			rt.Fatalf("%d entries for %d numbers", len(l.starts), len(sorted))
		}
		for _, p := range append(rapid.SliceOf(number).Draw(rt, "asked"), sorted...) {
			want := 0
			for _, n := range sorted {
				if n <= p {
					want++
				}
			}
			if got := l.atMost(p); got != want {
				rt.Fatalf("%d of %v are <= %d, counted %d", want, sorted, p, got)
			}
		}
	})
}
