package telemetry

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sources are functions that a scrape asks; nil: the metric is left out.
type sources struct {
	lease    atomic.Pointer[func() (time.Duration, bool)]
	serving  atomic.Pointer[func() bool]
	leader   atomic.Pointer[func() bool]
	data     atomic.Pointer[func() (used, free uint64, ok bool)]
	stuck    atomic.Pointer[func() time.Duration]
	draining atomic.Bool
}

func (m *Metrics) reads() {
	add := func(name, help string, get func() (float64, bool)) {
		m.registry.MustRegister(&read{desc: m.desc("gauge", name, help), get: get})
	}
	truth := func(f *atomic.Pointer[func() bool]) func() (float64, bool) {
		return func() (float64, bool) {
			p := f.Load()
			switch {
			case p == nil:
				return 0, false
			case (*p)():
				return 1, true
			}
			return 0, true
		}
	}
	add("cleave_serving", "1 while the router answers statements, 0 while its lease on the directory has run out.", truth(&m.sources.serving))
	add("cleave_lease_seconds", "Time left of the router's lease on the directory, 0 if it has run out; left out where the directory gives none.", func() (float64, bool) {
		p := m.sources.lease.Load()
		if p == nil {
			return 0, false
		}
		left, ok := (*p)()
		return max(left, 0).Seconds(), ok
	})
	add("cleave_leader", "1 while this process leads the cluster's background work, else 0.", truth(&m.sources.leader))
	add("cleave_workflow_stuck_seconds", "For how long a move or another workflow has not got further, of the one that has not for longest: what it does fails, and is tried again. 0 if there is none, and where the process does not lead.", func() (float64, bool) {
		p := m.sources.stuck.Load()
		if p == nil {
			return 0, false
		}
		return (*p)().Seconds(), true
	})
	add("cleave_draining", "1 while the router ends its sessions to stop, else 0.", func() (float64, bool) {
		if m.sources.draining.Load() {
			return 1, true
		}
		return 0, true
	})
	data := func(pick func(used, free uint64) uint64) func() (float64, bool) {
		return func() (float64, bool) {
			p := m.sources.data.Load()
			if p == nil {
				return 0, false
			}
			used, free, ok := (*p)()
			return float64(pick(used, free)), ok
		}
	}
	add("cleave_data_used_bytes", "Size of the SQLite files in the data folder (cleave up only).", data(func(used, _ uint64) uint64 { return used }))
	add("cleave_data_free_bytes", "Space that is free on the data folder's file system (cleave up only).", data(func(_, free uint64) uint64 { return free }))
}

// Lease has every scrape ask for the time left of the lease on the directory
// (cleave_lease_seconds). ok is false where there is no lease.
func (m *Metrics) Lease(left func() (left time.Duration, ok bool)) {
	if m != nil {
		m.sources.lease.Store(&left)
	}
}

// Serving has every scrape ask whether the router answers statements (cleave_serving).
func (m *Metrics) Serving(serving func() bool) {
	if m != nil {
		m.sources.serving.Store(&serving)
	}
}

// Leader has every scrape ask whether this process leads (cleave_leader).
func (m *Metrics) Leader(leads func() bool) {
	if m != nil {
		m.sources.leader.Store(&leads)
	}
}

// Stuck has every scrape ask for how long a workflow has not got further (cleave_workflow_stuck_seconds).
func (m *Metrics) Stuck(stuck func() time.Duration) {
	if m != nil {
		m.sources.stuck.Store(&stuck)
	}
}

// Data has every scrape ask for the size of the data folder and for the free
// space there, bytes.
func (m *Metrics) Data(size func() (used, free uint64, ok bool)) {
	if m != nil {
		m.sources.data.Store(&size)
	}
}

// Draining says that the router ends its sessions.
func (m *Metrics) Draining() {
	if m != nil {
		m.sources.draining.Store(true)
	}
}

// Replica sets what is known of a shard's replica, by its place among the
// servers that are not the primary: whether it can be read from, how far it is
// behind in bytes of log, and in time. A negative lag is not known, and left out.
func (m *Metrics) Replica(shard string, place int, up bool, lagBytes int64, lag time.Duration) {
	if m == nil {
		return
	}
	replica := strconv.Itoa(place)
	key := [2]string{shard, replica}
	m.mu.Lock()
	if !m.replicas[key] {
		if len(m.replicas) >= ShardMax {
			m.mu.Unlock()
			return
		}
		m.replicas[key] = true
	}
	m.mu.Unlock()
	g := m.replicaUp.WithLabelValues(shard, replica)
	g.Set(0)
	if up {
		g.Set(1)
	}
	if lagBytes >= 0 {
		m.replicaLag.WithLabelValues(shard, replica).Set(float64(lagBytes))
	} else {
		m.replicaLag.DeleteLabelValues(shard, replica)
	}
	if lag >= 0 {
		m.replicaSeconds.WithLabelValues(shard, replica).Set(lag.Seconds())
	} else {
		m.replicaSeconds.DeleteLabelValues(shard, replica)
	}
}

// Replicas forgets what was said of a shard's replicas from place n on: it has n.
// While it has no primary it has one more than else, and a removed one must not
// seem to be down for ever.
func (m *Metrics) Replicas(shard string, n int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.replicas {
		if place, err := strconv.Atoi(key[1]); key[0] != shard || err == nil && place < n {
			continue
		}
		delete(m.replicas, key)
		for _, v := range []*prometheus.GaugeVec{m.replicaUp, m.replicaLag, m.replicaSeconds} {
			v.DeleteLabelValues(key[0], key[1])
		}
	}
}

// Failover counts that another server became the shard's primary.
func (m *Metrics) Failover(shard string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	_, known := m.shards[shard]
	m.mu.Unlock()
	if known {
		m.failovers.WithLabelValues(shard).Inc()
	}
}

// HeldStatement is a statement that waits because its keys are moving.
type HeldStatement struct {
	m        *Metrics
	keyspace string
}

// HoldBegan counts a statement that begins to wait; Ended must follow.
func (m *Metrics) HoldBegan(keyspace string) HeldStatement {
	if m == nil {
		return HeldStatement{}
	}
	m.mu.Lock()
	name := m.keyspaceName(keyspace)
	m.mu.Unlock()
	m.holds.WithLabelValues(name).Inc()
	return HeldStatement{m, name}
}

// EndedSince is Ended for a wait that began then.
func (h HeldStatement) EndedSince(began time.Time) { h.Ended(time.Since(began)) }

// Ended counts that it has waited for that long.
func (h HeldStatement) Ended(took time.Duration) {
	if h.m != nil {
		h.m.holds.WithLabelValues(h.keyspace).Dec()
		h.m.holdSeconds.WithLabelValues(h.keyspace).Observe(took.Seconds())
	}
}
