package gateway

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/sqlstate"
)

// inService refuses a schema change while a shard is not used for everything: it concerns all.
func (s *Server) inService(tag string) error {
	snap := s.ex.Snapshot()
	if !snap.Restricted() {
		return nil
	}
	for _, s := range snap.Shards() {
		if err := snap.Refusal(s.Name, tag != "VACUUM" && tag != "ANALYZE"); err != nil {
			return err
		}
	}
	return nil
}

// ddl answers a schema change.
func (x *commands) ddl(st *plan.Statement) error {
	if err := x.shards.temps.refuseTyped(st); err != nil {
		return err
	}
	if x.shards.temps.only(st) {
		return x.temporaryDDL(st)
	}
	if st.Pins {
		return x.temporaryRows(st)
	}
	tag, err := x.changeSchema(st)
	if err == nil {
		x.w.complete(tag)
	}
	return err
}

// changeSchema runs a schema change: in the open transaction, or in one of its own that
// ends with the message (the simple protocol) or the Sync (the extended). It returns the command's tag.
func (x *commands) changeSchema(st *plan.Statement) (tag string, err error) {
	if err := x.mayChange(st); err != nil {
		return "", err
	}
	x.unit.effects = true
	if err := x.drain(); err != nil {
		return "", err
	}
	var rows [][][]byte
	if st.DDL.Source != "" {
		var err error
		if rows, err = x.createSource(st.DDL.Source); err != nil {
			return "", err
		}
	}
	if err := x.mayWrite(st.Tag); err != nil {
		return "", err
	}
	x.shards.writes.NoteAll()
	if err := x.joinSchema(st.DDL.Concurrent); err != nil {
		return "", err
	}
	if err := x.alike(); err != nil {
		return "", err
	}
	if err := x.bounds(st.DDL.Sequences); err != nil {
		return "", err
	}
	as, text := st.DDL.As, st.Text
	if as != nil {
		if st, err = x.createAs(as, text); err != nil {
			return "", err
		}
	}
	if tag, err = x.execChange(st); err != nil {
		return "", err
	}
	if as != nil {
		if tag, err = x.insertAs(as, text); err != nil {
			return "", err
		}
	}
	if st.DDL.Source != "" {
		if err := x.createRows(st.DDL.Create.TableName, rows); err != nil {
			return "", err
		}
		tag = "SELECT " + strconv.Itoa(len(rows))
	}
	if st.DDL.Concurrent {
		// It is done: what follows it before the Sync is another transaction.
		if err := x.endImplicit(true); err != nil {
			return "", err
		}
	}
	return tag, nil
}

// mayChange refuses a schema change before anything is done for it.
func (x *commands) mayChange(st *plan.Statement) error {
	if slices.ContainsFunc(st.DDL.Unknown, x.shards.temps.isRelation) {
		return sqlstate.Refusal("CLV-0803", "a temporary table in one statement with others is not supported").
			WithHint("Use one statement for each.")
	}
	if err := x.id.MayChangeSchema(st.Tag); err != nil {
		return err
	}
	if st.DDL.Concurrent {
		if err := x.notInBlock(concurrentTag(st)); err != nil {
			return err
		}
	}
	if st.DDL.Refused != nil {
		return st.DDL.Refused
	}
	if len(st.DDL.Truncated) > 0 {
		if err := x.admit(st, nil); err != nil {
			return err
		}
	}
	return x.srv.inService(st.Tag)
}

// execChange runs the schema change that the transaction has become part of.
func (x *commands) execChange(st *plan.Statement) (tag string, err error) {
	ctx, done := x.interrupts.waiting()
	// What it is planned from is read again under the lock of schema changes. It may wait for that lock, whose owner
	// waits until this router goes by its map.
	x.runs(&underLock)
	if counting(st) {
		x.shards.counter.Forget()
	}
	tag, notices, err := x.tx.schema.Exec(ctx, st)
	done()
	if code := sqlstate.CodeOf(err); (code == sqlstate.UndefinedTable || code == sqlstate.UndefinedObject) && x.shards.temps.named(sqlstate.As(err).Message) && strings.HasPrefix(st.DDL.Op, "create ") {
		err = sqlstate.Refusal("CLV-0804", "what is made on every shard cannot name a temporary table (%s)", sqlstate.As(err).Message).
			WithHint("Name tables that last.")
	}
	for _, n := range notices {
		x.w.notice(n)
	}
	if err != nil {
		return "", schemaError(err)
	}
	return tag, nil
}

// concurrentTag is a command that no transaction can hold, as PostgreSQL calls it in errors.
func concurrentTag(st *plan.Statement) string {
	switch st.Tag {
	case "VACUUM", "ANALYZE":
		return st.Tag
	case "ALTER TABLE":
		return st.Tag + " ... DETACH CONCURRENTLY"
	}
	return st.Tag + " CONCURRENTLY"
}

// notInBlock refuses a statement that ends its transaction itself where others belong to it.
func (x *commands) notInBlock(tag string) error {
	switch {
	case x.tx.state != txOpen && x.unit.executed:
		return sqlstate.New(sqlstate.ActiveTransaction, "%s cannot be executed within a pipeline", tag)
	case x.tx.state != txNone:
		return sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a transaction block", tag)
	}
	return nil
}

// schemaError is an error of the schema room for the client.
func schemaError(err error) error {
	if errors.Is(err, context.Canceled) {
		return userCancel(err)
	}
	if l := engine.Lost(err); l != nil {
		var se *sqlstate.Error
		if !errors.As(err, &se) {
			return &sqlstate.Error{Code: sqlstate.SerializationFailure, Shard: l.Shard, Err: err, Retry: sqlstate.RetryTransaction,
				Message: "the connection to shard " + l.Shard + " was lost: the schema change was rolled back", Hint: "nothing was committed: run it again"}
		}
	}
	return err
}

// joinSchema makes what follows a part of a schema change: of the open transaction's, or of one of its own (see changeSchema).
func (x *commands) joinSchema(alone bool) error {
	x.unit.effects = true
	if err := x.drain(); err != nil {
		return err
	}
	if x.tx.state == txNone {
		if x.pipe.Conn != nil {
			if x.pipe.wrote {
				return sqlstate.Refusal("CLV-0915", "a schema change after a write before the same Sync is not supported").
					WithHint("Sync before it.")
			}
			if err := x.leave(); err != nil {
				return err
			}
		}
		x.tx.begins(txImplicit, "BEGIN")
	}
	if x.pipe.Conn != nil && x.pipe.Conn != x.tx.conn {
		if err := x.leave(); err != nil {
			return err
		}
	}
	if x.tx.schema == nil {
		if err := x.beginSchema(alone); err != nil {
			return err
		}
	}
	if onSeveral(x.tx.conn) {
		return x.tx.conn.Conn.(*several.Conn).Idle()
	}
	return nil
}

// beginSchema makes the transaction a schema change. alone: it holds nothing but a statement that no transaction can hold.
func (x *commands) beginSchema(alone bool) error {
	if x.id.Login != nil {
		return x.id.Denied("a schema change", access.Admin) // its conversations are not this user's
	}
	if onSeveral(x.tx.conn) && slices.ContainsFunc(x.tx.open.Modes, namesConstraints) {
		return errConstraints()
	}
	begin := ""
	// Constraints that are named are those of the shard where that was said.
	if modes := slices.DeleteFunc(slices.Clone(x.tx.open.Modes), namesConstraints); settings.HasModes(x.tx.begin()) || len(modes) > 0 {
		begin = strings.Join(append([]string{x.tx.begin()}, modes...), ";")
	}
	if err := x.bindSchema(alone, begin); err != nil {
		return err
	}
	c := x.tx.conn
	if err := x.tx.open.Settled(); err != nil {
		return err
	}
	var saves []string
	for name := range x.tx.open.Saves.All() {
		saves = append(saves, name)
	}
	open := map[string]engine.Conn{}
	for _, p := range x.tx.open.Joined {
		open[p.Shard] = p.Conn
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	// What the change is made from must not be older than what others committed.
	snap, err := x.srv.ex.Refresh(ctx)
	if err != nil {
		return userCancel(err)
	}
	tx, err := schema.Begin(ctx, schema.Options{
		Directory: x.srv.ex.Directory(),
		Connect:   x.srv.ex.ConnectFor(x.gucs.Defaults, &x.shards.holder),
		Prelude:   x.gucs.Settings.Statements(),
		Open:      open,
		Begin:     begin,
		Saves:     saves,
		Actor:     x.start.User,
		Admin:     x.id.Role == access.Admin,
		Member:    x.srv.ex.Member(),
		Record:    x.srv.several.Transactions().Record,
		Waits:     x.srv.several.Transactions().AwaitsLocks,
		// The session's own bound, if it has one, else the default.
		LockTimeout: settings.LockTimeout(x.gucs.Settings),
	}, snap)
	if err != nil {
		return userCancel(err)
	}
	x.gucs.Timed = true
	x.tx.open.Becomes(change{&x.unitRun})
	x.tx.schema, x.tx.opened = tx, x.gucs.Settings.Patient()
	if !onSeveral(c) {
		x.tx.conn = nil // pipe.Conn is one of the schema change's from now on
	}
	return nil
}

// bindSchema says on which shard the transaction is that a schema change joins, and makes sure that it is on one where what
// it did so far needs that.
func (x *commands) bindSchema(alone bool, begin string) error {
	x.tx.shard = ""
	switch c := x.tx.conn; {
	case onSeveral(c):
	case c != nil:
		if !x.tx.weak {
			x.tx.shard = c.Shard()
		}
	case len(x.tx.log) > 0 || begin != "" || x.shards.pin != nil && !alone:
		// What was deferred needs a shard to be true: the default shard, where
		// every schema change has a part. There is what the session keeps.
		if err := x.bindTx(x.srv.ex.Snapshot().State().DefaultShard, use{readOnly: true}); err != nil {
			return err
		}
		x.pipe.Reset()
	}
	return nil
}

// namesConstraints reports whether a mode of the transaction is SET CONSTRAINTS with names.
func namesConstraints(mode string) bool {
	names, _ := utility.NamedConstraints(mode)
	return len(names) > 0
}

func errConstraints() error {
	return sqlstate.Refusal("CLV-1016", "SET CONSTRAINTS of some constraints is not supported in a transaction with a schema change and statements over several shards").
		WithHint("Run SET CONSTRAINTS ALL.")
}

// reachInSchema makes pipe.Conn the schema change's conversation with a shard.
// The other statements of the transaction all go to one shard.
func (x *unitRun) reachInSchema(shard string, u use) error {
	if x.tx.shard != "" && x.tx.shard != shard {
		return x.reachSeveral(u)
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	c, err := x.schemaConn(ctx, shard)
	if err != nil {
		return schemaError(err)
	}
	if x.tx.undone {
		if err := x.alike(); err != nil {
			return err
		}
	}
	x.pipe.Conn = c
	if !u.weak {
		x.tx.shard = shard
	}
	x.used(u)
	return x.shards.localSettings(c)
}

// schemaConn is the schema change's conversation with a shard.
func (x *unitRun) schemaConn(ctx context.Context, shard string) (*executor.Conn, error) {
	ec, err := x.tx.schema.Conn(ctx, shard)
	if err != nil {
		return nil, err
	}
	c, ok := ec.(*executor.Conn)
	if !ok {
		return nil, sqlstate.New(sqlstate.InternalError, "the schema change has a conversation of another kind")
	}
	if x.tx.open.Find(shard) == nil {
		if c.Settings() == nil {
			c.SetSettings(x.tx.opened)
		}
		x.tx.open.Opened(c)
	}
	c.Soil() // what the session sets on it ends with the transaction, or does not
	x.tx.uses(shard, x.unit.version)
	return c, nil
}

// alike gives all conversations of the schema change the session's settings, where a SET or a ROLLBACK TO may have made
// them differ: the next statement is to do the same on every shard. All are opened then, so that none begins with others.
func (x *unitRun) alike() error {
	ctx, done := x.interrupts.waiting()
	defer done()
	open := func(names []string) (list []*executor.Conn, err error) {
		for _, shard := range names {
			c, err := x.schemaConn(ctx, shard)
			if err != nil {
				return nil, schemaError(err)
			}
			list = append(list, c)
		}
		return list, nil
	}
	list, err := open(x.tx.schema.Shards())
	if err != nil {
		return err
	}
	want := x.gucs.Settings.Patient()
	if err := x.shards.calm(list, want); err != nil {
		return err
	}
	if !x.tx.undone && x.tx.opened.Equal(want) && !slices.ContainsFunc(list, func(c *executor.Conn) bool { return !c.Settings().Equal(want) }) {
		return nil
	}
	var names []string
	for _, s := range x.tx.schema.Snapshot().Shards() {
		names = append(names, s.Name)
	}
	if list, err = open(names); err != nil {
		return err
	}
	seen := []*executor.Settings{x.tx.opened, x.gucs.Before, x.gucs.Settings.Timed()}
	for _, s := range x.tx.saved {
		seen = append(seen, s.Settings)
	}
	for _, c := range list {
		seen = append(seen, c.Settings())
	}
	changes := strings.Join(want.Alike(seen...), ";")
	for _, c := range list {
		if changes != "" {
			if _, err := x.shards.exec(c, changes); err != nil {
				return x.shards.shardSaid(c, err)
			}
		}
		c.SetSettings(want)
	}
	x.tx.opened, x.tx.undone = want, false
	return nil
}

// calm takes the timeouts of the session's start from conversations that differ from want, the settings of the schema change, in
// nothing else: statements of the client ran on them.
func (b *shardConns) calm(list []*executor.Conn, want *executor.Settings) error {
	for _, c := range list {
		if has := c.Settings(); b.tx.undone || has.Equal(want) || !has.Timed().Equal(b.gucs.OnShards()) {
			continue
		}
		if _, err := b.exec(c, strings.Join(c.LocalChanges(want), ";")); err != nil {
			return b.shardSaid(c, err)
		}
		c.SetSettings(want)
	}
	return nil
}

// change is the session's schema change as the transaction sees it.
type change struct{ x *unitRun }

// Open opens the transaction on a shard.
func (c change) Open(ctx context.Context, shard string) error {
	if _, err := c.x.schemaConn(ctx, shard); err != nil {
		return sqlstate.As(schemaError(err))
	}
	return nil
}

// Savepoint keeps the savepoints of all shards the same, and those of the private map.
func (c change) Savepoint(ctx context.Context, op, name string) error {
	tx := c.x.tx.schema
	switch op {
	case "savepoint":
		return schemaError(tx.Savepoint(ctx, name))
	case "release":
		return schemaError(tx.Release(ctx, name))
	}
	c.x.tx.undone = true
	return schemaError(tx.RollbackTo(ctx, name))
}

// severalInSchema goes over to a conversation with several shards that the schema change owns.
func (x *unitRun) severalInSchema(u use) error {
	ctx, done := x.interrupts.waiting()
	defer done()
	if err := x.drain(); err != nil {
		return err
	}
	if x.pipe.dirty {
		if _, err := x.converse(executor.Sync); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(x.tx.open.Modes, namesConstraints) {
		return errConstraints()
	}
	at := x.tx.shard
	if at == "" {
		at = x.tx.schema.Snapshot().State().DefaultShard
	}
	if err := txn.CheckMode(x.gucs.Settings, at, several.Name); err != nil {
		return err
	}
	if x.tx.serializable() {
		return txn.CheckIsolation("serializable", at, several.Name)
	}
	for _, shard := range x.tx.schema.Shards() {
		if _, err := x.schemaConn(ctx, shard); err != nil {
			return schemaError(err)
		}
	}
	x.tx.open.ReadOnly = false // the schema change has written
	// The time of the transaction is that of the shard where its statements ran.
	x.tx.open.First(x.tx.shard)
	x.pipe.Reset()
	x.pipe.dirty = false
	x.tx.conn = x.spread(x.tx.open, nil, nil)
	x.tx.weak, x.tx.shard = false, ""
	x.used(u)
	return nil
}

// rests stops what runs on several shards, before the schema change ends the transaction, and returns the shards on which it
// wrote.
func (x *unitRun) rests() (wrote []string) {
	if c := x.tx.conn; onSeveral(c) {
		c.Conn.(*several.Conn).Rest()
		if x.pipe.Conn == c {
			x.pipe.Reset()
		}
		x.tx.conn = nil
		c.Release()
	}
	return x.tx.open.Wrote()
}

// schemaSavepoint runs savepoints of a schema change.
func (x *commands) schemaSavepoint(st *plan.Statement) error {
	ctx, done := x.interrupts.waiting()
	defer done()
	switch st.Tx.Op {
	case "savepoint":
		return schemaError(x.tx.schema.Savepoint(ctx, st.Tx.Name))
	case "release":
		return schemaError(x.tx.schema.Release(ctx, st.Tx.Name))
	}
	x.tx.undone = true
	return schemaError(x.tx.schema.RollbackTo(ctx, st.Tx.Name))
}

// giveUpSchema rolls back a failed transaction with schema changes that no savepoint can bring back, although the client
// has not said ROLLBACK: others need not wait for its locks until then.
func (x *unitRun) giveUpSchema() {
	if x.pipe.Conn != nil {
		x.pipe.Reset()
	}
	x.rests()
	ctx, stop := timeLeft()
	x.tx.schema.Rollback(ctx)
	stop()
}

// underLock stands for a schema change in [leaseuse.Turn.On].
var underLock plan.Statement

// commitSchema ends a transaction with schema changes, and waits until the
// router serves the map that has them.
func (x *unitRun) commitSchema(commit bool) (err error) {
	if x.pipe.Conn != nil {
		if x.pipe.dirty {
			_, err = x.converse(executor.Sync)
		}
		x.pipe.Reset()
	}
	tx := x.tx.schema
	wrote := x.rests()
	if commit && err == nil && len(wrote) > 1 {
		err = host{x}.Holds()
	}
	if !commit || err != nil {
		ctx, stop := timeLeft()
		tx.Rollback(ctx)
		stop()
		if x.finishTx(false); !commit {
			return nil
		}
		return err
	}
	noteTemporary(tx, &x.shards)
	ctx, done := x.interrupts.waiting()
	x.turn.Pause() // the change waits until nobody runs anything by an older map, and this session is at its end
	err = x.commitChange(ctx, len(wrote) > 1)
	x.turn.Resume()
	done()
	for _, n := range tx.Notices() {
		x.w.notice(n)
	}
	if err == nil {
		x.srv.retire(tx.Retired())
	}
	x.finishTx(err == nil)
	limit, stop := context.WithTimeout(context.Background(), x.srv.limits.CancelMax)
	defer stop()
	if _, rerr := x.srv.ex.Refresh(limit); rerr != nil && err == nil {
		x.w.warning(sqlstate.CannotConnectNow, "the schema change is committed, but this router could not read the new map yet")
	}
	if err != nil {
		return schemaError(err)
	}
	return nil
}

// noteTemporary says that the change cannot be prepared, if temporary tables were used in its transaction.
func noteTemporary(tx *schema.Tx, shards *shardConns) {
	if tx.Changed() && shards.usesTemporary() {
		tx.Unprepared()
	}
}

// commitChange commits the schema change itself; rows: rows were written on several shards in its transaction.
func (x *unitRun) commitChange(ctx context.Context, rows bool) error {
	tx := x.tx.schema
	switch {
	case !rows:
		return tx.Commit(ctx)
	case tx.Changed():
		tx.Rows()
		return tx.Commit(ctx)
	}
	return x.commitRows(ctx)
}

// commitRows commits a schema change that has changed nothing (IF NOT EXISTS, REINDEX), with the rows that were written on
// several shards in its transaction.
func (x *unitRun) commitRows(ctx context.Context) error {
	tx := x.tx.schema
	var parts []*txn.Participant
	for _, shard := range tx.Shards() {
		c, err := x.schemaConn(ctx, shard)
		if err != nil {
			tx.Rollback(ctx)
			return err
		}
		parts = append(parts, &txn.Participant{Shard: shard, Conn: c, Wrote: true})
	}
	committed, frames, err := x.srv.several.Transactions().Commit(ctx, parts)
	x.w.buf = append(x.w.buf, frames...)
	tx.Ended()
	if err == nil && !committed {
		err = inFailed()
	}
	return err
}
