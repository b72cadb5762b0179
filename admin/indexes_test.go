package admin

import (
	"context"
	"strings"
	"testing"
)

// TestMissingIndex: doctor names an index that somebody has dropped on one shard, with the statement that makes it, and nothing else.
func TestMissingIndex(t *testing.T) {
	c := newCluster(t, 3)
	c.ddl(createOrders)
	c.ddl("CREATE INDEX by_time ON orders (tenant_id, id)")
	c.healthy()
	look := func() (out []string) {
		found, err := c.ops.Doctor(context.Background(), DoctorRequest{Meta: meta})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if strings.HasPrefix(f.What, "index ") {
				out = append(out, f.Shard+"|"+f.What+"|"+f.Next)
			}
		}
		return out
	}
	if found := look(); len(found) > 0 {
		t.Fatal(found)
	}
	c.query("shard-1", "DROP INDEX by_time")
	found := look()
	if len(found) != 1 || !strings.Contains(found[0], `shard-1|index "by_time" of table public.orders is on shard-0, shard-2, but not on shard-1|`) || !strings.Contains(found[0], "CREATE INDEX by_time ON public.orders USING btree (tenant_id, id)") {
		t.Fatal(found)
	}
	c.query("shard-1", "CREATE INDEX other_name ON orders (tenant_id, id)")
	if found := look(); len(found) > 0 {
		t.Fatal(found)
	}
}
