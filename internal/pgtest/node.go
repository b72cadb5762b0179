package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Node returns the path of node and of a folder node_modules with the packages of
// an npm project's folder, which holds package.json and package-lock.json. The
// lock's versions and checksums are what is installed, into the cache, once; no
// script of a package runs.
func Node(tb testing.TB, project string) (node, modules string) {
	tb.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		installDebian(tb, "npm") // node with it
	}
	node = installed(tb, "node", "nodejs")
	files := map[string][]byte{}
	sum := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join(project, name))
		if err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
		files[name] = b
		sum.Write(b)
	}
	cache := cacheDir(tb)
	home := filepath.Join(cache, "node-"+hex.EncodeToString(sum.Sum(nil))[:16])
	modules = filepath.Join(home, "node_modules")
	unlock := lockCache(tb, cache)
	defer unlock()
	if _, err := os.Stat(home); err == nil {
		return node, modules
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	defer os.RemoveAll(tmp)
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), b, 0o644); err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), FetchMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("pgtest: npm ci of %s: %v\n%s", project, err, out)
	}
	if err := os.Rename(tmp, home); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return node, modules
}
