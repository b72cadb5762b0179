package engine

import (
	"context"
	"time"
)

// Watchable is implemented by Movers that can tell how a shard fares while rows are copied or deleted.
type Watchable interface {
	// Watch opens a conversation of its own for it.
	Watch(ctx context.Context) (Watcher, error)
}

// Watcher looks how a shard fares.
type Watcher interface {
	// Delay does what a small write does, without a trace in a table, and returns how long it took.
	Delay(ctx context.Context) (time.Duration, error)
	// Vitals returns what the shard says of itself.
	Vitals(ctx context.Context) (Vitals, error)
	// Close ends the conversation.
	Close() error
}

// Vitals are what a shard says of itself.
type Vitals struct {
	// Transactions is how many others have ended here so far, without the Watcher's own; -1: not known.
	Transactions int64
	// Log is where the log ends, in bytes. Replayed is the same of the replica that is the
	// furthest behind of those that are connected, Replica its name; "" if there is none.
	Log, Replayed int64
	Replica       string
}
