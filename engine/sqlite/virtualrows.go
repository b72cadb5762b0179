package sqlite

import (
	"slices"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/virtual"
)

// usual are the columns that all rows of a relation have alike, where they are not zero.
var usual = map[string]fields{
	"pg_class":     {"relowner": catalog.OwnerOID},
	"pg_namespace": {"nspowner": catalog.OwnerOID},
	"pg_attribute": {"attstattarget": -1, "attcacheoff": -1, "atttypmod": -1, "attislocal": true, "attcompression": "", "attidentity": "", "attgenerated": "",
		"attnotnull": false, "atthasdef": false, "atthasmissing": false, "attisdropped": false},
	"pg_proc": {"proowner": catalog.OwnerOID, "prolang": 12},
}

func (c *definitions) virtualRows(schema, rel string) [][]value.Datum {
	m := maker(schema, rel)
	for _, row := range virtual.Rows(schema + "." + rel) {
		f := fields{}
		for _, col := range m.def.Columns {
			switch v, ok := row[col.Name]; {
			case ok:
				f[col.Name] = v
			case usual[rel][col.Name] != nil:
				f[col.Name] = usual[rel][col.Name]
			case schema == catalog.SchemaInformation && slices.Contains([]string{"table_catalog", "catalog_name", "udt_catalog"}, col.Name):
				f[col.Name] = c.names.Database
			case col.Name == "schema_owner" || col.Name == "viewowner":
				f[col.Name] = c.names.User
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
