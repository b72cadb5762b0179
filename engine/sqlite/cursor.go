package sqlite

import (
	"math"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// A cursor is a portal with rows that are read step by step. Its rows are those
// of the moment at which it was declared: before anything is written, and before a
// savepoint, what it has not given yet is read into memory (holdPortals).

// heldMax bounds the rows that are held for the open cursors and portals of one
// conversation, bytes.
const heldMax = 256 << 20

// cursorState is what makes a portal a cursor.
type cursorState struct {
	scroll   bool // all rows are kept
	noScroll bool
	hold     bool // stays after the transaction that declared it
	kept     bool // that transaction is being, or was, committed
	fresh    bool // it has not ended
	pos      int64
	ended    bool // a row after the last was asked for
}

const (
	// DECLARE's options, as the parser numbers them.
	cursorBinary   = 0x01
	cursorScroll   = 0x02
	cursorNoScroll = 0x04
	cursorHold     = 0x20
)

// planDeclare plans DECLARE ... CURSOR.
func (c *transaction) planDeclare(s *pg.DeclareCursorStmt, text string) (*plan, error) {
	if s.Options&cursorBinary != 0 {
		return nil, value.Unsupported("a BINARY cursor")
	}
	if s.Options&cursorScroll != 0 && s.Options&cursorNoScroll != 0 {
		return nil, sqlstate.New(sqlstate.SyntaxError, "cannot specify both SCROLL and NO SCROLL")
	}
	return c.utility("DECLARE CURSOR", false, text, func(c *Conn, p *portal) error { return c.declare(s, text) }), nil
}

// declare opens a cursor.
func (c *Conn) declare(s *pg.DeclareCursorStmt, text string) (err error) {
	defer fault.Catch(&err)
	hold := s.Options&cursorHold != 0
	if c.tx.block == txNone && !hold && (c.script == nil || !c.script.multi) {
		return sqlstate.New(sqlstate.NoActiveTransaction, "DECLARE CURSOR can only be used in transaction blocks")
	}
	if s.Query.GetSelectStmt() == nil {
		return sqlstate.New("42P11", "DECLARE CURSOR must specify a SELECT statement")
	}
	inner, err := c.translateStatement(&pg.RawStmt{Stmt: s.Query}, text, nil, true)
	if err != nil {
		return err
	}
	inner.evicted = true
	if inner.Write || inner.Locks && hold {
		return value.Unsupported("this query of a cursor")
	}
	if err := c.portals.Free([]byte(s.Portalname)); err != nil {
		return err
	}
	k := &portal{name: s.Portalname, plan: inner, cursor: &cursorState{
		scroll: s.Options&cursorScroll != 0, noScroll: s.Options&cursorNoScroll != 0, hold: hold, fresh: true}}
	if err := c.run(k); err != nil {
		return err
	}
	c.portals.Put(k.name, k, c.tx.saves.Len())
	if hold || k.cursor.scroll {
		return c.holdPortal(k)
	}
	return nil
}

// planFetch plans FETCH and MOVE. The columns are those of the cursor, which is
// found again when it runs.
func (c *session) planFetch(s *pg.FetchStmt, text string) (*plan, error) {
	tag := "FETCH"
	if s.Ismove {
		tag = "MOVE"
	}
	p := &plan{Statement: translate.Statement{Tag: tag, Returns: !s.Ismove}, text: text, kind: controlPlan, fetch: s}
	if k, ok := c.portals.Find(s.Portalname); ok && !s.Ismove {
		p.Columns = k.plan.Columns
	}
	p.util = func(c *Conn, p *portal) error {
		k, ok := c.portals.Find(s.Portalname)
		if !ok {
			return sqlstate.New(sqlstate.InvalidCursorName, "cursor \"%s\" does not exist", s.Portalname)
		}
		if c.tx.block == txFailed {
			return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
		}
		if k.cursor == nil || k.plan.kind != queryPlan {
			return value.Unsupported("FETCH from a portal of the protocol")
		}
		if !s.Ismove && !sameColumns(p.plan.Columns, k.plan.Columns) {
			return sqlstate.ChangedResult()
		}
		return c.fetch(k, s, p, tag)
	}
	return p, nil
}

func onlyForward(k *portal) error {
	if k.cursor.noScroll {
		return sqlstate.New(sqlstate.ObjectNotInState, "cursor can only scan forward").WithHint("Declare it with SCROLL option to enable backward scan.")
	}
	return sqlstate.Refusal("CLV-2019", "a cursor that was declared without SCROLL goes forward only on a SQLite shard").
		WithHint("Declare it with SCROLL.")
}

// fetch gives the portal p the rows that a FETCH asks for.
func (c *session) fetch(k *portal, s *pg.FetchStmt, p *portal, tag string) error {
	cur, n := k.cursor, s.HowMany
	if !cur.scroll {
		return c.fetchForward(k, s, p, tag)
	}
	from, to, backward := cur.move(s.Direction, n, int64(len(k.rows)))
	switch {
	case backward:
		for i := from; i >= to; i-- {
			p.rows = append(p.rows, k.rows[i-1])
		}
	default:
		for i := from; i <= to; i++ {
			p.rows = append(p.rows, k.rows[i-1])
		}
	}
	return fetched(p, s, tag, int64(len(p.rows)))
}

// move moves a scrollable cursor over count rows, and returns the rows it passes, in their order: from > to is none, or backward.
// Rows are numbered from 1; 0 is before the first, count+1 after the last.
func (cur *cursorState) move(direction pg.FetchDirection, n, count int64) (from, to int64, backward bool) {
	none := func(pos int64) { cur.pos, from, to = min(max(pos, 0), count+1), 1, 0 }
	if direction == pg.FetchDirection_FETCH_ABSOLUTE || direction == pg.FetchDirection_FETCH_RELATIVE { // one row
		at := n
		if direction == pg.FetchDirection_FETCH_RELATIVE {
			at = cur.pos + n
		} else if n < 0 {
			at = count + 1 + n
		}
		if none(at); at >= 1 && at <= count {
			from, to = at, at
		}
		return from, to, false
	}
	backward = direction == pg.FetchDirection_FETCH_BACKWARD
	if n < 0 {
		backward, n = !backward, -n
	}
	switch {
	case n == 0: // the row it is on
		from, to, backward = cur.pos, cur.pos, false
		if cur.pos < 1 || cur.pos > count {
			none(cur.pos)
		}
	case backward:
		from, to = cur.pos-1, max(cur.pos-n, 1)
		cur.pos = max(cur.pos-n, 0)
	default:
		from, to = cur.pos+1, count
		if n <= count-cur.pos {
			to = cur.pos + n
			cur.pos = to
		} else {
			cur.pos = count + 1
		}
	}
	return from, to, backward
}

// fetched sets the tag; MOVE gives no rows.
func fetched(p *portal, s *pg.FetchStmt, tag string, n int64) error {
	p.tag = tag + " " + itoa(n)
	if s.Ismove {
		p.rows = nil
	}
	return nil
}

func (c *session) fetchForward(k *portal, s *pg.FetchStmt, p *portal, tag string) error {
	cur, n := k.cursor, s.HowMany
	skip := int64(0)
	switch s.Direction {
	case pg.FetchDirection_FETCH_BACKWARD:
		n = -n
	case pg.FetchDirection_FETCH_ABSOLUTE:
		skip, n = n-cur.pos-1, 1
	case pg.FetchDirection_FETCH_RELATIVE:
		skip, n = n-1, 1
	}
	if skip < 0 || n < 0 || n == 0 && cur.pos > 0 && !cur.ended {
		return onlyForward(k)
	}
	if n >= math.MaxInt32 { // ALL
		n = math.MaxInt64
	}
	p.pull = c.pullForward(k, skip, n)
	if !s.Ismove {
		p.tag = ""
		return nil
	}
	moved := int64(0)
	for {
		_, ok, err := p.pull()
		if err != nil {
			return err
		}
		if !ok {
			p.pull = nil
			return fetched(p, s, tag, moved)
		}
		moved++
	}
}

// pullForward returns the cursor's next rows, one a call: it skips some, and gives at most so many.
func (c *session) pullForward(k *portal, skip, left int64) func() ([]value.Datum, bool, error) {
	cur := k.cursor
	return func() ([]value.Datum, bool, error) {
		for left > 0 {
			row, ok, err := c.nextRow(k)
			if err != nil || !ok {
				cur.ended = true
				return nil, false, err
			}
			cur.pos++
			if skip > 0 {
				skip--
				continue
			}
			left--
			return row, true, nil
		}
		return nil, false, nil
	}
}

// nextRow is the next row of a portal that is read forward.
func (c *session) nextRow(k *portal) ([]value.Datum, bool, error) {
	if k.held {
		if k.rowPos >= len(k.rows) {
			return nil, false, nil
		}
		row := k.rows[k.rowPos]
		k.rows[k.rowPos] = nil
		k.rowPos++
		return row, true, nil
	}
	if k.done || k.stmt == nil {
		return nil, false, nil
	}
	row, ok, err := k.stepRow()
	if err == nil && !ok {
		k.done = true
		k.end()
	}
	return row, ok, err
}

// stepRow reads the statement's next row.
func (k *portal) stepRow() ([]value.Datum, bool, error) {
	if !k.row {
		ok, err := k.stmt.Step()
		if err != nil || !ok {
			return nil, false, err
		}
	}
	k.row = false
	row := make([]value.Datum, len(k.plan.Columns))
	for i := range row {
		var err error
		if row[i], _, err = value.OfColumn(k.stmt, i, k.plan.Columns[i].Class, nil); err != nil {
			return nil, false, err
		}
	}
	return row, true, nil
}

// holdPortals reads what open portals have not given yet into memory, since what
// follows must not show in it.
func (c *session) holdPortals() error {
	for _, k := range c.portals.All() {
		if k.stmt != nil && k.started && !k.done && k != c.active {
			if err := c.holdPortal(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *session) holdPortal(k *portal) error {
	size := 0
	for {
		row, ok, err := k.stepRow()
		if err != nil {
			if c.env.Err != nil {
				err, c.env.Err = c.env.Err, nil
			}
			return err
		}
		if !ok {
			break
		}
		if k.seen != nil {
			id := k.stmt.ColumnInt64(len(k.plan.Columns))
			if k.seen[id] {
				return sqlstate.New("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")
			}
			k.seen[id] = true
		}
		for i := range row {
			size += 40 + len(row[i].Str)
		}
		if c.held+size > heldMax {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the rows of open cursors take more than %d MiB", heldMax>>20).
				WithHint("Close cursors before the transaction writes, or read fewer rows.")
		}
		k.rows = append(k.rows, row)
	}
	k.end()
	if k.seen != nil {
		k.seen = nil
		if err := c.cachedExec("RELEASE cleave_once"); err != nil {
			return err
		}
	}
	c.held += size
	k.held, k.heldSize = true, size
	return nil
}

// forgetPortal lets go of what a portal holds.
func (c *session) forgetPortal(k *portal) {
	k.end()
	c.held -= k.heldSize
	k.rows, k.heldSize = nil, 0
}

// keepCursors is what a commit does to cursors WITH HOLD, before it closes all others.
func (c *session) keepCursors() {
	for _, k := range c.portals.All() {
		if k.cursor != nil && k.cursor.hold {
			k.cursor.kept = true
		}
	}
}
