package generate

import (
	"fmt"
	"math/rand/v2"
)

// maker makes one statement.
type maker struct {
	r      *rand.Rand
	tables []*table
	world  int
	sqlite bool // leave out what a SQLite shard refuses anyway
	names  int
	ctes   []source
}

// source is something in FROM.
type source struct {
	alias   string
	columns []column
	unique  []string // columns whose values tell its rows apart; nil: not known
	table   *table   // nil: something else
}

// scope is what an expression can name: its own query's sources, and those
// around it.
type scope struct {
	sources []source
	outer   *scope
}

func (m *maker) maybe(percent int) bool { return m.r.IntN(100) < percent }

func (m *maker) name(prefix string) string {
	m.names++
	return fmt.Sprintf("%s%d", prefix, m.names)
}

func pick[T any](m *maker, list ...T) T { return list[m.r.IntN(len(list))] }

// literal is a constant of a type that needs no context to be of it.
func (m *maker) literal(k kind) Node {
	s := literal(m.r, k)
	switch k {
	case date:
		s = "date " + s
	case timestamp:
		s = "timestamp " + s
	case uuid:
		s += "::uuid"
	case text:
		if m.maybe(40) {
			s += "::text"
		}
	case bigint:
		if m.maybe(30) {
			s = "(" + s + ")::bigint"
		}
	}
	if m.maybe(4) {
		return word("NULL::" + k.sql())
	}
	return word(s)
}

// columnOf names a column of a type; false if there is none.
func (m *maker) columnOf(k kind, sc *scope) (Node, bool) {
	for s := sc; s != nil; s = s.outer {
		var found []string
		// The innermost query's only source needs no name.
		bare := s == sc && len(s.sources) == 1 && m.maybe(35)
		for _, src := range s.sources {
			for _, c := range src.columns {
				switch {
				case c.kind == k && bare:
					found = append(found, c.name)
				case c.kind == k:
					found = append(found, src.alias+"."+c.name)
				}
			}
		}
		if len(found) > 0 && (s.outer == nil || m.maybe(75)) {
			return word(found[m.r.IntN(len(found))]), true
		}
	}
	return nil, false
}

// leaf is a column or a constant.
func (m *maker) leaf(k kind, sc *scope) Node {
	if m.maybe(80) {
		if c, ok := m.columnOf(k, sc); ok {
			return or(c, m.literal(k))
		}
	}
	return m.literal(k)
}

func call(name string, args ...Node) Node {
	return seq{word(name + "("), &many{sep: ", ", items: args, min: len(args)}, word(")")}
}

func infix(l Node, op string, r Node) Node { return seq{word("("), l, word(op), r, word(")")} }

// expr makes an expression of a type. Depth bounds how deep it nests.
func (m *maker) expr(k kind, depth int, sc *scope) Node {
	if depth <= 0 || m.maybe(45) {
		return m.leaf(k, sc)
	}
	if k == boolean {
		return m.condition(depth, sc)
	}
	e := func(k kind) Node { return m.expr(k, depth-1, sc) }
	same := []Node{e(k), e(k)}
	switch m.r.IntN(9) {
	case 0:
		return or(call("coalesce", same...), same...)
	case 1:
		return or(seq{word("CASE WHEN "), m.condition(depth-1, sc), word(" THEN "), same[0], maybe(seq{word(" ELSE "), same[1]}), word(" END")}, same...)
	case 2:
		return or(call("nullif", same...), same...)
	case 3:
		if k != uuid {
			return or(call(pick(m, "greatest", "least"), same...), same...)
		}
	case 4:
		if depth > 1 && m.maybe(50) {
			return or(m.scalar(k, depth-1, sc), m.literal(k))
		}
	}
	return or(m.operation(k, same, e), same...)
}

// operation is a function or an operator that gives k.
func (m *maker) operation(k kind, same []Node, e func(kind) Node) Node {
	switch k {
	case integer:
		switch m.r.IntN(8) {
		case 0:
			return call("length", e(text))
		case 1:
			return call("abs", same[0])
		case 2:
			return infix(same[0], " % ", word(pick(m, "2", "3")))
		case 3:
			return infix(e(date), " - ", e(date))
		case 4:
			return infix(same[0], " / ", word(pick(m, "2", "3")))
		case 5:
			return seq{word("("), e(boolean), word(")::integer")}
		}
		return infix(same[0], pick(m, " + ", " - ", " * "), word(pick(m, "1", "2", "3")))
	case bigint:
		if m.maybe(40) {
			return seq{word("("), e(integer), word(")::bigint")}
		}
		return infix(same[0], pick(m, " + ", " - "), e(integer))
	case numeric:
		switch m.r.IntN(4) {
		case 0:
			return infix(same[0], pick(m, " + ", " - "), same[1])
		case 1:
			return infix(same[0], " * ", e(integer))
		case 2:
			return call("abs", same[0])
		}
		return seq{word("("), e(integer), word(")::numeric(12,2)")}
	case text:
		switch m.r.IntN(5) {
		case 0:
			return call(pick(m, "upper", "lower"), same[0])
		case 1:
			return infix(same[0], " || ", same[1])
		case 2:
			return seq{word("("), e(pick(m, integer, bigint, boolean, date)), word(")::text")}
		case 3:
			return call("substr", same[0], word("1"), word(pick(m, "1", "2")))
		}
		return call("replace", same[0], word("'a'"), word("'x'"))
	case date:
		if m.maybe(40) {
			return seq{word("("), e(timestamp), word(")::date")}
		}
		return infix(same[0], pick(m, " + ", " - "), word(pick(m, "1", "2", "30")))
	case timestamp:
		switch m.r.IntN(3) {
		case 0:
			return seq{word("("), e(date), word(")::timestamp")}
		case 1:
			return call("date_trunc", word(pick(m, "'day'", "'month'")), same[0])
		}
		return infix(same[0], pick(m, " + ", " - "), word(pick(m, "interval '1 day'", "interval '12 hours'")))
	}
	return same[0]
}

// compared are types that conditions are made of.
func (m *maker) compared() kind {
	return pick(m, integer, integer, bigint, numeric, text, text, date, timestamp, boolean)
}

// condition makes an expression of type boolean.
func (m *maker) condition(depth int, sc *scope) Node {
	k := m.compared()
	e := func() Node { return m.expr(k, depth-1, sc) }
	yes := word("true")
	switch m.r.IntN(17) {
	case 0, 1, 2, 3:
		return or(infix(e(), pick(m, " = ", " = ", " <> ", " < ", " <= ", " > ", " >= "), e()), yes)
	case 4:
		return or(seq{word("("), e(), word(pick(m, " IS NULL", " IS NOT NULL")), word(")")}, yes)
	case 5:
		return or(seq{word("("), e(), word(pick(m, " IN (", " NOT IN (")), list(", ", 1, m.literal(k), m.literal(k), m.literal(k)), word("))")}, yes)
	case 6:
		return or(seq{word("("), e(), word(pick(m, " BETWEEN ", " NOT BETWEEN ")), m.literal(k), word(" AND "), m.literal(k), word(")")}, yes)
	case 7:
		return or(infix(e(), pick(m, " IS DISTINCT FROM ", " IS NOT DISTINCT FROM "), e()), yes)
	case 8:
		return or(infix(m.expr(text, depth-1, sc), pick(m, " LIKE ", " NOT LIKE "), word(pick(m, "'a%'", "'%b'", "'_'", "''", "'%'"))), yes)
	case 9, 10:
		if depth > 0 {
			l, r := m.condition(depth-1, sc), m.condition(depth-1, sc)
			return or(infix(l, pick(m, " AND ", " OR "), r), l, r)
		}
	case 11:
		if depth > 0 {
			c := m.condition(depth-1, sc)
			if m.maybe(50) {
				return or(seq{word("(NOT "), c, word(")")}, c)
			}
			return or(seq{word("("), c, word(pick(m, " IS TRUE", " IS NOT TRUE", " IS UNKNOWN", " IS FALSE")), word(")")}, c)
		}
	case 12:
		if depth > 1 {
			return or(m.exists(depth-1, sc), yes)
		}
	case 13:
		if depth > 1 {
			return or(m.in(depth-1, sc), yes)
		}
	case 14:
		return or(infix(e(), " = ANY ", seq{word("(ARRAY["), list(", ", 1, m.literal(k), m.literal(k)), word("])")}), yes)
	case 15:
		l := m.compared()
		return or(seq{word("("), call("", e(), m.expr(l, depth-1, sc)), word(pick(m, " = ", " <> ")), call("", e(), m.expr(l, depth-1, sc)), word(")")}, yes)
	}
	if n, ok := m.columnOf(boolean, sc); ok && m.maybe(30) {
		return n
	}
	return or(m.onKey(sc), yes)
}

// onKey makes a condition on a shard key, in one of the forms that routing reads.
func (m *maker) onKey(sc *scope) Node {
	var with []source
	for _, s := range sc.sources {
		if s.table != nil && s.table.key != nil {
			with = append(with, s)
		}
	}
	if len(with) == 0 {
		k := m.compared()
		return infix(m.leaf(k, sc), " = ", m.literal(k))
	}
	s := with[m.r.IntN(len(with))]
	col := func(i int) Node { return word(s.alias + "." + s.table.key[i]) }
	kind := func(i int) kind { return s.table.kindOf(s.table.key[i]) }
	value := func(i int) Node {
		if m.maybe(25) {
			// A value of another source, in the hope of a join on the key.
			if c, ok := m.columnOf(kind(i), sc); ok {
				return c
			}
		}
		return m.literal(kind(i))
	}
	if len(s.table.key) == 2 {
		switch m.r.IntN(4) {
		case 0:
			return infix(seq{word("("), col(0), word(", "), col(1), word(")")}, " = ", seq{word("("), value(0), word(", "), value(1), word(")")})
		case 1:
			tuple := func() Node { return seq{word("("), value(0), word(", "), value(1), word(")")} }
			return seq{word("(("), col(0), word(", "), col(1), word(") IN ("), list(", ", 1, tuple(), tuple()), word("))")}
		case 2:
			return infix(col(m.r.IntN(2)), " = ", value(0))
		}
		return seq{word("("), col(0), word(" = "), value(0), word(" AND "), col(1), word(" = "), value(1), word(")")}
	}
	switch m.r.IntN(9) {
	case 0, 1:
		return infix(col(0), " = ", value(0))
	case 2:
		return seq{word("("), col(0), word(" IN ("), list(", ", 1, value(0), value(0), value(0)), word("))")}
	case 3:
		return infix(infix(col(0), " = ", value(0)), " OR ", infix(col(0), " = ", value(0)))
	case 4:
		return seq{word("("), col(0), word(" = ANY (ARRAY["), list(", ", 1, value(0), value(0)), word("]))")}
	case 5:
		return infix(col(0), pick(m, " < ", " >= ", " > ", " <= "), value(0))
	case 6:
		return seq{word("("), col(0), word(" BETWEEN "), value(0), word(" AND "), value(0), word(")")}
	case 7:
		return seq{word("("), col(0), word(" >= "), value(0), word(" AND "), col(0), word(" < "), value(0), word(")")}
	}
	return infix(value(0), " = ", col(0))
}
