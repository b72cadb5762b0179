package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// planModify plans UPDATE, DELETE and MERGE over several shards.
func (a *analyzer) planModify(*pg.Node) (*Plan, error) { return nil, nil }
