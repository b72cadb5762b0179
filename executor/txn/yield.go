package txn

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A read over several shards locks its tables on all of them at the same time, a schema change locks them on one after the
// other. So each may have a lock that the other one waits for. A read of which the client has no row yet gives way: it lets
// go of everything, and its session runs it again.

const (
	// yieldLook is how long a read waits before it looks whether others wait for it.
	yieldLook = 200 * time.Millisecond
	// yieldLookMax bounds the pauses between the looks of a read that waits for no lock.
	yieldLookMax = 5 * time.Second
)

// errYields stops a read that others wait for. Its session runs it again.
var errYields = func() *sqlstate.Error {
	e := sqlstate.New(sqlstate.DeadlockDetected, "the statement gave way to another one, which waited for it on one shard and had what it waited for on another").
		WithHint("nothing was committed: run the transaction again")
	e.Retry = sqlstate.RetryTransaction
	return e
}()

// watchRead looks until ctx ends or the read gives way. It reports whether the client has got rows meanwhile, so that the
// read cannot be run again without its knowledge.
func (w *LockWatch) watchRead(ctx context.Context) (passed bool) {
	for pause := min(w.wait, yieldLook); ctx.Err() == nil; sleep(ctx, pause) {
		backends := w.backends()
		waits, awaited := w.t.stuck(ctx, backends)
		if w.of.Passed() && (waits || awaited) {
			return true
		}
		switch {
		case waits && awaited && !w.of.Passed():
			w.interrupt(ctx, errYields)
			return false
		case waits:
			pause = min(w.wait, yieldLook)
		default:
			pause = min(2*pause, max(w.wait, yieldLookMax))
		}
	}
	return false
}

// stuck reports whether one of the processes waits for a lock, and whether somebody waits for one of them. What cannot be
// asked counts as neither.
func (t *Transactions) stuck(ctx context.Context, backends []backend) (waits, awaited bool) {
	shards := map[string][]string{}
	for _, b := range backends {
		if t.can(b.Shard).Waits {
			shards[b.Shard] = append(shards[b.Shard], strconv.FormatUint(uint64(b.PID), 10))
		}
	}
	if len(shards) < 2 {
		return false, false // a shard sees its own rings
	}
	var all []shardmap.Shard
	for _, s := range t.ex.Snapshot().Shards() {
		if shards[s.Name] != nil {
			all = append(all, s)
		}
	}
	var isWaiting, isAwaited atomic.Bool
	shardmap.Each(all, atOnce, func(_ int, s *shardmap.Shard) {
		res, err := t.locksOf(ctx, s.Name)
		if err != nil {
			return
		}
		for _, row := range res.Rows {
			if slices.Contains(shards[s.Name], row[0].String) {
				isWaiting.Store(true)
			}
			if slices.Contains(shards[s.Name], row[1].String) {
				isAwaited.Store(true)
			}
		}
	})
	return isWaiting.Load(), isAwaited.Load()
}

// lockLook is a look at who waits for whom on a shard, which all reads of this process share.
type lockLook struct {
	done chan struct{}
	at   time.Time // when it had ended
	res  *engine.Result
	err  error
}

// locksOf returns who waits for whom on a shard: a look of this process that is under way or has just ended, else a new one. So one
// connection outside of the pools does for all reads, however many wait.
func (t *Transactions) locksOf(ctx context.Context, shard string) (*engine.Result, error) {
	t.lookMu.Lock()
	l, begun := t.looks[shard], false
	if l != nil {
		select {
		case <-l.done:
			if time.Since(l.at) > yieldLook/2 {
				l = nil
			}
		default:
		}
	}
	if l == nil {
		l, begun = &lockLook{done: make(chan struct{})}, true
		if t.looks == nil {
			t.looks = map[string]*lockLook{}
		}
		t.looks[shard] = l
	}
	t.lookMu.Unlock()
	if begun {
		l.res, l.err = t.recovery().exec(ctx, shard, locksSQL)
		l.at = time.Now()
		close(l.done)
		return l.res, l.err
	}
	select {
	case <-l.done:
		return l.res, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AwaitsLocks tells the others, until ctx ends, that these processes on shards belong to one schema change, which waits for
// a lock. A transaction over several shards that waits for one of them, while they wait for it, gives way.
func (t *Transactions) AwaitsLocks(ctx context.Context, processes map[string]uint32) {
	var backends []backend
	for shard, pid := range processes {
		backends = append(backends, backend{shard, pid})
	}
	says := &teller{dir: t.ex.Directory(), key: waitsPrefix + t.WaitID()}
	defer t.untell(ctx, says)
	now := waiting{Owner: fmt.Sprintf("%x", t.owner), Backends: backends, Passive: true}
	for pause := fileLook; says.tell(ctx, now) != nil; pause = min(2*pause, fileLookMax) {
		if !sleep(ctx, pause) {
			return
		}
	}
	<-ctx.Done()
}
