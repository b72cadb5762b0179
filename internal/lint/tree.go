package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Finding is one place that breaks a rule.
type Finding struct {
	File    string // slash-separated, from the root
	Line    int    // 0 for the whole file
	Rule    string // the rule's short name
	Message string // what to change
}

// String returns the finding as file:line: message (rule).
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s (%s)", f.File, f.Message, f.Rule)
	}
	return fmt.Sprintf("%s:%d: %s (%s)", f.File, f.Line, f.Message, f.Rule)
}

// Tree is a source tree, read and parsed once.
type Tree struct {
	fset *token.FileSet
	text map[string][]byte // every text file by path
	Go   []*GoFile
}

// GoFile is a parsed Go file.
type GoFile struct {
	Path      string
	Package   string // folder; that of the root is called like its package
	Test      bool
	Generated bool
	AST       *ast.File
}

// texts are the kinds of files that are read.
var texts = []string{".go", ".md", ".sh", ".yaml", ".yml", ".sql", ".txt", ".mod", ".svg"}

// Load reads all source and documentation below the root of fsys. Folders that
// begin with a dot (except .ci), testdata, and what a build leaves behind
// (bin) are left out.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{fset: token.NewFileSet(), text: map[string][]byte{}}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			hidden := strings.HasPrefix(name, ".") && p != "." && name != ".ci"
			if hidden || name == "testdata" || p == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(texts, path.Ext(name)) && name != "Makefile" && !strings.HasPrefix(p, ".ci/") {
			return nil
		}
		b, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		t.text[p] = b
		if path.Ext(name) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(t.fset, p, b, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("lint: %w", err)
		}
		dir := path.Dir(p)
		if dir == "." {
			dir = client
		}
		t.Go = append(t.Go, &GoFile{Path: p, Package: dir, Test: strings.HasSuffix(p, "_test.go"), Generated: ast.IsGenerated(f), AST: f})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tree) line(p token.Pos) int { return t.fset.Position(p).Line }

func (t *Tree) paths() []string {
	out := make([]string, 0, len(t.text))
	for p := range t.text {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// Check returns every finding of every rule, in order of place.
func Check(t *Tree) []Finding {
	var all []Finding
	for _, rule := range rules {
		rule.run(t, func(file string, line int, format string, args ...any) {
			all = append(all, Finding{File: file, Line: line, Rule: rule.name, Message: fmt.Sprintf(format, args...)})
		})
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	return all
}

type report func(file string, line int, format string, args ...any)

var rules = []struct {
	name string
	run  func(*Tree, report)
}{
	{"imports", checkImports},
	{"modules", checkModules},
	{"clock", checkClock},
	{"format", checkFormat},
	{"length", checkLength},
	{"open-work", checkOpenWork},
	{"exported-doc", checkExportedDoc},
	{"package-doc", checkPackageDoc},
	{"package-name", checkPackageName},
	{"no-skip", checkSkip},
	{"order", checkOrder},
	{"goroutine", checkGoroutine},
	{"sqlstate", checkCodes},
	{"refusals", checkRefusals},
	{"docs", checkDocs},
	{"words", checkWords},
	{"ratchet", checkRatchets},
}
