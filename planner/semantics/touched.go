package semantics

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/complexity"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Touched is what the statement touches.
type Touched struct {
	Typer     *Typer
	Reader    *Reader
	Statement *plan.Statement
	OneShard  *OneShard

	// The first name of each sort, for messages.
	Sharded, Whole, Catalog, Unknown, Reference, Virtual string
	UnknownAt                                            int32

	Types []keyspace.Type // of the keyspace of the sharded tables
	Mixed bool            // it may name tables of every shard beside others, see others

	// ViewRefs are the views that the statement names; defining: it is the query of
	// a view, whose tables are only counted, in has. See view.go.
	ViewRefs    []ViewRef
	defining    bool
	Has         viewReach
	definitions *definitions
	weight      int // see weighView

	CatalogRefs []clustercatalog.Ref // what the catalogue is asked for, see clustercatalog
}

// Touch notes that the statement uses a table.
func (to *Touched) Touch(r Relation, v *pg.RangeVar) {
	name := sqltext.QuoteName(r.Schema, r.Name)
	if r.View != nil {
		to.weighView(r.View)
	}
	if to.defining {
		to.Has.count(to, r)
		return
	}
	if r.View != nil {
		to.Whole = name // if it is one of unsharded tables; else the text is expanded
		to.ViewRefs = append(to.ViewRefs, ViewRef{Ref: v, View: r.View})
		return
	}
	switch {
	case r.Virtual:
		to.Virtual = name
	case r.Catalog:
		to.Catalog = name
		if r.Schema == "pg_catalog" {
			clustercatalog.RefuseShared(r.Name)
		}
		to.CatalogRefs = append(to.CatalogRefs, clustercatalog.Ref{Rel: v, Name: r.Schema + "." + r.Name})
	case r.Table == nil:
		if to.Statement.DDL == nil && to.Typer.ClusterSequence(v) != nil {
			fail(sqlstate.Refusal("CLV-0505", "reading the sequence %s as a table is not supported: the routers have its values", name).
				WithHint("Run SELECT * FROM cleave.sequences."))
		}
		to.Unknown, to.UnknownAt, to.Statement.Strange = name, v.GetLocation(), true
	default:
		AddTable(&to.Statement.Tables, r.Table)
		switch r.Table.Kind {
		case shardmap.Sharded:
			to.touchSharded(r.Table, name)
		case shardmap.Reference:
			to.Reference = name
		default:
			to.Whole = name
		}
	}
}

// touchSharded notes a sharded table. Those of one statement are of one keyspace, if one shard is to run it.
func (to *Touched) touchSharded(t *shardmap.Table, name string) {
	if to.Sharded != "" && to.Statement.Keyspace != t.Keyspace {
		to.OneShard.RefuseOne(sqlstate.Refusal("CLV-0218", "tables %s and %s are in different keyspaces (%s and %s), so their rows are placed independently", to.Sharded, name, to.Statement.Keyspace, t.Keyspace).
			WithHint("Declare them with the same cleave.keyspace to have them colocated, or use them in two statements."))
	}
	if to.Sharded == "" {
		ks, ok := to.Typer.Snapshot.Keyspace(t.Keyspace)
		if !ok {
			fail(sqlstate.New(sqlstate.DataCorrupted, "table %s is in keyspace %q, which the shard map does not have", name, t.Keyspace).
				WithHint("cleave doctor"))
		}
		to.Sharded, to.Statement.Keyspace, to.Types = name, t.Keyspace, ks.Def().Types
	}
}

// OneKeyspace reports whether the sharded tables are all of one keyspace.
func (to *Touched) OneKeyspace() bool {
	name := ""
	for _, t := range to.Statement.Tables {
		if t.Kind == shardmap.Sharded {
			if name != "" && t.Keyspace != name {
				return false
			}
			name = t.Keyspace
		}
	}
	return name != ""
}

// AddTable adds a table to a list once.
func AddTable(list *[]*shardmap.Table, t *shardmap.Table) {
	for _, have := range *list {
		if have == t {
			return
		}
	}
	*list = append(*list, t)
}

// A view of the map is, for a statement that reads it, its query in brackets. The
// text is expanded, not the tree, so that everything after it (facts, positions,
// what shards receive) has one text to speak of. PostgreSQL's own rewriter does the
// same to the tree. A view over unsharded tables alone stays: the default shard has it.

// ViewRef is a place where a statement names a view.
type ViewRef struct {
	Ref     *pg.RangeVar
	View    *shardmap.View
	Sampled bool // by TABLESAMPLE
}

// ExpandMax bounds how often a text is expanded: views over views.
const ExpandMax = 64

// viewReach is what a view's query reads, through other views too.
type viewReach struct {
	Sharded, reference, Whole bool
	Catalog                   bool     // one of PostgreSQL's own
	Unknown                   []string // names that the map does not know
	Unread                    error    // why the definition cannot be read
	depth                     int
}

// Spread reports whether some of the rows are not on the default shard alone.
func (r viewReach) Spread() bool { return r.Sharded || r.reference }

func (r *viewReach) count(to *Touched, rel Relation) {
	switch {
	case rel.View != nil:
		in := to.ReachOf(rel.View)
		r.Sharded, r.reference, r.Whole = r.Sharded || in.Sharded, r.reference || in.reference, r.Whole || in.Whole
		r.Catalog = r.Catalog || in.Catalog
	case rel.Virtual:
		fail(sqlstate.Refusal("CLV-0712", "table %s is answered by the router and cannot be in a view", sqltext.QuoteName(rel.Schema, rel.Name)).
			WithHint("Read it in a statement of its own."))
	case rel.Table == nil:
		r.Whole = true // the catalogue, or a table that the map does not know
		r.Catalog = r.Catalog || rel.Catalog
		if !rel.Catalog {
			r.Unknown = append(r.Unknown, rel.Name)
		}
	case rel.Table.Kind == shardmap.Sharded:
		r.Sharded = true
	case rel.Table.Kind == shardmap.Reference:
		r.reference = true
	default:
		r.Whole = true
	}
}

// ReachOf says what a view reads. A definition that cannot be read may read anything.
func (to *Touched) ReachOf(v *shardmap.View) viewReach {
	if to.Has.depth >= ExpandMax {
		return viewReach{Sharded: true, reference: true, Whole: true}
	}
	if r, ok := to.views().reaches[v]; ok {
		return r
	}
	b := &Analysis{}
	b.Begin(*to.Reader, v.Definition, to.Typer.Snapshot, nil, nil, nil)
	b.Has.depth, b.definitions = to.Has.depth+1, to.views()
	if err := b.Define(nil); err != nil {
		b.Has = viewReach{Sharded: true, reference: true, Whole: true, Unread: err}
	}
	to.views().reaches[v] = b.Has
	return b.Has
}

// Define counts what a query reads: that of a CREATE VIEW, or, with nil, the text itself.
func (a *Analysis) Define(q *pg.SelectStmt) (err error) {
	if q == nil {
		tree, err := a.reader.Parser.Parse(a.SQL)
		if err != nil {
			return err
		}
		if len(tree.Stmts) != 1 || tree.Stmts[0].Stmt.GetSelectStmt() == nil {
			return sqlstate.New(sqlstate.DataCorrupted, "the definition of a view is not a query")
		}
		q = tree.Stmts[0].Stmt.GetSelectStmt()
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			err = b.Err
		}
	}()
	a.defining = true
	a.SelectQuery(q, nil)
	a.defining = false
	return nil
}

// definitions are what was found out of views, for a statement and the definitions that it leads to.
type definitions struct {
	weights map[*shardmap.View]int
	reaches map[*shardmap.View]viewReach
}

func newDefinitions() *definitions {
	return &definitions{weights: map[*shardmap.View]int{}, reaches: map[*shardmap.View]viewReach{}}
}

// weighView adds a view to what the statement reads.
func (to *Touched) weighView(v *shardmap.View) {
	if to.weight += to.views().view(to, v); to.weight > complexity.TablesMax {
		fail(complexity.ErrTooManyTables())
	}
}

// view is how many tables a view reads, complexity.TablesMax + 1 if they are more. A definition that cannot be read counts as one.
func (w *definitions) view(to *Touched, v *shardmap.View) int {
	if n, ok := w.weights[v]; ok {
		return n
	}
	w.weights[v] = 1 // a view that reads itself is none
	if tree, err := to.Reader.Parser.Parse(v.Definition); err == nil {
		w.weights[v] = complexity.Tables(tree, func(r *pg.RangeVar) int {
			if below, ok := to.Typer.Snapshot.View(r.Schemaname, r.Relname); ok {
				return w.view(to, below)
			}
			return 1
		})
	}
	return w.weights[v]
}

func (to *Touched) views() *definitions {
	if to.definitions == nil {
		to.definitions = newDefinitions()
	}
	return to.definitions
}
