package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Exec runs one DDL statement on every shard that it concerns, the default shard
// first, checks what only a shard can know, sets the guards and edits the private map.
// tag and notices are those of the default shard. After an error the transaction
// has failed on all shards, as PostgreSQL's would.
//
// Errors: the shard's own; 0A000 for what a sharded or reference table cannot have;
// 57P03 when a shard cannot be reached; 55P03 when a lock was not to be had in
// time; 40001 when somebody else changed the schema meanwhile.
func (t *Tx) Exec(ctx context.Context, st *plan.Statement) (tag string, notices []*sqlstate.Error, err error) {
	if err := t.usable(); err != nil {
		return "", nil, err
	}
	if st.DDL == nil {
		return "", nil, sqlstate.New(sqlstate.InternalError, "the statement is no schema change")
	}
	if len(t.parts) == 0 && !t.locked {
		// What is left of an index that was made outside of transactions must not meet one that is made now.
		if _, err := FinishIntents(ctx, t.opts.recovery()); err != nil {
			return "", nil, t.fail(err)
		}
	}
	if st.DDL.Concurrent {
		return t.concurrent(ctx, st)
	}
	if t.group == 0 {
		t.group = 1<<63 | groups.Add(1)
	}
	tag, notices, err = t.exec(ctx, st)
	if err != nil {
		return "", nil, t.fail(moving(t.over, copied(err, copiedBy(t.base, t.opts.LockTimeout, st.DDL))))
	}
	return tag, notices, nil
}

func (t *Tx) exec(ctx context.Context, st *plan.Statement) (string, []*sqlstate.Error, error) {
	d := st.DDL
	seen := t.base
	if err := t.lock(ctx); err != nil {
		return "", nil, err
	}
	first := t.part(t.base.State().DefaultShard)
	// What exists already stays as it is; on the other shards as well, so that
	// IF NOT EXISTS cannot bring a table into being on some shards only.
	idle := false
	if d.Create != nil && d.Create.IfNotExists {
		switch _, err := first.conn.DescribeTable(ctx, d.Create.Schema, d.Create.Name); sqlstate.CodeOf(err) {
		case "", sqlstate.WrongObjectType:
			idle = true
		case sqlstate.UndefinedTable:
		default:
			return "", nil, first.broke(err)
		}
	}
	if d.MapOnly {
		return t.mapOnly(ctx, first, st)
	}
	if d.Create != nil && d.Create.InPath && d.Create.Schema != "public" && !idle {
		if err := first.inPath(ctx, d.Create.Schema, "table"); err != nil {
			return "", nil, err
		}
	}
	if d.Create != nil && !idle {
		if _, taken := t.over.Sequence(d.Create.Schema, d.Create.Name); taken {
			return "", nil, sqlstate.New(sqlstate.DuplicateTable, "relation \"%s\" already exists", d.Create.Name).
				WithHint("it is a sequence of the cluster: SELECT * FROM cleave.sequences")
		}
	}
	if err := first.functions(ctx, d); err != nil {
		return "", nil, err
	}
	st, err := first.truncates(ctx, t.over, st)
	if err != nil {
		return "", nil, err
	}
	d = st.DDL
	if err := t.before(ctx, first, d); err != nil {
		return "", nil, err
	}
	if st, err = t.timed(ctx, first, st); err != nil {
		return "", nil, err
	}
	var refusal error
	if d.Loose != nil {
		if idle, refusal, err = first.loose(ctx, t.over, d.Loose); err != nil {
			return "", nil, err
		}
	}
	if err := first.trusts(ctx, d); err != nil {
		return "", nil, err
	}
	busy := copiedBy(t.base, t.opts.LockTimeout, d)
	if err := first.patience(ctx, busy); err != nil {
		return "", nil, err
	}
	shapes, err := first.shapes(ctx, d)
	if err != nil {
		return "", nil, err
	}
	res, notices, err := first.runNotices(ctx, st.Text)
	if err != nil {
		return "", nil, withRows(err, d)
	}
	if st, err = first.cascaded(ctx, t.over, st, shapes); err != nil {
		return "", nil, err
	}
	d = st.DDL
	if err := first.confined(ctx, t.opts.Admin, d); err != nil {
		return "", nil, err
	}
	if refusal != nil {
		return "", nil, refusal
	}
	if err := t.step("executed", first.shard); err != nil {
		return "", nil, err
	}
	if idle {
		return res.Tag, notices, nil
	}
	// The statement was analysed on the map that the session had. Names are
	// resolved and AllShards is decided there, so a newer map is good only if
	// it says the same of the tables concerned.
	if err := t.unchanged(seen, d); err != nil {
		return "", nil, err
	}
	edit, err := t.plan(ctx, first, st)
	if err != nil {
		return "", nil, err
	}
	notices = append(notices, edit.keyless(first, d)...)
	for _, sql := range edit.after {
		if _, err := first.run(ctx, sql); err != nil {
			return "", nil, err
		}
	}
	if err := first.fillable(ctx, t.over, d, edit); err != nil {
		return "", nil, err
	}
	var others []*part
	if d.AllShards {
		for _, name := range shardNames(t.base)[1:] {
			p, err := t.open(ctx, name)
			if err != nil {
				return "", nil, err
			}
			if err := t.mark(ctx, p); err != nil {
				return "", nil, err
			}
			if err := p.patience(ctx, busy); err != nil {
				return "", nil, err
			}
			others = append(others, p)
		}
	}
	for _, p := range others {
		if err := t.follow(ctx, p, st, edit); err != nil {
			return "", nil, err
		}
	}
	if err := first.sameRows(ctx, t.over, others, edit); err != nil {
		return "", nil, err
	}
	was := slices.Clone(t.state.Sequences)
	if err := t.apply(edit); err != nil {
		return "", nil, err
	}
	if err := first.shadows(ctx, t.state.Sequences, was); err != nil {
		return "", nil, err
	}
	if err := t.objects(ctx, first, d); err != nil {
		return "", nil, err
	}
	for _, p := range append([]*part{first}, others...) {
		if err := t.guards(ctx, p, edit.guard); err != nil {
			return "", nil, err
		}
	}
	t.record(st, edit)
	return res.Tag, notices, nil
}

// passing reports whether an error says nothing of the statement and the schema: it may go well the next time.
func passing(code sqlstate.Code) bool {
	return code == sqlstate.QueryCanceled || code == sqlstate.LockNotAvailable || code == sqlstate.DeadlockDetected
}

// shardNames returns the shards in the order of locks: the default shard, then by name.
func shardNames(base *shardmap.Snapshot) []string {
	st := base.State()
	names := []string{}
	for _, s := range st.Shards {
		if s.Name != st.DefaultShard {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return append([]string{st.DefaultShard}, names...)
}

// before does what has to precede the statement on a shard: the guard of a table
// that is renamed goes (it comes back under the new name), and a TRUNCATE
// shows the guards that it comes from a router with the current map.
func (t *Tx) before(ctx context.Context, p *part, d *plan.DDL) error {
	if d.Renamed != nil {
		if old, ok := t.over.Table(d.Renamed.Schema, d.Renamed.Name); ok && old.Kind != shardmap.Whole {
			if err := t.fits(ctx, p, old); err != nil {
				return err
			}
			if err := p.conn.DropGuard(ctx, old.Schema, old.Name); err != nil {
				return p.broke(err)
			}
		}
	}
	for _, name := range d.Dropped {
		// The guard's functions do not go with the table.
		if old, ok := t.over.Table(name.Schema, name.Name); ok && old.Kind != shardmap.Whole {
			if err := p.conn.DropGuard(ctx, old.Schema, old.Name); err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
				return p.broke(err)
			}
		}
	}
	says := engine.SayEpochs(p.sayings(t.over, d.Truncated))
	if says == "" {
		return nil
	}
	_, err := p.run(ctx, "SET LOCAL "+engine.EpochSetting+" = "+quote(says))
	return err
}

// unchanged fails with 40001 if the tables of a statement changed after the map
// on which it was analysed.
func (t *Tx) unchanged(seen *shardmap.Snapshot, d *plan.DDL) error {
	for _, n := range namesOf(d) {
		// A statement that was analysed before the table became sharded.
		if is, ok := t.over.Table(n.Schema, n.Name); ok && is.Kind != shardmap.Whole && !d.AllShards {
			return again("table " + is.QualifiedName() + " was changed by another session meanwhile")
		}
	}
	if seen.Version() == t.base.Version() || seen.Version() >= 1<<62 {
		return nil
	}
	for _, n := range namesOf(d) {
		was, before := seen.Table(n.Schema, n.Name)
		is, after := t.base.Table(n.Schema, n.Name)
		if before != after || before && !sameOwnership(was, is) {
			return again("table " + qualified(n.Schema, n.Name) + " was changed by another session meanwhile")
		}
	}
	for _, schema := range d.DropsSchema {
		if !hasTablesOf(seen, t.base, schema) || !hasTablesOf(t.base, seen, schema) {
			return again("tables of schema " + schema + " were changed by another session meanwhile")
		}
	}
	return nil
}

// sameOwnership reports whether the rows of a table are divided in the same way.
func sameOwnership(a, b *shardmap.Table) bool {
	return a.Kind == b.Kind && a.Keyspace == b.Keyspace && slices.Equal(a.ShardKey, b.ShardKey)
}

// hasTablesOf reports whether a map has the tables of a schema that another one has.
func hasTablesOf(other, snap *shardmap.Snapshot, schema string) bool {
	for _, table := range other.State().Tables {
		if table.Schema != schema {
			continue
		}
		if _, ok := snap.Table(schema, table.Name); !ok {
			return false
		}
	}
	return true
}

// namesOf returns all tables that a statement names.
func namesOf(d *plan.DDL) []plan.TableName {
	var out []plan.TableName
	if d.Create != nil {
		out = append(out, d.Create.TableName)
	}
	out = append(append(append(out, d.Altered...), d.Dropped...), d.Truncated...)
	if d.Renamed != nil {
		out = append(out, *d.Renamed)
	}
	return out
}

// edit is what one statement does to the map, and what shards get besides it.
type edit struct {
	keyspace  *shardmap.Keyspace // made with the table
	put       []shardmap.Table
	drop      []plan.TableName
	described map[plan.TableName]*engine.Table // as the default shard has them
	after     []string                         // statements that follow on each shard
	guard     []plan.TableName                 // whose guards are set anew

	ddl                         *plan.DDL
	putSequences, dropSequences []shardmap.Sequence
}

// plan works out the edit of a statement that the default shard has carried out.
func (t *Tx) plan(ctx context.Context, p *part, st *plan.Statement) (*edit, error) {
	d := st.DDL
	e := &edit{described: map[plan.TableName]*engine.Table{}}
	if err := e.planSequences(ctx, t.over, p, d); err != nil {
		return nil, err
	}
	for _, name := range d.Dropped {
		if _, ok := t.over.Table(name.Schema, name.Name); ok {
			e.drop = append(e.drop, name)
		}
	}
	if d.Mixed && len(d.Dropped) > 0 {
		if err := e.dropsChildren(ctx, t.over, p); err != nil {
			return nil, err
		}
	}
	for _, table := range t.over.State().Tables {
		if slices.Contains(d.DropsSchema, table.Schema) {
			e.drop = append(e.drop, plan.TableName{Schema: table.Schema, Name: table.Name})
		}
	}
	if d.Create != nil {
		if err := e.planCreate(ctx, t.base, t.over, t.opts.RangesPerShard, p, d.Create); err != nil {
			return nil, err
		}
	}
	for i, name := range d.Altered {
		old := name
		if i == 0 && d.Renamed != nil {
			old = *d.Renamed
		}
		if err := e.planAlter(ctx, t.over, p, st, old, name); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func columnsOf(desc *engine.Table) []shardmap.Column {
	out := make([]shardmap.Column, len(desc.Columns))
	for i, c := range desc.Columns {
		out[i] = shardmap.Column{Name: c.Name, Type: c.Type, OID: c.OID, NotNull: c.NotNull, Computed: c.Generated}
	}
	return out
}

func (e *edit) planCreate(ctx context.Context, base, over *shardmap.Snapshot, rangesPerShard int, p *part, c *plan.CreateTable) error {
	desc, err := p.describe(ctx, c.TableName)
	if err != nil {
		return err
	}
	kind := c.Kind
	if kind == "" {
		kind = shardmap.Whole
	}
	table := shardmap.Table{Schema: c.Schema, Name: c.Name, Kind: kind, Columns: columnsOf(desc)}
	if kind == shardmap.Sharded {
		table.ShardKey = slices.Clone(c.ShardKey)
		ks, missing, err := chooseKeyspace(over, desc, c.ShardKey, c.Keyspace, rangesPerShard)
		if err != nil {
			return err
		}
		if ks.made != nil {
			// What the directory will write if nobody is faster; if somebody is,
			// the change is made anew (see rebase), so that guards and map agree.
			for i := range ks.made.Ranges {
				ks.made.Ranges[i].Epoch = base.Version() + 1
			}
		}
		e.keyspace, table.Keyspace = ks.made, ks.name
		for _, column := range missing {
			e.after = append(e.after, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", qualified(c.Schema, c.Name), ident(column)))
			for i := range table.Columns {
				if table.Columns[i].Name == column {
					table.Columns[i].NotNull = true
				}
			}
		}
	}
	if err := CheckTable(over, &table, desc); err != nil {
		return err
	}
	if err := p.generate(ctx, &table, desc); err != nil {
		return err
	}
	e.put = append(e.put, table)
	e.described[c.TableName] = desc
	if kind != shardmap.Whole {
		e.guard = append(e.guard, c.TableName)
	}
	return nil
}

func (e *edit) planAlter(ctx context.Context, over *shardmap.Snapshot, p *part, st *plan.Statement, old, name plan.TableName) error {
	known, ok := over.Table(old.Schema, old.Name)
	if !ok {
		return nil // a view, an index, or a table that was there before Cleave
	}
	desc, err := p.describe(ctx, name)
	if err != nil {
		return err
	}
	table := known.Clone()
	table.Schema, table.Name, table.Columns = name.Schema, name.Name, columnsOf(desc)
	renamedKey := false
	if table.Kind == shardmap.Sharded {
		if from, to, ok := renamedColumn(st.Text, known.Columns, table.Columns); ok {
			for i := range table.ShardKey {
				if table.ShardKey[i] == from {
					table.ShardKey[i], renamedKey = to, true
				}
			}
		}
		if err := sameKey(known, &table, desc); err != nil {
			return err
		}
	}
	if err := CheckTable(over, &table, desc); err != nil {
		return err
	}
	if err := p.generate(ctx, &table, desc); err != nil {
		return err
	}
	if old != name {
		e.drop = append(e.drop, old)
	}
	e.put = append(e.put, table)
	e.described[name] = desc
	if table.Kind != shardmap.Whole && (old != name || renamedKey) {
		e.guard = append(e.guard, name)
	}
	return nil
}

// follow runs the statement on another shard than the default one, and makes sure
// that it did the same there.
func (t *Tx) follow(ctx context.Context, p *part, st *plan.Statement, e *edit) error {
	if err := p.functions(ctx, st.DDL); err != nil {
		return err
	}
	if err := t.before(ctx, p, st.DDL); err != nil {
		return err
	}
	if err := p.trusts(ctx, st.DDL); err != nil {
		return err
	}
	if err := p.repeat(ctx, st); err != nil {
		return err
	}
	if err := p.confined(ctx, t.opts.Admin, st.DDL); err != nil {
		return err
	}
	if err := t.step("executed", p.shard); err != nil {
		return err
	}
	if err := e.sameTables(ctx, t.over, p); err != nil {
		return err
	}
	for _, sql := range e.after {
		if _, err := p.run(ctx, sql); err != nil {
			return err
		}
	}
	return p.fillable(ctx, t.over, st.DDL, e)
}

// repeat runs a statement that the default shard has carried out.
func (p *part) repeat(ctx context.Context, st *plan.Statement) error {
	_, err := p.run(ctx, textOn(st, false))
	if err == nil {
		return nil
	}
	own := sqlstate.As(err)
	if strings.HasPrefix(string(own.Code), "42") && (st.DDL.Op == "create function" || st.DDL.Op == "create procedure") {
		return sqlstate.Refusal("CLV-0978", "the function names what is on the default shard only (%s)", own.Message).
			WithHint("Run SET check_function_bodies = off before it, if its body does; such functions can be called by statements of the default shard only.")
	}
	if withRows(err, st.DDL) == err && own.Hint == "" && !passing(own.Code) {
		own.Hint = "the other shards did not refuse it, so this one differs: cleave doctor"
	}
	return err
}

// sameTables fails if the statement made of a table something else than on the default shard.
func (e *edit) sameTables(ctx context.Context, over *shardmap.Snapshot, p *part) error {
	for name, want := range e.described {
		if known, ok := over.Table(name.Schema, name.Name); ok && known.Kind == shardmap.Whole {
			continue
		}
		got, err := p.describe(ctx, name)
		if err != nil {
			return err
		}
		if diff := differs(want, got); diff != "" {
			return sqlstate.New(sqlstate.InvalidTableDefinition, "table %s is not the same on shard %s as on shard %s: %s",
				qualified(name.Schema, name.Name), p.shard, over.State().DefaultShard, diff).OnShard(p.shard).
				WithHint("nothing was changed; cleave doctor compares the tables of all shards")
		}
	}
	return nil
}

// differs says how two descriptions of a table differ, "" if they do not.
func differs(a, b *engine.Table) string {
	if len(a.Columns) != len(b.Columns) {
		return fmt.Sprintf("%d columns instead of %d", len(b.Columns), len(a.Columns))
	}
	for i := range a.Columns {
		x, y := a.Columns[i], b.Columns[i]
		switch {
		case x.Name != y.Name:
			return fmt.Sprintf("column %s instead of %s", y.Name, x.Name)
		case x.Type != y.Type:
			return fmt.Sprintf("column %s is %s instead of %s", x.Name, y.Type, x.Type)
		case x.NotNull != y.NotNull:
			return fmt.Sprintf("column %s differs in NOT NULL", x.Name)
		}
	}
	return ""
}

// apply edits the private map.
func (t *Tx) apply(e *edit) error {
	if e.keyspace != nil {
		t.state.PutKeyspace(*e.keyspace)
		t.made[e.keyspace.Name] = true
	}
	for _, name := range e.drop {
		t.state.DropTable(name.Schema, name.Name)
		t.touched[qualified(name.Schema, name.Name)] = true
	}
	for _, table := range e.put {
		t.state.PutTable(table)
		t.touched[table.QualifiedName()] = true
		if table.Keyspace != "" {
			t.keyspaces[table.Keyspace] = true
		}
	}
	t.applySequences(e)
	return t.refresh()
}

// guards sets the guards of tables on one shard.
func (t *Tx) guards(ctx context.Context, p *part, tables []plan.TableName) error {
	for _, name := range tables {
		table, ok := t.over.Table(name.Schema, name.Name)
		if !ok {
			continue
		}
		g, ok := GuardOf(t.over, table, p.shard)
		if !ok {
			continue
		}
		if err := t.fits(ctx, p, table); err != nil {
			return err
		}
		bound, cancel := context.WithTimeout(ctx, t.opts.LockTimeout)
		err := p.conn.SetGuard(bound, g)
		cancel()
		if err != nil {
			return p.broke(err)
		}
	}
	return t.step("guarded", p.shard)
}

// record adds the statement to what the history will say.
func (t *Tx) record(st *plan.Statement, e *edit) {
	d := st.DDL
	if d.Passing {
		return // nothing that the map or a new shard has to know
	}
	t.ran = true
	t.ops = append(t.ops, st.Tag)
	for _, n := range namesOf(d) {
		t.touched[qualified(n.Schema, n.Name)] = true
		if table, ok := t.over.Table(n.Schema, n.Name); ok && table.Keyspace != "" {
			t.keyspaces[table.Keyspace] = true
		}
	}
	if len(d.Truncated) > 0 {
		return
	}
	text, elsewhere := st.Text, d.Elsewhere
	if d.Concurrent {
		// Replay runs it again in a transaction.
		text, elsewhere = withoutConcurrently(text), withoutConcurrently(elsewhere)
	}
	s := Statement{Text: text, Elsewhere: elsewhere, AllShards: d.AllShards, Set: relevant(t.opts.Prelude), DropsSchema: d.DropsSchema}
	if d.Create != nil {
		s.Creates = []string{qualified(d.Create.Schema, d.Create.Name)}
	}
	for _, n := range d.Dropped {
		s.Drops = append(s.Drops, qualified(n.Schema, n.Name))
	}
	if d.Renamed != nil && len(d.Altered) > 0 {
		s.Renames = map[string]string{qualified(d.Renamed.Schema, d.Renamed.Name): qualified(d.Altered[0].Schema, d.Altered[0].Name)}
	}
	for _, n := range namesOf(d) {
		if name := qualified(n.Schema, n.Name); !slices.Contains(s.Tables, name) {
			s.Tables = append(s.Tables, name)
		}
	}
	t.statements = append(t.statements, s)
	for _, sql := range e.after {
		t.statements = append(t.statements, Statement{Text: sql, AllShards: d.AllShards, Tables: s.Creates})
	}
}

// keyless warns of a new sharded table without a primary key.
func (e *edit) keyless(p *part, d *plan.DDL) []*sqlstate.Error {
	if d.Create == nil || d.Create.Kind != shardmap.Sharded || !p.can.KeyedMoves {
		return nil
	}
	desc := e.described[d.Create.TableName]
	if desc == nil || slices.ContainsFunc(desc.Unique, func(u engine.UniqueKey) bool { return u.Primary }) {
		return nil
	}
	w := sqlstate.New("01000", "table \"%s\" has no primary key: ranges of its keyspace cannot be moved to other shards", d.Create.Name).
		WithHint("ALTER TABLE %s ADD PRIMARY KEY (%s, ...); or ALTER TABLE ... REPLICA IDENTITY FULL", qualified(d.Create.Schema, d.Create.Name), strings.Join(d.Create.ShardKey, ", "))
	w.Severity = "WARNING"
	return []*sqlstate.Error{w}
}

// concurrent runs a statement that no transaction can hold (CREATE INDEX
// CONCURRENTLY) on one shard after the other. Its intent is in the directory meanwhile.
func (t *Tx) concurrent(ctx context.Context, st *plan.Statement) (string, []*sqlstate.Error, error) {
	if len(t.parts) > 0 || len(t.saves) > 0 || t.ran {
		return "", nil, t.fail(sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a transaction block", st.Tag))
	}
	// A unique index is checked before anything is built, on what it says: the
	// catalogue knows it only afterwards.
	names := shardNames(t.base)
	if !st.DDL.AllShards {
		names = names[:1]
	}
	t.record(st, &edit{described: map[plan.TableName]*engine.Table{}})
	var err error
	if t.intent, err = t.intend(ctx, st, names); err != nil {
		return "", nil, t.fail(err)
	}
	if err := t.step("intended", ""); err != nil {
		return "", nil, t.fail(err)
	}
	var tag string
	var notices []*sqlstate.Error
	for i, name := range names {
		gotTag, gotNotices, err := t.alone(ctx, name, st, textOn(st, name == t.base.State().DefaultShard))
		if err == nil {
			err = t.step("concurrent", name)
		}
		if err == nil {
			err = t.intent.mine(ctx, t.opts.Directory)
		}
		if err != nil {
			left := t.intent
			if !errors.Is(err, errCrash) {
				t.intent = nil
			}
			return "", nil, t.fail(left.halfMade(ctx, t.opts.recovery(), onShard(err, name), names, i))
		}
		if i == 0 {
			tag, notices = gotTag, gotNotices
		}
	}
	if st.DDL.Passing && t.intent != nil {
		// No commit follows.
		_ = t.intent.forget(context.WithoutCancel(ctx), t.opts.Directory) // else it is found to be done
		t.intent = nil
	}
	return tag, notices, nil
}

// textOn is what a shard gets of a statement, the default shard or another one.
func textOn(st *plan.Statement, def bool) string {
	if st.DDL.Elsewhere != "" && !def {
		return st.DDL.Elsewhere
	}
	return st.Text
}

// clearInvalid drops the index that a CREATE INDEX CONCURRENTLY is to make, if it is
// there and invalid: what is left of one whose router or server died. IF NOT EXISTS
// would take it for the index. 55006 if it is still being built.
func clearInvalid(ctx context.Context, conn engine.Conn, st *plan.Statement) error {
	index := st.DDL.Index
	if index == nil || index.Schema == "" || st.DDL.Op != "create index" {
		return nil
	}
	res, _, err := run(ctx, conn, "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_create_index AS p WHERE p.index_relid = i.indexrelid) FROM pg_catalog.pg_index AS i "+
		"JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE NOT i.indisvalid AND n.nspname = "+quote(index.Schema)+" AND c.relname = "+quote(index.Name))
	switch code := sqlstate.CodeOf(err); {
	case code == sqlstate.FeatureNotSupported || code == sqlstate.UndefinedTable:
		return nil // an engine without such indexes
	case err != nil || len(res.Rows) == 0:
		return err
	case res.Rows[0][0].String == "t":
		return sqlstate.New(sqlstate.ObjectInUse, "index %s is being built at this moment", qualified(index.Schema, index.Name)).
			WithHint("wait until it is there: SELECT * FROM pg_stat_progress_create_index on the shard")
	}
	_, _, err = run(ctx, conn, "DROP INDEX CONCURRENTLY IF EXISTS "+ident(index.Schema)+"."+ident(index.Name))
	return err
}

// alone runs a statement on one shard, of which text is what that one gets, outside a transaction.
func (t *Tx) alone(ctx context.Context, shard string, st *plan.Statement, text string) (string, []*sqlstate.Error, error) {
	conn, release, err := t.opts.Connect(ctx, shard)
	if err != nil {
		return "", nil, err
	}
	// The settings stay in the conversation, so it is not used again.
	defer release(true)
	for _, set := range t.opts.Prelude {
		if _, _, err := run(ctx, conn, set); err != nil {
			return "", nil, err
		}
	}
	if err := checkNewIndex(ctx, conn, t.over, st); err != nil {
		return "", nil, err
	}
	if err := clearInvalid(ctx, conn, st); err != nil {
		return "", nil, err
	}
	def, _ := t.base.Shard(shard)
	if t.intent != nil && def.Can().ConcurrentIndexes {
		if _, _, err := run(ctx, conn, "SET application_name = "+quote(t.intent.application())); err != nil {
			return "", nil, err
		}
	}
	res, notices, err := run(ctx, conn, text)
	if err != nil {
		return "", nil, err
	}
	if st.DDL.Passing {
		return res.Tag, notices, nil
	}
	// Outside a transaction the note can only follow. If it does not get there,
	// Recover finds the index missing from the notes and says so.
	if err := note(ctx, conn, t.id); err != nil {
		return "", nil, err
	}
	return res.Tag, notices, nil
}

// checkNewIndex checks a table with the unique index that a statement is about to make.
func checkNewIndex(ctx context.Context, conn engine.Conn, over *shardmap.Snapshot, st *plan.Statement) error {
	unique, columns := uniqueIndex(st.Text)
	if len(st.DDL.Altered) == 0 || !unique {
		return nil
	}
	n := st.DDL.Altered[0]
	table, ok := over.Table(n.Schema, n.Name)
	if !ok {
		return nil
	}
	desc, err := conn.DescribeTable(ctx, n.Schema, n.Name)
	if err != nil {
		return err
	}
	desc.Unique = append(desc.Unique, engine.UniqueKey{Name: "the new index", Columns: columns})
	return CheckTable(over, table, desc)
}
