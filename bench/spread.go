package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// spreadQueries are the statements of the part spread; each reads every row.
var spreadQueries = []struct{ name, sql string }{
	{"count", `SELECT count(*) FROM bench_spread`},
	{"top 10", `SELECT id, val FROM bench_spread ORDER BY val DESC, id LIMIT 10`},
	{"group by", `SELECT grp, count(*), sum(val), avg(val) FROM bench_spread GROUP BY grp ORDER BY grp`},
	{"sorted rows", `SELECT id FROM bench_spread WHERE grp < 10 ORDER BY val, id`},
}

// spread measures statements over all shards and COPY beside the shards' own time.
func spread(ctx context.Context, o options, cleaveURL, admin string) error {
	urls, err := shardURLs(ctx, o.binary, admin)
	if err != nil {
		return err
	}
	router, err := pgx.Connect(ctx, cleaveURL)
	if err != nil {
		return err
	}
	defer router.Close(context.WithoutCancel(ctx))
	shards := make([]*pgx.Conn, len(urls))
	for i, u := range urls {
		if shards[i], err = pgx.Connect(ctx, u); err != nil {
			return err
		}
		defer shards[i].Close(context.WithoutCancel(ctx))
	}
	const columns = `(id bigint PRIMARY KEY, grp int, val bigint, note text)`
	if _, err := router.Exec(ctx, `CREATE TABLE bench_spread `+columns+` WITH (cleave.shard_key = 'id')`); err != nil {
		return err
	}
	if _, err := shards[0].Exec(ctx, `CREATE SCHEMA IF NOT EXISTS bench_plain; CREATE TABLE bench_plain.bench_spread `+columns); err != nil {
		return err
	}
	fmt.Printf("%d rows over %d shards (databases of one server), best of %d rounds.\n\n", o.spread, len(shards), o.rounds)
	if err := spreadCopy(ctx, o, router, shards[0]); err != nil {
		return err
	}
	for _, c := range shards {
		if _, err := c.Exec(ctx, `VACUUM ANALYZE bench_spread`); err != nil {
			return err
		}
	}
	fmt.Println("| statement | router ms | slowest shard alone ms | all shards at once, directly, ms |")
	fmt.Println("|---|---|---|---|")
	for _, q := range spreadQueries {
		routed, alone, together := time.Hour, time.Hour, time.Hour
		for range o.rounds {
			d, err := timed(ctx, router, q.sql)
			if err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			routed = min(routed, d)
			slowest := time.Duration(0)
			for _, c := range shards {
				d, err := timed(ctx, c, q.sql)
				if err != nil {
					return err
				}
				slowest = max(slowest, d)
			}
			alone = min(alone, slowest)
			if d, err = allAtOnce(ctx, shards, q.sql); err != nil {
				return err
			}
			together = min(together, d)
		}
		fmt.Printf("| %s | %s | %s (%.2fx) | %s (%.2fx) |\n", q.name, ms(routed), ms(alone), float64(routed)/float64(alone), ms(together), float64(routed)/float64(together))
	}
	fmt.Println()
	return nil
}

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 2, 64)
}

// timed runs a statement and reads all its rows, undecoded.
func timed(ctx context.Context, c *pgx.Conn, sql string) (time.Duration, error) {
	began := time.Now()
	r := c.PgConn().ExecParams(ctx, sql, nil, nil, nil, nil)
	for r.NextRow() {
	}
	_, err := r.Close()
	return time.Since(began), err
}

func allAtOnce(ctx context.Context, conns []*pgx.Conn, sql string) (time.Duration, error) {
	began := time.Now()
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() { _, errs[i] = timed(ctx, c, sql) })
	}
	wg.Wait()
	return time.Since(began), errors.Join(errs...)
}

// spreadCopy loads the rows by COPY through the router, into a plain table of one
// shard, and, as many of them as it owns, into the sharded table on that shard.
func spreadCopy(ctx context.Context, o options, router, shard *pgx.Conn) error {
	lines := func(ids []int) []byte {
		var b bytes.Buffer
		for _, id := range ids {
			fmt.Fprintf(&b, "%d\t%d\t%d\trow number %d\n", id, id%1000, (id*7919)%1_000_003, id)
		}
		return b.Bytes()
	}
	all := make([]int, o.spread)
	for i := range all {
		all[i] = i + 1
	}
	load := func(c *pgx.Conn, table string, data []byte) (time.Duration, error) {
		if _, err := router.Exec(ctx, `TRUNCATE bench_spread`); err != nil {
			return 0, err
		}
		if _, err := shard.Exec(ctx, `TRUNCATE bench_plain.bench_spread`); err != nil {
			return 0, err
		}
		began := time.Now()
		_, err := c.PgConn().CopyFrom(ctx, bytes.NewReader(data), `COPY `+table+` FROM STDIN`)
		return time.Since(began), err
	}
	data := lines(all)
	if _, err := load(router, "bench_spread", data); err != nil {
		return fmt.Errorf("COPY through the router: %w", err)
	}
	rows, err := shard.Query(ctx, `SELECT id FROM bench_spread`)
	if err != nil {
		return err
	}
	owned, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return err
	}
	own := lines(owned)
	plain, guarded, routed := 0.0, 0.0, 0.0
	for range o.rounds {
		for _, k := range []struct {
			best  *float64
			c     *pgx.Conn
			table string
			data  []byte
			rows  int
		}{{&plain, shard, "bench_plain.bench_spread", data, o.spread}, {&guarded, shard, "bench_spread", own, len(owned)}, {&routed, router, "bench_spread", data, o.spread}} {
			d, err := load(k.c, k.table, k.data)
			if err != nil {
				return fmt.Errorf("COPY into %s: %w", k.table, err)
			}
			*k.best = max(*k.best, float64(k.rows)/d.Seconds())
		}
	}
	fmt.Println("| COPY FROM | rows/s |")
	fmt.Println("|---|---|")
	fmt.Printf("| router, all shards | %.0f |\n| one shard directly, sharded table (guarded), its own rows | %.0f (router: %.2fx) |\n| one shard directly, plain table | %.0f (router: %.2fx) |\n\n",
		routed, guarded, routed/guarded, plain, routed/plain)
	return nil
}

func shardURLs(ctx context.Context, binary, admin string) ([]string, error) {
	out, err := exec.CommandContext(ctx, binary, "shard", "list", "--json", "--admin", admin).Output()
	if err != nil {
		return nil, err
	}
	var shards []struct{ Name, URL string }
	if err := json.Unmarshal(out, &shards); err != nil {
		return nil, fmt.Errorf("shard list --json: %w\n%s", err, out)
	}
	if len(shards) == 0 {
		return nil, errors.New("the cluster has no shard")
	}
	var urls []string
	for _, s := range shards {
		urls = append(urls, s.URL)
	}
	slices.Sort(urls)
	return urls, nil
}
