package leaseuse

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Turn is one session's part in the lease: under which map and term it runs what
// it runs now. A version of the map is acknowledged when no turn is
// under way by an older one. A Turn is used by one goroutine at a time.
type Turn struct {
	of      *Served
	version atomic.Uint64 // 0: nothing is under way
	term    uint64
	// at is the one shard that what is under way concerns; nil: any.
	at atomic.Pointer[string]
	// on is the statement that is under way; nil: any.
	on   atomic.Pointer[plan.Statement]
	uses uses
	end  func(Hold)
}

// Served is the map by which this process answers, under which lease, and what is under way by it and older ones.
type Served struct {
	lease    *shardmap.Lease // nil: none is needed
	snapshot atomic.Pointer[shardmap.Snapshot]
	holds    atomic.Pointer[[]Hold] // of snapshot; set before it
	changes  atomic.Pointer[[]change]

	mu      sync.Mutex
	changed chan struct{} // closed when the snapshot is replaced

	// turns are those of the sessions that there are.
	turns struct {
		mu  sync.Mutex
		all map[*Turn]struct{}
		// installed wakes Acknowledge; it holds one message.
		installed chan struct{}
	}
}

// New returns a Served without a map.
func New(lease *shardmap.Lease) *Served {
	s := &Served{lease: lease, changed: make(chan struct{})}
	s.turns.all, s.turns.installed = map[*Turn]struct{}{}, make(chan struct{}, 1)
	return s
}

// Install makes a map the one that is served. One goroutine at a time calls it.
func (s *Served) Install(snap *shardmap.Snapshot) {
	var before []Hold
	if all := s.holds.Load(); all != nil {
		before = *all
	}
	holds := holdsOf(snap, before)
	s.holds.Store(&holds)
	s.changes.Store(s.noteChange(snap))
	s.snapshot.Store(snap)
	s.lease.Install(snap.Version())
	select {
	case s.turns.installed <- struct{}{}:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Snapshot returns the map that is served, nil if there is none yet.
func (s *Served) Snapshot() *shardmap.Snapshot { return s.snapshot.Load() }

// Lease is the right to serve by the map, nil if none is needed.
func (s *Served) Lease() *shardmap.Lease { return s.lease }

// Changed is closed when a newer map is served than when it was called.
func (s *Served) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// NewTurn returns a session's Turn; Close must follow.
func (s *Served) NewTurn() *Turn {
	t := &Turn{of: s}
	if s.lease != nil {
		s.turns.mu.Lock()
		s.turns.all[t] = struct{}{}
		s.turns.mu.Unlock()
	}
	return t
}

// Close ends the use of the Turn.
func (t *Turn) Close() {
	t.version.Store(0)
	t.Unuse()
	t.of.turns.mu.Lock()
	defer t.of.turns.mu.Unlock()
	delete(t.of.turns.all, t)
}

// Begin says that what is run from now on is routed by the current map or a
// newer one. Call it before the map is looked at.
func (t *Turn) Begin() {
	s := t.of
	if s.lease == nil {
		return
	}
	t.At(nil)
	t.term = s.lease.Term()
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
func (t *Turn) On(st *plan.Statement) {
	if st != nil || t.on.Load() != nil {
		t.on.Store(st)
	}
}

// Term is the term of the lease in which the unit began.
func (t *Turn) Term() uint64 { return t.term }

// follow takes the version of the current map.
func (t *Turn) follow() {
	s := t.of
	// Stored first, then looked at again: the goroutine that installs a newer map either
	// is seen here or sees what was stored.
	for {
		v := s.snapshot.Load().Version()
		t.version.Store(v)
		if s.snapshot.Load().Version() == v {
			return
		}
	}
}

// End says that nothing is under way any more.
func (t *Turn) End() {
	if t.of.lease != nil {
		t.version.Store(0)
	}
}

// Holds reports whether the lease was held without a gap since Begin: what
// shards have answered since may be passed on.
func (t *Turn) Holds() bool { return t.of.lease == nil || t.of.lease.Holds(t.term) }

// Serving returns nil while the lease is live, else an error with code 57P03
// that says why it is not.
func (s *Served) Serving() error {
	if s.lease.Live() {
		return nil
	}
	return s.NotServing()
}

// NotServing is the error of a statement that the lease did not cover. Nothing
// was done.
func (s *Served) NotServing() *sqlstate.Error {
	err := sqlstate.New(sqlstate.CannotConnectNow,
		"the lease of this router on the directory has run out: its map (version %d) may be old, so it does not answer by it", s.Snapshot().Version()).
		WithHint("run it again, here or on another router: this one goes on by itself as soon as it reaches the directory")
	if cause := s.lease.Cause(); cause != nil {
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
func (s *Served) under(version uint64) uint64 {
	var holds []Hold
	if all := s.holds.Load(); all != nil {
		holds = *all
	}
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	for t := range s.turns.all {
		// The version first: a unit that begins takes the shard back before.
		if v := t.version.Load(); v != 0 && v < version {
			on := t.on.Load()
			up, by := s.unconcerned(v, version, t.at.Load(), on)
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

// Acknowledge tells the directory of each version by which all that is under
// way is routed. A long statement holds it up, as it has to, and so does a
// transaction that used a shard before a part of it was held.
func (s *Served) Acknowledge(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.turns.installed:
		}
		for pause := ackPauseMin; ; pause = min(2*pause, ackPauseMax) {
			newest := s.Snapshot().Version()
			oldest := s.under(newest)
			s.lease.Acknowledge(oldest)
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
