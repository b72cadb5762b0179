package sqlite

import (
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// systemTable is a relation of pg_catalog or information_schema. Its rows are
// made from the definitions when a statement reads it, into a temporary table.
type systemTable struct {
	def  *tableDef
	kind byte
	// fill returns the rows, in the order of the columns; nil means that the
	// relation is truly empty here.
	fill func(c *Conn) [][]value.Datum
	// constant rows do not depend on the file's definitions.
	constant bool
}

// systemEmpty are the relations that have no rows here, beside those of systemFills, which have some.
var systemEmpty = map[string]string{
	catalogSchema: `pg_auth_members pg_db_role_setting pg_default_acl pg_depend pg_enum pg_event_trigger pg_extension pg_foreign_data_wrapper
		pg_foreign_server pg_foreign_table pg_group pg_inherits pg_largeobject_metadata pg_matviews pg_partitioned_table pg_policies
		pg_policy pg_publication pg_publication_namespace pg_publication_rel pg_rewrite pg_rules pg_seclabel pg_sequence pg_sequences
		pg_shdescription pg_statistic_ext pg_subscription pg_trigger pg_user_mapping`,
	informationSchema: `constraint_table_usage sequences triggers views`,
}

// firstSystemView is the first OID for the relations to which PostgreSQL's initdb gives numbers.
const firstSystemView = 13000

var systemTables = sync.OnceValue(func() map[string]*systemTable {
	have := map[string]bool{}
	for name := range systemFills {
		have[name] = true
	}
	for schema, names := range systemEmpty {
		for _, name := range strings.Fields(names) {
			have[schema+"."+name] = true
		}
	}
	m, views := map[string]*systemTable{}, uint32(firstSystemView)
	for r := range value.Builtin.Relations() {
		oid := r.OID
		if oid == 0 {
			oid, views = views, views+1
		}
		if !have[r.Schema+"."+r.Name] {
			continue
		}
		s := &systemTable{kind: r.Kind}
		s.def = &tableDef{OID: oid, Schema: r.Schema, Name: r.Name, system: s}
		for col := range r.Columns() {
			s.def.Columns = append(s.def.Columns, columnDef{Num: int16(len(s.def.Columns) + 1), Name: col.Name, Type: col.Type, Mod: col.Mod, NotNull: col.NotNull})
		}
		m[objectKey(r.Schema, r.Name)] = s
	}
	for name, fill := range systemFills {
		schema, rel, _ := strings.Cut(name, ".")
		if s := m[objectKey(schema, rel)]; s != nil {
			s.fill = fill
			s.constant = systemConstant[name]
		}
	}
	return m
})

func findSystem(schema, name string) *systemTable { return systemTables()[objectKey(schema, name)] }

// fillSystem makes the rows of a catalogue relation as of the current generation.
func (c *Conn) fillSystem(s *systemTable) error {
	if gen, ok := c.filled[s]; ok && (s.constant || gen == c.cat.generation) && !systemVolatile[s.def.Schema+"."+s.def.Name] {
		return nil
	}
	name := "temp." + quote.Ident(s.def.sqlName())
	var cols, marks []string
	for _, col := range s.def.Columns {
		cols, marks = append(cols, quote.Ident(col.Name)), append(marks, "?")
	}
	if err := c.exec("CREATE TABLE IF NOT EXISTS " + name + " (" + strings.Join(cols, ", ") + ")"); err != nil {
		return err
	}
	if err := c.exec("DELETE FROM " + name); err != nil {
		return err
	}
	if s.fill != nil {
		stmt, _, err := c.db.PrepareTransient("INSERT INTO " + name + " VALUES (" + strings.Join(marks, ", ") + ")")
		if err != nil {
			return err
		}
		defer stmt.Finalize()
		for _, row := range s.fill(c) {
			if len(row) != len(cols) {
				return sqlstate.New(sqlstate.InternalError, "catalogue relation %s: %d values for %d columns", s.def.Name, len(row), len(cols))
			}
			for i := range row {
				row[i].Bind(stmt, i+1)
			}
			if _, err := stmt.Step(); err != nil {
				return err
			}
			if err := stmt.Reset(); err != nil {
				return err
			}
		}
	}
	c.filled[s] = c.cat.generation
	return nil
}
