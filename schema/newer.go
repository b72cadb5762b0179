package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// NewerGuard reports whether a guard's epoch says that the directory was put back to an older state. One above the map is
// what an operation leaves that dies between the guards and the map: it gives an empty key away (a pin), or
// nothing. Rows change hands in workflows only, and those write the map several times.
func NewerGuard(epoch uint64, now *shardmap.Snapshot) bool { return epoch > now.Version()+1 }

// versionsBack bounds the versions of the map that a guard is compared with.
const versionsBack = 10_000

// ownedOn is what the guards of a keyspace's tables on a shard let through by a map.
func ownedOn(snap *shardmap.Snapshot, ks, shard string) keyspace.Ownership {
	return inService(snap, shard, guarded(snap, ks, shard))
}

// OfAnotherMap reports whether no version of the map has made a guard: its epoch is newer than the map, or the map has never
// given the shard those ranges since. Then somebody has put the directory back to an older state, and rows may have moved in
// what was lost. The guard was read before now, the newest map, and is not that of a part on hold (see Moving).
//
// What an operation leaves that dies between the guards and the map is none: only pins differ, of keys without rows on the shard, or
// the guard lets nothing through. Of a guard that does not say what it owns only the epoch is compared.
func OfAnotherMap(ctx context.Context, dir shardmap.Directory, conn engine.Conn, now *shardmap.Snapshot, t *shardmap.Table, shard string, is *engine.GuardState) (bool, error) {
	if t.Kind != shardmap.Sharded || is == nil || is.Keyspace != t.Keyspace {
		return false, nil
	}
	if NewerGuard(is.Epoch, now) {
		return true, nil
	}
	if is.Owns == "" {
		return false, nil
	}
	has, err := keyspace.DecodeOwned(is.Owns)
	if err != nil {
		return false, err
	}
	if is.Epoch > now.Version() && has.Empty() {
		return false, nil
	}
	known, pins, err := ofVersion(ctx, dir, now, t, shard, is, has)
	if known || err != nil {
		return false, err
	}
	if !pins {
		return true, nil
	}
	want := ownedOn(now, t.Keyspace, shard)
	var extra []keyspace.Key
	for _, k := range has.Pinned {
		if !want.Owns(k) {
			extra = append(extra, k)
		}
	}
	return hasRows(ctx, conn, t, extra)
}

// ofVersion looks for the version of the map that made a guard, which owns has. pins: a version differs from it in pins only.
func ofVersion(ctx context.Context, dir shardmap.Directory, now *shardmap.Snapshot, t *shardmap.Table, shard string, is *engine.GuardState, has keyspace.Ownership) (known, pins bool, err error) {
	// An operation that died was based on the version before its epoch.
	least := max(is.Epoch, 2) - 1
	if now.Version() > versionsBack {
		least = max(least, now.Version()-versionsBack)
	}
	for v := now.Version(); v >= least; v-- {
		snap := now
		if v < now.Version() {
			if snap, err = dir.At(ctx, v); errors.Is(err, shardmap.ErrNotFound) {
				continue
			} else if err != nil {
				return false, false, directoryError(err)
			}
		}
		if _, ok := snap.Keyspace(t.Keyspace); !ok {
			continue
		}
		own := ownedOn(snap, t.Keyspace, shard)
		if v >= is.Epoch && own.Encode() == is.Owns {
			return true, false, nil
		}
		pins = pins || unpinned(own) == unpinned(has)
	}
	return false, pins, nil
}

// GuardsFit refuses to go on with guards of a keyspace ("" is all) on a shard that no version of the map has made: see OfAnotherMap. moving is true
// if a part is on hold and a guard is newer than the map: a move is about to store that version.
//
// Errors: 55000 for such a guard, those of the shard and of the directory.
func GuardsFit(ctx context.Context, dir shardmap.Directory, conn engine.Conn, ks, shard string) (moving bool, err error) {
	before, err := dir.Load(ctx)
	if err != nil {
		return false, directoryError(err)
	}
	states := map[*shardmap.Table]*engine.GuardState{}
	tables := before.State().Tables
	for i := range tables {
		t := &tables[i]
		if t.Kind != shardmap.Sharded || ks != "" && t.Keyspace != ks {
			continue
		}
		is, err := conn.Guard(ctx, t.Schema, t.Name)
		if err != nil {
			return false, err
		}
		if is != nil {
			states[t] = is
		}
	}
	// The map is read after the guards: a move may have set them just now.
	now, err := dir.Load(ctx)
	if err != nil {
		return false, directoryError(err)
	}
	for t, is := range states {
		if Moving(now, t.Keyspace, shard) {
			moving = moving || is.Epoch > now.Version()
			continue
		}
		if err := ofThisMap(ctx, dir, conn, now, t, shard, is); err != nil {
			return false, err
		}
	}
	return moving, nil
}

// ofThisMap fails with 55000 if no version of the map has made a guard: see OfAnotherMap.
func ofThisMap(ctx context.Context, dir shardmap.Directory, conn engine.Conn, now *shardmap.Snapshot, t *shardmap.Table, shard string, is *engine.GuardState) error {
	other, err := OfAnotherMap(ctx, dir, conn, now, t, shard, is)
	if err != nil || !other {
		return err
	}
	refusal := sqlstate.New(sqlstate.ObjectNotInState, "shard %s has a guard of epoch %d that no version of the map has made", shard, is.Epoch)
	if NewerGuard(is.Epoch, now) {
		refusal = sqlstate.New(sqlstate.ObjectNotInState, "shard %s has a guard of epoch %d, but the newest version of the map is %d", shard, is.Epoch, now.Version())
	}
	refusal.Keyspace, refusal.Schema, refusal.Table = t.Keyspace, t.Schema, t.Name
	return refusal.OnShard(shard).WithHint("the directory was put back to an older state: cleave doctor")
}

// fits refuses to set the guard of a table by a map that was put back to an older state: the shard would take rows again that
// belong to another by now. Where the table has no guard, that of another table of the keyspace is asked; one is enough, as
// whatever sets one sets them all.
//
// Errors: 55000, with what to do; those of the shard and of the directory.
func (t *Tx) fits(ctx context.Context, p *part, table *shardmap.Table) error {
	if _, ok := t.base.Keyspace(table.Keyspace); !ok || table.Kind != shardmap.Sharded {
		return nil // it has no rows and no guards yet
	}
	is, err := p.conn.Guard(ctx, table.Schema, table.Name)
	if err != nil {
		return p.broke(err)
	}
	tables := t.base.State().Tables
	for i := 0; i < len(tables) && is == nil; i++ {
		if other := &tables[i]; other.Kind == shardmap.Sharded && other.Keyspace == table.Keyspace {
			if is, err = p.conn.Guard(ctx, other.Schema, other.Name); err != nil {
				return p.broke(err)
			}
			table = other
		}
	}
	want, guarded := GuardOf(t.base, table, p.shard)
	if is == nil || guardDiffers(want, guarded, is) == "" {
		return nil
	}
	// Read after the guard: a move may have set it just now.
	now, err := t.opts.Directory.Load(ctx)
	if err != nil {
		return directoryError(err)
	}
	if Moving(now, table.Keyspace, p.shard) {
		return nil
	}
	if err := ofThisMap(ctx, t.opts.Directory, p.conn, now, table, p.shard, is); err != nil {
		return p.broke(err)
	}
	return nil
}

// LetsThrough reports whether a guard of the shard lets writes of anything of the part through, and its epoch; false if that cannot be read.
func LetsThrough(ctx context.Context, conn engine.Conn, snap *shardmap.Snapshot, ks, shard string, of shardmap.Part) (epoch uint64, lets bool) {
	part := snap.Keys(ks, of)
	for _, g := range GuardsOf(snap, ks, shard) {
		is, err := conn.Guard(ctx, g.Schema, g.Table)
		if err != nil {
			return 0, false
		}
		if is == nil || is.Owns == "" {
			continue
		}
		if own, err := keyspace.DecodeOwned(is.Owns); err == nil && own.Meets(&part) {
			return is.Epoch, true
		}
	}
	return 0, false
}

// unpinned is what an ownership says of the rest.
func unpinned(o keyspace.Ownership) string {
	o.Pinned, o.PinnedElsewhere = nil, nil
	return o.Encode()
}

// hasRows reports whether a table has rows of some keys.
func hasRows(ctx context.Context, conn engine.Conn, t *shardmap.Table, keys []keyspace.Key) (bool, error) {
	if len(keys) == 0 {
		return false, nil
	}
	columns := make([]string, len(t.ShardKey))
	for i, name := range t.ShardKey {
		columns[i] = ident(name)
	}
	ks := keyspace.Ownership{Strategy: keyspace.List, Types: make([]keyspace.Type, len(keys[0])), Pinned: keys}
	for i, v := range keys[0] {
		ks.Types[i] = v.Type()
	}
	res, _, err := run(ctx, conn, "SELECT EXISTS (SELECT FROM "+qualified(t.Schema, t.Name)+" WHERE "+keyspace.Condition(&ks, columns)+")")
	if err != nil {
		return false, err
	}
	return res.Rows[0][0].String == "t", nil
}

// newer is the finding about a sharded table's guard that no version of the map has made: nil if there is no such. Somebody
// has put the directory back to an older state then, and rows may have moved since. The guard was read before
// the map is, so that one which a move has set just now is not taken for such.
func (c *comparison) newer(ctx context.Context, t *shardmap.Table, is *engine.GuardState) (*Finding, error) {
	if t.Kind != shardmap.Sharded || is == nil {
		return nil, nil
	}
	now, err := c.o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	if Moving(now, t.Keyspace, c.shard.Name) {
		return nil, nil
	}
	if other, err := OfAnotherMap(ctx, c.o.Directory, c.conn, now, t, c.shard.Name, is); err != nil || !other {
		return nil, err
	}
	name := t.QualifiedName()
	what := fmt.Sprintf("has epoch %d, but the newest version of the map is %d: the directory was put back to an older state", is.Epoch, now.Version())
	if is.Epoch <= now.Version()+1 {
		what = fmt.Sprintf("has epoch %d and lets through what no version of the map has given to the shard since (%s): the directory was put back to an older state and changed afterwards", is.Epoch, describeOwned(is.Owns))
	}
	return &Finding{Level: levelError, Shard: c.shard.Name, Table: name, Newer: true,
		What: fmt.Sprintf("the guard of %s on %s %s, and rows may be where the map does not say", name, c.shard.Name, what),
		Next: NewerNext}, nil
}

// NewerNext is what to do about a directory that was put back to an older state than the shards have seen.
const NewerNext = "keep clients out and restore a newer state of the directory; if there is none: cleave doctor --rebuild-map; only if the map is right nevertheless: " +
	"cleave doctor --repair --set-back-guards, then end the moves that are open (cleave moves), then cleave verify --repair"

// describeOwned says for people what a guard has noted.
func describeOwned(text string) string {
	o, err := keyspace.DecodeOwned(text)
	if err != nil {
		return "unreadable"
	}
	return strings.TrimSpace(string(o.Strategy) + " " + o.Describe())
}

// guardDiffers says how a guard differs from what the map wants, "" if it does not.
func guardDiffers(want engine.Guard, guarded bool, is *engine.GuardState) string {
	switch {
	case !guarded && is == nil:
		return ""
	case !guarded:
		return "should not be there: the table is whole"
	case is == nil:
		return "is missing: the shard would take any row"
	case is.Keyspace != want.Owned.Keyspace:
		return fmt.Sprintf("is of keyspace %q instead of %q", is.Keyspace, want.Owned.Keyspace)
	case is.Epoch != want.Owned.Epoch:
		return fmt.Sprintf("has epoch %d instead of %d", is.Epoch, want.Owned.Epoch)
	case is.Owns != "" && is.Owns != want.Owned.Encode():
		return fmt.Sprintf("lets through %s, where the map says %s", describeOwned(is.Owns), describeOwned(want.Owned.Encode()))
	case is.Loose:
		return "does not go by the mover of the shard's role: others may write past it, or the mover may not"
	case is.Also != want.Also:
		return fmt.Sprintf("takes epoch %d besides %d: a change of the set of shards has begun and not ended", is.Also, is.Epoch)
	}
	return ""
}

// Differences compares a database with what the map says of a shard, without changing anything: the schema changes that
// were run there, the tables and their guards. It is for a database that is to take the place of the shard's: conn leads
// there and has no open transaction. Guards of a keyspace that is moving there are not compared.
//
// Errors: those of the directory and of the database, when the comparison did not come to its end.
func Differences(ctx context.Context, o RecoverOptions, snap *shardmap.Snapshot, shard string, conn engine.Conn) ([]Finding, error) {
	o = o.withDefaults()
	o.DryRun, o.SetBack, o.candidate = true, false, true
	sh, _ := snap.Shard(shard)
	entries, gone, err := standing(ctx, o.Directory, snap)
	if err != nil {
		return nil, err
	}
	if _, _, err := run(ctx, conn, "BEGIN"); err != nil {
		return nil, onShard(err, shard)
	}
	c := comparison{o: o, snap: snap, shard: sh, def: shard == snap.State().DefaultShard, conn: conn, entries: entries, gone: gone, absent: map[string]int{}}
	c.all(ctx)
	if _, _, err := run(ctx, conn, "ROLLBACK"); err != nil {
		return nil, onShard(err, shard)
	}
	var out []Finding
	for _, f := range c.found {
		if f.Level != levelOK {
			out = append(out, f)
		}
	}
	return out, nil
}
