package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/backup/repository"
)

// TestRepositoryIsLocked: what is at work holds a lock. Where no lock can be written, who only reads goes on.
func TestRepositoryIsLocked(t *testing.T) {
	ctx, folder := context.Background(), t.TempDir()
	repo, err := repository.Open(ctx, "file://"+folder, repository.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	var stderr bytes.Buffer
	a := &app{process: &process{stderr: &stderr}}
	locks, did := filepath.Join(folder, "locks"), 0
	do := func(*repository.Lock) error { did++; return nil }
	err = a.locked(ctx, repo, repository.Shared, true, "test", func(*repository.Lock) error {
		held, err := filepath.Glob(filepath.Join(locks, "shared-*"))
		if len(held) == 0 {
			t.Errorf("no lock is held: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(locks); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(locks, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.locked(ctx, repo, repository.Shared, false, "test", do); err == nil || did != 0 {
		t.Error("something is written without a lock")
	}
	if err := a.locked(ctx, repo, repository.Shared, true, "test", do); err != nil || did != 1 || !strings.Contains(stderr.String(), "not locked") {
		t.Errorf("reading without a lock: %v; %s", err, stderr.String())
	}
}
