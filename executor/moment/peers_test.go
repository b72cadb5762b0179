package moment

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

// member is a router of a test: it answers others at a port, and has answers of its own.
type member struct {
	now sync.Mutex // for changes of what answers
	Answerer
	gate   Gate
	frozen atomic.Bool // it hears, and says nothing
	leave  func(context.Context) error
	proved atomic.Int32
	quiet  atomic.Int32
}

// joins makes a member of a directory, which is asked until the test ends.
func joins(t testing.TB, dir shardmap.Directory, id string) *member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{}
	m.Answerer = Answerer{Gate: &m.gate, Member: id, Key: NewKey(dir), Quiet: func() func() {
		m.quiet.Add(1)
		return func() { m.quiet.Add(-1) }
	}}
	if _, m.leave, err = dir.Join(t.Context(), shardmap.Member{ID: id, Role: "router", Address: l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			all.Go(func() {
				defer nc.Close()
				m.serve(nc)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return m
}

func (m *member) serve(nc net.Conn) {
	head := make([]byte, 8+nonceBytes)
	if _, err := io.ReadFull(nc, head); err != nil || binary.BigEndian.Uint32(head[4:]) != Code {
		return
	}
	m.now.Lock()
	a := m.Answerer
	m.now.Unlock()
	_ = a.Serve(freezing{nc, &m.frozen}, head[8:], func() { m.proved.Add(1) }) // the asker sees it
}

// freezing is the connection of a process that can be stopped.
type freezing struct {
	net.Conn
	frozen *atomic.Bool
}

func (f freezing) Write(b []byte) (int, error) {
	for f.frozen.Load() {
		time.Sleep(time.Millisecond)
	}
	return f.Conn.Write(b)
}

func asker(t testing.TB, dir shardmap.Directory, self string) *Peers {
	t.Helper()
	p := NewPeers(dir, self, NewKey(dir))
	t.Cleanup(p.Close)
	return p
}

func meet(t testing.TB, p *Peers) Meeting {
	t.Helper()
	m, err := p.Meet(waitfor.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func cluster(t testing.TB) shardmap.Directory {
	t.Helper()
	dir := memory.New()
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

// TestPeers: all others are hushed between Hush and Lift, and asked again over the same conversations.
func TestPeers(t *testing.T) {
	dir := cluster(t)
	self, one, two := joins(t, dir, "self"), joins(t, dir, "one"), joins(t, dir, "two")
	p := asker(t, dir, "self")
	for range 3 {
		m := meet(t, p)
		if !one.gate.Open() || !two.gate.Open() {
			t.Error("they are hushed too early")
		}
		if !m.Hush() || one.gate.Open() || two.gate.Open() || one.quiet.Load() != 1 || !self.gate.Open() {
			t.Error("not all others are hushed, or not they alone")
		}
		if !m.Lift() || !one.gate.Open() || !two.gate.Open() || one.quiet.Load() != 0 {
			t.Error("it was not whole, or something is left")
		}
	}
	if one.proved.Load() != 1 {
		t.Errorf("%d conversations", one.proved.Load())
	}
	if err := one.leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.listed = time.Time{}
	m := meet(t, p)
	if m.Hush(); !one.gate.Open() || two.gate.Open() {
		t.Error("who left is asked")
	}
	m.Lift()
}

// TestPeersOfNoMoment: what a member does so that a moment does not count.
func TestPeersOfNoMoment(t *testing.T) {
	dir := cluster(t)
	one := joins(t, dir, "one")
	p := asker(t, dir, "self")
	m := meet(t, p)
	if !m.Hush() {
		t.Fatal("it is not hushed")
	}
	one.gate.Pass() // its bound
	if m.Lift() {
		t.Error("it lifted the hush by itself, and the moment counts")
	}
	m = meet(t, p)
	m.(*meeting).began = time.Now().Add(-Margin / 2)
	if !m.Hush() || m.Lift() {
		t.Error("a moment that took too long counts")
	}
	last := one.gate.Hush(time.Hour)
	one.gate.since = time.Now().Add(-time.Hour)
	m = meet(t, p)
	if m.Hush() || m.Lift() {
		t.Error("one that does not take part is hushed")
	}
	last.Lift()
	m = meet(t, p)
	if !m.Hush() {
		t.Fatal("it is not hushed")
	}
	one.frozen.Store(true)
	if m.Lift() {
		t.Error("one that does not answer was hushed")
	}
	one.frozen.Store(false)
	if m = meet(t, p); !m.Hush() || !m.Lift() {
		t.Error("it does not go on")
	}
}

// TestPeersWait: a member that is stopped is waited for until it answers, or is none any more. Nobody is hushed meanwhile.
func TestPeersWait(t *testing.T) {
	dir := cluster(t)
	one, two := joins(t, dir, "one"), joins(t, dir, "two")
	p := asker(t, dir, "self")
	meet(t, p).Lift()
	for _, ends := range []func(){func() { one.frozen.Store(false) }, func() {
		if err := one.leave(t.Context()); err != nil {
			t.Error(err)
		}
	}} {
		one.frozen.Store(true)
		m := meet(t, p)
		if m.Hush() || m.Lift() {
			t.Error("a stopped member is hushed")
		}
		met := make(chan Meeting)
		go func() {
			m, err := p.Meet(waitfor.Context(t))
			if err != nil {
				t.Error(err)
			}
			met <- m
		}()
		select {
		case <-met:
			t.Error("it does not wait")
		case <-time.After(2 * callPause):
		}
		if !two.gate.Open() {
			t.Error("another one is hushed meanwhile")
		}
		ends()
		if m = <-met; !m.Hush() || !m.Lift() {
			t.Error("it does not go on")
		}
	}
	one.frozen.Store(false)
}

// TestPeersDoNotAnswer: an address where nobody is, a member of another id, another key, and the end.
func TestPeersDoNotAnswer(t *testing.T) {
	dir, other := cluster(t), cluster(t)
	fails := func(p *Peers) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 10*callPause)
		defer stop()
		if _, err := p.Meet(ctx); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			t.Error(err)
		}
	}
	stranger := joins(t, other, "one")
	members, err := other.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, leave, err := dir.Join(t.Context(), shardmap.Member{ID: "one", Role: "router", Address: members[0].Address})
	if err != nil {
		t.Fatal(err)
	}
	fails(asker(t, dir, "self")) // another key
	if stranger.proved.Load() != 0 {
		t.Error("a stranger has proved itself")
	}
	stranger.now.Lock()
	stranger.Key, stranger.Member = NewKey(dir), "another"
	stranger.now.Unlock()
	fails(asker(t, dir, "self"))
	if err := leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := NewPeers(dir, "self", NewKey(dir))
	meet(t, p).Lift()
	if _, _, err := dir.Join(t.Context(), shardmap.Member{ID: "nowhere", Role: "router", Address: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	p.listed = time.Time{}
	failed := make(chan error)
	go func() {
		_, err := p.Meet(context.Background())
		failed <- err
	}()
	p.Close()
	if err := <-failed; sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Error(err)
	}
}

// TestAskerDies: its hush ends with its connection.
func TestAskerDies(t *testing.T) {
	dir := cluster(t)
	one := joins(t, dir, "one")
	p := asker(t, dir, "self")
	if !meet(t, p).Hush() {
		t.Fatal("it is not hushed")
	}
	_ = p.lines["one"].nc.Close()
	waitfor.True(t, "it is open", one.gate.Open)
	p.mu.Unlock() // of the meeting that nobody ends
}

// TestAskerStops: who asked for a hush says nothing any more. Neither answers nor commits wait for it.
func TestAskerStops(t *testing.T) {
	dir := cluster(t)
	one := joins(t, dir, "one")
	p := asker(t, dir, "self")
	if !meet(t, p).Hush() || one.quiet.Load() == 0 {
		t.Fatal("it is not hushed, or commits do not wait")
	}
	waitfor.True(t, "it is open", one.gate.Open)
	waitfor.True(t, "commits go on", func() bool { return one.quiet.Load() == 0 })
	p.mu.Unlock() // of the meeting that nobody ends
}

// TestAnswererHearsLies: words without a proof, or said once more, end a conversation.
func TestAnswererHearsLies(t *testing.T) {
	a := Answerer{Gate: new(Gate), Member: "one", Key: NewKey(cluster(t)), Quiet: func() func() { return func() {} }}
	if err := a.Serve(nil, nil, nil); err == nil {
		t.Error("there is no nonce")
	}
	for name, lie := range map[string]func(*line) error{
		"no proof":   func(l *line) error { _, err := l.nc.Write(make([]byte, 33)); return err },
		"said twice": func(l *line) error { l.said--; return l.say(ping) },
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			served := make(chan error)
			go func() {
				head := make([]byte, 8+nonceBytes)
				_, err := io.ReadFull(there, head)
				served <- errors.Join(err, a.Serve(there, head[8:], func() {}))
				_ = there.Close()
			}()
			key, err := a.Key.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l, err := call(here, key, "one", waitfor.Max)
			if err != nil {
				t.Fatal(err)
			}
			if err := lie(l); err != nil {
				t.Fatal(err)
			}
			if err := <-served; !errors.Is(err, errProof) {
				t.Error(err)
			}
		})
	}
}

// TestGateWithoutLease: what is answered without a lease, or with a new one, waits.
func TestGateWithoutLease(t *testing.T) {
	var g Gate
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	g.Under(lease)
	waits := func(want bool) {
		t.Helper()
		began := time.Now()
		open := g.Open()
		if g.Pass(); open == want || want != (time.Since(began) > Margin/2) {
			t.Errorf("open is %v, and it waited for %v", open, time.Since(began))
		}
	}
	waits(true) // it has just joined
	waits(false)
	lease.End()
	waits(true)
	waits(true)
	lease.Extend(time.Now(), time.Hour)
	waits(false) // it was renewed
}

// counted counts how often its members are read.
type counted struct {
	shardmap.Directory
	reads atomic.Int32
}

func (d *counted) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	d.reads.Add(1)
	return d.Directory.Members(ctx)
}

// TestPeersShareAList: meetings shortly after each other read the members once. What a moment may take counts from there.
func TestPeersShareAList(t *testing.T) {
	dir := &counted{Directory: cluster(t)}
	one := joins(t, dir, "one")
	p := asker(t, dir, "self")
	first := meet(t, p).(*meeting).began
	p.mu.Unlock()
	p.listed = time.Now().Add(-listAge / 2)
	m := meet(t, p).(*meeting)
	if dir.reads.Load() != 1 || m.began != p.listed || m.began == first {
		t.Errorf("the members were read %d times", dir.reads.Load())
	}
	if !m.Hush() || one.gate.Open() || !m.Lift() {
		t.Error("it is no moment")
	}
	p.listed = time.Now().Add(-2 * listAge)
	if m = meet(t, p).(*meeting); dir.reads.Load() != 2 || !m.Hush() || !m.Lift() {
		t.Error("an old list is used")
	}
	// A member that is gone: the list is read again at once.
	m = meet(t, p).(*meeting)
	if err := one.leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = p.lines["one"].nc.Close()
	if m.Hush() || m.Lift() || !p.listed.IsZero() {
		t.Error("a moment without a member counts")
	}
	if m = meet(t, p).(*meeting); !m.Hush() || !m.Lift() {
		t.Error("it does not go on")
	}
}

// TestPeersRememberAFailure: what could not be reached in time is not waited for by the next one as well.
func TestPeersRememberAFailure(t *testing.T) {
	dir := &counted{Directory: cluster(t)}
	if _, _, err := dir.Join(t.Context(), shardmap.Member{ID: "nowhere", Role: "router", Address: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	p := asker(t, dir, "self")
	gone, stop := context.WithCancel(t.Context())
	stop()
	_, err := p.Meet(gone)
	if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Fatal(err)
	}
	reads := dir.reads.Load()
	if _, again := p.Meet(t.Context()); again != err || dir.reads.Load() != reads {
		t.Errorf("%v, after %d reads", again, dir.reads.Load()-reads)
	}
	p.forget = time.Now()
	if _, err := p.Meet(gone); err == nil || dir.reads.Load() == reads {
		t.Error("it is remembered for ever")
	}
}

// TestKeyOfADirectoryThatWasPutBack: members that have the key of before find the one of now.
func TestKeyOfADirectoryThatWasPutBack(t *testing.T) {
	for name, stale := range map[string]func(asks *Peers, asked *member) *Key{
		"the one that asks":     func(p *Peers, _ *member) *Key { return p.key },
		"the one that is asked": func(_ *Peers, m *member) *Key { return m.Key },
	} {
		t.Run(name, func(t *testing.T) {
			dir := cluster(t)
			one, p := joins(t, dir, "one"), asker(t, dir, "self")
			k := stale(p, one)
			k.mu.Lock()
			k.key, k.read = []byte("of before"), time.Now()
			k.mu.Unlock()
			if m := meet(t, p); !m.Hush() || !m.Lift() {
				t.Error("it is no moment")
			}
		})
	}
}

// TestAnswererIsEvicted: a deadline that was set before it was proved who asks stands.
func TestAnswererIsEvicted(t *testing.T) {
	a := Answerer{Gate: new(Gate), Member: "one", Key: NewKey(cluster(t)), Quiet: func() func() { return func() {} }}
	here, there := net.Pipe()
	if err := there.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = a.Serve(there, make([]byte, nonceBytes), func() {}) // its end is what is looked for
		_ = there.Close()
	}()
	if b, err := io.ReadAll(here); len(b) > 0 || err != nil {
		t.Errorf("it says %d bytes, %v", len(b), err)
	}
}
