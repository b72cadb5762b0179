package several

import (
	"sync"
	"sync/atomic"

	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// transaction is what is open on shards: a transaction block, or what one unit of messages outside of a block does. It
// knows the shards that take part, what has to be begun on those to come, and how texts are run on them; it knows nothing
// of the client's messages, portals and cursors.
type transaction struct {
	conns
	explain.Trace
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
	bounds   limits.Bounds
	units    [4]planner.Units // of shardsOf
	portalNo int              // names of portals on shards
}

// asides are what shards say beside their answers, until the client is told.
type asides struct {
	mu     sync.Mutex
	frames []byte
	cut    map[string]bool // notices of names that are too long, since the last ReadyForQuery
	// setting: a statement that changes settings is run.
	setting bool
}

// nameTooLong is the code with which PostgreSQL says that it cuts a name short.
const nameTooLong = "42622"

// notice passes a shard's notice on.
func (a *asides) notice(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(frame) > wire.Header && frame[0] == wire.NoticeResponse && wire.ParseReport(frame[wire.Header:]).Code == nameTooLong {
		if a.cut[string(frame)] {
			return // the notice is about the text, which several shards read
		}
		if a.cut == nil {
			a.cut = map[string]bool{}
		}
		a.cut[string(frame)] = true
	}
	if len(a.frames)+len(frame) <= noticesMax {
		a.frames = append(a.frames, frame...)
	}
}

// noticesMax bounds the notices that wait to be passed on, bytes.
const noticesMax = 1 << 20

// take appends what the client is to be told.
func (a *asides) take(out []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	out = append(out, a.frames...)
	a.frames = a.frames[:0]
	return out
}

// parameter passes a changed parameter on, if the statement was one that changes
// the session's settings.
func (a *asides) parameter(name, value string) {
	if !a.setting {
		return
	}
	a.notice(wire.AppendParameterStatus(nil, name, value))
}
