package shardmap

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultLeaseTTL is for how long a directory keeps a lease that is not renewed,
// unless it was opened with another value.
const DefaultLeaseTTL = 5 * time.Second

// MinLeaseTTL is the shortest that a directory takes: below it the pauses of a
// busy machine would end leases.
const MinLeaseTTL = time.Second

// MaxNodes is how many members a cluster has at most: node numbers are 0 to
// MaxNodes-1.
const MaxNodes = 1024

// ErrLeaseLost is returned by a [Seat] whose lease the directory has given up.
var ErrLeaseLost = errors.New("shardmap: the directory has given the lease up")

// Member is what a process says of itself when it joins the cluster.
type Member struct {
	ID       string `json:"id"`       // uuid of the process's life; two never share one
	Role     string `json:"role"`     // "router", "client" or "coordinator"
	Address  string `json:"address"`  // where it takes clients, "" for a Go program
	Host     string `json:"host"`     // host name, for people
	Software string `json:"software"` // version of Cleave
}

// MemberState is a member as the directory knows it.
type MemberState struct {
	Member
	// Node is the node number that it holds, see [Lease.Node].
	Node uint16 `json:"node"`
	// Acknowledged is the newest map version that it serves by, and by no older one.
	Acknowledged uint64    `json:"acknowledged"`
	Joined       time.Time `json:"joined"`
	// Left is how long its lease has still to run, as the directory reckons; it
	// may serve for at most so long without renewing.
	Left time.Duration `json:"left"`
}

// Lease is a process's right to serve by the map it has. It is live until a
// moment on the process's own monotonic clock that lies, by a margin, before
// the moment at which the directory may give the lease up. A lease that ran out
// can become live again when the directory is reached: by a renewal, or by
// joining anew.
//
// A statement that reads on a shard notes Term before it takes the map to route by.
// It checks Holds after the shard has answered and before the answer is used: a
// process that was paused in between must not use it, even if its lease is live
// again. Where nothing was routed Live is enough.
//
// The zero Lease is not live. [Keep] moves the deadline.
type Lease struct {
	deadline atomic.Int64 // monotonic, nanoseconds since origin; 0: not live
	// offset is how far the wall clock was ahead of the monotonic one at the
	// last renewal, see Live.
	offset atomic.Int64
	term   atomic.Uint64
	node   atomic.Uint32
	acked  atomic.Uint64
	ack    func(version uint64)
	cause  atomic.Pointer[error]

	mu        sync.Mutex
	until     int64  // what was granted; deadline is 0 while the map is too old
	installed uint64 // the newest version that new statements are routed by
	need      uint64 // below it the process may not serve, once it has a map
}

// origin makes monotonic clock readings small numbers.
var origin = time.Now()

// stepMax is by how much the wall clock may get ahead of the monotonic one
// between two renewals. On Linux the monotonic clock counts while a process is
// stopped, but not while the machine sleeps; the wall clock is set right when it
// wakes. A step of it by an administrator costs service until the next renewal.
const stepMax = 100 * time.Millisecond

// clocks returns the monotonic clock and how far the wall clock is ahead of it.
// The time package reads the wall clock first, so that a pause between the two
// readings makes no step.
func clocks(t time.Time) (mono, offset int64) {
	mono = int64(t.Sub(origin))
	return mono, t.UnixNano() - mono
}

// NewLease makes a lease that is not live. ack, which must not block, is told
// of each version that the process acknowledges; it may be nil.
func NewLease(ack func(version uint64)) *Lease { return &Lease{ack: ack} }

// Live reports whether the process may serve. On a nil Lease it is true: a
// process that needs none.
func (l *Lease) Live() bool { return l == nil || l.left() > 0 }

func (l *Lease) left() time.Duration {
	deadline := l.deadline.Load()
	mono, offset := clocks(time.Now())
	if mono >= deadline || offset-l.offset.Load() > int64(stepMax) {
		return 0
	}
	return time.Duration(deadline - mono)
}

// Left returns how long the lease is still live, 0 if it is not.
func (l *Lease) Left() time.Duration {
	if l == nil {
		return 1<<63 - 1
	}
	return l.left()
}

// Term counts the times that the process has joined anew. 0 on a nil Lease.
func (l *Lease) Term() uint64 {
	if l == nil {
		return 0
	}
	return l.term.Load()
}

// Holds reports whether the lease is live, and was never given up by the
// directory since Term returned term: so that what was read on a shard by a map
// of that time may be used.
func (l *Lease) Holds(term uint64) bool {
	// The term is read last: it changes before the lease becomes live again.
	return l == nil || l.left() > 0 && l.term.Load() == term
}

// Extend makes the lease live until the moment that is d after from, a reading
// of time.Now taken before the renewal was asked for; never earlier than it was.
func (l *Lease) Extend(from time.Time, d time.Duration) {
	mono, offset := clocks(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = max(l.until, mono+int64(d))
	l.offset.Store(offset)
	l.settle()
}

// settle sets the deadline; mu is held.
func (l *Lease) settle() {
	if l.installed != 0 && l.installed < l.need {
		l.deadline.Store(0)
		return
	}
	l.deadline.Store(l.until)
}

// End makes the lease not live, for ever or until it is extended again.
func (l *Lease) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = 0
	l.settle()
}

// lose is End for a lease that the directory has given up. What was begun
// before will not be used, see Holds.
func (l *Lease) lose() {
	l.End()
	l.term.Add(1)
}

// require says that the process joined anew while the map was at this version.
// What happened while it was away did not wait for it, so it serves by no older one.
func (l *Lease) require(version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.need = version
	l.settle()
}

// Install says that the process routes new statements by the map of this
// version. A process that joined anew is live only from then on.
func (l *Lease) Install(version uint64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.installed = max(l.installed, version)
	l.settle()
}

// SetNode sets the number that Node returns.
func (l *Lease) SetNode(n uint16) { l.node.Store(uint32(n)) }

// Node returns the member's number among the members of the cluster, 0 to 1023:
// no two live members have the same. It changes when the lease was lost and
// another member has taken the number; use HeldNode where that matters.
func (l *Lease) Node() uint16 { return uint16(l.node.Load()) }

// HeldNode returns the node number, and whether it is this process's own at
// this moment: the lease was live with it.
func (l *Lease) HeldNode() (node uint16, held bool) {
	term := l.Term()
	node = l.Node()
	return node, l.Holds(term)
}

// Cause returns why the last attempt to renew the lease failed, nil if it did not.
func (l *Lease) Cause() error {
	if l == nil {
		return nil
	}
	if p := l.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// Acknowledge says that the process serves by the map of this version and that
// nothing is under way by an older one whose answer could still be used.
func (l *Lease) Acknowledge(version uint64) {
	if l == nil {
		return
	}
	l.Install(version)
	for {
		old := l.acked.Load()
		if version <= old {
			return
		}
		if l.acked.CompareAndSwap(old, version) {
			break
		}
	}
	if l.ack != nil {
		l.ack(version)
	}
}

// Acknowledged returns the newest version that was acknowledged.
func (l *Lease) Acknowledged() uint64 {
	if l == nil {
		return 0
	}
	return l.acked.Load()
}
