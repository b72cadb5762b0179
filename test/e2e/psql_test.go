package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
)

// TestPsql is what a person types first.
func TestPsql(t *testing.T) {
	eachEngine(t, "sqlite", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders, `INSERT INTO orders VALUES (7, 1, 'seven')`, `CREATE TABLE plain (id int PRIMARY KEY, v text)`)
		for _, w := range []struct {
			script string
			want   []string
			not    []string
		}{
			{`\d`, []string{"orders", "plain", "table"}, []string{"ERROR", "cleave_"}},
			{`\dt`, []string{"public", "orders"}, []string{"ERROR"}},
			{`\d orders`, []string{"tenant_id", "bigint", "not null", "note", "text", "orders_pkey", "PRIMARY KEY", "(tenant_id, id)"}, []string{"ERROR"}},
			{`\d+ orders`, []string{"tenant_id", "Storage", "orders_pkey"}, []string{"ERROR"}},
			{`\d nothing`, []string{`Did not find any relation named "nothing".`}, nil},
			{`\l`, []string{"Owner", "Encoding", "UTF8"}, []string{"ERROR"}},
			{`\dn`, []string{"public"}, []string{"ERROR"}},
			{`\di`, []string{"orders_pkey"}, []string{"ERROR"}},
			{`\du`, []string{"Role name"}, []string{"ERROR"}},
			{"\\x\nSELECT * FROM orders WHERE tenant_id = 7;", []string{"-[ RECORD 1 ]", "tenant_id | 7", "note      | seven"}, nil},
			{"\\copy orders FROM '/dev/null'\nSELECT 'still here' AS s;", []string{"COPY 0", "still here"}, []string{"ERROR"}},
			{`SELECT * FROM orders;`, []string{"seven", "(1 row)"}, []string{"ERROR"}},
			{"SELECT 1;\nSELECT note FROM orders WHERE tenant_id = 7\\; SELECT 'two' AS second;", []string{"seven", "two"}, []string{"ERROR"}},
			{`SELECT * FROM cleave.shards ORDER BY name;`, []string{"shard-0", "shard-3", c.engine}, []string{"ERROR"}},
			{`SELECT count(*) FROM cleave.ranges WHERE keyspace = 'hash_bigint';`, []string{"16"}, []string{"ERROR"}},
			{`SELECT keyspace, strategy FROM cleave.keyspaces;`, []string{"hash_bigint", "hash"}, []string{"ERROR"}},
			{`SELECT * FROM cleave.tables;`, []string{"orders", "sharded", "plain", "whole"}, []string{"ERROR"}},
			{`SELECT * FROM cleave.pins;`, []string{"(0 rows)"}, []string{"ERROR"}},
			{`SELECT * FROM cleave.history;`, []string{"CREATE TABLE orders"}, []string{"ERROR"}},
			{`SELECT * FROM cleave.sessions;`, []string{"app", "psql"}, []string{"ERROR"}},
			{`DELETE FROM cleave.shards;`, []string{"ERROR"}, []string{"DELETE"}},
			{`EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = 7;`, []string{"shard-", "hash_bigint", "SELECT * FROM orders WHERE tenant_id = 7"}, []string{"ERROR"}},
			{`SELEC 1;`, []string{`ERROR:  syntax error at or near "SELEC"`, "LINE 1: SELEC 1;"}, nil},
			{"BEGIN;\nSELECT 1/0;\nSELECT 1;\nROLLBACK;\nSELECT 'fine' AS after;", []string{"division by zero", "current transaction is aborted", "fine"}, nil},
			{"SET application_name = 'mine';\nSHOW application_name;", []string{"mine"}, []string{"ERROR"}},
			{"SET nonsense_setting = 1;", []string{"unrecognized configuration parameter"}, nil},
		} {
			out := c.psql(t, w.script)
			for _, s := range w.want {
				if !strings.Contains(out, s) {
					t.Errorf("%s\nlacks %q:\n%s", w.script, s, out)
				}
			}
			for _, s := range w.not {
				if strings.Contains(out, s) {
					t.Errorf("%s\nhas %q:\n%s", w.script, s, out)
				}
			}
		}
	})
}

// TestReadmeSession runs the README's psql session and compares every answer
// with what the README prints.
func TestReadmeSession(t *testing.T) {
	testrun.Short(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, "sqlite")
	steps := 0
	for _, block := range fenced(string(readme), "psql") {
		for _, step := range session(block) {
			steps++
			// At a terminal psql does not say which line of its input it reads.
			got := strings.TrimSpace(inputLine.ReplaceAllString(c.psql(t, step.statement+"\n"), ""))
			if got != strings.TrimSpace(step.answer) {
				t.Errorf("%s\nanswers\n%s\nthe README says\n%s", step.statement, got, step.answer)
			}
		}
	}
	if steps < 5 {
		t.Fatalf("the README has only %d statements", steps)
	}
	// The commands of the README's console blocks run as well.
	commands := 0
	for _, block := range fenced(string(readme), "console") {
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ cleave ")
			if !ok {
				continue
			}
			commands++
			cmd := exec.Command("sh", "-c", binary+" "+command+" --admin "+c.admin)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("cleave %s: %v\n%s", command, err, out)
			}
		}
	}
	if commands == 0 {
		t.Fatal("the README shows no command")
	}
}

var inputLine = regexp.MustCompile(`(?m)^psql:<stdin>:\d+: `)

type step struct{ statement, answer string }

// session splits a pasted psql session into statements and their answers.
func session(block string) []step {
	var steps []step
	for line := range strings.Lines(block) {
		switch {
		case strings.HasPrefix(line, "cleave=> "):
			steps = append(steps, step{statement: line[len("cleave=> "):]})
		case strings.HasPrefix(line, "cleave-> "):
			steps[len(steps)-1].statement += line[len("cleave-> "):]
		case len(steps) > 0:
			steps[len(steps)-1].answer += line
		}
	}
	return steps
}

// fenced returns the bodies of a Markdown text's fenced blocks of one language.
func fenced(text, language string) []string {
	var blocks []string
	for _, part := range strings.Split(text, "\n```"+language+"\n")[1:] {
		body, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, body+"\n")
	}
	return blocks
}

// TestDocumentedSQL runs every sql block of the pages for users: each statement
// must work as written, with 5 for a parameter. Blocks of "sql postgres" are for
// PostgreSQL shards only.
func TestDocumentedSQL(t *testing.T) {
	// Pages of one line use one cluster, and what the pages before made there.
	for _, names := range [][]string{{"shard-keys.md"}, {"sql.md", "ids.md", "replicas.md", "metrics.md"}} {
		for _, engine := range []string{"sqlite", "postgres"} {
			t.Run(strings.Join(names, " ")+" "+engine, func(t *testing.T) {
				onEngine(t, (engine == "sqlite") == (len(names) == 1))
				conn := start(t, engine).connect(t)
				for _, name := range names {
					page, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
					if err != nil {
						t.Fatal(err)
					}
					blocks := fenced(string(page), "sql")
					if engine == "postgres" {
						blocks = append(blocks, fenced(string(page), "sql postgres")...)
					}
					if len(blocks) == 0 {
						t.Fatalf("%s has no sql block", name)
					}
					for _, b := range blocks {
						for statement := range strings.SplitSeq(lineComment.ReplaceAllString(b, ""), ";\n") {
							if strings.TrimSpace(statement) == "" {
								continue
							}
							var args []any
							if strings.Contains(statement, "$1") {
								args = append(args, 5)
							}
							if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
								t.Errorf("%s: %s\n%v", name, statement, err)
							}
						}
					}
				}
			})
		}
	}
}

var lineComment = regexp.MustCompile(`(?m) *--.*$`)
