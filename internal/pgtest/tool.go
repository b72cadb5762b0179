package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Promtool returns the path of Prometheus' promtool. If it is not installed, it
// is taken out of Debian's package into the cache, so that no service starts.
func Promtool(tb testing.TB) string {
	tb.Helper()
	return unpacked(tb, "prometheus", "usr/bin/promtool")
}

// Spin returns the path of the model checker SPIN, from Debian's package as
// [Promtool] is.
func Spin(tb testing.TB) string {
	tb.Helper()
	return unpacked(tb, "spin", "usr/bin/spin")
}

// SystemdAnalyze returns the path of systemd-analyze, installing it on Debian.
func SystemdAnalyze(tb testing.TB) string {
	tb.Helper()
	return installed(tb, "systemd-analyze", "systemd")
}

// SQLite3 returns the path of SQLite's shell, installing it on Debian.
func SQLite3(tb testing.TB) string {
	tb.Helper()
	return installed(tb, "sqlite3", "sqlite3")
}

func installed(tb testing.TB, name, pkg string) string {
	tb.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	installDebian(tb, pkg)
	p, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("pgtest: %s is not found: install %s", name, pkg)
	}
	return p
}

// unpacked returns a program of a Debian package that is not installed: in PATH,
// else in the cache, else from the package, fetched once.
func unpacked(tb testing.TB, pkg, path string) string {
	tb.Helper()
	name := filepath.Base(path)
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	cache := cacheDir(tb)
	home := filepath.Join(cache, "debian-"+pkg)
	program := filepath.Join(home, path)
	unlock := lockCache(tb, cache)
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		tb.Fatalf("pgtest: this machine lacks %s: put it into PATH (Debian has it in the package %s)", name, pkg)
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		tb.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(context.Background(), FetchMax)
	defer cancel()
	run := func(program string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = tmp
		return cmd.CombinedOutput()
	}
	out, err := run(apt, "download", pkg)
	if err != nil && os.Geteuid() == 0 { // the lists of packages may be missing or old
		if out, err = run(apt, "update"); err == nil {
			out, err = run(apt, "download", pkg)
		}
	}
	if err != nil {
		tb.Fatalf("pgtest: apt-get could not fetch %s: %v\n%s\nput %s into PATH", pkg, err, out, name)
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		tb.Fatalf("pgtest: apt-get fetched %v, %v", debs, err)
	}
	tree := filepath.Join(tmp, "tree")
	if out, err := run("dpkg-deb", "-x", debs[0], tree); err != nil {
		tb.Fatalf("pgtest: dpkg-deb: %v\n%s", err, out)
	}
	if err := os.Rename(tree, home); err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		tb.Fatalf("pgtest: the package %s has no %s", pkg, path)
	}
	return program
}

// Zstd returns the path of the zstd program, installing it on Debian.
func Zstd(tb testing.TB) string {
	tb.Helper()
	return installed(tb, "zstd", "zstd")
}

// Age returns the path of the age program, from Debian's package as [Promtool] is.
func Age(tb testing.TB) string {
	tb.Helper()
	return unpacked(tb, "age", "usr/bin/age")
}
