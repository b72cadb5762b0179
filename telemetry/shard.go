package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bucketBounds are the upper bounds of the latency buckets.
var bucketBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second,
}

// waitBuckets are those of the time that statements wait for a connection, seconds.
var waitBuckets = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// cell counts the statements of one shard and one class. What went well is
// counted in two places only, the bucket and the time.
type cell struct {
	ok, failed [len(bucketBounds) + 1]atomic.Uint64
	nanos      atomic.Uint64
	// more are statements that were sent together with another one that went well.
	more atomic.Uint64
	rest [results]atomic.Uint64 // the results without a duration
}

// Shard is the metrics of one shard, resolved. Methods on nil do nothing; those
// about connections do nothing for the router itself.
type Shard struct {
	cells [ClassMax]atomic.Pointer[cell]

	mu     sync.Mutex // making a cell
	errors [faults]atomic.Uint64

	up, state, open, idle, waiting prometheus.Gauge
	wait                           prometheus.Observer
	waitFailed                     prometheus.Counter
	dialed, dialFailed             prometheus.Counter
	reclaimed, guard               prometheus.Counter
}

func (s *Shard) cell(c Class) *cell {
	if int(c) >= len(s.cells) {
		c = 0
	}
	if p := s.cells[c].Load(); p != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.cells[c].Load(); p != nil {
		return p
	}
	p := new(cell)
	s.cells[c].Store(p)
	return p
}

func bucketOf(took time.Duration) int {
	i := 0
	for i < len(bucketBounds) && took > bucketBounds[i] {
		i++
	}
	return i
}

// Done counts n statements that went well in one conversation with the shard
// that took that long. The hot path: two atomic additions.
func (s *Shard) Done(c Class, n int, took time.Duration) {
	if s == nil {
		return
	}
	p := s.cell(c)
	p.ok[bucketOf(took)].Add(1)
	p.nanos.Add(uint64(max(took, 0)))
	if n > 1 {
		p.more.Add(uint64(n - 1))
	}
}

// Failed counts a statement to which the shard answered with an error.
func (s *Shard) Failed(c Class, code string, took time.Duration) {
	if s == nil {
		return
	}
	p := s.cell(c)
	p.failed[bucketOf(took)].Add(1)
	p.nanos.Add(uint64(max(took, 0)))
	s.errors[FaultOf(code)].Add(1)
}

// Not counts a statement that ended as Refused, Retried or Lost.
func (s *Shard) Not(c Class, r Result) {
	if s == nil || r <= Failed || r >= results {
		return
	}
	s.cell(c).rest[r].Add(1)
}

// Error counts an error of the shard that no statement's answer told: it could
// not be reached, or was lost.
func (s *Shard) Error(code string) {
	if s != nil {
		s.errors[FaultOf(code)].Add(1)
	}
}

// Pool sets whether the shard answers, the numbers of open and idle
// connections, and the length of the queue for one.
func (s *Shard) Pool(up bool, open, idle, waiting int) {
	if s == nil || s.up == nil {
		return
	}
	s.up.Set(0)
	if up {
		s.up.Set(1)
	}
	s.open.Set(float64(open))
	s.idle.Set(float64(idle))
	s.waiting.Set(float64(waiting))
}

// What the map uses a shard for, as State has it.
const (
	Normal       = 0
	ReadOnly     = 1
	OutOfService = 2
)

// State sets what the map uses the shard for.
func (s *Shard) State(n int) {
	if s != nil && s.state != nil {
		s.state.Set(float64(n))
	}
}

// Waited notes how long a statement waited for a connection, and whether it got one.
func (s *Shard) Waited(took time.Duration, ok bool) {
	if s == nil || s.wait == nil {
		return
	}
	s.wait.Observe(took.Seconds())
	if !ok {
		s.waitFailed.Inc()
	}
}

// Dialed counts an attempt to connect.
func (s *Shard) Dialed(ok bool) {
	switch {
	case s == nil || s.dialed == nil:
	case ok:
		s.dialed.Inc()
	default:
		s.dialFailed.Inc()
	}
}

// Reclaimed counts a connection that was taken back from a session.
func (s *Shard) Reclaimed() {
	if s != nil && s.reclaimed != nil {
		s.reclaimed.Inc()
	}
}

// GuardRefused counts a write refused by the shard's guard.
func (s *Shard) GuardRefused() {
	if s != nil && s.guard != nil {
		s.guard.Inc()
	}
}

// statements serves the cells.
type statements struct {
	m                      *Metrics
	seconds, total, errors *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *statements) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.seconds
	ch <- s.total
	ch <- s.errors
}

// Collect implements prometheus.Collector. Each count only grows from one
// scrape to the next, though they are not read at one moment.
func (s *statements) Collect(ch chan<- prometheus.Metric) {
	s.m.mu.Lock()
	classes := s.m.classList
	shards := make(map[string]*Shard, len(s.m.shards))
	for name, sh := range s.m.shards {
		shards[name] = sh
	}
	s.m.mu.Unlock()
	for name, sh := range shards {
		for f := range faults {
			if n := sh.errors[f].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(s.errors, prometheus.CounterValue, float64(n), name, f.String())
			}
		}
		for i, k := range classes {
			if c := sh.cells[i].Load(); c != nil {
				s.collect(ch, c, name, k)
			}
		}
	}
}

func (s *statements) collect(ch chan<- prometheus.Metric, c *cell, shard string, k classKey) {
	labels := []string{shard, k.keyspace, k.plan.String(), k.access()}
	nanos := c.nanos.Load()
	more := c.more.Load()
	var ok, failed uint64
	buckets := make(map[float64]uint64, len(bucketBounds))
	for i := range c.ok {
		ok += c.ok[i].Load()
		failed += c.failed[i].Load()
		if i < len(bucketBounds) {
			buckets[bucketBounds[i].Seconds()] = ok + failed
		}
	}
	if ok+failed > 0 {
		ch <- prometheus.MustNewConstHistogram(s.seconds, ok+failed, float64(nanos)/1e9, buckets, labels...)
	}
	for r := range results {
		n := c.rest[r].Load()
		switch r {
		case OK:
			n = ok + more
		case Failed:
			n = failed
		}
		if n > 0 || r == OK {
			ch <- prometheus.MustNewConstMetric(s.total, prometheus.CounterValue, float64(n), append(labels, r.String())...)
		}
	}
}
