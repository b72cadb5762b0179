package etcdtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

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

// build makes the server of the nested module, once for each state of its go.mod.
func build(tb testing.TB) (string, error) {
	tb.Helper()
	_, file, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(file), "testdata", "server")
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(mod, runtime.GOOS+runtime.GOARCH+runtime.Version()...))
	cache := pgtest.CacheDir(tb)
	path := filepath.Join(cache, "etcd-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	defer pgtest.LockCache(tb, cache)()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pgtest.FetchMax)
	defer cancel()
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(tmp)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", tmp, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	tb.Logf("etcdtest: the etcd server was built in %v", time.Since(begin).Round(time.Second))
	return path, os.Rename(tmp, path)
}
