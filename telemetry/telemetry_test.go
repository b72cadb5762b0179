package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	s := httptest.NewServer(m.Handler())
	defer s.Close()
	res, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMetricsAreServed(t *testing.T) {
	m := New()
	s := m.Shard("shard-0")
	s.Statement(Read, OK, time.Millisecond)
	s.Statement(Write, Refused, time.Millisecond)
	s.Pool(3, 2, 1)
	s.Waited(false)
	s.Dialed(true)
	s.GuardRefused()
	m.Error("0A000")
	m.SessionOpened()
	m.Traffic(10, 20)
	m.MapVersion(7)
	out := scrape(t, m)
	for _, want := range []string{
		`cleave_statements_total{kind="read",result="ok",shard="shard-0"} 1`,
		`cleave_statements_total{kind="write",result="refused",shard="shard-0"} 1`,
		`cleave_statement_seconds_count{kind="read",shard="shard-0"} 1`,
		`cleave_statement_seconds_count{kind="write",shard="shard-0"} 0`,
		`cleave_pool_connections{shard="shard-0",state="idle"} 2`,
		`cleave_pool_waits_total{result="timeout",shard="shard-0"} 1`,
		`cleave_guard_refusals_total{shard="shard-0"} 1`,
		`cleave_errors_total{sqlstate="0A000"} 1`,
		`cleave_sessions 1`,
		`cleave_client_sent_bytes_total 20`,
		`cleave_map_version 7`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	m.Forget("shard-0")
	if out := scrape(t, m); strings.Contains(out, `shard="shard-0"`) {
		t.Error("a forgotten shard is still served")
	}
}

func TestLabelsAreBounded(t *testing.T) {
	m := New()
	for i := range ShardMax + 100 {
		m.Shard(fmt.Sprint("s", i)).GuardRefused()
	}
	for i := range CodeMax + 100 {
		m.Error(fmt.Sprint("c", i))
	}
	out := scrape(t, m)
	if n := strings.Count(out, "cleave_guard_refusals_total{"); n != ShardMax+1 {
		t.Errorf("%d shard labels, want %d", n, ShardMax+1)
	}
	if n := strings.Count(out, "cleave_errors_total{"); n != CodeMax+1 {
		t.Errorf("%d code labels, want %d", n, CodeMax+1)
	}
	if !strings.Contains(out, `cleave_guard_refusals_total{shard="other"} 100`) {
		t.Error("shards over the bound are not counted as other")
	}
}

func TestNilIsSilent(t *testing.T) {
	var m *Metrics
	m.Error("x")
	m.SessionOpened()
	m.Shard("x").Statement(Read, OK, 0)
	m.Shard("x").Pool(1, 1, 1)
	m.Forget("x")
}

func TestStatementDoesNotAllocate(t *testing.T) {
	s := New().Shard("a")
	if n := testing.AllocsPerRun(100, func() { s.Statement(Read, OK, time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	l, err := NewLog(&b, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	l.Info("no")
	l.Warn("yes", KeyShard, "shard-1")
	if s := b.String(); strings.Contains(s, `"no"`) || !strings.Contains(s, `"shard":"shard-1"`) {
		t.Errorf("log: %s", s)
	}
	if _, err := NewLog(&b, "xml", "warn"); err == nil {
		t.Error("format xml is accepted")
	}
	if _, err := NewLog(&b, "text", "loud"); err == nil {
		t.Error("level loud is accepted")
	}
	Log(nil).Error("dropped")
}
