package differential

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
	"github.com/cleavedb/cleave/test/differential/generate"
)

// wrongMax is how many wrong answers end a run: one mistake shows in many.
const wrongMax = 8

// shrinkTries bounds the runs that make one statement smaller.
const shrinkTries = 250

// fuzzed counts what became of the statements of one configuration.
type fuzzed struct {
	made, refused, failed, mistaken int
	whys                            map[string]int
}

// TestFuzz makes -statements statements by -seed and runs each on one of the
// configurations of PostgreSQL and every third one also on SQLite.
func TestFuzz(t *testing.T) {
	router, plain := generate.Schema(*seed)
	schema := corpus.Schema{Name: "generated", Engines: []string{"postgres", "sqlite"}}
	for _, sql := range router {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: sql, Router: true})
	}
	for _, sql := range plain {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: sql, Plain: true})
	}
	begin, end := *first, *first+*count
	if *count == 0 {
		const inShort, inAll = 1_500, 10_000
		end = begin + testrun.Pick[uint64](inShort, inAll)
		if !testrun.Wants(true) {
			begin += inShort
		}
	}
	t.Logf("seed %d, statements %d to %d", *seed, begin, end-1)
	var wrong atomic.Int32
	var mu sync.Mutex
	totals := map[string]*fuzzed{}
	t.Run("on", func(t *testing.T) {
		for i, o := range configurations {
			t.Run(fmt.Sprintf("%s-%d", o.Engine, o.Shards), func(t *testing.T) {
				t.Parallel()
				p := startPair(t, o, []corpus.Schema{schema}, *moving || i%2 == 1)
				got := &fuzzed{whys: map[string]int{}}
				for n := begin; n < end && wrong.Load() < wrongMax; n++ {
					if o.Engine == "postgres" && n%3 != uint64(i) || o.Engine == "sqlite" && n%9 != uint64(i-3) {
						continue
					}
					if d := fuzzOne(p, n, got); d != "" {
						wrong.Add(1)
						t.Error(d)
					}
				}
				mu.Lock()
				totals[p.cluster.Name()] = got
				mu.Unlock()
			})
		}
	})
	for _, o := range configurations {
		name := fmt.Sprintf("%s-%d", o.Engine, o.Shards)
		if got := totals[name]; got != nil && got.made > 0 {
			t.Logf("%s: %d statements, %d refused (%.1f %%), %d failed as in PostgreSQL, %d of them not accepted by it\n%s", name, got.made, got.refused,
				100*float64(got.refused)/float64(got.made), got.failed, got.mistaken, reasons(&tally{whys: got.whys}, 10))
			if got.mistaken*20 > got.made+100 {
				t.Errorf("%s: the grammar makes too many statements that PostgreSQL does not accept", name)
			}
		}
	}
}

// fuzzOne makes and runs a statement; it returns what is wrong, made small.
func fuzzOne(p *pair, n uint64, total *fuzzed) string {
	o := generate.Options{Seed: *seed, Number: n, SQLite: p.cluster.Engine == "sqlite"}
	st := generate.Make(o)
	mode := []compare.Mode{compare.Simple, compare.Binary, compare.Text}[n/9%3]
	// A write is kept, and its table compared, or taken back after the router read
	// the table inside the transaction.
	keep := n/2%2 == 0
	sql := generate.Text(st.Tree)
	total.made++
	v, why, want := p.fuzz(sql, st.Write, mode, keep)
	switch v {
	case refused:
		total.refused++
		total.whys[why]++
		return ""
	case equal:
		if want.Err != nil {
			total.failed++
			if strings.HasPrefix(want.Err.Code, "42") {
				total.mistaken++
			}
		}
		return ""
	}
	generate.Shrink(st.Tree, shrinkTries, func(sql string) bool {
		v, now, _ := p.fuzz(sql, st.Write, mode, keep)
		if v == differs {
			why = now
		}
		return v == differs
	})
	small := generate.Text(st.Tree)
	return fmt.Sprintf("%s, %s, seed %d, statement %d (go test ./test/differential -run TestFuzz -seed %[3]d -statement %d -statements 1):\n%s;\n%s\nmade of\n%s;\nto run again by hand: %s",
		p.cluster.Name(), mode, *seed, n, small, why, sql, p.reproduce(small, n))
}

// fuzz runs a statement on tables that are as they were, and leaves them so.
func (p *pair) fuzz(sql, writes string, mode compare.Mode, keep bool) (verdict, string, *compare.Outcome) {
	ctx := context.Background()
	st := compare.Statement{SQL: sql, Mode: mode}
	o := compare.Options{Order: compare.Order{Any: !compare.Ordered(sql)}, AnyError: true, Modifiers: true, Mistakes: true}
	begin := writes != "" && !keep
	if begin {
		for _, s := range []*compare.Session{p.router, p.plain} {
			if out := s.Run(ctx, compare.Statement{SQL: "BEGIN"}); out.Err != nil || out.Lost != nil {
				return differs, "BEGIN: " + out.String(), out
			}
		}
	}
	v, why, want := p.runFor(ctx, st, o)
	if begin && v == equal && want.Err == nil {
		all := compare.Statement{SQL: "SELECT * FROM " + writes}
		if v, why = p.run(ctx, all, compare.Options{Order: compare.Order{Any: true}}); v == differs {
			why = "afterwards, inside the transaction: " + why
		}
	}
	for _, s := range []*compare.Session{p.router, p.plain} {
		if s.Conn.TxStatus() != 'I' {
			s.Run(ctx, compare.Statement{SQL: "ROLLBACK"})
		}
	}
	if writes == "" {
		return v, why, want
	}
	at := table{"public", writes}
	p.changed["public."+writes] = true
	if v == equal {
		if d := p.tableDifference(at); d != "" {
			v, why = differs, d
		}
	}
	p.reset()
	return v, why, want
}

// reproduce writes a file with tables, rows, the map and the statement.
func (p *pair) reproduce(sql string, n uint64) string {
	var b strings.Builder
	router, plain := generate.Schema(*seed)
	fmt.Fprintf(&b, "-- seed %d, statement %d, %s\n\n", *seed, n, p.cluster.Name())
	for _, s := range p.cluster.Snapshot().Shards() {
		fmt.Fprintf(&b, "-- shard %s\n", s.Name)
	}
	for _, k := range p.cluster.Snapshot().State().Keyspaces {
		fmt.Fprintf(&b, "-- keyspace %s: %+v %+v\n", k.Name, k.Ranges, k.Values)
	}
	b.WriteString("\n-- on the router:\n" + strings.Join(router, ";\n") + ";\n")
	b.WriteString("\n-- on one database:\n" + strings.Join(plain, ";\n") + ";\n")
	b.WriteString("\n-- on both:\n" + sql + ";\n")
	file := filepath.Join(os.TempDir(), fmt.Sprintf("cleave-fuzz-%d-%d-%s.sql", *seed, n, p.cluster.Name()))
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		return err.Error()
	}
	return file
}
