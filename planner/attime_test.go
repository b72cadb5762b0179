package planner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestAtTime: the time of a transaction over several shards is written into what one of them runs.
func TestAtTime(t *testing.T) {
	t.Parallel()
	state := testState(t)
	state.Tables = append(state.Tables, shardmap.Table{Schema: "public", Name: "stamps", Kind: shardmap.Sharded, Keyspace: "hash_bigint", ShardKey: []string{"k"},
		Columns: []shardmap.Column{{Name: "k", OID: 20, Type: "bigint"}, {Name: "made", OID: 1184, Type: "timestamp with time zone", Clocked: "now()"}, {Name: "v", OID: 25, Type: "text"}}})
	state.FunctionsRead = semantics.FunctionRules
	state.Functions = append(state.Functions, shardmap.Function{Schema: "public", Name: "tick", Kind: "f", Clocked: true})
	state.Views = append(state.Views, shardmap.View{Schema: "public", Name: "recent", Definition: "SELECT notes.body FROM public.notes WHERE (now() > '2024-01-01'::timestamp)"})
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Limits{})
	const refused = "refused"
	for sql, want := range map[string]string{
		"SELECT * FROM orders WHERE tenant_id = 5":                                    "",
		"SELECT clock_timestamp(), app.now() FROM orders WHERE tenant_id = 5":         "-", // not understood at all
		"SELECT now() FROM orders WHERE tenant_id = $1":                               "SELECT ($2::timestamptz) AS now FROM orders WHERE tenant_id = $1",
		"SELECT 'now'::timestamp, 'tomorrow'::date FROM orders WHERE tenant_id = 5":   "SELECT $1::timestamptz::timestamp AS \"timestamp\", ($1::timestamptz::date + 1)::date AS date FROM orders WHERE tenant_id = 5",
		"INSERT INTO stamps VALUES (1)":                                               "INSERT INTO stamps (k, made) VALUES (1, $1::timestamptz)",
		"INSERT INTO stamps (v, k) VALUES ('x', $1)":                                  "INSERT INTO stamps (v, k, made) VALUES ('x', $1, $2::timestamptz)",
		"INSERT INTO stamps VALUES (1, DEFAULT)":                                      "INSERT INTO stamps (k, made) VALUES (1, $1::timestamptz)",
		"INSERT INTO stamps VALUES (1, '2024-01-01', 'x')":                            "",
		"INSERT INTO stamps (k) SELECT 1":                                             "INSERT INTO stamps (k, made) SELECT 1, $1::timestamptz AS cleave_default_made",
		"INSERT INTO stamps (k, v) SELECT 1, 'a' UNION ALL SELECT 1, 'b'":             "INSERT INTO stamps (k, v, made) SELECT 1, 'a', $1::timestamptz AS cleave_default_made UNION ALL SELECT 1, 'b', $1::timestamptz AS cleave_default_made",
		"UPDATE stamps SET made = DEFAULT WHERE k = 1":                                "UPDATE stamps SET made = $1::timestamptz WHERE k = 1",
		"UPDATE stamps SET v = 'x' WHERE k = 1":                                       "",
		"WITH n AS (INSERT INTO stamps VALUES (1) RETURNING made) SELECT made FROM n": "WITH n AS (INSERT INTO stamps (k, made) VALUES (1, $1::timestamptz) RETURNING made) SELECT made FROM n",
		"SELECT tick() FROM orders WHERE tenant_id = 5":                               refused,
		"SELECT * FROM recent":                                                        refused,
		"SELECT * FROM note_bodies":                                                   "",
		"INSERT INTO stamps SELECT * FROM stamps WHERE k = 1":                         refused,
		"INSERT INTO unknown VALUES (1)":                                              refused,
		"EXPLAIN SELECT now() FROM orders WHERE tenant_id = 5":                        "",
		"SELECT v::date FROM stamps WHERE k = 1":                                      "SELECT CASE WHEN textregexeqv::text COLLATE \"C\", '[wWyY]' THEN regexp_replacev::text COLLATE \"C\", 'now|today|tomorrow|yesterday', E'cleave_time_word \\\\&', 'i' ELSE v END::date FROM stamps WHERE k = 1",
		"SELECT made::date, '2024-01-01'::date, date(made) FROM stamps WHERE k = 1":   "",
		"UPDATE stamps SET made = $1, v = $2::text::date WHERE k = 1":                 "UPDATE stamps SET made = $1, v = CASE WHEN textregexeq$2::text::text COLLATE \"C\", '[wWyY]' THEN regexp_replace$2::text::text COLLATE \"C\", 'now|today|tomorrow|yesterday', E'cleave_time_word \\\\&', 'i' ELSE $2::text END::date WHERE k = 1",
		"EXPLAIN ANALYZE SELECT v::date FROM stamps WHERE k = 1":                      refused,
	} {
		st, err := p.Analyze(sql, snap, []string{"public"})
		if err != nil {
			if want != "-" {
				t.Errorf("%s: %v", sql, err)
			}
			continue
		}
		got, _, _, err := p.AtTime(st, snap, []string{"public"})
		if sqlstate.CodeOf(err) == sqlstate.FeatureNotSupported {
			got = refused
		} else if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		if strings.NewReplacer("(", "", ")", "", "pg_catalog.", "", "timestamp with time zone", "timestamptz").Replace(got) != strings.NewReplacer("(", "", ")", "").Replace(want) {
			t.Errorf("%s:\n got %s\nwant %s", sql, got, want)
		}
	}
	// Over several shards such a function is refused: each would have its own time.
	if _, err := p.Analyze("SELECT tick() FROM orders", snap, []string{"public"}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("a function that takes the time, over several shards: %v", err)
	}
}

// TestClockedFunctions: what uses the transaction's time, by itself or through others.
func TestClockedFunctions(t *testing.T) {
	t.Parallel()
	source := func(name, volatility, language, body string) functions.Source {
		return functions.Source{Schema: "public", Name: name, Kind: "f", Volatility: volatility, Language: language, Body: body}
	}
	got := map[string]bool{}
	for _, f := range functions.Pure([]functions.Source{
		source("plain", "v", "sql", "SELECT 1"),
		source("stamp", "s", "sql", "SELECT CURRENT_TIMESTAMP"),
		source("outer_stamp", "s", "sql", "SELECT stamp() - interval '1 day'"),
		source("word", "s", "sql", "SELECT 'now'::date"),
		source("sworn", "i", "sql", "SELECT now()"),
		source("touch", "v", "plpgsql", "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed := now(); RETURN NEW; END $$"),
	}) {
		got[f.Name] = f.Clocked
	}
	for name, want := range map[string]bool{"plain": false, "stamp": true, "outer_stamp": true, "word": true, "sworn": false, "touch": true} {
		if clocked, known := got[name]; !known || clocked != want {
			t.Errorf("%s: clocked %v (known %v), want %v", name, clocked, known, want)
		}
	}
}

// TestPureFunctions: what the defaults of parameters, session-changing calls and bodies as the standard has them make of a function.
func TestPureFunctions(t *testing.T) {
	t.Parallel()
	code := func(name, volatility, head, body string) functions.Source {
		return functions.Source{Schema: "public", Name: name, Kind: "f", Volatility: volatility, Language: "plpgsql", Types: []int64{int64(pgoid.Text)},
			Body: "CREATE FUNCTION " + name + "() RETURNS " + head + " LANGUAGE plpgsql AS $$ " + body + " $$"}
	}
	plain := func(name, volatility, body, defaults string, args int, types ...int64) functions.Source {
		return functions.Source{Schema: "public", Name: name, Kind: "f", Volatility: volatility, Language: "sql", Body: body, Defaults: defaults, Args: args, Types: types}
	}
	got := map[string]string{}
	for _, f := range functions.Pure([]functions.Source{
		plain("late", "i", "SELECT t", "now()", 2),
		plain("later", "s", "SELECT late(1)", "", 0),
		plain("fixed", "i", "SELECT t", "1, 'now'::text", 2),
		plain("drawn", "i", "SELECT t", "random()", 1),
		plain("here", "i", "SELECT t", "current_database()", 1),
		plain("calls_here", "s", "SELECT here()", "", 0),
		plain("listed", "i", "SELECT set_config('search_path', x, false)", "", 1),
		plain("calls_listed", "i", "SELECT listed('x')", "", 0),
		plain("seen", "i", "SELECT count(*) FROM orders", "", 0), // believed
		plain("transaction_timestamp", "i", "SELECT nextval('s')", "", 0),
		plain("atomic", "s", "BEGIN ATOMIC\n SELECT 1;\n SELECT now();\nEND", "", 0),
		plain("returned", "s", "RETURN (a + 1)", "", 1),
		plain("atomic_table", "s", "BEGIN ATOMIC\n SELECT count(*) FROM orders;\nEND", "", 0),
		plain("json", "s", `SELECT ts FROM jsonb_to_record('{"ts":"now"}') AS x(ts timestamptz)`, "", 0, 1184),
		plain("word", "s", "SELECT 'now'", "", 0, 1184),
		plain("text_word", "s", "SELECT upper('today')", "", 0, int64(pgoid.Text)),
		plain("begun", "s", "SELECT statement_timestamp()", "", 0, 1184),
		code("secret", "i", "int", "BEGIN PERFORM set_config('x.y', 'z', false); RETURN 1; END"),
		code("locked", "i", "int", "BEGIN PERFORM pg_advisory_lock(1); RETURN 1; END"),
		code("dynamic", "i", "int", "BEGIN EXECUTE 'SELECT 1'; RETURN 1; END"),
		code("dynamic_rows", "s", "SETOF int", "BEGIN RETURN QUERY EXECUTE 'SELECT k FROM orders'; END"),
		code("plain_rows", "s", "SETOF int", "BEGIN RETURN QUERY SELECT 1; END"),
		code("cursed", "i", "int", "DECLARE c CURSOR FOR SELECT 1; BEGIN FOR r IN c LOOP NULL; END LOOP; RETURN 1; END"),
		code("declared", "s", "text", "DECLARE x timestamptz := 'now'; BEGIN RETURN x; END"),
		code("label", "s", "text", "DECLARE x text := 'now'; BEGIN RETURN x; END"),
		code("label_cast", "s", "text", "DECLARE x text := 'now'; BEGIN RETURN x::timestamptz; END"),
	}) {
		got[f.Name] = strings.TrimSpace(fmt.Sprint(f.Kind, " ", map[bool]string{true: "volatile "}[f.Volatile], map[bool]string{true: "clocked "}[f.Clocked]))
		if f.ClockedBelow > 0 {
			got[f.Name] += fmt.Sprint(" below ", f.ClockedBelow)
		}
	}
	want := map[string]string{"late": "f below 2", "later": "f clocked", "fixed": "f", "drawn": "f volatile", "seen": "f", "transaction_timestamp": "u", "here": "u", "listed": "u", "atomic": "f clocked", "returned": "f", "json": "f clocked",
		"word": "f clocked", "text_word": "f", "begun": "f clocked", "plain_rows": "f", "cursed": "f", "declared": "f clocked", "label": "f", "label_cast": "f clocked"}
	for name, is := range got {
		if want[name] != is {
			t.Errorf("%s is %q, want %q", name, is, want[name])
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is not known", name)
		}
	}
}
