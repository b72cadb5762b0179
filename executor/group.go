package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// group is a shard with several servers. Its endpoints are asked in the
// background who they are; from the answers it elects the primary, whose pool
// stands in Executor.pools under the shard's name. See docs/design/replicas.md.
//
// Locks: Executor.mu before group.mu before pool.mu.
type group struct {
	ex      *Executor
	name    string
	cluster string
	metrics *telemetry.Shard
	none    *pool // stands for "no primary": closed
	// list is what endpoints holds, for those without the lock.
	list atomic.Pointer[[]*endpoint]
	// view is what reads choose from.
	view atomic.Pointer[view]
	turn atomic.Uint64
	// grown is written to when the timeline may have grown; stop ends remember.
	grown chan struct{}
	stop  context.CancelFunc

	mu        sync.Mutex
	system    string
	endpoints []*endpoint // in the map's order
	primary   *endpoint   // nil: none
	last      *endpoint   // the last one that there was
	// timeline is the highest that a primary was seen on. It never goes down.
	timeline uint32
	why      string // there is no primary
	settled  bool   // every endpoint was asked once, and the directory
	recalled bool   // the directory was asked for the timeline
	closed   bool
	moved    chan struct{} // closed when primary or settled change
	// lostAt is when the primary was first missed, zero while it answers.
	lostAt  time.Time
	waiting int // statements that wait for a primary
	samples []sample
	// floor is what a replica must have replayed to be read under the current map;
	// known is false until the primary was asked after that was installed.
	floor      engine.LSN
	floorKnown bool
	floorSince time.Time
}

// current returns the pool that stands under the shard's name.
func (g *group) current() *pool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.primary != nil {
		return g.primary.writes
	}
	return g.none
}

// installGroup makes the shard's group fit the map and returns the pool that
// stands under its name; e.mu is held.
func (e *Executor) installGroup(snap *shardmap.Snapshot, s *shardmap.Shard, d engine.Driver) *pool {
	if e.groups == nil {
		e.groups = map[string]*group{}
	}
	g := e.groups[s.Name]
	if g == nil {
		g = &group{ex: e, name: s.Name, cluster: snap.State().Cluster, metrics: e.metrics.Shard(s.Name), moved: make(chan struct{}), system: s.System}
		g.none = &pool{ex: e, name: s.Name, group: g, closed: true, metrics: g.metrics}
		g.list.Store(&[]*endpoint{})
		g.view.Store(&view{})
		e.groups[s.Name] = g
		g.grown = make(chan struct{}, 1)
		var life context.Context
		life, g.stop = context.WithCancel(e.life)
		defer e.wg.Go(func() { g.remember(life) }) // when it knows its servers
	}
	g.update(s, d)
	return g.current()
}

// dropGroups ends those whose shard is gone or has one server again; e.mu is held.
func (e *Executor) dropGroups(snap *shardmap.Snapshot) {
	for name, g := range e.groups {
		if s, ok := snap.Shard(name); ok && len(s.Replicas) > 0 {
			continue
		}
		delete(e.groups, name)
		if err := g.close(); err != nil {
			e.log.Warn("a shard was not closed cleanly", telemetry.KeyShard, name, telemetry.KeyError, err)
		}
	}
}

func (e *Executor) tendGroups(now time.Time) {
	e.mu.Lock()
	groups := make([]*group, 0, len(e.groups))
	for _, g := range e.groups {
		groups = append(groups, g)
	}
	e.mu.Unlock()
	for _, g := range groups {
		for _, p := range g.readPools() {
			p.tend(now)
		}
	}
}

// readPools returns the pools of the replicas that are in use.
func (g *group) readPools() []*pool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var pools []*pool
	for _, ep := range g.endpoints {
		if ep.reads != nil {
			pools = append(pools, ep.reads)
		}
	}
	return pools
}

// update brings the endpoints to what the map says. Those that stay keep their
// connections and what is known of them. A replica is not read before it has what
// the primary had when this map came: see the field floor.
func (g *group) update(s *shardmap.Shard, d engine.Driver) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.endpoints
	if g.system != s.System {
		// Other servers under the same name: nothing that was known holds.
		g.system, g.timeline, g.recalled, old = s.System, 0, false, nil
		select {
		case g.grown <- struct{}{}:
		default:
		}
		g.drop(g.endpoints)
		g.primary, g.settled, g.samples = nil, false, nil
	}
	var next []*endpoint
	for _, url := range s.Endpoints() {
		key := s.Engine + " " + url
		if i := slices.IndexFunc(old, func(ep *endpoint) bool { return ep.key == key }); i >= 0 {
			next = append(next, old[i])
			old = slices.Delete(slices.Clone(old), i, i+1)
			continue
		}
		limits := &g.ex.limits
		sh, err := d.Open(engine.Config{Cluster: g.cluster, Name: g.name, URL: url, ConnectTimeout: limits.ConnectTimeout, MessageMax: limits.MessageMax, Lanes: g.ex.lanes})
		if err != nil {
			g.ex.log.Error("a server of a shard cannot be used", telemetry.KeyShard, g.name, telemetry.KeyError, err)
			continue
		}
		ep := &endpoint{group: g, key: key, url: url, shard: sh, kick: make(chan struct{}, 1)}
		var life context.Context
		life, ep.stop = context.WithCancel(g.ex.life)
		g.ex.wg.Go(func() { ep.watch(life) })
		next = append(next, ep)
	}
	g.endpoints = next
	g.drop(old)
	if g.primary != nil && !slices.Contains(next, g.primary) {
		g.primary = nil
	}
	list := slices.Clone(next)
	g.list.Store(&list)
	g.floorKnown, g.floorSince = false, time.Now()
	g.elect()
	g.look()
}

// drop closes endpoints that left the map; g.mu is held.
func (g *group) drop(gone []*endpoint) {
	for _, ep := range gone {
		ep.stop()
		for _, p := range []*pool{ep.writes, ep.reads} {
			if p != nil {
				p.close()
			}
		}
		ep.writes, ep.reads = nil, nil
		if err := ep.shard.Close(); err != nil {
			g.ex.log.Warn("a server of a shard was not closed cleanly", telemetry.KeyShard, g.name, telemetry.KeyError, err)
		}
	}
}

func (g *group) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.stop()
	g.drop(g.endpoints)
	g.endpoints, g.primary = nil, nil
	g.list.Store(&[]*endpoint{})
	g.view.Store(&view{})
	g.tell()
	return nil
}

// look has every server asked now.
func (g *group) look() {
	for _, ep := range *g.list.Load() {
		select {
		case ep.kick <- struct{}{}:
		default: // it is about to be
		}
	}
}

// tell wakes those who wait for a primary; g.mu is held.
func (g *group) tell() {
	close(g.moved)
	g.moved = make(chan struct{})
}

// report takes what an endpoint said, or why it did not: the probe began at
// began and took took.
func (g *group) report(ep *endpoint, began time.Time, took time.Duration, st engine.Standing, err error) {
	g.mu.Lock()
	if g.closed || !slices.Contains(g.endpoints, ep) {
		g.mu.Unlock()
		return
	}
	if err == nil && st.System != g.system {
		err = sqlstate.New(sqlstate.ObjectNotInState, "a stranger: its system identifier is %s, that of shard %s is %s", st.System, g.name, g.system).OnShard(g.name).
			WithHint("correct the URL, or take it out: cleave shard replica remove %s URL", g.name)
	}
	ep.asked, ep.seen, ep.err = true, time.Now(), err
	if err == nil {
		ep.measured(st, took)
	} else {
		ep.doubt()
	}
	was, wasSettled := g.primary, g.settled
	g.elect()
	if err == nil && ep == g.primary {
		g.lostAt = time.Time{}
		g.sample(began, st.At)
		if !g.floorKnown && began.After(g.floorSince) {
			g.floor, g.floorKnown = st.At, true
		}
	}
	if err != nil && ep == g.primary && g.lostAt.IsZero() {
		g.lostAt = time.Now()
	}
	g.show()
	g.after(was, wasSettled)
}

// measured takes what an endpoint said, and how long that took.
func (ep *endpoint) measured(st engine.Standing, took time.Duration) {
	ep.standing = st
	if ep.latency == 0 {
		ep.latency = took
	}
	ep.latency += (took - ep.latency) / 4
	if st.Local {
		ep.latency = 0
	}
}

// doubt has what idles there looked at before it is used.
func (ep *endpoint) doubt() {
	for _, p := range []*pool{ep.writes, ep.reads} {
		if p != nil {
			p.mu.Lock()
			p.doubt = ep.seen
			p.mu.Unlock()
		}
	}
}

// publish makes the group's pool the shard's.
func (e *Executor) publish(g *group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.groups[g.name] != g {
		return
	}
	old := *e.pools.Load()
	next := make(map[string]*pool, len(old))
	for name, p := range old {
		next[name] = p
	}
	next[g.name] = g.current()
	e.pools.Store(&next)
}

// elect chooses the primary among the servers that say they are one; g.mu is held.
//
//   - Nobody is chosen before all servers and the directory were asked once: else
//     a router that starts could write to an old primary that came back.
//   - A lower timeline than the highest seen is an old primary's: never chosen.
//   - Two on the same timeline cannot be told apart: neither is chosen. That holds
//     also if one of them was the primary and does not answer now: who follows it
//     is promoted to a higher timeline, so the other one lacks its writes.
//   - A primary that does not answer stays: it may come back, and nobody else is
//     one. One that answers that it is a replica does not.
func (g *group) elect() {
	if !g.settled {
		if !g.recalled {
			return
		}
		for _, ep := range g.endpoints {
			if !ep.asked {
				return
			}
		}
		g.settled = true
	}
	var best []*endpoint
	top, old := g.timeline, []string(nil)
	for _, ep := range g.endpoints {
		if ep.err != nil || !ep.asked || ep.standing.Role != engine.Primary {
			continue
		}
		switch t := ep.standing.Timeline; {
		case t > top:
			best, top = []*endpoint{ep}, t
		case t == top:
			best = append(best, ep)
		}
	}
	for _, ep := range g.endpoints {
		ep.behind = ep.err == nil && ep.asked && ep.standing.Role == engine.Primary && ep.standing.Timeline < top
		if ep.behind {
			old = append(old, fmt.Sprintf("%s says it is the primary, but of timeline %d", ep.place(), ep.standing.Timeline))
		}
	}
	g.timeline = top
	switch last := g.last; {
	case len(best) == 1 && last != nil && last != best[0] && last.err != nil && last.standing.Role == engine.Primary &&
		last.standing.Timeline == top && slices.Contains(g.endpoints, last):
		g.take(nil, fmt.Sprintf("%s says it is the primary, of timeline %d, but %s was that and does not answer now: what was written there is not on it (if it is lost, take it out of the map)",
			best[0].place(), top, last.place()))
	case len(best) == 1:
		g.take(best[0], "")
	case len(best) > 1:
		places := make([]string, len(best))
		for i, ep := range best {
			places[i] = ep.place()
		}
		g.take(nil, fmt.Sprintf("%s all say they are the primary, of timeline %d, and it cannot be told whose writes are right", strings.Join(places, " and "), top))
	case g.primary != nil && g.primary.err != nil:
		// It does not answer: its pool says so, and finds it when it is back.
	case len(old) > 0:
		g.take(nil, fmt.Sprintf("%s, and timeline %d was seen", strings.Join(old, "; "), top))
	default:
		g.take(nil, "none of its servers that answer is the primary")
	}
	for _, ep := range g.endpoints {
		fit := ep.err == nil && ep.asked && ep.standing.Role == engine.Replica
		if ep.reads != nil && !fit && ep.err == nil {
			ep.reads.close() // it was promoted
			ep.reads = nil
		}
		if ep.reads == nil && fit {
			ep.reads = g.pool(ep, engine.Replica)
		}
	}
}

// take makes ep the primary, nil for none with the reason; g.mu is held.
func (g *group) take(ep *endpoint, why string) {
	g.why = why
	if ep == g.primary {
		return
	}
	if old := g.primary; old != nil {
		old.writes.abandon()
		old.writes = nil
	}
	g.primary, g.samples = ep, nil
	if ep != nil {
		if g.last != nil && g.last != ep {
			g.ex.metrics.Failover(g.name)
		}
		g.last = ep
	}
	if ep == nil {
		if g.lostAt.IsZero() {
			g.lostAt = time.Now()
		}
		return
	}
	g.lostAt = time.Time{}
	ep.writes = g.pool(ep, engine.Primary)
}

// abandon closes the pool and ends the conversations that are in use: their
// server is not the primary any more, and may never answer. What they commit
// there would be lost.
func (p *pool) abandon() {
	p.close()
	p.mu.Lock()
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		if s, ok := c.Conn.(engine.Severer); ok {
			s.Sever() // their sessions see the loss
		}
	}
}

func (g *group) pool(ep *endpoint, role engine.Role) *pool {
	return &pool{ex: g.ex, name: g.name, key: ep.key, shard: ep.shard, metrics: g.metrics, group: g, endpoint: ep, role: role}
}

// noPrimary is the error of a statement that needs the primary.
func (g *group) noPrimary() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	why := g.why
	switch {
	case g.closed:
		why = "it was removed from the map"
	case !g.settled:
		why = "its servers have not all been asked yet"
	case why == "":
		why = "it has just changed"
	}
	e := sqlstate.New(sqlstate.CannotConnectNow, "shard %s has no primary: %s", g.name, why).OnShard(g.name)
	e.Retry = sqlstate.RetrySafe
	return e.WithHint("nothing was done: run it again when a server was promoted; SELECT * FROM cleave.endpoints shows the servers")
}

// settleMax bounds the wait for the first word of all servers.
const settleMax = probeMax + 2*time.Second

// acquire borrows a connection to the primary. While there is none, or it does
// not answer, the statement waits for it until FailoverWait after the loss.
func (g *group) acquire(ctx context.Context, s *Settings) (*Conn, error) {
	var waited bool
	began := time.Now()
	for {
		g.mu.Lock()
		moved, settled, closed := g.moved, g.settled, g.closed
		p := g.writes()
		g.mu.Unlock()
		if closed {
			return nil, g.noPrimary()
		}
		failed := g.noPrimary()
		if settled {
			var c *Conn
			if c, failed = g.ex.acquireFrom(ctx, p, s); failed == nil {
				return c, nil
			}
			if sqlstate.CodeOf(failed) != sqlstate.CannotConnectNow || ctx.Err() != nil {
				return nil, failed
			}
		}
		g.look()
		until := began.Add(settleMax)
		g.mu.Lock()
		if settled {
			if g.lostAt.IsZero() {
				g.lostAt = time.Now()
			}
			until = g.lostAt.Add(g.ex.limits.FailoverWait)
		}
		full := !waited && g.waiting >= g.ex.limits.WaitersMax
		if !waited && !full {
			g.waiting++
			waited = true
			defer g.leave()
		}
		g.mu.Unlock()
		left := time.Until(until)
		if full || left <= 0 {
			return nil, failed
		}
		if err := awaitMoved(ctx, moved, min(left, g.ex.limits.BackoffMin), failed); err != nil {
			return nil, err
		}
	}
}

// writes is the pool that writes go to; g.mu is held.
func (g *group) writes() *pool {
	if g.primary == nil {
		return g.none
	}
	return g.primary.writes
}

// awaitMoved waits until the primary is another one, or for a while. It fails with what failed if ctx ends in time.
func awaitMoved(ctx context.Context, moved <-chan struct{}, d time.Duration, failed error) error {
	again := time.NewTimer(d)
	defer again.Stop()
	select {
	case <-moved:
	case <-again.C:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return failed
	}
	return nil
}

func (g *group) leave() {
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
}
