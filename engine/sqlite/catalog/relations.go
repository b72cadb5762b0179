package catalog

import (
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/virtual"
)

// System is a relation of pg_catalog or information_schema. Its rows are
// made from the definitions when a statement reads it, into a temporary table.
type System struct {
	Def  *Table
	Kind byte
	// Constant rows do not depend on the file's definitions.
	Constant bool
}

// systemRelations are those that are here. Many of them have no rows.
var systemRelations = map[string]string{
	SchemaPgCatalog: `pg_am pg_attrdef pg_attribute pg_auth_members pg_authid pg_cast pg_class pg_collation pg_constraint pg_database pg_db_role_setting
		pg_default_acl pg_depend pg_description pg_enum pg_event_trigger pg_extension pg_foreign_data_wrapper pg_foreign_server
		pg_foreign_table pg_group pg_index pg_indexes pg_inherits pg_language pg_largeobject_metadata pg_matviews pg_namespace pg_operator
		pg_partitioned_table pg_policies pg_policy pg_prepared_xacts pg_proc pg_publication pg_publication_namespace pg_publication_rel
		pg_range pg_rewrite pg_roles pg_rules pg_seclabel pg_sequence pg_sequences pg_settings pg_shdescription pg_statistic_ext
		pg_subscription pg_tables pg_tablespace pg_trigger pg_type pg_user pg_user_mapping pg_views`,
	SchemaInformation: `check_constraints columns constraint_column_usage constraint_table_usage key_column_usage referential_constraints schemata
		sequences table_constraints tables triggers views`,
}

// firstSystemView is the first OID for the relations to which PostgreSQL's initdb gives numbers.
const firstSystemView = 13000

// systemConstant are relations whose rows are the same in every file.
var systemConstant = map[string]bool{"pg_catalog.pg_type": true, "pg_catalog.pg_proc": true, "pg_catalog.pg_operator": true, "pg_catalog.pg_cast": true,
	"pg_catalog.pg_am": true, "pg_catalog.pg_collation": true, "pg_catalog.pg_tablespace": true, "pg_catalog.pg_language": true}

// Systems are the relations of pg_catalog and information_schema by their Key.
var Systems = sync.OnceValue(func() map[string]*System {
	have := map[string]bool{}
	for schema, list := range systemRelations {
		for name := range strings.FieldsSeq(list) {
			have[schema+"."+name] = true
		}
	}
	m, views := map[string]*System{}, uint32(firstSystemView)
	for r := range value.Builtin.Relations() {
		oid := r.OID
		if oid == 0 {
			oid, views = views, views+1
		}
		if !have[r.Schema+"."+r.Name] {
			continue
		}
		s := &System{Kind: r.Kind, Constant: systemConstant[r.Schema+"."+r.Name]}
		s.Def = &Table{OID: oid, Schema: r.Schema, Name: r.Name, System: s}
		for col := range r.Columns() {
			s.Def.Columns = append(s.Def.Columns, Column{Num: int16(len(s.Def.Columns) + 1), Name: col.Name, Type: col.Type, Mod: col.Mod, NotNull: col.NotNull})
		}
		m[Key(r.Schema, r.Name)] = s
	}
	return m
})

// FindSystem returns the relation of a name, nil if it is not here.
func FindSystem(schema, name string) *System { return Systems()[Key(schema, name)] }

// VirtualSystem are the relations of the catalogue with the rows of the schema cleave, which is on no shard, added. The
// planner names them in the place of PostgreSQL's where a statement asks for that schema: cleave_internal."pg_catalog.pg_class".
var VirtualSystem = sync.OnceValue(func() map[string]*System {
	m := map[string]*System{}
	for _, name := range virtual.Relations() {
		schema, rel, _ := strings.Cut(name, ".")
		base := FindSystem(schema, rel)
		if base == nil {
			continue
		}
		s := &System{Kind: base.Kind, Constant: base.Constant}
		s.Def = &Table{OID: base.Def.OID, Schema: SchemaInternal, Name: name, Columns: base.Def.Columns, System: s}
		m[name] = s
	}
	return m
})

// SchemaInternal holds what the router keeps in every shard. Its one table has to
// be there before a transaction needs it, because the first part of a transaction
// keeps all other writers off its file: so it is made with the file, and it is in
// no list of tables.
const SchemaInternal = "cleave_internal"

// RecordsTable is cleave_internal.transaction: docs/design/transactions.md.
var RecordsTable = &Table{OID: 16001, Schema: SchemaInternal, Name: "transaction",
	Columns: []Column{
		{Num: 1, Name: "id", Type: pgoid.UUID, Mod: -1, NotNull: true},
		{Num: 2, Name: "decided", Type: pgoid.Bool, Mod: -1},
		{Num: 3, Name: "shards", Type: pgoid.Text, Mod: -1, NotNull: true},
		{Num: 4, Name: "xid", Type: pgoid.Int8, Mod: -1, NotNull: true},
		{Num: 5, Name: "at", Type: pgoid.Timestamptz, Mod: -1, NotNull: true},
	},
	Constraints: []Constraint{{OID: 16003, Name: "transaction_pkey", Type: "p", Columns: []int16{1}, Index: 16002}},
	Indexes:     []Index{{OID: 16002, Name: "transaction_pkey", Unique: true, Primary: true, Columns: []IndexColumn{{Num: 1}}}},
}
