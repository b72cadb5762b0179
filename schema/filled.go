package schema

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// timed puts times into the text of a statement that has marks for them: one time for all shards,
// that of the transaction where it began first.
func (t *Tx) timed(ctx context.Context, first *part, st *plan.Statement) (*plan.Statement, error) {
	if len(st.DDL.Times) == 0 {
		return st, nil
	}
	if t.parts[0].can.Styles && !t.parts[0].broken {
		first = t.parts[0]
	}
	list := make([]string, len(st.DDL.Times))
	for i, expr := range st.DDL.Times {
		if list[i] = "(" + expr + ")::text"; first.can.Styles {
			list[i] = "pg_catalog.to_json(" + expr + ") #>> '{}'" // times in ISO form, whatever the settings
		}
	}
	res, err := first.run(ctx, "SELECT "+strings.Join(list, ", "))
	if err != nil {
		return nil, err
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != len(list) {
		return nil, sqlstate.New(sqlstate.InternalError, "the shard gave no time").OnShard(first.shard)
	}
	var pairs []string
	for i, v := range res.Rows[0] {
		pairs = append(pairs, planner.TimeMark+strconv.Itoa(i)+"_", strings.ReplaceAll(v.String, "'", "''"))
	}
	r := strings.NewReplacer(pairs...)
	with, ddl := *st, *st.DDL
	with.Text, ddl.Elsewhere = r.Replace(st.Text), r.Replace(st.DDL.Elsewhere)
	with.DDL = &ddl
	return &with, nil
}

// fillable fails if a statement gave rows of a shard what would be something else on another shard.
func (p *part) fillable(ctx context.Context, over *shardmap.Snapshot, d *plan.DDL, e *edit) error {
	why := d.Unfillable
	if len(d.Altered) == 0 || why == nil && len(d.Defaults) == 0 {
		return nil
	}
	name := d.Altered[0]
	table, ok := over.Table(name.Schema, name.Name)
	if !ok || table.Kind == shardmap.Whole {
		return nil
	}
	if desc := e.described[name]; why == nil && desc != nil {
		for _, added := range d.Defaults {
			c := column(desc, added)
			if c != nil && c.Default != "" && !defaults.SameOnShards(c.Default, over, table.Kind == shardmap.Reference) {
				why = sqlstate.Refusal("CLV-0979", "the type of column %s has the default %s, which would give the rows that are there other values on each shard", ident(added), c.Default).
					WithHint("Add the column with a DEFAULT of its own, or without the default: DEFAULT NULL, and then ALTER COLUMN ... SET DEFAULT.")
			}
		}
	}
	if why == nil {
		return nil
	}
	rows, err := p.run(ctx, "SELECT 1 FROM "+qualified(name.Schema, name.Name)+" LIMIT 1")
	if err != nil {
		return err
	}
	if len(rows.Rows) > 0 {
		refusal := *why
		return refusal.OnShard(p.shard)
	}
	return nil
}

// sameRows fails if a statement that gave the rows of reference tables values of new columns, or of another type, did not give them the
// same on all shards: what an expression depends on cannot always be seen.
func (first *part) sameRows(ctx context.Context, over *shardmap.Snapshot, others []*part, e *edit) error {
	for name, desc := range e.described {
		table, ok := over.Table(name.Schema, name.Name)
		if !ok || table.Kind != shardmap.Reference || !filled(table, desc) {
			continue
		}
		list := make([]string, len(desc.Columns))
		for i, c := range desc.Columns {
			list[i] = ident(c.Name)
		}
		sum := "SELECT pg_catalog.count(*), pg_catalog.sum(pg_catalog.hashtextextended(ROW(" + strings.Join(list, ", ") + ")::text, 0)::numeric) FROM " + qualified(name.Schema, name.Name)
		var want string
		for _, p := range append([]*part{first}, others...) {
			if !p.can.Evaluates {
				continue // its expressions are the router's own, and its defaults constants
			}
			res, err := p.run(ctx, sum)
			if err != nil {
				return err
			}
			got := res.Rows[0][0].String + " " + res.Rows[0][1].String
			if want == "" {
				want = got
			}
			if got != want {
				refusal := sqlstate.Refusal("CLV-0980", "the statement gives the rows of the reference table %s on shard %s other values than on shard %s", qualified(name.Schema, name.Name), p.shard, first.shard).
					WithHint("Add the column without a default, and UPDATE the rows; if they differed before: cleave doctor --repair.")
				return refusal.OnShard(p.shard)
			}
		}
	}
	return nil
}

// filled reports whether a table has columns that it did not have, or had with another type.
func filled(was *shardmap.Table, is *engine.Table) bool {
	return slices.ContainsFunc(is.Columns, func(c engine.Column) bool {
		return !slices.ContainsFunc(was.Columns, func(w shardmap.Column) bool { return w.Name == c.Name && w.Type == c.Type })
	})
}

// defaults reads the defaults of columns.
var defaults = planner.New(planner.Limits{})
