package differential

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/test/differential/cluster"
	"github.com/cleavedb/cleave/test/differential/corpus"
	"github.com/cleavedb/cleave/test/differential/tpcc"
)

// mover moves the ranges and keys of a keyspace all the time, one after the other.
type mover struct {
	t    *testing.T
	c    *cluster.Cluster
	ks   string
	keys int
	r    *rand.Rand

	n    int
	stop context.CancelFunc
	gone sync.WaitGroup
	done atomic.Int64 // cutovers
}

func newMover(t *testing.T, c *cluster.Cluster, ks string, keys int) *mover {
	m := &mover{t: t, c: c, ks: ks, keys: keys, r: rand.New(rand.NewPCG(*seed, 77)), stop: func() {}}
	t.Cleanup(m.end)
	return m
}

// begin lets it move until end is called.
func (m *mover) begin() {
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.gone.Go(func() {
		for ctx.Err() == nil {
			m.n++
			if err := m.one(fmt.Sprintf("m%d", m.n)); err != nil {
				m.t.Errorf("move %d: %v", m.n, err)
				return
			}
		}
	})
}

// end waits for the move that is under way.
func (m *mover) end() {
	m.stop()
	m.gone.Wait()
}

// one moves a range or a key, and sometimes back.
func (m *mover) one(id string) error {
	ctx, ops := context.Background(), m.c.Ops()
	ranges, err := ops.Ranges(ctx, m.ks)
	if err != nil {
		return err
	}
	some := ranges[m.r.IntN(len(ranges))]
	req := admin.MoveRequest{Meta: admin.Meta{By: "test"}, ID: id, Keyspace: m.ks, To: fmt.Sprintf("shard-%d", m.r.IntN(m.c.Shards)), MoveOptions: admin.MoveOptions{Keep: []string{"0", "1h"}[m.r.IntN(2)]}}
	if m.r.IntN(2) == 0 {
		req.Key = []string{fmt.Sprint(1 + m.r.IntN(m.keys))}
	} else {
		req.Range = some.Low + ".." + some.High
	}
	res, err := ops.Move(ctx, req)
	if err != nil || res.Workflow == nil {
		return err
	}
	back := false
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		list, err := ops.Moves(ctx, id)
		if err != nil {
			return err
		}
		w := list[0]
		switch {
		case w.Step == "done" || w.Step == "rolled back":
			m.done.Add(1)
			return nil
		case w.Ended || time.Now().After(end):
			var lines strings.Builder
			for _, l := range w.History {
				fmt.Fprintf(&lines, "\n%s %s %s", l.At.Format("15:04:05.000"), l.Step, l.What)
			}
			return fmt.Errorf("%s of %s is %s, %s: %s%s", id, w.Part, w.Step, w.Doing, w.Error, lines.String())
		case w.Step == "opened" && w.KeptUntil != nil && !back:
			back = true
			m.done.Add(1)
			time.Sleep(time.Duration(m.r.IntN(100)) * time.Millisecond)
			f := ops.Reverse
			if m.r.IntN(2) == 0 {
				f = ops.Complete
			}
			if _, err := f(ctx, admin.WorkflowRequest{Meta: req.Meta, ID: id}); err != nil {
				return err
			}
		}
	}
}

// several waits until so many cutovers were done since it was called, while f is
// run again and again, at least once.
func (m *mover) several(n int64, f func()) {
	m.t.Helper()
	for began, end := m.done.Load(), time.Now().Add(10*time.Minute); ; {
		f()
		if m.t.Failed() || m.done.Load() >= began+n {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("only %d cutovers in ten minutes", m.done.Load()-began)
		}
	}
}

// conditions checks that all tables agree with each other, as of one moment for each.
func conditions(ctx context.Context, conn *pgx.Conn) error {
	for _, what := range slices.Sorted(maps.Keys(tpcc.Conditions())) {
		for try := 0; ; try++ {
			rows, err := conn.Query(ctx, tpcc.Conditions()[what])
			n := 0
			if err == nil {
				for rows.Next() {
					n++
				}
				err = rows.Err()
			}
			var pe *pgconn.PgError
			if errors.As(err, &pe) && tpcc.Lost(pe.Code) && try < 100 {
				continue
			}
			if err != nil {
				return fmt.Errorf("condition %s: %w", what, err)
			}
			if n > 0 {
				return fmt.Errorf("condition %s: %d rows say that it is not so", what, n)
			}
			break
		}
	}
	return nil
}

// TestTPCCMoves runs TPC-C while the warehouses move between the shards: first one client, with the
// same transactions in one database, which has the same rows afterwards, by pg_dump
// where the shards are PostgreSQL's; then several at once. The conditions of consistency are
// checked before, all the time, and in the end.
func TestTPCCMoves(t *testing.T) {
	testrun.Long(t, "cutovers are waited for beside two mixes of TPC-C, on each engine; TestTPCC has it without moves")
	schema := corpus.Schema{Name: "tpcc", Engines: []string{"postgres", "sqlite"}}
	for _, table := range tpcc.Tables() {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: table.Create(true), Router: true}, corpus.Step{SQL: table.Create(false), Plain: true})
	}
	for _, sql := range tpcc.Rows(tpcc.Small) {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: sql, Plain: true})
	}
	for _, o := range []cluster.Options{{Engine: "postgres", Shards: 3, Coordinator: true}, {Engine: "sqlite", Shards: 2, Coordinator: true}} {
		t.Run(o.Engine, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			p := newPair(t, o, []corpus.Schema{schema})
			if o.Engine == "postgres" { // it has no key by which its rows could be followed
				if err := identify(p.cluster.URL(), "history"); err != nil {
					t.Fatal(err)
				}
			}
			mix := tpcc.Mix{Size: tpcc.Small, Remote: 30}
			look := connect(t, p.cluster.URL())
			check := func() {
				t.Helper()
				if err := conditions(ctx, look); err != nil {
					t.Error(err)
				}
			}
			check()
			m := newMover(t, p.cluster, "hash_integer", tpcc.Small.Warehouses)
			m.begin()
			router, plain := connect(t, p.cluster.URL()), connect(t, p.plain.URL())
			rr, rp := rand.New(rand.NewPCG(*seed, 3)), rand.New(rand.NewPCG(*seed, 3))
			ran := 0
			m.several(*cutovers, func() {
				for range 10 {
					ran++
					if err := errors.Join(mix.Run(ctx, router, rr), mix.Run(ctx, plain, rp)); err != nil {
						t.Fatalf("transaction %d: %v", ran, err)
					}
				}
				check()
			})
			m.end()
			t.Logf("%d transactions on both sides, %d cutovers", ran, m.done.Load())
			p.same()
			check()

			m.begin()
			stop := make(chan struct{})
			var g errgroup.Group
			var many atomic.Int64
			for client := range uint64(4) {
				conn := connect(t, p.cluster.URL())
				g.Go(func() error {
					r := rand.New(rand.NewPCG(*seed, 200+client))
					for {
						select {
						case <-stop:
							return nil
						default:
						}
						if err := mix.Run(ctx, conn, r); err != nil {
							return fmt.Errorf("client %d: %w", client, err)
						}
						many.Add(1)
					}
				})
			}
			m.several(*cutovers, check)
			close(stop)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			check()
			m.end()
			t.Logf("%d transactions of four clients, %d cutovers", many.Load(), m.done.Load())
			check()
			for _, at := range p.tables {
				if _, err := p.cluster.Rows(at.schema, at.name); err != nil {
					t.Error(err) // a row on the wrong shard, or copies that differ
				}
			}
		})
	}
}

// identify lets PostgreSQL write whole rows of a table without a key to its log.
func identify(url, table string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "ALTER TABLE "+table+" REPLICA IDENTITY FULL")
	return err
}

// same compares what the shards hold with what the one database holds: row by row and, of
// PostgreSQL, as pg_dump writes it.
func (p *pair) same() {
	t := p.t
	t.Helper()
	for _, at := range p.tables {
		if d := p.tableDifference(at); d != "" {
			t.Errorf("after the same transactions: %s", d)
		}
	}
	if p.cluster.Engine != "postgres" {
		return
	}
	want := dump(t, p.plain.URL())
	got := map[string][]string{}
	snap := p.cluster.Snapshot()
	for _, s := range snap.Shards() {
		for table, rows := range dump(t, s.URL) {
			at, ok := snap.Table("public", table)
			switch {
			case !ok:
				t.Errorf("%s has a table %s that the map has not", s.Name, table)
			case at.Kind != shardmap.Reference:
				got[table] = append(got[table], rows...)
			case got[table] != nil && !slices.Equal(got[table], rows):
				t.Errorf("the copies of %s differ", table)
			default:
				got[table] = rows
			}
		}
	}
	for table, rows := range want {
		if slices.Sort(got[table]); !slices.Equal(got[table], rows) {
			t.Errorf("pg_dump of all shards has %d rows of %s, that of one database %d; of the first only %q, of the second only %q", len(got[table]), table, len(rows), only(got[table], rows), only(rows, got[table]))
		}
	}
	if len(got) != len(want) {
		t.Errorf("the shards have %d tables, the one database %d", len(got), len(want))
	}
}

// dump is what pg_dump writes of the rows of each table, in the order of the texts.
func dump(t testing.TB, url string) map[string][]string {
	t.Helper()
	out, err := exec.Command(pgtest.PGDump(t), "--data-only", "--schema=public", url).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	tables, table := map[string][]string{}, ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		switch name, copies := strings.CutPrefix(line, "COPY public."); {
		case copies:
			table, _, _ = strings.Cut(name, " ")
			tables[table] = []string{}
		case line == `\.`:
			slices.Sort(tables[table])
			table = ""
		case table != "":
			tables[table] = append(tables[table], line)
		}
	}
	return tables
}

// TestPGBenchMoves runs pgbench's own script while its ranges move; the sums agree afterwards.
func TestPGBenchMoves(t *testing.T) {
	testrun.Long(t, "cutovers are waited for beside pgbench; TestTPCB has it without moves")
	ctx := context.Background()
	p := newPair(t, cluster.Options{Engine: "postgres", Shards: 3, Coordinator: true}, nil)
	conn := connect(t, p.cluster.URL())
	const accounts = 100_000 // of one branch: pgbench's smallest scale
	for _, sql := range []string{
		"CREATE TABLE pgbench_branches (bid integer PRIMARY KEY, bbalance integer, filler char(88)) WITH (cleave.shard_key = 'bid')",
		"CREATE TABLE pgbench_tellers (tid integer PRIMARY KEY, bid integer, tbalance integer, filler char(84)) WITH (cleave.shard_key = 'tid')",
		"CREATE TABLE pgbench_accounts (aid integer PRIMARY KEY, bid integer, abalance integer, filler char(84)) WITH (cleave.shard_key = 'aid')",
		"CREATE TABLE pgbench_history (tid integer, bid integer, aid integer, delta integer, mtime timestamp, filler char(22)) WITH (cleave.shard_key = 'aid')",
		"INSERT INTO pgbench_branches VALUES (1, 0)",
		"INSERT INTO pgbench_tellers SELECT n, 1, 0 FROM generate_series(1, 10) n",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	rows := pgx.CopyFromSlice(accounts, func(i int) ([]any, error) { return []any{int32(i + 1), int32(1), int32(0)}, nil })
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"pgbench_accounts"}, []string{"aid", "bid", "abalance"}, rows); err != nil {
		t.Fatal(err)
	}
	if err := identify(p.cluster.URL(), "pgbench_history"); err != nil {
		t.Fatal(err)
	}
	m := newMover(t, p.cluster, "hash_integer", accounts)
	m.begin()
	ran := 0
	m.several(*cutovers, func() {
		ran += 200
		cmd := exec.Command(pgtest.PGBench(t), "-n", "-b", "tpcb-like", "-M", []string{"simple", "extended", "prepared"}[ran/200%3], "-c", "4", "-t", "50", "--max-tries=1000", p.cluster.URL())
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "failed transactions: ") && !strings.Contains(string(out), "failed transactions: 0 ") {
			t.Fatalf("pgbench: %v\n%s", err, out)
		}
	})
	m.end()
	t.Logf("%d transactions, %d cutovers", ran, m.done.Load())
	var a, b, c, d, n int64
	if err := conn.QueryRow(ctx, "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches), "+
		"(SELECT sum(delta) FROM pgbench_history), (SELECT count(*) FROM pgbench_history)").Scan(&a, &b, &c, &d, &n); err != nil {
		t.Fatal(err)
	}
	if a != b || a != c || a != d || n != int64(ran) {
		t.Errorf("accounts %d, tellers %d, branches %d, history %d; %d rows of %d transactions", a, b, c, d, n, ran)
	}
	if err := conn.QueryRow(ctx, "SELECT count(*), sum(aid) FROM pgbench_accounts").Scan(&n, &a); err != nil || n != accounts || a != accounts*(accounts+1)/2 {
		t.Errorf("%d accounts, %d: %v", n, a, err)
	}
}
