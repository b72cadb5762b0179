package executor

import (
	"errors"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
)

// This file is what the gateway's lane needs: everything here does what can be
// done at once and waits for nothing.

// Lane is the socket of the conversation, nil if no loop watches it.
func (c *Conn) Lane() *lane.Conn {
	if c.async == nil {
		return nil
	}
	return c.async.Lane()
}

// Lanes are the loops that watch the shards' sockets, nil if there are none.
func (e *Executor) Lanes() *lane.Group { return e.lanes }

// TryAcquireIn is TryAcquire of a connection whose socket the loop watches; nil
// also for a shard whose connections no loop can watch.
func (e *Executor) TryAcquireIn(l *lane.Loop, shard string, s *Settings) *Conn {
	p, ok := (*e.pools.Load())[shard]
	if !ok || e.Refusal(shard, false) != nil {
		return nil
	}
	c := p.try(s)
	if c == nil {
		return nil
	}
	socket := c.Lane()
	if socket == nil || socket.Loop() != l && socket.Move(l) != nil {
		p.put(c)
		return nil
	}
	return c
}

// Cached is Plan that only looks into the cache.
func (p *plans) Cached(text []byte, s *Settings, snap *shardmap.Snapshot) *plan.Statement {
	st := p.cache.part(text).get(text, s.searchPathKey(), snap.SchemaVersion())
	if st != nil {
		p.metrics.PlanCache(true)
	}
	return st
}

// CachedText is PlanText that only looks into the cache; routed as there.
func (p *plans) CachedText(sh *sqltext.Shaper, text []byte, s *Settings, snap *shardmap.Snapshot) (st *plan.Statement, r plan.Route, routed bool) {
	key, view, literals := shapeOf(sh, text)
	if key == nil {
		return nil, r, false
	}
	if st = p.cache.part(key).get(key, s.searchPathKey(), snap.SchemaVersion()); st == nil {
		return nil, r, false
	}
	r, ok, err := st.RouteText(snap, view, literals)
	if !ok || err != nil || r.Several {
		return nil, r, false
	}
	p.metrics.PlanCache(true)
	return st, r, true
}

// Start is the first half of Run for a caller that does not wait: it sends what can be
// sent. Poll takes the answers, or Resume, which waits and also sends the rest.
func (p *Pipeline) Start(end byte, now time.Time) (all bool, err error) {
	p.finish(end)
	p.so = Outcome{}
	p.sent, p.received, p.tag = now.UnixNano(), 0, p.tag[:0]
	p.Conn.asked.Store(p.sent)
	n, err := p.Conn.async.SendNow(p.out)
	p.statements = 0
	if err != nil {
		p.out = p.out[:0]
		p.Conn.broken = true
		return false, err
	}
	if n < len(p.out) {
		p.unsent = n
		return false, nil
	}
	p.out = p.out[:0]
	return true, nil
}

// Polled is how far Poll has come.
type Polled uint8

const (
	More  Polled = iota // there may be more: call it again
	Later               // no more is there yet
	Done                // all answers have been relayed
	Stuck               // the shard waits for the client's data, or shards have to be asked: only Resume goes on
)

// Poll relays answers that are there, with one read at most if they do not come
// in pieces. Until all have come it is called again, or Resume instead.
func (p *Pipeline) Poll(sink Sink) (Outcome, Polled, error) {
	if err := p.locals(sink); err != nil {
		p.Conn.broken = true
		return p.so, More, err
	}
	b, err := p.Conn.async.ReceiveNow()
	if err != nil {
		p.Conn.broken = true
		return p.so, More, p.because(err, p.so.Err)
	}
	if b == nil {
		return p.so, Later, nil
	}
	p.received += len(b)
	p.polling = true
	err = p.relay(b, sink, &p.so)
	p.polling = false
	if err != nil {
		p.Conn.broken = true
		return p.so, More, err
	}
	p.Conn.heard = true
	switch {
	case p.so.CopyIn, len(p.held) > 0:
		return p.so, Stuck, nil
	case p.head < len(p.queue):
		return p.so, More, nil
	}
	o := p.so
	p.so = Outcome{}
	p.answered()
	return o, Done, nil
}

// Trim gives up buffers that are not in use.
func (p *Pipeline) Trim() {
	if p.Conn == nil && p.head == len(p.queue) {
		*p = Pipeline{}
	}
}

// sentSome corrects the error of a Send that was not the message's first.
func sentSome(err error) error {
	var lost *engine.LostError
	if errors.As(err, &lost) {
		lost.Sent = true
	}
	return err
}
