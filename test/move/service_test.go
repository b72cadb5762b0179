package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

// set gives a shard a state.
func (c *target) set(shard, state, why string) *admin.Result {
	c.t.Helper()
	res, err := c.rooms.Ops.SetShard(context.Background(), admin.SetShardRequest{Meta: admin.Meta{By: "test", Why: why}, Name: shard, State: state})
	if err != nil {
		c.t.Fatalf("%s %s: %v", shard, state, err)
	}
	return res
}

// refused fails unless the router refuses a statement with a code, and says why.
func (c *target) refused(code, why, sql string) {
	c.t.Helper()
	conn := c.connect()
	defer conn.Close(context.Background())
	_, err := conn.Exec(context.Background(), sql)
	var e *pgconn.PgError
	switch {
	case !errors.As(err, &e) || e.Code != code:
		c.t.Errorf("%s: %v, not %s", sql, err, code)
	case !strings.Contains(e.Message, why) || !strings.Contains(e.Hint, "cleave shard set ") || !strings.Contains(e.Detail, time.Now().UTC().Format(" since 2006-")):
		c.t.Errorf("%s: %q, detail %q, hint %q", sql, e.Message, e.Detail, e.Hint)
	}
}

// TestShardStates: what needs a shard that is read-only, or out of service, is refused at once with the
// reason, by the router and the shard; all else goes on, rows can be moved off, and transactions that
// were begun before end as they should.
func TestShardStates(t *testing.T) {
	testrun.Long(t, "each state is tried with each kind of statement, and moves go off it")
	forKinds(t, "", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(400)
		c.exec(`CREATE TABLE currency (id int PRIMARY KEY, name text) WITH (cleave.reference = true)`, `CREATE TABLE setting (id int PRIMARY KEY)`, `INSERT INTO currency VALUES (1, 'CHF')`)
		c.await(c.move(admin.MoveRequest{Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
		// The tenants of each shard.
		of := map[string]int{}
		for n := range tenants {
			conn := c.connect()
			var shard string
			if err := conn.QueryRow(ctx, fmt.Sprintf(`SELECT cleave.shard_of('bank', %d)`, n)).Scan(&shard); err != nil {
				t.Fatal(err)
			}
			of[shard] = n
			_ = conn.Close(ctx)
		}
		write := func(shard string) string {
			return fmt.Sprintf(`UPDATE account SET balance = balance + 0 WHERE tenant = %d`, of[shard])
		}
		read := func(shard string) string {
			return fmt.Sprintf(`SELECT count(*) FROM account WHERE tenant = %d`, of[shard])
		}
		past := func(shard string) error { // as psql would
			sh, err := c.rooms.Executor.Shard(shard)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := sh.Connect(ctx, map[string]string{"client_encoding": "UTF8"})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = engine.Exec(conn, write(shard))
			return err
		}
		if _, err := c.rooms.Ops.SetShard(ctx, admin.SetShardRequest{Name: "s0", State: "asleep"}); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("%v", err)
		}
		if res, err := c.rooms.Ops.SetShard(ctx, admin.SetShardRequest{Meta: admin.Meta{DryRun: true}, Name: "s0", State: "read-only"}); err != nil || res.Done || len(res.Plan) < 4 {
			t.Errorf("%+v, %v", res, err)
		}
		c.exec(write("s0"), write("s1"))

		c.exec(`SELECT cleave.set_shard('s0', 'read-only', why => 'a new disk')`)
		for _, sql := range []string{write("s0"), `UPDATE account SET balance = balance + 0`, `INSERT INTO setting VALUES (1)`, `INSERT INTO currency VALUES (2, 'EUR')`,
			`CREATE TABLE more (id int)`, `TRUNCATE entry`, `BEGIN; ` + write("s0"), read("s0")[:7] + `balance FROM account WHERE tenant = ` + fmt.Sprint(of["s0"]) + ` FOR UPDATE`} {
			c.refused("25006", "shard s0 is read-only: a new disk", sql)
		}
		c.exec(read("s0"), read("s1"), write("s1"), `SELECT count(*) FROM setting`, `SELECT * FROM currency`, `SELECT 1`)
		if n := c.number(`SELECT count(*) FROM account`); n != tenants*accounts {
			t.Errorf("%d accounts", n)
		}
		if err := past("s0"); sqlstate.CodeOf(err) != sqlstate.NotOwner {
			t.Errorf("past the router: %v", err)
		}
		if conn := c.connect(); true {
			var state, why string
			if err := conn.QueryRow(ctx, `SELECT state, state_why FROM cleave.shards WHERE name = 's0'`).Scan(&state, &why); err != nil || state != "read-only" || why != "a new disk" {
				t.Errorf("%q %q %v", state, why, err)
			}
		}
		if _, err := c.rooms.Ops.Move(ctx, admin.MoveRequest{Keyspace: "bank", Range: ":0", To: "s0"}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
			t.Errorf("a move to it: %v", err)
		}
		drain, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{Shard: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}})
		if err != nil {
			t.Fatal(err)
		}
		c.await(drain.Workflow.ID, "done")
		if n := c.onShard("s0", `SELECT count(*) FROM bulk`); n != "0" {
			t.Errorf("%s rows are left on the drained shard", n)
		}
		c.exec(fmt.Sprintf(`UPDATE account SET balance = balance + 0 WHERE tenant = %d`, of["s0"]))
		c.set("s0", "normal", "")
		c.await(c.move(admin.MoveRequest{Keyspace: "bank", Range: "0:", To: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
		c.exec(write("s0"), `INSERT INTO setting VALUES (1)`, `INSERT INTO currency VALUES (2, 'EUR')`)

		// A transaction over both shards that has written is waited for, and ends as it should.
		conn := c.connect()
		if _, err := conn.Exec(ctx, `BEGIN; `+write("s0")+`; `+fmt.Sprintf(`UPDATE account SET note = 'both' WHERE tenant IN (%d, %d)`, of["s0"], of["s1"])); err != nil {
			t.Fatal(err)
		}
		set := make(chan error, 1)
		go func() {
			_, err := c.rooms.Ops.SetShard(ctx, admin.SetShardRequest{Meta: admin.Meta{By: "test", Why: "a new server"}, Name: "s1", State: "out-of-service"})
			set <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if _, err := conn.Exec(ctx, `COMMIT`); err != nil {
			t.Errorf("a transaction from before: %v", err)
		}
		if err := <-set; err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{write("s1"), read("s1"), `SELECT count(*) FROM account`, `UPDATE account SET balance = balance + 0`, `INSERT INTO currency VALUES (3, 'USD')`, `CREATE TABLE more (id int)`} {
			c.refused("57P03", "shard s1 is out of service: a new server", sql)
		}
		c.exec(read("s0"), write("s0"), `INSERT INTO setting VALUES (2)`, `SELECT * FROM currency`, `SELECT 1`, `SELECT 1`, `SELECT 1`)
		if err := past("s1"); sqlstate.CodeOf(err) != sqlstate.NotOwner {
			t.Errorf("past the router: %v", err)
		}
		c.eventually("no connection is kept there", func() bool { return c.number(`SELECT idle FROM cleave.shards WHERE name = 's1'`) == 0 })
		c.set("s1", "normal", "")
		c.exec(write("s1"), `INSERT INTO currency VALUES (3, 'USD')`, `DROP TABLE setting`)
		if n := c.number(`SELECT count(*) FROM account WHERE note = 'both'`); n != 2*accounts {
			t.Errorf("%d rows of the transaction from before", n)
		}
		c.clean()
	})
}
