package placement

import "math"

// maxBuckets bounds the buckets of jump and modulo: jumpHash is exact up to it.
const maxBuckets = 1 << 20

// jump is the jump consistent hash (Lamping and Veach, 2014) of the position.
type jump struct {
	fixed
	o      Options
	n      uint64
	shards []uint16 // of each bucket; nil where bucket i is shard i
}

func newJump(shards []Shard, o Options) (Locator, error) {
	owners, err := buckets(shards, o)
	if err != nil {
		return nil, err
	}
	return &jump{clone(shards), o, uint64(len(owners)), unlessIdentity(owners)}, nil
}

func (j *jump) Locate(position int64) int {
	b := jumpHash(uint64(position), j.n)
	if j.shards != nil {
		return int(j.shards[b])
	}
	return int(b)
}

func (j *jump) Resize(shards []Shard) (Locator, error) { return New(Jump, shards, j.o) }

// jumpHash gives the bucket that the published algorithm gives, which computes,
// with a divisor d from each next key,
//
//	b = floor((b+1) * (2^31 / d)) in floating point, while that is below n.
//
// Integers do it in half the time, since no step waits for conversions and the
// last one for no division. The quotient is n at most, and n at most 2^20: two
// roundings change it by no more than 2^-32, while a quotient that is not whole
// is 1/d, at least 2^-31, away from the whole numbers. So only where it is
// whole can the formula give another number, and there it is the formula that counts.
func jumpHash(key, n uint64) uint64 {
	b := uint64(0)
	for {
		key = key*2862933555777941757 + 1
		d := key>>33 + 1
		dividend := (b + 1) << 31
		if dividend > n*d {
			return b
		}
		next := dividend / d
		if next*d == dividend {
			next = uint64(int64(float64(int64(b+1)) * (float64(1<<31) / float64(int64(d)))))
			if next >= n {
				return b
			}
		}
		b = next
	}
}

// modulo is the position modulo the number of buckets.
type modulo struct {
	fixed
	o      Options
	n      uint64
	shards []uint16
}

func newModulo(shards []Shard, o Options) (Locator, error) {
	owners, err := buckets(shards, o)
	if err != nil {
		return nil, err
	}
	return &modulo{clone(shards), o, uint64(len(owners)), unlessIdentity(owners)}, nil
}

func (m *modulo) Locate(position int64) int {
	b := uint64(position) % m.n
	if m.shards != nil {
		return int(m.shards[b])
	}
	return int(b)
}

func (m *modulo) Resize(shards []Shard) (Locator, error) { return New(Modulo, shards, m.o) }

// buckets gives each shard its buckets, shard after shard, so that a shard
// added at the end adds buckets at the end. How many a shard has depends on its
// own weight alone.
func buckets(shards []Shard, o Options) ([]uint16, error) {
	per := max(1, o.Buckets)
	var owners []uint16
	for i := range shards {
		n := math.RoundToEven(shards[i].Weight * float64(per))
		if !fits(shards[i].Weight, per) {
			err := invalid("%d buckets for weight 1 cannot give shard %q its weight of %v", per, shards[i].Name, shards[i].Weight)
			if b, ok := BucketsFor(shards); ok {
				return nil, err.WithHint("use %d buckets for weight 1, or weights that are whole numbers", b)
			}
			return nil, err.WithHint("use weights that are small whole numbers, or ring or rendezvous")
		}
		if float64(len(owners))+n > maxBuckets {
			return nil, invalid("these weights need more than %d buckets", maxBuckets).
				WithHint("use smaller weights: weights are relative, 1 and 2 do what 100 and 200 do")
		}
		for range int(n) {
			owners = append(owners, uint16(i))
		}
	}
	return owners, nil
}

// fits reports whether the weight is a whole number of buckets, within 1 per cent.
func fits(weight float64, per int) bool {
	x := weight * float64(per)
	n := math.RoundToEven(x)
	return weight == 0 || n >= 1 && math.Abs(x-n) <= x/100
}

// BucketsFor returns the least [Options.Buckets] with which jump and modulo keep
// the weights of all clusters that are to be compared, within 1 per cent. ok is
// false if there is none up to 1000.
func BucketsFor(clusters ...[]Shard) (buckets int, ok bool) {
next:
	for b := 1; b <= 1000; b++ {
		for _, shards := range clusters {
			for i := range shards {
				if !fits(shards[i].Weight, b) {
					continue next
				}
			}
		}
		return b, true
	}
	return 0, false
}

func unlessIdentity(owners []uint16) []uint16 {
	for i, o := range owners {
		if int(o) != i {
			return owners
		}
	}
	return nil
}
