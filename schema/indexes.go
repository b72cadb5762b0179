package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// indexesSQL lists the indexes that are in use: schema, table, name, its definition, and the name as it stands there.
const indexesSQL = "SELECT n.nspname, t.relname, c.relname, pg_catalog.pg_get_indexdef(i.indexrelid), pg_catalog.quote_ident(c.relname) FROM pg_catalog.pg_index AS i " +
	"JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid JOIN pg_catalog.pg_class AS t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace " +
	"WHERE i.indisvalid AND c.relkind = 'i' AND t.relkind = 'r' AND n.nspname !~ '^pg_' ORDER BY 1, 2, 3"

// indexOn is an index of a shard.
type indexOn struct{ table, name, text string }

// MissingIndexes finds indexes of sharded and reference tables that some PostgreSQL shards lack, among those that are named: somebody has dropped them
// there, past the router. An index is told by what it is of, not by its name. It finds nothing while one is being made or dropped.
func MissingIndexes(ctx context.Context, o RecoverOptions, snap *shardmap.Snapshot, shards []string) []Finding {
	o = o.withDefaults()
	if busy, err := o.Directory.Records(ctx, IntentPrefix, "", 1); err != nil || len(busy) > 0 {
		return nil
	}
	found := o.missingIndexes(ctx, snap, shards)
	if len(found) == 0 {
		return nil
	}
	// A schema change may have been between its commits on two shards: what is missing for good is so twice.
	again := o.missingIndexes(ctx, snap, shards)
	return slices.DeleteFunc(found, func(f Finding) bool {
		return !slices.ContainsFunc(again, func(g Finding) bool { return g.What == f.What && g.Shard == f.Shard })
	})
}

func (o RecoverOptions) missingIndexes(ctx context.Context, snap *shardmap.Snapshot, shards []string) (out []Finding) {
	on := map[string]map[string]indexOn{} // what it is of -> shard -> index
	var looked []string
	for i := range snap.Shards() {
		sh := &snap.Shards()[i]
		if !sh.Can().Catalogue || !slices.Contains(shards, sh.Name) {
			continue
		}
		list, err := o.indexesOn(ctx, snap, sh)
		if err != nil {
			out = append(out, trouble(sh.Name, onShard(err, sh.Name), "the indexes"))
			continue
		}
		looked = append(looked, sh.Name)
		for of, ix := range list {
			if on[of] == nil {
				on[of] = map[string]indexOn{}
			}
			on[of][sh.Name] = ix
		}
	}
	for _, have := range on {
		var with, without []string
		var is indexOn
		for _, name := range looked {
			if ix, ok := have[name]; ok {
				with, is = append(with, name), ix
			} else {
				without = append(without, name)
			}
		}
		for _, name := range without {
			out = append(out, Finding{Level: levelWarning, Shard: name, Table: is.table,
				What: fmt.Sprintf("index %s of table %s is on %s, but not on %s", ident(is.name), is.table, strings.Join(with, ", "), name),
				Next: "make it in the database of " + name + ": " + is.text})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Shard+a.What, b.Shard+b.What) })
	return out
}

// indexesOn are the indexes of a shard's sharded and reference tables, by what they are of.
func (o RecoverOptions) indexesOn(ctx context.Context, snap *shardmap.Snapshot, sh *shardmap.Shard) (map[string]indexOn, error) {
	list := map[string]indexOn{}
	err := o.alone(ctx, sh, func(conn engine.Conn) error {
		res, _, err := run(ctx, conn, indexesSQL)
		if err != nil {
			return err
		}
		for _, row := range res.Rows {
			t, ok := snap.Table(row[0].String, row[1].String)
			if !ok || t.Kind == shardmap.Whole {
				continue
			}
			of := strings.Replace(row[3].String, row[4].String, "", 1)
			list[of] = indexOn{table: t.QualifiedName(), name: row[2].String, text: row[3].String}
		}
		return nil
	})
	return list, err
}
