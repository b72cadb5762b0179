package engine

import "context"

// Evictor is implemented by Movers that can delete rows which a shard has without
// owning them. A check that finds such rows calls it.
type Evictor interface {
	// Evict deletes the rows of a set, past guards and triggers, and needs no token.
	// sure is called when they are deleted and not committed yet: a move that brings
	// them, begun later than sure looks, waits for the end of this. They stay if it
	// returns an error, or, with 40001, if there are not want of them.
	Evict(ctx context.Context, set Set, want int64, sure func(context.Context) error) error
}

// Discarder is implemented by Shards whose Install makes a database where there was none.
type Discarder interface {
	// Discard closes the Shard and removes the database, if this Shard's Install has made it.
	Discard() error
}
