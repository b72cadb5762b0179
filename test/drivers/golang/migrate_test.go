package golang

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5" // the databases pgx5 and postgres
	_ "github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
)

func TestGolangMigrate(t *testing.T) {
	drop(t, "gm_posts", "gm_users", "gm_extra", "schema_migrations")
	for _, scheme := range []string{"pgx5", "postgres"} {
		source, err := iofs.New(migrations, "migrations")
		must(t, err)
		m, err := migrate.NewWithSourceInstance("iofs", source, scheme+url()[len("postgres"):])
		must(t, err)
		must(t, m.Up())
		if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
			t.Fatal(err)
		}
		version, dirty, err := m.Version()
		must(t, err)
		want(t, version, 3)
		want(t, dirty, false)
		var n int
		must(t, open(t).QueryRow("SELECT count(*) FROM gm_users WHERE mood = 'sad'").Scan(&n))
		want(t, n, 1)
		must(t, m.Steps(-1))
		must(t, m.Migrate(1))
		must(t, m.Force(1))
		must(t, m.Down())
		_, _ = m.Close()
	}
	source, err := iofs.New(migrations, "migrations")
	must(t, err)
	m, err := migrate.NewWithSourceInstance("iofs", source, url())
	must(t, err)
	must(t, m.Up())
	must(t, m.Drop())
}

func TestGoose(t *testing.T) {
	drop(t, "goose_a", "goose_db_version")
	must(t, goose.SetDialect("postgres"))
	goose.SetLogger(goose.NopLogger())
	goose.SetBaseFS(fstest.MapFS{
		"m/1_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE goose_a (id int);\n-- +goose StatementBegin\nDO $$ BEGIN NULL; END $$;\n-- +goose StatementEnd\n-- +goose Down\nDROP TABLE goose_a;\n")},
		"m/2_b.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY goose_b ON goose_a (id);\n-- +goose Down\nDROP INDEX CONCURRENTLY goose_b;\n")},
	})
	db := open(t)
	must(t, goose.Up(db, "m"))
	v, err := goose.GetDBVersion(db)
	must(t, err)
	want(t, v, 2)
	must(t, goose.Redo(db, "m"))
	must(t, goose.Reset(db, "m"))
	drop(t, "goose_db_version")
}
