package schema

import (
	"context"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Distribute shards an empty table that is whole until now: the other shards
// receive the statements that made it, every shard its guard, and the map the new
// kind. The rest is as with Exec; the table is closed to writers until the end.
//
// Errors: 42P01 and 42809 for what is no whole table of the map; 55000 when it has rows, or was
// not created through Cleave; those of Exec.
func (t *Tx) Distribute(ctx context.Context, name planner.TableName, shardKey []string, keyspaceName string) error {
	if err := t.usable(); err != nil {
		return err
	}
	if err := t.distribute(ctx, name, shardKey, keyspaceName); err != nil {
		return t.fail(err)
	}
	return nil
}

func (t *Tx) distribute(ctx context.Context, name planner.TableName, shardKey []string, keyspaceName string) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	first := t.part(t.base.State().DefaultShard)
	table, desc, ks, missing, err := t.planDistribute(ctx, first, name, shardKey, keyspaceName)
	if err != nil {
		return err
	}
	entries, err := History(ctx, t.opts.Directory, 0)
	if err != nil {
		return err
	}
	ledger, err := TableLedger(entries, table.QualifiedName())
	if err != nil {
		return err
	}
	e := &edit{keyspace: ks.made, guard: []planner.TableName{name}}
	for i := range ledger {
		ledger[i].AllShards = true
	}
	for _, column := range missing {
		sql := fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", table.QualifiedName(), ident(column))
		if _, err := t.run(ctx, first, sql); err != nil {
			return err
		}
		ledger = append(ledger, Statement{Text: sql, AllShards: true, Tables: []string{table.QualifiedName()}})
		for i := range table.Columns {
			if table.Columns[i].Name == column {
				table.Columns[i].NotNull = true
				desc.Columns[i].NotNull = true
			}
		}
	}
	e.put = []shardmap.Table{table}
	if err := t.apply(e); err != nil {
		return err
	}
	// The guard locks the table against writers first, so that the look at its
	// rows afterwards is the last word.
	if err := t.guards(ctx, first, e.guard); err != nil {
		return err
	}
	again, err := t.describe(ctx, first, name)
	if err != nil {
		return err
	}
	if again.HasRows {
		return hasRows(&table)
	}
	for _, shard := range t.shardNames()[1:] {
		p, err := t.open(ctx, shard)
		if err != nil {
			return err
		}
		if err := t.mark(ctx, p); err != nil {
			return err
		}
		for _, s := range ledger {
			if err := replayStatement(ctx, p.conn, s); err != nil {
				return t.broke(p, replayError(err, shard, shardmap.Entry{Version: t.base.Version()}, s))
			}
		}
		got, err := t.describe(ctx, p, name)
		if err != nil {
			return err
		}
		if diff := differs(desc, got); diff != "" {
			return sqlstate.New(sqlstate.ObjectNotInState, "table %s could not be made the same on shard %s: %s", table.QualifiedName(), shard, diff).OnShard(shard).
				WithHint("create it anew with the options: CREATE TABLE ... WITH (cleave.shard_key = '...')")
		}
		if err := t.guards(ctx, p, e.guard); err != nil {
			return err
		}
	}
	t.ran, t.op = true, OpDistribute
	t.ops = append(t.ops, "distribute "+table.QualifiedName())
	t.statements = append(t.statements, ledger...)
	return nil
}

// planDistribute checks everything that does not need the other shards.
func (t *Tx) planDistribute(ctx context.Context, p *part, name planner.TableName, shardKey []string, keyspaceName string) (table shardmap.Table, desc *engine.Table, ks chosen, missing []string, err error) {
	known, ok := t.over.Table(name.Schema, name.Name)
	if !ok {
		return table, nil, ks, nil, sqlstate.New(sqlstate.UndefinedTable, "table %s is not in the map", qualified(name.Schema, name.Name)).
			WithHint("see: SELECT * FROM cleave.tables")
	}
	if known.Kind != shardmap.Whole {
		return table, nil, ks, nil, sqlstate.New(sqlstate.WrongObjectType, "table %s is %s already", known.QualifiedName(), known.Kind)
	}
	if desc, err = t.describe(ctx, p, name); err != nil {
		return table, nil, ks, nil, err
	}
	table = known.Clone()
	table.Kind, table.ShardKey, table.Columns = shardmap.Sharded, slices.Clone(shardKey), columnsOf(desc)
	generate(&table, desc)
	if ks, missing, err = chooseKeyspace(t.over, desc, shardKey, keyspaceName, t.opts.RangesPerShard); err != nil {
		return table, nil, ks, nil, err
	}
	if ks.made != nil {
		for i := range ks.made.Ranges {
			ks.made.Ranges[i].Epoch = t.base.Version() + 1
		}
	}
	table.Keyspace = ks.name
	if err = CheckTable(t.over, &table, desc); err != nil {
		return table, nil, ks, nil, err
	}
	if desc.HasRows {
		return table, nil, ks, nil, hasRows(&table)
	}
	// Other tables that refer to this one would look for its rows on the default
	// shard alone.
	for i := range t.over.State().Tables {
		other := &t.over.State().Tables[i]
		if other.Kind != shardmap.Whole || other.Schema == name.Schema && other.Name == name.Name {
			continue
		}
		d, err := t.describe(ctx, p, planner.TableName{Schema: other.Schema, Name: other.Name})
		if err != nil {
			return table, nil, ks, nil, err
		}
		for _, fk := range d.ForeignKeys {
			if fk.RefSchema == name.Schema && fk.RefTable == name.Name {
				e := sqlstate.Refuse(fmt.Sprintf("foreign key %s of the whole table %s refers to %s", ident(fk.Name), other.QualifiedName(), table.QualifiedName()),
					"drop the foreign key first, and create it again when both tables are sharded")
				e.Constraint = fk.Name
				return table, nil, ks, nil, e
			}
		}
	}
	entries, err := History(ctx, t.opts.Directory, 0)
	if err != nil {
		return table, nil, ks, nil, err
	}
	ledger, err := TableLedger(entries, table.QualifiedName())
	if err == nil && len(ledger) == 0 {
		err = sqlstate.New(sqlstate.ObjectNotInState, "table %s was not created through Cleave, so how to create it on the other shards is not known", table.QualifiedName()).
			WithHint("create it anew with the options: CREATE TABLE ... WITH (cleave.shard_key = '...')")
	}
	return table, desc, ks, missing, err
}

func hasRows(table *shardmap.Table) error {
	return sqlstate.New(sqlstate.ObjectNotInState, "table %s has rows, and only an empty table can be sharded", table.QualifiedName()).
		WithHint("create a sharded table beside it, copy the rows through the router, then rename")
}

// PlanDistribute makes all checks of Distribute and returns the keyspace that the
// table would be in, and whether that would be made. The transaction is to be rolled back.
func (t *Tx) PlanDistribute(ctx context.Context, name planner.TableName, shardKey []string, keyspaceName string) (keyspaceOut string, made bool, err error) {
	if err := t.usable(); err != nil {
		return "", false, err
	}
	if err := t.lock(ctx); err != nil {
		return "", false, t.fail(err)
	}
	_, _, ks, _, err := t.planDistribute(ctx, t.part(t.base.State().DefaultShard), name, shardKey, keyspaceName)
	if err != nil {
		return "", false, t.fail(err)
	}
	return ks.name, ks.made != nil, nil
}
