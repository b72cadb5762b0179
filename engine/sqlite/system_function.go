package sqlite

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
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

// regType is the input of regtype: names as format_type prints them, and type names, perhaps quoted and with their schema.
func (t *translator) regType(text string) (int64, error) {
	base, array := strings.CutSuffix(strings.TrimSpace(text), "[]")
	found := func(ty *pgcatalog.Type) (int64, error) {
		if array {
			return int64(ty.Array), nil
		}
		return int64(ty.OID), nil
	}
	for ty := range value.Builtin.Types() {
		if ty.Name == base || value.TypeName(ty.OID) == base {
			return found(ty)
		}
	}
	switch base {
	case "int":
		return found(value.Builtin.Type(pgoid.Int4))
	case "decimal":
		return found(value.Builtin.Type(pgoid.Numeric))
	}
	parts, err := splitName(base)
	if err != nil {
		return 0, err
	}
	if len(parts) == 2 && t.cat.Schemas[parts[0]] == nil {
		return 0, sqlstate.New(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", parts[0])
	}
	if ty := value.Builtin.TypeNamed(parts[len(parts)-1]); ty != nil && (len(parts) == 1 || parts[0] == catalog.SchemaPgCatalog) {
		return found(ty)
	}
	return 0, sqlstate.New(sqlstate.UndefinedObject, "type \"%s\" does not exist", strings.Join(parts, "."))
}

// regIn is the input of regclass, regtype and their like.
func (t *translator) regIn(oid uint32, text string) (int64, error) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return int64(n), nil
	}
	if text == "-" {
		return 0, nil
	}
	if oid == pgoid.Regtype {
		return t.regType(text)
	}
	parts, err := splitName(text)
	if err != nil {
		return 0, err
	}
	name := parts[len(parts)-1]
	schema := ""
	if len(parts) == 2 {
		schema = parts[0]
	}
	switch oid {
	case pgoid.Regclass:
		if d := t.relation(schema, name); d != 0 {
			return int64(d), nil
		}
		return 0, sqlstate.New(sqlstate.UndefinedTable, "relation \"%s\" does not exist", strings.Join(parts, "."))
	case pgoid.Regnamespace:
		if s := t.cat.Schemas[name]; s != nil {
			return int64(s.OID), nil
		}
		return 0, sqlstate.New(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", name)
	case pgoid.Regproc:
		list := slices.Collect(value.Builtin.Functions(name))
		if len(list) == 0 {
			return 0, sqlstate.New(sqlstate.UndefinedFunction, "function \"%s\" does not exist", name)
		}
		if len(list) > 1 {
			return 0, sqlstate.New("42725", "more than one function named \"%s\"", name)
		}
		return int64(list[0].OID), nil
	case pgoid.Regrole:
		return catalog.OwnerOID, nil
	}
	return 0, value.Unsupported("the type " + value.TypeName(oid))
}

// relation finds the OID of a table, index or catalogue relation.
func (t *translator) relation(schema, name string) uint32 {
	schemas := append([]string{catalog.SchemaPgCatalog}, t.path...)
	if schema != "" {
		schemas = []string{schema}
	}
	for _, s := range schemas {
		if d := t.lookup(s, name); d != nil {
			return d.OID
		}
		if _, ix := t.cat.FindIndex(s, name); ix != nil {
			return ix.OID
		}
	}
	return 0
}

// splitName splits a possibly quoted, possibly qualified name.
func splitName(s string) ([]string, error) {
	var out []string
	bad := sqlstate.New("42602", "invalid name syntax")
	s = strings.TrimSpace(s)
	for {
		if strings.HasPrefix(s, `"`) {
			var b strings.Builder
			i := 1
			for {
				if i >= len(s) {
					return nil, bad
				}
				if s[i] == '"' {
					if i+1 < len(s) && s[i+1] == '"' {
						i++
					} else {
						break
					}
				}
				b.WriteByte(s[i])
				i++
			}
			out, s = append(out, b.String()), s[i+1:]
		} else {
			i := strings.IndexByte(s, '.')
			if i < 0 {
				i = len(s)
			}
			if i == 0 {
				return nil, bad
			}
			out, s = append(out, strings.ToLower(s[:i])), s[i:]
		}
		if s == "" {
			return out, nil
		}
		if s[0] != '.' || len(out) == 3 {
			return nil, bad
		}
		s = s[1:]
	}
}

func (c *Conn) regOut(oid uint32, v int64) string {
	n := uint32(v)
	if n == 0 {
		return "-"
	}
	switch oid {
	case pgoid.Regclass:
		if schema, name := c.relationName(n); name != "" {
			return c.visibleName(schema, name)
		}
	case pgoid.Regtype:
		if value.Builtin.Type(n) != nil {
			return value.TypeName(n)
		}
	case pgoid.Regproc:
		if p := value.Builtin.Function(n); p != nil {
			return p.Name
		}
	case pgoid.Regprocedure:
		if p := value.Builtin.Function(n); p != nil {
			names := make([]string, len(p.Args))
			for i, a := range p.Args {
				names[i] = value.TypeName(a)
			}
			return p.Name + "(" + strings.Join(names, ",") + ")"
		}
	case pgoid.Regnamespace:
		for _, s := range c.cat.Schemas {
			if s.OID == n {
				return quote.PGIdent(s.Name)
			}
		}
	case pgoid.Regrole:
		if n == catalog.OwnerOID {
			return quote.PGIdent(c.user)
		}
	}
	return strconv.FormatUint(uint64(n), 10)
}

// relationName finds a relation's schema and name by OID.
func (c *Conn) relationName(oid uint32) (schema, name string) {
	if d := c.cat.ByOID[oid]; d != nil {
		return d.Schema, d.Name
	}
	for _, d := range c.cat.Tables {
		if ix := d.Index(oid); ix != nil {
			return d.Schema, ix.Name
		}
	}
	for _, d := range c.cat.Views {
		if d.OID == oid {
			return d.Schema, d.Name
		}
	}
	for _, s := range catalog.Systems() {
		if s.Def.OID == oid {
			return s.Def.Schema, s.Def.Name
		}
	}
	return "", ""
}

// visibleName is a name as the search path lets it be written.
func (c *Conn) visibleName(schema, name string) string {
	if c.visible(schema, name) {
		return quote.PGIdent(name)
	}
	return quote.PGIdent(schema) + "." + quote.PGIdent(name)
}

func (c *Conn) visible(schema, name string) bool {
	t := c.translator("")
	a, b := t.relation("", name), t.relation(schema, name)
	return a == b && a != 0
}

func (c *Conn) indexDef(d *catalog.Table, ix *catalog.Index) string {
	word := "CREATE INDEX "
	if ix.Unique {
		word = "CREATE UNIQUE INDEX "
	}
	cols := make([]string, len(ix.Columns))
	for i := range ix.Columns {
		cols[i] = indexColumnDef(d, &ix.Columns[i])
	}
	s := word + quote.PGIdent(ix.Name) + " ON " + quote.PGIdent(d.Schema) + "." + quote.PGIdent(d.Name) + " USING btree (" + strings.Join(cols, ", ") + ")"
	if ix.Where != "" {
		s += " WHERE (" + ix.Where + ")"
	}
	return s
}

func indexColumnDef(d *catalog.Table, ic *catalog.IndexColumn) string {
	s := quote.PGIdent(d.ByNum(ic.Num).Name)
	if ic.Class != "" {
		s += " " + ic.Class
	}
	if ic.Desc {
		s += " DESC"
		if !ic.NullsFirst {
			s += " NULLS LAST"
		}
	} else if ic.NullsFirst {
		s += " NULLS FIRST"
	}
	return s
}

func (c *Conn) constraintDef(d *catalog.Table, k *catalog.Constraint) string {
	switch k.Type {
	case "p":
		return "PRIMARY KEY (" + quote.PGIdents(d.Names(k.Columns)) + ")"
	case "u":
		return "UNIQUE (" + quote.PGIdents(d.Names(k.Columns)) + ")"
	case "c":
		return "CHECK ((" + k.Expr + "))"
	}
	ref := c.cat.ByOID[k.RefTable]
	if ref == nil {
		return ""
	}
	s := "FOREIGN KEY (" + quote.PGIdents(d.Names(k.Columns)) + ") REFERENCES " + c.visibleName(ref.Schema, ref.Name) + "(" + quote.PGIdents(ref.Names(k.RefCols)) + ")"
	if k.OnUpdate != "a" {
		s += " ON UPDATE " + fkActions[k.OnUpdate]
	}
	if k.OnDelete != "a" {
		s += " ON DELETE " + fkActions[k.OnDelete]
	}
	if k.Deferrable {
		s += " DEFERRABLE"
	}
	if k.Deferred {
		s += " INITIALLY DEFERRED"
	}
	return s
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
			return value.Text(c.database), nil
		case "schema":
			if p := c.effectivePath(); len(p) > 0 {
				return value.Text(p[0]), nil
			}
			return value.Datum{}, nil
		}
		return value.Text(c.user), nil
	}},
	{"cleave_schemas", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		arr := value.Array{}
		if a[0].Int64() != 0 {
			arr = append(arr, value.Elem{Text: catalog.SchemaPgCatalog})
		}
		for _, s := range c.effectivePath() {
			arr = append(arr, value.Elem{Text: s})
		}
		return value.Text(arr.String()), nil
	}},
	{"cleave_visible", 1, func(c *Conn, a []function.Arg) (value.Datum, error) {
		schema, name := c.relationName(uint32(a[0].Int64()))
		if name == "" {
			return value.Datum{}, nil
		}
		return value.Bool(c.visible(schema, name)), nil
	}},
	{"cleave_indexdef", 3, func(c *Conn, a []function.Arg) (value.Datum, error) {
		for _, d := range c.cat.Tables {
			if ix := d.Index(uint32(a[0].Int64())); ix != nil {
				n := int(a[1].Int64())
				if n == 0 {
					return value.Text(c.indexDef(d, ix)), nil
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
			return value.Text(c.user), nil
		case databaseOwnerOID:
			return value.Text("pg_database_owner"), nil
		default:
			return value.Text("unknown (OID=" + itoa(n) + ")"), nil
		}
	}},
	{"cleave_constraintdef", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		for _, d := range c.cat.Tables {
			for i := range d.Constraints {
				if d.Constraints[i].OID == uint32(a[0].Int64()) {
					s := c.constraintDef(d, &d.Constraints[i])
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
		if s, ok := c.viewText(uint32(a[0].Int64())); ok {
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
		if d := c.cat.ByOID[uint32(a[0].Int64())]; d != nil {
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
		if d := c.cat.ByOID[oid]; d != nil {
			return textOrNull(d.Comment), nil
		}
		for _, s := range c.cat.Schemas {
			if s.OID == oid {
				return textOrNull(s.Comment), nil
			}
		}
		return value.Datum{}, nil
	}},
	{"cleave_table_size", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		oid := uint32(a[0].Int64())
		d := c.cat.ByOID[oid]
		var names []string
		how := a[1].Int64()
		if d == nil {
			schema, name := c.relationName(oid)
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
		return function.IntOr(c.translator("").regIn(uint32(a[0].Int64()), a[1].Text()))
	}},
	{"cleave_reg_out", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		return value.Text(c.regOut(uint32(a[0].Int64()), a[1].Int64())), nil
	}},
	{"cleave_to_reg", 2, func(c *Conn, a []function.Arg) (value.Datum, error) {
		n, err := c.translator("").regIn(uint32(a[0].Int64()), a[1].Text())
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
