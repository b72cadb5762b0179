package admin

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
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

// lostAnswers is a directory whose answer to the addition of a shard is lost; stored: the change has arrived.
type lostAnswers struct {
	shardmap.Directory
	stored bool
}

func (d *lostAnswers) Update(ctx context.Context, change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	if change.Op != "shard_add" {
		return d.Directory.Update(ctx, change, next)
	}
	if d.stored {
		if _, err := d.Directory.Update(ctx, change, next); err != nil {
			return nil, err
		}
	}
	return nil, sqlstate.New(sqlstate.TransactionUnknown, "the answer was lost")
}

// TestCopiesWhateverDies: a shard comes and goes, and dies or is repaired by somebody else at each of the moments at which
// guards and map are not of the same set of shards. Nobody writes to a reference table by a set that lacks a shard of the map.
func TestCopiesWhateverDies(t *testing.T) {
	testrun.Long(t, "a shard dies at each of many moments; TestCopiesOfReferenceTables has none that dies")
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl("CREATE TABLE currencies (id int PRIMARY KEY, name text, twice int GENERATED ALWAYS AS (id * 2) STORED) WITH (cleave.reference = true)")
	add := AddShardRequest{Meta: meta, Name: "shard-2", URL: pgtest.Database(t)}
	remove := RemoveShardRequest{Meta: meta, Name: "shard-2"}
	two := c.snap()
	rows := 0
	// write is a router with a map: the default shard first, then all others that it knows.
	write := func(by *shardmap.Snapshot) error {
		rows++
		for _, s := range by.Shards() {
			conn, release, err := c.ops.connect(ctx, s.Name)
			if err != nil {
				return err
			}
			_, err = engine.Exec(conn, "BEGIN; SET LOCAL cleave.guard_epoch = '"+strconv.FormatUint(by.CopiesEpoch(), 10)+"'; INSERT INTO currencies VALUES ("+strconv.Itoa(rows)+", 'x'); COMMIT")
			release(true)
			if err != nil {
				return err
			}
		}
		return nil
	}
	writes := func(when string, by *shardmap.Snapshot, ok bool) {
		t.Helper()
		if err := write(by); ok && err != nil || !ok && sqlstate.CodeOf(err) != sqlstate.NotOwner {
			t.Errorf("%s: a write by %d shards gives %v", when, len(by.Shards()), err)
		}
	}
	// whole recovers and compares everything.
	whole := func(when string, by *shardmap.Snapshot) {
		t.Helper()
		if _, err := c.ops.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		found, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta})
		if err != nil || len(ofTable(found)) > 0 {
			t.Errorf("%s: after recovery %+v, %v", when, ofTable(found), err)
		}
		writes(when+", recovered", by, true)
		want := c.rowsOf("shard-0")
		for _, s := range c.snap().Shards() {
			if got := c.rowsOf(s.Name); got != want {
				t.Errorf("%s: %s has %s, not %s", when, s.Name, got, want)
			}
		}
	}
	errStop := errors.New("it dies")
	at := func(step string, f func() error) {
		c.ops.opts.step = func(is, _ string) error {
			if is != step {
				return nil
			}
			c.ops.opts.step = nil
			return f()
		}
	}
	dies := func() error { return errStop }

	at("guarded", dies)
	if _, err := c.ops.AddShard(ctx, add); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	writes("added, before the map", two, false)
	was := c.snap().Version()
	whole("added, before the map", two)
	if c.snap().Version() == was {
		t.Error("guards that were ahead of the map were set back without a fence")
	}

	// Somebody repairs while it is only slow, and clients go on by the old map.
	at("guarded", func() error {
		if _, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta, Repair: true}); err != nil {
			return err
		}
		return write(two)
	})
	if _, err := c.ops.AddShard(ctx, add); err != nil {
		t.Fatal(err)
	}
	three := c.snap()
	writes("repaired meanwhile", two, false)
	whole("repaired meanwhile", three)

	// What is prepared on a shard is ended before it leaves, and then it takes nothing by the map that it was in.
	c.urls["shard-2"] = add.URL
	prepare := func() {
		c.query("shard-2", "BEGIN; LOCK TABLE currencies IN ROW EXCLUSIVE MODE; PREPARE TRANSACTION 'cleave_"+strings.ReplaceAll(three.State().Cluster, "-", "")[:8]+"_0123456789abcdef0000000000000001_1_shard-0'")
	}
	prepare()
	at("mapped", dies)
	if _, err := c.ops.RemoveShard(ctx, remove); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	if n := c.query("shard-2", "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"); n != "0" {
		t.Errorf("%s transactions are prepared on a shard that has left the map", n)
	}
	if _, err := c.try("shard-2", "BEGIN; SET LOCAL cleave.guard_epoch = '"+strconv.FormatUint(three.CopiesEpoch(), 10)+"'; INSERT INTO currencies VALUES (-1, 'x'); COMMIT"); sqlstate.CodeOf(err) != sqlstate.NotOwner {
		t.Errorf("a shard that has left the map takes a row: %v", err)
	}
	prepare() // by somebody who still has the former map; it is ended when the database comes back
	writes("removed, after the map", two, false)
	whole("removed, after the map", two)

	c.ops.opts.Directory = &lostAnswers{Directory: c.dir}
	if _, err := c.ops.AddShard(ctx, add); sqlstate.CodeOf(err) != sqlstate.TransactionUnknown {
		t.Fatal(err)
	}
	c.ops.opts.Directory = c.dir
	writes("added, lost on the way", two, true)
	whole("added, lost on the way", two)

	at("mapped", dies)
	if _, err := c.ops.AddShard(ctx, add); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	writes("added, after the map", two, false)
	writes("added, after the map, by the map that had an earlier shard of its name", three, false)
	three = c.snap()
	writes("added, after the map", three, true)
	whole("added, after the map", three)

	// Its guards refuse before the map changes. Recovery sets them back, if the map does not change.
	at("held", dies)
	if _, err := c.ops.RemoveShard(ctx, remove); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	if _, err := c.try("shard-2", "BEGIN; SET LOCAL cleave.guard_epoch = '"+strconv.FormatUint(three.CopiesEpoch(), 10)+"'; INSERT INTO currencies VALUES (-1, 'x'); COMMIT"); sqlstate.CodeOf(err) != sqlstate.NotOwner {
		t.Errorf("a shard that is about to leave takes a row: %v", err)
	}
	whole("removed, before the map", three)
	// Another change of the map comes in between, so that it begins again.
	at("held", func() error { return schema.Fence(ctx, c.dir, "test", c.snap()) })
	if _, err := c.ops.RemoveShard(ctx, remove); err != nil {
		t.Fatal(err)
	}
	c.ops.opts.Directory = &lostAnswers{Directory: c.dir, stored: true}
	if res, err := c.ops.AddShard(ctx, add); err != nil || !res.Done {
		t.Fatal(res, err)
	}
	c.ops.opts.Directory = c.dir
	whole("added, without an answer", c.snap())
}
