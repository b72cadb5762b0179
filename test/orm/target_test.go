package orm

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

//go:embed migrations/*.sql
var files embed.FS

// target is a cluster as a library sees it.
type target struct {
	db   *sql.DB
	pool *pgxpool.Pool
}

// each runs f against every kind of cluster, each of its own.
func each(t *testing.T, f func(t *testing.T, c target)) {
	client := func(t *testing.T, url string) target {
		c, err := cleave.Open(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return target{db: c.DB(), pool: c.Pool()}
	}
	for name, open := range map[string]func(t *testing.T) target{
		"sqlite":   func(t *testing.T) target { return client(t, "file:"+filepath.Join(t.TempDir(), "data")+"?shards=3") },
		"postgres": func(t *testing.T) target { return client(t, "file:"+postgresFile(t)) },
		"router":   router,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// postgresFile makes a cluster of PostgreSQL databases and returns its directory's file.
func postgresFile(t *testing.T) string {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "directory.db")
	dir, err := wiring.OpenDirectory(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	defer ops.Close()
	var req admin.BootstrapRequest
	for i := range 3 {
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: pgtest.Database(t)})
	}
	if _, err := ops.Bootstrap(ctx, req); err != nil {
		t.Fatal(err)
	}
	return file
}

// router starts a router on a TCP port over PostgreSQL shards.
func router(t *testing.T) target {
	ctx := context.Background()
	dir, err := wiring.OpenDirectory(ctx, postgresFile(t))
	if err != nil {
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
	pool, err := pgxpool.New(ctx, "postgres://app@"+l.Addr().String()+"/cleave?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() {
		_ = db.Close()
		pool.Close()
		limit, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := errors.Join(rooms.Gateway.Shutdown(limit), rooms.Close(), dir.Close()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != gateway.ErrClosed {
			t.Error(err)
		}
	})
	return target{db: db, pool: pool}
}

// migrate brings a cluster to the newest schema.
func migrate(t *testing.T, c target) *goose.Provider {
	t.Helper()
	dir, err := fs.Sub(files, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, c.db, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p
}

func tables(t *testing.T, c target) map[string]string {
	t.Helper()
	rows, err := c.db.Query("SELECT name, kind FROM cleave.tables")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		found[name] = kind
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
