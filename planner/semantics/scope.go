package semantics

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// binder says what the names of a statement mean, level by level. Its result is data: queries with their scopes and
// join trees, and what the parts note. docs/design/semantics.md has more.
type binder struct {
	*Typer
	*sourcetext.Text
	*Equivalence
	*constants
	*Parameters
	*Touched
	*Effects
	*restrictions
	*Routing
	laterChecks

	fill  inserts
	st    *plan.Statement
	bound *BoundStatement
	one   *OneShard

	Into         *pg.IntoClause
	DefaultCalls []clustercatalog.DefaultCall // see clustercatalog
	LockedCopies lockedCopies
}

// castMarks note what is known of the operand of a cast.
type castMarks interface {
	MarkCast(n *pg.Node, sc *Scope)
}

// laterChecks keeps what is asked of types for the case that one shard is not enough. Most statements are of one shard,
// and these questions cost more than the rest of binding.
type laterChecks struct {
	checks castMarks
	list   []laterCheck
}

// laterCheck is one of them, at its scope: of a cast or a call.
type laterCheck struct {
	n    *pg.Node
	call *pg.FuncCall
	sc   *Scope
}

// CheckNow asks what was kept, in order.
func (a *binder) CheckNow() {
	list := a.list
	a.list = nil
	for _, c := range list {
		if c.call != nil {
			a.noteSteady(c.call, c.sc)
		} else {
			a.checks.MarkCast(c.n, c.sc)
		}
	}
}

func (l *laterChecks) MarkCast(n *pg.Node, sc *Scope) {
	l.list = append(l.list, laterCheck{n: n, sc: sc})
}

// calls keeps a call, to note whether it is steady.
func (l *laterChecks) calls(f *pg.FuncCall, sc *Scope) {
	l.list = append(l.list, laterCheck{call: f, sc: sc})
}

// Column is a name in a scope and the term that it stands for.
type Column struct {
	Name string
	Term Term
	typ  keyspace.Type
	oid  uint32      // its type, 0 if that is not known
	late *lateType   // finds its type once it is asked for; oid is not set then
	text *pg.A_Const // the string literal that it is, nil if it is none
}

// Item is something that names can refer to: a table, a subquery, a join.
type Item struct {
	schema, Name string // name "" for a join without alias
	Columns      []Column
	Open         bool // it has columns that are not known
	Qualified    bool // name.column is allowed
	Bare         bool // column alone is allowed
}

// Scope is what names mean at one query level.
type Scope struct {
	parent *Scope
	Items  []*Item
	ctes   map[string]*cte
}

// cte is a WITH query: its output columns, and the constants that each of them
// is one of.
type cte struct {
	name string
	cols []Column
	sets [][]Constant // nil: not fixed
	open bool
}

// left is the scope as it is now: FROM adds what stands right of a place to it.
func (s *Scope) left() *Scope {
	return &Scope{parent: s.parent, Items: s.Items[:len(s.Items):len(s.Items)], ctes: s.ctes}
}

func (s *Scope) cte(name string) *cte {
	for ; s != nil; s = s.parent {
		if c := s.ctes[name]; c != nil {
			return c
		}
	}
	return nil
}

// resolve finds the column that a reference means, NoTerm if that is not
// certain: then nothing is proved from it, and a shard says what is wrong.
func (s *Scope) resolve(fields []string) Column {
	switch len(fields) {
	case 1:
		return s.resolveBare(fields[0])
	case 2:
		return s.resolveIn("", fields[0], fields[1])
	case 3:
		return s.resolveIn(fields[0], fields[1], fields[2])
	}
	return Column{Term: NoTerm}
}

// resolveBare is resolve of a name alone.
func (s *Scope) resolveBare(name string) Column {
	for ; s != nil; s = s.parent {
		var out Column
		n, open := 0, false
		for _, it := range s.Items {
			if !it.Bare {
				continue
			}
			open = open || it.Open
			for i := range it.Columns {
				if it.Columns[i].Name == name {
					out, n = it.Columns[i], n+1
				}
			}
		}
		switch {
		case n == 1:
			return out
		case n > 1 || open:
			return Column{Term: NoTerm}
		}
	}
	return Column{Term: NoTerm}
}

// resolveIn is resolve of relation.name; schema is "" if none is named.
func (s *Scope) resolveIn(schema, rel, name string) Column {
	for ; s != nil; s = s.parent {
		var match *Item
		for _, it := range s.Items {
			if !it.Qualified || it.Name != rel || schema != "" && it.schema != schema {
				continue
			}
			if match != nil {
				return Column{Term: NoTerm}
			}
			match = it
		}
		switch {
		case match == nil:
		case countName(match.Columns, name) == 1:
			return oneColumn(match.Columns, name)
		default:
			return Column{Term: NoTerm}
		}
	}
	return Column{Term: NoTerm}
}

// Relation is what a table name in a statement stands for.
type Relation struct {
	Schema, Name string
	Table        *shardmap.Table // nil if the map does not know it
	Catalog      bool            // pg_catalog or information_schema
	Virtual      bool            // the schema cleave
	View         *shardmap.View  // one that the map knows
}

// Relation resolves a table name as PostgreSQL does: pg_catalog comes before
// the search path unless the path names it.
func (ns *Namespace) Relation(v *pg.RangeVar) Relation { return ns.keepsSecret(ns.named(v)) }

// named is relation before it is judged.
func (ns *Namespace) named(v *pg.RangeVar) Relation {
	r := Relation{Schema: v.Schemaname, Name: v.Relname}
	if v.Schemaname != "" {
		r.classify(ns)
		return r
	}
	path := ns.Path
	named := false
	for _, s := range path {
		named = named || s == "pg_catalog"
	}
	if !named && builtin.HasRelation(v.Relname) {
		r.Schema, r.Catalog = "pg_catalog", true
		return r
	}
	for _, s := range path {
		if s == "pg_catalog" && builtin.HasRelation(v.Relname) {
			r.Schema, r.Catalog = s, true
			return r
		}
		if s == "information_schema" {
			// Its views are not listed here; a name of the path's other schemas
			// is looked for first in the map.
			continue
		}
		if s == VirtualSchema && virtualTables[v.Relname] {
			r.Schema, r.Virtual = s, true
			return r
		}
		if t, ok := ns.Snapshot.Table(s, v.Relname); ok {
			r.Schema, r.Table = s, t
			return r
		}
		if v, ok := ns.Snapshot.View(s, v.Relname); ok {
			r.Schema, r.View = s, v
			return r
		}
	}
	return r
}

func (r *Relation) classify(ns *Namespace) {
	switch {
	case r.Schema == "pg_catalog" || r.Schema == "information_schema" || strings.HasPrefix(r.Schema, "pg_toast"):
		r.Catalog = true
	case r.Schema == VirtualSchema:
		r.Virtual = true
	case r.Schema == InternalSchema:
		fail(InternalSchemaError())
	default:
		if t, ok := ns.Snapshot.Table(r.Schema, r.Name); ok {
			r.Table = t
		} else if v, ok := ns.Snapshot.View(r.Schema, r.Name); ok {
			r.View = v
		}
	}
}

// VirtualSchema is the schema whose tables and functions the router answers.
const VirtualSchema = virtual.Schema

// InternalSchema is where the router keeps its own objects on a shard.
const InternalSchema = "cleave_internal"

var virtualTables = func() map[string]bool {
	out := map[string]bool{}
	for _, t := range virtual.Tables {
		out[t.Name] = true
	}
	return out
}()

// InternalSchemaError is the error for a statement that names the router's own schema.
func InternalSchemaError() error {
	return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for schema %s", InternalSchema).
		WithHint("read the shard map through the schema cleave, for example SELECT * FROM cleave.tables")
}

// newTerm registers a term of a range-table entry.
func (eq *Equivalence) newTerm(info termInfo) Term {
	eq.terms = append(eq.terms, info)
	return Term(len(eq.terms) - 1)
}

// NewRTE numbers a new range-table entry.
func (eq *Equivalence) NewRTE() int {
	eq.rtes++
	return eq.rtes - 1
}

// TableItem makes the item of a table and its terms, key columns first found by name.
func (eq *Equivalence) TableItem(r Relation, rte int) *Item {
	it := &Item{schema: r.Schema, Name: r.Name, Qualified: true, Bare: true, Open: r.Table == nil}
	if r.Table == nil {
		return it
	}
	for i := range r.Table.Columns {
		c := &r.Table.Columns[i]
		typ, _ := keyspace.TypeByOID(c.OID)
		key := false
		for _, k := range r.Table.ShardKey {
			key = key || r.Table.Kind == shardmap.Sharded && k == c.Name
		}
		col := Column{Name: c.Name, Term: NoTerm, typ: typ, oid: c.OID}
		if typ != 0 {
			col.Term = eq.newTerm(termInfo{typ: typ, rte: rte, key: key, plain: key || !keytype.IsText(typ)})
		}
		it.Columns = append(it.Columns, col)
	}
	return it
}

// alias applies FROM x AS name (columns).
func (it *Item) alias(al *pg.Alias) {
	if al == nil {
		return
	}
	it.Name, it.schema = al.Aliasname, ""
	for i, n := range sqltree.Strings(al.Colnames) {
		if i < len(it.Columns) {
			it.Columns[i].Name = n
		} else if it.Open {
			it.Columns = append(it.Columns, Column{Name: n, Term: NoTerm})
		}
	}
}
