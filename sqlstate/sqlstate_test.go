package sqlstate

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// TestCodes reads the registry's source: each code is well formed and given once.
func TestCodes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "sqlstate.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`^"[0-9A-Z]{5}"$`)
	seen := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		id, ok := spec.Type.(*ast.Ident)
		if !ok || id.Name != "Code" {
			return true
		}
		code := spec.Values[0].(*ast.BasicLit).Value
		if !shape.MatchString(code) {
			t.Errorf("%s has the code %s", spec.Names[0].Name, code)
		}
		if other, twice := seen[code]; twice {
			t.Errorf("%s and %s have the same code %s", spec.Names[0].Name, other, code)
		}
		seen[code] = spec.Names[0].Name
		return true
	})
	if len(seen) < 50 {
		t.Fatalf("only %d codes were found", len(seen))
	}
	// The private code is in a class that the standard leaves to implementations.
	if c := NotOwner[0]; c < 'I' || c > 'Z' {
		t.Errorf("%s is in a class that the standard reserves", NotOwner)
	}
}

func TestErrorTellsAll(t *testing.T) {
	cause := errors.New("connection refused")
	e := Wrap(cause, CannotConnectNow, "shard %s cannot be reached", "shard-1").OnShard("shard-1").WithHint("cleave doctor").WithDetail("tried twice")
	e.Keyspace, e.Range, e.Epoch, e.Op = "hash_bigint", "[0,5)", 7, "move"
	for _, want := range []string{"move: shard shard-1 cannot be reached", "shard shard-1", "keyspace hash_bigint", "range [0,5)", "epoch 7", "57P03", "tried twice", "connection refused", "hint: cleave doctor"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q lacks %q", e.Error(), want)
		}
	}
	wrapped := fmt.Errorf("while starting: %w", e)
	if !errors.Is(wrapped, cause) || !errors.Is(wrapped, &Error{Code: CannotConnectNow}) || errors.Is(wrapped, &Error{Code: InternalError}) {
		t.Error("errors.Is does not see the cause or the code")
	}
	if CodeOf(wrapped) != CannotConnectNow || CodeOf(nil) != "" || CodeOf(cause) != InternalError {
		t.Error("CodeOf")
	}
	if As(wrapped) != e || As(cause).Code != InternalError || !errors.Is(As(cause), cause) {
		t.Error("As")
	}
}

// TestCatalogue compares the catalogue with the registry: each code once, in order.
func TestCatalogue(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "sqlstate.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Code" {
				codes[Code(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))] = true
			}
		}
		return true
	})
	before := Code("")
	for _, e := range Catalogue() {
		if e.Code <= before && e.Code != NotOwner && before != "" {
			t.Errorf("%s comes after %s", e.Code, before)
		}
		before = e.Code
		if !codes[e.Code] {
			t.Errorf("%s is not in the registry, or twice in the catalogue", e.Code)
		}
		delete(codes, e.Code)
		if e.Condition == "" || e.Meaning == "" || e.Effect.Text() == "" {
			t.Errorf("%s says too little", e.Code)
		}
	}
	for c := range codes {
		t.Errorf("%s is not in the catalogue", c)
	}
}

// TestRefusal: the id is told behind the hint, and is taken out of it again.
func TestRefusal(t *testing.T) {
	e := Refusal("CLV-0801", "a temporary table cannot have the name of %s", "t").WithHint("Give it another name.")
	if e.Code != FeatureNotSupported || e.Message != "a temporary table cannot have the name of t" || e.Advice() != "Give it another name. (CLV-0801)" {
		t.Errorf("%+v, %q", e, e.Advice())
	}
	if !strings.Contains(e.Error(), "CLV-0801") {
		t.Errorf("%q lacks the id", e.Error())
	}
	for _, hint := range []string{"", "Give it another name."} {
		told := &Error{Hint: (&Error{ID: "CLV-0801", Hint: hint}).Advice(), Routine: "CLV-0801"}
		want := told.Hint
		if got := told.Received(); got.ID != "CLV-0801" || got.Routine != "" || got.Advice() != want {
			t.Errorf("%q comes back as %+v", want, got)
		}
	}
	if e := (&Error{Hint: "h (CLV-0801)", Routine: "parserOpenTable"}).Received(); e.ID != "" || e.Routine == "" || e.Hint != "h (CLV-0801)" {
		t.Errorf("an error of PostgreSQL's has become %+v", e)
	}
	for id, want := range map[ID]string{"CLV-0101": "Shard keys", "CLV-0200": "Shard keys", "CLV-0201": "Reads over several shards", "CLV-2999": "SQLite shards", "CLV-0100": "", "CLV-101": "", "x": "", "CLV-00x1": ""} {
		if s, _ := SectionOf(id); s.Title != want {
			t.Errorf("%s is in %q, want %q", id, s.Title, want)
		}
	}
	before := 0
	for _, s := range Sections() {
		if s.From <= before || s.From%100 != 0 || s.Title == "" {
			t.Errorf("section %+v", s)
		}
		before = s.From
	}
}
