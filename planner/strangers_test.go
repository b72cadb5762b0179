package planner

import (
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
