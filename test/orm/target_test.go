package orm

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

//go:embed migrations/*.sql
var files embed.FS

// target is a cluster as a library sees it.
type target struct {
	db   *sql.DB
	pool *pgxpool.Pool
}

// each runs f against every kind of cluster, each of its own.
func each(t *testing.T, f func(t *testing.T, c target)) {
	client := func(t *testing.T, url string) target {
		c, err := cleave.Open(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return target{db: c.DB(), pool: c.Pool()}
	}
	for name, open := range map[string]func(t *testing.T) target{
		"sqlite": func(t *testing.T) target { return client(t, "file:"+filepath.Join(t.TempDir(), "data")+"?shards=3") },
		"postgres": func(t *testing.T) target {
			file, _ := clustertest.Directory(t)
			return client(t, "file:"+file)
		},
		"router": router,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// router starts a router on a TCP port over PostgreSQL shards.
func router(t *testing.T) target {
	file, _ := clustertest.Directory(t)
	pool, err := pgxpool.New(context.Background(), clustertest.URL(clustertest.Router(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() {
		_ = db.Close()
		pool.Close()
	})
	return target{db: db, pool: pool}
}

// migrate brings a cluster to the newest schema.
func migrate(t *testing.T, c target) *goose.Provider {
	t.Helper()
	dir, err := fs.Sub(files, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, c.db, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p
}

func tables(t *testing.T, c target) map[string]string {
	t.Helper()
	rows, err := c.db.Query("SELECT name, kind FROM cleave.tables")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		found[name] = kind
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
