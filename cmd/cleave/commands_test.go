package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wiring"
)

// plain is a process without --json, to see what people see.
type plain struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *lines
	done           chan error
}

func startPlain(t *testing.T, args ...string) *plain {
	t.Helper()
	p := &plain{t: t, cmd: exec.Command(binary(t), args...), stdout: &lines{}, stderr: &lines{}, done: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.interrupt()
		if t.Failed() {
			t.Logf("log:\n%s", p.stderr)
		}
	})
	return p
}

func (p *plain) interrupt() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT) // it may have ended by itself; done tells
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Errorf("after SIGINT: %v", err)
		}
	case <-time.After(60 * time.Second):
		_ = p.cmd.Process.Kill()
		p.t.Errorf("the process does not end: %v", <-p.done)
	}
	p.cmd = nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func runProgram(t *testing.T, stdin, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	return out.String(), err
}

// TestCommands runs every command against one cluster.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	r := start(t, "up", "--data", filepath.Join(dir, "data"), "--shards", "3")

	var shards []struct {
		Name, Engine, URL, Health string
		Labels                    map[string]string
		Weight                    float64
		Default                   bool
	}
	r.into(&shards, "shard", "list")
	if len(shards) != 3 || shards[0].Name != "shard-0" || !shards[0].Default || shards[2].Engine != "sqlite" || shards[2].Health != "up" || shards[2].Weight != 1 || !strings.HasPrefix(shards[2].URL, "file:/") {
		t.Errorf("shard list: %+v", shards)
	}

	t.Run("keyspaces and pins", func(t *testing.T) {
		r := r.in(t)
		var plan struct {
			Done    bool
			Plan    []string
			Version uint64
		}
		r.into(&plan, "keyspace", "create", "tenants", "--type", "bigint", "--ranges", "6", "--dry-run")
		if plan.Done || len(plan.Plan) == 0 {
			t.Errorf("dry run: %+v", plan)
		}
		if out := r.ok("keyspace", "list"); strings.Contains(out, "tenants") {
			t.Errorf("the dry run made it:\n%s", out)
		}
		r.ok("keyspace", "create", "tenants", "--type", "bigint", "--ranges", "6", "--why", "a test")
		r.ok("keyspace", "create", "days", "--strategy", "range", "--type", "date", "--bound", "2026-01-01", "--bound", "2026-07-01")
		r.ok("keyspace", "create", "regions", "--strategy", "list", "--type", "text", "--value", "eu=shard-1", "--value", "us=shard-2")
		var list []struct {
			Name, Strategy string
			Ranges         int
		}
		r.into(&list, "keyspace", "list")
		got := map[string]int{}
		for _, k := range list {
			got[k.Name+" "+k.Strategy] = k.Ranges
		}
		if got["tenants hash"] != 6 || got["days range"] != 3 || got["regions list"] != 2 {
			t.Errorf("keyspace list: %v", got)
		}
		var owner struct {
			Shard  string
			Pinned bool
		}
		r.into(&owner, "shard-of", "regions", "us")
		if owner.Shard != "shard-2" {
			t.Errorf("us is on %+v", owner)
		}
		if code, _, stderr := r.cleave("", "shard-of", "regions", "mars"); code != exitFailed || !strings.Contains(stderr, "mars") {
			t.Errorf("an unlisted value: exit code %d, %s", code, stderr)
		}
		r.ok("pin", "tenants", "42", "shard-2", "--why", "large")
		r.into(&owner, "shard-of", "tenants", "42")
		if owner.Shard != "shard-2" || !owner.Pinned {
			t.Errorf("42 is on %+v", owner)
		}
		if out := r.ok("map", "show", "--keyspace", "tenants"); !strings.Contains(out, "pin 42") || strings.Contains(out, "regions") {
			t.Errorf("map show:\n%s", out)
		}
		r.ok("unpin", "tenants", "42")
		owner.Pinned = false
		r.into(&owner, "shard-of", "tenants", "42")
		if owner.Pinned {
			t.Errorf("42 is still pinned: %+v", owner)
		}
	})

	t.Run("tables and statements", func(t *testing.T) {
		r := r.in(t)
		r.ok("sql", createOrders, "CREATE TABLE later (k bigint NOT NULL, v text)")
		r.ok("table", "distribute", "later", "--shard-key", "k", "--keyspace", "tenants")
		var tables []struct {
			Name, Kind, Keyspace string
			ShardKey             []string `json:"shard_key"`
		}
		r.into(&tables, "table", "list")
		got := map[string]string{}
		for _, x := range tables {
			got[x.Name] = x.Kind + " " + x.Keyspace + " " + strings.Join(x.ShardKey, ",")
		}
		if got["orders"] != "sharded hash_bigint tenant_id" || got["later"] != "sharded tenants k" {
			t.Errorf("table list: %v", got)
		}
		code, stdout, stderr := r.cleave("INSERT INTO orders VALUES (42, 1, 'x''y'), (42, 2, NULL); SELECT id, note FROM orders WHERE tenant_id = 42 ORDER BY id", "sql")
		if code != exitOK || !strings.Contains(stdout, "INSERT 0 2") || !strings.Contains(stdout, "id  note\n1   x'y\n2   ∅\n(2 rows)") {
			t.Errorf("sql: exit code %d\n%s%s", code, stdout, stderr)
		}
		out := r.ok("sql", "--json", "SELECT id, note FROM orders WHERE tenant_id = 42 ORDER BY id")
		var res struct {
			Columns []string
			Rows    [][]*string
			Tag     string
		}
		if err := json.Unmarshal([]byte(out), &res); err != nil || len(res.Rows) != 2 || res.Rows[1][1] != nil || *res.Rows[0][1] != "x'y" || res.Tag != "SELECT 2" {
			t.Errorf("sql --json: %v\n%s", err, out)
		}
		code, _, stderr = r.cleave("", "sql", "--json", "SELECT ctid FROM orders")
		var e struct {
			Error struct{ Code, Message, Hint string }
		}
		if err := json.Unmarshal([]byte(lastLine(stderr)), &e); err != nil || code != exitFailed || e.Error.Code != "0A000" || e.Error.Hint == "" {
			t.Errorf("a statement that is refused: exit code %d, %v, %s", code, err, stderr)
		}
		var route struct{ Route []string }
		r.into(&route, "route", "SELECT * FROM orders WHERE tenant_id = 42")
		deep := "SELECT * FROM orders WHERE " + strings.Repeat("NOT (", 100_000) + "true" + strings.Repeat(")", 100_000)
		answer, err := http.Post("http://"+r.Admin+"/api/v1/route", "application/json", strings.NewReader(`{"sql":"`+deep+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "54001") {
			t.Errorf("a statement that nests deeply: %s, %.300s", answer.Status, body)
		}
		var owner struct{ Shard string }
		r.into(&owner, "shard-of", "hash_bigint", "42")
		if !strings.Contains(strings.Join(route.Route, "\n"), owner.Shard) {
			t.Errorf("route %q does not name %s", route.Route, owner.Shard)
		}
	})

	t.Run("shards and the map", func(t *testing.T) {
		r := r.in(t)
		url := "file:" + filepath.Join(dir, "extra.db")
		r.ok("shard", "add", "extra", url, "--label", "region=eu", "--weight", "2", "--dry-run")
		r.ok("shard", "add", "extra", url, "--label", "region=eu", "--weight", "2")
		r.into(&shards, "shard", "list")
		last := shards[len(shards)-1]
		if len(shards) != 4 || last.Name != "extra" || last.Labels["region"] != "eu" || last.Weight != 2 {
			t.Errorf("shard list: %+v", shards)
		}
		if out := r.ok("map", "diff"); !strings.Contains(out, "extra") {
			t.Errorf("map diff:\n%s", out)
		}
		r.ok("pin", "tenants", "7", "extra")
		if code, _, stderr := r.cleave("", "shard", "remove", "extra"); code != exitFailed || !strings.Contains(stderr, "next: ") {
			t.Errorf("a shard with a pin was removed: exit code %d, %s", code, stderr)
		}
		r.ok("unpin", "tenants", "7")
		r.ok("shard", "remove", "extra", "--dry-run")
		r.ok("shard", "remove", "extra")
		if code, _, stderr := r.cleave("", "shard", "remove", "shard-0"); code != exitFailed {
			t.Errorf("the default shard was removed: %s", stderr)
		}
		var history []struct {
			Version   uint64
			By, Op    string
			Why       string
			Statement string
		}
		r.into(&history, "map", "history", "--limit", "100")
		seen := map[string]bool{}
		for i, h := range history {
			seen[h.Op] = true
			if strings.Contains(h.Statement, "-- cleave") {
				t.Errorf("history shows the ledger's own lines: %s", h.Statement)
			}
			if h.By == "" || (i > 0 && h.Version <= history[i-1].Version) {
				t.Errorf("history entry %+v", h)
			}
		}
		for _, op := range []string{"create_keyspace", "pin", "unpin", "distribute", "shard_add", "shard_remove", "ddl"} {
			if !seen[op] {
				t.Errorf("the history has no %s: %v", op, seen)
			}
		}
		_, table, _ := command(t, "", "map", "history", "--limit", "100", "--admin", r.Admin)
		if !strings.Contains(table, "TABLES") || !strings.Contains(table, "public.orders") {
			t.Errorf("the history does not say which tables were changed:\n%s", table)
		}
		var first struct{ Version uint64 }
		r.into(&first, "map", "show", "--version", "1")
		if first.Version != 1 {
			t.Errorf("map show --version 1: %+v", first)
		}
	})

	t.Run("doctor", func(t *testing.T) {
		r := r.in(t)
		code, stdout, stderr := r.cleave("", "doctor", "--data", r.Data)
		if code != exitOK || !strings.Contains(stdout, "the router answers at "+r.Listen) || strings.Contains(stdout, "\nerror") {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
		// A cluster named by its address alone: the folder that happens to be here is not its.
		code, stdout, stderr = r.cleave("", "doctor")
		if code != exitOK || strings.Contains(stdout, "folder") || !strings.Contains(stdout, "the router answers at "+r.Listen) {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
	})

	t.Run("a second router", func(t *testing.T) {
		r := r.in(t)
		second := start(t, "router", "--directory", "file:"+filepath.Join(r.Data, wiring.DirectoryFile))
		c := second.session()
		if n := one[int64](t, c, "SELECT count(*) FROM orders WHERE tenant_id = 42"); n != 2 {
			t.Errorf("the second router sees %d rows of 2", n)
		}
		// What one router changes, the other one follows.
		r.ok("sql", "CREATE TABLE seen (k bigint PRIMARY KEY, v text) WITH (cleave.shard_key = 'k')")
		waitfor.True(t, "the second router follows", func() bool {
			_, err := c.Exec(t.Context(), "INSERT INTO seen VALUES (1, 'x') ON CONFLICT DO NOTHING")
			return err == nil
		})
		if n := one[int64](t, r.session(), "SELECT count(*) FROM seen WHERE k = 1"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})

	t.Run("a router without a cluster", func(t *testing.T) {
		missing := filepath.Join(dir, "none.db")
		code, _, stderr := command(t, "", "router", "--directory", missing, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		if code != exitFailed || !strings.Contains(stderr, missing) || !strings.Contains(stderr, "cleave up") || exists(missing) {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
}
