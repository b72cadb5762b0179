package planner

import (
	"math"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// sequenceChange reads what a schema change does to sequences of the cluster.
type sequenceChange struct {
	*semantics.Typer
	*sourcetext.Text

	st    *plan.Statement
	taken map[string]bool // names of sequences that this statement makes
}

// clustered reports whether the router makes the values of a table's serial and
// identity columns: always where the rows are on several shards, and where the default
// shard has no sequences of its own.
func (d *declaration) clustered() bool { return d.kind != shardmap.Whole || d.change.Lonely() }

var intNames = map[string]string{"int2": "smallint", "int4": "integer", "int8": "bigint", "smallint": "smallint", "integer": "integer", "int": "integer", "bigint": "bigint"}

// generate rewrites a column that takes its values from a sequence, or from a
// function of the router, for the shards: there its default is a call that fails,
// so that a session that writes past the router gets an error, not a duplicate.
func (d *declaration) generate(c *pg.ColumnDef) {
	if !d.clustered() {
		return
	}
	ch := d.change
	names := sqltree.Strings(c.GetTypeName().GetNames())
	for _, n := range c.Constraints {
		if n.GetConstraint().GetContype() != pg.ConstrType_CONSTR_DEFAULT {
			continue
		}
		if _, serial := sqltree.SerialTypes[strings.Join(names, ".")]; serial {
			fail(sqlstate.New(sqlstate.SyntaxError, "multiple default values specified for column \"%s\" of table \"%s\"", c.Colname, d.name.Name))
		}
		for _, o := range c.Constraints {
			if o.GetConstraint().GetContype() == pg.ConstrType_CONSTR_IDENTITY {
				fail(sqlstate.New(sqlstate.SyntaxError, "both default and identity specified for column \"%s\" of table \"%s\"", c.Colname, d.name.Name))
			}
		}
	}
	if typ, serial := sqltree.SerialTypes[strings.Join(names, ".")]; serial && len(c.TypeName.ArrayBounds) == 0 {
		i := ch.TokenAt(c.TypeName.Location)
		if i < 0 {
			sourcetext.LostPlace()
		}
		ts := ch.Tokens()
		d.edits = append(d.edits, sqltext.Edit{From: ts[i].Start, To: ts[i].End, Text: typ})
		q := ch.ownedSequence(d.name, c.Colname, typ, nil)
		d.sequences = append(d.sequences, plan.SequenceChange{Op: "create", Sequence: q})
		end := ch.ColumnEnd(c)
		d.edits = append(d.edits, sqltext.Edit{From: end, To: end, Text: " NOT NULL DEFAULT " + shardDefault(&q, "")})
		d.notNull, d.functions = true, true
	}
	for _, n := range c.Constraints {
		x := n.GetConstraint()
		if x.GetContype() != pg.ConstrType_CONSTR_IDENTITY {
			continue
		}
		typ := intNames[names[len(names)-1]]
		if typ == "" || len(c.TypeName.ArrayBounds) > 0 {
			fail(sqlstate.New(sqlstate.InvalidParameterValue, "identity column type must be smallint, integer, or bigint"))
		}
		q := ch.ownedSequence(d.name, c.Colname, typ, x.Options)
		q.Identity = true
		d.sequences = append(d.sequences, plan.SequenceChange{Op: "create", Sequence: q})
		from, to := ch.IdentitySpan(x)
		when := shardmap.IdentityByDefault
		if x.GeneratedWhen == "a" {
			when = shardmap.IdentityAlways
		}
		d.edits = append(d.edits, sqltext.Edit{From: from, To: to, Text: "NOT NULL DEFAULT " + shardDefault(&q, when)})
		d.notNull, d.functions = true, true
	}
}

// shardDefault is a sequence's next value as the default of a column on a shard.
func shardDefault(q *shardmap.Sequence, identity string) string {
	s := semantics.InternalSchema + ".nextval(" + sqltext.QuoteString(q.QualifiedName())
	if identity != "" {
		s += ", " + sqltext.QuoteString(identity)
	}
	return s + ")"
}

// defaultOf judges a DEFAULT that is a call of the router's, and rewrites it. It
// reports whether the default is one.
func (d *declaration) defaultOf(x *pg.Constraint) bool {
	ch := d.change
	n := x.RawExpr
	for n.GetTypeCast() != nil {
		n = n.GetTypeCast().Arg
	}
	f := n.GetFuncCall()
	if f == nil {
		return false
	}
	v, ok := ch.FillCall(f)
	if !ok {
		return false
	}
	switch {
	case n != x.RawExpr:
		fail(sqlstate.Refusal("CLV-0521", "a default that casts what %s() gives is not supported", sqltree.Strings(f.Funcname)[len(f.Funcname)-1]).
			WithHint("Leave the cast out: the column's type decides."))
	case v.Source == "nextval":
		identity := ""
		if len(f.Args) == 2 {
			switch identity = f.Args[1].GetAConst().GetSval().GetSval(); identity {
			case shardmap.IdentityAlways, shardmap.IdentityByDefault:
			default:
				fail(sqlstate.New(sqlstate.InvalidParameterValue, "the second argument of cleave.nextval() is 'always' or 'by default'"))
			}
		}
		from, to := ch.CallSpan(f)
		d.edits = append(d.edits, sqltext.Edit{From: from, To: to, Text: shardDefault(v.Sequence, identity)})
	case v.Source == shardmap.NextID, v.Source == shardmap.UUIDv7:
		from, to := ch.CallSpan(f)
		d.edits = append(d.edits, sqltext.Edit{From: from, To: to, Text: semantics.InternalSchema + "." + v.Source + "()"})
	default:
		fail(sqlstate.Refusal("CLV-0522", "a default of %s() is not supported", v.Source).WithHint("Use nextval()."))
	}
	d.functions = true
	return true
}

// ownedSequence is the sequence that a serial or identity column makes.
func (sq *sequenceChange) ownedSequence(table plan.TableName, column, typ string, options []*pg.Node) shardmap.Sequence {
	q := shardmap.Sequence{Schema: table.Schema, Type: typ, Owner: &shardmap.SequenceOwner{Schema: table.Schema, Table: table.Name, Column: column}}
	rest := options[:0:0]
	for _, o := range options {
		if o.GetDefElem().GetDefname() == "sequence_name" {
			names := sqltree.Strings(o.GetDefElem().GetArg().GetList().GetItems())
			q.Name = names[len(names)-1]
			if len(names) > 1 {
				q.Schema = names[len(names)-2]
			}
			continue
		}
		rest = append(rest, o)
	}
	defineSequence(&q, rest, true)
	if q.Name == "" {
		q.Name = sq.freeName(table, column)
	}
	return q
}

// freeName is the name that PostgreSQL gives to the sequence of a column:
// table_column_seq, cut to 63 bytes, with a number if it is taken.
func (sq *sequenceChange) freeName(table plan.TableName, column string) string {
	for n := 0; ; n++ {
		label := "seq"
		if n > 0 {
			label += strconv.Itoa(n)
		}
		name := objectName(table.Name, column, label)
		_, isTable := sq.Snapshot.Table(table.Schema, name)
		_, isSequence := sq.Snapshot.Sequence(table.Schema, name)
		if !isTable && !isSequence && !sq.taken[name] {
			if sq.taken == nil {
				sq.taken = map[string]bool{}
			}
			sq.taken[name] = true
			return name
		}
	}
}

// objectName is makeObjectName of PostgreSQL.
func objectName(one, two, label string) string {
	room := shardmap.MaxNameBytes - len(label) - 2
	for len(one)+len(two) > room {
		if len(one) > len(two) {
			one = one[:len(one)-1]
		} else {
			two = two[:len(two)-1]
		}
	}
	return strings.ToValidUTF8(one, "") + "_" + strings.ToValidUTF8(two, "") + "_" + label
}

func invalidSequence(format string, args ...any) {
	fail(sqlstate.New(sqlstate.InvalidParameterValue, format, args...))
}

func typeRange(typ string) (low, high int64) {
	switch typ {
	case "smallint":
		return math.MinInt16, math.MaxInt16
	case "integer":
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, math.MaxInt64
}

// defineSequence applies the options of CREATE and ALTER SEQUENCE, with
// PostgreSQL's defaults, checks and errors (init_params of sequence.c). It returns
// whether the sequence begins anew, and OWNED BY, nil if it is not there.
func defineSequence(q *shardmap.Sequence, options []*pg.Node, create bool) (restart bool, owned []string) {
	o := readSequenceOptions(options)
	oldType := q.Type
	o.typed(q)
	if n, ok := o.number("increment"); ok {
		if n == 0 {
			invalidSequence("INCREMENT must not be zero")
		}
		q.Increment = n
	} else if create {
		q.Increment = 1
	}
	if cycle := o["cycle"]; cycle != nil {
		q.Cycle = sqltree.OptionOn(cycle)
	}
	o.bounds(q, oldType, create)
	o.starts(q, create)
	restart = o["restart"] != nil
	if restart {
		o.restarts(q)
	}
	// Where it is now is in the directory, and compared with the new bounds when the statement runs.
	q.First = min(max(q.First, q.Min), q.Max)
	if n, ok := o.number("cache"); ok {
		if n <= 0 {
			invalidSequence("CACHE (%d) must be greater than zero", n)
		}
		q.Cache = n
	}
	if by := o["owned_by"]; by != nil {
		owned = sqltree.Strings(by.Arg.GetList().GetItems())
	}
	return restart, owned
}

// sequenceOptions are the options of CREATE and ALTER SEQUENCE, by name.
type sequenceOptions map[string]*pg.DefElem

func readSequenceOptions(options []*pg.Node) sequenceOptions {
	given := sequenceOptions{}
	for _, n := range options {
		o := n.GetDefElem()
		if given[o.Defname] != nil {
			fail(sqlstate.New(sqlstate.SyntaxError, "conflicting or redundant options"))
		}
		switch o.Defname {
		case "as", "increment", "cycle", "maxvalue", "minvalue", "start", "restart", "cache", "owned_by", "sequence_name":
		default:
			fail(sqlstate.Refusal("CLV-0523", "option %s of a sequence is not supported", o.Defname))
		}
		given[o.Defname] = o
	}
	return given
}

// number is the value of an option that has one: NO MAXVALUE has none.
func (o sequenceOptions) number(name string) (int64, bool) {
	if o[name] == nil || o[name].Arg == nil {
		return 0, false
	}
	text := sqltree.DefText(o[name].Arg)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail(sqlstate.New(sqlstate.NumericOutOfRange, "value \"%s\" is out of range for type bigint", text))
	}
	return n, true
}

// typed applies AS.
func (o sequenceOptions) typed(q *shardmap.Sequence) {
	if as := o["as"]; as != nil {
		names := sqltree.Strings(as.Arg.GetTypeName().GetNames())
		last := names[len(names)-1]
		typ := intNames[last]
		if typ == "" && keytype.ByName[last] == 0 && last != "numeric" {
			fail(sqlstate.Refusal("CLV-0524", "the type %s of a sequence is not known to the router", last).
				WithHint("A sequence is smallint, integer or bigint."))
		}
		if typ == "" {
			invalidSequence("sequence type must be smallint, integer, or bigint")
		}
		if q.Identity && typ != q.Type {
			invalidSequence("cannot change the data type of an identity column's sequence")
		}
		q.Type = typ
	}
	if q.Type == "" {
		q.Type = "bigint"
	}
}

// bounds applies MAXVALUE and MINVALUE. A bound that was the old type's becomes the new type's.
func (o sequenceOptions) bounds(q *shardmap.Sequence, oldType string, create bool) {
	low, high := typeRange(q.Type)
	oldLow, oldHigh := typeRange(oldType)
	retyped := !create && oldType != q.Type
	if n, ok := o.number("maxvalue"); ok {
		q.Max = n
	} else if anew := retyped && q.Max == oldHigh; create || o["maxvalue"] != nil || anew {
		if q.Max = high; q.Increment < 0 && !anew {
			q.Max = -1
		}
	}
	if q.Max < low || q.Max > high {
		invalidSequence("MAXVALUE (%d) is out of range for sequence data type %s", q.Max, q.Type)
	}
	if n, ok := o.number("minvalue"); ok {
		q.Min = n
	} else if anew := retyped && q.Min == oldLow; create || o["minvalue"] != nil || anew {
		if q.Min = 1; q.Increment < 0 || anew {
			q.Min = low
		}
	}
	if q.Min < low || q.Min > high {
		invalidSequence("MINVALUE (%d) is out of range for sequence data type %s", q.Min, q.Type)
	}
	if q.Min >= q.Max {
		invalidSequence("MINVALUE (%d) must be less than MAXVALUE (%d)", q.Min, q.Max)
	}
}

// starts applies START.
func (o sequenceOptions) starts(q *shardmap.Sequence, create bool) {
	if n, ok := o.number("start"); ok {
		q.Start = n
	} else if create {
		if q.Start = q.Min; q.Increment < 0 {
			q.Start = q.Max
		}
	}
	if q.Start < q.Min {
		invalidSequence("START value (%d) cannot be less than MINVALUE (%d)", q.Start, q.Min)
	}
	if q.Start > q.Max {
		invalidSequence("START value (%d) cannot be greater than MAXVALUE (%d)", q.Start, q.Max)
	}
	if create {
		q.First = q.Start
	}
}

// restarts applies RESTART.
func (o sequenceOptions) restarts(q *shardmap.Sequence) {
	q.First = q.Start
	if n, ok := o.number("restart"); ok {
		q.First = n
	}
	if q.First < q.Min {
		invalidSequence("RESTART value (%d) cannot be less than MINVALUE (%d)", q.First, q.Min)
	}
	if q.First > q.Max {
		invalidSequence("RESTART value (%d) cannot be greater than MAXVALUE (%d)", q.First, q.Max)
	}
}

// mapOnly makes the statement a change of the map that shards hear nothing of.
func (sq *sequenceChange) mapOnly(op, tag string, changes ...plan.SequenceChange) {
	sq.st.Kind, sq.st.Tag = plan.DDLKind, tag
	sq.st.DDL.Op, sq.st.DDL.MapOnly, sq.st.DDL.Sequences = op, true, changes
}

func (sq *sequenceChange) createSequence(c *pg.CreateSeqStmt) {
	name := createdName(&sq.Namespace, c.Sequence)
	q := shardmap.Sequence{Schema: name.Schema, Name: name.Name}
	_, owned := defineSequence(&q, c.Options, true)
	sq.ownedBy(&q, owned)
	sq.mapOnly("create sequence", "CREATE SEQUENCE", plan.SequenceChange{Op: "create", Sequence: q, IfNotExists: c.IfNotExists, InPath: c.Sequence.Schemaname == ""})
}

// ownedBy reads OWNED BY table.column.
func (sq *sequenceChange) ownedBy(q *shardmap.Sequence, owned []string) {
	switch {
	case owned == nil:
		return
	case q.Identity:
		fail(sqlstate.New(sqlstate.FeatureNotSupported, "cannot change ownership of identity sequence").
			WithDetail("Sequence \"%s\" is linked to table \"%s\".", q.Name, q.Owner.Table))
	case len(owned) == 1 && owned[0] == "none":
		q.Owner = nil
		return
	case len(owned) == 1:
		fail(sqlstate.New(sqlstate.SyntaxError, "invalid OWNED BY option").WithHint("Specify OWNED BY table.column or OWNED BY NONE."))
	}
	v := semantics.RangeVar(owned[:len(owned)-1])
	r := sq.Relation(v)
	if r.Catalog || strings.HasPrefix(r.Name, "pg_") {
		fail(sqlstate.Refusal("CLV-0525", "a sequence cannot be owned by a column of a system catalog").
			WithHint("Name a column of a table."))
	}
	if r.Table == nil {
		fail(sqlstate.New(sqlstate.UndefinedTable, "relation \"%s\" does not exist", strings.Join(owned[:len(owned)-1], ".")))
	}
	if r.Table.Schema != q.Schema {
		fail(sqlstate.New(sqlstate.ObjectNotInState, "sequence must be in same schema as table it is linked to"))
	}
	column := owned[len(owned)-1]
	for i := range r.Table.Columns {
		if r.Table.Columns[i].Name == column {
			q.Owner = &shardmap.SequenceOwner{Schema: r.Table.Schema, Table: r.Table.Name, Column: column}
			return
		}
	}
	fail(sqlstate.New(sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", column, r.Table.Name))
}

func nameParts(v *pg.RangeVar) []string {
	if v.GetSchemaname() != "" {
		return []string{v.Schemaname, v.Relname}
	}
	return []string{v.GetRelname()}
}

// alterSequence returns false for a sequence that is not the cluster's.
func (sq *sequenceChange) alterSequence(s *pg.AlterSeqStmt) bool {
	was := sq.SequenceNamed(nameParts(s.Sequence))
	if was == nil {
		return false
	}
	sq.mapOnly("alter sequence", "ALTER SEQUENCE", sq.redefine(was, s.Options))
	return true
}

// redefine is the change that the options of ALTER SEQUENCE make.
func (sq *sequenceChange) redefine(was *shardmap.Sequence, options []*pg.Node) plan.SequenceChange {
	c := plan.SequenceChange{Op: "alter", Sequence: *was, Was: was}
	restart, owned := defineSequence(&c.Sequence, options, false)
	sq.ownedBy(&c.Sequence, owned)
	if restart {
		c.Op, c.Sequence.ID = "restart", ""
	}
	return c
}

// usedBy returns the column that takes its values from a sequence, "" if none does.
func usedBy(ns *semantics.Namespace, q *shardmap.Sequence) (table, column string) {
	want := shardmap.SequenceValue(q.QualifiedName())
	for i := range ns.Snapshot.State().Tables {
		t := &ns.Snapshot.State().Tables[i]
		for _, c := range semantics.GeneratedColumns(t) {
			if c.Generated == want {
				return sqltext.QuoteName(t.Schema, t.Name), c.Name
			}
		}
	}
	return "", ""
}

// renameSequence returns false for a sequence that is not the cluster's.
func (sq *sequenceChange) renameSequence(v *pg.RangeVar, schema, name string) bool {
	was := sq.SequenceNamed(nameParts(v))
	if was == nil {
		return false
	}
	q := *was
	if schema != "" {
		ownSchema(schema)
		if q.Owner != nil {
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "cannot move an owned sequence into another schema").
				WithDetail("Sequence \"%s\" is linked to table \"%s\".", q.Name, q.Owner.Table))
		}
		q.Schema = schema
	}
	if name != "" {
		q.Name = name
	}
	if table, column := usedBy(&sq.Namespace, was); table != "" {
		fail(sqlstate.Refusal("CLV-0526", "the default of column %s of table %s names the sequence %s", sqltext.QuoteIdent(column), table, sqltext.QuoteName(was.Schema, was.Name)).
			WithHint("Drop that default first, and set it again with the new name."))
	}
	sq.mapOnly("alter sequence", "ALTER SEQUENCE", plan.SequenceChange{Op: "alter", Sequence: q, Was: was})
	return true
}

// dropSequences returns false if none of the sequences is the cluster's.
func (sq *sequenceChange) dropSequences(d *pg.DropStmt) bool {
	var changes []plan.SequenceChange
	others := ""
	for _, o := range d.Objects {
		parts := sqltree.Strings(o.GetList().GetItems())
		was := sq.SequenceNamed(parts)
		if was == nil {
			others = strings.Join(parts, ".")
			continue
		}
		depends := func(table, column, what string) {
			e := sqlstate.New(sqlstate.DependentObjects, "cannot drop sequence %s because %s", sqltext.QuoteIdent(was.Name), what)
			if was.Identity {
				fail(e.WithHint("You can drop column %s of table %s instead.", column, table))
			}
			fail(e.WithDetail("default value for column %s of table %s depends on sequence %s", column, table, sqltext.QuoteIdent(was.Name)).
				WithHint("drop the default first: ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT", table, sqltext.QuoteIdent(column)))
		}
		if was.Identity {
			depends(sqltext.QuoteName(was.Owner.Schema, was.Owner.Table), was.Owner.Column,
				"column "+was.Owner.Column+" of table "+sqltext.QuoteName(was.Owner.Schema, was.Owner.Table)+" requires it")
		}
		if table, column := usedBy(&sq.Namespace, was); table != "" {
			depends(table, column, "other objects depend on it")
		}
		changes = append(changes, plan.SequenceChange{Op: "drop", Sequence: *was, Was: was})
	}
	switch {
	case len(changes) == 0:
		return false
	case others != "" && !d.MissingOk:
		fail(sqlstate.New(sqlstate.UndefinedTable, "sequence %q does not exist", others))
	}
	sq.mapOnly("drop sequence", "DROP SEQUENCE", changes...)
	return true
}

// schemaSequences judges DROP SCHEMA, and returns what it does to sequences.
func (sq *sequenceChange) schemaSequences(schema string, cascade bool) {
	for i := range sq.Snapshot.State().Sequences {
		q := &sq.Snapshot.State().Sequences[i]
		if q.Schema != schema {
			continue
		}
		if !cascade && q.Owner == nil {
			fail(sqlstate.New(sqlstate.DependentObjects, "cannot drop schema %s because other objects depend on it", sqltext.QuoteIdent(schema)).
				WithDetail("sequence %s depends on schema %s", q.QualifiedName(), sqltext.QuoteIdent(schema)).
				WithHint("Use DROP ... CASCADE to drop the dependent objects too."))
		}
		if table, column := usedBy(&sq.Namespace, q); table != "" {
			owner := q.Owner
			if t := sq.Relation(semantics.RangeVar(strings.Split(table, "."))).Table; owner == nil && (t == nil || t.Schema != schema) {
				fail(sqlstate.Refusal("CLV-0527", "column %s of table %s takes its values from the sequence %s", sqltext.QuoteIdent(column), table, q.QualifiedName()).
					WithHint("Drop that default first."))
			}
		}
		if cascade {
			sq.st.DDL.Sequences = append(sq.st.DDL.Sequences, plan.SequenceChange{Op: "drop", Sequence: *q, Was: q})
		}
	}
}

// Restarts are the changes of TRUNCATE ... RESTART IDENTITY.
func Restarts(snap *shardmap.Snapshot, tables []plan.TableName) []plan.SequenceChange {
	var out []plan.SequenceChange
	for i := range snap.State().Sequences {
		was := &snap.State().Sequences[i]
		for _, t := range tables {
			if o := was.Owner; o != nil && o.Schema == t.Schema && o.Table == t.Name {
				q := *was
				q.ID, q.First = "", q.Start
				out = append(out, plan.SequenceChange{Op: "restart", Sequence: q, Was: was})
			}
		}
	}
	return out
}

// has reports whether the table that is altered has a column.
func (d *declaration) has(column string) bool { return d.columnNamed(column) != nil }

func (d *declaration) columnNamed(name string) *shardmap.Column {
	if d.table == nil {
		return nil
	}
	for i := range d.table.Columns {
		if d.table.Columns[i].Name == name {
			return &d.table.Columns[i]
		}
	}
	return nil
}

// notIdentity refuses SET and DROP DEFAULT of an identity column, as PostgreSQL does.
func (d *declaration) notIdentity(column string) {
	if c := d.columnNamed(column); c != nil && c.Identity != "" {
		fail(sqlstate.New(sqlstate.SyntaxError, "column \"%s\" of relation \"%s\" is an identity column", column, d.name.Name).
			WithHint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead."))
	}
}

// alterIdentity rewrites ADD GENERATED, SET GENERATED and DROP IDENTITY of a column
// for the shards, where the column has a plain default. They hear nothing of what
// changes its sequence alone.
func (sq *sequenceChange) alterIdentity(d *declaration, c *pg.AlterTableCmd) {
	if d.cmds != 1 {
		fail(sqlstate.Refusal("CLV-0528", "changes of an identity column together with other changes of the table are not supported").
			WithHint("Use one ALTER TABLE for each."))
	}
	col := d.columnNamed(c.Name)
	if col == nil {
		fail(sqlstate.New(sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", c.Name, d.name.Name))
	}
	ts := sq.Tokens()
	// ALTER TABLE name ALTER [COLUMN] column ...: the words after the column.
	at := -1
	for i := len(ts) - 1; i > 0; i-- {
		if (sq.Word(i, "add") || sq.Word(i, "drop") || sq.Word(i, "set") || sq.Word(i, "restart")) && sq.Depth(i) == 0 {
			at = i
		}
	}
	if at < 0 {
		sourcetext.LostPlace()
	}
	end := ts[len(ts)-1]
	if sq.Punct(len(ts)-1, ';') {
		end = ts[len(ts)-2]
	}
	switch c.Subtype {
	case pg.AlterTableType_AT_AddIdentity:
		if intNames[col.Type] == "" {
			fail(sqlstate.New(sqlstate.InvalidParameterValue, "identity column type must be smallint, integer, or bigint"))
		}
		switch {
		case col.Identity != "":
			fail(sqlstate.New(sqlstate.ObjectNotInState, "column \"%s\" of relation \"%s\" is already an identity column", c.Name, d.name.Name))
		case col.Generated != "":
			fail(sqlstate.New(sqlstate.ObjectNotInState, "column \"%s\" of relation \"%s\" already has a default value", c.Name, d.name.Name))
		case !col.NotNull:
			fail(sqlstate.New(sqlstate.ObjectNotInState, "column \"%s\" of relation \"%s\" must be declared NOT NULL before identity can be added", c.Name, d.name.Name))
		}
		x := c.Def.GetConstraint()
		q := sq.ownedSequence(d.name, c.Name, intNames[col.Type], x.GetOptions())
		q.Identity = true
		when := shardmap.IdentityByDefault
		if x.GetGeneratedWhen() == "a" {
			when = shardmap.IdentityAlways
		}
		d.sequences = append(d.sequences, plan.SequenceChange{Op: "create", Sequence: q})
		d.edits = append(d.edits, sqltext.Edit{From: ts[at].Start, To: end.End, Text: "SET DEFAULT " + shardDefault(&q, when)})
		d.functions = true
	case pg.AlterTableType_AT_DropIdentity:
		if col.Identity == "" {
			if c.MissingOk {
				fail(sqlstate.Refusal("CLV-0529", "column %s is not an identity column", sqltext.QuoteIdent(c.Name)).
					WithHint("Leave the statement out."))
			}
			fail(sqlstate.New(sqlstate.ObjectNotInState, "column \"%s\" of relation \"%s\" is not an identity column", c.Name, d.name.Name))
		}
		q, ok := sq.Snapshot.SequenceNamed(shardmap.SequenceOf(col.Generated))
		if ok {
			d.sequences = append(d.sequences, plan.SequenceChange{Op: "drop", Sequence: *q, Was: q})
		}
		d.edits = append(d.edits, sqltext.Edit{From: ts[at].Start, To: end.End, Text: "DROP DEFAULT"})
	default:
		if col.Identity == "" {
			fail(sqlstate.New(sqlstate.ObjectNotInState, "column \"%s\" of relation \"%s\" is not an identity column", c.Name, d.name.Name))
		}
		was, ok := sq.Snapshot.SequenceNamed(shardmap.SequenceOf(col.Generated))
		if !ok {
			sourcetext.LostPlace()
		}
		var when string
		var options []*pg.Node
		for _, n := range c.Def.GetList().GetItems() {
			o := n.GetDefElem()
			switch {
			case o.GetDefname() != "generated":
				options = append(options, n)
			case when != "":
				fail(sqlstate.New(sqlstate.SyntaxError, "conflicting or redundant options"))
			case o.GetArg().GetInteger().GetIval() == 'a':
				when = shardmap.IdentityAlways
			default:
				when = shardmap.IdentityByDefault
			}
		}
		if options != nil {
			d.sequences = append(d.sequences, sq.redefine(was, options))
		}
		if when == "" {
			sq.st.DDL.AllShards, sq.st.DDL.MapOnly = false, true
			return
		}
		d.edits = append(d.edits, sqltext.Edit{From: ts[at].Start, To: end.End, Text: "SET DEFAULT " + shardDefault(was, when)})
		d.functions = true
	}
}
