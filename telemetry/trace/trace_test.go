package trace

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/oteltest"
	"github.com/cleavedb/cleave/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parentText = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParseParent(t *testing.T) {
	p, ok := ParseParent(parentText)
	if !ok || p.String() != parentText || p.TraceID() != "4bf92f3577b34da6a3ce929d0e0e4736" || !p.sampled {
		t.Errorf("%v %v", p, ok)
	}
	if p, ok := ParseParent(strings.TrimSuffix(parentText, "1") + "0"); !ok || p.sampled || !strings.HasSuffix(p.String(), "-00") {
		t.Errorf("not sampled: %v %v", p, ok)
	}
	// A later version may say more.
	if _, ok := ParseParent("01" + parentText[2:] + "-more"); !ok {
		t.Error("version 01 is refused")
	}
	for _, bad := range []string{
		"", "00", parentText[:54], parentText + "-x", parentText + "0", "ff" + parentText[2:], "01" + parentText[2:] + "more",
		strings.ToUpper(parentText), strings.Replace(parentText, "-", "_", 1),
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
	} {
		if p, ok := ParseParent(bad); ok || !p.IsZero() {
			t.Errorf("%q is taken: %v", bad, p)
		}
	}
}

func TestCut(t *testing.T) {
	const comment = "/*action='x',traceparent='" + parentText + "',tracestate='a%3D1'*/"
	const plain = "/*traceparent='" + parentText + "'*/"
	for _, c := range []struct{ sql, rest string }{
		{"SELECT 1 " + comment, "SELECT 1"},
		{"SELECT 1 " + plain, "SELECT 1"},
		{"SELECT 1" + plain + " ; ", "SELECT 1"},
		{"SELECT 1;" + plain, "SELECT 1;"},
		{"SELECT '/*' " + plain, "SELECT '/*'"},
		{"SELECT 1 /* a */ " + plain, "SELECT 1 /* a */"},
		{plain, ""},
		{"SELECT 1 -- " + plain, "SELECT 1 --"}, // nothing is lost: it is a comment either way
	} {
		rest, p, ok := CutEnd([]byte(c.sql))
		if !ok || string(rest) != c.rest || p.String() != parentText {
			t.Errorf("%s: %q %v %v", c.sql, rest, p, ok)
		}
	}
	for _, sql := range []string{
		"", "*/", "/**/", "SELECT 1", "SELECT 1 /* a comment */", "SELECT 1 /*action='x'*/", "SELECT 1 /*traceparent='nonsense'*/",
		"SELECT 1 /*xtraceparent='" + parentText + "'*/", "SELECT 1 /*traceparent='" + parentText + "*/",
		"SELECT 1 /* /* */ traceparent='" + parentText + "'*/", plain + " SELECT 1", "SELECT 1 " + plain + " + 1",
	} {
		if rest, p, ok := CutEnd([]byte(sql)); ok || string(rest) != sql || !p.IsZero() {
			t.Errorf("%s: %q %v", sql, rest, p)
		}
	}
	if rest, p, ok := CutBegin([]byte(" " + comment + " SELECT 1")); !ok || string(rest) != "SELECT 1" || p.String() != parentText {
		t.Errorf("%q %v %v", rest, p, ok)
	}
	for _, sql := range []string{"", "SELECT 1", "/* a */ SELECT 1", "/*", "SELECT 1 " + plain, "/* /* x */ traceparent='" + parentText + "'*/ SELECT 1"} {
		if rest, _, ok := CutBegin([]byte(sql)); ok || string(rest) != sql {
			t.Errorf("%s: %q", sql, rest)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("SELECT 1 /*traceparent='" + parentText + "'*/")
	f.Add("/*traceparent='" + parentText + "'*/ SELECT 1")
	f.Fuzz(func(t *testing.T, sql string) {
		if rest, p, ok := CutEnd([]byte(sql)); !strings.HasPrefix(sql, string(rest)) || ok == p.IsZero() {
			t.Errorf("%q: %q %v %v", sql, rest, p, ok)
		}
		if rest, p, ok := CutBegin([]byte(sql)); !strings.HasSuffix(sql, string(rest)) || ok == p.IsZero() {
			t.Errorf("%q: %q %v %v", sql, rest, p, ok)
		}
	})
}

func TestComment(t *testing.T) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parentText})
	for _, c := range []struct{ sql, want string }{
		{"SELECT 1", "SELECT 1 /*traceparent='" + parentText + "'*/"},
		{"SELECT 1 ; ", "SELECT 1 /*traceparent='" + parentText + "'*/"},
		{"SELECT 1 /* mine */", "SELECT 1 /* mine */"},
	} {
		if got := Comment(ctx, c.sql); got != c.want {
			t.Errorf("%q", got)
		}
	}
	if got := Comment(context.Background(), "SELECT 1"); got != "SELECT 1" {
		t.Errorf("without a span: %q", got)
	}
}

func statement() *Statement {
	now := time.Now()
	return &Statement{
		Operation: "SELECT", Table: "orders", Shape: "SELECT * FROM orders WHERE id = $i", Plan: "one_shard", Shard: "shard-1", Keyspace: "k",
		Rows: 3, Count: 1, Tries: 1, Session: 7, Began: now.Add(-time.Millisecond), Ended: now,
		Parts: []Span{{Name: PartWait, Shard: "shard-1", Began: now.Add(-time.Millisecond), Ended: now.Add(-time.Microsecond)}, {Name: PartShard, Shard: "shard-1", Began: now, Ended: now}},
	}
}

func open(t *testing.T, url string, sample float64) (*Tracer, *telemetry.Metrics) {
	t.Helper()
	m := telemetry.New()
	tr, err := New(context.Background(), Options{Endpoint: url, Sample: sample, Version: "v1", Instance: "i", Interval: 20 * time.Millisecond, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	return tr, m
}

func spans(t *testing.T, m *telemetry.Metrics, result string) float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == "cleave_trace_spans_total" && s.GetLabel()[0].GetValue() == result {
				return s.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func TestSpansReachTheCollector(t *testing.T) {
	c := oteltest.Start(t)
	tr, m := open(t, c.URL, 1)
	p, _ := ParseParent(parentText)
	if id := tr.Emit(p, statement()); id != p.TraceID() {
		t.Errorf("trace %s", id)
	}
	s := statement()
	s.SQLState = "23505"
	if id := tr.Emit(Parent{}, s); id == p.TraceID() || len(id) != 32 {
		t.Errorf("trace %s", id)
	}
	if err := tr.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := c.Spans()
	if len(all) != 6 || spans(t, m, "ended") != 6 || spans(t, m, "exported") != 6 || spans(t, m, "failed") != 0 {
		t.Fatalf("%+v", all)
	}
	root := map[string]oteltest.Span{}
	for _, s := range all {
		if s.Name == "SELECT orders" {
			root[s.Trace] = s
		}
	}
	for _, s := range all {
		if s.Name != "SELECT orders" && s.Parent != root[s.Trace].ID {
			t.Errorf("%s is not under its statement", s.Name)
		}
	}
	r := root[p.TraceID()]
	if r.Parent != "00f067aa0ba902b7" || r.Kind != "SERVER" || r.Service != "cleave-router" || r.Error != "" ||
		r.Attributes["cleave.shard"] != "shard-1" || r.Attributes["db.response.returned_rows"] != int64(3) || r.Ended.Sub(r.Began) != time.Millisecond {
		t.Errorf("%+v", r)
	}
	delete(root, p.TraceID())
	for _, r := range root {
		if r.Parent != "" || r.Error != "SQLSTATE 23505" {
			t.Errorf("%+v", r)
		}
	}
}

func TestSampling(t *testing.T) {
	c := oteltest.Start(t)
	tr, _ := open(t, c.URL, 0.25)
	defer func() { _ = tr.Close(context.Background()) }()
	yes, _ := ParseParent(parentText)
	no, _ := ParseParent(parentText[:54] + "0")
	n := 0
	for range 10_000 {
		if !tr.Wants(yes) || tr.Wants(no) {
			t.Fatal("the parent's decision is not followed")
		}
		if tr.Wants(Parent{}) {
			n++
		}
	}
	if n < 2000 || n > 3000 {
		t.Errorf("%d of 10,000 are traced, at 0.25", n)
	}
	tr.SetSample(0)
	if tr.Wants(Parent{}) {
		t.Error("traced at 0")
	}
	tr.SetSample(1)
	if !tr.Wants(Parent{}) {
		t.Error("not traced at 1")
	}
	var none *Tracer
	none.SetSample(1)
	if none.Wants(yes) || none.Close(context.Background()) != nil {
		t.Error("nil is not silent")
	}
}

// TestACollectorThatHangsHoldsNobody: spans over the queue's bound are dropped,
// and the end waits no longer than it is told to.
func TestACollectorThatHangsHoldsNobody(t *testing.T) {
	c := oteltest.Start(t)
	c.Hold()
	tr, m := open(t, c.URL, 1)
	const n = 3 * QueueMax
	for range n {
		tr.Emit(Parent{}, statement())
	}
	if got := spans(t, m, "ended"); got != 3*n {
		t.Errorf("%v spans ended", got)
	}
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	if err := tr.Close(ctx); err == nil {
		t.Error("all was sent to a collector that hangs")
	}
	if got := spans(t, m, "exported"); got != 0 {
		t.Errorf("%v spans were sent", got)
	}
	c.Resume()
}

func TestNobodyListens(t *testing.T) {
	tr, m := open(t, "http://127.0.0.1:1", 1)
	tr.Emit(Parent{}, statement())
	ctx, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	_ = tr.Close(ctx)
	if got := spans(t, m, "exported"); got != 0 {
		t.Errorf("%v spans were sent to nobody", got)
	}
	for _, bad := range []string{"collector:4317", "ftp://x", "http://"} {
		if _, err := New(context.Background(), Options{Endpoint: bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func BenchmarkOff(b *testing.B) {
	var tr *Tracer
	sql := []byte("SELECT abalance FROM pgbench_accounts WHERE aid = 12345;")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := CutEnd(sql); ok || tr.Wants(Parent{}) {
			b.Fatal()
		}
	}
}

func BenchmarkEmit(b *testing.B) {
	tr := &Tracer{}
	provider := sdktrace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(context.Background()) }()
	tr.provider, tr.tracer = provider, provider.Tracer("")
	s := statement()
	b.ReportAllocs()
	for b.Loop() {
		tr.Emit(Parent{}, s)
	}
}

func ExampleComment() {
	// The context has the span of the caller, as otelhttp or your own code made it.
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parentText})
	fmt.Println(Comment(ctx, "SELECT * FROM orders WHERE tenant_id = 42"))
	// Output: SELECT * FROM orders WHERE tenant_id = 42 /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/
}
