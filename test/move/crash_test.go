package move

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// built is the program, built once, where nothing has to be cleaned up.
var built = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../bin/cleave-that-moves")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", path, "github.com/cleavedb/cleave/cmd/cleave").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// process is a `cleave coordinator` or a `cleave router`.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
}

// coordinator starts one and waits until it is ready.
func (c *target) coordinator(program string) *process {
	c.t.Helper()
	return c.process(program, "coordinator")
}

func (c *target) process(program string, args ...string) *process {
	c.t.Helper()
	cmd := exec.Command(program, append([]string{args[0], "--directory", "file:" + c.path, "--lease-ttl", "1s"}, args[1:]...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	p := &process{t: c.t, cmd: cmd}
	c.t.Cleanup(func() {
		p.kill()
		if c.t.Failed() {
			c.t.Logf("%v:\n%s", args, log.String())
		}
	})
	in := bufio.NewScanner(out)
	for in.Scan() {
		if strings.Contains(in.Text(), "ready") {
			go func() { // until the process ends
				for in.Scan() {
				}
			}()
			return p
		}
	}
	c.t.Fatalf("%v did not start: %s", args, log.String())
	return nil
}

// kill ends the process as a loss of power would.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// when waits until a workflow has come to a step, or further.
func (c *target) when(id string, step workflow.StepName, back bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r, err := c.dir.Record(context.Background(), workflow.RecordPrefix+id)
		if err != nil {
			c.t.Fatal(err)
		}
		s, err := workflow.Decode(r.Value)
		if err != nil {
			c.t.Fatal(err)
		}
		// The history has every step, also those that are over already.
		for _, l := range s.History {
			if l.Step == step && (!back || s.Back) {
				return
			}
		}
		if s.Step.Ended() || time.Now().After(end) {
			c.t.Fatalf("%s is %s", id, s.Step)
		}
	}
}

// TestCoordinatorIsKilledAtEveryStep: a coordinator is killed at each stored step of moves that go
// to the other shard and stay there or come back, while clients are at work; the next one goes on.
func TestCoordinatorIsKilledAtEveryStep(t *testing.T) {
	testrun.Long(t, "some twenty kills on each engine; TestCrash of test/crash has a sample of kills")
	bin := program(t)
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) {
			c := startAs(t, "", engines...)
			c.bank(2000)
			l := c.work(3)
			ask := func(w func(context.Context, admin.WorkflowRequest) (*admin.WorkflowInfo, error), id string) {
				t.Helper()
				if _, err := w(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			owner := 0
			steps := []workflow.StepName{workflow.Planned, workflow.Preparing, workflow.Copying, workflow.CatchingUp, workflow.Verifying, workflow.Closing, workflow.Opening, workflow.Opened}
			for i, step := range steps {
				id := "k" + strings.ReplaceAll(string(step), " ", "-")
				p := c.coordinator(bin)
				c.move(admin.MoveRequest{ID: id, Keyspace: "bank", Range: "..0", To: []string{"s1", "s0"}[owner], MoveOptions: admin.MoveOptions{Keep: "1h"}})
				c.when(id, step, false)
				p.kill()
				p = c.coordinator(bin)
				w := c.await(id, "opened")
				t.Logf("killed when %s; held for %d ms in the cutover that succeeded", step, w.HeldMS)
				if i%2 == 0 { // there and back, killed while it is reversed
					ask(c.rooms.Ops.Reverse, id)
					back := []workflow.StepName{workflow.CatchingUp, workflow.Closing, workflow.Opening, workflow.Cleaning}[i/2]
					c.when(id, back, true)
					p.kill()
					p = c.coordinator(bin)
					c.await(id, "rolled back")
				} else {
					ask(c.rooms.Ops.Complete, id)
					c.when(id, workflow.Cleaning, false)
					p.kill()
					p = c.coordinator(bin)
					c.await(id, "done")
					owner = 1 - owner
				}
				p.kill()
			}
			// Cancelled in the middle: no trace.
			p := c.coordinator(bin)
			c.move(admin.MoveRequest{ID: "never", Keyspace: "bank", Range: "..0", To: []string{"s1", "s0"}[owner]})
			c.when("never", workflow.CatchingUp, false)
			p.kill()
			ask(c.rooms.Ops.Cancel, "never")
			c.coordinator(bin)
			c.await("never", "cancelled")
			l.end()
			if l.failed.Load() > 0 {
				t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
			}
			if n := c.number(`SELECT count(*) FROM bulk`); n != 2000 {
				t.Errorf("%d rows", n)
			}
			c.clean()
		})
	}
}

// TestShardsAreKilled: the servers of source and target are killed while rows are copied, caught up, cut over
// and kept level; the move goes on by itself.
func TestShardsAreKilled(t *testing.T) {
	testrun.Long(t, "servers of its own are killed and recover; TestCrash of test/crash has a sample of kills")
	c := start(t, "server", "server")
	c.bank(2000)
	l := c.work(3)
	owner := 0
	for i, step := range []workflow.StepName{workflow.Copying, workflow.CatchingUp, workflow.Closing, workflow.Opened} {
		id := "k" + strings.ReplaceAll(string(step), " ", "-")
		// First the source, then the target, then both at once.
		for victim, which := range [][]int{{owner}, {1 - owner}, {0, 1}} {
			if victim != i%3 {
				continue
			}
			c.move(admin.MoveRequest{ID: id, Keyspace: "bank", Range: "..0", To: []string{"s1", "s0"}[owner], MoveOptions: admin.MoveOptions{Keep: "1h"}})
			c.when(id, step, false)
			for _, s := range which {
				c.servers[s].crash()
			}
			w := c.await(id, "opened")
			t.Logf("servers %v killed when %s; held for %d ms", which, step, w.HeldMS)
			if _, err := c.rooms.Ops.Complete(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
			c.await(id, "done")
			owner = 1 - owner
		}
	}
	l.end()
	if n := c.number(`SELECT count(*) FROM bulk`); n != 2000 {
		t.Errorf("%d rows", n)
	}
	c.clean()
}

// asksBeforeItHolds waits until a move says that a member is silent, and checks that no statement is held then.
func (c *target) asksBeforeItHolds(id string) {
	c.t.Helper()
	ctx := context.Background()
	held := func() bool {
		snap, err := c.dir.Load(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		_, transit := snap.Transit(id)
		return transit == nil || transit.Hold != shardmap.NoHold
	}
	c.eventually("the move waits for a router that is silent", func() bool {
		before := held() // a hold that was taken back is none
		list, err := c.rooms.Ops.Moves(ctx, id)
		if err != nil {
			c.t.Fatal(err)
		}
		w := list[0]
		if w.Ended {
			c.t.Fatalf("it did not wait: %+v", w.History)
		}
		if !strings.Contains(w.Note, "does not answer, before statements are held") {
			return false
		}
		if before && held() {
			c.t.Error("statements are held meanwhile")
		}
		return true
	})
}

// TestSilentRouterIsWaitedForFirst: a router is stopped while rows are copied, whose lease lasts for long. The move waits for it, says so, and
// holds no statement; when it goes on, so does the move.
func TestSilentRouterIsWaitedForFirst(t *testing.T) {
	testrun.Long(t, "the program is built, and stopped while a slow copy goes on; TestCrash of test/crash has a sample of stops")
	c := start(t, "postgres", "postgres")
	c.bank(500)
	router := c.process(program(t), "router", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--lease-ttl", "1m")
	c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: "..0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0", BytesPerSecond: 15_000}})
	c.when("m", workflow.Copying, false)
	if err := router.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = router.cmd.Process.Signal(syscall.SIGCONT) }()
	c.asksBeforeItHolds("m")
	if err := router.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.await("m", "done")
	c.clean()
}

// TestRouterIsKilled: another router is killed, and stopped for longer than its lease, while a
// part changes its owner. Its lease is waited for before statements are held, not while they are, and no session is told
// anything that is not so.
func TestRouterIsKilled(t *testing.T) {
	testrun.Long(t, "leases of seconds are waited for, four times; TestCrash of test/crash has a sample of kills")
	bin := program(t)
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) {
			c := start(t, engines...)
			c.bank(500)
			l := c.work(2)
			for i, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				router := c.process(bin, "router", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
				id := fmt.Sprintf("r%d", i)
				c.move(admin.MoveRequest{ID: id, Keyspace: "bank", Range: "..0", To: []string{"s1", "s0"}[i], MoveOptions: admin.MoveOptions{Keep: "0"}})
				c.when(id, workflow.Verifying, false)
				if err := router.cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				w := c.await(id, "done")
				t.Logf("%v: held for %d ms", signal, w.HeldMS)
				// The lease lasts 5 s; it is waited for before anything is held.
				if w.HeldMS > 2000 {
					t.Errorf("%v: statements waited for the lease of a router that is silent: %d ms; %+v", signal, w.HeldMS, w.History)
				}
				if signal == syscall.SIGSTOP {
					_ = router.cmd.Process.Signal(syscall.SIGCONT)
				}
				router.kill()
			}
			l.end()
			if l.failed.Load() > 0 {
				t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
			}
			c.clean()
		})
	}
}

// TestDirectoryIsKilled: a member of the directory is killed, and then most of them for a while, in
// the middle of moves.
func TestDirectoryIsKilled(t *testing.T) {
	testrun.Long(t, "etcd servers are killed and elect anew; TestCrash of test/crash has a sample of kills")
	etcd := etcdtest.New(t, etcdtest.Options{})
	c := startOn(t, etcd.URL(), "test", "sqlite", "sqlite")
	c.bank(500)
	l := c.work(2)
	for i, victims := range [][]int{{0}, {1, 2}} {
		id := fmt.Sprintf("d%d", i)
		c.move(admin.MoveRequest{ID: id, Keyspace: "bank", Range: "..0", To: []string{"s1", "s0"}[i], MoveOptions: admin.MoveOptions{Keep: "0"}})
		c.when(id, workflow.Copying, false)
		for _, v := range victims {
			etcd.Kill(t, v)
		}
		time.Sleep(300 * time.Millisecond)
		for _, v := range victims {
			etcd.Start(t, v)
		}
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			list, err := c.rooms.Ops.Moves(context.Background(), id)
			if err == nil && list[0].Step == "done" {
				break
			}
			if time.Now().After(end) || err == nil && list[0].Ended {
				t.Fatalf("%+v %v", list, err)
			}
		}
	}
	l.end()
	c.clean()
}
