package cleave_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRightsNameTheirTests: the table "What statements may do" of docs/security.md says in each row where it is enforced, and
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
	_, table, found := strings.Cut(string(text), "| what | who may | enforced | tested |\n")
	if !found {
		t.Fatal("docs/security.md has no table of rights")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	named := regexp.MustCompile("`(Test\\w+)`")
	rows := strings.Split(strings.TrimSpace(table), "\n")[1:]
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
	if len(rows) < 10 {
		t.Errorf("%d rows", len(rows))
	}
}
