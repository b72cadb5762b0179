package several

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// cursor is what DECLARE made. One over a statement of one shard is that shard's;
// one over several is a job that is read forward, in portions.
type cursor struct {
	shard string // whose cursor it is; "": it is one over several
	desc  *description
	// e is what it runs. The job begins with the first FETCH, in the formats that
	// this asks for, or before the next statement that is none (startCursors).
	e      *execution
	job    job
	binary bool // declared BINARY
	// ended: all rows were read; pos counts those that were.
	ended bool
	pos   int64
	// depth is how many savepoints were set when it was declared.
	depth int
	// busy: a FETCH is under way.
	busy bool
}

func (k *cursor) end() {
	if k.job != nil && !k.ended {
		k.job.stop()
	}
	k.ended = true
}

// formats are those of a FETCH in a simple Query.
func (k *cursor) formats() []int16 {
	if k.binary {
		return []int16{1}
	}
	return nil
}

// over reports whether it is one over several shards.
func (k *cursor) over() bool { return k != nil && k.e != nil }

// cursorPortion is how many rows a shard is asked for at a time.
const cursorPortion = 100

// declare runs DECLARE of a cursor over several shards.
func (c *Conn) declare(ctx context.Context, e *execution) (job, error) {
	d := e.st.Cursor
	switch {
	case !c.block:
		return nil, sqlstate.New(sqlstate.NoActiveTransaction, "DECLARE CURSOR can only be used in transaction blocks")
	case c.cursors[d.Name] != nil || c.portals[d.Name] != nil:
		return nil, sqlstate.New("42P03", "cursor %q already exists", d.Name)
	case len(c.cursors) >= portalMax:
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "%d cursors are open", len(c.cursors))
	case d.Scroll:
		return nil, sqlstate.Refuse("a SCROLL cursor over several shards is not supported: its rows are not kept", "declare it without SCROLL and read it forward")
	}
	query := *e.st
	query.Cursor, query.Tag, query.Text, query.ReturnsRows = nil, "SELECT", d.Query, true
	desc, err := c.describe(ctx, &query, e.args.OIDs)
	if err != nil {
		return nil, err
	}
	k := &cursor{desc: desc, e: &execution{st: &query, args: e.args, desc: desc, portion: cursorPortion}}
	k.binary = d.Binary
	k.e.results = k.formats()
	c.keepCursor(d.Name, k)
	return &answer{tag: "DECLARE CURSOR"}, nil
}

// startCursors begins the cursors that were declared and not read yet: what
// follows must not show in their rows.
func (c *Conn) startCursors() error {
	for _, k := range c.cursors {
		err := c.startJob(k)
		if code := string(sqlstate.CodeOf(err)); strings.HasPrefix(code, "2") && code != "25P02" {
			return sqlstate.Refuse("the first rows of a cursor over several shards are computed before they are fetched, and that fails: "+sqlstate.As(err).Message, "write the query so that no row fails")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) startJob(k *cursor) (err error) {
	if !k.over() || k.job != nil || k.ended {
		return nil
	}
	if k.job, err = c.begins(c.ctx, k.e); err != nil {
		return err
	}
	return c.quiet()
}

func (c *Conn) keepCursor(name string, k *cursor) {
	if c.cursors == nil {
		c.cursors = map[string]*cursor{}
	}
	k.depth = len(c.saves)
	c.cursors[name] = k
}

// closeCursors closes those that were declared with more savepoints set than
// depth.
func (c *Conn) closeCursors(depth int) {
	for name, k := range c.cursors {
		if k.depth > depth {
			k.end()
			delete(c.cursors, name)
		}
	}
}

// cursorOf finds the cursor of a FETCH, MOVE or CLOSE: nil is one that a part has
// from before it was adopted.
func (c *Conn) cursorOf(name string) (*cursor, *part, error) {
	if k := c.cursors[name]; k != nil {
		return k, c.find(k.shard), nil
	}
	if name != "" && c.portals[name] != nil {
		return nil, nil, sqlstate.Refuse("FETCH, MOVE and CLOSE of portal "+quote(name)+", which a Bind message opened over several shards, are not supported", "use Execute and Close messages, or DECLARE a cursor")
	}
	for _, p := range c.parts {
		if p.adopted {
			return nil, p, nil
		}
	}
	return nil, nil, sqlstate.New(sqlstate.InvalidCursorName, "cursor %q does not exist", name)
}

// simpleFormats are the formats of a statement's rows in a simple Query.
func (c *Conn) simpleFormats(st *planner.Statement) []int16 {
	if st.Cursor == nil || c.cursors[st.Cursor.Name] == nil {
		return nil
	}
	return c.cursors[st.Cursor.Name].formats()
}

// describeFetch describes a FETCH: nothing that could be kept.
func (c *Conn) describeFetch(st *planner.Statement) (*description, error) {
	if !st.ReturnsRows {
		return &description{}, nil
	}
	k, p, err := c.cursorOf(st.Cursor.Name)
	switch {
	case err != nil:
		return nil, err
	case !k.over():
		return c.describeOn(p, st.Text, nil)
	}
	return k.desc, nil
}

// startCursor runs FETCH, MOVE and CLOSE.
func (c *Conn) startCursor(ctx context.Context, e *execution) (job, error) {
	q := e.st.Cursor
	if q.Op == "close" {
		return c.closeCursor(ctx, e)
	}
	k, p, err := c.cursorOf(q.Name)
	if err != nil {
		return nil, err
	}
	if !k.over() {
		return c.startRelay(ctx, e, p.shard)
	}
	if q.Op == "fetch" {
		want := e.results
		if e.simple {
			want = k.formats()
		}
		if k.job == nil {
			k.e.results = want
		}
		for i := range k.desc.fields {
			if wire.FormatAt(want, i) != wire.FormatAt(k.e.results, i) {
				return nil, sqlstate.Refuse("a cursor over several shards gives all its rows in the formats of the first FETCH", "read it with FETCH of one kind, or make FETCH the first statement after DECLARE")
			}
		}
	}
	if err := c.startJob(k); err != nil {
		return nil, err
	}
	f := &fetch{k: k, move: q.Op == "move", tag: e.st.Tag}
	refused := sqlstate.Refuse("a cursor over several shards is read forward only", "FETCH FORWARD, or declare another cursor with the opposite ORDER BY")
	if q.Count == 0 && q.Direction != planner.Absolute {
		refused = sqlstate.Refuse("a cursor over several shards does not keep the row that it is on", "keep what the last FETCH gave in the client")
	}
	switch q.Direction {
	case planner.Forward:
		f.left = q.Count
	case planner.Relative:
		f.skip, f.left = q.Count-1, 1
	case planner.Absolute:
		f.skip, f.left = q.Count-1-k.pos, 1
	default:
		return nil, refused
	}
	if f.left <= 0 || f.skip < 0 || k.ended && q.Direction == planner.Absolute && f.skip <= 0 {
		return nil, refused
	}
	if k.busy {
		return nil, sqlstate.New(sqlstate.ObjectInUse, "cursor %q is being read", q.Name)
	}
	k.busy = true
	return f, nil
}

func (c *Conn) closeCursor(ctx context.Context, e *execution) (job, error) {
	name := e.st.Cursor.Name
	if name == "" {
		for _, p := range c.parts {
			if p.begun {
				if _, err := c.exec(p, "CLOSE ALL"); err != nil {
					return nil, err
				}
			}
		}
		c.closeCursors(-1)
		return &answer{tag: "CLOSE CURSOR ALL"}, nil
	}
	k, p, err := c.cursorOf(name)
	if err != nil {
		return nil, err
	}
	if k != nil {
		k.end()
		delete(c.cursors, name)
	}
	if !k.over() {
		return c.startRelay(ctx, e, p.shard)
	}
	return &answer{tag: "CLOSE CURSOR"}, nil
}

// fetch is the job of a FETCH or MOVE.
type fetch struct {
	k          *cursor
	skip, left int64
	given      int64
	move       bool
	tag        string
	buf        []byte
}

// step implements job.
func (f *fetch) step(out []byte, rows int32) ([]byte, bool, string, error) {
	k := f.k
	done := func() ([]byte, bool, string, error) {
		k.busy = false
		return out, true, f.tag + " " + strconv.FormatInt(f.given, 10), nil
	}
	if k.ended || f.left == 0 {
		return done()
	}
	want := f.left
	if f.skip > 0 {
		want = f.skip
	}
	want = min(want, cursorPortion)
	if rows > 0 {
		want = min(want, int64(rows))
	}
	frames, ended, _, err := k.job.step(f.buf[:0], int32(want))
	if err != nil {
		return out, false, "", err
	}
	f.buf = frames
	n, _, _ := countRows(frames)
	k.pos += int64(n)
	k.ended = ended
	switch {
	case f.skip > 0:
		f.skip -= int64(n)
	default:
		f.left -= int64(n)
		f.given += int64(n)
		if !f.move {
			out = append(out, frames...)
		}
	}
	if k.ended || f.left == 0 {
		return done()
	}
	return out, false, "", nil
}

// stop implements job.
func (f *fetch) stop() { f.k.busy = false }

// explain runs a plain EXPLAIN of a statement over several shards: each shard's
// plan of what it would run.
func (c *Conn) explain(ctx context.Context, e *execution) (job, error) {
	x, plan := e.st.Explained, e.st.Plan
	switch {
	case x.Analyze:
		return nil, sqlstate.Refuse("EXPLAIN ANALYZE of a statement over several shards is not supported", "EXPLAIN (ROUTE, ANALYZE) runs it and shows each shard's part")
	case !x.Plain:
		return nil, sqlstate.Refuse("EXPLAIN of a statement over several shards answers in text only", "leave FORMAT out")
	}
	j := &answer{tag: "EXPLAIN"}
	line := func(s string) { j.rows = append(j.rows, wire.AppendDataRow(nil, [][]byte{[]byte(s)})) }
	line("Several shards: " + plan.Op.String())
	snap := c.host.Snapshot()
	on := func(what string, text func(string, ...*shardmap.Snapshot) (string, error), target *planner.Target) error {
		shards, err := target.Shards(snap, e.args)
		if err != nil {
			return err
		}
		parts, err := c.partsOf(ctx, shards, false)
		if err != nil {
			return err
		}
		streams := make([]*stream, len(parts))
		for i, p := range parts {
			own, err := text(p.shard, c.maps(p, snap)...)
			if err != nil {
				return err
			}
			q := e.request(x.Prefix + own)
			q.results, q.portion = nil, 0
			if streams[i], err = c.send(p, q); err != nil {
				return err
			}
		}
		for i, s := range streams {
			line("  ->  " + what + "shard " + parts[i].shard)
			for {
				row, err := s.next()
				if err != nil {
					return err
				}
				if row == nil {
					break
				}
				if len(row) > 6 {
					line("        " + string(row[6:6+binary.BigEndian.Uint32(row[2:])]))
				}
			}
		}
		return nil
	}
	for i := range plan.Relations {
		r := &plan.Relations[i]
		if err := on("relation "+r.Name+" from ", r.On, &r.Target); err != nil {
			return nil, err
		}
	}
	switch plan.Op {
	case planner.Scatter:
		if err := on("", plan.On, &plan.Target); err != nil {
			return nil, err
		}
	case planner.Gather:
		line("  ->  on the relations: " + plan.Text)
	default:
		for _, s := range plan.Lines(c.host.Snapshot(), e.args) {
			line("  ->  " + s)
		}
	}
	return j, nil
}
