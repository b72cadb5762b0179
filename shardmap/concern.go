package shardmap

import "reflect"

// Concerned returns the shards that a change from map a to map b concerns: those that
// get or give keys, and those of transits that came, went or changed. all: it may
// concern every one.
func Concerned(a, b *Snapshot) (shards []string, all bool) {
	if a.SchemaVersion() != b.SchemaVersion() || a.state.DefaultShard != b.state.DefaultShard ||
		len(a.keyspaces) != len(b.keyspaces) || !reflect.DeepEqual(a.state.Shards, b.state.Shards) {
		return nil, true
	}
	seen := map[string]bool{"": true}
	add := func(names ...string) {
		for _, n := range names {
			if !seen[n] {
				seen[n] = true
				shards = append(shards, n)
			}
		}
	}
	for name, is := range b.keyspaces {
		was := a.keyspaces[name]
		if was == nil || !sameDefinition(was.def, is.def) {
			return nil, true
		}
		for _, d := range diffContents(was, is) {
			switch d.Kind {
			case BoundDiffers, TransitDiffers: // a transit is looked at below
			default:
				add(d.From, d.To)
			}
			if d.Kind == PinDiffers && d.Action != Changed {
				// The key comes from its range, or goes back there.
				for _, ix := range []*Index{was, is} {
					if k, err := parseWhole(ix.def, append([]string(nil), d.Key...)); err == nil {
						add(ix.UnpinnedOwner(k))
					}
				}
			}
		}
		transits := func(from, other []Transit) {
			for i := range from {
				same := false
				for j := range other {
					same = same || from[i].same(&other[j])
				}
				if !same {
					add(from[i].From, from[i].To)
				}
			}
		}
		transits(was.def.Transits, is.def.Transits)
		transits(is.def.Transits, was.def.Transits)
	}
	return shards, false
}
