package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

const rebuildCommand = "cleave doctor --repair --rebuild-map"

// rebuild makes the owners of a map those that the shards' guards say, for a directory that was put back to an older state: the guards are
// the newest that there is. Shards, keyspaces and tables are those of the map. done: the map says what the guards do, so that these can be set.
//
// Nothing is guessed: a guard that cannot be read, two that let the same through, and what none lets through are findings, and nothing is done.
func (o *Ops) rebuild(ctx context.Context, req DoctorRequest) (found []Finding, done bool) {
	fail := func(err error, what string) ([]Finding, bool) {
		return append(found, problem(sqlstate.As(err).Shard, err, what)), false
	}
	snap, err := o.load(ctx)
	if err != nil {
		return fail(err, "the map is not rebuilt")
	}
	r := rebuilding{o: o, snap: snap, next: snap.State().Clone(), owned: map[string]map[string]*keyspace.Ownership{}}
	r.read(ctx)
	for _, s := range snap.Shards() {
		if r.next.SetDrain(s.Name, "") {
			r.changes = append(r.changes, fmt.Sprintf("shard %s: the drain %s is given up", s.Name, s.Drain))
		}
	}
	for i := range snap.State().Keyspaces {
		if len(r.found) == 0 {
			r.keyspace(&snap.State().Keyspaces[i])
		}
	}
	if len(r.found) > 0 {
		return r.found, false
	}
	for _, c := range r.changes {
		found = append(found, Finding{Level: LevelWarning, What: c, Next: rebuildCommand})
	}
	if !req.Repair || req.DryRun {
		if len(found) == 0 {
			found = append(found, Finding{Level: LevelOK, What: "the map says what the shards' guards do: nothing has to be rebuilt"})
		}
		return found, false
	}
	if err := r.store(ctx, req.by()); err != nil {
		return fail(err, "the map is not rebuilt")
	}
	for i := range found {
		found[i].Done, found[i].Next = "the map says so now", ""
	}
	return found, true
}

// rebuilding is a map that is made from guards.
type rebuilding struct {
	o       *Ops
	snap    *shardmap.Snapshot
	next    shardmap.State
	owned   map[string]map[string]*keyspace.Ownership // keyspace -> shard -> what its guards let through
	changes []string
	found   []Finding // why it cannot be done
}

func (r *rebuilding) refuse(shard, table, next, format string, args ...any) {
	r.found = append(r.found, Finding{Level: LevelError, Shard: shard, Table: table, What: "the map cannot be rebuilt: " + fmt.Sprintf(format, args...), Next: next})
}

// read reads the guards of all shards.
func (r *rebuilding) read(ctx context.Context) {
	for i := range r.snap.Shards() {
		s := &r.snap.Shards()[i]
		if s.Service != shardmap.InService {
			r.refuse(s.Name, "", "cleave shard set "+s.Name+" --state normal", "the guards of shard %s let nothing through while it is not in service", s.Name)
			continue
		}
		if err := r.readShard(ctx, s.Name); err != nil {
			r.found = append(r.found, problem(s.Name, err, "the map cannot be rebuilt: the guards of shard "+s.Name))
		}
	}
}

func (r *rebuilding) readShard(ctx context.Context, shard string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	conn, release, err := r.o.connect(ctx, shard)
	if err != nil {
		return err
	}
	defer func() { release(err != nil) }()
	texts := map[string]string{} // of each keyspace's first guard
	tables := r.snap.State().Tables
	for i := range tables {
		t := &tables[i]
		if t.Kind != shardmap.Sharded {
			continue
		}
		desc, err := conn.DescribeTable(ctx, t.Schema, t.Name)
		if err != nil {
			return err
		}
		name := t.QualifiedName()
		switch g := desc.Guard; {
		case g == nil:
			r.refuse(shard, name, "look at the table there", "table %s on shard %s has no guard", name, shard)
		case g.Keyspace != t.Keyspace:
			r.refuse(shard, name, "look at the table there", "the guard of %s on shard %s is of keyspace %q, not %q", name, shard, g.Keyspace, t.Keyspace)
		case g.Owns == "":
			r.refuse(shard, name, "restore a newer state of the directory", "the guard of %s on shard %s was set by a version of Cleave that did not note its ranges", name, shard)
		case texts[t.Keyspace] != "" && texts[t.Keyspace] != g.Owns:
			r.refuse(shard, name, "look at the guards there", "the guards of keyspace %s on shard %s differ from table to table: %s is one of them", t.Keyspace, shard, name)
		case texts[t.Keyspace] == "":
			own, err := keyspace.DecodeOwned(g.Owns)
			if err != nil {
				return err
			}
			texts[t.Keyspace] = g.Owns
			if r.owned[t.Keyspace] == nil {
				r.owned[t.Keyspace] = map[string]*keyspace.Ownership{}
			}
			r.owned[t.Keyspace][shard] = &own
		}
	}
	return nil
}

// keyspace makes the owners of a keyspace those that the guards say. One without tables has no guards, and stays.
func (r *rebuilding) keyspace(ks *shardmap.Keyspace) {
	owned := r.owned[ks.Name]
	if len(owned) == 0 {
		return
	}
	for _, t := range ks.Transits {
		r.changes = append(r.changes, fmt.Sprintf("keyspace %s: the move %s is given up", ks.Name, t.ID))
		r.next.DropTransit(ks.Name, t.ID)
	}
	if ks.Strategy == keyspace.List {
		r.values(ks, owned)
	} else {
		r.ranges(ks, owned)
	}
	r.pins(ks, owned)
	if len(r.found) > 0 {
		return
	}
	after, err := shardmap.NewSnapshot(r.next)
	if err != nil {
		r.found = append(r.found, problem("", err, "the map cannot be rebuilt"))
		return
	}
	for shard, own := range owned {
		is := after.Ownership(ks.Name, shard)
		if is.Encode() != own.Encode() {
			r.refuse(shard, "", "look at the guards there", "the guards of keyspace %s on shard %s let %s through, which fits no map: it would be %s", ks.Name, shard, own.Describe(), is.Describe())
		}
		before := r.snap.Ownership(ks.Name, shard)
		if before.Encode() != own.Encode() {
			r.changes = append(r.changes, fmt.Sprintf("keyspace %s: the guards of shard %s let %s through, the map says %s", ks.Name, shard, own.Describe(), before.Describe()))
		}
	}
	slices.Sort(r.changes)
}

// piece is an interval that a shard's guards let through.
type piece struct {
	keyspace.Interval
	shard string
}

// ranges gives each interval to the shard whose guards let it through; they have to fill the space without a gap.
func (r *rebuilding) ranges(ks *shardmap.Keyspace, owned map[string]*keyspace.Ownership) {
	var all []piece
	for shard, own := range owned {
		for _, iv := range own.Intervals {
			all = append(all, piece{iv, shard})
		}
	}
	hash := ks.Strategy == keyspace.Hash
	slices.SortFunc(all, func(a, b piece) int {
		if hash && a.Low != b.Low {
			if a.Low < b.Low {
				return -1
			}
			return 1
		}
		return strings.Compare(a.LowKey, b.LowKey)
	})
	text := func(p piece) string {
		o := keyspace.Ownership{Strategy: ks.Strategy, Intervals: []keyspace.Interval{p.Interval}}
		return o.Describe() + " (" + p.shard + ")"
	}
	const next = "if a move is at work, again when it has ended; else restore a newer state of the directory, or keep the map: cleave doctor --repair --set-back-guards"
	for i, p := range all {
		first := hash && p.Low == -1<<63 || !hash && p.LowKey == ""
		switch {
		case i == 0 && !first:
			r.refuse("", "", next, "no guard of keyspace %s lets what is before %s through", ks.Name, text(p))
		case i > 0 && (all[i-1].Last || hash && all[i-1].High > p.Low || !hash && all[i-1].HighKey > p.LowKey):
			r.refuse(p.shard, "", next, "two shards' guards of keyspace %s let the same through: %s and %s", ks.Name, text(all[i-1]), text(p))
		case i > 0 && (hash && all[i-1].High < p.Low || !hash && all[i-1].HighKey < p.LowKey):
			r.refuse("", "", next, "no guard of keyspace %s lets what is between %s and %s through", ks.Name, text(all[i-1]), text(p))
		}
	}
	if len(all) == 0 || !all[len(all)-1].Last {
		r.refuse("", "", next, "no guard of keyspace %s lets the end through", ks.Name)
	}
	if len(r.found) > 0 {
		return
	}
	for _, p := range all {
		part := shardmap.Part{Low: p.LowValues.Texts(), High: p.HighValues.Texts()}
		if hash {
			part = shardmap.Part{Low: []string{fmt.Sprint(p.Low)}, High: []string{fmt.Sprint(p.High)}}
		}
		if hash && p.Low == -1<<63 || !hash && len(part.Low) == 0 {
			part.Low = nil
		}
		if p.Last {
			part.High = nil
		}
		if err := r.next.SetOwner(ks.Name, part, p.shard); err != nil {
			r.found = append(r.found, problem(p.shard, err, "the map cannot be rebuilt"))
		}
	}
}

// values gives each listed value to the shard whose guards let it through.
func (r *rebuilding) values(ks *shardmap.Keyspace, owned map[string]*keyspace.Ownership) {
	by := map[string]string{}
	for shard, own := range owned {
		for _, k := range own.Listed {
			if other := by[k.String()]; other != "" {
				r.refuse(shard, "", "look at the guards there", "the guards of shards %s and %s let value %s of keyspace %s through", other, shard, k, ks.Name)
			}
			by[k.String()] = shard
			if !slices.ContainsFunc(ks.Values, func(v shardmap.ListValue) bool { return slices.Equal(v.Key, k.Texts()) }) {
				r.refuse(shard, "", "list it first: cleave keyspace add-value", "value %s of keyspace %s is not in the map", k, ks.Name)
				continue
			}
			for i := range r.next.Keyspaces {
				if of := &r.next.Keyspaces[i]; of.Name == ks.Name {
					values := slices.Clone(of.Values)
					at := slices.IndexFunc(values, func(v shardmap.ListValue) bool { return slices.Equal(v.Key, k.Texts()) })
					values[at].Shard, of.Values = shard, values
				}
			}
		}
	}
	if len(by) < len(ks.Values) {
		r.refuse("", "", "look at the guards", "no guard lets %d of the values of keyspace %s through", len(ks.Values)-len(by), ks.Name)
	}
}

// pins makes the pins those that the guards say.
func (r *rebuilding) pins(ks *shardmap.Keyspace, owned map[string]*keyspace.Ownership) {
	by := map[string]string{}
	for shard, own := range owned {
		for _, k := range own.Pinned {
			if other := by[k.String()]; other != "" {
				r.refuse(shard, "", "look at the guards there", "the guards of shards %s and %s let key %s of keyspace %s through", other, shard, k, ks.Name)
			}
			by[k.String()] = shard
			if err := r.next.PutPin(ks.Name, k.Texts(), shard); err != nil {
				r.found = append(r.found, problem(shard, err, "the map cannot be rebuilt"))
			}
		}
	}
	for _, p := range ks.Pins {
		if k, err := keyspace.ParseKey(ks.Types, p.Key); err == nil && by[k.String()] == "" {
			if _, err := r.next.DropPin(ks.Name, p.Key); err != nil {
				r.found = append(r.found, problem("", err, "the map cannot be rebuilt"))
			}
		}
	}
}

// store ends the moves that the map knows, and stores it.
func (r *rebuilding) store(ctx context.Context, by string) error {
	if len(r.changes) == 0 {
		return nil
	}
	dir := r.o.opts.Directory
	if err := r.o.abandon(ctx, by); err != nil {
		return err
	}
	cur := r.snap
	for _, ks := range r.snap.State().Keyspaces {
		for _, t := range ks.Transits {
			next := cur.State().Clone()
			next.DropTransit(ks.Name, t.ID)
			after, err := dir.Update(ctx, shardmap.Change{Expect: cur.Version(), By: by, Why: "the map is rebuilt from the shards' guards", Op: "rebuild", Transit: t.ID}, next)
			if err != nil {
				return r.stored(err)
			}
			cur = after
		}
	}
	_, err := dir.Update(ctx, shardmap.Change{Expect: cur.Version(), By: by, Why: "the map is rebuilt from the shards' guards", Op: "rebuild"}, r.next)
	return r.stored(err)
}

func (r *rebuilding) stored(err error) error {
	if errors.Is(err, shardmap.ErrConflict) {
		return sqlstate.Wrap(err, sqlstate.SerializationFailure, "the map was changed meanwhile").WithHint("if a move is at work, wait until it has ended: cleave moves; stop the routers' clients, then: %s", rebuildCommand)
	}
	return err
}

// abandon ends the records of all moves that are at work: they are of a map that was lost.
func (o *Ops) abandon(ctx context.Context, by string) error {
	dir, after := o.opts.Directory, ""
	for {
		page, err := dir.Records(ctx, workflow.RecordPrefix, after, recordPage)
		if err != nil {
			return err
		}
		for _, rec := range page {
			after = rec.Key
			if err := abandonOne(ctx, dir, rec, by); err != nil {
				return err
			}
		}
		if len(page) < recordPage {
			return nil
		}
	}
}

// abandonOne ends a workflow. A coordinator that is at work on it may write its record meanwhile.
func abandonOne(ctx context.Context, dir shardmap.Directory, rec shardmap.Record, by string) error {
	for {
		s, err := workflow.Decode(rec.Value)
		if err != nil || s.Step.Ended() {
			return nil // one that cannot be read is at work nowhere
		}
		s = workflow.Abandon(s, time.Now().UnixMilli(), "the map was rebuilt from the shards' guards by "+by)
		b, err := s.Encode()
		if err != nil {
			return err
		}
		if _, err = dir.PutRecord(ctx, rec.Key, b, rec.Revision); !errors.Is(err, shardmap.ErrConflict) {
			return err
		}
		if rec, err = dir.Record(ctx, rec.Key); errors.Is(err, shardmap.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// recordPage is how many records are read at a time.
const recordPage = 200
