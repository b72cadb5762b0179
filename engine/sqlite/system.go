package sqlite

import (
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/systemrows"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// ownRows make the rows of the relations that say what the conversation or its file has beside definitions.
var ownRows = map[string]func(c *Conn) [][]value.Datum{"pg_catalog.pg_settings": settingRows, "pg_catalog.pg_prepared_xacts": preparedRows}

// systemRows are the rows of a catalogue relation.
func (c *Conn) systemRows(s *catalog.System) [][]value.Datum {
	if own := ownRows[s.Def.Schema+"."+s.Def.Name]; own != nil {
		return own(c)
	}
	return systemrows.Of(&c.names, s)
}

// fillSystem makes the rows of a catalogue relation as of the current generation.
func (c *Conn) fillSystem(s *catalog.System) error {
	if gen, ok := c.filled[s]; ok && (s.Constant || gen == c.names.Catalog.Generation) && ownRows[s.Def.Schema+"."+s.Def.Name] == nil {
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
	if rows := c.systemRows(s); len(rows) > 0 {
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

// settingRows are those of pg_settings.
func settingRows(c *Conn) [][]value.Datum {
	m := systemrows.New(catalog.SchemaPgCatalog, "pg_settings")
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
		m.Add(systemrows.Fields{"name": d.name, "setting": v, "unit": unit, "category": "Cleave", "short_desc": d.short, "context": ctx, "vartype": kind,
			"source": "default", "boot_val": d.value, "reset_val": d.value, "pending_restart": false})
	}
	return m.Rows
}
