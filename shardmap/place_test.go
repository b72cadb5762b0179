package shardmap_test

import (
	"math"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
)

// TestProposalForAMap: a fifth shard takes its share of a keyspace's positions,
// a pinned tenant gets the label that it asks for, and the map with the
// proposal is valid.
func TestProposalForAMap(t *testing.T) {
	shards := []shardmap.Shard{}
	for _, n := range []string{"a", "b", "c", "d"} {
		shards = append(shards, shardmap.Shard{Name: n, Engine: "sqlite", URL: "file:/data/" + n + ".db", Weight: 1})
	}
	k, err := shardmap.NewHashKeyspace("tenant", []keyspace.Type{keyspace.Int8}, shards, 40)
	if err != nil {
		t.Fatal(err)
	}
	k.Pins = []shardmap.Pin{{Key: []string{"42"}, Shard: "a"}, {Key: []string{"43"}, Shard: "a"}}
	shards = append(shards, shardmap.Shard{Name: "e", Engine: "sqlite", URL: "file:/data/e.db", Weight: 1, Labels: map[string]string{"region": "eu"}})
	units := k.PlacementUnits()
	if u := units[0]; len(units) != 42 || u.Name != "tenant range [-inf, -8762203435012037018)" || u.Owner != "a" || u.Position != math.MinInt64 || math.Abs(u.Size-1.0/40) > 1e-12 {
		t.Fatalf("%d units, the first %+v", len(units), u)
	}
	if u := units[41]; u.Name != "tenant pin (43)" || u.Owner != "a" || u.Labels["key"] != "43" || u.Size != 0 {
		t.Fatalf("the last: %+v", u)
	}
	p, err := placement.Propose(placement.Request{
		Units: units, Shards: shardmap.PlacementShards(shards), Algorithm: placement.Balanced,
		Constraints: []placement.Constraint{{Name: "eu tenant", Kind: placement.Residency,
			Units: map[string]string{"keyspace": "tenant", "key": "42"}, Shards: map[string]string{"region": "eu"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Moves) != 9 || math.Abs(p.Moved-0.2) > 1e-9 || math.Abs(p.Load[4]-0.2) > 1e-9 || p.Owners[40] != "e" || p.Owners[41] != "a" {
		t.Errorf("%+v", p)
	}
	next := k.WithOwners(p.Owners)
	if next.Pins[0].Shard != "e" || k.Pins[0].Shard != "a" || k.Ranges[9].Shard != "a" {
		t.Errorf("the old keyspace changed, or the new one did not: %+v", next.Pins)
	}
	state := shardmap.State{Format: shardmap.Format, Cluster: "11111111-1111-4111-8111-111111111111", Version: 1, SchemaVersion: 1, DefaultShard: "a",
		Shards: shards, Keyspaces: []shardmap.Keyspace{next}}
	if _, err := shardmap.NewSnapshot(state); err != nil {
		t.Error(err)
	}
}
