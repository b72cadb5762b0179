package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Refusal is a place that refuses a statement, with its words: what is put in at run time is an ellipsis.
type Refusal struct {
	ID             sqlstate.ID
	Sentence, Hint string
	File           string
	Line           int
}

// Refusals returns the refusals of the source, in order of place: calls of sqlstate.Refusal, and of functions that hand
// their own parameters to such a call.
func (t *Tree) Refusals() []Refusal {
	packages := map[string][]*GoFile{}
	for _, f := range t.Go {
		if !f.Test && !listed(f.Package, free) && !listed(f.Package, testOnly) && f.Package != "sqlstate" {
			packages[f.Package] = append(packages[f.Package], f)
		}
	}
	// What a package exports makes refusals in the others, too.
	shared := map[string][]maker{}
	for _, files := range packages {
		for name, found := range makersOf(files, nil) {
			if ast.IsExported(name) && name != "Refusal" {
				shared[name] = append(shared[name], found...)
			}
		}
	}
	var out []Refusal
	for _, files := range packages {
		makers, texts := makersOf(files, shared), textsOf(files)
		for _, f := range files {
			eachCall(f.AST, func(call *ast.CallExpr, hint ast.Expr) {
				for _, m := range makers[called(call)] {
					if r, ok := m.at(call, hint, texts); ok {
						r.File, r.Line = f.Path, t.line(call.Pos())
						out = append(out, r)
					}
				}
			})
		}
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return out
}

// anID is a literal that looks like the id of a refusal.
var anID = regexp.MustCompile(`^"CLV-.+"$`)

// beginsLow is a text whose first word is a plain one in lower case: no option, and no call of a function.
var beginsLow = regexp.MustCompile(`^[a-z][a-z-]*([ ,:;.]|$)`)

// checkRefusals wants an id to have one sentence and one hint that is a sentence, and a section to have no gap: an id is never used again.
func checkRefusals(t *Tree, say report) {
	of := map[sqlstate.ID]Refusal{}
	seen := map[string]int{} // literals of a file that Refusals has found
	for _, r := range t.Refusals() {
		seen[r.File+string(r.ID)]++
		if _, ok := sqlstate.SectionOf(r.ID); !ok {
			say(r.File, r.Line, "%s is no id of a refusal: CLV- and four digits, in a section of sqlstate.Sections", r.ID)
		}
		if slices.Contains(sqlstate.Withdrawn, r.ID) {
			say(r.File, r.Line, "%s was withdrawn: an id is not used again", r.ID)
		}
		if was, ok := of[r.ID]; !ok {
			of[r.ID] = r
		} else if was.Sentence != r.Sentence || was.Hint != r.Hint {
			say(r.File, r.Line, "%s has other words at %s:%d: an id stands for one sentence and one hint", r.ID, was.File, was.Line)
		}
		if h := strings.TrimSpace(r.Hint); h != "" && (beginsLow.MatchString(h) || !strings.HasSuffix(h, ".") && !strings.HasSuffix(h, "…")) {
			say(r.File, r.Line, "%s has the hint %q: a hint is a sentence with a capital and a period", r.ID, h)
		}
	}
	for _, lit := range t.idLiterals() {
		place := lit.File + string(lit.ID)
		if seen[place]--; seen[place] < 0 {
			say(lit.File, lit.Line, "the id %s is not an argument that sqlstate.Refusal gets, by itself", lit.ID)
		}
	}
	for _, gap := range gaps(of) {
		say("sqlstate/refusal.go", 0, "no refusal has the id %s: it is withdrawn (sqlstate.Withdrawn), or the next to be given", gap)
	}
}

// idLiterals are all literals that look like an id.
func (t *Tree) idLiterals() (out []Refusal) {
	for _, f := range t.Go {
		if f.Test || f.Package == "sqlstate" || listed(f.Package, free) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && anID.MatchString(lit.Value) {
				out = append(out, Refusal{ID: sqlstate.ID(strings.Trim(lit.Value, `"`)), File: f.Path, Line: t.line(lit.Pos())})
			}
			return true
		})
	}
	return out
}

// gaps are the ids of a section that are below its highest, neither made nor withdrawn.
func gaps(of map[sqlstate.ID]Refusal) (out []sqlstate.ID) {
	highest := map[int]int{}
	for id := range of {
		if s, ok := sqlstate.SectionOf(id); ok {
			n, _ := id.Number()
			highest[s.From] = max(highest[s.From], n)
		}
	}
	for _, s := range sqlstate.Sections() {
		for n := s.From + 1; n < highest[s.From]; n++ {
			id := sqlstate.ID("CLV-" + strconv.Itoa(10000 + n)[1:])
			if _, ok := of[id]; !ok && !slices.Contains(sqlstate.Withdrawn, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// maker is a call that makes a refusal, in a function with parameters that it uses.
type maker struct {
	params        []string
	variadic      bool // more arguments may follow
	id, why, hint ast.Expr
}

// makersOf finds the functions of a package that make refusals of their parameters, by name; others are makers already.
func makersOf(files []*GoFile, others map[string][]maker) map[string][]maker {
	makers := map[string][]maker{
		"Refusal": {{params: []string{"id", "why"}, variadic: true, id: ast.NewIdent("id"), why: ast.NewIdent("why")}},
	}
	for name, found := range others {
		makers[name] = found
	}
	for again := true; again; {
		again = false
		for _, file := range files {
			for _, f := range file.AST.Decls {
				if f, ok := f.(*ast.FuncDecl); ok && f.Body != nil && makers[f.Name.Name] == nil {
					if found := handsOn(f, makers); len(found) > 0 {
						makers[f.Name.Name], again = found, true
					}
				}
			}
		}
	}
	return makers
}

// handsOn finds the refusals in a function that are made of its parameters.
func handsOn(f *ast.FuncDecl, known map[string][]maker) (out []maker) {
	var params []string
	variadic := false
	for _, p := range f.Type.Params.List {
		if _, variadic = p.Type.(*ast.Ellipsis); variadic {
			break
		}
		for _, n := range p.Names {
			params = append(params, n.Name)
		}
	}
	eachCall(f.Body, func(call *ast.CallExpr, hint ast.Expr) {
		for _, m := range known[called(call)] {
			env := m.bound(call)
			if env == nil {
				continue
			}
			is := maker{params: params, variadic: variadic, id: substitute(m.id, env), why: substitute(m.why, env), hint: substitute(m.hint, env)}
			if hint != nil {
				is.hint = hint
			}
			if uses(is.id, params) {
				out = append(out, is)
			}
		}
	})
	return out
}

func uses(e ast.Expr, params []string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && slices.Contains(params, id.Name) {
			found = true
		}
		return true
	})
	return found
}

// bound are the arguments by the names of the parameters, nil if they do not fit.
func (m maker) bound(call *ast.CallExpr) map[string]ast.Expr {
	if len(call.Args) < len(m.params) || len(call.Args) > len(m.params) && !m.variadic {
		return nil
	}
	env := map[string]ast.Expr{}
	for i, p := range m.params {
		env[p] = call.Args[i]
	}
	return env
}

// at is the refusal that a call makes; not one of a function that hands the call's words on.
func (m maker) at(call *ast.CallExpr, hint ast.Expr, texts map[string]ast.Expr) (r Refusal, ok bool) {
	env := m.bound(call)
	if env == nil {
		return r, false
	}
	if hint == nil {
		hint = substitute(m.hint, env)
	}
	r.Sentence, r.Hint = words(substitute(m.why, env), texts), words(hint, texts)
	r.ID = idOf(m.id, env)
	return r, r.ID != ""
}

// eachCall calls f for every call, with the argument of the WithHint that is called of what it returns.
func eachCall(root ast.Node, f func(call *ast.CallExpr, hint ast.Expr)) {
	hints := map[*ast.CallExpr]ast.Expr{}
	ast.Inspect(root, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		hint := hints[call]
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if inner, ok := sel.X.(*ast.CallExpr); ok {
				if hints[inner] = hint; sel.Sel.Name == "WithHint" && len(call.Args) > 0 {
					hints[inner] = call.Args[0]
				}
			}
		}
		f(call, hint)
		return true
	})
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

// idOf is the id that an expression is, "" if it is no literal.
func idOf(e ast.Expr, env map[string]ast.Expr) sqlstate.ID {
	lit, ok := substitute(e, env).(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return sqlstate.ID(s)
}

var verbs = regexp.MustCompile(`%[sqdvT]`)

// textsOf are the constants of a package that are literals, by name.
func textsOf(files []*GoFile) map[string]ast.Expr {
	texts := map[string]ast.Expr{}
	for _, f := range files {
		for _, decl := range f.AST.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.ValueSpec); ok && len(s.Names) == len(s.Values) {
					for i, name := range s.Names {
						if lit, ok := s.Values[i].(*ast.BasicLit); ok {
							texts[name.Name] = lit
						}
					}
				}
			}
		}
	}
	return texts
}

// words is the text of an expression that makes one; texts are the constants.
func words(e ast.Expr, texts map[string]ast.Expr) string {
	switch e := e.(type) {
	case nil:
		return ""
	case *ast.Ident:
		if lit, ok := texts[e.Name]; ok {
			return words(lit, nil)
		}
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return strings.ReplaceAll(verbs.ReplaceAllString(s, "…"), "%%", "%")
		}
	case *ast.BinaryExpr:
		return strings.ReplaceAll(words(e.X, texts)+words(e.Y, texts), "……", "…")
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			return words(e.Args[0], texts)
		}
	case *ast.ParenExpr:
		return words(e.X, texts)
	}
	return "…"
}
