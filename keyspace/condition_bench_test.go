package keyspace_test

import (
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
	. "github.com/cleavedb/cleave/keyspace"
)

// BenchmarkCondition measures what leaving rows out costs a scan, per row, on a server.
func BenchmarkCondition(b *testing.B) {
	const rows = 500_000
	db := open(b, pgtest.Database(b))
	db.run(fmt.Sprintf(`SET max_parallel_workers_per_gather = 0; SET jit = off;
		CREATE TABLE t AS SELECT i::bigint AS k, 'tenant-' || i AS s FROM generate_series(1, %d) AS i`, rows))
	db.run("VACUUM ANALYZE t")
	spans := func(n int) (ivs []Interval) {
		bounds := EvenRanges(4 * n)
		for i := range n {
			ivs = append(ivs, Interval{Low: bounds[4*i], High: bounds[4*i+1]})
		}
		return ivs
	}
	key := func(n int64) Key { return Key{Int(Int8, n)} }
	big := []Type{Int8}
	for _, c := range []struct {
		name, column string
		o            *Ownership
	}{
		{"none", "k", nil},
		{"hash of bigint, 1 interval", "k", &Ownership{Strategy: Hash, Types: big, Intervals: spans(1)}},
		{"hash of bigint, 4 intervals", "k", &Ownership{Strategy: Hash, Types: big, Intervals: spans(4)}},
		{"hash of bigint, 64 intervals", "k", &Ownership{Strategy: Hash, Types: big, Intervals: spans(64)}},
		{"hash of text, 1 interval", "s", &Ownership{Strategy: Hash, Types: []Type{Text}, Intervals: spans(1)}},
		{"range of bigint", "k", &Ownership{Strategy: Range, Types: big, Intervals: []Interval{NewKeyInterval(key(5), key(1000))}}},
		{"pin", "k", &Ownership{Strategy: Hash, Types: big, Pinned: []Key{key(5)}}},
	} {
		sql := "SELECT count(*) FROM t"
		if c.o != nil {
			sql += " WHERE NOT " + Condition(c.o, []string{c.column})
		}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				db.run(sql)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}
