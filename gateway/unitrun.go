package gateway

import (
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/notify"
	"github.com/cleavedb/cleave/gateway/stats"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// unitRun runs a unit's statements on shards: it reaches the shard of each, sends, relays the answers, ends transactions, and
// says what is known after a loss. It knows nothing of the client's messages.
//
//	admit ─▶ choose ─▶ reach ─▶ (sent on pipe) ─▶ converse ─▶ conversed ─▶ the next one, or endUnit
//	  │                  │                                       │
//	  │ a move holds     ├─ in the transaction: reachInTx        ├─ notOwner, lost, a replica's error: undo, errAgain
//	  ▼                  ├─ in a schema change: reachInSchema    └─ what is known (docs/design/gateway.md)
//	await                ├─ leaves something: reachPinned
//	                     └─ several shards: reachSeveral
type unitRun struct {
	planning
	srv   *Server
	nc    net.Conn
	pid   uint32
	start Startup
	id    Identity // who the client is

	r *wire.Reader
	w writer
	// ahead is how many bytes of the client's frames at hand come after the one
	// that is handled; a COPY takes them back to the reader.
	ahead int
	// urgent: an error goes to the client at once.
	urgent bool

	interrupts interrupts
	gucs       gucs
	tx         transaction
	pipe       link
	shards     shardConns
	// stats is what is noted of the statement that runs.
	stats stats.Session
	// turn is the part in the router's lease; see lease.go.
	turn *leaseuse.Turn
	unit unit

	statements pgbackend.Statements[*statement]
	portals    pgbackend.Portals[*portal]
	listener   notify.Listener
	sequences  sessionSequences
	// held are its WITH HOLD cursors.
	held several.Held
	// progress is what cleave.sessions shows of a statement over several shards.
	progress atomic.Pointer[several.Progress]

	// resolve sends what was parsed and waits; values makes ids and the values of sequences.
	resolve func() error
	values  func(f *planner.Fill, args *planner.Args) ([][]byte, error)
}

// wire gives the parts what they need of each other.
func (x *unitRun) wire() {
	s := x.srv
	x.w.onParameter, x.w.guard = x.gucs.note, x.pipe.guardAnswer
	x.w.least = func() string {
		return strings.Trim(x.gucs.settings.Value("client_min_messages"), "'")
	}
	x.stats = s.sinks.Session(stats.Who{User: x.start.User, Application: x.gucs.applicationName}, x.gucs.parent)
	x.tx = transaction{gucs: &x.gucs, turn: x.turn, deferredMax: s.limits.DeferredMax}
	x.pipe.tx = &x.tx
	b := &x.shards
	b.gucs, b.interrupts, b.stats, b.tx, b.pipe = &x.gucs, &x.interrupts, &x.stats, &x.tx, &x.pipe
	x.planning = planning{ex: s.ex, turn: x.turn, id: &x.id, gucs: &x.gucs, tx: &x.tx, shards: b, listener: &x.listener}
	x.turn.OnEnd(x.interrupts.askEnd)
	x.interrupts.since.Store(time.Now().UnixNano())
}

// unit is what is answered by one ReadyForQuery: a simple query, or the messages
// up to a Sync. It can be run again as long as nothing irrevocable was done.
type unit struct {
	open    bool
	replay  []byte // its frames of earlier batches
	long    bool   // they were too many to be kept
	mark    mark
	version uint64 // of the map when it began
	// on is the only statement that was sent; several: there is more than one, see runs.
	on      *planner.Statement
	several bool
	// effects: something happened that cannot be repeated.
	effects bool
	// executed: messages of the extended protocol have run statements that a later one before the Sync shares its transaction with.
	executed bool
	// snapped: a statement has been judged, outside of a transaction, for which PostgreSQL takes a snapshot.
	snapped bool
	// executes is the EXECUTE that was bound, if nothing else was.
	executes *planner.Statement
	binds    int
	// reuses: a statement of it was prepared before.
	reuses bool
	// bound: the transaction was bound to its shard in this unit.
	bound    bool
	tries    int
	newer    int // how many of the tries were by a newer map
	replaced []replacedStatement
	// asking: a statement has begun whose Execute has not come; asked is when the client was first awaited for it, see late.
	asking bool
	asked  time.Time
}

// routedBy begins it again by another version of the map.
func (u *unit) routedBy(version uint64) { u.version, u.on, u.several = version, nil, false }

type replacedStatement struct {
	name string
	was  *statement
}
