package momenttest

import (
	"errors"
	"strings"
	"testing"
)

// TestHistory: a client writes to a, and then to b.
func TestHistory(t *testing.T) {
	h := New()
	write := func(key string) {
		t.Helper()
		if err := h.Write(key, func(int) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("no")
	if err := h.Write("a", func(int) error { return failed }); err != failed {
		t.Error(err)
	}
	write("a")
	write("b")
	for _, try := range []struct {
		during  bool // the read goes on while both are written once more
		a, b    int
		problem string
	}{
		{a: 1, b: 1},
		{a: 0, b: 1, problem: "number 1 of a was told of"},
		{a: 0, b: 0, problem: "was told of"},
		{a: 2, b: 1, problem: "number 2 of a was not written"},
		{during: true, a: 1, b: 1},
		{during: true, a: 3, b: 2},
		{during: true, a: 3, b: 3},
		{during: true, a: 4, b: 5, problem: "before that of b began"},
		{during: true, a: 4, b: 4, problem: "was told of"},
	} {
		h.reads = nil
		if err := h.Read(func() (map[string]int, error) {
			if try.during {
				write("a")
				write("b")
			}
			return map[string]int{"a": try.a, "b": try.b}, nil
		}); err != nil {
			t.Fatal(err)
		}
		wrong := h.Check()
		if try.problem == "" && len(wrong) > 0 || try.problem != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], try.problem)) {
			t.Errorf("%+v: %q", try, wrong)
		}
	}
	if err := h.Read(func() (map[string]int, error) { return nil, failed }); err != failed || h.Reads() != 1 {
		t.Error(err)
	}
	h.reads = nil
	_ = h.Read(func() (map[string]int, error) { return map[string]int{"a": 6, "b": 6}, nil }) // it has no error
	h.reads[0].ended = 0
	if wrong := h.Check(); len(wrong) != 1 {
		t.Errorf("from later: %q", wrong)
	}
}
