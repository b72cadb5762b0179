package shardmap

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/sqlstate"
)

// MaxConstraints bounds the constraints of a map, MaxConstraintKeys the keys of one.
const (
	MaxConstraints    = 1000
	MaxConstraintKeys = 1000
)

// Constraint is a rule about where keys may be. A change of the map that would break one that
// is kept is refused ([Advance]), so nothing that moves rows can break it either.
type Constraint struct {
	Name string         `json:"name"`
	Kind placement.Kind `json:"kind"`
	// Keyspace is the one that it is about; "": all of them, for a residency.
	Keyspace string `json:"keyspace,omitempty"`
	// Keys are the keys that are meant, or Low and High the positions, as in Part. Without
	// either it is the keyspace as a whole.
	Keys [][]string `json:"keys,omitempty"`
	Low  []string   `json:"low,omitempty"`
	High []string   `json:"high,omitempty"`
	// Shards are the labels that a shard must have: residency only.
	Shards map[string]string `json:"shards,omitempty"`
}

// Text says the rule in words.
func (c *Constraint) Text() string {
	var who string
	switch {
	case len(c.Keys) == 1:
		who = "key " + keyText(c.Keys[0])
	case len(c.Keys) > 1:
		texts := make([]string, 0, 8)
		for _, k := range c.Keys[:min(8, len(c.Keys))] {
			texts = append(texts, keyText(k))
		}
		if who = "keys " + strings.Join(texts, ", "); len(c.Keys) > 8 {
			who += fmt.Sprintf(" and %d more", len(c.Keys)-8)
		}
	case c.Low != nil || c.High != nil:
		who = boundsText(c.Low, c.High)
	}
	switch {
	case c.Keyspace == "":
		who = "everything"
	case who == "":
		who = "keyspace " + c.Keyspace
	default:
		who += " of keyspace " + c.Keyspace
	}
	switch c.Kind {
	case placement.Residency:
		return who + " only on shards with " + labelsText(c.Shards)
	case placement.Isolation:
		return who + ": on shards that have nothing else"
	}
	return who + ": no two on one shard"
}

func labelsText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ", ")
}

func hasLabels(sh *Shard, want map[string]string) bool {
	for k, v := range want {
		if got, ok := sh.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Clone returns a deep copy.
func (c Constraint) Clone() Constraint {
	c.Keys = slices.Clone(c.Keys)
	for i := range c.Keys {
		c.Keys[i] = slices.Clone(c.Keys[i])
	}
	c.Low, c.High, c.Shards = slices.Clone(c.Low), slices.Clone(c.High), maps.Clone(c.Shards)
	return c
}

func cloneConstraints(all []Constraint) []Constraint {
	out := slices.Clone(all)
	for i := range out {
		out[i] = out[i].Clone()
	}
	return out
}

// PutConstraint adds a constraint or replaces the one of its name.
func (s *State) PutConstraint(c Constraint) {
	s.Constraints = put(s.Constraints, c.Clone(), func(o *Constraint) bool { return o.Name == c.Name })
}

// DropConstraint removes a constraint and reports whether it was there.
func (s *State) DropConstraint(name string) bool {
	var ok bool
	s.Constraints, ok = drop(s.Constraints, func(o *Constraint) bool { return o.Name == name })
	s.Constraints = absent(s.Constraints)
	return ok
}

// rule is a constraint with what it says parsed.
type rule struct {
	*Constraint
	ix   *Index // nil: all keyspaces
	keys []keyspace.Key
	span *span // of Low and High; nil: none
}

// indexConstraints validates constraints and brings their texts to their canonical form.
func (s *Snapshot) indexConstraints() *sqlstate.Error {
	if n := len(s.state.Constraints); n > MaxConstraints {
		return invalid(sqlstate.ProgramLimitExceeded, "%d constraints are more than the %d that a map can hold", n, MaxConstraints)
	}
	seen := map[string]bool{}
	s.rules = make([]rule, 0, len(s.state.Constraints))
	for i := range s.state.Constraints {
		c := &s.state.Constraints[i]
		if err := checkName("a constraint", c.Name, false); err != nil {
			return err
		}
		fail := func(format string, args ...any) *sqlstate.Error {
			return invalid(sqlstate.InvalidParameterValue, "constraint "+c.Name+" "+format, args...)
		}
		r := rule{Constraint: c}
		bounded := c.Low != nil || c.High != nil
		switch {
		case seen[c.Name]:
			return invalid(sqlstate.DuplicateObject, "constraint %q is there twice", c.Name)
		case c.Kind != placement.Residency && c.Kind != placement.Isolation && c.Kind != placement.AntiAffinity:
			return fail("is of no kind that there is: %q", clip(string(c.Kind))).WithHint("use residency, isolation or anti-affinity")
		case (c.Kind == placement.Residency) != (len(c.Shards) > 0):
			return fail("must say which labels a shard needs if it is a residency, and only then")
		case len(c.Shards) > maxLabels || len(c.Keys) > MaxConstraintKeys:
			return fail("has too many labels or keys: %d and %d are allowed", maxLabels, MaxConstraintKeys)
		case bounded && len(c.Keys) > 0:
			return fail("is of keys or of a range, not of both")
		case c.Kind == placement.AntiAffinity && len(c.Keys) < 2:
			return fail("must name the keys of which no two are to be on one shard")
		case c.Keyspace == "" && (c.Kind != placement.Residency || bounded || len(c.Keys) > 0):
			return fail("must name its keyspace")
		}
		seen[c.Name] = true
		if c.Keyspace != "" {
			var ok bool
			if r.ix, ok = s.keyspaces[c.Keyspace]; !ok {
				return invalid(sqlstate.UndefinedObject, "constraint %s is about keyspace %q, which does not exist", c.Name, clip(c.Keyspace)).
					WithHint("remove it first: cleave constraint remove %s", c.Name)
			}
		}
		for _, texts := range c.Keys {
			key, err := parseWhole(r.ix.def, texts)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(r.keys, key.Equal) {
				return fail("names key %s twice", clip(keyText(texts)))
			}
			r.keys = append(r.keys, key)
		}
		if bounded {
			span, err := r.ix.span(Part{Low: c.Low, High: c.High})
			if err != nil {
				return err
			}
			r.span = &span
		}
		s.rules = append(s.rules, r)
	}
	return nil
}

// touches reports whether unit n of a keyspace has keys that a rule means; whole: it has no
// others.
func (r *rule) touches(ix *Index, n int) (touches, whole bool) {
	if r.ix == nil {
		return true, true
	}
	if r.ix != ix {
		return false, false
	}
	if r.keys == nil && r.span == nil {
		return true, true
	}
	ranges := len(ix.def.Ranges)
	if n >= ranges {
		var key keyspace.Key
		if n -= ranges; n < len(ix.valueKeys) {
			key = ix.valueKeys[n]
			if _, pinned := ix.pins[string(keyspace.AppendOrdered(nil, key))]; pinned {
				return false, false // the pin has its rows
			}
		} else {
			key = ix.pinKeys[n-len(ix.valueKeys)]
		}
		in := r.span != nil && ix.contains(r.span.iv, key) || slices.ContainsFunc(r.keys, key.Equal)
		return in, in
	}
	if r.span == nil {
		for _, key := range r.keys {
			if a, err := ix.Locate(key); err == nil && a.Range == n {
				return true, false
			}
		}
		return false, false
	}
	iv := ix.interval(n, n)
	return meets(ix, iv, r.span.iv), within(ix, iv, r.span.iv)
}

func meets(ix *Index, a, b keyspace.Interval) bool {
	if ix.def.Strategy == keyspace.Hash {
		return (a.Last || b.Low < a.High) && (b.Last || a.Low < b.High)
	}
	return (a.Last || b.LowKey < a.HighKey) && (b.Last || a.LowKey < b.HighKey)
}

func within(ix *Index, a, b keyspace.Interval) bool {
	if ix.def.Strategy == keyspace.Hash {
		return a.Low >= b.Low && (b.Last || !a.Last && a.High <= b.High)
	}
	return a.LowKey >= b.LowKey && (b.Last || !a.Last && a.HighKey <= b.HighKey)
}

// Violation says how a constraint is not kept.
type Violation struct {
	Constraint string `json:"constraint"`
	Shard      string `json:"shard"`
	What       string `json:"what"` // for people
}

// Violations lists how the constraints of the map are not kept: of a constraint that was
// broken already when it was added, until its keys have been moved.
func (s *Snapshot) Violations() []Violation {
	var out []Violation
	for i := range s.rules {
		s.broken(&s.rules[i], func(v Violation, _ func(prev *Snapshot) bool) bool {
			out = append(out, v)
			return true
		})
	}
	return out
}

// broken calls each with what breaks a rule, until it returns false. was says whether it was
// so in an earlier map, in which the rule is the same.
func (s *Snapshot) broken(r *rule, each func(v Violation, was func(prev *Snapshot) bool) bool) {
	say := func(shard, format string, args ...any) Violation {
		return Violation{Constraint: r.Name, Shard: shard, What: fmt.Sprintf(format, args...)}
	}
	if r.Kind == placement.AntiAffinity {
		first := map[string]int{}
		for i, key := range r.keys {
			a, err := r.ix.Locate(key)
			if err != nil {
				continue
			}
			other, ok := first[a.Shard]
			if !ok {
				first[a.Shard] = i
				continue
			}
			if !each(say(a.Shard, "keys %s and %s are both on shard %s", keyText(r.Keys[other]), keyText(r.Keys[i]), a.Shard), func(prev *Snapshot) bool {
				old := prev.keyspaces[r.Keyspace]
				return old.ownsNow(r.keys[other], a.Shard) && old.ownsNow(key, a.Shard)
			}) {
				return
			}
		}
		return
	}
	allowed := func(shard string) bool { return r.Kind != placement.Residency || hasLabels(s.shards[shard], r.Shards) }
	var meant map[string]bool // isolation: shards with something that is meant
	if r.Kind == placement.Isolation {
		meant = map[string]bool{}
		s.eachUnit(func(ix *Index, n int) bool {
			if touches, _ := r.touches(ix, n); touches {
				_, shard, _ := ix.Unit(n)
				meant[shard] = true
			}
			return true
		})
	}
	s.eachUnit(func(ix *Index, n int) bool {
		touches, whole := r.touches(ix, n)
		p, shard, _ := ix.Unit(n)
		was := func(prev *Snapshot) bool {
			old, ok := prev.keyspaces[ix.def.Name]
			sh, there := prev.shards[shard]
			return ok && there && old.ownedStart(ix, n) == shard && (r.Kind != placement.Residency || !hasLabels(sh, r.Shards))
		}
		switch {
		case r.Kind == placement.Residency && touches && !allowed(shard):
			return each(say(shard, "%s of keyspace %s is on shard %s, which has not %s", p.Text(), ix.def.Name, shard, labelsText(r.Shards)), was)
		case r.Kind == placement.Isolation && touches && !whole:
			return each(say(shard, "%s of keyspace %s has other keys too", p.Text(), ix.def.Name), func(prev *Snapshot) bool {
				old, ok := prev.keyspaces[ix.def.Name]
				return ok && !old.alone(r)
			})
		case r.Kind == placement.Isolation && !touches && meant[shard]:
			return each(say(shard, "%s of keyspace %s is on shard %s too", p.Text(), ix.def.Name, shard), func(prev *Snapshot) bool { return was(prev) && prev.isMeant(r, shard) })
		}
		return true
	})
	// Rows go to a transit's target before it owns them.
	for _, name := range slices.Sorted(maps.Keys(s.keyspaces)) {
		ix := s.keyspaces[name]
		for i := range ix.def.Transits {
			t := &ix.def.Transits[i]
			if owner, _ := ix.Sides(t); owner == t.To {
				continue // the source had them before, and they leave it
			}
			if r.Kind == placement.Residency && r.inTransit(ix, t) && !allowed(t.To) {
				if !each(say(t.To, "%s of keyspace %s would go to shard %s, which has not %s", t.Text(), name, t.To, labelsText(r.Shards)), func(prev *Snapshot) bool {
					_, old := prev.Transit(t.ID)
					return old != nil && old.To == t.To
				}) {
					return
				}
			}
		}
	}
}

// inTransit reports whether a transit has keys that a rule means.
func (r *rule) inTransit(ix *Index, t *Transit) bool {
	if r.ix == nil {
		return true
	}
	if r.ix != ix {
		return false
	}
	if r.keys == nil && r.span == nil {
		return true
	}
	span, err := ix.span(t.Part.Clone())
	if err != nil {
		return false // never: the map was checked
	}
	if span.key != nil {
		return r.span != nil && ix.contains(r.span.iv, span.key) || slices.ContainsFunc(r.keys, span.key.Equal)
	}
	if r.span != nil {
		return meets(ix, span.iv, r.span.iv)
	}
	return slices.ContainsFunc(r.keys, func(k keyspace.Key) bool {
		_, pinned := ix.pins[string(keyspace.AppendOrdered(nil, k))]
		return !pinned && ix.contains(span.iv, k)
	})
}

// eachUnit calls f with every assignment, until it returns false.
func (s *Snapshot) eachUnit(f func(ix *Index, n int) bool) {
	for i := range s.state.Keyspaces {
		ix := s.keyspaces[s.state.Keyspaces[i].Name]
		for n := range ix.UnitCount() {
			if !f(ix, n) {
				return
			}
		}
	}
}

func (ix *Index) ownsNow(key keyspace.Key, shard string) bool {
	a, err := ix.Locate(key)
	return err == nil && a.Shard == shard
}

// ownedStart is the owner of the first key of another map's unit.
func (ix *Index) ownedStart(of *Index, n int) string {
	if n < len(of.def.Ranges) {
		return ix.def.Ranges[ix.rangeFrom(of.interval(n, n))].Shard
	}
	var key keyspace.Key
	if n -= len(of.def.Ranges); n < len(of.valueKeys) {
		key = of.valueKeys[n]
	} else {
		key = of.pinKeys[n-len(of.valueKeys)]
	}
	if a, err := ix.Locate(key); err == nil {
		return a.Shard
	}
	return ""
}

// alone reports whether what a rule of another map means is in assignments of its own.
func (ix *Index) alone(r *rule) bool {
	own := rule{Constraint: r.Constraint, ix: ix, keys: r.keys, span: r.span}
	for n := range ix.UnitCount() {
		if touches, whole := own.touches(ix, n); touches && !whole {
			return false
		}
	}
	return true
}

// isMeant reports whether a shard has something that a rule of another map means.
func (s *Snapshot) isMeant(r *rule, shard string) bool {
	ix, ok := s.keyspaces[r.Keyspace]
	if !ok {
		return false
	}
	own := rule{Constraint: r.Constraint, ix: ix, keys: r.keys, span: r.span}
	for n := range ix.UnitCount() {
		if _, owner, _ := ix.Unit(n); owner == shard {
			if touches, _ := own.touches(ix, n); touches {
				return true
			}
		}
	}
	return false
}

// checkConstraints refuses a change that breaks a constraint which was kept: of one that is
// new, or was broken in the same place before, nothing is refused.
func checkConstraints(prev, next *Snapshot) error {
	for i := range next.rules {
		r := &next.rules[i]
		before := slices.IndexFunc(prev.rules, func(o rule) bool { return reflect.DeepEqual(o.Constraint, r.Constraint) })
		if before < 0 {
			continue
		}
		var err *sqlstate.Error
		next.broken(r, func(v Violation, was func(*Snapshot) bool) bool {
			if !was(prev) {
				err = sqlstate.New(sqlstate.ObjectNotInState, "constraint %s would be broken: %s", r.Name, v.What).
					WithDetail("the constraint says: %s", r.Text()).
					WithHint("choose another shard, or take the constraint back: cleave constraint remove %s", r.Name)
				err.Shard, err.Keyspace = v.Shard, r.Keyspace
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Breaks says which constraint a map breaks that an earlier one keeps, or which drain it works against: 55000, nil if none. by is the
// transit that changes its owner, "" if there is none yet.
func Breaks(prev, next *Snapshot, by string) error {
	if err := checkConstraints(prev, next); err != nil {
		return err
	}
	return checkDrains(prev, next, by)
}

// PlacementConstraints returns the constraints for proposals, and marks the units of the
// keyspaces that they mean. units are those of each keyspace, as PlacementUnits lists them.
// An isolation is of units that the map has by themselves: pin its keys first.
func (s *Snapshot) PlacementConstraints(units map[string][]placement.Unit) []placement.Constraint {
	var out []placement.Constraint
	for i := range s.rules {
		r := &s.rules[i]
		label := "cleave/constraint/" + r.Name
		for name, list := range units {
			ix, ok := s.keyspaces[name]
			if !ok {
				continue
			}
			for n := range list {
				touches, whole := r.touches(ix, n)
				if whole || touches && r.Kind != placement.Isolation {
					list[n].Labels[label] = "yes"
				}
			}
		}
		out = append(out, placement.Constraint{Name: r.Name, Kind: r.Kind, Units: map[string]string{label: "yes"}, Shards: r.Shards})
	}
	return out
}

// Constraint returns the constraint of that name.
func (s *Snapshot) Constraint(name string) (*Constraint, bool) {
	for i := range s.state.Constraints {
		if s.state.Constraints[i].Name == name {
			return &s.state.Constraints[i], true
		}
	}
	return nil, false
}

// Closed returns the shards on which the constraints allow nothing else of a keyspace, which
// need not be there yet: those of isolated keys, and those without the labels that it needs.
func (s *Snapshot) Closed(ks string) map[string]bool {
	closed := map[string]bool{}
	for i := range s.rules {
		r := &s.rules[i]
		switch {
		case r.Kind == placement.Residency && r.keys == nil && r.span == nil && (r.ix == nil || r.Keyspace == ks):
			for _, sh := range s.state.Shards {
				if !hasLabels(&sh, r.Shards) {
					closed[sh.Name] = true
				}
			}
		case r.Kind == placement.Isolation && r.Keyspace != ks:
			for n := range r.ix.UnitCount() {
				if _, whole := r.touches(r.ix, n); whole {
					_, shard, _ := r.ix.Unit(n)
					closed[shard] = true
				}
			}
		}
	}
	return closed
}

// OpenShards are the shards that a keyspace, which need not be there yet, may have keys on, without those that are being drained, read-only
// or out of service.
func (s *Snapshot) OpenShards(ks string) []Shard {
	closed := s.Closed(ks)
	if len(closed) == 0 && !s.draining && !s.restricted {
		return s.state.Shards
	}
	var open []Shard
	for _, sh := range s.state.Shards {
		if !closed[sh.Name] && sh.Drain == "" && sh.Service == InService {
			open = append(open, sh)
		}
	}
	return open
}
