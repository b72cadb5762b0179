package shardmap

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
)

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
