package cleave_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRightsNameTheirTests: the tables of docs/security.md (who connects, what statements may do) say in each row where it is enforced, and
// names tests, which are there.
func TestRightsNameTheirTests(t *testing.T) {
	have := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			have[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(string(text), "| what | who may | enforced | tested |\n")[1:]
	if len(tables) != 2 {
		t.Fatalf("docs/security.md has %d tables of rights", len(tables))
	}
	var rows []string
	for _, table := range tables {
		table, _, _ = strings.Cut(table, "\n\n")
		rows = append(rows, strings.Split(strings.TrimSpace(table), "\n")[1:]...)
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if len(cells) != 4 {
			t.Errorf("not four cells: %s", row)
			continue
		}
		tests := named.FindAllStringSubmatch(cells[3], -1)
		if strings.TrimSpace(cells[2]) == "" || len(tests) == 0 {
			t.Errorf("no place or no test: %s", row)
		}
		for _, m := range tests {
			if !have[m[1]] {
				t.Errorf("%s is no test: %s", m[1], row)
			}
		}
	}
	if len(rows) < 25 {
		t.Errorf("%d rows", len(rows))
	}
}
