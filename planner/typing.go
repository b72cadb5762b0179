package planner

import (
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// OIDs of pg_type.dat that the planner reasons about; see also route.go.
const (
	oidBool      = 16
	oidFloat4    = 700
	oidFloat8    = 701
	oidMoney     = 790
	oidBpchar    = 1042
	oidDate      = 1082
	oidTimestamp = 1114
	oidTimestmpz = 1184
	oidInterval  = 1186
	oidUUID      = 2950
	firstUserOID = 16384 // FirstNormalObjectId of transam.h
)

// numbers are the number types by the order in which PostgreSQL widens them.
var numbers = map[uint32]int{oidInt2: 1, oidInt4: 2, oidInt8: 3, oidNumeric: 4, oidFloat4: 5, oidFloat8: 6}

var castOIDs = map[string]uint32{
	"int2": oidInt2, "int4": oidInt4, "int8": oidInt8, "numeric": oidNumeric, "float4": oidFloat4, "float8": oidFloat8, "money": oidMoney, "bool": oidBool,
	"text": oidText, "varchar": oidVarchar, "bpchar": oidBpchar, "date": oidDate, "timestamp": oidTimestamp, "timestamptz": oidTimestmpz, "interval": oidInterval, "uuid": oidUUID,
}

// typeOf is the type of an expression of a query level, 0 if it is not certain.
// A string literal alone is of type unknown.
func (a *analyzer) typeOf(n *pg.Node, sc *scope) uint32 {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		if names := fieldNames(v.ColumnRef); names != nil {
			return sc.resolve(names).oid
		}
	case *pg.Node_AConst:
		switch c := v.AConst.Val.(type) {
		case *pg.A_Const_Ival:
			return oidInt4
		case *pg.A_Const_Fval:
			if _, err := strconv.ParseInt(c.Fval.GetFval(), 10, 64); err == nil {
				return oidInt8
			}
			return oidNumeric
		case *pg.A_Const_Boolval:
			return oidBool
		}
		return oidUnknown
	case *pg.Node_TypeCast:
		t := v.TypeCast.TypeName
		names := strs(t.GetNames())
		if len(t.GetArrayBounds()) > 0 || t.GetSetof() || t.GetPctType() || len(names) == 0 {
			return 0
		}
		if len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !a.hidden() {
			return castOIDs[names[len(names)-1]]
		}
	case *pg.Node_AExpr:
		return a.operatorType(v.AExpr, sc)
	case *pg.Node_CaseExpr:
		all := []*pg.Node{v.CaseExpr.Defresult}
		for _, w := range v.CaseExpr.Args {
			all = append(all, w.GetCaseWhen().GetResult())
		}
		return a.commonType(all, sc)
	case *pg.Node_CoalesceExpr:
		return a.commonType(v.CoalesceExpr.Args, sc)
	case *pg.Node_MinMaxExpr:
		return a.commonType(v.MinMaxExpr.Args, sc)
	case *pg.Node_FuncCall:
		if f := v.FuncCall; len(f.Args) > 0 && f.Over == nil && !a.isAggregate(f) {
			arg := a.typeOf(f.Args[0], sc)
			switch callName(f) {
			case "abs":
				return arg
			case "round", "ceil", "ceiling", "floor", "trunc":
				if arg == oidNumeric || arg == oidFloat8 && len(f.Args) == 1 {
					return arg
				}
			case "length", "char_length", "character_length", "octet_length":
				return oidInt4
			case "lower", "upper":
				if arg == oidText || arg == oidVarchar || arg == oidUnknown {
					return oidText
				}
			}
		}
	}
	return 0
}

// operatorType is the result type of +, -, *, / and % where that is certain.
func (a *analyzer) operatorType(e *pg.A_Expr, sc *scope) uint32 {
	if e.Kind == pg.A_Expr_Kind_AEXPR_NULLIF {
		return a.typeOf(e.Lexpr, sc)
	}
	if e.Kind != pg.A_Expr_Kind_AEXPR_OP || a.hidden() {
		return 0
	}
	op := operator(e)
	switch op {
	case "+", "-", "*", "/", "%":
	default:
		return 0
	}
	r := a.typeOf(e.Rexpr, sc)
	if e.Lexpr == nil {
		if numbers[r] > 0 || r == oidInterval {
			return r
		}
		return 0
	}
	l := a.typeOf(e.Lexpr, sc)
	if l == oidUnknown {
		l = r
	}
	if r == oidUnknown {
		r = l
	}
	switch {
	case numbers[l] > 0 && numbers[r] > 0:
		switch {
		case l == r:
			return l
		case numbers[l] >= numbers[oidFloat4] || numbers[r] >= numbers[oidFloat4]:
			return oidFloat8
		case numbers[l] > numbers[r]:
			return l
		}
		return r
	case l == oidInterval && r == oidInterval && (op == "+" || op == "-"):
		return oidInterval
	case l == r && op == "-" && (l == oidTimestamp || l == oidTimestmpz):
		return oidInterval
	case l == oidDate && r == oidDate && op == "-":
		return oidInt4
	}
	return 0
}

// commonType is the type of CASE, COALESCE, GREATEST and LEAST.
func (a *analyzer) commonType(list []*pg.Node, sc *scope) uint32 {
	out := uint32(oidUnknown)
	for _, n := range list {
		if n == nil {
			continue
		}
		t := a.typeOf(n, sc)
		switch {
		case t == 0:
			return 0
		case t == oidUnknown || t == out:
		case out == oidUnknown:
			out = t
		case numbers[t] > 0 && numbers[out] > 0:
			if numbers[t] > numbers[out] {
				out = t
			}
		default:
			return 0
		}
	}
	if out == oidUnknown {
		return oidText
	}
	return out
}

// ownTypes reports whether an expression is surely made of PostgreSQL's own types:
// its columns are, and it casts to no other.
func (a *analyzer) ownTypes(n *pg.Node, sc *scope) bool {
	ok := true
	inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ColumnRef:
			names := fieldNames(v)
			c := column{}
			if names != nil {
				c = sc.resolve(names)
			}
			ok = ok && c.oid != 0 && c.oid < firstUserOID
		case *pg.TypeName:
			names := strs(v.Names)
			ok = ok && len(names) > 0 && castOIDs[names[len(names)-1]] != 0 && (len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !a.hidden())
		case *pg.SelectStmt:
			ok = false
		}
		return ok
	})
	return ok
}
