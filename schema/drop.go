package schema

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// shapesSQL says of each table what the map may have to know: its columns, defaults and constraints.
const shapesSQL = `SELECT n.nspname, c.relname, pg_catalog.concat_ws(' ',
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
	(SELECT pg_catalog.string_agg(d.oid::text, ',' ORDER BY d.oid) FROM pg_catalog.pg_attrdef AS d WHERE d.adrelid = c.oid),
	(SELECT pg_catalog.string_agg(x.oid::text, ',' ORDER BY x.oid) FROM pg_catalog.pg_constraint AS x WHERE x.conrelid = c.oid))
	FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal') AND n.nspname NOT LIKE 'pg\_t%'`

// shapes are those of all tables before a DROP ... CASCADE; nil for other statements.
func (p *part) shapes(ctx context.Context, d *plan.DDL) (map[plan.TableName]string, error) {
	if !d.DropsParts || !p.can.Catalogue {
		return nil, nil
	}
	res, err := p.run(ctx, shapesSQL)
	if err != nil {
		return nil, err
	}
	out := map[plan.TableName]string{}
	for _, row := range res.Rows {
		out[plan.TableName{Schema: row[0].String, Name: row[1].String}] = row[2].String
	}
	return out, nil
}

// cascaded completes a DROP ... CASCADE that a shard has carried out by the tables of the map that it has changed or dropped:
// those that had other shapes before.
func (p *part) cascaded(ctx context.Context, over *shardmap.Snapshot, st *plan.Statement, was map[plan.TableName]string) (*plan.Statement, error) {
	if was == nil {
		return st, nil
	}
	is, err := p.shapes(ctx, st.DDL)
	if err != nil {
		return nil, err
	}
	done, d := *st, *st.DDL
	done.DDL = &d
	d.Altered, d.Dropped = slices.Clone(d.Altered), slices.Clone(d.Dropped)
	for name, shape := range was {
		now, there := is[name]
		switch _, known := over.Table(name.Schema, name.Name); {
		case !known || there && now == shape || slices.Contains(d.Dropped, name):
		case there:
			d.Altered = append(d.Altered, name)
		default:
			d.Dropped = append(d.Dropped, name)
		}
	}
	for _, list := range [][]plan.TableName{d.Altered, d.Dropped} {
		slices.SortFunc(list, func(a, b plan.TableName) int {
			return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.Name, b.Name))
		})
	}
	return &done, nil
}

// loose looks on the default shard what there is of a name that the map does not know; missing: nothing. refusal is the
// error for a change of it that the shard has carried out, nil if it concerns no other shard. What the shard itself says
// against the change goes before it.
func (p *part) loose(ctx context.Context, over *shardmap.Snapshot, name *plan.TableName) (missing bool, refusal, err error) {
	text := ident(name.Name)
	if name.Schema != "" {
		text = qualified(name.Schema, name.Name)
	}
	res, err := p.run(ctx, "SELECT c.relkind, n.nspname, c.relname, m.nspname, r.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "+
		"LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid LEFT JOIN pg_catalog.pg_class AS r ON r.oid = i.indrelid LEFT JOIN pg_catalog.pg_namespace AS m ON m.oid = r.relnamespace "+
		"WHERE c.oid = pg_catalog.to_regclass("+quote(text)+")")
	if err != nil || len(res.Rows) == 0 {
		return err == nil, nil, err
	}
	row := res.Rows[0]
	kind, schema, relation := row[0].String, row[1].String, row[2].String
	switch kind {
	case "r", "p", "v":
		_, table := over.Table(schema, relation)
		if _, view := over.View(schema, relation); table || view {
			return false, again(qualified(schema, relation) + " was changed by another session meanwhile"), nil
		}
		return false, sqlstate.Refusal("CLV-0976", "the shard map does not know %s", qualified(schema, relation)).
			WithHint("SELECT * FROM cleave.tables shows the tables; create new ones through the router."), nil
	case "i", "I":
		if table, ok := over.Table(row[3].String, row[4].String); ok && table.Kind != shardmap.Whole {
			return false, sqlstate.Refusal("CLV-0977", "ALTER TABLE of an index of a sharded or reference table is not supported").
				WithHint("Run ALTER INDEX %s.", qualified(schema, relation)), nil
		}
	case "S":
		if _, ok := over.Sequence(schema, relation); ok {
			return false, sqlstate.Refusal("CLV-0530", "this change of a sequence of the cluster is not supported").
				WithHint("Run ALTER SEQUENCE."), nil
		}
	}
	return false, nil, nil
}

// dropsChildren adds to an edit the unsharded tables that CASCADE dropped with those that the statement names: what inherits from them.
func (e *edit) dropsChildren(ctx context.Context, over *shardmap.Snapshot, p *part) error {
	var names []string
	tables := over.State().Tables
	for i := range tables {
		if tables[i].Kind == shardmap.Whole {
			names = append(names, quote(qualified(tables[i].Schema, tables[i].Name)))
		}
	}
	if len(names) == 0 || !p.can.Catalogue {
		return nil
	}
	res, err := p.run(ctx, "SELECT n FROM pg_catalog.unnest(ARRAY["+strings.Join(names, ", ")+"]) AS n WHERE pg_catalog.to_regclass(n) IS NULL")
	if err != nil {
		return err
	}
	for _, row := range res.Rows {
		for i := range tables {
			name := plan.TableName{Schema: tables[i].Schema, Name: tables[i].Name}
			if tables[i].Kind == shardmap.Whole && qualified(name.Schema, name.Name) == row[0].String && !slices.Contains(e.drop, name) {
				e.drop = append(e.drop, name)
			}
		}
	}
	return nil
}
