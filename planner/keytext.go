package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
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
	if st, err := q.Analyze(sql, snap, path); err == nil && st.Kind != Several {
		_, _ = q.Several(sql, snap, path)
	}
	return q.texts.words
}

// askable reports whether a literal that the planner cannot read as type t is one to ask PostgreSQL for: a word for the
// time is read when the statement runs, and not before.
func askable(t keyspace.Type, text string, e *sqlstate.Error) bool {
	return e.Code == sqlstate.FeatureNotSupported && isTime(t) && !HasTimeWord(text)
}

func isTime(t keyspace.Type) bool {
	return t == keyspace.Date || t == keyspace.Timestamp || t == keyspace.Timestamptz
}

// KeyParam is a parameter, from 1, and an expression of the value that it has as a shard key, which PostgreSQL reads.
type KeyParam struct {
	Param int
	Expr  string
}

// KeyParams finds what KeyTexts does among an execution's parameters: those in text form that PostgreSQL takes for the type of
// the shard key, and that the planner cannot read itself. Each is there once.
func (s *Statement) KeyParams(args *Args) (list []KeyParam) {
	for i := range s.timeKeys {
		e := &s.timeKeys[i]
		raw, oid, format, err := e.bound(args)
		if err != nil || raw == nil || format != 0 {
			continue // eval says what is wrong
		}
		t := e.readAs()
		if oid != 0 && oid != oidUnknown && oid != t.OID() {
			continue // a text that is cast may be used as a text elsewhere
		}
		_, err = keyspace.ParseText(t, raw)
		known := slices.ContainsFunc(list, func(k KeyParam) bool { return k.Param == e.Param })
		if err == nil || known || !askable(t, string(raw), sqlstate.As(err)) {
			continue
		}
		list = append(list, KeyParam{e.Param, readBy(string(raw), t)})
	}
	return list
}

// readBy is an expression by which PostgreSQL reads a text as a value of a time type.
func readBy(text string, t keyspace.Type) string {
	return quoteString(text) + "::pg_catalog." + keyNames[t]
}

// anyTime is a value of a time type, so that the reading goes on to the other literals.
func anyTime(t keyspace.Type) keyspace.Value {
	v, _ := keyspace.ParseText(t, []byte("infinity"))
	return v
}

// note keeps a literal of type t.
func (k *keyTexts) note(a *analyzer, c *pg.A_Const, t keyspace.Type) {
	i, at := a.tokenAt(c.Location), k.place(a.sql)
	if at < 0 || i < 0 {
		return
	}
	tok := a.tokens()[i]
	tok.Start, tok.End = tok.Start+at, tok.End+at
	if !k.seen[tok.Start] {
		k.seen[tok.Start] = true
		k.words = append(k.words, PreparedWord{tok.Start, tok.End, readBy(c.GetSval().GetSval(), t)})
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

var keyNames = map[keyspace.Type]string{keyspace.Date: "date", keyspace.Timestamp: "timestamp", keyspace.Timestamptz: "timestamptz"}
