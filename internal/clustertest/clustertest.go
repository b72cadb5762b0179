// Package clustertest starts clusters for the tests that meet one from outside, as drivers and ORMs do.
package clustertest

import (
	"context"
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

// Directory makes a cluster of three PostgreSQL databases. It returns the directory's file and the databases' URLs.
func Directory(tb testing.TB) (file string, shards []string) {
	tb.Helper()
	for range 3 {
		shards = append(shards, pgtest.Database(tb))
	}
	return bootstrap(tb, shards), shards
}

// Files makes a cluster of three SQLite files. It returns the directory's file.
func Files(tb testing.TB) (file string) {
	tb.Helper()
	var shards []string
	dir := tb.TempDir()
	for i := range 3 {
		shards = append(shards, fmt.Sprintf("file:%s/shard-%d.db", dir, i))
	}
	return bootstrap(tb, shards)
}

func bootstrap(tb testing.TB, shards []string) (file string) {
	tb.Helper()
	ctx := context.Background()
	file = filepath.Join(tb.TempDir(), "directory.db")
	dir, err := wiring.OpenDirectory(ctx, file)
	if err != nil {
		tb.Fatal(err)
	}
	var req admin.BootstrapRequest
	for i, url := range shards {
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: url})
	}
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	_, err = ops.Bootstrap(ctx, req)
	if err := errors.Join(err, ops.Close(), dir.Close()); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Router starts a router of a directory's cluster on a port of this machine, until the test ends. It returns host:port.
func Router(tb testing.TB, file string) string {
	tb.Helper()
	ctx := context.Background()
	dir, err := wiring.OpenDirectory(ctx, file)
	if err != nil {
		tb.Fatal(err)
	}
	cfg, err := config.Load(config.Input{})
	if err != nil {
		tb.Fatal(err)
	}
	rooms, err := wiring.New(ctx, wiring.Options{Directory: dir, Config: &cfg.Config, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- rooms.Gateway.Serve(ctx, l) }()
	tb.Cleanup(func() {
		limit, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := errors.Join(rooms.Gateway.Shutdown(limit), rooms.Close(), dir.Close()); err != nil {
			tb.Error(err)
		}
		if err := <-served; err != gateway.ErrClosed {
			tb.Error(err)
		}
	})
	return l.Addr().String()
}

// URL is that of a router's address, for a client that needs no more.
func URL(address string) string { return "postgres://app@" + address + "/cleave?sslmode=disable" }
