package sqlite

import (
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine/sqlite/copytext"
	"github.com/cleavedb/cleave/engine/sqlite/value"
)

func TestCopyText(t *testing.T) {
	for line, want := range map[string][]copytext.Field{
		"":                       {{Text: ""}},
		"a":                      {{Text: "a"}},
		"a\tb":                   {{Text: "a"}, {Text: "b"}},
		"\t":                     {{}, {}},
		`\N`:                     {{Null: true}},
		"\\N\t\\N":               {{Null: true}, {Null: true}},
		`\\N`:                    {{Text: `\N`}},
		`a\N`:                    {{Text: "aN"}},
		"\\\t":                   {{Text: "\t"}},
		"a\\\tb\tc":              {{Text: "a\tb"}, {Text: "c"}},
		`\b\f\n\r\t\v\\`:         {{Text: "\b\f\n\r\t\v\\"}},
		"\\101\\1012\t\\x41\\xg": {{Text: "AA2"}, {Text: "Axg"}},
		"x\\t\t":                 {{Text: "x\t"}, {}},
	} {
		got, err := copytext.Split(nil, line)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", line, got, err, want)
		}
	}
	if _, err := copytext.Split(nil, `a\`); err == nil {
		t.Error("a backslash at the end is read")
	}
	long := strings.Repeat("long ", 100_000)
	r := copytext.NewReader(strings.NewReader("one\r\n\n" + long + "\n\\.\nrest"))
	for _, want := range []string{"one", "", long} {
		if got, err := r.Line(); err != nil || got != want {
			t.Fatalf("%.40q, %v, want %.40q", got, err, want)
		}
	}
	if got, err := r.Line(); err != io.EOF {
		t.Fatalf("%q, %v after the end", got, err)
	}
}

func FuzzCopyText(f *testing.F) {
	f.Add("a\tb\\\n", "\x01\r\v")
	f.Fuzz(func(t *testing.T, a, b string) {
		line := copytext.AppendEscaped([]byte("before\t"), 0)
		line = line[:0]
		for i, s := range []string{a, b} {
			if i > 0 {
				line = append(line, '\t')
			}
			from := len(line)
			line = copytext.AppendEscaped(append(line, s...), from)
		}
		if strings.ContainsAny(string(line), "\n\r") {
			t.Fatalf("%q has a line's end", line)
		}
		got, err := copytext.Split(nil, string(line))
		if err != nil || len(got) != 2 || got[0] != (copytext.Field{Text: a}) || got[1] != (copytext.Field{Text: b}) {
			t.Fatalf("%q, %q: %q gives %+v, %v", a, b, line, got, err)
		}
	})
}

func TestPackedValues(t *testing.T) {
	values := []value.Datum{{}, value.Int(0), value.Int(-1), value.Int(-1 << 63), value.Int(1<<63 - 1), {Kind: 'f', Float: 0.1}, {Kind: 'f', Float: math.Copysign(0, -1)}, value.Text(""), value.Text("é\x00"), value.Blob(""), value.Blob("\x00\xff")}
	var b []byte
	for _, v := range values {
		b = packDatum(b, v)
	}
	for cut := range b {
		rest := b[:cut]
		for range values {
			_, next, err := unpackDatum(rest)
			if err != nil {
				break
			}
			rest = next
		}
	}
	for i, want := range values {
		var got value.Datum
		var err error
		if got, b, err = unpackDatum(b); err != nil || got != want {
			t.Fatalf("value %d: %+v, %v, want %+v", i, got, err, want)
		}
	}
	if len(b) > 0 {
		t.Fatalf("%d bytes are left", len(b))
	}
}
