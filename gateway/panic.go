package gateway

import (
	"context"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

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
	c, bound, change := x.pipe.Conn, x.tx.conn, x.tx.schema
	if c != nil && change == nil {
		c.Break()
		_ = c.Close() // it is given up
		c.Release()
	}
	if bound != nil && change == nil && bound != c {
		bound.Break()
		_ = bound.Close() // it is given up
		bound.Release()
	}
	if change == nil {
		return
	}
	// The schema change gives its conversations back by itself; closed ones are
	// seen to be broken, and what they did is rolled back by their shards.
	defer func() {
		if fault := recover(); fault != nil {
			x.srv.log.Error("a schema change could not be rolled back after a fault", "fault", fault)
		}
	}()
	for _, c := range append(append(x.tx.lent.all(), x.tx.bound...), c, bound) {
		if c != nil {
			c.Break()
			_ = c.Close() // it is given up
		}
	}
	ctx, stop := timeLeft()
	defer stop()
	change.Rollback(ctx)
	if bound != nil && !slices.Contains(x.tx.bound, bound) {
		bound.Release()
	}
	for _, c := range x.tx.bound {
		c.Release()
	}
	if c != nil && c != bound && c.Shard() == virtualName {
		c.Release()
	}
}

// lent are conversations that a schema change has borrowed and not given back.
// Its zero value has none.
type lent struct{ *lending }

type lending struct {
	mu    sync.Mutex
	conns map[*executor.Conn]struct{}
}

type connect = func(ctx context.Context, shard string) (engine.Conn, func(broken bool), error)

// connect is borrow that keeps account.
func (l *lent) connect(borrow connect) connect {
	l.lending = &lending{conns: map[*executor.Conn]struct{}{}}
	in := l.lending
	return func(ctx context.Context, shard string) (engine.Conn, func(broken bool), error) {
		ec, release, err := borrow(ctx, shard)
		c, ok := ec.(*executor.Conn)
		if err != nil || !ok {
			return ec, release, err
		}
		in.mu.Lock()
		in.conns[c] = struct{}{}
		in.mu.Unlock()
		return ec, func(broken bool) {
			in.mu.Lock()
			delete(in.conns, c)
			in.mu.Unlock()
			release(broken)
		}, nil
	}
}

func (l *lent) all() []*executor.Conn {
	if l.lending == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}
