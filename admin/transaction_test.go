package admin

import (
	"context"
	"strings"
	"testing"
)

// TestDoctorSettlesTransactions: a transaction over several shards that was left
// prepared is reported, and settled by a repair.
func TestDoctorSettlesTransactions(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl(createOrders)
	cluster := strings.ReplaceAll(c.snap().State().Cluster, "-", "")[:8]
	c.query("shard-1", "BEGIN; CREATE TABLE left_behind (a int); PREPARE TRANSACTION 'cleave_"+cluster+"_0123456789abcdef0000000000000001_1_shard-0'")
	find := func(repair bool) (found []Finding) {
		all, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta, Repair: repair})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if strings.Contains(f.What, "transaction 0123456789abcdef") {
				found = append(found, f)
			}
		}
		return found
	}
	if f := find(false); len(f) != 1 || f[0].Level != LevelWarning || f[0].Done != "" || f[0].Next != "cleave doctor --repair" {
		t.Fatalf("%+v", f)
	}
	if f := find(true); len(f) != 1 || f[0].Done != "rolled back" {
		t.Fatalf("%+v", f)
	}
	if f := find(false); len(f) != 0 {
		t.Fatalf("%+v", f)
	}
}
