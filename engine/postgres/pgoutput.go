package postgres

import (
	"encoding/binary"
	"errors"
	"strings"
)

// Decoder of the messages of PostgreSQL's output plugin pgoutput, protocol version 1
// (PostgreSQL manual, "Logical Replication Message Formats"). Values are in text
// format. A message is one string, which its values are parts of, so that a row
// costs one allocation.

// The messages.
const (
	outBegin    = 'B'
	outMessage  = 'M'
	outCommit   = 'C'
	outOrigin   = 'O'
	outRelation = 'R'
	outType     = 'Y'
	outInsert   = 'I'
	outUpdate   = 'U'
	outDelete   = 'D'
	outTruncate = 'T'
)

// How a cell of a tuple comes.
const (
	cellNull      = 'n'
	cellUnchanged = 'u' // out of line, and not changed by the update: not sent
	cellText      = 't'
	cellBinary    = 'b'
)

type cell struct {
	kind byte
	text string
}

// output is one message. The decoder uses its slices again for the next one.
type output struct {
	kind byte
	// at is a Begin's place of the commit record, and a Commit's place after it.
	at lsn
	// relation is what a change is of, relations those of a truncate.
	relation  uint32
	relations []uint32
	// old is there if oldKind is 'K' (the identity's columns; the rest is NULL) or
	// 'O' (all columns); new is there for insert and update.
	oldKind  byte
	old, new []cell
	table    outputTable // of a Relation
}

type outputTable struct {
	schema, name string
	identity     byte
	columns      []outputColumn
}

type outputColumn struct {
	name     string
	key      bool // in the replica identity
	oid      uint32
	modifier int32
}

var errOutput = errors.New("the server sent a change that cannot be read")

// outputReader takes a message to pieces; after the first piece that is not there
// everything is empty and bad is true.
type outputReader struct {
	s   string
	bad bool
}

func (r *outputReader) bytes(n int) string {
	if r.bad || n < 0 || n > len(r.s) {
		r.bad = true
		return ""
	}
	b := r.s[:n]
	r.s = r.s[n:]
	return b
}

func (r *outputReader) byte() byte {
	if b := r.bytes(1); b != "" {
		return b[0]
	}
	return 0
}

func (r *outputReader) int16() int {
	if b := r.bytes(2); b != "" {
		return int(b[0])<<8 | int(b[1])
	}
	return 0
}

func (r *outputReader) int32() uint32 {
	if b := r.bytes(4); b != "" {
		return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	}
	return 0
}

func (r *outputReader) name() string {
	n := strings.IndexByte(r.s, 0)
	s := r.bytes(n)
	r.bytes(1)
	return s
}

func (r *outputReader) tuple(dst []cell) []cell {
	dst = dst[:0]
	for n := r.int16(); n > 0 && !r.bad; n-- {
		c := cell{kind: r.byte()}
		switch c.kind {
		case cellNull, cellUnchanged:
		case cellText:
			c.text = r.bytes(int(int32(r.int32())))
		default: // binary values were not asked for
			r.bad = true
		}
		dst = append(dst, c)
	}
	return dst
}

// decode reads a message. Kinds that mean nothing here are left undecoded.
func (o *output) decode(message []byte) error {
	if len(message) == 0 {
		return errOutput
	}
	o.kind, o.oldKind, o.old, o.new = message[0], 0, o.old[:0], o.new[:0]
	switch o.kind {
	case outBegin:
		if len(message) != 1+8+8+4 {
			return errOutput
		}
		o.at = lsn(binary.BigEndian.Uint64(message[1:]))
		return nil
	case outCommit:
		if len(message) != 1+1+8+8+8 {
			return errOutput
		}
		o.at = lsn(binary.BigEndian.Uint64(message[10:]))
		return nil
	case outMessage, outOrigin, outType:
		return nil
	}
	r := outputReader{s: string(message[1:])}
	switch o.kind {
	case outRelation:
		o.relation = r.int32()
		o.table = outputTable{schema: r.name(), name: r.name(), identity: r.byte()}
		for n := r.int16(); n > 0 && !r.bad; n-- {
			key := r.byte()&1 != 0
			o.table.columns = append(o.table.columns, outputColumn{key: key, name: r.name(), oid: r.int32(), modifier: int32(r.int32())})
		}
	case outInsert:
		o.relation = r.int32()
		r.bad = r.bad || r.byte() != 'N'
		o.new = r.tuple(o.new)
	case outUpdate:
		o.relation = r.int32()
		kind := r.byte()
		if kind == 'K' || kind == 'O' {
			o.oldKind = kind
			o.old = r.tuple(o.old)
			kind = r.byte()
		}
		r.bad = r.bad || kind != 'N'
		o.new = r.tuple(o.new)
	case outDelete:
		o.relation = r.int32()
		o.oldKind = r.byte()
		r.bad = r.bad || o.oldKind != 'K' && o.oldKind != 'O'
		o.old = r.tuple(o.old)
	case outTruncate:
		n := int(int32(r.int32()))
		r.byte() // CASCADE, RESTART IDENTITY
		o.relations = o.relations[:0]
		for ; n > 0 && !r.bad; n-- {
			o.relations = append(o.relations, r.int32())
		}
	default:
		return errOutput
	}
	if r.bad || r.s != "" {
		return errOutput
	}
	return nil
}
