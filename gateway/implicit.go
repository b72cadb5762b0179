package gateway

import (
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// Messages of the extended protocol up to a Sync are one transaction. A shard knows of that by itself. What the router carries out is
// taken back with it as well, where an error comes behind: SET, RESET, DISCARD TEMP, set_config(), SET TRANSACTION and LISTEN.

// undoable reports whether a statement of the router's own ends with its transaction, if that is rolled back.
func undoable(st *planner.Statement) bool {
	return st.Kind == planner.ListenKind || st.Kind == planner.TxKind && st.Tx.Op == "set" || st.Kind == planner.SetKind && st.Set.Op != "show" && (st.Set.Op != "discard" || st.Set.What == "temp")
}

// implicitly makes the messages up to the next Sync an implicit transaction, unless the statement at hand is the only one among them.
// executes says how many Execute messages of it are still to come.
func (x *commands) implicitly(executes int) error {
	if x.tx.state != txNone || x.message != nil || !x.unit.executed && x.lastOfUnit(executes) {
		return nil
	}
	return x.inTransaction()
}

// inTransaction makes the messages up to the next Sync an implicit transaction, if there is none.
func (x *unitRun) inTransaction() error {
	if x.tx.state != txNone {
		return nil
	}
	if err := x.joinUnit(); err != nil || x.tx.state != txNone {
		return err
	}
	x.tx.begins(txImplicit, "BEGIN")
	x.tx.snapped = x.unit.snapped
	return nil
}

// lastOfUnit reports whether the client's messages up to Sync are known, and begin no other statement.
func (x *commands) lastOfUnit(executes int) bool {
	for b := x.coming; len(b) > 0; {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return false
		}
		switch b = rest; f.Type() {
		case wire.Sync:
			return true
		case wire.Execute:
			if executes--; executes < 0 {
				return false
			}
		case wire.Describe, wire.Close:
		default:
			return false
		}
	}
	return false
}

// joinUnit leaves the conversation of the messages since the last Sync. If they wrote, or share a snapshot, their transaction becomes an
// implicit one of the session.
func (x *unitRun) joinUnit() error {
	if x.shards.nowait {
		return errWait
	}
	c := x.pipe.Conn
	if c == nil || x.pipe.virtual() || !x.pipe.wrote && !(x.gucs.oneSnapshot() && x.pipe.dirty) {
		return x.leave()
	}
	if err := x.drain(); err != nil {
		return err
	}
	if x.pipe.Conn != c { // a statement that waited to be parsed has brought it elsewhere
		return x.joinUnit()
	}
	wrote, since := x.pipe.wrote, x.srv.ex.Snapshot()
	if _, err := x.shards.exec(c, "BEGIN"); err != nil {
		c.Break()
		x.pipe.release()
		return x.shards.shardSaid(c, err)
	}
	x.tx.begins(txImplicit, "BEGIN")
	x.tx.conn, x.tx.weak, x.tx.since, x.tx.snapped = c, false, since, true
	if x.pipe.dirty = false; wrote {
		x.tx.ran = 1
	}
	if !onSeveral(c) { // which says so itself
		x.tx.uses(c.Shard(), x.unit.version)
	}
	return nil
}
