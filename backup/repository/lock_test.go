package repository_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

const lease = 2 * time.Second

func lock(tb testing.TB, r *repository.Repository, mode repository.Mode) *repository.Lock {
	tb.Helper()
	l, err := r.Lock(waitfor.Context(tb), mode, "a test: "+tb.Name())
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func unlock(tb testing.TB, l *repository.Lock) {
	tb.Helper()
	if err := l.Unlock(waitfor.Context(tb)); err != nil {
		tb.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	ctx := waitfor.Context(t)
	dir := t.TempDir()
	a := open(t, dir, repository.Options{Create: true, Lease: lease})
	b := open(t, dir, repository.Options{Lease: lease})
	one, two := lock(t, a, repository.Shared), lock(t, b, repository.Shared)
	_, err := b.Lock(ctx, repository.Exclusive, "x")
	wantCode(t, err, sqlstate.LockNotAvailable, "is in use", "a test: TestLock")
	unlock(t, one)
	_, err = b.Lock(ctx, repository.Exclusive, "x")
	wantCode(t, err, sqlstate.LockNotAvailable)
	unlock(t, two)
	alone := lock(t, a, repository.Exclusive)
	for _, mode := range []repository.Mode{repository.Shared, repository.Exclusive} {
		_, err = b.Lock(ctx, mode, "x")
		wantCode(t, err, sqlstate.LockNotAvailable)
	}
	if err := alone.Check(ctx); err != nil {
		t.Error(err)
	}
	unlock(t, alone)
	unlock(t, lock(t, b, repository.Exclusive))
	if left := names(t, a, ""); left != nil {
		t.Errorf("locks are listed as objects: %v", left)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "locks")); err != nil || len(left) > 0 {
		t.Errorf("locks are left: %v, %v", left, err)
	}
}

// TestLockOfTheDead: what a dead holder has left ends with the lease, whatever time of day its files have. A holder that
// only looked dead says that its lock is lost.
func TestLockOfTheDead(t *testing.T) {
	t.Parallel()
	ctx := waitfor.Context(t)
	dir := t.TempDir()
	r := open(t, dir, repository.Options{Create: true, Lease: lease})
	left := filepath.Join(dir, "locks", "exclusive-DEAD-7")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, []byte("the dead"), 0o600)); err != nil {
		t.Fatal(err)
	}
	future := time.Now().AddDate(50, 0, 0)
	if err := os.Chtimes(left, future, future); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	l := lock(t, r, repository.Exclusive)
	if took := time.Since(begun); took < lease {
		t.Errorf("the lock of a holder that may live was taken after %v", took)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
	// Somebody takes it for dead.
	files, err := filepath.Glob(filepath.Join(dir, "locks", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		_ = os.Remove(f) // it may have been renewed
	}
	waitfor.True(t, "the holder sees that its lock is lost", func() bool {
		select {
		case <-l.Lost():
			return true
		default:
			files, _ := filepath.Glob(filepath.Join(dir, "locks", "*"))
			for _, f := range files {
				_ = os.Remove(f)
			}
			return false
		}
	})
	wantCode(t, l.Check(ctx), sqlstate.LockNotAvailable, "was lost")
	unlock(t, l)
}

// TestLockAlone: of many that want the repository alone, one at a time has it.
func TestLockAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir, repository.Options{Create: true})
	var inside atomic.Int32
	var work sync.WaitGroup
	for range 4 {
		r := open(t, dir, repository.Options{Lease: lease})
		work.Go(func() {
			for had := 0; had < 3; {
				l, err := r.Lock(context.Background(), repository.Exclusive, "one of many")
				if code(err) == sqlstate.LockNotAvailable {
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					select {
					case <-l.Lost():
					default:
						t.Errorf("%d have it", n)
					}
				}
				had++
				inside.Add(-1)
				if err := l.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
}
