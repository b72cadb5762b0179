package placement

import (
	"math/rand/v2"
	"testing"
)

// published is the algorithm as Lamping and Veach have written it down, with floating-point numbers.
func published(key uint64, n int) uint64 {
	b, j := int64(-1), int64(0)
	for j < int64(n) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64(key>>33+1)))
	}
	return uint64(b)
}

// TestJumpIsThePublishedOne: the integers of jumpHash change no answer, also
// for keys whose first quotient is a whole number or nearly so.
func TestJumpIsThePublishedOne(t *testing.T) {
	check := func(key uint64, n int) {
		if got, want := jumpHash(key, uint64(n)), published(key, n); got != want {
			t.Fatalf("jump of %d over %d: %d, published %d", key, n, got, want)
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 2_000_000 {
		check(r.Uint64(), 1+r.IntN(maxBuckets))
		check(r.Uint64(), 1+r.IntN(100))
	}
	// The first divisor is chosen: the inverse of the multiplier gives its key.
	inverse := uint64(2862933555777941757)
	for range 6 {
		inverse *= 2 - inverse*2862933555777941757
	}
	for d := uint64(1); d <= 1<<20; d++ {
		key := ((d-1)<<33 | r.Uint64()>>31 - 1) * inverse
		for _, n := range []int{1, 2, maxBuckets, int(min(maxBuckets, 1<<31/d)), int(min(maxBuckets, 1<<31/d+1))} {
			check(key, n)
		}
	}
}
