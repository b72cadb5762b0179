package sqlite

import (
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
)

// rows builds the rows of a relation from named values; what is not named is NULL.
type rowMaker struct {
	def  *catalog.Table
	rows [][]value.Datum
}

func maker(schema, name string) *rowMaker {
	return &rowMaker{def: catalog.FindSystem(schema, name).Def}
}

type fields map[string]any

func (m *rowMaker) add(f fields) {
	row := make([]value.Datum, len(m.def.Columns))
	for i, col := range m.def.Columns {
		v, ok := f[col.Name]
		if !ok {
			// Flags and counters that are never set here.
			if col.NotNull {
				switch value.ClassOf(col.Type) {
				case value.ClassInt:
					row[i] = value.Int(0)
				case value.ClassFloat:
					row[i] = value.Datum{Kind: 'f'}
				case value.ClassText:
					row[i] = value.Text("")
				}
			}
			continue
		}
		switch v := v.(type) {
		case nil:
		case int:
			row[i] = value.Int(int64(v))
		case int16:
			row[i] = value.Int(int64(v))
		case int32:
			row[i] = value.Int(int64(v))
		case uint32:
			row[i] = value.Int(int64(v))
		case int64:
			row[i] = value.Int(v)
		case float64:
			row[i] = value.Datum{Kind: 'f', Float: v}
		case bool:
			row[i] = value.Bool(v)
		case string:
			row[i] = value.Text(v)
		case byte:
			row[i] = value.Text(string(rune(v)))
		}
	}
	m.rows = append(m.rows, row)
}

func numsArray(nums []int16) string {
	a := make(value.Array, len(nums))
	for i, n := range nums {
		a[i].Text = itoa(int64(n))
	}
	return a.String()
}

func vector(n int, f func(i int) int64) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = itoa(f(i))
	}
	return strings.Join(parts, " ")
}

// rowType is the OID of a table's row type: beside the table's own numbers.
func rowTypeOID(d *catalog.Table) uint32 { return d.OID | 1<<31 }

var opclasses = map[uint32]int64{pgoid.Int8: 3124, pgoid.Int2: 1979, pgoid.Int4: 1978, pgoid.Text: 3126, pgoid.Varchar: 3126, pgoid.Bpchar: 426, pgoid.UUID: 2968,
	pgoid.Date: 3122, pgoid.Timestamp: 3128, pgoid.Timestamptz: 3127, pgoid.Bool: 424, pgoid.Bytea: 428, pgoid.Numeric: 3125, pgoid.Float8: 3123, pgoid.Time: 1996}

func collationOf(oid uint32) uint32 {
	if t := value.Builtin.Type(oid); t != nil {
		return t.Collation
	}
	return 0
}

// systemFills make the rows of the relations that are not empty here.
var systemFills map[string]func(c *Conn) [][]value.Datum

var systemVolatile = map[string]bool{"pg_catalog.pg_settings": true, "pg_catalog.pg_prepared_xacts": true}

func init() {
	systemFills = map[string]func(c *Conn) [][]value.Datum{
		"pg_catalog.pg_prepared_xacts": preparedRows, "pg_catalog.pg_views": fillPgViews, "pg_catalog.pg_namespace": fillNamespace, "pg_catalog.pg_class": fillClass, "pg_catalog.pg_attribute": fillAttribute,
		"pg_catalog.pg_type": fillType, "pg_catalog.pg_index": fillIndex, "pg_catalog.pg_constraint": fillConstraint,
		"pg_catalog.pg_attrdef": fillAttrdef, "pg_catalog.pg_description": fillDescription, "pg_catalog.pg_database": fillDatabase,
		"pg_catalog.pg_roles": fillRoles, "pg_catalog.pg_authid": fillAuthid, "pg_catalog.pg_range": fillRange, "pg_catalog.pg_user": fillUser, "pg_catalog.pg_am": fillAM,
		"pg_catalog.pg_collation": fillCollation, "pg_catalog.pg_settings": fillSettings, "pg_catalog.pg_proc": fillProc,
		"pg_catalog.pg_operator": fillOperator, "pg_catalog.pg_cast": fillCast, "pg_catalog.pg_tables": fillPgTables,
		"pg_catalog.pg_indexes": fillPgIndexes, "pg_catalog.pg_tablespace": fillTablespace, "pg_catalog.pg_language": fillLanguage,
		"information_schema.tables": fillInfoTables, "information_schema.columns": fillInfoColumns, "information_schema.schemata": fillInfoSchemata,
		"information_schema.table_constraints": fillInfoConstraints, "information_schema.key_column_usage": fillInfoKeys,
		"information_schema.constraint_column_usage": fillInfoUsage, "information_schema.referential_constraints": fillInfoReferences,
		"information_schema.check_constraints": fillInfoChecks,
	}
}

// databaseOwnerOID is the predefined role that owns the schema public.
const databaseOwnerOID = 6171

func fillNamespace(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_namespace")
	for _, s := range c.names.Catalog.Schemas {
		f := fields{"oid": s.OID, "nspname": s.Name, "nspowner": catalog.OwnerOID}
		if s.Name == catalog.SchemaPublic {
			f["nspowner"] = databaseOwnerOID
			f["nspacl"] = "{pg_database_owner=UC/pg_database_owner,=U/pg_database_owner}"
		}
		m.add(f)
	}
	return m.rows
}

func reloptions(d *catalog.Table) any {
	if len(d.Options) == 0 {
		return nil
	}
	a := make(value.Array, len(d.Options))
	for i, o := range d.Options {
		a[i].Text = o
	}
	return a.String()
}

func fillClass(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_class")
	for _, d := range c.names.Catalog.SortedTables() {
		checks := 0
		triggers := false
		for _, k := range d.Constraints {
			if k.Type == "c" {
				checks++
			}
			triggers = triggers || k.Type == "f"
		}
		triggers = triggers || c.names.Catalog.Referenced(d)
		m.add(fields{"oid": d.OID, "relname": d.Name, "relnamespace": c.names.Catalog.SchemaOID(d.Schema), "reltype": rowTypeOID(d), "relowner": catalog.OwnerOID, "relam": catalog.HeapAM,
			"relfilenode": d.OID, "reltuples": -1.0, "relhasindex": len(d.Indexes) > 0, "relpersistence": "p", "relkind": "r", "relnatts": len(d.Columns),
			"relchecks": checks, "relhastriggers": triggers, "relispopulated": true, "relreplident": "d", "reloptions": reloptions(d), "relfrozenxid": 3, "relminmxid": 1})
		for _, ix := range d.Indexes {
			m.add(fields{"oid": ix.OID, "relname": ix.Name, "relnamespace": c.names.Catalog.SchemaOID(d.Schema), "relowner": catalog.OwnerOID, "relam": catalog.BtreeAM, "relfilenode": ix.OID,
				"relpersistence": "p", "relkind": "i", "relnatts": len(ix.Columns), "relispopulated": true, "relreplident": "n"})
		}
	}
	for _, d := range c.names.Catalog.SortedViews() {
		m.add(fields{"oid": d.OID, "relname": d.Name, "relnamespace": c.names.Catalog.SchemaOID(d.Schema), "reltype": rowTypeOID(d), "relowner": catalog.OwnerOID,
			"reltuples": -1.0, "relpersistence": "p", "relkind": "v", "relnatts": len(d.Columns), "relhasrules": true, "relispopulated": true, "relreplident": "n"})
	}
	for _, s := range catalog.Systems() {
		m.add(fields{"oid": s.Def.OID, "relname": s.Def.Name, "relnamespace": c.names.Catalog.SchemaOID(s.Def.Schema), "relowner": catalog.OwnerOID,
			"relam": map[bool]int{true: catalog.HeapAM, false: 0}[s.Kind == 'r'], "reltuples": -1.0, "relpersistence": "p", "relkind": s.Kind,
			"relnatts": len(s.Def.Columns), "relispopulated": true, "relreplident": "n"})
	}
	return m.rows
}

func fillAttribute(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_attribute")
	column := func(rel uint32, num int16, name string, typ uint32, mod int32, notNull, hasDef, dropped bool) {
		f := fields{"attrelid": rel, "attname": name, "atttypid": typ, "attstattarget": -1, "attnum": num, "attcacheoff": -1, "atttypmod": mod,
			"attnotnull": notNull, "atthasdef": hasDef, "attisdropped": dropped, "attislocal": true, "attcompression": "", "attidentity": "", "attgenerated": ""}
		if t := value.Builtin.Type(typ); t != nil {
			f["attlen"], f["attbyval"], f["attalign"], f["attstorage"], f["attcollation"] = t.Size, t.ByValue, t.Align, t.Storage, t.Collation
			if t.Category == 'A' {
				f["attndims"] = 1
			}
		}
		if dropped {
			f["atttypid"] = 0
		}
		m.add(f)
	}
	for _, d := range c.names.Catalog.SortedTables() {
		for _, col := range d.Columns {
			column(d.OID, col.Num, col.Name, col.Type, col.Mod, col.NotNull, col.Default != "", col.Dropped)
		}
		for _, s := range []struct {
			num  int16
			name string
			typ  uint32
		}{{-1, "ctid", pgoid.TID}, {-2, "xmin", pgoid.XID}, {-3, "cmin", 29}, {-4, "xmax", pgoid.XID}, {-5, "cmax", 29}, {-6, "tableoid", pgoid.OID}} {
			column(d.OID, s.num, s.name, s.typ, -1, true, false, false)
		}
		for _, ix := range d.Indexes {
			for i, ic := range ix.Columns {
				col := d.ByNum(ic.Num)
				column(ix.OID, int16(i+1), col.Name, col.Type, col.Mod, false, false, false)
			}
		}
	}
	for _, d := range c.names.Catalog.SortedViews() {
		for _, col := range d.Columns {
			column(d.OID, col.Num, col.Name, col.Type, col.Mod, false, false, false)
		}
	}
	for _, s := range catalog.Systems() {
		for _, col := range s.Def.Columns {
			column(s.Def.OID, col.Num, col.Name, col.Type, col.Mod, col.NotNull, false, false)
		}
	}
	return m.rows
}

func fillType(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_type")
	for t := range value.Builtin.Types() {
		f := fields{"oid": t.OID, "typname": t.Name, "typnamespace": catalog.CatalogSchemaOID, "typowner": catalog.OwnerOID, "typlen": t.Size, "typbyval": t.ByValue,
			"typtype": t.Kind, "typcategory": t.Category, "typispreferred": t.Preferred, "typisdefined": true, "typdelim": ",", "typrelid": 0,
			"typelem": t.Elem, "typarray": t.Array, "typinput": t.In, "typoutput": t.Out, "typalign": t.Align, "typstorage": t.Storage,
			"typtypmod": -1, "typcollation": t.Collation}
		if t.Name == "box" || t.Name == "_box" {
			f["typdelim"] = ";"
		}
		m.add(f)
	}
	return m.rows
}

func fillIndex(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_index")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, ix := range d.Indexes {
			n := len(ix.Columns)
			f := fields{"indexrelid": ix.OID, "indrelid": d.OID, "indnatts": n, "indnkeyatts": n, "indisunique": ix.Unique, "indisprimary": ix.Primary,
				"indimmediate": true, "indisvalid": true, "indisready": true, "indislive": true,
				"indkey":       vector(n, func(i int) int64 { return int64(ix.Columns[i].Num) }),
				"indcollation": vector(n, func(i int) int64 { return int64(collationOf(d.ByNum(ix.Columns[i].Num).Type)) }),
				"indclass": vector(n, func(i int) int64 {
					if oid := patternClasses[ix.Columns[i].Class]; oid != 0 {
						return oid
					}
					return opclasses[d.ByNum(ix.Columns[i].Num).Type]
				}),
				"indoption": vector(n, func(i int) int64 {
					o := int64(0)
					if ix.Columns[i].Desc {
						o |= 1
					}
					if ix.Columns[i].NullsFirst {
						o |= 2
					}
					return o
				})}
			if ix.Where != "" {
				f["indpred"] = "(" + ix.Where + ")"
			}
			m.add(f)
		}
	}
	return m.rows
}

func fillConstraint(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_constraint")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			f := fields{"oid": k.OID, "conname": k.Name, "connamespace": c.names.Catalog.SchemaOID(d.Schema), "contype": k.Type, "convalidated": true, "conrelid": d.OID,
				"conindid": k.Index, "conislocal": true, "connoinherit": k.Type != "c", "conkey": numsArray(k.Columns), "confupdtype": " ", "confdeltype": " ", "confmatchtype": " "}
			if k.Type == "c" {
				f["conbin"] = "(" + k.Expr + ")"
			}
			if k.Type == "f" {
				f["condeferrable"], f["condeferred"] = k.Deferrable, k.Deferred
				f["confrelid"], f["confkey"] = k.RefTable, numsArray(k.RefCols)
				f["confupdtype"], f["confdeltype"], f["confmatchtype"] = k.OnUpdate, k.OnDelete, "s"
				if ref := c.names.Catalog.ByOID[k.RefTable]; ref != nil {
					for _, ix := range ref.Indexes {
						if ix.Unique && sameColumnsSet(k.RefCols, ix.Columns) {
							f["conindid"] = ix.OID
							break
						}
					}
				}
			}
			m.add(f)
		}
	}
	return m.rows
}

// attrdefOID numbers a column's default beside the table's own numbers.
func attrdefOID(d *catalog.Table, num int16) uint32 { return d.OID ^ 1<<30 ^ uint32(num)<<20 }

func fillAttrdef(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_attrdef")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, col := range d.Live() {
			if col.Default != "" {
				m.add(fields{"oid": attrdefOID(d, col.Num), "adrelid": d.OID, "adnum": col.Num, "adbin": col.Default})
			}
		}
	}
	return m.rows
}

func fillDescription(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_description")
	for _, d := range c.names.Catalog.SortedTables() {
		if d.Comment != "" {
			m.add(fields{"objoid": d.OID, "classoid": 1259, "objsubid": 0, "description": d.Comment})
		}
		for _, col := range d.Live() {
			if col.Comment != "" {
				m.add(fields{"objoid": d.OID, "classoid": 1259, "objsubid": col.Num, "description": col.Comment})
			}
		}
	}
	for _, s := range c.names.Catalog.Schemas {
		if s.Comment != "" {
			m.add(fields{"objoid": s.OID, "classoid": 2615, "objsubid": 0, "description": s.Comment})
		}
	}
	return m.rows
}

func fillDatabase(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_database")
	m.add(fields{"oid": catalog.DatabaseOID, "datname": c.names.Database, "datdba": catalog.OwnerOID, "encoding": 6, "datlocprovider": "c", "datallowconn": true,
		"datconnlimit": -1, "datfrozenxid": 3, "datminmxid": 1, "dattablespace": 1663, "datcollate": "C", "datctype": "C.UTF-8"})
	return m.rows
}

func roleFields(c *Conn) fields {
	return fields{"oid": catalog.OwnerOID, "rolname": c.names.User, "rolinherit": true, "rolcanlogin": true, "rolconnlimit": -1,
		"rolsuper": false, "rolcreaterole": false, "rolcreatedb": false, "rolreplication": false, "rolbypassrls": false}
}

func fillRoles(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_roles")
	f := roleFields(c)
	f["rolpassword"] = "********"
	m.add(f)
	return m.rows
}

func fillAuthid(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_authid")
	m.add(roleFields(c))
	return m.rows
}

func fillRange(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_range")
	for _, r := range [][6]uint32{{3904, 23, 4451, 0, 1978, 3914}, {3906, 1700, 4532, 0, 3125, 0}, {3908, 1114, 4533, 0, 3128, 0},
		{3910, 1184, 4534, 0, 3127, 0}, {3912, 1082, 4535, 0, 3122, 3915}, {3926, 20, 4536, 0, 3124, 3928}} {
		m.add(fields{"rngtypid": r[0], "rngsubtype": r[1], "rngmultitypid": r[2], "rngcollation": r[3], "rngsubopc": r[4], "rngcanonical": r[5], "rngsubdiff": 0})
	}
	return m.rows
}

func fillUser(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_user")
	m.add(fields{"usename": c.names.User, "usesysid": catalog.OwnerOID, "usecreatedb": false, "usesuper": false, "userepl": false, "usebypassrls": false, "passwd": "********"})
	return m.rows
}

func fillAM(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_am")
	m.add(fields{"oid": catalog.HeapAM, "amname": "heap", "amhandler": 3, "amtype": "t"})
	m.add(fields{"oid": catalog.BtreeAM, "amname": "btree", "amhandler": 330, "amtype": "i"})
	return m.rows
}

func fillCollation(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_collation")
	m.add(fields{"oid": 100, "collname": "default", "collnamespace": catalog.CatalogSchemaOID, "collowner": catalog.OwnerOID, "collprovider": "d", "collisdeterministic": true, "collencoding": -1})
	m.add(fields{"oid": 950, "collname": "C", "collnamespace": catalog.CatalogSchemaOID, "collowner": catalog.OwnerOID, "collprovider": "c", "collisdeterministic": true, "collencoding": -1, "collcollate": "C", "collctype": "C"})
	m.add(fields{"oid": 951, "collname": "POSIX", "collnamespace": catalog.CatalogSchemaOID, "collowner": catalog.OwnerOID, "collprovider": "c", "collisdeterministic": true, "collencoding": -1, "collcollate": "POSIX", "collctype": "POSIX"})
	return m.rows
}

func fillTablespace(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_tablespace")
	m.add(fields{"oid": 1663, "spcname": "pg_default", "spcowner": catalog.OwnerOID})
	m.add(fields{"oid": 1664, "spcname": "pg_global", "spcowner": catalog.OwnerOID})
	return m.rows
}

func fillLanguage(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_language")
	for i, n := range []string{"internal", "c", "sql"} {
		m.add(fields{"oid": 12 + i, "lanname": n, "lanowner": catalog.OwnerOID, "lanpltrusted": n == "sql", "lanvalidator": 2246 + i})
	}
	return m.rows
}

func fillSettings(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_settings")
	for _, n := range settingNames() {
		d := settingByName[n]
		_, v, _ := c.show(n)
		kind, ctx := d.kind, "user"
		var unit any
		if kind == "ms" {
			kind, unit = "integer", "ms"
			if dur, ok := parseDuration(v); ok {
				v = itoa(dur.Milliseconds())
			}
		}
		if d.fixed {
			ctx = "internal"
		}
		m.add(fields{"name": d.name, "setting": v, "unit": unit, "category": "Cleave", "short_desc": d.short, "context": ctx, "vartype": kind,
			"source": "default", "boot_val": d.value, "reset_val": d.value, "pending_restart": false})
	}
	return m.rows
}

func fillProc(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_proc")
	for p := range value.Builtin.AllFunctions() {
		if p.OID == 0 {
			continue // of languages and dictionaries, which are not there
		}
		args := make([]string, len(p.Args))
		for i, a := range p.Args {
			args[i] = itoa(int64(a))
		}
		rows := 0.0
		if p.Set {
			rows = 1000
		}
		m.add(fields{"oid": p.OID, "proname": p.Name, "pronamespace": catalog.CatalogSchemaOID, "proowner": catalog.OwnerOID, "prolang": 12, "procost": 1.0, "prorows": rows,
			"provariadic": p.Variadic, "prokind": p.Kind, "proisstrict": p.Strict, "proretset": p.Set, "provolatile": p.Volatile, "proparallel": "s",
			"pronargs": len(p.Args), "pronargdefaults": p.Defaults, "prorettype": p.Result, "proargtypes": strings.Join(args, " "), "prosrc": p.Name})
	}
	return m.rows
}

func fillOperator(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_operator")
	for o := range value.Builtin.AllOperators() {
		kind := "b"
		if o.Left == 0 {
			kind = "l"
		}
		m.add(fields{"oid": o.OID, "oprname": o.Name, "oprnamespace": catalog.CatalogSchemaOID, "oprowner": catalog.OwnerOID, "oprkind": kind, "oprleft": o.Left,
			"oprright": o.Right, "oprresult": o.Result, "oprcom": o.Commutes, "oprnegate": o.Negates, "oprcode": o.Function})
	}
	return m.rows
}

func fillCast(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_cast")
	for k := range value.Builtin.Casts() {
		m.add(fields{"oid": 10000 + len(m.rows), "castsource": k.Source, "casttarget": k.Target, "castfunc": k.Function, "castcontext": k.Context, "castmethod": k.Method})
	}
	return m.rows
}

func fillPgTables(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_tables")
	for _, d := range c.names.Catalog.SortedTables() {
		fk := false
		for _, k := range d.Constraints {
			fk = fk || k.Type == "f"
		}
		fk = fk || c.names.Catalog.Referenced(d)
		m.add(fields{"schemaname": d.Schema, "tablename": d.Name, "tableowner": c.names.User, "hasindexes": len(d.Indexes) > 0, "hasrules": false, "hastriggers": fk, "rowsecurity": false})
	}
	for _, s := range catalog.Systems() {
		if s.Kind == 'r' {
			m.add(fields{"schemaname": s.Def.Schema, "tablename": s.Def.Name, "tableowner": c.names.User, "hasindexes": true, "hasrules": false, "hastriggers": false, "rowsecurity": false})
		}
	}
	return m.rows
}

func fillPgViews(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_views")
	for _, d := range c.names.Catalog.SortedViews() {
		text, _ := c.names.Catalog.ViewText(d.OID)
		m.add(fields{"schemaname": d.Schema, "viewname": d.Name, "viewowner": c.names.User, "definition": text})
	}
	return m.rows
}

func fillPgIndexes(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaPgCatalog, "pg_indexes")
	for _, d := range c.names.Catalog.SortedTables() {
		for i := range d.Indexes {
			m.add(fields{"schemaname": d.Schema, "tablename": d.Name, "indexname": d.Indexes[i].Name, "indexdef": d.IndexDef(&d.Indexes[i])})
		}
	}
	return m.rows
}

func fillInfoSchemata(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "schemata")
	for _, s := range c.names.Catalog.Schemas {
		m.add(fields{"catalog_name": c.names.Database, "schema_name": s.Name, "schema_owner": c.names.User})
	}
	return m.rows
}

func fillInfoTables(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "tables")
	add := func(schema, name, kind, insertable string) {
		m.add(fields{"table_catalog": c.names.Database, "table_schema": schema, "table_name": name, "table_type": kind, "is_insertable_into": insertable, "is_typed": "NO"})
	}
	for _, d := range c.names.Catalog.SortedTables() {
		add(d.Schema, d.Name, "BASE TABLE", "YES")
	}
	for _, d := range c.names.Catalog.SortedViews() {
		add(d.Schema, d.Name, "VIEW", "NO")
	}
	for _, s := range catalog.Systems() {
		if s.Kind == 'r' {
			add(s.Def.Schema, s.Def.Name, "BASE TABLE", "YES")
		} else {
			add(s.Def.Schema, s.Def.Name, "VIEW", "NO")
		}
	}
	return m.rows
}

func fillInfoColumns(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "columns")
	table := func(d *catalog.Table) {
		for _, col := range d.Live() {
			t := value.Builtin.Type(col.Type)
			f := fields{"table_catalog": c.names.Database, "table_schema": d.Schema, "table_name": d.Name, "column_name": col.Name, "ordinal_position": col.Num,
				"is_nullable": map[bool]string{true: "NO", false: "YES"}[col.NotNull], "data_type": value.TypeName(col.Type),
				"udt_catalog": c.names.Database, "udt_schema": catalog.SchemaPgCatalog, "udt_name": t.Name, "dtd_identifier": itoa(int64(col.Num)),
				"is_self_referencing": "NO", "is_identity": "NO", "identity_cycle": "NO", "is_generated": "NEVER", "is_updatable": "YES"}
			if t.Category == 'A' {
				f["data_type"] = "ARRAY"
			}
			if col.Default != "" {
				f["column_default"] = col.Default
			}
			switch col.Type {
			case pgoid.Varchar, pgoid.Bpchar:
				if col.Mod > 0 {
					f["character_maximum_length"] = col.Mod - 4
					f["character_octet_length"] = (col.Mod - 4) * 4
				} else {
					f["character_octet_length"] = 1 << 30
				}
			case pgoid.Text:
				f["character_octet_length"] = 1 << 30
			case pgoid.Int2:
				f["numeric_precision"], f["numeric_precision_radix"], f["numeric_scale"] = 16, 2, 0
			case pgoid.Int4:
				f["numeric_precision"], f["numeric_precision_radix"], f["numeric_scale"] = 32, 2, 0
			case pgoid.Int8:
				f["numeric_precision"], f["numeric_precision_radix"], f["numeric_scale"] = 64, 2, 0
			case pgoid.Float8:
				f["numeric_precision"], f["numeric_precision_radix"] = 53, 2
			case pgoid.Numeric:
				f["numeric_precision_radix"] = 10
				if col.Mod >= 0 {
					p, s := value.NumericTypmod(col.Mod)
					f["numeric_precision"], f["numeric_scale"] = p, s
				}
			case pgoid.Date:
				f["datetime_precision"] = 0
			case pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz:
				f["datetime_precision"] = 6
				if col.Mod >= 0 {
					f["datetime_precision"] = col.Mod
				}
			}
			m.add(f)
		}
	}
	for _, d := range c.names.Catalog.SortedTables() {
		table(d)
	}
	for _, d := range c.names.Catalog.SortedViews() {
		table(d)
	}
	for _, s := range catalog.Systems() {
		table(s.Def)
	}
	return m.rows
}

var constraintWords = map[string]string{"p": "PRIMARY KEY", "u": "UNIQUE", "c": "CHECK", "f": "FOREIGN KEY"}

func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

func fillInfoConstraints(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "table_constraints")
	for _, d := range c.names.Catalog.SortedTables() {
		add := func(name, kind string, k catalog.Constraint) {
			f := fields{"constraint_catalog": c.names.Database, "constraint_schema": d.Schema, "constraint_name": name, "table_catalog": c.names.Database,
				"table_schema": d.Schema, "table_name": d.Name, "constraint_type": kind, "is_deferrable": yesNo(k.Deferrable), "initially_deferred": yesNo(k.Deferred), "enforced": "YES"}
			if kind == "UNIQUE" {
				f["nulls_distinct"] = "YES"
			}
			m.add(f)
		}
		for _, k := range d.Constraints {
			add(k.Name, constraintWords[k.Type], k)
		}
		for _, col := range d.Live() {
			if col.NotNull {
				add(itoa(int64(c.names.Catalog.SchemaOID(d.Schema)))+"_"+itoa(int64(d.OID))+"_"+itoa(int64(col.Num))+"_not_null", "CHECK", catalog.Constraint{})
			}
		}
	}
	return m.rows
}

func fillInfoChecks(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "check_constraints")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			if k.Type == "c" {
				m.add(fields{"constraint_catalog": c.names.Database, "constraint_schema": d.Schema, "constraint_name": k.Name, "check_clause": "((" + k.Expr + "))"})
			}
		}
		for _, col := range d.Live() {
			if col.NotNull {
				m.add(fields{"constraint_catalog": c.names.Database, "constraint_schema": d.Schema, "check_clause": col.Name + " IS NOT NULL",
					"constraint_name": itoa(int64(c.names.Catalog.SchemaOID(d.Schema))) + "_" + itoa(int64(d.OID)) + "_" + itoa(int64(col.Num)) + "_not_null"})
			}
		}
	}
	return m.rows
}

func fillInfoKeys(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "key_column_usage")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			if k.Type == "c" {
				continue
			}
			for i, name := range d.Names(k.Columns) {
				f := fields{"constraint_catalog": c.names.Database, "constraint_schema": d.Schema, "constraint_name": k.Name, "table_catalog": c.names.Database,
					"table_schema": d.Schema, "table_name": d.Name, "column_name": name, "ordinal_position": i + 1}
				if k.Type == "f" {
					f["position_in_unique_constraint"] = i + 1
				}
				m.add(f)
			}
		}
	}
	return m.rows
}

func fillInfoUsage(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "constraint_column_usage")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			t, nums := d, k.Columns
			if k.Type == "f" {
				t, nums = c.names.Catalog.ByOID[k.RefTable], k.RefCols
			}
			if t == nil {
				continue
			}
			for _, name := range t.Names(nums) {
				m.add(fields{"table_catalog": c.names.Database, "table_schema": t.Schema, "table_name": t.Name, "column_name": name,
					"constraint_catalog": c.names.Database, "constraint_schema": d.Schema, "constraint_name": k.Name})
			}
		}
	}
	return m.rows
}

func fillInfoReferences(c *Conn) [][]value.Datum {
	m := maker(catalog.SchemaInformation, "referential_constraints")
	for _, d := range c.names.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			if k.Type != "f" {
				continue
			}
			f := fields{"constraint_catalog": c.names.Database, "constraint_schema": d.Schema, "constraint_name": k.Name, "match_option": "NONE",
				"update_rule": catalog.Actions[k.OnUpdate], "delete_rule": catalog.Actions[k.OnDelete]}
			if ref := c.names.Catalog.ByOID[k.RefTable]; ref != nil {
				for _, o := range ref.Constraints {
					if ix := ref.Index(o.Index); ix != nil && ix.Unique && sameColumnsSet(k.RefCols, ix.Columns) {
						f["unique_constraint_catalog"], f["unique_constraint_schema"], f["unique_constraint_name"] = c.names.Database, ref.Schema, o.Name
						break
					}
				}
			}
			m.add(f)
		}
	}
	return m.rows
}
