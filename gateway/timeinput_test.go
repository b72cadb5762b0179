package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// inputTable has a column of each kind that reads, or does not read, special date/time inputs ('now', 'today').
const inputTable = `CREATE DOMAIN moment AS timestamptz; CREATE DOMAIN never AS timestamptz CHECK (VALUE > 'infinity'); CREATE TYPE urgency AS ENUM ('now', 'later');
	CREATE TYPE reading AS (at timestamptz, f float8);
	CREATE TABLE ev (k bigint PRIMARY KEY, at timestamptz, ts timestamp, d date, tt time, note text, arr timestamptz[], rng tstzrange, dom moment, p urgency, c reading, j jsonb)`

// inputCases are statements with texts that may be special date/time inputs. Over several shards each has its answer of one PostgreSQL,
// or is refused. Every statement runs in a block in which now() was asked of one shard, and the other shards began later.
var inputCases = []struct {
	name    string
	scripts []string // of statements, each between its own BEGIN and ROLLBACK
	// refused: with 0A000, instead of the answer; failing: with 0A000 or with PostgreSQL's error.
	refused, failing bool
}{
	{name: "a literal beside a time", scripts: []string{
		"SELECT count(*) FROM ev WHERE at = 'now'", "SELECT count(*) FROM ev WHERE 'now' = at AND d = 'today' AND ts < 'tomorrow' AND 'yesterday' < d", "SELECT count(*) FROM ev WHERE at IN ('now', 'yesterday')",
		"SELECT count(*) FROM ev WHERE at BETWEEN 'now' AND 'tomorrow'", "SELECT count(*) FROM ev WHERE COALESCE(at, 'now') = now()", "SELECT count(*) FROM ev WHERE CASE at WHEN 'now' THEN true END",
		"SELECT count(*) FROM ev WHERE (at, k) <= ('now', 100)", "SELECT count(*) FROM ev WHERE at - 'now' = interval '0'", "SELECT count(*) FROM ev WHERE NULLIF(at, 'now') IS NULL",
		"SELECT count(*) FROM ev WHERE age('now', at) = interval '0'", "SELECT count(*) FROM ev WHERE timestamptz('now') = at", "SELECT count(*) FROM ev WHERE timestamptz 'now' = at AND date 'today' = d",
		"SELECT count(DISTINCT x) FROM (SELECT at AS x FROM ev UNION ALL SELECT 'now' FROM ev) q", "SELECT count(*) FROM ev WHERE at = ANY (ARRAY['now', 'today']::timestamptz[])", "SELECT count(*) FROM ev WHERE at = (CASE WHEN k > 0 THEN 'now' ELSE at END)",
		"SELECT count(*) FROM ev WHERE GREATEST(at, 'now') = at", "SELECT count(*) FROM ev WHERE dom = 'now'", "SELECT count(*) FROM ev WHERE tstzrange('today', 'now', '[]') @> at", "SELECT count(*) FROM ev WHERE 'now'::text::timestamptz = at"}},
	// No list says what these are read as.
	{name: "what parse analysis alone knows", scripts: []string{
		"SELECT count(*) FROM ev WHERE 'now' = ANY (ARRAY[at, ts])", "SELECT count(*) FROM ev WHERE (at, at) OVERLAPS ('now', 'now')", "SELECT count(*) FROM ev WHERE EXTRACT(epoch FROM at - 'now') = 0", "SELECT count(*) FROM ev WHERE array_position(ARRAY[note], 'now') = 1",
		"SELECT count(*) FROM ev WHERE (c).at IS DISTINCT FROM 'now'", "SELECT count(*) FROM ev, LATERAL (SELECT ev.at) q (x) WHERE x = 'now'", "SELECT count(*) FROM (SELECT p, dom, arr FROM ev) q WHERE p = 'now' AND dom = 'now' AND arr[1] = 'now'",
		"SELECT count(*) FROM ev WHERE at = (SELECT 'now'::timestamptz FROM ev e WHERE e.k = ev.k AND e.at = 'now')", "SELECT k, 'now' = lag(at, 0, 'now') OVER (PARTITION BY k) FROM ev ORDER BY k", "WITH w AS (SELECT k, dom AS x FROM ev) SELECT count(*) FROM w WHERE x IN ('now', 'tomorrow')",
		"UPDATE ev SET p = 'now', c.at = 'now', arr[1] = 'now'; SELECT count(DISTINCT (c).at), count(DISTINCT arr), count(p) FROM ev"}},
	{name: "a literal that is written", scripts: []string{
		"UPDATE ev SET at = 'now', d = 'today'; SELECT count(DISTINCT at), count(DISTINCT d) FROM ev", "INSERT INTO ev (k, at, d) SELECT k + 50, 'now', 'tomorrow' FROM ev; SELECT count(DISTINCT at) FROM ev",
		"INSERT INTO ev (k, at) VALUES (91, 'now'), (92, 'now'), (93, 'now'), (94, 'now'); SELECT count(DISTINCT at) FROM ev", "UPDATE ev SET (at, d) = ('now', 'today'); SELECT count(DISTINCT at), count(DISTINCT d) FROM ev",
		"INSERT INTO ev (k, at) VALUES (91, 'now'::text::timestamptz), (92, CAST('now'::text AS timestamptz)), (93, ('now'::text)::timestamptz), (94, 'now'); SELECT count(DISTINCT at) FROM ev",
		"INSERT INTO ev (k, at) VALUES (91, U&'!006eow' UESCAPE '!'), (92, E'\\x6eow'), (93, 'no'\n'w'), (94, timestamptz 'now'); SELECT count(DISTINCT at) FROM ev", "INSERT INTO ev (k) VALUES (1), (2), (3), (4) ON CONFLICT (k) DO UPDATE SET at = 'now'; SELECT count(DISTINCT at) FROM ev"}},
	{name: "a plain text", scripts: []string{
		"SELECT count(*) FROM ev WHERE note = 'now' OR note IN ('today', 'tomorrow') OR note LIKE 'now'", "SELECT DISTINCT 'now' FROM ev", "SELECT count(*) FROM ev WHERE 'now' IN (note, note)", "UPDATE ev SET note = 'now'; SELECT count(*) FROM ev WHERE note = 'now'",
		"SELECT DISTINCT concat('now', 'x'), upper('now'), left('now', 1), 'now' || note FROM ev", "SELECT count(*) FROM ev WHERE j = '{\"a\":\"now\"}'", "SELECT DISTINCT jsonb_build_object('now', 'today') FROM ev",
		"SELECT count(*) FROM ev WHERE COALESCE(note, 'now') = 'now'", "SELECT count(*) FROM ev WHERE CASE note WHEN 'now' THEN true ELSE note > 'today' END", "SELECT x, count(*) FROM (SELECT 'now' AS x FROM ev) s GROUP BY x",
		"SELECT count(*) FROM ev JOIN (VALUES ('now'), ('today')) w (x) ON note = x", "SELECT note FROM ev UNION SELECT 'now' ORDER BY 1"}},
	// One equal node for each scope: what stands in one is no time in the other.
	{name: "equal nodes of different scopes", scripts: []string{
		"SELECT at > 'now', count(*) FROM ev GROUP BY at > 'now'", "SELECT at > 'now', count(*), (SELECT max(x.at > 'now') FROM (SELECT 1 AS one, CASE WHEN k > 0 THEN 'x' END AS at FROM generate_series(1, 2) k) y, LATERAL (SELECT y.at) x (at)) FROM ev GROUP BY at > 'now'",
		"SELECT at > 'now' AS b, count(*) FROM ev GROUP BY b UNION ALL SELECT at > 'now', 1 FROM (SELECT note AS at FROM ev) q GROUP BY at > 'now' ORDER BY 1, 2",
		"SELECT count(*) FROM ev WHERE at = 'now' AND k IN (SELECT k FROM (SELECT k, note AS at FROM ev) q WHERE at = 'now' OR at <> 'now')", "SELECT DISTINCT ON (at = 'now') at = 'now' FROM ev ORDER BY at = 'now'"}},
	{name: "many", scripts: []string{
		"SELECT count(*) FROM ev WHERE at = 'now'" + strings.Repeat(" AND at <= 'now'", 150), "SELECT count(*) FROM ev WHERE at = 'now'" + strings.Repeat(" AND note <> 'now'", 150), "INSERT INTO ev (k, note, at) SELECT k + 50, concat('now'" + strings.Repeat(", 'now'", 60) + "), 'now' FROM ev; SELECT count(DISTINCT at) FROM ev"}},
	{name: "in escapes and pieces", scripts: []string{
		`SELECT count(*) FROM ev WHERE at = E'\x6eow'`, `SELECT count(*) FROM ev WHERE at = U&'\006eow'`, `SELECT count(*) FROM ev WHERE at = U&'!006eow' UESCAPE '!'`, "SELECT count(*) FROM ev WHERE at = 'no'\n'w'", "SELECT count(*) FROM ev WHERE at = $$now$$ AND d = $x$today$x$",
		"SELECT count(*) FROM ev WHERE at = ' NoW '", `SELECT count(*) FROM ev WHERE at = E'no\x77'`, `SELECT count(*) FROM ev WHERE note = E'\x6eow'`}},
	{name: "behind a mark", refused: true, scripts: []string{"SELECT count(*) FROM ev WHERE at = '_now'", "SELECT count(*) FROM ev WHERE at = '!now'", "SELECT count(*) FROM ev WHERE at = 'now_'", "UPDATE ev SET at = '_now'", "SELECT count(*) FROM ev WHERE at > 'today vlat'", "SELECT count(*) FROM ev WHERE at > 'today foo+3'"}},
	{name: "inside of something else", refused: true, scripts: []string{
		`SELECT count(*) FROM ev WHERE arr = '{n\ow}'`, `SELECT count(*) FROM ev WHERE arr = '{"now"}'`, "SELECT count(*) FROM ev WHERE rng @> '[now,now]'", "SELECT count(*) FROM ev WHERE at = ANY ('{now}')", "SELECT count(*) FROM ev WHERE at > 'today 12:00'",
		"UPDATE ev SET arr = '{now}'", "UPDATE ev SET rng = '[now,)'", "UPDATE ev SET dom = 'now'", "SELECT count(*) FROM ev WHERE at = 'now'::moment", `SELECT count(*) FROM ev WHERE c = '(now,1)'`,
		"SELECT count(*) FROM ev WHERE at = timestamptz_in('now', 0, -1)", "SELECT (jsonb_populate_record(NULL::ev, '{\"at\":\"now\"}')).at FROM ev", "SELECT count(*) FROM ev, jsonb_to_record('{\"at\":\"now\"}') x (at timestamptz)",
		"SELECT count(DISTINCT at) FROM ev WHERE at = (json_populate_record(NULL::reading, '{\"at\":\"now\"}')).at"}},
	{name: "the check of a domain", refused: true, scripts: []string{"SELECT count(*) FROM ev WHERE k < 0 AND at = 'now'::never", "SELECT count(*) FROM ev WHERE at = CASE WHEN k < 0 THEN 'now'::never END"}},
	{name: "a row with a float", refused: true, scripts: []string{
		"SET LOCAL extra_float_digits = 0; UPDATE ev SET c = '(now,0.12345678901234568)'", "SET LOCAL extra_float_digits = 0; SELECT count(*) FROM ev WHERE c = '(now,0.12345678901234568)'"}},
	{name: "prose", scripts: []string{"SELECT count(*) FROM ev WHERE note = 'call me now'", "UPDATE ev SET note = 'call me now, or never'; SELECT count(DISTINCT note) FROM ev", "SELECT count(*) FROM ev WHERE note = ANY ('{\"call me now\"}')"}},
	{name: "a text of rows that is cast when it runs", refused: true, scripts: []string{
		"SELECT count(*) FROM ev WHERE note::timestamptz = at", "SELECT count(*) FROM ev WHERE at = ('n' || 'ow')::timestamptz", "SELECT count(*) FROM ev WHERE lower('NOW')::timestamptz = at", "SELECT count(*) FROM ev WHERE at = (CASE WHEN k > 0 THEN 'now' ELSE 'now' END)::timestamptz", "SELECT count(*) FROM ev WHERE at = (CASE WHEN k > 0 THEN 'now'::text END)::timestamptz",
		"SELECT count(*) FROM ev WHERE at = NULLIF('now', 'x')::timestamptz", "SELECT k, max('now')::timestamptz = max(at) FROM ev GROUP BY k", "SELECT count(*) FROM ev WHERE at = COALESCE('now', note)::timestamptz", "UPDATE ev SET at = note::timestamptz"}},
	{name: "in a transaction with a schema change", scripts: []string{
		"ALTER TABLE ev ADD COLUMN z int; SELECT count(*) FROM ev WHERE at = 'now' AND z IS NULL", "CREATE TABLE other (k bigint PRIMARY KEY, at timestamptz); INSERT INTO other (k, at) SELECT k, at FROM ev; SELECT count(*) FROM other WHERE at = 'now'",
		"ALTER TABLE ev ADD COLUMN z timestamptz; UPDATE ev SET z = 'now', at = 'now'; SELECT count(DISTINCT z) FROM ev"}},
	{name: "behind ROLLBACK TO", scripts: []string{
		"SAVEPOINT s; SELECT count(*) FROM ev WHERE at = 'now'; ROLLBACK TO s; SELECT count(*) FROM ev WHERE at = 'now'; RELEASE s; SELECT count(*) FROM ev WHERE 'now' = at",
		"SAVEPOINT s; UPDATE ev SET at = 'now'; SELECT count(DISTINCT at) FROM ev; ROLLBACK TO s; UPDATE ev SET at = 'now' WHERE k > 3; SELECT count(DISTINCT at) FROM ev"}},
	{name: "prepared", scripts: []string{"PREPARE q AS SELECT count(*) FROM ev WHERE at = 'now'; EXECUTE q; DEALLOCATE q", "PREPARE q AS SELECT count(*) FROM ev WHERE note = 'now' AND d < 'tomorrow'; EXECUTE q; DEALLOCATE q",
		"PREPARE q (int) AS UPDATE ev SET at = 'now' WHERE k > $1; EXECUTE q (0); SELECT count(DISTINCT at) FROM ev; DEALLOCATE q"}},
	{name: "prepared where nobody can be asked", refused: true, scripts: []string{"ALTER TABLE ev ADD COLUMN z int; PREPARE q AS SELECT count(*) FROM ev WHERE at = 'now'; DEALLOCATE q", "PREPARE q AS SELECT ev.at < 'today', count(*) FROM ev GROUP BY at < 'today'; DEALLOCATE q"}},
	{name: "behind an escape of JSON, and beside a zone with hyphens", refused: true, scripts: []string{
		`SELECT count(*) FROM ev, jsonb_to_record('{"at":"\tnow"}') x (at timestamptz)`, "SELECT count(*) FROM ev WHERE at >= 'today America/Port-au-Prince'"}},
	{name: "an array, and a range, prepared", scripts: []string{"PREPARE q AS SELECT count(*) FROM ev WHERE at = ANY ('{now}'::timestamptz[]); EXECUTE q; DEALLOCATE q", "PREPARE q AS SELECT count(*) FROM ev WHERE '[now,now]'::tstzrange @> at; EXECUTE q; DEALLOCATE q"}},
	{name: "errors of PostgreSQL's own", failing: true, scripts: []string{"SELECT count(*) FROM ev WHERE nothing = 'now'", "SELECT count(*) FROM ev WHERE nofunction('now') = at", "SELECT count(*) FROM ev WHERE k = 'now'", "SELECT at, count(*) FROM ev WHERE at = 'now' GROUP BY d"}},
	{name: "in a cursor, EXPLAIN and COPY of a query", scripts: []string{"DECLARE q CURSOR FOR SELECT k FROM ev WHERE at = 'now' ORDER BY k; FETCH ALL FROM q", "EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT 1 FROM ev WHERE at = 'now' AND false; SELECT count(*) FROM ev WHERE at = 'now'"}},
}

// inputPair has the same rows behind a router with two shards, and in one PostgreSQL.
type inputPair struct {
	cl            *cluster
	router, plain *pgx.Conn
	keys          [][]int64
}

func newInputPair(t *testing.T) *inputPair {
	t.Helper()
	cl, router, keys := orders(t, config{shards: 2})
	plain, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close(context.Background()) })
	p := &inputPair{cl: cl, router: router, plain: plain, keys: keys}
	for _, part := range strings.Split(inputTable, ";") {
		exec(t, plain, part)
		if strings.Contains(part, "CREATE TABLE") {
			part += " WITH (cleave.shard_key = 'k')"
		}
		exec(t, router, part)
	}
	for _, c := range []*pgx.Conn{router, plain} {
		exec(t, c, "INSERT INTO ev (k, note) SELECT k, 'now' FROM generate_series(1, 20) k")
	}
	return p
}

// begin opens a block in which the time of now() was asked for, and every row has it.
func (p *inputPair) begin(t *testing.T, c *pgx.Conn) {
	t.Helper()
	exec(t, c, "BEGIN")
	exec(t, c, fmt.Sprintf("UPDATE ev SET at = now() WHERE k = %d", p.keys[0][0]))
	exec(t, c, "SELECT pg_sleep(0.002)")
	exec(t, c, "UPDATE ev SET at = now(), ts = localtimestamp, d = current_date, tt = localtime, arr = ARRAY[now()], dom = now(), rng = tstzrange(now(), NULL)")
}

// answers are what the statements of a script say, up to the first error.
func answers(c *pgx.Conn, script string) (said, code string) {
	for _, sql := range strings.Split(script, "; ") {
		res, err := c.PgConn().Exec(context.Background(), sql).ReadAll()
		if err != nil {
			return said, codeOf(err)
		}
		for _, r := range res {
			if strings.HasPrefix(sql, "EXPLAIN") {
				continue
			}
			for _, row := range r.Rows {
				said += string(bytes.Join(row, []byte("|"))) + "\n"
			}
			said += r.CommandTag.String() + "\n"
		}
	}
	return said, ""
}

// TestTimeInputs: a text that PostgreSQL reads as the time of its transaction is that time over several shards, or is refused.
func TestTimeInputs(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	for _, c := range inputCases {
		for _, script := range c.scripts {
			p.begin(t, p.plain)
			want, wantCode := answers(p.plain, script)
			exec(t, p.plain, "ROLLBACK")
			p.begin(t, p.router)
			got, code := answers(p.router, script)
			exec(t, p.router, "ROLLBACK")
			ok := got == want && code == wantCode
			if c.refused || c.failing {
				ok = code == "0A000" || c.failing && code != "" && code == wantCode
			}
			if !ok {
				t.Errorf("%s: %.200s: %q, error %q; PostgreSQL: %q, error %q", c.name, script, got, code, want, wantCode)
			}
		}
	}
	exec(t, p.router, "DROP TABLE IF EXISTS other")
}

// TestTimeInputAndParameter: a text that was described with a parameter in the place of a literal does not tell what the literal is, and
// the other way round.
func TestTimeInputAndParameter(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	ctx := context.Background()
	for i, first := range []bool{true, false} {
		where := []string{"at = %s", "%s = at"}[i]
		literal, param := "SELECT count(*) FROM ev WHERE "+fmt.Sprintf(where, "'now'"), "SELECT count(*) FROM ev WHERE "+fmt.Sprintf(where, "$1")
		p.begin(t, p.router)
		for range 2 {
			if first {
				got := p.router.PgConn().ExecParams(ctx, param, [][]byte{[]byte("2024-01-01")}, nil, nil, nil).Read()
				if got.Err != nil || string(got.Rows[0][0]) != "0" {
					t.Errorf("%s: %v", param, got)
				}
			}
			if got, code := answers(p.router, literal); got != "20\nSELECT 1\n" {
				t.Errorf("%s: %q, %s", literal, got, code)
			}
			first = true
		}
		if got := p.router.PgConn().ExecParams(ctx, param, [][]byte{[]byte("now")}, nil, nil, nil).Read(); got.Err != nil || string(got.Rows[0][0]) != "20" {
			t.Errorf("%s of now: %v", param, got)
		}
		// A literal beside parameters, many of them.
		list, values := make([]string, 120), make([][]byte, 120)
		for i := range list {
			list[i], values[i] = fmt.Sprintf("$%d", i+1), []byte("x")
		}
		many := "SELECT count(*) FROM ev WHERE at = 'now' AND note NOT IN (" + strings.Join(list, ", ") + ")"
		if got := p.router.PgConn().ExecParams(ctx, many, values, nil, nil, nil).Read(); got.Err != nil || string(got.Rows[0][0]) != "20" {
			t.Errorf("%s: %v", many[:80], got)
		}
		exec(t, p.router, "ROLLBACK")
	}
}

// TestTimeInputIsPrepared: a prepared statement keeps the time at which it was prepared, however the literal is written.
func TestTimeInputIsPrepared(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	for _, literal := range []string{"'now'", "E'\\x6eow'", "U&'\\006eow'", "U&'!006eow' UESCAPE '!'", "'no'\n'w'", "('{n\\ow}'::timestamptz[])[1]", "$$now$$", "'now'::text::timestamptz", "timestamptz 'now'"} {
		for _, where := range []string{"", fmt.Sprintf(" AND k = %d", p.keys[0][0]), fmt.Sprintf(" AND k = %d", p.keys[1][0])} {
			want := ""
			for _, c := range []*pgx.Conn{p.plain, p.router} {
				exec(t, c, "BEGIN")
				exec(t, c, "UPDATE ev SET at = now()")
				exec(t, c, "PREPARE q AS SELECT count(*) FROM ev WHERE at = "+literal+where)
				exec(t, c, "COMMIT")
				exec(t, c, "SELECT pg_sleep(0.002)")
				got, code := answers(c, "EXECUTE q; DEALLOCATE q")
				switch {
				case c == p.plain:
					want = got
				case got != want || code != "":
					t.Errorf("%s%s: %q, error %q; PostgreSQL: %q", literal, where, got, code, want)
				}
			}
		}
	}
}

// TestKeyTextInPieces: a literal for a shard key of times may go on behind a line's end, and have its own escape character.
func TestKeyTextInPieces(t *testing.T) {
	t.Parallel()
	_, c, _ := orders(t, config{shards: 2})
	exec(t, c, "CREATE TABLE days (d date PRIMARY KEY) WITH (cleave.shard_key = 'd')")
	for _, d := range []string{"'3 Oct 2025'", "E'4 Oct'\n' 2025'", "U&'5 Oct !0032025' UESCAPE '!'", "'6 Oct'\n' 202'\n'5'"} {
		exec(t, c, "INSERT INTO days VALUES ("+d+")")
		if n := one[int](t, c, "SELECT count(*)::int FROM days WHERE d = "+d); n != 1 {
			t.Errorf("%s: %d rows", d, n)
		}
	}
	if got, _ := answers(c, "SELECT d FROM days ORDER BY d"); !strings.HasPrefix(got, "2025-10-03\n2025-10-04\n2025-10-05\n2025-10-06\n") {
		t.Error(got)
	}
}

// TestTimeInputOfCopy: the condition and the data of COPY .. FROM.
func TestTimeInputOfCopy(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	ctx := context.Background()
	copied := func(sql string, lines ...string) (tag pgconn.CommandTag, err error) {
		return p.router.PgConn().CopyFrom(ctx, strings.NewReader(strings.Join(lines, "\n")+"\n"), sql)
	}
	p.begin(t, p.router)
	if _, err := copied("COPY ev (k, at, d) FROM STDIN", "51\tnow\ttoday", "52\tNOW\ttoday", "53\t n\\ow\ttoday", "54\t\\x6eow\ttoday", "55\tnow\ttoday"); err != nil {
		t.Fatal(err)
	}
	if got, _ := answers(p.router, "SELECT count(DISTINCT at), count(DISTINCT d) FROM ev"); got != "1|1\nSELECT 1\n" {
		t.Error(got)
	}
	exec(t, p.router, "ROLLBACK")
	p.begin(t, p.router)
	if tag, err := copied("COPY ev (k, note) FROM STDIN WHERE note = 'now' OR p = 'now'", "51\tnow", "52\tlater", "53\tnow"); err != nil || tag.RowsAffected() != 2 {
		t.Errorf("a condition with texts: %v, %v", tag, err)
	}
	exec(t, p.router, "ROLLBACK")
	for _, where := range []string{"at < 'now'", "at < 'tomorrow'", "note = 'x' AND at < timestamptz 'now'", `arr <> '{n\ow}'`, "at < E'\\x6eow'"} {
		p.begin(t, p.router)
		if _, err := copied("COPY ev (k, at) FROM STDIN WHERE "+where, "51\t2024-01-01", "52\t2999-01-01"); codeOf(err) != "0A000" {
			t.Errorf("WHERE %s: %v", where, err)
		}
		exec(t, p.router, "ROLLBACK")
	}
	for _, line := range []string{"51\t{now}", "51\t{n\\ow}", `51	{"today"}`} {
		p.begin(t, p.router)
		if _, err := copied("COPY ev (k, arr) FROM STDIN", line); codeOf(err) != "0A000" {
			t.Errorf("%s: %v", line, err)
		}
		exec(t, p.router, "ROLLBACK")
	}
}

// TestTimeInputLeavesNothing: what is asked about texts leaves nothing on the connections of the pools, after an error and a cancelled statement
// too, and locks nothing that outlives the statement.
func TestTimeInputLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	ctx := context.Background()
	for _, sql := range []string{"SELECT count(*) FROM ev WHERE at = 'now'", "SELECT count(*) FROM ev WHERE at = 'now' AND nothing = 'now'", "SELECT pg_sleep(30) FROM ev WHERE note = 'now' OR at = 'now'"} {
		c := p.cl.connect(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.PgConn().Exec(ctx, sql).ReadAll()
		}()
		if strings.Contains(sql, "pg_sleep") {
			waitfor.True(t, "a shard sleeps", func() bool {
				return p.cl.direct(t, 0, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()") != "0"
			})
			if err := c.PgConn().CancelRequest(ctx); err != nil {
				t.Error(err)
			}
		}
		<-done
	}
	if n := one[int](t, p.router, "SELECT count(*)::int FROM pg_prepared_statements WHERE from_sql"); n != 0 {
		t.Errorf("%d prepared statements are left", n)
	}
	for shard := range 2 {
		if n := p.cl.direct(t, shard, "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE relname = 'ev'"); n != "0" {
			t.Errorf("shard %d: %s locks are left", shard, n)
		}
	}
}
