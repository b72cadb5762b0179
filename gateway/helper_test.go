package gateway_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/lib/pq"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/trace"
)

func TestMain(m *testing.M) {
	_ = os.Unsetenv("PGOPTIONS") // tests say themselves what they send
	pgtest.Main(m)
}

// cluster is a router over PostgreSQL databases, for one test.
type cluster struct {
	t       testing.TB
	dir     shardmap.Directory
	ops     *admin.Ops
	ex      *executor.Executor
	server  *gateway.Server
	metrics *telemetry.Metrics
	addr    string
	shards  []string // URLs
	loses   float64  // connections that its sessions are to lose
}

type config struct {
	shards   int
	urls     []string
	limits   gateway.Limits
	executor executor.Limits
	dir      shardmap.Directory // share the map with another router
	lease    *shardmap.Lease
	slow     time.Duration
	log      *slog.Logger
	tracer   *trace.Tracer
	tls      *arrival.TLS
	// auth makes how clients are let in of the cluster's users; nil is trust.
	auth    func(*access.Users) arrival.Authenticate
	tlsOnly bool
	// passThrough has the shards check passwords.
	passThrough bool
	several     limits.Defaults
	// driver opens the shards; nil is postgres.Driver.
	driver engine.Driver
	// recovers settles what is left prepared, as a router does.
	recovers bool
}

func start(t testing.TB, c config) *cluster {
	t.Helper()
	if c.shards == 0 {
		c.shards = 3
	}
	cl := &cluster{t: t, dir: c.dir, metrics: telemetry.New(), shards: c.urls}
	ctx := context.Background()
	drivers := map[string]engine.Driver{"postgres": postgres.Driver{}}
	if c.driver != nil {
		drivers["postgres"] = c.driver
	}
	if cl.dir == nil {
		cl.dir = memory.New()
		var req admin.BootstrapRequest
		for len(cl.shards) < c.shards {
			cl.shards = append(cl.shards, pgtest.Database(t))
		}
		for i, u := range cl.shards {
			req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: u})
		}
		boot := admin.New(admin.Options{Directory: cl.dir, Drivers: []engine.Driver{postgres.Driver{}}})
		if _, err := boot.Bootstrap(ctx, req); err != nil {
			t.Fatal(err)
		}
		if err := boot.Close(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.dir.Close() })
	}
	cl.ex = executor.New(executor.Options{Directory: cl.dir, Drivers: drivers, Planner: planner.New(planner.Limits{}), Limits: c.executor, Metrics: cl.metrics, Lease: c.lease})
	if err := cl.ex.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cl.ops = admin.New(admin.Options{Directory: cl.dir, Drivers: []engine.Driver{postgres.Driver{}}, Connect: cl.ex.Connect})
	options := gateway.Options{Executor: cl.ex, Admin: cl.ops, Limits: c.limits, Metrics: cl.metrics, Virtual: virtual(cl), Slow: c.slow, Log: c.log, Tracer: c.tracer,
		TLS: c.tls, TLSRequired: c.tlsOnly, Several: c.several, Users: access.NewUsers(cl.dir)}
	if c.auth != nil {
		options.Authenticate = c.auth(options.Users)
	}
	if c.passThrough {
		options.Authenticate = arrival.PassThrough(cl.ex, nil)
	}
	if c.recovers {
		options.Transactions = txn.NewTransactions(txn.TransactionsOptions{Executor: cl.ex, Metrics: cl.metrics})
		recovering, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { options.Transactions.Run(recovering) })
		t.Cleanup(func() { stop(); ended.Wait() })
	}
	cl.server = gateway.New(options)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cl.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- cl.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		limit, cancel := context.WithTimeout(ctx, waitfor.Max)
		defer cancel()
		if err := cl.server.Shutdown(limit); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != gateway.ErrClosed {
			t.Errorf("Serve: %v", err)
		}
		cl.nothingLost(t)
		if err := cl.ops.Close(); err != nil {
			t.Errorf("admin: %v", err)
		}
		if err := cl.ex.Close(); err != nil {
			t.Errorf("executor: %v", err)
		}
	})
	return cl
}

// virtual makes the tables temporary ones of a shard: enough for the gateway's
// side of it.
func virtual(cl *cluster) func(string, []engine.VirtualTable) (engine.Conn, error) {
	return func(name string, tables []engine.VirtualTable) (engine.Conn, error) {
		sh, err := postgres.Driver{}.Open(engine.Config{URL: cl.shards[0]})
		if err != nil {
			return nil, err
		}
		c, err := sh.Connect(context.Background(), nil)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		types := map[uint32]string{16: "bool", 20: "int8", 25: "text", 701: "float8", 1184: "timestamptz"}
		b.WriteString("BEGIN; CREATE SCHEMA cleave;")
		for _, t := range tables {
			fmt.Fprintf(&b, "CREATE TABLE cleave.%s (", t.Name)
			for i, c := range t.Columns {
				if i > 0 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "%q %s", c.Name, types[c.OID])
			}
			b.WriteString(");")
			for _, r := range t.Rows {
				fmt.Fprintf(&b, "INSERT INTO cleave.%s VALUES (", t.Name)
				for i, v := range r {
					if i > 0 {
						b.WriteString(", ")
					}
					if v.Null {
						b.WriteString("NULL")
					} else {
						b.WriteString(executor.QuoteLiteral(v.String))
					}
				}
				b.WriteString(");")
			}
		}
		if _, err := engine.Exec(c, b.String()); err != nil {
			_ = c.Close()
			return nil, err
		}
		return closing{c, sh}, nil
	}
}

// closing closes the shard with the conversation.
type closing struct {
	engine.Conn
	shard engine.Shard
}

func (c closing) Close() error {
	_ = c.Conn.Close()
	return c.shard.Close()
}

func (c *cluster) url(options string) string {
	return "postgres://app@" + c.addr + "/cleave?sslmode=disable" + options
}

// connect opens a pgx connection, closed when the test ends.
func (c *cluster) connect(t testing.TB, options ...string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url(strings.Join(options, "")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// open opens a database/sql handle with lib/pq.
func (c *cluster) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", c.url(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// direct runs a statement on a shard itself and returns the first value.
func (c *cluster) direct(t testing.TB, shard int, sql string) string {
	t.Helper()
	return directly(t, c.shards[shard], sql)
}

var granting sync.Mutex

// monitors lets the shards' role of the shared server be one that it is not by itself.
func (c *cluster) monitors(t testing.TB) {
	granting.Lock() // else: tuple concurrently updated
	defer granting.Unlock()
	c.super(t, 0, "GRANT pg_monitor, pg_signal_backend TO cleave")
}

// past runs a statement on a shard past its guards and triggers.
func (c *cluster) past(t testing.TB, shard int, sql string) {
	t.Helper()
	directly(t, pgtest.PastGuards(c.shards[shard]), "SET session_replication_role = replica; "+sql)
}

// super runs a statement on a shard as its superuser.
func (c *cluster) super(t testing.TB, shard int, sql string) string {
	t.Helper()
	return directly(t, pgtest.Super(c.shards[shard]), sql)
}

func directly(t testing.TB, url, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	res, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for _, r := range res {
		for _, row := range r.Rows {
			return string(row[0])
		}
	}
	return ""
}

const ordersTable = `CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`

// orders starts a cluster with a sharded table and returns, for each shard, keys
// that it owns.
func orders(t testing.TB, c config) (*cluster, *pgx.Conn, [][]int64) {
	t.Helper()
	cl := start(t, c)
	conn := cl.connect(t)
	exec(t, conn, ordersTable)
	return cl, conn, cl.keys(t)
}

// keys returns ten shard keys of each shard.
func (c *cluster) keys(t testing.TB) [][]int64 {
	t.Helper()
	keys := make([][]int64, len(c.ex.Snapshot().Shards()))
	pl := planner.New(planner.Limits{})
	for k := int64(1); k < 1000; k++ {
		st, err := pl.Analyze(fmt.Sprintf("SELECT * FROM orders WHERE tenant_id = %d", k), c.ex.Snapshot(), []string{"public"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := st.Route(c.ex.Snapshot(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(r.Shard, "shard-%d", &n); err != nil {
			t.Fatal(err)
		}
		if len(keys[n]) < 10 {
			keys[n] = append(keys[n], k)
		}
	}
	for i, k := range keys {
		if len(k) < 10 {
			t.Fatalf("shard %d has keys %v", i, k)
		}
	}
	return keys
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) pgconn.CommandTag {
	t.Helper()
	tag, err := conn.Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag
}

func one[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// code runs a statement and returns its SQLSTATE, "" for success.
func code(conn *pgx.Conn, sql string, args ...any) string {
	_, err := conn.Exec(context.Background(), sql, args...)
	return codeOf(err)
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := err.(*pgconn.PgError); ok {
		return e.Code
	}
	return "not a PgError: " + err.Error()
}

func wantCode(t testing.TB, conn *pgx.Conn, want, sql string, args ...any) {
	t.Helper()
	if got := code(conn, sql, args...); got != want {
		t.Errorf("%s: SQLSTATE %q, want %q", sql, got, want)
	}
}

// limitsOf bounds the pools.
func limitsOf(poolMax int) executor.Limits { return executor.Limits{PoolMax: poolMax} }
