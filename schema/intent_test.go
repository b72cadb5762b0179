package schema

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// outside is a statement that no transaction can hold.
func outside(op, text string) *plan.Statement {
	st := index("t", text)
	st.Tag = strings.ToUpper(op)
	st.DDL.Op, st.DDL.Concurrent = op, true
	switch op {
	case "create index":
		st.DDL.Index = &plan.TableName{Schema: "public", Name: "t_note"}
	case "reindex":
		st.DDL.Passing = true
	}
	return st
}

func (c *cluster) finishIntents(look bool) []Finding {
	c.t.Helper()
	found, err := FinishIntents(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, DryRun: look, LockTimeout: time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// indexes are the shards with an index t_note, and the number of those that are not valid.
func (c *cluster) indexes() (have, invalid int) {
	c.t.Helper()
	for name := range c.shards {
		res := c.query(name, "SELECT count(*) FILTER (WHERE indexrelid::regclass::text = 't_note'), count(*) FILTER (WHERE NOT indisvalid) FROM pg_index WHERE indrelid = 't'::regclass")
		if res.Rows[0][0].String == "1" {
			have++
		}
		if res.Rows[0][1].String != "0" {
			invalid++
		}
	}
	return have, invalid
}

// TestIntents stops a statement outside of transactions at each of its steps, as if the router had died: it is done on all
// shards afterwards, and in the history, or on none.
func TestIntents(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 3)
	ctx := context.Background()
	c.must(create("t", orders, "tenant_id"))
	half := func(shard, name string) {
		c.super(shard, "UPDATE pg_index SET indisvalid = false, indisready = false WHERE indexrelid = '"+name+"'::regclass")
	}
	for _, one := range []struct {
		op, text string
		// half leaves on the last shard what a server leaves that is killed at it.
		half func()
		// want are the shards that have the index when it was stopped at a step.
		want func(step string) int
	}{
		{"create index", "CREATE INDEX CONCURRENTLY t_note ON t (note)", func() { half("shard-2", "t_note") }, func(step string) int {
			return map[string]int{"": 3, "decide ": 3, "decided ": 3, "concurrent shard-2": 3}[step]
		}},
		{"reindex", "REINDEX TABLE CONCURRENTLY t", func() {
			c.query("shard-2", "CREATE INDEX t_note_ccnew ON t (note)")
			half("shard-2", "t_note_ccnew")
		}, func(string) int { return 3 }},
		{"drop index", "DROP INDEX CONCURRENTLY t_note", func() {}, func(string) int { return 0 }},
	} {
		for n := 1; ; n++ {
			if have, _ := c.indexes(); one.op == "create index" && have == 3 {
				c.must(index("t", "DROP INDEX t_note"))
			} else if one.op != "create index" && have == 0 {
				c.must(index("t", "CREATE INDEX t_note ON t (note)"))
			}
			o := c.options()
			o.Member = "a router that is gone"
			at, steps := "", 0
			o.step = func(step, shard string) error {
				if steps++; steps == n {
					at = step + " " + shard
					return errStop
				}
				return nil
			}
			was := c.snap().Version()
			err := c.one(o, outside(one.op, one.text))
			if at == "concurrent shard-1" {
				if one.op == "create index" {
					c.query("shard-2", "CREATE INDEX t_note ON t (note)")
				}
				one.half()
			}
			found := c.finishIntents(true)
			if (len(found) == 1) != (at != "") {
				t.Fatalf("%s, stopped at %q: %v, findings %+v", one.op, at, err, found)
			}
			for _, f := range c.finishIntents(false) {
				if f.Done == "" {
					t.Errorf("%s, stopped at %q: %+v", one.op, at, f)
				}
			}
			have, invalid := c.indexes()
			if want := one.want(at); have != want || invalid != 0 {
				t.Errorf("%s, stopped at %q: %d shards have the index, not %d; on %d there is one that is not valid", one.op, at, have, want, invalid)
			}
			entries, err := History(ctx, c.dir, was)
			if err != nil {
				t.Fatal(err)
			}
			if told := len(inForce(entries)) == 1; told != (one.op != "reindex" && have == one.want("")) {
				t.Errorf("%s, stopped at %q: in the history %+v", one.op, at, entries)
			}
			if left, err := c.dir.Records(ctx, IntentPrefix, "", 10); err != nil || len(left) > 0 {
				t.Errorf("%s, stopped at %q: %d intents are left, %v", one.op, at, len(left), err)
			}
			c.agree()
			if at == "" || t.Failed() {
				break
			}
		}
	}
}

// TestIntentAtWork: a statement whose router lives is let be; one whose router is dead, but which a shard is still at work on, is
// ended there first. What cannot be ended yet is left for the next time.
func TestIntentAtWork(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	ctx := context.Background()
	c.must(create("t", orders, "tenant_id"))
	_, leave, err := c.dir.Join(ctx, shardmap.Member{ID: "m", Role: "router"})
	if err != nil {
		t.Fatal(err)
	}
	i := &intent{ID: "4b1d", Op: "create index", Text: "CREATE INDEX CONCURRENTLY t_note ON t (note)", AllShards: true, Schema: "public", Index: "t_note", Member: "m", Began: time.Now()}
	if err := i.put(ctx, c.dir); err != nil {
		t.Fatal(err)
	}
	if found := c.finishIntents(false); len(found) > 0 {
		t.Errorf("it is alive: %+v", found)
	}
	o := c.options()
	e := code(t, c.one(o, outside("create index", "CREATE INDEX CONCURRENTLY t_note ON t (note)")), sqlstate.ObjectInUse)
	if !strings.Contains(e.Message, "4b1d") {
		t.Error(e)
	}
	// A transaction that wrote keeps the statement waiting on one shard.
	writer, build := c.conn(t, "shard-1"), c.conn(t, "shard-1")
	if _, err := engine.Exec(writer, "BEGIN; INSERT INTO t VALUES (1, 1)"); err != nil && sqlstate.CodeOf(err) != sqlstate.NotOwner {
		t.Fatal(err)
	}
	if _, err := engine.Exec(writer, "ROLLBACK; BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Exec(build, "SET application_name = '"+i.application()+"'")
		if err == nil {
			_, err = engine.Exec(build, i.Text)
		}
		ended <- err
	}()
	for end := time.Now().Add(waitfor.Max); ; time.Sleep(5 * time.Millisecond) {
		if _, invalid := c.indexes(); invalid == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not being built")
		}
	}
	if err := leave(ctx); err != nil {
		t.Fatal(err)
	}
	if found := c.finishIntents(false); len(found) != 1 || found[0].Done != "" {
		t.Errorf("the writer is in the way: %+v", found)
	}
	if err := <-ended; err == nil {
		t.Error("nobody has ended it")
	}
	if _, err := engine.Exec(writer, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if found := c.finishIntents(false); len(found) != 1 || found[0].Done == "" {
		t.Errorf("at the end: %+v", found)
	}
	if have, invalid := c.indexes(); have+invalid != 0 {
		t.Errorf("%d shards have the index, %d one that is not valid", have, invalid)
	}
	// What nobody has written down is dropped by hand only.
	c.query("shard-1", "CREATE INDEX t_note ON t (note)")
	c.super("shard-1", "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_note'::regclass")
	for _, dry := range []bool{true, false} {
		found := InvalidIndexes(ctx, RecoverOptions{Directory: c.dir, Connect: c.connect, DryRun: dry}, &c.snap().Shards()[1])
		if len(found) != 1 || dry != (found[0].Done == "") {
			t.Errorf("dry run: %v: %+v", dry, found)
		}
	}
	c.must(outside("create index", "CREATE INDEX CONCURRENTLY t_note ON t (note)"))
	if have, invalid := c.indexes(); have != 2 || invalid != 0 {
		t.Errorf("made anew %d shards have it, %d one that is not valid", have, invalid)
	}
	c.agree()
}

// conn is a conversation of the test's own.
func (c *cluster) conn(t *testing.T, shard string) engine.Conn {
	t.Helper()
	conn, err := c.shards[shard].Connect(context.Background(), map[string]string{"application_name": "cleave"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
