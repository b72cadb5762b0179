package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
)

func (a *app) coordinatorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Run moves for a cluster, without routing statements",
		Long: `Starts a process that takes part in the coordinators' election and, while it leads,
carries out moves, splits and drains. Every cleave up and cleave router does so too: this is
for clusters that keep the work of copying off their routers. Any number can run; one leads, and
the next one goes on where it stopped.`,
		Example: `  cleave coordinator --directory etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/shop`,
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			if cfg.Directory == "" {
				return &usageError{errMissing("--directory", "where the cluster's shard map is, such as etcd://HOST:2379/PREFIX or file:./.cleave/directory.db"), cmd}
			}
			return a.serve(cmd.Context(), cfg, func(ctx context.Context, r *runner) error { return r.coordinate(ctx) })
		},
	}
	for _, s := range config.Settings() {
		switch s.Name {
		case "directory", "lease-ttl", "log-level", "log-format", "connect-timeout", "failover-wait":
			addSettings(cmd.Flags(), s.Name)
		}
	}
	return cmd
}

// coordinate runs a coordinator until ctx ends.
func (r *runner) coordinate(ctx context.Context) error {
	cfg := r.cfg.Load()
	path := directoryPath(cfg.Directory, "")
	dir, err := r.openDirectory(ctx, path)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// A member, so that it is seen; it routes nothing, so nobody waits for it.
	_, leave, err := dir.Join(ctx, shardmap.Member{ID: uuid.NewString(), Role: "coordinator", Host: host, Software: versionText()})
	if err != nil {
		return err
	}
	r.undo(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, leaveMax)
		defer cancel()
		return leave(ctx)
	})
	rooms, err := wiring.New(ctx, wiring.Options{Directory: dir, Config: &cfg.Config, Software: versionText(), Log: r.log, Candidate: candidacy("coordinator")})
	if err != nil {
		return err
	}
	r.undo(func(context.Context) error { return rooms.Close() })
	r.log.Info("ready", "directory", shardmap.Redacted(path))
	if _, err := fmt.Fprintf(r.app.stdout, "The coordinator is ready\ndirectory  %s\n", shardmap.Redacted(path)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
