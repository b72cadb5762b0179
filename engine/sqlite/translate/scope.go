package translate

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// scope is what names can mean inside one SELECT (or UPDATE, DELETE, ...).
type scope struct {
	parent *scope
	rtes   []*rte
	ctes   map[string]*cte
	sel    *selectState
	// hidden hides the scope's tables from expressions of FROM (no LATERAL here). calls: those are a function's, of which
	// PostgreSQL shows them to it; left are the tables to the left of it in a join.
	hidden, calls bool
	left          []*rte
}

// lateral reports whether a function in FROM would see a column of its siblings, and whether it would see the table.
func (s *scope) lateral(table, name string) (column, seen bool) {
	if !s.calls {
		return false, false
	}
	for _, r := range append(append([]*rte{}, s.rtes...), s.left...) {
		if table != "" && r.alias != table {
			continue
		}
		seen = seen || table != ""
		for i := range r.cols {
			if r.cols[i].name == name {
				return true, seen
			}
		}
	}
	return false, seen
}

// columnUse is a column as errors name it, and where it stands in the statement.
type columnUse struct {
	name string
	loc  int32
}

// selectState collects what is needed to check grouping.
type selectState struct {
	hasAgg    bool
	groupSQL  map[string]bool
	ungrouped []columnUse // columns used outside aggregates and group expressions
	inAgg     int
	clause    string // "WHERE", "JOIN/ON", ...: where aggregates are not allowed
	inWindow  int
	windows   map[string]string
	hasWindow bool
	uses      int
	// groupTables are aliases whose whole primary key is grouped by.
	groupTables map[string]bool
}

// rte is one entry of FROM.
type rte struct {
	alias  string // the user's
	schema string // for schema.table.column
	sql    string // SQLite alias; "" for a join's merged columns
	cols   []rteCol
	table  *catalog.Table
	// unaliased: columns are addressed by name only (a join's USING columns).
	merged bool
	// function RTE: whole-row reference is the value itself.
	scalar bool
}

type rteCol struct {
	name    string
	sql     string
	typ     uint32
	mod     int32
	table   uint32
	attnum  int16
	notNull bool
	hidden  bool // found only when qualified: merged by USING
}

type cte struct {
	name      string
	sql       string // SQLite name
	cols      []rteCol
	recursive bool
}

func (t *scopes) push() *scope {
	s := &scope{parent: t.scope, sel: &selectState{groupSQL: map[string]bool{}, groupTables: map[string]bool{}, windows: map[string]string{}}}
	t.scope = s
	return s
}

func (t *scopes) pop() { t.scope = t.scope.parent }

func (t *scopes) findCTE(name string) *cte {
	for s := t.scope; s != nil; s = s.parent {
		if c := s.ctes[name]; c != nil {
			return c
		}
	}
	return nil
}

// addRTE adds an entry, refusing an alias given twice.
func (t *scopes) addRTE(s *scope, r *rte, loc int32) {
	if r.alias != "" {
		for _, o := range s.rtes {
			if o.alias == r.alias && (o.schema == r.schema || o.schema == "" || r.schema == "") {
				t.failAt(loc, "42712", "table name \"%s\" specified more than once", r.alias)
			}
		}
	}
	s.rtes = append(s.rtes, r)
}

// column resolves a possibly qualified column name.
func (t *scopes) column(parts []string, loc int32) expr {
	name := parts[len(parts)-1]
	var schema, table string
	switch len(parts) {
	case 1:
	case 2:
		table = parts[0]
	case 3:
		schema, table = parts[0], parts[1]
	default:
		t.failAt(loc, sqlstate.SyntaxError, "improper qualified name (too many dotted names): %s", strings.Join(parts, "."))
	}
	tableSeen := false
	for s := t.scope; s != nil; s = s.parent {
		if s.hidden {
			column, seen := s.lateral(table, name)
			if column {
				fault.Refuse("CLV-2137", "a function in FROM of columns beside it")
			}
			if tableSeen = tableSeen || seen; seen {
				break
			}
			continue
		}
		in, found, seen := t.columnOf(s, schema, table, name, loc)
		if tableSeen = tableSeen || seen; found != nil {
			return t.useColumn(s, in, found, loc)
		}
		if table != "" && tableSeen {
			break
		}
	}
	if e, ok := t.systemColumn(table, name, loc); ok {
		return e
	}
	t.noColumn(schema, table, name, tableSeen, loc)
	return expr{}
}

// columnOf finds a column among the tables of one scope.
func (t *scopes) columnOf(s *scope, schema, table, name string, loc int32) (in *rte, found *rteCol, tableSeen bool) {
	for _, r := range s.rtes {
		if table != "" {
			if r.alias != table || schema != "" && r.schema != schema {
				continue
			}
			tableSeen = true
		}
		for i := range r.cols {
			c := &r.cols[i]
			if c.name != name || table == "" && c.hidden {
				continue
			}
			if found != nil {
				t.failAt(loc, sqlstate.AmbiguousColumn, "column reference \"%s\" is ambiguous", name)
			}
			found, in = c, r
		}
	}
	return in, found, tableSeen
}

// systemColumn finds ctid and tableoid, of the table or of the only one.
func (t *scopes) systemColumn(table, name string, loc int32) (e expr, ok bool) {
	for s := t.scope; s != nil && (name == "ctid" || name == "tableoid"); s = s.parent {
		for _, r := range s.rtes {
			if s.hidden || !(table == "" && len(s.rtes) == 1 || r.alias == table) {
				continue
			}
			if c := systemColumnOf(r, name); c != nil {
				return t.useColumn(s, r, c, loc), true
			}
		}
	}
	return e, false
}

// systemColumnOf is ctid or tableoid of a table, nil if it has none.
func systemColumnOf(r *rte, name string) *rteCol {
	switch {
	case name == "ctid" && r.table.Placed():
		return &rteCol{name: name, sql: r.sql + ".rowid", typ: pgoid.TID, mod: -1, table: r.table.OID, attnum: -1}
	case name == "tableoid" && r.table != nil && r.table.Column("rowid") == nil:
		// No row, no table: the nullable side of a join.
		return &rteCol{name: name, sql: "(CASE WHEN " + r.sql + ".rowid IS NOT NULL THEN " + itoa(int64(r.table.OID)) + " END)", typ: pgoid.OID, mod: -1, table: r.table.OID, attnum: -6}
	}
	return nil
}

// noColumn fails as PostgreSQL does for a column that is not there.
func (t *scopes) noColumn(schema, table, name string, tableSeen bool, loc int32) {
	if table != "" && !tableSeen {
		for s := t.scope; s != nil; s = s.parent {
			for _, r := range s.rtes {
				if r.table != nil && r.table.Name == table && schema == "" && !s.hidden {
					fault.Raise(t.at(loc, sqlstate.New(sqlstate.UndefinedTable, "invalid reference to FROM-clause entry for table \"%s\"", table).
						WithHint("Perhaps you meant to reference the table alias \"%s\".", r.alias)))
				}
			}
		}
		t.failAt(loc, sqlstate.UndefinedTable, "missing FROM-clause entry for table \"%s\"", table)
	}
	switch name {
	case "ctid", "xmin", "cmin", "xmax", "cmax", "tableoid":
		fault.Refuse("CLV-2138", "the system column %s", name)
	}
	if table != "" {
		t.failAt(loc, sqlstate.UndefinedColumn, "column %s.%s does not exist", table, name)
	}
	t.failAt(loc, sqlstate.UndefinedColumn, "column \"%s\" does not exist", name)
}

func (t *scopes) useColumn(s *scope, r *rte, c *rteCol, loc int32) expr {
	e := expr{sql: c.sql, typ: c.typ, mod: c.mod, name: c.name, table: c.table, attnum: c.attnum, notNull: c.notNull}
	s.sel.uses++
	if s.sel.inAgg == 0 && !s.sel.groupSQL[c.sql] && !s.sel.groupTables[r.sql] {
		shown := c.name
		if r.alias != "" {
			shown = r.alias + "." + c.name
		}
		if s != t.scope {
			shown = outerUse + shown
		}
		s.sel.ungrouped = append(s.sel.ungrouped, columnUse{shown, loc})
	}
	return e
}

// star lists the columns that * or alias.* stands for.
func (t *scopes) star(table, schema string, loc int32) []expr {
	var out []expr
	if table == "" {
		s := t.scope
		if len(s.rtes) == 0 {
			t.failAt(loc, sqlstate.SyntaxError, "SELECT * with no tables specified is not valid")
		}
		for _, r := range s.rtes {
			for i := range r.cols {
				if !r.cols[i].hidden {
					out = append(out, t.useColumn(s, r, &r.cols[i], loc))
				}
			}
		}
		return out
	}
	for s := t.scope; s != nil; s = s.parent {
		for _, r := range s.rtes {
			if r.alias == table && (schema == "" || r.schema == schema) {
				for i := range r.cols {
					out = append(out, t.useColumn(s, r, &r.cols[i], loc))
				}
				return out
			}
		}
	}
	t.failAt(loc, sqlstate.UndefinedTable, "missing FROM-clause entry for table \"%s\"", table)
	return nil
}

func itoa(i int64) string { return strconv.FormatInt(i, 10) }
