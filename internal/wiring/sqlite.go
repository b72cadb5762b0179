//go:build !cleave_nosqlite

package wiring

import (
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
)

// embedded is the engine of shards that are SQLite files.
func embedded() []engine.Driver { return []engine.Driver{sqlite.Driver{}} }

// openVirtual opens the database that answers SELECTs over the schema cleave.
var openVirtual = sqlite.OpenVirtual

// openFile opens a directory that is a SQLite file, and makes it if there is none.
func openFile(path string, leaseTTL time.Duration) (shardmap.Directory, error) {
	return sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: leaseTTL})
}

// missing refuses a folder whose shards' engine was left out of this program.
func missing(string, string) error { return nil }
