package several

import (
	"context"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/tuplestore"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// cursor is what DECLARE made. One over a statement of one shard is that shard's;
// one over several, or WITH HOLD, is a job that is read forward, in portions, and rows
// that were kept of it.
type cursor struct {
	shard string // whose cursor it is; "": it is the conversation's own
	desc  *description
	// e is what it runs, its results the formats of the rows that it gives.
	e      *execution
	job    job
	binary bool // declared BINARY
	// noScroll: declared NO SCROLL; hold: WITH HOLD.
	noScroll, hold bool
	// read counts the rows that the job gave, ended: those are all.
	read  int64
	ended bool
	// pos is the row that it is on, from 1; 0 is before the first, read+1 after the last one.
	pos  int64
	kept *tuplestore.Store // nil: no row is
	// styles are the settings with which its rows were written, see Conn.styles.
	styles [6]string
	// busy: a FETCH is under way.
	busy bool
	// of is the portal that it is, of a Bind message; nil: DECLARE made it.
	of *portal
}

func (k *cursor) end() {
	if k.job != nil && !k.ended {
		k.job.stop()
	}
	k.ended = true
	k.kept.Close()
	k.kept = nil
}

// formats are those of a FETCH in a simple Query.
func (k *cursor) formats() []int16 {
	if k.binary {
		return []int16{1}
	}
	return nil
}

// own reports whether it is the conversation's own, and not a shard's.
func (k *cursor) own() bool { return k != nil && k.shard == "" }

// cursorPortion is how many rows a shard is asked for at a time.
const cursorPortion = 100

// declare runs DECLARE of a cursor over several shards, or WITH HOLD.
func (c *runner) declare(ctx context.Context, e *execution) (job, error) {
	d := e.st.Cursor
	switch {
	case !c.Block && !d.Hold:
		return nil, sqlstate.New(sqlstate.NoActiveTransaction, "DECLARE CURSOR can only be used in transaction blocks")
	case c.cursors.Len()+c.host.Held().Len() >= portalMax:
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "%d cursors are open", c.cursors.Len()+c.host.Held().Len())
	case d.Hold && c.Change != nil:
		return nil, sqlstate.Refusal("CLV-1007", "a WITH HOLD cursor in a transaction with a schema change is not supported").
			WithHint("Declare it after the COMMIT.")
	}
	if err := c.free([]byte(d.Name)); err != nil {
		return nil, err
	}
	if err := c.directCursor(d.Name); err != nil {
		return nil, err
	}
	query := *e.st
	query.Cursor, query.Tag, query.Text, query.ReturnsRows = nil, "SELECT", d.Query, true
	desc, err := c.describe(ctx, &query, e.args.OIDs)
	if err != nil {
		return nil, err
	}
	k := &cursor{desc: desc, e: &execution{st: &query, args: e.args, desc: desc, portion: cursorPortion}}
	k.binary, k.noScroll, k.hold = d.Binary, d.NoScroll, d.Hold
	switch {
	case d.Scroll, d.Hold && !d.NoScroll:
		k.kept = tuplestore.New(1)
		k.kept.Spill(c.shared.defaults.FileAllowance(c.host.Settings()))
	case d.Backward && !d.NoScroll:
		k.kept = tuplestore.New(1)
	}
	if k.e.results = k.formats(); !d.Binary {
		k.e.results = c.guess(desc.fields)
	}
	if err := failsLater(c.startJob(k), c.Block); err != nil {
		return nil, err
	}
	c.cursors.Put(d.Name, k, c.Saves.Len())
	return &answer{tag: "DECLARE CURSOR"}, nil
}

// failsLater refuses a cursor of a block whose first rows fail: PostgreSQL computes them when they are fetched, and would let it be
// declared.
func failsLater(err error, block bool) error {
	if code := string(sqlstate.CodeOf(err)); !block || !strings.HasPrefix(code, "2") || code == "25P02" {
		return err
	}
	return sqlstate.Refusal("CLV-1008", "the first rows of a cursor over several shards are computed when it is declared, and that fails: %s", sqlstate.As(err).Message).
		WithHint("Write the query so that no row fails.")
}

// startJob begins to read: the snapshots of its shards are of this moment.
func (c *runner) startJob(k *cursor) (err error) {
	k.styles = stylesOf(c.host.Settings())
	if k.job, err = c.begins(c.Ctx, k.e); err != nil {
		return err
	}
	return c.quiet()
}

// cursorOf finds the cursor of a FETCH, MOVE or CLOSE: nil is one that a part has
// from when the session talked on it itself.
func (c *runner) cursorOf(name string) (*cursor, *txn.Participant, error) {
	if k, ok := c.cursors.Find(name); ok {
		return k, c.Find(k.shard), nil
	}
	if k := c.host.Held().cursors[name]; k != nil {
		return k, nil, nil
	}
	if p, ok := c.portals.Find(name); name != "" && ok {
		k, err := p.asCursor()
		return k, nil, err
	}
	for _, p := range c.Joined {
		if p.Direct {
			return nil, p, nil
		}
	}
	return nil, nil, sqlstate.New(sqlstate.InvalidCursorName, "cursor \"%s\" does not exist", name)
}

// simpleFormats are the formats of a statement's rows in a simple Query.
func (c *runner) simpleFormats(st *plan.Statement) []int16 {
	if st.Cursor == nil {
		return nil
	}
	if k := c.host.Held().cursors[st.Cursor.Name]; k != nil {
		return k.formats()
	}
	if k, ok := c.cursors.Find(st.Cursor.Name); ok {
		return k.formats()
	}
	return nil
}

// describeFetch describes a FETCH: nothing that could be kept.
func (c *runner) describeFetch(st *plan.Statement) (*description, error) {
	if !st.ReturnsRows {
		return &description{}, nil
	}
	k, p, err := c.cursorOf(st.Cursor.Name)
	switch {
	case err != nil:
		return nil, err
	case !k.own():
		return c.describeOn(p, st.Text, nil)
	}
	return &description{columns: k.desc.columns, fields: k.desc.fields}, nil // its parameters were DECLARE's
}

// startCursor runs FETCH, MOVE and CLOSE.
func (c *runner) startCursor(ctx context.Context, e *execution) (job, error) {
	q := e.st.Cursor
	if q.Op == "close" {
		return c.closeCursor(ctx, e)
	}
	k, p, err := c.cursorOf(q.Name)
	if err != nil {
		return nil, err
	}
	if !k.own() {
		return c.startRelay(ctx, e, p.Shard)
	}
	f := &fetch{c: c, k: k, move: q.Op == "move", tag: e.st.Tag}
	if !f.move {
		if err := f.format(e); err != nil {
			return nil, err
		}
	}
	if f.move && q.Count == 0 && q.Direction != plan.Absolute {
		if k.pos > 0 && k.pos <= k.read {
			f.given = 1
		}
		return f, nil
	}
	if f.legs, err = k.legs(q); err != nil {
		return nil, err
	}
	if k.busy {
		return nil, sqlstate.New(sqlstate.ObjectInUse, "cursor %q is being read", q.Name)
	}
	if err := k.begin(c); err != nil {
		return nil, err
	}
	k.busy = true
	return f, nil
}

// format finds the formats in which FETCH gives the rows.
func (f *fetch) format(e *execution) (err error) {
	want := e.results
	if e.simple {
		want = f.k.formats()
	}
	f.c.host.Held().asked(f.k.desc.fields, want)
	if f.results, err = f.c.otherFormats(f.k, want); err != nil || f.k.sameStyle(f.c) {
		return err
	}
	// Rows were read ahead, and some are kept.
	return sqlstate.Refusal("CLV-1009", "a setting that says how values are written has changed since this cursor's rows were read").
		WithHint("Set DateStyle, IntervalStyle, TimeZone, bytea_output, extra_float_digits and lc_monetary as they were, or declare the cursor again.")
}

// begin begins a portal that no Execute has begun, and is read as a cursor.
func (k *cursor) begin(c *runner) error {
	if k.job != nil || k.ended {
		return nil
	}
	if err := c.beginPortal(k.of); err != nil {
		return err
	}
	k.job = k.of.job
	return nil
}

// dropCursor ends a cursor, the transaction's or the session's.
func (c *runner) dropCursor(name string, k *cursor) {
	k.end()
	c.cursors.Drop(name)
	delete(c.host.Held().cursors, name)
}

func (c *runner) closeCursor(ctx context.Context, e *execution) (job, error) {
	name := e.st.Cursor.Name
	if name == "" {
		for _, p := range c.Joined {
			if p.Begun {
				if _, err := c.Exec(p, "CLOSE ALL"); err != nil {
					return nil, err
				}
			}
		}
		c.cursors.Ended(nil)
		c.host.Held().CloseAll()
		return &answer{tag: "CLOSE CURSOR ALL"}, nil
	}
	k, p, err := c.cursorOf(name)
	if err != nil {
		return nil, err
	}
	if k != nil {
		if k.of != nil {
			c.portals.Drop(name)
		} else {
			c.dropCursor(name, k)
		}
	}
	if !k.own() {
		return c.startRelay(ctx, e, p.Shard)
	}
	return &answer{tag: "CLOSE CURSOR"}, nil
}

// In PostgreSQL a cursor of DECLARE and a portal of Bind are one thing: messages name
// cursors, and FETCH, MOVE and CLOSE name portals. So they do here.

// asCursor is the portal as FETCH, MOVE and CLOSE see it, read forward only as every portal of a Bind (CreatePortal of portalmem.c).
func (p *portal) asCursor() (*cursor, error) {
	if p.stmt.desc.columns == nil || !p.e.st.ReadOnly || p.e.st.Cursor != nil || p.e.st.Copy {
		return nil, sqlstate.Refusal("CLV-1011", "FETCH, MOVE and CLOSE of portal %s, which is not that of a query, are not supported", quote(p.name)).
			WithHint("Use Execute and Close messages, or DECLARE a cursor.")
	}
	k := &cursor{desc: p.stmt.desc, e: &p.e, job: p.job, noScroll: true, read: p.rows, pos: p.rows, ended: p.done || p.last, of: p}
	if p.done {
		k.pos++
	}
	return k, nil
}

// foreign runs a Describe or Execute that names no portal of the conversation: a cursor, or one of when
// the session talked on a part itself.
func (c *Conn) foreign(f wire.Frame, name string, rows int32) error {
	k, p, err := c.cursorOf(name)
	switch {
	case err != nil:
		return pgbackend.NoPortal(name)
	case c.Aborted:
		return errFailed
	case !k.own():
		if p.Busy != nil {
			return sqlstate.New(sqlstate.ObjectInUse, "cursor %q is being read", name)
		}
		return c.relayFrame(p, f)
	case f.Type() == wire.Describe:
		c.out = k.desc.formatted(c.out, nil)
		return nil
	}
	st := fetchOf(name, int64(rows))
	desc := &description{columns: k.desc.columns, fields: k.desc.fields}
	e := execution{st: st, desc: desc, args: &plan.Args{}} // text, even if it was declared BINARY
	return c.start(&portal{e: e, stmt: &prepared{st: st, desc: desc}, name: name, cursor: true}, rows, false)
}

// fetchOf is what an Execute of a cursor does.
func fetchOf(name string, rows int64) *plan.Statement {
	if rows == 0 {
		rows = plan.All
	}
	return &plan.Statement{
		Kind: plan.OneShard, Tag: "SELECT", ReadOnly: true, ReturnsRows: true, Text: "FETCH " + quote(name),
		Cursor: &plan.Cursor{Op: "fetch", Name: name, Direction: plan.Forward, Count: rows},
	}
}

// relayFrame passes a Describe or Execute on to a part as it is.
func (c *Conn) relayFrame(p *txn.Participant, f wire.Frame) error {
	switch f.Type() {
	case wire.Describe:
		p.Pipe.DescribePortal(string(f.Body()[1:len(f.Body())-1]), true, nil, nil)
	default:
		var values *executor.Columns
		if p.Conn.Foreign() {
			values = new(executor.Columns)
			name, _, _ := wire.CutString(f.Body())
			p.Pipe.LearnColumns(name, nil, values)
		}
		p.Pipe.ExecuteFrame(f, values)
	}
	p.Pipe.Inner = false // the client is told
	defer func() { p.Pipe.Inner = true }()
	o, err := p.Pipe.Run(executor.Sync, (*through)(c))
	if err != nil {
		return c.Failure(p, err)
	}
	if o.Err != nil {
		return c.Failure(p, o.Err)
	}
	return nil
}

// closeNamed closes a portal, or a cursor; it is no error if there is none.
func (c *Conn) closeNamed(name string) error {
	if c.portals.Drop(name) || name == "" {
		return nil
	}
	k, p, err := c.cursorOf(name)
	if err != nil {
		return nil
	}
	if k != nil {
		c.dropCursor(name, k)
	}
	if !c.Aborted && !k.own() && p.Busy == nil {
		return c.closeOn(p, name)
	}
	return nil
}

// closeOn closes a portal of a part.
func (c *Conn) closeOn(p *txn.Participant, name string) error {
	p.Pipe.Close(name, false)
	o, err := p.Pipe.Run(executor.Sync, (*through)(c))
	if err != nil {
		return c.Failure(p, err)
	}
	if o.Err != nil {
		return c.Failure(p, o.Err)
	}
	return nil
}
