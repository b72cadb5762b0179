package admin

import (
	"context"
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestKeyspacesFollowTheWeights: a shard of weight 2 begins with twice as much
// of a new keyspace of any strategy, and of the keyspace of a new table.
func TestKeyspacesFollowTheWeights(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	if _, err := c.ops.AddShard(ctx, AddShardRequest{Meta: meta, Name: "big", URL: pgtest.Database(t), Weight: 2}); err != nil {
		t.Fatal(err)
	}
	days := make([][]string, 7)
	values := make([]ListedValue, 8)
	for i := range days {
		days[i] = []string{fmt.Sprintf("2026-01-%02d", i+1)}
	}
	for i := range values {
		values[i].Key = []string{fmt.Sprint(i)}
	}
	for _, req := range []CreateKeyspaceRequest{
		{Name: "h", Strategy: "hash", KeyTypes: []string{"uuid"}, Ranges: 8},
		{Name: "r", Strategy: "range", KeyTypes: []string{"date"}, Bounds: days},
		{Name: "l", Strategy: "list", KeyTypes: []string{"text"}, Values: values},
	} {
		req.Meta = meta
		if _, err := c.ops.CreateKeyspace(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	c.ddl("CREATE TABLE orders (id bigint PRIMARY KEY) WITH (cleave.shard_key = 'id')")
	for _, k := range c.snap().State().Keyspaces {
		n := map[string]int{}
		for _, r := range k.Ranges {
			n[r.Shard]++
		}
		for _, v := range k.Values {
			n[v.Shard]++
		}
		if unit := (len(k.Ranges) + len(k.Values)) / 4; n["shard-0"] != unit || n["shard-1"] != unit || n["big"] != 2*unit {
			t.Errorf("keyspace %s: %v", k.Name, n)
		}
	}
}
