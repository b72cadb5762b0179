package sqltext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPlace: ^ stands before the place in both texts; without one in the client's there is none.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"SELECT '7'::bigint AS \"nextval\", ^nosuch", "SELECT nextval('s'), ^nosuch"},
		{"INSERT INTO t (a, b, \"id\") VALUES (1, 'ä', '5'::bigint), (2, ^c, '6'::bigint)", "INSERT INTO t (a, b) VALUES (1, 'ä'), (2, ^c)"},
		{"INSERT INTO t (a, b, \"^id\") VALUES (1, '5'::bigint)", "INSERT INTO t (a) VALUES (1)"},
		{"SELECT * FROM (SELECT a FROM t) v WHERE ^b = 1", "SELECT * FROM v WHERE ^b = 1"},
		{"SELECT na^me FROM v", "SELECT /* ü */ na^me FROM v;"},
		{"SELECT 1 +^ (2)", "SELECT 1"},
		{"SELECT a^", "SELECT b"},
	} {
		at := func(s string) (string, int) {
			before, after, found := strings.Cut(s, "^")
			if !found {
				return s, 0
			}
			return before + after, utf8.RuneCountInString(before) + 1
		}
		sent, pos := at(c[0])
		client, n := at(c[1])
		if got := Place(sent, pos, client); got != n {
			t.Errorf("%s: %d, want %d", c[1], got, n)
		}
	}
}
