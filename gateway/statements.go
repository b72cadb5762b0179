package gateway

import (
	"encoding/binary"
	"hash/maphash"

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
