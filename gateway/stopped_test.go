package gateway_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/telemetry"
)

// freeze stops a server's processes until the returned function is called: the
// kernel goes on accepting for it, nobody answers.
func freeze(t testing.TB, s *localpg.Server) (thaw func()) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.PID(), s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{s.PID()}
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	all := func(sig syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // a backend may have ended
		}
	}
	all(syscall.SIGSTOP)
	t.Cleanup(func() { all(syscall.SIGCONT) })
	return func() { all(syscall.SIGCONT) }
}

// TestShardThatDoesNotAnswer stops a server: only statements that need it are
// concerned, and those end when their client or a timeout says so.
func TestShardThatDoesNotAnswer(t *testing.T) {
	testrun.Long(t, "a server that is stopped is waited for; TestShardLostHalfWay has shards that go")
	up, stopped := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	urls := []string{pgtest.DatabaseOn(t, up), pgtest.DatabaseOn(t, up), pgtest.DatabaseOn(t, stopped)}
	cl, conn, keys := orders(t, config{urls: urls, limits: gateway.Limits{CancelMax: time.Second}})
	ctx := context.Background()
	const sel, ins = "SELECT count(*) FROM orders WHERE tenant_id = %d", "INSERT INTO orders VALUES (%d, %d, 'n')"
	simple := func(c *pgx.Conn, format string, args ...any) string {
		return code(c, fmt.Sprintf(format, args...))
	}
	for _, k := range keys {
		if got := simple(conn, sel, k[0]); got != "" {
			t.Fatal(got)
		}
	}
	waiting := cl.connect(t)
	exec(t, waiting, "BEGIN")
	exec(t, waiting, fmt.Sprintf(ins, keys[2][5], 1))
	timed := cl.connect(t, "&options=-c%20statement_timeout%3D400ms")
	if got := simple(timed, sel, keys[2][0]); got != "" {
		t.Fatal(got)
	}
	thaw := freeze(t, stopped)
	// What waits for the stopped server waits until it is thawed, which no statement below outlives.
	const prompt = 30 * time.Second
	promptly := func(what, want string, f func() string) {
		t.Helper()
		began := time.Now()
		if got := f(); got != want {
			t.Errorf("%s: SQLSTATE %q, want %q", what, got, want)
		}
		if took := time.Since(began); took > prompt {
			t.Errorf("%s took %v", what, took)
		}
	}
	promptly("statement_timeout of a read", "57014", func() string { return simple(timed, sel, keys[2][0]) })
	time.Sleep(1100 * time.Millisecond) // the router trusts what answered within a second
	for i := range 9 {
		promptly("SELECT 1", "", func() string { return simple(conn, "SELECT %d", i) })
		promptly("a description", "", func() string {
			_, err := conn.Prepare(ctx, fmt.Sprint("p", i), fmt.Sprintf("SELECT %d FROM orders WHERE tenant_id = $1", i))
			return codeOf(err)
		})
		promptly("a healthy shard", "", func() string { return code(conn, fmt.Sprint("p", i), keys[i%2][0]) })
		promptly("SET", "", func() string { return simple(conn, "SET work_mem = '%dMB'", i+1) })
	}
	promptly("a transaction that needs no shard", "", func() string {
		for _, sql := range []string{"BEGIN", "SELECT 1", "SAVEPOINT a", "SELECT 2", "COMMIT"} {
			if got := code(conn, sql); got != "" {
				return sql + ": " + got
			}
		}
		return ""
	})
	promptly("a new session with settings", "", func() string {
		return simple(cl.connect(t, "&options=-c%20work_mem%3D7MB"), "SELECT 1")
	})

	cancelled := func(c *pgx.Conn, sql string) func() string {
		return func() string {
			timer := time.AfterFunc(700*time.Millisecond, func() {
				limit, stop := context.WithTimeout(ctx, waitfor.Max)
				defer stop()
				_ = c.PgConn().CancelRequest(limit) // nothing is answered to it
			})
			defer timer.Stop()
			return code(c, sql)
		}
	}
	promptly("a cancelled write of a transaction", "57014", cancelled(waiting, fmt.Sprintf(ins, keys[2][5], 2)))
	run(t, waiting, []step{{"SELECT 1", "25P02 E"}, {"ROLLBACK", "ROLLBACK I"}})
	// Connections are left of those that the pool had, or the dial fails in time.
	for what, sql := range map[string]string{"read": fmt.Sprintf(sel, keys[2][0]), "write": fmt.Sprintf(ins, keys[2][0], 9)} {
		began := time.Now()
		got := cancelled(conn, sql)()
		if got != "57014" && got != "57P03" && !(what == "write" && got == "08007") || time.Since(began) > prompt {
			t.Errorf("a cancelled %s: %q after %v", what, got, time.Since(began))
		}
	}
	thaw()
	for end := time.Now().Add(waitfor.Max); ; time.Sleep(50 * time.Millisecond) {
		got := simple(conn, sel, keys[2][0])
		if got == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the shard answers again, but: %s", got)
		}
	}
	if n := one[int](t, conn, fmt.Sprintf(sel, keys[2][5])); n != 0 {
		t.Errorf("%d rows of a transaction that was given up", n)
	}
	// Without the default shard, which numbers tables for clients, others answer all the same.
	exec(t, conn, "CREATE TABLE another (x int)") // what was known of tables was of the older schema
	exec(t, conn, fmt.Sprintf(ins, keys[2][6], 1))
	thaw = freeze(t, up)
	promptly("a shard beside the default shard", "", func() string {
		r := conn.PgConn().ExecParams(ctx, fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d", keys[2][6]), nil, nil, nil, nil).Read()
		if r.Err == nil && (len(r.Rows) != 1 || r.FieldDescriptions[0].TableOID != 0) {
			t.Errorf("%d rows, of a table with the OID %v, which nobody could know", len(r.Rows), r.FieldDescriptions)
		}
		return codeOf(r.Err)
	})
	thaw()
}

// TestFaultEndsOneSession makes the router panic inside a session.
func TestFaultEndsOneSession(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	metrics := telemetry.New()
	server := gateway.New(gateway.Options{Executor: cl.ex, Admin: cl.ops, Metrics: metrics,
		Virtual: func(string, []engine.VirtualTable) (engine.Conn, error) { panic("a fault") }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != gateway.ErrClosed {
			t.Error(err)
		}
	})
	other := *cl
	other.addr = l.Addr().String()
	bystander := other.connect(t)
	for _, begin := range [][]string{
		{"SELECT 1"},
		{"BEGIN", fmt.Sprintf("INSERT INTO orders VALUES (%d, 77, 'n')", keys[1][0])},
		{"BEGIN", "CREATE TABLE fresh (id int PRIMARY KEY)"},
	} {
		c := other.connect(t)
		for _, sql := range begin {
			exec(t, c, sql)
		}
		if got := code(c, "SELECT * FROM cleave.shards"); got != "XX000" {
			t.Errorf("after %q: SQLSTATE %q", begin, got)
		}
		if !c.IsClosed() {
			t.Errorf("after %q: the session goes on", begin)
		}
		exec(t, bystander, "SELECT 1")
	}
	if n := one[int](t, conn, fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", keys[1][0])); n != 0 {
		t.Errorf("%d rows of a transaction that was given up", n)
	}
	wantCode(t, conn, "42P01", "SELECT * FROM fresh")
	for end := time.Now().Add(waitfor.Max); ; time.Sleep(10 * time.Millisecond) {
		held := 0
		for _, h := range cl.ex.Health() {
			held += h.Open - h.Idle
		}
		if held == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections were not given back: %+v", held, cl.ex.Health())
		}
	}
	families, err := metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "cleave_panics_total" && f.GetMetric()[0].GetCounter().GetValue() != 3 {
			t.Errorf("panics: %v", f)
		}
	}
}
