package functions

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A function's body may cast texts to times, and each shard would read a word for the time by its own clock. The
// words come in with the arguments, so that the texts that shards get look at these, as at texts that they cast
// themselves. That is enough where nothing in the body can make a word of what was none; else the function counts as
// one that uses the time.

// keepsWords are functions in whose results a word stands only if it stood in one of their arguments; true: as a
// part of it, perhaps.
var keepsWords = map[string]bool{"lower": false, "btrim": false, "ltrim": false, "rtrim": false, "quote_literal": false, "to_json": false, "to_jsonb": false,
	"json_build_object": false, "jsonb_build_object": false, "json_build_array": false, "jsonb_build_array": false, "jsonb_strip_nulls": false, "array_agg": false, "min": false, "max": false,
	"json_extract_path": false, "jsonb_extract_path": false, "json_extract_path_text": false, "jsonb_extract_path_text": false, "json_array_elements": false, "jsonb_array_elements": false,
	"json_array_elements_text": false, "jsonb_array_elements_text": false, "json_each_text": false, "jsonb_each_text": false, "json_each": false, "jsonb_each": false, "jsonb_typeof": false, "json_typeof": false,
	"json_object_keys": false, "jsonb_object_keys": false, "unnest": false, "array_append": false, "array_prepend": false, "array_cat": false,
	"json_to_record": false, "jsonb_to_record": false, "json_to_recordset": false, "jsonb_to_recordset": false,
	"json_populate_record": false, "jsonb_populate_record": false, "json_populate_recordset": false, "jsonb_populate_recordset": false,
	"left": true, "right": true, "substr": true, "substring": true, "split_part": true, "string_to_array": true, "regexp_split_to_array": true, "regexp_split_to_table": true, "string_to_table": true,
	"regexp_substr": true, "regexp_match": true, "regexp_matches": true}

// wordless are more functions that give no text, or none with letters in it that were not in their arguments.
var wordless = sqltext.WordSet(`abs ceil ceiling floor round trunc mod power sqrt sign sum avg bool_and bool_or every isfinite justify_days justify_hours justify_interval make_interval
		octet_length bit_length position regexp_like regexp_count regexp_instr array_position jsonb_array_length json_array_length starts_with num_nulls num_nonnulls overlaps width_bucket
		timestamp timestamptz date time timetz int4 int8 float8 numeric to_number hashtext hashtextextended`)

// textCalls are functions all of whose arguments that may be literals are texts, or read as such.
var textCalls = sqltext.WordSet(`ascii bit_length btrim char_length character_length concat concat_ws convert_to decode encode format initcap left length lower lpad ltrim md5 normalize octet_length
		overlay parse_ident position quote_ident quote_literal quote_nullable regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
		regexp_substr similar_to_escape similar_escape like_escape repeat replace reverse right rpad rtrim split_part starts_with string_agg string_to_array string_to_table strpos substr substring textcat textlen to_ascii to_char to_number
		translate upper sha224 sha256 sha384 sha512 hashtext hashtextextended set_config current_setting pg_typeof
		json_build_object json_build_array jsonb_build_object jsonb_build_array jsonb_set jsonb_set_lax jsonb_insert jsonb_extract_path jsonb_extract_path_text json_extract_path json_extract_path_text
		jsonb_exists jsonb_path_query jsonb_path_exists jsonb_path_match jsonb_path_query_first jsonb_path_query_array jsonb_typeof json_typeof to_json to_jsonb jsonb_object json_object json_object_agg
		jsonb_object_agg json_agg jsonb_agg to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_headline ts_rank xmlcomment count pg_notify pg_column_size
		pg_advisory_lock num_nulls num_nonnulls array_agg`)

// plainOIDs are types whose values have no word in them when they are written as texts.
var plainOIDs = func() map[uint32]bool {
	set := map[uint32]bool{}
	for _, oid := range []uint32{16, 20, 21, 23, 26, 700, 701, 790, 1082, 1083, 1114, 1184, 1186, 1266, 1700, 2950, 1000, 1005, 1007, 1016, 1021, 1022, 1028, 1115, 1182, 1183, 1185, 1187,
		1231, 1270, 2951, 1560, 1562, 869, 650, 829, 3904, 3906, 3908, 3910, 3912, 3926, 2278} {
		set[oid] = true
	}
	return set
}()

// plainTypes are the names of such types.
var plainTypes = sqltext.WordSet(`int2 int4 int8 int integer bigint smallint numeric decimal float4 float8 real bool boolean uuid date time timetz timestamp timestamptz interval money oid bit varbit
		inet cidr macaddr int4range int8range numrange tsrange tstzrange daterange void`)

// PlainType reports whether a type is one of plainTypes.
func PlainType(t *pg.TypeName) bool {
	names := sqltree.Strings(t.GetNames())
	return len(names) > 0 && !t.PctType && (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") && plainTypes[names[len(names)-1]]
}

// TypeNamed is a type as PL/pgSQL's parser writes it, nil for one that is not plainly a name.
func TypeNamed(text string) *pg.TypeName {
	tree, err := (sqltext.Parser{}).Parse("SELECT NULL::" + text)
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	list := tree.Stmts[0].Stmt.GetSelectStmt().GetTargetList()
	if len(list) != 1 {
		return nil
	}
	return list[0].GetResTarget().GetVal().GetTypeCast().GetTypeName()
}

// declared notes a variable of PL/pgSQL, and whether a text that is assigned to it may be read as a time.
func (b *Body) declared(name, typ string) {
	t := TypeNamed(typ)
	if b.plain == nil {
		b.plain = map[string]bool{}
	}
	was, known := b.plain[name]
	b.plain[name] = t != nil && PlainType(t) && (was || !known)
	b.assigns = b.assigns || t == nil || datetime.CastReads(t, false) != datetime.None
}

// parameters notes the parameters of a function, and whether what it returns may be made a time of a text.
func (b *Body) parameters(f *Source) {
	if b.plain == nil {
		b.plain = map[string]bool{}
	}
	for i, oid := range f.Types {
		if i == 0 {
			b.assigns = b.assigns || f.Language == "plpgsql" && datetime.ReadingOf(uint32(oid)) != datetime.AsText
			continue
		}
		plain := plainOIDs[uint32(oid)]
		b.texts = b.texts || !plain
		if i <= len(f.Names) && f.Names[i-1] != "" {
			b.plain[f.Names[i-1]] = plain
		}
	}
}

// cast notes a cast in a body.
func (b *Body) cast(reads datetime.Words, n *pg.Node) {
	b.casts = b.casts || reads != datetime.None && b.mayHold(n)
}

// mayHold reports whether a value may be a text with a word in it that came from outside. Constants are seen elsewhere.
func (b *Body) mayHold(n *pg.Node) bool {
	switch v := n.GetNode().(type) {
	case nil, *pg.Node_AConst, *pg.Node_SqlvalueFunction, *pg.Node_BoolExpr, *pg.Node_NullTest, *pg.Node_BooleanTest:
		return false
	case *pg.Node_ParamRef:
		return b.texts
	case *pg.Node_ColumnRef:
		names := sqltree.FieldNames(v.ColumnRef)
		return len(names) != 1 || !b.plain[names[0]]
	case *pg.Node_TypeCast:
		return !PlainType(v.TypeCast.TypeName) && b.mayHold(v.TypeCast.Arg)
	case *pg.Node_CollateClause:
		return b.mayHold(v.CollateClause.Arg)
	case *pg.Node_NamedArgExpr:
		return b.mayHold(v.NamedArgExpr.Arg)
	case *pg.Node_AArrayExpr:
		return slices.ContainsFunc(v.AArrayExpr.Elements, b.mayHold)
	case *pg.Node_RowExpr:
		return slices.ContainsFunc(v.RowExpr.Args, b.mayHold)
	case *pg.Node_CoalesceExpr:
		return slices.ContainsFunc(v.CoalesceExpr.Args, b.mayHold)
	case *pg.Node_MinMaxExpr:
		return slices.ContainsFunc(v.MinMaxExpr.Args, b.mayHold)
	case *pg.Node_CaseExpr:
		return b.mayHold(v.CaseExpr.Defresult) || slices.ContainsFunc(v.CaseExpr.Args, func(w *pg.Node) bool { return b.mayHold(w.GetCaseWhen().GetResult()) })
	case *pg.Node_AExpr:
		switch e := v.AExpr; {
		case e.Kind == pg.A_Expr_Kind_AEXPR_NULLIF:
			return b.mayHold(e.Lexpr)
		case e.Kind != pg.A_Expr_Kind_AEXPR_OP:
			return false // conditions
		}
		switch sqltree.Operator(v.AExpr) {
		case "=", "<>", "<", ">", "<=", ">=", "+", "*", "/", "%", "~", "~*", "!~", "!~*", "@>", "<@", "&&", "?":
			return false
		}
		return b.mayHold(v.AExpr.Lexpr) || b.mayHold(v.AExpr.Rexpr)
	case *pg.Node_FuncCall:
		switch name := sqltree.CallName(v.FuncCall); {
		case PlainCalls[name], wordless[name], formatted(v.FuncCall):
			return false
		case b.keeps(v.FuncCall):
			return slices.ContainsFunc(v.FuncCall.Args, b.mayHold)
		}
	}
	return true
}

// formatted reports whether a call is to_char() with a format that is written out.
func formatted(f *pg.FuncCall) bool {
	return sqltree.CallName(f) == "to_char" && len(f.Args) == 2 && f.Args[1].GetAConst() != nil
}

// keeps reports whether a word in the result of a call stood in one of its arguments; it notes where it may have been a part of it.
func (b *Body) keeps(f *pg.FuncCall) bool {
	name := sqltree.CallName(f)
	if part, ok := keepsWords[name]; ok {
		b.parts = b.parts || part
		return true
	}
	constant := func(i int) (string, bool) {
		if i >= len(f.Args) {
			return "", false
		}
		s := f.Args[i].GetAConst().GetSval()
		return s.GetSval(), s != nil
	}
	switch name {
	case "concat":
		return b.apart(f.Args)
	case "concat_ws":
		by, ok := constant(0)
		return ok && separates(by)
	case "array_to_string", "string_agg":
		by, ok := constant(1)
		return ok && separates(by) && len(f.Args) == 2
	case "replace", "regexp_replace", "translate":
		b.parts = true
		from, _ := constant(1)
		by, ok := constant(2)
		return ok && !strings.ContainsFunc(by, func(r rune) bool { return r == '\\' || r >= 0x80 || datetime.Letter(byte(r)) }) && (name == "translate" && len(from) == len(by) || name != "translate" && by != "")
	}
	return name != "current_setting" && TextGiven[name] && !slices.ContainsFunc(f.Args, b.mayHold)
}

// separates reports whether a text keeps what stands at its sides from becoming one word.
func separates(s string) bool {
	return s != "" && !datetime.Letter(s[0]) && !datetime.Letter(s[len(s)-1])
}

// apart reports whether no two values that may be texts become one word when they are joined.
func (b *Body) apart(list []*pg.Node) bool {
	if !slices.ContainsFunc(list, b.mayHold) {
		return true
	}
	open := false // the text so far ends with what may be a part of a word
	for _, n := range list {
		s := n.GetAConst().GetSval()
		switch {
		case s != nil && s.Sval == "":
		case s != nil:
			if open && datetime.Letter(s.Sval[0]) {
				return false
			}
			open = datetime.Letter(s.Sval[len(s.Sval)-1])
		case n.GetAConst() != nil: // a number
		default:
			if open {
				return false
			}
			open = true
		}
	}
	return true
}

// joined are the operands of a chain of ||.
func joined(n *pg.Node) []*pg.Node {
	e := n.GetAExpr()
	if e == nil || sqltree.Operator(e) != "||" || e.Lexpr == nil {
		return []*pg.Node{n}
	}
	return append(joined(e.Lexpr), joined(e.Rexpr)...)
}

// making notes what may make a word of what was none.
func (b *Body) making(m any) {
	switch v := m.(type) {
	case *pg.FuncCall:
		name := sqltree.CallName(v)
		if own := builtin.Has(name); own && !PlainCalls[name] && !wordless[name] && !formatted(v) && !b.keeps(v) {
			b.makes = true
		}
	case *pg.A_Expr:
		if sqltree.Operator(v) == "||" && !b.apart(joined(&pg.Node{Node: &pg.Node_AExpr{AExpr: v}})) {
			b.makes = true
		}
	}
}

// casting notes what casts texts.
func (b *Body) casting(m any) {
	switch v := m.(type) {
	case *pg.TypeCast:
		b.cast(datetime.CastReads(v.TypeName, false), v.Arg)
	case *pg.FuncCall:
		switch name := sqltree.CallName(v); {
		case strings.Contains(name, "_populate_record"):
			b.casts = true
		case len(v.Args) == 1 && datetime.CallReads(v) != datetime.None:
			b.cast(datetime.Alone, v.Args[0])
		}
	case *pg.ColumnDef: // of json_to_record() and the like
		b.casts = b.casts || datetime.CastReads(v.TypeName, false) != datetime.None
	case *pg.JsonTable, *pg.JsonFuncExpr:
		b.casts = true
	case *pg.RangeTableFunc: // XML writes letters by their numbers, too
		b.casts, b.makes = true, true
	}
}

// What shardmap.Function.Casts says of a function.
const (
	CastsTexts = 1 // it casts texts among its arguments as they are
	castsParts = 2 // or parts of them
	castsMade  = 3 // or texts that it makes
)

// TimedCallError is the refusal of a call of a function that takes the time by itself.
func TimedCallError(own *shardmap.Function) *sqlstate.Error {
	if own.Casts == castsMade {
		return sqlstate.Refusal("CLV-0608", "function %s() makes texts and casts them to times, which each shard could read by its own clock as words for the time", own.QualifiedName()).
			WithHint("Cast outside of the function, or declare it IMMUTABLE if none of its casts meets such a word.")
	}
	return sqlstate.Refusal("CLV-0609", "function %s() uses the time at which the transaction began, of which each shard has its own", own.QualifiedName()).
		WithHint("Give it now() as an argument, and leave out none.")
}

// PlainCalls are functions whose result is no text, or never one of the words.
var PlainCalls = sqltext.WordSet(`now transaction_timestamp statement_timestamp clock_timestamp timeofday date_trunc date_bin to_timestamp to_date make_date make_timestamp make_timestamptz make_time timezone
		age extract date_part generate_series generate_subscripts count length char_length strpos array_length cardinality to_json to_jsonb row_number rank dense_rank uuidv7 gen_random_uuid random`)

// TextGiven are functions whose result is a text, whatever they are given.
var TextGiven = sqltext.WordSet(`btrim chr concat concat_ws format initcap left lpad ltrim md5 quote_ident quote_literal regexp_replace regexp_substr repeat replace reverse right rpad rtrim split_part
		to_char translate current_setting jsonb_extract_path_text json_extract_path_text array_to_string`)
