package placement

import (
	"cmp"
	"slices"
)

// searchSteps bounds a search: some tenths of a second.
const searchSteps = 200_000

// verdict is what a search found out.
type verdict int

const (
	possible   verdict = iota
	impossible         // proved
	unknown            // the steps were used up
)

// taste orders the shards that a unit may lie on; less is better.
type taste interface {
	score(a *placed, u, s int32) score
}

type score struct {
	rank  int
	cost  float64
	units int // of equal costs, as where nothing is measured: how many units move
}

func (x score) compare(y score) int {
	return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.cost, y.cost), cmp.Compare(x.units, y.units))
}

func (x score) less(y score) bool { return x.compare(y) < 0 }

// search places the critical units by taste, and goes back where that leads
// nowhere: within its steps it finds an assignment if there is one.
type search struct {
	*placed
	taste taste
	order []int32
	steps int
	// back is off where the memory to go back would be too much.
	back bool
}

// solve returns an assignment of the critical units.
func (p *problem) solve(t taste) (*placed, verdict) {
	if p.hopeless() {
		return nil, impossible
	}
	s := &search{placed: newPlaced(p), taste: t, order: p.critical(), steps: searchSteps}
	s.steps += len(s.order)
	s.back = len(s.order)*len(p.shards) <= 1<<26
	v := s.from(0)
	return s.placed, v
}

func (s *search) from(i int) verdict {
	if i == len(s.order) {
		return possible
	}
	if s.steps--; s.steps < 0 {
		return unknown
	}
	u := s.order[i]
	best := s.best(u)
	if best < 0 {
		return impossible
	}
	s.put(u, best)
	v := s.from(i + 1)
	if v != impossible {
		return v
	}
	s.take(u)
	if !s.back {
		return unknown
	}
	rest := s.others(u, best)
	for _, at := range rest {
		s.put(u, at)
		if v = s.from(i + 1); v != impossible {
			return v
		}
		s.take(u)
	}
	return impossible
}

func (s *search) best(u int32) int32 {
	best, least := int32(-1), score{}
	for at := range int32(len(s.shards)) {
		if !s.may(u, at) {
			continue
		}
		if x := s.taste.score(s.placed, u, at); best < 0 || x.less(least) {
			best, least = at, x
		}
	}
	return best
}

// others returns the remaining choices in order. Of empty shards that differ in
// nothing that a constraint sees one is enough: what fails on one fails on all.
func (s *search) others(u, tried int32) []int32 {
	type choice struct {
		at int32
		score
	}
	var list []choice
	empty := map[int32]bool{}
	if s.count[tried] == 0 {
		empty[s.twin[tried]] = true
	}
	for at := range int32(len(s.shards)) {
		if at == tried || !s.may(u, at) {
			continue
		}
		if s.count[at] == 0 {
			if empty[s.twin[at]] {
				continue
			}
			empty[s.twin[at]] = true
		}
		list = append(list, choice{at, s.taste.score(s.placed, u, at)})
	}
	slices.SortStableFunc(list, func(a, b choice) int {
		return a.compare(b.score)
	})
	out := make([]int32, len(list))
	for i, c := range list {
		out[i] = c.at
	}
	return out
}
