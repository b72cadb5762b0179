package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/shardmap"
)

// namespace says what a name without a schema means, as PostgreSQL's namespace.c does: by the search path, in the shard
// map and in PostgreSQL's catalogue.
type namespace struct {
	snap *shardmap.Snapshot
	path []string // search_path
	// privileged is the last thing named that takes an administrator, "" if nothing does: see Statement.Secret.
	privileged string
	// steady are calls that are not volatile, though others of the name are: see noteSteady.
	steady map[*pg.FuncCall]bool
}
