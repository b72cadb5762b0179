package catalog

import (
	"encoding/json"
	"sort"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
)

// Table is a table's definition with PostgreSQL's types, stored as JSON.
type Table struct {
	OID         uint32       `json:"oid"`
	Schema      string       `json:"schema"`
	Name        string       `json:"name"`
	Columns     []Column     `json:"columns"`
	Constraints []Constraint `json:"constraints,omitempty"`
	Indexes     []Index      `json:"indexes,omitempty"`
	Options     []string     `json:"options,omitempty"` // reloptions, name=value
	Comment     string       `json:"comment,omitempty"`
	Guard       *Guard       `json:"guard,omitempty"`
	View        *View        `json:"view,omitempty"`

	System *System `json:"-"` // a relation of pg_catalog or information_schema
	Static bool    `json:"-"` // a virtual table: readable only
	Viewed *View   `json:"-"` // View, of what is a view
	// Relation: it is a temporary relation of the conversation.
	Relation bool `json:"-"`
}

// Column is a column of a table. Num is its attnum, which is never used again once it is dropped.
type Column struct {
	Num     int16  `json:"num"`
	Name    string `json:"name"`
	Type    uint32 `json:"type"`
	Mod     int32  `json:"mod"`
	NotNull bool   `json:"not_null,omitempty"`
	Default string `json:"default,omitempty"` // PostgreSQL's text of the expression
	Comment string `json:"comment,omitempty"`
	Dropped bool   `json:"dropped,omitempty"`
	// LateNotNull marks a NOT NULL that SQLite holds as a CHECK.
	LateNotNull bool `json:"late_not_null,omitempty"`
	// Fill is SQLite's literal for rows written before the column was added.
	Fill string `json:"fill,omitempty"`
	// Sequence is the OID of the sequence that serial made.
	Sequence uint32 `json:"sequence,omitempty"`
	// Identity is 'a' (always) or 'd' (by default).
	Identity string `json:"identity,omitempty"`
}

// Constraint is a constraint of a table, NOT NULL apart: that is of the column.
type Constraint struct {
	OID      uint32  `json:"oid"`
	Name     string  `json:"name"`
	Type     string  `json:"type"` // p, u, c, f
	Columns  []int16 `json:"columns,omitempty"`
	Expr     string  `json:"expr,omitempty"` // CHECK: PostgreSQL's text
	Index    uint32  `json:"index,omitempty"`
	RefTable uint32  `json:"ref_table,omitempty"`
	RefCols  []int16 `json:"ref_columns,omitempty"`
	OnDelete string  `json:"on_delete,omitempty"` // a, r, c, n, d
	OnUpdate string  `json:"on_update,omitempty"`
	// Deferrable and Deferred (initially) are of foreign keys; see deferred.go.
	Deferrable bool `json:"deferrable,omitempty"`
	Deferred   bool `json:"deferred,omitempty"`
}

// Index is an index of a table.
type Index struct {
	OID     uint32        `json:"oid"`
	Name    string        `json:"name"`
	Unique  bool          `json:"unique,omitempty"`
	Primary bool          `json:"primary,omitempty"`
	Columns []IndexColumn `json:"columns"`
	Where   string        `json:"where,omitempty"` // PostgreSQL's text
	Comment string        `json:"comment,omitempty"`
}

// IndexColumn is a column of an index with its order.
type IndexColumn struct {
	Num        int16 `json:"num"`
	Desc       bool  `json:"desc,omitempty"`
	NullsFirst bool  `json:"nulls_first,omitempty"`
	// Class is an operator class that is not the type's own: it orders as that does under collation C.
	Class string `json:"class,omitempty"`
}

// Schema is a schema. SQLite has none: its name is part of the tables' names there.
type Schema struct {
	OID     uint32 `json:"oid"`
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"`
}

// Sequence is a sequence's definition. Its value is a row of cleave_sequence.
type Sequence struct {
	OID       uint32 `json:"oid"`
	Schema    string `json:"schema"`
	Name      string `json:"name"`
	Type      uint32 `json:"type"`
	Start     int64  `json:"start"`
	Increment int64  `json:"increment"`
	Min       int64  `json:"min"`
	Max       int64  `json:"max"`
	Cycle     bool   `json:"cycle,omitempty"`
	// OwnerTable and OwnerColumn name the serial column.
	OwnerTable  uint32 `json:"owner_table,omitempty"`
	OwnerColumn int16  `json:"owner_column,omitempty"`
}

// SQLName is the table's name in SQLite: its own in schema public, else with the
// schema before it.
func (d *Table) SQLName() string { return SQLName(d.Schema, d.Name) }

// SQLName is the name in SQLite of an object of a schema.
func SQLName(schema, name string) string {
	if schema == SchemaPublic {
		return name
	}
	return schema + "." + name
}

// Live returns the columns that are not dropped.
func (d *Table) Live() []*Column {
	out := make([]*Column, 0, len(d.Columns))
	for i := range d.Columns {
		if !d.Columns[i].Dropped {
			out = append(out, &d.Columns[i])
		}
	}
	return out
}

// Column returns the live column of a name, nil if there is none.
func (d *Table) Column(name string) *Column {
	for i := range d.Columns {
		if c := &d.Columns[i]; !c.Dropped && c.Name == name {
			return c
		}
	}
	return nil
}

// ByNum returns the column of an attnum, which may be dropped.
func (d *Table) ByNum(n int16) *Column {
	for i := range d.Columns {
		if d.Columns[i].Num == n {
			return &d.Columns[i]
		}
	}
	return nil
}

// Names returns the names of columns by their attnums.
func (d *Table) Names(nums []int16) []string {
	out := make([]string, len(nums))
	for i, n := range nums {
		if c := d.ByNum(n); c != nil {
			out[i] = c.Name
		}
	}
	return out
}

// PrimaryKey returns the primary key, nil if the table has none.
func (d *Table) PrimaryKey() *Constraint {
	for i := range d.Constraints {
		if d.Constraints[i].Type == "p" {
			return &d.Constraints[i]
		}
	}
	return nil
}

// Index returns the index of an OID, nil if there is none.
func (d *Table) Index(oid uint32) *Index {
	for i := range d.Indexes {
		if d.Indexes[i].OID == oid {
			return &d.Indexes[i]
		}
	}
	return nil
}

// Constraint returns the constraint of a name, nil if there is none.
func (d *Table) Constraint(name string) *Constraint {
	for i := range d.Constraints {
		if d.Constraints[i].Name == name {
			return &d.Constraints[i]
		}
	}
	return nil
}

// Clone copies a definition, to be changed: those in a catalogue never are.
func (d *Table) Clone() *Table {
	c := *d
	c.Columns = append([]Column(nil), d.Columns...)
	c.Constraints = append([]Constraint(nil), d.Constraints...)
	c.Indexes = append([]Index(nil), d.Indexes...)
	c.Options = append([]string(nil), d.Options...)
	return &c
}

// The schemas of every database.
const (
	SchemaPublic      = "public"
	SchemaPgCatalog   = "pg_catalog"
	SchemaInformation = "information_schema"
)

// OIDs that objects have in every database of PostgreSQL, and the first that it gives to others.
const (
	publicOID        = 2200
	CatalogSchemaOID = 11
	informationOID   = 13183
	FirstUserOID     = 16384
	OwnerOID         = 10
	DatabaseOID      = 5
	HeapAM           = 2
	BtreeAM          = 403
)

// Catalog is the set of definitions of one file, at one generation.
type Catalog struct {
	Generation int64
	Schemas    map[string]*Schema
	Tables     map[string]*Table // key: schema NUL name
	ByOID      map[uint32]*Table
	Views      map[string]*Table // they are in neither of these
	Sequences  map[string]*Sequence
	SeqByOID   map[uint32]*Sequence
	Captures   map[uint32]*Capture
	Deferrable []ForeignKey // by the tables' OIDs
}

// New returns a catalogue with the schemas of an empty database.
func New() *Catalog {
	return &Catalog{
		Schemas: map[string]*Schema{
			SchemaPublic:      {OID: publicOID, Name: SchemaPublic, Comment: "standard public schema"},
			SchemaPgCatalog:   {OID: CatalogSchemaOID, Name: SchemaPgCatalog, Comment: "system catalog schema"},
			SchemaInformation: {OID: informationOID, Name: SchemaInformation},
		},
		Tables:    map[string]*Table{},
		ByOID:     map[uint32]*Table{},
		Views:     map[string]*Table{},
		Sequences: map[string]*Sequence{},
		SeqByOID:  map[uint32]*Sequence{},
	}
}

// Key is the key of a relation in Tables, Views and Sequences.
func Key(schema, name string) string { return schema + "\x00" + name }

// Table returns the table of a name, nil if there is none.
func (c *Catalog) Table(schema, name string) *Table { return c.Tables[Key(schema, name)] }

// Add puts a table into the catalogue.
func (c *Catalog) Add(d *Table) {
	c.Tables[Key(d.Schema, d.Name)] = d
	c.ByOID[d.OID] = d
	for i := range d.Constraints {
		if d.Constraints[i].Deferrable {
			c.Deferrable = append(c.Deferrable, ForeignKey{d, &d.Constraints[i]})
		}
	}
}

// RelationNameTaken reports whether a table, index or sequence of the schema has
// the name (they share PostgreSQL's pg_class), or one that SQLite cannot tell
// from it.
func (c *Catalog) RelationNameTaken(schema, name string) (exact, folded bool) {
	seen := func(s, n string) {
		if s == schema && n == name {
			exact = true
		} else if strings.EqualFold(SQLName(s, n), SQLName(schema, name)) {
			folded = true
		}
	}
	for _, t := range c.Tables {
		seen(t.Schema, t.Name)
		for i := range t.Indexes {
			seen(t.Schema, t.Indexes[i].Name)
		}
	}
	for _, s := range c.Sequences {
		seen(s.Schema, s.Name)
	}
	for _, v := range c.Views {
		seen(v.Schema, v.Name)
	}
	return exact, folded
}

// FindIndex returns an index of the schema by name.
func (c *Catalog) FindIndex(schema, name string) (*Table, *Index) {
	for _, t := range c.Tables {
		if t.Schema != schema {
			continue
		}
		for i := range t.Indexes {
			if t.Indexes[i].Name == name {
				return t, &t.Indexes[i]
			}
		}
	}
	return nil, nil
}

// UniqueOn reports whether rows differ in these columns, none of which is NULL.
func (d *Table) UniqueOn(names []string) bool {
	in := map[int16]bool{}
	for _, n := range names {
		if col := d.Column(n); col != nil && col.NotNull {
			in[col.Num] = true
		}
	}
next:
	for _, ix := range d.Indexes {
		if !ix.Unique || ix.Where != "" {
			continue
		}
		for _, ic := range ix.Columns {
			if !in[ic.Num] {
				continue next
			}
		}
		return true
	}
	return false
}

// Guard is what the catalogue keeps of a guard. The positions themselves are
// rows of cleave_owned, looked up by the triggers inside the writing transaction.
type Guard struct {
	Columns  []string `json:"columns"`
	Types    []uint32 `json:"types"`
	Strategy string   `json:"strategy"`
	Keyspace string   `json:"keyspace"`
	Seed     int64    `json:"seed"`
	Epoch    uint64   `json:"epoch"`
	Also     uint64   `json:"also,omitempty"`
	Owns     string   `json:"owns,omitempty"` // see engine.GuardState
}

// Said reports whether a session has said, by its setting, an epoch with which rows without a shard key may be changed,
// and any table may be truncated.
func (g *Guard) Said(setting string) bool {
	says := func(epoch uint64) bool {
		is, has := engine.Said(engine.Saying{Keyspace: g.Keyspace, Epoch: epoch})
		return setting == is || strings.Contains(setting, has)
	}
	return (g.Epoch > 0 || len(g.Columns) > 0) && says(g.Epoch) || g.Also > 0 && says(g.Also)
}

// GuardState is what is told of a table's guard.
func (d *Table) GuardState() *engine.GuardState {
	if d.Guard == nil {
		return nil
	}
	return &engine.GuardState{Keyspace: d.Guard.Keyspace, Epoch: d.Guard.Epoch, Also: d.Guard.Also, Owns: d.Guard.Owns}
}

// View is a view's query.
type View struct {
	Query string   `json:"query"` // PostgreSQL's text
	Refs  []uint32 `json:"refs"`  // the tables and views that it reads
	Star  bool     `json:"star,omitempty"`
}

// ForeignKey is a foreign key with its table.
type ForeignKey struct {
	Table *Table
	Key   *Constraint
}

// Placed reports whether the table's rows have a place in the file that ctid can
// name: SQLite's rowid.
func (d *Table) Placed() bool {
	return d != nil && d.System == nil && !d.Relation && !d.Static && d.Column("rowid") == nil
}

// UniqueByColumns finds the unique index that SQLite names by its columns.
func (d *Table) UniqueByColumns(what string) (string, []int16) {
	var names []string
	for _, part := range strings.Split(what, ", ") {
		names = append(names, strings.TrimPrefix(part, d.SQLName()+"."))
	}
	for _, ix := range d.Indexes {
		if !ix.Unique || len(ix.Columns) != len(names) {
			continue
		}
		same := true
		var nums []int16
		for i, ic := range ix.Columns {
			nums = append(nums, ic.Num)
			if c := d.ByNum(ic.Num); c == nil || c.Name != names[i] {
				same = false
			}
		}
		if same {
			return ix.Name, nums
		}
	}
	if name, ok := strings.CutPrefix(what, "index '"); ok {
		name = strings.TrimSuffix(name, "'")
		for _, ix := range d.Indexes {
			if SQLName(d.Schema, ix.Name) == name {
				var nums []int16
				for _, ic := range ix.Columns {
					nums = append(nums, ic.Num)
				}
				return ix.Name, nums
			}
		}
	}
	return what, nil
}

// Encode writes a definition as the JSON of its row of cleave_object.
func Encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(b)
}

// SortedTables are the tables by their OIDs.
func (c *Catalog) SortedTables() []*Table {
	out := make([]*Table, 0, len(c.Tables))
	for _, d := range c.Tables {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].OID < out[j].OID })
	return out
}

// SchemaOID is the OID of a schema, 0 if there is none.
func (c *Catalog) SchemaOID(name string) uint32 {
	if s := c.Schemas[name]; s != nil {
		return s.OID
	}
	return 0
}

// Referenced reports whether a foreign key refers to the table; PostgreSQL keeps
// internal triggers on both sides.
func (c *Catalog) Referenced(d *Table) bool {
	for _, o := range c.Tables {
		for _, k := range o.Constraints {
			if k.Type == "f" && k.RefTable == d.OID {
				return true
			}
		}
	}
	return false
}

// SortedViews are the views by their OIDs.
func (c *Catalog) SortedViews() []*Table {
	out := make([]*Table, 0, len(c.Views))
	for _, d := range c.Views {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].OID < out[j].OID })
	return out
}

// Indexed is how an index, and what uses it, names the column.
func (c *Column) Indexed() string {
	if value.ClassOf(c.Type) == value.ClassBpchar {
		return "rtrim(" + quote.Ident(c.Name) + ", ' ')"
	}
	return quote.Ident(c.Name)
}
