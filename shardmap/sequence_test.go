package shardmap_test

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

func sequenceState(change func(s *shardmap.State)) shardmap.State {
	s := shardmap.State{Format: shardmap.Format, Cluster: "c", DefaultShard: "a",
		Shards: []shardmap.Shard{{Name: "a", Engine: "sqlite", URL: "file:a", Weight: 1}}}
	s.PutSequence(shardmap.Sequence{ID: "1", Schema: "public", Name: "s", Type: "bigint", First: 1, Start: 1, Increment: 1, Min: 1, Max: 100,
		Owner: &shardmap.SequenceOwner{Schema: "public", Table: "t", Column: "c"}})
	if change != nil {
		change(&s)
	}
	return s
}

func TestSequencesInTheMap(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *shardmap.State){
		"twice":        func(s *shardmap.State) { s.Sequences = append(s.Sequences, s.Sequences[0]) },
		"id twice":     func(s *shardmap.State) { q := s.Sequences[0]; q.Name = "other"; s.Sequences = append(s.Sequences, q) },
		"no id":        func(s *shardmap.State) { s.Sequences[0].ID = "" },
		"no name":      func(s *shardmap.State) { s.Sequences[0].Name = "" },
		"no increment": func(s *shardmap.State) { s.Sequences[0].Increment = 0 },
		"first":        func(s *shardmap.State) { s.Sequences[0].First = 101 },
		"start":        func(s *shardmap.State) { s.Sequences[0].Start = 0 },
		"cache":        func(s *shardmap.State) { s.Sequences[0].Cache = -1 },
	} {
		if _, err := shardmap.NewSnapshot(sequenceState(change)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	state := sequenceState(nil)
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	state.Sequences[0].Owner.Column = "changed behind its back"
	q, ok := snap.Sequence("public", "s")
	if !ok || q.Owner.Column != "c" || q.QualifiedName() != "public.s" {
		t.Errorf("%+v", q)
	}
	if n, ok := snap.SequenceNamed("public.s"); !ok || n != q {
		t.Error("SequenceNamed finds another one")
	}
	if _, ok := snap.Sequence("public", "nope"); ok {
		t.Error("a sequence that is not there")
	}
	if got := shardmap.SequenceOf(shardmap.SequenceValue("public.s")); got != "public.s" || shardmap.SequenceOf(shardmap.NextID) != "" {
		t.Errorf("SequenceOf gives %q", got)
	}
	b, err := shardmap.EncodeState(snap.State())
	if err != nil {
		t.Fatal(err)
	}
	back, err := shardmap.DecodeState(b)
	if err != nil || len(back.Sequences) != 1 || *back.Sequences[0].Owner != *q.Owner {
		t.Errorf("%+v, %v", back.Sequences, err)
	}
	next := snap.State().Clone()
	next.Sequences[0].Increment = 5
	after, err := shardmap.NewSnapshot(next)
	if err != nil {
		t.Fatal(err)
	}
	diff := shardmap.Diff(snap, after)
	if len(diff) != 1 || !strings.Contains(diff[0].String(), "sequence public.s changed: bigint, 1 by 1 from 1 to 100") {
		t.Errorf("diff %v", diff)
	}
	if !next.DropSequence("public", "s") || next.DropSequence("public", "s") || next.Sequences != nil {
		t.Error("DropSequence")
	}
}
