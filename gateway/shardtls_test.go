package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

const shardSecret = "gehe1m-Pa:ss/w@rd"

// guardedServer is a PostgreSQL server that takes role app by password, and role
// machine by certificate, over TLS only.
func guardedServer(t *testing.T, a *authority) *localpg.Server {
	t.Helper()
	s := pgtest.NewServer(t, nil)
	dir := s.DataDir()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	a.issue("db", "db", time.Hour)
	put := func(name string, text []byte) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for to, from := range map[string]string{"server.crt": "db.crt", "server.key": "db.key", "root.crt": "ca.crt"} {
		text, err := os.ReadFile(a.path(from))
		if err != nil {
			t.Fatal(err)
		}
		put(to, text)
	}
	put("pg_hba.conf", fmt.Appendf(nil, "local all %[1]s trust\nhost all %[1]s 127.0.0.1/32 trust\nhostssl all app 127.0.0.1/32 scram-sha-256\nhostssl all machine 127.0.0.1/32 cert\n", s.User()+","+localpg.Superuser))
	conn, err := pgconn.Connect(context.Background(), s.SuperuserURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		"CREATE ROLE app LOGIN PASSWORD '" + shardSecret + "'", "CREATE ROLE machine LOGIN",
		"ALTER SYSTEM SET ssl_ca_file = 'root.crt'", "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(context.Background(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	waitfor.True(t, "the server asks for certificates", func() bool {
		c, err := pgconn.Connect(context.Background(), fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=require", s.User(), s.Port()))
		if err == nil {
			_ = c.Close(context.Background())
		}
		return err == nil
	})
	return s
}

// ownedDatabase is a database that belongs to the role.
func ownedDatabase(t *testing.T, s *localpg.Server, role string) string {
	t.Helper()
	u, err := url.Parse(pgtest.DatabaseOn(t, s))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	conn, err := pgx.Connect(context.Background(), s.SuperuserURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec(t, conn, "ALTER DATABASE "+name+" OWNER TO "+role)
	return name
}

// TestShardsBehindTLS: shards that take TLS with passwords or certificates only,
// and whose password nothing that a person can read shows.
func TestShardsBehindTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("machine", "machine", time.Hour)
	s := guardedServer(t, a)
	address := fmt.Sprintf("127.0.0.1:%d", s.Port())
	verify := "?sslmode=verify-full&sslrootcert=" + a.path("ca.crt")
	inURL := "postgres://app:" + url.QueryEscape(shardSecret) + "@" + address + "/" + ownedDatabase(t, s, "app") + verify
	byCertificate := "postgres://machine@" + address + "/" + ownedDatabase(t, s, "machine") + verify + "&sslcert=" + a.path("machine.crt") + "&sslkey=" + a.path("machine.key")
	passfile := a.path("pgpass")
	if err := os.WriteFile(passfile, []byte(strings.Replace(address, ":", ":", 1)+":*:app:"+strings.ReplaceAll(shardSecret, ":", `\:`)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	byFile := "postgres://app@" + address + "/" + ownedDatabase(t, s, "app") + verify + "&passfile=" + url.QueryEscape(passfile)
	var logged lockedBuffer
	cl := start(t, config{urls: []string{inURL, byCertificate, byFile}, shards: 3, slow: time.Nanosecond,
		log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ctx := context.Background()
	conn := cl.connect(t)
	exec(t, conn, ordersTable)
	for k := range 30 {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", k)
	}
	for i, u := range cl.shards {
		if n := cl.direct(t, i, "SELECT count(*) > 0 FROM orders"); n != "t" {
			t.Errorf("no row on %s", u)
		}
		if ssl := cl.direct(t, i, "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename IN ('app', 'machine')"); ssl != "t" {
			t.Error("a connection to the shard is not encrypted")
		}
	}

	var shown strings.Builder
	for _, sql := range []string{"SELECT * FROM cleave.shards", "SELECT * FROM cleave.endpoints", "SELECT * FROM cleave.history", "SELECT * FROM cleave.sessions",
		"EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = 1"} {
		rows, err := conn.Query(ctx, sql)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			v, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&shown, v...)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	show := func(v any, err error) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&shown, "%+v\n", v)
	}
	show(cl.ops.Shards(ctx))
	show(cl.ops.Map(ctx, 0))
	show(cl.ops.History(ctx, admin.HistoryRequest{}))
	show(cl.ops.Doctor(ctx, admin.DoctorRequest{}))
	// Errors: a wrong password, a database that is there twice, a host that is not
	// there, a URL that is broken, over SQL and over the API.
	wrong := strings.Replace(inURL, "gehe1m", "geheim", 1)
	nowhere := strings.Replace(inURL, address, "127.0.0.1:1", 1)
	for _, u := range []string{wrong, inURL, nowhere, inURL + "&sslmode=nonsense", strings.Replace(inURL, "postgres:", "mysql:", 1), inURL + "%zz"} {
		_, err := cl.ops.AddShard(ctx, admin.AddShardRequest{Name: "more", URL: u})
		if err == nil {
			t.Fatal("a shard was added")
		}
		e := sqlstate.As(err)
		fmt.Fprintln(&shown, err, e.Message, e.Detail, e.Hint, errors.Unwrap(err))
		_, err = conn.Exec(ctx, "SELECT cleave.add_shard('more', $1)", u)
		if err == nil {
			t.Fatal("a shard was added")
		}
		fmt.Fprintf(&shown, "%v %+v\n", err, *err.(*pgconn.PgError))
		_, err = conn.Exec(ctx, "SELECT cleave.add_shard('more', '"+u+"')")
		fmt.Fprintf(&shown, "%v %+v\n", err, *err.(*pgconn.PgError))
	}
	all := shown.String() + logged.String()
	for _, secret := range []string{shardSecret, url.QueryEscape(shardSecret), "gehe1m", "geheim"} {
		if at := strings.Index(all, secret); at >= 0 {
			t.Errorf("%q is shown: ...%s...", secret, all[max(0, at-300):min(len(all), at+200)])
		}
	}
	if !strings.Contains(all, "app:xxxxx@") {
		t.Error("the URL of a shard is nowhere shown")
	}
}
