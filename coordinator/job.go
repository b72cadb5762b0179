package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/workflow"
)

// job carries one workflow out.
type job struct {
	t   *term
	log *slog.Logger
	id  string

	mu     sync.Mutex
	rev    uint64        // of the record as we know it
	paused chan struct{} // closed when it is resumed; nil: not paused
	wake   chan struct{} // a newer record was seen

	// Of the effects that are under way; one goroutine.
	set      *moveSet
	stream   *stream
	heldAt   time.Time
	members  uint64 // version that the members have to acknowledge
	fencedAt engine.Position
	// guardsAt is how often the source's guards had been set when it was held; 0: not known.
	guardsAt uint64
	// shut: it is certain that nobody has opened the target's guards since they were last
	// seen closed, because this job has brought the move as far as that.
	shut bool
	// untouched: the last opening that was taken back has not touched the target.
	untouched bool
	prog      *progress
	// how is the newest of the move's options that was seen: its bounds may be changed while it works.
	how atomic.Pointer[workflow.Options]
}

// bounds notes options, unless newer ones may have been seen already.
func (j *job) bounds(o *workflow.Options) { j.how.CompareAndSwap(nil, o) }

func newJob(t *term, s workflow.State, rev uint64) *job {
	j := &job{t: t, id: s.Spec.ID, rev: rev, wake: make(chan struct{}, 1), log: t.c.log.With("workflow", s.Spec.ID)}
	j.prog = newProgress(j)
	return j
}

// tell is called with what the directory has of the workflow now.
func (j *job) tell(s workflow.State, rev uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pause(s.Paused)
	if rev == j.rev {
		return
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// pause opens or closes the gate; mu is held.
func (j *job) pause(paused bool) {
	switch {
	case paused && j.paused == nil:
		j.paused = make(chan struct{})
	case !paused && j.paused != nil:
		close(j.paused)
		j.paused = nil
	}
}

func (j *job) isPaused() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.paused != nil
}

// gate waits while the workflow is paused.
func (j *job) gate(ctx context.Context) error {
	for {
		j.mu.Lock()
		open := j.paused
		j.mu.Unlock()
		if open == nil {
			return ctx.Err()
		}
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run goes on until the workflow has ended, or ctx ends.
func (j *job) run(ctx context.Context) {
	defer j.endStream()
	s, err := j.load(ctx)
	for ctx.Err() == nil {
		if err != nil {
			if errors.Is(err, shardmap.ErrNotFound) || errors.Is(err, shardmap.ErrDeposed) {
				return
			}
			j.log.Warn("the workflow cannot be read or stored", telemetry.KeyError, err)
			pause(ctx, retryPause)
			s, err = j.load(ctx)
			continue
		}
		if s.Step.Ended() {
			j.log.Info("workflow ended", "kind", s.Spec.Kind, "as", s.Step, "error", s.Error)
			return
		}
		list := workflow.Effects(s)
		if list == nil { // paused
			select {
			case <-ctx.Done():
				return
			case <-j.wake:
			}
			s, err = j.load(ctx)
			continue
		}
		event, ok := j.perform(ctx, s, list)
		if ctx.Err() != nil {
			return
		}
		if !ok {
			s, err = j.load(ctx)
			continue
		}
		was := s.Step
		s, err = j.store(ctx, s, event)
		j.shut = err == nil && s.Step == workflow.Opening && (was == workflow.Closing || j.shut)
	}
}

func (j *job) load(ctx context.Context) (workflow.State, error) {
	r, err := j.t.c.opts.Directory.Record(ctx, workflow.RecordPrefix+j.id)
	if err != nil {
		return workflow.State{}, err
	}
	s, err := workflow.Decode(r.Value)
	if err != nil {
		return s, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rev = r.Revision
	j.pause(s.Paused)
	j.how.Store(&s.Spec.Options)
	return s, nil
}

// store applies an event to the record, on top of what others asked for meanwhile.
func (j *job) store(ctx context.Context, s workflow.State, e workflow.Event) (workflow.State, error) {
	for {
		next, _ := workflow.Step(s, e)
		if next.Seq == s.Seq {
			return s, nil // it came too late
		}
		b, err := next.Encode()
		if err != nil {
			return s, err
		}
		atPoint(ctx, &s, -1)
		if err := j.crash("store", true); err != nil {
			return s, err
		}
		j.mu.Lock()
		rev := j.rev
		j.mu.Unlock()
		rev, err = j.t.records.PutRecord(ctx, workflow.RecordPrefix+j.id, b, rev)
		switch {
		case err == nil:
			j.mu.Lock()
			j.rev = rev
			j.mu.Unlock()
			if next.Step != s.Step {
				j.log.Info("workflow step", "step", next.Step, "was", s.Step, "why", e.Error, "attempt", next.Attempt)
			} else if next.BackLost != s.BackLost {
				j.log.Warn("a move can no longer be reversed", "why", next.BackLost)
			} else if e.Kind == workflow.EventFailed && s.Tries == 0 {
				j.log.Warn("workflow step is tried again", "step", s.Step, "op", e.Op, telemetry.KeyError, e.Error)
			}
			if now := j.t.c.opts.Now(); heavy(&s, now) && !heavy(&next, now) {
				j.t.again() // another one gets its place
			}
			return next, nil
		case errors.Is(err, shardmap.ErrConflict):
			if s, err = j.load(ctx); err != nil {
				return s, err
			}
		default:
			// Whether it was stored is found out by reading.
			return s, err
		}
	}
}

func (j *job) crash(what workflow.Op, store bool) error {
	if j.t.c.opts.step == nil {
		return nil
	}
	return j.t.c.opts.step(j.id, what, store)
}

// afterTable is the number, for atPoint, of the moment when a copy has a table more.
const afterTable = -2

// perform carries the effects out. ok is false if the record was changed by somebody
// else in a way that makes others necessary, or ctx ended.
func (j *job) perform(ctx context.Context, s workflow.State, list []workflow.Effect) (e workflow.Event, ok bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { j.watch(ctx, s.Seq, stop) })
	defer watch.Wait()
	defer stop()
	j.prog.begin(s.Step)
	if waits(&s) {
		watch.Go(func() { j.tellWaits(ctx, &s) })
	}
	j.set = nil
	var unlock func()
	defer func() {
		if unlock != nil {
			unlock()
		}
	}()
	e = workflow.Event{Kind: workflow.EventDone, Seq: s.Seq}
	for n, eff := range list {
		atPoint(ctx, &s, n)
		if err := j.crash(eff.Op, false); err != nil {
			return e, false
		}
		if s.Step == workflow.Opening && unlock == nil {
			var err error
			if unlock, err = j.t.guards.lock(ctx, s.Spec.From, s.Spec.To); err != nil {
				return e, false // it is over
			}
		}
		j.prog.doing(eff.Op)
		began := time.Now()
		err := j.do(ctx, &s, eff, &e.Result)
		if ctx.Err() != nil {
			if eff.Op == workflow.Copy {
				j.prog.now() // for the coordinator that copies again
			}
			return e, false
		}
		j.log.Debug("workflow effect", "step", s.Step, "op", eff.Op, "took", time.Since(began), telemetry.KeyError, err)
		if err != nil {
			e.Kind, e.Op, e.Class, e.Error = workflow.EventFailed, eff.Op, classOf(err), describe(err)
			j.endStream()
			break
		}
	}
	e.At = j.t.c.opts.Now().UnixMilli()
	return e, true
}

// watch ends the effects when the record says that others are to be carried out.
func (j *job) watch(ctx context.Context, seq uint64, stop func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		}
		r, err := j.t.c.opts.Directory.Record(ctx, workflow.RecordPrefix+j.id)
		if err != nil {
			continue
		}
		s, err := workflow.Decode(r.Value)
		if err != nil {
			continue
		}
		j.mu.Lock()
		j.pause(s.Paused)
		j.mu.Unlock()
		j.how.Store(&s.Spec.Options)
		if s.Seq != seq {
			stop()
			return
		}
	}
}

// carrier carries one effect out: that of a workflow's state, with what comes of it.
type carrier func(*job, context.Context, *workflow.State, workflow.Effect, *workflow.Result) error

// carriers has who carries out what. Each can be repeated from its beginning, after a crash or a failure.
var carriers = map[workflow.Op]carrier{
	workflow.Sleep:          withEffect((*job).sleep),
	workflow.Check:          (*job).check,
	workflow.CompareSchema:  (*job).compareSchema,
	workflow.PutTransit:     withState((*job).putTransit),
	workflow.AskMembers:     withEffect((*job).askMembers),
	workflow.AwaitMembers:   withEffect((*job).awaitMembers),
	workflow.AwaitWindow:    withState((*job).awaitWindow),
	workflow.Release:        withEffect((*job).release),
	workflow.Purge:          (*job).purge,
	workflow.Copy:           (*job).copy,
	workflow.Follow:         withEffect((*job).follow),
	workflow.FollowFor:      withEffect((*job).followFor),
	workflow.CaptureBack:    withEffect((*job).captureBack),
	workflow.Verify:         (*job).verify,
	workflow.Hold:           withEffect((*job).hold),
	workflow.Fence:          withEffect((*job).fence),
	workflow.DrainSource:    withEffect((*job).drainSource),
	workflow.Unhold:         withState((*job).unhold),
	workflow.SetGuards:      withEffect((*job).setGuards),
	workflow.ShutTarget:     withEffect((*job).shutTarget),
	workflow.MarkBack:       withEffect((*job).markBack),
	workflow.OpenTarget:     withEffect((*job).openTarget),
	workflow.Swap:           (*job).swap,
	workflow.SettleGuards:   withState((*job).settleGuards),
	workflow.KeepBack:       withEffect((*job).keepBack),
	workflow.DropTransit:    withState((*job).dropTransit),
	workflow.Plan:           parentsResult((*parent).plan),
	workflow.MakePlan:       parentsResult((*parent).makePlan),
	workflow.TakeSteps:      parentsResult((*parent).takeSteps),
	workflow.Spawn:          parentsEffect((*parent).spawn),
	workflow.AwaitChildren:  parentsResult((*parent).awaitChildren),
	workflow.CancelChildren: parentsState((*parent).cancelChildren),
	workflow.EndDrain:       parentsState((*parent).endDrain),
	workflow.EditMap:        parentsResult((*parent).editMap),
}

func withState(f func(*job, context.Context, *workflow.State) error) carrier {
	return func(j *job, ctx context.Context, s *workflow.State, _ workflow.Effect, _ *workflow.Result) error {
		return f(j, ctx, s)
	}
}

func withEffect(f func(*job, context.Context, *workflow.State, workflow.Effect) error) carrier {
	return func(j *job, ctx context.Context, s *workflow.State, e workflow.Effect, _ *workflow.Result) error {
		return f(j, ctx, s, e)
	}
}

func withResult(f func(*job, context.Context, *workflow.State, *workflow.Result) error) carrier {
	return func(j *job, ctx context.Context, s *workflow.State, _ workflow.Effect, r *workflow.Result) error {
		return f(j, ctx, s, r)
	}
}

func (j *job) notes() *notes { return &notes{t: j.t, id: j.id, log: j.log} }

func (j *job) parent() *parent { return &parent{t: j.t, id: j.id} }

func parentsState(f func(*parent, context.Context, *workflow.State) error) carrier {
	return withState(func(j *job, ctx context.Context, s *workflow.State) error { return f(j.parent(), ctx, s) })
}

func parentsEffect(f func(*parent, context.Context, *workflow.State, workflow.Effect) error) carrier {
	return withEffect(func(j *job, ctx context.Context, s *workflow.State, e workflow.Effect) error {
		return f(j.parent(), ctx, s, e)
	})
}

func parentsResult(f func(*parent, context.Context, *workflow.State, *workflow.Result) error) carrier {
	return withResult(func(j *job, ctx context.Context, s *workflow.State, r *workflow.Result) error {
		return f(j.parent(), ctx, s, r)
	})
}

// do carries one effect out.
func (j *job) do(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	carry, ok := carriers[e.Op]
	if !ok {
		return refuse("this program does not know how to %q", e.Op)
	}
	return carry(j, ctx, s, e, r)
}

// sleep is workflow.Sleep.
func (j *job) sleep(ctx context.Context, _ *workflow.State, e workflow.Effect) error {
	d := time.Duration(e.ForMS) * time.Millisecond
	if e.UntilMS > 0 {
		d = time.UnixMilli(e.UntilMS).Sub(j.t.c.opts.Now())
	}
	pause(ctx, d)
	return ctx.Err()
}

// failure is an error with the class that a workflow is told.
type failure struct {
	class workflow.Class
	err   error
}

func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.err }

func classed(c workflow.Class, err error) error {
	if err == nil {
		return nil
	}
	return &failure{class: c, err: err}
}

func refuse(format string, args ...any) error {
	return classed(workflow.Refused, sqlstate.New(sqlstate.ObjectNotInState, format, args...))
}

// classOf says what an error means for the workflow.
func classOf(err error) workflow.Class {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.class
	}
	if engine.Lost(err) != nil || errors.Is(err, shardmap.ErrConflict) || errors.Is(err, shardmap.ErrDeposed) {
		return workflow.Again
	}
	own, ok := errors.AsType[*sqlstate.Error](err)
	if !ok {
		return workflow.Again // of the network, or of the machine
	}
	switch code := string(own.Code); {
	case own.Code == sqlstate.DataCorrupted:
		return workflow.Differs
	case len(code) == 5 && (code[:2] == "22" || code[:2] == "42" && code != "42P01" || code[:2] == "0A" || code[:2] == "23"):
		return workflow.Refused
	}
	return workflow.Again
}

// describe is an error in one line, with its hint.
func describe(err error) string {
	own := sqlstate.As(err)
	text := own.Message
	if f, ok := errors.AsType[*failure](err); ok && own.Message == "" {
		text = f.Error()
	}
	if own.Shard != "" {
		text = fmt.Sprintf("shard %s: %s", own.Shard, text)
	}
	if own.Detail != "" {
		text += " (" + own.Detail + ")"
	}
	if own.Hint != "" {
		text += "; " + own.Hint
	}
	return text
}
