package value

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
)

// Builtin is PostgreSQL's catalogue of the version that the engine speaks for, see ServerVersion.
var Builtin = pgcatalog.Of(15)

// Class is how values of a type are held by SQLite.
type Class uint8

const (
	// ClassNone is of types that have no values here.
	ClassNone     Class = iota
	ClassInt            // INTEGER, ordered as the type is
	ClassFloat          // REAL, never NaN
	ClassText           // TEXT, valid UTF-8 without NUL, compared as bytes
	ClassBlob           // BLOB, compared as bytes
	ClassNumeric        // TEXT as numeric_out prints it, compared by the collation cleave_numeric
	ClassBpchar         // TEXT padded to its length, compared without trailing blanks
	ClassJSON           // TEXT, not comparable
	ClassInterval       // BLOB of 16 bytes, not comparable, not storable
	ClassArray          // TEXT as array_out prints it, not comparable
	ClassVoid           // empty TEXT
)

// ClassOf tells how values of a type are held.
func ClassOf(oid uint32) Class {
	switch oid {
	case pgoid.Bool, pgoid.Int2, pgoid.Int4, pgoid.Int8, pgoid.OID, pgoid.XID, pgoid.TID, pgoid.Date, pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz,
		pgoid.Regclass, pgoid.Regtype, pgoid.Regproc, pgoid.Regprocedure, pgoid.Regoper, pgoid.Regoperator, pgoid.Regrole, pgoid.Regnamespace, pgoid.Regcollation:
		return ClassInt
	case pgoid.Float8, pgoid.Float4:
		return ClassFloat
	case pgoid.Text, pgoid.Varchar, pgoid.Name, pgoid.Char, pgoid.PgNodeTree:
		return ClassText
	case pgoid.UUID, pgoid.Bytea:
		return ClassBlob
	case pgoid.Numeric:
		return ClassNumeric
	case pgoid.Bpchar:
		return ClassBpchar
	case pgoid.JSON, pgoid.JSONB, pgoid.ACLItem:
		return ClassJSON
	case pgoid.Interval:
		return ClassInterval
	case pgoid.Void, pgoid.Unknown:
		return ClassVoid
	case pgoid.Int2Vector, pgoid.OIDVector:
		return ClassArray
	}
	if t := Builtin.Type(oid); t != nil && t.Category == 'A' {
		switch ClassOf(t.Elem) {
		case ClassNone, ClassInterval, ClassVoid, ClassArray:
			return ClassNone
		}
		return ClassArray
	}
	return ClassNone
}

// comparable reports whether SQLite's own =, <, ORDER BY, GROUP BY and UNIQUE,
// with the collation of collate, are PostgreSQL's for the type.
func Comparable(oid uint32) bool {
	switch ClassOf(oid) {
	case ClassInt, ClassFloat, ClassText, ClassBlob, ClassNumeric:
		return true
	}
	return false
}

// Storable reports whether a table's column may have the type.
func Storable(oid uint32) bool {
	switch oid {
	case pgoid.Bool, pgoid.Int2, pgoid.Int4, pgoid.Int8, pgoid.Text, pgoid.Varchar, pgoid.Bpchar, pgoid.UUID, pgoid.Bytea, pgoid.Date, pgoid.Time,
		pgoid.Timestamp, pgoid.Timestamptz, pgoid.Numeric, pgoid.Float8, pgoid.JSON, pgoid.JSONB:
		return true
	}
	return false
}

// typeNames are the names that format_type prints where they differ from typname.
var typeNames = map[uint32]string{
	pgoid.Bool: "boolean", pgoid.Int2: "smallint", pgoid.Int4: "integer", pgoid.Int8: "bigint", pgoid.Float4: "real",
	pgoid.Float8: "double precision", pgoid.Varchar: "character varying", pgoid.Bpchar: "character",
	pgoid.Time: "time without time zone", pgoid.Timetz: "time with time zone",
	pgoid.Timestamp: "timestamp without time zone", pgoid.Timestamptz: "timestamp with time zone", pgoid.Char: `"char"`,
	pgoid.Bit: "bit", 1562: "bit varying", pgoid.Any: `"any"`,
}

// NoModifier says that format_type was given no modifier, which is not the modifier -1:
// the standard's name "character" means character(1), so with -1 the type's own name is told.
const NoModifier = math.MinInt32

// FormatType is PostgreSQL's format_type(oid, typmod).
func FormatType(oid uint32, mod int32) string {
	t := Builtin.Type(oid)
	if t == nil {
		if oid == 0 {
			return "-"
		}
		return "???"
	}
	if t.Category == 'A' && t.Elem != 0 && t.Size == -1 && t.Storage != "p" {
		return FormatType(t.Elem, mod) + "[]"
	}
	name, ok := typeNames[oid]
	if !ok {
		name = t.Name
	}
	if mod < 0 {
		switch {
		case mod == NoModifier:
		case oid == pgoid.Bpchar:
			return t.Name
		case oid == pgoid.Bit:
			return quote.Ident(t.Name) // "bit" is a keyword
		}
		return name
	}
	switch oid {
	case pgoid.Varchar, pgoid.Bpchar:
		return name + "(" + strconv.Itoa(int(mod)-4) + ")"
	case pgoid.Numeric:
		p, s := NumericTypmod(mod)
		return fmt.Sprintf("numeric(%d,%d)", p, s)
	case pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz:
		word, zone, _ := strings.Cut(name, " ")
		return fmt.Sprintf("%s(%d) %s", word, mod, zone)
	}
	return name
}

// TypeName is the name in error messages.
func TypeName(oid uint32) string { return FormatType(oid, NoModifier) }

// NumericTypmod reads the modifier of numeric(precision, scale).
func NumericTypmod(mod int32) (precision, scale int) {
	mod -= 4
	return int(mod>>16) & 0xffff, int((mod&0x7ff)^1024) - 1024
}

// MakeNumericTypmod makes the modifier of numeric(precision, scale).
func MakeNumericTypmod(precision, scale int) int32 {
	return int32(precision<<16|(scale&0x7ff)) + 4
}
