package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path"
	"strings"
	"time"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Format is the version of manifests and of what they list.
const Format = 1

// Manifest says what is in a backup. It is the last object of one that is written.
type Manifest struct {
	Format   int       `json:"format"`
	ID       string    `json:"id"`
	Cluster  string    `json:"cluster"`
	Software string    `json:"software"` // the version of Cleave
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Cut      Cut       `json:"cut"`
	// Directory is the object with the map, its history and the records.
	Directory repository.Object `json:"directory"`
	Versions  int               `json:"versions"`
	Records   int               `json:"records"`
	Shards    []ShardCopy       `json:"shards"`
}

// ShardCopy is a shard in a backup.
type ShardCopy struct {
	Name   string            `json:"name"`
	Engine string            `json:"engine"`
	Object repository.Object `json:"object"`
}

// Size returns the bytes of a backup: of the content, and in the repository.
func (m *Manifest) Size() (content, stored int64) {
	content, stored = m.Directory.Size, m.Directory.Stored
	for _, s := range m.Shards {
		content, stored = content+s.Object.Size, stored+s.Object.Stored
	}
	return content, stored
}

const (
	prefix       = "backup/"
	manifestName = "manifest"
	// manifestMax bounds a manifest that is read.
	manifestMax = 64 << 20
)

func objectName(id string, parts ...string) string {
	return prefix + path.Join(append([]string{id}, parts...)...)
}

// List returns the manifests of all whole backups of a repository, oldest first. One that cannot be read ends it.
func List(ctx context.Context, repo *repository.Repository) ([]*Manifest, error) {
	objects, err := repo.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var out []*Manifest
	for _, o := range objects {
		id, ok := strings.CutSuffix(strings.TrimPrefix(o.Name, prefix), "/"+manifestName)
		if !ok || strings.Contains(id, "/") {
			continue
		}
		m, err := Load(ctx, repo, id)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Load returns the manifest of a backup, "" for the newest one.
//
// Errors: 42704 when there is none.
func Load(ctx context.Context, repo *repository.Repository, id string) (*Manifest, error) {
	if id == "" {
		all, err := List(ctx, repo)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "the repository has no backup").WithHint("make one: cleave backup create")
		}
		return all[len(all)-1], nil
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	r, err := repo.Get(ctx, objectName(id, manifestName))
	if sqlstate.CodeOf(err) == sqlstate.UndefinedFile {
		return nil, sqlstate.Wrap(err, sqlstate.UndefinedObject, "the repository has no backup %s", id).WithHint("list them: cleave backup list")
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, manifestMax))
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the manifest of backup %s cannot be read", id)
	}
	if m.Format != Format {
		return nil, sqlstate.Refusal("CLV-1503", "backup %s has format %d; this program knows format %d", id, m.Format, Format).
			WithHint("Use the version of Cleave that made it: %s.", m.Software)
	}
	return m, nil
}

// store writes the manifest.
func (m *Manifest) store(ctx context.Context, repo *repository.Repository) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the manifest cannot be written")
	}
	_, err = repo.Put(ctx, objectName(m.ID, manifestName), bytes.NewReader(b))
	return err
}

// Verify reads all objects of a backup to their ends, and reports the first that is not whole, or not the one that was written.
func Verify(ctx context.Context, repo *repository.Repository, m *Manifest) error {
	want := []repository.Object{m.Directory}
	for _, s := range m.Shards {
		want = append(want, s.Object)
	}
	for _, o := range want {
		is, err := repo.Verify(ctx, o.Name)
		if err != nil {
			return err
		}
		if is.Sum != o.Sum {
			return sqlstate.New(sqlstate.DataCorrupted, "object %s of backup %s is another one than the manifest lists", o.Name, m.ID)
		}
	}
	return nil
}

// line is one line of the object of the directory: a version of the map, or a record.
type line struct {
	Entry *shardmap.Entry `json:"entry,omitempty"`
	State json.RawMessage `json:"state,omitempty"`
	Key   string          `json:"key,omitempty"`
	Value []byte          `json:"value,omitempty"`
}
