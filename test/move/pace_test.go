package move

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestPace: a copy slows down, and says so, while the target's disk is slow or a replica of it is
// behind, and goes on by itself when they are well again.
func TestPace(t *testing.T) {
	testrun.Long(t, "a pace has to be kept for seconds; TestPaceIsBounded and TestRest of the coordinator have the arithmetic")
	c := start(t, "postgres", "durable")
	c.bank(6000)
	target := c.servers[0]
	url := target.URL("bank")
	settle := func(settings ...string) {
		for _, s := range settings {
			pgtest.Ask(t, pgtest.Super(url), "ALTER SYSTEM "+s)
		}
		pgtest.Ask(t, pgtest.Super(url), "SELECT pg_reload_conf()")
	}
	// Each commit waits for 60 ms before the log is written.
	settle("SET commit_siblings = 0", "SET commit_delay = 60000")
	pgtest.Await(t, url, "SELECT current_setting('commit_delay')", "60000")
	how := admin.MoveOptions{Keep: "0", BytesPerSecond: 100 << 10, MaxLatency: "20ms"} // some seconds
	c.move(admin.MoveRequest{ID: "disk", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: how})
	t.Log(c.noted("disk", "copying", "slowed: s1 latency").Note)
	settle("RESET commit_siblings", "RESET commit_delay")
	c.await("disk", "done")

	replica := pgtest.NewReplica(t, target.Server, "behind", nil)
	if _, err := c.rooms.Ops.Move(context.Background(), admin.MoveRequest{ID: "odd", Keyspace: "bank", Range: "0:", To: "s1", MoveOptions: admin.MoveOptions{MaxLag: "soon"}}); err == nil {
		t.Error("a bound that is none is accepted")
	}
	pgtest.Ask(t, replica.SuperuserURL("bank"), "SELECT pg_wal_replay_pause()")
	how.MaxLatency, how.MaxLagBytes = "off", 64<<10
	c.move(admin.MoveRequest{ID: "replica", Keyspace: "bank", Range: "0:", To: "s1", MoveOptions: how})
	t.Log(c.noted("replica", "copying", "slowed: s1 replica").Note)
	pgtest.Ask(t, replica.SuperuserURL("bank"), "SELECT pg_wal_replay_resume()")
	c.await("replica", "done")

	// Bounds that would take hours are changed while it works.
	c.move(admin.MoveRequest{ID: "slow", Keyspace: "bank", Range: ":0", To: "s0", MoveOptions: admin.MoveOptions{Keep: "0", RowsPerSecond: 1}})
	c.noted("slow", "copying", "")
	soon := "soon"
	if _, err := c.rooms.Ops.Resume(context.Background(), admin.WorkflowRequest{ID: "slow", Bounds: &admin.MoveBounds{MaxLatency: &soon}}); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
		t.Errorf("a bound that is none is accepted: %v", err)
	}
	none := int64(0)
	if _, err := c.rooms.Ops.Cancel(context.Background(), admin.WorkflowRequest{ID: "slow", Bounds: &admin.MoveBounds{RowsPerSecond: &none}}); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
		t.Errorf("a cancel takes bounds: %v", err)
	}
	c.exec(`SELECT cleave.resume('slow', rows_per_second => 0, max_latency => 'off', max_lag => NULL)`)
	w := c.await("slow", "done")
	if w.Rows == 0 || w.Rows != w.Copied || !strings.Contains(fmt.Sprint(w.History), "its bounds were changed") {
		t.Errorf("%+v", w)
	}
	c.move(admin.MoveRequest{ID: "there", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
	c.await("there", "done")

	// By itself, beside others.
	l := c.workAt(2, 0)
	if _, err := c.rooms.Ops.Move(context.Background(), admin.MoveRequest{ID: "beside", Keyspace: "bank", Range: ":0", To: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}}); err != nil {
		t.Fatal(err)
	}
	c.await("beside", "done")
	l.end()
	if l.failed.Load() > 0 {
		t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
	}
	c.clean()
}
