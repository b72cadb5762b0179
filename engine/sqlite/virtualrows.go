package sqlite

import (
	"slices"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/virtual"
)

// virtualSystem are the relations of the catalogue with the rows of the schema cleave, which is on no shard, added. The
// planner names them in the place of PostgreSQL's where a statement asks for that schema: cleave_internal."pg_catalog.pg_class".
var virtualSystem = sync.OnceValue(func() map[string]*systemTable {
	m := map[string]*systemTable{}
	for _, name := range virtual.Relations() {
		schema, rel, _ := strings.Cut(name, ".")
		base := findSystem(schema, rel)
		if base == nil {
			continue
		}
		s := &systemTable{kind: base.kind, constant: base.constant, fill: func(c *Conn) [][]value.Datum {
			return slices.Concat(base.rows(c), c.virtualRows(schema, rel))
		}}
		s.def = &tableDef{OID: base.def.OID, Schema: internalSchema, Name: name, Columns: base.def.Columns, system: s}
		m[name] = s
	}
	return m
})

func (s *systemTable) rows(c *Conn) [][]value.Datum {
	if s.fill == nil {
		return nil
	}
	return s.fill(c)
}

// usual are the columns that all rows of a relation have alike, where they are not zero.
var usual = map[string]fields{
	"pg_class":     {"relowner": ownerOID},
	"pg_namespace": {"nspowner": ownerOID},
	"pg_attribute": {"attstattarget": -1, "attcacheoff": -1, "atttypmod": -1, "attislocal": true, "attcompression": "", "attidentity": "", "attgenerated": "",
		"attnotnull": false, "atthasdef": false, "atthasmissing": false, "attisdropped": false},
	"pg_proc": {"proowner": ownerOID, "prolang": 12},
}

func (c *Conn) virtualRows(schema, rel string) [][]value.Datum {
	m := maker(schema, rel)
	for _, row := range virtual.Rows(schema + "." + rel) {
		f := fields{}
		for _, col := range m.def.Columns {
			switch v, ok := row[col.Name]; {
			case ok:
				f[col.Name] = v
			case usual[rel][col.Name] != nil:
				f[col.Name] = usual[rel][col.Name]
			case schema == informationSchema && slices.Contains([]string{"table_catalog", "catalog_name", "udt_catalog"}, col.Name):
				f[col.Name] = c.database
			case col.Name == "schema_owner" || col.Name == "viewowner":
				f[col.Name] = c.user
			}
		}
		m.add(f)
	}
	return m.rows
}

// virtualText is what a function of the catalogue says of an object of the schema cleave; ok is false for another number.
func virtualText(function string, oid uint32) (string, bool) {
	if !virtual.Objects(int(oid)) {
		return "", false
	}
	texts, _ := virtual.Described(function)
	text, ok := texts[int(oid)]
	return text, ok
}
