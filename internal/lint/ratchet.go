package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What is measured, and the most there should be of it. What is above that today stands in ratchets.txt with its figure, which only goes down.
const (
	methodsMax    = 60  // of a type
	filesMax      = 30  // of a package, without tests and generated code
	complexityMax = 50  // of a function
	complexFrom   = 15  // a function above it is counted as complex
	markdownMax   = 120 // characters of a line of Markdown
)

// RatchetFile has the figures that are above their bounds, a line each: the figure, and what it counts.
const RatchetFile = "internal/lint/ratchets.txt"

// checkRatchets wants no figure above its bound, or above what the file has for it, and none in the file that has sunk since.
func checkRatchets(t *Tree, say report) {
	ceilings, err := ceilings(t.text[RatchetFile])
	if err != nil {
		say(RatchetFile, 0, "%v", err)
		return
	}
	now := Measure(t)
	for _, what := range slices.Sorted(maps.Keys(now)) {
		m := now[what]
		switch ceiling, ok := ceilings[what]; {
		case !ok:
			say(m.File, m.Line, "%s: %d, more than %d", what, m.Figure, m.Bound)
		case m.Figure > ceiling:
			say(m.File, m.Line, "%s: %d, more than the %d of before; the bound is %d", what, m.Figure, ceiling, m.Bound)
		case m.Figure < ceiling:
			say(RatchetFile, 0, "%s: %d is now %d: go test ./internal/lint -update writes it", what, ceiling, m.Figure)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(ceilings)) {
		if _, ok := now[what]; !ok {
			say(RatchetFile, 0, "%s is within its bound now: go test ./internal/lint -update takes it out", what)
		}
	}
}

// Measured is a figure above its bound.
type Measured struct {
	File          string
	Line          int
	Figure, Bound int
}

// Measure returns the figures that are above their bounds, by what they count.
func Measure(t *Tree) map[string]Measured {
	out := map[string]Measured{}
	t.measureCode(out)
	t.measureMarkdown(out)
	for what, m := range out {
		if m.Figure <= m.Bound {
			delete(out, what)
		}
	}
	return out
}

// count adds n to a figure, whose place is the first.
func count(out map[string]Measured, what string, n, bound int, file string, line int) {
	m, ok := out[what]
	if !ok {
		m = Measured{File: file, Line: line, Bound: bound}
	}
	m.Figure += n
	out[what] = m
}

func (t *Tree) measureCode(out map[string]Measured) {
	for _, f := range t.Go {
		if f.Test || f.Generated {
			continue
		}
		count(out, "files of package "+f.Package, 1, filesMax, f.Path, 0)
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name, line := f.Package+"."+fn.Name.Name, t.line(fn.Pos())
			if fn.Recv != nil {
				typ := receiver(fn.Recv.List[0].Type)
				name = f.Package + "." + typ + "." + fn.Name.Name
				count(out, "methods of "+f.Package+"."+typ, 1, methodsMax, f.Path, line)
			}
			c := complexity(fn)
			if what := "complexity of " + name; c > out[what].Figure { // a name may have a function for each platform
				out[what] = Measured{File: f.Path, Line: line, Figure: c, Bound: complexityMax}
			}
			if c > complexFrom {
				count(out, fmt.Sprintf("functions above complexity %d", complexFrom), 1, 0, f.Path, line)
			}
		}
		if !within(f.Package, "engine") {
			ast.Inspect(f.AST, func(n ast.Node) bool {
				if asksEngine(n) {
					count(out, "questions for an engine's name in package "+f.Package, 1, 0, f.Path, t.line(n.Pos()))
				}
				return true
			})
		}
	}
}

// asksEngine reports whether code compares the name of a shard's engine. Whether two have the same engine may be asked.
func asksEngine(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.BinaryExpr:
		if givenName(x.X) && givenName(x.Y) {
			return false
		}
		return (x.Op == token.EQL || x.Op == token.NEQ) && (engineName(x.X) || engineName(x.Y))
	case *ast.SwitchStmt:
		return engineName(x.Tag)
	}
	return false
}

// engineName reports whether an expression is the name of an engine, or a shard's field with it.
func engineName(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return x.Value == `"sqlite"` || x.Value == `"postgres"`
	case *ast.SelectorExpr:
		return x.Sel.Name == "Engine"
	}
	return false
}

// givenName reports whether an expression is what a shard or a driver calls its engine.
func givenName(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name == "Engine"
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "Name"
	}
	return false
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// complexity is the cyclomatic complexity of a function (McCabe, A Complexity Measure, 1976): one, and one for each branch, && and ||.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// measureMarkdown counts the long lines of each page, without what cannot be broken: rows of tables, what is fenced, one piece of code.
func (t *Tree) measureMarkdown(out map[string]Measured) {
	for _, p := range t.paths() {
		if path.Ext(p) != ".md" {
			continue
		}
		for i, line := range strings.Split(string(mdFence.ReplaceAllFunc(t.text[p], blank)), "\n") {
			line = strings.TrimRight(line, " ")
			words := strings.Fields(mdCode.ReplaceAllString(line, "code"))
			if utf8.RuneCountInString(line) > markdownMax && len(words) > 1 && !strings.HasPrefix(words[0], "|") {
				count(out, "long lines of "+p, 1, 0, p, i+1)
			}
		}
	}
}

// ceilings reads the file of ratchets.
func ceilings(b []byte) (map[string]int, error) {
	out := map[string]int{}
	for i, line := range strings.Split(string(bytes.TrimSpace(b)), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		figure, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(figure)
		if err != nil || what == "" {
			return nil, fmt.Errorf("line %d, %q, is not a figure and what it counts", i+1, line)
		}
		if _, ok := out[what]; ok {
			return nil, fmt.Errorf("line %d: %s is there twice", i+1, what)
		}
		out[what] = n
	}
	return out, nil
}

// Sink returns the file of ratchets with what has sunk. It raises nothing, and adds nothing.
func Sink(t *Tree) ([]byte, error) {
	was, err := ceilings(t.text[RatchetFile])
	if err != nil {
		return nil, err
	}
	now := Measure(t)
	var b bytes.Buffer
	b.WriteString("# What is above its bound (internal/lint/ratchet.go). These figures only go down: go test ./internal/lint -update.\n")
	for _, what := range slices.Sorted(maps.Keys(was)) {
		if m, ok := now[what]; ok {
			fmt.Fprintf(&b, "%d %s\n", min(was[what], m.Figure), what)
		}
	}
	return b.Bytes(), nil
}
