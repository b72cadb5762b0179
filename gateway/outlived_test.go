package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestTypesMadeAgain: a statement that other sessions have prepared is parsed anew for a session that comes after a
// type, domain or function of it was dropped and made again, as each session of PostgreSQL parses for itself; also if
// that was done on the shards directly.
func TestTypesMadeAgain(t *testing.T) {
	cl := start(t, config{})
	ctx := context.Background()
	pg := plainConn(t)
	conn := cl.connect(t)
	const enum = `CREATE TYPE t1 AS ENUM ('a', 'b')`
	for _, k := range []struct{ kind, make, sql string }{
		{"TYPE t1", enum, `SELECT $1::text::t1::text`},
		{"TYPE t1", enum, `SELECT 'a'::t1, $1::text`},
		{"TYPE t1", enum, `SELECT ARRAY['a', $1::text]::t1[]::text`},
		{"TYPE t2", `CREATE TYPE t2 AS (a int, b text)`, `SELECT (ROW(1, $1::text)::t2).b`},
		{"DOMAIN t3", `CREATE DOMAIN t3 AS text CHECK (value <> 'x')`, `SELECT $1::text::t3::text`},
		{"TYPE t4", `CREATE TYPE t4 AS RANGE (subtype = int4)`, `SELECT ('[1,' || length($1::text) + 2 || ')')::t4::text`},
		{"FUNCTION f5(text)", `CREATE FUNCTION f5(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT $1$$`, `SELECT f5($1)`},
	} {
		exec(t, pg, k.make)
		want := first(t, pg, k.sql, pgx.QueryExecModeExec, "a")
		exec(t, pg, "DROP "+k.kind)
		for _, directly := range []bool{false, true} {
			if directly && strings.HasPrefix(k.kind, "FUNCTION") {
				continue // the map would not know it
			}
			for round := range 3 {
				run := func(sql string) {
					if !directly {
						exec(t, conn, sql)
						return
					}
					for shard := range cl.shards {
						cl.direct(t, shard, sql)
					}
				}
				run(k.make)
				for range 5 {
					s := cl.connect(t, "&default_query_exec_mode=cache_statement")
					for range 2 {
						if got := first(t, s, k.sql, "a"); got != want {
							t.Fatalf("%s, directly %v, round %d: %q; want %q", k.sql, directly, round, got, want)
						}
					}
					_ = s.Close(ctx)
				}
				run("DROP " + k.kind)
			}
		}
	}
}

// first is the first value of a statement's rows, as it came.
func first(t testing.TB, conn *pgx.Conn, sql string, args ...any) (value string) {
	t.Helper()
	rows, err := conn.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for rows.Next() {
		value = string(rows.RawValues()[0])
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}
