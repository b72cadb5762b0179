package gateway_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/access"
)

// TestRolesBySQL makes, changes and removes users as `cleave user` does.
func TestRolesBySQL(t *testing.T) {
	var logged lockedBuffer
	cl := start(t, config{shards: 1, auth: passwords, slow: time.Nanosecond, log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	addUser(t, cl, "ops", access.Admin)
	addUser(t, cl, "bob", access.Ordinary)
	as := func(user, password string) *pgx.Conn {
		t.Helper()
		conn, err := pgx.Connect(context.Background(), "postgres://"+user+":"+password+"@"+cl.addr+"/cleave?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	is := func(want string) {
		t.Helper()
		list, err := cl.ops.Users(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, u := range list {
			have = append(have, u.Name+":"+u.Role)
		}
		if got := strings.Join(have, " "); got != want {
			t.Errorf("users %s, want %s", got, want)
		}
	}
	ops, bob := as("ops", "opsops"), as("bob", "bobbob")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		if tag := exec(t, ops, "CREATE USER ann PASSWORD 'secret-one'", mode); tag.String() != "CREATE ROLE" {
			t.Errorf("tag %s", tag)
		}
		is("ann:user bob:user ops:admin")
		if got := cl.try(t, "ann", "secret-one", "sslmode=disable"); got != "" {
			t.Errorf("the new user is not let in: %s", got)
		}
		exec(t, ops, "ALTER ROLE ann WITH SUPERUSER ENCRYPTED PASSWORD 'secret-two'", mode)
		is("ann:admin bob:user ops:admin")
		exec(t, as("ann", "secret-two"), "ALTER USER CURRENT_USER PASSWORD 'secret-three'", mode)
		if got := cl.try(t, "ann", "secret-two", "sslmode=disable"); got != "28P01" {
			t.Errorf("the old password: %s", got)
		}
		if got := cl.try(t, "ann", "secret-three", "sslmode=disable"); got != "" {
			t.Errorf("the new password: %s", got)
		}
		exec(t, ops, "DROP ROLE IF EXISTS ann, nobody", mode)
		is("bob:user ops:admin")
	}
	v, err := access.NewVerifier("secret-four")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, ops, "CREATE ROLE Cat NOSUPERUSER LOGIN NOCREATEDB CONNECTION LIMIT -1 VALID UNTIL 'infinity' PASSWORD '"+v.Text()+"'")
	if got := cl.try(t, "cat", "secret-four", "sslmode=disable"); got != "" {
		t.Errorf("a verifier as the password: %s", got)
	}
	exec(t, bob, "ALTER ROLE bob PASSWORD 'secret-five'")
	if got := cl.try(t, "bob", "secret-five", "sslmode=disable"); got != "" {
		t.Errorf("a user's own password: %s", got)
	}
	for sql, want := range map[string]string{
		"CREATE USER dan PASSWORD 'secret-six'": "42501", "DROP USER cat": "42501", "ALTER ROLE cat PASSWORD 'secret-six'": "42501", "ALTER ROLE bob SUPERUSER": "42501",
		"ALTER ROLE bob SUPERUSER PASSWORD 'secret-six'": "42501",
	} {
		wantCode(t, bob, want, sql)
	}
	for sql, want := range map[string]string{
		"CREATE USER bob PASSWORD 'secret-six'": "42710", "DROP USER nobody": "42704", "ALTER ROLE nobody PASSWORD 'secret-six'": "42704", "DROP ROLE ops": "55006",
		"CREATE ROLE readers": "0A000", "CREATE USER dan": "0A000", "CREATE USER dan PASSWORD 'secret-six' VALID UNTIL '2030-01-01'": "0A000", "CREATE USER dan PASSWORD 'secret-six' CONNECTION LIMIT 3": "0A000",
		"CREATE USER dan PASSWORD 'secret-six' IN ROLE bob": "0A000", "GRANT bob TO cat": "0A000", "REVOKE bob FROM cat": "0A000", "ALTER ROLE cat NOLOGIN": "0A000", "ALTER ROLE cat SET work_mem = '1MB'": "0A000",
		"ALTER ROLE cat PASSWORD NULL": "0A000", "CREATE USER pg_dan PASSWORD 'secret-six'": "42939", "CREATE USER dan PASSWORD ''": "22023", "BEGIN; CREATE USER dan PASSWORD 'secret-six'": "25001",
		"CREATE USER dan PASSWORD 'secret-six' LOGIN LOGIN": "42601", "CREATE USER dan PASSWORD 'secret-six' NONSENSE": "42601",
	} {
		if got := code(ops, sql, pgx.QueryExecModeSimpleProtocol); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
		exec(t, ops, "ROLLBACK")
	}
	is("bob:user cat:user ops:admin")
	if log := logged.String(); strings.Contains(log, "secret-") || strings.Contains(log, "SCRAM-SHA-256$") || !strings.Contains(log, "CREATE ROLE") {
		t.Errorf("the log has a password, or nothing:\n%s", log)
	}
}
