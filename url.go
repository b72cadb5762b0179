package cleave

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// place is where a cluster is.
type place struct {
	directory string // URL of the directory, "" if the folder has it
	folder    string // data folder
	shards    int    // that the cluster must have, or is made with; 0: not said
	config    config.Config
}

// makeMax bounds the wait for another process that makes the same cluster.
const makeMax = 30 * time.Second

func parseURL(text string) (*place, error) {
	bad := func(hint, format string, args ...any) error {
		return sqlstate.New(sqlstate.InvalidParameterValue, format, args...).WithHint("%s", hint)
	}
	const forms = "use file:PATH, file:PATH?shards=4 to make a cluster, etcd://HOST:PORT/PREFIX, or the path of a .yaml file of settings"
	effective, err := config.Load(config.Input{})
	if err != nil {
		return nil, err
	}
	p := &place{config: effective.Config}
	scheme, _, isURL := strings.Cut(text, "://")
	switch ext := filepath.Ext(text); {
	case text == "":
		return nil, bad(forms, "the URL of the cluster is empty")
	case isURL && scheme == "etcd":
		p.directory = text
		return p, nil
	case isURL && (strings.HasPrefix(scheme, "postgres")):
		return nil, bad("to talk to a router, use pgx or database/sql with that URL; "+forms, "cleave.Open opens a cluster, not a PostgreSQL server")
	case isURL && scheme != "file":
		return nil, bad(forms, "%q is no kind of directory", scheme)
	case !strings.HasPrefix(text, "file:") && (ext == ".yaml" || ext == ".yml"):
		return p, p.read(text)
	}
	path, query, _ := strings.Cut(wiring.FilePath(text), "?")
	if path == "" {
		return nil, bad(forms, "the URL %q names no file", text)
	}
	p.folder = path
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, bad(forms, "what follows the question mark in %q cannot be read", text)
	}
	for name, v := range values {
		if name != "shards" {
			return nil, bad("the only one is shards", "the URL %q has an unknown parameter %s", text, name)
		}
		if p.shards, err = strconv.Atoi(v[0]); err != nil || len(v) > 1 || p.shards < 1 || p.shards > config.ShardsMax {
			return nil, bad("for example file:./shop?shards=4", "shards in the URL %q is not one number from 1 to %d", text, config.ShardsMax)
		}
	}
	return p, nil
}

// read takes what a file of settings says.
func (p *place) read(file string) error {
	e, err := config.Load(config.Input{File: file})
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.ConfigFileError, "the settings in %s are wrong", file).WithHint("docs/configuration.md lists the settings")
	}
	p.config, p.directory, p.folder = e.Config, e.Directory, e.Data
	if e.Given("shards") {
		p.shards = e.Shards
	}
	return nil
}

// open opens the directory of the cluster; it makes the cluster if that was
// asked for.
func (p *place) open(ctx context.Context, by string, log *slog.Logger) (shardmap.Directory, error) {
	if p.directory != "" && !isFile(p.directory) {
		return existing(ctx, p.directory, p.config.LeaseTTL)
	}
	file := wiring.FilePath(p.directory)
	if file == "" {
		st, err := os.Stat(p.folder)
		if err == nil && st.IsDir() || errors.Is(err, fs.ErrNotExist) {
			return p.openFolder(ctx, by, log)
		}
		file = p.folder
	}
	if _, err := os.Stat(file); err != nil {
		// Opening would make an empty one.
		return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the directory's file %s cannot be opened", file).
			WithHint("name the data folder of a cluster, or directory.db in it")
	}
	if p.shards > 0 && p.directory == "" {
		return nil, sqlstate.New(sqlstate.ConfigFileError, "%s is a file, so a cluster cannot be made there", file).
			WithHint("leave ?shards=%d out to open the cluster whose directory it is, or name a folder", p.shards)
	}
	return existing(ctx, file, p.config.LeaseTTL)
}

func isFile(directory string) bool {
	return strings.HasPrefix(directory, "file:") || !strings.Contains(directory, "://")
}

// existing opens a directory that must hold a map.
func existing(ctx context.Context, url string, ttl time.Duration) (shardmap.Directory, error) {
	dir, err := wiring.OpenDirectoryWith(ctx, url, ttl)
	if err != nil {
		return nil, err
	}
	if _, err := dir.Load(ctx); err != nil {
		if errors.Is(err, shardmap.ErrNotFound) {
			err = sqlstate.New(sqlstate.ConfigFileError, "the directory %s holds no shard map", shardmap.Redacted(url)).
				WithHint("make a cluster with cleave init or cleave up, bring one here with cleave directory copy, or cleave.Open(ctx, \"file:FOLDER?shards=4\")")
		}
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// openFolder opens the directory in a data folder. Only making a cluster locks
// the folder: from then on the directory's own compare-and-set is enough, so
// that any number of programs and routers can be in it.
func (p *place) openFolder(ctx context.Context, by string, log *slog.Logger) (shardmap.Directory, error) {
	folder, err := filepath.Abs(p.folder)
	if err != nil {
		return nil, wiring.FolderError(err, p.folder, "named")
	}
	for end := time.Now().Add(makeMax); ; {
		layout, err := wiring.ReadLayout(folder, software())
		switch {
		case errors.Is(err, fs.ErrNotExist) && p.shards == 0:
			return nil, sqlstate.New(sqlstate.ConfigFileError, "there is no cluster in %s", folder).
				WithHint("make one: cleave.Open(ctx, \"file:%s?shards=4\"), or cleave up --data %s", p.folder, p.folder)
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case p.shards != 0 && p.shards != len(layout.Shards):
			return nil, sqlstate.New(sqlstate.ConfigFileError, "the cluster in %s has %d local shards, not %d", folder, len(layout.Shards), p.shards).
				WithHint("leave shards out, or open another folder; shards are added with Admin().AddShard or cleave shard add")
		default:
			dir, err := p.found(ctx, folder, layout, by, log)
			if dir != nil || err != nil {
				return dir, err
			}
			if layout.OnServers() {
				return nil, sqlstate.New(sqlstate.ConfigFileError, "the cluster in %s was not made to its end", folder).
					WithHint("start it: cleave up --data %s", p.folder)
			}
		}
		dir, err := p.make(ctx, folder, by, log)
		if sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
			return dir, err
		}
		// Another process is making it.
		if time.Now().After(end) {
			return nil, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// found opens the directory of a folder that has a layout; nil if it holds no map.
func (p *place) found(ctx context.Context, folder string, layout *wiring.Layout, by string, log *slog.Logger) (shardmap.Directory, error) {
	file := filepath.Join(folder, wiring.DirectoryFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	dir, err := wiring.OpenDirectoryWith(ctx, file, p.config.LeaseTTL)
	if err != nil {
		return nil, err
	}
	snap, err := dir.Load(ctx)
	if errors.Is(err, shardmap.ErrNotFound) {
		return nil, dir.Close()
	}
	if err == nil && !layout.OnServers() {
		// The folder may have been moved, or be a copy: its shards are the files in it.
		local := layout.SQLiteShards(folder)
		for i := range local {
			if s, ok := snap.Shard(local[i].Name); ok && sameFile(s.URL, local[i].URL) {
				local[i].URL = s.URL
			}
		}
		err = wiring.Bootstrap(ctx, dir, local, by, program(), software(), log)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// sameFile reports whether two URLs name one file, for example through a link.
func sameFile(a, b string) bool {
	stat := func(u string) (fs.FileInfo, error) {
		path, _, _ := strings.Cut(wiring.FilePath(u), "?")
		return os.Stat(path)
	}
	x, err := stat(a)
	if err != nil {
		return false
	}
	y, err := stat(b)
	return err == nil && os.SameFile(x, y)
}

// make makes the cluster of a folder, or finishes it. It fails with 55006 while
// another process does.
func (p *place) make(ctx context.Context, folder, by string, log *slog.Logger) (shardmap.Directory, error) {
	locked, err := wiring.OpenDataFolder(folder, software())
	if err != nil {
		return nil, err
	}
	defer locked.Close()
	layout, err := locked.Settle(wiring.Wanted{Engine: "sqlite", Shards: p.shards, Given: func(string) bool { return false }}, time.Now())
	if err != nil {
		return nil, err
	}
	if p.shards != 0 && len(layout.Shards) != p.shards || layout.OnServers() {
		return nil, sqlstate.New(sqlstate.ObjectInUse, "another process has just made a cluster in %s", folder) // look again
	}
	dir, err := wiring.OpenDirectoryWith(ctx, filepath.Join(folder, wiring.DirectoryFile), p.config.LeaseTTL)
	if err != nil {
		return nil, err
	}
	if err := wiring.Bootstrap(ctx, dir, layout.SQLiteShards(folder), by, program(), software(), log); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
