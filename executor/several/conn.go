package several

import (
	"context"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
)

// Name is what such a conversation is called where a shard's name stands. No
// shard can have it.
const Name = "(several shards)"

// Host is what the session above provides.
type Host interface {
	// Snapshot is the map that statements are planned with.
	Snapshot() *shardmap.Snapshot
	// Settings are the session's, own ones (cleave.*) included.
	Settings() *executor.Settings
	// Waiting is the context of what may wait: it ends with a cancel, the statement's
	// timeout, or the client.
	Waiting() context.Context
	// Wrote is told of each shard's conversation that is about to write.
	Wrote(c *executor.Conn)
}

// part is one shard's part in the conversation.
type part struct {
	shard string
	conn  *executor.Conn
	begun bool // a transaction is open on it
	wrote bool // something in it may have written
}

// A job is one execution of a statement, as a portal holds it. It is used by the
// conversation's goroutine; between two steps other portals' jobs may run on the
// same parts, so a job that leaves answers unread on a part says so in busy.
type job interface {
	// step appends frames of DataRows, CopyData or CopyOutResponse until there is
	// about a chunk of them, or rows rows (0: any number), or the end. done: the
	// command is complete, with its tag.
	step(out []byte, rows int32) (frames []byte, done bool, tag string, err error)
	// stop ends it early and leaves its parts usable, or breaks them.
	stop()
}

// execution is what a job is made from.
type execution struct {
	st   *planner.Statement
	args *planner.Args
	// results are the format codes that the client asked for, as in Bind.
	results []int16
}
