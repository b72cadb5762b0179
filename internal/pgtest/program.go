package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

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

var debian struct {
	sync.Mutex
	done bool
	err  error
	out  []byte
}

// installDebian installs a package when we are root on Debian or a child of it,
// once per test binary; else the test fails with what to do.
func installDebian(tb testing.TB, pkg string) {
	tb.Helper()
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		tb.Fatalf("pgtest: PostgreSQL is not complete on this machine: install it with its client programs (Debian: apt-get install %s; macOS: brew install postgresql), or set %s", pkg, localpg.BinVariable)
	}
	debian.Lock()
	defer debian.Unlock()
	if !debian.done {
		debian.done = true
		unlock := lockCache(tb, cacheDir(tb))
		defer unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", pkg}} {
			cmd := exec.CommandContext(ctx, apt, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if debian.out, debian.err = cmd.CombinedOutput(); debian.err != nil {
				break
			}
		}
	}
	if debian.err != nil {
		tb.Fatalf("pgtest: apt-get could not install %s: %v\n%s", pkg, debian.err, debian.out)
	}
}
