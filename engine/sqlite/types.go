package sqlite

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgcatalog"
)

// OIDs of PostgreSQL's built-in types that this package names.
const (
	oidBool                  uint32 = 16
	oidBytea                 uint32 = 17
	oidChar                  uint32 = 18
	oidName                  uint32 = 19
	oidInt8                  uint32 = 20
	oidInt2                  uint32 = 21
	oidInt2Vector            uint32 = 22
	oidInt4                  uint32 = 23
	oidRegproc               uint32 = 24
	oidText                  uint32 = 25
	oidOID                   uint32 = 26
	oidTID                   uint32 = 27
	oidXID                   uint32 = 28
	oidOIDVector             uint32 = 30
	oidJSON                  uint32 = 114
	oidXML                   uint32 = 142
	oidPgNodeTree            uint32 = 194
	oidFloat4                uint32 = 700
	oidFloat8                uint32 = 701
	oidUnknown               uint32 = 705
	oidCharArray             uint32 = 1002
	oidACLItem               uint32 = 1033
	oidBpchar                uint32 = 1042
	oidBit                   uint32 = 1560
	oidVarchar               uint32 = 1043
	oidDate                  uint32 = 1082
	oidTime                  uint32 = 1083
	oidTimestamp             uint32 = 1114
	oidTimestamptz           uint32 = 1184
	oidInterval              uint32 = 1186
	oidTimetz                uint32 = 1266
	oidNumeric               uint32 = 1700
	oidRegprocedure          uint32 = 2202
	oidRegoper               uint32 = 2203
	oidRegoperator           uint32 = 2204
	oidRegclass              uint32 = 2205
	oidRegtype               uint32 = 2206
	oidRecord                uint32 = 2249
	oidAny                   uint32 = 2276
	oidAnyArray              uint32 = 2277
	oidVoid                  uint32 = 2278
	oidAnyElement            uint32 = 2283
	oidAnyNonArray           uint32 = 2776
	oidUUID                  uint32 = 2950
	oidAnyEnum               uint32 = 3500
	oidJSONB                 uint32 = 3802
	oidRegrole               uint32 = 4096
	oidRegnamespace          uint32 = 4089
	oidRegcollation          uint32 = 4191
	oidAnyCompatible         uint32 = 5077
	oidAnyCompatibleArray    uint32 = 5078
	oidAnyCompatibleNonArray uint32 = 5079
	oidTextArray             uint32 = 1009
	oidInt4Array             uint32 = 1007
	oidInt8Array             uint32 = 1016
	oidInt2Array             uint32 = 1005
	oidNameArray             uint32 = 1003
	oidOIDArray              uint32 = 1028
)

// builtin is PostgreSQL's catalogue of the version that the engine speaks for, see ServerVersion.
var builtin = pgcatalog.Of(15)

// class is how values of a type are held by SQLite.
type class uint8

const (
	classNone     class = iota
	classInt            // INTEGER, ordered as the type is
	classFloat          // REAL, never NaN
	classText           // TEXT, valid UTF-8 without NUL, compared as bytes
	classBlob           // BLOB, compared as bytes
	classNumeric        // TEXT as numeric_out prints it, compared by the collation cleave_numeric
	classBpchar         // TEXT padded to its length, compared without trailing blanks
	classJSON           // TEXT, not comparable
	classInterval       // BLOB of 16 bytes, not comparable, not storable
	classArray          // TEXT as array_out prints it, not comparable
	classVoid           // empty TEXT
)

func classOf(oid uint32) class {
	switch oid {
	case oidBool, oidInt2, oidInt4, oidInt8, oidOID, oidXID, oidTID, oidDate, oidTime, oidTimestamp, oidTimestamptz,
		oidRegclass, oidRegtype, oidRegproc, oidRegprocedure, oidRegoper, oidRegoperator, oidRegrole, oidRegnamespace, oidRegcollation:
		return classInt
	case oidFloat8, oidFloat4:
		return classFloat
	case oidText, oidVarchar, oidName, oidChar, oidPgNodeTree:
		return classText
	case oidUUID, oidBytea:
		return classBlob
	case oidNumeric:
		return classNumeric
	case oidBpchar:
		return classBpchar
	case oidJSON, oidJSONB, oidACLItem:
		return classJSON
	case oidInterval:
		return classInterval
	case oidVoid, oidUnknown:
		return classVoid
	case oidInt2Vector, oidOIDVector:
		return classArray
	}
	if t := builtin.Type(oid); t != nil && t.Category == 'A' {
		switch classOf(t.Elem) {
		case classNone, classInterval, classVoid, classArray:
			return classNone
		}
		return classArray
	}
	return classNone
}

// comparable reports whether SQLite's own =, <, ORDER BY, GROUP BY and UNIQUE,
// with the collation of collate, are PostgreSQL's for the type.
func isComparable(oid uint32) bool {
	switch classOf(oid) {
	case classInt, classFloat, classText, classBlob, classNumeric:
		return true
	}
	return false
}

// storable reports whether a table's column may have the type.
func storable(oid uint32) bool {
	switch oid {
	case oidBool, oidInt2, oidInt4, oidInt8, oidText, oidVarchar, oidBpchar, oidUUID, oidBytea, oidDate, oidTime,
		oidTimestamp, oidTimestamptz, oidNumeric, oidFloat8, oidJSON, oidJSONB:
		return true
	}
	return false
}

// typeNames are the names that format_type prints where they differ from typname.
var typeNames = map[uint32]string{
	oidBool: "boolean", oidInt2: "smallint", oidInt4: "integer", oidInt8: "bigint", oidFloat4: "real",
	oidFloat8: "double precision", oidVarchar: "character varying", oidBpchar: "character",
	oidTime: "time without time zone", oidTimetz: "time with time zone",
	oidTimestamp: "timestamp without time zone", oidTimestamptz: "timestamp with time zone", oidChar: `"char"`,
	oidBit: "bit", 1562: "bit varying", oidAny: `"any"`,
}

// noModifier says that format_type was given no modifier, which is not the modifier -1:
// the standard's name "character" means character(1), so with -1 the type's own name is told.
const noModifier = math.MinInt32

// formatType is PostgreSQL's format_type(oid, typmod).
func formatType(oid uint32, mod int32) string {
	t := builtin.Type(oid)
	if t == nil {
		if oid == 0 {
			return "-"
		}
		return "???"
	}
	if t.Category == 'A' && t.Elem != 0 && t.Size == -1 && t.Storage != "p" {
		return formatType(t.Elem, mod) + "[]"
	}
	name, ok := typeNames[oid]
	if !ok {
		name = t.Name
	}
	if mod < 0 {
		switch {
		case mod == noModifier:
		case oid == oidBpchar:
			return t.Name
		case oid == oidBit:
			return quoteIdent(t.Name) // "bit" is a keyword
		}
		return name
	}
	switch oid {
	case oidVarchar, oidBpchar:
		return name + "(" + strconv.Itoa(int(mod)-4) + ")"
	case oidNumeric:
		p, s := numericTypmod(mod)
		return fmt.Sprintf("numeric(%d,%d)", p, s)
	case oidTime:
		return fmt.Sprintf("time(%d) without time zone", mod)
	case oidTimestamp:
		return fmt.Sprintf("timestamp(%d) without time zone", mod)
	case oidTimestamptz:
		return fmt.Sprintf("timestamp(%d) with time zone", mod)
	}
	return name
}

// typeName is the name in error messages.
func typeName(oid uint32) string { return formatType(oid, noModifier) }

func numericTypmod(mod int32) (precision, scale int) {
	mod -= 4
	return int(mod>>16) & 0xffff, int((mod&0x7ff)^1024) - 1024
}

func makeNumericTypmod(precision, scale int) int32 {
	return int32(precision<<16|(scale&0x7ff)) + 4
}

func quoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func quoteText(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }
