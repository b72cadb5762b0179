package sqltree

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// CallName is the last part of a function's name, "" if f is nil.
func CallName(f *pg.FuncCall) string {
	names := Strings(f.GetFuncname())
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// Strings returns the texts of a list of String nodes.
func Strings(list []*pg.Node) []string {
	out := make([]string, 0, len(list))
	for _, n := range list {
		if s := n.GetString_(); s != nil {
			out = append(out, s.GetSval())
		}
	}
	return out
}

// FieldNames returns the names of a column reference, nil if it is a star.
func FieldNames(c *pg.ColumnRef) []string {
	names := Strings(c.GetFields())
	if c == nil || len(names) != len(c.Fields) {
		return nil
	}
	return names
}

// Operator returns an expression's operator if it is one of pg_catalog's.
func Operator(e *pg.A_Expr) string { return OperatorOf(Strings(e.Name)) }

// OperatorOf is the operator of a name's parts if it is one of pg_catalog's.
func OperatorOf(names []string) string {
	if len(names) == 2 && names[0] == "pg_catalog" {
		names = names[1:]
	}
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

// AnyStar reports whether one of the targets is * or name.*.
func AnyStar(targets []*pg.Node) bool {
	for _, t := range targets {
		if IsStar(t) {
			return true
		}
	}
	return false
}

// IsStar reports whether an output stands for several columns.
func IsStar(t *pg.Node) bool {
	val := t.GetResTarget().GetVal()
	if c := val.GetColumnRef(); c != nil {
		return len(Strings(c.Fields)) != len(c.Fields)
	}
	if ind := val.GetAIndirection(); ind != nil && len(ind.Indirection) > 0 {
		return ind.Indirection[len(ind.Indirection)-1].GetAStar() != nil
	}
	return false
}

// FieldOf returns the name behind the last point of a reference, and whether a name alone stands before it; "" if there
// is none. Of (x).a.b each name may be a function's: the names of the others come first.
func FieldOf(m proto.Message) (names []string, alone bool) {
	switch v := m.(type) {
	case *pg.ColumnRef:
		if n := len(v.Fields); n > 1 && v.Fields[n-1].GetString_() != nil {
			return []string{v.Fields[n-1].GetString_().Sval}, true
		}
	case *pg.A_Indirection:
		return Strings(v.Indirection), false
	}
	return nil, false
}

// OptionOn reports whether a Boolean option of a statement is on.
func OptionOn(d *pg.DefElem) bool {
	if d.GetArg() == nil {
		return true
	}
	switch v := strings.ToLower(DefText(d.Arg)); v {
	case "false", "off", "0":
		return false
	}
	return true
}

// DefText returns an option's value as text.
func DefText(n *pg.Node) string {
	switch v := n.GetNode().(type) {
	case *pg.Node_String_:
		return v.String_.Sval
	case *pg.Node_Integer:
		return strconv.Itoa(int(v.Integer.Ival))
	case *pg.Node_Float:
		return v.Float.Fval
	case *pg.Node_Boolean:
		if v.Boolean.Boolval {
			return "true"
		}
		return "false"
	case *pg.Node_TypeName:
		return strings.Join(Strings(v.TypeName.Names), ".")
	case *pg.Node_AConst:
		c := v.AConst
		switch {
		case c.GetSval() != nil:
			return c.GetSval().Sval
		case c.GetIval() != nil:
			return strconv.Itoa(int(c.GetIval().Ival))
		case c.GetFval() != nil:
			return c.GetFval().Fval
		case c.GetBoolval() != nil && c.GetBoolval().Boolval:
			return "true"
		case c.GetBoolval() != nil:
			return "false"
		}
	}
	return ""
}

// SplitAnd adds the AND-ed conditions of n to out.
func SplitAnd(n *pg.Node, out []*pg.Node) []*pg.Node {
	if n == nil {
		return out
	}
	if b := n.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
		for _, arg := range b.Args {
			out = SplitAnd(arg, out)
		}
		return out
	}
	return append(out, n)
}

// SystemColumns are those that each table of PostgreSQL has.
var SystemColumns = map[string]bool{"ctid": true, "xmin": true, "xmax": true, "cmin": true, "cmax": true, "tableoid": true}

// NativeCall is the name of a call of a function of PostgreSQL's; "" if it is none.
func NativeCall(n *pg.Node) string {
	f := n.GetFuncCall()
	if f == nil || f.AggStar || f.AggDistinct || f.Over != nil || f.FuncVariadic || f.AggFilter != nil || len(f.AggOrder) > 0 {
		return ""
	}
	names := Strings(f.Funcname)
	if len(names) > 2 || len(names) == 2 && names[0] != "pg_catalog" {
		return ""
	}
	return names[len(names)-1]
}

// SerialTypes are the names of the serial types, with the type that a column of each has.
var SerialTypes = map[string]string{
	"serial": "integer", "serial4": "integer", "bigserial": "bigint", "serial8": "bigint", "smallserial": "smallint", "serial2": "smallint",
}
