package sqlite

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

func planDrop(s *pg.DropStmt, ddl func(string, func(c *schemaChange, p *portal)) (*plan, error)) (*plan, error) {
	cascade := s.Behavior == pg.DropBehavior_DROP_CASCADE
	switch s.RemoveType {
	case pg.ObjectType_OBJECT_TABLE:
		return ddl("DROP TABLE", func(c *schemaChange, p *portal) {
			c.dropTables(c.tablesToDrop(s), cascade)
		})
	case pg.ObjectType_OBJECT_INDEX:
		return ddl("DROP INDEX", func(c *schemaChange, p *portal) {
			for _, o := range s.Objects {
				c.dropIndex(rangeVarOf(o), s.MissingOk)
			}
		})
	case pg.ObjectType_OBJECT_SCHEMA:
		return ddl("DROP SCHEMA", func(c *schemaChange, p *portal) {
			for _, o := range s.Objects {
				c.dropSchema(o.GetString_().GetSval(), s.MissingOk, cascade)
			}
		})
	case pg.ObjectType_OBJECT_VIEW:
		return ddl("DROP VIEW", func(c *schemaChange, p *portal) { c.dropView(s) })
	case pg.ObjectType_OBJECT_SEQUENCE:
		return ddl("DROP SEQUENCE", func(c *schemaChange, p *portal) { c.dropAbsent(s, "sequence", sqlstate.UndefinedTable) })
	case pg.ObjectType_OBJECT_TYPE:
		return ddl("DROP TYPE", func(c *schemaChange, p *portal) { c.dropAbsent(s, "type", sqlstate.UndefinedObject) })
	case pg.ObjectType_OBJECT_FUNCTION:
		return nil, value.Unsupported("DROP FUNCTION")
	}
	return nil, value.Unsupported("this DROP")
}

// tablesToDrop finds the tables of DROP TABLE, without those that IF EXISTS lets be missing.
func (c *schemaChange) tablesToDrop(s *pg.DropStmt) []*catalog.Table {
	var list []*catalog.Table
	for _, o := range s.Objects {
		r := rangeVarOf(o)
		d := c.findForDrop(r, s.MissingOk, "table")
		if d == nil {
			continue
		}
		if d.Viewed != nil {
			fault.Raise(sqlstate.New(sqlstate.WrongObjectType, "\"%s\" is not a table", d.Name).WithHint("Use DROP VIEW to remove a view."))
		}
		list = append(list, d)
	}
	return list
}

// dropAbsent drops objects of a kind that a file has none of.
func (c *schemaChange) dropAbsent(s *pg.DropStmt, what string, code sqlstate.Code) {
	for _, o := range s.Objects {
		name := ""
		if tn := o.GetTypeName(); tn != nil {
			name = syntax.LastName(tn)
		} else {
			name = rangeVarOf(o).Relname
		}
		if !s.MissingOk {
			fault.Raisef(code, "%s \"%s\" does not exist", what, name)
		}
		c.notice("00000", "%s \"%s\" does not exist, skipping", what, name)
	}
}

func rangeVarOf(o *pg.Node) *pg.RangeVar {
	items := o.GetList().GetItems()
	r := &pg.RangeVar{Location: -1}
	for i, n := range items {
		s := n.GetString_().GetSval()
		if i == len(items)-1 {
			r.Relname = s
		} else {
			r.Schemaname = s
		}
	}
	return r
}

// findForDrop finds a table; with missingOK its absence is a notice.
func (c *schemaChange) findForDrop(r *pg.RangeVar, missingOK bool, what string) *catalog.Table {
	if r.Schemaname != "" && c.names.Catalog.Schemas[r.Schemaname] == nil {
		if missingOK {
			c.notice("00000", "schema \"%s\" does not exist, skipping", r.Schemaname)
			return nil
		}
		fault.Raisef(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", r.Schemaname)
	}
	var d *catalog.Table
	if r.Schemaname != "" {
		d = c.names.Lookup(r.Schemaname, r.Relname)
	} else {
		for _, s := range append([]string{catalog.SchemaPgCatalog}, c.names.Path...) {
			if d = c.names.Lookup(s, r.Relname); d != nil {
				break
			}
		}
	}
	if d == nil {
		if missingOK {
			c.notice("00000", "%s \"%s\" does not exist, skipping", what, r.Relname)
			return nil
		}
		name := r.Relname
		if r.Schemaname != "" {
			name = r.Schemaname + "." + name
		}
		if what == "table" || what == "view" {
			fault.Raisef(sqlstate.UndefinedTable, "%s \"%s\" does not exist", what, r.Relname)
		}
		fault.Raisef(sqlstate.UndefinedTable, "relation \"%s\" does not exist", name)
	}
	if d.System != nil || d.Static {
		fault.Raisef(sqlstate.InsufficientPrivilege, "permission denied: \"%s\" is a system catalog", d.Name)
	}
	return d
}

func (c *schemaChange) dropTables(list []*catalog.Table, cascade bool) {
	going := map[uint32]bool{}
	for _, d := range list {
		going[d.OID] = true
	}
	for _, o := range c.names.Catalog.Tables {
		for _, k := range o.Constraints {
			if k.Type == "f" && going[k.RefTable] && !going[o.OID] {
				ref := c.names.Catalog.ByOID[k.RefTable]
				if cascade {
					fault.Refuse("CLV-2049", "DROP TABLE CASCADE of a table that others refer to")
				}
				fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop table %s because other objects depend on it", ref.Name).
					WithDetail("constraint %s on table %s depends on table %s", k.Name, o.Name, ref.Name).
					WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
			}
		}
	}
	views := map[uint32]bool{}
	for oid := range going {
		views[oid] = true
	}
	c.dependentViews(list, views, "table", cascade)
	for _, v := range c.names.Catalog.SortedViews() {
		if views[v.OID] {
			must(c.dropObject(v.OID))
		}
	}
	// SQLite deletes the rows first, which checks the references among them.
	if len(list) > 1 {
		must(c.exec("PRAGMA defer_foreign_keys = ON"))
		defer c.checksAgain()
	}
	for _, d := range list {
		c.keysPending(d, "DROP TABLE")
		if c.names.Catalog.ByOID[d.OID] == nil {
			continue // named twice
		}
		must(c.dropTriggers(d))
		c.endCaptures(d)
		must(c.exec("DROP TABLE " + quote.Ident(d.SQLName())))
		must(c.dropObject(d.OID))
	}
}

func (c *schemaChange) dropIndex(r *pg.RangeVar, missingOK bool) {
	schemas := c.names.Path
	if r.Schemaname != "" {
		schemas = []string{r.Schemaname}
	}
	for _, s := range schemas {
		d, ix := c.names.Catalog.FindIndex(s, r.Relname)
		if ix == nil {
			continue
		}
		for _, k := range d.Constraints {
			if k.Index == ix.OID {
				fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop index %s because constraint %s on table %s requires it", ix.Name, k.Name, d.Name).
					WithHint("You can drop constraint %s on table %s instead.", k.Name, d.Name))
			}
		}
		c.removeIndex(d, ix.OID)
		return
	}
	if missingOK {
		c.notice("00000", "index \"%s\" does not exist, skipping", r.Relname)
		return
	}
	fault.Raisef(sqlstate.UndefinedObject, "index \"%s\" does not exist", r.Relname)
}

func (c *schemaChange) removeIndex(d *catalog.Table, oid uint32) *catalog.Table {
	n := d.Clone()
	n.Indexes = nil
	for _, ix := range d.Indexes {
		if ix.OID != oid {
			n.Indexes = append(n.Indexes, ix)
			continue
		}
		for _, o := range c.names.Catalog.Tables {
			for _, k := range o.Constraints {
				if k.Type == "f" && k.RefTable == d.OID && catalog.SameColumns(k.RefCols, ix.Columns) && ix.Unique {
					fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop constraint %s on table %s because other objects depend on it", ix.Name, d.Name).
						WithDetail("constraint %s on table %s depends on index %s", k.Name, o.Name, ix.Name).
						WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
				}
			}
		}
		must(c.exec("DROP INDEX " + quote.Ident(catalog.SQLName(d.Schema, ix.Name))))
	}
	must(c.saveTable(n))
	return c.names.Catalog.ByOID[d.OID]
}

func (c *schemaChange) createSchema(s *pg.CreateSchemaStmt) {
	name := s.Schemaname
	if len(s.SchemaElts) > 0 {
		fault.Refuse("CLV-2050", "CREATE SCHEMA with elements")
	}
	if name == "" && s.Authrole != nil {
		name = s.Authrole.Rolename
	}
	if c.names.Catalog.Schemas[name] != nil {
		if s.IfNotExists {
			c.notice("42P06", "schema \"%s\" already exists, skipping", name)
			return
		}
		fault.Raisef("42P06", "schema \"%s\" already exists", name)
	}
	if strings.HasPrefix(name, "pg_") {
		fault.Raise(sqlstate.New("42939", "unacceptable schema name \"%s\"", name).WithDetail("The prefix \"pg_\" is reserved for system schemas."))
	}
	for o := range c.names.Catalog.Schemas {
		if strings.EqualFold(o, name) {
			fault.Raise(sqlstate.Refusal("CLV-2051", "a SQLite shard cannot have two schemas whose names differ in case only").
				WithHint("Choose another name."))
		}
	}
	if strings.Contains(name, ".") {
		fault.Raise(sqlstate.Refusal("CLV-2052", "a SQLite shard cannot have a schema with a dot in its name").
			WithHint("Choose another name."))
	}
	oid := c.mustOID()
	must(c.saveObject(oid, "schema", &catalog.Schema{OID: oid, Name: name}))
}

func (c *schemaChange) dropSchema(name string, missingOK, cascade bool) {
	s := c.names.Catalog.Schemas[name]
	if s == nil {
		if missingOK {
			c.notice("00000", "schema \"%s\" does not exist, skipping", name)
			return
		}
		fault.Raisef(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", name)
	}
	if s.OID < catalog.FirstUserOID {
		if name == catalog.SchemaPublic {
			fault.Refuse("CLV-2053", "DROP SCHEMA public")
		}
		fault.Raisef(sqlstate.DependentObjects, "cannot drop schema %s because it is required by the database system", name)
	}
	var list []*catalog.Table
	for _, d := range c.names.Catalog.Tables {
		if d.Schema == name {
			list = append(list, d)
		}
	}
	var views []*catalog.Table
	for _, d := range c.names.Catalog.SortedViews() {
		if d.Schema == name {
			views = append(views, d)
		}
	}
	if len(views) > 0 {
		if !cascade {
			fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop schema %s because other objects depend on it", name).
				WithDetail("view %s.%s depends on schema %s", name, views[0].Name, name).
				WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
		}
		c.dropViews(views, true)
	}
	if len(list) > 0 {
		if !cascade {
			fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop schema %s because other objects depend on it", name).
				WithDetail("table %s.%s depends on schema %s", name, list[0].Name, name).
				WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
		}
		c.dropTables(list, true)
	}
	must(c.dropObject(s.OID))
}
