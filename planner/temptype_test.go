package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestTypesOf: names of types are those without a schema and of pg_temp, wherever they are in a statement.
func TestTypesOf(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT 'a'::mood, b::pg_temp.pair, c::public.size, 1::bigint, mood 'b', 'x'::date[]":            "mood pair date",
		"SELECT * FROM jsonb_to_record('{}') AS x (a mood), json_table('{}', '$' COLUMNS (b size)) AS y": "mood size",
		"SELECT 'mood'::regtype": "regtype *",
		"SELECT to_regtype($1)":  "*",
		"CREATE FUNCTION f(a mine.b%TYPE, c pg_temp_3.pair) RETURNS SETOF mood LANGUAGE sql AS 'SELECT 1'": "mine pair mood",
		"ALTER TYPE mood ADD VALUE 'x'":                     "mood",
		"ALTER TYPE pg_temp.pair ADD ATTRIBUTE a size":      "size pair",
		"ALTER TYPE pair RENAME TO other":                   "pair",
		"DROP DOMAIN a, public.b":                           "a",
		"COMMENT ON CONSTRAINT c ON DOMAIN grade IS 'x'":    "grade",
		"GRANT USAGE ON TYPE mood TO PUBLIC":                "mood",
		"ALTER DOMAIN public.d OWNER TO x":                  "",
		"CREATE TYPE mood AS ENUM ('a')":                    "",
		"PREPARE p (mood) AS SELECT $1":                     "mood",
		"DO $$ BEGIN PERFORM 'a'::mood; END $$":             "*",
		"CREATE TABLE t (a mood DEFAULT 'x'::size, b text)": "mood size text",
	} {
		tree, err := New(Limits{}).parse(sql)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		got := typesOf(tree.Stmts[0].Stmt) // in an order that each binary has of its own: protobuf's Range makes it so
		if list := strings.Fields(want); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(list))) {
			t.Errorf("%s: %q, want %q", sql, got, list)
		}
	}
}

// TestTempTypesOnSQLite: a SQLite file has none.
func TestTempTypesOnSQLite(t *testing.T) {
	state := testState(t)
	for i := range state.Shards {
		state.Shards[i].Engine = "sqlite"
	}
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"CREATE TYPE pg_temp.n AS ENUM ('a')", "CREATE TYPE pg_temp.n AS (a int)", "CREATE TYPE pg_temp.n AS RANGE (SUBTYPE = int)", "CREATE DOMAIN pg_temp.n AS int", "ALTER TYPE pg_temp.n RENAME TO m"} {
		if _, err := New(Limits{}).Analyze(sql, snap, []string{"public"}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported || !strings.Contains(err.Error(), "SQLite") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
