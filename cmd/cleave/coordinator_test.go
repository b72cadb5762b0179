package main

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestOnlyCoordinatorsCopy has a router that stands in no election: moves wait for a coordinator, which says that it is
// ready, is seen to lead, and carries them out.
func TestOnlyCoordinatorsCopy(t *testing.T) {
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	if code, out, stderr := command(t, "", "init", "--directory", directory, "a="+pgtest.Database(t), "b="+pgtest.Database(t)); code != 0 {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	r := start(t, "router", "--directory", directory, "--coordinator", "off")
	execAll(t, r.session(), "CREATE TABLE t (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k')", "INSERT INTO t SELECT generate_series(1, 20)")
	var at struct{ Shard string }
	r.into(&at, "shard-of", "hash_bigint", "6")
	r.ok("move", "--keyspace", "hash_bigint", "--key", "6", "--to", map[string]string{"a": "b", "b": "a"}[at.Shard], "--id", "one", "--keep", "0")
	leads := func() (out []string) {
		var members []admin.RouterInfo
		r.into(&members, "router", "list")
		for _, m := range members {
			if m.Leads {
				out = append(out, m.Role)
			}
		}
		return out
	}
	step := func() string {
		var move admin.WorkflowInfo
		r.into(&move, "moves", "one")
		return move.Step
	}
	if l, s := leads(), step(); len(l) != 0 || s != "planned" {
		t.Errorf("without a coordinator: led by %v, %s", l, s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c := exec.Command(binary(t), "coordinator", "--directory", directory, "--admin", address)
	log := &lines{}
	c.Stderr = log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		if t.Failed() {
			t.Log(log)
		}
	})
	waitfor.True(t, "it is ready", func() bool {
		code, _, _ := command(t, "", "health", "--admin", address)
		return code == 0
	})
	waitfor.True(t, "the move is done", func() bool { return step() == "done" })
	if l := leads(); len(l) != 1 || l[0] != "coordinator" {
		t.Errorf("led by %v", l)
	}
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(b), "cleave_leader 1") {
		t.Errorf("metrics: %v\n%.2000s", err, b)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(waitfor.Max):
		t.Error("it does not end")
	}
}
