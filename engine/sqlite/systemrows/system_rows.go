package systemrows

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
)

// rowMaker builds the rows of a relation from named values; what is not named is NULL.
type rowMaker struct {
	def *catalog.Table
	// Rows are those that were added.
	Rows [][]value.Datum
}

// New makes rows of a relation.
func New(schema, name string) *rowMaker {
	return &rowMaker{def: catalog.FindSystem(schema, name).Def}
}

// Fields are the values of a row by the names of columns.
type Fields map[string]any

// Add adds a row.
func (m *rowMaker) Add(f Fields) {
	row := make([]value.Datum, len(m.def.Columns))
	for i, col := range m.def.Columns {
		v, ok := f[col.Name]
		if !ok {
			if col.NotNull { // flags and counters that are never set here
				row[i] = zero(col.Type)
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
	m.Rows = append(m.Rows, row)
}

// zero is what a column has that is never set, and never null.
func zero(typ uint32) value.Datum {
	switch value.ClassOf(typ) {
	case value.ClassInt:
		return value.Int(0)
	case value.ClassFloat:
		return value.Datum{Kind: 'f'}
	case value.ClassText:
		return value.Text("")
	}
	return value.Datum{}
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

// Of are the rows of a relation, but those that are the conversation's own, such as its settings.
func Of(ns *catalog.Namespace, s *catalog.System) [][]value.Datum {
	if s.Def.Schema == catalog.SchemaInternal {
		schema, rel, _ := strings.Cut(s.Def.Name, ".")
		return slices.Concat(Of(ns, catalog.FindSystem(schema, rel)), virtualRows(ns, schema, rel))
	}
	if fill := systemFills[s.Def.Schema+"."+s.Def.Name]; fill != nil {
		return fill(ns)
	}
	return nil
}

// systemFills make the rows of the relations that are not empty here.
var systemFills map[string]func(ns *catalog.Namespace) [][]value.Datum

func init() {
	systemFills = map[string]func(ns *catalog.Namespace) [][]value.Datum{
		"pg_catalog.pg_views": fillPgViews, "pg_catalog.pg_namespace": fillNamespace, "pg_catalog.pg_class": fillClass, "pg_catalog.pg_attribute": fillAttribute,
		"pg_catalog.pg_type": fillType, "pg_catalog.pg_index": fillIndex, "pg_catalog.pg_constraint": fillConstraint,
		"pg_catalog.pg_attrdef": fillAttrdef, "pg_catalog.pg_description": fillDescription, "pg_catalog.pg_database": fillDatabase,
		"pg_catalog.pg_roles": fillRoles, "pg_catalog.pg_authid": fillAuthid, "pg_catalog.pg_range": fillRange, "pg_catalog.pg_user": fillUser, "pg_catalog.pg_am": fillAM,
		"pg_catalog.pg_collation": fillCollation, "pg_catalog.pg_proc": fillProc,
		"pg_catalog.pg_operator": fillOperator, "pg_catalog.pg_cast": fillCast, "pg_catalog.pg_tables": fillPgTables,
		"pg_catalog.pg_indexes": fillPgIndexes, "pg_catalog.pg_tablespace": fillTablespace, "pg_catalog.pg_language": fillLanguage,
		"information_schema.tables": fillInfoTables, "information_schema.columns": fillInfoColumns, "information_schema.schemata": fillInfoSchemata,
		"information_schema.table_constraints": fillInfoConstraints, "information_schema.key_column_usage": fillInfoKeys,
		"information_schema.constraint_column_usage": fillInfoUsage, "information_schema.referential_constraints": fillInfoReferences,
		"information_schema.check_constraints": fillInfoChecks,
	}
}

// DatabaseOwnerOID is the predefined role that owns the schema public.
const DatabaseOwnerOID = 6171

func fillNamespace(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_namespace")
	for _, s := range ns.Catalog.Schemas {
		f := Fields{"oid": s.OID, "nspname": s.Name, "nspowner": catalog.OwnerOID}
		if s.Name == catalog.SchemaPublic {
			f["nspowner"] = DatabaseOwnerOID
			f["nspacl"] = "{pg_database_owner=UC/pg_database_owner,=U/pg_database_owner}"
		}
		m.Add(f)
	}
	return m.Rows
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

func fillClass(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_class")
	for _, d := range ns.Catalog.SortedTables() {
		checks := 0
		triggers := false
		for _, k := range d.Constraints {
			if k.Type == "c" {
				checks++
			}
			triggers = triggers || k.Type == "f"
		}
		triggers = triggers || ns.Catalog.Referenced(d)
		m.Add(Fields{"oid": d.OID, "relname": d.Name, "relnamespace": ns.Catalog.SchemaOID(d.Schema), "reltype": rowTypeOID(d), "relowner": catalog.OwnerOID, "relam": catalog.HeapAM,
			"relfilenode": d.OID, "reltuples": -1.0, "relhasindex": len(d.Indexes) > 0, "relpersistence": "p", "relkind": "r", "relnatts": len(d.Columns),
			"relchecks": checks, "relhastriggers": triggers, "relispopulated": true, "relreplident": "d", "reloptions": reloptions(d), "relfrozenxid": 3, "relminmxid": 1})
		for _, ix := range d.Indexes {
			m.Add(Fields{"oid": ix.OID, "relname": ix.Name, "relnamespace": ns.Catalog.SchemaOID(d.Schema), "relowner": catalog.OwnerOID, "relam": catalog.BtreeAM, "relfilenode": ix.OID,
				"relpersistence": "p", "relkind": "i", "relnatts": len(ix.Columns), "relispopulated": true, "relreplident": "n"})
		}
	}
	for _, d := range ns.Catalog.SortedViews() {
		m.Add(Fields{"oid": d.OID, "relname": d.Name, "relnamespace": ns.Catalog.SchemaOID(d.Schema), "reltype": rowTypeOID(d), "relowner": catalog.OwnerOID,
			"reltuples": -1.0, "relpersistence": "p", "relkind": "v", "relnatts": len(d.Columns), "relhasrules": true, "relispopulated": true, "relreplident": "n"})
	}
	for _, s := range catalog.Systems() {
		m.Add(Fields{"oid": s.Def.OID, "relname": s.Def.Name, "relnamespace": ns.Catalog.SchemaOID(s.Def.Schema), "relowner": catalog.OwnerOID,
			"relam": map[bool]int{true: catalog.HeapAM, false: 0}[s.Kind == 'r'], "reltuples": -1.0, "relpersistence": "p", "relkind": s.Kind,
			"relnatts": len(s.Def.Columns), "relispopulated": true, "relreplident": "n"})
	}
	return m.Rows
}

func fillAttribute(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_attribute")
	column := func(rel uint32, num int16, name string, typ uint32, mod int32, notNull, hasDef, dropped bool) {
		f := Fields{"attrelid": rel, "attname": name, "atttypid": typ, "attstattarget": -1, "attnum": num, "attcacheoff": -1, "atttypmod": mod,
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
		m.Add(f)
	}
	for _, d := range ns.Catalog.SortedTables() {
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
	for _, d := range ns.Catalog.SortedViews() {
		for _, col := range d.Columns {
			column(d.OID, col.Num, col.Name, col.Type, col.Mod, false, false, false)
		}
	}
	for _, s := range catalog.Systems() {
		for _, col := range s.Def.Columns {
			column(s.Def.OID, col.Num, col.Name, col.Type, col.Mod, col.NotNull, false, false)
		}
	}
	return m.Rows
}

func fillType(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_type")
	for t := range value.Builtin.Types() {
		f := Fields{"oid": t.OID, "typname": t.Name, "typnamespace": catalog.CatalogSchemaOID, "typowner": catalog.OwnerOID, "typlen": t.Size, "typbyval": t.ByValue,
			"typtype": t.Kind, "typcategory": t.Category, "typispreferred": t.Preferred, "typisdefined": true, "typdelim": ",", "typrelid": 0,
			"typelem": t.Elem, "typarray": t.Array, "typinput": t.In, "typoutput": t.Out, "typalign": t.Align, "typstorage": t.Storage,
			"typtypmod": -1, "typcollation": t.Collation}
		if t.Name == "box" || t.Name == "_box" {
			f["typdelim"] = ";"
		}
		m.Add(f)
	}
	return m.Rows
}

func fillIndex(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_index")
	for _, d := range ns.Catalog.SortedTables() {
		for _, ix := range d.Indexes {
			n := len(ix.Columns)
			f := Fields{"indexrelid": ix.OID, "indrelid": d.OID, "indnatts": n, "indnkeyatts": n, "indisunique": ix.Unique, "indisprimary": ix.Primary,
				"indimmediate": true, "indisvalid": true, "indisready": true, "indislive": true,
				"indkey":       vector(n, func(i int) int64 { return int64(ix.Columns[i].Num) }),
				"indcollation": vector(n, func(i int) int64 { return int64(collationOf(d.ByNum(ix.Columns[i].Num).Type)) }),
				"indclass": vector(n, func(i int) int64 {
					if oid := catalog.PatternClasses[ix.Columns[i].Class]; oid != 0 {
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
			m.Add(f)
		}
	}
	return m.Rows
}

func fillConstraint(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_constraint")
	for _, d := range ns.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			f := Fields{"oid": k.OID, "conname": k.Name, "connamespace": ns.Catalog.SchemaOID(d.Schema), "contype": k.Type, "convalidated": true, "conrelid": d.OID,
				"conindid": k.Index, "conislocal": true, "connoinherit": k.Type != "c", "conkey": numsArray(k.Columns), "confupdtype": " ", "confdeltype": " ", "confmatchtype": " "}
			if k.Type == "c" {
				f["conbin"] = "(" + k.Expr + ")"
			}
			if k.Type == "f" {
				f["condeferrable"], f["condeferred"] = k.Deferrable, k.Deferred
				f["confrelid"], f["confkey"] = k.RefTable, numsArray(k.RefCols)
				f["confupdtype"], f["confdeltype"], f["confmatchtype"] = k.OnUpdate, k.OnDelete, "s"
				if ref := ns.Catalog.ByOID[k.RefTable]; ref != nil {
					for _, ix := range ref.Indexes {
						if ix.Unique && catalog.SameColumns(k.RefCols, ix.Columns) {
							f["conindid"] = ix.OID
							break
						}
					}
				}
			}
			m.Add(f)
		}
	}
	return m.Rows
}

// attrdefOID numbers a column's default beside the table's own numbers.
func attrdefOID(d *catalog.Table, num int16) uint32 { return d.OID ^ 1<<30 ^ uint32(num)<<20 }

func fillAttrdef(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_attrdef")
	for _, d := range ns.Catalog.SortedTables() {
		for _, col := range d.Live() {
			if col.Default != "" {
				m.Add(Fields{"oid": attrdefOID(d, col.Num), "adrelid": d.OID, "adnum": col.Num, "adbin": col.Default})
			}
		}
	}
	return m.Rows
}

func fillDescription(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_description")
	for _, d := range ns.Catalog.SortedTables() {
		if d.Comment != "" {
			m.Add(Fields{"objoid": d.OID, "classoid": 1259, "objsubid": 0, "description": d.Comment})
		}
		for _, col := range d.Live() {
			if col.Comment != "" {
				m.Add(Fields{"objoid": d.OID, "classoid": 1259, "objsubid": col.Num, "description": col.Comment})
			}
		}
	}
	for _, s := range ns.Catalog.Schemas {
		if s.Comment != "" {
			m.Add(Fields{"objoid": s.OID, "classoid": 2615, "objsubid": 0, "description": s.Comment})
		}
	}
	return m.Rows
}

func fillDatabase(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_database")
	m.Add(Fields{"oid": catalog.DatabaseOID, "datname": ns.Database, "datdba": catalog.OwnerOID, "encoding": 6, "datlocprovider": "c", "datallowconn": true,
		"datconnlimit": -1, "datfrozenxid": 3, "datminmxid": 1, "dattablespace": 1663, "datcollate": "C", "datctype": "C.UTF-8"})
	return m.Rows
}

func roleFields(ns *catalog.Namespace) Fields {
	return Fields{"oid": catalog.OwnerOID, "rolname": ns.User, "rolinherit": true, "rolcanlogin": true, "rolconnlimit": -1,
		"rolsuper": false, "rolcreaterole": false, "rolcreatedb": false, "rolreplication": false, "rolbypassrls": false}
}

func fillRoles(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_roles")
	f := roleFields(ns)
	f["rolpassword"] = "********"
	m.Add(f)
	return m.Rows
}

func fillAuthid(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_authid")
	m.Add(roleFields(ns))
	return m.Rows
}

func fillRange(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_range")
	for _, r := range [][6]uint32{{3904, 23, 4451, 0, 1978, 3914}, {3906, 1700, 4532, 0, 3125, 0}, {3908, 1114, 4533, 0, 3128, 0},
		{3910, 1184, 4534, 0, 3127, 0}, {3912, 1082, 4535, 0, 3122, 3915}, {3926, 20, 4536, 0, 3124, 3928}} {
		m.Add(Fields{"rngtypid": r[0], "rngsubtype": r[1], "rngmultitypid": r[2], "rngcollation": r[3], "rngsubopc": r[4], "rngcanonical": r[5], "rngsubdiff": 0})
	}
	return m.Rows
}

func fillUser(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_user")
	m.Add(Fields{"usename": ns.User, "usesysid": catalog.OwnerOID, "usecreatedb": false, "usesuper": false, "userepl": false, "usebypassrls": false, "passwd": "********"})
	return m.Rows
}

func fillAM(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_am")
	m.Add(Fields{"oid": catalog.HeapAM, "amname": "heap", "amhandler": 3, "amtype": "t"})
	m.Add(Fields{"oid": catalog.BtreeAM, "amname": "btree", "amhandler": 330, "amtype": "i"})
	return m.Rows
}

func fillCollation(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_collation")
	m.Add(Fields{"oid": 100, "collname": "default", "collnamespace": catalog.CatalogSchemaOID, "collowner": catalog.OwnerOID, "collprovider": "d", "collisdeterministic": true, "collencoding": -1})
	m.Add(Fields{"oid": 950, "collname": "C", "collnamespace": catalog.CatalogSchemaOID, "collowner": catalog.OwnerOID, "collprovider": "c", "collisdeterministic": true, "collencoding": -1, "collcollate": "C", "collctype": "C"})
	m.Add(Fields{"oid": 951, "collname": "POSIX", "collnamespace": catalog.CatalogSchemaOID, "collowner": catalog.OwnerOID, "collprovider": "c", "collisdeterministic": true, "collencoding": -1, "collcollate": "POSIX", "collctype": "POSIX"})
	return m.Rows
}

func fillTablespace(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_tablespace")
	m.Add(Fields{"oid": 1663, "spcname": "pg_default", "spcowner": catalog.OwnerOID})
	m.Add(Fields{"oid": 1664, "spcname": "pg_global", "spcowner": catalog.OwnerOID})
	return m.Rows
}

func fillLanguage(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_language")
	for i, n := range []string{"internal", "c", "sql"} {
		m.Add(Fields{"oid": 12 + i, "lanname": n, "lanowner": catalog.OwnerOID, "lanpltrusted": n == "sql", "lanvalidator": 2246 + i})
	}
	return m.Rows
}

func fillProc(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_proc")
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
		m.Add(Fields{"oid": p.OID, "proname": p.Name, "pronamespace": catalog.CatalogSchemaOID, "proowner": catalog.OwnerOID, "prolang": 12, "procost": 1.0, "prorows": rows,
			"provariadic": p.Variadic, "prokind": p.Kind, "proisstrict": p.Strict, "proretset": p.Set, "provolatile": p.Volatile, "proparallel": "s",
			"pronargs": len(p.Args), "pronargdefaults": p.Defaults, "prorettype": p.Result, "proargtypes": strings.Join(args, " "), "prosrc": p.Name})
	}
	return m.Rows
}

func fillOperator(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_operator")
	for o := range value.Builtin.AllOperators() {
		kind := "b"
		if o.Left == 0 {
			kind = "l"
		}
		m.Add(Fields{"oid": o.OID, "oprname": o.Name, "oprnamespace": catalog.CatalogSchemaOID, "oprowner": catalog.OwnerOID, "oprkind": kind, "oprleft": o.Left,
			"oprright": o.Right, "oprresult": o.Result, "oprcom": o.Commutes, "oprnegate": o.Negates, "oprcode": o.Function})
	}
	return m.Rows
}

func fillCast(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_cast")
	for k := range value.Builtin.Casts() {
		m.Add(Fields{"oid": 10000 + len(m.Rows), "castsource": k.Source, "casttarget": k.Target, "castfunc": k.Function, "castcontext": k.Context, "castmethod": k.Method})
	}
	return m.Rows
}

func fillPgTables(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_tables")
	for _, d := range ns.Catalog.SortedTables() {
		fk := false
		for _, k := range d.Constraints {
			fk = fk || k.Type == "f"
		}
		fk = fk || ns.Catalog.Referenced(d)
		m.Add(Fields{"schemaname": d.Schema, "tablename": d.Name, "tableowner": ns.User, "hasindexes": len(d.Indexes) > 0, "hasrules": false, "hastriggers": fk, "rowsecurity": false})
	}
	for _, s := range catalog.Systems() {
		if s.Kind == 'r' {
			m.Add(Fields{"schemaname": s.Def.Schema, "tablename": s.Def.Name, "tableowner": ns.User, "hasindexes": true, "hasrules": false, "hastriggers": false, "rowsecurity": false})
		}
	}
	return m.Rows
}

func fillPgViews(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_views")
	for _, d := range ns.Catalog.SortedViews() {
		text, _ := ns.Catalog.ViewText(d.OID)
		m.Add(Fields{"schemaname": d.Schema, "viewname": d.Name, "viewowner": ns.User, "definition": text})
	}
	return m.Rows
}

func fillPgIndexes(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaPgCatalog, "pg_indexes")
	for _, d := range ns.Catalog.SortedTables() {
		for i := range d.Indexes {
			m.Add(Fields{"schemaname": d.Schema, "tablename": d.Name, "indexname": d.Indexes[i].Name, "indexdef": d.IndexDef(&d.Indexes[i])})
		}
	}
	return m.Rows
}

func fillInfoSchemata(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "schemata")
	for _, s := range ns.Catalog.Schemas {
		m.Add(Fields{"catalog_name": ns.Database, "schema_name": s.Name, "schema_owner": ns.User})
	}
	return m.Rows
}

func fillInfoTables(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "tables")
	add := func(schema, name, kind, insertable string) {
		m.Add(Fields{"table_catalog": ns.Database, "table_schema": schema, "table_name": name, "table_type": kind, "is_insertable_into": insertable, "is_typed": "NO"})
	}
	for _, d := range ns.Catalog.SortedTables() {
		add(d.Schema, d.Name, "BASE TABLE", "YES")
	}
	for _, d := range ns.Catalog.SortedViews() {
		add(d.Schema, d.Name, "VIEW", "NO")
	}
	for _, s := range catalog.Systems() {
		if s.Kind == 'r' {
			add(s.Def.Schema, s.Def.Name, "BASE TABLE", "YES")
		} else {
			add(s.Def.Schema, s.Def.Name, "VIEW", "NO")
		}
	}
	return m.Rows
}

func fillInfoColumns(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "columns")
	table := func(d *catalog.Table) {
		for _, col := range d.Live() {
			t := value.Builtin.Type(col.Type)
			f := Fields{"table_catalog": ns.Database, "table_schema": d.Schema, "table_name": d.Name, "column_name": col.Name, "ordinal_position": col.Num,
				"is_nullable": map[bool]string{true: "NO", false: "YES"}[col.NotNull], "data_type": value.TypeName(col.Type),
				"udt_catalog": ns.Database, "udt_schema": catalog.SchemaPgCatalog, "udt_name": t.Name, "dtd_identifier": itoa(int64(col.Num)),
				"is_self_referencing": "NO", "is_identity": "NO", "identity_cycle": "NO", "is_generated": "NEVER", "is_updatable": "YES"}
			if t.Category == 'A' {
				f["data_type"] = "ARRAY"
			}
			if col.Default != "" {
				f["column_default"] = col.Default
			}
			maps.Copy(f, typeSizes(col))
			m.Add(f)
		}
	}
	for _, d := range ns.Catalog.SortedTables() {
		table(d)
	}
	for _, d := range ns.Catalog.SortedViews() {
		table(d)
	}
	for _, s := range catalog.Systems() {
		table(s.Def)
	}
	return m.Rows
}

// typeSizes are the columns of information_schema.columns about a type's length and precision.
func typeSizes(col *catalog.Column) Fields {
	f := Fields{}
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
	return f
}

var constraintWords = map[string]string{"p": "PRIMARY KEY", "u": "UNIQUE", "c": "CHECK", "f": "FOREIGN KEY"}

func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

func fillInfoConstraints(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "table_constraints")
	for _, d := range ns.Catalog.SortedTables() {
		add := func(name, kind string, k catalog.Constraint) {
			f := Fields{"constraint_catalog": ns.Database, "constraint_schema": d.Schema, "constraint_name": name, "table_catalog": ns.Database,
				"table_schema": d.Schema, "table_name": d.Name, "constraint_type": kind, "is_deferrable": yesNo(k.Deferrable), "initially_deferred": yesNo(k.Deferred), "enforced": "YES"}
			if kind == "UNIQUE" {
				f["nulls_distinct"] = "YES"
			}
			m.Add(f)
		}
		for _, k := range d.Constraints {
			add(k.Name, constraintWords[k.Type], k)
		}
		for _, col := range d.Live() {
			if col.NotNull {
				add(itoa(int64(ns.Catalog.SchemaOID(d.Schema)))+"_"+itoa(int64(d.OID))+"_"+itoa(int64(col.Num))+"_not_null", "CHECK", catalog.Constraint{})
			}
		}
	}
	return m.Rows
}

func fillInfoChecks(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "check_constraints")
	for _, d := range ns.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			if k.Type == "c" {
				m.Add(Fields{"constraint_catalog": ns.Database, "constraint_schema": d.Schema, "constraint_name": k.Name, "check_clause": "((" + k.Expr + "))"})
			}
		}
		for _, col := range d.Live() {
			if col.NotNull {
				m.Add(Fields{"constraint_catalog": ns.Database, "constraint_schema": d.Schema, "check_clause": col.Name + " IS NOT NULL",
					"constraint_name": itoa(int64(ns.Catalog.SchemaOID(d.Schema))) + "_" + itoa(int64(d.OID)) + "_" + itoa(int64(col.Num)) + "_not_null"})
			}
		}
	}
	return m.Rows
}

func fillInfoKeys(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "key_column_usage")
	for _, d := range ns.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			if k.Type == "c" {
				continue
			}
			for i, name := range d.Names(k.Columns) {
				f := Fields{"constraint_catalog": ns.Database, "constraint_schema": d.Schema, "constraint_name": k.Name, "table_catalog": ns.Database,
					"table_schema": d.Schema, "table_name": d.Name, "column_name": name, "ordinal_position": i + 1}
				if k.Type == "f" {
					f["position_in_unique_constraint"] = i + 1
				}
				m.Add(f)
			}
		}
	}
	return m.Rows
}

func fillInfoUsage(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "constraint_column_usage")
	for _, d := range ns.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			t, nums := d, k.Columns
			if k.Type == "f" {
				t, nums = ns.Catalog.ByOID[k.RefTable], k.RefCols
			}
			if t == nil {
				continue
			}
			for _, name := range t.Names(nums) {
				m.Add(Fields{"table_catalog": ns.Database, "table_schema": t.Schema, "table_name": t.Name, "column_name": name,
					"constraint_catalog": ns.Database, "constraint_schema": d.Schema, "constraint_name": k.Name})
			}
		}
	}
	return m.Rows
}

func fillInfoReferences(ns *catalog.Namespace) [][]value.Datum {
	m := New(catalog.SchemaInformation, "referential_constraints")
	for _, d := range ns.Catalog.SortedTables() {
		for _, k := range d.Constraints {
			if k.Type != "f" {
				continue
			}
			f := Fields{"constraint_catalog": ns.Database, "constraint_schema": d.Schema, "constraint_name": k.Name, "match_option": "NONE",
				"update_rule": catalog.Actions[k.OnUpdate], "delete_rule": catalog.Actions[k.OnDelete]}
			if ref := ns.Catalog.ByOID[k.RefTable]; ref != nil {
				for _, o := range ref.Constraints {
					if ix := ref.Index(o.Index); ix != nil && ix.Unique && catalog.SameColumns(k.RefCols, ix.Columns) {
						f["unique_constraint_catalog"], f["unique_constraint_schema"], f["unique_constraint_name"] = ns.Database, ref.Schema, o.Name
						break
					}
				}
			}
			m.Add(f)
		}
	}
	return m.Rows
}

func itoa(i int64) string { return strconv.FormatInt(i, 10) }
