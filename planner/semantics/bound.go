package semantics

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/shardmap"
)

// A statement is bound once. Binding notes what each table stands for. If one shard is not enough, the reason is
// noted, and binding goes on. The functions named plan... look at what was bound and return a Plan; nil without
// error means that the statement is none of theirs, an error that it cannot be run by anybody.

// BoundStatement is what binding notes of a statement.
type BoundStatement struct {
	// Top is the query or the statement that changes rows: inside EXPLAIN, DECLARE
	// and COPY it is theirs.
	Top *pg.Node
	// Root is what was proved about top; nil for statements that change rows.
	Root *Query
	// Uses are the tables named, in the order of the text, WITH queries left out.
	Uses []*Use
	// selects are the SELECTs, each of a set operation's arms as well. Of one that was read several times the last
	// counts.
	selects []*Query
	// proofs are the queries whose shard keys were looked for, each by itself, in order.
	proofs []*Query
	// bounds are facts whose constants are not read yet, see SettleBounds.
	bounds []*fact
	// repeated: a recursive WITH query is read once more.
	repeated int
	byRef    map[*pg.RangeVar]*Use     // of uses, once asked for
	queries  map[*pg.SelectStmt]*Query // of selects
}

// UseAt is the use of a table's place, nil if there is none.
func (bs *BoundStatement) UseAt(v *pg.RangeVar) *Use {
	if bs.byRef == nil {
		bs.byRef = make(map[*pg.RangeVar]*Use, len(bs.Uses))
		for _, u := range bs.Uses {
			bs.byRef[u.Ref] = u
		}
	}
	return bs.byRef[v]
}

// QueryOf is a SELECT as it was bound, nil if it was not.
func (bs *BoundStatement) QueryOf(s *pg.SelectStmt) *Query {
	if bs.queries == nil {
		bs.queries = make(map[*pg.SelectStmt]*Query, len(bs.selects))
		for _, q := range bs.selects {
			bs.queries[q.Select] = q
		}
	}
	return bs.queries[s]
}

// Use is one place where a statement names a table.
type Use struct {
	Ref      *pg.RangeVar
	Relation Relation
	// Node is its leaf in the join tree, sc the scope of its query level.
	Node *JoinNode
	item *Item
	// Facts hold for the rows of it that can matter; nil if it was not looked at.
	Facts *Facts
}

// Sharded reports whether rows of the table are on several shards.
func (u *Use) Sharded() bool {
	return u.Relation.Table != nil && u.Relation.Table.Kind == shardmap.Sharded
}

// Prove looks for the shard keys of a query that stands by itself.
func (a *binder) Prove(q *Query) *Facts {
	a.bound.proofs = append(a.bound.proofs, q)
	return a.VisitQuery(q, NoFacts())
}

// Place looks for the facts of each table's place.
func (rt *Routing) Place() {
	rt.worked, rt.placing = 0, true
	for _, q := range rt.bound.proofs {
		rt.VisitQuery(q, NoFacts())
	}
}

// note records a table's place.
func (bs *BoundStatement) note(v *pg.RangeVar, r Relation, j *JoinNode, it *Item) {
	if bs.repeated > 0 {
		for _, u := range bs.Uses {
			if u.Ref == v {
				u.Relation, u.Node, u.item = r, j, it
				return
			}
		}
	}
	bs.Uses = append(bs.Uses, &Use{Ref: v, Relation: r, Node: j, item: it})
}

// seen records the facts of a sharded table's place.
func (rt *Routing) seen(j *JoinNode, f *Facts) {
	for _, u := range rt.bound.Uses {
		if u.Node == j && u.Facts == nil {
			u.Facts = f.clone()
		}
	}
	rt.checkAnchor(j, f)
}

// Everywhere reports whether every shard has all rows of the table.
func (u *Use) Everywhere() bool {
	return u.Relation.Table != nil && u.Relation.Table.Kind == shardmap.Reference
}

// UseOf is the use of a table whose leaf in the join tree is j, nil if there is none.
func (bs *BoundStatement) UseOf(j *JoinNode) *Use {
	for _, u := range bs.Uses {
		if u.Node == j {
			return u
		}
	}
	return nil
}
