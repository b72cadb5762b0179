package pgcatalog

import (
	_ "embed"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Oldest and Newest are the major versions that the catalogue knows, with all between them.
const (
	Oldest = 14
	Newest = 18
)

// Versions are the major versions in which a row is in the catalogue as it stands.
type Versions struct{ First, Last uint8 }

// OIDs from 12000 on are given by initdb, and depend on the machine: rows that have such a one have 0 here.

// Type is a row of pg_type: all of pg_catalog but row types and arrays of these.
type Type struct {
	Versions
	OID        uint32
	Name       string
	Size       int16
	Kind       byte // typtype
	Category   byte
	Preferred  bool
	Elem       uint32
	Array      uint32
	In, Out    uint32
	Collation  uint32
	Align      string
	Storage    string
	ByValue    bool
	Subtype    uint32 // of a range its subtype, of a multirange its range
	Multirange uint32 // of a range
}

// Function is a row of pg_proc, of schema pg_catalog.
type Function struct {
	Versions
	Name     string
	Args     []uint32
	OID      uint32
	Kind     byte // f, a (aggregate), w (window function), p (procedure)
	Volatile byte // i, s, v
	Strict   bool
	Set      bool
	Result   uint32
	Variadic uint32 // the type of the elements that the last parameter takes any number of
	Defaults int
}

// Operator is a row of pg_operator.
type Operator struct {
	Versions
	Name              string
	Left, Right       uint32 // Left is 0 for a prefix operator
	OID               uint32
	Result            uint32
	Function          uint32
	Commutes, Negates uint32
}

// Cast is a row of pg_cast.
type Cast struct {
	Versions
	Source, Target uint32
	Function       uint32
	Context        byte // e, a, i
	Method         byte // f, b, i
}

// Relation is a table or view of pg_catalog or information_schema.
type Relation struct {
	Versions
	Schema, Name string
	OID          uint32
	Kind         byte // relkind
	columns      string
}

// Column is a column of a relation. Its type is not a domain but what the domain is over.
type Column struct {
	Name    string
	Type    uint32
	Mod     int32
	NotNull bool
}

var (
	//go:embed data/types.tsv
	typesText string
	//go:embed data/functions.tsv
	functionsText string
	//go:embed data/operators.tsv
	operatorsText string
	//go:embed data/casts.tsv
	castsText string
	//go:embed data/relations.tsv
	relationsText string
)

// Catalog is the catalogue of one major version, or of all: then it has a row
// for each form that something has in one of them. The zero value is of all.
type Catalog struct{ version uint8 }

// Of returns the catalogue of a major version from Oldest to Newest.
func Of(version int) Catalog { return Catalog{uint8(version)} }

func (c Catalog) has(v Versions) bool {
	return c.version == 0 || v.First <= c.version && c.version <= v.Last
}

// run yields the rows of the catalogue's version from a place on, for as long as they are of the same key.
func run[R any](c Catalog, rows []R, from int, same func(*R) bool, versions func(*R) Versions) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for i := from; i < len(rows) && same(&rows[i]); i++ {
			if c.has(versions(&rows[i])) && !yield(&rows[i]) {
				return
			}
		}
	}
}

func first[R any](rows iter.Seq[*R]) *R {
	for r := range rows {
		return r
	}
	return nil
}

func every[R any](*R) bool { return true }

func (t *Type) versions() Versions     { return t.Versions }
func (f *Function) versions() Versions { return f.Versions }
func (o *Operator) versions() Versions { return o.Versions }
func (k *Cast) versions() Versions     { return k.Versions }
func (r *Relation) versions() Versions { return r.Versions }

// Types yields all types, by OID.
func (c Catalog) Types() iter.Seq[*Type] {
	return run(c, types().rows, 0, every, (*Type).versions)
}

// Type returns the type of an OID, nil if there is none. Of several forms it is the first.
func (c Catalog) Type(oid uint32) *Type {
	t := types()
	from, ok := t.byOID[oid]
	if !ok {
		return nil
	}
	for i := int(from); i < len(t.rows) && t.rows[i].OID == oid; i++ {
		if c.has(t.rows[i].Versions) {
			return &t.rows[i]
		}
	}
	return nil
}

// TypeNamed returns the type of a name in pg_type.
func (c Catalog) TypeNamed(name string) *Type {
	if oid, ok := types().byName[name]; ok {
		return c.Type(oid)
	}
	return nil
}

// Functions yields the functions, aggregates and procedures of a name.
func (c Catalog) Functions(name string) iter.Seq[*Function] {
	rows := functions().rows
	from, _ := slices.BinarySearchFunc(rows, name, func(f Function, name string) int { return strings.Compare(f.Name, name) })
	return run(c, rows, from, func(f *Function) bool { return f.Name == name }, (*Function).versions)
}

// AllFunctions yields all functions, by name.
func (c Catalog) AllFunctions() iter.Seq[*Function] {
	return run(c, functions().rows, 0, every, (*Function).versions)
}

// Function returns the function of an OID.
func (c Catalog) Function(oid uint32) *Function {
	f := functions()
	return first(byOID(c, f.rows, f.byOID, oid, func(f *Function) uint32 { return f.OID }, (*Function).versions))
}

// Operators yields the operators of a name.
func (c Catalog) Operators(name string) iter.Seq[*Operator] {
	rows := operators()
	from, _ := slices.BinarySearchFunc(rows, name, func(o Operator, name string) int { return strings.Compare(o.Name, name) })
	return run(c, rows, from, func(o *Operator) bool { return o.Name == name }, (*Operator).versions)
}

// AllOperators yields all operators, by name.
func (c Catalog) AllOperators() iter.Seq[*Operator] {
	return run(c, operators(), 0, every, (*Operator).versions)
}

// Cast returns what pg_cast says of two types.
func (c Catalog) Cast(source, target uint32) *Cast {
	rows := casts()
	from, _ := slices.BinarySearchFunc(rows, castKey(source, target), func(k Cast, key uint64) int {
		switch have := castKey(k.Source, k.Target); {
		case have < key:
			return -1
		case have > key:
			return 1
		}
		return 0
	})
	return first(run(c, rows, from, func(k *Cast) bool { return k.Source == source && k.Target == target }, (*Cast).versions))
}

func castKey(source, target uint32) uint64 { return uint64(source)<<32 | uint64(target) }

// Casts yields all casts, by their types.
func (c Catalog) Casts() iter.Seq[*Cast] {
	return run(c, casts(), 0, every, (*Cast).versions)
}

// RelationForms yields the relation of a name: once for each form that it has in the versions.
func (c Catalog) RelationForms(schema, name string) iter.Seq[*Relation] {
	rows := relations()
	from, _ := slices.BinarySearchFunc(rows, [2]string{schema, name}, func(r Relation, key [2]string) int {
		if n := strings.Compare(r.Schema, key[0]); n != 0 {
			return n
		}
		return strings.Compare(r.Name, key[1])
	})
	return run(c, rows, from, func(r *Relation) bool { return r.Schema == schema && r.Name == name }, (*Relation).versions)
}

// Relation returns the relation of a name, in its first form.
func (c Catalog) Relation(schema, name string) *Relation { return first(c.RelationForms(schema, name)) }

// Relations yields all relations, by schema and name.
func (c Catalog) Relations() iter.Seq[*Relation] {
	return run(c, relations(), 0, every, (*Relation).versions)
}

// Columns yields the columns of a relation in their order.
func (r *Relation) Columns() iter.Seq[Column] {
	return func(yield func(Column) bool) {
		for text := r.columns; text != ""; {
			var one string
			one, text, _ = strings.Cut(text, " ")
			name, rest, _ := strings.Cut(one, ":")
			typ, rest, _ := strings.Cut(rest, ":")
			mod, null, _ := strings.Cut(rest, ":")
			if !yield(Column{Name: name, Type: uint32(number(typ)), Mod: int32(number(mod)), NotNull: null == "t"}) {
				return
			}
		}
	}
}

// Signature is the function's name with the types that it takes.
func (f *Function) Signature() string {
	b := make([]byte, 0, 64)
	b = append(append(b, f.Name...), '(')
	for i, a := range f.Args {
		if i > 0 {
			b = append(b, ',')
		}
		if t := (Catalog{}).Type(a); t != nil {
			b = append(b, t.Name...)
		}
	}
	return string(append(b, ')'))
}

// Each file is read when something in it is looked for first.
var (
	types     = sync.OnceValue(loadTypes)
	functions = sync.OnceValue(loadFunctions)
	operators = sync.OnceValue(loadOperators)
	casts     = sync.OnceValue(loadCasts)
	relations = sync.OnceValue(loadRelations)
)

type typeRows struct {
	rows   []Type
	byOID  map[uint32]int32
	byName map[string]uint32
}

func loadTypes() *typeRows {
	n := rowsOf(typesText)
	t := &typeRows{rows: make([]Type, 0, n), byOID: make(map[uint32]int32, n), byName: make(map[string]uint32, n)}
	for l := range linesOf(typesText) {
		t.rows = append(t.rows, Type{Versions: l.versions(), OID: l.oid(), Name: l.text(), Size: int16(l.number()), Kind: l.byte(), Category: l.byte(), Preferred: l.bool(),
			Elem: l.oid(), Array: l.oid(), In: l.oid(), Out: l.oid(), Collation: l.oid(), Align: l.text(), Storage: l.text(), ByValue: l.bool(), Subtype: l.oid(), Multirange: l.oid()})
		if r := &t.rows[len(t.rows)-1]; t.byName[r.Name] == 0 {
			t.byOID[r.OID], t.byName[r.Name] = int32(len(t.rows)-1), r.OID
		}
	}
	return t
}

type functionRows struct {
	rows  []Function
	byOID func() []int32
}

func loadFunctions() *functionRows {
	f := &functionRows{rows: make([]Function, 0, rowsOf(functionsText))}
	// One array for the parameters of all: a row has fewer than spaces in its list and one.
	args := make([]uint32, 0, strings.Count(functionsText, " ")+cap(f.rows))
	for l := range linesOf(functionsText) {
		row := Function{Versions: l.versions(), Name: l.text()}
		from := len(args)
		for list := l.text(); list != ""; {
			var one string
			one, list, _ = strings.Cut(list, " ")
			args = append(args, uint32(number(one)))
		}
		row.Args = args[from:len(args):len(args)]
		row.OID, row.Kind, row.Volatile, row.Strict, row.Set = l.oid(), l.byte(), l.byte(), l.bool(), l.bool()
		row.Result, row.Variadic, row.Defaults = l.oid(), l.oid(), int(l.number())
		f.rows = append(f.rows, row)
	}
	f.byOID = sync.OnceValue(func() []int32 { return ordered(f.rows, func(f *Function) uint32 { return f.OID }) })
	return f
}

func loadOperators() []Operator {
	rows := make([]Operator, 0, rowsOf(operatorsText))
	for l := range linesOf(operatorsText) {
		rows = append(rows, Operator{Versions: l.versions(), Name: l.text(), Left: l.oid(), Right: l.oid(), OID: l.oid(), Result: l.oid(), Function: l.oid(), Commutes: l.oid(), Negates: l.oid()})
	}
	return rows
}

func loadCasts() []Cast {
	rows := make([]Cast, 0, rowsOf(castsText))
	for l := range linesOf(castsText) {
		rows = append(rows, Cast{Versions: l.versions(), Source: l.oid(), Target: l.oid(), Function: l.oid(), Context: l.byte(), Method: l.byte()})
	}
	return rows
}

func loadRelations() []Relation {
	rows := make([]Relation, 0, rowsOf(relationsText))
	for l := range linesOf(relationsText) {
		rows = append(rows, Relation{Versions: l.versions(), Schema: l.text(), Name: l.text(), OID: l.oid(), Kind: l.byte(), columns: l.text()})
	}
	return rows
}

// ordered returns the places of rows by their OIDs.
func ordered[R any](rows []R, oid func(*R) uint32) []int32 {
	out := make([]int32, len(rows))
	for i := range out {
		out[i] = int32(i)
	}
	slices.SortFunc(out, func(a, b int32) int { return int(oid(&rows[a])) - int(oid(&rows[b])) })
	return out
}

// byOID yields the rows of an OID.
func byOID[R any](c Catalog, rows []R, places func() []int32, oid uint32, of func(*R) uint32, versions func(*R) Versions) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		list := places()
		from, _ := slices.BinarySearchFunc(list, oid, func(i int32, oid uint32) int { return int(of(&rows[i])) - int(oid) })
		for ; oid != 0 && from < len(list) && of(&rows[list[from]]) == oid; from++ {
			if r := &rows[list[from]]; c.has(versions(r)) && !yield(r) {
				return
			}
		}
	}
}

// line is what is not read yet of a row of the embedded text: fields between tabs.
type line struct{ rest string }

func rowsOf(text string) int { return strings.Count(text, "\n") }

func linesOf(text string) iter.Seq[*line] {
	return func(yield func(*line) bool) {
		var l line
		for text != "" {
			l.rest, text, _ = strings.Cut(text, "\n")
			if !strings.HasPrefix(l.rest, "# ") && !yield(&l) {
				return
			}
		}
	}
}

func (l *line) text() string {
	field, rest, _ := strings.Cut(l.rest, "\t")
	l.rest = rest
	return field
}

func (l *line) number() int64 { return number(l.text()) }
func (l *line) oid() uint32   { return uint32(l.number()) }
func (l *line) byte() byte    { return l.text()[0] }
func (l *line) bool() bool    { return l.text() == "t" }

func (l *line) versions() Versions {
	from, to, _ := strings.Cut(l.text(), "-")
	return Versions{uint8(number(from)), uint8(number(to))}
}

// number reads digits, as the text was made by TestMatchesServers.
func number(s string) int64 {
	digits := strings.TrimPrefix(s, "-")
	var n int64
	for i := range len(digits) {
		n = n*10 + int64(digits[i]-'0')
	}
	if len(digits) < len(s) {
		return -n
	}
	return n
}
