package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
)

// PSQL returns the path of psql.
func PSQL(tb testing.TB) string {
	tb.Helper()
	return program(tb, "psql")
}

// PGBench returns the path of pgbench.
func PGBench(tb testing.TB) string {
	tb.Helper()
	return program(tb, "pgbench")
}

// PGDump returns the path of pg_dump.
func PGDump(tb testing.TB) string {
	tb.Helper()
	return program(tb, "pg_dump")
}

// PGRestore returns the path of pg_restore.
func PGRestore(tb testing.TB) string {
	tb.Helper()
	return program(tb, "pg_restore")
}

// program finds a client program; the real one before Debian's wrapper in PATH.
func program(tb testing.TB, name string) string {
	tb.Helper()
	find := func() (string, bool) {
		for _, i := range localpg.All() {
			if p, ok := i.Program(name); ok {
				return p, true
			}
		}
		// A package with the client programs alone has no server beside them.
		dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(dirs) > 0 {
			return dirs[len(dirs)-1], true
		}
		p, err := exec.LookPath(name)
		return p, err == nil
	}
	if p, ok := find(); ok {
		return p
	}
	installDebian(tb, "postgresql")
	p, ok := find()
	if !ok {
		tb.Fatalf("pgtest: %s is not found: install PostgreSQL's client programs (Debian: apt-get install postgresql)", name)
	}
	return p
}

// debian holds the outcome of each package's installation.
var debian struct {
	sync.Mutex
	outcome map[string]outcome
}

type outcome struct {
	err error
	out []byte
}

// installDebian installs a package when we are root on Debian or a child of it,
// once per test binary; else the test fails with what to do.
func installDebian(tb testing.TB, pkg string) {
	tb.Helper()
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		tb.Fatalf("pgtest: this machine lacks %s: install it (Debian: apt-get install %s; macOS: brew install it), or set %s to a PostgreSQL with its client programs", pkg, pkg, localpg.BinVariable)
	}
	debian.Lock()
	defer debian.Unlock()
	result, done := debian.outcome[pkg]
	if !done {
		unlock := lockCache(tb, cacheDir(tb))
		defer unlock()
		ctx, cancel := context.WithTimeout(context.Background(), FetchMax)
		defer cancel()
		for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", pkg}} {
			cmd := exec.CommandContext(ctx, apt, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if result.out, result.err = cmd.CombinedOutput(); result.err != nil {
				break
			}
		}
		if debian.outcome == nil {
			debian.outcome = map[string]outcome{}
		}
		debian.outcome[pkg] = result
	}
	if result.err != nil {
		tb.Fatalf("pgtest: apt-get could not install %s: %v\n%s", pkg, result.err, result.out)
	}
}
