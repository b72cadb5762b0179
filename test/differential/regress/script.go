package main

import (
	"regexp"
	"strings"
)

// statement is one of a script.
type statement struct {
	sql  string
	data string // of COPY FROM STDIN
	line int
}

// read splits a script of psql's into statements. What ends with a command of
// psql (\gset and its kin) is left out, and so are psql's own commands.
func read(text string) (out []statement) {
	var b strings.Builder
	start := 0
	lines := strings.Split(text, "\n")
	file := ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		trimmed := strings.TrimSpace(line)
		if strings.TrimSpace(b.String()) == "" {
			if m := setFile.FindStringSubmatch(trimmed); m != nil {
				file = m[1]
			}
			if trimmed == "" || strings.HasPrefix(trimmed, `\`) || strings.HasPrefix(trimmed, "--") {
				b.Reset()
				continue
			}
			start = i + 1
		} else if strings.HasPrefix(trimmed, `\`) && !open(b.String()) {
			b.Reset() // \gset on a line of its own
			continue
		}
		b.WriteString(line + "\n")
		for {
			sql, rest, ok := cut(b.String())
			if !ok {
				break
			}
			b.Reset()
			b.WriteString(rest)
			if strings.TrimSpace(sql) == "" {
				continue
			}
			sql = strings.ReplaceAll(sql, ":'filename'", "':abs_srcdir"+file+"'")
			st := statement{sql: strings.TrimSpace(leading.ReplaceAllString(sql, "")), line: start}
			if copyIn.MatchString(st.sql) {
				var data strings.Builder
				for i++; i < len(lines) && lines[i] != `\.`; i++ {
					data.WriteString(lines[i] + "\n")
				}
				st.data = data.String()
				b.Reset()
			}
			out = append(out, st)
		}
		if rest := b.String(); gcommand.MatchString(stripComment(rest)) && !open(rest) {
			b.Reset()
		}
	}
	return out
}

var (
	leading  = regexp.MustCompile(`^(\s|--[^\n]*\n|/\*[^*]*\*/)+`)           // comments before a statement
	copyIn   = regexp.MustCompile(`(?is)^copy\s.*\sfrom\s+(stdin|stdout)\b`) // STDOUT is taken for STDIN
	setFile  = regexp.MustCompile(`^\\set filename :abs_srcdir '([^']+)'`)
	gcommand = regexp.MustCompile(`\\(g\w*|bind|parse|crosstabview|;)`)
)

func stripComment(s string) string {
	if i := strings.Index(s, "--"); i >= 0 {
		return s[:i]
	}
	return s
}

// cut returns the text up to the first semicolon that ends a statement.
func cut(s string) (sql, rest string, ok bool) {
	end := scan(s)
	if end < 0 {
		return "", s, false
	}
	return s[:end], s[end+1:], true
}

// open reports whether a text ends inside of a quoted part.
func open(s string) bool { return scan(s+"\n;") < 0 }

var dollarQuote = regexp.MustCompile(`^\$[A-Za-z_0-9]*\$`)

// scan returns the place of the first semicolon outside of quotes, comments and
// brackets, -1 if there is none.
func scan(s string) int {
	depth, atomic := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\'':
			escapes := i > 0 && (s[i-1] == 'E' || s[i-1] == 'e')
			for i++; i < len(s) && s[i] != '\''; i++ {
				if escapes && s[i] == '\\' {
					i++
				}
			}
			if i >= len(s) {
				return -1
			}
		case c == '"':
			end := strings.IndexByte(s[i+1:], '"')
			if end < 0 {
				return -1
			}
			i += end + 1
		case strings.HasPrefix(s[i:], "--"):
			end := strings.IndexByte(s[i:], '\n')
			if end < 0 {
				return -1
			}
			i += end
		case strings.HasPrefix(s[i:], "/*"):
			end := strings.Index(s[i:], "*/")
			if end < 0 {
				return -1
			}
			i += end + 1
		case c == '$':
			if tag := dollarQuote.FindString(s[i:]); tag != "" {
				end := strings.Index(s[i+len(tag):], tag)
				if end < 0 {
					return -1
				}
				i += len(tag) + end + len(tag) - 1
			}
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == 'B' || c == 'b':
			if len(s) >= i+12 && strings.EqualFold(s[i:i+12], "BEGIN ATOMIC") {
				atomic = true
			}
		case c == 'E' || c == 'e':
			if atomic && len(s) >= i+4 && strings.EqualFold(s[i:i+3], "END") && s[i+3] == ';' {
				return i + 3
			}
		case c == ';' && depth <= 0 && !atomic:
			return i
		}
	}
	return -1
}
