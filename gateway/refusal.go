package gateway

import (
	"fmt"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// notOwner deals with a guard's refusal: this router's map was old, or the shard's guard not yet new; or
// the row has another key than the statement was routed by.
func (x *unitRun) notOwner(report *sqlstate.Error) error {
	shard := x.pipe.culprit()
	version := x.unit.version
	if e := x.otherKey(report, shard); e != nil {
		_ = x.undo() // the statement has failed in any case
		return e
	}
	x.srv.refused()
	// While the map becomes newer, that a guard refuses is a matter of time.
	again := x.repeatable(x.srv.limits.RetriesMax + x.unit.newer)
	if err := x.undo(); err != nil {
		again = false
	}
	e := &sqlstate.Error{
		Code: sqlstate.SerializationFailure, Shard: shard, Err: report, Retry: sqlstate.RetryTransaction,
		Message: fmt.Sprintf("shard %s no longer owns the key of this statement (map version %d)", shard, version),
		Hint:    "nothing was committed: run the transaction again",
	}
	if !again {
		return e
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	newer := x.srv.ex.Newer(ctx, version)
	if ctx.Err() != nil {
		return userCancel(ctx.Err())
	}
	if newer && time.Since(x.stats.Began) < x.shards.holdTimeout() {
		x.unit.newer++
	}
	x.stats.Retried(shard)
	x.turn.Begin()
	x.unit.routedBy(x.srv.ex.Snapshot().Version())
	return errAgain
}

// otherKey is the error for a row that belongs to another shard already by the map with which the unit's
// statements were routed: none of them would have been sent there for it. A newer map would not change that,
// so they are not run again. nil: the refusal may be a matter of time, also where something of the row's
// place is being moved, when shards have rows that they do not own.
func (x *unitRun) otherKey(report *sqlstate.Error, shard string) error {
	said, ok := engine.ParseRefusal(report)
	if !ok || said.Position == "" || x.srv.ex.Snapshot().Version() != x.unit.version {
		return nil // by which map a statement was routed is known for as long as there is no newer one
	}
	snap, _ := x.snapshot()
	ix, ok := snap.Keyspace(said.Keyspace)
	if !ok {
		return nil
	}
	owner, moving, ok := ix.At(said.Position)
	if !ok || moving || owner == shard {
		return nil
	}
	belongs := "is of shard " + owner
	if owner == "" {
		belongs = "is of no shard"
	}
	e := sqlstate.Refusal("CLV-1209", `the shard key of a row of table "%s" is not the one by which the statement was sent to shard %s`, report.Table, shard).
		WithHint("leave the shard key alone in triggers BEFORE INSERT OR UPDATE, and write it in the statement; if there is no such trigger, `cleave verify` shows rows that a shard has and does not own").
		WithDetail("A trigger changed the row's shard key, or the shard has rows that are not its own: position %s of keyspace \"%s\" %s.", said.Position, said.Keyspace, belongs)
	e.Shard, e.Keyspace, e.Schema, e.Table, e.Err = shard, said.Keyspace, report.Schema, report.Table, report
	return e
}
