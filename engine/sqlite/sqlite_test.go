package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/sqlite"
)

func harness() enginetest.Harness {
	return enginetest.Harness{
		Driver: sqlite.Driver{},
		URL:    func(t testing.TB) string { return "file:" + filepath.Join(t.TempDir(), "shard.db") },
		Slow: `WITH RECURSIVE t(n) AS (VALUES (1::bigint) UNION ALL SELECT n + 1 FROM t WHERE n < 1000000000)
			SELECT count(*) FROM t`,
		Notice:    `DROP TABLE IF EXISTS there_is_no_such_table`,
		Isolation: []string{"READ COMMITTED"},
	}
}

func TestEngine(t *testing.T) { enginetest.Run(t, harness()) }
