package shardmap

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
)

// Units returns how many assignments the map has. They are numbered from 0: keyspace by
// keyspace in the order of State, in each as [Keyspace.PlacementUnits] lists them. A number is
// good for one version of the map.
func (s *Snapshot) Units() int { return s.units }

// FirstUnit is the number of the keyspace's first assignment, see [Snapshot.Units].
func (ix *Index) FirstUnit() int { return ix.first }

// UnitCount is how many assignments the keyspace has.
func (ix *Index) UnitCount() int { return len(ix.def.Ranges) + len(ix.def.Values) + len(ix.def.Pins) }

// Unit returns what an assignment of the keyspace is of, by its number less FirstUnit, and
// its owner. kind is "range", "value" or "pin". Read-only.
func (ix *Index) Unit(n int) (p Part, shard, kind string) {
	def := ix.def
	if n < len(def.Ranges) {
		r := &def.Ranges[n]
		return Part{Low: r.Low, High: r.High}, r.Shard, "range"
	}
	if n -= len(def.Ranges); n < len(def.Values) {
		return Part{Key: def.Values[n].Key}, def.Values[n].Shard, "value"
	}
	n -= len(def.Values)
	return Part{Key: def.Pins[n].Key}, def.Pins[n].Shard, "pin"
}

// numberUnits gives the assignments their numbers.
func (s *Snapshot) numberUnits() {
	for i := range s.state.Keyspaces {
		ix := s.keyspaces[s.state.Keyspaces[i].Name]
		ix.first = s.units
		s.units += ix.UnitCount()
	}
}

// Carry turns figures of another map's units into those of this one's: a range that was cut
// gives each piece its share (by positions in a hash keyspace, else in equal parts), one that was
// merged has the sum, a pin that is gone gives its figure to what its key belongs to now.
// A pin that is new has nothing yet. What is in keyspaces that are not in both is lost.
// figures may be shorter than from has units: the rest is 0.
func (s *Snapshot) Carry(from *Snapshot, figures []float64) []float64 {
	out := make([]float64, s.units)
	if from == s {
		copy(out, figures)
		return out
	}
	if len(figures) < from.units {
		figures = append(make([]float64, 0, from.units), figures...)[:from.units]
	}
	for name, ix := range s.keyspaces {
		old, ok := from.keyspaces[name]
		if !ok || !sameDefinition(old.def, ix.def) {
			continue
		}
		was, is := figures[old.first:old.first+old.UnitCount()], out[ix.first:ix.first+ix.UnitCount()]
		ix.carryRanges(old, was, is)
		for i, key := range old.valueKeys {
			if at, ok := ix.values[string(keyspace.AppendOrdered(nil, key))]; ok {
				is[int(at)] += was[i]
			}
		}
		ranges, values := len(old.def.Ranges), len(old.def.Values)
		for i, key := range old.pinKeys {
			if a, err := ix.Locate(key); err == nil {
				is[a.Unit-ix.first] += was[ranges+values+i]
			}
		}
	}
	return out
}

// carryRanges walks both chains of ranges at once, piece by piece.
func (ix *Index) carryRanges(old *Index, was, is []float64) {
	pieces := func(each func(i, j int)) {
		for i, j := 0, 0; i < len(old.def.Ranges) && j < len(ix.def.Ranges); {
			each(i, j)
			end := compareLows(old, i+1, ix, j+1)
			if end <= 0 {
				i++
			}
			if end >= 0 {
				j++
			}
		}
	}
	if ix.def.Strategy == keyspace.Hash {
		pieces(func(i, j int) {
			low := max(old.lowHash(i), ix.lowHash(j))
			piece := min(old.restHash(i, low), ix.restHash(j, low))
			is[j] += was[i] * float64(piece) / max(1, float64(old.restHash(i, old.lowHash(i))))
		})
		return
	}
	count := make([]int32, len(old.def.Ranges))
	pieces(func(i, _ int) { count[i]++ })
	pieces(func(i, j int) { is[j] += was[i] / float64(count[i]) })
}

// restHash is how many positions range i has from low on, less one in the last range, whose
// end is no number.
func (ix *Index) restHash(i int, low int64) uint64 {
	if i+1 < len(ix.def.Ranges) {
		return uint64(ix.lowHash(i+1)) - uint64(low)
	}
	return ^uint64(0)>>1 - uint64(low)
}

// PlacementShards is what placement has to know of shards.
func PlacementShards(shards []Shard) []placement.Shard {
	out := make([]placement.Shard, len(shards))
	for i := range shards {
		out[i] = placement.Shard{Name: shards[i].Name, Weight: shards[i].Weight, Labels: shards[i].Labels}
	}
	return out
}

// PlacementUnits returns what has an owner in a valid keyspace: its ranges, then
// its values, then its pins. They are labelled keyspace=NAME, kind=range, value or
// pin, and values and pins key=THE KEY, its columns joined by ", ". A hash range has
// its share of the positions, from 0 to 1, as its size, everything else 0; who
// knows rows or bytes sets those.
func (k *Keyspace) PlacementUnits() []placement.Unit {
	out := make([]placement.Unit, 0, len(k.Ranges)+len(k.Values)+len(k.Pins))
	add := func(kind, text, owner string, key []string) *placement.Unit {
		out = append(out, placement.Unit{Name: k.Name + " " + kind + " " + text, Owner: owner, Position: UnitPosition(k.Seed, key),
			Labels: map[string]string{"keyspace": k.Name, "kind": kind}})
		return &out[len(out)-1]
	}
	for i := range k.Ranges {
		r := &k.Ranges[i]
		u := add("range", "["+boundText(r.Low, "-inf")+", "+boundText(r.High, "inf")+")", r.Shard, r.Low)
		if k.Strategy == keyspace.Hash {
			low, high := hashBound(r.Low, math.MinInt64), hashBound(r.High, math.MaxInt64)
			u.Position, u.Size = low, float64(uint64(high)-uint64(low))/(1<<64)
		}
	}
	for i := range k.Values {
		key := strings.Join(k.Values[i].Key, ", ")
		add("value", "("+key+")", k.Values[i].Shard, k.Values[i].Key).Labels["key"] = key
	}
	for i := range k.Pins {
		key := strings.Join(k.Pins[i].Key, ", ")
		add("pin", "("+key+")", k.Pins[i].Shard, k.Pins[i].Key).Labels["key"] = key
	}
	return out
}

// UnitPosition is the position for proposals of what is known by a key or a bound, but for hash ranges.
func UnitPosition(seed int64, key []string) int64 {
	for _, t := range key {
		seed = keyspace.Str(keyspace.Text, t).Hash(seed)
	}
	return seed
}

func boundText(bound []string, none string) string {
	switch len(bound) {
	case 0:
		return none
	case 1:
		return bound[0]
	}
	return "(" + strings.Join(bound, ", ") + ")"
}

// hashBound reads a bound of a valid keyspace.
func hashBound(bound []string, none int64) int64 {
	if len(bound) == 0 {
		return none
	}
	n, _ := strconv.ParseInt(bound[0], 10, 64)
	return n
}

// WithOwners returns the keyspace with the owners of a [placement.Proposal] for
// its PlacementUnits: one for each, in the same order. It shares nothing that it
// changes with k, and leaves epochs to [Directory.Update].
func (k Keyspace) WithOwners(owners []string) Keyspace {
	k.Ranges, k.Values, k.Pins = slices.Clone(k.Ranges), slices.Clone(k.Values), slices.Clone(k.Pins)
	for i := range k.Ranges {
		k.Ranges[i].Shard = owners[i]
	}
	owners = owners[len(k.Ranges):]
	for i := range k.Values {
		k.Values[i].Shard = owners[i]
	}
	owners = owners[len(k.Values):]
	for i := range k.Pins {
		k.Pins[i].Shard = owners[i]
	}
	return k
}
