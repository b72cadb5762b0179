package gateway_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
)

// BenchmarkTransaction compares transactions of two updates on one shard and on
// two, and reads over several shards in both modes. cpu-ns/op is the CPU time of
// this process: the router's and, the same in both, the client's.
func BenchmarkTransaction(b *testing.B) {
	c, conn, keys := orders(b, config{})
	for _, k := range []int64{keys[0][0], keys[0][1], keys[1][0]} {
		exec(b, conn, "INSERT INTO orders VALUES ($1, 0, 'x')", k)
	}
	ctx := context.Background()
	cpu := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	measure := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			from := cpu()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu()-from)/float64(b.N), "cpu-ns/op")
		})
	}
	for shards, second := range map[int]int64{1: keys[0][1], 2: keys[1][0]} {
		measure(fmt.Sprintf("shards=%d", shards), func() error {
			for _, sql := range []string{"BEGIN", fmt.Sprintf("UPDATE orders SET note = 'y' WHERE tenant_id = %d", keys[0][0]),
				fmt.Sprintf("UPDATE orders SET note = 'y' WHERE tenant_id = %d", second), "COMMIT"} {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, mode := range []string{"shard", "atomic"} {
		reader := c.connect(b)
		exec(b, reader, "SET cleave.read_consistency = '"+mode+"'")
		measure("read="+mode, func() error {
			var n int64
			return reader.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&n)
		})
	}
}
