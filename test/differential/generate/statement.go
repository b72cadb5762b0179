package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Options choose what is made.
type Options struct {
	Seed   uint64
	Number uint64 // of the statement: each is made by itself
	SQLite bool   // leave out what a SQLite shard refuses anyway
}

// Statement is one that was made.
type Statement struct {
	Tree  Node
	Write string // the table that it writes to; "": it only reads
}

// Make makes a statement; the same options make the same one.
func Make(o Options) Statement {
	m := &maker{r: rand.New(rand.NewPCG(o.Seed, o.Number+2)), tables: tables(), sqlite: o.SQLite}
	m.world = m.r.IntN(3)
	if m.maybe(22) {
		return m.writing()
	}
	depth := 1 + m.r.IntN(3)
	if m.maybe(15) {
		return Statement{Tree: m.withClause(depth)}
	}
	q, _ := m.query(depth, nil, nil)
	return Statement{Tree: q}
}

// withClause makes WITH and a query that may read it.
func (m *maker) withClause(depth int) Node {
	with := &many{sep: ", ", before: "WITH ", min: 1}
	if m.maybe(12) {
		with.before = "WITH RECURSIVE "
		n := m.name("r")
		with.items = append(with.items, word(n+"(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM "+n+" WHERE i < 4)"))
		m.ctes = append(m.ctes, source{alias: n, columns: []column{{"i", integer}}})
	}
	for range 1 + m.r.IntN(2) {
		n := m.name("w")
		q, kinds := m.query(depth-1, nil, nil)
		columns := named(kinds)
		with.items = append(with.items, seq{word(n + "(" + names(columns) + ") AS " + pick(m, "", "", "MATERIALIZED ", "NOT MATERIALIZED ") + "("), q, word(")")})
		m.ctes = append(m.ctes, source{alias: n, columns: columns})
	}
	with.min = len(with.items)
	q, _ := m.query(depth, nil, nil)
	return seq{with, word(" "), q}
}

// writing makes an INSERT, UPDATE or DELETE.
func (m *maker) writing() Statement {
	t := m.pickTable()
	sc := &scope{sources: []source{{alias: t.name, columns: t.columns, unique: t.id, table: t}}}
	var n Node
	switch m.r.IntN(7) {
	case 0, 1:
		n = m.insertRows(t)
	case 2:
		n = m.insertSelect(t)
	case 3, 4, 5:
		n = m.update(t, sc)
	default:
		n = m.delete(t, sc)
	}
	return Statement{Tree: n, Write: t.name}
}

// returning names columns of the table that is written: with USING it is open
// which of the other table's rows that match a row comes with it.
func (m *maker) returning(t *table, star bool) Node {
	if m.maybe(60) {
		return word("")
	}
	if m.maybe(40) && star {
		return maybe(word(" RETURNING *"))
	}
	c := t.columns[m.r.IntN(len(t.columns))]
	sc := &scope{sources: []source{{alias: t.name, columns: t.columns}}}
	return maybe(seq{word(" RETURNING "), m.expr(c.kind, 1, sc), word(", " + t.name + "." + c.name)})
}

func (m *maker) onConflict(t *table) Node {
	if m.maybe(40) {
		return word("")
	}
	if m.maybe(50) {
		return word(" ON CONFLICT DO NOTHING")
	}
	c := m.plainColumn(t)
	return word(fmt.Sprintf(" ON CONFLICT (%s) DO UPDATE SET %s = excluded.%s", strings.Join(t.id, ", "), c.name, c.name))
}

// plainColumn is a column that is not of the primary key.
func (m *maker) plainColumn(t *table) column {
	for {
		c := t.columns[m.r.IntN(len(t.columns))]
		if !t.identifies(c.name) {
			return c
		}
	}
}

func (m *maker) insertRows(t *table) Node {
	rows := list(", ", 1)
	seen := map[string]bool{}
	for range 1 + m.r.IntN(6) {
		row := t.row(m.r, true)
		// A row that meets another one of its own statement is an error for DO UPDATE,
		// and a race for DO NOTHING: leave it out.
		id := m.idOf(t, row)
		if !seen[id] {
			rows.items = append(rows.items, word(row))
			seen[id] = true
		}
	}
	return seq{word("INSERT INTO " + t.name + " VALUES "), rows, m.onConflict(t), m.returning(t, true)}
}

func (m *maker) idOf(t *table, row string) string {
	cells := strings.Split(strings.Trim(row, "()"), ", ")
	var id []string
	for i, c := range t.columns {
		if t.identifies(c.name) && i < len(cells) {
			id = append(id, cells[i])
		}
	}
	return strings.Join(id, "|")
}

// insertSelect copies rows of one table with keys that are new, or its own.
func (m *maker) insertSelect(t *table) Node {
	sc := &scope{}
	from := t
	src := source{alias: "x0", columns: from.columns, unique: from.id, table: from}
	sc.sources = []source{src}
	names, values := []string{}, []Node{}
	for _, c := range t.columns {
		names = append(names, c.name)
		switch {
		case t.strategy == "list" && t.identifies(c.name) && c.name != "id", c.kind == uuid, c.kind == text && t.identifies(c.name):
			values = append(values, word("x0."+c.name))
		case t.identifies(c.name) && c.kind == timestamp:
			values = append(values, word("x0."+c.name+" + interval '1 day'"))
		case t.identifies(c.name):
			values = append(values, word("x0."+c.name+pick(m, " + 100", " + 100", "", " + 1")))
		default:
			values = append(values, m.expr(c.kind, 1, sc))
		}
	}
	conflict := Node(word(" ON CONFLICT DO NOTHING"))
	if m.maybe(25) {
		conflict = word("")
	}
	return seq{word("INSERT INTO " + t.name + " (" + strings.Join(names, ", ") + ") SELECT "), list(", ", len(values), values...), word(" FROM " + from.name + " AS x0"),
		m.where(1, sc, " WHERE "), conflict, m.returning(t, true)}
}

func (m *maker) update(t *table, sc *scope) Node {
	set := list(", ", 1)
	used := map[string]bool{}
	for range 1 + m.r.IntN(2) {
		c := m.plainColumn(t)
		if used[c.name] {
			continue
		}
		used[c.name] = true
		set.items = append(set.items, seq{word(c.name + " = "), m.expr(c.kind, 2, sc)})
	}
	if t.key != nil && m.maybe(15) && t.strategy != "list" {
		// The row moves. Few meet: most keys are made distinct by what they were.
		c := t.key[len(t.key)-1]
		switch t.kindOf(c) {
		case integer, bigint:
			set.items = append(set.items, word(fmt.Sprintf("%s = %s.%s + %d", c, t.name, c, 10+m.r.IntN(3))))
		case timestamp:
			set.items = append(set.items, word(fmt.Sprintf("%s = %s.%s + interval '40 days'", c, t.name, c)))
		case text:
			set.items = append(set.items, word(fmt.Sprintf("%s = %s.%s || 'z'", c, t.name, c)))
		}
	}
	if m.maybe(15) {
		// FROM with one row for each at most: by the other's primary key.
		o := m.pickTable()
		if len(o.id) == 1 || o == t {
			on := list(" AND ", 0)
			for _, id := range o.id {
				here, ok := m.columnOf(o.kindOf(id), &scope{sources: sc.sources})
				if !ok {
					return seq{word("UPDATE " + t.name + " SET "), set, m.where(2, sc, " WHERE "), m.returning(t, true)}
				}
				if o == t {
					here = word(t.name + "." + id)
				}
				on.items = append(on.items, infix(word("o."+id), " = ", here))
			}
			on.min = len(on.items)
			both := &scope{sources: append(append([]source(nil), sc.sources...), source{alias: "o", columns: o.columns, table: o})}
			c := m.plainColumn(t)
			if !used[c.name] {
				set.items = append(set.items, seq{word(c.name + " = "), m.expr(c.kind, 1, both)})
			}
			return seq{word("UPDATE " + t.name + " SET "), set, word(" FROM " + o.name + " AS o WHERE "), on, m.where(1, both, " AND "), m.returning(t, true)}
		}
	}
	return seq{word("UPDATE " + t.name + " SET "), set, m.where(2, sc, " WHERE "), m.returning(t, true)}
}

func (m *maker) delete(t *table, sc *scope) Node {
	if m.maybe(25) {
		o := m.pickTable()
		using := source{alias: "o", columns: o.columns, table: o}
		both := &scope{sources: append(append([]source(nil), sc.sources...), using)}
		on := m.joinCondition(sc.sources, []source{using}, true)
		return seq{word("DELETE FROM " + t.name + " USING " + o.name + " AS o WHERE "), on, m.where(1, both, " AND "), m.returning(t, false)}
	}
	return seq{word("DELETE FROM " + t.name), m.where(2, sc, " WHERE "), m.returning(t, true)}
}
