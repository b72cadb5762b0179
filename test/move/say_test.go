package move

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
)

// TestDrainAndWaysBack: a drain that waits for the way back of a move says so, and can end it.
func TestDrainAndWaysBack(t *testing.T) {
	ctx := context.Background()
	c := start(t, "sqlite", "sqlite")
	c.bank(100)
	c.await(c.move(admin.MoveRequest{ID: "kept", Keyspace: "bank", Range: ":0", To: "s1"}), "opened")
	if _, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{ID: "waits", Shard: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the drain says what it waits for", func() bool {
		list, err := c.rooms.Ops.Moves(ctx, "waits")
		return err == nil && strings.Contains(list[0].Error, "the way back of") && strings.Contains(list[0].Error, "cleave finish kept")
	})
	if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: "waits"}); err != nil {
		t.Fatal(err)
	}
	c.exec(`SELECT cleave.drain('s1', id => 'ends', finish => true, keep => '0')`)
	c.await("ends", "done")
	c.await("kept", "done")
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
	c.clean()
}

// TestMoveNamesWhoIsWaitedFor: a move that cannot begin because of a long statement says on which router.
func TestMoveNamesWhoIsWaitedFor(t *testing.T) {
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
