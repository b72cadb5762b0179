package sqlite_test

import (
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestFunctionsInFromAreLateral: a function in FROM sees the tables to its left, which SQLite cannot give it: that is
// refused, and a column that nobody has does not exist.
func TestFunctionsInFromAreLateral(t *testing.T) {
	c := open(t, harness().Open(t))
	mustExec(t, c, "CREATE TABLE t (n int); INSERT INTO t VALUES (2)")
	for sql, want := range map[string]sqlstate.Code{
		"SELECT * FROM t, LATERAL generate_series(1, t.n) g":                  "0A000",
		"SELECT * FROM t, generate_series(1, n) g":                            "0A000",
		"SELECT * FROM t x JOIN LATERAL generate_series(1, x.n) g ON true":    "0A000",
		"SELECT * FROM t CROSS JOIN unnest(ARRAY[t.n]) u":                     "0A000",
		"SELECT * FROM t, ROWS FROM (unnest(ARRAY[t.n]), unnest(ARRAY[1])) u": "0A000",
		"SELECT * FROM t, generate_series(1, (SELECT t.n)) g":                 "0A000",
		"SELECT * FROM t, generate_series(1, t.m) g":                          "42703",
		"SELECT * FROM generate_series(1, t.n) g, t":                          "42P01",
		"SELECT * FROM t, generate_series(1, (SELECT max(u.n) FROM t u)) g":   "",
		"SELECT n, (SELECT count(*) FROM generate_series(1, t.n) g) FROM t":   "",
	} {
		if _, err := engine.Exec(c, sql); sqlstate.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", sql, err, want)
		}
	}
}
