package coordinator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// stream applies the changes of one shard to another, in a goroutine of its own,
// until it is ended. It goes on from effect to effect, so that nothing has to be
// opened anew while statements are held.
type stream struct {
	id             string
	source, target string
	from           engine.Mover
	applier        engine.Applier

	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	at      engine.Position // of the newest commit that was handed over
	flushed engine.Position // up to here it is committed on the target
	goals   []goal
	err     error
	ended   bool
}

// goal is a position that somebody waits for to be committed on the target.
type goal struct {
	at      engine.Position
	reached chan struct{}
}

// forgetEvery is how often the source is told what it may drop.
const forgetEvery = 3 * time.Second

// follows returns the stream that an effect names, running.
func (j *job) follows(ctx context.Context, s *workflow.State, e workflow.Effect) (*stream, error) {
	if st := j.stream; st != nil && st.id == e.Stream && st.source == e.Source && st.target == e.Target && st.failed() == nil {
		return st, nil
	}
	j.endStream()
	p, err := j.copySession(ctx, s, e)
	if err != nil {
		return nil, err
	}
	applier, after, err := p.apply(ctx, e.Stream)
	if err != nil {
		return nil, err
	}
	if after == "" {
		_ = applier.Close() // nothing was given to it
		return nil, classed(workflow.Gone, sqlstate.New(sqlstate.ObjectNotInState, "shard %s does not know any more where the changes go on", e.Target))
	}
	// It outlives the effect, not the job: endStream is called when that ends.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	st := &stream{id: e.Stream, source: e.Source, target: e.Target, from: p.from, applier: applier, cancel: cancel, done: make(chan struct{}), at: after, flushed: after}
	j.stream = st
	go func() {
		defer close(st.done)
		err := p.from.Changes(life, e.Stream, p.set, after, "", &sink{st: st, j: j, forgot: time.Now()})
		if life.Err() != nil {
			err = nil
		} else if err == nil {
			err = errors.New("coordinator: the stream of changes ended")
		}
		st.end(err)
	}()
	return st, nil
}

// endStream ends the stream of changes, if there is one. What was not committed is
// applied again by the next one.
func (j *job) endStream() {
	st := j.stream
	if st == nil {
		return
	}
	j.stream = nil
	st.cancel()
	<-st.done
	_ = st.applier.Close() // its transaction is rolled back either way
}

func (st *stream) end(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ended = true
	if err != nil {
		st.err = gone(err)
	}
	for _, g := range st.goals {
		close(g.reached)
	}
	st.goals = nil
}

// failed returns why the stream has ended, nil while it goes on.
func (st *stream) failed() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended && st.err == nil {
		return context.Canceled
	}
	return st.err
}

// reach waits until everything before a position is committed on the target.
func (st *stream) reach(ctx context.Context, at engine.Position) error {
	st.mu.Lock()
	if st.ended || st.from.Reached(st.flushed, at) {
		st.mu.Unlock()
		return st.failed()
	}
	g := goal{at: at, reached: make(chan struct{})}
	st.goals = append(st.goals, g)
	st.mu.Unlock()
	select {
	case <-g.reached:
		return st.failed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sink is a stream's engine.ChangeSink. Its methods are called by one goroutine.
type sink struct {
	st      *stream
	j       *job
	pending bool // there were changes since the last Commit
	forgot  time.Time
}

func (k *sink) Change(ctx context.Context, c *engine.Change) error {
	if !k.pending {
		if err := k.j.gate(ctx); err != nil {
			return err
		}
	}
	k.pending = true
	k.j.prog.change()
	return k.st.applier.Change(ctx, c)
}

func (k *sink) Commit(ctx context.Context, at engine.Position) error {
	if err := k.st.applier.Commit(ctx, at); err != nil {
		return err
	}
	st := k.st
	st.mu.Lock()
	st.at = at
	wanted := false
	for _, g := range st.goals {
		wanted = wanted || st.from.Reached(at, g.at)
	}
	st.mu.Unlock()
	due := time.Since(k.forgot) >= forgetEvery
	idle := !k.pending
	k.pending = false
	if !wanted && !due && !idle {
		return nil
	}
	// One without changes before it has committed everything, though its position is not stored each time. What
	// the source forgets has to be: who goes on from what is stored would miss it.
	flushed := at
	if !idle || due {
		var err error
		if flushed, err = st.applier.Flush(ctx); err != nil {
			return err
		}
	}
	st.mu.Lock()
	st.flushed = flushed
	left := st.goals[:0]
	for _, g := range st.goals {
		if st.from.Reached(flushed, g.at) {
			close(g.reached)
		} else {
			left = append(left, g)
		}
	}
	st.goals = left
	st.mu.Unlock()
	if due {
		k.forgot = time.Now()
		k.j.prog.lag(ctx, st, flushed)
		return st.from.Forget(ctx, st.id, flushed)
	}
	return nil
}

// Level with the source is a target that reaches the source's position of a moment
// within levelMax.
const levelMax = 500 * time.Millisecond

// follow is workflow.Follow.
func (j *job) follow(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	st, err := j.follows(ctx, s, e)
	if err != nil {
		return err
	}
	for {
		at, err := st.from.Here(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := st.reach(ctx, at); err != nil {
			return err
		}
		if time.Since(began) <= levelMax {
			return nil
		}
	}
}

// followFor is workflow.FollowFor.
func (j *job) followFor(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	st, err := j.follows(ctx, s, e)
	if err != nil {
		return err
	}
	return st.last(ctx, time.Duration(e.ForMS)*time.Millisecond)
}

// last lets the stream go on for a while.
func (st *stream) last(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	case <-st.done:
		return st.failed()
	}
}

// How often is looked whether reverse replication still fits the tables: at the map, and at the tables themselves, which
// somebody may have changed on a shard directly. When the map tells of a change it is not on the shards yet, perhaps.
const (
	backLook    = 2 * time.Second
	backSettles = 5 * time.Second
	backTables  = time.Minute
)

// keepBack is workflow.KeepBack. A change of a table ends the stream with the next change of a row; here it is seen
// before, so that nobody relies on a reversal that is not possible.
func (j *job) keepBack(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	st, err := j.follows(ctx, s, e)
	if err != nil {
		return err
	}
	end, due, version := time.UnixMilli(e.UntilMS), time.Now().Add(backTables), uint64(0)
	for {
		left := end.Sub(j.t.c.opts.Now())
		if err := st.last(ctx, min(left, backLook)); err != nil || left <= backLook {
			return err
		}
		snap, err := j.t.c.opts.Directory.Load(ctx)
		if err != nil {
			continue // the changes go on without it
		}
		now := snap.SchemaVersion()
		if now == version && time.Now().Before(due) {
			continue
		}
		due = time.Now().Add(backTables)
		if now != version {
			due = time.Now().Add(backSettles)
		}
		version, j.set = now, nil
		if _, err := j.same(ctx, s, e.Source); classOf(err) == workflow.Changed {
			return err
		}
	}
}

// drainSource is workflow.DrainSource.
func (j *job) drainSource(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	st, err := j.follows(ctx, s, e)
	if err != nil {
		return err
	}
	bound, cancel := j.bound(ctx, e)
	defer cancel()
	return late(ctx, st.reach(bound, j.fencedAt))
}

// bound is the time that is left of a cutover.
func (j *job) bound(ctx context.Context, e workflow.Effect) (context.Context, context.CancelFunc) {
	if e.ForMS <= 0 || j.heldAt.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, j.heldAt.Add(time.Duration(e.ForMS)*time.Millisecond))
}

// late classes an error that came because the bound's time was over.
func late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || sqlstate.CodeOf(err) == sqlstate.LockNotAvailable {
		e := sqlstate.Wrap(err, sqlstate.LockNotAvailable, "statements or transactions in the part did not end in time")
		if own, ok := errors.AsType[*sqlstate.Error](err); ok && own.Detail != "" {
			e.Shard, e.Detail, e.Hint = own.Shard, own.Detail, own.Hint // who is in the way
		}
		return classed(workflow.Late, e)
	}
	return err
}

// captureBack is workflow.CaptureBack.
func (j *job) captureBack(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	set, err := j.same(ctx, s, e.Target)
	if err != nil {
		return err
	}
	m, err := j.t.mover(ctx, e.Source)
	if err != nil {
		return err
	}
	_, err = m.CaptureChanges(ctx, e.Stream, set.set)
	return err
}

// markBack is workflow.MarkBack: the target has everything, and takes no writes yet.
func (j *job) markBack(ctx context.Context, _ *workflow.State, e workflow.Effect) error {
	bound, cancel := j.bound(ctx, e)
	defer cancel()
	from, to, err := j.movers(bound, e)
	if err != nil {
		return late(ctx, err)
	}
	at, err := from.Here(bound)
	if err != nil {
		return late(ctx, err)
	}
	return late(ctx, to.SetApplied(bound, e.Stream, at))
}

// release is workflow.Release.
func (j *job) release(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	j.endStream()
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	shards := []string{s.Spec.From, s.Spec.To}
	if _, t := snap.Transit(j.id); t == nil {
		// Nothing was captured yet, or everything is gone, but for what the other one keeps for a shard that was removed.
		there := slices.DeleteFunc(slices.Clone(shards), func(name string) bool { _, ok := snap.Shard(name); return !ok })
		if len(there) == len(shards) {
			return nil
		}
		shards = there
	}
	streams := []string{e.Stream}
	if e.Stream == "" {
		streams = []string{workflow.Forth(j.id), workflow.Back(j.id)}
	}
	// What the one keeps for the other is dropped although that is lost: its log would grow for ever.
	var failed error
	for _, shard := range shards {
		m, err := j.t.mover(ctx, shard)
		if err == nil {
			for _, id := range streams {
				err = cmp.Or(err, m.Release(ctx, id))
			}
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}
