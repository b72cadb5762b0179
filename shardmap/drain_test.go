package shardmap_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// gains reports whether a shard owns a key of a list that it did not own before.
func gains(prev, next *shardmap.Snapshot, shard string, keys []keyspace.Key) bool {
	was, _ := prev.Keyspace("k")
	is, _ := next.Keyspace("k")
	for _, k := range keys {
		a, none := was.Locate(k)
		b, err := is.Locate(k)
		if err == nil && b.Shard == shard && (none != nil || a.Shard != shard) {
			return true
		}
	}
	return false
}

// TestNothingArrivesAtADrainedShard makes random maps follow each other while a shard is being drained: a change is refused, with the
// drain's name, if that shard gets a key by it; and not if it gets none.
func TestNothingArrivesAtADrainedShard(t *testing.T) {
	refused, taken := 0, 0
	property := func(rt *rapid.T) {
		st := baseState(genKeyspace("k").Draw(rt, "first"))
		st.SetDrain("shard-1", "empty")
		prev := first(t, st)
		next := prev.State().Clone()
		k := &next.Keyspaces[0]
		switch rapid.IntRange(0, 3).Draw(rt, "change") {
		case 0:
			if len(k.Pins) > 0 {
				n := rapid.IntRange(0, len(k.Pins)-1).Draw(rt, "which")
				k.Pins = slices.Delete(k.Pins, n, n+1)
			}
		case 1:
			for i := range k.Ranges {
				if rapid.IntRange(0, 5).Draw(rt, "move") == 0 {
					k.Ranges[i].Shard = rapid.SampledFrom(shardNames).Draw(rt, "to")
				}
			}
			for i := range k.Values {
				if rapid.IntRange(0, 5).Draw(rt, "move") == 0 {
					k.Values[i].Shard = rapid.SampledFrom(shardNames).Draw(rt, "to")
				}
			}
		case 2:
			key := genKey(k.Types).Draw(rt, "key").Texts()
			if err := next.PutPin("k", key, rapid.SampledFrom(shardNames).Draw(rt, "to")); err != nil {
				rt.Fatal(err)
			}
		case 3:
			for i := 1; i < len(k.Ranges); i++ { // bounds of one owner go
				if k.Ranges[i-1].Shard == k.Ranges[i].Shard {
					k.Ranges[i-1].High = k.Ranges[i].High
					k.Ranges = slices.Delete(k.Ranges, i, i+1)
				}
			}
		}
		after, err := shardmap.Advance(prev, change(prev.Version()), next)
		if err == nil {
			taken++
			if keys := keysOf(rt, &next.Keyspaces[0]); gains(prev, after, "shard-1", keys) {
				rt.Fatal("the shard got a key")
			}
			return
		}
		refused++
		if own := sqlstate.As(err); own.Code != sqlstate.ObjectNotInState || !strings.Contains(own.Message, "empty") || !strings.Contains(own.Hint, "cleave cancel empty") || own.Shard != "shard-1" {
			rt.Fatalf("%v, hint %q", err, sqlstate.As(err).Hint)
		}
		// It is for the drain alone that it was refused, and it has brought something.
		free := prev.State().Clone()
		free.SetDrain("shard-1", "")
		before := first(t, free)
		next.SetDrain("shard-1", "")
		if after, err = shardmap.Advance(before, change(before.Version()), next); err != nil {
			rt.Fatal(err)
		}
		if shardmap.Breaks(before, after, "") != nil {
			rt.Fatal("nothing is drained")
		}
		differ := false
		for _, d := range shardmap.Diff(before, after) {
			differ = differ || d.To == "shard-1" || d.Kind == shardmap.PinDiffers && d.Action == shardmap.Removed
		}
		if !differ {
			rt.Fatalf("nothing came to the shard: %v", shardmap.Diff(before, after))
		}
	}
	for range testrun.Pick(5, 1) { // rapid has a fifth of its tries in the short run
		rapid.Check(t, property)
	}
	if refused == 0 || taken == 0 {
		t.Errorf("%d changes were refused, %d taken", refused, taken)
	}
}

// TestTransitsOfADrainedShard: one that leads there is refused, one that came before the drain arrives, and a reversal does not.
func TestTransitsOfADrainedShard(t *testing.T) {
	k, err := shardmap.NewHashKeyspace("k", []keyspace.Type{keyspace.Int8}, someShards("shard-0", "shard-1"), 2)
	if err != nil {
		t.Fatal(err)
	}
	upper, lower := shardmap.Part{Low: k.Ranges[1].Low}, shardmap.Part{High: k.Ranges[0].High}
	tries := func(prev *shardmap.Snapshot, by string, edit func(*shardmap.State)) (*shardmap.Snapshot, error) {
		next := prev.State().Clone()
		edit(&next)
		c := change(prev.Version())
		c.Transit = by
		return shardmap.Advance(prev, c, next)
	}
	cut := func(snap *shardmap.Snapshot, err error) *shardmap.Snapshot {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	no := func(_ *shardmap.Snapshot, err error) {
		t.Helper()
		if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "empty") {
			t.Errorf("%v", err)
		}
	}
	own := func(part shardmap.Part, shard string) func(*shardmap.State) {
		return func(s *shardmap.State) {
			if err := s.SetOwner("k", part, shard); err != nil {
				t.Fatal(err)
			}
		}
	}
	put := func(id, from, to string, part shardmap.Part, hold shardmap.Hold) func(*shardmap.State) {
		return func(s *shardmap.State) {
			s.PutTransit("k", shardmap.Transit{ID: id, Part: part.Clone(), From: from, To: to, Hold: hold})
		}
	}
	drain := func(s *shardmap.State) { s.SetDrain("shard-1", "empty") }
	st := baseState(k)
	snap := cut(tries(first(t, st), "before", put("before", "shard-0", "shard-1", lower, shardmap.NoHold)))
	snap = cut(tries(snap, "", drain))
	no(tries(snap, "", func(s *shardmap.State) { s.DefaultShard = "shard-1" }))
	snap = cut(tries(snap, "before", own(lower, "shard-1")))
	snap = cut(tries(snap, "before", own(lower, "shard-0")))
	snap = cut(tries(snap, "before", func(s *shardmap.State) { s.DropTransit("k", "before") }))
	no(tries(snap, "late", put("late", "shard-0", "shard-1", lower, shardmap.NoHold)))
	// The drain's own move, and its reversal.
	snap = cut(tries(snap, "off", put("off", "shard-1", "shard-2", upper, shardmap.NoHold)))
	snap = cut(tries(snap, "off", own(upper, "shard-2")))
	no(tries(snap, "off", own(upper, "shard-1")))
	// A reversal whose statements are held is not stopped: the drain begins when it has arrived.
	snap = cut(tries(snap, "", func(s *shardmap.State) { s.SetDrain("shard-1", "") }))
	snap = cut(tries(snap, "off", put("off", "shard-1", "shard-2", upper, shardmap.HoldNew)))
	no(tries(snap, "", drain))
	snap = cut(tries(snap, "off", own(upper, "shard-1")))
	if c := shardmap.Concerned(snap, cut(tries(snap, "off", put("off", "shard-1", "shard-2", upper, shardmap.NoHold)))); c.All {
		t.Error("a hold concerns all")
	}
	after := cut(tries(snap, "", drain))
	if c := shardmap.Concerned(snap, after); c.All || len(c.Shards) > 0 {
		t.Errorf("statements wait for a drain's note: %+v", c)
	}
	if sh, _ := after.Shard("shard-1"); sh.StateWhy() != "drained by empty" {
		t.Error(sh.StateWhy())
	}
}
