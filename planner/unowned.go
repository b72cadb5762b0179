package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/shardmap"
)

// ownershipOf confines a text, which its tree has become, to the rows that a shard owns of some tables.
func ownershipOf(tree *pg.Node, text string, uses ...*use) *ownership.Filter {
	tables := make([]ownership.NamedTable, len(uses))
	for i, u := range uses {
		tables[i] = ownership.NamedTable{Ref: u.ref, Table: u.rel.table}
	}
	o, ok := ownership.Sites(tree, text, tables...)
	if !ok {
		lostPlace()
	}
	return o
}

// ownTemplate is the template of a tree, confined by the uses.
func (wp *writePlans) ownTemplate(tree *pg.Node, uses ...*use) Template {
	text := wp.written(tree)
	t := template(text)
	t.own = ownershipOf(tree, text, uses...)
	return t
}

// On is the text that a shard runs: Text, without the rows that it has but does
// not own by any of the maps. There is one map, that of now; where a transaction
// sees rows as they were at its beginning, there is that of its beginning as well,
// since rows that are gone now may have been there. Errors: 0A000 for a form in
// which that cannot be written.
func (p *Plan) On(shard string, maps ...*shardmap.Snapshot) (string, error) {
	return p.own.On(p.Text, shard, maps)
}

// On is the text that a shard runs, as [Plan.On].
func (r *Relation) On(shard string, maps ...*shardmap.Snapshot) (string, error) {
	return r.own.On(r.Text, shard, maps)
}

// On is the template that a shard runs, as [Plan.On].
func (t *Template) On(shard string, maps ...*shardmap.Snapshot) (*Template, error) {
	text, err := t.own.On("", shard, maps)
	if err != nil || text == "" {
		return t, err
	}
	mine := template(text)
	return &mine, nil
}

// On is Text for a shard, as [Plan.On], or Next for one that is not the first.
func (p *CopyPlan) On(first bool, shard string, maps ...*shardmap.Snapshot) (string, error) {
	if first {
		return p.own.On(p.Text, shard, maps)
	}
	return p.ownNext.On(p.Next, shard, maps)
}

// confined are those of the texts that write or copy.
func (p *Plan) confined() (all []*ownership.Filter) {
	if p.Copy != nil {
		all = append(all, p.Copy.own)
	}
	if m := p.Modify; m != nil {
		all = append(all, m.Write.own)
		if m.Move != nil {
			all = append(all, m.Move.Lock.own)
		}
	}
	return all
}

// ownershipLines tells what shards with strangers run instead.
func ownershipLines(o *ownership.Filter, line func(name, value string), target *Target, snap *shardmap.Snapshot, args *Args) {
	if o == nil {
		return
	}
	names, err := target.Shards(snap, args)
	if err != nil { // parameters that are not known
		all := Target{Keyspace: o.Keyspace}
		if names, err = all.Shards(snap, args); err != nil {
			return
		}
	}
	for _, name := range names {
		if text, err := o.On("", name, []*shardmap.Snapshot{snap}); err != nil {
			line("on "+name, err.Error())
		} else {
			line("on "+name, text)
		}
	}
}
