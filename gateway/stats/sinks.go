package stats

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
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// Sinks are what is told of statements: a router's.
type Sinks struct {
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Router  *telemetry.Shard // statements that no shard ran
	Tracer  *trace.Tracer    // nil: nothing is traced
	slow    slowLog
}

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

// SetSlow has statements that take at least d logged; 0 turns that off. It may be called at any time.
func (k *Sinks) SetSlow(d time.Duration) {
	if d <= 0 {
		d = math.MaxInt64
	}
	k.slow.at.Store(int64(d))
}

// IsSlow reports whether a statement that took so long is logged.
func (k *Sinks) IsSlow(took time.Duration) bool { return int64(took) >= k.slow.at.Load() }

// notable reports whether anybody wants to hear of a statement: the common case
// is that nobody does.
func (k *Sinks) notable(took time.Duration) bool { return k.IsSlow(took) || k.Tracer != nil }

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
	st       *plan.Statement
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

func (s *Session) emit(parent trace.Parent, r *report) (id string) {
	sp := trace.Statement{
		Operation: "Parse", Shape: shapeOf(r.st), Plan: planOf(r.st), Shard: r.shard, SQLState: r.sqlstate, Rows: r.rows,
		Count: r.ran, Tries: s.Tries + 1, Session: s.who.Session, Began: r.began, Ended: r.began.Add(r.took), Parts: s.attempts,
	}
	if r.st != nil {
		sp.Operation, sp.Keyspace = r.st.Tag, r.st.Keyspace
		if len(r.st.Tables) == 1 {
			sp.Table = r.st.Tables[0].Name
		}
	}
	if s.waited > 0 {
		sp.Parts = append(sp.Parts, trace.Span{Name: trace.PartWait, Shard: r.shard, Began: s.waitFrom, Ended: s.waitFrom.Add(s.waited)})
	}
	if r.shards != "" {
		sp.Shard = r.shards
	}
	if !r.sent.IsZero() {
		part := trace.Span{Name: trace.PartShard, Shard: r.shard, Began: r.sent, Ended: sp.Ended}
		if r.sqlstate != "" {
			part.Error = "SQLSTATE " + r.sqlstate
		}
		sp.Parts = append(sp.Parts, part)
	}
	return s.to.Tracer.Emit(parent, &sp)
}

func (s *Session) logSlow(r *report, traceID string) {
	suppressed, ok := s.to.slow.take(time.Now())
	s.to.Metrics.Slow(ok)
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
	attrs = append(attrs, slog.Float64("total_ms", ms(r.took)), slog.Float64("wait_ms", ms(s.waited)), slog.Float64("shard_ms", ms(onShard)))
	if r.rows >= 0 {
		attrs = append(attrs, slog.Int64("rows", r.rows))
	}
	attrs = append(attrs, slog.Int("bytes", r.bytes))
	if r.ran > 1 {
		attrs = append(attrs, slog.Int("statements", r.ran))
	}
	if s.Tries > 0 {
		attrs = append(attrs, slog.Int("tries", s.Tries+1))
	}
	text(telemetry.KeySQLState, r.sqlstate)
	text(telemetry.KeyRefusal, r.refusal)
	attrs = append(attrs, slog.Uint64(telemetry.KeySession, uint64(s.who.Session)))
	text("user", s.who.User)
	text("application", s.who.Application())
	text("trace", traceID)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	s.to.Log.LogAttrs(context.Background(), slog.LevelWarn, "slow statement", attrs...)
}

// planOf names the statement's kind of plan.
func planOf(st *plan.Statement) string {
	if st == nil {
		return telemetry.Prepare.String()
	}
	return executor.PlanOf(st).String()
}

// shapeOf is the statement's text without its literals.
func shapeOf(st *plan.Statement) string {
	if st == nil {
		return "(Parse, Describe)"
	}
	shape := st.Shape
	if shape == "" {
		shape, _, _ = sqltext.Normalize(st.Text)
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

func joined(shards []string) string { return strings.Join(shards, ",") }

func ms(d time.Duration) float64 { return float64(max(d, 0).Microseconds()) / 1000 }
