package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// The attribute names of log lines, one word per concept.
const (
	KeyShard    = "shard"
	KeySession  = "session"
	KeyClient   = "client"
	KeyVersion  = "version" // of the shard map
	KeySQLState = "sqlstate"
	KeyRefusal  = "refusal" // the id of a refusal
	KeyError    = "error"
	KeyShape    = "shape" // a statement's text without its literals
	KeyTook     = "took"
)

// NewLog returns a logger that writes lines of the format ("text" or "json")
// at the level ("debug", "info", "warn" or "error") and above to w.
func NewLog(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}

// Log returns l, or a logger that drops everything when l is nil.
func Log(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
