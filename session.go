package cleave

import (
	"context"
	"database/sql"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/pipe"
	"github.com/cleavedb/cleave/sqlstate"
)

// baseConfig is a configuration of pgx that names everything which pgx would
// take from the environment (PGHOST and its like): there is no server to find.
func baseConfig(user, database string, sessions int) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig("host=127.0.0.1 port=5432 sslmode=disable sslnegotiation=postgres channel_binding=disable target_session_attrs=any connect_timeout=10 password=none")
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InvalidParameterValue, "a PG... variable in the environment cannot be used").
			WithHint("unset PGSERVICE and PGSSL...: they are not needed here")
	}
	cfg.MaxConns = int32(max(1, sessions))
	cc := cfg.ConnConfig
	cc.User, cc.Database, cc.Password = user, database, ""
	cc.RuntimeParams = map[string]string{"application_name": program()}
	cc.Fallbacks = nil
	cc.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	return cfg, nil
}

// sessionConfig is the configuration of sessions with the gateway.
func sessionConfig(c *Cluster) (*pgxpool.Config, error) {
	cfg, err := baseConfig(c.options.user, gateway.Database, c.options.sessions)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.DialFunc = c.dial
	return cfg, nil
}

// dial begins a session: one goroutine of the gateway at the other end of a pipe.
func (c *Cluster) dial(context.Context, string, string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed()
	}
	client, server := pipe.New()
	c.wg.Go(func() { c.rooms.Gateway.ServeConn(c.life, server) })
	return client, nil
}

func errClosed() *sqlstate.Error {
	return sqlstate.New(sqlstate.AdminShutdown, "the cluster was closed").WithHint("call Close after the last statement")
}

// PoolConfig returns a configuration for pgx that connects to this cluster, to
// be changed and used with pgxpool.NewWithConfig, or its ConnConfig with
// pgx.ConnectConfig and stdlib.OpenDB: for tracers, types to register, another
// query mode. Pools made of it are the caller's to close, before the cluster.
func (c *Cluster) PoolConfig() *pgxpool.Config { return c.session.Copy() }

// DB returns the cluster as a database/sql pool, the same one at each call; its
// driver is pgx. Close closes it.
func (c *Cluster) DB() *sql.DB {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db == nil {
		c.db = openDB(c.session)
		if c.closed {
			_ = c.db.Close() // it answers that it is closed
		}
	}
	return c.db
}

func openDB(cfg *pgxpool.Config) *sql.DB {
	db := stdlib.OpenDB(*cfg.Copy().ConnConfig)
	// A session that is closed after each statement would prepare it again and again.
	db.SetMaxOpenConns(int(cfg.MaxConns))
	db.SetMaxIdleConns(int(cfg.MaxConns))
	db.SetConnMaxIdleTime(cfg.MaxConnIdleTime)
	return db
}

// Pool returns the cluster as a pgx pool, the same one at each call. Close closes it.
func (c *Cluster) Pool() *pgxpool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pool == nil {
		c.pool = openPool(c.session)
		if c.closed {
			c.pool.Close()
		}
	}
	return c.pool
}

func openPool(cfg *pgxpool.Config) *pgxpool.Pool {
	// It fails on a configuration that ParseConfig did not make, and connects to
	// nothing: ours has no connections that must be there at once.
	p, err := pgxpool.NewWithConfig(context.Background(), cfg.Copy())
	if err != nil {
		panic("cleave: " + err.Error())
	}
	return p
}

// Conn begins a session of its own, which the caller closes. It fails with
// 57P01 after Close.
func (c *Cluster) Conn(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, c.session.ConnConfig.Copy())
}
