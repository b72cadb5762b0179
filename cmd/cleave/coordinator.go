package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
)

func coordinatorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Run moves for a cluster, without routing statements",
		Long: `Starts a process that takes part in the coordinators' election and, while it leads,
carries out moves, splits and drains. Every cleave up and cleave router does so too, unless it
is started with --coordinator off: this is for clusters that keep the work of copying off their
routers. Any number can run; one leads, and the next one goes on where it stopped. cleave router
list shows them, and which one leads.

With --admin it serves health (/readyz, /livez) and /metrics there, and nothing else.`,
		Example: `  cleave coordinator --directory etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/shop --admin 127.0.0.1:6490
  cleave health --admin 127.0.0.1:6490`,
		Args: args(0, 0),
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
		case "directory", "lease-ttl", "log-level", "log-format", "connect-timeout", "failover-wait", "admin-tls-cert", "admin-tls-key", "tls-cert", "tls-key":
			addSettings(cmd.Flags(), s.Name)
		}
	}
	return cmd
}

// coordinate runs a coordinator until ctx ends.
func (r *runner) coordinate(ctx context.Context) error {
	cfg := r.cfg.Load()
	path := directoryPath(cfg.Directory, "")
	if cfg.Given("admin") {
		if err := covered(cfg); err != nil {
			return err
		}
		var err error
		if r.admin, err = bind(ctx, "admin", cfg.AdminAddress()); err != nil {
			return err
		}
		r.undo(closeListener(r.admin))
	}
	dir, err := r.openDirectory(ctx, path)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// A member, so that it is seen; it routes nothing, so nobody waits for it.
	member := uuid.NewString()
	lease, leave, err := dir.Join(ctx, shardmap.Member{ID: member, Role: "coordinator", Host: host, Software: versionText()})
	if err != nil {
		return err
	}
	r.undo(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, leaveMax)
		defer cancel()
		return leave(ctx)
	})
	rooms, err := wiring.New(ctx, wiring.Options{Directory: dir, Member: member, Config: &cfg.Config, Software: versionText(), Log: r.log, Candidate: candidacy("coordinator")})
	if err != nil {
		return err
	}
	r.undo(func(context.Context) error { return rooms.Close() })
	r.log.Info("ready", "directory", shardmap.Redacted(path))
	if _, err := fmt.Fprintf(r.app.stdout, "The coordinator is ready\ndirectory  %s\n", shardmap.Redacted(path)); err != nil {
		return err
	}
	if r.admin == nil {
		<-ctx.Done()
		return nil
	}
	return r.serveHealth(ctx, rooms, lease)
}

// serveHealth answers probes and Prometheus until ctx ends.
func (r *runner) serveHealth(ctx context.Context, rooms *wiring.Rooms, lease *shardmap.Lease) error {
	answer := func(w http.ResponseWriter, h api.Health) {
		w.Header().Set("Content-Type", "application/json")
		if !h.Ready && h.Reason != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h) // the caller may be gone
	}
	live := func(w http.ResponseWriter, _ *http.Request) { answer(w, api.Health{Live: true}) }
	ready := func(w http.ResponseWriter, _ *http.Request) {
		h := api.Health{Live: true, Ready: lease.Live()}
		if !h.Ready {
			h.Reason = "the directory cannot be reached"
		}
		answer(w, h)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz/live", live)
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /healthz", ready)
	mux.Handle("GET /metrics", rooms.Metrics.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	tls, err := adminCertificate(&r.cfg.Load().Config)
	switch {
	case err != nil:
		return err
	case tls != nil:
		srv.TLSConfig = tls.HTTP()
		err = srv.ServeTLS(r.admin, "", "")
	default:
		err = srv.Serve(r.admin)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
