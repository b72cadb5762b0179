package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

const (
	// directoryAgain is the pause before a directory that could not be reached is tried again.
	directoryAgain = time.Second
	// directoryLog is how often that is told.
	directoryLog = 10 * time.Second
)

// openDirectory opens the directory. One that cannot be reached (57P03) is waited for, until ctx ends: the machines of a
// cluster start in any order. Meanwhile both ports say so.
func (r *runner) openDirectory(ctx context.Context, url string) (shardmap.Directory, error) {
	dir, err := wiring.OpenDirectoryWith(ctx, url, r.cfg.Load().LeaseTTL)
	if sqlstate.CodeOf(err) == sqlstate.CannotConnectNow && ctx.Err() == nil {
		dir, err = r.awaitDirectory(ctx, url, err)
	}
	if err != nil {
		return nil, err
	}
	r.undo(func(context.Context) error { return dir.Close() })
	return dir, nil
}

func (r *runner) awaitDirectory(ctx context.Context, url string, err error) (dir shardmap.Directory, _ error) {
	told := time.Time{}
	done := r.standIn(ctx, sqlstate.New(sqlstate.CannotConnectNow, "the router is starting up").
		WithDetail("It waits for the directory: %s", sqlstate.As(err).Message).WithHint("it goes on by itself as soon as the directory answers"))
	defer done()
	for {
		if now := time.Now(); now.Sub(told) >= directoryLog {
			told = now
			r.log.Warn("the directory cannot be reached; it is waited for", "directory", shardmap.Redacted(url), telemetry.KeyError, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(directoryAgain):
		}
		if dir, err = wiring.OpenDirectoryWith(ctx, url, r.cfg.Load().LeaseTTL); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			if err == nil {
				r.log.Info("the directory answers")
			}
			return dir, err
		}
	}
}

// standIn answers on the ports that are bound, until done: clients hear why there is no session yet, health says that
// the process lives and is not ready.
func (r *runner) standIn(ctx context.Context, why *sqlstate.Error) (done func()) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	if r.router != nil {
		all.Go(func() { arrival.Refuse(ctx, r.router, why) })
	}
	if r.admin != nil {
		all.Go(func() { r.standInAdmin(ctx, why) })
	}
	return func() {
		stop()
		all.Wait()
	}
}

func (r *runner) standInAdmin(ctx context.Context, why *sqlstate.Error) {
	t, ok := r.admin.(*net.TCPListener)
	if !ok {
		return
	}
	answer := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // the caller may be gone
	}
	srv := &http.Server{
		ReadHeaderTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch {
			case req.URL.Path == "/livez" || req.URL.Path == "/healthz/live":
				answer(w, http.StatusOK, api.Health{Live: true})
			case req.URL.Path == "/readyz" || strings.HasPrefix(req.URL.Path, "/healthz"):
				answer(w, http.StatusServiceUnavailable, api.Health{Live: true, Reason: why.Message + ": " + why.Detail})
			default:
				answer(w, http.StatusServiceUnavailable, api.ErrorBody{ID: string(why.ID), Code: string(why.Code), Message: why.Message, Detail: why.Detail, Hint: why.Hint})
			}
		}),
	}
	srv.SetKeepAlivesEnabled(false) // what comes next is another server's
	defer arrival.AcceptUntil(ctx, t)()
	defer func() { _ = srv.Close() }()
	l := kept{t, ctx}
	var err error
	if tls, terr := adminCertificate(&r.cfg.Load().Config); terr != nil {
		err = terr
	} else if tls != nil {
		srv.TLSConfig = tls.HTTP()
		err = srv.ServeTLS(l, "", "")
	} else {
		err = srv.Serve(l)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		r.log.Debug("health is not answered yet", telemetry.KeyError, err)
	}
}

// adminCertificate is what the admin API speaks TLS with; nil if it speaks none.
func adminCertificate(cfg *config.Config) (*arrival.TLS, error) {
	if !cfg.AdminEncrypted() {
		return nil, nil
	}
	if cfg.AdminTLSCert != "" {
		return arrival.LoadTLS(arrival.TLSFiles{Certificate: cfg.AdminTLSCert, Key: cfg.AdminTLSKey})
	}
	return arrival.LoadTLS(arrival.TLSFiles{Certificate: cfg.TLSCert, Key: cfg.TLSKey})
}

// kept is a listener that its server does not close. It ends when ctx does and its deadline has passed: the server would try again.
type kept struct {
	*net.TCPListener
	ctx context.Context
}

func (k kept) Accept() (net.Conn, error) {
	c, err := k.TCPListener.Accept()
	if err != nil && k.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	return c, err
}

func (kept) Close() error { return nil }

// Other routers ask a member from the moment when it joins until it leaves (executor/moment). While its server does not serve,
// attendants do that:
//
//	join ── attend (nothing to be hushed) ──▶ serve ── attend (what sessions are left are hushed) ──▶ leave

// attendants answer other routers at the port for clients while the server does not. Clients are told why it does not.
type attendants struct {
	port *net.TCPListener // nil: nobody is answered
	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup
}

func newAttendants(port net.Listener, asked bool) *attendants {
	a := &attendants{}
	a.life, a.end = context.WithCancel(context.Background())
	if asked {
		a.port, _ = port.(*net.TCPListener)
	}
	return a
}

// begin attends until done is called, or close.
func (a *attendants) begin(why string, answer arrival.Peer) (done func()) {
	if a.port == nil || answer == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(a.life)
	var ended sync.WaitGroup
	ended.Add(1)
	a.all.Go(func() {
		defer ended.Done()
		arrival.Attend(ctx, a.port, sqlstate.New(sqlstate.CannotConnectNow, "%s", why), answer)
	})
	return func() {
		stop()
		ended.Wait()
	}
}

// close ends it for good.
func (a *attendants) close() {
	a.end()
	a.all.Wait()
}

// lent is the port as the server has it: attendants go on with it when it was closed.
func (a *attendants) lent(port net.Listener) net.Listener {
	if a.port == nil {
		return port
	}
	return &lentPort{TCPListener: a.port}
}

// lentPort is a port that Close gives back.
type lentPort struct {
	*net.TCPListener
	back sync.Once
}

// Close has Accept return, once.
func (p *lentPort) Close() (err error) {
	p.back.Do(func() { err = p.SetDeadline(time.Now()) })
	return err
}

// starting answers for a member that has told no client anything yet.
func starting(dir shardmap.Directory, member string) arrival.Peer {
	a := &moment.Answerer{Gate: new(moment.Gate), Member: member, Key: moment.NewKey(dir), Quiet: func() func() { return func() {} }}
	return a.Serve
}
