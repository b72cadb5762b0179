package several

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of one conversation.
const (
	outputChunk = 32 << 10 // Receive returns once this much is ready
	queueMax    = 64 << 20 // bytes of frames sent and not yet run
	portalMax   = 1000
)

var errClosed = errors.New("several: the conversation is closed")

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
	wake     chan struct{}
}

var _ engine.Conn = (*Conn)(nil)

// New begins a conversation that runs the statements of tx; nil: it makes one for each unit of messages.
func New(shared *Shared, host Host, tx *txn.Transaction) *Conn {
	c := &Conn{wake: make(chan struct{})}
	if c.Transaction = tx; tx == nil {
		c.Transaction = shared.Transaction(host)
	}
	c.shared, c.host, c.Trace = shared, host, explain.NewTrace()
	c.prepared = pgbackend.Statements[*prepared]{Max: portalMax}
	c.portals = pgbackend.Portals[*portal]{Max: portalMax, Gone: (*portal).end}
	c.cursors = pgbackend.Portals[*cursor]{Gone: (*cursor).end}
	return c
}

// Send implements engine.Conn.
func (c *Conn) Send(frames []byte) error {
	if c.Closed() {
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

// enters notes that frames are run; leaves must follow.
func (c *Conn) enters() error {
	if !c.Enter() {
		return lost(true, errClosed)
	}
	return nil
}

func (c *Conn) leaves() error {
	if c.active != nil {
		c.Passes()
	}
	if c.Leave(c.active != nil || c.script != nil || c.copying != nil) {
		c.release()
		return lost(true, errClosed)
	}
	return nil
}

// faults is deferred where frames are run. After a fault of the router's own no loop comes back: Close has to give back what is
// held.
func (c *Conn) faults() {
	fault, closed := c.Fault()
	if !fault {
		return
	}
	if c.active != nil {
		c.active.stopTimer()
	}
	if closed {
		c.release()
	}
}

// Probe implements engine.Prober.
func (c *Conn) Probe() error {
	if c.Closed() {
		return lost(true, errClosed)
	}
	return nil
}

// Receive implements engine.Conn.
func (c *Conn) Receive() ([]byte, error) {
	c.out = c.out[:0]
	if cap(c.out) > 16*outputChunk {
		c.out = make([]byte, 0, 2*outputChunk)
	}
	if err := c.enters(); err != nil {
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
			_ = c.leaves() // it is over in any case
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
	deadline := c.DeadlineNow()
	if err := c.leaves(); err != nil {
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
	first, inside := c.Shut()
	if !first {
		return nil
	}
	close(c.wake)
	if !inside {
		c.release()
	}
	return nil
}

// release gives all parts back. What still runs on them is stopped by their
// pools: nothing is waited for.
func (c *Conn) release() {
	if c.Faulty() {
		defer func() { _ = recover() }() // what is half done may fault again: the session's conversations are taken back in any case
	}
	c.Calm()
	c.Abandon()
	c.closePortals()
	if c.active != nil {
		c.active.stopTimer()
		c.active.p.end()
		c.active = nil
	}
	if c.Change == nil {
		c.Transaction.Release()
	}
}

// Rest stops what runs, before a schema change ends the transaction.
func (c *Conn) Rest() {
	c.closePortals()
	c.Transaction.Rest()
}

// TakesPart reports whether a transaction's conversation is with, or has it as a part.
func TakesPart(tx, with *executor.Conn) bool {
	if c, ok := tx.Conn.(*Conn); ok {
		return c.With(with)
	}
	return tx == with
}
