package postgres_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func harness() enginetest.Harness {
	return enginetest.Harness{
		Driver:    postgres.Driver{},
		URL:       func(t testing.TB) string { return pgtest.Database(t) },
		Slow:      `SELECT pg_sleep(60)`,
		Notice:    `DROP TABLE IF EXISTS never_there`,
		Isolation: []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"},
		Ignore:    []goleak.Option{pgtest.IgnoreShared()},
	}
}

func TestEngine(t *testing.T) { enginetest.Run(t, harness()) }

// TestGuardsOnEveryVersion runs the guards on every major version.
func TestGuardsOnEveryVersion(t *testing.T) {
	for _, install := range pgtest.Versions(t) {
		t.Run(install.Version, func(t *testing.T) {
			server := pgtest.NewServerOf(t, install, nil)
			h := harness()
			h.URL = func(t testing.TB) string { return pgtest.DatabaseOn(t, server) }
			enginetest.RunGuards(t, h)
		})
	}
}
