package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// planScatter plans a query that falls apart by shard.
func (a *analyzer) planScatter(*pg.Node) (*Plan, error) { return nil, nil }

// targetOf is where the rows of a table's place that can matter are.
func (a *analyzer) targetOf(u *use) Target {
	t := Target{Where: KeyShards, Keyspace: u.rel.table.Keyspace}
	if u.facts == nil {
		return t
	}
	rows, _, ok := u.facts.alternatives(u.node.key, a.p.limits.Keys)
	if !ok {
		return t
	}
	t.Keys = [][]KeyExpr{}
	for _, r := range rows {
		key := make([]KeyExpr, len(r))
		for i, k := range r {
			e, ok := k.keyExpr(a.keyTypes(t.Keyspace)[i])
			if !ok {
				t.Keys = nil
				return t
			}
			a.strict(&e)
			key[i] = e
		}
		t.Keys = append(t.Keys, key)
	}
	return t
}
