package sqltree

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// ClockOps are the SQL values that are the transaction's time.
var ClockOps = map[pg.SQLValueFunctionOp]string{
	pg.SQLValueFunctionOp_SVFOP_CURRENT_DATE: "date", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIME: "timetz", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIME_N: "timetz",
	pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP: "timestamptz", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP_N: "timestamptz",
	pg.SQLValueFunctionOp_SVFOP_LOCALTIME: "time", pg.SQLValueFunctionOp_SVFOP_LOCALTIME_N: "time",
	pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP: "timestamp", pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP_N: "timestamp",
}

// IsClock reports whether a call gives the time at which the transaction began.
func IsClock(f *pg.FuncCall) bool {
	if names := Strings(f.Funcname); len(names) > 1 && names[len(names)-2] != "pg_catalog" {
		return false
	}
	switch CallName(f) {
	case "now", "transaction_timestamp":
		return len(f.Args) == 0
	}
	return false
}

// IsAge reports whether a call is age() of one value, which counts from the transaction's day.
func IsAge(f *pg.FuncCall) bool {
	names := Strings(f.Funcname)
	return len(f.Args) == 1 && CallName(f) == "age" && (len(names) == 1 || names[len(names)-2] == "pg_catalog")
}

// ClockLiteral reads 'now'::timestamptz and its like, also ('now'::text)::date: the word, and the type.
func ClockLiteral(c *pg.TypeCast) (word, typ string) {
	arg := c.Arg
	for t := arg.GetTypeCast(); t != nil && TextType(t.TypeName); t = arg.GetTypeCast() {
		arg = t.Arg
	}
	s := arg.GetAConst().GetSval()
	names := Strings(c.TypeName.GetNames())
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

// TextType reports whether a type is a text without a modifier.
func TextType(t *pg.TypeName) bool {
	names := Strings(t.GetNames())
	if len(names) == 0 || len(names) == 2 && names[0] != "pg_catalog" || len(t.ArrayBounds) > 0 || len(t.Typmods) > 0 {
		return false
	}
	name := names[len(names)-1]
	return name == "text" || name == "varchar"
}

// UsesClock reports whether an expression has something that clocked replaces.
func UsesClock(m proto.Message) bool {
	found := false
	Inspect(m, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			found = found || IsClock(v) || IsAge(v)
		case *pg.TypeCast:
			word, _ := ClockLiteral(v)
			found = found || word != ""
		case *pg.SQLValueFunction:
			found = found || ClockOps[v.Op] != ""
		}
		return !found
	})
	return found
}
