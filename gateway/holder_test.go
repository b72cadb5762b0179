package gateway_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
)

// nothingLost is asked of every cluster at its end: no session has lost a connection, and each is back in its pool.
func (c *cluster) nothingLost(t testing.TB) {
	t.Helper()
	if n := c.samples(t, "cleave_pool_reclaimed_total"); n != c.loses {
		t.Errorf("sessions lost %v connections, and not %v", n, c.loses)
	}
}

// TestLostConnectionsAreTakenBack: what a session holds and does not know of any more is taken back with its next answer, or at its end.
func TestLostConnectionsAreTakenBack(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 2, executor: limitsOf(3)})
	cl.loses = 5
	back := func(n int) bool {
		busy := 0
		for _, h := range cl.ex.Health() {
			busy += h.Open - h.Idle
		}
		return busy == n
	}
	lose := func(pid uint32) {
		t.Helper()
		if err := cl.server.Lose(context.Background(), pid, "shard-1"); err != nil {
			t.Fatal(err)
		}
	}
	pid := conn.PgConn().PID()
	lose(pid)
	lose(pid)
	waitfor.True(t, "two connections are in use", func() bool { return back(2) })
	exec(t, conn, "SELECT 1")
	waitfor.True(t, "they were taken back", func() bool { return back(0) })

	// In a transaction the others are still its own.
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO orders SELECT g, 1000, 'n' FROM generate_series(1, 9) g")
	lose(pid)
	exec(t, conn, "SELECT count(*) FROM orders")
	waitfor.True(t, "one is back, two are the transaction's", func() bool { return back(2) })
	exec(t, conn, "CREATE TABLE fresh (a int)")
	exec(t, conn, "COMMIT")
	waitfor.True(t, "all are back", func() bool { return back(0) })
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id = 1000"); n != 9 {
		t.Errorf("%d rows of the transaction", n)
	}

	other := cl.connect(t)
	lose(other.PgConn().PID())
	lose(other.PgConn().PID())
	if err := other.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the end of a session takes its own back", func() bool { return back(0) })

	_, leave, err := cl.dir.Join(context.Background(), shardmap.Member{ID: "r1", Role: "router", Address: "here:6480"})
	if err != nil {
		t.Fatal(err)
	}
	defer leave(context.Background())
	ops := admin.New(admin.Options{Directory: cl.dir, Drivers: []engine.Driver{postgres.Driver{}}, Connect: cl.ex.Connect, Answer: cl.server.Answer, Member: "r1"})
	defer ops.Close()
	findings, err := ops.Doctor(context.Background(), admin.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := func(f admin.Finding) bool {
		return f.Level == admin.LevelWarning && f.Shard == "shard-1" && strings.HasPrefix(f.What, "sessions of router here:6480 have lost 5 connections to shard shard-1")
	}
	if !slices.ContainsFunc(findings, told) {
		t.Errorf("doctor does not tell: %+v", findings)
	}
}
