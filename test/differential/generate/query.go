package generate

import (
	"fmt"
	"strings"
)

// exists is [NOT] EXISTS of a query that may name what is around it.
func (m *maker) exists(depth int, sc *scope) Node {
	inner := &scope{outer: sc}
	from := m.from(depth-1, inner)
	return seq{word(pick(m, "EXISTS (SELECT 1 FROM ", "NOT EXISTS (SELECT 1 FROM ")), from, word(" WHERE "), m.link(inner), m.where(depth-1, inner, " AND "), word(")")}
}

// in is a value that is among the rows of a query, or not.
func (m *maker) in(depth int, sc *scope) Node {
	k := pick(m, integer, integer, bigint, text, numeric)
	inner := &scope{outer: sc}
	from := m.from(depth-1, inner)
	op := pick(m, " IN (SELECT ", " IN (SELECT ", " NOT IN (SELECT ")
	if !m.sqlite && m.maybe(20) {
		op = pick(m, " = ANY (SELECT ", " > ALL (SELECT ", " <> ALL (SELECT ", " < ANY (SELECT ")
	}
	return seq{word("("), m.expr(k, depth-1, sc), word(op), m.expr(k, depth-1, inner), word(" FROM "), from, m.where(depth-1, inner, " WHERE "), word("))")}
}

// scalar is a subquery of one value: an aggregate, so that there is one row.
func (m *maker) scalar(k kind, depth int, sc *scope) Node {
	inner := &scope{outer: sc}
	from := m.from(depth-1, inner)
	where := m.where(depth-1, inner, " WHERE ")
	if m.maybe(50) {
		where = seq{word(" WHERE "), m.link(inner), m.where(depth-1, inner, " AND ")}
	}
	return seq{word("(SELECT "), m.aggregate(k, depth-1, inner), word(" FROM "), from, where, word(")")}
}

// link is a condition that ties a subquery to the query around it.
func (m *maker) link(sc *scope) Node {
	k := pick(m, integer, bigint, text)
	here := &scope{sources: sc.sources}
	l, ok := m.columnOf(k, here)
	if !ok || sc.outer == nil {
		return m.condition(0, sc)
	}
	r, ok := m.columnOf(k, sc.outer)
	if !ok {
		return m.condition(0, sc)
	}
	return or(infix(l, " = ", r), word("true"))
}

// where is a list of conditions after before, perhaps none.
func (m *maker) where(depth int, sc *scope, before string) Node {
	if m.maybe(25) {
		return word("")
	}
	w := &many{before: before, sep: " AND "}
	if m.maybe(35) {
		w.items = append(w.items, m.onKey(sc))
	}
	for range 1 + m.r.IntN(2) {
		w.items = append(w.items, m.condition(depth, sc))
	}
	return w
}

// aggregate is an aggregate that gives k, one that does not depend on order.
func (m *maker) aggregate(k kind, depth int, sc *scope) Node {
	e := func(k kind) Node { return m.expr(k, depth-1, sc) }
	filter := func(n Node) Node {
		if m.maybe(20) {
			return seq{n, maybe(seq{word(" FILTER (WHERE "), m.condition(depth-1, sc), word(")")})}
		}
		return n
	}
	distinct := word("")
	if m.maybe(20) {
		distinct = "DISTINCT "
	}
	switch k {
	case bigint:
		switch m.r.IntN(3) {
		case 0:
			return filter(word("count(*)"))
		case 1:
			return filter(seq{word("count("), distinct, e(m.compared()), word(")")})
		}
		return filter(seq{word("sum("), distinct, e(integer), word(")")})
	case numeric:
		switch m.r.IntN(3) {
		case 0:
			return filter(seq{word("sum("), distinct, e(numeric), word(")")})
		case 1:
			return seq{word("round("), filter(seq{word("avg("), distinct, e(pick(m, integer, numeric)), word(")")}), word(", 2)")}
		}
	case boolean:
		return filter(call(pick(m, "bool_and", "bool_or", "every"), e(boolean)))
	case text:
		if m.maybe(40) {
			v := e(text)
			return filter(seq{word("string_agg("), v, word(", ',' ORDER BY "), v, word(")")})
		}
	case uuid:
		return word("NULL::uuid")
	}
	return filter(call(pick(m, "min", "max"), e(k)))
}

// from makes the FROM clause of sc, and tells it what can be named.
func (m *maker) from(depth int, sc *scope) Node {
	var n Node
	n, sc.sources = m.source(depth, sc)
	for range 2 {
		if m.maybe(40) {
			break
		}
		if !m.maybe(55 - 10*len(sc.sources)) {
			break
		}
		left := sc.sources
		right, rs := m.source(depth, &scope{outer: sc.outer})
		join := pick(m, " JOIN ", " JOIN ", " LEFT JOIN ", " RIGHT JOIN ", " FULL JOIN ", " CROSS JOIN ", ", ")
		both := append(append([]source(nil), left...), rs...)
		sc.sources = both
		switch join {
		case " CROSS JOIN ", ", ":
			if join == ", " {
				join = " CROSS JOIN "
			}
			n = seq{n, word(join), right}
		default:
			on := m.joinCondition(left, rs, join == " FULL JOIN ")
			if join != " FULL JOIN " && m.maybe(25) {
				on = seq{on, maybe(seq{word(" AND "), m.condition(depth-1, &scope{sources: both, outer: sc.outer})})}
			}
			n = seq{n, word(join), right, word(" ON "), on}
		}
	}
	return n
}

// joinCondition ties two sides by equality, on the shard key if it can.
func (m *maker) joinCondition(left, right []source, full bool) Node {
	l, r := left[m.r.IntN(len(left))], right[m.r.IntN(len(right))]
	if l.table != nil && r.table != nil && l.table.key != nil && len(l.table.key) == len(r.table.key) && m.maybe(70) {
		same := true
		for i := range l.table.key {
			same = same && l.table.kindOf(l.table.key[i]) == r.table.kindOf(r.table.key[i])
		}
		if same {
			on := list(" AND ", 1)
			for i := range l.table.key {
				on.items = append(on.items, word(fmt.Sprintf("%s.%s = %s.%s", l.alias, l.table.key[i], r.alias, r.table.key[i])))
			}
			if m.maybe(40) {
				if n, ok := m.equal(l, r); ok {
					on.items = append(on.items, n)
				}
			}
			return on
		}
	}
	if n, ok := m.equal(l, r); ok {
		return n
	}
	if full {
		return word("false")
	}
	return word(pick(m, "true", "false"))
}

func (m *maker) equal(l, r source) (Node, bool) {
	var pairs []string
	for _, a := range l.columns {
		for _, b := range r.columns {
			if a.kind == b.kind && a.kind != boolean {
				pairs = append(pairs, fmt.Sprintf("%s.%s = %s.%s", l.alias, a.name, r.alias, b.name))
			}
		}
	}
	if len(pairs) == 0 {
		return nil, false
	}
	return word(pairs[m.r.IntN(len(pairs))]), true
}

// pickTable prefers tables of the statement's world.
func (m *maker) pickTable() *table {
	for {
		t := m.tables[m.r.IntN(len(m.tables))]
		if t.world == m.world || t.world < 0 && m.maybe(50) || m.maybe(10) {
			return t
		}
	}
}

// source makes one item of FROM.
func (m *maker) source(depth int, sc *scope) (Node, []source) {
	a := m.name("x")
	switch {
	case depth > 0 && m.maybe(18):
		lateral := ""
		outer := &scope{outer: sc.outer}
		q, kinds := m.query(depth-1, outer.outer, nil)
		columns := named(kinds)
		return seq{word(lateral + "("), q, word(") AS " + a + "(" + names(columns) + ")")}, []source{{alias: a, columns: columns}}
	case len(m.ctes) > 0 && m.maybe(40):
		c := m.ctes[m.r.IntN(len(m.ctes))]
		return word(c.alias + " AS " + a), []source{{alias: a, columns: c.columns}}
	case m.maybe(4):
		return word(fmt.Sprintf("(VALUES (1, 'a', 2), (2, NULL, 3), (%d, 'b', NULL)) AS %s(i, t, j)", m.r.IntN(4), a)),
			[]source{{alias: a, columns: []column{{"i", integer}, {"t", text}, {"j", integer}}}}
	case m.maybe(3):
		return word(fmt.Sprintf("generate_series(%d, 4) AS %s(i)", m.r.IntN(3), a)), []source{{alias: a, columns: []column{{"i", integer}}, unique: []string{"i"}}}
	}
	t := m.pickTable()
	return word(t.name + " AS " + a), []source{{alias: a, columns: t.columns, unique: t.id, table: t}}
}

func named(kinds []kind) []column {
	out := make([]column, len(kinds))
	for i, k := range kinds {
		out[i] = column{fmt.Sprintf("c%d", i+1), k}
	}
	return out
}

func names(columns []column) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c.name
	}
	return strings.Join(out, ", ")
}

// query makes a SELECT with columns of the types in want, or of any types.
func (m *maker) query(depth int, outer *scope, want []kind) (Node, []kind) {
	if want == nil {
		for range 1 + m.r.IntN(3) {
			want = append(want, pick(m, integer, integer, bigint, numeric, text, text, boolean, date, timestamp))
		}
	}
	if depth > 0 && m.maybe(12) {
		return m.setOperation(depth-1, outer, want), want
	}
	return m.selects(depth, outer, want), want
}

func (m *maker) setOperation(depth int, outer *scope, want []kind) Node {
	l, _ := m.query(depth, outer, want)
	r, _ := m.query(depth, outer, want)
	op := pick(m, ") UNION ALL (", ") UNION ALL (", ") UNION (", ") EXCEPT (", ") INTERSECT (")
	if !m.sqlite && m.maybe(8) {
		op = pick(m, ") EXCEPT ALL (", ") INTERSECT ALL (")
	}
	return seq{or(seq{word("("), l, word(op), r, word(")")}, l, r), m.limitOf(len(want))}
}

// limitOf is an order of all columns and perhaps a LIMIT, or nothing. Rows that
// tie are equal, so that it does not matter which are left out.
func (m *maker) limitOf(columns int) Node {
	if m.maybe(65) {
		return word("")
	}
	items := make([]Node, columns)
	for i, at := range m.r.Perm(columns) {
		items[i] = word(fmt.Sprint(at+1) + m.direction())
	}
	order := &many{before: " ORDER BY ", sep: ", ", items: items, min: columns}
	return maybe(seq{order, m.limit()})
}

func (m *maker) direction() string {
	return pick(m, "", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")
}

func (m *maker) limit() Node {
	if m.maybe(45) {
		return word("")
	}
	n := maybe(word(fmt.Sprintf(" LIMIT %d", m.r.IntN(9))))
	if m.maybe(35) {
		return seq{n, maybe(word(fmt.Sprintf(" OFFSET %d", m.r.IntN(5))))}
	}
	return n
}

// selects makes a plain SELECT: of rows, groups, one group, or windows.
func (m *maker) selects(depth int, outer *scope, want []kind) Node {
	sc := &scope{outer: outer}
	from := m.from(depth, sc)
	where := m.where(depth, sc, " WHERE ")
	switch m.r.IntN(10) {
	case 0, 1:
		return seq{word("SELECT "), m.aggregates(want, depth, sc), word(" FROM "), from, where, m.having(depth, sc, 30)}
	case 2, 3, 4:
		return m.grouped(depth, sc, from, where, want)
	case 5:
		if outer == nil || depth > 0 {
			return m.windowed(depth, sc, from, where, want)
		}
	}
	items := make([]Node, len(want))
	for i, k := range want {
		items[i] = m.expr(k, depth, sc)
	}
	if m.maybe(18) {
		return seq{word("SELECT "), maybe(word("DISTINCT ")), list(", ", len(items), items...), word(" FROM "), from, where, m.limitOf(len(want))}
	}
	// An order by what is not in the output: total if the rows' identities are known.
	if ids := identities(sc); ids != nil && m.maybe(25) {
		order := &many{before: " ORDER BY ", sep: ", ", min: 0}
		for range m.r.IntN(3) {
			order.items = append(order.items, seq{m.ordering(m.compared(), depth-1, sc), word(m.direction())})
		}
		rest := list("", 0)
		for i, id := range ids {
			sep := ", "
			if i == 0 && len(order.items) == 0 {
				sep = " ORDER BY "
			}
			rest.items = append(rest.items, word(sep+id+m.direction()))
		}
		rest.min = len(rest.items)
		order.min = len(order.items)
		return seq{word("SELECT "), list(", ", len(items), items...), word(" FROM "), from, where, maybe(seq{order, rest, m.limit()})}
	}
	return seq{word("SELECT "), list(", ", len(items), items...), word(" FROM "), from, where, m.limitOf(len(want))}
}

// ordering is an expression to sort by: not a bare number, which would be a place.
func (m *maker) ordering(k kind, depth int, sc *scope) Node {
	if c, ok := m.columnOf(k, sc); ok {
		if depth > 0 && m.maybe(50) {
			return call("coalesce", c, m.literal(k))
		}
		return c
	}
	return call("coalesce", m.literal(k))
}

// identities are columns that tell the rows of a query apart, nil if not known.
func identities(sc *scope) []string {
	var out []string
	for _, s := range sc.sources {
		if s.unique == nil {
			return nil
		}
		for _, c := range s.unique {
			out = append(out, s.alias+"."+c)
		}
	}
	return out
}

func (m *maker) aggregates(want []kind, depth int, sc *scope) Node {
	items := make([]Node, len(want))
	for i, k := range want {
		items[i] = m.aggregate(k, depth, sc)
	}
	return list(", ", len(items), items...)
}

func (m *maker) having(depth int, sc *scope, percent int) Node {
	if !m.maybe(percent) {
		return word("")
	}
	k := pick(m, bigint, numeric, integer, text)
	return maybe(seq{word(" HAVING "), infix(m.aggregate(k, depth-1, sc), pick(m, " > ", " <= ", " <> ", " IS DISTINCT FROM "), m.literal(k))})
}

// grouped makes a SELECT with GROUP BY: a column of the output is one of the
// groups' expressions or an aggregate.
func (m *maker) grouped(depth int, sc *scope, from, where Node, want []kind) Node {
	items := make([]Node, len(want))
	groups := &many{before: " GROUP BY ", sep: ", "}
	for i, k := range want {
		c, ok := m.columnOf(k, &scope{sources: sc.sources})
		if !ok || m.maybe(45) && i > 0 {
			items[i] = m.aggregate(k, depth, sc)
			continue
		}
		if m.maybe(25) && (k == integer || k == text) {
			if k == integer {
				c = infix(c, " % ", word("2"))
			} else {
				c = call("lower", c)
			}
		}
		items[i] = c
		groups.items = append(groups.items, c)
	}
	if len(groups.items) == 0 || m.maybe(15) {
		// A group that is not in the output.
		if c, ok := m.columnOf(m.compared(), &scope{sources: sc.sources}); ok {
			groups.items = append(groups.items, c)
		}
	}
	groups.min = len(groups.items)
	var by Node = groups
	if !m.sqlite && m.maybe(8) && len(groups.items) > 0 {
		by = seq{word(" GROUP BY " + pick(m, "ROLLUP (", "CUBE (")), &many{sep: ", ", items: groups.items, min: groups.min}, word(")")}
	}
	return seq{word("SELECT "), list(", ", len(items), items...), word(" FROM "), from, where, by, m.having(depth, sc, 30), m.limitOf(len(want))}
}

// windowed makes a SELECT in which integers and numbers are window functions:
// those whose value is the same for rows that tie.
func (m *maker) windowed(depth int, sc *scope, from, where Node, want []kind) Node {
	items := make([]Node, len(want))
	ids := identities(sc)
	for i, k := range want {
		over := &strings.Builder{}
		if m.maybe(65) {
			if c, ok := m.columnOf(m.compared(), &scope{sources: sc.sources}); ok {
				over.WriteString("PARTITION BY " + Text(c))
			}
		}
		ordered := m.maybe(60)
		if ordered {
			if c, ok := m.columnOf(m.compared(), &scope{sources: sc.sources}); ok {
				if over.Len() > 0 {
					over.WriteByte(' ')
				}
				over.WriteString("ORDER BY " + Text(c) + m.direction())
			} else {
				ordered = false
			}
		}
		total := ordered && ids != nil && m.maybe(60)
		if total {
			over.WriteString(", " + strings.Join(ids, ", "))
		}
		var f Node
		arg := func(k kind) Node { return m.expr(k, 0, sc) }
		switch {
		case k == bigint && total && m.maybe(40):
			f = word("row_number()")
		case k == bigint && ordered && m.maybe(50):
			f = word(pick(m, "rank()", "dense_rank()"))
		case k == bigint:
			f = pick(m, Node(word("count(*)")), call("sum", arg(integer)), call("count", arg(text)))
		case k == numeric:
			f = call("sum", arg(numeric))
		case total && m.maybe(60):
			f = call(pick(m, "lag", "lead", "first_value", "last_value"), arg(k))
		case k != boolean && k != uuid && m.maybe(40):
			f = call(pick(m, "min", "max"), arg(k))
		}
		if f == nil {
			items[i] = m.expr(k, depth-1, sc)
			continue
		}
		items[i] = or(seq{f, word(" OVER (" + over.String() + ")")}, m.literal(k))
	}
	return seq{word("SELECT "), list(", ", len(items), items...), word(" FROM "), from, where, m.limitOf(len(want))}
}
