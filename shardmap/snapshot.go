package shardmap

import "github.com/cleavedb/cleave/keyspace"

// Snapshot is one version of the shard map: a valid [State] with the indexes
// that look positions up. It is immutable and safe for concurrent use; what its
// methods return belongs to it and must not be changed (take State().Clone()
// to edit).
type Snapshot struct {
	state     State
	shards    map[string]*Shard
	tables    map[tableName]*Table
	keyspaces map[string]*Index
	sequences map[tableName]*Sequence
	views     map[tableName]*View
	functions map[tableName]*Function
	// unpromised are the names of functions that may give another value each time, see Unpromised.
	unpromised map[string]bool
	// restricted: a shard is read-only or out of service.
	restricted bool
	// draining: a shard is being drained.
	draining bool
	// holding: a transit has a hold.
	holding bool
	units   int
	rules   []rule // the constraints
}

// tableName is the key of the table index; a struct of two strings is hashed
// in place, so a look-up allocates nothing.
type tableName struct{ schema, name string }

// NewSnapshot validates a state and indexes it. The state is copied: later
// changes to s do not reach the snapshot. Key texts are brought to their
// canonical form (an int8 bound "007" becomes "7").
//
// The error is a *sqlstate.Error that wraps [ErrInvalid] and says which part
// of the map is wrong and what would be right. A state of Version 0 is one that
// no directory has stored yet, for example a transaction's private overlay.
func NewSnapshot(s State) (*Snapshot, error) {
	return build(s.Clone())
}

// build is NewSnapshot for a state that nobody else holds.
func build(s State) (*Snapshot, error) {
	normalise(&s)
	snap := &Snapshot{state: s}
	if err := snap.index(); err != nil {
		return nil, err
	}
	return snap, nil
}

// normalise makes equal states deeply equal, whether they were built in Go or
// decoded: lists that the stored form always writes are never nil, those that
// it leaves out when empty are nil.
func normalise(s *State) {
	s.Shards = present(s.Shards)
	s.Keyspaces = present(s.Keyspaces)
	s.Tables = present(s.Tables)
	s.Sequences = absent(s.Sequences)
	s.Constraints = absent(s.Constraints)
	for i := range s.Constraints {
		c := &s.Constraints[i]
		c.Keys, c.Low, c.High = absent(c.Keys), absent(c.Low), absent(c.High)
		if len(c.Shards) == 0 {
			c.Shards = nil
		}
	}
	s.Views, s.Functions, s.Declarations = absent(s.Views), absent(s.Functions), absent(s.Declarations)
	for i := range s.Shards {
		if len(s.Shards[i].Labels) == 0 {
			s.Shards[i].Labels = nil
		}
		s.Shards[i].Replicas = absent(s.Shards[i].Replicas)
	}
	for i := range s.Keyspaces {
		k := &s.Keyspaces[i]
		k.Types = present(k.Types)
		k.Ranges, k.Values, k.Pins = absent(k.Ranges), absent(k.Values), absent(k.Pins)
		k.Transits = absent(k.Transits)
	}
	for i := range s.Tables {
		t := &s.Tables[i]
		t.Columns = present(t.Columns)
		t.ShardKey = absent(t.ShardKey)
	}
}

func present[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func absent[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// State returns the map as data. Read-only: Clone it before editing.
func (s *Snapshot) State() *State { return &s.state }

// Version returns the number of this version of the map, 0 if it was never stored.
func (s *Snapshot) Version() uint64 { return s.state.Version }

// SchemaVersion returns the version at which a keyspace's definition, a table or,
// by a statement that is in the history, anything else of the shards' schema last changed.
// Plans made under one SchemaVersion, and what shards have prepared, stay valid while it lasts.
func (s *Snapshot) SchemaVersion() uint64 { return s.state.SchemaVersion }

// Shards returns all shards, in the order in which they were added. Read-only.
func (s *Snapshot) Shards() []Shard { return s.state.Shards }

// Shard returns the shard of that name.
func (s *Snapshot) Shard(name string) (*Shard, bool) {
	sh, ok := s.shards[name]
	return sh, ok
}

// Table returns the table of that schema and name, both as PostgreSQL stores
// them (folded, unquoted). It does not allocate.
func (s *Snapshot) Table(schema, name string) (*Table, bool) {
	t, ok := s.tables[tableName{schema, name}]
	return t, ok
}

// Keyspace returns the index of the keyspace of that name.
func (s *Snapshot) Keyspace(name string) (*Index, bool) {
	ix, ok := s.keyspaces[name]
	return ix, ok
}

// Ownership returns what a shard owns of a keyspace, for its guards: intervals
// merged where they touch, listed keys, the pins that bring keys in, and those
// that take keys of its own intervals or lists out. Pins to other shards of
// keys that it would not own anyway are left out, so that a guard stays as
// small as what its shard holds.
//
// Epoch is the highest epoch among the returned parts, 0 if nothing is owned.
// It is not monotonic: a shard that gives a range away keeps the epochs of what
// remains. An unknown keyspace or shard owns nothing.
func (s *Snapshot) Ownership(ks, shard string) keyspace.Ownership {
	ix, ok := s.keyspaces[ks]
	if !ok {
		return keyspace.Ownership{Keyspace: ks}
	}
	return ix.ownership(shard)
}

func (ix *Index) ownership(shard string) keyspace.Ownership {
	def := ix.def
	own := ix.nothing()
	for i := 0; i < len(def.Ranges); i++ {
		if def.Ranges[i].Shard != shard {
			continue
		}
		first := i
		own.Epoch = max(own.Epoch, def.Ranges[i].Epoch)
		for i+1 < len(def.Ranges) && def.Ranges[i+1].Shard == shard {
			i++
			own.Epoch = max(own.Epoch, def.Ranges[i].Epoch)
		}
		own.Intervals = append(own.Intervals, ix.interval(first, i))
	}
	for i := range def.Values {
		if def.Values[i].Shard == shard {
			own.Listed = append(own.Listed, ix.valueKeys[i])
			own.Epoch = max(own.Epoch, def.Values[i].Epoch)
		}
	}
	for i := range def.Pins {
		switch {
		case def.Pins[i].Shard == shard:
			own.Pinned = append(own.Pinned, ix.pinKeys[i])
		case ix.UnpinnedOwner(ix.pinKeys[i]) == shard:
			own.PinnedElsewhere = append(own.PinnedElsewhere, ix.pinKeys[i])
		default:
			continue
		}
		own.Epoch = max(own.Epoch, def.Pins[i].Epoch)
	}
	return own
}

// interval returns the span from the first to the last of neighbouring ranges.
func (ix *Index) interval(first, last int) keyspace.Interval {
	end := last + 1
	iv := keyspace.Interval{Last: end == len(ix.def.Ranges)}
	if ix.def.Strategy == keyspace.Hash {
		iv.Low = ix.lowHash(first)
		if !iv.Last {
			iv.High = ix.lowHash(end)
		}
		return iv
	}
	iv.LowKey, iv.LowValues = ix.lowKey(first), ix.lowValues[first]
	if !iv.Last {
		iv.HighKey, iv.HighValues = ix.lowKey(end), ix.lowValues[end]
	}
	return iv
}
