package sqlguard

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/sqlstate"
)

// shapes are the ways in which a statement's syntax tree can become high.
var shapes = map[string]func(n int) string{
	"plus":   func(n int) string { return "SELECT 1" + strings.Repeat("+1", n) },
	"minus":  func(n int) string { return "SELECT " + strings.Repeat("- ", n) + "a" },
	"signs":  func(n int) string { return "SELECT " + strings.Repeat("+-", n) + "a" },
	"not":    func(n int) string { return "SELECT " + strings.Repeat("NOT ", n) + "a" },
	"parens": func(n int) string { return "SELECT " + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) },
	"case": func(n int) string {
		return "SELECT " + strings.Repeat("CASE WHEN ", n) + "a" + strings.Repeat(" THEN 1 END", n)
	},
	"union":      func(n int) string { return "SELECT 1" + strings.Repeat(" UNION SELECT 1, 2", n) },
	"except":     func(n int) string { return "SELECT 1" + strings.Repeat(" EXCEPT SELECT 1 WHERE a AND b", n) },
	"join":       func(n int) string { return "SELECT 1 FROM a" + strings.Repeat(" JOIN a ON b AND c", n) },
	"cross join": func(n int) string { return "SELECT 1 FROM a" + strings.Repeat(" CROSS JOIN a", n) },
	"cast":       func(n int) string { return "SELECT a" + strings.Repeat("::int", n) },
	"subscript":  func(n int) string { return "SELECT " + strings.Repeat("a[", n) + "1" + strings.Repeat("]", n) },
	"function":   func(n int) string { return "SELECT " + strings.Repeat("f(", n) + "1" + strings.Repeat(")", n) },
	"subselect":  func(n int) string { return "SELECT " + strings.Repeat("(SELECT ", n) + "1" + strings.Repeat(")", n) },
	"from": func(n int) string {
		return strings.Repeat("SELECT * FROM (", n) + "SELECT 1" + strings.Repeat(") x", n)
	},
	"in":           func(n int) string { return "SELECT " + strings.Repeat("a IN (", n) + "1" + strings.Repeat(")", n) },
	"array":        func(n int) string { return "SELECT ARRAY" + strings.Repeat("[", n) + "1" + strings.Repeat("]", n) },
	"collate":      func(n int) string { return "SELECT a" + strings.Repeat(` COLLATE "C"`, n) },
	"at time zone": func(n int) string { return "SELECT a" + strings.Repeat(" AT TIME ZONE a", n) },
	"qualified":    func(n int) string { return "SELECT a" + strings.Repeat(" OPERATOR(pg_catalog.+) a", n) },
	"between not":  func(n int) string { return "SELECT " + strings.Repeat("a BETWEEN 1 AND NOT ", n) + "a" },
	"typmod":       func(n int) string { return "SELECT " + strings.Repeat("a::b(", n) + "1" + strings.Repeat(")", n) },
	"comments":     func(n int) string { return "SELECT 1" + strings.Repeat("/* , ( */+--,\n1", n) },
	"strings":      func(n int) string { return "SELECT ''" + strings.Repeat(`||E'\',('`, n) },
	"dollars":      func(n int) string { return "SELECT ''" + strings.Repeat("||$a$,'($a$", n) },
	"quoted":       func(n int) string { return "SELECT a" + strings.Repeat(`||"and,"",("`, n) },
	"names":        func(n int) string { return "SELECT a" + strings.Repeat(" + b.and", n) },
	"json": func(n int) string {
		return "SELECT " + strings.Repeat("JSON_OBJECT('a': ", n) + "1" + strings.Repeat(")", n)
	},
}

// TestGuardSavesTheProcess proves both halves: without the guard these
// statements end a process, with it they are errors.
func TestGuardSavesTheProcess(t *testing.T) {
	if name := os.Getenv("CLEAVE_GUARD_CHILD"); name != "" {
		n, err := strconv.Atoi(os.Getenv("CLEAVE_GUARD_N"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pg.Parse(shapes[name](n))
		fmt.Println("survived", err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plus", "union", "join", "cast", "qualified"} {
		sql := shapes[name](120_000)
		if code := sqlstate.CodeOf(Check(sql, Limits{})); code != sqlstate.StatementTooComplex {
			t.Errorf("%s: the guard answers %q, want 54001", name, code)
		}
		cmd := exec.Command(self, "-test.run=^TestGuardSavesTheProcess$")
		cmd.Env = append(os.Environ(), "CLEAVE_GUARD_CHILD="+name, "CLEAVE_GUARD_N=120000")
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: the parser survived 120,000 links, so this test proves nothing: %.200s", name, out)
		} else if !strings.Contains(string(out), "SIGSEGV") {
			t.Errorf("%s: the child failed otherwise: %v %.300s", name, err, out)
		}
	}
}

// TestHighestThatPasses finds, for each shape, the largest statement that the
// guard lets through and parses it on a stack of a quarter of the usual size.
func TestHighestThatPasses(t *testing.T) {
	if name := os.Getenv("CLEAVE_GUARD_PASS"); name != "" {
		for name, shape := range shapes {
			sql := shape(largest(shape))
			if _, err := pg.Parse(sql); err != nil && strings.Contains(err.Error(), "recursion") {
				t.Errorf("%s: the decoder gave up: %v", name, err)
			}
		}
		fmt.Println("all parsed")
		return
	}
	for name, shape := range shapes {
		n := largest(shape)
		if n < 80 {
			t.Errorf("%s: only %d links pass", name, n)
		}
		if code := sqlstate.CodeOf(Check(shape(n+1), Limits{})); code != sqlstate.StatementTooComplex {
			t.Errorf("%s: %d links give %q", name, n+1, code)
		}
		if code := sqlstate.CodeOf(Check(shape(200_000), Limits{})); code != sqlstate.StatementTooComplex {
			t.Errorf("%s: 200,000 links give %q", name, code)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -s 2048 && exec "$0" -test.run='^TestHighestThatPasses$' -test.v`, self)
	cmd.Env = append(os.Environ(), "CLEAVE_GUARD_PASS=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all parsed") {
		t.Fatalf("a statement that passes the guard ended a process with a 2 MiB stack: %v\n%.2000s", err, out)
	}
}

func largest(shape func(int) string) int {
	lo, hi := 0, 20_000
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if Check(shape(mid), Limits{}) == nil {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

func TestOrdinaryStatementsPass(t *testing.T) {
	row := "(1, 'it''s', -2.5, now(), NULL, $1, E'\\'', $$x$$, ARRAY[1,2], a + b * 2),"
	for name, sql := range map[string]string{
		"insert":  "INSERT INTO t VALUES " + strings.Repeat(row, 10_000) + "(1)",
		"in":      "SELECT * FROM t WHERE a IN (" + strings.Repeat("-12345,", 10_000) + "1)",
		"or":      "SELECT * FROM t WHERE a = 1" + strings.Repeat(" OR a = 2 AND b = 3", 10_000),
		"case":    "SELECT CASE" + strings.Repeat(" WHEN a = 1 THEN 'x'", 10_000) + " END",
		"columns": "SELECT " + strings.Repeat("a.b + 1 AS x,", 5_000) + "1",
		"many":    strings.Repeat("SELECT 1 UNION SELECT 2;", 10_000),
		"union":   "SELECT 1" + strings.Repeat(" UNION ALL SELECT a, b FROM c WHERE d = 1", 1_000),
		"schema":  "CREATE SCHEMA x " + strings.Repeat("CREATE TABLE a (b int, c int) ", 1),
	} {
		if err := Check(sql, Limits{}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := pg.Parse(sql); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusedBytes(t *testing.T) {
	for sql, want := range map[string]sqlstate.Code{
		"SELECT '\x00'":                              sqlstate.CharacterNotInRepertoire,
		"SELECT '\xff'":                              sqlstate.CharacterNotInRepertoire,
		strings.Repeat(" ", 9<<20):                   sqlstate.ProgramLimitExceeded,
		"SELECT a" + strings.Repeat(" OR a", 10_001): sqlstate.StatementTooComplex,
		"SELECT 'é'":                                 "",
		"":                                           "",
		"SELECT '" + "it''s" + "' ;":                 "",
	} {
		if got := sqlstate.CodeOf(Check(sql, Limits{})); got != want {
			t.Errorf("%.20q: %q, want %q", sql, got, want)
		}
	}
}

// TestTokens compares the cuts with those of the parser's own scanner.
func TestTokens(t *testing.T) {
	for _, sql := range []string{
		`SELECT a, "b""c", U&"d" FROM t WHERE x='it''s' AND y = E'a\'b' AND z=$1`,
		`SELECT 1, 1.5, .5, 1e3, 1.5e-3, 2., 10 -5 /* c /* nested */ x */ -- end` + "\n, 3",
		`SELECT $$a'b$$, $tag$ $$ $other$ $tag$, a$b, a1$ FROM é`,
		`SELECT x'1F', B'01', N'abc', U&'\0041'`,
		`SELECT a->>'b', a @> b, a[1:2], f(x => 1), t.*, a::int`,
		"SELECT E'a'\n'\\'b', 'c'\n'd'",
	} {
		var got []string
		for _, k := range Tokens(sql) {
			got = append(got, sql[k.Start:k.End])
		}
		scan, err := pg.Scan(sql)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, k := range scan.Tokens {
			if k.Token == pg.Token_C_COMMENT || k.Token == pg.Token_SQL_COMMENT {
				continue
			}
			want = append(want, sql[k.Start:k.End])
		}
		// The scanner makes one token of ::, => and of continued strings.
		if a, b := strings.Join(got, ""), strings.Join(want, ""); strings.ReplaceAll(a, "\n", "") != strings.ReplaceAll(b, "\n", "") {
			t.Errorf("%s\n got %q\nwant %q", sql, got, want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, shape := range shapes {
		f.Add(shape(3))
	}
	f.Add("SELECT E'\\")
	f.Add("SELECT $a$ /* ' ")
	f.Fuzz(func(t *testing.T, sql string) {
		at := -1
		for _, k := range Tokens(sql) {
			if k.Start < at || k.End <= k.Start || k.End > len(sql) {
				t.Fatalf("token %+v after %d", k, at)
			}
			at = k.End
		}
		if Check(sql, Limits{}) == nil {
			_, _ = pg.Parse(sql) // must not end the process
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	sql := "SELECT abalance FROM pgbench_accounts WHERE aid = 12345"
	for b.Loop() {
		if err := Check(sql, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
