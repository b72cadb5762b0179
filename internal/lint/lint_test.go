package lint

import (
	"flag"
	"fmt"
	"go/parser"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write the ratchets' file with what has sunk; nothing rises by it")

// root is the repository, seen from this package's folder, where tests run.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRepository(t *testing.T) {
	tree, err := Load(os.DirFS(root(t)))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		b, err := Sink(tree)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root(t), filepath.FromSlash(RatchetFile)), b, 0o644); err != nil {
			t.Fatal(err)
		}
		if tree, err = Load(os.DirFS(root(t))); err != nil {
			t.Fatal(err)
		}
	}
	if len(tree.Go) < 10 {
		t.Fatalf("only %d Go files were read", len(tree.Go))
	}
	for _, f := range Check(tree) {
		t.Error(f)
	}
}

// TestRulesCanFail shows each rule a tree that breaks it and one that does not.
func TestRulesCanFail(t *testing.T) {
	marker := "TO" + "DO"
	good := map[string]string{
		"README.md":            "# Cleave\n[docs](docs/a.md#what-it-is) [x](https://example.org/nothing)\n```\n[no](nowhere.md)\n```\n",
		"docs/a.md":            "## What it is\n`[no](nowhere.md)`\n[back](../README.md)\n`who" + "ever`\n\nThat is what is\n\nthe" + "re.\n```\nis sa" + "id\n```\n",
		"keyspace/doc.go":      "// Package keyspace is documented.\npackage keyspace\n",
		"keyspace/key.go":      "package keyspace\n\n// K is documented. That is what is therefore.\nconst K = 1\n\nvar text = \"who" + "ever\"\n\n// A group.\nconst (\n\tA = 1\n\tB = 2\n)\n\nfunc alike(a, b struct{ Engine string }) bool { return a.Engine == b.Engine }\n",
		"sqlstate/code.go":     "// Package sqlstate is documented.\npackage sqlstate\n\n// Code is documented.\ntype Code string\n\n// Codes.\nconst (\n\tA Code = \"00000\"\n\tB Code = \"00001\"\n)\n",
		"engine/go.go":         "// Package engine is documented.\npackage engine\n\nfunc run() { go run() }\n",
		"go.mod":               "module github.com/cleavedb/cleave\n\nrequire (\n\texample.org/thing v1.0.0\n\texample.org/deep v1.0.0 // indirect\n)\n",
		"engine/thing_test.go": "package engine\n\nimport _ \"example.org/thing/part\"\n",
		"engine/leak_test.go":  "package engine\n\nimport _ \"go.uber.org/goleak\"\n",
	}
	cases := []struct {
		rule, file, text, want string
	}{
		{"imports", "keyspace/a.go", "package keyspace\n\nimport _ \"github.com/cleavedb/cleave/planner\"\n", "planner stands after keyspace"},
		{"imports", "keyspace/a_test.go", "package keyspace\n\nimport _ \"github.com/cleavedb/cleave/gateway\"\n", "gateway stands after keyspace"},
		{"imports", "planner/a.go", "// Package planner is documented.\npackage planner\n\nimport _ \"github.com/cleavedb/cleave/engine\"\n", "planner must not know engine"},
		{"imports", "planner/a.go", "// Package planner is documented.\npackage planner\n\nimport _ \"net/http\"\n", "planner only computes"},
		{"imports", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nimport _ \"github.com/cleavedb/cleave/engine/sqlite\"\n", "a driver is known to"},
		{"imports", "cmd/cleave/a.go", "// Package main is documented.\npackage main\n\nimport _ \"github.com/cleavedb/cleave/engine/sqlite\"\n", "a driver is known to internal/wiring"},
		{"imports", "client.go", "// Package cleave is documented.\npackage cleave\n\nimport _ \"github.com/cleavedb/cleave/shardmap/memory\"\n", "a driver is known to internal/wiring"},
		{"imports", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nimport _ \"github.com/cleavedb/cleave\"\n", "cleave stands after gateway"},
		{"imports", "engine/sqlite/a.go", "// Package sqlite is documented.\npackage sqlite\n\nimport _ \"github.com/cleavedb/cleave/engine/postgres\"\n", "a driver is known to"},
		{"imports", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nimport _ \"github.com/cleavedb/cleave/engine/enginetest\"\n", "is for tests only"},
		{"imports", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nimport _ \"github.com/cleavedb/cleave/internal/config\"\n", "is only for cmd/cleave"},
		{"imports", "internal/config/a.go", "// Package config is documented.\npackage config\n\nimport _ \"github.com/cleavedb/cleave/shardmap\"\n", "knows only the standard library, sqlstate"},
		{"imports", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nimport _ \"github.com/spf13/cobra\"\n", "only cmd/cleave may"},
		{"imports", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nimport _ \"github.com/cleavedb/cleave/test/e2e\"\n", "nobody imports programs"},
		{"imports", "attic/a.go", "// Package attic is documented.\npackage attic\n", "is in no row of the table"},
		{"modules", "go.mod", "module github.com/cleavedb/cleave\n\nrequire example.org/plots v1.2.3\n", "is imported by no package of the main module"},
		{"modules", "test/go.mod", "module github.com/cleavedb/cleave/test\n\nrequire (\n\texample.org/thing v1.1.0\n)\n\nreplace github.com/cleavedb/cleave => ..\n", "v1.1.0 here and v1.0.0 in"},
		{"modules", "client.go", "// Package cleave is documented.\npackage cleave\n\nimport _ \"example.org/thing\"\n", "would come with the Go client"},
		{"clock", "keyspace/a.go", "package keyspace\n\nimport \"time\"\n\nvar now = time.Now()\n", "must not look at the clock"},
		{"format", "keyspace/a.go", "package keyspace\nvar   x = 1\n", "is not formatted"},
		{"length", "keyspace/a.go", "package keyspace\n" + strings.Repeat("\n// line\n", linesMax/2+1), "more than 800"},
		{"open-work", "keyspace/a.go", "package keyspace\n\n// " + marker + ": later\n", "do it"},
		{"open-work", "docs/a.md", "## What it is\n" + marker + "\n", "do it"},
		{"exported-doc", "keyspace/a.go", "package keyspace\n\nfunc Bare() {}\n", "func Bare has no comment"},
		{"exported-doc", "keyspace/a.go", "package keyspace\n\ntype Bare int\n", "type Bare has no comment"},
		{"exported-doc", "keyspace/a.go", "package keyspace\n\nvar Bare int\n", "var Bare has no comment"},
		{"exported-doc", "keyspace/a.go", "package keyspace\n\n// T is documented.\ntype T[V any] struct{ v V }\n\nfunc (t *T[V]) Bare() {}\n", "func Bare has no comment"},
		{"exported-doc", "keyspace/a.go", "package keyspace\n\n// Wide is documented.\ntype Wide interface {\n" + methods(26) + "}\n", "has 26 methods"},
		{"package-doc", "gateway/a.go", "package gateway\n", "has no comment"},
		{"package-doc", "keyspace/a.go", "// Package keyspace again.\npackage keyspace\n", "2 package comments"},
		{"package-name", "gateway/util/a.go", "// Package util is documented.\npackage util\n", "says nothing"},
		{"package-name", "gateway/session/a.go", "// Package other is documented.\npackage other\n", "should have one name"},
		{"no-skip", "keyspace/a_test.go", "package keyspace\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Skip() }\n", "proves nothing"},
		{"no-skip", "keyspace/a_test.go", "package keyspace\n\nimport \"testing\"\n\nvar short = testing.Short()\n", "internal/testrun says"},
		{"no-skip", "keyspace/a_test.go", "package keyspace\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { testrun.Long(t, \"slow\") }\n", "without a reason"},
		{"order", "keyspace/a.go", "package keyspace\n\nfunc f(m protoreflect.Message) {\n\tm.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool { return true })\n}\n", "prototree.EachField"},
		{"goroutine", "gateway/a.go", "// Package gateway is documented.\npackage gateway\n\nfunc run() { go run() }\n", "starts goroutines"},
		{"sqlstate", "sqlstate/b.go", "package sqlstate\n\n// More.\nconst C Code = \"00001\"\n", "are the same SQLSTATE"},
		{"sqlstate", "sqlstate/b.go", "package sqlstate\n\n// More.\nconst C Code = \"0001\"\n", "no SQLSTATE of five"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nvar e = sqlstate.Refusal(\"CLV-101\", \"no\")\n", "is no id of a refusal"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nvar e = sqlstate.Refusal(\"CLV-0102\", \"no\")\n", "no refusal has the id CLV-0101"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nvar a, b = sqlstate.Refusal(\"CLV-0101\", \"no\"), sqlstate.Refusal(\"CLV-0101\", \"never\")\n", "has other words at keyspace/a.go:3"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nvar a, b = sqlstate.Refusal(\"CLV-0101\", \"no\").WithHint(\"Yes.\"), sqlstate.Refusal(\"CLV-0101\", \"no\")\n", "has other words at keyspace/a.go:3"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nvar e = sqlstate.Refusal(\"CLV-0101\", \"no\").WithHint(\"use it.\")\n", "a hint is a sentence"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nvar e = sqlstate.Refusal(\"CLV-0101\", \"no\").WithHint(\"Use it\")\n", "a hint is a sentence"},
		{"refusals", "keyspace/a.go", "package keyspace\n\nconst id = \"CLV-0101\"\n\nvar e = sqlstate.Refusal(id, \"no\")\n", "is not an argument"},
		{"ratchet", "keyspace/a.go", "package keyspace\n\ntype wide int\n" + repeated(methodsMax+1, "\nfunc (w *wide) m%d() {}\n"), "methods of keyspace.wide: 61, more than 60"},
		{"ratchet", "keyspace/a.go", "package keyspace\n\nfunc f(n int) {\n" + repeated(complexityMax, "\tif n == %d {\n\t\tn++\n\t}\n") + "}\n", "complexity of keyspace.f: 51, more than 50"},
		{"ratchet", "keyspace/a.go", "package keyspace\n\nfunc f(n int) {\n" + repeated(complexFrom, "\tif n == %d {\n\t\tn++\n\t}\n") + "}\n", "functions above complexity 15: 1"},
		{"ratchet", "keyspace/a.go", "package keyspace\n\nfunc f(s struct{ Engine string }) bool { return s.Engine != \"\" }\n", "questions for an engine's name in package keyspace: 1"},
		{"ratchet", "docs/a.md", "## What it is\n" + strings.Repeat("word ", 30) + "\n", "long lines of docs/a.md: 1, more than 0"},
		{"ratchet", RatchetFile, "61 methods of keyspace.wide\n", "is within its bound now"},
		{"ratchet", RatchetFile, "many methods of keyspace.wide\n", "is not a figure"},
		{"words", "docs/a.md", "## What it is\nA row is for who" + "ever reads it.\n", "leaves something out"},
		{"words", "docs/a.md", "## What it is\n- It is\n  sa" + "id twice.\n", "leaves something out"},
		{"words", "keyspace/a.go", "package keyspace\n\n// They are sa" + "id to be two.\n", "leaves something out"},
		{"words", "keyspace/a.go", "package keyspace\n\nfunc f() {\n\t// It reads What is\n\t// the" + "re.\n}\n", "leaves something out"},
		{"words", "keyspace/a.go", "package keyspace\n\nconst a = 1 /* for who" + "ever\n * comes */\n", "leaves something out"},
		{"docs", "docs/b.md", "# B\n", "no link leads here"},
		{"docs", "docs/a.md", "## What it is\n[gone](c.md)\n", "leads nowhere"},
		{"docs", "docs/a.md", "## What it is\n[up](../../etc/passwd)\n", "leaves the repository"},
		{"docs", "docs/a.md", "## Something else\n", "has no such heading"},
		{"docs", "docs/a.md", "## What it is\nsee `keyspace/gone.go`, not `keyspace/key.go`\n", "there is no file keyspace/gone.go"},
	}
	if got := check(t, good, "", ""); len(got) > 0 {
		t.Fatalf("the good tree has findings: %v", got)
	}
	for _, c := range cases {
		got := check(t, good, c.file, c.text)
		found := false
		for _, f := range got {
			if f.Rule == c.rule && strings.Contains(f.Message, c.want) {
				found = true
			} else if f.Rule != c.rule {
				t.Errorf("%s %s: also %v", c.rule, c.want, f)
			}
		}
		if !found {
			t.Errorf("%s: %q not found in %v", c.rule, c.want, got)
		}
	}
	covered := map[string]bool{}
	for _, c := range cases {
		covered[c.rule] = true
	}
	for _, r := range rules {
		if !covered[r.name] {
			t.Errorf("no case breaks rule %s", r.name)
		}
	}
}

func TestUnreadableGoIsAnError(t *testing.T) {
	_, err := Load(fstest.MapFS{"keyspace/a.go": {Data: []byte("package keyspace\nfunc {")}})
	if err == nil {
		t.Error("a file that does not parse was accepted")
	}
}

// TestRoomsMatchTheDocument keeps the table here and the one that people read
// from drifting apart.
func TestRoomsMatchTheDocument(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, r := range rooms {
		i := strings.Index(string(b[at:]), "\n| `"+r+"`")
		if i < 0 {
			t.Errorf("docs/architecture.md: no row for %s, or it is out of order", r)
			continue
		}
		at += i + 1
	}
}

func check(t *testing.T, good map[string]string, file, text string) []Finding {
	t.Helper()
	m := fstest.MapFS{}
	for p, s := range good {
		m[p] = &fstest.MapFile{Data: []byte(s)}
	}
	if file != "" {
		m[file] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := Load(m)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return Check(tree)
}

// repeated is a text n times, each with its number.
func repeated(n int, text string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, text, i)
	}
	return b.String()
}

// TestRatchetsSink: what has sunk is written with its new figure, what has risen with its old one, and what is within its bound not at all.
func TestRatchetsSink(t *testing.T) {
	long := strings.Repeat("word ", 30) + "\n"
	tree, err := Load(fstest.MapFS{
		RatchetFile: {Data: []byte("# A comment.\n3 long lines of a.md\n1 long lines of b.md\n1 long lines of c.md\n")},
		"a.md":      {Data: []byte(long)},
		"b.md":      {Data: []byte(long + long + "| " + long + "```\n" + long + "```\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Sink(tree)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(string(b), "\n"); got != "1 long lines of a.md\n1 long lines of b.md\n" {
		t.Errorf("the file is\n%s", b)
	}
	var rises bool
	for _, f := range Check(tree) {
		rises = rises || strings.Contains(f.Message, "long lines of b.md: 2, more than the 1 of before")
	}
	if !rises {
		t.Errorf("a figure that has risen is not found: %v", Check(tree))
	}
}

func methods(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("\tM" + string(rune('A'+i)) + "()\n")
	}
	if _, err := parser.ParseExpr("interface {\n" + b.String() + "}"); err != nil {
		panic(err)
	}
	return b.String()
}

// TestRefusals: the words of a refusal are found where it is made, through functions that hand them on, and behind WithHint.
func TestRefusals(t *testing.T) {
	tree, err := Load(fstest.MapFS{"planner/a.go": {Data: []byte(`package planner

const again = "Run it again."

func not(id sqlstate.ID, what string, args ...any) error {
	return sqlstate.Refusal(id, what+" is not supported", args...).WithHint("See the page.")
}

func f(name string) {
	fail(not("CLV-0201", "%s of it", name))
	fail(sqlstate.Refusal("CLV-0203", "it").WithHint(again))
	fail(sqlstate.Refusal("CLV-0202", "100%% of %q", name).OnShard(name).WithHint("Give %s.", name).At(7))
}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range tree.Refusals() {
		fmt.Fprintf(&got, "%d %s|%s|%s\n", r.Line, r.ID, r.Sentence, r.Hint)
	}
	if want := "10 CLV-0201|… of it is not supported|See the page.\n11 CLV-0203|it|Run it again.\n12 CLV-0202|100% of …|Give ….\n"; got.String() != want {
		t.Errorf("found\n%swant\n%s", got.String(), want)
	}
}
