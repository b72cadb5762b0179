package shardmap

import (
	"reflect"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// MaxFunctions bounds the functions that a map knows, MaxDefinitionBytes the text
// of one view.
const (
	MaxFunctions       = 20_000
	MaxDefinitionBytes = 1 << 20
)

// View is a view of the user's. Its definition is in the map so that a statement
// that reads it can be planned as if its query had been written there.
type View struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// Definition is the view's query, in which every name outside pg_catalog has
	// its schema, and every output column its name.
	Definition string `json:"definition"`
}

// Function is a function of the user's, or of an extension, that is known to read
// no table: its calls give the same on every shard. All functions of the name are
// such ones.
type Function struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// Volatile: one of the functions of that name is.
	Volatile bool `json:"volatile,omitempty"`
	// Clocked: one of them uses the time at which its transaction began. ClockedBelow: a call with
	// fewer arguments may do so in the default of a parameter.
	Clocked      bool `json:"clocked,omitempty"`
	ClockedBelow int  `json:"clocked_below,omitempty"`
	// Casts: one of them casts texts to what may be times, which may be words for the time: 1 its arguments,
	// 2 parts of them, 3 texts that it makes (it is Clocked then).
	Casts int `json:"casts,omitempty"`
	// Kind is "f" for a plain function, "a" for an aggregate, "w" for a window
	// function, "p" for a procedure, "t" for a trigger's function, "u" for one of which nothing
	// is known but that a statement may call it: by the name of one of PostgreSQL's own, or as x.name.
	Kind string `json:"kind"`
}

// Declaration says what a table of that name becomes when a CREATE TABLE without
// options of Cleave's makes it: for schemas that other programs write.
type Declaration struct {
	Schema   string    `json:"schema"`
	Name     string    `json:"name"`
	Kind     TableKind `json:"kind"` // Sharded or Reference
	ShardKey []string  `json:"shard_key,omitempty"`
	Keyspace string    `json:"keyspace,omitempty"` // "": the hash keyspace of the key's types
}

// QualifiedName returns schema.name for people, as [Table.QualifiedName].
func (d *Declaration) QualifiedName() string {
	return quoteIdentifier(d.Schema) + "." + quoteIdentifier(d.Name)
}

// Declaration returns what is declared of a table, nil if nothing is.
func (s *Snapshot) Declaration(schema, name string) *Declaration {
	for i := range s.state.Declarations {
		if d := &s.state.Declarations[i]; d.Schema == schema && d.Name == name {
			return d
		}
	}
	return nil
}

// PutDeclaration adds a declaration or replaces the one of its table.
func (s *State) PutDeclaration(d Declaration) {
	d.ShardKey = slices.Clone(d.ShardKey)
	s.Declarations = put(s.Declarations, d, func(o *Declaration) bool { return o.Schema == d.Schema && o.Name == d.Name })
}

// DropDeclaration removes a declaration and reports whether it was there.
func (s *State) DropDeclaration(schema, name string) bool {
	var ok bool
	s.Declarations, ok = drop(s.Declarations, func(o *Declaration) bool { return o.Schema == schema && o.Name == name })
	s.Declarations = absent(s.Declarations)
	return ok
}

// QualifiedName returns schema.name for people, as [Table.QualifiedName].
func (v *View) QualifiedName() string {
	return quoteIdentifier(v.Schema) + "." + quoteIdentifier(v.Name)
}

// QualifiedName returns schema.name for people, as [Table.QualifiedName].
func (f *Function) QualifiedName() string {
	return quoteIdentifier(f.Schema) + "." + quoteIdentifier(f.Name)
}

// View returns the view of that schema and name. It does not allocate.
func (s *Snapshot) View(schema, name string) (*View, bool) {
	v, ok := s.views[tableName{schema, name}]
	return v, ok
}

// Function returns what is known of the functions of that schema and name. It
// does not allocate.
func (s *Snapshot) Function(schema, name string) (*Function, bool) {
	f, ok := s.functions[tableName{schema, name}]
	return f, ok
}

// Unpromised reports whether a function of that name, in whatever schema, is not known to give the same for the same
// arguments at any time and on any shard. It does not allocate.
func (s *Snapshot) Unpromised(name string) bool { return s.unpromised[name] }

// indexObjects validates views and functions.
func (s *Snapshot) indexObjects() *sqlstate.Error {
	s.views = make(map[tableName]*View, len(s.state.Views))
	for i := range s.state.Views {
		v := &s.state.Views[i]
		if err := checkIdentifier("a schema", v.Schema); err != nil {
			return err
		}
		if err := checkIdentifier("a view", v.Name); err != nil {
			return err
		}
		name := tableName{v.Schema, v.Name}
		if s.views[name] != nil || s.tables[name] != nil {
			return invalid(sqlstate.DuplicateTable, "relation %s is there twice", v.QualifiedName())
		}
		if v.Definition == "" || len(v.Definition) > MaxDefinitionBytes {
			return invalid(sqlstate.ProgramLimitExceeded, "the definition of view %s has %d bytes, it may have 1 to %d", v.QualifiedName(), len(v.Definition), MaxDefinitionBytes)
		}
		s.views[name] = v
	}
	s.functions = make(map[tableName]*Function, len(s.state.Functions))
	s.unpromised = map[string]bool{}
	for i := range s.state.Functions {
		f := &s.state.Functions[i]
		if err := checkIdentifier("a schema", f.Schema); err != nil {
			return err
		}
		if err := checkIdentifier("a function", f.Name); err != nil {
			return err
		}
		if s.functions[tableName{f.Schema, f.Name}] != nil {
			return invalid(sqlstate.DuplicateObject, "function %s is there twice", f.QualifiedName())
		}
		switch f.Kind {
		case "f", "a", "w", "p", "t", "u":
		default:
			return invalid(sqlstate.InvalidObjectDefinition, "function %s has the unknown kind %q", f.QualifiedName(), clip(f.Kind))
		}
		s.functions[tableName{f.Schema, f.Name}] = f
		if f.Kind == "u" || (f.Kind == "f" || f.Kind == "a") && (f.Volatile || f.Clocked || f.Casts > 0) {
			s.unpromised[f.Name] = true
		}
	}
	for i := range s.state.Declarations {
		d := &s.state.Declarations[i]
		if err := checkIdentifier("a schema", d.Schema); err != nil {
			return err
		}
		if err := checkIdentifier("a table", d.Name); err != nil {
			return err
		}
		if (d.Kind != Sharded || len(d.ShardKey) == 0) && (d.Kind != Reference || len(d.ShardKey) > 0 || d.Keyspace != "") {
			return invalid(sqlstate.InvalidObjectDefinition, "table %s is declared neither with a shard key nor as a reference table", d.QualifiedName())
		}
		if s.Declaration(d.Schema, d.Name) != d {
			return invalid(sqlstate.DuplicateObject, "table %s is declared twice", d.QualifiedName())
		}
	}
	return nil
}

func sameObjects(prev, next *Snapshot) bool {
	return slices.Equal(prev.state.Views, next.state.Views) && slices.Equal(prev.state.Functions, next.state.Functions) && prev.state.FunctionsRead == next.state.FunctionsRead && prev.state.Acting == next.state.Acting &&
		reflect.DeepEqual(prev.state.Declarations, next.state.Declarations)
}

func (d *Declaration) text() string {
	t := string(d.Kind)
	if d.Kind == Sharded {
		t += " by (" + strings.Join(d.ShardKey, ", ") + ")"
	}
	if d.Keyspace != "" {
		t += " in keyspace " + d.Keyspace
	}
	return t
}

func diffObjects(a, b *Snapshot) []Difference {
	out := diffNamed(ViewDiffers, a.state.Views, b.state.Views, (*View).QualifiedName, func(*View) string { return "" })
	out = append(out, diffNamed(FunctionDiffers, a.state.Functions, b.state.Functions, (*Function).QualifiedName, func(*Function) string { return "" })...)
	out = append(out, diffNamed(DeclarationDiffers, a.state.Declarations, b.state.Declarations, (*Declaration).QualifiedName, (*Declaration).text)...)
	return append(out, diffNamed(ConstraintDiffers, a.state.Constraints, b.state.Constraints, func(c *Constraint) string { return c.Name }, (*Constraint).Text)...)
}

// diffNamed compares two lists by the names of their elements.
func diffNamed[T any](kind DifferenceKind, a, b []T, name, text func(*T) string) []Difference {
	byName := func(list []T) map[string]*T {
		m := make(map[string]*T, len(list))
		for i := range list {
			m[name(&list[i])] = &list[i]
		}
		return m
	}
	before, after := byName(a), byName(b)
	var out []Difference
	for _, n := range union(before, after) {
		was, is := before[n], after[n]
		if reflect.DeepEqual(was, is) {
			continue
		}
		d := Difference{Kind: kind, Action: action(was != nil, is != nil), Name: n}
		if was != nil {
			d.From = text(was)
		}
		if is != nil {
			d.To = text(is)
		}
		out = append(out, d)
	}
	return out
}
