package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// purgeRows is how many rows are deleted at a time.
const purgeRows = 5000

// lines reads the object of the directory.
func (r *restore) lines(do func(l *line) error) error {
	f, err := os.Open(r.path(dumpFile))
	if err != nil {
		return fileError(err, r.path(dumpFile))
	}
	defer f.Close()
	for in := json.NewDecoder(bufio.NewReaderSize(f, 1<<20)); ; {
		l := &line{}
		if err := in.Decode(l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the directory in backup %s cannot be read", r.Backup)
		}
		if err := do(l); err != nil {
			return err
		}
	}
}

// fill makes a directory: every version with the cluster's id given, all records. addressed gives each version the folder's files
// as well.
func (r *restore) fill(ctx context.Context, dir shardmap.Directory, cluster string, addressed bool) error {
	to, ok := dir.(shardmap.Mover)
	if !ok {
		return sqlstate.New(sqlstate.InternalError, "the directory cannot be restored into")
	}
	mark := &shardmap.Move{From: "backup " + r.Backup, By: actor, At: time.Now().UTC().Truncate(time.Microsecond)}
	if err := to.SetMoved(ctx, nil, mark, 0); err != nil {
		return err
	}
	version := uint64(0)
	err := r.lines(func(l *line) error {
		if l.Entry == nil {
			value := l.Value
			if value == nil {
				value = []byte{}
			}
			return to.RestoreRecord(ctx, l.Key, r.ended(l.Key, value))
		}
		st, err := shardmap.DecodeState(l.State)
		if err != nil {
			return err
		}
		if st.Cluster = cluster; addressed {
			st = r.addressed(st, cluster)
		}
		snap, err := shardmap.NewSnapshot(st)
		if err != nil {
			return err
		}
		version = l.Entry.Version
		return to.Restore(ctx, *l.Entry, snap)
	})
	if err != nil {
		return err
	}
	return to.SetMoved(ctx, mark, nil, version)
}

// ended is a record as the new cluster gets it: workflows that were at work have ended.
func (r *restore) ended(key string, value []byte) []byte {
	if !strings.HasPrefix(key, workflow.RecordPrefix) {
		return value
	}
	s, err := workflow.Decode(value)
	if err != nil || s.Step.Ended() {
		return value // one that cannot be read is at work nowhere
	}
	s = workflow.Abandon(s, time.Now().UnixMilli(), "the cluster was restored from backup "+r.Backup+" while it was at work: begin it anew")
	if b, err := s.Encode(); err == nil {
		value = b
	}
	return value
}

// settle ends what is prepared, in a directory of its own with the old cluster's id: global ids have it.
func (r *restore) settle(ctx context.Context) (err error) {
	const name = ".settling.db"
	if err := r.sweep(name); err != nil {
		return err
	}
	dir, err := r.OpenDirectory(r.path(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close(), r.sweep(name)) }()
	if err := r.fill(ctx, dir, r.Manifest.Cluster, true); err != nil {
		return err
	}
	return settle(ctx, dir, r.Drivers)
}

// rename gives the shards the new cluster's id.
func (r *restore) rename(ctx context.Context) error {
	for _, s := range r.Manifest.Shards {
		o := &opened{drivers: r.Drivers}
		sh, err := o.open(r.Cluster, &shardmap.Shard{Name: s.Name, Engine: s.Engine, URL: r.url(s.Name)})
		if err != nil {
			return err
		}
		n, ok := sh.(engine.Renamable)
		if !ok {
			return sqlstate.Refusal("CLV-1505", "shard %s cannot be restored: restores of shards of engine %s are not built yet", s.Name, s.Engine)
		}
		if err := errors.Join(n.Rename(ctx, r.Cluster), sh.Close()); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectory makes the new cluster's directory beside, and gives it its name when it is whole.
func (r *restore) makeDirectory(ctx context.Context) error {
	const name = ".directory.db"
	if err := r.sweep(name); err != nil {
		return err
	}
	dir, err := r.OpenDirectory(r.path(name))
	if err != nil {
		return err
	}
	err = r.fill(ctx, dir, r.Cluster, false)
	if err == nil {
		err = r.readdress(ctx, dir)
	}
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	if err := os.Rename(r.path(name), r.path(dirFile)); err != nil {
		return fileError(err, r.path(dirFile))
	}
	return fileError(syncFolder(r.Folder), r.Folder)
}

// readdress stores the version with the new addresses. Transits stay until the strangers are gone.
func (r *restore) readdress(ctx context.Context, dir shardmap.Directory) error {
	snap, err := dir.Load(ctx)
	if err != nil {
		return err
	}
	next := r.addressed(*snap.State(), r.Cluster)
	for i := range next.Shards {
		next.Shards[i].Drain = ""
	}
	_, err = dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: actor, Op: "restore",
		Why: "restored from backup " + r.Backup + " of cluster " + r.Manifest.Cluster + ", as of " + r.Manifest.Cut.At.Format(time.RFC3339Nano)}, next)
	return err
}

// repair ends what was under way on the shards: moves by what the map says, guards, statements outside of transactions. At its end
// nothing may be wrong.
func (r *restore) repair(ctx context.Context) (err error) {
	dir, err := r.OpenDirectory(r.path(dirFile))
	if err != nil {
		return err
	}
	ops := admin.New(admin.Options{Directory: dir, Drivers: r.Drivers, Software: r.Software, Log: quiet})
	defer func() { err = errors.Join(err, ops.Close(), dir.Close()) }()
	if err := r.endMoves(ctx, dir); err != nil {
		return err
	}
	// Guards may be ahead of the map by an operation that had not stored its change yet: the map is what counts.
	meta := admin.Meta{By: actor, Why: "restored from backup " + r.Backup}
	if _, err := ops.Doctor(ctx, admin.DoctorRequest{Meta: meta, Repair: true, SetBack: true}); err != nil {
		return err
	}
	found, err := ops.Doctor(ctx, admin.DoctorRequest{Meta: meta})
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Level == admin.LevelError {
			return sqlstate.New(sqlstate.DataCorrupted, "the restored cluster is not in order: %s", f.What).OnShard(f.Shard)
		}
	}
	return r.verify(ctx, ops)
}

// verify counts what is where. An orphan that the old cluster had is there still: a person has to look at it, as there.
func (r *restore) verify(ctx context.Context, ops *admin.Ops) error {
	r.tables = nil
	results, err := ops.Verify(ctx, admin.VerifyRequest{})
	if err != nil {
		return err
	}
	for _, v := range results {
		switch {
		case v.Error != "":
			return sqlstate.New(sqlstate.DataCorrupted, "table %s on shard %s cannot be verified: %s", v.Table, v.Shard, v.Error)
		case v.Strangers > 0:
			return sqlstate.New(sqlstate.DataCorrupted, "table %s on shard %s has %d rows of a move that has ended", v.Table, v.Shard, v.Strangers)
		}
		if err := r.count(&v); err != nil {
			return err
		}
	}
	return nil
}

// count adds what a shard has of a table to the table's rows and checksum. Results come table by table.
func (r *restore) count(v *admin.VerifyResult) error {
	sum, err := strconv.ParseUint(v.Checksum, 16, 64)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the checksum %q of table %s is no number", v.Checksum, v.Table)
	}
	if n := len(r.tables); n == 0 || r.tables[n-1].Table != v.Table {
		r.tables = append(r.tables, TableCount{Table: v.Table})
	}
	t := &r.tables[len(r.tables)-1]
	t.Rows, t.Checksum = t.Rows+v.Rows, t.Checksum+sum
	return nil
}

// endMoves ends the moves of which the map has transits: the owner keeps its rows, the other shard's copy goes, then the transit.
func (r *restore) endMoves(ctx context.Context, dir shardmap.Directory) error {
	snap, err := dir.Load(ctx)
	if err != nil {
		return err
	}
	open := &opened{snap: snap, drivers: r.Drivers}
	for _, s := range snap.Shards() {
		sh, err := open.shard(s.Name)
		if err != nil {
			return err
		}
		m, ok := sh.(engine.Movable)
		if ok {
			err = forget(ctx, m.Mover(0))
		}
		for _, ks := range snap.State().Keyspaces {
			if keys, has := snap.Strangers(ks.Name, s.Name); err == nil && has {
				tables, _ := coordinator.Tables(snap, ks.Name)
				err = purge(ctx, m.Mover(0), engine.Set{Tables: tables, Keys: keys})
			}
		}
		if err := errors.Join(err, sh.Close()); err != nil {
			return err
		}
	}
	for _, ks := range snap.State().Keyspaces {
		for _, t := range ks.Transits {
			next := snap.State().Clone()
			next.DropTransit(ks.Name, t.ID)
			snap, err = dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: actor, Op: "restore", Transit: t.ID,
				Why: "move " + t.ID + " was under way in backup " + r.Backup}, next)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// forget makes a shard forget the leaders that it has seen and all that moves have made on it.
func forget(ctx context.Context, m engine.Mover) error {
	if u, ok := m.(engine.Unseater); ok {
		if err := u.Unseat(ctx); err != nil {
			return err
		}
	}
	ids, err := m.Captures(ctx)
	for _, id := range ids {
		if err == nil {
			err = m.Release(ctx, id)
		}
	}
	return err
}

func purge(ctx context.Context, m engine.Mover, set engine.Set) (err error) {
	if set.Tables, err = m.Describe(ctx, set.Tables); err != nil {
		return err
	}
	for n := purgeRows; n == purgeRows && err == nil; {
		n, err = m.Purge(ctx, set, purgeRows)
	}
	return err
}
