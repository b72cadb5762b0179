package schema

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestLedgerRoundTrip(t *testing.T) {
	in := []Statement{
		{Text: "CREATE TABLE a (x int)", AllShards: true, Set: []string{"SET LOCAL search_path = app"}, Tables: []string{"app.a"}, Creates: []string{"app.a"}},
		{Text: "COMMENT ON TABLE a IS '\n;\n-- cleave other: {}\n'", Tables: []string{"app.a"}},
		{Text: "ALTER TABLE a RENAME TO \"B\" -- end", Renames: map[string]string{"app.a": `app."B"`}},
		{Text: "DROP SCHEMA app CASCADE", DropsSchema: []string{"app"}},
	}
	text, err := formatLedger("id-1", in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ParseLedger(shardmap.Entry{ID: "id-1", Statement: text})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Fatalf("%+v\n%+v\n%s", in, out, text)
	}
	for _, bad := range []shardmap.Entry{{ID: "id-2", Statement: text}, {ID: "id-1", Statement: text[:20]}, {ID: "id-1", Statement: marker("id-1") + "nonsense\nSELECT 1"}, {Statement: "x"}} {
		if _, err := ParseLedger(bad); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestTableLedgerFollowsTheTable(t *testing.T) {
	var entries []shardmap.Entry
	add := func(op, id string, s Statement) {
		text, err := formatLedger(id, []Statement{s})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, shardmap.Entry{Version: uint64(len(entries) + 1), Op: op, ID: id, Statement: text})
	}
	add(OpChange, "1", Statement{Text: "create a (first)", Tables: []string{"public.a"}, Creates: []string{"public.a"}})
	add(OpChange, "2", Statement{Text: "drop a", Tables: []string{"public.a"}, Drops: []string{"public.a"}})
	add(OpChange, "3", Statement{Text: "create a", Tables: []string{"public.a"}, Creates: []string{"public.a"}})
	add(OpChange, "4", Statement{Text: "void", Tables: []string{"public.a"}})
	entries = append(entries, shardmap.Entry{Version: 5, Op: OpRolledBack, ID: undoID("4")})
	add(OpChange, "6", Statement{Text: "rename a", Tables: []string{"public.b", "public.a"}, Renames: map[string]string{"public.a": "public.b"}})
	add(OpChange, "7", Statement{Text: "index b", Tables: []string{"public.b"}})
	add(OpDistribute, "8", Statement{Text: "create a", Tables: []string{"public.b"}, Creates: []string{"public.b"}})
	list, err := TableLedger(entries, "public.b")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range list {
		texts = append(texts, s.Text)
	}
	if got := strings.Join(texts, "; "); got != "create a; rename a; index b" {
		t.Fatal(got)
	}
	add(OpChange, "9", Statement{Text: "drop schema", DropsSchema: []string{"public"}})
	if list, err = TableLedger(entries, "public.b"); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]bool{
		"ALTER TABLE t RENAME COLUMN a TO b":                              true,
		"alter table if exists only s.\"t.x\" * rename a to b":            true,
		"ALTER /* x /* y */ */ TABLE -- z\n t RENAME a TO b":              true,
		"ALTER TABLE t DROP COLUMN a, ADD COLUMN rename bigint":           false,
		"ALTER TABLE rename ADD COLUMN b int":                             false,
		"ALTER TABLE \"rename\" DROP COLUMN a, ADD COLUMN \"RENAME\" int": false,
		"ALTER INDEX t RENAME TO u":                                       false,
		"":                                                                false,
	} {
		if isRename(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
	for text, want := range map[string][]string{
		"CREATE UNIQUE INDEX i ON t (a, \"B c\" DESC, c COLLATE \"C\")": {"a", "B c", "c"},
		"CREATE UNIQUE INDEX ON t USING btree (lower(a), (b + 1), c)":   {"", "", "c"},
		"CREATE UNIQUE INDEX i ON t (a) INCLUDE (b) WHERE (c > 1)":      {"a"},
	} {
		unique, got := uniqueIndex(text)
		if !unique || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v %q", text, unique, got)
		}
	}
	if unique, _ := uniqueIndex("CREATE INDEX i ON t (a)"); unique {
		t.Error("not unique")
	}
	for set, want := range map[string]string{
		"SET search_path = app":                           "SET LOCAL search_path = app",
		"SET SESSION search_path TO app":                  "SET LOCAL search_path TO app",
		"set local x = 1":                                 "set local x = 1",
		"SET SESSION CHARACTERISTICS AS x":                "SET SESSION CHARACTERISTICS AS x",
		"SELECT set_config('a.b', 'c', false)":            "SELECT set_config('a.b', 'c', false)",
		"SET TIME ZONE 'UTC'":                             "SET LOCAL TIME ZONE 'UTC'",
		"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
	} {
		if got := local(set); got != want {
			t.Errorf("%s: %s", set, got)
		}
	}
}

// TestPreludeIsReplayed: a table made under a search_path comes into the same
// schema on a new shard, and the conversation keeps nothing of it.
func TestPreludeIsReplayed(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	ctx := context.Background()
	c.must(&plan.Statement{Tag: "CREATE SCHEMA", Text: "CREATE SCHEMA app", DDL: &plan.DDL{Op: "create schema", AllShards: true}})
	o := c.options()
	o.Prelude = []string{"SET search_path = app", "SET DateStyle = 'German'", "SET application_name = 'x'"}
	st := create("t", "k bigint PRIMARY KEY, d date DEFAULT '1.2.2020'", "k")
	st.DDL.Create.Schema = "app"
	if err := c.one(o, st); err != nil {
		t.Fatal(err)
	}
	c.must(create("u", "k bigint PRIMARY KEY", "k"))
	c.agree()
	snap := c.snap()
	c.install("new", pgtest.Database(t), snap.State().Cluster)
	conn, release, err := c.connect(ctx, "new")
	if err != nil {
		t.Fatal(err)
	}
	defer release(false)
	entries, err := History(ctx, c.dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range []string{"first", "again"} {
		if _, err := engine.Exec(conn, "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if err := Replay(ctx, conn, "new", false, snap, entries); err != nil {
			t.Fatal(round, err)
		}
		if _, err := engine.Exec(conn, "COMMIT"); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.query("new", "SELECT column_default FROM information_schema.columns WHERE table_schema = 'app' AND table_name = 't' AND column_name = 'd'").Rows[0][0].String; !strings.Contains(got, "2020-02-01") {
		t.Fatalf("the default is %s", got)
	}
	if !c.has("new", "public.u") {
		t.Fatal("u is not in public")
	}
	if _, err := c.try("new", "INSERT INTO app.t VALUES (1)"); sqlstate.CodeOf(err) != sqlstate.NotOwner {
		t.Fatalf("a shard outside the map took a row: %v", err)
	}
}

// TestJoinsOpenTransaction: a change joins the transaction that the session has
// open, on whichever shard that is, and ends it with its own.
func TestJoinsOpenTransaction(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 3)
	c.must(create("orders", orders, "tenant_id"))
	ctx := context.Background()
	for i, end := range []string{"commit", "rollback", "savepoint"} {
		conn, release, err := c.connect(ctx, "shard-2")
		if err != nil {
			t.Fatal(err)
		}
		insert := "INSERT INTO orders SELECT g, 1 FROM generate_series(1, 200) g WHERE g = %d"
		if _, err := engine.Exec(conn, "BEGIN"); err != nil {
			t.Fatal(err)
		}
		key := 0
		for k := 1; key == 0; k++ { // the first key that shard-2 owns
			if _, err := engine.Exec(conn, "SAVEPOINT a"); err != nil {
				t.Fatal(err)
			}
			if _, err := engine.Exec(conn, fmt.Sprintf(insert, k)); err == nil {
				key = k
			} else if _, err := engine.Exec(conn, "ROLLBACK TO a"); err != nil {
				t.Fatal(err)
			}
		}
		o := c.options()
		o.Open = map[string]engine.Conn{"shard-2": conn}
		tx := c.begin(o)
		if end == "savepoint" {
			if err := tx.Savepoint(ctx, "s"); err != nil {
				t.Fatal(err)
			}
		}
		// The change itself needs the default shard only.
		if _, _, err := tx.Exec(ctx, create(fmt.Sprintf("w%d", i), "a int")); err != nil {
			t.Fatal(err)
		}
		want := "1"
		switch end {
		case "commit":
			err = tx.Commit(ctx)
		case "rollback":
			tx.Rollback(ctx)
			want = "0"
		case "savepoint":
			if _, err := engine.Exec(conn, "DELETE FROM orders"); err != nil {
				t.Fatal(err)
			}
			if err := tx.RollbackTo(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			err = tx.Commit(ctx)
		}
		if err != nil {
			t.Fatal(end, err)
		}
		if got := c.query("shard-2", fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", key)).Rows[0][0].String; got != want {
			t.Fatalf("%s: %s rows", end, got)
		}
		if c.has("shard-0", fmt.Sprintf("w%d", i)) != (end == "commit") {
			t.Fatalf("%s: the table", end)
		}
		res, err := engine.Exec(conn, "SELECT 1")
		if err != nil || res.Status != 'I' {
			t.Fatalf("%s: the conversation is left at %c, %v", end, res.Status, err)
		}
		release(false)
		c.query("shard-2", fmt.Sprintf("DELETE FROM orders WHERE tenant_id = %d", key))
		c.agree()
	}
}

func TestStaleAnalysis(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	c.must(create("t", orders, "tenant_id"))
	// Analysed when the table was not known yet: for the default shard alone.
	code(t, c.one(c.options(), drop(false, "t")), sqlstate.SerializationFailure)
	if !c.has("shard-0", "t") {
		t.Fatal("dropped on the default shard")
	}
	c.agree()
}

// TestConcurrentIndexAfterACrash: a router died in the middle, so that one shard has the index, one
// an invalid one, one none. The same statement with IF NOT EXISTS makes it whole.
func TestConcurrentIndexAfterACrash(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 3)
	c.must(create("t", orders, "tenant_id"))
	c.query("shard-0", "CREATE INDEX t_note ON t (note)")
	c.query("shard-1", "CREATE INDEX t_note ON t (note)")
	c.super("shard-1", "UPDATE pg_index SET indisvalid = false, indisready = false WHERE indexrelid = 't_note'::regclass")
	st := index("t", "CREATE INDEX CONCURRENTLY IF NOT EXISTS t_note ON t (note)")
	st.DDL.Concurrent = true
	st.DDL.Op, st.DDL.Index = "create index", &plan.TableName{Schema: "public", Name: "t_note"}
	c.must(st)
	for name := range c.shards {
		res := c.query(name, "SELECT indisvalid AND indisready FROM pg_index WHERE indexrelid = 't_note'::regclass")
		if len(res.Rows) != 1 || res.Rows[0][0].String != "t" {
			t.Errorf("%s: %v", name, res.Rows)
		}
	}
}

func TestConcurrentIndex(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	c.must(create("t", orders, "tenant_id"))
	st := index("t", "CREATE INDEX CONCURRENTLY t_note ON t (note)")
	st.DDL.Concurrent = true
	c.must(st)
	for name := range c.shards {
		if !c.has(name, "t_note") {
			t.Fatal("no index on " + name)
		}
	}
	c.agree()
	entries, err := History(context.Background(), c.dir, c.snap().Version()-1)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := ParseLedger(entries[0]); err != nil || list[0].Text != "CREATE INDEX t_note ON t (note)" {
		t.Fatal(list, err)
	}
	st = index("t", "CREATE UNIQUE INDEX CONCURRENTLY t_u ON t (note)")
	st.DDL.Concurrent = true
	code(t, c.one(c.options(), st), sqlstate.FeatureNotSupported)
	// A failure in between says where it stopped.
	c.query("shard-1", "CREATE INDEX t_n2 ON t (id)")
	st = index("t", "CREATE INDEX CONCURRENTLY t_n2 ON t (note)")
	st.DDL.Concurrent = true
	e := code(t, c.one(c.options(), st), sqlstate.DuplicateTable)
	if !strings.Contains(e.Detail, "Done on shard-0; not done on shard-1") || e.Hint == "" {
		t.Fatal(e)
	}
}
