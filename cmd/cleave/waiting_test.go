package main

import (
	"context"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestARouterWaitsForItsDirectory starts routers while etcd is down: they say what they wait for, go on when it is there, and
// end when they are told to.
func TestARouterWaitsForItsDirectory(t *testing.T) {
	etcd := etcdtest.New(t, etcdtest.Options{Members: 1})
	binary(t) // builds it, which is not the command's time
	url, shard := etcd.URL(), pgtest.Database(t)
	if code, out, stderr := command(t, "", "init", "--directory", url, "a="+shard, "b="+pgtest.Database(t)); code != 0 {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	etcd.Kill(t, 0)
	type waiting struct {
		*exec.Cmd
		log    *lines
		ended  chan error
		listen string
		admin  string
	}
	free := func() string {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	run := func() *waiting {
		t.Helper()
		listen, admin := free(), free()
		w := &waiting{Cmd: exec.Command(binary(t), "router", "--directory", url, "--listen", listen, "--admin", admin), log: &lines{}, ended: make(chan error, 1), listen: listen, admin: admin}
		w.Stderr = w.log
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { w.ended <- w.Wait() }()
		t.Cleanup(func() {
			_ = w.Process.Kill()
			if t.Failed() {
				t.Log(w.log)
			}
		})
		waitfor.True(t, "it says that it waits", func() bool { return strings.Contains(w.log.String(), "it is waited for") })
		return w
	}
	status := func(url string) int {
		res, err := http.Get(url)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	connect := func(address string) error {
		ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
		defer cancel()
		c, err := pgx.Connect(ctx, "postgres://tester@"+address+"/cleave?sslmode=prefer")
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		_, err = c.Exec(ctx, "SELECT 1")
		return err
	}
	first := run()
	if err := connect(first.listen); sqlState(err) != "57P03" {
		t.Errorf("a client hears %v", err)
	}
	for path, want := range map[string]int{"/readyz": 503, "/livez": 200, "/api/v1/shards": 503} {
		if got := status("http://" + first.admin + path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	second := run()
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-second.ended:
		if err != nil {
			t.Errorf("told to end: %v", err)
		}
	case <-time.After(waitfor.Max):
		t.Error("SIGTERM does not end it")
	}
	etcd.Start(t, 0)
	waitfor.True(t, "it serves", func() bool { return connect(first.listen) == nil })
	waitfor.True(t, "it is ready", func() bool { return status("http://"+first.admin+"/readyz") == 200 })

	// etcd is out of space: it is read, and nothing is written.
	ask := func(args ...string) string {
		t.Helper()
		_, out, stderr := command(t, "", append(args, "--admin", first.admin)...)
		return out + stderr
	}
	c := session(t, "postgres://tester@"+first.listen+"/cleave?sslmode=disable")
	execAll(t, c, "CREATE TABLE t (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')")
	for _, to := range []string{"a", "b"} { // one of them has the key
		ask("move", "--keyspace", "hash_bigint", "--key", "6", "--to", to, "--id", "to-"+to, "--window", "Mon 00:00-00:01 UTC")
	}
	if out := ask("doctor"); strings.Contains(out, "takes no writes") {
		t.Errorf("before: %s", out)
	}
	client := etcd.Client(t)
	alarm := func(what etcdserverpb.AlarmRequest_AlarmAction) {
		t.Helper()
		if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: what, Alarm: etcdserverpb.AlarmType_NOSPACE}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	// What is not finished waits for the directory: its router lives, and no repair can be stored.
	if _, err := c.Exec(t.Context(), "CREATE TABLE late (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')"); err == nil {
		t.Error("a table was created in a map that cannot be stored")
	}
	undecided := session(t, shard)
	execAll(t, undecided, "BEGIN", "CREATE TABLE undecided ()", "PREPARE TRANSACTION 'cleave_ddl_019ac000-0000-7000-8000-000000000001_a'")
	if out := ask("doctor"); !strings.Contains(out, "takes no writes") || !strings.Contains(out, "etcdctl alarm disarm") || strings.Contains(out, "--repair") || !strings.Contains(out, "019ac000") {
		t.Error(out)
	}
	if out := ask("moves"); !strings.Contains(out, "takes no writes") {
		t.Error(out)
	}
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	waitfor.True(t, "the alarm is off", func() bool { return !strings.Contains(ask("doctor"), "takes no writes") })
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-first.ended; err != nil {
		t.Error(err)
	}
}
