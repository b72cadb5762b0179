package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
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

// served is what a registry serves, by the name of the metric.
func served(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// exercise gives every metric a sample.
func exercise(m *Metrics) {
	m.Load(map[string]float64{"shard-9": 12.5}, []RangeLoad{{"orders", "[0,)", "shard-9", 12.5, 0.25}})
	m.Refusal("CLV-0001")
	m.Refusal("") // none
	m.HoldBegan("orders").Ended(time.Second)
	m.HoldBegan("orders")
	m.Hush(HushWhole)
	m.Silent(time.Millisecond)
	s := m.Shard("shard-0")
	read, write := m.Class("customers", OneShard, false), m.Class("customers", OneShard, true)
	s.Done(read, 1, time.Millisecond)
	s.Done(read, 3, 70*time.Second)
	s.Failed(read, "23505", 2*time.Millisecond)
	s.Not(write, Refused)
	s.Not(write, Lost)
	s.Not(write, OK) // not one of its results
	s.Error("57P03")
	s.Pool(true, 3, 2, 1)
	s.State(ReadOnly)
	s.Waited(time.Millisecond, false)
	s.Dialed(true)
	s.GuardRefused()
	m.Shard("").Done(m.Class("", Control, false), 1, 0)
	m.Error("0A000")
	m.Limits(32, 1000)
	m.SessionOpened()
	m.Traffic(10, 20)
	m.MapVersion(7)
	m.Slow(false)
	m.Spans("ended", 3)
	m.Lease(func() (time.Duration, bool) { return 3 * time.Second, true })
	m.Serving(func() bool { return true })
	m.Leader(func() bool { return false })
	m.Stuck(func() time.Duration { return 0 })
	m.Data(func() (uint64, uint64, bool) { return 10, 90, true })
	m.Replica("shard-0", 1, true, 512, 2*time.Second)
	m.Failover("shard-0")
	m.Failover("no shard of the map")
	m.Transaction(Committed)
	m.Settled(RolledBack)
	m.InDoubt(2)
	m.Deadlock()
}

func TestMetricsAreServed(t *testing.T) {
	m := New()
	exercise(m)
	out := scrape(t, m)
	const labels = `keyspace="customers",plan="one_shard"`
	for _, want := range []string{
		`cleave_statements_total{access="read",` + labels + `,result="ok",shard="shard-0"} 4`,
		`cleave_statements_total{access="read",` + labels + `,result="error",shard="shard-0"} 1`,
		`cleave_statements_total{access="write",` + labels + `,result="refused",shard="shard-0"} 1`,
		`cleave_statements_total{access="write",` + labels + `,result="ok",shard="shard-0"} 0`,
		`cleave_statements_total{access="read",keyspace="",plan="control",result="ok",shard="(router)"} 1`,
		`cleave_statement_seconds_count{access="read",` + labels + `,shard="shard-0"} 3`,
		`cleave_statement_seconds_sum{access="read",` + labels + `,shard="shard-0"} 70.003`,
		`cleave_statement_seconds_bucket{access="read",` + labels + `,shard="shard-0",le="0.001"} 1`,
		`cleave_statement_seconds_bucket{access="read",` + labels + `,shard="shard-0",le="60"} 2`,
		`cleave_shard_errors_total{fault="client",shard="shard-0"} 1`,
		`cleave_shard_errors_total{fault="unavailable",shard="shard-0"} 1`,
		`cleave_pool_connections{shard="shard-0",state="idle"} 2`,
		`cleave_pool_queue{shard="shard-0"} 1`,
		`cleave_pool_wait_seconds_count{shard="shard-0"} 1`,
		`cleave_pool_wait_failures_total{shard="shard-0"} 1`,
		`cleave_shard_up{shard="shard-0"} 1`,
		`cleave_shard_state{shard="shard-0"} 1`,
		`cleave_guard_refusals_total{shard="shard-0"} 1`,
		`cleave_errors_total{fault="client",sqlstate="0A000"} 1`,
		`cleave_refusals_total{id="CLV-0001"} 1`,
		`cleave_sessions 1`,
		`cleave_client_sent_bytes_total 20`,
		`cleave_map_version 7`,
		`cleave_lease_seconds 3`,
		`cleave_serving 1`,
		`cleave_leader 0`,
		`cleave_draining 0`,
		`cleave_data_free_bytes 90`,
		`cleave_replica_lag_bytes{replica="1",shard="shard-0"} 512`,
		`cleave_failovers_total{shard="shard-0"} 1`,
		`cleave_slow_statements_suppressed_total 1`,
		`cleave_transactions_total{result="committed"} 1`,
		`cleave_transactions_total{result="unknown"} 0`,
		`cleave_transactions_settled_total{result="rolled_back"} 1`,
		`cleave_transactions_in_doubt 2`,
		`cleave_deadlocks_total 1`,
		`cleave_held_statements{keyspace="orders"} 1`,
		`cleave_shard_load{shard="shard-9"} 12.5`,
		`cleave_range_load{keyspace="orders",range="[0,)",shard="shard-9"} 12.5`,
		`cleave_range_busy{keyspace="orders",range="[0,)",shard="shard-9"} 0.25`,
		`cleave_hold_wait_seconds_count{keyspace="orders"} 1`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	m.Draining()
	m.Replica("shard-0", 1, true, -1, -1)
	m.Lease(func() (time.Duration, bool) { return 0, false })
	out = scrape(t, m)
	for _, gone := range []string{"cleave_replica_lag_bytes{", "cleave_lease_seconds ", "cleave_draining 0"} {
		if strings.Contains(out, gone) {
			t.Errorf("%s is still served", gone)
		}
	}
	m.Replica("shard-0", 0, true, 5, time.Second)
	m.Replica("shard-00", 1, true, 5, time.Second)
	m.Replicas("shard-0", 1)
	out = scrape(t, m)
	if strings.Contains(out, `{replica="1",shard="shard-0"}`) || strings.Count(out, `{replica="0",shard="shard-0"}`) != 3 || strings.Count(out, `{replica="1",shard="shard-00"}`) != 3 {
		t.Errorf("a removed replica is still served, or others are not:\n%s", out)
	}
	m.Forget("shard-0")
	if out := scrape(t, m); strings.Contains(out, `shard="shard-0"`) {
		t.Error("a forgotten shard is still served")
	}
}

// TestFamiliesAreThoseServed holds the list that the documentation is made from
// to what a registry serves: names, types, labels, and how names are made.
func TestFamiliesAreThoseServed(t *testing.T) {
	m := New()
	exercise(m)
	all := served(t, m)
	for _, f := range Families() {
		got := all[f.Name]
		if got == nil {
			t.Errorf("%s is not served", f.Name)
			continue
		}
		delete(all, f.Name)
		if typ := strings.ToLower(got.GetType().String()); typ != f.Type {
			t.Errorf("%s is a %s, not a %s", f.Name, typ, f.Type)
		}
		var labels []string
		for _, l := range got.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		want := slices.Sorted(slices.Values(f.Labels))
		if !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %v, not %v", f.Name, labels, want)
		}
		if !strings.HasSuffix(f.Help, ".") || strings.ContainsAny(f.Help, "|\n") {
			t.Errorf("%s: help %q", f.Name, f.Help)
		}
		if (f.Type == "counter") != strings.HasSuffix(f.Name, "_total") {
			t.Errorf("%s: counters end with _total, others do not", f.Name)
		}
		if f.Type == "histogram" && !strings.HasSuffix(f.Name, "_seconds") {
			t.Errorf("%s: histograms are of seconds here", f.Name)
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "cleave_") {
			t.Errorf("%s is served, but not listed", name)
		}
	}
}

func TestFaults(t *testing.T) {
	for code, want := range map[string]Fault{
		"42601": ClientFault, "23505": ClientFault, "0A000": ClientFault, "08P01": ClientFault, "25P02": ClientFault, "P0001": ClientFault,
		"40001": Contention, "40P01": Contention, "55P03": Contention,
		"57014": Cancelled, "53300": Resources, "53100": Resources, "54000": Resources,
		"57P03": Unavailable, "08006": Unavailable, "08007": Unavailable, "57P01": Unavailable,
		"ZC001": Ownership, "XX000": Internal, "58030": Internal, "": Internal,
	} {
		if got := FaultOf(code); got != want {
			t.Errorf("%s: %v, not %v", code, got, want)
		}
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
	// Not over HTTP, whose handler has a bound on its time.
	all := served(t, m)
	if n := len(all["cleave_guard_refusals_total"].GetMetric()); n != ShardMax+1 {
		t.Errorf("%d shard labels, want %d", n, ShardMax+1)
	}
	if n := len(all["cleave_errors_total"].GetMetric()); n != CodeMax+1 {
		t.Errorf("%d code labels, want %d", n, CodeMax+1)
	}
	for _, c := range all["cleave_guard_refusals_total"].GetMetric() {
		if c.GetLabel()[0].GetValue() == Other && c.GetCounter().GetValue() != 100 {
			t.Errorf("shards over the bound are not counted as other: %v", c)
		}
	}
	for i := range 3 * KeyspaceMax {
		for p := range plans {
			for _, write := range []bool{false, true} {
				m.Shard("s0").Done(m.Class(fmt.Sprint("k", i), p, write), 1, 0)
				m.Shard("s0").Done(m.Class("", p, write), 1, 0)
			}
		}
	}
	keyspaces := map[string]bool{}
	series := served(t, m)["cleave_statement_seconds"].GetMetric()
	total := uint64(0)
	for _, s := range series {
		total += s.GetHistogram().GetSampleCount()
		for _, l := range s.GetLabel() {
			if l.GetName() == "keyspace" {
				keyspaces[l.GetValue()] = true
			}
		}
	}
	if want := uint64(3 * KeyspaceMax * int(plans) * 4); total != want {
		t.Errorf("%d statements are counted, not %d", total, want)
	}
	if len(series) > ClassMax || len(keyspaces) > KeyspaceMax+2 || !keyspaces[Other] || !keyspaces["k0"] {
		t.Errorf("%d series of %d keyspaces", len(series), len(keyspaces))
	}
}

func TestNilIsSilent(t *testing.T) {
	var m *Metrics
	m.Error("x")
	m.SessionOpened()
	m.Shard("x").Done(m.Class("k", OneShard, true), 1, 0)
	m.Shard("x").Pool(true, 1, 1, 1)
	m.Replica("x", 0, true, 0, 0)
	New().Shard("").Pool(true, 1, 1, 1)
	New().Shard("").GuardRefused()
	m.Forget("x")
}

func TestStatementDoesNotAllocate(t *testing.T) {
	m := New()
	s, c := m.Shard("a"), m.Class("k", OneShard, false)
	s.Done(c, 1, 0)
	if n := testing.AllocsPerRun(100, func() { s.Done(c, 1, time.Microsecond); s.Failed(c, "23505", time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCountsOnlyGrow scrapes while statements end: a counter that goes down
// looks like a restart to Prometheus.
func TestCountsOnlyGrow(t *testing.T) {
	m := New()
	s, c := m.Shard("a"), m.Class("k", OneShard, false)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				s.Done(c, 1+i%2, time.Duration(i%1000)*time.Microsecond)
				s.Failed(c, "40001", time.Millisecond)
				if i%100 == 0 {
					runtime.Gosched() // one core may have to do
				}
			}
		})
	}
	last := map[string]float64{}
	for range 100 {
		for _, f := range served(t, m)["cleave_statements_total"].GetMetric() {
			k := f.String()[:strings.Index(f.String(), "counter")]
			if v := f.GetCounter().GetValue(); v < last[k] {
				t.Fatalf("%s fell from %v to %v", k, last[k], v)
			} else {
				last[k] = v
			}
		}
		h := served(t, m)["cleave_statement_seconds"].GetMetric()
		if len(h) == 0 {
			continue
		}
		below := uint64(0)
		for _, b := range h[0].GetHistogram().GetBucket() {
			if b.GetCumulativeCount() < below {
				t.Fatal("a bucket holds less than the one below")
			}
			below = b.GetCumulativeCount()
		}
	}
	close(stop)
	wg.Wait()
}

// BenchmarkStatement is what a statement costs: one clock read at its end, and counting.
func BenchmarkStatement(b *testing.B) {
	m := New()
	s, c := m.Shard("a"), m.Class("k", OneShard, false)
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Done(c, 1, 200*time.Microsecond)
		}
	})
	b.Run("clock and count", func(b *testing.B) {
		b.ReportAllocs()
		began := time.Now()
		for b.Loop() {
			s.Done(c, 1, time.Since(began))
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				s.Done(c, 1, 200*time.Microsecond)
			}
		})
	})
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
