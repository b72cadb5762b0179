package several

import (
	"sync/atomic"

	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/planner"
)

// transaction is what is open on shards: a transaction block, or what one unit of messages outside of a block does. It
// knows the shards that take part, what has to be begun on those to come, and how texts are run on them; it knows nothing
// of the client's messages, portals and cursors.
type transaction struct {
	conns
	trace
	aside  asides
	shared *Shared
	opt    Options

	parts []*part
	block bool // inside a transaction block
	saves pgbackend.Savepoints[struct{}]
	modes []string
	// failed: nothing but the end of the transaction, or a savepoint, is left;
	// lost: not even a savepoint.
	failed, lost bool
	culprit      string // the shard that failed last
	setter       string // the shard that ran the last statement with set_config()
	readOnly     bool   // the block was READ ONLY before it wrote: what may have written has not
	clockOn      string // the shard whose transaction's time is the transaction's, see clock
	clockText    string
	// proven are the shards whose snapshots fit each other, see consistent.
	proven map[string]bool
	waitID string // see watchLocks

	// Of the statement that is under way:

	// passed: rows of it went to the session.
	passed atomic.Bool
	// replicas: it may read on replicas; onReplicas: one of the unit has.
	replicas, onReplicas bool
	// counts: it may call nextval() of the default shard's own sequences.
	counts   bool
	bounds   bounds
	units    [4]planner.Units // of shardsOf
	portalNo int              // names of portals on shards
}
