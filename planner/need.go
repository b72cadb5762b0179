package planner

import (
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

// Held returns a transit with a hold that has keys which one execution of the
// statement may touch, nil if there is none. Where the keys are not known before it
// runs, it may touch any of the keyspace. args may be nil for a statement without
// parameters. It costs something only while the map has a hold.
func (s *Statement) Held(snap *shardmap.Snapshot, args *Args) *shardmap.Transit {
	if !snap.Holding() {
		return nil
	}
	var held *shardmap.Transit
	s.needs(snap, args, &need{
		key:  func(ix *shardmap.Index, k keyspace.Key) { held = first(held, ix.Held(k)) },
		span: func(ix *shardmap.Index, i int) { held = first(held, ix.HeldRange(i)) },
		whole: func(ix *shardmap.Index) {
			if all := ix.Holds(); len(all) > 0 {
				held = first(held, all[0])
			}
		},
	})
	return held
}

func first(a, b *shardmap.Transit) *shardmap.Transit {
	if a != nil {
		return a
	}
	return b
}

// Epoch returns the highest epoch of what one execution of the statement may touch,
// as Held understands it; 0 if that is nothing.
func (s *Statement) Epoch(snap *shardmap.Snapshot, args *Args) uint64 {
	epoch := snap.State().DefaultEpoch // unsharded tables came to the default shard with it
	s.needs(snap, args, &need{
		key: func(ix *shardmap.Index, k keyspace.Key) {
			if at, err := ix.Locate(k); err == nil {
				epoch = max(epoch, at.Epoch)
			}
		},
		span: func(ix *shardmap.Index, i int) { epoch = max(epoch, ix.Def().Ranges[i].Epoch) },
		whole: func(ix *shardmap.Index) {
			def := ix.Def()
			for i := range def.Ranges {
				epoch = max(epoch, def.Ranges[i].Epoch)
			}
			for i := range def.Values {
				epoch = max(epoch, def.Values[i].Epoch)
			}
			for i := range def.Pins {
				epoch = max(epoch, def.Pins[i].Epoch)
			}
		},
	})
	return epoch
}

// need is told what a statement may touch: keys, ranges without their pins, or a
// whole keyspace.
type need struct {
	key   func(*shardmap.Index, keyspace.Key)
	span  func(*shardmap.Index, int)
	whole func(*shardmap.Index)
}

func (s *Statement) needs(snap *shardmap.Snapshot, args *Args, n *need) {
	switch {
	case s.Kind == OneShard:
		t := Target{Keyspace: s.Keyspace, Keys: s.Keys}
		if len(s.Keys) == 0 {
			return // no row can match
		}
		t.needs(snap, args, n)
	case s.Kind == ExplainRoute && s.Analyze && s.Inner != nil:
		s.Inner.needs(snap, args, n)
	case s.Kind == DDLKind:
		// TRUNCATE is the one that is about rows.
		if len(s.DDL.Cascades) > 0 && s.DDL.AllShards {
			for _, k := range snap.State().Keyspaces { // what it reaches is known on the shards
				(&Target{Keyspace: k.Name}).needs(snap, args, n)
			}
			return
		}
		for _, name := range s.DDL.Truncated {
			if t, ok := snap.Table(name.Schema, name.Name); ok && t.Keyspace != "" {
				(&Target{Keyspace: t.Keyspace}).needs(snap, args, n)
			}
		}
	case s.Kind == Several && s.Plan != nil:
		s.Plan.needs(snap, args, n)
	}
}

func (p *Plan) needs(snap *shardmap.Snapshot, args *Args, n *need) {
	all := func(t *shardmap.Table) {
		if t != nil && t.Keyspace != "" {
			(&Target{Keyspace: t.Keyspace}).needs(snap, args, n)
		}
	}
	inner := func(s *Statement) {
		if s != nil {
			s.needs(snap, args, n)
		}
	}
	p.Target.needs(snap, args, n)
	for i := range p.Relations {
		p.Relations[i].Target.needs(snap, args, n)
	}
	if i := p.Insert; i != nil {
		all(i.Table) // where its rows go is known when they are
		inner(i.Source)
		for _, c := range i.Computed {
			inner(c)
		}
	}
	if m := p.Modify; m != nil {
		if m.Move != nil {
			all(m.Table)
		}
		for _, r := range m.Reads {
			inner(r)
		}
	}
	if c := p.Copy; c != nil {
		inner(c.Source)
	}
}

func (t *Target) needs(snap *shardmap.Snapshot, args *Args, n *need) {
	if t.Where != KeyShards || t.Keyspace == "" {
		return
	}
	index, found := snap.Keyspace(t.Keyspace)
	if !found {
		return // the statement itself is refused
	}
	if t.Keys == nil && t.Spans == nil {
		n.whole(index)
		return
	}
	for i := range t.Spans {
		if err := t.Spans[i].visit(index, args, func(i int) { n.span(index, i) }, func(i int) {
			def := index.Def()
			if k, err := keyspace.ParseKey(def.Types, def.Pins[i].Key); err == nil {
				n.key(index, k)
			}
		}); err != nil {
			n.whole(index) // it cannot be told
			return
		}
	}
	keys, err := expandKeys(t.Keys, args)
	if err != nil {
		n.whole(index)
		return
	}
	for _, exprs := range keys {
		key := make(keyspace.Key, len(exprs))
		match := true
		for i := range exprs {
			v, never, err := exprs[i].Value, exprs[i].Never, error(nil)
			if exprs[i].Param != 0 {
				if v, never, err = exprs[i].eval(args); err != nil {
					n.whole(index)
					return
				}
			}
			key[i], match = v, match && !never
		}
		if match {
			n.key(index, key)
		}
	}
}
