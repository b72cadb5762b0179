package semantics

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// NumberTypes are the number types by the order in which PostgreSQL widens them.
var NumberTypes = map[uint32]int{pgoid.Int2: 1, pgoid.Int4: 2, pgoid.Int8: 3, pgoid.Numeric: 4, pgoid.Float4: 5, pgoid.Float8: 6}

// CastOIDs are the OIDs of the types that the planner reasons about, by name.
var CastOIDs = map[string]uint32{
	"int2": pgoid.Int2, "int4": pgoid.Int4, "int8": pgoid.Int8, "numeric": pgoid.Numeric, "float4": pgoid.Float4, "float8": pgoid.Float8, "money": pgoid.Money, "bool": pgoid.Bool,
	"text": pgoid.Text, "varchar": pgoid.Varchar, "bpchar": pgoid.Bpchar, "date": pgoid.Date, "timestamp": pgoid.Timestamp, "timestamptz": pgoid.Timestamptz, "interval": pgoid.Interval, "uuid": pgoid.UUID,
}

// Typer finds the types of expressions. It knows those of columns from scopes.
type Typer struct{ Namespace }

// TypeOf is the type of an expression of a query level, 0 if it is not certain.
// A string literal alone is of type unknown.
func (ty *Typer) TypeOf(n *pg.Node, sc *Scope) uint32 {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		if names := sqltree.FieldNames(v.ColumnRef); names != nil {
			return ty.oidOf(sc.resolve(names))
		}
	case *pg.Node_AConst:
		switch c := v.AConst.Val.(type) {
		case *pg.A_Const_Ival:
			return pgoid.Int4
		case *pg.A_Const_Fval:
			if _, err := strconv.ParseInt(c.Fval.GetFval(), 10, 64); err == nil {
				return pgoid.Int8
			}
			return pgoid.Numeric
		case *pg.A_Const_Boolval:
			return pgoid.Bool
		}
		return pgoid.Unknown
	case *pg.Node_TypeCast:
		t := v.TypeCast.TypeName
		names := sqltree.Strings(t.GetNames())
		if len(t.GetArrayBounds()) > 0 || t.GetSetof() || t.GetPctType() || len(names) == 0 {
			return 0
		}
		if len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ty.Hidden() {
			return CastOIDs[names[len(names)-1]]
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
	sc    *Scope
	same  [2]Column // or the type that both have, if it is one
	known bool
	oid   uint32
}

// oidOf is the type of a column, 0 if it is not certain.
func (ty *Typer) oidOf(c Column) uint32 {
	l := c.late
	if l == nil {
		return c.oid
	}
	if !l.known {
		l.known = true
		if l.of != nil {
			l.oid = ty.TypeOf(l.of.Val, l.sc)
		} else if oid := ty.oidOf(l.same[0]); oid == ty.oidOf(l.same[1]) {
			l.oid = oid
		}
	}
	return l.oid
}

// sameType is the type of two columns that are merged into one.
func (ty *Typer) sameType(x, y Column) (uint32, *lateType) {
	switch {
	case x.late != nil || y.late != nil:
		return 0, &lateType{same: [2]Column{x, y}}
	case x.oid != y.oid:
		return 0, nil
	}
	return x.oid, nil
}

// OnlyBuiltin reports whether a call can only mean a function of PostgreSQL's.
func (ns *Namespace) OnlyBuiltin(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	return len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ns.Hidden() && !ns.HasFunction(names[0])
}

// argumentTypes are the types of a call's arguments; ok is false if one is not known.
func (ty *Typer) argumentTypes(f *pg.FuncCall, sc *Scope) (types []uint32, ok bool) {
	types = make([]uint32, len(f.Args))
	for i, n := range f.Args {
		if types[i] = ty.TypeOf(n, sc); types[i] == 0 || types[i] >= pgoid.FirstNormal {
			return nil, false
		}
	}
	return types, true
}

// callType is the type of the result of a call.
func (ty *Typer) callType(f *pg.FuncCall, sc *Scope) uint32 {
	if !ty.OnlyBuiltin(f) || f.AggWithinGroup { // what stands in ORDER BY counts too
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
func (ty *Typer) noteSteady(f *pg.FuncCall, sc *Scope) {
	if !ty.OnlyBuiltin(f) || !someVolatile(sqltree.CallName(f)) {
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
	for _, t := range CastOIDs {
		if t == out {
			return out
		}
	}
	return 0
}

// operatorType is the type of the result of an operator of PostgreSQL's. A user may have made others: one is certain if
// it takes just the types of its operands, if these are numbers, or if one of them is a literal.
func (ty *Typer) operatorType(e *pg.A_Expr, sc *Scope) uint32 {
	op := sqltree.Operator(e)
	nullif := e.Kind == pg.A_Expr_Kind_AEXPR_NULLIF
	if e.Kind != pg.A_Expr_Kind_AEXPR_OP && !nullif || op == "" || ty.Hidden() {
		return 0
	}
	if op == "||" { // long chains are usual, and what asks at each link would read all of them each time; nothing is summed by it
		return 0
	}
	r := ty.TypeOf(e.Rexpr, sc)
	if e.Lexpr == nil {
		return known(func(c pgcatalog.Catalog) uint32 {
			if o, _ := c.Prefix(op, r); o != nil && o.Right == r {
				return o.Result
			}
			return 0
		})
	}
	l := ty.TypeOf(e.Lexpr, sc)
	if nullif && (l == r || r == pgoid.Unknown || e.Rexpr.GetParamRef() != nil) {
		return l
	}
	if l == 0 || r == 0 || l >= pgoid.FirstNormal || r >= pgoid.FirstNormal {
		return 0
	}
	return known(func(c pgcatalog.Catalog) uint32 {
		o, _ := c.Infix(op, l, r)
		switch {
		case o == nil || !(o.Left == l && o.Right == r || NumberTypes[l] > 0 && NumberTypes[r] > 0 || l == pgoid.Unknown || r == pgoid.Unknown):
			return 0
		case nullif:
			return o.Left // the left operand, as it is compared
		}
		_, returns, _ := c.Bind([]uint32{o.Left, o.Right}, []uint32{l, r}, o.Result)
		return returns
	})
}

// commonType is the type of CASE, COALESCE, GREATEST and LEAST.
func (ty *Typer) commonType(list []*pg.Node, sc *Scope) uint32 {
	var in []uint32
	one, same := uint32(pgoid.Unknown), true // the type of all that have one
	for _, n := range list {
		if n == nil {
			continue
		}
		t := ty.TypeOf(n, sc)
		if t == 0 {
			return 0
		}
		in = append(in, t)
		if t != pgoid.Unknown {
			same = same && (one == pgoid.Unknown || t == one)
			one = t
		}
	}
	if same && one != pgoid.Unknown {
		return one
	}
	return known(func(c pgcatalog.Catalog) uint32 {
		t, other := c.Common(in)
		for _, from := range in {
			if other != 0 || from >= pgoid.FirstNormal || !c.CanCoerce(from, t, pgcatalog.Implicit) {
				return 0
			}
		}
		return t
	})
}

// OwnTypes reports whether an expression is surely made of PostgreSQL's own types:
// its columns are, and it casts to no other.
func (ty *Typer) OwnTypes(n *pg.Node, sc *Scope) bool {
	ok := true
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ColumnRef:
			names := sqltree.FieldNames(v)
			c := Column{}
			if names != nil {
				c = sc.resolve(names)
			}
			oid := ty.oidOf(c)
			ok = ok && oid != 0 && oid < pgoid.FirstNormal
		case *pg.TypeName:
			names := sqltree.Strings(v.Names)
			ok = ok && len(names) > 0 && CastOIDs[names[len(names)-1]] != 0 && (len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ty.Hidden())
		case *pg.SelectStmt:
			ok = false
		}
		return ok
	})
	return ok
}

// IsAggregate reports whether a call is of an aggregate function, and not as a
// window function.
func (ns *Namespace) IsAggregate(f *pg.FuncCall) bool {
	return f.Over == nil && (strings.Contains(ns.KindOf(f), "a") || f.AggStar || f.AggDistinct || f.AggFilter != nil || f.AggWithinGroup || len(f.AggOrder) > 0)
}

// IsVolatile reports whether an expression, or a query, calls a volatile function.
func (ns *Namespace) IsVolatile(m proto.Message) bool {
	found := false
	sqltree.Inspect(m, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			kind := ns.KindOf(f)
			found = found || kind == "" || strings.HasPrefix(kind, "v") && !ns.steady[f]
		}
		return !found
	})
	return found
}

// HasFunction reports whether the user has a function of a name.
func (ns *Namespace) HasFunction(name string) bool {
	return slices.ContainsFunc(ns.Snapshot.State().Functions, func(f shardmap.Function) bool { return f.Name == name })
}
