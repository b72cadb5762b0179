package terminal

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/sqlstate"
)

// Complete reports whether the text ends with a semicolon that is outside of
// quotes and comments. It only decides when to send; the router reads the
// statement itself.
func Complete(sql string) bool {
	ended := false
	for i := 0; i < len(sql); {
		rest := sql[i:]
		switch c := sql[i]; {
		case c == ';':
			ended = true
			i++
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(rest, "--"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				return ended
			}
			i += n
		case strings.HasPrefix(rest, "/*"):
			n := skipComment(rest)
			if n < 0 {
				return false
			}
			i += n
		case c == '\'' || c == '"':
			escapes := c == '\'' && i > 0 && (sql[i-1] == 'e' || sql[i-1] == 'E')
			n := skipQuoted(rest, c, escapes)
			if n < 0 {
				return false
			}
			i, ended = i+n, false
		case c == '$':
			n, ok := skipDollar(rest)
			if !ok {
				return false
			}
			i, ended = i+n, false
		default:
			i, ended = i+1, false
		}
	}
	return ended
}

// skipQuoted returns the length of a quoted text, -1 if it is open.
func skipQuoted(s string, quote byte, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return -1
}

// skipComment returns the length of a comment, which may hold others, -1 if it
// is open.
func skipComment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); {
		switch {
		case s[i] == '/' && s[i+1] == '*':
			depth, i = depth+1, i+2
		case s[i] == '*' && s[i+1] == '/':
			if depth, i = depth-1, i+2; depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return -1
}

// skipDollar returns the length of a dollar-quoted text, or of a lone dollar;
// ok is false if the text is open.
func skipDollar(s string) (n int, ok bool) {
	end := strings.IndexByte(s[1:], '$')
	if end < 0 {
		return 1, true
	}
	tag := s[:end+2]
	for i, r := range tag[1 : len(tag)-1] {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80
		if !letter && (i == 0 || r < '0' || r > '9') {
			return 1, true
		}
	}
	at := strings.Index(s[len(tag):], tag)
	if at < 0 {
		return 0, false
	}
	return len(tag) + at + len(tag), true
}

// ServerError makes an Error of what a server answered.
func ServerError(err error) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return err
	}
	e := &sqlstate.Error{Code: sqlstate.Code(pe.Code), Message: pe.Message, Detail: pe.Detail, Hint: pe.Hint, Routine: pe.Routine,
		Position: int(pe.Position), Where: pe.Where, Schema: pe.SchemaName, Table: pe.TableName, Column: pe.ColumnName, Constraint: pe.ConstraintName}
	return e.Received()
}
