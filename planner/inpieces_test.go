package planner

import "testing"

// TestMayQuoteWord: which texts are parsed to look for a special date/time input. No such text is left out, and few others are in.
func TestMayQuoteWord(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT 'now'::timestamptz": true, "SELECT 'no'\n'w'": true, "SELECT 'no' \r\n\t'w'": true, "SELECT 'no' -- x\n'w'": true, "SELECT E'\\x6eow'": true,
		"SELECT e'no\\167'": true, "SELECT U&'\\006eow'": true, "SELECT u&'!006eow' UESCAPE '!'": true, "SELECT $$now$$": true, "SELECT $x$ today $x$": true, `SELECT ('{n\ow}'::timestamptz[])[1]`: true, `SELECT '{toda\y}'::date[]`: true, `SELECT '[n"o"w,)'::tstzrange`: true,
		"SELECT a\nFROM t\nWHERE b = $1\nAND c = $2": false, "SELECT 'a',\n'b'": false, "SELECT 'a\nb'\nFROM t": false, `SELECT 'a\b'`: false, "SELECT 'nowhere'": false, "SELECT 1": false,
	} {
		if got := mayQuoteWord(sql); got != want {
			t.Errorf("%q: %v", sql, got)
		}
	}
}
