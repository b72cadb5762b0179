package systemrows

import (
	"slices"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/virtual"
)

// usual are the columns that all rows of a relation have alike, where they are not zero.
var usual = map[string]Fields{
	"pg_class":     {"relowner": catalog.OwnerOID},
	"pg_namespace": {"nspowner": catalog.OwnerOID},
	"pg_attribute": {"attstattarget": -1, "attcacheoff": -1, "atttypmod": -1, "attislocal": true, "attcompression": "", "attidentity": "", "attgenerated": "",
		"attnotnull": false, "atthasdef": false, "atthasmissing": false, "attisdropped": false},
	"pg_proc": {"proowner": catalog.OwnerOID, "prolang": 12},
}

// virtualRows are those of the schema cleave, which is on no shard.
func virtualRows(ns *catalog.Namespace, schema, rel string) [][]value.Datum {
	m := New(schema, rel)
	for _, row := range virtual.Rows(schema + "." + rel) {
		f := Fields{}
		for _, col := range m.def.Columns {
			switch v, ok := row[col.Name]; {
			case ok:
				f[col.Name] = v
			case usual[rel][col.Name] != nil:
				f[col.Name] = usual[rel][col.Name]
			case schema == catalog.SchemaInformation && slices.Contains([]string{"table_catalog", "catalog_name", "udt_catalog"}, col.Name):
				f[col.Name] = ns.Database
			case col.Name == "schema_owner" || col.Name == "viewowner":
				f[col.Name] = ns.User
			}
		}
		m.Add(f)
	}
	return m.Rows
}

// VirtualText is what a function of the catalogue says of an object of the schema cleave; ok is false for another number.
func VirtualText(function string, oid uint32) (string, bool) {
	if !virtual.Objects(int(oid)) {
		return "", false
	}
	texts, _ := virtual.Described(function)
	text, ok := texts[int(oid)]
	return text, ok
}
