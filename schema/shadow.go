package schema

import (
	"context"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/shardmap"
)

// The default shard has a sequence of its own beside each sequence of the cluster,
// with the same name and options: its shadow. Nobody takes values from it. It is
// there for programs that read the catalogue: psql, pg_dump, an ORM.

// shadows makes the shadows follow the sequences of the private map.
func (p *part) shadows(ctx context.Context, sequences, was []shardmap.Sequence) error {
	if !p.can.Sequences {
		return nil
	}
	for i := range was {
		old := &was[i]
		if slices.ContainsFunc(sequences, func(q shardmap.Sequence) bool { return life(q.ID) == life(old.ID) }) {
			continue
		}
		if _, err := p.run(ctx, "DROP SEQUENCE IF EXISTS "+qualifiedSQL(old.Schema, old.Name)); err != nil {
			return err
		}
	}
	for i := range sequences {
		q := &sequences[i]
		at := slices.IndexFunc(was, func(o shardmap.Sequence) bool { return life(o.ID) == life(q.ID) })
		var texts []string
		name := qualifiedSQL(q.Schema, q.Name)
		options := shadowOptions(q)
		owner := "NONE"
		if q.Owner != nil {
			owner = qualifiedSQL(q.Owner.Schema, q.Owner.Table) + "." + ident(q.Owner.Column)
		}
		if at < 0 {
			texts = append(texts, "CREATE SEQUENCE IF NOT EXISTS "+name+options, "ALTER SEQUENCE "+name+" OWNED BY "+owner)
		} else if o := &was[at]; o.Schema != q.Schema || o.Name != q.Name || !sameOptions(o, q) {
			if o.Schema != q.Schema {
				texts = append(texts, "ALTER SEQUENCE IF EXISTS "+qualifiedSQL(o.Schema, o.Name)+" SET SCHEMA "+ident(q.Schema))
			}
			if o.Name != q.Name {
				texts = append(texts, "ALTER SEQUENCE IF EXISTS "+qualifiedSQL(q.Schema, o.Name)+" RENAME TO "+ident(q.Name))
			}
			texts = append(texts, "ALTER SEQUENCE IF EXISTS "+name+options+" RESTART OWNED BY "+owner)
		}
		for _, sql := range texts {
			if _, err := p.run(ctx, sql); err != nil {
				return err
			}
		}
	}
	return nil
}

// shadowOptions are the options of a sequence's shadow.
func shadowOptions(q *shardmap.Sequence) string {
	cycle := " NO CYCLE"
	if q.Cycle {
		cycle = " CYCLE"
	}
	return fmt.Sprintf(" AS %s INCREMENT BY %d MINVALUE %d MAXVALUE %d START WITH %d CACHE %d", q.Type, q.Increment, q.Min, q.Max, q.Start, max(q.Cache, 1)) + cycle
}

// life is the part of a sequence's ID that RESTART does not change.
func life(id string) string {
	if len(id) > 36 {
		return id[:36]
	}
	return id
}

func qualifiedSQL(schema, name string) string { return ident(schema) + "." + ident(name) }

// sameOptions compares what a shadow shows.
func sameOptions(a, b *shardmap.Sequence) bool {
	if (a.Owner == nil) != (b.Owner == nil) || a.Owner != nil && *a.Owner != *b.Owner {
		return false
	}
	return a.Type == b.Type && a.Increment == b.Increment && a.Min == b.Min && a.Max == b.Max && a.Start == b.Start && a.Cache == b.Cache && a.Cycle == b.Cycle
}
