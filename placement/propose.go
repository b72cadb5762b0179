package placement

import "github.com/cleavedb/cleave/sqlstate"

// Packed fills as few shards as it can up to their capacities: for many small
// tenants. What has an owner stays. For [Propose] alone.
const Packed Algorithm = "packed"

// Request is what a proposal is made from.
type Request struct {
	Units       []Unit
	Shards      []Shard
	Constraints []Constraint
	// Algorithm spreads the units. Balanced moves as little as makes the loads
	// even by weight; Packed moves nothing that may stay; the others place each
	// unit where their Locator has its position, as far as constraints let them.
	Algorithm Algorithm
	Options   Options
	// Tolerance is how far above its share, as a part of it, a shard may be and
	// still give nothing away; of Balanced. 0 levels as far as sizes allow.
	Tolerance float64
}

// Move is a unit that gets another owner.
type Move struct {
	Unit int    // index into Request.Units
	From string // empty if it had no owner
	To   string
	Size float64
}

// Proposal is an owner for each unit that keeps all constraints.
type Proposal struct {
	// Owners are the shards of the units, by the indexes of Request.Units.
	Owners []string
	// Moves are the units with another owner than before, in their order.
	Moves []Move
	// Moved is the size of the units that left an owner, Total that of all.
	Moved, Total float64
	// Load is what each shard would hold, by the indexes of Request.Shards.
	Load []float64
}

// Propose gives each unit an owner among the shards of a weight above 0. It is
// a pure function of the request. Errors: [InfeasibleError] (55000) if the
// constraints and capacities cannot be kept; 54000 if the search for a way was given up,
// which happens only where several constraints that nearly exclude each other meet many units; 22023
// for requests that make no sense.
func Propose(r Request) (*Proposal, error) {
	if err := checkShards(r.Shards); err != nil {
		return nil, err
	}
	if err := checkUnits(r.Units); err != nil {
		return nil, err
	}
	if err := checkConstraints(r.Constraints); err != nil {
		return nil, err
	}
	if !(r.Tolerance >= 0) {
		return nil, invalid("the tolerance is %v", r.Tolerance).WithHint("use 0.05 to let shards be 5 per cent above their share")
	}
	p := newProblem(r.Units, r.Shards, r.Constraints, true)
	spread, err := r.spreader(p)
	if err != nil {
		return nil, err
	}
	a, v := p.solve(spread)
	if v == unknown { // what suits the algorithm may be what does not fit
		a, v = p.solve(&pack{newEven(p, 0)})
	}
	if v == unknown {
		a, v = p.solve(noTaste{})
	}
	switch v {
	case impossible:
		return nil, r.explain()
	case unknown:
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "no assignment that keeps the constraints was found in %d steps; there may be one", searchSteps).
			WithHint("add a shard, or relax a constraint")
	}
	if err := spread.rest(a); err != nil {
		return nil, err
	}
	return r.proposal(a), nil
}

// spreader is an algorithm for units: its taste while searching, and what it
// does with the units that no search had to place.
type spreader interface {
	taste
	rest(a *placed) error
}

func (r *Request) spreader(p *problem) (spreader, error) {
	switch r.Algorithm {
	case Balanced:
		return newEven(p, r.Tolerance), nil
	case Packed:
		for i := range r.Shards {
			if s := &r.Shards[i]; s.Weight > 0 && s.Capacity == 0 {
				return nil, invalid("packing needs to know what shard %q holds", s.Name).WithHint("give each shard a capacity, in the measure of the sizes")
			}
		}
		return &pack{newEven(p, 0)}, nil
	}
	if _, err := New(r.Algorithm, r.Shards, r.Options); err != nil {
		return nil, err
	}
	return newHashed(p, r.Algorithm, r.Options), nil
}

func (r *Request) proposal(a *placed) *Proposal {
	out := &Proposal{Owners: make([]string, len(r.Units)), Load: make([]float64, len(r.Shards))}
	for i := range r.Units {
		u, to := &r.Units[i], r.Shards[a.at[i]].Name
		out.Owners[i] = to
		out.Load[a.at[i]] += a.size[i]
		out.Total += a.size[i]
		if u.Owner == to {
			continue
		}
		out.Moves = append(out.Moves, Move{i, u.Owner, to, a.size[i]})
		if u.Owner != "" {
			out.Moved += a.size[i]
		}
	}
	return out
}

// zones gives the shards that the search left empty a colour: that of the
// units that are there now, if they are all of one, else none in particular,
// which is 0. Units that a search need not place go to shards of their colour.
func (a *placed) zones() []int32 {
	zone := make([]int32, len(a.shards))
	now := make([]int32, len(a.shards))
	for s := range now {
		now[s] = -1
	}
	for u, s := range a.owner {
		if s < 0 {
			continue
		}
		switch now[s] {
		case -1, a.colour[u]:
			now[s] = a.colour[u]
		default:
			now[s] = 0
		}
	}
	for s := range zone {
		if zone[s] = a.tint[s]; zone[s] < 0 {
			zone[s] = max(now[s], 0)
		}
	}
	return zone
}
