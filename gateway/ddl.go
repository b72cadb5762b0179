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
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/sqlstate"
)

// inService refuses a schema change while a shard is not used for everything: it concerns all.
func (x *session) inService(tag string) error {
	snap := x.srv.ex.Snapshot()
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

// ddl runs a schema change: in the open transaction, or in one of its own that
// ends with the message (the simple protocol) or the Sync (the extended).
func (x *session) ddl(st *planner.Statement) error {
	if x.temporary(st) {
		return x.temporaryDDL(st)
	}
	if st.Pins {
		return x.temporaryRows(st)
	}
	if slices.ContainsFunc(st.DDL.Unknown, func(n string) bool { return x.temps[n] }) {
		return sqlstate.Refuse("a temporary table in one statement with others is not supported", "use one statement for each")
	}
	if err := x.mayChangeSchema(st.Tag); err != nil {
		return err
	}
	if st.DDL.Strangers != nil {
		return st.DDL.Strangers
	}
	if len(st.DDL.Truncated) > 0 {
		if err := x.admit(st, nil); err != nil {
			return err
		}
	}
	if err := x.inService(st.Tag); err != nil {
		return err
	}
	x.unit.effects = true
	if err := x.drain(); err != nil {
		return err
	}
	var rows [][][]byte
	if st.DDL.Source != "" {
		var err error
		if rows, err = x.createSource(st.DDL.Source); err != nil {
			return err
		}
	}
	if st.DDL.Concurrent && x.tx.state != txNone {
		tag := st.Tag
		if tag != "VACUUM" && tag != "ANALYZE" {
			tag += " CONCURRENTLY"
		}
		return sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a transaction block", tag)
	}
	if v, ok := x.settings.Get("default_transaction_read_only"); ok && !hasModes(x.tx.begin) {
		switch strings.ToLower(strings.Trim(v, "'")) {
		case "on", "true", "yes", "1":
			return sqlstate.New(sqlstate.ReadOnlyTransaction, "cannot execute %s in a read-only transaction", st.Tag)
		}
	}
	if x.tx.readOnly {
		return sqlstate.New(sqlstate.ReadOnlyTransaction, "cannot execute %s in a read-only transaction", st.Tag)
	}
	x.writes.NoteAll()
	if x.tx.state == txNone {
		if x.pipe.Conn != nil {
			if x.wrote {
				return sqlstate.Refuse("a schema change after a write before the same Sync is not supported", "Sync before it")
			}
			if err := x.leave(); err != nil {
				return err
			}
		}
		x.beginTx(txImplicit, "BEGIN")
	}
	if x.pipe.Conn != nil && x.pipe.Conn != x.tx.conn {
		if err := x.leave(); err != nil {
			return err
		}
	}
	if x.tx.schema == nil {
		if err := x.beginSchema(); err != nil {
			return err
		}
	}
	ctx, done := x.waiting()
	tag, notices, err := x.tx.schema.Exec(ctx, st)
	done()
	if code := sqlstate.CodeOf(err); len(x.temps) > 0 && (code == sqlstate.UndefinedTable || code == sqlstate.UndefinedObject) && strings.HasPrefix(st.DDL.Op, "create ") {
		err = sqlstate.Refuse("what is made on every shard cannot name a temporary table ("+sqlstate.As(err).Message+")", "name tables that last")
	}
	for _, n := range notices {
		x.w.notice(n)
	}
	if err != nil {
		return x.schemaError(err)
	}
	if st.DDL.Source != "" {
		if err := x.createRows(st.DDL.Create.TableName, rows); err != nil {
			return err
		}
		tag = "SELECT " + strconv.Itoa(len(rows))
	}
	x.w.complete(tag)
	return nil
}

// schemaError is an error of the schema room for the client.
func (x *session) schemaError(err error) error {
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

// beginSchema makes the transaction a schema change.
func (x *session) beginSchema() error {
	if x.id.Login != nil {
		return x.denied("a schema change", access.Admin) // its conversations are not this user's
	}
	open := map[string]engine.Conn{}
	if onSeveral(x.tx.conn) {
		return sqlstate.Refuse("a schema change inside a transaction over several shards is not supported", "commit first, or make the schema change at the beginning of the transaction")
	}
	if c := x.tx.conn; c != nil {
		open[c.Shard()] = c
		x.tx.shard = c.Shard()
		if x.tx.weak {
			x.tx.shard = ""
		}
	} else if len(x.tx.log) > 0 || hasModes(x.tx.begin) {
		// What was deferred needs a shard to be true: the default shard, where
		// every schema change has a part.
		if err := x.bindTx(x.srv.ex.Snapshot().State().DefaultShard, use{readOnly: true}); err != nil {
			return err
		}
		x.pipe.Reset()
		open[x.tx.conn.Shard()] = x.tx.conn
	}
	ctx, done := x.waiting()
	defer done()
	// What the change is made from must not be older than what others committed.
	snap, err := x.srv.ex.Refresh(ctx)
	if err != nil {
		return userCancel(err)
	}
	tx, err := schema.Begin(ctx, schema.Options{
		Directory: x.srv.ex.Directory(),
		Connect:   x.tx.lent.connect(x.srv.ex.Connect),
		Prelude:   x.settings.Statements(),
		Open:      open,
		Actor:     x.start.User,
		Member:    x.srv.ex.Member(),
	}, snap)
	if err != nil {
		return userCancel(err)
	}
	// Savepoints from before are set again, for all shards: right only if
	// nothing was written since the first of them.
	for _, s := range x.tx.saves {
		if s.ran != x.tx.ran {
			return sqlstate.Refuse("a schema change after SAVEPOINT and other statements is not supported", "make the schema change before the SAVEPOINT, or in a transaction of its own")
		}
	}
	x.tx.schema = tx
	for _, s := range x.tx.saves {
		if err := tx.Savepoint(ctx, s.name); err != nil {
			return x.schemaError(err)
		}
	}
	return nil
}

// reachInSchema makes pipe.Conn the schema change's conversation with a shard.
// The other statements of the transaction all go to one shard.
func (x *session) reachInSchema(shard string, u use) error {
	if x.tx.shard != "" && x.tx.shard != shard {
		return x.elsewhere(shard, x.tx.shard, "the transaction")
	}
	ctx, done := x.waiting()
	defer done()
	ec, err := x.tx.schema.Conn(ctx, shard)
	if err != nil {
		return x.schemaError(err)
	}
	c, ok := ec.(*executor.Conn)
	if !ok {
		return sqlstate.New(sqlstate.InternalError, "the schema change has a conversation of another kind")
	}
	if c != x.tx.conn && c.Settings() == nil {
		c.SetSettings(x.tx.before)
	}
	x.pipe.Conn = c
	if !u.weak {
		x.tx.shard = shard
	}
	x.used(u)
	return x.localSettings(c)
}

// schemaSavepoint runs savepoints of a schema change.
func (x *session) schemaSavepoint(st *planner.Statement) error {
	if err := x.drain(); err != nil {
		return err
	}
	ctx, done := x.waiting()
	defer done()
	switch st.Tx.Op {
	case "savepoint":
		return x.schemaError2(x.tx.schema.Savepoint(ctx, st.Tx.Name))
	case "release":
		return x.schemaError2(x.tx.schema.Release(ctx, st.Tx.Name))
	}
	return x.schemaError2(x.tx.schema.RollbackTo(ctx, st.Tx.Name))
}

func (x *session) schemaError2(err error) error {
	if err == nil {
		return nil
	}
	return x.schemaError(err)
}

// commitSchema ends a transaction with schema changes, and waits until the
// router serves the map that has them.
func (x *session) commitSchema(commit bool) error {
	if x.pipe.Conn != nil {
		if x.dirty {
			if _, err := x.converse(executor.Sync); err != nil {
				commit = false
			}
		}
		x.pipe.Reset()
	}
	tx := x.tx.schema
	if !commit {
		ctx, stop := timeLeft()
		tx.Rollback(ctx)
		stop()
		x.finishTx(false)
		return nil
	}
	ctx, done := x.waiting()
	err := tx.Commit(ctx)
	done()
	for _, n := range tx.Notices() {
		x.w.notice(n)
	}
	if err == nil {
		x.retire(tx.Retired())
	}
	x.finishTx(err == nil)
	limit, stop := context.WithTimeout(context.Background(), x.srv.limits.CancelMax)
	defer stop()
	if _, rerr := x.srv.ex.Refresh(limit); rerr != nil && err == nil {
		x.w.warning(sqlstate.CannotConnectNow, "the schema change is committed, but this router could not read the new map yet")
	}
	if err != nil {
		return x.schemaError(err)
	}
	return nil
}
