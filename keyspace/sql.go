package keyspace

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Literal returns the value as SQL for PostgreSQL, with its cast. It reads the
// same whatever standard_conforming_strings, DateStyle, TimeZone and
// search_path are. A text that PostgreSQL cannot hold (see [Str]) becomes an
// expression that PostgreSQL refuses with 22021.
func (v Value) Literal() string {
	switch v.typ {
	case Bool:
		if v.num != 0 {
			return "true"
		}
		return "false"
	case Text, Varchar:
		if strings.IndexByte(v.str, 0) >= 0 || !utf8.ValidString(v.str) {
			return "pg_catalog.convert_from(" + Str(Bytea, v.str).Literal() + ", 'UTF8')::" + typeInfos[v.typ].cast
		}
	case 0:
		return "NULL"
	}
	return Quote(v.Text()) + "::" + typeInfos[v.typ].cast
}

// Quote returns a string literal that reads the same whatever
// standard_conforming_strings is. s must not hold NUL.
func Quote(s string) string {
	q := strings.ReplaceAll(s, "'", "''")
	if strings.IndexByte(q, '\\') < 0 {
		return "'" + q + "'"
	}
	return "E'" + strings.ReplaceAll(q, `\`, `\\`) + "'"
}

// HashExpr returns the SQL that computes the hash of a column in PostgreSQL
// with built-in functions; the table in the package documentation lists them.
// columnSQL is an expression of the type, seedSQL one of type bigint; both are
// put in as they are. Each appears exactly once in the result. It is immutable
// and parallel safe. A NULL column, which no shard key has, gives NULL, or 0 for
// date and bytea. It panics for no type, which is a mistake of the caller.
func HashExpr(t Type, columnSQL, seedSQL string) string {
	c, call := "("+columnSQL+")", ""
	switch t {
	case Int2:
		call = "hashint2extended"
	case Int4:
		call = "hashint4extended"
	case Int8:
		call = "hashint8extended"
	case Text:
		call, c = "hashtextextended", c+` COLLATE pg_catalog."C"`
	case Varchar:
		call, c = "hashtextextended", c+`::pg_catalog.text COLLATE pg_catalog."C"`
	case UUID:
		call = "uuid_hash_extended"
	case Timestamp:
		call = "timestamp_hash_extended"
	case Timestamptz:
		// The same microseconds, as the type that the function takes.
		call, c = "timestamp_hash_extended", "("+c+" AT TIME ZONE 'UTC')"
	case Date, Bytea:
		// hashvarlenaextended takes an argument of type internal, and there is no
		// cast from date to integer.
		call, c = "hash_record_extended", "ROW"+c
	case Bool:
		call, c = "hashint4extended", c+"::integer"
	default:
		panic("keyspace: HashExpr of " + t.String())
	}
	return "pg_catalog." + call + "(" + c + ", " + seedSQL + ")"
}

// KeyHashExpr returns the SQL that computes the position of a key of several
// columns: what [HashKey] computes. types and columnSQLs have the same length;
// for none the result is the seed.
func KeyHashExpr(types []Type, columnSQLs []string, seed int64) string {
	e := "'" + strconv.FormatInt(seed, 10) + "'::bigint"
	for i, t := range types {
		e = HashExpr(t, columnSQLs[i], e)
	}
	return e
}

// Probe returns an expression and what it must give on a server that places
// every type where this package does. A server that gives something else (a
// big-endian machine, a changed hash function) cannot be a shard.
func Probe() (expr string, position int64) {
	k := Key{Int(Int8, -42), Str(Text, "a text longer than 12 bytes, é"), Str(Bytea, "\x00\xff"), Str(UUID, "0123456789abcdef"),
		Int(Date, -1), Int(Timestamp, 1), Int(Timestamptz, -1), Int(Bool, 1)}
	types, columns := make([]Type, len(k)), make([]string, len(k))
	for i, v := range k {
		types[i], columns[i] = v.typ, v.Literal()
	}
	return KeyHashExpr(types, columns, DefaultSeed), HashKey(DefaultSeed, k)
}
