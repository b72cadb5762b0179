package trace

import (
	"bytes"
	"context"
	"encoding/hex"
	"strings"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// Parent is the caller's span: W3C Trace Context, level 1. The zero value is none.
type Parent struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// IsZero reports whether there is no parent.
func (p Parent) IsZero() bool { return p.trace == [16]byte{} }

// TraceID is the id of the trace in hexadecimal, "" without a parent.
func (p Parent) TraceID() string {
	if p.IsZero() {
		return ""
	}
	return hex.EncodeToString(p.trace[:])
}

// ParseParent reads a traceparent: version, trace id, span id and flags. Later
// versions may have more after the flags, as the standard demands.
func ParseParent(s string) (p Parent, ok bool) {
	const size = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < size || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || strings.ToLower(s[:size]) != s[:size] {
		return Parent{}, false
	}
	if len(s) > size && (s[:2] == "00" || s[size] != '-') {
		return Parent{}, false
	}
	var version, flags [1]byte
	for _, f := range []struct {
		to   []byte
		from string
	}{{version[:], s[:2]}, {p.trace[:], s[3:35]}, {p.span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if _, err := hex.Decode(f.to, []byte(f.from)); err != nil {
			return Parent{}, false
		}
	}
	if p.trace == [16]byte{} || p.span == [8]byte{} {
		return Parent{}, false
	}
	p.sampled = flags[0]&1 == 1
	return p, true
}

// FromContext returns the span of a Go context, for a [Parent] to hand on.
func FromContext(ctx context.Context) Parent {
	sc := oteltrace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return Parent{}
	}
	return Parent{trace: sc.TraceID(), span: sc.SpanID(), sampled: sc.IsSampled()}
}

// String writes the traceparent, "" without a parent.
func (p Parent) String() string {
	if p.IsZero() {
		return ""
	}
	flags := "-00"
	if p.sampled {
		flags = "-01"
	}
	return "00-" + hex.EncodeToString(p.trace[:]) + "-" + hex.EncodeToString(p.span[:]) + flags
}

// Comment returns sql with the context's span in a comment at its end, as
// sqlcommenter writes it, for the simple protocol and for statements that are not
// prepared: the router takes it off before it looks for a plan. Without a span,
// or with a comment at the end already, it returns sql as it is.
func Comment(ctx context.Context, sql string) string {
	p := FromContext(ctx)
	trimmed := strings.TrimRight(sql, " \t\r\n;")
	if p.IsZero() || strings.HasSuffix(trimmed, "*/") {
		return sql
	}
	return trimmed + " /*traceparent='" + p.String() + "'*/"
}

var (
	opens  = []byte("/*")
	closes = []byte("*/")
	key    = []byte("traceparent='")
)

// commentMax bounds a comment that is looked at, bytes.
const commentMax = 4 << 10

// CutEnd takes a comment that holds a traceparent off the end of a statement, and
// the white space before it. ok
// is false if there is none, and then rest is sql. Only a comment without another
// one in it is taken. A text that has no such comment there, but a string or
// another comment that looks like one, is not a statement before or after.
func CutEnd(sql []byte) (rest []byte, p Parent, ok bool) {
	// The common case: no comment.
	end := len(sql)
	for end > 0 && (sql[end-1] == ';' || sql[end-1] <= ' ') {
		end--
	}
	if end < 4 || sql[end-1] != '/' || sql[end-2] != '*' {
		return sql, Parent{}, false
	}
	at := bytes.LastIndex(sql[max(0, end-commentMax):end-2], opens)
	if at < 0 {
		return sql, Parent{}, false
	}
	at += max(0, end-commentMax)
	if p, ok = inComment(sql[at+2 : end-2]); !ok {
		return sql, Parent{}, false
	}
	return bytes.TrimRight(sql[:at], " \t\r\n"), p, true
}

// CutBegin is CutEnd for a comment at the beginning and the white space after it.
func CutBegin(sql []byte) (rest []byte, p Parent, ok bool) {
	from := 0
	for from < len(sql) && sql[from] <= ' ' {
		from++
	}
	if !bytes.HasPrefix(sql[from:], opens) {
		return sql, Parent{}, false
	}
	end := bytes.Index(sql[from+2:min(len(sql), from+commentMax)], closes)
	if end < 0 {
		return sql, Parent{}, false
	}
	if p, ok = inComment(sql[from+2 : from+2+end]); !ok {
		return sql, Parent{}, false
	}
	return bytes.TrimLeft(sql[from+2+end+2:], " \t\r\n"), p, true
}

// inComment finds a traceparent among the pairs of a comment's text.
func inComment(text []byte) (Parent, bool) {
	if bytes.Contains(text, opens) || bytes.Contains(text, closes) {
		return Parent{}, false
	}
	at := bytes.Index(text, key)
	if at < 0 || at > 0 && text[at-1] != ',' && text[at-1] != ' ' {
		return Parent{}, false
	}
	value := text[at+len(key):]
	end := bytes.IndexByte(value, '\'')
	if end < 0 {
		return Parent{}, false
	}
	return ParseParent(string(value[:end]))
}
