package move

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// router is a `cleave router` that is killed and stopped, and comes back at its address.
type router struct {
	h             *histories
	bin           string
	listen, admin string
	cmd           *exec.Cmd

	mu  sync.Mutex
	log bytes.Buffer
}

// Write takes what the process logs.
func (r *router) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

// text is the end of its log.
func (r *router) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.log.Bytes()
	return string(b[max(0, len(b)-1<<20):])
}

func (r *router) url() string { return "postgres://app@" + r.listen + "/cleave?sslmode=disable" }

// startRouter starts a router at an address of its own, which also takes part in the
// coordinators' election.
func (h *histories) startRouter(bin string) *router {
	h.t.Helper()
	address := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			h.t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	r := &router{h: h, bin: bin, listen: address(), admin: address()}
	r.start()
	h.t.Cleanup(func() {
		r.kill()
		if h.t.Failed() {
			lines := strings.Split(r.text(), "\n")
			h.t.Logf("router %s:\n%s", r.listen, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
	return r
}

func (r *router) start() {
	r.cmd = exec.Command(r.bin, "router", "--directory", "file:"+r.h.path, "--listen", r.listen, "--admin", r.admin, "--lease-ttl", historyLease.String())
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		r.h.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if r.healthy() {
			return
		}
		if time.Now().After(end) {
			r.h.t.Fatalf("the router is not ready:\n%s", r.text())
		}
	}
}

func (r *router) healthy() bool {
	one := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := one.Get("http://" + r.admin + "/healthz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (r *router) kill() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

// kill ends and stops routers, one after the other, for as long as a round goes on; in the end
// all are there.
func (h *histories) kill(r *rand.Rand, length time.Duration) {
	stopMax := length / 4
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Duration(r.Int64N(int64(length / 5))))
		one := h.routers[r.IntN(2)] // a third one is the soak's, which is never killed
		if r.IntN(2) == 0 {
			h.moved.add("router %s is killed", one.listen)
			one.kill()
			time.Sleep(time.Duration(r.Int64N(int64(length / 10))))
			one.start()
			h.moved.add("router %s is back", one.listen)
			h.moved.ended("router killed")
			continue
		}
		h.moved.add("router %s is stopped", one.listen)
		_ = one.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(time.Duration(r.Int64N(int64(stopMax))))
		_ = one.cmd.Process.Signal(syscall.SIGCONT)
		h.moved.add("router %s goes on", one.listen)
		h.moved.ended("router stopped")
	}
}

// dial connects.
func (h *histories) dial(ctx context.Context, url string) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = 15 * time.Second
	return pgconn.ConnectConfig(ctx, cfg)
}

func asFault(err error, f **fault) bool { return errors.As(err, f) }

func asPg(err error, pg **pgconn.PgError) bool { return errors.As(err, pg) }
