package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/cmd/cleave/internal/localshards"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
)

func upCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine: shards, router, admin API",
		Long: `Starts local shards, the router and the admin API in one process, and prints what to
paste next. The first start makes the data folder; later starts find the data again.
Settings that contradict the existing cluster (another engine, another number of
shards) are refused.

With --engine sqlite a shard is a file in the data folder. With --engine postgres
it is a database named like the shard on a private PostgreSQL server (or spread over
--servers of them), whose programs are found in the folder that CLEAVE_PG_BIN names,
in PATH, or in the usual folders; the servers listen on loopback TCP and on a socket.

Router and admin API listen on loopback, and let in clients of this machine without a
password. To ask for passwords and to let in others, see --auth, --trust and --tls-cert.
Whatever --auth says, the servers of --engine postgres ask for a password, which is in
the file postgres.pass of the data folder; the shards' URLs name that file.

SIGTERM or Ctrl-C drains: sessions finish their transaction, at most for
--drain-timeout; a second signal ends at once, with the servers. SIGHUP reads the file of settings
again. The log goes to stderr.`,
		Example: `  cleave up
  cleave up --engine postgres --servers 2 --data ./.cleave-pg
  cleave up --listen 127.0.0.1:7432 --admin 127.0.0.1:7480 --data /var/lib/cleave`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), cfg, func(ctx context.Context, r *runner) error { return r.up(ctx) })
		},
	}
	for _, s := range config.Settings() {
		if !slices.Contains(adminSettings, s.Name) { // every command has them
			addSettings(cmd.Flags(), s.Name)
		}
	}
	return cmd
}

// up opens or makes the data folder and everything in it.
func (r *runner) up(ctx context.Context) error {
	cfg := r.cfg.Load()
	folder, err := wiring.OpenDataFolder(cfg.Data, versionText())
	if err != nil {
		return err
	}
	r.undo(func(context.Context) error { folder.Close(); return nil })
	r.data = folder.Path
	found := folder.Layout != nil
	w := wiring.Wanted{Engine: cfg.Engine, Shards: cfg.Shards, Servers: cfg.Servers, Given: cfg.Given}
	// Ports before anything is made: a start that fails must leave no trace.
	if found {
		if err := folder.Layout.Agree(folder.Path, w); err != nil {
			return err
		}
	}
	if err := r.bind(ctx); err != nil {
		return err
	}
	l, err := folder.Settle(w, time.Now())
	if err != nil {
		return err
	}
	if found {
		r.log.Info("the data folder is found again", "folder", folder.Path, "engine", l.Engine, "shards", len(l.Shards))
	} else {
		r.log.Info("a new data folder", "folder", folder.Path, "engine", l.Engine, "shards", len(l.Shards))
	}
	local, shards, err := localshards.Start(ctx, folder, cfg.PoolSize, r.log)
	if err != nil {
		return err
	}
	r.undo(local.Close)
	quit := local.Quit
	r.atOnce.Store(&quit)
	dir, err := r.openDirectory(ctx, directoryPath(cfg.Directory, folder.Path))
	if err != nil {
		return err
	}
	if err := wiring.Bootstrap(ctx, dir, shards, actor(), "cleave up", versionText(), r.log); err != nil {
		return err
	}
	r.banner = func(c *cluster) error {
		c.Executor.Metrics().Data(func() (used, free uint64, ok bool) { return dataSize(folder.Path) })
		return r.upBanner(ctx, folder, found, c)
	}
	return r.start(ctx, dir)
}

// directoryPath returns the directory's file: the setting, else the data folder's.
func directoryPath(setting, folder string) string {
	if setting == "" {
		return filepath.Join(folder, wiring.DirectoryFile)
	}
	if wiring.InEtcd(setting) {
		return setting
	}
	return wiring.FilePath(setting)
}

const bannerSQL = `CREATE TABLE orders (tenant_id bigint, id bigint, note text,
  PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id');
INSERT INTO orders VALUES (42, 1, 'hello');
SELECT * FROM orders WHERE tenant_id = 42;
EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = 42;`

func (r *runner) upBanner(ctx context.Context, folder *wiring.DataFolder, found bool, c *cluster) error {
	router, adminAddress := dialable(r.router.Addr()), r.adminAddress()
	snap := c.Executor.Snapshot()
	if r.app.json {
		return r.app.printJSON(map[string]any{
			"listen": router, "admin": adminAddress, "data": folder.Path, "engine": folder.Layout.Engine,
			"shards": len(snap.Shards()), "tables": len(snap.State().Tables), "version": snap.Version(), "new": !found, "pid": os.Getpid(),
		})
	}
	suffix := ""
	if def, _ := config.Lookup("admin"); adminAddress != def.Default {
		suffix = " --admin " + adminAddress
	}
	word := "a new cluster"
	if found {
		word = fmt.Sprintf("found again, %d %s", len(snap.State().Tables), plural(len(snap.State().Tables), "table"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nCleave is ready: %d %s %s in %s (%s)\n", len(snap.Shards()), folder.Layout.Engine, plural(len(snap.Shards()), "shard"), folder.Path, word)
	fmt.Fprintf(&b, "router     %s\nadmin API  %s  (/healthz, /metrics)\n\n", router, withScheme(adminAddress))
	fmt.Fprintf(&b, "Paste next:\n\n%s\n\n", psqlLine(router))
	if len(snap.State().Tables) == 0 {
		b.WriteString(bannerSQL + "\n\n")
	}
	fmt.Fprintf(&b, "cleave shard list%s\ncleave doctor%s\n\nCtrl-C ends it; the data stays.\n", suffix, suffix)
	_, err := fmt.Fprint(r.app.stdout, b.String())
	return err
}

// umask makes everything that a process writes private to its user: the map
// may hold passwords. PostgreSQL sets its own.
func umask() { syscall.Umask(0o077) }

// warnings says at the start what is allowed but unwise.
func (r *runner) warnings(log *slog.Logger) {
	for _, w := range r.cfg.Load().Warnings {
		log.Warn(w)
	}
	cfg := r.cfg.Load()
	if !loopback(r.router.Addr()) {
		if cfg.Auth == "trust" && len(cfg.Trust) > 0 {
			log.Warn("clients of the trusted networks may do anything and are asked for no password; see the setting auth", "listen", r.router.Addr(), "trust", cfg.Trust)
		}
		if cfg.TLSCert == "" {
			log.Warn("statements and rows go unencrypted to clients on other machines; see the setting tls-cert", "listen", r.router.Addr())
		}
	}
	if !loopback(r.admin.Addr()) {
		switch {
		case cfg.AdminTokenFile != "" && !cfg.AdminEncrypted():
			log.Warn("the token of the admin API goes unencrypted over the network; keep it to a private one", "admin", r.admin.Addr())
		case cfg.AdminTokenFile == "" && len(cfg.Trust) > 0: // under any auth
			log.Warn("the admin API obeys the trusted networks and asks for no token; see the setting admin-token-file", "admin", r.admin.Addr())
		}
	}
}

// dataSize returns the size of the SQLite files in a data folder, with their
// write-ahead logs, and the space that is free for this user on its file system.
func dataSize(folder string) (used, free uint64, ok bool) {
	var fs syscall.Statfs_t
	if syscall.Statfs(folder, &fs) != nil {
		return 0, 0, false
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, 0, false
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".db") {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() { // else it went meanwhile
			used += uint64(info.Size())
		}
	}
	return used, fs.Bavail * uint64(fs.Bsize), true
}
