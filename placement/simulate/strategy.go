package simulate

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/sqlstate"
)

// Range is the name of the strategy that places keys in their own order, cut
// into ranges of equally many rows. The other strategies are placement's
// algorithms on hash positions.
const Range = "range"

// Strategies lists the names of all strategies.
func Strategies() []string {
	var names []string
	for _, a := range placement.Algorithms() {
		names = append(names, string(a))
	}
	return append(names, Range)
}

// Spec says what to simulate.
type Spec struct {
	Shards int
	// Weights of the shards, then of those that are added. Missing ones are 1.
	Weights []float64
	// Add and Remove are the numbers of shards to add, and to remove (the last
	// ones); each is a change of its own to the Shards there are. 0 is no change.
	Add, Remove int
	// Strategies by name.
	Strategies []string
	// VirtualNodes of a shard on the ring; 0 is placement's default.
	VirtualNodes int
}

// Change is a change of the cluster that is simulated.
type Change struct {
	Name   string // "add 1", "remove 1"
	shards []placement.Shard
}

// Check says what is wrong with the spec (22023).
func (s *Spec) Check() error {
	bad := func(hint, format string, args ...any) error {
		return sqlstate.New(sqlstate.InvalidParameterValue, format, args...).WithHint("%s", hint)
	}
	switch {
	case s.Shards < 1 || s.Shards > placement.MaxShards:
		return bad(fmt.Sprintf("use 1 to %d", placement.MaxShards), "%d is not a number of shards", s.Shards)
	case s.Add < 0 || s.Shards+s.Add > placement.MaxShards:
		return bad(fmt.Sprintf("with those added there can be %d shards at most", placement.MaxShards), "%d shards cannot be added to %d", s.Add, s.Shards)
	case s.Remove < 0 || s.Remove >= s.Shards:
		return bad("at least one shard has to remain", "%d of %d shards cannot be removed", s.Remove, s.Shards)
	case len(s.Weights) > s.Shards+s.Add:
		return bad("give one for each shard, and then for those that are added", "%d weights are more than the %d shards", len(s.Weights), s.Shards+s.Add)
	case len(s.Weights) > 0 && len(s.Weights) < s.Shards:
		return bad("give one for each shard, such as 1,1,2", "%d weights are too few for %d shards", len(s.Weights), s.Shards)
	case len(s.Strategies) == 0:
		return bad("use "+strings.Join(Strategies(), ", "), "no strategy is named")
	}
	for i, name := range s.Strategies {
		if !slices.Contains(Strategies(), name) {
			return bad("use "+strings.Join(Strategies(), ", "), "there is no strategy %q", name)
		}
		if slices.Contains(s.Strategies[:i], name) {
			return bad("name it once", "strategy %s is named twice", name)
		}
	}
	for _, name := range s.Strategies {
		if name == Range {
			name = string(placement.Balanced)
		}
		if _, err := s.locators(placement.Algorithm(name)); err != nil {
			return err
		}
	}
	return nil
}

// cluster returns the first n shards.
func (s *Spec) cluster(n int) []placement.Shard {
	shards := make([]placement.Shard, n)
	for i := range shards {
		shards[i] = placement.Shard{Name: fmt.Sprintf("shard-%d", i), Weight: 1}
		if i < len(s.Weights) {
			shards[i].Weight = s.Weights[i]
		}
	}
	return shards
}

// changes returns what --add and --remove ask for.
func (s *Spec) changes() []Change {
	var out []Change
	if s.Add > 0 {
		out = append(out, Change{fmt.Sprintf("add %d", s.Add), s.cluster(s.Shards + s.Add)})
	}
	if s.Remove > 0 {
		out = append(out, Change{fmt.Sprintf("remove %d", s.Remove), s.cluster(s.Shards - s.Remove)})
	}
	return out
}

// locators returns the locator of the cluster as it is, then those after each change.
func (s *Spec) locators(a placement.Algorithm) ([]placement.Locator, error) {
	now, changes := s.cluster(s.Shards), s.changes()
	clusters := [][]placement.Shard{now}
	for _, c := range changes {
		clusters = append(clusters, c.shards)
	}
	o := placement.Options{VirtualNodes: s.VirtualNodes}
	if b, ok := placement.BucketsFor(clusters...); ok {
		o.Buckets = b
	}
	first, err := placement.New(a, now, o)
	if err != nil {
		return nil, err
	}
	out := []placement.Locator{first}
	for _, c := range changes {
		l, err := first.Resize(c.shards)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// Tallies returns a Tally for each strategy that needs one pass: all but [Range].
// The error is that of [Spec.Check].
func (s *Spec) Tallies() ([]*Tally, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	var out []*Tally
	for _, name := range s.Strategies {
		if name == Range {
			continue
		}
		l, err := s.locators(placement.Algorithm(name))
		if err != nil {
			return nil, err
		}
		out = append(out, newTally(s, name, l, func(p Position) int64 { return p.Hash }))
	}
	return out, nil
}

// Ranges returns the Tally of the range strategy, for the second pass; nil if
// the spec does not name it. Ranges are cut so that each has as many of the
// sampled rows as its shard's weight asks for. Growing and shrinking moves the
// fewest rows, by splitting ranges at sampled keys.
func (p *Profile) Ranges(s *Spec) (*Tally, error) {
	if !slices.Contains(s.Strategies, Range) {
		return nil, nil
	}
	// A key's position is its rank among the sampled rows, stretched over the
	// positions: placement's balanced spans of ranks are ranges of keys.
	bounds := p.bounds()
	l, err := s.locators(placement.Balanced)
	if err != nil {
		return nil, err
	}
	n := uint64(len(bounds))
	return newTally(s, Range, l, func(pos Position) int64 {
		encoded := pos.Ordered
		if len(encoded) > encodedMax {
			encoded = encoded[:encodedMax]
		}
		// The middle of equal bounds, so that a heavy key is on the side of the
		// cut where most of it belongs.
		low := sort.Search(len(bounds), func(i int) bool { return bounds[i] >= string(encoded) })
		high := low
		if low < len(bounds) && bounds[low] == string(encoded) {
			high = low + sort.Search(len(bounds)-low, func(i int) bool { return bounds[low+i] > string(encoded) })
		}
		rank := min(uint64(low+high)/2, max(n, 1)-1)
		q, _ := bits.Div64(rank, 0, max(n, 1))
		return int64(q ^ 1<<63)
	}), nil
}
