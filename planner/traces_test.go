package planner

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/shardmap"
)

// TestTraces: what is not on the list is not proved to leave nothing in a shard's session.
func TestTraces(t *testing.T) {
	for name := range semantics.Traceless {
		if kind := builtin.Kind(name); kind != "" && !strings.HasPrefix(kind, "v") {
			t.Errorf("%s() is not volatile: %q", name, kind)
		}
	}
	state := testState(t)
	state.Functions = []shardmap.Function{{Schema: "public", Name: "known", Kind: "f"}, {Schema: "public", Name: "moves", Kind: "f", Volatile: true}}
	at := func(change func(*shardmap.State)) *shardmap.Snapshot {
		s := state.Clone()
		change(&s)
		snap, err := shardmap.NewSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	usual := at(func(*shardmap.State) {})
	for _, c := range []struct {
		sql    string
		snap   *shardmap.Snapshot
		traces bool
	}{
		{"SELECT 1", usual, false}, {"SELECT random(), now()", usual, false}, {"SELECT id FROM notes WHERE id = 1", usual, false}, {"INSERT INTO notes VALUES (1)", usual, false},
		{"SELECT * FROM pg_class", usual, false}, {"SELECT pg_advisory_xact_lock(1)", usual, false}, {"EXPLAIN SELECT * FROM notes", usual, false}, {"DECLARE c CURSOR FOR SELECT 1", usual, false},
		{"SET work_mem = '1MB'", usual, false}, {"BEGIN", usual, false}, {"SELECT known() FROM notes", usual, false}, {"NOTIFY x", usual, false}, {"LOCK TABLE notes", usual, false},
		{"SELECT moves()", usual, true}, {"SELECT id FROM notes WHERE moves() = 1", usual, true}, {"SELECT pg_advisory_unlock_all()", usual, true}, {"SELECT pg_stat_clear_snapshot()", usual, true},
		{"VACUUM notes", usual, true}, {"EXPLAIN ANALYZE SELECT moves()", usual, true}, {"DECLARE c CURSOR FOR SELECT moves()", usual, true}, {"COPY (SELECT moves()) TO STDOUT", usual, true},
		{"UPDATE notes SET id = 2", at(func(s *shardmap.State) { s.Acting = true }), true}, {"SELECT 1", at(func(s *shardmap.State) { s.Acting = true }), false},
		{"UPDATE notes SET id = 2", at(func(s *shardmap.State) { s.FunctionsRead = 1 }), true}, {"SELECT * FROM pg_class", at(func(s *shardmap.State) { s.FunctionsRead = 0 }), false},
		{"SELECT * FROM unheard", at(func(s *shardmap.State) { s.Acting = true }), true},
	} {
		st, err := New(Limits{}).Analyze(c.sql, c.snap, []string{"public"})
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
		} else if st.Traces != c.traces {
			t.Errorf("%s: traces: %v", c.sql, st.Traces)
		}
	}
}

// TestActingFunctions: what cannot be read, runs texts, acts on its session, or calls what does.
func TestActingFunctions(t *testing.T) {
	plpgsql := func(name, body string) functions.Source {
		return functions.Source{Schema: "s", Name: name, Kind: "f", Volatility: "v", Language: "plpgsql",
			Body: "CREATE FUNCTION s." + name + "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + body + " RETURN NEW; END $$"}
	}
	got := map[string]bool{}
	for _, f := range functions.Acting([]functions.Source{
		plpgsql("quiet", "NEW.a := 1;"), plpgsql("writes", "INSERT INTO log VALUES (1);"), plpgsql("runs", "EXECUTE 'SET work_mem = 1';"),
		plpgsql("sets", "PERFORM set_config('a.b', 'x', false);"), plpgsql("direct", "SET work_mem = '1MB';"), plpgsql("locks", "PERFORM pg_advisory_lock(1);"),
		{Schema: "s", Name: "calls", Kind: "f", Language: "sql", Body: "SELECT s.sets()"}, {Schema: "s", Name: "plain", Kind: "f", Language: "sql", Body: "SELECT 1"},
		{Schema: "s", Name: "unread", Kind: "f", Language: "plpython3u"}, {Schema: "s", Name: "inside", Kind: "f", Language: "internal"},
		{Schema: "s", Name: "gis", Kind: "f", Language: "c", Extension: "postgis"}, {Schema: "s", Name: "versioning", Kind: "f", Language: "c", Extension: "temporal_tables", Trigger: true},
	}) {
		got[f[1]] = true
	}
	for name, want := range map[string]bool{"quiet": false, "writes": false, "runs": true, "sets": true, "direct": true, "locks": true, "calls": true, "plain": false,
		"unread": true, "inside": true, "gis": false, "versioning": true} {
		if got[name] != want {
			t.Errorf("%s: acting: %v", name, got[name])
		}
	}
}
