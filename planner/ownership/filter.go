package ownership

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Filter says how a text is confined to the rows that a shard owns. nil: it needs not be.
type Filter struct {
	Keyspace string
	text     string
	sites    []site

	mu       sync.Mutex
	marked   []string   // the text, cut at the conditions; nil: not made yet
	columns  [][]string // of each condition, the shard key in SQL
	rendered map[string]rendered
	// before and after stand around text in what is run.
	before, after string
}

// rendered is the text of one shard, by the versions of the maps that it was made with.
type rendered struct {
	versions [2]uint64
	text     string
	err      error
}

// site is where a text names a table that has strangers.
type site struct {
	nth   int // of the text's table names
	table *shardmap.Table
}

// NamedTable is a table with the place where a tree names it.
type NamedTable struct {
	Ref   *pg.RangeVar
	Table *shardmap.Table
}

// Sites notes the places of tables in a tree that has become a text. ok: all are there.
func Sites(tree *pg.Node, text string, tables ...NamedTable) (o *Filter, ok bool) {
	o = &Filter{text: text}
	for _, u := range tables {
		found := false
		nth := 0
		sqltree.EachRangeVar(tree.ProtoReflect(), func(v *pg.RangeVar) {
			if v.Location == u.Ref.Location && v.Relname == u.Ref.Relname {
				o.sites, found = append(o.sites, site{nth, u.Table}), true
			}
			nth++
		})
		if !found {
			return nil, false
		}
		o.Keyspace = u.Table.Keyspace
	}
	return o, true
}

// On is the text with the conditions for a shard, plain if it needs none.
func (o *Filter) On(plain, shard string, maps []*shardmap.Snapshot) (string, error) {
	if o == nil || !slices.ContainsFunc(maps, o.moves) {
		return plain, nil
	}
	var versions [2]uint64
	for i, snap := range maps {
		versions[i] = snap.Version()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.rendered[shard]
	if !ok || r.versions != versions {
		r = rendered{versions: versions}
		var keys []keyspace.Ownership
		for _, snap := range maps {
			if k, ok := o.unowned(snap, shard); ok {
				keys = append(keys, k)
			}
		}
		if len(keys) > 0 {
			r.text, r.err = o.without(keys)
		}
		if o.rendered == nil {
			o.rendered = map[string]rendered{}
		}
		o.rendered[shard] = r
	}
	if r.text == "" && r.err == nil {
		return plain, nil
	}
	return r.text, r.err
}

// moves reports whether a part of the keyspace is on the move, which is rare.
func (o *Filter) moves(snap *shardmap.Snapshot) bool {
	index, known := snap.Keyspace(o.Keyspace)
	return known && len(index.Def().Transits) > 0
}

// unowned are the keys that are to be left out on a shard. Keys pinned to third
// shards need no exception among them: the shard has no rows of theirs.
func (o *Filter) unowned(snap *shardmap.Snapshot, shard string) (keys keyspace.Ownership, ok bool) {
	if keys, ok = snap.Strangers(o.Keyspace, shard); !ok {
		return keys, false
	}
	index, _ := snap.Keyspace(o.Keyspace)
	keys.PinnedElsewhere = slices.DeleteFunc(slices.Clone(keys.PinnedElsewhere), func(k keyspace.Key) bool {
		at, err := index.Locate(k)
		return err == nil && at.Shard != shard
	})
	return keys, true
}

// Around is the same for a text that has this one inside.
func (o *Filter) Around(before, after string) *Filter {
	if o == nil {
		return nil
	}
	return &Filter{Keyspace: o.Keyspace, text: o.text, sites: o.sites, before: before + o.before, after: o.after + after}
}

// without is the text without the rows of some keys.
func (o *Filter) without(keys []keyspace.Ownership) (string, error) {
	if o.marked == nil {
		if err := o.mark(); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	b.WriteString(o.before)
	for i, piece := range o.marked {
		b.WriteString(piece)
		if i == len(o.columns) {
			break
		}
		var any []string
		for k := range keys {
			if c := keyspace.Condition(&keys[k], o.columns[i]); !slices.Contains(any, c) {
				any = append(any, c)
			}
		}
		if len(any) == 1 {
			b.WriteString(any[0])
		} else {
			b.WriteString("(" + strings.Join(any, " OR ") + ")")
		}
	}
	b.WriteString(o.after)
	return b.String(), nil
}

// tableAlias is what a table is called in a subquery that stands for it.
const tableAlias = "t"

// markName stands for a condition while a tree is written down.
const markName = "cleave_strangers_"

// mark makes the text with the conditions.
func (o *Filter) mark() error {
	lost := sqlstate.Refusal("CLV-0271", "a part of the keyspace %s moves, and the router does not know how to leave out the rows that are on two shards", sqltext.QuoteIdent(o.Keyspace)).
		WithHint("Write the statement in a simpler way, or wait for the end of the move: cleave moves.")
	tree, err := pg.Parse(o.text)
	if err != nil || len(tree.Stmts) != 1 {
		return lost
	}
	r := &restriction{tables: map[*pg.RangeVar]*shardmap.Table{}}
	nth := 0
	sqltree.EachRangeVar(tree.ProtoReflect(), func(v *pg.RangeVar) {
		for _, p := range o.sites {
			if p.nth == nth {
				r.tables[v] = p.table
			}
		}
		nth++
	})
	r.statement(tree.Stmts[0].Stmt)
	text, ok := sqltree.Restate(tree.Stmts[0].Stmt)
	if !ok || len(r.tables) > 0 {
		return lost
	}
	var pieces []string
	o.columns = nil
	at := 0
	ts := sqlguard.Tokens(text)
	for i, t := range ts {
		rest, is := strings.CutPrefix(text[t.Start:t.End], markName)
		if !is || t.Kind != sqlguard.Ident || i+2 >= len(ts) || text[ts[i+1].Start:ts[i+2].End] != "()" {
			continue
		}
		n, err := strconv.Atoi(rest)
		if err != nil || n >= len(r.columns) {
			return lost
		}
		pieces = append(pieces, text[at:t.Start])
		o.columns = append(o.columns, r.columns[n])
		at = ts[i+2].End
	}
	if len(pieces) != len(r.columns) {
		return lost
	}
	o.marked = append(pieces, text[at:])
	return nil
}

// restriction puts conditions into a tree.
type restriction struct {
	tables  map[*pg.RangeVar]*shardmap.Table // still to be restricted
	columns [][]string
}

// condition is what is true for rows that are no strangers. name is what the
// table is called where the condition stands.
func (r *restriction) condition(t *shardmap.Table, name string, columns []string) *pg.Node {
	var all []string
	for _, k := range t.ShardKey {
		for i := range t.Columns {
			if t.Columns[i].Name == k && i < len(columns) {
				k = columns[i] // renamed
				break
			}
		}
		all = append(all, name+"."+sqltext.QuoteAlways(k))
	}
	r.columns = append(r.columns, all)
	call := &pg.Node{Node: &pg.Node_FuncCall{FuncCall: &pg.FuncCall{Funcname: []*pg.Node{sqltree.StringNode(markName + strconv.Itoa(len(r.columns)-1))}, Funcformat: pg.CoercionForm_COERCE_EXPLICIT_CALL}}}
	return &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_NOT_EXPR, Args: []*pg.Node{call}}}}
}

// visible is the condition on a table where its name can be used.
func (r *restriction) visible(v *pg.RangeVar, twin bool) *pg.Node {
	t := r.tables[v]
	delete(r.tables, v)
	switch {
	case v.Alias != nil:
		return r.condition(t, sqltext.QuoteAlways(v.Alias.Aliasname), sqltree.Strings(v.Alias.Colnames))
	case twin && v.Schemaname != "":
		return r.condition(t, sqltext.QuoteAlways(v.Schemaname)+"."+sqltext.QuoteAlways(v.Relname), nil)
	}
	return r.condition(t, sqltext.QuoteAlways(v.Relname), nil)
}

// subquery is a query that stands for a table.
func (r *restriction) subquery(v *pg.RangeVar) *pg.Node {
	t := r.tables[v]
	delete(r.tables, v)
	from := sqltree.Clone(&pg.Node{Node: &pg.Node_RangeVar{RangeVar: v}}).GetRangeVar()
	from.Alias = &pg.Alias{Aliasname: tableAlias}
	alias := v.Alias
	if alias == nil {
		alias = &pg.Alias{Aliasname: v.Relname}
	}
	star := &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}
	return &pg.Node{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Alias: alias,
		Subquery: sqltree.SelectOf([]*pg.Node{star}, []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: from}}}, []*pg.Node{r.condition(t, sqltext.QuoteAlways(tableAlias), nil)})}}}
}

// statement restricts the tables of a statement at the levels where they stand.
func (r *restriction) statement(n *pg.Node) {
	sqltree.Descend(n.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			names := map[string]int{}
			for _, f := range v.FromClause {
				sqltree.EachFrom(f, false, func(n *pg.Node, _ bool) { names[n.GetRangeVar().Relname]++ })
			}
			for _, f := range v.FromClause {
				sqltree.EachFrom(f, false, func(n *pg.Node, hidden bool) {
					t := n.GetRangeVar()
					switch {
					case r.tables[t] == nil:
					case hidden:
						proto.Merge(reset(n), r.subquery(t))
					default:
						v.WhereClause = sqltree.And(v.WhereClause, r.visible(t, names[t.Relname] > 1))
					}
				})
			}
		case *pg.UpdateStmt:
			if r.tables[v.Relation] != nil {
				v.WhereClause = sqltree.And(v.WhereClause, r.visible(v.Relation, false))
			}
		case *pg.DeleteStmt:
			if r.tables[v.Relation] != nil {
				v.WhereClause = sqltree.And(v.WhereClause, r.visible(v.Relation, false))
			}
		case *pg.MergeStmt:
			if s := v.SourceRelation.GetRangeVar(); r.tables[s] != nil {
				v.SourceRelation = r.subquery(s)
			}
			if t := r.tables[v.Relation]; t != nil {
				// In the clauses, not in ON: there it could be what a full join does not take.
				for _, w := range v.MergeWhenClauses {
					if c := w.GetMergeWhenClause(); c.MatchKind != pg.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_TARGET {
						r.tables[v.Relation] = t
						c.Condition = sqltree.And(c.Condition, r.visible(v.Relation, false))
					}
				}
				delete(r.tables, v.Relation)
			}
		case *pg.CopyStmt:
			if t := r.tables[v.Relation]; t != nil {
				cols := sqltree.Strings(v.Attlist)
				if len(cols) == 0 {
					for i := range t.Columns {
						if !t.Columns[i].Computed {
							cols = append(cols, t.Columns[i].Name)
						}
					}
				}
				var out []*pg.Node
				for _, c := range cols {
					out = append(out, sqltree.ColumnNode(tableAlias, c))
				}
				q := r.subquery(v.Relation).GetRangeSubselect().Subquery
				q.GetSelectStmt().TargetList = nil
				for _, o := range out {
					q.GetSelectStmt().TargetList = append(q.GetSelectStmt().TargetList, sqltree.TargetNode(o, ""))
				}
				v.Query, v.Relation, v.Attlist = q, nil, nil
			}
		}
		return true
	})
}

func reset(n *pg.Node) *pg.Node {
	proto.Reset(n)
	return n
}
