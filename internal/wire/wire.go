// Package wire is the framing of the PostgreSQL protocol, version 3: reading
// whole frames without decoding them, and appending messages to a buffer
// (PostgreSQL manual, chapter "Frontend/Backend Protocol"). It knows bytes, not
// sessions.
package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/cleavedb/cleave/sqlstate"
)

// Frontend message types.
const (
	Bind        byte = 'B'
	Close       byte = 'C'
	CopyDataF   byte = 'd'
	CopyDoneF   byte = 'c'
	CopyFail    byte = 'f'
	Describe    byte = 'D'
	Execute     byte = 'E'
	Flush       byte = 'H'
	FunctionF   byte = 'F'
	Parse       byte = 'P'
	Password    byte = 'p'
	Query       byte = 'Q'
	Sync        byte = 'S'
	TerminateFE byte = 'X'
)

// Backend message types.
const (
	Authentication       byte = 'R'
	BackendKeyData       byte = 'K'
	BindComplete         byte = '2'
	CloseComplete        byte = '3'
	CommandComplete      byte = 'C'
	CopyBothResponse     byte = 'W'
	CopyDone             byte = 'c'
	CopyData             byte = 'd'
	CopyInResponse       byte = 'G'
	CopyOutResponse      byte = 'H'
	DataRow              byte = 'D'
	EmptyQueryResponse   byte = 'I'
	FunctionResult       byte = 'V'
	ErrorResponse        byte = 'E'
	NegotiateProtocol    byte = 'v'
	NoData               byte = 'n'
	NoticeResponse       byte = 'N'
	NotificationResponse byte = 'A'
	ParameterDescription byte = 't'
	ParameterStatus      byte = 'S'
	ParseComplete        byte = '1'
	PortalSuspended      byte = 's'
	ReadyForQuery        byte = 'Z'
	RowDescription       byte = 'T'
)

// Header is the length of a frame's type byte and length field.
const Header = 5

// ErrTooLarge is returned for a frame over the reader's bound.
var ErrTooLarge = errors.New("wire: message over the size limit")

// ErrMalformed is returned for bytes that cannot be a frame.
var ErrMalformed = errors.New("wire: malformed message")

// Frame is one whole message: type byte, length, body.
type Frame []byte

// Type returns the message type.
func (f Frame) Type() byte { return f[0] }

// Body returns what follows the length field.
func (f Frame) Body() []byte { return f[Header:] }

// Cut splits the first whole frame off b. ok is false if b does not hold a
// whole frame yet; err is ErrMalformed for an impossible length.
func Cut(b []byte) (f Frame, rest []byte, ok bool, err error) {
	if len(b) < Header {
		return nil, b, false, nil
	}
	n := int(binary.BigEndian.Uint32(b[1:5]))
	if n < 4 || n > 1<<30 {
		return nil, b, false, fmt.Errorf("%w: length %d of type %q", ErrMalformed, n, b[0])
	}
	if len(b) < n+1 {
		return nil, b, false, nil
	}
	return Frame(b[:n+1]), b[n+1:], true, nil
}

// Reader reads whole frames with one buffer that grows up to a bound and
// shrinks again.
type Reader struct {
	r          io.Reader
	buf        []byte
	start, end int
	max        int
	base       int
}

// NewReader returns a Reader of frames of at most max bytes (type and length included).
func NewReader(r io.Reader, size, max int) *Reader {
	return &Reader{r: r, base: size, max: max}
}

// SetSource makes the Reader go on with another source; what is buffered stays.
func (r *Reader) SetSource(from io.Reader) { r.r = from }

// Give appends bytes as if they had been read.
func (r *Reader) Give(b []byte) {
	if len(b) == 0 {
		return
	}
	have := r.end - r.start
	if r.end+len(b) > len(r.buf) {
		buf := r.buf
		if have+len(b) > len(buf) {
			buf = make([]byte, max(r.base, have+len(b)))
		}
		copy(buf, r.buf[r.start:r.end])
		r.buf, r.start, r.end = buf, 0, have
	}
	r.end += copy(r.buf[r.end:], b)
}

// Trim gives up the buffer if nothing is in it.
func (r *Reader) Trim() {
	if r.start == r.end {
		r.buf, r.start, r.end = nil, 0, 0
	}
}

// Buffered returns the number of bytes read and not yet returned.
func (r *Reader) Buffered() int { return r.end - r.start }

// HasFrame reports whether a whole frame is buffered.
func (r *Reader) HasFrame() bool {
	_, _, ok, err := Cut(r.buf[r.start:r.end])
	return ok || err != nil
}

// Has reports whether a whole frame of the type is buffered, or something that is no frame.
func (r *Reader) Has(typ byte) bool {
	for b := r.buf[r.start:r.end]; ; {
		f, rest, ok, err := Cut(b)
		if err != nil {
			return true
		}
		if !ok {
			return false
		}
		if f.Type() == typ {
			return true
		}
		b = rest
	}
}

// Next returns the next frame, valid until the next call of Next or Batch.
func (r *Reader) Next() (Frame, error) {
	for {
		f, _, ok, err := Cut(r.buf[r.start:r.end])
		if err != nil {
			return nil, err
		}
		if ok {
			r.start += len(f)
			return f, nil
		}
		if err := r.fill(r.r.Read); err != nil {
			return nil, err
		}
	}
}

// Batch returns as many whole frames as are buffered, at least one, valid until
// the next call of Next or Batch.
func (r *Reader) Batch() ([]byte, error) {
	for {
		if b, err := r.whole(); b != nil || err != nil {
			return b, err
		}
		if err := r.fill(r.r.Read); err != nil {
			return nil, err
		}
	}
}

// Poll is Batch that does not wait: if no whole frame is buffered it reads once
// with read, and returns nil if there is still none.
func (r *Reader) Poll(read func([]byte) (int, error)) ([]byte, error) {
	if b, err := r.whole(); b != nil || err != nil {
		return b, err
	}
	if err := r.fill(read); err != nil {
		return nil, err
	}
	return r.whole()
}

// whole returns the whole frames that are buffered, nil if there are none.
func (r *Reader) whole() ([]byte, error) {
	b := r.buf[r.start:r.end]
	n := 0
	for {
		f, rest, ok, err := Cut(b[n:])
		if err != nil && n == 0 {
			return nil, err
		}
		if !ok {
			break
		}
		n += len(f)
		if len(rest) == 0 {
			break
		}
	}
	if n == 0 {
		return nil, nil
	}
	r.start += n
	return b[:n:n], nil
}

// Unread gives the last n bytes of the last Batch back, to be read again. It must
// come before the next call of Next or Batch.
func (r *Reader) Unread(n int) { r.start -= n }

func (r *Reader) fill(read func([]byte) (int, error)) error {
	have := r.end - r.start
	need := Header
	if have >= Header {
		need = int(binary.BigEndian.Uint32(r.buf[r.start+1:r.start+5])) + 1
	}
	if need > r.max {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, need, r.max)
	}
	switch {
	case have == 0:
		r.start, r.end = 0, 0
		if len(r.buf) < r.base || len(r.buf) > 16*r.base {
			r.buf = make([]byte, r.base)
		}
		if need > len(r.buf) {
			r.buf = make([]byte, need)
		}
	case need > len(r.buf):
		// Grow by doubling so that a length field alone cannot make a client
		// take memory that it does not send.
		size := min(max(2*len(r.buf), r.base), need)
		if have+1 > size {
			size = min(2*size, need)
		}
		if have == len(r.buf) || r.start > 0 || size > len(r.buf) {
			buf := r.buf
			if size > len(buf) {
				buf = make([]byte, size)
			}
			copy(buf, r.buf[r.start:r.end])
			r.buf, r.start, r.end = buf, 0, have
		}
	case r.start+need > len(r.buf):
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, have
	}
	n, err := read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if err == io.EOF && r.end > r.start {
		return io.ErrUnexpectedEOF
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// Begin appends a message's type and a length to be set by End.
func Begin(dst []byte, typ byte) ([]byte, int) {
	dst = append(dst, typ, 0, 0, 0, 0)
	return dst, len(dst) - 4
}

// End sets the length of the message begun at mark.
func End(dst []byte, mark int) []byte {
	binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark))
	return dst
}

// AppendString appends a zero-terminated string.
func AppendString(dst []byte, s string) []byte { return append(append(dst, s...), 0) }

// AppendInt16 appends a big-endian 16-bit integer.
func AppendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }

// AppendInt32 appends a big-endian 32-bit integer.
func AppendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

// AppendEmpty appends a message without body (Sync, Flush, ParseComplete, NoData, ...).
func AppendEmpty(dst []byte, typ byte) []byte { return append(dst, typ, 0, 0, 0, 4) }

// AppendQuery appends a simple Query.
func AppendQuery(dst []byte, sql string) []byte {
	dst, m := Begin(dst, Query)
	return End(AppendString(dst, sql), m)
}

// AppendParse appends a Parse.
func AppendParse(dst []byte, name, sql string, oids []uint32) []byte {
	dst, m := Begin(dst, Parse)
	dst = AppendString(AppendString(dst, name), sql)
	dst = AppendInt16(dst, int16(len(oids)))
	for _, o := range oids {
		dst = AppendInt32(dst, int32(o))
	}
	return End(dst, m)
}

// AppendBind appends a Bind. A nil value is NULL.
func AppendBind(dst []byte, portal, statement string, formats []int16, values [][]byte, results []int16) []byte {
	dst, m := Begin(dst, Bind)
	dst = AppendString(AppendString(dst, portal), statement)
	dst = AppendInt16(dst, int16(len(formats)))
	for _, f := range formats {
		dst = AppendInt16(dst, f)
	}
	dst = AppendInt16(dst, int16(len(values)))
	for _, v := range values {
		dst = AppendValue(dst, v)
	}
	dst = AppendInt16(dst, int16(len(results)))
	for _, f := range results {
		dst = AppendInt16(dst, f)
	}
	return End(dst, m)
}

// AppendValue appends a length-prefixed value; nil is NULL.
func AppendValue(dst, v []byte) []byte {
	if v == nil {
		return AppendInt32(dst, -1)
	}
	return append(AppendInt32(dst, int32(len(v))), v...)
}

// AppendDescribe appends a Describe of a statement ('S') or portal ('P').
func AppendDescribe(dst []byte, what byte, name string) []byte {
	dst, m := Begin(dst, Describe)
	return End(AppendString(append(dst, what), name), m)
}

// AppendExecute appends an Execute; maxRows 0 is all.
func AppendExecute(dst []byte, portal string, maxRows int32) []byte {
	dst, m := Begin(dst, Execute)
	return End(AppendInt32(AppendString(dst, portal), maxRows), m)
}

// AppendClose appends a Close of a statement ('S') or portal ('P').
func AppendClose(dst []byte, what byte, name string) []byte {
	dst, m := Begin(dst, Close)
	return End(AppendString(append(dst, what), name), m)
}

// AppendCommandComplete appends a CommandComplete.
func AppendCommandComplete(dst []byte, tag string) []byte {
	dst, m := Begin(dst, CommandComplete)
	return End(AppendString(dst, tag), m)
}

// AppendFunctionResult appends a FunctionCallResponse; nil is NULL.
func AppendFunctionResult(dst, value []byte) []byte {
	n := uint32(len(value)) //nolint:gosec // a value has less than 1 GB
	dst = append(dst, FunctionResult)
	dst = binary.BigEndian.AppendUint32(dst, n+8)
	if value == nil {
		n = 1<<32 - 1
	}
	return append(binary.BigEndian.AppendUint32(dst, n), value...)
}

// AppendReadyForQuery appends a ReadyForQuery with status 'I', 'T' or 'E'.
func AppendReadyForQuery(dst []byte, status byte) []byte {
	return append(dst, ReadyForQuery, 0, 0, 0, 5, status)
}

// AppendParameterStatus appends a ParameterStatus.
func AppendParameterStatus(dst []byte, name, value string) []byte {
	dst, m := Begin(dst, ParameterStatus)
	return End(AppendString(AppendString(dst, name), value), m)
}

// Field is one column of a RowDescription.
type Field struct {
	Name     string
	TableOID uint32
	Attr     int16
	TypeOID  uint32
	TypeLen  int16
	TypeMod  int32
	Format   int16
}

// ReadFields decodes the body of a RowDescription, as far as it goes.
func ReadFields(body []byte) []Field {
	if len(body) < 2 {
		return nil
	}
	fields := make([]Field, 0, binary.BigEndian.Uint16(body))
	for body = body[2:]; len(body) > 0; {
		name, rest, ok := CutString(body)
		if !ok || len(rest) < 18 {
			break
		}
		fields = append(fields, Field{
			Name: name, TableOID: binary.BigEndian.Uint32(rest), Attr: int16(binary.BigEndian.Uint16(rest[4:])),
			TypeOID: binary.BigEndian.Uint32(rest[6:]), TypeLen: int16(binary.BigEndian.Uint16(rest[10:])),
			TypeMod: int32(binary.BigEndian.Uint32(rest[12:])), Format: int16(binary.BigEndian.Uint16(rest[16:])),
		})
		body = rest[18:]
	}
	return fields
}

// AppendRowDescription appends a RowDescription.
func AppendRowDescription(dst []byte, fields []Field) []byte {
	dst, m := Begin(dst, RowDescription)
	dst = AppendInt16(dst, int16(len(fields)))
	for _, f := range fields {
		dst = AppendString(dst, f.Name)
		dst = AppendInt32(dst, int32(f.TableOID))
		dst = AppendInt16(dst, f.Attr)
		dst = AppendInt32(dst, int32(f.TypeOID))
		dst = AppendInt16(dst, f.TypeLen)
		dst = AppendInt32(dst, f.TypeMod)
		dst = AppendInt16(dst, f.Format)
	}
	return End(dst, m)
}

// AppendDataRow appends a DataRow; nil values are NULL.
func AppendDataRow(dst []byte, values [][]byte) []byte {
	dst, m := Begin(dst, DataRow)
	dst = AppendInt16(dst, int16(len(values)))
	for _, v := range values {
		dst = AppendValue(dst, v)
	}
	return End(dst, m)
}

// AppendParameterDescription appends a ParameterDescription.
func AppendParameterDescription(dst []byte, oids []uint32) []byte {
	dst, m := Begin(dst, ParameterDescription)
	dst = AppendInt16(dst, int16(len(oids)))
	for _, o := range oids {
		dst = AppendInt32(dst, int32(o))
	}
	return End(dst, m)
}

// AppendError appends an ErrorResponse made from e.
func AppendError(dst []byte, e *sqlstate.Error) []byte {
	return appendReport(dst, ErrorResponse, "ERROR", e)
}

// AppendNotice appends a NoticeResponse made from e, severity NOTICE unless it has one.
func AppendNotice(dst []byte, e *sqlstate.Error) []byte {
	return appendReport(dst, NoticeResponse, "NOTICE", e)
}

func appendReport(dst []byte, typ byte, severity string, e *sqlstate.Error) []byte {
	if e.Severity != "" {
		severity = e.Severity
	}
	dst, m := Begin(dst, typ)
	field := func(code byte, v string) {
		if v != "" {
			dst = AppendString(append(dst, code), v)
		}
	}
	field('S', severity)
	field('V', severity)
	field('C', string(e.Code))
	msg := e.Message
	if msg == "" && e.Err != nil {
		msg = e.Err.Error()
	}
	field('M', msg)
	detail := e.Detail
	if detail == "" && e.Err != nil && e.Message != "" {
		detail = e.Err.Error()
	}
	field('D', detail)
	field('H', e.Advice())
	if e.Position > 0 {
		field('P', strconv.Itoa(e.Position))
	}
	if e.InternalPosition > 0 {
		field('p', strconv.Itoa(e.InternalPosition))
	}
	field('q', e.Internal)
	where := e.Where
	if e.Shard != "" {
		if where != "" {
			where += "\n"
		}
		where += "shard " + e.Shard
		if e.Keyspace != "" {
			where += ", keyspace " + e.Keyspace
		}
		if e.Range != "" {
			where += ", range " + e.Range
		}
		if e.Epoch != 0 {
			where += ", epoch " + strconv.FormatUint(e.Epoch, 10)
		}
	}
	field('W', where)
	field('s', e.Schema)
	field('t', e.Table)
	field('c', e.Column)
	field('d', e.DataType)
	field('n', e.Constraint)
	field('F', e.File)
	field('L', e.Line)
	field('R', cmp.Or(e.Routine, string(e.ID)))
	dst = append(dst, 0)
	return End(dst, m)
}

// ParseReport decodes an ErrorResponse or NoticeResponse. Unknown fields are dropped.
func ParseReport(body []byte) *sqlstate.Error {
	e := &sqlstate.Error{}
	for len(body) > 0 && body[0] != 0 {
		code := body[0]
		s, rest, ok := CutString(body[1:])
		if !ok {
			break
		}
		body = rest
		switch code {
		case 'V':
			e.Severity = s
		case 'S':
			if e.Severity == "" {
				e.Severity = s
			}
		case 'C':
			e.Code = sqlstate.Code(s)
		case 'M':
			e.Message = s
		case 'D':
			e.Detail = s
		case 'H':
			e.Hint = s
		case 'P':
			e.Position, _ = strconv.Atoi(s)
		case 'p':
			e.InternalPosition, _ = strconv.Atoi(s)
		case 'q':
			e.Internal = s
		case 'W':
			e.Where = s
		case 's':
			e.Schema = s
		case 't':
			e.Table = s
		case 'c':
			e.Column = s
		case 'd':
			e.DataType = s
		case 'n':
			e.Constraint = s
		case 'F':
			e.File = s
		case 'L':
			e.Line = s
		case 'R':
			e.Routine = s
		}
	}
	return e.Received()
}

// CutString splits a zero-terminated string off b.
func CutString(b []byte) (s string, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], true
		}
	}
	return "", b, false
}

// AppendCopyFail appends a CopyFail with the reason.
func AppendCopyFail(dst []byte, reason string) []byte {
	dst, m := Begin(dst, CopyFail)
	return End(AppendString(dst, reason), m)
}

// SplitRow appends the values of a DataRow's body to dst, nil for NULL. The
// values share the body's bytes.
func SplitRow(body []byte, dst [][]byte) ([][]byte, error) {
	if len(body) < 2 {
		return nil, ErrMalformed
	}
	n := int(binary.BigEndian.Uint16(body))
	body = body[2:]
	for range n {
		if len(body) < 4 {
			return nil, ErrMalformed
		}
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if size < 0 {
			dst = append(dst, nil)
			continue
		}
		if int(size) > len(body) {
			return nil, ErrMalformed
		}
		dst, body = append(dst, body[:size:size]), body[size:]
	}
	return dst, nil
}
