package planner

import (
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Shards returns the shards of the target at a snapshot, each once, sorted by
// name. Alternatives with NULL, or outside of their column's type, match nothing
// and are left out. There is always one shard at least: where no row can match,
// any shard gives the right answer, and it is the default shard, as for AnyOne;
// of AnyOne whoever runs the plan may take any other.
//
// Errors: those of [Statement.Route] for parameters that cannot be read.
func (t *Target) Shards(snap *shardmap.Snapshot, args *Args) ([]string, error) {
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
	case t.Spans != nil:
		for i := range t.Spans {
			if err := t.Spans[i].owners(index, args, seen); err != nil {
				return nil, err
			}
		}
	default:
		key := make(keyspace.Key, 0, maxKeyColumns)
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
		}
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

// owners adds the shards that own keys of the interval.
func (s *Span) owners(index *shardmap.Index, args *Args, seen map[string]bool) error {
	for _, name := range index.Owners() {
		seen[name] = true
	}
	return nil
}
