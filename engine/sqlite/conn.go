package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of one conversation.
const (
	outputChunk  = 32 << 10 // Receive returns once this much is ready
	queueMax     = 64 << 20 // frames sent and not yet run, beyond one message
	planMax      = 256      // cached plans
	preparedMax  = 10000
	portalMax    = 1000
	savepointMax = 1000
	stmtsPerPlan = 4
)

var errClosed = errors.New("sqlite: the conversation is closed")

// Conn is one conversation with a SQLite file (or with a virtual database). Send
// queues frames; Receive runs them, in the calling goroutine, until a chunk of
// output is ready.
type Conn struct {
	session

	in       []byte // frames not yet run
	skipping bool   // after an error, until Sync
	script   *script
	simple   bool    // the active portal belongs to a simple query
	copying  *copyIn // awaits the client's data

	prepared pgbackend.Statements[*prepared]
	plans    planCache

	unwatch func() // ends the watch over rows
	// sets are what cleave_member knows beside captures.
	sets []*catalog.RowSet

	currval  map[uint32]int64
	scratch  []byte // of the functions that triggers call
	maxQueue int
}

// prepared is a prepared statement.
type prepared struct {
	text string
	oids []uint32 // as the client gave them
	plan *plan
	cols []translate.Column // as described; they must not change
}

// portal is a bound statement.
type portal struct {
	name    string
	plan    *plan
	args    []value.Datum
	formats []int16
	stmt    *sqlite.Stmt
	rows    [][]value.Datum // utility results
	rowPos  int
	tag     string
	count   int64
	holds   bool // the snapshot is that of its Bind
	started bool
	done    bool
	source  *prepared
	seen    map[int64]bool // OnceEach
	row     bool           // stmt stands on a row that was not sent yet
	copy    *copyOut       // its rows are given as COPY's data
	copyIn  *copyIn        // it takes COPY's data
	cursor  *cursorState   // DECLARE made it
	// held: the rows that are left are in rows; heldSize is about what they take.
	held     bool
	heldSize int
	pull     func() ([]value.Datum, bool, error) // the rows of a FETCH
}

// script is a simple query being run.
type script struct {
	plans []*plan
	stmts []scriptStmt
	next  int
	multi bool
}

// Send implements engine.Conn.
func (c *Conn) Send(frames []byte) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return c.lost(false, errClosed)
	}
	if c.copying != nil && len(c.in) == 0 {
		frames = c.sendCopy(frames)
	}
	if len(c.in)+len(frames) > c.maxQueue {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "more than %d bytes of messages wait to be run", c.maxQueue)
	}
	c.in = append(c.in, frames...)
	return nil
}

// Receive implements engine.Conn.
func (c *Conn) Receive() ([]byte, error) {
	c.out = c.out[:0]
	if cap(c.out) > 16*outputChunk {
		c.out = make([]byte, 0, 2*outputChunk)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	var timer *time.Timer
	if !deadline.IsZero() {
		wait := time.Until(deadline)
		if wait <= 0 {
			c.leave()
			return nil, c.lost(true, os.ErrDeadlineExceeded)
		}
		timer = time.AfterFunc(wait, func() { c.fire(&sqlstate.Error{Code: "deadline"}) })
		defer timer.Stop()
	}
	used := 0
	for len(c.out) < outputChunk {
		if c.goOn() {
			continue
		}
		f, rest, ok, err := wire.Cut(c.in[used:])
		if err != nil {
			c.leave()
			return nil, c.lost(true, err)
		}
		if !ok {
			break
		}
		used = len(c.in) - len(rest)
		if c.copying != nil {
			c.copyFrame(f)
			continue
		}
		if !c.handle(f) {
			break
		}
	}
	c.in = consumed(c.in, used)
	if c.leave() {
		return nil, c.lost(true, errClosed)
	}
	c.mu.Lock()
	expired := c.reason != nil && c.reason.Code == "deadline"
	c.mu.Unlock()
	if expired {
		return nil, c.lost(true, os.ErrDeadlineExceeded)
	}
	if len(c.out) > 0 {
		return c.out, nil
	}
	// Nothing to run and nothing to say: as on a socket, wait for the deadline or Close.
	return nil, c.waitIdle(deadline)
}

// goOn goes on with what earlier messages began: rows that are not sent yet, a COPY that failed, the rest of a script. It returns false
// when the next message may be taken.
func (c *Conn) goOn() bool {
	switch {
	case c.active != nil:
		c.stepActive()
	case c.copying != nil && c.copying.err != nil:
		c.copyFailed(c.copying.err)
	case c.script != nil && c.copying == nil:
		c.runScript()
	default:
		return false
	}
	return true
}

// consumed is the input without the messages that were handled. The memory of a large one is given back.
func consumed(in []byte, used int) []byte {
	n := copy(in, in[used:])
	if n == 0 && cap(in) > 1<<20 {
		return nil
	}
	return in[:n]
}

// lost is the error of a conversation that is over.
func (c *transaction) lost(sent bool, err error) error {
	name := ""
	if c.shard != nil {
		name = c.shard.cfg.Name
	}
	return &engine.LostError{Shard: name, Sent: sent, Err: err}
}

// Probe implements engine.Prober: an idle conversation is good until it is closed.
func (c *Conn) Probe() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.lost(true, errClosed)
	}
	if len(c.in) > 0 || c.active != nil || c.script != nil || c.copying != nil {
		return c.lost(true, errors.New("messages wait to be run"))
	}
	return nil
}

// enter keeps Close from letting go of the database under what runs outside of Receive. leave has to
// follow.
func (c *transaction) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.lost(true, errClosed)
	}
	c.running = true
	return nil
}

// leave ends what runs, and lets go of the database if Close came meanwhile. A cancel that came after the end of the last statement
// is over with it: PostgreSQL ignores one that reaches an idle session.
func (c *Conn) leave() (closed bool) {
	c.mu.Lock()
	c.running = false
	closed = c.closed
	late := c.fired && !closed && c.active == nil && c.script == nil && c.copying == nil
	c.mu.Unlock()
	switch {
	case closed:
		c.release()
	case late:
		c.rearm()
	}
	return closed
}

func (c *Conn) waitIdle(deadline time.Time) error {
	var after <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-c.wake:
		return c.lost(true, errClosed)
	case <-after:
		return c.lost(true, os.ErrDeadlineExceeded)
	}
}

// SetDeadline implements engine.Conn.
func (c *interruption) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return nil
}

// fire interrupts what runs.
func (c *interruption) fire(reason *sqlstate.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || c.fired || c.closed {
		return
	}
	c.fired, c.reason = true, reason
	close(c.interrupt)
}

// Cancel implements engine.Conn. It does nothing when no statement runs.
func (c *interruption) Cancel(context.Context) error {
	c.fire(sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request"))
	return nil
}

// rearm makes the connection usable after an interrupt and returns its reason.
func (c *database) rearm() *sqlstate.Error {
	c.mu.Lock()
	if !c.fired {
		c.mu.Unlock()
		return nil
	}
	reason := c.reason
	c.fired = false
	if reason == nil || reason.Code != "deadline" {
		c.reason = nil
	}
	c.interrupt = make(chan struct{})
	ch := c.interrupt
	c.mu.Unlock()
	c.db.SetInterrupt(ch)
	return reason
}

// Parameter implements engine.Conn.
func (c *client) Parameter(name string) string { return c.params[name] }

// Parameters implements engine.Conn.
func (c *client) Parameters() map[string]string { return c.params }

// Close implements engine.Conn. An open transaction is rolled back.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.wake)
	running := c.running
	if running && !c.fired {
		c.fired = true
		close(c.interrupt)
	}
	c.mu.Unlock()
	if running {
		// The goroutine in Receive lets go of the database.
		return nil
	}
	c.release()
	return nil
}

func (c *Conn) release() {
	if c.db == nil {
		return
	}
	c.rearm()
	for _, p := range c.portals.All() {
		p.end()
	}
	c.portals = pgbackend.Portals[*portal]{}
	if c.active != nil {
		c.active.end()
		c.active = nil
	}
	if c.copying != nil {
		c.copying.row.end()
		c.copying = nil
	}
	c.abandonTx()
	c.plans.clear()
	if c.genStmt != nil {
		c.genStmt.Finalize()
	}
	for _, s := range c.helpers {
		s.Finalize()
	}
	for _, p := range c.prepared.All() {
		if p.plan != nil {
			p.plan.finalize()
		}
	}
	c.db.Close()
	c.db = nil
	if c.unwatch != nil {
		c.unwatch()
	}
	if c.shard != nil {
		c.shard.closed(c)
	}
}

// handle runs one frame. It returns false when the conversation ends.
func (c *Conn) handle(f wire.Frame) bool {
	typ := f.Type()
	if c.skipping && typ != wire.Sync && typ != wire.TerminateFE {
		return true
	}
	var err error
	switch typ {
	case wire.Query:
		err = fault.Guard(func() error { return c.simpleQuery(f.Body()) })
		if err != nil {
			c.script = nil
			c.fail(err)
			c.ready()
		}
		return true
	case wire.Sync:
		c.skipping = false
		if err := c.endImplicit(); err != nil {
			c.fail(err)
		}
		c.ready()
		return true
	case wire.TerminateFE:
		c.mu.Lock()
		if !c.closed {
			c.closed = true
			close(c.wake)
		}
		c.mu.Unlock()
		return false
	case wire.CopyDataF, wire.CopyDoneF, wire.CopyFail:
		return true // left over from a COPY that was refused
	case wire.FunctionF:
		err = value.Unsupported("the function call message")
		c.fail(err)
		c.ready()
		return true
	default:
		err = fault.Guard(func() error { return c.extended(f) })
	}
	if err != nil {
		c.fail(err)
		c.skipping = true
	}
	return true
}

// extended runs a message of the extended protocol, but for Sync.
func (c *Conn) extended(f wire.Frame) error {
	switch f.Type() {
	case wire.Parse:
		return c.parse(f.Body())
	case wire.Bind:
		return c.bind(f.Body())
	case wire.Describe:
		return c.describe(f.Body())
	case wire.Execute:
		return c.execute(f.Body())
	case wire.Close:
		return c.closeMessage(f.Body())
	case wire.Flush:
		return wire.ReadEmpty(f.Body())
	}
	return sqlstate.New(sqlstate.ProtocolViolation, "invalid frontend message type %d", f.Type())
}

// fail reports an error and puts the transaction into its failed state.
func (c *session) fail(err error) {
	if c.active != nil {
		c.active.end()
		c.active = nil
	}
	if reason := c.rearm(); reason != nil && (isInterrupt(err) || sqlstate.CodeOf(err) == sqlstate.QueryCanceled) {
		err = reason
	}
	c.out = wire.AppendError(c.out, sqlstate.As(c.mapError(err)))
	c.failTx()
}

func (c *client) notice(code sqlstate.Code, format string, args ...any) {
	c.out = wire.AppendNotice(c.out, sqlstate.New(code, format, args...))
}

func (c *client) warning(code sqlstate.Code, format string, args ...any) {
	e := sqlstate.New(code, format, args...)
	e.Severity = "WARNING"
	c.out = wire.AppendNotice(c.out, e)
}

func (c *session) ready() { c.out = wire.AppendReadyForQuery(c.out, c.tx.status()) }

// exec runs a statement of Cleave's own.
func (c *database) exec(sql string) error {
	stmt, _, err := c.db.PrepareTransient(sql)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for {
		row, err := stmt.Step()
		if err != nil {
			return err
		}
		if !row {
			return nil
		}
	}
}

// cachedExec is exec with a kept statement, for BEGIN and its like.
func (c *database) cachedExec(sql string) error {
	stmt := c.helpers[sql]
	if stmt == nil {
		var err error
		if stmt, _, err = c.db.PrepareTransient(sql); err != nil {
			return err
		}
		c.helpers[sql] = stmt
	}
	_, err := stmt.Step()
	if err != nil {
		return err
	}
	return stmt.Reset()
}

func (c *database) queryInt(sql string) (int64, error) {
	stmt, _, err := c.db.PrepareTransient(sql)
	if err != nil {
		return 0, err
	}
	defer stmt.Finalize()
	row, err := stmt.Step()
	if err != nil || !row {
		return 0, err
	}
	return stmt.ColumnInt64(0), nil
}

// housekeeping runs a change of the router's own inside the current transaction,
// or in one of its own.
func (c *Conn) housekeeping(ctx context.Context, fn func() error) error {
	return c.inTransaction(ctx, true, fn)
}

func (c *Conn) inspect(ctx context.Context, fn func() error) error {
	return c.inTransaction(ctx, false, fn)
}

func (c *Conn) inTransaction(ctx context.Context, write bool, fn func() error) (err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed
	}
	if len(c.in) > 0 || c.active != nil || c.script != nil || c.copying != nil {
		c.mu.Unlock()
		return fmt.Errorf("sqlite: statements are still running in this conversation")
	}
	c.running = true
	c.mu.Unlock()
	defer c.leave()
	if dl, ok := ctx.Deadline(); ok {
		timer := time.AfterFunc(time.Until(dl), func() {
			c.fire(sqlstate.New(sqlstate.LockNotAvailable, "canceling statement due to lock timeout"))
		})
		defer timer.Stop()
	}
	if c.tx.block == txFailed {
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	own := c.tx.block == txNone
	c.verb = "ALTER TABLE"
	err = fault.Guard(func() error { return c.inSavepoint(write, fn) })
	if err != nil {
		if reason := c.rearm(); reason != nil {
			err = reason
		}
		err = c.mapError(err)
		switch {
		case own:
			c.abandonTx()
		case !write && sqlstate.CodeOf(err) == sqlstate.UndefinedTable:
			c.endStatement() // nothing was touched: the block goes on
		default:
			c.failTx()
		}
		return err
	}
	if own {
		if err := c.endImplicit(); err != nil {
			return c.mapError(err)
		}
	}
	return nil
}

// inSavepoint runs fn in the transaction, which it begins if there is none. What a fn that writes did is taken back if it fails.
func (c *session) inSavepoint(write bool, fn func() error) error {
	if err := c.begin(write); err != nil {
		return err
	}
	if write {
		if err := c.cachedExec("SAVEPOINT cleave_inner"); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		if write && !c.db.AutocommitEnabled() {
			c.rearm()
			if e := c.cachedExec("ROLLBACK TO cleave_inner"); e == nil {
				c.cachedExec("RELEASE cleave_inner")
			}
			c.names.Catalog = nil
		}
		return err
	}
	if write {
		return c.cachedExec("RELEASE cleave_inner")
	}
	c.endStatement()
	return nil
}
