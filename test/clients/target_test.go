package clients

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what must come: more than any machine needs.
const patience = time.Minute

// target is a router over PostgreSQL databases.
type target struct {
	url    string
	shards []string // URLs
}

// router starts a router on a TCP port over three shards.
func router(t *testing.T) target {
	t.Helper()
	ctx := context.Background()
	dir, err := wiring.OpenDirectory(ctx, filepath.Join(t.TempDir(), "directory.db"))
	if err != nil {
		t.Fatal(err)
	}
	var c target
	var req admin.BootstrapRequest
	for i := range 3 {
		c.shards = append(c.shards, pgtest.Database(t))
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: c.shards[i]})
	}
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	_, err = ops.Bootstrap(ctx, req)
	if err := errors.Join(err, ops.Close()); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	rooms, err := wiring.New(ctx, wiring.Options{Directory: dir, Config: &cfg.Config, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- rooms.Gateway.Serve(ctx, l) }()
	t.Cleanup(func() {
		limit, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := errors.Join(rooms.Gateway.Shutdown(limit), rooms.Close(), dir.Close()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != gateway.ErrClosed {
			t.Error(err)
		}
	})
	c.url = "postgres://app@" + l.Addr().String() + "/cleave?sslmode=disable"
	return c
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
