package keyspace

import "math/bits"

// HashKey returns the position of a key in a hash keyspace: PostgreSQL's
// extended hash of each column, where the hash of one is the seed of the next.
// It does not allocate. The position of an empty key is the seed.
func HashKey(seed int64, k Key) int64 {
	h := uint64(seed)
	for i := range k {
		h = k[i].hash(h)
	}
	return int64(h)
}

// Hash returns the position of a key of one column.
func (v Value) Hash(seed int64) int64 { return int64(v.hash(uint64(seed))) }

func (v *Value) hash(seed uint64) uint64 {
	if typeInfos[v.typ].str {
		return hashBytes(v.str, seed)
	}
	if v.typ == Date || v.typ == Bool {
		return hashUint32(uint32(v.num), seed)
	}
	// hashint8extended (hashfunc.c): the halves are folded so that a number
	// that fits an integer or smallint hashes as those do.
	lo, hi := uint32(v.num), uint32(uint64(v.num)>>32)
	if v.num >= 0 {
		lo ^= hi
	} else {
		lo ^= ^hi
	}
	return hashUint32(lo, seed)
}

// The functions below are hash_bytes_extended and hash_bytes_uint32_extended
// (PostgreSQL sources, common/hashfn.c), which are lookup3 by Bob Jenkins.

const hashInit = 0x9e3779b9 + 3923095

func hashSeed(a, b, c uint32, seed uint64) (uint32, uint32, uint32) {
	if seed == 0 {
		return a, b, c
	}
	return hashMix(a+uint32(seed>>32), b+uint32(seed), c)
}

func hashUint32(k uint32, seed uint64) uint64 {
	const start = (hashInit + 4) & 0xffffffff
	a, b, c := hashSeed(start, start, start, seed)
	return hashFinal(a+k, b, c)
}

func hashBytes(s string, seed uint64) uint64 {
	start := uint32(len(s)) + (hashInit & 0xffffffff)
	a, b, c := hashSeed(start, start, start, seed)
	for len(s) >= 12 {
		a += word(s[0:4])
		b += word(s[4:8])
		c += word(s[8:12])
		a, b, c = hashMix(a, b, c)
		s = s[12:]
	}
	// The last word's lowest byte stays free: the length is in the start value.
	for i := len(s) - 1; i >= 0; i-- {
		x := uint32(s[i])
		switch {
		case i >= 8:
			c += x << (8 * (i - 7))
		case i >= 4:
			b += x << (8 * (i - 4))
		default:
			a += x << (8 * i)
		}
	}
	return hashFinal(a, b, c)
}

func word(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func hashMix(a, b, c uint32) (uint32, uint32, uint32) {
	a -= c
	a ^= bits.RotateLeft32(c, 4)
	c += b
	b -= a
	b ^= bits.RotateLeft32(a, 6)
	a += c
	c -= b
	c ^= bits.RotateLeft32(b, 8)
	b += a
	a -= c
	a ^= bits.RotateLeft32(c, 16)
	c += b
	b -= a
	b ^= bits.RotateLeft32(a, 19)
	a += c
	c -= b
	c ^= bits.RotateLeft32(b, 4)
	b += a
	return a, b, c
}

func hashFinal(a, b, c uint32) uint64 {
	c ^= b
	c -= bits.RotateLeft32(b, 14)
	a ^= c
	a -= bits.RotateLeft32(c, 11)
	b ^= a
	b -= bits.RotateLeft32(a, 25)
	c ^= b
	c -= bits.RotateLeft32(b, 16)
	a ^= c
	a -= bits.RotateLeft32(c, 4)
	b ^= a
	b -= bits.RotateLeft32(a, 14)
	c ^= b
	c -= bits.RotateLeft32(b, 24)
	return uint64(b)<<32 | uint64(c)
}
