package sqltree

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// MakesAnonymousRows reports whether a query may make rows without a type of their own,
// ROW(a, b), that are put out, sorted or grouped by. No table can have a column of
// them, and no parameter can be one: where shards' results come together, what they are
// made of has to come.
func MakesAnonymousRows(n *pg.Node) bool {
	found := false
	any := func(list []*pg.Node) {
		for _, n := range list {
			found = found || makesRow(n)
		}
	}
	Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ResTarget:
			found = found || makesRow(v.Val)
		case *pg.SortBy:
			found = found || makesRow(v.Node)
		case *pg.FuncCall:
			if v.AggDistinct {
				any(v.Args)
			}
		case *pg.SelectStmt:
			any(v.DistinctClause)
			for _, g := range v.GroupClause {
				// (a, b) in GROUP BY is a list.
				found = found || makesRow(g) && g.GetRowExpr().GetRowFormat() != pg.CoercionForm_COERCE_IMPLICIT_CAST
			}
		}
		return !found
	})
	return found
}

// makesRow reports whether the value of an expression may be a row without a type of
// its own, or an array of them.
func makesRow(n *pg.Node) bool {
	list := func(all []*pg.Node) bool {
		for _, n := range all {
			if makesRow(n) {
				return true
			}
		}
		return false
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_RowExpr:
		return true
	case *pg.Node_AArrayExpr:
		return list(v.AArrayExpr.Elements)
	case *pg.Node_CaseExpr:
		for _, w := range v.CaseExpr.Args {
			if makesRow(w.GetCaseWhen().GetResult()) {
				return true
			}
		}
		return makesRow(v.CaseExpr.Defresult)
	case *pg.Node_CoalesceExpr:
		return list(v.CoalesceExpr.Args)
	case *pg.Node_MinMaxExpr:
		return list(v.MinMaxExpr.Args)
	case *pg.Node_AIndirection:
		return makesRow(v.AIndirection.Arg)
	case *pg.Node_AExpr:
		return Operator(v.AExpr) == "||" && (makesRow(v.AExpr.Lexpr) || makesRow(v.AExpr.Rexpr))
	case *pg.Node_FuncCall:
		switch CallName(v.FuncCall) {
		case "count", "to_json", "to_jsonb", "row_to_json", "json_agg", "jsonb_agg", "json_build_object", "jsonb_build_object", "json_build_array", "jsonb_build_array", "num_nulls", "num_nonnulls", "pg_typeof":
			return false
		}
		return list(v.FuncCall.Args)
	}
	return false
}
