package catalog

import (
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
)

// Actions are the words for what a foreign key does, by the letters of pg_constraint.
var Actions = map[string]string{"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}

// IndexDef is the statement that made an index, as pg_get_indexdef gives it.
func (d *Table) IndexDef(ix *Index) string {
	word := "CREATE INDEX "
	if ix.Unique {
		word = "CREATE UNIQUE INDEX "
	}
	cols := make([]string, len(ix.Columns))
	for i := range ix.Columns {
		cols[i] = indexColumnDef(d, &ix.Columns[i])
	}
	s := word + quote.PGIdent(ix.Name) + " ON " + quote.PGIdent(d.Schema) + "." + quote.PGIdent(d.Name) + " USING btree (" + strings.Join(cols, ", ") + ")"
	if ix.Where != "" {
		s += " WHERE (" + ix.Where + ")"
	}
	return s
}

func indexColumnDef(d *Table, ic *IndexColumn) string {
	s := quote.PGIdent(d.ByNum(ic.Num).Name)
	if ic.Class != "" {
		s += " " + ic.Class
	}
	if ic.Desc {
		s += " DESC"
		if !ic.NullsFirst {
			s += " NULLS LAST"
		}
	} else if ic.NullsFirst {
		s += " NULLS FIRST"
	}
	return s
}

// ConstraintDef is a constraint as pg_get_constraintdef gives it.
func (ns *Namespace) ConstraintDef(d *Table, k *Constraint) string {
	switch k.Type {
	case "p":
		return "PRIMARY KEY (" + quote.PGIdents(d.Names(k.Columns)) + ")"
	case "u":
		return "UNIQUE (" + quote.PGIdents(d.Names(k.Columns)) + ")"
	case "c":
		return "CHECK ((" + k.Expr + "))"
	}
	ref := ns.Catalog.ByOID[k.RefTable]
	if ref == nil {
		return ""
	}
	s := "FOREIGN KEY (" + quote.PGIdents(d.Names(k.Columns)) + ") REFERENCES " + ns.VisibleName(ref.Schema, ref.Name) + "(" + quote.PGIdents(ref.Names(k.RefCols)) + ")"
	if k.OnUpdate != "a" {
		s += " ON UPDATE " + Actions[k.OnUpdate]
	}
	if k.OnDelete != "a" {
		s += " ON DELETE " + Actions[k.OnDelete]
	}
	if k.Deferrable {
		s += " DEFERRABLE"
	}
	if k.Deferred {
		s += " INITIALLY DEFERRED"
	}
	return s
}

// ViewText is a view's query as pg_get_viewdef gives it.
func (c *Catalog) ViewText(oid uint32) (string, bool) {
	for _, d := range c.Views {
		if d.OID == oid {
			return " " + strings.TrimSpace(d.Viewed.Query) + ";", true
		}
	}
	return "", false
}
