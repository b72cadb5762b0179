package cleave_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/internal/pgtest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		child(url)
		return
	}
	pgtest.Main(m)
}

const createOrders = `CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`

// open opens a cluster for one test.
func open(t testing.TB, url string, opts ...cleave.Option) *cleave.Cluster {
	t.Helper()
	c, err := cleave.Open(context.Background(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// fresh makes a cluster of SQLite shards and returns it with its URL.
func fresh(t testing.TB, shards string, opts ...cleave.Option) (*cleave.Cluster, string) {
	t.Helper()
	url := "file:" + filepath.Join(t.TempDir(), "data")
	return open(t, url+"?shards="+shards, opts...), url
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func run(t testing.TB, db execer, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
