package semantics

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func virtualWrite(name string) error {
	hint := "the functions of the schema change it: cleave.create_keyspace, cleave.distribute, cleave.pin"
	return sqlstate.New(sqlstate.InsufficientPrivilege, "%s is read-only", name).WithHint("%s", hint)
}

// PlainValues reports whether a query is nothing but a list of rows.
func PlainValues(sel *pg.SelectStmt) bool {
	return sel.ValuesLists != nil && sel.WithClause == nil && sel.SortClause == nil && sel.LimitCount == nil && sel.LimitOffset == nil
}

// Modify analyses INSERT, UPDATE, DELETE and MERGE, at the top or in WITH, and
// proves it. It returns the columns of RETURNING, with what is known of them.
func (a *binder) Modify(n *pg.Node, parent *Scope, top bool) *cte {
	if a.defining {
		fail(a.ChangingView())
	}
	a.Changes = true
	tag := ""
	var returning []*pg.Node
	out := &cte{open: true}
	switch v := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		tag, returning = "INSERT", v.InsertStmt.ReturningList
		a.fill.FillInsert(v.InsertStmt, top)
		out = a.insert(v.InsertStmt, parent)
	case *pg.Node_UpdateStmt:
		tag, returning = "UPDATE", v.UpdateStmt.ReturningList
		out = a.update(v.UpdateStmt, parent)
	case *pg.Node_DeleteStmt:
		tag, returning = "DELETE", v.DeleteStmt.ReturningList
		out = a.delete(v.DeleteStmt, parent)
	case *pg.Node_MergeStmt:
		tag, returning = "MERGE", v.MergeStmt.ReturningList
		a.merge(v.MergeStmt, parent)
	default:
		fail(sqlstate.Refusal("CLV-0322", "this statement is not supported inside WITH"))
	}
	if top {
		a.st.Tag, a.st.ReturnsRows = tag, len(returning) > 0
	}
	return out
}

// returned are the columns of RETURNING. Of the shard key of the table that is changed
// it is known what the facts say.
func returned(list []*pg.Node, sc *Scope, target *JoinNode, f *Facts) *cte {
	out := &cte{}
	add := func(c Column) {
		var set []Constant
		if target.Key != nil && slices.Contains(target.Key, c.Term) {
			if best, ok := f.best(AsSet(f.Class(c.Term))); ok {
				set = append([]Constant{}, best...)
			}
		}
		c.Term = NoTerm
		out.cols, out.sets = append(out.cols, c), append(out.sets, set)
	}
	for _, n := range list {
		r := n.GetResTarget()
		names := sqltree.FieldNames(r.GetVal().GetColumnRef())
		switch {
		case sqltree.IsStar(n):
			of := sqltree.Strings(r.Val.GetColumnRef().GetFields())
			for _, it := range sc.Items {
				if len(of) > 0 && it.Name != of[len(of)-1] {
					continue
				}
				out.open = out.open || it.Open
				for _, c := range it.Columns {
					add(c)
				}
			}
		case names != nil:
			c := sc.resolve(names)
			if c.Name = r.Name; c.Name == "" {
				c.Name = names[len(names)-1]
			}
			add(c)
		default:
			name := r.GetName()
			if name == "" {
				name = outputname.Of(r.GetVal())
			}
			add(Column{Name: name, Term: NoTerm})
		}
	}
	return out
}

// target reads the table that a statement changes.
func (a *binder) target(v *pg.RangeVar, sc *Scope) (*JoinNode, *Item) {
	// A WITH query of that name does not count here.
	j, items := a.tableRef(v, &Scope{})
	r := a.Relation(v)
	switch {
	case r.Virtual:
		fail(virtualWrite(sqltext.QuoteName(r.Schema, r.Name)))
	case r.Catalog:
		// pg_settings above all: an UPDATE of it is a SET in the shard's session,
		// which the router would not know of.
		e := sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied: %q is a system catalog", r.Name)
		if r.Name == "pg_settings" {
			e = e.WithHint("SET changes a setting")
		}
		fail(e)
	case r.View != nil && a.ReachOf(r.View).Catalog:
		// The shards' role may be a superuser, who may write to catalogues.
		a.ViewRefs = nil // nothing to be written out
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied: view %q reads a system catalog", r.Name).WithHint("write to the view's tables themselves"))
	case r.View != nil && a.ReachOf(r.View).Spread():
		a.ViewRefs = nil // nothing to be written out
		fail(sqlstate.Refusal("CLV-0323", "writing through the view %s, which is over a sharded or reference table, is not supported", sqltext.QuoteName(r.Schema, r.Name)).
			WithHint("Write to the table itself."))
	case r.Table != nil:
		AddTable(&a.st.Writes, r.Table)
	}
	sc.Items = append(sc.Items, items...)
	return j, items[0]
}

// assignments refuses changes of shard key columns and walks the values.
func (a *binder) assignments(t *shardmap.Table, list []*pg.Node, w *Walker, it *Item) {
	for _, n := range list {
		r := n.GetResTarget()
		if r == nil {
			continue
		}
		if t != nil && t.Kind == shardmap.Sharded {
			for _, k := range t.ShardKey {
				if r.Name == k {
					a.one.RefuseOne(sqlstate.Refusal("CLV-0324", "column %s of table %s is its shard key: changing it would move the row to another shard", sqltext.QuoteIdent(k), sqltext.QuoteName(t.Schema, t.Name)).
						WithHint("Delete the row and insert it again with the new key, in two statements."))
				}
			}
		}
		for _, c := range it.Columns {
			if c.Name == r.Name {
				a.agree(r.Val, c.typ)
			}
		}
		a.Walk(n, w)
	}
}

func (a *binder) update(u *pg.UpdateStmt, parent *Scope) *cte {
	sc := &Scope{parent: parent}
	q := &Query{up: true, down: true}
	q.With = a.withClause(u.WithClause, sc)
	t, it := a.target(u.Relation, sc)
	real := *it
	q.Root = a.from(u.FromClause, sc)
	q.Root.add(t)
	a.where(q.Root, u.WhereClause, sc)
	w := &Walker{Scope: sc, Subqueries: &q.Subqueries}
	a.assignGenerated(u.Relation, u.TargetList)
	a.assignments(t.table, u.TargetList, w, &real)
	a.walkList(u.ReturningList, w)
	return returned(u.ReturningList, sc, t, a.Prove(q))
}

func (j *JoinNode) add(k *JoinNode) {
	j.Kids = append(j.Kids, k)
	for r := range k.rtes {
		j.rtes[r] = true
	}
}

// NoFacts is the start of a proof: nothing is known.
func NoFacts() *Facts { return &Facts{learned: map[*JoinNode]bool{}} }

func (a *binder) delete(d *pg.DeleteStmt, parent *Scope) *cte {
	sc := &Scope{parent: parent}
	q := &Query{up: true, down: true}
	q.With = a.withClause(d.WithClause, sc)
	t, _ := a.target(d.Relation, sc)
	q.Root = a.from(d.UsingClause, sc)
	q.Root.add(t)
	a.where(q.Root, d.WhereClause, sc)
	a.walkList(d.ReturningList, &Walker{Scope: sc, Subqueries: &q.Subqueries})
	return returned(d.ReturningList, sc, t, a.Prove(q))
}

// merge: the source is the preserved side of an outer join with the target.
func (a *binder) merge(m *pg.MergeStmt, parent *Scope) {
	sc := &Scope{parent: parent}
	q := &Query{up: true, down: true}
	q.With = a.withClause(m.WithClause, sc)
	t, _ := a.target(m.Relation, sc)
	source := &Scope{parent: parent, ctes: sc.ctes}
	s, items := a.fromItem(m.SourceRelation, source)
	sc.Items = append(sc.Items, items...)
	j := newNode(LeftJoin, s, t)
	a.where(j, m.JoinCondition, sc)
	q.Root = newNode(InnerJoin, j)
	w := &Walker{Scope: sc, Subqueries: &q.Subqueries}
	var inserts []*pg.MergeWhenClause
	for _, n := range m.MergeWhenClauses {
		c := n.GetMergeWhenClause()
		a.Walk(c.Condition, w)
		switch c.CommandType {
		case pg.CmdType_CMD_UPDATE:
			a.assignGenerated(m.Relation, c.TargetList)
			a.assignments(t.table, c.TargetList, w, &Item{})
		case pg.CmdType_CMD_INSERT:
			inserts = append(inserts, c)
			a.mergeGenerated(m.Relation, c)
			a.walkList(c.Values, w)
		}
		if c.MatchKind == pg.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_SOURCE && t.table != nil && t.table.Kind == shardmap.Sharded {
			a.one.RefuseOne(sqlstate.Refusal("CLV-0325", "WHEN NOT MATCHED BY SOURCE looks at every row of %s, which is on several shards", sqltext.QuoteName(t.table.Schema, t.table.Name)).
				WithHint("Use DELETE or UPDATE with a fixed shard key for these rows."))
		}
	}
	a.walkList(m.ReturningList, w)
	f := a.Prove(q)
	if t.table == nil || t.table.Kind != shardmap.Sharded {
		return
	}
	for _, c := range inserts {
		cols := make([]string, 0, len(c.TargetList))
		for _, n := range c.TargetList {
			cols = append(cols, n.GetResTarget().GetName())
		}
		if len(c.TargetList) == 0 {
			cols = ColumnNames(t.table)
		}
		a.insertRow(t.table, cols, c.Values, sc, f)
	}
}

// ColumnNames are the names of a table's columns, in order.
func ColumnNames(t *shardmap.Table) []string {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	return names
}

func (a *binder) insert(s *pg.InsertStmt, parent *Scope) *cte {
	outside := a.stores
	a.stores = nil
	defer func() { a.stores = outside }()
	sc := &Scope{parent: parent}
	q := &Query{up: true}
	q.Root = newNode(InnerJoin)
	q.With = a.withClause(s.WithClause, sc)
	outer := &Scope{parent: parent, ctes: sc.ctes}
	target := &Scope{parent: parent, ctes: sc.ctes}
	j, it := a.target(s.Relation, target)
	t := j.table
	cols := insertColumns(s, t, it)
	sel := s.SelectStmt.GetSelectStmt()
	switch {
	case sel == nil:
		if t != nil {
			a.one.RefuseOne(sqlstate.Refusal("CLV-0309", "INSERT ... DEFAULT VALUES gives no value for the shard key of %s", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Name the shard key column %s and its value.", sqltext.QuoteIdent(t.ShardKey[0])))
		}
	case PlainValues(sel):
		a.insertRows(t, cols, sel.ValuesLists, it, &Walker{Scope: outer, Subqueries: &q.Subqueries})
	default:
		sub := a.SelectQuery(sel, outer)
		f := a.Prove(sub)
		if t != nil {
			a.insertSelected(t, cols, sub, f)
		}
	}
	if c := s.OnConflictClause; c != nil {
		excluded := *it
		excluded.Name, excluded.schema, excluded.Columns = "excluded", "", append([]Column(nil), it.Columns...)
		for i := range excluded.Columns {
			excluded.Columns[i].Term = NoTerm
		}
		conflict := &Scope{parent: parent, ctes: sc.ctes, Items: []*Item{it, &excluded}}
		a.onConflict(s, t, it, &Walker{Scope: conflict, Subqueries: &q.Subqueries})
	}
	a.walkList(s.ReturningList, &Walker{Scope: target, Subqueries: &q.Subqueries})
	a.Prove(q)
	if a.one.Several || t != nil && !a.storesAsGiven(t) {
		a.stores = nil // not all rows were looked at, or what is stored is not known
	}
	return returned(s.ReturningList, target, j, a.stored(j))
}

// insertColumns are the columns that an INSERT names, "" for a part of one, or those of its table.
func insertColumns(s *pg.InsertStmt, t *shardmap.Table, it *Item) []string {
	if len(s.Cols) == 0 && t != nil {
		return ColumnNames(t)
	}
	cols := make([]string, 0, len(s.Cols))
	if len(s.Cols) == 0 {
		for _, c := range it.Columns {
			cols = append(cols, c.Name)
		}
	}
	for _, n := range s.Cols {
		r := n.GetResTarget()
		cols = append(cols, r.GetName())
		if len(r.GetIndirection()) > 0 {
			cols[len(cols)-1] = ""
		}
	}
	return cols
}

// insertRows reads the rows of VALUES.
func (a *binder) insertRows(t *shardmap.Table, cols []string, rows []*pg.Node, it *Item, w *Walker) {
	typ := map[string]keyspace.Type{}
	for _, c := range it.Columns {
		typ[c.Name] = c.typ
	}
	for _, row := range rows {
		items := row.GetList().GetItems()
		for i, v := range items {
			if i < len(cols) {
				a.agree(v, typ[cols[i]])
			}
			a.Walk(v, w)
		}
		if t != nil {
			a.insertRow(t, cols, items, nil, nil)
		}
	}
}

// onConflict reads the ON CONFLICT of an INSERT.
func (a *binder) onConflict(s *pg.InsertStmt, t *shardmap.Table, it *Item, w *Walker) {
	c := s.OnConflictClause
	if c.Infer != nil {
		a.walkList(c.Infer.IndexElems, w)
		a.Walk(c.Infer.WhereClause, w)
	}
	a.assignGenerated(s.Relation, c.TargetList)
	a.assignments(t, slices.DeleteFunc(slices.Clone(c.TargetList), func(n *pg.Node) bool {
		if t == nil || !Restates(c, n.GetResTarget()) {
			return false
		}
		a.Walk(n, w)
		return true
	}), w, it)
	a.Walk(c.WhereClause, w)
}

// stored are the facts of the rows that an INSERT stores.
func (rt *Routing) stored(j *JoinNode) *Facts {
	f := NoFacts()
	for i, k := range j.Key {
		set := make([]Constant, 0, len(rt.stores))
		for _, row := range rt.stores {
			set = append(set, row[i])
		}
		if k != NoTerm && len(set) > 0 {
			f.List = append(f.List, OneOf(k, set))
		}
	}
	return f
}

// storesAsGiven reports whether the rows' shard keys are stored as they are: a column's modifier may round a value.
func (a *binder) storesAsGiven(t *shardmap.Table) bool {
	for i, name := range t.ShardKey {
		_, mod, err := keyspace.ParseColumnType(KeyColumn(t, name).Type)
		if err == nil && mod == keyspace.NoModifier {
			continue
		}
		for _, row := range a.stores {
			e, ok := row[i].KeyExpr(row[i].Type)
			if !ok || e.Param != 0 || e.Never || err != nil {
				return false
			}
			if v, err := mod.Coerce(e.Value); err != nil || v != e.Value {
				return false
			}
		}
	}
	return true
}

// Restates reports whether an assignment of ON CONFLICT DO UPDATE gives a column
// the value that it has: SET k = excluded.k, where the conflict is one of equal k.
// ORMs write that for all columns of a key.
func Restates(c *pg.OnConflictClause, r *pg.ResTarget) bool {
	if r == nil || c.Infer == nil || len(r.Indirection) > 0 {
		return false
	}
	from := r.Val.GetColumnRef().GetFields()
	if len(from) != 2 || from[0].GetString_().GetSval() != "excluded" || from[1].GetString_().GetSval() != r.Name {
		return false
	}
	return slices.ContainsFunc(c.Infer.IndexElems, func(n *pg.Node) bool {
		e := n.GetIndexElem()
		return e != nil && e.Name == r.Name && len(e.Collation) == 0 && len(e.Opclass) == 0
	})
}

// KeyPlaces returns the index of each shard key column in an INSERT's columns.
func KeyPlaces(t *shardmap.Table, cols []string) []int {
	at := make([]int, len(t.ShardKey))
	for i, k := range t.ShardKey {
		at[i] = -1
		for j, c := range cols {
			if c == k {
				at[i] = j
			}
		}
		if at[i] < 0 {
			fail(sqlstate.Refusal("CLV-0326", "INSERT into %s gives no value for its shard key column %s", sqltext.QuoteName(t.Schema, t.Name), sqltext.QuoteIdent(k)).
				WithHint("Name the column %s in the INSERT and give its value.", sqltext.QuoteIdent(k)))
		}
	}
	return at
}

// KeyColumn returns a shard key column of a table.
func KeyColumn(t *shardmap.Table, name string) *shardmap.Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	fail(sqlstate.New(sqlstate.DataCorrupted, "the shard map has no column %q of table %s", name, sqltext.QuoteName(t.Schema, t.Name)).WithHint("cleave doctor"))
	return nil
}

// insertRow takes the shard key of one row of VALUES. With facts, a value may
// also be a column that they fix (MERGE).
func (rt *Routing) insertRow(t *shardmap.Table, cols []string, values []*pg.Node, sc *Scope, f *Facts) {
	rt.one.onOne(func() { rt.pinRow(t, cols, values, sc, f) })
}

func (rt *Routing) pinRow(t *shardmap.Table, cols []string, values []*pg.Node, sc *Scope, f *Facts) {
	at := KeyPlaces(t, cols)
	key := make([]plan.KeyExpr, len(at))
	row := make([]Constant, len(at))
	var tuple []Term
	for i, p := range at {
		col := KeyColumn(t, t.ShardKey[i])
		if p >= len(values) {
			fail(sqlstate.Refusal("CLV-0311", "a row has no value for the shard key column %s", sqltext.QuoteIdent(col.Name)).
				WithHint("Give it a value in every row."))
		}
		typ := rt.Types[i]
		k, ok := rt.ConstantOf(values[p], typ, true)
		if !ok {
			if f != nil {
				if c, isCol := rt.ColumnOf(values[p], sc); isCol && c.typ == typ {
					tuple = append(tuple, c.Term)
					continue
				}
			}
			fail(sqlstate.Refusal("CLV-0327", "the value for the shard key column %s of table %s is not a literal or a parameter, so its shard is not known before it runs", sqltext.QuoteIdent(col.Name), sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Compute the value first and pass it as a parameter."))
		}
		if k.Never {
			fail(plan.NullKey(t, col.Name))
		}
		e, ok := k.KeyExpr(typ)
		if !ok {
			fail(sqlstate.Refusal("CLV-0328", "the value for the shard key column %s is of another type", sqltext.QuoteIdent(col.Name)).
				WithHint("Cast it to %s.", col.Type))
		}
		e = StoredExpr(e, t, col)
		key[i], row[i] = e, k
	}
	if len(tuple) == 0 {
		rt.addKey(key)
		rt.stores = append(rt.stores, row)
		return
	}
	if len(tuple) != len(at) {
		fail(sqlstate.Refusal("CLV-0329", "the shard key of the inserted row is only partly fixed by the source").
			WithHint("Give every shard key column from the source."))
	}
	rt.insertTerms(t, tuple, f)
}

// StoredExpr applies what a column's modifier does to a value that is stored in it.
func StoredExpr(e plan.KeyExpr, t *shardmap.Table, col *shardmap.Column) plan.KeyExpr {
	_, mod, err := keyspace.ParseColumnType(col.Type)
	if err != nil {
		fail(sqlstate.Refusal("CLV-0330", "the router does not know how column %s of type %s stores a value", sqltext.QuoteIdent(col.Name), col.Type).
			WithHint("Use a plain %s as shard key.", e.Type.String()))
	}
	e.Modifier, e.Into = mod, t
	if e.Param == 0 && !e.Never {
		v, err := mod.Coerce(e.Value)
		if err != nil {
			fail(err)
		}
		e.Value = v
	}
	return e
}

func (rt *Routing) insertSelected(t *shardmap.Table, cols []string, q *Query, f *Facts) {
	rt.storedTexts(t, cols, q)
	rt.one.onOne(func() { rt.pinSelected(t, cols, q, f) })
}

func (rt *Routing) pinSelected(t *shardmap.Table, cols []string, q *Query, f *Facts) {
	at := KeyPlaces(t, cols)
	tuple := make([]Term, len(at))
	for i, p := range at {
		tuple[i] = NoTerm
		if !q.Open && p < len(q.Columns) && q.Columns[p].Term != NoTerm && q.Columns[p].typ == rt.Types[i] || !q.Open && p < len(q.Columns) && keytype.IsInt(q.Columns[p].typ) && keytype.IsInt(rt.Types[i]) {
			tuple[i] = q.Columns[p].Term
		}
	}
	g := f.clone()
	if q.Root != nil && q.up {
		rt.gatherQuery(newNode(JSub), q, g)
	} else if q.Arms != nil {
		rt.gatherQuery(newNode(JSub), q, g)
	}
	rt.insertTerms(t, tuple, g)
}

// storedTexts looks at the string literals of a query's list that are stored in the shard key: PostgreSQL reads them as its type.
func (rt *Routing) storedTexts(t *shardmap.Table, cols []string, q *Query) {
	types := rt.KeyTypes(t.Keyspace)
	for i, k := range t.ShardKey {
		p := slices.Index(cols, k)
		if p < 0 || p >= len(q.Columns) || q.Open || q.Columns[p].text == nil {
			continue
		}
		text := q.Columns[p].text.GetSval().GetSval()
		if _, err := keyspace.ParseText(types[i], []byte(text)); err != nil && askable(types[i], text, sqlstate.As(err)) {
			rt.st.Unread = true
			if rt.reader.Unread != nil {
				rt.reader.Unread.Note(rt.src, q.Columns[p].text, types[i])
			}
		}
	}
}

// insertTerms takes the shard keys of rows whose key columns are terms.
func (rt *Routing) insertTerms(t *shardmap.Table, tuple []Term, f *Facts) {
	rows, missing, ok := f.Alternatives(tuple, rt.reader.Keys)
	if !ok {
		fail(sqlstate.Refusal("CLV-0331", "the rows for %s get their shard key %s from a query that does not fix it", sqltext.QuoteName(t.Schema, t.Name), sqltext.QuoteIdent(t.ShardKey[missing])).
			WithHint(`Select rows of one key: add "... = value" for the column that becomes %s.`, sqltext.QuoteIdent(t.ShardKey[missing])))
	}
	rt.stores = rows
	for _, r := range rows {
		key := make([]plan.KeyExpr, len(r))
		for i, k := range r {
			e, ok := k.KeyExpr(rt.Types[i])
			if !ok {
				fail(sqlstate.Refusal("CLV-0332", "the shard key is selected from a column of another type").
					WithHint("Cast it to %s.", rt.Types[i].String()))
			}
			key[i] = StoredExpr(e, t, KeyColumn(t, t.ShardKey[i]))
			key[i].Selected = true
		}
		rt.addKey(key)
	}
}
