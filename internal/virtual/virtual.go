// Package virtual says what the schema "cleave" has: its tables with their columns, and its functions with
// their signatures. It is data and no more, so that the gateway, which answers for these objects, and what shows
// them in the catalogue (planner, engine/sqlite) say the same.
package virtual

import "strings"

// Schema is the schema whose tables and functions the router answers.
const Schema = "cleave"

// The types of columns and parameters, by PostgreSQL's numbers.
const (
	Bool        = 16
	Int8        = 20
	Int4        = 23
	Text        = 25
	JSON        = 114
	Float8      = 701
	TextArray   = 1009
	Timestamptz = 1184
	Any         = 2276
	AnyElement  = 2283
	AnyArray    = 2277
	UUID        = 2950
)

var typeNames = map[int]string{Bool: "boolean", Int8: "bigint", Int4: "integer", Text: "text", JSON: "json", Float8: "double precision", TextArray: "text[]",
	Timestamptz: "timestamp with time zone", Any: `"any"`, AnyElement: "anyelement", AnyArray: "anyarray", UUID: "uuid"}

var typeWords = map[string]int{"bool": Bool, "bigint": Int8, "int": Int4, "text": Text, "json": JSON, "float": Float8, "text[]": TextArray, "timestamptz": Timestamptz,
	"any": Any, "anyelement": AnyElement, "anyarray": AnyArray, "uuid": UUID}

// TypeName is a type's name as PostgreSQL writes it.
func TypeName(oid int) string { return typeNames[oid] }

// Column is a column of a table.
type Column struct {
	Name string
	Type int
}

// Table is a table of the schema. For the catalogue it is a view: it cannot be written to.
type Table struct {
	OID     int
	Name    string
	Columns []Column
	About   string // the comment that \dv+ shows
}

// Param is a parameter of a function.
type Param struct {
	Column
	Optional, Variadic bool
}

// nothing is the default of a parameter that may be left out, as PostgreSQL writes it.
func (p *Param) nothing() string {
	if p.Type == AnyElement {
		return "NULL::unknown"
	}
	return "NULL::" + typeNames[p.Type]
}

// Function is a function of the schema.
type Function struct {
	OID    int
	Name   string
	Params []Param
	Result int
	About  string // the comment that \df+ shows
}

// The numbers of the objects. PostgreSQL keeps 8000 to 9999 for those who develop it: no release has
// an object there, and no server gives such a number to one that is made.
const (
	schemaOID     = 9000
	firstTable    = 9001
	firstFunction = 9101
)

// Objects reports whether a number is that of an object of the schema.
func Objects(oid int) bool {
	return oid == schemaOID || oid >= firstTable && oid < firstTable+len(Tables) || oid >= firstFunction && oid < firstFunction+len(Functions)
}

// OIDOf is the number of a schema, relation or function as a text names it for a type like regclass, 0 if there is none.
func OIDOf(regtype, name string) int {
	if regtype == "regnamespace" && name == Schema {
		return schemaOID
	}
	name, ok := strings.CutPrefix(name, Schema+".")
	switch {
	case ok && regtype == "regclass":
		for _, t := range Tables {
			if t.Name == name {
				return t.OID
			}
		}
	case ok && regtype == "regproc":
		for _, f := range Functions {
			if f.Name == name {
				return f.OID
			}
		}
	}
	return 0
}

// Arguments is a function's list of parameters as pg_get_function_arguments gives it, and with identity
// as pg_get_function_identity_arguments does.
func (f *Function) Arguments(identity bool) string {
	var out []string
	for _, p := range f.Params {
		s := p.Name + " " + typeNames[p.Type]
		if p.Name == "table" { // a reserved word
			s = `"table" ` + typeNames[p.Type]
		}
		if p.Variadic {
			s = "VARIADIC " + s
		}
		if p.Optional && !identity {
			s += " DEFAULT " + p.nothing()
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// Described is what a function of the catalogue says of the schema's objects, by their numbers; ok is false for
// one that says nothing of them.
func Described(function string) (texts map[int]string, ok bool) {
	texts = map[int]string{}
	if function == "obj_description" {
		texts[schemaOID] = schemaAbout
		for _, t := range Tables {
			texts[t.OID] = t.About
		}
	}
	for i := range Functions {
		f := &Functions[i]
		switch function {
		case "pg_get_function_arguments":
			texts[f.OID] = f.Arguments(false)
		case "pg_get_function_identity_arguments":
			texts[f.OID] = f.Arguments(true)
		case "pg_get_function_result":
			texts[f.OID] = typeNames[f.Result]
		case "obj_description":
			texts[f.OID] = f.About
		}
	}
	return texts, len(texts) > 0
}

const schemaAbout = "the router's own views and functions"

func table(i int, name, about, columns string) Table {
	t := Table{OID: firstTable + i, Name: name, About: about}
	for c := range strings.SplitSeq(columns, ",") {
		word, typ, _ := strings.Cut(strings.TrimSpace(c), " ")
		t.Columns = append(t.Columns, Column{word, typed(typ)})
	}
	return t
}

func typed(word string) int {
	oid, ok := typeWords[word]
	if !ok {
		panic("virtual: the type " + word + " is unknown")
	}
	return oid
}

// function reads a list of parameters: "name type", with "?" behind it if it may be left out, and "..." if any number may follow.
func function(i int, name, result, params, about string) Function {
	f := Function{OID: firstFunction + i, Name: name, Result: typed(result), About: about}
	if params == "" {
		return f
	}
	for c := range strings.SplitSeq(params, ",") {
		word, typ, _ := strings.Cut(strings.TrimSpace(c), " ")
		p := Param{}
		typ, p.Optional = strings.CutSuffix(typ, "?")
		typ, p.Variadic = strings.CutSuffix(typ, "...")
		p.Column = Column{word, typed(typ)}
		f.Params = append(f.Params, p)
	}
	return f
}
