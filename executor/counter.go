package executor

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Counter stands for what a client's session knows of the sequences that are a
// shard's own. currval() and lastval() are kept by the session of the shard in
// which nextval() ran, so a Counter is in one Conn at a time.
//
// A Conn has the values of one Counter alone. Before another one's statement that
// may call nextval(), the Conn discards them. The Counter that was there has
// lost its values then, and knows it.
type Counter struct {
	conn atomic.Pointer[Conn]
	last atomic.Pointer[Saved]
	lost atomic.Bool
	over atomic.Bool
}

// Conn returns the conversation whose session has the values, nil if none has.
// It may be somebody else's by now; see Executor.Recount.
func (k *Counter) Conn() *Conn { return k.conn.Load() }

// Lost reports whether values are gone with a conversation's session.
func (k *Counter) Lost() bool { return k.lost.Load() }

// Saved is lastval() as it was when another session borrowed the conversation that
// had it. There was none unless Defined.
type Saved struct {
	Value   int64
	Defined bool
}

// Last returns what was saved; nil: nothing is known. A value in the session of a
// conversation is newer.
func (k *Counter) Last() *Saved { return k.last.Load() }

// End says that nobody will ask for the values.
func (k *Counter) End() { k.over.Store(true) }

// left notes that c's session has no values of k any more. What was saved before
// k's session used c again says nothing of what that took.
func (k *Counter) left(c *Conn) {
	if k != nil && k.conn.CompareAndSwap(c, nil) {
		if !c.saved {
			k.last.Store(nil)
		}
		k.lost.Store(true)
	}
}

// Forget says that a statement may have taken values where they cannot be asked for.
func (k *Counter) Forget() {
	k.conn.Store(nil)
	k.last.Store(nil)
	k.lost.Store(true)
}

// keeps reports whether somebody may still ask for the values in c's session.
func (c *Conn) keeps() bool {
	k := c.counter
	return k != nil && !k.over.Load() && k.conn.Load() == c
}

// Count is called before a statement of k's session that may call nextval(), or
// that asks for what it gave. The next statement that is added to a Pipeline of c
// comes after DISCARD SEQUENCES, if c's session has values of another Counter.
func (c *Conn) Count(k *Counter) {
	if c.pool == nil || !c.pool.relays() {
		return // a SQLite file has no sequences
	}
	if c.counter == k && k.conn.Load() == c {
		c.saved = false
		return
	}
	if c.counter != nil {
		c.sweep = sweepOwed
	}
	c.counter.left(c)
	if was := k.conn.Swap(c); was != nil && was != c {
		k.last.Store(nil)
		k.lost.Store(true)
	}
	c.counter, c.saved = k, false
}

// nobody is the Counter of values that are not known.
var nobody = func() *Counter {
	k := new(Counter)
	k.End()
	return k
}()

// uncount says that it is not known which values c's session has.
func (c *Conn) uncount() {
	c.counter.left(c)
	c.counter = nobody
}

// discarded says that c's session has no values.
func (c *Conn) discarded() {
	c.counter.left(c)
	c.counter, c.sweep = nil, sweepNone
}

// saveMax bounds what saving a value may take.
const saveMax = time.Second

// Lastval reads lastval() of the Counter whose values c's session has. exec runs a statement on c.
// none: no value was given there. Errors: those of exec.
func (c *Conn) Lastval(exec func(*Conn, string) (*engine.Result, error)) (v int64, none bool, err error) {
	if c.sweep != sweepNone {
		return 0, true, nil // all that is there is others'
	}
	res, err := exec(c, "SELECT pg_catalog.lastval()")
	if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState {
		return 0, true, nil
	}
	if err == nil {
		v, err = strconv.ParseInt(res.Rows[0][0].String, 10, 64)
	}
	return v, false, err
}

// save keeps lastval() for the Counter whose values c's session has, before c is
// used for another one's statements. If it cannot be read, c is broken.
func (c *Conn) save() {
	k := c.counter
	if c.SetDeadline(time.Now().Add(saveMax)) != nil {
		c.broken = true
		return
	}
	v, none, err := c.Lastval((*Conn).Exec)
	switch {
	case err != nil:
		c.broken = true
	case !none:
		k.last.Store(&Saved{Value: v, Defined: true})
	case !k.lost.Load():
		k.last.Store(&Saved{})
	} // else what was saved before is the last one still
	c.broken = c.broken || c.SetDeadline(time.Time{}) != nil
	c.saved = !c.broken
}

// KeepCounters makes pools keep Counters' conversations for them as long as there
// are others: clients of this router ask for what nextval() gave.
func (e *Executor) KeepCounters() {
	if !e.counted.Load() {
		e.counted.Store(true)
	}
}

// CountersKept reports whether KeepCounters was called.
func (e *Executor) CountersKept() bool { return e.counted.Load() }

// Recount borrows the conversation that has k's values, if it is one with the
// shard, idle and fit for s. nil: it is not, and Acquire gives another one.
func (e *Executor) Recount(k *Counter, shard string, s *Settings) *Conn {
	c := k.conn.Load()
	if c == nil || c.pool == nil || c.shard != shard || e.Refusal(shard, false) != nil || !e.writesTo(shard, c.pool) {
		return nil
	}
	taken, probe := c.pool.take(c)
	if back := c.restored.Load(); !taken && back != nil {
		<-*back // its user was this one, a moment ago
		taken, probe = c.pool.take(c)
	}
	if !taken {
		return nil
	}
	if probe && !c.alive() {
		c.pool.discard(c)
		c.pool.suspect()
		return nil
	}
	if !e.fits(c, s.from()) || c.counter != k || !c.settings.Equal(s) && c.Apply(s) != nil {
		c.Release()
		return nil
	}
	return c
}

// writesTo reports whether the pool is that of the shard's primary.
func (e *Executor) writesTo(shard string, p *pool) bool {
	is := (*e.pools.Load())[shard]
	if is == nil || is.group == nil {
		return is == p
	}
	g := is.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settled && !g.closed && g.primary != nil && g.primary.writes == p
}

// saved begins the use of c by the caller that acquires it; nil if c broke, and is closed.
func (p *pool) saved(c *Conn) *Conn {
	if p.ex.counted.Load() && c.keeps() && !c.saved {
		if c.save(); c.broken {
			p.discard(c)
			p.suspect()
			return nil
		}
	}
	c.turn++
	return c
}

// take takes c out of the idle connections, if it is among them. probe: it may have broken since.
func (p *pool) take(c *Conn) (taken, probe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.idle, c)
	if i < 0 {
		return false, false
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	c.turn++
	return true, c.idleSince.Before(p.doubt) || time.Since(c.idleSince) > probeAfter
}

// What a Conn's session has of the values of Counters before its own.
const (
	sweepNone uint8 = iota
	sweepOwed       // some
	sweepSent       // some, until DISCARD SEQUENCES is answered, which is in flight
)

// discardSequences is sent before the first statement of another Counter.
const discardSequences = "DISCARD SEQUENCES"

// sweepQuery adds DISCARD SEQUENCES before a simple Query, if it is owed. In a transaction
// that has failed neither would do anything.
func (p *Pipeline) sweepQuery() {
	if p.Conn.sweep != sweepOwed || p.Conn.status == 'E' {
		return
	}
	p.Conn.sweep = sweepSent
	p.out = wire.AppendQuery(p.out, discardSequences)
	p.expect(expected{what: anQuery, swallow: true, quiet: true, sweeps: true})
}

// sweepBind adds it before a Bind. After an error the shard skips both.
func (p *Pipeline) sweepBind() {
	if p.Conn.sweep != sweepOwed {
		return
	}
	p.Conn.sweep = sweepSent
	prep := p.Conn.pool.ex.Prepare(discardSequences, nil, 0, nil)
	p.Prepare(prep, nil, false)
	p.bind(readName, prep.name, []byte{0, 0, 0, 0, 0, 0}, false) // the client's unnamed portal stays
	p.out = wire.AppendExecute(p.out, readName, 0)
	p.expect(expected{what: anExecute, swallow: true, quiet: true, sweeps: true})
	p.Close(readName, false)
}

// swept notes the shard's answer.
func (c *Conn) swept() {
	if c.sweep == sweepSent {
		c.sweep = sweepNone
	}
}

// unswept notes that there will be none.
func (c *Conn) unswept() {
	if c.sweep == sweepSent {
		c.sweep = sweepOwed
	}
}
