package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// planGather plans any query by fetching rows onto one connection.
func (a *analyzer) planGather(*pg.Node) (*Plan, error) { return nil, nil }
