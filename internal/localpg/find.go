package localpg

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// BinVariable names the environment variable that holds a folder with
// PostgreSQL's server programs. It comes before every other place.
const BinVariable = "CLEAVE_PG_BIN"

// MajorMin is the oldest major version that Cleave works with.
const MajorMin = 14

// Installation is a folder with PostgreSQL's server programs.
type Installation struct {
	Bin     string // absolute folder that holds postgres and initdb
	Version string // as the server prints it, "15.13"
	Major   int    // 15
}

// Program returns the path of a program of the installation ("psql") and
// whether it is there. Many packages leave the client programs out.
func (i Installation) Program(name string) (string, bool) {
	p := filepath.Join(i.Bin, name)
	return p, executable(p)
}

// String returns version and folder.
func (i Installation) String() string {
	return fmt.Sprintf("PostgreSQL %s in %s", i.Version, i.Bin)
}

// usualFolders are where packages of Debian, Red Hat, the PostgreSQL sources,
// Homebrew and Postgres.app put the programs.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/local/pgsql/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// Find returns the installation to use for a major version, or the first one of
// [All] for 0. It fails with F0000 when CLEAVE_PG_BIN is set and is not such a
// folder, or when nothing fits; the hint says what to install.
func Find(major int) (Installation, error) {
	all := All()
	if dir := os.Getenv(BinVariable); dir != "" {
		if _, err := At(dir); err != nil {
			return Installation{}, err
		}
	}
	for _, i := range all {
		if (major == 0 && i.Major >= MajorMin) || (major != 0 && i.Major == major) {
			return i, nil
		}
	}
	what := fmt.Sprintf("PostgreSQL %d or later", MajorMin)
	if major != 0 {
		what = fmt.Sprintf("PostgreSQL %d", major)
	}
	err := sqlstate.New(sqlstate.ConfigFileError, "%s is not found on this machine", what).
		WithHint("install it (Debian: apt-get install postgresql; macOS: brew install postgresql), or set %s to the folder that holds postgres and initdb", BinVariable)
	if len(all) > 0 {
		names := make([]string, len(all))
		for n, i := range all {
			names[n] = i.String()
		}
		err.Detail = "Found only: " + strings.Join(names, "; ")
	}
	return Installation{}, err
}

// All returns every installation that is found, each folder once: that of
// CLEAVE_PG_BIN, that of PATH, then the usual folders, newest first.
func All() []Installation {
	var found []Installation
	seen := map[string]bool{}
	add := func(dir string) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[real] {
			return
		}
		seen[real] = true
		if i, err := At(dir); err == nil {
			found = append(found, i)
		}
	}
	if dir := os.Getenv(BinVariable); dir != "" {
		add(dir)
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			add(filepath.Dir(p))
		}
	}
	first := len(found)
	for _, pattern := range usualFolders {
		dirs, _ := filepath.Glob(pattern) // the patterns are well formed: no error
		for _, dir := range dirs {
			add(dir)
		}
	}
	slices.SortStableFunc(found[first:], func(a, b Installation) int {
		if c := cmp.Compare(b.Major, a.Major); c != 0 {
			return c
		}
		return cmp.Compare(minor(b.Version), minor(a.Version))
	})
	return found
}

// At returns the installation in a folder. It fails with F0000 if the folder
// does not hold working server programs.
func At(dir string) (Installation, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Installation{}, sqlstate.Wrap(err, sqlstate.ConfigFileError, "cannot name the folder %q", dir)
	}
	hint := "set " + BinVariable + " to the folder that holds postgres and initdb"
	for _, name := range []string{"postgres", "initdb"} {
		if p := filepath.Join(dir, name); !executable(p) {
			return Installation{}, sqlstate.New(sqlstate.ConfigFileError, "%s is not a program", p).WithHint("%s", hint)
		}
	}
	version, err := programVersion(filepath.Join(dir, "postgres"))
	if err != nil {
		return Installation{}, sqlstate.Wrap(err, sqlstate.ConfigFileError, "%s does not work", filepath.Join(dir, "postgres")).WithHint("%s", hint)
	}
	major, err := strconv.Atoi(leadingDigits(version))
	if err != nil {
		return Installation{}, sqlstate.New(sqlstate.ConfigFileError, "%s has the unknown version %q", filepath.Join(dir, "postgres"), version).WithHint("%s", hint)
	}
	return Installation{Bin: dir, Version: version, Major: major}, nil
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ([0-9][0-9A-Za-z.]*)`)

// versions remembers what each program said, by path and time of change: one
// run costs some milliseconds, and All is asked often. Bounded by the number of
// installations on the machine.
var versions sync.Map

type versionKey struct {
	path    string
	changed time.Time
	size    int64
}

func programVersion(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	key := versionKey{path, st.ModTime(), st.Size()}
	if v, ok := versions.Load(key); ok {
		return v.(string), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s --version printed %q", path, strings.TrimSpace(string(out)))
	}
	versions.Store(key, string(m[1]))
	return string(m[1]), nil
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

func leadingDigits(s string) string {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return s[:n]
}

func minor(version string) int {
	_, rest, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(leadingDigits(rest)) // "18beta1" has none: 0
	return n
}
