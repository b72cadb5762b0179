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

// routerName is the shard label of what no shard ran; no shard can have the name.
const routerName = "(router)"

// Metrics is the set of a router's metrics, in a registry of its own. Its
// methods are safe for concurrent use, and on a nil *Metrics do nothing.
type Metrics struct {
	builder

	up, state, conns, queue    *prometheus.GaugeVec
	wait                       *prometheus.HistogramVec
	waitFailed, dials, guard   *prometheus.CounterVec
	reclaimed                  *prometheus.CounterVec
	errors, refusals           *prometheus.CounterVec
	poolMax, sessionMax        prometheus.Gauge
	sessions                   prometheus.Gauge
	sessionTotal, sessionsOver prometheus.Counter
	loginsFailed               prometheus.Counter
	bytesIn, bytesOut          prometheus.Counter
	mapVersion                 prometheus.Gauge
	watchFailed                prometheus.Counter
	planHits, planMisses       prometheus.Counter
	planEntries, planBytes     prometheus.Gauge
	cancels, panics            prometheus.Counter
	laneUnits                  prometheus.Counter
	laneLeft                   [2]prometheus.Counter // before anything was sent, in flight
	slow, slowSuppressed       prometheus.Counter
	spans                      *prometheus.CounterVec
	replicaUp, replicaLag      *prometheus.GaugeVec
	replicaSeconds             *prometheus.GaugeVec
	failovers                  *prometheus.CounterVec
	holds                      *prometheus.GaugeVec
	holdSeconds                *prometheus.HistogramVec
	transactions, settled      *prometheus.CounterVec
	hushes                     *prometheus.CounterVec
	silence                    prometheus.Observer
	inDoubt                    prometheus.Gauge
	deadlocks                  prometheus.Counter
	sources                    sources
	loads                      *loads

	mu        sync.Mutex
	shards    map[string]*Shard
	codes     map[string]prometheus.Counter
	classes   map[classKey]Class
	classList []classKey
	keyspaces map[string]bool
	replicas  map[[2]string]bool
}

// New makes the metrics and registers them, with those of the Go runtime and the process.
func New() *Metrics {
	m := &Metrics{
		builder: builder{registry: prometheus.NewRegistry()},
		shards:  map[string]*Shard{}, codes: map[string]prometheus.Counter{},
		classes: map[classKey]Class{{}: 0}, classList: []classKey{{}},
		keyspaces: map[string]bool{}, replicas: map[[2]string]bool{},
	}
	const statement = "Labels: `shard` (`(router)`: no shard ran it), `keyspace` (empty: none), `plan` (one_shard, reference, default_shard, any_shard, virtual, control, ddl, scatter, gather; prepare: Parse and Describe only), `access` (read: it provably writes nothing)"
	m.registry.MustRegister(&statements{
		m:       m,
		seconds: m.desc("histogram", "cleave_statement_seconds", "Time from a statement's arrival at the router to its last answer. Statements that arrived together before one Sync count as one, under the plan of the last. "+statement+".", "shard", "keyspace", "plan", "access"),
		total:   m.desc("counter", "cleave_statements_total", "Statements. "+statement+", `result` (ok; error: the shard's answer; refused: by the router or the shard's guard; retried: run again after a guard or a lost connection; lost: the shard's connection broke).", "shard", "keyspace", "plan", "access", "result"),
		errors:  m.desc("counter", "cleave_shard_errors_total", "Errors that a shard returned, or of reaching it, by shard and `fault` (as in cleave_errors_total).", "shard", "fault"),
	})
	m.errors = m.counters("cleave_errors_total", "Errors sent to clients, by SQLSTATE and `fault`: client (the statement or its data), contention (40xxx, locks), cancelled, resources (53xxx, 54xxx), unavailable (a shard or the map), ownership (the guard), internal.", "fault", "sqlstate")
	m.refusals = m.counters("cleave_refusals_total", "Statements refused with 0A000 in Cleave's own words, by `id` (docs/refusals.md).", "id")
	m.slow = m.counter("cleave_slow_statements_total", "Statements that took longer than the setting slow-statement.")
	m.slowSuppressed = m.counter("cleave_slow_statements_suppressed_total", "Slow statements that were not logged, because there were too many in that second.")

	m.up = m.gauges("cleave_shard_up", "1 if the shard answered when it was last asked, else 0, by shard.", "shard")
	m.state = m.gauges("cleave_shard_state", "What the map uses the shard for, by shard: 0 for everything, 1 it is read-only, 2 it is out of service.", "shard")
	m.conns = m.gauges("cleave_pool_connections", "Connections of this router to a shard, by shard and `state` (open: all of them; idle: those not in use).", "shard", "state")
	m.poolMax = m.gauge("cleave_pool_connections_max", "The bound on open connections to one shard: the setting pool-size.")
	m.queue = m.gauges("cleave_pool_queue", "Statements that wait for a connection to the shard now, by shard.", "shard")
	m.wait = m.histograms("cleave_pool_wait_seconds", "Time that statements waited for a connection, by shard; those that got one at once are not counted.", waitBuckets, "shard")
	m.waitFailed = m.counters("cleave_pool_wait_failures_total", "Statements refused with 53300 because no connection became free in time, or because the queue was full, by shard.", "shard")
	m.dials = m.counters("cleave_pool_dials_total", "Attempts to connect to a shard, by shard and result (ok, error).", "shard", "result")
	m.reclaimed = m.counters("cleave_pool_reclaimed_total", "Connections taken back from sessions that had lost them, by shard: a defect of the router, whose log says more.", "shard")
	m.guard = m.counters("cleave_guard_refusals_total", "Writes that a shard's guard refused to this router, by shard.", "shard")

	m.sessions = m.gauge("cleave_sessions", "Client sessions that are open.")
	m.sessionMax = m.gauge("cleave_sessions_max", "The bound on open client sessions: the setting max-connections.")
	m.sessionTotal = m.counter("cleave_sessions_total", "Client sessions accepted since the start.")
	m.sessionsOver = m.counter("cleave_sessions_refused_total", "Client connections refused because of the limit, or ended because they began no session while others waited.")
	m.loginsFailed = m.counter("cleave_logins_failed_total", "Logins refused because of a wrong password or an unknown user.")
	m.bytesIn = m.counter("cleave_client_received_bytes_total", "Bytes received from clients.")
	m.bytesOut = m.counter("cleave_client_sent_bytes_total", "Bytes sent to clients.")
	m.cancels = m.counter("cleave_cancels_total", "Cancel requests that found their session.")
	m.panics = m.counter("cleave_panics_total", "Sessions that a fault of the router's own ended; the log has the stack.")

	m.laneUnits = m.counter("cleave_lane_units_total", "Statements, or batches up to a Sync, that the fast lane answered without waking the session's goroutine.")
	left := m.counters("cleave_lane_handovers_total", "Times that the fast lane handed a session to its goroutine, by `when` (idle: with what the client said, before anything was sent; flight: with a shard's answer outstanding or to be judged, or with what the client has not taken yet).", "when")
	m.laneLeft = [2]prometheus.Counter{left.WithLabelValues("idle"), left.WithLabelValues("flight")}

	m.planHits = m.counter("cleave_plan_cache_hits_total", "Statements whose analysis was found in the plan cache.")
	m.planMisses = m.counter("cleave_plan_cache_misses_total", "Statements that had to be analysed.")
	m.planEntries = m.gauge("cleave_plan_cache_entries", "Statements in the plan cache.")
	m.planBytes = m.gauge("cleave_plan_cache_bytes", "Estimated size of the plan cache.")

	m.mapVersion = m.gauge("cleave_map_version", "Version of the shard map that this router serves.")
	m.watchFailed = m.counter("cleave_directory_failures_total", "Failed attempts to follow the directory.")
	m.holds = m.gauges("cleave_held_statements", "Statements that wait now because a part of their keyspace moves to another shard, by keyspace.", "keyspace")
	m.holdSeconds = m.histograms("cleave_hold_wait_seconds", "Time that statements waited because a part of their keyspace moves to another shard, by keyspace; those that did not wait are not counted.", waitBuckets, "keyspace")
	m.reads()
	m.addLoads()
	m.replicaUp = m.gauges("cleave_replica_up", "1 if the replica can be read from, else 0, by shard and replica (its place among the servers that are not the primary, from 0).", "shard", "replica")
	m.replicaLag = m.gauges("cleave_replica_lag_bytes", "Write-ahead log that a replica has not replayed, by shard and replica.", "shard", "replica")
	m.replicaSeconds = m.gauges("cleave_replica_lag_seconds", "Age of what a replica shows, by shard and replica.", "shard", "replica")
	m.failovers = m.counters("cleave_failovers_total", "Times that this router saw another server become the shard's primary, by shard.", "shard")

	m.transactions = m.counters("cleave_transactions_total", "Transactions that wrote on several shards and came to their COMMIT here, by `result`: committed, rolled_back, unknown (08007: the deciding shard was lost, and nothing is known yet).", "result")
	m.settled = m.counters("cleave_transactions_settled_total", "Transactions left prepared, by this router or another one, that this router has ended, by `result` (committed, rolled_back).", "result")
	m.inDoubt = m.gauge("cleave_transactions_in_doubt", "Transactions that are prepared on a shard, whose owner is gone, and that could not be ended yet, as this router saw last.")
	m.deadlocks = m.counter("cleave_deadlocks_total", "Deadlocks over several shards that ended with a transaction of this router giving way (40P01).")
	for _, r := range []TransactionEnd{Committed, RolledBack} {
		m.transactions.WithLabelValues(string(r))
		m.settled.WithLabelValues(string(r))
	}
	m.transactions.WithLabelValues(string(Unknown))

	m.hushes = m.counters("cleave_hushes_total", "Times that this router had all routers withhold their answers for a moment of its REPEATABLE READ blocks, by `result`: whole, torn (the snapshots were taken again), refused (a router had been silent for too long, or did not answer in time), unreached (57P03: a router could not be asked).", "result")
	for _, r := range []HushEnd{HushWhole, HushTorn, HushRefused, HushUnreached} {
		m.hushes.WithLabelValues(string(r))
	}
	m.silence = m.histograms("cleave_silence_seconds", "Time that this router withheld its answers to clients without a gap, for moments of any router.", waitBuckets).WithLabelValues()
	m.spans = m.counters("cleave_trace_spans_total", "Spans of traces by `result`: ended, and of these exported or failed; what is in neither was dropped, because the queue was full, or still waits.", "result")
	for _, r := range []string{"ended", "exported", "failed"} {
		m.spans.WithLabelValues(r)
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
	router := name == ""
	if router {
		name = routerName
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.shards[name]; ok {
		return s
	}
	if len(m.shards) >= ShardMax && !router {
		name = Other
		if s, ok := m.shards[name]; ok {
			return s
		}
	}
	s := &Shard{}
	if !router {
		s.up = m.up.WithLabelValues(name)
		s.state = m.state.WithLabelValues(name)
		s.open = m.conns.WithLabelValues(name, "open")
		s.idle = m.conns.WithLabelValues(name, "idle")
		s.waiting = m.queue.WithLabelValues(name)
		s.wait = m.wait.WithLabelValues(name)
		s.waitFailed = m.waitFailed.WithLabelValues(name)
		s.dialed = m.dials.WithLabelValues(name, "ok")
		s.dialFailed = m.dials.WithLabelValues(name, "error")
		s.reclaimed = m.reclaimed.WithLabelValues(name)
		s.guard = m.guard.WithLabelValues(name)
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
	for r := range m.replicas {
		if r[0] == name {
			delete(m.replicas, r)
		}
	}
	label := prometheus.Labels{"shard": name}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.up, m.state, m.conns, m.queue, m.wait, m.waitFailed, m.dials, m.reclaimed, m.guard, m.replicaUp, m.replicaLag, m.replicaSeconds, m.failovers} {
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
		fault := FaultOf(code).String()
		label := code
		if len(m.codes) >= CodeMax {
			label = Other
		}
		c = m.errors.WithLabelValues(fault, label)
		if label == code {
			m.codes[code] = c
		}
	}
	m.mu.Unlock()
	c.Inc()
}

// Refusal counts a refusal that was sent to a client, by its id; "" is none.
func (m *Metrics) Refusal(id string) {
	if m != nil && id != "" {
		m.refusals.WithLabelValues(id).Inc()
	}
}

// ShardError counts an error of a shard that had no conversation: it could not
// be reached. Names that are no shard's count nothing.
func (m *Metrics) ShardError(shard, code string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	s := m.shards[shard]
	m.mu.Unlock()
	s.Error(code)
}

// Limits sets the bounds that the pools and sessions have.
func (m *Metrics) Limits(poolMax, sessionsMax int) {
	if m != nil {
		m.poolMax.Set(float64(poolMax))
		m.sessionMax.Set(float64(sessionsMax))
	}
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
		m.sessionsOver.Inc()
	}
}

// LoginFailed counts a login with a wrong password or an unknown user.
func (m *Metrics) LoginFailed() {
	if m != nil {
		m.loginsFailed.Inc()
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

// WatchFailed counts a failed attempt to follow the directory.
func (m *Metrics) WatchFailed() {
	if m != nil {
		m.watchFailed.Inc()
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

// TransactionEnd is how a transaction over several shards ended.
type TransactionEnd string

// The ends of transactions.
const (
	Committed  TransactionEnd = "committed"
	RolledBack TransactionEnd = "rolled_back"
	Unknown    TransactionEnd = "unknown"
)

// Transaction counts the end of a transaction that wrote on several shards.
func (m *Metrics) Transaction(end TransactionEnd) {
	if m != nil {
		m.transactions.WithLabelValues(string(end)).Inc()
	}
}

// HushEnd is what became of a hush.
type HushEnd string

// The ends of hushes.
const (
	HushWhole     HushEnd = "whole"
	HushTorn      HushEnd = "torn"
	HushRefused   HushEnd = "refused"
	HushUnreached HushEnd = "unreached"
)

// Hush counts a hush that this process asked for.
func (m *Metrics) Hush(end HushEnd) {
	if m != nil {
		m.hushes.WithLabelValues(string(end)).Inc()
	}
}

// Silent tells for how long the process withheld its answers.
func (m *Metrics) Silent(d time.Duration) {
	if m != nil {
		m.silence.Observe(d.Seconds())
	}
}

// Settled counts a transaction that was left prepared and has ended now.
func (m *Metrics) Settled(end TransactionEnd) {
	if m != nil {
		m.settled.WithLabelValues(string(end)).Inc()
	}
}

// InDoubt tells how many transactions are left prepared.
func (m *Metrics) InDoubt(n int) {
	if m != nil {
		m.inDoubt.Set(float64(n))
	}
}

// Deadlock counts a deadlock over several shards.
func (m *Metrics) Deadlock() {
	if m != nil {
		m.deadlocks.Inc()
	}
}

// Cancel counts a cancel request that found its session.
func (m *Metrics) Cancel() {
	if m != nil {
		m.cancels.Inc()
	}
}

// Lane counts a unit that the fast lane has answered.
func (m *Metrics) Lane() {
	if m != nil {
		m.laneUnits.Inc()
	}
}

// LaneLeft counts a session that the fast lane handed to its goroutine.
func (m *Metrics) LaneLeft(flight bool) {
	switch {
	case m == nil:
	case flight:
		m.laneLeft[1].Inc()
	default:
		m.laneLeft[0].Inc()
	}
}

// Panic counts a session that a fault of the router's own ended.
func (m *Metrics) Panic() {
	if m != nil {
		m.panics.Inc()
	}
}

// Slow counts a slow statement; logged is false if its line was suppressed.
func (m *Metrics) Slow(logged bool) {
	if m != nil {
		m.slow.Inc()
		if !logged {
			m.slowSuppressed.Inc()
		}
	}
}

// Spans counts spans of traces; result is "ended", "exported" or "failed".
func (m *Metrics) Spans(result string, n int) {
	if m != nil && n > 0 {
		m.spans.WithLabelValues(result).Add(float64(n))
	}
}
