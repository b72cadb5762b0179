package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// kind is a type, as the grammar knows it.
type kind uint8

const (
	integer kind = iota
	bigint
	numeric
	text
	boolean
	date
	timestamp
	uuid
	kinds // how many
)

func (k kind) sql() string {
	return [...]string{"integer", "bigint", "numeric(10,2)", "text", "boolean", "date", "timestamp", "uuid"}[k]
}

type column struct {
	name string
	kind kind
}

// table is a table that statements are made over.
type table struct {
	name    string
	columns []column
	key     []string // shard key; nil: reference or whole
	id      []string // the primary key
	create  string   // options of CREATE TABLE
	rows    int
	world   int // tables of one world are meant to be joined
	// strategy is "hash", "range", "list", "reference" or "whole".
	strategy string
}

func (t *table) kindOf(name string) kind {
	for _, c := range t.columns {
		if c.name == name {
			return c.kind
		}
	}
	panic("no column " + name)
}

// keyspaces have bounds in the midst of the values that are drawn.
var keyspaces = []string{
	"SELECT cleave.create_keyspace('g_int', 'range', 'integer', bounds => ARRAY['0', '2', '3', '5'])",
	"SELECT cleave.create_keyspace('g_time', 'range', 'timestamp', bounds => ARRAY['2024-01-02 00:00:00', '2024-01-03 12:00:00'])",
	"SELECT cleave.create_keyspace('g_class', 'list', 'text', listed => ARRAY['a=shard-0', 'b=shard-1', 'c=shard-0', 'A=shard-1', '=shard-1'])",
}

var common = []column{{"i", integer}, {"j", integer}, {"g", bigint}, {"n", numeric}, {"t", text}, {"b", boolean}, {"d", date}, {"s", timestamp}}

// with returns key columns followed by some of the common ones.
func with(names string, keys ...column) []column {
	out := keys
	for _, c := range common {
		if strings.Contains(names, c.name) {
			out = append(out, c)
		}
	}
	return out
}

// tables are those of the three worlds, and what stands beside them.
func tables() []*table {
	k, id := column{"k", bigint}, column{"id", integer}
	return []*table{
		{name: "ha", world: 0, rows: 24, strategy: "hash", key: []string{"k"}, id: []string{"k", "id"}, columns: with("ijgntbds", k, id), create: "cleave.shard_key = 'k'"},
		{name: "hb", world: 0, rows: 18, strategy: "hash", key: []string{"k"}, id: []string{"k", "id"}, columns: with("ijntd", k, id), create: "cleave.shard_key = 'k'"},
		{name: "hc", world: 0, rows: 9, strategy: "hash", key: []string{"k"}, id: []string{"k"}, columns: with("itb", k), create: "cleave.shard_key = 'k'"},
		{name: "ta", world: 1, rows: 16, strategy: "hash", key: []string{"t"}, id: []string{"t", "id"}, columns: []column{{"t", text}, id, {"i", integer}, {"n", numeric}, {"g", bigint}, {"b", boolean}}, create: "cleave.shard_key = 't'"},
		{name: "ua", world: 1, rows: 14, strategy: "hash", key: []string{"u"}, id: []string{"u"}, columns: with("itsn", column{"u", uuid}), create: "cleave.shard_key = 'u'"},
		{name: "ca", world: 1, rows: 20, strategy: "hash", key: []string{"t", "g"}, id: []string{"t", "g"}, columns: []column{{"t", text}, {"g", bigint}, {"i", integer}, {"d", date}, {"b", boolean}}, create: "cleave.shard_key = 't, g'"},
		{name: "cb", world: 1, rows: 16, strategy: "hash", key: []string{"t", "g"}, id: []string{"t", "g", "id"}, columns: []column{{"t", text}, {"g", bigint}, id, {"j", integer}, {"n", numeric}}, create: "cleave.shard_key = 't, g'"},
		{name: "ra", world: 2, rows: 20, strategy: "range", key: []string{"i"}, id: []string{"i", "id"}, columns: []column{{"i", integer}, id, {"j", integer}, {"t", text}, {"n", numeric}, {"s", timestamp}}, create: "cleave.shard_key = 'i', cleave.keyspace = 'g_int'"},
		{name: "rb", world: 2, rows: 14, strategy: "range", key: []string{"i"}, id: []string{"i", "id"}, columns: []column{{"i", integer}, id, {"g", bigint}, {"b", boolean}}, create: "cleave.shard_key = 'i', cleave.keyspace = 'g_int'"},
		{name: "sa", world: 2, rows: 18, strategy: "range", key: []string{"s"}, id: []string{"s", "id"}, columns: []column{{"s", timestamp}, id, {"i", integer}, {"t", text}, {"d", date}}, create: "cleave.shard_key = 's', cleave.keyspace = 'g_time'"},
		{name: "la", world: 2, rows: 15, strategy: "list", key: []string{"t"}, id: []string{"t", "id"}, columns: []column{{"t", text}, id, {"i", integer}, {"n", numeric}, {"b", boolean}}, create: "cleave.shard_key = 't', cleave.keyspace = 'g_class'"},
		{name: "ref", world: -1, rows: 8, strategy: "reference", id: []string{"id"}, columns: with("itg", id), create: "cleave.reference = true"},
		{name: "whole", world: -1, rows: 8, strategy: "whole", id: []string{"id"}, columns: with("jtn", id)},
	}
}

// Schema returns the statements that make the tables: for the router, and for one
// plain database, with rows that the seed decides.
func Schema(seed uint64) (router, plain []string) {
	router = append(router, keyspaces...)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, t := range tables() {
		var b strings.Builder
		fmt.Fprintf(&b, "CREATE TABLE %s (", t.name)
		for _, c := range t.columns {
			fmt.Fprintf(&b, "%s %s, ", c.name, c.kind.sql())
		}
		fmt.Fprintf(&b, "PRIMARY KEY (%s))", strings.Join(t.id, ", "))
		plain = append(plain, b.String())
		if t.create != "" {
			fmt.Fprintf(&b, " WITH (%s)", t.create)
		}
		router = append(router, b.String())
		b.Reset()
		fmt.Fprintf(&b, "INSERT INTO %s VALUES ", t.name)
		for n := range t.rows {
			if n > 0 {
				b.WriteString(", ")
			}
			b.WriteString(t.row(r, false))
		}
		plain = append(plain, b.String()+" ON CONFLICT DO NOTHING")
	}
	return router, plain
}

// row is a row of literals; late ones do not meet the first rows' ids often.
func (t *table) row(r *rand.Rand, late bool) string {
	cells := make([]string, len(t.columns))
	for i, c := range t.columns {
		cells[i] = literal(r, c.kind)
		switch {
		case t.identifies(c.name) && c.name == "id":
			cells[i] = fmt.Sprint(r.IntN(5))
			if late {
				cells[i] = fmt.Sprint(3 + r.IntN(40))
			}
		case t.identifies(c.name) && t.strategy == "list":
			cells[i] = [...]string{"'a'", "'b'", "'c'", "'A'", "''"}[r.IntN(5)]
		case t.identifies(c.name):
		case r.IntN(4) == 0:
			cells[i] = "NULL"
		}
	}
	return "(" + strings.Join(cells, ", ") + ")"
}

func (t *table) identifies(name string) bool {
	for _, c := range t.id {
		if c == name {
			return true
		}
	}
	return false
}

// literal is one of few values of a type.
func literal(r *rand.Rand, k kind) string {
	switch k {
	case integer:
		return [...]string{"0", "1", "2", "3", "4", "-1", "5", "2"}[r.IntN(8)]
	case bigint:
		return [...]string{"0", "1", "2", "3", "4", "7", "-1", "5000000000"}[r.IntN(8)]
	case numeric:
		return [...]string{"0.00", "1.50", "2.00", "-1.25", "3.00", "10.10"}[r.IntN(6)]
	case text:
		return [...]string{"'a'", "'b'", "'ab'", "'A'", "''", "'c'", "'b c'", "'é'"}[r.IntN(8)]
	case boolean:
		return [...]string{"true", "false"}[r.IntN(2)]
	case date:
		return [...]string{"'2024-01-01'", "'2024-01-02'", "'2024-01-03'", "'2024-02-29'"}[r.IntN(4)]
	case timestamp:
		return [...]string{"'2024-01-01 00:00:00'", "'2024-01-02 00:00:00'", "'2024-01-02 12:30:00'", "'2024-01-03 12:00:00'", "'2024-02-29 23:59:59.5'"}[r.IntN(5)]
	}
	return fmt.Sprintf("'%x0000000-0000-0000-0000-00000000000%d'", r.IntN(5)*3, r.IntN(3))
}
