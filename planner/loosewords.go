package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// A text with a word for the time that is not known to be a plain text, and is no cast of the
// transaction's time either, is refused: it may be an array, a range or a row of times, or be
// cast by a function. Where the types are at hand, plainWords notes the texts that are plain.

// plainWords notes texts that stand where a value of a type stands.
func (t *severalTexts) plainWords(how reads, list ...*pg.Node) {
	if how != readsText {
		return
	}
	for _, n := range list {
		c := uncollated(n).GetAConst()
		if c == nil || c.GetSval() == nil || !HasTimeWord(c.GetSval().Sval) {
			continue
		}
		if t.plain == nil {
			t.plain = map[*pg.A_Const]bool{}
		}
		t.plain[c] = true
	}
}

// uncollated is a value without its COLLATE: PostgreSQL reads a text with COLLATE as the type beside it, too.
func uncollated(n *pg.Node) *pg.Node {
	for n.GetCollateClause() != nil {
		n = n.GetCollateClause().Arg
	}
	return n
}

// textCalls are functions all of whose arguments that may be literals are texts, or read as such.
var textCalls = wordSet(`ascii bit_length btrim char_length character_length concat concat_ws convert_to decode encode format initcap left length lower lpad ltrim md5 normalize octet_length
		overlay parse_ident position quote_ident quote_literal quote_nullable regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
		regexp_substr similar_to_escape similar_escape like_escape repeat replace reverse right rpad rtrim split_part starts_with string_agg string_to_array string_to_table strpos substr substring textcat textlen to_ascii to_char to_number
		translate upper sha224 sha256 sha384 sha512 hashtext hashtextextended set_config current_setting pg_typeof
		json_build_object json_build_array jsonb_build_object jsonb_build_array jsonb_set jsonb_set_lax jsonb_insert jsonb_extract_path jsonb_extract_path_text json_extract_path json_extract_path_text
		jsonb_exists jsonb_path_query jsonb_path_exists jsonb_path_match jsonb_path_query_first jsonb_path_query_array jsonb_typeof json_typeof to_json to_jsonb jsonb_object json_object json_object_agg
		jsonb_object_agg json_agg jsonb_agg to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_headline ts_rank xmlcomment count pg_notify pg_column_size
		pg_advisory_lock num_nulls num_nonnulls array_agg`)

// textResult are those that give a text.
func textResult(name string) bool {
	switch name {
	case "btrim", "concat", "concat_ws", "encode", "format", "initcap", "left", "lower", "lpad", "ltrim", "md5", "overlay", "quote_ident", "quote_literal", "regexp_replace", "regexp_substr", "repeat", "replace",
		"reverse", "right", "rpad", "rtrim", "split_part", "string_agg", "substr", "substring", "to_char", "translate", "trim", "upper", "current_setting", "jsonb_extract_path_text", "json_extract_path_text",
		"array_to_string", "jsonb_typeof", "json_typeof", "to_json", "to_jsonb", "length", "count", "char_length", "strpos", "position":
		return true
	}
	return false
}

// onlyClock reports whether a call can only be one of PostgreSQL's clocks that goes on within a transaction.
func onlyClock(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	return (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") && (name == "statement_timestamp" || name == "clock_timestamp")
}

// wordType is the type of an expression, also of those that are the time.
func (ty *typer) wordType(n *pg.Node, sc *scope) uint32 {
	name := ""
	switch v := n.GetNode().(type) {
	case *pg.Node_FuncCall:
		if f := v.FuncCall; sqltree.IsClock(f) || len(f.Args) == 0 && onlyClock(f) {
			return oidTimestmpz
		}
	case *pg.Node_SqlvalueFunction:
		name = sqltree.ClockOps[v.SqlvalueFunction.Op]
	case *pg.Node_TypeCast:
		if names := sqltree.Strings(v.TypeCast.TypeName.GetNames()); ty.readsType(v.TypeCast.TypeName) == readsTime {
			name = names[len(names)-1]
		}
	}
	for oid, typ := range wordTypes {
		if name == typ {
			return oid
		}
	}
	return ty.typeOf(n, sc)
}

// readsAs says how a text beside an expression would be read.
func (ty *typer) readsAs(n *pg.Node, sc *scope) reads {
	if t := ty.wordType(n, sc); t == oidUnknown {
		return readsText
	} else if t != 0 {
		return readsOf(t)
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		if names := sqltree.FieldNames(v.ColumnRef); names != nil {
			if oid := ty.oidOf(sc.resolve(names)); oid != 0 {
				return readsOf(oid)
			}
		}
	case *pg.Node_FuncCall:
		if textResult(sqltree.CallName(v.FuncCall)) && ty.onlyBuiltin(v.FuncCall) {
			return readsText
		}
	case *pg.Node_TypeCast:
		return ty.readsType(v.TypeCast.TypeName)
	case *pg.Node_AExpr:
		switch v.AExpr.Kind {
		case pg.A_Expr_Kind_AEXPR_OP:
			switch sqltree.Operator(v.AExpr) {
			case "->", "->>", "#>", "#>>":
				return readsText
			case "||":
				if ty.readsAs(v.AExpr.Lexpr, sc) == readsText || ty.readsAs(v.AExpr.Rexpr, sc) == readsText {
					return readsText
				}
			}
		}
	case *pg.Node_CollateClause:
		return readsText
	case *pg.Node_CoalesceExpr:
		return ty.readsAll(v.CoalesceExpr.Args, sc)
	case *pg.Node_MinMaxExpr:
		return ty.readsAll(v.MinMaxExpr.Args, sc)
	}
	return readsUnsure
}

// readsAll is how a text among expressions of one type is read.
func (ty *typer) readsAll(list []*pg.Node, sc *scope) reads {
	how := readsText
	for _, n := range list {
		if n == nil {
			continue
		}
		if r := ty.readsAs(n, sc); r != readsText {
			if how = r; r == readsUnsure {
				return r
			}
		}
	}
	return how
}

// looseWords refuses what is left.
func (in *inputWords) looseWords(n *pg.Node, bound *boundStatement) {
	if hasTimeWord(n) {
		l := &loose{in, bound}
		l.node(n.ProtoReflect(), false)
	}
}

type loose struct {
	*inputWords
	bound *boundStatement
}

// node looks at a message and all below it; safe says that texts right below it are plain.
func (l *loose) node(m protoreflect.Message, safe bool) {
	switch v := m.Interface().(type) {
	case *pg.Node:
		if inner := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); inner != nil {
			if inner.Kind() == protoreflect.MessageKind {
				l.node(m.Get(inner).Message(), safe)
			}
		}
		return
	case *pg.A_Const:
		if s := v.GetSval(); s != nil && !safe && HasTimeWord(s.Sval) && !l.texts.plain[v] && !slices.Contains(patterns, s.Sval) {
			l.refuse(s.Sval)
		}
		return
	case *pg.TypeCast:
		l.cast(v)
		return
	case *pg.FuncCall:
		safe = l.call(v)
	case *pg.A_Expr:
		safe = plainOperator(v)
	case *pg.CollateClause:
	case *pg.NullTest, *pg.DefElem, *pg.List:
		_, list := m.Interface().(*pg.List)
		safe = !list || safe
	case *pg.SelectStmt:
		l.query(v, true)
		return
	case *pg.InsertStmt:
		if s := v.SelectStmt.GetSelectStmt(); s != nil {
			l.query(s, false)
			l.fields(m, false, "select_stmt")
			return
		}
	default:
		safe = false
	}
	l.fields(m, safe)
}

func (l *loose) fields(m protoreflect.Message, safe bool, but ...protoreflect.Name) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind || slices.Contains(but, fd.Name()):
		case fd.IsList():
			for i := range v.List().Len() {
				l.node(v.List().Get(i).Message(), safe)
			}
		default:
			l.node(v.Message(), safe)
		}
		return true
	})
}

func (l *loose) refuse(s string) {
	fail(sqlstate.Refusal("CLV-0626", "the text %s has a word for the time, which each shard could read by its own clock", sqltext.QuoteString(s)).
		WithHint("Write now() or current_date; if it is no time, compare it with a text: column::text = %s.", sqltext.QuoteString(s)))
}

// cast looks at a cast: of a text to a type of times it is known as the transaction's time.
func (l *loose) cast(c *pg.TypeCast) {
	how := l.readsType(c.TypeName)
	inner := c.Arg
	for inner.GetTypeCast() != nil {
		inner = inner.GetTypeCast().Arg
	}
	if s := inner.GetAConst().GetSval(); s != nil {
		if word, _ := sqltree.ClockLiteral(c); how != readsText && word == "" && HasTimeWord(s.Sval) {
			l.refuse(s.Sval)
		}
		return
	}
	if e := c.Arg.GetAArrayExpr(); e != nil {
		names := sqltree.Strings(c.TypeName.GetNames())
		for i, n := range e.Elements {
			if word := n.GetAConst().GetSval(); word != nil && how == readsUnsure && len(names) > 0 {
				for oid, name := range wordTypes {
					if name == names[len(names)-1] {
						e.Elements[i] = timed(n, oid)
					}
				}
			}
		}
		l.fields(e.ProtoReflect(), how == readsText)
		return
	}
	l.node(c.Arg.ProtoReflect(), how == readsText)
}

// call reports whether texts among the arguments are plain. Functions named like a type of times cast.
func (l *loose) call(f *pg.FuncCall) bool {
	name := sqltree.CallName(f)
	switch {
	case builtin.Has(name) && !l.onlyBuiltin(f): // one of the user's may have the name, and take times
		return false
	case textCalls[name]:
		return true
	}
	switch name {
	case "date_trunc", "date_part", "extract":
		if len(f.Args) > 0 {
			l.texts.plainWords(readsText, f.Args[0])
		}
	}
	return false
}

// plainOperator reports whether a text beside an operator is a plain one, whatever the types are.
func plainOperator(e *pg.A_Expr) bool {
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_LIKE, pg.A_Expr_Kind_AEXPR_ILIKE, pg.A_Expr_Kind_AEXPR_SIMILAR:
		return true
	case pg.A_Expr_Kind_AEXPR_OP:
		switch sqltree.Operator(e) {
		case "~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*", "->", "->>", "#>", "#>>", "#-", "?", "?|", "?&", "@@", "@?":
			return true
		case "||":
			for _, n := range []*pg.Node{e.Lexpr, e.Rexpr} {
				if s := n.GetAConst().GetSval(); s != nil && strings.ContainsAny(s.Sval, "{") {
					return false // perhaps an array
				}
			}
			return true
		}
	}
	return false
}

// query looks at a query. A text alone in the list of a SELECT is a text, unless other arms of a set operation or
// other rows of VALUES, or a table's columns, give it a type.
func (l *loose) query(s *pg.SelectStmt, top bool) {
	if s.Op != pg.SetOperation_SETOP_NONE {
		l.arms(s, top)
		return
	}
	if top && len(s.ValuesLists) > 0 {
		l.rows(s)
	}
	for _, n := range s.TargetList {
		r := n.GetResTarget()
		if top {
			l.texts.plainWords(readsText, r.GetVal())
			for _, el := range slices.Concat(r.GetVal().GetRowExpr().GetArgs(), r.GetVal().GetAArrayExpr().GetElements()) {
				l.texts.plainWords(readsText, el)
			}
		}
	}
	l.fields(s.ProtoReflect(), false)
}

// rows notes the texts of VALUES in columns that have nothing else.
func (l *loose) rows(s *pg.SelectStmt) {
	for i := range s.ValuesLists[0].GetList().GetItems() {
		var column []*pg.Node
		for _, row := range s.ValuesLists {
			if items := row.GetList().GetItems(); i < len(items) {
				column = append(column, items[i])
			}
		}
		l.texts.plainWords(l.readsAll(column, &scope{}), column...)
	}
}

// arms gives the texts in the arms of a set operation the types of the others.
func (l *loose) arms(s *pg.SelectStmt, top bool) {
	var list []*pg.SelectStmt
	var collect func(*pg.SelectStmt)
	collect = func(s *pg.SelectStmt) {
		if s.Op != pg.SetOperation_SETOP_NONE {
			collect(s.Larg)
			collect(s.Rarg)
			return
		}
		list = append(list, s)
	}
	collect(s)
	for i := range list[0].TargetList {
		how, oid := readsText, uint32(0)
		for _, arm := range list {
			q := l.bound.queryOf(arm)
			switch {
			case i >= len(arm.TargetList) || sqltree.AnyStar(arm.TargetList[:i+1]):
				how = readsUnsure
			case arm.TargetList[i].GetResTarget().GetVal().GetAConst() != nil:
			case q == nil:
				how = readsUnsure
			default:
				n := arm.TargetList[i].GetResTarget().GetVal()
				if r := l.readsAs(n, q.sc); r != readsText && how != readsUnsure {
					how = r
					oid = l.typeOf(n, q.sc)
				}
			}
		}
		for _, arm := range list {
			if i >= len(arm.TargetList) {
				continue
			}
			r := arm.TargetList[i].GetResTarget()
			l.texts.plainWords(how, r.Val)
			if how == readsTime {
				r.Val = timed(r.Val, oid)
			}
		}
	}
	for _, arm := range list {
		l.fields(arm.ProtoReflect(), false)
	}
	l.fields(s.ProtoReflect(), false, "larg", "rarg")
}

// rowWords is pairWords of rows, element by element.
func (in *inputWords) rowWords(left, right *pg.Node, sc *scope) {
	l, r := left.GetRowExpr(), right.GetRowExpr()
	if l == nil || r == nil || len(l.Args) != len(r.Args) {
		return
	}
	for i := range l.Args {
		in.pairWords(&l.Args[i], &r.Args[i], sc)
	}
}

// pairWords makes casts of words beside times, and notes those beside other things.
func (in *inputWords) pairWords(x, y **pg.Node, sc *scope) {
	in.rowWords(*x, *y, sc)
	for _, p := range [][2]**pg.Node{{x, y}, {y, x}} {
		s := uncollated(*p[0]).GetAConst().GetSval()
		if s == nil || !HasTimeWord(s.Sval) {
			continue
		}
		in.texts.plainWords(in.readsAs(*p[1], sc), *p[0])
		*p[0] = timed(*p[0], in.wordType(*p[1], sc))
	}
}

// calledWords makes casts of the words among a function's arguments that are read as times, and notes the texts beside
// others that are not of times.
func (in *inputWords) calledWords(f *pg.FuncCall, sc *scope) {
	if !hasTimeWord(f) {
		return
	}
	in.calledTimes(f, sc)
	if !in.onlyBuiltin(f) {
		return
	}
	switch sqltree.CallName(f) {
	case "array_append", "array_prepend", "array_remove", "array_position", "array_positions", "array_replace", "array_cat", "array_to_string", "lag", "lead", "nullif":
		for _, n := range f.Args {
			if n.GetAConst() == nil && in.readsAs(n, sc) == readsText {
				in.texts.plainWords(readsText, f.Args...)
			}
		}
	}
}

// timeArguments are the arguments that are of one type of times, of functions that have at least so many.
var timeArguments = map[string]struct {
	least int
	oid   uint32
	at    []int
}{
	"daterange": {2, oidDate, []int{0, 1}}, "tsrange": {2, oidTimestamp, []int{0, 1}}, "tstzrange": {2, oidTimestmpz, []int{0, 1}},
	"date_trunc": {3, oidTimestmpz, []int{1}},
}

// elementSecond are functions of an array and an element of it.
var elementSecond = wordSet("array_append array_remove array_position array_positions")

// calledTimes makes casts of the words in arguments of PostgreSQL's own functions, where these are read as times: a
// function of one name may take several types, of which PostgreSQL chooses by the other arguments, and else timestamptz.
func (in *inputWords) calledTimes(f *pg.FuncCall, sc *scope) {
	names := sqltree.Strings(f.Funcname)
	if len(names) > 2 || len(names) == 2 && names[0] != "pg_catalog" || in.userFunction(names) != nil || f.FuncVariadic {
		return
	}
	for _, n := range f.Args {
		if n.GetNamedArgExpr() != nil {
			return
		}
	}
	to := func(oid uint32, at ...int) {
		for _, i := range at {
			if i < len(f.Args) {
				f.Args[i] = timed(f.Args[i], oid)
			}
		}
	}
	of := func(i int) uint32 {
		if i >= len(f.Args) || f.Args[i].GetAConst() != nil {
			return oidUnknown
		}
		return in.wordType(f.Args[i], sc)
	}
	// beside is what a word is read as that stands in one of the places, with the others: 0 if that is not certain.
	beside := func(alone uint32, places ...int) uint32 {
		typ := uint32(oidUnknown)
		for _, i := range places {
			switch t := of(i); {
			case t == oidUnknown || t == typ:
			case typ == oidUnknown && (t == oidTimestamp || t == oidTimestmpz || t == oidDate):
				typ = t
			default:
				return 0
			}
		}
		switch typ {
		case oidUnknown:
			return alone
		case oidDate:
			return oidTimestmpz
		}
		return typ
	}
	name, args := names[len(names)-1], len(f.Args)
	if t, ok := timeArguments[name]; ok && args >= t.least && args <= 3 {
		to(t.oid, t.at...)
		return
	}
	switch {
	case castCall(f) == wordsAlone && name != "time" && name != "timetz":
		for oid, typ := range wordTypes {
			if typ == name {
				to(oid, 0)
			}
		}
	case name == "date_bin" && args == 3:
		to(beside(oidTimestmpz, 1, 2), 1, 2)
	case name == "age" && args == 2:
		to(beside(oidTimestmpz, 0, 1), 0, 1)
	case name == "generate_series" && args == 3:
		to(beside(0, 0, 1), 0, 1)
	case name == "timezone" && args == 2 && (f.Args[0].GetAConst() != nil || in.readsAs(f.Args[0], sc) == readsText):
		to(oidTimestmpz, 1)
	case (name == "lag" || name == "lead") && args == 3:
		to(in.wordType(f.Args[0], sc), 2)
	case elementSecond[name] && args >= 2:
		to(elementTime(of(0)), 1)
	case name == "array_replace" && args == 3:
		to(elementTime(of(0)), 1, 2)
	case name == "array_prepend" && args == 2:
		to(elementTime(of(1)), 0)
	}
}

// elementTime is the type of times of which an array is, 0 for other arrays.
func elementTime(array uint32) uint32 {
	made, ok := madeOfTimes[array]
	for oid, typ := range wordTypes {
		if ok && made == typ+"[]" {
			return oid
		}
	}
	return 0
}
