package placement

import (
	"cmp"
	"math"
	"slices"
)

// even spreads units by size in proportion to the weights of the shards, and
// moves as little as that needs: what may stay stays, then the surplus of the
// fullest goes to the emptiest.
type even struct {
	p *problem
	// here is what units of each colour hold on each shard now, sum on all.
	here map[[2]int32]float64
	sum  []float64 // of each colour
	full []float64 // of each shard
	// The same in numbers of units.
	many      map[[2]int32]int
	all       []int
	on        []int
	tolerance float64
}

func newEven(p *problem, tolerance float64) *even {
	e := &even{p: p, tolerance: tolerance, here: map[[2]int32]float64{}, full: make([]float64, len(p.shards)), many: map[[2]int32]int{}, on: make([]int, len(p.shards))}
	for u, c := range p.colour {
		for int(c) >= len(e.sum) {
			e.sum, e.all = append(e.sum, 0), append(e.all, 0)
		}
		e.sum[c] += p.size[u]
		e.all[c]++
		if s := p.owner[u]; s >= 0 {
			e.here[[2]int32{c, s}] += p.size[u]
			e.full[s] += p.size[u]
			e.many[[2]int32{c, s}]++
			e.on[s]++
		}
	}
	return e
}

// score: stay, else the emptiest. A shard is taken for isolated units alone only
// if they have none, and then the one that the least has to leave or come to.
func (e *even) score(a *placed, u, s int32) score {
	c := a.colour[u]
	fill := (a.load[s] + a.size[u]) / a.shards[s].Weight
	if c == 0 {
		if a.owner[u] == s {
			return score{cost: fill}
		}
		return score{rank: 1, cost: fill}
	}
	mine := e.here[[2]int32{c, s}]
	alone := e.full[s] == mine
	switch {
	case a.owner[u] == s && (a.tint[s] == c || alone):
		return score{cost: fill}
	case a.tint[s] == c:
		return score{rank: 1, cost: fill}
	}
	n := e.many[[2]int32{c, s}]
	return score{2, e.full[s] - mine + e.sum[c] - mine, e.on[s] - n + e.all[c] - n}
}

func (e *even) rest(a *placed) error {
	zone := a.zones()
	var pool []int32
	for u := range int32(len(a.units)) {
		if a.at[u] >= 0 {
			continue
		}
		if s := a.owner[u]; s >= 0 && zone[s] == a.colour[u] && a.may(u, s) {
			a.put(u, s)
		} else {
			pool = append(pool, u)
		}
	}
	slices.SortStableFunc(pool, func(x, y int32) int { return cmp.Compare(a.size[y], a.size[x]) })
	for _, u := range pool {
		best, least := int32(-1), 0.0
		for s := range int32(len(a.shards)) {
			if zone[s] != a.colour[u] || !a.may(u, s) {
				continue
			}
			if fill := (a.load[s] + a.size[u]) / a.shards[s].Weight; best < 0 || fill < least {
				best, least = s, fill
			}
		}
		a.put(u, best) // the search showed that there is one
	}
	a.level(zone, e.tolerance)
	return nil
}

// level moves units from full shards to empty ones of the same zone until no
// move makes the fuller of the two less full. Every move lowers the sum of the
// squares of loads over weights, so it ends; the bound is for rounding.
func (a *placed) level(zone []int32, tolerance float64) {
	want := a.shares(zone)
	on := make([][]int32, len(a.shards))
	for u, s := range a.at {
		on[s] = append(on[s], int32(u))
	}
	a.unload(on, zone, want, tolerance)
	done := make([]bool, len(a.shards)) // gives nothing more
	for s := range done {
		done[s] = tolerance > 0 && a.load[s] <= want[s]*(1+tolerance)
	}
	fill := func(s int32) float64 { return a.load[s] / a.shards[s].Weight }
	for range 4*len(a.units) + len(a.shards) {
		from := int32(-1)
		for s := range int32(len(on)) {
			if !done[s] && len(on[s]) > 0 && (from < 0 || fill(s) > fill(from)) {
				from = s
			}
		}
		if from < 0 {
			return
		}
		i, to := a.lightening(on[from], from, zone, want)
		if i < 0 {
			done[from] = true
			continue
		}
		u := on[from][i]
		on[from] = slices.Delete(on[from], i, i+1)
		a.take(u)
		a.put(u, to)
		on[to] = append(on[to], u)
	}
}

// unload moves what level would move first, in one pass: of each shard the
// largest units that fit both its surplus and the room of the emptiest.
func (a *placed) unload(on [][]int32, zone []int32, want []float64, tolerance float64) {
	for from := range int32(len(on)) {
		units := on[from]
		if a.load[from] <= want[from]*(1+tolerance) {
			continue
		}
		slices.SortStableFunc(units, func(x, y int32) int {
			return cmp.Or(cmp.Compare(a.size[y], a.size[x]), cmp.Compare(a.strange(y, from), a.strange(x, from)))
		})
		kept := units[:0:0]
		for _, u := range units {
			to := int32(-1)
			if size := a.size[u]; size > 0 && size <= (a.load[from]-want[from])*(1+1e-9) {
				to = a.roomiest(u, from, zone, want)
			}
			if to < 0 {
				kept = append(kept, u)
				continue
			}
			a.take(u)
			a.put(u, to)
			on[to] = append(on[to], u)
		}
		on[from] = kept
	}
}

// strange is 1 for a unit that is moving anyway.
func (a *placed) strange(u, s int32) int {
	if a.owner[u] == s {
		return 0
	}
	return 1
}

// roomiest returns the shard that lacks most of what it should hold and has
// room for the unit within that, or -1.
func (a *placed) roomiest(u, from int32, zone []int32, want []float64) int32 {
	best, most := int32(-1), 0.0
	for s := range int32(len(a.shards)) {
		if room := want[s] - a.load[s]; room > most && zone[s] == zone[from] && a.size[u] <= room*(1+1e-9) && a.may(u, s) {
			best, most = s, room
		}
	}
	return best
}

// shares is what each shard should hold of what its zone holds.
func (a *placed) shares(zone []int32) []float64 {
	held, weight := map[int32]float64{}, map[int32]float64{}
	for s, z := range zone {
		held[z] += a.load[s]
		weight[z] += a.shards[s].Weight
	}
	want := make([]float64, len(zone))
	for s, z := range zone {
		if weight[z] > 0 {
			want[s] = held[z] * (a.shards[s].Weight / weight[z])
		}
	}
	return want
}

// lightening finds the unit of a shard that had best go elsewhere: the largest
// within both the surplus here and the room there, else the smallest that helps.
// Among equals one goes that is not at home here.
func (a *placed) lightening(units []int32, from int32, zone []int32, want []float64) (index int, to int32) {
	fill := a.load[from] / a.shards[from].Weight
	index, to = -1, -1
	best := [3]float64{math.Inf(1)}
	targets := map[int32][]int32{}
	for i, u := range units {
		if a.size[u] == 0 {
			continue
		}
		list, ok := targets[a.class[u]]
		if !ok {
			list = a.emptiest(a.class[u], from, zone)
			targets[a.class[u]] = list
		}
		for _, s := range list {
			if (a.load[s]+a.size[u])/a.shards[s].Weight >= fill*(1-1e-12) {
				break // the others are fuller still
			}
			if !a.may(u, s) {
				continue
			}
			rank := [3]float64{1, a.size[u], 1}
			if a.size[u] <= min(a.load[from]-want[from], want[s]-a.load[s])*(1+1e-9) {
				rank[0], rank[1] = 0, -a.size[u]
			}
			if a.owner[u] != from {
				rank[2] = 0
			}
			if slices.Compare(rank[:], best[:]) < 0 {
				best, index, to = rank, i, s
			}
			break
		}
	}
	return index, to
}

// triedTargets bounds how many shards are looked at for each unit.
const triedTargets = 8

// emptiest returns the emptiest shards that a class may go to.
func (a *placed) emptiest(class, from int32, zone []int32) []int32 {
	var list []int32
	for s := range int32(len(a.shards)) {
		if s != from && zone[s] == zone[from] && a.allowed[class][s] {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(x, y int32) int {
		return cmp.Compare(a.load[x]/a.shards[x].Weight, a.load[y]/a.shards[y].Weight)
	})
	return list[:min(len(list), triedTargets)]
}

// pack fills shards one after the other.
type pack struct{ *even }

func (p *pack) score(a *placed, u, s int32) score {
	x := p.even.score(a, u, s)
	switch {
	case x.rank == 0 || a.colour[u] != 0:
		return x
	case a.count[s] == 0 && p.full[s] == 0:
		return score{rank: 4, cost: -a.shards[s].Capacity} // begin another, the largest
	}
	// The fullest that has room, counting the units that are there now and have yet to be placed.
	return score{rank: 3, cost: a.shards[s].Capacity - max(a.load[s], p.full[s])}
}

// rest has nothing to do: with capacities the search places every unit.
func (p *pack) rest(*placed) error { return nil }

// hashed asks a Locator of the shards that a unit may go to.
type hashed struct {
	*even
	algorithm Algorithm
	options   Options
	locators  map[[2]int32]*subset
	times     []uint64 // of each shard, as rendezvous has them
}

func newHashed(p *problem, a Algorithm, o Options) *hashed {
	h := &hashed{even: newEven(p, 0), algorithm: a, options: o, locators: map[[2]int32]*subset{}}
	for i := range p.shards {
		h.times = append(h.times, factor(&p.shards[i], o))
	}
	return h
}

// subset is a Locator of some shards.
type subset struct {
	Locator
	index []int32
}

func (h *hashed) subset(key [2]int32, may func(s int32) bool) (*subset, error) {
	if l, ok := h.locators[key]; ok {
		return l, nil
	}
	l := &subset{}
	var shards []Shard
	for s := range int32(len(h.p.shards)) {
		if may(s) {
			shards, l.index = append(shards, h.p.shards[s]), append(l.index, s)
		}
	}
	var err error
	if l.Locator, err = New(h.algorithm, shards, h.options); err != nil {
		return nil, err
	}
	h.locators[key] = l
	return l, nil
}

func (l *subset) of(u *Unit) int32 { return l.index[l.Locate(int64(mix(uint64(u.Position))))] }

// score: where the Locator has it, else by rendezvous.
func (h *hashed) score(a *placed, u, s int32) score {
	if c := a.colour[u]; c != 0 {
		if x := h.even.score(a, u, s); x.rank < 2 {
			return x
		}
	}
	// New gave no error for all shards, so there is none for some of them.
	l, err := h.subset([2]int32{-1, a.class[u]}, func(s int32) bool { return a.allowed[a.class[u]][s] })
	if err == nil && l.of(&a.units[u]) == s {
		return score{rank: 2}
	}
	return score{rank: 3, cost: minusLog(mix(uint64(a.units[u].Position))*h.times[s]) / a.shards[s].Weight}
}

func (h *hashed) rest(a *placed) error {
	zone := a.zones()
	for u := range int32(len(a.units)) {
		c, class := a.colour[u], a.class[u]
		if a.at[u] >= 0 && (a.capped || len(a.apart[u]) > 0) {
			continue
		}
		l, err := h.subset([2]int32{c, class}, func(s int32) bool { return zone[s] == c && a.allowed[class][s] })
		if err != nil {
			return err
		}
		if a.at[u] >= 0 { // it was placed to show that there is a way
			a.take(u)
		}
		a.put(u, l.of(&a.units[u]))
	}
	return nil
}
