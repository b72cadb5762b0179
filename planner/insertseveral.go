package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// planInsert plans an INSERT whose rows are on several shards.
func (a *analyzer) planInsert(*pg.Node) (*Plan, error) { return nil, nil }
