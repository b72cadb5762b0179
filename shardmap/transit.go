package shardmap

import (
	"slices"

	"github.com/cleavedb/cleave/keyspace"
)

// Part is a part of a keyspace that can move as a whole: the positions from Low
// to High, without the keys that are pinned, or the one key Key, pinned or not.
type Part struct {
	Low  []string `json:"low,omitempty"` // as in Range; nil: unbounded
	High []string `json:"high,omitempty"`
	Key  []string `json:"key,omitempty"`
}

// Hold says what routers do with statements that need a key of a transit.
type Hold string

// The holds.
const (
	// NoHold: statements go to the owner.
	NoHold Hold = ""
	// HoldNew: statements wait for a newer map, but for those of transactions that
	// used the owner before; a router acknowledges the map when those have ended.
	HoldNew Hold = "new"
	// HoldAll: as HoldNew, and the transactions that used the owner before are
	// ended with 40001.
	HoldAll Hold = "all"
)

// Transit is a part of a keyspace of which two shards have rows: one owns them, the
// other has a copy, not whole yet or kept for the way back. The map says who owns the
// keys; whichever of From and To does not has strangers (see [Snapshot.Strangers]).
type Transit struct {
	ID   string `json:"id"` // of the move
	Part
	From  string `json:"from"`
	To    string `json:"to"`
	Hold  Hold   `json:"hold,omitempty"`
	Epoch uint64 `json:"epoch"` // the version at which the transit last changed
}

// Clone returns a deep copy.
func (p Part) Clone() Part {
	p.Low, p.High, p.Key = slices.Clone(p.Low), slices.Clone(p.High), slices.Clone(p.Key)
	return p
}

// PutTransit adds a transit to a keyspace or replaces that with its ID.
func (s *State) PutTransit(ks string, t Transit) {
	s.editTransits(ks, func(all []Transit) []Transit {
		for i := range all {
			if all[i].ID == t.ID {
				all[i] = t
				return all
			}
		}
		return append(all, t)
	})
}

// DropTransit removes the transit with the ID, if there is one.
func (s *State) DropTransit(ks, id string) {
	s.editTransits(ks, func(all []Transit) []Transit {
		return slices.DeleteFunc(all, func(t Transit) bool { return t.ID == id })
	})
}

func (s *State) editTransits(ks string, edit func([]Transit) []Transit) {
	s.Keyspaces = slices.Clone(s.Keyspaces)
	for i := range s.Keyspaces {
		if s.Keyspaces[i].Name == ks {
			s.Keyspaces[i].Transits = edit(slices.Clone(s.Keyspaces[i].Transits))
		}
	}
}

// Keys returns the keys of a part of a keyspace, as an ownership that has them. A
// part with bounds has no key that is pinned. It is empty for an unknown keyspace or
// texts that are no keys.
func (s *Snapshot) Keys(ks string, p Part) keyspace.Ownership {
	return keyspace.Ownership{Keyspace: ks}
}

// Strangers returns the keys of which a shard may have rows without owning them, those
// of its transits; ok is false if there are none. A statement that is not confined to
// keys that the shard owns must leave such rows out.
func (s *Snapshot) Strangers(ks, shard string) (keys keyspace.Ownership, ok bool) {
	return keyspace.Ownership{}, false
}
