package move

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// signal sends a signal to processes of a test's server.
func (c *target) signal(pids []string, s syscall.Signal) {
	c.t.Helper()
	for _, pid := range pids {
		n, err := strconv.Atoi(pid)
		if err == nil {
			err = syscall.Kill(n, s)
		}
		// One that was about to end when it was stopped has ended since.
		if err != nil && (s != syscall.SIGCONT || !errors.Is(err, syscall.ESRCH)) {
			c.t.Errorf("%v of %s: %v", s, pid, err)
		}
	}
}

// copiers waits until rows are loaded, and returns the processes of the shard's server that do it.
func (c *target) copiers(id, shard string) (pids []string) {
	c.t.Helper()
	snap, err := c.dir.Load(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	s, _ := snap.Shard(shard)
	c.eventually("rows are loaded", func() bool {
		w := c.await(id, "copying")
		pids = strings.Fields(pgtest.Ask(c.t, pgtest.Super(s.URL), `SELECT coalesce(string_agg(pid::text, ' '), '') FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query ILIKE 'COPY %'`))
		return w.Rows > 0 && len(pids) > 0
	})
	return pids
}

// TestCancelBesideAStoppedProcess: a move is cancelled whose copy stands, as a process of the target's server is stopped. Neither the move nor
// doctor is silent about it, and it is cancelled when the process goes on.
func TestCancelBesideAStoppedProcess(t *testing.T) {
	testrun.Long(t, "a copy has to stand for seconds before the move says so")
	c := start(t, "postgres", "postgres")
	c.bank(4000)
	c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0", BytesPerSecond: 20_000}})
	pids := c.copiers("m", "s1")
	c.signal(pids, syscall.SIGSTOP)
	goesOn := false
	defer func() {
		if !goesOn {
			c.signal(pids, syscall.SIGCONT)
		}
	}()
	if _, err := c.rooms.Ops.Cancel(t.Context(), admin.WorkflowRequest{ID: "m"}); err != nil {
		t.Fatal(err)
	}
	told := func(text string) bool {
		for _, pid := range pids {
			if strings.Contains(text, "server process "+pid+" was told to end") && strings.Contains(text, "kill -CONT "+pid) {
				return true
			}
		}
		return false
	}
	c.eventually("the move says why it is not cancelled", func() bool { return told(c.await("m", "cancelling").Error) })
	c.eventually("doctor says it too", func() bool {
		found, err := c.rooms.Ops.Doctor(t.Context(), admin.DoctorRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if told(f.What) && f.Next == "cleave moves m" {
				return true
			}
		}
		return false
	})
	c.signal(pids, syscall.SIGCONT)
	goesOn = true
	c.await("m", "cancelled")
	c.clean()
}
