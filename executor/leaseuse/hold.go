package leaseuse

import (
	"slices"
	"time"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
)

// Hold is a part of a keyspace whose statements wait for a newer map, see
// [shardmap.Hold]. docs/design/moving.md says who waits, who passes and what a router
// acknowledges meanwhile.
type Hold struct {
	Keyspace string
	Transit  *shardmap.Transit
	// Owner is the shard that owns the part, as long as it is held.
	Owner string
	// Since is the version of the map by which this router began to hold it in this
	// way. Who used the owner before passes, or is ended.
	Since uint64
	// Files are those of the two shards that have one writer at a time. What is left to do
	// of the move has to write there: who wrote on one of them before Since passes, or is ended,
	// too, and transactions that have not wait before they do.
	Files []string
	// Table is the name of a table that is to be found elsewhere by the map of Since. Then all but Since is empty: who
	// uses the table by an older map is ended.
	Table string
}

// all reports whether those who pass are ended.
func (h *Hold) all() bool { return h.Transit.Hold == shardmap.HoldAll }

// holdsOf are the holds of a map. before are those of the one before it.
func holdsOf(snap *shardmap.Snapshot, before []Hold) []Hold {
	if !snap.Holding() {
		return nil
	}
	var out []Hold
	for i := range snap.State().Keyspaces {
		name := snap.State().Keyspaces[i].Name
		ix, _ := snap.Keyspace(name)
		for _, t := range ix.Holds() {
			h := Hold{Keyspace: name, Transit: t, Since: snap.Version()}
			var other string
			h.Owner, other = ix.Sides(t)
			for _, shard := range []string{h.Owner, other} {
				if sh, ok := snap.Shard(shard); ok && !sh.Can().Locks {
					h.Files = append(h.Files, shard)
				}
			}
			for j := range before {
				if before[j].Transit.ID == t.ID && before[j].Transit.Hold == t.Hold && before[j].Owner == h.Owner {
					h.Since = before[j].Since
				}
			}
			out = append(out, h)
		}
	}
	return out
}

// HoldOf returns the hold of a transit of a map that was served a moment ago. ok is
// false if it is held no more.
func (s *Served) HoldOf(t *shardmap.Transit) (h Hold, ok bool) {
	if all := s.holds.Load(); all != nil {
		for _, h := range *all {
			if h.Transit.ID == t.ID {
				return h, true
			}
		}
	}
	return Hold{}, false
}

// Crowded returns a hold for which a statement of a transaction has to wait that may write on
// a shard, nil if there is none: see [Hold.Files]. "" is any shard.
func (s *Served) Crowded(shard string, t *Turn) *Hold {
	if all := s.holds.Load(); all != nil {
		for i := range *all {
			h := &(*all)[i]
			if len(h.Files) > 0 && (shard == "" || slices.Contains(h.Files, shard)) && !t.Before(h) {
				return h
			}
		}
	}
	return nil
}

// change is what the installation of a map concerned.
type change struct {
	version uint64
	since   time.Time // when it was installed
	shardmap.Concern
}

// concerns reports whether what a Turn runs may have to do with the change. at and on are the Turn's.
func (c *change) concerns(at *string, on *plan.Statement) bool {
	switch {
	case c.All:
		return true
	case len(c.Shards) > 0 && (at == nil || slices.Contains(c.Shards, *at)):
		return true
	}
	return c.Strangers() && (on == nil || on.Strange || slices.ContainsFunc(on.Tables, func(t *shardmap.Table) bool { return c.Moves(t.Name) }))
}

// changesMax is how many installed maps are remembered.
const changesMax = 64

// noteChange returns the remembered changes with that to a new map; s.mu is held.
func (s *Served) noteChange(snap *shardmap.Snapshot) *[]change {
	var all []change
	if old := s.changes.Load(); old != nil {
		all = append(all, (*old)[max(0, len(*old)-changesMax+1):]...)
	}
	c := change{version: snap.Version(), since: time.Now(), Concern: shardmap.Concern{All: true}}
	if prev := s.snapshot.Load(); prev != nil {
		c.Concern = shardmap.Concerned(prev, snap)
	}
	all = append(all, c)
	return &all
}

// unconcerned returns the newest version, at most the given one, up to which no map after version from concerned what a
// Turn runs, and the change that did.
func (s *Served) unconcerned(from, version uint64, at *string, on *plan.Statement) (uint64, *change) {
	all := *s.changes.Load()
	if len(all) == 0 || all[0].version > from+1 && len(all) == changesMax {
		return min(from, version), nil // what was before is forgotten
	}
	for i := range all {
		if c := &all[i]; c.version > from && c.concerns(at, on) {
			return min(version, c.version-1), c
		}
	}
	return version, nil
}
