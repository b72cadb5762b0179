package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// cluster is everything between the directory and the two ports.
type cluster struct {
	*wiring.Rooms
	log      *slog.Logger
	http     *http.Server
	adminTLS *arrival.TLS // nil: the admin API speaks none, or has the router's
	draining atomic.Bool
}

// adminCredential is the token of the admin API; own if the process made it.
type adminCredential struct {
	token string
	own   bool
}

// newCluster wires the rooms and starts to follow the map. It serves nothing yet.
func newCluster(ctx context.Context, dir shardmap.Directory, lease *shardmap.Lease, member string, cfg *config.Config, token adminCredential, routerAddress string, log *slog.Logger) (*cluster, error) {
	var own *arrival.TLS
	var err error
	if cfg.AdminEncrypted() && cfg.AdminTLSCert != "" {
		if own, err = arrival.LoadTLS(arrival.TLSFiles{Certificate: cfg.AdminTLSCert, Key: cfg.AdminTLSKey}); err != nil {
			return nil, err
		}
	}
	candidate := candidacy(routerAddress)
	if cfg.Coordinator == "off" {
		candidate = ""
	}
	rooms, err := wiring.New(ctx, wiring.Options{Directory: dir, Lease: lease, Member: member, Config: cfg, Software: versionText(), Log: log, Candidate: candidate, Asked: true})
	if err != nil {
		return nil, err
	}
	c := &cluster{Rooms: rooms, log: log, adminTLS: own}
	handler := api.Options{
		API:     c.Ops,
		Ready:   c.ready,
		Metrics: c.Metrics.Handler(),
		Hosts:   cfg.AdminHosts,
		Token:   token.token,
		Local:   token.own,
		Trusted: cfg.Trust,
		Route: func(_ context.Context, sql string) ([]string, error) {
			snap := c.Executor.Snapshot()
			st, err := c.Planner.Analyze(sql, snap, []string{"public"})
			if err != nil {
				return nil, err
			}
			return st.Explain(snap, &plan.Args{})
		},
	}
	c.http = api.NewServer(handler)
	c.http.Handler = withRouterAddress(c.http.Handler, routerAddress)
	if own == nil {
		own = rooms.TLS()
	}
	if cfg.AdminEncrypted() {
		c.http.TLSConfig = own.HTTP()
	}
	c.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return c, nil
}

// Reload puts the settings in force that can change while it runs.
func (c *cluster) Reload(cfg *config.Config) {
	c.Rooms.Reload(cfg)
	if c.adminTLS == nil {
		return
	}
	if err := c.adminTLS.Reload(); err != nil {
		c.log.Error("the certificate of the admin API could not be read again; the old one stays in force", telemetry.KeyError, err)
	}
}

// candidacy is the name of this process in the coordinators' election.
func candidacy(address string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s %s %d", host, address, os.Getpid())
}

func (c *cluster) ready(context.Context) error {
	if c.draining.Load() {
		return sqlstate.New(sqlstate.AdminShutdown, "the router is shutting down")
	}
	return c.Executor.Serving()
}

// serve answers on both ports until ctx ends, then drains: sessions get
// drain() to finish what they are at. It returns nil after a drain, else the
// reason why a port was lost. served is called when no more clients are taken.
func (c *cluster) serve(ctx context.Context, router, adminPort net.Listener, served func(), drain func() time.Duration) error {
	failed := make(chan error, 2)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.logLease(serving)
	}()
	defer func() {
		stop()
		<-watched
	}()
	go func() {
		err := c.Gateway.Serve(serving, router)
		served()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, gateway.ErrClosed) {
			err = nil
		}
		failed <- err
	}()
	go func() {
		var err error
		if c.http.TLSConfig != nil {
			err = c.http.ServeTLS(adminPort, "", "")
		} else {
			err = c.http.Serve(adminPort)
		}
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
	c.Executor.Metrics().Draining()
	wait := drain()
	c.log.Info("draining: sessions finish their transaction; a second signal ends at once", "at_most", wait)
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	if err := c.Gateway.Shutdown(bound); err != nil {
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

// leaseLook is how often the lease is looked at for the log. Statements look at each
// answer themselves; this is for an operator who reads the log afterwards.
const leaseLook = 250 * time.Millisecond

// logLease logs when the router stops to serve because its lease ran out, why,
// and when it serves again, until ctx ends.
func (c *cluster) logLease(ctx context.Context) {
	if c.Executor.Lease() == nil {
		return
	}
	ticker := time.NewTicker(leaseLook)
	defer ticker.Stop()
	stopped := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch lease := c.Executor.Lease(); {
		case !lease.Live() && !stopped:
			stopped = true
			cause := lease.Cause()
			if cause == nil {
				cause = errStoodStill
			}
			c.log.Warn("the lease on the directory has run out: no statement is answered until it is held again", telemetry.KeyError, cause)
		case lease.Live() && stopped:
			stopped = false
			c.log.Info("the lease on the directory is held again")
		}
	}
}

// errStoodStill is why a lease ran out of which no renewal failed.
var errStoodStill = errors.New("this process or its machine stood still")
