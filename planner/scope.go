package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// binder says what the names of a statement mean, level by level. Its result is data: queries with their scopes and
// join trees, and what the parts note. docs/design/semantics.md has more.
type binder struct {
	*typer
	*sourceText
	*equivalence
	*constants
	*parameters
	*touched
	*effects
	*restrictions
	*routing
	*madeValues
	laterChecks

	p     *Planner
	st    *plan.Statement
	bound *boundStatement
	one   *oneShard

	into         *pg.IntoClause
	defaultCalls []clustercatalog.DefaultCall // see clustercatalog
	lockedCopies lockedCopies
}

// castMarks note what is known of the operand of a cast.
type castMarks interface {
	markCast(n *pg.Node, sc *scope)
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
	sc   *scope
}

// checkNow asks what was kept, in order.
func (a *binder) checkNow() {
	list := a.list
	a.list = nil
	for _, c := range list {
		if c.call != nil {
			a.noteSteady(c.call, c.sc)
		} else {
			a.checks.markCast(c.n, c.sc)
		}
	}
}

func (l *laterChecks) markCast(n *pg.Node, sc *scope) {
	l.list = append(l.list, laterCheck{n: n, sc: sc})
}

// calls keeps a call, to note whether it is steady.
func (l *laterChecks) calls(f *pg.FuncCall, sc *scope) {
	l.list = append(l.list, laterCheck{call: f, sc: sc})
}

// column is a name in a scope and the term that it stands for.
type column struct {
	name string
	term term
	typ  keyspace.Type
	oid  uint32      // its type, 0 if that is not known
	late *lateType   // finds its type once it is asked for; oid is not set then
	text *pg.A_Const // the string literal that it is, nil if it is none
}

// item is something that names can refer to: a table, a subquery, a join.
type item struct {
	schema, name string // name "" for a join without alias
	cols         []column
	open         bool // it has columns that are not known
	rel          bool // name.column is allowed
	bare         bool // column alone is allowed
}

// scope is what names mean at one query level.
type scope struct {
	parent *scope
	items  []*item
	ctes   map[string]*cte
}

// cte is a WITH query: its output columns, and the constants that each of them
// is one of.
type cte struct {
	name string
	cols []column
	sets [][]constant // nil: not fixed
	open bool
}

// left is the scope as it is now: FROM adds what stands right of a place to it.
func (s *scope) left() *scope {
	return &scope{parent: s.parent, items: s.items[:len(s.items):len(s.items)], ctes: s.ctes}
}

func (s *scope) cte(name string) *cte {
	for ; s != nil; s = s.parent {
		if c := s.ctes[name]; c != nil {
			return c
		}
	}
	return nil
}

// resolve finds the column that a reference means, noTerm if that is not
// certain: then nothing is proved from it, and a shard says what is wrong.
func (s *scope) resolve(fields []string) column {
	switch len(fields) {
	case 1:
		return s.resolveBare(fields[0])
	case 2:
		return s.resolveIn("", fields[0], fields[1])
	case 3:
		return s.resolveIn(fields[0], fields[1], fields[2])
	}
	return column{term: noTerm}
}

// resolveBare is resolve of a name alone.
func (s *scope) resolveBare(name string) column {
	for ; s != nil; s = s.parent {
		var out column
		n, open := 0, false
		for _, it := range s.items {
			if !it.bare {
				continue
			}
			open = open || it.open
			for i := range it.cols {
				if it.cols[i].name == name {
					out, n = it.cols[i], n+1
				}
			}
		}
		switch {
		case n == 1:
			return out
		case n > 1 || open:
			return column{term: noTerm}
		}
	}
	return column{term: noTerm}
}

// resolveIn is resolve of relation.name; schema is "" if none is named.
func (s *scope) resolveIn(schema, rel, name string) column {
	for ; s != nil; s = s.parent {
		var match *item
		for _, it := range s.items {
			if !it.rel || it.name != rel || schema != "" && it.schema != schema {
				continue
			}
			if match != nil {
				return column{term: noTerm}
			}
			match = it
		}
		switch {
		case match == nil:
		case countName(match.cols, name) == 1:
			return oneColumn(match.cols, name)
		default:
			return column{term: noTerm}
		}
	}
	return column{term: noTerm}
}

// relation is what a table name in a statement stands for.
type relation struct {
	schema, name string
	table        *shardmap.Table // nil if the map does not know it
	catalog      bool            // pg_catalog or information_schema
	virtual      bool            // the schema cleave
	view         *shardmap.View  // one that the map knows
}

// relation resolves a table name as PostgreSQL does: pg_catalog comes before
// the search path unless the path names it.
func (ns *namespace) relation(v *pg.RangeVar) relation { return ns.keepsSecret(ns.named(v)) }

// named is relation before it is judged.
func (ns *namespace) named(v *pg.RangeVar) relation {
	r := relation{schema: v.Schemaname, name: v.Relname}
	if v.Schemaname != "" {
		r.classify(ns)
		return r
	}
	path := ns.path
	named := false
	for _, s := range path {
		named = named || s == "pg_catalog"
	}
	if !named && builtin.HasRelation(v.Relname) {
		r.schema, r.catalog = "pg_catalog", true
		return r
	}
	for _, s := range path {
		if s == "pg_catalog" && builtin.HasRelation(v.Relname) {
			r.schema, r.catalog = s, true
			return r
		}
		if s == "information_schema" {
			// Its views are not listed here; a name of the path's other schemas
			// is looked for first in the map.
			continue
		}
		if s == VirtualSchema && virtualTables[v.Relname] {
			r.schema, r.virtual = s, true
			return r
		}
		if t, ok := ns.snap.Table(s, v.Relname); ok {
			r.schema, r.table = s, t
			return r
		}
		if v, ok := ns.snap.View(s, v.Relname); ok {
			r.schema, r.view = s, v
			return r
		}
	}
	return r
}

func (r *relation) classify(ns *namespace) {
	switch {
	case r.schema == "pg_catalog" || r.schema == "information_schema" || strings.HasPrefix(r.schema, "pg_toast"):
		r.catalog = true
	case r.schema == VirtualSchema:
		r.virtual = true
	case r.schema == InternalSchema:
		fail(internalSchemaError())
	default:
		if t, ok := ns.snap.Table(r.schema, r.name); ok {
			r.table = t
		} else if v, ok := ns.snap.View(r.schema, r.name); ok {
			r.view = v
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

func internalSchemaError() error {
	return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for schema %s", InternalSchema).
		WithHint("read the shard map through the schema cleave, for example SELECT * FROM cleave.tables")
}

// newTerm registers a term of a range-table entry.
func (eq *equivalence) newTerm(info termInfo) term {
	eq.terms = append(eq.terms, info)
	return term(len(eq.terms) - 1)
}

func (eq *equivalence) newRTE() int {
	eq.rtes++
	return eq.rtes - 1
}

// tableItem makes the item of a table and its terms, key columns first found by name.
func (eq *equivalence) tableItem(r relation, rte int) *item {
	it := &item{schema: r.schema, name: r.name, rel: true, bare: true, open: r.table == nil}
	if r.table == nil {
		return it
	}
	for i := range r.table.Columns {
		c := &r.table.Columns[i]
		typ, _ := keyspace.TypeByOID(c.OID)
		key := false
		for _, k := range r.table.ShardKey {
			key = key || r.table.Kind == shardmap.Sharded && k == c.Name
		}
		col := column{name: c.Name, term: noTerm, typ: typ, oid: c.OID}
		if typ != 0 {
			col.term = eq.newTerm(termInfo{typ: typ, rte: rte, key: key, plain: key || !keytype.IsText(typ)})
		}
		it.cols = append(it.cols, col)
	}
	return it
}

// alias applies FROM x AS name (columns).
func (it *item) alias(al *pg.Alias) {
	if al == nil {
		return
	}
	it.name, it.schema = al.Aliasname, ""
	for i, n := range sqltree.Strings(al.Colnames) {
		if i < len(it.cols) {
			it.cols[i].name = n
		} else if it.open {
			it.cols = append(it.cols, column{name: n, term: noTerm})
		}
	}
}
