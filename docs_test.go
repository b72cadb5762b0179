package cleave_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentation: the code of docs/go.md is that of the examples, which run.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	tested, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(tested), b[1]) {
			t.Errorf("not in example_test.go:\n%s", b[1])
		}
	}
}
