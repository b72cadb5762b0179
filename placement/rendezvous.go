package placement

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// rendezvous is highest random weight (Thaler and Ravishankar, 1998): the shard
// with the highest score for the position wins. Of shards of equal weight that
// is the one with the highest hash; only the winners of the classes of weight
// are compared by -weight/ln(hash), so a look-up costs a multiplication a shard
// and a logarithm a class.
type rendezvous struct {
	fixed
	o Options
	// times has an odd factor for each shard with a weight, class after class:
	// the shard's hash of a mixed position is the product modulo 2^64. Factors
	// that are random make the hashes of different shards independent enough
	// (the tests say how much), and one load and one multiplication is all that
	// a shard costs.
	times   []uint64
	index   []uint16 // in shards
	classes []class
}

type class struct {
	end    int // in times
	weight float64
}

func newRendezvous(shards []Shard, o Options) (Locator, error) {
	r := &rendezvous{fixed: clone(shards), o: o}
	for i := range shards {
		if shards[i].Weight > 0 {
			r.index = append(r.index, uint16(i))
		}
	}
	// By name within a class: equal hashes are decided alike in any order given.
	slices.SortFunc(r.index, func(a, b uint16) int {
		if c := cmp.Compare(shards[a].Weight, shards[b].Weight); c != 0 {
			return c
		}
		return strings.Compare(shards[a].Name, shards[b].Name)
	})
	for at, i := range r.index {
		r.times = append(r.times, factor(&shards[i], o))
		if n := len(r.classes); n > 0 && at > 0 && shards[r.index[at-1]].Weight == shards[i].Weight {
			r.classes[n-1].end = at + 1
			continue
		}
		// Clamped to where quotients are neither 0 nor infinite.
		r.classes = append(r.classes, class{at + 1, min(max(shards[i].Weight, 1e-280), 1e280)})
	}
	return r, nil
}

// factor is odd, so that different positions have different products.
func factor(s *Shard, o Options) uint64 { return mix(nameHash(s.Name, o.Seed)) | 1 }

func (r *rendezvous) Locate(position int64) int {
	key := mix(uint64(position))
	if len(r.classes) == 1 {
		at, _ := highest(r.times, key)
		return int(r.index[at])
	}
	from, best, won := 0, math.Inf(1), 0
	for _, c := range r.classes {
		at, h := highest(r.times[from:c.end], key)
		// The first arrival of a Poisson process of that rate: least wins.
		if arrival := minusLog(h) / c.weight; arrival < best {
			best, won = arrival, from+at
		}
		from = c.end
	}
	return int(r.index[won])
}

// highest returns the first factor with the highest product.
func highest(times []uint64, key uint64) (at int, h uint64) {
	i := 0
	// Where a higher one is rare, eight are compared without a branch among them.
	for ; len(times)-i >= 128; i += 8 {
		t := times[i : i+8 : i+8]
		x := max(
			max(max(key*t[0], key*t[1]), max(key*t[2], key*t[3])),
			max(max(key*t[4], key*t[5]), max(key*t[6], key*t[7])))
		if x > h {
			at, h = i, x
		}
	}
	if i > 0 {
		for key*times[at] != h {
			at++
		}
	}
	for t := times[i:]; len(t) > 0; t, i = t[1:], i+1 {
		if x := key * t[0]; x > h {
			at, h = i, x
		}
	}
	return at, h
}

func (r *rendezvous) Resize(shards []Shard) (Locator, error) { return New(Rendezvous, shards, r.o) }

// minusLog returns -ln((h+½)/2^64), h cut to 52 bits. Not [math.Log]: every
// machine and every version of Go must give the same bits, so each product is
// rounded by itself (the conversions keep a compiler from fusing).
func minusLog(h uint64) float64 {
	x := (float64(int64(h>>12)) + 0.5) * (1.0 / (1 << 52))
	m, e := math.Frexp(x) // x = m * 2^e, m in [1/2, 1)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	// ln m = 2 artanh(s), |s| < 0.172: the terms to s^21 leave less than 1e-18.
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	sum := 0.0
	for k := 21; k >= 1; k -= 2 {
		sum = float64(sum*s2) + 1/float64(k)
	}
	return float64(float64(-e)*math.Ln2) - float64(float64(2*s)*sum)
}
