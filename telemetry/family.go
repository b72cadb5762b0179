package telemetry

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Family describes one metric as it is served.
type Family struct {
	Name   string
	Type   string   // "counter", "gauge" or "histogram"
	Labels []string // their names
	Help   string
}

// builder registers metrics and keeps account of them.
type builder struct {
	registry *prometheus.Registry
	families []Family
}

func (b *builder) note(typ, name, help string, labels []string) {
	b.families = append(b.families, Family{Name: name, Type: typ, Labels: labels, Help: help})
}

func (b *builder) counter(name, help string) prometheus.Counter {
	return b.counters(name, help).WithLabelValues()
}

func (b *builder) counters(name, help string, labels ...string) *prometheus.CounterVec {
	b.note("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	b.registry.MustRegister(v)
	return v
}

func (b *builder) gauge(name, help string) prometheus.Gauge {
	return b.gauges(name, help).WithLabelValues()
}

func (b *builder) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	b.note("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	b.registry.MustRegister(v)
	return v
}

func (b *builder) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	b.note("histogram", name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	b.registry.MustRegister(v)
	return v
}

// desc describes a metric that a collector of this package serves.
func (b *builder) desc(typ, name, help string, labels ...string) *prometheus.Desc {
	b.note(typ, name, help, labels)
	return prometheus.NewDesc(name, help, labels, nil)
}

// read is a gauge whose value is asked for at each scrape; it is left out while
// ok is false.
type read struct {
	desc *prometheus.Desc
	get  func() (v float64, ok bool)
}

// Describe implements prometheus.Collector.
func (r *read) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

// Collect implements prometheus.Collector.
func (r *read) Collect(ch chan<- prometheus.Metric) {
	if v, ok := r.get(); ok {
		ch <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, v)
	}
}

// Families returns every metric that a router can serve, in the order of the
// documentation, without those of the Go runtime and the process.
func Families() []Family { return New().families }

// Table returns the metrics as a table in Markdown, for docs/metrics.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range Families() {
		labels := make([]string, len(f.Labels))
		for i, l := range f.Labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, strings.Join(labels, ", "), f.Help)
	}
	return b.String()
}
