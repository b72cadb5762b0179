package cleave_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
	"github.com/cleavedb/cleave/sqlstate"
)

func codeOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return string(sqlstate.CodeOf(err))
}

// postgresURL makes a cluster whose shards are databases of a real PostgreSQL
// server, and returns the URL of its directory.
func postgresURL(t testing.TB, shards int) string {
	t.Helper()
	path := t.TempDir() + "/directory.db"
	dir, err := sqlitedir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ops := admin.New(admin.Options{Directory: dir, Drivers: wiring.Drivers()})
	defer ops.Close()
	var req admin.BootstrapRequest
	for i := range shards {
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: pgtest.Database(t)})
	}
	if _, err := ops.Bootstrap(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

// eachEngine runs f on a fresh cluster of each engine.
func eachEngine(t *testing.T, f func(t *testing.T, c *cleave.Cluster)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c, _ := fresh(t, "3")
		f(t, c)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, open(t, postgresURL(t, 3)))
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, c *cleave.Cluster) {
		ctx := context.Background()
		run(t, c.DB(), createOrders)
		// database/sql, pgx's pool and a connection see one database.
		run(t, c.DB(), "INSERT INTO orders VALUES ($1, $2, $3)", 1, 1, "tea")
		if _, err := c.Pool().Exec(ctx, "INSERT INTO orders VALUES ($1, $2, $3)", 2, 1, "ink"); err != nil {
			t.Fatal(err)
		}
		conn, err := c.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		for tenant, want := range map[int]string{1: "tea", 2: "ink"} {
			var note string
			if err := conn.QueryRow(ctx, "SELECT note FROM orders WHERE tenant_id = $1", tenant).Scan(&note); err != nil || note != want {
				t.Errorf("tenant %d: %q, %v", tenant, note, err)
			}
		}
		// A batch, and a transaction.
		b := &pgx.Batch{}
		for i := range 20 {
			b.Queue("INSERT INTO orders VALUES (1, $1, 'batch')", 10+i)
		}
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			t.Errorf("batch: %v", err)
		}
		tx, err := c.DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("DELETE FROM orders WHERE tenant_id = 1"); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		var n int
		if err := c.DB().QueryRow("SELECT count(*) FROM orders WHERE tenant_id = 1").Scan(&n); err != nil || n != 21 {
			t.Errorf("%d rows, %v", n, err)
		}
		// Errors carry their SQLSTATE and what to do.
		_, err = c.Pool().Exec(ctx, "INSERT INTO orders VALUES (1, 1, 'again')")
		if codeOf(err) != "23505" {
			t.Errorf("duplicate: %v", err)
		}
		_, err = c.DB().Exec("SELECT ctid FROM orders")
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "0A000" || pg.Hint == "" {
			t.Errorf("all shards: %v", err)
		}
		// Who the session is.
		var user, application string
		if err := conn.QueryRow(ctx, "SELECT username, application FROM cleave.sessions LIMIT 1").Scan(&user, &application); err != nil || user == "" || !strings.Contains(application, "cleave.test") {
			t.Errorf("session of %q, %q, %v", user, application, err)
		}
	})
}

func TestAdminAndMetrics(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, url := fresh(t, "2", cleave.WithUser("maria"), cleave.WithSessions(2), cleave.WithShardConnections(3))
	if _, err := c.Admin().CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: "regions", Strategy: "list", KeyTypes: []string{"text"},
		Values: []admin.ListedValue{{Key: []string{"eu"}, Shard: "shard-0"}, {Key: []string{"us"}, Shard: "shard-1"}}}); err != nil {
		t.Fatal(err)
	}
	run(t, c.DB(), "CREATE TABLE visits (region text PRIMARY KEY, n bigint) WITH (cleave.shard_key = 'region', cleave.keyspace = 'regions')")
	run(t, c.DB(), "INSERT INTO visits VALUES ('us', 1)")
	// Another program that has the cluster open sees it at once, or nearly.
	other := open(t, url)
	var n int
	if err := other.DB().QueryRow("SELECT n FROM visits WHERE region = 'us'").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	h, err := c.Admin().History(ctx, admin.HistoryRequest{Last: true, Limit: 1})
	if err != nil || len(h) != 1 || h[0].By != "maria" {
		t.Errorf("history %+v, %v", h, err)
	}
	found, err := c.Metrics().Gather()
	if err != nil || len(found) < 10 {
		t.Errorf("%d metrics, %v", len(found), err)
	}
}

// TestEnvironment: variables meant for libpq name other servers.
func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGHOST": "192.0.2.1", "PGPORT": "1", "PGUSER": "nobody", "PGDATABASE": "other", "PGSSLMODE": "verify-full", "PGPASSWORD": "secret",
		"PGOPTIONS": "-c search_path=nowhere", "PGTZ": "Asia/Tokyo", "PGTARGETSESSIONATTRS": "standby", "PGCONNECT_TIMEOUT": "1", "PGAPPNAME": "x",
	} {
		t.Setenv(name, value)
	}
	c, _ := fresh(t, "1")
	var zone string
	if err := c.DB().QueryRow("SHOW TimeZone").Scan(&zone); err != nil || zone == "Asia/Tokyo" {
		t.Errorf("zone %q, %v", zone, err)
	}
}

// TestPoolConfig: a pool of the program's own, with its hooks.
func TestPoolConfig(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, _ := fresh(t, "1")
	cfg := c.PoolConfig()
	connected := 0
	cfg.MaxConns = 1
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error { connected++; return nil }
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Ping(ctx); err != nil || connected != 1 {
		t.Errorf("%d connections, %v", connected, err)
	}
}

const slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT count(*) FROM n, orders WHERE orders.tenant_id = 1"

func TestContextCancelsStatement(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, c *cleave.Cluster) {
		run(t, c.DB(), createOrders)
		run(t, c.DB(), "INSERT INTO orders VALUES (1, 1, 'x')")
		o, err := c.ForKey(context.Background(), "hash_bigint", 1)
		if err != nil {
			t.Fatal(err)
		}
		for name, query := range map[string]func(ctx context.Context) error{
			"DB":    func(ctx context.Context) error { _, err := c.DB().ExecContext(ctx, slow); return err },
			"Pool":  func(ctx context.Context) error { _, err := c.Pool().Exec(ctx, slow); return err },
			"Owner": func(ctx context.Context) error { _, err := o.Pool().Exec(ctx, slow); return err },
		} {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			err := query(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// The shard has stopped as well: with SQLite a reader that goes on would
		// be seen by the writer's checkpoint only, so ask the shards' own lists.
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// TestCloseWhileStatementsRun cuts off what does not end, and says so.
func TestCloseWhileStatementsRun(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, c *cleave.Cluster) {
		ctx := context.Background()
		run(t, c.DB(), createOrders)
		run(t, c.DB(), "INSERT INTO orders VALUES (1, 1, 'x')")
		o, err := c.ForKey(ctx, "hash_bigint", 1)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for name, query := range map[string]func() error{
			"DB":    func() error { _, err := c.DB().Exec(slow); return err },
			"Pool":  func() error { _, err := c.Pool().Exec(ctx, slow); return err },
			"Owner": func() error { _, err := o.Pool().Exec(ctx, slow); return err },
		} {
			wg.Go(func() {
				if err := query(); err == nil {
					t.Errorf("%s: no error", name)
				}
			})
		}
		// An open transaction that its owner forgot, and writes that come and go.
		tx, err := c.DB().BeginTx(ctx, &sql.TxOptions{})
		if err == nil {
			_, err = tx.Exec("INSERT INTO orders VALUES (2, 1, 'forgotten')")
		}
		if err != nil {
			t.Fatal(err)
		}
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if _, err := c.DB().Exec("INSERT INTO orders VALUES (3, $1, 'y')", w*1_000_000+i); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		t.Logf("closed in %v", time.Since(began))
		wg.Wait()
		if err := tx.Commit(); err == nil {
			t.Error("a transaction was committed after it was cut off")
		}
		if err := c.DB().Ping(); err == nil {
			t.Error("DB works after Close")
		}
		if err := c.Pool().Ping(ctx); err == nil {
			t.Error("Pool works after Close")
		}
		if _, err := c.Conn(ctx); sqlstate.CodeOf(err) != sqlstate.AdminShutdown {
			t.Errorf("Conn after Close: %v", err)
		}
		if _, err := c.ForKey(ctx, "hash_bigint", 1); sqlstate.CodeOf(err) != sqlstate.AdminShutdown {
			t.Errorf("ForKey after Close: %v", err)
		}
		if o.Valid() {
			t.Error("an owner is valid after Close")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestMany has many goroutines write and read back what they wrote.
func TestMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, _ := fresh(t, "3", cleave.WithSessions(8))
	run(t, c.DB(), createOrders)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 15 {
				tenant := g*100 + i
				var err error
				if g%2 == 0 {
					_, err = c.DB().Exec("INSERT INTO orders VALUES ($1, 1, $2)", tenant, strings.Repeat("x", i*5000))
				} else {
					_, err = c.Pool().Exec(ctx, "INSERT INTO orders VALUES ($1, 1, $2)", tenant, strings.Repeat("x", i*5000))
				}
				if err != nil {
					t.Error(err)
					return
				}
				o, err := c.ForKey(ctx, "hash_bigint", tenant)
				if err != nil {
					t.Error(err)
					return
				}
				var routed, direct int
				err = errors.Join(
					c.DB().QueryRow("SELECT length(note) FROM orders WHERE tenant_id = $1", tenant).Scan(&routed),
					o.DB().QueryRow("SELECT length(note) FROM orders WHERE tenant_id = $1", tenant).Scan(&direct))
				if err != nil || routed != i*5000 || direct != i*5000 {
					t.Errorf("tenant %d: %d and %d, %v", tenant, routed, direct, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
