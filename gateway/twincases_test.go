package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// sessionCases are sessions that once went otherwise than with PostgreSQL, each by what it showed. Messages of several statements
// that begin with "sync:" go through the extended protocol before one Sync, those with "simple:" or none in one Query.
var sessionCases = []struct {
	name     string
	start    map[string]string
	messages []string
}{
	{"the word default in DateStyle is the session's start", map[string]string{"datestyle": "SQL, DMY"}, []string{
		"SET datestyle = 'ISO, YMD'", "SET DateStyle TO 'default'", "SELECT '03/04/2005'::date", "SET datestyle = 'ISO'", "SELECT '03/04/2005'::date", "SET datestyle = 'default, YMD'", "SHOW datestyle",
		"BEGIN; SET LOCAL datestyle = 'default'; SELECT '03/04/2005'::date; COMMIT", "SHOW datestyle", "SET datestyle = 'German, default'", "SHOW datestyle"}},
	{"and whole, where the start has one half of it", map[string]string{"datestyle": "SQL"}, []string{
		"SET datestyle = 'ISO, DMY'", "SELECT set_config('DateStyle', 'default', false)", "SHOW datestyle", "SELECT '03/04/2005'::date", "SET datestyle = 'ISO, DMY'",
		"BEGIN; SELECT set_config('DateStyle', 'default', true); SELECT '03/04/2005'::date; COMMIT", "SHOW datestyle"}},
	{"what is reset behind a schema change is reset on every shard", nil, []string{
		"SET datestyle = 'German, DMY'", "SELECT id, '03/04/2005'::date FROM orders WHERE tenant_id = $far", "SELECT id, '03/04/2005'::date FROM orders WHERE tenant_id = $own", "SELECT max('03/04/2005'::date) FROM orders",
		"BEGIN; COMMENT ON TABLE whole IS 'x'", "RESET datestyle", "SELECT id, '03/04/2005'::date FROM orders WHERE tenant_id = $far", "SELECT id, '03/04/2005'::date FROM orders WHERE tenant_id = $own",
		"SELECT max('03/04/2005'::date) FROM orders", "ROLLBACK", "SELECT max('03/04/2005'::date) FROM orders"}},
	{"SET LOCAL of the session's start ends with the transaction", map[string]string{"work_mem": "2MB", "datestyle": "SQL, DMY"}, []string{
		"SET work_mem = '1MB'; SET datestyle = 'ISO'", "BEGIN; SELECT count(*) FROM whole; SET LOCAL work_mem TO DEFAULT; SET LOCAL datestyle TO DEFAULT; COMMIT", "SHOW work_mem", "SHOW datestyle",
		"BEGIN; SET LOCAL work_mem TO DEFAULT; COMMIT", "SHOW work_mem", "BEGIN; SELECT count(*) FROM orders; SET LOCAL work_mem TO DEFAULT; SHOW work_mem; COMMIT", "SHOW work_mem"}},
	{"and a style behind it is a value that shards read", nil, []string{
		"SET DateStyle TO 'default'", "SET datestyle = 'ISO'", "SELECT count(*), max(note) FROM orders", "SET datestyle = 'SQL'", "SELECT 1/(tenant_id - $own), '03/04/2005'::date FROM orders"}},
	{"set_config() is told behind other statements of its Sync", nil, []string{
		"sync:SHOW work_mem; SELECT set_config('TimeZone', 'Asia/Tokyo', false)", "sync:SET LOCAL work_mem = '1MB'; SELECT set_config('application_name', 'x y', false)",
		"sync:SELECT 1; SELECT set_config('application_name', '', false)", "sync:SELECT set_config('application_name', 'a', false); SELECT set_config('datestyle', 'SQL', false); SELECT 1",
		"sync:SELECT set_config('application_name', 'b', true); SELECT set_config('intervalstyle', 'iso_8601', false)", "SHOW application_name", "sync:SELECT set_config('application_name', 'c', false); SELECT 1/0", "SHOW application_name"}},
	{"set_config() is told in a block without a shard", nil, []string{
		"BEGIN", "SELECT set_config('TimeZone', 'Asia/Tokyo', false)", "SELECT set_config('application_name', 'x', true)", "COMMIT", "BEGIN; SELECT set_config('TimeZone', 'UTC', false); ROLLBACK", "SHOW timezone"}},
	{"PREPARE behind a write before one Sync does not commit it", nil, []string{
		"sync:INSERT INTO whole VALUES ($client, 1); PREPARE p AS SELECT 1; SELECT 1/0", "SELECT count(*) FROM whole", "EXECUTE p", "sync:INSERT INTO orders VALUES ($own, 1); PREPARE p AS SELECT 1", "SELECT count(*) FROM orders", "DEALLOCATE p",
		"sync:INSERT INTO orders VALUES ($own, 1); PREPARE p AS SELECT 1; INSERT INTO orders VALUES ($far, 1)", "DELETE FROM orders", "sync:PREPARE q AS SELECT 1; EXECUTE q", "DEALLOCATE ALL"}},
	{"DISCARD TEMP before an error behind it is taken back", nil, []string{
		"CREATE TEMP TABLE scratch (a int)", "INSERT INTO scratch VALUES (1)", "sync:DISCARD TEMP; RELEASE s", "SELECT * FROM scratch", "DISCARD TEMP", "SELECT * FROM scratch"}},
	{"what a reader of a failed COMMIT had set is taken back", nil, []string{
		"ALTER TABLE orders ADD CONSTRAINT once UNIQUE (tenant_id, note) DEFERRABLE INITIALLY DEFERRED", "INSERT INTO orders VALUES ($far, 1, 'x'), ($far, 2, 'y')",
		"BEGIN", "SELECT count(*) FROM whole", "SET work_mem = '1234kB'; SET ROLE pg_monitor", "UPDATE orders SET note = 'x' WHERE tenant_id = $far", "COMMIT",
		"SELECT current_setting('work_mem'), current_setting('role'), count(*) FROM whole", "SHOW work_mem", "DELETE FROM orders", "ALTER TABLE orders DROP CONSTRAINT once"}},
	{"a transaction over several shards has the session's locks", nil, []string{
		"SELECT pg_advisory_lock(1$client)", "BEGIN", "SELECT count(*) FROM orders", "SELECT pg_try_advisory_xact_lock(1$client)", "SET LOCAL statement_timeout = '20s'; SELECT pg_advisory_xact_lock(1$client)",
		"SELECT pg_advisory_lock(1$client)", "INSERT INTO orders VALUES ($own, 1, 'x'), ($far, 1, 'x'); INSERT INTO whole VALUES ($client, 1)", "COMMIT", "SELECT count(*) FROM orders",
		"SELECT pg_advisory_unlock(1$client)", "SELECT pg_advisory_unlock(1$client)", "SELECT pg_advisory_unlock(1$client)",
		"SELECT pg_advisory_lock(1$client)", "sync:SELECT count(*) FROM orders; SELECT pg_try_advisory_xact_lock(1$client)", "SELECT count(*) FROM orders; SELECT pg_try_advisory_xact_lock(1$client)",
		"sync:INSERT INTO orders VALUES ($own, 2, 'x'), ($far, 2, 'x'); SELECT pg_try_advisory_xact_lock(1$client)", "SELECT count(*) FROM orders", "SELECT pg_advisory_unlock(1$client)", "SELECT pg_advisory_unlock(1$client)"}},
	{"a transaction over several shards has the session's temporary objects", nil, []string{
		"CREATE TEMP TABLE scratch (a int)", "BEGIN", "SELECT count(*) FROM orders", "INSERT INTO scratch VALUES (1)", "SELECT * FROM scratch", "INSERT INTO orders VALUES ($own, 1, 'x'), ($far, 1, 'x')", "COMMIT",
		"SELECT * FROM scratch", "SELECT count(*) FROM orders", "BEGIN; SELECT count(*) FROM orders", "SAVEPOINT s; INSERT INTO scratch VALUES (2); ROLLBACK TO s", "SELECT * FROM scratch",
		"CREATE TEMP TABLE another (a int)", "INSERT INTO another SELECT count(*) FROM scratch", "COMMIT", "SELECT * FROM another", "INSERT INTO orders VALUES ($own, 2, 'x'), ($far, 2, 'x'); INSERT INTO scratch VALUES (5)", "SELECT * FROM scratch ORDER BY 1",
		"SELECT count(*) FROM orders", "BEGIN; INSERT INTO orders VALUES ($own, 3, 'x'), ($far, 3, 'x'); DELETE FROM scratch; ROLLBACK", "SELECT count(*) FROM scratch", "SELECT count(*) FROM orders", "DROP TABLE scratch", "DISCARD ALL"}},
	{"ROLLBACK behind a lock before one Sync keeps the session", nil, []string{
		"CREATE TEMP TABLE scratch (a int)", "sync:SELECT pg_advisory_lock(1$client); ROLLBACK", "SELECT count(*) FROM scratch", "SELECT pg_advisory_unlock(1$client)"}},
	{"and so does an error behind a lock and a row on another shard", nil, []string{
		"CREATE TEMP TABLE scratch (a int)", "sync:SELECT pg_advisory_lock(1$client); INSERT INTO orders VALUES ($far, 1, 'x'); SAVEPOINT s", "sync:SELECT pg_advisory_lock(1$client); INSERT INTO orders VALUES ($own, 1, 'x'); INSERT INTO orders VALUES ($far, 1, 'x'); RELEASE s",
		"SELECT count(*) FROM scratch", "SELECT count(*) FROM orders", "SELECT pg_advisory_unlock(1$client), pg_advisory_unlock(1$client)", "SELECT pg_advisory_unlock(1$client)"}},
	{"what SET LOCAL has set already is set for good as well", map[string]string{"work_mem": "2MB"}, []string{
		"sync:SELECT set_config('default_transaction_isolation', 'repeatable read', true); SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE, ISOLATION LEVEL REPEATABLE READ", "SELECT setting FROM pg_settings WHERE name = 'default_transaction_isolation'", "RESET default_transaction_isolation",
		"SET work_mem = '1MB'; SET extra_float_digits = 0", "BEGIN; SELECT count(*) FROM whole; SET LOCAL work_mem = '2MB'; SET LOCAL extra_float_digits TO DEFAULT; RESET work_mem; COMMIT", "SELECT current_setting('work_mem'), current_setting('extra_float_digits')",
		"SET work_mem = '1MB'", "BEGIN; SET LOCAL work_mem = '2MB'; SET LOCAL extra_float_digits TO DEFAULT; SET LOCAL ROLE pg_monitor; RESET ALL; COMMIT", "SELECT current_setting('work_mem'), current_setting('extra_float_digits'), current_setting('role')",
		"SET work_mem = '1MB'", "BEGIN; SELECT count(*) FROM orders; SET LOCAL work_mem = '2MB'; SET work_mem TO DEFAULT; COMMIT", "SELECT current_setting('work_mem')", "SELECT DISTINCT current_setting('work_mem') FROM orders",
		"SET work_mem = '1MB'", "BEGIN; SELECT count(*) FROM orders; SAVEPOINT s; SET LOCAL work_mem = '2MB'; SET work_mem TO DEFAULT; ROLLBACK TO s; COMMIT", "SELECT current_setting('work_mem')"}},
	{"SHOW takes no snapshot where the session keeps a connection", nil, []string{
		"SELECT pg_advisory_lock(1$client)", "SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT name FROM pg_settings WHERE name = 'work_mem'",
		"SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders", "sync:SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", "BEGIN; SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SHOW transaction_isolation; COMMIT",
		"SELECT pg_advisory_unlock(1$client)", "SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT name FROM pg_settings WHERE name = 'work_mem'", "BEGIN; SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SHOW transaction_isolation; COMMIT"}},
	{"and neither does LOCK, nor SET CONSTRAINTS", nil, []string{
		"SELECT pg_advisory_lock(1$client)", "sync:DISCARD SEQUENCES", "SHOW transaction_isolation; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", "INSERT INTO whole VALUES ($client, 1)", "SELECT pg_advisory_unlock(1$client)", "DISCARD SEQUENCES",
		"BEGIN READ ONLY", "LOCK TABLE whole IN ACCESS SHARE MODE; SET a.b = '1'; SET LOCAL transaction_read_only = off; SHOW transaction_read_only", "ROLLBACK", "DISCARD SEQUENCES",
		"BEGIN; LOCK TABLE whole IN ACCESS SHARE MODE; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SHOW transaction_isolation; ROLLBACK", "BEGIN; LOCK TABLE orders IN ACCESS SHARE MODE; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SHOW transaction_isolation; ROLLBACK",
		"BEGIN; SET CONSTRAINTS ALL DEFERRED; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SHOW transaction_isolation; ROLLBACK", "BEGIN; SELECT count(*) FROM orders; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "ROLLBACK",
		"BEGIN; NOTIFY news; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SHOW transaction_isolation; ROLLBACK", "BEGIN; DISCARD SEQUENCES; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "BEGIN; PREPARE p AS SELECT 1; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "ROLLBACK; DEALLOCATE p"}},
	{"CLOSE takes a snapshot before a block in the same message", nil, []string{
		"SET work_mem = '1MB'; CLOSE ALL; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders WHERE tenant_id IN ($own, $far); COMMIT",
		"SET work_mem = '1MB'; CLOSE h; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "CLOSE ALL; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "SELECT 1; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "SHOW work_mem; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK",
		"SELECT count(*) FROM orders; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "SET work_mem = '1MB'; BEGIN ISOLATION LEVEL REPEATABLE READ", "SHOW transaction_isolation", "ROLLBACK", "DISCARD PLANS; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK",
		"SET default_transaction_isolation = 'repeatable read'; CLOSE ALL; BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK", "CLOSE ALL; BEGIN ISOLATION LEVEL READ COMMITTED", "ROLLBACK"}},
	{"set_config() over several shards keeps the session", nil, []string{
		"CREATE TEMP TABLE scratch (a int)", "BEGIN; SELECT count(*) FROM orders; SELECT set_config('work_mem', '3MB', false); COMMIT", "SELECT count(*) FROM scratch", "SHOW work_mem"}},
	{"a cursor's name over several shards is taken", nil, []string{
		"BEGIN", "DECLARE c CURSOR FOR SELECT id FROM orders WHERE tenant_id IN ($own, $far) ORDER BY id", "SAVEPOINT s", "DECLARE c CURSOR FOR SELECT b FROM whole", "ROLLBACK TO s", "FETCH c", "CLOSE c", "DECLARE c CURSOR FOR SELECT b FROM whole", "COMMIT"}},
	{"a list that is given as one text is shown as it was given", map[string]string{"search_path": `$user,public`}, []string{
		"SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'",
		`SELECT set_config('search_path', '"$user",  public', false)`, "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'",
		"SELECT set_config('search_path', '$user', false)", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'",
		"SELECT set_config('search_path', '', false)", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", "SELECT count(*) FROM orders",
		"RESET search_path", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", `SET search_path TO '"$user", public'`, "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", "SET search_path TO ''", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'",
		"BEGIN; SELECT set_config('search_path', 'Public,$user', true); SELECT count(*) FROM orders", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", "COMMIT", "RESET ALL", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'",
		"BEGIN; SELECT count(*) FROM public.orders; SELECT set_config('search_path', 'a,b', true)", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", "SELECT set_config('search_path', 'c,public', false); SAVEPOINT s; SELECT set_config('search_path', 'd,e', false); ROLLBACK TO s", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", "COMMIT", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'",
		"BEGIN; COMMENT ON TABLE whole IS 'x'; SELECT set_config('search_path', 'public,c', false)", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'", "COMMIT", "SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM public.orders", "SELECT setting FROM pg_settings WHERE name = 'search_path'"}},
	{"the word default in set_config() is the session's start", map[string]string{"datestyle": "SQL, DMY"}, []string{
		"SET datestyle = 'ISO, YMD'", "SELECT set_config('DateStyle', 'default', false)", "SHOW datestyle", "SELECT DISTINCT '03/04/2005'::date FROM orders",
		`BEGIN; SELECT set_config('DateStyle', 'default, YMD', true) AS "a ""b"""; SHOW datestyle; SELECT DISTINCT '03/04/2005'::date FROM orders; COMMIT`, "SHOW datestyle"}},
	{"CLOSE takes a snapshot", nil, []string{"sync:CLOSE ALL; BEGIN; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", "ROLLBACK"}},
	{"a second statement of a name is read before the name is looked for", nil, []string{
		`\parse p SELECT 1`, `\parse p SELECT '03/04/2005'::date`, "SET datestyle = 'ymd'", `\parse p SELECT '03/04/2005'::date`, `\parse p SELECT nothing FROM orders`, `\parse p SELECT 1/(tenant_id - $own) FROM orders`, `\run p`, "SHOW datestyle",
		"PREPARE p AS SELECT '03/04/2005'::date", "PREPARE p (nowhere) AS SELECT 1", "PREPARE p AS SELECT id FROM orders WHERE tenant_id IN ($own, $far) AND nothing", "PREPARE p AS SELECT 1",
		"BEGIN", "SELECT count(*) FROM orders", `\parse p SELECT nothing FROM orders`, `\parse p SELECT 1`, "ROLLBACK", "BEGIN; SELECT count(*) FROM whole; PREPARE p AS SELECT nothing", "ROLLBACK", "BEGIN; PREPARE p AS SELECT 2", "ROLLBACK", `\run p`,
		"BEGIN; SELECT count(*) FROM orders; PREPARE p AS SELECT nothing FROM orders", "ROLLBACK", `\close p`}},
	{"AND CHAIN keeps the characteristics", nil, []string{
		"BEGIN READ ONLY, ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM orders", "COMMIT AND CHAIN", "SHOW transaction_isolation", "SHOW transaction_read_only", "INSERT INTO whole VALUES ($client, 1)", "ROLLBACK AND CHAIN", "SHOW transaction_read_only", "ROLLBACK",
		"BEGIN; SET default_transaction_read_only = on; COMMIT AND CHAIN", "SHOW transaction_read_only", "ROLLBACK"}},
	{"BEGIN in a block has characteristics", nil, []string{"BEGIN; BEGIN ISOLATION LEVEL REPEATABLE READ", "SHOW transaction_isolation", "SELECT count(*) FROM orders", "COMMIT"}},
	{"SHOW before a read over several shards in REPEATABLE READ", nil, []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SHOW transaction_isolation", "SELECT count(*) FROM orders", "COMMIT"}},
	{"RESET ALL keeps the role", nil, []string{"SET ROLE pg_monitor", "RESET ALL", "SHOW role", "RESET SESSION AUTHORIZATION", "SHOW role"}},
	{"a transaction with a schema change leaves the session's settings only", nil, []string{
		"BEGIN", "COMMENT ON TABLE whole IS 'x'", "SET ROLE pg_monitor", "SELECT set_config('work_mem', '3MB', false)", "COMMIT", "SHOW role", "SHOW work_mem", "RESET ROLE", "SET ROLE pg_monitor; COMMENT ON TABLE whole IS 'y'", "SHOW role"}},
	{"a view's dates are those of the session that made it", nil, []string{
		"INSERT INTO orders (tenant_id, id) VALUES ($own, 1), ($far, 1)",
		"SET datestyle = 'German, DMY'; SET intervalstyle = 'sql_standard'; SET extra_float_digits = -10", "CREATE VIEW of_march AS SELECT o.tenant_id, date '2024-03-04' AS d, interval '-1 day 02:03:04' AS i, 0.1::float8 + 0.2 AS f, timestamp '2024-05-06 07:08' AS s FROM orders o",
		"CREATE TABLE told (a bigint, d date DEFAULT '2024-03-04', s timestamp DEFAULT '2024-05-06 07:08', r daterange DEFAULT '[2024-03-04,2024-05-06]', i interval DEFAULT age(timestamp '2024-03-04', timestamp '2020-01-02'))",
		"RESET ALL", "SELECT DISTINCT d, i, f, s FROM of_march", "INSERT INTO told (a) VALUES (1), (2)", "SELECT a, d, s, r FROM told ORDER BY a", "SET datestyle = 'SQL, YMD'", "INSERT INTO told (a) SELECT 3", "SELECT DISTINCT d, i, f, s FROM of_march",
		"DROP TABLE told", "DROP VIEW of_march", "DELETE FROM orders"}},
	{"the arguments of EXECUTE are what they were computed as", nil, []string{
		"SET datestyle = 'German, MDY'; SET extra_float_digits = -10", "PREPARE p (date, timestamp, float8, text, date[], timestamptz) AS SELECT count(*), $1, $2, $3 * 3 = 1, $4, $5, $6 FROM orders",
		"EXECUTE p (date '2024-03-01' + 3, timestamp '2024-03-04 05:06' + interval '0', 1 / 3.0::float8, (date '2024-03-01' + 3)::text, ARRAY[date '2024-03-01' + 3], timestamptz '2024-03-04 05:06+00' + interval '0')",
		"SET datestyle = 'SQL, YMD'", "EXECUTE p (date '2024-03-01' + 3, timestamp '2024-03-04 05:06' + interval '0', 1 / 3.0::float8, (date '2024-03-01' + 3)::text, ARRAY[date '2024-03-01' + 3], timestamptz '2024-03-04 05:06+00' + interval '0')", "DEALLOCATE p"}},
	{"END behind ROLLBACK TO and SETs", nil, []string{"BEGIN", "SET default_transaction_read_only = on", "SAVEPOINT s", "SET TRANSACTION READ ONLY", "ROLLBACK TO s", "SET default_transaction_read_only = off", "END"}},
}

// twins are a router over two shards and one PostgreSQL with the same tables.
func twins(t *testing.T) (*cluster, *twin) {
	t.Helper()
	cl, conn, keys := orders(t, config{shards: 2})
	single := pgtest.Database(t)
	plain, err := pgx.Connect(t.Context(), single)
	if err != nil {
		t.Fatal(err)
	}
	twinTables(t, conn, plain)
	return cl, &twin{urls: [2]string{cl.url(""), single}, shard: cl.shards[0], names: twinNames(keys, 0)}
}

// TestSessionCases runs sessions message by message beside PostgreSQL: answers, errors, what is told of settings.
func TestSessionCases(t *testing.T) {
	cl, b := twins(t)
	cl.monitors(t)
	for _, c := range sessionCases {
		t.Run(c.name, func(t *testing.T) {
			if err := b.connectWith(t.Context(), c.start, false); err != nil {
				t.Fatal(err)
			}
			for _, m := range c.messages {
				way, m := simple, b.names.Replace(m)
				if rest, ok := strings.CutPrefix(m, "sync:"); ok {
					way, m = batched, rest
				}
				statements := strings.Split(m, "; ")
				if got, want := b.run(t.Context(), 0, statements, way), b.run(t.Context(), 1, statements, way); got.text != want.text {
					t.Fatalf("%s: router\n  %s (%s)\nPostgreSQL\n  %s (%s)", m, got.text, got.message, want.text, want.message)
				}
			}
		})
	}
	for _, c := range b.conns {
		_ = c.Close(context.Background())
	}
	if left := cl.remains(context.Background(), t); left != "" {
		t.Error(left)
	}
}
