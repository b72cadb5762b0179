package schema

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// join makes a member that goes by the current map until it is told of a newer one.
func (c *cluster) join(name string) (*shardmap.Lease, func()) {
	c.t.Helper()
	lease, leave, err := c.dir.Join(context.Background(), shardmap.Member{ID: name, Role: "router", Address: name})
	if err != nil {
		c.t.Fatal(err)
	}
	lease.Acknowledge(c.snap().Version())
	return lease, func() {
		if err := leave(context.Background()); err != nil {
			c.t.Error(err)
		}
	}
}

// TestChangeWaitsForMembers: no shard has a decided change before every member goes by its map.
func TestChangeWaitsForMembers(t *testing.T) {
	servers(t, func(t *testing.T, server *localpg.Server) {
		c := newCluster(t, server, 2)
		lease, leave := c.join("late")
		defer leave()
		decided, end := make(chan struct{}), make(chan error, 1)
		o := c.options()
		var order []string
		o.step = func(step, _ string) error {
			order = append(order, step)
			if step == "decided" {
				close(decided)
			}
			return nil
		}
		go func() { end <- c.one(o, create("t", orders, "tenant_id")) }()
		<-decided
		if _, ok := c.snap().Table("public", "t"); !ok {
			t.Error("the map has it not, and is waited for")
		}
		for name := range c.shards {
			if c.has(name, "t") {
				t.Errorf("%s has it, and a member goes by the map before", name)
			}
		}
		who, err := Behind(context.Background(), c.dir, c.snap().Version())
		if err != nil || !strings.Contains(who, "late") {
			t.Errorf("%q is behind, %v", who, err)
		}
		lease.Acknowledge(c.snap().Version())
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if steps := strings.Join(order, " "); !strings.Contains(steps, "decided followed commit") {
			t.Errorf("steps: %s", steps)
		}
		c.agree()
	})
}

// TestKnownWhenItIsDone: a change after which statements by the older map are right, or end with an error, holds its locks for
// nobody. Its client is told when every member knows it.
func TestKnownWhenItIsDone(t *testing.T) {
	servers(t, func(t *testing.T, server *localpg.Server) {
		c := newCluster(t, server, 2)
		c.must(create("t", orders, "tenant_id"))
		lease, leave := c.join("late")
		defer leave()
		end := make(chan error, 1)
		go func() { end <- c.one(c.options(), alter(true, "t", "ADD COLUMN twice int")) }()
		for name := range c.shards {
			for {
				if c.query(name, "SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'twice'").Rows[0][0].String == "1" {
					break
				}
				select {
				case err := <-end:
					t.Fatalf("it has ended, and %s lacks it: %v", name, err)
				case <-time.After(5 * time.Millisecond):
				}
			}
		}
		if who, err := Behind(context.Background(), c.dir, c.snap().Version()); err != nil || !strings.Contains(who, "late") {
			t.Errorf("%q is behind, %v", who, err)
		}
		select {
		case err := <-end:
			t.Errorf("it has ended, and a member does not know it: %v", err)
		default:
		}
		lease.Acknowledge(c.snap().Version())
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		c.agree()
	})
}

// TestRecoveryWaitsForMembers: nor has one whose router died once it was decided.
func TestRecoveryWaitsForMembers(t *testing.T) {
	servers(t, func(t *testing.T, server *localpg.Server) {
		c := newCluster(t, server, 2)
		_, leave := c.join("late")
		o := c.options()
		o.step = func(step, _ string) error {
			if step == "decided" {
				return errStop
			}
			return nil
		}
		if err := c.one(o, create("t", orders, "tenant_id")); err == nil {
			t.Fatal("it went on")
		}
		c.waitIdle()
		waits := false
		for _, f := range c.recover() {
			waits = waits || strings.Contains(f.What, "waits for router late") && f.Done == "" && f.Later
		}
		if !waits {
			t.Error("nothing says that the member is waited for")
		}
		for name := range c.shards {
			if c.has(name, "t") {
				t.Errorf("%s has it, and a member goes by the map before", name)
			}
		}
		leave()
		c.recover()
		for name := range c.shards {
			if !c.has(name, "t") {
				t.Errorf("%s lacks it", name)
			}
		}
		c.agree()
	})
}

// TestAwaitMembersEnds: the wait has a bound, and says who is waited for.
func TestAwaitMembersEnds(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 1)
	_, leave := c.join("late")
	defer leave()
	e := code(t, AwaitMembers(context.Background(), c.dir, c.snap().Version()+1, 20*time.Millisecond), sqlstate.LockNotAvailable)
	if !strings.Contains(e.Message, "router late") {
		t.Error(e)
	}
	gone, stop := context.WithCancel(context.Background())
	stop()
	if err := AwaitMembers(gone, c.dir, c.snap().Version()+1, followMax); err != context.Canceled {
		t.Error(err)
	}
}
