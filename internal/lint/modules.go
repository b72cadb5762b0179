package lint

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// clientModules are what a program that imports the Go client gets with it: the modules that its rooms import.
var clientModules = []string{
	"github.com/google/uuid",
	"github.com/jackc/pgx/v5",
	"github.com/pganalyze/pg_query_go/v6",
	"github.com/prometheus/client_golang",
	"github.com/xdg-go/stringprep",
	"go.etcd.io/etcd/api/v3",
	"go.etcd.io/etcd/client/v3",
	"go.opentelemetry.io",
	"go.uber.org/zap",
	"golang.org/x/sync",
	"golang.org/x/sys",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
	"gopkg.in/yaml.v3",
	"modernc.org/libc",
	"modernc.org/sqlite",
	"zombiezen.com/go/sqlite",
}

// requirement is a line of a go.mod file.
type requirement struct {
	path, version string
	indirect      bool
	line          int
}

// requirements reads a go.mod file; parent reports whether it replaces this module by the folder above.
func requirements(text string) (list []requirement, parent bool) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		code, comment, _ := strings.Cut(strings.TrimSpace(line), "//")
		f := strings.Fields(strings.TrimPrefix(code, "require "))
		if len(f) == 2 && strings.HasPrefix(f[1], "v") && strings.Contains(f[0], ".") {
			list = append(list, requirement{f[0], f[1], strings.TrimSpace(comment) == "indirect", n})
		}
		parent = parent || strings.HasPrefix(code, "replace "+Module+" => ..")
	}
	return list, parent
}

// checkModules wants dependencies of tests and benchmarks in the modules of these: nothing in the main module's go.mod that only they
// use, nothing in the client's rooms that is not for its users, and the same versions in all.
func checkModules(t *Tree, say report) {
	text, ok := t.text["go.mod"]
	if !ok {
		return
	}
	main, _ := requirements(string(text))
	nested := sameVersions(t, main, say)
	used := imported(t, func(f *GoFile) bool { return !listed(f.Package, nested) })
	for _, r := range main {
		if !r.indirect && !slices.ContainsFunc(used, func(p string) bool { return within(p, r.path) }) {
			say("go.mod", r.line, "%s is imported by no package of the main module: the module of who needs it requires it", r.path)
		}
	}
	reached := reach(t, client)
	for _, p := range imported(t, func(f *GoFile) bool { return !f.Test && reached[f.Package] }) {
		if !listed(p, clientModules) {
			say("go.mod", 0, "%s would come with the Go client: add it to clientModules in internal/lint/modules.go if its users need it", p)
		}
	}
}

// sameVersions compares the nested modules that are built with the main one beside them, and returns the folders of all.
func sameVersions(t *Tree, main []requirement, say report) (nested []string) {
	for _, p := range t.paths() {
		if path.Base(p) != "go.mod" || p == "go.mod" {
			continue
		}
		nested = append(nested, path.Dir(p))
		list, parent := requirements(string(t.text[p]))
		for _, r := range list {
			i := slices.IndexFunc(main, func(m requirement) bool { return m.path == r.path })
			if parent && i >= 0 && main[i].version != r.version {
				say(p, r.line, "%s is %s here and %s in the main module: what is tested would not be what is built", r.path, r.version, main[i].version)
			}
		}
	}
	return nested
}

func importPath(quoted string) string {
	p, _ := strconv.Unquote(quoted) // the parser has read it
	return p
}

// outside reports whether an import is neither of the standard library nor of this module.
func outside(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return strings.Contains(first, ".") && !within(p, Module)
}

// imported are the packages from outside that some files import.
func imported(t *Tree, which func(*GoFile) bool) (list []string) {
	for _, f := range t.Go {
		if !which(f) {
			continue
		}
		for _, spec := range f.AST.Imports {
			if p := importPath(spec.Path.Value); outside(p) && !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

// reach are the packages of this module that one of them imports, itself and through others, without tests.
func reach(t *Tree, from string) map[string]bool {
	imports := map[string][]string{}
	for _, f := range t.Go {
		if f.Test {
			continue
		}
		for _, spec := range f.AST.Imports {
			if p := importPath(spec.Path.Value); within(p, Module) {
				imports[f.Package] = append(imports[f.Package], strings.TrimPrefix(strings.TrimPrefix(p, Module), "/"))
			}
		}
	}
	out := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; {
		pkg := todo[0]
		todo = todo[1:]
		if pkg == "" {
			pkg = client
		}
		if !out[pkg] {
			out[pkg] = true
			todo = append(todo, imports[pkg]...)
		}
	}
	return out
}
