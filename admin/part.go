package admin

import (
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

// canonical is a part as the map writes it, if it is one.
func canonical(cur *shardmap.Snapshot, ks string, p shardmap.Part) shardmap.Part {
	if p.Key != nil {
		return p
	}
	next := cur.State().Clone()
	for _, bound := range []*[]string{&p.Low, &p.High} {
		if *bound == nil {
			continue
		}
		if err := next.Split(ks, *bound); err != nil {
			return p
		}
	}
	// The bounds are now those of ranges: find them by value.
	snap, err := shardmap.NewSnapshot(next)
	if err != nil {
		return p
	}
	ix, _ := snap.Keyspace(ks)
	keys := snap.Keys(ks, p)
	if len(keys.Intervals) != 1 {
		return p
	}
	for _, r := range ix.Def().Ranges {
		one := snap.Keys(ks, shardmap.Part{Low: r.Low, High: r.High})
		if len(one.Intervals) == 1 {
			takeBounds(&p, r, one.Intervals[0], keys.Intervals[0])
		}
	}
	return p
}

// takeBounds writes the bounds of a part as a range has them, where the two have the same value: a is the range's interval, b the part's.
func takeBounds(p *shardmap.Part, r shardmap.Range, a, b keyspace.Interval) {
	if p.Low != nil && a.Low == b.Low && a.LowKey == b.LowKey {
		p.Low = slices.Clone(r.Low)
	}
	if p.High != nil && !a.Last && a.High == b.High && a.HighKey == b.HighKey {
		p.High = slices.Clone(r.High)
	}
}
