package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Becomes is what an unsharded table becomes.
type Becomes struct {
	plan.TableName
	ShardKey  []string
	Reference bool // a reference table, without a shard key
}

// Fill makes the rows of a reference table on one shard those of the default shard. Both
// conversations are in a transaction in which nobody else writes to the table.
type Fill func(ctx context.Context, from, to engine.Conn, t *shardmap.Table, epoch uint64) error

// Distribution is what Distribute did, or would do.
type Distribution struct {
	Tables    []Becomes
	Keyspaces []string // by table, "" for a reference table
	Made      []string // of them, those that are made for it
	// Rows: some of the tables have rows. They stay on the default shard, which then owns all of the keyspace.
	Rows bool
	// Sequences are those columns, as table.column, whose values come from a sequence of the shard's own.
	Sequences []string
}

// distribution is the plan of a Distribute.
type distribution struct {
	Distribution
	tables []shardmap.Table
	descs  []*engine.Table
	// Of a PostgreSQL default shard: the definitions, and those columns whose default gives way.
	defs     []*definition
	takes    [][]taken
	ledgers  [][]Statement // else
	notNulls [][]string
}

// taken is a column whose sequence is the cluster's from now on.
type taken struct {
	column, identity string // identity: "a", "d" or ""
	sequence         string // of the map
}

// Distribute makes tables that are whole until now sharded or reference tables, all of them or
// none: the other shards receive the definitions, every shard its guards, and the map the new kinds. Rows stay
// where they are: tables with rows need a keyspace all of which the default shard owns, which then can be
// moved (or are copied by fill, of reference tables). What the default shard does is done last, and
// the tables are locked for that alone. The rest is as with Exec.
//
// Errors: 42P01 and 42809 for what is no unsharded table of the map; 55000 when a table has rows and the keyspace has
// ranges on other shards, or for a sequence that TakeSequences has not taken; 0A000 for what a table on several
// shards cannot have; 55P03 when a table was not to be locked in time; those of Exec.
func (t *Tx) Distribute(ctx context.Context, tables []Becomes, keyspaceName string, fill Fill) (*Distribution, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	d, err := t.distribute(ctx, tables, keyspaceName, fill)
	if err != nil {
		return nil, t.fail(err)
	}
	return &d.Distribution, nil
}

func (t *Tx) distribute(ctx context.Context, tables []Becomes, keyspaceName string, fill Fill) (*distribution, error) {
	d, err := t.planDistribute(ctx, tables, keyspaceName, false)
	if err != nil {
		return nil, err
	}
	first := t.part(t.base.State().DefaultShard)
	var names []plan.TableName
	for i := range d.tables {
		names = append(names, d.Tables[i].TableName)
	}
	statements, err := d.madeOf()
	if err != nil {
		return nil, err
	}
	// The other shards first: nobody uses these tables there yet.
	texts := map[string][]string{}
	for _, shard := range shardNames(t.base)[1:] {
		p, err := t.open(ctx, shard)
		if err != nil {
			return nil, err
		}
		if err := t.mark(ctx, p); err != nil {
			return nil, err
		}
		for _, s := range statements {
			if err := replayStatement(ctx, p.conn, s); err != nil {
				return nil, p.broke(replayError(err, shard, shardmap.Entry{Version: t.base.Version()}, s))
			}
		}
		for i := range d.tables {
			got, err := p.describe(ctx, names[i])
			if err != nil {
				return nil, err
			}
			if diff := differs(d.descs[i], got); diff != "" {
				return nil, sqlstate.New(sqlstate.ObjectNotInState, "table %s could not be made the same on shard %s: %s", d.tables[i].QualifiedName(), shard, diff).OnShard(shard).
					WithHint("create it anew with the options: CREATE TABLE ... WITH (cleave.shard_key = '...')")
			}
			if d.defs != nil && p.can.Catalogue {
				other, err := p.define(ctx, names[i])
				if err != nil {
					return nil, err
				}
				texts[shard] = append(texts[shard], other.text(&d.tables[i]))
			}
		}
		if err := t.guards(ctx, p, names); err != nil {
			return nil, err
		}
	}
	if err := t.step("others", ""); err != nil {
		return nil, err
	}
	own, err := t.handOver(ctx, first, d, names)
	if err != nil {
		return nil, err
	}
	for i := range d.tables {
		table := &d.tables[i]
		again, err := first.describe(ctx, names[i])
		if err != nil {
			return nil, err
		}
		if again.HasRows && table.Kind == shardmap.Sharded {
			if err := ownsAll(t.over, table, first.shard); err != nil {
				return nil, err
			}
		}
		if d.defs != nil {
			is, err := first.define(ctx, names[i])
			if err != nil {
				return nil, err
			}
			text := is.text(table)
			for shard, list := range texts {
				if list[i] != text {
					return nil, sqlstate.New(sqlstate.ObjectNotInState, "table %s could not be made the same on shard %s", table.QualifiedName(), shard).OnShard(shard).
						WithDetail("There: %s; on %s: %s", clip(list[i]), first.shard, clip(text)).
						WithHint("if it was altered at this moment, run it again")
				}
			}
		}
		if table.Kind == shardmap.Reference && again.HasRows && fill != nil {
			for _, shard := range shardNames(t.base)[1:] {
				p := t.part(shard)
				if err := fill(ctx, first.conn, p.conn, table, t.over.CopiesEpoch()); err != nil {
					return nil, p.broke(err)
				}
			}
		}
	}
	if err := t.step("handed over", first.shard); err != nil {
		return nil, err
	}
	t.ran, t.op = true, OpDistribute
	for i := range d.tables {
		t.ops = append(t.ops, "distribute "+d.tables[i].QualifiedName())
	}
	t.statements = append(append(t.statements, statements...), own...)
	return d, nil
}

// handOver does what there is to do on the default shard, under locks on the tables, and returns what of
// it belongs in the ledger.
func (t *Tx) handOver(ctx context.Context, p *part, d *distribution, names []plan.TableName) (own []Statement, err error) {
	var list, texts []string
	mode := "SHARE ROW EXCLUSIVE" // readers go on
	for i := range d.tables {
		name := d.tables[i].QualifiedName()
		list = append(list, "ONLY "+name)
		for _, column := range d.notNulls[i] {
			texts = append(texts, "ALTER TABLE "+name+" ALTER COLUMN "+ident(column)+" SET NOT NULL")
		}
		if d.takes == nil {
			continue
		}
		for _, c := range d.takes[i] {
			q, ok := t.over.SequenceNamed(c.sequence)
			if !ok {
				return nil, sqlstate.New(sqlstate.ObjectNotInState, "sequence %s is not in the map", c.sequence).WithHint("run it again")
			}
			identity, shadow := "", "ALTER SEQUENCE "+q.QualifiedName()+shadowOptions(q)+" RESTART"
			alter := "ALTER TABLE " + name + " ALTER COLUMN " + ident(c.column)
			if c.identity != "" {
				identity = (&definedColumn{Identity: c.identity}).identity()
				texts = append(texts, alter+" DROP IDENTITY")
				shadow = "CREATE SEQUENCE " + q.QualifiedName() + shadowOptions(q) + " OWNED BY " + name + "." + ident(c.column)
			}
			texts = append(texts, alter+" SET DEFAULT "+takenDefault(q, identity), shadow)
		}
	}
	if !p.can.Locks { // the shard has one writer, which is this
		for _, sql := range texts {
			if _, err := p.run(ctx, sql); err != nil {
				return nil, err
			}
		}
		return nil, t.guards(ctx, p, names)
	}
	if len(texts) > 0 {
		mode = "ACCESS EXCLUSIVE"
		if err := ownFunctions(ctx, p.conn); err != nil {
			return nil, p.broke(err)
		}
	}
	for _, sql := range texts {
		own = append(own, Statement{Text: sql})
	}
	texts = append([]string{"LOCK TABLE " + strings.Join(list, ", ") + " IN " + mode + " MODE"}, texts...)
	if err := p.briefly(ctx, texts...); err != nil {
		return nil, err
	}
	return own, t.guards(ctx, p, names)
}

// madeOf returns the statements that make the tables on the other shards, in an order in which what
// a foreign key refers to comes first.
func (d *distribution) madeOf() ([]Statement, error) {
	var out []Statement
	var last []Statement
	left := make([]int, len(d.tables))
	for i := range left {
		left[i] = i
	}
	among := func(name plan.TableName) bool { // is it still to be made?
		return slices.ContainsFunc(left, func(i int) bool { return d.Tables[i].TableName == name })
	}
	for len(left) > 0 {
		at := slices.IndexFunc(left, func(i int) bool {
			return !slices.ContainsFunc(d.descs[i].ForeignKeys, func(fk engine.ForeignKey) bool {
				ref := plan.TableName{Schema: fk.RefSchema, Name: fk.RefTable}
				return ref != d.Tables[i].TableName && among(ref)
			})
		})
		at = max(at, 0) // they refer to each other
		i := left[at]
		name := d.tables[i].QualifiedName()
		if d.defs == nil {
			out = append(out, d.ledgers[i]...)
			for _, column := range d.notNulls[i] {
				out = append(out, Statement{Text: "ALTER TABLE " + name + " ALTER COLUMN " + ident(column) + " SET NOT NULL", AllShards: true, Tables: []string{name}})
			}
			left = slices.Delete(left, at, at+1)
			continue
		}
		create, foreign := d.defs[i].statements(&d.tables[i], func(ref plan.TableName) bool { return ref != d.Tables[i].TableName && among(ref) })
		for n, sql := range create {
			s := Statement{Text: sql, AllShards: true, Tables: []string{name}}
			if strings.HasPrefix(sql, "CREATE TABLE ") {
				s.Creates = []string{name}
			} else if !slices.ContainsFunc(create[:n], func(o string) bool { return strings.HasPrefix(o, "CREATE TABLE ") }) {
				s.Tables = nil // schemas, types, functions: they outlive the table
			}
			out = append(out, s)
		}
		for _, sql := range foreign {
			last = append(last, Statement{Text: sql, AllShards: true, Tables: []string{name}})
		}
		left = slices.Delete(left, at, at+1)
	}
	return append(out, last...), nil
}

// planDistribute checks everything that does not need the other shards, and edits the private map. pretend: as if
// the sequences were taken already.
func (t *Tx) planDistribute(ctx context.Context, tables []Becomes, keyspaceName string, pretend bool) (*distribution, error) {
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	p := t.part(t.base.State().DefaultShard)
	d := &distribution{Distribution: Distribution{Tables: tables}}
	if p.can.Catalogue {
		// What its triggers call may have been there before Cleave was.
		if err := t.objects(ctx, p, &plan.DDL{Objects: true}); err != nil {
			return nil, err
		}
	}
	e := &edit{}
	var found []error
	for _, b := range tables {
		if err := d.planTable(ctx, t.over, t.opts.Directory, p, b, pretend); err != nil {
			return nil, err
		}
	}
	for i := range d.tables {
		table, desc := &d.tables[i], d.descs[i]
		var missing []string
		ks := chosen{}
		if table.Kind == shardmap.Sharded {
			var err error
			shards := t.over.Shards()
			if d.Rows {
				def, _ := t.over.Shard(p.shard)
				shards = []shardmap.Shard{*def}
			}
			if ks, missing, err = chooseKeyspaceOn(t.over, desc, table.ShardKey, keyspaceName, shards, t.opts.RangesPerShard*len(t.over.Shards())); err != nil {
				return nil, err
			}
			if ks.made != nil {
				for n := range ks.made.Ranges {
					ks.made.Ranges[n].Epoch = t.base.Version() + 1
				}
				d.Made = append(d.Made, ks.name)
			}
			table.Keyspace = ks.name
		}
		if len(missing) > 0 && desc.HasRows {
			found = append(found, notNull(table, missing[0]))
		}
		for _, column := range missing {
			for n := range table.Columns {
				if table.Columns[n].Name == column {
					table.Columns[n].NotNull, desc.Columns[n].NotNull = true, true
				}
			}
			if d.defs != nil {
				for n := range d.defs[i].Columns {
					if c := &d.defs[i].Columns[n]; c.Name == column {
						c.NotNull = true
					}
				}
			}
		}
		d.notNulls = append(d.notNulls, missing)
		d.Keyspaces = append(d.Keyspaces, table.Keyspace)
		e.keyspace, e.put = ks.made, []shardmap.Table{*table}
		if err := t.apply(e); err != nil {
			return nil, err
		}
	}
	// With all of them in the map: they may refer to each other.
	for i := range d.tables {
		table := &d.tables[i]
		found = append(found, checkTable(t.over, table, d.descs[i])...)
		if d.defs != nil {
			found = append(found, d.defs[i].refuse(table, t.over.State().Functions)...)
		}
		if d.descs[i].HasRows && table.Kind == shardmap.Sharded {
			if err := ownsAll(t.over, table, p.shard); err != nil {
				found = append(found, err)
			}
		}
	}
	for _, check := range []func() error{
		func() error { return d.referredTo(ctx, t.over, p) },
		func() error { return p.checkReached(ctx, t.over, d) },
	} {
		err := check()
		if lost(err) {
			return nil, err
		}
		if err != nil {
			found = append(found, err)
		}
	}
	return d, obstacles(found)
}

// obstaclesMax bounds those that an error names.
const obstaclesMax = 50

// obstacles is one error of several: the first, with the others in its detail. nil if there is none.
func obstacles(found []error) error {
	if len(found) < 2 {
		return first(found)
	}
	e := *sqlstate.As(found[0])
	lines := []string{strings.TrimSpace(fmt.Sprintf("%s There are %d obstacles. The others:", e.Detail, len(found)))}
	for _, err := range found[1:min(len(found), obstaclesMax)] {
		other := sqlstate.As(err)
		line := "- " + other.Message
		if other.Hint != "" {
			line += " (" + other.Hint + ")"
		}
		lines = append(lines, line)
	}
	e.Detail = strings.Join(lines, "\n")
	return &e
}

// planTable reads one table and what it is to become.
func (d *distribution) planTable(ctx context.Context, over *shardmap.Snapshot, dir shardmap.Directory, p *part, b Becomes, pretend bool) error {
	known, ok := over.Table(b.Schema, b.Name)
	if !ok {
		return unknownTable(b.TableName)
	}
	if known.Kind != shardmap.Whole {
		return sqlstate.New(sqlstate.WrongObjectType, "table %s is %s already", known.QualifiedName(), known.Kind)
	}
	desc, err := p.describe(ctx, b.TableName)
	if err != nil {
		return err
	}
	table := known.Clone()
	table.Kind, table.ShardKey, table.Columns = shardmap.Sharded, slices.Clone(b.ShardKey), columnsOf(desc)
	if b.Reference {
		table.Kind, table.ShardKey = shardmap.Reference, nil
	}
	if err := p.generate(ctx, &table, desc); err != nil {
		return err
	}
	if p.can.Catalogue {
		def, err := p.define(ctx, b.TableName)
		if err != nil {
			return err
		}
		var takes []taken
		for i := range def.Columns {
			c := &def.Columns[i]
			s := c.sequence()
			at := slices.IndexFunc(known.Columns, func(o shardmap.Column) bool { return o.Name == c.Name })
			is := slices.IndexFunc(table.Columns, func(o shardmap.Column) bool { return o.Name == c.Name })
			if s == nil || is < 0 {
				continue
			}
			d.Sequences = append(d.Sequences, table.QualifiedName()+"."+c.Name)
			name := ""
			if at >= 0 {
				name = shardmap.SequenceOf(known.Columns[at].Generated)
			}
			q, ok := over.SequenceNamed(name)
			switch {
			case ok:
			case pretend:
				q = &shardmap.Sequence{Schema: s.Schema, Name: s.Name}
			default:
				return sqlstate.New(sqlstate.ObjectNotInState, "column %q of table %s takes its values from a sequence of shard %s", c.Name, table.QualifiedName(), p.shard).
					WithHint("run it again: the sequence is made the cluster's first")
			}
			takes = append(takes, taken{column: c.Name, identity: c.Identity, sequence: q.QualifiedName()})
			identity := c.identity()
			if at >= 0 && ok {
				identity = known.Columns[at].Identity
			}
			if identity == shardmap.IdentityAlways {
				takes[len(takes)-1].identity = "a"
			}
			if !pretend || ok {
				table.Columns[is].Generated, table.Columns[is].Identity = shardmap.SequenceValue(q.QualifiedName()), identity
			}
			c.Default, c.Identity, c.Sequences = takenDefault(q, identity), "", nil
			desc.Columns[is].Default, desc.Columns[is].Identity = c.Default, false
		}
		d.defs, d.takes = append(d.defs, def), append(d.takes, takes)
	} else {
		entries, err := History(ctx, dir, 0)
		if err != nil {
			return err
		}
		ledger, err := TableLedger(entries, table.QualifiedName())
		if err == nil && len(ledger) == 0 {
			err = sqlstate.New(sqlstate.ObjectNotInState, "table %s was not created through Cleave, so how to create it on the other shards is not known", table.QualifiedName()).
				WithHint("create it anew with the options: CREATE TABLE ... WITH (cleave.shard_key = '...')")
		}
		if err != nil {
			return err
		}
		for i := range ledger {
			ledger[i].AllShards = true
		}
		d.ledgers = append(d.ledgers, ledger)
	}
	d.Rows = d.Rows || desc.HasRows && !b.Reference
	d.tables, d.descs = append(d.tables, table), append(d.descs, desc)
	return nil
}

// referredTo refuses that unsharded tables refer to one that becomes sharded: they would look for its rows
// on the default shard alone.
func (d *distribution) referredTo(ctx context.Context, over *shardmap.Snapshot, p *part) error {
	tables := over.State().Tables
	for i := range tables {
		other := &tables[i]
		if other.Kind != shardmap.Whole {
			continue
		}
		desc, err := p.describe(ctx, plan.TableName{Schema: other.Schema, Name: other.Name})
		if err != nil {
			return err
		}
		for _, fk := range desc.ForeignKeys {
			at := slices.IndexFunc(d.tables, func(o shardmap.Table) bool { return o.Schema == fk.RefSchema && o.Name == fk.RefTable })
			if at < 0 || d.tables[at].Kind == shardmap.Reference {
				continue
			}
			e := sqlstate.Refusal("CLV-0973", "foreign key %s of the unsharded table %s refers to %s", ident(fk.Name), other.QualifiedName(), d.tables[at].QualifiedName()).
				WithHint("Shard both at once: cleave.distribute(..., related => true); or drop the foreign key first, and create it again when both tables are sharded.")
			e.Constraint = fk.Name
			return e
		}
	}
	return nil
}

// ownsAll refuses a table with rows whose keyspace has other owners than the shard with the rows.
func ownsAll(over *shardmap.Snapshot, table *shardmap.Table, shard string) error {
	ix, ok := over.Keyspace(table.Keyspace)
	if !ok {
		return sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", table.Keyspace)
	}
	def := ix.Def()
	if len(def.Values) == 0 && len(def.Transits) == 0 && !slices.ContainsFunc(ix.Owners(), func(o string) bool { return o != shard }) {
		return nil
	}
	own := table.Name + "_keys"
	e := sqlstate.New(sqlstate.ObjectNotInState, "table %s has rows, and not all of keyspace %s is on shard %s, where they are", table.QualifiedName(), table.Keyspace, shard).
		WithDetail("A keyspace takes a table with rows while the default shard owns all of it, and no part of it moves; a list keyspace does not.").
		WithHint("give it a keyspace of its own, and move that later: SELECT cleave.create_keyspace('%s', 'hash', ARRAY['%s'], shards => ARRAY['%s']); SELECT cleave.distribute('%s', ARRAY['%s'], keyspace => '%s'); SELECT cleave.spread()",
			own, strings.Join(typeList(def.Types), "', '"), shard, table.Name, strings.Join(table.ShardKey, "', '"), own)
	e.Schema, e.Table, e.Keyspace = table.Schema, table.Name, table.Keyspace
	return e
}

// notNull asks for what would look through all rows under a lock.
func notNull(table *shardmap.Table, column string) error {
	name, c := table.QualifiedName(), ident(column)
	e := sqlstate.New(sqlstate.ObjectNotInState, "shard key column %s of table %s may be NULL, and the table has rows", c, name).
		WithHint("run first: ALTER TABLE %[1]s ADD CONSTRAINT cleave_key CHECK (%[2]s IS NOT NULL) NOT VALID; ALTER TABLE %[1]s VALIDATE CONSTRAINT cleave_key; ALTER TABLE %[1]s ALTER COLUMN %[2]s SET NOT NULL; ALTER TABLE %[1]s DROP CONSTRAINT cleave_key", name, c)
	e.Schema, e.Table, e.Column = table.Schema, table.Name, column
	return e
}

// PlanDistribute makes all checks of Distribute and says what it would do. The transaction is to be rolled back.
func (t *Tx) PlanDistribute(ctx context.Context, tables []Becomes, keyspaceName string) (*Distribution, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	d, err := t.planDistribute(ctx, tables, keyspaceName, true)
	if err != nil {
		return nil, t.fail(err)
	}
	return &d.Distribution, nil
}

// Related returns the tables that have to become sharded together with one, by their foreign keys: those that refer to it
// with the shard key, or that it refers to. Errors: 0A000 for a foreign key without the shard key.
func (t *Tx) Related(ctx context.Context, first Becomes) ([]Becomes, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	out, err := t.related(ctx, first)
	if err != nil {
		return nil, t.fail(err)
	}
	return out, nil
}

func (t *Tx) related(ctx context.Context, first Becomes) ([]Becomes, error) {
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	names, descs, err := t.part(t.base.State().DefaultShard).unsharded(ctx, t.over)
	if err != nil {
		return nil, err
	}
	if descs[first.TableName] == nil {
		return []Becomes{first}, nil // Distribute says what is wrong with it
	}
	out := []Becomes{first}
	add := func(name plan.TableName, key []string) {
		if !slices.ContainsFunc(out, func(b Becomes) bool { return b.TableName == name }) {
			out = append(out, Becomes{TableName: name, ShardKey: key})
		}
	}
	for i := 0; i < len(out); i++ {
		b := out[i]
		for _, name := range names {
			for _, fk := range descs[name].ForeignKeys {
				ref := plan.TableName{Schema: fk.RefSchema, Name: fk.RefTable}
				var key []string
				switch {
				case ref == b.TableName && name != b.TableName:
					if key = through(b.ShardKey, fk.RefColumns, fk.Columns); key == nil {
						return nil, sqlstate.Refusal("CLV-0974", "foreign key %s of %s refers to %s without its shard key", ident(fk.Name), qualified(name.Schema, name.Name), qualified(b.Schema, b.Name)).
							WithHint("Put (%s) into the foreign key, and a column for it into the table; see docs/existing-database.md.", strings.Join(b.ShardKey, ", "))
					}
					add(name, key)
				case name == b.TableName && ref != b.TableName && descs[ref] != nil:
					if key = through(b.ShardKey, fk.Columns, fk.RefColumns); key == nil {
						return nil, sqlstate.Refusal("CLV-0975", "foreign key %s of %s refers to the unsharded table %s, without the shard key", ident(fk.Name), qualified(name.Schema, name.Name), qualified(ref.Schema, ref.Name)).
							WithHint("Make that a reference table first: SELECT cleave.distribute('%s', reference => true).", ref.Name)
					}
					add(ref, key)
				}
			}
		}
	}
	return out, nil
}

// unsharded describes the unsharded tables.
func (p *part) unsharded(ctx context.Context, over *shardmap.Snapshot) (names []plan.TableName, descs map[plan.TableName]*engine.Table, err error) {
	descs = map[plan.TableName]*engine.Table{}
	for _, table := range over.State().Tables {
		if table.Kind != shardmap.Whole {
			continue
		}
		name := plan.TableName{Schema: table.Schema, Name: table.Name}
		if descs[name], err = p.describe(ctx, name); err != nil {
			return nil, nil, err
		}
		names = append(names, name)
	}
	return names, descs, nil
}

// through finds a key's columns on the other side of a foreign key; nil if one is not in it.
func through(key, here, there []string) []string {
	out := make([]string, len(key))
	for i, k := range key {
		at := slices.Index(here, k)
		if at < 0 || at >= len(there) {
			return nil
		}
		out[i] = there[at]
	}
	return out
}
