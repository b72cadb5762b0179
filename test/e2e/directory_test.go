package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/etcd"
)

const leaseTTL = time.Second

// startOn starts `cleave up` with SQLite shards and its map in etcd.
func startOn(t *testing.T, url string) *cluster {
	t.Helper()
	return start(t, "sqlite", "--directory", url, "--lease-ttl", leaseTTL.String())
}

// startRouter starts `cleave router`.
func startRouter(t *testing.T, url string, more ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, listen: freeAddress(t), admin: freeAddress(t), log: &syncBuffer{}}
	c.args = append([]string{"router", "--directory", url, "--listen", c.listen, "--admin", c.admin, "--lease-ttl", leaseTTL.String()}, more...)
	c.run()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		c.stop()
		if t.Failed() {
			t.Logf("log of cleave router:\n%s", tail(c.log.String(), 40))
		}
	})
	waitfor.True(t, "the router is ready", c.healthy)
	return c
}

// run starts a router, once more if it has ended.
func (c *cluster) run() {
	c.t.Helper()
	c.cmd = exec.Command(binary, c.args...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	exited := make(chan error, 1)
	c.exited = exited
	go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(c.cmd)
}

func openEtcd(t *testing.T, url string) shardmap.Directory {
	t.Helper()
	d, err := etcd.Open(t.Context(), url, etcd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// change stores a next version of the map.
func change(t *testing.T, d shardmap.Directory, why string, edit func(*shardmap.State)) *shardmap.Snapshot {
	t.Helper()
	now, err := d.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := now.State().Clone()
	edit(&next)
	snap, err := d.Update(t.Context(), shardmap.Change{Expect: now.Version(), By: "test", Op: "test", Why: why}, next)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// note reads a row, or gives the SQLSTATE of the error.
func note(ctx context.Context, conn *pgx.Conn, tenant int) string {
	var text string
	err := conn.QueryRow(ctx, "SELECT note FROM orders WHERE tenant_id = $1", tenant).Scan(&text)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		return pg.Code
	case errors.Is(err, pgx.ErrNoRows):
		return "no row"
	case err != nil:
		return err.Error()
	}
	return text
}

// TestRoutersOnEtcd has three routers share a map in a three-member etcd, and
// measures how long a change takes to be acknowledged by all of them.
func TestRoutersOnEtcd(t *testing.T) {
	testrun.Short(t)
	url := etcdtest.New(t, etcdtest.Options{}).URL()
	a := startOn(t, url)
	b, c := startRouter(t, url), startRouter(t, url)
	a.exec(t, createOrders)
	for i, r := range []*cluster{a, b, c} {
		waitfor.True(t, "the table is known to all", func() bool {
			conn, err := pgx.Connect(t.Context(), r.url())
			if err != nil {
				return false
			}
			defer conn.Close(context.Background())
			_, err = conn.Exec(t.Context(), "INSERT INTO orders VALUES ($1, 1, $2)", i, fmt.Sprint("by ", i))
			return err == nil
		})
	}
	for i := range 3 {
		for _, r := range []*cluster{a, b, c} {
			if got := note(t.Context(), r.connect(t), i); got != fmt.Sprint("by ", i) {
				t.Errorf("row %d is %q", i, got)
			}
		}
	}
	d := openEtcd(t, url)
	var took []time.Duration
	for n := range 25 {
		snap := change(t, d, "label", func(s *shardmap.State) { s.Shards[0].Labels = map[string]string{"n": fmt.Sprint(n)} })
		begin := time.Now()
		for {
			list, err := d.Members(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 3 && !slices.ContainsFunc(list, func(m shardmap.MemberState) bool { return m.Acknowledged < snap.Version() }) {
				break
			}
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("version %d is not acknowledged by all: %+v", snap.Version(), list)
			}
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("a change of the map is acknowledged by three routers after %v (median), %v (slowest of %d)", took[len(took)/2], took[len(took)-1], len(took))

	var list []struct {
		Role, Address string
		Node          int
		Version, Lag  uint64
		LeaseLeft     float64 `json:"lease_left"`
	}
	// A lease lapses for a moment where the machine is busy.
	waitfor.True(t, "cleave router list has all three", func() bool {
		if err := json.Unmarshal([]byte(b.cli(t, "router", "list", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		return len(list) == 3 && list[0].Role == "router" && list[0].Version > 0 && list[0].LeaseLeft > 0 && list[2].Node == 2
	})
	waitfor.True(t, "cleave.routers has all three", func() bool {
		out := c.psql(t, "SELECT count(*), count(distinct node), max(lag), min(lease_left) > 0 FROM cleave.routers", "-At")
		return strings.TrimSpace(out) == "3|3|0|t"
	})
	// One that ends is no member any more, at once.
	c.stop()
	members, err := d.Members(t.Context())
	if err != nil || slices.ContainsFunc(members, func(m shardmap.MemberState) bool { return m.Node == 2 }) {
		t.Errorf("after the third router ended the members are %+v, %v", members, err)
	}
}

// TestStoppedRouter stops a router for longer than its lease while a key moves.
// Woken up, it must not answer by its old map.
func TestStoppedRouter(t *testing.T) {
	testrun.Long(t, "a lease has to run out; TestRoutersOnEtcd has the routers without")
	t.Parallel()
	url := etcdtest.New(t, etcdtest.Options{}).URL()
	a := startOn(t, url)
	a.exec(t, createOrders, "INSERT INTO orders VALUES (42, 1, 'old')")
	b := startRouter(t, url)
	d := openEtcd(t, url)
	conn := b.connect(t)
	waitfor.True(t, "the router reads the row", func() bool { return note(t.Context(), conn, 42) == "old" })
	snap, err := d.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := snap.State().Keyspaces[0].Name
	var of struct{ Shard string }
	if err := json.Unmarshal([]byte(a.cli(t, "shard-of", key, "42", "--json")), &of); err != nil {
		t.Fatal(err)
	}
	away := ""
	for _, s := range snap.Shards() {
		if s.Name != of.Shard {
			away = s.Name
		}
	}
	refused := 0
	for round := range 3 {
		if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		waitfor.True(t, "all threads of the router are stopped", func() bool { return stopped(t, b.cmd.Process.Pid) })
		// This statement arrives while the router is stopped.
		answer := make(chan string, 1)
		go func() { answer <- note(context.Background(), conn, 42) }()
		waitfor.True(t, "the directory has given the lease up", func() bool {
			list, err := d.Members(t.Context())
			return err == nil && len(list) == 1
		})
		change(t, d, "the key moves", func(s *shardmap.State) {
			if err := s.PutPin(key, []string{"42"}, away); err != nil {
				t.Fatal(err)
			}
		})
		if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		switch got := <-answer; got {
		case "57P03":
			refused++
		case "no row":
		default:
			t.Fatalf("round %d: woken up, the router answers %q: the key is on another shard now", round, got)
		}
		waitfor.True(t, "the router goes on by itself, by the new map", func() bool {
			got := note(t.Context(), conn, 42)
			if got != "57P03" && got != "no row" {
				t.Fatalf("round %d: the router answers %q", round, got)
			}
			return got == "no row"
		})
		change(t, d, "back", func(s *shardmap.State) { s.Keyspaces[0].Pins = nil })
		waitfor.True(t, "the row is seen again", func() bool { return note(t.Context(), conn, 42) == "old" })
	}
	if refused == 0 {
		t.Error("no statement was refused with 57P03")
	}
}

// stopped reports whether every thread of a process is: SIGSTOP takes effect
// after kill has returned.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatalf("process %d has no threads (%v)", pid, err)
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			return false
		}
		// The state follows the name, which is in parentheses (proc(5)).
		if _, rest, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// TestCutOff cuts one router off from etcd: it goes on until its lease ends, then
// refuses, and goes on by itself afterwards. Then all of etcd goes away.
func TestCutOff(t *testing.T) {
	testrun.Long(t, "a lease has to run out, and the directory's members come back; TestRoutersOnEtcd has the routers without")
	t.Parallel()
	servers := etcdtest.New(t, etcdtest.Options{})
	url := servers.URL()
	a := startOn(t, url)
	a.exec(t, createOrders, "INSERT INTO orders VALUES (42, 1, 'here')")
	way := servers.Network(t)
	b := startRouter(t, way.URL(url))
	conn, near := b.connect(t), a.connect(t)
	waitfor.True(t, "the router reads the row", func() bool { return note(t.Context(), conn, 42) == "here" })
	d := openEtcd(t, url)
	last := func(conn *pgx.Conn) (served time.Duration) {
		begin := time.Now()
		waitfor.True(t, "statements are refused", func() bool {
			switch got := note(t.Context(), conn, 42); got {
			case "here":
				served = time.Since(begin)
				return false
			case "57P03":
				return true
			default:
				t.Fatalf("a router without a directory answers %q", got)
				return true
			}
		})
		return served
	}
	way.Cut()
	served := last(conn)
	if list, err := d.Members(t.Context()); err == nil && len(list) == 1 && served > 2*leaseTTL {
		t.Errorf("cut off, the router answered for %v", served)
	}
	t.Logf("cut off, the router answered for another %v of a lease of %v", served, leaseTTL)
	waitfor.True(t, "the router's log says that it stopped, and why", func() bool {
		return strings.Contains(b.log.String(), "the lease on the directory has run out") && !strings.Contains(b.log.String(), "<nil>")
	})
	if got := note(t.Context(), near, 42); got != "here" {
		t.Errorf("the other router answers %q", got)
	}
	var pg *pgconn.PgError
	if _, err := conn.Exec(t.Context(), "INSERT INTO orders VALUES (42, 2, 'x')"); !errors.As(err, &pg) || pg.Code != "57P03" || !strings.Contains(pg.Hint, "by itself") {
		t.Errorf("a write without a lease: %v", err)
	}
	if b.healthy() {
		t.Error("/healthz says that the router is ready")
	}
	begin := time.Now()
	way.Heal()
	waitfor.True(t, "the router goes on by itself", func() bool { return note(t.Context(), conn, 42) == "here" })
	t.Logf("after the cut was healed it went on within %v", time.Since(begin))

	for i := range 3 {
		servers.Kill(t, i)
	}
	t.Logf("without any etcd server the routers answered for another %v", last(near))
	for i := range 3 {
		servers.Start(t, i)
	}
	waitfor.True(t, "both routers go on", func() bool { return note(t.Context(), near, 42) == "here" && note(t.Context(), conn, 42) == "here" })
	if _, err := conn.Exec(t.Context(), "INSERT INTO orders VALUES (42, 2, 'x')"); err != nil {
		t.Errorf("a write afterwards: %v", err)
	}
}

// TestDirectoryTakenBack: etcd was restored to an older state than routers have seen. They refuse, and do not say that they go on by
// themselves: also with the newer state there again it takes a restart.
func TestDirectoryTakenBack(t *testing.T) {
	testrun.Short(t)
	t.Parallel()
	servers := etcdtest.New(t, etcdtest.Options{Members: 1})
	url := servers.URL()
	a := startOn(t, url)
	a.exec(t, createOrders, "INSERT INTO orders VALUES (42, 1, 'here')")
	b := startRouter(t, url)
	conn := b.connect(t)
	waitfor.True(t, "the router reads the row", func() bool { return note(t.Context(), conn, 42) == "here" })

	client := servers.Client(t)
	_, prefix, _ := strings.Cut(strings.TrimPrefix(url, "etcd://"), "/")
	prefix, _, _ = strings.Cut(prefix, "?")
	newest, err := client.Get(t.Context(), "/"+prefix+"/map/state/", clientv3.WithLastKey()...)
	if err != nil || len(newest.Kvs) != 1 {
		t.Fatalf("%v, %v", newest, err)
	}
	if _, err := client.Delete(t.Context(), string(newest.Kvs[0].Key)); err != nil {
		t.Fatal(err)
	}
	refused := func() bool {
		_, err := conn.Exec(t.Context(), "SELECT note FROM orders WHERE tenant_id = 42")
		var pg *pgconn.PgError
		if err == nil {
			return false
		}
		if !errors.As(err, &pg) || pg.Code != "57P03" {
			t.Fatal(err)
		}
		return strings.Contains(pg.Detail, "was taken back") && strings.Contains(pg.Hint, "restart this process") && !strings.Contains(pg.Hint, "by itself")
	}
	waitfor.True(t, "the error says that the router has to be started again", refused)
	if _, err := client.Put(t.Context(), string(newest.Kvs[0].Key), string(newest.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the router is no member any more", func() bool {
		members, err := openEtcd(t, url).Members(t.Context())
		return err == nil && len(members) == 0
	})
	if !refused() {
		t.Error("with the newer state there again the error is another one")
	}
	b.stop()
	if got := note(t.Context(), startRouter(t, url).connect(t), 42); got != "here" {
		t.Errorf("a router that was started again answers %q", got)
	}
}

// TestDirectoryCopy lets a laptop's cluster grow up, as docs/growing.md says, and takes its directory back.
func TestDirectoryCopy(t *testing.T) {
	testrun.Long(t, "a cluster grows from files to servers, by the manual; the commands have tests of their own")
	t.Parallel()
	url := etcdtest.New(t, etcdtest.Options{Members: 1}).URL()
	a := start(t, "sqlite", "--shards", "1", "--lease-ttl", leaseTTL.String())
	a.exec(t, createOrders, "INSERT INTO orders VALUES (42, 1, 'here')", "CREATE TABLE plain (id int PRIMARY KEY, body text)", "INSERT INTO plain VALUES (1, 'whole')")
	a.cli(t, "grow", "--to", "a="+pgtest.Database(t))
	a.cli(t, "grow", "--to", "a", "--finish")
	file := "file:" + a.dir + "/directory.db"
	before := a.cli(t, "map", "history", "--json")
	out := a.cli(t, "directory", "copy", "--from", file, "--to", url, "--dry-run")
	if !strings.Contains(out, "Would move cluster") {
		t.Fatalf("the plan is\n%s", out)
	}
	conn := a.connect(t)
	if got := note(t.Context(), conn, 42); got != "here" {
		t.Fatalf("after a dry run the router answers %q", got)
	}
	a.cli(t, "directory", "copy", "--from", file, "--to", url)
	if got := note(t.Context(), conn, 42); got != "57P03" {
		t.Fatalf("after the copy the router of the source answers %q", got)
	}
	if _, stderr, err := a.tryCLI("sql", "SELECT 1"); err == nil || !strings.Contains(stderr, "start the process with --directory '"+url) {
		t.Errorf("the router of the source does not say where the cluster is: %s", stderr)
	}
	waitfor.True(t, "the router's log says that it stopped, and why", func() bool {
		return strings.Contains(a.log.String(), "has run out") && strings.Contains(a.log.String(), "has moved to "+url)
	})
	if _, stderr, err := a.tryCLI("pin", "hash_bigint", "42", "a"); err == nil {
		t.Fatalf("the map of the source was changed: %s", stderr)
	}
	a.stop()
	a.args = []string{"--directory", url, "--lease-ttl", leaseTTL.String()}
	a.up()
	if got := note(t.Context(), a.connect(t), 42); got != "here" {
		t.Fatalf("with the directory in etcd the router answers %q", got)
	}
	if out := a.cli(t, "sql", "SELECT body FROM plain"); !strings.Contains(out, "whole") {
		t.Errorf("of the table that is not sharded there is: %s", out)
	}
	if out := a.cli(t, "shard", "list"); strings.Contains(out, "shard-0") {
		t.Errorf("the file is a shard still:\n%s", out)
	}
	if after := a.cli(t, "map", "history", "--json"); after != before {
		t.Errorf("the history was\n%s\nand is\n%s", before, after)
	}
	a.exec(t, "CREATE TABLE later (tenant_id bigint PRIMARY KEY) WITH (cleave.shard_key = 'tenant_id')")
	a.stop()
	// The old file completes itself; to start with it before would be refused.
	a.cli(t, "directory", "copy", "--from", url, "--to", file)
	if out := a.cli(t, "directory", "copy", "--from", url, "--to", file); !strings.Contains(out, "0 versions copied") {
		t.Errorf("a second copy says %s", out)
	}
	a.args = []string{"--lease-ttl", leaseTTL.String()}
	a.up()
	a.exec(t, "INSERT INTO later VALUES (42)")
	if got := note(t.Context(), a.connect(t), 42); got != "here" {
		t.Fatalf("back in the file the router answers %q", got)
	}
}
