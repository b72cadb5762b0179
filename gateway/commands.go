package gateway

import (
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// commands are the statements that the router carries out itself, or with shards: transaction control, SET, schema changes,
// PREPARE and EXECUTE, EXPLAIN, DO, LISTEN, SET ROLE and Cleave's functions. Each is one method; the session calls it with a
// statement that was planned and is allowed.
type commands struct {
	prepared

	// message is the text of the simple query at hand, nil where there is none.
	message []byte
	// before is what stands before the statement in its message of several; a PREPARE keeps it.
	before string
	// coming are the client's frames at hand that come after the one that is handled.
	coming []byte
	// runLocally answers a statement that no shard runs.
	runLocally func(st *planner.Statement, args *planner.Args) error
}

// prepared are statements with parameters: where they go, the types and values of their parameters, those values that the router
// itself makes, and the one that was parsed and is not sent yet.
//
//	Parse ─▶ pending ──resolve (Flush, another statement)──▶ prepared on its shard
//	            └────────────── Bind says which shard ─────▶ prepared there, bound
type prepared struct {
	unitRun

	pending *statement       // parsed, not sent to a shard yet
	bound   wire.BindMessage // the last Bind, of whose parameters args were made
	args    planner.Args
	// virtualReads are the tables of the directory that the virtual database has.
	virtualReads directoryTables
}

// listen runs LISTEN and UNLISTEN.
func (x *commands) listen(l *planner.Listen) error {
	inTx := x.tx.state != txNone
	switch {
	case !l.Off:
		ctx, done := x.interrupts.waiting()
		defer done()
		return userCancel(x.listener.Listen(ctx, l.Channel, inTx))
	case inTx:
		return x.listener.UnlistenAtCommit(l.Channel)
	}
	// PostgreSQL has told an idle session already what was notified before.
	if err := x.deliver(); err != nil {
		return err
	}
	x.listener.Unlisten(l.Channel)
	return nil
}

// deliver hands over the notifications that have arrived, outside of a transaction.
func (x *unitRun) deliver() error {
	if x.tx.state == txOpen || !x.listener.Listens() {
		return nil
	}
	return x.listener.Deliver(func(f wire.Frame) error { return x.w.put(f) })
}

// deliverIdle delivers while the client is idle. An error ends the session.
func (x *session) deliverIdle() error {
	if x.tx.state != txNone || x.unit.open {
		return nil
	}
	err := x.deliver()
	if err == nil && len(x.w.buf) > 0 {
		err = x.w.flush()
	}
	if err != nil {
		return x.broken(err)
	}
	return nil
}
