package placement

import (
	"cmp"
	"math"
	"slices"
)

// DefaultVirtualNodes makes the shares of equal shards differ by some 3 per cent.
const DefaultVirtualNodes = 1024

// maxPoints bounds a ring to some 70 MiB.
const maxPoints = 1 << 22

// ring is consistent hashing (Karger and others, 1997). A point owns the
// positions from itself to the next point, so each arc is a range of the map.
type ring struct {
	fixed
	spanned
	o Options
}

type point struct {
	at    uint64
	shard uint16
}

func newRing(shards []Shard, o Options) (Locator, error) {
	per := o.VirtualNodes
	if per == 0 {
		per = DefaultVirtualNodes
	}
	total := 0.0
	counts := make([]int, len(shards))
	for i := range shards {
		if shards[i].Weight == 0 {
			continue
		}
		// Not relative to other weights: another shard's weight must not change
		// this one's points.
		n := max(1, math.RoundToEven(shards[i].Weight*float64(per)))
		if total += n; total > maxPoints {
			return nil, invalid("a ring of these weights with %d virtual nodes for weight 1 has more than %d points", per, maxPoints).
				WithHint("use smaller weights or fewer virtual nodes: weights are relative, 1 and 2 do what 100 and 200 do")
		}
		counts[i] = int(n)
	}
	points := make([]point, 0, int(total))
	for i, n := range counts {
		h := nameHash(shards[i].Name, o.Seed)
		for j := range uint64(n) {
			points = append(points, point{mix(h + j*golden), uint16(i)})
		}
	}
	// Two points at one place: the lesser name wins, whatever the order given.
	slices.SortFunc(points, func(a, b point) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return cmp.Compare(shards[a.shard].Name, shards[b.shard].Name)
	})
	points = slices.CompactFunc(points, func(a, b point) bool { return a.at == b.at })
	starts := make([]uint64, 0, len(points)+1)
	owners := make([]uint16, 0, len(points)+1)
	if points[0].at != 0 { // the last arc goes on past the end of the positions
		starts, owners = append(starts, 0), append(owners, points[len(points)-1].shard)
	}
	for _, p := range points {
		starts, owners = append(starts, p.at), append(owners, p.shard)
	}
	return &ring{clone(shards), newSpanned(starts, owners), o}, nil
}

func (r *ring) Locate(position int64) int { return r.locate(flip(position)) }

func (r *ring) Resize(shards []Shard) (Locator, error) { return New(Ring, shards, r.o) }
