package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// BinVariable names the environment variable with the path of the etcd server.
const BinVariable = "CLEAVE_ETCD_BIN"

var binary struct {
	sync.Mutex
	path string
}

// Binary returns the path of the etcd server.
func Binary(tb testing.TB) string {
	tb.Helper()
	binary.Lock()
	defer binary.Unlock()
	if binary.path == "" {
		binary.path = find(tb)
	}
	return binary.path
}

func find(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(BinVariable); path != "" {
		if err := modern(path); err != nil {
			tb.Fatalf("etcdtest: %s: %v", BinVariable, err)
		}
		return path
	}
	if path, err := exec.LookPath("etcd"); err == nil && modern(path) == nil {
		return path
	}
	path, err := build(tb)
	if err != nil {
		tb.Fatalf("etcdtest: the etcd server cannot be built: %v\ninstall etcd 3.5 or later, or name it with %s", err, BinVariable)
	}
	return path
}

var versionLine = regexp.MustCompile(`etcd Version: (\d+)\.(\d+)\.`)

// modern reports what is wrong with an etcd server; older ones renew leases
// that another leader may have given up.
func modern(path string) error {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w", path, err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%s does not say its version", path)
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	if major < 3 || major == 3 && minor < 5 {
		return fmt.Errorf("%s is version %d.%d; 3.5 is the least", path, major, minor)
	}
	return nil
}

// build makes the server of the nested module.
func build(tb testing.TB) (string, error) {
	tb.Helper()
	_, file, _, _ := runtime.Caller(0)
	return pgtest.Build(tb, "etcd", filepath.Join(filepath.Dir(file), "testdata", "server"))
}
