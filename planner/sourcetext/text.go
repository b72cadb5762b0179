// Package sourcetext is the text of a statement beside its tree: its tokens, and where in it stands what the tree has.
package sourcetext

import (
	"sort"
	"strings"
	"unicode/utf8"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/sqlstate"
)

// Text is the text of the statement: its tokens, and where in it stands what the tree has.
type Text struct {
	// SQL is the text.
	SQL  string
	toks []sqlguard.Token // see Tokens
	// counted is up to where Position has counted the characters.
	counted struct{ bytes, runes int }
}

// Tokens are those of the text.
func (src *Text) Tokens() []sqlguard.Token {
	if src.toks == nil {
		src.toks = sqlguard.Tokens(src.SQL)
	}
	return src.toks
}

// TokenAt returns the index of the token that begins at a byte, -1 if there is none.
func (src *Text) TokenAt(offset int32) int {
	ts := src.Tokens()
	i := sort.Search(len(ts), func(i int) bool { return ts[i].Start >= int(offset) })
	if i < len(ts) && ts[i].Start == int(offset) {
		return i
	}
	return -1
}

// Punct reports whether token i is the mark c.
func (src *Text) Punct(i int, c byte) bool {
	ts := src.Tokens()
	return i >= 0 && i < len(ts) && ts[i].IsPunct(src.SQL, c)
}

// Word reports whether token i is the word w, in any case.
func (src *Text) Word(i int, w string) bool {
	ts := src.Tokens()
	return i >= 0 && i < len(ts) && ts[i].Is(src.SQL, w)
}

// Closing returns the index of the bracket that closes the one at i.
func (src *Text) Closing(i int) int {
	ts := src.Tokens()
	for d := 0; i < len(ts); i++ {
		if ts[i].Kind != sqlguard.Punct {
			continue
		}
		switch src.SQL[ts[i].Start] {
		case '(', '[':
			d++
		case ')', ']':
			if d--; d == 0 {
				return i
			}
		}
	}
	return LostPlace()
}

// Position turns a byte offset into a 1-based character position.
func (src *Text) Position(offset int32) int {
	if offset < 0 || int(offset) > len(src.SQL) {
		return 0
	}
	// Counted from the place before, so that a long statement is not counted whole for each of its literals.
	if int(offset) < src.counted.bytes {
		src.counted.bytes, src.counted.runes = 0, 0
	}
	src.counted.runes += utf8.RuneCountInString(src.SQL[src.counted.bytes:offset])
	src.counted.bytes = int(offset)
	return src.counted.runes + 1
}

// Depth is how many brackets a token is in.
func (src *Text) Depth(at int) int {
	d := 0
	for i := range at {
		switch {
		case src.Punct(i, '(') || src.Punct(i, '['):
			d++
		case src.Punct(i, ')') || src.Punct(i, ']'):
			d--
		}
	}
	return d
}

// Top returns the tokens of the statement, and for each whether it is outside
// of all brackets.
func (src *Text) Top() ([]sqlguard.Token, []int) {
	ts := sqlguard.Tokens(src.SQL)
	depth := make([]int, len(ts))
	d := 0
	for i, t := range ts {
		if t.Kind == sqlguard.Punct {
			switch src.SQL[t.Start] {
			case ')', ']':
				d--
			}
		}
		depth[i] = d
		if t.Kind == sqlguard.Punct {
			switch src.SQL[t.Start] {
			case '(', '[':
				d++
			}
		}
	}
	return ts, depth
}

// After returns the text from token i on, without a semicolon at the end.
func (src *Text) After(ts []sqlguard.Token, i int) string {
	if i >= len(ts) {
		return ""
	}
	end := ts[len(ts)-1].End
	for n := len(ts) - 1; n > i && ts[n].IsPunct(src.SQL, ';'); n-- {
		end = ts[n-1].End
	}
	return src.SQL[ts[i].Start:end]
}

// OfProcesses reports whether the statement is about the shard's processes.
func (src *Text) OfProcesses() bool {
	for _, t := range src.Tokens() {
		if t.Kind == sqlguard.Ident {
			if w := strings.ToLower(src.SQL[t.Start:t.End]); processViews[w] || strings.HasPrefix(w, "pg_stat_progress_") || strings.HasPrefix(w, "pg_stat_get_backend_") {
				return true
			}
		}
	}
	return false
}

// Comma returns the index of the first comma in the brackets that open at a token.
func (src *Text) Comma(open int) int {
	for i := open + 1; i < len(src.Tokens()); i++ {
		switch {
		case src.Punct(i, '(') || src.Punct(i, '['):
			i = src.Closing(i)
		case src.Punct(i, ','):
			return i
		}
	}
	return LostPlace()
}

// StringEnd is the last token of a string that begins at one: it may go on behind a line's end, and UESCAPE may follow one that
// begins with U&. Behind any other, uescape is a column's name.
func (src *Text) StringEnd(i int) int {
	ts := src.Tokens()
	unicode := strings.HasPrefix(strings.ToUpper(src.SQL[ts[i].Start:ts[i].End]), "U&")
	for (ts[i].Kind == sqlguard.String || ts[i].Kind == sqlguard.Escape) && i+1 < len(ts) && ts[i+1].Kind == sqlguard.String {
		i++
	}
	if unicode && src.Word(i+1, "uescape") && i+2 < len(ts) {
		i += 2
	}
	return i
}

// LiteralSpan is where a literal stands that is one token, 0 and 0 for others.
func (src *Text) LiteralSpan(c *pg.A_Const) (from, to int) {
	i := src.TokenAt(c.Location)
	ts := src.Tokens()
	if i < 0 || ts[i].Kind == sqlguard.String && i+1 < len(ts) && ts[i+1].Kind == sqlguard.String {
		return 0, 0 // a string goes on behind a line's end
	}
	if text := src.SQL[ts[i].Start:ts[i].End]; strings.HasPrefix(strings.ToUpper(text), "U&") {
		return 0, 0 // UESCAPE may follow
	}
	return ts[i].Start, ts[i].End
}

// ChangingView is PostgreSQL's error for a view whose WITH changes rows.
func (src *Text) ChangingView() error {
	text := "views must not contain data-modifying statements in WITH"
	if src.Word(1, "materialized") {
		text = "materialized views must not use data-modifying statements in WITH"
	}
	return sqlstate.New(sqlstate.FeatureNotSupported, "%s", text)
}

// LostPlace is for a place that the parser's tree names and the text does not have.
func LostPlace() int {
	bail.With(sqlstate.New(sqlstate.InternalError, "a part of the statement was not found in its text"))
	return -1
}

// processViews are about the shard's processes: a statement that names one of them means the shard's numbers.
var processViews = map[string]bool{
	"pg_locks": true, "pg_blocking_pids": true, "pg_safe_snapshot_blocking_pids": true, "pg_stat_replication": true, "pg_stat_wal_receiver": true, "pg_stat_subscription": true,
	"pg_replication_slots": true, "pg_backend_memory_contexts": true, "pg_prepared_xacts": true, "pg_stat_get_activity": true,
}
