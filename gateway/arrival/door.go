package arrival

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// The door: connections before their session. What a client has not proved yet costs the router a connection and a
// goroutine, so both are bounded, and no address can have all of it.
//
//	connection ---- room ----------------------------------> opening -- session begins --> (Leave)
//	connection ---- no room, somebody long silent ----------> opening; that one is ended
//	connection ---- no room --------------------------------> hears 53300, shortly
//	opening ------- wrong password -------------------------> waits, hears 28P01
//	opening ------- too many such wait at its address ------> waits for its turn, or hears 53300

const (
	// openingSpare is the room for openings beyond SessionsMax.
	openingSpare = 100
	// turnedAwayMax bounds the connections that are being told that there is no room; more are closed unheard.
	turnedAwayMax = 256
	// turnedAwayTime is what such a one may take.
	turnedAwayTime = 2 * time.Second
	// silentGrace is the time in which nobody is called silent.
	silentGrace = time.Second

	// failureDelay is how long the answer to a wrong password waits, the first time; it doubles with every
	// failureStep more of an address, up to failureDelayMax.
	failureDelay    = 500 * time.Millisecond
	failureDelayMax = 4 * time.Second
	failureStep     = 8
	// failuresAtOnce bounds the logins that are under way, or whose refusal waits, at an address with failureStep failures:
	// no more passwords are tried in one delay.
	failuresAtOnce = 16
	// failuresKnown bounds the addresses that are remembered, each for failureMemory after its last failure.
	failuresKnown = 10_000
	failureMemory = time.Minute
)

// newcomer is a connection before its session.
type newcomer struct {
	from  netip.Addr
	since time.Time
	spoke bool // it has sent a whole startup packet
	full  bool // it is only told that there is no room
}

// failures are those of the logins from one address.
type failures struct {
	count int
	last  time.Time
	turns chan struct{} // of logins, once there are many failures
}

// door keeps count.
type door struct {
	mu         sync.Mutex
	opening    map[net.Conn]*newcomer
	by         map[netip.Addr]int // openings of each address
	turnedAway int
	warned     time.Time

	logins sync.Mutex
	failed map[netip.Addr]*failures
}

func newDoor() *door {
	return &door{opening: map[net.Conn]*newcomer{}, by: map[netip.Addr]int{}, failed: map[netip.Addr]*failures{}}
}

// origin is the address that a connection is counted under: an IPv6 network of one customer is one address.
func origin(nc net.Conn) netip.Addr {
	t, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := t.AddrPort().Addr().Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// enter notes a new connection; false if it is to be closed at once. evict is one that has to go for it. d.mu is held.
func (d *door) enter(nc net.Conn, roomFor int, now time.Time) (ok bool, evict net.Conn) {
	n := &newcomer{from: origin(nc), since: now}
	if len(d.opening)-d.turnedAway >= roomFor {
		if evict = d.victim(n.from, roomFor, now); evict != nil {
			d.leave(evict)
		} else {
			if d.turnedAway >= turnedAwayMax {
				return false, nil
			}
			n.full = true
			d.turnedAway++
		}
	}
	d.opening[nc] = n
	d.by[n.from]++
	return true, evict
}

// leave forgets a connection. d.mu is held.
func (d *door) leave(nc net.Conn) {
	n, ok := d.opening[nc]
	if !ok {
		return
	}
	delete(d.opening, nc)
	if n.full {
		d.turnedAway--
	}
	if d.by[n.from]--; d.by[n.from] == 0 {
		delete(d.by, n.from)
	}
}

// victim is the connection that has been silent for longest among those of the address that has most; nil if there is none that
// may be called silent. An address that has more than half of the room also loses those that have begun to speak, to others.
func (d *door) victim(asks netip.Addr, roomFor int, now time.Time) (oldest net.Conn) {
	var most netip.Addr
	for a, n := range d.by {
		if n > d.by[most] {
			most = a
		}
	}
	var found *newcomer
	for nc, n := range d.opening {
		if n.from != most || n.full || now.Sub(n.since) < silentGrace {
			continue
		}
		if n.spoke && (asks == most || d.by[most] <= roomFor/2) {
			continue
		}
		if found == nil || found.spoke && !n.spoke || found.spoke == n.spoke && n.since.Before(found.since) {
			oldest, found = nc, n
		}
	}
	return oldest
}

// Admit notes a new connection; false if it is to be closed at once. Those over the limit are let in far enough to be told so,
// but only so many.
func (e *Entrance) Admit(nc net.Conn) bool {
	d, now := e.door, time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	ok, evict := d.enter(nc, openingSpare+e.o.SessionsMax, now)
	if evict != nil {
		_ = evict.SetDeadline(now) // its goroutine closes it
		e.o.Metrics.SessionRefused()
	}
	if (!ok || evict != nil) && now.Sub(d.warned) > 10*time.Second {
		d.warned = now
		e.o.Log.Warn("so many connections begin no session that some are ended or refused", "opening", len(d.opening), "of_this_address", d.by[origin(nc)], telemetry.KeyClient, nc.RemoteAddr())
	}
	if !ok {
		e.o.Metrics.SessionRefused()
	}
	return ok
}

// Leave forgets a connection: its session begins, or it is over.
func (e *Entrance) Leave(nc net.Conn) {
	e.door.mu.Lock()
	defer e.door.mu.Unlock()
	e.door.leave(nc)
}

// Opening is the number of connections before their session.
func (e *Entrance) Opening() int {
	e.door.mu.Lock()
	defer e.door.mu.Unlock()
	return len(e.door.opening)
}

// Close leaves no more time to those that have begun no session.
func (e *Entrance) Close() {
	e.door.mu.Lock()
	defer e.door.mu.Unlock()
	for nc := range e.door.opening {
		_ = nc.SetDeadline(time.Now())
	}
}

// full reports whether a new connection is only to be told that there is no room.
func (d *door) full(nc net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.opening[nc]
	return n != nil && n.full
}

// spoke notes that a connection has sent its startup packet.
func (d *door) spoke(nc net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.opening[nc]; n != nil {
		n.spoke = true
	}
}

func noRoom() *sqlstate.Error {
	return sqlstate.New(sqlstate.TooManyConnections, "sorry, too many clients already").
		WithHint("too many connections to the router begin no session; try again in a moment")
}

// try waits for the turn of a login, at an address with many failures. done ends it: behind the answer, so that what
// waits there keeps the others out.
func (e *Entrance) try(from netip.Addr) (done func(), refusal *sqlstate.Error) {
	turns := e.door.turns(from, time.Now())
	if turns == nil {
		return func() {}, nil
	}
	t := time.NewTimer(turnedAwayTime)
	defer t.Stop()
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-t.C:
	case <-e.o.Stop:
	}
	return nil, sqlstate.New(sqlstate.TooManyConnections, "too many failed logins from this address").WithHint("try again in a few seconds")
}

// turns is what logins of an address wait for; nil where few have failed.
func (d *door) turns(from netip.Addr, now time.Time) chan struct{} {
	d.logins.Lock()
	defer d.logins.Unlock()
	if f := d.failed[from]; f != nil && f.count >= failureStep && now.Sub(f.last) <= failureMemory {
		return f.turns
	}
	return nil
}

// fail counts a failed login and returns how long its answer has to wait.
func (d *door) fail(from netip.Addr, now time.Time) time.Duration {
	d.logins.Lock()
	defer d.logins.Unlock()
	f := d.failed[from]
	if f == nil {
		d.forget(now)
		f = &failures{turns: make(chan struct{}, failuresAtOnce)}
		d.failed[from] = f
	}
	if now.Sub(f.last) > failureMemory {
		f.count = 0
	}
	delay := failureDelayMax
	if n := f.count / failureStep; n < 8 {
		delay = min(failureDelay<<n, failureDelayMax)
	}
	f.count, f.last = f.count+1, now
	return delay
}

// forget makes room for one more address: what is long ago, else whatever comes first. d.logins is held.
func (d *door) forget(now time.Time) {
	if len(d.failed) < failuresKnown {
		return
	}
	for a, f := range d.failed {
		if now.Sub(f.last) > failureMemory {
			delete(d.failed, a)
		}
	}
	for a := range d.failed {
		if len(d.failed) < failuresKnown {
			return
		}
		delete(d.failed, a)
	}
}

// hesitate waits before the answer to a failed login, so that passwords cannot be tried fast. Logins of others go on.
func (e *Entrance) hesitate(nc net.Conn, from netip.Addr) {
	delay := e.door.fail(from, time.Now())
	e.o.Metrics.LoginFailed()
	if nc.SetDeadline(time.Now().Add(delay+failureDelayMax)) != nil {
		return
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.o.Stop:
	}
}

// startingMax bounds the clients that are told at the same time that there is nothing to connect to yet.
const startingMax = 64

// Refuse tells every client why there is no session yet, until ctx ends, and returns when all have been told. The listener stays
// open, for the server that comes.
func Refuse(ctx context.Context, l net.Listener, why *sqlstate.Error) { Attend(ctx, l, why, nil) }

// AcceptUntil has Accept of a listener end when ctx does. After done no deadline is left: the listener is the next server's.
func AcceptUntil(ctx context.Context, l interface{ SetDeadline(time.Time) error }) (done func()) {
	_ = l.SetDeadline(time.Time{}) // it may have been somebody else's
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(set)
		_ = l.SetDeadline(time.Now())
	})
	return func() {
		if !stop() {
			<-set // one that is on its way would come after the next line
		}
		_ = l.SetDeadline(time.Time{})
	}
}

// Attend is Refuse, and peer answers other routers meanwhile; nil: nobody does.
func Attend(ctx context.Context, l net.Listener, why *sqlstate.Error, peer Peer) {
	const allowed = 2 * time.Second
	t, ok := l.(*net.TCPListener)
	if !ok {
		<-ctx.Done()
		return
	}
	var told sync.WaitGroup
	defer told.Wait()
	defer AcceptUntil(ctx, t)()
	e := *why
	e.Severity = "FATAL"
	answer := wire.AppendError(nil, &e)
	slots := make(chan struct{}, startingMax)
	for ctx.Err() == nil {
		nc, err := l.Accept()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond): // out of descriptors, say
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = nc.Close()
			continue
		}
		told.Go(func() {
			known := sync.OnceFunc(func() { <-slots })
			defer known()
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(allowed))
			for {
				code, body, err := readStartup(nc)
				if err != nil || code == codeCancel {
					return
				}
				if code == codePeer && peer != nil {
					defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // peer sees it
					_ = peer(nc, body, known)                                 // it asks no more
					return
				}
				if code != codeSSL && code != codeGSS {
					break
				}
				if _, err := nc.Write([]byte{'N'}); err != nil {
					return
				}
			}
			_, _ = nc.Write(answer) // the client may be gone
		})
	}
}
