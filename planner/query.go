package planner

import (
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
	jLeaf  jop = iota // a table, VALUES, a CTE, a function
	jInner            // inner join, the list after FROM, and WHERE
	jLeft             // l LEFT JOIN r
	jFull
	jSub // a subquery in FROM
)

// jnode is a node of the join tree.
type jnode struct {
	op    jop
	kids  []*jnode // two for joins
	facts []*fact  // from ON or WHERE, or that a leaf has by itself
	subs  []*query // subqueries in ON or WHERE
	rtes  map[int]bool
	q     *query // jSub

	// A sharded table: the terms of its shard key.
	table *shardmap.Table
	name  string // as the statement calls it
	key   []term
}

func newNode(op jop, kids ...*jnode) *jnode {
	j := &jnode{op: op, kids: kids, rtes: map[int]bool{}}
	for _, k := range kids {
		for r := range k.rtes {
			j.rtes[r] = true
		}
	}
	return j
}

// query is one SELECT, or one arm of a set operation.
type query struct {
	root *jnode
	arms []*query // set operation; root is nil
	subs []*query // subqueries outside FROM and WHERE
	with []*withQuery
	cols []column
	open bool // it has columns that are not known
	// given are facts about the rows of it that matter where it stands: column IN
	// (this query).
	given []*fact
	sel   *pg.SelectStmt
	sc    *scope
	// inner are the terms of FROM that the columns are, noTerm for expressions.
	inner []term
	// aggregates: it aggregates without GROUP BY, or by it. windows: it calls window functions.
	aggregates, windows bool
	// up: the facts of FROM and WHERE hold for each output row. down: a row that
	// has another value in an output column than the one that matters cannot
	// change the rows that have it.
	up, down bool
	// links are output terms and the inner terms that they take their value
	// from, where facts must not flow down.
	links [][2]term
	// consts are output columns that are constants themselves.
	consts []*fact
}

// withQuery is a WITH query with the facts of its place.
type withQuery struct {
	q *query
	c *cte
}

// workMax bounds the proof of one statement, in facts looked at: nested set
// operations and recursive WITH queries are gone through several times.
const workMax = 10_000_000

// work ends the analysis with 54001 when it takes too long.
func (eq *equivalence) work(f *facts) {
	eq.worked += 1
	if f != nil {
		eq.worked += len(f.list) + len(f.learned)
	}
	if eq.worked > workMax {
		fail(sqlstate.New(sqlstate.StatementTooComplex, "the statement is too complex: its subqueries nest too deeply to say which shard has their rows").
			WithHint("write it with fewer nested subqueries, or as several statements"))
	}
}

// gather adds the facts that hold for every row of j.
func (eq *equivalence) gather(j *jnode, f *facts) {
	eq.work(f)
	switch j.op {
	case jLeaf:
		f.learn(j, j.facts)
	case jInner:
		f.learn(j, j.facts)
		for _, k := range j.kids {
			eq.gather(k, f)
		}
	case jLeft:
		eq.gather(j.kids[0], f)
		if f.present(eq.terms, j.kids[1].rtes) {
			f.learn(j, j.facts)
			eq.gather(j.kids[1], f)
		}
	case jFull:
		l, r := f.present(eq.terms, j.kids[0].rtes), f.present(eq.terms, j.kids[1].rtes)
		if l && r {
			f.learn(j, j.facts)
		}
		if l {
			eq.gather(j.kids[0], f)
		}
		if r {
			eq.gather(j.kids[1], f)
		}
	case jSub:
		if !f.learned[j] {
			eq.gatherQuery(j, j.q, f)
		}
	}
}

// gatherQuery adds what holds for every output row of a subquery in FROM.
func (eq *equivalence) gatherQuery(j *jnode, q *query, f *facts) {
	if q.root != nil && q.up {
		f.learn(j, q.consts)
		eq.gather(q.root, f)
		for _, l := range q.links {
			if set, ok := f.best(asSet(f.class(l[1]))); ok {
				f.list = append(f.list, oneOf(l[0], set))
			}
		}
		return
	}
	// Set operations: a column is one of what the arms say.
	f.learn(j, nil)
	for i, c := range q.cols {
		if c.term == noTerm {
			continue
		}
		if set, ok := eq.exported(q, i, f); ok {
			f.list = append(f.list, oneOf(c.term, set))
		}
	}
}

func asSet(ts []term) map[term]bool {
	m := make(map[term]bool, len(ts))
	for _, t := range ts {
		m[t] = true
	}
	return m
}

func oneOf(t term, set []constant) *fact {
	x := &fact{terms: []term{t}, rows: make([][]constant, len(set))}
	for i, k := range set {
		x.rows[i] = []constant{k}
	}
	return x
}

// exported returns the constants that an output column of q is one of.
func (eq *equivalence) exported(q *query, i int, outer *facts) ([]constant, bool) {
	eq.work(outer)
	if q.arms != nil {
		var all []constant
		for _, arm := range q.arms {
			if i >= len(arm.cols) {
				return nil, false
			}
			set, ok := eq.exported(arm, i, outer)
			if !ok || len(q.cols) <= i || !keytype.SameFamily(arm.cols[i].typ, q.cols[i].typ) {
				return nil, false
			}
			all = append(all, set...)
		}
		return all, true
	}
	if i >= len(q.cols) || q.cols[i].term == noTerm || !q.up || q.root == nil {
		return nil, false
	}
	f := outer.clone()
	eq.gatherQuery(newNode(jSub), q, f)
	return f.best(asSet(f.class(q.cols[i].term)))
}

// routing finds the shard keys that the rows of a statement which can matter have.
type routing struct {
	*typer
	*constants
	*equivalence
	*touched

	p     *Planner
	st    *plan.Statement
	bound *boundStatement
	one   *oneShard

	// placing: the facts of each place are looked for, and not its shard keys.
	placing bool
	// anchor is the table whose shard key the proof of locality follows, see local; outside: a sharded table was not
	// bound to it.
	anchor  *jnode
	outside bool

	known  map[string]bool // see repeated
	stores [][]constant    // the shard keys that an INSERT stores
}

// visit looks for the shard key of every sharded table below j, with facts f
// that hold for the rows of j that matter.
func (rt *routing) visit(j *jnode, f *facts) {
	rt.work(f)
	switch j.op {
	case jLeaf:
		if j.key != nil {
			rt.pin(j, f)
		}
		rt.visitAll(j.subs, f)
	case jInner:
		for _, k := range j.kids {
			rt.visit(k, f)
		}
		rt.visitAll(j.subs, f)
	case jLeft:
		if f.present(rt.terms, j.kids[1].rtes) {
			f.learn(j, j.facts)
			rt.gather(j.kids[1], f)
			rt.visit(j.kids[0], f)
			rt.visit(j.kids[1], f)
			rt.visitAll(j.subs, f)
			return
		}
		rt.visit(j.kids[0], f)
		// A row of r matters only where ON is true; so ON can also show that a
		// null-extended row of l is not meant.
		g := f.clone()
		g.learn(j, j.facts)
		for range 2 {
			rt.gather(j.kids[1], g)
			rt.gather(j.kids[0], g)
		}
		rt.visit(j.kids[1], g)
		rt.visitAll(j.subs, g)
	case jFull:
		for _, k := range j.kids {
			g := f.clone()
			rt.gather(k, g)
			rt.gather(k, g)
			rt.visit(k, g)
		}
		rt.visitAll(j.subs, f)
	case jSub:
		rt.visitQuery(j.q, f)
	}
}

func (rt *routing) visitAll(qs []*query, f *facts) {
	for _, q := range qs {
		rt.visitQuery(q, f)
	}
}

// visitQuery proves one query, given what holds for the outer rows that matter.
func (rt *routing) visitQuery(q *query, outer *facts) *facts {
	f := outer.clone()
	f.list = append(f.list, q.given...)
	for _, w := range q.with {
		if w.q != nil {
			rt.visitQuery(w.q, outer)
		}
	}
	for _, arm := range q.arms {
		rt.visitQuery(arm, f)
	}
	if q.root != nil {
		rt.gather(q.root, f)
		rt.gather(q.root, f)
		rt.visit(q.root, f)
	}
	rt.visitAll(q.subs, f)
	return f
}

// pin takes the shard keys of a table from the facts, or refuses one shard.
func (rt *routing) pin(j *jnode, f *facts) {
	if rt.placing {
		rt.seen(j, f)
		return
	}
	rt.one.onOne(func() {
		rows, missing, ok := f.alternatives(j.key, rt.p.limits.Keys)
		if !ok {
			rt.notPinned(j, missing)
		}
		rt.addKeys(rows)
	})
}

// addKeys adds shard key alternatives to the statement.
func (rt *routing) addKeys(rows [][]constant) {
	for _, r := range rows {
		key := make([]plan.KeyExpr, len(r))
		for i, k := range r {
			e, ok := k.keyExpr(rt.types[i])
			if !ok {
				fail(sqlstate.Refusal("CLV-0264", "the shard key is compared with a value of another type").
					WithHint("Cast the value to %s.", rt.types[i].String()))
			}
			key[i] = e
		}
		rt.addKey(key)
	}
}

func (rt *routing) addKey(key []plan.KeyExpr) {
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
	if len(rt.st.Keys) >= rt.p.limits.Keys {
		fail(sqlstate.Refusal("CLV-0265", "the statement names too many shard keys").WithHint("Send it in several statements."))
	}
	rt.st.Keys = append(rt.st.Keys, key)
}

// distinctKeys is how many shard keys a statement names before equal ones are
// told by their values: the rows of a large INSERT most often have few.
const distinctKeys = 1000

// repeated reports whether a key of literals is there already. The statement then
// says nothing about other texts of its shape.
func (rt *routing) repeated(key []plan.KeyExpr) bool {
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
		rt.dropped = true
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

func (rt *routing) notPinned(j *jnode, missing int) {
	if rt.unread != nil {
		fail(rt.unread)
	}
	col := j.table.ShardKey[missing]
	fail(sqlstate.Refusal("CLV-0266", "the statement could need rows of table %s from several shards: its shard key column %s is not fixed", sqltext.QuoteName(j.table.Schema, j.table.Name), sqltext.QuoteIdent(col)).
		WithHint(`Add "%s.%s = ..." to the WHERE clause.`, sqltext.QuoteIdent(j.name), sqltext.QuoteIdent(col)))
}

// selectQuery reads a SELECT, VALUES, TABLE or set operation.
func (a *binder) selectQuery(s *pg.SelectStmt, parent *scope) *query {
	a.work(nil)
	a.worked += 100
	q := &query{sel: s}
	sc := &scope{parent: parent}
	q.sc = sc
	a.bound.selects = append(a.bound.selects, q)
	q.with = a.withClause(s.WithClause, sc)
	if s.IntoClause != nil {
		a.into = s.IntoClause
	}
	if len(s.LockingClause) > 0 {
		a.locks = true
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
	q.root = a.from(s.FromClause, sc)
	a.where(q.root, s.WhereClause, sc)

	aggregates, returnsSets := a.aggregates, a.windows
	w := &walker{sc: sc, subs: &q.subs}
	a.walkList(s.DistinctClause, w)
	a.walkList(s.TargetList, w)
	a.walk(s.HavingClause, w)
	a.walkList(s.SortClause, w)
	grouped := len(s.GroupClause) > 0
	hasAggregate := a.aggregates != aggregates || s.HavingClause != nil
	hasWindow := a.windows != returnsSets || len(s.WindowClause) > 0
	a.walkList(s.GroupClause, w)
	a.walkList(s.WindowClause, w)
	a.walk(s.LimitCount, w)
	a.walk(s.LimitOffset, w)

	groupTerms, plainGroup := groupedBy(s, sc)
	q.up = !(hasAggregate && !grouped) && plainGroup
	distinctOn := len(s.DistinctClause) > 0 && s.DistinctClause[0].GetNode() != nil
	q.down = q.up && s.LimitCount == nil && s.LimitOffset == nil && !hasWindow && !distinctOn
	q.aggregates, q.windows = hasAggregate || grouped, hasWindow
	a.outputs(q, s.TargetList, sc, grouped, groupTerms)
	return q
}

// setOperation reads UNION and its like.
func (a *binder) setOperation(q *query, s *pg.SelectStmt, sc *scope) {
	l := a.selectQuery(s.Larg, sc)
	r := a.selectQuery(s.Rarg, sc)
	q.arms = []*query{l, r}
	q.open = l.open || r.open
	rte := a.newRTE()
	for i, c := range l.cols {
		col := column{name: c.name, term: noTerm}
		if i < len(r.cols) && !q.open && keytype.SameFamily(c.typ, r.cols[i].typ) {
			col.typ = c.typ
			col.term = a.newTerm(termInfo{typ: c.typ, rte: rte})
		}
		q.cols = append(q.cols, col)
	}
	w := &walker{sc: sc, subs: &q.subs}
	a.walkList(s.SortClause, w)
	a.walk(s.LimitCount, w)
	a.walk(s.LimitOffset, w)
}

// groupedBy are the terms among the expressions of GROUP BY; plain is false with grouping sets.
func groupedBy(s *pg.SelectStmt, sc *scope) (terms map[term]bool, plain bool) {
	terms, plain = map[term]bool{}, true
	for _, g := range s.GroupClause {
		if c := g.GetColumnRef(); c != nil {
			if names := sqltree.FieldNames(c); names != nil {
				terms[sc.resolve(names).term] = true
			}
			continue
		}
		if g.GetGroupingSet() != nil {
			plain = false
		}
	}
	delete(terms, noTerm)
	return terms, plain
}

// outputs computes the columns of a query.
func (a *binder) outputs(q *query, list []*pg.Node, sc *scope, grouped bool, groupTerms map[term]bool) {
	rte := a.newRTE()
	add := func(name string, c column) {
		out := column{name: name, term: noTerm, typ: c.typ, oid: c.oid, late: c.late}
		switch {
		case c.term == noTerm || c.typ == 0:
			out.typ = 0
		case q.down && (!grouped || groupTerms[c.term]):
			out.term = c.term
		case q.up:
			info := a.terms[c.term]
			out.term = a.newTerm(termInfo{typ: c.typ, rte: rte, plain: info.plain})
			q.links = append(q.links, [2]term{out.term, c.term})
		}
		q.cols = append(q.cols, out)
		q.inner = append(q.inner, c.term)
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
			q.open = true // the fields of a value
			continue
		}
		a.computedOutput(q, r, sc, rte)
	}
	if q.root != nil {
		q.root.rtes[rte] = true
	}
}

// computedOutput adds a column that is no column of FROM.
func (a *binder) computedOutput(q *query, r *pg.ResTarget, sc *scope, rte int) {
	name := r.Name
	if name == "" {
		name = outputname.Of(r.Val)
		q.open = q.open || outputname.Unsure(r.Val)
	}
	col := column{name: name, term: noTerm}
	if c := r.Val.GetAConst(); c.GetSval() != nil {
		col.text = c
	}
	col.late = &lateType{of: r, sc: sc}
	if t := a.literalType(r.Val); t != 0 && q.up {
		if k, ok := a.constantOf(r.Val, t, false); ok {
			col.typ = t
			col.term = a.newTerm(termInfo{typ: t, rte: rte, plain: true})
			q.consts = append(q.consts, oneOf(col.term, []constant{k}))
		}
	}
	q.cols = append(q.cols, col)
	q.inner = append(q.inner, noTerm)
}

// expandStar expands * and name.*.
func expandStar(q *query, c *pg.ColumnRef, sc *scope, add func(string, column)) {
	names := sqltree.Strings(c.Fields)
	found := false
	for s := sc; s != nil && !found; s = s.parent {
		for _, it := range s.items {
			if len(names) == 0 && !it.bare || len(names) > 0 && (!it.rel || it.name != names[len(names)-1]) {
				continue
			}
			found = true
			q.open = q.open || it.open
			for _, col := range it.cols {
				add(col.name, col)
			}
		}
		if len(names) == 0 {
			return
		}
	}
	if !found {
		q.open = true
	}
}

// literalType returns the type that a literal has by itself, 0 if it is not
// one whose equality with a shard key is certain.
func (ty *typer) literalType(n *pg.Node) keyspace.Type {
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
func (a *binder) valuesQuery(q *query, s *pg.SelectStmt, sc *scope) {
	w := &walker{sc: sc, subs: &q.subs}
	for _, row := range s.ValuesLists {
		a.walk(row, w)
	}
	a.walkList(s.SortClause, w)
	a.walk(s.LimitCount, w)
	a.walk(s.LimitOffset, w)
	q.root = newNode(jInner)
	q.up = true
	rte := a.newRTE()
	q.root.rtes[rte] = true
	width := len(s.ValuesLists[0].GetList().GetItems())
	for i := range width {
		col := column{name: "column" + itoa(i+1), term: noTerm}
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
			set := make([]constant, 0, len(s.ValuesLists))
			for _, row := range s.ValuesLists {
				k, ok := a.constantOf(row.GetList().GetItems()[i], typ, false)
				if !ok {
					same = false
					break
				}
				set = append(set, k)
			}
			if same {
				col.typ = typ
				col.term = a.newTerm(termInfo{typ: typ, rte: rte, plain: true})
				q.consts = append(q.consts, oneOf(col.term, set))
			}
		}
		q.cols = append(q.cols, col)
	}
}
