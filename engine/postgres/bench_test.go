package postgres_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/keyspace"
)

// hashRanges owns n pieces of the hash space with one free position between them
// (so nearly all keys); with n = 1 it owns everything.
func hashRanges(n int) keyspace.Ownership {
	o := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Epoch: 1}
	step := uint64(math.MaxUint64)/uint64(n) + 1
	for i := range n {
		low := int64(uint64(i)*step + 1<<63)
		v := keyspace.Interval{Low: low, High: low + int64(step-1)} // one position short of the next: not merged
		if i == n-1 {
			v.Last = true
		}
		o.Intervals = append(o.Intervals, v)
	}
	if n == 1 {
		o.Intervals = []keyspace.Interval{{Low: math.MinInt64, Last: true}}
	}
	return o
}

// keyRanges owns [1000i, 1000i+999) for n values of i, which is where
// benchKeys puts all keys; width 2 adds a second key column.
func keyRanges(n, width int, typ keyspace.Type) keyspace.Ownership {
	o := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Range, Epoch: 1}
	value := func(v int64) keyspace.Value {
		if typ == keyspace.Text {
			return keyspace.Str(typ, fmt.Sprintf("%012d", v))
		}
		return keyspace.Int(typ, v)
	}
	for range width {
		o.Types = append(o.Types, typ)
	}
	key := func(v int64) keyspace.Key {
		if width == 1 {
			return keyspace.Key{value(v)}
		}
		return keyspace.Key{value(v / 100000), value(v)}
	}
	for i := range int64(n) {
		low, high := key(1000*i), key(1000*i+999)
		o.Intervals = append(o.Intervals, keyspace.Interval{LowKey: string(keyspace.AppendOrdered(nil, low)), LowValues: low,
			HighKey: string(keyspace.AppendOrdered(nil, high)), HighValues: high})
	}
	return o
}

// BenchmarkGuard measures what a guard costs a row: statements of 50,000 rows,
// rolled back, in rounds over all kinds of guards. It reports the fastest round
// of each in CPU time of the shard's process, which is what other work on the
// machine disturbs least; the difference to "none" is the guard.
func BenchmarkGuard(b *testing.B) {
	const rows, rounds = 50000, 9
	s := installed(b, pgtest.Database(b))
	c := connect(b, s)
	do(b, c, `SET max_parallel_workers_per_gather = 0`)
	stat := "/proc/" + do(b, c, `SELECT pg_backend_pid()`) + "/schedstat"
	cpu := func() (nanos int64) { // proc(5): first field, time spent on the CPU
		text, err := os.ReadFile(stat)
		if err == nil {
			_, err = fmt.Sscan(string(text), &nanos)
		}
		if err != nil {
			b.Fatal(err)
		}
		return nanos
	}
	texts := "lpad(((i % 1024) * 1000)::text, 12, '0')"
	kinds := []struct {
		name  string
		typ   string
		key   string // of row i
		owned *keyspace.Ownership

		insert, update int64 // fastest round, nanoseconds
	}{
		{name: "bigint/none", typ: "bigint", key: "i"},
		{name: "bigint/hash/1", typ: "bigint", key: "i", owned: ptr(hashRanges(1))},
		{name: "bigint/hash/64", typ: "bigint", key: "i", owned: ptr(hashRanges(64))},
		{name: "bigint/hash/1024", typ: "bigint", key: "i", owned: ptr(hashRanges(1024))},
		{name: "bigint/range/1024", typ: "bigint", key: "(i % 1024) * 1000", owned: ptr(keyRanges(1024, 1, keyspace.Int8))},
		{name: "two-bigint/range/1024", typ: "bigint", key: "(i % 1024) * 1000", owned: ptr(keyRanges(1024, 2, keyspace.Int8))},
		{name: "text/none", typ: "text", key: texts},
		{name: "text/range/64", typ: "text", key: "lpad(((i % 64) * 1000)::text, 12, '0')", owned: ptr(keyRanges(64, 1, keyspace.Text))},
		{name: "text/range/1024", typ: "text", key: texts, owned: ptr(keyRanges(1024, 1, keyspace.Text))},
	}
	for i := range kinds {
		k := &kinds[i]
		k.insert, k.update = math.MaxInt64, math.MaxInt64
		do(b, c, fmt.Sprintf(`CREATE UNLOGGED TABLE bench%d (k2 %s, k %s, v text)`, i, k.typ, k.typ))
		if k.owned == nil {
			continue
		}
		g := engine.Guard{Schema: "public", Table: fmt.Sprintf("bench%d", i), ShardKey: []string{"k"}, Owned: *k.owned}
		if len(g.Owned.Types) == 2 {
			g.ShardKey = []string{"k2", "k"}
		}
		if err := c.SetGuard(context.Background(), g); err != nil {
			b.Fatal(err)
		}
	}
	for range rounds {
		for i := range kinds {
			k := &kinds[i]
			first := "'0'"
			if k.typ == "bigint" {
				first = "(" + k.key + ") / 100000"
			}
			do(b, c, `BEGIN`)
			start := cpu()
			do(b, c, fmt.Sprintf(`INSERT INTO bench%d SELECT %s, %s, 'some text to store' FROM generate_series(1, %d) AS i`, i, first, k.key, rows))
			k.insert = min(k.insert, cpu()-start)
			start = cpu()
			do(b, c, fmt.Sprintf(`UPDATE bench%d SET v = 'another text'`, i))
			k.update = min(k.update, cpu()-start)
			do(b, c, `ROLLBACK`, fmt.Sprintf(`VACUUM bench%d`, i))
		}
	}
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			b.ReportMetric(float64(k.insert)/rows, "insert-ns/row")
			b.ReportMetric(float64(k.update)/rows, "update-ns/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func ptr(o keyspace.Ownership) *keyspace.Ownership { return &o }

// BenchmarkRelay measures a round trip of SELECT 1 through the framing.
func BenchmarkRelay(b *testing.B) {
	c := connect(b, installed(b, pgtest.Database(b)))
	frames := []byte("Q\x00\x00\x00\x0dSELECT 1\x00")
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := c.Send(frames); err != nil {
			b.Fatal(err)
		}
		for done := false; !done; {
			got, err := c.Receive()
			if err != nil {
				b.Fatal(err)
			}
			done = slices.Equal(got[len(got)-6:], []byte("Z\x00\x00\x00\x05I"))
		}
	}
}
