package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/test/differential/compare"
)

// Options are what a cluster is made of.
type Options struct {
	Engine string // "postgres" or "sqlite"
	Shards int
	// Database makes a fresh PostgreSQL database and returns its URL.
	Database func() (string, error)
	// Dir is an empty folder for SQLite files.
	Dir string
	// Coordinator lets the router be a member of the cluster, and move data.
	Coordinator bool
}

// Cluster is a router with its shards.
type Cluster struct {
	Options
	log    *slog.Logger
	addr   string
	dir    shardmap.Directory
	rooms  *wiring.Rooms
	served chan error
	leave  func(context.Context) error // nil: the router is no member
	open   []engine.Shard
	conns  map[string]engine.Conn // one to each shard, past the router
}

// Start starts a cluster; Close ends it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o, dir: memory.New(), conns: map[string]engine.Conn{}}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	c.log = slog.New(slog.DiscardHandler)
	if os.Getenv("CLEAVE_TEST_LOG") != "" {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var req admin.BootstrapRequest
	for i := range c.Shards {
		url := "file:" + filepath.Join(c.Dir, fmt.Sprintf("shard-%d.db", i))
		if capability.Of(c.Engine).Servers {
			var err error
			if url, err = c.Database(); err != nil {
				return err
			}
		}
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: url})
	}
	ops := wiring.NewOps(c.dir, "test", c.log)
	_, err := ops.Bootstrap(ctx, req)
	if err := errors.Join(err, ops.Close()); err != nil {
		return err
	}
	for _, s := range req.Shards {
		if err := c.reach(ctx, s); err != nil {
			return err
		}
	}
	return c.serve(ctx)
}

// serve starts the router.
func (c *Cluster) serve(ctx context.Context) error {
	cfg, err := config.Load(config.Input{})
	if err != nil {
		return err
	}
	o := wiring.Options{Directory: c.dir, Config: &cfg.Config, Log: c.log}
	if c.Coordinator {
		o.Member, o.Candidate = "test", "test"
		if o.Lease, c.leave, err = c.dir.Join(ctx, shardmap.Member{ID: o.Member, Role: "router", Address: "test", Host: "here", Software: "test"}); err != nil {
			return err
		}
	}
	if c.rooms, err = wiring.New(ctx, o); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.addr, c.served = l.Addr().String(), make(chan error, 1)
	go func() { c.served <- c.rooms.Gateway.Serve(context.WithoutCancel(ctx), l) }()
	return nil
}

func (c *Cluster) reach(ctx context.Context, s admin.BootstrapShard) error {
	var driver engine.Driver = postgres.Driver{}
	if !capability.Of(c.Engine).Servers {
		driver = sqlite.Driver{}
	}
	shard, err := driver.Open(engine.Config{Name: s.Name, URL: s.URL})
	if err != nil {
		return err
	}
	c.open = append(c.open, shard)
	conn, err := shard.Connect(ctx, nil)
	if err != nil {
		return err
	}
	c.conns[s.Name] = conn
	return nil
}

// Restart ends the router and starts another one, at another address.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := errors.Join(c.end()...); err != nil {
		return err
	}
	return c.serve(ctx)
}

// end ends the router.
func (c *Cluster) end() (errs []error) {
	limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if c.served != nil {
		errs = append(errs, c.rooms.Gateway.Shutdown(limit))
		if err := <-c.served; !errors.Is(err, gateway.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if c.rooms != nil {
		errs = append(errs, c.rooms.Close())
	}
	if c.leave != nil {
		errs = append(errs, c.leave(limit))
	}
	c.served, c.rooms, c.leave = nil, nil, nil
	return errs
}

// Close ends the router and what reaches the shards.
func (c *Cluster) Close() error {
	errs := c.end()
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	for _, s := range c.open {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.dir.Close())...)
}

// Name says what the cluster is, such as "postgres-3".
func (c *Cluster) Name() string { return fmt.Sprintf("%s-%d", c.Engine, c.Shards) }

// Ops is the router's part that moves data.
func (c *Cluster) Ops() *admin.Ops { return c.rooms.Ops }

// URL is where the router listens.
func (c *Cluster) URL() string { return "postgres://app@" + c.addr + "/cleave?sslmode=disable" }

// Snapshot is the map that the router serves.
func (c *Cluster) Snapshot() *shardmap.Snapshot { return c.rooms.Executor.Snapshot() }

// On runs statements on one shard, past the router, and returns the last result.
func (c *Cluster) On(shard, sql string) (*engine.Result, error) {
	res, err := engine.Exec(c.conns[shard], sql)
	if err != nil {
		return nil, fmt.Errorf("on %s: %.300s: %w", shard, sql, err)
	}
	return res, nil
}

// leftover is everything that a session can leave in a shard's connection.
const leftover = `SELECT 'setting ' || name || ' = ' || setting FROM pg_settings WHERE source IN ('session', 'interactive') AND setting <> reset_val
		AND name NOT IN ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
	UNION ALL SELECT 'role ' || current_user WHERE current_user <> session_user OR current_setting('role') <> 'none'
	UNION ALL SELECT 'lock ' || locktype || ' ' || mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('relation', 'virtualxid')
	UNION ALL SELECT 'channel ' || pg_listening_channels()
	UNION ALL SELECT 'statement of SQL ' || name FROM pg_prepared_statements WHERE from_sql
	UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE name <> ''
	UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'`

// Leftovers reads what sessions have left in the pooled connections that nobody has, and that the pools do not know of and so take back;
// "" if nothing. The connections are closed if there is something.
func (c *Cluster) Leftovers(ctx context.Context) (string, error) {
	if !capability.Of(c.Engine).Servers {
		return "", nil
	}
	found := ""
	for _, h := range c.rooms.Executor.Health() {
		if h.Reclaimed > 0 {
			found += fmt.Sprintf("%s: sessions have lost %d connections; ", h.Shard, h.Reclaimed)
		}
		var all []*executor.Conn
		for range h.Idle {
			conn, err := c.rooms.Executor.Acquire(ctx, h.Shard, nil)
			if err != nil {
				return "", err
			}
			all = append(all, conn)
			res, err := conn.Exec(leftover)
			if err != nil {
				return "", err
			}
			for _, row := range res.Rows {
				found += h.Shard + ": " + row[0].String + "; "
			}
		}
		for _, conn := range all {
			if found != "" {
				conn.Break()
			}
			conn.Release()
		}
	}
	return found, nil
}

// TypeName names a type of the user's by its OID, which has to be the default shard's,
// whatever shard has answered.
func (c *Cluster) TypeName(oid uint32) (string, error) {
	res, err := c.On(c.Snapshot().State().DefaultShard, compare.TypeQuery+fmt.Sprint(oid))
	if err != nil || len(res.Rows) == 0 {
		return fmt.Sprint(oid), err
	}
	return res.Rows[0][0].String, nil
}
