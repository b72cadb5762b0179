package value

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// Datum is a value in SQLite's terms: 'i' INTEGER, 'f' REAL, 't' TEXT, 'b' BLOB,
// 0 NULL.
type Datum struct {
	Kind  byte
	Int   int64
	Float float64
	Str   string
}

// Int is an INTEGER.
func Int(i int64) Datum { return Datum{Kind: 'i', Int: i} }

// Text is a TEXT.
func Text(s string) Datum { return Datum{Kind: 't', Str: s} }

// Float is a REAL.
func Float(f float64) Datum { return Datum{Kind: 'f', Float: f} }

// Blob is a BLOB.
func Blob(s string) Datum { return Datum{Kind: 'b', Str: s} }

// Bool is a boolean, which SQLite holds as 0 or 1.
func Bool(b bool) Datum {
	if b {
		return Int(1)
	}
	return Int(0)
}

// Literal is the SQL that evaluates to the datum.
func (d Datum) Literal() string {
	switch d.Kind {
	case 'i':
		if d.Int < 0 {
			return "(" + strconv.FormatInt(d.Int, 10) + ")"
		}
		return strconv.FormatInt(d.Int, 10)
	case 'f':
		switch {
		case math.IsInf(d.Float, 1):
			return "9e999"
		case math.IsInf(d.Float, -1):
			return "(-9e999)"
		case d.Float == 0 && math.Signbit(d.Float):
			return "cleave_minus_zero()"
		}
		// SQLite reads at most about 19 digits exactly; 17 are enough, yet its
		// reader may miss by one place in the last bit, so a function reads it.
		s := strconv.FormatFloat(d.Float, 'g', -1, 64)
		if d.Float == math.Trunc(d.Float) && math.Abs(d.Float) < 1e15 {
			s = strconv.FormatFloat(d.Float, 'f', 1, 64)
			if d.Float < 0 {
				return "(" + s + ")"
			}
			return s
		}
		return "cleave_float('" + s + "')"
	case 't':
		return quote.Text(d.Str)
	case 'b':
		return "X'" + hex.EncodeToString([]byte(d.Str)) + "'"
	}
	return "NULL"
}

// Bind gives the value to a statement's parameter.
func (d Datum) Bind(stmt *sqlite.Stmt, param int) {
	switch d.Kind {
	case 'i':
		stmt.BindInt64(param, d.Int)
	case 'f':
		stmt.BindFloat(param, d.Float)
	case 't':
		stmt.BindText(param, d.Str)
	case 'b':
		if d.Str == "" {
			stmt.BindZeroBlob(param, 0)
		} else {
			stmt.BindBytes(param, []byte(d.Str))
		}
	default:
		stmt.BindNull(param)
	}
}

// OutOfRange is the error of a number that its type cannot hold.
func OutOfRange(oid uint32) error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "%s out of range", TypeName(oid))
}

// CheckInt fails for an integer that its type cannot hold.
func CheckInt(i int64, oid uint32) (int64, error) {
	switch oid {
	case pgoid.Int2:
		if i < math.MinInt16 || i > math.MaxInt16 {
			return 0, OutOfRange(oid)
		}
	case pgoid.Int4:
		if i < math.MinInt32 || i > math.MaxInt32 {
			return 0, OutOfRange(oid)
		}
	case pgoid.OID, pgoid.Regclass, pgoid.Regtype, pgoid.Regproc, pgoid.XID:
		if i < 0 || i > math.MaxUint32 {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "OID out of range")
		}
	}
	return i, nil
}

func badInput(oid uint32, text string) error {
	return sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type %s: \"%s\"", TypeName(oid), text)
}

const blanks = " \t\n\r\f\v"

func intIn(text string, oid uint32) (int64, error) {
	s := strings.Trim(text, blanks)
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strings.Contains(s, "_") {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "value \"%s\" is out of range for type %s", text, TypeName(oid))
		}
		return 0, badInput(oid, text)
	}
	if _, err := CheckInt(i, oid); err != nil {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "value \"%s\" is out of range for type %s", text, TypeName(oid))
	}
	return i, nil
}

// BoolIn is the input of boolean.
func BoolIn(text string) (bool, error) {
	s := strings.ToLower(strings.Trim(text, blanks))
	is := func(word string, least int) bool { return len(s) >= least && strings.HasPrefix(word, s) }
	switch {
	case is("true", 1), is("yes", 1), s == "on", s == "1":
		return true, nil
	case is("false", 1), is("no", 1), is("off", 2), s == "0":
		return false, nil
	}
	return false, badInput(pgoid.Bool, text)
}

func uuidIn(text string) (string, error) {
	s := text
	bad := badInput(pgoid.UUID, text)
	if strings.HasPrefix(s, "{") {
		if !strings.HasSuffix(s, "}") {
			return "", bad
		}
		s = s[1 : len(s)-1]
	}
	var out [16]byte
	for i := range out {
		if len(s) < 2 {
			return "", bad
		}
		if _, err := hex.Decode(out[i:i+1], []byte(s[:2])); err != nil {
			return "", bad
		}
		s = s[2:]
		if i%2 == 1 && i < 15 && strings.HasPrefix(s, "-") {
			s = s[1:]
		}
	}
	if s != "" {
		return "", bad
	}
	return string(out[:]), nil
}

// ByteaIn is the input of bytea.
func ByteaIn(text string) (string, error) {
	if rest, ok := strings.CutPrefix(text, `\x`); ok {
		return byteaHex(rest)
	}
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '\\' {
			out, i = append(out, '\\'), i+1
			continue
		}
		if i+3 >= len(text) {
			return "", sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type bytea")
		}
		n, err := strconv.ParseUint(text[i+1:i+4], 8, 8)
		if err != nil || text[i+1] > '3' {
			return "", sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type bytea")
		}
		out, i = append(out, byte(n)), i+3
	}
	return string(out), nil
}

// byteaHex reads the hexadecimal form of bytea: blanks may stand between bytes.
func byteaHex(rest string) (string, error) {
	var out []byte
	for len(rest) > 0 {
		if c := rest[0]; c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			rest = rest[1:]
			continue
		}
		var b [1]byte
		if len(rest) < 2 {
			if _, err := strconv.ParseUint(rest, 16, 8); err != nil {
				return "", sqlstate.New(sqlstate.InvalidParameterValue, "invalid hexadecimal digit: \"%s\"", rest)
			}
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "invalid hexadecimal data: odd number of digits")
		}
		if _, err := hex.Decode(b[:], []byte(rest[:2])); err != nil {
			r, _ := utf8.DecodeRuneInString(rest)
			if IsHex(rest[0]) {
				r, _ = utf8.DecodeRuneInString(rest[1:])
			}
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "invalid hexadecimal digit: \"%c\"", r)
		}
		out, rest = append(out, b[0]), rest[2:]
	}
	return string(out), nil
}

// IsHex reports whether a byte is a hexadecimal digit.
func IsHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// FloatIn is the input of double precision.
func FloatIn(text string) (float64, error) {
	s := strings.Trim(text, blanks)
	lower := strings.ToLower(s)
	switch lower {
	case "nan":
		return 0, RefuseNaN()
	case "infinity", "+infinity", "inf", "+inf":
		return math.Inf(1), nil
	case "-infinity", "-inf":
		return math.Inf(-1), nil
	}
	if strings.HasPrefix(strings.TrimLeft(lower, "+-"), "0x") {
		return 0, sqlstate.Refusal("CLV-2192", "a SQLite shard does not read hexadecimal double precision").
			WithHint("Write it in decimal.")
	}
	if lower == "" || strings.ContainsAny(lower, "_pinx") {
		return 0, badInput(pgoid.Float8, text)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
		}
		return 0, badInput(pgoid.Float8, text)
	}
	if f == 0 && strings.ContainsAny(strings.SplitN(lower, "e", 2)[0], "123456789") {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	return f, nil
}

// RefuseNaN is the error of a NaN, which SQLite would hold as NULL.
func RefuseNaN() error {
	return sqlstate.Refusal("CLV-2193", "a SQLite shard cannot hold NaN in double precision").WithHint("Use numeric, or NULL.")
}

// CheckText refuses what PostgreSQL's UTF8 encoding refuses.
func CheckText(s string) error {
	for i := 0; i < len(s); {
		c := s[i]
		if c == 0 {
			return sqlstate.New(sqlstate.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\": 0x00")
		}
		if c < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			var b strings.Builder
			end := min(i+utf8Len(c), len(s))
			for k := i; k < end; k++ {
				b.WriteString(" 0x" + hex.EncodeToString([]byte{s[k]}))
			}
			return sqlstate.New(sqlstate.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\":%s", b.String())
		}
		i += n
	}
	return nil
}

func utf8Len(c byte) int {
	switch {
	case c&0xe0 == 0xc0:
		return 2
	case c&0xf0 == 0xe0:
		return 3
	case c&0xf8 == 0xf0:
		return 4
	}
	return 1
}

// In reads a type's text form. loc is the session's time zone.
func In(oid uint32, text string, loc *time.Location) (Datum, error) {
	switch oid {
	case pgoid.Bool:
		b, err := BoolIn(text)
		return Bool(b), err
	case pgoid.Int2, pgoid.Int4, pgoid.Int8:
		i, err := intIn(text, oid)
		return Int(i), err
	case pgoid.OID, pgoid.XID:
		i, err := strconv.ParseUint(strings.Trim(text, blanks), 10, 32)
		if err != nil {
			return Datum{}, badInput(oid, text)
		}
		return Int(int64(i)), nil
	case pgoid.TID:
		return tidIn(text)
	case pgoid.Text, pgoid.Varchar, pgoid.Bpchar, pgoid.PgNodeTree:
		return Text(text), nil
	case pgoid.Name:
		return Text(clipName(text)), nil
	case pgoid.Char:
		if len(text) > 1 && text[0] < utf8.RuneSelf {
			text = text[:1]
		}
		return Text(text), nil
	case pgoid.Unknown, pgoid.Void:
		return Text(text), nil
	case pgoid.UUID:
		s, err := uuidIn(text)
		return Blob(s), err
	case pgoid.Bytea:
		s, err := ByteaIn(text)
		return Blob(s), err
	case pgoid.Date:
		i, err := dateIn(text)
		return Int(i), err
	case pgoid.Time:
		i, err := timeIn(text)
		return Int(i), err
	case pgoid.Timestamp:
		i, err := timestampIn(text)
		return Int(i), err
	case pgoid.Timestamptz:
		i, err := TimestamptzIn(text, loc)
		return Int(i), err
	case pgoid.Float8:
		f, err := FloatIn(text)
		return Datum{Kind: 'f', Float: f}, err
	case pgoid.Numeric:
		n, err := ParseNumeric(text)
		if err != nil {
			return Datum{}, err
		}
		return Text(n.String()), nil
	case pgoid.JSON:
		if err := checkJSON(text); err != nil {
			return Datum{}, err
		}
		return Text(text), nil
	case pgoid.JSONB:
		s, err := normalJSON(text)
		return Text(s), err
	case pgoid.Interval:
		v, err := intervalIn(text)
		return Blob(v.Encode()), err
	}
	if elem := Builtin.Element(oid); elem != 0 && ClassOf(oid) == ClassArray {
		a, err := ParseArray(text, oid)
		if err != nil {
			return Datum{}, err
		}
		s, err := a.Normal(elem, loc)
		if oid == pgoid.Int2Vector || oid == pgoid.OIDVector {
			s = strings.ReplaceAll(strings.Trim(s, "{}"), ",", " ")
		}
		return Text(s), err
	}
	return Datum{}, sqlstate.Refusal("CLV-2065", "a SQLite shard has no values of type %s", TypeName(oid)).
		WithHint("See docs/sql-sqlite.md for the types it has.")
}

func clipName(s string) string {
	if len(s) < 64 {
		return s
	}
	s = s[:63]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// Append appends a type's text form.
func Append(dst []byte, oid uint32, d Datum, loc *time.Location) ([]byte, error) {
	switch oid {
	case pgoid.Bool:
		if d.Int != 0 {
			return append(dst, 't'), nil
		}
		return append(dst, 'f'), nil
	case pgoid.TID:
		return appendTID(dst, d.Int), nil
	case pgoid.Date:
		return appendDate(dst, d.Int), nil
	case pgoid.Time:
		return appendTime(dst, d.Int), nil
	case pgoid.Timestamp:
		return appendTS(dst, d.Int), nil
	case pgoid.Timestamptz:
		return AppendTimestamptz(dst, d.Int, loc), nil
	case pgoid.UUID:
		return appendUUID(dst, d.Str), nil
	case pgoid.Bytea:
		return hex.AppendEncode(append(dst, '\\', 'x'), []byte(d.Str)), nil
	case pgoid.Float8:
		return appendFloat(dst, d.Float, 64), nil
	case pgoid.Float4:
		return appendFloat(dst, d.Float, 32), nil
	case pgoid.Interval:
		return append(dst, DecodeInterval(d.Str).String()...), nil
	}
	switch ClassOf(oid) {
	case ClassInt:
		return strconv.AppendInt(dst, d.Int, 10), nil
	case ClassText, ClassNumeric, ClassBpchar, ClassJSON, ClassVoid, ClassArray:
		return append(dst, d.Str...), nil
	}
	return dst, sqlstate.New(sqlstate.InternalError, "no text form of type %s", TypeName(oid))
}

// A tid is a rowid: its page the upper bits, its place on the page the lower 16.
func appendTID(dst []byte, row int64) []byte {
	return fmt.Appendf(dst, "(%d,%d)", uint32(row>>16), uint16(row))
}

func tidIn(text string) (Datum, error) {
	var page uint32
	var place uint16
	if n, err := fmt.Sscanf(text, "(%d,%d)", &page, &place); err != nil || n != 2 {
		return Datum{}, badInput(pgoid.TID, text)
	}
	return Int(int64(page)<<16 | int64(place)), nil
}

func appendUUID(dst []byte, s string) []byte {
	for i := range len(s) {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, "0123456789abcdef"[s[i]>>4], "0123456789abcdef"[s[i]&15])
	}
	return dst
}

// appendFloat prints the shortest text that reads back as the same double, in
// PostgreSQL's layout (extra_float_digits = 1).
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	}
	var buf [32]byte
	s := strconv.AppendFloat(buf[:0], f, 'e', -1, bits)
	exp, _ := strconv.Atoi(string(s[bytes.LastIndexByte(s, 'e')+1:]))
	if exp < -4 || exp >= 15 || bits == 32 && exp >= 6 {
		// Go takes the bounds of the interval that reads back as an even f into
		// account, PostgreSQL does not: it prints 1e23 as 9.999999999999999e+22.
		// Decimals of up to 17 digits meet a bound in this range only.
		if bits == 64 && exp >= 15 && exp <= 40 && onRoundingBound(string(s), f) {
			s = shortestInside(buf[:0], f)
		}
		return append(dst, s...)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, bits)
}

// shortestInside is the shortest text that reads back as f and is no bound of the interval that does.
func shortestInside(buf []byte, f float64) (s []byte) {
	for digits := 1; digits <= 16; digits++ {
		s = strconv.AppendFloat(buf, f, 'e', digits, 64)
		if g, err := strconv.ParseFloat(string(s), 64); err == nil && g == f && !onRoundingBound(string(s), f) {
			break
		}
	}
	return s
}

// onRoundingBound tells whether the integer s is halfway between f and a neighbour.
func onRoundingBound(s string, f float64) bool {
	if math.Float64bits(f)&1 != 0 {
		return false
	}
	exact := func(f float64) *big.Float { return new(big.Float).SetPrec(256).SetFloat64(f) }
	x, ok := new(big.Float).SetPrec(256).SetString(s)
	if !ok {
		return false
	}
	x.Add(x, x)
	for _, to := range []float64{math.Inf(1), math.Inf(-1)} {
		if x.Cmp(exact(f).Add(exact(f), exact(math.Nextafter(f, to)))) == 0 {
			return true
		}
	}
	return false
}

// FromBinary reads a type's binary form.
func FromBinary(oid uint32, b []byte) (Datum, error) {
	if n, fixed := binarySize(oid); fixed && len(b) != n {
		return Datum{}, sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format")
	}
	switch oid {
	case pgoid.Bool:
		return Bool(b[0] != 0), nil
	case pgoid.Int2:
		return Int(int64(int16(binary.BigEndian.Uint16(b)))), nil
	case pgoid.Int4:
		return Int(int64(int32(binary.BigEndian.Uint32(b)))), nil
	case pgoid.OID, pgoid.XID, pgoid.Regclass, pgoid.Regtype, pgoid.Regproc, pgoid.Regprocedure, pgoid.Regnamespace, pgoid.Regrole:
		return Int(int64(binary.BigEndian.Uint32(b))), nil
	case pgoid.TID:
		return Int(int64(binary.BigEndian.Uint32(b))<<16 | int64(binary.BigEndian.Uint16(b[4:]))), nil
	case pgoid.Date:
		v := int64(int32(binary.BigEndian.Uint32(b)))
		return Int(v), inRange(oid, v)
	case pgoid.Int8, pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz:
		v := int64(binary.BigEndian.Uint64(b))
		return Int(v), inRange(oid, v)
	case pgoid.Float8:
		f := math.Float64frombits(binary.BigEndian.Uint64(b))
		if math.IsNaN(f) {
			return Datum{}, RefuseNaN()
		}
		return Datum{Kind: 'f', Float: f}, nil
	case pgoid.UUID:
		return Blob(string(b)), nil
	case pgoid.Bytea:
		return Blob(string(b)), nil
	case pgoid.Numeric:
		n, err := numericFromBinary(b)
		if err != nil {
			return Datum{}, err
		}
		return Text(n.String()), nil
	case pgoid.JSONB:
		if len(b) == 0 || b[0] != 1 {
			return Datum{}, sqlstate.New(sqlstate.InternalError, "unsupported jsonb version number")
		}
		b = b[1:]
	case pgoid.Interval:
		v := Interval{Micros: int64(binary.BigEndian.Uint64(b)), Days: int32(binary.BigEndian.Uint32(b[8:])), Months: int32(binary.BigEndian.Uint32(b[12:]))}
		return Blob(v.Encode()), nil
	}
	if elem := Builtin.Element(oid); elem != 0 && ClassOf(oid) == ClassArray {
		s, err := arrayFromBinary(b, elem)
		return Text(s), err
	}
	s := string(b)
	if err := CheckText(s); err != nil {
		return Datum{}, err
	}
	return In(oid, s, time.UTC)
}

// binarySize is the length of a type's binary form, if all its values have the same.
func binarySize(oid uint32) (n int, fixed bool) {
	switch oid {
	case pgoid.Bool:
		return 1, true
	case pgoid.Int2:
		return 2, true
	case pgoid.Int4, pgoid.Date, pgoid.OID, pgoid.XID, pgoid.Regclass, pgoid.Regtype, pgoid.Regproc, pgoid.Regprocedure, pgoid.Regnamespace, pgoid.Regrole:
		return 4, true
	case pgoid.TID:
		return 6, true
	case pgoid.Int8, pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz, pgoid.Float8:
		return 8, true
	case pgoid.UUID, pgoid.Interval:
		return 16, true
	}
	return 0, false
}

// inRange is the error of a day or time outside of what its type has.
func inRange(oid uint32, v int64) error {
	switch oid {
	case pgoid.Date:
		if v != DateInf && v != DateMinusInf && (v < DateMin || v >= DateEnd) {
			return sqlstate.New(sqlstate.DatetimeOverflow, "date out of range")
		}
	case pgoid.Time:
		if v < 0 || v > MicrosPerDay {
			return sqlstate.New(sqlstate.DatetimeOverflow, "time out of range")
		}
	case pgoid.Timestamp, pgoid.Timestamptz:
		if v != TimestampInf && v != TimestampMinusInf && (v < TimestampMin || v >= TimestampEnd) {
			return TimestampOutOfRange()
		}
	}
	return nil
}

// AppendBinary appends a type's binary form.
func AppendBinary(dst []byte, oid uint32, d Datum, loc *time.Location) ([]byte, error) {
	switch oid {
	case pgoid.Bool:
		return append(dst, byte(d.Int)), nil
	case pgoid.Int2:
		return binary.BigEndian.AppendUint16(dst, uint16(d.Int)), nil
	case pgoid.Int4, pgoid.Date, pgoid.OID, pgoid.XID, pgoid.Regclass, pgoid.Regtype, pgoid.Regproc, pgoid.Regprocedure, pgoid.Regoper, pgoid.Regoperator, pgoid.Regrole, pgoid.Regnamespace, pgoid.Regcollation:
		return binary.BigEndian.AppendUint32(dst, uint32(d.Int)), nil
	case pgoid.TID:
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(dst, uint32(d.Int>>16)), uint16(d.Int)), nil
	case pgoid.Int8, pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz:
		return binary.BigEndian.AppendUint64(dst, uint64(d.Int)), nil
	case pgoid.Float4:
		return binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(d.Float))), nil
	case pgoid.Float8:
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(d.Float)), nil
	case pgoid.UUID, pgoid.Bytea:
		return append(dst, d.Str...), nil
	case pgoid.Numeric:
		n, err := NumericOfText(d.Str)
		if err != nil {
			return dst, err
		}
		return n.appendBinary(dst), nil
	case pgoid.JSONB:
		return append(append(dst, 1), d.Str...), nil
	case pgoid.Interval:
		v := DecodeInterval(d.Str)
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.Micros))
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.Days))
		return binary.BigEndian.AppendUint32(dst, uint32(v.Months)), nil
	}
	switch ClassOf(oid) {
	case ClassText, ClassBpchar, ClassJSON, ClassVoid:
		return append(dst, d.Str...), nil
	case ClassArray:
		return appendArrayBinary(dst, d.Str, oid, loc)
	}
	return dst, sqlstate.Refusal("CLV-2194", "type %s has no binary form on a SQLite shard", TypeName(oid)).
		WithHint("Ask for it in text format.")
}

// OfColumn reads a result column whose values are of class c. A value of
// another storage class was not written by Cleave.
func OfColumn(stmt *sqlite.Stmt, col int, c Class, buf []byte) (Datum, []byte, error) {
	switch stmt.ColumnType(col) {
	case sqlite.TypeNull:
		return Datum{}, buf, nil
	case sqlite.TypeInteger:
		if c == ClassInt {
			return Int(stmt.ColumnInt64(col)), buf, nil
		}
		if c == ClassFloat {
			return Datum{Kind: 'f', Float: stmt.ColumnFloat(col)}, buf, nil
		}
	case sqlite.TypeFloat:
		if c == ClassFloat {
			return Datum{Kind: 'f', Float: stmt.ColumnFloat(col)}, buf, nil
		}
	case sqlite.TypeText:
		switch c {
		case ClassText, ClassNumeric, ClassBpchar, ClassJSON, ClassVoid, ClassArray:
			return Text(stmt.ColumnText(col)), buf, nil
		}
	case sqlite.TypeBlob:
		if c == ClassBlob || c == ClassInterval {
			b := make([]byte, stmt.ColumnLen(col))
			stmt.ColumnBytes(col, b)
			return Blob(string(b)), buf, nil
		}
	}
	return Datum{}, buf, wrongClass(stmt, col)
}

func wrongClass(stmt *sqlite.Stmt, col int) error {
	return sqlstate.New(sqlstate.DataCorrupted, "the file holds a value of storage class %s where column %d of the result cannot have one",
		stmt.ColumnType(col), col+1).
		WithHint("The value was written without Cleave. Correct it with sqlite3, then run the statement again.")
}

// ParseOID reads a number that this package printed.
func ParseOID(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}
