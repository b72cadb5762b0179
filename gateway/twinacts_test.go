package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// What the sessions of TestSessionsBesidePostgres say.

// told are the parameters that a client hears of.
var told = []string{"DateStyle", "TimeZone", "IntervalStyle", "application_name", "standard_conforming_strings", "default_transaction_read_only", "in_hot_standby", "client_encoding", "search_path", "scram_iterations"}

// starts are startup options as drivers send them: none, pgjdbc's, npgsql's, libpq's, psycopg's and pgx's.
var starts = []map[string]string{
	nil,
	{"DateStyle": "ISO", "TimeZone": "Europe/Paris", "extra_float_digits": "2", "client_encoding": "UTF8"},
	{"DateStyle": "ISO", "TimeZone": "UTC", "extra_float_digits": "3", "application_name": "PostgreSQL JDBC Driver", "search_path": "other"},
	{"options": "-c datestyle=SQL,dmy -c default_transaction_isolation=repeatable\\ read"},
	{"application_name": "beside", "options": "-c default_transaction_read_only=on", "IntervalStyle": "iso_8601"},
	{"datestyle": "dmy", "search_path": "other, public"},
	{"client_encoding": "'utf-8'", "options": "-c statement_timeout=600s --work-mem=2MB -csearch_path=public,\\ other"},
	{"TimeZone": "America/St_Johns", "options": "-c DateStyle=German --IntervalStyle=sql_standard -c bytea_output=escape", "lock_timeout": "0"},
	{"options": "-c datestyle=ymd -c a.b=start", "default_transaction_deferrable": "on", "standard_conforming_strings": "on"},
	{"statement_timeout": "0", "idle_in_transaction_session_timeout": "1h", "default_transaction_isolation": "serializable"},
}

// acts are what the sessions do.
// What begins with a backslash goes by the protocol: \parse prepares a statement, \run binds and executes it, and \close closes it.
//
// \cancel runs a statement that the client cancels, \leave one during which it is gone, \copy a COPY to the client.
//
// $own and $far are rows of the client alone, on two shards; $n is a number.
var acts = []string{
	"BEGIN", "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN READ ONLY", "START TRANSACTION READ WRITE", "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY", "COMMIT", "END", "ROLLBACK", "ABORT",
	"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT AND NO CHAIN", "SAVEPOINT s", "SAVEPOINT s2", "ROLLBACK TO s", "ROLLBACK TO SAVEPOINT s2", "RELEASE s",
	"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION READ ONLY", "SET TRANSACTION READ WRITE", "SET transaction_read_only = on", "SET LOCAL transaction_read_only = off",
	"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE, ISOLATION LEVEL REPEATABLE READ", "SET default_transaction_read_only = on", "SET default_transaction_read_only = off",
	"SET default_transaction_isolation = 'read committed'", "RESET default_transaction_isolation",
	"SHOW transaction_isolation", "SHOW transaction_read_only", "SHOW datestyle", "SHOW timezone", "SHOW search_path", "SHOW work_mem", "SHOW role", "SHOW extra_float_digits", "SHOW bytea_output",
	"SET datestyle = 'ISO'", "SET datestyle = dmy", "SET datestyle = 'German'", "SET datestyle TO 'SQL', 'MDY'", "SET LOCAL datestyle = 'Postgres'", "RESET datestyle", "SET datestyle TO DEFAULT",
	"SET timezone = 'Asia/Tokyo'", "SET TIME ZONE 5", "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "SET LOCAL TIME ZONE 'UTC'", "RESET timezone", "SET TIME ZONE LOCAL",
	"SET intervalstyle = 'iso_8601'", "SET LOCAL intervalstyle = 'postgres_verbose'", "RESET intervalstyle", "SET extra_float_digits = 0", "RESET extra_float_digits", "SET bytea_output = 'escape'", "RESET bytea_output",
	"SET search_path = other, public", "SET LOCAL search_path = public", "RESET search_path", "SET work_mem = '1MB'", "SET LOCAL work_mem = '2MB'", "RESET work_mem", "SET work_mem = 'x'", "SET nothing = 1", "SET application_name = 'a$n'",
	"SET ROLE pg_monitor", "SET LOCAL ROLE pg_signal_backend", "RESET ROLE", "SET ROLE NONE", "RESET ALL", "RESET SESSION AUTHORIZATION", "DISCARD ALL", "SET a.b = '$n'", "RESET a.b",
	"SELECT set_config('work_mem', '3MB', false)", "SELECT set_config('extra_float_digits', '0', true)", "SELECT current_setting('work_mem'), current_setting('datestyle'), current_setting('timezone')",
	"WITH t AS (SELECT set_config('lock_timeout', '1h', true)) SELECT pg_try_advisory_xact_lock($client) FROM t", "SELECT set_config('a.b', '$n', true), set_config('work_mem', '3MB', false) AS m, current_setting('a.b')",
	"SELECT set_config('a.b', note, false) FROM orders WHERE tenant_id = $own ORDER BY id", "SELECT set_config('work_mem', b::text || 'MB', true) FROM whole WHERE a = $client ORDER BY b", "SHOW lock_timeout",
	"PREPARE s (text) AS SELECT set_config('work_mem', $1, false)", "EXECUTE s ('5MB')", "DEALLOCATE s",
	"SELECT '03/04/2005'::date, '1 day 2 hours'::interval, '2005-03-04 05:06+00'::timestamptz, 1.1::float4 / 3, '\\x01ff'::bytea",
	"INSERT INTO orders VALUES ($own, $n, '03/04/2005'::date::text)", "INSERT INTO orders VALUES ($far, $n, '1.5'::float8 / 7)", "INSERT INTO whole VALUES ($client, $n, '03/04/2005')",
	"SELECT id, note FROM orders WHERE tenant_id = $own ORDER BY id", "SELECT count(*), max(id) FROM orders WHERE tenant_id IN ($own, $far)", "SELECT b, c FROM whole WHERE a = $client ORDER BY b",
	"UPDATE orders SET note = note || '.' WHERE tenant_id = $own", "UPDATE orders SET note = now()::date::text || $n WHERE tenant_id IN ($own, $far) AND false", "DELETE FROM orders WHERE tenant_id = $far", "DELETE FROM whole WHERE a = $client",
	"SELECT 1/0", "SELECT nothing", "SELEC", "SELECT * FROM nowhere", "SELECT 1/(tenant_id - $own) FROM orders WHERE tenant_id = $own", "SELECT 1", "VALUES (1), (2)", "",
	"PREPARE p AS SELECT 1", "PREPARE q (bigint) AS SELECT count(*) FROM orders WHERE tenant_id = $1", "EXECUTE p", "EXECUTE q ($own)", "DEALLOCATE p", "DEALLOCATE ALL",
	"PREPARE d AS SELECT '03/04/2005'::date, '1 2:03:04'::interval, '-1 +2'::interval, '2005-03-04 05:06'::timestamptz, '2005-03-04 EST'::timestamptz, '03/04/2005'::text::date", "EXECUTE d", "EXECUTE d", "DEALLOCATE d",
	"PREPARE e (text) AS INSERT INTO orders VALUES ($own, $n, '04/05/2006'::date::text || $1)", "EXECUTE e ('03/04/2005'::date::text)", "EXPLAIN (COSTS OFF) EXECUTE d", "DEALLOCATE e",
	`\parse dates SELECT '03/04/2005'::date, '2005-03-04 05:06'::timestamptz, '{03/04/2005,NULL}'::date[], 'a'`, `\parse dates SELECT '04/05/2006'::date`, `\run dates`, `\run dates`, `\close dates`,
	`\parse rows SELECT c, c < '03/04/2005' FROM whole WHERE a = $client ORDER BY b`, `\run rows`, `\close rows`, `\parse own SELECT id, note, '03/04/2005'::date FROM orders WHERE tenant_id = $own ORDER BY id`, `\run own`, `\close own`,
	`\parse both SELECT tenant_id, id, '03/04/2005'::date FROM orders WHERE tenant_id IN ($own, $far) ORDER BY 1, 2`, `\run both`, `\close both`,
	"SELECT pg_try_advisory_xact_lock($client)", "SELECT pg_advisory_unlock_all()", "SELECT current_schemas(false)",
	"SELECT pg_advisory_lock($client)", "SELECT pg_try_advisory_lock(1$client)", "SELECT pg_advisory_unlock($client)", "SELECT pg_advisory_unlock(1$client)",
	"CREATE TEMP TABLE scratch (a int)", "INSERT INTO scratch VALUES ($n)", "SELECT count(*) FROM scratch", "DISCARD TEMP", "DISCARD PLANS", "DISCARD SEQUENCES",
	"DECLARE c CURSOR FOR SELECT b, c, '1 day 2 hours'::interval FROM whole WHERE a = $client ORDER BY b", "DECLARE c CURSOR FOR SELECT id, note, '2005-03-04 05:06+00'::timestamptz FROM orders WHERE tenant_id IN ($own, $far) ORDER BY tenant_id, id",
	"DECLARE h CURSOR WITH HOLD FOR SELECT id, '03/04/2005'::date FROM orders WHERE tenant_id = $own ORDER BY id", "DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT id, '\\x01ff'::bytea FROM orders WHERE tenant_id IN ($own, $far) ORDER BY tenant_id, id",
	"FETCH c", "FETCH 2 FROM c", "MOVE c", "FETCH h", "FETCH ALL FROM h", "CLOSE c", "CLOSE h", "CLOSE ALL",
	"LISTEN news$client", "NOTIFY news$client, 'x'", "UNLISTEN *", "SET CONSTRAINTS ALL DEFERRED", "LOCK TABLE whole IN ACCESS SHARE MODE",
	`\cancel SELECT pg_sleep(60)`, `\cancel SELECT pg_sleep(60), count(*) FROM public.orders WHERE tenant_id = $own`, `\cancel SELECT count(*), pg_sleep(60) FROM public.whole WHERE a = $client`,
	`\cancel SELECT count(*), pg_sleep(60) FROM public.orders WHERE tenant_id IN ($own, $far)`, `\leave SELECT pg_sleep(0.05)`, `\leave SELECT pg_sleep(0.05), * FROM orders WHERE tenant_id IN ($own, $far)`,
	`\copy COPY (SELECT b, c, '1 day 2 hours'::interval FROM whole WHERE a = $client ORDER BY b) TO STDOUT`, `\copy COPY (SELECT id, note, '03/04/2005'::date FROM orders WHERE tenant_id IN ($own, $far) ORDER BY tenant_id, id) TO STDOUT (FORMAT csv)`,
}

// unset are settings that are left alone: those that the router refuses to change, those of the connection to a server, those that
// end sessions, what a session with temporary tables cannot change, and one by which PostgreSQL prints another search_path.
var unset = []string{
	"client_encoding", "standard_conforming_strings", "transform_null_equals", "restrict_nonsystem_relation_kind", "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout",
	"exit_on_error", "temp_buffers", "local_preload_libraries", "quote_all_identifiers", "transaction_isolation", "transaction_read_only", "transaction_deferrable",
}

// spoken are values of settings that have no list or bounds of them, or whose bounds are wider than a test has time for.
var spoken = map[string][]string{
	"statement_timeout": {"0", "10min", "1h"}, "lock_timeout": {"0", "10min"}, "idle_in_transaction_session_timeout": {"0", "1d"}, "idle_session_timeout": {"0", "1d"}, "transaction_timeout": {"0", "1h"},
	"client_min_messages": {"notice", "warning", "error"}, "default_table_access_method": {"heap"}, "default_tablespace": {"", "pg_default"}, "temp_tablespaces": {"", "pg_default"}, "search_path": {"public", "other, public", "$user"},
	"lc_monetary": {"C", "POSIX"}, "lc_numeric": {"C", "POSIX"}, "lc_time": {"C", "POSIX"}, "default_text_search_config": {"pg_catalog.english", "pg_catalog.simple"}, "timezone_abbreviations": {"Default", "India", "Australia"},
	"application_name": {"", "it's", "x y"}, "DateStyle": {"ISO", "dmy", "German", "SQL, MDY", "Postgres, DMY", "ymd", "default"}, "TimeZone": {"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Tokyo"}, "log_timezone": {"UTC"},
	"geqo_threshold": {"2", "12"}, "effective_io_concurrency": {"0", "1"}, "maintenance_io_concurrency": {"0", "1"}, "debug_discard_caches": {"0"}, "createrole_self_grant": {"", "set"},
}

// setting is one that sessions may change, with values that it takes.
type changeable struct {
	name   string
	values []string
}

// changeables are all settings of a server that a user may change.
func changeables(ctx context.Context, t *testing.T, c *pgx.Conn) (all []changeable) {
	rows, err := c.Query(ctx, "SELECT name, vartype, coalesce(enumvals, '{}'), coalesce(min_val, '0'), coalesce(max_val, '0'), reset_val FROM pg_settings WHERE context = 'user' AND name NOT LIKE '%.%' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var s changeable
		var kind, least, most, usual string
		if err := rows.Scan(&s.name, &kind, &s.values, &least, &most, &usual); err != nil {
			t.Fatal(err)
		}
		switch values, ok := spoken[s.name]; {
		case slices.Contains(unset, s.name):
			continue
		case ok:
			s.values = values
		case kind == "bool":
			s.values = []string{"on", "off", "yes", "0"}
		case kind == "integer":
			low, _ := strconv.Atoi(least)
			high, _ := strconv.Atoi(most)
			s.values = []string{least, usual, fmt.Sprint(min(high, low+7)), fmt.Sprint(min(high, low+1000))}
		case kind == "real":
			s.values = []string{least, usual, most}
		case kind != "enum":
			t.Errorf("which values does %s take?", s.name) // a new one of PostgreSQL
			continue
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil || len(all) < 80 {
		t.Fatalf("%d settings: %v", len(all), err)
	}
	return all
}

// act is one of acts, or something about any of the settings.
func act(rnd *rand.Rand, all []changeable) string {
	if rnd.IntN(4) > 0 {
		return acts[rnd.IntN(len(acts))]
	}
	s := all[rnd.IntN(len(all))]
	value := s.values[rnd.IntN(len(s.values))]
	quoted := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	if s.name == "search_path" || s.name == "DateStyle" {
		quoted = "'" + strings.ReplaceAll(value, ", ", "', '") + "'"
	}
	if rnd.IntN(20) == 0 {
		value, quoted = "no such value", "'no such value'"
	}
	name := s.name
	if rnd.IntN(5) == 0 {
		name = strings.ToUpper(name)
	}
	switch rnd.IntN(14) {
	case 0, 1:
		return "SET " + name + " TO " + quoted
	case 2:
		return "SET SESSION " + name + " = " + quoted
	case 3, 4:
		return "SET LOCAL " + name + " = " + quoted
	case 5:
		return "SET " + name + " TO DEFAULT"
	case 6:
		return "SET LOCAL " + name + " TO DEFAULT"
	case 7:
		return "RESET " + name
	case 8:
		return "SHOW " + name
	case 9:
		return "SELECT current_setting('" + name + "')"
	case 10, 11:
		local := []string{"true", "false"}[rnd.IntN(2)]
		computed := []string{"", "", " || ''"}[rnd.IntN(3)]
		return "SELECT set_config('" + name + "', '" + strings.ReplaceAll(value, "'", "''") + "'" + computed + ", " + local + ")"
	}
	return "SELECT name, setting FROM pg_settings WHERE context = 'user' AND name NOT LIKE '%.%' AND name NOT IN ('" + strings.Join(unset, "', '") + "') ORDER BY name"
}
