package planner

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

// movingState is testState with parts on the move: of hash_bigint the first range is
// copied from shard-0 to shard-1, the last was moved from shard-0 to shard-2 and is
// still there; so are the key ('eu', 7) of visits, and the listed value eu. readings
// has ranges.
func movingState(t *testing.T) shardmap.State {
	s := testState(t)
	s.Keyspaces = append(s.Keyspaces, shardmap.Keyspace{Name: "spans", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int4}, Ranges: []shardmap.Range{
		{High: []string{"10"}, Shard: "shard-0", Epoch: 1}, {Low: []string{"10"}, High: []string{"12"}, Shard: "shard-1", Epoch: 1}, {Low: []string{"12"}, High: []string{"20"}, Shard: "shard-1", Epoch: 1}, {Low: []string{"20"}, Shard: "shard-2", Epoch: 1}}})
	s.Tables = append(s.Tables, shardmap.Table{Schema: "public", Name: "readings", Kind: shardmap.Sharded, Keyspace: "spans", ShardKey: []string{"sensor"}, Columns: []shardmap.Column{
		{Name: "sensor", OID: 23, Type: "integer"}, {Name: "seq", OID: 23, Type: "integer"}, {Name: "value", OID: 23, Type: "integer"}, {Name: "twice", OID: 23, Type: "integer", Computed: true}}})
	hash := s.Keyspaces[0].Ranges
	s.PutTransit("hash_bigint", shardmap.Transit{ID: "a", Part: shardmap.Part{High: hash[0].High}, From: "shard-0", To: "shard-1", Epoch: 7})
	s.PutTransit("hash_bigint", shardmap.Transit{ID: "b", Part: shardmap.Part{Low: hash[5].Low}, From: "shard-0", To: "shard-2", Epoch: 7})
	s.PutTransit("hash_text_integer", shardmap.Transit{ID: "c", Part: shardmap.Part{Key: []string{"eu", "7"}}, From: "shard-0", To: "shard-1", Epoch: 7})
	s.PutTransit("regions", shardmap.Transit{ID: "d", Part: shardmap.Part{Key: []string{"eu"}}, From: "shard-2", To: "shard-1", Epoch: 7})
	s.PutTransit("spans", shardmap.Transit{ID: "e", Part: shardmap.Part{Low: []string{"12"}, High: []string{"20"}}, From: "shard-1", To: "shard-0", Epoch: 7})
	return s
}

// TestStrangers shows the texts of shards that have rows that they do not own.
func TestStrangers(t *testing.T) {
	snap, err := shardmap.NewSnapshot(movingState(t))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/strangers/*.sql", snap, 1, 20)
}

// TestStrangersOfTwoMaps: rows that a shard did not own by either map are left out;
// of the keys that are pinned in a part on the move only those of the shard itself
// are named, and the text without a condition costs nothing.
func TestStrangersOfTwoMaps(t *testing.T) {
	state := testState(t)
	whole := state.Keyspaces[0].Ranges[1]            // the last of shard-0
	for i, k := range []string{"1", "2", "3", "4"} { // whatever their positions
		state.Keyspaces[0].Pins = append(state.Keyspaces[0].Pins, shardmap.Pin{Key: []string{k}, Shard: []string{"shard-1", "shard-2"}[i%2], Epoch: 7})
	}
	snapshot := func(version uint64, edit func(*shardmap.State)) *shardmap.Snapshot {
		next := state.Clone()
		next.Version = version
		edit(&next)
		snap, err := shardmap.NewSnapshot(next)
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	before := snapshot(8, func(s *shardmap.State) {
		for i, r := range s.Keyspaces[0].Ranges {
			if r.Shard == "shard-0" {
				s.PutTransit("hash_bigint", shardmap.Transit{ID: "a" + strconv.Itoa(i), Part: shardmap.Part{Low: r.Low, High: r.High}, From: "shard-0", To: "shard-1", Epoch: 8})
			}
		}
	})
	now := snapshot(9, func(s *shardmap.State) {
		s.PutTransit("hash_bigint", shardmap.Transit{ID: "k", Part: shardmap.Part{Key: []string{"2"}}, From: "shard-2", To: "shard-1", Epoch: 9})
	})
	calm := snapshot(10, func(*shardmap.State) {})
	st, err := New(Limits{}).Analyze("SELECT note FROM orders", calm, []string{"public"})
	if err != nil {
		t.Fatal(err)
	}
	on := func(shard string, maps ...*shardmap.Snapshot) string {
		t.Helper()
		text, err := st.Plan.On(shard, maps...)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := on("shard-1", calm); text != st.Plan.Text {
		t.Errorf("nothing moves: %s", text)
	}
	key := `"orders"."tenant_id" IN ('2'::bigint)`
	one, both := on("shard-1", now), on("shard-1", now, before)
	if !strings.Contains(one, "NOT ("+key+")") {
		t.Errorf("a key on the move: %s", one)
	}
	if !strings.Contains(both, key) || !strings.Contains(both, " OR ") || !strings.Contains(both, whole.High[0]) {
		t.Errorf("by two maps: %s", both)
	}
	if text := on("shard-1", before, before); strings.Contains(text, "'2'::bigint") || strings.Contains(text, "'4'::bigint") {
		t.Errorf("pins of third shards are named: %s", text)
	}
	ix, _ := before.Keyspace("hash_bigint")
	for _, k := range []int64{1, 3} {
		pos := keyspace.HashKey(ix.Def().Seed, keyspace.Key{keyspace.Int(keyspace.Int8, k)})
		inside := ix.Def().Ranges[ix.LocateHash(pos)].Shard == "shard-0"
		if text := on("shard-1", before); strings.Contains(text, "'"+strconv.Itoa(int(k))+"'::bigint") != inside {
			t.Errorf("key %d, pinned to the shard, in a part on the move: %v; %s", k, inside, text)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = st.Plan.Ownership.On(st.Plan.Text, "shard-1", []*shardmap.Snapshot{calm}) }); n > 1 {
		t.Errorf("%v allocations where nothing moves", n)
	}
}
