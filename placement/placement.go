package placement

import (
	"math"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Algorithm says how positions are spread over shards.
type Algorithm string

const (
	// Ring is consistent hashing with virtual nodes. Owners depend on the names
	// of the shards alone. Shares are as even as the virtual nodes are many.
	Ring Algorithm = "ring"
	// Jump is the consistent hash of Lamping and Veach. Even, no memory, but
	// shards have numbers: only the last can be removed, only the end can grow.
	Jump Algorithm = "jump"
	// Rendezvous is highest random weight. Owners depend on the names of the
	// shards alone, weights are exact, and a look-up asks every shard.
	Rendezvous Algorithm = "rendezvous"
	// Balanced gives each shard contiguous spans in proportion to its weight.
	// Exactly even; what moves depends on what was, so see [Locator.Resize].
	Balanced Algorithm = "balanced"
	// Modulo is position mod n, for comparison: almost everything moves.
	Modulo Algorithm = "modulo"
)

// Algorithms lists all of them.
func Algorithms() []Algorithm { return []Algorithm{Balanced, Ring, Jump, Rendezvous, Modulo} }

// MaxShards is the greatest number of shards, as in the shard map.
const MaxShards = 4096

// Shard is what placement has to know of a shard.
type Shard struct {
	Name string
	// Weight is the share of the load that the shard should carry, relative to
	// the others. 0 drains it.
	Weight float64
	Labels map[string]string
	// Capacity is the greatest sum of [Unit.Size] that [Propose] puts here, in
	// the same measure; 0 is no limit. Locators do not look at it.
	Capacity float64
}

// Options refine an algorithm. Two locators are comparable only if they have
// the same options. The zero value is good.
type Options struct {
	// Seed makes another, equally good assignment; of ring and rendezvous.
	Seed int64
	// VirtualNodes is the number of points that ring gives to a shard of weight
	// 1; 0 is [DefaultVirtualNodes]. A shard's share varies by about
	// 1/sqrt(VirtualNodes) of itself.
	VirtualNodes int
	// Buckets is the number of buckets that jump and modulo give to a shard of
	// weight 1; 0 is 1. Weights have to be multiples of 1/Buckets: [BucketsFor].
	Buckets int
}

// Locator maps positions to shards. It is immutable: safe for concurrent use.
type Locator interface {
	// Locate returns the index of the owner in Shards. position is one of a hash
	// keyspace: evenly spread over all signed 64-bit numbers. It does not allocate.
	Locate(position int64) int
	// Shards are those that the Locator was made from. They must not be changed.
	Shards() []Shard
	// Resize returns the Locator for other shards, by the same algorithm and
	// options. For balanced it moves the least that gives each its share; for
	// the others it is the same as New. Errors: as with New.
	Resize(shards []Shard) (Locator, error)
}

// New returns the Locator of the algorithm. Errors (22023): no shards, or more than
// [MaxShards]; a name that is empty or given twice; weights that are negative, not
// finite, or all 0; options out of bounds; weights that the algorithm cannot keep.
func New(a Algorithm, shards []Shard, o Options) (Locator, error) {
	if err := checkShards(shards); err != nil {
		return nil, err
	}
	if o.VirtualNodes < 0 || o.VirtualNodes > maxPoints {
		return nil, invalid("a shard cannot have %d virtual nodes", o.VirtualNodes).
			WithHint("use 1 to %d; 0 is %d", maxPoints, DefaultVirtualNodes)
	}
	if o.Buckets < 0 || o.Buckets > maxBuckets {
		return nil, invalid("a shard cannot have %d buckets", o.Buckets).WithHint("use 1 to %d; 0 is 1", maxBuckets)
	}
	switch a {
	case Ring:
		return newRing(shards, o)
	case Jump:
		return newJump(shards, o)
	case Rendezvous:
		return newRendezvous(shards, o)
	case Balanced:
		return newBalanced(shards)
	case Modulo:
		return newModulo(shards, o)
	}
	names := make([]string, 0, 5)
	for _, a := range Algorithms() {
		names = append(names, string(a))
	}
	return nil, invalid("there is no placement algorithm %q", string(a)).WithHint("use %s", strings.Join(names, ", "))
}

func invalid(format string, args ...any) *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidParameterValue, format, args...)
}

func checkShards(shards []Shard) error {
	if len(shards) == 0 {
		return invalid("there is no shard to place anything on").WithHint("add one: cleave shard add NAME URL")
	}
	if len(shards) > MaxShards {
		return invalid("%d shards are more than %d", len(shards), MaxShards)
	}
	seen := make(map[string]bool, len(shards))
	some := false
	for i := range shards {
		s := &shards[i]
		switch {
		case s.Name == "":
			return invalid("shard %d has no name", i+1)
		case seen[s.Name]:
			return invalid("shard %q is given twice", s.Name)
		case !(s.Weight >= 0) || math.IsInf(s.Weight, 0):
			return invalid("the weight of shard %q is %v", s.Name, s.Weight).WithHint("use a number above 0, or 0 to drain the shard")
		case !(s.Capacity >= 0) || math.IsInf(s.Capacity, 0):
			return invalid("the capacity of shard %q is %v", s.Name, s.Capacity).WithHint("use a number above 0, or 0 for no limit")
		}
		seen[s.Name] = true
		some = some || s.Weight > 0
	}
	if !some {
		return invalid("every shard has weight 0, so none may get anything").WithHint("give one of them a weight above 0")
	}
	return nil
}

// flip turns a position into an unsigned number of the same order.
func flip(position int64) uint64 { return uint64(position) ^ 1<<63 }

// mix spreads every bit of x over all bits, one to one (the finalizer of
// Stafford's variant 13, as in SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// golden is 2^64 divided by the golden ratio: mix(seed + i*golden) is SplitMix64.
const golden = 0x9e3779b97f4a7c15

// nameHash is the hash of a name, as PostgreSQL hashes text.
func nameHash(name string, seed int64) uint64 {
	return uint64(keyspace.Str(keyspace.Text, name).Hash(seed))
}

// fixed is what every Locator has.
type fixed struct{ shards []Shard }

func (f *fixed) Shards() []Shard { return f.shards }

func clone(shards []Shard) fixed { return fixed{append([]Shard(nil), shards...)} }
