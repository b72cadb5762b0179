package sqltree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// What the golden files hold can be written down again, all of it.
func TestRestate(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var sql []string
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "--") || line == "" {
				continue
			}
			sql = append(sql, line)
			if strings.HasSuffix(line, ";") {
				text := strings.TrimSuffix(strings.Join(sql, "\n"), ";")
				sql = nil
				tree, err := pg.Parse(text)
				if err != nil || len(tree.Stmts) != 1 {
					continue
				}
				n++
				if out, ok := Restate(tree.Stmts[0].Stmt); !ok {
					t.Errorf("%s\nbecomes %q", text, out)
				}
			}
		}
	}
	if n < 500 {
		t.Errorf("only %d statements", n)
	}
}
