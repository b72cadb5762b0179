package move

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// files is a bank on two SQLite files, each of which has one writer at a time. The part has
// gone from s0 to s1, and can come back: s0 is the target then. It returns a tenant of s0 and one
// of the part. A reversal needs s0's file only for what changes in the part.
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
			t.Fatal("the reversal is not open")
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
	if _, err := c.rooms.Ops.Reverse(context.Background(), admin.WorkflowRequest{ID: "part"}); err != nil {
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
	testrun.Short(t)
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
	testrun.Long(t, "statements have to wait for as long as they may; TestWhoWroteOnTheTarget has those that need not")
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

// TestTransfersBetweenTheFiles: clients write to both files in each transaction, all the
// time, while the part goes there, comes back and goes again, and while shards are added and removed, which takes
// the locks of all files together: none of them fails.
func TestTransfersBetweenTheFiles(t *testing.T) {
	testrun.Long(t, "four moves and shards that come and go under load; TestWhoWroteOnTheTarget has the order of locks")
	c, there, part := files(t)
	c.back()
	c.await("part", "rolled back")
	ctx, stop := context.WithCancel(context.Background())
	var did, rings atomic.Int64
	// partFirst is the order that is not the operations' own, which take the default shard's file first. It is changed under order's lock.
	var partFirst, mayRing atomic.Bool
	var order sync.RWMutex
	var clients sync.WaitGroup
	failed := make(chan error, 8)
	client := func(f func(conn *pgx.Conn) error) {
		conn, err := pgx.Connect(context.Background(), c.url)
		if err != nil {
			failed <- err
			return
		}
		defer conn.Close(context.Background())
		for ctx.Err() == nil {
			if err := f(conn); err == nil {
				did.Add(1)
			} else if pg := (*pgconn.PgError)(nil); mayRing.Load() && errors.As(err, &pg) && pg.Code == "40P01" {
				rings.Add(1)
			} else {
				failed <- err
				return
			}
		}
	}
	var transfers atomic.Int64
	for i := range 3 {
		clients.Go(func() {
			client(func(conn *pgx.Conn) error {
				order.RLock()
				defer order.RUnlock()
				err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
					list := []string{there, part}
					if partFirst.Load() {
						list[0], list[1] = part, there
					}
					for _, tenant := range list {
						amount := 1
						if tenant == there {
							amount = -1
						}
						if _, err := tx.Exec(context.Background(), fmt.Sprintf(`UPDATE account SET balance = balance + (%d) WHERE id = %d AND tenant = %s`, amount, i, tenant)); err != nil {
							return err
						}
					}
					return nil
				})
				if err == nil {
					transfers.Add(1)
				}
				return err
			})
		})
	}
	id := c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: "0:", To: "s1"})
	c.await(id, "opened")
	if _, err := c.rooms.Ops.Reverse(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	c.history(c.await(id, "rolled back"))
	c.history(c.await(c.move(admin.MoveRequest{ID: "again", Keyspace: "bank", Range: "0:", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done"))

	c.exec(`CREATE TABLE kind (id bigint PRIMARY KEY, name text) WITH (cleave.reference)`,
		`INSERT INTO kind SELECT n, 'kind ' || n FROM generate_series(1, 500) AS n`)
	order.Lock()
	partFirst.Store(true)
	order.Unlock()
	var kinds atomic.Int64
	for round := range 2 {
		if round == 1 {
			// Who writes to the reference table takes the files in the other order: of a ring with a transfer one gets 40P01.
			mayRing.Store(true)
			clients.Go(func() {
				client(func(conn *pgx.Conn) error {
					_, err := conn.Exec(context.Background(), `INSERT INTO kind VALUES ($1, 'later')`, 1000+kinds.Load())
					if err == nil {
						kinds.Add(1)
					}
					return err
				})
			})
			for end := time.Now().Add(patience); kinds.Load() == 0 && time.Now().Before(end) && len(failed) == 0; {
				time.Sleep(time.Millisecond)
			}
		}
		name := fmt.Sprintf("more%d", round)
		began := time.Now()
		if _, err := c.rooms.Ops.AddShard(context.Background(), admin.AddShardRequest{Name: name, URL: "file:" + filepath.Join(t.TempDir(), "more.db")}); err != nil {
			t.Fatal(err)
		}
		added := time.Since(began)
		if n, want := c.onShard(name, `SELECT count(*) FROM kind`), c.onShard("s0", `SELECT count(*) FROM kind`); n != want && round == 0 {
			t.Errorf("%s has %s kinds of %s", name, n, want)
		}
		at := did.Load()
		for end := time.Now().Add(patience); did.Load() < at+3 && time.Now().Before(end) && len(failed) == 0; {
			time.Sleep(time.Millisecond)
		}
		began = time.Now()
		if _, err := c.rooms.Ops.RemoveShard(context.Background(), admin.RemoveShardRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
		t.Logf("added in %s, removed in %s", added.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
	stop()
	clients.Wait()
	close(failed)
	for err := range failed {
		t.Errorf("a transaction failed: %v", err)
	}
	if n := c.number(`SELECT sum(balance)::bigint FROM account`); n != tenants*accounts*balance {
		t.Errorf("the sum is %d", n)
	}
	if n := c.number(`SELECT sum(balance)::bigint FROM account WHERE tenant = ` + part); n != accounts*balance+transfers.Load() {
		t.Errorf("%d transfers were answered, the sum of the tenant is %d", transfers.Load(), n)
	}
	for _, shard := range []string{"s0", "s1"} {
		if n := c.onShard(shard, `SELECT count(*) FROM kind`); n != fmt.Sprint(500+kinds.Load()) {
			t.Errorf("%s has %s kinds, %d were acknowledged", shard, n, 500+kinds.Load())
		}
	}
	t.Logf("%d transfers, %d kinds, %d rings", transfers.Load(), kinds.Load(), rings.Load())
	c.clean()
}

// TestSchemaChangeBetweenTheFiles: a schema change has one file and waits for the other, whose writer then wants the first. One
// of both is told at once that nobody could go on.
func TestSchemaChangeBetweenTheFiles(t *testing.T) {
	testrun.Short(t)
	c := startAs(t, "", "sqlite", "sqlite")
	c.exec(`SELECT cleave.create_keyspace('two', 'hash', 'bigint', ranges => 2, shards => ARRAY['s0', 's1'])`,
		`CREATE TABLE account (tenant bigint NOT NULL, id int NOT NULL, note text, PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'two')`,
		`INSERT INTO account (tenant, id) SELECT n, 1 FROM generate_series(1, 50) AS n`)
	ctx := context.Background()
	there, part := c.onShard("s0", `SELECT min(tenant) FROM account`), c.onShard("s1", `SELECT min(tenant) FROM account`)
	writer, changes := c.begun(part), c.connect()
	changed := make(chan error, 1)
	go func() {
		_, err := changes.Exec(ctx, `ALTER TABLE account ADD more int`)
		changed <- err
	}()
	probe := c.connect()
	for end := time.Now().Add(patience); ; {
		_, err := probe.Exec(ctx, `BEGIN; SET LOCAL lock_timeout = '1ms'; `+update(there)+`; COMMIT`)
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "55P03" {
			break
		}
		if _, back := probe.Exec(ctx, `ROLLBACK`); back != nil || time.Now().After(end) {
			t.Fatalf("the schema change does not take the first file: %v, %v", err, back)
		}
	}
	_, err := writer.Exec(ctx, update(there))
	if _, err := writer.Exec(ctx, `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	// Each waits in short turns: the one that comes last closes the ring.
	told := 0
	for who, err := range map[string]error{"the writer": err, "the schema change": <-changed} {
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "40P01" {
			told++
		} else if err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	if told != 1 {
		t.Errorf("%d were told of the ring", told)
	}
}
