package workflow

import (
	"math"
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
)

// prepare returns the map in which everything that constraints and hot keys need by itself is
// so, with the steps that lead there: no row is moved by them. free are the names of the units
// that are pins and may move.
func (p *BalancePlan) prepare(snap *shardmap.Snapshot, found *Found) (*shardmap.Snapshot, map[string][]Size, map[string]bool, error) {
	st, sizes := snap.State(), found.Sizes
	next, changed := st.Clone(), false
	var pinned []shardmap.HotKey
	pin := func(ks string, key []string, load float64) error {
		ix, ok := snap.Keyspace(ks)
		if !ok {
			return nil
		}
		k, err := keyspace.ParseKey(ix.Def().Types, key)
		if err != nil {
			return err
		}
		a, err := ix.Locate(k)
		if err != nil || a.Pinned || moving(snap, ks, shardmap.Part{Key: key}, found.Moving) {
			return nil // not listed, or it is so already
		}
		for _, o := range pinned {
			if o.Keyspace == ks && slices.Equal(o.Key, k.Texts()) {
				return nil
			}
		}
		if ix.Def().Strategy == keyspace.List {
			return nil // a listed value is by itself
		}
		changed = true
		pinned = append(pinned, shardmap.HotKey{Keyspace: ks, Key: k.Texts(), Statements: load})
		p.Steps = append(p.Steps, PlanStep{Kind: Pin, Keyspace: ks, Part: shardmap.Part{Key: k.Texts()}, To: a.Shard, Size: Size{Load: load}})
		return next.PutPin(ks, k.Texts(), a.Shard)
	}
	split := func(ks string, at []string) error {
		ix, _ := snap.Keyspace(ks)
		before := len(rangesOf(&next, ks))
		if err := next.Split(ks, at); err != nil {
			return err
		}
		if len(rangesOf(&next, ks)) == before {
			return nil
		}
		changed = true
		part := shardmap.Part{}
		for _, r := range ix.Def().Ranges {
			if own := snap.Keys(ks, shardmap.Part{Low: r.Low, High: r.High}); holds(ix.Def(), &own, at) {
				part = shardmap.Part{Low: r.Low, High: r.High}
			}
		}
		p.Steps = append(p.Steps, PlanStep{Kind: Split, Keyspace: ks, Part: part, At: at})
		return nil
	}
	broken := map[string]bool{}
	for _, v := range snap.Violations() {
		broken[v.Constraint] = true
	}
	p.Broken = len(broken)
	for i := range st.Constraints {
		c := &st.Constraints[i]
		for _, at := range [][]string{c.Low, c.High} {
			if at == nil || !broken[c.Name] {
				continue
			}
			if err := split(c.Keyspace, at); err != nil {
				return nil, nil, nil, err
			}
		}
		for _, key := range c.Keys {
			if !broken[c.Name] {
				continue
			}
			if err := pin(c.Keyspace, key, 0); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	if p.Options.AloneLoad > 0 {
		for _, k := range found.Hot {
			if k.Load <= p.Options.AloneLoad || sizes[k.Keyspace] == nil {
				continue
			}
			if err := pin(k.Keyspace, k.Key, k.Load); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	if !changed {
		return snap, sizes, nil, nil
	}
	base, err := shardmap.NewSnapshot(next)
	if err != nil {
		return nil, nil, nil, err
	}
	sizes = carrySizes(snap, base, sizes)
	free := map[string]bool{}
	for _, k := range pinned {
		ix, _ := base.Keyspace(k.Keyspace)
		key, err := keyspace.ParseKey(ix.Def().Types, k.Key)
		if err != nil {
			return nil, nil, nil, err
		}
		a, err := ix.Locate(key)
		if err != nil {
			return nil, nil, nil, err
		}
		unit := a.Unit - ix.FirstUnit()
		free[ix.Def().PlacementUnits()[unit].Name] = true
		if list := sizes[k.Keyspace]; list != nil {
			in := ix.LocateRange(key)
			list[unit].Load = min(k.Statements, list[in].Load)
			list[in].Load -= list[unit].Load
		}
	}
	return base, sizes, free, nil
}

func rangesOf(s *shardmap.State, ks string) []shardmap.Range {
	for i := range s.Keyspaces {
		if s.Keyspaces[i].Name == ks {
			return s.Keyspaces[i].Ranges
		}
	}
	return nil
}

// holds reports whether a bound lies in the one interval of keys.
func holds(k *shardmap.Keyspace, own *keyspace.Ownership, at []string) bool {
	if len(own.Intervals) == 0 {
		return false
	}
	iv := &own.Intervals[0]
	if k.Strategy == keyspace.Hash {
		return iv.ContainsHash(bound(at, math.MinInt64))
	}
	key, err := keyspace.ParseKey(k.Types[:min(len(at), len(k.Types))], at)
	return err == nil && iv.ContainsKey(keyspace.AppendOrdered(nil, key))
}

// moving reports whether something of a part is in transit, or one of the parts that moves want.
func moving(snap *shardmap.Snapshot, ks string, p shardmap.Part, wanted map[string][]shardmap.Part) bool {
	ix, _ := snap.Keyspace(ks)
	return slices.ContainsFunc(ix.Def().Transits, func(t shardmap.Transit) bool { return snap.Overlap(ks, t.Part, p) }) ||
		slices.ContainsFunc(wanted[ks], func(w shardmap.Part) bool { return snap.Overlap(ks, w, p) })
}

// carrySizes turns the sizes of one map's units into those of another one's.
func carrySizes(from, to *shardmap.Snapshot, sizes map[string][]Size) map[string][]Size {
	var figures [3][]float64
	for i := range figures {
		figures[i] = make([]float64, from.Units())
	}
	for name, list := range sizes {
		ix, ok := from.Keyspace(name)
		if !ok {
			continue
		}
		for i, s := range list {
			n := ix.FirstUnit() + i
			figures[0][n], figures[1][n], figures[2][n] = float64(s.Rows), float64(s.Bytes), s.Load
		}
	}
	for i := range figures {
		figures[i] = to.Carry(from, figures[i])
	}
	out := map[string][]Size{}
	for name := range sizes {
		ix, ok := to.Keyspace(name)
		if !ok {
			continue
		}
		list := make([]Size, ix.UnitCount())
		for i := range list {
			n := ix.FirstUnit() + i
			list[i] = Size{Rows: int64(figures[0][n] + 0.5), Bytes: int64(figures[1][n] + 0.5), Load: figures[2][n]}
		}
		out[name] = list
	}
	return out
}

// brokenUnits returns the units that some constraint wants elsewhere, with its name.
func brokenUnits(snap *shardmap.Snapshot, units map[string][]placement.Unit, constraints []placement.Constraint) map[string]string {
	out := map[string]string{}
	for i := range constraints {
		c := &constraints[i]
		means := func(u *placement.Unit) bool {
			for label := range c.Units {
				return u.Labels[label] != ""
			}
			return true
		}
		meant, others := ownersOf(units, means)
		for _, list := range units {
			for n := range list {
				u := &list[n]
				var bad bool
				switch c.Kind {
				case placement.Residency:
					bad = means(u) && !resides(snap, u.Owner, c.Shards)
				case placement.Isolation:
					bad = meant[u.Owner] > 0 && others[u.Owner] > 0
				case placement.AntiAffinity:
					bad = means(u) && meant[u.Owner] > 1
				}
				if bad {
					out[u.Name] = c.Name
				}
			}
		}
	}
	return out
}

// resides reports whether a shard has labels.
func resides(snap *shardmap.Snapshot, shard string, labels map[string]string) bool {
	sh, ok := snap.Shard(shard)
	if !ok {
		return false
	}
	for k, v := range labels {
		if sh.Labels[k] != v {
			return false
		}
	}
	return true
}

// ownersOf counts the units that are meant, and the others, by their shards.
func ownersOf(units map[string][]placement.Unit, means func(u *placement.Unit) bool) (meant, others map[string]int) {
	meant, others = map[string]int{}, map[string]int{}
	for _, list := range units {
		for n := range list {
			if means(&list[n]) {
				meant[list[n].Owner]++
			} else {
				others[list[n].Owner]++
			}
		}
	}
	return meant, others
}

// sameRules reports whether the same constraints mean two units.
func sameRules(a, b *placement.Unit) bool {
	if len(a.Labels) != len(b.Labels) {
		return false
	}
	for k := range a.Labels {
		if _, ok := b.Labels[k]; !ok {
			return false
		}
	}
	return true
}
