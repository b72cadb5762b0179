package postgres

import (
	"fmt"
	"strings"
)

// The SQL made here runs in sessions whose settings are their users': any
// client_encoding, standard_conforming_strings and search_path. So it is ASCII
// only, string constants have one meaning under both settings, and every name
// and operator is qualified. It contains no dollar sign either, so that it can
// stand inside a dollar quote of any tag.

// literal returns s as a string constant.
func literal(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' || c == '$' {
			plain = false
			break
		}
	}
	var b strings.Builder
	if !plain {
		b.WriteByte('E')
	}
	b.WriteByte('\'')
	for _, r := range s {
		switch {
		case r == '\'':
			b.WriteString("''")
		case r == '\\':
			b.WriteString(`\\`)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08X`, r)
		case r < ' ' || r > '~' || r == '$':
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// ident returns s as a quoted identifier.
func ident(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' || c == '$' {
			plain = false
			break
		}
	}
	if plain {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	var b strings.Builder
	b.WriteString(`U&"`)
	for _, r := range s {
		switch {
		case r == '"':
			b.WriteString(`""`)
		case r == '\\':
			b.WriteString(`\\`)
		case r > 0xffff:
			fmt.Fprintf(&b, `\+%06X`, r)
		case r < ' ' || r > '~' || r == '$':
			fmt.Fprintf(&b, `\%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// quoteName returns s quoted as it is, for names inside a constant: neither
// regclass nor PL/pgSQL's NEW and OLD know U&"...".
func quoteName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// qualified replaces the operators =, <>, < and + written between spaces by
// their names in pg_catalog, which no search_path can redirect.
func qualified(sql string) string { return operators.Replace(sql) }

var operators = strings.NewReplacer(
	" = ", " OPERATOR(pg_catalog.=) ",
	" <> ", " OPERATOR(pg_catalog.<>) ",
	" < ", " OPERATOR(pg_catalog.<) ",
	" > ", " OPERATOR(pg_catalog.>) ",
	" >= ", " OPERATOR(pg_catalog.>=) ",
	" + ", " OPERATOR(pg_catalog.+) ",
	" & ", " OPERATOR(pg_catalog.&) ",
	" || ", " OPERATOR(pg_catalog.||) ",
)
