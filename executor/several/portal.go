package several

import (
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// In PostgreSQL a cursor of DECLARE and a portal of Bind are one thing: messages name
// cursors, and FETCH, MOVE and CLOSE name portals. So they do here.

// asCursor is the portal as FETCH, MOVE and CLOSE see it, read forward only as every portal of a Bind (CreatePortal of portalmem.c).
func (p *portal) asCursor() (*cursor, error) {
	if p.stmt.desc.columns == nil || !p.e.st.ReadOnly || p.e.st.Cursor != nil || p.e.st.Copy {
		return nil, sqlstate.Refusal("CLV-1011", "FETCH, MOVE and CLOSE of portal %s, which is not that of a query, are not supported", quote(p.name)).
			WithHint("use Execute and Close messages, or DECLARE a cursor")
	}
	k := &cursor{desc: p.stmt.desc, e: &p.e, job: p.job, noScroll: true, read: p.rows, pos: p.rows, ended: p.done || p.last, of: p}
	if p.done {
		k.pos++
	}
	return k, nil
}

// foreign runs a Describe or Execute that names no portal of the conversation: a cursor, or one that the adopted part
// had before.
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
	e := execution{st: st, desc: desc, args: &planner.Args{}} // text, even if it was declared BINARY
	return c.start(&portal{e: e, stmt: &prepared{st: st, desc: desc}, name: name, cursor: true}, rows, false)
}

// fetchOf is what an Execute of a cursor does.
func fetchOf(name string, rows int64) *planner.Statement {
	if rows == 0 {
		rows = planner.All
	}
	return &planner.Statement{
		Kind: planner.OneShard, Tag: "SELECT", ReadOnly: true, ReturnsRows: true, Text: "FETCH " + quote(name),
		Cursor: &planner.Cursor{Op: "fetch", Name: name, Direction: planner.Forward, Count: rows},
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
