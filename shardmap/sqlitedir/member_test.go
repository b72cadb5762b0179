package sqlitedir_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/shardmaptest"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
)

func memberOf(id string) shardmap.Member { return shardmap.Member{ID: id, Role: "router"} }

func count(t *testing.T, d shardmap.Directory) int {
	t.Helper()
	list, err := d.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestWallClockSteps has the wall clock jump about: leases do not go by it.
func TestWallClockSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	var step atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
	open := func() shardmap.Directory {
		d, err := sqlitedir.OpenWith(path, sqlitedir.Options{Now: now, LeaseTTL: shardmap.MinLeaseTTL})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a, b := open(), open()
	defer closing(t, b)
	lease, _, err := a.Join(t.Context(), memberOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		step.Store(int64(to))
		term := lease.Term()
		if n := count(t, b); n != 1 && lease.Holds(term) {
			t.Fatalf("after a step by %v there are %d members", to, n)
		}
	}
	// Nor does a step back keep an abandoned lease.
	step.Store(-int64(1000 * time.Hour))
	closing(t, a)
	for end := time.Now().Add(waitfor.Max); count(t, b) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the abandoned lease does not end")
		}
	}
}

// TestReboot opens the file after another boot, whose clock begins anew: nobody
// of before is a member or leads, and no token of before is valid.
func TestReboot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	boot := func(id string, ns int64) shardmap.Directory {
		d, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		sqlitedir.Boot(d, func() (string, int64, error) { return id, ns + int64(time.Since(begun)), nil })
		return d
	}
	before := boot("first", int64(100*time.Hour))
	create(t, before)
	lease, _, err := before.Join(t.Context(), memberOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	leader, err := before.Campaign(t.Context(), "coordinator", "a")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, before)

	after := boot("second", int64(time.Second))
	defer closing(t, after)
	if n := count(t, after); n != 0 {
		t.Fatalf("%d members survived a reboot", n)
	}
	if _, err := after.Fenced(leader.Token()).PutRecord(t.Context(), "k", nil, 0); !errors.Is(err, shardmap.ErrDeposed) {
		t.Fatalf("a token survived a reboot: %v", err)
	}
	next, leave, err := after.Join(t.Context(), memberOf("b"))
	if err != nil {
		t.Fatal(err)
	}
	if next.Node() != lease.Node() {
		t.Fatalf("node %d was given, %d is free", next.Node(), lease.Node())
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
	defer cancel()
	led, err := after.Campaign(ctx, "coordinator", "b")
	if err != nil || led.Token() <= leader.Token() {
		t.Fatalf("Campaign after a reboot: %v", err)
	}
	if err := errors.Join(led.Resign(ctx), leave(ctx)); err != nil {
		t.Fatal(err)
	}
}

// TestPausedLeader stops a leading process.
func TestPausedLeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	d, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: shardmaptest.LeaseTTL})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, d)
	shardmaptest.RunPaused(t, d, func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), leadVariable+"="+path)
		return cmd
	})
}

// TestTransfer moves a cluster to another file and back.
func TestTransfer(t *testing.T) {
	store := func(name string) shardmaptest.Store {
		path := filepath.Join(t.TempDir(), name)
		return func() shardmap.Directory {
			d, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: shardmaptest.LeaseTTL})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	shardmaptest.RunTransfer(t, store("a.db"), store("b.db"))
}

// TestFormatOne opens a file of the first format, which had no leases.
func TestFormatOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	d := open(t, path)
	snap := create(t, d)
	closing(t, d)
	for _, sql := range []string{"DROP TABLE record", "DROP TABLE counter", "DROP TABLE member", "DROP TABLE election", "DROP TABLE moved", "PRAGMA user_version = 1"} {
		exec1(t, path, sql)
	}
	for range 2 {
		d = open(t, path)
		if got, err := d.Load(t.Context()); err != nil || got.Version() != snap.Version() {
			t.Fatalf("Load: %v", err)
		}
		if _, err := d.Records(t.Context(), "", "", 10); err != nil {
			t.Fatalf("Records: %v", err)
		}
		closing(t, d)
	}
	if v := exec1(t, path, "PRAGMA user_version"); v != "2" {
		t.Fatalf("the file has format %s", v)
	}
}
