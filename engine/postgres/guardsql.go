package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// How a guard's function decides. All that the shard owns stands in it as
// constant, sorted arrays, one for each key column, which the planner reads
// once for each session. width_bucket finds by binary search how many elements
// are <= a value; for keys of several columns it is asked again within the run
// of equal first columns, and so on. The number n found for the sorted bounds
// low1, high1, low2, high2, ... is odd exactly inside an interval.

// sqlType is how a key type is spelled and searched in a guard.
type sqlType struct {
	name string // of the array's elements, qualified
	min  string // its smallest value, which completes a bound that is a prefix
	// cast follows a column where it is compared: integers compare as bigint,
	// since a bound need not fit a smaller type, and text as bytes.
	cast string
	// wide types have elements of different lengths.
	wide bool
}

const (
	asBigint = "::pg_catalog.int8"
	asBytes  = `::pg_catalog.text COLLATE pg_catalog."C"`
)

var sqlTypes = map[keyspace.Type]sqlType{
	keyspace.Int2:        {"pg_catalog.int8", "-9223372036854775808", asBigint, false},
	keyspace.Int4:        {"pg_catalog.int8", "-9223372036854775808", asBigint, false},
	keyspace.Int8:        {"pg_catalog.int8", "-9223372036854775808", "", false},
	keyspace.Text:        {"pg_catalog.text", "", asBytes, true},
	keyspace.Varchar:     {"pg_catalog.text", "", asBytes, true},
	keyspace.UUID:        {"pg_catalog.uuid", "00000000-0000-0000-0000-000000000000", "", false},
	keyspace.Date:        {"pg_catalog.date", "-infinity", "", false},
	keyspace.Timestamp:   {"pg_catalog.timestamp", "-infinity", "", false},
	keyspace.Timestamptz: {"pg_catalog.timestamptz", "-infinity", "", false},
	keyspace.Bytea:       {"pg_catalog.bytea", `\x`, "", true},
	keyspace.Bool:        {"pg_catalog.bool", "f", "", false},
}

// keySet is a sorted set of keys of full width, as texts by column.
type keySet struct {
	types []sqlType
	cols  [][]string // cols[i][j] is column i of key j
}

func (s *keySet) len() int { return len(s.cols[0]) }

func newKeySet(types []keyspace.Type) *keySet {
	found := make([]sqlType, len(types))
	for i, t := range types {
		found[i] = sqlTypes[t]
	}
	return newKeySetOf(found)
}

func newKeySetOf(types []sqlType) *keySet {
	return &keySet{types: types, cols: make([][]string, len(types))}
}

// add appends a key or, completed with the smallest values, a prefix of one.
func (s *keySet) add(k keyspace.Key) {
	for i := range s.cols {
		text := s.types[i].min
		if i < len(k) {
			text = k[i].Text()
		}
		s.cols[i] = append(s.cols[i], text)
	}
}

// array returns elements [from, to) of column i as a constant.
func (s *keySet) array(i, from, to int) string {
	var b strings.Builder
	b.WriteByte('{')
	for j, text := range s.cols[i][from:to] {
		if j > 0 {
			b.WriteByte(',')
		}
		if plainElement(text) {
			b.WriteString(text)
			continue
		}
		b.WriteByte('"')
		b.WriteString(elementEscape.Replace(text))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return literal(b.String()) + "::" + s.types[i].name + "[]"
}

var elementEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// plainElement reports whether an array element needs no quotes: numbers.
func plainElement(s string) bool {
	for i := 0; i < len(s); i++ {
		if (s[i] < '0' || s[i] > '9') && (s[i] != '-' || i > 0 || len(s) == 1) {
			return false
		}
	}
	return s != ""
}

// runs returns for each key the number of keys before the first one that is
// equal to it in columns 0..i.
func (s *keySet) runs(i int) string {
	var b strings.Builder
	b.WriteString("'{")
	start := 0
	for j := range s.cols[0] {
		if j > 0 {
			b.WriteByte(',')
			for c := 0; c <= i; c++ {
				if s.cols[c][j] != s.cols[c][j-1] {
					start = j
					break
				}
			}
		}
		b.WriteString(strconv.Itoa(start))
	}
	b.WriteString("}'::pg_catalog.int4[]")
	return b.String()
}

// rank writes statements that set n to the number of keys <= the row's key, and
// with member also own to true if one is equal (else own is left alone).
func (s *keySet) rank(b *strings.Builder, exprs []string, member bool) {
	if s.chunked() {
		s.rankInChunks(b, exprs[0], member && len(exprs) == 1)
		if len(exprs) == 1 {
			return
		}
	} else {
		fmt.Fprintf(b, "n := pg_catalog.width_bucket(%s, %s);\n", exprs[0], s.array(0, 0, s.len()))
	}
	lower := "0"
	depth := 0
	for i := 1; i < len(exprs); i++ {
		fmt.Fprintf(b, "IF %s (%s)[n] = %s THEN\n", above(lower), s.array(i-1, 0, s.len()), exprs[i-1])
		fmt.Fprintf(b, "lo := (%s)[n];\n", s.runs(i-1))
		fmt.Fprintf(b, "n := lo + pg_catalog.width_bucket(%s, (%s)[lo + 1 : n]);\n", exprs[i], s.array(i, 0, s.len()))
		lower = "lo"
		depth++
	}
	if member {
		last := len(exprs) - 1
		fmt.Fprintf(b, "IF %s (%s)[n] = %s THEN own := true; END IF;\n", above(lower), s.array(last, 0, s.len()), exprs[last])
	}
	b.WriteString(strings.Repeat("END IF;\n", depth))
}

// Elements of text and bytea arrays have no fixed width: width_bucket walks to
// its place, 7 ns an element. So that a guard of many ranges stays cheap, long
// arrays are cut into chunks of chunkLen, found through an array of their first
// elements.
const (
	chunkMin = 96
	chunkLen = 32
)

// chunked reports whether the first column is searched in chunks.
func (s *keySet) chunked() bool { return s.types[0].wide && s.len() > chunkMin }

// rankInChunks writes what rank does for the first column; with member it sets
// own instead of n.
func (s *keySet) rankInChunks(b *strings.Builder, expr string, member bool) {
	first := newKeySetOf(s.types[:1])
	for j := 0; j < s.len(); j += chunkLen {
		first.cols[0] = append(first.cols[0], s.cols[0][j])
	}
	fmt.Fprintf(b, "n := pg_catalog.width_bucket(%s, %s);\nIF n > 0 THEN\n", expr, first.array(0, 0, first.len()))
	var choose func(low, high int) // chunk numbers, from 1, both included
	choose = func(low, high int) {
		if low == high {
			from := (low - 1) * chunkLen
			chunk := s.array(0, from, min(from+chunkLen, s.len()))
			if member {
				fmt.Fprintf(b, "own := %s = ANY (%s);\n", expr, chunk)
			} else {
				fmt.Fprintf(b, "n := %d + pg_catalog.width_bucket(%s, %s);\n", from, expr, chunk)
			}
			return
		}
		middle := (low + high) / 2
		fmt.Fprintf(b, "IF n < %d THEN\n", middle+1)
		choose(low, middle)
		b.WriteString("ELSE\n")
		choose(middle+1, high)
		b.WriteString("END IF;\n")
	}
	choose(1, first.len())
	b.WriteString("END IF;\n")
}

// above keeps a found place within its run. Element 0 of an array is NULL, so
// the first column needs no test.
func above(lower string) string {
	if lower == "0" {
		return ""
	}
	return "n > " + lower + " AND"
}

// has returns an expression that is true if the row's one-column key is in s.
func (s *keySet) has(expr string) string {
	return fmt.Sprintf("(%s)[pg_catalog.width_bucket(%s, %s)] = %s", s.array(0, 0, s.len()), expr, s.array(0, 0, s.len()), expr)
}

// guardSQL makes the bodies of one guard's functions.
type guardSQL struct {
	g       engine.Guard
	refusal engine.Refusal
	mover   string  // the role that passes, if it writes past triggers
	bounds  *keySet // range: low1, high1, ...
	hashes  []int64 // hash: the same
	// flip is set if the first interval has no lower bound: then even ranks are inside.
	flip                   bool
	listed, pinned, absent *keySet
}

func newGuardSQL(g engine.Guard, mover string) (*guardSQL, error) {
	o := g.Owned
	s := &guardSQL{g: g, mover: mover, refusal: engine.Refusal{Keyspace: o.Keyspace, Epoch: o.Epoch}}
	if len(g.ShardKey) == 0 {
		return s, nil
	}
	if len(g.ShardKey) != len(o.Types) {
		return nil, sqlstate.New(sqlstate.InternalError, "a guard with %d shard key columns for %d types", len(g.ShardKey), len(o.Types))
	}
	for _, t := range o.Types {
		if _, ok := sqlTypes[t]; !ok {
			return nil, sqlstate.New(sqlstate.InternalError, "a guard cannot have shard key type %d", t)
		}
	}
	s.pinned, s.absent = newKeySet(o.Types), newKeySet(o.Types)
	for _, part := range []struct {
		keys []keyspace.Key
		set  *keySet
	}{{o.Pinned, s.pinned}, {o.PinnedElsewhere, s.absent}} {
		if err := addKeys(part.set, part.keys, o.Types); err != nil {
			return nil, err
		}
	}
	switch o.Strategy {
	case keyspace.Hash:
		return s, s.hashBounds()
	case keyspace.Range:
		return s, s.rangeBounds()
	case keyspace.List:
		s.listed = newKeySet(o.Types)
		return s, addKeys(s.listed, o.Listed, o.Types)
	}
	return nil, sqlstate.New(sqlstate.InternalError, "a guard for the unknown strategy %q", o.Strategy)
}

// addKeys sorts keys, whose order is not promised, into the set.
func addKeys(set *keySet, keys []keyspace.Key, types []keyspace.Type) error {
	sorted := sortKeys(keys)
	for _, k := range sorted {
		for _, v := range k {
			if v.Type().IsText() && (!utf8.ValidString(v.Bytes()) || strings.IndexByte(v.Bytes(), 0) >= 0) {
				return sqlstate.New(sqlstate.CharacterNotInRepertoire, "a key of the keyspace is not a text that the shard can hold")
			}
		}
		if len(k) != len(types) {
			return sqlstate.New(sqlstate.InternalError, "a key of %d columns in a keyspace of %d", len(k), len(types))
		}
		set.add(k)
	}
	return nil
}

var errUnsorted = sqlstate.New(sqlstate.InternalError, "the intervals of a guard are not sorted and disjoint")

func (s *guardSQL) hashBounds() error {
	for i, v := range s.g.Owned.Intervals {
		if n := len(s.hashes); n > 0 && v.Low < s.hashes[n-1] || i > 0 && s.g.Owned.Intervals[i-1].Last {
			return errUnsorted
		}
		s.hashes = append(s.hashes, v.Low)
		if v.Last {
			continue
		}
		if v.High < v.Low {
			return errUnsorted
		}
		s.hashes = append(s.hashes, v.High)
	}
	return nil
}

func (s *guardSQL) rangeBounds() error {
	s.bounds = newKeySet(s.g.Owned.Types)
	var last string
	for i, v := range s.g.Owned.Intervals {
		if i > 0 && (v.LowKey < last || s.g.Owned.Intervals[i-1].Last || v.LowKey == "") {
			return errUnsorted
		}
		if v.LowKey == "" && len(v.LowValues) == 0 {
			s.flip = true
		} else {
			s.bounds.add(v.LowValues)
		}
		if v.Last {
			continue
		}
		if v.HighKey < v.LowKey || len(v.HighValues) == 0 {
			return errUnsorted
		}
		last = v.HighKey
		s.bounds.add(v.HighValues)
	}
	return nil
}

// columns returns the row's key columns as they are compared.
func (s *guardSQL) columns(row string) []string {
	out := make([]string, len(s.g.ShardKey))
	for i, name := range s.g.ShardKey {
		out[i] = row + "." + quoteName(name) + sqlTypes[s.g.Owned.Types[i]].cast
	}
	return out
}

func (s *guardSQL) plain(row string) []string {
	out := make([]string, len(s.g.ShardKey))
	for i, name := range s.g.ShardKey {
		out[i] = row + "." + quoteName(name)
	}
	return out
}

func (s *guardSQL) hash(row string) string {
	return keyspace.KeyHashExpr(s.g.Owned.Types, s.plain(row), s.g.Owned.Seed)
}

// place returns an expression of the row's position, for the error's detail.
func (s *guardSQL) place(row string) string {
	if s.g.Owned.Strategy == keyspace.Hash {
		return "(" + s.hash(row) + ")::pg_catalog.text"
	}
	texts := make([]string, len(s.g.ShardKey))
	for i, c := range s.plain(row) {
		texts[i] = "(" + c + ")::pg_catalog.text"
	}
	return "pg_catalog.concat_ws(', ', " + strings.Join(texts, ", ") + ")"
}

// base returns the expression for a key without pins when it is one expression.
func (s *guardSQL) base(row string) (string, bool) {
	nulls := make([]string, len(s.g.ShardKey))
	for i, c := range s.plain(row) {
		nulls[i] = c + " IS NOT NULL"
	}
	all := "(" + strings.Join(nulls, " AND ") + ")"
	odd := func(n string, flip bool) string {
		want := "1"
		if flip {
			want = "0"
		}
		return fmt.Sprintf("(%s & 1) = %s", n, want)
	}
	cols := s.columns(row)
	switch s.g.Owned.Strategy {
	case keyspace.Hash:
		if len(s.hashes) == 0 {
			return "false", true
		}
		texts := make([]string, len(s.hashes))
		for i, h := range s.hashes {
			texts[i] = strconv.FormatInt(h, 10)
		}
		expr := odd(fmt.Sprintf("pg_catalog.width_bucket(%s, '{%s}'::pg_catalog.int8[])", s.hash(row), strings.Join(texts, ",")), false)
		// The hash of a NULL is NULL, and so is what is chained to it, except
		// for the types that are hashed as a row.
		if slices.Contains(s.g.Owned.Types, keyspace.Date) || slices.Contains(s.g.Owned.Types, keyspace.Bytea) {
			expr = all + " AND " + expr
		}
		return expr, true
	case keyspace.Range:
		if s.bounds.len() == 0 {
			if s.flip {
				return all, true
			}
			return "false", true
		}
		if len(cols) == 1 && !s.bounds.chunked() {
			return odd(fmt.Sprintf("pg_catalog.width_bucket(%s, %s)", cols[0], s.bounds.array(0, 0, s.bounds.len())), s.flip), true
		}
		return all + " AND " + odd("n", s.flip), false
	default:
		if s.listed.len() == 0 {
			return "false", true
		}
		if len(cols) == 1 && !s.listed.chunked() {
			return s.listed.has(cols[0]), true
		}
		return "own", false
	}
}

// check writes what refuses the row (NEW or OLD) if it is not owned.
func (s *guardSQL) check(b *strings.Builder, row string) {
	cols := s.columns(row)
	base, simple := s.base(row)
	oneColumn := len(cols) == 1 && !s.pinned.chunked() && !s.absent.chunked()
	if simple && (oneColumn || s.pinned.len()+s.absent.len() == 0) {
		// One expression, the common case: most of a guard's cost is in the
		// number of statements it runs.
		expr := base
		if s.absent.len() > 0 {
			expr = fmt.Sprintf("CASE WHEN %s THEN false ELSE %s END", s.absent.has(cols[0]), expr)
		}
		if s.pinned.len() > 0 {
			expr = fmt.Sprintf("CASE WHEN %s THEN true ELSE %s END", s.pinned.has(cols[0]), expr)
		}
		fmt.Fprintf(b, "IF (%s) IS NOT TRUE THEN\n", expr)
		s.refuse(b, row)
		b.WriteString("END IF;\n")
		return
	}
	b.WriteString("own := false;\n")
	if s.pinned.len() > 0 {
		s.pinned.rank(b, cols, true)
	}
	b.WriteString("IF NOT own THEN\n")
	decide := func() {
		switch {
		case simple:
			fmt.Fprintf(b, "own := %s;\n", base)
		case s.g.Owned.Strategy == keyspace.Range:
			s.bounds.rank(b, cols, false)
			fmt.Fprintf(b, "own := %s;\n", base)
		default:
			s.listed.rank(b, cols, true)
		}
	}
	if s.absent.len() > 0 {
		s.absent.rank(b, cols, true)
		b.WriteString("IF own THEN own := false; ELSE\n")
		decide()
		b.WriteString("END IF;\n")
	} else {
		decide()
	}
	b.WriteString("END IF;\nIF own IS NOT TRUE THEN\n")
	s.refuse(b, row)
	b.WriteString("END IF;\n")
}

// refuse writes the error for the row. A new row with a NULL in its key gets
// the error of a NOT NULL column, which this trigger would otherwise hide.
func (s *guardSQL) refuse(b *strings.Builder, row string) {
	b.WriteString("IF NOT (" + s.passes() + ") THEN\n")
	defer b.WriteString("END IF;\n")
	if row == "NEW" {
		for i, c := range s.plain(row) {
			fmt.Fprintf(b, `IF %s IS NULL THEN RAISE EXCEPTION USING ERRCODE := '23502',
MESSAGE := pg_catalog.format('null value in column "%%s" of relation "%%s" violates not-null constraint', %s, TG_TABLE_NAME),
DETAIL := 'A shard key cannot be NULL.', SCHEMA := TG_TABLE_SCHEMA, TABLE := TG_TABLE_NAME, COLUMN := %s; END IF;
`, c, literal(s.g.ShardKey[i]), literal(s.g.ShardKey[i]))
		}
	}
	fmt.Fprintf(b, "RAISE EXCEPTION USING ERRCODE := %s, MESSAGE := %s, DETAIL := %s || COALESCE(%s, 'NULL'), HINT := %s, SCHEMA := TG_TABLE_SCHEMA, TABLE := TG_TABLE_NAME;\n",
		literal(string(sqlstate.NotOwner)), literal(engine.RefusalMessage), literal(s.refusal.Detail()+", position "), s.place(row), literal(engine.RefusalHint))
}

// passes is the condition that the mover writes: who logged in cannot be changed by SQL (SET SESSION AUTHORIZATION is a superuser's).
// It is asked after the row was found not to be owned, so that it costs others nothing.
func (s *guardSQL) passes() string {
	return "session_user OPERATOR(pg_catalog.=) " + literal(s.mover) + "::pg_catalog.name AND pg_catalog.current_setting('session_replication_role') OPERATOR(pg_catalog.=) 'replica'"
}

// said is the condition that the session has said an epoch with which it may write.
func (s *guardSQL) said() string {
	is, has := engine.Said(engine.Saying{Keyspace: s.g.Owned.Keyspace, Epoch: s.g.Owned.Epoch})
	list, entries := literal(is), []string{has}
	if s.g.Also > 0 {
		is, has = engine.Said(engine.Saying{Keyspace: s.g.Owned.Keyspace, Epoch: s.g.Also})
		list, entries = list+", "+literal(is), append(entries, has)
	}
	const setting = "pg_catalog.current_setting('" + engine.EpochSetting + "', true)"
	said := setting + " IN (" + list + ")"
	for _, e := range entries {
		said += " OR pg_catalog.strpos(" + setting + ", " + literal(e) + ") OPERATOR(pg_catalog.>) 0"
	}
	return said
}

// also stands before the other epoch in a guard's comment.
const also = ", also "

// owns follows the detail in a guard's comment. It reads as a position, so that programs which do not know it read the rest.
const owns = ", position in "

// comment is what the catalogue keeps of the guard, in words: its detail, the other epoch with which rows may be changed, and
// what the shard owns.
func (s *guardSQL) comment() string {
	text := s.refusal.Detail()
	if s.g.Also > 0 {
		text += also + strconv.FormatUint(s.g.Also, 10)
	}
	if len(s.g.ShardKey) > 0 {
		text += owns + s.g.Owned.Encode()
	}
	return text
}

// parseComment reads what comment wrote; nil for anything else.
func parseComment(text string) *engine.GuardState {
	g := &engine.GuardState{}
	if at := strings.LastIndex(text, also); at >= 0 {
		if n, err := strconv.ParseUint(text[at+len(also):], 10, 64); err == nil {
			text, g.Also = text[:at], n
		}
	}
	r, ok := engine.ParseRefusal(&sqlstate.Error{Code: sqlstate.NotOwner, Detail: text})
	if !ok {
		return nil
	}
	g.Keyspace, g.Epoch = r.Keyspace, r.Epoch
	if is, ok := strings.CutPrefix(", position "+r.Position, owns); ok {
		g.Owns = is
	}
	return g
}

// rows returns the body of the row trigger's function.
func (s *guardSQL) rows() string {
	var b strings.Builder
	if len(s.g.ShardKey) == 0 {
		b.WriteString("BEGIN\n")
		if s.g.Owned.Epoch > 0 {
			b.WriteString("IF " + s.said() + " THEN\nIF TG_OP = 'DELETE' THEN RETURN OLD; END IF;\nRETURN NEW;\nEND IF;\n")
		}
		s.refuseAll(&b, engine.RefusalReadOnly)
		b.WriteString("IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;\nRETURN NEW;\nEND")
		return protect(b.String())
	}
	b.WriteString("DECLARE\nn pg_catalog.int4;\nlo pg_catalog.int4;\nown pg_catalog.bool;\nBEGIN\nIF TG_OP <> 'DELETE' THEN\n")
	s.check(&b, "NEW")
	same := make([]string, len(s.g.ShardKey))
	olds, news := s.columns("OLD"), s.columns("NEW")
	for i := range same {
		same[i] = olds[i] + " = " + news[i]
	}
	fmt.Fprintf(&b, "IF TG_OP = 'INSERT' OR (%s) THEN RETURN NEW; END IF;\nEND IF;\n", strings.Join(same, " AND "))
	s.check(&b, "OLD")
	b.WriteString("IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;\nRETURN NEW;\nEND")
	return protect(b.String())
}

// truncate returns the body of the TRUNCATE trigger's function.
func (s *guardSQL) truncate() string {
	var b strings.Builder
	b.WriteString("BEGIN\n")
	if len(s.g.ShardKey) > 0 || s.g.Owned.Epoch > 0 {
		b.WriteString("IF " + s.said() + " THEN RETURN NULL; END IF;\n")
	}
	s.refuseAll(&b, engine.RefusalTruncate)
	b.WriteString("RETURN NULL;\nEND")
	return protect(b.String())
}

func (s *guardSQL) refuseAll(b *strings.Builder, message string) {
	fmt.Fprintf(b, "IF NOT (%s) THEN\nRAISE EXCEPTION USING ERRCODE := %s, MESSAGE := %s, DETAIL := %s, HINT := %s, SCHEMA := TG_TABLE_SCHEMA, TABLE := TG_TABLE_NAME;\nEND IF;\n",
		s.passes(), literal(string(sqlstate.NotOwner)), literal(message), literal(s.refusal.Detail()), literal(engine.RefusalHint))
}
