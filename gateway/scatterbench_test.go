package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// BenchmarkScatter measures statements over two shards through the router, and
// what the slower shard takes for its own part: "ratio" is the one over the other.
// The shards share the machine with everything else, so run it on a quiet one.
func BenchmarkScatter(b *testing.B) {
	cl, conn, keys := orders(b, config{shards: 2})
	ctx := context.Background()
	var shards []*pgx.Conn
	for i, url := range cl.shards {
		c, err := pgx.Connect(ctx, pgtest.PastGuards(url))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close(ctx) })
		exec(b, c, "SET session_replication_role = replica")
		for _, k := range keys[i] {
			exec(b, c, fmt.Sprintf("INSERT INTO orders SELECT %d, g, 'note ' || g %% 100 FROM generate_series(1, 50000) g", k))
		}
		exec(b, c, "VACUUM ANALYZE orders")
		shards = append(shards, c)
	}
	for _, s := range []struct{ name, sql string }{
		{"count", "SELECT count(*) FROM orders"},
		{"top10", "SELECT * FROM orders ORDER BY id DESC, tenant_id LIMIT 10"},
		{"group", "SELECT note, count(*), max(id) FROM orders GROUP BY note"},
		{"point", "SELECT count(*) FROM orders WHERE id = 7 AND tenant_id < 0"},
	} {
		b.Run(s.name, func(b *testing.B) {
			run := func(c *pgx.Conn) time.Duration {
				began := time.Now()
				rows, err := c.Query(ctx, s.sql)
				if err != nil {
					b.Fatal(err)
				}
				for rows.Next() {
				}
				if rows.Err() != nil {
					b.Fatal(rows.Err())
				}
				return time.Since(began)
			}
			var router, slowest time.Duration
			for range b.N {
				router += run(conn)
				// Both shards at the same time, as the router asks them.
				took := make(chan time.Duration, len(shards))
				for _, c := range shards {
					go func() { took <- run(c) }()
				}
				most := time.Duration(0)
				for range shards {
					most = max(most, <-took)
				}
				slowest += most
			}
			b.ReportMetric(float64(router)/float64(slowest), "ratio")
			b.ReportMetric(float64((router-slowest).Microseconds())/float64(b.N), "µs-more/op")
		})
	}
}
