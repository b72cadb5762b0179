package shardmap

import (
	"sync/atomic"
	"time"
)

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
// Whoever reads on a shard checks Live after the shard has answered and before
// the answer is used: a process that was paused in between must not use it.
//
// The drivers' keep-alive moves the deadline; see NewLease.
type Lease struct {
	deadline atomic.Int64 // monotonic, nanoseconds since origin
	node     atomic.Uint32
	acked    atomic.Uint64
	ack      func(version uint64)
}

// origin makes monotonic clock readings small numbers.
var origin = time.Now()

// sinceOrigin is the monotonic clock. It stands still nowhere: on Linux it is
// CLOCK_MONOTONIC, which counts while a process is stopped (not while the whole
// machine sleeps; then the shards' guards and the directory's own clock decide).
func sinceOrigin() int64 { return int64(time.Since(origin)) }

// NewLease makes a lease that is not live. ack, which must not block, is told
// of each version that the process acknowledges.
func NewLease(ack func(version uint64)) *Lease { return &Lease{ack: ack} }

// Live reports whether the process may serve. On a nil Lease it is true: a
// process that needs none.
func (l *Lease) Live() bool { return l == nil || sinceOrigin() < l.deadline.Load() }

// Left returns how long the lease is still live, 0 if it is not.
func (l *Lease) Left() time.Duration {
	if l == nil {
		return 1<<63 - 1
	}
	return max(0, time.Duration(l.deadline.Load()-sinceOrigin()))
}

// Extend makes the lease live until the moment that is d after from, a reading
// of time.Now taken before the renewal was asked for; never earlier than it was.
func (l *Lease) Extend(from time.Time, d time.Duration) {
	until := int64(from.Sub(origin) + d)
	for {
		old := l.deadline.Load()
		if until <= old || l.deadline.CompareAndSwap(old, until) {
			return
		}
	}
}

// End makes the lease not live.
func (l *Lease) End() { l.deadline.Store(0) }

// SetNode sets the number that Node returns.
func (l *Lease) SetNode(n uint16) { l.node.Store(uint32(n)) }

// Node returns the member's number among the members of the cluster, 0 to 1023:
// no two live members have the same. It changes when the lease was lost and
// another member has taken the number.
func (l *Lease) Node() uint16 { return uint16(l.node.Load()) }

// Acknowledge says that the process serves by the map of this version and that
// nothing is under way by an older one.
func (l *Lease) Acknowledge(version uint64) {
	if l == nil {
		return
	}
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
func (l *Lease) Acknowledged() uint64 { return l.acked.Load() }
