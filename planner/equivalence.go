package planner

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// A term is a column of one range-table entry, or an output column of a
// subquery: something that has one value in each joined row. noTerm stands for
// a column of which nothing is known.
type term int

const noTerm term = -1

type termInfo struct {
	typ keyspace.Type // 0: no key type, so no fact about it is of use
	rte int           // the range-table entry that it belongs to
	key bool          // shard key column of a sharded table
	// plain is false for a text column whose collation is not known: equality
	// of two such columns need not be equality of bytes.
	plain bool
}

// equivalence has the terms of the statement, and says what holds for them.
type equivalence struct {
	terms  []termInfo
	rtes   int
	worked int // see work
}

// A fact is something that holds for every row that can matter: two terms are
// equal, or a term or a tuple of terms is equal to one of some constants. It
// being true implies that its terms are not NULL.
type fact struct {
	a, b term // equality of terms, if rows is nil
	// terms is one of rows; most often one term.
	terms []term
	rows  [][]constant
	// bound is the comparison of term a with limit, if the fact is one: "<", "<=",
	// ">" or ">="; b is a too then. open is what it is compared with until settleBounds has found a
	// constant there: nothing follows from the fact before.
	bound string
	limit constant
	open  *pg.Node
}

// facts holds what is known about the rows that matter at one place of a
// statement. It only grows; clone gives a copy that can learn more.
type facts struct {
	list []*fact
	// learned are the join nodes whose facts are in the list.
	learned map[*jnode]bool
}

func (f *facts) clone() *facts {
	c := &facts{list: f.list[:len(f.list):len(f.list)], learned: make(map[*jnode]bool, len(f.learned))}
	for k := range f.learned {
		c.learned[k] = true
	}
	return c
}

// learn adds a node's facts once.
func (f *facts) learn(j *jnode, list []*fact) {
	if !f.learned[j] {
		f.learned[j] = true
		f.list = append(f.list, list...)
	}
}

// present reports whether a row that matters must have a row of one of the
// range-table entries, because a fact mentions one of its columns.
func (f *facts) present(terms []termInfo, rtes map[int]bool) bool {
	for _, x := range f.list {
		if x.open != nil {
			continue
		}
		if x.rows == nil {
			if rtes[terms[x.a].rte] || rtes[terms[x.b].rte] {
				return true
			}
			continue
		}
		for _, t := range x.terms {
			if rtes[terms[t].rte] {
				return true
			}
		}
	}
	return false
}

// class returns the terms known to be equal to t, t first.
func (f *facts) class(t term) []term {
	out := []term{t}
	in := map[term]bool{t: true}
	for i := 0; i < len(out); i++ {
		for _, x := range f.list {
			if x.rows != nil {
				continue
			}
			for _, p := range [2][2]term{{x.a, x.b}, {x.b, x.a}} {
				if p[0] == out[i] && !in[p[1]] {
					in[p[1]] = true
					out = append(out, p[1])
				}
			}
		}
	}
	return out
}

// alternatives returns constant rows for a tuple of terms: every row that
// matters has one of them. ok is false if a term is not fixed; missing is its
// index. No alternative at all means that no row can matter.
func (f *facts) alternatives(tuple []term, limit int) (rows [][]constant, missing int, ok bool) {
	n := len(tuple)
	classes := make([]map[term]bool, n)
	for i, t := range tuple {
		classes[i] = map[term]bool{}
		if t == noTerm {
			return nil, i, false
		}
		for _, u := range f.class(t) {
			classes[i][u] = true
		}
	}
	// The best fact for each column alone, and tuple facts for several at once.
	rows = [][]constant{make([]constant, n)}
	done := make([]bool, n)
	if n > 1 {
		rows = f.tuples(rows, done, classes, limit)
	}
	for i := range tuple {
		if done[i] {
			continue
		}
		set, found := f.best(classes[i])
		if !found {
			return nil, i, false
		}
		var next [][]constant
		if len(rows)*len(set) > limit {
			return nil, i, false
		}
		for _, base := range rows {
			for _, k := range set {
				r := append([]constant(nil), base...)
				r[i] = k
				next = append(next, r)
			}
		}
		rows = next
	}
	// A row with NULL in it matches nothing.
	rows = slices.DeleteFunc(rows, func(r []constant) bool { return slices.ContainsFunc(r, func(k constant) bool { return k.never }) })
	return rows, 0, true
}

// tuples combines rows with the facts that say something about several of their columns at once, and marks these as done.
func (f *facts) tuples(rows [][]constant, done []bool, classes []map[term]bool, limit int) [][]constant {
	for _, x := range f.list {
		if len(x.terms) < 2 {
			continue
		}
		at, covered := x.columns(classes)
		if covered < 2 || anyDone(done, at) {
			continue
		}
		var next [][]constant
		for _, base := range rows {
			for _, alt := range x.rows {
				r := append([]constant(nil), base...)
				for i, j := range at {
					if j > 0 {
						r[i] = alt[j-1]
					}
				}
				next = append(next, r)
			}
		}
		if len(next) > limit {
			continue
		}
		rows = next
		for i, j := range at {
			done[i] = done[i] || j > 0
		}
	}
	return rows
}

// columns says which of the fact's terms is of each class: its index + 1, 0 for none.
func (x *fact) columns(classes []map[term]bool) (at []int, covered int) {
	at = make([]int, len(classes))
	for i := range classes {
		for j, t := range x.terms {
			if classes[i][t] && at[i] == 0 {
				at[i] = j + 1
				covered++
			}
		}
	}
	return at, covered
}

func anyDone(done []bool, at []int) bool {
	for i, j := range at {
		if j > 0 && done[i] {
			return true
		}
	}
	return false
}

// best returns the smallest set of constants that a class of terms is one of.
// Every one is right: rows that matter satisfy all of them.
func (f *facts) best(class map[term]bool) (set []constant, found bool) {
	for _, x := range f.list {
		for j, t := range x.terms {
			if !class[t] {
				continue
			}
			s := make([]constant, 0, len(x.rows))
			for _, r := range x.rows {
				if !r[j].never {
					s = append(s, r[j])
				}
			}
			if len(s) == 1 && s[0].unknown != 0 {
				return s, true
			}
			// An array has any number of elements.
			if !found || len(s) < len(set) || len(s) == len(set) && hasArray(set) && !hasArray(s) {
				set, found = s, true
			}
		}
	}
	return set, found
}

func hasArray(set []constant) bool {
	for _, k := range set {
		if k.array {
			return true
		}
	}
	return false
}

// bounds returns the facts of a comparison of a column with what may be a constant, where the
// order of both is that of the keys' encoding: not for texts, whose order is a
// matter of collations.
func (co *restrictions) bounds(e *pg.A_Expr, sc *scope) []*fact {
	one := func(l, r *pg.Node, op string) *fact {
		c, ok := co.columnOf(l, sc)
		if !ok {
			if c, ok = co.columnOf(r, sc); !ok {
				return nil
			}
			r, op = l, map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
		}
		if keytype.IsText(c.typ) || c.typ == keyspace.Bool {
			return nil
		}
		x := &fact{a: c.term, b: c.term, bound: op, open: r}
		co.bound.bounds = append(co.bound.bounds, x)
		return x
	}
	var out []*fact
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP:
		switch op := sqltree.Operator(e); op {
		case "<", "<=", ">", ">=":
			if x := one(e.Lexpr, e.Rexpr, op); x != nil {
				out = append(out, x)
			}
		}
	case pg.A_Expr_Kind_AEXPR_BETWEEN:
		if items := e.Rexpr.GetList().GetItems(); len(items) == 2 {
			for i, op := range []string{">=", "<="} {
				if x := one(e.Lexpr, items[i], op); x != nil && x.bound == op {
					out = append(out, x)
				}
			}
		}
	}
	return out
}

// settleBounds reads the constants of the bounds, once one shard is not enough.
func (co *restrictions) settleBounds() {
	list := co.bound.bounds
	co.bound.bounds = nil
	for _, x := range list {
		if k, ok := co.constantOf(x.open, co.terms[x.a].typ, false); ok && !k.never && !k.array {
			x.limit, x.open = k, nil
		}
	}
}

// spansOf returns the interval of the first shard key column that the rows of a
// table's place are in, nil if the keyspace has no order or nothing is known.
func (rp *readPlans) spansOf(u *use) []plan.Span {
	index, ok := rp.snap.Keyspace(u.rel.table.Keyspace)
	if !ok || index.Def().Strategy != keyspace.Range || u.node.key[0] == noTerm {
		return nil
	}
	in := asSet(u.facts.class(u.node.key[0]))
	var s plan.Span
	for _, x := range u.facts.list {
		if x.bound == "" || x.open != nil || !in[x.a] {
			continue
		}
		e, ok := x.limit.keyExpr(index.Def().Types[0])
		if ok {
			rp.strict(&e)
		}
		if !ok || e.Never || e.Strict {
			continue
		}
		switch {
		case x.bound[0] == '>' && s.Low == nil:
			s.Low, s.LowOpen = &e, x.bound == ">"
		case x.bound[0] == '<' && s.High == nil:
			s.High, s.HighOpen = &e, x.bound == "<"
		}
	}
	if s.Low == nil && s.High == nil {
		return nil
	}
	return []plan.Span{s}
}
