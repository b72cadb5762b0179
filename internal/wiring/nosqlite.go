//go:build cleave_nosqlite

package wiring

import (
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func embedded() []engine.Driver { return nil }

// openVirtual is nil: the gateway refuses to read the schema cleave.
var openVirtual func(schema string, tables []engine.VirtualTable) (engine.Conn, error)

func openFile(path string, _ time.Duration) (shardmap.Directory, error) {
	return nil, leftOut(path)
}

func missing(folder, engineName string) error {
	if engineName == (postgres.Driver{}).Name() {
		return nil
	}
	return leftOut(folder)
}

func leftOut(path string) error {
	return sqlstate.Refusal("CLV-1419", "%s needs SQLite, which was left out of this program", path).
		WithHint("Build it without the tag cleave_nosqlite, or name a directory in etcd: etcd://HOST:2379/PREFIX.")
}
