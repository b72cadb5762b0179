package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

// TestErrorsPage holds docs/errors.md to the registry of errors and to what the code refuses.
func TestErrorsPage(t *testing.T) {
	const page = "../../docs/errors.md"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	for mark, table := range map[string]string{"codes": codesTable(), "refusals": refusalsTable(t)} {
		begin, end := "<!-- "+mark+": made by make docs -->\n", "<!-- end of "+mark+" -->"
		before, rest, ok1 := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s has lost the marks %q and %q", page, begin, end)
		}
		text = before + begin + table + end + after
	}
	golden(t, page, []byte(text))
}

func codesTable() string {
	var b strings.Builder
	b.WriteString("| SQLSTATE | condition | when | and the write | what helps |\n|---|---|---|---|---|\n")
	for _, e := range sqlstate.Catalogue() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", e.Code, e.Condition, e.Meaning, e.Effect.Text(), e.Do)
	}
	return b.String()
}

// refusalsTable lists the reasons of 0A000 in the source: calls of Refuse and
// refuse with their texts, whatever is put in at run time as an ellipsis.
func refusalsTable(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "test") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			if name != "refuse" && name != "Refuse" {
				return true
			}
			if why := words(call.Args[0]); strings.Trim(why, "… ") != "" {
				rows[why] = words(call.Args[1])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 50 {
		t.Fatalf("only %d refusals were found", len(rows))
	}
	var b strings.Builder
	b.WriteString("| reason | hint |\n|---|---|\n")
	whys := make([]string, 0, len(rows))
	for why := range rows {
		whys = append(whys, why)
	}
	sort.Strings(whys)
	cell := func(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s) }
	for _, why := range whys {
		hint := rows[why]
		if strings.Trim(hint, "… ") == "" {
			hint = ""
		}
		fmt.Fprintf(&b, "| %s | %s |\n", cell(why), cell(hint))
	}
	return b.String()
}

// words is the text of an expression that makes one.
func words(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return strings.NewReplacer("%s", "…", "%q", "…", "%d", "…", "%v", "…").Replace(s)
		}
	case *ast.BinaryExpr:
		return strings.ReplaceAll(words(e.X)+words(e.Y), "……", "…")
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			return words(e.Args[0])
		}
	case *ast.ParenExpr:
		return words(e.X)
	}
	return "…"
}
