package shardmap

// ladder counts how many of a sorted list of numbers are at most p: the search
// behind every look-up of a range. A table over equal slices of the span from
// the first number to the last says where each slice begins, so that numbers
// that are spread evenly are found in one step whatever their count; where they
// crowd into few slices, binary search does the rest.
type ladder struct {
	sorted []uint64
	// starts[s] is the place of the first number in slice s or above; a number
	// n is in slice (n-sorted[0])>>shift. There are at most twice as many
	// slices as numbers, and one entry more.
	starts []int32
	shift  uint8
}

func newLadder(sorted []uint64) ladder {
	l := ladder{sorted: sorted}
	n := len(sorted)
	if n == 0 {
		return l
	}
	span := sorted[n-1] - sorted[0]
	for span>>l.shift >= uint64(2*n) {
		l.shift++
	}
	slices := int(span>>l.shift) + 1
	l.starts = make([]int32, slices+1)
	place := 0
	for s := range slices {
		l.starts[s] = int32(place)
		for place < n && (sorted[place]-sorted[0])>>l.shift == uint64(s) {
			place++
		}
	}
	l.starts[slices] = int32(n)
	return l
}

// atMost returns how many numbers are <= p.
func (l *ladder) atMost(p uint64) int {
	sorted := l.sorted
	if len(sorted) == 0 || p < sorted[0] {
		return 0
	}
	if p >= sorted[len(sorted)-1] {
		return len(sorted)
	}
	s := (p - sorted[0]) >> l.shift
	// All before the slice are <= p, all after it are above.
	base, end := int(l.starts[s]), int(l.starts[s+1])
	for base < end {
		mid := int(uint(base+end) >> 1)
		if sorted[mid] <= p {
			base = mid + 1
		} else {
			end = mid
		}
	}
	return base
}
