package several

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
)

// Name is what such a conversation is called where a shard's name stands. No
// shard can have it.
const Name = "(several shards)"

// Host is what the session above provides. Its methods are called by the
// goroutine that calls Send and Receive.
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
	// Values makes what a router makes for rows that are inserted, in text.
	Values(list []planner.FillValue) ([][]byte, error)
	// Reader borrows a conversation with a replica of a shard for a read outside of
	// transactions, with settings s, where the session's read policy wants that; nil: the primary answers.
	Reader(ctx context.Context, shard string, s *executor.Settings) (*executor.Conn, error)
	// Wrote is told of each shard's conversation that is about to write.
	Wrote(c *executor.Conn)
	// Holder is who holds the conversations that are borrowed.
	Holder() *executor.Holder
	// Joined is told of each shard that becomes a part.
	Joined(shard string)
	// Kept is the conversation that the session keeps with the shard for its temporary objects and advisory locks, nil
	// if it keeps none. It is the shard's part, as what is in it is the session's.
	Kept(shard string) *executor.Conn
	// Counter is the session's, of sequences that are the default shard's own.
	Counter() *executor.Counter
	// Held are the session's WITH HOLD cursors.
	Held() *Held
}

// A job is one execution of a statement, as a portal holds it. It is used by the
// conversation's goroutine; between two steps other portals' jobs may run on the
// same parts if the execution is in portions, see execution.
type job interface {
	// step appends frames of DataRows, CopyData, CopyOutResponse or CopyInResponse
	// until there is about a chunk of them, or rows rows (0: any number), or the
	// end. done: the command is complete, with its tag; "SELECT" gets the number of
	// rows of the Execute added. A step that appends nothing and is not done is
	// called again.
	step(out []byte, rows int32) (frames []byte, done bool, tag string, err error)
	// stop ends it early and leaves its parts usable, or breaks them.
	stop()
}

// A copyJob is a job that takes the client's data (COPY ... FROM STDIN), after
// its first step has appended a CopyInResponse. step is not called again.
type copyJob interface {
	job
	// take has the body of one CopyData.
	take(data []byte) error
	// end is told that there is no more; it returns the tag.
	end() (tag string, err error)
}

// execution is what a job is made from.
type execution struct {
	st   *planner.Statement
	args *planner.Args
	desc *description
	// results are the format codes that the client asked for, as in Bind.
	results []int16
	// portion is how many rows a shard is asked for at a time; 0 is all. It is set
	// where the client reads in portions: between two steps other statements then
	// use the same parts, so that no answer may be left unread (see request.portion).
	portion int32
	// simple: it is of a simple Query.
	simple bool
	// named: the client prepared the statement by name, so it comes again.
	named bool
	// lasts: it has to be in the transaction, whose time it sees.
	lasts bool
}
