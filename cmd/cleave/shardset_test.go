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
	await(t, "a is refused", func() bool { return sqlState(both()) == "28P01" })
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
	await(t, "both shards answer, one by its new URL and one by its passfile", func() bool { return both() == nil })
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
}
