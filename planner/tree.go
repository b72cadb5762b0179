package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/sqlstate"
)

// The texts that shards get are made by changing copies of the statement's tree
// and printing them. A text counts only if reading it again gives the same tree,
// so that nothing rests on the printer.

// clone copies a tree or a part of one.
func clone[T proto.Message](m T) T { return proto.Clone(m).(T) }

// text prints one statement, whose casts look for words for the time. 0A000 if the printed text would mean another.
func (a *analyzer) text(stmt *pg.Node) (string, error) {
	if err := a.p.parser().GoesOn(); err != nil {
		fail(err)
	}
	a.guarded(stmt)
	if out, ok := restate(stmt); ok && a.p.check(out) == nil {
		return out, nil
	}
	return "", sqlstate.Refusal("CLV-0272", "the statement has a form that the router cannot rewrite for several shards").
		WithHint("write it in a simpler way, or add the shard key to the WHERE clause")
}

// inspect calls f for m and all below it, parents first; f says whether to go below.
func inspect(m proto.Message, f func(m proto.Message) bool) {
	if m == nil || !m.ProtoReflect().IsValid() {
		return
	}
	inspectMessage(m.ProtoReflect(), f)
}

// below calls f for each message that is a field of m, or in a list that is.
func below(m protoreflect.Message, f func(protoreflect.Message)) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		if !fd.IsList() {
			f(v.Message())
			return true
		}
		for i := range v.List().Len() {
			f(v.List().Get(i).Message())
		}
		return true
	})
}

func inspectMessage(m protoreflect.Message, f func(m proto.Message) bool) {
	if !f(m.Interface()) {
		return
	}
	below(m, func(v protoreflect.Message) { inspectMessage(v, f) })
}

// inspectAll is inspect of a list.
func inspectAll(list []*pg.Node, f func(m proto.Message) bool) {
	for _, n := range list {
		inspect(n, f)
	}
}

// replace calls f for every node below n, parents first, and puts in its place
// what f returns if that is another node; then it does not go below. It changes n.
func replace(n *pg.Node, f func(n *pg.Node) *pg.Node) *pg.Node {
	if n == nil {
		return nil
	}
	if r := f(n); r != n {
		return r
	}
	replaceMessage(n.ProtoReflect(), f)
	return n
}

func replaceMessage(m protoreflect.Message, f func(n *pg.Node) *pg.Node) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		one := func(v protoreflect.Value, set func(protoreflect.Value)) {
			if n, ok := v.Message().Interface().(*pg.Node); ok {
				if r := f(n); r != n {
					set(protoreflect.ValueOfMessage(r.ProtoReflect()))
					return
				}
			}
			replaceMessage(v.Message(), f)
		}
		if fd.IsList() {
			l := v.List()
			for i := range l.Len() {
				one(l.Get(i), func(v protoreflect.Value) { l.Set(i, v) })
			}
			return true
		}
		one(v, func(v protoreflect.Value) { m.Set(fd, v) })
		return true
	})
}

// eachCall calls f for the function calls of one query level: those of its
// clauses, not of its FROM list's subqueries or of subqueries in expressions.
func eachCall(s *pg.SelectStmt, f func(*pg.FuncCall)) {
	for _, list := range [][]*pg.Node{s.DistinctClause, s.TargetList, s.GroupClause, {s.HavingClause}, s.WindowClause, s.SortClause, {s.WhereClause}} {
		inspectAll(list, func(m proto.Message) bool {
			switch v := m.(type) {
			case *pg.SelectStmt:
				return false
			case *pg.FuncCall:
				f(v)
			}
			return true
		})
	}
}

// callsNamed reports whether there is a call of a function of that name.
func callsNamed(m proto.Message, name string) bool {
	found := false
	inspect(m, func(m proto.Message) bool {
		f, is := m.(*pg.FuncCall)
		found = found || is && callName(f) == name
		return !found
	})
	return found
}

// callName is the last part of a function's name, "" if f is nil.
func callName(f *pg.FuncCall) string {
	names := strs(f.GetFuncname())
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// isAggregate reports whether a call is of an aggregate function, and not as a
// window function.
func (ns *namespace) isAggregate(f *pg.FuncCall) bool {
	return f.Over == nil && (strings.Contains(ns.kindOf(f), "a") || f.AggStar || f.AggDistinct || f.AggFilter != nil || f.AggWithinGroup || len(f.AggOrder) > 0)
}

// isVolatile reports whether an expression, or a query, calls a volatile function.
func (ns *namespace) isVolatile(m proto.Message) bool {
	found := false
	inspect(m, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			kind := ns.kindOf(f)
			found = found || kind == "" || strings.HasPrefix(kind, "v") && !ns.steady[f]
		}
		return !found
	})
	return found
}

// fresh returns a name for a temporary relation of the plan.
func (rd *reading) fresh() string {
	rd.names++
	return RelationPrefix + itoa(rd.names)
}

const (
	// RelationPrefix begins the names of a plan's temporary relations, and of the columns that the router adds to texts.
	RelationPrefix = "cleave_rel_"
	// hiddenPrefix begins those of columns by which rows of several shards are merged.
	hiddenPrefix = "cleave_key_"
)

// ownNames refuses names that the router gives in texts that it makes: in these, and to begin with, where something is named.
func ownNames(sql string) error {
	text := strings.ToLower(sql)
	for _, prefix := range []string{RelationPrefix, hiddenPrefix} {
		if strings.Contains(text, prefix) {
			return sqlstate.Refusal("CLV-0273", "names that begin with %s are the router's own", prefix).WithHint("use another name")
		}
	}
	return nil
}

// clockOps are the SQL values that are the transaction's time.
var clockOps = map[pg.SQLValueFunctionOp]string{
	pg.SQLValueFunctionOp_SVFOP_CURRENT_DATE: "date", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIME: "timetz", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIME_N: "timetz",
	pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP: "timestamptz", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP_N: "timestamptz",
	pg.SQLValueFunctionOp_SVFOP_LOCALTIME: "time", pg.SQLValueFunctionOp_SVFOP_LOCALTIME_N: "time",
	pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP: "timestamp", pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP_N: "timestamp",
}

// clocked replaces now() and its relatives in a tree by the parameter of
// Plan.Clock. It changes the tree. The names of output columns stay.
func (a *analyzer) clocked(n *pg.Node) *pg.Node {
	var f func(n *pg.Node) *pg.Node
	f = func(n *pg.Node) *pg.Node {
		switch v := n.GetNode().(type) {
		case *pg.Node_ResTarget:
			r := v.ResTarget
			if r.Name == "" && r.Val != nil && usesClock(r.Val) {
				r.Name = figureName(r.Val)
			}
		case *pg.Node_FuncCall:
			switch {
			case isClock(v.FuncCall):
				a.native(v.FuncCall)
				return a.clockParam()
			case isAge(v.FuncCall):
				a.native(v.FuncCall)
				// age(x) is age(current_date::timestamp, x); which type x has is the server's to say.
				v.FuncCall.Args = []*pg.Node{castNode(castNode(a.clockParam(), "date", nil), "timestamp", nil), replace(v.FuncCall.Args[0], f)}
				return n
			}
		case *pg.Node_TypeCast:
			if word, typ := clockLiteral(v.TypeCast); word != "" {
				return castNode(a.clockWord(word), typ, v.TypeCast.TypeName.Typmods)
			}
		case *pg.Node_SqlvalueFunction:
			if typ := clockOps[v.SqlvalueFunction.Op]; typ != "" {
				var mod []*pg.Node
				if m := v.SqlvalueFunction.Typmod; m >= 0 {
					mod = []*pg.Node{intNode(int64(m))}
				}
				return castNode(a.clockParam(), typ, mod)
			}
		}
		return n
	}
	return replace(n, f)
}

func isClock(f *pg.FuncCall) bool {
	if names := strs(f.Funcname); len(names) > 1 && names[len(names)-2] != "pg_catalog" {
		return false
	}
	switch callName(f) {
	case "now", "transaction_timestamp":
		return len(f.Args) == 0
	}
	return false
}

// isAge reports whether a call is age() of one value, which counts from the transaction's day.
func isAge(f *pg.FuncCall) bool {
	names := strs(f.Funcname)
	return len(f.Args) == 1 && callName(f) == "age" && (len(names) == 1 || names[len(names)-2] == "pg_catalog")
}

// clockLiteral reads 'now'::timestamptz and its like, also ('now'::text)::date: the word, and the type.
func clockLiteral(c *pg.TypeCast) (word, typ string) {
	arg := c.Arg
	for t := arg.GetTypeCast(); t != nil && textType(t.TypeName); t = arg.GetTypeCast() {
		arg = t.Arg
	}
	s := arg.GetAConst().GetSval()
	names := strs(c.TypeName.GetNames())
	if s == nil || len(names) == 0 || len(names) == 2 && names[0] != "pg_catalog" || len(c.TypeName.ArrayBounds) > 0 {
		return "", ""
	}
	switch typ = names[len(names)-1]; typ {
	case "date", "timestamp", "timestamptz":
	case "time", "timetz":
		if !strings.EqualFold(strings.TrimSpace(s.Sval), "now") {
			return "", ""
		}
	default:
		return "", ""
	}
	switch word = strings.ToLower(strings.TrimSpace(s.Sval)); word {
	case "now", "today", "tomorrow", "yesterday":
		return word, typ
	}
	return "", ""
}

func textType(t *pg.TypeName) bool {
	names := strs(t.GetNames())
	if len(names) == 0 || len(names) == 2 && names[0] != "pg_catalog" || len(t.ArrayBounds) > 0 || len(t.Typmods) > 0 {
		return false
	}
	name := names[len(names)-1]
	return name == "text" || name == "varchar"
}

// clockWord is what such a word means.
func (a *analyzer) clockWord(word string) *pg.Node {
	day := castNode(a.clockParam(), "date", nil)
	switch word {
	case "today":
		return day
	case "tomorrow":
		return opNode("+", day, intNode(1))
	case "yesterday":
		return opNode("-", day, intNode(1))
	}
	return a.clockParam()
}

// usesClock reports whether an expression has something that clocked replaces.
func usesClock(m proto.Message) bool {
	found := false
	inspect(m, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			found = found || isClock(v) || isAge(v)
		case *pg.TypeCast:
			word, _ := clockLiteral(v)
			found = found || word != ""
		case *pg.SQLValueFunction:
			found = found || clockOps[v.Op] != ""
		}
		return !found
	})
	return found
}

// usesShardState reports whether a tree reads what differs from shard to shard and
// is no row of a table: the statement's start, system columns.
func usesShardState(m proto.Message) bool { return shardState(m) != "" }

// shardState is the first of these, a function with brackets.
func shardState(m proto.Message) string {
	found := ""
	inspect(m, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			switch name := callName(v); name {
			case "statement_timestamp", "pg_backend_pid", "pg_postmaster_start_time", "pg_conf_load_time", "pg_is_in_recovery", "inet_server_addr", "inet_server_port",
				"inet_client_addr", "inet_client_port":
				found = name + "()"
			}
		case *pg.ColumnRef:
			if names := strs(v.Fields); len(names) == len(v.Fields) {
				switch name := names[len(names)-1]; name {
				case "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid":
					found = name
				}
			}
		}
		return found == ""
	})
	return found
}

func (a *analyzer) clockParam() *pg.Node {
	a.second.clock = true
	n := a.st.Params + 1
	if a.fill != nil {
		n += len(a.fill.values)
	}
	return castNode(&pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(n)}}}, "timestamptz", nil)
}

func castNode(arg *pg.Node, typ string, mods []*pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: arg, TypeName: &pg.TypeName{
		Names: []*pg.Node{strNode("pg_catalog"), strNode(typ)}, Typmods: mods, Typemod: -1}}}}
}

func strNode(s string) *pg.Node {
	return &pg.Node{Node: &pg.Node_String_{String_: &pg.String{Sval: s}}}
}

func intNode(n int64) *pg.Node {
	if n >= -1<<31 && n < 1<<31 {
		return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Ival{Ival: &pg.Integer{Ival: int32(n)}}}}}
	}
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Fval{Fval: &pg.Float{Fval: itoa(int(n))}}}}}
}

// columnNode is a column's name as an expression.
func columnNode(names ...string) *pg.Node {
	c := &pg.ColumnRef{}
	for _, n := range names {
		c.Fields = append(c.Fields, strNode(n))
	}
	return &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: c}}
}

// targetNode is an element of a SELECT list; name "" gives it none.
func targetNode(val *pg.Node, name string) *pg.Node {
	return &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Name: name, Val: val}}}
}

func selectNode(s *pg.SelectStmt) *pg.Node {
	return &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}}
}

// callNode calls a function of pg_catalog.
func callNode(name string, args ...*pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_FuncCall{FuncCall: &pg.FuncCall{Funcname: []*pg.Node{strNode("pg_catalog"), strNode(name)}, Args: args,
		Funcformat: pg.CoercionForm_COERCE_EXPLICIT_CALL}}}
}

// tableNode names a relation in FROM.
func tableNode(name, alias string) *pg.Node {
	v := &pg.RangeVar{Relname: name, Inh: true, Relpersistence: "p"}
	if alias != "" {
		v.Alias = &pg.Alias{Aliasname: alias}
	}
	return &pg.Node{Node: &pg.Node_RangeVar{RangeVar: v}}
}

// emptySelect is a SELECT with the fields that the parser always fills.
func emptySelect() *pg.SelectStmt {
	return &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE}
}
