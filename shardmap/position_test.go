package shardmap

import (
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
)

func TestAt(t *testing.T) {
	s := transitState(t)
	m, err := NewRangeKeyspace("m", []keyspace.Type{keyspace.Text, keyspace.Date}, [][]string{{"m"}}, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	s.Keyspaces = append(s.Keyspaces, m)
	hash := func(n int64) string { return strconv.FormatInt(keyspace.HashKey(0, int8Key(n)), 10) }
	snap, err := NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := snap.Keyspace("h")
	owner := func(n int64) string {
		a, err := h.Locate(int8Key(n))
		if err != nil {
			t.Fatal(err)
		}
		return a.Shard
	}
	other := func(n int64) string {
		if owner(n) == "c" {
			return "b"
		}
		return "c"
	}
	if h.Def().Seed != 0 {
		t.Fatalf("seed %d", h.Def().Seed)
	}
	for _, err := range []error{s.PutPin("h", []string{"5"}, other(5)), s.PutPin("r", []string{"15"}, "c"), s.PutPin("l", []string{"de"}, "b")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.PutTransit("h", Transit{ID: "t1", Part: Part{Key: []string{"6"}}, From: owner(6), To: other(6)})
	s.PutTransit("r", Transit{ID: "t2", Part: Part{Low: []string{"20"}, High: []string{"30"}}, From: "a", To: "b"})
	if snap, err = NewSnapshot(s); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ks, position, shard string
		moving, ok          bool
	}{
		{"h", hash(4), owner(4), false, true},
		{"h", hash(5), other(5), false, true}, // pinned
		{"h", hash(6), "", true, true},
		{"h", "x", "", false, false},
		{"h", "", "", false, false},
		{"r", "9", "a", false, true},
		{"r", "10", "b", false, true},
		{"r", "15", "c", false, true}, // pinned
		{"r", "20", "", true, true},
		{"r", "29", "", true, true},
		{"r", "30", "c", false, true},
		{"r", "1, 2", "", false, false},
		{"l", "de", "b", false, true},
		{"l", "fr", "b", false, true},
		{"l", "xx", "", false, true},
		{"m", "a, 2026-01-02", "a", false, true},
		{"m", "z, 2026-01-02", "b", false, true},
		{"m", "a, z, 2026-01-02", "", false, false},
		{"m", "z, 01/02/2026", "", false, false},
	} {
		ix, ok := snap.Keyspace(c.ks)
		if !ok {
			t.Fatal(c.ks)
		}
		if shard, moving, ok := ix.At(c.position); shard != c.shard || moving != c.moving || ok != c.ok {
			t.Errorf("%s: At(%q) is %q, %v, %v", c.ks, c.position, shard, moving, ok)
		}
	}
}
