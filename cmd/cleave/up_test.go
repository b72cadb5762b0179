package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wiring"
)

const createOrders = `CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`

// insert writes rows of tenants 1 to n.
func insert(t *testing.T, c *pgx.Conn, n int) {
	t.Helper()
	for i := 1; i <= n; i++ {
		if _, err := c.Exec(t.Context(), "INSERT INTO orders VALUES ($1, $2, $3)", i, 1, fmt.Sprintf("note %d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// check reads them back.
func check(t *testing.T, c *pgx.Conn, n int) {
	t.Helper()
	for i := 1; i <= n; i++ {
		var note string
		if err := c.QueryRow(t.Context(), "SELECT note FROM orders WHERE tenant_id = $1 AND id = 1", i).Scan(&note); err != nil || note != fmt.Sprintf("note %d", i) {
			t.Fatalf("tenant %d: %q, %v", i, note, err)
		}
	}
}

func TestUpFindsItsDataAgain(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	r := start(t, "up", "--data", data)
	if !r.New || r.Shards != 4 || r.Engine != "sqlite" || r.Data != data {
		t.Errorf("banner %+v", r)
	}
	c := r.session()
	execAll(t, c, createOrders)
	insert(t, c, 40)
	check(t, c, 40)
	var owners []struct{ Shard string }
	for i := 1; i <= 40; i++ {
		var o struct{ Shard string }
		if i <= 8 {
			r.into(&o, "shard-of", "hash_bigint", fmt.Sprint(i))
			owners = append(owners, o)
		}
	}
	r.stop()

	r = start(t, "up", "--data", data, "--shards", "4", "--engine", "sqlite")
	if r.New || r.Shards != 4 || r.Tables != 1 {
		t.Errorf("banner of the second start %+v", r)
	}
	check(t, r.session(), 40)
	for i, was := range owners {
		var is struct{ Shard string }
		r.into(&is, "shard-of", "hash_bigint", fmt.Sprint(i+1))
		if is != was {
			t.Errorf("tenant %d moved from %s to %s", i+1, was.Shard, is.Shard)
		}
	}

	// While it runs, nobody else gets its folder or its ports.
	for _, other := range []struct {
		args []string
		want []string
	}{
		{[]string{"up", "--data", data}, []string{"another cleave runs the data folder", fmt.Sprintf("process %d", r.cmd.Process.Pid), "55006"}},
		{[]string{"up", "--data", filepath.Join(t.TempDir(), "x"), "--listen", r.Listen, "--admin", "127.0.0.1:0"}, []string{"port " + port(r.Listen), "in use", "--listen"}},
		{[]string{"up", "--data", filepath.Join(t.TempDir(), "x"), "--listen", "127.0.0.1:0", "--admin", r.Admin}, []string{"port " + port(r.Admin), "in use", "--admin"}},
	} {
		code, _, stderr := command(t, "", other.args...)
		if code != exitFailed {
			t.Errorf("cleave %s: exit code %d", strings.Join(other.args, " "), code)
		}
		for _, w := range other.want {
			if !strings.Contains(stderr, w) {
				t.Errorf("cleave %s: no %q in %s", strings.Join(other.args, " "), w, stderr)
			}
		}
	}
	r.stop()

	// The folder is found at another place as well.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	r = start(t, "up", "--data", moved)
	check(t, r.session(), 40)
	if out := r.ok("map", "history"); !strings.Contains(out, "shard_url") {
		t.Errorf("history does not say that the shards moved:\n%s", out)
	}
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func TestUpRefusesWhatContradicts(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	start(t, "up", "--data", data, "--shards", "2").stop()
	for _, c := range []struct{ flag, value, want string }{
		{"--shards", "3", "2 local shards, but shards is set to 3"},
		{"--engine", "postgres", "sqlite shards, but engine is set to postgres"},
	} {
		code, _, stderr := command(t, "", "up", "--data", data, c.flag, c.value, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		if code != exitFailed || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, "next: ") {
			t.Errorf("%s %s: exit code %d, %s", c.flag, c.value, code, stderr)
		}
	}
	layout := filepath.Join(data, wiring.LayoutFile)
	b, err := os.ReadFile(layout)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(layout, []byte(strings.Replace(string(b), `"format": 1`, `"format": 2`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := command(t, "", "up", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json")
	var e struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.Unmarshal([]byte(lastLine(stderr)), &e); err != nil || code != exitFailed || e.Error.Code != "F0000" || !strings.Contains(e.Error.Message, "format 2") || e.Error.Hint == "" {
		t.Errorf("exit code %d, %v, %s", code, err, stderr)
	}
	if code, out, _ := command(t, "", "doctor", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:1"); code != exitFailed || !strings.Contains(out, "format 2") {
		t.Errorf("doctor: exit code %d, %s", code, out)
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

func TestUpAfterKill(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	r := start(t, "up", "--data", data)
	c := r.session()
	execAll(t, c, createOrders)
	insert(t, c, 20)
	execAll(t, c, "BEGIN", "INSERT INTO orders VALUES (7, 100, 'never committed')")
	r.kill()
	r = start(t, "up", "--data", data)
	c = r.session()
	check(t, c, 20)
	if n := one[int64](t, c, "SELECT count(*) FROM orders WHERE tenant_id = 7"); n != 1 {
		t.Errorf("tenant 7 has %d rows, one was committed", n)
	}
	execAll(t, c, "INSERT INTO orders VALUES (7, 100, 'again')")
	var findings []struct{ Level, What string }
	r.into(&findings, "doctor", "--data", data)
	for _, f := range findings {
		if f.Level == levelError {
			t.Errorf("doctor: %s", f.What)
		}
	}
}

func TestUpDrains(t *testing.T) {
	r := start(t, "up", "--data", filepath.Join(t.TempDir(), "data"))
	c, idle := r.session(), r.session()
	execAll(t, c, createOrders, "BEGIN", "INSERT INTO orders VALUES (1, 1, 'a')")
	execAll(t, idle, "SELECT 1")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// An idle session ends at once, with a reason; one in a transaction may go on.
	deadline := time.Now().Add(waitfor.Max)
	for {
		if _, err := idle.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeSimpleProtocol); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the idle session goes on")
		}
		time.Sleep(20 * time.Millisecond)
	}
	execAll(t, c, "INSERT INTO orders VALUES (1, 2, 'b')", "COMMIT")
	if code := r.wait(30 * time.Second); code != exitOK {
		t.Errorf("exit code %d\n%s", code, r.stderr)
	}
	again := start(t, "up", "--data", r.Data)
	if n := one[int64](t, again.session(), "SELECT count(*) FROM orders WHERE tenant_id = 1"); n != 2 {
		t.Errorf("%d rows, two were committed", n)
	}
}

func TestUpSecondSignalEndsAtOnce(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			r := start(t, "up", "--engine", engine, "--shards", "2", "--data", filepath.Join(pgtest.Dir(t), "data"), "--drain-timeout", "5m")
			c := r.session()
			execAll(t, c, createOrders, "BEGIN", "INSERT INTO orders VALUES (1, 1, 'a')")
			signal := func() {
				t.Helper()
				if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			signal()
			waitfor.True(t, "it drains", func() bool { return strings.Contains(r.stderr.String(), "draining") })
			pid := 0
			if engine == "postgres" {
				pid = postmaster(t, r.Data, 0)
			}
			signal()
			if code := r.wait(20 * time.Second); code != exitFailed {
				t.Errorf("exit code %d", code)
			}
			if pid != 0 && syscall.Kill(pid, 0) == nil {
				t.Error("the PostgreSQL server is left")
			}
			again := start(t, "up", "--data", r.Data)
			if n := one[int64](t, again.session(), "SELECT count(*) FROM orders WHERE tenant_id = 1"); n != 0 {
				t.Errorf("%d rows, none was committed", n)
			}
		})
	}
}

func TestReloadOnSIGHUP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cleave.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log-level: info\n")
	r := start(t, "up", "--data", filepath.Join(t.TempDir(), "data"), "--config", file)
	for _, step := range []struct{ text, want string }{
		{"log-level: debug\npool-size: 9\n", "setting needs a restart  setting=pool-size in_force=32 new=9"},
		{"log-level: loud\n", "the new settings are wrong"},
		{"log-level: warn\n", "signal that follows"},
	} {
		write(step.text)
		if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if step.want == "signal that follows" {
			continue
		}
		waitfor.True(t, step.want, func() bool { return strings.Contains(r.stderr.String(), step.want) })
	}
	if !strings.Contains(r.stderr.String(), "setting=log-level old=info new=debug") {
		t.Errorf("the new log level is not in the log:\n%s", r.stderr)
	}
	if !strings.Contains(r.stderr.String(), "allowed: debug, info, warn, error") {
		t.Errorf("the reason is not in the log:\n%s", r.stderr)
	}
	check := r.session()
	execAll(t, check, "SELECT 1")
}

// TestBanner reads what a person sees, and pastes it.
func TestBanner(t *testing.T) {
	psql := pgtest.PSQL(t)
	listen, adminAddress := freeAddress(t), freeAddress(t)
	p := startPlain(t, "up", "--data", filepath.Join(t.TempDir(), "data"), "--listen", listen, "--admin", adminAddress)
	waitfor.True(t, "the banner", func() bool { return strings.Contains(p.stdout.String(), "Ctrl-C ends it") })
	banner := p.stdout.String()
	line := "psql -h 127.0.0.1 -p " + port(listen) + " cleave"
	for _, want := range []string{line, bannerSQL, "cleave shard list --admin " + adminAddress, "Cleave is ready: 4 sqlite shards in "} {
		if !strings.Contains(banner, want) {
			t.Errorf("no %q in\n%s", want, banner)
		}
	}
	args := strings.Fields(strings.TrimPrefix(line, "psql "))
	out, err := runProgram(t, bannerSQL, psql, append(args, "-v", "ON_ERROR_STOP=1")...)
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	for _, want := range []string{"CREATE TABLE", "INSERT 0 1", "hello", "shard-"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for path, want := range map[string]string{"/healthz": `"ready":true`, "/metrics": "cleave_sessions_total"} {
		res, err := http.Get("http://" + adminAddress + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s %v", path, res.Status, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	p.interrupt()
}
