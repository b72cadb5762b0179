package sqlite

import (
	"strings"
)

// tableDef is a table's definition with PostgreSQL's types, stored as JSON.
type tableDef struct {
	OID         uint32          `json:"oid"`
	Schema      string          `json:"schema"`
	Name        string          `json:"name"`
	Columns     []columnDef     `json:"columns"`
	Constraints []constraintDef `json:"constraints,omitempty"`
	Indexes     []indexDef      `json:"indexes,omitempty"`
	Options     []string        `json:"options,omitempty"` // reloptions, name=value
	Comment     string          `json:"comment,omitempty"`
	Guard       *guardDef       `json:"guard,omitempty"`
	View        *viewDef        `json:"view,omitempty"`

	system *systemTable // a relation of pg_catalog or information_schema
	static bool         // a virtual table: readable only
	view   *viewDef     // View, of what is a view
	// relation: it is a temporary relation of the conversation.
	relation bool
}

type columnDef struct {
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

type constraintDef struct {
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

type indexDef struct {
	OID     uint32        `json:"oid"`
	Name    string        `json:"name"`
	Unique  bool          `json:"unique,omitempty"`
	Primary bool          `json:"primary,omitempty"`
	Columns []indexColumn `json:"columns"`
	Where   string        `json:"where,omitempty"` // PostgreSQL's text
	Comment string        `json:"comment,omitempty"`
}

type indexColumn struct {
	Num        int16 `json:"num"`
	Desc       bool  `json:"desc,omitempty"`
	NullsFirst bool  `json:"nulls_first,omitempty"`
	// Class is an operator class that is not the type's own: it orders as that does under collation C.
	Class string `json:"class,omitempty"`
}

type schemaDef struct {
	OID     uint32 `json:"oid"`
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"`
}

type sequenceDef struct {
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

// sqlName is the table's name in SQLite: its own in schema public, else with the
// schema before it.
func (d *tableDef) sqlName() string { return sqlObjectName(d.Schema, d.Name) }

func sqlObjectName(schema, name string) string {
	if schema == publicSchema {
		return name
	}
	return schema + "." + name
}

func (d *tableDef) live() []*columnDef {
	out := make([]*columnDef, 0, len(d.Columns))
	for i := range d.Columns {
		if !d.Columns[i].Dropped {
			out = append(out, &d.Columns[i])
		}
	}
	return out
}

func (d *tableDef) column(name string) *columnDef {
	for i := range d.Columns {
		if c := &d.Columns[i]; !c.Dropped && c.Name == name {
			return c
		}
	}
	return nil
}

func (d *tableDef) byNum(n int16) *columnDef {
	for i := range d.Columns {
		if d.Columns[i].Num == n {
			return &d.Columns[i]
		}
	}
	return nil
}

func (d *tableDef) names(nums []int16) []string {
	out := make([]string, len(nums))
	for i, n := range nums {
		if c := d.byNum(n); c != nil {
			out[i] = c.Name
		}
	}
	return out
}

func (d *tableDef) primaryKey() *constraintDef {
	for i := range d.Constraints {
		if d.Constraints[i].Type == "p" {
			return &d.Constraints[i]
		}
	}
	return nil
}

func (d *tableDef) index(oid uint32) *indexDef {
	for i := range d.Indexes {
		if d.Indexes[i].OID == oid {
			return &d.Indexes[i]
		}
	}
	return nil
}

func (d *tableDef) constraint(name string) *constraintDef {
	for i := range d.Constraints {
		if d.Constraints[i].Name == name {
			return &d.Constraints[i]
		}
	}
	return nil
}

func (d *tableDef) clone() *tableDef {
	c := *d
	c.Columns = append([]columnDef(nil), d.Columns...)
	c.Constraints = append([]constraintDef(nil), d.Constraints...)
	c.Indexes = append([]indexDef(nil), d.Indexes...)
	c.Options = append([]string(nil), d.Options...)
	return &c
}

const (
	publicSchema        = "public"
	catalogSchema       = "pg_catalog"
	informationSchema   = "information_schema"
	publicOID           = 2200
	catalogSchemaOID    = 11
	informationOID      = 13183
	firstUserOID        = 16384
	ownerOID            = 10
	databaseOID         = 5
	defaultCollationOID = 100
	heapAM              = 2
	btreeAM             = 403
)

// catalog is the set of definitions of one file, at one generation.
type catalog struct {
	generation int64
	schemas    map[string]*schemaDef
	tables     map[string]*tableDef // key: schema NUL name
	byOID      map[uint32]*tableDef
	views      map[string]*tableDef // they are in neither of these
	sequences  map[string]*sequenceDef
	seqByOID   map[uint32]*sequenceDef
	captures   map[uint32]*captureDef
	deferrable []foreignKey // by the tables' OIDs
}

func newCatalog() *catalog {
	return &catalog{
		schemas: map[string]*schemaDef{
			publicSchema:      {OID: publicOID, Name: publicSchema, Comment: "standard public schema"},
			catalogSchema:     {OID: catalogSchemaOID, Name: catalogSchema, Comment: "system catalog schema"},
			informationSchema: {OID: informationOID, Name: informationSchema},
		},
		tables:    map[string]*tableDef{},
		byOID:     map[uint32]*tableDef{},
		views:     map[string]*tableDef{},
		sequences: map[string]*sequenceDef{},
		seqByOID:  map[uint32]*sequenceDef{},
	}
}

func objectKey(schema, name string) string { return schema + "\x00" + name }

func (c *catalog) table(schema, name string) *tableDef { return c.tables[objectKey(schema, name)] }

func (c *catalog) add(d *tableDef) {
	c.tables[objectKey(d.Schema, d.Name)] = d
	c.byOID[d.OID] = d
	for i := range d.Constraints {
		if d.Constraints[i].Deferrable {
			c.deferrable = append(c.deferrable, foreignKey{d, &d.Constraints[i]})
		}
	}
}

// relationNameTaken reports whether a table, index or sequence of the schema has
// the name (they share PostgreSQL's pg_class), or one that SQLite cannot tell
// from it.
func (c *catalog) relationNameTaken(schema, name string) (exact, folded bool) {
	seen := func(s, n string) {
		if s == schema && n == name {
			exact = true
		} else if strings.EqualFold(sqlObjectName(s, n), sqlObjectName(schema, name)) {
			folded = true
		}
	}
	for _, t := range c.tables {
		seen(t.Schema, t.Name)
		for i := range t.Indexes {
			seen(t.Schema, t.Indexes[i].Name)
		}
	}
	for _, s := range c.sequences {
		seen(s.Schema, s.Name)
	}
	for _, v := range c.views {
		seen(v.Schema, v.Name)
	}
	return exact, folded
}

// findIndex returns an index of the schema by name.
func (c *catalog) findIndex(schema, name string) (*tableDef, *indexDef) {
	for _, t := range c.tables {
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
