package gateway

import (
	"encoding/binary"
	"slices"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
)

// Clients number types as the default shard does. What the messages of a Pipeline do not
// show (a parameter's type, a portal's columns) the session says; see executor/oids.go.

// numbers makes sure that pipe.Conn knows the OIDs of a statement's declared types.
func (x *prepared) numbers(s *statement) error {
	if len(s.oids) == 0 {
		return nil
	}
	_, err := x.pipe.Conn.OIDs(s.oids, !x.shards.nowait)
	return x.pipe.numbered(err)
}

// numberedColumns reports whether values of a RowDescription's columns may have OIDs
// inside that differ between shards.
func numberedColumns(body []byte) bool {
	for len(body) > 2 {
		_, rest, ok := cut(body[2:])
		if !ok || len(rest) < 18 {
			return false
		}
		if executor.MayNumber(binary.BigEndian.Uint32(rest[6:])) {
			return true
		}
		body = rest[16:]
	}
	return false
}

// numberedBind translates the parameters of a Bind for pipe.Conn, and finds out
// whether the rows of the portal will have to be. rest is the body after its names, which
// x.args were read from.
func (x *prepared) numberedBind(p *portal, rest []byte) ([]byte, error) {
	p.values, p.described = nil, false
	if !slices.Contains(x.args.Formats, 1) && !binaryFormats(x.bound.Tail) || !x.pipe.Conn.Foreign() {
		return rest, nil
	}
	s := p.stmt
	if err := x.typed(s); err != nil {
		return nil, err
	}
	if binaryFormats(x.bound.Tail) && (s.columns == 0 || s.numbered || s.replanned || s.plan.Cursor != nil) {
		p.values = &executor.Columns{}
	}
	types := s.types
	if types == nil {
		types = s.oids
	}
	values, err := x.pipe.Conn.Values(types, x.args.Formats, x.args.Values, !x.shards.nowait)
	if err != nil {
		return nil, x.pipe.numbered(err)
	}
	if len(values) == 0 || &values[0] == &x.args.Values[0] {
		return rest, nil
	}
	return x.withValues(rest, values), nil
}

// typed makes sure that the types of a statement's parameters are known if one of x.args, in
// binary, could have OIDs inside: the shard is asked.
func (x *prepared) typed(s *statement) error {
	if s.types != nil || !x.mayNumber(s) {
		return nil
	}
	if x.shards.nowait {
		return errWait
	}
	relay := x.pending == s
	on, err := x.prepare(s, relay)
	if err != nil {
		return err
	}
	x.pending = nil
	x.pipe.CheckColumns(on, s)
	_, err = x.converse(executor.Flush)
	return err
}

// mayNumber reports whether a value of x.args, in binary and of a type that nobody has told, could
// have OIDs of one's own inside.
func (x *prepared) mayNumber(s *statement) bool {
	for i, v := range x.args.Values {
		if (i < len(s.oids) && s.oids[i] != 0) || wire.FormatAt(x.args.Formats, i) != 1 || !numberedSize(v) {
			continue
		}
		return s.plan.Numbers || slices.ContainsFunc(s.plan.Tables, func(t *shardmap.Table) bool {
			return slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return executor.MayNumber(c.OID) })
		})
	}
	return false
}

// numberedSize reports whether a value could be an OID of one's own, or have one inside: a
// range takes 9 bytes at least, what else there is takes more.
func numberedSize(v []byte) bool {
	return len(v) == 4 && binary.BigEndian.Uint32(v) >= executor.FirstUserOID || len(v) >= 9
}

// binaryFormats reports whether one of the result formats of a Bind is binary.
func binaryFormats(b []byte) bool {
	for at := 2; at+2 <= len(b); at += 2 {
		if b[at+1] == 1 {
			return true
		}
	}
	return false
}

// copied finds out which columns of a COPY (query) TO STDOUT in binary have OIDs inside
// that pipe.Conn's shard has of its own; nil if there is nothing to translate.
func (x *prepared) copied(st *planner.Statement) (*executor.Columns, error) {
	if st.CopyRows == "" || !x.pipe.Conn.Foreign() {
		return nil, nil
	}
	if err := x.drain(); err != nil {
		return nil, err
	}
	values := &executor.Columns{}
	const portal = "cleave_copied" // the unnamed one may be the client's
	x.pipe.dirty = true
	x.pipe.Unnamed(values, st.CopyRows, nil, x.pipe.Conn.Settings(), false)
	x.pipe.Bind(portal, "", []byte{0, 0, 0, 0, 0, 1, 0, 1}, false)
	x.pipe.LearnColumns(portal, nil, values)
	x.pipe.Close(portal, false)
	_, err := x.converse(executor.Flush)
	if err != nil && x.pipe.Conn != nil && x.pipe.Skipping() {
		// A Query after it would be ignored as well.
		if o, failed := x.pipe.Run(executor.Sync, &x.w); failed != nil || o.Err != nil {
			x.pipe.Conn.Break()
		}
	}
	return values, err
}
