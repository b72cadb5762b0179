package sqlite

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// systemRows are the rows of a catalogue relation.
func systemRows(c *Conn, s *catalog.System) [][]value.Datum {
	if s.Def.Schema == catalog.SchemaInternal {
		schema, rel, _ := strings.Cut(s.Def.Name, ".")
		return slices.Concat(systemRows(c, catalog.FindSystem(schema, rel)), c.virtualRows(schema, rel))
	}
	if fill := systemFills[s.Def.Schema+"."+s.Def.Name]; fill != nil {
		return fill(c)
	}
	return nil
}

// fillSystem makes the rows of a catalogue relation as of the current generation.
func (c *Conn) fillSystem(s *catalog.System) error {
	if gen, ok := c.filled[s]; ok && (s.Constant || gen == c.names.Catalog.Generation) && !systemVolatile[s.Def.Schema+"."+s.Def.Name] {
		return nil
	}
	name := "temp." + quote.Ident(s.Def.SQLName())
	var cols, marks []string
	for _, col := range s.Def.Columns {
		cols, marks = append(cols, quote.Ident(col.Name)), append(marks, "?")
	}
	if err := c.exec("CREATE TABLE IF NOT EXISTS " + name + " (" + strings.Join(cols, ", ") + ")"); err != nil {
		return err
	}
	if err := c.exec("DELETE FROM " + name); err != nil {
		return err
	}
	if rows := systemRows(c, s); len(rows) > 0 {
		stmt, _, err := c.db.PrepareTransient("INSERT INTO " + name + " VALUES (" + strings.Join(marks, ", ") + ")")
		if err != nil {
			return err
		}
		defer stmt.Finalize()
		for _, row := range rows {
			if len(row) != len(cols) {
				return sqlstate.New(sqlstate.InternalError, "catalogue relation %s: %d values for %d columns", s.Def.Name, len(row), len(cols))
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
	c.filled[s] = c.names.Catalog.Generation
	return nil
}
