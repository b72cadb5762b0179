package semantics

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

// from reads the list after FROM into the scope and returns its join tree.
func (a *binder) from(list []*pg.Node, sc *Scope) *JoinNode {
	root := newNode(InnerJoin)
	for _, n := range list {
		j, items := a.fromItem(n, sc)
		sc.Items = append(sc.Items, items...)
		root.Kids = append(root.Kids, j)
		for r := range j.rtes {
			root.rtes[r] = true
		}
	}
	return root
}

// where adds a condition to a join node: its facts and its subqueries.
func (a *binder) where(j *JoinNode, cond *pg.Node, sc *Scope) {
	if cond == nil {
		return
	}
	j.Facts = append(j.Facts, a.factsOf(cond, sc)...)
	a.conjuncts(cond, &Walker{Scope: sc, Subqueries: &j.subs})
}

// conjuncts walks a condition. Where column IN (SELECT ...) has to be true, only
// rows of the subquery that are equal to the column matter: false and unknown
// are the same there.
func (a *binder) conjuncts(n *pg.Node, w *Walker) {
	if b := n.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
		for _, arg := range b.Args {
			a.conjuncts(arg, w)
		}
		return
	}
	before := len(*w.Subqueries)
	a.Walk(n, w)
	l := n.GetSubLink()
	if l == nil || l.SubLinkType != pg.SubLinkType_ANY_SUBLINK || len(*w.Subqueries) == before {
		return
	}
	if names := sqltree.Strings(l.OperName); len(names) > 0 && sqltree.OperatorOf(names) != "=" {
		return
	}
	q := (*w.Subqueries)[len(*w.Subqueries)-1]
	if q.Open || q.Select == nil || q.Select != l.Subselect.GetSelectStmt() {
		return
	}
	a.given(q, l.Testexpr, w.Scope)
}

// given gives a subquery the facts of test IN (subquery).
func (a *binder) given(q *Query, test *pg.Node, sc *Scope) {
	tests := []*pg.Node{test}
	if row := test.GetRowExpr(); row != nil {
		tests = row.Args
	}
	if len(tests) != len(q.Columns) {
		return
	}
	for i, t := range tests {
		if c, ok := a.ColumnOf(t, sc); ok {
			if x := a.equal(c, q.Columns[i]); x != nil {
				q.given = append(q.given, x)
			}
		}
	}
}

// fromItem reads one element of FROM. sc holds what stands left of it, which it
// may use if it is LATERAL.
func (a *binder) fromItem(n *pg.Node, sc *Scope) (*JoinNode, []*Item) {
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
		for i, r := range a.ViewRefs {
			if r.Ref == s.Relation.GetRangeVar() {
				a.ViewRefs[i].Sampled = true
			}
		}
		w := &Walker{Scope: sc.left(), Subqueries: &j.subs}
		a.walkList(s.Args, w)
		a.Walk(s.Repeatable, w)
		return j, items
	case *pg.Node_RangeFunction:
		f := v.RangeFunction
		j := newNode(JLeaf)
		w := &Walker{Scope: sc.left(), Subqueries: &j.subs}
		for _, n := range f.Functions {
			a.Walk(n, w)
		}
		it := &Item{Open: true, Qualified: true, Bare: true}
		if len(f.Functions) == 1 {
			if items := f.Functions[0].GetList().GetItems(); len(items) > 0 {
				it.Name = outputname.Of(items[0])
			}
		}
		it.alias(f.Alias)
		return j, []*Item{it}
	}
	// XMLTABLE, JSON_TABLE: functions with subexpressions and their own columns.
	j := newNode(JLeaf)
	a.walkChildren(n, &Walker{Scope: sc.left(), Subqueries: &j.subs})
	it := &Item{Open: true, Qualified: true, Bare: true}
	switch v := n.GetNode().(type) {
	case *pg.Node_RangeTableFunc:
		it.alias(v.RangeTableFunc.Alias)
	case *pg.Node_JsonTable:
		it.alias(v.JsonTable.Alias)
	default:
		fail(sqlstate.Refusal("CLV-0246", "this kind of table expression is not known to the router").
			WithHint("Write it as a subquery or a join."))
	}
	return j, []*Item{it}
}

// tableRef reads a table name in FROM, or as the target of a statement.
func (a *binder) tableRef(v *pg.RangeVar, sc *Scope) (*JoinNode, []*Item) {
	if v.Catalogname != "" && v.Catalogname != "cleave" {
		// PostgreSQL accepts only the name of the current database, which the
		// router does not compare: a shard's database has a name of its own.
		fail(sqlstate.Refusal("CLV-0247", "table names with a database in front are not supported").
			WithHint("Leave out the database name."))
	}
	if v.Schemaname == "" {
		if c := sc.cte(v.Relname); c != nil {
			j := newNode(JLeaf)
			rte := a.NewRTE()
			j.rtes[rte] = true
			it := &Item{Name: v.Relname, Qualified: true, Bare: true, Open: c.open}
			for i, col := range c.cols {
				out := Column{Name: col.Name, Term: NoTerm, typ: col.typ, oid: col.oid, late: col.late}
				if i < len(c.sets) && c.sets[i] != nil {
					out.Term = a.newTerm(termInfo{typ: col.typ, rte: rte})
					j.Facts = append(j.Facts, OneOf(out.Term, c.sets[i]))
				}
				it.Columns = append(it.Columns, out)
			}
			it.alias(v.Alias)
			return j, []*Item{it}
		}
	}
	r := a.Relation(v)
	a.Touch(r, v)
	j := newNode(JLeaf)
	rte := a.NewRTE()
	j.rtes[rte] = true
	it := a.TableItem(r, rte)
	// The key's terms are found by the columns' real names, before an alias renames them.
	if r.Table != nil && r.Table.Kind == shardmap.Sharded {
		j.table = r.Table
		for _, k := range r.Table.ShardKey {
			t := NoTerm
			for _, c := range it.Columns {
				if c.Name == k {
					t = c.Term
				}
			}
			j.Key = append(j.Key, t)
		}
	}
	it.alias(v.Alias)
	j.Name = it.Name
	a.bound.note(v, r, j, it)
	return j, []*Item{it}
}

func (a *binder) subselect(v *pg.RangeSubselect, sc *Scope) (*JoinNode, []*Item) {
	parent := sc.parent
	outer := &Scope{parent: parent, ctes: sc.ctes}
	if v.Lateral {
		outer = &Scope{parent: sc.parent, Items: append([]*Item(nil), sc.Items...), ctes: sc.ctes}
	}
	s := v.Subquery.GetSelectStmt()
	if s == nil {
		fail(sqlstate.Refusal("CLV-0248", "this kind of subquery is not known to the router"))
	}
	q := a.SelectQuery(s, outer)
	j := newNode(JSub)
	j.Query = q
	if q.Root != nil {
		for r := range q.Root.rtes {
			j.rtes[r] = true
		}
	}
	it := &Item{Qualified: true, Bare: true, Open: q.Open, Columns: append([]Column(nil), q.Columns...)}
	for _, c := range q.Columns {
		if c.Term != NoTerm {
			j.rtes[a.terms[c.Term].rte] = true
		}
	}
	it.alias(v.Alias)
	return j, []*Item{it}
}

func (a *binder) join(v *pg.JoinExpr, sc *Scope) (*JoinNode, []*Item) {
	l, left := a.fromItem(v.Larg, sc)
	// The right side may use the left one if it is LATERAL.
	inner := &Scope{parent: sc.parent, ctes: sc.ctes, Items: append(append([]*Item(nil), sc.Items...), left...)}
	r, right := a.fromItem(v.Rarg, inner)

	var j *JoinNode
	switch v.Jointype {
	case pg.JoinType_JOIN_INNER:
		j = newNode(InnerJoin, l, r)
	case pg.JoinType_JOIN_LEFT:
		j = newNode(LeftJoin, l, r)
	case pg.JoinType_JOIN_RIGHT:
		j = newNode(LeftJoin, r, l)
	case pg.JoinType_JOIN_FULL:
		j = newNode(jFull, l, r)
	default:
		fail(sqlstate.Refusal("CLV-0249", "this kind of join is not known to the router"))
	}
	merged := &Item{Name: "", Bare: true}
	lcols, lopen := visible(left)
	rcols, ropen := visible(right)
	merged.Open = lopen || ropen

	using := sqltree.Strings(v.UsingClause)
	if v.IsNatural {
		using = sameNames(lcols, rcols)
	}
	skip := map[string]bool{}
	for _, name := range using {
		lc, rc := oneColumn(lcols, name), oneColumn(rcols, name)
		skip[name] = true
		if x := a.equal(lc, rc); x != nil {
			j.Facts = append(j.Facts, x)
		}
		out := mergedColumn(v.Jointype, lc, rc)
		out.Name = name
		out.oid, out.late = a.sameType(lc, rc)
		merged.Columns = append(merged.Columns, out)
	}
	for _, cols := range [][]Column{lcols, rcols} {
		for _, c := range cols {
			if !skip[c.Name] {
				merged.Columns = append(merged.Columns, c)
			}
		}
	}
	if v.IsNatural && merged.Open {
		// Which columns are merged is not known.
		for i := range merged.Columns {
			merged.Columns[i].Term = NoTerm
		}
	}
	both := append(append([]*Item(nil), left...), right...)
	if v.Quals != nil {
		on := &Scope{parent: sc.parent, ctes: sc.ctes, Items: append([]*Item(nil), both...)}
		// Quals of a LATERAL's inner join may use what stands left of the join too.
		a.where(j, v.Quals, on)
	}
	return j, joinItems(v, both, merged, len(using))
}

// joinItems are what names mean beside a join: its own columns, the first of which USING merged, and those of its sides by their names.
func joinItems(v *pg.JoinExpr, sides []*Item, merged *Item, using int) (items []*Item) {
	if v.Alias != nil {
		merged.Qualified = true
		merged.alias(v.Alias)
		return []*Item{merged}
	}
	for _, it := range sides {
		c := *it
		c.Bare = false
		if c.Qualified {
			items = append(items, &c)
		}
	}
	if v.JoinUsingAlias != nil {
		u := &Item{Name: v.JoinUsingAlias.Aliasname, Qualified: true}
		u.Columns = append(u.Columns, merged.Columns[:using]...)
		items = append(items, u)
	}
	return append(items, merged)
}

// sameNames are the columns that NATURAL merges.
func sameNames(lcols, rcols []Column) (names []string) {
	for _, c := range lcols {
		if countName(rcols, c.Name) > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// mergedColumn is what USING makes of two columns: the one that has a value in each row.
func mergedColumn(t pg.JoinType, lc, rc Column) Column {
	if lc.typ == rc.typ {
		switch t {
		case pg.JoinType_JOIN_INNER, pg.JoinType_JOIN_LEFT:
			return lc
		case pg.JoinType_JOIN_RIGHT:
			return rc
		}
	}
	return Column{Term: NoTerm}
}

// visible returns the columns that can be named without their table.
func visible(items []*Item) (cols []Column, open bool) {
	for _, it := range items {
		if it.Bare {
			cols = append(cols, it.Columns...)
			open = open || it.Open
		}
	}
	return cols, open
}

func countName(cols []Column, name string) (n int) {
	for _, c := range cols {
		if c.Name == name {
			n++
		}
	}
	return n
}

func oneColumn(cols []Column, name string) Column {
	out := Column{Name: name, Term: NoTerm}
	n := 0
	for _, c := range cols {
		if c.Name == name {
			out = c
			n++
		}
	}
	if n != 1 {
		return Column{Name: name, Term: NoTerm}
	}
	return out
}

// equal returns the fact that two columns are equal, nil if that says nothing
// sure about their values: another type, or a text with an unknown collation.
func (eq *Equivalence) equal(x, y Column) *fact {
	if x.Term == NoTerm || y.Term == NoTerm || !keytype.SameFamily(x.typ, y.typ) {
		return nil
	}
	if keytype.IsText(x.typ) && !(eq.terms[x.Term].plain && eq.terms[y.Term].plain) {
		return nil
	}
	return &fact{A: x.Term, b: y.Term}
}

// restrictions reads facts out of conditions.
type restrictions struct {
	*Typer
	*constants
	*Equivalence

	reader *Reader
	bound  *BoundStatement
	one    *OneShard
}

// factsOf returns what a condition says if it is true.
func (co *restrictions) factsOf(n *pg.Node, sc *Scope) []*fact {
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
func (ty *Typer) boolFact(n *pg.Node, sc *Scope, text string) []*fact {
	c, ok := ty.ColumnOf(n, sc)
	if !ok || c.typ != keyspace.Bool {
		return nil
	}
	val, err := keyspace.ParseText(keyspace.Bool, []byte(text))
	if err != nil {
		return nil
	}
	return []*fact{OneOf(c.Term, []Constant{{Type: keyspace.Bool, val: val}})}
}

// anyOf joins the facts of OR: a column that every arm fixes is one of all.
func (co *restrictions) anyOf(args []*pg.Node, sc *Scope) []*fact {
	var joined map[Term][]Constant
	var order []Term
	for i, arg := range args {
		arm := &Facts{learned: map[*JoinNode]bool{}, List: co.factsOf(arg, sc)}
		if len(arm.List) == 0 {
			return nil
		}
		if i == 0 {
			joined = map[Term][]Constant{}
			for _, x := range arm.List {
				for _, t := range x.terms {
					if _, have := joined[t]; !have {
						order = append(order, t)
						joined[t], _ = arm.best(map[Term]bool{t: true})
					}
				}
			}
			continue
		}
		for t := range joined {
			set, ok := arm.best(map[Term]bool{t: true})
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
			out = append(out, OneOf(t, set))
		}
	}
	return out
}

// ColumnOf reads a column reference, possibly cast to a type that changes
// nothing about equality (an integer to a wider one, varchar to text).
func (ty *Typer) ColumnOf(n *pg.Node, sc *Scope) (Column, bool) {
	switch v := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		names := sqltree.FieldNames(v.ColumnRef)
		if names == nil {
			return Column{}, false
		}
		c := sc.resolve(names)
		return c, c.Term != NoTerm && c.typ != 0
	case *pg.Node_TypeCast:
		t := ty.castType(v.TypeCast.TypeName)
		if t == 0 {
			return Column{}, false
		}
		c, ok := ty.ColumnOf(v.TypeCast.Arg, sc)
		if !ok || !keytype.SameFamily(c.typ, t) || keytype.IsInt(t) && t < c.typ {
			return Column{}, false
		}
		return c, true
	}
	return Column{}, false
}

// comparison returns the facts of =, IN and = ANY.
func (co *restrictions) comparison(e *pg.A_Expr, sc *Scope) []*fact {
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

func (co *restrictions) equality(l, r *pg.Node, sc *Scope) []*fact {
	lc, lok := co.ColumnOf(l, sc)
	rc, rok := co.ColumnOf(r, sc)
	switch {
	case lok && rok:
		if x := co.equal(lc, rc); x != nil {
			return []*fact{x}
		}
	case lok:
		if k, ok := co.ConstantOf(r, lc.typ, false); ok {
			return []*fact{OneOf(lc.Term, []Constant{k})}
		}
	case rok:
		if k, ok := co.ConstantOf(l, rc.typ, false); ok {
			return []*fact{OneOf(rc.Term, []Constant{k})}
		}
	}
	return nil
}

// notDistinct is = for a literal that is not NULL.
func (co *restrictions) notDistinct(e *pg.A_Expr, sc *Scope) []*fact {
	out := co.equality(e.Lexpr, e.Rexpr, sc)
	for _, x := range out {
		if x.rows == nil || x.rows[0][0].param != 0 || x.rows[0][0].Never {
			return nil
		}
	}
	return out
}

// inList reads column IN (constants) and (columns) IN ((constants), ...).
func (co *restrictions) inList(e *pg.A_Expr, sc *Scope) []*fact {
	items := e.Rexpr.GetList().GetItems()
	if len(items) == 0 || len(items) > co.reader.Keys {
		return nil
	}
	cols := []*pg.Node{e.Lexpr}
	if row := e.Lexpr.GetRowExpr(); row != nil {
		cols = row.Args
	}
	x := &fact{}
	for _, n := range cols {
		c, ok := co.ColumnOf(n, sc)
		if !ok {
			return nil
		}
		x.terms = append(x.terms, c.Term)
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
			x.rows = make([][]Constant, len(items))
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
func (con *constants) constantList(nodes []*pg.Node, t, strings keyspace.Type) []Constant {
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
	out := make([]Constant, 0, len(nodes))
	for _, n := range nodes {
		k, ok := Constant{}, false
		if c := n.GetAConst(); c.GetSval() != nil {
			k, ok = con.literal(c, t, strings, false)
		} else {
			k, ok = con.ConstantOf(n, t, false)
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
func (ty *Typer) listType(nodes []*pg.Node, t keyspace.Type) keyspace.Type {
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
func (co *restrictions) anyArray(e *pg.A_Expr, sc *Scope) []*fact {
	c, ok := co.ColumnOf(e.Lexpr, sc)
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
	if p := ParamOf(n); p > 0 {
		k := Constant{Type: c.typ, param: p, cast: cast, array: true}
		if cast != 0 {
			k.Type = cast
		}
		return []*fact{OneOf(c.Term, []Constant{k})}
	}
	if lit := n.GetAConst(); lit.GetSval() != nil {
		return co.anyLiteral(c, cast, lit.GetSval().Sval)
	}
	arr := n.GetAArrayExpr()
	if arr == nil || len(arr.Elements) == 0 || len(arr.Elements) > co.reader.Keys {
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
	return []*fact{OneOf(c.Term, set)}
}

// anyLiteral reads column = ANY ('{...}').
func (con *constants) anyLiteral(c Column, cast keyspace.Type, text string) []*fact {
	t := c.typ
	if cast != 0 {
		t = cast
	}
	values, err := plan.ArrayElements([]byte(text))
	if err != nil || len(values) > con.reader.Keys {
		return nil // a shard says what is wrong with it
	}
	set := make([]Constant, 0, len(values))
	for _, v := range values {
		if v == nil {
			continue // equal to nothing
		}
		val, err := keyspace.ParseText(t, v)
		if err != nil {
			return nil
		}
		k := Constant{Type: c.typ}
		var ok bool
		if k.val, k.Never, ok = keytype.Convert(val, c.typ); !ok {
			return nil
		}
		set = append(set, k)
	}
	con.Dropped = true // the values are not among the text's literals
	return []*fact{OneOf(c.Term, set)}
}
