package gateway

import (
	"encoding/binary"
	"hash/maphash"
	"strings"

	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// shardBorne reports whether a shard (or the virtual database) parses and runs
// the statement.
func shardBorne(st *planner.Statement) bool {
	return routed(st) || st.Kind == planner.Virtual || st.Kind == planner.Empty || relayedSet(st)
}

// forgetUnnamed is what a simple Query does to what has no name.
func (x *session) forgetUnnamed() {
	x.statements.Replace("")
	x.portals.Drop("")
}

var columnSeed = maphash.MakeSeed()

// Described compares the columns with those that the client knows
// (executor.Watch): PostgreSQL refuses to change them under a prepared statement.
func (s *statement) Described(body []byte) *sqlstate.Error {
	if s.columns != 0 && !s.replanned {
		return nil
	}
	digest := columnDigest(body)
	if s.columns != 0 && s.columns != digest && s.replanned {
		return sqlstate.ChangedResult()
	}
	s.columns, s.replanned, s.numbered = digest, false, numberedColumns(body)
	return nil
}

// columnCheck is a statement that is told its columns, and keeps the error: the conversation goes on.
type columnCheck struct {
	s      *statement
	failed *sqlstate.Error
}

// Described compares the columns (executor.Watch).
func (c *columnCheck) Described(body []byte) *sqlstate.Error {
	c.failed = c.s.Described(body)
	return nil
}

// Typed notes the types of the parameters (executor.TypeWatch).
func (c *columnCheck) Typed(oids []uint32) { c.s.Typed(oids) }

// Typed notes the types of the parameters (executor.TypeWatch).
func (s *statement) Typed(oids []uint32) { s.types = oids }

// columnDigest digests names and types. Table OIDs differ between shards.
func columnDigest(body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(columnSeed)
	if len(body) >= 2 {
		n := int(binary.BigEndian.Uint16(body))
		body = body[2:]
		for range n {
			name, rest, ok := cut(body)
			if !ok || len(rest) < 18 {
				break
			}
			_, _ = h.Write(name)       // never fails
			_, _ = h.Write(rest[6:10]) // never fails
			_ = h.WriteByte(0)         // never fails
			body = rest[18:]
		}
	}
	return h.Sum64() | 1
}

// cut splits a zero-terminated string off b without copying it.
func cut(b []byte) (s, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return b[:i], b[i+1:], true
		}
	}
	return nil, b, false
}

// portal finds a portal whose conversation is still at hand.
func (x *prepared) portal(name []byte) (*portal, error) {
	p, ok := x.portals.Named(name)
	if !ok {
		return x.cursorPortal(string(name))
	}
	if p.conn != nil && p.conn != x.pipe.Conn {
		if p.conn != x.tx.conn {
			return nil, sqlstate.Refusal("CLV-1020", "the portal is on a shard that other messages have left since").
				WithHint("fetch all its rows before going to another shard, or use one transaction per shard")
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
func (x *prepared) cursorPortal(name string) (*portal, error) {
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
func (x *prepared) fetchOf(name string) (*planner.Statement, error) {
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
		x.pipe.dirty = true
		x.pipe.Close(name, true)
		return nil
	}
	x.answer(wire.CloseComplete)
	return nil
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
