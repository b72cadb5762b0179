package plan

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Shards returns the shards of the target at a snapshot, each once, sorted by
// name. Alternatives with NULL, or outside of their column's type, match nothing
// and are left out. There is always one shard at least: where no row can match,
// any shard gives the right answer, and it is the default shard, as for AnyOne;
// of AnyOne the executor may take any other.
//
// Errors: those of [Statement.Route] for parameters that cannot be read.
func (t *Target) Shards(snap *shardmap.Snapshot, args *Args) ([]string, error) {
	return t.Touch(snap, args, nil)
}

// Units are assignments of a map, see shardmap.Snapshot.Units: those from From on, before To.
type Units struct{ From, To int }

// Touch is Shards; it adds to units, if not nil, what has keys of the target, in order, each once.
func (t *Target) Touch(snap *shardmap.Snapshot, args *Args, units *[]Units) ([]string, error) {
	switch t.Where {
	case AnyOne, Default:
		return []string{snap.State().DefaultShard}, nil
	case Every:
		var names []string
		for _, s := range snap.Shards() {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return names, nil
	}
	index, found := snap.Keyspace(t.Keyspace)
	if !found {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "keyspace %q is not in the shard map any more", t.Keyspace)
	}
	seen := map[string]bool{}
	switch {
	case t.Keys == nil && t.Spans == nil:
		for _, name := range index.Owners() {
			seen[name] = true
		}
		if units != nil {
			n := len(index.Def().Ranges) // pins have little of it
			if n == 0 {
				n = index.UnitCount()
			}
			*units = append(*units, Units{index.FirstUnit(), index.FirstUnit() + n})
		}
	case t.Spans != nil:
		for i := range t.Spans {
			if err := t.Spans[i].owners(index, args, seen, units); err != nil {
				return nil, err
			}
		}
	default:
		key := make(keyspace.Key, 0, MaxKeyColumns)
		keys, err := expandKeys(t.Keys, args)
		if err != nil {
			return nil, err
		}
		for _, exprs := range keys {
			key = key[:0]
			match := true
			for i := range exprs {
				v, never, err := exprs[i].Value, exprs[i].Never, error(nil)
				if exprs[i].Param != 0 {
					if v, never, err = exprs[i].eval(args); err != nil {
						return nil, err
					}
				}
				match = match && !never
				key = append(key, v)
			}
			if !match {
				continue
			}
			at, err := index.Locate(key)
			if err != nil {
				if sqlstate.As(err).Code == sqlstate.CheckViolation {
					continue // no shard has rows of a value that is not listed
				}
				return nil, err
			}
			seen[at.Shard] = true
			if units != nil {
				*units = addUnit(*units, at.Unit)
			}
		}
	}
	if units != nil {
		*units = once(*units)
	}
	if len(seen) == 0 {
		return []string{snap.State().DefaultShard}, nil
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// owners adds the shards that may own keys of the interval. A parameter that is
// NULL matches nothing; one that the column's type does not hold is no bound.
func (s *Span) owners(index *shardmap.Index, args *Args, seen map[string]bool, units *[]Units) error {
	def := index.Def()
	return s.visit(index, args, func(i int) {
		seen[def.Ranges[i].Shard] = true
		if units != nil {
			*units = addUnit(*units, index.FirstUnit()+i)
		}
	}, func(i int) { seen[def.Pins[i].Shard] = true })
}

// addUnit adds a unit, to the last ones if it follows them.
func addUnit(units []Units, unit int) []Units {
	if n := len(units); n > 0 && unit >= units[n-1].From && unit <= units[n-1].To {
		units[n-1].To = max(units[n-1].To, unit+1)
		return units
	}
	return append(units, Units{unit, unit + 1})
}

// once puts units in order, each once.
func once(units []Units) []Units {
	if len(units) < 2 {
		return units
	}
	slices.SortFunc(units, func(a, b Units) int { return cmp.Compare(a.From, b.From) })
	out := units[:1]
	for _, u := range units[1:] {
		if last := &out[len(out)-1]; u.From <= last.To {
			last.To = max(last.To, u.To)
		} else {
			out = append(out, u)
		}
	}
	return out
}

// visit is told of each range and each pin that may have keys of the interval, by
// its place in the keyspace.
func (s *Span) visit(index *shardmap.Index, args *Args, ranged, pinned func(i int)) error {
	bound := func(e *KeyExpr) (enc []byte, null bool, err error) {
		if e == nil {
			return nil, false, nil
		}
		v := e.Value
		if e.Param != 0 {
			raw, _, _, err := e.bound(args)
			if err != nil || raw == nil {
				return nil, err == nil, err
			}
			never := false
			if v, never, err = e.eval(args); err != nil || never {
				return nil, false, err
			}
		}
		return keyspace.AppendOrdered(nil, keyspace.Key{v}), false, nil
	}
	low, never, err := bound(s.Low)
	if err != nil || never {
		return err
	}
	high, never, err := bound(s.High)
	if err != nil || never {
		return err
	}
	def := index.Def()
	first := func(texts []string) ([]byte, error) {
		if len(texts) == 0 {
			return nil, nil
		}
		v, err := keyspace.ParseText(def.Types[0], []byte(texts[0]))
		return keyspace.AppendOrdered(nil, keyspace.Key{v}), err
	}
	for i := range def.Ranges {
		r := &def.Ranges[i]
		from, err := first(r.Low)
		if err != nil {
			return err
		}
		to, err := first(r.High)
		if err != nil {
			return err
		}
		if low != nil && to != nil {
			// The high bound is not in the range, but with further columns keys that
			// begin with it may be.
			if c := bytes.Compare(to, low); c < 0 || c == 0 && len(r.High) == 1 {
				continue
			}
		}
		if high != nil && from != nil {
			if c := bytes.Compare(from, high); c > 0 || c == 0 && s.HighOpen {
				continue
			}
		}
		ranged(i)
	}
	for i := range def.Pins {
		key, err := first(def.Pins[i].Key)
		if err != nil {
			return err
		}
		if low != nil && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) > 0 {
			continue
		}
		pinned(i)
	}
	return nil
}

// Owners returns the shard of each row of VALUES. computed are the values of
// Computed, in text, nil for NULL.
//
// Errors: 23502 for a NULL in the shard key, 23514 for a key that a list keyspace
// does not have, 22xxx for a value that is not one of its type, 57P03 if the
// keyspace is not in the map any more.
func (p *InsertPlan) Owners(snap *shardmap.Snapshot, args *Args, computed [][]byte) (shards []string, units []Units, err error) {
	index, err := indexOf(snap, p.Table)
	if err != nil {
		return nil, nil, err
	}
	shards = make([]string, len(p.Rows))
	key := make(keyspace.Key, len(p.Types))
	for r := range p.Rows {
		if err := p.key(key, r, args, computed); err != nil {
			return nil, nil, err
		}
		at, err := index.Locate(key)
		if err != nil {
			return nil, nil, err
		}
		shards[r], units = at.Shard, addUnit(units, at.Unit)
	}
	return shards, once(units), nil
}

// Key is the shard key of a row of VALUES. Errors: those of Owners.
func (p *InsertPlan) Key(row int, args *Args, computed [][]byte) (keyspace.Key, error) {
	key := make(keyspace.Key, len(p.Types))
	return key, p.key(key, row, args, computed)
}

func (p *InsertPlan) key(key keyspace.Key, row int, args *Args, computed [][]byte) (err error) {
	for i := range p.Rows[row].Key {
		e := &p.Rows[row].Key[i]
		never := false
		switch {
		case e.Computed > 0:
			key[i], err = StoredKey(p.Table, i, &e.KeyExpr, computed[e.Computed-1])
		case e.Param == 0:
			key[i] = e.Value
		default:
			key[i], never, err = e.eval(args)
		}
		if err == nil && never {
			err = NullKey(p.Table, p.Table.ShardKey[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// StoredKey is column i of a table's shard key as it is stored when a value, in
// text, is assigned to it; nil is NULL. e says what the column does to a value.
// Errors: 23502, 22xxx.
func StoredKey(t *shardmap.Table, i int, e *KeyExpr, text []byte) (keyspace.Value, error) {
	if text == nil {
		return keyspace.Value{}, NullKey(t, t.ShardKey[i])
	}
	v, err := keyspace.ParseText(e.Type, text)
	if err != nil {
		return v, err
	}
	return e.Modifier.Coerce(v)
}

// Owner is the shard that owns a key of a table. Errors: those of Owners.
func Owner(snap *shardmap.Snapshot, t *shardmap.Table, key keyspace.Key) (shard string, unit int, err error) {
	index, err := indexOf(snap, t)
	if err != nil {
		return "", -1, err
	}
	at, err := index.Locate(key)
	return at.Shard, at.Unit, err
}

func indexOf(snap *shardmap.Snapshot, t *shardmap.Table) (*shardmap.Index, error) {
	index, found := snap.Keyspace(t.Keyspace)
	if !found {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "keyspace %q is not in the shard map any more", t.Keyspace)
	}
	return index, nil
}
