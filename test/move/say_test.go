package move

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestDrainAndReversals: a drain that waits until a move can no longer be reversed says so, and can complete it.
func TestDrainAndReversals(t *testing.T) {
	testrun.Long(t, "moves, drains and reversals one after the other; TestLostReversal ends one")
	ctx := context.Background()
	c := start(t, "sqlite", "sqlite")
	c.bank(100)
	c.await(c.move(admin.MoveRequest{ID: "kept", Keyspace: "bank", Range: ":0", To: "s1"}), "opened")
	finish := admin.WorkflowRequest{Meta: admin.Meta{DryRun: true}, ID: "kept"}
	if w, err := c.rooms.Ops.Complete(ctx, finish); err != nil || w.Step != "opened" || !strings.Contains(strings.Join(w.Plan, "\n"), "delete the rows of (,0) of keyspace bank on s0") {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := c.rooms.Ops.Reverse(ctx, finish); err != nil || w.Step != "opened" || !strings.Contains(strings.Join(w.Plan, "\n"), "make s0 the owner again") {
		t.Errorf("%+v, %v", w, err)
	}
	c.touched()
	if _, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{ID: "waits", Shard: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the drain says what it waits for", func() bool {
		list, err := c.rooms.Ops.Moves(ctx, "waits")
		return err == nil && strings.Contains(list[0].Error, "can be reversed until") && strings.Contains(list[0].Error, "cleave complete kept")
	})
	if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: "waits"}); err != nil {
		t.Fatal(err)
	}
	c.exec(`SELECT cleave.drain('s1', id => 'ends', finish => true, keep => '0')`) // complete's old name
	c.await("ends", "done")
	c.await("kept", "done")
	for _, name := range []string{"complete", "finish"} { // the second is the old name
		c.exec(`SELECT cleave.` + name + `('kept')`)
	}
	c.await(c.move(admin.MoveRequest{ID: "back", Keyspace: "bank", Range: ":0", To: "s1"}), "opened")
	for _, name := range []string{"rollback", "reverse"} {
		c.exec(`SELECT cleave.` + name + `('back')`)
		c.await("back", "rolled back")
	}
	if n := c.onShard("s1", `SELECT count(*) FROM bulk`); n != "0" {
		t.Errorf("%s rows are left", n)
	}
	// A key that is on the shard already is pinned there, and the move is found by its id.
	for range 2 {
		res, err := c.rooms.Ops.Move(ctx, admin.MoveRequest{ID: "stays", Keyspace: "bank", Key: []string{"7"}, To: "s0"})
		if err != nil || !res.Done || res.Workflow == nil || res.Workflow.Step != "done" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if pins, err := c.rooms.Ops.Pins(ctx, "bank"); err != nil || len(pins) != 1 || pins[0].Shard != "s0" {
		t.Errorf("%v %v", pins, err)
	}
	// The same id with other arguments is another command.
	other := func(what string, err error, names ...string) {
		t.Helper()
		if sqlstate.CodeOf(err) != sqlstate.DuplicateObject || sqlstate.As(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
		for _, name := range names {
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v does not name %q", what, err, name)
			}
		}
	}
	_, err := c.rooms.Ops.Move(ctx, admin.MoveRequest{ID: "stays", Keyspace: "bank", Key: []string{"8"}, To: "s1", MoveOptions: admin.MoveOptions{Keep: "1h"}})
	other("move", err, "key was", "to was s0, is s1 now", "keep was 24h0m0s, is 1h0m0s now")
	_, err = c.rooms.Ops.Drain(ctx, admin.DrainRequest{ID: "stays", Shard: "s1"})
	other("a drain with the id of a move", err, "is a move, not a drain")
	_, err = c.rooms.Ops.Drain(ctx, admin.DrainRequest{ID: "ends", Shard: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}})
	other("drain", err, "shard was s1, is s0 now", "complete was true, is not given now")
	if _, err = c.rooms.Ops.Split(ctx, admin.SplitRequest{ID: "cut", Keyspace: "bank", At: []string{"00100"}}); err != nil {
		t.Fatal(err)
	}
	c.await("cut", "done")
	if _, err = c.rooms.Ops.Split(ctx, admin.SplitRequest{ID: "cut", Keyspace: "bank", At: []string{"100"}}); err != nil {
		t.Error(err)
	}
	_, err = c.rooms.Ops.Split(ctx, admin.SplitRequest{ID: "cut", Keyspace: "bank", At: []string{"200"}})
	other("split", err, "at was 100, is 200 now")
	_, err = c.rooms.Ops.Split(ctx, admin.SplitRequest{ID: "cut", Keyspace: "bank", Range: ":0"})
	other("split in halves", err, "at was 100, is not given now", "half was not given, is positions now")
	// A move that has been asked for and not begun has its part: a drain waits for it, and says so.
	window := time.Now().UTC().AddDate(0, 0, 3).Weekday().String()[:3] + " 00:00-01:00 UTC"
	c.move(admin.MoveRequest{ID: "later", Keyspace: "bank", Range: ":", To: "s1", MoveOptions: admin.MoveOptions{Window: window}})
	drain := admin.DrainRequest{Meta: admin.Meta{DryRun: true}, ID: "patient", Shard: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}}
	res, err := c.rooms.Ops.Drain(ctx, drain)
	if err != nil || !strings.Contains(strings.Join(res.Plan, "\n"), "wait for move later") {
		t.Errorf("%+v, %v", res, err)
	}
	drain.DryRun = false
	for range 2 {
		if _, err = c.rooms.Ops.Drain(ctx, drain); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the drain says what it waits for", func() bool {
		list, err := c.rooms.Ops.Moves(ctx, "patient")
		return err == nil && strings.Contains(list[0].Error, "is being moved from s0 to s1 by later") && strings.Contains(list[0].Error, "cleave cancel later")
	})
	// Meanwhile nobody else decides where everything is to be.
	beside := func(what string, err error) {
		t.Helper()
		if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "patient") || !strings.Contains(sqlstate.As(err).Hint, "cleave cancel patient") {
			t.Errorf("%s beside a drain: %v", what, err)
		}
	}
	_, err = c.rooms.Ops.Plan(ctx, admin.PlanRequest{Keyspace: "bank"})
	beside("a plan", err)
	_, err = c.rooms.Ops.Spread(ctx, admin.SpreadRequest{})
	beside("a spread", err)
	_, err = c.rooms.Ops.Drain(ctx, admin.DrainRequest{Shard: "s1"})
	beside("a drain", err)
	w, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{Meta: admin.Meta{DryRun: true}, ID: "later"})
	if err != nil || w.Step != "planned" || len(w.Plan) == 0 {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: "later"}); err != nil {
		t.Fatal(err)
	}
	c.await("patient", "done")
	if n := c.onShard("s0", `SELECT count(*) FROM bulk`); n != "0" {
		t.Errorf("%s rows are left", n)
	}
	c.clean()
}

// TestMoveNamesWhoIsWaitedFor: a move that cannot begin because of a long statement says on which router.
func TestMoveNamesWhoIsWaitedFor(t *testing.T) {
	testrun.Short(t)
	ctx := context.Background()
	c := start(t, "postgres", "sqlite")
	c.bank(10)
	// What PostgreSQL needs of a table without a key can be said through the router, in a mixed cluster too.
	c.exec(`CREATE TABLE bare (tenant bigint NOT NULL, v text) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`, `ALTER TABLE bare REPLICA IDENTITY FULL`,
		`INSERT INTO bare SELECT n % 40, 'x' FROM generate_series(1, 80) n`)
	conn := c.connect()
	long, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(long, fmt.Sprintf(`SELECT pg_sleep(60) FROM account WHERE tenant = %d LIMIT 1`, 7))
		ended <- err
	}()
	c.eventually("the statement runs", func() bool {
		return c.onShard("s0", `SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(60)%'`) != "0"
	})
	c.move(admin.MoveRequest{ID: "waits", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
	c.noted("waits", "preparing", "waits for router test on here")
	stop()
	if err := <-ended; err == nil {
		t.Error("it was not cancelled")
	}
	c.await("waits", "done")
	if n := c.number(`SELECT count(*) FROM bare`); n != 80 {
		t.Errorf("%d rows", n)
	}
	c.clean()
}

// touched fails unless statements on several shards are counted for the ranges that they touch.
func (c *target) touched() {
	c.t.Helper()
	ctx := context.Background()
	conn := c.connect()
	defer conn.Close(ctx)
	of := map[bool]string{} // a key, by whether it is in the lower of two equal ranges
	for n := int64(0); len(of) < 2; n++ {
		of[keyspace.HashKey(keyspace.DefaultSeed, keyspace.Key{keyspace.Int(keyspace.Int8, n)}) < 0] = fmt.Sprint(n)
	}
	both := of[true] + `, ` + of[false]
	for i, sql := range []string{
		`SELECT count(*) FROM %s`, `SELECT count(*) FROM %s WHERE tenant IN (` + both + `)`, `UPDATE %s SET body = 'y'`, `SELECT a.n FROM %[1]s a JOIN %[1]s b ON a.n = b.tenant`,
		`INSERT INTO %s VALUES (` + of[true] + `, 1, 'x'), (` + of[false] + `, 1, 'x')`, `INSERT INTO %s SELECT tenant, n, 'x' FROM bulk`, `COPY %s FROM STDIN`, `COPY %s TO STDOUT`,
	} {
		// Each in a keyspace of its own, of which no load is known.
		name := fmt.Sprintf("load%d", i)
		c.exec(fmt.Sprintf(`SELECT cleave.create_keyspace('%s', 'hash', 'bigint', ranges => 2)`, name),
			fmt.Sprintf(`CREATE TABLE %[1]s (tenant bigint NOT NULL, n int NOT NULL, body text, PRIMARY KEY (tenant, n)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = '%[1]s')`, name))
		sql = fmt.Sprintf(sql, name)
		var err error
		switch {
		case strings.HasSuffix(sql, "STDIN"):
			var rows strings.Builder
			for n := range 100 {
				fmt.Fprintf(&rows, "%s\t%d\tx\n%s\t%d\tx\n", of[true], n, of[false], n)
			}
			_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader(rows.String()), sql)
		case strings.HasSuffix(sql, "STDOUT"):
			_, err = conn.PgConn().CopyTo(ctx, io.Discard, sql)
		default:
			_, err = conn.Exec(ctx, sql)
		}
		if err != nil {
			c.t.Fatalf("%s: %v", sql, err)
		}
		snap, statements, _, _ := c.rooms.Executor.Load()
		ix, _ := snap.Keyspace(name)
		if n := statements[ix.FirstUnit():][:2]; n[0] == 0 || n[1] == 0 {
			c.t.Errorf("%s is counted as %v statements a second", sql, n)
		}
		c.exec(`DROP TABLE ` + name)
	}
}
