package semantics

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// A term is a column of one range-table entry, or an output column of a
// subquery: something that has one value in each joined row. NoTerm stands for
// a column of which nothing is known.
type Term int

// NoTerm stands for a column of which nothing is known.
const NoTerm Term = -1

type termInfo struct {
	typ keyspace.Type // 0: no key type, so no fact about it is of use
	rte int           // the range-table entry that it belongs to
	key bool          // shard key column of a sharded table
	// plain is false for a text column whose collation is not known: equality
	// of two such columns need not be equality of bytes.
	plain bool
}

// Equivalence has the terms of the statement, and says what holds for them.
type Equivalence struct {
	terms  []termInfo
	rtes   int
	worked int // see work
}

// A fact is something that holds for every row that can matter: two terms are
// equal, or a term or a tuple of terms is equal to one of some constants. It
// being true implies that its terms are not NULL.
type fact struct {
	A, b Term // equality of terms, if rows is nil
	// terms is one of rows; most often one term.
	terms []Term
	rows  [][]Constant
	// Bound is the comparison of term a with limit, if the fact is one: "<", "<=",
	// ">" or ">="; b is a too then. open is what it is compared with until SettleBounds has found a
	// constant there: nothing follows from the fact before.
	Bound string
	Limit Constant
	Open  *pg.Node
}

// Facts holds what is known about the rows that matter at one place of a
// statement. It only grows; clone gives a copy that can learn more.
type Facts struct {
	List []*fact
	// learned are the join nodes whose facts are in the list.
	learned map[*JoinNode]bool
}

func (f *Facts) clone() *Facts {
	c := &Facts{List: f.List[:len(f.List):len(f.List)], learned: make(map[*JoinNode]bool, len(f.learned))}
	for k := range f.learned {
		c.learned[k] = true
	}
	return c
}

// learn adds a node's facts once.
func (f *Facts) learn(j *JoinNode, list []*fact) {
	if !f.learned[j] {
		f.learned[j] = true
		f.List = append(f.List, list...)
	}
}

// present reports whether a row that matters must have a row of one of the
// range-table entries, because a fact mentions one of its columns.
func (f *Facts) present(terms []termInfo, rtes map[int]bool) bool {
	for _, x := range f.List {
		if x.Open != nil {
			continue
		}
		if x.rows == nil {
			if rtes[terms[x.A].rte] || rtes[terms[x.b].rte] {
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

// Class returns the terms known to be equal to t, t first.
func (f *Facts) Class(t Term) []Term {
	out := []Term{t}
	in := map[Term]bool{t: true}
	for i := 0; i < len(out); i++ {
		for _, x := range f.List {
			if x.rows != nil {
				continue
			}
			for _, p := range [2][2]Term{{x.A, x.b}, {x.b, x.A}} {
				if p[0] == out[i] && !in[p[1]] {
					in[p[1]] = true
					out = append(out, p[1])
				}
			}
		}
	}
	return out
}

// Alternatives returns constant rows for a tuple of terms: every row that
// matters has one of them. ok is false if a term is not fixed; missing is its
// index. No alternative at all means that no row can matter.
func (f *Facts) Alternatives(tuple []Term, limit int) (rows [][]Constant, missing int, ok bool) {
	n := len(tuple)
	classes := make([]map[Term]bool, n)
	for i, t := range tuple {
		classes[i] = map[Term]bool{}
		if t == NoTerm {
			return nil, i, false
		}
		for _, u := range f.Class(t) {
			classes[i][u] = true
		}
	}
	// The best fact for each column alone, and tuple facts for several at once.
	rows = [][]Constant{make([]Constant, n)}
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
		var next [][]Constant
		if len(rows)*len(set) > limit {
			return nil, i, false
		}
		for _, base := range rows {
			for _, k := range set {
				r := append([]Constant(nil), base...)
				r[i] = k
				next = append(next, r)
			}
		}
		rows = next
	}
	// A row with NULL in it matches nothing.
	rows = slices.DeleteFunc(rows, func(r []Constant) bool { return slices.ContainsFunc(r, func(k Constant) bool { return k.Never }) })
	return rows, 0, true
}

// tuples combines rows with the facts that say something about several of their columns at once, and marks these as done.
func (f *Facts) tuples(rows [][]Constant, done []bool, classes []map[Term]bool, limit int) [][]Constant {
	for _, x := range f.List {
		if len(x.terms) < 2 {
			continue
		}
		at, covered := x.columns(classes)
		if covered < 2 || anyDone(done, at) {
			continue
		}
		var next [][]Constant
		for _, base := range rows {
			for _, alt := range x.rows {
				r := append([]Constant(nil), base...)
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
func (x *fact) columns(classes []map[Term]bool) (at []int, covered int) {
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
func (f *Facts) best(class map[Term]bool) (set []Constant, found bool) {
	for _, x := range f.List {
		for j, t := range x.terms {
			if !class[t] {
				continue
			}
			s := make([]Constant, 0, len(x.rows))
			for _, r := range x.rows {
				if !r[j].Never {
					s = append(s, r[j])
				}
			}
			if len(s) == 1 && s[0].Unknown != 0 {
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

func hasArray(set []Constant) bool {
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
func (co *restrictions) bounds(e *pg.A_Expr, sc *Scope) []*fact {
	one := func(l, r *pg.Node, op string) *fact {
		c, ok := co.ColumnOf(l, sc)
		if !ok {
			if c, ok = co.ColumnOf(r, sc); !ok {
				return nil
			}
			r, op = l, map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
		}
		if keytype.IsText(c.typ) || c.typ == keyspace.Bool {
			return nil
		}
		x := &fact{A: c.Term, b: c.Term, Bound: op, Open: r}
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
				if x := one(e.Lexpr, items[i], op); x != nil && x.Bound == op {
					out = append(out, x)
				}
			}
		}
	}
	return out
}

// SettleBounds reads the constants of the bounds, once one shard is not enough.
func (co *restrictions) SettleBounds() {
	list := co.bound.bounds
	co.bound.bounds = nil
	for _, x := range list {
		if k, ok := co.ConstantOf(x.Open, co.terms[x.A].typ, false); ok && !k.Never && !k.array {
			x.Limit, x.Open = k, nil
		}
	}
}

// checkAnchor checks one sharded table while colocatedWith runs.
func (rt *Routing) checkAnchor(j *JoinNode, f *Facts) {
	if rt.Anchor == nil || rt.Outside {
		return
	}
	for i, t := range j.Key {
		if t == NoTerm || !f.isUnknown(f.Class(t), i) {
			rt.Outside = true
			return
		}
	}
}

// isUnknown reports whether a class of terms is column i of the anchor's key.
func (f *Facts) isUnknown(class []Term, i int) bool {
	in := AsSet(class)
	for _, x := range f.List {
		for c, t := range x.terms {
			if in[t] && len(x.rows) == 1 && x.rows[0][c].Unknown == i+1 {
				return true
			}
		}
	}
	return false
}
