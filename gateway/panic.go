package gateway

import (
	"net"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/schema"
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
