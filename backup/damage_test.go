package backup

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestDamagedManifest: a damaged manifest hides no other backup, and the newest one is not replaced in silence.
func TestDamagedManifest(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx, repo := context.Background(), newRepository(t)
	m := b.backup(repo)
	damage := func(id string) {
		t.Helper()
		if _, err := repo.Put(ctx, objectName(id, manifestName), strings.NewReader("{")); err != nil {
			t.Fatal(err)
		}
	}
	damage("20200101T000000Z-00000000")
	if is, err := Load(ctx, repo, ""); err != nil || is.ID != m.ID {
		t.Errorf("with an old one damaged: %v", err)
	}
	damage("29990101T000000Z-00000000")
	_, err := Load(ctx, repo, "")
	var said *sqlstate.Error
	if !errors.As(err, &said) || said.Code != sqlstate.DataCorrupted || !strings.Contains(said.Message, "29990101T000000Z-00000000") || !strings.Contains(said.Hint, m.ID) {
		t.Errorf("with the newest one damaged: %v", err)
	}
	all, err := List(ctx, repo)
	if err != nil {
		t.Fatal(err)
	}
	var bad []bool
	for _, l := range all {
		bad = append(bad, l.Err != nil && l.Manifest == nil)
	}
	if !slices.Equal(bad, []bool{true, false, true}) {
		t.Errorf("listed: %+v", all)
	}
}

// TestFolderWithEscapes: the files of a restored cluster are where their folder is, whatever its name.
func TestFolderWithEscapes(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	repo, parent := newRepository(t), t.TempDir()
	folder := filepath.Join(parent, "50%41?b#c d+e")
	if _, err := restoring(repo, b.backup(repo), folder).Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, folder, "SELECT count(*)::text FROM account"); got != "24" {
		t.Errorf("%s accounts", got)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
		t.Errorf("there is %v: %v", entries, err)
	}
}

// TestAnotherObject: an object that is whole, and is not the one of the backup, ends the restore before it has its name.
func TestAnotherObject(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx, repo := context.Background(), newRepository(t)
	m := b.backup(repo)
	if err := repo.Delete(ctx, m.Shards[0].Object.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Put(ctx, m.Shards[0].Object.Name, bytes.NewReader([]byte("another"))); err != nil {
		t.Fatal(err)
	}
	o := restoring(repo, m, filepath.Join(t.TempDir(), "new"))
	if _, err := o.Restore(ctx); sqlstate.CodeOf(err) != sqlstate.DataCorrupted || !strings.Contains(err.Error(), "another one than the manifest") {
		t.Errorf("Restore: %v", err)
	}
	if _, err := os.Stat(filepath.Join(o.Folder, m.Shards[0].Name+".db")); err == nil {
		t.Error("the file has its name")
	}
}

// TestLockIsChecked: a backup whose lock is lost is none.
func TestLockIsChecked(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx, repo, lost := context.Background(), newRepository(t), errors.New("lost")
	_, err := Create(ctx, CreateOptions{Directory: b.dir, Drivers: drivers, Repository: repo, Check: func(context.Context) error { return lost }})
	if !errors.Is(err, lost) {
		t.Error(err)
	}
	if all, err := List(ctx, repo); err != nil || len(all) > 0 {
		t.Errorf("listed: %v, %v", all, err)
	}
}
