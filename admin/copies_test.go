package admin

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// on runs statements on a shard, past the router.
func (c *cluster) on(shard, sql string) *engine.Result {
	c.t.Helper()
	conn, release, err := c.ops.connect(context.Background(), shard)
	if err != nil {
		c.t.Fatal(err)
	}
	defer release(true)
	res, err := engine.Exec(conn, sql)
	if err != nil {
		c.t.Fatalf("%s: %s: %v", shard, sql, err)
	}
	return res
}

// rowsOf are the rows of the reference table on a shard.
func (c *cluster) rowsOf(shard string) string {
	var out []string
	for _, r := range c.on(shard, "SELECT id, name, twice FROM currencies ORDER BY id").Rows {
		out = append(out, r[0].String+" "+r[1].String+" "+r[2].String)
	}
	return strings.Join(out, ", ")
}

func TestCopiesOfReferenceTables(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl("CREATE TABLE currencies (id int PRIMARY KEY, name text, twice int GENERATED ALWAYS AS (id * 2) STORED) WITH (cleave.reference = true)")
	snap, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	epoch := func(sql string) string {
		return "BEGIN; SET LOCAL cleave.guard_epoch = '" + strconv.FormatUint(snap.CopiesEpoch(), 10) + "'; " + sql + "; COMMIT"
	}
	conn, release, err := c.ops.connect(ctx, "shard-0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Exec(conn, "INSERT INTO currencies VALUES (1, 'x')"); err == nil || !strings.Contains(err.Error(), "must not change") {
		t.Errorf("a write without the epoch: %v", err)
	}
	release(true)
	rows := epoch("INSERT INTO currencies VALUES (1, 'eur'), (2, E'it''s \\\\'), (3, NULL)")
	c.on("shard-0", rows)
	c.on("shard-1", epoch("INSERT INTO currencies VALUES (1, 'eur'), (2, 'old'), (4, 'more')"))
	want := c.rowsOf("shard-0")

	found, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta})
	if err != nil {
		t.Fatal(err)
	}
	if f := ofTable(found); len(f) != 1 || f[0].Level != LevelError || f[0].Shard != "shard-1" || f[0].Next != "cleave doctor --repair" {
		t.Fatalf("findings %+v", f)
	}
	if found, err = c.ops.Doctor(ctx, DoctorRequest{Meta: meta, Repair: true}); err != nil {
		t.Fatal(err)
	}
	if f := ofTable(found); len(f) != 1 || f[0].Done == "" {
		t.Fatalf("findings of the repair %+v", f)
	}
	if got := c.rowsOf("shard-1"); got != want {
		t.Errorf("shard-1 has %q, want %q", got, want)
	}
	if found, err = c.ops.Doctor(ctx, DoctorRequest{Meta: meta}); err != nil || len(ofTable(found)) != 0 {
		t.Errorf("after the repair: %+v, %v", ofTable(found), err)
	}

	// A shard that is added has the rows before it is in the map, and all guards are
	// those of the new set of shards.
	if _, err := c.ops.AddShard(ctx, AddShardRequest{Meta: meta, Name: "shard-2", URL: pgtest.Database(t)}); err != nil {
		t.Fatal(err)
	}
	if got := c.rowsOf("shard-2"); got != want {
		t.Errorf("shard-2 has %q, want %q", got, want)
	}
	old := snap
	if snap, err = c.dir.Load(ctx); err != nil {
		t.Fatal(err)
	}
	if snap.CopiesEpoch() == old.CopiesEpoch() {
		t.Error("the epoch did not change with the shards")
	}
	for _, s := range []string{"shard-0", "shard-1", "shard-2"} {
		c.on(s, epoch("UPDATE currencies SET name = 'new' WHERE id = 1"))
		c.on(s, epoch("TRUNCATE currencies"))
	}
	if _, err := c.ops.RemoveShard(ctx, RemoveShardRequest{Meta: meta, Name: "shard-2"}); err != nil {
		t.Fatal(err)
	}
	if snap, err = c.dir.Load(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"shard-0", "shard-1"} {
		c.on(s, epoch("INSERT INTO currencies VALUES (7, 'seven')"))
	}
}

func ofTable(found []Finding) (out []Finding) {
	for _, f := range found {
		if f.Table != "" {
			out = append(out, f)
		}
	}
	return out
}
