package sqlite_test

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
)

const benchTable = `CREATE TABLE t (k bigint NOT NULL, id bigint NOT NULL, name text, n numeric, at timestamptz, PRIMARY KEY (k, id))`

func benchRows(n int) string {
	return fmt.Sprintf(`INSERT INTO t SELECT i, 1, 'a name of a customer', 12.50, '2026-11-22 06:00:00+00' FROM generate_series(1, %d) i`, n)
}

// cpuTime is what the process has used. Others may use the machine meanwhile.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCapture measures what a capture costs a writer, CPU
// time a row: in one transaction, all rows in the set or none.
func BenchmarkCapture(b *testing.B) {
	const rows = 20_000
	for _, what := range []string{"plain", "guard", "captured", "captured, other rows"} {
		b.Run(what, func(b *testing.B) {
			best := map[string]time.Duration{}
			for range 5 {
				s := harness().Open(b)
				c := open(b, s)
				mustExec(b, c, benchTable)
				all := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Epoch: 1, Intervals: []keyspace.Interval{keyspace.WholeHash()}}
				if what != "plain" {
					if err := c.SetGuard(b.Context(), engine.Guard{Schema: "public", Table: "t", ShardKey: []string{"k"}, Owned: all}); err != nil {
						b.Fatal(err)
					}
				}
				if what == "captured" || what == "captured, other rows" {
					set := engine.Set{Keys: all}
					if what != "captured" {
						set.Keys.Intervals = []keyspace.Interval{{Low: 0, High: 1}}
					}
					m := s.(engine.Movable).Mover(1)
					var err error
					if set.Tables, err = m.Describe(b.Context(), []engine.MoveTable{{Schema: "public", Name: "t", ShardKey: []string{"k"}}}); err != nil {
						b.Fatal(err)
					}
					if _, err := m.CaptureChanges(b.Context(), "bench", set); err != nil {
						b.Fatal(err)
					}
				}
				mustExec(b, c, "BEGIN")
				for _, x := range [][2]string{{"insert", benchRows(rows)}, {"update", "UPDATE t SET n = 13.50"}, {"delete", "DELETE FROM t"}} {
					start := cpuTime(b)
					mustExec(b, c, x[1])
					if d := cpuTime(b) - start; best[x[0]] == 0 || d < best[x[0]] {
						best[x[0]] = d
					}
				}
				mustExec(b, c, "COMMIT")
				c.Close()
			}
			for op, d := range best {
				b.ReportMetric(float64(d.Nanoseconds())/rows, "ns/"+op)
			}
		})
	}
}

// BenchmarkMove measures the steps of a move from a file to a file, rows a second.
func BenchmarkMove(b *testing.B) {
	const rows = 100_000
	var m [2]engine.Mover
	var c [2]engine.Conn
	for i := range m {
		s := harness().Open(b)
		m[i], c[i] = s.(engine.Movable).Mover(1), open(b, s)
		mustExec(b, c[i], benchTable)
	}
	mustExec(b, c[0], benchRows(rows))
	ctx := b.Context()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	set := engine.Set{Keys: keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Intervals: []keyspace.Interval{keyspace.WholeHash()}}}
	var err error
	set.Tables, err = m[0].Describe(ctx, []engine.MoveTable{{Schema: "public", Name: "t", ShardKey: []string{"k"}}})
	must(err)
	rate := func(what string, n int, fn func()) {
		start := time.Now()
		fn()
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), what+"/s")
	}
	view, err := m[0].Capture(ctx, "bench", set)
	must(err)
	rate("read", rows, func() { must(view.Rows(ctx, 0, engine.Part{}, nil, io.Discard)) })
	rate("copied", rows, func() {
		parts, err := view.Parts(ctx, 0, 4<<20, nil)
		must(err)
		errs := make(chan error)
		for _, part := range parts {
			go func() {
				r, w := io.Pipe()
				go func() { w.CloseWithError(view.Rows(ctx, 0, part, nil, w)) }()
				_, err := m[1].Load(ctx, "bench", &set.Tables[0], part, r)
				errs <- err
			}()
		}
		for range parts {
			must(<-errs)
		}
	})
	must(view.Close())
	must(m[1].SetApplied(ctx, "bench", view.Position()))
	rate("written", rows, func() {
		for k := 0; k < rows; k += 100 { // 100 rows a transaction
			mustExec(b, c[0], fmt.Sprintf("UPDATE t SET n = n + 1 WHERE k >= %d AND k < %d", k, k+100))
		}
	})
	end, err := m[0].Here(ctx)
	must(err)
	rate("caughtup", rows, func() {
		a, err := m[1].Apply(ctx, "bench", set)
		must(err)
		must(m[0].Changes(ctx, "bench", set, view.Position(), end, a))
		_, err = a.Flush(ctx)
		must(err)
		must(a.Close())
	})
	rate("decoded", rows, func() { must(m[0].Changes(ctx, "bench", set, view.Position(), end, discard{})) })
	rate("summed", rows, func() {
		x, err := m[0].Sums(ctx, set, nil)
		must(err)
		y, err := m[1].Sums(ctx, set, nil)
		must(err)
		if x[0] != y[0] {
			b.Fatalf("%+v and %+v", x, y)
		}
	})
	rate("purged", rows, func() {
		for {
			n, err := m[0].Purge(ctx, set, 1000)
			must(err)
			if n < 1000 {
				return
			}
		}
	})
}

type discard struct{}

func (discard) Change(context.Context, *engine.Change) error  { return nil }
func (discard) Commit(context.Context, engine.Position) error { return nil }

// BenchmarkMoveTables fences so many tables that nobody writes to.
func BenchmarkMoveTables(b *testing.B) {
	for _, n := range []int{1, 20, 100, 300} {
		b.Run(fmt.Sprintf("tables=%d", n), func(b *testing.B) {
			s := harness().Open(b)
			c := open(b, s)
			guards := make([]engine.Guard, n)
			for i := range guards {
				guards[i] = engine.Guard{Schema: "public", Table: fmt.Sprintf("t%d", i), ShardKey: []string{"k"}}
				mustExec(b, c, fmt.Sprintf(`CREATE TABLE t%d (k bigint PRIMARY KEY)`, i))
			}
			m := s.(engine.Movable).Mover(1)
			epoch := uint64(0)
			fence := func() {
				epoch++
				o := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Epoch: epoch}
				for i := range int64(16) {
					o.Intervals = append(o.Intervals, keyspace.Interval{Low: i * 1000, High: i*1000 + int64(epoch)})
				}
				for i := range guards {
					guards[i].Owned = o
				}
				if _, err := m.Fence(b.Context(), guards); err != nil {
					b.Fatal(err)
				}
			}
			fence() // makes the triggers
			b.ResetTimer()
			for range b.N {
				fence()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/fence")
		})
	}
}
