package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// RestoreOptions say what is restored, and where.
type RestoreOptions struct {
	Repository *repository.Repository
	Manifest   *Manifest
	// Folder becomes the data folder of the new cluster. It is made if it is missing.
	Folder  string
	Drivers []engine.Driver
	// OpenDirectory opens a directory that is a file, and makes it if it is missing.
	OpenDirectory func(path string) (shardmap.Directory, error)
	// Finish makes the folder one that can be started: the last step.
	Finish   func(folder string, shards []string) error
	Software string
	Progress Progress // nil: nobody is told

	// step is called between the steps; an error stands for a crash there. Tests only.
	step func(name string) error
}

// Restored says what a restore has made, or would make.
type Restored struct {
	Backup  string    `json:"backup"`
	At      time.Time `json:"at"`
	Folder  string    `json:"folder"`
	Cluster string    `json:"cluster,omitempty"` // the new one's id
	From    string    `json:"from"`              // the id of the cluster of which the backup is
	Bytes   int64     `json:"bytes"`
	Steps   []string  `json:"steps,omitempty"`
	// Tables were counted at the end; nil if an earlier run had done it.
	Tables []TableCount `json:"tables,omitempty"`
}

// state is the file that says how far a restore has come.
type state struct {
	Format  int    `json:"format"`
	Backup  string `json:"backup"`
	Cluster string `json:"cluster"` // the new one
	Phase   phase  `json:"phase"`
}

// phase is what is done of a restore.
type phase string

const (
	begun   phase = "begun"
	copied  phase = "copied"  // all objects are in the folder
	ended   phase = "settled" // nothing is prepared any more
	renamed phase = "renamed" // the shards are the new cluster's
	mapped  phase = "mapped"  // the directory is the new cluster's
	checked phase = "checked" // moves have ended, guards are those of the map
)

const (
	stateFile = "restore.json"
	lockFile  = "lock"
	dumpFile  = "directory.dump"
	dirFile   = "directory.db"
	partial   = ".part"
)

// restore is one run.
type restore struct {
	RestoreOptions
	state
	lock   *os.File
	tables []TableCount
}

// TableCount is what a restored cluster has of a sharded table, on all shards.
type TableCount struct {
	Table    string `json:"table"`
	Rows     int64  `json:"rows"`
	Checksum uint64 `json:"checksum"` // the sum of the shards' (see engine.Sum)
}

// Plan says what Restore would do, and changes nothing.
//
// Errors: 55006 when the folder is not empty; 0A000 for shards that cannot be restored yet.
func (o RestoreOptions) Plan() (*Restored, error) {
	r := &restore{RestoreOptions: o}
	if err := r.check(); err != nil {
		return nil, err
	}
	res := r.result()
	res.Steps = []string{fmt.Sprintf("read %d objects, %d bytes, into %s", 1+len(o.Manifest.Shards), res.Bytes, r.Folder)}
	if r.Backup != "" {
		res.Steps[0] = fmt.Sprintf("go on with a restore of this backup that came as far as %q", r.Phase)
	}
	res.Steps = append(res.Steps,
		"end what transactions over several shards have prepared, as it was decided at "+o.Manifest.Cut.At.Format(time.RFC3339Nano),
		"give the cluster and its shards a new id",
		fmt.Sprintf("make the directory: %d versions of the map, %d records", o.Manifest.Versions, o.Manifest.Records),
		"end the moves that were under way, set the guards from the map, and verify")
	return res, nil
}

func (r *restore) result() *Restored {
	size, _ := r.Manifest.Size()
	return &Restored{Backup: r.Manifest.ID, At: r.Manifest.Cut.At, Folder: r.Folder, Cluster: r.Cluster, From: r.Manifest.Cluster, Bytes: size, Tables: r.tables}
}

// Restore makes a new cluster of a backup, in a folder of its own. It can be interrupted at any moment and run again. The cluster of
// which the backup is may run meanwhile: nothing of it is opened.
//
// Errors: 55006 when the folder is not empty, or somebody else is at work in it; XX001 when an object is damaged; 53100.
func (o RestoreOptions) Restore(ctx context.Context) (*Restored, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.step == nil {
		o.step = func(string) error { return nil }
	}
	r := &restore{RestoreOptions: o}
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, err
	}
	defer r.lock.Close()
	for _, s := range []struct {
		to phase
		do func(context.Context) error
	}{
		{copied, r.fetch}, {ended, r.settle}, {renamed, r.rename}, {mapped, r.makeDirectory}, {checked, r.repair},
	} {
		if r.done(s.to) {
			continue
		}
		if err := s.do(ctx); err != nil {
			return nil, err
		}
		if err := r.step(string(s.to)); err != nil {
			return nil, err
		}
		r.Phase = s.to
		if err := r.save(); err != nil {
			return nil, err
		}
	}
	return r.result(), r.finish()
}

func (r *restore) done(p phase) bool {
	order := []phase{begun, copied, ended, renamed, mapped, checked}
	return slices.Index(order, r.Phase) >= slices.Index(order, p)
}

func (r *restore) path(name string) string { return filepath.Join(r.Folder, name) }

// file is where a shard's file is.
func (r *restore) file(shard string) string { return r.path(shard + ".db") }

// url names a shard's file for its driver.
func (r *restore) url(shard string) string { return engine.FileURL(r.file(shard)) }

// checkShard refuses what cannot be restored, and a folder in which the driver would take another file for the shard's.
func (r *restore) checkShard(s *ShardCopy) error {
	if (&shardmap.Shard{Engine: s.Engine}).Can().Servers {
		return sqlstate.Refusal("CLV-1505", "shard %s cannot be restored: restores of shards of engine %s are not built yet", s.Name, s.Engine).OnShard(s.Name)
	}
	if r.file(s.Name) == r.path(dirFile) {
		return sqlstate.Refusal("CLV-1506", "a shard named like the directory's file, %s, cannot be restored into a folder", dirFile)
	}
	sh, err := (&opened{drivers: r.Drivers}).open(r.Manifest.Cluster, &shardmap.Shard{Name: s.Name, Engine: s.Engine, URL: r.url(s.Name)})
	if err != nil {
		return err
	}
	f, ok := sh.(interface{ Path() string })
	if err := sh.Close(); err != nil {
		return err
	}
	if !ok || f.Path() != r.file(s.Name) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%s cannot be named as the file of a shard", r.file(s.Name)).WithHint("choose another folder")
	}
	return nil
}

// check reads how far an earlier run has come, and refuses a folder that has something else in it.
func (r *restore) check() error {
	abs, err := filepath.Abs(r.Folder)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InvalidParameterValue, "the folder %q cannot be named", r.Folder)
	}
	r.Folder = abs
	for _, shard := range r.Manifest.Shards {
		if err := r.checkShard(&shard); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(r.path(stateFile))
	if err == nil {
		if err := json.Unmarshal(b, &r.state); err != nil || r.Format != Format {
			return sqlstate.New(sqlstate.DataCorrupted, "%s cannot be read", r.path(stateFile)).WithHint("choose another folder")
		}
		if r.Backup != r.Manifest.ID {
			return sqlstate.New(sqlstate.ObjectInUse, "in %s a restore of backup %s was begun and is not finished", r.Folder, r.Backup).
				WithHint("finish it with --backup %s, or choose another folder", r.Backup)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fileError(err, r.path(stateFile))
	}
	entries, err := os.ReadDir(r.Folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError(err, r.Folder)
	}
	for _, e := range entries {
		if e.Name() != lockFile && e.Name() != stateFile+partial {
			return sqlstate.New(sqlstate.ObjectInUse, "the folder %s is not empty: it holds %s", r.Folder, e.Name()).
				WithHint("choose an empty folder, or one that does not exist yet, with --to")
		}
	}
	return nil
}

// begin locks the folder, against another restore and cleave up, and gives the new cluster its id.
func (r *restore) begin() error {
	if err := os.MkdirAll(r.Folder, 0o700); err != nil {
		return fileError(err, r.Folder)
	}
	f, err := os.OpenFile(r.path(lockFile), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fileError(err, r.path(lockFile))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return sqlstate.Wrap(err, sqlstate.ObjectInUse, "another process is at work in the folder %s", r.Folder)
	}
	r.lock = f
	if r.Backup == "" {
		r.state = state{Format, r.Manifest.ID, uuid.NewString(), begun}
		return r.save()
	}
	return nil
}

// save writes the state so that a crash leaves the old or the new one.
func (r *restore) save() error {
	b, err := json.Marshal(r.state)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the state of the restore cannot be written")
	}
	return r.write(stateFile, func(w io.Writer) error { _, err := w.Write(b); return err })
}

// write makes a file: whole, or not at all.
func (r *restore) write(name string, fill func(io.Writer) error) error {
	path := r.path(name)
	f, err := os.OpenFile(path+partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fileError(err, path)
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(path+partial, path)
	}
	if err == nil {
		err = syncFolder(r.Folder)
	}
	return fileError(err, path)
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// fileError says what cannot be done with a file. Errors that say it already stay.
func fileError(err error, path string) error {
	var known *sqlstate.Error
	switch {
	case err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return sqlstate.Wrap(err, sqlstate.DiskFull, "no space is left to write %s", path).WithHint("free space on that disk, then run the same command again")
	case errors.Is(err, fs.ErrPermission):
		return sqlstate.Wrap(err, sqlstate.InsufficientPrivilege, "%s cannot be written by this user", path)
	}
	return sqlstate.Wrap(err, sqlstate.IOError, "%s cannot be written", path)
}

// fetch copies the objects that are not in the folder yet. A file with its whole name is whole.
func (r *restore) fetch(ctx context.Context) error {
	total, _ := r.Manifest.Size()
	done := int64(0)
	get := func(name string, o repository.Object) error {
		if _, err := os.Stat(r.path(name)); err == nil {
			done += o.Size
			return nil
		}
		from, err := r.Repository.Get(ctx, o.Name)
		if err != nil {
			return err
		}
		defer from.Close()
		err = r.write(name, func(w io.Writer) error {
			_, err := io.Copy(w, &counted{from, func(n int) { done += int64(n); r.Progress(name, done, total) }})
			if err == nil && from.Object().Sum != o.Sum { // known at the end
				return sqlstate.New(sqlstate.DataCorrupted, "object %s is another one than the manifest of backup %s lists", o.Name, r.Manifest.ID)
			}
			return err
		})
		if err != nil {
			return err
		}
		return r.step("object")
	}
	if err := get(dumpFile, r.Manifest.Directory); err != nil {
		return err
	}
	for _, s := range r.Manifest.Shards {
		if err := get(s.Name+".db", s.Object); err != nil {
			return err
		}
	}
	return nil
}

// counted tells how much was read.
type counted struct {
	io.Reader
	tell func(n int)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.tell(n)
	return n, err
}

// finish makes the folder one that can be started, and removes what only the restore needs.
func (r *restore) finish() error {
	var names []string
	for _, s := range r.Manifest.Shards {
		names = append(names, s.Name)
	}
	if err := r.Finish(r.Folder, names); err != nil {
		return err
	}
	if err := r.step("finish"); err != nil {
		return err
	}
	for _, name := range []string{dumpFile, stateFile} {
		if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileError(err, r.path(name))
		}
	}
	return fileError(syncFolder(r.Folder), r.Folder)
}

// sweep removes a directory file of a run that was cut off.
func (r *restore) sweep(name string) error {
	for _, end := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(r.path(name) + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileError(err, r.path(name))
		}
	}
	return nil
}

// addressed gives a state the files of the folder as its shards, and the cluster's id.
func (r *restore) addressed(st shardmap.State, cluster string) shardmap.State {
	st = st.Clone()
	st.Cluster = cluster
	for i := range st.Shards {
		s := &st.Shards[i]
		query := ""
		if _, q, ok := strings.Cut(s.URL, "?"); ok {
			query = "?" + q
		}
		s.URL, s.Replicas, s.System = r.url(s.Name)+query, nil, ""
	}
	return st
}
