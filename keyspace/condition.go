package keyspace

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Condition returns the SQL condition that is true for the rows whose shard key
// the ownership has, and false for all others: [Ownership.Owns] for PostgreSQL and
// for SQLite shards. columns are SQL expressions of the shard key's columns, of
// the ownership's types; they are put in as they are, several times. Only built-in
// functions and operators are used, and nothing depends on a session's settings. The
// result stands in brackets. It is NULL only where a column is NULL, which no
// shard key is.
//
// It panics if there are not as many columns as types.
func Condition(o *Ownership, columns []string) string {
	if len(columns) != len(o.Types) {
		panic(fmt.Sprintf("keyspace: a condition on %d columns for a key of %d", len(columns), len(o.Types)))
	}
	c := condition{o: o, columns: columns}
	place := ""
	switch o.Strategy {
	case Hash:
		place = c.hashes()
	case Range:
		place = c.ranges()
	case List:
		place = c.among(o.Listed)
	}
	if elsewhere := c.among(o.PinnedElsewhere); place != "" && elsewhere != "" {
		place = "(NOT " + elsewhere + " AND " + place + ")"
	}
	pinned := c.among(o.Pinned)
	switch {
	case pinned == "" && place == "":
		return "(false)"
	case pinned == "":
		return place
	case place == "":
		return pinned
	}
	return "(" + pinned + " OR " + place + ")"
}

type condition struct {
	o       *Ownership
	columns []string
}

// bound is a place in the order of positions: left is the row's, right the bound's.
type bound struct{ left, right string }

func (b *bound) below() string { return b.left + " < " + b.right }

// span is an interval; nil is unbounded.
type span struct{ low, high *bound }

func (s *span) sql() string {
	switch {
	case s.low == nil && s.high == nil:
		return "true"
	case s.low == nil:
		return s.high.below()
	case s.high == nil:
		return s.low.left + " >= " + s.low.right
	}
	return s.low.left + " >= " + s.low.right + " AND " + s.high.below()
}

// hashes is the condition on the position in a hash keyspace, "" for no interval.
func (c *condition) hashes() string {
	at := KeyHashExpr(c.o.Types, c.columns, c.o.Seed)
	to := func(n int64) *bound { return &bound{at, "'" + strconv.FormatInt(n, 10) + "'::bigint"} }
	var spans []span
	for _, iv := range c.o.Intervals {
		if !iv.Last && iv.High <= iv.Low {
			continue
		}
		var s span
		if iv.Low != math.MinInt64 {
			s.low = to(iv.Low)
		}
		if !iv.Last {
			s.high = to(iv.High)
		}
		spans = append(spans, s)
	}
	return inSpans(spans)
}

// ranges is the condition on the key of a range keyspace, "" for no interval.
func (c *condition) ranges() string {
	// A bound of fewer columns than the key is before every key that begins with
	// it, so those columns alone decide.
	to := func(k Key) *bound {
		if len(k) == 0 {
			return nil
		}
		if len(k) == 1 {
			return &bound{c.column(0), literalOf(k[0])}
		}
		var left, right []string
		for i, v := range k {
			left, right = append(left, c.column(i)), append(right, literalOf(v))
		}
		return &bound{"(" + strings.Join(left, ", ") + ")", "(" + strings.Join(right, ", ") + ")"}
	}
	var spans []span
	for _, iv := range c.o.Intervals {
		spans = append(spans, span{to(iv.LowValues), to(iv.HighValues)})
	}
	return inSpans(spans)
}

// fewSpans are looked through one after the other, so that an index can be used.
const fewSpans = 4

// inSpans is true in one of the sorted, disjoint intervals, "" for none.
func inSpans(spans []span) string {
	if len(spans) == 0 {
		return ""
	}
	if len(spans) <= fewSpans {
		texts := make([]string, len(spans))
		for i := range spans {
			texts[i] = spans[i].sql()
		}
		if len(texts) == 1 {
			return "(" + texts[0] + ")"
		}
		return "((" + strings.Join(texts, ") OR (") + "))"
	}
	// By halves: the position is computed once for each step.
	half := len(spans) / 2
	return "(CASE WHEN " + spans[half].low.below() + " THEN " + inSpans(spans[:half]) + " ELSE " + inSpans(spans[half:]) + " END)"
}

// among is true for the keys given, "" for none. A text that no row can hold is left out.
func (c *condition) among(keys []Key) string {
	var texts []string
	for _, k := range keys {
		if !storable(k) {
			continue
		}
		if len(c.columns) == 1 {
			texts = append(texts, literalOf(k[0]))
			continue
		}
		each := make([]string, len(k))
		for i, v := range k {
			each[i] = c.column(i) + " = " + literalOf(v)
		}
		texts = append(texts, strings.Join(each, " AND "))
	}
	switch {
	case len(texts) == 0:
		return ""
	case len(c.columns) == 1:
		return "(" + c.column(0) + " IN (" + strings.Join(texts, ", ") + "))"
	}
	return "((" + strings.Join(texts, ") OR (") + "))"
}

// column is a column as it is compared: text as bytes.
func (c *condition) column(i int) string {
	switch col := c.columns[i]; c.o.Types[i] {
	case Text:
		return col + ` COLLATE pg_catalog."C"`
	case Varchar:
		return col + `::pg_catalog.text COLLATE pg_catalog."C"`
	default:
		return col
	}
}

// literalOf is a value as it is compared: a bound of integers need not fit the
// column's type, and nothing may cut a varchar.
func literalOf(v Value) string {
	switch {
	case v.typ.IsInteger():
		v.typ = Int8
	case v.typ == Varchar:
		v.typ = Text
	}
	return v.Literal()
}

// storable reports whether a row can have the key.
func storable(k Key) bool {
	for _, v := range k {
		if v.typ.IsText() && (strings.IndexByte(v.str, 0) >= 0 || !utf8.ValidString(v.str)) {
			return false
		}
	}
	return true
}
