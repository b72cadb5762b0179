package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/keyspace"
)

// BenchmarkCondition measures what leaving rows out costs a scan, per row.
func BenchmarkCondition(b *testing.B) {
	const rows = 200_000
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: "c", Name: "s", URL: "file:" + filepath.Join(b.TempDir(), "b.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Install(b.Context()); err != nil {
		b.Fatal(err)
	}
	c := open(b, s)
	mustExec(b, c, fmt.Sprintf("CREATE TABLE t (k bigint, s text); INSERT INTO t SELECT g, 'tenant-' || g FROM generate_series(1, %d) g", rows))
	bounds := keyspace.EvenRanges(4)
	one := []keyspace.Interval{{Low: bounds[0], High: bounds[1]}}
	key := func(n int64) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, n)} }
	big := []keyspace.Type{keyspace.Int8}
	for _, x := range []struct {
		name, column string
		o            *keyspace.Ownership
	}{
		{"none", "k", nil},
		{"hash of bigint", "k", &keyspace.Ownership{Strategy: keyspace.Hash, Types: big, Intervals: one}},
		{"hash of text", "s", &keyspace.Ownership{Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Text}, Intervals: one}},
		{"range of bigint", "k", &keyspace.Ownership{Strategy: keyspace.Range, Types: big, Intervals: []keyspace.Interval{keyspace.NewKeyInterval(key(5), key(1000))}}},
	} {
		sql := "SELECT count(*) FROM t"
		if x.o != nil {
			sql += " WHERE NOT " + keyspace.Condition(x.o, []string{x.column})
		}
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				mustExec(b, c, sql)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}
