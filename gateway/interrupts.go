package gateway

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/sqlstate"
)

// What a session does now, for the watch.
const (
	stateBusy int32 = iota
	stateIdle
	stateIdleInTx
)

// interrupts is what stops a session, or what it runs: cancel requests, timeouts, the end of the router, a move that its
// transaction is in the way of. The session's goroutine says what it does; others, and the watch, act on that.
//
//	idle ──begins──▶ busy, nothing runs ──setRunning(c)──▶ busy, c runs ──setRunning(nil)──▶ ...
//	 │ wakeUp          │ cancel: pendingCancel, for         │ cancel: told to c, again and again (insist),
//	 ▼                 │ what runs next; or it ends          │ until it has ended or the watch closes c
//	the loop looks     ▼ the wait (waiting)                  ▼
//	why             57014                                  57014
type interrupts struct {
	nc net.Conn // the client's
	// grace is what a shard may take to obey a cancel; spawn runs a goroutine that the server waits for.
	grace time.Duration
	spawn func(func())
	log   *slog.Logger

	state atomic.Int32
	since atomic.Int64 // when state was entered, Unix nanoseconds
	// cancelling: a goroutine of the watch, or for a move, is at it.
	cancelling atomic.Bool
	// pendingCancel: a cancel came while nothing ran that could be stopped.
	pendingCancel atomic.Bool
	// terminating: the session has to end, see signal.go.
	terminating atomic.Bool
	exported    atomic.Bool // the transaction has given its snapshot to others
	copying     atomic.Bool // a COPY FROM STDIN waits for the client's data
	// ending: the transaction has to end, to make way for a move; see hold.go.
	ending atomic.Pointer[leaseuse.Hold]

	mu          sync.Mutex
	running     *executor.Conn // what a cancel request is for
	stopWaiting context.CancelFunc
	cancelled   time.Time // when the cancel of the running statement was asked for
	forMove     bool      // cancelled is for a move that the statement is in the way of, and nobody else asked for it
	committing  bool      // running is at its COMMIT or ROLLBACK
	// overdue is when the shard has let statement_timeout pass for too long, zero
	// if there is none; overran says that its connection was closed for that.
	overdue time.Time
	overran bool
	// limit is the statement_timeout of limitOf.
	limit   time.Duration
	limitOf *executor.Settings
}

// cancel stops what the session does now: a wait at the router, or a statement
// on a shard. While it lasts, the session cannot give its shard connection to
// somebody else, so the cancel cannot hit another session's statement.
func (i *interrupts) cancel(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopWaiting != nil {
		i.stopWaiting()
	}
	if i.running == nil {
		// Between two steps of the unit: the next one that runs is stopped.
		i.pendingCancel.Store(i.state.Load() == stateBusy)
		return
	}
	if i.cancelled.IsZero() || i.forMove {
		i.cancelled, i.forMove = time.Now(), false
		i.insist(i.running)
	}
	if err := i.running.Cancel(ctx); err != nil {
		i.log.Debug("a cancel did not reach the shard", "error", err)
	}
	if i.copying.Load() {
		i.wakeUp()
	}
}

const (
	// insistFirst and insistMax are the pauses between two cancels of one statement.
	insistFirst = 20 * time.Millisecond
	insistMax   = 500 * time.Millisecond
)

// insist cancels what runs again and again until it has ended: a shard ignores a
// cancel that overtakes the statement. i.mu is held.
func (i *interrupts) insist(c *executor.Conn) {
	i.spawn(func() {
		for pause := insistFirst; ; pause = min(2*pause, insistMax) {
			time.Sleep(pause)
			if !i.cancelAgain(c) {
				return
			}
		}
	})
}

func (i *interrupts) cancelAgain(c *executor.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running != c || i.cancelled.IsZero() || i.copying.Load() {
		return false
	}
	ctx, stop := context.WithTimeout(context.Background(), insistMax)
	defer stop()
	_ = i.running.Cancel(ctx) // it is asked again
	return true
}

// cut ends the session by force: its statement is cancelled, its client's
// connection closed.
func (i *interrupts) cut(ctx context.Context) {
	i.cancel(ctx)
	_ = i.nc.Close()
	i.mu.Lock()
	defer i.mu.Unlock()
	if ctx.Err() != nil && i.running != nil {
		_ = i.running.Close() // the shard did not take the cancel: its Receive returns
	}
}

// nudge ends the session if it idles outside a transaction.
func (i *interrupts) nudge() {
	if i.state.Load() == stateIdle {
		i.wakeUp()
	}
}

// wakeUp makes a read that waits for the client return; the session's loop looks why.
func (i *interrupts) wakeUp() { _ = i.nc.SetReadDeadline(time.Unix(1, 0)) }

// timeLimit is the session's statement_timeout, 0 for none.
// i.mu is held.
func (i *interrupts) timeLimit(of *executor.Settings) time.Duration {
	if i.limitOf != of {
		i.limit, i.limitOf = settings.StatementTimeout(of), of
	}
	return i.limit
}

// cancelForEnd stops what runs in the transaction, but for its COMMIT.
func (i *interrupts) cancelForEnd(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ending.Load() == nil || i.committing {
		return
	}
	if i.stopWaiting != nil {
		i.stopWaiting()
	}
	if i.running == nil {
		return
	}
	if i.cancelled.IsZero() {
		i.cancelled, i.forMove = time.Now(), true // the watch closes a connection that does not obey
	}
	if err := i.running.Cancel(ctx); err != nil {
		i.log.Debug("a cancel did not reach the shard", "error", err)
	}
	if i.copying.Load() {
		i.wakeUp()
	}
}

// askEnd asks the session to end its transaction (leaseuse.Turn.OnEnd). It is called
// by others, and again while the transaction is open.
func (i *interrupts) askEnd(h leaseuse.Hold) {
	i.ending.Store(&h)
	switch i.state.Load() {
	case stateIdleInTx:
		i.wakeUp()
	case stateBusy:
		i.beside(i.cancelForEnd)
	}
}

// calledOff reports whether the client, its timeout or an administrator has asked for the end of what runs.
func (i *interrupts) calledOff() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.overran || !i.cancelled.IsZero() && !i.forMove
}

// stopped is the error of a statement that was cancelled, or that ran over
// statement_timeout, nil if neither was the case.
func (i *interrupts) stopped() *sqlstate.Error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.overran:
		return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to statement timeout")
	case !i.cancelled.IsZero():
		return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
	}
	return nil
}

// waiting returns a context that a cancel request ends; done must be called. One wait may be within another: a cancel ends both.
func (i *interrupts) waiting() (ctx context.Context, done func()) {
	ctx, stop := context.WithCancel(context.Background())
	i.mu.Lock()
	defer i.mu.Unlock()
	outer := i.stopWaiting
	i.stopWaiting = func() {
		stop()
		if outer != nil {
			outer()
		}
	}
	return ctx, func() {
		i.mu.Lock()
		i.stopWaiting = outer
		i.mu.Unlock()
		stop()
	}
}

// begins tells the watch, and cancels, that the client has spoken.
func (i *interrupts) begins() {
	if i.pendingCancel.Load() {
		i.pendingCancel.Store(false) // it was for what came before
	}
	i.state.Store(stateBusy)
}

// stateName is what the session does, in the words of pg_stat_activity.
func (i *interrupts) stateName() string {
	switch i.state.Load() {
	case stateIdle:
		return "idle"
	case stateIdleInTx:
		return "idle in transaction"
	}
	return "active"
}

// terminate ends the session: what it runs is cancelled, its client is told 57P01. It does not wait for the end, see gone.
func (i *interrupts) terminate(ctx context.Context) {
	i.terminating.Store(true)
	if i.state.Load() == stateBusy {
		i.cancel(ctx)
	}
	i.wakeUp()
}

// setRunning tells cancel requests what runs: statements of c, with the settings. With nil it waits for a cancel that is under way.
func (i *interrupts) setRunning(c *executor.Conn, settings *executor.Settings, statements int) {
	i.mu.Lock()
	i.runs(c, settings, statements)
	i.mu.Unlock()
}

// setCommitting is setRunning for the end of a transaction, which nobody stops to make way for a move.
func (i *interrupts) setCommitting(c *executor.Conn, settings *executor.Settings, statements int) {
	i.mu.Lock()
	i.runs(c, settings, statements)
	i.committing = true
	i.mu.Unlock()
}

// landed is setRunning(nil) where nothing may be waited for; false: a cancel is under way.
func (i *interrupts) landed() bool {
	if !i.mu.TryLock() {
		return false
	}
	i.runs(nil, nil, 0)
	i.mu.Unlock()
	return true
}

// runs is called with i.mu held.
func (i *interrupts) runs(c *executor.Conn, settings *executor.Settings, statements int) {
	i.running, i.overdue, i.committing = c, time.Time{}, false
	if c == nil {
		return
	}
	if i.pendingCancel.Load() && i.pendingCancel.Swap(false) {
		i.cancelled, i.forMove = time.Now(), false
		i.insist(c)
	}
	if limit := i.timeLimit(settings); limit > 0 {
		// The shard counts it for each statement anew.
		i.overdue = time.Now().Add(time.Duration(statements)*limit + i.grace)
	}
}

// forget forgets the cancel of what has ended.
func (i *interrupts) forget() {
	i.mu.Lock()
	i.cancelled, i.overran, i.forMove = time.Time{}, false, false
	i.mu.Unlock()
}

// asked reports whether a cancel of what runs was asked for.
func (i *interrupts) asked() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.cancelled.IsZero()
}

// StatementTimeout is the statement_timeout of the settings, 0 for none.
func (i *interrupts) statementTimeout(of *executor.Settings) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.timeLimit(of)
}

// planning returns a context that a cancel request and statement_timeout end; done must be called.
func (i *interrupts) planning(settings *executor.Settings) (ctx context.Context, done func()) {
	ctx, stop := context.WithCancelCause(context.Background())
	i.mu.Lock()
	defer i.mu.Unlock()
	outer, limit := i.stopWaiting, i.timeLimit(settings)
	cancelled := sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
	i.stopWaiting = func() {
		stop(cancelled)
		if outer != nil {
			outer()
		}
	}
	if i.pendingCancel.Load() && i.state.Load() == stateBusy {
		stop(cancelled) // it came before
	}
	var timer *time.Timer
	if limit > 0 {
		timer = time.AfterFunc(limit, func() {
			stop(sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to statement timeout"))
		})
	}
	return ctx, func() {
		if timer != nil {
			timer.Stop()
		}
		i.mu.Lock()
		i.stopWaiting = outer
		i.mu.Unlock()
		stop(nil)
	}
}

// endsHere reports whether the session has to end now, between two statements.
func (i *interrupts) endsHere() bool { return i.terminating.Load() }

// watched looks after what a busy session runs: a shard that does not obey is closed. over: the client is gone, or the
// statement has run for too long.
func (i *interrupts) watched(now time.Time, over bool) {
	if !i.mu.TryLock() {
		return // a cancel is under way; the other sessions must not wait for its shard
	}
	asked := i.cancelled
	stuck := !asked.IsZero() && now.Sub(asked) > i.grace && i.running != nil
	if i.running != nil && !i.overdue.IsZero() && now.After(i.overdue) && !i.copying.Load() {
		stuck, i.overran = true, true
	}
	if stuck {
		_ = i.running.Close() // its Receive returns, and the session says what is known
	}
	busy := i.running != nil || i.stopWaiting != nil
	i.mu.Unlock()
	if over && busy && asked.IsZero() {
		i.beside(i.cancel)
	}
}

// beside cancels in a goroutine of its own, one at a time.
func (i *interrupts) beside(cancel func(context.Context)) {
	if !i.cancelling.CompareAndSwap(false, true) {
		return
	}
	i.spawn(func() {
		defer i.cancelling.Store(false)
		ctx, stop := context.WithTimeout(context.Background(), i.grace)
		defer stop()
		cancel(ctx)
	})
}
