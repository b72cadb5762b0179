package repository

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// Mode says with whom a lock is shared.
type Mode string

// Who only adds objects, or reads them, shares the repository. Who deletes or sweeps has it alone.
const (
	Shared    Mode = "shared"
	Exclusive Mode = "exclusive"
)

const locks = "locks/"

// lockKey is the key of a lock: its holder writes the next number while it lives. Others see the numbers rise or rest,
// by their own clocks: no time of day is compared.
type lockKey struct {
	mode   Mode
	id     string
	number uint64
}

func (k lockKey) String() string { return fmt.Sprintf("%s%s-%s-%d", locks, k.mode, k.id, k.number) }

func parseLockKey(key string) (k lockKey, ok bool) {
	f := strings.Split(strings.TrimPrefix(key, locks), "-")
	if len(f) != 3 {
		return k, false
	}
	n, err := strconv.ParseUint(f[2], 10, 64)
	k = lockKey{Mode(f[0]), f[1], n}
	return k, err == nil && (k.mode == Shared || k.mode == Exclusive) && k.String() == key
}

func (k lockKey) conflicts(o lockKey) bool {
	return k.id != o.id && (k.mode == Exclusive || o.mode == Exclusive)
}

// Lock is the right to work in a repository, for as long as its holder lives.
type Lock struct {
	r      *Repository
	holder string
	mode   Mode
	stop   context.CancelFunc
	work   sync.WaitGroup
	lost   chan struct{}

	mu     sync.Mutex
	key    lockKey   // the last that is known to be there
	next   uint64    // the number to write
	sure   time.Time // when the writing of key was begun
	isLost bool
}

// Lock locks the repository. holder says for others what goes on, on which machine. If another holder is alive the error
// is 55P03; to see whether it is takes up to a lease (Options.Lease).
func (r *Repository) Lock(ctx context.Context, mode Mode, holder string) (*Lock, error) {
	l := &Lock{r: r, holder: holder, mode: mode, lost: make(chan struct{}), key: lockKey{mode: mode, id: rand.Text()}}
	others := watcher{lease: r.lease, seen: map[lockKey]time.Time{}}
	for {
		rival, err := l.try(ctx)
		if err != nil {
			return nil, r.fault(err, "lock the repository")
		}
		if rival == nil {
			break
		}
		if others.lives(*rival) {
			return nil, l.busy(ctx, *rival)
		}
		if err := l.await(ctx, &others); err != nil {
			return nil, r.fault(err, "lock the repository")
		}
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.work.Go(func() { l.renew(ctx) })
	return l, nil
}

// try writes the lock and looks whether it is alone: of two that do so at once, one sees the other at least.
func (l *Lock) try(ctx context.Context) (rival *lockKey, err error) {
	begun := time.Now()
	key := l.key
	key.number, l.next = l.next, l.next+1
	if err := l.r.write(ctx, key.String(), []byte(l.holder)); err != nil {
		return nil, err
	}
	all, err := l.r.locks(ctx)
	if err == nil {
		rival = conflicting(key, all)
	}
	if err == nil && rival == nil && time.Since(begun) < l.r.lease/2 {
		l.key, l.sure = key, begun
		return nil, nil
	}
	if undo := l.r.store.Remove(context.WithoutCancel(ctx), key.String()); undo != nil || err != nil {
		return nil, errors.Join(err, undo)
	}
	if rival == nil {
		rival = &key // too slow to be sure
	}
	return rival, nil
}

func conflicting(key lockKey, all []lockKey) *lockKey {
	for _, o := range all {
		if key.conflicts(o) {
			return &o
		}
	}
	return nil
}

// await waits a moment, and removes the locks of the dead that are in the way.
func (l *Lock) await(ctx context.Context, others *watcher) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(l.r.lease/20 + mathrand.N(l.r.lease/10)):
	}
	all, err := l.r.locks(ctx)
	if err != nil {
		return err
	}
	for _, dead := range others.look(all) {
		if !l.key.conflicts(dead) {
			continue
		}
		if err := l.r.store.Remove(ctx, dead.String()); err != nil {
			return err
		}
	}
	return nil
}

// watcher sees locks rest, by its own clock.
type watcher struct {
	lease time.Duration
	seen  map[lockKey]time.Time // when a key was first seen
}

// look notes which locks there are, and returns those that have rested for a lease.
func (w *watcher) look(all []lockKey) (dead []lockKey) {
	now := time.Now()
	for _, k := range all {
		first, ok := w.seen[k]
		if !ok {
			w.seen[k] = now
		} else if now.Sub(first) >= w.lease {
			dead = append(dead, k)
		}
	}
	return dead
}

// lives reports whether the holder has written a number after one that was seen.
func (w *watcher) lives(k lockKey) bool {
	for o := range w.seen {
		if o.id == k.id && o.number < k.number {
			return true
		}
	}
	return false
}

func (r *Repository) locks(ctx context.Context) (list []lockKey, err error) {
	found, err := r.store.List(ctx, locks)
	for _, e := range found {
		if k, ok := parseLockKey(e.Key); ok {
			list = append(list, k)
		}
	}
	return list, err
}

func (l *Lock) busy(ctx context.Context, rival lockKey) error {
	e := sqlstate.New(sqlstate.LockNotAvailable, "the repository at %s is in use", l.r.place)
	if text, err := l.r.read(ctx, rival.String(), 1000); err == nil {
		e.Detail = fmt.Sprintf("The lock (%s) is held by: %s", rival.mode, text)
	}
	return e.WithHint("Wait until that has ended. The lock of a process that died ends within %v.", l.r.lease)
}

// renew goes on writing the next number.
func (l *Lock) renew(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(l.r.lease / 5):
			if err := l.Check(ctx); code(err) == sqlstate.LockNotAvailable {
				return
			}
		}
	}
}

func code(err error) sqlstate.Code {
	var e *sqlstate.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Lost is closed when the lock is no longer held.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Check makes sure that the lock is held at this moment, by writing its next number. The error is 55P03 if it is lost.
// Who was stopped for long calls it before the step that must not go wrong.
func (l *Lock) Check(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isLost {
		return l.lostError()
	}
	// A store that hangs must not hide that the lease runs out.
	ctx, cancel := context.WithTimeout(ctx, max(l.r.lease/4, l.r.lease*3/4-time.Since(l.sure)))
	defer cancel()
	here, err := l.step(ctx)
	switch {
	case err == nil && here:
		return nil
	case err == nil || time.Since(l.sure) >= l.r.lease*3/4:
		l.isLost = true
		close(l.lost)
		return l.lostError()
	}
	return l.r.fault(err, "renew the lock of the repository")
}

// step writes the next number. The lock was held all the time if the one before is there still.
func (l *Lock) step(ctx context.Context) (here bool, err error) {
	begun := time.Now()
	key := l.key
	key.number, l.next = l.next, l.next+1
	if err := l.r.write(ctx, key.String(), []byte(l.holder)); err != nil {
		return false, err
	}
	all, err := l.r.locks(ctx)
	if err != nil {
		return false, err
	}
	for _, k := range all {
		here = here || k == l.key
	}
	old := l.key
	if !here {
		old = key
	} else {
		l.key, l.sure = key, begun
	}
	_ = l.r.store.Remove(ctx, old.String()) // who watches sees it rest, and removes it
	return here, nil
}

func (l *Lock) lostError() error {
	return sqlstate.New(sqlstate.LockNotAvailable, "the lock of the repository at %s was lost", l.r.place).
		WithDetail("It was not renewed for a lease of %v, or somebody has removed it.", l.r.lease).
		WithHint("Run the command again.")
}

// Unlock gives the lock back.
func (l *Lock) Unlock(ctx context.Context) error {
	l.stop()
	l.work.Wait()
	all, err := l.r.locks(ctx)
	for _, k := range all {
		if k.id == l.key.id {
			err = errors.Join(err, l.r.store.Remove(ctx, k.String()))
		}
	}
	if err != nil {
		return l.r.fault(err, "unlock the repository")
	}
	return nil
}
