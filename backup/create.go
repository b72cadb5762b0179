package backup

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Progress is told how far long work has come: what is at work, and how many bytes are done of how many.
type Progress func(what string, done, total int64)

// CreateOptions say of what a backup is taken.
type CreateOptions struct {
	Directory  shardmap.Directory
	Drivers    []engine.Driver
	Repository *repository.Repository
	Software   string   // the version of Cleave
	Progress   Progress // nil: nobody is told
	// Check makes sure that the repository's lock is held still, before the backup counts. nil: nobody deletes from the repository.
	Check func(context.Context) error
}

// Create takes a backup of the whole cluster, and returns its manifest. After an error the repository has no such backup.
//
// Errors: those of NewCutter and Take; 0A000 for shards of an engine that cannot be copied yet.
func Create(ctx context.Context, o CreateOptions) (m *Manifest, err error) {
	c, err := NewCutter(ctx, o.Directory, o.Drivers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, p := range c.places {
		if _, ok := p.marker.(engine.Copier); !ok {
			return nil, sqlstate.Refusal("CLV-1504", "shard %s cannot be copied: backups of shards of engine %s are not built yet", p.shard.Name, p.shard.Engine).
				WithHint("Back up its server with pg_basebackup or pgBackRest: see docs/operations.md.").OnShard(p.shard.Name)
		}
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	m = &Manifest{Format: Format, ID: newID(time.Now()), Cluster: c.snap.State().Cluster, Software: o.Software, Began: time.Now().UTC()}
	cut, err := c.Take(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	m.Cut = *cut
	if err := o.putDirectory(ctx, c, m); err != nil {
		return nil, err
	}
	for _, p := range c.places {
		object, err := o.putShard(ctx, p, m.ID)
		if err != nil {
			return nil, err
		}
		m.Shards = append(m.Shards, ShardCopy{p.shard.Name, p.shard.Engine, object})
	}
	if o.Check != nil {
		if err := o.Check(ctx); err != nil {
			return nil, err
		}
	}
	m.Ended = time.Now().UTC()
	return m, m.store(ctx, o.Repository)
}

// idTime is the first part of an id.
const idTime = "20060102T150405Z"

// newID names a backup: in the order of time, and never twice.
func newID(at time.Time) string {
	return at.UTC().Format(idTime) + "-" + uuid.NewString()[:8]
}

var idForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}$`)

// checkID refuses what newID does not make: the name of another object is no backup's.
func checkID(id string) error {
	if !idForm.MatchString(id) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%q is not the id of a backup", id).
			WithHint("an id looks like 20261128T031500Z-1b9d6bcd; list them: cleave backup list")
	}
	return nil
}

// put writes an object of what write writes.
func (o *CreateOptions) put(ctx context.Context, name string, write func(io.Writer) error) (repository.Object, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(w)
		_ = w.CloseWithError(err) // it returns nil always
		done <- err
	}()
	object, err := o.Repository.Put(ctx, name, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // write ends if Put has failed
	if wrote := <-done; wrote != nil && !errors.Is(wrote, io.ErrClosedPipe) {
		return object, wrote // the cause says more than what Put makes of it
	}
	return object, err
}

func (o *CreateOptions) putShard(ctx context.Context, p *place, id string) (repository.Object, error) {
	return o.put(ctx, objectName(id, "shard", p.shard.Name), func(w io.Writer) error {
		return p.marker.(engine.Copier).Copy(ctx, w, func(done, total int64) { o.Progress("shard "+p.shard.Name, done, total) })
	})
}

// putDirectory writes the versions up to the cut's, and the records as the cut has them.
func (o *CreateOptions) putDirectory(ctx context.Context, c *Cutter, m *Manifest) (err error) {
	m.Directory, err = o.put(ctx, objectName(m.ID, "directory"), func(w io.Writer) error {
		out := json.NewEncoder(w)
		for after := uint64(0); after < m.Cut.Version; {
			list, err := o.Directory.History(ctx, after, recordPage)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return sqlstate.New(sqlstate.DataCorrupted, "the history of the directory ends at version %d, its map is version %d", after, m.Cut.Version)
			}
			for _, e := range list {
				if after = e.Version; after > m.Cut.Version {
					break
				}
				snap, err := o.Directory.At(ctx, e.Version)
				if err != nil {
					return err
				}
				b, err := shardmap.EncodeState(snap.State())
				if err != nil {
					return err
				}
				if err := out.Encode(line{Entry: &e, State: b}); err != nil {
					return err
				}
				m.Versions++
			}
		}
		for _, r := range c.held {
			m.Records++
			if err := out.Encode(line{Key: r.Key, Value: r.Value}); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// passing reports whether a record is of processes that a restored cluster does not have, or of what they did.
func passing(key string) bool {
	for _, p := range []string{"ask/", "waits/", "leader/", "progress/", "verify/", "heat/", "timeline/", "moment/", "coordinator/"} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
