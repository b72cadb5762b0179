package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/gateway/notify"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// session is one client's conversation: it reads the client's messages, plans what they say, and has it run, by itself, by its
// commands, or on shards. Its goroutine is the only one that touches it, but for the interrupts and the atomic fields.
//
// It is made of layers, each of which knows those below it and none above:
//
//	session    the client's messages: frames, units, simple and extended protocol, the lane
//	commands   what the router carries out itself: SET, BEGIN, DDL, PREPARE, EXPLAIN, ...
//	prepared   statements with parameters: types, values, where they go
//	unitRun    reach a shard, send, relay, end transactions; what is known after a loss
//	parts      transaction, link, shardConns, gucs, interrupts, planning, stats, listener
type session struct {
	commands

	socket net.Conn        // nc, or what is under its TLS
	raw    syscall.RawConn // of nc, nil if it has none
	left   leaver          // nc, if it is one
	secret uint32
	began  time.Time

	gone    chan struct{} // closed when the session has ended
	trimmed atomic.Bool   // the buffers were given up

	skip    bool   // messages are ignored until Sync, after an error
	unnamed portal // the unnamed portal, to be used again and again
	shaper  sqltext.Shaper

	over bool // the client said Terminate

	lane laned
}

// replayMax bounds the frames kept for running a unit again.
const replayMax = 256 << 10

func newSession(s *Server, nc net.Conn, start arrival.Startup, defaults *executor.Settings, profile map[string]string) *session {
	x := &session{raw: rawConn(nc), began: time.Now(), gone: make(chan struct{})}
	x.lane.init(nc)
	x.unitRun = unitRun{
		srv: s, nc: nc, start: start,
		r:          wire.NewReader(nc, 8<<10, s.limits.MessageMax),
		w:          writer{nc: nc, metrics: s.metrics, gate: s.answers},
		gucs:       settings.New(defaults, profile, start.User, s.limits.SettingsBytes),
		statements: pgbackend.Statements[*statement]{Max: s.limits.StatementsMax, MaxBytes: s.limits.StatementBytes},
		portals:    pgbackend.Portals[*portal]{Max: s.limits.PortalsMax},
		shards:     shardConns{ex: s.ex, log: s.log, grace: s.limits.CancelMax, reads: s.reads, pins: &s.pins, counter: new(executor.Counter), client: x.lane.client},
		interrupts: interrupts{nc: nc, grace: s.limits.CancelMax, spawn: s.wg.Go, log: s.log},
		turn:       s.ex.NewTurn(),
		resolve:    x.resolve, values: x.evaluate,
	}
	x.runLocally = x.answerLocal
	x.wire()
	x.left, _ = nc.(leaver)
	x.listener = s.exchange.Listener(notify.Limits{Channels: s.limits.ChannelsMax, Deferred: s.limits.DeferredMax, Wait: s.limits.CancelMax}, x.interrupts.wakeUp)
	return x
}

// errAgain unwinds to the loop, which runs the unit again.
var errAgain = errors.New("gateway: run it again")

// errEnd ends the session without a word to the client.
var errEnd = errors.New("gateway: the session is over")

// run is the session's loop: one batch of the client's frames after the other.
func (x *session) run() {
	defer x.turn.Close()
	x.serve()
	x.end() // not after a panic: see survive
}

func (x *session) serve() {
	for !x.over {
		x.idle()
		if x.listener.Listens() {
			if err := x.deliverIdle(); err != nil {
				return
			}
		}
		if x.parkable() {
			if err := x.park(); err != nil {
				return
			}
			if x.over {
				return
			}
		}
		batch, err := x.r.Batch()
		if err != nil {
			if x.readFailed(err) {
				return
			}
			continue
		}
		x.srv.metrics.Traffic(len(batch), 0)
		if x.interrupts.endsHere() { // the message came before the word that it ends
			x.lastWord(sqlstate.AdminShutdown, terminated().Message)
			return
		}
		now := time.Now()
		if err := x.late(now); err != nil {
			return
		}
		x.stats.Began = now
		x.interrupts.since.Store(now.UnixNano())
		x.interrupts.begins()
		if err := x.batch(batch); err != nil {
			return
		}
	}
}

// idle flushes nothing: it only tells the watch that the client is awaited.
func (x *session) idle() {
	now := time.Now()
	x.interrupts.since.Store(now.UnixNano())
	if x.unit.open && x.unit.asking && x.unit.asked.IsZero() {
		x.unit.asked = now
	}
	if x.tx.state == txNone && x.pipe.Conn == nil {
		x.interrupts.state.Store(stateIdle)
		if x.srv.drain.Load() {
			x.interrupts.wakeUp()
		}
	} else {
		x.interrupts.state.Store(stateIdleInTx)
	}
	if x.interrupts.endsHere() {
		x.interrupts.wakeUp()
	}
}

// timedOut reports whether a read ended because of wakeUp, and readies the
// connection for the next one.
func (x *unitRun) timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() && x.nc.SetReadDeadline(time.Time{}) == nil
}

// lastWord tells the client why the session ends.
func (x *session) lastWord(code sqlstate.Code, message string) (over bool) {
	x.w.failure(&sqlstate.Error{Severity: "FATAL", Code: code, Message: message})
	x.srv.metrics.Error(string(code))
	_ = x.nc.SetWriteDeadline(time.Now().Add(time.Second))
	_ = x.w.flush() // whether it arrives changes nothing
	return true
}

// readFailed decides why the client could not be read. over is false if the read
// was only woken up too late, when the client had already spoken again.
func (x *session) readFailed(err error) (over bool) {
	was := x.interrupts.state.Swap(stateBusy)
	idle := time.Since(time.Unix(0, x.interrupts.since.Load()))
	last := x.lastWord
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return last(sqlstate.ProtocolViolation, err.Error())
	case errors.Is(err, wire.ErrMalformed):
		return last(sqlstate.ProtocolViolation, "invalid message length")
	case x.timedOut(err):
		switch {
		case x.interrupts.endsHere():
			return last(sqlstate.AdminShutdown, terminated().Message)
		case was == stateIdle && x.srv.drain.Load():
			return last(sqlstate.AdminShutdown, "terminating connection due to administrator command: the router is shutting down")
		case was == stateIdleInTx && idle > x.interrupts.idleInTxMax(&x.srv.limits):
			return last("25P03", "terminating connection due to idle-in-transaction timeout of the router")
		case was == stateIdle && idle > x.srv.limits.IdleMax:
			return last(sqlstate.IdleSessionTimeout, "terminating connection due to idle-session timeout of the router")
		}
		x.giveWay()
		return false
	case errors.Is(err, io.EOF):
	default:
		x.srv.log.Debug("a client's connection broke", "session", x.pid, "error", err)
	}
	return true
}

// end gives back what the session holds.
func (x *session) end() {
	x.interrupts.state.Store(stateBusy)
	x.abandonTx()
	if c := x.pipe.Conn; c != nil {
		c.Break()
		x.pipe.Reset()
		c.Release()
	}
	x.shards.unpin()
	x.shards.counter.End()
	x.listener.UnlistenAll()
	x.held.CloseAll()
	x.shards.takesBack()
}

// batch handles whole frames. An error ends the session.
func (x *session) batch(b []byte) error {
	from := 0 // where the unit's frames in b begin
	for pos := 0; pos < len(b); {
		f, _, ok, err := wire.Cut(b[pos:])
		if err != nil || !ok {
			return errEnd // Batch gives whole frames only
		}
		if !x.unit.open {
			if t := f.Type(); t == wire.CopyDataF || t == wire.CopyDoneF || t == wire.CopyFail {
				pos += len(f) // leftovers of a COPY that failed: ignored, as PostgreSQL does
				continue
			}
			from = pos
			if err := x.inherit(); err != nil {
				return x.broken(err)
			}
			x.beginUnit()
		}
		pos += len(f)
		x.ahead, x.coming = len(b)-pos, b[pos:]
		err = x.frame(f)
		for errors.Is(err, errAgain) {
			err = x.again(b[from:pos])
		}
		b = b[:pos+x.ahead]
		if err != nil {
			return x.broken(err)
		}
		if x.over {
			return nil
		}
	}
	x.coming = nil
	if x.unit.open && !x.unit.long {
		if len(x.unit.replay)+len(b)-from > replayMax {
			x.unit.long, x.unit.replay = true, nil
		} else {
			x.unit.replay = append(x.unit.replay, b[from:]...)
		}
	}
	return nil
}

// broken handles the errors that end a session.
func (x *session) broken(err error) error {
	var gone *clientGone
	var se *sqlstate.Error
	if !errors.As(err, &gone) && errors.As(err, &se) {
		e := *se
		e.Severity = "FATAL"
		x.w.failure(&e)
		x.srv.metrics.Error(string(e.Code))
		_ = x.nc.SetWriteDeadline(time.Now().Add(time.Second))
		_ = x.w.flush() // the last word; whether it arrives changes nothing
	}
	return err
}

func (x *unitRun) beginUnit() {
	u := &x.unit
	*u = unit{open: true, mark: x.w.mark(), replay: u.replay[:0], replaced: u.replaced[:0]}
	x.stats.BeginUnit()
	x.shards.primary = false
	if cap(u.replay) > replayMax {
		u.replay = nil
	}
	x.urgent = false
	x.listener.Ask()
	x.turn.Begin()
	u.version = x.srv.ex.Snapshot().Version()
}

// endUnit sends ReadyForQuery.
func (x *unitRun) endUnit() error {
	x.unit.open = false
	x.turn.End()
	switch {
	case x.tx.state == txNone:
		x.unused()
		x.shards.loosens()
	case x.tx.failed && x.tx.schema != nil && len(x.tx.saved) == 0:
		x.giveUpSchema()
	}
	if err := x.shards.keepsPin(); err != nil {
		return err
	}
	x.shards.takesBack()
	if err := x.deliver(); err != nil {
		return err
	}
	x.interrupts.forget()
	x.w.buf = x.gucs.Tell(x.w.buf)
	x.w.ready(x.tx.status())
	return x.w.flush()
}

// again runs the open unit's frames once more, after a guard refused a write or
// a connection was lost; what they did so far has been undone.
func (x *session) again(tail []byte) error {
	u := &x.unit
	x.w.rewind(u.mark)
	x.gucs.Untell()
	for i := len(u.replaced) - 1; i >= 0; i-- {
		r := u.replaced[i]
		x.statements.Drop(r.name)
		if r.was != nil {
			x.statements.Put(r.name, r.was, len(r.was.text))
		}
	}
	u.replaced = u.replaced[:0]
	u.tries++
	x.stats.Tries = u.tries
	u.bound, u.executed, u.executes, u.binds = false, false, nil, 0
	x.skip, x.pending = false, nil
	x.portals.Ended(nil)
	all := append(append([]byte(nil), u.replay...), tail...)
	for len(all) > 0 {
		f, rest, ok, err := wire.Cut(all)
		if err != nil || !ok {
			return errEnd
		}
		all, x.coming = rest, rest
		if err := x.frame(f); err != nil {
			return err
		}
	}
	x.coming = nil
	return nil
}

// frame handles one message of the client.
func (x *session) frame(f wire.Frame) error {
	typ := f.Type()
	if x.skip && typ != wire.Sync && typ != wire.TerminateFE {
		if typ == wire.Flush {
			return x.w.flush() // the error may still be here
		}
		return nil
	}
	switch typ {
	case wire.Execute:
		x.unit.asking, x.unit.asked = false, time.Time{}
	case wire.Parse, wire.Bind, wire.Describe:
		x.unit.asking = true
	}
	switch typ {
	case wire.Query:
		return x.query(f)
	case wire.Parse:
		return x.extended(x.parse(f))
	case wire.Bind:
		return x.extended(x.bind(f))
	case wire.Describe:
		return x.extended(x.describe(f))
	case wire.Execute:
		return x.extended(x.execute(f))
	case wire.Close:
		return x.extended(x.close(f))
	case wire.Flush:
		if err := x.extended(x.flushMessage()); err != nil {
			return err
		}
		return x.w.flush() // an error too: the client waits for it before it sends Sync
	case wire.Sync:
		return x.sync()
	case wire.TerminateFE:
		x.over = true
		return nil
	case wire.CopyDataF, wire.CopyDoneF, wire.CopyFail:
		return nil // leftovers of a COPY that failed
	case wire.FunctionF:
		return x.functionCall(f)
	}
	return sqlstate.New(sqlstate.ProtocolViolation, "invalid frontend message type %d", typ)
}

// userCancel is the error of a statement that was cancelled at the router.
func userCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
	}
	return err
}
