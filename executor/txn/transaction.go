package txn

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Host is what a transaction needs of the session. Its methods are called by the goroutine that runs statements.
type Host interface {
	// Snapshot is the map that statements are planned with.
	Snapshot() *shardmap.Snapshot
	// Settings are the session's, own ones (cleave.*) included.
	Settings() *executor.Settings
	// Timeout is the session's statement_timeout, 0 for none.
	Timeout() time.Duration
	// Repeats reports whether the session can run the unit again, of which a statement is about to begin: nothing of it
	// has been passed on.
	Repeats() bool
	// Holds reports whether the lease was held since the unit began: without it
	// nothing is committed.
	Holds() error
	// Reader borrows a conversation with a replica of a shard for a read outside of
	// transactions, with settings s, where the session's read policy wants that; nil: the primary answers.
	Reader(ctx context.Context, shard string, s *executor.Settings) (*executor.Conn, error)
	// Spreads reports whether reads outside of transactions may be on replicas.
	Spreads() bool
	// Wrote is told of each shard's conversation that is about to write.
	Wrote(c *executor.Conn)
	// Holder is who holds the conversations that are borrowed.
	Holder() *executor.Holder
	// Joined is told of each shard that takes part.
	Joined(shard string)
	// Kept is the conversation that the session keeps with the shard for its temporary objects and advisory locks, nil
	// if it keeps none. It is the shard's participant, as what is in it is the session's.
	Kept(shard string) *executor.Conn
	// Counter is the session's, of sequences that are the default shard's own.
	Counter() *executor.Counter
}

// Transaction is what is open on shards: a transaction block, or what one unit of messages outside of a block does. It
// knows the shards that take part and what has to be begun on those to come; it knows nothing of the client's messages,
// portals and cursors.
type Transaction struct {
	conns
	txns   *Transactions
	refine func(*sqlstate.Error) *sqlstate.Error

	// Joined are the participants so far.
	Joined []*Participant
	Block  bool // inside a transaction block
	Preamble
	// base are the settings that a shard's conversation has when the block begins on it, if based is set: the transaction
	// began as a block.
	base  *executor.Settings
	based bool
	since *shardmap.Snapshot // the map by which a schema change's transaction began
	// Change opens the transaction on shards and ends it; nil: the transaction does itself.
	Change Change
	// Aborted: nothing but the end of the transaction, or a savepoint, is left;
	// Lost: not even a savepoint.
	Aborted, Lost bool
	culprit       string // the shard that failed last
	ClockOn       string // the shard whose transaction's time is the transaction's, see Clock
	clockText     string
	// Proven are the shards whose snapshots fit each other, see TakeSnapshots.
	Proven map[string]bool
	waitID string // see WatchLocks

	// Of the statement that is under way:

	// passed: rows of it went to the session.
	passed atomic.Bool
	// replicas: it may read on replicas; onReplicas: one of the unit has.
	replicas, onReplicas bool
	// Counts: it may call nextval() of the default shard's own sequences.
	Counts bool
}

// New is a transaction that nothing has begun yet. refine makes the client's error of a shard's, nil if it is good as it is.
func New(ex *executor.Executor, txns *Transactions, host Host, refine func(*sqlstate.Error) *sqlstate.Error) *Transaction {
	c := &Transaction{txns: txns, refine: refine}
	c.starts(ex, host)
	return c
}

// BeginBlock makes the transaction a block: begin is the text that begins it on shards, base are the settings that their
// conversations have then.
func (c *Transaction) BeginBlock(begin string, base *executor.Settings) {
	c.Block, c.BeginText, c.base, c.based = true, begin, base, true
}

// Anew is the same block, without participants: what it had did not show, or is lost.
func (c *Transaction) Anew() *Transaction {
	n := New(c.Ex, c.txns, c.host, c.refine)
	n.Block, n.Preamble, n.base, n.based = c.Block, c.Preamble, c.base, c.based
	return n
}

// NoteSavepoint notes what SAVEPOINT, RELEASE or ROLLBACK TO ("savepoint", ...) did. at is the number of the one that is
// named.
func (c *Transaction) NoteSavepoint(op, name string, at int) {
	for _, p := range c.Joined {
		if !p.Begun {
			continue
		}
		if op == "savepoint" {
			c.known(p)
		}
		p.savepoint(op, at)
	}
	if c.note(op, name, at); op == "rollback to" {
		c.Aborted = false
	}
}

// BegunOn makes a participant of a conversation on which the session has begun the transaction by itself: the only one, and
// the session goes on talking on it. since is the map by which it began there, was are its settings at the savepoints.
func (c *Transaction) BegunOn(conn *executor.Conn, since *shardmap.Snapshot, was []*executor.Settings) *Participant {
	p := &Participant{Shard: conn.Shard(), Conn: conn, Begun: true, Direct: true, since: since, base: c.Base(), saves: was, Unpreparable: conn.Pinned()}
	p.Pipe.Conn, p.Pipe.Inner = conn, true
	c.Joined = append(c.Joined, p)
	return p
}

// Spread is called before statements run on several shards: from now on all participants are stopped together, and get
// what is set until the end of the transaction. keep are the settings that COMMIT leaves of what was set on the one that
// the session talked on.
func (c *Transaction) Spread(keep *executor.Settings) {
	for _, p := range c.Joined {
		if p.keep = keep; c.Change == nil {
			p.Conn.Group(c.group)
		}
		c.adds(p.Conn)
	}
}

// Wrote are the shards on which something may have been written, sorted.
func (c *Transaction) Wrote() (shards []string) {
	for _, p := range c.Joined {
		if p.Wrote {
			shards = append(shards, p.Shard)
		}
	}
	slices.Sort(shards)
	return shards
}

// With reports whether a conversation is a participant's.
func (c *Transaction) With(conn *executor.Conn) bool {
	return slices.ContainsFunc(c.Joined, func(p *Participant) bool { return p.Conn == conn })
}

// EndBlock ends what the block was begun with, before its shards are asked.
func (c *Transaction) EndBlock() {
	if c.ReadOnly && !c.wrote {
		for _, p := range c.Joined {
			p.Wrote = p.Wrote && p.Unpreparable // temporary tables can be written
		}
	}
	c.Block, c.ReadOnly, c.wrote, c.Modes = false, false, false, nil
	c.Saves.Clear()
}

// Forget forgets what only the transaction knew, when it has ended.
func (c *Transaction) Forget() {
	c.Aborted, c.Lost, c.Proven = false, false, nil
	c.ClockOn, c.clockText = "", ""
}

// Shards returns the names of the shards that take part, sorted.
func (c *Transaction) Shards() []string {
	names := make([]string, 0, len(c.Joined))
	for _, p := range c.Joined {
		names = append(names, p.Shard)
	}
	slices.Sort(names)
	return names
}

// Culprit returns the shard whose error was the last one, "" if none was.
func (c *Transaction) Culprit() string { return c.culprit }

// Can is what a shard can do.
func (c *Transaction) Can(shard string) capability.Set {
	sh, ok := c.host.Snapshot().Shard(shard)
	if !ok {
		return capability.Of("")
	}
	return sh.Can()
}

// Passes notes that rows of the statement went to the session.
func (c *Transaction) Passes() { c.passed.Store(true) }
