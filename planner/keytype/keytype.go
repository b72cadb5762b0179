package keytype

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
)

// IsInt reports whether a type is one of the integers.
func IsInt(t keyspace.Type) bool {
	return t == keyspace.Int2 || t == keyspace.Int4 || t == keyspace.Int8
}

// IsText reports whether a type is one of the texts.
func IsText(t keyspace.Type) bool { return t == keyspace.Text || t == keyspace.Varchar }

// SameFamily reports whether values of both types compare by value without any
// conversion that could lose something.
func SameFamily(a, b keyspace.Type) bool {
	return a == b && a != 0 || IsInt(a) && IsInt(b) || IsText(a) && IsText(b)
}

// Fits reports whether an integer is one of a type.
func Fits(t keyspace.Type, n int64) bool {
	switch t {
	case keyspace.Int2:
		return n >= -1<<15 && n < 1<<15
	case keyspace.Int4:
		return n >= -1<<31 && n < 1<<31
	}
	return t == keyspace.Int8
}

// Convert turns a value into one of a type of the same family. never is true
// for an integer that the type does not have.
func Convert(v keyspace.Value, t keyspace.Type) (w keyspace.Value, never, ok bool) {
	switch from := v.Type(); {
	case from == t:
		return v, false, true
	case IsInt(from) && IsInt(t):
		if !Fits(t, v.Int()) {
			return w, true, true
		}
		return keyspace.Int(t, v.Int()), false, true
	case IsText(from) && IsText(t):
		return keyspace.Str(t, v.Bytes()), false, true
	}
	return w, false, false
}

// WholeNumber reads a numeric literal. integral is false for a number that is
// no 64-bit integer; sure is false for a notation that is left alone.
func WholeNumber(s string) (n int64, integral, sure bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true, true
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, false, false
		}
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if e, err := strconv.Atoi(s[i+1:]); err != nil || e > 400 || e < -400 {
			return 0, false, false
		}
	}
	if len(s) > 1000 {
		return 0, false, false
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, false, false
	}
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, false, true
	}
	return r.Num().Int64(), true, true
}

// ByName are the types of shard keys by their names in pg_type.
var ByName = map[string]keyspace.Type{
	"int2": keyspace.Int2, "int4": keyspace.Int4, "int8": keyspace.Int8, "text": keyspace.Text, "varchar": keyspace.Varchar,
	"uuid": keyspace.UUID, "date": keyspace.Date, "timestamp": keyspace.Timestamp, "timestamptz": keyspace.Timestamptz,
	"bytea": keyspace.Bytea, "bool": keyspace.Bool,
}

// IsTime reports whether a type is one of times, whose texts the session's settings read.
func IsTime(t keyspace.Type) bool {
	return t == keyspace.Date || t == keyspace.Timestamp || t == keyspace.Timestamptz
}

// Family maps the types whose values compare by value onto one of them.
func Family(t keyspace.Type) keyspace.Type {
	switch {
	case IsInt(t):
		return keyspace.Int8
	case IsText(t):
		return keyspace.Text
	}
	return t
}
