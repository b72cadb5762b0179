package planner

import (
	"maps"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A text that comes out of rows may be cast to a time when a statement runs. If it is a word for the time,
// each shard would read it by its own clock. Which texts there are nobody knows before, so that the texts
// that shards get look at what they cast, and fail with WordMark in the message: the router makes a refusal of it.
// docs/design/several.md says what is looked at.

// WordMark is in the message of the error with which a shard refuses such a text, in front of the word or the text.
const WordMark = "cleave_time_word "

// CastWord is the text that a shard refused, from its message; ok is false if the error is another one.
func CastWord(message string) (text string, ok bool) {
	_, rest, ok := strings.Cut(message, WordMark)
	if !ok {
		return "", false
	}
	if from := strings.IndexByte(message, '"'); from >= 0 {
		rest = strings.ReplaceAll(message[from+1:], WordMark, "")
	}
	if to := strings.LastIndexByte(rest, '"'); to >= 0 {
		rest = rest[:to]
	}
	return rest, true
}

// What a cast reads of a text that has a word: castMark in the place (Location) of a cast says what is known of
// its operand. A place survives copies of the tree, and nobody looks at that of a cast.
const (
	// heldText: a text.
	heldText = -1001
	// heldNone: nothing that has a word in it, or one that is taken care of elsewhere; or it is looked at already.
	heldNone = -1002
)

// rowTexts are those that give a row for each.
var rowTexts = sqltext.WordSet(`unnest json_array_elements_text jsonb_array_elements_text json_object_keys jsonb_object_keys regexp_split_to_table string_to_table`)

// held says what is known of the operand of a cast: heldText, heldNone, or 0 for nothing.
func held(ty *semantics.Typer, n *pg.Node, sc *semantics.Scope) int32 {
	switch v := n.GetNode().(type) {
	case nil, *pg.Node_ParamRef, *pg.Node_SqlvalueFunction, *pg.Node_BoolExpr, *pg.Node_NullTest:
		return heldNone
	case *pg.Node_AConst:
		if s := v.AConst.GetSval(); s != nil && (datetime.HasLetters(s.Sval) || datetime.HasSpecial(s.Sval)) {
			return heldText
		}
		return heldNone
	case *pg.Node_TypeCast:
		switch names := sqltree.Strings(v.TypeCast.TypeName.GetNames()); {
		case datetime.CastReads(v.TypeCast.TypeName, ty.Hidden()) == datetime.OfUserType:
			return 0
		case !sqltree.TextType(v.TypeCast.TypeName) && !(len(names) > 0 && serverdependent.Textual(names[len(names)-1])):
			return heldNone
		case len(v.TypeCast.TypeName.ArrayBounds) > 0:
			return 0
		case v.TypeCast.Arg.GetAConst() != nil || v.TypeCast.Arg.GetTypeCast() != nil && held(ty, v.TypeCast.Arg, sc) == heldNone:
			return held(ty, v.TypeCast.Arg, sc)
		}
		return heldText
	case *pg.Node_AArrayExpr:
		return heldElements(ty, v.AArrayExpr.Elements, sc)
	case *pg.Node_RowExpr:
		return heldElements(ty, v.RowExpr.Args, sc)
	case *pg.Node_CoalesceExpr:
		return heldAll(ty, v.CoalesceExpr.Args, sc)
	case *pg.Node_MinMaxExpr:
		return heldAll(ty, v.MinMaxExpr.Args, sc)
	case *pg.Node_CaseExpr:
		all := []*pg.Node{v.CaseExpr.Defresult}
		for _, w := range v.CaseExpr.Args {
			all = append(all, w.GetCaseWhen().GetResult())
		}
		return heldAll(ty, all, sc)
	case *pg.Node_AExpr:
		switch op := sqltree.Operator(v.AExpr); {
		case v.AExpr.Kind == pg.A_Expr_Kind_AEXPR_NULLIF:
			return held(ty, v.AExpr.Lexpr, sc)
		case v.AExpr.Kind != pg.A_Expr_Kind_AEXPR_OP || len(v.AExpr.Name) != 1:
			return 0
		case op == "->>", op == "#>>":
			return heldText
		case op == "+", op == "-", op == "*", op == "/":
			return heldNone
		}
	case *pg.Node_FuncCall:
		name, names := sqltree.CallName(v.FuncCall), sqltree.Strings(v.FuncCall.Funcname)
		if len(names) > 1 && names[0] != "pg_catalog" || len(names) == 1 && (ty.Hidden() || ty.UserFunction(names) != nil) {
			return 0
		}
		switch args := v.FuncCall.Args; {
		case functions.PlainCalls[name]:
			return heldNone
		case functions.TextGiven[name]:
			return heldText
		case len(args) > 0 && (name == "min" || name == "max" || name == "lag" || name == "lead" || name == "first_value" || name == "last_value" || name == "nth_value"):
			return held(ty, args[0], sc)
		case len(args) == 1 && timeCall(ty, v.FuncCall) != datetime.None:
			return heldNone
		}
	}
	switch oid := ty.TypeOf(n, sc); oid {
	case pgoid.Text, pgoid.Varchar, pgoid.Bpchar, oidName:
		return heldText
	case pgoid.Unknown, 0:
	default:
		if oid < pgoid.FirstNormal && !textArrays[oid] && oid != oidRecord {
			return heldNone
		}
	}
	return 0
}

const (
	oidName   = 19
	oidRecord = 2249
)

// textArrays are the types whose values are lists of texts, or names of other types.
var textArrays = map[uint32]bool{1002: true, 1003: true, 1009: true, 1014: true, 1015: true, 2287: true, 2275: true, 18: true}

// heldAll is held of one of several values: texts and constants among them are texts.
func heldAll(ty *semantics.Typer, list []*pg.Node, sc *semantics.Scope) int32 {
	out, others, constants := int32(heldNone), false, false
	for _, n := range list {
		if n == nil {
			continue
		}
		switch h := held(ty, n, sc); {
		case n.GetAConst() != nil:
			constants = constants || h == heldText
		case h == 0 || n.GetParamRef() != nil:
			return 0
		case h == heldText:
			out = h
		default:
			others = true
		}
	}
	switch {
	case out == heldText || !constants:
		return out
	case others: // of the type of the others, perhaps
		return 0
	}
	return heldText
}

// heldElements is heldAll of values that PostgreSQL casts one by one. Literals among them are asked for (InputQuestion).
func heldElements(ty *semantics.Typer, list []*pg.Node, sc *semantics.Scope) int32 {
	return heldAll(ty, slices.DeleteFunc(slices.Clone(list), func(n *pg.Node) bool { return isInput(n.GetAConst()) }), sc)
}

// timeCall says how a call that is a cast reads its argument: date(t).
func timeCall(ty *semantics.Typer, f *pg.FuncCall) datetime.Words {
	how := datetime.CallReads(f)
	if how != datetime.None && ty.UserFunction(sqltree.Strings(f.Funcname)) != nil {
		return datetime.None
	}
	return how
}

// MarkCast notes what is known of the operand of a cast, where its scope is at hand.
func (in *inputWords) MarkCast(n *pg.Node, sc *semantics.Scope) {
	switch v := n.GetNode().(type) {
	case *pg.Node_TypeCast:
		if v.TypeCast.Location > 0 && datetime.CastReads(v.TypeCast.TypeName, in.Typer.Hidden()) != datetime.None {
			if h := heldOperand(&in.Typer, v.TypeCast.Arg, sc); h != 0 {
				v.TypeCast.Location = h
			}
		}
	case *pg.Node_FuncCall:
		if v.FuncCall.Location > 0 && timeCall(&in.Typer, v.FuncCall) != datetime.None {
			if h := heldOperand(&in.Typer, v.FuncCall.Args[0], sc); h != 0 {
				v.FuncCall.Location = h
			}
		}
	}
}

// heldOperand is held of what a cast reads. A literal there has its type by the cast.
func heldOperand(ty *semantics.Typer, n *pg.Node, sc *semantics.Scope) int32 {
	inner := n
	for inner.GetTypeCast() != nil {
		inner = inner.GetTypeCast().Arg
	}
	if isInput(inner.GetAConst()) {
		return heldNone
	}
	return held(ty, n, sc)
}

// guarded has the casts of a tree look at what they read. It changes the tree.
func (in *inputWords) guarded(n *pg.Node) {
	if in.texts.guard {
		g := &wordGuard{&in.Typer}
		g.message(n.ProtoReflect())
	}
}

// guards reports whether guarded would change something.
func (in *inputWords) guards(n *pg.Node) bool {
	if n == nil || !in.texts.guard {
		return false
	}
	some := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch m.(type) {
		case *pg.TypeCast, *pg.FuncCall, *pg.JsonTable, *pg.JsonFuncExpr, *pg.RangeTableFunc:
			some = true
		}
		return !some
	})
	if !some {
		return false
	}
	c := sqltree.Clone(n)
	in.guarded(c)
	return !sqltree.SameNode(n, c)
}

// wordGuard changes trees of texts that shards get.
type wordGuard struct{ *semantics.Typer }

// message goes through a message, what is below first.
func (g *wordGuard) message(m protoreflect.Message) {
	name := ""
	target, _ := m.Interface().(*pg.ResTarget)
	if target != nil && target.Name == "" && target.Val != nil {
		name = outputname.Of(target.Val)
	}
	if c, ok := m.Interface().(*pg.CaseExpr); ok {
		if cast := viewRow(c); cast != nil {
			cast.Location = heldNone
		}
	}
	sqltree.Below(m, g.message)
	switch v := m.Interface().(type) {
	case *pg.ResTarget:
		if name != "" && outputname.Of(v.Val) != name {
			v.Name = name
		}
	case *pg.TypeCast:
		if reads := datetime.CastReads(v.TypeName, g.Typer.Hidden()); v.Location > 0 || v.Location == heldText {
			if reads != datetime.None && !g.wholeRow(v) {
				v.Arg = g.elements(v.Arg, reads, v.Location == heldText)
			}
			v.Location = heldNone
		}
	case *pg.FuncCall:
		if v.Location <= 0 && v.Location != heldText {
			return
		}
		if reads := timeCall(g.Typer, v); reads != datetime.None {
			v.Args[0], v.Location = g.operand(v.Args[0], reads, v.Location == heldText), heldNone
		}
		if own := castFunction(&g.Namespace, v); own != nil {
			for i, n := range v.Args {
				v.Args[i] = g.argument(n, own)
			}
			v.Location = heldNone
		}
		switch name := sqltree.CallName(v); name {
		case "json_populate_record", "json_populate_recordset", "jsonb_populate_record", "jsonb_populate_recordset":
			if len(v.Args) > 1 {
				if fields, known := g.rowReads(v.Args[0]); !known || len(fields) > 0 {
					v.Args[1], v.Location = g.document(v.Args[1], name, fields), heldNone
				}
			}
		}
	case *pg.RangeFunction:
		for _, f := range v.Functions {
			items := f.GetList().GetItems()
			if len(items) == 0 {
				continue
			}
			call := items[0].GetFuncCall()
			types := v.Coldeflist
			if len(items) > 1 {
				types = append(slices.Clone(types), items[1].GetList().GetItems()...)
			}
			switch name := sqltree.CallName(call); name {
			case "json_to_record", "json_to_recordset", "jsonb_to_record", "jsonb_to_recordset":
				var fields []string
				for _, n := range types {
					if c := n.GetColumnDef(); datetime.CastReads(c.GetTypeName(), g.Typer.Hidden()) != datetime.None {
						fields = append(fields, c.Colname)
					}
				}
				if len(call.Args) == 1 && call.Location > 0 && len(fields) > 0 {
					call.Args[0], call.Location = g.document(call.Args[0], name, fields), heldNone
				}
			}
		}
	case *pg.JsonTable:
		if v.Location > 0 && g.anyReads(v) {
			v.ContextItem.RawExpr, v.Location = g.operand(v.ContextItem.RawExpr, datetime.InJSON, false), heldNone
		}
	case *pg.JsonFuncExpr:
		if v.Location > 0 && v.Output != nil && datetime.CastReads(v.Output.TypeName, g.Typer.Hidden()) != datetime.None {
			v.ContextItem.RawExpr, v.Location = g.operand(v.ContextItem.RawExpr, datetime.InJSON, false), heldNone
		}
	case *pg.RangeTableFunc:
		if v.Location > 0 && g.anyReads(v) {
			v.Docexpr, v.Location = g.operand(v.Docexpr, datetime.InXML, false), heldNone
		}
	}
}

// anyReads reports whether one of the columns that a table made of a document declares may be a time.
func (g *wordGuard) anyReads(m interface{ ProtoReflect() protoreflect.Message }) bool {
	found := false
	sqltree.Descend(m.ProtoReflect(), func(m protoreflect.Message) bool {
		switch c := m.Interface().(type) {
		case *pg.JsonTableColumn:
			found = found || c.TypeName != nil && datetime.CastReads(c.TypeName, g.Typer.Hidden()) != datetime.None
		case *pg.RangeTableFuncCol:
			found = found || c.TypeName != nil && datetime.CastReads(c.TypeName, g.Typer.Hidden()) != datetime.None
		}
		return true
	})
	return found
}

// rowReads are the columns of a row that may be times. They are known for NULL::table.
func (g *wordGuard) rowReads(base *pg.Node) (columns []string, known bool) {
	c := base.GetTypeCast()
	names := sqltree.Strings(c.GetTypeName().GetNames())
	if c == nil || len(names) == 0 || len(names) > 2 || len(c.TypeName.ArrayBounds) > 0 {
		return nil, false
	}
	v := &pg.RangeVar{Relname: names[len(names)-1]}
	if len(names) == 2 {
		v.Schemaname = names[0]
	}
	t := g.Relation(v).Table
	if t == nil {
		return nil, false
	}
	for _, c := range t.Columns {
		if datetime.ReadingOf(c.OID) != datetime.AsText {
			columns = append(columns, c.Name)
		}
	}
	return columns, true
}

// wholeRow reports whether a cast is of ROW(t.*) to the row type of a table that has no times, so that it reads none.
func (g *wordGuard) wholeRow(c *pg.TypeCast) bool {
	if !slices.ContainsFunc(c.Arg.GetRowExpr().GetArgs(), func(n *pg.Node) bool {
		fields := n.GetColumnRef().GetFields()
		return len(fields) > 0 && fields[len(fields)-1].GetAStar() != nil
	}) {
		return false
	}
	if fields, known := g.rowReads(&pg.Node{Node: &pg.Node_TypeCast{TypeCast: c}}); !known || len(fields) > 0 {
		fail(sqlstate.Refusal("CLV-0610", "the columns that ROW(t.*) stands for are cast to a type that may read words for the time, which each shard would read by its own clock").
			WithHint("Name the columns: ROW(t.a, t.b)."))
	}
	return true
}

// document looks at the JSON that a function makes a row of: at the fields, if they are known and it is one row.
func (g *wordGuard) document(n *pg.Node, function string, fields []string) *pg.Node {
	if n.GetAConst() != nil && !isInput(n.GetAConst()) {
		return n
	}
	typ := "json"
	if strings.HasPrefix(function, "jsonb") {
		typ = "jsonb"
	}
	if n.GetParamRef() != nil || n.GetAConst() != nil {
		n = sqltree.CastNode(n, typ, nil)
	}
	if len(fields) == 0 || strings.HasSuffix(function, "set") || g.onlyOnce(n) {
		return g.operand(n, datetime.InJSON, false)
	}
	values := []*pg.Node{textConst(`"`)}
	for _, f := range fields {
		values = append(values, sqltree.CallNode(typ+"_extract_path_text", sqltree.Clone(n), textConst(f)))
	}
	return g.raising(sqltree.CallNode("concat_ws", values...), datetime.InJSON, n)
}

// onlyOnce reports whether a value is to be computed once.
func (g *wordGuard) onlyOnce(n *pg.Node) bool {
	query := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		_, is := m.(*pg.SelectStmt)
		query = query || is
		return !query
	})
	return query || g.IsVolatile(n)
}

// elements looks at the operand of a cast: of an array or a row at the values, which PostgreSQL casts one by one.
func (g *wordGuard) elements(n *pg.Node, reads datetime.Words, text bool) *pg.Node {
	var list []*pg.Node
	switch v := n.GetNode().(type) {
	case *pg.Node_AArrayExpr:
		if list = v.AArrayExpr.Elements; reads == datetime.Inside {
			reads = datetime.Alone
		}
	case *pg.Node_RowExpr:
		list = v.RowExpr.Args
	default:
		return g.operand(n, reads, text)
	}
	for i, n := range list {
		list[i] = g.elements(n, reads, text)
	}
	return n
}

// operand is a value that fails if it has a word for the time, and else is what it was. text: it is known to be one.
func (g *wordGuard) operand(n *pg.Node, reads datetime.Words, text bool) *pg.Node {
	if c := n.GetAConst(); c != nil && !datetime.HasLetters(c.GetSval().GetSval()) && !isInput(c) || n.GetParamRef() != nil || n.GetSetToDefault() != nil {
		return n
	}
	if c := n.GetTypeCast(); c != nil {
		if word, _ := sqltree.ClockLiteral(c); word != "" {
			return n
		}
	}
	plain := func() *pg.Node { return collateC(sqltree.CastNode(sqltree.Clone(n), "text", nil)) }
	builtin := reads == datetime.Alone || reads == datetime.Inside
	rows, windows, queries := false, false, false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.SelectStmt:
			queries = true
			return false
		case *pg.FuncCall:
			rows, windows = rows || rowTexts[sqltree.CallName(v)], windows || v.Over != nil
		}
		return true
	})
	switch {
	case rows && !builtin, windows && (queries || g.IsVolatile(n)):
		fail(sqlstate.Refusal("CLV-0611", "a value that each shard could read as a word for the time by its own clock is cast where that cannot be looked at").
			WithHint("Compute it in a subquery of FROM, and cast the subquery's column."))
	case rows:
		return marked(plain(), reads) // a function that gives rows may not stand in CASE
	case queries || g.IsVolatile(n): // it is to be run once
		const name = "cleave_word"
		v := sqltree.ColumnNode(name, "v")
		inner := sqltree.EmptySelect()
		inner.TargetList, inner.LimitOffset, inner.LimitOption = []*pg.Node{sqltree.TargetNode(n, "v")}, sqltree.IntNode(0), pg.LimitOption_LIMIT_OPTION_COUNT
		s := sqltree.SelectOf([]*pg.Node{g.operand(v, reads, text)}, []*pg.Node{{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: sqltree.SelectNode(inner), Alias: &pg.Alias{Aliasname: name}}}}}, nil)
		return &pg.Node{Node: &pg.Node_SubLink{SubLink: &pg.SubLink{SubLinkType: pg.SubLinkType_EXPR_SUBLINK, Subselect: s}}}
	case text && builtin:
		// Two letters, one of which is in each of the words and none of which is in most times, before the words: half the time.
		return caseNode(sqltree.CallNode("textregexeq", plain(), textConst("[wWyY]")), marked(plain(), reads), n)
	}
	looked := sqltree.CastNode(sqltree.Clone(n), "text", nil)
	if reads == datetime.OfUserType {
		looked = sqltree.CallNode("translate", looked, textConst(`"\`), textConst(""))
	}
	return g.raising(looked, reads, n)
}

// raising is a value that fails if a text of it has a word.
func (g *wordGuard) raising(text *pg.Node, reads datetime.Words, n *pg.Node) *pg.Node {
	raised := &pg.Node{Node: &pg.Node_NullTest{NullTest: &pg.NullTest{Arg: sqltree.CastNode(sqltree.CallNode("concat", textConst(WordMark), sqltree.Clone(text)), "date", nil), Nulltesttype: pg.NullTestType_IS_NULL}}}
	null := &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Isnull: true}}}
	return caseNode(caseNode(sqltree.CallNode("texticregexeq", collateC(sqltree.Clone(text)), textConst(wordPatterns[reads])), raised, nil), null, n)
}

// marked is a text with WordMark before its words, which no type of times takes.
func marked(n *pg.Node, reads datetime.Words) *pg.Node {
	return sqltree.CallNode("regexp_replace", n, textConst(wordPatterns[reads]), textConst(WordMark+`\&`), textConst("i"))
}

// caseNode is CASE WHEN cond THEN then ELSE other END.
func caseNode(cond, then, other *pg.Node) *pg.Node {
	when := &pg.Node{Node: &pg.Node_CaseWhen{CaseWhen: &pg.CaseWhen{Expr: cond, Result: then}}}
	return &pg.Node{Node: &pg.Node_CaseExpr{CaseExpr: &pg.CaseExpr{Args: []*pg.Node{when}, Defresult: other}}}
}

func collateC(n *pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_CollateClause{CollateClause: &pg.CollateClause{Arg: n, Collname: []*pg.Node{sqltree.StringNode("pg_catalog"), sqltree.StringNode("C")}}}}
}

// wordPatterns are regular expressions, for letters of either case, that match what a type may read as a word. A time
// has the letters one after the other, whatever stands around them; elsewhere there may be marks of quotation
// between them. What may be a plain text as well has a word as HasTimeWord means it.
var wordPatterns = map[datetime.Words]string{}

// patterns are all of them: no words themselves, in a text that was made of another one.
var patterns []string

func init() {
	words := []string{"now", "today", "tomorrow", "yesterday"}
	wordPatterns[datetime.Alone] = strings.Join(words, "|")
	var spread []string
	for _, w := range words {
		spread = append(spread, strings.Join(strings.Split(w, ""), `["\\]*`))
	}
	wordPatterns[datetime.Inside] = strings.Join(spread, "|")
	const inside = `[^][{}(),"<>`
	all := slices.Sorted(slices.Values(slices.Concat(words, slices.Collect(maps.Keys(datetime.ZoneNames)))))
	own := `(?:^|[][{}(),"<>])(?=` + inside + `]*(?:` + wordPatterns[datetime.Alone] + `))` +
		`(?:\\[bfnrt]|(?:` + strings.Join(all, "|") + `)(?![a-z])|[a-z_]*/[a-z_/]*|[a-z]+[-+]?(?=[0-9])|` + inside + `a-z])*(?:$|[][{}(),<>]|"(?!\s*:))` // the names in JSON are none
	wordPatterns[datetime.OfUserType] = own
	// A value of a document may be an array or a row, with marks between the letters.
	for i, w := range words {
		own += `|(?!` + w + `)` + spread[i]
	}
	wordPatterns[datetime.InJSON] = own + `|\\u00[4-7]` // a letter that is written by its number
	wordPatterns[datetime.InXML] = own + `|&#|<!`
	wordPatterns[datetime.InCall] = wordPatterns[datetime.InJSON]
	wordPatterns[datetime.InParts] = wordPatterns[datetime.Inside] + `|\\u00[4-7]`
	patterns = slices.Collect(maps.Values(wordPatterns))
}

// guarding reports whether the texts of this statement are to look: they do so already where it was made of another
// one, and some shards read no words.
func (a *analyzer) guarding() bool {
	return !strings.Contains(a.SQL, WordMark) && anyClock(&a.Namespace)
}

// anyClock reports whether there is a shard that reads words as times, by its own clock.
func anyClock(ns *semantics.Namespace) bool {
	return slices.ContainsFunc(ns.Snapshot.State().Shards, func(s shardmap.Shard) bool { return s.Can().Clock })
}

// RefuseCastWord is the refusal of a text that CastWord found.
func RefuseCastWord(text string) *sqlstate.Error {
	return sqlstate.Refusal("CLV-0612", "the text %s, cast to a time, has a word for the time, which each shard would read by its own clock", sqltext.QuoteString(text)).
		WithHint("Write the time into such rows before: UPDATE ... SET column = now()::text WHERE column = 'now'; or leave the cast out for them: CASE WHEN column = 'now' THEN now() ELSE column::timestamptz END.")
}

// castFunction returns the function of the user's that a call means, if it casts its arguments.
func castFunction(ns *semantics.Namespace, f *pg.FuncCall) *shardmap.Function {
	names := sqltree.Strings(f.Funcname)
	if len(names) == 0 || (len(names) == 1 && ns.Hides(names) == nil || len(names) > 1 && names[len(names)-2] == "pg_catalog") && builtin.Has(names[len(names)-1]) {
		return nil
	}
	if own := ns.UserFunction(names); own != nil && own.Casts > 0 {
		return own
	}
	return nil
}

// argument looks at an argument of a function that casts it, or parts of it.
func (g *wordGuard) argument(n *pg.Node, own *shardmap.Function) *pg.Node {
	reads := datetime.InCall
	if own.Casts > functions.CastsTexts {
		reads = datetime.InParts
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_NamedArgExpr:
		v.NamedArgExpr.Arg = g.argument(v.NamedArgExpr.Arg, own)
		return n
	case *pg.Node_TypeCast:
		if functions.PlainType(v.TypeCast.TypeName) {
			return n
		}
	case *pg.Node_AConst:
		if s := v.AConst.GetSval(); s != nil && reads == datetime.InParts && datetime.HasLetters(s.Sval) {
			fail(sqlstate.Refusal("CLV-0607", "the text %s has the letters of a word for the time, and function %s() casts parts of its arguments: each shard could read it by its own clock", sqltext.QuoteString(s.Sval), own.QualifiedName()).
				WithHint("Cast outside of the function, or declare it IMMUTABLE if none of its casts meets such a word."))
		}
		return n
	case *pg.Node_ParamRef:
		return g.raising(sqltree.CastNode(sqltree.Clone(n), "text", nil), reads, n)
	}
	return g.operand(n, reads, false)
}
