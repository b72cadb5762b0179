package serverdependent

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// An object (a table, a type, a function) has an OID of its own on each shard. Values of the
// types that name one, such as regclass, are text, or are translated by the executor; a plain
// number is not known to be one, so that a statement on sharded tables must not make one, or use one.

// WithoutOID are types of PostgreSQL's own whose values have no OID inside: the common ones. Any
// other name may be of a user-defined type.
var WithoutOID = map[string]bool{
	"int2": true, "int4": true, "int8": true, "numeric": true, "float4": true, "float8": true, "text": true, "varchar": true, "bpchar": true, "char": true, "name": true,
	"bool": true, "bytea": true, "uuid": true, "json": true, "jsonb": true, "date": true, "time": true, "timetz": true, "timestamp": true, "timestamptz": true,
	"interval": true, "inet": true, "cidr": true, "macaddr": true, "bit": true, "varbit": true, "money": true, "xml": true, "point": true, "oid": true,
	"tsvector": true, "tsquery": true, "int4range": true, "int8range": true, "numrange": true, "tsrange": true, "tstzrange": true, "daterange": true,
}

// NamesObjects are functions with arguments, or a result, of a type that names an object, beside
// those that read the catalogue.
var NamesObjects = map[string]bool{
	"pg_typeof": true, "to_tsvector": true, "to_tsquery": true, "plainto_tsquery": true, "phraseto_tsquery": true, "websearch_to_tsquery": true, "ts_headline": true,
	"ts_lexize": true, "regclass": true, "json_to_tsvector": true, "jsonb_to_tsvector": true, "get_current_ts_config": true,
}

// IsObjectType reports whether a type's values are objects: regclass and its like.
func IsObjectType(n *pg.TypeName) bool {
	names := sqltree.Strings(n.GetNames())
	return len(names) > 0 && strings.HasPrefix(names[len(names)-1], "reg")
}

// IsTableOID reports whether an expression is the system column.
func IsTableOID(n *pg.Node) bool {
	names := sqltree.FieldNames(n.GetColumnRef())
	return len(names) > 0 && names[len(names)-1] == "tableoid"
}

// isObject reports whether an expression is a value of such a type, as far as its text says.
func isObject(n *pg.Node) bool {
	if f := n.GetFuncCall(); f != nil {
		return sqltree.CallName(f) == "pg_typeof" || sqltree.CallName(f) == "regclass" || strings.HasPrefix(sqltree.CallName(f), "to_reg")
	}
	c := n.GetTypeCast()
	return c != nil && IsObjectType(c.TypeName)
}

// isNumber reports whether an expression is a number, or a text of one.
func isNumber(n *pg.Node) bool {
	c := n.GetAConst()
	if c == nil || c.Isnull {
		return false
	}
	if s := c.GetSval(); s != nil {
		return strings.Trim(s.Sval, "0123456789 ") == "" && s.Sval != ""
	}
	return true
}

// compared reports whether an expression compares values.
func compared(e *pg.A_Expr) bool {
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP, pg.A_Expr_Kind_AEXPR_OP_ANY, pg.A_Expr_Kind_AEXPR_OP_ALL, pg.A_Expr_Kind_AEXPR_DISTINCT, pg.A_Expr_Kind_AEXPR_NOT_DISTINCT, pg.A_Expr_Kind_AEXPR_IN:
		switch sqltree.Operator(e) {
		case "=", "<>", "!=", "<", ">", "<=", ">=":
			return true
		}
	}
	return false
}

// isPlain reports whether what is compared with an object could be a plain number.
func isPlain(n *pg.Node) bool {
	if l := n.GetList(); l != nil {
		return slices.ContainsFunc(l.Items, isPlain)
	}
	if l := n.GetAArrayExpr(); l != nil {
		return slices.ContainsFunc(l.Elements, isPlain)
	}
	c := n.GetAConst()
	return !isObject(n) && !IsTableOID(n) && (c == nil || !c.Isnull)
}

// TakesOID finds where a statement takes the OID of an object, or takes a number for one;
// "" if it does not.
func TakesOID(n *pg.Node) (what string) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.TypeCast:
			names := sqltree.Strings(v.TypeName.GetNames())
			switch to := names[len(names)-1]; {
			case IsObjectType(v.TypeName) && IsTableOID(v.Arg):
				return false
			case IsObjectType(v.TypeName) && isNumber(v.Arg):
				what = "a number as " + to
			case isObject(v.Arg) && !IsObjectType(v.TypeName) && !keytype.IsText(keytype.ByName[to]) && to != "name" && to != "bpchar":
				what = "an object's OID"
			}
		case *pg.A_Expr:
			l, r := v.Lexpr, v.Rexpr
			switch {
			case IsTableOID(l) && isObject(r):
				what = TakesOID(r)
				return false
			case IsTableOID(r) && isObject(l):
				what = TakesOID(l)
				return false
			case compared(v) && (isObject(l) && isPlain(r) || isObject(r) && isPlain(l)):
				what = "an object compared with a number" // there is no other operator
			}
		case *pg.ColumnRef:
			if names := sqltree.FieldNames(v); len(names) > 0 && names[len(names)-1] == "tableoid" {
				what = "tableoid"
			}
		}
		return what == ""
	})
	return what
}
