package keyspace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Int returns a value of an integer type, date (days since 2000-01-01),
// timestamp or timestamptz (microseconds since 2000-01-01) or boolean (0 or 1).
// It panics for other types, which is a mistake of the caller.
//
// A number out of an integer type's range is kept as it is: no row can hold it,
// so any place is right for a comparison with it, and the shard refuses it in
// an INSERT. See [InRange].
func Int(t Type, n int64) Value {
	if !t.Valid() || typeInfos[t].str {
		panic("keyspace: Int of " + t.String())
	}
	if t == Bool && n != 0 {
		n = 1
	}
	return Value{typ: t, num: n}
}

// Str returns a value of type text, varchar (valid UTF-8 without NUL), bytea
// (any bytes) or uuid (16 bytes). It panics for other types and for a uuid of
// another length, which are mistakes of the caller.
func Str(t Type, s string) Value {
	if !t.Valid() || !typeInfos[t].str || (t == UUID && len(s) != 16) {
		panic(fmt.Sprintf("keyspace: Str of %s with %d bytes", t, len(s)))
	}
	return Value{typ: t, str: s}
}

// InRange reports whether a value of the type can be n.
func InRange(t Type, n int64) bool {
	switch t {
	case Int2:
		return n == int64(int16(n))
	case Int4:
		return n == int64(int32(n))
	case Int8:
		return true
	case Date:
		return n == dateInfinity || n == dateMinusInfinity || (n >= dateMin && n < dateEnd)
	case Timestamp, Timestamptz:
		return n == math.MaxInt64 || n == math.MinInt64 || (n >= timestampMin && n < timestampEnd)
	case Bool:
		return n == 0 || n == 1
	default:
		return false
	}
}

// Type returns the value's type, 0 for the zero Value.
func (v Value) Type() Type { return v.typ }

// Int returns the number of a value made by [Int]; 0 for others.
func (v Value) Int() int64 { return v.num }

// Bytes returns the bytes of a value made by [Str]; "" for others.
func (v Value) Bytes() string { return v.str }

// Convert returns the value as another type that PostgreSQL compares and hashes
// alike: among the integer types, where the number fits, and between text and
// varchar. ok is false for everything else.
func (v Value) Convert(t Type) (c Value, ok bool) {
	switch {
	case v.typ == t:
		return v, t.Valid()
	case v.typ.IsInteger() && t.IsInteger() && InRange(t, v.num):
		return Value{typ: t, num: v.num}, true
	case v.typ.IsText() && t.IsText():
		return Value{typ: t, str: v.str}, true
	default:
		return Value{}, false
	}
}

// Text returns the canonical text: what PostgreSQL prints with DateStyle ISO,
// TimeZone UTC and bytea_output hex. [ParseText] reads it back.
func (v Value) Text() string { return string(v.AppendText(nil)) }

// AppendText appends what [Value.Text] returns.
func (v Value) AppendText(dst []byte) []byte {
	switch v.typ {
	case Int2, Int4, Int8:
		return strconv.AppendInt(dst, v.num, 10)
	case Text, Varchar:
		return append(dst, v.str...)
	case UUID:
		return appendUUID(dst, v.str)
	case Date:
		return appendDate(dst, v.num)
	case Timestamp, Timestamptz:
		return appendTimestamp(dst, v.num, v.typ == Timestamptz)
	case Bytea:
		return appendHex(append(dst, `\x`...), v.str)
	case Bool:
		if v.num != 0 {
			return append(dst, 't')
		}
		return append(dst, 'f')
	default:
		return append(dst, "(no value)"...)
	}
}

// String is [Value.Text].
func (v Value) String() string { return v.Text() }

// Compare returns -1, 0 or 1 as a sorts before, with or after b in PostgreSQL's
// order, text COLLATE "C". Integer types compare with each other, text with
// varchar; other types that differ are ordered by type.
func Compare(a, b Value) int {
	if a.typ != b.typ && !(a.typ.IsInteger() && b.typ.IsInteger()) && !(a.typ.IsText() && b.typ.IsText()) {
		return cmp.Compare(a.typ, b.typ)
	}
	if a.typ.Valid() && typeInfos[a.typ].str {
		return strings.Compare(a.str, b.str)
	}
	return cmp.Compare(a.num, b.num)
}

// CompareKeys compares column by column; a prefix sorts before what it begins.
func CompareKeys(a, b Key) int {
	for i := range min(len(a), len(b)) {
		if c := Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// Equal reports whether two keys have equal columns.
func (k Key) Equal(o Key) bool { return CompareKeys(k, o) == 0 }

// Texts returns the canonical text of each column.
func (k Key) Texts() []string {
	texts := make([]string, len(k))
	for i, v := range k {
		texts[i] = v.Text()
	}
	return texts
}

// String returns the key for people: (7, 'it”s').
func (k Key) String() string {
	b := []byte{'('}
	for i, v := range k {
		if i > 0 {
			b = append(b, ", "...)
		}
		if v.typ.IsInteger() {
			b = v.AppendText(b)
			continue
		}
		b = append(b, '\'')
		b = append(b, strings.ReplaceAll(v.Text(), "'", "''")...)
		b = append(b, '\'')
	}
	return string(append(b, ')'))
}

// ParseKey reads one text per type with [ParseText]. It fails with 22023 if
// their numbers differ. For a prefix of a key, give a prefix of the types.
func ParseKey(types []Type, texts []string) (Key, error) {
	if len(types) != len(texts) {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the key has %d values, but the keyspace has %d key columns", len(texts), len(types)).
			WithHint("give one value for each of %s", typeList(types))
	}
	k := make(Key, len(types))
	for i, t := range types {
		v, err := ParseText(t, []byte(texts[i]))
		if err != nil {
			return nil, err
		}
		k[i] = v
	}
	return k, nil
}

func typeList(types []Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// valueJSON is the stored form of a Value.
type valueJSON struct {
	Type Type   `json:"type"`
	Text string `json:"text"`
}

// MarshalJSON returns {"type": name, "text": canonical text}.
func (v Value) MarshalJSON() ([]byte, error) {
	return json.Marshal(valueJSON{v.typ, v.Text()})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (v *Value) UnmarshalJSON(b []byte) error {
	var j valueJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	p, err := ParseText(j.Type, []byte(j.Text))
	if err != nil {
		return err
	}
	*v = p
	return nil
}
