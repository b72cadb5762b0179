package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BenchmarkCopyFrom loads a million bytes of rows through the router, split over
// two shards, and directly into one of them: rows per second are to be compared.
func BenchmarkCopyFrom(b *testing.B) {
	const rows = 200_000
	cl := start(b, config{shards: 2})
	conn := cl.connect(b)
	exec(b, conn, "CREATE TABLE load (tenant_id bigint, id bigint, note text, amount numeric) WITH (cleave.shard_key = 'tenant_id')")
	direct, err := pgx.Connect(context.Background(), cl.shards[0])
	if err != nil {
		b.Fatal(err)
	}
	defer direct.Close(context.Background())
	exec(b, direct, "CREATE TABLE direct (LIKE load)")
	exec(b, direct, "CREATE TABLE guarded (LIKE load)")
	// The work that a guard does for a row.
	exec(b, direct, `DO $$ DECLARE f text; BEGIN SELECT pg_get_triggerdef(oid) INTO f FROM pg_trigger WHERE tgrelid = 'load'::regclass AND NOT tgisinternal AND pg_get_triggerdef(oid) LIKE '%INSERT%FOR EACH ROW%' LIMIT 1;
		EXECUTE replace(f, 'public.load', 'public.guarded'); END $$`)
	var all, own strings.Builder
	mine := cl.keysFor(b, "load", 0)
	for i := range rows {
		fmt.Fprintf(&all, "%d\t%d\tnote number %d of a customer\t%d.%02d\n", i%1000, i, i, i%977, i%100)
		fmt.Fprintf(&own, "%d\t%d\tnote number %d of a customer\t%d.%02d\n", mine[i%len(mine)], i, i, i%977, i%100)
	}
	for _, c := range []struct {
		name, data, table string
		conn              *pgx.Conn
	}{{"router", all.String(), "load", conn}, {"direct", own.String(), "guarded", direct}, {"direct-without-guard", own.String(), "direct", direct}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.conn.PgConn().CopyFrom(context.Background(), strings.NewReader(c.data), "COPY "+c.table+" FROM STDIN"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// keysFor returns keys of a sharded table that a shard owns.
func (c *cluster) keysFor(t testing.TB, table string, shard int) []int64 {
	t.Helper()
	var keys []int64
	conn := c.connect(t)
	for k := int64(0); k < 1000; k++ {
		if one[string](t, conn, fmt.Sprintf("SELECT cleave.shard_of('hash_bigint', %d)", k)) == fmt.Sprintf("shard-%d", shard) {
			keys = append(keys, k)
		}
	}
	return keys
}
