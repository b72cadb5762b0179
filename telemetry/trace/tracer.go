package trace

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/cleavedb/cleave/telemetry"
)

// The bounds of what waits for the collector.
const (
	// QueueMax is how many spans may wait; further ones are dropped.
	QueueMax = 4096
	// BatchMax is how many are sent at once.
	BatchMax = 512
	// ExportMax bounds one attempt to send.
	ExportMax = 10 * time.Second
)

// Options are what a Tracer needs.
type Options struct {
	// Endpoint is the collector's OTLP/gRPC address: http://host:4317, or
	// https://host:4317 for TLS. "" leaves it to the standard variables
	// OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. The
	// other OTEL_EXPORTER_OTLP_ variables (headers, certificates) apply always.
	Endpoint string
	// Sample is the share of statements without a parent that are traced, 0 to 1.
	Sample float64
	// Version is the program's, Instance tells routers apart.
	Version, Instance string
	// Interval is how long spans wait for others to be sent with; 0 is 2 s.
	Interval time.Duration
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
}

// Tracer sends the spans of statements. Its methods are safe for concurrent use;
// a nil *Tracer traces nothing.
type Tracer struct {
	provider  *sdktrace.TracerProvider
	tracer    oteltrace.Tracer
	threshold atomic.Uint64 // of 63 random bits
	metrics   *telemetry.Metrics
	out       *counted
}

// CheckEndpoint says what is wrong with the address of a collector.
func CheckEndpoint(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("is not http://HOST:PORT or https://HOST:PORT")
	}
	return nil
}

// New makes a Tracer. It connects when the first spans are sent, and again
// whenever the connection is lost. Close must follow.
func New(ctx context.Context, o Options) (*Tracer, error) {
	var opts []otlptracegrpc.Option
	if o.Endpoint != "" {
		if err := CheckEndpoint(o.Endpoint); err != nil {
			return nil, fmt.Errorf("trace: the collector's address %s", err)
		}
		opts = append(opts, otlptracegrpc.WithEndpointURL(o.Endpoint))
	}
	opts = append(opts, otlptracegrpc.WithTimeout(ExportMax))
	exporter, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if o.Interval <= 0 {
		o.Interval = 2 * time.Second
	}
	res := resource.NewSchemaless(
		attribute.String("service.name", "cleave-router"),
		attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Instance),
	)
	t := &Tracer{metrics: o.Metrics, out: &counted{SpanExporter: exporter, metrics: o.Metrics, log: telemetry.Log(o.Log), done: make(chan struct{})}}
	t.out.ctx, t.out.give = context.WithCancel(context.Background())
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Wants has decided
		sdktrace.WithBatcher(t.out,
			sdktrace.WithMaxQueueSize(QueueMax), sdktrace.WithMaxExportBatchSize(BatchMax),
			sdktrace.WithBatchTimeout(o.Interval), sdktrace.WithExportTimeout(ExportMax)),
	)
	t.tracer = t.provider.Tracer("github.com/cleavedb/cleave")
	t.SetSample(o.Sample)
	return t, nil
}

// SetSample changes the share of statements without a parent that are traced.
func (t *Tracer) SetSample(ratio float64) {
	if t == nil {
		return
	}
	ratio = min(max(ratio, 0), 1)
	if ratio == 1 {
		t.threshold.Store(math.MaxUint64)
		return
	}
	t.threshold.Store(uint64(ratio * (1 << 63)))
}

// Wants decides whether a statement is traced: as its parent is, or by chance.
func (t *Tracer) Wants(p Parent) bool {
	switch {
	case t == nil:
		return false
	case !p.IsZero():
		return p.sampled
	}
	return rand.Uint64()>>1 < t.threshold.Load()
}

// Close sends what waits, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	err := t.provider.Shutdown(ctx)
	// What is under way ends now; the library would let it go on.
	t.out.give()
	<-t.out.done
	if err != nil {
		return fmt.Errorf("trace: the last spans were not sent: %w", err)
	}
	return nil
}

// Span is a part of a statement's time, for Statement.
type Span struct {
	Name         string
	Began, Ended time.Time
	Shard        string
	Error        string // what went wrong, "" if nothing did; no data in it
}

// Statement is a statement that has ended. Shape has no literals.
type Statement struct {
	Operation    string // SELECT, COMMIT
	Table        string // that it is about, if there is one
	Shape        string
	Began, Ended time.Time
	Plan         string
	Shard        string // "": the router answered
	Keyspace     string
	SQLState     string // "" if it went well
	Rows         int64  // -1: not known
	Count        int    // statements sent together
	Tries        int    // how often it ran
	Session      uint32
	Parts        []Span // waiting, what ran on shards, attempts that were run again
}

// Emit makes the spans of a statement that Wants has chosen, and returns the id
// of its trace. It never waits.
func (t *Tracer) Emit(p Parent, s *Statement) (traceID string) {
	ctx := context.Background()
	if !p.IsZero() {
		ctx = oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: p.trace, SpanID: p.span, TraceFlags: oteltrace.FlagsSampled, Remote: true,
		}))
	}
	name := s.Operation
	if s.Table != "" {
		name += " " + s.Table
	}
	attrs := []attribute.KeyValue{
		attribute.String("db.system.name", "cleave"),
		attribute.String("db.operation.name", s.Operation),
		attribute.String("db.query.text", s.Shape),
		attribute.String("cleave.plan", s.Plan),
		attribute.Int64("cleave.session", int64(s.Session)),
	}
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, attribute.String(key, value))
		}
	}
	text("db.collection.name", s.Table)
	text("cleave.shard", s.Shard)
	text("cleave.keyspace", s.Keyspace)
	text("db.response.status_code", s.SQLState)
	if s.Rows >= 0 {
		attrs = append(attrs, attribute.Int64("db.response.returned_rows", s.Rows))
	}
	if s.Count > 1 {
		attrs = append(attrs, attribute.Int("db.operation.batch.size", s.Count))
	}
	if s.Tries > 1 {
		attrs = append(attrs, attribute.Int("cleave.tries", s.Tries))
	}
	ctx, span := t.tracer.Start(ctx, name, oteltrace.WithTimestamp(s.Began), oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(attrs...))
	if s.SQLState != "" {
		span.SetStatus(codes.Error, "SQLSTATE "+s.SQLState)
	}
	n := 1
	for _, c := range s.Parts {
		kind := oteltrace.SpanKindInternal
		if c.Shard != "" && c.Name != PartWait {
			kind = oteltrace.SpanKindClient
		}
		_, part := t.tracer.Start(ctx, c.Name, oteltrace.WithTimestamp(c.Began), oteltrace.WithSpanKind(kind), oteltrace.WithAttributes(attribute.String("cleave.shard", c.Shard)))
		if c.Error != "" {
			part.SetStatus(codes.Error, c.Error)
		}
		part.End(oteltrace.WithTimestamp(c.Ended))
		n++
	}
	span.End(oteltrace.WithTimestamp(s.Ended))
	t.metrics.Spans("ended", n)
	return span.SpanContext().TraceID().String()
}

// The names of a statement's parts.
const (
	PartWait    = "cleave.wait"    // for a connection to the shard
	PartShard   = "cleave.shard"   // from sending to the shard to its last answer
	PartAttempt = "cleave.attempt" // the same, of a try that was run again
)

// counted counts what an exporter does, and logs when it begins and ceases to fail.
type counted struct {
	sdktrace.SpanExporter
	metrics *telemetry.Metrics
	log     *slog.Logger
	failing bool // one goroutine exports

	ctx  context.Context // ends when nobody waits for what is not sent yet
	give context.CancelFunc
	done chan struct{} // closed when the exporter is
}

// Shutdown implements sdktrace.SpanExporter: the last call.
func (c *counted) Shutdown(ctx context.Context) error {
	defer close(c.done)
	return c.SpanExporter.Shutdown(ctx)
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.metrics.Spans("failed", len(spans))
		if !c.failing {
			c.log.Warn("spans cannot be sent to the collector; they are dropped until it answers", telemetry.KeyError, err)
		}
	} else {
		c.metrics.Spans("exported", len(spans))
		if c.failing {
			c.log.Info("spans are sent to the collector again")
		}
	}
	c.failing = err != nil
	return nil // told; the library would write it to stderr
}
