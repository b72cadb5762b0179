package telemetry

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ShardMax is the number of shards that get a label value of their own.
const ShardMax = 1024

// CodeMax is the number of SQLSTATEs that get a label value of their own.
const CodeMax = 256

// Other is the label value of what is over a bound.
const Other = "other"

// Kind is what a statement does, as metrics distinguish it.
type Kind uint8

// The statement kinds.
const (
	Read    Kind = iota // writes nothing, locks no row
	Write               // everything else that goes to a shard
	Schema              // schema changes
	Control             // BEGIN, COMMIT, SET, SHOW and their like
	Virtual             // the schema "cleave" and its functions
	kinds
)

var kindNames = [kinds]string{"read", "write", "schema", "control", "virtual"}

// String returns the label value.
func (k Kind) String() string {
	if k >= kinds {
		return Other
	}
	return kindNames[k]
}

// Result is how a statement ended.
type Result uint8

// The results.
const (
	OK      Result = iota
	Failed         // the shard returned an error
	Refused        // the router refused it; nothing was sent
	Retried        // it met a guard or a lost connection and was run again
	Lost           // the shard's connection was lost
	results
)

var resultNames = [results]string{"ok", "error", "refused", "retried", "lost"}

// String returns the label value.
func (r Result) String() string {
	if r >= results {
		return Other
	}
	return resultNames[r]
}

// Metrics is the set of a router's metrics, in a registry of its own. Its
// methods are safe for concurrent use, and on a nil *Metrics do nothing.
type Metrics struct {
	registry *prometheus.Registry

	statements   *prometheus.CounterVec
	latency      *prometheus.HistogramVec
	poolConns    *prometheus.GaugeVec
	poolWaits    *prometheus.CounterVec
	poolDials    *prometheus.CounterVec
	guard        *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	sessions     prometheus.Gauge
	sessionTotal prometheus.Counter
	sessionsMax  prometheus.Counter
	bytesIn      prometheus.Counter
	bytesOut     prometheus.Counter
	mapVersion   prometheus.Gauge
	planHits     prometheus.Counter
	planMisses   prometheus.Counter
	planEntries  prometheus.Gauge
	planBytes    prometheus.Gauge
	cancels      prometheus.Counter
	panics       prometheus.Counter
	lane         prometheus.Counter
	laneLeft     prometheus.Counter

	mu     sync.Mutex
	shards map[string]*Shard
	codes  map[string]prometheus.Counter
}

// New makes the metrics and registers them, with those of the Go runtime and the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		shards:   map[string]*Shard{},
		codes:    map[string]prometheus.Counter{},
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m.statements = counters("cleave_statements_total", "Statements run, by shard, kind (read, write, schema, control, virtual) and result (ok, error, refused, retried, lost).", "shard", "kind", "result")
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "cleave_statement_seconds",
		Help:    "Time from sending a statement to a shard to its last answer, by shard and kind.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"shard", "kind"})
	m.poolConns = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cleave_pool_connections", Help: "Shard connections of this router, by shard and state (open, idle, waiting: sessions that wait for one)."}, []string{"shard", "state"})
	m.poolWaits = counters("cleave_pool_waits_total", "Statements that had to wait for a shard connection, by shard and result (ok, timeout).", "shard", "result")
	m.poolDials = counters("cleave_pool_dials_total", "Attempts to connect to a shard, by shard and result (ok, error).", "shard", "result")
	m.guard = counters("cleave_guard_refusals_total", "Writes that a shard's guard refused to this router, by shard.", "shard")
	m.refusals = counters("cleave_errors_total", "Errors sent to clients, by SQLSTATE.", "sqlstate")
	m.sessions = gauge("cleave_sessions", "Client sessions that are open.")
	m.sessionTotal = counter("cleave_sessions_total", "Client sessions accepted since the start.")
	m.sessionsMax = counter("cleave_sessions_refused_total", "Client connections refused because of the limit.")
	m.bytesIn = counter("cleave_client_received_bytes_total", "Bytes received from clients.")
	m.bytesOut = counter("cleave_client_sent_bytes_total", "Bytes sent to clients.")
	m.mapVersion = gauge("cleave_map_version", "Version of the shard map that this router serves.")
	m.planHits = counter("cleave_plan_cache_hits_total", "Statements whose analysis was found in the plan cache.")
	m.planMisses = counter("cleave_plan_cache_misses_total", "Statements that had to be analysed.")
	m.planEntries = gauge("cleave_plan_cache_entries", "Statements in the plan cache.")
	m.planBytes = gauge("cleave_plan_cache_bytes", "Estimated size of the plan cache.")
	m.cancels = counter("cleave_cancels_total", "Cancel requests that found their session.")
	m.panics = counter("cleave_panics_total", "Sessions that a fault of the router's own ended; the log has the stack.")
	m.lane = counter("cleave_lane_units_total", "Statements, or batches up to a Sync, that were answered in the fast lane, without waking the session's goroutine.")
	m.laneLeft = counter("cleave_lane_handovers_total", "Times that the fast lane handed a session to its goroutine.")
	m.registry.MustRegister(
		m.panics, m.lane, m.laneLeft,
		m.statements, m.latency, m.poolConns, m.poolWaits, m.poolDials, m.guard, m.refusals,
		m.sessions, m.sessionTotal, m.sessionsMax, m.bytesIn, m.bytesOut, m.mapVersion,
		m.planHits, m.planMisses, m.planEntries, m.planBytes, m.cancels,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Registry returns the registry, so that others may add their collectors.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Shard returns the resolved metrics of a shard; "" is the router itself
// (statements that no shard ran). After ShardMax names it is that of "other".
func (m *Metrics) Shard(name string) *Shard {
	if m == nil {
		return nil
	}
	if name == "" {
		name = "router"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.shards[name]; ok {
		return s
	}
	if len(m.shards) >= ShardMax {
		name = Other
		if s, ok := m.shards[name]; ok {
			return s
		}
	}
	s := &Shard{
		open:        m.poolConns.WithLabelValues(name, "open"),
		idle:        m.poolConns.WithLabelValues(name, "idle"),
		waiting:     m.poolConns.WithLabelValues(name, "waiting"),
		waited:      m.poolWaits.WithLabelValues(name, "ok"),
		waitTimeout: m.poolWaits.WithLabelValues(name, "timeout"),
		dialed:      m.poolDials.WithLabelValues(name, "ok"),
		dialFailed:  m.poolDials.WithLabelValues(name, "error"),
		guard:       m.guard.WithLabelValues(name),
	}
	for k := range kinds {
		s.latency[k] = m.latency.WithLabelValues(name, k.String())
		for r := range results {
			s.statements[k][r] = m.statements.WithLabelValues(name, k.String(), r.String())
		}
	}
	m.shards[name] = s
	return s
}

// Forget drops the metrics of a shard that is no longer in the map.
func (m *Metrics) Forget(name string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.shards[name]; !ok || name == Other {
		return
	}
	delete(m.shards, name)
	label := prometheus.Labels{"shard": name}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.statements, m.latency, m.poolConns, m.poolWaits, m.poolDials, m.guard} {
		v.DeletePartialMatch(label)
	}
}

// Error counts an error sent to a client.
func (m *Metrics) Error(code string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	c, ok := m.codes[code]
	if !ok {
		if len(m.codes) >= CodeMax {
			code = Other
		}
		if c, ok = m.codes[code]; !ok {
			c = m.refusals.WithLabelValues(code)
			m.codes[code] = c
		}
	}
	m.mu.Unlock()
	c.Inc()
}

// SessionOpened counts a session that begins.
func (m *Metrics) SessionOpened() {
	if m != nil {
		m.sessions.Inc()
		m.sessionTotal.Inc()
	}
}

// SessionClosed counts a session that ended.
func (m *Metrics) SessionClosed() {
	if m != nil {
		m.sessions.Dec()
	}
}

// SessionRefused counts a connection turned away because of the limit.
func (m *Metrics) SessionRefused() {
	if m != nil {
		m.sessionsMax.Inc()
	}
}

// Traffic adds bytes received from and sent to clients.
func (m *Metrics) Traffic(in, out int) {
	if m == nil {
		return
	}
	if in > 0 {
		m.bytesIn.Add(float64(in))
	}
	if out > 0 {
		m.bytesOut.Add(float64(out))
	}
}

// MapVersion sets the version of the map that is served.
func (m *Metrics) MapVersion(v uint64) {
	if m != nil {
		m.mapVersion.Set(float64(v))
	}
}

// PlanCache counts a look-up.
func (m *Metrics) PlanCache(hit bool) {
	switch {
	case m == nil:
	case hit:
		m.planHits.Inc()
	default:
		m.planMisses.Inc()
	}
}

// PlanCacheSize sets the size of the plan cache.
func (m *Metrics) PlanCacheSize(entries, bytes int) {
	if m != nil {
		m.planEntries.Set(float64(entries))
		m.planBytes.Set(float64(bytes))
	}
}

// Lane counts a unit that the fast lane has answered.
func (m *Metrics) Lane() {
	if m != nil {
		m.lane.Inc()
	}
}

// LaneLeft counts a session that the fast lane handed to its goroutine.
func (m *Metrics) LaneLeft() {
	if m != nil {
		m.laneLeft.Inc()
	}
}

// Cancel counts a cancel request that found its session.
func (m *Metrics) Cancel() {
	if m != nil {
		m.cancels.Inc()
	}
}

// Panic counts a session that a fault of the router's own ended.
func (m *Metrics) Panic() {
	if m != nil {
		m.panics.Inc()
	}
}

// Shard is the metrics of one shard, resolved. Methods on nil do nothing.
type Shard struct {
	statements          [kinds][results]prometheus.Counter
	latency             [kinds]prometheus.Observer
	open, idle, waiting prometheus.Gauge
	waited, waitTimeout prometheus.Counter
	dialed, dialFailed  prometheus.Counter
	guard               prometheus.Counter
}

// Statement counts a statement and the time it took.
func (s *Shard) Statement(k Kind, r Result, took time.Duration) {
	if s == nil || k >= kinds || r >= results {
		return
	}
	s.statements[k][r].Inc()
	if r == OK || r == Failed {
		s.latency[k].Observe(took.Seconds())
	}
}

// Pool sets the numbers of open and idle connections and of waiting sessions.
func (s *Shard) Pool(open, idle, waiting int) {
	if s == nil {
		return
	}
	s.open.Set(float64(open))
	s.idle.Set(float64(idle))
	s.waiting.Set(float64(waiting))
}

// Waited counts a statement that waited for a connection.
func (s *Shard) Waited(ok bool) {
	switch {
	case s == nil:
	case ok:
		s.waited.Inc()
	default:
		s.waitTimeout.Inc()
	}
}

// Dialed counts an attempt to connect.
func (s *Shard) Dialed(ok bool) {
	switch {
	case s == nil:
	case ok:
		s.dialed.Inc()
	default:
		s.dialFailed.Inc()
	}
}

// GuardRefused counts a write refused by the shard's guard.
func (s *Shard) GuardRefused() {
	if s != nil {
		s.guard.Inc()
	}
}
