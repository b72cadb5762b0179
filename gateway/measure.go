package gateway

import (
	"errors"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/heat"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// measure is what a session notes of the statement that runs, for metrics, the
// log of slow statements and traces. Its goroutine alone touches it.
type measure struct {
	// st is the last statement of what is sent; nil: only descriptions are asked for.
	st *planner.Statement
	// ran is how many statements are sent.
	ran int
	// cell is where the time of a routed statement is counted for its range; nil: nowhere.
	cell *heat.Cell
	// waited is the time spent on getting a conversation: waiting for one that
	// is free, connecting, making settings.
	waited time.Duration
	// waitFrom is when that began first.
	waitFrom time.Time
	// parent is the client's span, as the prepared statement's text has it.
	parent trace.Parent
	// attempts are those that are run again; kept for traces only.
	attempts []trace.Span
}

// runs notes that a statement is sent to pipe.Conn, or answered by the router.
func (m *measure) runs(st *planner.Statement) {
	m.st = st
	m.ran++
}

// class is what the statement counts as.
func (m *measure) class() telemetry.Class {
	if m.st == nil {
		return 0
	}
	return telemetry.Class(m.st.Class)
}

// got notes how long the session waited for a conversation.
func (m *measure) got(since time.Time) {
	m.waited += time.Since(since)
	if m.waitFrom.IsZero() {
		m.waitFrom = since
	}
}

// measured counts a conversation with a shard (or the virtual database) that has
// ended: the one place where that is done. What follows in the same batch of the
// client's messages is timed from now.
func (x *session) measured(c *executor.Conn, o executor.Outcome, err error) {
	m, class := c.Metrics(), x.m.class()
	if x.virtual() || onSeveral(c) {
		m = x.srv.router
	}
	if err == nil && o.Err == nil {
		now := time.Now()
		took := now.Sub(x.unit.began)
		m.Done(class, x.m.ran, took)
		x.m.cell.Took(took)
		x.told(c, o, now, took)
		x.unit.began, x.m = now, measure{}
		return
	}
	var gone *clientGone
	code := ""
	switch {
	case errors.As(err, &gone):
		x.m = measure{}
		return
	case err != nil, o.Err.Severity == "FATAL", o.Err.Severity == "PANIC":
		// It may be run again: the time goes on.
		m.Not(class, telemetry.Lost)
		m.Error(string(sqlstate.CannotConnectNow))
		x.attempt(c, "the connection was lost")
		return
	case o.Err.Code == sqlstate.NotOwner:
		m.GuardRefused()
		x.attempt(c, "the shard does not own the key")
		return
	default:
		code = string(o.Err.Code)
		x.srv.metrics.Refusal(string(o.Err.ID))
	}
	now := time.Now()
	took := now.Sub(x.unit.began)
	m.Failed(class, code, took)
	x.told(c, o, now, took)
	x.unit.began, x.m = now, measure{}
}

// retried counts that the unit is run again.
func (x *session) retried(shard string) {
	x.srv.metrics.Shard(shard).Not(x.m.class(), telemetry.Retried)
}

// answered counts a statement that the router itself has answered.
func (x *session) answered(st *planner.Statement, began time.Time) {
	now := time.Now()
	took := now.Sub(began)
	x.srv.router.Done(telemetry.Class(st.Class), 1, took)
	x.toldLocal(st, began, took)
	x.unit.began, x.m = now, measure{}
}

// attemptsMax bounds what is kept of attempts; the limits of retries are lower.
const attemptsMax = 16

// attempt notes a try that may be run again.
func (x *session) attempt(c *executor.Conn, what string) {
	x.m.ran = 0
	if x.srv.tracer != nil && len(x.m.attempts) < attemptsMax {
		x.m.attempts = append(x.m.attempts, trace.Span{
			Name: trace.PartAttempt, Began: time.Unix(0, x.pipe.Sent()), Ended: time.Now(), Shard: c.Shard(), Error: what,
		})
	}
}

// refused counts an error of the router's own, which fail tells the client.
func (x *session) refused(e *sqlstate.Error) {
	now := time.Now()
	if took := now.Sub(x.unit.began); x.notable(took) {
		x.tell(&report{st: x.m.st, ran: x.m.ran, shard: e.Shard, began: x.unit.began, took: took, rows: -1, sqlstate: string(e.Code), refusal: string(e.ID)})
	}
	x.unit.began = now
	x.srv.metrics.Refusal(string(e.ID))
	if e.Shard != "" {
		x.srv.metrics.ShardError(e.Shard, string(e.Code))
	}
	x.srv.router.Not(x.m.class(), telemetry.Refused)
	x.m = measure{}
}

// countText counts a statement that goes as its text came for the load of its range.
func (x *session) countText(snap *shardmap.Snapshot, st *planner.Statement, r *planner.Route, sql []byte) {
	var named bool
	if x.m.cell, named = x.srv.ex.Count(snap, r); named {
		if key := x.srv.ex.TextKey(&x.shaper, st, sql); key != nil {
			x.srv.ex.Named(st.Keyspace, key)
		}
	}
}
