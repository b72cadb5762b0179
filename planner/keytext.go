package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// What '2025-10-03' or '3.10.2025' is as a shard key depends on the session's TimeZone and DateStyle. PostgreSQL reads them: the
// session asks it, and writes what it says into the text, in a form that means the same everywhere.

// keyTexts collects the literals of one text that stand for shard keys and that the planner cannot read.
type keyTexts struct {
	sql   string
	words []PreparedWord
	seen  map[int]bool
}

// KeyTexts finds the literals of a statement that are compared with shard keys of a time type, or stored as such, and that the
// planner cannot read itself. [With] puts their values in their places.
func (p *Planner) KeyTexts(sql string, snap *shardmap.Snapshot, path []string) []PreparedWord {
	q := *p
	q.texts = &keyTexts{sql: sql, seen: map[int]bool{}}
	// The readings end in errors or not; what they have met counts.
	if st, err := q.Analyze(sql, snap, path); err == nil && st.Kind != plan.Several {
		_, _ = q.Several(sql, snap, path)
	}
	return q.texts.words
}

// askable reports whether a literal that the planner cannot read as type t is one to ask PostgreSQL for: a word for the
// time is read when the statement runs, and not before.
func askable(t keyspace.Type, text string, e *sqlstate.Error) bool {
	return plan.NotRead(t, e) && !HasTimeWord(text)
}

// anyTime is a value of a time type, so that the reading goes on to the other literals.
func anyTime(t keyspace.Type) keyspace.Value {
	v, _ := keyspace.ParseText(t, []byte("infinity"))
	return v
}

// note keeps a literal of type t.
func (k *keyTexts) note(src *sourceText, c *pg.A_Const, t keyspace.Type) {
	i, at := src.TokenAt(c.Location), k.place(src.SQL)
	if at < 0 || i < 0 {
		return
	}
	from, to := src.Tokens()[i].Start+at, src.Tokens()[src.StringEnd(i)].End+at
	if !k.seen[from] {
		k.seen[from] = true
		k.words = append(k.words, PreparedWord{from, to, plan.ReadBy(c.GetSval().GetSval(), t)})
	}
}

// place is where a text stands in the collector's: it is the whole, or what stands behind EXPLAIN; -1 for others, in which views
// were written out.
func (k *keyTexts) place(sql string) int {
	const blank = "; \t\r\n"
	sql = strings.TrimRight(sql, blank)
	whole := strings.TrimRight(k.sql, blank)
	if !strings.HasSuffix(whole, sql) {
		return -1
	}
	return len(whole) - len(sql)
}
