package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/sqltext"
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
	return e.Code == sqlstate.FeatureNotSupported && keytype.IsTime(t) && !HasTimeWord(text)
}

// KeyParam is a parameter, from 1, and expressions of the values that it has as a shard key, which PostgreSQL reads: one, or those of
// some of an array's elements.
type KeyParam struct {
	Param int
	Exprs []string

	array []byte   // as it was bound
	spans [][2]int // the elements' places in it
}

// KeyParams finds what KeyTexts does among an execution's parameters, and among the elements of those that are arrays: those in text form
// that PostgreSQL takes for the type of the shard key, and that the planner cannot read itself. Each is there once.
func (s *Statement) KeyParams(args *Args) (list []KeyParam) {
	if s.Kind == ExplainRoute && s.Inner != nil {
		return s.Inner.KeyParams(args)
	}
	for i := range s.timeKeys {
		e := &s.timeKeys[i]
		raw, oid, format, err := e.bound(args)
		if err != nil || raw == nil || !e.readsText(oid, format) || slices.ContainsFunc(list, func(k KeyParam) bool { return k.Param == e.Param }) {
			continue // eval says what is wrong
		}
		k := KeyParam{Param: e.Param}
		if e.Array {
			k.elements(raw, e.readAs())
		} else {
			k.add(raw, e.readAs())
		}
		if len(k.Exprs) > 0 {
			list = append(list, k)
		}
	}
	return list
}

// readsText reports whether a parameter of a time type has a text that PostgreSQL reads as one. A parameter of type text that is cast
// is one, if the statement has no other use for it: it is written anew.
func (e *KeyExpr) readsText(oid uint32, format int16) bool {
	switch {
	case e.Cast != 0 && (oid == oidText || oid == oidVarchar):
		return !e.Strict
	case format != 0:
		return false
	case e.Array:
		return oid == 0 || oid == oidUnknown || arrayOIDs[oid] == e.readAs().OID()
	}
	return oid == 0 || oid == oidUnknown || oid == e.readAs().OID()
}

// add reports whether a text is one to ask PostgreSQL for.
func (k *KeyParam) add(text []byte, t keyspace.Type) bool {
	_, err := keyspace.ParseText(t, text)
	if err == nil || !askable(t, string(text), sqlstate.As(err)) {
		return false
	}
	k.Exprs = append(k.Exprs, readBy(string(text), t))
	return true
}

func (k *KeyParam) elements(raw []byte, t keyspace.Type) {
	values, spans, err := textElements(raw)
	if err != nil {
		return // elements says what is wrong
	}
	for i, v := range values {
		if v != nil && k.add(v, t) {
			k.spans = append(k.spans, spans[i])
		}
	}
	k.array = raw
}

// With is the parameter with the values of its expressions, which have no quotes and no backslashes.
func (k *KeyParam) With(values []string) []byte {
	if k.array == nil {
		return []byte(values[0])
	}
	var b []byte
	at := 0
	for i, s := range k.spans {
		b = append(append(append(append(b, k.array[at:s[0]]...), '"'), values[i]...), '"')
		at = s[1]
	}
	return append(b, k.array[at:]...)
}

// readBy is an expression by which PostgreSQL reads a text as a value of a time type.
func readBy(text string, t keyspace.Type) string {
	return sqltext.QuoteString(text) + "::pg_catalog." + keyNames[t]
}

// anyTime is a value of a time type, so that the reading goes on to the other literals.
func anyTime(t keyspace.Type) keyspace.Value {
	v, _ := keyspace.ParseText(t, []byte("infinity"))
	return v
}

// note keeps a literal of type t.
func (k *keyTexts) note(src *sourceText, c *pg.A_Const, t keyspace.Type) {
	i, at := src.tokenAt(c.Location), k.place(src.sql)
	if at < 0 || i < 0 {
		return
	}
	from, to := src.tokens()[i].Start+at, src.tokens()[src.stringEnd(i)].End+at
	if !k.seen[from] {
		k.seen[from] = true
		k.words = append(k.words, PreparedWord{from, to, readBy(c.GetSval().GetSval(), t)})
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
