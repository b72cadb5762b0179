package leaseuse

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/planner/plan"
)

// uses are the shards on which a session has something open beyond its unit: a
// transaction. The session writes them, the executor reads them.
type uses struct {
	any atomic.Bool
	mu  sync.Mutex
	all []shardUse
	// ended is when the session was last told to end them.
	ended time.Time
}

type shardUse struct {
	shard   string
	version uint64
	wrote   uint64 // the version by which it first may have written there; 0: it has not
}

// before reports whether a hold has to wait for the use.
func (u *shardUse) before(h *Hold) bool {
	if u.shard == h.Owner && u.version < h.Since {
		return true
	}
	return u.wrote != 0 && u.wrote < h.Since && slices.Contains(h.Files, u.shard)
}

// Use notes that the session's transaction is open on a shard, from the time when
// its statements were routed by a map of that version. While the part of a keyspace
// is held that the shard owns, and the use is older than the hold, the map with the
// hold is not acknowledged.
func (t *Turn) Use(shard string, version uint64) {
	t.uses.mu.Lock()
	defer t.uses.mu.Unlock()
	for i := range t.uses.all {
		if t.uses.all[i].shard == shard {
			return
		}
	}
	t.uses.all = append(t.uses.all, shardUse{shard: shard, version: version})
	t.uses.any.Store(true)
}

// Wrote notes that the session's transaction, which is open on a shard, may write there from
// the time of a version on.
func (t *Turn) Wrote(shard string, version uint64) {
	if !t.uses.any.Load() {
		return
	}
	t.uses.mu.Lock()
	defer t.uses.mu.Unlock()
	for i := range t.uses.all {
		if u := &t.uses.all[i]; u.shard == shard && u.wrote == 0 {
			u.wrote = version
		}
	}
}

// Before reports whether the session's transaction is one that a hold has to wait for: the
// map with it is not acknowledged before that has ended, so it may go on.
func (t *Turn) Before(h *Hold) bool {
	if !t.uses.any.Load() {
		return false
	}
	t.uses.mu.Lock()
	defer t.uses.mu.Unlock()
	return slices.ContainsFunc(t.uses.all, func(u shardUse) bool { return u.before(h) })
}

// Unuse says that nothing is open any more.
func (t *Turn) Unuse() {
	if !t.uses.any.Load() {
		return
	}
	t.uses.mu.Lock()
	t.uses.all = t.uses.all[:0]
	t.uses.ended = time.Time{}
	t.uses.any.Store(false)
	t.uses.mu.Unlock()
}

// OnEnd sets what the executor calls when the session's transaction is in the way of
// a map and has to end. It must not wait for anything; it is called again while the
// transaction is open. Call OnEnd before the first Begin.
func (t *Turn) OnEnd(end func(Hold)) { t.end = end }

// Pause says that nothing is under way while the session waits, but what Use has
// noted. Resume must follow.
func (t *Turn) Pause() {
	if t.of.lease != nil {
		t.version.Store(0)
	}
}

// Resume is Begin in the same term of the lease: what was answered before Pause is
// still worth what it was.
func (t *Turn) Resume() {
	if t.of.lease != nil {
		t.follow()
	}
}

// endEvery is how often a session is told to end what is in the way.
const endEvery = 50 * time.Millisecond

// outdatedAfter is how long a statement may go on by a map in which its table is elsewhere: most end by themselves.
const outdatedAfter = 250 * time.Millisecond

// outdated ends a statement that uses a table which is to be found elsewhere by a newer map: it may wait on a shard for
// the change itself, which waits for this router to acknowledge the map.
func (t *Turn) outdated(on *plan.Statement, by *change) {
	if on == nil || t.end == nil || time.Since(by.since) < outdatedAfter {
		return
	}
	for _, table := range on.Tables {
		if !by.Tables[table.Name] {
			continue
		}
		t.uses.mu.Lock()
		again := time.Since(t.uses.ended) > endEvery
		if again {
			t.uses.ended = time.Now()
		}
		t.uses.mu.Unlock()
		if again {
			t.end(Hold{Table: table.QualifiedName(), Since: by.version})
		}
		return
	}
}

// inTheWay returns the version that can be acknowledged as far as this session's
// uses are concerned, at most the given one. Those that have to end are told so.
func (t *Turn) inTheWay(holds []Hold, version uint64) uint64 {
	if len(holds) == 0 || !t.uses.any.Load() {
		return version
	}
	t.uses.mu.Lock()
	defer t.uses.mu.Unlock()
	for i := range holds {
		h := &holds[i]
		for k := range t.uses.all {
			if !t.uses.all[k].before(h) {
				continue
			}
			version = min(version, h.Since-1)
			if h.all() && t.end != nil && time.Since(t.uses.ended) > endEvery {
				t.uses.ended = time.Now()
				t.end(*h)
			}
		}
	}
	return version
}
