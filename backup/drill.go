package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/sqlstate"
)

// Proof says that a backup was restored, and what the cluster had then.
type Proof struct {
	Format   int          `json:"format"`
	Backup   string       `json:"backup"`
	At       time.Time    `json:"at"`
	TookMS   int64        `json:"took_ms"`
	Software string       `json:"software"`
	Tables   []TableCount `json:"tables"`
}

const proofPrefix = "proof/"

// Drill restores a backup into a folder that it makes below scratch ("" is the system's) and removes afterwards, and stores the proof.
//
// Errors: those of Restore; XX001 if the tables are not those of an earlier proof.
func Drill(ctx context.Context, o RestoreOptions, scratch string) (p *Proof, err error) {
	folder, err := os.MkdirTemp(scratch, "cleave-drill-")
	if err != nil {
		return nil, fileError(err, scratch)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	o.Folder = folder
	o.Finish = func(string, []string) error { return nil } // nobody starts it
	from := time.Now()
	res, err := o.Restore(ctx)
	if err != nil {
		return nil, err
	}
	p = &Proof{Format, o.Manifest.ID, time.Now().UTC(), time.Since(from).Milliseconds(), o.Software, res.Tables}
	earlier, err := Proofs(ctx, o.Repository, p.Backup)
	if err != nil {
		return nil, err
	}
	for _, e := range earlier {
		if !slices.Equal(e.Tables, p.Tables) {
			return nil, sqlstate.New(sqlstate.DataCorrupted, "backup %s gave other rows than in the drill of %s", p.Backup, e.At.Format(time.RFC3339)).
				WithHint("compare them: cleave backup show %s", p.Backup)
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the proof cannot be written")
	}
	_, err = o.Repository.Put(ctx, proofPrefix+path.Join(p.Backup, newID(p.At)), bytes.NewReader(b))
	return p, err
}

// Proofs returns the proofs of a backup, oldest first.
func Proofs(ctx context.Context, repo *repository.Repository, id string) ([]*Proof, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	objects, err := repo.List(ctx, proofPrefix+id+"/")
	if err != nil {
		return nil, err
	}
	var out []*Proof
	for _, o := range objects {
		p, err := readProof(ctx, repo, o.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func readProof(ctx context.Context, repo *repository.Repository, name string) (*Proof, error) {
	p := &Proof{}
	if err := readJSON(ctx, repo, name, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Proven returns when each backup of a repository was proven last, without reading the proofs.
func Proven(ctx context.Context, repo *repository.Repository) (map[string]time.Time, error) {
	objects, err := repo.List(ctx, proofPrefix)
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, o := range objects {
		id, name, _ := strings.Cut(strings.TrimPrefix(o.Name, proofPrefix), "/")
		stamp, _, _ := strings.Cut(name, "-")
		if at, err := time.Parse(idTime, stamp); err == nil && at.After(out[id]) {
			out[id] = at
		}
	}
	return out, nil
}

// Delete removes a backup: its manifest first, so that what is left after a crash is not listed; then the objects and its proofs.
// Nobody may be reading it: hold the repository's exclusive lock.
func Delete(ctx context.Context, repo *repository.Repository, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	objects, err := repo.List(ctx, prefix+id+"/")
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return sqlstate.New(sqlstate.UndefinedFile, "the repository has no backup %s", id).WithHint("list them: cleave backup list")
	}
	proofs, err := repo.List(ctx, proofPrefix+id+"/")
	if err != nil {
		return err
	}
	if err := repo.Delete(ctx, objectName(id, manifestName)); err != nil {
		return err
	}
	for _, o := range append(objects, proofs...) {
		if err := repo.Delete(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}
