package semantics

import (
	"strconv"

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

// The proof. A statement is exact on one shard if only rows of the shard keys
// that it names can change its answer, and all of these keys are on that shard.
// So for every sharded table in it we look for facts that hold for each row of
// it that can matter, and that fix its shard key. docs/design/planner.md has the
// rules and why they hold.

// jop is what a node of the join tree does.
type jop uint8

const (
	JLeaf     jop = iota // a table, VALUES, a CTE, a function
	InnerJoin            // inner join, the list after FROM, and WHERE
	LeftJoin             // l LEFT JOIN r
	jFull
	JSub // a subquery in FROM
)

// JoinNode is a node of the join tree.
type JoinNode struct {
	Op    jop
	Kids  []*JoinNode // two for joins
	Facts []*fact     // from ON or WHERE, or that a leaf has by itself
	subs  []*Query    // subqueries in ON or WHERE
	rtes  map[int]bool
	Query *Query // JSub

	// A sharded table: the terms of its shard key.
	table *shardmap.Table
	Name  string // as the statement calls it
	Key   []Term
}

func newNode(op jop, kids ...*JoinNode) *JoinNode {
	j := &JoinNode{Op: op, Kids: kids, rtes: map[int]bool{}}
	for _, k := range kids {
		for r := range k.rtes {
			j.rtes[r] = true
		}
	}
	return j
}

// Query is one SELECT, or one arm of a set operation.
type Query struct {
	Root       *JoinNode
	Arms       []*Query // set operation; root is nil
	Subqueries []*Query // subqueries outside FROM and WHERE
	With       []*withQuery
	Columns    []Column
	Open       bool // it has columns that are not known
	// given are facts about the rows of it that matter where it stands: column IN
	// (this query).
	given  []*fact
	Select *pg.SelectStmt
	Scope  *Scope
	// Inner are the terms of FROM that the columns are, NoTerm for expressions.
	Inner []Term
	// Aggregates: it aggregates without GROUP BY, or by it. windows: it calls window functions.
	Aggregates, Windows bool
	// up: the facts of FROM and WHERE hold for each output row. down: a row that
	// has another value in an output column than the one that matters cannot
	// change the rows that have it.
	up, down bool
	// links are output terms and the inner terms that they take their value
	// from, where facts must not flow down.
	links [][2]Term
	// consts are output columns that are constants themselves.
	consts []*fact
}

// withQuery is a WITH query with the facts of its place.
type withQuery struct {
	q *Query
	c *cte
}

// workMax bounds the proof of one statement, in facts looked at: nested set
// operations and recursive WITH queries are gone through several times.
const workMax = 10_000_000

// Work ends the analysis with 54001 when it takes too long.
func (eq *Equivalence) Work(f *Facts) {
	eq.worked += 1
	if f != nil {
		eq.worked += len(f.List) + len(f.learned)
	}
	if eq.worked > workMax {
		fail(sqlstate.New(sqlstate.StatementTooComplex, "the statement is too complex: its subqueries nest too deeply to say which shard has their rows").
			WithHint("write it with fewer nested subqueries, or as several statements"))
	}
}

// Gather adds the facts that hold for every row of j.
func (eq *Equivalence) Gather(j *JoinNode, f *Facts) {
	eq.Work(f)
	switch j.Op {
	case JLeaf:
		f.learn(j, j.Facts)
	case InnerJoin:
		f.learn(j, j.Facts)
		for _, k := range j.Kids {
			eq.Gather(k, f)
		}
	case LeftJoin:
		eq.Gather(j.Kids[0], f)
		if f.present(eq.terms, j.Kids[1].rtes) {
			f.learn(j, j.Facts)
			eq.Gather(j.Kids[1], f)
		}
	case jFull:
		l, r := f.present(eq.terms, j.Kids[0].rtes), f.present(eq.terms, j.Kids[1].rtes)
		if l && r {
			f.learn(j, j.Facts)
		}
		if l {
			eq.Gather(j.Kids[0], f)
		}
		if r {
			eq.Gather(j.Kids[1], f)
		}
	case JSub:
		if !f.learned[j] {
			eq.gatherQuery(j, j.Query, f)
		}
	}
}

// gatherQuery adds what holds for every output row of a subquery in FROM.
func (eq *Equivalence) gatherQuery(j *JoinNode, q *Query, f *Facts) {
	if q.Root != nil && q.up {
		f.learn(j, q.consts)
		eq.Gather(q.Root, f)
		for _, l := range q.links {
			if set, ok := f.best(AsSet(f.Class(l[1]))); ok {
				f.List = append(f.List, OneOf(l[0], set))
			}
		}
		return
	}
	// Set operations: a column is one of what the arms say.
	f.learn(j, nil)
	for i, c := range q.Columns {
		if c.Term == NoTerm {
			continue
		}
		if set, ok := eq.exported(q, i, f); ok {
			f.List = append(f.List, OneOf(c.Term, set))
		}
	}
}

// AsSet is a list of terms as a set.
func AsSet(ts []Term) map[Term]bool {
	m := make(map[Term]bool, len(ts))
	for _, t := range ts {
		m[t] = true
	}
	return m
}

// OneOf is the fact that a term is one of some constants.
func OneOf(t Term, set []Constant) *fact {
	x := &fact{terms: []Term{t}, rows: make([][]Constant, len(set))}
	for i, k := range set {
		x.rows[i] = []Constant{k}
	}
	return x
}

// exported returns the constants that an output column of q is one of.
func (eq *Equivalence) exported(q *Query, i int, outer *Facts) ([]Constant, bool) {
	eq.Work(outer)
	if q.Arms != nil {
		var all []Constant
		for _, arm := range q.Arms {
			if i >= len(arm.Columns) {
				return nil, false
			}
			set, ok := eq.exported(arm, i, outer)
			if !ok || len(q.Columns) <= i || !keytype.SameFamily(arm.Columns[i].typ, q.Columns[i].typ) {
				return nil, false
			}
			all = append(all, set...)
		}
		return all, true
	}
	if i >= len(q.Columns) || q.Columns[i].Term == NoTerm || !q.up || q.Root == nil {
		return nil, false
	}
	f := outer.clone()
	eq.gatherQuery(newNode(JSub), q, f)
	return f.best(AsSet(f.Class(q.Columns[i].Term)))
}

// Routing finds the shard keys that the rows of a statement which can matter have.
type Routing struct {
	*Typer
	*constants
	*Equivalence
	*Touched

	reader *Reader
	st     *plan.Statement
	bound  *BoundStatement
	one    *OneShard

	// placing: the facts of each place are looked for, and not its shard keys.
	placing bool
	// Anchor is the table whose shard key the proof of locality follows, see local; outside: a sharded table was not
	// bound to it.
	Anchor  *JoinNode
	Outside bool

	known  map[string]bool // see repeated
	stores [][]Constant    // the shard keys that an INSERT stores
}

// visit looks for the shard key of every sharded table below j, with facts f
// that hold for the rows of j that matter.
func (rt *Routing) visit(j *JoinNode, f *Facts) {
	rt.Work(f)
	switch j.Op {
	case JLeaf:
		if j.Key != nil {
			rt.pin(j, f)
		}
		rt.visitAll(j.subs, f)
	case InnerJoin:
		for _, k := range j.Kids {
			rt.visit(k, f)
		}
		rt.visitAll(j.subs, f)
	case LeftJoin:
		if f.present(rt.terms, j.Kids[1].rtes) {
			f.learn(j, j.Facts)
			rt.Gather(j.Kids[1], f)
			rt.visit(j.Kids[0], f)
			rt.visit(j.Kids[1], f)
			rt.visitAll(j.subs, f)
			return
		}
		rt.visit(j.Kids[0], f)
		// A row of r matters only where ON is true; so ON can also show that a
		// null-extended row of l is not meant.
		g := f.clone()
		g.learn(j, j.Facts)
		for range 2 {
			rt.Gather(j.Kids[1], g)
			rt.Gather(j.Kids[0], g)
		}
		rt.visit(j.Kids[1], g)
		rt.visitAll(j.subs, g)
	case jFull:
		for _, k := range j.Kids {
			g := f.clone()
			rt.Gather(k, g)
			rt.Gather(k, g)
			rt.visit(k, g)
		}
		rt.visitAll(j.subs, f)
	case JSub:
		rt.VisitQuery(j.Query, f)
	}
}

func (rt *Routing) visitAll(qs []*Query, f *Facts) {
	for _, q := range qs {
		rt.VisitQuery(q, f)
	}
}

// VisitQuery proves one query, given what holds for the outer rows that matter.
func (rt *Routing) VisitQuery(q *Query, outer *Facts) *Facts {
	f := outer.clone()
	f.List = append(f.List, q.given...)
	for _, w := range q.With {
		if w.q != nil {
			rt.VisitQuery(w.q, outer)
		}
	}
	for _, arm := range q.Arms {
		rt.VisitQuery(arm, f)
	}
	if q.Root != nil {
		rt.Gather(q.Root, f)
		rt.Gather(q.Root, f)
		rt.visit(q.Root, f)
	}
	rt.visitAll(q.Subqueries, f)
	return f
}

// pin takes the shard keys of a table from the facts, or refuses one shard.
func (rt *Routing) pin(j *JoinNode, f *Facts) {
	if rt.placing {
		rt.seen(j, f)
		return
	}
	rt.one.onOne(func() {
		rows, missing, ok := f.Alternatives(j.Key, rt.reader.Keys)
		if !ok {
			rt.notPinned(j, missing)
		}
		rt.addKeys(rows)
	})
}

// addKeys adds shard key alternatives to the statement.
func (rt *Routing) addKeys(rows [][]Constant) {
	for _, r := range rows {
		key := make([]plan.KeyExpr, len(r))
		for i, k := range r {
			e, ok := k.KeyExpr(rt.Types[i])
			if !ok {
				fail(sqlstate.Refusal("CLV-0264", "the shard key is compared with a value of another type").
					WithHint("Cast the value to %s.", rt.Types[i].String()))
			}
			key[i] = e
		}
		rt.addKey(key)
	}
}

func (rt *Routing) addKey(key []plan.KeyExpr) {
	for _, e := range key {
		if e.Never {
			return
		}
	}
	if len(rt.st.Keys) < 64 {
		for _, have := range rt.st.Keys {
			if sameKey(have, key) {
				return
			}
		}
	}
	if len(rt.st.Keys) >= distinctKeys && rt.repeated(key) {
		return
	}
	if len(rt.st.Keys) >= rt.reader.Keys {
		fail(sqlstate.Refusal("CLV-0265", "the statement names too many shard keys").WithHint("Send it in several statements."))
	}
	rt.st.Keys = append(rt.st.Keys, key)
}

// distinctKeys is how many shard keys a statement names before equal ones are
// told by their values: the rows of a large INSERT most often have few.
const distinctKeys = 1000

// repeated reports whether a key of literals is there already. The statement then
// says nothing about other texts of its shape.
func (rt *Routing) repeated(key []plan.KeyExpr) bool {
	mark := func(key []plan.KeyExpr) (string, bool) {
		k := make(keyspace.Key, len(key))
		for i := range key {
			if key[i].Param != 0 {
				return "", false
			}
			k[i] = key[i].Value
		}
		return string(keyspace.AppendOrdered(nil, k)), true
	}
	if rt.known == nil {
		rt.known = make(map[string]bool, len(rt.st.Keys))
		rt.Dropped = true
		kept := rt.st.Keys[:0]
		for _, have := range rt.st.Keys {
			if m, ok := mark(have); ok {
				if rt.known[m] {
					continue
				}
				rt.known[m] = true
			}
			kept = append(kept, have)
		}
		rt.st.Keys = kept
	}
	m, ok := mark(key)
	if ok && rt.known[m] {
		return true
	}
	if ok {
		rt.known[m] = true
	}
	return false
}

// sameKey reports whether two alternatives are the same expressions. Equal
// values at different places of the text are not: another text of the same
// shape has different values there.
func sameKey(a, b []plan.KeyExpr) bool {
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Param != y.Param || x.Cast != y.Cast || x.Never != y.Never || x.Location != y.Location || x.Array != y.Array || x.Modifier != y.Modifier || x.Into != y.Into || x.As != y.As {
			return false
		}
		if x.Param == 0 && x.Location == 0 && (x.Value != y.Value) {
			return false
		}
	}
	return true
}

func (rt *Routing) notPinned(j *JoinNode, missing int) {
	if rt.unread != nil {
		fail(rt.unread)
	}
	col := j.table.ShardKey[missing]
	fail(sqlstate.Refusal("CLV-0266", "the statement could need rows of table %s from several shards: its shard key column %s is not fixed", sqltext.QuoteName(j.table.Schema, j.table.Name), sqltext.QuoteIdent(col)).
		WithHint(`Add "%s.%s = ..." to the WHERE clause.`, sqltext.QuoteIdent(j.Name), sqltext.QuoteIdent(col)))
}

// SelectQuery reads a SELECT, VALUES, TABLE or set operation.
func (a *binder) SelectQuery(s *pg.SelectStmt, parent *Scope) *Query {
	a.Work(nil)
	a.worked += 100
	q := &Query{Select: s}
	sc := &Scope{parent: parent}
	q.Scope = sc
	a.bound.selects = append(a.bound.selects, q)
	q.With = a.withClause(s.WithClause, sc)
	if s.IntoClause != nil {
		a.Into = s.IntoClause
	}
	if len(s.LockingClause) > 0 {
		a.Locks = true
		a.noteLocked(s, sc)
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		a.setOperation(q, s, sc)
		return q
	}
	if s.ValuesLists != nil {
		a.valuesQuery(q, s, sc)
		return q
	}
	q.Root = a.from(s.FromClause, sc)
	a.where(q.Root, s.WhereClause, sc)

	aggregates, returnsSets := a.aggregates, a.windows
	w := &Walker{Scope: sc, Subqueries: &q.Subqueries}
	a.walkList(s.DistinctClause, w)
	a.walkList(s.TargetList, w)
	a.Walk(s.HavingClause, w)
	a.walkList(s.SortClause, w)
	grouped := len(s.GroupClause) > 0
	hasAggregate := a.aggregates != aggregates || s.HavingClause != nil
	hasWindow := a.windows != returnsSets || len(s.WindowClause) > 0
	a.walkList(s.GroupClause, w)
	a.walkList(s.WindowClause, w)
	a.Walk(s.LimitCount, w)
	a.Walk(s.LimitOffset, w)

	groupTerms, plainGroup := groupedBy(s, sc)
	q.up = !(hasAggregate && !grouped) && plainGroup
	distinctOn := len(s.DistinctClause) > 0 && s.DistinctClause[0].GetNode() != nil
	q.down = q.up && s.LimitCount == nil && s.LimitOffset == nil && !hasWindow && !distinctOn
	q.Aggregates, q.Windows = hasAggregate || grouped, hasWindow
	a.outputs(q, s.TargetList, sc, grouped, groupTerms)
	return q
}

// setOperation reads UNION and its like.
func (a *binder) setOperation(q *Query, s *pg.SelectStmt, sc *Scope) {
	l := a.SelectQuery(s.Larg, sc)
	r := a.SelectQuery(s.Rarg, sc)
	q.Arms = []*Query{l, r}
	q.Open = l.Open || r.Open
	rte := a.NewRTE()
	for i, c := range l.Columns {
		col := Column{Name: c.Name, Term: NoTerm}
		if i < len(r.Columns) && !q.Open && keytype.SameFamily(c.typ, r.Columns[i].typ) {
			col.typ = c.typ
			col.Term = a.newTerm(termInfo{typ: c.typ, rte: rte})
		}
		q.Columns = append(q.Columns, col)
	}
	w := &Walker{Scope: sc, Subqueries: &q.Subqueries}
	a.walkList(s.SortClause, w)
	a.Walk(s.LimitCount, w)
	a.Walk(s.LimitOffset, w)
}

// groupedBy are the terms among the expressions of GROUP BY; plain is false with grouping sets.
func groupedBy(s *pg.SelectStmt, sc *Scope) (terms map[Term]bool, plain bool) {
	terms, plain = map[Term]bool{}, true
	for _, g := range s.GroupClause {
		if c := g.GetColumnRef(); c != nil {
			if names := sqltree.FieldNames(c); names != nil {
				terms[sc.resolve(names).Term] = true
			}
			continue
		}
		if g.GetGroupingSet() != nil {
			plain = false
		}
	}
	delete(terms, NoTerm)
	return terms, plain
}

// outputs computes the columns of a query.
func (a *binder) outputs(q *Query, list []*pg.Node, sc *Scope, grouped bool, groupTerms map[Term]bool) {
	rte := a.NewRTE()
	add := func(name string, c Column) {
		out := Column{Name: name, Term: NoTerm, typ: c.typ, oid: c.oid, late: c.late}
		switch {
		case c.Term == NoTerm || c.typ == 0:
			out.typ = 0
		case q.down && (!grouped || groupTerms[c.Term]):
			out.Term = c.Term
		case q.up:
			info := a.terms[c.Term]
			out.Term = a.newTerm(termInfo{typ: c.typ, rte: rte, plain: info.plain})
			q.links = append(q.links, [2]Term{out.Term, c.Term})
		}
		q.Columns = append(q.Columns, out)
		q.Inner = append(q.Inner, c.Term)
	}
	for _, n := range list {
		r := n.GetResTarget()
		if r == nil {
			continue
		}
		if c := r.Val.GetColumnRef(); c != nil {
			names := sqltree.FieldNames(c)
			if names == nil {
				expandStar(q, c, sc, add)
				continue
			}
			name := r.Name
			if name == "" {
				name = names[len(names)-1]
			}
			add(name, sc.resolve(names))
			continue
		}
		if sqltree.IsStar(n) {
			q.Open = true // the fields of a value
			continue
		}
		a.computedOutput(q, r, sc, rte)
	}
	if q.Root != nil {
		q.Root.rtes[rte] = true
	}
}

// computedOutput adds a column that is no column of FROM.
func (a *binder) computedOutput(q *Query, r *pg.ResTarget, sc *Scope, rte int) {
	name := r.Name
	if name == "" {
		name = outputname.Of(r.Val)
		q.Open = q.Open || outputname.Unsure(r.Val)
	}
	col := Column{Name: name, Term: NoTerm}
	if c := r.Val.GetAConst(); c.GetSval() != nil {
		col.text = c
	}
	col.late = &lateType{of: r, sc: sc}
	if t := a.literalType(r.Val); t != 0 && q.up {
		if k, ok := a.ConstantOf(r.Val, t, false); ok {
			col.typ = t
			col.Term = a.newTerm(termInfo{typ: t, rte: rte, plain: true})
			q.consts = append(q.consts, OneOf(col.Term, []Constant{k}))
		}
	}
	q.Columns = append(q.Columns, col)
	q.Inner = append(q.Inner, NoTerm)
}

// expandStar expands * and name.*.
func expandStar(q *Query, c *pg.ColumnRef, sc *Scope, add func(string, Column)) {
	names := sqltree.Strings(c.Fields)
	found := false
	for s := sc; s != nil && !found; s = s.parent {
		for _, it := range s.Items {
			if len(names) == 0 && !it.Bare || len(names) > 0 && (!it.Qualified || it.Name != names[len(names)-1]) {
				continue
			}
			found = true
			q.Open = q.Open || it.Open
			for _, col := range it.Columns {
				add(col.Name, col)
			}
		}
		if len(names) == 0 {
			return
		}
	}
	if !found {
		q.Open = true
	}
}

// literalType returns the type that a literal has by itself, 0 if it is not
// one whose equality with a shard key is certain.
func (ty *Typer) literalType(n *pg.Node) keyspace.Type {
	switch v := n.GetNode().(type) {
	case *pg.Node_AConst:
		switch v.AConst.Val.(type) {
		case *pg.A_Const_Ival:
			return keyspace.Int8
		case *pg.A_Const_Sval:
			return keyspace.Text
		}
	case *pg.Node_TypeCast:
		switch v.TypeCast.Arg.GetNode().(type) {
		case *pg.Node_AConst, *pg.Node_ParamRef:
			return ty.castType(v.TypeCast.TypeName)
		}
	}
	return 0
}

// valuesQuery reads VALUES (...), (...): each column is one of its constants.
func (a *binder) valuesQuery(q *Query, s *pg.SelectStmt, sc *Scope) {
	w := &Walker{Scope: sc, Subqueries: &q.Subqueries}
	for _, row := range s.ValuesLists {
		a.Walk(row, w)
	}
	a.walkList(s.SortClause, w)
	a.Walk(s.LimitCount, w)
	a.Walk(s.LimitOffset, w)
	q.Root = newNode(InnerJoin)
	q.up = true
	rte := a.NewRTE()
	q.Root.rtes[rte] = true
	width := len(s.ValuesLists[0].GetList().GetItems())
	for i := range width {
		col := Column{Name: "column" + strconv.Itoa(i+1), Term: NoTerm}
		var typ keyspace.Type
		same := true
		for _, row := range s.ValuesLists {
			items := row.GetList().GetItems()
			if i >= len(items) {
				same = false
				break
			}
			t := a.literalType(items[i])
			if t == 0 || typ != 0 && t != typ {
				same = false
				break
			}
			typ = t
		}
		if same && typ != 0 {
			set := make([]Constant, 0, len(s.ValuesLists))
			for _, row := range s.ValuesLists {
				k, ok := a.ConstantOf(row.GetList().GetItems()[i], typ, false)
				if !ok {
					same = false
					break
				}
				set = append(set, k)
			}
			if same {
				col.typ = typ
				col.Term = a.newTerm(termInfo{typ: typ, rte: rte, plain: true})
				q.consts = append(q.consts, OneOf(col.Term, set))
			}
		}
		q.Columns = append(q.Columns, col)
	}
}
