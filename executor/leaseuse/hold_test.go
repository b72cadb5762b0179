package leaseuse

import (
	"testing"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

// holdingMap is a map with a range keyspace on shards a, b and c, after edits.
func holdingMap(t *testing.T, prev *shardmap.Snapshot, edit func(*shardmap.State)) *shardmap.Snapshot {
	t.Helper()
	s := shardmap.State{Format: shardmap.Format, Cluster: "c", DefaultShard: "a"}
	expect := uint64(0)
	if prev == nil {
		for _, name := range []string{"a", "b", "c"} {
			s.Shards = append(s.Shards, shardmap.Shard{Name: name, Engine: "none", Weight: 1})
		}
		k, err := shardmap.NewRangeKeyspace("k", []keyspace.Type{keyspace.Int8}, [][]string{{"10"}, {"20"}}, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		s.Keyspaces = []shardmap.Keyspace{k}
	} else {
		s, expect = prev.State().Clone(), prev.Version()
	}
	edit(&s)
	next, err := shardmap.Advance(prev, shardmap.Change{Expect: expect, By: "test", Op: "move", Transit: "m"}, s)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestWhatHoldsUpAMap: what is under way by an older map, and transactions on the
// owner from before a hold, hold its acknowledgement up; nothing else does.
func TestWhatHoldsUpAMap(t *testing.T) {
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	e := New(lease)
	install := func(snap *shardmap.Snapshot) *shardmap.Snapshot {
		e.Install(snap)
		return snap
	}
	put := func(hold shardmap.Hold) func(*shardmap.State) {
		return func(s *shardmap.State) {
			s.PutTransit("k", shardmap.Transit{ID: "m", Part: shardmap.Part{Low: []string{"10"}, High: []string{"20"}}, From: "b", To: "c", Hold: hold})
		}
	}
	v1 := install(holdingMap(t, nil, func(*shardmap.State) {}))
	elsewhere, here, anywhere, early, late, other := e.NewTurn(), e.NewTurn(), e.NewTurn(), e.NewTurn(), e.NewTurn(), e.NewTurn()
	a, b := "a", "b"
	for turn, at := range map[*Turn]*string{elsewhere: &a, here: &b, anywhere: nil} {
		turn.Begin()
		turn.At(at)
	}
	early.Use("b", v1.Version())
	other.Use("a", v1.Version())
	want := func(what string, version uint64) {
		t.Helper()
		if got := e.under(e.Snapshot().Version()); got != version {
			t.Errorf("%s: version %d can be acknowledged, not %d", what, got, version)
		}
	}
	v2 := install(holdingMap(t, v1, put(shardmap.HoldNew)))
	late.Use("b", v2.Version())
	want("all are under way", 1)
	anywhere.Pause()
	want("one waits", 1)
	here.End()
	want("what is on the owner has ended", 1)
	early.Unuse()
	want("the early transaction has ended", 2)
	anywhere.Resume()
	want("it goes on by the new map", 2)
	early.Use("b", v1.Version())
	want("an early transaction", 1)
	asked := map[string]int{}
	early.OnEnd(func(h Hold) { asked["early"]++ })
	late.OnEnd(func(h Hold) { asked["late"]++ })
	other.OnEnd(func(h Hold) { asked["other"]++ })
	v3 := install(holdingMap(t, v2, put(shardmap.HoldAll)))
	want("all have to end", v3.Version()-1)
	want("they are not asked again at once", v3.Version()-1)
	if asked["early"] != 1 || asked["late"] != 1 || asked["other"] != 0 {
		t.Errorf("asked to end: %v", asked)
	}
	early.Unuse()
	late.Unuse()
	anywhere.End()
	want("they have ended", 3)
	install(holdingMap(t, v3, func(s *shardmap.State) { s.PutShard(shardmap.Shard{Name: "d", Engine: "none", Weight: 1}) }))
	want("a change that concerns all", 3) // elsewhere is under way by version 1
	elsewhere.End()
	want("nothing is under way", 4)
}

// TestWhoWroteOnAFile: a transaction that wrote on the other one of two shards which have one
// writer each is waited for, and passes; others do not write there meanwhile.
func TestWhoWroteOnAFile(t *testing.T) {
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	e := New(lease)
	install := func(snap *shardmap.Snapshot) *shardmap.Snapshot {
		e.Install(snap)
		return snap
	}
	v1 := install(holdingMap(t, nil, func(s *shardmap.State) {
		for i := range s.Shards {
			s.Shards[i].Engine = "sqlite"
		}
	}))
	wrote, read, late, none := e.NewTurn(), e.NewTurn(), e.NewTurn(), e.NewTurn()
	for _, turn := range []*Turn{wrote, read} {
		turn.Use("c", v1.Version())
	}
	wrote.Wrote("c", v1.Version())
	v2 := install(holdingMap(t, v1, func(s *shardmap.State) {
		s.PutTransit("k", shardmap.Transit{ID: "m", Part: shardmap.Part{Low: []string{"10"}, High: []string{"20"}}, From: "b", To: "c", Hold: shardmap.HoldNew})
	}))
	late.Use("c", v2.Version())
	late.Wrote("c", v2.Version())
	if got := e.under(v2.Version()); got != v1.Version() {
		t.Errorf("version %d can be acknowledged while one from before has the file", got)
	}
	for name, turn := range map[string]*Turn{"wrote": wrote, "read": read, "late": late, "none": none} {
		for shard, crowded := range map[string]bool{"a": false, "b": true, "c": true, "": true} {
			if got := e.Crowded(shard, turn) != nil; got != (crowded && name != "wrote") {
				t.Errorf("%s, on %q: crowded is %v", name, shard, got)
			}
		}
	}
	// What it does there now does not make it one from before.
	read.Wrote("c", v2.Version())
	wrote.Unuse()
	if got := e.under(v2.Version()); got != v2.Version() || e.Crowded("c", read) == nil {
		t.Errorf("version %d can be acknowledged", got)
	}
}
