package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func routerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "router",
		Short: "Start a router of an existing cluster",
		Long: `Starts only the router and the admin API, for the cluster whose shard map is in the
directory. Any number of routers can serve one cluster: each follows the map. With a
directory in etcd they can be on any number of machines; the URL names its servers, the
prefix of its keys, user and password, and the certificates for TLS:

  etcd://user:password@host1:2379,host2:2379/prefix?cacert=ca.crt&cert=me.crt&key=me.key

Put a password into CLEAVE_DIRECTORY or the file of settings, since other users of the
machine can see command lines. Certificates are given as files.

At its start a router waits for a directory that does not answer yet; /readyz and clients are
told so. Later, a router that cannot reach the directory stops answering before --lease-ttl is over
(57P03), and goes on by itself afterwards. cleave router list shows all routers.

Signals and settings are those of cleave up.`,
		Example: `  cleave router --directory file:./.cleave/directory.db --listen 127.0.0.1:6433 --admin 127.0.0.1:6481
  cleave router --directory etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/shop
  CLEAVE_DIRECTORY='etcd://cleave:PASSWORD@10.0.0.1:2379/shop?cacert=/etc/cleave/ca.crt' cleave router`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			if cfg.Directory == "" {
				return &usageError{errMissing("--directory", "where the cluster's shard map is, such as etcd://HOST:2379/PREFIX or file:./.cleave/directory.db"), cmd}
			}
			return a.serve(cmd.Context(), cfg, func(ctx context.Context, r *runner) error { return r.route(ctx) })
		},
	}
	cmd.AddCommand(routerListCommand(a))
	for _, s := range config.Settings() {
		if !slices.Contains(adminSettings, s.Name) && !slices.Contains([]string{"data", "shards", "engine", "servers"}, s.Name) {
			addSettings(cmd.Flags(), s.Name)
		}
	}
	return cmd
}

// route opens the directory of a cluster that exists.
func (r *runner) route(ctx context.Context) error {
	path := directoryPath(r.cfg.Load().Directory, "")
	shown := shardmap.Redacted(path)
	// Opening would make an empty one.
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !wiring.InEtcd(path) {
		return sqlstate.New(sqlstate.ConfigFileError, "there is no directory file %s", path).
			WithHint("name that of a cluster with --directory, or make a cluster: cleave init --directory %s NAME=URL ..., or cleave up", shown)
	}
	if err := r.bind(ctx); err != nil {
		return err
	}
	dir, err := r.openDirectory(ctx, path)
	if err != nil {
		return err
	}
	if _, err := dir.Load(ctx); errors.Is(err, shardmap.ErrNotFound) {
		return sqlstate.New(sqlstate.ConfigFileError, "the directory %s holds no shard map", shown).
			WithHint("write the first map with cleave init --directory %s NAME=URL ..., or bring a cluster here with cleave directory copy --to %s", shown, shown)
	}
	r.banner = func(c *cluster) error {
		router, adminAddress, snap := dialable(r.router.Addr()), r.adminAddress(), c.Executor.Snapshot()
		if r.app.json {
			return r.app.printJSON(map[string]any{
				"listen": router, "admin": adminAddress, "directory": shown,
				"shards": len(snap.Shards()), "tables": len(snap.State().Tables), "version": snap.Version(), "pid": os.Getpid(),
			})
		}
		_, err := fmt.Fprintf(r.app.stdout, "\nThe router is ready: %d %s, map version %d\nrouter     %s\nadmin API  %s\n\n%s\n",
			len(snap.Shards()), plural(len(snap.Shards()), "shard"), snap.Version(), router, withScheme(adminAddress), psqlLine(router))
		return err
	}
	return r.start(ctx, dir)
}

func routerListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the routers of the cluster",
		Long: `Lists the routers, and the programs that use the Go client: the version of the map
that each serves by, how many versions it is behind, and for how long it may serve
without reaching the directory. The one that leads carries out moves.
One whose lease has run out is not listed.`,
		Example: `  cleave router list
  cleave router list --json`,
		Args: args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			list, err := c.Routers(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, list, "no routers",
				[]string{"NODE", "ROLE", "ADDRESS", "HOST", "SOFTWARE", "VERSION", "LAG", "LEASE", "ID"},
				func(r admin.RouterInfo) []string {
					version, lag := strconv.FormatUint(r.Version, 10), strconv.FormatUint(r.Lag, 10)
					if r.Role == "coordinator" {
						version, lag = "", "" // it routes by no map
					}
					role := r.Role
					if r.Leads {
						role += " (leads)"
					}
					return []string{strconv.Itoa(int(r.Node)), role, r.Address, r.Host, r.Software, version, lag,
						strconv.FormatFloat(r.LeaseLeft, 'f', 1, 64) + "s", r.ID}
				})
		}),
	}
}
