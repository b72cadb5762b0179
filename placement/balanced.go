package placement

import (
	"cmp"
	"slices"
	"strings"
)

// Balanced spans are cut at multiples of 2^16 positions, so that sums of sizes
// fit: the whole is 2^48 units.
const (
	unitBits = 16
	allUnits = 1 << (64 - unitBits)
)

// maxSpans bounds what resizing again and again cuts the positions into; it is
// the number of ranges that a map holds.
const maxSpans = 1 << 20

// balanced gives each shard its exact share of the positions.
type balanced struct {
	fixed
	spanned
}

// piece is a span in units, owned by a shard of the new cluster, or by none
// (-1) while it is to be given away.
type piece struct {
	start, size int64
	owner       int
}

func newBalanced(shards []Shard) (Locator, error) {
	pieces := make([]piece, 0, len(shards))
	at := int64(0)
	for i, size := range apportion(shards, allUnits) {
		if size > 0 {
			pieces = append(pieces, piece{at, size, i})
		}
		at += size
	}
	return balancedOf(shards, pieces)
}

func balancedOf(shards []Shard, pieces []piece) (Locator, error) {
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Compare(a.start, b.start) })
	starts, owners := make([]uint64, 0, len(pieces)), make([]uint16, 0, len(pieces))
	for _, p := range pieces {
		if n := len(owners); n > 0 && int(owners[n-1]) == p.owner {
			continue
		}
		starts, owners = append(starts, uint64(p.start)<<unitBits), append(owners, uint16(p.owner))
	}
	if len(starts) > maxSpans {
		return nil, invalid("the positions would be cut into %d spans, more than %d", len(starts), maxSpans).
			WithHint("begin again with balanced ranges for these shards")
	}
	return &balanced{clone(shards), newSpanned(starts, owners)}, nil
}

func (b *balanced) Locate(position int64) int { return b.locate(flip(position)) }

// Resize moves the least: shards that have more than their share give the
// surplus, and shards that have less get it, so nothing moves between two
// shards that both have too much, as all old ones have when one is added.
func (b *balanced) Resize(shards []Shard) (Locator, error) {
	if err := checkShards(shards); err != nil {
		return nil, err
	}
	pieces, have := b.carryOver(shards)
	want := apportion(shards, allUnits)
	for i := range shards {
		if have[i] > want[i] {
			pieces = release(pieces, i, have[i]-want[i])
			have[i] = want[i]
		}
	}
	need := make([]int64, len(shards))
	for i := range need {
		need[i] = want[i] - have[i]
	}
	return balancedOf(shards, hand(pieces, need, shards))
}

// carryOver returns the spans with their owners among the new shards, and what each has.
func (b *balanced) carryOver(shards []Shard) (pieces []piece, have []int64) {
	index := make(map[string]int, len(shards))
	for i := range shards {
		index[shards[i].Name] = i
	}
	have = make([]int64, len(shards))
	for i, start := range b.starts {
		p := piece{int64(start >> unitBits), allUnits, -1}
		if i+1 < len(b.starts) {
			p.size = int64(b.starts[i+1] >> unitBits)
		}
		p.size -= p.start
		if at, ok := index[b.shards[b.owners[i]].Name]; ok {
			p.owner = at
			have[at] += p.size
		}
		pieces = append(pieces, p)
	}
	return pieces, have
}

// release takes that much from a shard: its smallest spans whole, then the high
// end of its largest, so that what it keeps stays in few spans.
func release(pieces []piece, shard int, surplus int64) []piece {
	var own []int
	for i := range pieces {
		if pieces[i].owner == shard {
			own = append(own, i)
		}
	}
	slices.SortFunc(own, func(a, b int) int {
		return cmp.Or(cmp.Compare(pieces[a].size, pieces[b].size), cmp.Compare(pieces[a].start, pieces[b].start))
	})
	for len(own) > 0 && pieces[own[0]].size <= surplus {
		surplus -= pieces[own[0]].size
		pieces[own[0]].owner = -1
		own = own[1:]
	}
	if surplus > 0 {
		p := &pieces[own[len(own)-1]]
		p.size -= surplus
		pieces = append(pieces, piece{p.start + p.size, surplus, -1})
	}
	return pieces
}

// hand gives the pieces without owner to the shards that need them: to the
// neighbour's owner if it needs that much, else the largest piece to the
// neediest shard.
func hand(pieces []piece, need []int64, shards []Shard) []piece {
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Compare(a.start, b.start) })
	var free []int
	for i := range pieces {
		p := &pieces[i]
		if p.owner >= 0 {
			continue
		}
		if i > 0 && pieces[i-1].owner >= 0 && need[pieces[i-1].owner] >= p.size {
			p.owner = pieces[i-1].owner
		} else if i+1 < len(pieces) && pieces[i+1].owner >= 0 && need[pieces[i+1].owner] >= p.size {
			p.owner = pieces[i+1].owner
		}
		if p.owner >= 0 {
			need[p.owner] -= p.size
		} else {
			free = append(free, i)
		}
	}
	slices.SortStableFunc(free, func(a, b int) int { return cmp.Compare(pieces[b].size, pieces[a].size) })
	for _, i := range free {
		for pieces[i].owner < 0 {
			neediest := neediestOf(need, shards)
			p := &pieces[i]
			if give := need[neediest]; give < p.size {
				given := piece{p.start, give, neediest}
				p.start, p.size = p.start+give, p.size-give
				pieces = append(pieces, given) // p is another's now
				need[neediest] = 0
				continue
			}
			p.owner = neediest
			need[neediest] -= p.size
		}
	}
	return pieces
}

// neediestOf is the shard that needs most; of several that with the first name.
func neediestOf(need []int64, shards []Shard) int {
	neediest := 0
	for s := range need {
		if need[s] > need[neediest] || need[s] == need[neediest] && strings.Compare(shards[s].Name, shards[neediest].Name) < 0 {
			neediest = s
		}
	}
	return neediest
}
