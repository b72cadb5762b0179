package golang

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

//go:embed migrations
var migrations embed.FS

func url() string {
	return fmt.Sprintf("postgres://%s@%s:%s/%s?sslmode=disable", os.Getenv("PGUSER"), os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGDATABASE"))
}

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// declare says which column shards a table, where there are shards, and drops the table.
func declare(t *testing.T, table, column string) {
	t.Helper()
	db := open(t)
	if _, err := db.Exec("DROP TABLE IF EXISTS " + table + " CASCADE"); err != nil {
		t.Fatal(err)
	}
	_, err := db.Exec("SELECT cleave.declare($1, shard_key => $2)", table, column)
	if code(err) != "" && code(err) != "3F000" {
		t.Fatal(err)
	}
}

func drop(t *testing.T, tables ...string) {
	t.Helper()
	if _, err := open(t).Exec("DROP TABLE IF EXISTS " + strings.Join(tables, ", ") + " CASCADE"); err != nil {
		t.Fatal(err)
	}
}

func code(err error) string {
	var e *pgconn.PgError
	if asPg(err, &e) {
		return e.Code
	}
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t *testing.T, got, expected T) {
	t.Helper()
	if got != expected {
		t.Fatalf("%v is not %v", got, expected)
	}
}

// each runs f on several goroutines and gives the first error.
func each(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDatabaseSQL(t *testing.T) {
	declare(t, "sq", "k")
	db := open(t)
	ctx := context.Background()
	_, err := db.Exec("CREATE TABLE sq (k bigint, id bigint, note text, PRIMARY KEY (k, id))")
	must(t, err)
	st, err := db.Prepare("INSERT INTO sq VALUES ($1, $2, $3)")
	must(t, err)
	must(t, each(8, func(g int) error {
		for i := range 25 {
			if _, err := st.Exec(g, i, fmt.Sprint("n", i)); err != nil {
				return err
			}
		}
		return nil
	}))
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	must(t, err)
	_, err = tx.Stmt(st).Exec(1, 100, "tx")
	must(t, err)
	must(t, tx.Rollback())
	var n int
	must(t, db.QueryRow("SELECT count(*) FROM sq").Scan(&n))
	want(t, n, 200)
	_, err = st.Exec(1, 1, "twice")
	want(t, code(err), "23505")
}
