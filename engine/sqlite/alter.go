package sqlite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// rewrite replaces SQLite's definition of the table, where only constraints
// changed: the rows stay as they are (SQLite manual, ALTER TABLE, "Making Other
// Kinds Of Table Schema Changes"). The caller has checked the rows.
func (c *schemaChange) rewrite(d *catalog.Table) {
	sql := c.tableSQL(d)
	version, err := c.queryInt("PRAGMA main.schema_version")
	must(err)
	must(c.exec("PRAGMA writable_schema = ON"))
	err = c.exec("UPDATE main.sqlite_schema SET sql = " + quote.Text(sql) + " WHERE type = 'table' AND name = " + quote.Text(d.SQLName()))
	if err == nil {
		err = c.exec("PRAGMA main.schema_version = " + strconv.FormatInt(version+1, 10))
	}
	if e := c.exec("PRAGMA writable_schema = RESET"); err == nil {
		err = e
	}
	must(err)
}

func (c *schemaChange) alterTable(s *pg.AlterTableStmt) {
	if s.Objtype != pg.ObjectType_OBJECT_TABLE {
		fault.Refuse("CLV-2001", "ALTER of this kind of object")
	}
	d := c.findAlter(s.Relation, s.MissingOk)
	if d == nil {
		return
	}
	c.keysPending(d, "ALTER TABLE")
	if len(s.Cmds) > 1 {
		for _, n := range s.Cmds {
			if n.GetAlterTableCmd().GetDef().GetColumnDef().GetRawDefault() != nil && n.GetAlterTableCmd().Subtype == pg.AlterTableType_AT_AlterColumnType {
				// PostgreSQL reads the row as it was before all of them.
				fault.Raise(sqlstate.Refusal("CLV-2002", "USING beside other changes in one ALTER TABLE is not supported on a SQLite shard").
					WithHint("Use one ALTER TABLE for each."))
			}
		}
	}
	for _, n := range s.Cmds {
		c.alterCommand(d, n.GetAlterTableCmd())
		if d = c.names.Catalog.ByOID[d.OID]; d == nil {
			return
		}
	}
}

func (c *schemaChange) findAlter(r *pg.RangeVar, missingOK bool) *catalog.Table {
	if missingOK {
		found := false
		if r.Schemaname != "" {
			found = c.names.Lookup(r.Schemaname, r.Relname) != nil
		} else {
			for _, s := range c.names.Path {
				found = found || c.names.Lookup(s, r.Relname) != nil
			}
		}
		if !found {
			c.notice("00000", "relation \"%s\" does not exist, skipping", r.Relname)
			return nil
		}
	}
	d := c.t.FindTable(r)
	if d.System != nil || d.Static {
		fault.Raisef(sqlstate.InsufficientPrivilege, "permission denied: \"%s\" is a system catalog", d.Name)
	}
	return d
}

func columnOf(d *catalog.Table, name string) *catalog.Column {
	col := d.Column(name)
	if col == nil {
		fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", name, d.Name)
	}
	return col
}

func (c *schemaChange) alterCommand(old *catalog.Table, cmd *pg.AlterTableCmd) {
	d := old.Clone()
	switch cmd.Subtype {
	case pg.AlterTableType_AT_AddColumn:
		c.usedByViews(d, true)
		c.alterAddColumn(old, d, cmd)
	case pg.AlterTableType_AT_DropColumn:
		c.usedByViews(d, false)
		c.alterDropColumn(d, cmd)
	case pg.AlterTableType_AT_ColumnDefault:
		col := columnOf(d, cmd.Name)
		if cmd.Def == nil {
			col.Default = ""
		} else {
			c.setDefault(d, col, cmd.Def)
		}
		must(c.saveTable(d))
	case pg.AlterTableType_AT_AlterColumnType:
		c.usedByViews(d, false)
		c.alterColumnType(old, d, cmd)
	case pg.AlterTableType_AT_SetNotNull:
		col := columnOf(d, cmd.Name)
		if col.NotNull {
			return
		}
		c.checkNoNulls(d, col)
		col.NotNull = true
		c.rewrite(d)
		must(c.saveTable(d))
	case pg.AlterTableType_AT_DropNotNull:
		c.dropNotNull(d, columnOf(d, cmd.Name))
	case pg.AlterTableType_AT_AddConstraint:
		c.alterAddConstraint(old, d, cmd.Def.GetConstraint())
	case pg.AlterTableType_AT_DropConstraint:
		c.alterDropConstraint(d, cmd)
	case pg.AlterTableType_AT_SetRelOptions:
		d.Options = append(d.Options, tableOptions(cmd.Def.GetList().GetItems())...)
		must(c.saveTable(d))
	case pg.AlterTableType_AT_ReplicaIdentity:
		// A file always finds a row by its primary key, or by all of it: what a PostgreSQL shard of the
		// same cluster needs is so already.
		if cmd.Def.GetReplicaIdentityStmt().GetIdentityType() == "n" {
			fault.Refuse("CLV-2003", "this form of ALTER TABLE")
		}
	case pg.AlterTableType_AT_ChangeOwner:
		fault.Refuse("CLV-2003", "this form of ALTER TABLE")
	default:
		fault.Raise(sqlstate.Refusal("CLV-2004", "this form of ALTER TABLE is not supported on a SQLite shard").
			WithHint("It does ADD/DROP COLUMN, ALTER COLUMN .. TYPE, RENAME, SET/DROP DEFAULT, SET/DROP NOT NULL and ADD/DROP CONSTRAINT."))
	}
}

func (c *schemaChange) dropNotNull(d *catalog.Table, col *catalog.Column) {
	if pk := d.PrimaryKey(); pk != nil && slices.Contains(pk.Columns, col.Num) {
		fault.Raisef(sqlstate.InvalidTableDefinition, "column \"%s\" is in a primary key", col.Name)
	}
	col.NotNull = false
	c.rewrite(d)
	must(c.saveTable(d))
}

func (c *database) checkNoNulls(d *catalog.Table, col *catalog.Column) {
	n, err := c.queryInt("SELECT EXISTS (SELECT 1 FROM main." + quote.Ident(d.SQLName()) + " WHERE " + quote.Ident(col.Name) + " IS NULL)")
	must(err)
	if n != 0 {
		e := sqlstate.New(sqlstate.NotNullViolation, "column \"%s\" of relation \"%s\" contains null values", col.Name, d.Name)
		e.Schema, e.Table, e.Column = d.Schema, d.Name, col.Name
		fault.Raise(e)
	}
}

func (c *schemaChange) alterAddColumn(old, d *catalog.Table, cmd *pg.AlterTableCmd) {
	def := cmd.Def.GetColumnDef()
	if old.Column(def.Colname) != nil {
		if cmd.MissingOk {
			c.notice(sqlstate.DuplicateColumn, "column \"%s\" of relation \"%s\" already exists, skipping", def.Colname, d.Name)
			return
		}
		fault.Raisef(sqlstate.DuplicateColumn, "column \"%s\" of relation \"%s\" already exists", def.Colname, d.Name)
	}
	c.endCaptures(old)
	list := c.addColumn(d, def)
	c.addConstraints(d, list)
	col := &d.Columns[len(d.Columns)-1]
	sql := "ALTER TABLE main." + quote.Ident(d.SQLName()) + " ADD COLUMN " + quote.Ident(col.Name)
	if value.ClassOf(col.Type) == value.ClassNumeric {
		sql += " COLLATE cleave_numeric"
	}
	must(c.exec(sql))
	if col.Default != "" {
		c.withoutGuard(d, "update", func() {
			e := c.t.DefaultSQL(d, col)
			must(c.exec("UPDATE main." + quote.Ident(d.SQLName()) + " SET " + quote.Ident(col.Name) + " = " + e))
		})
	}
	if col.NotNull {
		c.checkNoNulls(d, col)
	}
	for _, k := range d.Constraints[len(old.Constraints):] {
		c.checkRows(d, &k)
	}
	c.rewrite(d)
	must(c.saveTable(d))
	for i := len(old.Indexes); i < len(d.Indexes); i++ {
		c.makeIndex(d, &d.Indexes[i])
	}
}

// alterColumnType changes a column's type to one that is stored alike, or its modifier: what refers to the
// column, such as an index, stays good.
func (c *schemaChange) alterColumnType(old, d *catalog.Table, cmd *pg.AlterTableCmd) {
	def, col := cmd.Def.GetColumnDef(), columnOf(d, cmd.Name)
	if d.Guard != nil && slices.Contains(d.Guard.Columns, col.Name) {
		fault.Raise(sqlstate.Refusal("CLV-2005", `the column "%s" is part of the shard key`, col.Name).
			WithHint("The type of a shard key cannot be changed."))
	}
	typ, mod := c.t.TypeOf(def.TypeName)
	if def.CollClause != nil || !value.Storable(typ) || !translate.SameRepresentation(col.Type, typ) {
		fault.Raise(sqlstate.Refusal("CLV-2006", "a change of a column's type from %s to %s is not supported on a SQLite shard", value.FormatType(col.Type, col.Mod), value.FormatType(typ, mod)).
			WithHint("Add a column of the new type, fill it, drop the old one and rename the new."))
	}
	val := c.t.Conversion(old, col, def.RawDefault, typ, mod)
	col.Type, col.Mod = typ, mod
	c.t.DefaultSQL(d, col) // fails if it does not fit
	if val != quote.Ident(col.Name) {
		if c.inForeignKey(d, col.Num) {
			fault.Raise(sqlstate.Refusal("CLV-2007", `a change of the values of column "%s" of a foreign key with its type is not supported on a SQLite shard`, col.Name).
				WithHint("Drop the foreign key, change the type, and add the key again."))
		}
		c.endCaptures(old)
		c.withoutGuard(d, "update", func() {
			err := c.exec("UPDATE main." + quote.Ident(d.SQLName()) + " SET " + quote.Ident(col.Name) + " = " + val)
			if c.env.Err == nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
				// Row by row, that is: PostgreSQL looks when all rows are changed.
				fault.Raise(sqlstate.Refusal("CLV-2008", `a change of the type of column "%s" that breaks a constraint is not supported on a SQLite shard`, col.Name).
					WithHint("Change the values first, or drop the constraint."))
			}
			must(err)
		})
	}
	c.rewrite(d)
	must(c.saveTable(d))
}

// inForeignKey reports whether a foreign key has the column, on either side: SQLite would carry out its ON UPDATE.
func (c *schemaChange) inForeignKey(d *catalog.Table, column int16) bool {
	for _, of := range c.names.Catalog.ByOID {
		for _, k := range of.Constraints {
			if k.Type == "f" && (of.OID == d.OID && slices.Contains(k.Columns, column) || k.RefTable == d.OID && slices.Contains(k.RefCols, column)) {
				return true
			}
		}
	}
	return false
}

// withoutGuard runs a change of all rows that the guard's own trigger would take
// for a client's: filling a new column, and the router's TRUNCATE.
func (c *database) withoutGuard(d *catalog.Table, op string, fn func()) {
	if d.Guard == nil {
		fn()
		return
	}
	name := guardTrigger(d, op)
	stmt, _, err := c.db.PrepareTransient("SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND name = " + quote.Text(name))
	must(err)
	row, err := stmt.Step()
	text := ""
	if err == nil && row {
		text = stmt.ColumnText(0)
	}
	stmt.Finalize()
	must(err)
	must(c.exec("DROP TRIGGER IF EXISTS main." + quote.Ident(name)))
	fn()
	if text != "" {
		must(c.exec(text))
	}
}

// checkRows checks the rows of a table against a new CHECK or foreign key.
func (c *schemaChange) checkRows(d *catalog.Table, k *catalog.Constraint) {
	table := "main." + quote.Ident(d.SQLName())
	switch k.Type {
	case "c":
		n, err := c.queryInt("SELECT EXISTS (SELECT 1 FROM " + table + " WHERE NOT (" + c.t.Check(d, k.Expr) + "))")
		must(err)
		if n != 0 {
			e := sqlstate.New(sqlstate.CheckViolation, "check constraint \"%s\" of relation \"%s\" is violated by some row", k.Name, d.Name)
			e.Schema, e.Table, e.Constraint = d.Schema, d.Name, k.Name
			fault.Raise(e)
		}
	case "f":
		ref := d
		if k.RefTable != d.OID {
			ref = c.names.Catalog.ByOID[k.RefTable]
		}
		var on, some []string
		local, remote := d.Names(k.Columns), ref.Names(k.RefCols)
		for i := range local {
			on = append(on, "p."+quote.Ident(remote[i])+" = c."+quote.Ident(local[i]))
			some = append(some, "c."+quote.Ident(local[i])+" IS NOT NULL")
		}
		n, err := c.queryInt("SELECT EXISTS (SELECT 1 FROM " + table + " AS c WHERE " + strings.Join(some, " AND ") + " AND NOT EXISTS (SELECT 1 FROM main." +
			quote.Ident(ref.SQLName()) + " AS p WHERE " + strings.Join(on, " AND ") + "))")
		must(err)
		if n != 0 {
			e := sqlstate.New(sqlstate.ForeignKeyViolation, "insert or update on table \"%s\" violates foreign key constraint \"%s\"", d.Name, k.Name)
			e.Schema, e.Table, e.Constraint = d.Schema, d.Name, k.Name
			fault.Raise(e)
		}
	}
}

func (c *schemaChange) alterAddConstraint(old, d *catalog.Table, k *pg.Constraint) {
	if k.SkipValidation && !k.InitiallyValid {
		fault.Refuse("CLV-2009", "NOT VALID")
	}
	c.addConstraints(d, []columnConstraint{{con: k}})
	if len(d.Constraints) == len(old.Constraints) {
		return
	}
	x := &d.Constraints[len(d.Constraints)-1]
	for i := range d.Columns {
		if d.Columns[i].NotNull && !old.Columns[i].NotNull && !d.Columns[i].Dropped {
			c.checkNoNulls(d, &d.Columns[i])
		}
	}
	c.checkRows(d, x)
	c.rewrite(d)
	must(c.saveTable(d))
	if x.Index != 0 {
		c.makeIndex(d, d.Index(x.Index))
	}
}

func (c *schemaChange) alterDropConstraint(d *catalog.Table, cmd *pg.AlterTableCmd) {
	k := d.Constraint(cmd.Name)
	if k == nil {
		if cmd.MissingOk {
			c.notice("00000", "constraint \"%s\" of relation \"%s\" does not exist, skipping", cmd.Name, d.Name)
			return
		}
		fault.Raisef(sqlstate.UndefinedObject, "constraint \"%s\" of relation \"%s\" does not exist", cmd.Name, d.Name)
	}
	index := k.Index
	var rest []catalog.Constraint
	for _, o := range d.Constraints {
		if o.Name != cmd.Name {
			rest = append(rest, o)
		}
	}
	d.Constraints = rest
	if index != 0 {
		c.removeIndex(d, index)
		return
	}
	c.rewrite(d)
	must(c.saveTable(d))
}

func (c *schemaChange) alterDropColumn(d *catalog.Table, cmd *pg.AlterTableCmd) {
	col := d.Column(cmd.Name)
	if col == nil {
		if cmd.MissingOk {
			c.notice("00000", "column \"%s\" of relation \"%s\" does not exist, skipping", cmd.Name, d.Name)
			return
		}
		columnOf(d, cmd.Name)
	}
	if d.Guard != nil && slices.Contains(d.Guard.Columns, col.Name) {
		fault.Raise(sqlstate.Refusal("CLV-2010", `the column "%s" is part of the shard key`, col.Name).
			WithHint("The shard key of a table cannot be dropped."))
	}
	if len(d.Live()) == 1 {
		fault.Refuse("CLV-2011", "a table without columns")
	}
	c.refuseReferencedColumn(d, col)
	var cons []catalog.Constraint
	rewritten := false
	for _, k := range d.Constraints {
		if slices.Contains(k.Columns, col.Num) {
			rewritten = rewritten || k.Index == 0
			continue
		}
		cons = append(cons, k)
	}
	var ixs []catalog.Index
	for _, ix := range d.Indexes {
		if indexUses(&ix, col) {
			must(c.exec("DROP INDEX main." + quote.Ident(catalog.SQLName(d.Schema, ix.Name))))
			continue
		}
		ixs = append(ixs, ix)
	}
	d.Constraints, d.Indexes = cons, ixs
	c.endCaptures(d)
	if rewritten {
		c.rewrite(d)
	}
	must(c.exec("ALTER TABLE main." + quote.Ident(d.SQLName()) + " DROP COLUMN " + quote.Ident(col.Name)))
	col.Dropped, col.NotNull, col.Default = true, false, ""
	col.Name = fmt.Sprintf("........pg.dropped.%d........", col.Num)
	must(c.saveTable(d))
}

// refuseReferencedColumn refuses to drop a column that foreign keys refer to, but for those that it is itself part of.
func (c *schemaChange) refuseReferencedColumn(d *catalog.Table, col *catalog.Column) {
	for _, o := range c.names.Catalog.Tables {
		for _, k := range o.Constraints {
			if k.Type == "f" && k.RefTable == d.OID && slices.Contains(k.RefCols, col.Num) && !(o.OID == d.OID && slices.Contains(k.Columns, col.Num)) {
				fault.Raise(sqlstate.New(sqlstate.DependentObjects, "cannot drop column %s of table %s because other objects depend on it", col.Name, d.Name).
					WithDetail("constraint %s on table %s depends on column %s of table %s", k.Name, o.Name, col.Name, d.Name).
					WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
			}
		}
	}
}

// indexUses reports whether an index is of a column, or has a condition with it.
func indexUses(ix *catalog.Index, col *catalog.Column) bool {
	uses := slices.ContainsFunc(ix.Columns, func(ic catalog.IndexColumn) bool { return ic.Num == col.Num })
	if ix.Where != "" {
		n, err := syntax.Expr(ix.Where)
		must(err)
		syntax.Columns(n, func(r *pg.ColumnRef) { uses = uses || r.Fields[len(r.Fields)-1].GetString_().GetSval() == col.Name })
	}
	return uses
}

func (c *schemaChange) rename(s *pg.RenameStmt) {
	switch s.RenameType {
	case pg.ObjectType_OBJECT_TABLE:
		if old := c.findAlter(s.Relation, s.MissingOk); old != nil {
			c.renameTable(old, s.Newname)
		}
	case pg.ObjectType_OBJECT_COLUMN:
		if old := c.findAlter(s.Relation, s.MissingOk); old != nil {
			c.renameColumn(old, s.Subname, s.Newname)
		}
	case pg.ObjectType_OBJECT_INDEX:
		schemas := c.names.Path
		if s.Relation.Schemaname != "" {
			schemas = []string{s.Relation.Schemaname}
		}
		for _, sc := range schemas {
			if d, ix := c.names.Catalog.FindIndex(sc, s.Relation.Relname); ix != nil {
				c.renameIndex(d.Clone(), ix.OID, s.Newname)
				return
			}
		}
		if s.MissingOk {
			c.notice("00000", "relation \"%s\" does not exist, skipping", s.Relation.Relname)
			return
		}
		fault.Raisef(sqlstate.UndefinedTable, "relation \"%s\" does not exist", s.Relation.Relname)
	case pg.ObjectType_OBJECT_TABCONSTRAINT:
		d := c.findAlter(s.Relation, false).Clone()
		k := d.Constraint(s.Subname)
		if k == nil {
			fault.Raisef(sqlstate.UndefinedObject, "constraint \"%s\" for table \"%s\" does not exist", s.Subname, d.Name)
		}
		if d.Constraint(s.Newname) != nil {
			fault.Raisef(sqlstate.DuplicateObject, "constraint \"%s\" for relation \"%s\" already exists", s.Newname, d.Name)
		}
		if k.Index != 0 {
			c.renameIndex(d, k.Index, s.Newname)
			return
		}
		k.Name = s.Newname
		c.rewrite(d)
		must(c.saveTable(d))
	default:
		fault.Refuse("CLV-2013", "this RENAME")
	}
}

func (c *schemaChange) renameTable(old *catalog.Table, name string) {
	c.usedByViews(old, false)
	c.checkNewName(old.Schema, name)
	d := old.Clone()
	d.Name = name
	c.endCaptures(old)
	must(c.exec("ALTER TABLE main." + quote.Ident(old.SQLName()) + " RENAME TO " + quote.Ident(d.SQLName())))
	must(c.saveTable(d))
}

func (c *schemaChange) renameColumn(old *catalog.Table, from, to string) {
	c.usedByViews(old, false)
	d := old.Clone()
	col := d.Column(from)
	if col == nil {
		fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" does not exist", from)
	}
	for _, o := range d.Live() {
		if o.Name == to {
			fault.Raisef(sqlstate.DuplicateColumn, "column \"%s\" of relation \"%s\" already exists", to, d.Name)
		}
		if o != col && strings.EqualFold(o.Name, to) {
			fault.Raise(sqlstate.Refusal("CLV-2012", "a SQLite shard cannot have two columns whose names differ in case only").
				WithHint("Choose another name."))
		}
	}
	c.endCaptures(old)
	must(c.exec("ALTER TABLE main." + quote.Ident(d.SQLName()) + " RENAME COLUMN " + quote.Ident(from) + " TO " + quote.Ident(to)))
	for i := range d.Constraints {
		d.Constraints[i].Expr = renamedIn(d.Constraints[i].Expr, from, to)
	}
	for i := range d.Indexes {
		d.Indexes[i].Where = renamedIn(d.Indexes[i].Where, from, to)
	}
	if d.Guard != nil {
		g := *d.Guard
		g.Columns = slices.Clone(g.Columns)
		if i := slices.Index(g.Columns, from); i >= 0 {
			g.Columns[i] = to
		}
		d.Guard = &g
	}
	col.Name = to
	must(c.saveTable(d))
}

// renamedIn is an expression, or nothing, with another name for a column.
func renamedIn(text, from, to string) string {
	if text == "" {
		return ""
	}
	n, err := syntax.Expr(text)
	must(err)
	syntax.Columns(n, func(r *pg.ColumnRef) {
		if last := r.Fields[len(r.Fields)-1].GetString_(); last.GetSval() == from {
			last.Sval = to
		}
	})
	return syntax.Deparse(n)
}

func (c *schemaChange) renameIndex(d *catalog.Table, oid uint32, name string) {
	c.checkNewName(d.Schema, name)
	ix := d.Index(oid)
	must(c.exec("DROP INDEX main." + quote.Ident(catalog.SQLName(d.Schema, ix.Name))))
	ix.Name = name
	for i := range d.Constraints {
		if d.Constraints[i].Index == oid {
			d.Constraints[i].Name = name
		}
	}
	c.makeIndex(d, ix)
	must(c.saveTable(d))
}

func (c *schemaChange) truncate(s *pg.TruncateStmt) {
	var list []*catalog.Table
	going := map[uint32]bool{}
	for _, n := range s.Relations {
		d := c.findAlter(n.GetRangeVar(), false)
		if !going[d.OID] {
			list = append(list, d)
		}
		going[d.OID] = true
	}
	if s.Behavior == pg.DropBehavior_DROP_CASCADE {
		list = c.withReferencing(list, going)
	}
	c.refuseReferenced(going)
	for _, d := range list {
		c.keysPending(d, "TRUNCATE")
		if d.Guard != nil && !d.Guard.Said(c.settings.get(engine.EpochSetting)) {
			e := sqlstate.New(sqlstate.NotOwner, "%s", engine.RefusalTruncate)
			e.Detail = engine.Refusal{Keyspace: d.Guard.Keyspace, Epoch: d.Guard.Epoch}.Detail()
			e.Hint, e.Schema, e.Table = engine.RefusalHint, d.Schema, d.Name
			e.Retry = sqlstate.RetryTransaction
			fault.Raise(e)
		}
	}
	if len(list) > 1 {
		must(c.exec("PRAGMA defer_foreign_keys = ON"))
	}
	c.captureTruncate(list, func() {
		for _, d := range list {
			c.withoutGuard(d, "delete", func() { must(c.exec("DELETE FROM main." + quote.Ident(d.SQLName()))) })
			c.tx.made(d)
		}
	})
	if len(list) > 1 {
		c.checksAgain()
	}
}

// withReferencing adds to the tables that TRUNCATE empties those whose foreign keys refer to them, and to these.
func (c *schemaChange) withReferencing(list []*catalog.Table, going map[uint32]bool) []*catalog.Table {
	for more := true; more; {
		more = false
		for _, o := range c.names.Catalog.SortedTables() {
			if !going[o.OID] && slices.ContainsFunc(o.Constraints, func(k catalog.Constraint) bool { return k.Type == "f" && going[k.RefTable] }) {
				c.notice("00000", "truncate cascades to table \"%s\"", o.Name)
				list, going[o.OID], more = append(list, o), true, true
			}
		}
	}
	return list
}

// refuseReferenced refuses to empty tables that others refer to.
func (c *schemaChange) refuseReferenced(going map[uint32]bool) {
	for _, o := range c.names.Catalog.Tables {
		for _, k := range o.Constraints {
			if k.Type == "f" && going[k.RefTable] && !going[o.OID] {
				ref := c.names.Catalog.ByOID[k.RefTable]
				fault.Raise(sqlstate.New(sqlstate.FeatureNotSupported, "cannot truncate a table referenced in a foreign key constraint").
					WithDetail("Table \"%s\" references \"%s\".", o.Name, ref.Name).
					WithHint("Truncate table \"%s\" at the same time, or use TRUNCATE ... CASCADE.", o.Name))
			}
		}
	}
}

func (c *schemaChange) comment(s *pg.CommentStmt) {
	switch s.Objtype {
	case pg.ObjectType_OBJECT_TABLE:
		d := c.findAlter(rangeVarOf(s.Object), false).Clone()
		d.Comment = s.Comment
		must(c.saveTable(d))
	case pg.ObjectType_OBJECT_COLUMN:
		items := s.Object.GetList().GetItems()
		if len(items) < 2 {
			fault.Raisef(sqlstate.SyntaxError, "column name must be qualified")
		}
		r := &pg.RangeVar{Relname: items[len(items)-2].GetString_().GetSval(), Location: -1}
		if len(items) > 2 {
			r.Schemaname = items[len(items)-3].GetString_().GetSval()
		}
		d := c.findAlter(r, false).Clone()
		columnOf(d, items[len(items)-1].GetString_().GetSval()).Comment = s.Comment
		must(c.saveTable(d))
	default:
		fault.Refuse("CLV-2014", "COMMENT ON this kind of object")
	}
}

// explainOptions refuses the options of EXPLAIN that SQLite's query plan has no answer to.
func explainOptions(options []*pg.Node) error {
	for _, o := range options {
		switch e := o.GetDefElem(); e.Defname {
		case "analyze":
			if e.Arg == nil || e.Arg.GetString_().GetSval() != "false" {
				return value.Unsupported("EXPLAIN ANALYZE")
			}
		case "costs", "verbose", "summary", "settings", "timing", "buffers":
		case "format":
			if e.Arg.GetString_().GetSval() != "text" {
				return value.Unsupported("EXPLAIN in a format other than text")
			}
		default:
			return sqlstate.New(sqlstate.SyntaxError, "unrecognized EXPLAIN option \"%s\"", e.Defname)
		}
	}
	return nil
}

// planExplain answers EXPLAIN with SQLite's own query plan.
func (c *transaction) planExplain(s *pg.ExplainStmt, text string, oids []uint32, fixed bool) (*plan, error) {
	if err := explainOptions(s.Options); err != nil {
		return nil, err
	}
	inner := &pg.RawStmt{Stmt: s.Query}
	p, err := c.translateStatement(inner, text, oids, fixed)
	if err != nil {
		return nil, err
	}
	return &plan{Statement: translate.Statement{Tag: "EXPLAIN", Returns: true, Columns: []translate.Column{{Name: "QUERY PLAN", Type: pgoid.Text, Mod: -1, Class: value.ClassText}}, Params: p.Params, Systems: p.Systems}, text: text, kind: utilityPlan, generation: c.names.Catalog.Generation, settings: c.settings.version,
		util: func(c *Conn, po *portal) error {
			for _, sys := range p.Systems {
				if err := c.fillSystem(sys); err != nil {
					return err
				}
			}
			stmt, _, err := c.db.PrepareTransient("EXPLAIN QUERY PLAN " + p.SQL)
			if err != nil {
				return err
			}
			defer stmt.Finalize()
			depth := map[int64]int{0: -1}
			for {
				row, err := stmt.Step()
				if err != nil {
					return err
				}
				if !row {
					break
				}
				id, parent := stmt.ColumnInt64(0), stmt.ColumnInt64(1)
				depth[id] = depth[parent] + 1
				po.rows = append(po.rows, []value.Datum{value.Text(strings.Repeat("  ", max(depth[id], 0)) + stmt.ColumnText(3))})
			}
			if len(po.rows) == 0 {
				po.rows = append(po.rows, []value.Datum{value.Text("Result")})
			}
			po.tag = "EXPLAIN"
			return nil
		}}, nil
}
