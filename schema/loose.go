package schema

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// loose looks on the default shard what there is of a name that the map does not know; missing: nothing. refusal is the
// error for a change of it that the shard has carried out, nil if it concerns no other shard. What the shard itself says
// against the change goes before it.
func (t *Tx) loose(ctx context.Context, p *part, name *planner.TableName) (missing bool, refusal, err error) {
	text := ident(name.Name)
	if name.Schema != "" {
		text = qualified(name.Schema, name.Name)
	}
	res, err := t.run(ctx, p, "SELECT c.relkind, n.nspname, c.relname, m.nspname, r.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "+
		"LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid LEFT JOIN pg_catalog.pg_class AS r ON r.oid = i.indrelid LEFT JOIN pg_catalog.pg_namespace AS m ON m.oid = r.relnamespace "+
		"WHERE c.oid = pg_catalog.to_regclass("+quote(text)+")")
	if err != nil || len(res.Rows) == 0 {
		return err == nil, nil, err
	}
	row := res.Rows[0]
	kind, schema, relation := row[0].String, row[1].String, row[2].String
	switch kind {
	case "r", "p", "v":
		_, table := t.over.Table(schema, relation)
		if _, view := t.over.View(schema, relation); table || view {
			return false, t.again(qualified(schema, relation) + " was changed by another session meanwhile"), nil
		}
		return false, sqlstate.Refuse("the shard map does not know "+qualified(schema, relation), "SELECT * FROM cleave.tables shows the tables; create new ones through the router"), nil
	case "i", "I":
		if table, ok := t.over.Table(row[3].String, row[4].String); ok && table.Kind != shardmap.Whole {
			return false, sqlstate.Refuse("ALTER TABLE of an index of a sharded or reference table is not supported", "ALTER INDEX "+qualified(schema, relation)), nil
		}
	case "S":
		if _, ok := t.over.Sequence(schema, relation); ok {
			return false, sqlstate.Refuse("this change of a sequence of the cluster is not supported", "ALTER SEQUENCE"), nil
		}
	}
	return false, nil, nil
}

// dropsChildren adds to an edit the whole tables that CASCADE dropped with those that the statement names: what inherits from them.
func (t *Tx) dropsChildren(ctx context.Context, p *part, e *edit) error {
	var names []string
	tables := t.over.State().Tables
	for i := range tables {
		if tables[i].Kind == shardmap.Whole {
			names = append(names, quote(qualified(tables[i].Schema, tables[i].Name)))
		}
	}
	if len(names) == 0 || !p.can.Catalogue {
		return nil
	}
	res, err := t.run(ctx, p, "SELECT n FROM pg_catalog.unnest(ARRAY["+strings.Join(names, ", ")+"]) AS n WHERE pg_catalog.to_regclass(n) IS NULL")
	if err != nil {
		return err
	}
	for _, row := range res.Rows {
		for i := range tables {
			name := planner.TableName{Schema: tables[i].Schema, Name: tables[i].Name}
			if tables[i].Kind == shardmap.Whole && qualified(name.Schema, name.Name) == row[0].String && !slices.Contains(e.drop, name) {
				e.drop = append(e.drop, name)
			}
		}
	}
	return nil
}
