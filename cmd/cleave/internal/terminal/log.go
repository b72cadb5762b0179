package terminal

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// NewLog returns the log of a process. The level can be changed while it runs.
func NewLog(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(&peopleHandler{w: w, mu: &sync.Mutex{}, level: level})
}

// Level is a log level by its name.
func Level(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo // the settings allow no other names
	}
	return l
}

// peopleHandler writes one line a record for people to read:
//
//	15:04:05.000 INFO  router listens  address=127.0.0.1:6432
type peopleHandler struct {
	w      io.Writer
	mu     *sync.Mutex
	level  slog.Leveler
	attrs  []slog.Attr
	prefix string
}

// Enabled implements slog.Handler.
func (h *peopleHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h *peopleHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Time.Format("15:04:05.000 "))
	level := r.Level.String()
	b.WriteString(level)
	b.WriteString(strings.Repeat(" ", max(6-len(level), 1)))
	b.WriteString(Printable(r.Message))
	sep := "  "
	add := func(prefix string, a slog.Attr) {
		writeAttr(&b, &sep, prefix, a)
	}
	for _, a := range h.attrs {
		add("", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		add(h.prefix, a)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

func writeAttr(b *strings.Builder, sep *string, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			writeAttr(b, sep, prefix, g)
		}
		return
	}
	b.WriteString(*sep)
	*sep = " "
	b.WriteString(prefix)
	b.WriteString(a.Key)
	b.WriteByte('=')
	text := v.String()
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		text = strconv.Quote(text)
	}
	b.WriteString(text)
}

// WithAttrs implements slog.Handler.
func (h *peopleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		a.Key = h.prefix + a.Key
		n.attrs = append(n.attrs, a)
	}
	return &n
}

// WithGroup implements slog.Handler.
func (h *peopleHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	n := *h
	n.prefix += name + "."
	return &n
}
