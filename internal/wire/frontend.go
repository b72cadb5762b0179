package wire

import (
	"bytes"
	"encoding/binary"

	"github.com/cleavedb/cleave/sqlstate"
)

// The frontend's messages are read here, in the order and with the errors of PostgreSQL (PostgresMain and exec_bind_message of
// src/backend/tcop/postgres.c, src/backend/libpq/pqformat.c). A slice that a reader returns shares the bytes of the message. No
// length that a message claims is believed before its bytes are there.

// Errors of a message whose bytes are not what its type says.
var (
	errNoByte = violation("no data left in message")
	errShort  = violation("insufficient data left in message")
	errString = violation("invalid string in message")
	errEnd    = violation("invalid message format")
)

func violation(text string) *sqlstate.Error {
	return sqlstate.New(sqlstate.ProtocolViolation, "%s", text)
}

// cutBytes splits a zero-terminated string off b without copying it (pq_getmsgstring).
func cutBytes(b []byte) (s, rest []byte, err error) {
	at := bytes.IndexByte(b, 0)
	if at < 0 {
		return nil, nil, errString
	}
	return b[:at:at], b[at+1:], nil
}

// ReadEmpty reads the body of a Sync or a Flush.
func ReadEmpty(body []byte) error {
	if len(body) > 0 {
		return errEnd
	}
	return nil
}

// ReadQuery reads the body of a Query.
func ReadQuery(body []byte) (sql []byte, err error) {
	sql, rest, err := cutBytes(body)
	if err != nil {
		return nil, err
	}
	return sql, ReadEmpty(rest)
}

// ParseMessage is a Parse. An OID of 0 leaves a parameter's type to the text.
type ParseMessage struct {
	Name, Text []byte
	OIDs       []uint32
}

// ReadParse reads the body of a Parse.
func ReadParse(body []byte) (m ParseMessage, err error) {
	if m.Name, body, err = cutBytes(body); err != nil {
		return m, err
	}
	if m.Text, body, err = cutBytes(body); err != nil {
		return m, err
	}
	if len(body) < 2 {
		return m, errShort
	}
	n := int(binary.BigEndian.Uint16(body))
	body = body[2:]
	switch {
	case len(body) < 4*n:
		return m, errShort
	case len(body) > 4*n:
		return m, errEnd
	case n == 0:
		return m, nil
	}
	m.OIDs = make([]uint32, n)
	for i := range m.OIDs {
		m.OIDs[i] = binary.BigEndian.Uint32(body[4*i:])
	}
	return m, nil
}

// ReadDescribe reads the body of a Describe: of a statement ('S') or a portal ('P').
func ReadDescribe(body []byte) (what byte, name []byte, err error) {
	return readTarget(body, "DESCRIBE")
}

// ReadClose reads the body of a Close: of a statement ('S') or a portal ('P').
func ReadClose(body []byte) (what byte, name []byte, err error) {
	return readTarget(body, "CLOSE")
}

func readTarget(body []byte, message string) (what byte, name []byte, err error) {
	if len(body) == 0 {
		return 0, nil, errNoByte
	}
	name, rest, err := cutBytes(body[1:])
	if err == nil {
		err = ReadEmpty(rest)
	}
	if what = body[0]; err == nil && what != 'S' && what != 'P' {
		err = sqlstate.New(sqlstate.ProtocolViolation, "invalid %s message subtype %d", message, what)
	}
	return what, name, err
}

// ReadExecute reads the body of an Execute. rows is how many it may give, 0: all.
func ReadExecute(body []byte) (portal []byte, rows int32, err error) {
	portal, rest, err := cutBytes(body)
	switch {
	case err != nil:
		return nil, 0, err
	case len(rest) < 4:
		return nil, 0, errShort
	case len(rest) > 4:
		return nil, 0, errEnd
	}
	return portal, max(int32(binary.BigEndian.Uint32(rest)), 0), nil //nolint:gosec // the same bits
}

// BindMessage is a Bind. It is read in three steps, since PostgreSQL looks for the statement and judges the number of parameters
// before it reads on: Names, Counts, Args. It may be used again, and keeps its slices for that.
type BindMessage struct {
	Portal, Statement []byte
	// After is what comes after the names: what ReadAfter takes.
	After   []byte
	Formats []int16  // of the parameters, see FormatAt
	Values  [][]byte // of the parameters; nil is NULL
	// Tail is the end of the message: how many formats of results there are, and these.
	Tail   []byte
	params int
	rest   []byte
}

// Names reads the portal's and the statement's name from the body of a Bind.
func (m *BindMessage) Names(body []byte) (err error) {
	if m.Portal, body, err = cutBytes(body); err != nil {
		return err
	}
	if m.Statement, body, err = cutBytes(body); err != nil {
		return err
	}
	m.ReadAfter(body)
	return nil
}

// ReadAfter makes Counts and Args read what stands in place of a Bind's body after its names.
func (m *BindMessage) ReadAfter(b []byte) { m.After, m.rest = b, b }

// Counts reads the parameters' formats, and how many parameters there are.
func (m *BindMessage) Counts() (params int, err error) {
	if m.Formats, m.rest, err = readFormats(m.Formats[:0], m.rest); err != nil {
		return 0, err
	}
	if len(m.rest) < 2 {
		return 0, errShort
	}
	m.params = int(binary.BigEndian.Uint16(m.rest))
	m.rest = m.rest[2:]
	if n := len(m.Formats); n > 1 && n != m.params {
		return 0, sqlstate.New(sqlstate.ProtocolViolation, "bind message has %d parameter formats but %d parameters", n, m.params)
	}
	return m.params, nil
}

// Args reads the parameters, and checks that the formats of results are there, and nothing else.
func (m *BindMessage) Args() error {
	m.Values = m.Values[:0]
	b := m.rest
	for range m.params {
		if len(b) < 4 {
			return errShort
		}
		size := int32(binary.BigEndian.Uint32(b)) //nolint:gosec // the same bits
		b = b[4:]
		switch {
		case size == -1:
			m.Values = append(m.Values, nil)
			continue
		case size < 0 || int(size) > len(b):
			return errShort
		}
		m.Values = append(m.Values, b[:size:size])
		b = b[size:]
	}
	if len(b) < 2 {
		return errShort
	}
	switch n := 2 + 2*int(binary.BigEndian.Uint16(b)); {
	case len(b) < n:
		return errShort
	case len(b) > n:
		return errEnd
	}
	m.Tail, m.rest = b, nil
	return nil
}

// ResultFormats are the formats of the results, nil if there are none.
func (m *BindMessage) ResultFormats() []int16 {
	formats, _, _ := readFormats(nil, m.Tail) // Args has checked it
	return formats
}

// readFormats appends the formats that stand at the beginning of b to dst.
func readFormats(dst []int16, b []byte) (formats []int16, rest []byte, err error) {
	if len(b) < 2 {
		return dst, nil, errShort
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < 2*n {
		return dst, nil, errShort
	}
	for i := range n {
		dst = append(dst, int16(binary.BigEndian.Uint16(b[2*i:]))) //nolint:gosec // the same bits
	}
	return dst, b[2*n:], nil
}
