package shardmap

import (
	"reflect"
	"slices"
)

// Concern is what a change of the map means for statements that were planned with the map before it, and are
// under way.
type Concern struct {
	// All: it may concern every one.
	All bool
	// Shards are those that get or give keys, and those of transits that came, went or changed.
	Shards []string
	// Tables are the names of those that are to be found elsewhere than the map before says: they are new (not known
	// before, or dropped before that), or of another kind. A statement that names one, in any schema, since the search
	// path may lead it there, or a table that its map does not know, must not reach a shard that has the change.
	Tables map[string]bool
}

// Strangers reports whether a statement that names a table which its map does not know is concerned. It was sent to the
// default shard, which has a part of the rows of a new table.
func (c *Concern) Strangers() bool { return c.All || len(c.Tables) > 0 }

// Moves reports whether a table of that name is to be found elsewhere than before.
func (c *Concern) Moves(name string) bool { return c.All || c.Tables[name] }

// sameRouting reports whether statements of two tables of one name go to the same shards.
func sameRouting(a, b *Table) bool {
	if a.Kind != b.Kind || a.Keyspace != b.Keyspace || !slices.Equal(a.ShardKey, b.ShardKey) {
		return false
	}
	for _, name := range a.ShardKey {
		if typeOf(a, name) != typeOf(b, name) {
			return false
		}
	}
	return true
}

func typeOf(t *Table, column string) string {
	for i := range t.Columns {
		if t.Columns[i].Name == column {
			return t.Columns[i].Type
		}
	}
	return ""
}

// Concerned returns what a change from map a to map b concerns.
func Concerned(a, b *Snapshot) Concern {
	if a.state.DefaultShard != b.state.DefaultShard || !slices.EqualFunc(a.state.Shards, b.state.Shards, alike) {
		return Concern{All: true}
	}
	c := Concern{}
	if a.SchemaVersion() != b.SchemaVersion() {
		c.Tables = relocated(a, b)
	}
	shards, all := owners(a, b)
	if all {
		return Concern{All: true}
	}
	c.Shards = shards
	return c
}

// alike reports whether statements take two forms of a shard for the same. That it is being drained is nothing to them.
func alike(a, b Shard) bool {
	a.Drain = b.Drain
	return reflect.DeepEqual(a, b)
}

// onDefault reports whether the default shard has all rows of a table, and nobody else has one. Statements that do not
// know the table, or take it for an unsharded one, look for it there.
func (s *Snapshot) onDefault(t *Table) bool {
	switch t.Kind {
	case Whole:
		return true
	case Sharded:
		ix := s.keyspaces[t.Keyspace]
		return ix != nil && len(ix.def.Transits) == 0 && !slices.ContainsFunc(ix.Owners(), func(shard string) bool { return shard != s.state.DefaultShard })
	}
	return false
}

// relocated are the tables of b that are new, or that a has elsewhere.
func relocated(a, b *Snapshot) map[string]bool {
	var out map[string]bool
	for i := range b.state.Tables {
		t := &b.state.Tables[i]
		was, ok := a.Table(t.Schema, t.Name)
		if ok && sameRouting(was, t) || b.onDefault(t) && (!ok || a.onDefault(was)) {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		out[t.Name] = true
	}
	return out
}

// owners returns the shards that get or give keys. Keyspaces that are only in one of the maps concern nobody: no table
// is in them, or the table is new as well.
func owners(a, b *Snapshot) (shards []string, all bool) {
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
		if was == nil {
			continue
		}
		if !sameDefinition(was.def, is.def) {
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
		for _, t := range slices.Concat(transitsOnly(was.def.Transits, is.def.Transits), transitsOnly(is.def.Transits, was.def.Transits)) {
			add(t.From, t.To)
		}
	}
	return shards, false
}

// transitsOnly are the transits of a map that another one has not.
func transitsOnly(of, other []Transit) (out []Transit) {
	for i := range of {
		if !slices.ContainsFunc(other, func(t Transit) bool { return of[i].same(&t) }) {
			out = append(out, of[i])
		}
	}
	return out
}
