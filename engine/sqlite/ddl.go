package sqlite

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/sqlstate"
)

// runUtility runs a statement that is not a query. Its rows, if any, are in
// p.rows afterwards.
func (c *Conn) runUtility(p *portal) error {
	c.verb = p.plan.Tag
	if p.plan.kind == utilityPlan {
		if err := c.begin(p.plan.Write); err != nil {
			return err
		}
	} else if c.tx.block == txFailed && !p.plan.exitsFailed() {
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	p.started = true
	if p.plan.util == nil {
		return nil
	}
	return p.plan.util(c, p)
}

// planUtility recognises DDL and its like; nil means that it is a query.
func (c *Conn) planUtility(raw *pg.RawStmt, text string) (p *plan, err error) {
	defer fault.Catch(&err)
	// A statement is translated when it runs, since the tables may have changed.
	ddl := func(tag string, fn func(c *schemaChange, p *portal)) (*plan, error) {
		return c.utility(tag, true, text, func(c *Conn, p *portal) (err error) {
			defer fault.Catch(&err)
			fn(&schemaChange{&c.transaction, c.translator(text)}, p)
			return nil
		}), nil
	}
	switch s := raw.Stmt.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt:
		return nil, nil
	case *pg.Node_DeclareCursorStmt:
		return c.planDeclare(s.DeclareCursorStmt, text)
	case *pg.Node_CopyStmt:
		return c.planCopy(raw, s.CopyStmt, text)
	case *pg.Node_CreateStmt:
		return ddl("CREATE TABLE", func(c *schemaChange, p *portal) { c.createTable(s.CreateStmt) })
	case *pg.Node_ViewStmt:
		return ddl("CREATE VIEW", func(c *schemaChange, p *portal) { c.createView(s.ViewStmt) })
	case *pg.Node_DropStmt:
		return planDrop(s.DropStmt, ddl)
	case *pg.Node_AlterTableStmt:
		return ddl("ALTER TABLE", func(c *schemaChange, p *portal) { c.alterTable(s.AlterTableStmt) })
	case *pg.Node_RenameStmt:
		return planRename(s.RenameStmt, ddl)
	case *pg.Node_IndexStmt:
		return ddl("CREATE INDEX", func(c *schemaChange, p *portal) { c.createIndex(s.IndexStmt) })
	case *pg.Node_TruncateStmt:
		return ddl("TRUNCATE TABLE", func(c *schemaChange, p *portal) { c.truncate(s.TruncateStmt) })
	case *pg.Node_CreateSchemaStmt:
		return ddl("CREATE SCHEMA", func(c *schemaChange, p *portal) { c.createSchema(s.CreateSchemaStmt) })
	case *pg.Node_CommentStmt:
		return ddl("COMMENT", func(c *schemaChange, p *portal) { c.comment(s.CommentStmt) })
	case *pg.Node_VacuumStmt:
		return c.planVacuum(s.VacuumStmt, text), nil
	}
	return nil, refusedStatement(raw.Stmt)
}

// refusedStatement is the error of a statement that a file has nothing for.
func refusedStatement(stmt *pg.Node) error {
	switch stmt.GetNode().(type) {
	case *pg.Node_CreateEnumStmt, *pg.Node_CompositeTypeStmt, *pg.Node_CreateDomainStmt, *pg.Node_DefineStmt:
		return sqlstate.Refusal("CLV-2020", "a SQLite shard has no user-defined types").
			WithHint("Use text with a CHECK constraint, or a PostgreSQL shard.")
	case *pg.Node_CreateSeqStmt, *pg.Node_AlterSeqStmt:
		return sqlstate.Refusal("CLV-2021", "a SQLite shard has no sequences: a rolled back transaction would give a number out twice").
			WithHint("Use uuid with gen_random_uuid(), or a PostgreSQL shard.")
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", stmt.GetNode()), "*pg_query.Node_")
	return value.Unsupported("the statement " + strings.TrimSuffix(name, "Stmt"))
}

// utility is the plan of a statement that fn runs.
func (c *transaction) utility(tag string, write bool, text string, fn func(c *Conn, p *portal) error) *plan {
	return &plan{Statement: translate.Statement{Tag: tag, Write: write}, text: text, kind: utilityPlan, util: fn, generation: c.names.Catalog.Generation, settings: c.settings.version}
}

func planRename(s *pg.RenameStmt, ddl func(string, func(c *schemaChange, p *portal)) (*plan, error)) (*plan, error) {
	tag := "ALTER TABLE"
	switch s.RenameType {
	case pg.ObjectType_OBJECT_INDEX:
		tag = "ALTER INDEX"
	case pg.ObjectType_OBJECT_SCHEMA:
		return nil, value.Unsupported("ALTER SCHEMA ... RENAME")
	}
	return ddl(tag, func(c *schemaChange, p *portal) { c.rename(s) })
}

// planVacuum plans VACUUM and ANALYZE: both collect statistics.
func (c *transaction) planVacuum(s *pg.VacuumStmt, text string) *plan {
	tag := "VACUUM"
	if !s.IsVacuumcmd {
		tag = "ANALYZE"
	}
	return c.utility(tag, true, text, func(c *Conn, p *portal) error {
		if tag == "VACUUM" && c.tx.block != txNone {
			return sqlstate.New(sqlstate.ActiveTransaction, "VACUUM cannot run inside a transaction block")
		}
		return c.exec("ANALYZE")
	})
}

// creationSchema finds the schema of a new object.
func (c *schemaChange) creationSchema(r *pg.RangeVar) string {
	if r.Schemaname != "" {
		c.checkSchema(r.Schemaname)
		return r.Schemaname
	}
	path := c.names.Schemas()
	if len(path) == 0 {
		fault.Raisef(sqlstate.InvalidSchemaName, "no schema has been selected to create in")
	}
	return path[0]
}

func (c *schemaChange) checkSchema(name string) {
	if c.names.Catalog.Schemas[name] == nil {
		fault.Raisef(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", name)
	}
	if name == catalog.SchemaPgCatalog || name == catalog.SchemaInformation {
		fault.Raisef(sqlstate.InsufficientPrivilege, "permission denied for schema %s", name)
	}
}

// checkNewName refuses names that are taken, and those that SQLite cannot have.
func (c *schemaChange) checkNewName(schema, name string) {
	exact, folded := c.names.Catalog.RelationNameTaken(schema, name)
	if exact {
		fault.Raisef(sqlstate.DuplicateTable, "relation \"%s\" already exists", name)
	}
	if folded {
		fault.Raise(sqlstate.Refusal("CLV-2022", `a SQLite shard cannot have two relations whose names differ in case only ("%s")`, name).
			WithHint("Choose another name."))
	}
	lower := strings.ToLower(catalog.SQLName(schema, name))
	if strings.HasPrefix(lower, "sqlite_") || strings.HasPrefix(lower, "cleave_") && schema == catalog.SchemaPublic || schema == catalog.SchemaPublic && strings.Contains(name, ".") {
		fault.Raise(sqlstate.Refusal("CLV-2023", `a SQLite shard cannot have a relation named "%s"`, name).
			WithHint("Names must not begin with sqlite_ or cleave_, nor contain a dot."))
	}
}

// chooseName makes a constraint's or index's name as PostgreSQL does:
// name1_name2_label, cut to 63 bytes, with a number if it is taken.
func (c *schemaChange) chooseName(schema, name1, name2, label string, taken func(string) bool) string {
	for n := 0; ; n++ {
		l := label
		if n > 0 {
			l += strconv.Itoa(n)
		}
		over := len(l) + 1
		a, b := name1, name2
		if b != "" {
			over++
		}
		for len(a)+len(b)+over > 63 {
			if len(a) > len(b) {
				a = a[:len(a)-1]
			} else {
				b = b[:len(b)-1]
			}
		}
		name := a
		if b != "" {
			name += "_" + b
		}
		name += "_" + l
		exact, folded := c.names.Catalog.RelationNameTaken(schema, name)
		if !exact && !folded && !taken(name) {
			return name
		}
	}
}

func (c *schemaChange) createTable(s *pg.CreateStmt) {
	refuseTableForms(s)
	schema := c.creationSchema(s.Relation)
	name := s.Relation.Relname
	if exact, _ := c.names.Catalog.RelationNameTaken(schema, name); exact && s.IfNotExists {
		c.notice(sqlstate.DuplicateTable, "relation \"%s\" already exists, skipping", name)
		return
	}
	c.checkNewName(schema, name)
	d := &catalog.Table{OID: c.mustOID(), Schema: schema, Name: name}
	d.Options = tableOptions(s.Options)
	var constraints []columnConstraint
	for _, n := range s.TableElts {
		switch x := n.GetNode().(type) {
		case *pg.Node_ColumnDef:
			constraints = append(constraints, c.addColumn(d, x.ColumnDef)...)
		case *pg.Node_Constraint:
			constraints = append(constraints, columnConstraint{con: x.Constraint})
		case *pg.Node_TableLikeClause:
			fault.Refuse("CLV-2029", "LIKE in CREATE TABLE")
		default:
			fault.Refuse("CLV-2030", "this element of CREATE TABLE")
		}
	}
	if len(d.Columns) == 0 {
		fault.Refuse("CLV-2011", "a table without columns")
	}
	c.addConstraints(d, constraints)
	must(c.exec(c.tableSQL(d)))
	must(c.saveTable(d))
	c.tx.made(d)
	for i := range d.Indexes {
		c.makeIndex(d, &d.Indexes[i])
	}
}

// refuseTableForms refuses the forms of CREATE TABLE that a file has nothing for.
func refuseTableForms(s *pg.CreateStmt) {
	switch {
	case s.Relation.Relpersistence == "t":
		fault.Refuse("CLV-2025", "a temporary table")
	case len(s.InhRelations) > 0 || s.Partspec != nil || s.Partbound != nil:
		fault.Refuse("CLV-2026", "inheritance and partitioning")
	case s.OfTypename != nil:
		fault.Refuse("CLV-2027", "CREATE TABLE OF")
	case s.Tablespacename != "" || s.AccessMethod != "" && s.AccessMethod != "heap":
		fault.Refuse("CLV-2028", "a tablespace or access method")
	}
}

type columnConstraint struct {
	con    *pg.Constraint
	column *catalog.Column // nil for a table constraint
}

func must(err error) {
	if err != nil {
		if strings.Contains(err.Error(), "non-deterministic") {
			err = value.Unsupported("a function that is not immutable in a constraint or index")
		}
		fault.Raise(err)
	}
}

func (c *schemaChange) mustOID() uint32 {
	n, err := c.newOID()
	must(err)
	return n
}

func tableOptions(list []*pg.Node) []string {
	var out []string
	for _, n := range list {
		e := n.GetDefElem()
		if e.Defnamespace != "" || e.Defname != "fillfactor" && !strings.HasPrefix(e.Defname, "autovacuum_") {
			fault.Raise(sqlstate.Refusal("CLV-2031", "the storage parameter %s is not supported on a SQLite shard", e.Defname).
				WithHint("Leave it out."))
		}
		v := ""
		if a := e.Arg; a != nil {
			if i, ok := a.GetNode().(*pg.Node_Integer); ok {
				v = strconv.Itoa(int(i.Integer.Ival))
			} else if s := a.GetString_(); s != nil {
				v = s.Sval
			} else if f := a.GetFloat(); f != nil {
				v = f.Fval
			} else if tn := a.GetTypeName(); tn != nil {
				v = syntax.LastName(tn)
			}
		}
		out = append(out, e.Defname+"="+v)
	}
	return out
}

// checkColumnName refuses names that a new column of d cannot have.
func checkColumnName(d *catalog.Table, name string) {
	if d.Column(name) != nil {
		fault.Raisef(sqlstate.DuplicateColumn, "column \"%s\" specified more than once", name)
	}
	for _, o := range d.Live() {
		if strings.EqualFold(o.Name, name) {
			fault.Raise(sqlstate.Refusal("CLV-2032", `a SQLite shard cannot have two columns whose names differ in case only ("%s")`, name).
				WithHint("Choose another name."))
		}
	}
	switch name {
	case "tableoid", "xmin", "cmin", "xmax", "cmax", "ctid":
		fault.Raisef(sqlstate.DuplicateColumn, "column name \"%s\" conflicts with a system column name", name)
	}
}

// addColumn appends a column and returns its constraints.
func (c *schemaChange) addColumn(d *catalog.Table, n *pg.ColumnDef) []columnConstraint {
	checkColumnName(d, n.Colname)
	if last := n.TypeName.Names[len(n.TypeName.Names)-1].GetString_().GetSval(); strings.HasSuffix(last, "serial") || last == "serial4" || last == "serial8" || last == "serial2" {
		fault.Raise(sqlstate.Refusal("CLV-2033", "a SQLite shard has no serial columns: a rolled back transaction would give a number out twice").
			WithHint("Use uuid DEFAULT gen_random_uuid(), or numbers of your own."))
	}
	if len(d.Columns) >= 1600 {
		fault.Raisef("54011", "tables can have at most 1600 columns")
	}
	oid, mod := c.t.TypeOf(n.TypeName)
	if !value.Storable(oid) {
		fault.Raise(sqlstate.Refusal("CLV-2034", "a SQLite shard cannot store columns of type %s", value.FormatType(oid, mod)).
			WithHint("It stores boolean, smallint, integer, bigint, numeric, double precision, text, varchar, char, uuid, bytea, date, time, timestamp, timestamptz, json and jsonb."))
	}
	if n.CollClause != nil {
		name := n.CollClause.Collname[len(n.CollClause.Collname)-1].GetString_().GetSval()
		switch name {
		case "C", "POSIX", "default", "ucs_basic":
		default:
			fault.Raise(sqlstate.Refusal("CLV-2035", `a SQLite shard orders text by bytes (COLLATE "C") only`).
				WithHint("Leave the COLLATE clause out, or use a PostgreSQL shard."))
		}
	}
	if n.Compression != "" || n.StorageName != "" {
		fault.Refuse("CLV-2036", "COMPRESSION or STORAGE")
	}
	num := int16(len(d.Columns) + 1)
	d.Columns = append(d.Columns, catalog.Column{Num: num, Name: n.Colname, Type: oid, Mod: mod})
	var out []columnConstraint
	for _, k := range constraintAttributes(n.Constraints) {
		out = append(out, columnConstraint{con: k, column: &catalog.Column{Num: num}})
	}
	return out
}

// attributes are the clauses that say when a constraint is checked, and deferrables the constraints that may have them.
var (
	attributes = map[pg.ConstrType]string{
		pg.ConstrType_CONSTR_ATTR_DEFERRABLE: "DEFERRABLE", pg.ConstrType_CONSTR_ATTR_NOT_DEFERRABLE: "NOT DEFERRABLE",
		pg.ConstrType_CONSTR_ATTR_DEFERRED: "INITIALLY DEFERRED", pg.ConstrType_CONSTR_ATTR_IMMEDIATE: "INITIALLY IMMEDIATE",
	}
	deferrables = []pg.ConstrType{pg.ConstrType_CONSTR_PRIMARY, pg.ConstrType_CONSTR_UNIQUE, pg.ConstrType_CONSTR_EXCLUSION, pg.ConstrType_CONSTR_FOREIGN}
)

// constraintAttributes gives [NOT] DEFERRABLE and INITIALLY to the constraint before them, as PostgreSQL's
// transformConstraintAttrs does with its errors.
func constraintAttributes(list []*pg.Node) []*pg.Constraint {
	var out []*pg.Constraint
	var last *pg.Constraint
	deferrable, initially := false, false // said of last
	misuse := func(text string) { fault.Raisef(sqlstate.SyntaxError, "%s", text) }
	for _, n := range list {
		k := n.GetConstraint()
		what, ok := attributes[k.Contype]
		if !ok {
			out, last, deferrable, initially = append(out, k), k, false, false
			continue
		}
		if last == nil || !slices.Contains(deferrables, last.Contype) {
			misuse("misplaced " + what + " clause")
		}
		if strings.HasPrefix(what, "INITIALLY") {
			if initially {
				misuse("multiple INITIALLY IMMEDIATE/DEFERRED clauses not allowed")
			}
			initially, last.Initdeferred = true, what == "INITIALLY DEFERRED"
			last.Deferrable = last.Deferrable || last.Initdeferred && !deferrable
		} else {
			if deferrable {
				misuse("multiple DEFERRABLE/NOT DEFERRABLE clauses not allowed")
			}
			deferrable, last.Deferrable = true, what == "DEFERRABLE"
		}
		if deferrable && !last.Deferrable && last.Initdeferred {
			misuse("constraint declared INITIALLY DEFERRED must be DEFERRABLE")
		}
	}
	return out
}

// addConstraints works the constraints of CREATE TABLE or ADD COLUMN into d.
func (c *schemaChange) addConstraints(d *catalog.Table, list []columnConstraint) {
	named := constraintNames(d, list)
	// PostgreSQL names checks first, then indexes, then foreign keys.
	order := []pg.ConstrType{pg.ConstrType_CONSTR_CHECK, pg.ConstrType_CONSTR_PRIMARY, pg.ConstrType_CONSTR_UNIQUE}
	place := func(k columnConstraint) uint { return uint(slices.Index(order, k.con.Contype)) } // the others come last
	slices.SortStableFunc(list, func(a, b columnConstraint) int { return cmp.Compare(place(a), place(b)) })
	taken := func(n string) bool { return named[n] || n == d.Name }
	for _, ck := range list {
		k := ck.con
		var col *catalog.Column
		if ck.column != nil {
			col = d.ByNum(ck.column.Num)
		}
		if (k.Deferrable || k.Initdeferred) && k.Contype != pg.ConstrType_CONSTR_FOREIGN {
			fault.Raise(sqlstate.Refusal("CLV-2037", "a deferrable UNIQUE or PRIMARY KEY constraint is not supported on a SQLite shard").
				WithHint("Foreign keys can be DEFERRABLE; leave it out here."))
		}
		c.addConstraint(d, k, col, named, taken)
	}
}

// addConstraint works a constraint into d. col is the column that it stands behind, if it stands behind one.
func (c *schemaChange) addConstraint(d *catalog.Table, k *pg.Constraint, col *catalog.Column, named map[string]bool, taken func(string) bool) {
	switch k.Contype {
	case pg.ConstrType_CONSTR_NULL:
	case pg.ConstrType_CONSTR_NOTNULL:
		col.NotNull = true
	case pg.ConstrType_CONSTR_DEFAULT:
		c.setDefault(d, col, k.RawExpr)
	case pg.ConstrType_CONSTR_CHECK:
		c.addCheck(d, k, named, taken)
	case pg.ConstrType_CONSTR_PRIMARY, pg.ConstrType_CONSTR_UNIQUE:
		c.addUnique(d, k, col, named, taken)
	case pg.ConstrType_CONSTR_FOREIGN:
		c.addForeignKey(d, k, col, named, taken)
	case pg.ConstrType_CONSTR_IDENTITY:
		fault.Raise(sqlstate.Refusal("CLV-2038", "a SQLite shard has no identity columns: a rolled back transaction would give a number out twice").
			WithHint("Use uuid DEFAULT gen_random_uuid(), or numbers of your own."))
	case pg.ConstrType_CONSTR_GENERATED:
		fault.Refuse("CLV-2039", "a generated column")
	case pg.ConstrType_CONSTR_EXCLUSION:
		fault.Refuse("CLV-2040", "an exclusion constraint")
	default:
		fault.Refuse("CLV-2041", "this constraint")
	}
}

// constraintNames are the names of a table's constraints, with the ones that the new ones give.
func constraintNames(d *catalog.Table, list []columnConstraint) map[string]bool {
	named := map[string]bool{}
	for _, k := range d.Constraints {
		named[k.Name] = true
	}
	for _, k := range list {
		if n := k.con.Conname; n != "" {
			if named[n] {
				fault.Raisef(sqlstate.DuplicateObject, "constraint \"%s\" for relation \"%s\" already exists", n, d.Name)
			}
			named[n] = true
		}
	}
	return named
}

// addCheck adds a CHECK, whose name has that of its column if it has one only.
func (c *schemaChange) addCheck(d *catalog.Table, k *pg.Constraint, named map[string]bool, taken func(string) bool) {
	used := ""
	several := false
	syntax.Columns(k.RawExpr, func(r *pg.ColumnRef) {
		n := r.Fields[len(r.Fields)-1].GetString_().GetSval()
		if used == "" || used == n {
			used = n
		} else {
			several = true
		}
	})
	if several {
		used = ""
	}
	name := k.Conname
	if name == "" {
		name = c.chooseName(d.Schema, d.Name, used, "check", taken)
	}
	named[name] = true
	x := catalog.Constraint{OID: c.mustOID(), Name: name, Type: "c", Expr: syntax.Deparse(k.RawExpr)}
	seen := map[int16]bool{}
	syntax.Columns(k.RawExpr, func(r *pg.ColumnRef) {
		if o := d.Column(r.Fields[len(r.Fields)-1].GetString_().GetSval()); o != nil && !seen[o.Num] {
			seen[o.Num] = true
			x.Columns = append(x.Columns, o.Num)
		}
	})
	c.t.Check(d, x.Expr)
	d.Constraints = append(d.Constraints, x)
}

func (c *schemaChange) setDefault(d *catalog.Table, col *catalog.Column, n *pg.Node) {
	if k := n.GetAConst(); k != nil && k.Isnull {
		col.Default = ""
		return
	}
	syntax.Columns(n, func(*pg.ColumnRef) {
		fault.Raisef(sqlstate.FeatureNotSupported, "cannot use column reference in DEFAULT expression")
	})
	text := syntax.Deparse(n)
	if k := n.GetAConst(); k != nil && k.GetSval() != nil {
		text += "::" + value.TypeName(col.Type)
	}
	col.Default = text
	c.t.CheckDefault(d, col)
}

// uniqueColumns are the columns of UNIQUE or PRIMARY KEY: col where it stands behind a column.
func uniqueColumns(d *catalog.Table, k *pg.Constraint, col *catalog.Column) (nums []int16, names []string) {
	if col != nil {
		return []int16{col.Num}, []string{col.Name}
	}
	for _, n := range k.Keys {
		name := n.GetString_().GetSval()
		kc := d.Column(name)
		if kc == nil {
			fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" named in key does not exist", name)
		}
		if slices.Contains(nums, kc.Num) {
			what := "unique"
			if k.Contype == pg.ConstrType_CONSTR_PRIMARY {
				what = "primary key"
			}
			fault.Raisef(sqlstate.DuplicateColumn, "column \"%s\" appears twice in %s constraint", name, what)
		}
		nums, names = append(nums, kc.Num), append(names, name)
	}
	return nums, names
}

func (c *schemaChange) addUnique(d *catalog.Table, k *pg.Constraint, col *catalog.Column, named map[string]bool, taken func(string) bool) {
	if k.NullsNotDistinct || len(k.Including) > 0 || k.Indexname != "" {
		fault.Refuse("CLV-2043", "this form of UNIQUE or PRIMARY KEY")
	}
	primary := k.Contype == pg.ConstrType_CONSTR_PRIMARY
	if primary && d.PrimaryKey() != nil {
		fault.Raisef(sqlstate.InvalidTableDefinition, "multiple primary keys for table \"%s\" are not allowed", d.Name)
	}
	nums, names := uniqueColumns(d, k, col)
	ix := catalog.Index{OID: c.mustOID(), Unique: true, Primary: primary}
	for _, n := range nums {
		kc := d.ByNum(n)
		indexable(kc)
		if primary {
			kc.NotNull = true
		}
		ix.Columns = append(ix.Columns, catalog.IndexColumn{Num: n})
	}
	name := k.Conname
	switch {
	case name != "":
		c.checkNewName(d.Schema, name)
	case primary:
		name = c.chooseName(d.Schema, d.Name, "", "pkey", taken)
	default:
		name = c.chooseName(d.Schema, d.Name, strings.Join(names, "_"), "key", taken)
	}
	named[name] = true
	ix.Name = name
	typ := "u"
	if primary {
		typ = "p"
	}
	d.Indexes = append(d.Indexes, ix)
	d.Constraints = append(d.Constraints, catalog.Constraint{OID: c.mustOID(), Name: name, Type: typ, Columns: nums, Index: ix.OID})
}

func indexable(col *catalog.Column) {
	if !value.Comparable(col.Type) && value.ClassOf(col.Type) != value.ClassBpchar {
		fault.Raise(sqlstate.Refusal("CLV-2044", "a SQLite shard cannot index columns of type %s", value.TypeName(col.Type)).
			WithHint("Index a text column instead."))
	}
}

// refuseForeignKeyForms refuses the forms of a foreign key that SQLite does not enforce as PostgreSQL does.
func refuseForeignKeyForms(k *pg.Constraint) {
	if k.FkMatchtype == "f" || k.FkMatchtype == "p" {
		fault.Refuse("CLV-2045", "MATCH FULL and MATCH PARTIAL")
	}
	if len(k.FkDelSetCols) > 0 {
		fault.Refuse("CLV-2046", "ON DELETE SET with a list of columns")
	}
	if k.SkipValidation && !k.InitiallyValid {
		fault.Refuse("CLV-2009", "NOT VALID")
	}
	for _, a := range []string{k.FkDelAction, k.FkUpdAction} {
		if catalog.Actions[a] == "" || a == "d" {
			fault.Refuse("CLV-2047", "the action SET DEFAULT of a foreign key")
		}
	}
}

func (c *schemaChange) addForeignKey(d *catalog.Table, k *pg.Constraint, col *catalog.Column, named map[string]bool, taken func(string) bool) {
	refuseForeignKeyForms(k)
	x := catalog.Constraint{Type: "f", OnDelete: k.FkDelAction, OnUpdate: k.FkUpdAction, Deferrable: k.Deferrable || k.Initdeferred, Deferred: k.Initdeferred}
	if col != nil {
		x.Columns = []int16{col.Num}
	}
	for _, n := range k.FkAttrs {
		name := n.GetString_().GetSval()
		kc := d.Column(name)
		if kc == nil {
			fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" referenced in foreign key constraint does not exist", name)
		}
		x.Columns = append(x.Columns, kc.Num)
	}
	var ref *catalog.Table
	pk := k.Pktable
	if (pk.Schemaname == "" || pk.Schemaname == d.Schema) && pk.Relname == d.Name {
		ref = d
	} else {
		ref = c.t.FindTable(pk)
	}
	if ref.System != nil || ref.Static {
		fault.Raisef(sqlstate.WrongObjectType, "referenced relation \"%s\" is not a table", ref.Name)
	}
	x.RefTable, x.RefCols = ref.OID, referencedColumns(ref, k.PkAttrs)
	if len(x.RefCols) != len(x.Columns) {
		fault.Raisef("42830", "number of referencing and referenced columns for foreign key disagree")
	}
	if !uniqueKey(ref, x.RefCols) {
		fault.Raisef("42830", "there is no unique constraint matching given keys for referenced table \"%s\"", ref.Name)
	}
	local := d.Names(x.Columns)
	checkKeyTypes(d, ref, &x, k.Conname)
	x.Name = k.Conname
	if x.Name == "" {
		x.Name = c.chooseName(d.Schema, d.Name, strings.Join(local, "_"), "fkey", taken)
	}
	named[x.Name] = true
	x.OID = c.mustOID()
	d.Constraints = append(d.Constraints, x)
}

// referencedColumns are the columns that a foreign key names in the other table, its primary key's if it names none.
func referencedColumns(ref *catalog.Table, names []*pg.Node) (nums []int16) {
	if len(names) == 0 {
		p := ref.PrimaryKey()
		if p == nil {
			fault.Raisef(sqlstate.UndefinedObject, "there is no primary key for referenced table \"%s\"", ref.Name)
		}
		return p.Columns
	}
	for _, n := range names {
		name := n.GetString_().GetSval()
		rc := ref.Column(name)
		if rc == nil {
			fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" referenced in foreign key constraint does not exist", name)
		}
		nums = append(nums, rc.Num)
	}
	return nums
}

// uniqueKey reports whether a unique index has these columns, in any order.
func uniqueKey(ref *catalog.Table, nums []int16) bool {
	for _, ix := range ref.Indexes {
		if ix.Unique && ix.Where == "" && catalog.SameColumns(nums, ix.Columns) {
			return true
		}
	}
	return false
}

// checkKeyTypes wants the two sides of a foreign key to be stored alike.
func checkKeyTypes(d, ref *catalog.Table, x *catalog.Constraint, name string) {
	local, remote := d.Names(x.Columns), ref.Names(x.RefCols)
	for i := range x.Columns {
		a, b := d.ByNum(x.Columns[i]), ref.ByNum(x.RefCols[i])
		if value.ClassOf(a.Type) == value.ClassBpchar || value.ClassOf(b.Type) == value.ClassBpchar || value.ClassOf(a.Type) == value.ClassNumeric || value.ClassOf(b.Type) == value.ClassNumeric || !translate.SameRepresentation(a.Type, b.Type) {
			if !value.Builtin.CanCoerce(a.Type, b.Type, pgcatalog.Implicit) {
				fault.Raise(sqlstate.New(sqlstate.DatatypeMismatch, "foreign key constraint \"%s\" cannot be implemented", name).
					WithDetail("Key columns \"%s\" and \"%s\" are of incompatible types: %s and %s.", local[i], remote[i], value.TypeName(a.Type), value.TypeName(b.Type)))
			}
			fault.Refuse("CLV-2048", "a foreign key from %s to %s", value.TypeName(a.Type), value.TypeName(b.Type))
		}
	}
}

// tableSQL prints the table's definition for SQLite. Columns have no type, so
// that SQLite converts nothing. Unique constraints are indexes of their own.
func (c *schemaChange) tableSQL(d *catalog.Table) string {
	var parts []string
	for _, col := range d.Live() {
		s := quote.Ident(col.Name)
		if value.ClassOf(col.Type) == value.ClassNumeric {
			s += " COLLATE cleave_numeric"
		}
		if col.NotNull {
			s += " NOT NULL"
		}
		parts = append(parts, s)
	}
	for i := range d.Constraints {
		k := &d.Constraints[i]
		switch k.Type {
		case "c":
			parts = append(parts, "CONSTRAINT "+quote.Ident(k.Name)+" CHECK "+parenthesised(c.t.Check(d, k.Expr)))
		case "f":
			ref := d
			if k.RefTable != d.OID {
				ref = c.names.Catalog.ByOID[k.RefTable]
			}
			parts = append(parts, "CONSTRAINT "+quote.Ident(k.Name)+" FOREIGN KEY ("+quote.Idents(d.Names(k.Columns))+") REFERENCES "+quote.Ident(ref.SQLName())+
				" ("+quote.Idents(ref.Names(k.RefCols))+") ON DELETE "+catalog.Actions[k.OnDelete]+" ON UPDATE "+catalog.Actions[k.OnUpdate]+map[bool]string{true: " DEFERRABLE INITIALLY DEFERRED"}[k.Deferrable])
		}
	}
	return "CREATE TABLE " + quote.Ident(d.SQLName()) + " (" + strings.Join(parts, ", ") + ")"
}

func parenthesised(s string) string { return "(" + s + ")" }
