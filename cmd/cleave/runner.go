package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// closeTimeout bounds the shutdown of what is left after the drain.
const closeTimeout = 30 * time.Second

// runner is a process that serves: `cleave up` or `cleave router`.
type runner struct {
	app   *app
	cfg   atomic.Pointer[config.Effective]
	level slog.LevelVar
	log   *slog.Logger

	router, admin net.Listener
	undos         []func(context.Context) error
	banner        func(*cluster) error   // says that it serves
	data          string                 // the data folder of `cleave up`
	atOnce        atomic.Pointer[func()] // ends what would outlive the process
	cluster       atomic.Pointer[cluster]
}

// undo registers what close does, in reverse order.
func (r *runner) undo(f func(context.Context) error) { r.undos = append(r.undos, f) }

func (r *runner) close(ctx context.Context) error {
	var failed []error
	for i := len(r.undos) - 1; i >= 0; i-- {
		failed = append(failed, r.undos[i](ctx))
	}
	r.undos = nil
	return errors.Join(failed...)
}

// serve runs a process until a signal ends it: open does everything up to
// serving, and serves.
func (a *app) serve(ctx context.Context, cfg *config.Effective, open func(context.Context, *runner) error) error {
	umask()
	r := &runner{app: a}
	r.cfg.Store(cfg)
	r.level.Set(terminal.Level(cfg.LogLevel))
	r.log = terminal.NewLog(a.stderr, cfg.LogFormat, &r.level)

	signals := a.signals
	if signals == nil {
		own := make(chan os.Signal, 4)
		signal.Notify(own, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer signal.Stop(own)
		signals = own
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(signals, stop, done)
	}()
	err := open(ctx, r)
	interrupted := ctx.Err() != nil
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	closing := r.close(bound)
	close(done)
	<-watched
	if err != nil && interrupted {
		// A start that a signal ended has done what it was told; the error is
		// mostly the echo of it.
		if !errors.Is(err, context.Canceled) {
			r.log.Warn("interrupted", telemetry.KeyError, err)
		}
		err = nil
	}
	if err != nil {
		if closing != nil {
			r.log.Error("not everything could be closed", telemetry.KeyError, closing)
		}
		return err
	}
	if closing != nil {
		return closing
	}
	r.log.Info("stopped")
	return nil
}

// watch carries out signals until done.
func (r *runner) watch(signals <-chan os.Signal, stop func(), done <-chan struct{}) {
	stops := 0
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				r.reload()
			case stops == 1:
				stops++
				r.log.Error("second signal: ending at once; local PostgreSQL servers recover at the next start")
				go func() {
					if end := r.atOnce.Load(); end != nil {
						(*end)()
					}
					os.Exit(exitFailed)
				}()
			case stops > 1:
				r.log.Error("third signal: ending without the local PostgreSQL servers, which the next start finds")
				os.Exit(exitFailed)
			default:
				r.log.Info("stopping", "signal", s.String())
				stops++
				stop()
			}
		}
	}
}

// bind takes both ports.
func (r *runner) bind(ctx context.Context) error {
	cfg := r.cfg.Load()
	if err := errors.Join(guarded(cfg), covered(cfg)); err != nil {
		return err
	}
	var err error
	if r.router, err = bind(ctx, "listen", cfg.Listen); err != nil {
		return err
	}
	r.undo(closeListener(r.router))
	if r.admin, err = bind(ctx, "admin", cfg.AdminAddress()); err != nil {
		return err
	}
	r.undo(closeListener(r.admin))
	return nil
}

// guarded refuses a router that other machines can reach while nobody said who
// may connect.
func guarded(cfg *config.Effective) error {
	if cfg.Auth != "trust" || cfg.Given("auth") || len(cfg.Trust) > 0 {
		return nil
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && config.Loopback(host) {
		return nil
	}
	return sqlstate.New(sqlstate.ConfigFileError, "the router is to listen on %s, which other machines can reach, and nothing says who may connect", cfg.Listen).
		WithHint("ask for passwords with --auth scram (cleave user add makes users), or name the networks that need none with --trust, or say --auth trust to let in clients of this machine only")
}

// covered refuses an admin API that other machines can reach without TLS, unless
// somebody said so.
func covered(cfg *config.Effective) error {
	if !cfg.AdminEncrypted() || cfg.AdminTLSCert != "" || cfg.TLSCert != "" {
		return nil
	}
	return sqlstate.New(sqlstate.ConfigFileError, "the admin API is to speak TLS on %s, and there is no certificate", cfg.AdminAddress()).
		WithHint("name one with --tls-cert and --tls-key, or --admin-tls-cert and --admin-tls-key; or let it listen on 127.0.0.1, or say --admin-tls off on a private network")
}

func closeListener(l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// start wires the rooms over a directory that has a map, serves, and returns
// when ctx has ended and everything is drained.
func (r *runner) start(ctx context.Context, dir shardmap.Directory) error {
	cfg := r.cfg.Load()
	others := newAttendants(r.router, cfg.Moments == "cluster")
	r.undo(func(context.Context) error { others.close(); return nil })
	lease, member, err := r.join(ctx, dir)
	if err != nil {
		return err
	}
	started := others.begin("the router is starting up", starting(dir, member))
	token, err := r.credential(r.data)
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, dir, lease, member, &cfg.Config, token, dialable(r.router.Addr()), r.log)
	if err != nil {
		return err
	}
	r.undo(func(context.Context) error { return c.Close() })
	r.cluster.Store(c)
	c.Recover(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.warnings(r.log)
	started()
	r.log.Info("ready", "router", r.router.Addr(), "admin", r.admin.Addr(), telemetry.KeyVersion, c.Executor.Snapshot().Version())
	if err := r.banner(c); err != nil {
		return err
	}
	served := func() { others.begin("the router is shutting down", c.Peer) }
	return c.serve(ctx, others.lent(r.router), r.admin, served, func() time.Duration { return r.cfg.Load().DrainTimeout })
}

// leaveMax bounds the farewell to the directory; without it the lease runs out.
const leaveMax = 2 * time.Second

// join makes the process a member of the cluster until close.
func (r *runner) join(ctx context.Context, dir shardmap.Directory) (lease *shardmap.Lease, member string, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	address := r.router.Addr().String()
	if t, ok := r.router.Addr().(*net.TCPAddr); ok && t.IP.IsUnspecified() {
		address = net.JoinHostPort(host, strconv.Itoa(t.Port))
	}
	member = uuid.NewString()
	lease, leave, err := dir.Join(ctx, shardmap.Member{
		ID: member, Role: "router", Address: address, Host: host, Software: versionText(),
	})
	if err != nil {
		return nil, "", err
	}
	r.undo(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, leaveMax)
		defer cancel()
		if err := leave(ctx); err != nil {
			r.log.Warn("the directory could not be told that this router ends; its lease runs out", telemetry.KeyError, err)
		}
		return nil
	})
	return lease, member, nil
}

// reload reads the settings' file again.
func (r *runner) reload() {
	next, changes, err := r.cfg.Load().Reload()
	if err != nil {
		r.log.Error("the new settings are wrong; the old ones stay in force", telemetry.KeyError, err)
		return
	}
	r.cfg.Store(next)
	r.level.Set(terminal.Level(next.LogLevel))
	if c := r.cluster.Load(); c != nil {
		c.Reload(&next.Config)
	}
	for _, ch := range changes {
		if ch.Restart {
			r.log.Warn("setting needs a restart", "setting", ch.Setting, "in_force", ch.Old, "new", ch.New, "source", ch.Source)
		} else {
			r.log.Info("setting changed", "setting", ch.Setting, "old", ch.Old, "new", ch.New, "source", ch.Source)
		}
	}
	if len(changes) == 0 {
		r.log.Info("settings read again: nothing changed")
	}
}
