package keyspace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// typeInfo describes a Type: its names and where its values are kept.
type typeInfo struct {
	name string // as format_type prints it
	oid  uint32 // pg_type.dat
	cast string // how SQL names it whatever the search path
	str  bool   // kept in Value.str
}

var typeInfos = [...]typeInfo{
	Int2:        {name: "smallint", oid: 21, cast: "smallint"},
	Int4:        {name: "integer", oid: 23, cast: "integer"},
	Int8:        {name: "bigint", oid: 20, cast: "bigint"},
	Text:        {name: "text", oid: 25, cast: "pg_catalog.text", str: true},
	Varchar:     {name: "character varying", oid: 1043, cast: "character varying", str: true},
	UUID:        {name: "uuid", oid: 2950, cast: "pg_catalog.uuid", str: true},
	Date:        {name: "date", oid: 1082, cast: "pg_catalog.date"},
	Timestamp:   {name: "timestamp without time zone", oid: 1114, cast: "timestamp without time zone"},
	Timestamptz: {name: "timestamp with time zone", oid: 1184, cast: "timestamp with time zone"},
	Bytea:       {name: "bytea", oid: 17, cast: "pg_catalog.bytea", str: true},
	Bool:        {name: "boolean", oid: 16, cast: "boolean"},
}

// Types returns every type that a shard key column can have.
func Types() []Type {
	ts := make([]Type, 0, len(typeInfos)-1)
	for t := Int2; int(t) < len(typeInfos); t++ {
		ts = append(ts, t)
	}
	return ts
}

// Valid reports whether t is one of the types.
func (t Type) Valid() bool { return t >= Int2 && int(t) < len(typeInfos) }

// String returns the name that PostgreSQL's format_type prints: "bigint",
// "character varying", ...
func (t Type) String() string {
	if !t.Valid() {
		return "Type(" + strconv.Itoa(int(t)) + ")"
	}
	return typeInfos[t].name
}

// ShortName returns the type's one-word name, as pg_type spells it: "int8",
// "varchar", "timestamptz", ... [ParseType] reads it back.
func (t Type) ShortName() string {
	switch t {
	case Int2:
		return "int2"
	case Int4:
		return "int4"
	case Int8:
		return "int8"
	case Varchar:
		return "varchar"
	case Timestamp:
		return "timestamp"
	case Timestamptz:
		return "timestamptz"
	case Bool:
		return "bool"
	default:
		return t.String()
	}
}

// OID returns the type's object identifier in pg_type, 0 for no type.
func (t Type) OID() uint32 {
	if !t.Valid() {
		return 0
	}
	return typeInfos[t].oid
}

// IsInteger reports whether t is smallint, integer or bigint.
func (t Type) IsInteger() bool { return t >= Int2 && t <= Int8 }

// IsText reports whether t is text or character varying.
func (t Type) IsText() bool { return t == Text || t == Varchar }

// TypeByOID returns the type with an object identifier of pg_type, false if no
// shard key column can have it.
func TypeByOID(oid uint32) (Type, bool) {
	for t := Int2; int(t) < len(typeInfos); t++ {
		if typeInfos[t].oid == oid {
			return t, true
		}
	}
	return 0, false
}

// MarshalText returns the name, so that JSON holds names.
func (t Type) MarshalText() ([]byte, error) {
	if !t.Valid() {
		return nil, fmt.Errorf("keyspace: %s cannot be stored", t)
	}
	return []byte(typeInfos[t].name), nil
}

// UnmarshalText reads a name as [ParseType] does.
func (t *Type) UnmarshalText(b []byte) error {
	p, err := ParseType(string(b))
	if err != nil {
		return err
	}
	*t = p
	return nil
}

// typeNames are the spellings that PostgreSQL's grammar and catalogue know,
// without modifier.
var typeNames = map[string]Type{
	"smallint": Int2, "int2": Int2,
	"integer": Int4, "int": Int4, "int4": Int4,
	"bigint": Int8, "int8": Int8,
	"text":    Text,
	"varchar": Varchar, "character varying": Varchar, "char varying": Varchar,
	"national character varying": Varchar, "national char varying": Varchar, "nchar varying": Varchar,
	"uuid": UUID, "date": Date,
	"timestamp": Timestamp, "timestamp without time zone": Timestamp,
	"timestamptz": Timestamptz, "timestamp with time zone": Timestamptz,
	"bytea":   Bytea,
	"boolean": Bool, "bool": Bool,
}

// refusedNames says why a known type cannot be a shard key.
var refusedNames = map[string][2]string{}

func init() {
	refuse := func(why, hint string, names ...string) {
		for _, n := range names {
			refusedNames[n] = [2]string{why, hint}
		}
	}
	refuse("equal numbers have several forms (0 and -0, NaN), so the position would not follow from the key",
		"Use bigint, or text for decimal numbers.", "real", "float4", "double precision", "float8", "float")
	refuse("equal numbers have several forms (1 and 1.0), so the position would not follow from the key",
		"Use bigint, or text for decimal numbers.", "numeric", "decimal", "dec", "money")
	refuse("its values are compared without their trailing spaces",
		"Use text or character varying.", "character", "char", "bpchar", "nchar", "national character", "national char")
	refuse("its equality is not that of the bytes", "Use text, and store lower(value).", "citext")
	refuse("it is a column definition, not a type, and its numbers would repeat across shards",
		"Use smallint, integer or bigint.", "smallserial", "serial2", "serial", "serial4", "bigserial", "serial8")
	refuse("equal values have several forms", "Use bigint or text.", "interval", "time with time zone", "timetz", "json", "jsonb", "xml")
	refuse("its order and hash are not proven equal in router and shard yet", "Use text, bigint or bytea.",
		"time", "time without time zone", "inet", "cidr", "macaddr", "macaddr8", "oid", "name", `"char"`, "bit", "bit varying", "varbit")
}

// Modifier is the number in varchar(n), timestamp(p) and timestamptz(p);
// NoModifier when there is none.
type Modifier int

// NoModifier stands for a type without modifier.
const NoModifier Modifier = -1

// ParseType reads a type name in any of PostgreSQL's spellings, in any case,
// with or without "pg_catalog." and with or without a modifier, which is
// dropped: see [ParseColumnType]. Types that cannot be a shard key are refused
// with 0A000 and the reason.
func ParseType(name string) (Type, error) {
	t, _, err := ParseColumnType(name)
	return t, err
}

// ParseColumnType is [ParseType] that returns the modifier as well. A value that
// is stored in a column with a modifier is changed by it: see [Modifier.Coerce].
func ParseColumnType(name string) (Type, Modifier, error) {
	plain, mod, ok := splitModifier(name)
	t, known := typeNames[plain]
	if ok && known {
		switch {
		case mod == NoModifier:
			return t, mod, nil
		case t == Varchar && mod >= 1 && mod <= 10485760: // MaxAttrSize, htup_details.h
			return t, mod, nil
		case (t == Timestamp || t == Timestamptz) && mod >= 0 && mod <= 6:
			return t, mod, nil
		}
		return 0, NoModifier, sqlstate.New(sqlstate.InvalidParameterValue, "the type %q has a modifier that it cannot have", name).
			WithHint("leave the number in parentheses out")
	}
	if why, known := refusedNames[plain]; known {
		return 0, NoModifier, sqlstate.Refusal("CLV-0104", "a column of type %s cannot be a shard key: %s", strings.TrimSpace(name), why[0]).
			WithHint("%s", why[1])
	}
	return 0, NoModifier, sqlstate.Refusal("CLV-0105", "a column of type %s cannot be a shard key: its hash and order are not known to the router", strings.TrimSpace(name)).
		WithHint("Use smallint, integer, bigint, text, character varying, uuid, date, timestamp, timestamptz, bytea or boolean.")
}

// splitModifier lower-cases a name, takes "pg_catalog." and one number in
// parentheses out, and makes each run of spaces one.
func splitModifier(name string) (plain string, mod Modifier, ok bool) {
	mod = NoModifier
	s := strings.ToLower(strings.TrimSpace(name))
	s = strings.TrimPrefix(s, "pg_catalog.")
	if i := strings.IndexByte(s, '('); i >= 0 {
		j := strings.IndexByte(s, ')')
		if j < i {
			return s, mod, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(s[i+1:j]), 10, 31)
		rest := s[j+1:]
		s = s[:i] + " " + rest
		if err != nil {
			return strings.Join(strings.Fields(s), " "), mod, false
		}
		mod = Modifier(n)
	}
	return strings.Join(strings.Fields(s), " "), mod, true
}
