package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

// TestDoctorCountsOrphans: doctor says how many rows lie on a shard that does not own them, and the command that it names brings them
// home. What a move has there is none of its business, and tables that there was no time for are not said to be in order.
func TestDoctorCountsOrphans(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			c := newMixedCluster(t, engine, engine)
			ctx := t.Context()
			c.ddl(`CREATE TABLE orders (k bigint, id bigint, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k')`)
			c.ddl(`CREATE TABLE "Notes" (k bigint NOT NULL, body text) WITH (cleave.shard_key = 'k')`)
			shards := []string{"shard-0", "shard-1"}
			found := func() (out []Finding) {
				t.Helper()
				all, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range all {
					if strings.Contains(f.Next, "cleave verify") {
						out = append(out, f)
					}
				}
				return out
			}
			if list := found(); len(list) > 0 {
				t.Errorf("at first: %+v", list)
			}
			// Keys of which shard-1 owns some and shard-0 the others.
			ix, _ := c.snap().Keyspace("hash_bigint")
			strays, first := 0, int64(0)
			for k := int64(1); k <= 20; k++ {
				at, err := ix.Locate(keyspace.Key{keyspace.Int(keyspace.Int8, k)})
				if err != nil {
					t.Fatal(err)
				}
				if at.Shard == "shard-0" {
					c.stray("shard-1", "orders", []string{"k"}, fmt.Sprintf("%d\t1\n%d\t2\n", k, k))
					strays, first = strays+2, k
				}
			}
			c.stray("shard-1", "Notes", []string{"k"}, fmt.Sprintf("%d\tx\n", first))
			list := found()
			if len(list) != 2 {
				t.Fatalf("%+v", list)
			}
			for i, want := range []Finding{
				{Table: `public."Notes"`, What: `1 rows of public."Notes" are on shard-1`, Next: `cleave verify 'public."Notes"' --repair`},
				{Table: "public.orders", What: fmt.Sprintf("%d rows of public.orders are on shard-1", strays), Next: "cleave verify 'public.orders' --repair"},
			} {
				if f := list[i]; f.Level != LevelError || f.Shard != "shard-1" || f.Table != want.Table || !strings.HasPrefix(f.What, want.What) || f.Next != want.Next {
					t.Errorf("%+v", f)
				}
			}
			if late := c.ops.examineOrphans(ctx, shards, time.Nanosecond); len(late) != 2 || !strings.Contains(late[0].What, "only 0 of 2 sharded tables") {
				t.Errorf("without time: %+v", late)
			}
			for _, f := range list {
				if _, err := c.ops.Verify(ctx, VerifyRequest{Meta: meta, Table: f.Table, Repair: true}); err != nil {
					t.Error(err)
				}
			}
			if list := found(); len(list) > 0 {
				t.Errorf("after verify --repair: %+v", list)
			}
			st := c.snap().State().Clone()
			st.PutTransit("hash_bigint", shardmap.Transit{ID: "m", Part: shardmap.Part{Key: []string{fmt.Sprint(first)}}, From: "shard-0", To: "shard-1"})
			if _, err := c.dir.Update(ctx, shardmap.Change{Expect: st.Version, By: "test", Op: "test", Why: "test"}, st); err != nil {
				t.Fatal(err)
			}
			c.stray("shard-1", "orders", []string{"k"}, fmt.Sprintf("%d\t1\n%d\t2\n", first, first))
			if list := found(); len(list) > 0 {
				t.Errorf("rows that a move has there: %+v", list)
			}
		})
	}
}
