package shardmap

import (
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Part is a part of a keyspace that can move as a whole: the positions from Low
// to High, without the keys that are pinned, or the one key Key, pinned or not.
type Part struct {
	Low  []string `json:"low,omitempty"` // as in Range; nil: unbounded
	High []string `json:"high,omitempty"`
	Key  []string `json:"key,omitempty"`
}

// Text returns the part for people: a range as [Index.RangeText] prints it, a key as "key 5".
func (p Part) Text() string {
	if p.Key != nil {
		return "key " + keyText(p.Key)
	}
	return boundsText(p.Low, p.High)
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
// other has a copy, not whole yet or kept so that it can be reversed. The map says who owns the
// keys; whichever of From and To does not has strangers (see [Snapshot.Strangers]).
type Transit struct {
	ID string `json:"id"` // of the move
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
	t.Part = t.Part.Clone()
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
// texts that are no keys. Its Epoch is 0.
func (s *Snapshot) Keys(ks string, p Part) keyspace.Ownership {
	ix, ok := s.keyspaces[ks]
	if !ok {
		return keyspace.Ownership{Keyspace: ks}
	}
	own := ix.nothing()
	if span, err := ix.span(p.Clone()); err == nil {
		ix.addSpan(&own, span)
	}
	return own
}

// Strangers returns the keys of which a shard may have rows without owning them, those
// of its transits; ok is false if there are none. A statement that is not confined to
// keys that the shard owns must leave such rows out. Its Epoch is the highest of the
// transits.
func (s *Snapshot) Strangers(ks, shard string) (keys keyspace.Ownership, ok bool) {
	ix, known := s.keyspaces[ks]
	if !known || len(ix.def.Transits) == 0 {
		return keyspace.Ownership{Keyspace: ks}, false
	}
	own := ix.nothing()
	for i := range ix.def.Transits {
		t := &ix.def.Transits[i]
		span, err := ix.span(t.Part.Clone())
		if err != nil || t.From != shard && t.To != shard || ix.spanOwner(span) == shard {
			continue // never an error: the map was checked
		}
		ix.addSpan(&own, span)
		own.Epoch, ok = max(own.Epoch, t.Epoch), true
	}
	own.Intervals = keyspace.MergeIntervals(own.Strategy, own.Intervals)
	own.PinnedElsewhere = slices.DeleteFunc(own.PinnedElsewhere, func(k keyspace.Key) bool {
		return slices.ContainsFunc(own.Pinned, k.Equal)
	})
	return own, ok
}

// span is a [Part] as typed values: the one key, or the interval.
type span struct {
	key keyspace.Key
	enc string // of key
	iv  keyspace.Interval
}

// span parses a part, and brings its texts to their canonical form.
func (ix *Index) span(p Part) (span, *sqlstate.Error) {
	k := ix.def
	if p.Key != nil {
		if p.Low != nil || p.High != nil {
			return span{}, invalid(sqlstate.InvalidObjectDefinition, "a part of keyspace %q has both a key and bounds", k.Name)
		}
		key, err := parseWhole(k, p.Key)
		if err != nil {
			return span{}, err
		}
		return span{key: key, enc: string(keyspace.AppendOrdered(nil, key))}, nil
	}
	switch k.Strategy {
	case keyspace.List:
		return span{}, invalid(sqlstate.InvalidObjectDefinition, "keyspace %q lists its keys, so a part of it is one key", k.Name)
	case keyspace.Hash:
		return hashSpan(k, p)
	}
	var low, high keyspace.Key
	for _, b := range []struct {
		texts []string
		key   *keyspace.Key
	}{{p.Low, &low}, {p.High, &high}} {
		if b.texts == nil {
			continue
		}
		key, err := keyBound(k, b.texts)
		if err != nil {
			return span{}, err
		}
		*b.key = key
	}
	iv := keyspace.NewKeyInterval(low, high)
	if !iv.Last && iv.HighKey <= iv.LowKey {
		return span{}, emptyPart(k, p)
	}
	return span{iv: iv}, nil
}

// hashSpan parses a part of a hash keyspace.
func hashSpan(k *Keyspace, p Part) (span, *sqlstate.Error) {
	iv := keyspace.WholeHash()
	if p.Low != nil {
		n, err := positionBound(k, p.Low)
		if err != nil {
			return span{}, err
		}
		iv.Low = n
	}
	if p.High != nil {
		n, err := positionBound(k, p.High)
		if err != nil {
			return span{}, err
		}
		iv.High, iv.Last = n, false
	}
	if !iv.Last && iv.High <= iv.Low {
		return span{}, emptyPart(k, p)
	}
	return span{iv: iv}, nil
}

func emptyPart(k *Keyspace, p Part) *sqlstate.Error {
	err := invalid(sqlstate.InvalidObjectDefinition, "part %s of keyspace %q is empty", boundsText(p.Low, p.High), k.Name)
	err.Range = boundsText(p.Low, p.High)
	return err
}

// spanOwner is the shard that owns the first key of a span.
func (ix *Index) spanOwner(s span) string {
	if s.key == nil {
		return ix.def.Ranges[ix.rangeFrom(s.iv)].Shard
	}
	if i, ok := ix.pins[s.enc]; ok {
		return ix.def.Pins[i].Shard
	}
	return ix.UnpinnedOwner(s.key)
}

// rangeFrom is the range in which an interval begins.
func (ix *Index) rangeFrom(iv keyspace.Interval) int {
	if ix.def.Strategy == keyspace.Hash {
		return ix.LocateHash(iv.Low)
	}
	return ix.LocateOrdered([]byte(iv.LowKey))
}

// contains reports whether a key that is not pinned lies in an interval.
func (ix *Index) contains(iv keyspace.Interval, k keyspace.Key) bool {
	if ix.def.Strategy == keyspace.Hash {
		return iv.ContainsHash(keyspace.HashKey(ix.def.Seed, k))
	}
	return iv.ContainsKey(keyspace.AppendOrdered(nil, k))
}

// nothing is an ownership of nothing in the keyspace.
func (ix *Index) nothing() keyspace.Ownership {
	return keyspace.Ownership{
		Keyspace: ix.def.Name,
		Strategy: ix.def.Strategy,
		Types:    slices.Clone(ix.def.Types),
		Seed:     ix.def.Seed,
	}
}

// addSpan adds the keys of a span.
func (ix *Index) addSpan(own *keyspace.Ownership, s span) {
	if s.key != nil {
		own.Pinned = append(own.Pinned, s.key)
		return
	}
	own.Intervals = append(own.Intervals, s.iv)
	for _, k := range ix.pinKeys {
		if ix.contains(s.iv, k) {
			own.PinnedElsewhere = append(own.PinnedElsewhere, k)
		}
	}
}
