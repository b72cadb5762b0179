package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/notify"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// session is one client's conversation. Its goroutine is the only one that
// touches it, but for the fields under mu and the atomic ones.
type session struct {
	srv    *Server
	nc     net.Conn
	socket net.Conn        // nc, or what is under its TLS
	id     Identity        // who the client is
	raw    syscall.RawConn // of nc, nil if it has none
	left   leaver          // nc, if it is one
	pid    uint32
	secret uint32
	start  Startup
	began  time.Time

	r *wire.Reader
	w writer

	interrupts interrupts
	gone       chan struct{} // closed when the session has ended
	trimmed    atomic.Bool   // the buffers were given up
	// What cleave.sessions shows: the application's name, the last shard's.
	application, at atomic.Pointer[string]
	progress        atomic.Pointer[several.Progress]

	// defaults are the startup parameters' settings, settings those in effect,
	// reported what the client is told by ParameterStatus, before ReadyForQuery: see tellParameters.
	defaults, settings *executor.Settings
	early              bool // see inherit
	reported           map[string]string
	untold             []parameter

	tx   transaction
	pipe executor.Pipeline
	m    measure
	// wrote: what pipe.Conn ran since it was acquired may have changed something.
	wrote bool
	// dirty: extended-protocol messages went to pipe.Conn since its last Sync.
	dirty bool
	// roam is what the sends messages to pipe.Conn have in common that await
	// their answers, see sending.
	roam  roaming
	sends int
	// turn is the part in the router's lease; flights counts what was sent since
	// the last Sync, alone says whether it was one statement. See lease.go.
	turn    *executor.Turn
	flights int
	alone   bool
	several bool // a write among it named more than one key
	// virtualReads are the tables of the directory that the virtual database has.
	virtualReads directoryTables
	// urgent: an error goes to the client at once.
	urgent bool
	// syncIgnored: the shard took the Sync of this unit for part of a COPY.
	syncIgnored bool
	// ahead is how many bytes of the client's frames at hand come after the one
	// that is handled; a COPY takes them back to the reader.
	ahead int
	// coming are the client's frames at hand that come after it.
	coming []byte
	skip   bool // messages are ignored until Sync, after an error

	statements pgbackend.Statements[*statement]
	portals    pgbackend.Portals[*portal]
	pending    *statement       // parsed, not sent to a shard yet
	bound      wire.BindMessage // the last Bind, of whose parameters args were made
	args       planner.Args
	unnamed    portal // the unnamed portal, to be used again and again
	shaper     planner.Shaper

	// ruling is the rule for reads of the settings ruleOf, see rule; hint is what
	// the text at hand asks for; writes are what the session has to see of its own.
	ruling readRule
	ruleOf *executor.Settings
	ruled  bool
	hint   readHint
	writes executor.Writes

	sequences sessionSequences
	counter   *executor.Counter // of the default shard's own sequences

	// holder has the shards' connections that the session has borrowed.
	holder executor.Holder

	// held are its WITH HOLD cursors.
	held several.Held

	// pin is the conversation that the session keeps, temps the names of temporary
	// tables and of types in pg_temp that may be in it; see pin.go.
	pin   *executor.Conn
	temps map[string]tempKind
	// fleeting: it keeps pin for functions and types alone. dropped: some of them may be gone, or were never made.
	tempFunctions     tempFunctions
	fleeting, dropped bool
	listener          notify.Listener

	unit unit
	over bool // the client said Terminate

	// message is the text of the simple query at hand, nil where there is none.
	message []byte
	// before is what stands before the statement in its message of several; a PREPARE keeps it.
	before string

	lane laned
	// nowait: a loop's thread runs the session; what would have to wait for
	// something fails with errWait instead, before it has changed anything.
	nowait bool
}

// unit is what is answered by one ReadyForQuery: a simple query, or the messages
// up to a Sync. It can be run again as long as nothing irrevocable was done.
type unit struct {
	open    bool
	replay  []byte // its frames of earlier batches
	long    bool   // they were too many to be kept
	mark    mark
	version uint64 // of the map when it began
	// on is the only statement that was sent; several: there is more than one, see runs.
	on      *planner.Statement
	several bool
	// effects: something happened that cannot be repeated.
	effects bool
	// executed: messages of the extended protocol have run statements that a later one before the Sync shares its transaction with.
	executed bool
	// snapped: a statement has been judged, outside of a transaction, for which PostgreSQL takes a snapshot.
	snapped bool
	// executes is the EXECUTE that was bound, if nothing else was.
	executes *planner.Statement
	binds    int
	// reuses: a statement of it was prepared before.
	reuses bool
	// bound: the transaction was bound to its shard in this unit.
	bound bool
	// primary: a replica could not do it.
	primary  bool
	tries    int
	newer    int // how many of the tries were by a newer map
	replaced []replacedStatement
	began    time.Time
	// asking: a statement has begun whose Execute has not come; asked is when the client was first awaited for it, see late.
	asking bool
	asked  time.Time
	// parent is the client's span, as a simple query's text has it.
	parent trace.Parent
}

// routedBy begins it again by another version of the map.
func (u *unit) routedBy(version uint64) { u.version, u.on, u.several = version, nil, false }

type replacedStatement struct {
	name string
	was  *statement
}

// replayMax bounds the frames kept for running a unit again.
const replayMax = 256 << 10

func newSession(s *Server, nc net.Conn, start Startup, defaults *executor.Settings, profile map[string]string) *session {
	x := &session{
		srv: s, nc: nc, raw: rawConn(nc), start: start, began: time.Now(),
		r:        wire.NewReader(nc, 8<<10, s.limits.MessageMax),
		w:        writer{nc: nc, metrics: s.metrics},
		defaults: defaults, settings: defaults, reported: profile, early: defaults.BeganAs() == 0 && defaults.Login() == nil,
		statements: pgbackend.Statements[*statement]{Max: s.limits.StatementsMax, MaxBytes: s.limits.StatementBytes},
		portals:    pgbackend.Portals[*portal]{Max: s.limits.PortalsMax},
		gone:       make(chan struct{}), counter: new(executor.Counter),
		interrupts: interrupts{nc: nc, grace: s.limits.CancelMax, spawn: s.wg.Go, log: s.log},
	}
	x.left, _ = nc.(leaver)
	x.listener = s.exchange.Listener(notify.Limits{Channels: s.limits.ChannelsMax, Deferred: s.limits.DeferredMax, Wait: s.limits.CancelMax}, x.interrupts.wakeUp)
	// The client's own name; on the shards it is the one of the shard's URL.
	x.reported["session_authorization"] = start.User
	x.lane.init(nc)
	x.w.onParameter = x.noteParameter
	x.w.least = func() string {
		return strings.Trim(x.settings.Value("client_min_messages"), "'")
	}
	x.turn, x.w.guard = s.ex.NewTurn(), x.guardAnswer
	x.turn.OnEnd(x.interrupts.askEnd)
	x.interrupts.since.Store(time.Now().UnixNano())
	x.noteParameter("application_name", x.reported["application_name"])
	x.untold = nil
	return x
}

// parameter is one that has changed since the client was told of it, with the value that the client knows.
type parameter struct{ name, knows string }

func (x *session) noteParameter(name, value string) {
	if !slices.ContainsFunc(x.untold, func(p parameter) bool { return p.name == name }) {
		x.untold = append(x.untold, parameter{name, x.reported[name]})
	}
	x.reported[name] = value
	if name == "application_name" {
		x.application.Store(&value)
	}
}

// tellParameters tells the client of the parameters that have changed since the last ReadyForQuery, as PostgreSQL does from version 14 on
// (ReportChangedGUCOptions in src/backend/utils/misc/guc.c). Up to version 15 it does so in the order of their names.
func (x *session) tellParameters() {
	if len(x.untold) == 0 {
		return
	}
	if major, _, _ := strings.Cut(x.reported["server_version"], "."); major < "16" {
		slices.SortStableFunc(x.untold, func(a, b parameter) int { return strings.Compare(strings.ToLower(a.name), strings.ToLower(b.name)) })
	}
	for _, p := range x.untold {
		if value := x.reported[p.name]; value != p.knows {
			x.w.buf = wire.AppendParameterStatus(x.w.buf, p.name, value)
		}
	}
	x.untold = x.untold[:0]
}

// untellParameters forgets what has changed since the last ReadyForQuery, which is undone.
func (x *session) untellParameters() {
	for _, p := range x.untold {
		x.reported[p.name] = p.knows
	}
	x.untold = x.untold[:0]
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
		x.unit.began = now
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
func (x *session) timedOut(err error) bool {
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
		case was == stateIdleInTx && idle > x.srv.limits.IdleInTransactionMax:
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
	x.unpin()
	x.counter.End()
	x.listener.UnlistenAll()
	x.held.CloseAll()
	x.takesBack()
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

func (x *session) beginUnit() {
	u := &x.unit
	*u = unit{open: true, mark: x.w.mark(), replay: u.replay[:0], replaced: u.replaced[:0], began: u.began}
	if cap(u.replay) > replayMax {
		u.replay = nil
	}
	x.urgent = false
	x.listener.Ask()
	x.turn.Begin()
	u.version = x.srv.ex.Snapshot().Version()
}

// endUnit sends ReadyForQuery.
func (x *session) endUnit() error {
	x.unit.open = false
	x.turn.End()
	switch {
	case x.tx.state == txNone:
		x.unused()
		x.loosens()
	case x.tx.failed && x.tx.schema != nil && x.tx.saves.Len() == 0:
		x.giveUpSchema()
	}
	if err := x.keepsPin(); err != nil {
		return err
	}
	x.takesBack()
	if err := x.deliver(); err != nil {
		return err
	}
	x.interrupts.forget()
	x.tellParameters()
	x.w.ready(x.status())
	return x.w.flush()
}

func (x *session) status() byte {
	switch {
	case x.tx.state == txNone || x.tx.state == txImplicit:
		return 'I'
	case x.tx.failed:
		return 'E'
	}
	return 'T'
}

// again runs the open unit's frames once more, after a guard refused a write or
// a connection was lost; what they did so far has been undone.
func (x *session) again(tail []byte) error {
	u := &x.unit
	x.w.rewind(u.mark)
	x.untellParameters()
	for i := len(u.replaced) - 1; i >= 0; i-- {
		r := u.replaced[i]
		x.statements.Drop(r.name)
		if r.was != nil {
			x.statements.Put(r.name, r.was, len(r.was.text))
		}
	}
	u.replaced = u.replaced[:0]
	u.tries++
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

// snapshot is the map that the session's next statement is planned with.
// private says that it is the session's own, with its uncommitted changes.
func (x *session) snapshot() (snap *shardmap.Snapshot, private bool) {
	x.turn.At(nil)
	x.turn.On(nil)
	if x.tx.schema != nil {
		return x.tx.schema.Follow(x.srv.ex.Snapshot()), true
	}
	return x.srv.ex.Snapshot(), false
}

// plan analyses one statement. What only administrators may read is refused to others here, for every way that a
// statement can come; users of the shards are asked by the shards.
func (x *session) plan(sql []byte) (*planner.Statement, error) {
	st, _, err := x.planned(sql)
	return st, err
}

// planned is plan, and the text that was planned: that of planKeyed.
func (x *session) planned(sql []byte) (*planner.Statement, []byte, error) {
	st, text, err := x.analyse(sql)
	if err == nil {
		err = x.maySee(st)
	}
	if err != nil {
		return nil, nil, err
	}
	return st, text, nil
}

// maySee refuses what takes an administrator to read.
func (x *session) maySee(st *planner.Statement) error {
	if st.Secret == "" || x.id.Role == access.Admin || x.id.Login != nil {
		return nil
	}
	return x.denied(st.Secret, access.Admin)
}

func (x *session) analyse(sql []byte) (*planner.Statement, []byte, error) {
	snap, private := x.snapshot()
	if len(x.temps) > 0 && !x.nowait {
		return x.planBeside(sql, snap, private)
	}
	if x.nowait {
		if st := x.srv.ex.Cached(sql, x.settings, snap); st != nil && !st.Unread {
			return st, sql, nil
		}
		return nil, nil, errWait
	}
	st, err := x.srv.ex.Plan(x, sql, x.settings, snap, private)
	st, text, err := x.planKeyed(st, err, sql, snap, private)
	if err != nil {
		return nil, nil, x.unplanned(err, sql, private)
	}
	return st, text, nil
}

// userCancel is the error of a statement that was cancelled at the router.
func userCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
	}
	return err
}

// setRunning tells cancel requests what runs. With nil it waits for a cancel that is under way.
func (x *session) setRunning(c *executor.Conn) {
	x.interrupts.setRunning(c, x.settings, x.pipe.Statements())
}

// Planning implements [executor.Waiter]: a cancel request and statement_timeout end the wait for a plan.
func (x *session) Planning() (ctx context.Context, done func()) {
	return x.interrupts.planning(x.settings)
}
