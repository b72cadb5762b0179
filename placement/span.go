package placement

import (
	"math/bits"

	"github.com/cleavedb/cleave/keyspace"
)

// Span is a contiguous piece of a hash keyspace's positions with its owner.
type Span struct {
	Interval keyspace.Interval // Low, High and Last are used
	Shard    int               // index into [Locator.Shards]
}

// Spans returns the spans of a Locator that owns contiguous ones (ring and
// balanced), sorted, gapless, neighbours of one owner merged; else ok is false.
func Spans(l Locator) (spans []Span, ok bool) {
	var sp *spanned
	switch l := l.(type) {
	case *ring:
		sp = &l.spanned
	case *balanced:
		sp = &l.spanned
	default:
		return nil, false
	}
	for i, start := range sp.starts {
		if n := len(spans); n > 0 {
			if spans[n-1].Shard == int(sp.owners[i]) {
				continue
			}
			spans[n-1].Interval.High = int64(flip(int64(start)))
		}
		spans = append(spans, Span{Interval: keyspace.Interval{Low: int64(flip(int64(start)))}, Shard: int(sp.owners[i])})
	}
	spans[len(spans)-1].Interval.Last = true
	return spans, true
}

// spanned looks positions up among contiguous spans. Positions are unsigned here.
type spanned struct {
	starts []uint64 // ascending, the first is 0
	owners []uint16 // owners[i] owns from starts[i] to starts[i+1]
	// slots cuts the positions into equal slices, a power of two of them and
	// one or two for each span: slots[s] is the span in which slice s begins, so
	// that a look-up begins one or two spans before its end.
	slots []uint32
	shift uint8
}

func newSpanned(starts []uint64, owners []uint16) spanned {
	k := min(max(bits.Len(uint(len(starts))), 1), 24)
	s := spanned{starts: starts, owners: owners, slots: make([]uint32, 1<<k+1), shift: uint8(64 - k)}
	at := 0
	for i := range 1 << k {
		for at+1 < len(starts) && starts[at+1] <= uint64(i)<<s.shift {
			at++
		}
		s.slots[i] = uint32(at)
	}
	s.slots[1<<k] = uint32(len(starts) - 1)
	return s
}

func (s *spanned) locate(u uint64) int {
	slot := s.slots[u>>(s.shift&63):]
	lo, hi := int(slot[0]), int(slot[1]) // starts[lo] <= u < starts[hi+1]
	for hi-lo > 8 {                      // crowded: halve
		if mid := int(uint(lo+hi+1) >> 1); s.starts[mid] <= u {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	for hi > lo && s.starts[hi] > u {
		hi--
	}
	return int(s.owners[hi])
}
