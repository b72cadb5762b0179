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
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

const (
	// probeAfter is how long a connection may idle before it is looked at again.
	probeAfter = 250 * time.Millisecond
	// searchDepth is how many idle connections are compared for equal settings.
	searchDepth = 8
)

// pool holds the connections to one shard.
type pool struct {
	ex      *Executor
	name    string
	key     string // engine and URL: a change makes a new pool
	shard   engine.Shard
	metrics *telemetry.Shard
	// group and endpoint are set where the shard has several servers; the group's
	// pool for "no primary" has no endpoint.
	group    *group
	endpoint *endpoint
	role     engine.Role // of the server while this pool is in use

	like atomic.Pointer[likeness] // nil: not known

	mu      sync.Mutex
	idle    []*Conn // last in, first out: the warm ones are used, the others age
	open    int     // dialled or being dialled
	waiters []*waiter
	closed  bool
	retired bool // its shard is closed with the last connection

	// down is why the last attempt to connect failed, nil if it did not. While
	// it is set, one attempt at a time is made, not before retryAt.
	down    error
	retryAt time.Time
	backoff time.Duration
	trying  bool
	// crowded: it has no connection left for us; those that we have still work.
	crowded bool
	// doubt: a connection broke. What has idled since before it is probed.
	doubt time.Time

	conns []*Conn // all that are open
	// reclaimed counts those that were taken back, see Holder.
	reclaimed atomic.Int64
	// answered is when an answer came last, as far as connections given back tell.
	answered time.Time
	// shunned is when the shard failed to answer; zero when it has answered since.
	shunned   time.Time
	checking  bool // recheck is under way
	recheckAt time.Time
}

// ErrFull is returned by Acquire with a context of WithoutQueue when all
// connections are in use.
var ErrFull = errors.New("executor: all connections to the shard are in use")

type withoutQueue struct{}

// WithoutQueue makes Acquire return ErrFull rather than wait for somebody else's
// connection. It is for a caller that holds connections for which others may wait.
func WithoutQueue(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutQueue{}, true)
}

// waiter is a statement that waits. It gets a Conn that fits, or nil: look again.
type waiter struct {
	ch    chan *Conn
	from  origin
	since time.Time
}

// patience is how long a statement lets others of the same user as a connection
// that became free go first, before that is closed to make room for its own.
const patience = 50 * time.Millisecond

func (p *pool) removed() error {
	if p.group != nil {
		return p.group.noPrimary()
	}
	return sqlstate.New(sqlstate.CannotConnectNow, "shard %s was removed from the map", p.name).OnShard(p.name).WithHint("run the statement again: the router has a newer map")
}

func (p *pool) acquire(ctx context.Context, want *Settings) (*Conn, error) {
	var waited *time.Timer
	defer func() {
		if waited != nil {
			waited.Stop()
		}
	}()
	from, full := want.from(), false
	login := from.login
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, p.removed()
		}
		if pick := p.pick(want); pick >= 0 {
			n := len(p.idle)
			c := p.idle[pick]
			copy(p.idle[pick:], p.idle[pick+1:])
			p.idle[n-1] = nil
			p.idle = p.idle[:n-1]
			doubt := p.doubt
			p.mu.Unlock()
			if c.idleSince.Before(doubt) || time.Since(c.idleSince) > probeAfter {
				if !c.alive() {
					p.discard(c)
					p.suspect()
					continue
				}
			}
			if c = p.saved(c); c == nil {
				continue
			}
			return c, nil
		}
		if p.down != nil && !(p.crowded && p.open > 0) && (p.trying || time.Now().Before(p.retryAt)) {
			err := p.down
			p.mu.Unlock()
			return nil, err
		}
		if len(p.idle) > 0 && (p.crowded && p.down != nil || p.open >= p.ex.limits.PoolMax) {
			// All that idle are of no use here: the one that was not used for longest makes room.
			c := p.idle[0]
			p.idle = append(p.idle[:0], p.idle[1:]...)
			p.retryAt = time.Time{}
			p.mu.Unlock()
			p.discard(c)
			continue
		}
		if !full && p.open < p.ex.limits.PoolMax && !(p.down != nil && time.Now().Before(p.retryAt)) {
			p.open++
			p.trying = p.down != nil
			p.mu.Unlock()
			c, err := p.dial(ctx, from)
			if err == nil {
				c.turn++
				return c, nil
			}
			if login != nil && ofUser(err) {
				if full = p.refused(login, err); !full {
					return nil, err
				}
				continue // the user has no connection left, but holds some: wait for one
			}
			if !p.failed(ctx, err) {
				return nil, err
			}
			continue // the server has no connection left for us, but we hold some: wait for one
		}
		if ctx.Value(withoutQueue{}) != nil {
			p.mu.Unlock()
			return nil, ErrFull
		}
		if len(p.waiters) >= p.ex.limits.WaitersMax {
			p.mu.Unlock()
			p.metrics.Waited(0, false)
			return nil, p.full("too many statements wait for a connection to shard %s (%d)", p.ex.limits.WaitersMax)
		}
		since := time.Now()
		w := &waiter{ch: make(chan *Conn, 1), from: from, since: since}
		full = false
		p.waiters = append(p.waiters, w)
		p.mu.Unlock()
		if waited == nil {
			waited = time.NewTimer(p.ex.limits.PoolWait)
		}
		select {
		case c := <-w.ch:
			p.metrics.Waited(time.Since(since), true)
			if c != nil {
				if c = p.saved(c); c == nil {
					continue
				}
				return c, nil
			}
		case <-waited.C:
			p.leave(w)
			p.metrics.Waited(time.Since(since), false)
			return nil, p.full("no connection to shard %s became free within %v", p.ex.limits.PoolWait)
		case <-ctx.Done():
			p.leave(w)
			return nil, ctx.Err()
		}
	}
}

// pick is the index of an idle connection that fits, best one with the
// settings; -1 if there is none. p.mu is held.
func (p *pool) pick(want *Settings) int {
	pick, seen, from := -1, 0, want.from()
	counted, kept := p.ex.counted.Load(), -1
	for i := len(p.idle) - 1; i >= 0 && seen < searchDepth; i-- {
		c := p.idle[i]
		if !p.ex.fits(c, from) {
			continue
		}
		if counted && c.keeps() {
			kept = i
			continue
		}
		if c.settings.Equal(want) {
			return i
		}
		if seen++; pick < 0 {
			pick = i
		}
	}
	if pick < 0 && (p.open >= p.ex.limits.PoolMax || p.down != nil) {
		return kept // the one that was not used for longest
	}
	return pick
}

// refused notes that the shard did not let a user in, which says nothing of
// others. wait: the user has too many connections, and could wait for one.
func (p *pool) refused(l *Login, err error) (wait bool) {
	p.mu.Lock()
	p.left()
	p.trying = false
	if sqlstate.CodeOf(err) == sqlstate.TooManyConnections {
		wait = slices.ContainsFunc(p.conns, func(c *Conn) bool { return c.login == l })
	}
	p.mu.Unlock()
	p.wake()
	return wait
}

// try takes an idle connection that can be used as it is.
func (p *pool) try(want *Settings) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 || p.closed {
		return nil
	}
	c := p.idle[n-1]
	if p.ex.counted.Load() && c.keeps() {
		return nil
	}
	if !p.ex.fits(c, want.from()) || !c.settings.Equal(want) || c.idleSince.Before(p.doubt) || time.Since(c.idleSince) > probeAfter && !c.quiet() {
		return nil
	}
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	c.turn++
	return c
}

func (p *pool) full(format string, bound any) error {
	e := sqlstate.New(sqlstate.TooManyConnections, format, p.name, bound).OnShard(p.name)
	e.Retry = sqlstate.RetrySafe
	return e.WithHint("nothing was done: run it again, end transactions sooner, or raise the pool size per shard (now %d)", p.ex.limits.PoolMax)
}

// leave takes w out of the queue; what it was given meanwhile goes on.
func (p *pool) leave(w *waiter) {
	p.mu.Lock()
	for i, x := range p.waiters {
		if x == w {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	select {
	case c := <-w.ch:
		if c != nil {
			p.put(c)
		} else {
			p.wake()
		}
	default:
	}
}

// wake lets the first waiter look again.
func (p *pool) wake() {
	p.mu.Lock()
	if len(p.waiters) > 0 {
		w := p.waiters[0]
		p.waiters = p.waiters[1:]
		w.ch <- nil
	}
	p.mu.Unlock()
}

// dial opens a connection, for which there is a place among the pool's. A fault of the router's own, which ends one session, leaves the
// place free.
func (p *pool) dial(ctx context.Context, from origin) (*Conn, error) {
	ended := false
	defer func() {
		if !ended {
			p.mu.Lock()
			p.left()
			p.trying = false
			p.mu.Unlock()
			p.wake()
		}
	}()
	c, err := p.dialed(ctx, from)
	ended = true
	return c, err
}

func (p *pool) dialed(ctx context.Context, from origin) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.ex.limits.ConnectTimeout)
	defer cancel()
	ec, base, err := p.begin(ctx, from)
	born := time.Now() // before at is asked for, see readFrom
	var at engine.LSN
	if err == nil && p.endpoint != nil {
		at, err = p.endpoint.admit(ctx, ec, p.role)
	}
	if err != nil {
		p.metrics.Dialed(false)
		var se *sqlstate.Error
		if !errors.As(err, &se) {
			e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "shard %s cannot be reached", p.name).OnShard(p.name)
			e.Retry = sqlstate.RetrySafe
			return nil, e.WithHint("nothing was done; `cleave doctor` says which shards answer")
		}
		return nil, err
	}
	p.metrics.Dialed(true)
	c := &Conn{Conn: ec, shard: p.name, pool: p, status: 'I', born: born, bornAt: at, baseline: base, login: from.login, prepared: preparedSet{max: p.ex.limits.PreparedMax}}
	c.async, _ = ec.(engine.Async)
	c.numbers = p.ex.numbersOf(p.name)
	p.mu.Lock()
	p.down, p.trying, p.crowded, p.backoff = nil, false, false, 0
	p.answered, p.shunned = time.Now(), time.Time{}
	p.conns = append(p.conns, c)
	closed := p.closed
	p.mu.Unlock()
	if closed {
		p.discard(c)
		return nil, p.removed()
	}
	p.wake() // the shard answers: others may connect as well
	return c, nil
}

// failed notes that an attempt to connect failed. It reports whether the caller
// should wait for a connection that is open already.
func (p *pool) failed(ctx context.Context, err error) (wait bool) {
	p.mu.Lock()
	p.left()
	p.trying = false
	p.crowded = sqlstate.CodeOf(err) == sqlstate.TooManyConnections
	if p.open > 0 && p.crowded {
		p.down = err
		p.retryAt = time.Now().Add(p.ex.limits.BackoffMin)
		p.mu.Unlock()
		return true
	}
	if ctx.Err() == nil { // else it was the client who gave up
		p.backoff = min(max(2*p.backoff, p.ex.limits.BackoffMin), p.ex.limits.BackoffMax)
		p.down, p.retryAt = err, time.Now().Add(p.backoff)
	}
	// Those who wait would wait in vain: they look again and fail fast.
	for _, w := range p.waiters {
		w.ch <- nil
	}
	p.waiters = nil
	p.mu.Unlock()
	p.look()
	return false
}

// suspect makes connections that idle now be probed before they are used.
func (p *pool) suspect() {
	p.mu.Lock()
	p.doubt = time.Now()
	p.mu.Unlock()
	p.look()
}

// look has the shard's servers asked now who they are.
func (p *pool) look() {
	if p.group != nil {
		p.group.look()
	}
}

func (p *pool) release(c *Conn) {
	switch {
	case c.broken:
		p.discard(c)
		p.suspect()
	case c.status != 'I', c.asked.Load() != 0, p.outdated(c, time.Now()): // with an unread answer after a fault of the router's own
		p.discard(c)
	case c.soiled:
		back := make(chan struct{})
		c.restored.Store(&back)
		if !p.ex.beside(func() { p.restore(c); close(back) }) {
			close(back)
			p.discard(c)
		}
	default:
		p.put(c)
	}
}

// relays reports whether the pool's shard is a PostgreSQL server, with all of its session commands.
func (p *pool) relays() bool { return strings.HasPrefix(p.key, "postgres ") }

// restoreMax bounds how long a shard may take to put a session back.
const restoreMax = 2 * time.Second

// discardMost is DISCARD ALL (src/backend/commands/discard.c) without what forgets the router's prepared statements. It has a row if
// SQL has prepared others, or if fewer than so many of the router's are left. Values of sequences that a Counter has there stay.
const discardMost = `CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP;
	SELECT name FROM pg_catalog.pg_prepared_statements WHERE from_sql
	UNION ALL SELECT '' WHERE (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statements WHERE NOT from_sql) < %d LIMIT 1`

// restore makes a session whose state is not known a new one, and gives the connection back.
func (p *pool) restore(c *Conn) {
	c.settings, c.soiled = nil, false
	if c.SetDeadline(time.Now().Add(restoreMax)) != nil {
		p.discard(c)
		return
	}
	whole, err := !p.relays(), error(nil)
	if !whole {
		var named *engine.Result
		most := fmt.Sprintf(discardMost, len(c.prepared.byID))
		if !c.keeps() {
			c.discarded()
			most = discardSequences + ";" + most
		}
		named, err = c.Exec(most)
		whole = err == nil && len(named.Rows) > 0
	}
	if whole {
		c.discarded()
		c.prepared = preparedSet{max: p.ex.limits.PreparedMax}
		_, err = c.Exec("DISCARD ALL")
	}
	if err != nil || c.status != 'I' || c.broken || c.SetDeadline(time.Time{}) != nil {
		p.discard(c)
		return
	}
	p.put(c)
}

// outdated reports whether a connection is not to be used again.
func (p *pool) outdated(c *Conn, now time.Time) bool {
	if m, ok := c.Conn.(engine.Makeshift); ok && m.Replaceable() {
		return true
	}
	age := now.Sub(c.born)
	if c.login != nil {
		return c.login.revoked.Load() || age > min(loginLifetime, p.ex.limits.LifetimeMax)
	}
	return c.baseline == nil && p.ex.baseline.Load() != nil || age > p.ex.limits.LifetimeMax
}

// next is the place in the queue of the waiter that is to have the connection:
// the first, or, if it does not fit that and that came just now, the first that it fits.
// p.mu is held.
func (p *pool) next(c *Conn, now time.Time) int {
	if first := p.waiters[0]; !p.ex.fits(c, first.from) && now.Sub(first.since) < patience {
		return max(0, slices.IndexFunc(p.waiters, func(w *waiter) bool { return p.ex.fits(c, w.from) }))
	}
	return 0
}

func (p *pool) put(c *Conn) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.discard(c)
		return
	}
	now := time.Now()
	if c.heard {
		c.heard = false
		p.answered, p.shunned = now, time.Time{}
	}
	if len(p.waiters) > 0 {
		at := p.next(c, now)
		w := p.waiters[at]
		if !p.ex.fits(c, w.from) {
			p.mu.Unlock()
			p.discard(c) // which wakes it
			return
		}
		if at == 0 {
			p.waiters[0] = nil
			p.waiters = p.waiters[1:]
		} else {
			p.waiters = slices.Delete(p.waiters, at, at+1)
		}
		w.ch <- c
		p.mu.Unlock()
		return
	}
	c.idleSince = now
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

// discard closes a connection. If something still runs in it, that is stopped
// beside; until then it counts among the pool's.
func (p *pool) discard(c *Conn) {
	if c.asked.Load() != 0 && p.ex.beside(func() { p.hangUp(c) }) {
		return
	}
	p.hangUp(c)
}

func (p *pool) hangUp(c *Conn) {
	c.hangUp()
	p.mu.Lock()
	if c.gone { // what a session keeps may be given up by it, and by the conversation over several shards that it is part of
		p.mu.Unlock()
		return
	}
	c.gone = true
	p.left()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
	}
	p.mu.Unlock()
	p.wake()
}

// tend closes what idled too long and reports the sizes.
func (p *pool) tend(now time.Time) {
	p.mu.Lock()
	keep := p.idle[:0]
	var old []*Conn
	for _, c := range p.idle {
		if now.Sub(c.idleSince) > p.ex.limits.IdleMax || p.outdated(c, now) {
			old = append(old, c)
		} else {
			keep = append(keep, c)
		}
	}
	clear(p.idle[len(keep):])
	p.idle = keep
	open, idle, waiting := p.open-len(old), len(keep), len(p.waiters)
	up := p.down == nil && !p.shunnedNow()
	p.mu.Unlock()
	for _, c := range old {
		p.discard(c)
	}
	if p.role != engine.Replica {
		p.metrics.Pool(up, open, idle, waiting)
	}
}

// rest closes the idle connections, and with a group those of all its servers: nobody is to be there while
// the shard is out of service.
func (p *pool) rest() {
	pools := []*pool{p}
	if p.group != nil {
		pools = append(p.group.readPools(), p)
	}
	for _, p := range pools {
		p.mu.Lock()
		idle := p.idle
		p.idle = nil
		p.mu.Unlock()
		for _, c := range idle {
			p.discard(c)
		}
	}
}

// close closes the idle connections; those in use follow when they are released.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	for _, w := range p.waiters {
		w.ch <- nil
	}
	p.waiters = nil
	p.mu.Unlock()
	for _, c := range idle {
		p.discard(c)
	}
}

// retire closes the pool of a shard that is not in the map any more, and the shard with the last connection: who is at work
// there may have something prepared there, which nobody looks for any more, and ends it.
func (p *pool) retire() {
	p.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	p.closeShard()
}

// left notes that a connection is closed, or did not come to be. p.mu is held.
func (p *pool) left() {
	p.open--
	p.closeShard()
}

// closeShard closes the shard of a retired pool when no connection is left. p.mu is held.
func (p *pool) closeShard() {
	if !p.retired || p.open > 0 {
		return
	}
	p.retired = false
	if err := p.shard.Close(); err != nil {
		p.ex.log.Warn("a shard was not closed cleanly", telemetry.KeyShard, p.name, telemetry.KeyError, err)
	}
}

func (p *pool) health() Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := Health{Shard: p.name, Open: p.open, Idle: len(p.idle), Waiting: len(p.waiters), Reclaimed: p.reclaimed.Load(), Err: p.down}
	if h.Err == nil && p.shunnedNow() {
		h.Err = fmt.Errorf("it did not answer at %s", p.shunned.UTC().Format(time.TimeOnly))
	}
	h.Up = h.Err == nil
	return h
}
