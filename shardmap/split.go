package shardmap

import (
	"cmp"
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Split cuts the range of a keyspace that a bound lies in: in a hash keyspace a
// position, in a range keyspace a key or the beginning of one. Both halves have the
// owner of the whole. What is a bound already stays as it is. Errors: 42704 if there
// is no such keyspace, 22P02 and its kin for what is no bound, 0A000 in a list keyspace.
func (s *State) Split(ks string, bound []string) error { return s.SplitAll(ks, [][]string{bound}) }

// SplitAll is Split for many bounds, in any order, in little more time than for one.
func (s *State) SplitAll(ks string, bounds [][]string) error {
	k, ix, err := s.editRanges(ks)
	if err != nil {
		return err
	}
	type cut struct {
		in    int // the range
		iv    keyspace.Interval
		bound []string
	}
	var cuts []cut
	for _, bound := range bounds {
		at, bound, err := ix.boundAt(bound)
		if err != nil {
			return err
		}
		if slices.Equal(k.Ranges[at].Low, bound) {
			continue
		}
		sp, bad := ix.span(Part{Low: slices.Clone(bound)})
		if bad != nil {
			return bad
		}
		cuts = append(cuts, cut{at, sp.iv, bound})
	}
	if len(cuts) == 0 {
		return nil
	}
	slices.SortFunc(cuts, func(a, b cut) int {
		return cmp.Or(cmp.Compare(a.in, b.in), cmp.Compare(a.iv.Low, b.iv.Low), cmp.Compare(a.iv.LowKey, b.iv.LowKey))
	})
	ranges := make([]Range, 0, len(k.Ranges)+len(cuts))
	for i, r := range k.Ranges {
		for ; len(cuts) > 0 && cuts[0].in == i; cuts = cuts[1:] {
			if at := cuts[0].bound; !slices.Equal(r.Low, at) {
				lower := r
				lower.High, r.Low = slices.Clone(at), at
				ranges = append(ranges, lower)
			}
		}
		ranges = append(ranges, r)
	}
	k.Ranges = ranges
	s.PutKeyspace(k)
	return nil
}

// Merge removes a bound of a keyspace: the ranges beside it become one. What is no
// bound is left alone. Errors: those of Split, and 55000 if the two ranges are on
// different shards.
func (s *State) Merge(ks string, bound []string) error { return s.MergeAll(ks, [][]string{bound}) }

// MergeAll is Merge for many bounds, in any order, in little more time than for one.
func (s *State) MergeAll(ks string, bounds [][]string) error {
	k, ix, err := s.editRanges(ks)
	if err != nil {
		return err
	}
	gone := map[int]bool{} // ranges that become one with the one below
	for _, bound := range bounds {
		at, bound, err := ix.boundAt(bound)
		if err != nil {
			return err
		}
		if at == 0 || !slices.Equal(k.Ranges[at].Low, bound) {
			continue
		}
		lower, upper := &k.Ranges[at-1], &k.Ranges[at]
		if lower.Shard != upper.Shard {
			e := sqlstate.New(sqlstate.ObjectNotInState, "range %s of keyspace %q is on shard %s and %s on shard %s, so they cannot become one",
				boundsText(lower.Low, lower.High), ks, lower.Shard, boundsText(upper.Low, upper.High), upper.Shard).
				WithHint("move one of them first: cleave move --keyspace %s --range '%s' --to %s", ks, boundsText(upper.Low, upper.High), lower.Shard)
			e.Keyspace = ks
			return e
		}
		gone[at] = true
	}
	if len(gone) == 0 {
		return nil
	}
	ranges := k.Ranges[:1:1]
	for i := 1; i < len(k.Ranges); i++ {
		if gone[i] {
			ranges[len(ranges)-1].High = k.Ranges[i].High
			continue
		}
		ranges = append(ranges, k.Ranges[i])
	}
	k.Ranges = ranges
	s.PutKeyspace(k)
	return nil
}

// SetOwner gives a part of a keyspace to a shard. Ranges are cut at the bounds of the
// part where they are not bounds yet. A key is pinned to the shard, also where its range
// is on that shard already; a listed value without a pin gets it as its owner.
// Errors: those of Split and PutPin, 42P17 for an empty part.
func (s *State) SetOwner(ks string, p Part, shard string) error {
	if p.Key != nil {
		return s.setKeyOwner(ks, p.Key, shard)
	}
	k, ix, err := s.editRanges(ks)
	if err != nil {
		return err
	}
	p = p.Clone()
	if _, err := ix.span(p); err != nil {
		err.Keyspace = k.Name
		return err
	}
	for _, bound := range [][]string{p.Low, p.High} {
		if bound == nil {
			continue
		}
		if err := s.Split(ks, bound); err != nil {
			return err
		}
	}
	if k, ix, err = s.editRanges(ks); err != nil {
		return err
	}
	first, last, bad := ix.rangesOf(p)
	if bad != nil {
		return bad
	}
	for i := first; i <= last; i++ {
		k.Ranges[i].Shard = shard
	}
	s.PutKeyspace(k)
	return nil
}

func (s *State) setKeyOwner(ks string, key []string, shard string) error {
	k, texts, err := s.editPins(ks, key)
	if err != nil {
		return err
	}
	if k.Strategy == keyspace.List && !slices.ContainsFunc(k.Pins, func(p Pin) bool { return slices.Equal(p.Key, texts) }) {
		values := slices.Clone(k.Values)
		for i := range values {
			v := slices.Clone(values[i].Key)
			if _, err := parseWhole(&k, v); err == nil && slices.Equal(v, texts) {
				values[i].Shard, k.Values = shard, values
				s.PutKeyspace(k)
				return nil
			}
		}
	}
	return s.PutPin(ks, texts, shard)
}

// editRanges returns a copy of a keyspace with ranges, in canonical form, and its index.
func (s *State) editRanges(ks string) (Keyspace, *Index, error) {
	i := slices.IndexFunc(s.Keyspaces, func(k Keyspace) bool { return k.Name == ks })
	if i < 0 {
		return Keyspace{}, nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", clip(ks)).
			WithHint("list the keyspaces with \"cleave keyspace list\"")
	}
	k := s.Keyspaces[i].Clone()
	if k.Strategy == keyspace.List {
		e := sqlstate.Refusal("CLV-1401", `keyspace "%s" lists its keys, so it has no ranges`, clip(ks)).
			WithHint("Move single keys: cleave move --key KEY.")
		e.Keyspace = ks
		return Keyspace{}, nil, e
	}
	checked := Snapshot{shards: map[string]*Shard{}, state: State{Version: s.Version}}
	for i := range s.Shards {
		checked.shards[s.Shards[i].Name] = &s.Shards[i]
	}
	ix, err := checked.indexKeyspace(&k)
	if err != nil {
		err.Keyspace = ks
		return Keyspace{}, nil, err
	}
	return k, ix, nil
}

// boundAt returns the range that begins at a bound or that it lies in, and the
// bound's canonical form.
func (ix *Index) boundAt(bound []string) (int, []string, error) {
	bound = slices.Clone(bound)
	if len(bound) == 0 {
		return 0, nil, invalid(sqlstate.InvalidParameterValue, "keyspace %q needs a bound to be split or merged at", ix.def.Name)
	}
	s, err := ix.span(Part{Low: bound})
	if err != nil {
		err.Keyspace = ix.def.Name
		return 0, nil, err
	}
	return ix.rangeFrom(s.iv), bound, nil
}
