package executor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// ReadPolicy says which server of a shard answers reads.
type ReadPolicy uint8

// The policies.
const (
	// ReadPrimary reads where writes go.
	ReadPrimary ReadPolicy = iota
	// ReadReplica reads on a replica that is fit, else on the primary.
	ReadReplica
	// ReadNearest reads on the server that answers fastest, of the primary and the
	// replicas that are fit.
	ReadNearest
)

// AnyLag as the bound of a replica's lag is no bound.
const AnyLag time.Duration = -1

// sample says that everything committed before at is before lsn.
type sample struct {
	at  time.Time
	lsn engine.LSN
}

// samplesMax bounds the samples kept: how far back a replica's lag can be told.
const samplesMax = 600

// sample notes where the primary's log ended when it was asked; g.mu is held.
func (g *group) sample(at time.Time, lsn engine.LSN) {
	if n := len(g.samples); n > 0 && g.samples[n-1].lsn == lsn {
		g.samples[n-1].at = at
		return
	}
	if len(g.samples) >= samplesMax {
		g.samples = append(g.samples[:0], g.samples[samplesMax/2:]...)
	}
	g.samples = append(g.samples, sample{at, lsn})
}

// asOf returns a time such that everything committed before it is before lsn:
// zero if that is longer ago than can be told; g.mu is held.
func (g *group) asOf(lsn engine.LSN) time.Time {
	for i := len(g.samples) - 1; i >= 0; i-- {
		if g.samples[i].lsn <= lsn {
			return g.samples[i].at
		}
	}
	return time.Time{}
}

// view is what reads choose from; never changed.
type view struct {
	replicas []choice // fit, but for their lag
	primary  time.Duration
	known    bool // the primary answers
}

type choice struct {
	pool    *pool
	asOf    time.Time
	at      engine.LSN // it has replayed at least so far
	seen    time.Time  // when that was known
	latency time.Duration
}

// show makes the view anew; g.mu is held. A replica is fit if it answers, is
// known to be on the primary's timeline, and has what the primary had when the
// current map came.
func (g *group) show() {
	v := &view{}
	if g.primary != nil && g.primary.err == nil {
		v.known, v.primary = true, g.primary.latency
	}
	for _, ep := range g.endpoints {
		if ep.reads == nil || ep.err != nil || ep.standing.Timeline != g.timeline || !g.floorKnown || ep.standing.At < g.floor {
			continue
		}
		v.replicas = append(v.replicas, choice{pool: ep.reads, asOf: g.asOf(ep.standing.At), at: ep.standing.At, seen: ep.seen, latency: ep.latency})
	}
	g.view.Store(v)
}

// Writes is what a session has to see of its own writes: where each shard's log
// ended after its last one. The zero value is a session that wrote nothing. It is
// used by one goroutine.
type Writes struct {
	all    bool // after a schema change: every shard
	shards map[string]*written
}

type written struct {
	pending bool // it wrote since at was asked for
	at      engine.LSN
}

// Note says that the session is about to write on the conversation, or may be.
func (w *Writes) Note(c *Conn) {
	if c == nil || c.pool == nil || c.pool.group == nil || c.OnReplica() {
		return // a replica takes no writes
	}
	if m := w.shards[c.pool.name]; m != nil {
		m.pending = true
		return
	}
	if w.shards == nil {
		w.shards = map[string]*written{}
	}
	w.shards[c.pool.name] = &written{pending: true}
}

// NoteAll says that the session wrote on every shard.
func (w *Writes) NoteAll() {
	w.all = true
	for _, m := range w.shards {
		m.pending = true
	}
}

// of returns the shard's entry, nil if the session wrote nothing there.
func (w *Writes) of(shard string) *written {
	m := w.shards[shard]
	if m == nil && w.all {
		if w.shards == nil {
			w.shards = map[string]*written{}
		}
		m = &written{pending: true}
		w.shards[shard] = m
	}
	return m
}

const (
	// readTries is how many replicas are tried for one read.
	readTries = 3
	// readWait bounds the wait for a connection to a replica.
	readWait = time.Second
)

// Replicated reports whether the shard has several servers.
func (e *Executor) Replicated(shard string) bool {
	p := (*e.pools.Load())[shard]
	return p != nil && p.group != nil
}

// AcquireRead borrows a connection for reads of a session that has written w:
// to a replica that the policy and the bound on its lag (AnyLag: none) allow and
// that has replayed the session's writes. nil: there is none, or the primary is
// the one to ask; Acquire does.
func (e *Executor) AcquireRead(ctx context.Context, shard string, s *Settings, policy ReadPolicy, lagMax time.Duration, w *Writes) (*Conn, error) {
	p := (*e.pools.Load())[shard]
	if p == nil || p.group == nil || policy == ReadPrimary {
		return nil, nil
	}
	if err := e.Refusal(shard, false); err != nil {
		return nil, err
	}
	g := p.group
	v := g.view.Load()
	fit := v.within(lagMax)
	if len(fit) == 0 {
		return nil, nil
	}
	turn := int(g.turn.Add(1) % uint64(len(fit)))
	fit = append(fit[turn:len(fit):len(fit)], fit[:turn]...)
	if policy == ReadNearest {
		slices.SortStableFunc(fit, func(a, b choice) int { return cmp.Compare(a.latency, b.latency) })
	}
	need, ok := e.mustHave(ctx, p, s, w)
	if !ok {
		return nil, nil
	}
	for i, c := range fit {
		if i == readTries || policy == ReadNearest && v.known && v.primary <= c.latency {
			break
		}
		if conn := e.readFrom(ctx, c, s, need); conn != nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

// within are the replicas that are not further behind than a bound.
func (v *view) within(lagMax time.Duration) []choice {
	fit := make([]choice, 0, len(v.replicas))
	for _, c := range v.replicas {
		if lagMax == AnyLag || !c.asOf.IsZero() && time.Since(c.asOf) <= lagMax {
			fit = append(fit, c)
		}
	}
	return fit
}

// mustHave returns the place that a replica must have replayed for the session
// to see its own writes. It asks the primary, once after each write. ok is
// false if that cannot be told: only the primary will do.
func (e *Executor) mustHave(ctx context.Context, p *pool, s *Settings, w *Writes) (need engine.LSN, ok bool) {
	m := w.of(p.name)
	if m == nil {
		return 0, true
	}
	if !m.pending {
		return m.at, true
	}
	limit, stop := context.WithTimeout(ctx, readWait)
	defer stop()
	c, err := p.acquire(limit, s) // whatever its settings are
	if err != nil {
		return 0, false
	}
	defer c.Release()
	st, err := c.standing(ctx)
	if err != nil || st.Role != engine.Primary {
		return 0, false
	}
	m.at, m.pending = st.At, false
	return m.at, true
}

// standing is engine.Replicated's, in a pooled conversation.
func (c *Conn) standing(ctx context.Context) (engine.Standing, error) {
	limit, stop := context.WithTimeout(ctx, probeMax)
	defer stop()
	c.unnamed = nil
	st, err := standing(limit, c.Conn)
	if err != nil {
		c.broken = true
	}
	c.heard = c.heard || err == nil
	return st, err
}

// readFrom borrows a connection to a replica that has replayed need, nil if that
// cannot be had at once.
func (e *Executor) readFrom(ctx context.Context, r choice, s *Settings, need engine.LSN) *Conn {
	c := r.pool.try(s)
	if c == nil {
		limit, stop := context.WithTimeout(ctx, readWait)
		defer stop()
		var err error
		if c, err = e.acquireFrom(limit, r.pool, s); err != nil {
			return nil
		}
	}
	if c.born.After(r.seen) && c.bornAt < r.at {
		// It was restarted since the last probe. A replica that crashed comes back
		// with less than it showed before: what was known of it does not hold.
		c.Release()
		r.pool.look()
		return nil
	}
	if r.at >= need {
		return c
	}
	// The last probe did not see it so far: it may be by now.
	if st, err := c.standing(ctx); err == nil && st.Role == engine.Replica && st.At >= need {
		return c
	}
	c.Release()
	return nil
}

// OnReplica reports whether the conversation is with a replica.
func (c *Conn) OnReplica() bool { return c.pool != nil && c.pool.role == engine.Replica }

// Replicated reports whether the conversation's shard has several servers.
func (c *Conn) Replicated() bool { return c.pool != nil && c.pool.group != nil }

// Doubt has the servers of the conversation's shard asked who they are, if it
// has several: after an error that says that this is not the primary any more.
func (c *Conn) Doubt() {
	if c.pool != nil {
		c.pool.look()
	}
}

// Roleless reports whether an error is one by which a server says that it is
// not, or no longer, the one to write to.
func Roleless(code sqlstate.Code) bool {
	switch code {
	case sqlstate.ReadOnlyTransaction, sqlstate.AdminShutdown, "57P02", sqlstate.CannotConnectNow:
		return true
	}
	return false
}

// Endpoint is what is known of one server of a shard.
type Endpoint struct {
	Shard, URL string // the URL may hold a password
	// Role is what the server says of itself, "" if it has not said it or is not asked.
	Role engine.Role
	// Serves is the role in which statements go there, "" if none do.
	Serves   engine.Role
	Up       bool
	Err      error
	Timeline uint32
	// LagBytes is how far a replica's replay is behind the primary, as of their
	// last probes; Lag is for how long at most. Negative: not known.
	LagBytes int64
	Lag      time.Duration
	// Latency is that of the probes; 0 for a socket of this machine.
	Latency     time.Duration
	Local       bool
	Open, Idle  int
	SinceAsking time.Duration // since the last probe; 0 if there was none
}

// Endpoints returns what is known of each server of each shard, in the map's order.
func (e *Executor) Endpoints() []Endpoint {
	e.mu.Lock()
	groups := e.groups
	e.mu.Unlock()
	health := map[string]Health{}
	for _, h := range e.Health() {
		health[h.Shard] = h
	}
	var all []Endpoint
	for _, s := range e.Snapshot().Shards() {
		e.mu.Lock()
		g := groups[s.Name]
		e.mu.Unlock()
		if g == nil || len(s.Replicas) == 0 {
			h := health[s.Name]
			all = append(all, Endpoint{Shard: s.Name, URL: s.URL, Serves: engine.Primary, Up: h.Up, Err: h.Err, LagBytes: -1, Lag: -1, Open: h.Open, Idle: h.Idle})
			continue
		}
		all = append(all, g.describe()...)
	}
	return all
}

func (g *group) describe() []Endpoint {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []Endpoint
	now := time.Now()
	for _, ep := range g.endpoints {
		d := Endpoint{Shard: g.name, URL: ep.url, Role: ep.standing.Role, Up: ep.asked && ep.err == nil, Err: ep.err, Timeline: ep.standing.Timeline,
			LagBytes: -1, Lag: -1, Latency: ep.latency, Local: ep.standing.Local}
		if ep.asked {
			d.SinceAsking = now.Sub(ep.seen)
		}
		var p *pool
		switch {
		case ep == g.primary:
			d.Serves, p = engine.Primary, ep.writes
		case ep.behind:
			d.Err = sqlstate.New(sqlstate.ObjectNotInState, "an old primary: its timeline is %d, that of the shard is %d", ep.standing.Timeline, g.timeline).OnShard(g.name)
		case ep.reads != nil && ep.err == nil:
			d.Serves, p = engine.Replica, ep.reads
			if ep.standing.Timeline != g.timeline {
				d.Serves = ""
				d.Err = sqlstate.New(sqlstate.ObjectNotInState, "not known to follow the primary: its timeline is %d, that of the shard is %d", ep.standing.Timeline, g.timeline).OnShard(g.name)
			} else if n := len(g.samples); n > 0 {
				d.LagBytes = max(0, int64(g.samples[n-1].lsn-ep.standing.At))
				if at := g.asOf(ep.standing.At); !at.IsZero() {
					d.Lag = now.Sub(at)
				}
			}
		}
		if p != nil {
			h := p.health()
			d.Open, d.Idle = h.Open, h.Idle
		}
		all = append(all, d)
	}
	return all
}
