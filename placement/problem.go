package placement

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// problem is what the constraints leave free, in numbers. Two units may share a
// shard exactly if the same isolations mean them: that is their colour, and a
// shard takes the colour of its first unit. Residency leaves each unit a set of
// shards; units with equal sets are of one class.
type problem struct {
	units   []Unit
	shards  []Shard
	size    []float64
	owner   []int32 // index of the owner, -1 if none or gone
	colour  []int32 // 0 where no isolation means the unit
	class   []int32
	allowed [][]bool // of each class, the shards; drained ones are in none
	choices []int    // of each class, how many
	apart   [][]int32
	twin    []int32 // shards of one number differ in nothing that constraints see
	capped  bool
}

// newProblem leaves capacities out unless they are to be kept.
func newProblem(units []Unit, shards []Shard, constraints []Constraint, capacities bool) *problem {
	n := len(units)
	p := &problem{units: units, shards: shards, size: sizes(units), owner: make([]int32, n),
		colour: make([]int32, n), class: make([]int32, n), apart: make([][]int32, n), twin: make([]int32, len(shards))}
	if capacities {
		p.capped = slices.ContainsFunc(shards, func(s Shard) bool { return s.Weight > 0 && s.Capacity > 0 })
	}
	index := make(map[string]int32, len(shards))
	for i := range shards {
		index[shards[i].Name] = int32(i)
	}
	colours, classes, rules := map[string]int32{"": 0}, map[string]int32{}, map[string]int32{}
	var colour, class []byte
	meant := newMeant(constraints)
	for i := range units {
		u := &units[i]
		p.owner[i] = -1
		if at, ok := index[u.Owner]; ok {
			p.owner[i] = at
		}
		colour, class = colour[:0], class[:0]
		for _, k := range meant.by(u) {
			c := &constraints[k]
			switch c.Kind {
			case Residency:
				class = append(strconv.AppendInt(class, int64(k), 10), ' ')
			case Isolation:
				colour = strconv.AppendQuote(append(strconv.AppendInt(colour, int64(k), 10), '='), u.Labels[c.By])
			case AntiAffinity:
				p.apart[i] = append(p.apart[i], number(rules, strconv.Itoa(k)+"="+u.Labels[c.By]))
			}
		}
		p.colour[i] = number(colours, string(colour))
		known := len(classes)
		p.class[i] = number(classes, string(class))
		if len(classes) > known {
			p.addClass(string(class), constraints)
		}
	}
	p.findTwins()
	return p
}

// meant finds the constraints that mean a unit without a look at all of them:
// there may be one for each tenant.
type meant struct {
	constraints []Constraint
	byLabel     map[[2]string][]int // under one of the labels that they ask for
	byName      map[string][]int
	always      []int
	buf         []int
}

func newMeant(constraints []Constraint) *meant {
	m := &meant{constraints: constraints, byLabel: map[[2]string][]int{}, byName: map[string][]int{}}
	for k := range constraints {
		c := &constraints[k]
		switch {
		case len(c.Names) > 0:
			for _, name := range c.Names {
				m.byName[name] = append(m.byName[name], k)
			}
		case len(c.Units) > 0:
			label := slices.Min(slices.Collect(maps.Keys(c.Units)))
			m.byLabel[[2]string{label, c.Units[label]}] = append(m.byLabel[[2]string{label, c.Units[label]}], k)
		default:
			m.always = append(m.always, k)
		}
	}
	return m
}

// by returns them in order; they are good until the next call.
func (m *meant) by(u *Unit) []int {
	list := append(append(m.buf[:0], m.always...), m.byName[u.Name]...)
	for k, v := range u.Labels {
		list = append(list, m.byLabel[[2]string{k, v}]...)
	}
	slices.Sort(list)
	m.buf = slices.DeleteFunc(slices.Compact(list), func(k int) bool { return !m.constraints[k].means(u) })
	return m.buf
}

// sizes are those of the units, or 1 for all if none has any.
func sizes(units []Unit) []float64 {
	out := make([]float64, len(units))
	sized := slices.ContainsFunc(units, func(u Unit) bool { return u.Size > 0 })
	for i := range units {
		if out[i] = units[i].Size; !sized {
			out[i] = 1
		}
	}
	return out
}

func number(m map[string]int32, key string) int32 {
	n, ok := m[key]
	if !ok {
		n = int32(len(m))
		m[key] = n
	}
	return n
}

func (p *problem) addClass(residencies string, constraints []Constraint) {
	set, n := make([]bool, len(p.shards)), 0
	fields := strings.Fields(residencies)
	for s := range p.shards {
		set[s] = p.shards[s].Weight > 0
		for _, f := range fields {
			k, _ := strconv.Atoi(f)
			set[s] = set[s] && hasLabels(p.shards[s].Labels, constraints[k].Shards)
		}
		if set[s] {
			n++
		}
	}
	p.allowed, p.choices = append(p.allowed, set), append(p.choices, n)
}

func (p *problem) findTwins() {
	kinds := map[string]int32{}
	var b []byte
	for s := range p.shards {
		b = b[:0]
		for _, set := range p.allowed {
			b = strconv.AppendBool(b, set[s])
		}
		if p.capped {
			b = strconv.AppendFloat(b, p.shards[s].Capacity, 'g', -1, 64)
		}
		p.twin[s] = number(kinds, string(b))
	}
}

// critical returns the units that a search has to place: all that are kept
// apart, all if there are capacities, and else one of each colour and class,
// since where one may lie, all like it may. The hardest come first.
func (p *problem) critical() []int32 {
	var order []int32
	shown := map[[2]int32]bool{}
	for i := range p.units {
		k := [2]int32{p.colour[i], p.class[i]}
		if p.capped || len(p.apart[i]) > 0 || !shown[k] {
			shown[k] = true
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		if d := p.choices[p.class[a]] - p.choices[p.class[b]]; d != 0 {
			return d
		}
		if (p.colour[a] == 0) != (p.colour[b] == 0) { // the isolated choose first
			if p.colour[b] == 0 {
				return -1
			}
			return 1
		}
		if d := len(p.apart[b]) - len(p.apart[a]); d != 0 {
			return d
		}
		switch {
		case p.size[a] > p.size[b]:
			return -1
		case p.size[a] < p.size[b]:
			return 1
		}
		return 0
	})
	return order
}

// placed is an assignment in the making.
type placed struct {
	*problem
	at     []int32 // shard of each unit, -1 before
	load   []float64
	count  []int
	tint   []int32 // colour of each shard, -1 while empty
	groups map[[2]int32]struct{}
}

func newPlaced(p *problem) *placed {
	a := &placed{problem: p, at: make([]int32, len(p.units)), load: make([]float64, len(p.shards)),
		count: make([]int, len(p.shards)), tint: make([]int32, len(p.shards)), groups: map[[2]int32]struct{}{}}
	for i := range a.at {
		a.at[i] = -1
	}
	for i := range a.tint {
		a.tint[i] = -1
	}
	return a
}

// may reports whether unit u can lie on shard s beside the units that are placed there.
func (a *placed) may(u, s int32) bool {
	if !a.allowed[a.class[u]][s] || a.tint[s] >= 0 && a.tint[s] != a.colour[u] {
		return false
	}
	if a.capped && over(a.load[s]+a.size[u], a.shards[s].Capacity) {
		return false
	}
	for _, g := range a.apart[u] {
		if _, ok := a.groups[[2]int32{g, s}]; ok {
			return false
		}
	}
	return true
}

func (a *placed) put(u, s int32) {
	a.at[u] = s
	a.load[s] += a.size[u]
	a.count[s]++
	a.tint[s] = a.colour[u]
	for _, g := range a.apart[u] {
		a.groups[[2]int32{g, s}] = struct{}{}
	}
}

func (a *placed) take(u int32) {
	s := a.at[u]
	a.at[u] = -1
	a.load[s] -= a.size[u]
	if a.count[s]--; a.count[s] == 0 {
		a.load[s], a.tint[s] = 0, -1
	}
	for _, g := range a.apart[u] {
		delete(a.groups, [2]int32{g, s})
	}
}

// hopeless finds without a search what counting shows: a class without shards,
// more units to keep apart than shards, more to hold than room.
func (p *problem) hopeless() bool {
	for _, n := range p.choices {
		if n == 0 {
			return true
		}
	}
	members := map[int32]int{}
	need, room := 0.0, 0.0
	for i := range p.units {
		need += p.size[i]
		for _, g := range p.apart[i] {
			members[g]++
		}
	}
	fewest := len(p.shards)
	for _, n := range p.choices {
		fewest = min(fewest, n)
	}
	union := map[int32][]bool{}
	for i := range p.units {
		for _, g := range p.apart[i] {
			if members[g] <= fewest {
				continue
			}
			if members[g] > len(p.shards) {
				return true
			}
			if union[g] == nil {
				union[g] = make([]bool, len(p.shards))
			}
			for s, ok := range p.allowed[p.class[i]] {
				union[g][s] = union[g][s] || ok
			}
		}
	}
	for g, set := range union {
		if members[g] > countTrue(set) {
			return true
		}
	}
	if !p.capped {
		return false
	}
	for s := range p.shards {
		switch {
		case p.shards[s].Weight == 0:
		case p.shards[s].Capacity == 0:
			return false
		default:
			room += p.shards[s].Capacity
		}
	}
	return over(need, room)
}

func countTrue(set []bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}
