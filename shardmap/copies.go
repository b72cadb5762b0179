package shardmap

import (
	"hash/fnv"
	"slices"
)

// CopiesEpoch is the epoch of the guards of reference tables: a number that
// stands for the set of shards that have their rows. Whoever changes such a table
// has to say it (the setting cleave.guard_epoch), so that a router with an older
// map cannot leave out a shard. It is never 0.
func (s *Snapshot) CopiesEpoch() uint64 {
	names := make([]string, 0, len(s.Shards()))
	for _, sh := range s.Shards() {
		names = append(names, sh.Name)
	}
	slices.Sort(names)
	h := fnv.New64a()
	for _, n := range names {
		_, _ = h.Write([]byte(n)) // a hash takes everything
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()>>1 | 1 // it fits a signed number too
}
