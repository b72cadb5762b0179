package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// asks makes a server ask a role for its password.
func asks(t *testing.T, s *localpg.Server, role string) {
	t.Helper()
	path := filepath.Join(s.DataDir(), "pg_hba.conf")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := fmt.Sprintf("local all %[1]s scram-sha-256\nhost all %[1]s 127.0.0.1/32 scram-sha-256\n", role)
	if err := os.WriteFile(path, append([]byte(lines), old...), 0o600); err != nil {
		t.Fatal(err)
	}
	pgtest.Ask(t, s.SuperuserURL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Await(t, s.SuperuserURL("postgres"), "SELECT count(*) >= 2 FROM pg_hba_file_rules WHERE user_name = '{"+role+"}'", "t")
}

// TestShardSetProperties changes how shards are reached while a router serves: the password of their role, by
// the URL and by a passfile, their host, and their weight and labels. What is not the shard's own database is refused.
func TestShardSetProperties(t *testing.T) {
	s := pgtest.NewServer(t, nil)
	pgtest.Ask(t, s.SuperuserURL("postgres"), "CREATE ROLE keeper SUPERUSER LOGIN PASSWORD 'password one'")
	asks(t, s, "keeper")
	for _, db := range []string{"a", "b", "a_old"} {
		if err := s.CreateDatabase(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	dir := pgtest.Dir(t)
	passfile := filepath.Join(dir, "pgpass")
	keep := func(password string) {
		t.Helper()
		if err := os.WriteFile(passfile, []byte("*:*:*:keeper:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep("password one")
	at := func(db, password, rest string) string {
		u := url.URL{Scheme: "postgres", User: url.User("keeper"), Host: fmt.Sprintf("127.0.0.1:%d", s.Port()), Path: "/" + db, RawQuery: "sslmode=disable" + rest}
		if password != "" {
			u.User = url.UserPassword("keeper", password)
		}
		return u.String()
	}
	directory := "file:" + filepath.Join(dir, "directory.db")
	if code, out, stderr := command(t, "", "init", "--directory", directory, "a="+at("a", "password one", ""), "b="+at("b", "", "&passfile="+passfile)); code != 0 {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	// A copy of the shard that is of no use: it has its marks, and lacks what came after.
	pgtest.Ask(t, s.SuperuserURL("postgres"), "DROP DATABASE a_old")
	pgtest.Ask(t, s.SuperuserURL("postgres"), "CREATE DATABASE a_old TEMPLATE a")
	r := start(t, "router", "--directory", directory)
	c := r.session()
	execAll(t, c, "CREATE TABLE t (k int PRIMARY KEY, v int) WITH (cleave.shard_key = 'k')", "INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")
	both := func() error {
		_, err := c.Exec(t.Context(), "UPDATE t SET v = v + 1 WHERE k <= 100")
		return err
	}
	if err := both(); err != nil {
		t.Fatal(err)
	}

	// The password changes, and every connection has to be made again.
	pgtest.Ask(t, s.SuperuserURL("postgres"), "ALTER ROLE keeper PASSWORD 'password two'")
	keep("password two")
	pgtest.Ask(t, s.SuperuserURL("postgres"), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'keeper'")
	waitfor.True(t, "a is refused", func() bool { return sqlState(both()) == "28P01" })
	refused := func(want, stdin string, args ...string) {
		t.Helper()
		code, _, stderr := r.cleave(stdin, append([]string{"shard", "set"}, args...)...)
		if code == 0 || !strings.Contains(stderr, want) || strings.Contains(stderr, "password one") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	refused("password authentication failed", at("a", "password one", "&application_name=x"), "a", "--url", "-")
	refused("is one of shard b", at("b", "password two", ""), "a", "--url", "-")
	refused("not been set up", at("postgres", "password two", ""), "a", "--url", "-")
	refused("answers, but refuses its credentials", at("a_old", "password two", ""), "a", "--url", "-")
	refused("cannot become one of engine sqlite", "file:/tmp/x.db", "a", "--url", "-")
	refused("does not exist", "", "nope", "--weight", "2")
	refused("together", "", "a", "--weight", "2", "--state", "normal")
	refused("neither key=value", "", "a", "--label", "x")
	if code, out, stderr := r.cleave(at("a", "password two", ""), "shard", "set", "a", "--url", "-", "--dry-run"); code != 0 || !strings.Contains(out, "checked") || strings.Contains(out+stderr, "password two") {
		t.Errorf("dry run: %d %s%s", code, out, stderr)
	}
	if sqlState(both()) != "28P01" {
		t.Error("a dry run changed something")
	}
	if code, _, stderr := r.cleave(at("a", "password two", ""), "shard", "set", "a", "--url", "-"); code != 0 {
		t.Fatal(stderr)
	}
	waitfor.True(t, "both shards answer, one by its new URL and one by its passfile", func() bool { return both() == nil })
	if n := one[int](t, c, "SELECT count(*) FROM t"); n != 100 {
		t.Errorf("%d rows", n)
	}

	// Another address, in SQL.
	refused("answers too", at("a_old", "password two", ""), "a", "--url", "-")
	execAll(t, c, "SELECT cleave.set_shard('a', url => '"+strings.Replace(at("a", "password two", ""), "127.0.0.1", "localhost", 1)+`', weight => 2, labels => '{"region": "eu", "rack": "1"}')`)
	if err := both(); err != nil {
		t.Error(err)
	}
	r.ok("shard", "set", "a", "--label", "rack-", "--label", "disk=ssd", "--weight", "3")
	var shards []admin.ShardInfo
	if r.into(&shards, "shard", "list"); shards[0].Weight != 3 || fmt.Sprint(shards[0].Labels) != "map[disk:ssd region:eu]" || !strings.Contains(shards[0].URL, "localhost") {
		t.Errorf("%+v", shards[0])
	}
	// The database is gone, and what is in its place is older.
	pgtest.Ask(t, s.SuperuserURL("postgres"), "ALTER DATABASE a ALLOW_CONNECTIONS false")
	refused("not as the map says", at("a_old", "password two", ""), "a", "--url", "-")

	// The other database is gone too, and an empty one is in its place: it is no new shard.
	for _, sql := range []string{
		"ALTER DATABASE b ALLOW_CONNECTIONS false", "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'b'",
		"ALTER DATABASE b RENAME TO b_gone", "CREATE DATABASE b OWNER keeper",
	} {
		pgtest.Ask(t, s.SuperuserURL("postgres"), sql)
	}
	if _, out, _ := r.cleave("", "doctor"); !strings.Contains(out, "cleave shard set b --url") || strings.Contains(out, "shard add b") {
		t.Errorf("doctor says of an empty database in the shard's place: %s", out)
	}
}

// TestShardGetsRolesOfItsOwn walks what docs/security.md says ("Roles on the shards") of a shard whose role is a superuser, and of one whose URL gets another role:
// statements go on, doctor says what is left to do, and rows move afterwards.
func TestShardGetsRolesOfItsOwn(t *testing.T) {
	s := pgtest.NewServer(t, nil)
	ask := func(sql string) string { t.Helper(); return pgtest.Ask(t, s.SuperuserURL("postgres"), sql) }
	ask("CREATE ROLE app SUPERUSER LOGIN")
	for _, db := range []string{"a", "b"} {
		ask("CREATE DATABASE " + db + " OWNER app")
	}
	at := func(role, db string) string { return strings.Replace(s.URL(db), "cleave@", role+"@", 1) }
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	if code, out, stderr := command(t, "", "init", "--directory", directory, "a="+at("app", "a"), "b="+at("app", "b")); code != 0 || !strings.Contains(stderr, "rights of app beyond its need is superuser") {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	r := start(t, "router", "--directory", directory)
	c := r.session()
	execAll(t, c, "CREATE TABLE t (k bigint PRIMARY KEY, v int) WITH (cleave.shard_key = 'k')", "INSERT INTO t SELECT g, g FROM generate_series(1, 400) g")
	key := func(want string) (k int) {
		for k = 1; one[string](t, c, fmt.Sprintf("SELECT cleave.shard_of('hash_bigint', '%d')", k)) != want; k++ {
		}
		return k
	}
	// The router asks once who the mover is, and goes on asking.
	r.ok("move", "--keyspace", "hash_bigint", "--key", fmt.Sprint(key("a")), "--to", "b", "--keep", "0", "--wait")
	moves := func() {
		t.Helper()
		for _, from := range []string{"a", "b"} {
			to := map[string]string{"a": "b", "b": "a"}[from]
			k := key(from)
			if code, out, stderr := r.cleave("", "move", "--keyspace", "hash_bigint", "--key", fmt.Sprint(k), "--to", to, "--keep", "0", "--wait"); code != 0 {
				t.Fatalf("key %d to %s: %s%s", k, to, out, stderr)
			}
		}
		if n := one[int](t, c, "SELECT count(*) FROM t"); n != 400 {
			t.Errorf("%d rows", n)
		}
		execAll(t, c, "UPDATE t SET v = v + 1")
	}
	repaired := func(mention string) {
		t.Helper()
		if _, out, _ := r.cleave("", "doctor"); !strings.Contains(out, mention) || !strings.Contains(out, "doctor --repair") {
			t.Errorf("doctor: %s", out)
		}
		r.ok("doctor", "--repair")
	}
	const loose = "does not go by the mover of the shard's role"

	ask("CREATE ROLE app_mover LOGIN REPLICATION BYPASSRLS; GRANT app, pg_read_all_stats TO app_mover; GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO app_mover")
	repaired(loose)
	moves() // a superuser does not pass in the mover's place
	ask("ALTER ROLE app NOSUPERUSER")
	moves()
	if got := pgtest.Ask(t, at("app", "a"), "SELECT string_agg(DISTINCT tgenabled::text, '') FROM pg_trigger WHERE tgrelid = 't'::regclass"); got != "A" {
		t.Errorf("the guards fire %s", got)
	}

	// The leader gives the internal tables to the mover.
	owner := func(db, want string) {
		t.Helper()
		pgtest.Await(t, s.SuperuserURL(db), "SELECT string_agg(DISTINCT r, ',') FROM (SELECT nspowner::regrole::text AS r FROM pg_namespace WHERE nspname = 'cleave_internal' "+
			"UNION ALL SELECT relowner::regrole::text FROM pg_class WHERE relnamespace = 'cleave_internal'::regnamespace AND relkind = 'r') AS o", want)
	}
	owner("a", "app_mover")
	owner("b", "app_mover")
	moves()

	// Another role in the URL, with its own mover.
	ask("CREATE ROLE next LOGIN IN ROLE app; CREATE ROLE next_mover LOGIN REPLICATION BYPASSRLS; GRANT next, pg_read_all_stats TO next_mover; GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO next_mover")
	r.ok("shard", "set", "a", "--url", at("next", "a"))
	pgtest.Ask(t, s.SuperuserURL("a"), "REASSIGN OWNED BY app_mover TO next")
	if code, out, stderr := r.cleave("", "move", "--keyspace", "hash_bigint", "--key", fmt.Sprint(key("b")), "--to", "a", "--dry-run"); code == 0 || !strings.Contains(out, "cleave doctor --repair") {
		t.Errorf("a move past a guard that lets another mover pass: %d %s%s", code, out, stderr)
	}
	execAll(t, c, "UPDATE t SET v = v + 1")
	repaired(loose)
	moves()
	if code, out, _ := r.cleave("", "doctor"); code != 0 || strings.Contains(out, "guard of") {
		t.Errorf("at the end doctor says %s", out)
	}

	// The mover of b is given up.
	ask("ALTER ROLE app_mover NOLOGIN")
	for _, db := range []string{"a", "b"} {
		pgtest.Ask(t, s.SuperuserURL(db), "REASSIGN OWNED BY app_mover TO app; DROP OWNED BY app_mover")
	}
	ask("DROP ROLE app_mover")
	if got := pgtest.Ask(t, at("app", "b"), "SELECT string_agg(DISTINCT tgenabled::text, '') FROM pg_trigger WHERE tgrelid = 't'::regclass"); got != "A" {
		t.Errorf("the guards fire %s before they are set anew", got)
	}
	execAll(t, c, "UPDATE t SET v = v + 1")
	ask("ALTER ROLE app SUPERUSER")
	repaired(loose)
	moves()
}

// TestShardThatIsNotNeededMayBeDown: statements over several shards succeed at once while a shard that has none of their rows is lost,
// also those that no router has seen before.
func TestShardThatIsNotNeededMayBeDown(t *testing.T) {
	s, lost := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	for _, db := range []string{"a", "b"} {
		pgtest.Ask(t, s.URL("postgres"), "CREATE DATABASE "+db)
	}
	pgtest.Ask(t, lost.URL("postgres"), "CREATE DATABASE c")
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	if code, out, stderr := command(t, "", "init", "--directory", directory, "a="+s.URL("a"), "b="+s.URL("b"), "c="+lost.URL("c")); code != 0 {
		t.Fatalf("init: %s%s", out, stderr)
	}
	r := start(t, "router", "--directory", directory)
	c := r.session()
	execAll(t, c, "SELECT cleave.create_keyspace('ks', 'hash', 'bigint', ranges => 4, shards => ARRAY['a', 'b'])",
		"CREATE TABLE t (k bigint PRIMARY KEY, v int) WITH (cleave.shard_key = 'k', cleave.keyspace = 'ks')", "INSERT INTO t SELECT g, g FROM generate_series(1, 40) g")
	for range 6 { // there are idle connections to all shards
		execAll(t, c, "SELECT 1", "SELECT count(*) FROM t")
	}
	lost.Kill()
	for n := range 6 {
		execAll(t, c, fmt.Sprintf("UPDATE t SET v = v + %d", n), fmt.Sprintf("DELETE FROM t WHERE v < -%d", n), fmt.Sprintf("SELECT count(*), %d FROM t", n),
			fmt.Sprintf("SELECT a.v, %d FROM t a JOIN t b ON a.v = b.k", n), fmt.Sprintf("INSERT INTO t SELECT g, g FROM generate_series(%d, %d) g", 100+10*n, 109+10*n),
			"BEGIN", fmt.Sprintf("UPDATE t SET v = v - %d", n), fmt.Sprintf("SELECT sum(v), %d FROM t", n), "COMMIT",
			"SET cleave.read_consistency = 'atomic'", fmt.Sprintf("SELECT sum(v) + %d FROM t", n), "RESET cleave.read_consistency")
	}
}
