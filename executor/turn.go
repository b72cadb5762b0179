package executor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Turn is one session's part in the lease: under which map and term it runs what
// it runs now. The executor acknowledges a version of the map when no turn is
// under way by an older one. A Turn is used by one goroutine at a time.
type Turn struct {
	ex      *Executor
	version atomic.Uint64 // 0: nothing is under way
	term    uint64
	// at is the one shard that what is under way concerns; nil: any.
	at atomic.Pointer[string]
	// on is the statement that is under way; nil: any.
	on   atomic.Pointer[planner.Statement]
	uses uses
	end  func(Hold)
}

// turns are those of the sessions that there are.
type turns struct {
	mu  sync.Mutex
	all map[*Turn]struct{}
	// installed wakes acknowledge; it holds one message.
	installed chan struct{}
}

// NewTurn returns a session's Turn; Close must follow.
func (e *Executor) NewTurn() *Turn {
	t := &Turn{ex: e}
	if e.lease != nil {
		e.turns.mu.Lock()
		e.turns.all[t] = struct{}{}
		e.turns.mu.Unlock()
	}
	return t
}

// Close ends the use of the Turn.
func (t *Turn) Close() {
	t.version.Store(0)
	t.Unuse()
	t.ex.turns.mu.Lock()
	defer t.ex.turns.mu.Unlock()
	delete(t.ex.turns.all, t)
}

// Begin says that what is run from now on is routed by the current map or a
// newer one. Call it before the map is looked at.
func (t *Turn) Begin() {
	e := t.ex
	if e.lease == nil {
		return
	}
	t.At(nil)
	t.term = e.lease.Term()
	t.follow()
}

// At says that what is under way concerns one shard alone, by its name; nil: that it
// may concern any. It has to be nil when the map is looked at. A map that leaves
// that shard as it was is acknowledged meanwhile.
func (t *Turn) At(shard *string) {
	if shard != nil || t.at.Load() != nil {
		t.at.Store(shard)
	}
}

// On says that what is under way is one statement, planned and sent by the map of Begin or a newer one; nil: it may be
// anything. It has to be nil when the map is looked at. A change of the schema after which the statement's tables are
// where they were is acknowledged meanwhile.
func (t *Turn) On(st *planner.Statement) {
	if st != nil || t.on.Load() != nil {
		t.on.Store(st)
	}
}

// Term is the term of the lease in which the unit began.
func (t *Turn) Term() uint64 { return t.term }

// follow takes the version of the current map.
func (t *Turn) follow() {
	e := t.ex
	// Stored first, then looked at again: the goroutine that installs a newer map either
	// is seen here or sees what was stored.
	for {
		v := e.snapshot.Load().Version()
		t.version.Store(v)
		if e.snapshot.Load().Version() == v {
			return
		}
	}
}

// End says that nothing is under way any more.
func (t *Turn) End() {
	if t.ex.lease != nil {
		t.version.Store(0)
	}
}

// Holds reports whether the lease was held without a gap since Begin: what
// shards have answered since may be passed on.
func (t *Turn) Holds() bool { return t.ex.lease == nil || t.ex.lease.Holds(t.term) }

// Serving returns nil while the lease is live, else an error with code 57P03
// that says why it is not.
func (e *Executor) Serving() error {
	if e.lease.Live() {
		return nil
	}
	return e.NotServing()
}

// NotServing is the error of a statement that the lease did not cover. Nothing
// was done.
func (e *Executor) NotServing() *sqlstate.Error {
	err := sqlstate.New(sqlstate.CannotConnectNow,
		"the lease of this router on the directory has run out: its map (version %d) may be old, so it does not answer by it", e.Snapshot().Version()).
		WithHint("run it again, here or on another router: this one goes on by itself as soon as it reaches the directory")
	if cause := e.lease.Cause(); cause != nil {
		why := sqlstate.As(cause)
		err.Detail = why.Message
		if errors.Is(cause, shardmap.ErrMoved) || errors.Is(cause, shardmap.ErrTakenBack) {
			// It does not come back here: the cause says what is to be done.
			err.Hint = why.Hint
		}
	}
	return err
}

// under returns the oldest version by which something is under way, at most the
// given one.
func (e *Executor) under(version uint64) uint64 {
	var holds []Hold
	if all := e.holds.Load(); all != nil {
		holds = *all
	}
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	for t := range e.turns.all {
		// The version first: a unit that begins takes the shard back before.
		if v := t.version.Load(); v != 0 && v < version {
			on := t.on.Load()
			up, by := e.unconcerned(v, version, t.at.Load(), on)
			if by != nil {
				t.outdated(on, by)
			}
			version = up
		}
		version = t.inTheWay(holds, version)
	}
	return version
}

// Pauses between two looks at what is under way by an old map.
const (
	ackPauseMin = 200 * time.Microsecond
	ackPauseMax = 20 * time.Millisecond
)

// acknowledge tells the directory of each version by which all that is under
// way is routed. A long statement holds it up, as it has to, and so does a
// transaction that used a shard before a part of it was held.
func (e *Executor) acknowledge(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.turns.installed:
		}
		for pause := ackPauseMin; ; pause = min(2*pause, ackPauseMax) {
			newest := e.Snapshot().Version()
			oldest := e.under(newest)
			e.lease.Acknowledge(oldest)
			if oldest == newest {
				break
			}
			timer.Reset(pause)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
	}
}
