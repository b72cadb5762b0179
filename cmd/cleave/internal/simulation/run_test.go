package simulation

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/keysource"
)

// TestProgress: what a terminal shows.
func TestProgress(t *testing.T) {
	s, _, err := keysource.Generator("serial:10000")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := &progress{w: &b, source: s}
	p.begin("keys")
	err = s.Rows(t.Context(), []int{0}, func([][]byte) error { p.row(); return nil })
	p.end()
	if err != nil || !strings.Contains(b.String(), "keys: 4,096 rows, ") || !strings.Contains(b.String(), " left") || !strings.HasSuffix(b.String(), "\r\x1b[K") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestListedValues(t *testing.T) {
	for check, want := range map[string]int{
		"CHECK ((status = ANY (ARRAY['new'::text, 'paid'::text, 'a,b]'::text])))":                     3,
		"CHECK (((c)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[])))": 2,
		"CHECK ((n = ANY (ARRAY[1, 2])))":                                                             0 + 2,
		"CHECK ((n > 0))":                                                                             0,
		"CHECK (((n = ANY (ARRAY[1, 2])) OR (n > 10)))":                                               0,
		"CHECK ((NOT (n = ANY (ARRAY[1, 2]))))":                                                       0,
		"CHECK ((n <> ALL (ARRAY[1, 2])))":                                                            0,
	} {
		if got := listedValues(check); got != want {
			t.Errorf("%s: %d, want %d", check, got, want)
		}
	}
}
