package sqlite

import (
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// OpenVirtual returns a conversation that answers SELECT over the given tables,
// which are in the given schema of a database in memory. Close frees it.
func OpenVirtual(schema string, tables []engine.VirtualTable) (engine.Conn, error) {
	db, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenMemory)
	if err != nil {
		return nil, err
	}
	if err = run(db, "PRAGMA temp_store = MEMORY"); err == nil {
		err = run(db, "CREATE TABLE cleave_meta (key, value)")
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	c, err := newConn(db, nil)
	if err != nil {
		db.Close()
		return nil, err
	}
	c.readonly = true
	cat := catalog.New()
	cat.Generation = 1
	if cat.Schemas[schema] == nil {
		cat.Schemas[schema] = &catalog.Schema{OID: catalog.FirstUserOID, Name: schema}
	}
	c.settings.start["search_path"] = schema + ", public"
	c.names.Path = []string{schema, catalog.SchemaPublic}
	for i := range tables {
		oid := tables[i].OID
		if oid == 0 {
			oid = uint32(catalog.FirstUserOID + 1 + i)
		}
		if err := c.addVirtual(cat, schema, &tables[i], oid); err != nil {
			c.Close()
			return nil, err
		}
	}
	c.names.Catalog = cat
	return c, nil
}

func (c *definitions) addVirtual(cat *catalog.Catalog, schema string, t *engine.VirtualTable, oid uint32) error {
	d := &catalog.Table{OID: oid, Schema: schema, Name: t.Name, Static: true}
	var cols, marks []string
	for i, col := range t.Columns {
		if value.ClassOf(col.OID) == value.ClassNone {
			return fmt.Errorf("sqlite: virtual column %s.%s has type %d, which has no values here", t.Name, col.Name, col.OID)
		}
		d.Columns = append(d.Columns, catalog.Column{Num: int16(i + 1), Name: col.Name, Type: col.OID, Mod: -1})
		cols, marks = append(cols, quote.Ident(col.Name)), append(marks, "?")
	}
	cat.Add(d)
	if err := c.exec("CREATE TABLE main." + quote.Ident(d.SQLName()) + " (" + strings.Join(cols, ", ") + ")"); err != nil {
		return err
	}
	if len(t.Rows) == 0 {
		return nil
	}
	stmt, _, err := c.db.PrepareTransient("INSERT INTO main." + quote.Ident(d.SQLName()) + " VALUES (" + strings.Join(marks, ", ") + ")")
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for _, row := range t.Rows {
		if len(row) != len(t.Columns) {
			return fmt.Errorf("sqlite: a row of virtual table %s has %d values, not %d", t.Name, len(row), len(t.Columns))
		}
		for i, v := range row {
			var d value.Datum
			if !v.Null {
				var err error
				if d, err = value.In(t.Columns[i].OID, v.String, c.env.Loc); err != nil {
					return sqlstate.Wrap(err, sqlstate.InternalError, "virtual table %s, column %s", t.Name, t.Columns[i].Name)
				}
			}
			d.Bind(stmt, i+1)
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
