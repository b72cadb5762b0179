package generate

import "testing"

func TestMakeIsRepeatable(t *testing.T) {
	for n := range uint64(300) {
		o := Options{Seed: 7, Number: n, SQLite: n%2 == 1}
		a, b := Text(Make(o).Tree), Text(Make(o).Tree)
		if a != b || a == "" {
			t.Fatalf("statement %d:\n%s\n%s", n, a, b)
		}
	}
}

func TestShrinkFindsTheSmallestThatIsBad(t *testing.T) {
	n := seq{word("SELECT "), list(", ", 1, word("a"), word("b"), or(infix(word("c"), " + ", word("d")), word("c"))), maybe(word(" WHERE x")), maybe(word(" LIMIT 3"))}
	Shrink(n, 100, func(sql string) bool {
		// bad: it names c
		for i := range sql {
			if sql[i] == 'c' {
				return true
			}
		}
		return false
	})
	if got := Text(n); got != "SELECT c" {
		t.Errorf("shrunk to %q", got)
	}
}
