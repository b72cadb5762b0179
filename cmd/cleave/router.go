package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func (a *app) routerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "router",
		Short: "Start a router for a cluster that exists",
		Long: `Starts only the router and the admin API, for the cluster whose shard map is in the
directory. Any number of routers can serve one cluster: each follows the map.

Signals and settings are those of cleave up.`,
		Example: `  cleave router --directory file:./.cleave/directory.db --listen 127.0.0.1:6433 --admin 127.0.0.1:6481`,
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			if cfg.Directory == "" {
				return &usageError{errMissing("--directory", "the file with the cluster's shard map, such as file:./.cleave/directory.db"), cmd}
			}
			return a.serve(cmd.Context(), cfg, func(ctx context.Context, r *runner) error { return r.route(ctx) })
		},
	}
	for _, s := range config.Settings() {
		switch s.Name {
		case "admin", "data", "shards", "engine", "servers":
		default:
			addSettings(cmd.Flags(), s.Name)
		}
	}
	return cmd
}

// route opens the directory of a cluster that exists.
func (r *runner) route(ctx context.Context) error {
	path := directoryPath(r.cfg.Load().Directory, "")
	// Opening would make an empty one.
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return sqlstate.New(sqlstate.ConfigFileError, "there is no directory file %s", path).
			WithHint("name that of a cluster with --directory, or make a cluster with cleave up")
	}
	if err := r.bind(ctx); err != nil {
		return err
	}
	dir, err := r.openDirectory(ctx, path)
	if err != nil {
		return err
	}
	if _, err := dir.Load(ctx); errors.Is(err, shardmap.ErrNotFound) {
		return sqlstate.New(sqlstate.ConfigFileError, "the directory %s holds no shard map", path).
			WithHint("make a cluster with cleave up")
	}
	r.banner = func(c *cluster) error {
		router, adminAddress, snap := dialable(r.router.Addr()), dialable(r.admin.Addr()), c.Executor.Snapshot()
		if r.app.json {
			return r.app.printJSON(map[string]any{
				"listen": router, "admin": adminAddress, "directory": path,
				"shards": len(snap.Shards()), "tables": len(snap.State().Tables), "version": snap.Version(), "pid": os.Getpid(),
			})
		}
		_, err := fmt.Fprintf(r.app.stdout, "\nThe router is ready: %d %s, map version %d\nrouter     %s\nadmin API  http://%s\n\n%s\n",
			len(snap.Shards()), plural(len(snap.Shards()), "shard"), snap.Version(), router, adminAddress, psqlLine(router))
		return err
	}
	return r.start(ctx, dir)
}
