package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
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
	st     *Statement
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
		a.comparedWords(e, w.sc)
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
		a.commonWords(w.sc, pointers(v.AArrayExpr.Elements)...)
		a.walkList(v.AArrayExpr.Elements, w)
	case *pg.Node_ResTarget:
		if f := v.ResTarget.Val.GetFuncCall(); f != nil && v.ResTarget.Name == "" && isDefaultCall(f) {
			a.defaultCalls = append(a.defaultCalls, defaultCall{call: f, unnamed: true})
		}
		a.walk(v.ResTarget.Val, w)
		a.walkList(v.ResTarget.Indirection, w)
	case *pg.Node_NullTest:
		a.walk(v.NullTest.Arg, w)
	case *pg.Node_SortBy:
		a.walk(v.SortBy.Node, w)
	case *pg.Node_FuncCall:
		if isDefaultCall(v.FuncCall) && !slices.ContainsFunc(a.defaultCalls, func(c defaultCall) bool { return c.call == v.FuncCall }) {
			a.defaultCalls = append(a.defaultCalls, defaultCall{call: v.FuncCall})
		}
		a.function(v.FuncCall)
		if a.second != nil {
			a.noteSteady(v.FuncCall, w.sc)
		}
		a.calledWords(v.FuncCall, w.sc)
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
		a.commonWords(w.sc, pointers(v.CoalesceExpr.Args)...)
		a.walkList(v.CoalesceExpr.Args, w)
	case *pg.Node_MinMaxExpr:
		a.commonWords(w.sc, pointers(v.MinMaxExpr.Args)...)
		a.walkList(v.MinMaxExpr.Args, w)
	case *pg.Node_CaseExpr:
		results := []**pg.Node{&v.CaseExpr.Defresult}
		for _, arg := range v.CaseExpr.Args {
			results = append(results, &arg.GetCaseWhen().Result)
		}
		a.commonWords(w.sc, results...)
		if v.CaseExpr.Arg != nil {
			for _, arg := range v.CaseExpr.Args {
				a.pairWords(&v.CaseExpr.Arg, &arg.GetCaseWhen().Expr, w.sc)
			}
		}
		a.walkChildren(n, w)
	case *pg.Node_CurrentOfExpr:
		fail(sqlstate.Refusal("CLV-0230", "WHERE CURRENT OF is not supported").WithHint("name the row by its key"))
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
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
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

// catalogType notes a cast to a type that is looked up in a database's catalogue:
// object ids differ between shards, so the default shard answers if it can.
func (fx *effects) catalogType(n *pg.TypeName) {
	names := sqltree.Strings(n.GetNames())
	if len(names) > 0 && (strings.HasPrefix(names[len(names)-1], "reg") || names[len(names)-1] == "oid") {
		fx.preferDefault, fx.objects = true, true
	}
	if n.GetPctType() {
		fx.preferDefault = true
	}
	if len(names) > 0 && !serverdependent.WithoutOID[names[len(names)-1]] {
		fx.ownType(names)
	}
	fx.numbers = fx.numbers || len(names) == 0 || len(names) > 1 && names[0] != "pg_catalog" || !serverdependent.WithoutOID[names[len(names)-1]]
}

// ownType notes a type that may be one of the user's: the row type of a table that is not on every shard, perhaps. A
// statement without tables goes where every type is then.
func (fx *effects) ownType(names []string) {
	if len(names) > 2 || names[0] == "pg_catalog" || names[0] == "information_schema" {
		return
	}
	v := &pg.RangeVar{Relname: names[len(names)-1]}
	if len(names) == 2 {
		v.Schemaname = names[0]
	}
	t := fx.typer.relation(v).table
	fx.mayType = fx.mayType || t == nil
	fx.preferDefault = fx.preferDefault || t != nil && t.Kind == shardmap.Whole
}

func (ns *namespace) userCode(what string) {
	e := sqlstate.Refusal("CLV-0231", "%s is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have", what).
		WithHint("create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement")
	e.Unsure = true // there may be none of that name
	if s := ns.snap.State(); s.FunctionsRead != FunctionRules && len(s.Functions) > 0 {
		e.Hint = "what the map says of functions is of another version of the router: any schema change, as " + NoChange + ", has them read again"
	}
	fail(e)
}

// function checks that a call can be let through.
func (fx *effects) function(f *pg.FuncCall) {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	if fillOwn[name] || fillNative[name] {
		fx.unfilled(f)
	}
	fx.foreignPID(f)
	if len(names) > 1 {
		switch names[len(names)-2] {
		case "pg_catalog":
			refuseShared(name)
		case "information_schema":
			fx.preferDefault = true
			return
		case VirtualSchema:
			fail(sqlstate.Refusal("CLV-0232", "cleave.%s can only be called by itself: SELECT cleave.%s(...)", name, name))
		case InternalSchema:
			fail(internalSchemaError())
		default:
			if fx.typer.kindOf(f) == "" {
				fx.typer.userCode("function " + strings.Join(names, ".") + "()")
			}
		}
	}
	if inTemp(names) {
		fx.tempCall(names)
	}
	kind := fx.typer.kindOf(f)
	if kind == "" {
		fx.typer.userCode("function " + name + "()")
	} else if len(names) == 1 {
		refuseShared(name)
	}
	fx.volatile = fx.volatile || strings.HasPrefix(kind, "v")
	fx.tracing(name, kind)
	if f.Over != nil {
		fx.windows++
	} else if strings.Contains(kind, "a") || f.AggStar || f.AggDistinct || f.AggFilter != nil || f.AggWithinGroup || len(f.AggOrder) > 0 {
		fx.aggregates++
	}
	ours := builtin.Has(name)
	if name == "set_config" {
		fx.setsWithin(f)
	} else if ours || name == "set_limit" { // pg_trgm's
		fx.checkFunction(name, len(f.Args))
	}
	fx.numbers = fx.numbers || !ours || serverdependent.NamesObjects[name]
	fx.objects = fx.objects || name == "pg_typeof" || name == "regclass" || strings.HasPrefix(name, "to_reg")
}

func (fx *effects) checkFunction(name string, args int) {
	if secretFunctions[name] {
		fx.typer.secret("function " + name)
	}
	switch name {
	case "nextval", "setval":
		fx.sequence = name
		return
	case "currval", "lastval":
		if fx.sequence == "" {
			fx.sequence = name
		}
		return
	case "setseed":
		fail(sqlstate.Refusal("CLV-0233", "setseed() would seed random() in one session of one shard only").
			WithHint("make the numbers in the client"))
	case "set_config":
		fail(sqlstate.Refusal("CLV-0234", "set_config() written so is not supported").
			WithHint("SELECT set_config('name', 'value', false) by itself, or SET"))
	case "ts_rewrite":
		if args == 2 {
			fail(sqlstate.Refusal("CLV-0235", "ts_rewrite() with two arguments runs a query given as text").
				WithHint("use the form with three arguments"))
		}
		return
	}
	if builtin.IsAdvisory(name) {
		// All of them are on the default shard, so that they exclude each other.
		fx.advisory, fx.preferDefault, fx.locks = name, true, true
		fx.st.Unlocks = fx.st.Unlocks || strings.HasPrefix(name, "pg_advisory_unlock")
		fx.st.Notifies = fx.st.Notifies || name == "pg_notify"
		if (strings.HasPrefix(name, "pg_advisory_lock") || strings.HasPrefix(name, "pg_try_advisory_lock")) && !fx.touched.defining {
			fx.st.Pins = true
		}
		return
	}
	why, denied := builtin.Reach[name]
	if builtin.IsLargeObject(name) && fx.st.DDL == nil { // what a definition says is evaluated on every shard
		fx.largeObject, fx.preferDefault, fx.locks = name, true, true
		return
	}
	for _, p := range builtin.ReachPrefixes {
		if !denied && strings.HasPrefix(name, p.Prefix) {
			why, denied = p.Why, true
		}
	}
	if name == "pg_listening_channels" {
		fail(sqlstate.Refusal("CLV-0236", "pg_listening_channels() is not supported: the router listens for its sessions, a shard's session to nothing of theirs").
			WithHint("keep the names in the client; LISTEN may be said again, and UNLISTEN * ends all"))
	}
	if denied && why != "" {
		fail(sqlstate.Refusal("CLV-0237", "%s() %s", name, why).WithHint("call it on the shard that you mean, directly"))
	}
	if builtin.Anywhere[name] {
		return
	}
	if strings.HasPrefix(name, "pg_") || strings.HasPrefix(name, "to_reg") || strings.HasPrefix(name, "has_") || strings.HasSuffix(name, "_description") ||
		strings.HasPrefix(name, "inet_") || name == "format_type" || name == "row_security_active" || name == "current_database" {
		fx.preferDefault = true
	}
}

func undefinedTable(name string, position int) error {
	return sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", name).At(position).
		WithDetail("The shard map has no table of that name, and a statement that uses sharded tables can use tables of the map only.").
		WithHint("SELECT * FROM cleave.tables shows the tables; create new ones through the router")
}
