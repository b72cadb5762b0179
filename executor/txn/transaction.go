package txn

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgbackend"
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
	// BeginText is the text that begins the block on a shard; base are the settings that a shard's conversation has then, if
	// based is set: the transaction began as a block.
	BeginText string
	base      *executor.Settings
	based     bool
	// Since is the map by which an owner's transaction began.
	Since *shardmap.Snapshot
	// Owner has the transaction open on shards, and ends it; nil: the transaction does itself.
	Owner Owner
	Saves pgbackend.Savepoints[Savepoint]
	// Modes are SET TRANSACTION and SET CONSTRAINTS since it began.
	Modes []string
	// Aborted: nothing but the end of the transaction, or a savepoint, is left;
	// Lost: not even a savepoint.
	Aborted, Lost bool
	culprit       string // the shard that failed last
	// ReadOnly: the block is READ ONLY; wrote: it had written before. Else what may have written has not.
	ReadOnly, wrote bool
	ClockOn         string // the shard whose transaction's time is the transaction's, see Clock
	clockText       string
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

// Savepoint is what ROLLBACK TO brings back of the block.
type Savepoint struct {
	modes    int // how many there were
	readOnly bool
}

// New is a transaction that nothing has begun yet. refine makes the client's error of a shard's, nil if it is good as it is.
func New(ex *executor.Executor, txns *Transactions, host Host, refine func(*sqlstate.Error) *sqlstate.Error) *Transaction {
	c := &Transaction{txns: txns, refine: refine}
	c.open(ex, host)
	return c
}

// BeginBlock makes the transaction a block: begin is the text that begins it on shards, base are the settings that their
// conversations have then.
func (c *Transaction) BeginBlock(begin string, base *executor.Settings) {
	c.Block, c.BeginText, c.base, c.based = true, begin, base, true
}

// Anew is the same block, of which nothing is open on shards.
func (c *Transaction) Anew() *Transaction {
	n := New(c.Ex, c.txns, c.host, c.refine)
	n.Block, n.BeginText, n.base, n.based = c.Block, c.BeginText, c.base, c.based
	n.Modes, n.Saves, n.ReadOnly = c.Modes, c.Saves, c.ReadOnly
	return n
}

// Beginning is what begins the block on a shard: BEGIN and the modes.
func (c *Transaction) Beginning() []string { return append([]string{c.BeginText}, c.Modes...) }

// SetAccess notes that the block is READ ONLY, or is not any more. wrote: it has written before.
func (c *Transaction) SetAccess(readOnly, wrote bool) {
	c.ReadOnly, c.wrote = readOnly, c.wrote || readOnly && wrote
}

// NoteSavepoint notes what SAVEPOINT, RELEASE or ROLLBACK TO ("savepoint", ...) did to the block. at is the number of the
// one that is named.
func (c *Transaction) NoteSavepoint(op, name string, at int) {
	if op == "savepoint" {
		c.Saves.Set(name, Savepoint{modes: len(c.Modes), readOnly: c.ReadOnly})
		return
	}
	was := c.Saves.At(at)
	since := c.Modes[was.modes:]
	c.Modes, c.ReadOnly = c.Modes[:was.modes], was.readOnly
	if op == "rollback to" {
		c.Saves.RollBack(at)
		c.Aborted = false
		return
	}
	// SET TRANSACTION ends with the savepoint, SET CONSTRAINTS does not.
	for _, m := range since {
		if strings.HasPrefix(m, "SET CONSTRAINTS ") {
			c.Modes = append(c.Modes, m)
		}
	}
	c.Saves.Release(at)
}

// ModesAt are those that there were at a savepoint.
func (c *Transaction) ModesAt(at int) []string { return c.Modes[:c.Saves.At(at).modes] }

// Adopted is a shard's conversation on which the transaction is open already.
type Adopted struct {
	// Conn is the transaction's from now on, which releases it; nil: there is none.
	Conn *executor.Conn
	// Base are its settings, Keep those after a COMMIT.
	Base, Keep *executor.Settings
	// Wrote says that it may have written, Since is the map by which the transaction began there.
	Wrote bool
	Since *shardmap.Snapshot
}

// Adopt makes a participant of a conversation on which the transaction is open.
func (c *Transaction) Adopt(a Adopted) {
	p := &Participant{Shard: a.Conn.Shard(), Conn: a.Conn, Begun: true, Adopted: true, Wrote: a.Wrote, since: a.Since, base: a.Base, keep: a.Keep, Unpreparable: a.Conn.Pinned()}
	p.Pipe.Conn, p.Pipe.Inner = a.Conn, true
	for range c.Saves.Len() {
		p.saves = append(p.saves, a.Base)
	}
	c.Joined = append(c.Joined, p)
	a.Conn.Group(c.group)
	c.adds(a.Conn)
}

// EndBlock ends what the block was begun with, before its shards are asked.
func (c *Transaction) EndBlock() {
	if c.ReadOnly && !c.wrote {
		for _, p := range c.Joined {
			p.Wrote = false // it could not
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
