package sqlite

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

func (c *schemaChange) makeIndex(d *catalog.Table, ix *catalog.Index) {
	var cols []string
	for _, ic := range ix.Columns {
		s := d.ByNum(ic.Num).Indexed()
		if ic.Desc {
			s += " DESC"
		}
		cols = append(cols, s)
	}
	word := "CREATE INDEX "
	if ix.Unique {
		word = "CREATE UNIQUE INDEX "
	}
	sql := word + quote.Ident(catalog.SQLName(d.Schema, ix.Name)) + " ON " + quote.Ident(d.SQLName()) + " (" + strings.Join(cols, ", ") + ")"
	if ix.Where != "" {
		sql += " WHERE " + c.t.Check(d, ix.Where)
	}
	if err := c.exec(sql); err != nil {
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
			e := sqlstate.New(sqlstate.UniqueViolation, "could not create unique index \"%s\"", ix.Name)
			e.Schema, e.Table, e.Constraint = d.Schema, d.Name, ix.Name
			e.Detail = c.duplicateKey(d, ix)
			fault.Raise(e)
		}
		must(err)
	}
}

// duplicateKey finds a key that a unique index would have twice.
func (c *database) duplicateKey(d *catalog.Table, ix *catalog.Index) string {
	var cols, keys, some []string
	var nums []int16
	for _, ic := range ix.Columns {
		col := d.ByNum(ic.Num)
		cols, keys = append(cols, quote.Ident(col.Name)), append(keys, col.Indexed())
		some = append(some, quote.Ident(col.Name)+" IS NOT NULL")
		nums = append(nums, ic.Num)
	}
	q, _, err := c.db.PrepareTransient("SELECT " + strings.Join(cols, ", ") + " FROM main." + quote.Ident(d.SQLName()) + " WHERE " + strings.Join(some, " AND ") +
		" GROUP BY " + strings.Join(keys, ", ") + " HAVING count(*) > 1 LIMIT 1")
	if err != nil {
		return ""
	}
	defer q.Finalize()
	if row, err := q.Step(); err != nil || !row {
		return ""
	}
	var parts []string
	for i, n := range nums {
		col := d.ByNum(n)
		v, _, err := value.OfColumn(q, i, value.ClassOf(col.Type), nil)
		if err != nil {
			return ""
		}
		b, err := value.Append(nil, col.Type, v, c.env.Loc)
		if err != nil {
			return ""
		}
		parts = append(parts, string(b))
	}
	return "Key (" + strings.Join(d.Names(nums), ", ") + ")=(" + strings.Join(parts, ", ") + ") is duplicated."
}

// operatorClass is the operator class of an index's column, "" for the type's own.
func operatorClass(col *catalog.Column, names []*pg.Node) string {
	if len(names) == 0 {
		return ""
	}
	name := names[len(names)-1].GetString_().GetSval()
	if catalog.PatternClasses[name] == 0 || value.ClassOf(col.Type) != value.ClassText {
		fault.Refuse("CLV-2109", "the operator class %s", name)
	}
	return name
}

// newIndexColumn is the column of d that an element of CREATE INDEX names.
func newIndexColumn(d *catalog.Table, el *pg.IndexElem) catalog.IndexColumn {
	if el.Name == "" {
		fault.Refuse("CLV-2112", "an index of an expression")
	}
	if len(el.Collation) > 0 && el.Collation[len(el.Collation)-1].GetString_().GetSval() != "C" {
		fault.Refuse("CLV-2113", "an index with a collation other than C")
	}
	col := d.Column(el.Name)
	if col == nil {
		fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" does not exist", el.Name)
	}
	indexable(col)
	ic := catalog.IndexColumn{Num: col.Num, Class: operatorClass(col, el.Opclass), Desc: el.Ordering == pg.SortByDir_SORTBY_DESC}
	ic.NullsFirst = ic.Desc
	switch el.NullsOrdering {
	case pg.SortByNulls_SORTBY_NULLS_FIRST:
		ic.NullsFirst = true
	case pg.SortByNulls_SORTBY_NULLS_LAST:
		ic.NullsFirst = false
	}
	return ic
}

func (c *schemaChange) createIndex(s *pg.IndexStmt) {
	d := c.t.FindTable(s.Relation)
	if d.System != nil || d.Static {
		fault.Raisef(sqlstate.InsufficientPrivilege, "permission denied for table %s", d.Name)
	}
	if s.Concurrent && c.tx.block != txNone {
		fault.Raisef(sqlstate.ActiveTransaction, "CREATE INDEX CONCURRENTLY cannot run inside a transaction block")
	}
	refuseIndexForms(s)
	ix := catalog.Index{Unique: s.Unique}
	var names []string
	for _, n := range s.IndexParams {
		el := n.GetIndexElem()
		ix.Columns = append(ix.Columns, newIndexColumn(d, el))
		names = append(names, el.Name)
	}
	if s.WhereClause != nil {
		ix.Where = syntax.Deparse(s.WhereClause)
		c.t.Check(d, ix.Where)
	}
	ix.Name = s.Idxname
	if ix.Name == "" {
		ix.Name = c.chooseName(d.Schema, d.Name, strings.Join(names, "_"), "idx", func(string) bool { return false })
	} else {
		if exact, _ := c.names.Catalog.RelationNameTaken(d.Schema, ix.Name); exact && s.IfNotExists {
			c.notice(sqlstate.DuplicateTable, "relation \"%s\" already exists, skipping", ix.Name)
			return
		}
		c.checkNewName(d.Schema, ix.Name)
	}
	ix.OID = c.mustOID()
	c.makeIndex(d, &ix)
	n := d.Clone()
	n.Indexes = append(n.Indexes, ix)
	must(c.saveTable(n))
}

// refuseIndexForms refuses the forms of CREATE INDEX that SQLite has nothing for.
func refuseIndexForms(s *pg.IndexStmt) {
	if !s.Concurrent && (s.NullsNotDistinct || len(s.IndexIncludingParams) > 0 || s.TableSpace != "" || len(s.ExcludeOpNames) > 0) {
		fault.Refuse("CLV-2110", "this form of CREATE INDEX")
	}
	if s.AccessMethod != "" && s.AccessMethod != "btree" {
		fault.Refuse("CLV-2111", "the index method %s", s.AccessMethod)
	}
	if len(s.Options) > 0 {
		tableOptions(s.Options)
	}
}
