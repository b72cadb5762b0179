package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func initCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init NAME=URL [NAME=URL...]",
		Short: "Create a cluster of existing databases",
		Long: `Writes the first shard map of a cluster into an empty directory: one shard for each
database, the first of them the default shard. Each database is checked (PostgreSQL 14
or later; privileges; settings) and marked as a shard of this cluster. Nothing is
started: run cleave router, on as many machines as wanted.

Tables that the default shard has already become unsharded tables of the cluster. A URL on
the command line can be seen by other users of this machine: put a password into
a .pgpass file instead.`,
		Example: `  cleave init --directory file:/srv/map.db a=postgres://cleave@db1/app b=postgres://cleave@db2/app
  cleave router --directory file:/srv/map.db`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, given []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			if cfg.Directory == "" {
				return &usageError{errMissing("--directory", "where the cluster's shard map is to be, such as file:/srv/cleave/directory.db"), cmd}
			}
			if len(given) == 0 {
				return &usageError{errors.New("a cluster needs at least one shard, as NAME=URL"), cmd}
			}
			req := admin.BootstrapRequest{Meta: admin.Meta{By: actor(), Why: "cleave init"}}
			for _, g := range given {
				name, url, ok := strings.Cut(g, "=")
				if !ok || strings.Contains(name, ":") {
					return &usageError{fmt.Errorf("%s is not NAME=URL", shardmap.Redacted(g)), cmd}
				}
				req.Shards = append(req.Shards, admin.BootstrapShard{Name: name, URL: url})
			}
			dir, err := wiring.OpenDirectory(cmd.Context(), cfg.Directory)
			if err != nil {
				return err
			}
			defer dir.Close()
			if snap, err := dir.Load(cmd.Context()); err == nil {
				return sqlstate.New(sqlstate.DuplicateObject, "the directory has the map of a cluster already, with %d shards", len(snap.Shards())).
					WithHint("cleave shard add NAME URL adds a shard to it; give another --directory for another cluster")
			}
			ops := wiring.NewOps(dir, versionText(), slog.New(slog.DiscardHandler))
			defer ops.Close()
			res, err := ops.Bootstrap(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(res)
			}
			for _, w := range res.Warnings {
				fmt.Fprintf(a.stderr, "warning: %s\n", terminal.Printable(w))
			}
			_, err = fmt.Fprintf(a.stdout, "cluster %s: %d %s, map version %d\n", res.Cluster, len(req.Shards), plural(len(req.Shards), "shard"), res.Version)
			return err
		},
	}
	addSettings(cmd.Flags(), "directory")
	return cmd
}
