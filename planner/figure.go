package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/sqltree"
)

// figureName is the name that PostgreSQL gives to an output without one.
func figureName(n *pg.Node) string {
	if name, _ := figure(n); name != "" {
		return name
	}
	return "?column?"
}

// figure returns a name and how good it is: 2 a real one, 1 one to be used if
// nothing around it knows better, 0 none.
func figure(n *pg.Node) (string, int) {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		if names := sqltree.FieldNames(v.ColumnRef); len(names) > 0 {
			return names[len(names)-1], 2
		}
	case *pg.Node_AIndirection:
		ind := v.AIndirection.Indirection
		for i := len(ind) - 1; i >= 0; i-- {
			if s := ind[i].GetString_(); s != nil {
				return s.Sval, 2
			}
		}
		return figure(v.AIndirection.Arg)
	case *pg.Node_FuncCall:
		if names := sqltree.Strings(v.FuncCall.Funcname); len(names) > 0 {
			return names[len(names)-1], 2
		}
	case *pg.Node_AExpr:
		if v.AExpr.Kind == pg.A_Expr_Kind_AEXPR_NULLIF {
			return "nullif", 2
		}
	case *pg.Node_TypeCast:
		if name, good := figure(v.TypeCast.Arg); good > 1 {
			return name, good
		}
		if names := sqltree.Strings(v.TypeCast.TypeName.GetNames()); len(names) > 0 {
			return names[len(names)-1], 1
		}
	case *pg.Node_CollateClause:
		return figure(v.CollateClause.Arg)
	case *pg.Node_GroupingFunc:
		return "grouping", 2
	case *pg.Node_SubLink:
		switch v.SubLink.SubLinkType {
		case pg.SubLinkType_EXISTS_SUBLINK:
			return "exists", 2
		case pg.SubLinkType_ARRAY_SUBLINK:
			return "array", 2
		case pg.SubLinkType_EXPR_SUBLINK:
			if cols := outputNames(v.SubLink.Subselect.GetSelectStmt(), nil); len(cols) > 0 {
				return cols[0], 2
			}
		}
	case *pg.Node_CaseExpr:
		if name, good := figure(v.CaseExpr.Defresult); good > 1 {
			return name, good
		}
		return "case", 1
	case *pg.Node_AArrayExpr:
		return "array", 2
	case *pg.Node_RowExpr:
		return "row", 2
	case *pg.Node_CoalesceExpr:
		return "coalesce", 2
	case *pg.Node_MinMaxExpr:
		if v.MinMaxExpr.Op == pg.MinMaxOp_IS_LEAST {
			return "least", 2
		}
		return "greatest", 2
	case *pg.Node_SqlvalueFunction:
		return valueFunctionName(v.SqlvalueFunction.Op), 2
	case *pg.Node_XmlExpr:
		name := map[pg.XmlExprOp]string{pg.XmlExprOp_IS_XMLCONCAT: "xmlconcat", pg.XmlExprOp_IS_XMLELEMENT: "xmlelement", pg.XmlExprOp_IS_XMLFOREST: "xmlforest",
			pg.XmlExprOp_IS_XMLPARSE: "xmlparse", pg.XmlExprOp_IS_XMLPI: "xmlpi", pg.XmlExprOp_IS_XMLROOT: "xmlroot"}[v.XmlExpr.Op]
		if name != "" {
			return name, 2
		}
	case *pg.Node_XmlSerialize:
		return "xmlserialize", 2
	case *pg.Node_JsonParseExpr:
		return "json", 2
	case *pg.Node_JsonScalarExpr:
		return "json_scalar", 2
	case *pg.Node_JsonSerializeExpr:
		return "json_serialize", 2
	case *pg.Node_JsonObjectConstructor:
		return "json_object", 2
	case *pg.Node_JsonArrayConstructor, *pg.Node_JsonArrayQueryConstructor:
		return "json_array", 2
	case *pg.Node_JsonObjectAgg:
		return "json_objectagg", 2
	case *pg.Node_JsonArrayAgg:
		return "json_arrayagg", 2
	case *pg.Node_JsonFuncExpr:
		switch v.JsonFuncExpr.Op {
		case pg.JsonExprOp_JSON_EXISTS_OP:
			return "json_exists", 2
		case pg.JsonExprOp_JSON_QUERY_OP:
			return "json_query", 2
		case pg.JsonExprOp_JSON_VALUE_OP:
			return "json_value", 2
		}
	}
	return "", 0
}

// unnamed reports whether an output may have another name than figureName says: that
// of the first column of a star.
func unnamed(n *pg.Node) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		if l, ok := m.(*pg.SubLink); ok && l.SubLinkType == pg.SubLinkType_EXPR_SUBLINK {
			found = found || outputNames(l.Subselect.GetSelectStmt(), nil) == nil
		}
		return !found
	})
	return found
}

// valueFunctionName is the lower-case word of CURRENT_DATE and its kin, without precision.
func valueFunctionName(op pg.SQLValueFunctionOp) string {
	return strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(op.String(), "SVFOP_")), "_n")
}

// outputNames are the names of the columns of a query, nil if they are not known.
// sc has the WITH queries around it.
func outputNames(s *pg.SelectStmt, sc *gatherScope) []string {
	if s == nil {
		return nil
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		return outputNames(s.Larg, sc)
	}
	out := []string{}
	if len(s.ValuesLists) > 0 {
		for i := range s.ValuesLists[0].GetList().GetItems() {
			out = append(out, "column"+itoa(i+1))
		}
		return out
	}
	for _, n := range s.TargetList {
		r := n.GetResTarget()
		if sqltree.IsStar(n) {
			return nil
		}
		switch {
		case r.GetName() != "":
			out = append(out, r.GetName())
		default:
			out = append(out, figureName(r.GetVal()))
		}
	}
	return out
}

// anonymous reports whether a query may make rows without a type of their own,
// ROW(a, b), that are put out, sorted or grouped by. No table can have a column of
// them, and no parameter can be one: where shards' results come together, what they are
// made of has to come.
func anonymous(n *pg.Node) bool {
	found := false
	any := func(list []*pg.Node) {
		for _, n := range list {
			found = found || makesRow(n)
		}
	}
	sqltree.Inspect(n, func(m proto.Message) bool {
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
		return sqltree.Operator(v.AExpr) == "||" && (makesRow(v.AExpr.Lexpr) || makesRow(v.AExpr.Rexpr))
	case *pg.Node_FuncCall:
		switch sqltree.CallName(v.FuncCall) {
		case "count", "to_json", "to_jsonb", "row_to_json", "json_agg", "jsonb_agg", "json_build_object", "jsonb_build_object", "json_build_array", "jsonb_build_array", "num_nulls", "num_nonnulls", "pg_typeof":
			return false
		}
		return list(v.FuncCall.Args)
	}
	return false
}
