package sqltree

import (
	"slices"
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// CastNode casts an expression to a type of pg_catalog.
func CastNode(arg *pg.Node, typ string, mods []*pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: arg, TypeName: &pg.TypeName{
		Names: []*pg.Node{StringNode("pg_catalog"), StringNode(typ)}, Typmods: mods, Typemod: -1}}}}
}

// StringNode is a part of a name.
func StringNode(s string) *pg.Node {
	return &pg.Node{Node: &pg.Node_String_{String_: &pg.String{Sval: s}}}
}

// IntNode is an integer literal.
func IntNode(n int64) *pg.Node {
	if n >= -1<<31 && n < 1<<31 {
		return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Ival{Ival: &pg.Integer{Ival: int32(n)}}}}}
	}
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Fval{Fval: &pg.Float{Fval: strconv.Itoa(int(n))}}}}}
}

// ColumnNode is a column's name as an expression.
func ColumnNode(names ...string) *pg.Node {
	c := &pg.ColumnRef{}
	for _, n := range names {
		c.Fields = append(c.Fields, StringNode(n))
	}
	return &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: c}}
}

// TargetNode is an element of a SELECT list; name "" gives it none.
func TargetNode(val *pg.Node, name string) *pg.Node {
	return &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Name: name, Val: val}}}
}

// SelectNode is a SELECT as a statement, or as an arm or subquery.
func SelectNode(s *pg.SelectStmt) *pg.Node {
	return &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}}
}

// CallNode calls a function of pg_catalog.
func CallNode(name string, args ...*pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_FuncCall{FuncCall: &pg.FuncCall{Funcname: []*pg.Node{StringNode("pg_catalog"), StringNode(name)}, Args: args,
		Funcformat: pg.CoercionForm_COERCE_EXPLICIT_CALL}}}
}

// TableNode names a relation in FROM.
func TableNode(name, alias string) *pg.Node {
	v := &pg.RangeVar{Relname: name, Inh: true, Relpersistence: "p"}
	if alias != "" {
		v.Alias = &pg.Alias{Aliasname: alias}
	}
	return &pg.Node{Node: &pg.Node_RangeVar{RangeVar: v}}
}

// EmptySelect is a SELECT with the fields that the parser always fills.
func EmptySelect() *pg.SelectStmt {
	return &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE}
}

// OpNode is an expression with an operator between two others.
func OpNode(op string, l, r *pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_AExpr{AExpr: &pg.A_Expr{Kind: pg.A_Expr_Kind_AEXPR_OP, Name: []*pg.Node{StringNode(op)}, Lexpr: l, Rexpr: r}}}
}

// SelectOf makes SELECT outputs FROM from WHERE conds.
func SelectOf(outputs, from, conds []*pg.Node) *pg.Node {
	s := EmptySelect()
	s.FromClause = from
	for _, o := range outputs {
		s.TargetList = append(s.TargetList, TargetNode(o, ""))
	}
	switch len(conds) {
	case 0:
	case 1:
		s.WhereClause = conds[0]
	default:
		s.WhereClause = &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_AND_EXPR, Args: conds}}}
	}
	return SelectNode(s)
}

// And is two conditions AND-ed, as the parser writes it.
func And(a, b *pg.Node) *pg.Node {
	if a == nil {
		return b
	}
	args := []*pg.Node{a}
	if e := a.GetBoolExpr(); e != nil && e.Boolop == pg.BoolExprType_AND_EXPR {
		args = slices.Clone(e.Args)
	}
	return &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_AND_EXPR, Args: append(args, b)}}}
}
