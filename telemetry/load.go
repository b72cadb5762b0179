package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// RangesMax is the number of ranges whose load is served: the hottest.
const RangesMax = 20

// RangeLoad is the load of one range, listed value or pin.
type RangeLoad struct {
	Keyspace, Range, Shard string
	// Statements per second, and the time that they take, in seconds per second.
	Statements, Busy float64
}

// loads serves the load of shards and of the hottest ranges.
type loads struct {
	shard, ranges, busy *prometheus.Desc
	now                 atomic.Pointer[loadsNow]
}

type loadsNow struct {
	shards map[string]float64
	ranges []RangeLoad
}

func (m *Metrics) addLoads() {
	const which = "Labels: `keyspace`, `range` (as cleave.ranges has it, or the key), `shard`; the 20 hottest only"
	m.loads = &loads{
		shard:  m.desc("gauge", "cleave_shard_load", "Statements per second whose keys a shard owns, as this router counted them, smoothed over the setting load-window, by shard.", "shard"),
		ranges: m.desc("gauge", "cleave_range_load", "Statements per second of a range, listed value or pin, as this router counted them, smoothed over the setting load-window. "+which+".", "keyspace", "range", "shard"),
		busy:   m.desc("gauge", "cleave_range_busy", "Statements of a range that are under way at a time: the time that they take, seconds per second. "+which+".", "keyspace", "range", "shard"),
	}
	m.registry.MustRegister(m.loads)
}

// Load sets what the next scrapes tell of the load: of every shard, and of the ranges with
// most, at most RangesMax.
func (m *Metrics) Load(shards map[string]float64, ranges []RangeLoad) {
	if m != nil {
		m.loads.now.Store(&loadsNow{shards, ranges[:min(len(ranges), RangesMax)]})
	}
}

// Describe implements prometheus.Collector.
func (l *loads) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.shard
	ch <- l.ranges
	ch <- l.busy
}

// Collect implements prometheus.Collector.
func (l *loads) Collect(ch chan<- prometheus.Metric) {
	now := l.now.Load()
	if now == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n, other := 0, 0.0
	for name, v := range now.shards {
		if n++; n > ShardMax {
			other += v
			continue
		}
		gauge(l.shard, v, name)
	}
	if n > ShardMax {
		gauge(l.shard, other, Other)
	}
	for _, r := range now.ranges {
		gauge(l.ranges, r.Statements, r.Keyspace, r.Range, r.Shard)
		gauge(l.busy, r.Busy, r.Keyspace, r.Range, r.Shard)
	}
}
