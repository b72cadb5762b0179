package timeinput_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/telemetry"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const cluster = "0b7e0d0a-9f53-4d6f-8d1c-6c1f4f0a9b11"

// connect is a conversation with a shard at a URL.
func connect(t *testing.T, url string) *executor.Conn {
	t.Helper()
	ctx := context.Background()
	sh, err := postgres.Driver{}.Open(engine.Config{Cluster: cluster, Name: "shard-0", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Install(ctx); err != nil {
		t.Fatal(err)
	}
	if err := sh.Close(); err != nil {
		t.Fatal(err)
	}
	state := shardmap.State{Format: shardmap.Format, Cluster: cluster, DefaultShard: "shard-0",
		Shards: []shardmap.Shard{{Name: "shard-0", Engine: "postgres", URL: url, Weight: 1}}}
	dir := memory.New()
	if _, err := dir.Update(ctx, shardmap.Change{By: "test", Why: "test", Op: "test"}, state); err != nil {
		t.Fatal(err)
	}
	ex := executor.New(executor.Options{Directory: dir, Drivers: map[string]engine.Driver{"postgres": postgres.Driver{}}, Planner: planner.New(planner.Limits{}), Metrics: telemetry.New()})
	if err := ex.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := ex.Acquire(ctx, "shard-0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Release()
		if err := ex.Close(); err != nil {
			t.Error(err)
		}
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func run(t *testing.T, c *executor.Conn, sql string) string {
	t.Helper()
	res, err := c.Exec(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var rows []string
	for _, r := range res.Rows {
		var row []string
		for _, v := range r {
			row = append(row, v.String)
		}
		rows = append(rows, strings.Join(row, "|"))
	}
	return strings.Join(rows, "\n")
}

// TestRead: on every version, a statement and the text that is read of it give the same in one transaction, and in the text
// no literal is left that is read as a time.
func TestRead(t *testing.T) {
	for _, install := range pgtest.VersionsOfRun(t) {
		t.Run(strconv.Itoa(install.Major), func(t *testing.T) {
			c := connect(t, pgtest.DatabaseOn(t, pgtest.NewServerOf(t, install, nil)))
			run(t, c, `CREATE DOMAIN frozen AS timestamptz; CREATE TYPE urgency AS ENUM ('now', 'later'); CREATE TYPE pair AS (a date, b text);
				CREATE TABLE t (k bigint, a timestamptz, d date, v text, arr timestamptz[], rng tstzrange, dom frozen, p urgency, j jsonb);
				INSERT INTO t SELECT i, '2024-01-01', '2024-01-02', 'now', '{2024-01-01}', '[2024-01-01,)', '2024-01-01', 'now', '{"now": "today"}' FROM generate_series(1, 3) i;
				CREATE FUNCTION aged(x timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT x = now()'`)
			server := &timeinput.Server{Conn: c, Exec: c.Exec, Block: true, Clock: true}
			for _, sql := range []string{
				"SELECT a < 'now', d < 'today', 'tomorrow' > d FROM t",
				"SELECT date 'today', timestamptz 'now', 'yesterday'::timestamp, time 'now', E'now'::date, CAST('today 12:00' AS timestamptz)",
				"SELECT count(*) FROM t WHERE a IN ('now', 'yesterday') OR a = ANY ('{now,today}') OR a BETWEEN 'yesterday' AND 'tomorrow'",
				"SELECT '{now,\"to\\day\"}'::timestamptz[], '[today,tomorrow)'::tstzrange, '{[today,tomorrow)}'::tstzmultirange, '(today,now)'::pair",
				"SELECT 'now'::frozen, aged('now'), dom < 'now', COALESCE(a, 'now'), CASE WHEN k > 0 THEN 'today' ELSE d END FROM t",
				"SELECT a FROM t UNION SELECT 'now' ORDER BY 1",
				"SELECT age('now', a), tstzrange('today', 'now'), daterange('today', 'tomorrow'), date_bin('1 hour', 'now', 'today') FROM t",
				"SELECT a < 'now' AS x, count(*) FROM t WHERE d < 'today' GROUP BY a < 'now' ORDER BY a < 'now'",
				"SELECT DISTINCT ON (a < 'now') k, a < 'now' FROM t ORDER BY a < 'now', k",
				"INSERT INTO t (k, a, d, v, p) VALUES (4, 'now', 'today', 'today', 'now'), (5, 'yesterday', 'tomorrow', 'it is now', 'now') RETURNING *",
				"INSERT INTO t (k, a, v) SELECT 6, 'now', 'now' RETURNING *",
				"UPDATE t SET (a, v) = ('now', 'today'), rng = '[now,)' WHERE d < 'today' RETURNING a, v, rng",
				"WITH x AS (DELETE FROM t WHERE a < 'today' RETURNING k) SELECT count(*), 'now', 'today'::date FROM x",
			} {
				run(t, c, "BEGIN")
				in := planner.New(planner.Limits{}).TimeInputs(sql)
				text, err := server.Read(in, sql, nil, "")
				if err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
				run(t, c, "SAVEPOINT s")
				want := run(t, c, sql)
				run(t, c, "ROLLBACK TO s")
				if got := run(t, c, text); got != want {
					t.Errorf("%s\n gives %s\nbut %s\n gives %s", sql, want, text, got)
				}
				run(t, c, "ROLLBACK")
				if text == sql {
					t.Errorf("%s: nothing was read", sql)
				}
			}
			// Plain texts stay what they are.
			for _, sql := range []string{
				"SELECT * FROM t WHERE v = 'now' OR v IN ('today', 'x') OR v LIKE '%now' OR p = 'now' OR p = 'now'::urgency",
				"SELECT j->>'now', j->'now', j @> '{\"now\":\"today\"}', concat('now', v), 'now' COLLATE \"C\", 'now' IS NULL, upper('today'), 'now' FROM t",
				"SELECT count(*), string_agg(v, 'now'), json_build_object('now', min(v)), to_char(now(), 'now') FROM t",
				"SELECT x FROM (VALUES ('now'), ('today')) q (x)",
				"SELECT nosuch('now')",
				"SELECT 'now, but wrong'::timestamptz",
			} {
				run(t, c, "BEGIN")
				text, err := server.Read(planner.New(planner.Limits{}).TimeInputs(sql), sql, nil, "")
				if err != nil || text != sql {
					t.Errorf("%s became %s, %v", sql, text, err)
				}
				run(t, c, "COMMIT") // no error has ended it
			}
			t.Run("sessions", func(t *testing.T) { testSessions(t, c, server) })
		})
	}
}

// testSessions: what a session can be like.
func testSessions(t *testing.T, c *executor.Conn, server *timeinput.Server) {
	read := func(sql string, oids ...uint32) string {
		t.Helper()
		text, err := server.Read(planner.New(planner.Limits{}).TimeInputs(sql), sql, oids, "")
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return text
	}
	today := run(t, c, "SELECT current_date")
	const sql = "SELECT d < 'today' FROM t WHERE k = $1 AND v = $2"
	want := "SELECT d < '" + today + "' FROM t WHERE k = $1 AND v = $2"
	run(t, c, "BEGIN READ ONLY")
	if got := read(sql); got != want {
		t.Errorf("in a read-only transaction: %s", got)
	}
	run(t, c, "COMMIT; SET DateStyle = German; SET TimeZone = 'Asia/Tokyo'; BEGIN")
	want = strings.Replace(want, today, run(t, c, "SELECT to_char(current_date, 'YYYY-MM-DD')"), 1)
	if got := read(sql, 20, 0); got != want {
		t.Errorf("under another DateStyle: %s", got)
	}
	if got := run(t, c, "SELECT current_setting('DateStyle')"); got != "German, DMY" {
		t.Errorf("DateStyle is %s", got)
	}
	if got, want := read("SELECT '{now,01.02.2024 12:00}'::timestamptz[]"), "2024-02-01 12:00:00+09"; !strings.Contains(got, want) {
		t.Errorf("day and month changed: %s", got)
	}
	run(t, c, "COMMIT; RESET DateStyle; RESET TimeZone; BEGIN; CREATE TEMP TABLE own (a date); CREATE FUNCTION pg_temp.own(date) RETURNS date LANGUAGE sql AS 'SELECT $1'")
	if got, want := read("SELECT pg_temp.own('today'), 'today' FROM own WHERE a = 'today'"), "SELECT pg_temp.own('"+today+"'), 'today' FROM own WHERE a = '"+today+"'"; got != want {
		t.Errorf("with what is temporary: %s", got)
	}
	run(t, c, "COMMIT")
	if got := run(t, c, "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'cleave%'"); got != "0" {
		t.Errorf("%s statements are left", got)
	}
}
