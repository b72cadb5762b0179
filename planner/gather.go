package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Gather: every table that a SELECT reads becomes a relation, with the columns
// and the rows that can matter, and the statement runs on the relations. Nothing
// has to be proved about the statement as a whole; what has to be certain is
// that nothing of a table is left out that it could look at.
// docs/design/gather.md has the rules.

// gatherer makes relations of the tables of one statement.
type gatherer struct {
	plans *readPlans
	occ   []*occurrence
	// refs are the names by which columns are asked for, anywhere.
	refs []fieldRef
	// names counts what each name in FROM may stand for.
	names map[string][]*occurrence
	other map[string]bool // names in FROM that stand for something else
	// long are references with a schema in front.
	long []*pg.ColumnRef
	// keep is a table that stays what it is: the target of a write.
	keep *pg.RangeVar
	// target is where the text has to run: AnyOne, or Default.
	home plan.Where
	// places of the tree's tables in the tree that the analysis has seen.
	original map[*pg.RangeVar]*pg.RangeVar
	selects  map[*pg.SelectStmt]*pg.SelectStmt
	// given are relations that stand for whole subqueries.
	given []plan.Relation
	whole bool // no subquery may be given away as a whole

	typeof bool // it calls pg_typeof
	idle   bool // of the level that is read no condition goes to the shards
	depth  int  // of subqueries in expressions
}

// occurrence is one table in one FROM clause.
type occurrence struct {
	v     *pg.RangeVar
	table *shardmap.Table
	names []string // its own, and those of the joins with an alias around it
	lone  bool     // without an alias
	only  bool     // FROM ONLY
	all   bool     // every column is needed
	whole bool     // the row as such is used
	need  map[string]bool
	conds []*pg.Node // what holds for every row that matters
	index [][]string
	keyed bool // the primary key may be needed for GROUP BY
	rel   *gathered
}

// fieldRef is a column reference: names, and a star at the end or not.
type fieldRef struct {
	names []string
	star  bool
	list  bool // name.* in a SELECT list: columns, not a row
}

// gathered is a relation in the making.
type gathered struct {
	table  *shardmap.Table
	target plan.Target
	key    string // of the target
	need   map[string]bool
	all    bool
	keyed  bool
	exact  bool
	only   bool
	conds  map[string]*pg.Node // by text
	order  []string
	index  [][]string
}

func (rp *readPlans) newGatherer() *gatherer {
	return &gatherer{plans: rp, names: map[string][]*occurrence{}, other: map[string]bool{}, home: plan.AnyOne, original: map[*pg.RangeVar]*pg.RangeVar{}, selects: map[*pg.SelectStmt]*pg.SelectStmt{}}
}

// planGather plans any query by fetching what it reads onto one connection. It
// refuses what cannot be answered so.
func (rp *readPlans) planGather(n *pg.Node) (*plan.Plan, error) {
	g := rp.newGatherer()
	rels, tree := g.readTables(n, nil)
	text, err := rp.text(tree)
	if err != nil {
		return nil, err
	}
	return &plan.Plan{Op: plan.Gather, Relations: rels, Text: text, Target: plan.Target{Where: g.home}, Why: "its rows cannot be combined as they come from the shards"}, nil
}

// readTables returns a copy of a statement in which every table that it reads
// is a relation; keep, a table that it changes, stays.
func (g *gatherer) readTables(n *pg.Node, keep *pg.RangeVar) ([]plan.Relation, *pg.Node) {
	tree := sqltree.Clone(n)
	var before, after []protoreflect.Message
	sqltree.EachMessage(n.ProtoReflect(), func(m protoreflect.Message) { before = append(before, m) })
	sqltree.EachMessage(tree.ProtoReflect(), func(m protoreflect.Message) { after = append(after, m) })
	for i, m := range after {
		switch v := m.Interface().(type) {
		case *pg.RangeVar:
			was := before[i].Interface().(*pg.RangeVar)
			if g.original[v] = was; was == keep {
				g.keep = v
			}
		case *pg.SelectStmt:
			g.selects[v] = before[i].Interface().(*pg.SelectStmt)
		}
	}
	g.whole = keep != nil || g.plans.PreferDefault
	g.plans.clocked(tree)
	sequence, prefer := g.plans.Sequence, g.plans.PreferDefault
	g.plans.Sequence, g.plans.PreferDefault = "", false
	g.node(tree, &gatherScope{})
	if g.plans.Sequence != "" {
		fail(sqlstate.Refusal("CLV-0250", "%s() in a statement over several shards would count on one of them", g.plans.Sequence).
			WithHint("Get the value in a statement of its own: SELECT %s(...).", g.plans.Sequence))
	}
	if g.plans.PreferDefault {
		fail(sqlstate.Refusal("CLV-0251", "the statement reads a shard's own catalogue beside rows of several shards").
			WithHint("Read the catalogue in a statement of its own."))
	}
	g.plans.Sequence, g.plans.PreferDefault = sequence, prefer
	g.needs()
	g.shorten()
	for i := range g.given {
		g.given[i].Exact = g.given[i].Exact || g.typeof
	}
	return append(g.given, g.relations()...), tree
}

// needs works out which columns each occurrence needs: by name alone, so too
// many rather than too few.
func (g *gatherer) needs() {
	for _, r := range g.refs {
		last := ""
		if len(r.names) > 0 {
			last = r.names[len(r.names)-1]
		}
		switch {
		case r.star && len(r.names) == 0:
			// Seen where it stands, see level.
		case r.star:
			for _, o := range g.names[last] {
				o.all, o.whole = true, o.whole || !r.list
			}
		case len(r.names) == 1:
			for _, o := range g.occ {
				o.want(last)
			}
			for _, o := range g.names[last] {
				o.all, o.whole = true, true
			}
		default:
			for _, o := range g.names[r.names[len(r.names)-2]] {
				o.want(last)
			}
		}
		if !r.star && sqltree.SystemColumns[last] {
			for _, o := range g.occ {
				if keyColumnNamed(o.table, last) {
					last = ""
				}
			}
			if last != "" && !g.other[""] {
				fail(sqlstate.Refusal("CLV-0252", "the system column %s has no meaning for rows of several shards", last).
					WithHint("Name the rows by their key."))
			}
		}
	}
	for _, o := range g.occ {
		if g.typeof && o.whole {
			fail(sqlstate.Refusal("CLV-0253", "pg_typeof() of a row of %s cannot be told for rows of several shards", sqltext.QuoteName(o.table.Schema, o.table.Name)).
				WithHint("Use the columns."))
		}
	}
}

func keyColumnNamed(t *shardmap.Table, name string) bool {
	return slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return c.Name == name })
}

func (o *occurrence) want(name string) {
	if keyColumnNamed(o.table, name) {
		o.need[name] = true
	}
}

// shorten takes the schema off column references, since a relation has none.
func (g *gatherer) shorten() {
	for _, c := range g.long {
		names := sqltree.Strings(c.Fields)
		if len(names)+1 < len(c.Fields) || len(c.Fields) > 3 {
			fail(sqlstate.Refusal("CLV-0254", "column references with a database in front are not supported").
				WithHint("Leave out the database name."))
		}
		schema, rel := names[0], names[1]
		occ := g.names[rel]
		if len(occ) == 0 {
			continue
		}
		for _, o := range occ {
			if !o.lone || o.table.Schema != schema || g.other[rel] {
				fail(sqlstate.Refusal("CLV-0255", "the column reference %s is not clear once rows of several shards are brought together", sqltext.QuoteName(schema, rel)).
					WithHint("Give the table an alias and use that."))
			}
		}
		c.Fields = c.Fields[1:]
	}
	// Two tables of one name and no alias, from two schemas.
	for name, occ := range g.names {
		for _, o := range occ {
			if o.lone && (o.table != occ[0].table) {
				fail(sqlstate.Refusal("CLV-0256", "two tables called %s are read without an alias", sqltext.QuoteIdent(name)).
					WithHint("Give each of them an alias."))
			}
		}
	}
}

// relations decides which occurrences share a relation, and puts the names in.
func (g *gatherer) relations() []plan.Relation {
	var rels []*gathered
	for _, o := range g.occ {
		target := g.targetOf(o)
		mine := map[string]*pg.Node{}
		var order []string
		for _, c := range o.conds {
			text, err := g.plans.text(sqltree.SelectOf([]*pg.Node{c}, nil, nil))
			if err != nil {
				continue
			}
			if _, have := mine[text]; !have {
				order = append(order, text)
			}
			mine[text] = c
		}
		key := targetKey(target)
		for _, r := range rels {
			if r.table != o.table || r.key != key || r.only != o.only {
				continue
			}
			// A relation with more rows serves as well: the statement's own
			// conditions stay where they are.
			if subsetOf(r.conds, mine) {
				o.rel = r
				break
			}
			if subsetOf(mine, r.conds) {
				r.conds, r.order, o.rel = mine, order, r
				break
			}
		}
		if o.rel == nil {
			o.rel = &gathered{table: o.table, target: target, key: key, need: map[string]bool{}, conds: mine, order: order, only: o.only}
			rels = append(rels, o.rel)
		}
		r := o.rel
		r.all = r.all || o.all
		r.keyed = r.keyed || o.keyed
		r.exact = r.exact || o.whole || g.typeof
		for n := range o.need {
			r.need[n] = true
		}
		for _, ix := range o.index {
			if !slices.ContainsFunc(r.index, func(have []string) bool { return slices.Equal(have, ix) }) {
				r.index = append(r.index, ix)
			}
		}
	}
	out := make([]plan.Relation, len(rels))
	for i, r := range rels {
		name := g.plans.texts.fresh()
		out[i] = plan.Relation{Name: name, Target: r.target, Index: r.index, Table: r.table, Keyed: r.keyed, Exact: r.exact}
		out[i].Text, out[i].Ownership = r.text(g.plans)
		for _, o := range g.occ {
			if o.rel != r {
				continue
			}
			if o.v.Alias == nil {
				o.v.Alias = &pg.Alias{Aliasname: o.v.Relname}
			}
			o.v.Catalogname, o.v.Schemaname, o.v.Relname, o.v.Inh = "", "", name, true
		}
	}
	return out
}

func subsetOf(a, b map[string]*pg.Node) bool {
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return true
}

// text is what each shard runs for a relation.
func (r *gathered) text(a *readPlans) (string, *ownership.Filter) {
	var cols []*pg.Node
	for i := range r.table.Columns {
		if c := r.table.Columns[i].Name; r.all || r.need[c] {
			cols = append(cols, sqltree.ColumnNode(relationAlias, c))
		}
	}
	if len(cols) == 0 && len(r.table.Columns) > 0 {
		// Only the number of rows matters.
		name := r.table.Columns[0].Name
		if len(r.table.ShardKey) > 0 {
			name = r.table.ShardKey[0]
		}
		cols = append(cols, sqltree.ColumnNode(relationAlias, name))
	}
	from := &pg.RangeVar{Schemaname: r.table.Schema, Relname: r.table.Name, Inh: !r.only, Relpersistence: "p", Location: -1, Alias: &pg.Alias{Aliasname: relationAlias}}
	var conds []*pg.Node
	for _, k := range r.order {
		conds = append(conds, r.conds[k])
	}
	tree := sqltree.SelectOf(cols, []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: from}}}, conds)
	text := a.written(tree)
	if r.table.Kind != shardmap.Sharded {
		return text, nil
	}
	return text, ownershipOf(tree, text, &semantics.Use{Ref: from, Relation: semantics.Relation{Table: r.table}})
}

// relationAlias is what a table is called in the text of its relation.
const relationAlias = "t"

// targetOf says which shards have the rows of an occurrence.
func (g *gatherer) targetOf(o *occurrence) plan.Target {
	switch o.table.Kind {
	case shardmap.Sharded:
		if u := g.plans.bound.UseAt(g.original[o.v]); u != nil && u.Relation.Table == o.table {
			return g.plans.targetOf(u)
		}
		return plan.Target{Where: plan.KeyShards, Keyspace: o.table.Keyspace}
	case shardmap.Reference:
		return plan.Target{Where: plan.AnyOne}
	}
	return plan.Target{Where: plan.Default}
}

// targetKey is equal for equal targets.
func targetKey(t plan.Target) string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(int(t.Where)) + " " + t.Keyspace)
	if t.Keys == nil {
		b.WriteString(" all") // which is not the same as no key at all
	}
	for _, s := range t.Spans {
		for _, e := range []*plan.KeyExpr{s.Low, s.High} {
			b.WriteByte('<')
			if e != nil {
				b.WriteString(e.String() + "@" + strconv.Itoa(int(e.Location)))
			}
		}
		b.WriteString(fmt.Sprint(s.LowOpen, s.HighOpen))
	}
	for _, k := range t.Keys {
		b.WriteByte('(')
		for i := range k {
			b.WriteString(k[i].String() + "@" + strconv.Itoa(int(k[i].Location)) + ",")
		}
		b.WriteByte(')')
	}
	return b.String()
}

// table resolves a table that a statement reads.
func (g *gatherer) table(v *pg.RangeVar) *shardmap.Table {
	if v.Catalogname != "" && v.Catalogname != "cleave" {
		fail(sqlstate.Refusal("CLV-0247", "table names with a database in front are not supported").
			WithHint("Leave out the database name."))
	}
	r := g.plans.Relation(v)
	name := sqltext.QuoteName(r.Schema, r.Name)
	switch {
	case r.Virtual:
		fail(sqlstate.Refusal("CLV-0257", "table %s is answered by the router and cannot be joined with rows of several shards", name).
			WithHint("Read it in a statement of its own."))
	case r.Catalog:
		fail(sqlstate.Refusal("CLV-0258", "the catalogue table %s is read beside rows of several shards", name).
			WithHint("Read the catalogue in a statement of its own."))
	case r.Table == nil:
		position := 0
		if o := g.original[v]; o != nil {
			position = g.plans.Position(o.Location)
		}
		fail(semantics.UndefinedTable(name, position))
	}
	semantics.AddTable(&g.plans.st.Tables, r.Table)
	if r.Table.Kind != shardmap.Sharded && r.Table.Kind != shardmap.Reference {
		g.home = plan.Default // no other shard knows its columns
	}
	return r.Table
}
