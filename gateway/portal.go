package gateway

import (
	"strings"

	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// portal finds a portal whose conversation is still at hand.
func (x *session) portal(name []byte) (*portal, error) {
	p, ok := x.portals.Named(name)
	if !ok {
		return x.cursorPortal(string(name))
	}
	if p.conn != nil && p.conn != x.pipe.Conn {
		if p.conn != x.tx.conn {
			return nil, sqlstate.Refuse("the portal is on a shard that other messages have left since", "fetch all its rows before going to another shard, or use one transaction per shard")
		}
		if err := x.leave(); err != nil {
			return nil, err
		}
		x.pipe.Conn = p.conn
	}
	return p, nil
}

// cursorPortal finds what a Describe or Execute names that no Bind has made: a cursor of DECLARE, which is a
// portal as well. The conversation that would run its FETCH says whether there is one.
func (x *session) cursorPortal(name string) (*portal, error) {
	none := pgbackend.NoPortal(name)
	if name == "" || x.tx.state == txNone && !x.held.Has(name) {
		return nil, none
	}
	if x.tx.state != txNone && x.tx.conn == nil && x.tx.schema == nil && !x.held.Has(name) {
		return nil, none // nothing has run that could have declared it
	}
	st, err := x.fetchOf(name)
	if err != nil {
		return nil, err
	}
	// Its rows come as text, even if it was declared BINARY: no OID is inside of them.
	return &portal{st: st, stmt: &statement{text: st.Text, plan: st}, ran: true, conn: x.pipe.Conn}, nil
}

// fetchOf goes where a FETCH of the cursor is run.
func (x *session) fetchOf(name string) (*planner.Statement, error) {
	st, err := x.plan([]byte("FETCH ALL FROM " + quoteName(name)))
	if err != nil {
		return nil, err
	}
	shard, err := x.chooseRun(st, &planner.Args{})
	if err != nil {
		return nil, err
	}
	return st, x.reach(shard, useOf(st))
}

// closeCursorPortal is Close of what no Bind has made: a cursor of DECLARE, or nothing, which is no error.
func (x *session) closeCursorPortal(name string) error {
	if x.tx.state == txOpen && !x.tx.failed && (x.tx.conn != nil || x.tx.schema != nil) || x.held.Has(name) {
		if _, err := x.fetchOf(name); err != nil {
			return err
		}
		x.dirty = true
		x.pipe.Close(name, true)
		return nil
	}
	x.answer(wire.CloseComplete)
	return nil
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
