package move

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// files is a bank on two SQLite files, each of which has one writer at a time. The part has
// gone from s0 to s1, and can come back: s0 is the target then. It returns a tenant of s0 and one
// of the part. A way back needs s0's file only for what changes in the part.
func files(t *testing.T) (c *target, there, part string) {
	c = start(t, "sqlite", "sqlite")
	c.bank(0)
	// Unverified, since a verification would write to the target too.
	c.moveAs("part", workflow.Options{Unverified: true})
	c.await("part", "opened")
	part = c.onShard("s1", `SELECT min(tenant) FROM account`)
	c.exec(`UPDATE account SET note = 'back' WHERE id = 2 AND tenant = ` + part)
	for end := time.Now().Add(patience); c.onShard("s0", `SELECT count(*) FROM account WHERE note = 'back'`) != "1"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the way back is not open")
		}
	}
	return c, c.onShard("s0", `SELECT min(tenant) FROM account WHERE tenant NOT IN (`+c.onShard("s1", `SELECT string_agg(tenant::text, ', ') FROM account`)+`)`), part
}

// moveAs moves the positions from 0 on to s1, with options that operators do not have.
func (c *target) moveAs(id string, o workflow.Options) {
	c.t.Helper()
	state := workflow.New(workflow.Spec{ID: id, Kind: workflow.Move, Keyspace: "bank", Part: shardmap.Part{Low: []string{"0"}}, From: "s0", To: "s1", By: "test",
		Options: o.WithDefaults()}, time.Now().UnixMilli())
	record, err := state.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.dir.PutRecord(context.Background(), workflow.RecordPrefix+id, record, 0); err != nil {
		c.t.Fatal(err)
	}
	if err := coordinator.Kick(context.Background(), c.dir); err != nil {
		c.t.Fatal(err)
	}
}

func (c *target) back() {
	c.t.Helper()
	if _, err := c.rooms.Ops.Rollback(context.Background(), admin.WorkflowRequest{ID: "part"}); err != nil {
		c.t.Fatal(err)
	}
}

// begun is a transaction with one update.
func (c *target) begun(tenant string) *pgx.Conn {
	c.t.Helper()
	conn := c.connect()
	for _, sql := range []string{"BEGIN", update(tenant)} {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			c.t.Fatalf("%s: %v", sql, err)
		}
	}
	return conn
}

func update(tenant string) string {
	return `UPDATE account SET note = 'y' WHERE id = 1 AND tenant = ` + tenant
}

// later runs statements and tells how that ended.
func later(conn *pgx.Conn, list ...string) chan error {
	done := make(chan error, 1)
	go func() {
		for _, sql := range list {
			if _, err := conn.Exec(context.Background(), sql); err != nil {
				done <- fmt.Errorf("%s: %w", sql, err)
				return
			}
		}
		done <- nil
	}()
	return done
}

func (c *target) ends(what string, done chan error) {
	c.t.Helper()
	select {
	case err := <-done:
		if err != nil {
			c.t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		c.t.Errorf("%s does not end", what)
	}
}

// held waits until the part is held.
func (c *target) held() {
	c.t.Helper()
	for end := time.Now().Add(patience); !c.rooms.Executor.Snapshot().Holding(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatal("nothing is held")
		}
	}
}

// TestWhoWroteOnTheTarget: transactions that have the target's file for themselves, or want
// to, and need the part then, get their answers.
func TestWhoWroteOnTheTarget(t *testing.T) {
	c, there, part := files(t)
	before := c.begun(there)
	c.back()
	c.held()
	// One from before the hold goes on to the old owner; the cutover waits for it.
	c.ends("the one from before", later(before, update(part)))
	// One that comes later takes the file only when the cutover is over.
	after := later(c.connect(), "BEGIN", update(there), update(part), "COMMIT")
	// Statements of their own do not wait: not for the cutover, that is.
	c.ends("a reader", later(c.connect(), `SELECT count(*) FROM account WHERE tenant = `+there))
	c.ends("COMMIT", later(before, "COMMIT"))
	c.ends("the one that came later", after)
	c.history(c.await("part", "rolled back"))
	for _, tenant := range []string{there, part} {
		if got := c.onShard("s0", `SELECT note FROM account WHERE id = 1 AND tenant = `+tenant); got != "y" {
			t.Errorf("tenant %s has %q on s0", tenant, got)
		}
	}
	c.clean()
}

// TestATargetThatIsBusy: somebody who is no router's has the target's file for longer than
// statements wait. The cutover is taken back, also when it was about to open the target, so
// that they get their answers; then it is tried again.
func TestATargetThatIsBusy(t *testing.T) {
	c, there, part := files(t)
	first := c.connect() // keeps the cutover from going on
	c.ends("the first", later(first, "BEGIN", `SELECT count(*) FROM account WHERE tenant = `+part))
	c.back()
	c.held()
	sh, err := c.rooms.Executor.Shard("s0")
	if err != nil {
		t.Fatal(err)
	}
	busy, err := sh.Connect(context.Background(), map[string]string{"client_encoding": "UTF8"})
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, sql := range []string{"BEGIN", update(there)} {
		if _, err := engine.Exec(busy, sql); err != nil {
			t.Fatal(err)
		}
	}
	waits := later(c.connect(), update(part))
	c.ends("the first", later(first, "ROLLBACK"))
	c.ends("a statement in the part", waits)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		list, err := c.rooms.Ops.Moves(context.Background(), "part")
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, l := range list[0].History {
			text += l.Step + ": " + l.What + "\n"
		}
		if strings.Contains(text, "reopening: open target") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the opening is not taken back:\n%s", text)
		}
	}
	c.ends("another statement in the part", later(c.connect(), update(part)))
	if _, err := engine.Exec(busy, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	c.history(c.await("part", "rolled back"))
	if got := c.onShard("s0", `SELECT note FROM account WHERE id = 1 AND tenant = `+part); got != "y" {
		t.Errorf("the write to the part is not there: %q", got)
	}
	c.clean()
}

// TestTransfersBetweenTheFiles: clients write on the target and then in the part, all the
// time, while the part goes there, comes back and goes again: none of them fails.
func TestTransfersBetweenTheFiles(t *testing.T) {
	c, there, part := files(t)
	c.back()
	c.await("part", "rolled back")
	ctx, stop := context.WithCancel(context.Background())
	var did atomic.Int64
	var clients sync.WaitGroup
	failed := make(chan error, 8)
	for i := range 3 {
		clients.Go(func() {
			conn, err := pgx.Connect(context.Background(), c.url)
			if err != nil {
				failed <- err
				return
			}
			defer conn.Close(context.Background())
			for ctx.Err() == nil {
				err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
					for n, tenant := range []string{there, part} {
						if _, err := tx.Exec(context.Background(), fmt.Sprintf(`UPDATE account SET balance = balance + %d WHERE id = %d AND tenant = %s`, 2*n-1, i, tenant)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					failed <- err
					return
				}
				did.Add(1)
			}
		})
	}
	id := c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: "0:", To: "s1"})
	c.await(id, "opened")
	if _, err := c.rooms.Ops.Rollback(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	c.history(c.await(id, "rolled back"))
	c.history(c.await(c.move(admin.MoveRequest{ID: "again", Keyspace: "bank", Range: "0:", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done"))
	stop()
	clients.Wait()
	close(failed)
	for err := range failed {
		t.Errorf("a transfer failed: %v", err)
	}
	if n := c.number(`SELECT sum(balance)::bigint FROM account`); n != tenants*accounts*balance {
		t.Errorf("the sum is %d", n)
	}
	if n := c.number(`SELECT sum(balance)::bigint FROM account WHERE tenant = ` + part); n != accounts*balance+did.Load() {
		t.Errorf("%d transfers were answered, the sum of the tenant is %d", did.Load(), n)
	}
	t.Logf("%d transfers", did.Load())
	c.clean()
}
