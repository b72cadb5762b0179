package postgres_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/localpg"
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

// TestGuardsOnEveryVersion runs the guards on every major version but the one
// that TestEngine has run them on, with fewer repetitions: what differs between
// versions is the SQL of a guard, which every round runs.
func TestGuardsOnEveryVersion(t *testing.T) {
	tested, err := localpg.Find(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, install := range pgtest.VersionsOfRun(t) {
		if install.Version == tested.Version {
			continue
		}
		t.Run(install.Version, func(t *testing.T) {
			t.Parallel()
			server := pgtest.NewServerOf(t, install, nil)
			h := harness()
			h.Rounds = 1
			h.URL = func(t testing.TB) string { return pgtest.DatabaseOn(t, server) }
			enginetest.RunGuards(t, h)
		})
	}
}
