package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// kinds are the pairs of engines that rows go between.
var kinds = map[string][]string{
	"postgres": {"postgres", "postgres"},
	"sqlite":   {"sqlite", "sqlite"},
}

// forKinds runs a test on each pair of engines. The short run has it on one of them at most: engine/enginetest proves for each
// engine the same of what the coordinator asks of it.
func forKinds(t *testing.T, inShort string, test func(t *testing.T, c *target)) {
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) {
			if name == inShort {
				testrun.Short(t)
			} else {
				testrun.Long(t, "the short run has such moves on the other engine, if anywhere")
			}
			test(t, start(t, engines...))
		})
	}
}

func (c *target) move(req admin.MoveRequest) string {
	c.t.Helper()
	req.By = "test"
	if req.MaxLatency == "" { // what leaves others room takes time; TestPace has it
		req.MaxLatency = "off"
	}
	res, err := c.rooms.Ops.Move(context.Background(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.Workflow.ID
}

func (c *target) history(w admin.WorkflowInfo) {
	c.t.Helper()
	for _, l := range w.History {
		c.t.Log(l.At.Format("15:04:05.000"), l.Step, "|", l.What)
	}
}

// TestMoveUnderLoad: half of the keys go to the other shard while clients are at work, are
// the other's, come back by a reversal, go again and stay.
func TestMoveUnderLoad(t *testing.T) {
	forKinds(t, "postgres", func(t *testing.T, c *target) {
		c.bank(4000)
		l := c.workAt(4, 0)
		id := c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: ":0", To: "s1"})
		w := c.await(id, "opened")
		c.history(w)
		t.Logf("statements were held for %d ms", w.HeldMS)
		time.Sleep(300 * time.Millisecond)
		if _, err := c.rooms.Ops.Reverse(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		c.history(c.await(id, "rolled back"))
		id = c.move(admin.MoveRequest{ID: "second", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
		c.history(c.await(id, "done"))
		l.end()
		if l.failed.Load() > 0 {
			t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
		}
		if n := c.number(`SELECT count(*) FROM bulk`); n != 4000 {
			t.Errorf("%d rows", n)
		}
		for _, s := range []string{"s0", "s1"} {
			if n := c.onShard(s, `SELECT count(*) FROM bulk`); n == "0" || n == "4000" {
				t.Errorf("%s has %s rows", s, n)
			}
		}
		c.clean()
	})
}

// TestLeftovers: captures that no workflow needs are reported by doctor and removed by the
// coordinator; rows that a shard does not own are found by verify.
func TestLeftovers(t *testing.T) {
	forKinds(t, "postgres", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(100)
		sh, err := c.rooms.Executor.Shard("s0")
		if err != nil {
			t.Fatal(err)
		}
		m := sh.(engine.Movable).Mover(1 << 40)
		snap := c.rooms.Executor.Snapshot()
		tables, _ := coordinator.Tables(snap, "bank")
		if tables, err = m.Describe(ctx, tables); err != nil {
			t.Fatal(err)
		}
		if _, err := m.CaptureChanges(ctx, "gone_f", engine.Set{Tables: tables, Keys: snap.Keys("bank", shardmap.Part{Low: []string{"0"}})}); err != nil {
			t.Fatal(err)
		}
		found, err := c.rooms.Ops.Doctor(ctx, admin.DoctorRequest{})
		if err != nil || !slices.ContainsFunc(found, func(f admin.Finding) bool { return f.Shard == "s0" && strings.Contains(f.What, "gone_f") }) {
			t.Errorf("doctor does not see it: %v %v", found, err)
		}
		if err := m.Release(ctx, "gone_f"); err != nil {
			t.Fatal(err)
		}
		list, err := c.rooms.Ops.Verify(ctx, admin.VerifyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		rows := int64(0)
		for _, v := range list {
			if v.Error != "" || v.Orphans != 0 || v.Strangers != 0 {
				t.Errorf("%+v", v)
			}
			if v.Table == "public.account" {
				rows += v.Rows
			}
		}
		if rows != tenants*accounts {
			t.Errorf("%d accounts: %+v", rows, list)
		}
	})
}

// TestPinMovesRows: a key that is pinned elsewhere takes its rows with it, and back when it is
// unpinned, while clients are at work.
func TestPinMovesRows(t *testing.T) {
	forKinds(t, "sqlite", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(400)
		l := c.work(2)
		count := func(shard string) string {
			return c.onShard(shard, `SELECT count(*) FROM account WHERE tenant = 7`)
		}
		idle := func() {
			t.Helper()
			list, err := c.rooms.Ops.Moves(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			c.await(list[0].ID, "done")
		}
		if _, err := c.rooms.Ops.Pin(ctx, admin.PinRequest{Keyspace: "bank", Key: []string{"7"}, Shard: "s1"}); err != nil {
			t.Fatal(err)
		}
		idle()
		if count("s0") != "0" || count("s1") != "5" {
			t.Errorf("the rows are elsewhere: %s, %s", count("s0"), count("s1"))
		}
		if _, err := c.rooms.Ops.Unpin(ctx, admin.UnpinRequest{Keyspace: "bank", Key: []string{"7"}}); err != nil {
			t.Fatal(err)
		}
		idle()
		if count("s0") != "5" || count("s1") != "0" {
			t.Errorf("the rows are elsewhere: %s, %s", count("s0"), count("s1"))
		}
		if pins, err := c.rooms.Ops.Pins(ctx, "bank"); err != nil || len(pins) > 0 {
			t.Errorf("%v %v", pins, err)
		}
		l.end()
		if l.failed.Load() > 0 {
			t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
		}
		c.clean()
	})
}

// TestDrainAndMerge: everything leaves a shard, and ranges become one again.
func TestDrainAndMerge(t *testing.T) {
	testrun.Long(t, "a dozen workflows one after the other; the short run has most of them apart")
	forKinds(t, "", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(400)
		c.exec(`SELECT cleave.create_keyspace('bare', 'hash', 'bigint', ranges => 1, shards => ARRAY['s0'])`, // no table is in it
			`CREATE SCHEMA "Odd S"`,
			`CREATE TABLE "Odd S"."we""ird täble" ("the Key" bigint, "sel ect" text, "ü" int DEFAULT 3, PRIMARY KEY ("the Key", "sel ect")) WITH (cleave.shard_key = '"the Key"', cleave.keyspace = 'bank')`,
			`INSERT INTO "Odd S"."we""ird täble" SELECT n, E'\\''"' || n FROM generate_series(1, 40) AS n`)
		l := c.work(2)
		for _, at := range []string{"0", "1000000"} {
			res, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{Keyspace: "bank", At: []string{at}})
			if err != nil {
				t.Fatal(err)
			}
			c.await(res.Workflow.ID, "done")
		}
		res, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{Shard: "s0"})
		if err != nil {
			t.Fatal(err)
		}
		c.await(res.Workflow.ID, "done")
		for _, table := range []string{"account", "entry", "bulk"} {
			if n := c.onShard("s0", `SELECT count(*) FROM `+table); n != "0" {
				t.Errorf("%s has %s rows on the drained shard", table, n)
			}
		}
		kept := c.move(admin.MoveRequest{Keyspace: "bank", Range: "0:1000000", To: "s0", MoveOptions: admin.MoveOptions{Keep: "1h"}})
		c.await(kept, "opened")
		for _, at := range []string{"0", "1000000"} { // its bounds stay as long as it can come back
			if _, err := c.rooms.Ops.Merge(ctx, admin.MergeRequest{Keyspace: "bank", At: []string{at}}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), kept) {
				t.Errorf("merge beside a move that can be reversed: %v", err)
			}
		}
		bare := c.move(admin.MoveRequest{Keyspace: "bare", Range: ":", To: "s0", MoveOptions: admin.MoveOptions{Keep: "1h"}})
		c.await(bare, "opened")
		drop := func(name, code string) {
			t.Helper()
			conn, err := pgx.Connect(ctx, c.url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(ctx)
			if _, err := conn.Exec(ctx, `SELECT cleave.drop_keyspace('`+name+`')`); code == "" && err != nil || code != "" && !strings.Contains(fmt.Sprint(err), "SQLSTATE "+code) {
				t.Errorf("keyspace %s is dropped: %v", name, err)
			}
		}
		drop("bare", "55006")
		drop("bank", "2BP01")
		for _, id := range []string{kept, bare} {
			if _, err := c.rooms.Ops.Complete(ctx, admin.WorkflowRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
			c.await(id, "done")
		}
		if ranges, err := c.rooms.Ops.Ranges(ctx, "bare"); err != nil || len(ranges) != 1 || ranges[0].Shard != "s0" {
			t.Errorf("%v %v", ranges, err)
		}
		drop("bare", "")
		drop("bare", "42704")
		if res, err = c.rooms.Ops.Merge(ctx, admin.MergeRequest{Keyspace: "bank", At: []string{"0"}}); err != nil {
			t.Fatal(err)
		}
		c.await(res.Workflow.ID, "done")
		if res, err = c.rooms.Ops.Merge(ctx, admin.MergeRequest{Keyspace: "bank", At: []string{"1000000"}}); err != nil {
			t.Fatal(err)
		}
		c.await(res.Workflow.ID, "done")
		if ranges, err := c.rooms.Ops.Ranges(ctx, "bank"); err != nil || len(ranges) != 1 || ranges[0].Shard != "s1" {
			t.Errorf("%v %v", ranges, err)
		}
		if n := c.number(`SELECT sum("the Key" * "ü" + length("sel ect"))::bigint FROM "Odd S"."we""ird täble"`); n != 820*3+191 {
			t.Errorf("the table of odd names: %d", n)
		}
		l.end()
		if l.failed.Load() > 0 {
			t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
		}
		c.clean()
	})
}
