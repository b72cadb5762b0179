package cleave

import (
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// keyColumnsMax is how many columns a key can have without an allocation.
const keyColumnsMax = 4

// epoch2000 is PostgreSQL's zero of dates and timestamps, Unix seconds.
const epoch2000 = 946684800

// keyValue makes a shard key column's value of a Go value. It keeps nothing of v
// and allocates nothing for the types that are usual, so that a caller's
// arguments stay on its stack.
func keyValue(t keyspace.Type, v any) (keyspace.Value, error) {
	switch t {
	case keyspace.Int2, keyspace.Int4, keyspace.Int8:
		if n, ok := integer(v); ok {
			if !keyspace.InRange(t, n) {
				return keyspace.Value{}, sqlstate.New("22003", "%d is out of range for type %s", n, t)
			}
			return keyspace.Int(t, n), nil
		}
	case keyspace.Text, keyspace.Varchar:
		if s, ok := v.(string); ok {
			if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
				return keyspace.Value{}, sqlstate.New(sqlstate.CharacterNotInRepertoire, "the key is not valid UTF-8, or contains a zero byte")
			}
			return keyspace.Str(t, s), nil
		}
	case keyspace.UUID:
		switch u := v.(type) {
		case uuid.UUID:
			return keyspace.Str(t, string(u[:])), nil
		case [16]byte:
			return keyspace.Str(t, string(u[:])), nil
		case pgtype.UUID:
			if u.Valid {
				return keyspace.Str(t, string(u.Bytes[:])), nil
			}
			v = nil
		}
	case keyspace.Bytea:
		if b, ok := v.([]byte); ok && b != nil {
			return keyspace.Str(t, string(b)), nil
		}
	case keyspace.Bool:
		if b, ok := v.(bool); ok {
			n := int64(0)
			if b {
				n = 1
			}
			return keyspace.Int(t, n), nil
		}
	case keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz:
		if at, ok := v.(time.Time); ok {
			return keyTime(t, at)
		}
	}
	return keyOther(t, v)
}

func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case int32:
		return int64(n), true
	case int16:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case uint:
		return int64(n), n <= math.MaxInt64
	case uint64:
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}

// keyTime takes a time as pgx would send it: an instant for timestamptz, what a
// clock at the place shows for timestamp and date.
func keyTime(t keyspace.Type, at time.Time) (keyspace.Value, error) {
	if t != keyspace.Timestamptz {
		at = time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
	}
	const micro = 1_000_000
	n, ok := at.Unix()-epoch2000, true
	switch {
	case t == keyspace.Date && n < 0:
		n = (n+1)/86400 - 1
	case t == keyspace.Date:
		n /= 86400
	default:
		ok = n < math.MaxInt64/micro && n > math.MinInt64/micro
		n = n*micro + int64(at.Nanosecond())/1000
	}
	if !ok || !keyspace.InRange(t, n) {
		return keyspace.Value{}, sqlstate.New("22008", "the time is out of range for type %s", t)
	}
	return keyspace.Int(t, n), nil
}

// keyOther takes the rest: texts of any type, as SQL would read them, and types
// that the program has declared over one of the usual ones. It calls nothing of
// the value's own, so that the value need not be on the heap.
func keyOther(t keyspace.Type, v any) (keyspace.Value, error) {
	if s, ok := v.(string); ok {
		return keyspace.ParseText(t, []byte(s))
	}
	if v == nil {
		return keyspace.Value{}, sqlstate.New("22004", "a shard key is never NULL")
	}
	r := reflect.ValueOf(v)
	declared := r.Type().PkgPath() != ""
	switch k := r.Kind(); {
	case !declared:
	case r.CanInt():
		return keyValue(t, r.Int())
	case r.CanUint() && r.Uint() <= math.MaxInt64:
		return keyValue(t, int64(r.Uint()))
	case k == reflect.String:
		return keyValue(t, r.String())
	case k == reflect.Bool:
		return keyValue(t, r.Bool())
	case k == reflect.Array && r.Type().Len() == 16 && r.Type().Elem().Kind() == reflect.Uint8:
		var u [16]byte
		for i := range u {
			u[i] = byte(r.Index(i).Uint())
		}
		return keyValue(t, u)
	}
	return keyspace.Value{}, sqlstate.New(sqlstate.DatatypeMismatch, "a Go %s is no shard key of type %s", r.Type().String(), t).
		WithHint("pass an integer, a string, a uuid, a time or what else pgx takes for %s, or the key's text", t)
}
