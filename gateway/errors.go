package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
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
		WithHint("Leave the shard key alone in triggers BEFORE INSERT OR UPDATE, and write it in the statement; if there is no such trigger, `cleave verify` shows rows that a shard has and does not own.").
		WithDetail("A trigger changed the row's shard key, or the shard has rows that are not its own: position %s of keyspace \"%s\" %s.", said.Position, said.Keyspace, belongs)
	e.Shard, e.Keyspace, e.Schema, e.Table, e.Err = shard, said.Keyspace, report.Schema, report.Table, report
	return e
}

// Shards often get another text than the client wrote: with values that the router made, with
// views written out, without options of the router's. Where an error names a place, it is one of
// the client's text: the same word there, or none.

// placed gives an error that was said of the text sent its place in the client's.
func placed(err error, sent, client string) error {
	sh, ok := err.(*shardError)
	if !ok || sh.said.Position == 0 || sent == client {
		return err
	}
	return &shardError{said: sh.said, frame: replaced(sh.frame, 'P', func(string) string {
		if at := sqltext.Place(sent, sh.said.Position, client); at > 0 {
			return strconv.Itoa(at)
		}
		return ""
	})}
}

// replaced is an ErrorResponse with another value of a field, without the field if that is "".
func replaced(frame []byte, field byte, with func(was string) string) []byte {
	out, m := wire.Begin(nil, wire.ErrorResponse)
	body := frame[wire.Header:]
	for len(body) > 0 && body[0] != 0 {
		code := body[0]
		v, rest, ok := wire.CutString(body[1:])
		if !ok {
			return frame
		}
		if code == field {
			v = with(v)
		}
		if code != field || v != "" {
			out = wire.AppendString(append(out, code), v)
		}
		body = rest
	}
	return wire.End(append(out, 0), m)
}

// preparedError is an error whose place is one in the text of PREPARE, whatever text the statement is executed with.
type preparedError struct{ error }

// Unwrap gives the error, for errors.As.
func (e *preparedError) Unwrap() error { return e.error }

// ofPrepared marks an error that has a place in a prepared statement.
func ofPrepared(err error) error {
	var sh *shardError
	var se *sqlstate.Error
	if errors.As(err, &sh) && sh.said.Position > 0 || sh == nil && errors.As(err, &se) && se.Position > 0 {
		return &preparedError{err}
	}
	return err
}

// argumentWhere is the context in which a shard says that a parameter's value is none of its type.
var argumentWhere = regexp.MustCompile(`^unnamed portal parameter \$(\d+)( = '[^\n]*)?\n?`)

// ofArgument gives an error of a parameter's value the place of the argument in the text of EXECUTE, as PostgreSQL does.
func ofArgument(err error, st *plan.Statement) error {
	sh, ok := err.(*shardError)
	if !ok || sh.said.Position > 0 {
		return err
	}
	m := argumentWhere.FindStringSubmatch(sh.said.Where)
	if m == nil {
		return err
	}
	n, _ := strconv.Atoi(m[1]) // digits
	if n < 1 || n > len(st.Prepared.At) {
		return err
	}
	frame := replaced(sh.frame, 'W', func(was string) string { return argumentWhere.ReplaceAllString(was, "") })
	frame = wire.AppendString(append(frame[:len(frame)-1], 'P'), strconv.Itoa(st.Prepared.At[n-1]))
	frame = append(frame, 0)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-1))
	said := *sh.said
	said.Position = st.Prepared.At[n-1]
	return &shardError{said: &said, frame: frame}
}

// guardsName begins the names of the guards' functions, of which clients need not know.
const guardsName = "PL/pgSQL function cleave_internal."

// withoutGuard leaves the guards out of an error's context.
func withoutGuard(said *sqlstate.Error, frame []byte) []byte {
	if !strings.Contains(said.Where, guardsName) {
		return frame
	}
	return replaced(frame, 'W', func(was string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(was, "\n"), func(line string) bool { return strings.HasPrefix(line, guardsName) }), "\n")
	})
}

// The session's part in the router's lease on the directory
// (docs/design/leases.md). A unit begins a turn; no statement goes to a shard,
// and nothing of a shard's answer goes to the client, unless the lease was held
// since. One answer is exempt: that of a write of rows of one key outside of a
// transaction. The shard's guard has accepted them, so the shard owned the key,
// and the write has landed. That no row was found is not exempt: guards are
// asked about rows, and the key's may be elsewhere by now.

// leased refuses a statement before it goes to a shard.
func (x *unitRun) leased() error {
	if x.turn.Holds() {
		return nil
	}
	e := x.srv.ex.NotServing()
	e.Retry = sqlstate.RetrySafe
	return e
}

// leaseLost deals with an answer that errLease has stopped, and says what is
// known about the outcome; nil if cause is something else.
func (x *unitRun) leaseLost(cause error, end byte) error {
	if !errors.Is(cause, errLease) {
		return nil
	}
	c := x.pipe.Conn
	c.Break()
	wrote, inTx := x.pipe.wrote, x.tx.state != txNone && !x.pipe.outside()
	e := x.srv.ex.NotServing().OnShard(c.Shard())
	if inTx {
		x.loseTx()
		e.Hint = "the transaction was rolled back: run it again, here or on another router"
		e.Retry = sqlstate.RetryTransaction
		return e
	}
	x.pipe.release()
	if wrote && end != executor.Flush {
		e.Code, e.Retry = sqlstate.TransactionUnknown, sqlstate.RetryUnknown
		e.Hint = "some of the statements before Sync were writes: look whether they landed before you run them again"
		return e
	}
	e.Retry = sqlstate.RetryTransaction
	return e
}

// stale are the errors of a replica that the primary might not give: what it
// lacks or cannot do, and conflicts of its replay with reads.
func stale(code sqlstate.Code) bool {
	switch code {
	case sqlstate.SerializationFailure, "40P01", sqlstate.ReadOnlyTransaction, sqlstate.FeatureNotSupported, sqlstate.ObjectNotInState:
		return true
	}
	return strings.HasPrefix(string(code), "42") || strings.HasPrefix(string(code), "XX") || strings.HasPrefix(string(code), "58")
}

// onPrimary runs the unit again on the primary, after a replica's error, if that
// can be done.
func (x *unitRun) onPrimary() error {
	again := x.repeatable(reroutesMax)
	if !again {
		return nil
	}
	if err := x.undo(); err != nil {
		return nil
	}
	x.shards.primary = true
	return errAgain
}
