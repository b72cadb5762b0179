// Package moment has what one moment of a whole cluster needs of a process: that it is hushed while the snapshots of all
// shards are taken. It withholds what it would tell its clients, and goes on working.
//
//	open ──Hush──▶ hushed ──Lift, or its bound──▶ open
//
// Gate is a process's answers, Moments are the hushes that its transactions share. docs/design/moment.md has the proof.
package moment

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/telemetry"
)

const (
	// Bound is how long a hush lasts at most: then the process lifts it by itself.
	Bound = 250 * time.Millisecond
	// silentMax is how long one hush after the other may silence a process before it takes part in no more.
	silentMax = 20 * time.Millisecond
	// Margin is how long an answer waits that is given without a lease, or with a new one: the process may not be among those
	// that are asked to be hushed. A moment takes less than half of it, else it does not count.
	Margin = 500 * time.Millisecond
)

// Gate is what a process's answers to its clients pass. It is shut while there is a hush. The zero Gate is open, and a nil
// one for ever. Methods are safe for concurrent use.
type Gate struct {
	shut atomic.Pointer[chan struct{}] // closed when the gate opens; nil: it is open

	mu      sync.Mutex
	hushes  int
	since   time.Time          // since when there was always a hush
	metrics *telemetry.Metrics // may be nil

	lease   *shardmap.Lease // nil: no other member counts on the process
	settled atomic.Uint64   // the number of the term of the lease that is older than Margin; from 1
	term    uint64          // the number of the term that was seen last; under mu
	began   time.Time       // when it was seen first
}

// Under says that other members count on the process while the lease is live. Call it before the first answer.
func (g *Gate) Under(lease *shardmap.Lease) {
	g.lease = lease
	g.margin()
}

// margin is how long what is known now has to wait.
func (g *Gate) margin() time.Duration {
	if g.lease == nil {
		return 0
	}
	term := g.lease.Term()
	switch {
	case !g.lease.Holds(term):
		return Margin
	case g.settled.Load() == term+1:
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != term+1 {
		g.term, g.began = term+1, time.Now()
	}
	left := Margin - time.Since(g.began)
	if left <= 0 {
		g.settled.Store(g.term)
	}
	return max(left, 0)
}

// Open reports whether answers pass at this moment. What they tell must be known before it is asked.
func (g *Gate) Open() bool { return g == nil || g.shut.Load() == nil && g.margin() == 0 }

// Pass waits until the gate has been open. What it lets pass must be known before: a later hush does not concern it, so hushes in a row
// do not keep it for ever.
func (g *Gate) Pass() {
	if g == nil {
		return
	}
	if c := g.shut.Load(); c != nil {
		<-*c
	}
	time.Sleep(g.margin())
}

// Hush shuts the gate until Lift, at most for bound. nil: the process was silent for too long already, ask again later.
func (g *Gate) Hush(bound time.Duration) *Hush {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.hushes == 0:
		g.since = time.Now()
		c := make(chan struct{})
		g.shut.Store(&c)
	case time.Since(g.since) > silentMax:
		return nil
	}
	g.hushes++
	h := &Hush{gate: g, until: time.Now().Add(bound)}
	h.timer = time.AfterFunc(bound, func() { h.Lift() })
	return h
}

// Hush keeps a Gate shut.
type Hush struct {
	gate   *Gate
	until  time.Time
	timer  *time.Timer
	lifted bool // under the gate's mu
}

// On reports whether the gate was shut by this hush from its beginning until now.
func (h *Hush) On() bool {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	return !h.lifted
}

// Lift ends the hush. whole: it was on until now.
func (h *Hush) Lift() (whole bool) {
	g := h.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	h.timer.Stop() // Hush has set it: it had the lock
	if h.lifted {
		return false
	}
	h.lifted = true
	if g.hushes--; g.hushes == 0 {
		c := g.shut.Swap(nil)
		close(*c)
		g.metrics.Silent(time.Since(g.since))
	}
	return true
}
