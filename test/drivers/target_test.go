package drivers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
)

var (
	all    = flag.Bool("all", false, "run all suites, not the quick ones alone")
	update = flag.Bool("update", false, "write docs/drivers.md")
)

func TestMain(m *testing.M) {
	flag.Parse()
	pgtest.Main(m)
}

// target is a database that clients connect to.
type target struct {
	host, port, user, database string
}

// env is what libpq and its likes read.
func (c target) env() []string {
	dsn := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", c.host, c.port, c.user, c.database)
	return append(os.Environ(), "PGHOST="+c.host, "PGPORT="+c.port, "PGUSER="+c.user, "PGDATABASE="+c.database, "PGSSLMODE=disable",
		"PGX_TEST_DATABASE="+dsn, "PGX_TEST_TCP_CONN_STRING="+dsn, "DATABASE_URL="+dsn)
}

// exec prepares a database for a suite.
func (c target) exec(t *testing.T, statements ...string) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", c.host, c.port, c.user, c.database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// postgres is a database of its own.
func postgres(t *testing.T) target {
	t.Helper()
	cfg, err := pgconn.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return target{cfg.Host, fmt.Sprint(cfg.Port), cfg.User, cfg.Database}
}

// router starts a router over three databases.
func router(t *testing.T) target {
	t.Helper()
	ctx := context.Background()
	dir, err := wiring.OpenDirectory(ctx, filepath.Join(t.TempDir(), "directory.db"))
	if err != nil {
		t.Fatal(err)
	}
	var req admin.BootstrapRequest
	for i := range 3 {
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: pgtest.Database(t)})
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
	u, err := url.Parse("postgres://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return target{u.Hostname(), u.Port(), "app", "cleave"}
}
