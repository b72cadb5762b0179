package planner

import "testing"

// TestStringEnd: where a literal ends in the text, by PostgreSQL's lexer (src/backend/parser/scan.l and base_yylex).
func TestStringEnd(t *testing.T) {
	snap := testSnapshot(t)
	for sql, want := range map[string]string{
		"SELECT 'now' x":                        "'now'",
		"SELECT 'no'\n'w' x":                    "'w'",
		"SELECT U&'!006eow' UESCAPE '!', 1":     "'!'",
		"SELECT 'now' uescape, k FROM ev":       "'now'",
		"SELECT E'now' uescape, k FROM ev":      "E'now'",
		"SELECT $$now$$ uescape, k FROM ev":     "$$now$$",
		"SELECT 'no' -- a comment\n'w' uescape": "'w'",
	} {
		src := &New(Limits{}).analyzer(sql, snap, nil).Text
		ts := src.Tokens()
		if end := ts[src.StringEnd(1)]; sql[end.Start:end.End] != want {
			t.Errorf("%s ends with %s, want %s", sql, sql[end.Start:end.End], want)
		}
	}
}
