package sim

import (
	"slices"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
)

// shard is a database. A row is the list of the writes that it has seen.
type shard struct {
	w     *world
	name  string
	rows  map[int][]int
	guard *keyspace.Owner
	token uint64 // the greatest that has seized it
	log   []entry
	open  []*txn

	owned    keyspace.Ownership // what the guard was made of
	captures map[string]*capture
	applied  map[string]engine.Position
	appliers map[string]*applier // the one of each stream
	loaded   map[string][]engine.LoadedTable
	loads    map[string]int // by stream: another number ends the loads that are under way
	lives    int            // how often it has crashed
	changed  chan struct{}  // closed with the next change, and made anew
	down     chan struct{}  // closed with the next crash, and made anew
}

// entry is a change in the log: of one key, committed.
type entry struct {
	key           int
	before, after []int
}

// txn is a transaction on one shard. Its locks are on rows; that it locks anything at
// all locks the table against a fence.
type txn struct {
	locked  map[int]bool // read FOR UPDATE or written
	written map[int][]int
	wrote   bool
}

func newShard(w *world, name string) *shard {
	return &shard{w: w, name: name, rows: map[int][]int{}, captures: map[string]*capture{}, applied: map[string]engine.Position{},
		appliers: map[string]*applier{}, loaded: map[string][]engine.LoadedTable{}, loads: map[string]int{},
		changed: make(chan struct{}), down: make(chan struct{})}
}

func (s *shard) begin() *txn {
	t := &txn{locked: map[int]bool{}, written: map[int][]int{}}
	s.open = append(s.open, t)
	return t
}

func (s *shard) end(t *txn) {
	s.open = slices.DeleteFunc(s.open, func(o *txn) bool { return o == t })
}

func (s *shard) alive(t *txn) bool { return slices.Contains(s.open, t) }

// free reports whether a transaction can have the lock on a row; a file has one lock for all.
func (s *shard) free(t *txn, key int) bool {
	for _, o := range s.open {
		if o != t && (o.locked[key] || s.w.files && len(o.locked) > 0) {
			return false
		}
	}
	return true
}

// mine reports whether somebody without a transaction can write what concerns no row: guards, positions.
func (s *shard) mine() bool { return !s.w.files || s.free(nil, 0) }

// read returns what a transaction sees (nil: outside of one).
func (s *shard) read(t *txn, key int) []int {
	if t != nil {
		if ids, ok := t.written[key]; ok {
			return ids
		}
	}
	return s.rows[key]
}

// write is refused by the guard, or locks the row and writes it.
func (s *shard) write(t *txn, key int, ids []int) (ok bool) {
	if !s.guard.Owns(keyOf(key)) {
		return false
	}
	t.locked[key], t.wrote = true, true
	t.written[key] = ids
	return true
}

func (s *shard) commit(t *txn) {
	for _, key := range keys {
		if ids, ok := t.written[key]; ok {
			s.put(key, ids)
		}
	}
	s.end(t)
}

func (s *shard) setGuard(guard *keyspace.Owner) {
	s.guard = guard
	for _, k := range keys {
		s.w.dirty[k] = true
	}
}

// put changes a row, and the log.
func (s *shard) put(key int, ids []int) {
	s.w.dirty[key] = true
	s.log = append(s.log, entry{key, s.rows[key], ids})
	close(s.changed)
	s.changed = make(chan struct{})
	if ids == nil {
		delete(s.rows, key)
		return
	}
	s.rows[key] = ids
}

// crash ends every transaction, and everybody's connection.
func (s *shard) crash() {
	s.open = nil
	s.lives++
	close(s.down)
	s.down = make(chan struct{})
}

// may reports whether a coordinator with that token may change something here.
func (s *shard) may(token uint64) bool { return s.w.o.Break == NoToken || token >= s.token }

func (s *shard) seize(token uint64) bool {
	if token < s.token {
		return false
	}
	s.token = token
	return true
}

// fence is what the fence waits for.
func (s *shard) fenceFree() bool {
	for _, t := range s.open {
		if t.wrote && s.w.o.Break != NoWriterLock {
			return false
		}
		if len(t.locked) > 0 && !t.wrote {
			return false
		}
	}
	return true
}
