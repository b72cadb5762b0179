package coordinator

import (
	"maps"
	"slices"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
)

// Labels by which what stays is kept where it is.
const (
	staysLabel = "cleave/stays"
	shardLabel = "cleave/shard"
)

// ruled proposes owners under the constraints of a map, keyspace by keyspace. Units of the other keyspaces, and those
// that are not to be moved, stay where they are: an isolation is about them too.
type ruled struct {
	snap        *shardmap.Snapshot
	shards      []placement.Shard
	constraints []placement.Constraint
	units       map[string][]placement.Unit // by keyspace, as PlacementUnits lists them
	gets        map[string]bool             // the shards that get something
}

func newRuled(snap *shardmap.Snapshot, shards []placement.Shard) *ruled {
	r := &ruled{snap: snap, shards: slices.Clone(shards), units: map[string][]placement.Unit{}, gets: map[string]bool{}}
	for i := range snap.State().Keyspaces {
		k := &snap.State().Keyspaces[i]
		r.units[k.Name] = k.PlacementUnits()
	}
	r.constraints = snap.PlacementConstraints(r.units)
	for i := range r.shards {
		labels := maps.Clone(r.shards[i].Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[shardLabel] = r.shards[i].Name
		r.shards[i].Labels = labels
		r.gets[r.shards[i].Name] = r.shards[i].Weight > 0
	}
	return r
}

// propose sets the owners of a keyspace's units, and remembers them for those of the next. Units that stay, and those
// of shards at rest, which are not among the shards, keep theirs.
func (r *ruled) propose(ks string, owners []string, tolerance float64, rest map[string]bool, stays func(n int) bool) error {
	list := r.units[ks]
	var units []placement.Unit
	var at []int
	constraints := slices.Clone(r.constraints)
	held := map[string]bool{}
	hold := func(u placement.Unit) {
		// What stays on a shard that gets nothing is in nobody's way.
		if !r.gets[u.Owner] {
			return
		}
		if u.Labels = maps.Clone(u.Labels); u.Labels == nil {
			u.Labels = map[string]string{}
		}
		u.Labels[staysLabel] = u.Owner
		if !held[u.Owner] {
			held[u.Owner] = true
			constraints = append(constraints, placement.Constraint{Name: "what is on " + u.Owner + " stays there", Kind: placement.Residency,
				Units: map[string]string{staysLabel: u.Owner}, Shards: map[string]string{shardLabel: u.Owner}})
		}
		units, at = append(units, u), append(at, -1)
	}
	movable := false
	for n := range list {
		switch {
		case !stays(n):
			movable = true
			units, at = append(units, list[n]), append(at, n)
		case !rest[list[n].Owner]:
			// They count for the shares, as they always have.
			if len(r.constraints) > 0 {
				hold(list[n])
			} else {
				units, at = append(units, list[n]), append(at, -1)
			}
		}
	}
	if !movable {
		return nil
	}
	for _, u := range r.others(ks) {
		hold(u)
	}
	p, err := placement.Propose(placement.Request{Units: units, Shards: r.shards, Constraints: constraints, Algorithm: placement.Balanced, Tolerance: tolerance})
	if err != nil {
		return err
	}
	for i, n := range at {
		if n >= 0 {
			owners[n] = p.Owners[i]
			list[n].Owner = p.Owners[i]
		}
	}
	return nil
}

// others are the units of other keyspaces, which count for the constraints, and for no share.
func (r *ruled) others(ks string) (out []placement.Unit) {
	if len(r.constraints) == 0 {
		return nil
	}
	for name, units := range r.units {
		if name == ks {
			continue
		}
		for _, u := range units {
			u.Size = 0
			out = append(out, u)
		}
	}
	return out
}
