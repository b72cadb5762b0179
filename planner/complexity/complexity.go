// Package complexity measures how much a statement reads when its views and WITH queries are written out.
package complexity

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// A view, or a WITH query NOT MATERIALIZED, that reads the one before it twice doubles what is planned: 22 of them, one
// kilobyte of text, take a backend of PostgreSQL over 10 GiB, and it hears no cancel meanwhile. So it is counted first how
// many tables a statement reads with all of that written out.

// TablesMax bounds the tables that a statement reads when its views and WITH queries are written out.
const TablesMax = 1000

// ErrTooManyTables is the error of a statement that reads over TablesMax tables.
func ErrTooManyTables() error {
	return sqlstate.New(sqlstate.StatementTooComplex, "the statement reads over %d tables when its views and WITH queries are written out", TablesMax).
		WithHint("leave NOT MATERIALIZED out, or let views read tables rather than views that read each other several times")
}

// with are the WITH queries that names mean, with what each reference adds: to tables the query again if it is NOT MATERIALIZED,
// to chain the query's own length.
type with struct {
	parent *with
	adds   map[string]int
}

func (s *with) of(r *pg.RangeVar) (int, bool) {
	for ; s != nil && r.Schemaname == ""; s = s.parent {
		if n, ok := s.adds[r.Relname]; ok {
			return n, true
		}
	}
	return 0, false
}

// Tables counts the tables that a statement reads, at most one more than TablesMax; one is what a name that is no WITH
// query's counts.
func Tables(m proto.Message, one func(*pg.RangeVar) int) int { return tables(m, nil, one) }

// tables counts the tables below a node; one is what a name that is no WITH query's counts.
func tables(m proto.Message, in *with, one func(*pg.RangeVar) int) (n int) {
	add := func(more int) { n = min(n+more, TablesMax+1) }
	sqltree.Inspect(m, func(m2 proto.Message) bool {
		if r, ok := m2.(*pg.RangeVar); ok {
			adds, named := in.of(r)
			if !named {
				adds = one(r)
			}
			add(adds)
			return false
		}
		has, ok := m2.(interface{ GetWithClause() *pg.WithClause })
		if !ok || has.GetWithClause() == nil {
			return true
		}
		inner := &with{parent: in, adds: map[string]int{}}
		for _, c := range has.GetWithClause().Ctes {
			cte := c.GetCommonTableExpr()
			reads := tables(cte.GetCtequery(), inner, one)
			inner.adds[cte.GetCtename()] = 1
			if cte.GetCtematerialized() == pg.CTEMaterialize_CTEMaterializeNever {
				inner.adds[cte.GetCtename()] = max(reads, 1)
			} else {
				add(reads)
			}
		}
		sqltree.Below(m2.ProtoReflect(), func(v protoreflect.Message) {
			if _, ok := v.Interface().(*pg.WithClause); !ok {
				add(tables(v.Interface(), inner, one))
			}
		})
		return false
	})
	return n
}

// ChainMax bounds WITH queries of which each reads the one before. PostgreSQL puts each into the next, in a time that grows with
// the cube of their number (250: 0.9 s, 1,000: 65 s), and over several shards each of them does that.
const ChainMax = 250

// CheckChains refuses longer chains of WITH queries. What one shard runs alone is that shard's business.
func CheckChains(n *pg.Node) {
	if chain(n, nil) > ChainMax {
		bail.With(sqlstate.New(sqlstate.StatementTooComplex, "the statement has a chain of over %d WITH queries", ChainMax).
			WithHint("write MATERIALIZED to some of them, or add the shard key to the WHERE clause"))
	}
}

// chain is the length of the longest chain of WITH queries below a node. One that is MATERIALIZED is put into no other, and begins anew.
func chain(m proto.Message, in *with) (n int) {
	sqltree.Inspect(m, func(m2 proto.Message) bool {
		if r, ok := m2.(*pg.RangeVar); ok {
			before, _ := in.of(r)
			n = max(n, before)
			return false
		}
		has, ok := m2.(interface{ GetWithClause() *pg.WithClause })
		if !ok || has.GetWithClause() == nil {
			return true
		}
		inner := &with{parent: in, adds: map[string]int{}}
		for _, c := range has.GetWithClause().Ctes {
			cte := c.GetCommonTableExpr()
			before := chain(cte.GetCtequery(), inner)
			n = max(n, before)
			inner.adds[cte.GetCtename()] = before + 1
			if cte.GetCtematerialized() == pg.CTEMaterialize_CTEMaterializeAlways {
				inner.adds[cte.GetCtename()] = 0
			}
		}
		sqltree.Below(m2.ProtoReflect(), func(v protoreflect.Message) {
			if _, ok := v.Interface().(*pg.WithClause); !ok {
				n = max(n, chain(v.Interface(), inner))
			}
		})
		return false
	})
	return n
}
