package planner

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

// TestRoundedKey: what an INSERT stores is known by the rounded key, where a modifier rounds it. Another table's rows are not looked
// for by what the text says.
func TestRoundedKey(t *testing.T) {
	state := testState(t)
	state.Tables = append(state.Tables, shardmap.Table{Schema: "public", Name: "rounded", Kind: shardmap.Sharded, Keyspace: "hash_timestamp", ShardKey: []string{"at"},
		Columns: []shardmap.Column{{Name: "at", OID: 1114, Type: "timestamp(0) without time zone"}, {Name: "id", OID: 20, Type: "bigint"}}},
		shardmap.Table{Schema: "public", Name: "others", Kind: shardmap.Sharded, Keyspace: "hash_timestamp", ShardKey: []string{"at"},
			Columns: []shardmap.Column{{Name: "at", OID: 1114, Type: "timestamp without time zone"}, {Name: "id", OID: 20, Type: "bigint"}}})
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	for value, pinned := range map[string]bool{"2026-01-01 00:00:00.6": false, "2026-01-01 00:00:01": true} {
		sql := "WITH n AS (INSERT INTO rounded (at, id) VALUES ('" + value + "', 1) RETURNING at) UPDATE events AS l SET what = 'x' FROM n, others AS o WHERE l.at = n.at AND o.id = 7"
		st, err := New(Limits{}).Analyze(sql, snap, []string{"public"})
		if err != nil {
			t.Fatal(err)
		}
		lines, err := st.Explain(snap, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(lines, "\n")
		if all := strings.Contains(text, "shards: shard-0, shard-1, shard-2"); all == pinned {
			t.Errorf("%s: %s", value, text)
		}
	}
}
