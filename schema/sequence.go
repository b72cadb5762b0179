package schema

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// OpSequence is the history's word for a change of sequences that no shard hears of.
const OpSequence = "sequence"

// What a shard has in the schema cleave_internal: defaults of columns that a router
// fills call these. They fail, so that a client that writes past the router gets an
// error instead of a value that another shard has as well. uuidv7() needs no
// router to be unique; PostgreSQL has it from version 18 on. They are not in a schema
// cleave: a shard's role may have that name, and its tables would come to be there.
const functionsSQL = `CREATE OR REPLACE FUNCTION cleave_internal.next_id() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	RAISE EXCEPTION 'cleave.next_id() is evaluated by the router, not on a shard'
		USING ERRCODE = '55000', HINT = 'insert through the router, or give the value';
END $$;
CREATE OR REPLACE FUNCTION cleave_internal.nextval(sequence text, identity text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	RAISE EXCEPTION 'the sequence % is the cluster''s: its values are given by the router, not on a shard', sequence
		USING ERRCODE = '55000', HINT = 'insert through the router, or give the value';
END $$;
CREATE OR REPLACE FUNCTION cleave_internal.uuidv7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
	SELECT pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(pg_catalog.overlay(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
		pg_catalog.substr(pg_catalog.int8send(pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint), 3),
		1, 6), 52, 1), 53, 1), 'hex')::uuid
$$`

const hasFunctionsSQL = "SELECT proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'cleave_internal' AND p.proname = 'uuidv7'"

// ownFunctions sees to it that a shard has the functions of functionsSQL.
func ownFunctions(ctx context.Context, c engine.Conn) error {
	res, _, err := run(ctx, c, hasFunctionsSQL)
	if err != nil || len(res.Rows) > 0 {
		return err
	}
	_, _, err = run(ctx, c, functionsSQL)
	return err
}

// functionsOnPostgres is functions for a conversation with a shard of either engine.
func functionsOnPostgres(ctx context.Context, c engine.Conn) error {
	res, _, err := run(ctx, c, "SELECT pg_catalog.version()")
	if err != nil || len(res.Rows) != 1 || strings.Contains(res.Rows[0][0].String, "SQLite") {
		return err
	}
	return ownFunctions(ctx, c)
}

// functions does it within the transaction; SQLite shards know the functions.
func (p *part) functions(ctx context.Context, d *plan.DDL) error {
	if !d.Functions || !p.can.Functions {
		return nil
	}
	if err := ownFunctions(ctx, p.conn); err != nil {
		return p.broke(err)
	}
	return nil
}

var (
	nextvalDefault  = regexp.MustCompile(`^(?:cleave_internal\.)?nextval\('((?:[^']|'')*)'(?:::text)?(?:, '(always|by default)'(?:::text)?)?\)$`)
	functionDefault = regexp.MustCompile(`^(?:(?:cleave_internal|pg_catalog)\.)?(next_id|uuidv7|gen_random_uuid)\(\)$`)
)

// generatedBy reads the default of a column as a shard prints it: what a router
// generates, and for an identity column which kind it is. "" for every other default.
func generatedBy(text string) (generated, identity string) {
	if m := nextvalDefault.FindStringSubmatch(text); m != nil {
		return shardmap.SequenceValue(strings.ReplaceAll(m[1], "''", "'")), m[2]
	}
	if m := functionDefault.FindStringSubmatch(text); m != nil {
		return m[1], ""
	}
	return "", ""
}

// generate fills in what routers generate. A UUID is left to the shard, unless the
// column is in the shard key: then the router has to know it before it routes.
func generate(table *shardmap.Table, desc *engine.Table) {
	for i := range table.Columns {
		c := &table.Columns[i]
		c.Generated, c.Identity, c.Clocked = "", "", ""
		from := column(desc, c.Name)
		if from == nil {
			continue
		}
		if !c.Computed && planner.DependsOnTime(from.Default) {
			c.Clocked = from.Default
		}
		g, identity := generatedBy(from.Default)
		if (g == shardmap.UUIDv7 || g == shardmap.UUIDv4) && !slices.Contains(table.ShardKey, c.Name) {
			continue
		}
		c.Generated, c.Identity = g, identity
	}
}

// ossp is the default that the extension uuid-ossp gives random UUIDs by, in whatever schema it is.
var ossp = regexp.MustCompile(`^(?:(?:\w+|"(?:[^"]|"")+")\.)?uuid_generate_v4\(\)$`)

// osspSQL says whether a column's default calls a function of that extension.
const osspSQL = `SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	JOIN pg_catalog.pg_depend AS f ON f.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND f.objid = d.oid AND f.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
	JOIN pg_catalog.pg_depend AS m ON m.classid = f.refclassid AND m.objid = f.refobjid AND m.deptype = 'e'
	JOIN pg_catalog.pg_extension AS x ON m.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND x.oid = m.refobjid
	WHERE x.extname = 'uuid-ossp' AND a.attrelid = %s::pg_catalog.regclass AND a.attname = %s`

// generate is generate with what has to be asked for: whether a function of the shard key's default is what its name says.
func (p *part) generate(ctx context.Context, table *shardmap.Table, desc *engine.Table) error {
	generate(table, desc)
	for i := range table.Columns {
		c := &table.Columns[i]
		if from := column(desc, c.Name); from == nil || !slices.Contains(table.ShardKey, c.Name) || !ossp.MatchString(from.Default) {
			continue
		}
		res, err := p.run(ctx, fmt.Sprintf(osspSQL, quote(qualified(table.Schema, table.Name)), quote(c.Name)))
		if err != nil {
			return err
		}
		if len(res.Rows) > 0 {
			c.Generated = shardmap.UUIDv4
		}
	}
	return nil
}

func defaultOf(desc *engine.Table, name string) string {
	if c := column(desc, name); c != nil {
		return c.Default
	}
	return ""
}

func (p *part) schemaExists(ctx context.Context, name string) (bool, error) {
	res, err := p.run(ctx, "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = "+quote(name))
	return err == nil && len(res.Rows) > 0, err
}

// inPath refuses to create what would be in a schema of the search_path after the first, which does not exist.
func (p *part) inPath(ctx context.Context, schema, what string) error {
	ok, err := p.schemaExists(ctx, schema)
	if err != nil || ok {
		return err
	}
	return sqlstate.Refusal("CLV-0534", `schema "%s", the first of the search_path, does not exist, so that the router does not know where the %s is to be`, schema, what).
		WithHint("Name the %s's schema.", what)
}

// mapOnly carries out a change of sequences: on the map alone, under the lock of
// schema changes.
func (t *Tx) mapOnly(ctx context.Context, p *part, st *plan.Statement) (string, []*sqlstate.Error, error) {
	d := st.DDL
	var notices []*sqlstate.Error
	for i := range d.Sequences {
		c := &d.Sequences[i]
		moved := c.Op == "alter" && (c.Was.Schema != c.Sequence.Schema || c.Was.Name != c.Sequence.Name)
		if c.Op != "create" && !moved {
			continue
		}
		taken, err := p.sequenceTaken(ctx, t.over, c)
		if err != nil {
			return "", nil, err
		}
		if !taken {
			continue
		}
		exists := sqlstate.New(sqlstate.DuplicateTable, "relation \"%s\" already exists", c.Sequence.Name)
		if !c.IfNotExists {
			return "", nil, exists
		}
		exists.Severity, exists.Message = "NOTICE", exists.Message+", skipping"
		return st.Tag, append(notices, exists), nil
	}
	e := &edit{described: map[plan.TableName]*engine.Table{}}
	if err := e.planSequences(ctx, t.over, p, d); err != nil {
		return "", nil, err
	}
	was := slices.Clone(t.state.Sequences)
	if err := t.apply(e); err != nil {
		return "", nil, err
	}
	if err := p.shadows(ctx, t.state.Sequences, was); err != nil {
		return "", nil, err
	}
	t.ran, t.sequenceOnly = true, true
	t.ops = append(t.ops, st.Tag)
	return st.Tag, notices, nil
}

// sequenceTaken reports whether another relation has the name that a sequence gets. Its schema has to exist.
func (p *part) sequenceTaken(ctx context.Context, over *shardmap.Snapshot, c *plan.SequenceChange) (bool, error) {
	if c.InPath {
		if err := p.inPath(ctx, c.Sequence.Schema, "sequence"); err != nil {
			return false, err
		}
	} else if ok, err := p.schemaExists(ctx, c.Sequence.Schema); err != nil {
		return false, err
	} else if !ok {
		return false, sqlstate.New(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", c.Sequence.Schema)
	}
	return p.taken(ctx, over, c.Sequence.Schema, c.Sequence.Name)
}

// taken reports whether a relation, or a sequence of the cluster, has the name.
func (p *part) taken(ctx context.Context, over *shardmap.Snapshot, schema, name string) (bool, error) {
	if _, ok := over.Sequence(schema, name); ok {
		return true, nil
	}
	switch _, err := p.conn.DescribeTable(ctx, schema, name); sqlstate.CodeOf(err) {
	case "", sqlstate.WrongObjectType:
		return true, nil
	case sqlstate.UndefinedTable:
		return false, nil
	default:
		return false, p.broke(err)
	}
}

// planSequences adds a statement's changes of sequences to its edit.
func (e *edit) planSequences(ctx context.Context, over *shardmap.Snapshot, p *part, d *plan.DDL) error {
	e.ddl = d
	for _, c := range d.Sequences {
		q := c.Sequence
		if c.Was != nil {
			is, ok := over.Sequence(c.Was.Schema, c.Was.Name)
			if !ok || !reflect.DeepEqual(is, c.Was) {
				return again("sequence " + c.Was.QualifiedName() + " was changed by another session meanwhile")
			}
		} else if err := p.freeName(ctx, over, &q, d.MapOnly); err != nil {
			return err
		}
		if q.ID == "" {
			if q.ID = uuid.NewString(); c.Was != nil {
				q.ID = nextLife(c.Was.ID)
			}
		}
		if c.Was != nil && (c.Op == "drop" || c.Was.Schema != q.Schema || c.Was.Name != q.Name) {
			e.dropSequences = append(e.dropSequences, *c.Was)
		}
		if c.Op != "drop" {
			e.putSequences = append(e.putSequences, q)
		}
	}
	return nil
}

// freeName fails if another relation has the name of a new sequence.
func (p *part) freeName(ctx context.Context, over *shardmap.Snapshot, q *shardmap.Sequence, mapOnly bool) error {
	taken, err := p.taken(ctx, over, q.Schema, q.Name)
	switch {
	case err != nil || !taken:
		return err
	case q.Owner != nil && !mapOnly:
		return again("the name " + q.QualifiedName() + " was taken meanwhile")
	}
	return sqlstate.New(sqlstate.DuplicateTable, "relation \"%s\" already exists", q.Name)
}

// nextLife is the ID of a sequence after RESTART: a session's currval() outlives it,
// so the first 36 bytes stay.
func nextLife(id string) string {
	life := 1
	if len(id) < 36 {
		return uuid.NewString()
	}
	if len(id) > 37 {
		if n, err := strconv.Atoi(id[37:]); err == nil {
			life = n
		}
	}
	return id[:36] + "-" + strconv.Itoa(life+1)
}

// applySequences edits the sequences of the private map: those of the statement,
// and those that go, or are renamed, with their column.
func (c *changes) applySequences(e *edit) {
	touch := func(q *shardmap.Sequence) { c.sequences[q.QualifiedName()], c.touched[q.QualifiedName()] = true, true }
	for i := range e.dropSequences {
		c.state.DropSequence(e.dropSequences[i].Schema, e.dropSequences[i].Name)
		touch(&e.dropSequences[i])
	}
	for i := range e.putSequences {
		c.state.PutSequence(e.putSequences[i])
		touch(&e.putSequences[i])
	}
	for _, q := range slices.Clone(c.state.Sequences) {
		if q.Owner == nil {
			continue
		}
		owner := renamedOwner(*q.Owner, e.ddl)
		there := slices.ContainsFunc(c.state.Tables, func(o shardmap.Table) bool {
			return o.Schema == owner.Schema && o.Name == owner.Table &&
				slices.ContainsFunc(o.Columns, func(l shardmap.Column) bool { return l.Name == owner.Column })
		})
		switch {
		case !there:
			c.state.DropSequence(q.Schema, q.Name)
			touch(&q)
		case owner != *q.Owner:
			q.Owner = &owner
			c.state.PutSequence(q)
			touch(&q)
		}
	}
}

// renamedOwner is the column that owns a sequence, as a statement leaves it.
func renamedOwner(owner shardmap.SequenceOwner, d *plan.DDL) shardmap.SequenceOwner {
	if d == nil || len(d.Altered) == 0 {
		return owner
	}
	if d.Renamed != nil && owner.Schema == d.Renamed.Schema && owner.Table == d.Renamed.Name {
		owner.Schema, owner.Table = d.Altered[0].Schema, d.Altered[0].Name
	}
	if owner.Schema == d.Altered[0].Schema && owner.Table == d.Altered[0].Name && owner.Column == d.RenamedColumn[0] {
		owner.Column = d.RenamedColumn[1]
	}
	return owner
}

// overlaySequences brings the changed sequences into next.
func (c *changes) overlaySequences(next *shardmap.State) {
	for name := range c.sequences {
		replaceSequence(next, name, c.state.Sequences)
	}
}

// replaceSequence makes the sequence of that name in next what it is in list.
func replaceSequence(next *shardmap.State, name string, list []shardmap.Sequence) {
	for _, q := range slices.Clone(next.Sequences) {
		if q.QualifiedName() == name {
			next.DropSequence(q.Schema, q.Name)
		}
	}
	for _, q := range list {
		if q.QualifiedName() == name {
			next.PutSequence(q)
		}
	}
}

// Retired returns the sequences, and the lives of sequences, that a committed
// change has ended: their records in the directory can go.
func (t *Tx) Retired() []shardmap.Sequence {
	var out []shardmap.Sequence
	for _, q := range t.base.State().Sequences {
		if t.sequences[q.QualifiedName()] && !slices.ContainsFunc(t.state.Sequences, func(o shardmap.Sequence) bool { return o.ID == q.ID }) {
			out = append(out, q)
		}
	}
	return out
}

// withRows gives the error of a new column with a default of the router's, on a
// table that has rows, the hint that helps: the shard cannot make their values.
func withRows(err error, d *plan.DDL) error {
	own := sqlstate.As(err)
	if !d.Functions || d.Op != "alter table" || own.Code != sqlstate.ObjectNotInState {
		return err
	}
	return sqlstate.Refusal("CLV-0535", "the router makes the values of the new column, and cannot make them for the rows that the table has (%s)", own.Message).
		WithHint("In one transaction: ALTER TABLE t ADD COLUMN c bigint; UPDATE t SET c = <what is unique, for instance the key>; CREATE SEQUENCE s OWNED BY t.c; SELECT setval('s', <the highest c>); ALTER TABLE t ALTER COLUMN c SET DEFAULT nextval('s').")
}

// generated compares what a shard's defaults say with what routers generate.
func (c *comparison) generated(t *shardmap.Table, desc *engine.Table) *Finding {
	is := t.Clone()
	generate(&is, desc)
	for i, col := range t.Columns {
		name := t.QualifiedName()
		f := &Finding{Level: levelError, Shard: c.shard.Name, Table: name}
		switch q := shardmap.SequenceOf(col.Generated); {
		case col.Generated == shardmap.UUIDv4 && ossp.MatchString(defaultOf(desc, col.Name)):
			// Whose function that is has been asked when the column was made, see Tx.generate.
		case is.Columns[i].Generated != col.Generated || is.Columns[i].Identity != col.Identity:
			f.What = "the default of column " + ident(col.Name) + " of " + name + " on " + c.shard.Name + " is not what routers go by"
			f.Next = "set the default through a router: ALTER TABLE " + name + " ALTER COLUMN " + ident(col.Name) + " SET DEFAULT ..."
			return f
		case q != "":
			if _, ok := c.snap.SequenceNamed(q); !ok {
				f.What = "column " + ident(col.Name) + " of " + name + " takes its values from the sequence " + q + ", which is not there"
				f.Next = "CREATE SEQUENCE " + q + ", and setval() to the highest value in use"
				return f
			}
		}
	}
	return nil
}
