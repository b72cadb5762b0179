package virtual

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Row is a row of a relation of the catalogue by the names of its columns. A value is a string, a number, a bool or nil.
type Row map[string]any

// Rows are the rows that a relation of the catalogue has for the schema's objects; name is with its schema.
// Columns that are not named are as those of any view or function. The columns that name the database and
// the owner are left out: only who shows the rows knows these.
func Rows(name string) []Row {
	if f := relations[name]; f != nil {
		return f()
	}
	return nil
}

// Relations are the names of the relations that have rows for the schema's objects.
func Relations() []string { return slices.Sorted(maps.Keys(relations)) }

var relations = map[string]func() []Row{
	"pg_catalog.pg_namespace":   func() []Row { return []Row{{"oid": schemaOID, "nspname": Schema}} },
	"pg_catalog.pg_class":       classRows,
	"pg_catalog.pg_attribute":   attributeRows,
	"pg_catalog.pg_proc":        procRows,
	"pg_catalog.pg_description": descriptionRows,
	"pg_catalog.pg_views": eachTable(func(t *Table) Row {
		return Row{"schemaname": Schema, "viewname": t.Name}
	}),
	"information_schema.schemata": func() []Row { return []Row{{"schema_name": Schema}} },
	"information_schema.tables": eachTable(func(t *Table) Row {
		return Row{"table_schema": Schema, "table_name": t.Name, "table_type": "VIEW", "is_insertable_into": "NO", "is_typed": "NO"}
	}),
	"information_schema.views": eachTable(func(t *Table) Row {
		return Row{"table_schema": Schema, "table_name": t.Name, "check_option": "NONE", "is_updatable": "NO", "is_insertable_into": "NO",
			"is_trigger_updatable": "NO", "is_trigger_deletable": "NO", "is_trigger_insertable_into": "NO"}
	}),
	"information_schema.columns":    columnRows,
	"information_schema.routines":   routineRows,
	"information_schema.parameters": parameterRows,
}

func eachTable(row func(t *Table) Row) func() []Row {
	return func() (rows []Row) {
		for i := range Tables {
			rows = append(rows, row(&Tables[i]))
		}
		return rows
	}
}

func classRows() (rows []Row) {
	for _, t := range Tables {
		rows = append(rows, Row{"oid": t.OID, "relname": t.Name, "relnamespace": schemaOID, "relkind": "v", "relnatts": len(t.Columns),
			"reltype": 0, "reltuples": -1, "relpersistence": "p", "relhasrules": true, "relispopulated": true, "relreplident": "n"})
	}
	return rows
}

// storage is how values of a type lie in a row: pg_type's columns of these names.
var storage = map[int]Row{
	Bool: {"attlen": 1, "attbyval": true, "attalign": "c", "attstorage": "p", "attcollation": 0},
	Int8: {"attlen": 8, "attbyval": true, "attalign": "d", "attstorage": "p", "attcollation": 0},
	Text: {"attlen": -1, "attbyval": false, "attalign": "i", "attstorage": "x", "attcollation": 100},

	Float8:      {"attlen": 8, "attbyval": true, "attalign": "d", "attstorage": "p", "attcollation": 0},
	Timestamptz: {"attlen": 8, "attbyval": true, "attalign": "d", "attstorage": "p", "attcollation": 0},
}

func attributeRows() (rows []Row) {
	for _, t := range Tables {
		for i, c := range t.Columns {
			row := Row{"attrelid": t.OID, "attname": c.Name, "atttypid": c.Type, "attnum": i + 1}
			for name, value := range storage[c.Type] {
				row[name] = value
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func procRows() (rows []Row) {
	for _, f := range Functions {
		var types, names, modes []string
		optional, variadic := 0, 0
		for _, p := range f.Params {
			mode := "i"
			if p.Variadic {
				mode, variadic = "v", p.Type
			}
			if p.Optional {
				optional++
			}
			types, names, modes = append(types, number(p.Type)), append(names, p.Name), append(modes, mode)
		}
		row := Row{"oid": f.OID, "proname": f.Name, "pronamespace": schemaOID, "procost": 1, "prorows": 0, "provariadic": variadic, "prokind": "f", "prosecdef": false,
			"proleakproof": false, "proisstrict": false, "proretset": false, "provolatile": "v", "proparallel": "u", "pronargs": len(types), "pronargdefaults": optional,
			"prorettype": f.Result, "proargtypes": strings.Join(types, " "), "prosrc": ""}
		if len(names) > 0 {
			row["proargnames"] = "{" + strings.Join(names, ",") + "}"
		}
		if variadic != 0 {
			row["proargmodes"], row["proallargtypes"] = "{"+strings.Join(modes, ",")+"}", "{"+strings.Join(types, ",")+"}"
		}
		rows = append(rows, row)
	}
	return rows
}

// The numbers of the relations that pg_description refers to.
const (
	classOfNamespaces = 2615
	classOfRelations  = 1259
	classOfFunctions  = 1255
)

func descriptionRows() (rows []Row) {
	about := func(class, oid int, text string) {
		rows = append(rows, Row{"objoid": oid, "classoid": class, "objsubid": 0, "description": text})
	}
	about(classOfNamespaces, schemaOID, schemaAbout)
	for _, t := range Tables {
		about(classOfRelations, t.OID, t.About)
	}
	for _, f := range Functions {
		about(classOfFunctions, f.OID, f.About)
	}
	return rows
}

// shortNames are the types' names in pg_type.
var shortNames = map[int]string{Bool: "bool", Int8: "int8", Int4: "int4", Text: "text", JSON: "json", Float8: "float8", TextArray: "_text", Timestamptz: "timestamptz",
	Any: "any", AnyElement: "anyelement", AnyArray: "anyarray", UUID: "uuid"}

func columnRows() (rows []Row) {
	for _, t := range Tables {
		for i, c := range t.Columns {
			row := Row{"table_schema": Schema, "table_name": t.Name, "column_name": c.Name, "ordinal_position": i + 1, "is_nullable": "YES", "data_type": typeNames[c.Type],
				"udt_schema": "pg_catalog", "udt_name": shortNames[c.Type], "dtd_identifier": number(i + 1), "is_self_referencing": "NO", "is_identity": "NO",
				"identity_cycle": "NO", "is_generated": "NEVER", "is_updatable": "NO"}
			switch c.Type {
			case Text:
				row["character_octet_length"] = 1 << 30
			case Int8:
				row["numeric_precision"], row["numeric_precision_radix"], row["numeric_scale"] = 64, 2, 0
			case Float8:
				row["numeric_precision"], row["numeric_precision_radix"] = 53, 2
			case Timestamptz:
				row["datetime_precision"] = 6
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func specific(f *Function) string { return f.Name + "_" + number(f.OID) }

// dataType is what information_schema says of a type.
func dataType(oid int) string {
	if oid == TextArray {
		return "ARRAY"
	}
	return typeNames[oid]
}

func routineRows() (rows []Row) {
	for i := range Functions {
		f := &Functions[i]
		rows = append(rows, Row{"specific_schema": Schema, "specific_name": specific(f), "routine_schema": Schema, "routine_name": f.Name, "routine_type": "FUNCTION",
			"data_type": dataType(f.Result), "type_udt_schema": "pg_catalog", "type_udt_name": shortNames[f.Result], "dtd_identifier": "0", "routine_body": "EXTERNAL",
			"external_language": "INTERNAL", "parameter_style": "GENERAL", "is_deterministic": "NO", "sql_data_access": "MODIFIES", "is_null_call": "NO",
			"schema_level_routine": "YES", "max_dynamic_result_sets": 0, "security_type": "INVOKER", "as_locator": "NO", "is_udt_dependent": "NO"})
	}
	return rows
}

func parameterRows() (rows []Row) {
	for i := range Functions {
		f := &Functions[i]
		for n, p := range f.Params {
			row := Row{"specific_schema": Schema, "specific_name": specific(f), "ordinal_position": n + 1, "parameter_mode": "IN", "is_result": "NO", "as_locator": "NO",
				"parameter_name": p.Name, "data_type": dataType(p.Type), "udt_schema": "pg_catalog", "udt_name": shortNames[p.Type], "dtd_identifier": number(n + 1)}
			if p.Optional {
				row["parameter_default"] = p.nothing()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func number(n int) string { return strconv.Itoa(n) }
