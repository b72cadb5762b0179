package planner

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// options are Cleave's own in WITH (...) of CREATE TABLE.
type options struct {
	shardKey  []string
	keyspace  string
	reference bool
	at        []int32 // where each of them begins in the text
}

func tableOptions(list []*pg.Node) options {
	var o options
	for _, n := range list {
		d := n.GetDefElem()
		if d.GetDefnamespace() != "cleave" {
			continue
		}
		o.at = append(o.at, d.Location)
		value := sqltree.DefText(d.Arg)
		switch d.Defname {
		case "shard_key":
			for part := range strings.SplitSeq(value, ",") {
				part = strings.TrimSpace(part)
				if len(part) > 1 && part[0] == '"' && part[len(part)-1] == '"' {
					part = strings.ReplaceAll(part[1:len(part)-1], `""`, `"`)
				} else {
					part = strings.ToLower(part)
				}
				if part == "" {
					fail(badOption(`cleave.shard_key names no column`))
				}
				for _, have := range o.shardKey {
					if have == part {
						fail(badOption("cleave.shard_key names column " + sqltext.QuoteIdent(part) + " twice"))
					}
				}
				o.shardKey = append(o.shardKey, part)
			}
			if len(o.shardKey) > plan.MaxKeyColumns {
				fail(badOption("cleave.shard_key has over " + strconv.Itoa(plan.MaxKeyColumns) + " columns"))
			}
		case "keyspace":
			o.keyspace = value
		case "reference":
			o.reference = d.Arg == nil || sqltree.OptionOn(d)
		default:
			fail(badOption("unrecognized option cleave." + d.Defname))
		}
	}
	switch {
	case o.reference && (o.shardKey != nil || o.keyspace != ""):
		fail(badOption("a reference table is on every shard: it has no shard key and no keyspace"))
	case o.keyspace != "" && o.shardKey == nil:
		fail(badOption("cleave.keyspace without cleave.shard_key"))
	}
	return o
}

func badOption(message string) error {
	return sqlstate.New(sqlstate.InvalidParameterValue, "%s", message).
		WithHint("WITH (cleave.shard_key = 'column[, column]'), with cleave.keyspace = 'name' if it is not the default one, or WITH (cleave.reference = true)")
}

func (ch *schemaChange) createTable(c *pg.CreateStmt) {
	st := ch.st
	ch.CheckCalls(c.Partspec)
	ch.CheckCalls(c.Partbound)
	for _, n := range append(append([]*pg.Node(nil), c.TableElts...), c.Constraints...) {
		for _, e := range n.GetConstraint().GetExclusions() {
			ch.CheckCalls(e)
		}
		for _, k := range n.GetColumnDef().GetConstraints() {
			for _, e := range k.GetConstraint().GetExclusions() {
				ch.CheckCalls(e)
			}
		}
	}
	if isTemp(c.Relation) {
		ch.createTemp(c)
		return
	}
	name := createdName(&ch.Namespace, c.Relation)
	st.Kind, st.Tag = plan.DDLKind, "CREATE TABLE"
	o := tableOptions(c.Options)
	if d := ch.Snapshot.Declaration(name.Schema, name.Name); d != nil && len(o.at) == 0 {
		o.shardKey, o.keyspace, o.reference = d.ShardKey, d.Keyspace, d.Kind == shardmap.Reference
	}
	create := &plan.CreateTable{TableName: name, Kind: shardmap.Whole, IfNotExists: c.IfNotExists, InPath: c.Relation.Schemaname == ""}
	st.DDL.Op, st.DDL.Create = "create table", create
	switch {
	case o.shardKey != nil:
		create.Kind, create.Keyspace, create.ShardKey = shardmap.Sharded, o.keyspace, o.shardKey
	case o.reference:
		create.Kind = shardmap.Reference
	}
	st.DDL.AllShards = create.Kind != shardmap.Whole
	edits := ch.CutOptions(o.at)

	d := &declaration{change: ch, name: name, kind: create.Kind, key: o.shardKey}
	if create.Kind == shardmap.Sharded {
		if c.OfTypename != nil || c.Partspec != nil || c.Partbound != nil || len(c.InhRelations) > 0 {
			fail(sqlstate.Refusal("CLV-0918", "a sharded table cannot inherit, be partitioned or be made from a type yet").
				WithHint("Write its columns out, without INHERITS, OF, PARTITION BY or PARTITION OF."))
		}
		d.keyspace = ch.declaredKeyspace(c, o)
	} else {
		if c.Partbound != nil || len(c.InhRelations) > 0 {
			var list []*pg.RangeVar
			for _, n := range c.InhRelations {
				list = append(list, n.GetRangeVar())
			}
			ch.targets(list)
			if spreadTables(ch.Touched) || create.Kind == shardmap.Reference {
				fail(sqlstate.Refusal("CLV-0919", "inheritance and partitions of sharded and reference tables are not supported yet"))
			}
		}
		if c.Partspec != nil && create.Kind == shardmap.Reference {
			fail(sqlstate.Refusal("CLV-0920", "a reference table cannot be partitioned"))
		}
	}
	seen := map[string]bool{}
	for _, n := range append(append([]*pg.Node(nil), c.TableElts...), c.Constraints...) {
		switch v := n.GetNode().(type) {
		case *pg.Node_ColumnDef:
			seen[v.ColumnDef.Colname] = true
			d.column(v.ColumnDef)
			if d.isKey(v.ColumnDef.Colname) && !d.notNull {
				edits = append(edits, ch.NotNullEdit(v.ColumnDef))
			}
		case *pg.Node_Constraint:
			d.constraint(v.Constraint, "")
		case *pg.Node_TableLikeClause:
			if create.Kind != shardmap.Whole {
				for _, col := range likeTable(&ch.Namespace, v.TableLikeClause) {
					seen[col.Name] = true
				}
			}
		}
	}
	for _, k := range o.shardKey {
		if !seen[k] {
			fail(sqlstate.New(sqlstate.UndefinedColumn, "column %q named in cleave.shard_key does not exist", k))
		}
	}
	d.finish(edits)
}

// likeTable are the columns of the table that a new sharded or reference table is to be like. It has to be on every shard, each of
// which copies it.
func likeTable(ns *semantics.Namespace, l *pg.TableLikeClause) []shardmap.Column {
	const defaults, identity = 1 << 3, 1 << 5 // TableLikeOption of PostgreSQL's parsenodes.h
	t := ns.Relation(l.Relation).Table
	if t == nil || t.Kind == shardmap.Whole {
		fail(sqlstate.Refusal("CLV-0921", "a sharded or reference table LIKE a table that is not on every shard is not supported").
			WithHint("Write the columns out."))
	}
	for _, c := range t.Columns {
		if c.Identity != "" && l.Options&(defaults|identity) != 0 {
			fail(sqlstate.Refusal("CLV-0922", "LIKE with the defaults of %s, which has the identity column %s, is not supported", t.QualifiedName(), sqltext.QuoteIdent(c.Name)).
				WithHint("Write EXCLUDING DEFAULTS EXCLUDING IDENTITY, or write the columns out."))
		}
	}
	return t.Columns
}

// finish writes the text for the shards.
func (d *declaration) finish(edits []sqltext.Edit) {
	st := d.change.st
	st.Text = sqltext.Splice(d.change.SQL, append(edits, d.edits...))
	st.DDL.Sequences, st.DDL.Functions = append(st.DDL.Sequences, d.sequences...), d.functions
	d.change.freeze(d)
}

// declaredKeyspace checks the shard key columns' types and names the keyspace.
func (ch *schemaChange) declaredKeyspace(c *pg.CreateStmt, o options) string {
	types := make([]keyspace.Type, len(o.shardKey))
	for _, n := range c.TableElts {
		if l := n.GetTableLikeClause(); l != nil {
			for _, col := range likeTable(&ch.Namespace, l) {
				if i := slices.Index(o.shardKey, col.Name); i >= 0 {
					t, err := keyspace.ParseType(col.Type)
					if err != nil {
						fail(err)
					}
					types[i] = t
				}
			}
			continue
		}
		col := n.GetColumnDef()
		for i, k := range o.shardKey {
			if col == nil || col.Colname != k {
				continue
			}
			text := typeText(col.TypeName)
			if typ, serial := sqltree.SerialTypes[text]; serial {
				text = typ
			}
			t, err := keyspace.ParseType(text)
			if err != nil {
				fail(err)
			}
			if len(col.TypeName.GetArrayBounds()) > 0 {
				fail(sqlstate.Refusal("CLV-0923", "an array cannot be a shard key").WithHint("Use a column of a plain type."))
			}
			if col.CollClause != nil && keytype.IsText(t) {
				switch names := sqltree.Strings(col.CollClause.Collname); strings.Join(names, ".") {
				case "C", "POSIX", "default", "pg_catalog.C", "pg_catalog.POSIX", "pg_catalog.default", "ucs_basic":
				default:
					// The shard's description says whether it is deterministic.
				}
			}
			types[i] = t
		}
	}
	for i, t := range types {
		if t == 0 {
			fail(sqlstate.New(sqlstate.UndefinedColumn, "column %q named in cleave.shard_key does not exist", o.shardKey[i]))
		}
	}
	name := o.keyspace
	if name == "" {
		return shardmap.DefaultKeyspaceName(types)
	}
	ks, ok := ch.Snapshot.Keyspace(name)
	if !ok {
		fail(sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", name).
			WithHint("create it: SELECT cleave.create_keyspace(%s, 'hash', ARRAY['%s'])", sqltext.QuoteString(name), types[0]))
	}
	want := ks.Def().Types
	same := len(want) == len(types)
	for i := range min(len(want), len(types)) {
		same = same && want[i] == types[i]
	}
	if !same {
		fail(sqlstate.New(sqlstate.DatatypeMismatch, "keyspace %q has keys of type (%s), the shard key is (%s)", name, typeNames(want), typeNames(types)).
			WithHint("choose another keyspace or other column types"))
	}
	return name
}

func typeNames(types []keyspace.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// typeText spells a type name for keyspace.ParseType.
func typeText(t *pg.TypeName) string {
	names := sqltree.Strings(t.GetNames())
	if len(names) == 0 {
		return ""
	}
	s := strings.Join(names, ".")
	if len(t.Typmods) > 0 {
		mods := make([]string, len(t.Typmods))
		for i, m := range t.Typmods {
			mods[i] = sqltree.DefText(m)
		}
		s += "(" + strings.Join(mods, ",") + ")"
	}
	return s
}

// declaration checks the columns and constraints of a table: of a new one, or
// of one that ALTER TABLE changes.
type declaration struct {
	change   *schemaChange
	name     plan.TableName
	kind     shardmap.TableKind
	keyspace string
	key      []string
	notNull  bool   // the column last read is declared NOT NULL or PRIMARY KEY
	typ      string // its type's name, "" for arrays, and if no column is being read

	table     *shardmap.Table // the one that is altered
	edits     []sqltext.Edit  // of the text, for what the router generates
	sequences []plan.SequenceChange
	functions bool
	cmds      int // of the ALTER TABLE
}

func (d *declaration) isKey(name string) bool {
	for _, k := range d.key {
		if k == name {
			return true
		}
	}
	return false
}

func (d *declaration) column(c *pg.ColumnDef) {
	d.notNull, d.typ = false, serverdependent.TypeBase(c.TypeName)
	defer func() { d.typ = "" }()
	for _, n := range c.Constraints {
		x := n.GetConstraint()
		switch x.GetContype() {
		case pg.ConstrType_CONSTR_NOTNULL:
			d.notNull = true
		case pg.ConstrType_CONSTR_PRIMARY:
			d.notNull = true
		case pg.ConstrType_CONSTR_NULL:
			if d.isKey(c.Colname) {
				fail(sqlstate.New(sqlstate.InvalidTableDefinition, "shard key column %q cannot be declared NULL", c.Colname).
					WithHint("leave NULL out: shard key columns are NOT NULL"))
			}
		}
		d.constraint(x, c.Colname)
	}
	d.generate(c)
}

func (d *declaration) constraint(x *pg.Constraint, column string) {
	ch := d.change
	spread := d.kind != shardmap.Whole
	switch x.GetContype() {
	case pg.ConstrType_CONSTR_DEFAULT, pg.ConstrType_CONSTR_CHECK, pg.ConstrType_CONSTR_GENERATED:
		if x.Contype == pg.ConstrType_CONSTR_DEFAULT && d.defaultOf(x) {
			return
		}
		before := ch.Sequence
		ch.Sequence = ""
		ch.expressions([]*pg.Node{x.RawExpr})
		if ch.Sequence != "" && spread {
			fail(sqlstate.Refusal("CLV-0506", "the default calls %s() of a sequence that is not the cluster's: each shard would count by itself", ch.Sequence).
				WithHint("Make the sequence through the router (CREATE SEQUENCE), and let the default be nextval('name') alone."))
		}
		ch.Sequence = before
		if x.Contype == pg.ConstrType_CONSTR_DEFAULT && spread {
			sqltree.Inspect(x.RawExpr, func(m proto.Message) bool {
				if f, ok := m.(*pg.FuncCall); ok {
					if own := timedFunction(&ch.Namespace, f); own != nil {
						fail(sqlstate.Refusal("CLV-0615", "the default calls %s(), which uses the time at which the transaction began, of which each shard has its own", own.QualifiedName()).
							WithHint("Give it now() as an argument, or write its expression."))
					}
				}
				return true
			})
			if serverdependent.UsesShardState(x.RawExpr) {
				fail(sqlstate.Refusal("CLV-0924", "the default says something of one shard's session, or the time at which it began its part of a statement").
					WithHint("now() is one time for all shards."))
			}
		}
		if x.Contype != pg.ConstrType_CONSTR_CHECK && spread {
			typ := d.typ
			if c := d.columnNamed(column); typ == "" && c != nil {
				typ = c.Type
			}
			if what := serverdependent.In(x.RawExpr, typ, d.table); what != "" {
				fail(sqlstate.Refusal("CLV-0925", "an expression that gives a column its values says %s, which is another on each shard", what).
					WithHint(serverdependent.Hint))
			}
		}
		if x.Contype == pg.ConstrType_CONSTR_GENERATED && d.isKey(column) {
			fail(sqlstate.Refusal("CLV-0926", "a generated column cannot be a shard key: its value is not in the INSERT").
				WithHint("Make it a plain column and write its value."))
		}
	case pg.ConstrType_CONSTR_IDENTITY: // see generate
	case pg.ConstrType_CONSTR_PRIMARY, pg.ConstrType_CONSTR_UNIQUE:
		cols := sqltree.Strings(x.Keys)
		if column != "" {
			cols = []string{column}
		}
		if x.Indexname != "" && d.kind == shardmap.Sharded {
			return // USING INDEX: the index was checked when it was made
		}
		d.unique(cols, map[pg.ConstrType]string{pg.ConstrType_CONSTR_PRIMARY: "PRIMARY KEY", pg.ConstrType_CONSTR_UNIQUE: "UNIQUE"}[x.Contype])
	case pg.ConstrType_CONSTR_EXCLUSION:
		var cols []string
		for _, n := range x.Exclusions {
			items := n.GetList().GetItems()
			if len(items) == 2 {
				if ops := sqltree.Strings(items[1].GetList().GetItems()); len(ops) > 0 && ops[len(ops)-1] == "=" {
					cols = append(cols, indexed(items[0].GetIndexElem()))
				}
				ch.expressions([]*pg.Node{items[0].GetIndexElem().GetExpr()})
			}
		}
		ch.expressions([]*pg.Node{x.WhereClause})
		d.unique(cols, "EXCLUDE")
	case pg.ConstrType_CONSTR_FOREIGN:
		cols := sqltree.Strings(x.FkAttrs)
		if column != "" {
			cols = []string{column}
		}
		d.foreignKey(x, cols)
	}
}

func (d *declaration) unique(cols []string, what string) {
	if d.kind != shardmap.Sharded {
		return
	}
	for _, k := range d.key {
		found := false
		for _, c := range cols {
			found = found || c == k
		}
		if !found {
			for i, c := range cols {
				if c == "" {
					cols[i] = "(expression)"
				}
			}
			of := ""
			if len(cols) > 0 {
				of = " (" + strings.Join(cols, ", ") + ")"
			}
			fail(sqlstate.Refusal("CLV-0927", "%s%s of table %s does not include the shard key column %s, so two shards could hold equal rows", what, of, sqltext.QuoteName(d.name.Schema, d.name.Name), sqltext.QuoteIdent(k)).
				WithHint("Add %s to it.", sqltext.QuoteIdent(k)))
		}
	}
}

func (d *declaration) foreignKey(x *pg.Constraint, cols []string) {
	ch := d.change
	target := x.Pktable
	self := target.Relname == d.name.Name && (target.Schemaname == "" || target.Schemaname == d.name.Schema)
	r := ch.Relation(target)
	other := sqltext.QuoteName(r.Schema, r.Name)
	var key []string
	switch {
	case self && (r.Table == nil || r.Table.Schema == d.name.Schema):
		if d.kind != shardmap.Sharded {
			return
		}
		key = d.key
	case r.Table == nil:
		if d.kind == shardmap.Whole {
			return // the default shard answers
		}
		fail(semantics.UndefinedTable(other, ch.Position(target.Location)))
	case r.Table.Kind == shardmap.Reference:
		return
	case r.Table.Kind == shardmap.Whole:
		if d.kind == shardmap.Whole {
			return
		}
		fail(sqlstate.Refusal("CLV-0928", "a foreign key to %s, which is on the default shard only, cannot be checked on the other shards", other).
			WithHint("Declare %s as a reference table, or leave the foreign key out.", other))
	default:
		if d.kind != shardmap.Sharded || r.Table.Keyspace != d.keyspace {
			fail(sqlstate.Refusal("CLV-0929", "a foreign key to %s, whose rows are on other shards, cannot be checked", other).
				WithHint("Put both tables in one keyspace with equal shard keys."))
		}
		key = r.Table.ShardKey
	}
	ref := sqltree.Strings(x.PkAttrs)
	if len(ref) == 0 {
		fail(sqlstate.Refusal("CLV-0930", "a foreign key between sharded tables has to name the columns that it references").
			WithHint("Write REFERENCES %s (column, ...).", other))
	}
	for i := range d.key {
		matched := false
		for j := range cols {
			matched = matched || j < len(ref) && cols[j] == d.key[i] && i < len(key) && ref[j] == key[i]
		}
		if !matched {
			fail(sqlstate.Refusal("CLV-0931", "the foreign key to %s does not match shard key with shard key, so the referenced row could be on another shard", other).
				WithHint("Include %s in the foreign key, referencing the shard key of %s.", sqltext.QuoteIdent(d.key[i]), other))
		}
	}
	for _, c := range sqltree.Strings(x.FkDelSetCols) {
		if d.isKey(c) {
			fail(sqlstate.Refusal("CLV-0932", "ON DELETE SET NULL or SET DEFAULT would change the shard key").
				WithHint("Use ON DELETE CASCADE or leave the shard key column out of the list."))
		}
	}
	const setNull, setDefault = "n", "d"
	if x.FkUpdAction == setNull || x.FkUpdAction == setDefault || (x.FkDelAction == setNull || x.FkDelAction == setDefault) && len(x.FkDelSetCols) == 0 {
		fail(sqlstate.Refusal("CLV-0933", "a foreign key action of SET NULL or SET DEFAULT would change the shard key").
			WithHint("Use CASCADE, RESTRICT or NO ACTION."))
	}
}

func (a *analyzer) createTableAs(c *pg.CreateTableAsStmt) {
	if c.Objtype != pg.ObjectType_OBJECT_TABLE {
		a.change().materialized(c)
		return
	}
	if c.Query.GetSelectStmt() == nil {
		fail(sqlstate.Refusal("CLV-1112", "CREATE TABLE AS EXECUTE is not supported").WithHint("Write the query out."))
	}
	if a.createSpread(c) {
		return
	}
	a.query(c.Query)
	if isTemp(c.Into.GetRel()) {
		a.tempAs(c.Into)
		return
	}
	a.createAs(c.Into, shardmap.Whole)
	a.Statement.DDL.Create.IfNotExists = c.IfNotExists
	a.finish()
}

// createAs makes the statement one that creates an unsharded table from a query.
func (a *analyzer) createAs(into *pg.IntoClause, kind shardmap.TableKind) {
	st := a.Statement
	name := createdName(&a.Namespace, into.Rel)
	if st.DDL == nil {
		st.DDL = &plan.DDL{}
	}
	st.Kind, st.Tag, st.ReturnsRows, st.ReadOnly = plan.DDLKind, "SELECT", false, false
	st.DDL.Op = "create table as"
	st.DDL.Create = &plan.CreateTable{TableName: name, Kind: kind, InPath: into.Rel.Schemaname == ""}
}

// indexed is the column that an element of an index compares as the shard key is
// compared, by its bytes; "" if there may be none. A collation of its own may find keys
// equal that are on different shards.
func indexed(e *pg.IndexElem) string {
	if c := sqltree.Strings(e.GetCollation()); len(c) > 0 && c[len(c)-1] != "C" && c[len(c)-1] != "POSIX" && c[len(c)-1] != "default" {
		return ""
	}
	return e.GetName()
}

func (ch *schemaChange) createIndex(x *pg.IndexStmt) {
	st := ch.st
	known, names := ch.targets([]*pg.RangeVar{x.Relation})
	for _, list := range [][]*pg.Node{x.IndexParams, x.IndexIncludingParams} {
		for _, n := range list {
			ch.expressions([]*pg.Node{n.GetIndexElem().GetExpr()})
		}
	}
	ch.expressions([]*pg.Node{x.WhereClause})
	if x.Unique && len(known) == 1 && known[0].Kind == shardmap.Sharded {
		var cols []string
		for _, n := range x.IndexParams {
			cols = append(cols, indexed(n.GetIndexElem()))
		}
		d := &declaration{change: ch, name: names[0], kind: shardmap.Sharded, key: known[0].ShardKey}
		d.unique(cols, "UNIQUE INDEX")
	}
	st.Kind, st.Tag = plan.DDLKind, "CREATE INDEX"
	st.DDL.Op, st.DDL.AllShards, st.DDL.Altered, st.DDL.Concurrent = "create index", spreadTables(ch.Touched), names, x.Concurrent
	if x.Concurrent && spreadTables(ch.Touched) && x.Idxname == "" {
		st.DDL.Refused = sqlstate.Refusal("CLV-0934", "CREATE INDEX CONCURRENTLY without a name on a table of several shards is not supported: each shard would choose one").
			WithHint("Name the index.")
	}
	if x.Idxname != "" {
		st.DDL.Index = &plan.TableName{Name: x.Idxname}
		if len(names) == 1 {
			st.DDL.Index.Schema = names[0].Schema
		}
	}
}

func (ch *schemaChange) alterTable(t *pg.AlterTableStmt) {
	st := ch.st
	if t.Objtype != pg.ObjectType_OBJECT_TABLE || ch.Relation(t.Relation).Table == nil {
		ch.CheckCalls(t) // what the map does not know is a shard's: a view, a temporary table
	}
	if t.Objtype == pg.ObjectType_OBJECT_VIEW || t.Objtype == pg.ObjectType_OBJECT_TABLE && viewOf(&ch.Namespace, t.Relation) != nil {
		ch.changeView(t.Relation, t.MissingOk)
		return
	}
	if ch.ClusterSequence(t.Relation) != nil && ch.Relation(t.Relation).Table == nil && len(t.Cmds) == 1 &&
		t.Cmds[0].GetAlterTableCmd().GetSubtype() == pg.AlterTableType_AT_ChangeOwner {
		// Its shadow is the default shard's. pg_dump writes such lines.
		st.Kind, st.Tag = plan.DDLKind, "ALTER TABLE"
		if t.Objtype == pg.ObjectType_OBJECT_SEQUENCE {
			st.Tag = "ALTER SEQUENCE"
		}
		st.DDL.Op, st.DDL.MapOnly = "alter sequence", ch.Lonely()
		return
	}
	switch t.Objtype {
	case pg.ObjectType_OBJECT_TABLE:
	case pg.ObjectType_OBJECT_INDEX:
		ownSchema(t.Relation.GetSchemaname())
		ch.everywhere("alter index", "ALTER INDEX")
		if slices.ContainsFunc(t.Cmds, func(c *pg.Node) bool {
			return c.GetAlterTableCmd().GetSubtype() == pg.AlterTableType_AT_AttachPartition
		}) {
			st.DDL.AllShards = false // only unsharded tables have partitions
			return
		}
		if !t.MissingOk {
			ch.ifExistsElsewhere("index")
		}
		return
	case pg.ObjectType_OBJECT_TYPE:
		ownSchema(t.Relation.GetSchemaname())
		ch.everywhere("alter type", "ALTER TYPE")
		return
	default:
		ch.alterOther(t.Relation, t.Objtype)
		return
	}
	table, names := ch.altered(t.Relation, "ALTER TABLE")
	if t.Cmds[0].GetAlterTableCmd().GetDef().GetPartitionCmd().GetConcurrent() {
		st.DDL.Concurrent, st.DDL.Refused = true, sqlstate.Refusal("CLV-0935", "DETACH PARTITION ... CONCURRENTLY is not supported").
			WithHint("Leave CONCURRENTLY out.")
	}
	if table == nil {
		return
	}
	st.DDL.AllShards, st.DDL.Altered = spreadTables(ch.Touched), names
	d := &declaration{change: ch, table: table, name: names[0], kind: table.Kind, keyspace: table.Keyspace, key: table.ShardKey}
	d.cmds = len(t.Cmds)
	for _, n := range t.Cmds {
		ch.alterCommand(d, n.GetAlterTableCmd())
	}
	d.finish(nil)
}

// refuseRowSecurity refuses policies: a new shard, a default shard that becomes another one and an UPDATE that moves
// rows would have to know of them.
func refuseRowSecurity() {
	fail(sqlstate.Refusal("CLV-0936", "row level security is not supported through the router").
		WithHint("Put the condition into the statements, or into a view; with auth: passthrough, policies that are made on each shard directly hold (docs/security.md)."))
}

func (ch *schemaChange) alterCommand(d *declaration, c *pg.AlterTableCmd) {
	spread := d.kind != shardmap.Whole
	table := sqltext.QuoteName(d.name.Schema, d.name.Name)
	switch c.Subtype {
	case pg.AlterTableType_AT_AddColumn:
		if c.MissingOk && d.has(c.Def.GetColumnDef().GetColname()) {
			return // a notice, and nothing else
		}
		d.column(c.Def.GetColumnDef())
	case pg.AlterTableType_AT_AddConstraint:
		d.constraint(c.Def.GetConstraint(), "")
	case pg.AlterTableType_AT_ColumnDefault:
		d.notIdentity(c.Name)
		d.constraint(&pg.Constraint{Contype: pg.ConstrType_CONSTR_DEFAULT, RawExpr: c.Def}, c.Name)
	case pg.AlterTableType_AT_DropColumn, pg.AlterTableType_AT_DropNotNull:
		if d.isKey(c.Name) {
			fail(sqlstate.Refusal("CLV-0937", "column %s is the shard key of table %s", sqltext.QuoteIdent(c.Name), table).
				WithHint("Create a table with another shard key and copy the rows."))
		}
	case pg.AlterTableType_AT_AlterColumnType:
		if d.isKey(c.Name) {
			fail(sqlstate.Refusal("CLV-0938", "the type of column %s cannot change: it is the shard key of table %s, and its rows are placed by it", sqltext.QuoteIdent(c.Name), table).
				WithHint("Create a table with another shard key and copy the rows."))
		}
		ch.expressions([]*pg.Node{c.Def.GetColumnDef().GetRawDefault()})
	case pg.AlterTableType_AT_SetRelOptions, pg.AlterTableType_AT_ResetRelOptions, pg.AlterTableType_AT_ReplaceRelOptions:
		for _, n := range c.Def.GetList().GetItems() {
			if n.GetDefElem().GetDefnamespace() == "cleave" {
				fail(sqlstate.Refusal("CLV-0939", "the options cleave.* of a table cannot be changed with ALTER TABLE").
					WithHint("An existing table is sharded with SELECT cleave.distribute('%s', 'column').", d.name.Name))
			}
		}
	case pg.AlterTableType_AT_SetNotNull, pg.AlterTableType_AT_SetStatistics, pg.AlterTableType_AT_SetOptions, pg.AlterTableType_AT_ResetOptions,
		pg.AlterTableType_AT_SetStorage, pg.AlterTableType_AT_SetCompression, pg.AlterTableType_AT_ValidateConstraint, pg.AlterTableType_AT_DropConstraint,
		pg.AlterTableType_AT_AlterConstraint, pg.AlterTableType_AT_ClusterOn, pg.AlterTableType_AT_DropCluster, pg.AlterTableType_AT_SetLogged,
		pg.AlterTableType_AT_SetUnLogged, pg.AlterTableType_AT_ReplicaIdentity, pg.AlterTableType_AT_DropExpression:
	case pg.AlterTableType_AT_SetExpression:
		ch.expressions([]*pg.Node{c.Def})
	case pg.AlterTableType_AT_AddIdentity, pg.AlterTableType_AT_SetIdentity, pg.AlterTableType_AT_DropIdentity:
		if d.clustered() {
			ch.alterIdentity(d, c)
		}
	case pg.AlterTableType_AT_EnableTrig, pg.AlterTableType_AT_DisableTrig, pg.AlterTableType_AT_EnableTrigAll, pg.AlterTableType_AT_DisableTrigAll,
		pg.AlterTableType_AT_EnableTrigUser, pg.AlterTableType_AT_DisableTrigUser, pg.AlterTableType_AT_EnableAlwaysTrig, pg.AlterTableType_AT_EnableReplicaTrig:
		if spread {
			fail(sqlstate.Refusal("CLV-0940", "the triggers of table %s hold the shards' guards and cannot be switched through the router", table))
		}
	case pg.AlterTableType_AT_AttachPartition, pg.AlterTableType_AT_DetachPartition, pg.AlterTableType_AT_DetachPartitionFinalize,
		pg.AlterTableType_AT_AddInherit, pg.AlterTableType_AT_DropInherit:
		if spread {
			fail(sqlstate.Refusal("CLV-0919", "inheritance and partitions of sharded and reference tables are not supported yet"))
		}
		ch.CheckCalls(c.Def.GetPartitionCmd().GetBound())
		for _, v := range []*pg.RangeVar{c.Def.GetRangeVar(), c.Def.GetPartitionCmd().GetName()} {
			if v != nil {
				ch.targets([]*pg.RangeVar{v})
			}
		}
	case pg.AlterTableType_AT_ChangeOwner:
	case pg.AlterTableType_AT_EnableRowSecurity, pg.AlterTableType_AT_DisableRowSecurity, pg.AlterTableType_AT_ForceRowSecurity, pg.AlterTableType_AT_NoForceRowSecurity:
		if spread {
			refuseRowSecurity()
		}
	default:
		if spread {
			fail(sqlstate.Refusal("CLV-0941", "this change of table %s is not supported yet", table).
				WithHint("Run it on each shard directly."))
		}
	}
}
