package planner

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// computedMax is how many values one query computes: PostgreSQL has a limit of
// 1,664 columns.
const computedMax = 1000

func markOf(kind plan.MarkKind, n int) string {
	return "\x00" + string(rune(kind)) + strconv.Itoa(n) + "\x00"
}

// planInsert plans an INSERT whose rows are on several shards.
func (wp *writePlans) planInsert(n *pg.Node) (*plan.Plan, error) {
	s := n.GetInsertStmt()
	t := wp.Relation(s.Relation).Table
	if t == nil {
		return nil, nil
	}
	if t.Kind != shardmap.Sharded {
		return wp.planWhole(n, s.Relation, t)
	}
	if c := s.OnConflictClause; c != nil {
		for _, r := range c.TargetList {
			if slices.Contains(t.ShardKey, r.GetResTarget().GetName()) && !semantics.Restates(c, r.GetResTarget()) {
				fail(sqlstate.Refusal("CLV-1309", "ON CONFLICT DO UPDATE cannot change the shard key column %s of table %s", sqltext.QuoteIdent(r.GetResTarget().GetName()), sqltext.QuoteName(t.Schema, t.Name)).
					WithHint("Delete the row and insert it with the new key."))
			}
		}
	}
	cols := semantics.ColumnNames(t)
	if len(s.Cols) > 0 {
		cols = nil
		for _, c := range s.Cols {
			name := c.GetResTarget().GetName()
			if len(c.GetResTarget().GetIndirection()) > 0 {
				name = ""
			}
			cols = append(cols, name)
		}
	}
	p := &plan.InsertPlan{Table: t, Returning: len(s.ReturningList) > 0}
	p.Types = wp.KeyTypes(t.Keyspace)
	p.Matched = p.Returning && s.OnConflictClause != nil
	sel := s.SelectStmt.GetSelectStmt()
	plan := &plan.Plan{Op: plan.Insert, Insert: p, Why: "the rows have different shard keys"}
	switch {
	case sel == nil:
		fail(sqlstate.Refusal("CLV-0309", "INSERT ... DEFAULT VALUES gives no value for the shard key of %s", sqltext.QuoteName(t.Schema, t.Name)).
			WithHint("Name the shard key column %s and its value.", sqltext.QuoteIdent(t.ShardKey[0])))
	case semantics.PlainValues(sel):
		wp.planRows(p, s, sel, t, cols)
	default:
		if local := wp.planLocalInsert(n, s, sel, t, cols); local != nil {
			return local, nil
		}
		plan.Apart = wp.planSource(p, s, sel, t, cols)
	}
	return plan, nil
}

// planRows splits the rows of VALUES by their places in the text.
func (wp *writePlans) planRows(p *plan.InsertPlan, s *pg.InsertStmt, sel *pg.SelectStmt, t *shardmap.Table, cols []string) {
	at := semantics.KeyPlaces(t, cols)
	wp.Types = p.Types
	for _, n := range s.GetOnConflictClause().GetTargetList() {
		if r := n.GetResTarget(); semantics.AssignedExpr(r.GetVal()).GetSetToDefault() != nil && keyColumnOrUnknown(t, r.GetName()).Clocked != "" {
			fail(sqlstate.Refusal("CLV-1310", "ON CONFLICT DO UPDATE SET %s = DEFAULT would be the time of each shard's own transaction", sqltext.QuoteIdent(r.GetName())).
				WithHint("Write the time out: now()."))
		}
	}
	x := &inserting{madeValues: wp.made}
	i := wp.TokenAt(s.Relation.Location)
	if i < 0 {
		sourcetext.LostPlace()
	}
	for wp.Punct(i+1, '.') {
		i += 2
	}
	if wp.Word(i+1, "as") {
		i += 2
	}
	listEnd, named := i, false
	i++
	if wp.Punct(i, '(') && !(wp.Word(i+1, "values") && wp.Punct(i+2, '(')) && !wp.Punct(i+1, '(') {
		listEnd, named = wp.Closing(i), true
		i = listEnd + 1
	}
	if wp.Word(i, "overriding") {
		i += 3
	}
	for wp.Punct(i, '(') {
		i++
	}
	if !wp.Word(i, "values") {
		sourcetext.LostPlace()
	}
	ts := wp.Tokens()
	c := &computing{writePlans: wp, p: p, target: wp.bound.UseAt(s.Relation)}
	if serverdependent.UsesShardState(&pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: s}}) {
		fail(sqlstate.Refusal("CLV-0310", "a value that says something about one shard's server or session is not supported in an INSERT on several shards").
			WithHint("Leave it out (xmax, ctid and the like), insert rows of one shard key at a time, or compute the value first and pass it as a parameter."))
	}
	// The clock and what is computed first take their places before any text is cut.
	type span struct{ from, to int }
	rows := make([]span, 0, len(sel.ValuesLists))
	brackets := make([][2]int, 0, len(sel.ValuesLists))
	first := i + 1
	at0 := first
	p.Rows = make([]plan.InsertRow, len(sel.ValuesLists))
	for r, l := range sel.ValuesLists {
		if !wp.Punct(at0, '(') {
			sourcetext.LostPlace()
		}
		end := wp.Closing(at0)
		rows = append(rows, span{ts[at0].Start, ts[end].End})
		brackets = append(brackets, [2]int{at0, end})
		items := l.GetList().GetItems()
		var places [][2]int
		place := func(i int) (int, int) {
			if places == nil {
				places = x.items(at0, end)
			}
			if i >= len(places) {
				sourcetext.LostPlace()
			}
			return places[i][0], places[i][1]
		}
		key := make([]plan.InsertKey, len(at))
		for i, p := range at {
			if p >= len(items) {
				fail(sqlstate.Refusal("CLV-0311", "a row has no value for the shard key column %s", sqltext.QuoteIdent(t.ShardKey[i])).
					WithHint("Give it a value in every row."))
			}
			key[i] = c.key(items[p], i, t, func() (int, int) { return place(p) })
		}
		for i, item := range items {
			if !slices.Contains(at, i) {
				c.item(item, func() (int, int) { return place(i) })
			}
		}
		p.Rows[r].Key = key
		at0 = end + 1
		if wp.Punct(at0, ',') {
			at0++
		}
	}
	c.finish(s)
	last := len(ts) - 1
	for last > 0 && wp.Punct(last, ';') {
		last--
	}
	tail := wp.tail(s)
	if tail == "" {
		wp.clockIn(&pg.Node{Node: &pg.Node_OnConflictClause{OnConflictClause: s.OnConflictClause}})
		for _, n := range s.ReturningList {
			wp.clockIn(n)
		}
	}
	if s.WithClause != nil {
		wp.clockIn(&pg.Node{Node: &pg.Node_WithClause{WithClause: s.WithClause}})
	}
	cut := &cutter{text: wp.SQL, edits: slices.Clone(wp.texts.edits)}
	if wp.made.fill != nil {
		for _, e := range wp.made.fill.edits {
			if !slices.ContainsFunc(c.places, func(p [2]int) bool { return e.From >= p[0] && e.To <= p[1] }) {
				cut.edits = append(cut.edits, e)
			}
		}
	}
	cut.edits = append(cut.edits, wp.clockRows(t, cols, sel.ValuesLists, listEnd, named, brackets)...)
	slices.SortStableFunc(cut.edits, func(a, b sqltext.Edit) int { return a.From - b.From })
	p.Head = cut.cut(0, rows[0].from)
	for r := range rows {
		p.Rows[r].Text = cut.cut(rows[r].from, rows[r].to)
	}
	if p.Tail = tail; tail == "" {
		p.Tail = cut.cut(rows[len(rows)-1].to, ts[last].End)
	} else if slices.ContainsFunc(cut.edits, func(e sqltext.Edit) bool { return e.From >= rows[len(rows)-1].to }) {
		fail(sqlstate.Refusal("CLV-0624", "a value that the router makes stands beside a text that is cast to a time").
			WithHint("Take the values first, and pass them as parameters."))
	}
	if p.Matched {
		for _, k := range t.ShardKey {
			p.Tail += ", " + targetName(s.Relation) + "." + sqltext.QuoteAlways(k)
		}
	}
}

// targetName is what a statement calls the table that it changes.
func targetName(v *pg.RangeVar) string {
	if v.Alias != nil {
		return sqltext.QuoteAlways(v.Alias.Aliasname)
	}
	return sqltext.QuoteAlways(v.Relname)
}

// cutter cuts a text into pieces, with edits applied in each. It goes from left to right.
type cutter struct {
	text  string
	edits []sqltext.Edit // sorted
}

func (c *cutter) cut(from, to int) string {
	var b strings.Builder
	at := from
	for len(c.edits) > 0 && (c.edits[0].From < to || c.edits[0].From == to && c.edits[0].To == to && to == len(c.text)) {
		e := c.edits[0]
		c.edits = c.edits[1:]
		if e.From < at {
			continue
		}
		b.WriteString(c.text[at:e.From])
		b.WriteString(e.Text)
		at = e.To
	}
	if at == from {
		return c.text[from:to]
	}
	b.WriteString(c.text[at:to])
	return b.String()
}

// computing collects the values that are computed before rows are split.
type computing struct {
	*writePlans
	p      *plan.InsertPlan
	target *semantics.Use
	exprs  []*pg.Node
	places [][2]int // of the expressions, in the text
}

// key takes a row's value for a column of the shard key.
func (c *computing) key(n *pg.Node, i int, t *shardmap.Table, place func() (from, to int)) plan.InsertKey {
	col := semantics.KeyColumn(t, t.ShardKey[i])
	typ := c.Types[i]
	if n.GetSetToDefault() != nil {
		fail(sqlstate.Refusal("CLV-0312", "the shard key column %s of table %s gets its default on a shard, so its shard is not known before it runs", sqltext.QuoteIdent(col.Name), sqltext.QuoteName(t.Schema, t.Name)).
			WithHint("Give the value, or let the router make it: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT cleave.next_id()."))
	}
	if k, ok := c.ConstantOf(n, typ, true); ok {
		if k.Never {
			fail(plan.NullKey(t, col.Name))
		}
		if e, ok := k.KeyExpr(typ); ok {
			e = semantics.StoredExpr(e, t, col)
			c.Strict(&e)
			return plan.InsertKey{KeyExpr: e}
		}
	}
	// The cast is to the type without its length: what is too long is an error of
	// the assignment, not cut.
	from, to := place()
	expr := &pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: n, TypeName: keyTypeName(typ), Location: -1}}}
	number := c.compute(expr, from, to, "::"+typ.String())
	e := semantics.StoredExpr(plan.KeyExpr{Type: typ, As: typ, Never: true, Modifier: keyspace.NoModifier}, t, col)
	return plan.InsertKey{KeyExpr: e, Computed: number + 1}
}

// compute puts a mark for a computed value in place of an expression.
func (c *computing) compute(n *pg.Node, from, to int, cast string) int {
	c.exprs = append(c.exprs, n)
	c.places = append(c.places, [2]int{from, to})
	c.texts.edits = append(c.texts.edits, sqltext.Edit{From: from, To: to, Text: markOf(plan.MarkComputed, len(c.exprs)-1) + cast})
	return len(c.exprs) - 1
}

func keyTypeName(t keyspace.Type) *pg.TypeName {
	name := ""
	for n, k := range keytype.ByName {
		if k == t {
			name = n
		}
	}
	return &pg.TypeName{Names: []*pg.Node{sqltree.StringNode("pg_catalog"), sqltree.StringNode(name)}, Typemod: -1, Location: -1}
}

// item takes another value of a row: one that reads what shards do not have is computed first.
func (c *computing) item(n *pg.Node, place func() (from, to int)) {
	switch v := n.GetNode().(type) {
	case *pg.Node_AConst, *pg.Node_ParamRef, *pg.Node_SetToDefault:
		return
	case *pg.Node_TypeCast:
		if word, _ := sqltree.ClockLiteral(v.TypeCast); word == "" && (v.TypeCast.Arg.GetAConst() != nil || v.TypeCast.Arg.GetParamRef() != nil) {
			return
		}
	}
	if reachesOut(c.bound, n) {
		from, to := place()
		c.compute(n, from, to, "")
		return
	}
	if c.guards(n) {
		from, to := place()
		c.looked(n, from, to)
		return
	}
	c.clockIn(n)
}

// looked writes a value anew whose casts look for words for the time.
func (c *computing) looked(n *pg.Node, from, to int) {
	if c.made.fill != nil && slices.ContainsFunc(c.made.fill.edits, func(e sqltext.Edit) bool { return e.From >= from && e.To <= to }) {
		fail(sqlstate.Refusal("CLV-0624", "a value that the router makes stands beside a text that is cast to a time").
			WithHint("Take the values first, and pass them as parameters."))
	}
	text := c.written(sqltree.SelectOf([]*pg.Node{c.clocked(sqltree.Clone(n))}, nil, nil))
	tree, err := c.readPlans.p.parse(text)
	if err != nil || len(tree.Stmts) != 1 {
		sourcetext.LostPlace()
	}
	tree.Stmts[0].Stmt.GetSelectStmt().TargetList[0].GetResTarget().Name = "" // of an output
	c.texts.guard = false
	c.texts.edits = append(c.texts.edits, sqltext.Edit{From: from, To: to, Text: strings.TrimPrefix(c.written(tree.Stmts[0].Stmt), "SELECT ")})
	c.texts.guard = true
}

// tail is what follows the rows of an INSERT if its casts look for words for the time; "" if there are none.
func (wp *writePlans) tail(s *pg.InsertStmt) string {
	if s.WithClause != nil && wp.guards(&pg.Node{Node: &pg.Node_WithClause{WithClause: s.WithClause}}) {
		fail(sqlstate.Refusal("CLV-0625", "a WITH query before the rows of an INSERT casts what could be a word for the time").
			WithHint("Use INSERT ... SELECT."))
	}
	only := &pg.InsertStmt{Relation: s.Relation, OnConflictClause: s.OnConflictClause, ReturningList: s.ReturningList}
	n := &pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: only}}
	if !wp.guards(n) {
		return ""
	}
	const row = "cleave_row"
	n = sqltree.Clone(n)
	values := sqltree.EmptySelect()
	values.ValuesLists = []*pg.Node{{Node: &pg.Node_List{List: &pg.List{Items: []*pg.Node{textConst(row)}}}}}
	n.GetInsertStmt().SelectStmt, n.GetInsertStmt().Override = sqltree.SelectNode(values), pg.OverridingKind_OVERRIDING_NOT_SET
	_, tail, ok := strings.Cut(wp.written(wp.clocked(n)), "('"+row+"')")
	if !ok {
		sourcetext.LostPlace()
	}
	return tail
}

// reachesOut reports whether an expression reads a table that not every shard has.
func reachesOut(bs *semantics.BoundStatement, n *pg.Node) bool {
	found := false
	sqltree.EachRangeVar(n.ProtoReflect(), func(v *pg.RangeVar) {
		if u := bs.UseAt(v); u != nil && !u.Everywhere() {
			found = true
		}
	})
	return found
}

// finish makes the queries of the computed values, and refuses what is left.
func (c *computing) finish(s *pg.InsertStmt) {
	taken := map[*pg.RangeVar]bool{}
	for _, e := range c.exprs {
		sqltree.EachRangeVar(e.ProtoReflect(), func(v *pg.RangeVar) { taken[v] = true })
	}
	for _, u := range c.bound.Uses {
		if u != c.target && !taken[u.Ref] && !u.Everywhere() {
			fail(sqlstate.Refusal("CLV-0313", "an INSERT of rows for several shards cannot read table %s in WITH, ON CONFLICT or RETURNING", sqltext.QuoteName(u.Relation.Schema, u.Relation.Name)).
				WithHint("Read it in a statement of its own."))
		}
	}
	if len(c.exprs) > 0 && s.WithClause != nil {
		fail(sqlstate.Refusal("CLV-0314", "the shard key of a row is computed in a statement with WITH").
			WithHint("Compute the value first and pass it as a parameter."))
	}
	for rest := c.exprs; len(rest) > 0; {
		n := min(len(rest), computedMax)
		sel := &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE}
		for _, e := range rest[:n] {
			sel.TargetList = append(sel.TargetList, &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Val: e}}})
		}
		rest = rest[n:]
		c.p.Computed = append(c.p.Computed, c.nested(sel))
	}
}

// nested plans a query that is a part of this statement and read before the rest.
func (wp *writePlans) nested(sel *pg.SelectStmt) *plan.Statement {
	return wp.nestedNode(sqltree.SelectNode(sel))
}

// nestedNode is nested of any statement that gives rows.
func (wp *writePlans) nestedNode(n *pg.Node) *plan.Statement {
	text := wp.written(n)
	st, err := wp.p.Analyze(text, wp.Snapshot, wp.Path)
	if err != nil {
		fail(err)
	}
	if st.Fill != nil {
		fail(sqlstate.Refusal("CLV-0520", "values that the router makes (nextval and its kin) cannot stand in a query inside this statement").
			WithHint("Take the values first."))
	}
	switch st.Kind {
	case plan.OneShard, plan.DefaultShard, plan.AnyShard, plan.Several:
	default:
		fail(sqlstate.Refusal("CLV-0315", "this query cannot be a part of a statement that changes rows on several shards").
			WithHint("Run it first."))
	}
	return st
}

// planSource plans INSERT ... SELECT whose rows are read first. It returns Plan.Apart.
func (wp *writePlans) planSource(p *plan.InsertPlan, s *pg.InsertStmt, sel *pg.SelectStmt, t *shardmap.Table, cols []string) (apart []plan.Change) {
	if slices.Contains(cols, "") {
		fail(sqlstate.Refusal("CLV-0316", "INSERT ... SELECT into a part of a column is not supported over several shards").
			WithHint("Insert the whole value."))
	}
	if s.WithClause != nil {
		if sel.WithClause != nil {
			fail(sqlstate.Refusal("CLV-0317", "INSERT ... SELECT with WITH before both is not supported over several shards").
				WithHint("Write one WITH."))
		}
		apart = wp.apart(s.WithClause, &pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: s}}, t)
		sel.WithClause = s.WithClause
	}
	inside := map[*pg.RangeVar]bool{s.Relation: true}
	sqltree.EachRangeVar(sel.ProtoReflect(), func(v *pg.RangeVar) { inside[v] = true })
	for _, u := range wp.bound.Uses {
		if !inside[u.Ref] && !u.Everywhere() {
			fail(sqlstate.Refusal("CLV-0318", "an INSERT of rows for several shards cannot read table %s in ON CONFLICT or RETURNING", sqltext.QuoteName(u.Relation.Schema, u.Relation.Name)).
				WithHint("Read it in a statement of its own."))
		}
	}
	width := -1
	if q := wp.bound.QueryOf(sel); q != nil && !q.Open {
		width = len(q.Columns)
	}
	if len(s.Cols) == 0 && width >= 0 && width < len(cols) {
		cols = cols[:width]
	}
	var columns []*pg.Node
	for _, name := range cols {
		p.Columns = append(p.Columns, keyColumnOrUnknown(t, name))
	}
	for _, c := range semantics.GeneratedColumns(t) {
		i := slices.Index(cols, c.Name)
		if i >= 0 && c.Identity != "" && s.Override == pg.OverridingKind_OVERRIDING_USER_VALUE {
			fail(sqlstate.Refusal("CLV-0319", "OVERRIDING USER VALUE ignores the values selected for column %s", sqltext.QuoteIdent(c.Name)).
				WithHint("Leave the column out."))
		}
		if _, selected := wp.made.selected[c.Name]; i < 0 && !selected {
			p.Made = append(p.Made, madeFor(&wp.Namespace, t, c))
			p.Columns = append(p.Columns, c)
			cols = append(slices.Clone(cols), c.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wp.made.selected)) {
		p.Made, p.Columns, cols = append(p.Made, wp.made.selected[name]), append(p.Columns, keyColumnOrUnknown(t, name)), append(slices.Clone(cols), name)
	}
	p.KeyAt, p.Keys = semantics.KeyPlaces(t, cols), storedKeys(&wp.Namespace, t)
	p.Source = wp.nested(sel)
	w := sqltree.Clone(&pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: s}}).GetInsertStmt()
	for _, name := range cols {
		columns = append(columns, resTarget(name))
	}
	w.WithClause, w.Cols = nil, columns
	if len(semantics.GeneratedColumns(t)) > 0 {
		w.Override = pg.OverridingKind_OVERRIDING_NOT_SET
	}
	rows := allOf(relationName(0), "")
	clocked := leftOut(t, cols)
	if s.OnConflictClause == nil && len(s.ReturningList) == 0 && s.Override == pg.OverridingKind_OVERRIDING_NOT_SET && len(clocked) == 0 {
		p.Copy = copyInto(t, p.Columns)
	}
	for _, c := range clocked {
		rows.TargetList = append(rows.TargetList, sqltree.TargetNode(clockDefault(c), ""))
		w.Cols = append(w.Cols, resTarget(c.Name))
	}
	w.SelectStmt = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: rows}}
	if w.OnConflictClause != nil {
		clockAssignments(t, w.OnConflictClause.TargetList)
	}
	if p.Matched {
		for _, k := range t.ShardKey {
			w.ReturningList = append(w.ReturningList, hiddenColumn(s.Relation, k))
		}
	}
	wp.clocked(&pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: w}})
	p.Write = plan.NewTemplate(wp.written(&pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: w}}))
	return apart
}

// copyInto is the COPY that inserts values of columns as an INSERT does; "" if one of
// them takes values from an INSERT only as COPY does not.
func copyInto(t *shardmap.Table, columns []*shardmap.Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		if c.Type == "" || c.Computed || c.Identity == shardmap.IdentityAlways {
			return ""
		}
		names[i] = sqltext.QuoteAlways(c.Name)
	}
	return "COPY " + sqltext.QuoteAlways(t.Schema) + "." + sqltext.QuoteAlways(t.Name) + " (" + strings.Join(names, ", ") + ") FROM STDIN"
}

// storedKeys says what the columns of the shard key do to a value.
func storedKeys(ns *semantics.Namespace, t *shardmap.Table) []plan.KeyExpr {
	types := ns.KeyTypes(t.Keyspace)
	keys := make([]plan.KeyExpr, len(types))
	for i, typ := range types {
		keys[i] = semantics.StoredExpr(plan.KeyExpr{Type: typ, As: typ, Never: true, Modifier: keyspace.NoModifier}, t, semantics.KeyColumn(t, t.ShardKey[i]))
	}
	return keys
}

// hiddenColumn is a column of RETURNING that the client does not get.
func hiddenColumn(v *pg.RangeVar, name string) *pg.Node {
	of := v.Relname
	if v.Alias != nil {
		of = v.Alias.Aliasname
	}
	return sqltree.TargetNode(sqltree.ColumnNode(of, name), "")
}

// keyColumnOrUnknown finds a column; a name that the table does not have is an
// error that a shard reports.
func keyColumnOrUnknown(t *shardmap.Table, name string) *shardmap.Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return &shardmap.Column{Name: name}
}

// onlyReads refuses WITH queries that change rows.
func onlyReads(w *pg.WithClause) {
	for _, n := range w.GetCtes() {
		if n.GetCommonTableExpr().GetCtequery().GetSelectStmt() == nil {
			fail(sqlstate.Refusal("CLV-0320", "a WITH query that changes rows is not supported in a statement over several shards").
				WithHint("Run it as a statement of its own, in one transaction."))
		}
	}
}

// planLocalInsert plans an INSERT ... SELECT that every shard can run by itself:
// the rows that a shard selects are its own, because their shard key is that of a
// table that they come from. nil if that is not proved.
func (wp *writePlans) planLocalInsert(n *pg.Node, s *pg.InsertStmt, sel *pg.SelectStmt, t *shardmap.Table, cols []string) *plan.Plan {
	q := wp.bound.QueryOf(sel)
	if len(wp.made.selected) > 0 || q == nil || s.WithClause != nil || sel.WithClause != nil || sel.LimitCount != nil || sel.LimitOffset != nil || len(sel.LockingClause) > 0 || !wp.OneKeyspace() {
		return nil
	}
	wp.Types = wp.KeyTypes(t.Keyspace)
	inside := map[*pg.RangeVar]bool{s.Relation: true}
	sqltree.EachRangeVar(sel.ProtoReflect(), func(v *pg.RangeVar) { inside[v] = true })
	for _, u := range wp.bound.Uses {
		if !u.Sharded() && !u.Everywhere() || !inside[u.Ref] && !u.Everywhere() {
			return nil
		}
	}
	for _, c := range semantics.GeneratedColumns(t) {
		if !slices.Contains(cols, c.Name) || s.Override == pg.OverridingKind_OVERRIDING_USER_VALUE {
			return nil
		}
	}
	if wp.IsVolatile(sel) || serverdependent.UsesShardState(n) {
		return nil
	}
	w := wp.local(q)
	if w == nil || wp.perRun(sel, w) || len(sel.DistinctClause) > 0 && !wp.distinctByKey(q, w.Node) {
		return nil
	}
	from := keyColumns(wp.Equivalence, q, w.Node)
	if from == nil || !slices.Equal(from, semantics.KeyPlaces(t, cols)) {
		return nil
	}
	for i := range from {
		// A length could cut the blanks at the end of a value.
		if to := semantics.KeyColumn(t, t.ShardKey[i]); strings.Contains(to.Type, "(") && to.Type != semantics.KeyColumn(w.Relation.Table, w.Relation.Table.ShardKey[i]).Type {
			return nil
		}
	}
	if !clockSelect(s, sel, t, cols, q) {
		return nil
	}
	if s.OnConflictClause != nil {
		clockAssignments(t, s.OnConflictClause.TargetList)
	}
	m := &plan.ModifyPlan{Table: t, Returning: len(s.ReturningList) > 0}
	if len(semantics.GeneratedColumns(t)) > 0 {
		s.Override = pg.OverridingKind_OVERRIDING_NOT_SET
	}
	wp.clocked(n)
	m.Write = wp.ownTemplate(n, w)
	return &plan.Plan{Op: plan.Modify, Modify: m, Target: wp.targetOf(w), Why: "every shard inserts what it selects"}
}
