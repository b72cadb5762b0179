package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// planAggregate plans a query that aggregates over several shards.
func (a *analyzer) planAggregate(*pg.Node) (*Plan, error) { return nil, nil }
