package shardmap

// bounds counts how many of a sorted list of distinct encoded keys are at most
// another one. The first 8 bytes of each, after the prefix that all of them
// share, are kept as numbers in a ladder, which decides nearly every look-up
// without following a pointer. Where many begin with the same 8 bytes, they have
// bounds of their own, which begin after what those share; where few do, strings
// are compared.
type bounds struct {
	common string   // what all of them begin with
	rest   []string // what follows, sorted
	// prefixes are the first 8 bytes of rest, zero-padded. Unequal ones order as
	// the strings do, equal ones say nothing.
	prefixes ladder
	// nested, nil if there is none, has at the place of the last of many equal
	// prefixes the bounds of them all.
	nested []*bounds
}

// crowd is the number of equal prefixes from which on they are worth bounds of
// their own: fewer take at most three comparisons of strings.
const crowd = 8

// nestedMax bounds how deep bounds nest, and with it their memory.
const nestedMax = 16

func newBounds(sorted []string) *bounds { return nestBounds(sorted, 0) }

func nestBounds(sorted []string, depth int) *bounds {
	b := &bounds{}
	n := len(sorted)
	if n == 0 {
		return b
	}
	// Sorted strings share what the first and the last of them share.
	first, last := sorted[0], sorted[n-1]
	shared := 0
	for shared < len(first) && shared < len(last) && first[shared] == last[shared] {
		shared++
	}
	b.common = first[:shared]
	b.rest = make([]string, n)
	prefixes := make([]uint64, n)
	for i, s := range sorted {
		b.rest[i] = s[shared:]
		prefixes[i] = prefix8(b.rest[i])
	}
	b.prefixes = newLadder(prefixes)
	for begin := 0; begin < n; {
		end := begin + 1
		for end < n && prefixes[end] == prefixes[begin] {
			end++
		}
		// The first is the shortest with these bytes; if it has all 8 of them,
		// so have the others, and the nested bounds begin at least 8 bytes
		// later. (If not, the padding hides what differs.)
		if end-begin >= crowd && len(b.rest[begin]) >= 8 && depth < nestedMax {
			if b.nested == nil {
				b.nested = make([]*bounds, n)
			}
			b.nested[end-1] = nestBounds(b.rest[begin:end], depth+1)
		}
		begin = end
	}
	return b
}

// atMost returns how many are <= enc. It does not allocate.
func (b *bounds) atMost(enc []byte) int {
	below := 0 // those that are known to be <= enc, before b
	for {
		if len(b.common) > 0 {
			if len(enc) < len(b.common) || string(enc[:len(b.common)]) != b.common {
				if string(enc) < b.common {
					return below
				}
				return below + len(b.rest)
			}
			enc = enc[len(b.common):]
		}
		p := prefix8(enc)
		end := b.prefixes.atMost(p)
		if end == 0 || b.prefixes.sorted[end-1] != p {
			return below + end
		}
		// Of the bounds with this prefix, most often one, strings decide.
		if b.nested != nil && b.nested[end-1] != nil {
			b = b.nested[end-1]
			below += end - len(b.rest)
			continue
		}
		begin := end - 1
		if begin > 0 && b.prefixes.sorted[begin-1] == p {
			begin = 0
			if p > 0 {
				begin = b.prefixes.atMost(p - 1)
			}
		}
		for begin < end {
			mid := int(uint(begin+end) >> 1)
			if b.rest[mid] <= string(enc) {
				begin = mid + 1
			} else {
				end = mid
			}
		}
		return below + begin
	}
}

// key returns bound i.
func (b *bounds) key(i int) string { return b.common + b.rest[i] }

// prefix8 is the first 8 bytes as a big-endian number, zero-padded.
func prefix8[B []byte | string](b B) uint64 {
	if len(b) >= 8 {
		_ = b[7]
		return uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32 |
			uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7])
	}
	// Not through a padded array: a load of what was just stored byte by byte
	// has to wait for the stores.
	n := uint64(0)
	for i := range len(b) {
		n |= uint64(b[i]) << (56 - 8*i)
	}
	return n
}

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
