// Package placement_test measures placement beside what others have published.
package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	dgryskijump "github.com/dgryski/go-jump"
	dgryskirdv "github.com/dgryski/go-rendezvous"
	"github.com/golang/groupcache/consistenthash"
	"github.com/serialx/hashring"

	"github.com/cleavedb/cleave/placement"
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

func benchOurs(b *testing.B, a placement.Algorithm, n int) {
	l, err := placement.New(a, equal(n), placement.Options{VirtualNodes: benchPoints})
	if err != nil {
		b.Fatal(err)
	}
	shards := l.Shards()
	b.ReportAllocs()
	i := 0
	if a == placement.Jump {
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

func equal(n int) []placement.Shard {
	shards := make([]placement.Shard, n)
	for i := range shards {
		shards[i] = placement.Shard{Name: fmt.Sprintf("shard-%d", i), Weight: 1}
	}
	return shards
}

// mix is SplitMix64's, as package placement has it.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
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
		b.Run(fmt.Sprintf("jump/cleave/%d", n), func(b *testing.B) { benchOurs(b, placement.Jump, n) })
		b.Run(fmt.Sprintf("rendezvous/go-rendezvous/%d", n), func(b *testing.B) {
			r := dgryskirdv.New(names(n), fnv1a)
			i := 0
			for b.Loop() {
				sinkName = r.Lookup(benchKeys[i&8191])
				i++
			}
		})
		b.Run(fmt.Sprintf("rendezvous/cleave/%d", n), func(b *testing.B) { benchOurs(b, placement.Rendezvous, n) })
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
		b.Run(fmt.Sprintf("ring/cleave/%d", n), func(b *testing.B) { benchOurs(b, placement.Ring, n) })
		b.Run(fmt.Sprintf("balanced/cleave/%d", n), func(b *testing.B) { benchOurs(b, placement.Balanced, n) })
		b.Run(fmt.Sprintf("modulo/cleave/%d", n), func(b *testing.B) { benchOurs(b, placement.Modulo, n) })
	}
}
