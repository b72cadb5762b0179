package admin

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// TestCarryRows: a copy becomes that of the other shard again after changes, whether few or most rows differ, with a key or without one.
func TestCarryRows(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	tables := []*shardmap.Table{
		{Schema: "public", Name: "keyed", Columns: []shardmap.Column{{Name: "id"}, {Name: "n"}, {Name: "said"}}},
		{Schema: "public", Name: "loose", Columns: []shardmap.Column{{Name: "id"}, {Name: "n"}, {Name: "said"}}},
	}
	for _, shard := range []string{"shard-0", "shard-1"} {
		c.on(shard, "CREATE TABLE keyed (id int PRIMARY KEY, n int UNIQUE, said text); CREATE TABLE loose (id int, n int, said text)")
	}
	carry := func(table *shardmap.Table, ahead bool) {
		t.Helper()
		var conns [2]engine.Conn
		for i, shard := range []string{"shard-0", "shard-1"} {
			def, _ := c.snap().Shard(shard)
			sh, err := c.ops.primary(c.snap().State().Cluster, def)
			if err != nil {
				t.Fatal(err)
			}
			conn, release, err := dialCarrier(ctx, sh)
			if err != nil {
				t.Fatal(err)
			}
			defer release(true)
			if _, err := engine.Exec(conn, "BEGIN"); err != nil {
				t.Fatal(err)
			}
			conns[i] = conn
		}
		if err := copyTableRows(ctx, conns[0], conns[1], table, ahead); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Exec(conns[1], "COMMIT"); err != nil {
			t.Fatal(err)
		}
	}
	held := copyHeld
	defer func() { copyHeld = held }()
	sum := "SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM "
	for _, table := range tables {
		c.on("shard-0", "INSERT INTO "+table.Name+" SELECT n, n, CASE n % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE E'it''s \\\\ ' || n END FROM generate_series(1, 2300) AS n")
		carry(table, true)
		for _, one := range []struct {
			change string
			held   int
		}{
			{"SELECT 1", held},
			{"DELETE FROM %t WHERE id < 10; INSERT INTO %t VALUES (5000, 5000, 'new')", held},
			// Two rows change their unique values with each other.
			{"UPDATE %t SET n = -1 WHERE id = 20; UPDATE %t SET n = 20 WHERE id = 21; UPDATE %t SET n = 21 WHERE id = 20", held},
			{"UPDATE %t SET said = said || '.'", 1000},
			{"INSERT INTO %t SELECT n, n, 'x' FROM generate_series(6000, 6499) AS n", held},
			{"DELETE FROM %t", held},
		} {
			copyHeld = one.held
			c.on("shard-0", strings.ReplaceAll(one.change, "%t", table.Name))
			carry(table, false)
			want := c.on("shard-0", sum+table.Name+" AS t").Rows[0][0].String
			if got := c.on("shard-1", sum+table.Name+" AS t").Rows[0][0].String; got != want {
				t.Errorf("%s after %s: %s, not %s", table.Name, one.change, got, want)
			}
		}
	}
}
