package sqlite

import (
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

	"github.com/cleavedb/cleave/sqlstate"
)

// datum is a value in SQLite's terms: 'i' INTEGER, 'f' REAL, 't' TEXT, 'b' BLOB,
// 0 NULL.
type datum struct {
	kind byte
	i    int64
	f    float64
	s    string
}

func intDatum(i int64) datum   { return datum{kind: 'i', i: i} }
func textDatum(s string) datum { return datum{kind: 't', s: s} }
func blobDatum(s string) datum { return datum{kind: 'b', s: s} }

func boolDatum(b bool) datum {
	if b {
		return intDatum(1)
	}
	return intDatum(0)
}

// literal is the SQL that evaluates to the datum.
func (d datum) literal() string {
	switch d.kind {
	case 'i':
		if d.i < 0 {
			return "(" + strconv.FormatInt(d.i, 10) + ")"
		}
		return strconv.FormatInt(d.i, 10)
	case 'f':
		switch {
		case math.IsInf(d.f, 1):
			return "9e999"
		case math.IsInf(d.f, -1):
			return "(-9e999)"
		case d.f == 0 && math.Signbit(d.f):
			return "cleave_minus_zero()"
		}
		// SQLite reads at most about 19 digits exactly; 17 are enough, yet its
		// reader may miss by one place in the last bit, so a function reads it.
		s := strconv.FormatFloat(d.f, 'g', -1, 64)
		if d.f == math.Trunc(d.f) && math.Abs(d.f) < 1e15 {
			s = strconv.FormatFloat(d.f, 'f', 1, 64)
			if d.f < 0 {
				return "(" + s + ")"
			}
			return s
		}
		return "cleave_float('" + s + "')"
	case 't':
		return quoteText(d.s)
	case 'b':
		return "X'" + hex.EncodeToString([]byte(d.s)) + "'"
	}
	return "NULL"
}

func (d datum) bind(stmt *sqlite.Stmt, param int) {
	switch d.kind {
	case 'i':
		stmt.BindInt64(param, d.i)
	case 'f':
		stmt.BindFloat(param, d.f)
	case 't':
		stmt.BindText(param, d.s)
	case 'b':
		if d.s == "" {
			stmt.BindZeroBlob(param, 0)
		} else {
			stmt.BindBytes(param, []byte(d.s))
		}
	default:
		stmt.BindNull(param)
	}
}

func valueDatum(v arg) datum {
	switch v.Type() {
	case sqlite.TypeInteger:
		return intDatum(v.Int64())
	case sqlite.TypeFloat:
		return datum{kind: 'f', f: v.Float()}
	case sqlite.TypeText:
		return textDatum(v.Text())
	case sqlite.TypeBlob:
		return blobDatum(string(v.Blob()))
	}
	return datum{}
}

func outOfRange(oid uint32) error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "%s out of range", typeName(oid))
}

func checkInt(i int64, oid uint32) (int64, error) {
	switch oid {
	case oidInt2:
		if i < math.MinInt16 || i > math.MaxInt16 {
			return 0, outOfRange(oid)
		}
	case oidInt4:
		if i < math.MinInt32 || i > math.MaxInt32 {
			return 0, outOfRange(oid)
		}
	case oidOID, oidRegclass, oidRegtype, oidRegproc, oidXID:
		if i < 0 || i > math.MaxUint32 {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "OID out of range")
		}
	}
	return i, nil
}

func badInput(oid uint32, text string) error {
	return sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type %s: \"%s\"", typeName(oid), text)
}

const blanks = " \t\n\r\f\v"

func intIn(text string, oid uint32) (int64, error) {
	s := strings.Trim(text, blanks)
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strings.Contains(s, "_") {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "value \"%s\" is out of range for type %s", text, typeName(oid))
		}
		return 0, badInput(oid, text)
	}
	if _, err := checkInt(i, oid); err != nil {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "value \"%s\" is out of range for type %s", text, typeName(oid))
	}
	return i, nil
}

func boolIn(text string) (bool, error) {
	s := strings.ToLower(strings.Trim(text, blanks))
	is := func(word string, least int) bool { return len(s) >= least && strings.HasPrefix(word, s) }
	switch {
	case is("true", 1), is("yes", 1), s == "on", s == "1":
		return true, nil
	case is("false", 1), is("no", 1), is("off", 2), s == "0":
		return false, nil
	}
	return false, badInput(oidBool, text)
}

func uuidIn(text string) (string, error) {
	s := text
	bad := badInput(oidUUID, text)
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

func byteaIn(text string) (string, error) {
	if strings.HasPrefix(text, `\x`) {
		var out []byte
		rest := text[2:]
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
				if isHex(rest[0]) {
					r, _ = utf8.DecodeRuneInString(rest[1:])
				}
				return "", sqlstate.New(sqlstate.InvalidParameterValue, "invalid hexadecimal digit: \"%c\"", r)
			}
			out, rest = append(out, b[0]), rest[2:]
		}
		return string(out), nil
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

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func floatIn(text string) (float64, error) {
	s := strings.Trim(text, blanks)
	lower := strings.ToLower(s)
	switch lower {
	case "nan":
		return 0, refuseNaN()
	case "infinity", "+infinity", "inf", "+inf":
		return math.Inf(1), nil
	case "-infinity", "-inf":
		return math.Inf(-1), nil
	}
	if strings.HasPrefix(strings.TrimLeft(lower, "+-"), "0x") {
		return 0, sqlstate.Refuse("a SQLite shard does not read hexadecimal double precision", "Write it in decimal.")
	}
	if lower == "" || strings.ContainsAny(lower, "_pinx") {
		return 0, badInput(oidFloat8, text)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
		}
		return 0, badInput(oidFloat8, text)
	}
	if f == 0 && strings.ContainsAny(strings.SplitN(lower, "e", 2)[0], "123456789") {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	return f, nil
}

func refuseNaN() error {
	return sqlstate.Refuse("a SQLite shard cannot hold NaN in double precision", "Use numeric, or NULL.")
}

// checkText refuses what PostgreSQL's UTF8 encoding refuses.
func checkText(s string) error {
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

// datumIn reads a type's text form. loc is the session's time zone.
func datumIn(oid uint32, text string, loc *time.Location) (datum, error) {
	switch oid {
	case oidBool:
		b, err := boolIn(text)
		return boolDatum(b), err
	case oidInt2, oidInt4, oidInt8:
		i, err := intIn(text, oid)
		return intDatum(i), err
	case oidOID, oidXID:
		i, err := strconv.ParseUint(strings.Trim(text, blanks), 10, 32)
		if err != nil {
			return datum{}, badInput(oid, text)
		}
		return intDatum(int64(i)), nil
	case oidTID:
		return tidIn(text)
	case oidText, oidVarchar, oidBpchar, oidPgNodeTree:
		return textDatum(text), nil
	case oidName:
		return textDatum(clipName(text)), nil
	case oidChar:
		if len(text) > 1 && text[0] < utf8.RuneSelf {
			text = text[:1]
		}
		return textDatum(text), nil
	case oidUnknown, oidVoid:
		return textDatum(text), nil
	case oidUUID:
		s, err := uuidIn(text)
		return blobDatum(s), err
	case oidBytea:
		s, err := byteaIn(text)
		return blobDatum(s), err
	case oidDate:
		i, err := dateIn(text)
		return intDatum(i), err
	case oidTime:
		i, err := timeIn(text)
		return intDatum(i), err
	case oidTimestamp:
		i, err := timestampIn(text)
		return intDatum(i), err
	case oidTimestamptz:
		i, err := timestamptzIn(text, loc)
		return intDatum(i), err
	case oidFloat8:
		f, err := floatIn(text)
		return datum{kind: 'f', f: f}, err
	case oidNumeric:
		n, err := parseNumeric(text)
		if err != nil {
			return datum{}, err
		}
		return textDatum(n.String()), nil
	case oidJSON:
		if err := checkJSON(text); err != nil {
			return datum{}, err
		}
		return textDatum(text), nil
	case oidJSONB:
		s, err := normalJSON(text)
		return textDatum(s), err
	case oidInterval:
		v, err := intervalIn(text)
		return blobDatum(v.encode()), err
	}
	if elem := builtin.Element(oid); elem != 0 && classOf(oid) == classArray {
		a, err := parseArray(text, oid)
		if err != nil {
			return datum{}, err
		}
		s, err := a.normal(elem, loc)
		if oid == oidInt2Vector || oid == oidOIDVector {
			s = strings.ReplaceAll(strings.Trim(s, "{}"), ",", " ")
		}
		return textDatum(s), err
	}
	return datum{}, sqlstate.Refuse("a SQLite shard has no values of type "+typeName(oid), "See docs/sql-sqlite.md for the types it has.")
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

// appendDatum appends a type's text form.
func appendDatum(dst []byte, oid uint32, d datum, loc *time.Location) ([]byte, error) {
	switch oid {
	case oidBool:
		if d.i != 0 {
			return append(dst, 't'), nil
		}
		return append(dst, 'f'), nil
	case oidTID:
		return appendTID(dst, d.i), nil
	case oidDate:
		return appendDate(dst, d.i), nil
	case oidTime:
		return appendTime(dst, d.i), nil
	case oidTimestamp:
		return appendTS(dst, d.i), nil
	case oidTimestamptz:
		return appendTSTZ(dst, d.i, loc), nil
	case oidUUID:
		return appendUUID(dst, d.s), nil
	case oidBytea:
		return hex.AppendEncode(append(dst, '\\', 'x'), []byte(d.s)), nil
	case oidFloat8:
		return appendFloat(dst, d.f, 64), nil
	case oidFloat4:
		return appendFloat(dst, d.f, 32), nil
	case oidInterval:
		return append(dst, decodeInterval(d.s).String()...), nil
	}
	switch classOf(oid) {
	case classInt:
		return strconv.AppendInt(dst, d.i, 10), nil
	case classText, classNumeric, classBpchar, classJSON, classVoid, classArray:
		return append(dst, d.s...), nil
	}
	return dst, sqlstate.New(sqlstate.InternalError, "no text form of type %s", typeName(oid))
}

// A tid is a rowid: its page the upper bits, its place on the page the lower 16.
func appendTID(dst []byte, row int64) []byte {
	return fmt.Appendf(dst, "(%d,%d)", uint32(row>>16), uint16(row))
}

func tidIn(text string) (datum, error) {
	var page uint32
	var place uint16
	if n, err := fmt.Sscanf(text, "(%d,%d)", &page, &place); err != nil || n != 2 {
		return datum{}, badInput(oidTID, text)
	}
	return intDatum(int64(page)<<16 | int64(place)), nil
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
	exp := 0
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == 'e' {
			exp, _ = strconv.Atoi(string(s[i+1:]))
			break
		}
	}
	if exp < -4 || exp >= 15 || bits == 32 && exp >= 6 {
		// Go takes the bounds of the interval that reads back as an even f into
		// account, PostgreSQL does not: it prints 1e23 as 9.999999999999999e+22.
		// Decimals of up to 17 digits meet a bound in this range only.
		if bits == 64 && exp >= 15 && exp <= 40 && onRoundingBound(string(s), f) {
			for digits := 1; digits <= 16; digits++ {
				s = strconv.AppendFloat(buf[:0], f, 'e', digits, 64)
				if g, err := strconv.ParseFloat(string(s), 64); err == nil && g == f && !onRoundingBound(string(s), f) {
					break
				}
			}
		}
		return append(dst, s...)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, bits)
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

// datumFromBinary reads a type's binary form.
func datumFromBinary(oid uint32, b []byte) (datum, error) {
	bad := sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format")
	size := func(n int) bool { return len(b) == n }
	switch oid {
	case oidBool:
		if !size(1) {
			return datum{}, bad
		}
		return boolDatum(b[0] != 0), nil
	case oidInt2:
		if !size(2) {
			return datum{}, bad
		}
		return intDatum(int64(int16(binary.BigEndian.Uint16(b)))), nil
	case oidInt4:
		if !size(4) {
			return datum{}, bad
		}
		return intDatum(int64(int32(binary.BigEndian.Uint32(b)))), nil
	case oidOID, oidXID, oidRegclass, oidRegtype, oidRegproc, oidRegprocedure, oidRegnamespace, oidRegrole:
		if !size(4) {
			return datum{}, bad
		}
		return intDatum(int64(binary.BigEndian.Uint32(b))), nil
	case oidTID:
		if !size(6) {
			return datum{}, bad
		}
		return intDatum(int64(binary.BigEndian.Uint32(b))<<16 | int64(binary.BigEndian.Uint16(b[4:]))), nil
	case oidDate:
		if !size(4) {
			return datum{}, bad
		}
		v := int64(int32(binary.BigEndian.Uint32(b)))
		if v != dateInf && v != dateMinusInf && (v < dateMin || v >= dateEnd) {
			return datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "date out of range")
		}
		return intDatum(v), nil
	case oidInt8, oidTime, oidTimestamp, oidTimestamptz:
		if !size(8) {
			return datum{}, bad
		}
		v := int64(binary.BigEndian.Uint64(b))
		if oid == oidTime && (v < 0 || v > usecsPerDay) {
			return datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "time out of range")
		}
		if (oid == oidTimestamp || oid == oidTimestamptz) && v != tsInf && v != tsMinusInf && (v < tsMin || v >= tsEnd) {
			return datum{}, tsOutOfRange()
		}
		return intDatum(v), nil
	case oidFloat8:
		if !size(8) {
			return datum{}, bad
		}
		f := math.Float64frombits(binary.BigEndian.Uint64(b))
		if math.IsNaN(f) {
			return datum{}, refuseNaN()
		}
		return datum{kind: 'f', f: f}, nil
	case oidUUID:
		if !size(16) {
			return datum{}, bad
		}
		return blobDatum(string(b)), nil
	case oidBytea:
		return blobDatum(string(b)), nil
	case oidNumeric:
		n, err := numericFromBinary(b)
		if err != nil {
			return datum{}, err
		}
		return textDatum(n.String()), nil
	case oidJSONB:
		if len(b) == 0 || b[0] != 1 {
			return datum{}, sqlstate.New(sqlstate.InternalError, "unsupported jsonb version number")
		}
		b = b[1:]
	case oidInterval:
		if !size(16) {
			return datum{}, bad
		}
		v := interval{us: int64(binary.BigEndian.Uint64(b)), days: int32(binary.BigEndian.Uint32(b[8:])), months: int32(binary.BigEndian.Uint32(b[12:]))}
		return blobDatum(v.encode()), nil
	}
	if elem := builtin.Element(oid); elem != 0 && classOf(oid) == classArray {
		s, err := arrayFromBinary(b, elem)
		return textDatum(s), err
	}
	s := string(b)
	if err := checkText(s); err != nil {
		return datum{}, err
	}
	return datumIn(oid, s, time.UTC)
}

// appendBinaryDatum appends a type's binary form.
func appendBinaryDatum(dst []byte, oid uint32, d datum, loc *time.Location) ([]byte, error) {
	switch oid {
	case oidBool:
		return append(dst, byte(d.i)), nil
	case oidInt2:
		return binary.BigEndian.AppendUint16(dst, uint16(d.i)), nil
	case oidInt4, oidDate, oidOID, oidXID, oidRegclass, oidRegtype, oidRegproc, oidRegprocedure, oidRegoper, oidRegoperator, oidRegrole, oidRegnamespace, oidRegcollation:
		return binary.BigEndian.AppendUint32(dst, uint32(d.i)), nil
	case oidTID:
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(dst, uint32(d.i>>16)), uint16(d.i)), nil
	case oidInt8, oidTime, oidTimestamp, oidTimestamptz:
		return binary.BigEndian.AppendUint64(dst, uint64(d.i)), nil
	case oidFloat4:
		return binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(d.f))), nil
	case oidFloat8:
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(d.f)), nil
	case oidUUID, oidBytea:
		return append(dst, d.s...), nil
	case oidNumeric:
		n, err := mustNumeric(d.s)
		if err != nil {
			return dst, err
		}
		return n.appendBinary(dst), nil
	case oidJSONB:
		return append(append(dst, 1), d.s...), nil
	case oidInterval:
		v := decodeInterval(d.s)
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.us))
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.days))
		return binary.BigEndian.AppendUint32(dst, uint32(v.months)), nil
	}
	switch classOf(oid) {
	case classText, classBpchar, classJSON, classVoid:
		return append(dst, d.s...), nil
	case classArray:
		return appendArrayBinary(dst, d.s, oid, loc)
	}
	return dst, sqlstate.Refuse("type "+typeName(oid)+" has no binary form on a SQLite shard", "Ask for it in text format.")
}

// columnDatum reads a result column whose values are of class c. A value of
// another storage class was not written by Cleave.
func columnDatum(stmt *sqlite.Stmt, col int, c class, buf []byte) (datum, []byte, error) {
	switch stmt.ColumnType(col) {
	case sqlite.TypeNull:
		return datum{}, buf, nil
	case sqlite.TypeInteger:
		if c == classInt {
			return intDatum(stmt.ColumnInt64(col)), buf, nil
		}
		if c == classFloat {
			return datum{kind: 'f', f: stmt.ColumnFloat(col)}, buf, nil
		}
	case sqlite.TypeFloat:
		if c == classFloat {
			return datum{kind: 'f', f: stmt.ColumnFloat(col)}, buf, nil
		}
	case sqlite.TypeText:
		switch c {
		case classText, classNumeric, classBpchar, classJSON, classVoid, classArray:
			return textDatum(stmt.ColumnText(col)), buf, nil
		}
	case sqlite.TypeBlob:
		if c == classBlob || c == classInterval {
			b := make([]byte, stmt.ColumnLen(col))
			stmt.ColumnBytes(col, b)
			return blobDatum(string(b)), buf, nil
		}
	}
	return datum{}, buf, wrongClass(stmt, col)
}

func wrongClass(stmt *sqlite.Stmt, col int) error {
	return sqlstate.New(sqlstate.DataCorrupted, "the file holds a value of storage class %s where column %d of the result cannot have one",
		stmt.ColumnType(col), col+1).
		WithHint("The value was written without Cleave. Correct it with sqlite3, then run the statement again.")
}

func u32(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}
