package wiring

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

func TestDataFolder(t *testing.T) {
	given := func(names ...string) func(string) bool {
		return func(s string) bool { return slices.Contains(names, s) }
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	d, err := OpenDataFolder(dir, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDataFolder(dir, "v1"); sqlstate.CodeOf(err) != sqlstate.ObjectInUse || !strings.Contains(err.Error(), "process") {
		t.Errorf("second lock: %v", err)
	}
	l, err := d.Settle(Wanted{Engine: "postgres", Shards: 5, Servers: 2, Given: given()}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Shards) != 5 || l.Shards[4] != "shard-4" || l.ServerOf("shard-3") != 1 || l.ServerOf("shard-4") != 0 {
		t.Errorf("layout %+v", l)
	}
	d.Close()

	d, err = OpenDataFolder(dir, "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		w    Wanted
		want string
	}{
		{Wanted{Engine: "sqlite", Shards: 4, Servers: 1, Given: given()}, ""}, // nothing Given: what the folder has counts
		{Wanted{Engine: "postgres", Shards: 5, Servers: 2, Given: given("engine", "shards", "servers")}, ""},
		{Wanted{Engine: "sqlite", Given: given("engine")}, "has postgres shards, but engine is set to sqlite"},
		{Wanted{Shards: 4, Given: given("shards")}, "cleave shard add"},
		{Wanted{Servers: 1, Given: given("servers")}, "--servers 2"},
	} {
		got, err := d.Settle(c.w, time.Now())
		if c.want == "" && (err != nil || len(got.Shards) != 5) {
			t.Errorf("%+v: %v", c.w, err)
		}
		if c.want != "" && (sqlstate.CodeOf(err) != sqlstate.ConfigFileError || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--data")) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestBadDataFolders(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		code       sqlstate.Code
		want       string
	}{
		"newer format":    {LayoutFile, `{"format": 9, "made_by": "v9.9"}`, sqlstate.ConfigFileError, "format 9, made by a newer version of Cleave (v9.9)"},
		"damaged":         {LayoutFile, `{"format`, sqlstate.DataCorrupted, "damaged"},
		"no format":       {LayoutFile, `{}`, sqlstate.DataCorrupted, "damaged"},
		"no shards":       {LayoutFile, `{"format": 1, "engine": "sqlite"}`, sqlstate.DataCorrupted, "do not fit"},
		"servers missing": {LayoutFile, `{"format": 1, "engine": "postgres", "shards": ["shard-0"]}`, sqlstate.DataCorrupted, "do not fit"},
		"something else":  {"photo.jpg", "x", sqlstate.ConfigFileError, "holds photo.jpg"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := OpenDataFolder(dir, "v1")
			if sqlstate.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) || sqlstate.As(err).Hint == "" {
				t.Errorf("got %v, want %s %q", err, c.code, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, lockFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a refused folder was changed: %v", err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDataFolder(filepath.Join(file, "x"), "v1"); sqlstate.CodeOf(err) != sqlstate.ConfigFileError {
		t.Errorf("folder below a file: %v", err)
	}
	// A crash between writing the new format file and renaming it.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, LayoutFile+".new"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDataFolder(dir, "v1")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}
