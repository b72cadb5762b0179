package outputname

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/sqltree"
)

// Of is the name that PostgreSQL gives to an output without one.
func Of(n *pg.Node) string {
	if name, _ := figureColname(n); name != "" {
		return name
	}
	return "?column?"
}

// figureColname returns a name and how good it is: 2 a real one, 1 one to be used if
// nothing around it knows better, 0 none.
func figureColname(n *pg.Node) (string, int) {
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
		return figureColname(v.AIndirection.Arg)
	case *pg.Node_FuncCall:
		if names := sqltree.Strings(v.FuncCall.Funcname); len(names) > 0 {
			return names[len(names)-1], 2
		}
	case *pg.Node_AExpr:
		if v.AExpr.Kind == pg.A_Expr_Kind_AEXPR_NULLIF {
			return "nullif", 2
		}
	case *pg.Node_TypeCast:
		if name, good := figureColname(v.TypeCast.Arg); good > 1 {
			return name, good
		}
		if names := sqltree.Strings(v.TypeCast.TypeName.GetNames()); len(names) > 0 {
			return names[len(names)-1], 1
		}
	case *pg.Node_CollateClause:
		return figureColname(v.CollateClause.Arg)
	case *pg.Node_GroupingFunc:
		return "grouping", 2
	case *pg.Node_SubLink:
		switch v.SubLink.SubLinkType {
		case pg.SubLinkType_EXISTS_SUBLINK:
			return "exists", 2
		case pg.SubLinkType_ARRAY_SUBLINK:
			return "array", 2
		case pg.SubLinkType_EXPR_SUBLINK:
			if cols := OfQuery(v.SubLink.Subselect.GetSelectStmt()); len(cols) > 0 {
				return cols[0], 2
			}
		}
	case *pg.Node_CaseExpr:
		if name, good := figureColname(v.CaseExpr.Defresult); good > 1 {
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

// Unsure reports whether an output may have another name than Of says: that
// of the first column of a star.
func Unsure(n *pg.Node) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		if l, ok := m.(*pg.SubLink); ok && l.SubLinkType == pg.SubLinkType_EXPR_SUBLINK {
			found = found || OfQuery(l.Subselect.GetSelectStmt()) == nil
		}
		return !found
	})
	return found
}

// valueFunctionName is the lower-case word of CURRENT_DATE and its kin, without precision.
func valueFunctionName(op pg.SQLValueFunctionOp) string {
	return strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(op.String(), "SVFOP_")), "_n")
}

// OfQuery are the names of the columns of a query, nil if they are not known.
func OfQuery(s *pg.SelectStmt) []string {
	if s == nil {
		return nil
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		return OfQuery(s.Larg)
	}
	out := []string{}
	if len(s.ValuesLists) > 0 {
		for i := range s.ValuesLists[0].GetList().GetItems() {
			out = append(out, "column"+strconv.Itoa(i+1))
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
			out = append(out, Of(r.GetVal()))
		}
	}
	return out
}
