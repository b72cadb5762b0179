package executor

import (
	"sync"
	"sync/atomic"
	"time"
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
	t.uses.all = append(t.uses.all, shardUse{shard, version})
	t.uses.any.Store(true)
}

// Uses returns since which version the transaction is open on the shard; 0: it is not.
func (t *Turn) Uses(shard string) (version uint64) {
	if !t.uses.any.Load() {
		return 0
	}
	t.uses.mu.Lock()
	defer t.uses.mu.Unlock()
	for i := range t.uses.all {
		if t.uses.all[i].shard == shard {
			return t.uses.all[i].version
		}
	}
	return 0
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
	if t.ex.lease != nil {
		t.version.Store(0)
	}
}

// Resume is Begin in the same term of the lease: what was answered before Pause is
// still worth what it was.
func (t *Turn) Resume() {
	if t.ex.lease != nil {
		t.follow()
	}
}

// endEvery is how often a session is told to end what is in the way.
const endEvery = 50 * time.Millisecond

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
		for _, u := range t.uses.all {
			if u.shard != h.Owner || u.version >= h.Since {
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
