package schema

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
)

// sayings are the epochs of the guards of tables on a shard.
func (p *part) sayings(over *shardmap.Snapshot, tables []plan.TableName) (all []engine.Saying) {
	for _, name := range tables {
		table, ok := over.Table(name.Schema, name.Name)
		if !ok {
			continue
		}
		if g, ok := GuardOf(over, table, p.shard); ok {
			all = append(all, engine.Saying{Keyspace: g.Owned.Keyspace, Epoch: g.Owned.Epoch})
		}
	}
	return all
}

// truncates completes a TRUNCATE by what its CASCADE reaches, which the catalogue of the default shard knows: every
// foreign key of a table on all shards is there, too. 40001 while a part of a keyspace is being given to another shard:
// its guards have the epoch of the map then, although the shard may have nothing to say any more.
func (p *part) truncates(ctx context.Context, over *shardmap.Snapshot, st *plan.Statement) (*plan.Statement, error) {
	if st.DDL.Op != "truncate" {
		return st, nil
	}
	d := *st.DDL
	if len(d.Cascades) > 0 {
		all, err := p.withReferencing(ctx, d.Cascades)
		if err != nil {
			return nil, err
		}
		if d.AllShards {
			d.Truncated = all
		}
		if d.Restarts {
			d.Sequences = planner.Restarts(over, all)
		}
	}
	for _, name := range d.Truncated {
		if table, ok := over.Table(name.Schema, name.Name); ok && table.Kind == shardmap.Sharded {
			if ix, ok := over.Keyspace(table.Keyspace); ok && len(ix.Holds()) > 0 {
				return nil, again("a part of keyspace " + table.Keyspace + " is just being given to another shard")
			}
		}
	}
	whole := *st
	whole.DDL = &d
	return &whole, nil
}

// withReferencing adds to tables those whose foreign keys refer to them, and to these.
func (p *part) withReferencing(ctx context.Context, names []plan.TableName) ([]plan.TableName, error) {
	res, err := p.run(ctx, referencesSQL)
	if err != nil {
		return nil, err
	}
	reached := map[plan.TableName]bool{}
	for _, name := range names {
		reached[name] = true
	}
	all := slices.Clone(names)
	for more := true; more; {
		more = false
		for _, row := range res.Rows {
			from, to := plan.TableName{Schema: row[0].String, Name: row[1].String}, plan.TableName{Schema: row[2].String, Name: row[3].String}
			if reached[to] && !reached[from] {
				all, reached[from], more = append(all, from), true, true
			}
		}
	}
	return all, nil
}

// referencesSQL lists the foreign keys: the table that has it, the table that it refers to.
const referencesSQL = "SELECT n.nspname, c.relname, m.nspname, r.relname FROM pg_catalog.pg_constraint AS k JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace " +
	"JOIN pg_catalog.pg_class AS r ON r.oid = k.confrelid JOIN pg_catalog.pg_namespace AS m ON m.oid = r.relnamespace WHERE k.contype = 'f'"
