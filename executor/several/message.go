package several

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// prepared is a prepared statement of the conversation.
type prepared struct {
	text string
	oids []uint32 // as the client gave them
	st   *plan.Statement
	desc *description
	name string
}

// portal is a statement with its parameters bound.
type portal struct {
	name string
	e    execution
	stmt *prepared
	job  job // nil until its first Execute
	done bool
	tag  string
	// rows and bytes are what the client got of it.
	rows, bytes int64
	// last: all rows were given, but the client does not know it yet.
	last bool
	// cursor: it is one Execute of a cursor.
	cursor bool
}

// end gives up what the portal holds.
func (p *portal) end() {
	if p.job != nil && !p.done {
		p.job.stop()
	}
	p.done = true
}

// active is the portal that is being run.
type active struct {
	p      *portal
	rows   int32 // that it may still give; 0: any number
	given  int64
	simple bool
	timer  *time.Timer
	watch  *txn.LockWatch
}

// handle runs one frame.
func (c *Conn) handle(f wire.Frame) {
	typ := f.Type()
	if c.copying != nil {
		c.copyFrame(f)
		return
	}
	if c.skipping && typ != wire.Sync && typ != wire.TerminateFE {
		return
	}
	var err error
	switch typ {
	case wire.Query:
		c.query(f.Body())
		return
	case wire.Parse:
		err = c.parse(f.Body())
	case wire.Bind:
		err = c.bind(f.Body())
	case wire.Describe:
		err = c.describeMessage(f)
	case wire.Execute:
		err = c.execute(f)
	case wire.Close:
		err = c.closeMessage(f.Body())
	case wire.Sync:
		c.skipping = false
		if err := c.endUnit(); err != nil {
			c.fail(err)
		}
		c.ready()
	case wire.Flush, wire.CopyDataF, wire.CopyDoneF, wire.CopyFail:
	default:
		err = sqlstate.New(sqlstate.ProtocolViolation, "invalid frontend message type %d", typ)
	}
	if err != nil {
		c.fail(err)
		c.skipping = true
	}
}

// fail reports an error; the transaction has failed with it.
func (c *Conn) fail(err error) {
	var running []*stream
	for _, p := range c.Joined {
		if p.Busy != nil {
			running = append(running, p.Busy.(*stream))
		}
	}
	if a := c.active; a != nil {
		a.stopTimer()
		c.active = nil
		a.p.end()
	}
	c.Aborted = true
	c.StopAll()
	for _, s := range running {
		if errors.Is(err, txn.ErrPartFailed) && s.err != nil && !errors.Is(s.err, txn.ErrPartFailed) {
			err = s.err
		}
	}
	if errors.Is(err, txn.ErrPartFailed) {
		e := sqlstate.New(sqlstate.SerializationFailure, "the statement failed on a shard whose error was lost").WithHint("nothing was committed: run the transaction again")
		e.Retry = sqlstate.RetryTransaction
		err = e
	}
	c.out = wire.AppendError(c.out, sqlstate.As(err))
	switch {
	case !c.Block:
		// Nothing of the unit is left; what follows up to Sync is skipped.
		c.RollBack()
	case c.Saves.Len() == 0 && c.Change == nil:
		// Nothing can bring it back: others need not wait for its locks until the client says ROLLBACK.
		c.Lost = true
		c.endPortals()
		c.RollBack()
	}
}

// status is the one that ReadyForQuery tells.
func (c *Conn) status() byte {
	switch {
	case !c.Block:
		return 'I'
	case c.Aborted:
		return 'E'
	}
	return 'T'
}

// told passes on what shards said beside their answers.
func (c *Conn) told() { c.out = c.aside.take(c.out) }

func (c *Conn) ready() {
	c.aside.cut = nil
	c.out = wire.AppendReadyForQuery(c.out, c.status())
}

var errFailed = sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")

// plan analyses a text.
func (c *runner) plan(text string) (*plan.Statement, error) {
	if st := c.host.Planned(text); st != nil {
		return st, nil
	}
	return c.Ex.Plan(c, []byte(text), c.host.Settings(), c.host.Snapshot(), c.Change != nil)
}

func (c *Conn) parse(body []byte) error {
	m, err := wire.ReadParse(body)
	if err != nil {
		return err
	}
	s := &prepared{text: string(m.Text), name: string(m.Name), oids: m.OIDs}
	c.prepared.Replace(s.name)
	if err := c.analyse(s); err != nil {
		return err
	}
	if err := c.prepared.Add(s.name, s, len(s.text)); err != nil {
		return err
	}
	c.out = wire.AppendEmpty(c.out, wire.ParseComplete)
	return nil
}

// analyse describes a statement, which it plans if nobody has.
func (c *runner) analyse(s *prepared) (err error) {
	if s.st == nil {
		if s.st, err = c.plan(s.text); err != nil {
			return err
		}
	}
	if s.st.Kind == plan.Empty {
		s.desc = &description{}
		return nil
	}
	if c.Aborted {
		return errFailed
	}
	if k := s.st.Cursor; k != nil && k.Op != "declare" {
		s.desc, err = c.describeFetch(s.st)
		return err
	}
	c.MayRead(s.st, 0)
	if s.desc, err = c.describe(c.Ctx, s.st, s.oids); err != nil {
		return err
	}
	s.st, err = typed(c.Ctx, c, s.st, s.text, false, s.desc.params)
	return err
}

func (c *Conn) bind(body []byte) error {
	var m wire.BindMessage
	if err := m.Names(bytes.Clone(body)); err != nil { // a portal outlives the frame
		return err
	}
	s, err := c.prepared.Get(m.Statement)
	if err != nil {
		return err
	}
	switch got, err := m.Counts(); {
	case err != nil:
		return err
	case got != len(s.desc.params):
		return pgbackend.Unsupplied(got, s.name, len(s.desc.params))
	case c.Aborted:
		return errFailed
	}
	if err := c.free(m.Portal); err != nil {
		return err
	}
	if err := m.Args(); err != nil {
		return err
	}
	args := &plan.Args{OIDs: s.desc.params, Formats: m.Formats, Values: m.Values}
	p := &portal{name: string(m.Portal), stmt: s, e: execution{st: s.st, desc: s.desc, args: args, results: m.ResultFormats(), named: s.name != ""}}
	if s.desc.columns != nil {
		if err := wire.CheckResults(p.e.results, len(s.desc.fields)); err != nil {
			return err
		}
	}
	c.portals.Put(p.name, p, c.Saves.Len())
	c.out = wire.AppendEmpty(c.out, wire.BindComplete)
	return nil
}

// free refuses the name of a portal or cursor that there is.
func (c *runner) free(name []byte) error {
	if _, has := c.cursors.Named(name); has {
		return pgbackend.Exists(string(name))
	}
	return c.portals.Free(name)
}

func (c *Conn) describeMessage(f wire.Frame) error {
	what, name, err := wire.ReadDescribe(f.Body())
	switch {
	case err != nil:
		return err
	case what == 'S':
		s, err := c.prepared.Get(name)
		if err != nil {
			return err
		}
		if c.Aborted && s.desc.columns != nil {
			return errFailed
		}
		c.out = wire.AppendParameterDescription(c.out, s.desc.params)
		c.out = s.desc.formatted(c.out, nil)
		return nil
	}
	p, ok := c.portals.Named(name)
	if !ok {
		return c.foreign(f, string(name), 0)
	}
	if c.Aborted && p.stmt.desc.columns != nil {
		return errFailed
	}
	c.out = p.stmt.desc.formatted(c.out, p.e.results)
	return nil
}

func (c *Conn) closeMessage(body []byte) error {
	what, name, err := wire.ReadClose(body)
	switch {
	case err != nil:
		return err
	case what == 'S':
		c.prepared.Drop(string(name))
	default:
		err = c.closeNamed(string(name))
	}
	if err == nil {
		c.out = wire.AppendEmpty(c.out, wire.CloseComplete)
	}
	return err
}

// endPortals is for a transaction that has failed: portals have their names until it ends, but run no more (AtAbort_Portals of
// portalmem.c).
func (c *Conn) endPortals() {
	for _, p := range c.portals.All() {
		p.end()
	}
	for _, k := range c.cursors.All() {
		k.end()
	}
}

// closePortals is for the end of a transaction.
func (c *runner) closePortals() {
	c.portals.Ended(nil)
	c.cursors.Ended(nil)
}

func (c *Conn) execute(f wire.Frame) error {
	name, rows, err := wire.ReadExecute(f.Body())
	if err != nil {
		return err
	}
	p, ok := c.portals.Named(name)
	if !ok {
		return c.foreign(f, string(name), rows)
	}
	return c.start(p, rows, false)
}

// portionMax bounds the rows of a portion that a part gives.
const portionMax = 500

// start makes a portal the active one, for at most so many rows.
func (c *Conn) start(p *portal, rows int32, simple bool) error {
	if p.e.st.Kind == plan.Empty {
		c.out = wire.AppendEmpty(c.out, wire.EmptyQueryResponse)
		return nil
	}
	if c.Aborted {
		return errFailed
	}
	if p.last {
		p.last, p.done = false, true
		c.out = wire.AppendCommandComplete(c.out, finalTag(p.tag, 0, p.stmt.desc.columns != nil))
		return nil
	}
	if p.done {
		if p.stmt.desc.columns == nil {
			return sqlstate.New(sqlstate.ObjectNotInState, "portal cannot be run")
		}
		c.out = wire.AppendCommandComplete(c.out, finalTag(p.tag, 0, p.stmt.desc.columns != nil))
		return nil
	}
	a := &active{p: p, rows: rows, simple: simple}
	c.bounds = c.shared.defaults.Bounds(c.host.Settings())
	d, what := c.host.Timeout(), "statement timeout"
	if t := c.bounds.Timeout; t > 0 && p.e.st.Kind == plan.Several && (d == 0 || t < d) {
		d, what = t, limits.TimeoutSetting
	}
	a.timer = c.Timer(d, what)
	a.watch = c.WatchLocks(c.shared.defaults.DeadlockAfter(c.host.Settings()), p.e.st.ReadOnly)
	begun := false
	defer func() {
		if !begun { // an error, or a fault of the router's own
			a.stopTimer()
		}
	}()
	if p.job == nil {
		c.Progress().Reset()
		if rows > 0 {
			p.e.portion = min(rows, portionMax)
		}
		if err := c.beginPortal(p); err != nil {
			return err
		}
	}
	c.active, begun = a, true
	return nil
}

// beginPortal begins to run what is bound.
func (c *runner) beginPortal(p *portal) error {
	c.MayRead(p.e.st, p.e.portion)
	if !c.provable(p.e.st) {
		if err := c.consistent(c.Ctx, &p.e); err != nil {
			return err
		}
	}
	j, err := c.begins(c.Ctx, &p.e)
	p.job = j
	return err
}

func (a *active) stopTimer() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.watch.End()
}

// stepActive goes on with the active portal until there is a chunk of output,
// its rows are given, or it ends.
func (c *Conn) stepActive() {
	a := c.active
	from := len(c.out)
	frames, done, tag, err := a.step(c.Ctx, c.out)
	if err != nil {
		c.out = c.out[:from]
		c.told()
		c.failActive(err)
		return
	}
	c.out = frames
	n, copied, copyIn := countRows(c.out[from:])
	a.given += int64(n)
	a.p.rows += int64(n + copied)
	a.p.bytes += int64(len(c.out) - from)
	if err := c.withinBounds(a.p); err != nil {
		c.out = c.out[:from]
		c.failActive(err)
		return
	}
	full := a.rows > 0 && int64(n) >= int64(a.rows) // the rows that Execute wants
	if (done || full) && !copyIn {
		if err := c.quiet(); err != nil {
			c.out = c.out[:from]
			c.failActive(err)
			return
		}
	}
	c.told()
	switch {
	case done && full:
		// PostgreSQL finds out that there is no more when it is asked again.
		a.stopTimer()
		c.active = nil
		a.p.last, a.p.tag = true, tag
		c.out = wire.AppendEmpty(c.out, wire.PortalSuspended)
	case copyIn:
		c.awaitData(a)
	case done:
		a.stopTimer()
		c.active = nil
		a.p.done, a.p.tag = true, tag
		c.completed(finalTag(tag, a.given, a.p.stmt.desc.columns != nil), a.simple)
	case full:
		a.stopTimer()
		c.active = nil
		if a.p.cursor {
			a.p.end()
		}
		c.out = wire.AppendEmpty(c.out, wire.PortalSuspended)
	case a.rows > 0:
		a.rows -= int32(n)
	}
}

// withinBounds fails if a statement on several shards returned more than one may.
func (c *Conn) withinBounds(p *portal) error {
	if p.e.st.Kind != plan.Several {
		return nil
	}
	return c.bounds.Returned(p.rows, p.bytes)
}

// awaitData goes on when the client has sent the data of COPY.
func (c *Conn) awaitData(a *active) {
	j, ok := a.p.job.(copyJob)
	if !ok {
		c.failActive(sqlstate.New(sqlstate.InternalError, "a statement that takes no data asked for some"))
		return
	}
	c.copying = &copying{job: j, simple: a.simple}
}

// step takes the job a step further. It fails if the conversation ended meanwhile.
func (a *active) step(ctx context.Context, out []byte) (frames []byte, done bool, tag string, err error) {
	frames, done, tag, err = a.p.job.step(out, a.rows)
	if err == nil && !done {
		err = context.Cause(ctx)
	}
	return frames, done, tag, err
}

// quiet leaves no part busy when a statement has ended or is suspended: portions
// that were asked for are taken, what is left of an answer that ended early is
// dropped.
func (c *sender) quiet() error {
	for _, p := range c.Joined {
		s, _ := p.Busy.(*stream)
		switch {
		case s == nil:
		case s.portion > 0:
			if err := s.take(); err != nil {
				return err
			}
		default:
			s.Drain()
		}
	}
	return nil
}

// failActive ends the active portal with an error.
func (c *Conn) failActive(err error) {
	simple := c.active.simple
	c.fail(err)
	if simple {
		c.script = nil
		c.endQuery()
	} else {
		c.skipping = true
	}
}

// finalTag is the tag that the client gets, with the rows that this Execute gave: those of RETURNING are counted so as well
// (PortalRun of pquery.c).
func finalTag(tag string, rows int64, columns bool) string {
	word, count, _ := strings.Cut(tag, " ")
	switch word {
	case "SELECT":
		if count != "" {
			return tag
		}
	case "INSERT":
		word = "INSERT 0"
		fallthrough
	case "UPDATE", "DELETE", "MERGE":
		if !columns {
			return tag
		}
	default:
		return tag
	}
	return word + " " + strconv.FormatInt(rows, 10)
}

// countRows counts the DataRows, and the CopyDatas, in whole frames; copyIn says
// that they end with a CopyInResponse.
func countRows(b []byte) (rows, copied int, copyIn bool) {
	for len(b) >= wire.Header {
		switch b[0] {
		case wire.DataRow:
			rows++
		case wire.CopyData:
			copied++
		case wire.CopyInResponse:
			copyIn = true
		}
		b = b[1+int(binary.BigEndian.Uint32(b[1:])):]
	}
	return rows, copied, copyIn
}

// through is a Sink that passes everything on.
type through Conn

// Frames takes frames for the client.
func (t *through) Frames(b []byte) error {
	t.out = append(t.out, b...)
	return nil
}

// Parameter passes a parameter on.
func (t *through) Parameter(name, value string) {}
