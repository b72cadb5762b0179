package several

import (
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner/plan"
)

// Name is what such a conversation is called where a shard's name stands. No
// shard can have it.
const Name = "(several shards)"

// Host is what the session above provides. Its methods are called by the
// goroutine that calls Send and Receive.
type Host interface {
	txn.Host
	// Values makes what a router makes for rows that are inserted, in text.
	Values(list []plan.FillValue) ([][]byte, error)
	// Planned is the session's statement of a text that it has made of a client's (plan.Statement.Shown), nil if there is none.
	Planned(text string) *plan.Statement
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
	st   *plan.Statement
	args *plan.Args
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
