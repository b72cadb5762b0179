package gateway

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// currval() and lastval() of sequences that are the default shard's own are kept by
// the session of that shard in which nextval() ran. The client's session has an
// executor.Counter, which knows where that is. A statement that asks for them runs
// there. If another client's session had to use that connection meanwhile, the
// values are gone: then the statement is refused, and never told that there are none.

// counts says that what is about to be sent may call nextval(), or asks for what it gave. On the
// conversation that the session keeps anything may: it has temporary views and functions. What takes no snapshot may not, and
// DISCARD SEQUENCES before it would take one.
func (b *shardConns) counts(u use) {
	c := b.pipe.Conn
	if c == nil || onSeveral(c) || u.blind || u.on != nil && sightless[u.on.Tag] || c != b.pin && (u.on == nil && u.readOnly || u.on != nil && !u.on.Counts()) {
		return
	}
	if c.Shard() == b.ex.Snapshot().State().DefaultShard {
		c.Count(b.counter)
	}
}

// counting reports whether a schema change may call nextval(): it may fill a column, or a materialized view.
func counting(st *planner.Statement) bool {
	if st.DDL.As != nil || st.DDL.Source != "" {
		return true
	}
	switch st.Tag {
	case "CREATE TABLE", "CREATE INDEX", "CREATE SEQUENCE", "CREATE VIEW", "CREATE FUNCTION", "CREATE PROCEDURE", "CREATE TYPE", "CREATE SCHEMA", "COMMENT", "GRANT", "REVOKE":
		return false
	}
	return !strings.HasPrefix(st.Tag, "DROP ")
}

// forgetSequences is DISCARD SEQUENCES.
func (x *prepared) forgetSequences() {
	x.sequences = sessionSequences{}
	x.shards.counter.End()
	x.shards.counter = new(executor.Counter)
}

// forgotten reports whether a shard's error, that a sequence has no value in this session, may be
// wrong. It may be a default's or a trigger's.
func (b *shardConns) forgotten(said *sqlstate.Error) bool {
	return said.Code == sqlstate.ObjectNotInState && b.counter.Lost() && (said.Routine == "lastval" || strings.HasPrefix(said.Routine, "currval"))
}

func errForgotten() error {
	return sqlstate.Refusal("CLV-0503", "the values that nextval() gave in this session are not known any more: the connection to the default shard that knew them is gone, or serves another session").
		WithHint("use INSERT ... RETURNING, or ask in the transaction that inserts")
}

// lastOwn is lastval() of a session that may have taken its last value from a
// sequence of the default shard's own. If it did not, it is last, which known says.
func (x *prepared) lastOwn(last int64, known bool) (int64, error) {
	at := x.shards.counter.Conn()
	inTx := at != nil && x.tx.conn != nil && several.TakesPart(x.tx.conn, at)
	switch {
	case x.shards.nowait:
		return 0, errWait
	case at == nil && !x.shards.counter.Lost():
		if known {
			return last, nil
		}
		return 0, errNoLastval()
	case known && (x.sequences.before || inTx):
		return 0, sqlstate.Refusal("CLV-0504", "lastval() is not certain: a statement since may have taken a value from a sequence of the default shard's own").
			WithHint("use INSERT ... RETURNING, or currval('name')")
	}
	x.srv.ex.KeepCounters()
	c := at
	switch {
	case inTx:
		if err := x.drain(); err != nil {
			return 0, err
		}
	case at != nil && at == x.shards.pin && !x.pipe.dirty: // nobody else has it
	default:
		if c = x.srv.ex.Recount(x.shards.counter, x.srv.ex.Snapshot().State().DefaultShard, x.gucs.Settings); c != nil {
			defer c.Release()
		}
	}
	if c != nil {
		v, none, err := c.Lastval(x.shards.exec)
		if err != nil {
			return 0, x.shards.shardSaid(c, err)
		}
		if !none {
			return v, nil
		}
	}
	saved := x.shards.counter.Last()
	switch {
	case saved == nil && (c == nil || x.shards.counter.Lost()), saved != nil && saved.Defined && inTx:
		return 0, errForgotten()
	case saved != nil && saved.Defined:
		return saved.Value, nil
	case known:
		return last, nil
	}
	return 0, errNoLastval()
}

func errNoLastval() error {
	return sqlstate.New(sqlstate.ObjectNotInState, "lastval is not yet defined in this session")
}
