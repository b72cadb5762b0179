package gateway_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// besideStart starts a router whose default shard's database, and one PostgreSQL database, have settings of their own. Both have the
// rows of orders, one for a key of each shard.
func besideStart(t *testing.T, c config, settings ...string) (*cluster, *twin, *strings.Replacer) {
	t.Helper()
	for len(c.urls) < 3 {
		c.urls = append(c.urls, pgtest.Database(t))
	}
	single := pgtest.Database(t)
	for _, at := range []string{c.urls[0], single} {
		for _, s := range settings {
			pgtest.Ask(t, at, "ALTER DATABASE "+databaseOf(t, at)+" SET "+s)
		}
	}
	cl := start(t, c)
	conn := cl.connect(t)
	table := strings.Replace(ordersTable, "orders", "public.orders", 1)
	exec(t, conn, table)
	names := twinNames(cl.keys(t), 0)
	const rows = "INSERT INTO public.orders VALUES ($own, 1, 'x'), ($far, 2, 'y')"
	exec(t, conn, names.Replace(rows))
	pgtest.Ask(t, single, strings.Replace(table, " WITH (cleave.shard_key = 'tenant_id')", "", 1))
	pgtest.Ask(t, single, names.Replace(rows))
	return cl, &twin{urls: [2]string{cl.url(""), single}, shard: cl.shards[0], names: names}, names
}

// same gives both sides a session that starts so, and then the messages, whose answers have to be the same.
func (b *twin) same(t *testing.T, start map[string]string, messages ...string) {
	t.Helper()
	ctx := context.Background()
	if err := b.connectWith(ctx, start, false); err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		m = b.names.Replace(m)
		got, want := b.run(ctx, 0, []string{m}, simple), b.run(ctx, 1, []string{m}, simple)
		if got.text != want.text {
			t.Errorf("%v %s: router\n  %s (%s)\nPostgreSQL\n  %s (%s)", start, m, got.text, got.message, want.text, want.message)
			break // what follows differs as well
		}
	}
	for i, c := range b.conns {
		_ = c.Close(ctx)
		b.conns[i] = nil
	}
}

// TestTimeoutsBesideSchemaChanges: in a transaction with a schema change the client's statements have the timeouts of its session, those of the
// default shard's database too, and the schema changes have none of the latter.
func TestTimeoutsBesideSchemaChanges(t *testing.T) {
	cl, b, names := besideStart(t, config{}, "statement_timeout TO '70s'", "lock_timeout TO '80s'", "idle_in_transaction_session_timeout TO '90s'", "idle_session_timeout TO '110s'")
	const timeouts = "current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('idle_session_timeout')"
	one := []string{"SHOW statement_timeout", "SHOW lock_timeout", "SELECT " + timeouts, "SELECT id, " + timeouts + " FROM orders WHERE tenant_id = $own"}
	two := append(one, "SELECT id, "+timeouts+" FROM orders WHERE tenant_id = $far", "SELECT id, "+timeouts+" FROM orders ORDER BY id")
	changes := []string{
		"ALTER TABLE orders ADD COLUMN %n int", "SET statement_timeout TO '60s'", "RESET statement_timeout", "SET LOCAL statement_timeout TO '50s'", "ALTER TABLE orders ALTER COLUMN %n SET DEFAULT 1",
		"SET LOCAL statement_timeout TO DEFAULT", "SAVEPOINT s", "SET idle_session_timeout TO '2min'", "ALTER TABLE orders DROP COLUMN %n", "ROLLBACK TO s", "SET lock_timeout TO DEFAULT", "SELECT set_config('lock_timeout', '40s', true)",
		"ALTER TABLE orders ALTER COLUMN %n SET DEFAULT 2", "RESET ALL", "SET statement_timeout TO 0", "ALTER TABLE orders ALTER COLUMN %n SET DEFAULT 3", "SET idle_session_timeout TO DEFAULT",
	}
	for i, c := range []struct {
		first string
		shown []string
	}{
		{"BEGIN", one}, {"BEGIN; SELECT note FROM orders WHERE tenant_id = $own", one}, {"BEGIN; SET LOCAL lock_timeout TO '30s'", one}, {"BEGIN; SAVEPOINT a", one},
		{"BEGIN", two}, {"BEGIN; SELECT note FROM orders WHERE tenant_id = $far", two}, {"BEGIN; SELECT count(*) FROM orders", two},
	} {
		messages := []string{c.first}
		for _, m := range changes {
			if strings.Contains(m, "set_config") && len(c.shown) > len(one) {
				m = "SET LOCAL lock_timeout TO '40s'" // the other is refused
			}
			messages = append(append(messages, strings.ReplaceAll(m, "%n", "n"+string(rune('a'+i)))), c.shown...)
		}
		b.same(t, nil, append(append(messages, "COMMIT"), c.shown...)...)
	}
	// An expression that a schema change computes says what that has.
	cfg, err := pgx.ParseConfig(cl.url(""))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Message) }
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	exec(t, conn, "CREATE FUNCTION told(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', concat_ws(' ', "+timeouts+"); RETURN $1; END $$")
	for _, first := range []string{"SELECT 1", names.Replace("SELECT note FROM orders WHERE tenant_id = $own"), "SELECT count(*) FROM orders"} {
		exec(t, conn, "BEGIN")
		exec(t, conn, first)
		for _, index := range []string{"a", "b"} {
			said = nil
			exec(t, conn, "CREATE INDEX "+index+" ON orders (told(note))")
			if !slices.Contains(said, "0 80s 0 0") {
				t.Errorf("after %s the index %s was made with %v", first, index, said)
			}
			exec(t, conn, first)
		}
		exec(t, conn, "ROLLBACK")
	}
}

// TestSessionsThatBeginEarly: a session that began while the default shard could not be reached has that one's settings as soon as
// they are known, behind what it has set itself.
func TestSessionsThatBeginEarly(t *testing.T) {
	server := pgtest.NewServer(t, nil)
	cl, _, names := besideStart(t, config{urls: []string{pgtest.DatabaseOn(t, server)}}, "search_path TO app, public", "DateStyle TO 'German, DMY'", "statement_timeout TO '70s'", "default_transaction_isolation TO 'repeatable read'")
	first := cl.connect(t)
	exec(t, first, "CREATE SCHEMA app")
	exec(t, first, strings.Replace(ordersTable, "orders", "app.orders", 1))
	exec(t, first, names.Replace("INSERT INTO app.orders VALUES ($own, 1, 'app'), ($far, 2, 'app')"))
	server.Kill()
	second := start(t, config{dir: cl.dir, urls: cl.shards})
	var early []*pgx.Conn
	for range 4 {
		early = append(early, second.connect(t))
	}
	const shown = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('DateStyle'), current_setting('statement_timeout'), current_setting('default_transaction_isolation'), string_agg(DISTINCT note, ','))"
	for _, c := range early {
		if got := one[string](t, c, shown+" FROM (SELECT '') v (note)"); !strings.HasPrefix(got, `"$user", public ISO, MDY 0 read committed`) {
			t.Errorf("while the default shard is not there: %s", got)
		}
	}
	exec(t, early[1], "SET search_path TO public")
	exec(t, early[1], "SET statement_timeout TO '9s'")
	exec(t, early[2], "BEGIN")
	if got := one[string](t, early[2], "SHOW search_path"); got != `"$user", public` {
		t.Errorf("in the block: %s", got)
	}
	exec(t, early[3], "SET DateStyle TO 'SQL, DMY'")
	pgtest.Restart(t, server, nil)
	for _, want := range []string{"app, public German, DMY 70s repeatable read app", "public German, DMY 9s repeatable read x,y", "", "app, public SQL, DMY 70s repeatable read app"} {
		c := early[0]
		early = early[1:]
		if want == "" {
			// In its transaction it has what it began with, or nothing.
			if got := code(c, names.Replace("SELECT note FROM orders WHERE tenant_id = $own")); got != "57P03" {
				t.Errorf("in a transaction that began before: %q", got)
			}
			exec(t, c, "ROLLBACK")
			want = "app, public German, DMY 70s repeatable read app"
		}
		var got string
		waitfor.True(t, "the default shard is used again", func() bool {
			err := c.QueryRow(context.Background(), shown+" FROM orders").Scan(&got)
			return err == nil || codeOf(err) != "57P03"
		})
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if style := c.PgConn().ParameterStatus("DateStyle"); !strings.Contains(want, style) {
			t.Errorf("DateStyle is reported as %s", style)
		}
		exec(t, c, "RESET ALL")
		if got := one[string](t, c, shown+" FROM orders"); got != "app, public German, DMY 70s repeatable read app" {
			t.Errorf("after RESET ALL: %s", got)
		}
	}
}

// TestResetPathOverShards: RESET of a search_path that the session began with means and answers what PostgreSQL's does, also in a
// transaction over several shards, and beside a schema change.
func TestResetPathOverShards(t *testing.T) {
	cl, b, _ := besideStart(t, config{}, "search_path TO app, public", "DateStyle TO 'German, DMY'")
	exec(t, cl.connect(t), "CREATE SCHEMA app")
	pgtest.Ask(t, b.urls[1], "CREATE SCHEMA app")
	const several = "SELECT id, current_setting('search_path'), '2024-03-04'::date FROM orders ORDER BY id"
	shown := []string{"SHOW search_path", several, "SELECT current_setting('search_path') FROM orders WHERE tenant_id = $far"}
	for _, start := range []map[string]string{nil, {"search_path": "public, other"}, {"options": "-c search_path=public,pg_catalog -c datestyle=sql,mdy"}} {
		for _, change := range []string{"ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'x'", "SELECT 1"} {
			for _, end := range []string{"COMMIT", "ROLLBACK"} {
				messages := []string{"BEGIN", several, change, several}
				for _, m := range []string{
					"RESET search_path", "SET search_path TO public; SET datestyle TO iso", "RESET search_path", "SET LOCAL search_path TO public, app", "SET LOCAL search_path TO DEFAULT", "SET search_path TO public", "SAVEPOINT s", "SET search_path TO DEFAULT", "ROLLBACK TO s",
					"SELECT set_config('search_path', 'public, app', false)", "SELECT set_config('DateStyle', 'sql', true) AS style", "RESET ALL", "SET search_path TO public", "SET LOCAL search_path TO app, public", "RESET search_path; SHOW search_path", "RESET DateStyle",
				} {
					messages = append(append(messages, m), shown...)
				}
				b.same(t, start, append(append(messages, end), shown...)...)
			}
		}
	}
}

// TestPathsAreReadAsPostgres: the router finds tables by the names of a search_path that the shards read in it.
func TestPathsAreReadAsPostgres(t *testing.T) {
	cl, b, _ := besideStart(t, config{})
	long := strings.Repeat("n", 61) + "é" // 63 bytes
	conn := cl.connect(t)
	for i, schema := range []string{long, "other"} {
		table := "CREATE TABLE " + schema + ".orders (tenant_id bigint, id bigint, note text)"
		exec(t, conn, "CREATE SCHEMA "+schema)
		exec(t, conn, table+" WITH (cleave.shard_key = '"+[]string{"tenant_id", "id"}[i]+"')")
		pgtest.Ask(t, b.urls[1], "CREATE SCHEMA "+schema+"; "+table)
	}
	const read = "SELECT note, count(*) OVER () FROM orders ORDER BY id"
	messages := []string{"INSERT INTO " + long + ".orders VALUES ($own, 1, 'long'), ($far, 2, 'long')", "INSERT INTO other.orders VALUES (1, $own, 'other')"}
	for _, set := range []string{
		"SET search_path TO '" + long + "é', other", "SET search_path TO other, '" + long + "'", "SELECT set_config('search_path', '" + long + "nn,other', false)", "SELECT set_config('search_path', E'\\fother\\f,\\f" + long + "', false)",
		`SELECT set_config('search_path', '"` + long + `xy"', false)`, "SET search_path TO " + strings.ToUpper(strings.Repeat("n", 61)) + "é", "RESET search_path",
	} {
		messages = append(messages, set, read, "SELECT note FROM orders WHERE tenant_id = $own ORDER BY id", "BEGIN; "+read+"; COMMIT")
	}
	b.same(t, nil, messages...)
	b.same(t, map[string]string{"search_path": long + "xx, other"}, read, "SHOW search_path", "SELECT note FROM orders WHERE tenant_id = $far")
	wantCode(t, conn, "42501", `SELECT set_config('search_path', E'\fcleave_internal\f', false)`)
	wantCode(t, conn, "0A000", `SELECT set_config('search_path', E'public\v', false)`)
}

// TestResetAllBehindLocalDefault: RESET ALL passes over what SET LOCAL .. TO DEFAULT has given its default value, wherever that comes from.
func TestResetAllBehindLocalDefault(t *testing.T) {
	_, b, _ := besideStart(t, config{}, "search_path TO public, pg_catalog", "DateStyle TO 'German, DMY'", "default_transaction_deferrable TO on")
	settings := []struct{ name, value, other, initial string }{
		{"work_mem", "6MB", "7MB", "5MB"}, {"datestyle", "ISO", "SQL, DMY", "Postgres, MDY"}, {"search_path", "public", "pg_catalog", "public,nowhere"}, {"timezone", "Asia/Tokyo", "UTC", "Europe/Berlin"},
		{"statement_timeout", "60s", "70s", "80s"}, {"default_transaction_isolation", "repeatable read", "read committed", "repeatable read"}, {"default_transaction_deferrable", "off", "on", "off"}, {"app.name", "a", "b", "c"},
	}
	const several = "SELECT count(*) FROM orders"
	for _, s := range settings {
		set := func(level, value string) string { return "SET " + level + s.name + " TO '" + value + "'" }
		local := "SET LOCAL " + s.name + " TO DEFAULT"
		for _, start := range []map[string]string{nil, {s.name: s.initial}, {"options": "-c " + s.name + "=" + strings.ReplaceAll(s.initial, " ", `\ `)}} {
			if start["options"] != "" && strings.Contains(s.name, ".") {
				continue
			}
			for _, block := range [][]string{
				{local, "RESET ALL"}, {local, several, "RESET ALL"}, {several, local, "RESET ALL"}, {set("LOCAL ", s.initial), "RESET ALL"}, {set("", s.other), local, "RESET ALL"}, {local, set("LOCAL ", s.other), "RESET ALL"}, {local, set("LOCAL ", s.initial), "RESET ALL"},
				{local, "SAVEPOINT s", set("LOCAL ", s.other), "ROLLBACK TO s", "RESET ALL"}, {set("LOCAL ", s.other), "SAVEPOINT s", local, "ROLLBACK TO s", "RESET ALL"}, {"SAVEPOINT s", local, "RELEASE s", "RESET ALL"}, {local, "SAVEPOINT s", "RESET ALL", "ROLLBACK TO s"},
				{local, "RESET " + s.name}, {local, "RESET ALL", set("LOCAL ", s.other)}, {"ALTER TABLE orders ALTER note SET DEFAULT 'x'", local, "RESET ALL"},
			} {
				messages := []string{set("", s.value), "BEGIN"}
				for _, m := range block {
					messages = append(messages, m, "SHOW "+s.name)
				}
				messages = append(messages, "COMMIT", "SHOW "+s.name, "SELECT current_setting('"+s.name+"') FROM orders WHERE tenant_id = $far")
				b.same(t, start, messages...)
			}
		}
	}
}

// TestSettingsNamedByKeywords: a setting whose name has a part that is a keyword is the session's on every shard.
func TestSettingsNamedByKeywords(t *testing.T) {
	_, b, _ := besideStart(t, config{})
	const shown = "SELECT id, current_setting('app.user') FROM orders ORDER BY id"
	for _, start := range []map[string]string{{"app.user": "c"}, {"options": "-c app.user=c -c order.table=d"}} {
		b.same(t, start, shown, "SELECT set_config('app.user', 'a', false)", shown, "BEGIN", `SET LOCAL app."user" TO 'b'`, shown, "COMMIT", shown, `RESET app."user"`, shown, `SET "select"."from" TO 'x'`, "SELECT current_setting('select.from') FROM orders WHERE tenant_id = $far", "DISCARD ALL", shown)
	}
}

// TestSettingsOfUsedConnections: a schema change's conversation has been others', and RESET behind it takes back what the change began with.
func TestSettingsOfUsedConnections(t *testing.T) {
	_, b, _ := besideStart(t, config{executor: limitsOf(1)})
	const several = "SELECT id, current_setting('TimeZone') FROM orders ORDER BY id"
	b.same(t, nil, "SET timezone TO 'Asia/Tokyo'", several, "SET timezone TO 'Europe/Berlin'", "BEGIN", "ALTER TABLE orders ALTER note SET DEFAULT 'x'", "RESET timezone", "SHOW timezone",
		"SELECT current_setting('TimeZone') FROM orders WHERE tenant_id = $far", several, "COMMIT", several)
}

// TestDeferrableOfTheDefaultShard: a transaction is deferrable if the default shard's database says so, also one that goes on from
// another.
func TestDeferrableOfTheDefaultShard(t *testing.T) {
	_, b, _ := besideStart(t, config{}, "default_transaction_deferrable TO on")
	const shown, several, far = "SHOW transaction_deferrable", "SELECT count(*), current_setting('transaction_deferrable') FROM orders", "SELECT current_setting('transaction_deferrable') FROM orders WHERE tenant_id = $far"
	for _, begin := range []string{"BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", "BEGIN NOT DEFERRABLE", "BEGIN; SET TRANSACTION NOT DEFERRABLE", "BEGIN; SET TRANSACTION DEFERRABLE"} {
		for _, read := range []string{"SELECT 1", several, far} {
			if strings.Contains(begin, "SERIALIZABLE") && read == several {
				continue // it is refused
			}
			for _, end := range []string{"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "SELECT 1 / 0; SELECT 1; ROLLBACK AND CHAIN", "SELECT nothing", "SET SESSION CHARACTERISTICS AS TRANSACTION NOT DEFERRABLE; COMMIT AND CHAIN"} {
				b.same(t, nil, begin, shown, read, shown, end, shown, read, "ROLLBACK AND CHAIN", shown, "COMMIT")
			}
		}
	}
}

// TestTimeoutOfTempFunctions: a timeout ends the reading of the session's functions in pg_temp before one of them is called, and is not
// taken for what such a function may not do.
func TestTimeoutOfTempFunctions(t *testing.T) {
	cl := start(t, config{shards: 2})
	conn, other := cl.connect(t), cl.connect(t)
	exec(t, conn, "CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM pg_catalog.pg_class WHERE oid = 1"+strings.Repeat(" AND oid <> 2", 10_000)+" $$")
	exec(t, conn, "SELECT pg_temp.f()")
	exec(t, other, "CREATE TABLE later (a int)") // by whose map functions are read again
	exec(t, conn, "SET statement_timeout TO '20ms'")
	wantCode(t, conn, "57014", "SELECT pg_temp.f()", pgx.QueryExecModeSimpleProtocol)
	exec(t, conn, "SET statement_timeout TO 0")
	exec(t, conn, "SELECT pg_temp.f()")
}
