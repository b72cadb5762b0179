package placement

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"testing"
)

// keys gives n positions that are the same in every run.
func keys(n int) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		r := rand.New(rand.NewPCG(3, 7))
		for range n {
			if !yield(int64(r.Uint64())) {
				return
			}
		}
	}
}

func equal(n int) []Shard {
	shards := make([]Shard, n)
	for i := range shards {
		shards[i] = Shard{Name: fmt.Sprintf("shard-%d", i), Weight: 1}
	}
	return shards
}

func weighted(weights ...float64) []Shard {
	shards := equal(len(weights))
	for i, w := range weights {
		shards[i].Weight = w
	}
	return shards
}

func locator(t testing.TB, a Algorithm, shards []Shard, o Options) Locator {
	t.Helper()
	l, err := New(a, shards, o)
	if err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	return l
}

func resize(t testing.TB, l Locator, shards []Shard) Locator {
	t.Helper()
	l, err := l.Resize(shards)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const manyKeys = 400_000

// spread is how far a share may be from the weight's, relative to it: what
// virtual nodes allow (4 standard deviations), and the sampling of the keys.
func spread(a Algorithm, share float64, o Options) float64 {
	s := 4 * math.Sqrt((1-share)/(share*manyKeys))
	if a == Ring {
		per := o.VirtualNodes
		if per == 0 {
			per = DefaultVirtualNodes
		}
		s += 4 / math.Sqrt(float64(per))
	}
	return s
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if math.Abs(got-want) > want*relative {
		t.Errorf("%s: %.5f, want %.5f within %.1f%%", what, got, want, relative*100)
	}
}

func consistent(a Algorithm) bool { return a != Modulo }

// TestAddingMovesOneShare: the n-th shard gets 1/n of the keys, and nothing
// moves between those that were there.
func TestAddingMovesOneShare(t *testing.T) {
	for _, a := range Algorithms() {
		for _, n := range []int{1, 2, 7, 63, 100} {
			t.Run(fmt.Sprintf("%s/%d", a, n+1), func(t *testing.T) {
				t.Parallel()
				before := locator(t, a, equal(n), Options{})
				m := Compare(before, resize(t, before, equal(n+1)), keys(manyKeys))
				want := 1 / float64(n+1)
				if !consistent(a) {
					// A key stays only if its remainders by n and by n+1 agree.
					near(t, "moved by modulo", m.Share(), 1-want, 0.02)
					return
				}
				near(t, "moved", m.Share(), want, spread(a, want, Options{}))
				if m.Between != 0 {
					t.Errorf("%d keys moved between old shards", m.Between)
				}
				if name := fmt.Sprintf("shard-%d", n); m.Arrived[name] != m.Moved {
					t.Errorf("%d moved, %d to the new shard", m.Moved, m.Arrived[name])
				}
			})
		}
	}
}

// TestRemovingMovesOnlyItsKeys: from the middle where names decide, the last
// one where numbers do.
func TestRemovingMovesOnlyItsKeys(t *testing.T) {
	for _, a := range Algorithms() {
		for _, n := range []int{2, 8, 64} {
			t.Run(fmt.Sprintf("%s/%d", a, n), func(t *testing.T) {
				t.Parallel()
				shards := equal(n)
				gone := n / 2
				if a == Jump {
					gone = n - 1
				}
				after := append(append([]Shard(nil), shards[:gone]...), shards[gone+1:]...)
				before := locator(t, a, shards, Options{})
				m := Compare(before, resize(t, before, after), keys(manyKeys))
				if !consistent(a) {
					if n > 2 && m.Share() < 0.7 {
						t.Errorf("modulo moved only %.3f", m.Share())
					}
					return
				}
				if m.Left[shards[gone].Name] != m.Moved || m.Between != 0 {
					t.Errorf("%d moved, %d of them from the removed shard, %d between others", m.Moved, m.Left[shards[gone].Name], m.Between)
				}
				near(t, "moved", m.Share(), 1/float64(n), spread(a, 1/float64(n), Options{}))
			})
		}
	}
}
