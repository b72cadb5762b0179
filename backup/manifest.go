package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path"
	"slices"
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

// Listed is a backup of a repository: its manifest, or why that cannot be read.
type Listed struct {
	ID       string
	Manifest *Manifest // nil if Err is not
	Err      error
}

// listIDs returns the ids of all backups that have a manifest, oldest first.
func listIDs(ctx context.Context, repo *repository.Repository) (out []string, err error) {
	objects, err := repo.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		id, ok := strings.CutSuffix(strings.TrimPrefix(o.Name, prefix), "/"+manifestName)
		if ok && checkID(id) == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

// unreadable reports whether an error is of one manifest, and says nothing of the others.
func unreadable(err error) bool {
	code := sqlstate.CodeOf(err)
	return code == sqlstate.DataCorrupted || code == sqlstate.FeatureNotSupported
}

// List returns all whole backups of a repository, oldest first. A damaged manifest does not hide the others.
func List(ctx context.Context, repo *repository.Repository) ([]Listed, error) {
	all, err := listIDs(ctx, repo)
	if err != nil {
		return nil, err
	}
	var out []Listed
	for _, id := range all {
		m, err := Load(ctx, repo, id)
		switch {
		case sqlstate.CodeOf(err) == sqlstate.UndefinedObject: // deleted meanwhile
			continue
		case err != nil && !unreadable(err):
			return nil, err
		}
		out = append(out, Listed{id, m, err})
	}
	return out, nil
}

// newest returns the manifest of the newest backup. If it cannot be read, the error names it and the one before: a person chooses.
func newest(ctx context.Context, repo *repository.Repository) (*Manifest, error) {
	all, err := listIDs(ctx, repo)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "the repository has no backup").WithHint("make one: cleave backup create")
	}
	m, err := Load(ctx, repo, all[len(all)-1])
	if err == nil || !unreadable(err) {
		return m, err
	}
	hint := "there is no older one"
	if len(all) > 1 {
		hint = "the next older one is " + all[len(all)-2] + ": name it to use it"
	}
	return nil, sqlstate.Wrap(err, sqlstate.CodeOf(err), "the newest backup, %s, cannot be used", all[len(all)-1]).WithHint("%s", hint)
}

// readJSON reads a small object into v. Errors: those of Get; XX001 for what is no JSON of that kind.
func readJSON(ctx context.Context, repo *repository.Repository, name string, v any) error {
	r, err := repo.Get(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, manifestMax))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the object %s cannot be read", name)
	}
	return nil
}

// Load returns the manifest of a backup, "" for the newest one.
//
// Errors: 42704 when there is none, 22023 for what is no id, XX001 for a damaged one.
func Load(ctx context.Context, repo *repository.Repository, id string) (*Manifest, error) {
	if id == "" {
		return newest(ctx, repo)
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	m := &Manifest{}
	err := readJSON(ctx, repo, objectName(id, manifestName), m)
	if sqlstate.CodeOf(err) == sqlstate.UndefinedFile {
		return nil, sqlstate.Wrap(err, sqlstate.UndefinedObject, "the repository has no backup %s", id).WithHint("list them: cleave backup list")
	}
	if err != nil {
		return nil, err
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
