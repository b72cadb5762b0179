package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/workflow"
)

// Election is the name of the coordinators' election.
const Election = "coordinator"

// KickRecord is written by a process that stores or changes a workflow, so that the
// leader looks at once.
const KickRecord = "coordinator/kick"

// Options are what a coordinator needs.
type Options struct {
	Directory shardmap.Directory
	// Shard returns the handle of a shard's primary. It stays its owner's to close.
	Shard func(name string) (engine.Shard, error)
	// Candidate says who this is, for people: host and process.
	Candidate string
	// Member is the id with which the process has joined, by which others see who leads; "": they do not.
	Member string
	Log    *slog.Logger // nil: nothing is logged
	// MovesMax bounds the moves at work at a time, PerShardMax those of one shard; ones
	// that only can be reversed do not count. 0 is 4 and 2.
	MovesMax, PerShardMax int
	// Streams bounds the tables and parts of tables that a move copies at a time; 0 is 4.
	Streams int
	// PartBytes is about how large a part of a table is that is copied, and noted, at a time; 0 is 64 MiB.
	PartBytes int64

	// Now is the wall clock: of time windows, of what is noted, and of times until which something is kept. nil: time.Now.
	Now func() time.Time

	// step is called before each effect and before each store; an error stands for a
	// crash there. Tests only.
	step func(id string, what workflow.Op, store bool) error
}

// The looks of the leader.
const (
	kickLook = 100 * time.Millisecond // at the kick record
	fullLook = 15 * time.Second       // at all workflows
	// retryPause is between two attempts to lead or to read the directory.
	retryPause = time.Second
	// endedKept is how many workflows that have ended are kept.
	endedKept = 500
)

// Coordinator runs workflows while it leads.
type Coordinator struct {
	opts Options
	log  *slog.Logger

	mu      sync.Mutex
	leading bool
	// failsSince is that of the workflow which has not got further for longest, at the last look; 0: there is none.
	failsSince atomic.Int64
}

// New returns a coordinator; Run starts it.
func New(o Options) *Coordinator {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MovesMax <= 0 {
		o.MovesMax = 4
	}
	if o.PerShardMax <= 0 {
		o.PerShardMax = 2
	}
	if o.Streams <= 0 {
		o.Streams = 4
	}
	if o.PartBytes <= 0 {
		o.PartBytes = partBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Coordinator{opts: o, log: o.Log.With("room", "coordinator")}
}

// Leads reports whether this process is the leader, as far as it knows.
func (c *Coordinator) Leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading
}

// Stuck returns for how long the workflow has not got further that has not for longest: what it does fails, and is tried
// again. 0 if there is none, and where this process does not lead.
func (c *Coordinator) Stuck() time.Duration {
	since := c.failsSince.Load()
	if since == 0 || !c.Leads() {
		return 0
	}
	return max(c.opts.Now().Sub(time.UnixMilli(since)), 0)
}

// Run campaigns and leads until ctx ends.
func (c *Coordinator) Run(ctx context.Context) {
	for ctx.Err() == nil {
		lead, err := c.opts.Directory.Campaign(ctx, Election, c.opts.Candidate)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, shardmap.ErrClosed) {
				c.log.Warn("cannot campaign", telemetry.KeyError, err)
			}
			pause(ctx, retryPause)
			continue
		}
		c.set(true)
		c.log.Info("leads", "token", lead.Token())
		c.announce(ctx, lead)
		c.lead(ctx, lead)
		c.set(false)
		c.log.Info("leads no more", "token", lead.Token())
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_ = lead.Resign(end) // it runs out by itself if the directory cannot be reached
		cancel()
	}
}

func (c *Coordinator) set(leading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = leading
}

// announce says who leads, for people.
func (c *Coordinator) announce(ctx context.Context, lead *shardmap.Leadership) {
	if c.opts.Member == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	key, records := shardmap.LeaderRecord(Election), c.opts.Directory.Fenced(lead.Token())
	r, err := records.Record(ctx, key)
	if err == nil || errors.Is(err, shardmap.ErrNotFound) {
		_, err = records.PutRecord(ctx, key, []byte(c.opts.Member), r.Revision)
	}
	if err != nil {
		c.log.Debug("the leader could not be announced", telemetry.KeyError, err)
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// term is one time as the leader.
type term struct {
	c       *Coordinator
	token   uint64
	records shardmap.Records

	mu     sync.Mutex
	jobs   map[string]*job
	movers map[string]*seized // by shard
	guards *guards
	kick   chan struct{}
}

func newTerm(c *Coordinator, token uint64) *term {
	t := &term{c: c, token: token, records: c.opts.Directory.Fenced(token), jobs: map[string]*job{}, movers: map[string]*seized{}, kick: make(chan struct{}, 1)}
	t.guards = &guards{directory: c.opts.Directory, shard: c.opts.Shard, mover: t.mover,
		locks: map[string]chan struct{}{}, open: map[string]bool{}, sets: map[string]uint64{}}
	return t
}

// seized is a shard's mover, after Seize.
type seized struct {
	mu    sync.Mutex
	shard engine.Shard
	mover engine.Mover
}

func (c *Coordinator) lead(ctx context.Context, l *shardmap.Leadership) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with ctx
		select {
		case <-l.Lost():
			stop()
		case <-ctx.Done():
		}
	}()
	t := newTerm(c, l.Token())
	var jobs sync.WaitGroup
	defer jobs.Wait()
	defer stop()
	jobs.Go(func() { t.sweep(ctx) })
	jobs.Go(func() { t.policy(ctx) })
	var seen uint64
	for ctx.Err() == nil {
		if err := t.look(ctx, &jobs); err != nil && ctx.Err() == nil {
			c.log.Warn("the workflows cannot be read", telemetry.KeyError, err)
			pause(ctx, retryPause)
			continue
		}
		seen = t.wait(ctx, seen)
	}
}

// wait returns when there may be something new.
func (t *term) wait(ctx context.Context, seen uint64) uint64 {
	tick := time.NewTicker(kickLook)
	defer tick.Stop()
	for range fullLook / kickLook {
		select {
		case <-ctx.Done():
			return seen
		case <-t.kick:
			return seen
		case <-tick.C:
			r, err := t.c.opts.Directory.Record(ctx, KickRecord)
			if err == nil && r.Revision != seen {
				return r.Revision
			}
		}
	}
	return seen
}

// Kick tells the leader, wherever it is, that a workflow was stored or changed.
func Kick(ctx context.Context, d shardmap.Records) error {
	for range 5 {
		r, err := d.Record(ctx, KickRecord)
		if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
			return err
		}
		if _, err = d.PutRecord(ctx, KickRecord, []byte("kick"), r.Revision); err == nil {
			return nil
		} else if !errors.Is(err, shardmap.ErrConflict) {
			return err
		}
		// Somebody else kicked after us: that is as good, once it is written.
	}
	return nil
}

// again has the leader look at all workflows now.
func (t *term) again() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// look starts what is not at work and tells those that are of new wishes.
func (t *term) look(ctx context.Context, jobs *sync.WaitGroup) error {
	type stored struct {
		state workflow.State
		rev   uint64
	}
	var all []stored
	after := ""
	for {
		page, err := t.records.Records(ctx, workflow.RecordPrefix, after, 100)
		if err != nil {
			return err
		}
		for _, r := range page {
			s, err := workflow.Decode(r.Value)
			if err != nil {
				t.c.log.Error("a workflow cannot be read", "record", r.Key, telemetry.KeyError, err)
				continue
			}
			all = append(all, stored{s, r.Revision})
		}
		if len(page) < 100 {
			break
		}
		after = page[len(page)-1].Key
	}
	// The oldest first: they get the free places.
	slices.SortFunc(all, func(a, b stored) int {
		if a.state.Created != b.state.Created {
			return int(min(max(a.state.Created-b.state.Created, -1), 1))
		}
		if a.state.Spec.ID < b.state.Spec.ID {
			return -1
		}
		return 1
	})
	fails := int64(0)
	for i := range all {
		if since := all[i].state.FailsSince(); since > 0 && (fails == 0 || since < fails) {
			fails = since
		}
	}
	t.c.failsSince.Store(fails)
	t.mu.Lock()
	defer t.mu.Unlock()
	busy, perShard, now := 0, map[string]int{}, t.c.opts.Now()
	count := func(s *workflow.State) {
		if heavy(s, now) {
			busy++
			perShard[s.Spec.From]++
			perShard[s.Spec.To]++
		}
	}
	for _, w := range all {
		if j, ok := t.jobs[w.state.Spec.ID]; ok {
			j.tell(w.state, w.rev)
			count(&w.state)
		}
	}
	ended := 0
	for i := range all {
		w := &all[i]
		id := w.state.Spec.ID
		if w.state.Step.Ended() {
			ended++
			continue
		}
		if _, ok := t.jobs[id]; ok {
			continue
		}
		if w.state.WaitsForWindow(now) != "" {
			continue // it is looked at again, at fullLook the latest
		}
		// What has begun goes on; what has not waits for a free place.
		if heavy(&w.state, now) && w.state.Step == workflow.Planned &&
			(busy >= t.c.opts.MovesMax || perShard[w.state.Spec.From] >= t.c.opts.PerShardMax || perShard[w.state.Spec.To] >= t.c.opts.PerShardMax) {
			continue
		}
		count(&w.state)
		j := newJob(t, w.state, w.rev)
		t.jobs[id] = j
		jobs.Go(func() {
			j.run(ctx)
			t.mu.Lock()
			delete(t.jobs, id)
			t.mu.Unlock()
			t.again()
		})
	}
	for i := 0; ended > endedKept && i < len(all); i++ {
		if w := &all[i]; w.state.Step.Ended() {
			ended--
			if err := t.records.DeleteRecord(ctx, workflow.RecordPrefix+w.state.Spec.ID, w.rev); err == nil {
				t.dropProgress(ctx, w.state.Spec.ID)
				if w.state.Spec.Kind == workflow.Rebalance {
					t.dropPlan(ctx, w.state.Spec.ID)
				}
			}
		}
	}
	return nil
}

func (t *term) dropProgress(ctx context.Context, id string) {
	if r, err := t.records.Record(ctx, workflow.ProgressPrefix+id); err == nil {
		_ = t.records.DeleteRecord(ctx, r.Key, r.Revision) // nobody needs it; the next leader's look tries again
	}
}

// heavy reports whether a workflow takes one of the places for moves. One that waits for its
// window, or for a shard that is lost, takes none: others could not begin for hours.
func heavy(s *workflow.State, now time.Time) bool {
	if s.WaitsForShard() != "" {
		return false
	}
	if s.Spec.Kind != workflow.Move || s.Step.Ended() || s.Step == workflow.Opened || s.Paused {
		return false
	}
	ws, err := workflow.ParseWindows(s.Spec.Window)
	return err != nil || ws.Wait(now) == ""
}

// sweepEvery is how often the shards are looked at for what no workflow needs.
const sweepEvery = 30 * time.Second

// sweep releases the captures of workflows that have ended, or are not known any more: a
// directory that was restored from an older copy leaves such.
func (t *term) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		if snap, err := t.c.opts.Directory.Load(ctx); err == nil {
			for _, s := range snap.Shards() {
				if err := t.sweepShard(ctx, s.Name); err != nil && ctx.Err() == nil {
					t.c.log.Debug("a shard cannot be looked at for what moves left", telemetry.KeyShard, s.Name, telemetry.KeyError, err)
				}
			}
		}
		if err := t.dropHeat(ctx); err != nil && ctx.Err() == nil {
			t.c.log.Debug("the load that members told which are gone cannot be dropped", telemetry.KeyError, err)
		}
		pause(ctx, sweepEvery)
	}
}

func (t *term) sweepShard(ctx context.Context, name string) error {
	shard, err := t.c.opts.Shard(name)
	if err != nil {
		return err
	}
	if k, ok := shard.(engine.Keeper); ok {
		if err := k.Keep(ctx); err != nil && ctx.Err() == nil { // a shard of an older version; doctor says it too
			t.c.log.Debug("the internal tables of a shard cannot be given to its mover yet", telemetry.KeyShard, name, telemetry.KeyError, err)
		}
	}
	movable, ok := shard.(engine.Movable)
	if !ok {
		return nil
	}
	streams, err := movable.Mover(t.token).Captures(ctx)
	if err != nil {
		return err
	}
	for _, stream := range streams {
		id, ok := workflow.StreamOf(stream)
		if !ok {
			continue
		}
		r, err := t.c.opts.Directory.Record(ctx, workflow.RecordPrefix+id)
		if err == nil {
			if s, err := workflow.Decode(r.Value); err != nil || !s.Step.Ended() {
				continue
			}
		} else if !errors.Is(err, shardmap.ErrNotFound) {
			return err
		}
		m, err := t.mover(ctx, name)
		if err != nil {
			return err
		}
		if err := m.Release(ctx, stream); err != nil {
			return err
		}
		t.c.log.Info("released what a move had left", telemetry.KeyShard, name, "stream", stream)
	}
	return nil
}

// mover returns a shard's mover, which is seized for the leadership.
func (t *term) mover(ctx context.Context, name string) (engine.Mover, error) {
	shard, err := t.c.opts.Shard(name)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	s, ok := t.movers[name]
	if !ok {
		s = &seized{}
		t.movers[name] = s
	}
	t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mover != nil && s.shard == shard {
		return s.mover, nil
	}
	m, ok := shard.(engine.Movable)
	if !ok {
		return nil, refuse("shard %s is of an engine whose rows cannot be moved", name)
	}
	mover := m.Mover(t.token)
	if err := mover.Seize(ctx); err != nil {
		return nil, err
	}
	s.shard, s.mover = shard, mover
	return mover, nil
}
