// Package stats counts a session's statements, logs the slow ones and makes spans of them.
//
// A Session is told what a unit of the client sends (Runs), waits for (Waited) and gets (Done, Attempt, Refused, Answered).
// Each statement is counted once: where its conversation with a shard ends.
package stats

import (
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/heat"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// Session is what is noted of a session's statement that runs. The session's goroutine alone touches it.
type Session struct {
	to      *Sinks
	who     Who
	setting func() trace.Parent // the client's span, as a setting has it

	// Began is when the statement that runs began, and Tries how often its unit was run before.
	Began time.Time
	Tries int
	// Unit is the client's span, as a simple query's text has it.
	Unit trace.Parent
	Statement
}

// Who is the session in lines and spans.
type Who struct {
	Session     uint32 // see Numbered
	User        string
	Application func() string
}

// Statement is what is noted until the statement ends.
type Statement struct {
	// Last is the last statement of what is sent; nil: only descriptions are asked for.
	Last *plan.Statement
	// Ran is how many statements are sent.
	Ran int
	// Cell is where the time of a routed statement is counted for its range; nil: nowhere.
	Cell *heat.Cell
	// Parent is the client's span, as the prepared statement's text has it.
	Parent trace.Parent
	// waited is the time spent on getting a conversation: waiting for one that
	// is free, connecting, making settings. waitFrom is when that began first.
	waited   time.Duration
	waitFrom time.Time
	// attempts are those that are run again; kept for traces only.
	attempts []trace.Span
}

// Session makes what is noted of one. setting is asked for the client's span where no text has one.
func (k *Sinks) Session(who Who, setting func() trace.Parent) Session {
	return Session{to: k, who: who, setting: setting}
}

// Numbered gives the session its number.
func (s *Session) Numbered(id uint32) { s.who.Session = id }

// BeginUnit forgets what belongs to the unit before.
func (s *Session) BeginUnit() { s.Tries, s.Unit = 0, trace.Parent{} }

// Runs notes that a statement is sent to a shard, or answered by the router.
func (s *Session) Runs(st *plan.Statement) {
	s.Last = st
	s.Ran++
}

// class is what the statement counts as.
func (s *Session) class() telemetry.Class {
	if s.Last == nil {
		return 0
	}
	return telemetry.Class(s.Last.Class)
}

// Waited notes how long the session waited for a conversation.
func (s *Session) Waited(since time.Time) {
	s.waited += time.Since(since)
	if s.waitFrom.IsZero() {
		s.waitFrom = since
	}
}

// Done counts a conversation with a shard, or with the router's own database, that has ended: the one place where that is
// done. What follows in the same batch of the client's messages is timed from now. own: no one shard has run it.
func (s *Session) Done(p *executor.Pipeline, c *executor.Conn, own bool, o executor.Outcome, err error) {
	m, class := c.Metrics(), s.class()
	if own {
		m = s.to.Router
	}
	code := ""
	switch {
	case err == nil && o.Err == nil:
		now := time.Now()
		took := now.Sub(s.Began)
		m.Done(class, s.Ran, took)
		s.Cell.Took(took)
		s.told(p, c, own, o, took)
		s.Began, s.Statement = now, Statement{}
		return
	case err != nil, o.Err.Severity == "FATAL", o.Err.Severity == "PANIC":
		// It may be run again: the time goes on.
		m.Not(class, telemetry.Lost)
		m.Error(string(sqlstate.CannotConnectNow))
		s.attempt(p, c, "the connection was lost")
		return
	case o.Err.Code == sqlstate.NotOwner:
		m.GuardRefused()
		s.attempt(p, c, "the shard does not own the key")
		return
	default:
		code = string(o.Err.Code)
		s.to.Metrics.Refusal(string(o.Err.ID))
	}
	now := time.Now()
	took := now.Sub(s.Began)
	m.Failed(class, code, took)
	s.told(p, c, own, o, took)
	s.Began, s.Statement = now, Statement{}
}

// Gone forgets the statement of a client that is gone.
func (s *Session) Gone() { s.Statement = Statement{} }

// Retried counts that the unit is run again.
func (s *Session) Retried(shard string) {
	s.to.Metrics.Shard(shard).Not(s.class(), telemetry.Retried)
}

// Answered counts a statement that the router itself has answered.
func (s *Session) Answered(st *plan.Statement, began time.Time) {
	now := time.Now()
	took := now.Sub(began)
	s.to.Router.Done(telemetry.Class(st.Class), 1, took)
	if s.to.notable(took) {
		s.tell(&report{st: st, ran: 1, began: began, took: took, rows: -1})
	}
	s.Began, s.Statement = now, Statement{}
}

// attemptsMax bounds what is kept of attempts; the limits of retries are lower.
const attemptsMax = 16

// attempt notes a try that may be run again.
func (s *Session) attempt(p *executor.Pipeline, c *executor.Conn, what string) {
	s.Ran = 0
	if s.to.Tracer != nil && len(s.attempts) < attemptsMax {
		s.attempts = append(s.attempts, trace.Span{
			Name: trace.PartAttempt, Began: time.Unix(0, p.Sent()), Ended: time.Now(), Shard: c.Shard(), Error: what,
		})
	}
}

// Refused counts an error of the router's own, which the client is told.
func (s *Session) Refused(e *sqlstate.Error) {
	now := time.Now()
	if took := now.Sub(s.Began); s.to.notable(took) {
		s.tell(&report{st: s.Last, ran: s.Ran, shard: e.Shard, began: s.Began, took: took, rows: -1, sqlstate: string(e.Code), refusal: string(e.ID)})
	}
	s.Began = now
	s.to.Metrics.Refusal(string(e.ID))
	if e.Shard != "" {
		s.to.Metrics.ShardError(e.Shard, string(e.Code))
	}
	s.to.Router.Not(s.class(), telemetry.Refused)
	s.Statement = Statement{}
}

// told deals with a statement that has ended on a shard. The common case ends
// with the first line.
func (s *Session) told(p *executor.Pipeline, c *executor.Conn, own bool, o executor.Outcome, took time.Duration) {
	if !s.to.notable(took) {
		return
	}
	bytes, tag := p.Received()
	r := report{
		st: s.Last, ran: s.Ran, shard: c.Shard(), began: s.Began, took: took,
		sent: time.Unix(0, p.Sent()), rows: rowsOf(tag), bytes: bytes,
	}
	if own {
		r.shard = ""
	}
	if sev, ok := c.Conn.(*several.Conn); ok {
		r.shards = joined(sev.Shards())
	}
	if o.Err != nil {
		r.sqlstate, r.refusal = string(o.Err.Code), string(o.Err.ID)
	}
	s.tell(&r)
}

// parent is the client's span: in the statement's text, or as the session has it.
func (s *Session) parent() trace.Parent {
	switch {
	case !s.Parent.IsZero():
		return s.Parent
	case !s.Unit.IsZero():
		return s.Unit
	}
	return s.setting()
}

// tell makes the spans and the line of a statement, if they are wanted.
func (s *Session) tell(r *report) {
	parent := s.parent()
	id := parent.TraceID()
	if s.to.Tracer.Wants(parent) {
		id = s.emit(parent, r)
	}
	if s.to.IsSlow(r.took) {
		s.logSlow(r, id)
	}
}
