package keyspace

import (
	"math/bits"
	"slices"
)

// Piece is one of so many pieces of what is owned, from 0: each key is in one of them. Of the intervals of a
// hash keyspace it has a part each; others, and listed keys, are dealt out; what is pinned is in the first. A piece
// may be of nothing: see Empty.
func (o Ownership) Piece(n, pieces int) Ownership {
	if pieces <= 1 {
		return o
	}
	out := o
	out.Intervals, out.Listed = nil, nil
	for i, iv := range o.Intervals {
		if o.Strategy != Hash {
			if i%pieces == n {
				out.Intervals = append(out.Intervals, iv)
			}
			continue
		}
		// Widths as unsigned numbers: an interval can be the whole space.
		width := uint64(iv.High) - uint64(iv.Low) // 0: all of it
		if iv.Last {
			width = 1<<63 - uint64(iv.Low)
		}
		bound := func(i int) int64 { // width * i / pieces, exactly
			hi, lo := bits.Mul64(width, uint64(i))
			if width == 0 {
				hi = uint64(i)
			}
			q, _ := bits.Div64(hi, lo, uint64(pieces))
			return int64(uint64(iv.Low) + q)
		}
		part := iv
		if n > 0 {
			part.Low = bound(n)
		}
		if n < pieces-1 {
			part.High, part.Last = bound(n+1), false
			if part.High == part.Low {
				continue
			}
		}
		out.Intervals = append(out.Intervals, part)
	}
	for i, k := range o.Listed {
		if i%pieces == n {
			out.Listed = append(out.Listed, k)
		}
	}
	if n > 0 {
		out.Pinned = nil
		out.PinnedElsewhere = append(slices.Clone(o.PinnedElsewhere), o.Pinned...)
	}
	return out
}

// Empty reports whether no key is owned.
func (o *Ownership) Empty() bool { return len(o.Intervals)+len(o.Pinned)+len(o.Listed) == 0 }
