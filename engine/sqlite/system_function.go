package sqlite

import (
	"fmt"
	"os"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// systemEmitters are the functions by which clients read the catalogue.
func systemEmitters() {
	simple(map[string]string{
		"version()":                                  "cleave_version()",
		"current_database()":                         "cleave_session('database')",
		"current_schema()":                           "cleave_session('schema')",
		"current_user()":                             "cleave_session('user')",
		"session_user()":                             "cleave_session('user')",
		"getdatabaseencoding()":                      "'UTF8'",
		"pg_client_encoding()":                       "'UTF8'",
		"pg_backend_pid()":                           fmt.Sprint(os.Getpid()),
		"pg_is_in_recovery()":                        "0",
		"pg_my_temp_schema()":                        "0",
		"pg_encoding_to_char(int4)":                  "CASE %1 WHEN 6 THEN 'UTF8' WHEN 0 THEN 'SQL_ASCII' ELSE '' END",
		"pg_char_to_encoding(name)":                  "CASE lower(%1) WHEN 'utf8' THEN 6 WHEN 'unicode' THEN 6 WHEN 'sql_ascii' THEN 0 ELSE -1 END",
		"current_schemas(bool)":                      "cleave_schemas(%1)",
		"format_type(oid,int4)":                      "cleave_format_type(%1, %2)",
		"pg_get_expr(pg_node_tree,oid)":              "cleave_second(%2, %1)",
		"pg_get_expr(pg_node_tree,oid,bool)":         "cleave_second(%2, %1)",
		"pg_get_userbyid(oid)":                       "cleave_role(%1)",
		"pg_table_is_visible(oid)":                   "cleave_visible(%1)",
		"pg_type_is_visible(oid)":                    "1",
		"pg_function_is_visible(oid)":                "1",
		"pg_operator_is_visible(oid)":                "1",
		"pg_opclass_is_visible(oid)":                 "1",
		"pg_collation_is_visible(oid)":               "1",
		"pg_statistics_obj_is_visible(oid)":          "0",
		"pg_get_indexdef(oid)":                       "cleave_indexdef(%1, 0, 0)",
		"pg_get_indexdef(oid,int4,bool)":             "cleave_indexdef(%1, %2, %3)",
		"pg_get_constraintdef(oid)":                  "cleave_constraintdef(%1, 0)",
		"pg_get_constraintdef(oid,bool)":             "cleave_constraintdef(%1, %2)",
		"pg_get_viewdef(oid)":                        "cleave_viewdef(%1)",
		"pg_get_viewdef(oid,bool)":                   "cleave_viewdef(%1)",
		"pg_get_triggerdef(oid)":                     "NULL",
		"pg_get_triggerdef(oid,bool)":                "NULL",
		"pg_get_ruledef(oid)":                        "NULL",
		"pg_get_ruledef(oid,bool)":                   "NULL",
		"pg_get_partkeydef(oid)":                     "NULL",
		"pg_get_partition_constraintdef(oid)":        "NULL",
		"pg_get_statisticsobjdef_columns(oid)":       "NULL",
		"pg_get_function_result(oid)":                "cleave_proc_result(%1)",
		"pg_get_function_sqlbody(oid)":               "NULL",
		"pg_get_function_arguments(oid)":             "cleave_proc_arguments(%1)",
		"pg_get_function_identity_arguments(oid)":    "cleave_proc_identity(%1)",
		"pg_get_serial_sequence(text,text)":          "NULL",
		"col_description(oid,int4)":                  "cleave_col_description(%1, %2)",
		"obj_description(oid,name)":                  "cleave_obj_description(%1)",
		"shobj_description(oid,name)":                "NULL",
		"pg_relation_is_publishable(regclass)":       "0",
		"pg_relation_size(regclass)":                 "cleave_table_size(%1, 0)",
		"pg_table_size(regclass)":                    "cleave_table_size(%1, 0)",
		"pg_indexes_size(regclass)":                  "cleave_table_size(%1, 1)",
		"pg_total_relation_size(regclass)":           "cleave_table_size(%1, 2)",
		"pg_database_size(name)":                     "cleave_database_size()",
		"pg_database_size(oid)":                      "cleave_database_size()",
		"pg_size_pretty(int8)":                       "cleave_size_pretty(%1)",
		"pg_tablespace_location(oid)":                "''",
		"to_regclass(text)":                          "cleave_to_reg(2205, %1)",
		"to_regtype(text)":                           "cleave_to_reg(2206, %1)",
		"to_regnamespace(text)":                      "cleave_to_reg(4089, %1)",
		"current_setting(text)":                      "cleave_setting(%1, 0)",
		"current_setting(text,bool)":                 "cleave_setting(%1, %2)",
		"set_config(text,text,bool)":                 "cleave_set_config(%1, %2, %3)",
		"txid_current_if_assigned()":                 "NULL",
		"pg_column_is_updatable(regclass,int2,bool)": "1",
	})
	emitters["pg_typeof(any)"] = func(_ *translator, a []expr) string {
		typ := fmt.Sprint(a[0].typ)
		if a[0].lit || a[0].null || a[0].param > 0 {
			return typ
		}
		// The argument stays: an aggregate in it makes the query one of a single row.
		return "CASE WHEN (" + a[0].sql + ") IS NULL THEN " + typ + " ELSE " + typ + " END"
	}
	for _, p := range []string{"table", "schema", "database", "column", "any_column", "sequence", "function", "type", "language", "tablespace", "server"} {
		for _, sig := range []string{"text,text", "oid,text", "name,text,text", "name,oid,text", "oid,text,text", "oid,oid,text", "text,text,text", "oid,int2,text", "text,int2,text"} {
			emitters["has_"+p+"_privilege("+sig+")"] = tpl("cleave_true(%1)")
		}
	}
	for _, sig := range []string{"name,text", "oid,text", "name,name,text", "oid,oid,text"} {
		emitters["pg_has_role("+sig+")"] = tpl("cleave_true(%1)")
	}
}

// functionsOf are the functions that SQLite calls for one conversation only.
func functionsOf(c *Conn) []function.Def {
	list := append(moveFunctions(c), guardFunction(c), captureFunction(c))
	for _, f := range systemFunctions {
		list = append(list, function.Volatile(f.name, f.args, func(_ *function.Env, a []function.Arg) (value.Datum, error) {
			for _, x := range a {
				if x.Type() == sqlite.TypeNull && f.name != "cleave_set_config" {
					return value.Datum{}, nil
				}
			}
			return f.fn(c, a)
		}))
	}
	return list
}

// systemFunction is a function that reads the conversation, or changes it. But for cleave_set_config they give NULL for any NULL.
type systemFunction struct {
	name string
	args int
	fn   func(c *Conn, a []function.Arg) (value.Datum, error)
}

var systemFunctions = []systemFunction{
	{"cleave_version", 0, func(c *Conn, a []function.Arg) (value.Datum, error) {
		return value.Text("PostgreSQL " + ServerVersion + " (Cleave, on SQLite " + lookupVersion() + ")"), nil
	}},
	{"cleave_session", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		switch a[0].Text() {
		case "database":
			return value.Text(c.names.Database), nil
		case "schema":
			if p := c.names.Schemas(); len(p) > 0 {
				return value.Text(p[0]), nil
			}
			return value.Datum{}, nil
		}
		return value.Text(c.names.User), nil
	}},
	{"cleave_schemas", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		arr := value.Array{}
		if a[0].Int64() != 0 {
			arr = append(arr, value.Elem{Text: catalog.SchemaPgCatalog})
		}
		for _, s := range c.names.Schemas() {
			arr = append(arr, value.Elem{Text: s})
		}
		return value.Text(arr.String()), nil
	}},
	{"cleave_visible", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		schema, name := c.names.RelationName(uint32(a[0].Int64()))
		if name == "" {
			return value.Datum{}, nil
		}
		return value.Bool(c.names.Visible(schema, name)), nil
	}},
	{"cleave_indexdef", 3, func(c *Conn, a []function.Arg) (value.Datum, error) {
		for _, d := range c.names.Catalog.Tables {
			if ix := d.Index(uint32(a[0].Int64())); ix != nil {
				n := int(a[1].Int64())
				if n == 0 {
					return value.Text(d.IndexDef(ix)), nil
				}
				if n < 1 || n > len(ix.Columns) {
					return value.Text(""), nil
				}
				return value.Text(quote.PGIdent(d.ByNum(ix.Columns[n-1].Num).Name)), nil
			}
		}
		return value.Datum{}, nil
	}},
	{"cleave_role", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		switch n := a[0].Int64(); n {
		case catalog.OwnerOID:
			return value.Text(c.names.User), nil
		case databaseOwnerOID:
			return value.Text("pg_database_owner"), nil
		default:
			return value.Text("unknown (OID=" + itoa(n) + ")"), nil
		}
	}},
	{"cleave_constraintdef", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		for _, d := range c.names.Catalog.Tables {
			for i := range d.Constraints {
				if d.Constraints[i].OID == uint32(a[0].Int64()) {
					s := c.names.ConstraintDef(d, &d.Constraints[i])
					if d.Constraints[i].Type == "c" && a[1].Int64() != 0 {
						s = "CHECK (" + d.Constraints[i].Expr + ")"
					}
					return value.Text(s), nil
				}
			}
		}
		return value.Datum{}, nil
	}},
	{"cleave_viewdef", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		if s, ok := c.names.Catalog.ViewText(uint32(a[0].Int64())); ok {
			return value.Text(s), nil
		}
		return value.Datum{}, nil
	}},
	{"cleave_proc_result", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		if s, ok := virtualText("pg_get_function_result", uint32(a[0].Int64())); ok {
			return value.Text(s), nil
		}
		p := value.Builtin.Function(uint32(a[0].Int64()))
		if p == nil {
			return value.Datum{}, nil
		}
		s := value.TypeName(p.Result)
		if p.Set {
			s = "SETOF " + s
		}
		return value.Text(s), nil
	}},
	{"cleave_proc_arguments", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		return procArguments(a, "pg_get_function_arguments")
	}},
	{"cleave_proc_identity", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		return procArguments(a, "pg_get_function_identity_arguments")
	}},
	{"cleave_col_description", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		if d := c.names.Catalog.ByOID[uint32(a[0].Int64())]; d != nil {
			if col := d.ByNum(int16(a[1].Int64())); col != nil {
				return textOrNull(col.Comment), nil
			}
		}
		return value.Datum{}, nil
	}},
	{"cleave_obj_description", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		oid := uint32(a[0].Int64())
		if s, ok := virtualText("obj_description", oid); ok {
			return value.Text(s), nil
		}
		if d := c.names.Catalog.ByOID[oid]; d != nil {
			return textOrNull(d.Comment), nil
		}
		for _, s := range c.names.Catalog.Schemas {
			if s.OID == oid {
				return textOrNull(s.Comment), nil
			}
		}
		return value.Datum{}, nil
	}},
	{"cleave_table_size", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		oid := uint32(a[0].Int64())
		d := c.names.Catalog.ByOID[oid]
		var names []string
		how := a[1].Int64()
		if d == nil {
			schema, name := c.names.RelationName(oid)
			if name == "" {
				return value.Datum{}, nil
			}
			names = append(names, catalog.SQLName(schema, name))
		} else {
			if how != 1 {
				names = append(names, d.SQLName())
			}
			if how != 0 {
				for _, ix := range d.Indexes {
					names = append(names, catalog.SQLName(d.Schema, ix.Name))
				}
			}
		}
		total := int64(0)
		for _, n := range names {
			// SQLite keeps no sizes; the pages are counted.
			size, err := c.queryInt("SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name = " + quote.Text(n) + " AND aggregate = TRUE")
			if err != nil {
				return value.Datum{}, value.Unsupported("the size of a table")
			}
			total += size
		}
		return value.Int(total), nil
	}},
	{"cleave_database_size", 0, func(c *Conn, a []function.Arg) (value.Datum, error) {
		n, err := c.queryInt("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
		return function.IntOr(n, err)
	}},
	{"cleave_reg_in", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		return function.IntOr(c.names.RegIn(uint32(a[0].Int64()), a[1].Text()))
	}},
	{"cleave_reg_out", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		return value.Text(c.names.RegOut(uint32(a[0].Int64()), a[1].Int64())), nil
	}},
	{"cleave_to_reg", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		n, err := c.names.RegIn(uint32(a[0].Int64()), a[1].Text())
		if err != nil {
			return value.Datum{}, nil
		}
		return value.Int(n), nil
	}},
	{"cleave_setting", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		_, v, err := c.show(a[0].Text())
		if err != nil {
			if a[1].Int64() != 0 {
				return value.Datum{}, nil
			}
			return value.Datum{}, err
		}
		return value.Text(v), nil
	}},
	{"cleave_set_config", 3, func(c *Conn, a []function.Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, sqlstate.New(sqlstate.NullNotAllowed, "SET requires parameter name")
		}
		name, local := a[0].Text(), a[2].Type() != sqlite.TypeNull && a[2].Int64() != 0
		err := error(nil)
		if a[1].Type() == sqlite.TypeNull {
			err = c.resetOne(name, local)
		} else {
			err = c.assign(name, a[1].Text(), local)
		}
		if err != nil {
			return value.Datum{}, err
		}
		_, v, err := c.show(name)
		if err != nil {
			return value.Datum{}, err
		}
		return value.Text(v), nil
	}},
}

// procArguments are a function's arguments as the function of PostgreSQL with the name prints them.
func procArguments(a []function.Arg, name string) (value.Datum, error) {
	if s, ok := virtualText(name, uint32(a[0].Int64())); ok {
		return value.Text(s), nil
	}
	p := value.Builtin.Function(uint32(a[0].Int64()))
	if p == nil {
		return value.Datum{}, nil
	}
	var names []string
	for _, t := range p.Args {
		names = append(names, value.TypeName(t))
	}
	return value.Text(strings.Join(names, ", ")), nil
}

func textOrNull(s string) value.Datum {
	if s == "" {
		return value.Datum{}
	}
	return value.Text(s)
}

var lookupVersion = func() func() string {
	var v string
	return func() string {
		if v == "" {
			v = sqliteVersion()
		}
		return v
	}
}()
