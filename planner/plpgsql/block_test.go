package plpgsql

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestReadBlock: which code is read, and with which errors the rest is refused.
func TestReadBlock(t *testing.T) {
	p := sqltext.Parser{}
	b, err := Read(p, `
-- a comment
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_type) THEN /* ; END */
    CREATE TYPE "a;b" AS ENUM ('END;', $q$;$q$);
  ELSIF true THEN NULL;
  ELSE RAISE NOTICE 'a % b', SQLERRM;
  END IF;
  EXECUTE format('DROP TABLE %I', 'x');
EXCEPTION
  WHEN duplicate_object OR string_data_right_truncation OR SQLSTATE '0L000' THEN RAISE;
  WHEN OTHERS THEN
END`)
	if err != nil {
		t.Fatal(err)
	}
	if b.Steps[0].Op == StepBlock { // the parser's own, around an EXCEPTION clause
		b = b.Steps[0].Block
	}
	in := b.Steps[0]
	if in.Op != StepIf || in.Line != 4 || len(in.Arms) != 2 || in.Arms[0].Condition != "NOT EXISTS (SELECT 1 FROM pg_type)" || len(in.Arms[1].Steps) != 0 {
		t.Errorf("%+v", in)
	}
	if s := in.Arms[0].Steps[0]; s.Op != StepSQL || s.Line != 5 || s.Text != `CREATE TYPE "a;b" AS ENUM ('END;', $q$;$q$)` {
		t.Errorf("%+v", s)
	}
	if s := in.Else[0]; s.Line != 7 || s.Raise.Text("42710", "it's") != "RAISE NOTICE 'a % b', 'it''s'" {
		t.Errorf("%+v", s)
	}
	if s := b.Steps[1]; s.Op != StepExecute || s.Text != "format('DROP TABLE %I', 'x')" {
		t.Errorf("%+v", s)
	}
	if h := b.Handlers; len(h) != 2 || fmt.Sprint(h[0].States) != "[42710 01004 22001 0L000]" && fmt.Sprint(h[0].States) != "[42710 22001 0L000]" || h[0].Steps[0].Op != StepRaise {
		t.Errorf("%+v", h)
	}
	for code, want := range map[sqlstate.Code][2]bool{"42710": {true, true}, "22001": {true, true}, "0LP01": {true, true}, "42P07": {false, true}, "57014": {}, "P0004": {}} {
		if got := [2]bool{b.Handlers[0].Catches(code), b.Handlers[1].Catches(code)}; got != want {
			t.Errorf("%s is caught: %v, want %v", code, got, want)
		}
	}

	for code, want := range map[string]string{
		"":                           "42601",
		"BEGIN":                      "42601",
		"BEGIN END; x":               "42601",
		"BEGIN CREATE TABLE x(; END": "42601",
		"BEGIN CREATE TABLE x(a text DEFAULT 'x); END":                              "42601",
		"BEGIN CREATE TABLE x(a text DEFAULT $a$x); END":                            "42601",
		"BEGIN /* CREATE TABLE x(a int); END":                                       "42601",
		"BEGIN CREATE TABLE \"x(a int); END":                                        "42601",
		"BEGIN CREATE TABLE x(); EXCEPTION WHEN no THEN END":                        "42704",
		"BEGIN RAISE NOTICE '%'; CREATE TABLE x(); END":                             "42601",
		"BEGIN CREATE TABLE \x00; END":                                              "22021",
		"BEGIN CREATE TABLE \xff; END":                                              "22021",
		"BEGIN NULL; END":                                                           "",
		"BEGIN\n DROP TABLE x;\n INSERT INTO x VALUES (1) RETURNING a;\nEND":        "line 3 of the code: RETURNING",
		"DECLARE\n a int;\nBEGIN DROP TABLE x; END":                                 "line 2 of the code: variables",
		"BEGIN DROP TABLE x; a := 1; END":                                           `line 1 of the code: "a" is not a known variable`,
		"BEGIN DROP TABLE x;\n FOR r IN SELECT 1 LOOP NULL; END LOOP; END":          `line 2 of the code: loop variable of loop over rows must be a record variable or list of scalar variables`,
		"BEGIN DROP TABLE x; FOR i IN 1..2 LOOP NULL; END LOOP; END":                "line 1 of the code: FOR",
		"BEGIN DROP TABLE x; PERFORM found; END":                                    "line 1 of the code: the name found, which is a variable there",
		"BEGIN DROP TABLE x; SET search_path = a; END":                              "line 1 of the code: SET, SHOW or DISCARD",
		"BEGIN DROP TABLE x; SAVEPOINT s; END":                                      "line 1 of the code: transaction control",
		"BEGIN DROP TABLE x; COMMIT; END":                                           "line 1 of the code: COMMIT",
		"BEGIN IF found THEN DROP TABLE x; END IF; END":                             "line 1 of the code: the name found, which is a variable there",
		"BEGIN EXECUTE 'DROP TABLE x' USING 1; END":                                 "line 1 of the code: EXECUTE with INTO or USING",
		"BEGIN EXECUTE 'DROP TABLE x; SELECT 1 INTO y'; END":                        "line 1 of the code: SELECT",
		"BEGIN DROP TABLE x; RAISE NOTICE '%', now(); END":                          "line 1 of the code: RAISE with another argument than a literal, SQLERRM and SQLSTATE",
		"BEGIN CREATE TABLE x AS SELECT found; END":                                 "line 1 of the code: the name found, which is a variable there",
		strings.Repeat("BEGIN ", 60) + "DROP TABLE x;" + strings.Repeat("END;", 60): "line 1 of the code: it nests too deep",
	} {
		_, err := Read(p, code)
		var u *Unread
		got := string(sqlstate.CodeOf(err))
		if errors.As(err, &u) {
			got = u.Error()
		}
		if got != want {
			t.Errorf("%q: %q (%v), want %q", code, got, err, want)
		}
	}
}

// blockShapes are the ways in which code can nest.
var blockShapes = map[string]func(n int) string{
	"begin": func(n int) string { return strings.Repeat("BEGIN ", n) + "DROP TABLE x;" + strings.Repeat("END;", n) },
	"if": func(n int) string {
		return "BEGIN " + strings.Repeat("IF true THEN ", n) + "DROP TABLE x;" + strings.Repeat("END IF;", n) + "END"
	},
	"elsif": func(n int) string {
		return "BEGIN IF true THEN NULL;" + strings.Repeat("ELSIF true THEN NULL;", n) + "END IF; END"
	},
	"loop": func(n int) string {
		return "BEGIN " + strings.Repeat("LOOP ", n) + "NULL;" + strings.Repeat("END LOOP;", n) + "END"
	},
	"case": func(n int) string {
		return "BEGIN " + strings.Repeat("CASE WHEN true THEN ", n) + "NULL;" + strings.Repeat("END CASE;", n) + "END"
	},
	"exception": func(n int) string {
		return strings.Repeat("BEGIN NULL; EXCEPTION WHEN others THEN ", n) + "NULL;" + strings.Repeat("END;", n)
	},
	"brackets": func(n int) string {
		return "BEGIN IF " + strings.Repeat("(", n) + "true" + strings.Repeat(")", n) + " THEN DROP TABLE x; END IF; END"
	},
	"plus": func(n int) string {
		return "BEGIN IF 1" + strings.Repeat("+1", n) + " > 1 THEN DROP TABLE x; END IF; END"
	},
	"open": func(n int) string { return "BEGIN " + strings.Repeat("IF true THEN ", n) },
	"many": func(n int) string { return "BEGIN " + strings.Repeat("DROP TABLE x;", n) + "END" },
}

// TestBlockStack reads code of all depths on a stack of a quarter of the usual size: PL/pgSQL's parser
// has a bound of its own, and what is below that must not end the process.
func TestBlockStack(t *testing.T) {
	if os.Getenv("CLEAVE_BLOCK_CHILD") != "" {
		p := sqltext.Parser{}
		for name, shape := range blockShapes {
			for n := 100; n < 4000; n += 300 {
				_, err := Read(p, shape(n))
				if name != "many" && name != "elsif" && n > 1000 && err == nil {
					t.Errorf("%s: %d deep is read", name, n)
				}
			}
			_, _ = Read(p, shape(100_000))
		}
		fmt.Println("all read")
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -s 2048 && exec "$0" -test.run='^TestBlockStack$' -test.v`, self)
	cmd.Env = append(os.Environ(), "CLEAVE_BLOCK_CHILD=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all read") {
		t.Fatalf("%v\n%.2000s", err, out)
	}
}

// FuzzReadBlock: whatever the code, it is read or it is an error, and what is read stays below the bounds.
func FuzzReadBlock(f *testing.F) {
	for _, shape := range blockShapes {
		f.Add(shape(3))
	}
	f.Add("BEGIN CREATE TYPE m AS ENUM ('a'); EXCEPTION WHEN duplicate_object THEN RAISE NOTICE '%', SQLERRM USING HINT = 'x'; END")
	p := sqltext.Parser{}
	f.Fuzz(func(t *testing.T, code string) {
		b, err := Read(p, code)
		if (b == nil) == (err == nil) {
			t.Errorf("%v, %v", b, err)
		}
	})
}
