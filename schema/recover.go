package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// RecoverOptions are what Recover needs.
type RecoverOptions struct {
	Directory shardmap.Directory
	Connect   Connect
	Actor     string // for the history; "" is "system"
	// Age is how old a prepared transaction without a decision has to be before
	// it is rolled back. Younger ones are likely at work; they would only be made
	// to fail with 40001. 0 is one minute.
	Age time.Duration
	// LockTimeout bounds each wait for a lock; 0 is 5 seconds.
	LockTimeout time.Duration
	// DryRun only looks.
	DryRun bool
	// SetBack also sets guards to the map that are newer than any version of it: a person has decided that the map is
	// right. Without it they are left, with a finding.
	SetBack bool
	// Adopt takes tables of the default shard that the map does not know into it,
	// as unsharded tables.
	Adopt bool

	// leave leaves the guards of sharded tables that differ from the map: another shard has one of another map.
	leave bool
	// candidate says that the shard is asked by a URL that is not the map's yet: guards that let another role's mover pass are no difference.
	candidate bool
}

func (o RecoverOptions) withDefaults() RecoverOptions {
	if o.Actor == "" {
		o.Actor = "system"
	}
	if o.Age <= 0 {
		o.Age = DefaultPrepareAge
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	return o
}

const repairCommand = "cleave doctor --repair"

// atOnce bounds the shards that are looked at at the same time.
const atOnce = 8

// The levels of findings.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

// Recover finishes what a crash left: prepared transactions are committed or
// rolled back as the history says; changes that a shard lacks are run there; tables
// that are dropped everywhere leave the map; guards that differ from the map are set, but for those that are
// newer than the map (see SetBack). It returns what it found, one finding for each shard that is in order. A shard that cannot be
// reached is a finding. It may be run at any time, by several routers at once.
//
// Errors: only when the map itself cannot be read.
func Recover(ctx context.Context, o RecoverOptions) ([]Finding, error) {
	o = o.withDefaults()
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	found := make([][]Finding, len(snap.Shards()))
	tables := make([][]string, len(snap.Shards()))
	answered := make([]bool, len(snap.Shards()))
	shardmap.Each(snap.Shards(), atOnce, func(i int, s *shardmap.Shard) {
		found[i], tables[i], answered[i] = o.prepared(ctx, s)
	})
	out := slices.Concat(found...)
	// By name: the map may be another one a moment later.
	reached, lists := map[string]bool{}, map[string][]string{}
	for i, s := range snap.Shards() {
		reached[s.Name], lists[s.Name] = answered[i], tables[i]
	}
	compared, err := o.compare(ctx, snap, reached)
	if err != nil {
		return nil, err
	}
	out = append(out, compared...)
	unknown, err := o.strangers(ctx, lists)
	if err != nil {
		return nil, err
	}
	return append(out, unknown...), nil
}

func trouble(shard string, err error, what string) Finding {
	own := sqlstate.As(err)
	f := Finding{Level: levelError, Shard: shard, What: what + ": " + own.Message, Next: own.Hint}
	if own.Detail != "" {
		f.What += " (" + own.Detail + ")"
	}
	if f.Next == "" {
		f.Next = "cleave doctor"
	}
	return f
}

// prepared settles the prepared transactions of a shard, and lists its tables.
func (o RecoverOptions) prepared(ctx context.Context, s *shardmap.Shard) (found []Finding, tables []string, reached bool) {
	conn, release, err := o.Connect(ctx, s.Name)
	if err != nil {
		return []Finding{trouble(s.Name, onShard(err, s.Name), "shard "+s.Name+" cannot be reached")}, nil, false
	}
	broken := false
	defer func() { release(broken) }()
	if s.Can().PreparesDefinitions {
		found, err = o.settle(ctx, conn, s.Name)
		if err != nil {
			broken = lost(err)
			found = append(found, trouble(s.Name, onShard(err, s.Name), "prepared transactions"))
			if broken {
				return found, nil, false
			}
		}
	}
	res, _, err := run(ctx, conn, tablesSQL)
	if err != nil {
		broken = lost(err)
		return append(found, trouble(s.Name, onShard(err, s.Name), "the list of tables")), nil, !broken
	}
	for _, row := range res.Rows {
		if !ownSchema(row[0].String) {
			tables = append(tables, row[0].String+"\x00"+row[1].String)
		}
	}
	return found, tables, true
}

const tablesSQL = "SELECT n.nspname, c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')"

// ownSchema reports whether a schema's tables are the shard's or Cleave's own;
// temporary tables are in pg_temp_N.
func ownSchema(name string) bool {
	return strings.HasPrefix(name, "pg_") || name == "information_schema" || name == "cleave_internal"
}

const preparedSQL = "SELECT gid, (EXTRACT(EPOCH FROM pg_catalog.now() - prepared) * 1000000)::bigint FROM pg_catalog.pg_prepared_xacts " +
	"WHERE database = pg_catalog.current_database() ORDER BY prepared"

// settle ends the prepared transactions of schema changes on one shard.
func (o RecoverOptions) settle(ctx context.Context, conn engine.Conn, shard string) ([]Finding, error) {
	res, _, err := run(ctx, conn, preparedSQL)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, row := range res.Rows {
		name := row[0].String
		id, ours := strings.CutPrefix(name, gidPrefix)
		if ours {
			id, ours = strings.CutSuffix(id, "_"+shard)
		}
		if !ours {
			continue // not a schema change of this shard's
		}
		micros, err := strconv.ParseInt(row[1].String, 10, 64)
		if err != nil {
			return out, fmt.Errorf("schema: age of a prepared transaction: %w", err)
		}
		age := time.Duration(micros) * time.Microsecond
		f, err := o.settleOne(ctx, conn, shard, id, name, age)
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
	return out, nil
}

// settleOne ends the prepared transaction of a schema change as it was decided, unless it is too early for that.
func (o RecoverOptions) settleOne(ctx context.Context, conn engine.Conn, shard, id, name string, age time.Duration) (Finding, error) {
	f := Finding{Level: levelWarning, Shard: shard, What: fmt.Sprintf("schema change %s is prepared on %s for %s", id, shard, age.Round(time.Second)), Next: repairCommand}
	entry, err := o.Directory.Find(ctx, id)
	decided := err == nil
	if !decided && !errors.Is(err, shardmap.ErrNotFound) {
		return f, directoryError(err)
	}
	committed := decided && entry.Op != OpRolledBack
	switch {
	case o.DryRun && decided:
		return f, nil
	case !decided && age < o.Age:
		f.What += ", not decided yet: likely at work"
		f.Next, f.Later = "wait a minute, then: "+repairCommand, true
		return f, nil
	case o.DryRun:
		f.What += ", not decided in that time: who made it has ended, or cannot reach the directory"
		return f, nil
	case !decided:
		if committed, err = resolve(ctx, o.Directory, id, o.Actor); err != nil {
			return f, err
		}
	}
	verb, done := "ROLLBACK PREPARED ", "rolled back: it was never decided"
	if committed {
		if waits, err := f.waits(ctx, o.Directory, entry.Version); waits || err != nil {
			return f, err
		}
		verb, done = "COMMIT PREPARED ", "committed, as the history says"
	}
	if _, _, err := run(ctx, conn, verb+quote(name)); err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
		return f, err
	}
	f.Done, f.Next = done, ""
	return f, nil
}

// SettleOutside ends the prepared transactions of schema changes in a database that is no shard of the map. A process
// that is at work on one had an older map, and can commit it no more.
func SettleOutside(ctx context.Context, o RecoverOptions, conn engine.Conn, shard shardmap.Shard) error {
	if !shard.Can().PreparesDefinitions {
		return nil
	}
	o.Age = time.Nanosecond
	_, err := o.withDefaults().settle(ctx, conn, shard.Name)
	return err
}

// settled ends prepared transactions on all shards and reports whether there were any.
func settled(ctx context.Context, o RecoverOptions, snap *shardmap.Snapshot) bool {
	found, _ := o.withDefaults().settleAll(ctx, snap)
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Done != "" })
}

// Settle is the part of Recover that ends what is prepared, on all shards that can be reached.
//
// Errors: when the map cannot be read, or a shard does not answer; the other shards' are settled nevertheless.
func Settle(ctx context.Context, o RecoverOptions) ([]Finding, error) {
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	return o.withDefaults().settleAll(ctx, snap)
}

func (o RecoverOptions) settleAll(ctx context.Context, snap *shardmap.Snapshot) ([]Finding, error) {
	found, failed := make([][]Finding, len(snap.Shards())), make([]error, len(snap.Shards()))
	shardmap.Each(snap.Shards(), atOnce, func(i int, s *shardmap.Shard) {
		if !s.Can().PreparesDefinitions {
			return
		}
		conn, release, err := o.Connect(ctx, s.Name)
		if err != nil {
			failed[i] = onShard(err, s.Name)
			return
		}
		found[i], err = o.settle(ctx, conn, s.Name)
		release(lost(err))
		failed[i] = onShard(err, s.Name)
	})
	return slices.Concat(found...), errors.Join(failed...)
}

// compare compares every shard with the map. It looks before it sets anything: where one shard has a guard of another map, the others' guards
// need not show it, and are left as well.
func (o RecoverOptions) compare(ctx context.Context, snap *shardmap.Snapshot, reached map[string]bool) ([]Finding, error) {
	if !o.DryRun && !o.SetBack {
		look := o
		look.DryRun = true
		found, err := look.compareOnce(ctx, snap, reached)
		if err != nil || !slices.ContainsFunc(found, func(f Finding) bool { return f.Level != levelOK }) {
			return found, err
		}
		o.leave = slices.ContainsFunc(found, func(f Finding) bool { return f.Newer })
	}
	return o.compareOnce(ctx, snap, reached)
}

// compareOnce holds the lock of schema changes, so that nothing is half way.
func (o RecoverOptions) compareOnce(ctx context.Context, snap *shardmap.Snapshot, reached map[string]bool) ([]Finding, error) {
	if !reached[snap.State().DefaultShard] {
		return []Finding{{Level: levelWarning, What: "tables and guards were not compared: the default shard is not there", Shard: snap.State().DefaultShard, Next: "cleave doctor"}}, nil
	}
	tx, err := Begin(ctx, Options{Directory: o.Directory, Connect: o.Connect, Actor: o.Actor, LockTimeout: o.LockTimeout, PrepareAge: o.Age}, snap)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	if err := tx.lock(ctx); err != nil {
		f := trouble(snap.State().DefaultShard, err, "tables and guards were not compared")
		if sqlstate.CodeOf(err) == sqlstate.LockNotAvailable {
			f.Level, f.Later = levelWarning, true
		}
		return []Finding{f}, nil
	}
	snap = tx.base
	entries, gone, err := standing(ctx, o.Directory, snap)
	if err != nil {
		return nil, err
	}
	var out []Finding
	absent := map[string]int{} // dropped tables that a shard does not have
	looked := 0
	for i := range snap.Shards() {
		s := &snap.Shards()[i]
		if !reached[s.Name] {
			continue // found down before, or added just now
		}
		c := comparison{o: o, snap: snap, shard: s, def: s.Name == snap.State().DefaultShard, entries: entries, gone: gone, absent: absent}
		if c.def {
			p := tx.part(s.Name)
			c.conn = p.conn
			c.all(ctx)
			c.abreast(ctx)
			if c.changed && !c.failed {
				if _, err := p.run(ctx, "COMMIT"); err != nil {
					c.found = append(c.found, trouble(s.Name, err, "the repair"))
				}
				p.done = true
			}
		} else {
			c.separately(ctx)
		}
		if c.looked {
			looked++
		}
		out = append(out, c.found...)
	}
	if looked == len(snap.Shards()) {
		out = append(out, o.bury(ctx, gone, absent, looked)...)
	}
	return out, nil
}

// tombstone is a table that the map still has although its last change dropped it.
type tombstone struct {
	table   *shardmap.Table
	version uint64
	id      string
	shards  bool // sharded or reference: on all shards
}

// standing is the history of schema changes that are in force, and the tables of the map that its last word drops.
func standing(ctx context.Context, dir shardmap.Directory, snap *shardmap.Snapshot) ([]shardmap.Entry, map[string]tombstone, error) {
	entries, err := History(ctx, dir, 0)
	if err != nil {
		return nil, nil, err
	}
	entries = inForce(entries)
	gone, err := tombstones(entries, snap)
	return entries, gone, err
}

// tombstones finds tables of the map that the ledger's last word drops.
func tombstones(entries []shardmap.Entry, snap *shardmap.Snapshot) (map[string]tombstone, error) {
	last := map[string]tombstone{}
	for _, e := range entries {
		statements, err := ParseLedger(e)
		if err != nil {
			return nil, err
		}
		for _, s := range statements {
			for _, name := range slices.Concat(s.Tables, s.Creates) {
				delete(last, name)
			}
			for old, now := range s.Renames {
				last[old] = tombstone{version: e.Version, id: e.ID}
				delete(last, now)
			}
			for _, name := range s.Drops {
				last[name] = tombstone{version: e.Version, id: e.ID}
			}
			for i := range snap.State().Tables {
				t := &snap.State().Tables[i]
				if slices.Contains(s.DropsSchema, t.Schema) {
					last[t.QualifiedName()] = tombstone{version: e.Version, id: e.ID}
				}
			}
		}
	}
	out := map[string]tombstone{}
	for i := range snap.State().Tables {
		t := &snap.State().Tables[i]
		if stone, ok := last[t.QualifiedName()]; ok {
			stone.table, stone.shards = t, t.Kind != shardmap.Whole
			out[t.QualifiedName()] = stone
		}
	}
	return out, nil
}

// bury takes tables out of the map that are dropped on all shards.
func (o RecoverOptions) bury(ctx context.Context, gone map[string]tombstone, absent map[string]int, shards int) []Finding {
	var out []Finding
	for name, stone := range gone {
		want := 1
		if stone.shards {
			want = shards
		}
		if absent[name] != want {
			continue
		}
		f := Finding{Level: levelWarning, Table: name, What: "table " + name + " is dropped on all shards, but the map still has it", Next: repairCommand}
		if !o.DryRun {
			if err := removeTables(ctx, o.Directory, o.Actor, stone.id, stone.version, map[string]bool{name: true}); err != nil {
				f = trouble("", err, "table "+name+" is dropped, but the map still has it")
			} else {
				f.Done, f.Next = "taken out of the map", ""
			}
		}
		out = append(out, f)
	}
	return out
}

// comparison is one shard held against the map.
type comparison struct {
	o       RecoverOptions
	snap    *shardmap.Snapshot
	shard   *shardmap.Shard
	def     bool
	conn    engine.Conn
	entries []shardmap.Entry
	gone    map[string]tombstone
	absent  map[string]int

	found   []Finding
	changed bool // something was repaired
	ahead   bool // a guard may have been set before the map that it is of was stored
	failed  bool // the transaction cannot go on
	looked  bool // to the end
}

// separately compares over a conversation and in a transaction of its own.
func (c *comparison) separately(ctx context.Context) {
	name := c.shard.Name
	conn, release, err := c.o.Connect(ctx, name)
	if err != nil {
		c.found = append(c.found, trouble(name, onShard(err, name), "shard "+name+" cannot be reached"))
		return
	}
	c.conn = conn
	broken := false
	defer func() { release(broken) }()
	begin := []string{"BEGIN"}
	if c.shard.Can().Locks {
		begin = append(begin, fmt.Sprintf("SET LOCAL lock_timeout = %d", c.o.LockTimeout.Milliseconds()))
	}
	for _, sql := range begin {
		if _, _, err := run(ctx, conn, sql); err != nil {
			broken = true
			c.found = append(c.found, trouble(name, onShard(err, name), "the comparison"))
			return
		}
	}
	c.all(ctx)
	c.abreast(ctx)
	end := "ROLLBACK"
	if c.changed && !c.failed {
		end = "COMMIT"
	}
	if _, _, err := run(ctx, conn, end); err != nil {
		broken = true
		if end == "COMMIT" {
			c.found = append(c.found, trouble(name, onShard(err, name), "the repair"))
		}
	}
}

// abreast makes sure, with the tables locked, that the guards that were set are those of
// the newest map too: a move may have changed what the shard owns. Where a guard was ahead of the map, the
// process that set it does not store that map any more.
func (c *comparison) abreast(ctx context.Context) {
	if !c.changed || c.failed {
		return
	}
	for range decideTries {
		now, err := c.o.Directory.Load(ctx)
		if err == nil && (!sameGuards(c.snap, now, c.shard.Name) || now.CopiesEpoch() != c.snap.CopiesEpoch() || !sameService(c.snap, now, c.shard.Name)) {
			err = sqlstate.New(sqlstate.SerializationFailure, "the map was changed").WithHint("run it again: cleave doctor --repair")
		}
		if err == nil && c.ahead {
			if err = Fence(ctx, c.o.Directory, c.o.Actor, now); errors.Is(err, shardmap.ErrConflict) {
				continue
			}
		}
		if err != nil {
			c.fail(err, "the guards")
		}
		return
	}
	c.fail(directoryError(shardmap.ErrConflict), "the guards")
}

// sameService reports whether a shard is used for the same in two maps.
func sameService(a, b *shardmap.Snapshot, shard string) bool {
	x, _ := a.Shard(shard)
	y, ok := b.Shard(shard)
	return ok && x.Service == y.Service && x.ServiceEpoch == y.ServiceEpoch
}

// Fence makes sure, by a change of nothing, that nobody stores a map any more that was made from the given one. It comes before
// guards of reference tables on the default shard that are ahead of the map are set back: the process that set them would store
// its map next. The caller has the tables locked.
//
// Errors: ErrConflict when the map is another one already; those of Directory.Update.
func Fence(ctx context.Context, dir shardmap.Directory, actor string, snap *shardmap.Snapshot) error {
	next := snap.State().Clone()
	_, err := dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: actor, Why: "guards were ahead of the map and are set back", Op: OpFence}, next)
	return err
}

func (c *comparison) fail(err error, what string) {
	c.failed = true
	f := trouble(c.shard.Name, onShard(err, c.shard.Name), what)
	if sqlstate.CodeOf(err) == sqlstate.SerializationFailure {
		f.Level, f.Later = levelWarning, true // somebody was faster
	}
	c.found = append(c.found, f)
	// What this transaction did before is undone with it.
	for i := range c.found {
		if c.found[i].Done != "" {
			c.found[i].Done, c.found[i].Next = "", repairCommand
		}
	}
}

// all compares notes, tables and guards inside the open transaction.
func (c *comparison) all(ctx context.Context) {
	name := c.shard.Name
	if !c.notes(ctx) {
		return
	}
	ok := 0
	for i := range c.snap.State().Tables {
		t := &c.snap.State().Tables[i]
		if t.Kind == shardmap.Whole && !c.def {
			continue
		}
		good, more := c.table(ctx, t)
		if !more {
			return
		}
		if good {
			ok++
		}
	}
	c.looked = true
	if len(c.found) == 0 {
		c.found = append(c.found, Finding{Level: levelOK, Shard: name, What: fmt.Sprintf("the tables of %s and their guards are as the map says (%d)", name, ok)})
	}
}

// notes runs the changes that the shard lacks.
func (c *comparison) notes(ctx context.Context) bool {
	name := c.shard.Name
	have, err := noted(ctx, c.conn)
	if err != nil {
		c.fail(err, "the notes of schema changes")
		return false
	}
	for _, e := range c.entries {
		if have[e.ID] {
			continue
		}
		statements, err := ParseLedger(e)
		if err != nil {
			c.fail(err, "the ledger")
			return false
		}
		missing := c.ofShard(e, statements)
		if len(missing) == 0 {
			continue
		}
		f := Finding{Level: levelError, Shard: name, What: fmt.Sprintf("%s lacks the schema change of version %d: %s", name, e.Version, clip(missing[0].Text)), Next: repairCommand}
		waits, err := f.waits(ctx, c.o.Directory, e.Version)
		if err != nil {
			c.fail(err, f.What)
			return false
		}
		if waits {
			c.found = append(c.found, f)
			continue
		}
		if !c.o.DryRun {
			if err := c.replay(ctx, e, missing); err != nil {
				c.fail(err, f.What)
				return false
			}
			c.changed = true
			f.Level, f.Done, f.Next = levelWarning, "run there", ""
		}
		c.found = append(c.found, f)
	}
	return true
}

// ofShard are the statements of an entry that the shard gets.
func (c *comparison) ofShard(e shardmap.Entry, statements []Statement) (out []Statement) {
	for _, s := range statements {
		// What the other shards got of a table that became sharded, the default shard had.
		if s.AllShards && !(c.def && e.Op == OpDistribute) || !s.AllShards && c.def {
			if s.Elsewhere != "" && !c.def {
				s.Text = s.Elsewhere
			}
			out = append(out, s)
		}
	}
	return out
}

// replay runs statements of an entry, and notes it.
func (c *comparison) replay(ctx context.Context, e shardmap.Entry, statements []Statement) error {
	for _, s := range statements {
		if err := replayStatement(ctx, c.conn, s); err != nil {
			return replayError(err, c.shard.Name, e, s)
		}
	}
	return note(ctx, c.conn, e.ID)
}

// table compares one table and its guard.
func (c *comparison) table(ctx context.Context, t *shardmap.Table) (good, more bool) {
	name, shard := t.QualifiedName(), c.shard.Name
	desc, err := c.conn.DescribeTable(ctx, t.Schema, t.Name)
	if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
		if _, dropped := c.gone[name]; dropped {
			c.absent[name]++
			return false, true
		}
		c.found = append(c.found, Finding{Level: levelError, Shard: shard, Table: name, What: "table " + name + " is in the map, but not on " + shard,
			Next: "restore it there, or drop it everywhere: DROP TABLE IF EXISTS " + name})
		return false, true
	}
	if err != nil {
		c.fail(err, "table "+name)
		return false, false
	}
	good = true
	if diff := differs(&engine.Table{Columns: columnsIn(t)}, desc); diff != "" {
		good = false
		c.found = append(c.found, Finding{Level: levelError, Shard: shard, Table: name, What: "table " + name + " on " + shard + " is not as in the map: " + diff,
			Next: "alter it on that shard until it is, or through the router so that the map follows"})
		for _, k := range t.ShardKey {
			if column(desc, k) == nil {
				return false, true // no guard can be set
			}
		}
	}
	if f := c.generated(t, desc); f != nil {
		good = false
		c.found = append(c.found, *f)
	}
	want, guarded := GuardOf(c.snap, t, shard)
	if c.o.candidate && desc.Guard != nil {
		desc.Guard.Loose = false
	}
	why := guardDiffers(want, guarded, desc.Guard)
	if why == "" && c.o.SetBack && !c.o.DryRun && t.Kind == shardmap.Sharded && desc.Guard.Owns == "" {
		// The shard that gave ranges away has the epoch of those that it kept, and this guard does not say its ranges.
		why = "may be of another map with the same epoch"
	}
	if why != "" && !(t.Kind == shardmap.Sharded && Moving(c.snap, t.Keyspace, shard)) {
		good = false
		f := Finding{Level: levelError, Shard: shard, Table: name, What: "the guard of " + name + " on " + shard + " " + why, Next: repairCommand}
		if newer, err := c.newer(ctx, t, desc.Guard); err != nil {
			c.fail(err, f.What)
			return false, false
		} else if newer != nil && !c.o.SetBack {
			c.found = append(c.found, *newer)
			return false, true
		} else if newer != nil {
			c.ahead = true
		}
		if c.o.leave && t.Kind == shardmap.Sharded {
			f.What += "; it is left, since another shard has a guard of another map"
			f.Next = "cleave doctor"
			c.found = append(c.found, f)
			return false, true
		}
		if !guarded && c.readElsewhere(ctx) {
			f.Level, f.Next, f.Later = levelWarning, "wait a moment, then: "+repairCommand, true
			f.What += ", and stays until no router reads from the former default shard"
			c.found = append(c.found, f)
			return good, true
		}
		if !c.o.DryRun {
			bound, cancel := context.WithTimeout(ctx, c.o.LockTimeout)
			if guarded {
				err = c.conn.SetGuard(bound, want)
			} else {
				err = c.conn.DropGuard(bound, t.Schema, t.Name)
			}
			cancel()
			if err != nil {
				c.fail(err, f.What)
				return false, false
			}
			c.changed = true
			c.ahead = c.ahead || c.def && t.Kind == shardmap.Reference
			f.Level, f.Done, f.Next = levelWarning, "set as the map says", ""
		}
		c.found = append(c.found, f)
	}
	return good, true
}

// readElsewhere reports whether a router may go by a map with another default shard: then the whole
// tables of the present one take no writes (see Rehome).
func (c *comparison) readElsewhere(ctx context.Context) bool {
	epoch := c.snap.State().DefaultEpoch
	if epoch == 0 {
		return false
	}
	members, err := c.o.Directory.Members(ctx)
	return err != nil || slices.ContainsFunc(members, func(m shardmap.MemberState) bool { return m.Role != "coordinator" && m.Acknowledged < epoch })
}

func columnsIn(t *shardmap.Table) []engine.Column {
	out := make([]engine.Column, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = engine.Column{Name: c.Name, Type: c.Type, OID: c.OID, NotNull: c.NotNull}
	}
	return out
}

// strangers are tables on shards that the map does not know. The map is read
// after the lists, so that a table that was made meanwhile is not taken for one.
func (o RecoverOptions) strangers(ctx context.Context, lists map[string][]string) ([]Finding, error) {
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	var out []Finding
	for i := range snap.Shards() {
		s := &snap.Shards()[i]
		def := s.Name == snap.State().DefaultShard
		for _, pair := range lists[s.Name] {
			schemaName, table, _ := strings.Cut(pair, "\x00")
			known, ok := snap.Table(schemaName, table)
			if ok && (def || known.Kind != shardmap.Whole) {
				continue
			}
			name := qualified(schemaName, table)
			f := Finding{Level: levelWarning, Shard: s.Name, Table: name, What: "table " + name + " on " + s.Name + " is not in the map",
				Next: "drop it there if nobody needs it"}
			if def {
				f.Next = repairCommand + " takes it in as an unsharded table"
				if o.Adopt && !o.DryRun {
					if err := o.adopt(ctx, s.Name, schemaName, table); err != nil {
						f = trouble(s.Name, err, f.What)
					} else {
						f.Done, f.Next = "taken in as an unsharded table", ""
					}
				}
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// adopt takes a table of the default shard into the map.
func (o RecoverOptions) adopt(ctx context.Context, shard, schemaName, table string) error {
	conn, release, err := o.Connect(ctx, shard)
	if err != nil {
		return onShard(err, shard)
	}
	desc, err := conn.DescribeTable(ctx, schemaName, table)
	release(lost(err))
	if err != nil {
		return onShard(err, shard)
	}
	if desc.Guard != nil {
		return sqlstate.New(sqlstate.ObjectNotInState, "it carries the guard of keyspace %q, so it was sharded: its rows may be on other shards", desc.Guard.Keyspace).
			WithHint("compare with an older map: cleave map history, cleave map diff")
	}
	return updateMap(ctx, o.Directory, func(cur *shardmap.Snapshot) (shardmap.Change, *shardmap.State, error) {
		next := cur.State().Clone()
		t := shardmap.Table{Schema: schemaName, Name: table, Kind: shardmap.Whole, Columns: columnsOf(desc)}
		generate(&t, desc)
		if _, ok := cur.Table(schemaName, table); ok {
			return shardmap.Change{}, nil, nil
		}
		next.PutTable(t)
		return shardmap.Change{By: o.Actor, Why: "found on the default shard", Op: "adopt", Tables: []string{t.QualifiedName()}}, &next, nil
	})
}
