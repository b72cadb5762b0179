package planner

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// OIDs of pg_type.dat that the planner reasons about.
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

// typer finds the types of expressions. It knows those of columns from scopes.
type typer struct{ namespace }

// typeOf is the type of an expression of a query level, 0 if it is not certain.
// A string literal alone is of type unknown.
func (ty *typer) typeOf(n *pg.Node, sc *scope) uint32 {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		if names := sqltree.FieldNames(v.ColumnRef); names != nil {
			return ty.oidOf(sc.resolve(names))
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
		names := sqltree.Strings(t.GetNames())
		if len(t.GetArrayBounds()) > 0 || t.GetSetof() || t.GetPctType() || len(names) == 0 {
			return 0
		}
		if len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ty.hidden() {
			return castOIDs[names[len(names)-1]]
		}
	case *pg.Node_AExpr:
		return ty.operatorType(v.AExpr, sc)
	case *pg.Node_CaseExpr:
		all := []*pg.Node{v.CaseExpr.Defresult}
		for _, w := range v.CaseExpr.Args {
			all = append(all, w.GetCaseWhen().GetResult())
		}
		return ty.commonType(all, sc)
	case *pg.Node_CoalesceExpr:
		return ty.commonType(v.CoalesceExpr.Args, sc)
	case *pg.Node_MinMaxExpr:
		return ty.commonType(v.MinMaxExpr.Args, sc)
	case *pg.Node_FuncCall:
		return ty.callType(v.FuncCall, sc)
	}
	return 0
}

// lateType is the type of an output of a query. Most statements never ask for it.
type lateType struct {
	of    *pg.ResTarget
	sc    *scope
	same  [2]column // or the type that both have, if it is one
	known bool
	oid   uint32
}

// oidOf is the type of a column, 0 if it is not certain.
func (ty *typer) oidOf(c column) uint32 {
	l := c.late
	if l == nil {
		return c.oid
	}
	if !l.known {
		l.known = true
		if l.of != nil {
			l.oid = ty.typeOf(l.of.Val, l.sc)
		} else if oid := ty.oidOf(l.same[0]); oid == ty.oidOf(l.same[1]) {
			l.oid = oid
		}
	}
	return l.oid
}

// sameType is the type of two columns that are merged into one.
func (ty *typer) sameType(x, y column) (uint32, *lateType) {
	switch {
	case x.late != nil || y.late != nil:
		return 0, &lateType{same: [2]column{x, y}}
	case x.oid != y.oid:
		return 0, nil
	}
	return x.oid, nil
}

// onlyBuiltin reports whether a call can only mean a function of PostgreSQL's.
func (ns *namespace) onlyBuiltin(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	return len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ns.hidden() && !ns.hasFunction(names[0])
}

// argumentTypes are the types of a call's arguments; ok is false if one is not known.
func (ty *typer) argumentTypes(f *pg.FuncCall, sc *scope) (types []uint32, ok bool) {
	types = make([]uint32, len(f.Args))
	for i, n := range f.Args {
		if types[i] = ty.typeOf(n, sc); types[i] == 0 || types[i] >= firstUserOID {
			return nil, false
		}
	}
	return types, true
}

// callType is the type of the result of a call.
func (ty *typer) callType(f *pg.FuncCall, sc *scope) uint32 {
	if !ty.onlyBuiltin(f) || f.AggWithinGroup { // what stands in ORDER BY counts too
		return 0
	}
	name := sqltree.CallName(f)
	in, ok := ty.argumentTypes(f, sc)
	if !ok {
		return anyResult(name)
	}
	return known(func(c pgcatalog.Catalog) uint32 {
		k, _ := c.Call(name, in, f.FuncVariadic)
		switch {
		case k == nil:
			return 0
		case k.Cast != nil:
			return k.Cast.OID
		}
		_, returns, _ := c.Bind(k.Args, in, k.Function.Result)
		return returns
	})
}

// noteSteady notes a call that means no volatile function, though others of the name are: AT TIME ZONE is volatile for a
// time of day with a zone only.
func (ty *typer) noteSteady(f *pg.FuncCall, sc *scope) {
	if !ty.onlyBuiltin(f) || !someVolatile(sqltree.CallName(f)) {
		return
	}
	in, ok := ty.argumentTypes(f, sc)
	if !ok {
		return
	}
	found := false
	for v := pgcatalog.Oldest; v <= pgcatalog.Newest; v++ {
		if k, _ := pgcatalog.Of(v).Call(sqltree.CallName(f), in, f.FuncVariadic); k != nil {
			if k.Function == nil || k.Function.Volatile == 'v' {
				return
			}
			found = true
		}
	}
	if found {
		if ty.steady == nil {
			ty.steady = map[*pg.FuncCall]bool{}
		}
		ty.steady[f] = true
	}
}

// someVolatile reports whether some functions of a name are volatile, and others are not.
func someVolatile(name string) bool {
	volatile, steady := false, false
	for f := range builtin.Catalog.Functions(name) {
		volatile, steady = volatile || f.Volatile == 'v', steady || f.Volatile != 'v'
	}
	return volatile && steady
}

// anyResult is the type that all functions of a name return, whatever they take.
func anyResult(name string) uint32 {
	out := uint32(0)
	for f := range builtin.Catalog.Functions(name) {
		if out != 0 && f.Result != out {
			return 0
		}
		out = f.Result
	}
	return known(func(pgcatalog.Catalog) uint32 { return out })
}

// known is the type that all versions have for an expression, of those that have one: others refuse the expression. It
// is 0 if versions differ, and for types that nothing here reasons about.
func known(typeIn func(c pgcatalog.Catalog) uint32) uint32 {
	out := uint32(0)
	for v := pgcatalog.Oldest; v <= pgcatalog.Newest; v++ {
		t := typeIn(pgcatalog.Of(v))
		if t != 0 && out != 0 && t != out {
			return 0
		}
		out = max(out, t)
	}
	for _, t := range castOIDs {
		if t == out {
			return out
		}
	}
	return 0
}

// operatorType is the type of the result of an operator of PostgreSQL's. A user may have made others: one is certain if
// it takes just the types of its operands, if these are numbers, or if one of them is a literal.
func (ty *typer) operatorType(e *pg.A_Expr, sc *scope) uint32 {
	op := sqltree.Operator(e)
	nullif := e.Kind == pg.A_Expr_Kind_AEXPR_NULLIF
	if e.Kind != pg.A_Expr_Kind_AEXPR_OP && !nullif || op == "" || ty.hidden() {
		return 0
	}
	if op == "||" { // long chains are usual, and what asks at each link would read all of them each time; nothing is summed by it
		return 0
	}
	r := ty.typeOf(e.Rexpr, sc)
	if e.Lexpr == nil {
		return known(func(c pgcatalog.Catalog) uint32 {
			if o, _ := c.Prefix(op, r); o != nil && o.Right == r {
				return o.Result
			}
			return 0
		})
	}
	l := ty.typeOf(e.Lexpr, sc)
	if nullif && (l == r || r == oidUnknown || e.Rexpr.GetParamRef() != nil) {
		return l
	}
	if l == 0 || r == 0 || l >= firstUserOID || r >= firstUserOID {
		return 0
	}
	return known(func(c pgcatalog.Catalog) uint32 {
		o, _ := c.Infix(op, l, r)
		switch {
		case o == nil || !(o.Left == l && o.Right == r || numbers[l] > 0 && numbers[r] > 0 || l == oidUnknown || r == oidUnknown):
			return 0
		case nullif:
			return o.Left // the left operand, as it is compared
		}
		_, returns, _ := c.Bind([]uint32{o.Left, o.Right}, []uint32{l, r}, o.Result)
		return returns
	})
}

// commonType is the type of CASE, COALESCE, GREATEST and LEAST.
func (ty *typer) commonType(list []*pg.Node, sc *scope) uint32 {
	var in []uint32
	one, same := uint32(oidUnknown), true // the type of all that have one
	for _, n := range list {
		if n == nil {
			continue
		}
		t := ty.typeOf(n, sc)
		if t == 0 {
			return 0
		}
		in = append(in, t)
		if t != oidUnknown {
			same = same && (one == oidUnknown || t == one)
			one = t
		}
	}
	if same && one != oidUnknown {
		return one
	}
	return known(func(c pgcatalog.Catalog) uint32 {
		t, other := c.Common(in)
		for _, from := range in {
			if other != 0 || from >= firstUserOID || !c.CanCoerce(from, t, pgcatalog.Implicit) {
				return 0
			}
		}
		return t
	})
}

// ownTypes reports whether an expression is surely made of PostgreSQL's own types:
// its columns are, and it casts to no other.
func (ty *typer) ownTypes(n *pg.Node, sc *scope) bool {
	ok := true
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ColumnRef:
			names := sqltree.FieldNames(v)
			c := column{}
			if names != nil {
				c = sc.resolve(names)
			}
			oid := ty.oidOf(c)
			ok = ok && oid != 0 && oid < firstUserOID
		case *pg.TypeName:
			names := sqltree.Strings(v.Names)
			ok = ok && len(names) > 0 && castOIDs[names[len(names)-1]] != 0 && (len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ty.hidden())
		case *pg.SelectStmt:
			ok = false
		}
		return ok
	})
	return ok
}

// isAggregate reports whether a call is of an aggregate function, and not as a
// window function.
func (ns *namespace) isAggregate(f *pg.FuncCall) bool {
	return f.Over == nil && (strings.Contains(ns.kindOf(f), "a") || f.AggStar || f.AggDistinct || f.AggFilter != nil || f.AggWithinGroup || len(f.AggOrder) > 0)
}

// isVolatile reports whether an expression, or a query, calls a volatile function.
func (ns *namespace) isVolatile(m proto.Message) bool {
	found := false
	sqltree.Inspect(m, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			kind := ns.kindOf(f)
			found = found || kind == "" || strings.HasPrefix(kind, "v") && !ns.steady[f]
		}
		return !found
	})
	return found
}

const (
	oidInt8    = 20
	oidInt2    = 21
	oidInt4    = 23
	oidText    = 25
	oidUnknown = 705
	oidVarchar = 1043
	oidNumeric = 1700
)

// hasFunction reports whether the user has a function of a name.
func (ns *namespace) hasFunction(name string) bool {
	return slices.ContainsFunc(ns.snap.State().Functions, func(f shardmap.Function) bool { return f.Name == name })
}
