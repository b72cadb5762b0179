package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// InfeasibleError says that no assignment keeps all constraints.
type InfeasibleError struct {
	// Constraints are the names of those that contradict each other: without any
	// one of them the others can be kept. (Where finding that out would take
	// minutes, there may be some too many.) Empty if the capacities alone stand
	// in the way.
	Constraints []string
	// Capacity says that the capacities of the shards are part of it.
	Capacity bool
	// Missing are shards, without names, that would make it possible if they were
	// added; their Capacity is what they would have to hold. Empty if
	// no few shards would.
	Missing []Shard
	err     *sqlstate.Error
}

// Error is the message of the SQLSTATE error below it.
func (e *InfeasibleError) Error() string { return e.err.Error() }

// Unwrap gives the error that clients see: 55000 with the constraints and what helps.
func (e *InfeasibleError) Unwrap() error { return e.err }

// noTaste takes shards in their order.
type noTaste struct{}

func (noTaste) score(*placed, int32, int32) score { return score{} }

func (r *Request) feasible(constraints []Constraint, shards []Shard, capacities bool) (*placed, verdict) {
	return newProblem(r.Units, shards, constraints, capacities).solve(noTaste{})
}

// explain finds the least that contradicts itself, and what would help.
func (r *Request) explain() error {
	r = r.representatives()
	core := r.Constraints
	work := 0
	needed := func(without []Constraint, capacities bool) bool {
		if work += len(r.Units) + len(without); work > explainWork {
			return true
		}
		_, v := r.feasible(without, r.Shards, capacities)
		return v != impossible
	}
	capacities := needed(core, false)
	for step := (len(core) + 1) / 2; step > 0; step /= 2 {
		for at := 0; at < len(core); {
			end := min(at+step, len(core))
			without := append(append([]Constraint(nil), core[:at]...), core[end:]...)
			if needed(without, capacities) {
				at = end
			} else {
				core = without
			}
		}
	}
	e := &InfeasibleError{Capacity: capacities}
	for i := range core {
		e.Constraints = append(e.Constraints, core[i].Name)
	}
	e.Missing = r.missing(core)
	e.err = r.infeasible(e, core)
	return e
}

// explainWork bounds the looks at units and constraints of one explanation.
const explainWork = 20_000_000

// representatives leaves out units that are to every constraint what another
// unit is, where sizes do not count: what holds for one holds for all.
func (r *Request) representatives() *Request {
	if slices.ContainsFunc(r.Shards, func(s Shard) bool { return s.Weight > 0 && s.Capacity > 0 }) {
		return r
	}
	out := *r
	out.Units = nil
	m := newMeant(r.Constraints)
	seen := map[string]bool{}
	var key []byte
	for i := range r.Units {
		key = key[:0]
		apart := false
		for _, k := range m.by(&r.Units[i]) {
			c := &r.Constraints[k]
			apart = apart || c.Kind == AntiAffinity
			key = strconv.AppendQuote(append(strconv.AppendInt(key, int64(k), 10), '='), r.Units[i].Labels[c.By])
		}
		if apart || !seen[string(key)] {
			seen[string(key)] = true
			out.Units = append(out.Units, r.Units[i])
		}
	}
	return &out
}

// moreMax is how many shards to add are looked for.
const moreMax = 16

// missing finds the fewest shards of one kind that would help: without labels,
// or with those that one or all of the residencies ask for.
func (r *Request) missing(core []Constraint) []Shard {
	kinds := []map[string]string{nil}
	all := map[string]string{}
	for i := range core {
		if core[i].Kind == Residency {
			kinds = append(kinds, core[i].Shards)
			for k, v := range core[i].Shards {
				all[k] = v
			}
		}
	}
	if len(kinds) > 2 {
		kinds = append(kinds, all)
	}
	if len(kinds) > 32 {
		kinds = kinds[:32]
	}
	for n := 1; n <= min(moreMax, len(r.Units)); n++ {
		for _, labels := range kinds {
			shards := append([]Shard(nil), r.Shards...)
			for i := range n {
				// No name that a shard can have: it stands last and collides with none.
				shards = append(shards, Shard{Name: fmt.Sprintf("\x00%d", i), Weight: 1, Labels: labels})
			}
			a, v := r.feasible(r.Constraints, shards, true)
			if v != possible {
				continue
			}
			more := make([]Shard, n)
			for i := range more {
				more[i] = Shard{Weight: 1, Labels: labels}
				if a.capped {
					more[i].Capacity = a.load[len(r.Shards)+i]
				}
			}
			return more
		}
	}
	return nil
}

func (r *Request) infeasible(e *InfeasibleError, core []Constraint) *sqlstate.Error {
	var err *sqlstate.Error
	var rules []string
	for i := range core[:min(len(core), namesMax)] {
		rules = append(rules, fmt.Sprintf("%s: %s", core[i].Name, core[i].String()))
	}
	if e.Capacity {
		rules = append(rules, r.needs())
	}
	switch {
	case len(core) == 1 && !e.Capacity:
		err = sqlstate.New(sqlstate.ObjectNotInState, "constraint %q cannot be kept with these shards", core[0].Name)
	case len(core) > 1 && !e.Capacity:
		err = sqlstate.New(sqlstate.ObjectNotInState, "constraints %s cannot be kept together with these shards", quoted(e.Constraints))
	case len(core) > 0:
		err = sqlstate.New(sqlstate.ObjectNotInState, "constraints %s cannot be kept within the capacity of the shards", quoted(e.Constraints))
	default:
		err = sqlstate.New(sqlstate.ObjectNotInState, "the units do not fit into the capacity of the shards")
	}
	err.Detail = strings.Join(rules, "; ")
	if s := r.drained(core); s != "" {
		err.Hint = "shard " + s + " has the labels but weight 0: give it a weight"
		return err
	}
	if len(e.Missing) == 0 {
		err.Hint = "relax or drop one of these constraints"
		return err
	}
	err.Hint = fmt.Sprintf("add %d shard", len(e.Missing))
	if len(e.Missing) > 1 {
		err.Hint += "s"
	}
	most := 0.0
	for _, m := range e.Missing {
		most = max(most, m.Capacity)
	}
	if l := labelText(e.Missing[0].Labels); l != "" {
		err.Hint += " with " + l
	}
	if most > 0 {
		err.Hint += fmt.Sprintf(" that can hold %v", most)
	}
	err.Hint += ", or relax a constraint: cleave shard add NAME URL"
	if l := e.Missing[0].Labels; len(l) > 0 {
		err.Hint += " --label " + strings.ReplaceAll(labelText(l), ", ", " --label ")
	}
	return err
}

func (r *Request) needs() string {
	need, room := 0.0, 0.0
	for _, size := range sizes(r.Units) {
		need += size
	}
	for i := range r.Shards {
		if r.Shards[i].Weight == 0 {
			continue
		}
		if r.Shards[i].Capacity == 0 {
			return "some shards have a capacity"
		}
		room += r.Shards[i].Capacity
	}
	return fmt.Sprintf("the units need %v, and the shards have room for %v", need, room)
}

// drained names a shard that a sole residency could use if it were not drained.
func (r *Request) drained(core []Constraint) string {
	if len(core) != 1 || core[0].Kind != Residency {
		return ""
	}
	for i := range r.Shards {
		if s := &r.Shards[i]; s.Weight == 0 && hasLabels(s.Labels, core[0].Shards) {
			return s.Name
		}
	}
	return ""
}

// namesMax is how many constraints a message names.
const namesMax = 6

func quoted(names []string) string {
	out := make([]string, 0, namesMax+1)
	for _, n := range names[:min(len(names), namesMax)] {
		out = append(out, fmt.Sprintf("%q", n))
	}
	if more := len(names) - len(out); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), more)
	}
	return strings.Join(out, ", ")
}
