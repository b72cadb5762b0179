package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// printed is what the program prints, on either engine, however often it runs.
const printed = `berlin: order 2: there is not enough tea left
berlin: turnover 46.50, on shard-1
lyon: order 2: there is not enough tea left
lyon: turnover 93.00, on shard-2
porto: order 2: there is not enough tea left
porto: turnover 139.50, on shard-2
turin: order 2: there is not enough tea left
turin: turnover 186.00, on shard-3
`

func TestOutput(t *testing.T) {
	t.Parallel()
	for engine, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "data") + "?shards=4" },
		"postgres": postgresURL,
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			for range 2 {
				var out bytes.Buffer
				run(context.Background(), at, &out)
				if out.String() != printed {
					t.Errorf("it printed:\n%s", out.String())
				}
			}
		})
	}
}

// TestLength: the README says 60 lines; comments and empty ones are not counted.
func TestLength(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`(?m)^[^/\n].*`).FindAll(code, -1)); n > 60 {
		t.Errorf("main.go has %d lines of code", n)
	}
}

// postgresURL makes a cluster of four PostgreSQL databases.
func postgresURL(t *testing.T) string {
	ctx := context.Background()
	url := "file:" + filepath.Join(t.TempDir(), "directory.db")
	dir, err := wiring.OpenDirectory(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	defer ops.Close()
	var req admin.BootstrapRequest
	for i := range 4 {
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: pgtest.Database(t)})
	}
	if _, err := ops.Bootstrap(ctx, req); err != nil {
		t.Fatal(err)
	}
	return url
}
