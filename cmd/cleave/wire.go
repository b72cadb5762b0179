package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// drivers are the engines that this binary knows.
func drivers() []engine.Driver { return []engine.Driver{postgres.Driver{}, sqlite.Driver{}} }

// cluster is everything between the directory and the two ports.
type cluster struct {
	log       *slog.Logger
	directory shardmap.Directory
	executor  *executor.Executor
	ops       *admin.Ops
	gateway   *gateway.Server
	http      *http.Server
	draining  atomic.Bool
}

// newOps returns the operations of a directory, each opening shards itself: for
// what has to happen before there is a map to route by.
func newOps(dir shardmap.Directory, log *slog.Logger) *admin.Ops {
	return admin.New(admin.Options{Directory: dir, Drivers: drivers(), Software: versionText(), Log: log})
}

// newCluster wires the rooms and starts to follow the map. It serves nothing yet.
func newCluster(ctx context.Context, dir shardmap.Directory, cfg *config.Config, routerAddress string, log *slog.Logger) (*cluster, error) {
	c := &cluster{log: log, directory: dir}
	metrics := telemetry.New()
	byName := map[string]engine.Driver{}
	for _, d := range drivers() {
		byName[d.Name()] = d
	}
	plan := planner.New(planLimits(cfg))
	c.executor = executor.New(executor.Options{
		Directory: dir, Drivers: byName, Planner: plan, Limits: executorLimits(cfg), Log: log, Metrics: metrics,
	})
	if err := c.executor.Start(ctx); err != nil {
		_ = c.executor.Close() // the first error is the one to report
		return nil, err
	}
	c.ops = admin.New(admin.Options{
		Directory: dir, Drivers: drivers(), Connect: c.executor.Connect, Software: versionText(), Log: log,
	})
	c.gateway = gateway.New(gateway.Options{
		Executor: c.executor, Admin: c.ops, Virtual: sqlite.OpenVirtual, Limits: gatewayLimits(cfg), Log: log, Metrics: metrics,
		Slow: cfg.SlowStatement,
	})
	handler := api.Options{
		API:     c.ops,
		Ready:   c.ready,
		Metrics: metrics.Handler(),
		Route: func(_ context.Context, sql string) ([]string, error) {
			snap := c.executor.Snapshot()
			st, err := plan.Analyze(sql, snap, []string{"public"})
			if err != nil {
				return nil, err
			}
			return st.Explain(snap, &planner.Args{})
		},
	}
	c.http = api.NewServer(handler)
	c.http.Handler = withRouterAddress(c.http.Handler, routerAddress)
	c.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return c, nil
}

func (c *cluster) ready(context.Context) error {
	if c.draining.Load() {
		return sqlstate.New(sqlstate.AdminShutdown, "the router is shutting down")
	}
	return nil
}

// serve answers on both ports until ctx ends, then drains: sessions get
// drain() to finish what they are at. It returns nil after a drain, else the
// reason why a port was lost.
func (c *cluster) serve(ctx context.Context, router, adminPort net.Listener, drain func() time.Duration) error {
	failed := make(chan error, 2)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		err := c.gateway.Serve(serving, router)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, gateway.ErrClosed) {
			err = nil
		}
		failed <- err
	}()
	go func() {
		err := c.http.Serve(adminPort)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		failed <- err
	}()
	pending := 2
	var lost error
	select {
	case <-ctx.Done():
	case lost = <-failed:
		pending--
		if lost == nil {
			lost = errors.New("a listener ended by itself")
		}
	}
	c.draining.Store(true)
	c.executor.Metrics().Draining()
	wait := drain()
	c.log.Info("draining: sessions finish their transaction; a second signal ends at once", "at_most", wait)
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	if err := c.gateway.Shutdown(bound); err != nil {
		c.log.Warn("sessions were cut off: they did not finish in time", telemetry.KeyError, err)
	}
	stop()
	brief, cancelHTTP := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancelHTTP()
	if err := c.http.Shutdown(brief); err != nil {
		_ = c.http.Close()
	}
	for range pending {
		if err := <-failed; err != nil && lost == nil && ctx.Err() == nil {
			lost = err
		}
	}
	return lost
}

func (c *cluster) close() error {
	return errors.Join(c.ops.Close(), c.executor.Close())
}

// reload puts the settings in force that can change while it runs.
func (c *cluster) reload(cfg *config.Config) { c.gateway.SetSlow(cfg.SlowStatement) }

// recover finishes what a crash left, and says what it found. What cannot be
// finished now (a shard is down) waits for `cleave doctor --repair`.
func (c *cluster) recover(ctx context.Context) {
	findings, err := c.ops.Recover(ctx)
	for _, f := range findings {
		level := slog.LevelDebug
		switch {
		case f.Level == levelError:
			level = slog.LevelError
		case f.Level == levelWarning:
			level = slog.LevelWarn
		case f.Done != "":
			level = slog.LevelInfo
		}
		attrs := []any{}
		for _, kv := range [][2]string{{telemetry.KeyShard, f.Shard}, {"table", f.Table}, {"done", f.Done}, {"next", f.Next}} {
			if kv[1] != "" {
				attrs = append(attrs, kv[0], kv[1])
			}
		}
		c.log.Log(ctx, level, f.What, attrs...)
	}
	if err != nil {
		c.log.Warn("not everything could be recovered; run cleave doctor --repair when all shards are up", telemetry.KeyError, err)
	}
}

// noLimit stands for a setting of 0: the rooms take 0 as "your default".
const noLimit = 10 * 365 * 24 * time.Hour

func orNoLimit(d time.Duration) time.Duration {
	if d == 0 {
		return noLimit
	}
	return d
}

func planLimits(cfg *config.Config) planner.Limits {
	return planner.Limits{Bytes: cfg.StatementMax}
}

func executorLimits(cfg *config.Config) executor.Limits {
	return executor.Limits{PoolMax: cfg.PoolSize, ConnectTimeout: cfg.ConnectTimeout}
}

func gatewayLimits(cfg *config.Config) gateway.Limits {
	return gateway.Limits{
		SessionsMax: cfg.MaxConnections, MessageMax: cfg.MessageMax,
		IdleMax: orNoLimit(cfg.IdleTimeout), IdleInTransactionMax: orNoLimit(cfg.IdleInTransactionTimeout),
		StatementMax: orNoLimit(cfg.StatementTimeout),
	}
}
