package shardmap

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
)

// At returns the shard that owns the rows at a position as a guard's error writes it (engine.Refusal):
// the hash, or the key's texts; "" for a value that is not listed. moving: a transit has keys there. ok is
// false if the position does not tell a key for certain, as texts with commas in them, or times in another
// form than ISO's.
func (ix *Index) At(position string) (shard string, moving, ok bool) {
	at, ok := ix.place(position)
	if !ok {
		return "", false, false
	}
	for i := range ix.def.Transits {
		span, err := ix.span(ix.def.Transits[i].Part.Clone())
		if err != nil || at.in(ix, span) { // never an error: the map was checked
			return "", true, true
		}
	}
	if at.key != nil {
		found, err := ix.Locate(at.key)
		if err != nil {
			return "", false, true // it is not listed
		}
		return found.Shard, false, true
	}
	for i, k := range ix.pinKeys {
		if keyspace.HashKey(ix.def.Seed, k) == at.hash {
			return ix.def.Pins[i].Shard, false, true
		}
	}
	return ix.def.Ranges[ix.LocateHash(at.hash)].Shard, false, true
}

// place is the position of a row: a hash, or, where a guard tells it, the key.
type place struct {
	hash int64
	key  keyspace.Key
}

func (ix *Index) place(position string) (place, bool) {
	if ix.def.Strategy == keyspace.Hash {
		n, err := strconv.ParseInt(position, 10, 64)
		return place{hash: n}, err == nil
	}
	texts := []string{position}
	if len(ix.def.Types) > 1 {
		texts = strings.Split(position, ", ")
	}
	key, err := keyspace.ParseKey(ix.def.Types, texts)
	return place{key: key}, err == nil
}

// in reports whether a span has the place, pins left aside.
func (p place) in(ix *Index, s span) bool {
	switch {
	case p.key != nil && s.key != nil:
		return s.key.Equal(p.key)
	case p.key != nil:
		return ix.contains(s.iv, p.key)
	case s.key != nil:
		return keyspace.HashKey(ix.def.Seed, s.key) == p.hash
	}
	return s.iv.ContainsHash(p.hash)
}
