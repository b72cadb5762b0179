package oteltest

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span that was received.
type Span struct {
	Name, Trace, ID, Parent string // ids in hexadecimal; Parent is "" without one
	Service                 string
	Kind                    string // "SERVER", "CLIENT", "INTERNAL"
	Attributes              map[string]any
	Error                   string // "" if its status is no error
	Began, Ended            time.Time
}

// Collector receives spans.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	// URL is what a tracer is told.
	URL string

	mu    sync.Mutex
	spans []Span
	hold  chan struct{} // while it is not nil, requests wait for it to be closed
}

// Start starts a collector that ends with the test.
func Start(tb testing.TB) *Collector {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Collector{URL: "http://" + l.Addr().String()}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Stop
	}()
	tb.Cleanup(func() {
		c.Resume()
		s.Stop()
		<-done
	})
	return c
}

// Export implements the service.
func (c *Collector) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		service, _ := attributes(r.GetResource().GetAttributes())["service.name"].(string)
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, received(service, s))
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func received(service string, s *otlp.Span) Span {
	out := Span{
		Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Service: service, Kind: s.GetKind().String()[len("SPAN_KIND_"):], Attributes: attributes(s.GetAttributes()),
		Began: time.Unix(0, int64(s.GetStartTimeUnixNano())), Ended: time.Unix(0, int64(s.GetEndTimeUnixNano())),
	}
	if s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
		out.Error = s.GetStatus().GetMessage()
		if out.Error == "" {
			out.Error = "error"
		}
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = v.IntValue
		default:
			out[kv.GetKey()] = kv.GetValue().String()
		}
	}
	return out
}

// Hold makes requests wait until Resume, as those of a collector that hangs do.
func (c *Collector) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold == nil {
		c.hold = make(chan struct{})
	}
}

// Resume ends Hold.
func (c *Collector) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold != nil {
		close(c.hold)
		c.hold = nil
	}
}

// Spans returns what was received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Await waits until there are n spans that match, and returns them in the order
// in which they came.
func (c *Collector) Await(tb testing.TB, n int, match func(Span) bool) []Span {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var found []Span
		for _, s := range c.Spans() {
			if match(s) {
				found = append(found, s)
			}
		}
		if len(found) >= n {
			return found
		}
		if time.Now().After(end) {
			tb.Fatalf("%d spans of %d came; all: %+v", len(found), n, c.Spans())
		}
	}
}
