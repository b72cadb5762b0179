package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
)

// TestHoldAllStartsOver: a statement over several shards that is no transaction of its client's is not ended by a move that it is in the way
// of: it makes way, waits, and is done once. So is one of a session that keeps a conversation with another shard.
func TestHoldAllStartsOver(t *testing.T) {
	m, look := movable(t)
	ctx := context.Background()
	lock, err := pgx.Connect(ctx, m.shards[1])
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close(ctx)
	for _, st := range []struct {
		sql       string
		rows, sum int
	}{
		{"SELECT count(*) FROM things a JOIN things b ON a.n = b.n", 81, 0},
		{"WITH w AS (UPDATE things SET n = n + 1 WHERE id IN (5, 120) RETURNING id) SELECT count(*) FROM w", 2, 2},
		{"WITH w AS (DELETE FROM things WHERE id IN (6, 130) RETURNING id) SELECT count(*) FROM w", 2, 0},
		{"WITH w AS (UPDATE things SET n = n + 1 WHERE id IN (120, 310) RETURNING id) SELECT count(*) FROM w", 2, 2},
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
			for _, keeps := range []bool{false, true} {
				exec(t, look, "INSERT INTO things VALUES (6, 0), (130, 0) ON CONFLICT DO NOTHING")
				exec(t, look, "UPDATE things SET n = 0 WHERE n <> 0")
				c := m.connect(t)
				if keeps {
					exec(t, c, "CREATE TEMP TABLE own AS SELECT 7 AS n")
				}
				exec(t, lock, "BEGIN")
				exec(t, lock, "LOCK TABLE things")
				var rows int
				runs := later(func() error { return c.QueryRow(ctx, st.sql, mode).Scan(&rows) })
				waitfor.True(t, "the statement waits for the lock", func() bool {
					return m.direct(t, 1, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'things'::regclass") != "0"
				})
				m.acked(t, m.put(t, shardmap.HoldAll))
				m.heldOrEnded(t, 1, runs)
				exec(t, lock, "COMMIT")
				m.drop(t)
				if err := ends(t, "a statement", runs); err != nil || rows != st.rows {
					t.Errorf("%s (%v, keeps %v): %d rows, not %d, %v", st.sql, mode, keeps, rows, st.rows, err)
				}
				if n := one[int](t, look, "SELECT sum(n) FROM things"); n != st.sum {
					t.Errorf("%s (%v, keeps %v): the sum is %d, not %d", st.sql, mode, keeps, n, st.sum)
				}
				if keeps && one[int](t, c, "SELECT n FROM own") != 7 {
					t.Errorf("%s (%v): the session's table is another one", st.sql, mode)
				}
			}
		}
	}
}

// TestHoldAllStartsBatchesOver: so do messages before one Sync, which are one transaction, while the client has none of their answers.
func TestHoldAllStartsBatchesOver(t *testing.T) {
	m, look := movable(t)
	ctx := context.Background()
	for _, told := range []bool{false, true} {
		c, other := m.connect(t), m.connect(t)
		p := c.PgConn().StartPipeline(ctx)
		p.SendQueryParams("UPDATE things SET n = n + 1 WHERE id = 210", nil, nil, nil, nil)
		if told {
			p.SendFlushRequest()
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if told {
			if _, err := p.GetResults(); err != nil {
				t.Fatal(err)
			}
		}
		version := m.put(t, shardmap.HoldAll)
		waitfor.True(t, "the router has the map", func() bool { return m.ex.Snapshot().Version() >= version })
		waits := later(func() error {
			_, err := other.Exec(ctx, "UPDATE things SET n = n + 10 WHERE id = 130")
			return err
		})
		m.held(t, 1)
		p.SendQueryParams("UPDATE things SET n = n + 1 WHERE id = 130", nil, nil, nil, nil)
		if err := p.Sync(); err != nil {
			t.Fatal(err)
		}
		first := later(func() error {
			if !told {
				if err := resultOf(p); err != nil {
					return err
				}
			}
			return resultOf(p)
		})
		if told {
			if err := ends(t, "a batch", first); codeOf(err) != "40001" {
				t.Errorf("a batch of which its client has been told gave %v", err)
			}
		} else {
			m.heldOrEnded(t, 2, first)
		}
		m.drop(t)
		if err := ends(t, "a statement", waits); err != nil {
			t.Error(err)
		}
		if !told {
			if err := ends(t, "a batch", first); err != nil {
				t.Errorf("a batch of which its client has not been told: %v", err)
			}
		}
		_ = p.Close()
		if n := one[string](t, look, "SELECT string_agg(n::text, ' ' ORDER BY id) FROM things WHERE id IN (130, 210)"); n != map[bool]string{false: "11 1", true: "21 1"}[told] {
			t.Errorf("told %v: the rows are %s", told, n)
		}
	}
}

// resultOf reads one statement's answer of a pipeline.
func resultOf(p *pgconn.Pipeline) error {
	res, err := p.GetResults()
	if err != nil {
		return err
	}
	if r, ok := res.(*pgconn.ResultReader); ok {
		_, err = r.Close()
		return err
	}
	return fmt.Errorf("%T", res)
}

// TestOutdatedIsTold: a statement outside of a transaction that waits on its shard for a transaction which makes its table another one has all
// rows of that, or is told to run again; never those of one shard.
func TestOutdatedIsTold(t *testing.T) {
	ctx := context.Background()
	first := start(t, config{})
	lease, leave, err := first.dir.Join(ctx, shardmap.Member{ID: "r", Role: "router", Address: "r"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leave(context.Background()) })
	cl := start(t, config{dir: first.dir, urls: first.shards, lease: lease})
	owner := cl.connect(t)
	exec(t, owner, "CREATE TABLE things (id bigint PRIMARY KEY, n int NOT NULL)")
	exec(t, owner, "INSERT INTO things VALUES (1, 1)")
	for i, sql := range []string{
		"SELECT count(*) FROM things",
		"WITH w AS (UPDATE things SET n = n + 1 RETURNING id) SELECT count(*) FROM w",
	} {
		for k, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
			exec(t, owner, "BEGIN")
			exec(t, owner, "DROP TABLE things")
			c := cl.connect(t)
			var rows int
			runs := later(func() error { return c.QueryRow(ctx, sql, mode).Scan(&rows) })
			waitfor.True(t, "the statement waits for the lock", func() bool {
				return slices.ContainsFunc([]int{0, 1, 2}, func(shard int) bool {
					return cl.direct(t, shard, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass('things')") != "0"
				})
			})
			with := []string{"", " WITH (cleave.shard_key = 'id')"}[(3*i+k+1)%2]
			exec(t, owner, "CREATE TABLE things (id bigint PRIMARY KEY, n int NOT NULL)"+with)
			for id := range 10 + k {
				exec(t, owner, "INSERT INTO things VALUES ($1, 1)", id)
			}
			exec(t, owner, "COMMIT")
			if err := ends(t, "a statement", runs); sqlCode(err) != "40001" && (err != nil || rows != 10+k) {
				t.Errorf("%s (%v), its table made again%s: %d rows, %v", sql, mode, with, rows, err)
			}
		}
	}
}

// TestHoldAllStartsBatchesOnSeveralOver: so do messages before one Sync that have come to several shards. If the client has a part of the answers it gets 40001.
func TestHoldAllStartsBatchesOnSeveralOver(t *testing.T) {
	m, look := movable(t)
	ctx := context.Background()
	lock, err := pgx.Connect(ctx, m.shards[1])
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close(ctx)
	// Also in a session that keeps a conversation with the default shard.
	for name, first := range map[string][]string{
		"each on one":          {"UPDATE things SET n = n + 1 WHERE id = 5", "UPDATE things SET n = n + 1 WHERE id = 120"},
		"over several":         {"UPDATE things SET n = n + 1 WHERE id IN (5, 120)"},
		"a read of all behind": {"UPDATE things SET n = n + 1 WHERE id = 5", "SELECT a.id FROM things a JOIN things b ON a.n = b.n AND a.id < b.id"},
		"a token":              {"UPDATE things SET n = n + 2, id = 6000 + id WHERE id = 5 AND n < 0", "UPDATE things SET n = n + 1 WHERE id IN (5, 120)"},
	} {
		for _, how := range []string{"", "keeps", "told"} {
			t.Run(name+" "+how, func(t *testing.T) {
				told := how == "told"
				exec(t, look, "UPDATE things SET n = 0 WHERE n <> 0")
				c := m.connect(t)
				if how == "keeps" {
					exec(t, c, "CREATE TEMP TABLE own AS SELECT 7 AS n")
				}
				p := c.PgConn().StartPipeline(ctx)
				do := func(what func() error) {
					t.Helper()
					if err := what(); err != nil {
						t.Fatal(err)
					}
				}
				for _, sql := range first {
					p.SendQueryParams(sql, nil, nil, nil, nil)
				}
				answers := len(first) + 2
				if told {
					p.SendFlushRequest()
					do(p.Flush)
					for range first {
						do(func() error { return resultOf(p) })
					}
					answers = 2
				}
				exec(t, lock, "BEGIN")
				exec(t, lock, "SELECT FROM things WHERE id = 110 FOR UPDATE")
				for _, id := range []int{110, 210} {
					p.SendQueryParams(fmt.Sprintf("UPDATE things SET n = n + 1 WHERE id = %d", id), nil, nil, nil, nil)
				}
				do(p.Sync)
				waitfor.True(t, "the statement waits for the row", func() bool { return m.direct(t, 1, "SELECT count(*) FROM pg_locks WHERE NOT granted") != "0" })
				m.acked(t, m.put(t, shardmap.HoldAll))
				exec(t, lock, "COMMIT")
				end := later(func() (err error) {
					for range answers {
						if err = resultOf(p); err != nil {
							return err
						}
					}
					_, err = p.GetResults() // of the Sync
					return err
				})
				m.heldOrEnded(t, 1, end)
				m.drop(t)
				err := ends(t, "the messages", end)
				_ = p.Close()
				want := map[string]int{"told": 0, "": 4, "keeps": 4}[how]
				if name == "a read of all behind" {
					want = want * 3 / 4
				}
				if told != (codeOf(err) == "40001") {
					t.Errorf("the client gets %v", err)
				}
				if n := one[int](t, look, "SELECT sum(n) FROM things"); n != want {
					t.Errorf("the sum is %d, not %d, after %v", n, want, err)
				}
			})
		}
	}
}
