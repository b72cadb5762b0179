package schema

import (
	"cmp"
	"context"
	"slices"

	"github.com/cleavedb/cleave/planner"
)

// shapesSQL says of each table what the map may have to know: its columns, defaults and constraints.
const shapesSQL = `SELECT n.nspname, c.relname, pg_catalog.concat_ws(' ',
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
	(SELECT pg_catalog.string_agg(d.oid::text, ',' ORDER BY d.oid) FROM pg_catalog.pg_attrdef AS d WHERE d.adrelid = c.oid),
	(SELECT pg_catalog.string_agg(x.oid::text, ',' ORDER BY x.oid) FROM pg_catalog.pg_constraint AS x WHERE x.conrelid = c.oid))
	FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal') AND n.nspname NOT LIKE 'pg\_t%'`

// shapes are those of all tables before a DROP ... CASCADE; nil for other statements.
func (t *Tx) shapes(ctx context.Context, p *part, d *planner.DDL) (map[planner.TableName]string, error) {
	if !d.DropsParts || !p.can.Catalogue {
		return nil, nil
	}
	res, err := t.run(ctx, p, shapesSQL)
	if err != nil {
		return nil, err
	}
	out := map[planner.TableName]string{}
	for _, row := range res.Rows {
		out[planner.TableName{Schema: row[0].String, Name: row[1].String}] = row[2].String
	}
	return out, nil
}

// cascaded completes a DROP ... CASCADE that a shard has carried out by the tables of the map that it has changed or dropped:
// those that had other shapes before.
func (t *Tx) cascaded(ctx context.Context, p *part, st *planner.Statement, was map[planner.TableName]string) (*planner.Statement, error) {
	if was == nil {
		return st, nil
	}
	is, err := t.shapes(ctx, p, st.DDL)
	if err != nil {
		return nil, err
	}
	done, d := *st, *st.DDL
	done.DDL = &d
	d.Altered, d.Dropped = slices.Clone(d.Altered), slices.Clone(d.Dropped)
	for name, shape := range was {
		now, there := is[name]
		switch _, known := t.over.Table(name.Schema, name.Name); {
		case !known || there && now == shape || slices.Contains(d.Dropped, name):
		case there:
			d.Altered = append(d.Altered, name)
		default:
			d.Dropped = append(d.Dropped, name)
		}
	}
	for _, list := range [][]planner.TableName{d.Altered, d.Dropped} {
		slices.SortFunc(list, func(a, b planner.TableName) int {
			return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.Name, b.Name))
		})
	}
	return &done, nil
}
