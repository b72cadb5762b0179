package schema

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// SyncGuards sets the guards of a keyspace's tables on one shard, in one
// transaction, while no schema change is at work, and returns the map that it was done under.
// They are set as in the map that next makes of the current one, or as in the
// current one if next is nil. check runs in the same transaction after the
// tables are closed to writers; its error undoes everything.
//
// Errors: 40001 while a part of the keyspace on that shard changes its owner; 55000 for guards that no version of the map has made (GuardsFit), 55P03 when the tables were not to be locked in time, 57P03 when a shard
// or the directory cannot be reached; those of next and check.
func SyncGuards(ctx context.Context, o Options, keyspace, shard string,
	next func(cur *shardmap.Snapshot) (*shardmap.Snapshot, error),
	check func(ctx context.Context, conn engine.Conn, tables []*shardmap.Table) error,
) (*shardmap.Snapshot, error) {
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	t, err := Begin(ctx, o, snap)
	if err != nil {
		return nil, err
	}
	defer t.Rollback(ctx)
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	want := t.base
	if next != nil {
		if want, err = next(t.base); err != nil {
			return nil, err
		}
	}
	p, err := t.open(ctx, shard)
	if err != nil {
		return nil, err
	}
	if _, err := GuardsFit(ctx, o.Directory, p.conn, keyspace, shard); err != nil {
		return nil, err
	}
	var tables []*shardmap.Table
	var names []string
	for i := range t.base.State().Tables {
		table := &t.base.State().Tables[i]
		if table.Kind != shardmap.Sharded || table.Keyspace != keyspace {
			continue
		}
		tables, names = append(tables, table), append(names, "ONLY "+table.QualifiedName())
	}
	if len(names) > 0 {
		// All at once, and for a moment only: who has one table and waits for another is in a ring with clients, of whom
		// PostgreSQL ends one.
		slices.Sort(names)
		if err := p.briefly(ctx, "LOCK TABLE "+strings.Join(names, ", ")+" IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return nil, p.broke(err)
		}
	}
	for _, table := range tables {
		g, _ := GuardOf(want, table, shard)
		bound, cancel := context.WithTimeout(ctx, t.opts.LockTimeout)
		err := p.conn.SetGuard(bound, g)
		cancel()
		if err != nil {
			return nil, p.broke(err)
		}
	}
	if check != nil {
		if err := check(ctx, p.conn, tables); err != nil {
			if lost(err) {
				return nil, p.broke(err)
			}
			return nil, err
		}
	}
	// The tables are locked now. A move that changed what the shard owns since the map was
	// read has either set its own guards before, or waits for the locks and sets them after.
	now, err := o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	if next != nil {
		if _, err := next(now); err != nil {
			return nil, err
		}
	}
	if !sameGuardsOf(t.base, now, keyspace, shard) || Moving(now, keyspace, shard) {
		return nil, sqlstate.New(sqlstate.SerializationFailure, "a part of keyspace %s is changing its owner at this moment", keyspace).
			OnShard(shard).WithHint("nothing was changed: run it again")
	}
	if shard == t.base.State().DefaultShard {
		// The lock's note is of no change.
		if _, err := p.run(ctx, "DELETE FROM cleave_internal.schema_change WHERE id = "+quote(t.id)); err != nil {
			return nil, err
		}
	}
	if _, err := p.run(ctx, "COMMIT"); err != nil {
		if p.broken {
			e := sqlstate.Wrap(err, sqlstate.TransactionUnknown, "shard %s was lost while its guards were being set", shard).OnShard(shard).
				WithHint("cleave doctor --repair sets them as the map says")
			e.Retry = sqlstate.RetryUnknown
			return nil, e
		}
		return nil, err
	}
	p.done = true
	return t.base, nil
}
