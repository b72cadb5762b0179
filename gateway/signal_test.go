package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// besidePostgres runs a test with a router and with one PostgreSQL: what it wants, both have to do.
func besidePostgres(t *testing.T, run func(t *testing.T, open func(options string) *pgx.Conn)) {
	c := start(t, config{shards: 2})
	for name, url := range map[string]string{"router": c.url(""), "postgres": pgtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			run(t, func(options string) *pgx.Conn {
				t.Helper()
				cfg, err := pgx.ParseConfig(url)
				if err != nil {
					t.Fatal(err)
				}
				if options != "" {
					cfg.RuntimeParams["application_name"] = options
				}
				conn, err := pgx.ConnectConfig(context.Background(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close(context.Background()) })
				return conn
			})
		})
	}
}

// ended waits for the error that a session was ended with.
func ended(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(context.Background(), "SELECT 1")
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "57P01" || pe.Severity != "FATAL" || pe.Message != "terminating connection due to administrator command" {
		t.Fatalf("the session that was ended got %v", err)
	}
}

func TestSessionNumber(t *testing.T) {
	besidePostgres(t, func(t *testing.T, open func(string) *pgx.Conn) {
		a, b := open("one of two"), open("two of two")
		pid := int32(a.PgConn().PID())
		for _, sql := range []string{"SELECT pg_backend_pid()", "SELECT pg_catalog.pg_backend_pid() + 0", "SELECT (SELECT pg_backend_pid())", "SELECT x.pg_backend_pid FROM (SELECT pg_backend_pid()) AS x",
			"SELECT pg_backend_pid()::text::int", "SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid()", "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid = pg_backend_pid()", "SELECT pid FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND NOT ssl",
			"SELECT s.pid FROM pg_catalog.pg_stat_activity AS s JOIN pg_stat_gssapi USING (pid) WHERE application_name = 'one of two' AND state = 'active' AND s.backend_type = 'client backend'"} {
			for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeCacheStatement} {
				if got := one[int32](t, a, sql, mode); got != pid {
					t.Errorf("%s in mode %v: %d, want %d", sql, mode, got, pid)
				}
			}
		}
		here, there := a.PgConn().Conn().LocalAddr().(*net.TCPAddr), a.PgConn().Conn().RemoteAddr().(*net.TCPAddr)
		want := fmt.Sprintf("%s %d %s %d", here.IP, here.Port, there.IP, there.Port)
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeCacheStatement} {
			if got := one[string](t, a, "SELECT concat_ws(' ', host(inet_client_addr()), inet_client_port(), host(inet_server_addr()), inet_server_port())", mode); got != want {
				t.Errorf("the connection's ends in mode %v: %s, want %s", mode, got, want)
			}
		}
		rows, err := a.Query(context.Background(), "SELECT pg_backend_pid(), pg_backend_pid()::text, pg_backend_pid() AS n, inet_client_addr(), inet_client_addr()::text")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range rows.FieldDescriptions() {
			names = append(names, fmt.Sprint(f.Name, " ", f.DataTypeOID))
		}
		rows.Close()
		if got := strings.Join(names, ", "); got != "pg_backend_pid 23, pg_backend_pid 25, n 23, inet_client_addr 869, inet_client_addr 25" {
			t.Errorf("columns %s", got)
		}
		if n := one[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '% of two' AND pid = ANY($1)", []int32{pid, int32(b.PgConn().PID())}); n != 2 {
			t.Errorf("%d of two sessions are shown", n)
		}
		exec(t, a, "BEGIN; CREATE TEMPORARY TABLE mine (pid int); INSERT INTO mine VALUES (pg_backend_pid()); COMMIT")
		if got := one[int32](t, a, "SELECT pid FROM mine"); got != pid {
			t.Errorf("stored %d, want %d", got, pid)
		}
	})
}

func TestSignalsToSessions(t *testing.T) {
	besidePostgres(t, func(t *testing.T, open func(string) *pgx.Conn) {
		boss := open("boss")
		ctx := context.Background()
		ends := map[string]func(pid int32) bool{
			"parameter": func(pid int32) bool { return one[bool](t, boss, "SELECT pg_terminate_backend($1)", pid) },
			"literal": func(pid int32) bool {
				return one[bool](t, boss, fmt.Sprintf("SELECT pg_catalog.pg_terminate_backend(%d, 10000)", pid), pgx.QueryExecModeSimpleProtocol)
			},
			"timeout": func(pid int32) bool {
				return one[bool](t, boss, "SELECT pg_terminate_backend($1, $2) AS done", pid, int64(10000))
			},
			"rows": func(pid int32) bool {
				return one[bool](t, boss, "SELECT pg_terminate_backend(n) FROM unnest($1::int[]) AS n ORDER BY n DESC", []int32{pid, -1})
			},
			"activity": func(pid int32) bool {
				return one[bool](t, boss, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'victim' AND pid <> pg_backend_pid()")
			},
		}
		states := map[string]string{"new": "", "idle": "SELECT 1", "in a transaction": "BEGIN; SELECT 1", "failed": "BEGIN; SELECT 1/0", "listening": "LISTEN x", "copying": "COPY", "busy": "SELECT pg_sleep(60)", "busy in a transaction": "BEGIN; SELECT pg_sleep(60)"}
		for how, end := range ends {
			for what, sql := range states {
				if (how == "activity") != (what == "idle") && how != "parameter" {
					continue // each way, and each state
				}
				t.Run(how+"/"+what, func(t *testing.T) {
					victim := open("victim")
					pid := int32(victim.PgConn().PID())
					result := make(chan error, 1)
					busy := strings.Contains(sql, "pg_sleep") || sql == "COPY"
					switch {
					case busy:
						if sql == "COPY" {
							exec(t, victim, "CREATE TEMPORARY TABLE c (a int)")
						}
						go func() {
							var err error
							if sql == "COPY" {
								nothing, w := io.Pipe()
								defer w.Close()
								_, err = victim.PgConn().CopyFrom(ctx, nothing, "COPY c FROM STDIN")
							} else {
								_, err = victim.Exec(ctx, sql)
							}
							result <- err
						}()
						for one[int](t, boss, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'active'", pid) != 1 {
							time.Sleep(5 * time.Millisecond)
						}
					case sql != "":
						_, _ = victim.Exec(ctx, sql) // one of them fails, as it should
					}
					if !end(pid) {
						t.Error("it was not ended")
					}
					if busy {
						var pe *pgconn.PgError
						if err := <-result; !errors.As(err, &pe) || pe.Code != "57P01" {
							t.Errorf("the statement ended with %v", err)
						}
						return
					}
					ended(t, victim)
				})
			}
		}
		victim := open("cancelled")
		result := make(chan error, 1)
		go func() {
			_, err := victim.Exec(ctx, "SELECT pg_sleep(60)")
			result <- err
		}()
		for {
			if !one[bool](t, boss, "SELECT pg_cancel_backend($1)", int32(victim.PgConn().PID())) {
				t.Fatal("not cancelled")
			}
			select {
			case err := <-result:
				if codeOf(err) != "57014" {
					t.Errorf("a cancelled statement ended with %v", err)
				}
			case <-time.After(20 * time.Millisecond):
				continue // it had not begun
			}
			break
		}
		exec(t, victim, "SELECT 1")
		if got := one[bool](t, boss, "SELECT pg_terminate_backend(1999999999)"); got {
			t.Error("a session that does not exist was ended")
		}
		if got := one[*bool](t, boss, "SELECT pg_cancel_backend(NULL)"); got != nil {
			t.Error("NULL was cancelled")
		}
		if got := one[*bool](t, boss, "SELECT pg_terminate_backend(1999999999, NULL)"); got != nil {
			t.Error("NULL was awaited")
		}
		wantCode(t, boss, "22003", "SELECT pg_terminate_backend(1999999999, -1)")
		wantCode(t, boss, "42883", "SELECT pg_terminate_backend(5::bigint)")
		wantCode(t, boss, "57014", "SELECT pg_cancel_backend(pg_backend_pid())")
		exec(t, boss, "SELECT 1")
		wantCode(t, boss, "57P01", "SELECT pg_terminate_backend(pg_backend_pid())")
	})
}

func TestSignalToNobodyWarns(t *testing.T) {
	c := start(t, config{shards: 1})
	for name, url := range map[string]string{"router": c.url(""), "postgres": pgtest.Database(t)} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		var notices []string
		cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			notices = append(notices, n.Severity+" "+n.Code+" "+n.Message)
		}
		conn, err := pgx.ConnectConfig(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, conn, "SELECT pg_cancel_backend(n) FROM (VALUES (1999999998), (NULL), (1999999999)) AS v(n)")
		_ = conn.Close(context.Background())
		if got := strings.Join(notices, "; "); got != "WARNING 01000 PID 1999999998 is not a PostgreSQL backend process; WARNING 01000 PID 1999999999 is not a PostgreSQL backend process" {
			t.Errorf("%s: notices %s", name, got)
		}
	}
}

// TestRightToSignal is pg_signal_backend()'s rule.
func TestRightToSignal(t *testing.T) {
	c := start(t, config{shards: 1, auth: passwords})
	users := access.NewUsers(c.dir)
	for name, role := range map[string]access.Role{"root": access.Admin, "ann": access.Ordinary, "bob": access.Writer} {
		v, err := access.NewVerifier("secret-of-" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := users.Add(context.Background(), access.User{Name: name, Role: role, Verifier: v}); err != nil {
			t.Fatal(err)
		}
	}
	as := func(name string) *pgx.Conn {
		conn, err := pgx.Connect(context.Background(), fmt.Sprintf("postgres://%s:secret-of-%s@%s/%s", name, name, c.addr, gateway.Database))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	for _, by := range []string{"root", "ann", "bob"} {
		for _, whose := range []string{"root", "ann", "bob"} {
			for _, call := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
				a, b := as(by), as(whose)
				_, err := a.Exec(context.Background(), "SELECT "+call+"($1)", int32(b.PgConn().PID()))
				want := ""
				switch {
				case by == "root" || by == whose:
				case whose == "root":
					want = "must be a superuser to " + map[string]string{"pg_cancel_backend": "cancel superuser query", "pg_terminate_backend": "terminate superuser process"}[call]
				default:
					want = "must be a member of the role whose " + map[string]string{"pg_cancel_backend": "query is being canceled", "pg_terminate_backend": "process is being terminated"}[call] +
						" or member of pg_signal_backend"
				}
				var pe *pgconn.PgError
				if want == "" && err != nil || want != "" && (!errors.As(err, &pe) || pe.Code != "42501" || pe.Message != want) {
					t.Errorf("%s of %s's session by %s: %v, want %q", call, whose, by, err, want)
				}
				if want == "" && call == "pg_terminate_backend" {
					ended(t, b)
				} else {
					exec(t, b, "SELECT 1")
				}
			}
		}
	}
}

func TestPreparedStatementsAreListed(t *testing.T) {
	besidePostgres(t, func(t *testing.T, open func(string) *pgx.Conn) {
		a, b := open("a"), open("b")
		ctx := context.Background()
		exec(t, a, "CREATE TABLE listed (id bigint PRIMARY KEY, note text)")
		if _, err := a.Prepare(ctx, "by_protocol", "SELECT note FROM listed WHERE id = $1 AND note <> $2"); err != nil {
			t.Fatal(err)
		}
		exec(t, a, "PREPARE by_sql (int, text[]) AS SELECT $1, $2, 'it''s'", pgx.QueryExecModeSimpleProtocol)
		exec(t, a, "PREPARE bare AS INSERT INTO listed VALUES ($1, $2)", pgx.QueryExecModeExec)
		exec(t, b, "PREPARE of_another AS SELECT 1")
		const list = "SELECT coalesce(string_agg(name || ' ' || statement || ' ' || parameter_types::text || ' ' || from_sql || ' ' || (prepare_time BETWEEN now() - interval '1 minute' AND clock_timestamp()), E'\\n' ORDER BY name), '') FROM pg_catalog.pg_prepared_statements"
		want := "bare PREPARE bare AS INSERT INTO listed VALUES ($1, $2) {bigint,text} true true\n" +
			"by_protocol SELECT note FROM listed WHERE id = $1 AND note <> $2 {bigint,text} false true\n" +
			"by_sql PREPARE by_sql (int, text[]) AS SELECT $1, $2, 'it''s' {integer,text[]} true true"
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
			if got := one[string](t, a, list, mode); got != want {
				t.Errorf("listed:\n%s\nwant\n%s", got, want)
			}
		}
		exec(t, a, "BEGIN")
		if n := one[int](t, a, "SELECT count(*) FROM pg_prepared_statements AS p WHERE p.name = $1", pgx.QueryExecModeExec, "bare"); n != 1 {
			t.Errorf("%d statements of the name", n)
		}
		exec(t, a, "COMMIT")
		exec(t, a, "DEALLOCATE ALL")
		if got := one[string](t, a, list, pgx.QueryExecModeSimpleProtocol); got != "" {
			t.Errorf("after DEALLOCATE ALL: %s", got)
		}
	})
}
