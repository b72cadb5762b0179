package simulate

import (
	"slices"

	"github.com/axiomhq/hyperloglog"

	"github.com/cleavedb/cleave/keyspace"
)

// labelMax is the longest piece of a key column that is kept to be shown, bytes.
const labelMax = 256

// heavy finds the keys with the most rows in bounded memory: the space-saving
// algorithm (Metwally, Agrawal and El Abbadi, 2005). It holds capacity counters.
// A key that has none takes that of the smallest, whose count becomes its error.
//
// Invariants: the counts add up to the rows seen; for each key that is held,
// count-over <= true rows <= count; a key that is not held has at most the
// smallest count, and that is at most rows/capacity.
type heavy struct {
	capacity int
	heap     []*counter // the smallest count first
	byID     map[uint64]*counter
}

type counter struct {
	id          uint64
	count, over uint64 // over: what the count may be too high by
	at          int    // in the heap
	key         keyspace.Key
}

func newHeavy(capacity int) *heavy {
	return &heavy{capacity: capacity, byID: make(map[uint64]*counter, capacity)}
}

func (h *heavy) add(id uint64, key keyspace.Key) {
	if c := h.byID[id]; c != nil {
		c.count++
		h.down(c.at)
		return
	}
	if len(h.heap) < h.capacity {
		c := &counter{id: id, count: 1, at: len(h.heap), key: label(nil, key)}
		h.heap = append(h.heap, c)
		h.byID[id] = c
		h.up(c.at)
		return
	}
	c := h.heap[0]
	delete(h.byID, c.id)
	c.id, c.over, c.key = id, c.count, label(c.key, key)
	c.count++
	h.byID[id] = c
	h.down(0)
}

// label copies a key to be shown later, without pinning a long text.
func label(dst, key keyspace.Key) keyspace.Key {
	dst = dst[:0]
	for _, v := range key {
		if s := v.Bytes(); len(s) > labelMax {
			v = keyspace.Str(v.Type(), string(append(clip(s), "…"...)))
		}
		dst = append(dst, v)
	}
	return dst
}

// clip returns the beginning of s, not ending inside a character.
func clip(s string) []byte {
	n := labelMax
	for n > labelMax-4 && s[n]&0xc0 == 0x80 {
		n--
	}
	return []byte(s[:n])
}

func (h *heavy) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if h.heap[p].count <= h.heap[i].count {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h *heavy) down(i int) {
	for {
		small := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.heap); c++ {
			if h.heap[c].count < h.heap[small].count {
				small = c
			}
		}
		if small == i {
			return
		}
		h.swap(i, small)
		i = small
	}
}

func (h *heavy) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].at, h.heap[j].at = i, j
}

// top returns the n heaviest, the heaviest first. Those that could have no more
// rows than a key that is not held are left out: they say nothing.
func (h *heavy) top(n int) []*counter {
	all := slices.Clone(h.heap)
	slices.SortFunc(all, func(a, b *counter) int {
		// By what is sure, so that a newcomer with a large error is not on top.
		switch x, y := a.count-a.over, b.count-b.over; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return keyspace.CompareKeys(a.key, b.key)
	})
	for i, c := range all {
		if i == n || (c.over > 0 && c.count-c.over <= c.over) {
			return all[:i]
		}
	}
	return all
}

// exactMax is how many distinct keys are counted one by one.
const exactMax = 1 << 14

// distinct counts distinct identities: exactly as long as they are few, then
// by HyperLogLog.
type distinct struct {
	seen   map[uint64]struct{} // nil when they were too many
	sketch *hyperloglog.Sketch
	error  float64 // standard error of the sketch, as a share
}

// newDistinct takes the sketch's precision: 2^precision bytes.
func newDistinct(precision uint8) *distinct {
	sk, err := hyperloglog.NewSketch(precision, false)
	if err != nil {
		panic("simulate: " + err.Error()) // the precision is a constant
	}
	d := &distinct{seen: map[uint64]struct{}{}, sketch: sk, error: 0.0082}
	if precision >= 16 {
		d.error = 0.0041
	}
	return d
}

func (d *distinct) add(id uint64) {
	if d.seen != nil {
		if _, ok := d.seen[id]; ok {
			return
		}
		if len(d.seen) < exactMax {
			d.seen[id] = struct{}{}
		} else {
			d.seen = nil
		}
	}
	d.sketch.InsertHash(id)
}

// count returns the number and its standard error as a share: 0 if it is exact.
func (d *distinct) count() (n uint64, standardError float64) {
	if d.seen != nil {
		return uint64(len(d.seen)), 0
	}
	return d.sketch.Estimate(), d.error
}

// sampleRows is the number of rows that the bounds of ranges are made from.
const sampleRows = 1 << 15

// encodedMax is how much of an encoded key is kept, bytes. Two keys that are
// equal so far are one bound.
const encodedMax = 128

// sample is a uniform sample of rows (reservoir sampling), the same for the
// same rows: its dice are a counter, mixed.
type sample struct {
	rows uint64
	keys []string
}

func (s *sample) add(encoded []byte) {
	s.rows++
	at := uint64(len(s.keys))
	if at >= sampleRows {
		// Bias below 2^-40 for any number of rows that can be read.
		if at = mix(s.rows) % s.rows; at >= sampleRows {
			return
		}
	}
	if len(encoded) > encodedMax {
		encoded = encoded[:encodedMax]
	}
	if at == uint64(len(s.keys)) {
		s.keys = append(s.keys, string(encoded))
		return
	}
	s.keys[at] = string(encoded)
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
