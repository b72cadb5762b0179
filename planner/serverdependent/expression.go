package serverdependent

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// Hint is what to do instead.
const Hint = "Take the value in a statement of its own (SELECT), and write it as a constant."

// sessionSettings are settings without a dot in their name that all shards' sessions have alike.
var sessionSettings = map[string]bool{
	"timezone": true, "datestyle": true, "intervalstyle": true, "search_path": true, "client_encoding": true, "application_name": true,
	"role": true, "session_authorization": true, "is_superuser": true, "server_encoding": true, "standard_conforming_strings": true,
	"bytea_output": true, "extra_float_digits": true, "default_text_search_config": true,
}

// configured are functions that take a text search configuration, or a sequence, by its name.
var configured = map[string]bool{
	"to_tsvector": true, "to_tsquery": true, "plainto_tsquery": true, "phraseto_tsquery": true, "websearch_to_tsquery": true, "ts_headline": true,
	"json_to_tsvector": true, "jsonb_to_tsvector": true, "ts_lexize": true, "nextval": true,
}

// OfServer reports whether a function of PostgreSQL's says something of a server, a database or a session there.
func OfServer(name string) bool {
	switch name {
	case "current_database", "version", "inet_server_addr", "inet_server_port", "inet_client_addr", "inet_client_port", "row_security_active",
		"pg_backend_pid", "pg_is_in_recovery", "pg_postmaster_start_time", "pg_conf_load_time":
		return true
	}
	return false
}

// Call is what a call, or a word that is one, says of a shard; "" if nothing.
func Call(m proto.Message) string {
	switch v := m.(type) {
	case *pg.SQLValueFunction:
		if v.Op == pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG {
			return "current_catalog"
		}
	case *pg.FuncCall:
		names := sqltree.Strings(v.Funcname)
		name := sqltree.CallName(v)
		if len(names) > 1 && names[len(names)-2] != "pg_catalog" {
			return ""
		}
		if name == "current_setting" {
			if len(v.Args) > 0 {
				if s := v.Args[0].GetAConst().GetSval(); s != nil && (strings.Contains(s.Sval, ".") || sessionSettings[strings.ToLower(s.Sval)]) {
					return ""
				}
				if s := v.Args[0].GetTypeCast().GetArg().GetAConst().GetSval(); s != nil && (strings.Contains(s.Sval, ".") || sessionSettings[strings.ToLower(s.Sval)]) {
					return ""
				}
			}
			return "current_setting() of a setting that each server has by itself"
		}
		native := builtin.Has(name)
		if OfServer(name) || native && name != "nextval" && builtin.ReachesFurther(name) && !strings.HasPrefix(name, "to_reg") {
			return name + "()"
		}
	}
	return ""
}

// Textual reports whether a type, by its name, holds an object's name rather than its number.
func Textual(typ string) bool {
	return typ == "text" || typ == "varchar" || typ == "bpchar" || typ == "name" || strings.HasPrefix(typ, "character")
}

// TypeBase is the name of a type that is no array, "" of any other.
func TypeBase(n *pg.TypeName) string {
	names := sqltree.Strings(n.GetNames())
	if len(names) == 0 || len(n.GetArrayBounds()) > 0 {
		return ""
	}
	return names[len(names)-1]
}

// In is what in an expression for a column of type typ ("" if not known) is another on each shard; "" if
// nothing. Columns are those of t, which may be nil.
func In(e *pg.Node, typ string, t *shardmap.Table) (what string) {
	const number = "the OID of an object"
	column := func(n *pg.Node) string {
		if names := sqltree.FieldNames(n.GetColumnRef()); len(names) > 0 && t != nil {
			for i := range t.Columns {
				if t.Columns[i].Name == names[len(names)-1] {
					return t.Columns[i].Type
				}
			}
		}
		return ""
	}
	object := func(n *pg.Node) bool { return isObject(n) || strings.HasPrefix(column(n), "reg") }
	var visit func(n *pg.Node, to string)
	var inside func(m protoreflect.Message)
	// visit looks at a value that becomes one of type to.
	visit = func(n *pg.Node, to string) {
		switch c := n.GetTypeCast(); {
		case n == nil || what != "":
			return
		case object(n) && to != "" && !Textual(to) && !strings.HasPrefix(to, "reg"), object(n) && to == "":
			what = number
			return
		case c != nil && !isObject(n):
			visit(c.Arg, TypeBase(c.TypeName))
			return
		case c != nil:
			from := column(c.Arg)
			s := c.Arg.GetAConst().GetSval()
			if !(s != nil && !isNumber(c.Arg) || Textual(from) || object(c.Arg)) {
				cast := c.Arg.GetTypeCast()
				if cast == nil || !Textual(TypeBase(cast.TypeName)) {
					what = number
					return
				}
			}
			visit(c.Arg, "text")
			return
		case n.GetColumnRef() != nil:
			return
		}
		inside(n.ProtoReflect())
	}
	inside = func(m protoreflect.Message) {
		if what != "" {
			return
		}
		if n, ok := m.Interface().(*pg.Node); ok {
			if f := n.GetFuncCall(); f != nil {
				if what = Call(f); what != "" {
					return
				}
				for _, arg := range f.Args {
					to := ""
					if configured[sqltree.CallName(f)] {
						to = "text"
					}
					visit(arg, to)
				}
				return
			}
			if n.GetTypeCast() != nil || object(n) {
				visit(n, "") // only what stands alone has a known type
				return
			}
		} else if what = Call(m.Interface()); what != "" {
			return
		}
		sqltree.Below(m, inside)
	}
	visit(e, typ)
	return what
}

// InDefault says what of a default, as a shard prints it, for a column of a type is another on each shard; "" if nothing.
func InDefault(text, typ string) string {
	tree, err := sqltext.Parser{}.Parse("SELECT " + text)
	if err != nil || len(tree.Stmts) != 1 {
		return ""
	}
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	if s == nil || len(s.TargetList) != 1 {
		return ""
	}
	if state := ShardState(s); state != "" {
		return state
	}
	return In(s.TargetList[0].GetResTarget().GetVal(), typ, nil)
}

// UsesShardState reports whether a tree reads what differs from shard to shard and
// is no row of a table: the statement's start, system columns.
func UsesShardState(m proto.Message) bool { return ShardState(m) != "" }

// ShardState is the first of these, a function with brackets.
func ShardState(m proto.Message) string {
	found := ""
	sqltree.Inspect(m, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			switch name := sqltree.CallName(v); name {
			case "statement_timestamp", "pg_backend_pid", "pg_postmaster_start_time", "pg_conf_load_time", "pg_is_in_recovery", "inet_server_addr", "inet_server_port",
				"inet_client_addr", "inet_client_port":
				found = name + "()"
			}
		case *pg.ColumnRef:
			if names := sqltree.Strings(v.Fields); len(names) == len(v.Fields) {
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
