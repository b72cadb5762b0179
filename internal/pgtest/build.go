package pgtest

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
	"runtime"
	"testing"
	"time"
)

// Build makes the program of a nested module, once for each state of its go.mod and of the files named, and keeps it in CacheDir.
func Build(tb testing.TB, name, source string, files ...string) (path string, err error) {
	tb.Helper()
	var state []byte
	for _, file := range append([]string{"go.mod"}, files...) {
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", err
		}
		state = append(state, text...)
	}
	sum := sha256.Sum256(append(state, runtime.GOOS+runtime.GOARCH+runtime.Version()...))
	cache := CacheDir(tb)
	path = filepath.Join(cache, name+"-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	defer LockCache(tb, cache)()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), FetchMax)
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
	tb.Logf("%s was built in %v", filepath.Base(path), time.Since(begin).Round(time.Second))
	return path, os.Rename(tmp, path)
}
