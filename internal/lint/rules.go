package lint

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// linesMax is the longest a file may be that people wrote.
const linesMax = 800

func checkImports(t *Tree, say report) {
	for _, f := range t.Go {
		if !known(f.Package) {
			say(f.Path, 0, "package %s is in no row of the table of rooms: add it to internal/lint/rooms.go and docs/architecture.md", f.Package)
			continue
		}
		for _, spec := range f.AST.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			line := t.line(spec.Pos())
			if imported == Module {
				imported += "/" + client
			}
			if to, ok := strings.CutPrefix(imported, Module+"/"); ok {
				if why := allowed(f.Package, to, f.Test); why != "" {
					say(f.Path, line, "imports %s: %s", to, why)
				}
				continue
			}
			if f.Test || listed(f.Package, free) {
				continue
			}
			for room, bad := range noOutside {
				if within(f.Package, room) && listed(imported, bad) {
					say(f.Path, line, "imports %s: %s only computes", imported, room)
				}
			}
			for lib, who := range libraries {
				if within(imported, lib) && !listed(f.Package, who) {
					say(f.Path, line, "imports %s: only %s may", imported, strings.Join(who, ", "))
				}
			}
		}
	}
}

func checkClock(t *Tree, say report) {
	for _, f := range t.Go {
		if f.Test || !listed(f.Package, noClock) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc", "Local"}, sel.Sel.Name) {
				say(f.Path, t.line(sel.Pos()), "time.%s: %s must not look at the clock", sel.Sel.Name, f.Package)
			}
			return true
		})
	}
}

func checkFormat(t *Tree, say report) {
	for _, f := range t.Go {
		src := t.text[f.Path]
		if out, err := format.Source(src); err == nil && !bytes.Equal(src, out) {
			say(f.Path, 0, "is not formatted: run make fmt")
		}
	}
}

func checkLength(t *Tree, say report) {
	for _, f := range t.Go {
		if f.Generated {
			continue
		}
		if n := bytes.Count(t.text[f.Path], []byte("\n")); n > linesMax {
			say(f.Path, 0, "has %d lines, more than %d: it is probably two things", n, linesMax)
		}
	}
}

// openWork is spelled in pieces so that this file does not find itself.
var openWork = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|XX" + "X" + `)\b`)

func checkOpenWork(t *Tree, say report) {
	for _, p := range t.paths() {
		for i, line := range bytes.Split(t.text[p], []byte("\n")) {
			if m := openWork.Find(line); m != nil {
				say(p, i+1, "%s: do it, or open an issue", m)
			}
		}
	}
}

func checkExportedDoc(t *Tree, say report) {
	for _, f := range t.Go {
		if f.Test || f.Generated {
			continue
		}
		for _, decl := range f.AST.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					say(f.Path, t.line(d.Pos()), "func %s has no comment", d.Name.Name)
				}
			case *ast.GenDecl:
				checkGenDecl(t, f, d, say)
			}
		}
	}
}

func checkGenDecl(t *Tree, f *GoFile, d *ast.GenDecl, say report) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil && s.Comment == nil {
				say(f.Path, t.line(s.Pos()), "type %s has no comment", s.Name.Name)
			}
			if it, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() && len(it.Methods.List) > 25 {
				say(f.Path, t.line(s.Pos()), "interface %s has %d methods, more than 25", s.Name.Name, len(it.Methods.List))
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				// A group whose members say themselves what they are needs
				// one comment, or one at each type of constant.
				if name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil && !documentedGroup(d) {
					say(f.Path, t.line(name.Pos()), "%s %s has no comment", d.Tok, name.Name)
				}
			}
		}
	}
}

// documentedGroup reports whether the first member of a const or var group has
// a comment that can stand for those after it.
func documentedGroup(d *ast.GenDecl) bool {
	if d.Lparen == token.NoPos || len(d.Specs) == 0 {
		return false
	}
	first, ok := d.Specs[0].(*ast.ValueSpec)
	return ok && (first.Doc != nil || first.Comment != nil)
}

// exportedReceiver reports whether a function is of the package, or of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	return d.Recv == nil || len(d.Recv.List) == 0 || ast.IsExported(receiver(d.Recv.List[0].Type))
}

// packages returns the files of each folder that has files that are not tests,
// and of those that have tests only if tests is set.
func (t *Tree) packages(tests bool) map[string][]*GoFile {
	out := map[string][]*GoFile{}
	for _, f := range t.Go {
		if !f.Test || tests {
			out[f.Package] = append(out[f.Package], f)
		}
	}
	return out
}

func checkPackageDoc(t *Tree, say report) {
	for pkg, files := range t.packages(false) {
		documented := 0
		for _, f := range files {
			if f.AST.Doc != nil && len(strings.TrimSpace(f.AST.Doc.Text())) > 0 {
				documented++
			}
		}
		switch documented {
		case 0:
			say(files[0].Path, 0, "package %s has no comment: write doc.go with its job and its invariants", pkg)
		case 1:
		default:
			say(files[0].Path, 0, "package %s has %d package comments: keep one", pkg, documented)
		}
	}
}

func checkPackageName(t *Tree, say report) {
	bad := []string{"util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "base", "shared", "types"}
	for pkg, files := range t.packages(false) {
		name := files[0].AST.Name.Name
		if slices.Contains(bad, name) {
			say(files[0].Path, 0, "package name %s says nothing: name it after its job", name)
		}
		if last := pkg[strings.LastIndexByte(pkg, '/')+1:]; pkg != "" && name != "main" && last != name {
			say(files[0].Path, 0, "package %s is in folder %s: they should have one name", name, last)
		}
	}
}

// checkSkip keeps tests from being skipped but by internal/testrun, whose callers say why and whose two runs make a whole.
func checkSkip(t *Tree, say report) {
	for _, f := range t.Go {
		if !f.Test && !listed(f.Package, testOnly) && !listed(f.Package, free) || f.Package == "internal/testrun" {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if what := skips(call); what != "" {
				say(f.Path, t.line(call.Pos()), "%s", what)
			}
			return true
		})
	}
}

// skips says what is wrong with a call that leaves a test out, "" if nothing is.
func skips(call *ast.CallExpr) string {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	recv, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	switch name := sel.Sel.Name; {
	case slices.Contains([]string{"t", "b", "f", "tb", "rt"}, recv.Name) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name):
		return recv.Name + "." + name + ": a test that can be skipped proves nothing; what is missing must fail"
	case recv.Name == "testing" && name == "Short":
		return "testing.Short: internal/testrun says what a short run leaves out, and why"
	case recv.Name == "testrun" && name == "Long" && !reasoned(call):
		return "testrun.Long without a reason: say what makes the test long, and what the short run has instead"
	}
	return ""
}

// checkOrder keeps the order of protoreflect's Range, which changes from build to build, out of answers.
func checkOrder(t *Tree, say report) {
	for _, f := range t.Go {
		if f.Test || f.Package == "internal/prototree" {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			sel, isSel := call.Fun.(*ast.SelectorExpr)
			lit, isLit := call.Args[0].(*ast.FuncLit)
			if !isSel || !isLit || sel.Sel.Name != "Range" || len(lit.Type.Params.List) == 0 {
				return true
			}
			if typ, ok := lit.Type.Params.List[0].Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "FieldDescriptor" {
				say(f.Path, t.line(call.Pos()), "the order of Range changes from build to build: use prototree.EachField")
			}
			return true
		})
	}
}

// reasoned says whether the last argument of a call is a sentence, written there.
func reasoned(call *ast.CallExpr) bool {
	if len(call.Args) == 0 {
		return false
	}
	why, ok := call.Args[len(call.Args)-1].(*ast.BasicLit)
	return ok && why.Kind == token.STRING && strings.Count(why.Value, " ") >= 3
}

// checkGoroutine wants every package that starts goroutines to prove in its
// tests that they end.
func checkGoroutine(t *Tree, say report) {
	starts, proves := map[string]*GoFile{}, map[string]bool{}
	lines := map[string]int{}
	for _, f := range t.Go {
		if f.Test {
			for _, spec := range f.AST.Imports {
				if spec.Path.Value == `"go.uber.org/goleak"` {
					proves[f.Package] = true
				}
			}
			// Its Main looks for goroutines that are left.
			if bytes.Contains(t.text[f.Path], []byte("pgtest.Main(")) {
				proves[f.Package] = true
			}
			continue
		}
		if listed(f.Package, free) || listed(f.Package, testOnly) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok && starts[f.Package] == nil {
				starts[f.Package], lines[f.Package] = f, t.line(g.Pos())
			}
			return true
		})
	}
	for pkg, f := range starts {
		if !proves[pkg] {
			say(f.Path, lines[pkg], "package %s starts goroutines, but no test of it imports go.uber.org/goleak to see them end", pkg)
		}
	}
}

// checkCodes wants each SQLSTATE to have one name.
func checkCodes(t *Tree, say report) {
	seen := map[string]string{}
	for _, f := range t.Go {
		if f.Package != "sqlstate" || f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.ValueSpec)
				if !ok || len(s.Values) != 1 || len(s.Names) != 1 {
					continue
				}
				typ, isCode := s.Type.(*ast.Ident)
				lit, isLit := s.Values[0].(*ast.BasicLit)
				if !isCode || typ.Name != "Code" || !isLit {
					continue
				}
				code, err := strconv.Unquote(lit.Value)
				if err != nil || len(code) != 5 {
					say(f.Path, t.line(s.Pos()), "%s = %s is no SQLSTATE of five characters", s.Names[0].Name, lit.Value)
					continue
				}
				if other, dup := seen[code]; dup {
					say(f.Path, t.line(s.Pos()), "%s and %s are the same SQLSTATE %s", other, s.Names[0].Name, code)
				}
				seen[code] = s.Names[0].Name
			}
		}
	}
}
