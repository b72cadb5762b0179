package heat

import (
	"math"
	"sync/atomic"
	"time"
)

// Cell counts one unit. Its methods are safe for concurrent use; on nil they do nothing.
type Cell struct {
	statements, nanos atomic.Uint64
}

// Took adds the time of statements that were counted.
func (c *Cell) Took(d time.Duration) {
	if c != nil && d > 0 {
		c.nanos.Add(uint64(d))
	}
}

// Meter is the counters of the units of one version of a map, numbered from 0.
type Meter struct {
	cells []Cell
	shift uint
	// spread has what Spread counts, as differences: a unit's count is the sum of all up to it.
	spread []atomic.Uint64
}

// One is a whole statement in Spread.
const One = 1 << 20

const (
	// paddedMax is up to how many units each has a cache line of its own, so that
	// processors do not wait for each other's counts of neighbours: 1 MiB.
	paddedMax = 1 << 14
	padding   = 2 // four cells of 16 bytes are a line
)

// NewMeter makes a meter of that many units.
func NewMeter(units int) *Meter {
	m := &Meter{}
	if units <= paddedMax {
		m.shift = padding
	}
	m.cells, m.spread = make([]Cell, units<<m.shift), make([]atomic.Uint64, units+1)
	return m
}

// sampled is one of how many statements of a unit is looked at for its key.
const sampled = 32

// golden is 2^64 over the golden ratio: its multiples are spread evenly, and no pattern in
// the order of statements keeps up with them.
const golden = 0x9E3779B97F4A7C15

// Count counts a statement of a unit and returns where its time is to be counted: nil for a
// unit that there is none of. sample is true for one of 32, whose key is worth a look.
func (m *Meter) Count(unit int) (c *Cell, sample bool) {
	i := unit << m.shift
	if unit < 0 || i >= len(m.cells) {
		return nil, false
	}
	c = &m.cells[i]
	return c, c.statements.Add(1)*golden < math.MaxUint64/sampled
}

// Spread counts a part of a statement, in parts of One, for each unit from one on, before another one: two
// atomic additions, however many there are. Of units that there are none of it counts nothing.
func (m *Meter) Spread(from, to int, part uint64) {
	if from >= 0 && from < to && to < len(m.spread) {
		m.spread[from].Add(part)
		m.spread[to].Add(-part)
	}
}

// Rates are the figures of a Meter, smoothed: what happened one half-life ago counts half.
// Not safe for concurrent use.
type Rates struct {
	half time.Duration
	// known is how much of the whole past the figures have seen: the rest would pull
	// them to 0 in the beginning, so it is divided out.
	known float64
	// statements per second and busy seconds per second, not yet divided by known.
	statements, busy []float64
	seen             []reading
}

// reading is what a unit had counted: statements in parts of One, which may run over.
type reading struct{ statements, nanos uint64 }

// NewRates begins with nothing known.
func NewRates(half time.Duration) *Rates { return &Rates{half: half} }

// Reset makes room for a meter of that many units. carry turns figures of the units so far
// into those of the new ones.
func (r *Rates) Reset(units int, carry func(figures []float64) []float64) {
	r.statements, r.busy = carry(r.statements), carry(r.busy)
	r.seen = make([]reading, units)
}

// Fold takes in what the meter has counted in the time since the last Fold. The meter must
// be the one that Reset made room for.
func (r *Rates) Fold(m *Meter, since time.Duration) {
	if since <= 0 {
		return
	}
	keep := math.Exp2(-since.Seconds() / r.half.Seconds())
	spread := uint64(0)
	for i := range r.seen {
		c := &m.cells[i<<m.shift]
		spread += m.spread[i].Load()
		now := reading{c.statements.Load()*One + spread, c.nanos.Load()}
		// Below 0 if a Spread was seen half; the next Fold has the rest.
		n, t := float64(int64(now.statements-r.seen[i].statements))/One, float64(now.nanos-r.seen[i].nanos)/1e9
		n = max(n, 0)
		r.seen[i] = now
		r.statements[i] = r.statements[i]*keep + n/since.Seconds()*(1-keep)
		r.busy[i] = r.busy[i]*keep + t/since.Seconds()*(1-keep)
	}
	r.known = 1 - (1-r.known)*keep
}

// least is the rate below which nothing happens.
const least = 0.005

// Of returns a unit's statements per second, and the time that they took, in seconds per
// second: how many were under way at a time.
func (r *Rates) Of(unit int) (statements, busy float64) {
	if r.known == 0 || r.statements[unit]/r.known < least {
		return 0, 0
	}
	return r.statements[unit] / r.known, r.busy[unit] / r.known
}
