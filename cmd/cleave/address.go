package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/sqlstate"
)

// bind listens on an address. setting names it in messages. Fails with 55006
// when the port is taken, F0000 for an address that this machine does not have.
func bind(ctx context.Context, setting, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	host, port, _ := net.SplitHostPort(address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, sqlstate.New(sqlstate.ObjectInUse, "port %s on %s is in use by another program (setting %s)", port, orAny(host), setting).
			WithHint("is it a cleave already? run cleave doctor; else choose another port: --%s %s", setting, net.JoinHostPort(host, otherPort(port)))
	case errors.Is(err, syscall.EACCES):
		return nil, sqlstate.New(sqlstate.InsufficientPrivilege, "port %s on %s needs more rights than this user has (setting %s)", port, orAny(host), setting).
			WithHint("choose a port from 1024: --%s %s", setting, net.JoinHostPort(host, "6432"))
	default:
		return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "cannot listen on %s (setting %s)", address, setting).
			WithHint("choose an address of this machine: --%s 127.0.0.1:%s", setting, port)
	}
}

func orAny(host string) string {
	if host == "" {
		return "all addresses"
	}
	return host
}

func otherPort(port string) string {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65435 {
		return "0"
	}
	return strconv.Itoa(n + 100)
}

// loopback reports whether only this machine can reach the address.
func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// dialable turns a listening address into one that a client on this machine can
// connect to.
func dialable(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	host := t.IP.String()
	if t.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(t.Port))
}

// adminAddress is what --admin takes to find the process's admin API.
func (r *runner) adminAddress() string {
	address := dialable(r.admin.Addr())
	if r.cfg.Load().AdminEncrypted() {
		return "https://" + address
	}
	return address
}

// withScheme is an address of an admin API as a URL.
func withScheme(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// routerPath answers with the address of the process's router: the other
// commands know the admin API's only.
const routerPath = "/api/v1/router"

type routerInfo struct {
	Listen string `json:"listen"`
}

func withRouterAddress(next http.Handler, address string) http.Handler {
	body, err := json.Marshal(routerInfo{Listen: address})
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != routerPath || r.Method != http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // the caller may be gone
	})
}

// routerAddress asks the process behind the admin API where its router listens.
func routerAddress(ctx context.Context, cfg *config.Effective) (string, error) {
	c, err := adminClient(cfg)
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.Router(ctx)
}

// psqlLine is what to paste to connect.
func psqlLine(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "psql " + address
	}
	return fmt.Sprintf("psql -h %s -p %s cleave", host, port)
}
