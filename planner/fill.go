package planner

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// madeValues puts values that the router makes into the statement, in the tree and in the text.
type madeValues struct {
	*semantics.Analysis

	fill      *filling                  // nil: none yet
	selected  map[string]plan.FillValue // what the router makes for columns of an INSERT ... SELECT
	judged    []sqltext.Edit            // of Statement.Judged
	signals   []signal
	fillNamed int8 // 0 not looked yet, 1 no, 2 yes: see namesFill
}

// filling collects the values of one statement while it is analysed.
type filling struct {
	base   int // the client's highest parameter
	values []plan.FillValue
	edits  []sqltext.Edit
}

// names one of the functions, so that the tree has to be searched.
func (mv *madeValues) namesFill() bool {
	if mv.fillNamed == 0 {
		mv.fillNamed = 1
		text := strings.ToLower(mv.SQL)
		for _, w := range []string{"next_id", "uuidv7", "nextval", "currval", "lastval", "setval", "serial_sequence", "gen_random_uuid"} {
			if strings.Contains(text, w) {
				mv.fillNamed = 2
			}
		}
	}
	return mv.fillNamed == 2
}

func (mv *madeValues) filler() *filling {
	if mv.fill == nil {
		mv.fill = &filling{}
		for _, t := range mv.Tokens() {
			if t.Kind == sqlguard.Param {
				if n, err := strconv.Atoi(mv.SQL[t.Start+1 : t.End]); err == nil {
					mv.fill.base = max(mv.fill.base, n)
				}
			}
		}
	}
	return mv.fill
}

// mark stands for value i in the text of an edit. No statement holds a NUL.
func mark(i int) string { return "\x00" + strconv.Itoa(i) + "\x00" }

// value adds a value and returns the expression for the tree and for the text.
func (mv *madeValues) value(v plan.FillValue) (node *pg.Node, text string) {
	f := mv.filler()
	f.values = append(f.values, v)
	n := len(f.values) - 1
	typ := v.Type()
	if v.Source == plan.SourceSetvals {
		typ = "bigint" // in the tree, which no shard gets, the elements
	}
	node = &pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{
		Arg: &pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(f.base + 1 + n), Location: -1}}},
		TypeName: &pg.TypeName{Names: []*pg.Node{sqltree.StringNode("pg_catalog"), sqltree.StringNode(map[string]string{"uuid": "uuid", "bigint": "int8", "integer": "int4", "text": "text", "json": "json", "inet": "inet"}[typ])},
			Typemod: -1, Location: -1},
		Location: -1,
	}}}
	return node, mark(n) + "::" + v.Type()
}

func (mv *madeValues) replace(from, to int, text string) {
	f := mv.filler()
	f.edits = append(f.edits, sqltext.Edit{From: from, To: to, Text: text})
}

// finishFill turns what was collected into the statement's Fill and Text.
func (mv *madeValues) finishFill() {
	f, st := mv.fill, mv.Statement
	if len(mv.judged) > 0 {
		if f != nil && len(f.values) > 0 {
			fail(sqlstate.Refusal("CLV-0509", "ids and the values of sequences cannot be made in this statement").
				WithHint("Take them in a statement of their own: SELECT nextval('...')."))
		}
		if f != nil {
			mv.judged = append(mv.judged, f.edits...)
		}
		st.Judged, st.Reusable = sqltext.Splice(mv.SQL, mv.judged), false
	}
	if f == nil || len(f.edits) == 0 {
		return
	}
	st.Reusable = false
	text := sqltext.Splice(mv.SQL, f.edits)
	if len(f.values) == 0 {
		st.Text = text
		return
	}
	// Beside nextval(), or a default that calls it, lastval() is what that gives.
	if !mv.Lonely() && (mv.Sequence == "nextval" || mv.Sequence == "setval" || st.Kind == plan.DefaultShard && !st.ReadOnly) &&
		slices.ContainsFunc(f.values, func(v plan.FillValue) bool { return v.Source == "lastval" }) {
		fail(sqlstate.Refusal("CLV-0510", "lastval() is not certain in a statement that may take values from the default shard's own sequences").
			WithHint("Read it in a statement of its own, and pass the value: SELECT lastval()."))
	}
	if st.Kind != plan.OneShard && st.Kind != plan.DefaultShard && st.Kind != plan.AnyShard && st.Kind != plan.Several {
		fail(sqlstate.Refusal("CLV-0509", "ids and the values of sequences cannot be made in this statement").
			WithHint("Take them in a statement of their own: SELECT nextval('...')."))
	}
	st.Params = f.base
	st.Fill = &plan.Fill{Values: f.values}
	st.Fill.Pieces, st.Fill.At, st.Text = f.marked(text, func(n int) int { return n })
}

// marked reads a text with marks: what is around them, which value each stands for, and the text with parameters, where
// value n is the parameter after number(n) others of the router's.
func (f *filling) marked(text string, number func(n int) int) (pieces []string, at []int, filled string) {
	var b strings.Builder
	for i, part := range strings.Split(text, "\x00") {
		if i%2 == 0 {
			pieces = append(pieces, part)
			b.WriteString(part)
			continue
		}
		n, _ := strconv.Atoi(part) // written by mark
		at = append(at, n)
		b.WriteString(sqltext.Dollar(f.base + 1 + number(n)))
	}
	return pieces, at, b.String()
}

// fillExpr replaces the calls in an expression that is evaluated exactly once
// for each row. Where that is not certain (CASE, AND, subqueries) it leaves them, and
// the walk refuses them.
func (mv *madeValues) fillExpr(n *pg.Node) *pg.Node {
	switch v := n.GetNode().(type) {
	case *pg.Node_FuncCall:
		if name, p := mv.sequenceParam(v.FuncCall); p > 0 {
			return mv.namedSequence(v.FuncCall, name, p)
		}
		if fv, ok := mv.FillCall(v.FuncCall); ok {
			node, text := mv.value(fv)
			from, to := mv.CallSpan(v.FuncCall)
			if fv.ValueParam > 0 {
				// The parameter stays in the text, with its type.
				text = "COALESCE(" + text + ", " + sqltext.Dollar(fv.ValueParam) + "::bigint)"
				node = &pg.Node{Node: &pg.Node_CoalesceExpr{CoalesceExpr: &pg.CoalesceExpr{Args: []*pg.Node{node, v.FuncCall.Args[1]}, Location: -1}}}
			}
			mv.replace(from, to, text)
			return node
		}
		if q := mv.SerialSequence(v.FuncCall); q != nil {
			from, to := mv.CallSpan(v.FuncCall)
			text := sqltext.QuoteString(q.QualifiedName())
			mv.replace(from, to, text+"::text")
			return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Sval{Sval: &pg.String{Sval: q.QualifiedName()}}, Location: -1}}}
		}
		for i, arg := range v.FuncCall.Args {
			v.FuncCall.Args[i] = mv.fillExpr(arg)
		}
	case *pg.Node_TypeCast:
		v.TypeCast.Arg = mv.fillExpr(v.TypeCast.Arg)
	case *pg.Node_AExpr:
		if v.AExpr.Kind == pg.A_Expr_Kind_AEXPR_OP {
			if v.AExpr.Lexpr != nil {
				v.AExpr.Lexpr = mv.fillExpr(v.AExpr.Lexpr)
			}
			v.AExpr.Rexpr = mv.fillExpr(v.AExpr.Rexpr)
		}
	}
	return n
}

// sequenceParam is the parameter that says which sequence nextval() or currval() is about, 0 if none does: the default shard
// knows where the cluster has no sequences of its own.
func (mv *madeValues) sequenceParam(f *pg.FuncCall) (name string, param int) {
	names := sqltree.Strings(f.Funcname)
	name = names[len(names)-1]
	if name != "nextval" && name != "currval" || len(names) > 1 && names[0] != "pg_catalog" || len(names) > 2 || len(f.Args) != 1 ||
		len(mv.Snapshot.State().Sequences) == 0 && !mv.Lonely() {
		return "", 0
	}
	n := f.Args[0]
	for n.GetTypeCast() != nil && slices.Contains([]string{"regclass", "text", "varchar"}, castName(n.GetTypeCast().TypeName)) {
		n = n.GetTypeCast().Arg
	}
	return name, semantics.ParamOf(n)
}

// castName is the last part of a type's name.
func castName(t *pg.TypeName) string {
	if names := sqltree.Strings(t.GetNames()); len(names) > 0 {
		return names[len(names)-1]
	}
	return ""
}

// namedSequence replaces a call whose sequence a parameter names. The parameter stays, as a text: NULL gives NULL.
func (mv *madeValues) namedSequence(f *pg.FuncCall, name string, param int) *pg.Node {
	mv.Native(f)
	node, text := mv.value(plan.FillValue{Source: name, NameParam: param})
	from, to := mv.CallSpan(f)
	mv.replace(from, to, "CASE WHEN "+sqltext.Dollar(param)+"::text IS NOT NULL THEN "+text+" END")
	given := &pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(param), Location: -1}}}
	is := &pg.Node{Node: &pg.Node_NullTest{NullTest: &pg.NullTest{Arg: sqltree.CastNode(given, "text", nil), Nulltesttype: pg.NullTestType_IS_NOT_NULL, Location: -1}}}
	when := &pg.Node{Node: &pg.Node_CaseWhen{CaseWhen: &pg.CaseWhen{Expr: is, Result: node, Location: -1}}}
	return &pg.Node{Node: &pg.Node_CaseExpr{CaseExpr: &pg.CaseExpr{Args: []*pg.Node{when}, Location: -1}}}
}

// fillSelect evaluates the calls in a SELECT without FROM, which gives one row.
func (mv *madeValues) fillSelect(s *pg.SelectStmt) {
	if mv.namesFill() && (mv.fillSeries(s) || mv.fillSetvals(s)) {
		return
	}
	if !mv.namesFill() || !listAlone(s) || len(s.FromClause) > 0 || s.WhereClause != nil {
		return
	}
	for _, n := range s.TargetList {
		r := n.GetResTarget()
		if r == nil {
			return
		}
	}
	mv.LastAlone = !strings.Contains(strings.ToLower(strings.ReplaceAll(mv.SQL, "lastval", "")), "val")
	defer func() { mv.LastAlone = false }()
	for _, n := range s.TargetList {
		r := n.GetResTarget()
		name := outputname.Of(r.Val)
		before := 0
		if mv.fill != nil {
			before = len(mv.fill.edits)
		}
		r.Val = mv.fillExpr(r.Val)
		if mv.fill == nil || len(mv.fill.edits) == before || r.Name != "" || name == "?column?" {
			continue
		}
		// The column keeps the name that the call gave it.
		end := mv.TargetEnd(r)
		mv.replace(end, end, " AS "+sqltext.QuoteAlways(name))
	}
}

// fillSetvals reads SELECT setval('s', max(id)) FROM t, by which clients set a sequence behind rows that they brought
// along. The router asks for the arguments in a statement of its own, sets the values, and gives them.
func (mv *madeValues) fillSetvals(s *pg.SelectStmt) bool {
	if !listAlone(s) || len(s.TargetList) != 1 {
		return false
	}
	t := s.TargetList[0].GetResTarget()
	call := t.GetVal().GetFuncCall()
	if call == nil || !mv.IsSetval(call) {
		return false
	}
	if _, simple := semantics.SetvalArgs(call); simple && len(s.FromClause) == 0 && s.WhereClause == nil {
		return false
	}
	q := mv.SequenceArg(call.Args[0])
	text, ok := argumentsOf(s, call)
	if q == nil || !ok {
		return false
	}
	mv.Native(call)
	node, mark := mv.value(plan.FillValue{Source: plan.SourceSetvals, Sequence: q, Asks: text})
	name := sqltext.QuoteAlways(columnOf(t))
	mv.replaceAll("SELECT " + name + " FROM pg_catalog.unnest(" + mark + ") AS set_values(" + name + ")")
	t.Val, s.FromClause, s.WhereClause = node, nil, nil
	return true
}

// argumentsOf is the query of a setval()'s second and third arguments; ok is false if it has parameters, or cannot be written.
func argumentsOf(s *pg.SelectStmt, call *pg.FuncCall) (text string, ok bool) {
	params := false
	sqltree.Inspect(s, func(m proto.Message) bool {
		_, param := m.(*pg.ParamRef)
		params = params || param
		return true
	})
	if params {
		return "", false
	}
	asks := proto.Clone(s).(*pg.SelectStmt)
	asks.TargetList = nil
	for i, typ := range []string{"int8", "bool"}[:len(call.Args)-1] {
		arg := call.Args[i+1]
		if c := arg.GetAConst(); c.GetSval() != nil || c.GetIsnull() {
			arg = sqltree.CastNode(arg, typ, nil) // as the function would take it
		}
		asks.TargetList = append(asks.TargetList, sqltree.TargetNode(arg, ""))
	}
	return sqltree.Restate(sqltree.SelectNode(asks))
}

// listAlone reports whether a SELECT has nothing but its list, FROM and WHERE.
func listAlone(s *pg.SelectStmt) bool {
	return s.Op == pg.SetOperation_SETOP_NONE && len(s.ValuesLists) == 0 && s.WithClause == nil && s.IntoClause == nil && s.GroupClause == nil &&
		s.HavingClause == nil && s.SortClause == nil && s.LimitCount == nil && s.LimitOffset == nil && s.DistinctClause == nil &&
		s.WindowClause == nil && s.LockingClause == nil
}

// ColumnOf is the name of an output column.
func columnOf(t *pg.ResTarget) string {
	if t.Name != "" {
		return t.Name
	}
	return outputname.Of(t.Val)
}

// replaceAll replaces the whole statement, but for a semicolon behind it.
func (mv *madeValues) replaceAll(text string) {
	ts := mv.Tokens()
	last := len(ts) - 1
	for last > 0 && mv.Punct(last, ';') {
		last--
	}
	mv.replace(ts[0].Start, ts[last].End, text)
}

// seriesMax bounds the values that one SELECT takes.
const seriesMax = 10_000

// fillSeries reads SELECT nextval('s') FROM generate_series(1, 100), by which
// clients take many values at a time, and makes a list of VALUES of it.
func (mv *madeValues) fillSeries(s *pg.SelectStmt) bool {
	if !listAlone(s) || len(s.FromClause) != 1 || len(s.TargetList) != 1 || s.WhereClause != nil {
		return false
	}
	r := s.FromClause[0].GetRangeFunction()
	t := s.TargetList[0].GetResTarget()
	call := t.GetVal().GetFuncCall()
	if r == nil || call == nil || len(r.Functions) != 1 || r.Ordinality || r.Lateral || r.IsRowsfrom || r.Coldeflist != nil {
		return false
	}
	items := r.Functions[0].GetList().GetItems()
	if len(items) == 0 {
		return false
	}
	f := items[0].GetFuncCall()
	if names := sqltree.Strings(f.GetFuncname()); f == nil || len(f.Args) != 2 || names[len(names)-1] != "generate_series" {
		return false
	}
	low, high := f.Args[0].GetAConst().GetIval(), f.Args[1].GetAConst().GetIval()
	if low == nil || high == nil {
		return false
	}
	v, ok := mv.FillCall(call)
	n := int64(high.Ival) - int64(low.Ival) + 1
	if !ok || v.ValueParam > 0 || n < 1 {
		return false
	}
	if n > seriesMax {
		fail(sqlstate.Refusal("CLV-0519", "one statement takes at most %s values", strconv.Itoa(seriesMax)).
			WithHint("Take them in several statements."))
	}
	name := sqltext.QuoteAlways(columnOf(t))
	var b strings.Builder
	b.WriteString("SELECT " + name + " FROM (VALUES ")
	for i := range n {
		node, text := mv.value(v)
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("(" + text + ")")
		t.Val = node
	}
	b.WriteString(") AS ids(" + name + ")")
	mv.replaceAll(b.String())
	return true
}
