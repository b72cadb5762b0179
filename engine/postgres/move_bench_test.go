package postgres_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/keyspace"
)

// benchTable is pgbench's table of accounts, with as many rows.
const benchTable = `CREATE TABLE accounts (aid bigint PRIMARY KEY, bid integer, abalance integer NOT NULL, filler char(84))`

// benchMove is a source with n accounts, an empty target, and the set of all.
func benchMove(b *testing.B, n int) (urls [2]string, src, dst engine.Mover, set engine.Set) {
	b.Helper()
	var movers [2]engine.Mover
	for i := range urls {
		urls[i] = pgtest.DatabaseOn(b, pgtest.NewServer(b, map[string]string{"shared_buffers": "256MB", "max_wal_size": "4GB"}))
		s := installed(b, urls[i])
		do(b, connect(b, s), benchTable)
		movers[i] = s.(engine.Movable).Mover(1)
	}
	pgtest.Ask(b, urls[0], fmt.Sprintf(`INSERT INTO accounts SELECT i, i %% 100, 0, '' FROM generate_series(1, %d) i`, n))
	pgtest.Ask(b, urls[0], `VACUUM ANALYZE accounts`)
	set.Keys = keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8},
		Intervals: []keyspace.Interval{{Low: math.MinInt64, High: math.MaxInt64}}} // all but one position, so that each row is looked at
	tables, err := movers[0].Describe(b.Context(), []engine.MoveTable{{Schema: "public", Name: "accounts", ShardKey: []string{"aid"}}})
	if err != nil {
		b.Fatal(err)
	}
	set.Tables = tables
	return urls, movers[0], movers[1], set
}

func benchCopy(b *testing.B, src, dst engine.Mover, set engine.Set, id string, parts int) (at engine.Position) {
	b.Helper()
	view, err := src.Capture(b.Context(), id, set)
	if err != nil {
		b.Fatal(err)
	}
	var wait sync.WaitGroup
	_, size, err := src.Sizes(b.Context(), set)
	if err != nil {
		b.Fatal(err)
	}
	list, err := view.Parts(b.Context(), 0, size/int64(parts)+1, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, part := range list {
		wait.Go(func() {
			r, w := io.Pipe()
			wait.Go(func() { w.CloseWithError(view.Rows(b.Context(), 0, part, nil, w)) })
			if _, err := dst.Load(b.Context(), id, &set.Tables[0], part, r); err != nil {
				b.Error(err)
			}
		})
	}
	wait.Wait()
	if err := view.Close(); err != nil {
		b.Fatal(err)
	}
	return view.Position()
}

// BenchmarkMoveCopy copies accounts with Rows and Load, and with pg_dump | psql, by
// turns. The ratio is of rows per second.
func BenchmarkMoveCopy(b *testing.B) {
	const n = 500_000
	urls, src, dst, set := benchMove(b, n)
	clear := func() { pgtest.Ask(b, urls[1], `TRUNCATE accounts`); pgtest.Ask(b, urls[1], `CHECKPOINT`) }
	for _, parts := range []int{1, 2} {
		b.Run(fmt.Sprintf("parts=%d", parts), func(b *testing.B) {
			var ours, theirs time.Duration
			for range b.N {
				clear()
				start := time.Now()
				dump := exec.Command("/bin/sh", "-c", `"$0" --data-only -t accounts "$1" | "$2" -Xq "$3"`, pgtest.PGDump(b), urls[0], pgtest.PSQL(b), urls[1])
				if out, err := dump.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				theirs += time.Since(start)
				clear()
				start = time.Now()
				benchCopy(b, src, dst, set, "bench", parts)
				ours += time.Since(start)
				if got := pgtest.Ask(b, urls[1], `SELECT count(*) FROM accounts`); got != strconv.Itoa(n) {
					b.Fatalf("%s rows were copied", got)
				}
			}
			b.ReportMetric(float64(n*b.N)/ours.Seconds(), "rows/s")
			b.ReportMetric(float64(n*b.N)/theirs.Seconds(), "pg_dump-rows/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
		})
	}
	if err := src.Release(b.Context(), "bench"); err != nil {
		b.Fatal(err)
	}
}

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

// BenchmarkMoveCatchUp has 8 clients update single rows as fast as the source can, and
// applies what they have written. The ratio is of changes per second.
func BenchmarkMoveCatchUp(b *testing.B) {
	const n, transactions = 100_000, 20_000
	urls, src, dst, set := benchMove(b, n)
	at := benchCopy(b, src, dst, set, "bench", 1)
	script := filepath.Join(b.TempDir(), "update.sql")
	if err := os.WriteFile(script, []byte("\\set aid random(1, 100000)\nUPDATE accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	if err := dst.SetApplied(b.Context(), "bench", at); err != nil {
		b.Fatal(err)
	}
	peak, rate := 0.0, 0.0
	for range b.N {
		out, err := exec.Command(pgtest.PGBench(b), "-n", "-M", "prepared", "-c", "8", "-j", "2", "-t", strconv.Itoa(transactions/8*5), "-f", script, urls[0]).CombinedOutput()
		m := tps.FindSubmatch(out)
		if err != nil || m == nil {
			b.Fatalf("%v: %s", err, out)
		}
		f, _ := strconv.ParseFloat(string(m[1]), 64)
		peak += f
		goal, err := src.Here(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		a, err := dst.Apply(b.Context(), "bench", set)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		counted := &counting{Applier: a}
		if err := src.Changes(b.Context(), "bench", set, at, goal, counted); err != nil {
			b.Fatal(err)
		}
		if at, err = a.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		rate += float64(counted.n.Load()) / time.Since(start).Seconds()
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
		if err := src.Forget(b.Context(), "bench", at); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(peak/float64(b.N), "peak-updates/s")
	b.ReportMetric(rate/float64(b.N), "changes/s")
	b.ReportMetric(rate/peak, "ratio")
	b.StopTimer()
	if err := src.Release(b.Context(), "bench"); err != nil {
		b.Fatal(err)
	}
}

type counting struct {
	engine.Applier
	n    atomic.Int64
	peak uint64 // heap, sampled
}

func (c *counting) Change(ctx context.Context, change *engine.Change) error {
	if c.n.Add(1)%50_000 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.peak = max(c.peak, m.HeapAlloc)
	}
	return c.Applier.Change(ctx, change)
}

// BenchmarkMoveFence sets guards of so many ranges on two tables that nobody writes to.
func BenchmarkMoveFence(b *testing.B) {
	for _, n := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("ranges=%d", n), func(b *testing.B) {
			s := installed(b, pgtest.Database(b))
			do(b, connect(b, s), `CREATE TABLE one (k bigint PRIMARY KEY)`, `CREATE TABLE two (k bigint PRIMARY KEY)`)
			v := s.(engine.Movable).Mover(1)
			for i := range b.N {
				o := hashRanges(n)
				o.Epoch = uint64(i + 1)
				if _, err := v.Fence(b.Context(), []engine.Guard{
					{Schema: "public", Table: "one", ShardKey: []string{"k"}, Owned: o}, {Schema: "public", Table: "two", ShardKey: []string{"k"}, Owned: o},
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/fence")
		})
	}
}

// BenchmarkMoveTables fences and opens so many tables that nobody writes to.
func BenchmarkMoveTables(b *testing.B) {
	for _, n := range []int{1, 20, 100, 300} {
		s := installed(b, pgtest.Database(b))
		c := connect(b, s)
		guards := make([]engine.Guard, n)
		for i := range guards {
			guards[i] = engine.Guard{Schema: "public", Table: fmt.Sprintf("t%d", i), ShardKey: []string{"k"}}
			do(b, c, fmt.Sprintf(`CREATE TABLE t%d (k bigint PRIMARY KEY)`, i))
		}
		v := s.(engine.Movable).Mover(1)
		epoch := uint64(0)
		next := func() []engine.Guard {
			epoch++
			o := hashRanges(16)
			o.Epoch = epoch
			for i := range guards {
				guards[i].Owned = o
			}
			return guards
		}
		if _, err := v.Fence(b.Context(), next()); err != nil { // the triggers
			b.Fatal(err)
		}
		for what, do := range map[string]func() error{
			"fence": func() error { _, err := v.Fence(b.Context(), next()); return err },
			"open":  func() error { return v.(engine.Opener).Open(b.Context(), next()) },
		} {
			b.Run(fmt.Sprintf("%s/tables=%d", what, n), func(b *testing.B) {
				for range b.N {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/"+what)
			})
		}
	}
}
