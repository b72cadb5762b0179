package sqlite

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/sqlstate"
)

// The columns of PostgreSQL 15's catalogue relations, read from pg_attribute of a
// fresh server, and the names of all of them.
var (
	//go:embed pgcatalog/attribute.tsv
	attributeTSV string
	//go:embed pgcatalog/relation.tsv
	relationTSV string
)

// systemTable is a relation of pg_catalog or information_schema. Its rows are
// made from the definitions when a statement reads it, into a temporary table.
type systemTable struct {
	def  *tableDef
	kind byte
	// fill returns the rows, in the order of the columns; nil means that the
	// relation is truly empty here.
	fill func(c *Conn) [][]datum
	// constant rows do not depend on the file's definitions.
	constant bool
}

var systemRelations = func() map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(relationTSV) {
		m[n] = true
	}
	return m
}()

var systemTables = sync.OnceValue(func() map[string]*systemTable {
	m := map[string]*systemTable{}
	lines(attributeTSV, func(f []string) {
		key := objectKey(f[0], f[1])
		s := m[key]
		if s == nil {
			s = &systemTable{kind: f[3][0]}
			s.def = &tableDef{OID: u32(f[2]), Schema: f[0], Name: f[1], system: s}
			m[key] = s
		}
		s.def.Columns = append(s.def.Columns, columnDef{Num: int16(num(f[4])), Name: f[5], Type: u32(f[6]), Mod: int32(num(f[7])), NotNull: f[8] == "1"})
	})
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
	name := "temp." + quoteIdent(s.def.sqlName())
	var cols, marks []string
	for _, col := range s.def.Columns {
		cols, marks = append(cols, quoteIdent(col.Name)), append(marks, "?")
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
				row[i].bind(stmt, i+1)
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
