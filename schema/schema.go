package schema

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// Connect gives a conversation with a shard that nobody else uses, outside a
// transaction and with no session state, and the function that gives it back.
// broken says that it cannot be used again and has to be closed.
type Connect func(ctx context.Context, shard string) (conn engine.Conn, release func(broken bool), err error)

// Options are what a schema change needs.
type Options struct {
	Directory shardmap.Directory
	Connect   Connect
	// Prelude are the SET statements of the session, in order. They are run as SET
	// LOCAL, so that the conversation keeps nothing of them.
	Prelude []string
	// Open are conversations in which the session has a transaction open
	// already, by shard. The change joins these transactions and ends them; it
	// does not give the conversations back.
	Open map[string]engine.Conn
	// Begin is what the transaction begins with on other shards; "" is BEGIN. Saves are the names of the savepoints
	// that are set in the conversations of Open, outermost first: others get them when they begin.
	Begin string
	Saves []string
	// Actor is who does it, for the history: session user, CLI user@host, "system".
	Actor string
	// Admin: the actor is an administrator, who may bring extensions that PostgreSQL does not trust.
	Admin bool
	// Why is a line for people, for the history. Empty: the statement's tag.
	Why string
	// Member is the id with which the process has joined the cluster: while it is a member its statements outside of transactions
	// are at work.
	Member string
	// LockTimeout bounds each wait for a lock; 0 is 5 seconds.
	LockTimeout time.Duration
	// RangesPerShard is how many ranges per shard a default keyspace starts with; 0 is 4.
	RangesPerShard int
	// Record gives the statement by which a shard notes, with its part, that the change id is one of these shards: readers
	// see it on all of them or on none. nil: nothing is noted, and a change may not write rows (Tx.Rows).
	Record func(ctx context.Context, id, shard string, shards []string) (string, error)
	// Waits is told, until its context ends, of a change that waits for a lock: its process on each shard's server. nil: nobody is.
	Waits func(ctx context.Context, processes map[string]uint32)
	// PrepareAge is how old a prepared transaction of somebody else has to be
	// before a change that waits for it rolls it back; 0 is one minute.
	PrepareAge time.Duration

	// step is called between the steps; an error stands for a crash there. Tests only.
	step func(step, shard string) error
}

// The defaults of Options.
const (
	DefaultLockTimeout    = 5 * time.Second
	DefaultRangesPerShard = 4
	DefaultPrepareAge     = time.Minute
)

func (o Options) withDefaults() Options {
	if o.LockTimeout <= 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.RangesPerShard <= 0 {
		o.RangesPerShard = DefaultRangesPerShard
	}
	if o.PrepareAge <= 0 {
		o.PrepareAge = DefaultPrepareAge
	}
	if o.Actor == "" {
		o.Actor = "system"
	}
	return o
}

// Finding is something that differs from what the map says.
type Finding struct {
	Level string `json:"level"` // "ok", "warning" or "error"
	What  string `json:"what"`  // one line
	Shard string `json:"shard,omitempty"`
	Table string `json:"table,omitempty"` // schema.name
	// Done says what was done about it; empty if nothing was.
	Done string `json:"done,omitempty"`
	// Next is the command to run; empty if nothing is left to do.
	Next string `json:"next,omitempty"`
	// Later says that time alone will let another Recover do it.
	Later bool `json:"-"`
	// Newer says that a guard is newer than the map, so that nobody knows what the shard owns.
	Newer bool `json:"-"`
}

// recovery are the options under which the change's own process finishes what was left.
func (o Options) recovery() RecoverOptions {
	return RecoverOptions{Directory: o.Directory, Connect: o.Connect, Actor: o.Actor, LockTimeout: o.LockTimeout}
}
