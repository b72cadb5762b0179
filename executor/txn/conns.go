package txn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// conns are the conversations with shards that one conversation over several has borrowed, and how what runs on them is
// stopped. Other goroutines may cancel, set a deadline and ask what is locked.
type conns struct {
	Ex   *executor.Executor
	host Host

	mu      sync.Mutex
	Ctx     context.Context // ends with a cancel; of the frames that are run
	stop    context.CancelCauseFunc
	running bool // a statement has begun and not ended
	inside  bool // a goroutine uses them
	closed  bool
	faulty  bool // there was a fault of the router's own
	cut     bool // what is live was closed while it was in use
	live    map[*executor.Conn]struct{}
	// insisting is closed by calm; nil if nothing is being stopped.
	insisting chan struct{}
	// deadline is SetDeadline's.
	deadline time.Time
	group    uint64 // of its shards' conversations
	Soils    bool   // what it ran may have left something in their sessions
}

var groups atomic.Uint64

func (c *conns) starts(ex *executor.Executor, host Host) {
	c.Ex, c.host, c.group = ex, host, groups.Add(1)
}

// atHand is what a part can have without waiting: the conversation that the session keeps, or an idle one. nil: there is none.
func (c *conns) atHand(shard string, base *executor.Settings) (*executor.Conn, error) {
	if kept := c.host.Kept(shard); kept != nil && !c.Holds(kept) {
		return kept, applied(kept, base)
	}
	return c.idle(shard, base), nil
}

// applied gives the conversation that the session keeps the settings. One that breaks is released: the session finds it lost.
func applied(kept *executor.Conn, base *executor.Settings) error {
	err := kept.Apply(base)
	if kept.Broken() {
		kept.Release()
	}
	return err
}

// idle borrows a conversation that is idle: the one that has the session's values of
// sequences, or one that was used a moment ago. nil: there is none.
func (c *conns) idle(shard string, base *executor.Settings) *executor.Conn {
	if conn := c.Ex.Recount(c.host.Counter(), shard, base); conn != nil {
		return conn
	}
	return c.Ex.TryAcquire(shard, base)
}

func (c *conns) borrowWith(ctx context.Context, shard string, base *executor.Settings) (*executor.Conn, error) {
	conn := c.idle(shard, base)
	if conn == nil {
		var err error
		if conn, err = c.Ex.Acquire(ctx, shard, base); err != nil {
			if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
				return nil, cause
			}
			return nil, err
		}
	}
	return c.Borrowed(conn)
}

// openAtOnce bounds the conversations that are opened at the same time.
const openAtOnce = 8

// borrowAll borrows conversations with several shards at the same time, where they
// are idle or can be opened. Where all are in use it waits for the first such
// shard's, and holds meanwhile only those of shards before it: so nobody waits for
// somebody who waits for him. have are conversations that are there already.
func (c *conns) borrowAll(ctx context.Context, shards []string, base *executor.Settings, have []*executor.Conn) ([]*executor.Conn, error) {
	conns, errs := make([]*executor.Conn, len(shards)), make([]error, len(shards))
	for _, conn := range have {
		if i := slices.Index(shards, conn.Shard()); i >= 0 {
			conns[i] = conn
		} else {
			c.GiveBack(conn)
		}
	}
	fail := func(err error) ([]*executor.Conn, error) {
		for _, conn := range conns {
			if conn != nil {
				c.GiveBack(conn)
			}
		}
		return nil, err
	}
	for {
		var missing []int
		for i, s := range shards {
			if conns[i] != nil {
				continue
			}
			conn, err := c.atHand(s, base)
			switch {
			case err != nil:
			case conn == nil:
				missing = append(missing, i)
			default:
				conns[i], err = c.Borrowed(conn)
			}
			if err != nil {
				return fail(err)
			}
		}
		var all sync.WaitGroup
		slots := make(chan struct{}, openAtOnce)
		for _, i := range missing {
			slots <- struct{}{}
			all.Go(func() {
				conns[i], errs[i] = c.borrowWith(executor.WithoutQueue(ctx), shards[i], base)
				<-slots
			})
		}
		all.Wait()
		full := -1
		for _, i := range missing {
			switch {
			case errs[i] == nil:
			case !errors.Is(errs[i], executor.ErrFull):
				return fail(errs[i])
			case full < 0:
				full = i
			}
		}
		if full < 0 {
			return conns, nil
		}
		for i := full + 1; i < len(conns); i++ {
			if conns[i] != nil {
				c.GiveBack(conns[i])
				conns[i] = nil
			}
		}
		var err error
		if conns[full], err = c.borrowWith(ctx, shards[full], base); err != nil {
			return fail(err)
		}
	}
}

// Dial opens a conversation outside of the shard's pool.
func (c *conns) Dial(ctx context.Context, name string) (*executor.Conn, error) {
	conn, err := c.Ex.DialFor(ctx, name, c.host.Settings())
	if err != nil {
		return nil, err
	}
	c.adds(conn)
	if err := conn.Apply(c.host.Settings()); err != nil {
		c.GiveBack(conn)
		return nil, err
	}
	return conn, nil
}

// Borrowed notes a conversation that was acquired.
func (c *conns) Borrowed(conn *executor.Conn) (*executor.Conn, error) {
	if err := conn.Belongs(c.host.Settings()); err != nil {
		conn.Release()
		return nil, err
	}
	conn.HeldBy(c.host.Holder())
	conn.Group(c.group)
	c.adds(conn)
	if c.Ctx.Err() != nil {
		c.GiveBack(conn)
		return nil, context.Cause(c.Ctx)
	}
	return conn, nil
}

// adds notes a conversation, which is cancelled with all others and has their deadline from now on.
func (c *conns) adds(conn *executor.Conn) {
	c.mu.Lock()
	if c.live == nil {
		c.live = map[*executor.Conn]struct{}{}
	}
	c.live[conn] = struct{}{}
	defer c.mu.Unlock()
	if !c.deadline.IsZero() && conn.SetDeadline(c.deadline) != nil {
		conn.Break()
	}
}

// GiveBack ends the use of a borrowed conversation.
func (c *conns) GiveBack(conn *executor.Conn) {
	c.forget(conn) // waits for a cancel that is under way
	if c.Soils {
		conn.Soil()
	}
	conn.Release()
}

func (c *conns) forget(conn *executor.Conn) {
	c.mu.Lock()
	delete(c.live, conn)
	c.mu.Unlock()
}

// eachLive calls f with the conversations, while none of them is given back.
func (c *conns) eachLive(f func(conn *executor.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.live {
		f(conn)
	}
}

// Holds reports whether the conversation is one of its own.
func (c *conns) Holds(conn *executor.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.live[conn]
	return ok
}

// WriteLocks are the SQLite shards whose writer the transaction is.
func (c *conns) WriteLocks() (has []string) {
	c.eachLive(func(conn *executor.Conn) {
		if writes, _ := conn.WriteLock(); writes {
			has = append(has, conn.Shard())
		}
	})
	slices.Sort(has)
	return has
}

// SetDeadline implements engine.Conn: it bounds what the parts do as well.
func (c *conns) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	var errs []error
	for conn := range c.live {
		errs = append(errs, conn.SetDeadline(t))
	}
	return errors.Join(errs...)
}

func (c *conns) DeadlineNow() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline
}

// Closed reports whether Close was called.
func (c *conns) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Enter notes that the conversations are used; leave has to follow. false: they are closed.
func (c *conns) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.Ctx == nil || !c.running && c.Ctx.Err() != nil {
		c.Ctx, c.stop = context.WithCancelCause(context.Background())
	}
	c.inside, c.running = true, true
	return true
}

// Leave ends what enter began; running says that a statement has not ended. closed: they were closed meanwhile, and the caller has to
// release them.
func (c *conns) Leave(running bool) (closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside, c.running = false, running
	if !running {
		c.calmLocked()
	}
	return c.closed
}

// Fault breaks the conversations if they are used, after a fault of the router's own: what they are in the middle of is not known.
func (c *conns) Fault() (used, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used = c.inside; used {
		c.inside, c.running, c.faulty = false, false, true
		for conn := range c.live {
			conn.Break()
		}
	}
	return used, c.closed
}

// Faulty reports whether there was a fault.
func (c *conns) Faulty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulty
}

// Shut closes. first is false if that was done before; inside: a goroutine uses them, which releases them. It must not wait for a
// shard.
func (c *conns) Shut() (first, inside bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, false
	}
	c.closed = true
	if c.stop != nil {
		c.stop(errCancelled)
	}
	if c.inside {
		for conn := range c.live {
			_ = conn.Conn.Close() // Receive on it returns
		}
		c.cut = true
	}
	return true, c.inside
}

var errCancelled = sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")

// Cancel implements engine.Conn: what runs on any part is stopped. While it
// lasts, no part's conversation is given back.
func (c *conns) Cancel(ctx context.Context) error { return c.interrupt(ctx, errCancelled) }

// interrupt stops what runs for the reason.
func (c *conns) interrupt(ctx context.Context, reason *sqlstate.Error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || c.closed {
		return nil
	}
	c.stop(reason)
	if c.insisting != nil {
		return nil
	}
	c.insist()
	return c.cancelLive(ctx, false)
}

// cancelLive cancels all conversations at once, or only those that still have to
// answer; c.mu is held.
func (c *conns) cancelLive(ctx context.Context, asked bool) error {
	errs := make([]error, len(c.live))
	var wg sync.WaitGroup
	i := 0
	for conn := range c.live {
		if at := i; !asked || conn.Asked() {
			wg.Go(func() { errs[at] = conn.Cancel(ctx) })
		}
		i++
	}
	wg.Wait()
	return errors.Join(errs...)
}

const (
	// insistFirst and insistMax are the pauses between two cancels of one statement,
	// cancelMax bounds one.
	insistFirst = 20 * time.Millisecond
	insistMax   = 500 * time.Millisecond
	cancelMax   = time.Second
)

// insist asks the shards to stop what they have not answered yet, again and again
// until calm is called: a shard ignores a cancel that overtakes its statement.
// c.mu is held.
func (c *conns) insist() {
	if c.insisting != nil {
		return
	}
	calm := make(chan struct{})
	c.insisting = calm
	go func() {
		pause := time.NewTimer(insistFirst)
		defer pause.Stop()
		for next := 2 * insistFirst; ; next = min(2*next, insistMax) {
			select {
			case <-calm:
				return
			case <-pause.C:
			}
			c.mu.Lock()
			if c.insisting == calm {
				ctx, stop := context.WithTimeout(context.Background(), cancelMax)
				_ = c.cancelLive(ctx, true) // it is asked again
				stop()
			}
			c.mu.Unlock()
			pause.Reset(next)
		}
	}()
}

// Calm ends what insist began. A cancel that is under way is waited for: it must
// not hit the next statement.
func (c *conns) Calm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calmLocked()
}

func (c *conns) calmLocked() {
	if c.insisting != nil {
		close(c.insisting)
		c.insisting = nil
	}
}

// Timer stops what runs after a while, 0: never.
func (c *conns) Timer(d time.Duration, what string) *time.Timer {
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopMax)
		defer cancel()
		// A shard that the word does not reach is the watch's business.
		_ = c.interrupt(ctx, sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to %s", what))
	})
}

// Planning implements [executor.Waiter]: what stops the conversation ends the wait for a plan.
func (c *conns) Planning() (ctx context.Context, done func()) {
	t := c.Timer(c.host.Timeout(), "statement timeout")
	return c.Ctx, func() {
		if t != nil {
			t.Stop()
		}
	}
}

// watched is the transaction as the watch of its locks sees it.
type watched Transaction

var _ Statement = (*watched)(nil)

// WatchLocks begins to watch a statement that begins now; End has to follow.
func (c *Transaction) WatchLocks(wait time.Duration, readOnly bool) *LockWatch {
	t := c.txns
	if c.waitID == "" {
		c.waitID = t.WaitID()
	}
	c.passed.Store(false)
	return t.WatchLocks((*watched)(c), c.waitID, wait, readOnly && c.host.Repeats())
}

// EachConn implements [Statement].
func (w *watched) EachConn(f func(c *executor.Conn)) { w.eachLive(f) }

// Passed implements [Statement].
func (w *watched) Passed() bool { return w.passed.Load() }

// Interrupt implements [Statement].
func (w *watched) Interrupt(ctx context.Context, reason *sqlstate.Error) error {
	return w.interrupt(ctx, reason)
}
