// Package localshards runs the shards of `cleave up`: SQLite files, or PostgreSQL servers that are started again when they end.
package localshards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// stopMax bounds the end of servers whose start has failed.
const stopMax = 30 * time.Second

// Shards are the shards that `cleave up` runs itself.
type Shards struct {
	folder *wiring.DataFolder
	log    *slog.Logger
	pool   int // connections that a router may open to one shard

	passwords map[string]string // of the servers' roles
	passfile  string

	life    context.Context // ends when the servers are to end
	end     context.CancelFunc
	watch   sync.WaitGroup
	mu      sync.Mutex // of servers, once they are watched
	servers []*localpg.Server
}

// Start starts what the layout asks for and returns the shards with
// the URLs at which they are now. PostgreSQL servers keep the port of the last
// start if it is free.
func Start(ctx context.Context, folder *wiring.DataFolder, pool int, log *slog.Logger) (*Shards, []admin.BootstrapShard, error) {
	ls := &Shards{folder: folder, log: log, pool: pool}
	ls.life, ls.end = context.WithCancel(context.Background())
	fail := func(err error) (*Shards, []admin.BootstrapShard, error) {
		// A signal may have ended ctx; the servers that did start still end well.
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopMax)
		defer cancel()
		return nil, nil, errors.Join(err, ls.Close(bound))
	}
	l := folder.Layout
	if !l.OnServers() {
		return ls, l.SQLiteShards(folder.Path), nil
	}
	var err error
	ls.passwords = map[string]string{}
	for _, role := range localpg.Roles(localpg.DefaultUser) {
		if ls.passwords[role], ls.passfile, err = folder.Password(role); err != nil {
			return nil, nil, err
		}
	}
	shards := make([]admin.BootstrapShard, len(l.Shards))
	for i, name := range l.Shards {
		shards[i] = admin.BootstrapShard{Name: name, Weight: 1}
	}
	if err := ls.startServers(ctx); err != nil {
		return fail(err)
	}
	for i := range shards {
		s := ls.servers[l.ServerOf(shards[i].Name)]
		if err := s.CreateDatabase(ctx, shards[i].Name); err != nil {
			return fail(err)
		}
		// The socket costs less CPU a statement than loopback TCP; the port is
		// open as well, for clients that cannot use sockets.
		shards[i].URL = s.SocketURL(shards[i].Name)
	}
	return ls, shards, nil
}

func (ls *Shards) startServers(ctx context.Context) error {
	l := ls.folder.Layout
	if os.Geteuid() == 0 {
		// PostgreSQL then runs as another user, who has to get through.
		if err := os.Chmod(ls.folder.Path, 0o711); err != nil {
			return wiring.FolderError(err, ls.folder.Path, "opened to the user of PostgreSQL")
		}
	}
	ls.servers = make([]*localpg.Server, l.Servers)
	failed := make([]error, l.Servers)
	// initdb takes seconds of one core each: not more at once than there are cores.
	slots := make(chan struct{}, max(1, runtime.NumCPU()))
	var wg sync.WaitGroup
	for i := range l.Servers {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ls.servers[i], failed[i] = ls.startServer(ctx, i)
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return err // one is enough to read; the others mostly repeat it
		}
	}
	ports := make([]int, l.Servers)
	for i, s := range ls.servers {
		ports[i] = s.Port()
	}
	next := *l
	next.Ports = ports
	if err := ls.folder.Save(&next); err != nil {
		return err
	}
	for i := range ls.servers {
		ls.watch.Go(func() { ls.keep(i) })
	}
	return nil
}

func (ls *Shards) startServer(ctx context.Context, i int) (*localpg.Server, error) {
	opts := ls.options(i)
	if l := ls.folder.Layout; len(l.Ports) > i {
		opts.Port = l.Ports[i]
	}
	s, err := localpg.Start(ctx, opts)
	if opts.Port != 0 && sqlstate.CodeOf(err) == sqlstate.ObjectInUse {
		// Somebody else has the port now. If it is the folder that is in use, a
		// free port changes nothing and the same error comes back.
		opts.Port = 0
		s, err = localpg.Start(ctx, opts)
	}
	if err != nil {
		return nil, err
	}
	ls.log.Info("PostgreSQL server is ready", "server", i, "version", s.Installation().Version, "port", s.Port(), "log", s.LogPath())
	return s, nil
}

func (ls *Shards) options(i int) localpg.Options {
	l := ls.folder.Layout
	perServer := (len(l.Shards) + l.Servers - 1) / l.Servers
	return localpg.Options{
		DataDir: filepath.Join(ls.folder.Path, "pg-"+strconv.Itoa(i)),
		// Nobody else on this machine is to be its superuser.
		Passwords: ls.passwords, Passfile: ls.passfile,
		Durable: true,
		Settings: map[string]string{
			"wal_level":                 "logical",
			"max_prepared_transactions": "64",
			// Room for two routers' pools and for people.
			"max_connections":       strconv.Itoa(min(100+2*perServer*ls.pool, 2000)),
			"max_wal_senders":       "64",
			"max_replication_slots": "64",
			// What compiles expressions does not hear a cancel: a backend with a
			// long list of conditions went on after its session had ended.
			"jit": "off",
		},
	}
}

const (
	serverBackoffMin = 5 * time.Second
	serverBackoffMax = time.Minute
)

// keep starts a server again that ended without being asked.
func (ls *Shards) keep(i int) {
	s, backoff := ls.servers[i], serverBackoffMin
	for {
		began := time.Now()
		select {
		case <-ls.life.Done():
			return
		case <-s.Done():
		}
		if time.Since(began) > 10*time.Minute {
			backoff = serverBackoffMin
		}
		again := ls.revive(i, s, &backoff)
		if again == nil {
			return
		}
		ls.mu.Lock()
		ls.servers[i] = again
		ls.mu.Unlock()
		s = again
	}
}

// revive tries until the server runs again; nil when it is to end.
func (ls *Shards) revive(i int, dead *localpg.Server, backoff *time.Duration) *localpg.Server {
	// The map has its port: another one would not help here.
	opts := ls.options(i)
	opts.Port = dead.Port()
	if err := dead.Stop(ls.life); err != nil { // it has ended: this frees its folder
		ls.log.Error("PostgreSQL server was not cleaned up", "server", i, telemetry.KeyError, err)
	}
	for {
		ls.log.Error("PostgreSQL server is not running; its shards are down until it is started again", "server", i, "again_in", *backoff, "log", dead.LogPath())
		select {
		case <-ls.life.Done():
			return nil
		case <-time.After(*backoff):
		}
		*backoff = min(2**backoff, serverBackoffMax)
		s, err := localpg.Start(ls.life, opts)
		if err == nil {
			ls.log.Info("PostgreSQL server is ready again", "server", i, "port", s.Port())
			return s
		}
		if ls.life.Err() != nil {
			return nil
		}
		ls.log.Error("PostgreSQL server does not start", "server", i, telemetry.KeyError, err)
	}
}

// Quit ends the servers at once, without waiting for anybody: they recover at the next start.
func (ls *Shards) Quit() {
	ls.end() // nobody starts them again
	ls.mu.Lock()
	servers := slices.Clone(ls.servers)
	ls.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range servers {
		if s != nil {
			wg.Go(s.Quit)
		}
	}
	wg.Wait()
}

// Close stops the servers; ctx bounds the wait for their shutdown.
func (ls *Shards) Close(ctx context.Context) error {
	ls.end()
	ls.watch.Wait()
	failed := make([]error, len(ls.servers))
	var wg sync.WaitGroup
	for i, s := range ls.servers {
		if s == nil {
			continue
		}
		wg.Go(func() {
			if err := s.Stop(ctx); err != nil {
				failed[i] = fmt.Errorf("server %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}
