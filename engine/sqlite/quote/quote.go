package quote

import "strings"

// Ident quotes a name for SQLite.
func Ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// Text is a constant of type text, for SQLite.
func Text(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// PGIdent quotes an identifier where PostgreSQL's quote_ident does.
func PGIdent(s string) string {
	safe := s != "" && !(s[0] >= '0' && s[0] <= '9')
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			safe = false
		}
	}
	if safe && !reservedWords[s] {
		return s
	}
	return Ident(s)
}

// PGIdents quotes and joins names.
func PGIdents(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = PGIdent(n)
	}
	return strings.Join(out, ", ")
}

// PGLiteral is quote_literal.
func PGLiteral(s string) string {
	q := Text(s)
	if strings.Contains(q, `\`) {
		q = "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

// Idents quotes and joins names for SQLite.
func Idents(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = Ident(n)
	}
	return strings.Join(out, ", ")
}
