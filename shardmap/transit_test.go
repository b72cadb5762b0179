package shardmap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
)

// transitState has a keyspace of each strategy on three shards: hash "h" with
// bounds at the quarters, range "r" cut at 10, 20 and 30, list "l".
func transitState(t testing.TB) State {
	t.Helper()
	s := State{Format: Format, Cluster: "c", DefaultShard: "a"}
	for _, name := range []string{"a", "b", "c"} {
		s.Shards = append(s.Shards, Shard{Name: name, Engine: "sqlite", Weight: 1})
	}
	h, err := NewHashKeyspace("h", []keyspace.Type{keyspace.Int8}, s.Shards, 4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRangeKeyspace("r", []keyspace.Type{keyspace.Int8}, [][]string{{"10"}, {"20"}, {"30"}}, []string{"a", "b", "a", "c"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListKeyspace("l", []keyspace.Type{keyspace.Text}, [][]string{{"de"}, {"fr"}, {"us"}}, []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.Keyspaces = []Keyspace{h, r, l}
	return s
}

func int8Key(n int64) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, n)} }

func TestKeysOfPart(t *testing.T) {
	s := transitState(t)
	if err := s.PutPin("r", []string{"15"}, "c"); err != nil {
		t.Fatal(err)
	}
	snap, err := NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	in := func(p Part, n int64) bool {
		own := snap.Keys("r", p)
		return own.Owns(int8Key(n))
	}
	for _, c := range []struct {
		part Part
		key  int64
		want bool
	}{
		{Part{Low: []string{"10"}, High: []string{"20"}}, 10, true},
		{Part{Low: []string{"10"}, High: []string{"20"}}, 19, true},
		{Part{Low: []string{"10"}, High: []string{"20"}}, 20, false},
		{Part{Low: []string{"10"}, High: []string{"20"}}, 15, false}, // pinned
		{Part{High: []string{"10"}}, -5, true},
		{Part{Low: []string{"030"}}, 30, true},
		{Part{}, 99, true},
		{Part{Key: []string{"15"}}, 15, true},
		{Part{Key: []string{"16"}}, 16, true},
		{Part{Key: []string{"16"}}, 15, false},
		{Part{Key: []string{"x"}}, 15, false},
		{Part{Low: []string{"20"}, High: []string{"10"}}, 15, false},
	} {
		if got := in(c.part, c.key); got != c.want {
			t.Errorf("key %d in part %+v: %v", c.key, c.part, got)
		}
	}
	if own := snap.Keys("nowhere", Part{}); own.Owns(int8Key(1)) {
		t.Error("an unknown keyspace has keys")
	}
	whole := snap.Keys("h", Part{Low: []string{"0"}})
	if !whole.OwnsHash(0) || whole.OwnsHash(-1) || !whole.OwnsHash(1<<62) {
		t.Errorf("the upper half is %+v", whole.Intervals)
	}
	fr := snap.Keys("l", Part{Key: []string{"fr"}})
	if !fr.Owns(keyspace.Key{keyspace.Str(keyspace.Text, "fr")}) || fr.Owns(keyspace.Key{keyspace.Str(keyspace.Text, "de")}) {
		t.Error("the part of a listed value is not that value")
	}
}

// TestStrangersAreTheUnownedSide compares Strangers with its definition, key by
// key, for random transits.
func TestStrangersAreTheUnownedSide(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := transitState(t)
		for range rnd.IntN(4) {
			if err := s.PutPin("r", []string{strconv.Itoa(rnd.IntN(45) - 5)}, string(rune('a'+rnd.IntN(3)))); err != nil {
				t.Fatal(err)
			}
		}
		snap, err := NewSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		ix, _ := snap.Keyspace("r")
		var parts []Transit
		add := func(p Part, owner string) {
			from, to := owner, string(rune('a'+rnd.IntN(3)))
			if from == to {
				return
			}
			if rnd.IntN(2) == 0 {
				from, to = to, from
			}
			parts = append(parts, Transit{ID: fmt.Sprint(len(parts)), Part: p, From: from, To: to})
		}
		covered := map[int]bool{}
		for i, r := range ix.Def().Ranges {
			if rnd.IntN(2) == 0 {
				covered[i] = true
				add(Part{Low: r.Low, High: r.High}, r.Shard)
			}
		}
		for _, p := range ix.Def().Pins {
			if rnd.IntN(2) == 0 {
				add(Part{Key: p.Key}, p.Shard)
			}
		}
		if n := int64(rnd.IntN(45) - 5); !covered[ix.LocateRange(int8Key(n))] {
			if a, _ := ix.Locate(int8Key(n)); !a.Pinned {
				add(Part{Key: []string{fmt.Sprint(n)}}, a.Shard)
			}
		}
		for _, tr := range parts {
			s.PutTransit("r", tr)
		}
		if snap, err = NewSnapshot(s); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		ix, _ = snap.Keyspace("r")
		for _, shard := range []string{"a", "b", "c"} {
			keys, ok := snap.Strangers("r", shard)
			any := false
			for n := int64(-8); n < 45; n++ {
				at, err := ix.Locate(int8Key(n))
				if err != nil {
					t.Fatal(err)
				}
				want := false
				for _, tr := range parts {
					in := snap.Keys("r", tr.Part)
					want = want || in.Owns(int8Key(n)) && at.Shard != shard && slices.Contains([]string{tr.From, tr.To}, shard)
				}
				if got := keys.Owns(int8Key(n)); got != want {
					t.Fatalf("seed %d: key %d is a stranger of %s: %v, want %v (transits %+v)", seed, n, shard, got, want, parts)
				}
				any = any || want
			}
			if any && !ok {
				t.Fatalf("seed %d: shard %s has strangers, but is not said to", seed, shard)
			}
			if len(parts) == 0 && ok {
				t.Fatalf("seed %d: strangers without a transit", seed)
			}
		}
	}
}
