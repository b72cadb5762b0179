// Package e2e drives the real binary the way people do: psql, drivers, pgbench
// and the command line, on both engines, through crashes.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cleave-e2e")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "cleave")
	build := exec.Command("go", "build", "-o", binary, "github.com/cleavedb/cleave/cmd/cleave")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// cluster is a running `cleave up`.
type cluster struct {
	t      testing.TB
	engine string
	dir    string
	listen string
	admin  string
	args   []string
	cmd    *exec.Cmd
	log    *syncBuffer
	exited chan error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// eachEngine runs f on a fresh cluster of each engine. The short run has one of them: what differs by engine is compared,
// statement by statement, in engine/enginetest and test/differential.
func eachEngine(t *testing.T, inShort string, f func(t *testing.T, c *cluster), args ...string) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			onEngine(t, engine == inShort)
			f(t, start(t, engine, args...))
		})
	}
}

// onEngine leaves a test of one engine to one of the two runs.
func onEngine(t *testing.T, inShort bool) {
	t.Helper()
	if inShort {
		testrun.Short(t)
	} else {
		testrun.Long(t, "the short run has it on the other engine")
	}
}

// start starts a cluster in a folder of its own and stops it at the test's end.
func start(t testing.TB, engine string, args ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, engine: engine, dir: filepath.Join(pgtest.Dir(t), "data"), listen: freeAddress(t), admin: freeAddress(t), args: args}
	c.up()
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			t.Logf("log of cleave up:\n%s", tail(c.log.String(), 60))
		}
	})
	return c
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (c *cluster) up() {
	c.t.Helper()
	args := append([]string{"up", "--engine", c.engine, "--data", c.dir, "--listen", c.listen, "--admin", c.admin}, c.args...)
	c.log = &syncBuffer{}
	c.cmd = exec.Command(binary, args...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	exited := make(chan error, 1)
	c.exited = exited
	go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(c.cmd)
	deadline := time.Now().Add(waitfor.Max)
	for {
		select {
		case err := <-exited:
			exited <- err
			c.t.Fatalf("cleave up ended: %v\n%s", err, c.log.String())
		default:
		}
		if c.healthy() {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("cleave up is not ready after 60 s\n%s", c.log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *cluster) healthy() bool {
	client := http.Client{Timeout: time.Second}
	res, err := client.Get("http://" + c.admin + "/healthz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// stop ends the cluster in an orderly way; it is an error if that takes long.
func (c *cluster) stop() {
	c.t.Helper()
	select {
	case err := <-c.exited:
		c.exited <- err
		return
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-c.exited:
		c.exited <- err
		if err != nil {
			c.t.Errorf("cleave up ended with %v\n%s", err, tail(c.log.String(), 30))
		}
	case <-time.After(45 * time.Second):
		_ = c.cmd.Process.Kill()
		c.t.Errorf("cleave up did not end in 45 s\n%s", tail(c.log.String(), 30))
	}
}

// kill is kill -9.
func (c *cluster) kill() {
	c.t.Helper()
	_ = c.cmd.Process.Kill()
	err := <-c.exited
	c.exited <- err
}

func (c *cluster) url() string { return "postgres://app@" + c.listen + "/cleave?sslmode=disable" }

// connect opens a pgx connection that ends with the test.
func (c *cluster) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec runs statements over a connection of its own.
func (c *cluster) exec(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.url())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		// The machine stood still for longer than a short lease: nothing was done.
		for end := time.Now().Add(waitfor.Max); code(err) == "57P03" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			_, err = conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		}
		if err != nil {
			t.Fatalf("%s\n%v", sql, err)
		}
	}
}

// psql runs a script through psql and returns what it printed, errors included.
func (c *cluster) psql(t testing.TB, script string, args ...string) string {
	t.Helper()
	return psql(t, c.url(), script, args...)
}

func psql(t testing.TB, url, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
	defer cancel()
	cmd := exec.CommandContext(ctx, pgtest.PSQL(t), append([]string{"-X", "-f", "-", url}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append(os.Environ(), "PGTZ=UTC", "PAGER=cat", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("psql did not end: %v\n%s", err, out)
	}
	return string(out)
}

// cli runs a command of the binary against the cluster and returns what it
// printed to stdout; failing is a test failure.
func (c *cluster) cli(t testing.TB, args ...string) string {
	t.Helper()
	out, stderr, err := c.tryCLI(args...)
	if err != nil {
		t.Fatalf("cleave %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return out
}

func (c *cluster) tryCLI(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(binary, append(args, "--admin", c.admin)...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

type shardInfo struct {
	Name, Engine, URL, Health string
	Weight                    float64
	Labels                    map[string]string
}

// shards returns the shards as the command line lists them.
func (c *cluster) shards(t testing.TB) []shardInfo {
	t.Helper()
	var list []shardInfo
	if err := json.Unmarshal([]byte(c.cli(t, "shard", "list", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// metric returns the sum of a metric's samples whose line contains all of parts.
func (c *cluster) metric(t testing.TB, name string, parts ...string) float64 {
	t.Helper()
	res, err := http.Get("http://" + c.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
next:
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue next
			}
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const createOrders = `CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`
