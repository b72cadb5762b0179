package placement

import (
	"cmp"
	"container/heap"
	"slices"
)

// apportion divides n among the shards by weight: whole quotas first, then the
// largest remainders; of equal ones the earlier shard.
func apportion(shards []Shard, n int64) []int64 {
	// Scaled by the largest, the sum cannot overflow.
	largest, sum := 0.0, 0.0
	for i := range shards {
		largest = max(largest, shards[i].Weight)
	}
	for i := range shards {
		sum += shards[i].Weight / largest
	}
	count, rest := make([]int64, len(shards)), make([]float64, len(shards))
	order := make([]int, 0, len(shards))
	left := n
	for i := range shards {
		quota := float64(n) * (shards[i].Weight / largest) / sum
		count[i] = min(int64(quota), left)
		rest[i] = quota - float64(count[i])
		left -= count[i]
		if shards[i].Weight > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for i := 0; left > 0; i = (i + 1) % len(order) {
		count[order[i]]++
		left--
	}
	return count
}

// Apportion divides n equal ranges of a new keyspace among the shards by weight,
// the largest remainders rounded up, of equal ones the earlier shard's. While
// there are enough, each shard of a weight above 0 gets one at least. shards must
// be valid, as for [New].
func Apportion(shards []Shard, n int) []int {
	wide := apportion(shards, int64(n))
	count, weighty := make([]int, len(wide)), 0
	sum, largest := 0.0, 0.0
	for i := range shards {
		largest = max(largest, shards[i].Weight)
	}
	for i := range shards {
		count[i] = int(wide[i])
		sum += shards[i].Weight / largest
		if shards[i].Weight > 0 {
			weighty++
		}
	}
	if n < weighty {
		return count
	}
	above := func(i int) float64 { return float64(count[i]) - float64(n)*(shards[i].Weight/largest)/sum }
	for i := range count {
		if count[i] > 0 || shards[i].Weight == 0 {
			continue
		}
		rich := -1
		for j := range count {
			if count[j] > 1 && (rich < 0 || above(j) > above(rich)) {
				rich = j
			}
		}
		count[rich]--
		count[i]++
	}
	return count
}

// Runs gives each of the n ranges of a new keyspace, in order, an index into
// shards, each shard's ranges side by side and as many as its weight says. Where
// weights are equal the longer runs are spread evenly, else they are those of
// [Apportion]. shards must be valid, as for [New].
func Runs(shards []Shard, n int) []int {
	out := make([]int, 0, n)
	uneven := slices.ContainsFunc(shards, func(s Shard) bool { return s.Weight != shards[0].Weight })
	if !uneven {
		for i := range n {
			out = append(out, i*len(shards)/n)
		}
		return out
	}
	for s, count := range Apportion(shards, n) {
		for range count {
			out = append(out, s)
		}
	}
	return out
}

// Turns hands out n things in turn: an index into shards for each, the heavier
// more often, each as evenly spaced as can be (stride scheduling). With equal
// weights thing i goes to shard i modulo their number. shards must be valid, as for [New].
func Turns(shards []Shard, n int) []int {
	var q turns
	largest := 0.0
	for i := range shards {
		largest = max(largest, shards[i].Weight)
	}
	for i := range shards {
		if w := shards[i].Weight / largest; w > 0 {
			q = append(q, turn{1 / w, 1 / w, i})
		}
	}
	heap.Init(&q)
	out := make([]int, n)
	for i := range out {
		out[i] = q[0].shard
		q[0].at += q[0].stride
		heap.Fix(&q, 0)
	}
	return out
}

type turn struct {
	at, stride float64
	shard      int
}

type turns []turn

func (q turns) Len() int { return len(q) }
func (q turns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].shard, q[j].shard)) < 0
}
func (q turns) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *turns) Push(any)     { panic("placement: the number of shards does not change") }
func (q *turns) Pop() any     { panic("placement: the number of shards does not change") }
