package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/test/differential/cluster"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
	"github.com/cleavedb/cleave/test/differential/tpcc"
)

// TestTPCC runs the five transactions: one after the other on the router and on
// one database, with the same tables afterwards; then from several clients at
// once, with the conditions of consistency afterwards.
func TestTPCC(t *testing.T) {
	schema := corpus.Schema{Name: "tpcc", Engines: []string{"postgres", "sqlite"}}
	for _, table := range tpcc.Tables() {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: table.Create(true), Router: true}, corpus.Step{SQL: table.Create(false), Plain: true})
	}
	for _, sql := range tpcc.Rows(tpcc.Small) {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: sql, Plain: true})
	}
	for _, o := range []cluster.Options{{Engine: "postgres", Shards: 3}, {Engine: "sqlite", Shards: 2}} {
		t.Run(o.Engine, func(t *testing.T) {
			if o.Engine == "sqlite" {
				testrun.Long(t, "the short run has it on PostgreSQL")
			} else {
				testrun.Short(t)
			}
			ctx := context.Background()
			p := newPair(t, o, []corpus.Schema{schema})
			mix := tpcc.Mix{Size: tpcc.Small, Remote: 30}
			for _, url := range []string{p.cluster.URL(), p.plain.URL()} {
				conn := connect(t, url)
				r := rand.New(rand.NewPCG(*seed, 2))
				for n := range 80 {
					if err := mix.Run(ctx, conn, r); err != nil {
						t.Fatalf("transaction %d on %s: %v", n, url, err)
					}
				}
			}
			for _, at := range p.tables {
				if d := p.tableDifference(at); d != "" {
					t.Errorf("after the same transactions: %s", d)
				}
			}
			var g errgroup.Group
			for client := range uint64(4) {
				conn := connect(t, p.cluster.URL())
				g.Go(func() error {
					r := rand.New(rand.NewPCG(*seed, 100+client))
					for n := range 40 {
						if err := mix.Run(ctx, conn, r); err != nil {
							return fmt.Errorf("transaction %d of client %d: %w", n, client, err)
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			for what, sql := range tpcc.Conditions() {
				out := p.router.Run(ctx, compare.Statement{SQL: sql})
				if out.Err != nil || out.Lost != nil || len(out.Results[0].Rows) > 0 {
					t.Errorf("condition %s: %s", what, out)
				}
			}
			for _, at := range p.tables {
				if _, err := p.cluster.Rows(at.schema, at.name); err != nil {
					t.Error(err) // a row on the wrong shard, or copies that differ
				}
			}
		})
	}
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// tpcb is pgbench's own transaction, but that the account is of any branch.
const tpcb = `\set aid random(1, 100 * :branches)
\set bid random(1, :branches)
\set tid random(1, 10 * :branches)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
`

// TestTPCB runs pgbench's transaction with accounts, tellers and branches on
// several shards, in all its query modes; the four sums are equal afterwards.
func TestTPCB(t *testing.T) {
	testrun.Short(t)
	const branches = 6
	schema := corpus.Schema{Name: "tpcb", Engines: []string{"postgres"}}
	for _, create := range []string{
		"CREATE TABLE pgbench_branches (bid integer PRIMARY KEY, bbalance integer, filler text) WITH (cleave.shard_key = 'bid')",
		"CREATE TABLE pgbench_tellers (tid integer PRIMARY KEY, bid integer, tbalance integer, filler text) WITH (cleave.shard_key = 'tid')",
		"CREATE TABLE pgbench_accounts (aid integer PRIMARY KEY, bid integer, abalance integer, filler text) WITH (cleave.shard_key = 'aid')",
		"CREATE TABLE pgbench_history (tid integer, bid integer, aid integer NOT NULL, delta integer, mtime timestamp, filler text) WITH (cleave.shard_key = 'aid')",
	} {
		plain, _, _ := strings.Cut(create, " WITH (")
		schema.Steps = append(schema.Steps, corpus.Step{SQL: create, Router: true}, corpus.Step{SQL: plain, Plain: true})
	}
	for _, fill := range []string{
		fmt.Sprintf("INSERT INTO pgbench_branches SELECT n, 0 FROM generate_series(1, %d) n", branches),
		fmt.Sprintf("INSERT INTO pgbench_tellers SELECT n, (n - 1) / 10 + 1, 0 FROM generate_series(1, %d) n", 10*branches),
		fmt.Sprintf("INSERT INTO pgbench_accounts SELECT n, (n - 1) / 100 + 1, 0 FROM generate_series(1, %d) n", 100*branches),
	} {
		schema.Steps = append(schema.Steps, corpus.Step{SQL: fill, Plain: true})
	}
	p := newPair(t, cluster.Options{Engine: "postgres", Shards: 3}, []corpus.Schema{schema})
	script := filepath.Join(t.TempDir(), "tpcb.sql")
	if err := os.WriteFile(script, []byte(tpcb), 0o600); err != nil {
		t.Fatal(err)
	}
	const clients, transactions = 4, 30
	for _, mode := range []string{"simple", "extended", "prepared"} {
		cmd := exec.Command(pgtest.PGBench(t), "-n", "-M", mode, "-f", script, "-c", fmt.Sprint(clients), "-t", fmt.Sprint(transactions), "-D", fmt.Sprintf("branches=%d", branches),
			"--max-tries=200", p.cluster.URL())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("pgbench -M %s: %v\n%s", mode, err, out)
		}
	}
	out := p.router.Run(context.Background(), compare.Statement{SQL: "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), " +
		"(SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history), (SELECT count(*) FROM pgbench_history)"})
	if out.Err != nil || out.Lost != nil {
		t.Fatal(out)
	}
	row := out.Results[0].Rows[0]
	if row[0] != row[1] || row[0] != row[2] || row[0] != row[3] || row[4] != fmt.Sprint(3*clients*transactions) {
		t.Errorf("accounts, tellers, branches, history: %v, with %d transactions", row, 3*clients*transactions)
	}
}
