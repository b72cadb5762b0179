package planner

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

// walker goes through expressions: it checks functions, counts parameters and
// collects the subqueries of one place.
type walker struct {
	sc   *scope
	subs *[]*query
}

// paramUse counts how a statement uses a parameter.
type paramUse struct {
	total int
	// agree counts, per key type, the uses that give the parameter a type of
	// its family.
	agree map[keyspace.Type]int
}

// parameters are those of the statement, with their uses.
type parameters struct {
	typer  *typer
	st     *plan.Statement
	params map[int]*paramUse
}

func (pa *parameters) param(n int) *paramUse {
	if n > pa.st.Params {
		pa.st.Params = n
	}
	u := pa.params[n]
	if u == nil {
		u = &paramUse{agree: map[keyspace.Type]int{}}
		pa.params[n] = u
	}
	return u
}

// paramOf returns the number of a parameter, 0 for every other expression.
func paramOf(n *pg.Node) int {
	if p := n.GetParamRef(); p != nil {
		return int(p.Number)
	}
	return 0
}

// agree notes that a use of a parameter gives it type t.
func (pa *parameters) agree(n *pg.Node, t keyspace.Type) {
	if p := paramOf(n); p > 0 && t != 0 {
		pa.param(p).agree[keytype.Family(t)]++
	}
}

func (a *binder) walkList(list []*pg.Node, w *walker) {
	for _, n := range list {
		a.walk(n, w)
	}
}

func (a *binder) walk(n *pg.Node, w *walker) {
	if n == nil {
		return
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		a.objects = a.objects || serverdependent.IsTableOID(n)
		a.field(v.ColumnRef, w.sc)
	case *pg.Node_AIndirection:
		a.field(v.AIndirection, w.sc)
		a.walkChildren(n, w)
	case nil, *pg.Node_AConst, *pg.Node_String_, *pg.Node_Integer, *pg.Node_AStar, *pg.Node_SetToDefault:
	case *pg.Node_ParamRef:
		a.param(int(v.ParamRef.Number)).total++
	case *pg.Node_AExpr:
		e := v.AExpr
		a.comparedParams(e, w.sc)
		a.walk(e.Lexpr, w)
		a.walk(e.Rexpr, w)
	case *pg.Node_BoolExpr:
		a.walkList(v.BoolExpr.Args, w)
	case *pg.Node_TypeCast:
		t := a.castType(v.TypeCast.TypeName)
		a.agree(v.TypeCast.Arg, t)
		a.catalogType(v.TypeCast.TypeName)
		a.markCast(n, w.sc)
		a.walk(v.TypeCast.Arg, w)
	case *pg.Node_List:
		a.walkList(v.List.Items, w)
	case *pg.Node_RowExpr:
		a.walkList(v.RowExpr.Args, w)
	case *pg.Node_AArrayExpr:
		a.walkList(v.AArrayExpr.Elements, w)
	case *pg.Node_ResTarget:
		if f := v.ResTarget.Val.GetFuncCall(); f != nil && v.ResTarget.Name == "" && clustercatalog.IsDefaultCall(f) {
			a.defaultCalls = append(a.defaultCalls, clustercatalog.DefaultCall{Call: f, Unnamed: true})
		}
		a.walk(v.ResTarget.Val, w)
		a.walkList(v.ResTarget.Indirection, w)
	case *pg.Node_NullTest:
		a.walk(v.NullTest.Arg, w)
	case *pg.Node_SortBy:
		a.walk(v.SortBy.Node, w)
	case *pg.Node_FuncCall:
		if clustercatalog.IsDefaultCall(v.FuncCall) && !slices.ContainsFunc(a.defaultCalls, func(c clustercatalog.DefaultCall) bool { return c.Call == v.FuncCall }) {
			a.defaultCalls = append(a.defaultCalls, clustercatalog.DefaultCall{Call: v.FuncCall})
		}
		a.function(v.FuncCall)
		a.calls(v.FuncCall, w.sc)
		a.markCast(n, w.sc)
		a.walkChildren(n, w)
	case *pg.Node_JsonArrayAgg, *pg.Node_JsonObjectAgg, *pg.Node_GroupingFunc:
		a.aggregates++
		a.walkChildren(n, w)
	case *pg.Node_SubLink:
		a.walk(v.SubLink.Testexpr, w)
		a.walk(v.SubLink.Subselect, w)
	case *pg.Node_SelectStmt:
		*w.subs = append(*w.subs, a.selectQuery(v.SelectStmt, w.sc))
	case *pg.Node_SqlvalueFunction:
		if v.SqlvalueFunction.Op == pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG {
			a.preferDefault = true // as current_database()
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
func (a *binder) walkChildren(n *pg.Node, w *walker) {
	m := n.ProtoReflect()
	a.reflect(m, w)
}

func (a *binder) reflect(m protoreflect.Message, w *walker) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		one := func(v protoreflect.Value) {
			switch child := v.Message().Interface().(type) {
			case *pg.Node:
				a.walk(child, w)
			case *pg.TypeName:
				a.catalogType(child)
			case *pg.SelectStmt:
				*w.subs = append(*w.subs, a.selectQuery(child, w.sc))
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
func (pa *parameters) comparedParams(e *pg.A_Expr, sc *scope) {
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
			if c, ok := pa.typer.columnOf(l[i], sc); ok {
				pa.agree(r[i], c.typ)
			}
			if c, ok := pa.typer.columnOf(r[i], sc); ok {
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
				if c, ok := pa.typer.columnOf(cols[i], sc); ok {
					pa.agree(vals[i], c.typ)
				}
			}
		}
	case pg.A_Expr_Kind_AEXPR_OP_ANY:
		if c, ok := pa.typer.columnOf(e.Lexpr, sc); ok {
			n := e.Rexpr
			if tc := n.GetTypeCast(); tc != nil && keytype.SameFamily(pa.typer.arrayType(tc.TypeName), c.typ) {
				n = tc.Arg
			}
			if p := paramOf(n); p > 0 {
				pa.param(p).agree[keytype.Family(c.typ)+arrayMark]++
			}
			for _, el := range n.GetAArrayExpr().GetElements() {
				pa.agree(el, c.typ)
			}
		}
	}
}

func (ns *namespace) userCode(what string) {
	e := sqlstate.Refusal("CLV-0231", "%s is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have", what).
		WithHint("Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.")
	e.Unsure = true // there may be none of that name
	if s := ns.snap.State(); s.FunctionsRead != FunctionRules && len(s.Functions) > 0 {
		e.Hint = "what the map says of functions is of another version of the router: any schema change, as " + NoChange + ", has them read again"
	}
	fail(e)
}

func undefinedTable(name string, position int) error {
	return sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", name).At(position).
		WithDetail("The shard map has no table of that name, and a statement that uses sharded tables can use tables of the map only.").
		WithHint("SELECT * FROM cleave.tables shows the tables; create new ones through the router")
}

// arrayMark is added to a key type to count the uses of a parameter as an array of it.
const arrayMark keyspace.Type = 100
