package shardmaptest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

// LeaseTTL is the time to live of leases with which the suite's directories are
// to be opened: some tests wait for leases to run out.
const LeaseTTL = shardmap.MinLeaseTTL

func member(id string) shardmap.Member {
	return shardmap.Member{ID: id, Role: "router", Address: "h:1", Host: "h \"1\"", Software: "1.2.3"}
}

func join(t *testing.T, d shardmap.Directory, id string) (*shardmap.Lease, func()) {
	t.Helper()
	l, leave, err := d.Join(t.Context(), member(id))
	if err != nil {
		t.Fatalf("Join: %v", err)
	}
	if !l.Live() {
		t.Fatal("the lease is not live when Join returns")
	}
	return l, func() {
		t.Helper()
		if err := leave(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("leave: %v", err)
		}
		if l.Live() {
			t.Error("the lease is live after leave")
		}
		if err := leave(t.Context()); err != nil {
			t.Errorf("a second leave: %v", err)
		}
	}
}

func members(t *testing.T, d shardmap.Directory) map[string]shardmap.MemberState {
	t.Helper()
	list, err := d.Members(t.Context())
	if err != nil {
		t.Fatalf("Members: %v", err)
	}
	out := map[string]shardmap.MemberState{}
	last := -1
	for _, m := range list {
		if int(m.Node) <= last || m.Node >= shardmap.MaxNodes {
			t.Fatalf("the members' nodes are not in order: %+v", list)
		}
		last = int(m.Node)
		out[m.ID] = m
	}
	return out
}

// await waits until a condition holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in %v it did not come to this: %s", patience, what)
		}
	}
}

func testJoin(t *testing.T, d shardmap.Directory) {
	if list := members(t, d); len(list) != 0 {
		t.Fatalf("an empty directory has members %v", list)
	}
	if _, _, err := d.Join(t.Context(), shardmap.Member{}); err == nil {
		t.Fatal("a member without an id joined")
	}
	create(t, d)
	begin := time.Now()
	a, leaveA := join(t, d, "a")
	defer leaveA()
	b, leaveB := join(t, d, "b")
	if a.Node() == b.Node() {
		t.Fatalf("two members have node %d", a.Node())
	}
	list := members(t, d)
	got := list["a"]
	if got.Member != member("a") || got.Node != a.Node() || got.Acknowledged != 0 || len(list) != 2 {
		t.Fatalf("the members are %+v", list)
	}
	if got.Left <= 0 || got.Left > LeaseTTL+time.Second || got.Joined.Before(begin.Add(-time.Minute)) || got.Joined.After(time.Now().Add(time.Minute)) {
		t.Fatalf("the member is %+v", got)
	}
	if left := a.Left(); left <= 0 || left >= LeaseTTL {
		t.Fatalf("the lease has %v left", left)
	}
	// What is acknowledged is told at once, not with the next renewal.
	for v := uint64(1); v <= 3; v++ {
		a.Acknowledge(v)
		await(t, fmt.Sprintf("version %d is acknowledged", v), func() bool { return members(t, d)["a"].Acknowledged == v })
	}
	a.Acknowledge(2)
	node := b.Node()
	leaveB()
	if list := members(t, d); len(list) != 1 || list["a"].Acknowledged != 3 {
		t.Fatalf("after one left the members are %+v", list)
	}
	c, leaveC := join(t, d, "c")
	defer leaveC()
	if c.Node() != node {
		t.Fatalf("node %d was given, %d is free", c.Node(), node)
	}
}

// testLeaseKept has a lease outlive its TTL by renewals.
func testLeaseKept(t *testing.T, d shardmap.Directory) {
	l, leave := join(t, d, "a")
	defer leave()
	node, term := l.Node(), l.Term()
	for end := time.Now().Add(2 * LeaseTTL); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		// A machine that is too busy to renew may lose it; the directory then
		// must have lost it too, or be about to.
		now := l.Term()
		if _, ok := members(t, d)["a"]; !ok && l.Holds(now) {
			t.Fatal("the lease is live, but the directory has given it up")
		}
	}
	await(t, "the lease is live", l.Live)
	if l.Term() == term && (l.Node() != node || !l.Holds(term)) {
		t.Fatalf("node %d became %d without a new term", node, l.Node())
	}
}

func testElection(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	for _, name := range []string{"", "a/b", "a\x00"} {
		if _, err := d.Campaign(ctx, name, "x"); err == nil {
			t.Fatalf("an election %q was won", name)
		}
	}
	snap := create(t, d)
	first, err := d.Campaign(ctx, "coordinator", "first")
	if err != nil || first.Token() == 0 {
		t.Fatalf("Campaign: %v", err)
	}
	other, err := d.Campaign(ctx, "another", "first")
	if err != nil || other.Token() == first.Token() {
		t.Fatalf("another election: %v", err)
	}
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = d.Campaign(brief, "coordinator", "second")
	wantErr(t, "a Campaign while another leads", err, context.DeadlineExceeded)

	won := make(chan *shardmap.Leadership, 1)
	go func() {
		l, err := d.Campaign(ctx, "coordinator", "third")
		if err != nil {
			t.Errorf("Campaign: %v", err)
		}
		won <- l
	}()
	// The leader can write.
	led := change(snap.Version(), "by the leader")
	led.Token = first.Token()
	if snap, err = d.Update(ctx, led, snap.State().Clone()); err != nil {
		t.Fatalf("Update by the leader: %v", err)
	}
	rev, err := d.Fenced(first.Token()).PutRecord(ctx, "k", []byte("first"), 0)
	if err != nil {
		t.Fatalf("PutRecord by the leader: %v", err)
	}
	select {
	case <-won:
		t.Fatal("two lead")
	case <-first.Lost():
		t.Fatal("the leadership was lost")
	case <-time.After(LeaseTTL + LeaseTTL/2): // kept beyond its TTL
	}
	if err := first.Resign(ctx); err != nil {
		t.Fatalf("Resign: %v", err)
	}
	if err := first.Resign(ctx); err != nil {
		t.Fatalf("a second Resign: %v", err)
	}
	<-first.Lost()
	second := <-won
	if second == nil {
		return
	}
	defer resign(t, second)
	if second.Token() <= first.Token() {
		t.Fatalf("the token went from %d to %d", first.Token(), second.Token())
	}
	deposed(t, d, snap, first.Token(), rev)
	deposed(t, d, snap, 1<<40, rev)
	led = change(snap.Version(), "by the next leader")
	led.Token = second.Token()
	if _, err := d.Update(ctx, led, snap.State().Clone()); err != nil {
		t.Fatalf("Update by the next leader: %v", err)
	}
	resign(t, other)
}

func resign(t *testing.T, l *shardmap.Leadership) {
	t.Helper()
	if err := l.Resign(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("Resign: %v", err)
	}
}

// deposed checks that nothing can be written with the token.
func deposed(t *testing.T, d shardmap.Directory, snap *shardmap.Snapshot, token, rev uint64) {
	t.Helper()
	ctx := t.Context()
	c := change(snap.Version(), "by a deposed leader")
	c.Token, c.ID = token, "deposed"
	_, err := d.Update(ctx, c, snap.State().Clone())
	wantErr(t, "Update by a deposed leader", err, shardmap.ErrDeposed)
	_, err = d.Find(ctx, "deposed")
	wantErr(t, "Find of its change", err, shardmap.ErrNotFound)
	_, err = d.Fenced(token).PutRecord(ctx, "k", []byte("deposed"), rev)
	wantErr(t, "PutRecord by a deposed leader", err, shardmap.ErrDeposed)
	_, err = d.Fenced(token).PutRecord(ctx, "new", []byte("deposed"), 0)
	wantErr(t, "PutRecord by a deposed leader", err, shardmap.ErrDeposed)
	wantErr(t, "DeleteRecord by a deposed leader", d.Fenced(token).DeleteRecord(ctx, "k", rev), shardmap.ErrDeposed)
	if r, err := d.Fenced(token).Record(ctx, "k"); err != nil || r.Revision != rev || string(r.Value) != "first" {
		t.Fatalf("a deposed leader's writes left %+v, %v", r, err)
	}
	if v := mustLoad(t, d).Version(); v != snap.Version() {
		t.Fatalf("a deposed leader made version %d", v)
	}
}

// testAbandoned closes a handle without giving up what it holds, as a crash
// would: others get it, after the lease's time and not before the holder stopped.
func testAbandoned(t *testing.T, open Store) {
	ctx := t.Context()
	a, b := open(), open()
	defer closing(t, b)
	snap := create(t, a)
	lease, _ := join(t, a, "a")
	_, leaveB := join(t, b, "b")
	defer leaveB()
	leader, err := a.Campaign(ctx, "coordinator", "a")
	if err != nil {
		t.Fatalf("Campaign: %v", err)
	}
	rev, err := a.Fenced(leader.Token()).PutRecord(ctx, "k", []byte("first"), 0)
	if err != nil {
		t.Fatalf("PutRecord: %v", err)
	}
	if got := members(t, b); got["a"].Node == got["b"].Node || len(got) != 2 {
		t.Fatalf("the members are %+v", got)
	}
	begin := time.Now()
	closing(t, a)
	await(t, "the lease ends after Close", func() bool { return !lease.Live() })
	<-leader.Lost()
	next, err := b.Campaign(ctx, "coordinator", "b")
	if err != nil {
		t.Fatalf("Campaign: %v", err)
	}
	defer resign(t, next)
	if next.Token() <= leader.Token() {
		t.Fatalf("the token went from %d to %d", leader.Token(), next.Token())
	}
	deposed(t, b, snap, leader.Token(), rev)
	await(t, "the abandoned lease is given up", func() bool { _, there := members(t, b)["a"]; return !there })
	t.Logf("an abandoned lease was given up after %v", time.Since(begin))
	c, leaveC := join(t, b, "c")
	defer leaveC()
	if c.Node() != lease.Node() {
		t.Fatalf("node %d was given, %d is free", c.Node(), lease.Node())
	}
}
