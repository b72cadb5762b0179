package gateway_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/gateway"
)

// ownOID is the number of a user-defined type in a description.
var ownOID = regexp.MustCompile(`:[1-9][0-9]{4,}`)

// ask runs statements on both sides. One that begins with "no: " the router has to refuse, and PostgreSQL does not run it.
func (b *beside) ask(sqls ...string) {
	b.t.Helper()
	for _, sql := range sqls {
		if refused, no := strings.CutPrefix(sql, "no: "); no {
			if got := rowsOf(b.t, b.router, refused, false); !strings.HasPrefix(got, "error 0A000 ") {
				b.t.Errorf("%s\n  router: %s", refused, got)
			}
			continue
		}
		got, want := ownOID.ReplaceAllString(rowsOf(b.t, b.router, sql, false), ":own"), ownOID.ReplaceAllString(rowsOf(b.t, b.plain, sql, false), ":own")
		if got != want {
			b.t.Errorf("%s\n  router:     %s\n  PostgreSQL: %s", sql, got, want)
		}
	}
}

// besideTypes is a router with sharded, reference and unsharded tables and a type of all sessions, and one PostgreSQL with the same.
func besideTypes(t *testing.T, c config) (*cluster, *beside, [][]int64) {
	cl, conn, keys := orders(t, c)
	b := newBeside(t, conn)
	exec(t, b.plain, strings.Replace(ordersTable, " WITH (cleave.shard_key = 'tenant_id')", "", 1))
	b.both("CREATE TABLE kinds (id int PRIMARY KEY, label text)", " WITH (cleave.reference = true)")
	b.both("CREATE TABLE plain (id int PRIMARY KEY, note text)", "")
	b.both("CREATE TYPE size AS ENUM ('small', 'large')", "")
	for _, rows := range []string{fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'low'), (%d, 2, 'high')", keys[1][0], keys[2][0]),
		"INSERT INTO kinds VALUES (1, 'low'), (2, 'high')", "INSERT INTO plain VALUES (1, 'high'), (2, 'low')"} {
		b.both(rows, "")
	}
	return cl, b, keys
}

// TestTemporaryTypes: types in pg_temp are the session's, and do there what they do in PostgreSQL. Where a statement runs elsewhere it is
// refused, whether the name means another type there or none.
func TestTemporaryTypes(t *testing.T) {
	_, b, keys := besideTypes(t, config{executor: limitsOf(4)})
	b.ask(
		"CREATE TYPE pg_temp.mood AS ENUM ('low', 'mid', 'high')",
		"CREATE TYPE pg_temp.mood AS ENUM ('other')",
		"CREATE TYPE pg_temp.pair AS (a int, b mood)",
		"CREATE DOMAIN pg_temp.grade AS int DEFAULT 3 CHECK (VALUE BETWEEN 1 AND 6)",
		"CREATE TYPE pg_temp.moodrange AS RANGE (subtype = mood)",
		"SELECT 'low'::mood < 'high'::mood, 'mid'::pg_temp.mood, '{low,high}'::mood[], mood 'low', enum_range(NULL::mood)",
		"SELECT ROW(1, 'low')::pair, (ROW(2, 'high')::pg_temp.pair).b, '(3,mid)'::pair",
		"SELECT '5'::grade, 7::grade", "SELECT '5'::grade + 1",
		"SELECT pg_temp.moodrange('low', 'high'), 'mid'::mood <@ '[low,high)'::moodrange, '{[low,mid]}'::moodmultirange",
		"SELECT 'nothing'::mood", "SELECT mood('low')", "SELECT pg_temp.mood('low')",
		"CREATE TEMP TABLE felt (id int, m mood, p pair, g grade, r moodrange)",
		"INSERT INTO felt VALUES (1, 'mid', '(1,low)', DEFAULT, '[low,mid)')", "INSERT INTO felt VALUES (2, 'high', NULL, 9, NULL)",
		"SELECT * FROM felt", "SELECT (p).b FROM felt WHERE m >= 'mid'", "SELECT felt FROM felt", "SELECT ROW(1, 'mid', '(1,low)', 3, '[low,mid)')::felt",
		"SELECT 'mood'::regtype, to_regtype('pg_temp.pair'), pg_typeof('low'::mood)",
		"SELECT label::mood FROM kinds ORDER BY label::mood", "SELECT note::mood FROM plain ORDER BY 1", "SELECT p.note::mood, k.id FROM plain p JOIN kinds k ON k.label::mood = p.note::mood ORDER BY 1",
		"SELECT x.a, x.b FROM jsonb_to_record('{\"a\": \"mid\", \"b\": 4}') AS x (a mood, b grade)",
		"PREPARE p (mood) AS SELECT $1, $1 > 'low'", "EXECUTE p('mid')", "EXECUTE p('wrong')", "DEALLOCATE p",
		"CREATE FUNCTION pg_temp.worse(m mood) RETURNS mood LANGUAGE sql AS $$ SELECT CASE m WHEN 'high' THEN 'mid' ELSE 'low' END::mood $$", "SELECT pg_temp.worse('high')",
		"ALTER TYPE pg_temp.mood ADD VALUE 'top' AFTER 'high'", "SELECT 'top'::mood > 'high'", "ALTER TYPE mood RENAME VALUE 'top' TO 'best'", "SELECT 'best'::mood",
		"ALTER TYPE pg_temp.pair ADD ATTRIBUTE c text", "ALTER TYPE pair RENAME ATTRIBUTE c TO d", "SELECT (NULL::pair).d",
		"ALTER DOMAIN grade ADD CHECK (VALUE <> 5)", "SELECT 5::grade", "ALTER DOMAIN pg_temp.grade SET DEFAULT 2",
		"CREATE DOMAIN pg_temp.past AS timestamptz", "ALTER DOMAIN past ADD CHECK (VALUE <= 'now'::timestamptz)", "SELECT 'yesterday'::past < now(), 'today'::past < now()", "SELECT 'tomorrow'::past",
		"COMMENT ON TYPE pg_temp.mood IS 'a mood'", "COMMENT ON DOMAIN grade IS 'a grade'", "SELECT obj_description('mood'::regtype, 'pg_type'), obj_description('grade'::regtype, 'pg_type')",
		"GRANT USAGE ON TYPE pg_temp.mood TO PUBLIC", "ALTER TYPE pg_temp.mood SET SCHEMA public", "ALTER DOMAIN grade SET SCHEMA public",
		"ALTER TYPE pair RENAME TO couple", "SELECT NULL::pair", "SELECT NULL::couple", "SELECT * FROM couple", "ALTER DOMAIN pg_temp.grade RENAME TO mark", "SELECT 4::mark", "SELECT 4::grade",
		"DROP TYPE pg_temp.mood", "DROP TYPE mark", "DROP DOMAIN mark", "DROP DOMAIN mark CASCADE", "SELECT * FROM felt",
		"COPY (SELECT 'low'::mood) TO STDOUT",
		"BEGIN", "DECLARE c CURSOR FOR SELECT 'low'::mood", "FETCH c", "COMMIT",
	)
	one := fmt.Sprintf(" FROM orders WHERE tenant_id = %d", keys[1][0])
	for _, name := range []string{"mood", "pg_temp.mood", "_mood", "mood[]", "couple", "felt", "_felt", "moodmultirange"} {
		b.ask("no: SELECT NULL::"+name+one, "no: SELECT NULL::"+name+" FROM orders", "no: SELECT NULL::"+name+" FROM cleave.shards", "no: CREATE TABLE t (m "+name+")", "no: ALTER TABLE orders ADD m "+name,
			"no: ALTER TABLE plain ADD m "+name, "no: CREATE VIEW v AS SELECT NULL::"+name, "no: UPDATE kinds SET label = NULL::"+name)
	}
	b.ask("no: CREATE DOMAIN d AS mood", "no: CREATE TYPE d AS (m mood)", "no: CREATE FUNCTION f(m mood) RETURNS int LANGUAGE sql AS 'SELECT 1'", "no: CREATE FUNCTION f(m felt.id%TYPE) RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"no: SELECT 'mood'::regtype"+one, "no: CREATE TEMP TABLE t AS SELECT note::mood FROM orders", "no: CREATE TYPE pg_temp.size AS (a int)", "no: CREATE DOMAIN pg_temp.date AS text", "no: CREATE TYPE pg_temp.orders AS (a int)",
		"no: CREATE DOMAIN pg_temp.plain AS int", "no: ALTER TYPE mood RENAME TO size", "no: ALTER TYPE pg_temp.mood RENAME TO size", "no: DROP TYPE mood, size", "no: DROP TYPE pg_temp.mood, size",
		"no: CREATE TYPE pg_temp.r AS RANGE (subtype = int, multirange_type_name = m)", "no: DO $$ BEGIN CREATE TYPE pg_temp.x AS ENUM ('a'); END $$")
	// The tables of a transaction that is on another shard, or on several.
	b.ask("BEGIN", "UPDATE orders SET note = note"+strings.TrimPrefix(one, " FROM orders"), "no: SELECT 'low'::mood", "ROLLBACK",
		"BEGIN", "UPDATE orders SET note = note", "no: DROP TYPE IF EXISTS mood", "ROLLBACK", "SELECT 'low'::mood",
		"BEGIN", "SELECT 'low'::mood", "UPDATE orders SET note = note", "SELECT 'low'::mood", "ROLLBACK")
	// Another session has none of them, and may make its own.
	other := newBesideOf(t, b)
	other.ask("SELECT 'low'::mood", "CREATE TYPE pg_temp.mood AS ENUM ('mine')", "SELECT 'mine'::mood", "SELECT 'low'::mood")
	// One that all sessions have comes to be beside it.
	exec(t, other.router, "CREATE TYPE public.mood AS ENUM ('public')")
	exec(t, other.plain, "CREATE TYPE public.mood AS ENUM ('public')")
	b.ask("SELECT 'low'::mood", "SELECT 'public'::mood", "SELECT 'public'::public.mood"+one, "no: SELECT 'public'::mood"+one, "no: SELECT 'low'::mood"+one, "DROP TYPE mood CASCADE", "SELECT 'public'::mood", "SELECT * FROM felt")
	b.ask("DISCARD ALL", "SELECT NULL::couple", "SELECT 'public'::mood"+one)
	for _, c := range []*pgx.Conn{other.router, other.plain, b.router} {
		_ = c.Close(context.Background())
	}
}

// TestTemporaryTypesKeepNoConnection: those that were dropped, or whose making was rolled back, keep none, and nothing of them is left.
func TestTemporaryTypesKeepNoConnection(t *testing.T) {
	_, b, _ := besideTypes(t, config{limits: gateway.Limits{PinnedMax: 1}, executor: limitsOf(4)})
	other := newBesideOf(t, b)
	for _, sqls := range [][]string{
		{"BEGIN", "CREATE TYPE pg_temp.mood AS ENUM ('low')", "SELECT 'low'::mood", "ROLLBACK", "SELECT 'low'::mood"},
		{"BEGIN", "CREATE TYPE pg_temp.mood AS ENUM ('low')", "SELECT 1/0", "COMMIT", "SELECT 'low'::mood"},
		{"BEGIN", "SAVEPOINT s", "CREATE DOMAIN pg_temp.mood AS text", "SELECT 'low'::mood", "ROLLBACK TO s", "SELECT 1", "COMMIT", "SELECT 'low'::mood"},
		{"CREATE TYPE pg_temp.mood AS ENUM ('low'); SELECT 'low'::mood; SELECT 1/0", "SELECT 'low'::mood"},
		{"CREATE TYPE pg_temp.mood AS ENUM ('low'); SELECT 'low'::mood; DROP TYPE mood", "SELECT 'low'::mood"},
		{"CREATE TYPE pg_temp.mood AS (a nothing)", "SELECT NULL::mood"},
		{"CREATE TYPE pg_temp.mood AS (a int)", "SELECT NULL::mood", "DROP TYPE pg_temp.mood", "SELECT NULL::mood"},
		{"CREATE TYPE pg_temp.mood AS RANGE (subtype = int)", "DROP TYPE mood", "SELECT NULL::mood"},
		{"CREATE DOMAIN pg_temp.mood AS int", "DISCARD TEMP", "SELECT 1::mood"},
		{"CREATE DOMAIN pg_temp.mood AS int", "DISCARD ALL", "SELECT 1::mood"},
		{"ALTER TYPE pg_temp.mood RENAME TO other", "DROP TYPE IF EXISTS pg_temp.mood", "SELECT NULL::mood"},
	} {
		for _, s := range []*beside{b, other} {
			for _, sql := range sqls {
				if got, want := withoutSchema(rowsOf(t, s.router, sql, false)), withoutSchema(rowsOf(t, s.plain, sql, false)); got != want {
					t.Errorf("%q: %s\n  router:     %s\n  PostgreSQL: %s", sqls, sql, got, want)
				}
			}
		}
	}
	// What was rolled back is not taken for what another session has made since.
	exec(t, b.router, "CREATE TEMP TABLE kept (id int)")
	b.both("BEGIN", "")
	b.both("CREATE TYPE pg_temp.mood AS ENUM ('low')", "")
	b.both("ROLLBACK", "")
	exec(t, other.router, "CREATE TYPE mood AS ENUM ('public')")
	b.ask("no: DROP TYPE mood", "no: ALTER TYPE mood ADD VALUE 'x'", "no: SELECT 'public'::mood FROM orders")
	exec(t, b.router, "DROP TYPE public.mood")
}

// withoutSchema is an answer in which it does not matter whether a connection has had temporary objects before.
func withoutSchema(s string) string {
	if strings.HasPrefix(s, "error 3F000") || strings.HasPrefix(s, `error 42704 type "pg_temp.`) {
		return "nothing there"
	}
	return ownOID.ReplaceAllString(s, ":own")
}

// TestRowTypesOfTemporaryTables: a temporary table's row type hides a type of its name, where it is.
func TestRowTypesOfTemporaryTables(t *testing.T) {
	_, b, keys := besideTypes(t, config{executor: limitsOf(4)})
	one := fmt.Sprintf(" FROM orders WHERE tenant_id = %d", keys[1][0])
	b.ask("SELECT 'small'::size"+one, "SELECT date '2026-01-02'"+one,
		"CREATE TEMP TABLE size (a int, b text)", "CREATE TEMP VIEW date AS SELECT 1 AS n", "SELECT ROW(1, 'x')::size", "SELECT 'small'::size", "SELECT '(1)'::date", "SELECT date '2026-01-02'",
		"no: SELECT 'small'::size"+one, "no: SELECT '(1,x)'::size FROM orders", "no: SELECT date '2026-01-02'"+one, "no: CREATE TABLE t (s size)", "no: CREATE FUNCTION f(s size) RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"SELECT 'small'::public.size"+one, "SELECT pg_catalog.date '2026-01-02'"+one, "SELECT label::public.size FROM kinds WHERE id > 2",
		"SELECT ROW(id, label)::size FROM kinds ORDER BY 1", "DROP TABLE size", "DROP VIEW date", "SELECT 'small'::size"+one, "SELECT date '2026-01-02'"+one)
}

// TestRenamedTemporaryTables: a temporary table cannot get the name of a table of the map, and is known by its new name.
func TestRenamedTemporaryTables(t *testing.T) {
	_, b, keys := besideTypes(t, config{executor: limitsOf(4)})
	b.ask("CREATE TEMP TABLE mine (a int)", "INSERT INTO mine VALUES (5)", "no: ALTER TABLE mine RENAME TO orders", "no: ALTER TABLE mine RENAME TO kinds", "ALTER TABLE mine RENAME TO yours",
		fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d", keys[1][0]), "SELECT * FROM yours", "SELECT ROW(1)::yours", "ALTER TABLE yours ADD b int", "SELECT * FROM yours", "DROP TABLE yours", "SELECT * FROM yours")
}
