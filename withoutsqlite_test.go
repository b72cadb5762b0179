package cleave_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
)

// TestWithoutSQLite: a program for clusters of PostgreSQL and etcd can leave SQLite out. It says so where a cluster needs it.
func TestWithoutSQLite(t *testing.T) {
	t.Parallel()
	tool := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	for _, p := range strings.Fields(tool("list", "-tags", "cleave_nosqlite", "-deps", ".")) {
		if strings.Contains(p, "sqlite") {
			t.Errorf("%s is compiled in", p)
		}
	}
	program := filepath.Join(t.TempDir(), "program")
	tool("build", "-tags", "cleave_nosqlite", "-o", program, "./testdata/withoutsqlite")
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}

	ctx := context.Background()
	url := etcdtest.New(t, etcdtest.Options{}).URL()
	dir, err := wiring.OpenDirectory(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	_, err = ops.Bootstrap(ctx, admin.BootstrapRequest{Shards: []admin.BootstrapShard{{Name: "shard-0", URL: pgtest.Database(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ops.Close(), dir.Close()
	got := run(url, "SELECT count(*)::text FROM (VALUES (1), (2)) AS v", "SELECT name FROM cleave.shards")
	if !strings.HasPrefix(got, "2 <nil>\n0A000 ") || !strings.Contains(got, "CLV-1222") {
		t.Errorf("a cluster of PostgreSQL: %s", got)
	}
	file := filepath.Join(t.TempDir(), "directory.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"file:" + t.TempDir() + "?shards=2", "file:" + file} {
		if got := run(url); !strings.HasPrefix(got, "open: ") || !strings.Contains(got, "needs SQLite, which was left out of this program") {
			t.Errorf("%s: %s", url, got)
		}
	}
}
