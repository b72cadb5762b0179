package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// perRun reports whether a query that falls apart by shard has a part that PostgreSQL
// may run once for all rows and that may answer otherwise each time: a subquery or a
// function in FROM that is volatile, or rows of a reference table that no order
// chooses. Each shard would have an answer of its own. What stands beside the rows of a
// witness is run for each of them, on one server as well.
func (a *analyzer) perRun(s *pg.SelectStmt, witnesses ...*use) bool {
	if s == nil {
		return false
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		return a.perRun(s.Larg, witnesses...) || a.perRun(s.Rarg, witnesses...)
	}
	own := map[*pg.RangeVar]bool{}
	for _, w := range witnesses {
		own[w.ref] = true
	}
	found := false
	descend(s.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			if v == s {
				return true
			}
			around := false
			eachRangeVar(m, func(r *pg.RangeVar) { around = around || own[r] })
			if around {
				found = found || a.perRun(v, witnesses...)
			} else {
				found = found || a.isVolatile(v) || a.loose(v)
			}
			return false
		case *pg.RangeFunction:
			found = found || a.isVolatile(v)
		case *pg.RangeTableSample:
			found = found || !own[v.Relation.GetRangeVar()]
		}
		return !found
	})
	return found
}

// answersOnce reports whether a statement has a subquery as perRun means it.
func (a *analyzer) answersOnce(m protoreflect.Message) bool {
	found := false
	descend(m, func(m protoreflect.Message) bool {
		s, is := m.Interface().(*pg.SelectStmt)
		found = found || is && (a.isVolatile(s) || a.loose(s))
		return !is && !found
	})
	return found
}

// loose reports whether a query that stands for itself leaves open which rows of a
// table it takes, or in what order it counts or adds them.
func (a *analyzer) loose(s *pg.SelectStmt) bool {
	open, tables := false, false
	descend(s.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			open = open || v.LimitCount != nil || v.LimitOffset != nil || len(v.DistinctClause) > 0 && v.DistinctClause[0].GetNode() != nil
		case *pg.FuncCall:
			open = open || v.Over != nil || a.byOrder(v, s)
		case *pg.RangeTableSample, *pg.JsonArrayAgg, *pg.JsonObjectAgg:
			open = true
		case *pg.RangeVar:
			tables = true
		}
		return true
	})
	return open && tables && !a.second.correlated(s)
}

// byOrder reports whether an aggregate call depends on the order of its rows, which no
// ORDER BY in it says: a list, or a sum of what may be floating-point numbers.
func (a *analyzer) byOrder(f *pg.FuncCall, s *pg.SelectStmt) bool {
	if len(f.AggOrder) > 0 || !a.isAggregate(f) {
		return false
	}
	switch callName(f) {
	case "count", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "mode", "rank", "dense_rank", "percentile_disc":
		return false
	case "sum", "avg", "variance", "var_pop", "var_samp", "stddev", "stddev_pop", "stddev_samp":
		if q := a.second.queries[s]; q != nil && len(f.Args) == 1 {
			switch a.typeOf(f.Args[0], q.sc) {
			case oidInt2, oidInt4, oidInt8, oidNumeric, oidInterval, oidMoney:
				return false
			}
		}
	}
	return true
}
