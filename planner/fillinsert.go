package planner

import (
	"cmp"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// madeFor is the value that a column gets where an INSERT leaves it out.
func madeFor(ns *semantics.Namespace, t *shardmap.Table, c *shardmap.Column) plan.FillValue {
	name := shardmap.SequenceOf(c.Generated)
	if name == "" {
		return plan.FillValue{Source: c.Generated}
	}
	q, ok := ns.Snapshot.SequenceNamed(name)
	if !ok {
		fail(sqlstate.New(sqlstate.UndefinedTable, "column %q of table %s takes its values from the sequence %s, which does not exist", c.Name, sqltext.QuoteName(t.Schema, t.Name), name).
			WithHint("create it, or change the default: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT"))
	}
	return plan.FillValue{Source: "nextval", Sequence: q}
}

// FillInsert puts router-made values into an INSERT, in the tree and in the text:
// for calls in VALUES, for DEFAULT, and for columns that are left out. top: it is not in WITH.
func (mv *madeValues) FillInsert(s *pg.InsertStmt, top bool) {
	t := mv.Relation(s.Relation).Table
	gen := semantics.GeneratedColumns(t)
	if len(gen) == 0 && !mv.namesFill() {
		return
	}
	x := &inserting{madeValues: mv, s: s, t: t, named: len(s.Cols) > 0}
	for _, n := range s.Cols {
		x.cols = append(x.cols, n.GetResTarget().GetName())
	}
	if !x.named && t != nil {
		x.cols = semantics.ColumnNames(t)
	}
	sel := s.SelectStmt.GetSelectStmt()
	plain := sel != nil && sel.ValuesLists != nil && sel.WithClause == nil && sel.SortClause == nil && sel.LimitCount == nil && sel.LimitOffset == nil
	if sel != nil && !plain {
		x.fromSelect(mv.Unseen(t), top)
		return
	}
	x.locate(plain)
	if sel == nil {
		x.defaultValues(gen)
		return
	}
	x.rows(sel.ValuesLists, gen)
}

// inserting is the state of one FillInsert.
type inserting struct {
	*madeValues
	s     *pg.InsertStmt
	t     *shardmap.Table
	named bool // the INSERT names its columns
	cols  []string

	afterName, colsEnd int // bytes: where a column list would go; where the one that is there ends
	values             int // token: VALUES, or DEFAULT of DEFAULT VALUES
}

func (x *inserting) column(name string) *shardmap.Column {
	if x.t == nil {
		return nil
	}
	for i := range x.t.Columns {
		if x.t.Columns[i].Name == name {
			return &x.t.Columns[i]
		}
	}
	return nil
}

// fromSelect judges INSERT ... SELECT, whose rows the router does not see.
func (x *inserting) fromSelect(gen []*shardmap.Column, top bool) {
	cols := x.cols
	if n := outputs(x.s.SelectStmt.GetSelectStmt()); !x.named && n >= 0 && n < len(cols) {
		cols = cols[:n]
	}
	for _, c := range gen {
		if c.Identity == shardmap.IdentityAlways && x.s.Override == pg.OverridingKind_OVERRIDING_NOT_SET && slices.Contains(cols, c.Name) {
			fail(semantics.AlwaysInsert(c.Name))
		}
	}
	for _, c := range gen {
		if listed := slices.Contains(cols, c.Name); !listed || c.Identity != "" && x.s.Override == pg.OverridingKind_OVERRIDING_USER_VALUE {
			x.Touched.OneShard.RefuseOne(sqlstate.Refusal("CLV-0239", "the router makes the values of column %s of table %s, and does not see the rows of INSERT ... SELECT", sqltext.QuoteIdent(c.Name), sqltext.QuoteName(x.t.Schema, x.t.Name)).
				WithHint("Read the rows first, and insert them with VALUES; or select a value for the column."))
		}
	}
	if top && x.namesFill() {
		x.selectedCalls()
	}
	if len(gen) > 0 {
		x.locate(false)
	}
}

// outputs is how many columns a query's list has, -1 if only its tables say.
func outputs(sel *pg.SelectStmt) int {
	for sel.Larg != nil {
		sel = sel.Larg
	}
	switch {
	case len(sel.ValuesLists) > 0:
		return len(sel.ValuesLists[0].GetList().GetItems())
	case sqltree.AnyStar(sel.TargetList):
		return -1
	}
	return len(sel.TargetList)
}

// takesNumber are the types of columns that take a bigint as it is, or not at all.
var takesNumber = map[string]bool{"bigint": true, "integer": true, "smallint": true, "numeric": true, "text": true}

// selectedCalls takes calls that the router evaluates out of the list of an INSERT ... SELECT into a
// sharded or reference table, where they stand by themselves: each row gets a value, as for a column that is left out.
func (x *inserting) selectedCalls() {
	sel := x.s.SelectStmt.GetSelectStmt()
	numbered := func(list []*pg.Node) bool {
		return slices.ContainsFunc(list, func(n *pg.Node) bool { return n.GetAConst() != nil || n.GetSortBy().GetNode().GetAConst() != nil })
	}
	if x.t == nil || x.t.Kind == shardmap.Whole || x.s.Override != pg.OverridingKind_OVERRIDING_NOT_SET || sel.Op != pg.SetOperation_SETOP_NONE || sel.ValuesLists != nil ||
		len(sel.DistinctClause) > 0 || len(sel.TargetList) > len(x.cols) || numbered(sel.SortClause) || numbered(sel.GroupClause) || !x.named && sqltree.AnyStar(sel.TargetList) {
		return // a call that is left is refused where it is read
	}
	var cols, targets []*pg.Node
	for i, n := range sel.TargetList {
		r := n.GetResTarget()
		if sqltree.AnyStar(sel.TargetList[:i+1]) {
			if len(cols)+len(x.selected) == i { // from here on the names stand for what the star gives
				for _, name := range x.cols[i:] {
					cols = append(cols, resTarget(name))
				}
			}
			targets = append(targets, n)
			continue
		}
		v, ok := plan.FillValue{}, false
		if f := r.GetVal().GetFuncCall(); f != nil {
			v, ok = x.FillCall(f)
		}
		if c := x.column(x.cols[i]); !ok || v.Source != "nextval" && v.Source != shardmap.NextID || c == nil || !takesNumber[c.Type] {
			cols, targets = append(cols, resTarget(x.cols[i])), append(targets, n)
			continue
		}
		if x.selected == nil {
			x.selected = map[string]plan.FillValue{}
		}
		x.selected[x.cols[i]] = v
		from, to := x.CallSpan(r.Val.GetFuncCall())
		x.judged = append(x.judged, sqltext.Edit{From: from, To: to, Text: "NULL::pg_catalog.int8"})
	}
	if len(x.selected) == 0 {
		return
	}
	if len(targets) == 0 {
		fail(sqlstate.Refusal("CLV-0240", "an INSERT ... SELECT of nothing but values that the router makes is not supported").
			WithHint("Insert with VALUES."))
	}
	x.Touched.OneShard.RefuseOne(sqlstate.Refusal("CLV-0241", "the router makes values for each row of INSERT ... SELECT, which it does not see on one shard").
		WithHint("Read the rows first, and insert them with VALUES."))
	x.s.Cols, sel.TargetList = cols, targets
}

// locate finds the parts of the INSERT in the text, and takes OVERRIDING out: on
// the shards the column is a plain one. Only for a column GENERATED ALWAYS it says
// OVERRIDING SYSTEM VALUE, so that the text is right when it is read again.
func (x *inserting) locate(values bool) {
	ts := x.Tokens()
	i := x.TokenAt(x.s.Relation.Location)
	if i < 0 {
		sourcetext.LostPlace()
	}
	for x.Punct(i+1, '.') {
		i += 2
	}
	if x.Word(i+1, "as") {
		i += 2
	}
	x.afterName = ts[min(i, len(ts)-1)].End
	i++
	if x.named {
		if !x.Punct(i, '(') {
			sourcetext.LostPlace()
		}
		i = x.Closing(i)
		x.colsEnd = ts[i].Start
		i++
	}
	override := x.overriding()
	switch {
	case x.Word(i, "overriding"):
		if i+2 >= len(ts) {
			sourcetext.LostPlace()
		}
		x.replace(ts[i].Start, ts[i+2].End, override)
		i += 3
	case override != "" && values && i < len(ts):
		x.replace(ts[i].Start, ts[i].Start, override+" ")
	}
	for values && x.Punct(i, '(') {
		i++ // INSERT INTO t (VALUES (1))
	}
	if x.values = i; values && !x.Word(i, "values") {
		sourcetext.LostPlace()
	}
}

// overriding is the clause with which the router's values of a column GENERATED
// ALWAYS are read again.
func (x *inserting) overriding() string {
	if slices.ContainsFunc(semantics.GeneratedColumns(x.t), func(c *shardmap.Column) bool { return c.Identity == shardmap.IdentityAlways }) {
		return "OVERRIDING SYSTEM VALUE"
	}
	return ""
}

func (x *inserting) defaultValues(gen []*shardmap.Column) {
	if len(gen) == 0 {
		return
	}
	ts := x.Tokens()
	if !x.Word(x.values, "default") || x.values+1 >= len(ts) {
		sourcetext.LostPlace()
	}
	var names, texts []string
	var row []*pg.Node
	for _, c := range gen {
		node, text := x.value(madeFor(&x.Namespace, x.t, c))
		names, texts, row = append(names, sqltext.QuoteAlways(c.Name)), append(texts, text), append(row, node)
		x.s.Cols = append(x.s.Cols, resTarget(c.Name))
	}
	x.replace(ts[x.values].Start, ts[x.values+1].End, "("+strings.Join(names, ", ")+") "+strings.TrimLeft(x.overriding()+" VALUES (", " ")+strings.Join(texts, ", ")+")")
	list := &pg.Node{Node: &pg.Node_List{List: &pg.List{Items: row}}}
	x.s.SelectStmt = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{ValuesLists: []*pg.Node{list}, Op: pg.SetOperation_SETOP_NONE}}}
}

func resTarget(name string) *pg.Node {
	return &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Name: name, Location: -1}}}
}

// rows fills the rows of VALUES.
func (x *inserting) rows(lists []*pg.Node, gen []*shardmap.Column) {
	width := len(lists[0].GetList().GetItems())
	for _, l := range lists {
		if len(l.GetList().GetItems()) != width {
			return // an error, which a shard reports
		}
	}
	if width > len(x.cols) && x.t != nil || x.named && width != len(x.cols) {
		return
	}
	var missing []*shardmap.Column
	for _, c := range gen {
		if !slices.Contains(x.cols[:min(width, len(x.cols))], c.Name) {
			missing = append(missing, c)
		}
	}
	// PostgreSQL evaluates a single row in the order of the table's columns,
	// several rows as they are written, each followed by what it leaves out.
	order := make([]int, width)
	for i := range order {
		order[i] = i
	}
	place := func(name string) int {
		return slices.IndexFunc(x.t.Columns, func(c shardmap.Column) bool { return c.Name == name })
	}
	single := len(lists) == 1 && x.t != nil
	if single {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(place(x.cols[a]), place(x.cols[b])) })
	}
	at := x.values + 1
	for _, l := range lists {
		open := at
		if !x.Punct(open, '(') {
			sourcetext.LostPlace()
		}
		end := x.Closing(open)
		items := l.GetList().GetItems()
		var spans [][2]int
		span := func(i int) (from, to int) {
			if spans == nil {
				spans = x.items(open, end)
			}
			if i >= len(spans) {
				sourcetext.LostPlace()
			}
			return spans[i][0], spans[i][1]
		}
		added := make([]string, len(missing))
		extra := make([]*pg.Node, len(missing))
		add := func(m int) {
			if added[m] == "" {
				extra[m], added[m] = x.value(madeFor(&x.Namespace, x.t, missing[m]))
			}
		}
		for _, i := range order {
			if single {
				for m, c := range missing {
					if place(c.Name) < place(x.cols[i]) {
						add(m)
					}
				}
			}
			x.item(items, i, span)
		}
		tail := ""
		for m := range missing {
			add(m)
			tail += ", " + added[m]
		}
		if tail != "" {
			from := x.Tokens()[end].Start
			if width == 0 {
				tail = tail[2:]
			}
			x.replace(from, from, tail)
			l.GetList().Items = append(items, extra...)
		}
		at = end + 1
		if x.Punct(at, ',') {
			at++
		}
	}
	x.listColumns(missing, width)
}

// items are the places of the expressions between two brackets.
func (x *inserting) items(open, end int) [][2]int {
	var out [][2]int
	ts := x.Tokens()
	from := open + 1
	for i := open + 1; i <= end; i++ {
		if i == end || x.Punct(i, ',') {
			if from < i {
				out = append(out, [2]int{ts[from].Start, ts[i-1].End})
			}
			from = i + 1
		} else if x.Punct(i, '(') || x.Punct(i, '[') {
			i = x.Closing(i)
		}
	}
	return out
}

// item fills one value of a row.
func (x *inserting) item(items []*pg.Node, i int, span func(int) (int, int)) {
	name := ""
	if i < len(x.cols) {
		name = x.cols[i]
	}
	c := x.column(name)
	override := x.s.Override
	isDefault := items[i].GetSetToDefault() != nil
	if c != nil && c.Generated != "" {
		given := !isDefault
		if given && c.Identity != "" && override == pg.OverridingKind_OVERRIDING_USER_VALUE {
			if hasParam(items[i]) {
				fail(sqlstate.Refusal("CLV-0242", "OVERRIDING USER VALUE ignores the value given for column %s, which is a parameter", sqltext.QuoteIdent(c.Name)).
					WithHint("Leave the column out."))
			}
			given = false
		}
		if given && c.Identity == shardmap.IdentityAlways && override != pg.OverridingKind_OVERRIDING_SYSTEM_VALUE {
			fail(semantics.AlwaysInsert(c.Name))
		}
		if !given {
			node, text := x.value(madeFor(&x.Namespace, x.t, c))
			from, to := span(i)
			x.replace(from, to, text)
			items[i] = node
			return
		}
	}
	if x.namesFill() {
		items[i] = x.fillExpr(items[i])
	}
	// A shard key column takes a random UUID from the router, which has to know it.
	if c != nil && slices.Contains(x.t.ShardKey, c.Name) {
		if f := items[i].GetFuncCall(); f != nil && len(f.Args) == 0 {
			if names := sqltree.Strings(f.Funcname); names[len(names)-1] == shardmap.UUIDv4 && (len(names) == 1 || names[0] == "pg_catalog") {
				node, text := x.value(plan.FillValue{Source: shardmap.UUIDv4})
				from, to := x.CallSpan(f)
				x.replace(from, to, text)
				items[i] = node
			}
		}
	}
}

func hasParam(n *pg.Node) bool {
	found := false
	var visit func(n *pg.Node)
	visit = func(n *pg.Node) {
		switch v := n.GetNode().(type) {
		case nil, *pg.Node_AConst:
		case *pg.Node_TypeCast:
			visit(v.TypeCast.Arg)
		default:
			found = true // a parameter, or something that may hold one
		}
	}
	visit(n)
	return found
}

// listColumns names the columns that were added to the rows.
func (x *inserting) listColumns(missing []*shardmap.Column, width int) {
	if len(missing) == 0 {
		return
	}
	names := make([]string, 0, len(x.t.Columns))
	if !x.named {
		for _, c := range x.cols[:width] {
			names = append(names, sqltext.QuoteAlways(c))
			x.s.Cols = append(x.s.Cols, resTarget(c))
		}
	}
	for _, c := range missing {
		names = append(names, sqltext.QuoteAlways(c.Name))
		x.s.Cols = append(x.s.Cols, resTarget(c.Name))
	}
	if x.named {
		x.replace(x.colsEnd, x.colsEnd, ", "+strings.Join(names, ", "))
	} else {
		x.replace(x.afterName, x.afterName, " ("+strings.Join(names, ", ")+")")
	}
}

// copyGenerated judges COPY ... FROM, whose rows the router of one shard relays unread.
func copyGenerated(to *semantics.Touched, c *pg.CopyStmt) {
	if copyMakes(&to.Typer.Namespace, c) {
		t := to.Typer.Relation(c.Relation).Table
		to.OneShard.RefuseOne(sqlstate.Refusal("CLV-0416", "the router makes values for rows of table %s, and does not read the rows of COPY", sqltext.QuoteName(t.Schema, t.Name)).
			WithHint("Give all columns in the COPY."))
	}
}

// copyMakes reports whether the router makes values for the rows of a COPY.
func copyMakes(ns *semantics.Namespace, c *pg.CopyStmt) bool {
	named := sqltree.Strings(c.Attlist)
	return len(named) > 0 && slices.ContainsFunc(ns.Unseen(ns.Relation(c.Relation).Table), func(g *shardmap.Column) bool { return !slices.Contains(named, g.Name) })
}
