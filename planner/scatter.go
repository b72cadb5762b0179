package planner

import (
	"slices"
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// planScatter plans a query that falls apart by shard (see local): each shard runs
// it, and the rows are put one after the other, or merged by its ORDER BY.
func (rp *readPlans) planScatter(n *pg.Node) (*plan.Plan, error) {
	s, q := n.GetSelectStmt(), rp.bound.Root
	if s == nil || q == nil || !rp.spreads(n) {
		return nil, nil
	}
	if s.Op != pg.SetOperation_SETOP_NONE {
		return rp.scatterSet(n, q)
	}
	u := rp.local(q)
	if u == nil || rp.perRun(s, u) {
		return nil, nil
	}
	b := &scatter{a: rp, q: q, s: sqltree.Clone(s), target: rp.targetOf(u), anchors: []*semantics.Use{u}}
	if len(s.DistinctClause) > 0 && !rp.distinctByKey(q, u.Node) {
		b.distinct = true
	}
	if (b.distinct || !b.plainOrder()) && sqltree.MakesAnonymousRows(n) {
		return nil, nil
	}
	if !b.inherit(u.Node) {
		return nil, nil
	}
	return b.plan()
}

// spreads reports whether a query may run on several shards by itself: it reads
// rows of tables that every shard has or has its share of, and nothing that
// differs between shards otherwise.
func (rp *readPlans) spreads(n *pg.Node) bool {
	return !rp.Changes && rp.into == nil && rp.Whole == "" && rp.Catalog == "" && rp.Unknown == "" && rp.Virtual == "" && !rp.PreferDefault &&
		rp.OneKeyspace() && !serverdependent.UsesShardState(n)
}

// targetOf is where the rows of a table's place that can matter are.
func (rp *readPlans) targetOf(u *semantics.Use) plan.Target {
	t := plan.Target{Where: plan.KeyShards, Keyspace: u.Relation.Table.Keyspace}
	if u.Facts == nil {
		return t
	}
	rows, _, ok := u.Facts.Alternatives(u.Node.Key, rp.Reader.Keys)
	if !ok {
		t.Spans = rp.spansOf(u)
		return t
	}
	types := rp.KeyTypes(t.Keyspace)
	t.Keys = [][]plan.KeyExpr{}
	for _, r := range rows {
		key := make([]plan.KeyExpr, len(r))
		for i, k := range r {
			e, ok := k.KeyExpr(types[i])
			if ok {
				rp.Strict(&e)
			}
			if !ok || e.Strict {
				t.Keys = nil
				return t
			}
			key[i] = e
		}
		t.Keys = append(t.Keys, key)
	}
	return t
}

// scatter builds a plan from a copy of the query.
type scatter struct {
	a        *readPlans
	q        *semantics.Query
	s        *pg.SelectStmt
	target   plan.Target
	anchors  []*semantics.Use // one of each arm
	distinct bool             // DISTINCT compares rows of several shards
	hidden   []*pg.Node
	combine  plan.Combine
}

func (b *scatter) plan() (*plan.Plan, error) {
	s := b.s
	if len(s.LockingClause) > 0 && (s.LimitCount != nil || s.LimitOffset != nil) {
		b.a.one.RefuseLocks(sqlstate.Refusal("CLV-1032", "SELECT ... FOR UPDATE with LIMIT over several shards would lock more rows than it returns").
			WithHint("Add the shard key to the WHERE clause, or leave out LIMIT."))
	}
	if s.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES || !b.counts() || !b.order() {
		return nil, nil
	}
	for i, n := range b.hidden {
		s.TargetList = append(s.TargetList, sqltree.TargetNode(n, hiddenName(i)))
	}
	b.combine.Hidden = len(b.hidden)
	b.pushLimit()
	return b.written(s)
}

// plainOrder reports whether the router can surely compare what the query is sorted
// by: columns of types with one order everywhere.
func (b *scatter) plainOrder() bool {
	for _, n := range b.s.SortClause {
		by := n.GetSortBy().GetNode()
		names := sqltree.FieldNames(by.GetColumnRef())
		if len(names) == 0 {
			return false
		}
		for _, t := range b.s.TargetList {
			if r := t.GetResTarget(); r.GetName() == names[len(names)-1] {
				return false // of the output
			}
		}
		switch t := b.a.TypeOf(by, b.q.Scope); {
		case semantics.NumberTypes[t] > 0, t == pgoid.Date, t == pgoid.Timestamp, t == pgoid.Timestamptz, t == pgoid.UUID, t == pgoid.Bool:
		default:
			return false
		}
	}
	return true
}

func hiddenName(i int) string { return hiddenPrefix + strconv.Itoa(i+1) }

// counts reads LIMIT and OFFSET; false if they are not numbers or parameters.
func (b *scatter) counts() bool {
	var ok bool
	if b.combine.Limit, ok = countOf(b.s.LimitCount); !ok {
		return false
	}
	b.combine.Offset, ok = countOf(b.s.LimitOffset)
	return ok
}

func countOf(n *pg.Node) (*plan.Count, bool) {
	if n == nil {
		return nil, true
	}
	as := keyspace.Int8
	if tc := n.GetTypeCast(); tc != nil && tc.Arg.GetParamRef() != nil {
		switch names := sqltree.Strings(tc.TypeName.GetNames()); names[len(names)-1] {
		case "int8", "int4", "int2":
			n, as = tc.Arg, keytype.ByName[names[len(names)-1]]
		}
	}
	if p := n.GetParamRef(); p != nil {
		return &plan.Count{Param: int(p.Number), Type: as}, true
	}
	c := n.GetAConst()
	switch {
	case c == nil:
		return nil, false
	case c.Isnull:
		return nil, true
	}
	v, isInt := c.Val.(*pg.A_Const_Ival)
	if !isInt || v.Ival.GetIval() < 0 {
		return nil, false
	}
	return &plan.Count{Value: int64(v.Ival.GetIval())}, true
}

// pushLimit gives each shard LIMIT + OFFSET as its LIMIT.
func (b *scatter) pushLimit() {
	s, c := b.s, &b.combine
	s.LimitOffset, s.LimitCount = nil, nil
	if c.Limit == nil {
		s.LimitOption = pg.LimitOption_LIMIT_OPTION_DEFAULT
		return
	}
	s.LimitOption = pg.LimitOption_LIMIT_OPTION_COUNT
	if c.Limit.Param == 0 && (c.Offset == nil || c.Offset.Param == 0) {
		n := c.Limit.Value
		if c.Offset != nil {
			n += c.Offset.Value
		}
		s.LimitCount = sqltree.IntNode(n)
		return
	}
	// Neither of the two is cut short, and their sum is no overflow. NULL is no
	// limit: the bound stands for it.
	bound := func(c *plan.Count) *pg.Node {
		if c.Param == 0 {
			return sqltree.CastNode(sqltree.IntNode(c.Value), "int8", nil)
		}
		p := sqltree.CastNode(&pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(c.Param)}}}, "int8", nil)
		return &pg.Node{Node: &pg.Node_MinMaxExpr{MinMaxExpr: &pg.MinMaxExpr{Op: pg.MinMaxOp_IS_LEAST, Args: []*pg.Node{p, sqltree.IntNode(1<<62 - 1)}}}}
	}
	s.LimitCount = bound(c.Limit)
	if c.Offset != nil {
		s.LimitCount = sqltree.OpNode("+", s.LimitCount, bound(c.Offset))
	}
}

// order turns ORDER BY and DISTINCT into the keys of a merge. false: their columns
// are not known with certainty.
func (b *scatter) order() bool {
	s := b.s
	if len(s.SortClause) == 0 && !b.distinct {
		return true
	}
	distinctOn := b.distinct && s.DistinctClause[0].GetNode() != nil
	var keys []*pg.Node // of each key, to find equal ones
	find := func(n *pg.Node) int {
		for i, k := range keys {
			if sqltree.SameNode(k, n) {
				return i
			}
		}
		return -1
	}
	for _, n := range s.SortClause {
		sort := n.GetSortBy()
		if sort == nil || sort.SortbyDir == pg.SortByDir_SORTBY_USING || len(sort.UseOp) > 0 {
			return false
		}
		at, ok := b.column(sort.Node)
		if !ok {
			return false
		}
		keys = append(keys, sqltree.Clone(sort.Node))
		k := plan.OrderKey{Column: at, Desc: sort.SortbyDir == pg.SortByDir_SORTBY_DESC}
		k.NullsFirst = k.Desc
		switch sort.SortbyNulls {
		case pg.SortByNulls_SORTBY_NULLS_FIRST:
			k.NullsFirst = true
		case pg.SortByNulls_SORTBY_NULLS_LAST:
			k.NullsFirst = false
		}
		b.combine.Order = append(b.combine.Order, k)
		if b.isHidden(at) && b.a.IsVolatile(sort.Node) {
			// By its name, so that it is evaluated once. Other expressions are the
			// hidden column's as they stand.
			sort.Node = sqltree.ColumnNode(hiddenName(len(b.hidden) - 1))
		}
	}
	add := func(n *pg.Node, at int) {
		keys = append(keys, n)
		b.combine.Order = append(b.combine.Order, plan.OrderKey{Column: at})
		s.SortClause = append(s.SortClause, &pg.Node{Node: &pg.Node_SortBy{SortBy: &pg.SortBy{Node: n, SortbyDir: pg.SortByDir_SORTBY_DEFAULT, SortbyNulls: pg.SortByNulls_SORTBY_NULLS_DEFAULT}}})
	}
	switch {
	case distinctOn:
		last := -1
		distinct := map[int]bool{}
		for i, n := range s.DistinctClause {
			k := find(n)
			if k < 0 {
				at, ok := b.column(n)
				if !ok {
					return false
				}
				if b.isHidden(at) && b.a.IsVolatile(n) {
					return false
				}
				k = len(keys)
				add(sqltree.Clone(n), at)
			}
			s.DistinctClause[i] = sqltree.Clone(s.SortClause[k].GetSortBy().Node)
			last = max(last, k)
			distinct[k] = true
		}
		if len(distinct) != last+1 {
			return false // other keys stand between: PostgreSQL refuses that
		}
		b.combine.Unique = last + 1
	case b.distinct:
		if b.q.Open || len(b.hidden) > 0 {
			return false
		}
		have := map[int]bool{}
		for _, k := range b.combine.Order {
			have[k.Column] = true
		}
		for i := range b.q.Columns {
			if !have[i] {
				add(sqltree.IntNode(int64(i+1)), i)
			}
		}
		b.combine.Unique = len(b.combine.Order)
	}
	// Hidden columns are counted from the end.
	for i := range b.combine.Order {
		if k := &b.combine.Order[i]; k.Column <= -hiddenBase {
			k.Column = -hiddenBase - k.Column - len(b.hidden)
		}
	}
	return true
}

// hiddenBase marks hidden column i as -hiddenBase-i until their number is known.
const hiddenBase = 1 << 20

func (b *scatter) isHidden(at int) bool { return at <= -hiddenBase }

// column finds the output column that an element of ORDER BY means, or appends a
// hidden one.
func (b *scatter) column(n *pg.Node) (at int, ok bool) {
	targets := b.s.TargetList
	if c := n.GetAConst(); c != nil {
		v, isInt := c.Val.(*pg.A_Const_Ival)
		if !isInt || v.Ival.GetIval() < 1 {
			return 0, false
		}
		return int(v.Ival.GetIval()) - 1, true
	}
	stars := sqltree.AnyStar(targets)
	if slices.ContainsFunc(targets, func(t *pg.Node) bool { return sqltree.IsStar(t) && t.GetResTarget().Val.GetColumnRef() == nil }) {
		return 0, false // nobody knows how many columns the fields of a value are
	}
	if stars && b.q.Open && len(b.q.Columns) > 0 {
		// Which of the columns a name means is not known.
		for _, it := range b.q.Scope.Items {
			if it.Open {
				return 0, false
			}
		}
	}
	if c := n.GetColumnRef(); c != nil {
		if names := sqltree.FieldNames(c); len(names) == 1 {
			found := -1
			for i, name := range b.names() {
				if name == names[0] && found < 0 {
					found = i
				}
			}
			if found >= 0 {
				return found, true
			}
		}
	}
	if !stars {
		for i, t := range targets {
			if sqltree.SameNode(t.GetResTarget().GetVal(), n) {
				return i, true
			}
		}
	}
	b.hidden = append(b.hidden, sqltree.Clone(n))
	return -hiddenBase - (len(b.hidden) - 1), true
}

// names are the names of the output columns.
func (b *scatter) names() []string {
	var out []string
	if sqltree.AnyStar(b.s.TargetList) {
		for _, c := range b.q.Columns {
			out = append(out, c.Name)
		}
		return out
	}
	for _, t := range b.s.TargetList {
		r := t.GetResTarget()
		name := r.GetName()
		if name == "" {
			name = outputname.Of(r.GetVal())
		}
		out = append(out, name)
	}
	return out
}

// scatterSet plans a set operation whose arms all fall apart by shard: UNION ALL,
// and the others if the arms carry the shard key in the same columns, since then
// equal rows are on one shard.
func (rp *readPlans) scatterSet(n *pg.Node, q *semantics.Query) (*plan.Plan, error) {
	s := n.GetSelectStmt()
	if len(q.With) > 0 || len(q.Subqueries) > 0 || q.Open || len(s.LockingClause) > 0 {
		return nil, nil
	}
	var anchors []*semantics.Use
	target, _, ok := rp.setArms(q, &anchors)
	if !ok || rp.perRun(s, anchors...) {
		return nil, nil
	}
	b := &scatter{a: rp, q: q, s: sqltree.Clone(s), target: target, anchors: anchors}
	b.s.TargetList = nil
	leftmost := s
	for leftmost.Op != pg.SetOperation_SETOP_NONE {
		leftmost = leftmost.Larg
	}
	for _, sort := range s.SortClause {
		// Only names and positions of output columns can stand there.
		if c := sort.GetSortBy().GetNode(); c.GetAConst() == nil && len(sqltree.FieldNames(c.GetColumnRef())) != 1 {
			return nil, nil
		}
	}
	if leftmost.ValuesLists != nil || len(s.SortClause) > 0 && sqltree.MakesAnonymousRows(n) {
		return nil, nil
	}
	b.s.TargetList = leftmost.TargetList
	if !b.counts() || s.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES || !b.order() || len(b.hidden) > 0 {
		return nil, nil
	}
	b.s.TargetList = nil
	b.pushLimit()
	return b.written(b.s)
}

// written is the plan once the query of each shard is there.
func (b *scatter) written(s *pg.SelectStmt) (*plan.Plan, error) {
	tree := b.a.clocked(sqltree.SelectNode(s))
	text, err := b.a.text(tree)
	if err != nil {
		return nil, err
	}
	return &plan.Plan{Op: plan.Scatter, Text: text, Target: b.target, Combine: b.combine, Ownership: ownershipOf(tree, text, b.anchors...)}, nil
}

// setArms proves the arms of a set operation and adds their anchors. keys are the
// columns that are the shard key in every arm, nil if there are none.
func (rp *readPlans) setArms(q *semantics.Query, anchors *[]*semantics.Use) (target plan.Target, keys []int, ok bool) {
	s := q.Select
	if q.Arms == nil {
		if s == nil || s.LimitCount != nil || s.LimitOffset != nil || len(s.LockingClause) > 0 {
			return target, nil, false
		}
		u := rp.local(q)
		if u == nil || len(s.DistinctClause) > 0 && !rp.distinctByKey(q, u.Node) {
			return target, nil, false
		}
		*anchors = append(*anchors, u)
		return rp.targetOf(u), keyColumns(rp.Equivalence, q, u.Node), true
	}
	if len(q.Arms) != 2 || q.Select == nil || len(q.With) > 0 || len(q.Subqueries) > 0 {
		return target, nil, false
	}
	if q != rp.bound.Root && (s.LimitCount != nil || s.LimitOffset != nil) {
		return target, nil, false
	}
	l, lk, lok := rp.setArms(q.Arms[0], anchors)
	if !lok {
		return target, nil, false
	}
	r, rk, rok := rp.setArms(q.Arms[1], anchors)
	if !rok {
		return target, nil, false
	}
	same := lk != nil && len(lk) == len(rk)
	for i := range lk {
		same = same && lk[i] == rk[i]
	}
	if !same {
		lk = nil
	}
	if lk == nil && !(s.Op == pg.SetOperation_SETOP_UNION && s.All) {
		return target, nil, false
	}
	target = plan.Target{Where: plan.KeyShards, Keyspace: l.Keyspace}
	if l.Keys != nil && r.Keys != nil {
		target.Keys = append(append([][]plan.KeyExpr{}, l.Keys...), r.Keys...)
	}
	return target, lk, true
}

// spansOf returns the interval of the first shard key column that the rows of a
// table's place are in, nil if the keyspace has no order or nothing is known.
func (rp *readPlans) spansOf(u *semantics.Use) []plan.Span {
	index, ok := rp.Snapshot.Keyspace(u.Relation.Table.Keyspace)
	if !ok || index.Def().Strategy != keyspace.Range || u.Node.Key[0] == semantics.NoTerm {
		return nil
	}
	in := semantics.AsSet(u.Facts.Class(u.Node.Key[0]))
	var s plan.Span
	for _, x := range u.Facts.List {
		if x.Bound == "" || x.Open != nil || !in[x.A] {
			continue
		}
		e, ok := x.Limit.KeyExpr(index.Def().Types[0])
		if ok {
			rp.Strict(&e)
		}
		if !ok || e.Never || e.Strict {
			continue
		}
		switch {
		case x.Bound[0] == '>' && s.Low == nil:
			s.Low, s.LowOpen = &e, x.Bound == ">"
		case x.Bound[0] == '<' && s.High == nil:
			s.High, s.HighOpen = &e, x.Bound == "<"
		}
	}
	if s.Low == nil && s.High == nil {
		return nil
	}
	return []plan.Span{s}
}
