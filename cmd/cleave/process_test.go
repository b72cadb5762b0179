package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestMain looks for goroutines and servers that are left.
func TestMain(m *testing.M) { pgtest.Main(m) }

// binary builds the program once, where nothing has to be cleaned up.
var binary = func() func(t *testing.T) string {
	build := sync.OnceValues(func() (string, error) {
		path, err := filepath.Abs("../../bin/cleave-under-test")
		if err != nil {
			return "", err
		}
		if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
		return path, nil
	})
	return func(t *testing.T) string {
		t.Helper()
		path, err := build()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}()

// running is a process of the real program.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *lines
	exited chan struct{}
	code   int

	Listen, Admin, Data, Engine string
	Shards, Tables              int
	New                         bool
}

// lines collects output that is written while it is read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs `cleave ARGS --json` on free ports until it says that it is ready.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	all := append(append([]string{}, args...), "--json")
	for _, s := range []string{"--listen", "--admin"} {
		if !strings.Contains(strings.Join(args, " "), s) {
			all = append(all, s, "127.0.0.1:0")
		}
	}
	r := &running{t: t, cmd: exec.Command(binary(t), all...), stderr: &lines{}, exited: make(chan struct{})}
	r.cmd.Stderr = r.stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan error, 1)
	go func() {
		var text bytes.Buffer
		dec := json.NewDecoder(bufio.NewReader(out))
		err := dec.Decode(r)
		ready <- err
		_, _ = text.ReadFrom(out) // nothing more is printed; this waits for the end
		_ = r.cmd.Wait()
		r.code = r.cmd.ProcessState.ExitCode()
		close(r.exited)
	}()
	t.Cleanup(func() {
		if r.alive() {
			r.stop()
		}
		if t.Failed() {
			t.Logf("log of cleave %s:\n%s", strings.Join(all, " "), r.stderr)
		}
	})
	select {
	case err := <-ready:
		if err != nil {
			<-r.exited
			t.Fatalf("cleave %s did not start (exit code %d): %v\n%s", strings.Join(all, " "), r.code, err, r.stderr)
		}
	case <-time.After(90 * time.Second):
		t.Fatalf("cleave %s does not get ready\n%s", strings.Join(all, " "), r.stderr)
	}
	return r
}

func (r *running) alive() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// wait waits for the end and returns the exit code.
func (r *running) wait(within time.Duration) int {
	r.t.Helper()
	select {
	case <-r.exited:
	case <-time.After(within):
		_ = r.cmd.Process.Kill()
		<-r.exited
		r.t.Fatalf("the process did not end in %s\n%s", within, r.stderr)
	}
	return r.code
}

// stop ends it with SIGTERM.
func (r *running) stop() {
	r.t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself; wait tells
	if code := r.wait(60 * time.Second); code != exitOK {
		r.t.Errorf("exit code %d after SIGTERM", code)
	}
}

// kill ends it with SIGKILL.
func (r *running) kill() {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	<-r.exited
}

// in returns r for a subtest, which then is the one to fail.
func (r *running) in(t *testing.T) *running {
	t.Helper()
	sub := *r
	sub.t = t
	return &sub
}

func (r *running) url() string { return "postgres://tester@" + r.Listen + "/cleave?sslmode=disable" }

// session opens a session, closed when the test ends.
func (r *running) session() *pgx.Conn {
	r.t.Helper()
	return session(r.t, r.url())
}

func session(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// exec runs statements, one message each.
func execAll(t *testing.T, c *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := c.Exec(t.Context(), s, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func one[T any](t *testing.T, c *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	if err := c.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func sqlState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// cleave runs a client command against the process.
func (r *running) cleave(stdin string, args ...string) (code int, stdout, stderr string) {
	r.t.Helper()
	return command(r.t, stdin, append(args, "--admin", r.Admin)...)
}

// ok is cleave, and the command must succeed.
func (r *running) ok(args ...string) string {
	r.t.Helper()
	code, stdout, stderr := r.cleave("", args...)
	if code != exitOK {
		r.t.Fatalf("cleave %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// into is ok with --json, decoded.
func (r *running) into(v any, args ...string) {
	r.t.Helper()
	out := r.ok(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		r.t.Fatalf("cleave %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// command runs the real program to its end.
func command(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || ctx.Err() != nil {
			t.Fatalf("cleave %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
