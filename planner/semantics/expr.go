package semantics

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// Strict marks a parameter that the statement uses where PostgreSQL could take
// another type for it.
func (pa *Parameters) Strict(e *plan.KeyExpr) {
	if e.Param == 0 {
		return
	}
	u := pa.Params[e.Param]
	mark := keytype.Family(e.As)
	if e.Array {
		mark += arrayMark
		pa.st.ArrayKeys = true
	}
	e.Strict = u == nil || u.agree[mark] < u.Total
	if keytype.IsTime(e.ReadAs()) {
		pa.st.TimeKeys = append(pa.st.TimeKeys, *e)
	}
}

// Walker goes through expressions: it checks functions, counts parameters and
// collects the subqueries of one place.
type Walker struct {
	Scope      *Scope
	Subqueries *[]*Query
}

// paramUse counts how a statement uses a parameter.
type paramUse struct {
	Total int
	// agree counts, per key type, the uses that give the parameter a type of
	// its family.
	agree map[keyspace.Type]int
}

// Parameters are those of the statement, with their uses.
type Parameters struct {
	typer  *Typer
	st     *plan.Statement
	Params map[int]*paramUse
}

// Param is the record of the uses of parameter n.
func (pa *Parameters) Param(n int) *paramUse {
	if n > pa.st.Params {
		pa.st.Params = n
	}
	u := pa.Params[n]
	if u == nil {
		u = &paramUse{agree: map[keyspace.Type]int{}}
		pa.Params[n] = u
	}
	return u
}

// ParamOf returns the number of a parameter, 0 for every other expression.
func ParamOf(n *pg.Node) int {
	if p := n.GetParamRef(); p != nil {
		return int(p.Number)
	}
	return 0
}

// agree notes that a use of a parameter gives it type t.
func (pa *Parameters) agree(n *pg.Node, t keyspace.Type) {
	if p := ParamOf(n); p > 0 && t != 0 {
		pa.Param(p).agree[keytype.Family(t)]++
	}
}

func (a *binder) walkList(list []*pg.Node, w *Walker) {
	for _, n := range list {
		a.Walk(n, w)
	}
}

func (a *binder) Walk(n *pg.Node, w *Walker) {
	if n == nil {
		return
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		a.Objects = a.Objects || serverdependent.IsTableOID(n)
		a.field(v.ColumnRef, w.Scope)
	case *pg.Node_AIndirection:
		a.field(v.AIndirection, w.Scope)
		a.walkChildren(n, w)
	case nil, *pg.Node_AConst, *pg.Node_String_, *pg.Node_Integer, *pg.Node_AStar, *pg.Node_SetToDefault:
	case *pg.Node_ParamRef:
		a.Param(int(v.ParamRef.Number)).Total++
	case *pg.Node_AExpr:
		e := v.AExpr
		a.comparedParams(e, w.Scope)
		a.Walk(e.Lexpr, w)
		a.Walk(e.Rexpr, w)
	case *pg.Node_BoolExpr:
		a.walkList(v.BoolExpr.Args, w)
	case *pg.Node_TypeCast:
		t := a.castType(v.TypeCast.TypeName)
		a.agree(v.TypeCast.Arg, t)
		a.CatalogType(v.TypeCast.TypeName)
		a.MarkCast(n, w.Scope)
		a.Walk(v.TypeCast.Arg, w)
	case *pg.Node_List:
		a.walkList(v.List.Items, w)
	case *pg.Node_RowExpr:
		a.walkList(v.RowExpr.Args, w)
	case *pg.Node_AArrayExpr:
		a.walkList(v.AArrayExpr.Elements, w)
	case *pg.Node_ResTarget:
		if f := v.ResTarget.Val.GetFuncCall(); f != nil && v.ResTarget.Name == "" && clustercatalog.IsDefaultCall(f) {
			a.DefaultCalls = append(a.DefaultCalls, clustercatalog.DefaultCall{Call: f, Unnamed: true})
		}
		a.Walk(v.ResTarget.Val, w)
		a.walkList(v.ResTarget.Indirection, w)
	case *pg.Node_NullTest:
		a.Walk(v.NullTest.Arg, w)
	case *pg.Node_SortBy:
		a.Walk(v.SortBy.Node, w)
	case *pg.Node_FuncCall:
		if clustercatalog.IsDefaultCall(v.FuncCall) && !slices.ContainsFunc(a.DefaultCalls, func(c clustercatalog.DefaultCall) bool { return c.Call == v.FuncCall }) {
			a.DefaultCalls = append(a.DefaultCalls, clustercatalog.DefaultCall{Call: v.FuncCall})
		}
		a.CheckCall(v.FuncCall)
		a.calls(v.FuncCall, w.Scope)
		a.MarkCast(n, w.Scope)
		a.walkChildren(n, w)
	case *pg.Node_JsonArrayAgg, *pg.Node_JsonObjectAgg, *pg.Node_GroupingFunc:
		a.aggregates++
		a.walkChildren(n, w)
	case *pg.Node_SubLink:
		a.Walk(v.SubLink.Testexpr, w)
		a.Walk(v.SubLink.Subselect, w)
	case *pg.Node_SelectStmt:
		*w.Subqueries = append(*w.Subqueries, a.SelectQuery(v.SelectStmt, w.Scope))
	case *pg.Node_SqlvalueFunction:
		if v.SqlvalueFunction.Op == pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG {
			a.PreferDefault = true // as current_database()
		}
	case *pg.Node_CoalesceExpr:
		a.walkList(v.CoalesceExpr.Args, w)
	case *pg.Node_MinMaxExpr:
		a.walkList(v.MinMaxExpr.Args, w)
	case *pg.Node_CurrentOfExpr:
		fail(sqlstate.Refusal("CLV-0230", "WHERE CURRENT OF is not supported").WithHint("Name the row by its key."))
	default:
		a.walkChildren(n, w)
	}
}

// walkChildren walks whatever expressions a node holds.
func (a *binder) walkChildren(n *pg.Node, w *Walker) {
	m := n.ProtoReflect()
	a.reflect(m, w)
}

func (a *binder) reflect(m protoreflect.Message, w *Walker) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		one := func(v protoreflect.Value) {
			switch child := v.Message().Interface().(type) {
			case *pg.Node:
				a.Walk(child, w)
			case *pg.TypeName:
				a.CatalogType(child)
			case *pg.SelectStmt:
				*w.Subqueries = append(*w.Subqueries, a.SelectQuery(child, w.Scope))
			default:
				a.reflect(v.Message(), w)
			}
		}
		if fd.IsList() {
			for i := range v.List().Len() {
				one(v.List().Get(i))
			}
		} else {
			one(v)
		}
		return true
	})
}

// comparedParams notes which type a comparison with a column gives to a parameter.
func (pa *Parameters) comparedParams(e *pg.A_Expr, sc *Scope) {
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP, pg.A_Expr_Kind_AEXPR_DISTINCT, pg.A_Expr_Kind_AEXPR_NOT_DISTINCT:
		switch sqltree.Operator(e) {
		case "=", "<>", "!=", "<", ">", "<=", ">=":
		default:
			return
		}
		l, r := []*pg.Node{e.Lexpr}, []*pg.Node{e.Rexpr}
		if lr, rr := e.Lexpr.GetRowExpr(), e.Rexpr.GetRowExpr(); lr != nil && rr != nil && len(lr.Args) == len(rr.Args) {
			l, r = lr.Args, rr.Args
		}
		for i := range l {
			if c, ok := pa.typer.ColumnOf(l[i], sc); ok {
				pa.agree(r[i], c.typ)
			}
			if c, ok := pa.typer.ColumnOf(r[i], sc); ok {
				pa.agree(l[i], c.typ)
			}
		}
	case pg.A_Expr_Kind_AEXPR_IN:
		cols := []*pg.Node{e.Lexpr}
		if row := e.Lexpr.GetRowExpr(); row != nil {
			cols = row.Args
		}
		for _, it := range e.Rexpr.GetList().GetItems() {
			vals := []*pg.Node{it}
			if row := it.GetRowExpr(); row != nil {
				vals = row.Args
			}
			for i := range min(len(cols), len(vals)) {
				if c, ok := pa.typer.ColumnOf(cols[i], sc); ok {
					pa.agree(vals[i], c.typ)
				}
			}
		}
	case pg.A_Expr_Kind_AEXPR_OP_ANY:
		if c, ok := pa.typer.ColumnOf(e.Lexpr, sc); ok {
			n := e.Rexpr
			if tc := n.GetTypeCast(); tc != nil && keytype.SameFamily(pa.typer.arrayType(tc.TypeName), c.typ) {
				n = tc.Arg
			}
			if p := ParamOf(n); p > 0 {
				pa.Param(p).agree[keytype.Family(c.typ)+arrayMark]++
			}
			for _, el := range n.GetAArrayExpr().GetElements() {
				pa.agree(el, c.typ)
			}
		}
	}
}

func (ns *Namespace) userCode(what string) {
	e := sqlstate.Refusal("CLV-0231", "%s is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have", what).
		WithHint("Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.")
	e.Unsure = true // there may be none of that name
	if s := ns.Snapshot.State(); s.FunctionsRead != FunctionRules && len(s.Functions) > 0 {
		e.Hint = "what the map says of functions is of another version of the router: any schema change, as " + NoChange + ", has them read again"
	}
	fail(e)
}

// UndefinedTable is the error for a table that the shard map does not know, beside sharded ones.
func UndefinedTable(name string, position int) error {
	return sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", name).At(position).
		WithDetail("The shard map has no table of that name, and a statement that uses sharded tables can use tables of the map only.").
		WithHint("SELECT * FROM cleave.tables shows the tables; create new ones through the router")
}

// arrayMark is added to a key type to count the uses of a parameter as an array of it.
const arrayMark keyspace.Type = 100
