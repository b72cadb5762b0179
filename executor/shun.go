package executor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// anyTries is how many shards are tried for what any of them can answer.
	anyTries = 4
	// trustFor is how long a shard is taken to answer after it has answered. A
	// statement that could go elsewhere is preceded by a round trip after that.
	trustFor = time.Second
	// slowAfter is how long a shard may be silent with an answer outstanding,
	// before statements that could go elsewhere prefer to.
	slowAfter = 500 * time.Millisecond
	// shunFor is how long a shard that did not answer comes last, unless it
	// answers before; it is dialled in the background every recheckEvery.
	shunFor      = time.Minute
	recheckEvery = 2 * time.Second
)

// fitness says how well a shard suits a statement that any shard can answer.
type fitness int

const (
	fitDown  fitness = iota // cannot be reached, or did not answer lately
	fitSlow                 // silent for a while, with an answer outstanding
	fitFull                 // every connection is in use
	fitReady                // a connection is at hand, or can be made
)

func (p *pool) fitness() fitness {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed, p.down != nil, p.shunnedNow():
		return fitDown
	case p.silent(time.Now().Add(-slowAfter)):
		return fitSlow
	case len(p.idle) > 0 || p.open < p.ex.limits.PoolMax:
		return fitReady
	}
	return fitFull
}

// shunnedNow reports whether the shard failed to answer and has not answered since; p.mu is held.
func (p *pool) shunnedNow() bool {
	return !p.shunned.IsZero() && time.Since(p.shunned) < shunFor
}

// silent reports whether an answer has been outstanding since before the time
// and none at all has come since then; p.mu is held.
func (p *pool) silent(before time.Time) bool {
	if p.answered.After(before) {
		return false
	}
	for _, c := range p.conns {
		if asked := c.asked.Load(); asked != 0 && asked < before.UnixNano() {
			return true
		}
	}
	return false
}

// Any returns the shard for a statement that every shard can answer: each in
// turn, those without a free connection later, those that are silent after that,
// and those that are down or did not answer lately last.
func (e *Executor) Any() string { return e.any(nil, nil) }

// AnyOf is Any among some shards; of none it is Any.
func (e *Executor) AnyOf(shards []string) string {
	if name := e.any(shards, nil); name != "" {
		return name
	}
	return e.Any()
}

// any is Any among the shards of a list, if it is not nil, without some. "": there is none.
func (e *Executor) any(of, not []string) string {
	shards, pools := e.Snapshot().Shards(), *e.pools.Load()
	n := int(e.turn.Add(1) % uint64(len(shards)))
	best, score := "", fitness(-1)
	for i := range shards {
		name := shards[(n+i)%len(shards)].Name
		p := pools[name]
		if p == nil || shards[(n+i)%len(shards)].Service == shardmap.OutOfService || of != nil && !slices.Contains(of, name) || slices.Contains(not, name) {
			continue
		}
		f := p.fitness()
		if f == fitReady {
			return name
		}
		if f > score {
			best, score = name, f
		}
	}
	if best == "" && of == nil && len(not) == 0 {
		return shards[n].Name // Acquire says why it cannot be used
	}
	return best
}

// Shun notes that a shard did not answer: what can go elsewhere does, until the
// shard answers again or a minute has passed.
func (e *Executor) Shun(shard string) {
	if p, ok := (*e.pools.Load())[shard]; ok {
		p.shun()
	}
}

func (p *pool) shun() {
	p.mu.Lock()
	now := time.Now()
	p.shunned, p.doubt = now, now
	p.mu.Unlock()
}

// AcquireAny is Acquire for what any shard can answer: it begins with the given
// shard and goes on with others if that cannot be reached or does not answer
// within AnswerWait. It tries a few shards and fails with the first one's error.
func (e *Executor) AcquireAny(ctx context.Context, first string, s *Settings) (*Conn, error) {
	var failed error
	var tried []string
	if p := (*e.pools.Load())[first]; p != nil && p.fitness() == fitDown {
		if other := e.any(nil, []string{first}); other != "" {
			first = other
		}
	}
	for name := first; name != "" && len(tried) < anyTries; name = e.any(nil, tried) {
		c, err := e.acquireSound(ctx, name, s)
		if err == nil {
			return c, nil
		}
		if failed == nil {
			failed = err
		}
		if code := sqlstate.CodeOf(err); ctx.Err() != nil || code != sqlstate.CannotConnectNow && code != sqlstate.TooManyConnections {
			return nil, err
		}
		tried = append(tried, name)
	}
	return nil, failed
}

// acquireSound is Acquire of a connection to a shard that answers, bounded by AnswerWait.
func (e *Executor) acquireSound(ctx context.Context, name string, s *Settings) (*Conn, error) {
	p := (*e.pools.Load())[name]
	if p == nil {
		return e.Acquire(ctx, name, s)
	}
	if p.trusted() {
		if c := p.try(s); c != nil {
			return c, nil
		}
	}
	limit, stop := context.WithTimeout(ctx, e.limits.AnswerWait)
	defer stop()
	c, err := e.Acquire(limit, name, s)
	if err == nil && !p.trusted() {
		err = c.bounded(limit, func() error {
			ask := Pipeline{Conn: c}
			_, err := ask.Run(Sync, reports(nil))
			return err
		})
		if err != nil {
			c.broken = true
			c.Release()
			late := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "shard %s does not answer", name).OnShard(name)
			late.Retry = sqlstate.RetrySafe
			err = late.WithHint("nothing was done; `cleave doctor` says which shards answer")
		} else {
			p.hear()
		}
	}
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var se *sqlstate.Error
	if !errors.As(err, &se) {
		// It waited in vain for a connection that others use.
		return nil, p.full("no connection to shard %s became free within %v", e.limits.AnswerWait)
	}
	if se.Code == sqlstate.CannotConnectNow {
		p.shun()
	}
	return nil, err
}

// trusted reports whether the shard answered a moment ago.
func (p *pool) trusted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shunned.IsZero() && time.Since(p.answered) < trustFor
}

// hear notes an answer.
func (p *pool) hear() {
	p.mu.Lock()
	p.answered, p.shunned = time.Now(), time.Time{}
	p.mu.Unlock()
}

// bounded runs f, an exchange on c, until ctx ends; then c is broken.
func (c *Conn) bounded(ctx context.Context, f func() error) (err error) {
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetDeadline(time.Unix(1, 0)) // a Conn that fails here fails in f
	})
	defer func() { // after a fault of f too: the next user of the Conn must not be stopped
		if !stop() {
			c.broken = true
			if err == nil {
				err = ctx.Err()
			}
		}
	}()
	return f()
}

// recheck connects to a shard that is shunned or down; an answer ends that, so
// that what is known of a shard is true without anybody asking it.
func (p *pool) recheck(ctx context.Context) {
	p.mu.Lock()
	now := time.Now()
	if p.closed || p.checking || !p.shunnedNow() && p.down == nil || p.trying || now.Before(p.retryAt) || now.Before(p.recheckAt) || p.open >= p.ex.limits.PoolMax {
		p.mu.Unlock()
		return
	}
	p.checking, p.open, p.trying = true, p.open+1, p.down != nil
	p.mu.Unlock()
	p.ex.wg.Go(func() {
		c, err := p.dial(ctx, origin{})
		if err == nil {
			p.put(c)
		} else {
			p.failed(ctx, err)
		}
		p.mu.Lock()
		p.checking, p.recheckAt = false, time.Now().Add(recheckEvery)
		p.mu.Unlock()
	})
}
