package moment

import (
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

// BenchmarkPass is what an answer pays while there is no hush.
func BenchmarkPass(b *testing.B) {
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	for name, l := range map[string]*shardmap.Lease{"alone": nil, "asked": lease} {
		b.Run(name, func(b *testing.B) {
			var g Gate
			g.Under(l)
			g.Pass()
			for b.Loop() {
				g.Pass()
			}
		})
	}
}

// BenchmarkHush is how long three routers on one machine are silent for a moment in which nothing is taken.
func BenchmarkHush(b *testing.B) {
	dir := cluster(b)
	joins(b, dir, "one")
	joins(b, dir, "two")
	p := asker(b, dir, "self")
	var silent time.Duration
	for b.Loop() {
		m := meet(b, p)
		began := time.Now()
		if !m.Hush() || !m.Lift() {
			b.Error("it was not whole")
		}
		silent += time.Since(began)
	}
	b.ReportMetric(float64(silent.Microseconds())/float64(b.N), "µs-silent/op")
}
