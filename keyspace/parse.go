package keyspace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// textMax bounds the text of a key column, bytes. It is more than an index
// entry of PostgreSQL or a statement of the router can hold in practice.
const textMax = 64 << 20

// ParseText reads a value from PostgreSQL's text format. The result is what the
// type's input function gives in every supported version and with every
// setting of a session; else it is an error:
//
//   - 22P02, 22003, 22007, 22008, 22021, 22023 where PostgreSQL refuses the text;
//   - 0A000 where PostgreSQL's answer depends on settings or on the version, or
//     is of a rare form that is not followed here. Such texts are: integers in
//     hexadecimal, octal or binary or with underscores (since 16); dates that
//     are not YYYY-MM-DD with a year of four digits or more; times that are not
//     HH:MM[:SS[.fraction]]; time zones by name or abbreviation other than Z and UTC; a timestamptz
//     without a zone (it would take the session's TimeZone); now, today, epoch
//     and their like.
//
// A timestamp or date may be followed by a time (date) and a zone, which
// PostgreSQL reads and drops.
//
// s is not kept.
func ParseText(t Type, s []byte) (Value, error) {
	if err := checkText(t, s); err != nil {
		return Value{}, err
	}
	v, err, ok := Value{typ: t}, error(nil), true
	switch t {
	case Int2, Int4, Int8:
		v.num, err = parseInt(t, s)
	case Text, Varchar:
		v.str = string(s)
	case UUID:
		v.str, ok = parseUUID(s)
	case Date:
		v.num, err = parseDate(s)
	case Timestamp, Timestamptz:
		v.num, err = parseTimestamp(t, s)
	case Bytea:
		v.str, err = parseBytea(s)
	default: // Bool: checkText has refused what is no type
		v.num, ok = parseBool(s)
	}
	if !ok {
		err = syntaxError(t, s)
	}
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

func checkText(t Type, s []byte) error {
	switch {
	case !t.Valid():
		return sqlstate.New(sqlstate.InternalError, "%s is not the type of a shard key", t).WithHint("report this as a bug")
	case len(s) > textMax:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a shard key value of %d bytes is over the limit of %d", len(s), textMax).
			WithHint("use a shorter key, such as a hash of it")
	case !utf8.Valid(s) || bytes.IndexByte(s, 0) >= 0:
		return sqlstate.New(sqlstate.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\" in a value of type %s", t).
			WithHint("send valid UTF-8 without zero bytes; use bytea for arbitrary bytes")
	}
	return nil
}

// binarySize is the size of a type's values in the binary format, -1 if they have several.
func binarySize(t Type) int {
	switch t {
	case Int2:
		return 2
	case Int4, Date:
		return 4
	case Int8, Timestamp, Timestamptz:
		return 8
	case UUID:
		return 16
	case Bool:
		return 1
	}
	return -1
}

// ParseBinary reads a value from PostgreSQL's binary format (the type's receive
// function). It fails with 22P03 for a wrong length, 22021 for text that is not
// UTF-8 and 22008 for a date or timestamp out of range. b is not kept.
func ParseBinary(t Type, b []byte) (Value, error) {
	want := binarySize(t)
	switch {
	case want >= 0:
	case t == Bytea:
		if len(b) > textMax {
			return Value{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "a shard key value of %d bytes is over the limit of %d", len(b), textMax).
				WithHint("use a shorter key, such as a hash of it")
		}
	case t == Text || t == Varchar:
		if err := checkText(t, b); err != nil {
			return Value{}, err
		}
	default:
		return Value{}, checkText(t, nil)
	}
	if want >= 0 && len(b) != want {
		return Value{}, sqlstate.New(sqlstate.InvalidBinary, "a binary value of type %s has %d bytes, not %d", t, len(b), want).
			WithHint("declare the parameter with the type that is sent, or send it as text")
	}
	v := Value{typ: t}
	switch t {
	case Int2:
		v.num = int64(int16(binary.BigEndian.Uint16(b)))
	case Int4, Date:
		v.num = int64(int32(binary.BigEndian.Uint32(b)))
	case Int8, Timestamp, Timestamptz:
		v.num = int64(binary.BigEndian.Uint64(b))
	case Bool:
		if b[0] != 0 {
			v.num = 1
		}
	default:
		v.str = string(b)
	}
	if (t == Date || t == Timestamp || t == Timestamptz) && !InRange(t, v.num) {
		return Value{}, sqlstate.New(sqlstate.DatetimeOverflow, "%s out of range", rangeName(t)).WithHint("use a value that PostgreSQL can hold")
	}
	return v, nil
}

// AppendBinary appends the value in PostgreSQL's binary format.
func (v Value) AppendBinary(dst []byte) []byte {
	switch v.typ {
	case Int2:
		return binary.BigEndian.AppendUint16(dst, uint16(v.num))
	case Int4, Date:
		return binary.BigEndian.AppendUint32(dst, uint32(v.num))
	case Int8, Timestamp, Timestamptz:
		return binary.BigEndian.AppendUint64(dst, uint64(v.num))
	case Bool:
		return append(dst, byte(v.num))
	default:
		return append(dst, v.str...)
	}
}

// syntaxError is PostgreSQL's 22P02 of an input function.
func syntaxError(t Type, s []byte) error {
	return sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type %s: %s", t, quoteShort(s))
}

func quoteShort(s []byte) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return `"` + string(s) + `"`
}

func isSpace(c byte) bool { return c == ' ' || (c >= '\t' && c <= '\r') }

func trimSpace(s []byte) []byte {
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// parseInt is pg_strtoint16, 32 and 64 (numutils.c) for decimal numbers.
func parseInt(t Type, s []byte) (int64, error) {
	body := trimSpace(s)
	neg := false
	if len(body) > 0 && (body[0] == '-' || body[0] == '+') {
		neg = body[0] == '-'
		body = body[1:]
	}
	if len(body) == 0 {
		return 0, syntaxError(t, s)
	}
	if newInteger(body) {
		return 0, sqlstate.Refusal("CLV-0103", "the spelling %s of a number has a meaning only since PostgreSQL 16", quoteShort(s)).
			WithHint("Write the number in decimal digits alone.")
	}
	var n uint64
	over := false
	for _, c := range body {
		if c < '0' || c > '9' {
			return 0, syntaxError(t, s)
		}
		if n > (math.MaxUint64-9)/10 {
			over = true // more digits may follow, and a letter among them is another error
			continue
		}
		n = n*10 + uint64(c-'0')
	}
	limit := uint64(math.MaxInt64)
	switch t {
	case Int2:
		limit = math.MaxInt16
	case Int4:
		limit = math.MaxInt32
	}
	if neg {
		limit++
	}
	if over || n > limit {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "value %s is out of range for type %s", quoteShort(s), t).
			WithHint("no row can have this key")
	}
	if neg {
		return -int64(n), nil // MinInt64: the conversion wraps to it, and so does the negation
	}
	return int64(n), nil
}

// newInteger reports whether the digits after a sign are of a form that
// PostgreSQL 16 added: 0x1F, 0o17, 0b11, 1_000 (one underscore between digits,
// and one after the prefix).
func newInteger(s []byte) bool {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	prefixed := false
	if len(s) > 2 && s[0] == '0' {
		switch s[1] {
		case 'x', 'X':
			digit = func(c byte) bool {
				return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
			}
			prefixed = true
		case 'o', 'O':
			digit = func(c byte) bool { return c >= '0' && c <= '7' }
			prefixed = true
		case 'b', 'B':
			digit = func(c byte) bool { return c == '0' || c == '1' }
			prefixed = true
		}
	}
	under := false
	if prefixed {
		s = s[2:]
		if s[0] == '_' {
			s = s[1:]
		}
	}
	for i, c := range s {
		switch {
		case digit(c):
		case c == '_' && i > 0 && s[i-1] != '_' && i+1 < len(s):
			under = true
		default:
			return false
		}
	}
	return len(s) > 0 && (prefixed || under)
}

// parseBool is boolin (bool.c): any prefix of true, false, yes and no, at least
// two letters of on and off, 1 and 0, in any case.
func parseBool(s []byte) (int64, bool) {
	s = trimSpace(s)
	if len(s) == 0 || len(s) > 5 {
		return 0, false
	}
	var low [5]byte
	for i, c := range s {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		low[i] = c
	}
	w := string(low[:len(s)])
	switch {
	case strings.HasPrefix("true", w), strings.HasPrefix("yes", w), w == "on", w == "1":
		return 1, true
	case strings.HasPrefix("false", w), strings.HasPrefix("no", w), w == "of", w == "off", w == "0":
		return 0, true
	}
	return 0, false
}

// parseUUID is string_to_uuid (uuid.c): 32 hexadecimal digits, a hyphen allowed
// after each group of four, braces around the whole.
func parseUUID(s []byte) (string, bool) {
	braces := len(s) > 0 && s[0] == '{'
	if braces {
		s = s[1:]
	}
	var u [16]byte
	for i := range u {
		if len(s) < 2 {
			return "", false
		}
		hi, lo := unhex(s[0]), unhex(s[1])
		if hi < 0 || lo < 0 {
			return "", false
		}
		u[i] = byte(hi<<4 | lo)
		s = s[2:]
		if len(s) > 0 && s[0] == '-' && i%2 == 1 && i < 15 {
			s = s[1:]
		}
	}
	if braces {
		if len(s) == 0 || s[0] != '}' {
			return "", false
		}
		s = s[1:]
	}
	return string(u[:]), len(s) == 0
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

const hexDigits = "0123456789abcdef"

func appendHex(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		dst = append(dst, hexDigits[s[i]>>4], hexDigits[s[i]&15])
	}
	return dst
}

func appendUUID(dst []byte, u string) []byte {
	if len(u) != 16 {
		return appendHex(dst, u)
	}
	dst = append(appendHex(dst, u[0:4]), '-')
	dst = append(appendHex(dst, u[4:6]), '-')
	dst = append(appendHex(dst, u[6:8]), '-')
	dst = append(appendHex(dst, u[8:10]), '-')
	return appendHex(dst, u[10:16])
}

// parseBytea is byteain (bytea.c, varlena.c before 19): hex after \x, with
// white space allowed between the pairs; else escape format.
func parseBytea(s []byte) (string, error) {
	if rest, ok := bytes.CutPrefix(s, []byte(`\x`)); ok {
		return parseHex(rest)
	}
	out := make([]byte, 0, len(s))
	octal := func(c, most byte) bool { return c >= '0' && c <= most }
	for i := 0; i < len(s); {
		switch {
		case s[i] != '\\':
			out = append(out, s[i])
			i++
		case i+1 < len(s) && s[i+1] == '\\':
			out = append(out, '\\')
			i += 2
		case i+3 < len(s) && octal(s[i+1], '3') && octal(s[i+2], '7') && octal(s[i+3], '7'):
			out = append(out, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 4
		default:
			return "", sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type bytea").
				WithHint(`write bytea as \x and pairs of hexadecimal digits`)
		}
	}
	return string(out), nil
}

// parseHex reads pairs of hexadecimal digits. 22023 is what hex_decode raises (encode.c).
func parseHex(s []byte) (string, error) {
	bad := func(format string, args ...any) error {
		return sqlstate.New(sqlstate.InvalidParameterValue, format, args...).WithHint(`write bytea as \x and pairs of hexadecimal digits`)
	}
	out := make([]byte, 0, len(s)/2)
	for len(s) > 0 {
		if c := s[0]; c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			s = s[1:]
			continue
		}
		hi := unhex(s[0])
		if hi < 0 {
			return "", bad("invalid hexadecimal digit: %q", s[:1])
		}
		if len(s) < 2 {
			return "", bad("invalid hexadecimal data: odd number of digits")
		}
		lo := unhex(s[1])
		if lo < 0 {
			return "", bad("invalid hexadecimal digit: %q", s[1:2])
		}
		out = append(out, byte(hi<<4|lo))
		s = s[2:]
	}
	return string(out), nil
}
