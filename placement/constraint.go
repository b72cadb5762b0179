package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Unit is what has one owner as a whole: a key range, a listed value or a pin.
type Unit struct {
	// Name is how errors and moves call it; unique.
	Name string
	// Owner is the shard that has it, empty if none has.
	Owner string
	// Size is what it weighs: rows, bytes, a share of positions; 0 or above. If no
	// unit has a size, all count alike.
	Size float64
	// Position is where it lies for ring, jump, rendezvous and modulo: any number
	// that is its own and does not change, such as the low bound of a hash range.
	Position int64
	// Labels are what constraints ask for: tenant=42, region=eu.
	Labels map[string]string
}

// Kind says what a [Constraint] forbids.
type Kind string

const (
	// Residency: a unit lies only on shards with the labels.
	Residency Kind = "residency"
	// Isolation: a unit shares no shard with units that are not meant.
	Isolation Kind = "isolation"
	// AntiAffinity: no two of the units lie on one shard.
	AntiAffinity Kind = "anti-affinity"
)

// Constraint is a rule that no proposal breaks. It is plain data, made to be
// stored in the shard map. The limit on what a shard holds is [Shard.Capacity].
type Constraint struct {
	Name string `json:"name"` // unique
	Kind Kind   `json:"kind"`
	// Units and Names say which units are meant: those that have all of these
	// labels, and one of these names. Empty says nothing; both empty is all units.
	Units map[string]string `json:"units,omitempty"`
	Names []string          `json:"names,omitempty"`
	// By makes one rule for each value of a label of the units: isolation by
	// "tenant" keeps each tenant alone. Not for residency.
	By string `json:"by,omitempty"`
	// Shards are the labels that a shard must have; residency only.
	Shards map[string]string `json:"shards,omitempty"`
}

func (c *Constraint) means(u *Unit) bool {
	return hasLabels(u.Labels, c.Units) && (len(c.Names) == 0 || slices.Contains(c.Names, u.Name))
}

// String says the rule in words.
func (c *Constraint) String() string {
	who := "every unit"
	if len(c.Units) > 0 {
		who = "units with " + labelText(c.Units)
	}
	if len(c.Names) > 0 {
		who += " named " + strings.Join(c.Names, ", ")
	}
	by := ""
	if c.By != "" {
		by = " of one " + c.By
	}
	switch c.Kind {
	case Residency:
		return fmt.Sprintf("%s only on shards with %s", who, labelText(c.Shards))
	case Isolation:
		return fmt.Sprintf("%s%s share no shard with others", who, by)
	case AntiAffinity:
		return fmt.Sprintf("no two%s on one shard: %s", by, who)
	}
	return string(c.Kind)
}

func hasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func labelText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ", ")
}

// MaxUnits is the greatest number of units of one proposal, as many as a map
// assigns; MaxConstraints that of its constraints.
const (
	MaxUnits       = 1 << 20
	MaxConstraints = 4096
)

func checkUnits(units []Unit) error {
	if len(units) > MaxUnits {
		return invalid("%d units are more than %d", len(units), MaxUnits)
	}
	seen := make(map[string]bool, len(units))
	for i := range units {
		u := &units[i]
		switch {
		case u.Name == "":
			return invalid("unit %d has no name", i+1)
		case seen[u.Name]:
			return invalid("unit %q is given twice", u.Name)
		case !(u.Size >= 0 && u.Size <= 1e300):
			return invalid("the size of %s is %v", u.Name, u.Size).WithHint("use a number from 0 on")
		}
		seen[u.Name] = true
	}
	return nil
}

func checkConstraints(constraints []Constraint) error {
	if len(constraints) > MaxConstraints {
		return invalid("%d constraints are more than %d", len(constraints), MaxConstraints)
	}
	seen := make(map[string]bool, len(constraints))
	for i := range constraints {
		c := &constraints[i]
		switch {
		case c.Name == "":
			return invalid("constraint %d has no name", i+1)
		case seen[c.Name]:
			return invalid("constraint %q is given twice", c.Name)
		case c.Kind != Residency && c.Kind != Isolation && c.Kind != AntiAffinity:
			return invalid("constraint %q is of no kind that there is: %q", c.Name, string(c.Kind)).
				WithHint("use %s, %s or %s", Residency, Isolation, AntiAffinity)
		case c.Kind == Residency && len(c.Shards) == 0:
			return invalid("constraint %q does not say which labels a shard must have", c.Name)
		case c.Kind == Residency && c.By != "":
			return invalid("constraint %q: a residency is not by a label of the units", c.Name).
				WithHint("make one residency for each value of %s", c.By)
		case c.Kind != Residency && len(c.Shards) > 0:
			return invalid("constraint %q: only a residency asks for labels of shards", c.Name)
		}
		seen[c.Name] = true
	}
	return nil
}

// Check reports whether the owners of the units, as they are, keep the
// constraints and the capacities; units without owner keep them all. Errors:
// 55000 names the first constraint that is broken, with the units and the shard;
// 22023 for what cannot be read.
func Check(units []Unit, shards []Shard, constraints []Constraint) error {
	if err := checkUnits(units); err != nil {
		return err
	}
	if err := checkConstraints(constraints); err != nil {
		return err
	}
	index := make(map[string]int, len(shards))
	load, size := make([]float64, len(shards)), sizes(units)
	for i := range shards {
		index[shards[i].Name] = i
	}
	for i := range units {
		if units[i].Owner == "" {
			continue
		}
		at, ok := index[units[i].Owner]
		if !ok {
			return invalid("%s is owned by %q, which is no shard", units[i].Name, units[i].Owner)
		}
		load[at] += size[i]
	}
	for i := range shards {
		if s := &shards[i]; over(load[i], s.Capacity) {
			return broken(s.Name, "the capacity of %s is %v, and its units need %v", s.Name, s.Capacity, load[i])
		}
	}
	for i := range constraints {
		if err := constraints[i].check(units, shards, index); err != nil {
			return err
		}
	}
	return nil
}

func (c *Constraint) check(units []Unit, shards []Shard, index map[string]int) error {
	// The first unit seen on a shard, of each rule for anti-affinity; the kind of
	// unit that a shard has, for isolation.
	first := map[[2]string]string{}
	for i := range units {
		u := &units[i]
		if u.Owner == "" {
			continue
		}
		means := c.means(u)
		switch {
		case c.Kind == Residency && means:
			if !hasLabels(shards[index[u.Owner]].Labels, c.Shards) {
				return broken(u.Owner, "constraint %q: %s is on %s, which has not %s", c.Name, u.Name, u.Owner, labelText(c.Shards))
			}
		case c.Kind == AntiAffinity && means:
			k := [2]string{u.Owner, u.Labels[c.By]}
			if other, ok := first[k]; ok {
				return broken(u.Owner, "constraint %q: %s and %s are both on %s", c.Name, other, u.Name, u.Owner)
			}
			first[k] = u.Name
		case c.Kind == Isolation:
			rule := ""
			if means {
				rule = "=" + u.Labels[c.By]
			}
			k := [2]string{u.Owner, ""}
			if other, ok := first[k]; ok && other != rule {
				return broken(u.Owner, "constraint %q: %s is on %s with others", c.Name, u.Name, u.Owner)
			}
			first[k] = rule
		}
	}
	return nil
}

func broken(shard, format string, args ...any) error {
	err := sqlstate.New(sqlstate.ObjectNotInState, format, args...)
	err.Shard = shard
	return err
}

// over allows for the rounding of sums in any order.
func over(load, capacity float64) bool { return capacity > 0 && load > capacity*(1+1e-9) }
