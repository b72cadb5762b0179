package several

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of one conversation.
const (
	outputChunk = 32 << 10 // Receive returns once this much is ready
	queueMax    = 64 << 20 // bytes of frames sent and not yet run
	portalMax   = 1000
	stopMax     = 5 * time.Second // how long a part may take to stop
)

var errClosed = errors.New("several: the conversation is closed")

// Options are what a conversation begins with.
type Options struct {
	// Block says that it begins inside a transaction block: Begin is the text that
	// begins the transaction on a shard, Modes the SET TRANSACTION statements since,
	// Saves the names of the savepoints that are set, outermost first.
	Block bool
	Begin string
	Modes []string
	Saves []string
	// ReadOnly says that it was READ ONLY before it wrote anything, and still is.
	ReadOnly bool
	// Base are the settings that a shard's conversation has when the transaction
	// begins on it; those that are in effect are the host's.
	Base *executor.Settings
	// Adopted is a shard's conversation on which the transaction is open already,
	// nil if there is none. Keep are its settings after a COMMIT, Wrote says that it
	// may have written, Since is the map by which the transaction began there. It is
	// the Conn's from now on, which releases it.
	Adopted *executor.Conn
	Keep    *executor.Settings
	Wrote   bool
	Since   *shardmap.Snapshot
	// Failed: the transaction has failed already.
	Failed bool
	// Owner has the transaction open on shards, and ends it; nil: the Conn does. Lent are its conversations so far,
	// first the one on which statements have run, Writer the shard on which rows were written, "" if there is none.
	Owner  Owner
	Lent   []*executor.Conn
	Writer string
}

// Conn is a conversation with all shards of a map, for one transaction or one
// unit of messages. It implements engine.Conn: Send queues frames; Receive runs
// them, in the calling goroutine, until a chunk of output is ready. Close gives
// the parts back. Cancel and Close may be called by other goroutines.
type Conn struct {
	runner

	in       []byte // frames not yet run
	out      []byte
	skipping bool // after an error, until Sync
	script   *script
	active   *active
	copying  *copying
	inside   bool // a goroutine runs frames
	faulty   bool // there was a fault of the router's own
	wake     chan struct{}
}

var _ engine.Conn = (*Conn)(nil)

// New begins a conversation.
func New(shared *Shared, host Host, opt Options) *Conn {
	c := &Conn{wake: make(chan struct{})}
	c.open(shared.ex, host)
	c.Trace = explain.NewTrace()
	c.prepared = pgbackend.Statements[*prepared]{Max: portalMax}
	c.portals = pgbackend.Portals[*portal]{Max: portalMax, Gone: (*portal).end}
	c.cursors = pgbackend.Portals[*cursor]{Gone: (*cursor).end}
	c.shared, c.opt, c.block, c.failed, c.readOnly = shared, opt, opt.Block, opt.Failed, opt.ReadOnly
	for _, name := range opt.Saves {
		c.saves.Set(name, struct{}{})
	}
	c.modes = append(c.modes, opt.Modes...)
	if a := opt.Adopted; a != nil {
		p := &part{shard: a.Shard(), conn: a, begun: true, adopted: true, wrote: opt.Wrote, since: opt.Since, base: opt.Base, keep: opt.Keep, decides: a.Pinned()}
		p.pipe.Conn, p.pipe.Inner = a, true
		for range c.saves.Len() {
			p.saves = append(p.saves, opt.Base)
		}
		c.parts = append(c.parts, p)
		a.Group(c.group)
		c.live[a] = struct{}{}
	}
	for i, conn := range opt.Lent {
		p := c.lentPart(conn)
		p.wrote, p.adopted = p.shard == opt.Writer, i == 0
	}
	return c
}

// Shards returns the names of the shards that take part, sorted.
func (c *transaction) Shards() []string {
	names := make([]string, 0, len(c.parts))
	for _, p := range c.parts {
		names = append(names, p.shard)
	}
	slices.Sort(names)
	return names
}

// Culprit returns the shard whose error was the last one, "" if none was.
func (c *transaction) Culprit() string { return c.culprit }

// Send implements engine.Conn.
func (c *Conn) Send(frames []byte) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return lost(false, errClosed)
	}
	if c.copying != nil && len(c.in) == 0 {
		return c.copyFrames(frames)
	}
	if len(c.in)+len(frames) > queueMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "more than %d bytes of messages wait to be run", queueMax)
	}
	c.in = append(c.in, frames...)
	return nil
}

// enter notes that frames are run; leave must follow.
func (c *Conn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return lost(true, errClosed)
	}
	if !c.running && c.ctx.Err() != nil {
		c.ctx, c.stop = context.WithCancelCause(context.Background())
	}
	c.inside, c.running = true, true
	return nil
}

func (c *Conn) leave() error {
	c.mu.Lock()
	c.inside, c.running = false, c.active != nil || c.script != nil || c.copying != nil
	if c.active != nil {
		c.passed.Store(true)
	}
	if !c.running {
		c.calmLocked()
	}
	closed := c.closed
	c.mu.Unlock()
	if closed {
		c.release()
		return lost(true, errClosed)
	}
	return nil
}

// faults is deferred where frames are run. After a fault of the router's own no loop comes back: Close has to give back what is
// held. What the conversations with shards were in the middle of is not known.
func (c *Conn) faults() {
	c.mu.Lock()
	fault := c.inside
	if fault {
		c.inside, c.running, c.faulty = false, false, true
		for conn := range c.live {
			conn.Break()
		}
	}
	closed := c.closed
	c.mu.Unlock()
	if fault && c.active != nil {
		c.active.stopTimer()
	}
	if fault && closed {
		c.release()
	}
}

// Receive implements engine.Conn.
func (c *Conn) Receive() ([]byte, error) {
	c.out = c.out[:0]
	if cap(c.out) > 16*outputChunk {
		c.out = make([]byte, 0, 2*outputChunk)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.faults()
	used := 0
	for len(c.out) < outputChunk {
		if c.active != nil && c.copying == nil {
			c.stepActive()
			continue
		}
		if c.copying != nil && len(c.in) == used {
			if !c.Failed() {
				break // the client's data is awaited
			}
			c.giveUpCopying()
			continue
		}
		if c.script != nil && c.copying == nil {
			c.runScript()
			continue
		}
		f, rest, ok, err := wire.Cut(c.in[used:])
		if err != nil {
			_ = c.leave() // it is over in any case
			return nil, lost(true, err)
		}
		if !ok {
			break
		}
		used = len(c.in) - len(rest)
		c.handle(f)
	}
	c.in = c.in[:copy(c.in, c.in[used:])]
	if len(c.in) == 0 && cap(c.in) > 1<<20 {
		c.in = nil
	}
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	if err := c.leave(); err != nil {
		return nil, err
	}
	if len(c.out) > 0 {
		return c.out, nil
	}
	// Nothing to run and nothing to say: as on a socket, wait for the deadline or Close.
	return nil, c.waitIdle(deadline)
}

func (c *Conn) waitIdle(deadline time.Time) error {
	var after <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-c.wake:
		return lost(true, errClosed)
	case <-after:
		return lost(true, os.ErrDeadlineExceeded)
	}
}

// lost is the error of a conversation that is over as a whole.
func lost(sent bool, err error) error {
	return &engine.LostError{Shard: Name, Sent: sent, Err: err}
}

// Parameter implements engine.Conn; nothing is known of parameters here.
func (c *Conn) Parameter(string) string { return "" }

// Parameters implements engine.Conn.
func (c *Conn) Parameters() map[string]string { return nil }

// DescribeTable is not there for several shards: schema changes talk with each
// shard.
func (c *Conn) DescribeTable(context.Context, string, string) (*engine.Table, error) {
	return nil, errors.ErrUnsupported
}

// Guard is not there for several shards.
func (c *Conn) Guard(context.Context, string, string) (*engine.GuardState, error) {
	return nil, errors.ErrUnsupported
}

// SetGuard is not there for several shards.
func (c *Conn) SetGuard(context.Context, engine.Guard) error { return errors.ErrUnsupported }

// DropGuard is not there for several shards.
func (c *Conn) DropGuard(context.Context, string, string) error { return errors.ErrUnsupported }

// Close implements engine.Conn: the parts are given back, or closed if something
// is open on them. If frames are being run, that ends.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.wake)
	c.stop(errCancelled)
	inside := c.inside
	if inside {
		// The goroutine in Receive gives them back; it must not wait for a shard.
		for conn := range c.live {
			_ = conn.Conn.Close() // Receive on it returns
		}
		c.cut = true
	}
	c.mu.Unlock()
	if !inside {
		c.release()
	}
	return nil
}

// release gives all parts back. What still runs on them is stopped by their
// pools: nothing is waited for.
func (c *Conn) release() {
	if c.faulty {
		defer func() { _ = recover() }() // what is half done may fault again: the session's conversations are taken back in any case
	}
	c.calm()
	for _, p := range c.parts {
		if p.busy != nil {
			p.conn.Break()
			p.busy.reading, p.busy = false, nil
		}
	}
	c.closePortals()
	if c.active != nil {
		c.active.stopTimer()
		c.active.p.end()
		c.active = nil
	}
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	for _, p := range c.parts {
		c.forget(p.conn)
		if p.lent {
			continue
		}
		if p.open() || cut {
			p.conn.Break()
		}
		if c.soils {
			p.conn.Soil()
		}
		p.conn.Release()
	}
	c.parts, c.soils = nil, false
}
