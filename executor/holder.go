package executor

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Holder is who borrows connections from the pools: a session. It has what it borrowed and did not give back, so that nothing can
// be lost: what its owner does not know of any more is taken back (docs/design/gateway.md, "Connections come back clean"). Its zero value holds nothing.
type Holder struct {
	mu    sync.Mutex
	conns []*Conn
	held  atomic.Int32 // len(conns)
}

// Owner knows what it holds.
type Owner interface {
	// Knows reports whether it has a use for a connection that it holds.
	Knows(c *Conn) bool
}

// HeldBy says who has borrowed the Conn, until it is given back. A Conn that is not pooled has no holder.
func (c *Conn) HeldBy(h *Holder) {
	if c.pool == nil || c.holder == h {
		return
	}
	c.leaves()
	c.holder = h
	h.mu.Lock()
	h.conns = append(h.conns, c)
	h.held.Store(int32(len(h.conns)))
	h.mu.Unlock()
}

// leaves ends HeldBy.
func (c *Conn) leaves() {
	h := c.holder
	if h == nil {
		return
	}
	c.holder = nil
	h.mu.Lock()
	if i := slices.Index(h.conns, c); i >= 0 {
		h.conns = slices.Delete(h.conns, i, i+1)
	}
	h.held.Store(int32(len(h.conns)))
	h.mu.Unlock()
}

// Conns returns the connections that are held.
func (h *Holder) Conns() []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.conns)
}

// Lost returns those which their owner does not know of any more.
func (h *Holder) Lost(o Owner) (lost []*Conn) {
	if h.held.Load() == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		if !o.Knows(c) {
			lost = append(lost, c)
		}
	}
	return lost
}

// Reclaim takes back a connection that its holder has lost. It is closed, for nobody knows what is open on it; a Release that comes
// after all does nothing.
func (c *Conn) Reclaim() {
	if c.pool == nil || c.reclaimed.Swap(true) {
		return
	}
	c.leaves()
	c.pinned, c.broken = false, true
	_ = c.Conn.Close() // it is given up
	c.pool.reclaimed.Add(1)
	c.pool.metrics.Reclaimed()
	c.pool.discard(c)
}
