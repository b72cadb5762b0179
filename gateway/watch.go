package gateway

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"net"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// cancelRequest obeys a CancelRequest: process number and secret of a session.
// Nothing is answered, whether or not there is such a session.
func (s *Server) cancelRequest(body []byte) {
	if len(body) != 8 {
		return
	}
	s.mu.Lock()
	sess := s.sessions[binary.BigEndian.Uint32(body)]
	s.mu.Unlock()
	if sess == nil {
		return
	}
	var want [4]byte
	binary.BigEndian.PutUint32(want[:], sess.secret)
	if subtle.ConstantTimeCompare(want[:], body[4:]) != 1 {
		return
	}
	s.metrics.Cancel()
	ctx, stop := context.WithTimeout(context.Background(), s.limits.CancelMax)
	defer stop()
	sess.interrupts.cancel(ctx)
}

const (
	watchEvery = 250 * time.Millisecond
	// peekAfter is how long a statement runs before the client is looked at.
	peekAfter = 400 * time.Millisecond
)

// watch looks after all sessions with one goroutine: timeouts, clients that
// left while their statement runs, shards that do not obey a cancel.
func (s *Server) watch() {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-s.stopWatch:
			// The drain ends the sessions itself, but a client that leaves during
			// it still has to be noticed.
			s.mu.Lock()
			left := len(s.sessions) + s.entrance.Opening()
			s.mu.Unlock()
			if left == 0 {
				return
			}
			time.Sleep(watchEvery / 5)
			s.inspectAll(time.Now())
		case now := <-t.C:
			s.inspectAll(now)
		}
	}
}

func (s *Server) inspectAll(now time.Time) {
	for _, x := range s.list() {
		x.watched(now)
	}
}

// watched is inspect whose faults end neither the watch nor the router.
func (x *session) watched(now time.Time) {
	defer func() {
		if fault := recover(); fault != nil {
			x.srv.metrics.Panic()
			x.srv.log.Error("a fault in the watch of a session", "session", x.pid, "fault", fault, "stack", string(debug.Stack()))
		}
	}()
	x.inspect(now)
}

// idleInTxMax is how long the session may say nothing in its transaction. One that has exported a snapshot waits for those who
// use it, and keeps tables locked for them: pg_dump -j says nothing else until they are done.
func (i *interrupts) idleInTxMax(lim *Limits) time.Duration {
	if i.exported.Load() {
		return max(lim.IdleMax, lim.IdleInTransactionMax)
	}
	return lim.IdleInTransactionMax
}

func (x *session) inspect(now time.Time) {
	lim := &x.srv.limits
	if since := x.w.stalled.Load(); since != 0 && now.Sub(time.Unix(0, since)) > lim.StallMax {
		x.srv.log.Warn("a client does not take its answers; its session ends", "session", x.pid)
		_ = x.nc.Close()
	}
	since := now.Sub(time.Unix(0, x.interrupts.since.Load()))
	switch x.interrupts.state.Load() {
	case stateIdle:
		switch {
		case since > lim.IdleMax:
			x.interrupts.wakeUp()
		case since > trimAfter && x.lane.client != nil && !x.trimmed.Load():
			x.lane.client.Poke() // if the lane has it, it gives up its buffers
		}
	case stateIdleInTx:
		if since > x.interrupts.idleInTxMax(lim) {
			x.interrupts.wakeUp()
		}
	case stateBusy:
		if since < peekAfter {
			return
		}
		gone := clientLeft(x.raw) || x.left != nil && x.left.Left()
		x.interrupts.watched(now, gone || since > lim.StatementMax)
	}
}

// leaver is a connection without a descriptor, in memory, that knows whether its
// other end was closed.
type leaver interface{ Left() bool }

// clientLeft looks, without taking anything, whether the client closed its end
// or sent Terminate.
func clientLeft(raw syscall.RawConn) bool {
	if raw == nil {
		return false
	}
	left := false
	// Control, not Read: the session's goroutine may be using the descriptor.
	err := raw.Control(func(fd uintptr) {
		var b [5]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR:
		case err != nil || n == 0:
			left = true
		case n == 5 && b == [5]byte{'X', 0, 0, 0, 4}:
			left = true
		}
	})
	return left || err != nil
}

func rawConn(nc net.Conn) syscall.RawConn {
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// late ends the unit if its client took longer than statement_timeout from one message of a statement
// to the next: PostgreSQL's clock runs from the first message after a Sync or an Execute.
func (x *session) late(now time.Time) error {
	if !x.unit.open || x.skip || x.unit.asked.IsZero() {
		return nil
	}
	limit := x.interrupts.statementTimeout(x.gucs.Settings)
	if limit == 0 || now.Sub(x.unit.asked) < limit {
		return nil
	}
	err := x.extended(sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to statement timeout"))
	for errors.Is(err, errAgain) {
		err = x.again(nil)
	}
	if err != nil {
		return x.broken(err)
	}
	return nil
}

// survive is deferred where a fault of the router's own must end one session
// only. x is nil before there is a session.
func (s *Server) survive(nc net.Conn, x *session) {
	fault := recover()
	if fault == nil {
		return
	}
	s.metrics.Panic()
	s.log.Error("a fault of the router ended a session", telemetry.KeyClient, nc.RemoteAddr(), "fault", fault, "stack", string(debug.Stack()))
	if x != nil {
		// First of all the shards learn that nothing more comes: they roll back.
		x.abandon()
	}
	s.metrics.Error(string(sqlstate.InternalError))
	e := sqlstate.New(sqlstate.InternalError, "a fault of the router ended this session").
		WithHint("an open transaction was rolled back; what was in flight outside of one may or may not have been done. The router's log says more: please report it")
	e.Severity = "FATAL"
	_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = nc.Write(wire.AppendError(nil, e)) // the last word; whether it arrives changes nothing
}

// abandon closes the shards' conversations of a session that cannot go on. It
// relies on nothing of the session's state and takes none of its locks.
func (x *session) abandon() {
	held, change := x.shards.holder.Conns(), x.tx.schema
	for _, c := range held {
		c.Break()
		_ = c.Close() // it is given up
	}
	for _, c := range []*executor.Conn{x.pipe.Conn, x.tx.conn} {
		if c != nil && !slices.Contains(held, c) { // the virtual database's, or one over several shards
			c.Break()
			_ = c.Close() // it is given up
		}
	}
	if change != nil {
		x.srv.rollBackAfter(change)
	}
	for _, c := range x.shards.holder.Conns() {
		c.Release()
	}
}

// rollBackAfter ends a schema change after a fault. It gives its conversations back by itself; closed ones are
// seen to be broken, and what they did is rolled back by their shards.
func (s *Server) rollBackAfter(change *schema.Tx) {
	defer func() {
		if fault := recover(); fault != nil {
			s.log.Error("a schema change could not be rolled back after a fault", "fault", fault)
		}
	}()
	ctx, stop := timeLeft()
	defer stop()
	change.Rollback(ctx)
}
