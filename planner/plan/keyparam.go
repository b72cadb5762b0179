package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// KeyParam is a parameter, from 1, and expressions of the values that it has as a shard key, which PostgreSQL reads: one, or those of
// some of an array's elements.
type KeyParam struct {
	Param int
	Exprs []string

	array []byte   // as it was bound
	spans [][2]int // the elements' places in it
}

// KeyParams finds what the planner's KeyTexts does among an execution's parameters, and among the elements of those that are arrays: those in text form
// that PostgreSQL takes for the type of the shard key, and that the planner cannot read itself. Each is there once.
// special says which texts are special date/time inputs, which are read when the statement runs, and not before.
func (s *Statement) KeyParams(args *Args, special func(text string) bool) (list []KeyParam) {
	if s.Kind == ExplainRoute && s.Inner != nil {
		return s.Inner.KeyParams(args, special)
	}
	for i := range s.TimeKeys {
		e := &s.TimeKeys[i]
		raw, oid, format, err := e.bound(args)
		if err != nil || raw == nil || !e.readsText(oid, format) || slices.ContainsFunc(list, func(k KeyParam) bool { return k.Param == e.Param }) {
			continue // eval says what is wrong
		}
		k := KeyParam{Param: e.Param}
		if e.Array {
			k.elements(raw, e.ReadAs(), special)
		} else {
			k.add(raw, e.ReadAs(), special)
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
	case e.Cast != 0 && (oid == pgoid.Text || oid == pgoid.Varchar):
		return !e.Strict
	case format != 0:
		return false
	case e.Array:
		return oid == 0 || oid == pgoid.Unknown || arrayOIDs[oid] == e.ReadAs().OID()
	}
	return oid == 0 || oid == pgoid.Unknown || oid == e.ReadAs().OID()
}

// add reports whether a text is one to ask PostgreSQL for.
func (k *KeyParam) add(text []byte, t keyspace.Type, special func(string) bool) bool {
	_, err := keyspace.ParseText(t, text)
	if err == nil || !NotRead(t, sqlstate.As(err)) || special(string(text)) {
		return false
	}
	k.Exprs = append(k.Exprs, ReadBy(string(text), t))
	return true
}

func (k *KeyParam) elements(raw []byte, t keyspace.Type, special func(string) bool) {
	values, spans, err := textElements(raw)
	if err != nil {
		return // elements says what is wrong
	}
	for i, v := range values {
		if v != nil && k.add(v, t, special) {
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

// NotRead reports whether an error says that the router does not read a text of a type of times, which PostgreSQL may read.
func NotRead(t keyspace.Type, e *sqlstate.Error) bool {
	return e.Code == sqlstate.FeatureNotSupported && keytype.IsTime(t)
}

// ReadBy is an expression by which PostgreSQL reads a text as a value of a time type.
func ReadBy(text string, t keyspace.Type) string {
	return sqltext.QuoteString(text) + "::pg_catalog." + keyNames[t]
}

var keyNames = map[keyspace.Type]string{keyspace.Date: "date", keyspace.Timestamp: "timestamp", keyspace.Timestamptz: "timestamptz"}
