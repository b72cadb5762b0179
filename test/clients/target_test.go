package clients

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what must come: more than any machine needs.
const patience = waitfor.Max

// target is a router over PostgreSQL databases.
type target struct {
	url    string
	shards []string // URLs
}

// router starts a router on a TCP port over three shards.
func router(t *testing.T) target {
	t.Helper()
	file, shards := clustertest.Directory(t)
	return target{url: clustertest.URL(clustertest.Router(t, file)), shards: shards}
}

// open opens a handle with lib/pq.
func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// onShards asks every shard itself for one number.
func (c target) onShards(t *testing.T, query string) []int {
	t.Helper()
	var found []int
	for _, url := range c.shards {
		db, err := sql.Open("postgres", url)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		err = db.QueryRow(query).Scan(&n)
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		found = append(found, n)
	}
	return found
}

// spread fails unless every shard has rows of a table, want in all.
func (c target) spread(t *testing.T, table string, want int) {
	t.Helper()
	sum := 0
	found := c.onShards(t, "SELECT count(*) FROM "+table)
	for _, n := range found {
		if sum += n; n == 0 {
			t.Errorf("%s: rows of the shards: %v: one has none", table, found)
		}
	}
	if sum != want {
		t.Errorf("%s: rows of the shards: %v, want %d in all", table, found, want)
	}
}
