package translate

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// orderAndLimit translates ORDER BY, LIMIT and OFFSET. outputOnly is set where
// only output columns can be named (set operations, VALUES).
func (t *Translator) orderAndLimit(q *query, s *pg.SelectStmt, outputOnly bool) {
	sel := t.scope.sel
	if len(s.SortClause) > 0 {
		parts := make([]string, len(s.SortClause))
		for i, n := range s.SortClause {
			sb := n.GetSortBy()
			parts[i] = t.orderTerm(q, sb, outputOnly)
		}
		q.order = " ORDER BY " + strings.Join(parts, ", ")
	}
	if s.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES {
		fault.Refuse("CLV-2128", "FETCH FIRST ... WITH TIES")
	}
	q.limit = t.limits(sel, s.LimitCount, s.LimitOffset, q)
}

func (t *Translator) orderTerm(q *query, sb *pg.SortBy, outputOnly bool) string {
	byPosition := func(i int) string { return t.orderByTarget(q, i, sb, outputOnly) }
	if c := sb.Node.GetAConst(); c != nil {
		if iv, ok := c.Val.(*pg.A_Const_Ival); ok && !c.Isnull {
			i := int(iv.Ival.GetIval())
			if i < 1 || i > len(q.targets) {
				t.failAt(c.Location, "42P10", "ORDER BY position %d is not in select list", i)
			}
			return byPosition(i - 1)
		}
		t.failAt(c.Location, sqlstate.SyntaxError, "non-integer constant in ORDER BY")
	}
	if c := sb.Node.GetColumnRef(); c != nil && len(c.Fields) == 1 {
		name := c.Fields[0].GetString_().GetSval()
		if i := t.targetNamed(q, name, c.Location); i >= 0 {
			return byPosition(i)
		}
		if outputOnly {
			t.failAt(c.Location, sqlstate.UndefinedColumn, "column \"%s\" does not exist", name)
		}
	}
	if outputOnly {
		fault.Raise(t.at(nodeLocation(sb.Node), sqlstate.New(sqlstate.FeatureNotSupported, "invalid UNION/INTERSECT/EXCEPT ORDER BY clause").
			WithDetail("Only result column names can be used, not expressions or functions.").
			WithHint("Add the expression/function to every SELECT, or move the UNION into a FROM clause.")))
	}
	e := t.resolveText(t.expr(sb.Node))
	for i, tg := range q.targets {
		if tg.e.sql == e.sql && tg.e.typ == e.typ {
			return byPosition(i)
		}
	}
	if q.distinct {
		t.failAt(nodeLocation(sb.Node), "42P10", "for SELECT DISTINCT, ORDER BY expressions must appear in select list")
	}
	return sortKey(e, notPlace(comparandKey(e, "ORDER BY")), sb)
}

// orderByTarget orders by an output column.
func (t *converter) orderByTarget(q *query, i int, sb *pg.SortBy, outputOnly bool) string {
	q.targets[i].e = t.resolveText(q.targets[i].e)
	e := q.targets[i].e
	key := strconv.Itoa(i + 1)
	switch value.ClassOf(e.typ) {
	case value.ClassNumeric:
		key += " COLLATE cleave_numeric"
	case value.ClassBpchar:
		if outputOnly || q.distinct {
			fault.Refuse("CLV-2129", "ORDER BY character(n) here")
		}
		key = comparand(e)
	default:
		if !value.Comparable(e.typ) {
			fault.Raise(sqlstate.Refusal("CLV-2130", "a SQLite shard cannot order %s exactly", value.TypeName(e.typ)).
				WithHint("Order by a cast of it: see docs/sql-sqlite.md."))
		}
	}
	return sortKey(e, key, sb)
}

// targetNamed is the first output column with a name, -1 without one. Others of that name have to be the same expression.
func (t *place) targetNamed(q *query, name string, location int32) int {
	found := -1
	for i, tg := range q.targets {
		if tg.name == name {
			if found >= 0 && q.targets[found].e.sql != tg.e.sql {
				t.failAt(location, sqlstate.AmbiguousColumn, "ORDER BY \"%s\" is ambiguous", name)
			}
			if found < 0 {
				found = i
			}
		}
	}
	return found
}

func (t *Translator) limits(sel *selectState, count, offset *pg.Node, q *query) string {
	out := ""
	one := func(n *pg.Node, name string, fn int) string {
		if c := n.GetAConst(); c != nil && c.Isnull {
			if fn == 1 {
				return "-1"
			}
			return "0"
		}
		if v, ok := syntax.Int(n); ok {
			if v < 0 {
				return call("cleave_limit", value.Int(v).Literal(), fn) // fails when it runs
			}
			if fn == 1 && v <= 1 {
				q.single = true
			}
			return strconv.FormatInt(v, 10)
		}
		sel.clause = name
		uses := sel.uses
		e := t.coerce(t.expr(n), pgoid.Int8, -1, pgcatalog.Assignment)
		if sel.uses != uses {
			t.failAt(nodeLocation(n), "42P10", "argument of %s must not contain variables", name)
		}
		sel.clause = ""
		return call("cleave_limit", e.sql, fn)
	}
	if count != nil {
		out = " LIMIT " + one(count, "LIMIT", 1)
	}
	if offset != nil {
		if count == nil {
			out = " LIMIT -1"
		}
		out += " OFFSET " + one(offset, "OFFSET", 2)
	}
	return out
}

// distinctOn keeps the first row of each group: a window numbers the rows in the
// order of ORDER BY, whose first keys are the DISTINCT ON expressions.
func (t plainSelect) distinctOn(q *query) {
	s := t.s
	sel := t.scope.sel
	if sel.hasAgg || len(s.GroupClause) > 0 || sel.hasWindow {
		fault.Refuse("CLV-2131", "DISTINCT ON together with GROUP BY, aggregates or window functions")
	}
	on := map[string]bool{}
	var keys []string
	for _, n := range s.DistinctClause {
		e, ok := targetAt(n, q.targets)
		if !ok {
			e = t.resolveText(t.expr(n))
		}
		on[e.sql] = true
		keys = append(keys, comparandKey(e, "DISTINCT ON"))
	}
	var order, outer []string
	left := len(on)
	inner := *q
	for i := range inner.targets {
		inner.targets[i].e = t.resolveText(inner.targets[i].e)
	}
	n := len(inner.targets)
	for _, node := range s.SortClause {
		sb := node.GetSortBy()
		e := t.sortExpr(sb.Node, inner.targets[:n])
		if left > 0 {
			if !on[e.sql] {
				fault.Raisef("42P10", "SELECT DISTINCT ON expressions must match initial ORDER BY expressions")
			}
			left--
		}
		order = append(order, sortKey(e, comparandKey(e, "ORDER BY"), sb))
		inner.targets = append(inner.targets, target{e: e})
		z := e
		z.sql = "z.c" + strconv.Itoa(len(inner.targets))
		outer = append(outer, sortKey(z, comparandKey(z, "ORDER BY"), sb))
	}
	window := "row_number() OVER (PARTITION BY " + strings.Join(keys, ", ")
	if len(order) > 0 {
		window += " ORDER BY " + strings.Join(order, ", ")
	}
	inner.targets = append(inner.targets, target{e: expr{sql: window + ")", typ: pgoid.Int8}})
	*q = query{body: " FROM (" + inner.sql() + ") AS z WHERE z.c" + strconv.Itoa(len(inner.targets)) + " = 1"}
	for i, tg := range inner.targets[:n] {
		tg.e.sql = "z.c" + strconv.Itoa(i+1)
		q.targets = append(q.targets, tg)
	}
	if len(outer) > 0 {
		q.order = " ORDER BY " + strings.Join(outer, ", ")
	}
	if s.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES {
		fault.Refuse("CLV-2128", "FETCH FIRST ... WITH TIES")
	}
	q.limit = t.limits(sel, s.LimitCount, s.LimitOffset, q)
}

// targetAt is the output column of which n is the position.
func targetAt(n *pg.Node, targets []target) (expr, bool) {
	if i, ok := syntax.Int(n); ok && i >= 1 && int(i) <= len(targets) {
		return targets[i-1].e, true
	}
	return expr{}, false
}

// sortExpr is what ORDER BY names: an output column by its position or name, or an expression.
func (t plainSelect) sortExpr(node *pg.Node, targets []target) expr {
	if e, ok := targetAt(node, targets); ok {
		return e
	}
	if c := node.GetColumnRef(); c != nil && len(c.Fields) == 1 {
		if e := targetByName(targets, c.Fields[0].GetString_().GetSval()); e != nil {
			return *e
		}
	}
	return t.resolveText(t.expr(node))
}

func targetByName(list []target, name string) *expr {
	for i := range list {
		if list[i].name == name {
			return &list[i].e
		}
	}
	return nil
}
