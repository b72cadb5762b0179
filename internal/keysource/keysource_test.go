package keysource

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is a Visitor that writes down what comes.
type seen struct {
	types       []keyspace.Type
	guessed     bool
	keys        []string
	null, empty int
}

func (s *seen) Types(t []keyspace.Type, guessed bool) { s.types, s.guessed = t, guessed }
func (s *seen) Key(k keyspace.Key) error              { s.keys = append(s.keys, k.String()); return nil }
func (s *seen) Null()                                 { s.null++ }
func (s *seen) Empty()                                { s.empty++ }

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// read reads all keys of a source, twice, and sees that both are equal.
func read(s Source, columns []string) (*seen, error) {
	at, err := Pick(s, "it", columns)
	if err != nil {
		return nil, err
	}
	var first, second seen
	if err := Keys(context.Background(), s, Options{Columns: at}, &first); err != nil {
		return nil, err
	}
	if err := Keys(context.Background(), s, Options{Columns: at, Types: first.types}, &second); err != nil {
		return nil, err
	}
	if !slices.Equal(first.keys, second.keys) || first.null != second.null || first.empty != second.empty {
		return nil, fmt.Errorf("two passes differ: %v, %v", first, second)
	}
	return &first, nil
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name, text  string
		columns     []string
		types, keys string
		null, empty int
	}{
		{"a.csv", "id,name\n1,x\n2,\"a,b\"\n", []string{"name"}, "text", "('x') ('a,b')", 0, 0},
		{"a.csv", "\xef\xbb\xbfid,name\r\n1,x\r\n2,y\r\n", []string{"ID"}, "bigint", "(1) (2)", 0, 0},
		{"a.csv", "region,tenant\neu,1\nus,\\N\n,3\n", []string{"region", "tenant"}, "text bigint", "('eu', 1)", 1, 1},
		{"b.tsv", "a\tb\n1\t\\N\n2\tx\\ty\n", []string{"b"}, "text", `('x` + "\t" + `y')`, 1, 0},
		{"c.jsonl", `{"t": 7, "u": "x"}` + "\n\n" + `{"u": "é"}` + "\n" + `{"t": null, "u": ""}` + "\n", []string{"u"}, "text", "('x') ('é')", 0, 1},
		{"c", `{"t": 7}` + "\n" + `{"t": 8}` + "\n", nil, "bigint", "(7) (8)", 0, 0},
		{"d", "one\ntwo\n\nthree", nil, "text", "('one') ('two') ('three')", 0, 1},
		{"d.csv.gz", zipped("id\n1\n2\n"), nil, "bigint", "(1) (2)", 0, 0},
		{"d", zipped("007\n7\n"), []string{"whatever"}, "text", "('007') ('7')", 0, 0},
		{"e", "00000000-0000-0000-0000-000000000001\n", nil, "uuid", "('00000000-0000-0000-0000-000000000001')", 0, 0},
		{"e", "2026-01-01\n2026-02-30\n", nil, "text", "('2026-01-01') ('2026-02-30')", 0, 0},
		{"e", "2026-01-01\n", nil, "date", "('2026-01-01')", 0, 0},
		{"e", "2026-01-01 10:00:00+02\n", nil, "timestamp with time zone", "('2026-01-01 08:00:00+00')", 0, 0},
		{"e", "2026-01-01 10:00:00\n", nil, "timestamp without time zone", "('2026-01-01 10:00:00')", 0, 0},
		{"e", "true\nfalse\n", nil, "boolean", "('t') ('f')", 0, 0},
		{"e", "1.5\n2\n", nil, "text", "('1.5') ('2')", 0, 0},
	} {
		path := write(t, c.name, c.text)
		for _, how := range []string{path, "-"} {
			raw, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			format := ""
			if how == "-" {
				format = guessFormat(c.name, []byte(strings.TrimPrefix(c.text, "\x1f\x8b")))
				if strings.HasSuffix(c.name, ".gz") {
					format = "csv"
				}
			}
			s, err := Open(how, format, raw, true)
			if err != nil {
				t.Fatalf("%s %q: %v", how, c.text, err)
			}
			got, err := read(s, c.columns)
			if err != nil {
				t.Fatalf("%s %q: %v", how, c.text, err)
			}
			var types []string
			for _, x := range got.types {
				types = append(types, x.String())
			}
			if strings.Join(types, " ") != c.types || strings.Join(got.keys, " ") != c.keys || got.null != c.null || got.empty != c.empty || !got.guessed {
				t.Errorf("%s %q: %v %q null %d empty %d", how, c.text, types, got.keys, got.null, got.empty)
			}
			if err := errors.Join(s.Close(), raw.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestBadInput gives what is no input: each is refused, saying why and where.
func TestBadInput(t *testing.T) {
	late := strings.Repeat("1\n", guessRows) + "x\n"
	for _, c := range []struct {
		name, text, format string
		columns            []string
		code               sqlstate.Code
		want, hint         string
	}{
		{"a.csv", "", "", nil, "22P04", "is empty", ""},
		{"a.csv", " \n\n", "", nil, "22P04", "is empty", ""},
		{"a.csv", "\x7fELF\x00\x00", "", nil, "22P04", "not a text file", ""},
		{"a.csv", "a,b\n1,2\n", "", []string{"c"}, "42703", `no column "c"`, "a, b"},
		{"a.csv", "a,b\n1,2\n", "", nil, "22023", "2 columns", "a, b"},
		{"a.csv", "a,b\n1,2\n", "", []string{"a", "a"}, "22023", "named twice", ""},
		{"a.csv", "a,b\n1,2,3\n", "", []string{"a"}, "22P04", "line 2", "--format"},
		{"a.csv", "a,a\n1,2\n", "", []string{"a"}, "22P04", "twice", ""},
		{"a.csv", "a,\n1,2\n", "", []string{"a"}, "22P04", "without a name", "lines"},
		{"a.csv", "a\n\"x\n", "", []string{"a"}, "22P04", "line", ""},
		{"a.tsv", "a\tb\n1\n", "", []string{"a"}, "22P04", "line 2: 1 values for 2 columns", ""},
		{"a.jsonl", "{\"a\": 1}\nnonsense\n", "", []string{"a"}, "22P04", "line 2", ""},
		{"a.jsonl", "{\"a\": 1}\n{\"a\": [1]}\n", "", []string{"a"}, "22P04", "not a single value", ""},
		{"a.jsonl", "[1]\n", "", nil, "22P04", "not a JSON object", ""},
		{"a", "\xff\xfe\n", "lines", nil, "22021", "row 1", ""},
		{"a", late, "lines", nil, "22P02", fmt.Sprintf("line %d", guessRows+1), "--type text"},
		{"a", "x", "xml", nil, "22023", `no format "xml"`, "jsonl"},
		{"a.gz", "\x1f\x8b\x08", "", nil, "22P04", "damaged", ""},
		{"a.gz", zipped(strings.Repeat("abc", 1000))[:30], "", nil, "22P04", "damaged", ""},
	} {
		s, err := Open(write(t, c.name, c.text), c.format, nil, false)
		if err == nil {
			_, err = read(s, c.columns)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		e := sqlstate.As(err)
		if err == nil || e.Code != c.code || !strings.Contains(err.Error(), c.want) || e.Hint == "" || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s %.40q: got %v (hint %q), want %s %q", c.name, c.text, err, sqlstate.As(err).Hint, c.code, c.want)
		}
	}
	for path, want := range map[string]string{"/does/not/exist": "58P01", t.TempDir(): "42809"} {
		if _, err := Open(path, "", nil, false); string(sqlstate.CodeOf(err)) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// endless is a text without an end, of one line.
type endless struct{ given atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	if e.given.Add(int64(len(p))) > 1<<30 {
		return 0, io.EOF
	}
	return len(p), nil
}

// TestLineOfAGigabyte is refused long before it is read, in every format.
func TestLineOfAGigabyte(t *testing.T) {
	for format, head := range map[string]string{"csv": "a\n\"", "tsv": "a\n", "lines": "", "jsonl": "{\"a\": 1}\n{\"a\": \""} {
		in := &endless{}
		s, err := Open("-", format, io.MultiReader(strings.NewReader(head), in), false)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = Keys(t.Context(), s, Options{Columns: []int{0}}, &seen{})
		runtime.ReadMemStats(&after)
		if sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded || !strings.Contains(err.Error(), "longer than 16 MiB") {
			t.Errorf("%s: %v", format, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 || in.given.Load() > 64<<20 {
			t.Errorf("%s: %d bytes were read, %d allocated", format, in.given.Load(), n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestInterrupt ends a read from an input that says nothing more.
func TestInterrupt(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, strings.Repeat("a\n", sniffed)) }()
	s, err := Open("-", "lines", r, true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := &counter{at: sniffed, then: cancel}
	if err := Keys(ctx, s, Options{Columns: []int{0}, Types: []keyspace.Type{keyspace.Text}}, got); !errors.Is(err, context.Canceled) || got.n < sniffed {
		t.Errorf("%v after %d keys", err, got.n)
	}
	if err := errors.Join(s.Close(), w.Close()); err != nil {
		t.Error(err)
	}
}

type counter struct {
	n, at int
	then  func()
}

func (c *counter) Types([]keyspace.Type, bool) {}
func (c *counter) Null()                       {}
func (c *counter) Empty()                      {}
func (c *counter) Key(keyspace.Key) error {
	if c.n++; c.n == c.at {
		c.then()
	}
	return nil
}

func TestGenerators(t *testing.T) {
	for text, keys := range map[string]int{"zipf:1.5:1000:50:3": 1000, "uniform:100:7": 100, "serial:20": 20, "serial:1_000": 1000} {
		s, ok, err := Generator(text)
		if err != nil || !ok {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := read(s, nil)
		if err != nil || len(got.keys) != keys || got.types[0] != keyspace.Int8 {
			t.Errorf("%s: %d keys, %v", text, len(got.keys), err)
		}
	}
	for _, text := range []string{"zipf", "zipf:1:10", "zipf:x:10", "zipf:2:0", "zipf:2:10:0", "uniform:10", "serial:-1", "serial:1:2", "zipf:1.1:10:10:-1", "zipf:NaN:10"} {
		if _, ok, err := Generator(text); !ok || sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue || !strings.Contains(sqlstate.As(err).Hint, "zipf:") {
			t.Errorf("%s: %v, %v", text, ok, err)
		}
	}
	if _, ok, _ := Generator("orders.csv"); ok {
		t.Error("a file is no generator")
	}
}
