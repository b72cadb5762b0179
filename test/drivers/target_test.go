package drivers

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/internal/pgtest"
)

var (
	all    = flag.Bool("all", false, "run all suites, not the quick ones alone")
	update = flag.Bool("update", false, "write docs/drivers.md")
)

func TestMain(m *testing.M) {
	flag.Parse()
	pgtest.Main(m)
}

// target is a database that clients connect to.
type target struct {
	host, port, user, database string
	// plain: its scripts leave out the types that a SQLite shard does not store.
	plain bool
}

// env is what libpq and its likes read.
func (c target) env() []string {
	dsn := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", c.host, c.port, c.user, c.database)
	plain := ""
	if c.plain {
		plain = "1"
	}
	return append(os.Environ(), "PLAIN="+plain, "PGHOST="+c.host, "PGPORT="+c.port, "PGUSER="+c.user, "PGDATABASE="+c.database, "PGSSLMODE=disable",
		"PGX_TEST_DATABASE="+dsn, "PGX_TEST_TCP_CONN_STRING="+dsn, "DATABASE_URL="+dsn)
}

// exec prepares a database for a suite.
func (c target) exec(t *testing.T, statements ...string) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", c.host, c.port, c.user, c.database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// postgres is a database of its own.
func postgres(t *testing.T) target {
	t.Helper()
	cfg, err := pgconn.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return target{host: cfg.Host, port: fmt.Sprint(cfg.Port), user: cfg.User, database: cfg.Database}
}

// router starts a router over three databases.
func router(t *testing.T) target {
	t.Helper()
	file, _ := clustertest.Directory(t)
	return routerOf(t, file)
}

// routerOf starts a router of a directory's cluster.
func routerOf(t *testing.T, file string) target {
	t.Helper()
	host, port, err := net.SplitHostPort(clustertest.Router(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return target{host: host, port: port, user: "app", database: "cleave"}
}
