package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/crashpoint"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The Ops of a change of the default shard.
const (
	// OpDefault is the change itself: the new default shard's unsharded tables take no writes yet.
	OpDefault = "default_shard"
	// OpDefaultOpen says that they do.
	OpDefaultOpen = "default_shard_open"
)

// CopyRows makes the rows of a table on one shard those of another, and compares them; ahead, while others write to the
// other, it need not compare. Both conversations are in a transaction.
type CopyRows func(ctx context.Context, from, to engine.Conn, t *shardmap.Table, ahead bool) error

// Rehome makes another shard the default shard, with the rows of all unsharded tables, while statements go on. Those that
// write to unsharded tables wait until it is done. Run again after a failure, it goes on where it stopped, or from the beginning.
//
//	copied ahead ──▶ closed on the old ──copied──▶ closed on both ──map──▶ every member knows ──▶ open on the new
//	                       │ crash                       │ crash                   │ crash
//	                       ▼                             ▼                         ▼
//	                 Recover opens the old; what was copied is dropped by the next try     Recover opens the new
//
// A closed table has a guard that refuses every write from every client. Routers then wait for a newer map. copyRows
// makes a table's rows those of the other shard and compares both; ahead, while they change, it need not compare. await returns when every member has acknowledged a version of the map.
//
// Before any is closed all tables and views are made on the new shard in a transaction that is rolled back.
//
// Errors: 42704 for an unknown shard; 0A000 for unsharded tables and views that cannot be made there, with nothing changed; 55P03 when
// a table was not to be locked in time; 40001 when another change came in between; those of copyRows and await.
func Rehome(ctx context.Context, o Options, to string, copyRows CopyRows, await func(ctx context.Context, version uint64) error) error {
	o = o.withDefaults()
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return directoryError(err)
	}
	if _, ok := snap.Shard(to); !ok {
		return sqlstate.New(sqlstate.UndefinedObject, "shard %s is not in the map", to).WithHint("see: cleave shard list")
	}
	was, ok := snap.Shard(snap.State().DefaultShard)
	if !ok {
		return sqlstate.New(sqlstate.DataCorrupted, "the default shard is not in the map")
	}
	if was.Name != to {
		if err := Rehearse(ctx, o, to); err != nil {
			return err
		}
		made, err := copyAhead(ctx, o, snap, to, copyRows)
		if err != nil && (ctx.Err() != nil || errors.Is(err, errCrash)) {
			return err
		}
		// After any other error all is copied while the tables are closed, or that fails as well.
		if err := closeWhole(ctx, o); err != nil {
			return err
		}
		if err := o.stop("closed"); err != nil {
			return err
		}
		if err := carry(ctx, o, to, copyRows, made); err != nil {
			if errors.Is(err, errCrash) {
				return err
			}
			// Nothing has happened for anybody else: the old one goes on.
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
			defer cancel()
			if now, load := o.Directory.Load(end); load == nil && now.State().DefaultShard != to {
				if open := openWhole(end, o); open != nil {
					own := *sqlstate.As(err)
					own.Hint = "the unsharded tables take no writes until: cleave doctor --repair"
					return &own
				}
			}
			return err
		}
	}
	if err := o.stop("mapped"); err != nil {
		return err
	}
	if snap, err = o.Directory.Load(ctx); err != nil {
		return directoryError(err)
	}
	if err := await(ctx, snap.Version()); err != nil {
		return err
	}
	if err := openWhole(ctx, o); err != nil {
		return err
	}
	if err := o.stop("opened"); err != nil {
		return err
	}
	// Statements that were refused wait for a newer map than the one by which they were.
	if err := updateMap(ctx, o.Directory, func(cur *shardmap.Snapshot) (shardmap.Change, *shardmap.State, error) {
		next := cur.State().Clone()
		return shardmap.Change{By: o.Actor, Why: "unsharded tables take writes on " + to, Op: OpDefaultOpen}, &next, nil
	}); err != nil || was.Name == to {
		return err
	}
	return leftLargeObjects(ctx, o, was, to)
}

// stop is where tests stop a change that is no transaction.
func (o Options) stop(step string) error {
	crashpoint.Step(o.Actor)
	if o.step == nil {
		return nil
	}
	if err := o.step(step, ""); err != nil {
		return fmt.Errorf("%w: %w", errCrash, err)
	}
	return nil
}

// unshardedTables are the names of the unsharded tables of a map.
func unshardedTables(snap *shardmap.Snapshot) []plan.TableName {
	var out []plan.TableName
	for _, t := range snap.State().Tables {
		if t.Kind == shardmap.Whole {
			out = append(out, plan.TableName{Schema: t.Schema, Name: t.Name})
		}
	}
	return out
}

// locked begins a transaction on the default shard that keeps schema changes out.
func locked(ctx context.Context, o Options) (*Tx, *part, error) {
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return nil, nil, directoryError(err)
	}
	t, err := Begin(ctx, o, snap)
	if err != nil {
		return nil, nil, err
	}
	if err := t.lock(ctx); err != nil {
		t.Rollback(ctx)
		return nil, nil, err
	}
	return t, t.part(t.base.State().DefaultShard), nil
}

// Bounds of taking the locks of two SQLite files together.
const (
	bothWait  = 100 * time.Millisecond // for the second one
	bothMax   = 30 * time.Second       // for all tries
	bothPause = 20 * time.Millisecond  // the shortest pause between two
)

// both runs f in a transaction that has the locks of the default shard, which keep schema changes out, and of another shard. Where that
// is a SQLite file its lock is that of everything in it. A transaction that writes to both shards may have one and wait for the
// other. So the second one is waited for with little patience, and the next try begins with it.
func (o Options) both(ctx context.Context, to string, f func(t *Tx, from *part) error) error {
	began := time.Now()
	for try := 0; ; try++ {
		err := o.bothOnce(ctx, to, try%2 == 1, f)
		if sqlstate.CodeOf(err) != sqlstate.LockNotAvailable || time.Since(began) > bothMax {
			return err
		}
		pause := bothPause << min(try, 4)
		select {
		case <-time.After(pause + rand.N(pause)):
		case <-ctx.Done():
			return err
		}
	}
}

func (o Options) bothOnce(ctx context.Context, to string, first bool, f func(t *Tx, from *part) error) error {
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return directoryError(err)
	}
	t, err := Begin(ctx, o, snap)
	if err != nil {
		return err
	}
	defer t.Rollback(ctx)
	take := []func() error{func() error { return t.lock(ctx) }, func() error {
		p, err := t.open(ctx, to)
		if err != nil {
			return err
		}
		return t.mark(ctx, p)
	}}
	if first {
		slices.Reverse(take)
	}
	for i, name := range map[bool][]string{false: {snap.State().DefaultShard, to}, true: {to, snap.State().DefaultShard}}[first] {
		if def, _ := snap.Shard(name); i == 1 && def != nil && !def.Can().Locks {
			p, err := t.open(ctx, name)
			if err != nil {
				return err
			}
			if _, err := p.run(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", bothWait.Milliseconds())); err != nil {
				return err
			}
		}
		if err := take[i](); err != nil {
			return err
		}
	}
	return f(t, t.part(t.base.State().DefaultShard))
}

// closing locks the unsharded tables and sets or drops the guard that refuses every write.
func (p *part) closing(ctx context.Context, names []plan.TableName, closed bool) error {
	if len(names) == 0 {
		return nil
	}
	var list []string
	for _, n := range names {
		list = append(list, "ONLY "+qualifiedSQL(n.Schema, n.Name))
	}
	mode := "SHARE ROW EXCLUSIVE"
	if !closed {
		mode = "ACCESS EXCLUSIVE"
	}
	if err := p.briefly(ctx, "LOCK TABLE "+strings.Join(list, ", ")+" IN "+mode+" MODE"); err != nil {
		return err
	}
	for _, n := range names {
		var err error
		if closed {
			err = p.conn.SetGuard(ctx, engine.Guard{Schema: n.Schema, Table: n.Name})
		} else {
			err = p.conn.DropGuard(ctx, n.Schema, n.Name)
		}
		if err != nil {
			return p.broke(err)
		}
	}
	return nil
}

// closeWhole closes the unsharded tables of the default shard to writers.
func closeWhole(ctx context.Context, o Options) error {
	t, p, err := locked(ctx, o)
	if err != nil {
		return err
	}
	defer t.Rollback(ctx)
	if err := p.closing(ctx, unshardedTables(t.base), true); err != nil {
		return err
	}
	return t.Commit(ctx)
}

// openWhole opens the unsharded tables of the default shard, whichever that is.
func openWhole(ctx context.Context, o Options) error {
	t, p, err := locked(ctx, o)
	if err != nil {
		return err
	}
	defer t.Rollback(ctx)
	if err := p.closing(ctx, unshardedTables(t.base), false); err != nil {
		return err
	}
	return t.Commit(ctx)
}

// Rehearse makes the unsharded tables and views on another shard, as Rehome does, in a transaction that is rolled back.
// Its errors are those of Rehome; nothing is changed by it.
func Rehearse(ctx context.Context, o Options, to string) error {
	return o.withDefaults().both(ctx, to, func(t *Tx, from *part) error {
		if err := from.withoutLargeObjects(ctx); err != nil {
			return err
		}
		d, statements, err := from.carried(ctx, t.base, t.opts.Directory, unshardedTables(t.base))
		if err != nil {
			return err
		}
		p, err := t.open(ctx, to)
		if err != nil {
			return err
		}
		if err := d.makeCarried(ctx, t.base, p, statements); err != nil {
			return err
		}
		if err := d.alike(ctx, p); err != nil {
			return err
		}
		return p.views(ctx, t.base)
	})
}

// copyAhead makes the unsharded tables on the new shard, closed, with their rows of now, while everybody goes on writing to them
// here, and returns how they were made. Of a file it does nothing: nobody could write to that meanwhile.
func copyAhead(ctx context.Context, o Options, snap *shardmap.Snapshot, to string, copyRows CopyRows) (made []Statement, err error) {
	if sh, ok := snap.Shard(to); !ok || !sh.Can().Locks {
		return nil, nil
	}
	t, err := Begin(ctx, o, snap)
	if err != nil {
		return nil, err
	}
	defer t.Rollback(ctx)
	from, err := t.open(ctx, snap.State().DefaultShard)
	if err != nil {
		return nil, err
	}
	d, made, err := from.carried(ctx, t.base, t.opts.Directory, unshardedTables(snap))
	if err != nil || len(made) == 0 {
		return nil, err
	}
	p, err := t.open(ctx, to)
	if err != nil {
		return nil, err
	}
	if err := d.makeCarried(ctx, t.base, p, made); err != nil {
		return nil, err
	}
	if err := d.fillCarried(ctx, from, p, made, copyRows, true); err != nil {
		return nil, err
	}
	if err := p.closing(ctx, unshardedTables(snap), true); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, "COMMIT"); err != nil {
		return nil, err
	}
	p.done = true
	return made, o.stop("ahead")
}

// carried reads how the unsharded tables are made.
func (from *part) carried(ctx context.Context, base *shardmap.Snapshot, dir shardmap.Directory, names []plan.TableName) (*distribution, []Statement, error) {
	d := &distribution{}
	for _, n := range names {
		desc, err := from.describe(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		if desc.Partitioned || desc.Inherits {
			return nil, nil, sqlstate.Refusal("CLV-0982", "table %s is partitioned or inherits, and is not carried to another shard", qualified(n.Schema, n.Name)).
				WithHint("Make a plain table of it first.")
		}
		if err := d.planCarry(ctx, base, dir, from, n, desc); err != nil {
			return nil, nil, err
		}
	}
	statements, err := d.madeOf()
	return d, statements, err
}

// makeCarried makes the tables on the new shard, in place of what an earlier try has left.
func (d *distribution) makeCarried(ctx context.Context, base *shardmap.Snapshot, p *part, statements []Statement) error {
	if err := d.clearCarried(ctx, p); err != nil {
		return err
	}
	for _, s := range statements {
		if err := replayStatement(ctx, p.conn, s); err != nil {
			return p.broke(replayError(err, p.shard, shardmap.Entry{Version: base.Version()}, s))
		}
	}
	return nil
}

// alike compares the tables that were made with those that they were made from.
func (d *distribution) alike(ctx context.Context, p *part) error {
	for i, n := range d.Tables {
		desc, err := p.describe(ctx, n.TableName)
		if err != nil {
			return err
		}
		if diff := differs(d.descs[i], desc); diff != "" {
			return sqlstate.New(sqlstate.ObjectNotInState, "table %s could not be made the same on shard %s: %s", d.tables[i].QualifiedName(), p.shard, diff).OnShard(p.shard).
				WithHint("alter it through the router to what both engines have")
		}
	}
	return nil
}

// fillCarried copies the rows.
func (d *distribution) fillCarried(ctx context.Context, from, p *part, statements []Statement, copyRows CopyRows, ahead bool) error {
	// In the order in which they were made: what a foreign key refers to comes first.
	for _, s := range statements {
		for _, name := range s.Creates {
			at := slices.IndexFunc(d.tables, func(o shardmap.Table) bool { return o.QualifiedName() == name })
			if at < 0 {
				continue
			}
			if err := copyRows(ctx, from.conn, p.conn, &d.tables[at], ahead); err != nil {
				return p.broke(err)
			}
		}
	}
	return nil
}

// stands reports whether the tables are on the new shard as they were made ahead: made in the same way, and closed since.
func (d *distribution) stands(ctx context.Context, p *part, statements, made []Statement) bool {
	if len(made) == 0 || !slices.EqualFunc(statements, made, func(a, b Statement) bool { return a.Text == b.Text }) {
		return false
	}
	for i, n := range d.Tables {
		desc, err := p.conn.DescribeTable(ctx, n.Schema, n.Name)
		if err != nil || desc.Guard == nil || desc.Guard.Keyspace != "" || differs(d.descs[i], desc) != "" {
			return false
		}
	}
	return true
}

// carry copies the unsharded tables, or what has changed since they were copied ahead, and changes the map, while schema changes
// are kept out.
func carry(ctx context.Context, o Options, to string, copyRows CopyRows, made []Statement) error {
	return o.both(ctx, to, func(t *Tx, from *part) error { return t.carry(ctx, from, to, copyRows, made) })
}

func (t *Tx) carry(ctx context.Context, from *part, to string, copyRows CopyRows, made []Statement) error {
	names := unshardedTables(t.base)
	d, statements, err := from.carried(ctx, t.base, t.opts.Directory, names)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(d.descs, func(desc *engine.Table) bool { return desc.Guard == nil || desc.Guard.Keyspace != "" }) {
		return again("the unsharded tables were opened by another session meanwhile")
	}
	p, err := t.open(ctx, to)
	if err != nil {
		return err
	}
	if !d.stands(ctx, p, statements, made) {
		if err := d.makeCarried(ctx, t.base, p, statements); err != nil {
			return err
		}
	}
	if err := from.withoutLargeObjects(ctx); err != nil {
		return err
	}
	state := t.base.State().Clone()
	if err := d.alike(ctx, p); err != nil {
		return err
	}
	if err := d.fillCarried(ctx, from, p, statements, copyRows, false); err != nil {
		return err
	}
	if err := p.views(ctx, t.base); err != nil {
		return err
	}
	if err := p.shadows(ctx, t.state.Sequences, nil); err != nil {
		return err
	}
	if err := p.noteAll(ctx, t.opts.Directory); err != nil {
		return err
	}
	if err := p.closing(ctx, names, true); err != nil {
		return err
	}
	if err := t.step("carried", to); err != nil {
		return err
	}
	// The lock's note is of no change.
	if _, err := p.run(ctx, "DELETE FROM cleave_internal.schema_change WHERE id = "+quote(t.id)+"; COMMIT"); err != nil {
		return err
	}
	p.done = true
	if err := t.step("committed", to); err != nil {
		return err
	}
	state.DefaultShard, state.DefaultEpoch = to, t.base.Version()+1
	_, err = t.opts.Directory.Update(ctx, shardmap.Change{Expect: t.base.Version(), By: t.opts.Actor, Why: fmt.Sprintf("the default shard is %s, no longer %s", to, from.shard), Op: OpDefault}, state)
	if err != nil {
		return directoryError(err)
	}
	return nil
}

// noteAll notes what the default shard has noted, which is done here as well.
func (p *part) noteAll(ctx context.Context, dir shardmap.Directory) error {
	entries, err := History(ctx, dir, 0)
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range inForce(entries) {
		ids = append(ids, e.ID)
	}
	if err := note(ctx, p.conn, ids...); err != nil {
		return p.broke(err)
	}
	return nil
}

// withoutLargeObjects refuses to leave a default shard that has large objects: they are not carried.
func (p *part) withoutLargeObjects(ctx context.Context) error {
	if !p.can.LargeObjects {
		return nil
	}
	res, err := p.run(ctx, "SELECT count(*) FROM pg_catalog.pg_largeobject_metadata")
	if err != nil || res.Rows[0][0].String == "0" {
		return err
	}
	return sqlstate.Refusal("CLV-0983", "shard %s has %s large objects, which are not carried to another shard", p.shard, res.Rows[0][0].String).
		WithHint("Keep them in columns of type bytea and remove them, SELECT lo_unlink(oid) FROM pg_largeobject_metadata; or leave the default shard where it is.").OnShard(p.shard)
}

// leftLargeObjects tells of large objects that were made on the former default shard while another became it.
func leftLargeObjects(ctx context.Context, o Options, was *shardmap.Shard, now string) error {
	if !was.Can().LargeObjects {
		return nil
	}
	conn, release, err := o.Connect(ctx, was.Name)
	if err != nil {
		return err
	}
	res, err := engine.ExecContext(ctx, conn, "SELECT count(*) FROM pg_catalog.pg_largeobject_metadata")
	release(lost(err))
	if err != nil || res.Rows[0][0].String == "0" {
		return err
	}
	return sqlstate.New(sqlstate.ObjectNotInState, "shard %s is the default shard, but %s large objects were made on shard %s while that changed", now, res.Rows[0][0].String, was.Name).OnShard(was.Name).
		WithHint("they are whole there: read them from that database and remove them")
}

// planCarry reads how an unsharded table is made.
func (d *distribution) planCarry(ctx context.Context, base *shardmap.Snapshot, dir shardmap.Directory, p *part, n plan.TableName, desc *engine.Table) error {
	known, _ := base.Table(n.Schema, n.Name)
	if p.can.Catalogue {
		def, err := p.define(ctx, n)
		if err != nil {
			return err
		}
		for i := range def.Columns {
			if def.Columns[i].sequence() != nil {
				return sqlstate.Refusal("CLV-0533", "column %s of table %s takes its values from a sequence of shard %s", ident(def.Columns[i].Name), known.QualifiedName(), p.shard).
					WithHint("Shard the table, or make it a reference table, with cleave.distribute, which hands the sequence over.")
			}
		}
		if err := first(def.refuse(known, base.State().Functions)); err != nil {
			return err
		}
		d.defs = append(d.defs, def)
	} else {
		entries, err := History(ctx, dir, 0)
		if err != nil {
			return err
		}
		ledger, err := TableLedger(entries, known.QualifiedName())
		if err == nil && len(ledger) == 0 {
			err = sqlstate.New(sqlstate.ObjectNotInState, "table %s was not created through Cleave, so how to create it on another shard is not known", known.QualifiedName()).
				WithHint("create it through the router")
		}
		if err != nil {
			return err
		}
		d.ledgers, d.notNulls = append(d.ledgers, ledger), append(d.notNulls, nil)
	}
	d.Tables = append(d.Tables, Becomes{TableName: n})
	d.tables, d.descs = append(d.tables, known.Clone()), append(d.descs, desc)
	return nil
}

// clearCarried drops what an earlier try has left. A table that takes writes is nobody's leftover.
func (d *distribution) clearCarried(ctx context.Context, p *part) error {
	var list []string
	for _, n := range d.Tables {
		desc, err := p.conn.DescribeTable(ctx, n.Schema, n.Name)
		if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
			continue
		}
		if err != nil {
			return p.broke(err)
		}
		name := qualifiedSQL(n.Schema, n.Name)
		if desc.HasRows && (desc.Guard == nil || desc.Guard.Keyspace != "") {
			return sqlstate.New(sqlstate.DuplicateTable, "shard %s has a table %s with rows, which is not the cluster's", p.shard, name).OnShard(p.shard).
				WithHint("rename it there, or drop it")
		}
		if desc.Guard != nil {
			if err := p.conn.DropGuard(ctx, n.Schema, n.Name); err != nil {
				return p.broke(err)
			}
		}
		list = append(list, name)
	}
	if len(list) == 0 {
		return nil
	}
	_, err := p.run(ctx, "DROP TABLE "+strings.Join(list, ", ")+" CASCADE")
	return err
}

// views makes the views of the map that a shard does not have, in an order in which that is possible.
func (p *part) views(ctx context.Context, base *shardmap.Snapshot) error {
	left := slices.Clone(base.State().Views)
	for len(left) > 0 {
		var later []shardmap.View
		var last error
		for _, v := range left {
			name := qualifiedSQL(v.Schema, v.Name)
			res, err := p.run(ctx, "SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = "+quote(v.Schema)+" AND c.relname = "+quote(v.Name))
			if err != nil {
				return err
			}
			if len(res.Rows) > 0 {
				continue
			}
			if _, err := p.run(ctx, "SAVEPOINT cleave_view"); err != nil {
				return err
			}
			end := "RELEASE SAVEPOINT cleave_view"
			if _, err := p.run(ctx, "CREATE VIEW "+name+" AS "+v.Definition); err != nil {
				last = err
				later = append(later, v)
				end = "ROLLBACK TO SAVEPOINT cleave_view; " + end
			}
			if _, err := p.run(ctx, end); err != nil {
				return err
			}
		}
		if len(later) == len(left) {
			return last
		}
		left = later
	}
	return nil
}
