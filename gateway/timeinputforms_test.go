package gateway_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
)

// inputOperands are values of many forms that are the time of the transaction in every row, or a text that says so, and the
// FROM item that they need.
var inputOperands = []struct{ expr, from string }{
	{"at", "ev"}, {"ev.ts", "ev"}, {"dom", "ev"}, {"note", "ev"}, {"arr[1]", "ev"}, {"lower(rng)", "ev"}, {"(at)", "ev"}, {"at::timestamp", "ev"}, {"COALESCE(at, ts)", "ev"}, {"CASE WHEN k > 0 THEN at END", "ev"},
	{"at + interval '0'", "ev"}, {"(SELECT e.at)", "ev e"}, {"date_trunc('microseconds', at)", "ev"}, {"NULLIF(note, 'x')", "ev"}, {"(c).at", "ev"}, {"(ROW(k, at)).f2", "ev"}, {"greatest(at, ts)", "ev"}, {"mirror(at)", "ev"}, {"mirror(note)", "ev"},
	{"x", "(SELECT at AS x FROM ev) q"}, {"x", "(SELECT note AS x FROM ev) q"}, {"x", "(SELECT min(at) AS x FROM ev GROUP BY k) q"}, {"at", "(SELECT note AS at FROM ev) q"}, {"note", "(SELECT at AS note FROM ev) q"}, {"x", "ev, unnest(arr) x"},
	{"x", "ev, LATERAL (SELECT ev.at AS x) q"}, {"x", "ev, LATERAL (VALUES (ev.at)) q (x)"}, {"a.at", "ev a JOIN ev b USING (k)"}, {"at", "ev a (k, note) JOIN ev b USING (k)"}, {"at", "seen"}, {"note", "seen"}, {"at", "ev AS e (k, at0, at)"},
	{"x", "(SELECT at AS x FROM ev UNION ALL SELECT ts FROM ev) q"}, {"x", "(SELECT note AS x FROM ev UNION SELECT 'now' FROM ev) q"}, {"x.at", "ev, LATERAL (SELECT (ev.c).*) x"}, {"(e).at", "ev e"}, {"max(at) OVER (PARTITION BY k)", "ev"},
	{"lag(at, 0) OVER (PARTITION BY k)", "ev"}, {"s.at", "ev JOIN LATERAL (SELECT ev.at) s ON true"}, {"p::text", "ev"}, {"'now'::text", "ev"}, {"j ->> 'at'", "ev"}, {"at AT TIME ZONE 'UTC'", "ev"}, {"to_timestamp(extract(epoch FROM at)::float8)", "ev"},
	{"now()", "ev"}, {"localtimestamp", "ev"}, {"current_timestamp", "ev"}, {"statement_timestamp() - statement_timestamp() + at", "ev"}, {"upper(note)", "ev"}, {"any_value(at)", "ev"}, {"initcap(at)", "ev"}, {"my.reverse(at)", "ev"}, {"my.array_append(note, at)", "ev"},
}

// inputForms have L where a literal stands, and X where an operand does.
var inputForms = []string{
	"X = L", "L = X", "X <= L AND X >= L", "X IN (L, L)", "X NOT IN (L)", "L IN (X, X)", "X IS NOT DISTINCT FROM L", "X BETWEEN L AND L", "L BETWEEN X AND X", "X BETWEEN SYMMETRIC L AND L", "CASE X WHEN L THEN true END", "CASE L WHEN X THEN true END", "NULLIF(X, L) IS NULL",
	"NULLIF(L, X) IS NULL", "(X, 1) = (L, 1)", "(1, L) = (1, X)", "ROW(X) <= ROW(L)", "(X, 1) IN ((L, 1))", "X = ANY (ARRAY[L])", "X = ANY ('{now}')", "L = ANY (ARRAY[X])", "GREATEST(X, L) = LEAST(X, L)", "COALESCE(X, L) = COALESCE(L, X)", "X = (SELECT L)", "X = (VALUES (L))",
	"X IN (VALUES (L))", "X IN (SELECT L)", "X = CASE WHEN k > 0 THEN L END", "X = COALESCE(NULL, L)", "X = COALESCE(L, NULL)", "ARRAY[X] = '{now}'", "ARRAY[X, L] = ARRAY[X, X]", "array_position(ARRAY[X], L) = 1", "ARRAY[X] @> ARRAY[L]", "X = mirror(L)", "concat(X) = concat(L)",
	"X::text = L", "L::text = X::text", "(X)::timestamptz = L", "X = L::timestamptz", "X = timestamptz L", "X = timestamptz(L)", "(CASE WHEN true THEN X ELSE L END) = L", "X - L = interval '0'", "age(X, L) = interval '0'", "age(L, X) = interval '0'", "L - X = interval '0'",
	"X < ANY (ARRAY[L, 'tomorrow'])", "EXISTS (SELECT FROM (VALUES (L)) v (l) WHERE v.l = X)", "tstzrange(L, L, '[]') @> X", "X <@ tstzrange(L, L, '[]')", "'[now,now]' @> X", "date_trunc('hour', L) <= X", "(X, X) OVERLAPS (L, L)", "EXTRACT(epoch FROM X - L) = 0", "X + interval '0' = L",
	"CASE WHEN X = L THEN X ELSE L END = L", "EXISTS (SELECT L INTERSECT SELECT X)", "(SELECT count(*) FROM (SELECT X UNION SELECT L) u) = 1", "lower(L) = X", "L || '' = X", "jsonb_build_object('a', X) = jsonb_build_object('a', L)", "NOT X <> L", "X = L COLLATE \"C\"", "(ARRAY[L, L])[1] = X",
	"(ARRAY[X, L])[2] = X", "num_nonnulls(X, L) = 2", "X = ALL (SELECT L)", "(L, X) IN (SELECT X, L)", "CAST(L AS timestamp) = X", "to_json(X)::text = to_json(L::text)::text", "tsrange(L, L, '[]') @> X", "X = any_moment(L)", "X = my.format(L)", "X = my.array_append(note, L)",
}

var inputOperand, inputLiteral, inputValue = regexp.MustCompile(`\bX\b`), regexp.MustCompile(`\bL\b`), regexp.MustCompile(`\bV\b`)

// TestTimeInputForms: what a literal is read as follows from what stands around it, in each form of an expression and beside each form of
// an operand. Over several shards the answer is that of one PostgreSQL, or the statement is refused.
func TestTimeInputForms(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	for _, sql := range []string{
		"CREATE FUNCTION mirror(timestamptz) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT $1'", "CREATE FUNCTION mirror(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'",
		"CREATE FUNCTION any_moment(timestamp) RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT $1::timestamptz'", "CREATE FUNCTION initcap(timestamptz) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT $1'", "CREATE SCHEMA my", "CREATE FUNCTION my.reverse(timestamptz) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT $1'",
		"CREATE FUNCTION my.format(timestamptz) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT $1'", "CREATE FUNCTION my.array_append(text, timestamptz) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT $2'", "CREATE VIEW seen AS SELECT k, at, note FROM ev",
	} {
		exec(t, p.plain, sql)
		exec(t, p.router, sql)
	}
	p.begin(t, p.plain)
	p.begin(t, p.router)
	answered, refused := 0, 0
	for i, o := range inputOperands {
		for j, f := range inputForms {
			if !testrun.Wants((i+j)%4 == 0) {
				continue
			}
			expr := inputOperand.ReplaceAllLiteralString(inputLiteral.ReplaceAllLiteralString(f, "'now'"), o.expr)
			sql := fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", o.from, expr)
			if strings.Contains(o.expr, "OVER (") || strings.HasPrefix(o.expr, "any_value") {
				sql = fmt.Sprintf("SELECT %s AS is, count(*) OVER () FROM %s LIMIT 1", expr, o.from)
			}
			res := p.both(t, sql)
			switch got, ok := res[true]; {
			case !ok:
			case got == "refused":
				refused++
			case got != res[false]:
				t.Errorf("%s: %q; PostgreSQL: %q", sql, got, res[false])
			default:
				answered++
			}
		}
	}
	t.Logf("%d statements are answered, %d are refused", answered, refused)
}

// both are the answers of one PostgreSQL and of the router (true) to a script in the blocks at hand; only the first if it is an error, and
// "refused" for 0A000.
func (p *inputPair) both(t *testing.T, script string) map[bool]string {
	t.Helper()
	res := map[bool]string{}
	for _, router := range []bool{false, true} {
		c := p.plain
		if router {
			c = p.router
		}
		exec(t, c, "SAVEPOINT s")
		said, failed := answers(c, script)
		if again := code(c, "ROLLBACK TO s"); again != "" {
			t.Fatalf("%s: %s %s; ROLLBACK TO: %s", script, said, failed, again)
		}
		res[router] = said + failed
		if router && failed == "0A000" {
			res[router] = "refused"
		}
		if !router && failed != "" {
			break
		}
	}
	return res
}

// inputWrites have V where a value is written that is a literal in one of the forms of inputValues.
var inputWrites = []string{
	"UPDATE ev SET at = V", "UPDATE ev SET ts = V", "UPDATE ev SET dom = V", "UPDATE ev SET note = V", "UPDATE ev SET tt = V", "UPDATE ev SET arr[1] = V", "UPDATE ev SET c.at = V", "UPDATE ev SET (at, ts) = (V, V)", "UPDATE ev SET (at, note) = ROW(V, V)", "UPDATE ev SET (at, ts) = (SELECT V, V)",
	"UPDATE ev SET at = V, note = V, ts = V WHERE at = V", "UPDATE ev SET at = q.x FROM (SELECT V AS x) q", "UPDATE ev SET note = q.x FROM (VALUES (V)) q (x)", "UPDATE ev SET arr = ARRAY[V]", "UPDATE ev SET rng = tstzrange(V, NULL)", "UPDATE ev SET at = b.at FROM ev b WHERE b.k = ev.k AND b.at = V",
	"INSERT INTO ev (k, at) VALUES (201, V), (202, V), (203, V), (204, V), (205, V)", "INSERT INTO ev (k, note, ts, at) SELECT k + 300, V, V, V FROM ev", "INSERT INTO ev (k, at) SELECT k + 300, V FROM ev GROUP BY k", "INSERT INTO ev (k, at) SELECT DISTINCT k + 300, V FROM ev",
	"INSERT INTO ev (k, at) SELECT k + 300, V FROM ev UNION ALL SELECT k + 400, V FROM ev", "INSERT INTO ev (k, at) SELECT k + 300, x FROM (SELECT k, V AS x FROM ev) q", "INSERT INTO ev (k, at) SELECT k + 300, V FROM ev ORDER BY 2, 1", "INSERT INTO ev SELECT k + 300, V, V FROM ev", "INSERT INTO ev VALUES (201, V, V), (202, V, V), (203, V, V), (204, V, V)",
	"INSERT INTO ev (k, arr[1]) VALUES (201, V), (202, V), (203, V), (204, V)", "INSERT INTO ev (k, dom) VALUES (201, V), (202, V), (203, V), (204, V)", "INSERT INTO ev (k, c.at) VALUES (201, V), (202, V), (203, V), (204, V)",
	"INSERT INTO ev (k) SELECT generate_series(1, 20) ON CONFLICT (k) DO UPDATE SET at = V, note = V WHERE ev.at = V", "INSERT INTO ev (k, at) SELECT k, V FROM ev ON CONFLICT (k) DO UPDATE SET at = excluded.at", "INSERT INTO ev (k, at) VALUES (1, V), (2, V), (3, V), (4, V) ON CONFLICT (k) DO UPDATE SET ts = excluded.at, at = V",
	"MERGE INTO ev USING (SELECT k, at FROM ev) s ON ev.k = s.k WHEN MATCHED AND s.at = V THEN UPDATE SET at = V, ts = V", "MERGE INTO ev USING (SELECT k, V AS x FROM ev) s ON ev.k = s.k WHEN MATCHED THEN UPDATE SET note = s.x", "MERGE INTO ev USING (SELECT k, at FROM ev) s ON ev.k = s.k AND ev.at = V WHEN MATCHED THEN UPDATE SET (at, ts) = (V, V)",
	"DELETE FROM ev WHERE at = V", "DELETE FROM ev USING ev b WHERE b.k = ev.k AND b.at = V", "DELETE FROM ev WHERE at = V RETURNING at = V", "UPDATE ev SET note = 'x' RETURNING at = V", "WITH w AS (UPDATE ev SET at = V RETURNING k, at) SELECT count(DISTINCT at) FROM w", "WITH w AS (SELECT V AS x) UPDATE ev SET note = w.x FROM w",
	"INSERT INTO ev (k, at) SELECT k + 300, V FROM ev RETURNING at = V", "WITH w (x) AS (VALUES (V)) SELECT count(*) FROM ev, w WHERE note = x", "WITH w AS (SELECT k, V AS x FROM ev) INSERT INTO ev (k, note) SELECT k + 300, x FROM w", "UPDATE ev SET at = V FROM unnest(ARRAY[V]) x WHERE note = x",
}

var inputValues = []string{"L", "(L)", "(SELECT L)", "(VALUES (L))", "CASE WHEN k > 0 THEN L ELSE L END", "CASE WHEN true THEN L ELSE at END", "COALESCE(NULL, L)", "NULLIF(L, 'x')", "GREATEST(L, L)", "(ARRAY[L])[1]", "L COLLATE \"C\"", "L::timestamptz", "L::text::timestamptz", "mirror(L)", "(L || '')::timestamptz", "max(L) OVER ()", "ANY_VALUE(L)"}

// TestTimeInputWrites: the same of what is written.
func TestTimeInputWrites(t *testing.T) {
	t.Parallel()
	p := newInputPair(t)
	for _, c := range []string{"CREATE FUNCTION mirror(timestamptz) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT $1'", "CREATE FUNCTION mirror(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'"} {
		exec(t, p.plain, c)
		exec(t, p.router, c)
	}
	p.begin(t, p.plain)
	p.begin(t, p.router)
	answered, refused := 0, 0
	for i, w := range inputWrites {
		for j, v := range inputValues {
			if !testrun.Wants((i+j)%4 == 0) {
				continue
			}
			script := inputLiteral.ReplaceAllLiteralString(inputValue.ReplaceAllLiteralString(w, v), "'now'") + "; SELECT count(DISTINCT at), count(*) FILTER (WHERE at = now()), count(DISTINCT ts), count(*) FILTER (WHERE ts = localtimestamp), count(DISTINCT dom), count(DISTINCT arr), count(DISTINCT rng), count(DISTINCT (c).at), count(DISTINCT tt), count(DISTINCT note), count(*) FROM ev"
			res := p.both(t, script)
			switch got, ok := res[true]; {
			case !ok:
			case got == "refused":
				refused++
			case got != res[false]:
				t.Errorf("%s: %q; PostgreSQL: %q", script, got, res[false])
			default:
				answered++
			}
		}
	}
	t.Logf("%d scripts are answered, %d are refused", answered, refused)
}
