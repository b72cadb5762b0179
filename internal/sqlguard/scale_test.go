package sqlguard

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// wide are the ways in which a statement becomes long without becoming high.
var wide = map[string]func(n int) string{
	"nested comments":      func(n int) string { return strings.Repeat("/*", n) + strings.Repeat("*/", n) + "SELECT 1" },
	"open comments":        func(n int) string { return "SELECT 1" + strings.Repeat("/*+", n) },
	"spaced comments":      func(n int) string { return strings.Repeat("/* ", n) + strings.Repeat("*/ ", n) + "SELECT 1" },
	"operators, comments":  func(n int) string { return "SELECT " + strings.Repeat("+/**/", n) + "1" },
	"commas, comments":     func(n int) string { return "SELECT 1" + strings.Repeat(",-/**/1", n) },
	"stars":                func(n int) string { return "SELECT 1 /*" + strings.Repeat("*", n) + "*/" },
	"slashes":              func(n int) string { return "SELECT 1 /*" + strings.Repeat("/", n) + "*/" },
	"comments in a row":    func(n int) string { return "SELECT 1" + strings.Repeat("/**/", n) },
	"lines":                func(n int) string { return "SELECT 1" + strings.Repeat("--\n", n) },
	"dashes":               func(n int) string { return "SELECT 1 " + strings.Repeat("-", n) },
	"strings over lines":   func(n int) string { return "SELECT 'a'" + strings.Repeat("\n'a'", n) },
	"strings and blanks":   func(n int) string { return "SELECT 'a'" + strings.Repeat(" ", n) + ", 'b'" },
	"dollars":              func(n int) string { return "SELECT $a$" + strings.Repeat("$b", n) + "$a$" },
	"open dollar":          func(n int) string { return "SELECT $" + strings.Repeat("a", n) },
	"half tags":            func(n int) string { return "SELECT $a$" + strings.Repeat("$a", n) },
	"long name":            func(n int) string { return "SELECT " + strings.Repeat("a", n) },
	"quoted name":          func(n int) string { return `SELECT "` + strings.Repeat(`""`, n) + `"` },
	"quotes":               func(n int) string { return "SELECT '" + strings.Repeat("''", n) + "'" },
	"escapes":              func(n int) string { return "SELECT E'" + strings.Repeat(`\\`, n) + "'" },
	"unicode escapes":      func(n int) string { return "SELECT U&'" + strings.Repeat(`\0041`, n) + "'" },
	"digits":               func(n int) string { return "SELECT " + strings.Repeat("1", n) },
	"bits":                 func(n int) string { return "SELECT B'" + strings.Repeat("1", n) + "'" },
	"or":                   func(n int) string { return "SELECT a = 1" + strings.Repeat(" OR a = 1", n) },
	"and":                  func(n int) string { return "SELECT a = 1" + strings.Repeat(" AND a = 1", n) },
	"or and":               func(n int) string { return "SELECT a" + strings.Repeat(" OR b AND c", n) },
	"in":                   func(n int) string { return "SELECT a IN (1" + strings.Repeat(",1", n) + ")" },
	"array":                func(n int) string { return "SELECT ARRAY[1" + strings.Repeat(",1", n) + "]" },
	"row":                  func(n int) string { return "SELECT ROW(1" + strings.Repeat(",1", n) + ")" },
	"values":               func(n int) string { return "VALUES (1)" + strings.Repeat(",(1)", n) },
	"columns":              func(n int) string { return "SELECT a" + strings.Repeat(",a", n) },
	"stars of tables":      func(n int) string { return "SELECT *" + strings.Repeat(",*", n) },
	"from":                 func(n int) string { return "SELECT 1 FROM a" + strings.Repeat(",a", n) },
	"when":                 func(n int) string { return "SELECT CASE" + strings.Repeat(" WHEN a THEN b", n) + " END" },
	"group by":             func(n int) string { return "SELECT 1 GROUP BY a" + strings.Repeat(",a", n) },
	"order by":             func(n int) string { return "SELECT 1 ORDER BY a" + strings.Repeat(",a", n) },
	"with":                 func(n int) string { return "WITH a AS (SELECT 1)" + strings.Repeat(",a AS (SELECT 1)", n) + "SELECT 1" },
	"windows":              func(n int) string { return "SELECT 1 WINDOW a AS ()" + strings.Repeat(",a AS ()", n) },
	"arguments":            func(n int) string { return "SELECT f(1" + strings.Repeat(",1", n) + ")" },
	"grouping sets":        func(n int) string { return "SELECT 1 GROUP BY GROUPING SETS (()" + strings.Repeat(",(a)", n) + ")" },
	"statements":           func(n int) string { return strings.Repeat("SELECT 1;", n) },
	"semicolons":           func(n int) string { return strings.Repeat(";", n) },
	"set":                  func(n int) string { return "UPDATE t SET a = 1" + strings.Repeat(",a = 1", n) },
	"column definitions":   func(n int) string { return "CREATE TABLE t (a int" + strings.Repeat(",a int NOT NULL", n) + ")" },
	"alter":                func(n int) string { return "ALTER TABLE t ADD a int" + strings.Repeat(",ADD a int", n) },
	"drop":                 func(n int) string { return "DROP TABLE t" + strings.Repeat(",t", n) },
	"parameters":           func(n int) string { return "SELECT $1" + strings.Repeat(",$1", n) },
	"xml":                  func(n int) string { return "SELECT xmlforest(a" + strings.Repeat(",a", n) + ")" },
	"do":                   func(n int) string { return "DO $$" + strings.Repeat("x", n) + "$$" },
	"notify":               func(n int) string { return "NOTIFY a, '" + strings.Repeat("x", n) + "'" },
	"parser: bad at end":   func(n int) string { return "SELECT 1" + strings.Repeat(",1", n) + " FROM FROM" },
	"parser: bad at start": func(n int) string { return "SELECT SELECT" + strings.Repeat(",1", n) },
}

// used is the time that a processor has worked for this thread, whatever else it works for (getrusage(2), RUSAGE_THREAD).
func used() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(1, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// TestTimeGrowsWithLength parses what passes the guard at growing lengths. The
// parser is C and hears no cancel, so none of it may take time out of
// proportion to its length: four times the text may take at most ten times the
// time (16 would be quadratic), unless it is over before anybody notices.
func TestTimeGrowsWithLength(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const unnoticed = 250 * time.Millisecond
	took := func(sql string) time.Duration {
		from := used()
		if Check(sql, Limits{}) == nil {
			_, _ = pg.Parse(sql)
		}
		return used() - from
	}
	least := func(sql string, enough time.Duration) time.Duration {
		d := took(sql)
		for i := 0; i < 3 && d > enough; i++ {
			d = min(d, took(sql))
		}
		return d
	}
	for name, shape := range wide {
		for n := 1 << 10; n <= 1<<16; n *= 4 {
			sql := shape(4 * n)
			if len(sql) > DefaultBytes || len(Tokens(sql)) > DefaultTokens {
				break
			}
			long := least(sql, unnoticed)
			if long <= unnoticed {
				continue
			}
			if short := least(shape(n), 0); long > 10*short {
				t.Errorf("%s: %d take %v, %d take %v", name, n, short, 4*n, long)
				break
			}
		}
	}
}
