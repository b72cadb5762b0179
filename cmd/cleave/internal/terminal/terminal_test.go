package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/waitfor"
)

func TestComplete(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT 1;":                true,
		"SELECT 1":                 false,
		"SELECT 1; -- done":        true,
		"SELECT 1; /* done */ \n":  true,
		"SELECT 1; SELECT 2":       false,
		"SELECT ';":                false,
		"SELECT 'it''s;":           false,
		"SELECT 'it''s';":          true,
		`SELECT ";`:                false,
		`SELECT E'\';`:             false,
		`SELECT E'\'';`:            true,
		`SELECT '\';`:              true,
		"DO $$ BEGIN; END $$;":     true,
		"DO $$ BEGIN; END;":        false,
		"DO $a$ $b$; $a$;":         true,
		"SELECT $1;":               true,
		"SELECT a$b;":              true,
		"/* /* */ SELECT 1;":       false,
		"/* /* */ */ SELECT 1;":    true,
		"-- only a comment;":       false,
		"SELECT 1 -- half;\n + 2;": true,
		"":                         false,
	} {
		if got := Complete(sql); got != want {
			t.Errorf("complete(%q) = %v", sql, got)
		}
	}
}

func FuzzComplete(f *testing.F) {
	for _, s := range []string{"SELECT 1;", "'", "$$", "$a$", "/*", "--", `E'\`, "\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		done := make(chan bool, 1)
		go func() { done <- Complete(s) }()
		select {
		case <-done:
		case <-time.After(waitfor.Max):
			t.Fatalf("complete(%q) does not end", s)
		}
	})
}

func TestTableIsAlignedAndSafe(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, []string{"A", "B"}, [][]string{{"é", "x"}, {"long", "\x1b[31mred\x07"}}); err != nil {
		t.Fatal(err)
	}
	want := "A     B\né     x\nlong  ?[31mred?\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	var level slog.LevelVar
	log := NewLog(&b, "text", &level)
	log.Debug("hidden")
	log.With("a", 1).WithGroup("g").With("b", "two words").Info("hello\nworld", "c", errors.New("x=y"), slog.Group("h", "d", true))
	level.Set(Level("debug"))
	log.Debug("shown")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	if got, want := lines[0][len("15:04:05.000 "):], `INFO  hello world  a=1 g.b="two words" g.c="x=y" g.h.d=true`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.Reset()
	NewLog(&b, "json", &level).LogAttrs(context.Background(), slog.LevelWarn, "m", slog.String("k", "v"))
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["k"] != "v" || line["level"] != "WARN" {
		t.Errorf("%s: %v", b.String(), err)
	}
}
