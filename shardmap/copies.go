package shardmap

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
)

// CopiesEpoch is the epoch of the guards of reference tables: a number that
// stands for the set of shards that have their rows. A session that changes such a
// table has to name it (the setting cleave.guard_epoch), so that a router with an
// older map cannot leave out a shard. It is never 0.
func (s *Snapshot) CopiesEpoch() uint64 {
	shards := slices.Clone(s.Shards())
	slices.SortFunc(shards, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	h := fnv.New64a()
	for _, sh := range shards {
		_, _ = h.Write([]byte(sh.Name)) // a hash takes everything
		_, _ = h.Write([]byte{0})
		if sh.Incarnation != 0 {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, sh.Incarnation))
		}
	}
	return h.Sum64()>>1 | 1 // it fits a signed number too
}
