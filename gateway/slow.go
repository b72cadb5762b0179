package gateway

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// slowLinesMax bounds the lines about slow statements in one second.
const slowLinesMax = 10

// shapeMax bounds a statement's shape in a log line or a span, bytes.
const shapeMax = 2000

// slowLog decides which statements are logged as slow.
type slowLog struct {
	at atomic.Int64 // nanoseconds from which a statement is slow

	mu         sync.Mutex
	second     int64
	lines      int
	suppressed int
}

// SetSlow has statements that take at least d logged; 0 turns that off. It may
// be called at any time.
func (s *Server) SetSlow(d time.Duration) {
	if d <= 0 {
		d = math.MaxInt64
	}
	s.slow.at.Store(int64(d))
}

// take reports whether a line may be written now, and how many were not since
// the last one.
func (l *slowLog) take(now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.lines = s, 0
	}
	if l.lines >= slowLinesMax {
		l.suppressed++
		return 0, false
	}
	l.lines++
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}

// report is what is known of a statement that has ended.
type report struct {
	st       *planner.Statement
	ran      int
	shard    string // "" is the router itself
	shards   string // those that take part, where there are several
	began    time.Time
	took     time.Duration
	sent     time.Time // to the shard; zero: nothing was
	rows     int64     // -1: not known
	bytes    int       // of the shard's answers
	sqlstate string    // "" if it went well
	refusal  string    // the id, "" if it was none
}

// told deals with a statement that has ended on a shard. The common case ends
// with the first line.
func (x *session) told(c *executor.Conn, o executor.Outcome, now time.Time, took time.Duration) {
	if !x.notable(took) {
		return
	}
	bytes, tag := x.pipe.Received()
	r := report{
		st: x.m.st, ran: x.m.ran, shard: c.Shard(), began: x.unit.began, took: took,
		sent: time.Unix(0, x.pipe.Sent()), rows: rowsOf(tag), bytes: bytes,
	}
	if x.virtual() {
		r.shard = ""
	}
	if sev, ok := c.Conn.(*several.Conn); ok {
		r.shard, r.shards = "", strings.Join(sev.Shards(), ",")
	}
	if o.Err != nil {
		r.sqlstate, r.refusal = string(o.Err.Code), string(o.Err.ID)
	}
	x.tell(&r)
}

// notable reports whether anybody wants to hear of a statement: the common case
// is that nobody does.
func (x *session) notable(took time.Duration) bool {
	return int64(took) >= x.srv.slow.at.Load() || x.srv.tracer != nil
}

// traceparentSetting is the client's span, as W3C Trace Context writes it; one
// of the router's own settings.
const traceparentSetting = "cleave.traceparent"

// parent is the client's span: in the statement's text, or as the session has it.
func (x *session) parent() trace.Parent {
	switch {
	case !x.m.parent.IsZero():
		return x.m.parent
	case !x.unit.parent.IsZero():
		return x.unit.parent
	}
	v, ok := x.settings.Get(traceparentSetting)
	if !ok {
		return trace.Parent{}
	}
	p, _ := trace.ParseParent(unquoted(v)) // it was checked
	return p
}

// tell makes the spans and the line of a statement, if they are wanted.
func (x *session) tell(r *report) {
	parent := x.parent()
	id := parent.TraceID()
	if x.srv.tracer.Wants(parent) {
		id = x.emit(parent, r)
	}
	if int64(r.took) >= x.srv.slow.at.Load() {
		x.logSlow(r, id)
	}
}

func (x *session) emit(parent trace.Parent, r *report) (id string) {
	s := trace.Statement{
		Operation: "Parse", Shape: shapeOf(r.st), Plan: planOf(r.st), Shard: r.shard, SQLState: r.sqlstate, Rows: r.rows,
		Count: r.ran, Tries: x.unit.tries + 1, Session: x.pid, Began: r.began, Ended: r.began.Add(r.took), Parts: x.m.attempts,
	}
	if r.st != nil {
		s.Operation, s.Keyspace = r.st.Tag, r.st.Keyspace
		if len(r.st.Tables) == 1 {
			s.Table = r.st.Tables[0].Name
		}
	}
	if x.m.waited > 0 {
		s.Parts = append(s.Parts, trace.Span{Name: trace.PartWait, Shard: r.shard, Began: x.m.waitFrom, Ended: x.m.waitFrom.Add(x.m.waited)})
	}
	if r.shards != "" {
		s.Shard = r.shards
	}
	if !r.sent.IsZero() {
		part := trace.Span{Name: trace.PartShard, Shard: r.shard, Began: r.sent, Ended: s.Ended}
		if r.sqlstate != "" {
			part.Error = "SQLSTATE " + r.sqlstate
		}
		s.Parts = append(s.Parts, part)
	}
	return x.srv.tracer.Emit(parent, &s)
}

// toldLocal is told for a statement that the router itself answered.
func (x *session) toldLocal(st *planner.Statement, began time.Time, took time.Duration) {
	if x.notable(took) {
		x.tell(&report{st: st, ran: 1, began: began, took: took, rows: -1})
	}
}

func (x *session) logSlow(r *report, traceID string) {
	suppressed, ok := x.srv.slow.take(time.Now())
	x.srv.metrics.Slow(ok)
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String(telemetry.KeyShape, shapeOf(r.st)),
		slog.String("plan", planOf(r.st)),
	}
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text(telemetry.KeyShard, r.shard)
	text("shards", r.shards)
	if r.shards != "" && r.st != nil && r.st.Plan != nil {
		text("operation", r.st.Plan.Op.String())
		text("why", r.st.Plan.Why)
	}
	onShard := time.Duration(0)
	if !r.sent.IsZero() {
		onShard = r.began.Add(r.took).Sub(r.sent)
	}
	if r.st != nil {
		text("keyspace", r.st.Keyspace)
	}
	attrs = append(attrs, slog.Float64("total_ms", ms(r.took)), slog.Float64("wait_ms", ms(x.m.waited)), slog.Float64("shard_ms", ms(onShard)))
	if r.rows >= 0 {
		attrs = append(attrs, slog.Int64("rows", r.rows))
	}
	attrs = append(attrs, slog.Int("bytes", r.bytes))
	if r.ran > 1 {
		attrs = append(attrs, slog.Int("statements", r.ran))
	}
	if x.unit.tries > 0 {
		attrs = append(attrs, slog.Int("tries", x.unit.tries+1))
	}
	text(telemetry.KeySQLState, r.sqlstate)
	text(telemetry.KeyRefusal, r.refusal)
	attrs = append(attrs, slog.Uint64(telemetry.KeySession, uint64(x.pid)))
	text("user", x.start.User)
	if p := x.application.Load(); p != nil {
		text("application", *p)
	}
	text("trace", traceID)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	x.srv.log.LogAttrs(context.Background(), slog.LevelWarn, "slow statement", attrs...)
}

// planOf names the statement's kind of plan.
func planOf(st *planner.Statement) string {
	if st == nil {
		return telemetry.Prepare.String()
	}
	return executor.PlanOf(st).String()
}

// shapeOf is the statement's text without its literals.
func shapeOf(st *planner.Statement) string {
	if st == nil {
		return "(Parse, Describe)"
	}
	shape := st.Shape
	if shape == "" {
		shape, _, _ = planner.Normalize(st.Text)
	}
	if shape == "" {
		shape = st.Tag
	}
	if len(shape) > shapeMax {
		shape = strings.ToValidUTF8(shape[:shapeMax], "") + "…"
	}
	return shape
}

// rowsOf reads the number of rows at the end of a command tag, -1 if there is none.
func rowsOf(tag string) int64 {
	n, err := strconv.ParseInt(tag[strings.LastIndexByte(tag, ' ')+1:], 10, 64)
	if err != nil {
		return -1
	}
	return n
}
