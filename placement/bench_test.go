package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	dgryskijump "github.com/dgryski/go-jump"
	dgryskirdv "github.com/dgryski/go-rendezvous"
	"github.com/golang/groupcache/consistenthash"
	"github.com/serialx/hashring"
)

// The public packages take texts and hash them with a function of the caller's
// choice; a Locator takes a position. Both sides get the same 8,192 texts and
// hash them in each look-up by the same function, fnv1a below, except that
// hashring cannot be given less than its own key type around it: the hash
// itself is the same. go-jump takes a number, so there fnv1a is called
// by both as well. Rings have 160 points a shard on both sides. Where the other
// answers with a name, ours looks up the name of its index; go-jump answers with
// an index, and so does ours there.

const benchPoints = 160

var benchKeys = func() []string {
	r := rand.New(rand.NewPCG(1, 2))
	k := make([]string, 8192)
	for i := range k {
		k[i] = fmt.Sprintf("customer-%d", r.Uint64N(1e9))
	}
	return k
}()

// fnv1a is FNV-1a, finished by mix, for its high bits are poor.
func fnv1a(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

var (
	sinkName  string
	sinkIndex int
)

func benchOurs(b *testing.B, a Algorithm, n int) {
	l := locator(b, a, equal(n), Options{VirtualNodes: benchPoints})
	shards := l.Shards()
	b.ReportAllocs()
	i := 0
	if a == Jump {
		for b.Loop() {
			sinkIndex = l.Locate(int64(fnv1a(benchKeys[i&8191])))
			i++
		}
		return
	}
	for b.Loop() {
		sinkName = shards[l.Locate(int64(fnv1a(benchKeys[i&8191])))].Name
		i++
	}
}

func names(n int) []string {
	var out []string
	for _, s := range equal(n) {
		out = append(out, s.Name)
	}
	return out
}

func BenchmarkLocate(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		b.Run(fmt.Sprintf("none/hash-only/%d", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				sinkIndex = int(fnv1a(benchKeys[i&8191]))
				i++
			}
		})
		b.Run(fmt.Sprintf("jump/go-jump/%d", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				sinkIndex = int(dgryskijump.Hash(fnv1a(benchKeys[i&8191]), n))
				i++
			}
		})
		b.Run(fmt.Sprintf("jump/cleave/%d", n), func(b *testing.B) { benchOurs(b, Jump, n) })
		b.Run(fmt.Sprintf("rendezvous/go-rendezvous/%d", n), func(b *testing.B) {
			r := dgryskirdv.New(names(n), fnv1a)
			i := 0
			for b.Loop() {
				sinkName = r.Lookup(benchKeys[i&8191])
				i++
			}
		})
		b.Run(fmt.Sprintf("rendezvous/cleave/%d", n), func(b *testing.B) { benchOurs(b, Rendezvous, n) })
		b.Run(fmt.Sprintf("ring/hashring/%d", n), func(b *testing.B) {
			weights := map[string]int{}
			for _, name := range names(n) {
				weights[name] = benchPoints
			}
			r := hashring.NewWithHashAndWeights(weights, func(k []byte) hashring.HashKey {
				return hashring.Uint32HashKey(fnv1a(string(k)) >> 32)
			})
			i := 0
			for b.Loop() {
				sinkName, _ = r.GetNode(benchKeys[i&8191])
				i++
			}
		})
		b.Run(fmt.Sprintf("ring/groupcache/%d", n), func(b *testing.B) {
			r := consistenthash.New(benchPoints, func(k []byte) uint32 { return uint32(fnv1a(string(k)) >> 32) })
			r.Add(names(n)...)
			i := 0
			for b.Loop() {
				sinkName = r.Get(benchKeys[i&8191])
				i++
			}
		})
		b.Run(fmt.Sprintf("ring/cleave/%d", n), func(b *testing.B) { benchOurs(b, Ring, n) })
		b.Run(fmt.Sprintf("balanced/cleave/%d", n), func(b *testing.B) { benchOurs(b, Balanced, n) })
		b.Run(fmt.Sprintf("modulo/cleave/%d", n), func(b *testing.B) { benchOurs(b, Modulo, n) })
	}
}

// BenchmarkPropose: a ninth shard for ranges of uneven sizes.
func BenchmarkPropose(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		us := units(n, func(i int) string { return fmt.Sprintf("shard-%d", i%8) })
		for i := range us {
			us[i].Size = float64(1 + i*7919%1000)
		}
		for _, a := range []Algorithm{Balanced, Ring, Rendezvous} {
			b.Run(fmt.Sprintf("%s/%d", a, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := Propose(Request{Units: us, Shards: equal(9), Algorithm: a}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestJumpIsThePublishedOne: the integers of jumpHash change no answer, also
// for keys whose first quotient is a whole number or nearly so.
func TestJumpIsThePublishedOne(t *testing.T) {
	check := func(key uint64, n int) {
		if got, want := jumpHash(key, uint64(n)), dgryskijump.Hash(key, n); got != uint64(want) {
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
