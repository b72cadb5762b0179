package cleave_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/admin"
)

const (
	benchRows   = 1000
	benchSelect = "SELECT note FROM orders WHERE tenant_id = $1 AND id = 1"
)

// cpu reports the processor time of an operation, of all goroutines: on a machine
// that has other work it says more than the clock.
func cpu(b *testing.B) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") })
}

// benchCluster has one row for each of a thousand tenants.
func benchCluster(b *testing.B) (*cleave.Cluster, string) {
	dir := filepath.Join(b.TempDir(), "data")
	c := open(b, "file:"+dir+"?shards=2")
	run(b, c.DB(), createOrders)
	for i := range benchRows {
		run(b, c.DB(), "INSERT INTO orders VALUES ($1, 1, 'a note of some length')", i)
	}
	return c, dir
}

// BenchmarkPointSelect reads one row by its key: with the bare driver on one of
// the files, and through the client.
func BenchmarkPointSelect(b *testing.B) {
	c, dir := benchCluster(b)
	ctx := context.Background()
	b.Run("driver", func(b *testing.B) {
		db, err := sqlite.OpenConn(filepath.Join(dir, "shard-0.db"), sqlite.OpenReadWrite)
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		stmt, _, err := db.PrepareTransient("SELECT note FROM orders WHERE tenant_id = ?1 AND id = 1")
		if err != nil {
			b.Fatal(err)
		}
		defer stmt.Finalize()
		b.ReportAllocs()
		cpu(b)
		var note string
		i := int64(0)
		for b.Loop() {
			stmt.BindInt64(1, i%benchRows)
			i++
			row, err := stmt.Step()
			if err != nil {
				b.Fatal(err)
			}
			if row {
				note = stmt.ColumnText(0)
			}
			if err := stmt.Reset(); err != nil {
				b.Fatal(err)
			}
		}
		_ = note
	})
	b.Run("conn", func(b *testing.B) {
		conn, err := c.Conn(ctx)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close(ctx)
		b.ReportAllocs()
		cpu(b)
		var note string
		i := int64(0)
		for b.Loop() {
			if err := conn.QueryRow(ctx, benchSelect, i%benchRows).Scan(&note); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("pool", func(b *testing.B) {
		b.ReportAllocs()
		cpu(b)
		var note string
		i := int64(0)
		for b.Loop() {
			if err := c.Pool().QueryRow(ctx, benchSelect, i%benchRows).Scan(&note); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("sql.DB", func(b *testing.B) {
		stmt, err := c.DB().Prepare(benchSelect)
		if err != nil {
			b.Fatal(err)
		}
		defer stmt.Close()
		b.ReportAllocs()
		cpu(b)
		var note string
		i := int64(0)
		for b.Loop() {
			if err := stmt.QueryRow(i % benchRows).Scan(&note); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("ForKey", func(b *testing.B) {
		b.ReportAllocs()
		cpu(b)
		var note string
		i := int64(0)
		for b.Loop() {
			o, err := c.ForKey(ctx, "hash_bigint", i%benchRows)
			if err != nil {
				b.Fatal(err)
			}
			if err := o.Pool().QueryRow(ctx, benchSelect, i%benchRows).Scan(&note); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// BenchmarkForKey finds the owner of a key.
func BenchmarkForKey(b *testing.B) {
	c, _ := fresh(b, "8")
	ctx := context.Background()
	for name, types := range map[string][]string{"ints": {"bigint"}, "texts": {"text"}, "uuids": {"uuid"}, "pairs": {"text", "bigint"}} {
		if _, err := c.Admin().CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: name, Strategy: "hash", KeyTypes: types, Ranges: 64}); err != nil {
			b.Fatal(err)
		}
	}
	ids := make([]uuid.UUID, 64)
	texts := make([]string, 64)
	for i := range ids {
		ids[i] = uuid.New()
		texts[i] = "tenant-" + ids[i].String()
	}
	var o *cleave.Owner
	var err error
	for _, bm := range []struct {
		name string
		find func(i int)
	}{
		{"bigint", func(i int) { o, err = c.ForKey(ctx, "ints", int64(i)*7919) }},
		{"text", func(i int) { o, err = c.ForKey(ctx, "texts", texts[i%64]) }},
		{"uuid", func(i int) { o, err = c.ForKey(ctx, "uuids", ids[i%64]) }},
		{"text+bigint", func(i int) { o, err = c.ForKey(ctx, "pairs", texts[i%64], int64(i)) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu(b)
			i := 0
			for b.Loop() {
				bm.find(i)
				i++
			}
			if err != nil || o == nil {
				b.Fatal(err)
			}
		})
	}
}
