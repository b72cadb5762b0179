package planner

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

// modify analyses INSERT, UPDATE, DELETE and MERGE, at the top or in WITH, and
// proves it. It returns the columns of RETURNING, with what is known of them.
func (a *binder) modify(n *pg.Node, parent *scope, top bool) *cte {
	if a.defining {
		fail(a.ChangingView())
	}
	a.changes = true
	tag := ""
	var returning []*pg.Node
	out := &cte{open: true}
	switch v := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		tag, returning = "INSERT", v.InsertStmt.ReturningList
		a.fillInsert(v.InsertStmt, top)
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
func returned(list []*pg.Node, sc *scope, target *jnode, f *facts) *cte {
	out := &cte{}
	add := func(c column) {
		var set []constant
		if target.key != nil && slices.Contains(target.key, c.term) {
			if best, ok := f.best(asSet(f.class(c.term))); ok {
				set = append([]constant{}, best...)
			}
		}
		c.term = noTerm
		out.cols, out.sets = append(out.cols, c), append(out.sets, set)
	}
	for _, n := range list {
		r := n.GetResTarget()
		names := sqltree.FieldNames(r.GetVal().GetColumnRef())
		switch {
		case sqltree.IsStar(n):
			of := sqltree.Strings(r.Val.GetColumnRef().GetFields())
			for _, it := range sc.items {
				if len(of) > 0 && it.name != of[len(of)-1] {
					continue
				}
				out.open = out.open || it.open
				for _, c := range it.cols {
					add(c)
				}
			}
		case names != nil:
			c := sc.resolve(names)
			if c.name = r.Name; c.name == "" {
				c.name = names[len(names)-1]
			}
			add(c)
		default:
			name := r.GetName()
			if name == "" {
				name = outputname.Of(r.GetVal())
			}
			add(column{name: name, term: noTerm})
		}
	}
	return out
}

// target reads the table that a statement changes.
func (a *binder) target(v *pg.RangeVar, sc *scope) (*jnode, *item) {
	// A WITH query of that name does not count here.
	j, items := a.tableRef(v, &scope{})
	r := a.relation(v)
	switch {
	case r.virtual:
		fail(virtualWrite(sqltext.QuoteName(r.schema, r.name)))
	case r.catalog:
		// pg_settings above all: an UPDATE of it is a SET in the shard's session,
		// which the router would not know of.
		e := sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied: %q is a system catalog", r.name)
		if r.name == "pg_settings" {
			e = e.WithHint("SET changes a setting")
		}
		fail(e)
	case r.view != nil && a.reachOf(r.view).catalog:
		// The shards' role may be a superuser, who may write to catalogues.
		a.viewRefs = nil // nothing to be written out
		fail(sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied: view %q reads a system catalog", r.name).WithHint("write to the view's tables themselves"))
	case r.view != nil && a.reachOf(r.view).spread():
		a.viewRefs = nil // nothing to be written out
		fail(sqlstate.Refusal("CLV-0323", "writing through the view %s, which is over a sharded or reference table, is not supported", sqltext.QuoteName(r.schema, r.name)).
			WithHint("Write to the table itself."))
	case r.table != nil:
		addTable(&a.st.Writes, r.table)
	}
	sc.items = append(sc.items, items...)
	return j, items[0]
}

// assignments refuses changes of shard key columns and walks the values.
func (a *binder) assignments(t *shardmap.Table, list []*pg.Node, w *walker, it *item) {
	for _, n := range list {
		r := n.GetResTarget()
		if r == nil {
			continue
		}
		if t != nil && t.Kind == shardmap.Sharded {
			for _, k := range t.ShardKey {
				if r.Name == k {
					a.one.refuseOne(sqlstate.Refusal("CLV-0324", "column %s of table %s is its shard key: changing it would move the row to another shard", sqltext.QuoteIdent(k), sqltext.QuoteName(t.Schema, t.Name)).
						WithHint("Delete the row and insert it again with the new key, in two statements."))
				}
			}
		}
		for _, c := range it.cols {
			if c.name == r.Name {
				a.agree(r.Val, c.typ)
			}
		}
		a.walk(n, w)
	}
}

func (a *binder) update(u *pg.UpdateStmt, parent *scope) *cte {
	sc := &scope{parent: parent}
	q := &query{up: true, down: true}
	q.with = a.withClause(u.WithClause, sc)
	t, it := a.target(u.Relation, sc)
	real := *it
	q.root = a.from(u.FromClause, sc)
	q.root.add(t)
	a.where(q.root, u.WhereClause, sc)
	w := &walker{sc: sc, subs: &q.subs}
	a.assignGenerated(u.Relation, u.TargetList)
	a.assignments(t.table, u.TargetList, w, &real)
	a.walkList(u.ReturningList, w)
	return returned(u.ReturningList, sc, t, a.prove(q))
}

func (j *jnode) add(k *jnode) {
	j.kids = append(j.kids, k)
	for r := range k.rtes {
		j.rtes[r] = true
	}
}

func noFacts() *facts { return &facts{learned: map[*jnode]bool{}} }

func (a *binder) delete(d *pg.DeleteStmt, parent *scope) *cte {
	sc := &scope{parent: parent}
	q := &query{up: true, down: true}
	q.with = a.withClause(d.WithClause, sc)
	t, _ := a.target(d.Relation, sc)
	q.root = a.from(d.UsingClause, sc)
	q.root.add(t)
	a.where(q.root, d.WhereClause, sc)
	a.walkList(d.ReturningList, &walker{sc: sc, subs: &q.subs})
	return returned(d.ReturningList, sc, t, a.prove(q))
}

// merge: the source is the preserved side of an outer join with the target.
func (a *binder) merge(m *pg.MergeStmt, parent *scope) {
	sc := &scope{parent: parent}
	q := &query{up: true, down: true}
	q.with = a.withClause(m.WithClause, sc)
	t, _ := a.target(m.Relation, sc)
	source := &scope{parent: parent, ctes: sc.ctes}
	s, items := a.fromItem(m.SourceRelation, source)
	sc.items = append(sc.items, items...)
	j := newNode(jLeft, s, t)
	a.where(j, m.JoinCondition, sc)
	q.root = newNode(jInner, j)
	w := &walker{sc: sc, subs: &q.subs}
	var inserts []*pg.MergeWhenClause
	for _, n := range m.MergeWhenClauses {
		c := n.GetMergeWhenClause()
		a.walk(c.Condition, w)
		switch c.CommandType {
		case pg.CmdType_CMD_UPDATE:
			a.assignGenerated(m.Relation, c.TargetList)
			a.assignments(t.table, c.TargetList, w, &item{})
		case pg.CmdType_CMD_INSERT:
			inserts = append(inserts, c)
			a.mergeGenerated(m.Relation, c)
			a.walkList(c.Values, w)
		}
		if c.MatchKind == pg.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_SOURCE && t.table != nil && t.table.Kind == shardmap.Sharded {
			a.one.refuseOne(sqlstate.Refusal("CLV-0325", "WHEN NOT MATCHED BY SOURCE looks at every row of %s, which is on several shards", sqltext.QuoteName(t.table.Schema, t.table.Name)).
				WithHint("Use DELETE or UPDATE with a fixed shard key for these rows."))
		}
	}
	a.walkList(m.ReturningList, w)
	f := a.prove(q)
	if t.table == nil || t.table.Kind != shardmap.Sharded {
		return
	}
	for _, c := range inserts {
		cols := make([]string, 0, len(c.TargetList))
		for _, n := range c.TargetList {
			cols = append(cols, n.GetResTarget().GetName())
		}
		if len(c.TargetList) == 0 {
			cols = columnNames(t.table)
		}
		a.insertRow(t.table, cols, c.Values, sc, f)
	}
}

func columnNames(t *shardmap.Table) []string {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	return names
}

func (a *binder) insert(s *pg.InsertStmt, parent *scope) *cte {
	outside := a.stores
	a.stores = nil
	defer func() { a.stores = outside }()
	sc := &scope{parent: parent}
	q := &query{up: true}
	q.root = newNode(jInner)
	q.with = a.withClause(s.WithClause, sc)
	outer := &scope{parent: parent, ctes: sc.ctes}
	target := &scope{parent: parent, ctes: sc.ctes}
	j, it := a.target(s.Relation, target)
	t := j.table
	cols := insertColumns(s, t, it)
	sel := s.SelectStmt.GetSelectStmt()
	switch {
	case sel == nil:
		if t != nil {
			a.one.refuseOne(sqlstate.Refusal("CLV-0309", "INSERT ... DEFAULT VALUES gives no value for the shard key of %s", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Name the shard key column %s and its value.", sqltext.QuoteIdent(t.ShardKey[0])))
		}
	case plainValues(sel):
		a.insertRows(t, cols, sel.ValuesLists, it, &walker{sc: outer, subs: &q.subs})
	default:
		sub := a.selectQuery(sel, outer)
		f := a.prove(sub)
		if t != nil {
			a.insertSelected(t, cols, sub, f)
		}
	}
	if c := s.OnConflictClause; c != nil {
		excluded := *it
		excluded.name, excluded.schema, excluded.cols = "excluded", "", append([]column(nil), it.cols...)
		for i := range excluded.cols {
			excluded.cols[i].term = noTerm
		}
		conflict := &scope{parent: parent, ctes: sc.ctes, items: []*item{it, &excluded}}
		a.onConflict(s, t, it, &walker{sc: conflict, subs: &q.subs})
	}
	a.walkList(s.ReturningList, &walker{sc: target, subs: &q.subs})
	a.prove(q)
	if a.one.several || t != nil && !a.storesAsGiven(t) {
		a.stores = nil // not all rows were looked at, or what is stored is not known
	}
	return returned(s.ReturningList, target, j, a.stored(j))
}

// insertColumns are the columns that an INSERT names, "" for a part of one, or those of its table.
func insertColumns(s *pg.InsertStmt, t *shardmap.Table, it *item) []string {
	if len(s.Cols) == 0 && t != nil {
		return columnNames(t)
	}
	cols := make([]string, 0, len(s.Cols))
	if len(s.Cols) == 0 {
		for _, c := range it.cols {
			cols = append(cols, c.name)
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
func (a *binder) insertRows(t *shardmap.Table, cols []string, rows []*pg.Node, it *item, w *walker) {
	typ := map[string]keyspace.Type{}
	for _, c := range it.cols {
		typ[c.name] = c.typ
	}
	for _, row := range rows {
		items := row.GetList().GetItems()
		for i, v := range items {
			if i < len(cols) {
				a.agree(v, typ[cols[i]])
			}
			a.walk(v, w)
		}
		if t != nil {
			a.insertRow(t, cols, items, nil, nil)
		}
	}
}

// onConflict reads the ON CONFLICT of an INSERT.
func (a *binder) onConflict(s *pg.InsertStmt, t *shardmap.Table, it *item, w *walker) {
	c := s.OnConflictClause
	if c.Infer != nil {
		a.walkList(c.Infer.IndexElems, w)
		a.walk(c.Infer.WhereClause, w)
	}
	a.assignGenerated(s.Relation, c.TargetList)
	a.assignments(t, slices.DeleteFunc(slices.Clone(c.TargetList), func(n *pg.Node) bool {
		if t == nil || !restates(c, n.GetResTarget()) {
			return false
		}
		a.walk(n, w)
		return true
	}), w, it)
	a.walk(c.WhereClause, w)
}

// stored are the facts of the rows that an INSERT stores.
func (rt *routing) stored(j *jnode) *facts {
	f := noFacts()
	for i, k := range j.key {
		set := make([]constant, 0, len(rt.stores))
		for _, row := range rt.stores {
			set = append(set, row[i])
		}
		if k != noTerm && len(set) > 0 {
			f.list = append(f.list, oneOf(k, set))
		}
	}
	return f
}

// storesAsGiven reports whether the rows' shard keys are stored as they are: a column's modifier may round a value.
func (a *binder) storesAsGiven(t *shardmap.Table) bool {
	for i, name := range t.ShardKey {
		_, mod, err := keyspace.ParseColumnType(keyColumn(t, name).Type)
		if err == nil && mod == keyspace.NoModifier {
			continue
		}
		for _, row := range a.stores {
			e, ok := row[i].keyExpr(row[i].typ)
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

// restates reports whether an assignment of ON CONFLICT DO UPDATE gives a column
// the value that it has: SET k = excluded.k, where the conflict is one of equal k.
// ORMs write that for all columns of a key.
func restates(c *pg.OnConflictClause, r *pg.ResTarget) bool {
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

// keyPlaces returns the index of each shard key column in an INSERT's columns.
func keyPlaces(t *shardmap.Table, cols []string) []int {
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

// keyColumn returns a shard key column of a table.
func keyColumn(t *shardmap.Table, name string) *shardmap.Column {
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
func (rt *routing) insertRow(t *shardmap.Table, cols []string, values []*pg.Node, sc *scope, f *facts) {
	rt.one.onOne(func() { rt.pinRow(t, cols, values, sc, f) })
}

func (rt *routing) pinRow(t *shardmap.Table, cols []string, values []*pg.Node, sc *scope, f *facts) {
	at := keyPlaces(t, cols)
	key := make([]plan.KeyExpr, len(at))
	row := make([]constant, len(at))
	var tuple []term
	for i, p := range at {
		col := keyColumn(t, t.ShardKey[i])
		if p >= len(values) {
			fail(sqlstate.Refusal("CLV-0311", "a row has no value for the shard key column %s", sqltext.QuoteIdent(col.Name)).
				WithHint("Give it a value in every row."))
		}
		typ := rt.types[i]
		k, ok := rt.constantOf(values[p], typ, true)
		if !ok {
			if f != nil {
				if c, isCol := rt.columnOf(values[p], sc); isCol && c.typ == typ {
					tuple = append(tuple, c.term)
					continue
				}
			}
			fail(sqlstate.Refusal("CLV-0327", "the value for the shard key column %s of table %s is not a literal or a parameter, so its shard is not known before it runs", sqltext.QuoteIdent(col.Name), sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Compute the value first and pass it as a parameter."))
		}
		if k.never {
			fail(plan.NullKey(t, col.Name))
		}
		e, ok := k.keyExpr(typ)
		if !ok {
			fail(sqlstate.Refusal("CLV-0328", "the value for the shard key column %s is of another type", sqltext.QuoteIdent(col.Name)).
				WithHint("Cast it to %s.", col.Type))
		}
		e = storedExpr(e, t, col)
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

// storedExpr applies what a column's modifier does to a value that is stored in it.
func storedExpr(e plan.KeyExpr, t *shardmap.Table, col *shardmap.Column) plan.KeyExpr {
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

func (rt *routing) insertSelected(t *shardmap.Table, cols []string, q *query, f *facts) {
	rt.storedTexts(t, cols, q)
	rt.one.onOne(func() { rt.pinSelected(t, cols, q, f) })
}

func (rt *routing) pinSelected(t *shardmap.Table, cols []string, q *query, f *facts) {
	at := keyPlaces(t, cols)
	tuple := make([]term, len(at))
	for i, p := range at {
		tuple[i] = noTerm
		if !q.open && p < len(q.cols) && q.cols[p].term != noTerm && q.cols[p].typ == rt.types[i] || !q.open && p < len(q.cols) && keytype.IsInt(q.cols[p].typ) && keytype.IsInt(rt.types[i]) {
			tuple[i] = q.cols[p].term
		}
	}
	g := f.clone()
	if q.root != nil && q.up {
		rt.gatherQuery(newNode(jSub), q, g)
	} else if q.arms != nil {
		rt.gatherQuery(newNode(jSub), q, g)
	}
	rt.insertTerms(t, tuple, g)
}

// storedTexts looks at the string literals of a query's list that are stored in the shard key: PostgreSQL reads them as its type.
func (rt *routing) storedTexts(t *shardmap.Table, cols []string, q *query) {
	types := rt.keyTypes(t.Keyspace)
	for i, k := range t.ShardKey {
		p := slices.Index(cols, k)
		if p < 0 || p >= len(q.cols) || q.open || q.cols[p].text == nil {
			continue
		}
		text := q.cols[p].text.GetSval().GetSval()
		if _, err := keyspace.ParseText(types[i], []byte(text)); err != nil && askable(types[i], text, sqlstate.As(err)) {
			rt.st.Unread = true
			if rt.p.texts != nil {
				rt.p.texts.note(rt.src, q.cols[p].text, types[i])
			}
		}
	}
}

// insertTerms takes the shard keys of rows whose key columns are terms.
func (rt *routing) insertTerms(t *shardmap.Table, tuple []term, f *facts) {
	rows, missing, ok := f.alternatives(tuple, rt.p.limits.Keys)
	if !ok {
		fail(sqlstate.Refusal("CLV-0331", "the rows for %s get their shard key %s from a query that does not fix it", sqltext.QuoteName(t.Schema, t.Name), sqltext.QuoteIdent(t.ShardKey[missing])).
			WithHint(`Select rows of one key: add "... = value" for the column that becomes %s.`, sqltext.QuoteIdent(t.ShardKey[missing])))
	}
	rt.stores = rows
	for _, r := range rows {
		key := make([]plan.KeyExpr, len(r))
		for i, k := range r {
			e, ok := k.keyExpr(rt.types[i])
			if !ok {
				fail(sqlstate.Refusal("CLV-0332", "the shard key is selected from a column of another type").
					WithHint("Cast it to %s.", rt.types[i].String()))
			}
			key[i] = storedExpr(e, t, keyColumn(t, t.ShardKey[i]))
			key[i].Selected = true
		}
		rt.addKey(key)
	}
}
