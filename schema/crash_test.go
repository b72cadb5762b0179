package schema

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

var errStop = errors.New("stopped by the test")

// servers are one where transactions can be prepared, and one where they cannot.
func servers(t *testing.T, f func(t *testing.T, s *localpg.Server)) {
	t.Run("prepared", func(t *testing.T) { f(t, pgtest.Server(t)) })
	t.Run("unprepared", func(t *testing.T) {
		f(t, pgtest.NewServer(t, map[string]string{"max_prepared_transactions": "0"}))
	})
}

// TestCrashAtEveryStep stops a change at each step in turn, recovers, and asks
// that map and shards agree and that the change is whole or not there at all.
func TestCrashAtEveryStep(t *testing.T) {
	table := create("t", orders, "tenant_id")
	changes := []struct {
		name     string
		prepared bool // tried where transactions can be prepared, too: the steps are the same for every statement
		shards   int
		setup    []*plan.Statement
		change   []*plan.Statement
		is       string // a query that is true on a shard that has the change
		rows     string // statement that writes rows on every shard in the same transaction; "" is none
	}{
		{"create", true, 3, nil, []*plan.Statement{table}, "SELECT to_regclass('t') IS NOT NULL", ""},
		{"alter", false, 2, []*plan.Statement{table}, []*plan.Statement{alter(true, "t", "RENAME tenant_id TO tenant"), index("t", "CREATE INDEX t_note ON t (note)")},
			"SELECT to_regclass('t_note') IS NOT NULL AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'tenant')", ""},
		{"rename", false, 2, []*plan.Statement{table}, []*plan.Statement{rename(true, "t", "t2")}, "SELECT to_regclass('t2') IS NOT NULL", ""},
		{"drop", false, 2, []*plan.Statement{table}, []*plan.Statement{drop(true, "t")}, "SELECT to_regclass('t') IS NULL", ""},
		{"drop and create", true, 2, []*plan.Statement{table}, []*plan.Statement{drop(true, "t"), create("t", "tenant_id bigint, other int", "tenant_id")},
			"SELECT count(*) = 1 FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'other'", ""},
		// The row, the column and the record for atomic reads are there, or none of them.
		{"alter and write", true, 3, []*plan.Statement{table}, []*plan.Statement{alter(true, "t", "ADD COLUMN twice int")},
			"SELECT n = 3 OR n <> 0 AND 1 / (n - n) = 1 FROM (SELECT (SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'twice') + " +
				"(SELECT count(*) FROM cleave_internal.log) + (SELECT count(*) FROM cleave_internal.marks) AS n) AS x",
			"INSERT INTO cleave_internal.log VALUES ('row')"},
	}
	servers(t, func(t *testing.T, server *localpg.Server) {
		for _, ch := range changes {
			if server == pgtest.Server(t) && !ch.prepared || server != pgtest.Server(t) && ch.rows != "" {
				continue
			}
			t.Run(ch.name, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, server, ch.shards)
				c.must(create("other", "k text PRIMARY KEY", "k"))
				for name := range c.shards {
					c.query(name, "CREATE SCHEMA IF NOT EXISTS cleave_internal; CREATE TABLE cleave_internal.log (what text); CREATE TABLE cleave_internal.marks (what text)")
				}
				stops := 0
				for at := "?"; at != ""; stops++ {
					at = c.stopAt(t, stops+1, ch.setup, ch.change, ch.is, ch.rows)
				}
				if stops < 8 {
					t.Fatalf("only %d steps", stops)
				}
			})
		}
	})
}

// stopAt stops the change at its n-th step and returns which one that was, "" if
// there are not that many.
func (c *cluster) stopAt(t *testing.T, n int, setup, change []*plan.Statement, is, rows string) (at string) {
	t.Helper()
	for name := range c.shards {
		c.query(name, "TRUNCATE cleave_internal.log, cleave_internal.marks")
	}
	for _, name := range []string{"t", "t2"} {
		if _, ok := c.snap().Table("public", name); ok {
			c.must(drop(true, name))
		}
	}
	if len(setup) > 0 {
		c.must(setup...)
	}
	o := c.options()
	steps := 0
	o.step = func(step, shard string) error {
		if steps++; steps == n {
			at = step + " " + shard
			return errStop
		}
		return nil
	}
	o.Record = func(_ context.Context, id, shard string, shards []string) (string, error) {
		return "INSERT INTO cleave_internal.marks VALUES (" + quote(fmt.Sprint(id, shard, shards)) + ")", nil
	}
	err := c.oneWith(o, rows, change...)
	c.waitIdle()
	c.recover()
	c.agree()
	done := 0
	for name := range c.shards {
		if c.query(name, is).Rows[0][0].String == "t" {
			done++
		}
	}
	switch {
	case done != 0 && done != len(c.shards):
		t.Fatalf("stopped at %q (%v): %d of %d shards have it", at, err, done, len(c.shards))
	case at == "" && (err != nil || done != len(c.shards)):
		t.Fatalf("without a stop: %d shards, %v", done, err)
	case t.Failed():
		t.Fatalf("stopped at %q: %v", at, err)
	}
	return at
}

// waitIdle waits until the shards have noticed that the crashed conversations ended.
func (c *cluster) waitIdle() {
	c.t.Helper()
	for name := range c.shards {
		for try := 0; ; try++ {
			n := c.query(name, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'cleave' AND state <> 'idle'").Rows[0][0].String
			if n == "0" {
				break
			}
			if try > 500 {
				c.t.Fatalf("%s conversations stay open on %s", n, name)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestKilledConversations ends a shard's conversations at each step, as a server
// that restarts does; nobody stops the router.
func TestKilledConversations(t *testing.T) {
	servers(t, func(t *testing.T, server *localpg.Server) {
		c := newCluster(t, server, 2)
		for n := 1; ; n++ {
			table := fmt.Sprintf("t%d", n)
			o := c.options()
			steps, at := 0, ""
			victim := fmt.Sprintf("shard-%d", n%2)
			o.step = func(step, shard string) error {
				if steps++; steps == n {
					at = step + " " + shard
					c.kill(victim)
				}
				return nil
			}
			err := c.one(o, create(table, orders, "tenant_id"))
			t.Logf("%s killed at %q: %v", victim, at, err)
			c.waitIdle()
			both := c.has("shard-0", table) && c.has("shard-1", table)
			_, known := c.snap().Table("public", table)
			switch {
			case err == nil && !(both && known):
				// A side that is decided and prepared may be finished later only.
				c.recover()
				if !c.has("shard-0", table) || !c.has("shard-1", table) {
					t.Fatal("said to be done, and is not")
				}
			case err != nil && sqlstate.CodeOf(err) != sqlstate.TransactionUnknown && (known || c.has("shard-0", table) || c.has("shard-1", table)):
				t.Fatalf("plain error, but something is there: %v", err)
			}
			c.recover()
			c.agree()
			if t.Failed() || at == "" {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	})
}

// TestSlowCoordinator: a change that somebody else rolled back because its router
// seemed gone cannot be decided any more.
func TestSlowCoordinator(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	o := c.options()
	o.step = func(step, shard string) error {
		if step == "prepared" {
			found := c.recover()
			if len(found) < 2 || found[0].Done == "" {
				t.Errorf("not rolled back: %+v", found)
			}
		}
		return nil
	}
	e := code(t, c.one(o, create("t", orders, "tenant_id")), sqlstate.SerializationFailure)
	t.Log(e)
	if c.has("shard-0", "t") || c.has("shard-1", "t") {
		t.Fatal("it is there")
	}
	c.agree()
}

// TestYoungPreparedIsLeftAlone: Recover does not disturb a change at work.
func TestYoungPreparedIsLeftAlone(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	o := c.options()
	o.step = func(step, shard string) error {
		if step == "prepared" {
			if _, err := Recover(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, LockTimeout: 50 * time.Millisecond}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := c.one(o, create("t", orders, "tenant_id")); err != nil {
		t.Fatal(err)
	}
	c.agree()
}

// TestLeftoverLockIsCleared: the next change ends what a dead router left
// prepared, and goes on.
func TestLeftoverLockIsCleared(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	o := c.options()
	o.step = func(step, _ string) error {
		if step == "prepared" {
			return errStop
		}
		return nil
	}
	if err := c.one(o, create("dead", orders, "tenant_id")); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	o = c.options()
	o.LockTimeout = 200 * time.Millisecond
	e := code(t, c.one(o, create("t", orders, "tenant_id")), sqlstate.LockNotAvailable)
	if e.Hint == "" {
		t.Fatal(e)
	}
	o.PrepareAge = time.Nanosecond
	if err := c.one(o, create("t", orders, "tenant_id")); err != nil {
		t.Fatal(err)
	}
	c.agree()
	if c.has("shard-0", "dead") {
		t.Fatal("the dead change is there")
	}
}

func TestShardDown(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 3)
	c.must(create("orders", orders, "tenant_id"))
	c.setDown("shard-2", true)
	code(t, c.one(c.options(), create("t", orders, "tenant_id")), sqlstate.CannotConnectNow)
	if c.has("shard-0", "t") || c.has("shard-1", "t") {
		t.Fatal("something is left")
	}
	c.must(create("plain", "a int")) // needs the default shard only
	// Down after the decision: done, with a warning, and finished later.
	c.setDown("shard-2", false)
	o := c.options()
	o.step = func(step, _ string) error {
		if step == "decided" {
			c.kill("shard-2")
			c.setDown("shard-2", true)
		}
		return nil
	}
	tx := c.begin(o)
	if _, _, err := tx.Exec(context.Background(), alter(true, "orders", "ADD COLUMN late int")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	notices := tx.Notices()
	if len(notices) != 1 || notices[0].Severity != "WARNING" || notices[0].Hint == "" {
		t.Fatalf("%+v", notices)
	}
	found := c.recover()
	if found[0].Level != levelError || found[0].Shard != "shard-2" && found[len(found)-1].Shard != "shard-2" {
		t.Logf("%+v", found)
	}
	c.setDown("shard-2", false)
	c.recover()
	c.agree()
	if n := len(c.query("shard-2", "SELECT late FROM orders").Columns); n != 1 {
		t.Fatal("not finished")
	}
}

func TestConcurrentChanges(t *testing.T) {
	servers(t, func(t *testing.T, server *localpg.Server) {
		c := newCluster(t, server, 2)
		const routers, each = 4, 5
		errs := make(chan error, routers*each)
		for r := range routers {
			go func() {
				for i := range each {
					o := c.options()
					o.LockTimeout = 20 * time.Second
					for try := 0; ; try++ {
						tx, err := Begin(context.Background(), o, c.snap())
						if err == nil {
							if _, _, err = tx.Exec(context.Background(), create(fmt.Sprintf("t_%d_%d", r, i), orders, "tenant_id")); err == nil {
								err = tx.Commit(context.Background())
							} else {
								tx.Rollback(context.Background())
							}
						}
						if sqlstate.CodeOf(err) == sqlstate.SerializationFailure && try < 20 {
							continue
						}
						errs <- err
						break
					}
				}
			}()
		}
		for range routers * each {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := len(c.snap().State().Tables); n != routers*each {
			t.Fatalf("%d tables", n)
		}
		c.agree()
	})
}

// TestSameNameFromTwoRouters: one wins, the other gets PostgreSQL's own error.
func TestSameNameFromTwoRouters(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	snap := c.snap()
	errs := make(chan error)
	for range 2 {
		go func() {
			tx, err := Begin(context.Background(), c.options(), snap)
			if err == nil {
				if _, _, err = tx.Exec(context.Background(), create("t", orders, "tenant_id")); err == nil {
					err = tx.Commit(context.Background())
				} else {
					tx.Rollback(context.Background())
				}
			}
			errs <- err
		}()
	}
	a, b := <-errs, <-errs
	if a != nil {
		a, b = b, a
	}
	if a != nil || sqlstate.CodeOf(b) != sqlstate.DuplicateTable {
		t.Fatal(a, b)
	}
	c.agree()
}

// TestMapChangedMeanwhile: a change goes on top of one that does not concern it, and
// gives way to one that does.
func TestMapChangedMeanwhile(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	c.must(create("a", "k bigint PRIMARY KEY", "k"), create("b", "k text PRIMARY KEY", "k"))
	pin := func(ks, key string) func(step, shard string) error {
		return func(step, _ string) error {
			if step != "decide" {
				return nil
			}
			st := c.snap().State().Clone()
			if _, ok := c.snap().Keyspace(ks); !ok {
				t.Fatal("no keyspace")
			}
			if len(st.Keyspaces[0].Pins)+len(st.Keyspaces[1].Pins) > 0 {
				return nil
			}
			if err := st.PutPin(ks, []string{key}, "shard-1"); err != nil {
				t.Error(err)
			}
			_, err := c.dir.Update(context.Background(), shardmap.Change{Expect: st.Version, By: "bob", Op: "pin", Why: "test"}, st)
			return err
		}
	}
	o := c.options()
	o.step = pin("hash_text", "x")
	if err := c.one(o, alter(true, "a", "ADD COLUMN n int")); err != nil {
		t.Fatal(err)
	}
	st := c.snap().State().Clone()
	if _, err := st.DropPin("hash_text", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.dir.Update(context.Background(), shardmap.Change{Expect: st.Version, By: "bob", Op: "unpin", Why: "test"}, st); err != nil {
		t.Fatal(err)
	}
	o.step = pin("hash_bigint", "7")
	code(t, c.one(o, alter(true, "a", "ADD COLUMN m int")), sqlstate.SerializationFailure)
	if table, _ := c.snap().Table("public", "a"); len(table.Columns) != 2 {
		t.Fatalf("%+v", table.Columns)
	}
	for name := range c.shards {
		if n := len(c.query(name, "SELECT * FROM a").Columns); n != 2 {
			t.Fatalf("%d columns on %s", n, name)
		}
	}
	c.recover() // the pins were made behind the guards' back
	c.agree()
}
