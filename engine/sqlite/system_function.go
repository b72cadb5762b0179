package sqlite

import (
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/systemrows"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

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
		case systemrows.DatabaseOwnerOID:
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
		if s, ok := systemrows.VirtualText("pg_get_function_result", uint32(a[0].Int64())); ok {
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
		if s, ok := systemrows.VirtualText("obj_description", oid); ok {
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
	if s, ok := systemrows.VirtualText(name, uint32(a[0].Int64())); ok {
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
