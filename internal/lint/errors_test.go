package lint

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

// TestErrorsPage holds docs/errors.md to the registry of errors, and docs/refusals.md to what the code refuses.
func TestErrorsPage(t *testing.T) {
	page(t, "../../docs/errors.md", "codes", codesTable())
	page(t, "../../docs/refusals.md", "refusals", refusalsTable(t))
}

// page compares the part of a page that is made with what it should be, or writes it.
func page(t *testing.T, path, mark, table string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+": made by make docs -->\n", "<!-- end of "+mark+" -->"
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost the marks %q and %q", path, begin, end)
	}
	text := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(old) {
		t.Errorf("%s is not what the source says: make docs writes it", path)
	}
}

func codesTable() string {
	var b strings.Builder
	b.WriteString("| SQLSTATE | condition | when | run again? | what helps |\n|---|---|---|---|---|\n")
	for _, e := range sqlstate.Catalogue() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", e.Code, e.Condition, e.Meaning, e.Effect.Text(), e.Do)
	}
	return b.String()
}

// refusalsTable lists the refusals of the source by section.
func refusalsTable(t *testing.T) string {
	t.Helper()
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]Refusal{}
	for _, r := range tree.Refusals() {
		s, _ := sqlstate.SectionOf(r.ID)
		sections[s.Title] = append(sections[s.Title], r)
	}
	var b strings.Builder
	for _, s := range sqlstate.Sections() {
		list := sections[s.Title]
		slices.SortFunc(list, func(a, b Refusal) int {
			return cmp.Compare(a.ID, b.ID)
		})
		list = slices.CompactFunc(list, func(a, b Refusal) bool { return a.ID == b.ID })
		if len(list) > 0 {
			fmt.Fprintf(&b, "## %s\n\n| id | sentence | hint |\n|---|---|---|\n", s.Title)
		}
		for _, r := range list {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.ID, cell(r.Sentence), cell(strings.TrimSpace(r.Hint)))
		}
		if len(list) > 0 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s) }
