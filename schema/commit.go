package schema

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// gidPrefix begins the global ids of prepared transactions.
const gidPrefix = "cleave_ddl_"

func gid(id, shard string) string { return gidPrefix + id + "_" + shard }

// The bounds of what is tried again once the change is decided.
const (
	decideTries = 8
	finishTries = 4
	finishPause = 100 * time.Millisecond
	finishMax   = 15 * time.Second
	// recordMax is the most between a shard's record of a transaction and the last PREPARE of it: what is older and
	// not prepared anywhere has ended, so that records may be cleaned up (executor/several, prepareMax).
	recordMax = time.Minute
)

// Commit commits on all shards and in the map. nil: everything is done, or
// decided and finished by [Recover] where Notices says so.
//
// Errors: 25P02 after a failed statement (everything is rolled back); the shard's
// own error and 40001 when the change was refused (everything is rolled back);
// 08007 when it is not known whether it was decided, or when shards that cannot prepare
// got only a part: the detail names the shards.
func (t *Tx) Commit(ctx context.Context) error {
	if t.closed {
		return t.usable()
	}
	if t.failed {
		t.Rollback(ctx)
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted: it was rolled back")
	}
	for _, p := range t.parts {
		if p.broken {
			t.Rollback(ctx)
			return sqlstate.New(sqlstate.CannotConnectNow, "the conversation with shard %s broke: nothing was changed", p.shard).OnShard(p.shard)
		}
	}
	parts := commitOrder(t.base, t.parts)
	switch {
	case t.rows && (!t.ran || t.unprepared || !canPrepare(parts)):
		t.Rollback(ctx)
		return sqlstate.Refusal("CLV-1033", "rows were written on several shards in the transaction, and not all of its shards can prepare it").
			WithHint("Commit the schema change first.")
	case !t.ran:
		return t.commitPlain(ctx, parts)
	case len(parts) == 0:
		return t.commitMap(ctx)
	case canPrepare(parts) && !t.unprepared:
		return t.commitPrepared(ctx, parts)
	}
	return t.commitUnprepared(ctx, parts)
}

// commitOrder is by name with the default shard last: its lock keeps others out
// until the end.
func commitOrder(base *shardmap.Snapshot, parts []*part) []*part {
	parts = slices.Clone(parts)
	def := base.State().DefaultShard
	slices.SortFunc(parts, func(a, b *part) int {
		if (a.shard == def) != (b.shard == def) {
			if a.shard == def {
				return 1
			}
			return -1
		}
		return strings.Compare(a.shard, b.shard)
	})
	return parts
}

func canPrepare(parts []*part) bool {
	for _, p := range parts {
		two, ok := p.conn.(engine.TwoPhase)
		if !ok || !two.CanPrepare() || !p.can.PreparesDefinitions {
			return false
		}
	}
	return true
}

// commitPlain ends transactions that changed nothing the map records.
func (t *Tx) commitPlain(ctx context.Context, parts []*part) error {
	var done []string
	for i, p := range parts {
		_, err := p.run(ctx, "COMMIT")
		p.done = !p.broken
		if err != nil {
			rest := parts[i+1:]
			for _, r := range rest {
				_, _ = r.run(ctx, "ROLLBACK")
				r.done = true
			}
			t.finish()
			if p.broken || len(done) > 0 {
				return partial(t.id, done, []string{p.shard}, err)
			}
			return err
		}
		done = append(done, p.shard)
	}
	t.finish()
	return nil
}

// commitMap writes what ran outside transactions into the history.
func (t *Tx) commitMap(ctx context.Context) error {
	defer t.finish()
	err := t.decide(ctx, true)
	if errors.Is(err, errCrash) {
		return err
	}
	if i := t.intent; i != nil {
		t.intent = nil
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
		defer cancel()
		if err == nil {
			if err := t.step("decided", ""); err != nil {
				return err
			}
			_ = i.forget(ctx, t.opts.Directory) // else it is found to be in the history
			return nil
		}
		o := RecoverOptions{Directory: t.opts.Directory, Connect: t.opts.Connect, Actor: t.opts.Actor, LockTimeout: t.opts.LockTimeout}.withDefaults()
		done, end := o.settleIntent(ctx, i)
		own := sqlstate.As(err)
		if own.Detail, own.Hint = strings.TrimSpace(own.Detail+" The statement is "+done+"."), "look whether it is done, and run it again"; end != nil {
			own.Detail = "It is taken away, or finished, by a router later: " + sqlstate.As(end).Message + "."
		}
		return own
	}
	if err != nil {
		own := sqlstate.As(err)
		own.Detail = strings.TrimSpace(own.Detail + " The shards have carried the statement out.")
		own.Hint = "undo the statement and run it again, so that the history has it"
		return own
	}
	return nil
}

// errDoubt is wrapped when nobody knows whether the directory has the decision.
var errDoubt = errors.New("schema: the decision is in doubt")

// decide writes the change into the map: the decision. Without gone, what it drops stays there still. A conflict is resolved on
// top of the newer map if nothing that this change relies on differs there.
func (t *Tx) decide(ctx context.Context, gone bool) error {
	cur := t.base
	for range decideTries {
		c, err := t.entry(t.id, t.opts.Actor, t.opts.Why, cur.Version())
		if err != nil {
			return err
		}
		if err := t.step("decide", ""); err != nil {
			return err
		}
		_, err = t.opts.Directory.Update(ctx, c, t.after(t.base, cur, gone))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, shardmap.ErrConflict):
			if cur, err = t.rebase(ctx); err != nil {
				return err
			}
			if cur == nil {
				return nil // decided: an earlier try had arrived after all
			}
		case errors.Is(err, shardmap.ErrDuplicateID):
			return found(ctx, t.opts.Directory, t.id, t.opts.Actor)
		case errors.Is(err, shardmap.ErrInvalid), sqlstate.CodeOf(err) == sqlstate.ObjectNotInState, sqlstate.CodeOf(err) == sqlstate.InvalidParameterValue:
			return err // refused before anything was stored
		default:
			return doubt(ctx, t.opts.Directory, t.id, t.opts.Actor, err)
		}
	}
	return again("the shard map changes too often")
}

// found tells what the entry with this change's id says.
func found(ctx context.Context, dir shardmap.Directory, id, actor string) error {
	entry, err := dir.Find(ctx, id)
	if err != nil {
		return doubt(ctx, dir, id, actor, err)
	}
	if entry.Op == OpRolledBack {
		return again("it took too long and was rolled back by " + entry.By)
	}
	return nil
}

// doubt settles, after an error that leaves open whether the directory stored the
// decision, what it is: what is not stored is fenced off by storing the opposite.
func doubt(ctx context.Context, dir shardmap.Directory, id, actor string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
	defer cancel()
	for try := range finishTries {
		committed, err := resolve(ctx, dir, id, actor)
		switch {
		case err == nil && committed:
			return nil
		case err == nil:
			return directoryError(cause)
		}
		pause(ctx, finishPause<<try)
	}
	e := sqlstate.Wrap(errors.Join(errDoubt, cause), sqlstate.TransactionUnknown, "the directory was lost while the schema change was being decided").
		WithDetail("The change %s is done on all shards or on none; which is not known yet.", id).
		WithHint("when the directory is back: cleave doctor --repair")
	e.Retry = sqlstate.RetryUnknown
	return e
}

// resolve returns whether a change was decided, and if it was not, makes sure that
// it never will be: the history then has its rollback under the same id, and the
// coordinator's own compare-and-set fails.
func resolve(ctx context.Context, dir shardmap.Directory, id, actor string) (committed bool, err error) {
	for range decideTries {
		cur, err := dir.Load(ctx)
		if err != nil {
			return false, directoryError(err)
		}
		entry, err := dir.Find(ctx, id)
		if err == nil {
			return entry.Op != OpRolledBack, nil
		}
		if !errors.Is(err, shardmap.ErrNotFound) {
			return false, directoryError(err)
		}
		_, err = dir.Update(ctx, shardmap.Change{
			Expect: cur.Version(), By: actor, Op: OpRolledBack, ID: id,
			Why: "schema change " + id + " was never decided",
		}, cur.State().Clone())
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, shardmap.ErrConflict) && !errors.Is(err, shardmap.ErrDuplicateID) {
			return false, directoryError(err)
		}
	}
	return false, directoryError(shardmap.ErrConflict)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// rebase loads the newer map and checks that the change can go on top of it.
// nil, nil: the change is in it already.
func (t *Tx) rebase(ctx context.Context) (*shardmap.Snapshot, error) {
	cur, err := t.opts.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	entries, err := History(ctx, t.opts.Directory, t.base.Version())
	if err != nil {
		return nil, err
	}
	if done, err := t.carriedOut(entries, t.id, cur.Version()); done || err != nil {
		return nil, err
	}
	// Guards were set from the base's ownership, and new keyspaces carry the
	// epoch that follows it.
	if len(t.made) > 0 {
		return nil, again("the shard map was changed meanwhile")
	}
	for name := range t.keyspaces {
		was, _ := t.base.Keyspace(name)
		is, ok := cur.Keyspace(name)
		if !ok || was == nil || !reflect.DeepEqual(was.Def(), is.Def()) {
			return nil, again("keyspace " + name + " was changed meanwhile")
		}
	}
	all := slices.ContainsFunc(t.statements, func(s Statement) bool { return s.AllShards })
	if all && !slices.Equal(shardSet(t.base), shardSet(cur)) {
		return nil, again("the shards are others now")
	}
	return cur, nil
}

// carriedOut looks for a change, and for others of its tables, in what was done up to a version.
func (c *changes) carriedOut(entries []shardmap.Entry, id string, version uint64) (done bool, err error) {
	for _, e := range entries {
		if e.Version > version {
			break
		}
		if e.ID == id {
			if e.Op == OpRolledBack {
				return false, again("it took too long and was rolled back by " + e.By)
			}
			return true, nil
		}
		for _, name := range e.Tables {
			if c.touched[name] {
				return false, again(name + " was changed by " + e.By + " meanwhile")
			}
		}
	}
	return false, nil
}

func shardSet(s *shardmap.Snapshot) []string {
	var names []string
	for _, sh := range s.Shards() {
		names = append(names, sh.Name)
	}
	slices.Sort(names)
	return names
}

// recordsOf are the statements by which the shards note the change, nil if nobody would ask. What it does to a table shows on
// each shard when it is committed there, as rows do.
func recordsOf(ctx context.Context, t *Tx, parts []*part) ([]string, error) {
	if !t.rows && (len(parts) < 2 || t.opts.Record == nil) {
		return nil, nil
	}
	names, records := make([]string, len(parts)), make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.shard
	}
	for i, p := range parts {
		var err error
		if records[i], err = t.opts.Record(ctx, t.id, p.shard, names); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// commitPrepared is the two-phase commit.
func (t *Tx) commitPrepared(ctx context.Context, parts []*part) error {
	records, err := recordsOf(ctx, t, parts)
	if err != nil {
		t.Rollback(ctx)
		return err
	}
	began, recorded := time.Now(), records != nil
	for i, p := range parts {
		if err := t.step("prepare", p.shard); err != nil {
			return t.crash(err)
		}
		sql := "PREPARE TRANSACTION " + quote(gid(t.id, p.shard))
		if recorded {
			sql = records[i] + ";" + sql
		}
		p.prepared = true
		if _, err := p.run(ctx, sql); err != nil {
			// An error that the shard reported has rolled its side back. If the
			// conversation broke, the side may be prepared: nobody else can decide
			// to commit it, and rollback, or later Recover, ends it.
			p.prepared = p.broken
			p.done = !p.broken && !recorded // the record may have failed, and the side is open
			t.Rollback(ctx)
			if own := sqlstate.As(err); own.Code == sqlstate.FeatureNotSupported && own.Hint == "" {
				told := *own
				err = told.WithHint("use temporary tables, LISTEN and cursors WITH HOLD before or after the transaction with the schema change; nothing was committed")
			}
			return err
		}
	}
	if err := t.step("prepared", ""); err != nil {
		return t.crash(err)
	}
	if recorded && time.Since(began) > recordMax {
		t.Rollback(ctx)
		return sqlstate.New(sqlstate.QueryCanceled, "preparing the transaction on %d shards took longer than %v: it was rolled back", len(parts), recordMax).
			WithHint("checks that are deferred to the end of the transaction may take long; run the schema change and the other statements in transactions of their own")
	}
	if err := t.decide(ctx, true); err != nil {
		if errors.Is(err, errDoubt) || errors.Is(err, errCrash) {
			return t.crash(err)
		}
		t.Rollback(ctx)
		return err
	}
	if err := t.step("decided", ""); err != nil {
		return t.crash(err)
	}
	// From here on nothing can stop the change, and nobody waits for a client.
	ctx = context.WithoutCancel(ctx)
	if err := t.followed(ctx); err != nil {
		t.finish()
		t.unfinished("any shard", sqlstate.As(err).Message+". ")
		return nil
	}
	if err := t.step("followed", ""); err != nil {
		return t.crash(err)
	}
	ctx, cancel := context.WithTimeout(ctx, finishMax)
	defer cancel()
	var late []string
	for _, p := range parts {
		if err := t.step("commit", p.shard); err != nil {
			return t.crash(err)
		}
		if err := t.commitPart(ctx, p); err != nil {
			late = append(late, p.shard)
			continue
		}
		p.prepared, p.done = false, true
	}
	t.finish()
	if len(late) > 0 {
		t.unfinished(strings.Join(late, ", "), "")
	}
	t.known(ctx)
	return nil
}

// unfinished says that shards have a decided change prepared only.
func (t *Tx) unfinished(where, why string) {
	t.notices = append(t.notices, &sqlstate.Error{
		Severity: "WARNING", Code: sqlstate.SuccessfulCompletion,
		Message: "the schema change is decided, but not finished on " + where,
		Detail:  why + "It is prepared there and holds its locks until it is finished.",
		Hint:    "a router finishes it some seconds after nothing is in the way any more; at once: cleave doctor --repair",
	})
}

// errCrash is wrapped by the errors of tests that stop a change between two steps.
var errCrash = errors.New("schema: stopped here")

// crash leaves everything as it is, as if the process had died: prepared
// transactions stay, open ones end with their conversations.
func (t *Tx) crash(err error) error {
	for _, p := range t.parts {
		p.broken = true
	}
	t.finish()
	return err
}

// commitPart commits a prepared side, over a new conversation if need be.
func (t *Tx) commitPart(ctx context.Context, p *part) error {
	sql := "COMMIT PREPARED " + quote(gid(t.id, p.shard))
	if !p.broken {
		_, err := p.run(ctx, sql)
		if err == nil || sqlstate.CodeOf(err) == sqlstate.UndefinedObject {
			return nil // undefined: Recover was faster, and read the same decision
		}
	}
	var err error
	for try := range finishTries {
		if err = elsewhere(ctx, t.opts.Connect, p.shard, sql); err == nil || sqlstate.CodeOf(err) == sqlstate.UndefinedObject {
			return nil
		}
		pause(ctx, finishPause<<try)
	}
	return err
}

// unprepare rolls a side back that is, or may be, prepared; what it cannot reach is
// left to Recover.
func (t *Tx) unprepare(ctx context.Context, p *part) {
	sql := "ROLLBACK PREPARED " + quote(gid(t.id, p.shard))
	if !p.broken {
		if _, err := p.run(ctx, sql); err == nil || !p.broken {
			return
		}
	}
	_ = elsewhere(ctx, t.opts.Connect, p.shard, sql)
}

// elsewhere runs a statement over a conversation of its own.
func elsewhere(ctx context.Context, connect Connect, shard, sql string) error {
	conn, release, err := connect(ctx, shard)
	if err != nil {
		return err
	}
	_, _, err = run(ctx, conn, sql)
	release(lost(err))
	return err
}

// commitUnprepared commits one shard after the other, with the map around it:
// see the package's description for the order and why.
func (t *Tx) commitUnprepared(ctx context.Context, parts []*part) error {
	if err := t.decide(ctx, false); err != nil {
		if errors.Is(err, errCrash) {
			return t.crash(err)
		}
		t.Rollback(ctx)
		if errors.Is(err, errDoubt) {
			e := sqlstate.As(err)
			e.Code, e.Retry = sqlstate.CannotConnectNow, sqlstate.RetryTransaction
			e.Detail = "Nothing was changed on the shards; the map may have an entry that cleave doctor takes out again."
			return e
		}
		return err
	}
	if err := t.step("decided", ""); err != nil {
		return t.crash(err)
	}
	ctx = context.WithoutCancel(ctx)
	if err := t.followed(ctx); err != nil { // nothing is committed yet: everything can be taken back
		for _, p := range parts {
			if !p.broken {
				_, _ = p.run(ctx, "ROLLBACK")
			}
			p.done = true
		}
		t.void(ctx)
		t.finish()
		return err
	}
	if err := t.step("followed", ""); err != nil {
		return t.crash(err)
	}
	ctx, cancel := context.WithTimeout(ctx, finishMax)
	defer cancel()
	var done, not, unknown []string
	var cause error
	for _, p := range parts {
		if err := t.step("commit", p.shard); err != nil {
			return t.crash(err)
		}
		_, err := p.run(ctx, "COMMIT")
		if err == nil {
			p.done = true
			done = append(done, p.shard)
			continue
		}
		if cause == nil {
			cause = err
		}
		landed, known := false, true
		if p.broken {
			landed, known = t.landed(ctx, p)
		}
		p.done = !p.broken
		switch {
		case landed:
			done = append(done, p.shard)
			continue
		case !known:
			unknown = append(unknown, p.shard)
		default:
			not = append(not, p.shard)
		}
		if len(done) == 0 && len(unknown) == 0 {
			// Nothing has landed anywhere, so everything can be taken back.
			for _, r := range parts {
				if !r.done && !r.broken {
					_, _ = r.run(ctx, "ROLLBACK")
				}
				r.done = true
			}
			t.void(ctx)
			t.finish()
			return err
		}
		// Something has landed: going on leaves less undone than stopping.
	}
	t.finish()
	if len(not)+len(unknown) > 0 {
		return partial(t.id, done, append(not, unknown...), cause)
	}
	if err := t.step("committed", ""); err != nil {
		return err
	}
	if err := t.removeDropped(ctx); err != nil {
		t.notices = append(t.notices, &sqlstate.Error{
			Severity: "WARNING", Code: sqlstate.SuccessfulCompletion,
			Message: "the tables are dropped, but the map still has them",
			Detail:  sqlstate.As(err).Message,
			Hint:    "cleave doctor --repair takes them out",
		})
	}
	t.known(ctx)
	return nil
}

// landed asks a shard whether it has the change, after its conversation broke
// during COMMIT.
func (t *Tx) landed(ctx context.Context, p *part) (landed, known bool) {
	if !t.marked[p.shard] {
		return false, false
	}
	for try := range finishTries {
		conn, release, err := t.opts.Connect(ctx, p.shard)
		if err == nil {
			var have map[string]bool
			have, err = noted(ctx, conn)
			release(err != nil)
			if err == nil {
				return have[t.id], true
			}
		}
		pause(ctx, finishPause<<try)
	}
	return false, false
}

// partial is the error of a change that only some shards have.
func partial(id string, done, not []string, cause error) error {
	have := "no shard has it for certain"
	if len(done) > 0 {
		have = "done on " + strings.Join(done, ", ")
	}
	e := sqlstate.Wrap(cause, sqlstate.TransactionUnknown, "the schema change stopped half way: %s; not done, or not known, on %s", have, strings.Join(not, ", ")).
		WithDetail("Change %s. These shards cannot prepare transactions, so it was committed on one after the other. Rows written in the same transaction are lost on the shards that do not have it. Cause: %s", id, sqlstate.As(cause).Message).
		WithHint("finish it with: cleave doctor --repair")
	e.Retry = sqlstate.RetryUnknown
	return e
}

// void takes a decided change out of the map again: no shard has it.
func (t *Tx) void(ctx context.Context) {
	err := updateMap(ctx, t.opts.Directory, func(cur *shardmap.Snapshot) (shardmap.Change, *shardmap.State, error) {
		next := cur.State().Clone()
		restore(&next, t.base, t.touched)
		if t.seen {
			was := t.base.State()
			next.Views, next.Functions, next.FunctionsRead = slices.Clone(was.Views), slices.Clone(was.Functions), was.FunctionsRead
			next.Acting = was.Acting
		}
		if t.declared {
			next.Declarations = slices.Clone(t.base.State().Declarations)
		}
		for name := range t.sequences {
			replaceSequence(&next, name, t.base.State().Sequences)
		}
		return shardmap.Change{By: t.opts.Actor, Why: "no shard has it", Op: OpRolledBack, ID: undoID(t.id)}, &next, nil
	})
	if err != nil {
		t.notices = append(t.notices, &sqlstate.Error{
			Severity: "WARNING", Code: sqlstate.SuccessfulCompletion,
			Message: "the shards have rolled the change back, but the map still has it",
			Hint:    "cleave doctor --repair takes it out",
		})
	}
}

// restore puts the tables back as they were in an older map.
func restore(next *shardmap.State, was *shardmap.Snapshot, touched map[string]bool) {
	for _, table := range slices.Clone(next.Tables) {
		if !touched[table.QualifiedName()] {
			continue
		}
		if old, ok := was.Table(table.Schema, table.Name); ok {
			next.PutTable(*old)
		} else {
			next.DropTable(table.Schema, table.Name)
		}
	}
	for _, old := range was.State().Tables {
		if touched[old.QualifiedName()] {
			next.PutTable(old)
		}
	}
}

// removeDropped takes the dropped tables out of the map once no shard has them. A table
// that somebody created again under the name since stays.
func (t *Tx) removeDropped(ctx context.Context) error {
	dropped := map[string]bool{}
	for _, table := range t.base.State().Tables {
		if !slices.ContainsFunc(t.state.Tables, func(o shardmap.Table) bool { return o.Schema == table.Schema && o.Name == table.Name }) {
			dropped[table.QualifiedName()] = true
		}
	}
	return removeTables(ctx, t.opts.Directory, t.opts.Actor, t.id, t.base.Version(), dropped)
}

// removeTables takes tables out of the map, except those that a change after
// version, other than id itself, concerned.
func removeTables(ctx context.Context, dir shardmap.Directory, actor, id string, version uint64, names map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	return updateMap(ctx, dir, func(cur *shardmap.Snapshot) (shardmap.Change, *shardmap.State, error) {
		entries, err := History(ctx, dir, version)
		if err != nil {
			return shardmap.Change{}, nil, err
		}
		keep := map[string]bool{}
		for _, e := range entries {
			if e.ID == id || e.Op == OpTruncate {
				continue
			}
			for _, name := range e.Tables {
				keep[name] = true
			}
		}
		next := cur.State().Clone()
		c := shardmap.Change{By: actor, Why: "dropped on all shards", Op: OpRemoved}
		for _, table := range cur.State().Tables {
			if name := table.QualifiedName(); names[name] && !keep[name] {
				next.DropTable(table.Schema, table.Name)
				c.Tables = append(c.Tables, name)
			}
		}
		if len(c.Tables) == 0 {
			return c, nil, nil
		}
		return c, &next, nil
	})
}

// updateMap changes the map by compare-and-set, again when somebody was faster.
// edit returns a nil state when nothing is left to do.
func updateMap(ctx context.Context, dir shardmap.Directory, edit func(cur *shardmap.Snapshot) (shardmap.Change, *shardmap.State, error)) error {
	for range decideTries {
		cur, err := dir.Load(ctx)
		if err != nil {
			return directoryError(err)
		}
		c, next, err := edit(cur)
		if err != nil || next == nil {
			return err
		}
		c.Expect = cur.Version()
		_, err = dir.Update(ctx, c, *next)
		if err == nil {
			return nil
		}
		if !errors.Is(err, shardmap.ErrConflict) {
			return directoryError(fmt.Errorf("schema: %w", err))
		}
	}
	return directoryError(shardmap.ErrConflict)
}
