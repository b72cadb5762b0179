package planner

import (
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func itoa(n int) string { return strconv.Itoa(n) }

// from reads the list after FROM into the scope and returns its join tree.
func (a *binder) from(list []*pg.Node, sc *scope) *jnode {
	root := newNode(jInner)
	for _, n := range list {
		j, items := a.fromItem(n, sc)
		sc.items = append(sc.items, items...)
		root.kids = append(root.kids, j)
		for r := range j.rtes {
			root.rtes[r] = true
		}
	}
	return root
}

// where adds a condition to a join node: its facts and its subqueries.
func (a *binder) where(j *jnode, cond *pg.Node, sc *scope) {
	if cond == nil {
		return
	}
	j.facts = append(j.facts, a.factsOf(cond, sc)...)
	a.conjuncts(cond, &walker{sc: sc, subs: &j.subs})
}

// conjuncts walks a condition. Where column IN (SELECT ...) has to be true, only
// rows of the subquery that are equal to the column matter: false and unknown
// are the same there.
func (a *binder) conjuncts(n *pg.Node, w *walker) {
	if b := n.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
		for _, arg := range b.Args {
			a.conjuncts(arg, w)
		}
		return
	}
	before := len(*w.subs)
	a.walk(n, w)
	l := n.GetSubLink()
	if l == nil || l.SubLinkType != pg.SubLinkType_ANY_SUBLINK || len(*w.subs) == before {
		return
	}
	if names := sqltree.Strings(l.OperName); len(names) > 0 && sqltree.OperatorOf(names) != "=" {
		return
	}
	q := (*w.subs)[len(*w.subs)-1]
	if q.open || q.sel == nil || q.sel != l.Subselect.GetSelectStmt() {
		return
	}
	a.given(q, l.Testexpr, w.sc)
}

// given gives a subquery the facts of test IN (subquery).
func (a *binder) given(q *query, test *pg.Node, sc *scope) {
	tests := []*pg.Node{test}
	if row := test.GetRowExpr(); row != nil {
		tests = row.Args
	}
	if len(tests) != len(q.cols) {
		return
	}
	for i, t := range tests {
		if c, ok := a.columnOf(t, sc); ok {
			if x := a.equal(c, q.cols[i]); x != nil {
				q.given = append(q.given, x)
			}
		}
	}
}

// fromItem reads one element of FROM. sc holds what stands left of it, which it
// may use if it is LATERAL.
func (a *binder) fromItem(n *pg.Node, sc *scope) (*jnode, []*item) {
	switch v := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		return a.tableRef(v.RangeVar, sc)
	case *pg.Node_RangeSubselect:
		return a.subselect(v.RangeSubselect, sc)
	case *pg.Node_JoinExpr:
		return a.join(v.JoinExpr, sc)
	case *pg.Node_RangeTableSample:
		s := v.RangeTableSample
		j, items := a.fromItem(s.Relation, sc)
		for i, r := range a.viewRefs {
			if r.rel == s.Relation.GetRangeVar() {
				a.viewRefs[i].sampled = true
			}
		}
		w := &walker{sc: sc.left(), subs: &j.subs}
		a.walkList(s.Args, w)
		a.walk(s.Repeatable, w)
		return j, items
	case *pg.Node_RangeFunction:
		f := v.RangeFunction
		j := newNode(jLeaf)
		w := &walker{sc: sc.left(), subs: &j.subs}
		for _, n := range f.Functions {
			a.walk(n, w)
		}
		it := &item{open: true, rel: true, bare: true}
		if len(f.Functions) == 1 {
			if items := f.Functions[0].GetList().GetItems(); len(items) > 0 {
				it.name = outputname.Of(items[0])
			}
		}
		it.alias(f.Alias)
		return j, []*item{it}
	}
	// XMLTABLE, JSON_TABLE: functions with subexpressions and their own columns.
	j := newNode(jLeaf)
	a.walkChildren(n, &walker{sc: sc.left(), subs: &j.subs})
	it := &item{open: true, rel: true, bare: true}
	switch v := n.GetNode().(type) {
	case *pg.Node_RangeTableFunc:
		it.alias(v.RangeTableFunc.Alias)
	case *pg.Node_JsonTable:
		it.alias(v.JsonTable.Alias)
	default:
		fail(sqlstate.Refusal("CLV-0246", "this kind of table expression is not known to the router").
			WithHint("Write it as a subquery or a join."))
	}
	return j, []*item{it}
}

// tableRef reads a table name in FROM, or as the target of a statement.
func (a *binder) tableRef(v *pg.RangeVar, sc *scope) (*jnode, []*item) {
	if v.Catalogname != "" && v.Catalogname != "cleave" {
		// PostgreSQL accepts only the name of the current database, which the
		// router does not compare: a shard's database has a name of its own.
		fail(sqlstate.Refusal("CLV-0247", "table names with a database in front are not supported").
			WithHint("Leave out the database name."))
	}
	if v.Schemaname == "" {
		if c := sc.cte(v.Relname); c != nil {
			j := newNode(jLeaf)
			rte := a.newRTE()
			j.rtes[rte] = true
			it := &item{name: v.Relname, rel: true, bare: true, open: c.open}
			for i, col := range c.cols {
				out := column{name: col.name, term: noTerm, typ: col.typ, oid: col.oid, late: col.late}
				if i < len(c.sets) && c.sets[i] != nil {
					out.term = a.newTerm(termInfo{typ: col.typ, rte: rte})
					j.facts = append(j.facts, oneOf(out.term, c.sets[i]))
				}
				it.cols = append(it.cols, out)
			}
			it.alias(v.Alias)
			return j, []*item{it}
		}
	}
	r := a.relation(v)
	a.touch(r, v)
	j := newNode(jLeaf)
	rte := a.newRTE()
	j.rtes[rte] = true
	it := a.tableItem(r, rte)
	// The key's terms are found by the columns' real names, before an alias renames them.
	if r.table != nil && r.table.Kind == shardmap.Sharded {
		j.table = r.table
		for _, k := range r.table.ShardKey {
			t := noTerm
			for _, c := range it.cols {
				if c.name == k {
					t = c.term
				}
			}
			j.key = append(j.key, t)
		}
	}
	it.alias(v.Alias)
	j.name = it.name
	a.bound.note(v, r, j, it)
	return j, []*item{it}
}

func (a *binder) subselect(v *pg.RangeSubselect, sc *scope) (*jnode, []*item) {
	parent := sc.parent
	outer := &scope{parent: parent, ctes: sc.ctes}
	if v.Lateral {
		outer = &scope{parent: sc.parent, items: append([]*item(nil), sc.items...), ctes: sc.ctes}
	}
	s := v.Subquery.GetSelectStmt()
	if s == nil {
		fail(sqlstate.Refusal("CLV-0248", "this kind of subquery is not known to the router"))
	}
	q := a.selectQuery(s, outer)
	j := newNode(jSub)
	j.q = q
	if q.root != nil {
		for r := range q.root.rtes {
			j.rtes[r] = true
		}
	}
	it := &item{rel: true, bare: true, open: q.open, cols: append([]column(nil), q.cols...)}
	for _, c := range q.cols {
		if c.term != noTerm {
			j.rtes[a.terms[c.term].rte] = true
		}
	}
	it.alias(v.Alias)
	return j, []*item{it}
}

func (a *binder) join(v *pg.JoinExpr, sc *scope) (*jnode, []*item) {
	l, left := a.fromItem(v.Larg, sc)
	// The right side may use the left one if it is LATERAL.
	inner := &scope{parent: sc.parent, ctes: sc.ctes, items: append(append([]*item(nil), sc.items...), left...)}
	r, right := a.fromItem(v.Rarg, inner)

	var j *jnode
	switch v.Jointype {
	case pg.JoinType_JOIN_INNER:
		j = newNode(jInner, l, r)
	case pg.JoinType_JOIN_LEFT:
		j = newNode(jLeft, l, r)
	case pg.JoinType_JOIN_RIGHT:
		j = newNode(jLeft, r, l)
	case pg.JoinType_JOIN_FULL:
		j = newNode(jFull, l, r)
	default:
		fail(sqlstate.Refusal("CLV-0249", "this kind of join is not known to the router"))
	}
	merged := &item{name: "", bare: true}
	lcols, lopen := visible(left)
	rcols, ropen := visible(right)
	merged.open = lopen || ropen

	using := sqltree.Strings(v.UsingClause)
	if v.IsNatural {
		using = sameNames(lcols, rcols)
	}
	skip := map[string]bool{}
	for _, name := range using {
		lc, rc := oneColumn(lcols, name), oneColumn(rcols, name)
		skip[name] = true
		if x := a.equal(lc, rc); x != nil {
			j.facts = append(j.facts, x)
		}
		out := mergedColumn(v.Jointype, lc, rc)
		out.name = name
		out.oid, out.late = a.sameType(lc, rc)
		merged.cols = append(merged.cols, out)
	}
	for _, cols := range [][]column{lcols, rcols} {
		for _, c := range cols {
			if !skip[c.name] {
				merged.cols = append(merged.cols, c)
			}
		}
	}
	if v.IsNatural && merged.open {
		// Which columns are merged is not known.
		for i := range merged.cols {
			merged.cols[i].term = noTerm
		}
	}
	both := append(append([]*item(nil), left...), right...)
	if v.Quals != nil {
		on := &scope{parent: sc.parent, ctes: sc.ctes, items: append([]*item(nil), both...)}
		// Quals of a LATERAL's inner join may use what stands left of the join too.
		a.where(j, v.Quals, on)
	}
	return j, joinItems(v, both, merged, len(using))
}

// joinItems are what names mean beside a join: its own columns, the first of which USING merged, and those of its sides by their names.
func joinItems(v *pg.JoinExpr, sides []*item, merged *item, using int) (items []*item) {
	if v.Alias != nil {
		merged.rel = true
		merged.alias(v.Alias)
		return []*item{merged}
	}
	for _, it := range sides {
		c := *it
		c.bare = false
		if c.rel {
			items = append(items, &c)
		}
	}
	if v.JoinUsingAlias != nil {
		u := &item{name: v.JoinUsingAlias.Aliasname, rel: true}
		u.cols = append(u.cols, merged.cols[:using]...)
		items = append(items, u)
	}
	return append(items, merged)
}

// sameNames are the columns that NATURAL merges.
func sameNames(lcols, rcols []column) (names []string) {
	for _, c := range lcols {
		if countName(rcols, c.name) > 0 {
			names = append(names, c.name)
		}
	}
	return names
}

// mergedColumn is what USING makes of two columns: the one that has a value in each row.
func mergedColumn(t pg.JoinType, lc, rc column) column {
	if lc.typ == rc.typ {
		switch t {
		case pg.JoinType_JOIN_INNER, pg.JoinType_JOIN_LEFT:
			return lc
		case pg.JoinType_JOIN_RIGHT:
			return rc
		}
	}
	return column{term: noTerm}
}

// visible returns the columns that can be named without their table.
func visible(items []*item) (cols []column, open bool) {
	for _, it := range items {
		if it.bare {
			cols = append(cols, it.cols...)
			open = open || it.open
		}
	}
	return cols, open
}

func countName(cols []column, name string) (n int) {
	for _, c := range cols {
		if c.name == name {
			n++
		}
	}
	return n
}

func oneColumn(cols []column, name string) column {
	out := column{name: name, term: noTerm}
	n := 0
	for _, c := range cols {
		if c.name == name {
			out = c
			n++
		}
	}
	if n != 1 {
		return column{name: name, term: noTerm}
	}
	return out
}

// equal returns the fact that two columns are equal, nil if that says nothing
// sure about their values: another type, or a text with an unknown collation.
func (eq *equivalence) equal(x, y column) *fact {
	if x.term == noTerm || y.term == noTerm || !keytype.SameFamily(x.typ, y.typ) {
		return nil
	}
	if keytype.IsText(x.typ) && !(eq.terms[x.term].plain && eq.terms[y.term].plain) {
		return nil
	}
	return &fact{a: x.term, b: y.term}
}

// restrictions reads facts out of conditions.
type restrictions struct {
	*typer
	*constants
	*equivalence

	p     *Planner
	bound *boundStatement
	one   *oneShard
}

// factsOf returns what a condition says if it is true.
func (co *restrictions) factsOf(n *pg.Node, sc *scope) []*fact {
	switch v := n.GetNode().(type) {
	case *pg.Node_BoolExpr:
		switch v.BoolExpr.Boolop {
		case pg.BoolExprType_AND_EXPR:
			var out []*fact
			for _, arg := range v.BoolExpr.Args {
				out = append(out, co.factsOf(arg, sc)...)
			}
			return out
		case pg.BoolExprType_OR_EXPR:
			return co.anyOf(v.BoolExpr.Args, sc)
		case pg.BoolExprType_NOT_EXPR:
			return co.boolFact(v.BoolExpr.Args[0], sc, "false")
		}
	case *pg.Node_AExpr:
		return co.comparison(v.AExpr, sc)
	case *pg.Node_ColumnRef:
		return co.boolFact(n, sc, "true")
	case *pg.Node_BooleanTest:
		switch v.BooleanTest.Booltesttype {
		case pg.BoolTestType_IS_TRUE:
			return co.factsOf(v.BooleanTest.Arg, sc)
		case pg.BoolTestType_IS_FALSE:
			return co.boolFact(v.BooleanTest.Arg, sc, "false")
		}
	}
	return nil
}

// boolFact is the fact of a bare boolean column.
func (ty *typer) boolFact(n *pg.Node, sc *scope, text string) []*fact {
	c, ok := ty.columnOf(n, sc)
	if !ok || c.typ != keyspace.Bool {
		return nil
	}
	val, err := keyspace.ParseText(keyspace.Bool, []byte(text))
	if err != nil {
		return nil
	}
	return []*fact{oneOf(c.term, []constant{{typ: keyspace.Bool, val: val}})}
}

// anyOf joins the facts of OR: a column that every arm fixes is one of all.
func (co *restrictions) anyOf(args []*pg.Node, sc *scope) []*fact {
	var joined map[term][]constant
	var order []term
	for i, arg := range args {
		arm := &facts{learned: map[*jnode]bool{}, list: co.factsOf(arg, sc)}
		if len(arm.list) == 0 {
			return nil
		}
		if i == 0 {
			joined = map[term][]constant{}
			for _, x := range arm.list {
				for _, t := range x.terms {
					if _, have := joined[t]; !have {
						order = append(order, t)
						joined[t], _ = arm.best(map[term]bool{t: true})
					}
				}
			}
			continue
		}
		for t := range joined {
			set, ok := arm.best(map[term]bool{t: true})
			if !ok {
				delete(joined, t)
				continue
			}
			joined[t] = append(joined[t], set...)
		}
		if len(joined) == 0 {
			return nil
		}
	}
	var out []*fact
	for _, t := range order {
		if set, ok := joined[t]; ok {
			out = append(out, oneOf(t, set))
		}
	}
	return out
}

// columnOf reads a column reference, possibly cast to a type that changes
// nothing about equality (an integer to a wider one, varchar to text).
func (ty *typer) columnOf(n *pg.Node, sc *scope) (column, bool) {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		names := sqltree.FieldNames(v.ColumnRef)
		if names == nil {
			return column{}, false
		}
		c := sc.resolve(names)
		return c, c.term != noTerm && c.typ != 0
	case *pg.Node_TypeCast:
		t := ty.castType(v.TypeCast.TypeName)
		if t == 0 {
			return column{}, false
		}
		c, ok := ty.columnOf(v.TypeCast.Arg, sc)
		if !ok || !keytype.SameFamily(c.typ, t) || keytype.IsInt(t) && t < c.typ {
			return column{}, false
		}
		return c, true
	}
	return column{}, false
}

// comparison returns the facts of =, IN and = ANY.
func (co *restrictions) comparison(e *pg.A_Expr, sc *scope) []*fact {
	if x := co.bounds(e, sc); x != nil {
		return x
	}
	if sqltree.Operator(e) != "=" {
		if e.Kind == pg.A_Expr_Kind_AEXPR_NOT_DISTINCT {
			return co.notDistinct(e, sc)
		}
		return nil
	}
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_NOT_DISTINCT:
		return co.notDistinct(e, sc)
	case pg.A_Expr_Kind_AEXPR_OP:
		l, r := e.Lexpr.GetRowExpr(), e.Rexpr.GetRowExpr()
		if l != nil && r != nil {
			if len(l.Args) != len(r.Args) {
				return nil
			}
			var out []*fact
			for i := range l.Args {
				out = append(out, co.equality(l.Args[i], r.Args[i], sc)...)
			}
			return out
		}
		return co.equality(e.Lexpr, e.Rexpr, sc)
	case pg.A_Expr_Kind_AEXPR_IN:
		return co.inList(e, sc)
	case pg.A_Expr_Kind_AEXPR_OP_ANY:
		return co.anyArray(e, sc)
	}
	return nil
}

func (co *restrictions) equality(l, r *pg.Node, sc *scope) []*fact {
	lc, lok := co.columnOf(l, sc)
	rc, rok := co.columnOf(r, sc)
	switch {
	case lok && rok:
		if x := co.equal(lc, rc); x != nil {
			return []*fact{x}
		}
	case lok:
		if k, ok := co.constantOf(r, lc.typ, false); ok {
			return []*fact{oneOf(lc.term, []constant{k})}
		}
	case rok:
		if k, ok := co.constantOf(l, rc.typ, false); ok {
			return []*fact{oneOf(rc.term, []constant{k})}
		}
	}
	return nil
}

// notDistinct is = for a literal that is not NULL.
func (co *restrictions) notDistinct(e *pg.A_Expr, sc *scope) []*fact {
	out := co.equality(e.Lexpr, e.Rexpr, sc)
	for _, x := range out {
		if x.rows == nil || x.rows[0][0].param != 0 || x.rows[0][0].never {
			return nil
		}
	}
	return out
}

// inList reads column IN (constants) and (columns) IN ((constants), ...).
func (co *restrictions) inList(e *pg.A_Expr, sc *scope) []*fact {
	items := e.Rexpr.GetList().GetItems()
	if len(items) == 0 || len(items) > co.p.limits.Keys {
		return nil
	}
	cols := []*pg.Node{e.Lexpr}
	if row := e.Lexpr.GetRowExpr(); row != nil {
		cols = row.Args
	}
	x := &fact{}
	for _, n := range cols {
		c, ok := co.columnOf(n, sc)
		if !ok {
			return nil
		}
		x.terms = append(x.terms, c.term)
	}
	column := make([]*pg.Node, len(items))
	for i := range cols {
		for j, it := range items {
			if len(cols) == 1 && it.GetRowExpr() == nil {
				column[j] = it
				continue
			}
			args := it.GetRowExpr().GetArgs()
			if len(args) != len(cols) {
				return nil
			}
			column[j] = args[i]
		}
		t := co.terms[x.terms[i]].typ
		strings := t
		if e.Lexpr.GetRowExpr() == nil {
			strings = co.listType(column, t)
		}
		set := co.constantList(column, t, strings)
		if set == nil {
			return nil
		}
		if x.rows == nil {
			x.rows = make([][]constant, len(items))
		}
		for j, k := range set {
			x.rows[j] = append(x.rows[j], k)
		}
	}
	return []*fact{x}
}

// constantList reads the elements of a list that PostgreSQL gives one common type.
// A number that is no integer makes them all numeric, so that strings and
// parameters beside it are read as numeric as well: then nothing is sure.
// Strings are of the type given for them.
func (con *constants) constantList(nodes []*pg.Node, t, strings keyspace.Type) []constant {
	fraction, open := false, false
	for _, n := range nodes {
		switch c := n.GetAConst(); {
		case c == nil:
			open = true
		case c.GetFval() != nil:
			if _, err := strconv.ParseInt(c.GetFval().GetFval(), 10, 64); err != nil {
				fraction = true
			}
		case c.GetSval() != nil:
			open = true
		}
	}
	if fraction && open {
		return nil
	}
	out := make([]constant, 0, len(nodes))
	for _, n := range nodes {
		k, ok := constant{}, false
		if c := n.GetAConst(); c.GetSval() != nil {
			k, ok = con.literal(c, t, strings, false)
		} else {
			k, ok = con.constantOf(n, t, false)
		}
		if !ok {
			return nil
		}
		out = append(out, k)
	}
	return out
}

// listType is the type that the strings of IN (...) are read as beside a column of type
// t: numbers make them all integers of another width.
func (ty *typer) listType(nodes []*pg.Node, t keyspace.Type) keyspace.Type {
	if !keytype.IsInt(t) || len(nodes) == 1 {
		return t
	}
	for _, n := range nodes {
		width := keyspace.Type(0)
		switch c := n.GetAConst(); {
		case c.GetIval() != nil:
			width = keyspace.Int4
		case c.GetFval() != nil:
			width = keyspace.Int8
		case n.GetTypeCast() != nil:
			width = ty.castType(n.GetTypeCast().TypeName)
		}
		if keytype.IsInt(width) && width > t {
			t = width
		}
	}
	return t
}

// anyArray reads column = ANY (ARRAY[...]) and = ANY (ARRAY[...]::type[]).
func (co *restrictions) anyArray(e *pg.A_Expr, sc *scope) []*fact {
	c, ok := co.columnOf(e.Lexpr, sc)
	if !ok {
		return nil
	}
	n, cast := e.Rexpr, keyspace.Type(0)
	if tc := n.GetTypeCast(); tc != nil {
		if cast = co.arrayType(tc.TypeName); cast == 0 || !keytype.SameFamily(cast, c.typ) {
			return nil
		}
		n = tc.Arg
	}
	if p := paramOf(n); p > 0 {
		k := constant{typ: c.typ, param: p, cast: cast, array: true}
		if cast != 0 {
			k.typ = cast
		}
		return []*fact{oneOf(c.term, []constant{k})}
	}
	if lit := n.GetAConst(); lit.GetSval() != nil {
		return co.anyLiteral(c, cast, lit.GetSval().Sval)
	}
	arr := n.GetAArrayExpr()
	if arr == nil || len(arr.Elements) == 0 || len(arr.Elements) > co.p.limits.Keys {
		return nil
	}
	for _, el := range arr.Elements {
		// Without a cast, an array of nothing but strings and parameters is a
		// text[], and one that mixes them with numbers reads them as numbers.
		if cast == 0 && !keytype.IsText(c.typ) && el.GetTypeCast() == nil && el.GetAConst().GetIval() == nil && el.GetAConst().GetFval() == nil {
			return nil
		}
	}
	t := c.typ
	if cast != 0 {
		t = cast
		for _, el := range arr.Elements {
			if f := el.GetAConst().GetFval(); f != nil {
				if _, integral, _ := keytype.WholeNumber(f.GetFval()); !integral {
					return nil // the cast rounds it
				}
			}
		}
	}
	set := co.constantList(arr.Elements, t, t)
	if set == nil {
		return nil
	}
	for i := range set {
		if set[i].param != 0 && set[i].cast == 0 {
			set[i].cast = cast
		}
	}
	return []*fact{oneOf(c.term, set)}
}

// anyLiteral reads column = ANY ('{...}').
func (con *constants) anyLiteral(c column, cast keyspace.Type, text string) []*fact {
	t := c.typ
	if cast != 0 {
		t = cast
	}
	values, err := plan.ArrayElements([]byte(text))
	if err != nil || len(values) > con.p.limits.Keys {
		return nil // a shard says what is wrong with it
	}
	set := make([]constant, 0, len(values))
	for _, v := range values {
		if v == nil {
			continue // equal to nothing
		}
		val, err := keyspace.ParseText(t, v)
		if err != nil {
			return nil
		}
		k := constant{typ: c.typ}
		var ok bool
		if k.val, k.never, ok = keytype.Convert(val, c.typ); !ok {
			return nil
		}
		set = append(set, k)
	}
	con.dropped = true // the values are not among the text's literals
	return []*fact{oneOf(c.term, set)}
}
