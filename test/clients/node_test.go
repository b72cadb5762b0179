package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// run runs a script of the folder node against a cluster; it must end well and
// print ok.
func run(t *testing.T, c target, script string) {
	t.Helper()
	node, modules := pgtest.Node(t, "node")
	b, err := os.ReadFile(filepath.Join("node", script))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, script), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DATABASE_URL="+c.url)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"pg": 40, "postgres": 40, "drizzle": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := items(t)
			run(t, c, name+".mjs")
			c.spread(t, "items", rows)
		})
	}
}
