package datetime

import (
	"maps"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// Words says what reads a text with a word.
type Words uint8

// What a type, or a call, does with a word in a text.
const (
	None       Words = iota
	Alone            // a time
	Inside           // an array, a range or a multirange of times
	OfUserType       // perhaps: a user-defined type
	InJSON           // a record made of JSON
	InXML            // rows made of XML
	InCall           // perhaps: a user-defined function that casts its arguments
	InParts          // or parts of them
)

// CastReads is that of the type of a cast.
func CastReads(t *pg.TypeName, hidden bool) Words {
	switch ReadingOfType(t, hidden) {
	case AsText:
		return None
	case AsTime:
		return Alone
	}
	names := sqltree.Strings(t.GetNames())
	if len(names) == 1 && serverdependent.WithoutOID[names[0]] && !slices.Contains(slices.Collect(maps.Values(TypeNames)), names[0]) && !strings.HasSuffix(names[0], "range") {
		return None // nobody calls a type of times of his own so
	}
	if len(names) == 0 || t.PctType || !(len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !hidden) {
		return OfUserType
	}
	switch name := names[len(names)-1]; {
	case slices.Contains(slices.Collect(maps.Values(TypeNames)), name), name == "tsrange", name == "tstzrange", name == "daterange",
		name == "tsmultirange", name == "tstzmultirange", name == "datemultirange":
		return Inside
	case strings.HasPrefix(name, "reg"), name == "int4multirange", name == "int8multirange", name == "nummultirange", name == "pg_lsn", name == "tid", name == "xid", name == "xid8", name == "cid":
		return None
	}
	return OfUserType
}

// CallReads is what a call of a type's name reads, by the name alone.
func CallReads(f *pg.FuncCall) Words {
	names := sqltree.Strings(f.Funcname)
	if len(f.Args) != 1 || len(names) > 2 || len(names) == 2 && names[0] != "pg_catalog" || f.Over != nil || f.AggStar {
		return None
	}
	switch name := names[len(names)-1]; name {
	case "date", "timestamp", "timestamptz", "time", "timetz":
		return Alone
	case "tsrange", "tstzrange", "daterange", "tsmultirange", "tstzmultirange", "datemultirange":
		return Inside
	}
	return None
}

// A string that PostgreSQL reads as a time may be a word for the time of the
// transaction: WHERE at < 'now', VALUES ('today'). Each shard has a transaction of its
// own, so that where the string's type is certain it becomes a cast, which is known to
// depend on the time (ClockLiteral).

// ReadingOfType is that of a type by its name.
func ReadingOfType(n *pg.TypeName, hidden bool) Reading {
	names := sqltree.Strings(n.GetNames())
	if len(names) == 0 || n.Setof || n.PctType || !(len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !hidden) {
		return Unsure
	}
	switch name := names[len(names)-1]; {
	case strings.HasSuffix(name, "range") && name != "int4range" && name != "int8range" && name != "numrange":
	case slices.Contains(slices.Collect(maps.Values(TypeNames)), name):
		if len(n.ArrayBounds) == 0 {
			return AsTime
		}
	case serverdependent.WithoutOID[name] || sqltree.SerialTypes[name] != "" || name == "jsonpath" || name == "regclass":
		return AsText
	}
	return Unsure
}

// HasSpecialIn reports whether a tree has one of the words as a string of its own.
func HasSpecialIn(m proto.Message) bool {
	found := false
	sqltree.Inspect(m, func(m proto.Message) bool {
		if c, ok := m.(*pg.A_Const); ok && c.GetSval() != nil {
			found = found || HasSpecial(c.GetSval().Sval)
		}
		return !found
	})
	return found
}
