package gateway

import (
	"errors"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// link is the conversation that the session has in hand, with what was sent on it since its last Sync, or since it was
// borrowed. It is the transaction's own, or one beside it (outside), which release gives back.
//
//	          obtain                 used                    Sync answered
//	(none) ───────────▶ untouched ──────────▶ wrote, dirty ────────────────▶ wrote ──release──▶ (none)
//	                        │ what comes next may leave it      │ it may not: reachSeveral takes it over
//	                        ▼                                   ▼
//	                      (none)                           several shards
//
// sends and reroutable say what the messages have in common whose answers are awaited; flights and alone, whether the lease vouches
// for the answer (guardAnswer).
type link struct {
	executor.Pipeline
	tx *transaction

	// wrote: what Conn ran since it was acquired may have changed something.
	wrote bool
	// dirty: extended-protocol messages went to Conn since its last Sync.
	dirty bool
	// reroutable is what the sends messages to Conn have in common that await their answers, see sending.
	reroutable reroutability
	sends      int
	// flights counts what was sent since the last Sync, alone says whether it was one statement. See leaseLost.
	flights int
	alone   bool
	several bool // a write among it named more than one key
	// syncIgnored: the shard took the Sync of this unit for part of a COPY.
	syncIgnored bool
}

// forget is for the end of the transaction that Conn had: nothing was sent.
func (l *link) forget() { l.dirty, l.wrote, l.sends = false, false, 0 }

// reroutability says whether another shard could answer as well.
type reroutability uint8

const (
	anchored reroutability = iota // no: it is about rows of the shard
	free                          // yes, but the answer may take its time
	brief                         // yes, and the answer takes no time: descriptions, SET
)

// virtual reports whether the current conversation is with the virtual database.
func (l *link) virtual() bool { return l.Conn != nil && l.Conn.Shard() == virtualName }

// outside reports whether the current conversation is not the transaction's: it
// has to be given back.
func (l *link) outside() bool {
	c := l.Conn
	return c != nil && c != l.tx.conn && (l.tx.schema == nil || c.Shard() == virtualName)
}

// release gives pipe.Conn back, unless it is the transaction's.
func (l *link) release() {
	c, outside := l.Conn, l.outside()
	l.Reset()
	l.dirty, l.wrote, l.several, l.sends, l.flights = false, false, false, 0, 0
	if outside {
		c.Release()
	}
}

// yield gives back the conversation that the session has beside its transaction,
// if it has one. Code that forgets pipe.Conn while a transaction ends calls it before.
func (l *link) yield() {
	if !l.outside() || l.virtual() {
		return
	}
	if l.dirty || l.Waiting() || l.Skipping() {
		l.Conn.Break()
	}
	l.release()
}

// inSeveral reports whether the transaction, or the unit outside of one, has come
// to a conversation with several shards.
func (l *link) inSeveral() bool {
	return onSeveral(l.tx.conn) || l.tx.state == txNone && onSeveral(l.Conn)
}

// sending notes what is about to be sent on pipe.Conn.
func (l *link) sending(r reroutability) {
	if l.sends == 0 || r < l.reroutable {
		l.reroutable = r
	}
	l.sends++
}

// sent says what the messages that are sent now have in common, and begins anew.
func (l *link) sent() reroutability {
	l.counted()
	r := l.reroutable
	if l.sends == 0 || l.tx.state != txNone && !l.outside() && !l.tx.loose() {
		r = anchored
	}
	l.sends = 0
	return r
}

// counted notes whether what is sent now is one statement and the only thing
// that was sent since the last Sync.
func (l *link) counted() {
	l.flights++
	l.alone = l.flights == 1 && l.Statements() == 1
}

// guardAnswer is asked before a part of an answer goes to the client.
func (l *link) guardAnswer(b []byte) error {
	if l.tx.turn.Holds() || l.Conn == nil || l.virtual() {
		return nil
	}
	if l.tx.state == txNone && l.wrote && l.alone && !l.several && accepted(b) {
		return nil
	}
	return errLease
}

// errLease ends the relaying of an answer that the lease does not cover.
var errLease = errors.New("gateway: the lease ran out")

// accepted reports whether b, a part of the answer to a write, says nothing but
// what the shard's guard has vouched for: which rows were written. Rows count as
// such if the end of the answer is there too and says so.
func accepted(b []byte) bool {
	rows := false
	for len(b) > 0 {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return false
		}
		b = rest
		switch f.Type() {
		case wire.DataRow:
			rows = true
		case wire.CopyData:
			return false
		case wire.CommandComplete:
			if wire.Reads(f.Body()) {
				return false
			}
			rows = false
		}
	}
	return !rows
}

func (l *link) oidsError(err error) error {
	var se *sqlstate.Error
	switch {
	case err == nil || errors.As(err, &se):
		return err
	case errors.Is(err, executor.ErrUnknownOID):
		return errWait
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the OIDs of types could not be asked for").OnShard(l.Conn.Shard()).
		WithHint("nothing was done: run it again; `cleave doctor` says which shards answer")
}

// culprit is the shard whose error the last answer was.
func (l *link) culprit() string {
	c := l.Conn
	if sev, ok := c.Conn.(*several.Conn); ok && sev.Culprit() != "" {
		return sev.Culprit()
	}
	return c.Shard()
}

// copyFailed reports whether the shard has refused the data so far. silent: the client has sent nothing for a while.
func (l *link) copyFailed(silent bool) (bool, error) {
	if silent && onSeveral(l.Conn) {
		// What was collected for the shards goes to them.
		if err := l.Copy(wire.AppendEmpty(nil, wire.Flush)); err != nil {
			return false, err
		}
	}
	return l.Conn.Failed(), nil
}
