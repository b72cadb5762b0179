package gateway_test

import (
	"context"
	"fmt"
	"testing"
)

// configCases are sessions in which set_config() stands where clients write it.
var configCases = []struct {
	name  string
	start map[string]string
	steps []string
}{
	{"parameters", nil, []string{
		"ext:SELECT set_config($1, $2, $3) <- a.b | x | false", "SHOW a.b", "ext:SELECT set_config($1, $2, $3) <- work_mem | 3MB | true", "SHOW work_mem",
		"bin:SELECT set_config($1, $2, $3) <- a.b | y | false", "SHOW a.b", "named:SELECT set_config($1, $2, $3) <- TimeZone | Asia/Tokyo | f", "SHOW timezone",
		"ext:select set_config('TimeZone', $1, false) <- ABC-167:59DEF,M3.2.0,M11.1.0", "SHOW timezone", "SELECT DISTINCT '2024-07-01 00:00:00+00'::timestamptz FROM orders", "SELECT set_config('TimeZone', 'ABC' || '-16', false)", "SELECT DISTINCT '2024-07-01 00:00:00+00'::timestamptz FROM orders",
		"ext:SELECT set_config('a.b', $1, false) <- z", "SHOW a.b", "ext:SELECT pg_catalog.set_config($2, $1, false) <- 5MB | Work_Mem", "SHOW work_mem",
		"ext:SELECT set_config($1::text, $2::varchar, $3::bool) AS s <- a.b | EMPTY | false", "SHOW a.b", "SELECT DISTINCT current_setting('work_mem') FROM orders",
		"ext:SELECT set_config('work_mem', NULL, false)", "SHOW work_mem", "SELECT set_config('a.b', NULL, false)", "SELECT coalesce(current_setting('a.b', true), '')"}},
	{"wrong ones", nil, []string{
		"ext:SELECT set_config($1, $2, $3) <- nosuch | x | false", "ext:SELECT set_config($1, $2, $3) <- work_mem | lots | false", "ext:SELECT set_config($1, $2, $3) <- NULL | x | false",
		"ext:SELECT set_config($1, $2, $3) <- a.b | x | perhaps", "ext:SELECT set_config($1, $2, $3) <- port | 5 | false", "ext:SELECT set_config($1, $2) <- port | 5",
		"SELECT set_config(NULL, 'x', false)", "SELECT set_config('a.b', 1, true)", "ext:SELECT set_config('a.b', $1::int, true) <- 1", "SELECT set_config('a.b', nothing, true)", "SELECT set_config('a.b c', 'x', true)", "SELECT set_config('a.b', 'x', NULL)", "SHOW a.b",
		"SELECT set_config('a.b', 'y', true), set_config('nosuch', 'y', true)", "SHOW a.b"}},
	{"NULL", map[string]string{"work_mem": "2MB", "datestyle": "SQL, DMY"}, []string{
		"SET work_mem = '7MB'; SET a.b = 'x'", "ext:SELECT set_config($1, $2, $3) <- work_mem | NULL | false", "SHOW work_mem", "SET work_mem = '7MB'", "BEGIN", "ext:SELECT set_config($1, $2, $3) <- work_mem | NULL | true", "SHOW work_mem", "COMMIT", "SHOW work_mem",
		"ext:SELECT set_config($1, $2, NULL) <- a.b | NULL", "SELECT coalesce(current_setting('a.b', true), '')", "SET datestyle = 'ISO, YMD'", "ext:SELECT set_config('datestyle', $1, false) <- NULL", "SHOW datestyle", "SET datestyle = 'ISO, YMD'", "ext:SELECT set_config('datestyle', $1, false) <- default", "SHOW datestyle",
		"SET work_mem = '7MB'", "SELECT set_config('work_mem', NULL, false)", "SHOW work_mem", "SET work_mem = '7MB'", "SELECT set_config('work_mem', NULL, false), set_config('a.b', NULL, false) AS n", "SHOW work_mem"}},
	{"several in a list", nil, []string{
		"BEGIN", "ext:SELECT set_config('a.b', $1, true), set_config('a.c', $2, true) <- u | v", "SELECT current_setting('a.b'), current_setting('a.c')", "COMMIT", "SELECT coalesce(current_setting('a.b', true), ''), coalesce(current_setting('a.c', true), '')",
		"ext:SELECT set_config('a.b', $1, true) AS x, set_config('a.c', $2, false)::varchar, current_setting('a.b'), current_setting('a.c') || '!' AS y, 1 <- u | v", "SELECT current_setting('a.b'), current_setting('a.c')",
		"SELECT set_config('a.b', 'one', false), set_config('a.b', 'two', false)", "SHOW a.b", "BEGIN; SELECT set_config('a.b', 'three', false), set_config('a.b', 'four', true); SHOW a.b; COMMIT", "SHOW a.b",
		"ext:SELECT set_config('search_path', $1, true), set_config($2, $3, true), set_config('role', $4, true) <- other, public | request.jwt.claims | {\"sub\": \"1\"} | pg_monitor",
		"BEGIN READ ONLY", "ext:SELECT set_config('search_path', $1, true), set_config($2, $3, true), set_config('role', $4, true) <- other, public | request.jwt.claims | {\"sub\": \"1\"} | pg_monitor",
		"SHOW search_path", "SHOW role", "SELECT DISTINCT current_setting('request.jwt.claims'), current_user FROM orders", "SELECT count(*) FROM orders WHERE tenant_id = $own", "SELECT count(*) FROM orders WHERE tenant_id = $far", "COMMIT", "SHOW search_path", "SHOW role"}},
	{"what is told", nil, []string{
		"ext:SELECT set_config('TimeZone', $1, false), set_config('application_name', $2, false) <- Asia/Tokyo | me", "ext:SELECT set_config('TimeZone', $1, true) <- UTC", "SHOW timezone",
		"BEGIN", "ext:SELECT set_config('TimeZone', $1, true) <- UTC", "SHOW timezone", "COMMIT", "SHOW timezone", "BEGIN", "ext:SELECT set_config('TimeZone', $1, false) <- UTC", "ROLLBACK", "SHOW timezone",
		"ext:SELECT 1;; SELECT set_config('TimeZone', $1, false) <- UTC;; SELECT 2", "ext:SELECT set_config('TimeZone', $1, true) <- Asia/Seoul;; SHOW timezone;; SELECT 1", "SHOW timezone",
		"ext:SELECT set_config('TimeZone', $1, false) <- Asia/Seoul;; SELECT 1/0", "SHOW timezone", "ext:SET work_mem = '1MB';; SELECT set_config('TimeZone', $1, true) <- Asia/Seoul;; SELECT set_config('IntervalStyle', 'iso_8601', false)"}},
	{"savepoints", nil, []string{
		"BEGIN", "ext:SELECT set_config('a.b', $1, true) <- 1", "SAVEPOINT s", "ext:SELECT set_config('a.b', $1, true) <- 2", "SHOW a.b", "ROLLBACK TO s", "SHOW a.b", "ext:SELECT set_config('a.b', $1, false) <- 3", "SELECT 1/0", "ROLLBACK TO s", "SHOW a.b", "COMMIT",
		"SELECT coalesce(current_setting('a.b', true), '')", "BEGIN", "SELECT count(*) FROM orders", "ext:SELECT set_config('a.b', $1, true), set_config('work_mem', $2, false) <- 4 | 6MB", "SELECT DISTINCT current_setting('a.b'), current_setting('work_mem') FROM orders", "COMMIT", "SHOW work_mem"}},
	{"in a larger statement", nil, []string{
		"WITH t AS (SELECT set_config('lock_timeout', '1h', true)) SELECT pg_advisory_xact_lock(1) FROM t", "SHOW lock_timeout",
		"BEGIN", "WITH t AS (SELECT set_config('lock_timeout', '3600000', true)) SELECT pg_advisory_lock(1$client) FROM t", "SHOW lock_timeout", "COMMIT", "SHOW lock_timeout", "SELECT pg_advisory_unlock(1$client)",
		"WITH t AS (SELECT set_config('lock_timeout', '3600000', true)) SELECT pg_advisory_lock(1$client) FROM t", "SHOW lock_timeout", "SELECT pg_advisory_unlock(1$client)",
		"WITH t AS (SELECT set_config('lock_timeout', '3600000', false)) SELECT pg_advisory_lock(1$client) FROM t", "SHOW lock_timeout", "SELECT DISTINCT current_setting('lock_timeout') FROM orders", "SELECT pg_advisory_unlock(1$client)", "SHOW lock_timeout", "RESET lock_timeout",
		"SELECT set_config('a.b', upper('x') || 'y', false)", "SHOW a.b", "SELECT DISTINCT current_setting('a.b') FROM orders", "ext:SELECT set_config('a.b', $1::jsonb ->> 'sub', false) <- {\"sub\": \"9\"}", "SELECT DISTINCT current_setting('a.b') FROM orders",
		"SELECT set_config('a.b', 'never', false) WHERE false", "SHOW a.b", "SELECT CASE WHEN 1 = 2 THEN set_config('a.b', 'never', false) END", "SHOW a.b",
		"INSERT INTO orders VALUES ($own, 1, 'noted')", "SELECT set_config('a.b', note, false) FROM orders WHERE tenant_id = $own", "SHOW a.b", "SELECT DISTINCT current_setting('a.b') FROM orders",
		"UPDATE orders SET note = set_config('a.b', 'u', false) WHERE tenant_id = $own RETURNING note", "SHOW a.b", "DELETE FROM orders WHERE tenant_id = $own",
		"SELECT set_config('TimeZone', name, false) FROM pg_timezone_names WHERE name = 'Asia/Tokyo'", "SHOW timezone", "SELECT set_config('TimeZone', 'UTC', false) FROM pg_class LIMIT 1",
		"BEGIN", "SELECT set_config('TimeZone', lower('Asia/Seoul'), true)", "SHOW timezone", "SELECT count(*) FROM orders WHERE tenant_id = $far", "SELECT current_setting('TimeZone') FROM orders WHERE tenant_id = $own", "SAVEPOINT s", "SELECT set_config('TimeZone', upper('utc'), true)", "ROLLBACK TO s", "SHOW timezone", "COMMIT", "SHOW timezone",
		"BEGIN; SELECT count(*) FROM orders", "SELECT set_config('TimeZone', 'Asia/Seoul', true)", "SELECT set_config('DateStyle', 'German', false), set_config('a.b', upper('x'), false)", "SELECT DISTINCT current_setting('a.b'), '2020-02-03'::date FROM orders", "SAVEPOINT s", "SELECT set_config('IntervalStyle', lower('ISO_8601'), false)", "ROLLBACK TO s", "COMMIT", "SHOW timezone", "SHOW a.b", "RESET ALL",
		"ext:SELECT set_config('a.b', upper('q'), false);; SELECT 1/0", "SHOW a.b", "ext:SELECT set_config('a.b', upper('q'), false);; SELECT current_setting('a.b')", "SHOW a.b", "SELECT set_config('a.b', upper('r'), false); SELECT current_setting('a.b')", "SELECT set_config('a.b', upper('s'), true); SELECT current_setting('a.b')", "SHOW a.b"}},
	{"over several shards", nil, []string{
		"SET a.b = 'start'", "BEGIN; SELECT count(*) FROM orders", "ext:SELECT set_config($1, $2, $3), set_config('work_mem', '3MB', $4::bool) <- a.b | p | false | f", "SELECT DISTINCT current_setting('a.b') FROM orders", "bin:SELECT set_config('a.b', $1, $2) <- q | false",
		"SELECT current_setting('a.b') FROM orders WHERE tenant_id = $own", "SELECT DISTINCT current_setting('a.b'), current_setting('work_mem') FROM orders", "ROLLBACK", "SHOW a.b", "SHOW work_mem",
		"BEGIN; SELECT count(*) FROM orders", "SELECT set_config('a.b', lower('R'), false), set_config('work_mem', '5' || 'MB', 'f')", "COMMENT ON TABLE whole IS 'x'", "SELECT set_config('a.b', current_setting('a.b') || 's', NULL)", "SELECT DISTINCT current_setting('a.b'), current_setting('work_mem') FROM orders",
		"SELECT set_config('TimeZone', lower('Asia/Tokyo'), false), set_config('a.b', 't', true)", "COMMIT", "SHOW a.b", "SHOW work_mem", "SHOW timezone", "SELECT DISTINCT current_setting('a.b'), current_setting('work_mem') FROM orders"}},
	{"PREPARE", nil, []string{
		"PREPARE p AS SELECT set_config('a.b', $1, false)", "EXECUTE p('x')", "SHOW a.b", "BEGIN; EXECUTE p('y'); ROLLBACK", "SHOW a.b", "PREPARE q (text) AS SELECT set_config('a.b', upper($1), false), 1", "EXECUTE q('x')", "SHOW a.b"}},
}

// TestSetConfig compares all messages of sessions that use set_config() with those of one PostgreSQL.
func TestSetConfig(t *testing.T) {
	cl, b := twins(t)
	cl.monitors(t)
	for _, c := range configCases {
		t.Run(c.name, func(t *testing.T) {
			b.say(t, c.start, c.steps)
		})
	}
	if left := cl.remains(context.Background(), t); left != "" {
		t.Error(left)
	}
}

// TestSetConfigIsJudged has set_config() set what a session must not set, from everywhere that it may stand.
func TestSetConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{shards: 2})
	exec(t, conn, "PREPARE alone (text, text) AS SELECT set_config($1, $2, true)")
	exec(t, conn, "PREPARE inside (text, text) AS WITH t AS (SELECT set_config($1, $2, true)) SELECT count(*) FROM t")
	for _, c := range []struct{ name, value, want, computed string }{
		{"session_replication_role", "replica", "42501", "0A000"}, {"Session_Replication_Role", "replica", "42501", "0A000"}, {"search_path", "public, cleave_internal", "42501", "0A000"},
		{"standard_conforming_strings", "off", "0A000", "0A000"}, {"client_encoding", "LATIN1", "0A000", "0A000"}, {"restrict_nonsystem_relation_kind", "view", "0A000", "0A000"}, {"seed", "0.5", "0A000", "0A000"},
		{"transaction_read_only", "on", "0A000", "0A000"}, {"cleave.read_policy", "replica", "0A000", "0A000"}, {"cleave.guard_epoch", "1", "42704", "42704"}, {"session_authorization", "postgres", "0A000", "0A000"},
	} {
		wantCode(t, conn, c.want, "SELECT set_config($1, $2, true)", c.name, c.value)
		wantCode(t, conn, c.want, "SELECT set_config($1, $2, false), current_setting('work_mem')", c.name, c.value)
		wantCode(t, conn, c.want, "WITH t AS (SELECT set_config($1, $2, true)) SELECT count(*) FROM t", c.name, c.value)
		wantCode(t, conn, c.want, fmt.Sprintf("UPDATE orders SET note = set_config($1, $2, true) WHERE tenant_id = %d", keys[0][0]), c.name, c.value)
		wantCode(t, conn, c.want, fmt.Sprintf("EXECUTE alone ('%s', '%s')", c.name, c.value))
		wantCode(t, conn, c.want, fmt.Sprintf("EXECUTE inside ('%s', '%s')", c.name, c.value))
		wantCode(t, conn, c.computed, "SELECT set_config($1, $2 || '', true)", c.name, c.value)
	}
	for _, sql := range []string{
		"SELECT set_config('search_path', 'public', true), count(*) FROM pg_class", "SELECT set_config('role', 'none', true) FROM pg_class", "SELECT set_config('a.' || 'b', 'x', true)", "SELECT set_config('a.b', 'x', 1 = 1)",
		"SELECT set_config('a.b', note, true) FROM orders", "EXPLAIN ANALYZE SELECT set_config('a.b', 'x', true)", "COPY (SELECT set_config('a.b', 'x', true)) TO STDOUT", "CREATE TABLE t AS SELECT set_config('a.b', 'x', true)",
		"SELECT set_config('a.b', 'x', true), set_config('a.b', 'y', false) FROM pg_class", "CREATE VIEW v AS SELECT set_config('a.b', 'x', true)", "CREATE TABLE d (a text DEFAULT set_config('a.b', 'x', true))",
	} {
		wantCode(t, conn, "0A000", sql)
	}
}
