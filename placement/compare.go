package placement

import "iter"

// Movement is what a change from one Locator to another does to some keys.
type Movement struct {
	Keys  int // seen
	Moved int // have another owner
	// Between counts those that moved although both owners, the old and the
	// new, are in both clusters with unchanged weight. Only a change of somebody
	// else made them move: what consistent algorithms avoid.
	Between int
	// Left and Arrived count the moved keys by the shard that had them and by
	// the shard that gets them.
	Left, Arrived map[string]int
}

// Share is the part of the keys that moved, 0 to 1.
func (m *Movement) Share() float64 {
	if m.Keys == 0 {
		return 0
	}
	return float64(m.Moved) / float64(m.Keys)
}

// Compare counts what moves of the keys at these positions. It holds none of them.
func Compare(before, after Locator, positions iter.Seq[int64]) Movement {
	old, now := before.Shards(), after.Shards()
	index := make(map[string]int, len(now))
	for i := range now {
		index[now[i].Name] = i
	}
	to := make([]int, len(old)) // index among now, or -1
	stays := make([]bool, len(now))
	for i := range old {
		at, ok := index[old[i].Name]
		if !ok {
			to[i] = -1
			continue
		}
		to[i] = at
		stays[at] = old[i].Weight == now[at].Weight
	}
	m := Movement{Left: map[string]int{}, Arrived: map[string]int{}}
	left, arrived := make([]int, len(old)), make([]int, len(now))
	for p := range positions {
		m.Keys++
		was, is := before.Locate(p), after.Locate(p)
		if to[was] == is {
			continue
		}
		m.Moved++
		left[was]++
		arrived[is]++
		if to[was] >= 0 && stays[to[was]] && stays[is] {
			m.Between++
		}
	}
	for i, n := range left {
		if n > 0 {
			m.Left[old[i].Name] = n
		}
	}
	for i, n := range arrived {
		if n > 0 {
			m.Arrived[now[i].Name] = n
		}
	}
	return m
}
