package sqlite

import (
	"encoding/binary"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

var _ engine.Relations = (*Conn)(nil)

// relationOID is the first OID of relations, beyond those of tables.
const relationOID = 0xF0000000

// MakeRelation implements engine.Relations. Relations are tables of SQLite's
// temporary database, as the catalogue's are: no file is written.
func (c *Conn) MakeRelation(name string, columns []engine.RelationColumn) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	d := &catalog.Table{OID: relationOID + uint32(len(c.names.Relations)), Schema: "pg_temp", Name: name, Static: true, Relation: true}
	cols := make([]string, len(columns))
	for i, col := range columns {
		if value.ClassOf(col.OID) == value.ClassNone {
			return sqlstate.Refusal("CLV-2065", "a SQLite shard has no values of type %s", value.TypeName(col.OID)).
				WithHint("See docs/sql-sqlite.md for the types it has.")
		}
		d.Columns = append(d.Columns, catalog.Column{Num: int16(i + 1), Name: col.Name, Type: col.OID, Mod: col.Modifier})
		cols[i] = quote.Ident(col.Name)
	}
	if c.names.Relations[name] != nil {
		return sqlstate.New(sqlstate.DuplicateTable, "relation %q already exists", name)
	}
	if err := c.exec("CREATE TABLE temp." + quote.Ident(name) + " (" + strings.Join(cols, ", ") + ")"); err != nil {
		return err
	}
	if c.names.Relations == nil {
		c.names.Relations = map[string]*catalog.Table{}
	}
	c.names.Relations[name] = d
	c.settings.version++ // plans of other relations of that name are over
	return nil
}

// FillRelation implements engine.Relations.
func (c *Conn) FillRelation(name string, frames []byte) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	d := c.names.Relations[name]
	if d == nil {
		return sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", name)
	}
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(d.Columns)), ", ")
	stmt, _, err := c.db.PrepareTransient("INSERT INTO temp." + quote.Ident(name) + " VALUES (" + marks + ")")
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	var cells [][]byte
	for len(frames) > 0 {
		n := 1 + int(binary.BigEndian.Uint32(frames[1:]))
		if cells, err = wire.SplitRow(frames[wire.Header:n], cells[:0]); err != nil {
			return err
		}
		frames = frames[n:]
		if len(cells) != len(d.Columns) {
			return sqlstate.New(sqlstate.InternalError, "a row of relation %s has %d values, not %d", name, len(cells), len(d.Columns))
		}
		for i, cell := range cells {
			var v value.Datum
			if cell != nil {
				if v, err = value.In(d.Columns[i].Type, string(cell), c.env.Loc); err != nil {
					return sqlstate.Wrap(err, sqlstate.InternalError, "relation %s, column %s", name, d.Columns[i].Name)
				}
			}
			v.Bind(stmt, i+1)
		}
		if _, err := stmt.Step(); err != nil {
			return err
		}
		if err := stmt.Reset(); err != nil {
			return err
		}
	}
	return nil
}

// IndexRelation implements engine.Relations.
func (c *Conn) IndexRelation(name string, columns []string) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	cols := make([]string, len(columns))
	for i, col := range columns {
		cols[i] = quote.Ident(col)
	}
	return c.exec("CREATE INDEX temp." + quote.Ident(name+"_"+strings.Join(columns, "_")) + " ON " + quote.Ident(name) + " (" + strings.Join(cols, ", ") + ")")
}

// DropRelations implements engine.Relations.
func (c *Conn) DropRelations() error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	for name := range c.names.Relations {
		if err := c.exec("DROP TABLE IF EXISTS temp." + quote.Ident(name)); err != nil {
			return err
		}
	}
	if len(c.names.Relations) > 0 {
		c.names.Relations = nil
		c.settings.version++
	}
	return nil
}
