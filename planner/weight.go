package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A view, or a WITH query NOT MATERIALIZED, that reads the one before it twice doubles what is planned: 22 of them, one
// kilobyte of text, take a backend of PostgreSQL over 10 GiB, and it hears no cancel meanwhile. So it is counted first how
// many tables a statement reads with all of that written out.

// weightMax bounds the tables that a statement reads when its views and WITH queries are written out.
const weightMax = 1000

// definitions are what was found out of views, for a statement and the definitions that it leads to.
type definitions struct {
	weights map[*shardmap.View]int
	reaches map[*shardmap.View]viewReach
}

func newDefinitions() *definitions {
	return &definitions{weights: map[*shardmap.View]int{}, reaches: map[*shardmap.View]viewReach{}}
}

// weighView adds a view to what the statement reads.
func (to *touched) weighView(v *shardmap.View) {
	if to.weight += to.views().view(to, v); to.weight > weightMax {
		fail(errTooHeavy())
	}
}

func errTooHeavy() error {
	return sqlstate.New(sqlstate.StatementTooComplex, "the statement reads over %d tables when its views and WITH queries are written out", weightMax).
		WithHint("leave NOT MATERIALIZED out, or let views read tables rather than views that read each other several times")
}

// view is how many tables a view reads, weightMax + 1 if they are more. A definition that cannot be read counts as one.
func (w *definitions) view(to *touched, v *shardmap.View) int {
	if n, ok := w.weights[v]; ok {
		return n
	}
	w.weights[v] = 1 // a view that reads itself is none
	if tree, err := to.p.parse(v.Definition); err == nil {
		w.weights[v] = w.tables(tree, nil, func(r *pg.RangeVar) int {
			if below, ok := to.typer.snap.View(r.Schemaname, r.Relname); ok {
				return w.view(to, below)
			}
			return 1
		})
	}
	return w.weights[v]
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

// tables counts the tables below a node; one is what a name that is no WITH query's counts.
func (w *definitions) tables(m proto.Message, in *with, one func(*pg.RangeVar) int) (n int) {
	add := func(more int) { n = min(n+more, weightMax+1) }
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
			reads := w.tables(cte.GetCtequery(), inner, one)
			inner.adds[cte.GetCtename()] = 1
			if cte.GetCtematerialized() == pg.CTEMaterialize_CTEMaterializeNever {
				inner.adds[cte.GetCtename()] = max(reads, 1)
			} else {
				add(reads)
			}
		}
		sqltree.Below(m2.ProtoReflect(), func(v protoreflect.Message) {
			if _, ok := v.Interface().(*pg.WithClause); !ok {
				add(w.tables(v.Interface(), inner, one))
			}
		})
		return false
	})
	return n
}

// chainMax bounds WITH queries of which each reads the one before. PostgreSQL puts each into the next, in a time that grows with
// the cube of their number (250: 0.9 s, 1,000: 65 s), and over several shards each of them does that.
const chainMax = 250

// unchained refuses longer chains of WITH queries. What one shard runs alone is that shard's business.
func unchained(n *pg.Node) {
	if chain(n, nil) > chainMax {
		fail(sqlstate.New(sqlstate.StatementTooComplex, "the statement has a chain of over %d WITH queries", chainMax).
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

// tooHeavy reports whether WITH queries NOT MATERIALIZED make a statement read too many tables.
func (p *Planner) tooHeavy(sql string, tree *pg.ParseResult) bool {
	return strings.Contains(strings.ToLower(sql), "materialized") && newDefinitions().tables(tree, nil, func(*pg.RangeVar) int { return 1 }) > weightMax
}

func (to *touched) views() *definitions {
	if to.definitions == nil {
		to.definitions = newDefinitions()
	}
	return to.definitions
}
