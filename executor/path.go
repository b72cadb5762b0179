package executor

import (
	"strings"
	"unicode/utf8"
)

// nameBytes is the length to which PostgreSQL cuts names: NAMEDATALEN - 1.
const nameBytes = 63

// SplitPath splits the SQL text of a search_path: names, quoted names, string
// literals, separated by commas. Each string literal is one name, as SET takes
// it; text that is not such a list gives what could be read. Text has no literals.
// Names are folded and cut as PostgreSQL does it (SplitIdentifierString in src/backend/utils/adt/varlena.c).
func SplitPath(v string) []string {
	v, text := strings.CutPrefix(v, textMark)
	var path []string
	for i := 0; i < len(v); {
		switch c := v[i]; {
		case isSpace(c) || c == ',':
			i++
		case c == '"' || !text && literalAt(v[i:]):
			name, n := unquote(v[i:])
			path = append(path, cutName(name))
			i += n
		default:
			j := i
			for j < len(v) && !isSpace(v[j]) && v[j] != ',' {
				j++
			}
			path = append(path, cutName(FoldASCII(v[i:j])))
			i = j
		}
	}
	return path
}

// Literal is the text of an SQL string literal; ok is false for any other text.
func Literal(v string) (text string, ok bool) {
	if !literalAt(v) {
		return "", false
	}
	text, n := unquote(v)
	return text, n == len(v)
}

// DiffersByVersion reports whether the versions of PostgreSQL read a search_path otherwise: a vertical tab between names is a space
// from 16 on, and part of a name before.
func DiffersByVersion(path string) bool {
	return strings.HasPrefix(path, textMark) && strings.Contains(path, "\v")
}

// isSpace is PostgreSQL's scanner_isspace.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// literalAt reports whether a string literal begins there.
func literalAt(v string) bool {
	return strings.HasPrefix(v, "'") || len(v) > 1 && (v[0] == 'E' || v[0] == 'e') && v[1] == '\''
}

// unquote reads a quoted name or a string literal, and returns how many bytes it has.
func unquote(v string) (text string, n int) {
	escaped := v[0] == 'E' || v[0] == 'e'
	i := 0
	if escaped {
		i++
	}
	quote := v[i]
	var b strings.Builder
	for i++; i < len(v); i++ {
		if escaped && v[i] == '\\' && i+1 < len(v) {
			i++
		} else if v[i] == quote {
			if i+1 >= len(v) || v[i+1] != quote {
				return b.String(), i + 1
			}
			i++
		}
		b.WriteByte(v[i])
	}
	return b.String(), len(v)
}

// cutName cuts a name to the bytes that PostgreSQL keeps of it, and no letter in two (pg_mbcliplen).
func cutName(name string) string {
	if len(name) <= nameBytes {
		return name
	}
	n := nameBytes
	for n > 0 && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n]
}

// FoldASCII makes the letters A to Z small, and no others: PostgreSQL folds names so in UTF8 (downcase_identifier in
// src/backend/parser/scansup.c), and settings (guc_name_compare in src/backend/utils/misc/guc.c).
func FoldASCII(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}
