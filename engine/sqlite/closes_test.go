package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite"
)

// TestCloseLetsGo: whatever a conversation has run, its file is not open any more when it is closed: statements of several in one message,
// very long ones, those that failed, and cursors.
func TestCloseLetsGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard.db")
	s, err := sqlite.Driver{}.Open(engine.Config{Name: "s", URL: "file:" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := s.Connect(t.Context(), nil) // with which the shard opens what it keeps for all
	if err == nil {
		_, err = engine.Exec(first, "CREATE TABLE first (a int)")
	}
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	before := opened(t, path)
	long := "/*" + strings.Repeat("x", 70_000) + "*/"
	for name, sql := range map[string][]string{
		"one":      {"SELECT 1"},
		"several":  {"CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); SELECT a FROM t; SELECT a FROM t WHERE a > 1; DROP TABLE t"},
		"long":     {"SELECT 1 " + long},
		"failed":   {"SELECT 1; SELECT 1/0"},
		"in block": {"BEGIN; SELECT 1; SELECT 2", "SELECT 3; SELECT 4"},
		"cursor":   {"BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c", "FETCH c"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := s.Connect(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range sql {
				if _, err := engine.Exec(c, text); err != nil && name != "failed" {
					t.Errorf("%.80s: %v", text, err)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if n := opened(t, path); n != before {
				t.Errorf("%d files are open, %d before", n, before)
			}
		})
	}
}

// opened counts the files of this process whose path begins so.
func opened(t *testing.T, path string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, path) {
			n++
		}
	}
	return n
}
