package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
)

// TestSpans: comparisons of the first shard key column of a range keyspace narrow
// the shards that are asked.
func TestSpans(t *testing.T) {
	s := testState(t)
	s.Keyspaces = append(s.Keyspaces,
		shardmap.Keyspace{Name: "days", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Ranges: []shardmap.Range{
			{High: []string{"10"}, Shard: "shard-0", Epoch: 1}, {Low: []string{"10"}, High: []string{"20"}, Shard: "shard-1", Epoch: 2}, {Low: []string{"20"}, Shard: "shard-2", Epoch: 3}}},
		shardmap.Keyspace{Name: "pairs", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8, keyspace.Text}, Ranges: []shardmap.Range{
			{High: []string{"10", "m"}, Shard: "shard-0", Epoch: 1}, {Low: []string{"10", "m"}, High: []string{"20"}, Shard: "shard-1", Epoch: 2}, {Low: []string{"20"}, Shard: "shard-2", Epoch: 3}}},
		shardmap.Keyspace{Name: "names", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Text}, Ranges: []shardmap.Range{
			{High: []string{"m"}, Shard: "shard-0", Epoch: 1}, {Low: []string{"m"}, Shard: "shard-2", Epoch: 3}}})
	big := shardmap.Column{Name: "k", OID: 20, Type: "bigint"}
	text := shardmap.Column{Name: "n", OID: 25, Type: "text"}
	s.Tables = append(s.Tables,
		shardmap.Table{Schema: "public", Name: "d", Kind: shardmap.Sharded, Keyspace: "days", ShardKey: []string{"k"}, Columns: []shardmap.Column{big, text}},
		shardmap.Table{Schema: "public", Name: "p", Kind: shardmap.Sharded, Keyspace: "pairs", ShardKey: []string{"k", "n"}, Columns: []shardmap.Column{big, text}},
		shardmap.Table{Schema: "public", Name: "w", Kind: shardmap.Sharded, Keyspace: "names", ShardKey: []string{"n"}, Columns: []shardmap.Column{big, text}})
	snap, err := shardmap.NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sql, want string
		args      []string
	}{
		{"SELECT * FROM d", "0 1 2", nil},
		{"SELECT * FROM d WHERE k < 10", "0", nil},
		{"SELECT * FROM d WHERE k <= 10", "0 1", nil},
		{"SELECT * FROM d WHERE k >= 10 AND k < 20", "1", nil},
		{"SELECT * FROM d WHERE k BETWEEN 10 AND 19", "1", nil},
		{"SELECT * FROM d WHERE k NOT BETWEEN 10 AND 19", "0 1 2", nil},
		{"SELECT * FROM d WHERE 15 < k", "1 2", nil},
		{"SELECT * FROM d WHERE k > 19", "1 2", nil},
		{"SELECT * FROM d WHERE k > 5 OR n = 'a'", "0 1 2", nil},
		{"SELECT * FROM d WHERE k > 25", "2", nil},
		{"SELECT * FROM d WHERE k > 5.5", "0 1 2", nil},
		{"SELECT * FROM d WHERE k > $1", "2", []string{"25"}},
		{"SELECT * FROM d WHERE k > $1", "0", []string{"NULL"}},
		{"SELECT a.k FROM d a JOIN d b ON a.k = b.k WHERE b.k > 25", "2", nil},
		{"SELECT a.k FROM d a LEFT JOIN d b ON a.k = b.k AND b.k > 25", "0 1 2", nil},
		{"SELECT s.k FROM (SELECT k FROM d) s WHERE s.k < 3", "0", nil},
		{"SELECT count(*) FROM d WHERE k < 3", "0", nil},
		{"SELECT * FROM d WHERE k IN (1, 25)", "0 2", nil},
		{"SELECT * FROM p WHERE k < 10", "0", nil},
		{"SELECT * FROM p WHERE k >= 10 AND k < 20", "0 1", nil},
		{"SELECT * FROM p WHERE k > 10 AND k < 20", "0 1", nil},
		{"SELECT * FROM p WHERE k >= 20", "2", nil},
		{"SELECT * FROM w WHERE n < 'c'", "0 2", nil}, // the order of texts is the collation's
	} {
		var args plan.Args
		for _, a := range c.args {
			if a == "NULL" {
				args.Values = append(args.Values, nil)
			} else {
				args.Values = append(args.Values, []byte(a))
			}
		}
		p := New(Limits{})
		st, err := p.Analyze(c.sql, snap, []string{"public"})
		if err == nil && st.Kind == plan.OneShard {
			st, err = p.Several(c.sql, snap, []string{"public"})
		}
		if err != nil {
			t.Fatalf("%s: %v", c.sql, err)
		}
		target := &st.Plan.Target
		if st.Plan.Op == plan.Gather {
			target = &st.Plan.Relations[0].Target
		}
		got, err := target.Shards(snap, &args)
		var want []string
		for _, n := range strings.Fields(c.want) {
			want = append(want, "shard-"+n)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s %v: %v, %v, want %v", c.sql, c.args, got, err, want)
		}
		// What is counted as load is each range once, of those shards.
		var units []plan.Units
		if _, err := target.Touch(snap, &args, &units); err != nil {
			t.Error(err)
		}
		ix, _ := snap.Keyspace(target.Keyspace)
		end := ix.FirstUnit() - 1
		for _, u := range units {
			if u.From <= end || u.To <= u.From || u.To > ix.FirstUnit()+ix.UnitCount() {
				t.Errorf("%s %v: units %v", c.sql, c.args, units)
				break
			}
			end = u.To
			for n := u.From; n < u.To; n++ {
				if _, shard, _ := ix.Unit(n - ix.FirstUnit()); !slices.Contains(got, shard) {
					t.Errorf("%s %v: unit %d is on %s, not on %v", c.sql, c.args, n, shard, got)
				}
			}
		}
	}
}
