package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
// refuse, and of functions that put their own arguments into such a call, with their
// texts, whatever is put in at run time as an ellipsis.
func refusalsTable(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	packages := map[string][]*ast.File{}
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
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range packages {
		refusals := map[string][]refusal{}
		for _, name := range []string{"refuse", "Refuse"} {
			refusals[name] = []refusal{{params: []string{"why", "hint"}, why: ast.NewIdent("why"), hint: ast.NewIdent("hint")}}
		}
		for again := true; again; {
			again = false
			for _, file := range files {
				for _, f := range file.Decls {
					if f, ok := f.(*ast.FuncDecl); ok && f.Body != nil && refusals[f.Name.Name] == nil {
						if found := refusalsOf(f, refusals); len(found) > 0 {
							refusals[f.Name.Name], again = found, true
						}
					}
				}
			}
		}
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					for _, r := range refusals[called(call)] {
						if env := r.bound(call); env != nil {
							if why := words(r.why, env); strings.Trim(why, "… ():") != "" {
								rows[why] = words(r.hint, env)
							}
						}
					}
				}
				return true
			})
		}
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

// refusal is a call of Refuse in a function with parameters that it uses.
type refusal struct {
	params    []string
	why, hint ast.Expr
}

// bound are the arguments by the names of the parameters, nil if they do not fit.
func (r refusal) bound(call *ast.CallExpr) map[string]ast.Expr {
	if len(call.Args) != len(r.params) {
		return nil
	}
	env := map[string]ast.Expr{}
	for i, p := range r.params {
		env[p] = call.Args[i]
	}
	return env
}

// refusalsOf finds the refusals in a function whose reason is made of its parameters.
func refusalsOf(f *ast.FuncDecl, known map[string][]refusal) (out []refusal) {
	var params []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			params = append(params, n.Name)
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, r := range known[called(call)] {
			env := r.bound(call)
			if env == nil {
				continue
			}
			why, uses := substitute(r.why, env), false
			ast.Inspect(why, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && slices.Contains(params, id.Name) {
					uses = true
				}
				return true
			})
			if uses {
				out = append(out, refusal{params: params, why: why, hint: substitute(r.hint, env)})
			}
		}
		return true
	})
	return out
}

// substitute puts arguments in the place of parameters.
func substitute(e ast.Expr, env map[string]ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.Ident:
		if arg, ok := env[e.Name]; ok {
			return arg
		}
	case *ast.BinaryExpr:
		return &ast.BinaryExpr{X: substitute(e.X, env), Op: e.Op, Y: substitute(e.Y, env)}
	case *ast.ParenExpr:
		return substitute(e.X, env)
	}
	return e
}

// called is the name of the function that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// words is the text of an expression that makes one; env has the arguments of a call.
func words(e ast.Expr, env map[string]ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if arg, ok := env[e.Name]; ok {
			return words(arg, nil)
		}
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return strings.NewReplacer("%s", "…", "%q", "…", "%d", "…", "%v", "…").Replace(s)
		}
	case *ast.BinaryExpr:
		return strings.ReplaceAll(words(e.X, env)+words(e.Y, env), "……", "…")
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			return words(e.Args[0], env)
		}
	case *ast.ParenExpr:
		return words(e.X, env)
	}
	return "…"
}
