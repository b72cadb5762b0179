package gateway_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// alterAll gives the sessions of a database, each setting of which a value may be given, the value of index n.
// Those that tune the server, or make it say more, may differ and are left alone.
func alterAll(t *testing.T, at string, n int) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, s := range changeables(ctx, t, conn) {
		var tuning bool
		if err := conn.QueryRow(ctx, "SELECT category ~ '^(Query Tuning|Developer|Resource|Reporting|Write-Ahead|Stat)' FROM pg_settings WHERE name = $1", s.name).Scan(&tuning); err != nil {
			t.Fatal(err)
		}
		if tuning || s.name == "default_transaction_read_only" || strings.HasSuffix(s.name, "_timeout") && n > 0 {
			continue
		}
		value := s.values[n%len(s.values)]
		if s.name == "search_path" && value != "" {
			value = "'" + strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(value, `"`, ""), " ", ""), ",", "', '") + "'"
			exec(t, conn, "ALTER DATABASE "+databaseOf(t, at)+" SET search_path TO "+value)
			continue
		}
		exec(t, conn, "ALTER DATABASE "+databaseOf(t, at)+" SET "+s.name+" TO '"+strings.ReplaceAll(value, "'", "''")+"'")
	}
}

func databaseOf(t *testing.T, at string) string {
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// TestAlikeSettings: whatever ALTER DATABASE says of any setting on each shard, connections have the default shard's
// values of those that change answers, also after RESET ALL and DISCARD ALL.
func TestAlikeSettings(t *testing.T) {
	urls := []string{pgtest.Database(t), pgtest.Database(t), pgtest.Database(t)}
	for i, u := range urls {
		alterAll(t, u, i)
	}
	cl := start(t, config{urls: urls})
	ctx := context.Background()
	if _, err := cl.ex.Parameters(ctx); err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	for i := range urls {
		shard := fmt.Sprintf("shard-%d", i)
		c, err := cl.ex.Acquire(ctx, shard, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []string{"", "RESET ALL", "DISCARD ALL"} {
			if _, err := c.Exec(first); err != nil {
				t.Fatal(err)
			}
			res, err := c.Exec(engine.Alike)
			if err != nil {
				t.Fatal(err)
			}
			got := engine.AlikeRows(res)
			if want == nil {
				want = got
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if got[name] != want[name] {
					t.Errorf("%s after %q: %s is %q, on the default shard %q", shard, first, name, got[name], want[name])
				}
			}
		}
		c.Break()
		c.Release()
	}
	if len(want) < 30 {
		t.Errorf("only %d settings are compared", len(want))
	}
}

// TestAlikeAnswers: one answer of several shards is printed and read by the default shard's settings.
func TestAlikeAnswers(t *testing.T) {
	urls := []string{pgtest.Database(t), pgtest.Database(t), pgtest.Database(t)}
	set := func(i int, settings ...string) {
		for _, s := range settings {
			pgtest.Ask(t, urls[i], "ALTER DATABASE "+databaseOf(t, urls[i])+" SET "+s)
		}
	}
	set(0, "extra_float_digits TO 0")
	set(1, "bytea_output TO escape", "extra_float_digits TO -10", "search_path TO other, public", "default_transaction_isolation TO serializable", "transform_null_equals TO on",
		"xmlbinary TO hex", "array_nulls TO off", "statement_timeout TO '10min'")
	set(2, "IntervalStyle TO iso_8601", "timezone_abbreviations TO 'India'", "lc_monetary TO 'C'")
	cl, conn, keys := orders(t, config{urls: urls})
	for i := range keys {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", keys[i][0])
	}
	plain, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(context.Background())
	exec(t, plain, "SET extra_float_digits TO 0")
	const values = `'\x01ff'::bytea::text, (1.1::float4 / 3)::text, current_setting('search_path'), current_setting('transaction_isolation'), (note = NULL)::text, '{NULL}'::text[]::text,
		current_setting('statement_timeout'), '2 hours'::interval::text, '2005-01-01 12:00 IST'::timestamptz::text, current_setting('xmlbinary')`
	read := func(c *pgx.Conn, from string) []string {
		rows, err := c.Query(context.Background(), "SELECT concat_ws('|', "+values+") FROM "+from, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := read(plain, "(VALUES ('x')) v (note)")[0]
	for n, got := range read(conn, "orders") {
		if got != want {
			t.Errorf("row %d: %s, want %s", n, got, want)
		}
	}
	for i := range keys {
		if got := read(conn, fmt.Sprintf("orders WHERE tenant_id = %d", keys[i][0])); len(got) != 1 || got[0] != want {
			t.Errorf("shard %d: %s, want %s", i, got, want)
		}
	}
	found, err := cl.ops.Doctor(context.Background(), admin.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, f := range found {
		if strings.Contains(f.Next, "ALTER DATABASE") {
			told++
		}
		if strings.Contains(f.What, "search_path") && (f.Shard != "shard-1" || !strings.Contains(f.Next, `SET search_path TO "$user", public`)) {
			t.Errorf("doctor: %+v", f)
		}
	}
	if told < 8 {
		t.Errorf("doctor tells of %d settings: %+v", told, found)
	}
}

// TestDefaultShardsPath: names are looked up by the default shard's search_path on every shard, and by the router.
func TestDefaultShardsPath(t *testing.T) {
	urls := []string{pgtest.Database(t), pgtest.Database(t)}
	pgtest.Ask(t, urls[0], "ALTER DATABASE "+databaseOf(t, urls[0])+" SET search_path TO app, public")
	cl := start(t, config{urls: urls, shards: 2})
	conn := cl.connect(t)
	exec(t, conn, "CREATE SCHEMA app")
	exec(t, conn, "CREATE TABLE app.things (k bigint PRIMARY KEY, v text) WITH (cleave.shard_key = 'k')")
	exec(t, conn, "CREATE TABLE public.things (k bigint PRIMARY KEY, v text) WITH (cleave.shard_key = 'k')")
	for k := range 20 {
		exec(t, conn, "INSERT INTO things VALUES ($1, 'app')", k)
	}
	for _, c := range []struct{ sql, want string }{
		{"SELECT count(*)::text FROM things", "20"}, {"SELECT count(*)::text FROM app.things", "20"}, {"SELECT count(*)::text FROM public.things", "0"}, {"SHOW search_path", "app, public"},
	} {
		if got := one[string](t, conn, c.sql); got != c.want {
			t.Errorf("%s: %s, want %s", c.sql, got, c.want)
		}
	}
	exec(t, conn, "SET search_path TO public")
	exec(t, conn, "RESET search_path")
	if got := one[string](t, conn, "SHOW search_path"); got != "app, public" {
		t.Errorf("RESET search_path: %s", got)
	}
}

// TestUnlikeSetting: a shard that cannot have a value of the default shard's serves without it, and has the others.
func TestUnlikeSetting(t *testing.T) {
	urls := []string{pgtest.Database(t), pgtest.Database(t)}
	pgtest.Ask(t, urls[0], "CREATE TEXT SEARCH CONFIGURATION public.own (COPY = pg_catalog.english)")
	pgtest.Ask(t, urls[0], "ALTER DATABASE "+databaseOf(t, urls[0])+" SET default_text_search_config TO 'public.own'")
	pgtest.Ask(t, urls[0], "ALTER DATABASE "+databaseOf(t, urls[0])+" SET bytea_output TO escape")
	_, conn, keys := orders(t, config{urls: urls, shards: 2})
	for i, want := range []string{"public.own", "pg_catalog.simple"} {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", keys[i][0])
		if got := one[string](t, conn, "SELECT current_setting('default_text_search_config') FROM orders WHERE tenant_id = $1", keys[i][0]); got != want {
			t.Errorf("shard %d: default_text_search_config is %s", i, got)
		}
		sql := fmt.Sprintf(`SELECT current_setting('bytea_output') FROM orders WHERE tenant_id = %d`, keys[i][0])
		if got := one[string](t, conn, sql); got != "escape" {
			t.Errorf("shard %d: bytea_output is %s", i, got)
		}
	}
}

// relearn has the default shard get new connections until its new settings are seen.
func relearn(t *testing.T, cl *cluster) {
	t.Helper()
	now := func() uint64 {
		s, err := cl.ex.Begin(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.BeganAs()
	}
	for was := now(); now() == was; {
		c, err := cl.ex.Acquire(context.Background(), "shard-0", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
}

// TestOpenSessionsKeepTheirPath: ALTER DATABASE ... SET on the default shard is for new sessions. Those that are open find the
// same tables as before on every shard, in schema changes too.
func TestOpenSessionsKeepTheirPath(t *testing.T) {
	cl := start(t, config{shards: 3, executor: executor.Limits{LearnEvery: time.Nanosecond}})
	before := cl.connect(t)
	for _, schema := range []string{"public", "app"} {
		exec(t, before, "CREATE SCHEMA IF NOT EXISTS "+schema)
		exec(t, before, "CREATE TABLE "+schema+".things (k bigint PRIMARY KEY, v text) WITH (cleave.shard_key = 'k')")
		for k := range 20 {
			exec(t, before, fmt.Sprintf("INSERT INTO %s.things VALUES (%d, '%[1]s')", schema, k))
		}
	}
	database := "ALTER DATABASE " + databaseOf(t, cl.shards[0])
	pgtest.Ask(t, cl.shards[0], database+" SET search_path TO app")
	pgtest.Ask(t, cl.shards[0], database+" SET DateStyle TO German")
	const read = "SELECT v || ' ' || current_setting('search_path') || ' ' || '2024-03-04'::date FROM things WHERE k = "
	relearn(t, cl)
	after := cl.connect(t)
	for _, s := range []struct {
		conn *pgx.Conn
		name string
		want string
	}{{before, "public", `public "$user", public 2024-03-04`}, {after, "app", "app app 04.03.2024"}} {
		for k := range 20 {
			for _, first := range []string{"SELECT 1", "RESET ALL", "DISCARD ALL"} {
				exec(t, s.conn, first, pgx.QueryExecModeSimpleProtocol)
				if got := one[string](t, s.conn, fmt.Sprint(read, k), pgx.QueryExecModeSimpleProtocol); got != s.want {
					t.Errorf("key %d after %s: %s, want %s", k, first, got, s.want)
				}
			}
		}
		exec(t, s.conn, "CREATE TABLE made (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')")
		exec(t, s.conn, "INSERT INTO made SELECT generate_series(1, 20)")
		exec(t, s.conn, "CREATE INDEX CONCURRENTLY made_k ON made (k)")
		for i, u := range cl.shards {
			if got := pgtest.Ask(t, u, "SELECT count(*) FROM pg_indexes WHERE indexname = 'made_k' AND schemaname = '"+s.name+"'"); got != "1" {
				t.Errorf("shard %d has %s indexes in %s", i, got, s.name)
			}
		}
		if got := one[int](t, s.conn, "SELECT count(*) FROM "+s.name+".made"); got != 20 {
			t.Errorf("%d rows in %s.made", got, s.name)
		}
	}
}

// TestPathsOfTheDefaultShard: sessions have its search_path as PostgreSQL's do, however it is written, and so do tables that they make,
// and shards that are added later.
func TestPathsOfTheDefaultShard(t *testing.T) {
	for _, c := range []struct{ path, shown, schema string }{
		{"'app', 'public'", "app, public", "app"}, {"'$user', 'app'", `"$user", app`, "app"}, {"''", `""`, ""}, {"'app', 'B c'", `app, "B c"`, "app"},
	} {
		urls := []string{pgtest.Database(t), pgtest.Database(t)}
		pgtest.Ask(t, urls[0], "CREATE SCHEMA app")
		pgtest.Ask(t, urls[0], "ALTER DATABASE "+databaseOf(t, urls[0])+" SET search_path TO "+c.path)
		cl := start(t, config{urls: urls, shards: 2})
		conn := cl.connect(t)
		exec(t, conn, "CREATE SCHEMA IF NOT EXISTS app")
		const things = "things (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')"
		if c.schema == "" {
			wantCode(t, conn, "3F000", "CREATE TABLE "+things)
			exec(t, conn, "CREATE TABLE public."+things)
		} else {
			exec(t, conn, "CREATE TABLE "+things)
		}
		schema := cmp.Or(c.schema, "public")
		exec(t, conn, "INSERT INTO "+schema+".things SELECT generate_series(1, 20)")
		for _, sql := range []string{"SHOW search_path", "SELECT DISTINCT current_setting('search_path') FROM " + schema + ".things"} {
			if got := one[string](t, conn, sql); got != c.shown {
				t.Errorf("%s, %s: %s", c.path, sql, got)
			}
		}
		if c.schema == "" {
			continue
		}
		added := pgtest.Database(t)
		if _, err := cl.ops.AddShard(context.Background(), admin.AddShardRequest{Meta: admin.Meta{By: "test", Why: "test"}, Name: "added", URL: added}); err != nil {
			t.Fatal(err)
		}
		if got := pgtest.Ask(t, added, "SELECT relnamespace::regnamespace FROM pg_class WHERE relname = 'things'"); got != c.schema {
			t.Errorf("%s: the added shard has the table in %s", c.path, got)
		}
	}
}

// TestDefaultsOfDomains: the default of a domain that was made under another DateStyle is the same date on shards that get the
// domain with a table.
func TestDefaultsOfDomains(t *testing.T) {
	urls := []string{pgtest.Database(t), pgtest.Database(t)}
	pgtest.Ask(t, urls[0], "SET DateStyle TO 'German, DMY'; CREATE DOMAIN due AS date DEFAULT '2024-03-04'; CREATE TABLE bills (k bigint PRIMARY KEY, at due)")
	cl := start(t, config{urls: urls, shards: 2})
	conn := cl.connect(t)
	exec(t, conn, "SELECT cleave.distribute('bills', 'k')")
	exec(t, conn, "INSERT INTO bills (k) SELECT generate_series(1, 40)")
	for i, url := range urls {
		if got := pgtest.Ask(t, url, "SELECT string_agg(DISTINCT at::text, ' ') FROM bills"); got != "2024-03-04" {
			t.Errorf("shard %d: %s", i, got)
		}
	}
}

// stylesOfDatabases are settings of a database under which PostgreSQL does not read all back that it prints, with what
// a session says on top.
var stylesOfDatabases = []struct{ database, session []string }{
	{[]string{"DateStyle TO 'German, MDY'"}, nil},
	{[]string{"DateStyle TO 'SQL, YMD'"}, nil},
	{[]string{"DateStyle TO 'Postgres, DMY'", "IntervalStyle TO iso_8601"}, nil},
	{[]string{"DateStyle TO 'ISO, YMD'"}, []string{"SET DateStyle TO SQL"}},
	{[]string{"DateStyle TO 'German, DMY'"}, []string{"SET DateStyle TO NonEuropean"}},
	{[]string{"extra_float_digits TO -10", "bytea_output TO escape"}, nil},
	{[]string{"array_nulls TO off", "client_min_messages TO error"}, nil},
}

// TestStylesOfTheDefaultShard: what a database's own settings print goes from shard to shard, and is sorted, as what it is, or is refused.
func TestStylesOfTheDefaultShard(t *testing.T) {
	cl := start(t, config{shards: 2, executor: executor.Limits{LearnEvery: time.Nanosecond}})
	single, ctx := pgtest.Database(t), context.Background()
	b := &twin{urls: [2]string{cl.url(""), single}, shard: cl.shards[0], names: strings.NewReplacer()}
	const columns = "(k bigint, f float8, d date, s timestamp, z timestamptz, b bytea, a text[], r daterange, PRIMARY KEY (k))"
	conn := cl.connect(t)
	for _, name := range []string{"styled", "moved"} {
		exec(t, conn, "CREATE TABLE "+name+" "+columns+" WITH (cleave.shard_key = 'k')")
		pgtest.Ask(t, single, "CREATE TABLE "+name+" "+columns)
	}
	const values = "k, float8send(f), date_send(d), timestamp_send(s), timestamptz_send(z), b, a[1] IS NULL, date_send(lower(r))"
	const fill = "INSERT INTO styled SELECT i, 0.5::float8 + i / 1e9::float8, date '2024-03-28' + 5 * i, timestamp '2024-03-28 01:02:03' + 5 * i * interval '1 day', timestamptz '2024-03-28 01:02:03+00' + 5 * i * interval '1 day', decode('5c0' || i % 10, 'hex'), ARRAY[NULL, 'x'], daterange(date '2024-03-28' + 5 * i, 'infinity') FROM generate_series(0, 9) i"
	messages := []string{
		"SELECT k, f, d, s, z, b FROM styled ORDER BY d", "SELECT k FROM styled WHERE d > '2024-04-04' ORDER BY k", "SELECT s, k FROM styled ORDER BY s DESC LIMIT 3", "SELECT z FROM styled ORDER BY z", "SELECT k, f FROM styled ORDER BY f DESC", "SELECT b, k FROM styled ORDER BY b, k",
		"SELECT d, rank() OVER (ORDER BY d) FROM styled ORDER BY k", "SELECT a.k, b.d, b.f, b.z FROM styled a JOIN styled b ON a.d = b.d - 5 ORDER BY 1",
	}
	for _, c := range []string{"f", "d", "s", "z", "b", "a", "r"} {
		messages = append(messages, "INSERT INTO moved (k, "+c+") SELECT k + 20, "+c+" FROM styled", "SELECT "+values+" FROM moved ORDER BY k", "DELETE FROM moved")
	}
	messages = append(messages, "UPDATE styled SET k = k + 5 WHERE k > 4", "SELECT "+values+" FROM styled ORDER BY k",
		"PREPARE p (date, timestamp, float8) AS SELECT count(*), date_send($1), timestamp_send($2), float8send($3) FROM styled",
		"EXECUTE p (date '2024-03-01' + 3, timestamp '2024-03-04 05:06' + interval '0', 1 / 3.0::float8)",
		"DO $$ BEGIN RAISE NOTICE 'x'; END $$", "DROP TABLE IF EXISTS no_such", "DELETE FROM styled")
	run := 0
	for _, c := range stylesOfDatabases {
		for _, at := range []string{cl.shards[0], single} {
			pgtest.Ask(t, at, "ALTER DATABASE "+databaseOf(t, at)+" RESET ALL")
			for _, s := range c.database {
				pgtest.Ask(t, at, "ALTER DATABASE "+databaseOf(t, at)+" SET "+s)
			}
		}
		exec(t, conn, fill) // its session began before
		pgtest.Ask(t, single, fill)
		relearn(t, cl)
		if err := b.connectWith(ctx, nil, false); err != nil {
			t.Fatal(err)
		}
		for _, m := range slices.Concat(c.session, messages) {
			got := b.run(ctx, 0, []string{m}, simple)
			if got.refused {
				if strings.HasPrefix(m, "SELECT") {
					t.Errorf("%v %v: %s: refused: %s", c.database, c.session, m, got.message)
				}
				continue
			}
			run++
			if want := b.run(ctx, 1, []string{m}, simple); got.text != want.text {
				t.Errorf("%v %v: %s: router\n  %s (%s)\nPostgreSQL\n  %s (%s)", c.database, c.session, m, got.text, got.message, want.text, want.message)
			}
		}
	}
	for _, c := range b.conns {
		_ = c.Close(ctx)
	}
	if run < 5*len(messages) {
		t.Errorf("only %d messages were not refused", run)
	}
}

// TestTimeoutsOfTheDefaultShard: the statement_timeout and lock_timeout of its database are those of sessions, at the router too.
func TestTimeoutsOfTheDefaultShard(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 2, executor: executor.Limits{LearnEvery: time.Nanosecond}})
	pgtest.Ask(t, cl.shards[0], "ALTER DATABASE "+databaseOf(t, cl.shards[0])+" SET lock_timeout TO '20ms'")
	relearn(t, cl)
	locked := cl.connect(t)
	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT count(*) FROM orders")
	var said *pgconn.PgError
	if _, err := locked.Exec(context.Background(), "ALTER TABLE orders ADD COLUMN more int"); !errors.As(err, &said) || said.Code != "55P03" || said.Hint != "" {
		t.Errorf("lock_timeout: %v, %+v", err, said) // the router's own bound has a hint
	}
	exec(t, conn, "COMMIT")
	pgtest.Ask(t, cl.shards[0], "ALTER DATABASE "+databaseOf(t, cl.shards[0])+" SET statement_timeout TO '1s'")
	relearn(t, cl)
	if got := code(cl.connect(t), "SELECT ctid FROM orders WHERE id = 1"+strings.Repeat(" AND id <> 2", 100_000)); got != "57014" {
		t.Errorf("statement_timeout: SQLSTATE %q", got)
	}
	if got := one[int](t, conn, "SELECT count(*) FROM orders"); got != 0 {
		t.Errorf("%d rows", got)
	}
}
