package executor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/executor/load"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// Options are what an Executor needs.
type Options struct {
	Directory shardmap.Directory
	// Drivers by engine name.
	Drivers map[string]engine.Driver
	Planner *planner.Planner
	Limits  Limits
	// Lease is checked after a shard has answered; nil is always live.
	Lease   *shardmap.Lease
	Log     *slog.Logger       // nil: nothing is logged
	Metrics *telemetry.Metrics // nil: nothing is counted
	// Member is the id with which the process has joined the cluster. The load that it
	// measures is told under that name; "": it is not told.
	Member string
}

// Executor runs one-shard plans. Methods are safe for concurrent use.
type Executor struct {
	directory shardmap.Directory
	drivers   map[string]engine.Driver
	limits    Limits
	log       *slog.Logger
	metrics   *telemetry.Metrics
	member    string
	*leaseuse.Served
	*load.Meter
	*plans

	pools   atomic.Pointer[map[string]*pool]
	stopped atomic.Pointer[map[string]error] // see Stop; nil: no shard is
	intern
	turn    atomic.Uint64
	lanes   *lane.Group
	counted atomic.Bool // see KeepCounters
	logins
	origins
	checking chan struct{} // passwords that shards check just now

	mu      sync.Mutex
	groups  map[string]*group // of shards with replicas
	numbers map[string]*numbers
	life    context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closed  bool
	// ending are the connections that are being closed.
	ending sync.WaitGroup
}

// logins are the users that have sessions, or had one a moment ago, by name.
type logins struct {
	mu    sync.Mutex
	known map[string]*Login
}

// beside runs what takes a bounded time in a goroutine that Close waits for; after
// Close it does nothing and returns false.
func (e *Executor) beside(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.ending.Go(f)
	return true
}

// New makes an Executor. It does nothing until Start.
func New(o Options) *Executor {
	e := &Executor{
		directory: o.Directory, drivers: o.Drivers,
		limits: o.Limits.withDefaults(), log: telemetry.Log(o.Log), metrics: o.Metrics, Served: leaseuse.New(o.Lease),
		checking: make(chan struct{}, loginsAtOnce), origins: origins{learning: make(chan struct{}, 1)},
		member: o.Member,
	}
	e.Meter = load.New(load.Options{Directory: o.Directory, Metrics: o.Metrics, Log: e.log, Member: o.Member, Window: e.limits.LoadWindow, ConnectTimeout: e.limits.ConnectTimeout})
	e.pools.Store(&map[string]*pool{})
	e.plans = &plans{planner: o.Planner, metrics: o.Metrics, log: e.log, origins: &e.origins, beside: e.beside, left: make(chan struct{}, leftMax)}
	e.plans.cache.init(e.limits.PlanEntries, e.limits.PlanBytes)
	return e
}

// Start loads the map and begins to watch it; Close ends that. It fails with
// what the directory says: shardmap.ErrNotFound if there is no map yet.
func (e *Executor) Start(ctx context.Context) error {
	snap, err := e.directory.Load(ctx)
	if err != nil {
		return err
	}
	watch, stop := context.WithCancel(context.Background())
	updates, err := e.directory.Watch(watch)
	if err != nil {
		stop()
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.cancel != nil {
		stop()
		return errors.New("executor: started twice, or closed")
	}
	if e.lanes, err = lane.Start(e.limits.Lanes); err != nil {
		stop()
		return err
	}
	e.cancel, e.life = stop, watch
	e.install(snap)
	e.wg.Go(func() { e.follow(watch, updates) })
	e.wg.Go(func() { e.tend(watch) })
	e.wg.Go(func() { e.Report(watch) })
	if e.Lease() != nil {
		e.wg.Go(func() { e.Acknowledge(watch) })
	}
	return nil
}

// follow installs newer snapshots. A watch that ends is begun again: the map
// that is served meanwhile stays guarded by the shards.
func (e *Executor) follow(ctx context.Context, updates <-chan *shardmap.Snapshot) {
	for {
		select {
		case <-ctx.Done():
			return
		case snap, ok := <-updates:
			if ok {
				e.offer(snap)
				continue
			}
		}
		for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
			next, err := e.directory.Watch(ctx)
			if err == nil {
				updates = next
				break
			}
			e.metrics.WatchFailed()
			e.log.Warn("the directory cannot be watched; trying again", telemetry.KeyError, err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

func (e *Executor) tend(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			for name, p := range *e.pools.Load() {
				p.tend(now)
				if e.Refusal(name, false) != nil {
					p.rest()
				} else {
					p.recheck(ctx)
				}
			}
			e.tendGroups(now)
			e.tendLogins(now)
			e.metrics.PlanCacheSize(e.PlanCacheSize())
			e.countReplicas()
		}
	}
}

// offer installs snap if it is newer than the current one.
func (e *Executor) offer(snap *shardmap.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cur := e.Snapshot(); !e.closed && (cur == nil || snap.Version() > cur.Version()) {
		e.install(snap)
	}
}

// serviceStates are the states of shards as the metrics have them, normal for one that is in service.
var serviceStates = map[shardmap.Service]int{shardmap.ReadOnly: telemetry.ReadOnly, shardmap.OutOfService: telemetry.OutOfService}

// install replaces the snapshot and makes the pools fit its shards; e.mu is held.
func (e *Executor) install(snap *shardmap.Snapshot) {
	old := *e.pools.Load()
	next := make(map[string]*pool, len(snap.Shards()))
	for _, s := range snap.Shards() {
		key := s.Engine + " " + s.URL
		if p, ok := old[s.Name]; ok && p.key == key && p.group == nil && len(s.Replicas) == 0 {
			next[s.Name] = p
			continue
		}
		d, ok := e.drivers[s.Engine]
		if !ok {
			e.log.Error("a shard's engine is not known to this router", telemetry.KeyShard, s.Name, "engine", s.Engine)
			continue
		}
		if len(s.Replicas) > 0 {
			next[s.Name] = e.installGroup(snap, &s, d)
			continue
		}
		sh, err := d.Open(engine.Config{Cluster: snap.State().Cluster, Name: s.Name, URL: s.URL, ConnectTimeout: e.limits.ConnectTimeout, MessageMax: e.limits.MessageMax, Lanes: e.lanes})
		if err != nil {
			e.log.Error("a shard cannot be used", telemetry.KeyShard, s.Name, telemetry.KeyError, err)
			continue
		}
		next[s.Name] = &pool{ex: e, name: s.Name, key: key, shard: sh, metrics: e.metrics.Shard(s.Name)}
	}
	e.pools.Store(&next)
	e.Meter.Install(snap)
	e.Served.Install(snap)
	e.metrics.MapVersion(snap.Version())
	e.dropGroups(snap)
	for _, s := range snap.Shards() {
		if p := next[s.Name]; p != nil && s.Service == shardmap.OutOfService {
			p.rest()
		}
		e.metrics.Shard(s.Name).State(serviceStates[s.Service])
	}
	for name, p := range old {
		if p.group == nil && next[name] != p { // the pools of a group are its own
			p.retire()
		}
		if next[name] == nil {
			e.metrics.Forget(name)
		}
	}
}

// Close ends the watch and closes all idle connections; those in use are closed
// when they are released.
func (e *Executor) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	if e.cancel != nil {
		e.cancel()
	}
	pools, groups := *e.pools.Load(), e.groups
	e.mu.Unlock()
	e.wg.Wait()
	e.ending.Wait()
	var errs []error
	for _, g := range groups {
		errs = append(errs, g.close())
	}
	for _, p := range pools {
		if p.group != nil {
			continue
		}
		p.close()
		errs = append(errs, p.shard.Close())
	}
	e.lanes.Close()
	return errors.Join(errs...)
}

// Member is the id with which the process has joined the cluster, "" if it has not.
func (e *Executor) Member() string { return e.member }

// Refresh loads the map from the directory and installs it if it is newer.
func (e *Executor) Refresh(ctx context.Context) (*shardmap.Snapshot, error) {
	snap, err := e.directory.Load(ctx)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the shard map cannot be read")
	}
	e.offer(snap)
	return e.Snapshot(), nil
}

// AwaitVersion waits until a map of at least the version is served: so that a
// session sees its own schema change.
func (e *Executor) AwaitVersion(ctx context.Context, version uint64) error {
	for {
		changed := e.Changed()
		if e.Snapshot().Version() >= version {
			return nil
		}
		if snap, err := e.Refresh(ctx); err == nil && snap.Version() >= version {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AwaitNewer waits until a map newer than the version is served, or ctx ends. Unlike
// [Executor.Newer] it does not ask the directory: the watch brings it.
func (e *Executor) AwaitNewer(ctx context.Context, version uint64) error {
	for {
		changed := e.Changed()
		if e.Snapshot().Version() > version {
			return nil
		}
		select {
		case <-changed:
		case <-e.life.Done():
			return e.life.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// HoldTimeout is how long statements wait that need a held part, unless the
// session says otherwise.
func (e *Executor) HoldTimeout() time.Duration { return e.limits.HoldTimeout }

// Newer waits, at most RefreshWait, for a map newer than the version: after a
// guard refused what this router's map allowed. ok is false if there is none.
func (e *Executor) Newer(ctx context.Context, version uint64) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, e.limits.RefreshWait)
	defer cancel()
	return e.AwaitVersion(ctx, version+1) == nil
}

// Acquire borrows a connection to a shard with the settings applied. It fails
// with 57P03 when the shard cannot be reached, 53300 when none becomes free in
// time, ctx's error when that ends. Release must follow.
func (e *Executor) Acquire(ctx context.Context, shard string, s *Settings) (*Conn, error) {
	if err := e.Refusal(shard, false); err != nil && !engine.Maintains(ctx) {
		return nil, err
	}
	return e.acquire(ctx, shard, s)
}

// acquire is Acquire from a shard that is used.
func (e *Executor) acquire(ctx context.Context, shard string, s *Settings) (*Conn, error) {
	for {
		p, ok := (*e.pools.Load())[shard]
		if !ok {
			return nil, unknownShard(shard)
		}
		var c *Conn
		var err error
		if p.group != nil {
			c, err = p.group.acquire(ctx, s)
		} else {
			c, err = e.acquireFrom(ctx, p, s)
		}
		if err == nil || !p.over() || (*e.pools.Load())[shard] == p {
			return c, err
		}
		// The map changed meanwhile, and other servers are the shard's.
	}
}

// over reports whether the pool is not to be used any more.
func (p *pool) over() bool {
	if p.group != nil {
		p.group.mu.Lock()
		defer p.group.mu.Unlock()
		return p.group.closed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// acquireFrom is Acquire from one pool.
func (e *Executor) acquireFrom(ctx context.Context, p *pool, s *Settings) (*Conn, error) {
	c, err := p.acquire(ctx, s)
	if err != nil {
		return nil, err
	}
	if !c.settings.Equal(s) {
		limit, stop := context.WithTimeout(ctx, e.limits.ConnectTimeout)
		err := c.bounded(limit, func() error { return c.Apply(s) })
		stop()
		if err != nil {
			c.Release()
			var se *sqlstate.Error
			switch {
			case errors.Is(ctx.Err(), context.Canceled):
				return nil, ctx.Err()
			case !errors.As(err, &se):
				p.shun()
				return nil, c.Lost(err, false)
			}
			return nil, err
		}
	}
	return c, nil
}

// TryAcquire is Acquire for the common case: a connection that was used a moment
// ago is idle and has the settings. nil: call Acquire.
func (e *Executor) TryAcquire(shard string, s *Settings) *Conn {
	if p, ok := (*e.pools.Load())[shard]; ok && e.Refusal(shard, false) == nil {
		return p.try(s)
	}
	return nil
}

// ShardInService is Shard, which refuses one that is out of service.
func (e *Executor) ShardInService(name string) (engine.Shard, error) {
	if err := e.Refusal(name, false); err != nil {
		return nil, err
	}
	return e.Shard(name)
}

// Connect borrows a connection with no settings, for schema changes and
// administration. Of a shard that is out of service only with a context of engine.ForMaintenance. release gives it back; broken says that it must be closed.
func (e *Executor) Connect(ctx context.Context, shard string) (conn engine.Conn, release func(broken bool), err error) {
	return e.connect(ctx, shard, nil)
}

// ConnectFor is Connect for the schema changes of a session with the settings, which finds names as the session does. h holds what is borrowed.
func (e *Executor) ConnectFor(s *Settings, h *Holder) func(ctx context.Context, shard string) (engine.Conn, func(broken bool), error) {
	return func(ctx context.Context, shard string) (engine.Conn, func(broken bool), error) {
		conn, release, err := e.connect(ctx, shard, s.from().base)
		if c, ok := conn.(*Conn); ok && err == nil {
			c.HeldBy(h)
		}
		return conn, release, err
	}
}

// connect is Connect with a baseline, nil for the one of now.
func (e *Executor) connect(ctx context.Context, shard string, base *baseline) (conn engine.Conn, release func(broken bool), err error) {
	if err := e.restriction(shard, false); err != nil && !engine.Maintains(ctx) {
		return nil, nil, err
	}
	c, err := e.acquirePatient(ctx, shard, base)
	if err != nil {
		return nil, nil, err
	}
	c.settings = nil // nobody has said yet what it has: see Conn.Settings
	var once sync.Once
	return c, func(broken bool) {
		once.Do(func() {
			// Others have talked on it without this Conn's knowledge; what they set
			// ended with their transaction.
			c.settings = nil
			c.uncount()
			if broken {
				c.broken = true
			}
			if !c.broken {
				c.Settle()
			}
			c.Release()
		})
	}, nil
}

// acquirePatient is acquire of a connection that has none of the baseline's timeouts.
func (e *Executor) acquirePatient(ctx context.Context, shard string, base *baseline) (*Conn, error) {
	if base = e.now(origin{base: base}).base; base == nil {
		c, err := e.acquire(ctx, shard, nil)
		if err != nil || c.baseline == nil || c.baseline.patient == c.baseline {
			return c, err
		}
		base = c.baseline // it was the first connection
		c.Release()
	}
	return e.acquire(ctx, shard, base.patient.bare)
}

// Directory returns the directory that the executor follows.
func (e *Executor) Directory() shardmap.Directory { return e.directory }

// PoolMax is the greatest number of connections to one shard.
func (e *Executor) PoolMax() int { return e.limits.PoolMax }

// Metrics returns the metrics, nil if there are none.
func (e *Executor) Metrics() *telemetry.Metrics { return e.metrics }

// Health is what a pool knows of its shard.
type Health struct {
	Shard               string
	Up                  bool // the last attempt to connect did not fail
	Err                 error
	Open, Idle, Waiting int
	Reclaimed           int64 // taken back from sessions that had lost them: a defect of the router
}

// Health returns what the pools know, in the map's order.
func (e *Executor) Health() []Health {
	pools := *e.pools.Load()
	var all []Health
	for _, s := range e.Snapshot().Shards() {
		if p := pools[s.Name]; p != nil {
			all = append(all, p.health())
		} else {
			all = append(all, Health{Shard: s.Name, Err: errors.New("the engine is not available in this router")})
		}
	}
	return all
}

// Shard returns the handle of a shard's primary, for conversations outside of
// its pool. It belongs to the executor, which closes it when the shard leaves the
// map. It fails with 57P03 while the shard is not known or has no primary.
func (e *Executor) Shard(name string) (engine.Shard, error) {
	p, ok := (*e.pools.Load())[name]
	switch {
	case !ok:
		return nil, unknownShard(name)
	case p.shard == nil:
		return nil, p.group.noPrimary()
	}
	return p.shard, nil
}

func unknownShard(name string) error {
	return sqlstate.New(sqlstate.CannotConnectNow, "shard %s is not in the map of this router, or its engine is not available", name).
		OnShard(name).WithHint("`cleave shard list` shows the shards")
}
