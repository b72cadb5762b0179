package wiring

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/etcd"
	"github.com/cleavedb/cleave/sqlstate"
)

// OpenDirectory opens the directory that a URL names: file:PATH or a path, or
// etcd://HOST:PORT,.../PREFIX. A file that does not exist is made, empty. Leases
// have the default time to live.
func OpenDirectory(ctx context.Context, url string) (shardmap.Directory, error) {
	return OpenDirectoryWith(ctx, url, 0)
}

// OpenDirectoryWith is OpenDirectory with a time to live for leases; 0 is the default.
func OpenDirectoryWith(ctx context.Context, url string, leaseTTL time.Duration) (shardmap.Directory, error) {
	if InEtcd(url) {
		return etcd.Open(ctx, url, etcd.Options{LeaseTTL: leaseTTL})
	}
	return openFile(FilePath(url), leaseTTL)
}

// InEtcd reports whether a directory's URL is not a file's.
func InEtcd(url string) bool { return strings.HasPrefix(url, etcd.Scheme) }

// FilePath is the path that file:PATH names, or the path itself.
func FilePath(url string) string {
	return strings.TrimPrefix(strings.TrimPrefix(url, "file:"), "//")
}

// NewOps returns the operations of a directory, each opening shards itself: for
// what has to happen before there is a map to route by.
func NewOps(dir shardmap.Directory, software string, log *slog.Logger) *admin.Ops {
	return admin.New(admin.Options{Directory: dir, Drivers: Drivers(), Software: software, Log: log})
}

// SQLiteShards are the shards of a layout with SQLite files, as they are in the folder.
func (l *Layout) SQLiteShards(folder string) []admin.BootstrapShard {
	shards := make([]admin.BootstrapShard, len(l.Shards))
	for i, name := range l.Shards {
		shards[i] = admin.BootstrapShard{Name: name, Weight: 1, URL: engine.FileURL(filepath.Join(folder, name+".db"))}
	}
	return shards
}

// Bootstrap makes the first map of local shards, or tells the map where they are
// now: the folder may have been moved, or a port may have changed. who says in
// the map's history which program did it.
func Bootstrap(ctx context.Context, dir shardmap.Directory, shards []admin.BootstrapShard, by, who, software string, log *slog.Logger) error {
	for range 5 {
		snap, err := dir.Load(ctx)
		// A process that was killed after it had written the first map has not prepared all shards.
		if errors.Is(err, shardmap.ErrNotFound) || err == nil && snap.Version() == 1 {
			return bootstrap(ctx, dir, shards, by, who, software, log)
		}
		if err != nil {
			return err
		}
		next := snap.State().Clone()
		moved := setURLs(&next, shards)
		if len(moved) == 0 {
			return nil
		}
		_, err = dir.Update(ctx, shardmap.Change{
			Expect: snap.Version(), By: "system", Op: "shard_url",
			Why: who + " found the local shards at another place: " + strings.Join(moved, ", "),
		}, next)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err == nil {
			log.Info("local shards have another address now", "shards", strings.Join(moved, ", "))
		}
		return err
	}
	return sqlstate.New(sqlstate.SerializationFailure, "the shard map changes all the time").WithHint("stop the other processes that use this directory, then start again")
}

// bootstrap makes the first map, or goes on with the shards that it has not prepared.
func bootstrap(ctx context.Context, dir shardmap.Directory, shards []admin.BootstrapShard, by, who, software string, log *slog.Logger) error {
	ops := NewOps(dir, software, log)
	res, err := ops.Bootstrap(ctx, admin.BootstrapRequest{Meta: admin.Meta{By: by, Why: "first start of " + who}, Shards: shards})
	if e := ops.Close(); err == nil && e != nil {
		return e
	}
	if err != nil {
		return err
	}
	if res.Created {
		log.Info("a new cluster", "cluster", res.Cluster, "version", res.Version)
	}
	return nil
}

// setURLs tells a map where local shards are now, and returns the names of those that were elsewhere.
func setURLs(next *shardmap.State, shards []admin.BootstrapShard) (moved []string) {
	for _, local := range shards {
		for i := range next.Shards {
			if s := &next.Shards[i]; s.Name == local.Name && s.URL != local.URL {
				s.URL = local.URL
				moved = append(moved, s.Name)
			}
		}
	}
	return moved
}
